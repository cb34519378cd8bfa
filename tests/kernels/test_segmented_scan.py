"""Segmented scans: plans by segments, refusals, and templates."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from support.common import stored_properties
from support.plans import planned

import cupar
from cupar._kernels.image import properties_of
from cupar._kernels.segmented_scan import SEGMENTED_SCAN
from cupar._kernels.segments import SegmentsProblem

SMS, WARPS, TILE, LONG, CHUNK = 132, 8, 512, 8192, 10240
FACTS = dict(
    threads=256, chunk_threads=608, items=4, tile_items=TILE, span=2, long_items=LONG, chunk_items=CHUNK,
    chunk_shared=215_040, segment_size=32, known_size=8, dense_items=4 * TILE - 4,
)  # fmt: skip
NAMES = ("n", "largest", "batch", "long_items", "grid")
PARTS = ("segments", "segment_of", "of_chunks")
PLUS = cupar.OpKind.PLUS


def planner(is_rows, **other):
    facts = {
        **FACTS,
        "staged_tile": 0,
        "staged_known": 0,
        "row_items": 0,
        "row_vectors": 0,
        "is_rows": int(is_rows),
        "sms": SMS,
        "shared_memory": 232448,
        **other,
    }
    return planned(SEGMENTED_SCAN, facts, lambda *_: 2)


BY_OFFSETS, OF_ROWS = planner(False), planner(True)


def numbers(plan):
    clearing = "clear_words", "clear_grid"
    names = (*NAMES, *PARTS, *clearing, "most_segments", "most_chunks", "chunk_grid")
    return dict(zip(names, plan.numbers, strict=plan.shape in ("any", "dense")))


def rows(n, size):
    return OF_ROWS(SegmentsProblem(n, n * size, size, n * size))


def test_nothing_to_do():
    assert BY_OFFSETS(SegmentsProblem(0, 10, 10, 0)).shape == ""
    assert rows(0, 10).shape == rows(10, 0).shape == ""


@pytest.mark.parametrize("n", [1, 7, 8, 9, 2**20 + 3, 2**31 + 5, 2**33 - 1])
@pytest.mark.parametrize("mean", [0, 1, 16, 64, 300, 5000])
def test_each_segment_is_one_warps(n, mean):
    plans = [BY_OFFSETS(SegmentsProblem(n, n * mean, 0, 0))] + [rows(n, mean)] * bool(mean)
    for plan, most in zip(plans, (1024, n), strict=False):
        given = numbers(plan)
        batch, grid = given["batch"], given["grid"]
        assert 1 <= batch <= most
        assert (grid - 1) * WARPS * batch < n <= grid * WARPS * batch
        assert grid < 2**31
        assert batch == 1 or not mean or batch * mean <= 2 * TILE
        assert batch <= max(n // (32 * SMS), 1)


def test_warps_have_many_segments_of_a_few_items():
    n = 33 * 32 * SMS
    for problem in ((n, n, 0), (n, 9 * n - 1, 0), (2**25, 2**26, 0), (2**33, 2**34, 0), (n, n, 20)):
        plan = BY_OFFSETS(SegmentsProblem(*problem, 0))
        given = numbers(plan)
        assert plan.shape == "dense" and 32 < given["batch"] <= 1024
        assert (
            given["long_items"] == 4 * TILE - 4
        )  # as many as fit into the marks, whatever is before the first
    for n, items, largest in ((n - 1, n, 0), (n, 9 * n, 0), (n, 0, 0), (n, n, 20)):
        has_chunks = {} if largest == 0 else {"chunk_shared": 0}
        assert planner(False, **has_chunks)(SegmentsProblem(n, items, largest, 0)).shape != "dense"
    assert rows(n, 2).shape == "short"


def test_blocks_take_what_is_much_longer_than_the_mean():
    def longest(n, mean):
        return numbers(BY_OFFSETS(SegmentsProblem(n, n * mean, 0, 0)))["long_items"]

    n = 2**20
    assert [longest(n, mean) // TILE for mean in (9, 100, 1536, 8192)] == [12, 12, 12, 16]
    assert longest(n, 1600) == 6400
    assert longest(100, 8192) == 2 * TILE


def test_many_rows_of_a_warp_begin_with_a_vector():
    assert numbers(rows(2**20, 7))["batch"] % 4 == 0
    assert numbers(rows(2**20, 300))["batch"] == 3


def test_few_segments_have_a_warp_each():
    assert numbers(BY_OFFSETS(SegmentsProblem(100, 1600, 0, 0)))["batch"] == 1
    assert numbers(rows(100, 16))["batch"] == 1


@pytest.mark.parametrize("n", [1, 1000, 2**16, 2**20])
@pytest.mark.parametrize("items", [0, 2**20, 2**33])
def test_the_queue_of_long_segments_is_in_the_storage(n, items):
    plan = BY_OFFSETS(SegmentsProblem(n, items, 0, 0))
    given = numbers(plan)
    segments, chunks = given["most_segments"], given["most_chunks"]
    places = [0, *(given[each] for each in PARTS), plan.nbytes]
    words, blocks = given["clear_words"], given["clear_grid"]
    assert 8 * chunks <= 16 * words <= 256 * 16 * blocks
    sizes = [16, 32 * segments, 4 * chunks, 16 * words]
    assert all(
        a % 256 == 0 and a + size <= b for (a, b), size in zip(itertools.pairwise(places), sizes, strict=True)
    )
    assert segments <= n
    assert 0 < given["chunk_grid"] <= chunks


@pytest.mark.parametrize("size", [1025, 8193, 20_000, 2**20, 2**28])
@pytest.mark.parametrize("n", [1, 10, 5000])
def test_the_queue_has_room_for_all_long_segments(n, size):
    """Of those that do not overlap: as many as the input has room for, whichever way they are aligned."""
    for plan in (BY_OFFSETS(SegmentsProblem(n, n * size, 0, 0)), rows(n, size)):
        if plan.shape == "short":
            assert size <= numbers(plan)["long_items"]
            continue
        given = numbers(plan)
        if size > given["long_items"]:
            assert given["most_segments"] >= n
            assert given["most_chunks"] >= min(n * -(-(size + 3) // CHUNK), 2**24)


def test_a_warp_queues_several_segments_where_most_are_long():
    for plan in (BY_OFFSETS(SegmentsProblem(2**15, 2**30, 0, 0)), rows(2**15, 2**15)):
        assert numbers(plan)["batch"] == 4
    assert numbers(rows(50, 2**15))["batch"] == 1


def test_where_no_segment_is_long_there_is_one_kernel():
    for problem in (SegmentsProblem(5000, 0, LONG, 0), SegmentsProblem(5000, 12 * TILE, 0, 0)):
        assert BY_OFFSETS(problem)[:2] == ("short", 0)
    assert BY_OFFSETS(SegmentsProblem(5000, 0, LONG + 1, 0)).shape == "any"
    assert rows(5000, LONG)[:2] == ("short", 0)
    assert rows(5000, LONG + 1).shape == "any"
    # Blocks take those of more than two tiles if there are few.
    assert rows(50, 2 * TILE)[:2] == ("short", 0)
    assert rows(50, 2 * TILE + 1).shape == "any"


def test_rows_that_registers_hold_are_for_blocks():
    plan = planner(True, row_items=4, row_vectors=4, **STAGED)
    found = [plan(SegmentsProblem(500, 500 * size, size, 500 * size)) for size in (1024, 2048, 2052, 8192)]
    assert [each.shape for each in found] == [f"rows, {threads} threads" for threads in (64, 128, 256, 512)]
    assert {each.nbytes for each in found} == {0} and found[2].numbers == (500, 2052)
    # Others have no whole vectors, are so short that warps have them, or are too long.
    others = [
        plan(SegmentsProblem(5000, 5000 * size, size, 5000 * size)).shape for size in (1026, 512, 1020, 8196)
    ]
    assert others == ["short", "short", "short", "staged"]


def test_rows_that_are_read_item_by_item_are_staged_earlier():
    plan = planner(True, **STAGED)
    found = [
        plan(SegmentsProblem(5000, 5000 * size, size, 5000 * size)).shape for size in (1024, 2047, 2048, 8192)
    ]
    assert found == ["short", "short", "staged", "staged"]


def test_warps_take_items_that_are_too_large_for_chunks():
    for is_rows in (False, True):
        plan = planner(is_rows, chunk_items=32, chunk_shared=0)
        assert plan(SegmentsProblem(3, 2**20, 0, 0))[:2] == ("short", 0)
        assert plan(SegmentsProblem(3, 3 * 2**20, 2**20, 3 * 2**20))[:2] == ("short", 0)


def specification(specified, *offsets, out=None):
    return specified(cupar.inclusive_segmented_scan, "f4", "f4", *offsets, PLUS, start_offsets_out=out)


def test_offsets_are_arguments(specified):
    all_of_rows, by_offsets, to_others = (
        specification(specified, *each, out=out)
        for each, out in (((None, None), None), (("i8", "i8"), None), (("i8", "i8"), "u4"))
    )
    for spec, given in ((all_of_rows, 0), (by_offsets, 2), (to_others, 3)):
        assert len(spec.arguments) == 2 + given
        prelude = SEGMENTED_SCAN.traits(spec)
        assert f"is_rows = {str(not given).lower()};" in prelude
        assert f"has_outputs = {str(given == 3).lower()};" in prelude
        shapes = SEGMENTED_SCAN.shapes(spec)
        assert [len(shape.launches) for shape in shapes.values()] == [1, 3, *([3] if given else [])]


STAGED = {"staged_threads": 608, "staged_tile": 5888, "staged_known": 16, "staged_shared": 227_584}


def test_long_rows_of_tuples_are_one_scan():
    plan = planner(True, **STAGED)
    rows, length = 64, 1 << 18
    shape, nbytes, (items, row, tiles, words, clearing, grid) = plan(
        SegmentsProblem(rows, rows * length, length, 0)
    )
    assert (shape, items, row, grid) == ("staged", rows * length, length, 2 * SMS)
    assert tiles == -(-items // 5888) and nbytes == 16 * words >= 16 + 16 * tiles
    assert (clearing - 1) * 256 < words <= clearing * 256
    assert plan(SegmentsProblem(1 << 12, 1 << 20, 1 << 8, 0)).shape == "short"
    assert plan(SegmentsProblem(2, 1 << 32, 1 << 31, 0)).shape == "any"  # positions in a row are of 32 bits


def test_which_rows_are_staged(specified):
    """Those of tuples of arrays, on cards for which there is a policy; single arrays have chunks."""
    f4 = np.dtype("f4")
    both = cupar.ZipIterator(f4, f4)
    last = lambda a, b: b
    for d_in, offsets, cc, is_staged in (
        (both, (None, None), 90, True),
        (both, ("i8", "i8"), 90, False),
        (both, (None, None), 80, False),
        (f4, (None, None), 90, False),
        (cupar.PermutationIterator(f4, np.dtype("i4")), (None, None), 90, False),
    ):
        spec = replace(
            specified(cupar.inclusive_segmented_scan, d_in, d_in if d_in is both else f4, *offsets, last),
            cc=cc,
        )
        assert ("staged" in SEGMENTED_SCAN.shapes(spec)) == is_staged
        assert ("staged_warps = 0" in SEGMENTED_SCAN.traits(spec)) != is_staged
        # Blocks have short ones in registers, on any card.
        has_rows = d_in is both and offsets == (None, None)
        assert ("rows, 64 threads" in SEGMENTED_SCAN.shapes(spec)) == has_rows


def test_what_is_staged_spills_nothing(only):
    only("cupar_segmented_scan_staged", "cupar_segmented_scan_rows")
    f4 = np.dtype("f4")
    pair = np.dtype([("field_0", "f4"), ("field_1", "f4")], align=True)
    d_in, d_out = cupar.ZipIterator(f4, f4), cupar.TransformOutputIterator(f4, lambda p: p[1], pair)
    scan = cupar.inclusive_segmented_scan(
        d_in, d_out, op=lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), cc=90
    )
    resources, facts = scan.build.resources(), stored_properties(scan)
    found = resources["cupar_segmented_scan_staged"]
    assert (found.local, facts["staged_tile"] > 0) == (0, True) and facts["staged_shared"] <= 227 << 10
    # A block has rows of 8,192 in registers, and two such blocks fit.
    found = resources["cupar_segmented_scan_rows"]
    assert (found.local, facts["row_items"], facts["row_vectors"]) == (0, 4, 4) and found.registers <= 64


@pytest.mark.parametrize("factory", [cupar.inclusive_segmented_scan, cupar.exclusive_segmented_scan])
@pytest.mark.parametrize(
    ("given", "named", "message"),
    [
        (("i8", None), {}, "^end_offsets_in: expected offsets as start_offsets_in has them, got None"),
        ((None, "i8"), {}, "^start_offsets_in: expected offsets as end_offsets_in"),
        ((None, None), {"start_offsets_out": "i8"}, "^start_offsets_in: .* start_offsets_out"),
        (("f4", "i8"), {}, "^start_offsets_in: expected integers, got float32"),
        (("i8", "i8"), {"start_offsets_out": "f4"}, "^start_offsets_out: expected integers, got float32"),
    ],
)
def test_offsets_that_are_refused(factory, given, named, message):
    with pytest.raises(TypeError, match=message):
        factory("f4", "f4", *given, PLUS, 0, **named, cc=90)


def test_an_exclusive_scan_needs_an_initial_value():
    with pytest.raises(TypeError, match="^h_init: an exclusive scan needs an initial value"):
        cupar.exclusive_segmented_scan("f4", "f4", "i8", "i8", PLUS, cc=90)


def test_outputs_that_cannot_hold_the_results():
    with pytest.raises(TypeError, match=r"^the accumulator: float32 is not converted to int32"):
        cupar.inclusive_segmented_scan("f4", "i4", "i8", "i8", PLUS, cc=90)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factory", "cc", "d_in", "offset", "out", "accumulator"),
    [
        (cupar.exclusive_segmented_scan, 75, "f4", "i8", "i4", "f8"),
        (cupar.inclusive_segmented_scan, 80, "i1", None, None, "i4"),
        (cupar.exclusive_segmented_scan, 100, cupar.CountingIterator(np.int32(0)), "u4", None, "i8"),
    ],
)
def test_templates_build(factory, d_in, offset, out, accumulator, cc):
    """An inclusive scan is an exclusive one with another constant: each card has one of them."""
    h_init = np.zeros(1, accumulator)
    built = factory(d_in, accumulator, offset, offset, PLUS, h_init, start_offsets_out=out, cc=cc)
    assert built.build.cc == cc


B3 = cupar.gpu_struct({"a": "u1", "b": "u1", "c": "u1"})
L3 = cupar.gpu_struct({"a": "i8", "b": "i8", "c": "i8"})
MOST_SHARED = {75: 64, 80: 163, 90: 227, 120: 99}  # KiB that a block may have


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d_in", "cc"),
    [("i4", 75), ("c16", 80), (L3, 120), (B3, 90), ("u1", 90)],
)
def test_slots_for_chunks_fit_into_shared_memory(d_in, cc, only):
    only("cupar_segmented_scan_chunks")
    d_out = "f8" if d_in == "u1" else d_in  # results of another size have a place of their own
    op = (lambda a, b: b) if d_in in (B3, L3) else PLUS
    built = cupar.inclusive_segmented_scan(d_in, d_out, "i8", "i8", op, cc=cc)
    facts = dict(zip(SEGMENTED_SCAN.properties, properties_of(built.cubin()), strict=True))
    chunk, shared = facts["chunk_items"], facts["chunk_shared"]
    given, results = (np.dtype(getattr(each, "dtype", each)).itemsize for each in (d_in, d_out))
    assert shared >= 3 * chunk * given + (chunk * results if given != results else 0)
    most = MOST_SHARED[cc] * 1024
    assert shared + built.build.resources()["cupar_segmented_scan_chunks"].shared <= most
    plan = planned(SEGMENTED_SCAN, {**facts, "sms": 40, "shared_memory": most}, lambda *_: 1)
    assert numbers(plan(SegmentsProblem(3, 2**24, 0, 0)))["chunk_grid"] == 40
