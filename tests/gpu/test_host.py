"""Compiled host code on the GPU, against NumPy: algorithms, kernels, streams, captures, threads, contexts."""

import threading
from collections import namedtuple
from itertools import pairwise

import cupy as cp
import numba
import numpy as np
import pytest
from numba import cuda
from test_contexts import Memory, current, second_context
from test_launches import spin

import cupar

SIZES = [0, 1, 1000, 50_000, 1_000_003]
Pair = namedtuple("Pair", "x y")


def numbers(n, dtype="f4", seed=0):
    return np.random.default_rng(seed).integers(-50, 50, n).astype(dtype)


def both_ways(function, *arguments):
    """Yield after a function ran in Python, and again after it ran compiled."""
    for each in (function, numba.njit(nogil=True)(function)):
        each(*(cupar.view(given) if isinstance(given, cp.ndarray) else given for given in arguments))
        yield


# --- Algorithms


@pytest.mark.parametrize("n", SIZES)
def test_reductions(n):
    total = cupar.reduce_into("i4", "i8", lambda a, b: a + b, 0)
    largest = cupar.reduce_into("f8", "f8", cupar.OpKind.MAXIMUM, 0.0)
    x, y, out, most = numbers(n, "i4"), numbers(n, "f8"), cp.zeros(1, "i8"), cp.zeros(1, "f8")

    def run(x, y, out, most, n):
        total.run(x, out, n, 5)
        largest.run(y, most, n, -7.5)

    for _ in both_ways(run, cp.asarray(x), cp.asarray(y), out, most, n):
        assert (out.item(), most.item()) == (x.sum(dtype="i8") + 5, y.max(initial=-7.5))
        out[:], most[:] = -1, -1


@pytest.mark.parametrize("n", SIZES)
def test_scans(n):
    add = cupar.exclusive_scan("i4", "i8", lambda a, b: a + b, 0)
    largest = cupar.inclusive_scan("f4", "f4", cupar.OpKind.MAXIMUM, None)
    x, y = numbers(n, "i4"), numbers(n, "f4")
    sums, most = cp.zeros(n, "i8"), cp.zeros(n, "f4")

    def run(x, y, sums, most, n):
        add.run(x, sums, n, 3)
        largest.run(y, most, n, None)

    for _ in both_ways(run, cp.asarray(x), cp.asarray(y), sums, most, n):
        assert (sums.get() == 3 + np.cumsum(x, dtype="i8") - x).all()
        assert (most.get() == np.maximum.accumulate(y)).all()
        sums[:], most[:] = -1, -1


@pytest.mark.parametrize("n", SIZES)
def test_transforms(n):
    double = cupar.unary_transform("f4", "f4", lambda a: a + a)
    add = cupar.binary_transform("f4", "f4", "f8", cupar.OpKind.PLUS)
    x, y = numbers(n), numbers(n, seed=1)
    out, sums = cp.zeros(n, "f4"), cp.zeros(n, "f8")

    def run(x, y, out, sums, n):
        double.run(x, out, n)
        add.run(out, y, sums, n)

    for _ in both_ways(run, cp.asarray(x), cp.asarray(y), out, sums, n):
        assert (out.get() == 2 * x).all() and (sums.get() == 2 * x + y).all()
        out[:], sums[:] = -1, -1


@pytest.mark.parametrize("n", SIZES)
def test_numbers_that_operators_read(n):
    """Two algorithms of one build, and an iterator, each with its own."""

    def scaled(k):
        return lambda a: a * k

    by = [cupar.unary_transform("f4", "f8", scaled(k)) for k in (0.3, 0.7, 0.9)]
    counted = cupar.CountingIterator(np.int32(0))
    items = [cupar.TransformIterator(counted, scaled(k), "f8") for k in (3, 5, 7)]
    total = cupar.reduce_into(items[1], "f8", cupar.OpKind.PLUS, np.zeros(1))
    assert by[1].build.key == by[2].build.key
    one, other, five, seven = by[1], by[2], items[1], items[2]
    x, out, more, sums = numbers(n), cp.zeros(n), cp.zeros(n), cp.zeros(2)

    def run(x, out, more, sums, n):
        one.run(x, out, n)
        other.run(x, more, n)
        total.run(five, sums, n, 0.0)
        total.run(seven, sums[1:], n, 0.0)

    for _ in both_ways(run, cp.asarray(x), out, more, sums, n):
        assert (out.get() == x.astype("f8") * 0.7).all() and (more.get() == x.astype("f8") * 0.9).all()
        assert sums.get().tolist() == [each * sum(range(n)) for each in (5, 7)]
        out[:], more[:], sums[:] = -1, -1, -1


@pytest.mark.parametrize("n", SIZES)
def test_selections(n):
    chosen = cupar.select("i4", "i4", "i8", lambda a: a > 3)
    unique = cupar.unique_by_key("i4", "i4", "i4", "i4", "i8", cupar.OpKind.EQUAL_TO)
    x, keys = numbers(n, "i4"), np.sort(numbers(n, "i4", 1))
    out, out_keys, out_items, counts = (cp.zeros(max(n, 2), kind) for kind in ("i4", "i4", "i4", "i8"))

    def run(x, keys, out, out_keys, out_items, counts, n):
        chosen.run(x, out, counts[:1], n)
        unique.run(keys, x, out_keys, out_items, counts[1:], n)

    for _ in both_ways(run, cp.asarray(x), cp.asarray(keys), out, out_keys, out_items, counts, n):
        want, (first, places) = x[x > 3], np.unique(keys, return_index=True)
        assert counts[:2].get().tolist() == [len(want), len(first)]
        assert (out.get()[: len(want)] == want).all()
        assert (out_keys.get()[: len(first)] == first).all()
        assert (out_items.get()[: len(first)] == x[places]).all()
        counts[:] = -1


@pytest.mark.parametrize("n", SIZES)
def test_partitions(n):
    parts = cupar.three_way_partition("i4", "i4", "i4", "i4", "i8", lambda a: a > 3, lambda a: a < 1)
    x, counts = numbers(n, "i4"), cp.zeros(2, "i8")
    outs = [cp.zeros(n, "i4") for _ in range(3)]

    def run(x, first, second, others, counts, n):
        parts.run(x, first, second, others, counts, n)

    for _ in both_ways(run, cp.asarray(x), *outs, counts, n):
        wants = [x[x > 3], x[x < 1], x[(x <= 3) & (x >= 1)]]
        assert counts.get().tolist() == [len(want) for want in wants[:2]]
        for out, want in zip(outs, wants, strict=True):
            assert (out.get()[: len(want)] == want).all()
        counts[:] = -1


@pytest.mark.parametrize("n", SIZES)
def test_sorts(n):
    pairs = cupar.merge_sort("i4", "i4", "i4", "i4", cupar.OpKind.LESS)
    alone = cupar.merge_sort("f4", None, "f4", None, lambda a, b: a > b)
    keys, items, x = numbers(n, "i4"), np.arange(n, dtype="i4"), numbers(n)
    outs = cp.zeros(n, "i4"), cp.zeros(n, "i4"), cp.zeros(n, "f4")

    def run(keys, items, x, out_keys, out_items, out, n):
        pairs.run(keys, items, out_keys, out_items, n)
        alone.run(x, None, out, None, n)

    for _ in both_ways(run, *map(cp.asarray, (keys, items, x)), *outs, n):
        places = np.argsort(keys, kind="stable")
        assert (outs[0].get() == keys[places]).all() and (outs[1].get() == places).all()
        assert (outs[2].get() == np.sort(x)[::-1]).all()
        for out in outs:
            out[:] = -1


@pytest.mark.parametrize("n", SIZES)
def test_radix_sorts(n):
    order = cupar.SortOrder
    pairs = cupar.radix_sort("i4", "i4", "i8", "i8", order.ASCENDING)
    alone = cupar.radix_sort("f4", "f4", None, None, order.DESCENDING)
    low = cupar.radix_sort("u2", "u2", "i8", "i8", order.ASCENDING)
    keys, items, x = numbers(n, "i4"), np.arange(n), numbers(n)
    short = np.random.default_rng(1).integers(0, 2**16, n).astype("u2")
    outs = [cp.zeros(n, kind) for kind in ("i4", "i8", "f4", "u2", "i8")]

    def run(keys, items, x, short, out_keys, out_items, out, out_short, places, n):
        pairs.run(keys, out_keys, items, out_items, n)
        alone.run(x, out, None, None, n)
        low.run(short, out_short, items, places, n, 3, 12)

    for _ in both_ways(run, *map(cp.asarray, (keys, items, x, short)), *outs, n):
        found, places = [each.get() for each in outs], np.argsort(keys, kind="stable")
        assert (found[0] == keys[places]).all() and (found[1] == places).all()
        assert (found[2] == np.sort(x)[::-1]).all()
        places = np.argsort(short >> 3 & 511, kind="stable")
        assert (found[3] == short[places]).all() and (found[4] == places).all()
        for out in outs:
            out[:] = 1


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("m", [0, 7, 100_000])
def test_searches(n, m):
    lower = cupar.lower_bound("f4", "f4", "i4")
    upper = cupar.upper_bound("f4", "f4", "i8", values_sorted=True)
    data, values = np.sort(numbers(n)), np.sort(numbers(m, seed=3))
    first, last = cp.zeros(m, "i4"), cp.zeros(m, "i8")

    def run(data, values, first, last, n, m):
        lower.run(data, n, values, m, first)
        upper.run(data, n, values, m, last)

    for _ in both_ways(run, cp.asarray(data), cp.asarray(values), first, last, n, m):
        assert (first.get() == np.searchsorted(data, values, "left")).all()
        assert (last.get() == np.searchsorted(data, values, "right")).all()
        first[:], last[:] = -1, -1


@pytest.mark.parametrize("lengths", [(1, 30), (1000, 5000), (200_000, 300_000)])
def test_segmented_reductions(lengths):
    total = cupar.segmented_reduce("i4", "i8", "i8", "i8", cupar.OpKind.PLUS, np.zeros(1, "i8"))
    of_rows = cupar.segmented_reduce("i4", "i8", op=cupar.OpKind.PLUS, h_init=np.zeros(1, "i8"))
    offsets = np.concatenate([[0], np.cumsum(np.random.default_rng(0).integers(*lengths, 40))])
    x, matrix = numbers(offsets[-1], "i4"), numbers(40 * lengths[0], "i4", 1).reshape(40, -1)
    sums, of_matrix = cp.zeros(40, "i8"), cp.zeros(40, "i8")

    def run(x, offsets, matrix, sums, of_matrix):
        total.run(x, sums, 40, offsets, offsets[1:], 5)
        of_rows.run(matrix, of_matrix, 40, None, None, 7)

    for _ in both_ways(run, *map(cp.asarray, (x, offsets, matrix)), sums, of_matrix):
        assert (sums.get() == 5 + np.add.reduceat(x.astype("i8"), offsets[:-1])).all()
        assert (of_matrix.get() == 7 + matrix.sum(1, dtype="i8")).all()
        sums[:], of_matrix[:] = -1, -1


@pytest.mark.parametrize("lengths", [(1, 30), (300, 900), (20_000, 50_000)])
def test_segmented_sorts(lengths):
    order = cupar.SortOrder
    pairs = cupar.segmented_sort("i4", "i4", "i4", "i4", "i8", "i8", order.ASCENDING)
    of_rows = cupar.segmented_sort("f4", "f4", order=order.DESCENDING)
    by_op = cupar.segmented_sort("f4", "f4", op=lambda a, b: a > b)
    offsets = np.concatenate([[0], np.cumsum(np.random.default_rng(0).integers(*lengths, 40))])
    keys, items = numbers(offsets[-1], "i4"), np.arange(offsets[-1], dtype="i4")
    matrix = numbers(40 * lengths[0], "f4", 1).reshape(40, -1)
    outs = [cp.asarray(each) for each in (keys, items, matrix, matrix)]

    def run(keys, items, matrix, offsets, out_keys, out_items, out, out_by_op):
        pairs.run(keys, out_keys, items, out_items, keys.size, 40, offsets, offsets[1:])
        of_rows.run(matrix, out, None, None, matrix.size, 40)
        by_op.run(matrix, out_by_op, None, None, matrix.size, 40)

    segments = [slice(*each) for each in pairwise(offsets)]
    places = np.concatenate([each.start + np.argsort(keys[each], kind="stable") for each in segments])
    for _ in both_ways(run, *map(cp.asarray, (keys, items, matrix, offsets)), *outs):
        assert (outs[0].get() == keys[places]).all() and (outs[1].get() == places).all()
        assert all((out.get() == np.sort(matrix)[:, ::-1]).all() for out in outs[2:])
        for out in outs:
            out[:] = -1


@pytest.mark.parametrize("dtype", ["u1", "i4", "u8", "f4"])
@pytest.mark.parametrize("n", SIZES)
def test_histograms(dtype, n):
    count = cupar.histogram_even(dtype, "i4", 5, *(0.0, 4.0) if dtype == "f4" else (0, 4), n)
    x = np.abs(numbers(n, "i4")).astype(dtype)
    few, many = cp.zeros(5, "i4"), cp.zeros(20_000, "i4")

    def run(x, few, many, n, lower, upper):
        count.run(x, few, 6, lower, upper, n)
        count.run(x, many, 20_001, lower, upper * 2000, n)

    for _ in both_ways(run, cp.asarray(x), few, many, n, 0, 50):
        assert (few.get() == np.histogram(x[x < 50].astype("i8"), 5, (0, 50))[0]).all()
        want = np.bincount(x.astype("i8") * 20_000 // 100_000, minlength=20_000)
        assert (many.get() == want).all()
        few[:], many[:] = -1, -1


@pytest.mark.parametrize("n", SIZES)
def test_iterators(n):
    x, keys, out, sums = numbers(n, "i4"), numbers(n, "i4", 1), cp.zeros(3, "i8"), cp.zeros(n, "i8")
    given = cp.asarray(x), cp.asarray(keys)
    weighted = cupar.TransformIterator(
        cupar.ZipIterator(cupar.view(given[0]), cupar.CountingIterator(np.int64(1))),
        lambda a: a[0] * a[1],
        "i8",
    )
    backwards, halves = cupar.ReverseIterator(given[1]), cupar.TransformOutputIterator(sums, lambda a: a // 2)
    total = cupar.reduce_into(weighted, "i8", cupar.OpKind.PLUS, 0)
    scan = cupar.inclusive_scan(backwards, halves, lambda a, b: a + b, 0)

    def run(out, n, backwards):
        total.run(weighted, out, n, 5)
        total.run(weighted + n // 2, out[1:], n - n // 2, 0)
        total.run(n // 3 + weighted, out[2:], 0, 9)
        scan.run(backwards, halves, n, 0)

    products = x * np.arange(1, n + 1)
    for run_it in (run, numba.njit(nogil=True)(run)):
        run_it(cupar.view(out), n, backwards)
        assert out.get().tolist() == [5 + products.sum(), products[n // 2 :].sum(), 9]
        assert (sums.get() == np.cumsum(keys[::-1], dtype="i8") // 2).all()
        out[:], sums[:] = -1, -1


@pytest.mark.parametrize("n", SIZES)
def test_two_phases_with_storage_of_the_callers(n):
    total = cupar.reduce_into("f8", "f8", lambda a, b: a + b, 0.0)
    sort = cupar.merge_sort("f8", None, "f8", None, cupar.OpKind.LESS)
    x, out, ordered, storage = numbers(n, "f8"), cp.zeros(1), cp.zeros(n), cp.zeros(1 << 26, "u1")

    def run(x, out, ordered, storage, n):
        most = max(total(None, x, out, n, 0.0), sort(None, x, None, ordered, None, n))
        total(storage[:most], x, out, n, 1.0)
        sort(storage[:most], x, None, ordered, None, n)
        return most

    before = None
    for run_it in (run, numba.njit(nogil=True)(run)):
        found = run_it(*map(cupar.view, (cp.asarray(x), out, ordered, storage)), n)
        assert before in (None, found) and 0 < found <= storage.size
        assert out.item() == 1 + x.sum() and (ordered.get() == np.sort(x)).all()
        out[:], ordered[:], before = -1, -1, found
    if found > 1:
        with pytest.raises(ValueError, match="^temp_storage: needs more bytes"):
            numba.njit(lambda x, out, t, n: total(t, x, out, n, 0.0) + sort(t, x, None, x, None, n))(
                *map(cupar.view, (cp.asarray(x), out, storage[:0])), n
            )


# --- Kernels


@cupar.jit
def axpy(x, y, out, n, alpha):
    i = cuda.grid(1)
    if i < n:
        out[i] = alpha * x[i] + y[i]


@pytest.mark.parametrize("dtype", ["i1", "i4", "u8", "f2", "f4", "f8"])
@pytest.mark.parametrize("n", [1, 1000, 100_001])
def test_launches(dtype, n):
    x, y = (numbers(n, dtype, seed) % 20 for seed in (1, 2))
    out = cp.zeros(n, "f8")

    def run(x, y, out, n, alpha):
        axpy[(n + 127) // 128, 128](x, y, out, n, alpha)

    for _ in both_ways(run, cp.asarray(x), cp.asarray(y), out, n, 3.0):
        np.testing.assert_array_equal(out.get(), 3.0 * x.astype("f8") + y.astype("f8"))
        out[:] = -1


def test_arrays_of_any_strides():
    @cupar.jit
    def copy(x, out, t):
        i, j = cuda.grid(2)
        if i < x.shape[0] and j < x.shape[1]:
            out[i, j] = t[0] * x[i, j] + t[1][1]

    host = numbers(60 * 70).reshape(60, 70)
    for given in (
        cp.asarray(host),
        cp.asarray(host).T,
        cp.asarray(host)[::3, 5:50:2],
        cp.asfortranarray(cp.asarray(host)),
    ):
        out = cp.zeros(given.shape, "f4")

        def run(x, out, factor):
            copy[(5, 5), (16, 16)](x, out, (factor, (1, 2.5)))
            copy[(1, 1), (4, 4)](x[2:6, ::2], out[2:6, :6], (10 * factor, (1, 2)))

        for _ in both_ways(run, given, out, 2):
            want = 2 * given.get() + np.float32(2.5)
            part = given.get()[2:6, ::2][:4, :4]
            want[2 : 2 + part.shape[0], : part.shape[1]] = 20 * part + 2
            np.testing.assert_array_equal(out.get(), want)
            out[:] = -1


def test_scalars_named_tuples_and_declared_types():
    @cupar.jit("void(complex128[:], float32, int16)")
    def declared(out, number, small):
        out[0] = number + small

    @cupar.jit
    def store(out, number, pair, flag):
        if flag:
            out[1], out[2] = number, pair.x + 1j * pair.y

    out = cp.zeros(3, "c16")

    def run(out, pair):
        declared[1, 1](out, 0.5, 7)
        store[1, 1](out, 2 - 3j, pair, True)
        store[1, 1](out, 99.0, pair, False)

    for _ in both_ways(run, out, Pair(3, 4.5)):
        assert out.get().tolist() == [7.5, 2 - 3j, 3 + 4.5j]
        out[:] = 0


def test_shared_memory_and_whole_grids():
    @cupar.jit
    def reverse(x):
        here = cuda.shared.array(0, numba.float64)
        i = cuda.threadIdx.x
        here[i] = x[i]
        cuda.syncthreads()
        x[i] = here[cuda.blockDim.x - 1 - i]

    @cupar.jit
    def rounds(x, n):
        i = cuda.grid(1)
        for _ in range(n):
            before = x[(i + 1) % x.size]
            cuda.cg.this_grid().sync()
            x[i] += before
            cuda.cg.this_grid().sync()

    def run(x, y, nbytes):
        reverse[1, 1024, 0, nbytes](x)
        rounds[4, 64](y, 3)

    for _ in both_ways(run, (x := cp.arange(1024, dtype="f8")), (y := cp.ones(256, "i8")), 8192):
        assert (x.get() == np.arange(1024)[::-1]).all() and (y == 8).all()
        x[:], y[:] = cp.arange(1024), 1


def test_enough_threads_for_all():
    @cupar.jit
    def count(x):
        i = cuda.grid(1)
        if i < x.size:
            cuda.atomic.add(x, i, 1)

    def run(x):
        count.forall(x.size)(x)
        count.forall(x.size, 32)(x)
        count.forall(0)(x)

    for n in (1, 1000, 1_000_003):
        x = cp.zeros(n, "i4")
        for times, _ in enumerate(both_ways(run, x), start=1):
            assert (x == 2 * times).all()


def test_what_this_card_cannot_have():
    launch = numba.njit(lambda x, block, shared: axpy[1, block, 0, shared](x, x, x, 1, 1.0))
    x = cupar.view(cp.zeros(10, "f4"))
    with pytest.raises(ValueError, match="^shared: more shared memory"):
        launch(x, 32, 300_000)
    with pytest.raises(ValueError, match="^block: expected 1 to 1024 in x"):
        launch(x, 1025, 0)
    launch(x, 32, 100_000)  # more than 48 kB
    cooperative = cupar.jit(whole_grid)
    with pytest.raises(
        cupar.DriverError, match="kernel whole_grid, from compiled code: .*COOPERATIVE_LAUNCH_TOO"
    ):
        numba.njit(lambda x: cooperative[100_000, 1024](x=x))(x)
    cp.cuda.Device().synchronize()


def whole_grid(x):
    cuda.cg.this_grid().sync()
    x[0] = 1


# --- A loop with no Python in it


@cupar.jit
def diffuse(u, v):
    i = cuda.grid(1)
    if i < u.size:
        left, right = u[max(i - 1, 0)], u[min(i + 1, u.size - 1)]
        v[i] = u[i] + 0.25 * (left - 2 * u[i] + right)


def steps(u, v, total, times, stream):
    for _ in range(times):
        diffuse[(u.size + 255) // 256, 256, stream](u, v)
        u, v = v, u
    ADD.run(u, total, u.size, 0.0, stream)


ADD = cupar.reduce_into("f8", "f8", cupar.OpKind.PLUS, 0.0)


def diffused(n, times):
    u = np.random.default_rng(n).random(n)
    start = u
    for _ in range(times):
        u = u + 0.25 * (np.pad(u, (1, 0), "edge")[:-1] - 2 * u + np.pad(u, (0, 1), "edge")[1:])
    return start, u


@pytest.fixture(scope="module")
def compiled():
    return numba.njit(nogil=True)(steps)


@pytest.mark.parametrize("n", [1000, 300_000])
def test_steps_in_time(compiled, n):
    start, want = diffused(n, 50)
    stream = cp.cuda.Stream(non_blocking=True)
    for run in (steps, compiled):
        u, v, total = cp.asarray(start), cp.zeros(n), cp.zeros(1)
        cp.cuda.Device().synchronize()
        run(*map(cupar.view, (u, v, total)), 50, stream.ptr)
        stream.synchronize()
        np.testing.assert_allclose(u.get(), want, rtol=1e-12)
        np.testing.assert_allclose(total.item(), want.sum(), rtol=1e-12)


def test_captured_in_a_graph(compiled):
    start, want = diffused(300_000, 20)
    u, v, total = cp.asarray(start), cp.zeros(len(start)), cp.zeros(1)
    given = [cupar.view(each) for each in (u, v, total)]
    compiled(*given, 0, 0)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        compiled(*given, 20, stream.ptr)
        graph = stream.end_capture()
    for _ in range(3):
        u[:], total[:] = cp.asarray(start), -1
        cp.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        np.testing.assert_allclose(u.get(), want, rtol=1e-12)
        np.testing.assert_allclose(total.item(), want.sum(), rtol=1e-12)


def test_launches_wait_for_nothing(compiled):
    start, want = diffused(1000, 4)
    u, v, total = cp.asarray(start), cp.zeros(1000), cp.zeros(1)
    given = [cupar.view(each) for each in (u, v, total)]
    stream = cp.cuda.Stream(non_blocking=True)
    compiled(*given, 0, stream.ptr)
    cp.cuda.Device().synchronize()
    spin(stream, 0.3)
    compiled(*given, 4, stream.ptr)
    assert not stream.done
    stream.synchronize()
    np.testing.assert_allclose(total.item(), want.sum(), rtol=1e-12)


# --- Threads and contexts


def test_a_thread_without_context(compiled):
    start, want = diffused(1000, 4)
    u, v, total = cp.asarray(start), cp.zeros(1000), cp.zeros(1)
    given, errors = [cupar.view(each) for each in (u, v, total)], []
    compiled(*given, 0, 0)
    cp.cuda.Device().synchronize()

    def work():
        try:
            compiled(*given, 4, 0)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    cp.cuda.Device().synchronize()
    assert not errors
    np.testing.assert_allclose(total.item(), want.sum(), rtol=1e-12)


def test_parallel_loops():
    """Threads of numba's, which Python does not know, launch on streams of their own."""
    add = cupar.binary_transform("i4", "i4", "i4", cupar.OpKind.PLUS)

    @cupar.jit
    def increment(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] += 1

    @numba.njit(parallel=True, nogil=True)
    def run(x, streams, times):
        for k in numba.prange(len(streams)):
            for _ in range(times):
                increment[4, 256, streams[k]](x[k])
            add.run(x[k], x[k], x[k], 1000, streams[k])

    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(16)]
    x = cp.zeros((16, 1000), "i4")
    cp.cuda.Device().synchronize()
    run(cupar.view(x), np.array([each.ptr for each in streams]), 100)
    cp.cuda.Device().synchronize()
    assert (x == 200).all()


def test_other_threads_run_meanwhile():
    @cupar.jit
    def nothing():
        pass

    @numba.njit(nogil=True)
    def until(flag, most):
        for k in range(most):
            nothing[1, 1]()
            if flag[0]:
                return k
        return -1

    flag, found = np.zeros(1, "i8"), []
    until(flag, 1)
    thread = threading.Thread(target=lambda: found.append(until(flag, 3_000_000)))
    thread.start()
    flag[0] = 1  # which only happens soon if the thread does not keep the lock
    thread.join()
    assert found[0] >= 0


def test_kernels_and_algorithms_as_arguments_in_two_contexts():
    @cupar.jit
    def increment(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] += 1

    total = cupar.reduce_into("i4", "i4", cupar.OpKind.PLUS, 0)

    @numba.njit
    def run(kernel, algorithm, x, out):
        kernel[(x.size + 255) // 256, 256](x)
        algorithm.run(x, out, x.size, 0)

    def check():
        x, out = Memory(np.arange(300_000, dtype="i4") % 7), Memory(np.zeros(1, "i4"))
        run(increment, total, cupar.view(x), cupar.view(out))
        assert (x.get() == x.host + 1).all() and out.get()[0] == (x.host + 1).sum()

    check()
    with second_context() as other:
        with current(other):
            check()
        check()
        with current(other):
            check()
    check()
