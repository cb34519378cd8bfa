"""Reductions and scans by key, and run-length encodings, against NumPy."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.operators import add, either
from support.results import DTYPES, IS_CPU, Interface, address, cp, described, every, few, needs_gpu

import cupar
from cupar import ConstantIterator, CountingIterator, DiscardIterator, OpKind, ReverseIterator, ZipIterator

COUNTS = ["i4", "u4", "i8", "u8"]
# Around the tiles that there are, their double, which one block takes, and what a warp looks back on at once.
SIZES = [0, 1, 2, 31, 33, 767, 768, 769, 1537, 2303, 2304, 2305, 2816, 2817, 5633, 7681, 11_265, 100_003]
MEANS = [1, 4, 700, 0]  # 0: one run
MANY = 2**20 + 3

KEY = np.dtype([("id", "i4"), ("time", "f8")], align=True)
AFFINE = np.dtype([("a", "u4"), ("b", "u4")], align=True)
WIDE = np.dtype([(f"x{i}", "i8") for i in range(6)], align=True)


def last_nonzero(a, b):
    return b if b != 0 else a


def composed(f, g):
    """Return the map that is f, and then g: not commutative."""
    return f.a * g.a, f.b * g.a + g.b


def combined(x, y):
    return x.x0 + y.x0, x.x1 + y.x1, y.x2, x.x3, x.x4, x.x5 + y.x5


def same_id(a, b):
    return a.id == b.id


def same_ten(a, b):
    return a // 10 == b // 10


class Array(Interface):
    """An array of any dtype, structs too, that begins `shift` items after an aligned address."""

    def __init__(self, host, shift=0):
        self.dtype, self.n, size = host.dtype, len(host), host.dtype.itemsize
        self.raw = cp.full((len(host) + shift + 1) * size, 77, "u1")
        self.bytes = self.raw[shift * size : (shift + len(host)) * size]
        self.bytes[:] = cp.asarray(np.frombuffer(host.tobytes(), "u1"))

    def described(self):
        of_items = {"shape": (self.n,), "typestr": self.dtype.str, "strides": None}
        of_structs = {"descr": self.dtype.descr} if self.dtype.names else {}
        return {**described(self.bytes), **of_items, **of_structs}

    def get(self):
        return np.frombuffer(self.bytes.get().tobytes(), self.dtype)

    def is_all_there(self):
        """Whether nothing around it was written."""
        begin = address(self.bytes) - address(self.raw)
        around = self.raw.get()
        return bool((np.delete(around, slice(begin, begin + self.bytes.size)) == 77).all())


def empty(n, dtype, shift=0):
    return Array(np.zeros(n, dtype), shift)


def lengths(rng, n, mean):
    """Return lengths of runs that make n items together."""
    if n == 0:
        return np.zeros(0, "i8")
    begins = rng.random(n) < (1 / mean if mean else 0)
    begins[0] = True
    return np.diff(np.append(np.flatnonzero(begins), n))


def keys_of(run_lengths, dtype, step=1):
    """Return keys that change with each run."""
    dtype = np.dtype(dtype)
    most = {1: 100, 2: 2000}.get(dtype.itemsize, 1 << 20) if dtype.kind != "b" else 2
    ids = np.repeat(np.arange(len(run_lengths)) % most * step, run_lengths)
    if dtype.names is None:
        return ids.astype(dtype)
    keys = np.zeros(len(ids), dtype)
    keys["id"], keys["time"] = ids, np.arange(len(ids))
    return keys


def values_of(rng, n, dtype):
    """Return values whose sums are exact."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(n) < 0.1
    if dtype.kind == "c":
        return (rng.integers(-4, 5, n) + 1j * rng.integers(-4, 5, n)).astype(dtype)
    if dtype == "f2":
        return (np.arange(n) % max(1, n // 200) == 0).astype(dtype)  # so few that sums are below 2048
    return rng.integers(0 if dtype.kind == "u" else -4, 5, n).astype(dtype)


def sums_of(values, run_lengths, h_init=0):
    """Return the inclusive sums of each run, in a dtype that holds them, and the exclusive ones."""
    wide = {"f": "f8", "c": "c16", "u": "u8"}.get(values.dtype.kind, "i8")
    values = values.astype(wide)
    sums = np.cumsum(values)
    first = np.cumsum(run_lengths) - run_lengths
    inclusive = sums - np.repeat((sums - values)[first], run_lengths) + np.asarray(h_init).astype(wide)
    return inclusive, inclusive - values


def last_of(run_lengths):
    return np.cumsum(run_lengths) - 1


def check_reduction(algorithm, keys, values, run_lengths, expected, out, count, shift=0, h_init=None):
    runs = len(run_lengths)
    d_keys, d_values = Array(keys, shift), Array(values, 2 * shift % 5)
    d_unique, d_out, d_count = empty(runs, keys.dtype, shift), empty(runs, out, 1), empty(1, count)
    algorithm.run(d_keys, d_unique, d_values, d_out, d_count, len(keys), h_init)
    assert d_count.get()[0] == runs
    np.testing.assert_array_equal(d_unique.get(), keys[last_of(run_lengths)])
    np.testing.assert_array_equal(d_out.get(), expected)
    assert d_unique.is_all_there() and d_out.is_all_there() and d_count.is_all_there()


# --- Every dtype -----------------------------------------------------------------------------------------


@every(3)
@pytest.mark.parametrize("dtype", DTYPES)
def test_reduce_by_key(dtype, rng):
    """The keys and the values have every dtype, and the number of runs each that it may have."""
    count, key = COUNTS[DTYPES.index(dtype) % 4], DTYPES[-DTYPES.index(dtype)]
    op = either if dtype == "?" else OpKind.PLUS
    algorithm = cupar.reduce_by_key(key, key, dtype, dtype, count, op)
    for shift, n in enumerate(SIZES):
        for mean in MEANS:
            given = lengths(rng, n, mean)
            keys, values = keys_of(given, key), values_of(rng, n, dtype)
            with np.errstate(over="ignore"):
                expected = sums_of(values, given)[0][last_of(given)].astype(dtype)
            check_reduction(algorithm, keys, values, given, expected, dtype, count, shift % 4)


@every(5)
@pytest.mark.parametrize("dtype", DTYPES)
def test_scans_by_key(dtype, rng):
    key = DTYPES[-DTYPES.index(dtype) - 1]
    op = either if dtype == "?" else OpKind.PLUS
    h_init = np.zeros(1, dtype) if dtype == "?" else np.full(1, 3, dtype)
    asked = [
        (cupar.inclusive_scan_by_key, None),
        (cupar.inclusive_scan_by_key, h_init),
        (cupar.exclusive_scan_by_key, h_init),
    ]
    scans = {
        i: (asked[i][0](key, dtype, dtype, op, asked[i][1]), asked[i][1])
        for i in few([0, 1, 2], first=DTYPES.index(dtype) // 5)
    }
    for shift, n in enumerate(SIZES):
        for mean in MEANS:
            given = lengths(rng, n, mean)
            keys, values = keys_of(given, key), values_of(rng, n, dtype)
            sums, before = sums_of(values, given, h_init[0])
            every_expected = sums_of(values, given)[0], sums, before
            for i, (scan, init) in scans.items():
                expected = every_expected[i]
                d_keys, d_values = Array(keys, shift % 4), Array(values, 2 * shift % 5)
                in_place = shift % 2 == 0
                d_out = d_values if in_place else empty(n, dtype, shift % 3)
                scan.run(d_keys, d_values, d_out, n, init)
                with np.errstate(over="ignore"):
                    np.testing.assert_array_equal(d_out.get(), expected.astype(dtype))
                assert d_out.is_all_there()
                np.testing.assert_array_equal(d_keys.get(), keys)


@every(9)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", COUNTS)
def test_run_length_encode(dtype, count, rng):
    number = COUNTS[DTYPES.index(dtype) % 4]
    encode = cupar.run_length_encode(dtype, dtype, count, number)
    for shift, n in enumerate(SIZES):
        for mean in MEANS:
            given = lengths(rng, n, mean)
            items = keys_of(given, dtype)
            d_items, d_unique = Array(items, shift % 4), empty(len(given), dtype, shift % 3)
            d_counts, d_number = empty(len(given), count, 1), empty(1, number)
            storage = cp.empty(max(1, encode(None, d_items, d_unique, d_counts, d_number, n)), "u1")
            encode(storage, d_items, d_unique, d_counts, d_number, n)
            assert d_number.get()[0] == len(given)
            np.testing.assert_array_equal(d_unique.get(), items[last_of(given)])
            np.testing.assert_array_equal(d_counts.get(), given.astype(count))
            assert d_unique.is_all_there() and d_counts.is_all_there()


# --- Many tiles ------------------------------------------------------------------------------------------


@every(13)
@pytest.mark.parametrize("dtype", ["i1", "u2", "f4", "i8", "c16"])
@pytest.mark.parametrize("key", ["i4", "c16"])
@pytest.mark.parametrize("mean", [0, 1, 64, 50_000])
def test_runs_of_many_tiles(dtype, key, mean, rng):
    """What comes before a tile is found far back, while others find out the same; again and again."""
    given = lengths(rng, MANY, mean)
    keys, values = keys_of(given, key), values_of(rng, MANY, dtype)
    sums, before = sums_of(values, given)
    reduce = cupar.reduce_by_key(key, key, dtype, dtype, "i8", OpKind.PLUS)
    scan = cupar.exclusive_scan_by_key(key, dtype, dtype, OpKind.PLUS, np.zeros(1, dtype))
    d_keys, d_values, d_out = cp.asarray(keys), cp.asarray(values), cp.empty(MANY, dtype)
    for _ in range(2 if IS_CPU else 10):
        check_reduction(reduce, keys, values, given, sums[last_of(given)].astype(dtype), dtype, "i8", shift=1)
        scan.run(d_keys, d_values, d_out, MANY, np.zeros(1, dtype))
        np.testing.assert_array_equal(d_out.get(), before.astype(dtype))


@needs_gpu
def test_more_than_2_31_items():
    n = 2**31 + 5
    d_keys, d_unique, d_counts = cp.zeros(n, "u1"), cp.zeros(2, "u1"), cp.zeros(2, "i8")
    d_number = cp.zeros(1, "i8")
    d_keys[-1] = 3
    encode = cupar.run_length_encode(d_keys, d_unique, d_counts, d_number)
    encode.run(d_keys, d_unique, d_counts, d_number, n)
    assert d_number.get().tolist() == [2]
    assert d_counts.get().tolist() == [n - 1, 1] and d_unique.get().tolist() == [0, 3]
    d_keys[:] = cp.arange(n, dtype="u1") & 1
    nothing = DiscardIterator()
    reduce = cupar.reduce_by_key(d_keys, nothing, d_keys, nothing, d_number, OpKind.PLUS)
    reduce.run(d_keys, nothing, d_keys, nothing, d_number, n)
    assert d_number.get().tolist() == [n]
    del d_unique
    ones, d_sums = ConstantIterator(np.int8(1)), cp.zeros(1, "u4")
    one_run = ConstantIterator(np.int32(1))
    reduce = cupar.reduce_by_key(one_run, nothing, ones, d_sums, d_number, OpKind.PLUS, h_init=np.uint32([0]))
    reduce.run(one_run, nothing, ones, d_sums, d_number, n, np.uint32([0]))
    assert d_number.get().tolist() == [1] and d_sums.get().tolist() == [n]
    del d_keys
    cp.get_default_memory_pool().free_all_blocks()


# --- Operators -------------------------------------------------------------------------------------------


def compositions(values, run_lengths, h_init=None):
    """Return the inclusive compositions of maps, and the exclusive ones, in Python's integers."""
    inclusive, exclusive = [], []
    ends = set(np.cumsum(run_lengths).tolist())
    start = (1, 0) if h_init is None else tuple(int(x) for x in h_init)
    so_far = start
    for i, value in enumerate(values):
        exclusive.append(so_far)
        a, b = int(value["a"]), int(value["b"])
        so_far = so_far[0] * a % 2**32, (so_far[1] * a + b) % 2**32
        inclusive.append(so_far)
        if i + 1 in ends:
            so_far = start
    return np.array(inclusive, AFFINE), np.array(exclusive, AFFINE)


@pytest.mark.parametrize("n", [0, 1, 33, 1537, 2305, 20_011])
@pytest.mark.parametrize("mean", MEANS)
def test_operators_that_are_not_commutative(n, mean, rng):
    given = lengths(rng, n, mean)
    keys, values, h_init = keys_of(given, KEY), np.zeros(n, AFFINE), np.array([(3, 5)], AFFINE)
    values["a"], values["b"] = rng.integers(0, 2**32, n) | 1, rng.integers(0, 2**32, n)
    plain, (sums, before) = compositions(values, given)[0], compositions(values, given, h_init[0])
    reduce = cupar.reduce_by_key(KEY, KEY, AFFINE, AFFINE, "i8", composed, same_id)
    check_reduction(reduce, keys, values, given, plain[last_of(given)], AFFINE, "i8")
    reduce = cupar.reduce_by_key(KEY, KEY, AFFINE, AFFINE, "i4", composed, same_id, h_init)
    check_reduction(reduce, keys, values, given, sums[last_of(given)], AFFINE, "i4", shift=1, h_init=h_init)
    d_keys, d_values, d_out = Array(keys), Array(values), empty(n, AFFINE)
    for scan, init, expected in (
        (cupar.inclusive_scan_by_key(KEY, AFFINE, AFFINE, composed, None, same_id), None, plain),
        (cupar.inclusive_scan_by_key(KEY, AFFINE, AFFINE, composed, h_init, same_id), h_init, sums),
        (cupar.exclusive_scan_by_key(KEY, AFFINE, AFFINE, composed, h_init, same_id), h_init, before),
    ):
        scan.run(d_keys, d_values, d_out, n, init)
        np.testing.assert_array_equal(d_out.get(), expected)


@pytest.mark.parametrize("mean", MEANS)
def test_the_last_that_is_not_zero(mean, rng):
    n = 100_003
    given = lengths(rng, n, mean)
    keys, values = keys_of(given, "u2"), np.where(rng.random(n) < 0.01, rng.integers(1, 99, n), 0)
    place = np.where((values != 0) | np.isin(np.arange(n), np.cumsum(given) - given), np.arange(n), 0)
    expected = values[np.maximum.accumulate(place)]
    reduce = cupar.reduce_by_key("u2", "u2", "i8", "i8", "i8", last_nonzero)
    check_reduction(reduce, keys, values, given, expected[last_of(given)], "i8", "i8")
    d_keys, d_values = cp.asarray(keys), cp.asarray(values)
    cupar.inclusive_scan_by_key("u2", "i8", "i8", last_nonzero).run(d_keys, d_values, d_values, n)
    np.testing.assert_array_equal(d_values.get(), expected)


@pytest.mark.parametrize("n", [1, 33, 769, 100_003])
def test_large_structs(n, rng):
    given = lengths(rng, n, 300)
    keys, values = keys_of(given, "i4"), np.zeros(n, WIDE)
    for name in WIDE.names:
        values[name] = rng.integers(-9, 10, n)
    first, expected = np.cumsum(given) - given, np.zeros(len(given), WIDE)
    for name in ("x0", "x1", "x5"):
        expected[name] = np.add.reduceat(values[name], first)
    expected["x2"] = values["x2"][last_of(given)]
    expected["x3"], expected["x4"] = values["x3"][first], values["x4"][first]
    reduce = cupar.reduce_by_key("i4", "i4", WIDE, WIDE, "i8", combined)
    check_reduction(reduce, keys, values, given, expected, WIDE, "i8", shift=1)


@pytest.mark.parametrize("mean", MEANS)
def test_keys_that_are_equal_in_part(mean, rng):
    """Runs are by their neighbours, and of each the last key is kept."""
    n = 20_011
    given = lengths(rng, n, mean)
    keys = keys_of(given, "i4", step=10) + rng.integers(0, 10, n, "i4")
    values = values_of(rng, n, "i1")
    reduce = cupar.reduce_by_key("i4", "i4", "i1", "f8", "i8", OpKind.PLUS, same_ten, np.int32([7]))
    expected = sums_of(values, given, 7)[0][last_of(given)].astype("f8")
    check_reduction(reduce, keys, values, given, expected, "f8", "i8", h_init=np.int32([7]))
    d_keys, d_unique, d_counts, d_number = (cp.asarray(keys), *(cp.zeros(n, "i4") for _ in range(3)))
    encode = cupar.run_length_encode(d_keys, d_unique, d_counts, d_number, same_ten)
    encode.run(d_keys, d_unique, d_counts, d_number, n)
    assert d_number.get()[0] == len(given)
    np.testing.assert_array_equal(d_unique.get()[: len(given)], keys[last_of(given)])
    np.testing.assert_array_equal(d_counts.get()[: len(given)], given)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8"])
def test_keys_that_are_not_numbers(dtype):
    """NaN is equal to nothing, and -0.0 to 0.0."""
    host = np.array([1, 1, np.nan, np.nan, 2, 2, 2, -0.0, 0.0], dtype)
    d_keys, d_unique, d_counts, d_number = cp.asarray(host), *(cp.zeros(9, x) for x in (dtype, "i4", "i8"))
    encode = cupar.run_length_encode(d_keys, d_unique, d_counts, d_number)
    encode.run(d_keys, d_unique, d_counts, d_number, 9)
    assert d_number.get()[0] == 5
    assert d_counts.get()[:5].tolist() == [2, 1, 1, 3, 2]
    np.testing.assert_array_equal(d_unique.get()[:5], host[[1, 2, 3, 6, 8]])
    assert not np.signbit(d_unique.get()[4].real)


# --- Iterators, state, graphs ----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2305, 100_003])
def test_iterators(n):
    d_sums, d_number, d_values = cp.zeros(n, "i8"), cp.zeros(1, "i8"), cp.arange(n)
    keys, nothing = CountingIterator(np.int64(0)), DiscardIterator()
    values = cupar.TransformIterator(d_values, lambda x: x * 2)
    out = cupar.TransformOutputIterator(d_sums, lambda x: x + 1)
    sevens = lambda a, b: a // 7 == b // 7
    reduce = cupar.reduce_by_key(keys, nothing, values, out, d_number, add, sevens)
    reduce.run(keys, nothing, values, out, d_number, n)
    runs = -(-n // 7)
    assert d_number.get()[0] == runs
    expected = np.add.reduceat(np.arange(n) * 2, np.arange(0, n, 7)) + 1 if n else np.zeros(0)
    np.testing.assert_array_equal(d_sums.get()[:runs], expected)

    pairs, ones = ZipIterator(d_values, d_values), ConstantIterator(np.int32(1))
    first_of_seven = lambda a, b: a[0] // 7 == b[0] // 7
    d_places, d_ten = cp.zeros(n, "i8"), cp.asarray([10])
    backwards = ReverseIterator(d_places)
    scan = cupar.exclusive_scan_by_key(pairs, ones, backwards, OpKind.PLUS, d_ten, first_of_seven)
    scan.run(pairs, ones, backwards, n, d_ten)
    np.testing.assert_array_equal(d_places.get()[::-1], np.arange(n) % 7 + 10)
    firsts = ZipIterator(DiscardIterator(d_values), d_places)
    encode = cupar.run_length_encode(pairs, firsts, d_sums, d_number, first_of_seven)
    encode.run(pairs, firsts, d_sums, d_number, n)
    np.testing.assert_array_equal(d_places.get()[:runs], np.minimum(np.arange(6, n + 6, 7), n - 1))
    assert d_sums.get()[:runs].sum() == n


def test_operators_with_state(rng):
    n = 100_003
    table, scale = cp.asarray(rng.integers(0, 3, 64)), cp.asarray([1])
    d_keys = cp.asarray(np.sort(rng.integers(0, 64, n)).astype("i4"))
    d_ones, d_out = cp.ones(n, "i8"), cp.zeros(n, "i8")
    in_one_group = lambda a, b: table[a] == table[b]
    scan = cupar.inclusive_scan_by_key(
        d_keys, d_ones, d_out, lambda a, b: (a + b) * scale[0], None, in_one_group
    )
    for _ in range(2):
        groups = table.get()[d_keys.get()]
        begins = np.flatnonzero(np.append(True, groups[1:] != groups[:-1]))
        given = np.diff(np.append(begins, n))
        expected = np.arange(n) - np.repeat(begins, given) + 1
        scan.run(d_keys, d_ones, d_out, n)
        np.testing.assert_array_equal(d_out.get(), expected)
        bound = scan.bind(d_keys, d_ones, d_out, n)
        d_out.fill(0)
        bound()
        np.testing.assert_array_equal(d_out.get(), expected)
        table[:] = cp.asarray(rng.integers(0, 3, 64))  # another call sees what is there then


@needs_gpu
def test_graphs(rng):
    n = 200_003
    given = lengths(rng, n, 30)
    items = keys_of(given, "i4")
    d_items, d_unique, d_counts, d_number = cp.asarray(items), *(cp.zeros(n, "i4") for _ in range(3))
    encode = cupar.run_length_encode(d_items, d_unique, d_counts, d_number)
    arguments = d_items, d_unique, d_counts, d_number, n
    storage = cp.empty(encode(None, *arguments), "u1")
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        encode(storage, *arguments, stream=stream)
        graph = stream.end_capture()
    for _ in range(3):
        d_counts.fill(0)
        cp.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        assert d_number.get()[0] == len(given)
        np.testing.assert_array_equal(d_counts.get()[: len(given)], given)


# --- Runs of whatever lengths ----------------------------------------------------------------------------

few_examples = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
ANY_LENGTH = st.one_of(st.integers(1, 8), st.integers(1, 500), st.sampled_from([2303, 2304, 2305, 5000]))


@few_examples
@given(st.lists(st.tuples(ANY_LENGTH, st.integers(1, 60)), max_size=20), st.integers(-5, 5))
def test_any_lengths(parts, init):
    """There are so many runs of some length, then so many of another."""
    given = np.repeat(*np.array(parts, "i8").T) if parts else np.zeros(0, "i8")
    n, runs = int(given.sum()), len(given)
    keys, values = keys_of(given, "i4"), np.random.default_rng(n).integers(-1000, 1000, n)
    d_keys, d_values, d_number = cp.asarray(keys), cp.asarray(values), cp.full(2, 99, "i8")
    d_unique, d_sums, d_counts = cp.full(runs + 1, 7777, "i4"), *(cp.full(runs + 1, 7777) for _ in "ab")
    reduce = cupar.reduce_by_key("i4", "i4", "i8", "i8", "i8", add)
    reduce.run(d_keys, d_unique, d_values, d_sums, d_number, n)
    sums, before = sums_of(values, given, init)
    assert d_number.get().tolist() == [runs, 99]
    assert d_unique.get().tolist() == [*keys[last_of(given)], 7777]
    assert d_sums.get().tolist() == [*(sums[last_of(given)] - init), 7777]
    encode = cupar.run_length_encode("i4", "i4", "i8", "i8")
    encode.run(d_keys, d_unique, d_counts, d_number, n)
    assert d_counts.get().tolist() == [*given, 7777]
    for factory, expected in (
        (cupar.inclusive_scan_by_key, sums),
        (cupar.exclusive_scan_by_key, before),
    ):
        d_out = cp.zeros(n, "i8")
        factory("i4", "i8", "i8", add, np.zeros(1, "i8")).run(d_keys, d_values, d_out, n, np.array([init]))
        np.testing.assert_array_equal(d_out.get(), expected)
