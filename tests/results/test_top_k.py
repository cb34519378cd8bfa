"""Top-k of arrays and of segments, against a stable sort by NumPy."""

import numpy as np
import pytest
from support.results import IS_CPU, Structs, cp, every, needs_gpu

import cupar

UP, DOWN = cupar.SortOrder
MANY = 30_000 if IS_CPU else 300_000  # items: on the CPU, no other code has many
DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
# Around where another kernel finds them, or another level.
LENGTHS = [
    *(1, 2, 31, 32, 33, 127, 128, 129, 511, 512, 513, 1023, 1024, 1025),
    *(4095, 4096, 4097, 8191, 8192, 8193, 16_384, 40_001),
]


def ranks(keys, order):
    """Return integers that sort ascending as the keys do; -0.0 is as 0.0."""
    found = keys.view(f"u{keys.itemsize}").copy()
    top = found.dtype.type(1 << (8 * keys.itemsize - 1))
    if keys.dtype.kind == "i":
        found ^= top
    elif keys.dtype.kind == "f":
        found[found == top] = 0
        found = np.where(found & top, ~found, found | top)
    return ~found if order == DOWN else found


def first(keys, k, order=DOWN):
    """Return where the first k keys are."""
    return np.argsort(ranks(keys, order), kind="stable")[:k]


def some(rng, n, dtype, kind="any"):
    dtype = np.dtype(dtype)
    if kind == "equal":
        return np.ones(n, dtype)
    if kind == "few" or dtype.kind == "b":
        return rng.integers(0, 2, n).astype(dtype)
    if dtype.kind != "f":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, n, dtype, endpoint=True)
    found = rng.normal(size=n).astype(dtype)
    special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf], dtype)
    where = rng.random(n) < 0.1
    found[where] = special[rng.integers(0, len(special), where.sum())]
    return found


def same(found, expected):
    """Whether two arrays are the same, bit by bit."""
    return np.array_equal(found.view("u1"), np.ascontiguousarray(expected).view("u1"))


def check_array(host, k, order, dtype_of_values="i8", places=None):
    """Compare with NumPy, whose first places are computed if they are not given."""
    n, expected = len(host), first(host, k, order) if places is None else places[:k]
    d_in, d_keys = cp.asarray(host), cp.zeros(k, host.dtype)
    counting = cupar.CountingIterator(np.zeros((), dtype_of_values)[()])
    d_places = cp.zeros(k, dtype_of_values)
    find = cupar.top_k(d_in, d_keys, counting, d_places, order)
    arguments = d_in, d_keys, counting, d_places, n, k
    find(cp.full(find(None, *arguments), 0xAB, "u1"), *arguments)
    np.testing.assert_array_equal(d_places.get(), expected)
    assert same(d_keys.get(), host[expected])


@every(2)
@pytest.mark.parametrize("kind", ["any", "few", "equal"])
@pytest.mark.parametrize("n", [1, 130, 1025, 8192, 8193, 100_001, pytest.param(1_500_000, marks=needs_gpu)])
@pytest.mark.parametrize("dtype", ["u1", "i4", "f8"])
def test_of_arrays(dtype, n, kind, rng):
    host = some(rng, n, dtype, kind)
    places = {order: first(host, n, order) for order in (UP, DOWN)}
    for k in sorted({min(k, n) for k in (1, 2, 10, 64, 1000, 2048, 2049, 9000, n // 2, n)} - {0}):
        order = DOWN if k % 2 else UP
        check_array(host, k, order, places=places[order])


def test_of_bfloat16(rng):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    for n, k in ((100, 7), (5000, 100), (MANY, 50), (MANY, 20_000)):
        host = some(rng, n, "f4").astype(bfloat16)
        d_in, d_keys = cp.asarray(host.view("u2")).view(bfloat16), cp.zeros(k, "u2")
        d_out, d_places = d_keys.view(bfloat16), cp.zeros(k, "i8")
        places = cupar.CountingIterator(np.int64(0))
        cupar.top_k("bfloat16", "bfloat16", places, d_places).run(d_in, d_out, places, d_places, n, k)
        expected = first(host.view("f2"), k)  # of the same bits, which sort alike
        np.testing.assert_array_equal(d_places.get(), expected)
        assert same(d_keys.get(), host.view("u2")[expected])


@pytest.mark.parametrize("order", [UP, DOWN])
@pytest.mark.parametrize("dtype", DTYPES)
def test_of_every_dtype(dtype, order, rng):
    for n, k in ((100, 7), (1000, 30), (5000, 100), (5000, 4500), (MANY, 50), (MANY, 20_000)):
        check_array(some(rng, n, dtype), k, order, "u4")


def test_of_keys_alone_and_of_large_values(rng):
    values = np.dtype([("a", "i8"), ("b", "f4"), ("c", "u1")], align=True)
    for n, k in ((90, 9), (700, 50), (MANY, 100), (MANY, 30_000)):
        host = some(rng, n, "f4")
        d_in, d_keys = cp.asarray(host), cp.zeros(k, "f4")
        cupar.top_k(d_in, d_keys).run(d_in, d_keys, num_items=n, k=k)
        expected = first(host, k)
        assert same(d_keys.get(), host[expected])
        payload = np.zeros(n, values)
        payload["a"], payload["c"] = np.arange(n), np.arange(n) % 251
        d_out = Structs(np.zeros(k, values))
        cupar.top_k(d_in, d_keys, values, values).run(d_in, d_keys, Structs(payload), d_out, n, k)
        found = d_out.get()
        np.testing.assert_array_equal(found["a"], expected)
        np.testing.assert_array_equal(found["c"], expected % 251)


def of_segments(host, starts, ends, k, order, outputs):
    """Return places that segmented_top_k finds: what it leaves is as in `outputs`."""
    found = outputs.copy()
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        own = first(host[start:end], k, order)
        found[row, : len(own)] = start + own
    return found


def check_offsets(host, starts, ends, k, order, dtype_of_offsets="i8"):
    n, m = len(host), len(starts)
    d_in, d_keys, d_places = cp.asarray(host), cp.zeros((m, k), host.dtype), cp.full((m, k), -1)
    d_starts, d_ends = cp.asarray(starts, dtype_of_offsets), cp.asarray(ends, dtype_of_offsets)
    places = cupar.CountingIterator(np.int64(0))
    find = cupar.segmented_top_k(d_in, d_keys, places, d_places, d_starts, d_ends, order)
    find.run(d_in, d_keys, places, d_places, n, m, k, d_starts, d_ends)
    expected = of_segments(host, starts, ends, k, order, np.full((m, k), -1))
    np.testing.assert_array_equal(d_places.get(), expected)
    inside = expected >= 0
    assert same(d_keys.get()[inside], host[expected[inside]])
    assert not d_keys.get()[~inside].any()


@pytest.mark.parametrize("k", [1, 8, 100, 2000, 3000])
@pytest.mark.parametrize("dtype", ["u1", "f4", "i8"])
@pytest.mark.parametrize("kind", ["any", "few"])
def test_by_offsets(dtype, k, kind, rng):
    lengths = rng.permutation([0, 0, *LENGTHS])
    gaps = rng.integers(0, 3, len(lengths))
    starts = np.cumsum(lengths + gaps) - lengths
    host = some(rng, int(starts[-1] + lengths[-1]) + 2, dtype, kind)
    check_offsets(host, starts, starts + lengths, k, UP if k % 2 else DOWN, "u4" if k == 8 else "i8")


@pytest.mark.parametrize("k", [5, 5000])
def test_of_short_segments_and_a_long_one(k, rng):
    lengths = np.minimum(16 * rng.random(3000) ** (-1 / 1.15), 2**14).astype("i8")
    lengths[777] = 2 ** (16 if IS_CPU else 20) + 5
    starts = np.cumsum(lengths) - lengths
    check_offsets(some(rng, int(lengths.sum()), "f4"), starts, starts + lengths, k, DOWN)


@every(3)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", ["f4", "i8", "u2"])
def test_of_rows(length, dtype, rng):
    m = max(30_000 // length, 2) + 1
    host = some(rng, m * length, dtype).reshape(m, length)
    for k in sorted({min(k, length) for k in (1, 8, 64, 500, 2500, length)}):
        d_in, d_keys, d_places = cp.asarray(host), cp.zeros((m, k), dtype), cp.full((m, k), -1)
        places = cupar.CountingIterator(np.int64(0))
        find = cupar.segmented_top_k(d_in, d_keys, places, d_places)
        find.run(d_in, d_keys, places, d_places, m * length, m, k)
        starts = np.arange(m) * length
        expected = of_segments(host.ravel(), starts, starts + length, k, DOWN, np.full((m, k), -1))
        np.testing.assert_array_equal(d_places.get(), expected)
        assert same(d_keys.get(), host.ravel()[expected])


@needs_gpu
@pytest.mark.parametrize("kind", ["any", "few", "equal", "ascending", "descending"])
@pytest.mark.parametrize("dtype", ["u1", "f2", "i4", "f4", "i8"])
def test_of_many_long_rows(dtype, kind, rng):
    """A block has each: of the last tile there is an item, some, or all; and candidates run out of room."""
    m, length = 200, 8 * 8192
    host = some(rng, m * length + 1, dtype, kind if kind in ("few", "equal") else "any")
    if kind in ("ascending", "descending"):
        host = host[first(host, len(host), DOWN)][:: 1 if kind == "descending" else -1].copy()
    places = cupar.CountingIterator(np.int64(0))
    for size, k, begin in (
        (8193, 8, 0),
        (20_000, 64, 1),
        (length, 300, 0),
        (40_961, 1024, 1),
        (16_384, 1, 0),
    ):
        rows = host[begin : begin + m * size].reshape(m, size)
        d_keys, d_places = cp.zeros((m, k), dtype), cp.full((m, k), -1)
        find = cupar.segmented_top_k(cp.asarray(host), d_keys, places, d_places)
        find.run(cp.asarray(host)[begin:], d_keys, places, d_places, m * size, m, k, segment_size=size)
        expected = np.argsort(ranks(rows, DOWN), axis=1, kind="stable")[:, :k]
        np.testing.assert_array_equal(d_places.get() - np.arange(m)[:, None] * size, expected)
        assert same(d_keys.get(), np.take_along_axis(rows, expected, 1))


def test_of_arrays_that_are_not_aligned(rng):
    host = some(rng, 50_000, "f4")
    for n, k in ((100, 9), (1000, 9), (8000, 9), (49_000, 9), (49_000, 5000)):
        d_in, d_keys = cp.asarray(host)[3 : 3 + n], cp.zeros(k + 1, "f4")[1:]
        cupar.top_k(d_in, d_keys).run(d_in, d_keys, None, None, n, k)
        assert same(d_keys.get(), host[3 : 3 + n][first(host[3 : 3 + n], k)])


def test_of_nothing_and_refusals():
    d_in, d_out, d = cp.arange(10, dtype="u4"), cp.zeros(10, "u4"), cp.zeros(3, "i4")
    find, of_segments = cupar.top_k(d_in, d_out), cupar.segmented_top_k(d_in, d_out, None, None, d, d)
    find.run(d_in, d_out, None, None, 10, 0)
    find.run(d_in, d_out, None, None, 0, 0)
    of_segments.run(d_in, d_out, None, None, 10, 0, 3, d, d)
    of_segments.run(d_in, d_out, None, None, 10, 3, 3, d, d)  # all of them empty
    assert not d_out.any()
    with pytest.raises(ValueError, match="^k: expected at most num_items, 10"):
        find.run(d_in, d_out, None, None, 10, 11)
    with pytest.raises(ValueError, match="^d_out_keys: needs at least 9 items"):
        find.run(d_in, d_out[:8], None, None, 10, 9)
    with pytest.raises(ValueError, match="^d_out_keys: needs at least 12 items"):
        of_segments.run(d_in, d_out, None, None, 10, 3, 4, d, d)


@needs_gpu
@pytest.mark.parametrize(("n", "k"), [(900, 20), (200_000, 20), (200_000, 20_000)])
def test_is_captured_and_bound(n, k, rng):
    d_in, d_out = cp.zeros(n, "f4"), cp.zeros(k, "f4")
    find = cupar.top_k(d_in, d_out)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        find.run(d_in, d_out, None, None, n, k, stream)
        captured = stream.end_capture()
    bound = find.bind(d_in, d_out, None, None, n, k, stream=stream)
    for launch in (lambda: captured.launch(stream), bound) * 2:
        host = some(rng, n, "f4")
        d_in.set(host)
        d_out.fill(0)
        cp.cuda.Device().synchronize()
        launch()
        stream.synchronize()
        assert same(d_out.get(), host[first(host, k)])


@needs_gpu
@pytest.mark.parametrize("order", [UP, DOWN])
@pytest.mark.parametrize("kind", ["any", "few", "equal", "sorted"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_groups_of_a_single_segment(dtype, kind, order, monkeypatch):
    """Groups of both sizes, the last of which lacks items, at two alignments, and k beyond their limit."""
    monkeypatch.setattr("cupar._kernels.top_k._LEAST_GROUPED", 1)
    host = some(np.random.default_rng(7), 300_003, dtype, "any" if kind == "sorted" else kind)
    if kind == "sorted":
        host = host[first(host, len(host), order)]
    for begin in (0, 1):
        places = first(host[begin:], len(host), order)
        for k in (1, 70, 585, 2300, 9000):
            check_array(host[begin:], k, order, places=places)


@needs_gpu
def test_groups_of_many_items():
    host = some(np.random.default_rng(8), 2**24 + 5, "f4")
    places = first(host, len(host), DOWN)
    for k in (10, 1000, 4000, 100_000):
        check_array(host, k, DOWN, places=places)
    d_in, d_keys = cp.asarray(host), cp.zeros(1000, "f4")
    cupar.top_k(d_in, d_keys).run(d_in, d_keys, None, None, len(host), 1000)
    assert same(d_keys.get(), host[places[:1000]])
