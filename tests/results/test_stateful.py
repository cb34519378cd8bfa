"""Operators that capture device arrays, and RawOps with a state, against NumPy."""

import gc
import struct
import threading

import numpy as np
import pytest
from numba import cuda as numba_cuda
from support.results import cp, needs_gpu

import cupar
from cupar import OpKind, RawOp, gpu_struct
from cupar._compile import nvrtc

SIZES = [0, 1, 31, 1000, 100_003]
N = SIZES[-1]


@pytest.fixture
def places(rng):
    """Indices into arrays of 1000 items."""
    return rng.integers(0, 1000, N).astype("i4")


def values(rng, dtype, shape=1000):
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    found = rng.integers(-100, 100, shape)
    return (found + 1j * rng.integers(-100, 100, shape) if dtype.kind == "c" else found).astype(dtype)


def lookup(table):
    return lambda a: table[a]


TABLE = None  # bound by the tests


def read_global(a):
    return TABLE[a] * len(TABLE)


# --- Reading ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["?", "u8", pytest.param("f2", marks=needs_gpu), "f4", "c16"])
def test_lookup(dtype, places, rng):
    table = values(rng, dtype)
    d_in, d_table = cp.asarray(places), cp.asarray(table)
    d_out = cp.zeros(N, dtype)
    transform = cupar.unary_transform(d_in, d_out, lookup(d_table))
    for n in SIZES:
        d_out.fill(0)
        transform(d_in, d_out, n)
        np.testing.assert_array_equal(d_out.get()[:n], table[places[:n]])
        assert not d_out.get()[n:].any()


def test_several_arrays_in_closure_and_globals(places, rng):
    """Of one dtype and shape, so that it shows if one is taken for another."""
    global TABLE
    tables = [values(rng, "i8") for _ in range(4)]
    zulu, alpha, mike, TABLE = map(cp.asarray, tables)
    factor = 10_000
    d_in, d_out = cp.asarray(places), cp.zeros(N, "i8")
    op = lambda a: ((zulu[a] * factor + alpha[a]) * factor + mike[a]) * factor + TABLE[a]
    cupar.unary_transform(d_in, d_out, op)(d_in, d_out, N)
    z, a, m, t = (table[places] for table in tables)
    np.testing.assert_array_equal(d_out.get(), ((z * factor + a) * factor + m) * factor + t)


def test_two_and_three_dimensions(places, rng):
    grid, cube = values(rng, "i4", (1000, 7)), values(rng, "f8", (3, 1000, 5))
    d_grid, d_cube, d_in, d_out = cp.asarray(grid), cp.asarray(cube), cp.asarray(places), cp.zeros(N, "f8")

    def op(a):
        total = 0.0
        for j in range(d_grid.shape[1]):
            total += d_grid[a, j]
        for i in range(d_cube.shape[0]):
            total += d_cube[i, a, 2] * d_cube[i][a][4]
        return total + len(d_grid) + d_cube.shape[2]

    cupar.unary_transform(d_in, d_out, op)(d_in, d_out, N)
    expected = grid.sum(axis=1) + (cube[:, :, 2] * cube[:, :, 4]).sum(axis=0) + 1005
    np.testing.assert_array_equal(d_out.get(), expected[places])


def test_read_in_loops_and_branches(places, rng):
    """Counts of the levels below a value, by search in a table."""
    levels = np.sort(rng.integers(0, 1000, 50)).astype("i4")
    d_levels, d_in, d_out = cp.asarray(levels), cp.asarray(places), cp.zeros(N, "i4")

    def op(a):
        low, high = 0, len(d_levels)
        while low < high:
            middle = (low + high) // 2
            if d_levels[middle] < a:
                low = middle + 1
            else:
                high = middle
        return low

    cupar.unary_transform(d_in, d_out, op)(d_in, d_out, N)
    np.testing.assert_array_equal(d_out.get(), np.searchsorted(levels, places))


def test_jitted_operators_and_helpers(places, rng):
    table = values(rng, "i8")
    d_table, d_in, d_out = cp.asarray(table), cp.asarray(places), cp.zeros(N, "i8")
    item = lambda array, i: array[i] + len(array)
    square = numba_cuda.jit(device=True)(lambda x: x * x)
    op = numba_cuda.jit(device=True)(lambda a: square(d_table[a]))
    for op, expected in (
        (op, table[places] ** 2),
        (lambda a: item(d_table, a) + square(a), table[places] + 1000 + places.astype("i8") ** 2),
    ):
        cupar.unary_transform(d_in, d_out, op)(d_in, d_out, N)
        np.testing.assert_array_equal(d_out.get(), expected)


@needs_gpu
def test_arrays_of_structs(places, rng):
    point = gpu_struct({"x": "f8", "y": "i4"})
    host = np.zeros(1000, point.dtype)
    host["x"], host["y"] = values(rng, "f8"), values(rng, "i4")
    table = numba_cuda.to_device(host)
    d_in, d_out = cp.asarray(places), cp.zeros(N, "f8")
    cupar.unary_transform(d_in, d_out, lambda a: table[a].x * table[a].y)(d_in, d_out, N)
    np.testing.assert_array_equal(d_out.get(), (host["x"] * host["y"])[places])


@needs_gpu
def test_arrays_of_other_libraries(places, rng):
    table = values(rng, "f4")
    arrays = [numba_cuda.to_device(table), cp.asarray(table)]
    try:
        import torch

        arrays.append(torch.as_tensor(table, device="cuda"))
    except ImportError:
        pass
    for array in arrays:
        d_in, d_out = cp.asarray(places), cp.zeros(N, "f4")
        cupar.unary_transform(d_in, d_out, lookup(array))(d_in, d_out, N)
        np.testing.assert_array_equal(d_out.get(), table[places])


# --- In all algorithms -----------------------------------------------------------------------------------


def test_reduce_and_scan(places, rng):
    """The greatest by rank, which a table tells."""
    rank = rng.permutation(1000)
    d_rank, d_in = cp.asarray(rank), cp.asarray(places)
    better = lambda a, b: a if d_rank[a] > d_rank[b] else b
    d_out, d_all = cp.zeros(1, "i4"), cp.zeros(N, "i4")
    reduction = cupar.reduce_into(d_in, d_out, better, 0)
    scan = cupar.exclusive_scan(d_in, d_all, better, 0)
    by_rank = np.argsort(rank)
    running = by_rank[np.maximum.accumulate(rank[np.concatenate([[0], places])])]
    for n in SIZES:
        reduction.run(d_in, d_out, n, 0)
        assert d_out.get()[0] == running[n]
        d_all.fill(-1)
        scan.run(d_in, d_all, n, 0)
        np.testing.assert_array_equal(d_all.get()[:n], running[:n])
        assert (d_all.get()[n:] == -1).all()
    nbytes = reduction(None, d_in, d_out, N, 0)
    d_out.fill(-1)
    reduction(cp.empty(max(nbytes, 1), "u1"), d_in, d_out, N, 0)
    assert d_out.get()[0] == running[N]


def test_segmented_reduce(places, rng):
    weights = values(rng, "i4")
    d_weights, d_in, d_out = cp.asarray(weights), cp.asarray(places), cp.zeros(100, "i4")
    start = rng.integers(0, N, 100)
    end = np.minimum(start + rng.integers(0, 2000, 100), N)
    d_start, d_end = cp.asarray(start), cp.asarray(end)

    def heavier(a, b):
        if d_weights[a] == d_weights[b]:
            return min(a, b)
        return a if d_weights[a] > d_weights[b] else b

    reduction = cupar.segmented_reduce(d_in, d_out, d_start, d_end, heavier, 0)
    reduction.run(d_in, d_out, 100, d_start, d_end, 0)
    found = [max([0, *places[s:e].tolist()], key=lambda i: (weights[i], -i)) for s, e in zip(start, end)]
    assert d_out.get().tolist() == found


def test_merge_sort(places, rng):
    rank = rng.permutation(1000)
    d_rank, d_in = cp.asarray(rank), cp.asarray(places)
    d_items, d_keys, d_out = cp.arange(N), cp.zeros(N, "i4"), cp.zeros(N, "i8")
    sort = cupar.merge_sort(d_in, d_items, d_keys, d_out, lambda a, b: d_rank[a] < d_rank[b])
    for n in SIZES:
        sort.run(d_in, d_items, d_keys, d_out, n)
        order = np.argsort(rank[places[:n]], kind="stable")
        np.testing.assert_array_equal(d_out.get()[:n], order)
        np.testing.assert_array_equal(d_keys.get()[:n], places[:n][order])


def test_unique_by_key(places, rng):
    kinds = rng.integers(0, 3, 1000)
    d_kinds, d_in, d_items = cp.asarray(kinds), cp.asarray(places), cp.arange(N)
    d_keys, d_out, d_count = cp.zeros(N, "i4"), cp.zeros(N, "i8"), cp.zeros(1, "i8")
    same = lambda a, b: d_kinds[a] == d_kinds[b]
    unique = cupar.unique_by_key(d_in, d_items, d_keys, d_out, d_count, same)
    for n in SIZES:
        unique.run(d_in, d_items, d_keys, d_out, d_count, n)
        found = kinds[places[:n]]
        first = np.flatnonzero(np.concatenate([np.ones(min(n, 1), bool), found[1:] != found[:-1]]))
        count = int(d_count.get()[0])
        np.testing.assert_array_equal(d_out.get()[:count], first)
        np.testing.assert_array_equal(d_keys.get()[:count], places[first])


def test_select(places, rng):
    wanted = rng.random(1000) < 0.3
    d_wanted, d_in, d_count = cp.asarray(wanted), cp.asarray(places), cp.zeros(1, "i8")
    d_out = cp.zeros(N, "i4")
    selection = cupar.select(d_in, d_out, d_count, lookup(d_wanted))
    for n in SIZES:
        selection.run(d_in, d_out, d_count, n)
        expected = places[:n][wanted[places[:n]]]
        assert int(d_count.get()[0]) == len(expected)
        np.testing.assert_array_equal(d_out.get()[: len(expected)], expected)


def test_three_way_partition_by_two_tables(places, rng):
    first, second = rng.random((2, 1000)) < 0.4
    d_first, d_second, d_in = cp.asarray(first), cp.asarray(second), cp.asarray(places)
    outputs, d_count = [cp.zeros(N, "i4") for _ in range(3)], cp.zeros(2, "i8")
    one, two = lookup(d_first), lookup(d_second)
    stateless = lambda a: a < 500
    for first_op, second_op, is_first, is_second in (
        (one, two, first, second),
        (two, one, second, first),
        (stateless, two, np.arange(1000) < 500, second),
    ):
        partition = cupar.three_way_partition(d_in, *outputs, d_count, first_op, second_op)
        for n in SIZES:
            partition.run(d_in, *outputs, d_count, n)
            in_first = is_first[places[:n]]
            in_second = ~in_first & is_second[places[:n]]
            assert d_count.get().tolist() == [in_first.sum(), in_second.sum()]
            parts = in_first, in_second, ~in_first & ~in_second
            for output, part in zip(outputs, parts, strict=True):
                np.testing.assert_array_equal(output.get()[: part.sum()], places[:n][part])


def test_binary_search(places, rng):
    rank = rng.permutation(1000)
    data = np.argsort(rank)[::2].astype("i4")
    d_rank, d_data, d_values = cp.asarray(rank), cp.asarray(data), cp.asarray(places)
    d_out = cp.zeros(N, "i8")
    before = lambda a, b: d_rank[a] < d_rank[b]
    search = cupar.lower_bound(d_data, d_values, d_out, comp=before)
    search.run(d_data, len(data), d_values, N, d_out)
    np.testing.assert_array_equal(d_out.get(), np.searchsorted(rank[data], rank[places]))


# --- Writing ---------------------------------------------------------------------------------------------


@needs_gpu
def test_counter(places):
    d_counter, d_in, d_out = cp.zeros(2, "i4"), cp.asarray(places), cp.zeros(N, "i4")

    def counted(a):
        numba_cuda.atomic.add(d_counter, 0, 1)
        if a % 2:
            numba_cuda.atomic.add(d_counter, 1, a)
        return a

    transform = cupar.unary_transform(d_in, d_out, counted)
    for n in SIZES:
        d_counter.fill(0)
        transform(d_in, d_out, n)
        odd = places[:n][places[:n] % 2 == 1]
        assert d_counter.get().tolist() == [n, odd.sum()]
    transform(d_in, d_out, 1000)
    assert d_counter.get()[0] == N + 1000
    np.testing.assert_array_equal(d_out.get(), places)


def test_scatter(rng):
    order = rng.permutation(N).astype("i4")
    d_in, d_out, d_back = cp.asarray(order), cp.zeros(N, "i4"), cp.zeros((N, 2), "i8")

    def scatter(a):
        d_back[a, 1] = 3 * a
        return a

    cupar.unary_transform(d_in, d_out, scatter)(d_in, d_out, N)
    np.testing.assert_array_equal(d_back.get(), np.stack([np.zeros(N), 3 * np.arange(N)], axis=1))


# --- Other arrays ----------------------------------------------------------------------------------------


def test_a_global_that_is_bound_to_other_arrays(places, rng):
    global TABLE
    tables = [values(rng, "i8", size) for size in (1000, 2000, 1001)]
    TABLE = cp.asarray(tables[0])
    keep = [TABLE]
    d_in, d_out = cp.asarray(places), cp.zeros(N, "i8")
    transform = cupar.unary_transform(d_in, d_out, read_global)
    for table in tables:
        TABLE = cp.asarray(table)
        keep.append(TABLE)
        transform(d_in, d_out, N)
        np.testing.assert_array_equal(d_out.get(), table[places] * len(table))
    TABLE = cp.asarray(tables[0].astype("f8"))
    with pytest.raises(TypeError, match="captured array 'TABLE': .*built for int64, got an array of float64"):
        transform(d_in, d_out, N)
    TABLE = cp.asarray(tables[1].reshape(2, 1000))
    with pytest.raises(ValueError, match="captured array 'TABLE': .*built for 1 dimensions, got 2"):
        transform(d_in, d_out, N)
    TABLE = cp.asarray(tables[1])[::2]
    with pytest.raises(ValueError, match="captured array 'TABLE': .*C-contiguous"):
        transform(d_in, d_out, N)
    TABLE = keep[0]
    transform(d_in, d_out, N)
    np.testing.assert_array_equal(d_out.get(), tables[0][places] * 1000)


def read_in_a_function_within(a):
    inner = lambda i: TABLE[i] * 2
    return inner(a)


def test_a_global_that_is_read_in_a_function_within():
    global TABLE
    TABLE = cp.zeros(10, "i8")
    with pytest.raises(TypeError, match="'TABLE' is a global that a function within the operator reads"):
        cupar.unary_transform("i8", "i8", read_in_a_function_within)


def test_closures_that_share_a_build(places, rng):
    tables = [values(rng, "i8", size) for size in (1000, 1500)]
    d_in, d_out = cp.asarray(places), cp.zeros(N, "i8")

    def make(table):
        return lambda a: table[a] + 2 * len(table)

    algorithms = [cupar.unary_transform(d_in, d_out, make(cp.asarray(table))) for table in tables]
    gc.collect()  # what an algorithm has captured lives as long as the algorithm
    assert algorithms[0].build.key == algorithms[1].build.key
    assert algorithms[1].build.origin == "memory"
    for _ in range(2):
        for algorithm, table in zip(algorithms, tables, strict=True):
            algorithm(d_in, d_out, N)
            np.testing.assert_array_equal(d_out.get(), table[places] + 2 * len(table))


def test_a_closure_variable_that_changes(places, rng):
    tables = [values(rng, "i8") for _ in range(3)]
    current = cp.asarray(tables[0])
    d_in, d_out = cp.asarray(places), cp.zeros(N, "i8")
    transform = cupar.unary_transform(d_in, d_out, lambda a: current[a])
    for table in tables:
        current = cp.asarray(table)
        transform(d_in, d_out, N)
        np.testing.assert_array_equal(d_out.get(), table[places])


def test_contents_that_change(places, rng):
    d_table, d_in, d_out = cp.zeros(1000, "f4"), cp.asarray(places), cp.zeros(N, "f4")
    transform = cupar.unary_transform(d_in, d_out, lookup(d_table))
    for _ in range(2):
        table = values(rng, "f4")
        d_table[:] = cp.asarray(table)
        transform(d_in, d_out, N)
        np.testing.assert_array_equal(d_out.get(), table[places])


@pytest.mark.usefixtures("optimised")
def test_many_threads_with_arrays_of_their_own(places):
    d_in = cp.asarray(places)
    wrong = []

    def make(table, offset):
        return lambda a: table[a] + offset[0]

    def work(i):
        stream = cp.cuda.Stream(non_blocking=True)
        with stream:
            host = np.arange(1000, dtype="i8") * (i + 1)
            d_table, d_offset = cp.asarray(host), cp.full(1, 10_000 * i, "i8")
            d_out, d_sum = cp.zeros(N, "i8"), cp.zeros(1, "i8")
            op = make(d_table, d_offset)
            transform = cupar.unary_transform(d_in, d_out, op)
            total = cupar.reduce_into(
                cupar.TransformIterator(d_in, op, "i8"), d_sum, OpKind.PLUS, np.int64(0)
            )
            for repeat in range(50):
                n = N - 17 * repeat
                iterator = cupar.TransformIterator(d_in, op, "i8")
                transform(d_in, d_out, n, stream=stream)
                total.run(iterator, d_sum, n, np.int64(0), stream=stream)
                expected = host[places[:n]] + 10_000 * i
                if d_sum.get(stream=stream)[0] != expected.sum():
                    wrong.append((i, repeat, "sum"))
                if (d_out.get(stream=stream)[:n] != expected).any():
                    wrong.append((i, repeat, "items"))

    cp.cuda.Device().synchronize()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- In iterators ----------------------------------------------------------------------------------------


def test_iterators(places, rng):
    global TABLE
    TABLE, weights = cp.asarray(values(rng, "i8")), values(rng, "i8")
    d_weights, d_in, d_out = cp.asarray(weights), cp.asarray(places), cp.zeros(1, "i8")
    items = cupar.TransformIterator(d_in, lambda a: TABLE[a] * d_weights[a])
    assert items.dtype == np.int64
    total = cupar.reduce_into(items, d_out, OpKind.PLUS, np.int64(5))
    for _ in range(2):
        products = TABLE.get()[places] * weights[places]
        for n in SIZES:
            total.run(items, d_out, n, np.int64(5))
            assert d_out.get()[0] == products[:n].sum() + 5
        total.run(items + 1000, d_out, N - 1000, np.int64(5))
        assert d_out.get()[0] == products[1000:].sum() + 5
        TABLE = cp.asarray(values(rng, "i8", 1200))


def test_output_iterators(places, rng):
    offsets = values(rng, "i8")
    d_offsets, d_in, d_out = cp.asarray(offsets), cp.asarray(places), cp.zeros(N, "i8")
    output = cupar.TransformOutputIterator(d_out, lambda a: a + d_offsets[3], "i8")
    scan = cupar.inclusive_scan(d_in, output, OpKind.PLUS, np.zeros(1, "i8"))
    scan.run(d_in, output, N, np.zeros(1, "i8"))
    np.testing.assert_array_equal(d_out.get(), np.cumsum(places, dtype="i8") + offsets[3])


def test_an_iterator_and_an_operator_with_arrays_of_their_own(places, rng):
    inner, outer = values(rng, "i8"), values(rng, "i8")
    d_inner, d_outer, d_in = cp.asarray(inner), cp.asarray(outer), cp.asarray(places)
    d_out = cp.zeros(N, "i8")
    items = cupar.TransformIterator(d_in, lookup(d_inner), "i8")
    transform = cupar.unary_transform(items, d_out, lambda a: a * 1000 + d_outer[a % 1000])
    transform(items, d_out, N)
    found = inner[places]
    np.testing.assert_array_equal(d_out.get(), found * 1000 + outer[found % 1000])


# --- RawOps ----------------------------------------------------------------------------------------------

LOOK_UP = """
struct State { const float* table; long long offset; };
extern "C" __device__ void look_up(void* state, void* a, void* result) {
  auto s = static_cast<const State*>(state);
  *static_cast<float*>(result) = s->table[*static_cast<int*>(a) + s->offset];
}
"""

ADD = """
struct State { const float* scale; int* counter; };
extern "C" __device__ void add(void* state, void* a, void* b, void* result) {
  auto s = static_cast<const State*>(state);
  atomicAdd(s->counter, 1);
  *static_cast<float*>(result) = *s->scale * fmaxf(*static_cast<float*>(a), *static_cast<float*>(b));
}
"""


def raw(name, source, state):
    cc = cupar._device.driver.current_device().cc
    return RawOp(name, nvrtc.compile_cpp(source, cc), state=state, state_alignment=8)


@needs_gpu
def test_raw_states(places, rng):
    table = values(rng, "f4", 2000)
    d_table, d_in, d_out = cp.asarray(table), cp.asarray(places), cp.zeros(N, "f4")
    d_sum = cp.zeros(1, "f4")
    origins = []
    for offset in (0, 500, 1000):
        op = raw("look_up", LOOK_UP, struct.pack("<Qq", d_table.data.ptr, offset))
        transform = cupar.unary_transform(d_in, d_out, op)
        origins.append(transform.build.origin)
        transform(d_in, d_out, N)
        np.testing.assert_array_equal(d_out.get(), table[places + offset])
        items = cupar.TransformIterator(d_in, op, "f4")
        total = cupar.reduce_into(items, d_sum, OpKind.MAXIMUM, np.float32(-1000))
        total.run(items, d_sum, N, np.float32(-1000))
        assert d_sum.get()[0] == table[places + offset].max()
    assert origins[1:] == ["memory", "memory"]


@needs_gpu
def test_raw_states_in_reductions(rng):
    host = values(rng, "f4", N)
    d_in, d_out, d_scale, d_counter = cp.asarray(host), cp.zeros(1, "f4"), cp.ones(1, "f4"), cp.zeros(1, "i4")
    op = raw("add", ADD, struct.pack("<QQ", d_scale.data.ptr, d_counter.data.ptr))
    reduction = cupar.reduce_into(d_in, d_out, op, np.float32(-1000))
    for n in SIZES[1:]:
        d_counter.fill(0)
        reduction.run(d_in, d_out, n, np.float32(-1000))
        assert d_out.get()[0] == host[:n].max()
        assert int(d_counter.get()[0]) >= n  # some threads combine what nobody needs
