"""Programs of any small shape and axis, against loops in NumPy."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from cupar.jax import associative_scan, linear_recurrence, segment_sum  # noqa: E402


@st.composite
def problems(draw):
    shape = tuple(draw(st.lists(st.integers(0, 5), min_size=1, max_size=3)))
    return (
        shape,
        draw(st.integers(-len(shape), len(shape) - 1)),
        draw(st.booleans()),
        draw(st.integers(0, 99)),
    )


def loop(a, b, axis, before, reverse):
    a, b = (np.moveaxis(each, axis, 0) for each in (a, b))
    h = np.zeros_like(b)
    for t in range(len(b))[:: -1 if reverse else 1]:
        h[t] = before = a[t] * before + b[t]
    return np.moveaxis(h, 0, axis)


@settings(max_examples=5, deadline=None, derandomize=True)
@given(problems())
def test_scans_of_any_shape(problem):
    shape, axis, reverse, seed = problem
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-2, 3, shape).astype(np.float32) for _ in range(2))
    before = rng.integers(-2, 3, np.delete(shape, axis)).astype(np.float32)
    found = jax.jit(lambda a, b, h: linear_recurrence(a, b, axis=axis, initial=h, reverse=reverse))(
        a, b, before
    )
    np.testing.assert_array_equal(found, loop(a, b, axis, before, reverse))
    most = associative_scan(jax.numpy.maximum, b, axis=axis, reverse=reverse)
    turned = np.flip(b, axis) if reverse else b
    expected = np.maximum.accumulate(turned, axis)
    np.testing.assert_array_equal(most, np.flip(expected, axis) if reverse else expected)


@settings(max_examples=3, deadline=None, derandomize=True)
@given(st.integers(0, 9), st.integers(0, 4), st.integers(0, 3), st.integers(0, 99))
def test_sums_of_any_segments(size, number, inner, seed):
    rng = np.random.default_rng(seed)
    data, ids = rng.integers(0, 9, (size, inner)).astype(np.int32), rng.integers(-2, 6, size).astype(np.int32)
    expected = np.zeros((number, inner), np.int32)
    for row, i in zip(data, ids, strict=True):
        if 0 <= i < number:
            expected[i] += row
    np.testing.assert_array_equal(segment_sum(data, ids, number), expected)
