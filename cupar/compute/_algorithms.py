"""The algorithms' functions, written from the table when they are first used; type checkers see a stub."""

from functools import cache
from typing import Any

from numpy import ndarray

import cupar

from .._arguments.double_buffer import DoubleBuffer
from .._base.errors import ArgumentError
from .._base.generated import define
from ..sort import SortOrder
from ._made import Made
from ._proxy import initial
from ._table import TABLE, written

__all__ = ["DoubleBuffer", "SortOrder", *TABLE, *(f"make_{each}" for each in TABLE)]  # noqa: PLE0604
_GIVEN = {each.__name__: each for each in (ArgumentError, DoubleBuffer, Made, initial, ndarray)}


@cache
def functions(name: str) -> dict[str, Any]:
    """Return an algorithm's two functions by name, and the class of its objects as ``class``."""
    names = {**_GIVEN, "__name__": __name__, "factory": getattr(cupar, name), "names": TABLE[name].names}
    make, once, cls = define(f"compute {name}", f"make_{name} {name} made", written(name), names)
    return {make.__name__: make, once.__name__: once, "class": cls}


def class_of(name: str) -> type[Made]:
    """Return the class of an algorithm's objects; raise ValueError for unknown algorithms."""
    if name not in TABLE:
        raise ValueError(f"blob: wrong algorithm {name!r}")
    return functions(name)["class"]  # type: ignore[no-any-return]


def __getattr__(name: str) -> Any:
    algorithm = name.removeprefix("make_")
    if algorithm not in TABLE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return functions(algorithm)[name]
