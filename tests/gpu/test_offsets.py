"""Segments that end long before they begin have no items: nothing is read and written for them."""

import cupy as cp
import numpy as np
import pytest

import cupar
from cupar import OpKind, SortOrder

N = 100
LAST = 2**63 - 1  # an end that is before its start by more than 64 bits have


def segmented_reduce(x, out, *segments):
    cupar.segmented_reduce(x, out, *segments, OpKind.PLUS, 0).run(x, out, 3, *segments, 0)


def segmented_scan(x, out, *segments):
    cupar.inclusive_segmented_scan(x, out, *segments, OpKind.PLUS).run(x, out, 3, *segments)


def segmented_copy(x, out, *segments):
    to = cp.zeros(3, "i8")
    cupar.segmented_copy(x, out, *segments, to).run(x, out, 3, *segments, to)


def segmented_sort(x, out, *segments):
    cupar.segmented_sort(x, out, None, None, *segments, SortOrder.ASCENDING).run(
        x, out, None, None, N, 3, *segments
    )


def segmented_merge_sort(x, out, *segments):
    cupar.segmented_sort(x, out, None, None, *segments, op=OpKind.LESS).run(
        x, out, None, None, N, 3, *segments
    )


def segmented_top_k(x, out, *segments):
    cupar.segmented_top_k(x, out, None, None, *segments).run(x, out, None, None, N, 3, 2, *segments)


def segmented_nth_element(x, out, *segments):
    ranks = cp.zeros(3, "i8")
    algorithm = cupar.segmented_nth_element(x, out, None, ranks, *segments)
    algorithm.run(x, out, None, None, N, 3, ranks, *segments)


@pytest.mark.parametrize(
    "call",
    [
        segmented_reduce,
        segmented_scan,
        segmented_copy,
        segmented_sort,
        segmented_merge_sort,
        segmented_top_k,
        segmented_nth_element,
    ],
)
def test_nothing_is_read_and_written(call):
    x, out = cp.arange(N, dtype="i8"), cp.full(N, 77, "i8")
    for starts, ends in (
        ([0, LAST, LAST // 2 + 5], [5, -LAST, -(LAST // 2)]),
        ([0, 2**32, 2**33 + 9], [5, 7, 11]),  # whose differences are positive in 32 bits
    ):
        call(x, out, *(cp.asarray(np.array(each)) for each in (starts, ends)))
        assert (out[N // 2 :] == 77).all()


@pytest.mark.parametrize("n", [2**16, 2**20])  # groups of lanes have a segment each; lanes have several
def test_segments_of_a_warp_may_begin_2_to_the_63_before_others(n):
    """Those without items do: what a warp's segments span has more items than 64 bits with a sign tell."""
    x, out = cp.asarray(np.arange(2 * n) % 5, dtype="i1"), cp.full(n, 77, "i8")
    starts = np.arange(n, dtype="i8") * 2
    ends = starts + 2
    starts[::32] = ends[::32] = -(2**63)
    segments = cp.asarray(starts), cp.asarray(ends)
    cupar.segmented_reduce(x, out, *segments, OpKind.PLUS, 0).run(x, out, n, *segments, 0)
    expected = (np.arange(2 * n) % 5).reshape(n, 2).sum(1)
    expected[::32] = 0
    assert (cp.asnumpy(out) == expected).all()
