"""Scans: each item of the result combines all items up to it, of all or along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._base.errors import ArgumentTypeError, ArgumentValueError
from ..iterators import (
    ConstantIterator,
    CountingIterator,
    PermutationIterator,
    ReverseIterator,
    TransformIterator,
    TransformOutputIterator,
    ZipIterator,
)
from ..operators import Op, OpKind
from . import operators
from .axes import AxisLayout, axis_of, constant, indices
from .calls import Numbers, Operand, Work, enter, output_of
from .described import described
from .rows import check_numbers, dtypes_of, layout_along, promoted, scanned_rows
from .values import accumulated, cast, casting, dtype_of, initial, summed

if TYPE_CHECKING:
    from .._base.annotations import Array, DType, Stream


def scan_of(
    work: Work,
    x: Operand,
    op: Op,
    axis: int | None,
    init: Any,
    exclusive: bool,
    reverse: bool,
    dtype: DType,
    out: Array | None,
) -> Operand:
    layout, shape = layout_along(x, axis)
    result, within = dtypes_of(x, dtype, init)
    target = output_of(work, out, shape, result, [x])
    items, written = x.items, casting(target.items, within)
    known = operators.identity_of(op, within)
    h_init: Any = None
    if init is not None:
        h_init = initial("init", init, within)
    elif exclusive or within != x.dtype:
        if exclusive and known is None:
            raise ArgumentTypeError(
                "init", "an exclusive scan begins with it, and the operator has no known identity"
            )
        # An exclusive sum begins with 0, and no item of an inclusive one is to become 0 that was -0.0.
        h_init = (
            None
            if known is None
            else initial("init", abs(known) if exclusive and known == 0 else known, within)
        )
    if h_init is None:
        items = cast(items, within)
    if reverse:
        items, written = _backwards(items, layout.size), _backwards(written, layout.size)
    scanned_rows(work, items, written, layout, op, h_init, exclusive)
    return target


def _backwards(items: Any, size: int) -> Any:
    """Return items from the last one on."""
    return ReverseIterator(items + (size - 1) if hasattr(items, "node") else items)


@described("num_items", "like")
def scan(
    work: Work,
    x: Operand,
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
    """Return the prefix scan by an operator: each item combines all up to it.

    Parameters
    ----------
    op : callable, OpKind or RawOp, optional
        Combines two values, the first of which is that of earlier items. It must be associative; it need not
        be commutative.
    axis : int or None, optional
        By default all items in C's order, and the result has one dimension.
    init : number, array of one element or tuple, optional
        Comes before all items of each row. It decides the dtype as for `reduce`.
    exclusive : bool, optional
        Whether each item combines those before it alone, the first one being `init`, or by default the
        operator's identity.
    reverse : bool, optional
        Whether the scan goes from the last item to the first; `op` has that of later items first then.
    dtype : dtype, optional
        As for `reduce`.
    out : array, optional
        Where the result goes, of its shape: it may be `x` itself.

    Returns
    -------
    array
        Of the library and the shape of `x`.

    >>> arrays.scan(np.array([3, 1, 4, 1, 5]), lambda a, b: a if a > b else b)
    array([3, 3, 4, 4, 5])
    >>> arrays.scan(np.array([[1, 2], [3, 4]]), axis=1, reverse=True)
    array([[3, 2],
           [7, 4]])
    """
    return scan_of(work, x, op, axis, init, exclusive, reverse, dtype, out)


# --- By name ----------------------------------------------------------------------------------------------


def cumulative_shape(x: Operand, axis: int | None, include_initial: bool) -> tuple[int, ...]:
    """Return the shape of a cumulative sum or product; raise what these raise."""
    if axis is None and x.ndim > 1:
        raise ArgumentValueError("axis", f"expected one of {x.ndim}, as `x` has several, got None")
    check_numbers("x", x)
    if not include_initial:
        return layout_along(x, axis)[1]
    at = axis_of(0 if axis is None else axis, x.ndim)
    return (*x.shape[:at], x.shape[at] + 1, *x.shape[at + 1 :])


def _cumulative(
    work: Work, x: Operand, op: Op, axis: int | None, dtype: DType, include_initial: bool, out: Array | None
) -> Operand:
    wanted = summed(x.dtype) if dtype is None else dtype_of("dtype", dtype)
    shape = cumulative_shape(x, axis, include_initial)
    if not include_initial:
        return scan_of(work, x, op, axis, None, False, False, wanted, out)
    layout, _ = layout_along(x, 0 if axis is None else axis)
    wanted, within = dtypes_of(x, wanted)
    target = output_of(work, out, shape, wanted, [x])
    whole = AxisLayout(layout.outer, layout.length + 1, layout.inner)
    first = indices(_first_of_row, whole.length, whole.inner)
    start = initial("init", 0 if op is OpKind.PLUS else 1, wanted)[0]
    work.copy(ConstantIterator(start), PermutationIterator(target.items, first), layout.rows)
    later = indices(_after_first, layout.length * layout.inner, layout.inner)
    written = casting(PermutationIterator(target.items, later), within)
    h_init = initial("init", operators.identity_of(op, within), within)
    scanned_rows(work, x.items, written, layout, op, h_init)
    return target


def _first_of_row(s: Any) -> Any:
    i, length, inner = s
    return (i // inner) * length * inner + i % inner


def _after_first(s: Any) -> Any:
    i, own, inner = s
    return i + (i // own + 1) * inner


@described(x="items", dtype="summed")
def cumulative_sum(
    work: Work,
    x: Operand,
    /,
    *,
    axis: int | None = None,
    dtype: DType = None,
    include_initial: bool = False,
    out: Array | None = None,
) -> Numbers:
    """Return the sums of all items up to each, along an axis.

    Parameters
    ----------
    axis : int, optional
        Needed if `x` has several dimensions.

    >>> arrays.cumulative_sum(np.array([1, 2, 3]), include_initial=True)
    array([0, 1, 3, 6])
    """
    return _cumulative(work, x, OpKind.PLUS, axis, dtype, include_initial, out)


@described(x="items", dtype="summed")
def cumulative_prod(
    work: Work,
    x: Operand,
    /,
    *,
    axis: int | None = None,
    dtype: DType = None,
    include_initial: bool = False,
    out: Array | None = None,
) -> Numbers:
    """Return the products of all items up to each, along an axis.

    Parameters
    ----------
    axis : int, optional
        Needed if `x` has several dimensions.

    >>> arrays.cumulative_prod(np.array([1, 2, 3, 4]))
    array([ 1,  2,  6, 24])
    """
    return _cumulative(work, x, OpKind.MULTIPLIES, axis, dtype, include_initial, out)


# --- Recurrences ------------------------------------------------------------------------------------------


def combined(left: Any, right: Any) -> Any:
    """Combine two pairs: that of earlier items, and that of later ones."""
    return (left[0] * right[0], right[0] * left[1] + right[1])


def _with_initial(s: Any) -> Any:
    """Return the pair of an item; the first of a row includes the value before it."""
    (a, b), i, length, inner, before = s
    return (a, a * before + b if i // inner % length == 0 else b)


def _row_of(s: Any) -> Any:
    i, length, inner = s
    return i // (length * inner) * inner + i % inner


def _linear_recurrence(
    work: Work,
    a: Operand,
    b: Operand,
    initial_: Operand | None,
    before_first: Any,
    axis: int | None,
    reverse: bool,
    out: Array | None,
) -> Operand:
    if a.shape != b.shape:
        raise ArgumentValueError("b", f"expected the shape of `a`, {a.shape}, got {b.shape}")
    layout, shape = layout_along(b, axis)
    result = promoted(a=a, b=b)
    if result.kind == "b":
        raise ArgumentTypeError("b", "expected numbers, got bool")
    within = accumulated(result)
    target = output_of(work, out, shape, result, [a, b] if initial_ is None else [a, b, initial_])
    if not target.size:
        return target
    pairs, written = recurrence_ends(a.items, b.items, target.items, within)
    if reverse:
        pairs, written = _backwards(pairs, layout.size), _backwards(written, layout.size)
    h_init = None
    if before_first is not None:  # a pair that makes the number of whatever comes before it
        h_init = np.zeros(1, pairs.dtype)
        h_init["field_0"], h_init["field_1"] = 1, initial("initial", before_first, within)[0]
    elif initial_ is not None:
        before = _before_rows(initial_, b, axis, layout, reverse, within)
        pairs = with_initial(pairs, before, layout)
    scanned_rows(work, pairs, written, layout, combined, h_init)
    return target


def recurrence_ends(a: Any, b: Any, h: Any, within: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the input and the output of the scan that a recurrence is, whose numbers are of a dtype."""
    pairs = ZipIterator(cast(a, within), cast(b, within))
    return pairs, TransformOutputIterator(casting(h, within), operators.second, pairs.dtype)


def with_initial(pairs: Any, before: Any, layout: AxisLayout) -> Any:
    """Return the pairs of a recurrence, which include the values before rows."""
    numbers = constant(layout.length), constant(layout.inner)
    every = ZipIterator(pairs, CountingIterator(np.int64(0)), *numbers, before)
    return TransformIterator(every, _with_initial, pairs.dtype)


def of_rows(first: Any, layout: AxisLayout) -> Any:
    """Return the item of each row, of which there is one, for all items of it."""
    return PermutationIterator(first, indices(_row_of, layout.length, layout.inner))


def _before_rows(
    given: Operand, b: Operand, axis: Any, layout: AxisLayout, reverse: bool, within: Any
) -> Any:
    """Return an iterator over the value before the row of each item."""
    shape = tuple(n for i, n in enumerate(b.shape) if i != axis_of(axis, b.ndim))
    if given.shape not in (shape, ()):
        raise ArgumentValueError("initial", f"expected shape {shape} or (), got {given.shape}")
    if given.shape == ():
        return PermutationIterator(cast(given.items, within), constant(0))
    first = _backwards(given.items, given.size) if reverse else given.items
    return of_rows(cast(first, within), layout)


def linear_recurrence(
    a: Array,
    b: Array,
    /,
    *,
    axis: int = -1,
    initial: Array | complex | None = None,
    reverse: bool = False,
    out: Array | None = None,
    stream: Stream = None,
) -> Array:
    """Return h with ``h[t] = a[t] * h[t - 1] + b[t]`` along an axis.

    Parameters
    ----------
    a, b : arrays
        Of one shape.
    axis : int, optional
    initial : array or number, optional
        What comes before the first item of each row, of the shape of `b` without the axis. Without it,
        ``h[0]`` is ``b[0]``, whatever ``a[0]`` is.
    reverse : bool, optional
        Whether ``h[t] = a[t] * h[t + 1] + b[t]``.
    out, stream
        As for `scan`.

    Returns
    -------
    array

    Notes
    -----
    It is a scan of pairs: G. Blelloch, "Prefix Sums and Their Applications", 1990. As products of `a` are
    made first, these may overflow where a loop's numbers would not.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar import arrays
    >>> arrays.linear_recurrence(np.array([0.5, 0.5, 0.5]), np.array([1.0, 1.0, 1.0]))
    array([1.  , 1.5 , 1.75])
    """
    number = initial if isinstance(initial, (int, float, complex)) else None
    inputs = a, b, initial if number is None else None
    found: Array = enter(_linear_recurrence, inputs, (number, axis, reverse, out), stream)
    return found
