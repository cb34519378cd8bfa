"""Linear recurrences in JAX's programs, against loops and lax."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy

from cupar.jax import linear_recurrence  # noqa: E402


def loop(a, b, axis=-1, initial=None, reverse=False):
    a, b = (np.moveaxis(np.asarray(each, np.float64), axis, 0) for each in (a, b))
    h, before = np.zeros_like(b), 0.0 if initial is None else np.asarray(initial, np.float64)
    for t in range(len(b))[:: -1 if reverse else 1]:
        h[t] = before = a[t] * before + b[t]
    return np.moveaxis(h, 0, axis)


def of_lax(a, b, axis, initial, reverse):
    """The same with lax.scan, which has a derivative."""
    a, b = (jnp.moveaxis(each, axis, 0) for each in (a, b))

    def step(before, each):
        h = each[0] * before + each[1]
        return h, h

    found = jax.lax.scan(step, initial, (a, b), reverse=reverse)[1]
    return jnp.moveaxis(found, 0, axis)


@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_are_those_of_lax(reverse, rng):
    a, b, w = (rng.random((5, 40), np.float32) for _ in range(3))
    before = rng.random(5, np.float32)

    def total(function):
        def of(a, b, before):
            return (jnp.sin(function(a, b, 1, before, reverse)) * w).sum()

        return jax.jit(jax.grad(of, (0, 1, 2)))(a, b, before)

    mine = total(lambda a, b, axis, h, r: linear_recurrence(a, b, axis=axis, initial=h, reverse=r))
    for found, expected in zip(mine, total(of_lax), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_second_derivatives(rng):
    a, b, w = (jnp.asarray(rng.random((2, 9), np.float32)) for _ in range(3))

    def curved(function):
        slope = jax.grad(lambda a: (function(a, b) ** 2 * w).sum())
        return jax.jit(jax.grad(lambda a: (slope(a) * w).sum()))(a)

    zero = jnp.zeros(2)
    np.testing.assert_allclose(
        curved(linear_recurrence), curved(lambda a, b: of_lax(a, b, 1, zero, False)), rtol=1e-3
    )


@pytest.mark.parametrize("which", [(0,), (1,), (2,), (0, 1, 2)])
def test_tangents_are_those_of_lax(which, rng):
    given = [jnp.asarray(rng.random(shape, np.float32)) for shape in ((5, 9), (5, 9), (5,))]
    directions = tuple(jnp.asarray(rng.random(given[i].shape, np.float32)) for i in which)

    def tangent(function):
        def of(*some):
            whole = list(given)
            for i, each in zip(which, some, strict=True):
                whole[i] = each
            return function(*whole)

        values = tuple(given[i] for i in which)
        twice = jax.jvp(lambda *v: jax.jvp(of, v, directions)[1], values, directions)
        return jax.jvp(of, values, directions), twice, jax.linearize(of, *values)[1](*directions)

    mine = tangent(lambda a, b, h: linear_recurrence(a, b, axis=1, initial=h, reverse=True))
    theirs = tangent(lambda a, b, h: of_lax(a, b, 1, h, True))
    for found, expected in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_forward_over_reverse(rng):
    a, b = (jnp.asarray(rng.random((2, 6), np.float32)) for _ in range(2))

    def hessian(function):
        return jax.jit(jax.hessian(lambda a: (function(a, b) ** 2).sum()))(a)

    expected = hessian(lambda a, b: of_lax(a, b, 1, jnp.zeros(2), False))
    np.testing.assert_allclose(hessian(linear_recurrence), expected, rtol=1e-3, atol=1e-4)


def test_a_batch_is_rows(rng):
    a, b = (rng.random((3, 4, 5), np.float32) for _ in range(2))
    np.testing.assert_allclose(jax.vmap(linear_recurrence)(a, b), loop(a, b), rtol=1e-5)
    found = jax.vmap(linear_recurrence, (None, 1), 1)(a[:, 0], b)
    np.testing.assert_allclose(found, loop(np.broadcast_to(a[:, :1], b.shape), b), rtol=1e-5)
    slopes = jax.vmap(jax.grad(lambda a, b: linear_recurrence(a, b).sum()))(a, b)
    expected = jax.grad(lambda a: of_lax(a, b, 2, jnp.zeros((3, 4)), False).sum())(a)
    np.testing.assert_allclose(slopes, expected, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["bfloat16", "complex64"])
def test_dtypes(dtype):
    a = jnp.asarray([[1, 2, 1], [0, 1, 2]], dtype)
    b = jnp.asarray([[1, 1, 3], [2, 2, 1]], dtype)
    found = linear_recurrence(a, b, initial=1)
    assert found.dtype == dtype
    assert np.asarray(found).real.tolist() == [[2, 5, 8], [2, 4, 9]]


def test_without_jit(rng):
    a = rng.random((2, 3), np.float32)
    with jax.disable_jit():
        found = linear_recurrence(a, a)
    np.testing.assert_allclose(found, loop(a, a), rtol=1e-6)


def test_what_it_refuses(rng):
    x = jnp.ones((3, 4))
    with pytest.raises(ValueError, match="axis: expected from -2 to 1"):
        linear_recurrence(x, x, axis=2)
    with pytest.raises(ValueError, match=r"initial: expected shape \(3,\)"):
        linear_recurrence(x, x, initial=jnp.ones(2))
    for items, initial in ((x, 1j), (x.astype(int), 0.5)):
        with pytest.raises(TypeError, match=r"initial: expected what \w+ holds, .* got (complex|float)"):
            linear_recurrence(items, items, initial=initial)
    with pytest.raises(TypeError, match="b: expected numbers, got bool"):
        linear_recurrence(x > 0, x > 0)
    from jax import export

    any_length = jax.ShapeDtypeStruct(export.symbolic_shape("n, 4"), np.float32)
    with pytest.raises(TypeError, match=r"linear_recurrence: expected shapes that are known .* got \(n, 4\)"):
        export.export(jax.jit(linear_recurrence))(any_length, any_length)
