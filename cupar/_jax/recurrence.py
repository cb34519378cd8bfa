"""Linear recurrences and their derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from .._functions.axes import axis_of
from .._functions.calls import Operand, Work
from .._functions.recurrences import recurrence_gradients
from .._functions.scans import _linear_recurrence
from .._functions.values import flag
from .primitive import Dim, Function, along, call, numbers


def shifted(x: jax.Array, axis: int, first: jax.Array | None, reverse: bool) -> jax.Array:
    """Return the item before each along an axis; `first`, or 0, comes before the first one."""
    length = x.shape[axis]
    if first is None:
        first = jnp.zeros_like(jax.lax.slice_in_dim(x, 0, 1, axis=axis))
    rest = (
        jax.lax.slice_in_dim(x, 1, length, axis=axis)
        if reverse
        else jax.lax.slice_in_dim(x, 0, length - 1, axis=axis)
    )
    return jnp.concatenate([rest, first] if reverse else [first, rest], axis)


# --- The recurrence -------------------------------------------------------------------------------------


def _body(work: Work, *given: Any) -> Sequence[Operand]:
    *operands, axis, reverse = given
    a, b, *before = operands
    return [_linear_recurrence(work, a, b, before[0] if before else None, None, axis, reverse, None)]


def _jvp(given: Sequence[Any], tangents: Sequence[Any], axis: int, reverse: bool) -> Any:
    (a, b, *before), (da, db, *dbefore) = given, tangents
    h = recurrence(axis, reverse, *given)
    if not h.size:
        return [h], [None]
    db = jnp.zeros_like(b) if db is None else db
    if da is None:
        return [h], [recurrence(axis, reverse, a, db, *(each for each in dbefore if each is not None))]
    dbefore = [jnp.zeros_like(before[0]) if each is None else each for each in dbefore]
    slope = call(_TANGENT, (a, h, da, db, *before, *dbefore), (axis, reverse), ((h.shape, h.dtype),))
    return [h], slope


def _transposed(slopes: Sequence[Any], given: Sequence[Any], axis: int, reverse: bool) -> Any:
    """Return the cotangents of `b` and of the initial value, in which a recurrence is linear."""
    a, _, *before = given
    of_b = recurrence(axis, not reverse, shifted(a, axis, None, not reverse), slopes[0])
    return [None, of_b, *[_of_first(axis, reverse, a, of_b) for _ in before]]


def _of_first(axis: int, reverse: bool, *arrays: jax.Array) -> jax.Array:
    """Return the products of the first items of rows."""
    at = arrays[0].shape[axis] - 1 if reverse else 0
    one, other = [jax.lax.index_in_dim(each, at, axis, keepdims=False) for each in arrays]
    return one * other


_RECURRENCE = Function("linear_recurrence", _body, along, jvp=_jvp, transpose=_transposed)


def recurrence(axis: int, reverse: bool, *arrays: jax.Array) -> jax.Array:
    """Return the recurrence of `a`, `b` and optionally the values before the rows."""
    b = arrays[1]
    return call(_RECURRENCE, arrays, (axis, reverse), ((b.shape, b.dtype),))[0]


# --- Its tangent, which is linear, and the transpose of that: the gradient --------------------------------


def _tangent(*given: Any) -> Sequence[jax.Array]:
    a, h, da, db, *firsts, axis, reverse = given
    before, dbefore = (firsts[:1], firsts[1:]) if firsts else ([], [])
    first = jnp.expand_dims(before[0], axis) if before else None
    return [recurrence(axis, reverse, a, db + da * shifted(h, axis, first, reverse), *dbefore)]


def _tangent_transposed(slopes: Sequence[Any], given: Sequence[Any], axis: int, reverse: bool) -> Any:
    a, h, _, _, *firsts = given
    before = firsts[:1]
    outputs = tuple((each.shape, each.dtype) for each in (a, a, *before))
    of_a, of_b, *of_first = call(_GRADIENTS, (a, h, slopes[0], *before), (axis, reverse), outputs)
    return [None, None, of_a, of_b, *(None for _ in before), *of_first]


def _gradients_body(work: Work, *given: Any) -> Sequence[Operand]:
    *operands, axis, reverse = given
    a, h, dh, *before = operands
    none = None, None, None
    found = recurrence_gradients(work, a, h, dh, before[0] if before else None, axis, reverse, none)
    return [each for each in found if each is not None]


def _gradients_composed(*given: Any) -> Sequence[jax.Array]:
    a, h, dh, *before, axis, reverse = given
    of_b = recurrence(axis, not reverse, shifted(a, axis, None, not reverse), dh)
    first = jnp.expand_dims(before[0], axis) if before else None
    of_a = of_b * shifted(h, axis, first, reverse)
    return [of_a, of_b, *[_of_first(axis, reverse, a, of_b) for _ in before]]


_TANGENT = Function(
    "the tangent of linear_recurrence",
    None,
    composed=_tangent,
    transpose=_tangent_transposed,
)
_GRADIENTS = Function(
    "the gradient of linear_recurrence",
    _gradients_body,
    along,
    composed=_gradients_composed,
)


def linear_recurrence(
    a: ArrayLike, b: ArrayLike, *, axis: int = -1, initial: ArrayLike | None = None, reverse: bool = False
) -> jax.Array:
    """Return h with ``h[t] = a[t] * h[t - 1] + b[t]`` along an axis.

    Parameters
    ----------
    a, b : arrays
        Of numbers; broadcast to one shape, and promoted to one dtype. float16 and bfloat16 are combined in
        float32.
    axis : int, optional
    initial : array, optional
        What comes before the first item of each row, of the shape of the result without the axis or
        broadcast to that. Without it, ``h[0]`` is ``b[0]``, whatever ``a[0]`` is.
    reverse : bool, optional
        Whether ``h[t] = a[t] * h[t + 1] + b[t]``.

    Returns
    -------
    array

    Raises
    ------
    TypeError, ValueError
        If an argument is not one of these.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from cupar.jax import linear_recurrence
    >>> a, b = jnp.full(3, 0.5), jnp.ones(3)
    >>> linear_recurrence(a, b)
    Array([1.  , 1.5 , 1.75], dtype=float32)
    >>> jax.grad(lambda b: linear_recurrence(a, b).sum())(b)
    Array([1.75, 1.5 , 1.  ], dtype=float32)
    """
    a, b = jnp.broadcast_arrays(*_promoted(a, b))
    at, reverse = Dim(axis_of(axis, b.ndim)), flag("reverse", reverse)
    if initial is None:
        return recurrence(at, reverse, a, b)
    shape = b.shape[:at] + b.shape[at + 1 :]
    given = jnp.asarray(initial).dtype
    for kind in (jnp.complexfloating, jnp.inexact):
        if jnp.issubdtype(given, kind) and not jnp.issubdtype(b.dtype, kind):
            raise TypeError(f"initial: expected what {b.dtype} holds, as `a` and `b` are, got {given}")
    try:
        before = jnp.broadcast_to(jnp.asarray(initial, b.dtype), shape)
    except (TypeError, ValueError):
        raise ValueError(
            f"initial: expected shape {shape}, or one that is broadcast to it, got {jnp.shape(initial)}"
        ) from None
    return recurrence(at, reverse, a, b, before)


def _promoted(*given: Any) -> list[jax.Array]:
    arrays = [numbers(name, each) for name, each in zip("ab", given, strict=True)]
    dtype = jnp.result_type(*arrays)
    if dtype == jnp.bool_:
        raise TypeError("b: expected numbers, got bool")
    return [each.astype(dtype) for each in arrays]
