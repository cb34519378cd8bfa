"""Which versions of packages a process imports, found without importing them; what cupar's own files hold.

A key must hold the version of the code that runs, and not that of the first distribution of that name on the
path: a checkout on PYTHONPATH comes before an installed package, whose metadata stand elsewhere. So a package
is located as an import would, and its version is that of the metadata beside it. Without metadata beside it,
as in a checkout, it is a hash of the files.

cupar's own version is no part of a key: most releases leave code as it is, and checkouts change it without a
release. Instead, keys have a hash of the files that decide it, as they are on this machine.

`importlib.metadata` finds versions too, but importing it costs 15 ms, a fifth of a start;
`importlib.resources` costs 10 ms, so files are read by the loader beneath it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from .digests import sha256
from .errors import VersionError

ABSENT: Final = "absent"  # in place of a version

# Of each distribution, the package to look for: one that stands beside its metadata.
_PACKAGES = {
    "cuda-bindings": "cuda.bindings",
    "cuda-cccl": "cuda.cccl",
    "numba-cuda": "numba_cuda",
    "numba": "numba",
    "llvmlite": "llvmlite",
}

# The versions that cupar was written for, as in its metadata: it uses what is private in these.
NEEDED: Final = {
    "cuda-bindings": ">=12.9.3,!=13.0.0,!=13.0.1,<14",
    "cuda-cccl": ">=1.2.1,<1.3",
    "numba": ">=0.60,<0.69",
    "numba-cuda": ">=0.30.4,<0.31",
    "torch": ">=2.9,<2.15",
}


def check_version(project: str, version: str) -> None:
    """Raise VersionError for a version of a distribution for which cupar was not written.

    A checkout without metadata has no version, and is taken as it is.
    """
    if version.startswith("source-"):
        return
    needed, numbers = NEEDED[project], _numbers(version)
    if not all(_holds(numbers, clause) for clause in needed.split(",")):
        raise VersionError(f"cupar needs {project}{needed}, found {version}: pip install '{project}{needed}'")


def _holds(numbers: tuple[int, ...], clause: str) -> bool:
    """Whether a version, as numbers, is at least, below or not that of a clause."""
    bound = _numbers(clause.lstrip("<>!="))
    if clause.startswith("!="):
        return numbers != bound
    return numbers >= bound if clause.startswith(">=") else () < numbers < bound


def _numbers(version: str) -> tuple[int, ...]:
    """Return a version's numbers; empty if it is no version."""
    return tuple(int(part) for part in version.split(".")[:3] if part.isdigit())


def looked_up(place: str, project: str, import_module: Callable[[str], Any] = importlib.import_module) -> Any:
    """Import a module, or an object in one.

    Parameters
    ----------
    place : str
        As in ``"numba.core.types"``, or ``"torch._C:DispatchKey"``.
    project : str
        The distribution that has it.
    import_module : callable, optional

    Raises
    ------
    ImportError
        If the package is not installed; a `VersionError` if it is, and there is no such name in it.
    """
    module, _, names = place.partition(":")
    try:
        # All of a package first: a part alone is locked before the whole, and another thread that imports the
        # whole would be given a part that is half there.
        importlib.import_module(module.partition(".")[0])
        found = import_module(module)
        for name in names.split(".") if names else ():
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        from importlib import metadata

        try:
            version = metadata.version(project)
        except metadata.PackageNotFoundError:
            raise error from None
        needed = NEEDED[project]
        raise VersionError(
            f"cupar needs {project}{needed}, found {version}, in which {place.replace(':', '.')} cannot be "
            f"imported ({error}): pip install '{project}{needed}'"
        ) from error
    return found


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
    """Return the version of a distribution as it is imported, ``"source-<hash>"`` or `ABSENT`."""
    package = _PACKAGES[project]
    folder = package_folder(package)
    if folder is None:
        return ABSENT
    home = folder.parents[package.count(".")]
    versions = beside(home).get(project, set())
    return next(iter(versions)) if len(versions) == 1 else f"source-{folder_hash(folder)}"


def folder_hash(*tops: Path) -> str:
    """Return a hash of all files in folders that are not made of others."""
    digest = sha256()
    for top in tops:
        for root, folders, names in os.walk(top):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for path in (Path(root, name) for name in sorted(names)):
                digest.update(f"{path.relative_to(top).as_posix()}\0{path.stat().st_size}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def machine() -> str:
    """Return the kind of processor, as in ``"x86_64"``, without what importing `platform` costs."""
    return os.uname().machine if hasattr(os, "uname") else os.environ.get("PROCESSOR_ARCHITECTURE", "")


_PACKAGE: Final = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 - it may be in a zip
_READ: Final = os.O_RDONLY | getattr(os, "O_BINARY", 0)
_PYC_HEADER: Final = 16  # bytes before a module's code: among them the time of its source


def own_file(name: str) -> bytes:
    """Return the content of a file of cupar's, as in ``"_kernels/family.py"``; raise OSError if it has none.

    cupar may be in a zip.
    """
    path = f"{_PACKAGE}/{name}"
    try:
        file = os.open(path, _READ)  # a third of what `open` costs, which starts notice
    except NotADirectoryError:
        return bytes(getattr(__spec__, "loader").get_data(path))  # noqa: B009 - not every loader has it
    try:
        pieces = []
        while piece := os.read(file, 1 << 16):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(file)


def _module(name: str) -> bytes:
    """Return the source of a module of cupar's, as in ``"_cpu.kit"``; its bytecode, if it comes without."""
    path = name.replace(".", "/")
    try:
        return own_file(f"{path}.py")
    except OSError:
        try:
            return own_file(f"{path}.pyc")[_PYC_HEADER:]
        except OSError:
            raise ImportError(
                f"cupar's file {path}.py cannot be read, and keys of builds depend on it: install all files"
            ) from None


def own_version(modules: Iterable[str], *, in_any_python: bool = False) -> str:
    """Return a hash of modules of cupar's; `in_any_python`: the same in all versions of Python.

    Others are 64 bits of each module, by the function that Python itself has for sources: SHA-256 without
    OpenSSL takes ten times as long.
    """
    hashed = (lambda data: sha256(data).digest()) if in_any_python else importlib.util.source_hash
    return sha256(b"".join([hashed(_module(name)) for name in modules])).hexdigest()
