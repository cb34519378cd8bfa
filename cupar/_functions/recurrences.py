"""Gradients of linear recurrences, in one scan that reads and writes each array once."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import structs
from .._base.errors import ArgumentTypeError, ArgumentValueError
from .._device import arrays
from .._ir import nodes
from .._ir.iterator import Iterator, Leaf, over, packed
from ..iterators import PermutationIterator, ReverseIterator, TransformOutputIterator, ZipIterator
from .axes import AxisLayout, axis_of, constant, indices
from .calls import Operand, Work, output_of
from .rows import layout_along, scanned_rows
from .values import accumulated, cast, casting

if TYPE_CHECKING:
    pass

_PAIR = struct.Struct("=2q").pack


class ShiftedIterator(Iterator):
    """Yields for each item of an array the one `by` places behind it, or zero beyond the end.

    Parameters
    ----------
    array : array or dtype
        Of numbers.
    size : int
        How many items it has.
    by : int
        May be negative.
    """

    def __init__(self, array: Any, size: int, by: int) -> None:
        dtype = arrays.dtype_of("array", array)
        self.node: nodes.IteratorNode = nodes.interned((nodes.Shift, dtype), lambda: nodes.Shift(dtype))
        leaves = Leaf(array), Leaf(0), Leaf(packed(_PAIR, size, by))
        super().__init__(self.node, leaves)


def _combined(left: Any, right: Any) -> Any:
    return (left[0] * right[0], right[0] * left[1] + right[1], right[2])


def _of_both(s: Any) -> Any:
    return (s[1] * s[2], s[1])


def _of_first(s: Any) -> Any:
    a, b, before = s
    return (b * before, b * a)


def gradient_scan(
    a: Any, h: Any, grad: Any, grad_a: Any, grad_b: Any, layout: AxisLayout, reverse: bool
) -> tuple[Any, Any, Any]:
    """Return input, output and operator of the one inclusive scan by rows that makes the gradients.

    What it writes for the first item of each row to `grad_a` is the gradient's only if there is one row that
    nothing comes before: otherwise the row before goes on there.

    Parameters
    ----------
    a, h, grad, grad_a, grad_b : arrays or dtypes
        Items in C's order, as `layout` has them. The last two are written.
    layout : AxisLayout
    reverse : bool
        Whether the recurrence goes from the last item to the first.
    """
    grad, grad_a, grad_b = (over("grad", each) for each in (grad, grad_a, grad_b))
    within, size = accumulated(grad_b.dtype), layout.size
    step = -layout.inner if reverse else layout.inner
    items: Any = ZipIterator(
        cast(ShiftedIterator(a, size, step), within),
        cast(grad, within),
        cast(ShiftedIterator(h, size, -step), within),
    )
    pair = ZipIterator(casting(grad_a, within), casting(grad_b, within))
    written: Any = TransformOutputIterator(pair, _of_both, items.dtype)
    if not reverse:
        items, written = ReverseIterator(items + (size - 1)), ReverseIterator(written + (size - 1))
    return items, written, _combined


def _first_item(s: Any) -> Any:
    i, length, inner, at = s
    return (i // inner * length + at) * inner + i % inner


def first_items(layout: AxisLayout, reverse: bool) -> Any:
    """Return an iterator over where the item of each row is that a recurrence begins with."""
    return indices(_first_item, layout.length, layout.inner, layout.length - 1 if reverse else 0)


def recurrence_gradients(
    work: Work,
    a: Operand,
    h: Operand,
    grad: Operand,
    initial: Operand | None,
    axis: int | None,
    reverse: bool,
    out: tuple[Any, Any, Any],
) -> tuple[Operand, Operand, Operand | None]:
    """Return the gradients of ``h = linear_recurrence(a, b, axis=…, initial=…, reverse=…)``.

    One scan reads `a`, `h` and `grad` once, and writes both gradients: 20 bytes an item of float32. Where
    there is an initial value, or are several rows, one short kernel follows. Complex gradients are those of
    the linear map: conjugate `a` and `h` where a framework wants its adjoint.

    Parameters
    ----------
    a, h, grad : Operand
        Of one shape: coefficients, the result, and the gradient with respect to that.
    initial : Operand or None
        None if there was none: there is no gradient of it then.
    axis, reverse
        As `linear_recurrence` was given them.
    out : tuple
        Arrays for the three results, or None for new ones.
    """
    for name, each in (("h", h), ("grad", grad)):
        if each.shape != a.shape:
            raise ArgumentValueError(name, f"expected the shape of `a`, {a.shape}, got {each.shape}")
    dtype = np.result_type(a.dtype, h.dtype, grad.dtype)
    if structs.kind_of(dtype) not in "fc":
        raise ArgumentTypeError("grad", f"expected floats, got {structs.text(dtype)}")
    layout, shape = layout_along(a, axis)
    inputs = [each for each in (a, h, grad, initial) if each is not None]
    grad_a, grad_b = (output_of(work, each, shape, dtype, inputs) for each in out[:2])
    rows = tuple(n for i, n in enumerate(shape) if i != axis_of(axis, a.ndim))
    grad_initial = None
    if initial is not None:
        if initial.shape != rows:
            raise ArgumentValueError("initial", f"expected shape {rows}, got {initial.shape}")
        grad_initial = output_of(work, out[2], rows, dtype, inputs)
    if not grad_a.size:
        return grad_a, grad_b, grad_initial
    items, written, op = gradient_scan(
        a.items, h.items, grad.items, grad_a.items, grad_b.items, layout, reverse
    )
    scanned_rows(work, items, written, layout, op, None)
    if initial is None and layout.rows == 1:
        return grad_a, grad_b, None

    # Values before rows: one item of each is not the scan's.
    first = first_items(layout, reverse)
    within = accumulated(dtype)
    of_a, of_b = (PermutationIterator(cast(each.items, within), first) for each in (a, grad_b))
    to_a = PermutationIterator(grad_a.items, first)
    if initial is None:
        work.copy(constant(np.zeros((), dtype)[()]), to_a, layout.rows)
        return grad_a, grad_b, None
    assert grad_initial is not None
    source = ZipIterator(of_a, of_b, cast(initial.items, within))
    target = ZipIterator(casting(to_a, within), casting(grad_initial.items, within))
    work.copy(source, target, layout.rows, _of_first)
    return grad_a, grad_b, grad_initial
