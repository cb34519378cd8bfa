"""Compiles C++ to LTO-IR with NVRTC, and asks it for which GPUs it does.

The C++ is that of iterators and operators.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

from .._base.errors import ArgumentValueError, BuildError
from .._kernels.headers import own as own_headers
from . import toolchain

# Compute capabilities that NVRTC supports in every minor version of a CUDA, so that it need not be loaded
# to be asked. Newer minor versions support more.
ALWAYS_SUPPORTED = {
    12: frozenset((50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90)),
    13: frozenset((75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121)),
}


def _loaded() -> Any:
    toolchain.load_library("nvrtc")
    from cuda.bindings import nvrtc

    return nvrtc


def _checked(nvrtc: Any, result: tuple[Any, ...]) -> Any:
    """Return the results of an NVRTC call without its status; raise BuildError unless it succeeded."""
    status, *values = result
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise BuildError(f"NVRTC: {nvrtc.nvrtcGetErrorString(status)[1].decode()}")
    return values[0] if values else None


@functools.cache
def supported() -> tuple[int, ...]:
    """Return the compute capabilities that NVRTC supports, as in 90, in order.

    numba.cuda takes the list for Python operators from NVRTC, too.
    """
    nvrtc = _loaded()
    return tuple(sorted(_checked(nvrtc, nvrtc.nvrtcGetSupportedArchs())))


def check_cc(cc: int) -> None:
    """Raise ValueError for a compute capability that the compilers do not support.

    Where they cannot be asked nothing is raised: a machine without them may still find builds in the cache.
    """
    try:
        major = toolchain.cuda_major()
        if cc in ALWAYS_SUPPORTED[major]:
            return
        found = supported()
    except (ImportError, OSError, BuildError):
        return
    if cc not in found:
        older = "; CUDA 12 knows older ones: pip install cupar[cu12]" if cc < found[0] and major > 12 else ""
        raise ArgumentValueError(
            "cc",
            f"the compilers of CUDA {major} do not know sm_{cc}; supported: "
            f"{', '.join(map(str, found))}{older}",
        )


def compile_cpp(source: str, cc: int) -> bytes:
    """Compile C++ device functions to LTO-IR."""
    return _compiled(source.encode(), cc, toolchain.CPP_OPTIONS)


def compile_source(
    source: bytes, cc: int, headers: Sequence[tuple[str, bytes]], options: Sequence[str]
) -> bytes:
    """Compile C++ of the user's to LTO-IR, which includes these headers, by name, and CUDA's and CCCL's."""
    from .._external.sources import SOURCE

    standard = any(each.lstrip("-").startswith("std=") for each in options)
    own = [each for each in toolchain.CPP_OPTIONS if not (standard and each.startswith("-std="))]
    return _compiled(source, cc, (*own, *options), headers, SOURCE)


def compile_kernels(source: str, cc: int, *more: str) -> bytes:
    """Compile the C++ of kernels to LTO-IR, with options that do not change the result."""
    return _compiled(source.encode(), cc, (*toolchain.KERNEL_OPTIONS, *more), own_headers(source))


def set_heap_of_headers(size: int) -> None:
    """Set the size of NVRTC's heap for precompiled headers; raises if this NVRTC has none."""
    nvrtc = _loaded()
    _checked(nvrtc, nvrtc.nvrtcSetPCHHeapSize(size))


def _compiled(
    source: bytes,
    cc: int,
    given: Sequence[str],
    headers: Sequence[tuple[str, bytes]] = (),
    name: str = "cupar.cu",
) -> bytes:
    nvrtc = _loaded()
    check = functools.partial(_checked, nvrtc)
    folders = (f"-I{folder}" for folder in toolchain.include_folders())
    options = [os.fsencode(option) for option in (f"-arch=sm_{cc}", *given, *folders)]
    names = [header.encode(errors="surrogateescape") for header, _ in headers]
    texts = [text for _, text in headers]
    program = check(nvrtc.nvrtcCreateProgram(source, name.encode(), len(headers), texts, names))
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(options), options)[0]
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = b" " * check(nvrtc.nvrtcGetProgramLogSize(program))
            check(nvrtc.nvrtcGetProgramLog(program, log))
            raise BuildError(f"NVRTC could not compile for sm_{cc}:\n{toolchain.log_text(log)}")
        code: bytes = b" " * check(nvrtc.nvrtcGetLTOIRSize(program))
        check(nvrtc.nvrtcGetLTOIR(program, code))
        return code
    finally:
        nvrtc.nvrtcDestroyProgram(program)
