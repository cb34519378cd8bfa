"""Scans with operators that JAX's users write, and their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._functions.axes import axis_of
from .._functions.calls import Operand
from .._functions.rows import layout_along, scanned_rows
from .._functions.scans import _backwards
from .._functions.values import accumulated, cast, casting
from ..iterators import ZipIterator
from .partition import Factors, rows
from .primitive import Function, call
from .program import Recorder
from .recurrence import linear_recurrence
from .traced import operator

_MOST = 12  # leaves


def _body(work: Recorder, *given: Any) -> Sequence[Operand]:
    *operands, op, axis, reverse = given
    layout, shape = layout_along(operands[0], axis)
    found = [work.empty(shape, each.dtype) for each in operands]
    within = [accumulated(each.dtype) for each in operands]
    read = [cast(each.items, dtype) for each, dtype in zip(operands, within, strict=True)]
    written = [casting(each.items, dtype) for each, dtype in zip(found, within, strict=True)]
    items, out = (each[0] if len(each) == 1 else ZipIterator(*each) for each in (read, written))
    if reverse:
        items, out = _backwards(items, layout.size), _backwards(out, layout.size)
    scanned_rows(work, items, out, layout, op, None)
    return found


def _factors(inputs: Sequence[int], results: Sequence[int], op: Any, axis: int, reverse: bool) -> Factors:
    return rows(axis, inputs, results)


_SCAN = Function("associative_scan", _body, lambda op, axis, reverse: (op, axis + 1, reverse), _factors)


def associative_scan(fn: Callable[[Any, Any], Any], xs: Any, *, axis: int = 0, reverse: bool = False) -> Any:
    """Return the scan of arrays along an axis by an associative operator, as ``jax.lax.associative_scan``.

    Parameters
    ----------
    fn : callable
        Takes two values of the structure of `xs`, of which the first is that of earlier items, and returns
        another. It is associative, and is called with scalars once: it may do arithmetic, compare, and call
        functions of ``jnp`` of scalars. The whole scan is one kernel.
    xs : pytree of arrays
        Of one shape. float16 and bfloat16 are combined in float32.
    axis : int, optional
    reverse : bool, optional
        Whether the scan goes from the last item to the first; `fn` has that of later items first then.

    Returns
    -------
    pytree of arrays
        Like `xs`.

    Raises
    ------
    TypeError
        If `fn` does something that cupar has no Python for, or returns something else than it takes.
    ValueError
        If arrays are of several shapes.

    Notes
    -----
    Its gradient is that of ``y[t] = fn(y[t - 1], x[t])``: derivatives of `fn`, which JAX makes, and a linear
    recurrence from the other end. Where the derivatives of several leaves depend on each other that is a scan
    of matrices, for up to 3 leaves.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from cupar.jax import associative_scan
    >>> associative_scan(jnp.maximum, jnp.array([1.0, 3.0, 2.0]))
    Array([1., 3., 3.], dtype=float32)
    """
    leaves, tree = jax.tree.flatten(xs)
    leaves = [jnp.asarray(each) for each in leaves]
    if not 0 < len(leaves) <= _MOST:
        raise ValueError(f"xs: expected from 1 to {_MOST} arrays, got {len(leaves)}")
    for i, each in enumerate(leaves):
        if each.shape != leaves[0].shape:
            raise ValueError(
                f"xs: expected arrays of one shape, {leaves[0].shape}, got {each.shape} for leaf {i}: "
                "broadcast it, or use jax.lax.associative_scan"
            )
    at = axis_of(axis, leaves[0].ndim)

    def flat(*given: Any) -> list[Any]:
        sides = (jax.tree.unflatten(tree, each) for each in (given[: len(leaves)], given[len(leaves) :]))
        try:
            result = fn(*sides)
        except jax.errors.ConcretizationTypeError as error:
            raise TypeError(
                "fn: it asks for a number that is not known while it is traced, as `if`, `and`, `max` and "
                "`int` do: write jnp.where, `&`, jnp.maximum and the like"
            ) from error
        found, structure = jax.tree.flatten(result)
        if structure != tree:
            raise TypeError(f"fn: expected a result of the structure of xs, {tree}, got {structure}")
        return list(found)

    return jax.tree.unflatten(tree, _scanned(flat, leaves, at, bool(reverse)))


def _within(dtype: Any) -> np.dtype[Any]:
    return accumulated(np.dtype(dtype))


def _scanned(
    fn: Callable[..., Sequence[Any]], leaves: Sequence[Any], axis: int, reverse: bool
) -> Sequence[Any]:
    op = operator(fn, [_within(each.dtype) for each in leaves])

    @jax.custom_vjp
    def scan(*xs: Any) -> Any:
        return tuple(call(_SCAN, xs, (op, axis, reverse), tuple((each.shape, each.dtype) for each in xs)))

    def forward(*xs: Any) -> Any:
        ys = scan(*xs)
        return ys, (xs, ys)

    def backward(kept: Any, slopes: Any) -> Any:
        xs, ys = kept
        return _cotangents(fn, xs, ys, slopes, axis, reverse)

    scan.defvjp(forward, backward)
    found: Sequence[Any] = scan(*leaves)
    return found


def _cotangents(
    fn: Callable[..., Sequence[Any]],
    xs: Sequence[Any],
    ys: Sequence[Any],
    slopes: Sequence[Any],
    axis: int,
    reverse: bool,
) -> tuple[Any, ...]:
    """Return the cotangents of what is scanned; of integers there are none."""
    wide = [[each.astype(_within(each.dtype)) for each in given] for given in (xs, ys)]
    real = [i for i, each in enumerate(xs) if jnp.issubdtype(each.dtype, jnp.inexact)]
    length = xs[0].shape[axis]
    if not xs[0].size:
        return tuple(_no_slope(each) if i not in real else each for i, each in enumerate(xs))

    def cut(x: Any, begin: int, end: int) -> Any:
        return jax.lax.slice_in_dim(x, begin, end, axis=axis)

    first, rest = ((length - 1, length), (0, length - 1)) if reverse else ((0, 1), (1, length))
    earlier = (1, length) if reverse else (0, length - 1)
    left, right = [cut(each, *earlier) for each in wide[1]], [cut(each, *rest) for each in wide[0]]
    given = [slopes[i].astype(wide[0][i].dtype) for i in real]

    def some(side: int, *values: Any) -> list[Any]:
        whole = [list(left), list(right)]
        for i, each in zip(real, values, strict=True):
            whole[side][i] = each
        found = fn(*whole[0], *whole[1])
        return [found[i] for i in real]

    known = _pattern(fn, [each.dtype for each in wide[0]], real)
    columns = [_column(lambda *v: some(0, *v), [left[i] for i in real], j) for j in range(len(real))]

    def behind(x: Any) -> Any:
        """Return the derivative by each item of the next one, which the last one has not."""
        zero = jnp.zeros_like(cut(slopes[real[0]], *first)).astype(x.dtype)
        return jnp.concatenate([zero, x] if reverse else [x, zero], axis)

    number = range(len(real))
    if all(i == j or not known[i][j] for i in number for j in number):
        total = [
            linear_recurrence(behind(columns[i][i]), given[i], axis=axis, reverse=not reverse) for i in number
        ]
    else:
        matrix = [[behind(columns[j][i]) for i in number] for j in number]  # transposed
        total = _affine(matrix, given, axis, not reverse)
    through = jax.vjp(lambda *v: some(1, *v), *[right[i] for i in real])[1](
        [cut(each, *rest) for each in total]
    )
    whole: list[Any] = [_no_slope(each) for each in xs]
    for i, each, inner in zip(real, total, through, strict=True):
        parts = [inner, cut(each, *first)] if reverse else [cut(each, *first), inner]
        whole[i] = jnp.concatenate(parts, axis).astype(xs[i].dtype)
    return tuple(whole)


def _no_slope(x: Any) -> Any:
    return np.zeros(x.shape, jax.dtypes.float0)


def _column(function: Callable[..., list[Any]], values: Sequence[Any], j: int) -> list[Any]:
    """Return the derivatives of all results by one value."""

    def of_one(value: Any) -> list[Any]:
        return function(*values[:j], value, *values[j + 1 :])

    found: list[Any] = jax.jvp(of_one, (values[j],), (jnp.ones_like(values[j]),))[1]
    return found


def _pattern(
    fn: Callable[..., Sequence[Any]], dtypes: Sequence[Any], real: Sequence[int]
) -> list[list[bool]]:
    """Return which results, of rows, have a derivative by which values of earlier items."""
    scalars = [jax.ShapeDtypeStruct((), each) for each in dtypes]

    def slopes(*given: Any) -> list[Any]:
        def some(*values: Any) -> list[Any]:
            whole = list(given)
            for i, each in zip(real, values, strict=True):
                whole[i] = each
            found = fn(*whole)
            return [found[i] for i in real]

        return [_column(some, [given[i] for i in real], j) for j in range(len(real))]

    traced = jax.make_jaxpr(slopes)(*scalars, *scalars).jaxpr
    zero = [hasattr(each, "val") and not np.any(each.val) for each in traced.outvars]
    return [[not zero[j * len(real) + i] for j in range(len(real))] for i in range(len(real))]


def _affine(matrix: Sequence[Sequence[Any]], vector: Sequence[Any], axis: int, reverse: bool) -> list[Any]:
    """Return g with ``g[t] = matrix[t] @ g[t - 1] + vector[t]``."""
    number = range(len(vector))
    if len(vector) > 3:
        raise TypeError(
            f"xs: expected up to 3 arrays for a derivative, as those of {len(vector)} depend on each other"
        )

    def composed(left: Any, right: Any) -> Any:
        (a, x), (b, y) = left, right
        product = [[sum(b[i][k] * a[k][j] for k in number) for j in number] for i in number]
        return product, [y[i] + sum(b[i][k] * x[k] for k in number) for i in number]

    found: list[Any] = associative_scan(composed, (list(matrix), list(vector)), axis=axis, reverse=reverse)[1]
    return found
