"""Arithmetic and conversions of bfloat16, and what reads and writes it beside arrays, against NumPy."""

import math

import numpy as np
import pytest
from support.bfloat16 import BF16, THREE, bits, device, empty, few, host_of, ml_dtypes, same
from support.results import IS_CPU, Structs, cp, every, needs_gpu

import cupar
from cupar import OpKind, gpu_struct

PLUS = OpKind.PLUS
EVERY = np.arange(2**16, dtype=np.uint16).view(BF16)  # each bit pattern
TABLE = np.array([0, 1.5, -2, 200], BF16)
Pair = gpu_struct({"x": BF16, "n": np.int32}, "Pair")


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
    for op in (OpKind[kind], function)[IS_CPU:]:
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
    for op in (OpKind.IDENTITY, lambda x: x, lambda x: cast(x))[2 * IS_CPU :]:  # noqa: PLW0108
        cupar.unary_transform(d_in, d_out, op).run(d_in, d_out, 2**16)
        np.testing.assert_array_equal(d_out.get(), expected)


SOURCES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]


@pytest.mark.parametrize("source", ["i4", "i8", "u8", "f2", "f8"] if IS_CPU else SOURCES)
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
    for op in (OpKind.IDENTITY, lambda x: x, lambda x: ml_dtypes.bfloat16(x))[2 * IS_CPU :]:  # noqa: PLW0108
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
    "table": (lambda x: x + TABLE[3], lambda x: x + 200),  # not on the CPU, where numba has no arrays of it
    "powers": (lambda x: x**2, lambda x: x * x),
    "floor": (math.floor, np.floor),
    "root": (lambda x: math.sqrt(abs(x)), lambda x: np.sqrt(np.abs(x))),
    "exponential": (math.exp, np.exp),
    "divided": (lambda x: x // 3, lambda x: np.floor(x / 3)),
    "integers": (lambda x: np.float32(int(x)), lambda x: np.trunc(x) + 0.0),  # there is no -0
}


@pytest.mark.parametrize("name", [name for name in OPERATORS if not (IS_CPU and name == "table")])
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


@every(5)
@pytest.mark.parametrize("other", ["i1", "u1", "i4", "f2", "f4", "f8"])
def test_with_other_types(other, rng):
    a, b = rng.integers(-60, 61, 1000).astype(BF16), rng.integers(0, 60, 1000).astype(other)
    d_a, d_b = device(a), cp.asarray(b)
    for out in (empty(1000), cp.zeros(1000, "f8")):
        for op in (PLUS, lambda x, y: x + y)[IS_CPU:]:
            cupar.binary_transform(d_a, d_b, out, op).run(d_a, d_b, out, 1000)
            found = host_of(out) if out.itemsize == 2 else out.get()
            np.testing.assert_array_equal(found.astype("f8"), a.astype("f8") + b)


# --- Iterators, structs, captured arrays---------------------------------------------------------------------


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


def test_structs(rng):
    n = 70_001
    keys, places = rng.permutation(n).astype("f4").astype(BF16), np.arange(n, dtype="i4")
    host = np.zeros(n, Pair.dtype)
    host["x"], host["n"] = keys, places
    d_in, d_out = Structs(host), Structs(host[:1])
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


@needs_gpu  # on the CPU numba has no arrays of it
def test_captured_arrays(rng):
    table = device(np.array([1, 2, 4, 8], BF16))
    places = cp.asarray(rng.integers(0, 4, 1000), "i4")
    d_out = empty(1000)
    look = cupar.unary_transform(places, d_out, lambda i: table[i])
    look.run(places, d_out, 1000)
    same(host_of(d_out), 2.0 ** places.get())
