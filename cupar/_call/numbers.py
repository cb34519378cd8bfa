"""Numbers among the arguments of factories and calls, and the errors of those that mean nothing."""

from __future__ import annotations

import operator
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np

from .. import structs
from .._device import arrays

E = TypeVar("E", bound=IntEnum)

EXPECTED_INIT = "expected a NumPy array of one element, a number, a struct or None"


def choice(name: str, kind: type[E], value: Any) -> E:
    """Return a member of an enumeration, or the one of a value; raise TypeError if it is neither.

    A bool is none: that ``order=True`` asks for descending order is what nobody would guess.
    """
    if isinstance(value, kind):
        return value
    try:
        if isinstance(value, (bool, np.bool_)):
            raise ValueError
        return kind(operator.index(value))
    except (TypeError, ValueError):
        members = ", ".join(f"{kind.__name__}.{each.name}" for each in kind)
        raise TypeError(f"{name}: expected a {kind.__name__} ({members}), got {value!r}") from None


def item_count(name: str, value: Any) -> int:
    """Return a number of items as an int.

    Raises
    ------
    TypeError, ValueError
        If it is no integer, or negative.
    """
    if type(value) is int and value >= 0:
        return value
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an integer, got {type(value).__name__}") from None
    if count < 0:
        raise ValueError(f"{name}: expected 0 or more, got {count}")
    return count


def initial_value(h_init: Any, dtype: np.dtype[Any]) -> Any:
    """Return `h_init` as something that can be stored in an array of `dtype` without loss of kind.

    Raises
    ------
    TypeError
        If it is None, an array of another dtype, or a number of a larger kind than `dtype`.
    ValueError
        If it is not one element, or a number that `dtype` cannot hold.
    """
    if isinstance(h_init, (np.ndarray, np.void)):
        if h_init.dtype != dtype and not arrays.same_layout("h_init", h_init.dtype, dtype):
            raise TypeError(f"h_init: this algorithm accumulates in {dtype}, got an array of {h_init.dtype}")
        if h_init.size != 1:
            raise ValueError(f"h_init: {EXPECTED_INIT}, got an array of {h_init.size}")
        # A struct's bytes, whatever its fields are called and with or without its padding.
        return np.asarray(h_init).reshape(-1).view(dtype)[0]
    if isinstance(h_init, (bool, int, float, complex, np.generic)):
        given = np.dtype(type(h_init))
        if structs.kind_of(given) in "biufc" and structs.convertible(given, dtype):
            return _exactly(h_init, dtype)
        raise TypeError(
            f"h_init: {h_init!r} is not converted to {dtype} silently; give a NumPy array of one element of "
            "the dtype to accumulate in"
        )
    struct = structs.dtype_of_value(h_init)
    if struct is not None:
        if structs.layout(struct) != structs.layout(dtype):
            raise TypeError(f"h_init: this algorithm accumulates in {dtype}, got a struct of {struct}")
        return h_init
    if h_init is None:
        raise TypeError("h_init: this algorithm was built with an initial value, got None")
    raise TypeError(f"h_init: {EXPECTED_INIT}, got {type(h_init).__name__}")


def initial_bytes(h_init: Any, dtype: np.dtype[Any]) -> bytes:
    """Return an initial value as it is in an array of `dtype`; raise what `initial_value` does."""
    memory = np.zeros(1, dtype)
    memory[0] = initial_value(h_init, dtype)
    return memory.tobytes()


def _exactly(number: Any, dtype: np.dtype[Any]) -> Any:
    """Convert a number; floats may be rounded, but neither wrap around nor overflow."""
    try:
        with np.errstate(over="ignore"):
            given = float(number) if structs.is_bfloat16(dtype) else number  # ml_dtypes takes no large int
            value = np.array(given, dtype)[()]
    except OverflowError as error:
        raise ValueError(f"h_init: {error}") from None
    lost = value != number if dtype.kind in "biu" else np.isinf(value) and abs(number) != np.inf
    if lost:
        raise ValueError(f"h_init: {dtype} cannot hold {number!r}")
    return value
