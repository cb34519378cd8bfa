"""Signatures of functions in C++: as text, of numba's, or as dtypes."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from .. import structs
from .._base.data import dataclass
from .._base.words import split


@dataclass(frozen=True)
class Parameter:
    """What a function takes: a value, or an array or pointer of values."""

    dtype: np.dtype[Any]
    ndim: int | None = None  # of a C-contiguous array; 0: a pointer; None: a value

    def __str__(self) -> str:
        value = structs.text(self.dtype)
        if self.ndim is None:
            return value
        return f"{value}*" if self.ndim == 0 else f"{value}[{':, ' * (self.ndim - 1)}::1]"


@dataclass(frozen=True)
class Signature:
    """What a function takes and returns; None: nothing."""

    result: np.dtype[Any] | None
    parameters: tuple[Parameter, ...]

    def __str__(self) -> str:
        result = "void" if self.result is None else structs.text(self.result)
        return f"{result}({', '.join(map(str, self.parameters))})"

    @property
    def returns_in_parts(self) -> bool:
        """Whether the result goes by a pointer, which is then the first argument."""
        return self.result is not None and structs.kind_of(self.result) in "cV"

    def dtypes(self) -> list[np.dtype[Any]]:
        """Return the dtypes of the parameters, and of the result if there is one."""
        results = [] if self.result is None else [self.result]
        return [*(each.dtype for each in self.parameters), *results]


_SHORT: Final = {
    "boolean": "bool",
    "bool_": "bool",
    "float_": "float32",
    "double": "float64",
    "float": "float64",
    "int": "int64",
}
_TYPE: Final = re.compile(r"(\w+)\s*(\*|\[\s*((?:::?\s*,\s*)*)::\s*1\s*\])?|CPointer\(\s*(\w+)\s*\)")
_EXPECTED: Final = (
    "signature: expected text as in 'float32(float32, int64)', where float32[::1] is a C-contiguous array "
    "and float32* a pointer, or a result and a list of dtypes, as in (np.float32, [np.float32, Pair])"
)


def parse(given: Any) -> Signature:
    """Read a signature: text, one of numba's, or a result and a list of dtypes.

    Raises
    ------
    TypeError, ValueError
        If it is none, or has a type of which there are no values in operators.
    """
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], (list, tuple)):
        result, parameters = given
        return Signature(None if result is None else _dtype(result), tuple(map(_parameter, parameters)))
    if not isinstance(given, str):
        if not (hasattr(given, "return_type") and hasattr(given, "args")):
            raise TypeError(f"{_EXPECTED}; got {given!r}")
        from .. import _numba

        return parse(f"{_numba.type_text(given.return_type)}({', '.join(map(_of_numba, given.args))})")
    match = re.fullmatch(r"\s*(\w+)\s*\((.*)\)\s*", given, re.DOTALL)
    if match is None:
        raise ValueError(f"{_EXPECTED}; got {given!r}")
    result = None if match[1] in ("void", "none") else _parameter(match[1]).dtype
    return Signature(result, tuple(map(_parameter, split(match[2]))))


def _of_numba(kind: Any) -> str:
    """Return one of numba's types as text that is understood here."""
    from .. import _numba

    if type(kind).__name__ == "Array" and kind.layout == "C":
        return f"{_numba.type_text(kind.dtype)}[{':, ' * (kind.ndim - 1)}::1]"
    return _numba.type_text(kind)


def _parameter(given: Any) -> Parameter:
    if isinstance(given, Parameter):
        return given
    if not isinstance(given, str):
        return Parameter(_dtype(given))
    given = given.strip()
    if not re.search(r"[\[*(+ ]", given):
        return Parameter(_dtype(_SHORT.get(given, given)))
    match = _TYPE.fullmatch(given)
    if match is None:
        hint = (
            "; an array must be C-contiguous, as in float32[::1]" if "[" in given or "Array" in given else ""
        )
        raise ValueError(f"signature: {given!r} is no type that is known here{hint}")
    name, after, axes, pointed = match.groups()
    dtype = _dtype(_SHORT.get(name or pointed, name or pointed))
    if dtype.names is not None and (after or pointed):
        raise ValueError(f"signature: {given}: arrays and pointers are of numbers here")
    if pointed or after == "*":
        return Parameter(dtype, 0)
    return Parameter(dtype, 1 + axes.count(",") if after else None)


def _dtype(given: Any) -> np.dtype[Any]:
    try:
        return structs.normal("signature", structs.as_dtype(given))
    except structs.NoBfloat16Error as error:
        raise TypeError(f"signature: {error}") from None
    except TypeError:
        raise TypeError(f"signature: expected {structs.SUPPORTED}, got {given!r}") from None
