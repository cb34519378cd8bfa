"""Puts `cupar.compute` in the place of ``cuda.compute``, for programs and packages that stay unchanged."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

from .. import compute

_THEIRS: Final = "cuda.compute"
_NAMES: Final = {_THEIRS: compute.__name__} | {
    f"{_THEIRS}.{each}": f"{compute.__name__}.{each}" for each in compute._SUBMODULES
}


def replace() -> None:
    """Have ``import cuda.compute``, and imports of its submodules, find `cupar.compute` from now on.

    Those that are private to ``cuda.compute`` are not found.

    Raises
    ------
    RuntimeError
        If ``cuda.compute`` was imported before.
    """
    if any(isinstance(each, _Finder) for each in sys.meta_path):
        return
    if _THEIRS in sys.modules:
        raise RuntimeError(f"{_THEIRS} is imported already: replace it before that")
    sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds cupar's modules under the names of others."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to import a module, None if it is of no concern; see `importlib.abc.MetaPathFinder`."""
        if fullname != _THEIRS and not fullname.startswith(f"{_THEIRS}."):
            return None
        if fullname not in _NAMES:
            raise ModuleNotFoundError(
                f"{fullname} is private to cuda.compute, which cupar.compute stands for here; there are "
                f"{', '.join(sorted(_NAMES))}",
                name=fullname,
            )
        return ModuleSpec(fullname, _Loader(), is_package=fullname == _THEIRS)


class _Loader(Loader):
    """Gives a module of cupar's, unchanged."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module."""
        module = importlib.import_module(_NAMES[spec.name])
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Take back what importing under another name has set."""
        module.__spec__ = self._spec
