"""GPU code as text, by NVIDIA's disassembler."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

from .._base.errors import BuildError
from .._compile import toolchain


@functools.cache
def _nvdisasm() -> str:
    """Return the path of ``nvdisasm``: in NVIDIA's wheels, in a toolkit, or on PATH."""
    import shutil

    from cuda import pathfinder

    found = pathfinder.find_nvidia_binary_utility("nvdisasm") or shutil.which("nvdisasm")
    if found is None:
        cuda = toolchain.cuda_major()
        wheel = "nvidia-cuda-nvdisasm" + ("" if cuda == 13 else f"-cu{cuda}")
        raise ImportError(
            f"to show GPU code, nvdisasm is needed: pip install {wheel}, or set CUDA_HOME to a CUDA toolkit"
        )
    return found


def sass(cubin: bytes) -> str:
    """Return the instructions of GPU code, an ELF file."""
    program = _nvdisasm()
    with tempfile.TemporaryDirectory() as folder:  # it reads files alone
        file = Path(folder, "build.cubin")
        file.write_bytes(cubin)
        done = subprocess.run([program, "-c", str(file)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{program}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
