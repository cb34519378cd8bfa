"""Numbers among the arguments of calls: counts, and levels of histograms."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from .. import structs
from .._base import sizes
from .._base.errors import ArgumentTypeError, ArgumentValueError
from .._kernels.family import twin


@twin
def item_count(name: str, value: Any) -> int:
    """Return a number of items as an int.

    Raises
    ------
    TypeError, ValueError
        If it is not an integer, or negative.
    """
    if type(value) is int and value >= 0:
        return value
    try:
        count: int = sizes.index(value)
    except TypeError:
        raise ArgumentTypeError(name, f"expected an integer, got {type(value).__name__}") from None
    if count < 0:
        raise ArgumentValueError(name, f"expected 0 or more, got {count}")
    return count


@twin
def refuse(parameter: str, said: str, values: str, *given: Any) -> NoReturn:
    """Raise ValueError for a parameter, and with `values` behind it, in which `given` stand for ``{}``.

    In compiled host code, whose errors have constant messages, nothing is behind it.
    """
    raise ArgumentValueError(parameter, said + values.format(*given))


@twin
def scalar(name: str, value: Any) -> Any:
    """Return a real number that may be in an array of one element; otherwise raise."""
    if isinstance(value, np.ndarray):
        if value.size != 1:
            raise ArgumentValueError(name, f"expected a number or an array of one element, got {value.size}")
        value = value.reshape(-1)[0]
    if isinstance(value, np.generic) and structs.is_bfloat16(value.dtype):
        return float(value)
    if not isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating)):
        raise ArgumentTypeError(
            name, f"expected a real number or a NumPy array of one element, got {type(value).__name__}"
        )
    return value


@twin
def level(name: str, value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a level as an int or a float; raise if `dtype` cannot hold it."""
    number = scalar(name, value)
    if isinstance(number, int) and number.bit_length() > 1024:
        raise ArgumentValueError(name, f"{dtype} cannot hold an integer of {number.bit_length()} bits")
    if dtype.kind != "f":
        if isinstance(number, (float, np.floating)):
            raise ArgumentTypeError(name, f"this histogram was built for levels of {dtype}, got {number!r}")
        info = np.iinfo(dtype)
        if not info.min <= int(number) <= info.max:
            raise ArgumentValueError(name, f"{dtype} cannot hold {number!r}")
        return int(number)
    return float(number)
