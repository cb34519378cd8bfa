"""Segmented reductions: plans by segments, refusals, and templates."""

import numpy as np
import pytest
from support.disassembly import instructions
from support.plans import planned

import cupar
from cupar._kernels.segmented_reduce import SEGMENTED_REDUCE, SegmentsProblem

SMS, WARPS, CHUNK = 132, 8, 8192
FACTS = dict(
    threads=256, accum_size=4, segment_size=40, chunk_items=CHUNK, item_size=4,
    batch_bytes=4096, staged_lanes=16, staged_bytes=41088, has_few=1, is_rows=0,
)  # fmt: skip


def planner(**facts):
    known = {**FACTS, **facts, "sms": SMS, "shared_memory": 232448}
    return planned(SEGMENTED_REDUCE, known, lambda *_: 8)


PLAN = planner()


def numbers(problem, plan=PLAN):
    plan = plan(problem)
    storage = ("segments", "chunks", "partials", "most_segments", "most_chunks")
    names = ("n", "largest", "log_lanes", "grid", "shared", *storage, "chunk_grid", "part_bytes")
    return plan.shape, plan.nbytes, dict(zip(names, plan.numbers, strict=False))


def test_no_segments():
    assert PLAN(SegmentsProblem(0, 10, 10, 0)).shape == ""


@pytest.mark.parametrize("n", [1, 7, 8, 9, 2**20 + 3, 2**31 + 5, 2**33 - 1])
@pytest.mark.parametrize("mean", [0, 1, 16, 64, 300, 5000])
def test_each_segment_is_one_warps(n, mean):
    shape, _, given = numbers(SegmentsProblem(n, n * mean, 0, 0), planner(has_few=0))
    batch, grid = 32 >> given["log_lanes"], given["grid"]
    assert batch in (1, 2, 4, 8, 16, 32)
    assert (grid - 1) * WARPS * batch < n <= grid * WARPS * batch
    assert grid < 2**31
    if mean and batch > 1:
        assert batch * mean * 4 <= 4096
    assert given["shared"] == (FACTS["staged_bytes"] if batch > 1 else 0)
    assert shape == ("short" if 0 < n * mean <= CHUNK else "any")


@pytest.mark.parametrize("threads", [64, 128])
def test_no_grid_has_more_blocks_than_a_launch_may(threads):
    plan, of_block = planner(threads=threads, has_few=0), threads // 32
    for n in (2**31, 2**33 - 4, 2**33 - 1):
        given = numbers(SegmentsProblem(n, n * 5000, 0, 0), plan)[2]
        segments = of_block * (32 >> given["log_lanes"])
        assert (given["grid"] - 1) * segments < n <= given["grid"] * segments
        assert given["grid"] < 2**31
        assert given["log_lanes"] == 5 or n > of_block * (16 >> given["log_lanes"]) * (2**31 - 1)


PART = 4096 + 16  # bytes of shared memory that a warp has for rows
OF_ROWS = dict(batch_bytes=2048, staged_lanes=1, staged_bytes=WARPS * PART, is_rows=1)


@pytest.mark.parametrize(
    ("size", "item_size", "each"),
    [(1, 4, 16), (3, 4, 10), (4, 4, 4), (7, 4, 4), (8, 4, 2), (15, 4, 2), (17, 4, 1), (31, 4, 1)]
    + [(1, 1, 64), (8, 1, 8), (50, 1, 2), (4, 8, 2), (7, 8, 2), (3, 16, 2)],
)
@pytest.mark.parametrize("n", [2**20, 2**24 + 5, 2**33])
def test_lanes_have_several_rows_of_a_few_items(size, item_size, each, n):
    plan = planner(**OF_ROWS, item_size=item_size)(SegmentsProblem(n, n * size, size, 0))
    given = dict(zip(("n", "largest", "grid", "shared", "rows", "part_bytes"), plan.numbers, strict=True))
    assert (plan.shape, plan.nbytes, given["n"], given["largest"]) == ("rows", 0, n, size)
    assert given["rows"] == 32 * (each if n > 2**20 else min(each, n // (SMS * 32 * 32)))
    assert given["part_bytes"] == given["rows"] * size * item_size + 16 <= PART
    assert given["shared"] == WARPS * given["part_bytes"]
    assert (given["grid"] - 1) * WARPS * given["rows"] < n <= given["grid"] * WARPS * given["rows"]


def test_rows_that_have_a_lane_each_or_several():
    for facts, size, n in (
        (OF_ROWS, 16, 2**24),  # which each lane has in one turn
        (OF_ROWS, 32, 2**24),
        (OF_ROWS, 33, 2**24),
        (OF_ROWS, 4, 1000),  # fewer than lanes
        (OF_ROWS, 0, 2**24),
        ({**OF_ROWS, "item_size": 8}, 9, 2**24),
        ({**OF_ROWS, "has_few": 0}, 4, 2**24),
        ({**OF_ROWS, "is_rows": 0}, 4, 2**24),
    ):
        assert planner(**facts)(SegmentsProblem(n, n * size, size, 0)).shape != "rows"


@pytest.mark.parametrize(
    ("size", "lanes"),
    [(16, 1), (32, 1), (36, 2), (50, 4), (64, 4), (80, 4), (100, 8), (128, 8), (150, 4), (200, 16)]
    + [(256, 16), (300, 8), (384, 32), (500, 32), (640, 16), (1000, 32), (4096, 32)],
)
def test_lanes_of_a_row(size, lanes):
    given = numbers(SegmentsProblem(2**20, 2**20 * size, size, 0), planner(**OF_ROWS))[2]
    assert (1 << given["log_lanes"], given["shared"] > 0) == (lanes, lanes == 1)
    other = numbers(SegmentsProblem(2**20, 2**20 * size, size, 0), planner(**OF_ROWS, accum_size=8))[2]
    assert other["log_lanes"] == 6 - min(max(2048 // (4 * size), 1), 32).bit_length()
    few = numbers(SegmentsProblem(100, 100 * size, size, 0), planner(**OF_ROWS))[2]
    assert few["log_lanes"] == 5


def test_rows_are_staged_if_each_lane_has_one():
    plan = planner(batch_bytes=2048, staged_lanes=1)
    for size, log_lanes, staged in ((4, 0, True), (16, 0, True), (17, 1, False), (512, 5, False)):
        given = numbers(SegmentsProblem(2**20, 2**20 * size, size, 0), plan)[2]
        assert (given["log_lanes"], given["shared"] > 0) == (log_lanes, staged)


def test_lanes_have_several_segments_of_a_few_items():
    least = 128 * 32 * SMS
    for n, items in ((least, 2 * least + 5), (least, 9 * least - 1), (2**25 + 1, 2**26), (2**33, 2**34)):
        shape, _, given = numbers(SegmentsProblem(n, items, 0, 0))
        part = given["part_bytes"]
        assert (shape, given["shared"]) == ("few", WARPS * part)
        # What segments of a warp have on average fits, and a vector of which some items are not theirs.
        assert 128 * 4 * (items // n) + 16 < part <= FACTS["staged_bytes"] // WARPS
        assert (given["grid"] - 1) * WARPS * 128 < n <= given["grid"] * WARPS * 128
    for problem in (
        SegmentsProblem(least - 1, 2 * least, 0, 0),
        SegmentsProblem(least, 9 * least, 0, 0),
        SegmentsProblem(least, 0, 0, 0),
    ):
        assert numbers(problem)[0] == "any"
    assert numbers(SegmentsProblem(least, 2 * least, 0, 0), planner(has_few=0))[0] == "any"
    # As many as a warp can stage, of larger items.
    of_16_bytes = planner(item_size=16)
    assert numbers(SegmentsProblem(least, 3 * least - 1, 0, 0), of_16_bytes)[0] == "few"
    assert numbers(SegmentsProblem(least, 3 * least, 0, 0), of_16_bytes)[0] == "any"


def test_what_no_array_has_is_not_staged():
    for mean in (4, 64):
        assert (
            numbers(SegmentsProblem(2**20, 0, mean, 0), planner(item_size=0, staged_lanes=0))[2]["shared"]
            == 0
        )


def test_few_segments_have_a_warp_each():
    assert numbers(SegmentsProblem(100, 1600, 0, 0))[2]["log_lanes"] == 5


def test_where_most_segments_are_long_they_are_queued_and_have_a_block_for_their_chunks():
    shape, _, given = numbers(SegmentsProblem(2**12, 2**28, 0, 0))
    assert shape == "long"
    assert given["grid"] == 2**12 / 256
    assert 2**28 / CHUNK / WARPS <= given["chunk_grid"] <= (2**28 / CHUNK + 2**12) / WARPS
    shape, _, given = numbers(SegmentsProblem(2**15, 2**28, 0, 0))
    assert shape == "any"
    assert given["chunk_grid"] == SMS * 8


@pytest.mark.parametrize("n", [1, 1000, 2**16, 2**20])
def test_the_queue_of_long_segments_is_in_the_storage(n):
    _, nbytes, given = numbers(SegmentsProblem(n, 2**33, 0, 0))
    places = [0, *(given[each] for each in ("segments", "chunks", "partials")), nbytes]
    sizes = [8, 40 * given["most_segments"], 4 * given["most_chunks"], 4 * given["most_chunks"]]
    assert all(a % 256 == 0 and a + size <= b for a, size, b in zip(places, sizes, places[1:], strict=False))
    assert given["most_segments"] == min(n, 2**16)


@pytest.mark.parametrize("problem", [SegmentsProblem(1000, 0, CHUNK, 0), SegmentsProblem(1000, CHUNK, 0, 0)])
def test_where_no_segment_is_long_there_is_one_kernel(problem):
    shape, nbytes, _ = numbers(problem)
    assert (shape, nbytes) == ("short", 0)
    assert PLAN(SegmentsProblem(1000, 0, CHUNK + 1, 0)).shape == "any"


def specification(specified, *offsets):
    return specified(cupar.segmented_reduce, "f4", "f4", *offsets, cupar.OpKind.PLUS, 0)


def test_rows_have_a_length_in_place_of_offsets(specified):
    rows, offsets = (specification(specified, *each) for each in ((None, None), ("i8", "i8")))
    assert [each.name for each in rows.arguments] == ["d_in", "d_out"]
    for spec in (rows, offsets):
        for shape in SEGMENTED_REDUCE.shapes(spec).values():
            kernels = {each.kernel for each in shape.launches}
            assert kernels & {f"cupar_segmented_reduce{which}" for which in ("", "_queue", "_few", "_rows")}
    assert "row_starts" in SEGMENTED_REDUCE.traits(rows)
    assert "row_starts" not in SEGMENTED_REDUCE.traits(offsets)


def test_one_offset_without_the_other():
    with pytest.raises(TypeError, match="^end_offsets_in: expected offsets"):
        cupar.segmented_reduce("f4", "f4", "i8", None, cupar.OpKind.PLUS, 0, cc=90)
    with pytest.raises(TypeError, match="^start_offsets_in: expected offsets"):
        cupar.segmented_reduce("f4", "f4", None, "i8", cupar.OpKind.PLUS, 0, cc=90)


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("cc", "d_in", "offset", "accumulator"),
    [
        (75, "f4", "i8", "f8"),
        (80, "i1", None, "i4"),
        (100, cupar.CountingIterator(np.int32(0)), "u4", "i8"),
    ],
)
def test_templates_build(d_in, offset, accumulator, cc):
    h_init = np.zeros(1, accumulator)
    built = cupar.segmented_reduce(d_in, accumulator, offset, offset, cupar.OpKind.PLUS, h_init, cc=cc)
    assert built.build.cc == cc
    assert {taken.local for taken in built.build.resources().values()} == {0}  # nothing spills


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_complex_numbers_in_shared_memory_may_begin_in_the_middle_of_a_word(tmp_path):
    found = cupar.segmented_reduce("c8", "c8", op=cupar.OpKind.PLUS, h_init=np.zeros(1, "c8"), cc=90)
    loads = {each for each in instructions(found, tmp_path) if each.startswith("LDS")}
    assert loads == {"LDS.64", "LDS"}  # as arrays may begin at multiples of 4
