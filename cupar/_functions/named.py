"""Reductions by the names of NumPy and the Array API."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..operators import OpKind
from . import operators
from .axes import INT64, axes_of
from .calls import Flags, Integers, Numbers, Operand, Work, output_of
from .described import described
from .rows import check_items, check_kind, reduced, result_shape, whether
from .values import cast, dtype_of, summed

if TYPE_CHECKING:
    from .._base.annotations import Array, Axes, DType

_BOOL = np.dtype(bool)


class NamedReduction(NamedTuple):
    """A named reduction: its operator, and the dtype in which it combines."""

    op: Any
    dtype: Callable[[np.dtype[Any]], np.dtype[Any]] = lambda dtype: dtype
    empty: Any = None  # the result of no items, where that is not the identity
    kinds: str = "biufc"
    of_bools: bool = False  # whether items count as true or false
    needs_items: bool = False  # whether no items have no result


NAMED = {
    "sum": NamedReduction(OpKind.PLUS, summed, empty=0),
    "prod": NamedReduction(OpKind.MULTIPLIES, summed),
    "min": NamedReduction(np.minimum, kinds="biuf", needs_items=True),
    "max": NamedReduction(np.maximum, kinds="biuf", needs_items=True),
    "any": NamedReduction(OpKind.LOGICAL_OR, lambda dtype: _BOOL, of_bools=True),
    "all": NamedReduction(OpKind.LOGICAL_AND, lambda dtype: _BOOL, of_bools=True),
    "count_nonzero": NamedReduction(OpKind.PLUS, lambda dtype: INT64, empty=0, of_bools=True),
}


def _holds(item: Any) -> Any:
    return item


def _fails(item: Any) -> Any:
    return not item


# What decides a reduction on the CPU, which stops there: a first item, and what follows from its index.
_FOUND = {
    OpKind.LOGICAL_OR: (_holds, operators.is_somewhere),
    OpKind.LOGICAL_AND: (_fails, operators.is_nowhere),
}


def _reduced_by_name(
    work: Work,
    x: Operand,
    where: Operand | None,
    name: str,
    axis: Axes,
    keepdims: bool,
    dtype: DType,
    out: Array | None,
) -> Operand:
    named = NAMED[name]
    check_kind(name, x, named.kinds)
    if not x.size and named.needs_items:
        check_items(name, x, axes_of(axis, x.ndim))
    if named.of_bools:
        x = Operand(None, cast(x.once, _BOOL), x.shape)
    if named.op in _FOUND and work.library.on_cpu and len(axes_of(axis, x.ndim)) == x.ndim:
        holds, told = _FOUND[named.op]
        shape = result_shape(((1,) * x.ndim, tuple(range(x.ndim))), keepdims)
        target = output_of(work, out, shape, _BOOL, [x])
        return whether(work, x.items, holds, x.size, told, target)
    wanted = named.dtype(x.dtype) if dtype is None else dtype_of("dtype", dtype)
    return reduced(work, x, where, named.op, axis, None, keepdims, wanted, out, named.empty)


@described(x="items", axis="axes", dtype="summed")
def sum(
    work: Work,
    x: Operand,
    /,
    *,
    axis: Axes = None,
    dtype: DType = None,
    keepdims: bool = False,
    where: Operand | None = None,
    out: Array | None = None,
) -> Numbers:
    """Return the sum of all items, or along axes.

    Bool and small integers are summed in an integer of 64 bits, float16 and bfloat16 in float32. The sum of
    no items is 0.

    >>> int(arrays.sum(np.array([100, 100], np.int8)))
    200
    """
    return _reduced_by_name(work, x, where, "sum", axis, keepdims, dtype, out)


@described(x="items", axis="axes", dtype="summed")
def prod(
    work: Work,
    x: Operand,
    /,
    *,
    axis: Axes = None,
    dtype: DType = None,
    keepdims: bool = False,
    where: Operand | None = None,
    out: Array | None = None,
) -> Numbers:
    """Return the product of all items, or along axes; that of no items is 1.

    >>> arrays.prod(np.array([[1, 2], [3, 4]]), axis=1)
    array([ 2, 12])
    """
    return _reduced_by_name(work, x, where, "prod", axis, keepdims, dtype, out)


@described(x="reals", axis="axes")
def min(
    work: Work,
    x: Operand,
    /,
    *,
    axis: Axes = None,
    keepdims: bool = False,
    where: Operand | None = None,
    out: Array | None = None,
) -> Operand:
    """Return the least item, or those along axes; NaN if there is one.

    No items are a ValueError.

    Parameters
    ----------
    where : array of bool, optional
        Which items count; if none does, the result is the greatest value of the dtype.

    >>> float(arrays.min(np.array([2.0, np.nan, 1.0])))
    nan
    """
    return _reduced_by_name(work, x, where, "min", axis, keepdims, None, out)


@described(x="reals", axis="axes")
def max(
    work: Work,
    x: Operand,
    /,
    *,
    axis: Axes = None,
    keepdims: bool = False,
    where: Operand | None = None,
    out: Array | None = None,
) -> Operand:
    """Return the greatest item, or those along axes; NaN if there is one.

    No items are a ValueError.

    Parameters
    ----------
    where : array of bool, optional
        Which items count; if none does, the result is the least value of the dtype.

    >>> arrays.max(np.array([[1, 5], [7, 2]]), axis=0)
    array([7, 5])
    """
    return _reduced_by_name(work, x, where, "max", axis, keepdims, None, out)


@described(x="items", axis="axes")
def any(
    work: Work, x: Operand, /, *, axis: Axes = None, keepdims: bool = False, out: Array | None = None
) -> Flags:
    """Return whether an item is not 0, or one along axes. NaN is not 0.

    >>> bool(arrays.any(np.array([0, 0, 3])))
    True
    """
    return _reduced_by_name(work, x, None, "any", axis, keepdims, None, out)


@described(x="items", axis="axes")
def all(
    work: Work, x: Operand, /, *, axis: Axes = None, keepdims: bool = False, out: Array | None = None
) -> Flags:
    """Return whether no item is 0, or none along axes.

    >>> bool(arrays.all(np.array([1, 0, 3])))
    False
    """
    return _reduced_by_name(work, x, None, "all", axis, keepdims, None, out)


@described(x="items", axis="axes")
def count_nonzero(work: Work, x: Operand, /, *, axis: Axes = None, keepdims: bool = False) -> Integers:
    """Count the items that are not 0, of all or along axes, as int64.

    >>> int(arrays.count_nonzero(np.array([0.0, 2.0, np.nan])))
    2
    """
    return _reduced_by_name(work, x, None, "count_nonzero", axis, keepdims, None, None)
