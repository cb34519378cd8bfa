"""Items counted, combined and chosen by operators: what Thrust has by name, made of a few algorithms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._base.errors import ArgumentValueError
from ..iterators import (
    DiscardIterator,
    TransformIterator,
    ZipIterator,
)
from ..operators import Op, OpKind
from ..partition import three_way_partition
from . import operators
from .axes import INT64, constant
from .calls import Integers, Numbers, Operand, Work
from .described import described
from .items import Counted, chosen
from .rows import check_numbers, promoted, reduced
from .scans import scan_of
from .values import cast, is_nonzero, item

if TYPE_CHECKING:
    from .._base.annotations import Array, Axes, DType

_BOOL = np.dtype(bool)


@operators.remembered
def _flag(predicate: Op) -> Any:
    function = operators.within(predicate)
    return lambda item: np.bool_(function(item))  # which numba refuses to make of None


@operators.remembered
def unflagged(predicate: Op) -> Any:
    """Return a predicate that holds where another does not."""
    function = operators.within(predicate)
    return lambda item: not np.bool_(function(item))


def flags_of(x: Operand, predicate: Op, invert: bool = False) -> Operand:
    """Return for which items a predicate holds, or does not."""
    flags = TransformIterator(x.once, (unflagged if invert else _flag)(predicate), _BOOL)
    return Operand(None, flags, x.shape)


def _equal_pair(s: Any) -> Any:
    return s[0] == s[1]


# --- Reduced ----------------------------------------------------------------------------------------------


def _count(work: Work, flags: Operand, axis: Axes, keepdims: bool) -> Integers:
    ones = Operand(None, cast(flags.items, INT64), flags.shape)
    return reduced(work, ones, None, OpKind.PLUS, axis, None, keepdims, None, None, 0)


@described(axis="axes")
def count_if(
    work: Work, x: Operand, predicate: Op, /, *, axis: Axes = None, keepdims: bool = False
) -> Integers:
    """Count the items for which a predicate holds, as int64.

    >>> int(arrays.count_if(np.array([3, -1, 4]), lambda a: a > 0))
    2
    """
    return _count(work, flags_of(x, predicate), axis, keepdims)


@described(axis="axes")
def count(work: Work, x: Operand, value: Any, /, *, axis: Axes = None, keepdims: bool = False) -> Integers:
    """Count the items that are equal to a value, as int64.

    >>> int(arrays.count(np.array([3, 1, 3]), 3))
    2
    """
    check_numbers("x", x)
    pairs = ZipIterator(x.once, constant(item("value", value, x.dtype)))
    return _count(work, Operand(None, TransformIterator(pairs, _equal_pair, _BOOL), x.shape), axis, keepdims)


@described("num_items", "like", axis="axes")
def transform_reduce(
    work: Work,
    x: Operand,
    transform: Op,
    op: Op = OpKind.PLUS,
    /,
    *,
    axis: Axes = None,
    init: Any = None,
    keepdims: bool = False,
    dtype: DType = None,
    out: Array | None = None,
) -> Numbers:
    """Return an operator's results for items, combined by another operator.

    >>> int(arrays.transform_reduce(np.array([3, 1, 4]), lambda a: a * a))
    26
    """
    made = Operand(None, TransformIterator(x.once, transform), x.shape)
    return reduced(work, made, None, op, axis, init, keepdims, dtype, out)


@operators.remembered
def _of_pair(op: Op) -> Any:
    function = operators.within(op)
    return lambda s: function(s[0], s[1])


def check_shapes(a: Operand, b: Operand) -> None:
    """Raise ValueError unless two operands have one shape."""
    if a.shape != b.shape:
        raise ArgumentValueError("b", f"expected the shape of `a`, {a.shape}, got {b.shape}")


@described("num_items", "like", times="op")
def inner_product(
    work: Work,
    a: Operand,
    b: Operand,
    op: Op = OpKind.PLUS,
    times: Op = OpKind.MULTIPLIES,
    /,
    *,
    init: Any = None,
) -> Numbers:
    """Return what one operator combines of what another makes of pairs of items: the sum of products.

    >>> int(arrays.inner_product(np.array([1, 2, 3]), np.array([4, 5, 6])))
    32
    """
    check_shapes(a, b)
    dtype = promoted(a=a, b=b)
    pairs = ZipIterator(cast(a.items, dtype), cast(b.items, dtype))
    made = TransformIterator(pairs, _of_pair(times), dtype if times is OpKind.MULTIPLIES else None)
    return reduced(work, Operand(None, made, a.shape), None, op, None, init, False, None, None)


@described("num_items", "like")
def transform_scan(
    work: Work,
    x: Operand,
    transform: Op,
    op: Op = OpKind.PLUS,
    /,
    *,
    axis: int | None = None,
    init: Any = None,
    exclusive: bool = False,
    reverse: bool = False,
    dtype: DType = None,
    out: Array | None = None,
) -> Numbers:
    """Return the prefix scan, by an operator, of what another makes of items.

    >>> arrays.transform_scan(np.array([3, 1, 4]), lambda a: a * a)
    array([ 9, 10, 26])
    """
    made = Operand(None, TransformIterator(x.once, transform), x.shape)
    return scan_of(work, made, op, axis, init, exclusive, reverse, dtype, out)


# --- Chosen -----------------------------------------------------------------------------------------------


@described(size="length")
def remove_if(work: Work, x: Operand, predicate: Op, /, *, size: int | None = None) -> Operand | Counted:
    """Return the items for which a predicate does not hold, in C's order.

    >>> arrays.remove_if(np.array([3, -1, 4]), lambda a: a < 0)
    array([3, 4])
    """
    return chosen(work, x.items, x.size, unflagged(predicate), size)


@described(size="length")
def compress(work: Work, x: Operand, flags: Operand, /, *, size: int | None = None) -> Operand | Counted:
    """Return the items whose flags hold, in C's order: ``x[flags]``.

    The array comes first, where ``numpy.compress`` has the flags.

    >>> arrays.compress(np.array([3, 1, 4]), np.array([True, False, True]))
    array([3, 4])
    """
    check_numbers("flags", flags)
    if flags.shape != x.shape:
        raise ArgumentValueError("flags", f"expected the shape of `x`, {x.shape}, got {flags.shape}")
    return chosen(work, x.items, x.size, is_nonzero, size, flags.items)


@described()
def partition_copy(work: Work, x: Operand, predicate: Op, /) -> tuple[Operand, Operand]:
    """Return the items for which a predicate holds, and those for which it does not, as two arrays.

    Both are in C's order. Their lengths are read back, which waits for the GPU; `partition_by` does not.

    >>> arrays.partition_copy(np.array([3, -1, 4]), lambda a: a < 0)
    (array([-1]), array([3, 4]))
    """
    first, rest = work.empty((x.size,), x.dtype), work.empty((x.size,), x.dtype)
    numbers = work.empty((2,), INT64)
    given = x.items, first.items, DiscardIterator(x.dtype), rest.items, numbers.items
    work.run(three_way_partition(*given, predicate, operators.never), *given, x.size)
    known = work.lengths(numbers)[0]
    return work.first(first, known), work.first(rest, x.size - known)
