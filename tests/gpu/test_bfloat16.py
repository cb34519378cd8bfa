"""bfloat16 in every algorithm, against NumPy with ml_dtypes, and arrays of it of other libraries.

Sums are exact whatever their order, as in `test_dtypes`: bfloat16 has the integers up to 256.
"""

import math
import subprocess
import sys
from itertools import pairwise

import cupy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cupar
from cupar import OpKind, SortOrder, gpu_struct

ml_dtypes = pytest.importorskip("ml_dtypes")

BF16 = np.dtype(ml_dtypes.bfloat16)
PLUS = OpKind.PLUS
SIZES = [0, 1, 2, 33, 1000, 70_001, 1_000_000]
THREE = ml_dtypes.bfloat16(3)
EVERY = np.arange(2**16, dtype=np.uint16).view(BF16)  # each bit pattern
TABLE = np.array([0, 1.5, -2, 200], BF16)
Pair = gpu_struct({"x": BF16, "n": np.int32}, "Pair")


def device(host):
    """Return a CuPy array of bfloat16, whatever CuPy itself makes of it."""
    return cp.asarray(host.view(np.uint16)).view(BF16)


def empty(n):
    return cp.full(n, 0x7FFF, np.uint16).view(BF16)


def host_of(array):
    return array.view(np.uint16).get().view(BF16)


def bits(array):
    """The bits of each item, those of every NaN the same."""
    return np.where(np.isnan(array.astype(np.float32)), 0x7FFF, array.view(np.uint16))


def same(found, expected):
    np.testing.assert_array_equal(bits(found), bits(np.asarray(expected, BF16)))


def walk(rng, n):
    return np.diff(rng.integers(-60, 61, n + 1)).astype(BF16)


def few(rng, n):
    return (rng.integers(-1, 2, n) * (rng.random(n) < 100 / n)).astype(BF16)


def sortable(rng, n):
    """Keys with infinities, NaNs, both zeros and many that are equal."""
    found = rng.integers(0, 2**16, n).astype(np.uint16).view(BF16)
    found[np.isnan(found.astype(np.float32))] = np.nan
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1], BF16)
    return np.where(rng.random(n) < 0.3, special[rng.integers(0, len(special), n)], found)


@pytest.fixture
def rng():
    return np.random.default_rng(16)


# --- Algorithms ---------------------------------------------------------------------------------------------


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
@pytest.mark.parametrize("n", [*SIZES, 2**25 + 4099])
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


# --- Arithmetic ---------------------------------------------------------------------------------------------

UFUNCS = {
    "PLUS": (np.add, lambda a, b: a + b),
    "MINUS": (np.subtract, lambda a, b: a - b),
    "MULTIPLIES": (np.multiply, lambda a, b: a * b),
    "DIVIDES": (np.divide, lambda a, b: a / b),
}
RELATIONS = {
    "EQUAL_TO": (np.equal, lambda a, b: a == b),
    "NOT_EQUAL_TO": (np.not_equal, lambda a, b: a != b),
    "LESS": (np.less, lambda a, b: a < b),
    "LESS_EQUAL": (np.less_equal, lambda a, b: a <= b),
    "GREATER": (np.greater, lambda a, b: a > b),
    "GREATER_EQUAL": (np.greater_equal, lambda a, b: a >= b),
    "LOGICAL_AND": (np.logical_and, lambda a, b: bool(a) and bool(b)),
}


@pytest.mark.parametrize("kind", [*UFUNCS, *RELATIONS])
def test_arithmetic_of_all_values(kind, rng):
    """Each bit pattern with some others: rounded once, as ml_dtypes rounds what float32 gives."""
    ufunc, function = {**UFUNCS, **RELATIONS}[kind]
    a = np.tile(EVERY, 16)
    b = np.concatenate([rng.permutation(EVERY) for _ in range(15)] + [np.full(2**16, 1 / 3, BF16)])
    d_a, d_b = device(a), device(b)
    d_out = cp.zeros(len(a), bool) if kind in RELATIONS else empty(len(a))
    with np.errstate(all="ignore"):
        expected = ufunc(a.astype("f4"), b.astype("f4")).astype(bool if kind in RELATIONS else BF16)
    for op in (OpKind[kind], function):
        cupar.binary_transform(d_a, d_b, d_out, op).run(d_a, d_b, d_out, len(a))
        if kind in RELATIONS:
            np.testing.assert_array_equal(d_out.get(), expected)
            continue
        found = host_of(d_out)
        # Below the normal numbers float32 itself rounds before.
        close = bits(found) == bits(expected)
        if kind in ("MULTIPLIES", "DIVIDES"):
            tiny = np.abs(expected.astype("f4")) < 2.0**-125
            close |= tiny & (np.abs(found.astype("f4") - expected.astype("f4")) <= 2.0**-132)
        wrong = np.flatnonzero(~close)
        assert not wrong.size, (wrong.size, a[wrong[:3]], b[wrong[:3]], found[wrong[:3]], expected[wrong[:3]])


@pytest.mark.parametrize("target", ["f4", "f8", "f2", "?", "c8"])
def test_conversions_to(target):
    d_in, d_out = device(EVERY), cp.zeros(2**16, target)
    with np.errstate(all="ignore"):
        expected = EVERY.astype("f4").astype(target)
    casts = {"f4": np.float32, "f8": np.float64, "f2": np.float16, "?": bool, "c8": complex}
    cast = casts[target]
    for op in (OpKind.IDENTITY, lambda x: x, lambda x: cast(x)):  # noqa: PLW0108
        cupar.unary_transform(d_in, d_out, op).run(d_in, d_out, 2**16)
        np.testing.assert_array_equal(d_out.get(), expected)


@pytest.mark.parametrize("source", ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"])
def test_conversions_from(source, rng):
    if source == "?":
        host = rng.random(70_000) < 0.5
    elif source[0] in "iu":
        info = np.iinfo(source)
        host = rng.integers(info.min, info.max, 70_000, source, endpoint=True)
        host[:5000] = rng.integers(max(info.min, -600), min(info.max, 600), 5000)
    elif source == "f8":
        host = rng.normal(size=70_000) * 10 ** rng.uniform(-30, 30, 70_000)
    else:
        host = rng.integers(0, 2**16, 70_000 * np.dtype(source).itemsize // 2, "u2").view(source)
    d_in, d_out = cp.asarray(host), empty(70_000)
    # Rounded once, from what has all of its digits.
    wide = host.astype(np.longdouble)
    with np.errstate(all="ignore"):
        mantissa, exponent = np.frexp(wide)
        expected = np.ldexp(np.rint(np.ldexp(mantissa, 8)), exponent - 8).astype("f4")
        small = np.abs(wide) < 2.0**-120
        expected = np.where(small, host.astype("f4").astype(BF16).astype("f4"), expected).astype(BF16)
    for op in (OpKind.IDENTITY, lambda x: x, lambda x: ml_dtypes.bfloat16(x)):  # noqa: PLW0108
        cupar.unary_transform(d_in, d_out, op).run(d_in, d_out, 70_000)
        found = host_of(d_out)
        differ = np.flatnonzero((bits(found) != bits(expected)) & ~small)
        assert not differ.size, (differ.size, host[differ[:3]], found[differ[:3]], expected[differ[:3]])


OPERATORS = {
    "literals": (lambda x: x * 2 + 1.5, lambda x: x * 2 + 1.5),
    "choice": (lambda x: x if x > 0 else 0, lambda x: np.where(x > 0, x, 0)),
    "truth": (lambda x: 1.0 if x else 2.0, lambda x: np.where(x != 0, 1, 2)),
    "absolute": (abs, np.abs),
    "negative": (lambda x: -x, np.negative),
    "largest": (lambda x: max(x, 0.5), lambda x: np.maximum(x, 0.5)),
    "float32": (lambda x: np.float32(x) * np.float32(3), lambda x: x * 3),
    "constant": (lambda x: x * THREE, lambda x: x * 3),
    "table": (lambda x: x + TABLE[3], lambda x: x + 200),
    "powers": (lambda x: x**2, lambda x: x * x),
    "floor": (math.floor, np.floor),
    "root": (lambda x: math.sqrt(abs(x)), lambda x: np.sqrt(np.abs(x))),
    "exponential": (math.exp, np.exp),
    "divided": (lambda x: x // 3, lambda x: np.floor(x / 3)),
    "integers": (lambda x: np.float32(int(x)), lambda x: np.trunc(x) + 0.0),  # there is no -0
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name, rng):
    op, of_numpy = OPERATORS[name]
    host = np.concatenate([rng.integers(-60, 61, 5000), rng.normal(size=5000)]).astype(BF16)
    d_in, d_out = device(host), empty(len(host))
    cupar.unary_transform(d_in, d_out, op).run(d_in, d_out, len(host))
    expected, found = of_numpy(host.astype("f8")), host_of(d_out).astype("f8")
    # What GPUs compute of these is within a unit of the last place.
    ulp = 2.0**-7 if name in ("root", "exponential", "divided") else 2.0**-8
    np.testing.assert_allclose(found, expected, rtol=ulp, atol=1e-30)
    if name not in ("root", "exponential", "divided"):
        same(host_of(d_out), expected.astype("f4").astype(BF16))


@pytest.mark.parametrize("other", ["i1", "u1", "i4", "f2", "f4", "f8"])
def test_with_other_types(other, rng):
    a, b = rng.integers(-60, 61, 1000).astype(BF16), rng.integers(0, 60, 1000).astype(other)
    d_a, d_b = device(a), cp.asarray(b)
    for out in (empty(1000), cp.zeros(1000, "f8")):
        for op in (PLUS, lambda x, y: x + y):
            cupar.binary_transform(d_a, d_b, out, op).run(d_a, d_b, out, 1000)
            found = host_of(out) if out.itemsize == 2 else out.get()
            np.testing.assert_array_equal(found.astype("f8"), a.astype("f8") + b)


# --- Iterators, structs, kernels ----------------------------------------------------------------------------


def test_iterators(rng):
    n = 5000
    host = few(rng, n)
    d_in, d_out = device(host), empty(1)
    total = host.astype("f8").sum()
    counting = cupar.CountingIterator(ml_dtypes.bfloat16(-100))
    for given_in, expected in (
        (cupar.TransformIterator(d_in, lambda x: -x), 0.0 - total),
        (cupar.CacheModifiedInputIterator(d_in), total),
        (cupar.ReverseIterator(d_in), total),
        (cupar.PermutationIterator(d_in, cupar.CountingIterator(0)), total),
    ):
        cupar.reduce_into(given_in, d_out, PLUS, 0).run(given_in, d_out, n, 0)
        same(host_of(d_out), [expected])
    ones = cupar.ConstantIterator(ml_dtypes.bfloat16(0.5))
    cupar.reduce_into(ones, d_out, PLUS, 0).run(ones, d_out, 100, 0)
    same(host_of(d_out), [50])
    d_all = empty(200)
    cupar.unary_transform(counting, d_all, OpKind.IDENTITY).run(counting, d_all, 200)
    same(host_of(d_all), np.arange(-100, 100))
    squares = cupar.TransformOutputIterator(d_all, lambda x: x / 2)
    cupar.inclusive_scan(d_in, squares, OpKind.MAXIMUM).run(d_in, squares, 200)
    same(host_of(d_all), np.maximum.accumulate(host[:200].astype("f4")) / 2)


class Items:
    """Structs in device memory, of which the interface says what NumPy's `descr` does."""

    def __init__(self, host):
        self.dtype, self.data = host.dtype, cp.asarray(host.view(np.uint8))
        self.__cuda_array_interface__ = {
            "shape": host.shape,
            "typestr": host.dtype.str,
            "descr": host.dtype.descr,
            "data": (self.data.data.ptr, False),
            "version": 3,
        }

    def get(self):
        return self.data.get().view(self.dtype)


def test_structs(rng):
    n = 70_001
    keys, places = rng.permutation(n).astype("f4").astype(BF16), np.arange(n, dtype="i4")
    host = np.zeros(n, Pair.dtype)
    host["x"], host["n"] = keys, places
    d_in, d_out = Items(host), Items(host[:1])
    first = lambda a, b: a if a.x > b.x or (a.x == b.x and a.n < b.n) else b
    cupar.reduce_into(d_in, d_out, first, None).run(d_in, d_out, n)
    found = d_out.get()[0]
    at = int(np.argmax(keys.astype("f4")))
    assert (float(found["x"]), found["n"]) == (float(keys[at]), at)
    zipped = cupar.ZipIterator(device(keys), cp.asarray(places))
    made = cupar.reduce_into(zipped, d_out, lambda a, b: Pair(max(a[0], b[0]), max(a[1], b[1])), Pair(-1, -1))
    made.run(zipped, d_out, n, Pair(-1, -1))
    found = d_out.get()[0]
    assert (float(found["x"]), found["n"]) == (float(keys[at]), n - 1)


def test_captured_arrays(rng):
    table = device(np.array([1, 2, 4, 8], BF16))
    places = cp.asarray(rng.integers(0, 4, 1000), "i4")
    d_out = empty(1000)
    look = cupar.unary_transform(places, d_out, lambda i: table[i])
    look.run(places, d_out, 1000)
    same(host_of(d_out), 2.0 ** places.get())


@pytest.mark.parametrize("shape", [(1000, 1), (40, 25)])
def test_kernels(shape, rng):
    from numba import cuda

    @cupar.jit
    def scale(x, out, factor, pair):
        row = cuda.shared.array(4, cuda.types.bfloat16)
        row[0] = 2
        cuda.syncthreads()
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            at = i // x.shape[1], i % x.shape[1]
            out[at] = x[at] * factor + row[0] + pair.x

    host = rng.integers(-20, 21, shape).astype(BF16)
    d_in, d_out = device(host), empty(host.size).reshape(shape)
    scale[4, 64](d_in, d_out, THREE, Pair(0.5, 1))
    same(host_of(d_out), host.astype("f4") * 3 + 2.5)
    scale[4, 64](d_in.T, d_out.T, ml_dtypes.bfloat16(-1), Pair(1, 1))
    same(host_of(d_out), 3 - host.astype("f4"))


def test_cpp(rng):
    half = cupar.cpp(
        "#include <cuda_bf16.h>\n__device__ __nv_bfloat16 half_of(__nv_bfloat16 x) {"
        " return x * __float2bfloat16(0.5f); }",
        "bfloat16(bfloat16)",
    )
    host = rng.normal(size=1000).astype(BF16)
    d_in, d_out = device(host), empty(1000)
    cupar.unary_transform(d_in, d_out, half).run(d_in, d_out, 1000)
    same(host_of(d_out), host.astype("f4") / 2)


def test_bound_and_in_graphs(rng):
    host = few(rng, 1000)
    d_in, d_out = device(host), empty(1)
    sums = cupar.reduce_into(d_in, d_out, PLUS, 0)
    sums.bind(d_in, d_out, 1000, 0)()
    same(host_of(d_out), [host.astype("f8").sum()])


def test_in_compiled_host_code(rng):
    from numba import njit

    host = few(rng, 1000)
    d_in, d_out = device(host), empty(1)
    sums = cupar.reduce_into(d_in, d_out, PLUS, 0)

    @njit
    def run(x, out, init):
        sums.run(x, out, x.size, init)

    for init in (0, 3.0, np.float32(-2), True):
        run(cupar.view(d_in), cupar.view(d_out), init)
        cp.cuda.Device().synchronize()
        same(host_of(d_out), [host.astype("f8").sum() + float(init)])


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


# --- Other libraries ----------------------------------------------------------------------------------------


def test_arrays_of_cupy(rng):
    host = few(rng, 1000)
    d_in, d_out = cp.asarray(host), cp.empty(1, BF16)
    assert d_in.dtype == BF16
    sums = cupar.reduce_into(d_in, d_out, PLUS, 0)
    sums.run(d_in, d_out, 1000, 0)
    same(d_out.get(), [host.astype("f8").sum()])
    with pytest.raises(TypeError, match=r"^d_in: .*bfloat16.*float16"):
        sums.run(cp.zeros(1000, "f2"), d_out, 1000, 0)


def test_tensors_of_torch(rng):
    torch = pytest.importorskip("torch")
    host = few(rng, 1000)
    t_in = torch.from_numpy(host.astype("f4")).to(torch.bfloat16).cuda()
    t_out = torch.zeros(1, dtype=torch.bfloat16, device="cuda")
    sums = cupar.reduce_into(t_in, t_out, PLUS, 0)
    assert sums.build.key == cupar.reduce_into(BF16, BF16, PLUS, 0).build.key
    for _ in range(3):
        t_out.zero_()
        sums.run(t_in, t_out, 1000, 0)
        assert float(t_out.item()) == host.astype("f8").sum()
    cupar.unary_transform(t_in, t_in, lambda x: x * 2).run(t_in, t_in, 1000)
    np.testing.assert_array_equal(t_in.float().cpu().numpy(), host.astype("f4") * 2)

    @cupar.jit
    def negate(x):
        for i in range(x.size):
            x[i] = -x[i]

    for _ in range(2):
        negate[1, 1](t_in)
    np.testing.assert_array_equal(t_in.float().cpu().numpy(), host.astype("f4") * 2)
    strided = torch.zeros(40, 25, dtype=torch.bfloat16, device="cuda")[:, ::2]
    assert cupar.view(strided).strides == (50, 4)


class Packed:
    """A tensor that has DLPack alone."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)


def test_dlpack(rng):
    torch = pytest.importorskip("torch")
    host = few(rng, 1000)
    t_in = torch.from_numpy(host.astype("f4")).to(torch.bfloat16).cuda()
    t_out = torch.zeros(1, dtype=torch.bfloat16, device="cuda")
    sums = cupar.reduce_into(Packed(t_in), Packed(t_out), PLUS, 0)
    sums.run(Packed(t_in), Packed(t_out), 1000, 0)
    assert float(t_out.item()) == host.astype("f8").sum()


OF_JAX = """
import os
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import cupar, cupy, jax, numpy
try:
    items = [jax.numpy.arange(20, dtype=dtype).block_until_ready() for dtype in ("float32", "bfloat16")]
    found = {each.platform for array in items for each in array.devices()}
except RuntimeError:
    found = None
if found != {"gpu"} and found != {"cuda"}:
    raise SystemExit("no GPU")
out = cupy.zeros(1, "f4")
for array in items * 2:
    init = numpy.zeros(1, "f4")
    cupar.reduce_into(array, out, cupar.OpKind.PLUS, init).run(array, out, 20, init)
    assert out.get()[0] == 190, out
"""


def test_arrays_of_jax():
    """In a process of its own, as it takes what is there of memory."""
    pytest.importorskip("jax")
    done = subprocess.run([sys.executable, "-c", OF_JAX], capture_output=True, text=True, timeout=300)
    if "no GPU" in done.stderr:
        pytest.skip("JAX finds no GPU")
    assert done.returncode == 0, done.stderr


def test_device_arrays_of_numba(rng):
    from numba import cuda

    host = few(rng, 1000)
    d_in, d_out = cuda.device_array(1000, BF16), empty(1)  # numba copies none from the host
    cp.cuda.runtime.memcpy(d_in.device_ctypes_pointer.value, device(host).data.ptr, 2000, 3)
    cupar.reduce_into(d_in, d_out, PLUS, 0).run(d_in, d_out, 1000, 0)
    same(host_of(d_out), [host.astype("f8").sum()])
