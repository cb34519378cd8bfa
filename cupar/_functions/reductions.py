"""Reductions: of all items, or along axes; with operators, and by the names of NumPy and the Array API."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import structs
from ..iterators import ConstantIterator, TransformIterator, TransformOutputIterator, ZipIterator
from ..operators import Op, OpKind
from ..reduce import reduce_into
from ..segmented import segmented_reduce
from . import libraries, operators, quick
from .axes import Layout, axes_of, columns, layout_of
from .calls import Operand, Work, accumulated, cast, casting, dtype_of, enter, initial, output_of


def reduced_rows(work: Work, items: Any, out: Any, layout: Layout, op: Any, h_init: Any) -> None:
    """Reduce each row into an item of `out`. `h_init` is None only if there is one row, and it has items."""
    if layout.rows == 1:
        work.run(reduce_into(items, out, op, h_init), items, out, layout.length, h_init)
    elif layout.rows:
        reduction = segmented_reduce(items, out, op=op, h_init=h_init)
        work.run(reduction, items, out, layout.rows, h_init=h_init, segment_size=layout.length)


def over_axes(
    work: Work, x: Operand, axis: Any, where: Operand | None = None
) -> tuple[Any, Any, Layout, Any]:
    """Return the items of each row of some axes, those of a mask, their layout, and the shape of the result.

    The shape is one with 1 for each of the axes; without these it is that of the array without them.
    """
    axes = axes_of(axis, x.ndim)
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    if not axes:
        return x.items, where and where.items, Layout(x.size, 1, 1), (kept, axes)
    if axes[-1] - axes[0] + 1 != len(axes):  # others are between them
        order = (*(i for i in range(x.ndim) if i not in axes), *axes)
        x, where = work.permuted(x, order), where and work.permuted(where, order)
        axes_now = tuple(range(x.ndim - len(axes), x.ndim))
    else:
        axes_now = axes
    layout = layout_of(x.shape, axes_now[0], axes_now[-1])
    masked = where and columns(where.items, layout)
    return columns(x.items, layout), masked, layout, (kept, axes)


def result_shape(shape: Any, keepdims: bool) -> tuple[int, ...]:
    """Return the shape of a result, of what `over_axes` says of it."""
    kept, axes = shape
    return kept if keepdims else tuple(n for i, n in enumerate(kept) if i not in axes)


def reduced(
    work: Work,
    x: Operand,
    where: Operand | None,
    op: Any,
    axis: Any,
    init: Any,
    keepdims: bool,
    dtype: Any,
    out: Any,
    empty: Any = None,
) -> Operand:
    wanted = dtype_of("dtype", dtype)
    if wanted is not None and x.parts:
        raise TypeError("dtype: expected None, as `x` is a tuple, whose arrays keep their dtypes")
    result = x.dtype if wanted is None else wanted
    within = accumulated(result)
    items, mask, layout, shape = over_axes(work, x, axis, where)
    target = output_of(work, out, result_shape(shape, keepdims), result, [x])
    known = operators.identity_of(op, within)
    if not target.size:
        return target
    if not layout.length:
        if init is None and empty is None and known is None:
            raise ValueError(
                "x: a reduction of no items has no result, as the operator has no known identity; give init"
            )
        filling = init if init is not None else known if empty is None else empty
        filled = ConstantIterator(initial("init", filling, result)[0])
        work.copy(filled, target.items, target.size)
        return target
    start = None if init is None else initial("init", init, within)
    if start is None and known is not None:
        start = initial("init", known, within)
    if mask is not None or start is None or not structs.convertible(items.dtype, within):
        items = cast(items, within)
    if mask is not None and known is not None:
        items = TransformIterator(ZipIterator(items, mask, _one(known, within)), _selected, within)
        mask = None
    written = casting(target.items, within)
    if mask is None and (start is not None or layout.rows == 1):
        reduced_rows(work, items, written, layout, op, start)
        return target
    flagged = ZipIterator(items, ConstantIterator(np.bool_(True)) if mask is None else mask)
    zero = np.zeros(1, flagged.dtype)
    if start is not None:
        zero["field_0"], zero["field_1"] = start, True
    written = TransformOutputIterator(written, _value, flagged.dtype)
    reduced_rows(work, flagged, written, layout, operators.flagged(op, within), zero)
    return target


def _one(value: Any, dtype: np.dtype[Any]) -> Any:
    return ConstantIterator(initial("init", value, dtype)[0])


def _selected(s: Any) -> Any:
    return s[0] if s[1] else s[2]


def _value(s: Any) -> Any:
    return s[0]


_REDUCE = quick.table()


def reduce(
    x: Any,
    op: Op = OpKind.PLUS,
    /,
    *,
    axis: Any = None,
    init: Any = None,
    keepdims: bool = False,
    where: Any = None,
    dtype: Any = None,
    out: Any = None,
    num_items: int | None = None,
    like: Any = None,
    stream: Any = None,
) -> Any:
    """Return all items combined by an operator, or those along axes.

    Parameters
    ----------
    x : array, iterator or tuple of arrays
        Of NumPy, CuPy, PyTorch, Numba, or with DLPack. Of a tuple, `op` takes and returns tuples.
    op : callable, OpKind or RawOp, optional
        Combines two values. It must be associative and commutative.
    axis : int, tuple of int or None, optional
        By default all.
    init : number or tuple, optional
        Combined with the items of each result, and the result of no items. Without it, no items are an error
        unless the operator has a known identity.
    keepdims : bool, optional
        Whether reduced axes stay, with length 1.
    where : array of bool, optional
        Which items count, of the shape of `x`. If none does and there is no `init` and no identity, the
        result is 0.
    dtype : dtype, optional
        Of the result, in which items are combined; by default that of `x`. float16 and bfloat16 are combined
        in float32.
    out : array, optional
        Where the result goes, of its shape.
    num_items : int, optional
        How many items of an iterator are taken; by default as many as its arrays have.
    like : array, optional
        Where `x` has no arrays: one of the library that makes the result.
    stream : optional
        As in `Algorithm`; by default the library's current one.

    Returns
    -------
    array
        Of the library of `x`. Of one item it has no dimensions.

    Raises
    ------
    TypeError, ValueError
        If an argument is none of these.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar import arrays
    >>> x = np.array([3, -7, 5, 1])
    >>> int(arrays.reduce(x, lambda a, b: a if abs(a) > abs(b) else b))
    -7
    """
    plain = axis is None and init is None and not keepdims and where is None and dtype is None and out is None
    if plain and stream is None and like is None:
        try:
            found = _REDUCE[type(x), x.dtype, quick.token(op)](x, op)
        except (KeyError, AttributeError):
            found = None
        if found is not None:
            return found
    result = enter(
        reduced,
        {"x": x, "where": where},
        *(op, axis, init, keepdims, dtype, out),
        stream=stream,
        like=like,
        num_items=num_items,
    )
    if plain:
        learn(_REDUCE, x, op, result)
    return result


def learn(table: Any, x: Any, op: Any, result: Any, name: Any = None, within: Any = None) -> None:
    """Keep how to reduce all items of such an array."""
    if not libraries.is_array(x) or not libraries.is_array(result):
        return
    library = libraries.of("x", x)
    given, dtype = library.memory(x).dtype, library.memory(result).dtype
    within = accumulated(dtype)
    identity = operators.identity_of(op, within)
    if within != given and identity is None:
        return
    h_init = None if within == given else initial("init", identity, within)
    quick.learn(table, x, op, lambda: reduce_into(given, dtype, op, h_init), dtype, h_init, False, name)


def check_kind(name: str, x: Operand, kinds: str) -> None:
    """Raise TypeError unless an operand is of numbers, of these kinds of dtype."""
    if x.parts or structs.kind_of(x.dtype) not in kinds:
        raise TypeError(
            f"x: {name} takes {'real ' if kinds == 'biuf' else ''}numbers, got {structs.text(x.dtype)}"
        )


def check_items(name: str, x: Operand, axes: tuple[int, ...]) -> None:
    """Raise ValueError if there are results of no items."""
    if not math.prod([x.shape[i] for i in axes]):
        raise ValueError(f"x: {name} of no items has no result, got shape {x.shape}")
