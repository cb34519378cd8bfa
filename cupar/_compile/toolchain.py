"""Where the compilers are, and what of them a build depends on: versions and options.

Every start asks, so nothing here imports or loads a compiler. They are called in `nvrtc`,
`python_to_ltoir` and `nvjitlink`.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from .. import _cache
from .._base import fork
from .._base.device import has_gpus
from .._base.digests import canonical, sha256
from .._base.errors import BuildError
from .._base.versions import ABSENT, beside, check_version, machine, own_version, package_version
from .._store.entry import Entry, key_of

_busy: Counter[int] = Counter()  # depth of `compilers` blocks, by thread
_is_stuck = False


@contextmanager
def compilers() -> Iterator[None]:
    """Use the compilers for the block; raise BuildError if they are stuck.

    They hold locks of their own, so they are if this process was forked while another thread used them.
    """
    if _is_stuck:
        raise BuildError(
            "This process was forked while another thread was building, and has inherited the compilers' "
            "locks as that thread held them. Wait for builds before a fork (Algorithm.ready), or start the "
            "process with 'spawn' or 'forkserver'."
        )
    thread = threading.get_ident()
    _busy[thread] += 1
    try:
        yield
    finally:
        _busy[thread] -= 1


@fork.in_child
def _forget() -> None:
    global _is_stuck
    del _busy[threading.get_ident()]
    _is_stuck = _is_stuck or any(_busy.values())
    _busy.clear()


# ---------------------------------------------------------------------------------------------------------
# Places
# ---------------------------------------------------------------------------------------------------------


# By library: its SONAME, with {} for CUDA's version; its folder in the wheels for CUDA 12; its wheels for
# CUDA 13 and 12.
_LIBRARIES: Final = {
    "nvrtc": ("libnvrtc.so.{}", "cuda_nvrtc/lib", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"),
    "nvJitLink": ("libnvJitLink.so.{}", "nvjitlink/lib", "nvidia-nvjitlink", "nvidia-nvjitlink-cu12"),
    "nvvm": ("libnvvm.so.4", "cuda_nvcc/nvvm/lib64", "nvidia-nvvm", "nvidia-cuda-nvcc-cu12"),
}


def cuda_major() -> int:
    """Return 12 or 13: the CUDA for which cuda-bindings was made."""
    version = package_version("cuda-bindings")
    major = version.partition(".")[0]
    if major not in ("12", "13"):
        raise ImportError(f"cupar needs cuda-bindings 12 or 13, found {version}: pip install cupar[cu13]")
    return int(major)


def _in_wheels(cu12: str, cu13: str) -> Path | None:
    """Return a file or folder of NVIDIA's wheels, by its place in those for each CUDA; None if not there."""
    place = f"nvidia/cu13/{cu13}" if cuda_major() == 13 else f"nvidia/{cu12}"
    return next((path for folder in sys.path if (path := Path(folder, place)).exists()), None)


def _loaded_path(soname: str) -> Path | None:
    """Return the file of a library that this process has loaded already, PyTorch's perhaps."""
    try:
        ctypes.CDLL(soname, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        mapped = os.fsdecode(Path("/proc/self/maps").read_bytes())
    except OSError:
        return None
    found = (Path(line.partition("/")[2]) for line in mapped.splitlines() if f"/{soname}" in line)
    return next((Path("/", path) for path in found), None)


@functools.cache
def library_path(name: str) -> Path:
    """Return the file of a compiler library: of ``nvrtc``, ``nvJitLink`` or ``nvvm``, loaded only if need be.

    The places and their order are cuda.pathfinder's: loaded libraries, NVIDIA's wheels, then all others. For
    those pathfinder itself is asked, which costs 40 ms, so the cache keeps its answer.
    """
    if not has_gpus():
        raise ImportError('cupar builds for GPUs on Linux; elsewhere it runs on the CPU: cupar.device("cpu")')
    soname, folder, *_ = _LIBRARIES[name]
    soname = soname.format(cuda_major())
    there = _loaded_path(soname) or _in_wheels(f"{folder}/{soname}", f"lib/{soname}")
    if there is not None:
        return there
    entry = _cache.fetch(_search_key(soname), lambda: _search(name, soname), portable=False).entry
    path = os.fsdecode(entry.payload)
    if entry.meta.get("entry") != "search" or not os.path.isfile(path):  # noqa: PTH113 - which takes any name
        path = os.fsdecode(_search(name, soname).payload)  # none of this machine's, or out of date
    return Path(path)


def _search(name: str, soname: str) -> Entry:
    """Have pathfinder find a library, by its own name for it."""
    from cuda import pathfinder

    try:
        path = pathfinder.load_nvidia_dynamic_lib(name).abs_path
    except pathfinder.DynamicLibNotFoundError as error:
        raise ImportError(
            f"cupar needs {soname} to build: pip install cupar[cu{cuda_major()}], or set CUDA_HOME "
            f"to a CUDA {cuda_major()} toolkit"
        ) from error
    return Entry({"entry": "search", "library": soname}, os.fsencode(str(path)))


def _search_key(soname: str) -> str:
    """Return a key for all that decides where pathfinder finds a library."""
    variables = ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX", "LD_LIBRARY_PATH")
    decides: list[object] = [soname, sys.prefix, *map(os.environ.get, variables)]
    # These change when a toolkit, or the link to one, comes or goes.
    for place in ("/etc/ld.so.cache", "/usr/local", os.environ.get("CONDA_PREFIX", "") + "/lib"):
        with suppress(OSError):
            decides.append([place, Path(place).stat().st_mtime_ns])
    return sha256(repr(decides).encode()).hexdigest()


def load_library(name: str) -> None:
    """Load a compiler library so that libraries loaded later find it under its SONAME.

    Raises
    ------
    ImportError
        If it is not there; a `VersionError` if cuda-bindings, by which it is called, is of another version.
    """
    check_version("cuda-bindings", package_version("cuda-bindings"))
    load_file(library_path(name))


def load_file(path: Path) -> None:
    """Load the file of a compiler library, and the builtins of NVRTC, which are beside it.

    NVRTC opens its builtins by their name alone when it compiles. The wheel of CUDA 13.0 has no RPATH that
    finds them; a library of that name that is loaded already is found by any NVRTC.
    """
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    if hasattr(library, "nvrtcVersion"):
        major, minor = ctypes.c_int(), ctypes.c_int()
        library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        builtins = path.resolve().with_name(f"libnvrtc-builtins.so.{major.value}.{minor.value}")
        with suppress(OSError):  # elsewhere: NVRTC finds it, or names it in its error
            ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)


def log_text(log: bytes | bytearray) -> str:
    """Return the text of a compiler's log, without the zero that ends it."""
    return log.decode(errors="replace").rstrip("\0\n ")


def _cuda_headers() -> Path | None:
    """Return the folder of CUDA's headers in NVIDIA's wheels, None if they are elsewhere."""
    return _in_wheels("cuda_runtime/include", "include")


@functools.cache
def include_folders() -> tuple[Path, ...]:
    """Return the folders of CCCL's headers and, last, of the CUDA toolkit's.

    Raises
    ------
    ImportError
        If one of them is not there; a `VersionError` if CCCL is another than those that cupar was written
        for, unless `CUPAR_CCCL` names it.
    """
    from . import cccl

    needed = "CUDA's headers to build"
    return *cccl.folders(), _cuda_headers() or _found("find_nvidia_header_directory", "cudart", needed)


def _found(function: str, name: str, needed: str) -> Path:
    """Return a place by one of pathfinder's functions; raise ImportError without one."""
    from cuda import pathfinder

    found = getattr(pathfinder, function)(name)
    if found is None:
        raise ImportError(f"cupar needs {needed}: pip install cupar[cu{cuda_major()}], or set CUDA_HOME")
    return Path(found)


def device_runtime() -> bytes:
    """Return the archive that kernels call which wait for their whole grid: ``libcudadevrt.a``."""
    needed = "libcudadevrt.a to build a kernel that waits for its whole grid"
    there = _in_wheels("cuda_runtime/lib/libcudadevrt.a", "lib/libcudadevrt.a")
    return (there or _found("find_static_lib", "cudadevrt", needed)).read_bytes()


# ---------------------------------------------------------------------------------------------------------
# Parts of keys: versions and options
# ---------------------------------------------------------------------------------------------------------


def _in(package: str, names: str) -> tuple[str, ...]:
    return tuple(f"{package}.{name}" for name in names.split())


# cupar's own modules that decide what code a build has, where nothing else in a key tells: options, and the
# C++ that cupar writes or ships, are in keys by value. A module that these import is in one of these or, with
# the reason why it decides nothing, in `tests/test_rooms.py`.
KERNELS = ("_build", *_in("_compile", "external nvjitlink nvrtc"))
OPERATORS = (
    *("_base.generated", "_numba", "structs"),
    *_in("_compile", "arithmetic bfloat16 cpp_calls inference libdevice numba_settings numba_types"),
    *_in("_compile", "python_kernel python_to_ltoir wrapper"),
    "_external.declared",
    *_in("_fingerprint", "bytecode fingerprint frozen names numbers values walk"),
    *_in("_ir", "cpp_function kinds nodes operator parameters signature specialisation types"),
)
ON_CPU = (
    *("_numba_cpu", "_ir.resolve"),
    *_in(
        "_cpu", "algorithms bit_sorts build code columns compactions compiling functions iterators kit loader"
    ),
    *_in("_cpu", "offsets operators schedules shuffle sorts target templates values"),
)


# Versions of compilers in keys; all other versions decide what a build computes. Builds that mean the same
# are compared by these in this order, where one of any compilers will do.
COMPILERS: Final = (
    *("cuda-major", "cuda-cccl", "nvrtc", "nvjitlink", "nvvm", "cuda-headers"),
    *("numba-cuda", "numba", "llvmlite", "numpy", "features of the CPU", "the CPU"),
)


_NAMES: Final = frozenset(COMPILERS)


def digest(parts: Mapping[str, Any]) -> str:
    """Return the key: made of the SHA-256 of the parts' canonical text, in hexadecimal.

    It is one of what the parts mean, and one of the compilers' versions: see `entry.key_of`.
    """
    versions = parts.get("versions")
    if not isinstance(versions, Mapping):
        return key_of(_hash(parts), _hash({}))
    compilers = {name: versions[name] for name in versions if name in _NAMES}
    others = {name: versions[name] for name in versions if name not in _NAMES}
    return key_of(_hash({**parts, "versions": others}), _hash(compilers))


def _hash(part: Any) -> str:
    return sha256(canonical(part).encode()).hexdigest()


@functools.cache
def host_cpu() -> tuple[str, str]:
    """Return the CPU that builds are made for, and its features, as LLVM has them.

    LLVM takes half of a hit to load, so the cache keeps its answer, by what Linux says of the CPU.
    """
    from .._jobs.threads import off_main_thread
    from . import cpu_features

    said = b""
    if decisive := cpu_features.decisive():
        key = sha256(repr([_SAID, package_version("llvmlite"), machine(), *decisive]).encode()).hexdigest()
        said = _cache.fetch(
            key, lambda: Entry(_SAID, off_main_thread(_host_cpu)), portable=False
        ).entry.payload
    if not _A_CPU.fullmatch(said):
        said = off_main_thread(_host_cpu)
    name, _, features = said.decode().partition("\n")
    return name, features


_SAID: Final = {"entry": "search", "library": "LLVM, of the CPU"}
_A_CPU: Final = re.compile(rb"[\w.-]+\n(?:[+-][\w.-]+(?:,[+-][\w.-]+)*)?")


def _host_cpu() -> bytes:
    from .._numba import llvm

    return f"{llvm.get_host_cpu_name()}\n{llvm.get_host_cpu_features().flatten()}".encode()


@functools.cache
def cpu_versions() -> Mapping[str, Any]:
    """Return the versions that a CPU build depends on: numba, LLVM, and the CPU."""
    versions: dict[str, Any] = {name: package_version(name) for name in ("numba", "llvmlite")}
    name, features, told = ABSENT, ABSENT, ""
    if ABSENT not in versions.values():
        name, found = host_cpu()
        features = sha256(found.encode()).hexdigest()[:16]
        told = ",".join(each for each in found.split(",") if each.startswith("+"))
    return {
        **versions,
        "numpy": np.__version__,
        "python": ".".join(map(str, sys.version_info[:2])),
        "the CPU": name,
        "features of the CPU": [features, told],
        "platform": f"{sys.platform} {machine()}",
        "cupar's code for operators": own_version(OPERATORS),
        "cupar's code for the CPU": own_version(ON_CPU),
    }


_IN_TOOLKIT: Final = re.compile(rb'"(?:libnvvm|cuda_nvcc)"\s*:\s*{[^{}]*"version"\s*:\s*"([0-9.]+)"')


@functools.cache
def _library_version(name: str) -> str:
    """Return the version of a library, the same on all kinds of machines: of its wheel, or else of a toolkit.

    One that says none has a tag of its very file: the head of an ELF file holds its layout and build id.
    """
    try:
        path = library_path(name)
    except ImportError:
        return ABSENT
    nvidia = next((each for each in path.parents if each.name == "nvidia"), None)
    wheel = _LIBRARIES[name][2 + (cuda_major() == 12)]
    found = set() if nvidia is None else beside(nvidia.parent).get(wheel, set())
    if len(found) == 1:
        return next(iter(found))
    if name == "nvvm":  # its file has a separate version number
        with suppress(OSError):
            match = _IN_TOOLKIT.search((path.resolve().parents[2] / "version.json").read_bytes())
            if match is not None:
                return match[1].decode()
    numbers = path.resolve().name.rpartition(".so.")[2]
    if name != "nvvm" and re.fullmatch(r"[0-9]+[.][0-9]+[.][0-9]+", numbers):
        return numbers
    with path.open("rb") as file:
        head = file.read(4096)
        size = os.fstat(file.fileno()).st_size
    return f"{size}-{sha256(head).hexdigest()[:16]}"


def _headers_version() -> str:
    """Return the version of the wheel of CUDA's headers; a toolkit changes them and NVRTC together."""
    folder = _cuda_headers()
    if folder is None:
        return "toolkit"
    project = "nvidia-cuda-runtime" if cuda_major() == 13 else "nvidia-cuda-runtime-cu12"
    return " ".join(sorted(beside(folder.parents[2]).get(project, ())))


def _cccl_version() -> str:
    if not os.environ.get("CUPAR_CCCL"):
        return package_version("cuda-cccl")
    from . import cccl

    return cccl.version_of_named()


@functools.cache
def template_versions() -> Mapping[str, str]:
    """Return the versions that CCCL's kernels depend on: the sources, their compiler and the linker.

    If one of the packages is missing, no library is looked for.
    """
    versions = dict.fromkeys(("cuda-cccl", "cuda-major", "nvrtc", "nvjitlink", "cuda-headers"), ABSENT)
    versions["cuda-cccl"] = _cccl_version()
    if package_version("cuda-bindings") != ABSENT:
        versions["cuda-major"] = str(cuda_major())
        if versions["cuda-cccl"] != ABSENT:
            versions["nvrtc"], versions["nvjitlink"] = map(_library_version, ("nvrtc", "nvJitLink"))
            versions["cuda-headers"] = _headers_version()
    return {**versions, "cupar's code for kernels": own_version(KERNELS, in_any_python=True)}


@functools.cache
def operator_versions() -> Mapping[str, str]:
    """Return the versions that the code of a Python operator depends on.

    NumPy is among them because numba reads the types of ufuncs from it.
    """
    projects = ("cuda-bindings", "numba-cuda", "numba", "llvmlite")
    versions = {project: package_version(project) for project in projects}
    are_there = ABSENT not in versions.values()
    del versions["cuda-bindings"]
    return {
        "python": f"{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}",
        **versions,
        "numpy": np.__version__,
        "nvvm": _library_version("nvvm") if are_there else ABSENT,
        "cupar's code for operators": own_version(OPERATORS),
    }


def missing(versions: Mapping[str, Any]) -> list[str]:
    """Return which compilers are missing of those whose versions these are."""
    return [name for name in COMPILERS if name in versions and plain(versions[name]) == ABSENT]


def plain(version: Any) -> Any:
    """Return a version without the parts that its text leaves out."""
    return version[0] if isinstance(version, (list, tuple)) and version else version


# Of NVRTC, for CCCL's headers. Macros in them write out templates for lists of up to 16 types, which takes
# the preprocessor 0.9 of the 1.4 s that a reduction's headers take it; up to 8 types it is 0.03 s. Longer
# lists are then worked off in parts. The LTO-IR that comes of it is the same to the byte.
UNROLL_OPTION = "-D_CCCL_META_UNROLL_LIMIT=8"

KERNEL_OPTIONS = (  # of NVRTC, for kernels made of CUB's headers
    "-dlto",
    "-rdc=true",
    "-std=c++20",
    "-default-device",
    "-DCUB_DISABLE_CDP",
    "-D__NV_NO_VECTOR_DEPRECATION_DIAG",
    UNROLL_OPTION,
)
CPP_OPTIONS = ("-dlto", "-rdc=true", "-std=c++17")  # of NVRTC, for C++ that is linked with kernels


# Of nvJitLink, where not all that is linked is LTO-IR: to name the variables that are used, as below, would
# have it drop kernels beside PTX, cubins and archives (seen with CUDA 13.0). And for kernels of the user's.
PLAIN_LINK_OPTIONS = ("-lto",)

# CUB's headers define hundreds of constants that no kernel uses: dropping them shrinks a cubin to a third.
# Kernels go through ptxas on several cores (15 % of a link on two); tried with CUDA 13 alone.
LINK_OPTIONS = ("-lto", "-optimize-unused-variables", "-variables-used=cupar_properties")
LINK_OPTIONS_OF_13 = ("-Xptxas=--split-compile=0",)


def link_options() -> list[str]:
    """Return how nvJitLink links LTO-IR."""
    return [*LINK_OPTIONS, *(LINK_OPTIONS_OF_13 if cuda_major() == 13 else ())]
