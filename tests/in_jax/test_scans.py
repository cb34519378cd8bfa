"""Scans with operators that are written with jnp, against lax.associative_scan."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy

from cupar._jax.traced import operator  # noqa: E402
from cupar.jax import associative_scan  # noqa: E402


def pairs(left, right):
    return left[0] * right[0], right[0] * left[1] + right[1]


def from_flags(left, right):
    """Sums that begin anew where a flag is."""
    return left[0] | right[0], jnp.where(right[0] == 1, right[1], left[1] + right[1])


def logarithms(left, right):
    return {"a": left["a"] + right["a"], "b": jnp.logaddexp(left["b"], right["b"])}


def turned(left, right):
    return left[0] * right[0] - left[1] * right[1], left[0] * right[1] + left[1] * right[0]


def make(rng, shape):
    x, y = (jnp.asarray(rng.random(shape, np.float32)) for _ in range(2))
    return {
        "maximum": (jnp.maximum, x),
        "flags": (from_flags, ((x > 0.7).astype(np.int32), y)),
        "a tree": (logarithms, {"a": x, "b": y}),
        "coupled": (turned, (x * 0.5 + 0.5, y * 0.2)),
    }


@pytest.mark.parametrize("which", ["maximum", "flags", "a tree", "coupled"])
def test_values_and_gradients_are_those_of_lax(which, rng):
    reverse = which in ("flags", "coupled")
    fn, xs = make(rng, (2, 5))[which]

    def total(scan, xs):
        found = scan(fn, xs, axis=1, reverse=reverse)
        return sum(jnp.sin(each).sum() for each in jax.tree.leaves(found) if each.dtype == np.float32), found

    results = [
        jax.jit(jax.value_and_grad(lambda xs, scan=scan: total(scan, xs), has_aux=True, allow_int=True))(xs)
        for scan in (associative_scan, jax.lax.associative_scan)
    ]
    mine, theirs = (jax.tree.leaves(each) for each in results)
    for found, expected in zip(mine, theirs, strict=True):
        if found.dtype != jax.dtypes.float0:
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("which", ["maximum", "flags", "a tree", "coupled"])
def test_tangents_are_those_of_lax(which, rng):
    fn, xs = make(rng, (2, 3))[which]
    floats, tree = jax.tree.flatten(xs)
    real = [i for i, each in enumerate(floats) if each.dtype == np.float32]

    def tangents(scan):
        def of(*values):
            whole = list(floats)
            for i, each in zip(real, values, strict=True):
                whole[i] = each
            found = jax.tree.leaves(scan(fn, jax.tree.unflatten(tree, whole), axis=1))
            return [jnp.sin(found[i]) for i in real]

        values = tuple(floats[i] for i in real)
        first = jax.jvp(of, values, values)
        through = jax.grad(lambda *v: sum(each.sum() for each in jax.jvp(of, v, values)[1]))(*values)
        return first, through, jax.vmap(lambda s: jax.jvp(of, values, (s,) * len(real))[1])(jnp.stack(values))

    mine, theirs = (
        jax.jit(tangents, static_argnums=0)(each) for each in (associative_scan, jax.lax.associative_scan)
    )
    for found, expected in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("older_are_frozen")  # among all objects leaks are looked for
def test_a_derivative_of_its_own_is_that_of_the_function():
    """Two functions that do the same may have different ones."""
    x = jnp.asarray([1.0, 2.0, 3.0])
    with jax.checking_leaks():
        jax.jit(jax.grad(lambda x: associative_scan(jnp.logaddexp, x).sum()))(x)
    zero = jax.custom_jvp(lambda a, b: a + b)
    zero.defjvp(lambda given, slopes: (given[0] + given[1], 0 * slopes[0]))
    for fn, expected in ((lambda a, b: a + b, 3), (zero, 1), (lambda a, b: a + b, 3)):
        assert jax.grad(lambda x, fn=fn: associative_scan(fn, x).sum())(x)[0] == expected


def test_float16_is_combined_in_float32():
    x = jnp.full(3000, 0.1, np.float16)
    found = associative_scan(jnp.add, x)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found[-1], 3000 * float(x[0]), rtol=1e-3)


def test_a_batch_is_rows(rng):
    x = jnp.asarray(rng.random((3, 9), np.float32))
    found = jax.vmap(lambda x: associative_scan(jnp.maximum, x))(x)
    np.testing.assert_array_equal(found, np.maximum.accumulate(np.asarray(x), 1))


FLOATS = {
    "arithmetic": lambda a, b: (a - b) * a / (b + 2) - (-a),
    "powers": lambda a, b: a**3 + b**-2 + jnp.power(a + 1, b) + jnp.sqrt(a) + jax.lax.rsqrt(b) + jnp.cbrt(a),
    "exponentials": lambda a, b: jnp.exp(a) + jnp.exp2(b) + jnp.expm1(a) + jnp.log(b) + jnp.log1p(a),
    "circles": lambda a, b: (
        jnp.sin(a) + jnp.cos(b) + jnp.tan(a) + jnp.arcsin(a) + jnp.arccos(b) + jnp.arctan2(a, b)
    ),
    "hyperbolas": lambda a, b: (
        jnp.sinh(a) + jnp.cosh(b) + jnp.tanh(a) + jnp.arcsinh(b) + jnp.arctanh(a) + jnp.arccosh(b + 1)
    ),
    "functions": lambda a, b: (
        jax.nn.sigmoid(a)
        + jax.lax.erf(b)
        + jax.lax.erfc(a)
        + jax.nn.relu(b)
        + jax.nn.softplus(a)
        + jax.lax.lgamma(b)
    ),
    "rounded": lambda a, b: (
        jnp.floor(3 * a) + jnp.ceil(3 * b) + jnp.round(5 * a) + jnp.sign(a - b) + jnp.fmod(a, b)
    ),
    "choices": lambda a, b: jnp.where(
        (a > b) & ~(a == 1) | (b != a), jnp.clip(a, 0.2, 0.6), jnp.minimum(abs(a), b)
    ),
    "converted": lambda a, b: (3 * a).astype(jnp.int32).astype(jnp.float32) + jnp.isfinite(b) + (a >= b),
    "infinite": lambda a, b: jnp.round(a / (b - b)) + jax.checkpoint(jnp.tanh)(b),
    "constants": lambda a, b: a * np.float32(0.1) + jnp.pi * b + jnp.asarray(2.5, jnp.float32),
}
INTEGERS = {
    "arithmetic": lambda a, b: a * b - (-a) + abs(b) ** 2 + jnp.sign(a),
    "divisions": lambda a, b: jax.lax.div(a, b) * 100 + jax.lax.rem(a, b) + a // b + a % b,
    "powers": lambda a, b: a**9 + b**31,
    "bits": lambda a, b: (a & b) ^ (~a | (b << 2)),
    "choices": lambda a, b: jax.lax.select_n(jnp.clip(a, 0, 2), b, a, jnp.maximum(a, b)) + jnp.minimum(a, 3),
}


def check(fn, dtype, left, right):
    op = operator(lambda a, b: [fn(a, b)], [np.dtype(dtype)]).op
    for a, b in zip(left, right, strict=True):
        expected, found = (
            fn(jnp.asarray(a, dtype), jnp.asarray(b, dtype)),
            op(np.dtype(dtype).type(a), np.dtype(dtype).type(b)),
        )
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", FLOATS)
def test_primitives_of_floats(name):
    check(FLOATS[name], np.float32, [0.3, 0.9, 0.5, 0.11], [0.4, 0.2, 0.5, 0.97])


@pytest.mark.parametrize("name", INTEGERS)
def test_primitives_of_integers(name):
    check(INTEGERS[name], np.int32, [7, -7, 7, -7, 0], [3, 3, -3, -3, 5])


def test_what_wraps_around_does_under_numba():
    x = jnp.asarray([2**30, 2**30, 2**30, 5], jnp.int32)
    assert (
        associative_scan(lambda a, b: a + b, x).tolist() == np.cumsum(np.asarray(x), dtype=np.int32).tolist()
    )


def test_what_it_refuses():
    x = jnp.ones((2, 3))
    with pytest.raises(
        TypeError, match="uses jax.lax's `erf_inv` of .*: it takes arithmetic.*cupar.jax.call"
    ):
        associative_scan(lambda a, b: jax.lax.erf_inv(a + b), x)
    with pytest.raises(TypeError, match="uses jax.lax's `scan` of"):  # whose body is not called once
        associative_scan(lambda a, b: jax.lax.fori_loop(0, 3, lambda i, c: c + b, a), x)
    with pytest.raises(TypeError, match="it reads an array of the function around it"):
        associative_scan(lambda a, b: (a + b * x).sum(), x)
    with pytest.raises(TypeError, match=r"fn: expected float32\[\] for leaf 0 of the result.* got bool"):
        associative_scan(lambda a, b: a > b, x)
    with pytest.raises(TypeError, match="fn: it asks for a number .* jnp.maximum"):
        associative_scan(max, jnp.arange(3.0))
    with pytest.raises(TypeError, match="fn: it asks for a number .* functions of NumPy"):
        associative_scan(np.add, jnp.arange(3.0))
    with pytest.raises(TypeError, match="fn: of two values.* it raised TypeError: .* argument: 'c'"):
        associative_scan(lambda a, b, c: a, x)
    with pytest.raises(TypeError, match="it raised ValueError: matmul .* takes functions of whole arrays"):
        associative_scan(jnp.matmul, jnp.ones((4, 2, 2)))
    with pytest.raises(TypeError, match="fn: expected a function that is written with jnp, got 'max'"):
        associative_scan("max", x)
    with pytest.raises(TypeError, match="xs: expected numbers, got key<"):
        associative_scan(jnp.add, jax.random.split(jax.random.key(0)))
    with pytest.raises(TypeError, match="fn: expected a result of the structure of xs"):
        associative_scan(lambda a, b: (a, b), x)
    with pytest.raises(
        ValueError, match=r"xs: expected arrays of one shape, \(2, 3\), got \(3,\) for leaf 1"
    ):
        associative_scan(pairs, (x, x[0]))
