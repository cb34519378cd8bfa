"""Reductions: of all items, or along axes; with operators, and by the names of NumPy and the Array API."""

from __future__ import annotations

from typing import Any

from ..operators import Op, OpKind
from .calls import enter
from .rows import reduced


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
    init : number, array of one element or tuple, optional
        Combined with the items of each result, and the result of no items. Without it, no items are an error
        unless the operator has a known identity. The dtype of an array or of a NumPy scalar is that of the
        result, unless `dtype` is given; Python's numbers have none.
    keepdims : bool, optional
        Whether reduced axes stay, with length 1.
    where : array of bool, optional
        Which items count, of the shape of `x`. If none does and there is no `init` and no identity, the
        result is 0.
    dtype : dtype, optional
        Of the result, in which items are combined; by default that of `init` or `x`. float16 and bfloat16 are
        combined in float32.
    out : array, optional
        Where the result goes, of its shape.
    num_items : int, optional
        Number of items to take of an iterator; by default all of its arrays'.
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
        If an argument is not one of these.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar import arrays
    >>> x = np.array([3, -7, 5, 1])
    >>> int(arrays.reduce(x, lambda a, b: a if abs(a) > abs(b) else b))
    -7
    """
    return enter(reduced, (x, where), (op, axis, init, keepdims, dtype, out), stream, like, num_items)
