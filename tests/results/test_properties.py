"""Segments and partitions of whatever shape, against NumPy."""

import itertools

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.operators import add
from support.results import cp

import cupar
from cupar import CountingIterator, SortOrder, ZipIterator

N = 5000
HOST = np.random.default_rng(7).integers(-1000, 1000, N).astype("i8")

few = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


segments = st.lists(
    st.tuples(st.integers(0, N), st.integers(0, N)).map(sorted), min_size=0, max_size=300
)  # they may be empty, overlap, leave items out and be in any order


@few
@given(segments, st.integers(-5, 5))
def test_segmented_reduce(ends, init):
    d_in, d_out = cp.asarray(HOST), cp.full(len(ends) + 1, 77, "i8")
    starts, stops = (cp.asarray(np.array([end[i] for end in ends] + [0], "i4")) for i in (0, 1))
    reduce = cupar.segmented_reduce("i8", "i8", "i4", "i4", add, np.zeros(1, "i8"))
    reduce.run(d_in, d_out, len(ends), starts, stops, np.array([init]))
    expected = [HOST[start:stop].sum() + init for start, stop in ends]
    np.testing.assert_array_equal(d_out.get(), [*expected, 77])


@few
@given(st.lists(st.integers(0, N), max_size=200).map(sorted), st.booleans())
def test_segmented_sort(bounds, down):
    bounds = [0, *bounds, N]
    d_in, d_out = cp.asarray(HOST), cp.zeros(N, "i8")
    starts, stops = cp.asarray(np.array(bounds[:-1])), cp.asarray(np.array(bounds[1:]))
    order = SortOrder.DESCENDING if down else SortOrder.ASCENDING
    sort = cupar.segmented_sort("i8", "i8", None, None, "i8", "i8", order)
    sort.run(d_in, d_out, None, None, N, len(bounds) - 1, starts, stops)
    parts = [np.sort(HOST[a:b])[:: -1 if down else 1] for a, b in itertools.pairwise(bounds)]
    np.testing.assert_array_equal(d_out.get(), np.concatenate(parts))


thresholds = st.integers(-1100, 1100)


@few
@given(st.integers(0, N), thresholds, thresholds)
def test_three_way_partition(n, low, high):
    limits = cp.asarray(np.array([low, high]))
    outs, counts = [cp.full(N, 7777, "i8") for _ in range(3)], cp.zeros(2, "i8")
    partition = cupar.three_way_partition(
        "i8", "i8", "i8", "i8", "i8", lambda a: a < limits[0], lambda a: a > limits[1]
    )
    partition.run(cp.asarray(HOST), *outs, counts, n)
    host = HOST[:n]
    first = host < low
    second = ~first & (host > high)
    assert counts.get().tolist() == [first.sum(), second.sum()]
    for out, chosen in zip(outs, (first, second, ~first & ~second), strict=True):
        found = out.get()
        np.testing.assert_array_equal(found[: chosen.sum()], host[chosen])
        assert (found[chosen.sum() :] == 7777).all()


@few
@given(st.integers(0, N), thresholds)
def test_select_with_places(n, limit):
    limits = cp.asarray(np.array([limit]))
    items, places, count = cp.zeros(N, "i8"), cp.zeros(N, "i8"), cp.zeros(1, "i8")
    pairs = ZipIterator(cp.asarray(HOST), CountingIterator(0))
    select = cupar.select(pairs, ZipIterator(items, places), count, lambda pair: pair[0] >= limits[0])
    select.run(pairs, ZipIterator(items, places), count, n)
    expected = np.flatnonzero(HOST[:n] >= limit)
    assert count.get()[0] == len(expected)
    np.testing.assert_array_equal(places.get()[: len(expected)], expected)
    np.testing.assert_array_equal(items.get()[: len(expected)], HOST[expected])


@few
@given(st.lists(st.integers(1, 40), min_size=1, max_size=200))
def test_unique_by_key(runs):
    keys = np.repeat(np.arange(len(runs)), runs).astype("i4")
    first = np.concatenate([[0], np.cumsum(runs)[:-1]])
    d_keys, places, count = cp.zeros(len(runs), "i4"), cp.zeros(len(runs), "i8"), cp.zeros(1, "i8")
    unique = cupar.unique_by_key("i4", CountingIterator(0), "i4", "i8", "i8", lambda a, b: a == b)
    unique.run(cp.asarray(keys), CountingIterator(0), d_keys, places, count, len(keys))
    assert count.get()[0] == len(runs)
    np.testing.assert_array_equal(places.get(), first)
    np.testing.assert_array_equal(d_keys.get(), np.arange(len(runs)))
