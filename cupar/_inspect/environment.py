"""The environment that cupar finds: packages, compilers, driver, GPUs, and the layers of its cache."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from contextlib import suppress
from ctypes import byref, c_int, c_size_t
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np

from .. import _cache
from .._compile import nvjitlink, nvrtc, toolchain
from .._device import driver
from .._device.card import card_of
from .._external.linkable import linkable
from .._store.layer import Usage
from .._store.settings import signing_key

_NEEDED = (
    "cuda-cccl", "cuda-bindings", "cuda-core", "cuda-pathfinder", "numba-cuda", "numba", "llvmlite",
    "numpy", "cachetools", "platformdirs", "rich",
)  # fmt: skip
_OPTIONAL = (
    "nvidia-cuda-nvrtc", "nvidia-nvjitlink", "nvidia-nvvm", "nvidia-cuda-runtime",
    "nvidia-cuda-nvrtc-cu12", "nvidia-nvjitlink-cu12", "nvidia-cuda-nvcc-cu12",
    "nvidia-cuda-runtime-cu12", "fsspec", "redis", "cupy-cuda12x", "cupy-cuda13x", "torch",
)  # fmt: skip
_OWN = (
    "CUPAR_BUNDLES", "CUPAR_CACHE", "CUPAR_CACHE_DIR", "CUPAR_CACHE_SIZE", "CUPAR_DEBUG",
    "CUPAR_CCCL", "CUPAR_DEVICE", "CUPAR_DUMP", "CUPAR_GRAPHS", "CUPAR_NUMBERS",
    "CUPAR_LOCK_TIMEOUT", "CUPAR_PROGRESS", "CUPAR_RECORD", "CUPAR_SHARED", "CUPAR_SHARED_TIMEOUT",
    "CUPAR_SIGNING_KEY", "CUPAR_TIER", "CUPAR_TRACE", "CUPAR_TUNED",
)  # fmt: skip
_VARIABLES = (
    "CONDA_PREFIX", "CUDA_HOME", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "NUMBA_ENABLE_CUDASIM",
)  # fmt: skip
_SECRETS = ("CUPAR_SIGNING_KEY",)


def python() -> str:
    """Return Python, its version and the machine, as in ``CPython 3.12.1, Linux x86_64``."""
    return (
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}"
    )


def packages() -> dict[str, str | None]:
    """Return the versions of packages: of required ones, and of installed optional ones."""
    needed = {name: _version(name) for name in _NEEDED}
    optional = {name: found for name in _OPTIONAL if (found := _version(name)) is not None}
    return {**needed, **optional}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def conflicts() -> list[str]:
    """Return which installed packages are not of the versions that cupar's own metadata asks for.

    ``pip install --no-deps``, conda and distributions may bring such. Nothing is compared where cupar is not
    installed, or where ``packaging`` is not, which numba-cuda needs.
    """
    try:
        from packaging.requirements import Requirement

        needed = [Requirement(each) for each in metadata.requires("cupar") or ()]
    except (ImportError, metadata.PackageNotFoundError):
        return []
    found = []
    for each in needed:
        if each.marker is not None and not each.marker.evaluate({"extra": ""}):
            continue
        version = _version(each.name)
        if version is not None and not each.specifier.contains(version, prereleases=True):
            found.append(f"{each.name} {version}: cupar needs {each.specifier}")
    return found


def compilers() -> dict[str, tuple[str | None, str]]:
    """Return where each compiler and header is, None if it is missing; and why it cannot be used, if so.

    Compilers that are there compile one line.
    """
    places: dict[str, Callable[[], object]] = {
        "NVRTC": lambda: toolchain.library_path("nvrtc"),
        "nvJitLink": lambda: toolchain.library_path("nvJitLink"),
        "libNVVM": lambda: toolchain.library_path("nvvm"),
        "CCCL's headers": lambda: toolchain.include_folders()[0],
        "CUDA's headers": lambda: toolchain.include_folders()[-1],
    }
    located = {name: _located(find) for name, find in places.items()}
    trials = {"NVRTC": _try_nvrtc, "nvJitLink": _try_nvjitlink, "libNVVM": _try_libnvvm}
    for name, compile_line in trials.items():
        path, _ = located[name]
        if path is not None:
            located[name] = path, _failure(compile_line)
    return located


def _located(find: Callable[[], object]) -> tuple[str | None, str]:
    try:
        return str(find()), ""
    except (ImportError, RuntimeError, OSError) as error:
        return None, str(error)


def _failure(compile_line: Callable[[], object]) -> str:
    try:
        compile_line()
    except Exception as error:  # numba's passes may raise anything
        return " ".join(str(error).split())
    return ""


_ANY_CC: Final = 90  # which the compilers of each CUDA know


def _try_nvrtc() -> None:
    nvrtc.compile_cpp("__device__ int zero() { return 0; }", _ANY_CC)


def _try_nvjitlink() -> None:
    line = linkable("ptx", b".version 7.8 .target sm_90 .address_size 64 .visible .entry f() { ret; }", "f")
    nvjitlink.link([line], _ANY_CC, options=())


def _try_libnvvm() -> None:
    from .._compile.python_to_ltoir import compile_operator
    from .._ir.resolve import resolve

    dtype = np.dtype(np.float32)
    compile_operator(resolve(lambda a: a, (dtype,), dtype), "f", _ANY_CC)


def nvidia_driver() -> dict[str, str] | None:
    """Return the versions of NVIDIA's driver and of the CUDA that it knows, None without a driver or GPU."""
    try:
        library = driver.library()
    except driver.NoDeviceError:
        return None
    version = c_int()
    library.cuDriverGetVersion(byref(version))
    found = {"cuda": f"{version.value // 1000}.{version.value % 1000 // 10}"}
    with suppress(OSError):
        found["driver"] = Path("/sys/module/nvidia/version").read_text().strip()
    return found


def gpus() -> list[dict[str, Any]]:
    """Return name, compute capability and memory of each GPU, in the driver's order; without using any."""
    count = c_int()
    try:
        driver.call("cuDeviceGetCount", byref(count))
    except driver.NoDeviceError:
        return []
    return [_gpu(ordinal) for ordinal in range(count.value)]


def _gpu(ordinal: int) -> dict[str, Any]:
    card, memory = card_of(driver.device_at(ordinal)), c_size_t()
    driver.call("cuDeviceTotalMem_v2", byref(memory), ordinal)
    return {"ordinal": ordinal, "name": card.name, "cc": card.cc, "memory": memory.value}


def cache() -> dict[str, Any]:
    """Return where the layers of the cache are, and their content."""
    own, shared = _cache.disk(), _cache.shared()
    usage = Usage(0, 0, 0) if own is None else own.usage()
    return {
        "directory": None if own is None else str(own.path),
        **vars(usage),
        "bundles": [
            {"path": str(layer.path), "entries": layer.usage().entries} for layer in _cache.bundles()
        ],
        "shared": None if shared is None else shared.name,
        "signing": signing_key() is not None,
    }


def variables() -> dict[str, str]:
    """Return the environment variables that are set and matter, without the secrets in them.

    Others that begin like cupar's are mistakes, and their values may be secrets.
    """
    names = [*sorted(name for name in os.environ if name.startswith("CUPAR_")), *_VARIABLES]
    return {name: _without_secrets(name, os.environ[name]) for name in names if name in os.environ}


def _without_secrets(name: str, value: str) -> str:
    from .._store.remotes import name_of

    if name not in _OWN and name not in _VARIABLES:
        return "(not known to cupar)"
    return "(set, and not shown)" if name in _SECRETS and value else name_of(value)
