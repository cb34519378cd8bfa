"""Every dtype, at the sizes where something changes, against NumPy. Results must be equal, not close.

Sums of floats are exact here whatever their order: those of a scan because its items are differences of a
bounded integer sequence, so that the sum of any run of them is a difference of two of its members; those of a
reduction, which takes items in any order, because few of its items are other than 0.
"""

import numpy as np
import pytest
from support.operators import add, either
from support.results import DTYPES, IS_CPU, cp, every, few, needs_gpu

import cupar

SIZES = [0, 1, 2, 31, 32, 33]


def items(rng, n, dtype):
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(n) < 0.3
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, n, dtype, endpoint=True)
    walk = np.diff(rng.integers(-500, 500, n + 1))
    if dtype.kind == "c":
        return (walk + 1j * np.diff(rng.integers(-500, 500, n + 1))).astype(dtype)
    return walk.astype(dtype)


def unordered(rng, n, dtype):
    """Items that can be summed in any order without rounding."""
    if np.dtype(dtype).kind not in "fc":
        return items(rng, n, dtype)
    few = lambda: rng.integers(-1, 2, n) * (rng.random(n) < 1000 / n)
    return (few() + 1j * few()).astype(dtype) if np.dtype(dtype).kind == "c" else few().astype(dtype)


def larger(a, b):
    return a if a > b else b


def last(a, b):
    return b


def commutative(dtype):
    """Operators for a reduction, and the scans they make in NumPy. CUB's reduction wants them commutative."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return {either: np.logical_or.accumulate, larger: np.logical_or.accumulate}
    if kind == "c":
        return {add: lambda x: np.cumsum(x, dtype=x.dtype)}
    return {add: lambda x: np.cumsum(x, dtype=x.dtype), larger: np.maximum.accumulate}


def associative(dtype):
    """Operators for a scan, one of them not commutative, and what they make of an array in NumPy."""
    if np.dtype(dtype).kind == "b":
        return {either: np.logical_or.accumulate, last: lambda x: x}
    return {add: lambda x: np.cumsum(x, dtype=x.dtype), last: lambda x: x}


def single_tile(reduction, d_in, d_out, h_init):
    """The largest number of items that a reduction does in one tile: beyond, it needs more storage."""
    storage = lambda n: reduction(None, d_in, d_out, n, h_init)
    small = storage(1)
    low, high = 1, len(d_in)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if storage(middle) == small else (low, middle)
    return low


def scan_tiles(scan, d_in, d_out, h_init):
    """Numbers of items after which a scan needs another tile, and guesses at the tile itself.

    Tile states are a few bytes each and storage is rounded to 256, so each step in the storage is a tile
    boundary, and two steps in a row are a power of two of tiles apart.
    """
    storage = lambda n: scan(None, d_in, d_out, n, h_init)

    def next_step(start):
        low, high = start, len(d_in)
        if storage(low) == storage(high):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if storage(middle) == storage(start) else (low, middle)
        return low

    first = next_step(1)
    second = next_step(first + 1) if first else None
    boundaries = [first] if first else []
    if second:
        boundaries += [(second - first) // tiles for tiles in (4, 8, 16, 32, 64, 128)]
    return boundaries


def around(boundaries):
    return sorted({size + step for size in boundaries for step in (-1, 0, 1)})


@every(3)
@pytest.mark.parametrize("dtype", DTYPES)
def test_reduce(dtype, rng):
    host = unordered(rng, 10**6, dtype)
    d_in, d_out = cp.asarray(host), cp.zeros(1, dtype)
    h_init = host[5:6].copy()
    for op, accumulate in commutative(dtype).items():
        reduction = cupar.reduce_into(d_in, d_out, op, h_init)
        sizes = SIZES + around([single_tile(reduction, d_in, d_out, h_init)]) + [10**6]
        expected = accumulate(np.concatenate([h_init, host]))
        for n in sizes:
            d_out.fill(1)
            reduction.run(d_in, d_out, n, h_init)
            assert d_out.get()[0] == expected[n], (op.__name__, n)


@every(5)
@pytest.mark.parametrize("dtype", DTYPES)
def test_reduce_without_initial_value(dtype, rng):
    host = unordered(rng, 10**5, dtype)
    d_in, d_out = cp.asarray(host), cp.zeros(1, dtype)
    for op, accumulate in commutative(dtype).items():
        reduction = cupar.reduce_into(d_in, d_out, op, None)
        expected = accumulate(host)
        for n in [*SIZES[1:], *around([single_tile(reduction, d_in, d_out, None)]), 10**5]:
            reduction.run(d_in, d_out, n)
            assert d_out.get()[0] == expected[n - 1], (op.__name__, n)


@every(5)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["exclusive", "inclusive", "inclusive without initial value"])
def test_scan(kind, dtype, rng):
    host = items(rng, 10**6, dtype)
    d_in, d_out = cp.asarray(host), cp.zeros(10**6, dtype)
    factory = cupar.exclusive_scan if kind == "exclusive" else cupar.inclusive_scan
    h_init = None if "without" in kind else host[5:6].copy()
    # On the CPU, where each takes a second to build, some dtypes have one and some the other.
    for op, accumulate in few([*associative(dtype).items()], 2, first=DTYPES.index(dtype) % 2):
        scan = factory(d_in, d_out, op, h_init)
        sizes = SIZES + [n for n in around(scan_tiles(scan, d_in, d_out, h_init)) if n <= 10**6] + [10**6]
        expected = accumulate(host if h_init is None else np.concatenate([h_init, host]))
        if kind == "inclusive":
            expected = expected[1:]
        untouched = host[7]
        for n in sizes:
            d_out.fill(untouched)
            scan.run(d_in, d_out, n, h_init)
            result = d_out.get()
            np.testing.assert_array_equal(result[:n], expected[:n], err_msg=f"{op.__name__} {n}")
            assert (result[n:] == untouched).all(), (op.__name__, n)


@every(8)
@pytest.mark.parametrize("kind", ["MINIMUM", "MAXIMUM", "PLUS", "MULTIPLIES", "BIT_AND", "BIT_OR", "BIT_XOR"])
@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c16"])
def test_known_kinds(kind, dtype, rng):
    dtype = np.dtype(dtype)
    if (dtype.kind in "fc" and "BIT" in kind) or (dtype.kind == "c" and "IMUM" in kind):
        pytest.skip("not defined for the type")
    op = cupar.OpKind[kind]
    ufunc = {"MINIMUM": np.minimum, "MAXIMUM": np.maximum, "PLUS": np.add, "MULTIPLIES": np.multiply}
    ufunc.update({"BIT_AND": np.bitwise_and, "BIT_OR": np.bitwise_or, "BIT_XOR": np.bitwise_xor})
    host = unordered(rng, 5000, dtype)
    if kind == "MULTIPLIES" and dtype.kind in "fc":
        host = np.where(rng.random(5000) < 0.5, 1, -1).astype(dtype)  # exact in any order
    d_in, d_out = cp.asarray(host), cp.zeros(1, dtype)

    def reduce():
        cupar.reduce_into(d_in, d_out, op, host[:1].copy()).run(d_in, d_out, 4999, host[:1].copy())
        expected = ufunc[kind].reduce(np.concatenate([host[:1], host[:4999]]), dtype=dtype)
        assert d_out.get()[0] == expected

    def scan():
        d_scan = cp.zeros_like(d_in)
        cupar.inclusive_scan(d_in, d_scan, op).run(d_in, d_scan, 5000)
        np.testing.assert_array_equal(d_scan.get(), ufunc[kind].accumulate(host, dtype=dtype))

    for each in few([reduce, scan], 2, first=len(kind) % 2):  # on the CPU both take it from one place
        each()


CONVERSIONS = [  # input, accumulator, output
    ("i1", "i8", "i8"),
    ("u1", "u4", "u8"),
    ("i4", "i8", "i2"),
    ("i8", "i8", "i1"),
    ("?", "i4", "i8"),
    ("i4", "i4", "?"),
    ("f4", "f4", "f2"),
    ("f2", "f4", "f8"),
    ("f8", "f4", "f4"),
    ("i2", "f4", "f8"),
    ("i8", "f8", "f2"),
    ("i4", "i8", "f8"),
    ("f4", "c8", "c8"),
    ("c8", "c16", "c8"),
    ("i2", "c8", "c16"),
    ("f8", "f8", "c16"),
    ("?", "?", "u1"),
    ("f2", "c8", "c16"),
]


@every(2)
@pytest.mark.parametrize(("source", "accumulator", "target"), CONVERSIONS)
def test_conversions(source, accumulator, target, rng):
    host = items(rng, 70_000, source)
    if np.dtype(source).kind in "iu" and np.dtype(accumulator).kind in "fc":
        host = np.diff(rng.integers(-500, 500, 70_001)).astype(source)
    h_init = np.ones(1, accumulator)
    op = either if accumulator == "?" else add
    accumulate = np.logical_or.accumulate if accumulator == "?" else lambda x: np.cumsum(x, dtype=accumulator)
    with np.errstate(all="ignore"):
        expected = accumulate(np.concatenate([h_init, host.astype(accumulator)])).astype(target)
    d_in = cp.asarray(host)

    def reduces():
        guarded = cp.full(3, 77, target)  # neighbours of the output must stay as they are
        d_out = guarded[1:2]
        kind = cupar.OpKind.LOGICAL_OR if accumulator == "?" else cupar.OpKind.PLUS
        reduction = cupar.reduce_into(d_in, d_out, op, h_init)
        known = reduction if IS_CPU else cupar.reduce_into(d_in, d_out, kind, h_init)
        for n in (0, 1, 33, 70_000):
            known.run(d_in, d_out, n, h_init)
            np.testing.assert_array_equal(d_out.get()[0], expected[n])
            reduction.run(d_in, d_out, n, h_init)
            np.testing.assert_array_equal(
                guarded.get(), [77, expected[n], 77] if target != "?" else [1, expected[n], 1]
            )

    def scans(factory, wanted):
        guarded = cp.full(70_002, 77, target)
        d_out = guarded[1:-1]
        factory(d_in, d_out, op, h_init).run(d_in, d_out, 70_000, h_init)
        np.testing.assert_array_equal(guarded.get()[1:-1], wanted)
        assert (guarded.get()[[0, -1]] == np.array(77, "f8").astype(target)).all()

    checks = [
        reduces,
        lambda: scans(cupar.exclusive_scan, expected[:-1]),
        lambda: scans(cupar.inclusive_scan, expected[1:]),
    ]
    # On the CPU, where each takes a second to build, all convert with the same code.
    for check in few(checks, first=CONVERSIONS.index((source, accumulator, target)) % 3):
        check()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_nan_and_infinities(dtype):
    host = np.array([1, -np.inf, 3, np.nan, 2, np.inf], dtype)
    d_in, d_out = cp.asarray(host), cp.zeros(1, dtype)
    for ufunc in (np.minimum, np.maximum):
        reduction = cupar.reduce_into(d_in, d_out, ufunc, None)
        for n in range(1, 7):
            reduction.run(d_in, d_out, n)
            np.testing.assert_array_equal(d_out.get()[0], ufunc.reduce(host[:n]))
    scan = cupar.inclusive_scan(d_in, cp.zeros_like(d_in), lambda a, b: a + b)
    d_scan = cp.zeros_like(d_in)
    scan.run(d_in, d_scan, 6)
    np.testing.assert_array_equal(d_scan.get(), np.cumsum(host))


@needs_gpu
@pytest.mark.parametrize("dtype", ["i1", "u1", "?"])
def test_more_than_2_to_the_32_items(dtype):
    n = 2**32 + 4099
    d_in = cp.ones(n, dtype)
    d_out = cp.zeros(1, "i8")
    h_init = np.zeros(1, "i8")
    cupar.reduce_into(d_in, d_out, add, h_init).run(d_in, d_out, n, h_init)
    assert int(d_out.get()[0]) == n
    d_in[n - 1] = 0
    if dtype == "?":
        d_in[: 2**32] = False  # so that a scan of the first 2**32 alone would be wrong
        expected = lambda positions: positions >= 2**32
        op = either
    else:
        expected = lambda positions: (np.minimum(positions, n - 2) + 1).astype(dtype)
        op = add
    scan = cupar.inclusive_scan(d_in, d_in, op)
    scan.run(d_in, d_in, n)  # in place
    for start in (0, 2**31 - 500, 2**32 - 500, n - 2000):
        positions = np.arange(start, start + 2000)
        np.testing.assert_array_equal(d_in[start : start + 2000].get(), expected(positions))
    del d_in
    cp.get_default_memory_pool().free_all_blocks()
