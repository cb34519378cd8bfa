"""What is in a cubin: its kernels and instructions, as NVIDIA's tools show them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def tool(name):
    """Find a program of NVIDIA's pip packages, or of a CUDA toolkit."""
    for folder in sys.path:
        for path in Path(folder, "nvidia").glob(f"*/bin/{name}"):
            return str(path)
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def run(program, algorithm, tmp_path, *options):
    file = tmp_path / "build.cubin"
    file.write_bytes(algorithm.cubin())
    done = subprocess.run([tool(program), *options, str(file)], capture_output=True, text=True, check=True)
    return done.stdout


def kernels(algorithm, tmp_path):
    return re.findall(r"\.section\s+\.text\.(\S+?),", run("nvdisasm", algorithm, tmp_path, "-c"))


def instructions(algorithm, tmp_path):
    sass = run("nvdisasm", algorithm, tmp_path, "-c")
    return re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", sass, re.MULTILINE)


def spills_or_calls(algorithm, tmp_path):
    found = instructions(algorithm, tmp_path)
    assert len(found) > 100, "the disassembly was not understood"
    return [name for name in found if name.split(".")[0] in ("CALL", "LDL", "STL")]
