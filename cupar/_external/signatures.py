"""The signature of a function in C++: dtypes, and arrays and pointers of these."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import structs
from .._base.data import dataclass


@dataclass(frozen=True)
class CppParameter:
    """A parameter of a C++ function: a value, or an array or pointer of values."""

    dtype: np.dtype[Any]
    ndim: int | None = None  # of a C-contiguous array; 0: a pointer; None: a value

    def __str__(self) -> str:
        value = structs.text(self.dtype)
        if self.ndim is None:
            return value
        return f"{value}*" if self.ndim == 0 else f"{value}[{':, ' * (self.ndim - 1)}::1]"


@dataclass(frozen=True)
class CppSignature:
    """What a function takes and returns; None: nothing."""

    result: np.dtype[Any] | None
    parameters: tuple[CppParameter, ...]

    def __str__(self) -> str:
        result = "void" if self.result is None else structs.text(self.result)
        return f"{result}({', '.join(map(str, self.parameters))})"

    @property
    def returns_in_parts(self) -> bool:
        """Whether the result goes by a pointer, which is then the first argument."""
        return self.result is not None and structs.has_parts(self.result)

    def dtypes(self) -> list[np.dtype[Any]]:
        """Return the dtypes of the parameters, and of the result if there is one."""
        results = [] if self.result is None else [self.result]
        return [*(each.dtype for each in self.parameters), *results]
