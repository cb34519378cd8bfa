"""Segmented reductions against NumPy: segments of every length, beside each other or not."""

import numpy as np
import pytest
from support.operators import add, either
from support.results import IS_CPU, cp, every

import cupar
from cupar import OpKind

DTYPES = ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"]
ITEMS = 30_000 if IS_CPU else 300_000


def larger(a, b):
    return max(a, b)


def items(rng, n, dtype):
    """Return items whose sums are exact."""
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, n, dtype, endpoint=True)
    if dtype == "?":
        return rng.random(n) < 0.01
    found = rng.integers(-3, 4, n) * (rng.random(n) < 0.02)
    return (found + 1j * found[::-1] if np.dtype(dtype).kind == "c" else found).astype(dtype)


def reduced(host, start, end, init):
    """Return each segment's sum; of bools whether there is one that is true."""
    wide = {"b": "i8", "f": "f8", "c": "c16"}.get(host.dtype.kind, host.dtype)
    sums = np.concatenate([np.zeros(1, wide), np.add.accumulate(host, dtype=wide)])
    found = np.where(end > start, sums[end] - sums[start], sums[0])
    return found.astype(bool) | init if host.dtype.kind == "b" else found.astype(host.dtype) + init


def at_a_shift(host, shift):
    """Return an array that begins so many items after one that is aligned."""
    d = cp.zeros(len(host) + shift, host.dtype)[shift:]
    d[:] = cp.asarray(host)
    return d


@every(3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["known", "function"])
def test_segments_of_every_mean(dtype, kind, rng):
    op = OpKind.LOGICAL_OR if dtype == "?" else OpKind.PLUS
    op = op if kind == "known" else either if dtype == "?" else add
    h_init = items(rng, 1, dtype)
    for mean in (1, 3, 16, 31, 64, 130, 300, 700, 1500, 9000):
        lengths = rng.integers(0, 2 * mean + 1, max(ITEMS // mean, 1))
        ends = np.cumsum(lengths)
        random = ends - lengths, ends
        starts = np.arange(0, max(ITEMS - mean, 1), mean)
        gaps = np.minimum(starts + 1, starts + mean), starts + mean
        for number, (start, end) in enumerate((random, (starts, starts + mean), gaps)):
            host = items(rng, int(end.max()), dtype)
            d_in, d_out = at_a_shift(host, number), cp.zeros(len(start) + 1, dtype)
            offsets = cp.asarray(start), cp.asarray(end)
            reduction = cupar.segmented_reduce(d_in, d_out, *offsets, op, h_init)
            reduction.run(d_in, d_out, len(start), *offsets, h_init)
            expected = np.append(reduced(host, start, end, h_init), np.zeros(1, dtype))
            np.testing.assert_array_equal(d_out.get(), expected, f"mean {mean}, case {number}")


@pytest.mark.parametrize(("dtype", "most"), [("i1", 5), ("i4", 5), ("f8", 4)])
def test_many_segments_of_a_few_items(dtype, most, rng):
    lengths = rng.integers(0, most + 1, 10_000 if IS_CPU else 800_000)
    lengths[::997] = 40  # which a warp has
    lengths[[7, 4000, 5000]] = 60, 3000, 30_000
    ends = np.cumsum(lengths)
    start, host, h_init = ends - lengths, items(rng, int(ends[-1]), dtype), items(rng, 1, dtype)
    apart = start + (lengths > 0) * (rng.random(len(start)) < 1e-4)  # some begin later
    d_in, d_out = at_a_shift(host, 1), cp.zeros(len(start) + 1, dtype)
    bounds = np.append(0, ends)
    astray = bounds.copy()  # some segments end before they begin, or far behind that
    astray[[len(bounds) // 3, len(bounds) // 2]] = 0, bounds[-1]
    astray[5::999] += 3
    astray = np.minimum(astray, bounds[-1])
    separate = ((start, ends), (start[::-1], ends[::-1]), (apart, ends))
    of_one_array = ((each[:-1], each[1:]) for each in map(cp.asarray, (bounds, astray)))
    for d_start, d_end in (*((cp.asarray(start), cp.asarray(end)) for start, end in separate), *of_one_array):
        offsets, start, end = (d_start, d_end), d_start.get(), d_end.get()
        reduction = cupar.segmented_reduce(d_in, d_out, *offsets, OpKind.PLUS, h_init)
        reduction.run(d_in, d_out, len(start), *offsets, h_init)
        expected = np.append(reduced(host, start, end, h_init), np.zeros(1, dtype))
        np.testing.assert_array_equal(d_out.get(), expected)


@pytest.mark.parametrize("offset", ["i8", "u4"])
def test_one_long_segment_among_short_ones(offset, rng):
    most = 1 << (18 if IS_CPU else 24)
    lengths = np.minimum(16 * rng.random(5000) ** -0.87, most).astype("i8")
    lengths[1234] = most
    ends = np.cumsum(lengths)
    host = items(rng, int(ends[-1]), "i4")
    order = rng.permutation(len(lengths))
    for which in (np.arange(len(lengths)), order):
        start, end = (ends - lengths)[which], ends[which]
        d_in, offsets = cp.asarray(host), [cp.asarray(each.astype(offset)) for each in (start, end)]
        d_out = cp.zeros(len(which), "i4")
        reduction = cupar.segmented_reduce(d_in, d_out, *offsets, larger, np.zeros(1, "i4"))
        reduction.run(d_in, d_out, len(which), *offsets, np.zeros(1, "i4"))
        expected = [max(0, host[s:e].max(initial=0)) for s, e in zip(start, end, strict=True)]
        np.testing.assert_array_equal(d_out.get(), expected)


def test_segments_that_overlap_or_end_before_they_begin(rng):
    host = items(rng, 100_000, "i4")
    start = rng.integers(0, 99_000, 5000)
    end = start + rng.integers(-5, 900, 5000)
    h_init = np.array([5], "i4")
    for first, last in ((start, end), (np.sort(start), np.sort(start) + 200)):
        d_in, d_out, offsets = cp.asarray(host), cp.zeros(5000, "i4"), (cp.asarray(first), cp.asarray(last))
        reduction = cupar.segmented_reduce(d_in, d_out, *offsets, add, h_init)
        reduction.run(d_in, d_out, 5000, *offsets, h_init)
        np.testing.assert_array_equal(d_out.get(), reduced(host, first, last, h_init))


def test_more_long_segments_than_a_queue_holds(rng):
    host = items(rng, 64_000, "i4")
    h_init = np.zeros(1, "i4")
    for n in (3, 200, 200 if IS_CPU else 70_000):
        start = rng.integers(0, 1000, n)
        end = start + 20_000 + rng.integers(0, 3000, n)
        d_in, d_out, offsets = cp.asarray(host), cp.zeros(n, "i4"), (cp.asarray(start), cp.asarray(end))
        reduction = cupar.segmented_reduce(d_in, d_out, *offsets, OpKind.PLUS, h_init)
        reduction.run(d_in, d_out, n, *offsets, h_init)
        np.testing.assert_array_equal(d_out.get(), reduced(host, start, end, h_init))


@pytest.mark.parametrize("dtype", ["i1", "i4", "f8"])
def test_rows(dtype, rng):
    h_init = items(rng, 1, dtype)
    reduction = cupar.segmented_reduce(dtype, dtype, op=OpKind.PLUS, h_init=h_init)
    for length in (1, 2, 3, 7, 16, 17, 33, 100, 257, 1000, 1025, 8193, 70_001):
        n = ITEMS // length + 2
        host = items(rng, n * length, dtype).reshape(n, length)
        d_in, d_out = cp.asarray(host), cp.zeros(n, dtype)
        expected = np.add.reduce(host, 1, dtype=dtype) + h_init
        reduction.run(d_in, d_out, n, h_init=h_init)
        np.testing.assert_array_equal(d_out.get(), expected)
        reduction.run(d_in.ravel()[1:], d_out, n - 1, h_init=h_init, segment_size=length)
        shifted = np.add.reduce(host.ravel()[1 : 1 + (n - 1) * length].reshape(n - 1, length), 1, dtype=dtype)
        np.testing.assert_array_equal(d_out.get()[: n - 1], shifted + h_init)


@pytest.mark.parametrize("kind", ["rows", "offsets"])
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_complex_numbers_that_begin_in_the_middle_of_a_word(dtype, kind, rng):
    h_init, parts = items(rng, 1, dtype), np.zeros(1, dtype).real.dtype
    segments = () if kind == "rows" else ("i8", "i8")
    reduction = cupar.segmented_reduce(dtype, dtype, *segments, op=OpKind.PLUS, h_init=h_init)
    for n, length in ((100, 3), (100, 50), (ITEMS // 3, 3), (ITEMS // 17, 17), (ITEMS, 3)):
        host = items(rng, n * length, dtype)
        d_in, d_out = at_a_shift(host.view(parts), 1).view(dtype), cp.zeros(n, dtype)
        if segments:
            bounds = cp.arange(n + 1) * length
            reduction.run(d_in, d_out, n, bounds[:-1], bounds[1:], h_init)
        else:
            reduction.run(d_in, d_out, n, h_init=h_init, segment_size=length)
        np.testing.assert_array_equal(d_out.get(), np.add.reduce(host.reshape(n, length), 1) + h_init)


@pytest.mark.parametrize("dtype", ["i1", "f4", "c16"])
def test_many_rows_of_a_few_items(dtype, rng):
    h_init = items(rng, 1, dtype)
    reduction = cupar.segmented_reduce(dtype, dtype, op=OpKind.PLUS, h_init=h_init)
    for length in (1, 2, 3, 4, 7, 8, 15, 16, 31):
        n = 3_000 if IS_CPU else 600_011
        host = items(rng, n * length, dtype).reshape(n, length)
        for shift in (0, 1):  # of the array: the first vector is whole, or not
            d_in, d_out = at_a_shift(host.ravel(), shift), cp.zeros(n + 1, dtype)
            reduction.run(d_in, d_out, n, h_init=h_init, segment_size=length)
            expected = np.append(np.add.reduce(host, 1, dtype=dtype) + h_init, np.zeros(1, dtype))
            np.testing.assert_array_equal(d_out.get(), expected, f"rows of {length}")
