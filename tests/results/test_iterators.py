"""Iterators as inputs and outputs of all algorithms that take them, against NumPy.

Most items are int64 or small integers in floats, so that results are the same in whatever order.
"""

import math
import threading

import numpy as np
import pytest
from numba import cuda as numba_cuda
from support.operators import add, equal, less
from support.results import IS_CPU, cp, every, needs_gpu

import cupar
from cupar import (
    CacheModifiedInputIterator,
    ConstantIterator,
    CountingIterator,
    DiscardIterator,
    OpKind,
    PermutationIterator,
    ReverseIterator,
    ReverseOutputIterator,
    ShuffleIterator,
    TransformIterator,
    TransformOutputIterator,
    ZipIterator,
)

N = 100_003
SIZES = [1, 31, 1000, N]
ZERO = np.zeros(1, "i8")


def same(a):
    return a


def larger(a, b):
    return a if a > b else b


def square_plus_one(a):
    return a * a + 1


def difference(pair):
    return pair[0] - 2 * pair[1]


def integers(rng, n=N):
    return rng.integers(-1000, 1000, n)


def permutation(rng, n=N):
    return rng.permutation(n).astype("i4")


# --- Each as an input ------------------------------------------------------------------------------------

# An iterator of int64 items, and the items; `d` and `places` are arrays, `host` and `at` what is in them.
INPUTS = {
    "counting": lambda d, host, places, at: (CountingIterator(-5), np.arange(N) - 5),
    "counting from an offset": lambda d, host, places, at: (
        CountingIterator(2**40) + 7,
        np.arange(N) + 2**40 + 7,
    ),
    "constant": lambda d, host, places, at: (ConstantIterator(-3), np.full(N, -3)),
    "reverse": lambda d, host, places, at: (ReverseIterator(d), host[::-1]),
    "permutation": lambda d, host, places, at: (PermutationIterator(d, places), host[at]),
    "cache modified": lambda d, host, places, at: (CacheModifiedInputIterator(d, "stream"), host),
    "transform": lambda d, host, places, at: (TransformIterator(d, square_plus_one), host * host + 1),
    "nested": lambda d, host, places, at: (
        TransformIterator(
            ZipIterator(ReverseIterator(d), PermutationIterator(CountingIterator(10), places)), difference
        ),
        host[::-1] - 2 * (10 + at),
    ),
}


@pytest.fixture
def given(rng):
    host, at = integers(rng), rng.integers(0, N, N).astype("i4")
    return cp.asarray(host), host, cp.asarray(at), at


@pytest.mark.parametrize("name", INPUTS)
def test_reduce(name, given):
    d_in, expected = INPUTS[name](*given)
    guarded = cp.full(3, 77, "i8")
    d_out = guarded[1:2]
    reduction = cupar.reduce_into(d_in, d_out, add, ZERO)
    for n in [0, *SIZES]:
        nbytes = reduction(None, d_in, d_out, n, ZERO)
        reduction(cp.empty(max(nbytes, 1), "u1"), d_in, d_out, n, ZERO)
        assert guarded.get().tolist() == [77, expected[:n].sum(), 77], n
    reduction.run(d_in + 17, d_out, N - 17, ZERO)
    assert d_out.get()[0] == expected[17:].sum()


@every(3)
@pytest.mark.parametrize("name", INPUTS)
def test_inclusive_scan(name, given):
    d_in, expected = INPUTS[name](*given)
    d_out = cp.zeros(N, "i8")
    scan = cupar.inclusive_scan(d_in, d_out, add)
    for n in [0, *SIZES]:
        d_out.fill(77)
        scan.run(d_in, d_out, n)
        np.testing.assert_array_equal(d_out.get()[:n], np.cumsum(expected[:n]))
        assert (d_out.get()[n:] == 77).all()
    scan.run(d_in + 17, d_out, N - 17)
    np.testing.assert_array_equal(d_out.get()[: N - 17], np.cumsum(expected[17:]))


@every(3)
@pytest.mark.parametrize("name", INPUTS)
def test_unary_transform(name, given):
    d_in, expected = INPUTS[name](*given)
    d_out = cp.zeros(N, "i8")
    transform = cupar.unary_transform(d_in, d_out, same)
    for n in [0, *SIZES]:
        d_out.fill(77)
        transform(d_in, d_out, n)
        np.testing.assert_array_equal(d_out.get()[:n], expected[:n])
        assert (d_out.get()[n:] == 77).all()
    transform(d_in + 17, d_out, N - 17)
    np.testing.assert_array_equal(d_out.get()[: N - 17], expected[17:])


def test_counts_of_other_types():
    """A float is not counted up, but computed from the index; integers wrap around."""
    start = np.float32(2**24 - 10), np.uint8(250), np.int16(-(2**15))
    backwards = ReverseIterator(CountingIterator(np.int32(9)))
    d_in = ZipIterator([*(CountingIterator(value) for value in start), backwards])
    outputs = cp.zeros(N, "f4"), cp.zeros(N, "u1"), cp.zeros(N, "i2"), cp.zeros(N, "i4")
    d_out = ZipIterator(outputs)
    transform = cupar.unary_transform(d_in, d_out, same)
    for offset in (0, 100, 2**24, -300):
        transform(d_in + offset, d_out, N)
        index = offset + np.arange(N)
        np.testing.assert_array_equal(outputs[0].get(), start[0] + index.astype("f4"))
        np.testing.assert_array_equal(outputs[1].get(), (250 + index).astype("u1"))
        np.testing.assert_array_equal(outputs[2].get(), (index - 2**15).astype("i2"))
        np.testing.assert_array_equal(outputs[3].get(), 9 - index)


def test_small_constants():
    d_in = ZipIterator(
        ConstantIterator(np.float32(1.5)), ConstantIterator(np.int8(-7)), ConstantIterator(True)
    )
    outputs = cp.zeros(N, "f4"), cp.zeros(N, "i1"), cp.zeros(N, "?")
    d_out = ZipIterator(outputs)
    cupar.unary_transform(d_in, d_out, same)(d_in, d_out, N)
    for found, expected in zip(outputs, (1.5, -7, True), strict=True):
        assert (found == expected).all()


def test_one_build_for_other_values(given):
    """The calls' iterators count, not those that it was built with."""
    d, host, *_ = given
    d_out = cp.zeros(1, "i8")
    reduction = cupar.reduce_into(CountingIterator(0), d_out, add, ZERO)
    for start in (0, 5, -(2**40)):
        reduction.run(CountingIterator(start), d_out, 1000, ZERO)
        assert d_out.get()[0] == 1000 * start + 499_500
    backwards = cupar.reduce_into(ReverseIterator(d), d_out, add, ZERO)
    backwards.run(ReverseIterator(d[:5000]), d_out, 100, ZERO)
    assert d_out.get()[0] == host[4900:5000].sum()


# --- Each as an output -----------------------------------------------------------------------------------


def test_reverse_output(given):
    d, host, *_ = given
    d_target = cp.zeros(N, "i8")
    d_out = ReverseOutputIterator(d_target)
    transform = cupar.unary_transform(d, d_out, same)
    scan = cupar.inclusive_scan(ReverseIterator(d), d_out, add)
    exclusive = cupar.exclusive_scan(ReverseIterator(d), d_out, add, np.array([5]))
    for n in [0, *SIZES]:
        d_target.fill(77)
        transform(d, d_out, n)
        np.testing.assert_array_equal(d_target.get()[::-1][:n], host[:n])
        assert (d_target.get()[: N - n] == 77).all()
        scan.run(ReverseIterator(d), d_out, n)
        np.testing.assert_array_equal(d_target.get()[::-1][:n], np.cumsum(host[::-1][:n]))
        exclusive.run(ReverseIterator(d), d_out, n, np.array([5]))
        expected = np.cumsum([5, *host[::-1][:n]])[:n]
        np.testing.assert_array_equal(d_target.get()[::-1][:n], expected)
        assert (d_target.get()[: N - n] == 77).all()


def test_permutation_output(given, rng):
    d, host, *_ = given
    at = permutation(rng)
    d_target = cp.zeros(N, "i8")
    d_out = PermutationIterator(d_target, cp.asarray(at))
    transform = cupar.unary_transform(d, d_out, same)
    scan = cupar.inclusive_scan(d, d_out, add)
    for n in [0, *SIZES]:
        expected = np.full(N, 77)
        d_target.fill(77)
        transform(d, d_out, n)
        expected[at[:n]] = host[:n]
        np.testing.assert_array_equal(d_target.get(), expected)
        scan.run(d, d_out, n)
        expected[at[:n]] = np.cumsum(host[:n])
        np.testing.assert_array_equal(d_target.get(), expected)


def test_permutation_output_of_a_reduction(given):
    d, host, *_ = given
    d_target = cp.full(5, 77, "i8")
    place = PermutationIterator(d_target, CountingIterator(3))
    cupar.reduce_into(d, place, add, ZERO).run(d, place, N, ZERO)
    assert d_target.get().tolist() == [77, 77, 77, host.sum(), 77]


def test_transform_output(given):
    d, host, *_ = given
    d_target = cp.zeros(N, "f8")
    d_out = TransformOutputIterator(d_target, lambda a: a / 2, np.int64)
    assert d_out.dtype == np.int64
    transform = cupar.unary_transform(d, d_out, lambda a: a + 1)
    scan = cupar.inclusive_scan(d, d_out, add)
    for n in [0, *SIZES]:
        d_target.fill(77)
        transform(d, d_out, n)
        np.testing.assert_array_equal(d_target.get()[:n], (host[:n] + 1) / 2)
        assert (d_target.get()[n:] == 77).all()
        scan.run(d, d_out, n)
        np.testing.assert_array_equal(d_target.get()[:n], np.cumsum(host[:n]) / 2)
        assert (d_target.get()[n:] == 77).all()


def test_norm(rng):
    """Accumulated in float32, written in float16: the root is taken before it is rounded."""
    host = rng.integers(-1, 2, N).astype("f4")
    d = cp.asarray(host)
    guarded = cp.full(3, 77, "f2")
    squares = TransformIterator(d, lambda a: a * a)
    root = TransformOutputIterator(guarded[1:2], math.sqrt, np.float32)
    h_init = np.zeros(1, "f4")
    norm = cupar.reduce_into(squares, root, OpKind.PLUS, h_init)
    for n in [0, *SIZES]:
        norm.run(squares, root, n, h_init)
        expected = np.sqrt((host[:n] ** 2).sum()).astype("f2")
        assert guarded.get().tolist() == [77, expected, 77]


def test_zip_output(given):
    d, host, *_ = given
    d_first, d_last = cp.zeros(N, "i8"), cp.zeros(N, "f8")
    d_out = ZipIterator(ReverseIterator(d_first), DiscardIterator("i4"), d_last)
    transform = cupar.unary_transform(d, d_out, lambda a: (a, a, a / 2))
    for n in [0, *SIZES]:
        d_first.fill(77)
        d_last.fill(77)
        transform(d, d_out, n)
        np.testing.assert_array_equal(d_first.get(), [*[77] * (N - n), *host[:n][::-1]])
        np.testing.assert_array_equal(d_last.get(), [*host[:n] / 2, *[77] * (N - n)])


def test_scan_of_pairs(rng):
    """A sum that starts again at each flag, in the way of Blelloch's segmented scan."""
    flags, host = (rng.random(N) < 0.01).astype("i1"), integers(rng)
    sums = cp.zeros(N, "i8")
    d_in = ZipIterator(cp.asarray(flags), cp.asarray(host))
    d_out = ZipIterator(DiscardIterator("i1"), sums)
    scan = cupar.inclusive_scan(d_in, d_out, lambda a, b: (a[0] | b[0], b[1] if b[0] else a[1] + b[1]))
    for n in SIZES:
        scan.run(d_in, d_out, n)
        total = np.cumsum(host[:n])
        start = np.maximum.accumulate(np.where(flags[:n], np.arange(n), 0))
        np.testing.assert_array_equal(sums.get()[:n], total - np.where(start > 0, total[start - 1], 0))


def test_argmin(rng):
    host = rng.integers(-500, 500, N).astype("f4")
    d = cp.asarray(host)
    d_value, d_index = cp.zeros(1, "f4"), cp.zeros(1, "i8")
    pairs, d_out = ZipIterator(d, CountingIterator(0)), ZipIterator(d_value, d_index)
    first_least = lambda a, b: a if a[0] < b[0] or (a[0] == b[0] and a[1] < b[1]) else b
    argmin = cupar.reduce_into(pairs, d_out, first_least, None)
    for n in SIZES:
        argmin.run(pairs, d_out, n)
        assert (d_value.get()[0], d_index.get()[0]) == (host[:n].min(), host[:n].argmin())


# --- Other algorithms ------------------------------------------------------------------------------------


def test_binary_transform(given, rng):
    d, host, *_ = given
    at = permutation(rng)
    d_target = cp.zeros(N, "i8")
    arguments = CountingIterator(5), ReverseIterator(d), PermutationIterator(d_target, cp.asarray(at))
    transform = cupar.binary_transform(*arguments, lambda a, b: 3 * a - b)
    for n in [0, *SIZES]:
        d_target.fill(77)
        transform(*arguments, n)
        expected = np.full(N, 77)
        expected[at[:n]] = 3 * (5 + np.arange(n)) - host[::-1][:n]
        np.testing.assert_array_equal(d_target.get(), expected)


def test_segmented_reduce_of_equal_segments(given):
    d, host, *_ = given
    squares = TransformIterator(d, square_plus_one)
    starts = TransformIterator(CountingIterator(0), lambda i: i * 37)
    ends = starts + 1
    d_target = cp.zeros(N // 37, "i8")
    d_out = ReverseIterator(d_target)
    reduction = cupar.segmented_reduce(squares, d_out, starts, ends, add, ZERO)
    sums = (host * host + 1)[: N // 37 * 37].reshape(-1, 37).sum(axis=1)
    for n in (0, 1, 31, 1000, N // 37):
        d_target.fill(77)
        reduction.run(squares, d_out, n, starts, ends, ZERO)
        np.testing.assert_array_equal(d_target.get(), [*[77] * (N // 37 - n), *sums[:n][::-1]])
    reduction.run(squares, d_out, 3, starts + 4, ends + 4, ZERO)
    np.testing.assert_array_equal(d_target.get()[-3:], sums[4:7][::-1])


def test_segmented_reduce_of_a_window(given):
    d, host, *_ = given
    starts, ends = CountingIterator(np.int32(0)), CountingIterator(np.int32(10))
    d_out = cp.zeros(N, "i8")
    reduction = cupar.segmented_reduce(ReverseIterator(d), d_out, starts, ends, add, ZERO)
    reduction.run(ReverseIterator(d), d_out, N - 9, starts, ends, ZERO)
    total = np.cumsum([0, *host[::-1]])
    np.testing.assert_array_equal(d_out.get(), [*(total[10:] - total[:-10]), *[0] * 9])


def test_select_with_indices(given):
    d, host, *_ = given
    d_values, d_indices, d_count = cp.zeros(N, "i8"), cp.zeros(N, "i8"), cp.zeros(2, "i8")
    d_in, d_out = ZipIterator(d, CountingIterator(0)), ZipIterator(d_values, d_indices)
    selection = cupar.select(d_in, d_out, d_count, lambda pair: pair[0] > 500)
    for n in [0, *SIZES]:
        d_count.fill(99)
        selection.run(d_in, d_out, d_count, n)
        indices = np.flatnonzero(host[:n] > 500)
        assert d_count.get().tolist() == [len(indices), 99]
        np.testing.assert_array_equal(d_indices.get()[: len(indices)], indices)
        np.testing.assert_array_equal(d_values.get()[: len(indices)], host[indices])


def test_select_by_counting_only(given):
    d, host, *_ = given
    d_count = cp.zeros(5, "i8")
    squares, place = TransformIterator(d, square_plus_one), ReverseIterator(d_count)
    selection = cupar.select(squares, DiscardIterator(), place, lambda a: a % 2 == 0)
    for n in [0, *SIZES]:
        d_count.fill(99)
        selection.run(squares, DiscardIterator(), place, n)
        assert d_count.get().tolist() == [99] * 4 + [np.count_nonzero(host[:n] % 2)]


def test_three_way_partition():
    d_first, d_rest, d_count = cp.zeros(N, "i8"), cp.zeros(N, "i8"), cp.zeros(3, "i8")
    d_in = CountingIterator(-20)
    outputs = (
        ReverseIterator(d_first),
        DiscardIterator(),
        TransformOutputIterator(d_rest, lambda a: -a),
        d_count,
    )
    partition = cupar.three_way_partition(d_in, *outputs, lambda a: a % 3 == 0, lambda a: a < 7)
    for n in [0, *SIZES]:
        d_count.fill(99)
        partition.run(d_in, *outputs, n)
        host = np.arange(-20, n - 20)
        first, second = host % 3 == 0, (host % 3 != 0) & (host < 7)
        assert d_count.get().tolist() == [first.sum(), second.sum(), 99]
        np.testing.assert_array_equal(d_first.get()[::-1][: first.sum()], host[first])
        rest = host[~first & ~second]
        np.testing.assert_array_equal(d_rest.get()[: len(rest)], -rest)


def test_unique_by_key(given):
    d, host, *_ = given
    keys, items = TransformIterator(CountingIterator(0), lambda i: i // 7), ReverseIterator(d)
    d_keys, d_items, d_count = cp.zeros(N, "i8"), cp.zeros(N, "i8"), cp.zeros(2, "i8")
    out_keys = ReverseIterator(d_keys)
    with_items = cupar.unique_by_key(keys, items, out_keys, d_items, d_count, equal)
    without = cupar.unique_by_key(keys, items, out_keys, DiscardIterator(), d_count, equal)
    for n in [0, *SIZES]:
        runs = -(-n // 7)
        for unique, out_items in ((with_items, d_items), (without, DiscardIterator())):
            d_keys.fill(77)
            d_items.fill(77)
            d_count.fill(99)
            unique.run(keys, items, out_keys, out_items, d_count, n)
            assert d_count.get().tolist() == [runs, 99]
            np.testing.assert_array_equal(d_keys.get(), [*[77] * (N - runs), *np.arange(runs)[::-1]])
            expected = np.full(N, 77)
            if out_items is d_items:
                expected[:runs] = host[::-1][:n:7]
            np.testing.assert_array_equal(d_items.get(), expected)


def test_merge_sort(rng):
    host = rng.integers(-100, 100, N).astype("i4")
    d = cp.asarray(host)
    keys, items = TransformIterator(d, lambda a: -a, np.int32), CountingIterator(np.int32(0))
    d_keys, d_items = cp.zeros(N, "i4"), cp.zeros(N, "i4")
    sort = cupar.merge_sort(keys, items, d_keys, d_items, less)
    backwards = cupar.merge_sort(ReverseIterator(d), None, d_keys, None, less)
    for n in [0, *SIZES]:
        d_keys.fill(77)
        d_items.fill(77)
        sort.run(keys, items, d_keys, d_items, n)
        order = np.argsort(-host[:n], kind="stable")
        np.testing.assert_array_equal(d_keys.get(), [*-host[order], *[77] * (N - n)])
        np.testing.assert_array_equal(d_items.get(), [*order, *[77] * (N - n)])
        backwards.run(ReverseIterator(d), None, d_keys, None, n)
        np.testing.assert_array_equal(d_keys.get()[:n], np.sort(host[::-1][:n]))


def test_histogram():
    samples = TransformIterator(CountingIterator(0), lambda i: i * i % 100)
    d_out = cp.zeros(11, "i4")
    histogram = cupar.histogram_even(samples, d_out, 11, 0, 100, N)
    for n in [0, *SIZES]:
        d_out.fill(99)
        histogram.run(samples, d_out, 11, 0, 100, n)
        expected = np.bincount(np.arange(n) ** 2 % 100 // 10, minlength=10)
        np.testing.assert_array_equal(d_out.get(), [*expected, 99])


def test_histogram_of_gathered_floats(rng):
    host, at = rng.integers(-40, 40, 1000).astype("f4"), rng.integers(0, 1000, N).astype("u2")
    samples, d_out = PermutationIterator(cp.asarray(host), cp.asarray(at)), cp.zeros(64, "i8")
    histogram = cupar.histogram_even(samples, d_out, 65, -32, 32, N)
    histogram.run(samples, d_out, 65, -32, 32, N)
    gathered = host[at]
    inside = gathered[(gathered >= -32) & (gathered < 32)].astype(int)
    np.testing.assert_array_equal(d_out.get(), np.bincount(inside + 32, minlength=64))


def test_binary_search(rng):
    data = np.sort(rng.integers(-100, 300_000, N))
    d_data, d_target = cp.asarray(data), cp.zeros(N, "i8")
    values = TransformIterator(CountingIterator(0), lambda i: i * 3 - 10)
    host = np.arange(N) * 3 - 10
    gathered = PermutationIterator(d_data, ShuffleIterator(N, seed=3))
    d_out = ReverseIterator(d_target)
    lower = cupar.lower_bound(d_data, values, d_out)
    upper = cupar.upper_bound(d_data, gathered, d_target)
    for n in [0, *SIZES]:
        d_target.fill(77)
        lower(d_data, N, values, n, d_out)
        expected = np.searchsorted(data, host[:n])[::-1]
        np.testing.assert_array_equal(d_target.get(), [*[77] * (N - n), *expected])
    upper(d_data, N, gathered, N, d_target)
    np.testing.assert_array_equal(np.sort(d_target.get()), np.searchsorted(data, data, "right"))


# --- Shuffles --------------------------------------------------------------------------------------------


def shuffled(n, seed, offset=0):
    d_out = cp.full(n + 1, -1, "i8")
    order = ShuffleIterator(n, seed) + offset
    cupar.unary_transform(order, d_out, same)(order, d_out, n - offset)
    found = d_out.get()
    assert (found[n - offset :] == -1).all()
    return found[: n - offset]


@pytest.mark.parametrize("n", [1, 2, 3, 1000, 4097])
def test_shuffle(n):
    orders = [shuffled(n, seed) for seed in range(20)]
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(n))
    np.testing.assert_array_equal(shuffled(n, 7), orders[7])
    np.testing.assert_array_equal(shuffled(n, 7, n // 3), orders[7][n // 3 :])
    np.testing.assert_array_equal(shuffled(n, -1), shuffled(n, 2**64 - 1))
    distinct = {tuple(order) for order in orders}
    if n >= 1000:
        assert len(distinct) == 20
        assert tuple(range(n)) not in distinct
    elif n > 1:
        assert len(distinct) > 1  # of 2 or 6 orders, 20 seeds


def test_shuffled_array(rng):
    host = integers(rng)
    d_in, d_out = PermutationIterator(cp.asarray(host), ShuffleIterator(N, seed=11)), cp.zeros(N, "i8")
    cupar.unary_transform(d_in, d_out, same)(d_in, d_out, N)
    np.testing.assert_array_equal(d_out.get(), host[shuffled(N, 11)])


# --- Types -----------------------------------------------------------------------------------------------


def test_complex_numbers(rng):
    host = (rng.integers(-9, 9, N) + 1j * rng.integers(-9, 9, N)).astype("c8")
    d = cp.asarray(host)
    squares, d_out = TransformIterator(d, lambda a: a * a), cp.zeros(1, "c8")
    assert squares.dtype == np.complex64
    h_init = np.array([1 + 2j], "c8")
    reduction = cupar.reduce_into(squares, d_out, add, h_init)
    wide = cupar.reduce_into(ReverseIterator(d), cp.zeros(1, "c16"), add, np.zeros(1, "c16"))
    d_wide = cp.zeros(1, "c16")
    for n in [0, *SIZES]:
        reduction.run(squares, d_out, n, h_init)
        exact = (host[:n].astype("c16") ** 2).sum() + 1 + 2j
        assert d_out.get()[0] == exact
        wide.run(ReverseIterator(d), d_wide, n, np.zeros(1, "c16"))
        assert d_wide.get()[0] == host[::-1][:n].astype("c16").sum()


def test_pairs_of_complex_numbers_and_halves(rng):
    left = (rng.integers(-9, 9, N) + 1j * rng.integers(-9, 9, N)).astype("c8")
    right = rng.integers(-100, 100, N).astype("f2")
    d_in = ZipIterator(cp.asarray(left), ReverseIterator(cp.asarray(right)))
    outputs = cp.zeros(N, "f2"), cp.zeros(N, "c8")
    d_out = ZipIterator(outputs)
    transform = cupar.unary_transform(d_in, d_out, lambda pair: (pair[1] + pair[1], pair[0] + pair[0]))
    for n in SIZES:
        transform(d_in, d_out, n)
        np.testing.assert_array_equal(outputs[0].get()[:n], 2 * right[::-1][:n])
        np.testing.assert_array_equal(outputs[1].get()[:n], 2 * left[:n])


def test_halves(rng):
    host = rng.integers(-30, 30, N).astype("f2")
    d_in = TransformIterator(CacheModifiedInputIterator(cp.asarray(host), "global"), lambda a: a + a)
    assert d_in.dtype == np.float16
    d_out, h_init = cp.zeros(1, "f4"), np.zeros(1, "f4")
    reduction = cupar.reduce_into(d_in, d_out, add, h_init)
    for n in [0, *SIZES]:
        reduction.run(d_in, d_out, n, h_init)
        assert d_out.get()[0] == 2 * host[:n].astype("f8").sum()


def test_structs():
    peak = cupar.gpu_struct({"height": "f4", "index": "i8"}, "Peak")
    d_in = TransformIterator(CountingIterator(0), lambda i: peak(i % 1000, i), peak)
    d_height, d_index = cp.zeros(1, "f4"), cp.zeros(1, "i8")
    d_out = ZipIterator(d_height, d_index)
    first = lambda a, b: a if a.height > b.height or (a.height == b.height and a.index < b.index) else b
    h_init = peak(-1, -1)
    highest = cupar.reduce_into(d_in, d_out, first, h_init)
    for n in [0, *SIZES]:
        highest.run(d_in, d_out, n, h_init)
        assert (d_height.get()[0], d_index.get()[0]) == (min(n, 1000) - 1, min(n, 1000) - 1)


def test_captured_arrays():
    def looked_up(table):
        return TransformIterator(CountingIterator(0), lambda i: table[i % 16])

    hosts = [np.arange(16), np.arange(16) ** 2]
    tables = [looked_up(cp.asarray(host)) for host in hosts]
    d_out = cp.zeros(1, "i8")
    reduction = cupar.reduce_into(tables[0], d_out, add, ZERO)
    for host, d_in in zip(hosts * 2, tables * 2, strict=True):
        reduction.run(d_in, d_out, N, ZERO)
        assert d_out.get()[0] == host[np.arange(N) % 16].sum()


# --- Many items, other libraries, many threads -----------------------------------------------------------


@needs_gpu
def test_more_than_2_to_the_32_items():
    n = 2**32 + 5
    h_init, d_out = np.zeros(1, "u8"), cp.zeros(1, "u8")
    ones = ConstantIterator(np.uint64(1))
    cupar.reduce_into(ones, d_out, add, h_init).run(ones, d_out, n, h_init)
    assert int(d_out.get()[0]) == n
    numbers, d_out = CountingIterator(-3), cp.zeros(1, "i8")
    cupar.reduce_into(numbers, d_out, larger, ZERO).run(numbers, d_out, n, ZERO)
    assert int(d_out.get()[0]) == n - 4


def test_torch(given):
    torch = pytest.importorskip("torch")
    d, host, *_ = given
    device = "cpu" if IS_CPU else "cuda"
    t, out = torch.as_tensor(host, device=device), torch.zeros(2, dtype=torch.int64, device=device)
    reduction = cupar.reduce_into(ReverseIterator(t), out, add, ZERO)
    of_cupy = cupar.reduce_into(ReverseIterator(d), cp.zeros(1, "i8"), add, ZERO)
    assert reduction.build.key == of_cupy.build.key
    cp.cuda.Device().synchronize()
    reduction.run(ReverseIterator(t) + 5, out[1:], 1000, ZERO)
    cp.cuda.Device().synchronize()
    assert out.tolist() == [0, host[::-1][5:1005].sum()]
    if not IS_CPU:
        with pytest.raises(TypeError, match=r"^underlying: .*cpu"):
            ReverseIterator(t.cpu())
    with pytest.raises(ValueError, match=r"^underlying: .*contiguous"):
        ReverseIterator(t[::2])


@needs_gpu
def test_numba(given):
    d, host, *_ = given
    array = numba_cuda.to_device(host)
    numba_cuda.synchronize()
    d_out = cp.zeros(1, "i8")
    reduction = cupar.reduce_into(ReverseIterator(d), d_out, add, ZERO)
    reduction.run(ReverseIterator(array) + 5, d_out, 1000, ZERO)
    assert d_out.get()[0] == host[::-1][5:1005].sum()


def test_refusals(given):
    d, *_ = given
    d_out = cp.zeros(1, "i8")
    reduction = cupar.reduce_into(ReverseIterator(d), d_out, add, ZERO)
    plain = cupar.reduce_into(d, d_out, add, ZERO)
    with pytest.raises(ValueError, match=f"^d_in: needs at least {N + 1} items, got {N} going backwards"):
        reduction.run(ReverseIterator(d), d_out, N + 1, ZERO)
    with pytest.raises(TypeError, match="^d_in: .*Reverse.*got Pointer"):
        reduction.run(d, d_out, N, ZERO)
    with pytest.raises(TypeError, match="^d_in: .*Iterator"):
        plain.run(ReverseIterator(d), d_out, N, ZERO)
    with pytest.raises(TypeError, match="^d_out: .*Iterator"):
        plain.run(d, ReverseIterator(d_out), N, ZERO)


def test_one_object_from_many_threads(rng):
    hosts = [integers(rng, 2000 + i) for i in range(8)]
    arrays = [cp.asarray(host) for host in hosts]
    d_out = cp.zeros((8, 1), "i8")

    def iterator(i):
        return TransformIterator(ZipIterator(ReverseIterator(arrays[i]), CountingIterator(i)), difference)

    reduction = cupar.reduce_into(iterator(0), d_out[0], add, ZERO)
    barrier, wrong = threading.Barrier(8), []

    def work(i):
        stream = cp.cuda.Stream(non_blocking=True)
        barrier.wait()
        for repeat in range(100):
            n, offset = 500 + repeat, 3 * repeat
            reduction.run(iterator(i) + offset, d_out[i], n, np.array([repeat]), stream=stream)
            with stream:
                got = int(d_out[i].get(stream=stream)[0])
            items = hosts[i][::-1][offset : offset + n] - 2 * (i + offset + np.arange(n))
            if got != items.sum() + repeat:
                wrong.append((i, repeat, got))

    cp.cuda.Device().synchronize()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
