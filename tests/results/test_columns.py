"""Scans and reductions along columns against NumPy, in shapes of which kernels do each in its way."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.results import IS_CPU, Structs, cp, every

import cupar
from cupar import OpKind

DTYPES = ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"]
SHAPES = [
    *((0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1, 1), (1, 1, 40), (2, 3, 1), (5, 1, 7)),
    *((3, 33, 5), (7, 100, 31), (2, 257, 33), (1, 513, 64), (70, 3, 16)),
    *((301, 40, 101), (1, 70_001, 3)),  # on an H200, a thread each, and several blocks
]
if not IS_CPU:
    SHAPES += [
        (4, 700, 1000),  # a block of 1,024 threads for each 32
        (1, 601, 10_001),  # a block of 256
        *((1, 70_001, 40), (2, 9001, 7), (1, 300_007, 1), (20, 20_001, 64)),  # several blocks
    ]


@cupar.gpu_struct
class Affine:
    """A function x -> a * x + b of numbers modulo 2**32."""

    a: np.uint32
    b: np.uint32


@cupar.gpu_struct
class Cube:
    """Too large for the shared memory of blocks that share columns."""

    at: np.int64
    b: np.int64
    c: np.int64
    d: np.int64
    e: np.int64


def add(a, b):
    return a + b


def added(a, b):
    return a[0] + b[0], a[1] + b[1]


def either(a, b):
    return a or b


def composed(first, second):
    """Not commutative."""
    return Affine(first.a * second.a, first.b * second.a + second.b)


def latest(first, second):
    """Not commutative."""
    return second if second.at >= 0 else first


def items(rng, shape, dtype):
    dtype, n = np.dtype(dtype), int(np.prod(shape))
    if dtype.kind == "b":
        return (rng.random(n) < 0.02).reshape(shape)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, n, dtype, endpoint=True).reshape(shape)
    # Few of them, so that sums are exact.
    found = rng.integers(-3, 4, n) * (rng.random(n) < 0.002)
    return (found + 1j * found[::-1] if dtype.kind == "c" else found).astype(dtype).reshape(shape)


def scanned(host):
    accumulate = np.logical_or.accumulate if host.dtype.kind == "b" else np.add.accumulate
    return accumulate(host, 1, dtype=host.dtype)


def before(scan, init):
    """Return what an exclusive scan has, of an inclusive one with the same initial value."""
    return np.concatenate([np.full_like(scan[:, :1], init), scan[:, :-1]], 1)


@every(4)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_inclusive", [True, False])
def test_scans(dtype, is_inclusive, rng):
    op = either if dtype == "?" else add
    init = np.ones(1, dtype)
    factory = cupar.inclusive_column_scan if is_inclusive else cupar.exclusive_column_scan
    for shape in SHAPES:
        host = items(rng, shape, dtype)
        expected = np.logical_or(scanned(host), init) if dtype == "?" else scanned(host) + init
        if not is_inclusive and shape[1]:
            expected = before(expected, init[0])
        d_in, d_out = cp.asarray(host), cp.zeros(shape, dtype)
        factory(d_in, d_out, op, init).run(d_in, d_out, *shape, init)
        assert np.array_equal(d_out.get(), expected.astype(dtype)), shape
        factory(d_in, d_in, op, init).run(d_in, d_in, *shape, init)
        assert np.array_equal(d_in.get(), expected.astype(dtype)), shape


@pytest.mark.parametrize("dtype", ["i1", "u2", "f2"])
def test_scans_of_items_within_a_word(dtype, rng):
    """Kernels that load several items at once load them one by one then."""
    for shape in [(2, 33, 4), (1, 5001, 12), (3, 700, 66), (1, 40, 30_000)]:
        host = items(rng, shape, dtype)
        for places in [(1, 0), (0, 1), (1, 1), (2, 3)]:
            d_in, d_out = (cp.zeros(host.size + place, dtype)[place:] for place in places)
            d_in[:] = cp.asarray(host.ravel())
            cupar.inclusive_column_scan(d_in, d_out, add).run(d_in, d_out, *shape)
            assert np.array_equal(d_out.get().reshape(shape), scanned(host)), (shape, places)
            d_other = cp.zeros_like(d_in)
            pairs, written = cupar.ZipIterator(d_in, d_in), cupar.ZipIterator(d_other, d_out)
            cupar.inclusive_column_scan(pairs, written, added).run(pairs, written, *shape)
            for each in (d_other, d_out):
                assert np.array_equal(each.get().reshape(shape), scanned(host)), (shape, places)


@every(4)
@pytest.mark.parametrize("dtype", DTYPES)
def test_without_an_initial_value(dtype, rng):
    op = OpKind.LOGICAL_OR if dtype == "?" else OpKind.PLUS
    for shape in SHAPES:
        host = items(rng, shape, dtype)
        d_in, d_out = cp.asarray(host), cp.zeros(shape, dtype)
        cupar.inclusive_column_scan(d_in, d_out, op).run(d_in, d_out, *shape)
        assert np.array_equal(d_out.get(), scanned(host)), shape
        d_one = cp.ones((shape[0], shape[2]), dtype)
        cupar.column_reduce(d_in, d_one, op).run(d_in, d_one, *shape)
        expected = scanned(host)[:, -1] if shape[1] else np.ones((shape[0], shape[2]), dtype)
        assert np.array_equal(d_one.get(), expected), shape


@every(4)
@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions(dtype, rng):
    op = either if dtype == "?" else add
    for shape in SHAPES:
        host, init = items(rng, shape, dtype), np.ones(1, dtype)
        d_in, d_out = cp.asarray(host), cp.zeros((shape[0], shape[2]), dtype)
        cupar.column_reduce(d_in, d_out, op, init).run(d_in, d_out, *shape, init)
        found = host.any(1) | True if dtype == "?" else host.sum(1, dtype=dtype) + init
        assert np.array_equal(d_out.get(), found.astype(dtype)), shape


def test_operators_that_do_not_commute(rng):
    for shape in filter(np.prod, SHAPES):
        host = rng.integers(0, 2**32, (*shape, 2), np.uint32).view(Affine.dtype)[..., 0]
        expected = np.zeros(shape, Affine.dtype)
        a, b = np.ones((shape[0], shape[2]), np.uint32), np.zeros((shape[0], shape[2]), np.uint32)
        for t in range(shape[1]):
            b = b * host["a"][:, t] + host["b"][:, t]
            a = a * host["a"][:, t]
            expected["a"][:, t], expected["b"][:, t] = a, b
        d_in, d_out, d_one = Structs(host.ravel()), Structs(np.zeros_like(host.ravel())), of_columns(host)
        cupar.inclusive_column_scan(Affine, Affine, composed).run(d_in, d_out, *shape)
        assert np.array_equal(d_out.get().reshape(shape), expected), shape
        cupar.column_reduce(Affine, Affine, composed).run(d_in, d_one, *shape)
        assert np.array_equal(d_one.get().reshape(shape[0], shape[2]), expected[:, -1]), shape


def of_columns(host):
    """Return room for a struct for each column."""
    return Structs(np.zeros(host.shape[0] * host.shape[2], host.dtype))


def test_large_structs(rng):
    for shape in [(3, 50, 17), (1, 5001, 3), (1, 700, 100)]:
        host = np.zeros(shape, Cube.dtype)
        host["at"] = np.where(rng.random(shape) < 0.1, rng.integers(0, 1000, shape), -1)
        host["e"] = np.arange(host.size).reshape(shape)
        is_there = host["at"] >= 0
        is_there[:, 0] = True
        last = np.maximum.accumulate(np.where(is_there, np.arange(shape[1])[:, None], 0), 1)
        expected = np.take_along_axis(host, last, 1)
        d_in, d_out, d_one = Structs(host.ravel()), Structs(np.zeros_like(host.ravel())), of_columns(host)
        cupar.inclusive_column_scan(Cube, Cube, latest).run(d_in, d_out, *shape)
        assert np.array_equal(d_out.get().reshape(shape), expected), shape
        cupar.column_reduce(Cube, Cube, latest).run(d_in, d_one, *shape)
        assert np.array_equal(d_one.get().reshape(shape[0], shape[2]), expected[:, -1]), shape


def test_iterators_and_other_dtypes(rng):
    for shape in SHAPES:
        n = int(np.prod(shape))
        squares = cupar.TransformIterator(cupar.CountingIterator(np.int32(0)), lambda i: i % 7)
        expected = (np.arange(n) % 7).reshape(shape).cumsum(1)
        d_out = cp.zeros(n, "f8")
        halves = cupar.TransformOutputIterator(d_out, lambda x: x / 2, np.int64)
        zero = np.zeros(1, "i8")
        scan = cupar.inclusive_column_scan(squares, halves, OpKind.PLUS, zero)
        scan.run(squares, halves, *shape, zero)
        assert np.array_equal(d_out.get().reshape(shape), expected / 2), shape
        d_one = cp.zeros(shape[0] * shape[2], "f8")
        halves = cupar.TransformOutputIterator(d_one, lambda x: x / 2, np.int64)
        cupar.column_reduce(squares, halves, OpKind.PLUS, zero).run(squares, halves, *shape, zero)
        if shape[1]:
            assert np.array_equal(d_one.get().reshape(shape[0], shape[2]), expected[:, -1] / 2), shape


def test_an_initial_value_on_the_device(rng):
    d_init = cp.array([7], "i4")
    for shape in SHAPES:
        host = items(rng, shape, "i4")
        d_in, d_out = cp.asarray(host), cp.zeros(shape, "i4")
        cupar.inclusive_column_scan(d_in, d_out, add, d_init).run(d_in, d_out, *shape, d_init)
        assert np.array_equal(d_out.get(), scanned(host) + np.int32(7)), shape


def test_sums_of_floats_are_the_same_in_every_run(rng):
    for shape in SHAPES:
        d_in = cp.asarray(rng.standard_normal(shape).astype("f4"))
        scan, total = (
            cupar.inclusive_column_scan("f4", "f4", OpKind.PLUS),
            cupar.column_reduce("f4", "f4", OpKind.PLUS, 0.0),
        )
        found = []
        for _ in range(2 if IS_CPU else 10):
            d_out, d_one = cp.zeros(shape, "f4"), cp.zeros((shape[0], shape[2]), "f4")
            scan.run(d_in, d_out, *shape)
            total.run(d_in, d_one, *shape, 0.0)
            found.append((d_out.get().tobytes(), d_one.get().tobytes()))
        assert len(set(found)) == 1, shape


@settings(deadline=None, max_examples=20 if IS_CPU else 100, suppress_health_check=list(HealthCheck))
@given(st.tuples(st.integers(0, 20), st.integers(0, 3000), st.integers(0, 70)))
def test_any_shape(shape):
    host = np.random.default_rng(1).integers(-9, 9, shape, np.int32)
    d_in, d_out, d_one = cp.asarray(host), cp.zeros(shape, "i4"), cp.zeros((shape[0], shape[2]), "i4")
    cupar.inclusive_column_scan(d_in, d_out, OpKind.PLUS).run(d_in, d_out, *shape)
    assert np.array_equal(d_out.get(), host.cumsum(1))
    cupar.column_reduce(d_in, d_one, OpKind.PLUS, 0).run(d_in, d_one, *shape, 0)
    assert np.array_equal(d_one.get(), host.sum(1))


def test_two_phases_and_bound_calls(rng):
    shape = 1, 70_001, 3
    host = items(rng, shape, "i4")
    d_in, d_out, d_one = cp.asarray(host), cp.zeros(shape, "i4"), cp.zeros((1, 3), "i4")
    for made, target in (
        (cupar.inclusive_column_scan(d_in, d_out, add), d_out),
        (cupar.column_reduce(d_in, d_one, add), d_one),
    ):
        expected = scanned(host) if target is d_out else scanned(host)[:, -1]
        storage = cp.empty(made(None, d_in, target, *shape), "u1")
        made(storage, d_in, target, *shape)
        assert np.array_equal(target.get(), expected)
        target.fill(0)
        with made.bind(d_in, target, *shape) as call:
            call()
            call()
            assert np.array_equal(target.get(), expected)


def test_what_is_refused():
    with pytest.raises(TypeError, match="h_init: an exclusive scan needs an initial value"):
        cupar.exclusive_column_scan("i4", "i4", add, None)
    d_in, d_out = cp.zeros(12, "i4"), cp.zeros(12, "i4")
    scan, total = cupar.inclusive_column_scan(d_in, d_out, add), cupar.column_reduce(d_in, d_out, add)
    for made in (scan, total):
        with pytest.raises(ValueError, match="length: expected 0 or more, got -1"):
            made.run(d_in, d_out, 1, -1, 3)
        with pytest.raises(TypeError, match="inner: expected an integer, got float"):
            made.run(d_in, d_out, 1, 1, 3.0)
        with pytest.raises(ValueError, match="outer, inner: expected at most 8589934591 columns"):
            made.run(d_in, d_out, 2**20, 0, 2**20)
        with pytest.raises(ValueError, match="d_in"):
            made.run(d_in, d_out, 1, 5, 3)
    with pytest.raises(ValueError, match="d_out"):
        total.run(d_in, d_out, 1, 0, 13)
