"""Linear recurrences and their derivative, which is one from the other end."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from .._functions.axes import axis_of
from .._functions.calls import Operand
from .._functions.scans import _linear_recurrence
from .primitive import Function, call
from .program import Recorder


def _body(work: Recorder, *given: Any) -> Sequence[Operand]:
    *operands, axis, reverse = given
    a, b, *before = operands
    return [_linear_recurrence(work, a, b, before[0] if before else None, None, axis, reverse, None)]


_RECURRENCE = Function("linear_recurrence", _body, lambda axis, reverse: (axis + 1, reverse))


def linear_recurrence(
    a: jax.Array, b: jax.Array, *, axis: int = -1, initial: jax.Array | None = None, reverse: bool = False
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
        If an argument is none of these.

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
    at = axis_of(axis, b.ndim)
    if initial is None:
        return _recurrence(a, b, at, bool(reverse))
    shape = b.shape[:at] + b.shape[at + 1 :]
    try:
        before = jnp.broadcast_to(jnp.asarray(initial, b.dtype), shape)
    except (TypeError, ValueError):
        raise ValueError(
            f"initial: expected shape {shape}, or one that is broadcast to it, got {jnp.shape(initial)}"
        ) from None
    return _recurrence_after(a, b, before, at, bool(reverse))


def _promoted(*given: Any) -> list[jax.Array]:
    arrays = [jnp.asarray(each) for each in given]
    dtype = jnp.result_type(*arrays)
    if dtype == jnp.bool_:
        raise TypeError("b: expected numbers, got bool")
    return [each.astype(dtype) for each in arrays]


def _called(axis: int, reverse: bool, *arrays: jax.Array) -> jax.Array:
    b = arrays[1]
    return call(_RECURRENCE, arrays, (axis, reverse), ((b.shape, b.dtype),))[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _recurrence(a: jax.Array, b: jax.Array, axis: int, reverse: bool) -> jax.Array:
    return _called(axis, reverse, a, b)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _recurrence_after(a: jax.Array, b: jax.Array, before: jax.Array, axis: int, reverse: bool) -> jax.Array:
    return _called(axis, reverse, a, b, before)


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


def derivative(
    a: jax.Array, h: jax.Array, dh: jax.Array, before: jax.Array | None, axis: int, reverse: bool
) -> tuple[jax.Array, jax.Array]:
    """Return the cotangents of `a` and `b`, given that of `h`; the one place that knows how."""
    if not h.size:
        return jnp.zeros_like(a), dh
    db = _recurrence(shifted(a, axis, None, not reverse), dh, axis, not reverse)
    first = None if before is None else jnp.expand_dims(before, axis)
    return db * shifted(h, axis, first, reverse), db


def _forward(a: jax.Array, b: jax.Array, axis: int, reverse: bool) -> Any:
    h = _recurrence(a, b, axis, reverse)
    return h, (a, h)


def _backward(axis: int, reverse: bool, kept: Any, dh: jax.Array) -> Any:
    a, h = kept
    return derivative(a, h, dh, None, axis, reverse)


_recurrence.defvjp(_forward, _backward)


def _forward_after(a: jax.Array, b: jax.Array, before: jax.Array, axis: int, reverse: bool) -> Any:
    h = _recurrence_after(a, b, before, axis, reverse)
    return h, (a, h, before)


def _backward_after(axis: int, reverse: bool, kept: Any, dh: jax.Array) -> Any:
    a, h, before = kept
    da, db = derivative(a, h, dh, before, axis, reverse)
    if not h.size:
        return da, db, jnp.zeros_like(before)
    at = h.shape[axis] - 1 if reverse else 0
    first = [jax.lax.index_in_dim(each, at, axis, keepdims=False) for each in (a, db)]
    return da, db, first[0] * first[1]


_recurrence_after.defvjp(_forward_after, _backward_after)
