"""Tuples of arrays that begin anywhere, which GPUs load by vectors where they can, against NumPy."""

import numpy as np
import pytest
from support.results import cp

import cupar
from cupar import (
    CountingIterator,
    ReverseIterator,
    ReverseOutputIterator,
    TransformOutputIterator,
    ZipIterator,
)

PAIR = np.dtype([("field_0", "i4"), ("field_1", "i2")], align=True)
INDEXED = np.dtype([("field_0", "i4"), ("field_1", "i8")], align=True)
STARTS = [(0, 0), (1, 1), (4, 8), (1, 0), (3, 2)]
SIZES = [0, 1, 5, 63, 1000, 70_003]

_rng = np.random.default_rng(28)
WIDE = cp.asarray(_rng.integers(-1000, 1000, 100_000).astype("i4"))
NARROW = cp.asarray(_rng.integers(-1000, 1000, 100_000).astype("i2"))


def columns(starts, n):
    return WIDE[starts[0] : starts[0] + n], NARROW[starts[1] : starts[1] + n]


def host(array):
    return array if isinstance(array, np.ndarray) else array.get()


def least(a, b):
    return a if a[0] < b[0] or (a[0] == b[0] and a[1] < b[1]) else b


def product(pair):
    return pair[0] * np.int32(pair[1])


def both(x):
    return x, np.int16(x + 1)


def affine(a, b):
    return a[0] + b[0], a[1] if b[1] == 0 else b[1]  # a sum, and the last item that is not 0


def second(pair):
    return pair[1]


def last_set(column):
    """Return the last item before or at each that is not 0."""
    at = np.maximum.accumulate(np.where(column != 0, np.arange(len(column)), -1))
    return np.where(at >= 0, column[np.maximum(at, 0)], 0).astype(column.dtype)


@pytest.mark.parametrize("starts", STARTS)
def test_reductions(starts):
    out = cp.empty(1, INDEXED)
    init = np.array([(2**31 - 1, 0)], INDEXED)
    for n in SIZES:
        wide, _ = columns(starts, n)
        d_in = ZipIterator(wide, CountingIterator(np.int64(0)))
        cupar.reduce_into(d_in, out, least, init).run(d_in, out, n, init)
        expected = (host(wide).min(), host(wide).argmin()) if n else init[0].item()
        assert host(out)[0].item() == tuple(expected)


@pytest.mark.parametrize("starts", STARTS)
@pytest.mark.parametrize("length", [1, 7, 100, 5000])
def test_reductions_of_rows(starts, length):
    rows = 70_000 // length
    wide, _ = columns(starts, rows * length)
    d_in, out, init = (
        ZipIterator(wide, CountingIterator(np.int64(0))),
        cp.empty(rows, INDEXED),
        np.array([(2**31 - 1, 0)], INDEXED),
    )
    cupar.segmented_reduce(d_in, out, op=least, h_init=init).run(
        d_in, out, rows, h_init=init, segment_size=length
    )
    table = host(wide).reshape(rows, length)
    at = table.argmin(1)
    assert np.array_equal(host(out)["field_0"], table.min(1))
    assert np.array_equal(host(out)["field_1"], at + np.arange(rows) * length)


@pytest.mark.parametrize("starts", STARTS)
def test_transforms(starts):
    for n in SIZES[1:]:
        wide, narrow = columns(starts, n)
        out = cp.zeros(n + 3, "i4")
        for to in (out[:n], out[3:]):
            d_in = ZipIterator(wide, narrow)
            cupar.unary_transform(d_in, to, product).run(d_in, to, n)
            assert np.array_equal(host(to), host(wide) * host(narrow))
        first, then = cp.zeros(n + 3, "i4"), cp.zeros(n + 3, "i2")
        d_out = ZipIterator(first[starts[0] % 4 :][:n], then[starts[1] % 4 :][:n])
        cupar.unary_transform(wide, d_out, both).run(wide, d_out, n)
        assert np.array_equal(host(first)[starts[0] % 4 :][:n], host(wide))
        assert np.array_equal(host(then)[starts[1] % 4 :][:n], (host(wide) + 1).astype("i2"))
        assert not host(first)[: starts[0] % 4].any() and not host(then)[: starts[1] % 4].any()


@pytest.mark.parametrize("starts", STARTS)
def test_scans(starts):
    for n in [*SIZES[1:], 99_990]:
        wide, narrow = columns(starts, n)
        sums, lasts = cp.zeros(n + 8, "i4"), cp.zeros(n + 8, "i2")
        d_in = ZipIterator(wide, narrow)
        d_out = ZipIterator(sums[starts[1] % 8 :][:n], lasts[starts[0] % 8 :][:n])
        cupar.inclusive_scan(d_in, d_out, affine, None).run(d_in, d_out, n, None)
        assert np.array_equal(host(sums)[starts[1] % 8 :][:n], np.cumsum(host(wide), dtype="i4"))
        assert np.array_equal(host(lasts)[starts[0] % 8 :][:n], last_set(host(narrow)))
        assert not host(sums)[: starts[1] % 8].any() and not host(sums)[starts[1] % 8 + n :].any()

        d_in = ZipIterator(ReverseIterator(wide), ReverseIterator(narrow))
        d_out = TransformOutputIterator(ReverseOutputIterator(lasts[:n]), second, PAIR)
        init = np.array([(0, 7)], PAIR)
        cupar.exclusive_scan(d_in, d_out, affine, init).run(d_in, d_out, n, init)
        expected = last_set(np.concatenate([np.array([7], "i2"), host(narrow)[::-1]]))[:-1][::-1]
        assert np.array_equal(host(lasts)[:n], expected)


@pytest.mark.parametrize("starts", STARTS)
@pytest.mark.parametrize("length", [1, 7, 100, 5000, 70_000])
def test_scans_of_rows(starts, length):
    rows = 70_000 // length
    wide, narrow = columns(starts, rows * length)
    out = cp.zeros(rows * length + 3, "i2")
    to = out[starts[1] % 4 :][: rows * length]
    d_in, d_out = ZipIterator(wide, narrow), TransformOutputIterator(to, second, PAIR)
    cupar.inclusive_segmented_scan(d_in, d_out, op=affine).run(d_in, d_out, rows, segment_size=length)
    expected = [last_set(row) for row in host(narrow).reshape(rows, length)]
    assert np.array_equal(host(to), np.concatenate(expected))
