"""Modules whose names are fetched from others when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Mapping
from typing import Any


def fetched(
    module: str, package: str, names: Mapping[str, str], modules: Collection[str] = (), why: str = ""
) -> dict[str, str]:
    """Give a module its ``__getattr__`` and ``__dir__``; return the file of each of its names.

    Type checkers do not see the two, and so find names that the module does not have.

    Parameters
    ----------
    module : str
        Its name.
    package : str
        The package of the files, as in ``"cupar._functions"``.
    names : mapping
        The names that a file has, separated by spaces, by the file.
    modules : collection of str
        Modules of its own, which are names, too.
    why : str
        Ends the message of errors about other names.
    """
    files = {name: file for file, each in names.items() for name in each.split()}

    def get(name: str) -> Any:
        if name in modules:
            return importlib.import_module(f"{module}.{name}")
        if name not in files:
            message = f"module {module!r} has no attribute {name!r}{why}"
            raise AttributeError(message, name=name, obj=sys.modules[module])
        value = getattr(importlib.import_module(f"{package}.{files[name]}"), name)
        setattr(sys.modules[module], name, value)
        return value

    vars(sys.modules[module]).update(
        __getattr__=get, __dir__=lambda: sorted({*sys.modules[module].__all__, *modules})
    )
    return files
