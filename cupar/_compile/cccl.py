"""CCCL's headers: those of cuda-cccl, or others that a variable names.

Kernels use private parts of CCCL, so only versions of cuda-cccl that cupar was tested with are taken. With
other headers, to try them, ``.ci/private`` tells which families they break.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from .._base.errors import VersionError
from .._base.versions import check_version, folder_hash, package_folder, package_version


def _check() -> None:
    import cuda

    if not hasattr(cuda, "__path__"):
        raise VersionError(f"{cuda.__file__} hides NVIDIA's package 'cuda': rename it")
    check_version("cuda-cccl", package_version("cuda-cccl"))


@functools.cache
def _named() -> tuple[Path, ...]:
    """Return the folders of CCCL's headers that `CUPAR_CCCL` names; none without it.

    It names a folder in which ``cub/`` is, or a checkout of CCCL.
    """
    given = os.environ.get("CUPAR_CCCL", "")
    if not given:
        return ()
    for folders in (("",), ("cub", "thrust", "libcudacxx/include")):
        found = tuple(Path(given, folder) for folder in folders)
        if (found[0] / "cub/version.cuh").is_file():
            return found
    raise ImportError(
        f"CUPAR_CCCL: expected a checkout of CCCL, or a folder in which cub/version.cuh is, got {given!r}"
    )


@functools.cache
def version_of_named() -> str:
    """Return a hash of the headers that `CUPAR_CCCL` names, in place of a version."""
    return f"named-{folder_hash(*_named())}"


def folders() -> tuple[Path, ...]:
    """Return the folders of CCCL's headers.

    Raises
    ------
    ImportError
        If they are not there; a `VersionError` if cuda-cccl is another than those that cupar was written
        for, and `CUPAR_CCCL` names no headers.
    """
    return _named() or (_installed(),)


def _installed() -> Path:
    _check()
    folder = package_folder("cuda.cccl.headers.include")
    if folder is None:
        raise ImportError("cuda-cccl is installed without its headers: reinstall cuda-cccl")
    return folder
