"""Dtypes and values: what items are converted to as they are read and written, and numbers that are given."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import structs
from ..iterators import TransformIterator, TransformOutputIterator
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


@operators.remembered
def _to_integer(dtype: np.dtype[Any]) -> Any:
    kind = dtype.type
    return lambda value: kind(value)  # noqa: PLW0108 - a function, as types are no operators


def _real(value: Any) -> Any:
    return value.real


def cast(items: Any, dtype: np.dtype[Any]) -> Any:
    """Return items converted to another dtype as they are read, as NumPy does, even if values are lost."""
    if items.dtype == dtype or dtype.names is not None:
        return items
    if items.dtype.kind == "c" and dtype.kind not in "cb":
        items = TransformIterator(items, _real, np.dtype(f"f{items.dtype.itemsize // 2}"))
    if dtype.kind == "b":
        return TransformIterator(items, is_nonzero, dtype)
    if structs.convertible(items.dtype, dtype):
        return TransformIterator(items, OpKind.IDENTITY, dtype)
    return TransformIterator(items, _to_integer(dtype), dtype)


def casting(out: Any, source: np.dtype[Any]) -> Any:
    """Return an output that takes items of another dtype, converted as they are written."""
    if out.dtype == source or source.names is not None:
        return out
    if structs.convertible(source, out.dtype):
        return TransformOutputIterator(out, OpKind.IDENTITY, source)
    if source.kind == "c" and out.dtype.kind in "iu":
        out = casting(out, np.dtype(f"f{source.itemsize // 2}"))
        return TransformOutputIterator(out, _real, source)
    op = _real if source.kind == "c" and out.dtype.kind == "f" else _to_integer(out.dtype)
    return TransformOutputIterator(out, op, source)


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
        raise TypeError(f"{name}: expected a dtype, got {given!r}: {error}") from None


def initial(name: str, value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return an initial value as an array of one item; TypeError unless it is a value of this dtype."""
    if libraries.is_array(value) and not isinstance(value, np.ndarray):
        raise TypeError(f"{name}: expected a number on the host, got a {type(value).__name__}")
    try:
        if dtype.names is not None:
            fields = [each for _, each, _ in structs.members(dtype)]
            if isinstance(value, np.ndarray):
                value = value.item() if value.dtype.names is not None else value.tolist()
            items = tuple(value)
            if len(items) != len(fields):
                raise ValueError(f"expected {len(fields)} values")
            named = [initial(f"{name}[{i}]", *each) for i, each in enumerate(zip(items, fields, strict=True))]
            return np.array([tuple(each[0] for each in named)], dtype)
        given = np.asarray(value).reshape(1)
        if value is None or given.dtype.kind in "SU":  # which NumPy converts: to NaN, and what the text says
            raise ValueError("it is no number")
        if given.dtype.kind == "c" != dtype.kind:
            given = given if given.imag.any() else given.real
        if dtype.kind not in "biu":  # floats are rounded
            return given.astype(dtype, casting="unsafe" if given.dtype.kind != "c" else "same_kind")
        with np.errstate(all="ignore"):
            found = given.astype(dtype)
        if not np.array_equal(found, given):
            raise ValueError("it would become another value")
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(
            f"{name}: expected one value of {structs.text(dtype)}, got {value!r}: {error}"
        ) from None
    return found


def whole(name: str, value: Any) -> int:
    """Return an integer of any sign; raise TypeError for other objects."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}: expected an integer, got {type(value).__name__}")
    return int(value)


def integer(name: str, value: Any, most: int | None = None) -> int:
    """Return an integer from 0 on; raise TypeError or ValueError otherwise."""
    found = whole(name, value)
    if found < 0 or (most is not None and found > most):
        wanted = "0 or more" if most is None else f"from 0 to {most}"
        raise ValueError(f"{name}: expected {wanted}, got {found}")
    return found
