"""Offsets of segments that name items which are not there: calls on the CPU read and write nothing then."""

import numpy as np
import pytest

import cupar
from cupar import CountingIterator, OpKind, SortOrder, TransformIterator

N = 100
X = np.arange(N, dtype="i8")


def computed(offsets):
    return TransformIterator(CountingIterator(0), lambda i: offsets[i])


def reduction(d_in, out, starts, ends):
    cupar.segmented_reduce(d_in, out, starts, ends, OpKind.PLUS, 0).run(d_in, out, 3, starts, ends, 0)


def scan(d_in, out, starts, ends):
    cupar.inclusive_segmented_scan(d_in, out, starts, ends, OpKind.PLUS).run(d_in, out, 3, starts, ends)


def copy(d_in, out, starts, ends):
    to = np.zeros(3, "i8")
    cupar.segmented_copy(d_in, out, starts, ends, to).run(d_in, out, 3, starts, ends, to)


def sort(d_in, out, starts, ends):
    order = SortOrder.ASCENDING
    algorithm = cupar.segmented_sort(d_in, out, None, None, starts, ends, order)
    algorithm.run(d_in, out, None, None, N, 3, starts, ends)


def merge_sort(d_in, out, starts, ends):
    algorithm = cupar.segmented_sort(d_in, out, None, None, starts, ends, op=OpKind.LESS)
    algorithm.run(d_in, out, None, None, N, 3, starts, ends)


def top_k(d_in, out, starts, ends):
    algorithm = cupar.segmented_top_k(d_in, out, None, None, starts, ends)
    algorithm.run(d_in, out, None, None, N, 3, 2, starts, ends)


def nth_element(d_in, out, starts, ends):
    ranks = np.zeros(3, "i8")
    algorithm = cupar.segmented_nth_element(d_in, out, None, ranks, starts, ends)
    algorithm.run(d_in, out, None, None, N, 3, ranks, starts, ends)


@pytest.fixture(autouse=True)
def on_the_cpu():
    with cupar.device("cpu"):
        yield


@pytest.mark.parametrize("dtype", ["i4", "i8"])
@pytest.mark.parametrize("run", [reduction, scan, copy, sort, merge_sort, top_k, nth_element])
def test_what_is_not_there_is_refused(run, dtype):
    out = np.full(N, 77)
    for starts, ends, said in (
        ([0, 5, 9], [5, 101, 9], "end_offsets_in[1]: expected at most 100, "),
        ([0, 5, 9], [5, 9, 2**31 - 1], "end_offsets_in[2]: expected at most 100, "),
        ([0, -1, 9], [5, 3, 9], "start_offsets_in[1]: expected 0 or more, got -1"),
        ([-(2**31), 0, 9], [5, 3, 9], "start_offsets_in[0]: expected 0 or more, got -2147483648"),
    ):
        offsets = [np.array(each, dtype) for each in (starts, ends)]
        with pytest.raises(ValueError) as raised:
            run(X, out, *offsets)
        assert str(raised.value).startswith(said) and (out == 77).all()
    # Segments that are empty name no items, whatever their offsets are.
    run(X, out, np.array([0, -7, 500], dtype), np.array([5, -7, 3], dtype))
    assert (out[N // 2 :] == 77).all()
    last = np.iinfo(dtype).max  # an end that is before its start by more than the dtype has
    run(X, out, np.array([0, last, last // 2 + 5], dtype), np.array([5, -last, -(last // 2)], dtype))
    assert (out[N // 2 :] == 77).all()


@pytest.mark.parametrize("run", [reduction, scan, copy, sort, merge_sort, nth_element])
def test_an_input_without_items_has_no_segments_with_some(run, monkeypatch):
    monkeypatch.setitem(globals(), "N", 0)
    out = np.full(3, 77)
    for starts, ends, said in (
        ([0, 5, 9], [0, 7, 9], "end_offsets_in[1]: expected at most 0, "),
        ([0, -3, 9], [0, -1, 9], "start_offsets_in[1]: expected 0 or more, got -3"),
    ):
        with pytest.raises(ValueError) as raised:
            run(X[:0], out, np.array(starts), np.array(ends))
        assert str(raised.value).startswith(said) and (out == 77).all()
    run(X[:0], out, np.array([0, -7, 500]), np.array([0, -7, 3]))


@pytest.mark.parametrize("run", [reduction, sort])
def test_offsets_that_int64_does_not_hold(run):
    starts, ends = np.array([0, 2**64 - 7, 9], "u8"), np.array([5, 2**64 - 5, 9], "u8")
    said = r"^start_offsets_in\[1\]: expected at most 100, .* got 18446744073709551609"
    with pytest.raises(ValueError, match=said):
        run(X, np.zeros(N, "i8"), starts, ends)


@pytest.mark.parametrize("run", [reduction, sort, nth_element])
@pytest.mark.parametrize("last", [2**63, 2**64 - 1])
def test_ends_that_int64_does_not_hold(run, last):
    """Their segments have items that are not there; one that begins there, too, has none."""
    starts, out = np.array([0, 1, 2], "u8"), np.zeros(N, "i8")
    with pytest.raises(ValueError, match=rf"end_offsets_in\[1\]: expected at most {N}, .*, got {last}$"):
        run(X, out, starts, np.array([1, last, 2], "u8"))
    run(X, out, np.array([0, last, 2], "u8"), np.array([1, last, 2], "u8"))


def test_offsets_that_are_computed_and_arrays_in_iterators():
    starts, ends, out = np.array([0, 5, 9]), np.array([5, 9, 61]), np.full(N, 77)
    half = TransformIterator(X[:60], lambda a: a)
    for run in (reduction, scan):
        with pytest.raises(ValueError, match=r"^end_offsets_in\[2\]: expected at most 60, the items of d_in"):
            run(half, out, computed(starts), computed(ends))
        assert (out == 77).all()
    endless = CountingIterator(np.int64(0))
    reduction(endless, out, computed(starts), computed(ends))
    assert out[:4].tolist() == [10, 26, sum(range(9, 61)), 77]
    scan(cupar.ReverseIterator(X), out, starts, np.array([5, 9, 100]))
    assert out[99] == sum(range(91))


def test_a_scan_may_write_elsewhere():
    starts, ends, out = np.array([0, 5]), np.array([5, 10]), np.full(N, 77)
    inside = cupar.inclusive_segmented_scan(X, out, starts, ends, OpKind.PLUS)
    with pytest.raises(ValueError, match=r"^end_offsets_in\[1\]: expected at most 9, the items of d_out"):
        inside.run(X, out[:9], 2, starts, ends)
    for outputs, said in (
        ([0, 96], r"^start_offsets_out\[1\]: expected room for the segment in d_out, which has 100 items"),
        ([-1, 9], r"^start_offsets_out\[0\]: expected 0 or more, got -1"),
        ([2**62, 9], r"^start_offsets_out\[0\]: expected room"),
    ):
        to = np.array(outputs)
        moved = cupar.inclusive_segmented_scan(X, out, starts, ends, OpKind.PLUS, start_offsets_out=to)
        with pytest.raises(ValueError, match=said):
            moved.run(X, out, 2, starts, ends, start_offsets_out=to)
    assert (out == 77).all()


def test_many_segments_and_bound_calls():
    n = 300_000  # of which the parts of several threads look at some
    starts = np.arange(n)
    ends, d_in, out = starts + 1, np.ones(n, "i8"), np.zeros(n, "i8")
    total = cupar.segmented_reduce(d_in, out, starts, ends, OpKind.PLUS, 0).bind(
        d_in, out, n, starts, ends, 0
    )
    total()
    assert out.sum() == n
    ends[n - 2] = n + 1
    with pytest.raises(ValueError, match=rf"^end_offsets_in\[{n - 2}\]: expected at most {n}"):
        total()


def test_counts_beyond_arrays_are_refused():
    starts, ends, out = np.array([0, 5]), np.array([5, 10]), np.zeros(N, "i8")
    top = cupar.segmented_top_k(X, out, None, None, starts, ends)
    for num_items, segments, k, said in (
        (N + 1, 2, 2, "d_in_keys: needs at least 101 items"),
        (N, 3, 2, "start_offsets_in: needs at least 3 items"),
        (N, 2, 51, "d_out_keys: needs at least 102 items"),
        (N, 2, 2**62, "d_out_keys: needs at least 9223372036854775808 items"),
    ):
        with pytest.raises(ValueError, match=f"^{said}"):
            top.run(X, out, None, None, num_items, segments, k, starts, ends)
