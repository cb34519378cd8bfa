"""Reductions: of all items, or along axes; with operators, and by the names of NumPy and the Array API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..operators import Op, OpKind
from .calls import Numbers, Operand, Work
from .described import described
from .rows import reduced

if TYPE_CHECKING:
    from .._base.annotations import Array, Axes, DType


@described("num_items", "like")
def reduce(
    work: Work,
    x: Operand,
    op: Op = OpKind.PLUS,
    /,
    *,
    axis: Axes = None,
    init: Any = None,
    keepdims: bool = False,
    where: Operand | None = None,
    dtype: DType = None,
    out: Array | None = None,
) -> Numbers:
    """Return all items combined by an operator, or those along axes.

    Parameters
    ----------
    op : callable, OpKind or RawOp, optional
        Combines two values, tuples of a tuple of arrays. It must be associative and commutative.
    axis : int, tuple of int or None, optional
        By default all.
    init : number, array of one element or tuple, optional
        Combined with the items of each result, and the result of no items. Without it, no items are an error
        unless the operator has a known identity. The dtype of an array or of a NumPy scalar is that of the
        result, unless `dtype` is given; Python's numbers have none.
    where : array of bool, optional
        Which items count, of the shape of `x`. If none does and there is no `init` and no identity, the
        result is 0.
    dtype : dtype, optional
        Of the result, in which items are combined; by default that of `init` or `x`. float16 and bfloat16 are
        combined in float32.

    Returns
    -------
    array
        Of the library of `x`. Of one item it has no dimensions.

    >>> x = np.array([3, -7, 5, 1])
    >>> int(arrays.reduce(x, lambda a, b: a if abs(a) > abs(b) else b))
    -7
    """
    return reduced(work, x, where, op, axis, init, keepdims, dtype, out)
