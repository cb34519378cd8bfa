"""Segmented sorts by a comparison, against NumPy."""

import numpy as np
import pytest
from support.operators import less
from support.results import DTYPES, Structs, cp, every, needs_gpu

import cupar
from cupar import DoubleBuffer, OpKind

# Around where another team, or several blocks, sort them.
LENGTHS = [
    *(0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513),
    *(1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 8191, 8192, 8193, 12_289, 40_000),
]
# Of 16, 24 and 80 bytes.
PEAKS = (
    np.dtype([("height", "f8"), ("index", "i4")], align=True),
    np.dtype([("height", "f4"), ("index", "i8"), ("flag", "u1")], align=True),
    np.dtype([("index", "i8"), *((f"x{i}", "i8") for i in range(9))], align=True),
)


def by_digit(a, b):
    return a % 10 < b % 10


def by_real(a, b):
    return a.real < b.real


def by_index(a, b):
    return a.index < b.index


def bounds(rng, lengths, gaps=True):
    lengths = rng.permutation(np.asarray(lengths, "i8"))
    gap = rng.integers(0, 3, len(lengths)) * gaps
    starts = np.cumsum(lengths + gap) - lengths
    return starts, starts + lengths, int(starts[-1] + lengths[-1]) + 2


def stably(keys, starts, ends, n):
    """Return where each item comes from: items in no segment from where they are."""
    where = np.arange(n)
    for s, e in zip(starts, ends, strict=True):
        where[s:e] = s + np.argsort(keys[s:e], kind="stable")
    return where


@every(5)
@pytest.mark.parametrize("dtype", DTYPES)
def test_of_every_dtype(dtype, rng):
    starts, ends, n = bounds(rng, LENGTHS)
    host = rng.integers(0, 2 if dtype == "?" else 100, n).astype(dtype)
    op = by_real if host.dtype.kind == "c" else less
    d_starts, d_ends = cp.asarray(starts), cp.asarray(ends)
    d_in, d_items = cp.asarray(host), cp.arange(n)
    d_keys, d_where = d_in.copy(), d_items.copy()
    pairs = cupar.segmented_sort(d_in, d_keys, d_items, d_where, d_starts, d_ends, op=op)
    arguments = d_in, d_keys, d_items, d_where, n, len(starts), d_starts, d_ends
    pairs(cp.empty(pairs(None, *arguments), "u1"), *arguments)
    expected = stably(host.real, starts, ends, n)
    np.testing.assert_array_equal(d_where.get(), expected)
    np.testing.assert_array_equal(d_keys.get(), host[expected])
    np.testing.assert_array_equal(d_in.get(), host)
    d_keys[...] = d_in
    keys = cupar.segmented_sort(d_in, d_keys, None, None, d_starts, d_ends, op=op)
    keys.run(d_in, d_keys, None, None, n, len(starts), d_starts, d_ends)
    np.testing.assert_array_equal(d_keys.get(), host[expected])


@every(5)
@pytest.mark.parametrize("keys", PEAKS, ids=lambda peak: str(peak.itemsize))
@pytest.mark.parametrize("values", [*PEAKS, None], ids=str)
def test_of_structs(keys, values, rng):
    starts, ends, n = bounds(rng, LENGTHS[::2])
    host = np.zeros(n, keys)
    host["index"] = rng.integers(-9, 9, n)
    host[keys.names[0] if keys.names[0] != "index" else "x3"] = np.arange(n) % 1000
    payload = None if values is None else np.zeros(n, values)
    if payload is not None:
        payload["index"] = np.arange(n)
    out_keys = Structs(np.zeros(n, keys))
    d_values, out_values = (
        (None, None) if values is None else (Structs(payload), Structs(np.zeros(n, values)))
    )
    bound = cp.asarray(starts, "u4"), cp.asarray(ends, "u4")
    sort = cupar.segmented_sort(keys, keys, values, values, "u4", "u4", op=by_index)
    sort.run(Structs(host), out_keys, d_values, out_values, n, len(starts), *bound)
    where = stably(host["index"], starts, ends, n)
    inside = np.zeros(n, bool)
    for s, e in zip(starts, ends, strict=True):
        inside[s:e] = True
    np.testing.assert_array_equal(out_keys.get()[inside], host[where][inside])
    assert not out_keys.get()["index"][~inside].any()
    if values is not None:
        np.testing.assert_array_equal(out_values.get()["index"][inside], where[inside])


@pytest.mark.parametrize("length", [each for each in LENGTHS if each])
@pytest.mark.parametrize(("dtype", "values"), [("i4", None), ("i4", "u2"), ("i8", "f8"), ("u1", "i4")])
def test_of_rows(length, dtype, values, rng):
    n = max(30_000 // length, 2) + 1
    host = rng.integers(0, 100, n * length).astype(dtype)
    payload = None if values is None else rng.integers(0, 250, n * length).astype(values)
    d_in, d_keys = cp.asarray(host), cp.zeros(n * length, dtype)
    d_values = None if values is None else cp.asarray(payload)
    d_found = None if values is None else cp.zeros(n * length, values)
    sort = cupar.segmented_sort(d_in, d_keys, d_values, d_found, op=by_digit)
    sort.run(d_in, d_keys, d_values, d_found, n * length, n, segment_size=length)
    starts = np.arange(n) * length
    where = stably(host % 10, starts, starts + length, n * length)
    np.testing.assert_array_equal(d_keys.get(), host[where])
    if values is not None:
        np.testing.assert_array_equal(d_found.get(), payload[where])


@pytest.mark.parametrize("op", [less, OpKind.GREATER])
@pytest.mark.usefixtures("optimised")
def test_of_short_segments_and_a_long_one(op, rng):
    lengths = np.minimum(16 * rng.random(20_000) ** (-1 / 1.15), 2**16).astype("i8")
    lengths[777] = 2**21 + 5
    starts, ends, n = bounds(rng, lengths)
    host = rng.integers(-1000, 1000, n, "i4")
    d_keys, d_where = cp.asarray(host), cp.arange(n)
    sort = cupar.segmented_sort("i4", "i4", "i8", "i8", "i8", "i8", op=op)
    given = cp.asarray(host), d_keys, cp.arange(n), d_where, n, len(starts)
    sort.run(*given, cp.asarray(starts), cp.asarray(ends))
    where = stably(host if op is less else -host, starts, ends, n)
    np.testing.assert_array_equal(d_where.get(), where)
    np.testing.assert_array_equal(d_keys.get(), host[where])


def test_of_iterators_double_buffers_and_a_matrix(rng):
    host = rng.integers(-500, 500, 90_000).astype("i4")
    d_in, d_keys, d_where = cp.asarray(host), cp.zeros(90_000, "i4"), cp.zeros(90_000, "i8")
    magnitudes = cupar.TransformIterator(d_in, lambda a: max(a, -a), "i4")
    places = cupar.CountingIterator(np.int64(0))
    sort = cupar.segmented_sort(magnitudes, d_keys, places, d_where, op=less)
    for size in (30, 9000, 90_000):
        sort.run(magnitudes, d_keys, places, d_where, 90_000, 90_000 // size, segment_size=size)
        starts = np.arange(0, 90_000, size)
        where = stably(abs(host), starts, starts + size, 90_000)
        np.testing.assert_array_equal(d_where.get(), where)
        np.testing.assert_array_equal(d_keys.get(), abs(host)[where])
    matrix = cp.asarray(host.reshape(300, 300))
    buffer = DoubleBuffer(matrix.copy(), cp.zeros_like(matrix))
    rows = cupar.segmented_sort(buffer, op=less)
    rows.run(buffer, num_items=90_000, num_segments=300)
    np.testing.assert_array_equal(buffer.current().get(), np.sort(host.reshape(300, 300), axis=1))
    rows.run(buffer, num_items=90_000, num_segments=1, segment_size=90_000)
    np.testing.assert_array_equal(buffer.current().get().ravel(), np.sort(host))


def test_of_nothing_and_refusals():
    d_keys, d_out, d = cp.arange(10, dtype="u4"), cp.zeros(10, "u4"), cp.zeros(3, "i4")
    sort = cupar.segmented_sort(d_keys, d_out, None, None, d, d, op=less)
    sort.run(d_keys, d_out, None, None, 10, 0, d, d)
    sort.run(d_keys, d_out, None, None, 10, 3, d, d)  # all of them empty
    assert not d_out.any()
    with pytest.raises(ValueError, match="^end_offsets_in: needs at least 3 items"):
        sort.run(d_keys, d_out, None, None, 10, 3, d, d[:2])
    with pytest.raises(TypeError, match="^segment_size: "):
        sort.run(d_keys, d_out, None, None, 10, 3, d, d, segment_size=3)


@needs_gpu
def test_is_captured_and_reads_what_operators_capture(rng):
    starts, ends, n = bounds(rng, LENGTHS * 2)
    ranks = cp.asarray(rng.permutation(100))
    sort = cupar.segmented_sort("u1", "u1", None, None, "i8", "i8", op=lambda a, b: ranks[a] < ranks[b])
    d_in, d_out, d_starts, d_ends = cp.zeros(n, "u1"), cp.zeros(n, "u1"), cp.asarray(starts), cp.asarray(ends)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        sort.run(d_in, d_out, None, None, n, len(starts), d_starts, d_ends, stream)
        captured = stream.end_capture()
    for _ in range(2):
        host = rng.integers(0, 100, n).astype("u1")
        d_in.set(host)
        d_out.set(host)
        cp.cuda.Device().synchronize()
        captured.launch(stream)
        stream.synchronize()
        where = stably(ranks.get()[host], starts, ends, n)
        np.testing.assert_array_equal(d_out.get(), host[where])
