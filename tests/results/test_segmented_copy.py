"""Copies of segments, against slices of NumPy's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.results import DTYPES, Structs, cp, every, few, items, needs_gpu

import cupar
from cupar import arrays as functions

MEANS = (0, 1, 3, 20, 100, 1000, 40_000)


def check(copy, host, starts, ends, outs, room):
    """Copy, and compare; what no segment is written to stays."""
    d_in, d_out = cp.asarray(host), cp.full(room, 7, host.dtype)
    offsets = [cp.asarray(each) for each in (starts, ends, outs)]
    copy.run(d_in, d_out, len(starts), *offsets)
    expected = np.full(room, 7, host.dtype)
    for s, e, to in zip(starts.tolist(), ends.tolist(), outs.tolist(), strict=True):
        if s < e:
            expected[to : to + e - s] = host[s:e]
    np.testing.assert_array_equal(d_out.get(), expected)


def check_packed(copy, host, starts, ends, most):
    """Copy segments one after another, of which some may not fit, and compare."""
    segments = [host[s : max(s, e)] for s, e in zip(starts.tolist(), ends.tolist(), strict=True)]
    expected = np.concatenate([host[:0], *segments])
    d_in, d_out, count = cp.asarray(host), cp.full(len(expected) + 3, 7, host.dtype), cp.full(1, 7, "i8")
    offsets = [cp.asarray(each) for each in (starts, ends)]
    copy.run(d_in, d_out, len(starts), *offsets, d_out_num_items=count, max_items=most)
    written = len(expected) if most is None else min(most, len(expected))
    np.testing.assert_array_equal(d_out.get()[:written], expected[:written])
    assert (d_out[written:] == np.array(7, host.dtype)).all() and int(count[0]) == len(expected)


def segments(rng, n, mean, number, dtype="i8"):
    """Return segments that overlap in the input, some of them empty, in another order in the output."""
    lengths = rng.integers(0, 2 * mean + 1, number)
    starts = rng.integers(0, n + 1, number)
    ends = np.minimum(starts + lengths, n)
    odd = rng.random(number) < 0.05
    ends[odd] = starts[odd] - 3
    lengths, order = np.maximum(ends - starts, 0), rng.permutation(number)
    outs = np.zeros(number, "i8")
    outs[order] = np.cumsum(lengths[order] + 1) - lengths[order] - 1  # one item apart
    return *(each.astype(dtype) for each in (starts, ends, outs)), int(lengths.sum()) + number


@every(9)
@pytest.mark.parametrize("dtype", DTYPES)
def test_each_dtype(dtype, rng):
    copy = cupar.segmented_copy(dtype, dtype, "i8", "i8", "i8")
    host = items(rng, 100_003, dtype)
    for mean in few(MEANS, 5):
        for number in (0, 1, 31, 33, 1024, 1025, 3000):
            check(copy, host, *segments(rng, len(host), mean, min(number, 10**7 // (mean + 1))))


@every(9)
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_after_another(dtype, rng):
    copy = cupar.segmented_copy(dtype, dtype, "i8", "i8", d_out_num_items="i8")
    host = items(rng, 100_003, dtype)
    for mean in few(MEANS, 5):
        for number in (0, 1, 33, 1025, 3000):
            starts, ends, *_ = segments(rng, len(host), mean, min(number, 10**7 // (mean + 1)))
            check_packed(copy, host, starts, ends, (None, 0, 1000)[number % 3])


@pytest.mark.parametrize("offsets", ["i1", "u2", "i4", "u8"])
def test_offsets_of_each_dtype(offsets, rng):
    copy = cupar.segmented_copy("i4", "f8", offsets, offsets, "i8")
    host = items(rng, 100, "i4")
    starts, ends, outs, room = segments(rng, 100, 5, 2000)
    ends[ends < 0] = 0
    d_in, d_out = cp.asarray(host), cp.zeros(room, "f8")
    given = cp.asarray(starts.astype(offsets)), cp.asarray(ends.astype(offsets)), cp.asarray(outs)
    copy.run(d_in, d_out, 2000, *given)
    for s, e, to in zip(starts, ends, outs, strict=True):
        np.testing.assert_array_equal(d_out.get()[to : to + max(e - s, 0)], host[s : max(s, e)])


def test_any_segments():
    copy = cupar.segmented_copy("i4", "i4", "i8", "i8", "i8")
    host = np.arange(5000, dtype="i4")
    lengths = st.lists(
        st.sampled_from([0, 1, 2, 31, 32, 33, 127, 128, 129, 1023, 1024, 1025, 4096]), max_size=90
    )

    @settings(max_examples=60, deadline=None, database=None)
    @given(lengths, st.integers(0, 900), st.integers(0, 40))
    def hold(found, first, gap):
        lengths = np.array(found, "i8")
        starts = (first + 7 * np.arange(len(lengths))) % 800
        outs = np.cumsum(lengths + gap) - lengths
        check(copy, host, starts, starts + lengths, outs, int((lengths + gap).sum()) + 1)

    hold()


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "f8"])
def test_places_of_each_alignment(dtype, rng):
    """Words of 16 bytes are copied where both arrays have them."""
    copy = cupar.segmented_copy(dtype, dtype, "i8", "i8", "i8")
    host = items(rng, 60_000, dtype)
    for shift in range(0, 17, 1 if dtype == "u1" else 3):
        starts = np.array([shift, 20_000, 3])
        ends = starts + [15_000, 20_001, 9]
        check(copy, host, starts, ends, np.array([0, 15_000 + shift, 50_000]), 50_010)


def test_iterators_and_two_phases(rng):
    """Squares, made as they are read, to an output from behind, by offsets that are computed."""
    squares = cupar.TransformIterator(cupar.CountingIterator(np.int32(0)), lambda i: i * i)
    starts = cupar.TransformIterator(cupar.CountingIterator(np.int64(0)), lambda i: 10 * i)
    ends = cupar.TransformIterator(cupar.CountingIterator(np.int64(0)), lambda i: 10 * i + 3)
    outs = cupar.TransformIterator(cupar.CountingIterator(np.int64(0)), lambda i: 3 * i)
    out = cp.zeros(6000, "i8")
    backwards = cupar.ReverseIterator(out)
    copy = cupar.segmented_copy(squares, backwards, starts, ends, outs)
    arguments = squares, backwards, 2000, starts, ends, outs
    nbytes = copy(None, *arguments)
    assert copy(cp.empty(nbytes, "u1"), *arguments) >= nbytes
    expected = (10 * np.arange(2000)[:, None] + np.arange(3)).ravel() ** 2
    np.testing.assert_array_equal(out.get()[::-1], expected)


def test_structs(rng):
    peak = np.dtype([("mass", "f8"), ("charge", "i4"), ("flag", "i2")], align=True)
    host = np.zeros(3000, peak)
    host["mass"], host["charge"] = rng.random(3000), np.arange(3000)
    starts, ends, outs, room = segments(rng, 3000, 30, 500)
    out = Structs(np.zeros(room, peak))
    copy = cupar.segmented_copy(peak, peak, "i8", "i8", "i8")
    copy.run(Structs(host), out, 500, *map(cp.asarray, (starts, ends, outs)))
    for s, e, to in zip(starts, ends, outs, strict=True):
        assert out.get()[to : to + max(e - s, 0)].tolist() == host[s : max(s, e)].tolist()


@needs_gpu
@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "c16"])
def test_many_arrays_are_joined_at_once(dtype, rng):
    for sizes in ([0] * 9, [5] * 8, rng.integers(0, 3000, 300).tolist(), [100_003] * 20):
        host = [items(rng, n + 1, dtype)[1:] for n in sizes]
        parts = [cp.asarray(each) for each in host]
        views = [cp.asarray(np.concatenate([each[:1], each]))[min(len(each), 1) :] for each in host]
        for each in (parts, views):
            np.testing.assert_array_equal(functions.concatenate(each).get(), np.concatenate(host))
    rows = [items(rng, 12 * n, dtype).reshape(n, 3, 4) for n in range(10)]
    joined = [cp.asarray(each) for each in rows]
    np.testing.assert_array_equal(functions.concatenate(joined).get(), np.concatenate(rows))
    joined[3] = cp.asfortranarray(joined[3])
    np.testing.assert_array_equal(functions.concatenate(joined).get(), np.concatenate(rows))
    mixed = functions.concatenate([*joined, cp.ones((1, 3, 4), "f8")])
    assert mixed.dtype == np.result_type(dtype, "f8") and mixed.shape == (46, 3, 4)
    with pytest.raises(ValueError, match=r"arrays\[9\]: expected the shape of arrays\[0\]"):
        functions.concatenate([*joined[:9], cp.zeros((2, 4, 3), dtype)])


@needs_gpu
def test_more_than_32_bits_count():
    n = 2**32 + 5
    d_in, d_out = cp.zeros(n, "u1"), cp.zeros(n + 3, "u1")
    d_in[-2:], d_in[:1] = 2, 1
    offsets = [cp.asarray(each) for each in ([0, n - 1], [n, n], [3, 0])]
    cupar.segmented_copy("u1", "u1", "i8", "i8", "i8").run(d_in, d_out, 2, *offsets)
    assert d_out[:5].get().tolist() == [2, 0, 0, 1, 0] and d_out[-3:].get().tolist() == [0, 2, 2]
    del d_in, d_out
    cp.get_default_memory_pool().free_all_blocks()
