"""bfloat16 in every algorithm, against NumPy with ml_dtypes.

Sums are exact whatever their order, as in `test_dtypes`: bfloat16 has the integers up to 256.
"""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bfloat16 import BF16, THREE, bits, device, empty, few, host_of, ml_dtypes, same, sortable, walk
from support.results import IS_CPU, cp

import cupar
from cupar import OpKind, SortOrder

PLUS = OpKind.PLUS
SIZES = [0, 1, 2, 33, 1000, 70_001, 1_000_000]


@pytest.mark.parametrize("op", [PLUS, lambda a, b: a + b], ids=["plus", "lambda"])
@pytest.mark.parametrize("n", SIZES)
def test_sums(op, n, rng):
    host = few(rng, max(n, 1))[:n]
    d_in, d_out, h_init = device(host), empty(1), np.array([5], BF16)
    cupar.reduce_into(d_in, d_out, op, h_init).run(d_in, d_out, n, h_init)
    same(host_of(d_out), [5 + host.astype("f8").sum()])
    wide, h_wide = cp.zeros(1, "f4"), np.ones(1, "f4")
    cupar.reduce_into(d_in, wide, op, h_wide).run(d_in, wide, n, h_wide)
    assert wide.get()[0] == 1 + host.astype("f8").sum()
    if op is PLUS:
        free = cupar.reduce_into(d_in, d_out, op, THREE, determinism=cupar.Determinism.NOT_GUARANTEED)
        free.run(d_in, d_out, n, THREE)
        same(host_of(d_out), [3 + host.astype("f8").sum()])


@pytest.mark.parametrize("n", SIZES[1:])
def test_extrema(n, rng):
    host = rng.normal(size=n).astype(BF16)
    d_in, d_out = device(host), empty(1)
    for op, expected in (
        (OpKind.MAXIMUM, host.max()),
        (OpKind.MINIMUM, host.min()),
        (lambda a, b: a if a > b else b, host.max()),
        (lambda a, b: min(a, b), host.min()),  # noqa: PLW0108
        (np.maximum, host.max()),
    ):
        cupar.reduce_into(d_in, d_out, op, None).run(d_in, d_out, n)
        same(host_of(d_out), [expected])


def test_extrema_of_nan():
    host = np.array([1, np.nan, 3], BF16)
    d_in, d_out = device(host), empty(1)
    for op in (np.minimum, np.maximum):
        cupar.reduce_into(d_in, d_out, op, None).run(d_in, d_out, 3)
        same(host_of(d_out), [np.nan])


@pytest.mark.parametrize("op", [PLUS, lambda a, b: a + b], ids=["plus", "lambda"])
@pytest.mark.parametrize("n", [*SIZES, 1_500_000 if IS_CPU else 2**25 + 4099])
def test_scans(op, n, rng):
    # A known kind combines items that are not side by side, too.
    host = few(rng, n) if op is PLUS and n else walk(rng, n)
    d_in, d_out = device(host), empty(n)
    sums = np.cumsum(host.astype("f4"))
    cupar.inclusive_scan(d_in, d_out, op).run(d_in, d_out, n)
    same(host_of(d_out), sums)
    cupar.exclusive_scan(d_in, d_out, op, THREE).run(d_in, d_out, n, THREE)
    same(host_of(d_out), np.concatenate([[3], sums[:-1] + 3])[:n])
    cupar.inclusive_scan(d_in, d_out, OpKind.MAXIMUM).run(d_in, d_out, n)
    same(host_of(d_out), np.maximum.accumulate(host.astype("f4")))


def test_segments(rng):
    lengths = rng.integers(0, 60, 3000)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    host = few(rng, offsets[-1])
    d_in, d_out, starts = device(host), empty(3000), cp.asarray(offsets)
    reduction = cupar.segmented_reduce(d_in, d_out, starts, starts, PLUS, THREE)
    reduction.run(d_in, d_out, 3000, starts[:-1], starts[1:], THREE)
    sums = np.concatenate([[0], np.cumsum(host.astype("f8"))])
    same(host_of(d_out), 3 + sums[offsets[1:]] - sums[offsets[:-1]])


@pytest.mark.parametrize("order", SortOrder)
def test_segmented_sorts(order, rng):
    lengths = rng.integers(0, 700, 200)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    host = sortable(rng, offsets[-1])
    d_in, d_out, starts = device(host), empty(len(host)), cp.asarray(offsets)
    places = cp.arange(len(host), dtype="i4")
    d_places = cp.zeros_like(places)
    sort = cupar.segmented_sort(d_in, d_out, places, d_places, starts, starts, order=order)
    sort.run(d_in, d_out, places, d_places, len(host), 200, starts[:-1], starts[1:])
    found, moved = host_of(d_out), d_places.get()
    np.testing.assert_array_equal(bits(host[moved]), bits(found))
    for begin, end in pairwise(offsets):
        expected = np.sort(host[begin:end].astype("f4"))
        got = found[begin:end].astype("f4")
        np.testing.assert_array_equal(got if order == SortOrder.ASCENDING else got[::-1], expected)


@pytest.mark.parametrize("order", SortOrder)
@pytest.mark.parametrize("n", SIZES)
def test_radix_sorts(order, n, rng):
    host = sortable(rng, n)
    d_in, d_out, places = device(host), empty(n), cp.arange(n, dtype="i4")
    d_places = cp.zeros_like(places)
    cupar.radix_sort(d_in, d_out, order=order).run(d_in, d_out, None, None, n)
    # As CUB has it for all floats: zeros of both signs are equal, and NaNs beyond infinity.
    keys = host.astype("f4") if order == SortOrder.ASCENDING else -host.astype("f4")
    if order == SortOrder.DESCENDING:
        keys = np.where(np.isnan(keys), -np.inf, keys)
        keys = np.where(host.astype("f4") == np.inf, np.nextafter(np.float32(-np.inf), np.float32(0)), keys)
    expected = np.argsort(keys, kind="stable")
    np.testing.assert_array_equal(bits(host_of(d_out)), bits(host[expected]))
    cupar.radix_sort(d_in, d_out, places, d_places, order=order).run(d_in, d_out, places, d_places, n)
    np.testing.assert_array_equal(bits(host_of(d_out)), bits(host[expected]))
    np.testing.assert_array_equal(d_places.get(), expected)


@pytest.mark.parametrize("n", SIZES)
def test_merge_sorts(n, rng):
    host = rng.normal(size=n).astype(BF16)
    d_in, d_out, places = device(host), empty(n), cp.arange(n, dtype="i4")
    d_places = cp.zeros_like(places)
    for op, keys in (
        (OpKind.LESS, host.astype("f4")),
        (lambda a, b: abs(a) > abs(b), -np.abs(host.astype("f4"))),
    ):
        cupar.merge_sort(d_in, places, d_out, d_places, op).run(d_in, places, d_out, d_places, n)
        expected = np.argsort(keys, kind="stable")
        np.testing.assert_array_equal(d_places.get(), expected)
        same(host_of(d_out), host[expected])


@pytest.mark.parametrize("n", SIZES)
def test_selections(n, rng):
    host = rng.normal(size=n).astype(BF16)
    d_in, d_out, count = device(host), empty(n), cp.zeros(2, "i8")
    cupar.select(d_in, d_out, count, lambda x: x > 0.25).run(d_in, d_out, count, n)
    expected = host[host.astype("f4") > 0.25]
    assert count.get()[0] == len(expected)
    same(host_of(d_out)[: len(expected)], expected)
    runs = np.repeat(host, 3)[:n]
    d_runs = device(runs)
    unique = cupar.unique_by_key(d_runs, d_in, d_out, empty(n), count, OpKind.EQUAL_TO)
    unique.run(d_runs, d_in, d_out, empty(n), count, n)
    is_first = np.concatenate([[True], runs[1:] != runs[:-1]])[:n]
    assert count.get()[0] == is_first.sum()
    same(host_of(d_out)[: is_first.sum()], runs[is_first])
    parts = [empty(n) for _ in range(3)]
    is_large, is_small = (lambda x: x > 1), (lambda x: x < -1)
    split = cupar.three_way_partition(d_in, *parts, count, is_large, is_small)
    split.run(d_in, *parts, count, n)
    wide = host.astype("f4")
    for part, mask in zip(parts, (wide > 1, wide < -1, np.abs(wide) <= 1), strict=True):
        same(host_of(part)[: mask.sum()], host[mask])


def test_histograms(rng):
    host = rng.integers(-10, 110, 70_001).astype(BF16)
    d_in, counts = device(host), cp.zeros(10, "i4")
    args = (11, 0.0, 100.0, len(host))
    cupar.histogram_even(d_in, counts, *args).run(d_in, counts, *args)
    np.testing.assert_array_equal(counts.get(), np.histogram(host[host < 100].astype("f8"), 10, (0, 100))[0])
    args = (11, ml_dtypes.bfloat16(0), ml_dtypes.bfloat16(100), len(host))
    cupar.histogram_even(d_in, counts, *args).run(d_in, counts, *args)
    np.testing.assert_array_equal(counts.get(), np.histogram(host[host < 100].astype("f8"), 10, (0, 100))[0])


@pytest.mark.parametrize("n", [1, 1000, 70_001])
def test_searches(n, rng):
    data, values = np.sort(rng.normal(size=n).astype(BF16)), rng.normal(size=5000).astype(BF16)
    d_data, d_values, d_out = device(data), device(values), cp.zeros(5000, "i8")
    for factory, side in ((cupar.lower_bound, "left"), (cupar.upper_bound, "right")):
        factory(d_data, d_values, d_out).run(d_data, n, d_values, 5000, d_out)
        expected = np.searchsorted(data.astype("f4"), values.astype("f4"), side)
        np.testing.assert_array_equal(d_out.get(), expected)


# --- Runs, segments and the first of all -----------------------------------------------------------------


@pytest.mark.parametrize("mean", [1, 4, 700])
def test_runs(mean, rng):
    op = (lambda a, b: a + b) if mean == 4 or IS_CPU else PLUS
    last = lambda a, b: b
    for n in SIZES:
        ends = np.cumsum(rng.geometric(1 / mean, n))
        ends = np.append(ends[ends < n], np.full(int(n > 0), n))
        lengths = np.diff(ends, prepend=0)
        runs, begins = len(ends), ends - lengths
        keys = np.repeat(np.arange(runs) % 200, lengths)
        keys = np.where(rng.random(n) < 0.5, keys, np.where(keys, keys, -0.0)).astype(BF16)  # -0.0 equals 0.0
        host = few(rng, n) if n else keys
        d_keys, d_in, count = device(keys), device(host), cp.zeros(1, "i8")
        sums = np.cumsum(host.astype("f8"))
        before = np.repeat((sums - host.astype("f8"))[begins], lengths)
        unique, out = empty(runs), empty(runs)
        cupar.reduce_by_key(d_keys, unique, d_in, out, count, op).run(d_keys, unique, d_in, out, count, n)
        assert count.get()[0] == runs
        same(host_of(unique), keys[ends - 1])
        same(host_of(out), (sums - before)[ends - 1])
        lasts = cupar.reduce_by_key(d_keys, unique, d_in, out, count, last)
        lasts.run(d_keys, unique, d_in, out, count, n)
        same(host_of(out), host[ends - 1])
        found = empty(n)
        cupar.inclusive_scan_by_key(d_keys, d_in, found, op).run(d_keys, d_in, found, n)
        same(host_of(found), sums - before)
        scan = cupar.exclusive_scan_by_key(d_keys, d_in, found, op, THREE)
        scan.run(d_keys, d_in, found, n, THREE)
        same(host_of(found), sums - before - host.astype("f8") + 3)
        lengths_found = cp.zeros(runs, "i4")
        encode = cupar.run_length_encode(d_keys, unique, lengths_found, count)
        encode.run(d_keys, unique, lengths_found, count, n)
        assert count.get()[0] == runs
        same(host_of(unique), keys[ends - 1])
        np.testing.assert_array_equal(lengths_found.get(), lengths)


def segments(rng):
    """Return segments of many lengths, with gaps, and how many items there are."""
    lengths = rng.permutation([0, 1, 2, 31, 32, 33, 500, 1025, 4097, 20_000, *rng.integers(0, 60, 500)])
    ends = np.cumsum(lengths + rng.integers(0, 3, len(lengths)))
    return ends - lengths, ends, int(ends[-1])


@pytest.mark.parametrize("op", [PLUS, lambda a, b: a + b], ids=["plus", "lambda"])
def test_segmented_scans(op, rng):
    starts, ends, n = segments(rng)
    host = few(rng, n) if op is PLUS else walk(rng, n)
    d_in, offsets = device(host), (cp.asarray(starts), cp.asarray(ends))
    for factory, h_init in ((cupar.inclusive_segmented_scan, None), (cupar.exclusive_segmented_scan, THREE)):
        d_out, expected = device(host), host.astype("f4")
        factory(d_in, d_out, *offsets, op, h_init).run(d_in, d_out, len(starts), *offsets, h_init)
        for start, end in zip(starts, ends, strict=True):
            sums = np.cumsum(host[start:end].astype("f4"))
            expected[start:end] = sums if h_init is None else 3 + np.append(0, sums)[:-1]
        same(host_of(d_out), expected)


@pytest.mark.parametrize("op", [OpKind.GREATER, lambda a, b: abs(a) < abs(b)], ids=["greater", "lambda"])
def test_segmented_sorts_by_a_comparison(op, rng):
    starts, ends, n = segments(rng)
    host, values = rng.normal(size=n).astype(BF16), rng.normal(size=n).astype(BF16)
    d_in, d_values, offsets = device(host), device(values), (cp.asarray(starts), cp.asarray(ends))
    d_out, d_moved = device(host), device(values)
    sort = cupar.segmented_sort(d_in, d_out, d_values, d_moved, *offsets, op=op)
    sort.run(d_in, d_out, d_values, d_moved, n, len(starts), *offsets)
    ranks = -host.astype("f4") if op is OpKind.GREATER else np.abs(host.astype("f4"))
    where = np.arange(n)
    for start, end in zip(starts, ends, strict=True):
        where[start:end] = start + np.argsort(ranks[start:end], kind="stable")
    same(host_of(d_out), host[where])
    same(host_of(d_moved), values[where])


@pytest.mark.parametrize("order", SortOrder)
def test_top_k(order, rng):
    starts, ends, n = segments(rng)
    host, values = sortable(rng, n), rng.normal(size=n).astype(BF16)
    d_in, d_values, offsets = device(host), device(values), (cp.asarray(starts), cp.asarray(ends))
    ranks = host.astype("f4").astype("f8")  # as for a radix sort
    ranks[np.isposinf(ranks)], ranks[np.isnan(ranks)] = 1e300, np.inf
    ranks = ranks if order == SortOrder.ASCENDING else -ranks
    find = cupar.top_k(d_in, d_in, d_values, d_values, order)
    for k in (1, 64, 5000, n):
        d_keys, d_found = empty(k), empty(k)
        find.run(d_in, d_keys, d_values, d_found, n, k)
        expected = np.argsort(ranks, kind="stable")[:k]
        same(host_of(d_keys), host[expected])
        same(host_of(d_found), values[expected])
    find = cupar.segmented_top_k(d_in, d_in, d_values, d_values, *offsets, order)
    for k in (1, 64, 5000):
        d_keys, d_found = (device(np.zeros(len(starts) * k, BF16)) for _ in range(2))
        find.run(d_in, d_keys, d_values, d_found, n, len(starts), k, *offsets)
        keys, found = np.zeros((2, len(starts), k), BF16)
        for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
            expected = start + np.argsort(ranks[start:end], kind="stable")[:k]
            keys[row, : len(expected)], found[row, : len(expected)] = host[expected], values[expected]
        same(host_of(d_keys), keys.ravel())
        same(host_of(d_found), found.ravel())


def test_bound(rng):
    host = few(rng, 1000)
    d_in, d_out = device(host), empty(1)
    sums = cupar.reduce_into(d_in, d_out, PLUS, 0)
    sums.bind(d_in, d_out, 1000, 0)()
    same(host_of(d_out), [host.astype("f8").sum()])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 2**16 - 1), max_size=3000), st.sampled_from([*SortOrder]))
def test_radix_sort_orders_what_it_is_given(values, order):
    host = np.array(values, np.uint16).view(BF16)
    host[np.isnan(host.astype("f4"))] = np.nan
    n = len(host)
    d_in, d_out = device(host), empty(n)
    cupar.radix_sort(d_in, d_out, order=order).run(d_in, d_out, None, None, n)
    found = host_of(d_out).astype("f4")
    np.testing.assert_array_equal(
        found if order == SortOrder.ASCENDING else found[::-1], np.sort(host.astype("f4"))
    )
