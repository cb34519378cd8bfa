"""What is in a cubin: its kernels and instructions, as NVIDIA's tools show them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import compilers

from cupar._kernels.elf import Elf

# What an instruction of 16 bytes does is said by its first nine bits, on all GPUs that are built for; that it
# is, `test_shown` tests.
SPILLS_AND_CALLS = {0x143: "CALL", 0x144: "CALL", 0x183: "LDL", 0x187: "STL"}


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


def _code(cubin):
    """Return the machine code of each kernel, by its name."""
    elf = Elf(cubin)
    return {
        each.name.removeprefix(".text."): elf.data[each.at : each.at + each.size]
        for each in elf.sections
        if each.name.startswith(".text.")
    }


def kernels(algorithm, tmp_path):
    return list(_code(algorithm.cubin()))


def instructions(algorithm, tmp_path):
    assert compilers.is_optimised(), "it is not the code that users have: take the fixture `optimised`"
    sass = run("nvdisasm", algorithm, tmp_path, "-c")
    return re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", sass, re.MULTILINE)


def spills_or_calls(algorithm, tmp_path):
    """Return the names of instructions that spill or call, which is quicker than to disassemble all."""
    assert compilers.is_optimised(), "it is not the code that users have: take the fixture `optimised`"
    code = b"".join(_code(algorithm.cubin()).values())
    opcodes = [int.from_bytes(code[at : at + 2], "little") & 0x1FF for at in range(0, len(code), 16)]
    assert len(opcodes) > 100 and 0x14D in opcodes, "it does not end"  # EXIT
    return [SPILLS_AND_CALLS[each] for each in opcodes if each in SPILLS_AND_CALLS]
