"""Reductions by index, and histograms between levels, against NumPy's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.results import cp, needs_gpu

import cupar
from cupar import (
    CountingIterator,
    Determinism,
    OpKind,
    TransformIterator,
    TransformOutputIterator,
    ZipIterator,
)

SIZES = [0, 1, 33, 5000, 70_001]
# A column for each thread, for fewer threads, for each warp; several ranges, or the output itself.
BINS = [1, 7, 300, 3000, 40_000]


def add(a, b):
    return a + b


def larger(a, b):
    return a if a > b else b


def expected(ufunc, items, indices, bins, init):
    out = np.full(bins, init, items.dtype)
    index = indices.astype(np.int64)
    fits = (index >= 0) & (index < bins) & (indices.astype(np.uint64) < 2**63)
    ufunc.at(out, index[fits], items[fits])
    return out


def check(reduction, ufunc, items, indices, bins, init):
    out, h_init = cp.zeros(bins, items.dtype), np.full(1, init, items.dtype)
    given = cp.asarray(items), cp.asarray(indices), out, len(items), bins, h_init
    storage = cp.empty(max(reduction(None, *given), 1), "u1")
    storage[:] = 255  # what it begins with does not matter
    reduction(storage, *given)
    wanted = expected(ufunc, items, indices, bins, init)
    np.testing.assert_array_equal(out.get(), wanted)


NUMBERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
INTEGERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]
BETWEEN = [("i1", "i2"), ("u1", "f4"), ("i4", "f8"), ("u8", "u8")]
BETWEEN += [("f2", "f4"), ("f4", "f4"), ("f4", "f8"), ("f8", "f8")]


@pytest.mark.parametrize(("dtype", "index"), zip(NUMBERS, [*INTEGERS, *INTEGERS[:5]], strict=True))
def test_sums_of_each_dtype_by_each(dtype, index, rng):
    freely = cupar.reduce_by_index(
        dtype, index, dtype, OpKind.PLUS, np.zeros(1, dtype), determinism=Determinism.NOT_GUARANTEED
    )
    for n, bins in zip(SIZES, BINS, strict=True):
        info = np.iinfo(index)
        low, high = max(info.min, -3), min(info.max, bins + 3)
        indices = rng.integers(low, high, n, endpoint=True).astype(index)
        indices[: n // 9] = info.max
        items = rng.integers(0, 3, n, endpoint=True).astype(dtype)
        if dtype == "f2":  # so that sums are exact
            items[rng.random(n) < 0.97] = 0
        check(freely, np.add, items, indices, bins, 1)


@pytest.mark.parametrize(
    ("dtype", "op", "ufunc"),
    [
        ("i4", OpKind.MINIMUM, np.minimum),
        ("u8", OpKind.MAXIMUM, np.maximum),
        ("i8", OpKind.MINIMUM, np.minimum),
        ("i2", OpKind.BIT_XOR, np.bitwise_xor),
        ("u4", OpKind.BIT_AND, np.bitwise_and),
        ("f4", larger, np.maximum),
        ("f8", OpKind.MULTIPLIES, np.multiply),
        ("i4", add, np.add),
    ],
)
def test_operators_with_and_without_an_identity(dtype, op, ufunc, rng):
    reduction = cupar.reduce_by_index(dtype, "i4", dtype, op, np.zeros(1, dtype))
    for n in SIZES:
        for bins in BINS:
            items = rng.integers(1, 3 if op is OpKind.MULTIPLIES else 100, n).astype(dtype)
            indices = rng.integers(-2, bins + 2, n).astype("i4")
            if op is OpKind.MULTIPLIES:  # so that products stay exact
                items[rng.random(n) < 1 - 300 * bins / (n + 1)] = 1
            check(reduction, ufunc, items, indices, bins, 5)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(st.integers(-3, 8), st.integers(-9, 9)), max_size=40),
    st.integers(0, 7),
    st.integers(-2, 2),
)
def test_few_items_anywhere(pairs, bins, init):
    reduction = cupar.reduce_by_index("i4", "i8", "i4", OpKind.PLUS, np.zeros(1, "i4"))
    indices, items = np.array(pairs, "i8").reshape(-1, 2).T
    check(reduction, np.add, items.astype("i4"), np.ascontiguousarray(indices), bins, init)


@pytest.mark.parametrize("indices", ["one", "sorted", "none", "hot"])
def test_indices_that_meet(indices, rng):
    reduction = cupar.reduce_by_index("f4", "i4", "f4", OpKind.PLUS, np.zeros(1, "f4"))
    for bins in BINS:
        made = {
            "one": lambda n, bins=bins: np.full(n, bins // 2),
            "sorted": lambda n, bins=bins: np.sort(rng.integers(0, bins, n)),
            "none": lambda n: np.full(n, -1),
            "hot": lambda n, bins=bins: np.where(rng.random(n) < 0.9, 0, rng.integers(0, bins, n)),
        }[indices](100_003)
        check(reduction, np.add, rng.integers(0, 3, len(made)).astype("f4"), made.astype("i4"), bins, 0)


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_arrays_that_begin_anywhere(offset, rng):
    reduction = cupar.reduce_by_index("f4", "i4", "f4", OpKind.PLUS, np.zeros(1, "f4"))
    items, indices = rng.integers(0, 9, 50_003).astype("f4"), rng.integers(0, 50, 50_003).astype("i4")
    d_in, d_indices, out = cp.asarray(items), cp.asarray(indices), cp.zeros(50, "f4")
    for start in (0, offset):
        n = 50_000 - offset
        reduction.run(d_in[start:], d_indices[offset:], out, n, 50, np.zeros(1, "f4"))
        wanted = expected(np.add, items[start:][:n], indices[offset:][:n], 50, 0)
        np.testing.assert_array_equal(out.get(), wanted)


def test_floats_are_the_same_in_every_run(rng):
    items, indices = cp.asarray(rng.standard_normal(300_000).astype("f4")), rng.integers(0, 9999, 300_000)
    for bins in (5, 300, 9999):
        reduction = cupar.reduce_by_index("f4", "i4", "f4", OpKind.PLUS, np.zeros(1, "f4"))
        found, d_indices = set(), cp.asarray((indices % bins).astype("i4"))
        for _ in range(4):
            out = cp.zeros(bins, "f4")
            reduction.run(items, d_indices, out, 300_000, bins, np.zeros(1, "f4"))
            found.add(out.get().tobytes())
        assert len(found) == 1


def test_signs_of_zeros_are_those_of_a_sum():
    items, indices = cp.asarray(np.full(3, -0.0, "f4")), cp.asarray(np.array([0, 0, 2], "i4"))
    for init, signs in ((-0.0, [True] * 3), (0.0, [False] * 3)):
        out, h_init = cp.ones(3, "f4"), np.full(1, init, "f4")
        cupar.reduce_by_index(items, indices, out, OpKind.PLUS, h_init).run(items, indices, out, 3, 3, h_init)
        assert np.signbit(out.get()).tolist() == signs


def test_structs_and_iterators(rng):
    def sum_and_largest(a, b):
        return a[0] + b[0], max(a[1], b[1])

    n, bins = 20_001, 90
    x, y = rng.integers(0, 9, n).astype("i8"), rng.standard_normal(n).astype("f4")
    pairs = ZipIterator(cp.asarray(x), cp.asarray(y))
    sums, most = cp.zeros(bins, "i8"), cp.zeros(bins, "f4")
    out, init = ZipIterator(sums, most), np.zeros(1, pairs.dtype)
    thirds = TransformIterator(CountingIterator(np.int64(0)), lambda i: i // 3 % 100)
    by_index = cupar.reduce_by_index(pairs, thirds, out, sum_and_largest, init)
    by_index.run(pairs, thirds, out, n, bins, init)
    indices = np.arange(n) // 3 % 100
    np.testing.assert_array_equal(sums.get(), expected(np.add, x, indices, bins, 0))
    np.testing.assert_array_equal(most.get(), expected(np.maximum, y, indices, bins, 0))
    flags = cp.zeros(bins, "?")
    written = TransformOutputIterator(flags, lambda total: total > 1000, np.dtype("i8"))
    large = cupar.reduce_by_index(cp.asarray(x), thirds, written, OpKind.PLUS, np.zeros(1, "i8"))
    large.run(cp.asarray(x), thirds, written, n, bins, np.zeros(1, "i8"))
    np.testing.assert_array_equal(flags.get(), sums.get() > 1000)


@needs_gpu
def test_beyond_32_bits():
    n = 2**32 + 12_345
    x, indices, out = cp.ones(n, "u1"), cp.zeros(n, "u1"), cp.zeros(3, "u8")
    indices[2**31 :] = 2
    wide = TransformIterator(x, OpKind.IDENTITY, np.dtype("u8"))
    reduction = cupar.reduce_by_index(wide, indices, out, OpKind.PLUS, np.zeros(1, "u8"))
    reduction.run(wide, indices, out, n, 3, np.zeros(1, "u8"))
    assert out.get().tolist() == [2**31, 0, n - 2**31]


@pytest.mark.parametrize(("samples", "levels"), BETWEEN)
def test_histograms_between_levels(samples, levels, rng):
    histogram = cupar.histogram_range(samples, "i4", 2, levels, 1)
    for n in SIZES:
        for bins in (1, 2, 3, 64, 1000, 20_000):
            host = (rng.random(n) * 120).astype(samples)
            if host.dtype.kind == "f":
                host[::7], host[::11] = np.nan, np.inf
            edges = np.sort(rng.integers(0, 100, bins + 1)).astype(levels)
            if host.dtype.kind == "f":
                edges[-1] = [100, np.inf, np.nan][bins % 3]
            out = cp.zeros(bins, "i4")
            histogram.run(cp.asarray(host), out, bins + 1, cp.asarray(edges), n)
            known = host[~np.isnan(host)].astype(levels)
            places = np.searchsorted(edges, known, "right")
            places = places[(places > 0) & (places <= bins)] - 1
            np.testing.assert_array_equal(out.get(), np.bincount(places, minlength=bins))


AWKWARD_LEVELS = {
    "none is finite": (-np.inf, np.inf),
    "one is finite": (-np.inf, 3.0, np.inf),
    "all are one": (2.0,) * 9,
    "most are one": (0.0, *[2.0] * 700, 90.0),
    "close together": (50.0, *np.nextafter(50.0, np.arange(51, 54)), 60.0),
    "powers": (0.0, *2.0 ** np.arange(-140, 7)),
    "far apart": (-3e38, -1e30, 0.0, 1.0, 1e30, 3e38),
    "above all": (0.0, 1.0, 2.0, np.nan),
    "many": tuple(np.sqrt(np.linspace(0, 10_000, 9000))),
}


@needs_gpu
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("name", AWKWARD_LEVELS)
def test_levels_of_which_a_table_is_made(dtype, name, rng):
    """Of so many samples: at levels and beside them, infinite, NaN, and of both signs."""
    n = 300_007
    with np.errstate(over="ignore"):
        edges = np.array(AWKWARD_LEVELS[name]).astype(dtype)
        host = (rng.normal(size=n) * rng.choice([1e-3, 1, 60, 1e4], n)).astype(dtype)
        near = rng.choice(edges[~np.isnan(edges)], n // 2)
        host[: n // 4] = near[: n // 4]
        beside = rng.choice(np.array([-np.inf, np.inf], dtype), len(near) - n // 4)
        host[n // 4 : n // 2] = np.nextafter(near[n // 4 :], beside)
    host[::101], host[::103], host[::107] = np.nan, np.inf, -np.inf
    bins = len(edges) - 1
    out, d_edges = cp.zeros(bins, "i4"), cp.asarray(edges)
    histogram = cupar.histogram_range(dtype, "i4", bins + 1, dtype, n)
    histogram.run(cp.asarray(host), out, bins + 1, d_edges, n)
    places = np.searchsorted(edges, host[~np.isnan(host)], "right")
    places = places[(places > 0) & (places <= bins)] - 1
    np.testing.assert_array_equal(out.get(), np.bincount(places, minlength=bins))


@needs_gpu
@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "u4", "i8", "u8"])
def test_levels_of_integers_of_which_a_table_is_made(dtype, rng):
    info, n = np.iinfo(dtype), 300_007
    host = rng.integers(info.min, info.max, n, dtype, endpoint=True)
    for edges in (
        [info.min, info.max],
        [info.min, info.min + 1, 3, info.max - 1, info.max],
        [5, 6, 7, 100],
        np.sort(rng.integers(info.min, info.max, 5000, dtype)),
    ):
        edges = np.array(edges, dtype)
        host[: n // 3] = rng.choice(edges, n // 3)
        bins, out = len(edges) - 1, cp.zeros(len(edges) - 1, "i4")
        histogram = cupar.histogram_range(dtype, "i4", bins + 1, dtype, n)
        histogram.run(cp.asarray(host), out, bins + 1, cp.asarray(edges), n)
        places = np.searchsorted(edges, host, "right")
        places = places[(places > 0) & (places <= bins)] - 1
        np.testing.assert_array_equal(out.get(), np.bincount(places, minlength=bins))
