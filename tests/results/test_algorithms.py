"""Transforms, segmented reductions, sorts and runs of equal keys, against NumPy."""

import numpy as np
import pytest
from support.operators import add, equal, less
from support.results import DTYPES, cp, every, items, needs_gpu

import cupar
from cupar import SortOrder

SIZES = [0, 1, 2, 31, 32, 33, 2047, 2048, 2049, 100_003]


# --- Reductions ---


@pytest.mark.parametrize("dtype", ["i4", "f4", "f8"])
def test_reduction_that_may_differ_from_run_to_run(dtype, rng):
    host = rng.integers(-100, 100, 1_000_003).astype(dtype)
    d_in, d_out, h_init = cp.asarray(host), cp.zeros(1, dtype), np.array([7], dtype)
    free = cupar.Determinism.NOT_GUARANTEED
    reduction = cupar.reduce_into(d_in, d_out, cupar.OpKind.PLUS, h_init, determinism=free)
    for n in (*SIZES, len(host)):
        reduction.run(d_in, d_out, n, h_init)
        assert d_out.get()[0] == host[:n].sum() + 7  # exact in any order: small integers


@needs_gpu
def test_raw_operator(rng):
    from cupar._compile import nvrtc

    source = """extern "C" __device__ void farther(float* a, float* b, float* result) {
        *result = fabsf(*a) > fabsf(*b) ? *a : *b;
    }"""
    cc = cupar._device.driver.current_device().cc
    op = cupar.RawOp("farther", nvrtc.compile_cpp(source, cc))
    host = items(rng, 100_003, "f4")
    d_in, d_out = cp.asarray(host), cp.zeros(1, "f4")
    cupar.reduce_into(d_in, d_out, op, 0.0).run(d_in, d_out, len(host), 0.0)
    assert d_out.get()[0] == host[np.argmax(np.abs(host))]


# --- Transforms ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_unary_transform(dtype, rng):
    host = items(rng, SIZES[-1], dtype)
    d_in, d_out = cp.asarray(host), cp.zeros(len(host), dtype)
    op, expected = (lambda a: not a, ~host) if dtype == "?" else (lambda a: a + a, host + host)
    transform = cupar.unary_transform(d_in, d_out, op)
    for n in SIZES:
        d_out.fill(0)
        transform(d_in, d_out, n)
        np.testing.assert_array_equal(d_out.get()[:n], expected[:n])
        assert not d_out.get()[n:].any()
    transform(d_in, d_in, len(host), None)  # in place, stream by position
    np.testing.assert_array_equal(d_in.get(), expected)


@pytest.mark.parametrize(
    ("one", "two", "target"),
    [("f4", "f4", "f4"), ("i4", "i8", "i8"), ("f4", "i1", "f8"), ("c8", "f4", "c16"), ("?", "i4", "i2")],
)
def test_binary_transform(one, two, target, rng):
    hosts = [items(rng, SIZES[-1], dtype) for dtype in (one, two)]
    d_one, d_two = map(cp.asarray, hosts)
    d_out = cp.zeros(SIZES[-1], target)
    transform = cupar.binary_transform(d_one, d_two, d_out, lambda a, b: a * b)
    with np.errstate(over="ignore"):
        expected = (hosts[0] * hosts[1]).astype(target)
    for n in SIZES:
        transform.run(d_one, d_two, d_out, n)
        np.testing.assert_allclose(d_out.get()[:n], expected[:n], rtol=1e-6)


def test_known_kinds_transform():
    host = np.arange(-500, 500, dtype="i4")
    d_in, d_out = cp.asarray(host), cp.zeros(1000, "i4")
    for op, expected in ((cupar.OpKind.NEGATE, -host), (np.invert, ~host), (cupar.OpKind.IDENTITY, host)):
        cupar.unary_transform(d_in, d_out, op)(d_in, d_out, 1000)
        np.testing.assert_array_equal(d_out.get(), expected)
    cupar.binary_transform(d_in, d_in, d_out, np.multiply)(d_in, d_in, d_out, 1000)
    np.testing.assert_array_equal(d_out.get(), host * host)
    d_bool = cp.zeros(1000, bool)
    cupar.binary_transform(d_in, d_out, d_bool, cupar.OpKind.LESS)(d_in, d_out, d_bool, 1000)
    np.testing.assert_array_equal(d_bool.get(), host < host * host)


@needs_gpu
def test_transform_of_more_than_2_to_the_32_items():
    n = 2**32 + 7
    d = cp.ones(n, "u1")
    cupar.unary_transform(d, d, lambda a: a + 1)(d, d, n)
    assert int(d[-8:].sum()) == 16
    assert int(d[:8].sum()) == 16
    assert int((d == 2).sum()) == n
    del d
    cp.get_default_memory_pool().free_all_blocks()


def test_transform_refusals():
    d = cp.zeros(10, "f4")
    transform = cupar.unary_transform(d, d, lambda a: a)
    for arguments in ((), (d, d), (d, d, 1, None, None), (d,)):
        with pytest.raises(TypeError, match="argument"):
            transform(*arguments)
    with pytest.raises(ValueError, match="^d_out: needs at least 10 items"):
        transform(d, d[:9], 10)
    with pytest.raises(TypeError, match="^d_in: .*float32.*float64"):
        transform(d.astype("f8"), d, 10)


# --- Segmented reductions --------------------------------------------------------------------------------


@every(5)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", ["i4", "u8"])
def test_segmented_reduce(dtype, offset, rng):
    host = items(rng, 50_000, dtype)
    if np.dtype(dtype).kind == "f":
        host = rng.integers(-3, 4, 50_000).astype(dtype) * (rng.random(50_000) < 0.01).astype(dtype)
    start = rng.integers(0, 50_000, 300).astype(offset)  # overlapping, and not in order
    end = np.minimum(start + rng.integers(0, 3000, 300).astype(offset), 50_000).astype(offset)
    end[::7] = start[::7]  # some empty
    h_init = host[:1].copy()
    d_in, d_out = cp.asarray(host), cp.zeros(300, dtype)
    op = (lambda a, b: a or b) if dtype == "?" else add
    reduction = cupar.segmented_reduce(d_in, d_out, cp.asarray(start), cp.asarray(end), op, h_init)
    reduction.run(d_in, d_out, 300, cp.asarray(start), cp.asarray(end), h_init)
    reduce = np.logical_or.reduce if dtype == "?" else lambda x: np.add.reduce(x, dtype=dtype)
    expected = [reduce(np.concatenate([h_init, host[s:e]])) for s, e in zip(start, end, strict=True)]
    np.testing.assert_array_equal(d_out.get(), np.array(expected, dtype))


def test_segmented_reduce_in_two_phases_and_other_output():
    d_in, d_out = cp.arange(100, dtype="i4"), cp.zeros(4, "f2")
    start, end = cp.asarray([0, 10, 10, 50]), cp.asarray([10, 10, 20, 100])
    h_init = np.array([1], "f4")
    reduction = cupar.segmented_reduce(d_in, d_out, start, end, max, h_init)
    nbytes = reduction(None, d_in, d_out, 3, start, end, h_init)
    reduction(cp.empty(max(nbytes, 1), "u1"), d_in, d_out, 3, start, end, h_init)
    assert d_out.get().tolist() == [9, 1, 19, 0]
    reduction.run(d_in, d_out, 0, start, end, h_init)
    with pytest.raises(ValueError, match="^end_offsets_in: needs at least 4 items"):
        reduction.run(d_in, d_out, 4, start, end[:3], h_init)
    with pytest.raises(ValueError, match="^num_segments: "):
        reduction.run(d_in, d_out, 2**33, start, end, h_init)


# --- Merge sort ------------------------------------------------------------------------------------------


@every(5)
@pytest.mark.parametrize("dtype", DTYPES)
def test_merge_sort(dtype, rng):
    real = np.dtype(dtype).kind != "c"
    op = less if real else (lambda a, b: a.real < b.real)
    for n in SIZES:
        host, payload = items(rng, n, dtype), np.arange(n, dtype="i4")
        d_keys, d_items = cp.asarray(host), cp.asarray(payload)
        d_out_keys, d_out_items = cp.zeros_like(d_keys), cp.zeros_like(d_items)
        sort = cupar.merge_sort(d_keys, d_items, d_out_keys, d_out_items, op)
        sort.run(d_keys, d_items, d_out_keys, d_out_items, n)
        order = np.argsort(host if real else host.real, kind="stable")
        np.testing.assert_array_equal(d_out_items.get(), order)
        np.testing.assert_array_equal(d_out_keys.get(), host[order])
        np.testing.assert_array_equal(d_keys.get(), host)
        keys_alone = cupar.merge_sort(d_keys, None, d_keys, None, op)
        keys_alone.run(d_keys, None, d_keys, None, n)
        np.testing.assert_array_equal(d_keys.get(), host[order])


@pytest.mark.parametrize(
    "make", [np.zeros, np.arange, lambda n: np.arange(n)[::-1]], ids=["equal", "sorted", "reversed"]
)
def test_merge_sort_of_awkward_keys(make):
    host = np.ascontiguousarray(make(10_000)).astype("i4")
    d_keys, d_items = cp.asarray(host), cp.arange(10_000)
    sort = cupar.merge_sort(d_keys, d_items, d_keys, d_items, cupar.OpKind.GREATER)
    sort.run(d_keys, d_items, d_keys, d_items, 10_000)
    np.testing.assert_array_equal(d_items.get(), np.argsort(-host, kind="stable"))


def test_merge_sorts_of_other_sizes_in_turns(rng):
    sort = cupar.merge_sort("i4", "i4", "i4", "i4", lambda a, b: a % 100 < b % 100)
    for n in (100_003, 4352, 4353, 40_000, 8704, 8705, 300_000, 100_003):  # shapes that plans have in common
        host = rng.integers(0, 10_000, n, "i4")
        d_keys, d_items, out = cp.asarray(host), cp.arange(n, dtype="i4"), cp.zeros(n, "i4")
        sort.run(d_keys, d_items, d_keys, out, n)
        order = np.argsort(host % 100, kind="stable")
        np.testing.assert_array_equal(out.get(), order)
        np.testing.assert_array_equal(d_keys.get(), host[order])
        with sort.bind(d_keys, d_items, d_keys, out, n) as bound:
            bound()
            np.testing.assert_array_equal(out.get(), np.arange(n))


# --- Radix sort ------------------------------------------------------------------------------------------


def sorted_stably(host, order):
    if order is SortOrder.DESCENDING:
        return len(host) - 1 - np.argsort(host[::-1], kind="stable")[::-1]
    return np.argsort(host, kind="stable")


@pytest.mark.parametrize("dtype", DTYPES[:-2])
@pytest.mark.parametrize("order", list(SortOrder))
def test_radix_sort(dtype, order, rng):
    for n in SIZES:
        host, payload = items(rng, n, dtype), np.arange(n, dtype="i8")
        expected = sorted_stably(host, order)
        d_keys, d_values = cp.asarray(host), cp.asarray(payload)
        out = cp.zeros_like(d_keys), cp.zeros_like(d_values)
        sort = cupar.radix_sort(d_keys, out[0], d_values, out[1], order)
        sort.run(d_keys, out[0], d_values, out[1], n)
        np.testing.assert_array_equal(out[0].get(), host[expected])
        np.testing.assert_array_equal(out[1].get(), expected)
        cupar.radix_sort(d_keys, out[0], None, None, order).run(d_keys, out[0], None, None, n)
        np.testing.assert_array_equal(out[0].get(), host[expected])
        keys, values = (cupar.DoubleBuffer(a.copy(), cp.zeros_like(a)) for a in (d_keys, d_values))
        cupar.radix_sort(keys, None, values, None, order).run(keys, None, values, None, n)
        np.testing.assert_array_equal(keys.current().get(), host[expected])
        np.testing.assert_array_equal(values.current().get(), expected)


def test_double_buffers_go_on_from_where_they_are(rng):
    host = items(rng, 10_000, "u4")
    keys = cupar.DoubleBuffer(cp.zeros(10_000, "u4"), cp.asarray(host))
    keys.selector = 1
    sort = cupar.radix_sort(keys, None, None, None, SortOrder.ASCENDING)
    for order in (np.sort(host), np.sort(host)):
        nbytes = sort(None, keys, None, None, None, 10_000)
        sort(cp.empty(nbytes, "u1"), keys, None, None, None, 10_000)
        np.testing.assert_array_equal(keys.current().get(), order)


def test_radix_sort_by_some_bits(rng):
    host = items(rng, 10_000, "u4")
    d_keys, d_out = cp.asarray(host), cp.zeros(10_000, "u4")
    sort = cupar.radix_sort(d_keys, d_out, None, None, SortOrder.ASCENDING)
    for begin, end in ((0, 8), (4, 20), (24, 32), (0, 32)):
        sort.run(d_keys, d_out, None, None, 10_000, begin, end)
        bits = (host.astype("u8") >> begin) & ((1 << (end - begin)) - 1)
        np.testing.assert_array_equal(d_out.get(), host[np.argsort(bits, kind="stable")])
    for begin, end in ((5, 4), (0, 33), (-1, 3)):
        with pytest.raises(ValueError, match="bit"):
            sort.run(d_keys, d_out, None, None, 10_000, begin, end)


@pytest.mark.parametrize("n", [1000, 100_003])
@pytest.mark.parametrize("bits", [(0, 8), (4, 20), (5, 29), (24, 32), (7, 7), (0, 32)])
def test_double_buffers_by_some_bits(n, bits, rng):
    host = items(rng, n, "u4")
    begin, end = bits
    order = np.argsort((host.astype("u8") >> begin) & ((1 << (end - begin)) - 1), kind="stable")
    keys = cupar.DoubleBuffer(cp.asarray(host), cp.zeros(n, "u4"))
    values = cupar.DoubleBuffer(cp.arange(n), cp.zeros(n, "i8"))
    sort = cupar.radix_sort(keys, None, values, None, SortOrder.ASCENDING)
    sort.run(keys, None, values, None, n, begin, end)
    np.testing.assert_array_equal(keys.current().get(), host[order])
    np.testing.assert_array_equal(values.current().get(), order)
    keys = cupar.DoubleBuffer(cp.asarray(host), cp.zeros(n, "u4"))
    values = cupar.DoubleBuffer(cp.arange(n), cp.zeros(n, "i8"))
    with sort.bind(keys, None, values, None, n, begin, end) as bound:
        bound()
        np.testing.assert_array_equal(keys.current().get(), host[order])
        np.testing.assert_array_equal(values.current().get(), order)


def test_radix_sort_of_floats_with_nan():
    host = np.array([np.nan, 1, -np.inf, 0.0, -0.0, 0.0, np.inf, -1, np.nan], "f4")
    d_keys, d_out = cp.asarray(host), cp.zeros(9, "f4")
    cupar.radix_sort(d_keys, d_out, None, None, SortOrder.ASCENDING).run(d_keys, d_out, None, None, 9)
    np.testing.assert_array_equal(d_out.get(), np.sort(host, kind="stable"))
    assert np.signbit(d_out.get()[2:5]).tolist() == [False, True, False]  # zeros are equal


# --- Runs of equal keys ----------------------------------------------------------------------------------


@every(5)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", ["i4", "u8"])
def test_unique_by_key(dtype, count, rng):
    for n in SIZES:
        host = np.repeat(items(rng, n, dtype), rng.integers(1, 5, n))[:n]
        payload = items(rng, n, "i8")
        d_keys, d_items = cp.asarray(host), cp.asarray(payload)
        d_out_keys, d_out_items, d_count = cp.zeros_like(d_keys), cp.zeros_like(d_items), cp.full(1, 9, count)
        runs = cupar.unique_by_key(d_keys, d_items, d_out_keys, d_out_items, d_count, equal)
        runs.run(d_keys, d_items, d_out_keys, d_out_items, d_count, n)
        first = np.flatnonzero(np.concatenate([np.ones(min(n, 1), bool), host[1:] != host[:-1]]))
        assert int(d_count.get()[0]) == len(first)
        np.testing.assert_array_equal(d_out_keys.get()[: len(first)], host[first])
        np.testing.assert_array_equal(d_out_items.get()[: len(first)], payload[first])
