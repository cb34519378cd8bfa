"""Scans with operators that JAX's users write, and their derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from .._functions.axes import axis_of
from .._functions.calls import Operand, Work
from .._functions.rows import layout_along, scanned_rows
from .._functions.scans import _backwards
from .._functions.values import accumulated, cast, casting, flag
from ..iterators import ZipIterator
from .primitive import Dim, Function, along, call, numbers
from .recurrence import recurrence, shifted
from .traced import operator

_MOST = 12  # leaves
Tree = TypeVar("Tree")


def _body(work: Work, *given: Any) -> Sequence[Operand]:
    *operands, op, axis, reverse = given
    layout, shape = layout_along(operands[0], axis)
    found = [work.empty(shape, each.dtype) for each in operands]
    within = [accumulated(each.dtype) for each in operands]
    read = [cast(each.items, dtype) for each, dtype in zip(operands, within, strict=True)]
    written = [casting(each.items, dtype) for each, dtype in zip(found, within, strict=True)]
    items, out = (each[0] if len(each) == 1 else ZipIterator(*each) for each in (read, written))
    if reverse:
        items, out = _backwards(items, layout.size), _backwards(out, layout.size)
    scanned_rows(work, items, out, layout, op.op, None)
    return found


def associative_scan(
    fn: Callable[[Tree, Tree], Tree], xs: Tree, *, axis: int = 0, reverse: bool = False
) -> Tree:
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
    Its derivatives are those of ``y[t] = fn(y[t - 1], x[t])``: derivatives of `fn`, which JAX makes, and a
    linear recurrence. Where the derivatives of several leaves depend on each other that is a scan of
    matrices, for up to 3 leaves.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from cupar.jax import associative_scan
    >>> associative_scan(jnp.maximum, jnp.array([1.0, 3.0, 2.0]))
    Array([1., 3., 3.], dtype=float32)
    """
    leaves, tree = jax.tree.flatten(xs)
    if not callable(fn):
        raise TypeError(f"fn: expected a function that is written with jnp, got {fn!r}")
    leaves = [numbers("xs", each) for each in leaves]
    if not 0 < len(leaves) <= _MOST:
        raise ValueError(f"xs: expected from 1 to {_MOST} arrays, got {len(leaves)}")
    for i, each in enumerate(leaves):
        if each.shape != leaves[0].shape:
            raise ValueError(
                f"xs: expected arrays of one shape, {leaves[0].shape}, got {each.shape} for leaf {i}: "
                "broadcast it, or use jax.lax.associative_scan"
            )
    at, number, reverse = Dim(axis_of(axis, leaves[0].ndim)), len(leaves), flag("reverse", reverse)

    def flat(*given: Any) -> list[Any]:
        sides = (jax.tree.unflatten(tree, each) for each in (given[:number], given[number:]))
        try:
            result = fn(*sides)
        except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
            raise TypeError(
                "fn: it asks for a number that is not known while it is traced, as `if`, `and`, `max`, `int` "
                "and functions of NumPy do: write jnp.where, `&`, jnp.maximum and the like"
            ) from error
        except (TypeError, ValueError) as error:
            said = str(error).partition("\n")[0]
            raise TypeError(
                f"fn: of two values, whose leaves are scalars, it raised {type(error).__name__}: {said}; "
                "jax.lax.associative_scan takes functions of whole arrays"
            ) from error
        found, structure = jax.tree.flatten(result)
        if structure != tree:
            raise TypeError(f"fn: expected a result of the structure of xs, {tree}, got {structure}")
        return list(found)

    op = operator(flat, [_within(each.dtype) for each in leaves], fn)
    found: Tree = jax.tree.unflatten(tree, _scanned(leaves, op, at, reverse))
    return found


def _within(dtype: Any) -> np.dtype[Any]:
    return accumulated(np.dtype(dtype))


def _scanned(leaves: Sequence[Any], *static: Any) -> list[Any]:
    return call(_SCAN, leaves, static, tuple((each.shape, each.dtype) for each in leaves))


# --- Its tangent ----------------------------------------------------------------------------------------


def _jvp(given: Sequence[Any], tangents: Sequence[Any], op: Any, axis: int, reverse: bool) -> Any:
    found = _scanned(given, op, axis, reverse)
    real = tuple(i for i, each in enumerate(given) if jnp.issubdtype(each.dtype, jnp.inexact))
    if not given[0].size:
        return found, [None] * len(found)
    slopes = [jnp.zeros_like(given[i]) if tangents[i] is None else tangents[i] for i in real]
    outputs = tuple((each.shape, each.dtype) for each in slopes)
    every: list[Any] = [None] * len(found)
    for i, each in zip(
        real, call(_TANGENT, (*given, *found, *slopes), (op, real, axis, reverse), outputs), strict=True
    ):
        every[i] = each
    return found, every


def _tangent(*given: Any) -> list[Any]:
    """Return the tangents of a scan, given its input, its result, and tangents of real leaves.

    As ``y[t] = fn(y[t - 1], x[t])``: ``dy[t] = L[t] dy[t - 1] + R[t] dx[t]``, where dy[0] = dx[0].
    """
    *arrays, op, real, axis, reverse = given
    number = (len(arrays) - len(real)) // 2
    wide = [
        each.astype(_within(each.dtype)) if jnp.issubdtype(each.dtype, jnp.inexact) else each
        for each in arrays
    ]
    xs, ys, slopes = wide[:number], wide[number : 2 * number], wide[2 * number :]
    fn, length = _by_items(op, xs[0].ndim), xs[0].shape[axis]

    def cut(x: Any, begin: int, end: int) -> Any:
        return jax.lax.slice_in_dim(x, begin, end, axis=axis)

    first, rest = ((length - 1, length), (0, length - 1)) if reverse else ((0, 1), (1, length))
    earlier = (1, length) if reverse else (0, length - 1)
    left, right = [cut(each, *earlier) for each in ys], [cut(each, *rest) for each in xs]

    def joined(head: Any, tail: Any) -> Any:
        return jnp.concatenate([tail, head] if reverse else [head, tail], axis)

    def by(side: list[Any], directions: Sequence[Any]) -> list[Any]:
        """Return the derivatives of real results in directions of the real leaves of one side."""

        def results(*values: Any) -> list[Any]:
            whole = list(side)
            for i, each in zip(real, values, strict=True):
                whole[i] = each
            found = fn(*whole, *right) if side is left else fn(*left, *whole)
            return [found[i] for i in real]

        found: list[Any] = jax.jvp(results, tuple(side[i] for i in real), tuple(directions))[1]
        return found

    inner = by(right, [cut(each, *rest) for each in slopes])
    vector = [joined(cut(each, *first), tail) for each, tail in zip(slopes, inner, strict=True)]
    columns = []
    for k in range(len(real)):
        unit = [(jnp.ones_like if j == k else jnp.zeros_like)(left[i]) for j, i in enumerate(real)]
        columns.append(
            [
                joined(jnp.zeros_like(cut(slopes[0], *first)).astype(each.dtype), each)
                for each in by(left, unit)
            ]
        )
    known = _pattern(op, [each.dtype for each in xs], real)
    every = range(len(real))
    if all(i == j or not known[i][j] for i in every for j in every):
        found = [recurrence(axis, reverse, columns[i][i], vector[i]) for i in every]
    else:
        matrix = [columns[j][i] for i in every for j in every]
        found = _affine([*matrix, *vector], axis, reverse)
    return [each.astype(arrays[i].dtype) for i, each in zip(real, found, strict=True)]


def _by_items(op: Any, ndim: int) -> Callable[..., list[Any]]:
    """Return an operator as a function of arrays of some dimensions."""
    fn: Callable[..., list[Any]] = op.fn
    for _ in range(ndim):
        fn = jax.vmap(fn)
    return fn


def _pattern(op: Any, dtypes: Sequence[Any], real: Sequence[int]) -> list[list[bool]]:
    """Return which results, of rows, have a derivative by which values of earlier items."""
    fn = op.fn

    def slopes(*given: Any) -> list[Any]:
        def results(*values: Any) -> list[Any]:
            whole = list(given)
            for i, each in zip(real, values, strict=True):
                whole[i] = each
            found = fn(*whole)
            return [found[i] for i in real]

        values = tuple(given[i] for i in real)
        units = [[(jnp.ones_like if i == j else jnp.zeros_like)(given[i]) for i in real] for j in real]
        return [each for unit in units for each in jax.jvp(results, values, tuple(unit))[1]]

    scalars = [jax.ShapeDtypeStruct((), each) for each in dtypes]
    traced = jax.make_jaxpr(slopes)(*scalars, *scalars).jaxpr
    zero = [hasattr(each, "val") and not np.any(each.val) for each in traced.outvars]
    return [[not zero[j * len(real) + i] for j in range(len(real))] for i in range(len(real))]


_SCAN = Function("associative_scan", _body, along, jvp=_jvp)
_TANGENT = Function("the tangent of associative_scan", None, composed=_tangent)

# --- Recurrences with matrices -----------------------------------------------------------------------------

# g[t] = m[t] @ g[t - 1] + v[t], given the items of matrices, row by row, and of vectors.


def _size(arrays: Sequence[Any]) -> int:
    """Return the length of the vectors that are given with their matrices."""
    return math.isqrt(len(arrays))  # n * n + n


def _affine(arrays: Sequence[Any], axis: int, reverse: bool) -> list[Any]:
    n = _size(arrays)
    if n > 3:
        raise TypeError(f"xs: expected up to 3 arrays for a derivative, as those of {n} depend on each other")
    return call(_AFFINE, arrays, (axis, reverse), tuple((each.shape, each.dtype) for each in arrays[n * n :]))


def _affine_composed(*given: Any) -> list[Any]:
    *arrays, axis, reverse = given
    n = _size(arrays)

    def composed(left: Any, right: Any) -> Any:
        (a, x), (b, y) = left, right
        product = [sum(b[n * i + k] * a[n * k + j] for k in range(n)) for i in range(n) for j in range(n)]
        return product, [y[i] + sum(b[n * i + k] * x[k] for k in range(n)) for i in range(n)]

    xs = arrays[: n * n], arrays[n * n :]
    found: list[Any] = associative_scan(composed, xs, axis=axis, reverse=reverse)[1]
    return found


def _affine_jvp(given: Sequence[Any], tangents: Sequence[Any], axis: int, reverse: bool) -> Any:
    n = _size(given)
    found = _affine(given, axis, reverse)
    before = [shifted(each, axis, None, reverse) for each in found]
    vector = [
        jnp.zeros_like(x) if each is None else each for x, each in zip(found, tangents[n * n :], strict=True)
    ]
    for i, j in np.ndindex(n, n):
        if (slope := tangents[n * i + j]) is not None:
            vector[i] = vector[i] + slope * before[j]
    return found, _affine([*given[: n * n], *vector], axis, reverse)


def _affine_transposed(slopes: Sequence[Any], given: Sequence[Any], axis: int, reverse: bool) -> Any:
    n = len(slopes)
    turned = [shifted(given[n * j + i], axis, None, not reverse) for i, j in np.ndindex(n, n)]
    return [*[None] * n * n, *_affine([*turned, *slopes], axis, not reverse)]


_AFFINE = Function(
    "the tangent of associative_scan",
    None,
    composed=_affine_composed,
    jvp=_affine_jvp,
    transpose=_affine_transposed,
)
