"""Segmented scans against NumPy."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.operators import add, either
from support.results import IS_CPU, Structs, cp, every, needs_gpu

import cupar
from cupar import OpKind

DTYPES = ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"]
LENGTHS = [1, 2, 3, 7, 16, 31, 33, 100, 511, 512, 513, 1000, 1024, 1025, 4099, 8192, 8193, 70_001]


@cupar.gpu_struct
class Affine:
    """A function x -> a * x + b of numbers modulo 2**32."""

    a: np.uint32
    b: np.uint32


def composed(first, second):
    """Not commutative."""
    return Affine(first.a * second.a, first.b * second.a + second.b)


def items(rng, n, dtype):
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(n) < 0.02
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, n, dtype, endpoint=True)
    # Few of them, so that sums are exact.
    found = rng.integers(-3, 4, n) * (rng.random(n) < 0.02)
    return (found + 1j * found[::-1] if dtype.kind == "c" else found).astype(dtype)


def scanned(host, start, end, init=None, is_inclusive=True):
    """Return each segment's result: sums, of bools whether there is one that is true."""
    accumulate = np.logical_or.accumulate if host.dtype.kind == "b" else np.add.accumulate
    found = []
    for s, e in zip(start, end, strict=True):
        first = [] if init is None else [init]
        part = np.concatenate([np.array(first, host.dtype), host[s : max(s, e)]])
        sums = accumulate(part, dtype=host.dtype)
        found.append((sums[len(first) :] if is_inclusive else sums[:-1]) if e > s else part[:0])
    return found


def layout(rng, lengths, gap):
    """Return segments of these lengths in any order, with gaps or without, and how many items that takes."""
    lengths = rng.permutation(lengths)
    ends = np.cumsum(lengths + rng.integers(0, gap + 1, len(lengths)))
    starts = ends - lengths
    order = rng.permutation(len(lengths)) if gap else np.arange(len(lengths))
    return starts[order], (starts + lengths)[order], int(ends[-1])


@every(3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_inclusive", [True, False])
def test_lengths_and_gaps(dtype, is_inclusive, rng):
    op = either if dtype == "?" else add
    factory = cupar.inclusive_segmented_scan if is_inclusive else cupar.exclusive_segmented_scan
    for lengths, gap, offset in (
        (rng.integers(0, 9, 3000), 0, "i4"),
        (rng.integers(0, 70, 1000), 2, "u8"),
        ([0, *LENGTHS, 0], 0, "i8"),
        ([0, *LENGTHS, 0], 3, "u4"),
        ([300_001], 0, "i8"),
    ):
        if IS_CPU and dtype != "i4":  # where each is a build
            offset = "i8"
        start, end, n = layout(rng, np.array(lengths), gap)
        host, before = items(rng, n, dtype), items(rng, n, dtype)
        h_init = items(rng, 1, dtype)
        shift = int(rng.integers(0, 3))
        d_in, d_out = (cp.zeros(n + 3, dtype)[shift : n + shift] for _ in range(2))
        d_in[:], d_out[:] = cp.asarray(host), cp.asarray(before)
        offsets = cp.asarray(start.astype(offset)), cp.asarray(end.astype(offset))
        scan = factory(d_in, d_out, *offsets, op, h_init)
        scan.run(d_in, d_out, len(start), *offsets, h_init)
        expected = before
        for s, part in zip(start, scanned(host, start, end, h_init[0], is_inclusive), strict=True):
            expected[s : s + len(part)] = part
        np.testing.assert_array_equal(d_out.get(), expected)
        if gap == 0:
            scan.run(d_in, d_in, len(start), *offsets, h_init)  # in place; there is nothing beside segments
            np.testing.assert_array_equal(d_in.get(), expected)


@pytest.mark.parametrize("dtype", ["i1", "i4", "f8"])
def test_rows(dtype, rng):
    by_kind = cupar.inclusive_segmented_scan(dtype, dtype, op=OpKind.PLUS)
    exclusive = cupar.exclusive_segmented_scan(dtype, dtype, op=add, h_init=np.zeros(1, dtype))
    for length in LENGTHS:
        n = 30_000 // length + 2
        host = items(rng, n * length, dtype).reshape(n, length)
        d_in, d_out = cp.asarray(host), cp.zeros_like(host)
        expected = np.add.accumulate(host, 1, dtype=dtype)
        by_kind.run(d_in, d_out, n)
        np.testing.assert_array_equal(d_out.get(), expected)
        by_kind.run(d_in.ravel(), d_out, n - 1, segment_size=length)
        h_init = items(rng, 1, dtype)
        exclusive.run(d_in, d_out, n, h_init=h_init)
        before = np.concatenate([np.broadcast_to(h_init, (n, 1)), host[:, :-1]], 1)
        np.testing.assert_array_equal(d_out.get(), np.add.accumulate(before, 1, dtype=dtype))


ROWS = [1023, 1024, 1026, 2048, 2052, 4096, 8188, 8192, 8196, 16_384]  # that warps, blocks or all blocks have


@pytest.mark.parametrize(("is_inclusive", "begin"), [(True, 0), (False, 0), (True, 1)])
def test_rows_of_tuples(is_inclusive, begin, rng):
    """A function of what the rows' items are made of; arrays may begin where no vector does."""

    def step(a, b):
        return a[0] * b[0], b[0] * a[1] + b[1]

    pair = np.dtype([("field_0", "u4"), ("field_1", "u4")], align=True)
    factory = cupar.inclusive_segmented_scan if is_inclusive else cupar.exclusive_segmented_scan
    h_init = None if is_inclusive else np.array([(1, 7)], pair)
    for size in ROWS:
        n = 3 * size
        a, b = (rng.integers(0, 2**32, n + begin, "u4")[begin:] for _ in range(2))
        d_a, d_b = (cp.asarray(np.append(np.zeros(begin, "u4"), each))[begin:] for each in (a, b))
        d_out = cp.zeros(n + begin, "u4")[begin:]
        d_in = cupar.ZipIterator(d_a, d_b)
        written = cupar.TransformOutputIterator(d_out, lambda s: s[1], pair)
        factory(d_in, written, op=step, h_init=h_init).run(d_in, written, 3, h_init=h_init, segment_size=size)
        expected, value = np.empty((3, size + 1), "u4"), np.full(3, 0 if is_inclusive else 7, "u4")
        expected[:, 0] = value
        for t in range(size):
            value = a[t::size] * value + b[t::size]
            expected[:, t + 1] = value
        found = d_out.get().reshape(3, size)
        assert np.array_equal(found, expected[:, 1:] if is_inclusive else expected[:, :-1]), size


@pytest.mark.parametrize("is_inclusive", [True, False])
def test_many_segments_of_a_few_items(is_inclusive, rng):
    n = 3000 if IS_CPU else 150_000
    lengths = rng.integers(0, 5, n)
    lengths[[5, n // 3, n // 2, n - 1]] = 50, 900, 3000, 70_001
    h_init = np.array([7], "i4")
    factory = cupar.inclusive_segmented_scan if is_inclusive else cupar.exclusive_segmented_scan
    for gaps, shift in ((0, 0), (0, 3), (1, 1)):
        end = np.cumsum(lengths + gaps * (rng.random(n) < 0.001))
        start, size = end - lengths, int(end[-1])
        host, before = items(rng, size, "i4"), items(rng, size, "i4")
        d_in, d_out = (cp.zeros(size + 3, "i4")[shift : size + shift] for _ in range(2))
        d_in[:], d_out[:] = cp.asarray(host), cp.asarray(before)
        offsets = cp.asarray(start), cp.asarray(end)
        scan = factory(d_in, d_out, *offsets, OpKind.PLUS, h_init)
        scan.run(d_in, d_out, n, *offsets, h_init)
        sums = np.append(np.zeros(1, "i4"), np.cumsum(host, dtype="i4"))
        at = np.repeat(start - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        before[at] = sums[at + is_inclusive] - sums[np.repeat(start, lengths)] + h_init
        np.testing.assert_array_equal(d_out.get(), before)


def test_other_offsets_in_the_output(rng):
    start, end, n = layout(rng, np.array(LENGTHS), 0)
    order = rng.permutation(len(start))
    to = np.empty_like(start)
    to[order] = np.cumsum((end - start)[order]) - (end - start)[order]
    host = items(rng, n, "i4")
    d_in, d_out = cp.asarray(host), cp.zeros(n, "i8")
    h_init = np.array([3], "i8")
    given = cp.asarray(start), cp.asarray(end)
    scan = cupar.exclusive_segmented_scan(
        d_in, d_out, *given, OpKind.PLUS, h_init, start_offsets_out=cp.asarray(to)
    )
    scan.run(d_in, d_out, len(start), *given, h_init, start_offsets_out=cp.asarray(to))
    expected = np.zeros(n, "i8")
    for at, part in zip(to, scanned(host.astype("i8"), start, end, 3, False), strict=True):
        expected[at : at + len(part)] = part
    np.testing.assert_array_equal(d_out.get(), expected)
    with pytest.raises(TypeError, match="^start_offsets_out: "):
        scan.run(d_in, d_out, len(start), *given, h_init)


def test_an_operator_that_does_not_commute(rng):
    start, end, n = layout(rng, np.array([*LENGTHS, 40_000]), 1)
    host = np.zeros(n, Affine.dtype)
    host["a"], host["b"] = rng.integers(0, 2**32, (2, n))
    h_init = Affine(7, 9)
    offsets = cp.asarray(start), cp.asarray(end)
    d_in, d_out = Structs(host), Structs(np.zeros_like(host))
    for factory, initial, is_inclusive in (
        (cupar.inclusive_segmented_scan, h_init, True),
        (cupar.exclusive_segmented_scan, h_init, False),
        (cupar.inclusive_segmented_scan, None, True),
    ):
        scan = factory(Affine, Affine, *offsets, composed, initial)
        scan.run(d_in, d_out, len(start), *offsets, initial)
        found = d_out.get()
        for s, e in zip(start.tolist(), end.tolist(), strict=True):
            pairs = zip(host["a"][s:e].tolist(), host["b"][s:e].tolist(), strict=True)
            a, b = (1, 0) if initial is None else (7, 9)
            results = [(a, b)]
            for a2, b2 in pairs:
                a, b = a * a2 % 2**32, (b * a2 + b2) % 2**32
                results.append((a, b))
            expected = results[1:] if is_inclusive else results[:-1]
            assert found[s:e].tolist() == expected


@pytest.mark.parametrize("is_inclusive", [True, False])
def test_segments_of_many_chunks(is_inclusive, rng):
    """More than what comes before one is learnt of at once."""
    start, end, n = layout(rng, np.array([3_000_001, 5, 150_000, 20_479]), 1)
    host = items(rng, n, "i8")
    d_in, d_out = cp.asarray(host), cp.zeros(n, "i8")
    offsets, h_init = (cp.asarray(start), cp.asarray(end)), np.array([3])
    factory = cupar.inclusive_segmented_scan if is_inclusive else cupar.exclusive_segmented_scan
    factory(d_in, d_out, *offsets, add, h_init).run(d_in, d_out, len(start), *offsets, h_init)
    found = d_out.get()
    for s, part in zip(start, scanned(host, start, end, 3, is_inclusive), strict=True):
        np.testing.assert_array_equal(found[s : s + len(part)], part)


def test_the_same_in_every_run(rng):
    start, end, n = layout(rng, np.array([*LENGTHS, 2_000_003, 300_000]), 0)
    d_in, d_out = cp.asarray(rng.normal(size=n).astype("f4")), cp.zeros(n, "f4")
    offsets = cp.asarray(start), cp.asarray(end)
    scan = cupar.inclusive_segmented_scan(d_in, d_out, *offsets, add)
    scan.run(d_in, d_out, len(start), *offsets)
    first = d_out.get()
    for _ in range(10):
        scan.run(d_in, d_out, len(start), *offsets)
        np.testing.assert_array_equal(d_out.get(), first)


@pytest.mark.usefixtures("optimised")
def test_a_queue_that_is_full(rng):
    """Segments that overlap may be more than there is room for, and the result is the same."""
    n = 200_000
    host = rng.integers(-9, 10, n).astype("f4")
    d_in = cp.asarray(host)
    start = rng.integers(0, 1000, 300)
    end = n - rng.integers(0, 1000, 300)
    to = np.cumsum(end - start) - (end - start)
    d_out = cp.zeros(int((end - start).sum()), "f4")
    given = cp.asarray(start), cp.asarray(end), cp.asarray(to)
    scan = cupar.inclusive_segmented_scan(d_in, d_out, *given[:2], OpKind.PLUS, start_offsets_out=given[2])
    for _ in range(3):
        d_out.fill(-1)
        scan.run(d_in, d_out, 300, *given[:2], start_offsets_out=given[2])
        found = d_out.get()
        for s, e, at in zip(start, end, to, strict=True):
            np.testing.assert_array_equal(found[at : at + e - s], np.cumsum(host[s:e]))


@needs_gpu
def test_capture_and_two_phases(rng):
    start, end, n = layout(rng, np.array([*LENGTHS, 100_000]), 1)
    host = rng.integers(-9, 10, n)
    d_in, d_out, offsets = cp.asarray(host), cp.zeros(n, "i8"), (cp.asarray(start), cp.asarray(end))
    scan = cupar.inclusive_segmented_scan(d_in, d_out, *offsets, OpKind.PLUS)
    storage = cp.empty(scan(None, d_in, d_out, len(start), *offsets), "u1")
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        scan(storage, d_in, d_out, len(start), *offsets, stream=stream)
        graph = stream.end_capture()
    for _ in range(2):
        d_out.fill(0)
        cp.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        found = d_out.get()
        for s, part in zip(start, scanned(host, start, end), strict=True):
            np.testing.assert_array_equal(found[s : s + len(part)], part)


def test_iterators_state_and_an_initial_value_on_the_device(rng):
    count = cupar.CountingIterator(np.int64(0))
    d_out, init = cp.zeros((100, 1000), "i8"), cp.asarray([5])
    triangular = cupar.exclusive_segmented_scan(count, d_out, op=add, h_init=init)
    triangular.run(count, d_out, 100, h_init=init, segment_size=1000)
    before = np.arange(100_000).reshape(100, 1000) - 1
    before[:, 0] = 5
    np.testing.assert_array_equal(d_out.get(), np.cumsum(before, 1))

    d_rank = cp.asarray(rng.permutation(1000))
    rank, host = d_rank.get(), rng.integers(0, 1000, (7, 20_000))
    d_in, d_best = cp.asarray(host), cp.zeros_like(host)
    best = cupar.inclusive_segmented_scan(d_in, d_best, op=lambda a, b: a if d_rank[a] > d_rank[b] else b)
    best.run(d_in, d_best, 7)
    np.testing.assert_array_equal(rank[d_best.get()], np.maximum.accumulate(rank[host], 1))


@needs_gpu
def test_many_items_and_segments():
    n = 2**31 + 1000
    d_in, d_out = cp.ones(n, "i1"), cp.zeros(n, "i1")
    start, end = cp.asarray([0, 77]), cp.asarray([77, n])
    scan = cupar.inclusive_segmented_scan(d_in, d_out, start, end, OpKind.PLUS)
    scan.run(d_in, d_out, 2, start, end)
    for s, e in ((0, 77), (77, 10_000), (2**31 - 1000, n)):
        expected = (np.arange(s, e) - (77 if s else 0) + 1).astype("i1")
        np.testing.assert_array_equal(d_out[s:e].get(), expected)
    rows = cupar.inclusive_segmented_scan(d_in, d_out, op=OpKind.PLUS)
    rows.run(d_in, d_out, n, segment_size=1)
    assert bool((d_out == 1).all())
    cp.get_default_memory_pool().free_all_blocks()


def test_refusals():
    d, o = cp.zeros((4, 10), "f4"), cp.zeros((4, 10), "f4")
    offsets = cp.asarray([0, 5, 9]), cp.asarray([5, 9, 40])
    rows = cupar.inclusive_segmented_scan(d, o, op=OpKind.PLUS)
    scan = cupar.inclusive_segmented_scan(d, o, *offsets, OpKind.PLUS)
    with pytest.raises(ValueError, match="^d_in: needs at least 50 items"):
        rows.run(d, o, 5)
    with pytest.raises(ValueError, match="^d_out: needs at least 40 items"):
        rows.run(d, o[:3], 4)
    with pytest.raises(ValueError, match="^segment_size: expected 1 or more, got 0"):
        rows.run(d, o, 4, segment_size=0)
    with pytest.raises(TypeError, match="^segment_size: expected an integer"):
        rows.run(d.ravel(), o, 4)
    with pytest.raises(TypeError, match="^start_offsets_in: "):
        rows.run(d, o, 3, *offsets)
    with pytest.raises(TypeError, match="^segment_size: this SegmentedScan was built for offsets"):
        scan.run(d, o, 3, *offsets, segment_size=10)
    with pytest.raises(ValueError, match="^end_offsets_in: needs at least 4 items"):
        scan.run(d, o, 4, cp.zeros(4, "i8"), offsets[1])
    with pytest.raises(TypeError, match="^h_init: "):
        scan.run(d, o, 3, *offsets, 0)
    with pytest.raises(ValueError, match="^num_segments: "):
        scan.run(d, o, 2**33, *offsets)


HOST = np.random.default_rng(7).integers(-1000, 1000, 20_000)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.integers(0, len(HOST)), max_size=100), st.integers(0, 2), st.booleans())
def test_offsets(bounds, dropped, is_inclusive):
    """Segments may be empty, and leave items out; their order is any."""
    bounds = sorted(bounds)
    pairs = [(a, b) for a, b in itertools.pairwise(bounds) if (a + b) % 3 or not dropped][::-1]
    start, end = (np.array([pair[i] for pair in pairs] + [0]) for i in (0, 1))
    factory = cupar.inclusive_segmented_scan if is_inclusive else cupar.exclusive_segmented_scan
    scan = factory("i8", "i8", "i8", "i8", add, 1)
    d_in, d_out = cp.asarray(HOST), cp.full(len(HOST), 7777)
    scan.run(d_in, d_out, len(pairs), cp.asarray(start), cp.asarray(end), 1)
    expected = np.full(len(HOST), 7777)
    for (s, _), part in zip(pairs, scanned(HOST, start[:-1], end[:-1], 1, is_inclusive), strict=True):
        expected[s : s + len(part)] = part
    np.testing.assert_array_equal(d_out.get(), expected)
