"""Plans as numba compiles them: they emit what they emit in CPython, for any problem."""

import ctypes
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupar._kernels import (
    columns,
    compact,
    histogram,
    merge,
    merge_sort,
    nth_element,
    radix_sort,
    reduce,
    reduce_by_index,
    runs,
    scan,
    search,
    segmented_merge_sort,
    segmented_reduce,
    segmented_scan,
    segmented_sort,
    sets,
    top_k,
    transform,
)
from cupar._kernels.columns import ColumnsProblem
from cupar._kernels.family import Properties
from cupar._kernels.merge import MergeProblem
from cupar._kernels.nth_element import NthElementProblem
from cupar._kernels.radix_sort import RadixSortProblem
from cupar._kernels.reduce_by_index import ReduceByIndexProblem
from cupar._kernels.segmented_sort import SegmentedSortProblem
from cupar._kernels.segments import SegmentsProblem
from cupar._kernels.top_k import TopKProblem
from cupar._launch.words import FIRST, PLACES, VALUES, address_of

numba = pytest.importorskip("numba")
plans = pytest.importorskip("cupar._host.plans")

SMS, MOST = 132, 2**40


def occupancy(kernel, threads, shared):
    return max(1, min(2048 // threads, 233472 // (shared + 1024)))


# By name: the family, and properties of a build.
FAMILIES = {
    "reduce": (
        reduce.REDUCE,
        dict(
            threads=256, items=16, rows=8, small_rows=4, large_threads=1024, large_items=32768, accum_size=4,
        ),
    ),
    "scan": (scan.SCAN, dict(threads=128, items=15, state=8, payload=4)),
    "scan that is staged": (
        scan.SCAN,
        dict(
            threads=128, items=15, state=8, payload=4, cc=90, arrays=1, item=4, ahead_threads=608,
            ahead_tile=7936, ahead_state=8, shared_1=197760,
        ),
    ),
    "scan that looks ahead on Blackwell": (
        scan.SCAN,
        dict(
            threads=128, items=15, state=8, payload=4, cc=100, arrays=1, item=4, ahead_threads=288,
            ahead_tile=8128, ahead_state=16, **{f"shared_{k}": 20000 * k for k in range(1, 9)},
        ),
    ),
    "transform": (transform.TRANSFORM, dict(threads=256, items=8, rows=16)),
    "select": (compact.SELECT, dict(threads=256, tile_items=4096, shared=50000)),
    "partition": (compact.PARTITION, dict(threads=256, tile_items=2048, shared=50000)),
    "merge sort": (
        merge_sort.MERGE_SORT,
        dict(threads=256, items=17, key_size=4, item_size=8),
    ),
    "ranges that are merged": (merge.MERGE, dict(threads=512, tile=7680)),
    "ranges that are made a set": (sets.SETS, dict(threads=256, tile=4095, shared=41_056)),
    "search": (
        search.SEARCH,
        dict(
            item_size=4, each_threads=256, tile_threads=128, tile=2048, staged=4096, fanout=16,
            tree_threads=512, top=8192,
        ),
    ),
    "search of sorted values": (
        search.SEARCH,
        dict(item_size=4, values_sorted=1, each_threads=256, tile=2048, staged=4096, fanout=16),
    ),
    "search of large items": (
        search.SEARCH,
        dict(item_size=64, each_threads=256, tile_threads=128, tile=128, staged=256, fanout=0),
    ),
    "radix sort": (
        radix_sort.RADIX_SORT,
        dict(
            tile_threads=256, tile_items=19, count_threads=128, count_items=16, threads=384, items=18,
            count_threads_wide=128, count_items_wide=8, threads_wide=384, items_wide=15, key_size=4,
            value_size=8,
        ),
    ),
    "reduce by key": (
        runs.REDUCE_BY_KEY,
        dict(threads=256, tile_items=2816, shared=67968, state=16),
    ),
    "scan by key": (
        runs.SCAN_BY_KEY,
        dict(threads=256, tile_items=768, shared=74000, state=80),
    ),
    "segmented reduce": (
        segmented_reduce.SEGMENTED_REDUCE,
        dict(threads=256, accum_size=8, segment_size=40, chunk_items=16384, item_size=4),
    ),
    "sort of segments": (
        segmented_sort.SEGMENTED_SORT,
        dict(
            group_threads=256, team_threads=512, team_items=32, team_bytes=200, digit_threads=384,
            tile_items=6912, passes=4, segment_size=80, key_size=4, value_size=8,
        ),
    ),
    "sort of small segments": (
        segmented_sort.SEGMENTED_SORT,
        dict(
            group_threads=128, team_threads=256, team_items=16, team_bytes=200, digit_threads=384,
            tile_items=6912, passes=1, segment_size=80, key_size=1,
        ),
    ),
    "sort of segments by an operator": (
        segmented_merge_sort.SEGMENTED_MERGE_SORT,
        dict(threads=256, items=11, segment_size=40, key_size=4, value_size=8),
    ),
    "floats in a histogram": (
        histogram.HISTOGRAM,
        dict(threads=512, vector_items=4, is_spread=1, sample_size=4, kind_of_levels=1, level_size=8),
    ),
    "histogram of bytes": (
        histogram.HISTOGRAM,
        dict(threads=512, vector_items=16, is_spread=1, sample_size=1, is_signed=1, narrow_bits=24),
    ),
    "histogram of integers": (
        histogram.HISTOGRAM,
        dict(threads=512, vector_items=4, sample_size=8, is_signed=1, narrow_bits=31),
    ),
    "levels of a histogram": (
        histogram.HISTOGRAM,
        dict(threads=512, vector_items=4, sample_size=4, kind_of_levels=2, level_size=4),
    ),
    "index": (
        reduce_by_index.REDUCE_BY_INDEX,
        dict(
            threads=256, few_threads=128, block_threads=512, batch=16, slot_size=4, value_size=4,
            entry_size=8, has_identity=1, atomic_kind=2,
        ),
    ),
    "index of large values": (
        reduce_by_index.REDUCE_BY_INDEX,
        dict(
            threads=256, few_threads=128, block_threads=512, batch=1, slot_size=48, value_size=40,
            entry_size=56,
        ),
    ),
    "segmented scan": (
        segmented_scan.SEGMENTED_SCAN,
        dict(
            threads=256, chunk_threads=608, items=4, tile_items=512, span=2, long_items=8192,
            chunk_items=10240, chunk_shared=215_040, segment_size=32, known_size=8, dense_items=2044,
            staged_tile=0, staged_known=0,
        ),
    ),
    "segmented scan of rows": (
        segmented_scan.SEGMENTED_SCAN,
        dict(
            threads=256, chunk_threads=352, items=8, tile_items=256, span=2, long_items=4096,
            chunk_items=5120, chunk_shared=215_040, segment_size=32, known_size=16, is_rows=1,
            staged_tile=0, staged_known=0,
        ),
    ),
    "segmented scan of rows that are staged": (
        segmented_scan.SEGMENTED_SCAN,
        dict(
            threads=256, chunk_threads=352, items=2, tile_items=256, span=2, long_items=4096,
            chunk_items=5120, chunk_shared=215_040, segment_size=32, known_size=16, is_rows=1,
            staged_threads=608, staged_tile=5888, staged_known=16, staged_shared=227_584,
        ),
    ),
    "segmented scan of rows that blocks have": (
        segmented_scan.SEGMENTED_SCAN,
        dict(
            threads=256, chunk_threads=352, items=2, tile_items=256, span=2, long_items=4096,
            chunk_items=5120, chunk_shared=215_040, segment_size=32, known_size=16, is_rows=1,
            staged_threads=608, staged_tile=5888, staged_known=16, staged_shared=227_584,
            row_items=4, row_vectors=4,
        ),
    ),
    "column scan": (
        columns.COLUMN_SCAN,
        dict(
            threads=128, tall_threads=1024, tall_rows=16, split_threads=256, split_rows=32, known_size=8,
            many=192,
        ),
    ),
    "column scan of large values": (columns.COLUMN_SCAN, dict(threads=128, known_size=32, many=192)),
    "column reduce": (
        columns.COLUMN_REDUCE,
        dict(threads=256, rows=16, may_stack=1, accum_size=4, has_init=1),
    ),
    "column reduce of large values": (columns.COLUMN_REDUCE, dict(threads=256, rows=1, accum_size=40)),
    "n-th elements": (
        nth_element.NTH_ELEMENT,
        dict(threads=512, tile=8192, warp=1024, segment_size=112, key_size=4),
    ),
    "top-k": (
        top_k.TOP_K,
        dict(
            threads=512, tile=8192, warp=1024, segment_size=40, key_size=4, word_size=8, sort_threads=512,
            sort_tile=4096, sort_segment_size=80,
        ),
    ),
}  # fmt: skip


def near(tile, tiles, more):
    return max(0, tile * tiles + more)


tiles = st.sampled_from([1 << 10, 1920, 4096, 4352])
counts = st.one_of(
    st.integers(0, MOST),
    st.integers(0, 1 << 14),
    st.builds(near, tiles, st.integers(0, 300), st.integers(-1, 1)),
)
small = st.integers(0, 1 << 20)
SIZES = [0, 1, 5000, 20000, 10**6, 1 << 25, MOST]
words = st.integers(-(2**62), 2**62)


def levels(bins, lower, width, num_samples):
    return histogram.HistogramProblem(bins, lower, lower + width, num_samples)


def ranged(bins, num_samples):
    return histogram.HistogramRangeProblem(bins, bins + 1, num_samples)


def shaped(outer, length, inner):
    return ColumnsProblem(length, inner, outer * inner, outer * inner * length)


bits = st.tuples(st.integers(0, 32), st.integers(0, 32))
# Problems that are no counts, by the first word of the name: any, and some.
PROBLEMS = {
    "search": (st.tuples(counts, counts), [(n, m) for n in SIZES for m in SIZES]),
    "ranges": (
        st.builds(lambda n, m: MergeProblem(n, m, n + m), counts, counts),
        [MergeProblem(n, m, n + m) for n in SIZES for m in SIZES],
    ),
    "radix": (
        st.builds(
            lambda n, bits, again: RadixSortProblem(n, min(bits), max(bits), again),
            counts,
            bits,
            st.booleans(),
        ),
        [
            RadixSortProblem(n, *each, again)
            for n in SIZES
            for each in [(0, 32), (3, 17), (5, 5)]
            for again in (False, True)
        ],
    ),
    "histogram": (
        st.builds(levels, st.integers(1, 1 << 20), words, st.integers(1, 2**42), counts),
        [
            levels(bins, low, width, n)
            for bins in (1, 300, 10**5)
            for low in (0, -500, 2**40)
            for width in (1, 300, 2**40)
            for n in SIZES
        ],
    ),
    "levels": (
        st.builds(ranged, st.integers(1, 1 << 20), counts),
        [ranged(bins, n) for bins in (1, 300, 10**5) for n in SIZES],
    ),
    "index": (
        st.builds(ReduceByIndexProblem, counts, st.integers(0, 2**31 - 1)),
        [ReduceByIndexProblem(n, bins) for bins in (0, 1, 300, 3000, 10**5, 2**31 - 1) for n in SIZES],
    ),
    "floats": (
        st.builds(levels, st.integers(1, 1 << 20), st.floats(-1e30, 1e30), st.floats(1e20, 1e30), counts),
        [levels(bins, -1.5, 1e9, n) for bins in (1, 300, 10**5) for n in SIZES],
    ),
    "sort": (
        st.builds(SegmentedSortProblem, counts, counts, st.one_of(st.just(0), small)),
        [
            SegmentedSortProblem(n, m, size)
            for n in SIZES
            for m in SIZES
            for size in (0, 1, 20, 600, 9000, 10**5)
        ],
    ),
    "top-k": (
        st.builds(
            TopKProblem,
            *(counts, counts, st.one_of(st.just(0), small), st.one_of(small, st.integers(0, 3000))),
            outputs=st.just(0),
        ),
        [
            TopKProblem(n, m, size, k)
            for n in SIZES
            for m in SIZES
            for size in (0, 1, 300, 5000, 10**5, 10**8)
            for k in (0, 1, 100, 2048, 10**5)
        ],
    ),
    "n-th": (
        st.builds(NthElementProblem, counts, counts, st.one_of(st.just(0), small), small),
        [
            NthElementProblem(n, m, size, size // 2)
            for n in SIZES
            for m in SIZES
            for size in (0, 1, 300, 5000, 10**5, 10**8)
        ],
    ),
    "column": (
        st.builds(shaped, small, small, small),
        [shaped(m, n, k) for m in (0, 1, 5000) for n in (0, 1, 900, 10**6) for k in (0, 1, 3, 40, 4000)],
    ),
    "segmented": (
        st.builds(SegmentsProblem, counts, counts, small, counts),
        [SegmentsProblem(n, m, most, 0) for n in SIZES for m in SIZES for most in (0, 10, 10**6)],
    ),
}

_emitted = []
_MOST = 64  # numbers of a shape


@ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)
def _emit(table, shapes, shape, call):
    """Take down a shape and the words where its numbers begin, in place of a launch."""
    _emitted.append((shape, ctypes.string_at(call + 8 * VALUES, 8 * _MOST)))
    return 0


_compiled = {}


def compiled(plan, facts):
    """Return what compiled code does with a plan: what it needs, and what it launches."""
    key = plan, numba.typeof(facts)
    if key not in _compiled:
        phases = plans.Phases(plan, facts, 0)
        needed, launched = phases.needed, phases.launched
        _compiled[key] = numba.njit(
            lambda table, problem: (needed(table, problem), launched(table, problem, 0, 0, ()))
        )
    return _compiled[key]


def both_ways(family, given):
    """Return what gives the plan of a problem as CPython has it, and what does as numba compiles it."""
    properties = Properties(dict.fromkeys(family.properties, 0), occupancy)
    properties.update(sms=SMS, shared_memory=232448, **given)
    plan, facts = family.planner(properties)
    native = compiled(plan, facts)
    table = np.array([0] * FIRST + plans.words_of(facts), np.int64)
    table[PLACES["emit"]] = address_of(_emit)

    def in_python(problem):
        emitted = []
        nbytes = plan(facts, problem, lambda shape, numbers: emitted.append((shape, as_words(numbers))))
        return (nbytes + 2**63) % 2**64 - 2**63, emitted  # calls refuse what is less than 0 then

    def in_numba(problem, expected):
        """Return it with so many numbers of each shape as are expected."""
        _emitted.clear()
        nbytes, status = native(table.ctypes.data, problem)
        assert status == 0
        counts = [len(numbers) for _, numbers in expected[1]]
        return nbytes, [
            (shape, struct.unpack_from(f"{count}Q", words))
            for (shape, words), count in zip(_emitted, [*counts, *[0] * len(_emitted)])
        ]

    return in_python, in_numba


def as_words(numbers):
    return tuple(int(each) % 2**64 for each in numbers)


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request):
    return *PROBLEMS.get(request.param.split()[0], (counts, SIZES)), *both_ways(*FAMILIES[request.param])


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_numba_has_the_same_plans(pair, data):
    problems, _, in_python, in_numba = pair
    problem = data.draw(problems)
    expected = in_python(problem)
    assert in_numba(problem, expected) == expected


def test_plans_differ_by_problem(pair):
    """So that what is compared above is not one case alone."""
    _, asked, in_python, in_numba = pair
    expected = [in_python(each) for each in asked]
    found = [in_numba(problem, plan) for problem, plan in zip(asked, expected, strict=True)]
    assert found == expected
    assert len({tuple(shape for shape, _ in each) for _, each in found}) > 1
