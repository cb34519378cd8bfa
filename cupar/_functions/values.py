"""Dtypes and values: what items are converted to as they are read and written, and numbers that are given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from .. import structs
from .._arguments.initial import on_host, own_dtype
from .._base import sizes
from .._base.errors import ArgumentTypeError, ArgumentValueError
from ..iterators import ConstantIterator, TransformIterator, TransformOutputIterator
from ..operators import OpKind
from . import libraries, operators
from .axes import INT64


def accumulated(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which items are combined: float32 for float16 and bfloat16."""
    return np.dtype(np.float32) if structs.kind_of(dtype) == "f" and dtype.itemsize == 2 else dtype


def summed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which NumPy and the Array API sum: bool and small integers in one of 64 bits."""
    if dtype.kind in "bi":
        return INT64
    return np.dtype(np.uint64) if dtype.kind == "u" else dtype


def _real(value: Any) -> Any:
    return value.real


def cast(items: Any, dtype: np.dtype[Any]) -> Any:
    """Return items converted as they are read to a dtype of no lesser kind, to bool, or of real parts."""
    if items.dtype == dtype or dtype.names is not None:
        return items
    if dtype.kind == "b":
        return TransformIterator(items, is_nonzero, dtype)
    return TransformIterator(items, _conversion(items.dtype, dtype), dtype)


def casting(out: Any, source: np.dtype[Any]) -> Any:
    """Return an output that takes items of another dtype, converted as they are written, as `cast` does."""
    if out.dtype == source or source.names is not None:
        return out
    return TransformOutputIterator(out, _conversion(source, out.dtype), source)


def _conversion(source: np.dtype[Any], target: np.dtype[Any]) -> Any:
    return _real if source.kind == "c" != target.kind else OpKind.IDENTITY


@operators.remembered
def _exact_parts(dtype: np.dtype[Any]) -> Any:
    """Return an operator that splits an integer into the nearest float64 and the rest."""
    half, low = dtype.type(32), dtype.type(2**32 - 1)

    def parts(value: Any) -> Any:
        near = np.float64(value)
        return complex(near, (np.float64(value >> half) * 4294967296.0 - near) + np.float64(value & low))

    return parts


class Compared(NamedTuple):
    """The dtype in which numbers are compared exactly, and that of results, which NumPy promotes them to.

    No float has all integers of 64 bits. Beside floats, and int64 beside uint64, they are compared as complex
    numbers: an integer is the nearest float64 and the rest, a float has no rest. Results are real parts.
    """

    dtype: np.dtype[Any]
    result: np.dtype[Any]

    @classmethod
    def of(cls, result: np.dtype[Any], *given: np.dtype[Any]) -> Compared:
        """Return how items of some dtypes are compared, which are promoted to `result`."""
        is_lossy = structs.kind_of(result) == "f" and any(map(_is_long, given))
        return cls(np.dtype(np.complex128) if is_lossy else result, result)

    def read(self, items: Any) -> Any:
        """Return items as they are compared."""
        if self.dtype != self.result and _is_long(items.dtype):
            return TransformIterator(items, _exact_parts(items.dtype), self.dtype)
        return cast(items, self.dtype)


def _is_long(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iu" and dtype.itemsize == 8


def is_nonzero(value: Any) -> bool:
    """Whether a value counts as true."""
    return value != 0  # type: ignore[no-any-return]


def dtype_of(name: str, given: Any) -> Any:
    """Return a dtype that is given by NumPy's name for it, or by PyTorch's; None stays None."""
    if given is None:
        return None
    try:
        if type(given).__module__ == "torch":
            given = str(given).removeprefix("torch.")
        return structs.normal(name, structs.as_dtype(given))
    except (TypeError, ValueError, SyntaxError) as error:
        raise ArgumentTypeError(name, f"expected a dtype, got {given!r}: {error}") from None


def check_same_kind(name: str, source: np.dtype[Any], target: np.dtype[Any]) -> None:
    """Raise TypeError if items would lose their fraction or imaginary part: NumPy's "same_kind"."""
    if source.names is target.names is None and not structs.same_kind(source, target):
        raise ArgumentTypeError(
            name,
            f"expected {structs.text(source)} or a dtype of no lesser kind (bool, integer, float, "
            f"complex), got {structs.text(target)}",
        )


@contextmanager
def naming_dtype(source: Any, op: Any, dtype: np.dtype[Any] | None) -> Iterator[None]:
    """Let errors of an operator whose results are of a greater kind than a given dtype begin with `dtype`."""
    try:
        yield
        return
    except TypeError as error:
        failed = error
    if dtype is not None:
        check_same_kind("dtype", TransformIterator(source, op).dtype, dtype)
    raise failed


def dtype_with(init: Any, items: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which items are combined with an initial value: its own, or theirs if it has none.

    TypeError if that is of a lesser kind than theirs.
    """
    init = sizes.value_of(init)
    if items.names is not None or not (isinstance(init, np.generic) or libraries.is_array(init)):
        return items
    found = own_dtype(init, "init")
    if found is None or found.names is not None:
        return items
    check_same_kind("init", items, found)
    return found


def item(name: str, value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a value of a dtype, as `constant` takes it; TypeError if it is none."""
    found = initial(name, value, dtype)
    return ConstantIterator.of(found, dtype) if sizes.is_size(found) else found[0]


def initial(name: str, value: Any, dtype: np.dtype[Any]) -> Any:
    """Return an initial value as an array of one item; TypeError unless it is a value of this dtype.

    Of a size, the array is one, too: see `sizes.value_of`.
    """
    if sizes.is_size(value):
        is_exact = (
            isinstance(value.value, (float, np.floating)) if dtype in _FLOATS else type(value.value) is int
        )
        is_exact = is_exact and dtype in _EXACT
        return sizes.apply(_array_of if is_exact else _initial, value, dtype, name)[0]
    return _initial(value, dtype, name)[0]


# Dtypes to which NumPy converts a float as `_initial` does, or an integer: exactly, or with an error.
_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))
_EXACT = (*_FLOATS, *[np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)])


def _array_of(value: Any, dtype: np.dtype[Any], name: str) -> tuple[np.ndarray[Any, Any]]:
    return (np.array((value,), dtype),)


def _initial(value: Any, dtype: np.dtype[Any], name: str) -> tuple[np.ndarray[Any, Any]]:
    if libraries.is_array(value):
        value = on_host(value, name)
    try:
        if dtype.names is not None:
            fields = [each for _, each, _ in structs.members(dtype)]
            if isinstance(value, np.ndarray):
                value = value.item() if value.dtype.names is not None else value.tolist()
            items = tuple(value)
            if len(items) != len(fields):
                raise ValueError(f"expected {len(fields)} values")
            named = [initial(f"{name}[{i}]", *each) for i, each in enumerate(zip(items, fields, strict=True))]
            return (np.array([tuple(each[0] for each in named)], dtype),)
        given = np.asarray(value).reshape(1)
        # Which NumPy converts all the same: to NaN, to what the text says, or to the only field.
        if value is None or given.dtype.kind in "SU" or given.dtype.names is not None:
            raise ValueError("it is no number")
        if given.dtype.kind == "c" != dtype.kind:
            given = given if given.imag.any() else given.real
        if dtype.kind not in "biu":  # floats are rounded
            return (given.astype(dtype, casting="unsafe" if given.dtype.kind != "c" else "same_kind"),)
        with np.errstate(all="ignore"):
            found = given.astype(dtype)
        if not np.array_equal(found, given):
            raise ValueError("it would become another value")
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentTypeError(
            name, f"expected one value of {structs.text(dtype)}, got {value!r}: {error}"
        ) from None
    return (found,)


def flag(name: str, value: Any) -> bool:
    """Return a truth value, for which NumPy takes integers, too; raise TypeError for other objects."""
    if not isinstance(value, (int, np.bool_, np.integer)):
        raise ArgumentTypeError(name, f"expected True or False, got {value!r}")
    return bool(value)


def whole(name: str, value: Any) -> int:
    """Return an integer of any sign; raise TypeError for other objects."""
    if sizes.is_integer(found := sizes.python(value)):
        return found  # type: ignore[return-value]
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ArgumentTypeError(name, f"expected an integer, got {type(value).__name__}")
    return int(value)


def integer(name: str, value: Any, most: int | None = None) -> int:
    """Return an integer from 0 on; raise TypeError or ValueError otherwise."""
    found = whole(name, value)
    if found < 0 or (most is not None and found > most):
        wanted = "0 or more" if most is None else f"from 0 to {most}"
        raise ArgumentValueError(name, f"expected {wanted}, got {found}")
    return found
