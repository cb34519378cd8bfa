"""The compilers: where they are, which versions they have, and the three calls cupar makes to them.

NVRTC compiles the C++ of converting iterators, numba.cuda compiles Python operators (see `_numba`), nvJitLink
links both with CCCL's kernels. Finding them and reading their versions is on the path of every start, so that
part imports nothing heavy; the compilers themselves are imported by the functions that call them.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import _cache
from .._base.versions import beside, package_version


class BuildError(RuntimeError):
    """A compiler refused what cupar gave it; the message holds the compiler's own."""


_busy: dict[int, int] = {}  # threads that use the compilers, each with how often it began to
_is_stuck = False


@contextmanager
def compilers() -> Iterator[None]:
    """Use the compilers, which hold locks of their own, for the block.

    Raises
    ------
    BuildError
        If this process was forked while another thread used them.
    """
    if _is_stuck:
        raise BuildError(
            "This process was forked while another thread was building, and has inherited the compilers' "
            "locks as that thread held them. Wait for builds before a fork (Algorithm.ready), or start the "
            "process with 'spawn' or 'forkserver'."
        )
    thread = threading.get_ident()
    _busy[thread] = _busy.get(thread, 0) + 1
    try:
        yield
    finally:
        _busy[thread] -= 1
        if not _busy[thread]:
            del _busy[thread]


def _after_fork() -> None:
    global _is_stuck
    _is_stuck = _is_stuck or bool(_busy.keys() - {threading.get_ident()})
    _busy.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# ---------------------------------------------------------------------------------------------------------
# Versions
# ---------------------------------------------------------------------------------------------------------


def cuda_major() -> int:
    """Return 12 or 13: the CUDA for which cuda-bindings, and so cuda-cccl's extension, was made.

    Raises
    ------
    ImportError
        If cuda-bindings is missing or of another major version.
    """
    version = package_version("cuda-bindings")
    major = version.partition(".")[0]
    if major not in ("12", "13"):
        raise ImportError(f"cupar needs cuda-bindings 12 or 13, found {version}: pip install cupar[cu13]")
    return int(major)


@dataclass(frozen=True)
class _Library:
    """A compiler library: its name for cuda.pathfinder, its SONAME and its place in NVIDIA's wheels."""

    name: str
    soname: str
    wheel: str


def _library(name: str) -> _Library:
    major = cuda_major()
    soname, wheel_12 = {
        "nvrtc": (f"libnvrtc.so.{major}", "cuda_nvrtc/lib"),
        "nvJitLink": (f"libnvJitLink.so.{major}", "nvjitlink/lib"),
        "nvvm": ("libnvvm.so.4", "cuda_nvcc/nvvm/lib64"),
    }[name]
    return _Library(name, soname, f"nvidia/{'cu13/lib' if major == 13 else wheel_12}/{soname}")


def _loaded_path(soname: str) -> Path | None:
    """Return the file of a library that this process has loaded already, PyTorch's perhaps."""
    try:
        ctypes.CDLL(soname, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        mapped = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    found = (Path(line.partition("/")[2]) for line in mapped.splitlines() if f"/{soname}" in line)
    return next((Path("/", path) for path in found), None)


@functools.cache
def library_path(name: str) -> Path:
    """Return the file of a compiler library, without loading it if it can be found so.

    The places and their order are cuda.pathfinder's: what is loaded, NVIDIA's wheels, then all others. For
    those pathfinder itself is asked, which costs 40 ms, so the cache keeps its answer.

    Parameters
    ----------
    name : {"nvrtc", "nvJitLink", "nvvm"}

    Raises
    ------
    ImportError
        If the library is nowhere.
    """
    library = _library(name)
    loaded = _loaded_path(library.soname)
    if loaded is not None:
        return loaded
    for folder in sys.path:
        path = Path(folder, library.wheel)
        if path.is_file():
            return path
    found = _cache.fetch(_search_key(library), lambda: _search(library), portable=False)
    entry = found.entry
    path = Path(entry.payload.decode())
    if entry.meta.get("entry") != "search" or not path.is_file():  # none of this machine's, or out of date
        path = Path(_search(library).payload.decode())
    return path


def _search(library: _Library) -> _cache.Entry:
    from cuda import pathfinder

    try:
        path = pathfinder.load_nvidia_dynamic_lib(library.name).abs_path
    except pathfinder.DynamicLibNotFoundError as error:
        raise ImportError(
            f"cupar needs {library.soname} to build: pip install cupar[cu{cuda_major()}], or set CUDA_HOME "
            f"to a CUDA {cuda_major()} toolkit"
        ) from error
    return _cache.Entry({"entry": "search", "library": library.soname}, str(path).encode())


def _search_key(library: _Library) -> str:
    """Return a key for all that decides where pathfinder finds a library."""
    variables = ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX", "LD_LIBRARY_PATH")
    decides: list[Any] = [library.soname, sys.prefix, *map(os.environ.get, variables)]
    # These change when a toolkit, or the link to one, comes or goes.
    for place in ("/etc/ld.so.cache", "/usr/local", os.environ.get("CONDA_PREFIX", "") + "/lib"):
        with suppress(OSError):
            decides.append([place, Path(place).stat().st_mtime_ns])
    return hashlib.sha256(repr(decides).encode()).hexdigest()


def load_library(name: str) -> None:
    """Load a compiler library so that libraries loaded later find it under its SONAME."""
    ctypes.CDLL(str(library_path(name)), mode=ctypes.RTLD_GLOBAL)


@functools.cache
def _library_version(name: str) -> str:
    """Return a tag of the library's very file: the head of an ELF file holds its layout and build id."""
    path = library_path(name)
    with path.open("rb") as file:
        head = file.read(4096)
        size = os.fstat(file.fileno()).st_size
    return f"{size}-{hashlib.sha256(head).hexdigest()[:16]}"


def _headers() -> Path | None:
    """Return the folder of CUDA's headers in NVIDIA's wheels, None if they are elsewhere."""
    wheel = f"nvidia/{'cu13' if cuda_major() == 13 else 'cuda_runtime'}/include"
    return next((path for folder in sys.path if (path := Path(folder, wheel)).is_dir()), None)


def _headers_version() -> str:
    project = "nvidia-cuda-runtime" if cuda_major() == 13 else "nvidia-cuda-runtime-cu12"
    folder = _headers()
    return "toolkit" if folder is None else " ".join(sorted(beside(folder.parents[2]).get(project, ())))


@functools.cache
def template_versions() -> dict[str, str]:
    """Return the versions that CCCL's kernels depend on: the sources, their compiler and the linker."""
    return {
        "cuda-cccl": package_version("cuda-cccl"),
        "cuda-major": str(cuda_major()),
        "nvrtc": _library_version("nvrtc"),
        "nvjitlink": _library_version("nvJitLink"),
        # A toolkit that is not made of wheels changes its headers and NVRTC together.
        "cuda-headers": _headers_version(),
    }


@functools.cache
def operator_versions() -> dict[str, str]:
    """Return the versions that the code of a Python operator depends on.

    NumPy is among them because numba reads the types of ufuncs from it.
    """
    return {
        "python": f"{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}",
        **{project: package_version(project) for project in ("numba-cuda", "numba", "llvmlite")},
        "numpy": np.__version__,
        "nvvm": _library_version("nvvm"),
    }


@functools.cache
def include_folders() -> tuple[Path, Path]:
    """Return the folders of CCCL's headers and of the CUDA toolkit's."""
    import cuda

    cccl = next((p for folder in cuda.__path__ if (p := Path(folder, "cccl/headers/include")).is_dir()), None)
    if cccl is None:
        raise ImportError("cuda-cccl is installed without its headers: reinstall cuda-cccl")
    toolkit = _headers()
    if toolkit is None:
        from cuda import pathfinder

        located = pathfinder.find_nvidia_header_directory("cudart")
        if located is None:
            raise ImportError(
                f"cupar needs CUDA's headers to build: pip install cupar[cu{cuda_major()}], or set CUDA_HOME"
            )
        toolkit = Path(located)
    return cccl, toolkit


# ---------------------------------------------------------------------------------------------------------
# C++ and linking
# ---------------------------------------------------------------------------------------------------------


CPP_OPTIONS = ("-dlto", "-rdc=true", "-std=c++17")


def compile_cpp(source: str, cc: int) -> bytes:
    """Compile C++ device functions to LTO-IR with NVRTC."""
    load_library("nvrtc")
    from cuda.bindings import nvrtc

    def check(result: tuple[Any, ...]) -> Any:
        status, *values = result
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise BuildError(f"NVRTC: {nvrtc.nvrtcGetErrorString(status)[1].decode()}")
        return values[0] if values else None

    options = [f"-arch=sm_{cc}", *CPP_OPTIONS, *(f"-I{folder}" for folder in include_folders())]
    program = check(nvrtc.nvrtcCreateProgram(source.encode(), b"cupar.cu", 0, [], []))
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])[0]
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = b" " * check(nvrtc.nvrtcGetProgramLogSize(program))
            check(nvrtc.nvrtcGetProgramLog(program, log))
            raise BuildError(f"NVRTC could not compile for sm_{cc}:\n{log.decode()}")
        code: bytes = b" " * check(nvrtc.nvrtcGetLTOIRSize(program))
        check(nvrtc.nvrtcGetLTOIR(program, code))
        return code
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def link_options() -> list[str]:
    """Return how nvJitLink links, whatever it links."""
    # CUB's headers define hundreds of constants that no kernel uses and nobody looks up: without them a
    # cubin has a third of its size. Kernels go through ptxas on several cores (15 % of a link on two);
    # tried with CUDA 13 alone.
    options = ["-lto", "-optimize-unused-variables"]
    return [*options, "-Xptxas=--split-compile=0"] if cuda_major() == 13 else options


def link(parts: Sequence[bytes], cc: int, names: Sequence[str] = ()) -> bytes:
    """Link LTO-IR into a cubin for ``sm_<cc>`` with nvJitLink; `names` say in errors what the parts are."""
    try:
        return _link(parts, cc)
    except BuildError as error:
        why = _why_not_linked(str(error), parts, cc, names) if names else None
        if why is None:
            raise
        from .._base.causes import cause

        raise BuildError(f"nvJitLink for sm_{cc}: {why}") from cause(error)


_DEFINED_TWICE = re.compile(
    r"^part (\d+): .*: Linking globals named '(.*)': symbol multiply defined", re.MULTILINE
)
_UNDEFINED = re.compile(r"Unresolved extern function '(.*?)'")
# What nvJitLink says of a part, not always which one, and what that means.
_OF_A_PART = {
    "ERROR_INCORRECT_INPUT_TYPE": "is no LTO-IR: make it with nvcc -dlto, or NVRTC",
    "ERROR_ARCH_MISMATCH": "is for a newer architecture than sm_{cc}: make it for sm_{cc} or an earlier one",
    "ERROR_NVVM_COMPILE": "is broken: make it anew",
}


def _why_not_linked(said: str, parts: Sequence[bytes], cc: int, names: Sequence[str]) -> str | None:
    """Return which part nvJitLink refuses and why, None if it says something else."""
    twice = _DEFINED_TWICE.search(said)
    if twice is not None:
        # nvJitLink names the second part alone.
        second, symbol = int(twice[1]), twice[2]
        first = next((i for i in range(second) if _both_define(symbol, parts[i], parts[second], cc)), second)
        return (
            f"function {symbol!r} is defined by the LTO-IR of {names[first]} and, in another way, by that of "
            f"{names[second]}: give one of the two functions another name"
        )
    undefined = _UNDEFINED.search(said)
    if undefined is not None:
        symbol = undefined[1]
        # nvJitLink does not say who calls it, and LTO-IR cannot be searched for names.
        all_of_users = dict.fromkeys(name for name in names if not name.startswith("part "))
        own = [name for name in all_of_users if name.endswith(f"(RawOp {symbol!r})")]
        who = " or ".join(own or all_of_users)
        return (
            f'no LTO-IR defines the function {symbol!r} that {who} calls: check its name (extern "C" in '
            "C++), or add its LTO-IR to extra_ltoirs"
        )
    for sign, is_wrong in _OF_A_PART.items():
        if sign in said:
            number = next((i for i, part in enumerate(parts) if _is_refused(part, sign, cc)), None)
            if number is not None:
                return f"the LTO-IR of {names[number]} {is_wrong.format(cc=cc)}"
    return None


def _is_refused(part: bytes, sign: str, cc: int) -> bool:
    """Whether nvJitLink says so of a part alone, whose functions need not be there."""
    try:
        _link([part], cc)
    except BuildError as error:
        return sign in str(error)
    return False


def _both_define(symbol: str, one: bytes, other: bytes, cc: int) -> bool:
    try:
        _link([one, other], cc)
    except BuildError as error:
        twice = _DEFINED_TWICE.search(str(error))
        return twice is not None and twice[2] == symbol
    return False


def _link(parts: Sequence[bytes], cc: int) -> bytes:
    load_library("nvJitLink")
    from cuda.bindings import nvjitlink

    options = [*link_options(), f"-arch=sm_{cc}"]
    handle = nvjitlink.create(len(options), options)
    try:
        for number, part in enumerate(parts):
            nvjitlink.add_data(handle, nvjitlink.InputType.LTOIR, part, len(part), f"part {number}")
        nvjitlink.complete(handle)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
        return bytes(cubin)
    except nvjitlink.nvJitLinkError as error:
        log = bytearray(nvjitlink.get_error_log_size(handle))
        nvjitlink.get_error_log(handle, log)
        from .._base.causes import cause

        said = log.decode(errors="replace").rstrip("\0\n")
        raise BuildError(f"nvJitLink for sm_{cc}: {error}\n{said}") from cause(error)
    finally:
        nvjitlink.destroy(handle)
