"""Linear recurrences and their derivatives."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from .._functions.axes import axis_of
from .._functions.calls import Operand
from .._functions.recurrences import _gradients
from .._functions.scans import _linear_recurrence
from .partition import Factors, rows
from .primitive import Function, call
from .program import Recorder


def _factors(inputs: Sequence[int], results: Sequence[int], axis: int, reverse: bool) -> Factors:
    return rows(axis, inputs, results)


def _body(work: Recorder, *given: Any) -> Sequence[Operand]:
    *operands, axis, reverse = given
    a, b, *before = operands
    return [_linear_recurrence(work, a, b, before[0] if before else None, None, axis, reverse, None)]


def _gradients_body(work: Recorder, *given: Any) -> Sequence[Operand]:
    *operands, axis, reverse = given
    a, h, dh, *before = operands
    none = None, None, None
    found = _gradients(work, a, h, dh, before[0] if before else None, axis, reverse, none)
    return [each for each in found if each is not None]


_GRADIENTS = Function(
    "the gradient of linear_recurrence", _gradients_body, lambda axis, reverse: (axis + 1, reverse), _factors
)
_RECURRENCE = Function("linear_recurrence", _body, lambda axis, reverse: (axis + 1, reverse), _factors)


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


def _composed(axis: int, reverse: bool, a: jax.Array, h: jax.Array, dh: jax.Array, *before: jax.Array) -> Any:
    """Return the cotangents of what a recurrence is given, made of another one: to differentiate them."""
    db = _recurrence(shifted(a, axis, None, not reverse), dh, axis, not reverse)
    first = jnp.expand_dims(before[0], axis) if before else None
    da = db * shifted(h, axis, first, reverse)
    if not before:
        return da, db
    at = h.shape[axis] - 1 if reverse else 0
    of_first = [jax.lax.index_in_dim(each, at, axis, keepdims=False) for each in (a, db)]
    return da, db, of_first[0] * of_first[1]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _cotangents(
    axis: int, reverse: bool, a: jax.Array, h: jax.Array, dh: jax.Array, *before: jax.Array
) -> Any:
    """Return the same in one pass."""
    if not h.size:
        return (a, dh, *[jnp.zeros_like(each) for each in before])
    outputs = tuple((each.shape, each.dtype) for each in (a, dh, *before))
    return tuple(call(_GRADIENTS, (a, h, dh, *before), (axis, reverse), outputs))


def _cotangents_forward(axis: int, reverse: bool, *given: jax.Array) -> Any:
    return _cotangents(axis, reverse, *given), given


def _cotangents_backward(axis: int, reverse: bool, given: Any, slopes: Any) -> Any:
    return jax.vjp(functools.partial(_composed, axis, reverse), *given)[1](slopes)


_cotangents.defvjp(_cotangents_forward, _cotangents_backward)


def _forward(a: jax.Array, b: jax.Array, axis: int, reverse: bool) -> Any:
    h = _recurrence(a, b, axis, reverse)
    return h, (a, h)


def _backward(axis: int, reverse: bool, kept: Any, dh: jax.Array) -> Any:
    return _cotangents(axis, reverse, *kept, dh)


_recurrence.defvjp(_forward, _backward)


def _forward_after(a: jax.Array, b: jax.Array, before: jax.Array, axis: int, reverse: bool) -> Any:
    h = _recurrence_after(a, b, before, axis, reverse)
    return h, (a, h, before)


def _backward_after(axis: int, reverse: bool, kept: Any, dh: jax.Array) -> Any:
    a, h, before = kept
    return _cotangents(axis, reverse, a, h, dh, before)


_recurrence_after.defvjp(_forward_after, _backward_after)
