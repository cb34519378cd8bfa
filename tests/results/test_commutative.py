"""Reductions with operators that do not commute, against plain loops."""

import functools

import numpy as np
import pytest
from support.results import IS_CPU, Structs, cp, every, needs_gpu

import cupar

SIZES = [1, 2, 31, 32, 33, 1000, 1023, 1025, 4097, 16_385, 100_003, 300_001]
MANY = [] if IS_CPU else [1 << 20, 3_000_017, (1 << 24) + 5, (1 << 26) + 3]
AFFINE = np.dtype([("a", "u4"), ("b", "u4")], align=True)
MATRIX = np.dtype([(name, "i4") for name in "abcd"], align=True)
WIDE = np.dtype([("a", "u8"), ("b", "u8")], align=True)
TRIPLE = np.dtype([("first", "i4"), ("last", "i4"), ("breaks", "i4")], align=True)


def last_nonzero(a, b):
    return b if b != 0 else a


def then(f, g):
    """First ``f``, then ``g``: maps x -> a x + b."""
    return f[0] * g[0], f[1] * g[0] + g[1]


def product(x, y):
    return (
        x[0] * y[0] + x[1] * y[2],
        x[0] * y[1] + x[1] * y[3],
        x[2] * y[0] + x[3] * y[2],
        x[2] * y[1] + x[3] * y[3],
    )


def joined(a, b):
    """Of a stretch of items: the first, the last, and how often neighbours differ."""
    return a[0], b[1], a[2] + b[2] + (1 if a[1] != b[0] else 0)


def nonzero(rng, n, dtype):
    host = np.zeros(n, dtype)
    chosen = rng.integers(0, n, n // 50 + 1)
    host[chosen] = rng.integers(1, 100, len(chosen))
    return host


@every(3)
@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "f4", "i8", "f8"])
def test_the_last_that_is_not_zero(dtype, rng):
    reduction = cupar.reduce_into(dtype, dtype, last_nonzero, np.zeros(1, dtype), commutative=False)
    for n in [0, *SIZES, *MANY]:
        host = nonzero(rng, n, dtype) if n else np.zeros(0, dtype)
        for stop in {n, n // 2, n // 3 + 1} if n > 3 else {n}:
            given = cp.asarray(host)
            given[stop:] = 0
            out = cp.full(1, 77, dtype)
            reduction.run(given, out, n, np.full(1, 5, dtype))
            left = np.flatnonzero(host[:stop])
            assert out.get()[0] == (host[left[-1]] if len(left) else 5), (n, stop)


@pytest.mark.parametrize("skip", [1, 2, 3, 5])
def test_parts_of_arrays(skip, rng):
    reduction = cupar.reduce_into("i2", "i2", lambda a, b: b, None, commutative=False)
    first = cupar.reduce_into("i2", "i2", lambda a, b: a, None, commutative=False)
    host = rng.integers(-1000, 1000, 400_000, "i2")
    given, out = cp.asarray(host), cp.zeros(1, "i2")
    for n in [1, 2, 7, 33, 1000, 20_001, 399_990]:
        reduction.run(given[skip:], out, n)
        assert out.get()[0] == host[skip + n - 1]
        first.run(given[skip:], out, n)
        assert out.get()[0] == host[skip]


def composed(op, items):
    with np.errstate(over="ignore"):
        return functools.reduce(op, items)


@pytest.mark.parametrize(
    ("dtype", "op"), [(AFFINE, then), (WIDE, then), (MATRIX, product)], ids=["affine", "wide", "matrix"]
)
def test_compositions(dtype, op, rng):
    """Numbers wrap around, so that any grouping gives the same."""
    reduction = cupar.reduce_into(dtype, dtype, op, None, commutative=False)
    wanted, before, host = None, 0, np.zeros(max(SIZES), dtype)
    for name in dtype.names:
        host[name] = rng.integers(0, 1 << 30, len(host))
    whole, out = Structs(host), Structs(np.zeros(1, dtype))
    scalars = [tuple(host[name][i] for name in dtype.names) for i in range(SIZES[-2])]
    for n in SIZES[:-1]:
        more = scalars[before:n]
        wanted, before = composed(op, more if wanted is None else [wanted, *more]), n
        reduction.run(whole[:n], out, n)
        assert tuple(out.get()[0]) == wanted, n


def test_stretches_of_iterators(rng):
    """Structs of 12 bytes, made of an array's items as they are read."""
    host = rng.integers(0, 3, 300_001, "i4")
    given = cp.asarray(host)
    init = np.zeros(1, TRIPLE)
    init["first"] = init["last"] = host[0]
    out = Structs(np.zeros(1, TRIPLE))
    pairs = cupar.TransformIterator(
        cupar.ZipIterator(given, given, cupar.ConstantIterator(np.int32(0))), to_triple
    )
    reduction = cupar.reduce_into(pairs, out, joined, init, commutative=False)
    for n in SIZES:
        reduction.run(pairs, out, n, init)
        breaks = np.count_nonzero(np.diff(host[:n]))
        assert tuple(out.get()[0]) == (host[0], host[n - 1], breaks), n


def to_triple(item):
    return item[0], item[1], item[2]


@needs_gpu
def test_many_structs():
    """Each item is the stretch of itself alone, of which neighbours follow one another."""
    n = (1 << 24) + 77
    host = np.zeros(n, TRIPLE)
    host["first"] = host["last"] = np.arange(n) % 1000
    out = Structs(np.zeros(1, TRIPLE))
    reduction = cupar.reduce_into(TRIPLE, TRIPLE, joined, None, commutative=False)
    reduction.run(Structs(host), out, n)
    assert tuple(out.get()[0]) == (0, (n - 1) % 1000, n - 1)


def test_what_is_refused():
    with pytest.raises(TypeError, match="commutative: expected True or False, got 0"):
        cupar.reduce_into("i4", "i4", last_nonzero, 0, commutative=0, cc=90)
    with pytest.raises(ValueError, match="commutative=False"):
        cupar.reduce_into(
            *("i4", "i4", cupar.OpKind.PLUS, 0),
            determinism=cupar.Determinism.NOT_GUARANTEED,
            commutative=False,
            cc=90,
        )


def test_the_order_of_an_array_is_cs():
    given, out = cp.asfortranarray(cp.ones((3, 4))), cp.zeros(1)
    in_order = cupar.reduce_into("f8", "f8", last_nonzero, 0.0, commutative=False)
    with pytest.raises(ValueError, match="d_in"):
        in_order.run(given, out, 12, 0.0)


def test_builds_of_commutative_operators_are_what_they_were(specified):
    default = specified(cupar.reduce_into, "i4", "i4", last_nonzero, 0)
    assert default == specified(cupar.reduce_into, "i4", "i4", last_nonzero, 0, commutative=True)
    assert default.option("commutative") is None
    assert specified(cupar.reduce_into, "i4", "i4", last_nonzero, 0, commutative=False) != default


# --- Segments --------------------------------------------------------------------------------------------


def segments_of(rng, lengths):
    """Return offsets of segments of some lengths, one after another with gaps."""
    gaps = rng.integers(0, 3, len(lengths))
    ends = np.cumsum(lengths + gaps)
    return ends - lengths, ends


LENGTHS = {
    "short": lambda rng: rng.integers(0, 9, 5000),
    "of all kinds": lambda rng: np.concatenate([rng.integers(0, 300, 700), [0, 1, 33, 2048, 9000, 20_000]]),
    "long": lambda rng: np.array([50_001, 3, 0, 123_457, 70_000]),
    "one": lambda rng: np.array([300_001]),
    "of one warp's lanes": lambda rng: np.array([1, 31, 32, 33, 127, 128, 129, 1023, 1024, 1025] * 40),
}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("dtype", ["i1", "i4", "f8"])
@every(2)
def test_segments_of_arrays(lengths, dtype, rng):
    """The last that is not zero of each."""
    starts, ends = segments_of(rng, lengths(rng))
    host = nonzero(rng, int(ends[-1]) + 3, dtype)
    wanted = np.full(len(starts), 5, dtype)
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        found = np.flatnonzero(host[start:end])
        if len(found):
            wanted[i] = host[start + found[-1]]
    reduction = cupar.segmented_reduce(
        dtype, dtype, "i8", "i8", last_nonzero, np.zeros(1, dtype), commutative=False
    )
    out, init = cp.zeros(len(starts), dtype), np.full(1, 5, dtype)
    reduction.run(cp.asarray(host), out, len(starts), cp.asarray(starts), cp.asarray(ends), init)
    np.testing.assert_array_equal(out.get(), wanted)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_segments_of_structs(lengths, rng):
    starts, ends = segments_of(rng, lengths(rng))
    host = np.zeros(int(ends[-1]), TRIPLE)
    host["first"] = host["last"] = rng.integers(0, 3, len(host))
    wanted = [
        (7, host["last"][end - 1], np.count_nonzero(np.diff(host["last"][start:end], prepend=7)))
        if end > start
        else (7, 7, 0)
        for start, end in zip(starts, ends, strict=True)
    ]
    init, out = np.array([(7, 7, 0)], TRIPLE), Structs(np.zeros(len(starts), TRIPLE))
    reduction = cupar.segmented_reduce(TRIPLE, TRIPLE, "i8", "i8", joined, init, commutative=False)
    reduction.run(Structs(host), out, len(starts), cp.asarray(starts), cp.asarray(ends), init)
    assert out.get().tolist() == wanted


@pytest.mark.parametrize("size", [1, 3, 8, 31, 100, 1000, 30_000])
def test_rows(size, rng):
    host = nonzero(rng, 12 * size, "i4").reshape(12, size)
    out = cp.zeros(12, "i4")
    reduction = cupar.segmented_reduce("i4", "i4", op=last_nonzero, h_init=0, commutative=False)
    reduction.run(cp.asarray(host), out, 12, None, None, 9, segment_size=size)
    left = [row[row != 0] for row in host]
    assert out.get().tolist() == [row[-1] if len(row) else 9 for row in left]
