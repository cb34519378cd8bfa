"""Partitions, histograms, searches and segmented sorts, against NumPy."""

from fractions import Fraction

import numpy as np
import pytest
from support.operators import large, small
from support.results import DTYPES, IS_CPU, Structs, cp, every, few, items, needs_gpu

import cupar
from cupar import OpKind, RawOp, SortOrder
from cupar._compile import nvrtc
from cupar._device import driver
from cupar.histogram import histogram_even
from cupar.partition import select, three_way_partition
from cupar.search import lower_bound, upper_bound
from cupar.segmented import segmented_sort

REAL = DTYPES[:-2]
FLOATS = ["f2", "f4", "f8"]
SIZES = [0, 1, 2, 31, 32, 33, 2047, 2048, 2049, 100_003]
AWKWARD = {
    "equal": lambda n: np.full(n, 7),
    "sorted": np.arange,
    "reversed": lambda n: np.arange(n)[::-1],
}


def storage(nbytes):
    return cp.empty(max(nbytes, 1), "u1")


def free():
    cp.get_default_memory_pool().free_all_blocks()


# --- Partitions ------------------------------------------------------------------------------------------


def small_real(a):
    return a.real < 0


def large_real(a):
    return a.real > 20


def predicates(dtype):
    return (small_real, large_real) if np.dtype(dtype).kind == "c" else (small, large)


@every(9)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", ["i4", "u4", "i8", "u8"])
def test_three_way_partition(dtype, count, rng):
    first_op, second_op = predicates(dtype)
    for n in SIZES:
        host = items(rng, n, dtype)
        d_in = cp.asarray(host)
        outputs = [cp.zeros_like(d_in) for _ in range(3)]
        d_count = cp.full(3, 99, count)
        partition = three_way_partition(d_in, *outputs, d_count, first_op, second_op)
        first = first_op(host)
        second = ~first & second_op(host)
        expected = host[first], host[second], host[~first & ~second]
        nbytes = partition(None, d_in, *outputs, d_count, n)
        assert partition(storage(nbytes), d_in, *outputs, d_count, n) == nbytes
        for _ in range(2):
            assert d_count.get().tolist() == [len(expected[0]), len(expected[1]), 99]
            for found, wanted in zip(outputs, expected, strict=True):
                np.testing.assert_array_equal(found.get()[: len(wanted)], wanted)
                assert not found.get()[len(wanted) :].any()
            partition.run(d_in, *outputs, d_count, n)
        np.testing.assert_array_equal(d_in.get(), host)


@every(9)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", ["i4", "u4", "i8", "u8"])
def test_select(dtype, count, rng):
    op, _ = predicates(dtype)
    for n in SIZES:
        host = items(rng, n, dtype)
        d_in, d_count = cp.asarray(host), cp.full(3, 99, count)
        expected = host[op(host)]
        d_out = cp.zeros(len(expected) + 1, dtype)  # no more room than there must be, and one to watch
        selection = select(d_in, d_out, d_count, op)
        nbytes = selection(None, d_in, d_out, d_count, n)
        assert selection(storage(nbytes), d_in, d_out, d_count, n) == nbytes
        for _ in range(2):
            assert d_count.get().tolist() == [len(expected), 99, 99]
            np.testing.assert_array_equal(d_out.get()[:-1], expected)
            assert d_out.get()[-1] == 0
            selection.run(d_in, d_out, d_count, n)


@every(9)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("flag", ["?", "i1", "u4", "f8"])
def test_select_by_flags(dtype, flag, rng):
    """Of arrays that begin anywhere; an iterator's items are read where they are selected alone."""
    for n in SIZES:
        for offset in (0, 3):
            host, flags = items(rng, n, dtype), rng.integers(0, 3, n).astype(flag)
            d_in, d_flags = cp.zeros(n + offset, dtype)[offset:], cp.zeros(n + offset, flag)[offset:]
            d_in[:], d_flags[:] = cp.asarray(host), cp.asarray(flags)
            d_count, expected = cp.full(2, 99, "i8"), host[flags != 0]
            d_out, d_places = cp.zeros(len(expected) + 1, dtype), cp.zeros(len(expected) + 1, "i8")
            selection = select(d_in, d_out, d_count, is_set, d_flags=d_flags)
            nbytes = selection(None, d_in, d_out, d_count, n, d_flags=d_flags)
            selection(storage(nbytes), d_in, d_out, d_count, n, d_flags=d_flags)
            for _ in range(2):
                assert d_count.get().tolist() == [len(expected), 99]
                np.testing.assert_array_equal(d_out.get()[:-1], expected)
                assert d_out.get()[-1] == 0
                selection.run(d_in, d_out, d_count, n, d_flags=d_flags)
            numbers = cupar.CountingIterator(np.int64(0))
            select(numbers, d_places, d_count, d_flags=d_flags).run(
                numbers, d_places, d_count, n, d_flags=d_flags
            )
            assert d_count.get().tolist() == [len(expected), 99]
            np.testing.assert_array_equal(d_places.get()[:-1], np.flatnonzero(flags))
            assert d_places.get()[-1] == 0


def test_select_needs_a_predicate_or_flags():
    with pytest.raises(cupar.ArgumentTypeError, match="cond: expected a predicate"):
        select("i4", "i4", "i8")


def is_set(flag):
    return flag != 0


@pytest.mark.parametrize("name", AWKWARD)
def test_partitions_of_awkward_items(name):
    host = np.ascontiguousarray(AWKWARD[name](10_000)).astype("i4")
    d_in, d_out, d_count = cp.asarray(host), cp.zeros(10_000, "i4"), cp.zeros(2, "i8")
    for op, expected in (
        (lambda a: a >= 0, host),
        (lambda a: a < 0, host[:0]),
        (lambda a: a % 3 == 1, host[host % 3 == 1]),
    ):
        select(d_in, d_out, d_count, op).run(d_in, d_out, d_count, 10_000)
        assert int(d_count[0]) == len(expected)
        np.testing.assert_array_equal(d_out.get()[: len(expected)], expected)
    rest, second = cp.zeros_like(d_out), cp.zeros_like(d_out)
    everything = lambda a: True
    partition = three_way_partition(d_in, d_out, second, rest, d_count, everything, everything)
    partition.run(d_in, d_out, second, rest, d_count, 10_000)
    assert d_count.get().tolist() == [10_000, 0]
    np.testing.assert_array_equal(d_out.get(), host)


@needs_gpu
def test_the_same_raw_op_in_several_places(rng):
    source = 'extern "C" __device__ void halved(void* a, void* r) { *(float*)r = *(float*)a / 2; }'
    large = 'extern "C" __device__ void large(void* a, void* r) { *(bool*)r = *(float*)a > 10; }'
    cc = driver.current_device().cc
    half, is_large = (
        RawOp(name, nvrtc.compile_cpp(code, cc)) for name, code in (("halved", source), ("large", large))
    )
    host = rng.integers(-100, 100, 1000).astype("f4")
    d_in, d_out, d_sum = cp.asarray(host), cp.zeros(1000, "f4"), cp.zeros(1, "f4")
    values, out = cupar.TransformIterator(d_in, half, "f4"), cupar.TransformOutputIterator(d_out, half, "f4")
    cupar.unary_transform(values, out, half).run(values, out, 1000)
    np.testing.assert_array_equal(d_out.get(), host / 8)
    total = cupar.TransformOutputIterator(d_sum, half, "f4")
    cupar.reduce_into(values, total, OpKind.PLUS, 0).run(values, total, 1000, 0)  # linked by CCCL
    assert float(d_sum[0]) == host.sum() / 4
    outputs = d_out, cp.zeros_like(d_out), cp.zeros_like(d_out), cp.zeros(2, "i8")
    three_way_partition(d_in, *outputs, is_large, is_large).run(d_in, *outputs, 1000)
    assert outputs[3].get().tolist() == [np.count_nonzero(host > 10), 0]


@pytest.mark.parametrize(
    ("source", "target"), [("i8", "i2"), ("i4", "f2"), ("f8", "f4"), ("f2", "c8"), ("f4", "?")]
)
def test_items_are_converted_as_they_are_written(source, target, rng):
    n = 100_003
    host = rng.integers(-100, 100, n).astype(source)
    d_in, d_count = cp.asarray(host), cp.zeros(2, "i8")
    d_out = cp.zeros(n, target)
    select(d_in, d_out, d_count, small).run(d_in, d_out, d_count, n)
    wanted = host[small(host)].astype(target)
    assert int(d_count[0]) == len(wanted)
    np.testing.assert_array_equal(d_out.get()[: len(wanted)], wanted)
    outputs = cp.zeros(n, source), cp.zeros(n, target), cp.zeros(n, target), d_count
    three_way_partition(d_in, *outputs, small, large).run(d_in, *outputs, n)
    chosen = small(host), large(host), ~small(host) & ~large(host)
    for found, part in zip(outputs, chosen, strict=False):
        np.testing.assert_array_equal(found.get()[: part.sum()], host[part].astype(found.dtype))


@pytest.mark.parametrize("n", SIZES)
def test_runs_with_and_without_items(n, rng):
    keys = np.sort(rng.integers(0, max(n // 4, 1), n)).astype("i4")
    values = rng.integers(-1000, 1000, n).astype("i4")
    wanted, first = np.unique(keys, return_index=True)
    d_keys, d_values = cp.asarray(keys), cp.asarray(values)
    d_out, d_floats, d_count = cp.zeros(n, "i8"), cp.zeros(n, "f4"), cp.zeros(1, "i8")
    nothing, nowhere, equal = cupar.DiscardIterator(), cupar.DiscardIterator("f8"), OpKind.EQUAL_TO
    for d_items in ((d_values, d_floats), (d_values, nowhere), (nothing, nowhere), (None, None)):
        arrays = d_keys, d_items[0], d_out, d_items[1], d_count
        d_out.fill(-1)
        runs = cupar.unique_by_key(*arrays, equal)
        nbytes = runs(None, *arrays, n)
        runs(storage(nbytes), *arrays, n)
        assert int(d_count[0]) == len(wanted)
        np.testing.assert_array_equal(d_out.get()[: len(wanted)], wanted)
        assert (d_out.get()[len(wanted) :] == -1).all()
    np.testing.assert_array_equal(d_floats.get()[: len(wanted)], values[first])
    runs = cupar.unique_by_key(d_keys, d_out_keys=d_out, d_out_num_selected=d_count, op=equal)
    runs.run(d_keys, d_out_keys=d_out, d_out_num_selected=d_count, num_items=n)
    assert int(d_count[0]) == len(wanted)
    with pytest.raises(TypeError, match="^d_in_items: this UniqueByKey was built without it"):
        runs.run(d_keys, d_values, d_out, None, d_count, n)


def special(dtype):
    """Values on which operators differ: zeros, extremes, NaN; all pairs of them are tried."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.array([0, 1, 2, info.max - 1, info.max, info.min, info.min + 1], dtype)
    real = np.array([0.0, -0.0, 1.0, -1.5, np.nan, np.inf, -np.inf, np.finfo(dtype).smallest_subnormal])
    if dtype.kind == "f":
        return real.astype(dtype)
    found = np.empty(12, dtype)
    found.real = [0.0, -0.0, 0.0, 1.0, 1.0, np.nan, 0.0, np.inf, -1.0, np.nan, 1.0, -1.0]
    found.imag = [0.0, 0.0, 1.0, 0.0, 1.0, 0.0, np.nan, 1.0, 1.0, np.nan, 2.0, -0.0]
    return found


@every(5)
@pytest.mark.parametrize("dtype", DTYPES)
def test_known_kinds_as_predicates(dtype):
    host = special(dtype)
    n, kind = len(host), np.dtype(dtype).kind
    expected = {OpKind.LOGICAL_NOT: host == 0}
    if kind != "c":
        expected |= {OpKind.IDENTITY: host != 0, OpKind.NEGATE: host != 0}
    if kind in "biu":
        expected[OpKind.BIT_NOT] = ~host != 0
    d_in, d_out, d_rest, d_count = cp.asarray(host), cp.zeros(n, dtype), cp.zeros(n, dtype), cp.zeros(2, "i8")

    def selects(op, chosen):
        select(d_in, d_out, d_count, op).run(d_in, d_out, d_count, n)
        found = int(d_count[0])
        np.testing.assert_array_equal(d_out.get()[:found], host[chosen])

    def partitions(op, chosen):
        outputs = d_out, cp.zeros(n, dtype), d_rest, d_count
        three_way_partition(d_in, *outputs, OpKind.LOGICAL_NOT, op).run(d_in, *outputs, n)
        first, second = host == 0, chosen & (host != 0)
        assert d_count.get().tolist() == [first.sum(), second.sum()]
        np.testing.assert_array_equal(outputs[1].get()[: second.sum()], host[second])

    for i, each in enumerate(expected.items()):
        for check in few([selects, partitions], 2, first=i % 2):  # on the CPU both take it from one place
            check(*each)


@every(5)
@pytest.mark.parametrize("dtype", DTYPES)
def test_known_kinds_as_comparisons(dtype):
    values = special(dtype)
    is_complex = np.dtype(dtype).kind == "c"
    expected = {
        OpKind.EQUAL_TO: lambda a, b: a == b,
        OpKind.NOT_EQUAL_TO: lambda a, b: a != b,
        OpKind.LOGICAL_AND: lambda a, b: (a != 0) & (b != 0),
        OpKind.LOGICAL_OR: lambda a, b: (a != 0) | (b != 0),
    }
    if not is_complex:
        expected |= {
            OpKind.LESS: lambda a, b: a < b,
            OpKind.LESS_EQUAL: lambda a, b: a <= b,
            OpKind.GREATER: lambda a, b: a > b,
            OpKind.GREATER_EQUAL: lambda a, b: a >= b,
        }
    d_values, d_out = cp.asarray(values), cp.zeros(len(values), "i4")
    for kind, compare in expected.items():
        for item in values:  # one item goes before a value, or does not
            d_data = cp.full(1, item, dtype)
            search = lower_bound(d_data, d_values, d_out, kind)
            search(d_data, 1, d_values, len(values), d_out)
            wanted = compare(np.full(len(values), item, dtype), values)
            np.testing.assert_array_equal(d_out.get(), wanted, err_msg=f"{kind.name} of {item}")


@pytest.mark.parametrize("dtype", FLOATS)
def test_partitions_with_nan_and_known_kinds(dtype):
    host = np.array([np.nan, 0.0, -0.0, np.inf, -np.inf, 1.0, np.nan], dtype)
    d_in, d_out, d_count = cp.asarray(host), cp.zeros_like(cp.asarray(host)), cp.zeros(1, "u8")
    select(d_in, d_out, d_count, lambda a: a != a).run(d_in, d_out, d_count, 7)
    assert int(d_count[0]) == 2
    assert cp.isnan(d_out[:2]).all()
    select(d_in, d_out, d_count, OpKind.LOGICAL_NOT).run(d_in, d_out, d_count, 7)
    assert int(d_count[0]) == 2
    np.testing.assert_array_equal(np.signbit(d_out.get()[:2]), [False, True])


@needs_gpu
def test_partitions_of_more_than_2_to_the_32_items():
    n = 2**32 + 7
    d_in, d_out, d_count = cp.zeros(n, "u1"), cp.zeros(100, "u1"), cp.zeros(1, "i8")
    d_in[[0, 5, 2**31, 2**32, n - 1]] = cp.arange(1, 6, dtype="u1")
    select(d_in, d_out, d_count, lambda a: a > 0).run(d_in, d_out, d_count, n)
    assert int(d_count[0]) == 5
    assert d_out.get()[:6].tolist() == [1, 2, 3, 4, 5, 0]
    del d_in
    free()


def test_partition_refusals():
    d = cp.zeros(10, "f4")
    d_count = cp.zeros(1, "i8")
    partition = three_way_partition(d, d, d, d, d_count, small, large)
    with pytest.raises(ValueError, match="^d_num_selected_out: needs at least 2 items"):
        partition.run(d, d, d, d, d_count, 10)
    selection = select(d, d, d_count, small)
    with pytest.raises(ValueError, match="^d_in: needs at least 11 items"):
        selection.run(d, d, d_count, 11)
    many, out = (cp.zeros(1 << 20, "f4") for _ in range(2))
    with pytest.raises(ValueError, match="^temp_storage: needs"):
        selection(cp.empty(0, "u1"), many, out, d_count, 1 << 20)


# --- Histograms ------------------------------------------------------------------------------------------


def counted(host, num_levels, lower, upper):
    """Count exactly: in Python's integers, or in float64 for levels at which float64 is exact."""
    bins = num_levels - 1
    expected = np.zeros(bins, "i8")
    values, counts = np.unique(host, return_counts=True)
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        if lower <= value < upper:
            expected[int((value - lower) * bins // (upper - lower))] += count
    return expected


@every(17)
@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("counts", ["i4", "u4", "i8", "u8"])
@pytest.mark.parametrize("levels", [2, 17, 257, 513])
def test_histogram(dtype, counts, levels, rng):
    if np.dtype(dtype).kind == "f":
        host = (np.round(rng.normal(size=SIZES[-1]) * 200) / 8).astype(dtype)  # of few bits
        host[::11] = np.nan
        host[::13] = np.inf
        bounds = (-16.0, 16.0)  # so that the bins' widths are powers of 2, and their bounds exact
    else:
        host = items(rng, SIZES[-1], dtype)
        low, high = (0, 2) if dtype == "?" else (int(host.min()), int(host.max()))
        if np.dtype(dtype).itemsize == 8:
            low, high = (1000, 2**50)
            host = rng.integers(0, 2**51, SIZES[-1]).astype(dtype)
        bounds = (low, high)
    d_samples, d_out = cp.asarray(host), cp.full(levels, 99, counts)
    histogram = histogram_even(d_samples, d_out, levels, *bounds, len(host))
    for n in (*SIZES[:6], SIZES[-1]):
        d_out.fill(99)
        nbytes = histogram(None, d_samples, d_out, levels, *bounds, n)
        histogram(storage(nbytes), d_samples, d_out, levels, *bounds, n)
        finite = host[:n][np.isfinite(host[:n])]
        expected = counted(finite, levels, *bounds)
        np.testing.assert_array_equal(d_out.get(), [*expected, 99])
    d_out.fill(5)
    histogram.run(d_samples, d_out, levels, *bounds, SIZES[-1])
    np.testing.assert_array_equal(d_out.get(), [*expected, 5])


@pytest.mark.parametrize("dtype", FLOATS)
def test_samples_next_to_the_levels_are_counted_once(dtype, rng):
    for bins in (1, 3, 10, 49, 256, 1000):
        for lower, upper in ((0.0, 1.0), (-0.1, 0.7), (3.3, 9.9)):
            edge = np.dtype(dtype).type(upper)
            if float(edge) >= upper:
                edge = np.nextafter(edge, np.dtype(dtype).type(-np.inf))
            d_samples, d_out = cp.full(1000, edge, dtype), cp.zeros(bins + 1, "i4")
            histogram = histogram_even(d_samples, d_out, bins + 1, lower, upper, 1000)
            histogram.run(d_samples, d_out, bins + 1, lower, upper, 1000)
            assert int(d_out[:-1].sum()) == 1000 or dtype == "f8"
            assert int(d_out[-1]) == 0


@pytest.mark.parametrize("name", AWKWARD)
def test_histogram_of_awkward_samples(name):
    host = np.ascontiguousarray(AWKWARD[name](10_000)).astype("i4")
    d_samples, d_out = cp.asarray(host), cp.zeros(100, "i8")
    histogram = histogram_even(d_samples, d_out, 101, 0, 10_000, 10_000)
    histogram.run(d_samples, d_out, 101, 0, 10_000, 10_000)
    np.testing.assert_array_equal(d_out.get(), counted(host, 101, 0, 10_000))


@pytest.mark.parametrize("dtype", ["i1", "u1", "?"])
def test_histogram_of_bytes_with_many_bins_and_floats_for_levels(dtype, rng):
    host = items(rng, 10_000, dtype)
    d_samples = cp.asarray(host)
    d_out = cp.zeros(1024, "i4")
    lower, upper = -128.5, 383.5
    histogram = histogram_even(d_samples, d_out, 1025, lower, upper, 10_000)
    histogram.run(d_samples, d_out, 1025, lower, upper, 10_000)
    np.testing.assert_array_equal(d_out.get(), counted(host.astype("i8"), 1025, lower, upper))


@needs_gpu
@pytest.mark.parametrize("n", [2**31 - 1, 2**32 + 5])
@pytest.mark.parametrize("bins", [4, 10**6])
def test_histogram_of_many_samples(n, bins):
    d_samples, d_out = cp.zeros(n, "u1" if bins == 4 else "u2"), cp.full(bins + 1, 7, "u8")
    d_samples[-3:] = 3
    histogram = histogram_even(d_samples, d_out, bins + 1, 0, bins, n)
    histogram.run(d_samples, d_out, bins + 1, 0, bins, n)
    assert [*d_out[:4].get(), int(d_out[4:-1].sum()), int(d_out[-1])] == [n - 3, 0, 0, 3, 0, 7]
    histogram.run(d_samples, d_out, bins + 1, 0, bins, 10)
    assert d_out[:4].get().tolist() == [10, 0, 0, 0]
    del d_samples
    free()


@every(3)
@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "i8"])
@pytest.mark.parametrize("bins", [10, 1000, 60_000, 10**6])
@pytest.mark.usefixtures("optimised")
def test_histogram_of_arrays_that_begin_anywhere(dtype, bins, rng):
    host = rng.integers(0, 100, 2**20 + 3).astype(dtype)
    d_all, d_out = cp.asarray(host), cp.zeros(bins, "i4")
    histogram = histogram_even(d_all, d_out, bins + 1, 0, bins, len(host))
    for start in (0, 1, 3, 7, 15):
        for n in (0, 1, 5, 15, 16, 31, 1000, 2**14, 2**14 + 1, 2**20 - 12):
            histogram.run(d_all[start:], d_out, bins + 1, 0, bins, n)
            expected = np.bincount(host[start : start + n].astype(int), minlength=bins)[:bins]
            np.testing.assert_array_equal(d_out.get(), expected)


@every(5)
@pytest.mark.parametrize("bins", [1, 2, 100, 1000, 60_000, 10**6])
@pytest.mark.parametrize("samples", ["constant", "sorted", "mostly one value", "uniform"])
def test_histogram_of_skewed_samples(samples, bins, rng):
    n = 2**22 + 1
    uniform = rng.integers(-5, bins + 5, n).astype("i4")
    host = {
        "constant": np.full(n, bins // 2, "i4"),
        "sorted": np.sort(uniform),
        "mostly one value": np.where(rng.random(n) < 0.9, bins // 3, uniform).astype("i4"),
        "uniform": uniform,
    }[samples]
    d_samples, d_out = cp.asarray(host), cp.zeros(bins, "i8")
    histogram_even(d_samples, d_out, bins + 1, 0, bins, n).run(d_samples, d_out, bins + 1, 0, bins, n)
    inside = host[(host >= 0) & (host < bins)]
    np.testing.assert_array_equal(d_out.get(), np.bincount(inside, minlength=bins))


@pytest.mark.parametrize(
    ("dtype", "lower", "upper", "bins"),
    [
        ("f8", 0.0, 5e-323, 10),  # the bins of a unit of width are more than float64 has numbers for
        ("f8", 0.0, 5e-323, 3),
        ("f8", -1e-310, 1e-310, 7),
        ("f8", 0.0, 1e-305, 4097),
        ("f8", 1.0, 1 + 2.0**-50, 4),
        ("f8", -8e307, 8e307, 999),
        ("f4", 0.0, 2.0**-146, 4),
        ("f4", float(np.finfo("f4").min), float(np.finfo("f4").max), 10),
        ("f2", 0.0, 2.0**-20, 16),
    ],
)
def test_histogram_of_levels_at_the_ends_of_floats(dtype, lower, upper, bins):
    edges = [lower + (upper - lower) / 64 * i for i in range(65)]
    host = np.array([*edges, -np.inf, np.inf, np.nan, -0.0, np.finfo(dtype).max]).astype(dtype)
    start, width = Fraction(lower), Fraction(upper) - Fraction(lower)
    places = [int((Fraction(x) - start) * bins / width) for x in host.tolist() if lower <= x < upper]
    d_samples, d_out = cp.asarray(host), cp.zeros(bins, "i4")
    histogram = histogram_even(d_samples, d_out, bins + 1, lower, upper, len(host))
    histogram.run(d_samples, d_out, bins + 1, lower, upper, len(host))
    np.testing.assert_array_equal(d_out.get(), np.bincount(places, minlength=bins))


def test_histogram_refusals():
    d, d_out = cp.zeros(10, "f4"), cp.zeros(9, "i4")
    histogram = histogram_even(d, d_out, 11, 0, 1, 10)
    with pytest.raises(ValueError, match="^h_upper_level: float64 cannot hold an integer of 5001 bits"):
        histogram.run(d, d_out, 11, 0, 2**5000, 10)
    with pytest.raises(ValueError, match="^d_histogram: needs at least 10 items"):
        histogram.run(d, d_out, 11, 0, 1, 10)
    with pytest.raises(ValueError, match="^d_samples: needs at least 11 items"):
        histogram.run(d, d_out, 10, 0, 1, 11)


# --- Searches --------------------------------------------------------------------------------------------


@every(7)
@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("index", ["i4", "u4", "i8", "u8"])
@pytest.mark.parametrize(("bound", "side"), [(lower_bound, "left"), (upper_bound, "right")])
def test_binary_search(dtype, index, bound, side, rng):
    for n in (*range(10), *SIZES[3:]):  # CUB counts up to 8 items one by one
        data = np.sort(items(rng, n, dtype))
        values = np.concatenate([items(rng, 1000, dtype), data[:1000]])
        d_data, d_values = cp.asarray(data), cp.asarray(values)
        d_out = cp.full(len(values) + 1, 99, index)
        search = bound(d_data, d_values, d_out)
        search(d_data, n, d_values, len(values), d_out)
        expected = np.searchsorted(data, values, side)
        np.testing.assert_array_equal(d_out.get(), [*expected, 99])
        d_out.fill(99)
        search.run(d_data, n, d_values, 0, d_out)
        assert (d_out == 99).all()


@pytest.mark.parametrize(("bound", "side"), [(lower_bound, "left"), (upper_bound, "right")])
@pytest.mark.parametrize("dtype", ["i4", "f2", "f8", "c8"])
def test_binary_search_with_an_operator(dtype, bound, side, rng):
    data, values = items(rng, 10_000, dtype), items(rng, 3000, dtype)
    key = (lambda a: -a.real) if dtype == "c8" else (lambda a: -a.astype("f8"))
    op = (lambda a, b: a.real > b.real) if dtype == "c8" else (lambda a, b: a > b)
    data = data[np.argsort(key(data), kind="stable")]
    d_data, d_values, d_out = cp.asarray(data), cp.asarray(values), cp.zeros(3000, "i8")
    bound(d_data, d_values, d_out, op)(d_data, 10_000, d_values, 3000, d_out)
    np.testing.assert_array_equal(d_out.get(), np.searchsorted(key(data), key(values), side))


@pytest.mark.parametrize("name", AWKWARD)
def test_binary_search_of_awkward_values(name):
    host = np.ascontiguousarray(AWKWARD[name](10_000)).astype("i4")
    data = np.sort(host)
    d_data, d_values, d_out = cp.asarray(data), cp.asarray(host), cp.zeros(10_000, "i8")
    for bound, side in ((lower_bound, "left"), (upper_bound, "right")):
        bound(d_data, d_values, d_out)(d_data, 10_000, d_values, 10_000, d_out)
        np.testing.assert_array_equal(d_out.get(), np.searchsorted(data, host, side))


@needs_gpu
def test_binary_search_in_more_than_2_to_the_32_items():
    n = 2**32 + 7
    d_data = cp.zeros(n, "u1")
    d_data[2**32 + 3 :] = 1
    d_values, d_out = cp.asarray([0, 1, 2], "u1"), cp.zeros(3, "i8")
    upper_bound(d_data, d_values, d_out)(d_data, n, d_values, 3, d_out)
    assert d_out.get().tolist() == [2**32 + 3, n, n]
    lower_bound(d_data, d_values, d_out)(d_data, n, d_values, 3, d_out)
    assert d_out.get().tolist() == [0, 2**32 + 3, n]
    del d_data
    free()


# --- Segmented sorts -------------------------------------------------------------------------------------


def segments(rng, n):
    """Return segments of all sizes, some of them empty, with gaps, not in order."""
    sizes = [0, 1, 2, 31, 32, 33, 0, 100, 700, 2047, 2048, 2049, 9000, 40_000]
    sizes = [size for size in sizes * 2 if size <= max(n // 4, 1)] + rng.integers(0, 60, n // 60).tolist()
    start, at = [], 0
    for size in sizes:
        gap = int(rng.integers(0, 3))
        if at + gap + size > n:
            break
        start.append(at + gap)
        at += gap + size
    start, size = np.array(start, "i8"), np.array(sizes[: len(start)], "i8")
    order = rng.permutation(len(start))
    return start[order], (start + size)[order]


def sorted_segments(host, start, end, order):
    expected = host.copy()
    for s, e in zip(start, end, strict=True):
        expected[s:e] = np.sort(host[s:e])[:: 1 if order is SortOrder.ASCENDING else -1]
    return expected


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("order", list(SortOrder))
@pytest.mark.parametrize("n", [0, 1, 2, 33, 2049, 100_003])
def test_segmented_sort(dtype, order, n, rng):
    host = items(rng, n, dtype)
    start, end = segments(rng, n)
    m = len(start)
    expected = sorted_segments(host, start, end, order)
    covered = np.zeros(n, bool)
    for s, e in zip(start, end, strict=True):
        covered[s:e] = True
    d_start, d_end = cp.asarray(start), cp.asarray(end)
    d_keys, d_values = cp.asarray(host), cp.arange(n, dtype="i4")
    out_keys, out_values = d_keys.copy(), d_values.copy()

    pairs = segmented_sort(d_keys, out_keys, d_values, out_values, d_start, d_end, order)
    arguments = (d_keys, out_keys, d_values, out_values, n, m, d_start, d_end)
    nbytes = pairs(None, *arguments)
    pairs(storage(nbytes), *arguments)
    np.testing.assert_array_equal(out_keys.get(), expected)
    found = out_values.get()
    np.testing.assert_array_equal(host[found], expected)
    np.testing.assert_array_equal(np.sort(found), np.arange(n))
    np.testing.assert_array_equal(d_keys.get(), host)

    out_keys[...] = d_keys
    keys = segmented_sort(d_keys, out_keys, None, None, d_start, d_end, order)
    keys.run(d_keys, out_keys, None, None, n, m, d_start, d_end)
    np.testing.assert_array_equal(out_keys.get(), expected)

    buffers = [cupar.DoubleBuffer(a.copy(), a.copy()) for a in (d_keys, d_values)]
    pairs.run(buffers[0], None, buffers[1], None, n, m, d_start, d_end)
    np.testing.assert_array_equal(buffers[0].current().get()[covered], expected[covered])
    np.testing.assert_array_equal(host[buffers[1].current().get()][covered], expected[covered])


@pytest.mark.parametrize("offset", ["i1", "u1", "i2", "u4", "i8", "u8"])
@pytest.mark.parametrize("values", ["?", "f2", "c16"])
def test_segmented_sort_of_other_offsets_and_values(offset, values, rng):
    host, payload = items(rng, 120, "i4"), items(rng, 120, values)
    bounds = np.array([0, 3, 3, 50, 120], offset)
    d_bounds = cp.asarray(bounds)
    d_keys, d_values = cp.asarray(host), cp.asarray(payload)
    out = cp.zeros_like(d_keys), cp.zeros_like(d_values)
    start, end = d_bounds[:-1], d_bounds[1:]
    sort = segmented_sort(d_keys, out[0], d_values, out[1], start, end, SortOrder.ASCENDING)
    sort.run(d_keys, out[0], d_values, out[1], 120, 4, start, end)
    where = np.concatenate(
        [
            s + np.argsort(host[s:e], kind="stable")
            for s, e in zip(bounds[:-1].astype(int), bounds[1:].astype(int))
        ]
    )
    np.testing.assert_array_equal(out[0].get(), host[where])
    np.testing.assert_array_equal(out[1].get(), payload[where])


@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize("size", [10, 100, 1000, 10_000])
def test_segmented_sort_of_awkward_keys(name, size):
    host = np.ascontiguousarray(AWKWARD[name](40_000)).astype("i4")
    d_keys, d_out = cp.asarray(host), cp.zeros(40_000, "i4")
    bounds = cp.arange(0, 40_001, size)
    for order in SortOrder:
        sort = segmented_sort(d_keys, d_out, None, None, bounds[:-1], bounds[1:], order)
        sort.run(d_keys, d_out, None, None, 40_000, len(bounds) - 1, bounds[:-1], bounds[1:])
        expected = np.sort(host.reshape(-1, size), axis=1)[:, :: 1 if order is SortOrder.ASCENDING else -1]
        np.testing.assert_array_equal(d_out.get(), expected.ravel())


@pytest.mark.parametrize("dtype", FLOATS)
def test_segmented_sort_of_large_segments_with_nan(dtype, rng):
    host = items(rng, 60_000, dtype)
    host[::50] = np.nan
    d_keys, d_out, bounds = cp.asarray(host), cp.zeros(60_000, dtype), cp.asarray([0, 30_000, 60_000])
    sort = segmented_sort(d_keys, d_out, None, None, bounds[:-1], bounds[1:], SortOrder.ASCENDING)
    sort.run(d_keys, d_out, None, None, 60_000, 2, bounds[:-1], bounds[1:])
    np.testing.assert_array_equal(d_out.get(), np.sort(host.reshape(2, -1), axis=1).ravel())


# Around where another kernel sorts them.
LENGTHS = [
    *(
        1,
        2,
        15,
        16,
        17,
        31,
        32,
        33,
        63,
        64,
        65,
        127,
        128,
        129,
        255,
        256,
        257,
        511,
        512,
        513,
        1023,
        1024,
        1025,
    ),
    *(2048, 2049, 4096, 4097, 8191, 8192, 8193, 16383, 16384, 16385, 40_000),
]


def stable_order(host, order):
    """Return where sorted keys come from, along the last axis: equal ones stay in their order."""
    if order is SortOrder.ASCENDING:
        return np.argsort(host, axis=-1, kind="stable")
    last = host.shape[-1] - 1
    return last - np.argsort(host[..., ::-1], axis=-1, kind="stable")[..., ::-1]


@pytest.mark.parametrize("dtype", ["u1", "f2", "i4", "f4", "i8", "f8"])
@pytest.mark.parametrize("order", list(SortOrder))
def test_segmented_sorts_are_stable(dtype, order, rng):
    ends = np.cumsum(rng.permutation(LENGTHS))
    starts, n = np.concatenate([[0], ends[:-1]]), int(ends[-1])
    host = rng.integers(0, 4, n).astype(dtype)
    if np.dtype(dtype).kind == "f":
        host[rng.random(n) < 0.2] = -0.0
    d_keys, d_out, d_where = cp.asarray(host), cp.zeros(n, dtype), cp.zeros(n, "i4")
    sort = segmented_sort(dtype, dtype, "i4", "i4", "i8", "i8", order)
    sort.run(
        d_keys, d_out, cp.arange(n, dtype="i4"), d_where, n, len(ends), cp.asarray(starts), cp.asarray(ends)
    )
    expected = np.concatenate([s + stable_order(host[s:e], order) for s, e in zip(starts, ends, strict=True)])
    np.testing.assert_array_equal(d_where.get(), expected)
    assert d_out.get().tobytes() == host[expected].tobytes()


@every(3)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", ["i4", "f8"])
@pytest.mark.parametrize("shift", [0, 1])
def test_segmented_sort_of_rows(length, dtype, shift, rng):
    n = max(50_000 // length, 2) + 1
    host = items(rng, n * length, dtype)
    d_keys, d_out = cp.zeros(n * length + 1, dtype), cp.zeros(n * length + 1, dtype)
    d_keys, d_out = d_keys[shift:][: n * length], d_out[1 - shift :][: n * length]
    d_keys[...] = cp.asarray(host)
    sort = segmented_sort(dtype, dtype, order=SortOrder.ASCENDING)
    sort.run(d_keys, d_out, num_items=n * length, num_segments=n, segment_size=length)
    np.testing.assert_array_equal(d_out.get(), np.sort(host.reshape(n, -1), axis=1).ravel())

    pairs = segmented_sort(dtype, dtype, "u2", "u2", order=SortOrder.DESCENDING)
    payload = items(rng, n * length, "u2")
    d_values, d_out_values = cp.asarray(payload), cp.zeros(n * length, "u2")
    arguments = d_keys, d_out, d_values, d_out_values, n * length, n, None, None
    pairs(storage(pairs(None, *arguments, segment_size=length)), *arguments, segment_size=length)
    where = stable_order(host.reshape(n, -1), SortOrder.DESCENDING)
    np.testing.assert_array_equal(d_out.get(), np.take_along_axis(host.reshape(n, -1), where, 1).ravel())
    expected = np.take_along_axis(payload.reshape(n, -1), where, 1).ravel()
    np.testing.assert_array_equal(d_out_values.get(), expected)


def test_segmented_sort_of_a_matrix(rng):
    host = items(rng, 60_000, "i2").reshape(200, 300)
    d_keys, d_out = cp.asarray(host), cp.zeros((200, 300), "i2")
    sort = segmented_sort(d_keys, d_out, order=SortOrder.ASCENDING)
    sort.run(d_keys, d_out, num_items=60_000, num_segments=200)
    np.testing.assert_array_equal(d_out.get(), np.sort(host, axis=1))
    sort.run(d_keys, d_out, num_items=60_000, num_segments=10)  # of rows so long, the first
    for counts in ({"num_items": 60_000, "num_segments": 200}, {}):
        buffer = cupar.DoubleBuffer(cp.asarray(host), cp.zeros((200, 300), "i2"))
        sort.run(buffer, **counts)
        np.testing.assert_array_equal(buffer.current().get(), np.sort(host, axis=1))
    with pytest.raises(ValueError, match="^segment_size: .*60000: 200 segments of 301 items"):
        sort.run(d_keys, d_out, num_items=60_000, num_segments=200, segment_size=301)
    with pytest.raises(TypeError, match="^segment_size: expected an integer, as there are neither"):
        sort.run(d_keys.ravel(), d_out, num_items=60_000, num_segments=200)


def test_sorts_ascend_unless_they_are_told_and_rows_tell_how_many_there_are(rng):
    host = items(rng, 60_000, "i2").reshape(200, 300)
    d_keys, d_out, flat = cp.asarray(host), cp.zeros((200, 300), "i2"), cp.zeros(60_000, "i2")
    cupar.radix_sort(d_keys.ravel(), flat).run(d_keys.ravel(), flat, num_items=60_000)
    np.testing.assert_array_equal(flat.get(), np.sort(host.ravel()))
    sort = segmented_sort(d_keys, d_out)
    for keys, given in (
        (d_keys, {}),
        (d_keys, {"num_segments": 200}),
        (d_keys, {"num_items": 60_000}),
        (d_keys.ravel(), {"segment_size": 300}),
    ):
        d_out[...] = 0
        sort.run(keys, d_out, **given)
        np.testing.assert_array_equal(d_out.get(), np.sort(host, axis=1))
    d_out[...] = 0
    sort.run(d_keys, d_out, num_segments=3)
    np.testing.assert_array_equal(d_out.get()[:3], np.sort(host[:3], axis=1))
    assert not d_out.get()[3:].any()
    with pytest.raises(ValueError, match="^num_segments: .* 60000 items are no whole number of rows of 299"):
        sort.run(d_keys, d_out, segment_size=299)

    bound = cupar.segmented_top_k("i2", "i2").bind(d_keys, flat, k=2)
    bound()
    np.testing.assert_array_equal(flat.get()[:400].reshape(200, 2), np.sort(host, axis=1)[:, ::-1][:, :2])
    cupar.inclusive_segmented_scan("i2", "i2", op=OpKind.MAXIMUM).run(d_keys, d_out)
    np.testing.assert_array_equal(d_out.get(), np.maximum.accumulate(host, axis=1))
    largest = cupar.segmented_reduce("i2", "i2", op=OpKind.MAXIMUM, h_init=0)
    largest.run(d_keys, flat, h_init=0)
    np.testing.assert_array_equal(flat.get()[:200], np.maximum(host.max(axis=1), 0))
    with pytest.raises(TypeError, match="^num_segments: .* an iterator does not tell it"):
        largest.run(cupar.TransformIterator("i2", lambda a: a), flat, h_init=0, segment_size=3)
    with pytest.raises(TypeError, match="^num_items: expected an integer, got NoneType"):
        segmented_sort("i2", "i2", None, None, "i4", "i4").run(d_keys, d_out)


@pytest.mark.parametrize("order", list(SortOrder))
def test_segmented_sort_of_short_segments_and_a_long_one(order, rng):
    sizes = np.minimum(16 * rng.random(20_000) ** (-1 / 1.15), 2**16).astype("i8")
    sizes[777] = 2 ** (17 if IS_CPU else 21) + 5
    ends = np.cumsum(sizes)
    starts, n = ends - sizes, int(ends[-1])
    sort = segmented_sort("i4", "i4", "i8", "i8", "i8", "i8", order)
    d_starts, d_ends = cp.asarray(starts), cp.asarray(ends)
    for most in (1000, *([] if IS_CPU else [2**31 - 1])):  # more than parts may have, have one digit; few
        host = rng.integers(-most, most, n, "i4")
        d_out, d_where = cp.zeros(n, "i4"), cp.zeros(n, "i8")
        sort.run(cp.asarray(host), d_out, cp.arange(n), d_where, n, len(ends), d_starts, d_ends)
        keys = host if order is SortOrder.ASCENDING else -host
        expected = np.lexsort((keys, np.repeat(np.arange(len(sizes)), sizes)))
        np.testing.assert_array_equal(d_where.get(), expected)
        np.testing.assert_array_equal(d_out.get(), host[expected])


@needs_gpu
def test_segmented_sorts_are_captured(rng):
    ends = np.cumsum(rng.permutation(LENGTHS * 3))
    n = int(ends[-1])
    d_keys, d_out, d_ends = cp.zeros(n, "u4"), cp.zeros(n, "u4"), cp.asarray(ends)
    d_starts = cp.concatenate([cp.zeros(1, "i8"), d_ends[:-1]])
    sort = segmented_sort("u4", "u4", None, None, "i8", "i8", SortOrder.ASCENDING)
    arguments = d_keys, d_out, None, None, n, len(ends), d_starts, d_ends
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        sort.run(*arguments, stream)
        captured = stream.end_capture()
    for _ in range(2):
        host = items(rng, n, "u4")
        d_keys.set(host)
        cp.cuda.Device().synchronize()
        captured.launch(stream)
        stream.synchronize()
        parts = np.split(host, ends[:-1])
        np.testing.assert_array_equal(d_out.get(), np.concatenate([np.sort(part) for part in parts]))


# Of 16 and of 24 bytes.
PEAKS = (
    np.dtype([("height", "f8"), ("index", "i4"), ("flag", "u1")], align=True),
    np.dtype([("height", "f4"), ("index", "i8"), ("flag", "u1")], align=True),
)


@every(5)
@pytest.mark.parametrize("peak", PEAKS, ids=lambda peak: str(peak.itemsize))
@pytest.mark.parametrize("keys", ["i1", "f4", "u8"])
@pytest.mark.parametrize("kind", ["random", "few", "equal", "tiny", "short", "one"])
def test_segmented_sort_of_structs(keys, peak, kind, rng):
    others = {
        "tiny": rng.integers(0, 40, 20_000),
        "short": rng.integers(0, 1500, 12),
        "one": np.array([300_001]),
    }
    sizes = others.get(kind, rng.permutation(LENGTHS))
    ends = np.cumsum(sizes)
    starts, n = ends - sizes, int(ends[-1])
    host = items(rng, n, keys)
    if kind in ("few", "equal"):
        host = rng.integers(0, 3 if kind == "few" else 1, n).astype(keys)
    # All bytes, those between fields too: NumPy leaves them out when it copies structs, but not bytes.
    payload = np.frombuffer(rng.bytes(n * peak.itemsize), f"V{peak.itemsize}")
    d_in, d_out = Structs(np.empty(n, peak), cp.asarray(payload.view("u1"))), Structs(np.zeros(n, peak))
    d_keys, d_out_keys = cp.asarray(host), cp.zeros(n, keys)
    sort = segmented_sort(keys, keys, peak, peak, "i8", "i8", SortOrder.DESCENDING)
    bounds = cp.asarray(starts), cp.asarray(ends)
    sort.run(d_keys, d_out_keys, d_in, d_out, n, len(ends), *bounds)
    expected = np.concatenate(
        [s + stable_order(host[s:e], SortOrder.DESCENDING) for s, e in zip(starts, ends, strict=True)]
    )
    np.testing.assert_array_equal(d_out_keys.get(), host[expected])
    assert d_out.get().tobytes() == payload[expected].tobytes()


def test_double_buffers_go_on_from_where_they_are(rng):
    host = items(rng, 10_000, "u4")
    bounds = cp.arange(0, 10_001, 1000)
    start, end = bounds[:-1], bounds[1:]
    keys = cupar.DoubleBuffer(cp.zeros(10_000, "u4"), cp.asarray(host))
    keys.selector = 1
    sort = segmented_sort(keys, None, None, None, start, end, SortOrder.ASCENDING)
    for _ in range(2):
        arguments = (keys, None, None, None, 10_000, 10, start, end)
        sort(storage(sort(None, *arguments)), *arguments)
        np.testing.assert_array_equal(keys.current().get(), np.sort(host.reshape(10, -1), axis=1).ravel())


def test_segmented_sort_of_no_segments_and_refusals():
    d_keys, d_out, d = cp.arange(10, dtype="u4"), cp.zeros(10, "u4"), cp.zeros(3, "i4")
    sort = segmented_sort(d_keys, d_out, None, None, d, d, SortOrder.DESCENDING)
    sort.run(d_keys, d_out, None, None, 10, 0, d, d)
    sort.run(d_keys, d_out, None, None, 10, 3, d, d)  # all of them empty
    assert not d_out.any()
    with pytest.raises(ValueError, match="^end_offsets_in: needs at least 3 items"):
        sort.run(d_keys, d_out, None, None, 10, 3, d, d[:2])
    with pytest.raises(ValueError, match="^d_out_keys: needs at least 10 items"):
        sort.run(d_keys, d_out[:9], None, None, 10, 3, d, d)
    with pytest.raises(TypeError, match="^start_offsets_in: "):
        sort.run(d_keys, d_out, None, None, 10, 3, None, d)
