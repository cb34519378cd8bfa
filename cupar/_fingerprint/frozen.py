"""Frozen copies of functions, classes and modules, as plain data that `_compile.python_to_ltoir` compiles."""

from __future__ import annotations

from types import CodeType, ModuleType
from typing import Any, Final

import numpy as np

from .._base.data import dataclass, field


class Missing:
    """Stands for a name that does not exist and for an empty closure cell."""


MISSING: Final = Missing()


@dataclass(eq=False)
class FrozenFunction:
    """A snapshot of a Python function and everything it reads."""

    code: CodeType
    name: str
    globals: dict[str, Any] = field(default_factory=dict)  # those that it reads, builtins among them
    cells: list[Any] = field(default_factory=list)  # one for each of its code's free variables
    defaults: Any = None
    keyword_defaults: Any = None
    numbers: int = 0  # first parameters that a captured number is passed for


@dataclass(eq=False)
class FrozenJitted:
    """A snapshot of a function under ``cuda.jit`` or ``njit``, with its options."""

    function: FrozenFunction
    options: dict[str, Any]


@dataclass(eq=False)
class FrozenModule:
    """The attributes of a module that an operator reads."""

    module: ModuleType
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StructClass:
    """A class that `gpu_struct` made."""

    dtype: np.dtype[Any]


@dataclass(frozen=True, eq=False)
class NamedTupleClass:
    """A class of named tuples."""

    name: str
    fields: tuple[str, ...]
    defaults: Any


@dataclass(frozen=True, eq=False)
class Instance:
    """A struct or a named tuple."""

    cls: StructClass | NamedTupleClass
    fields: tuple[Any, ...]
