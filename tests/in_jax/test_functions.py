"""Sorts, top-k, sums of segments and histograms in JAX's programs, against JAX's own."""

from functools import partial

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy

from cupar._jax import functions  # noqa: E402
from cupar.jax import (  # noqa: E402
    associative_scan,
    histogram,
    linear_recurrence,
    segment_sum,
    sort,
    top_k,
)


@pytest.fixture
def x(rng):
    return jnp.asarray(rng.standard_normal((3, 4, 5), np.float32))


@pytest.mark.parametrize("axis", [1, 2])
def test_sorts(x, axis):
    assert (jax.jit(lambda x: sort(x, axis=axis))(x) == jnp.sort(x, axis=axis)).all()
    found = sort(x.at[0, 0].set(np.nan), axis=axis, descending=True)
    np.testing.assert_array_equal(found, jnp.sort(x.at[0, 0].set(np.nan), axis=axis, descending=True))


def test_gradients_of_sorts(x):
    w = jnp.arange(60.0).reshape(3, 4, 5)
    mine, theirs = (jax.jit(jax.grad(lambda x, f=f: (f(x, axis=1) * w).sum()))(x) for f in (sort, jnp.sort))
    np.testing.assert_array_equal(mine, theirs)


def test_the_first_items(x):
    (values, places), (expected, where) = top_k(x, 2), jax.lax.top_k(x, 2)
    assert (values == expected).all()
    assert (places == where).all()
    assert places.dtype == np.int32
    slopes = [jax.jit(jax.grad(lambda x, f=f: (f(x, 2)[0] ** 2).sum()))(x) for f in (top_k, jax.lax.top_k)]
    np.testing.assert_array_equal(*slopes)
    along = jax.vmap(lambda x: top_k(x, 2, axis=0)[0])(x)
    assert (along == -jnp.sort(-x, axis=1)[:, :2]).all()


@pytest.fixture
def x64():
    enable = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64  # in JAX 0.7
    with enable(True):
        yield


LONG = jax.ShapeDtypeStruct((2**31 + 5,), np.int8)


of_long_axes = [lambda x: top_k(x, 3)[1], lambda x: histogram(x, 3, (0, 3))]


@pytest.mark.parametrize("places", of_long_axes)
def test_places_and_counts_of_more_items_than_int32_has_are_int64(places, x64):
    assert jax.eval_shape(places, LONG).dtype == np.int64
    assert jax.eval_shape(places, jax.ShapeDtypeStruct((2**31 - 1,), np.int8)).dtype == np.int32


@pytest.mark.parametrize("places", of_long_axes)
def test_places_and_counts_that_jax_has_no_dtype_for(places):
    with pytest.raises(ValueError, match=r"^x: expected at most 2\*\*31 - 1 items.*got 2147483653"):
        jax.eval_shape(places, LONG)
    slope = jax.ShapeDtypeStruct(LONG.shape, np.float16)
    with pytest.raises(ValueError, match=r"^x: expected at most 2\*\*31 - 1 items"):
        jax.eval_shape(lambda x: jax.jvp(sort, (x,), (x,)), slope)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_places_and_counts_of_both_dtypes(x, dtype, x64, monkeypatch):
    monkeypatch.setattr(functions, "_MOST", 0 if dtype == np.int64 else 99)
    places = top_k(x, 2)[1]
    assert places.dtype == dtype
    assert (places == jax.lax.top_k(x, 2)[1]).all()
    counts = histogram(x, 3, (-1, 1))
    assert counts.dtype == dtype
    assert counts.tolist() == np.histogram(x, 3, (-1, 1))[0].tolist()
    (mine, slope), (theirs, expected) = (jax.jvp(f, (x,), (2 * x,)) for f in (sort, jnp.sort))
    np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(slope, expected)


def test_derivatives_of_derivatives_of_a_sort(x):
    def loss(sort):
        return lambda x: (sort(x) ** 2 * jnp.arange(x.shape[-1])).sum()

    found, expected = (jax.jit(jax.jacrev(jax.grad(loss(each))))(x[0]) for each in (sort, jnp.sort))
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("shape", [(20,), (20, 3)])
def test_sums_of_segments(shape, rng):
    data, ids = jnp.asarray(rng.random(shape, np.float32)), jnp.asarray(rng.integers(-1, 6, 20))
    w = jnp.asarray(rng.random((5, *shape[1:]), np.float32))

    def total(function, data, ids):
        return (function(data, ids, 5) * w).sum()

    others = jnp.where(ids < 0, 99, ids)  # which wrap around there
    np.testing.assert_allclose(segment_sum(data, ids, 5), jax.ops.segment_sum(data, others, 5), rtol=1e-5)
    mine = jax.jit(jax.grad(lambda data: total(segment_sum, data, ids)))(data)
    theirs = jax.jit(jax.grad(lambda data: total(jax.ops.segment_sum, data, others)))(data)
    np.testing.assert_array_equal(mine, theirs)
    batch = jnp.stack([data, 2 * data]), jnp.stack([others, others[::-1]])
    found, expected = (
        jax.jit(jax.vmap(lambda d, i, f=f: f(d, i, 5)))(*batch) for f in (segment_sum, jax.ops.segment_sum)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_tangents(x, rng):
    ids = jnp.asarray(rng.integers(0, 5, 3))
    pairs = [
        (lambda x: sort(x, axis=1), lambda x: jnp.sort(x, axis=1)),
        (lambda x: top_k(x, 2)[0], lambda x: jax.lax.top_k(x, 2)[0]),
        (lambda x: segment_sum(x, ids, 4), lambda x: jax.ops.segment_sum(x, ids, 4)),
    ]
    direction = jnp.asarray(rng.standard_normal(x.shape, np.float32))
    for mine, its in pairs:
        found, expected = (
            jax.jit(lambda x, d, f=f: jax.jvp(lambda x: f(x) ** 2, (x,), (d,)))(x, direction)
            for f in (mine, its)
        )
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)
    mine, its = (
        jax.jit(jax.vmap(jax.grad(lambda x, f=f: (f(x) ** 2).sum())))(jnp.stack([x, -x])) for f in pairs[2]
    )
    np.testing.assert_allclose(mine, its, rtol=1e-5)


def test_nothing_to_sum():
    assert segment_sum(jnp.zeros(0), jnp.zeros(0, np.int32), 2).tolist() == [0, 0]
    assert segment_sum(jnp.zeros((3, 0)), jnp.zeros(3, np.int32), 2).shape == (2, 0)
    assert segment_sum(jnp.ones(3), jnp.zeros(3, np.int32), 0).shape == (0,)


def test_histograms(x):
    assert histogram(x, 8, (-2, 2)).tolist() == np.histogram(x, 8, (-2, 2))[0].tolist()
    found = jax.jit(jax.vmap(lambda x: histogram(x, [-1, 0, 0.5, 3])))(x)
    assert found.tolist() == [np.histogram(each, [-1, 0, 0.5, 3])[0].tolist() for each in x]
    batched = jax.jit(jax.vmap(jax.vmap(lambda x: histogram(x, 8, (-2, 2)))))
    assert "while" not in batched.lower(x).as_text()  # one call, not one for each
    expected = [[np.histogram(row, 8, (-2, 2))[0].tolist() for row in each] for each in x]
    assert batched(x).tolist() == expected
    assert batched(x[:, :, :0]).tolist() == np.zeros((*x.shape[:2], 8)).tolist()
    assert jax.grad(lambda x: x.sum() + histogram(x, 8, (-2, 2)).sum())(x).sum() == x.size


def test_what_it_refuses(x):
    with pytest.raises(ValueError, match="k: expected from 0 to 5, got 6"):
        top_k(x, 6)
    with pytest.raises(ValueError, match="range: expected two numbers"):
        histogram(x, 8)
    with pytest.raises(TypeError, match="segment_ids: expected integers, got float32"):
        segment_sum(x, x[:, 0, 0], 3)
    with pytest.raises(ValueError, match=r"segment_ids: expected shape \(3,\)"):
        segment_sum(x, jnp.zeros(4, np.int32), 3)
    with pytest.raises(TypeError, match="num_segments: expected an integer, known when it is traced"):
        jax.jit(segment_sum)(x, jnp.zeros(3, np.int32), 3)
    with pytest.raises(TypeError, match="x: expected real numbers, got complex64"):
        top_k(x.astype(np.complex64), 1)
    for name, call in {
        "descending": sort,
        "stable": sort,
        "largest": partial(top_k, k=1),
        "reverse": partial(linear_recurrence, b=x),
    }.items():
        with pytest.raises(TypeError, match=f"^{name}: expected True or False, got 'no'"):
            call(x, **{name: "no"})
    with pytest.raises(TypeError, match="^reverse: expected True or False, got 'no'"):
        associative_scan(jnp.add, x, reverse="no")
