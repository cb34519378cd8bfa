"""Which versions of packages a process imports, found without importing them.

A key must hold the version of the code that runs, and not that of the first distribution of that name on the
path: a checkout on PYTHONPATH comes before an installed package, whose metadata stand elsewhere. So a package
is located as an import would, and its version is that of the metadata beside it. Without metadata beside it,
as in a checkout, it is a hash of the files.

`importlib.metadata` finds versions too, but importing it costs 15 ms, a fifth of what a start may cost.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from pathlib import Path

from .digests import sha256

__all__ = ["beside", "package_folder", "package_version"]

# Of each distribution, the package to look for: one that stands beside its metadata.
_PACKAGES = {
    "cuda-bindings": "cuda.bindings",
    "cuda-cccl": "cuda.cccl",
    "numba-cuda": "numba_cuda",
    "numba": "numba",
    "llvmlite": "llvmlite",
}


def _folders(package: str) -> list[str]:
    """Return the folders of a top-level package, as an import finds them."""
    module = sys.modules.get(package)
    if module is not None and getattr(module, "__path__", None) is not None:
        return list(module.__path__)
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    return list((spec and spec.submodule_search_locations) or [])


@functools.cache
def package_folder(package: str) -> Path | None:
    """Return the folder of a package, as in ``"cuda.bindings"``, as an import finds it; None if none does."""
    top, *rest = package.split(".")
    places = (Path(folder, *rest) for folder in _folders(top))
    return next((place for place in places if place.is_dir()), None)


@functools.cache
def beside(folder: Path) -> dict[str, set[str]]:
    """Return the versions of the distributions whose metadata stand in a folder, by normalised name."""
    found: dict[str, set[str]] = {}
    try:
        names = os.listdir(folder)  # noqa: PTH208 - a Path for each of 500 names costs 1 ms
    except OSError:
        return found
    for name in names:
        if name.endswith((".dist-info", ".egg-info")):
            # As in cuda_bindings-13.0.1.dist-info; an egg may have -py3.11 after its version.
            words = name.rpartition(".")[0].split("-")
            place = next((at for at, word in enumerate(words) if at and word[:1].isdigit()), 0)
            if place:
                project = "-".join(words[:place]).replace("_", "-").replace(".", "-").lower()
                found.setdefault(project, set()).add(words[place])
    return found


@functools.cache
def package_version(project: str) -> str:
    """Return the version of a distribution as it is imported, ``"source-<hash>"`` or ``"absent"``."""
    package = _PACKAGES[project]
    folder = package_folder(package)
    if folder is None:
        return "absent"
    home = folder.parents[package.count(".")]
    versions = beside(home).get(project, set())
    return next(iter(versions)) if len(versions) == 1 else f"source-{_hash(folder)}"


def _hash(folder: Path) -> str:
    """Return a hash of all files of a package that are not made of others."""
    digest = sha256()
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for path in (Path(root, name) for name in sorted(names)):
            digest.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
