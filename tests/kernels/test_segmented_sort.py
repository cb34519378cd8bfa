"""Plans of segmented sorts: which kernels, how many blocks, and whether lists and arrays are large enough."""

from itertools import pairwise

import pytest
from support.common import stored_properties
from support.plans import planned

import cupar
from cupar._kernels.segmented_sort import SEGMENTED_SORT, SegmentedSortProblem
from cupar._launch.marshal import call_reader

UP = cupar.SortOrder.ASCENDING
SMS, RUNNING = 132, 4
TOPS = [
    16,
    32,
    64,
    128,
    256,
    512,
    1024,
    2048,
    4096,
    8192,
    16384,
]  # of lists, where a thread of a team has 32 items
TILE = 8192


def planner(team_threads=512, team_items=32, team_bytes=132, tile=TILE, passes=4, key=4, value=0):
    build = (256, team_threads, team_items, team_bytes, 512, tile, passes, 32, key, value, 128)
    facts = {**dict(zip(SEGMENTED_SORT.properties, build, strict=True)), "sms": SMS, "shared_memory": 232448}
    return planned(SEGMENTED_SORT, facts, lambda *_: RUNNING)


def launches(spec, plan):
    """Return what a plan launches: kernel, grid, and its numbers by name."""
    shape = SEGMENTED_SORT.shapes(spec)[plan.shape]
    numbers = dict(zip(shape.numbers, plan.numbers, strict=True))
    names = [each.kernel.removeprefix("cupar_segmented_sort_") for each in shape.launches]
    return names, [numbers.get(each.grid, each.grid) for each in shape.launches], numbers


@pytest.fixture
def by_offsets(specified):
    return specified(cupar.segmented_sort, "i4", "i4", None, None, "i8", "i8", UP)


@pytest.fixture
def by_rows(specified):
    return specified(cupar.segmented_sort, "i4", "i4", None, None, None, None, UP)


@pytest.mark.parametrize("problem", [(0, 0, 0), (0, 5, 0), (9, 0, 0), (0, 3, 0)])
def test_nothing_to_sort(problem):
    assert planner()(SegmentedSortProblem(*problem)) == ("", 0, ())


@pytest.mark.parametrize(
    ("length", "kernel", "rows_of_a_block"),
    [
        *((1, "16", 64), (16, "16", 64), (17, "32", 64), (32, "32", 64), (33, "64", 32), (64, "64", 32)),
        *((65, "128", 32), (128, "128", 32), (129, "256", 16), (256, "256", 16), (257, "512", 8)),
        *((512, "512", 8), (513, "teams", 4), (1024, "teams", 4), (1025, "teams", 2), (2049, "teams", 1)),
        *((4096, "teams", 1), (4097, "teams", 1), (16384, "teams", 1)),
    ],
)
@pytest.mark.parametrize("n", [1, 3, 2**20 + 1, 2**34 - 1])
def test_short_rows_are_one_kernels(length, kernel, rows_of_a_block, n, by_rows):
    plan = planner()(SegmentedSortProblem(n * length, n, length))
    names, grids, numbers = launches(by_rows, plan)
    assert (names, plan.nbytes, numbers["n"], numbers["size"]) == ([kernel], 0, n, length)
    assert grids == [min(-(-n // rows_of_a_block), 2**31 - 1)]


def test_the_team_of_a_row_is_the_least_that_is_large_enough(by_rows):
    for length, size in ((513, 0), (1024, 0), (1025, 1), (4096, 2), (4097, 3), (8193, 4), (16384, 4)):
        plan = planner()(SegmentedSortProblem(length, 1, length))
        (launch,) = SEGMENTED_SORT.shapes(by_rows)[plan.shape].launches
        assert [each.name for each in launch.parameters[-3:-1]] == [size, size]
        assert launch.block >= 32 << size
        assert plan.numbers[-1] == 132 * launch.block  # bytes of shared memory


def test_words_of_64_bits_have_no_groups_of_as_many_as_the_smallest_team(specified):
    for keys, values in (("i4", "u1"), ("i8", None), ("f4", "f8"), ("u8", "i8")):
        spec = specified(cupar.segmented_sort, keys, keys, values, values, "i8", "i8", UP)
        plan = planner(team_items=16, team_bytes=136)(SegmentedSortProblem(10**7, 10**6, 0))
        names, _, numbers = launches(spec, plan)
        assert names[-6:] == ["teams", "256", "128", "64", "32", "16"]
        assert "has_512 = false" in SEGMENTED_SORT.traits(spec)
        n = 10**6 + 256 * (10**7 // 8193)  # with parts of long ones
        assert numbers["list 5"] == sum(min(n, 10**7 // least) for least in (1, 17, 33, 65, 129))
        by_rows = specified(cupar.segmented_sort, keys, keys, values, values, None, None, UP)
        rows = planner(team_items=16, team_bytes=136)(SegmentedSortProblem(512 * 9, 9, 512))
        assert rows.shape == "teams 0" in SEGMENTED_SORT.shapes(by_rows)
        assert "512" not in SEGMENTED_SORT.shapes(by_rows)
    for keys, values in (("i4", None), ("u1", None), ("f2", "c16")):
        spec = specified(cupar.segmented_sort, keys, keys, values, values, "i8", "i8", UP)
        assert "has_512 = true" in SEGMENTED_SORT.traits(spec)


def test_where_less_shared_memory_is_there_teams_are_smaller():
    plan = planner(team_threads=256)
    assert plan(SegmentedSortProblem(8192, 1, 8192)).shape == "teams 3"
    assert plan(SegmentedSortProblem(8193, 1, 8193)).shape == "long"
    assert plan(SegmentedSortProblem(8192, 9, 0)).shape == "short"
    assert plan(SegmentedSortProblem(8193, 9, 0)).shape == "any"


DIGITS = ["tiles", "count", *["digit"] * 4]
PARTED = ["tiles", "count", "parts", *["digit"] * 4]


def test_long_rows_go_digit_by_digit(by_rows):
    n, length = 100, 16385
    plan = planner()(SegmentedSortProblem(n * length, n, length))
    names, grids, numbers = launches(by_rows, plan)
    assert names == ["init", *DIGITS]
    most = n * length // TILE + n
    assert (numbers["most_segments"], numbers["most_tiles"]) == (n, most) >= (n, 3 * n)
    assert grids == [1, n, *[min(most, SMS * RUNNING)] * 5]
    assert numbers["values"] - numbers["keys"] >= 4 * n * length
    assert plan.nbytes == numbers["values"]


@pytest.mark.parametrize("items", [1, 16, 17, 300, 16384, 16385, 10**6 + 3, 2**28, 2**33 + 1])
@pytest.mark.parametrize("n", [1, 7, 10**5, 2**32 - 1])
def test_lists_hold_as_many_segments_as_there_can_be(items, n, by_offsets):
    plan = planner()(SegmentedSortProblem(items, n, 0))
    names, grids, numbers = launches(by_offsets, plan)
    groups = ["teams", "512", "256", "128", "64", "32", "16"]
    assert names == ["init", "list", *(PARTED if items > 16384 else []), *groups]
    assert all(1 <= grid < 2**31 for grid in grids if grid is not None)
    firsts = [numbers[f"list {i}"] for i in range(13)]
    capacities = [b - a for a, b in pairwise(firsts)]
    # A long segment may have 256 parts, which are listed with segments, and have numbers behind theirs.
    long = min(n, items // 16385)
    parted = long if n + 256 * long < 2**32 else 0
    assert capacities == [min(n + 256 * parted, items // least) for least in (1, *(top + 1 for top in TOPS))]
    of_lists = 4 * firsts[-1]
    end = numbers["queue"] if items > 16384 else plan.nbytes
    assert numbers["segments"] == 256
    assert 256 + of_lists <= end < 512 + of_lists
    # Teams that have something to do.
    assert numbers["largest"] == max((i for i in range(5) if capacities[6 + i]), default=-1)
    assert grids[names.index("list")] == -(-n // 1024)
    if items > 16384:
        assert (numbers["most_segments"], numbers["most_parted"]) == (long, parted)
        assert numbers["most_tiles"] >= items // TILE + 1
        parts = [numbers[name] for name in ("queue", "places", "bins", "lookback", "keys", "values")]
        sizes = [32 * long, 24 * numbers["most_tiles"], 8192 * long, 2048 * numbers["most_tiles"], 4 * items]
        assert all(b - a >= size for (a, b), size in zip(pairwise(parts), sizes, strict=True))


def test_spare_arrays_are_there_if_passes_take_turns(specified):
    of_bytes = planner(passes=1, key=1, value=16, tile=2048)(SegmentedSortProblem(10**6, 3, 0))
    shape = SEGMENTED_SORT.shapes(specified(cupar.segmented_sort, "u1", "u1", "c16", "c16", "i8", "i8", UP))[
        "any"
    ]
    numbers = dict(zip(shape.numbers, of_bytes.numbers, strict=True))
    assert numbers["keys"] == numbers["values"] == of_bytes.nbytes
    digits = [each for each in shape.launches if each.kernel.endswith("digit")]
    assert [each.parameters[0][0].name for each in digits] == ["d_in_keys"]
    of_pairs = planner(value=16, tile=2048)(SegmentedSortProblem(10**6, 3, 0))
    assert of_pairs.nbytes - of_pairs.numbers[shape.numbers.index("values")] >= 16 * 10**6


@pytest.mark.parametrize("keys", ["i2", "u4", "f8"])
def test_the_last_pass_writes_the_output(keys, specified):
    spec = specified(cupar.segmented_sort, keys, keys, "i4", "i4", "i8", "i8", UP)
    launched = SEGMENTED_SORT.shapes(spec)["any"].launches
    ways = [each.parameters[0] for each in launched if each.kernel.endswith("digit")]
    assert ways[0][0].name == "d_in_keys"
    assert [each.name for each in ways[-1][1::2]] == ["d_out_keys", "d_out_values"]
    assert all(one[1::2] == other[0::2] for one, other in pairwise(ways))
    assert all(each[0] != each[1] for each in ways)


def test_wrong_rows_and_counts_are_named(specified):
    def problem(spec, n, m, size, keys="keys", values=None):
        """Have arguments read, which are refused before arrays are."""
        return call_reader(spec, ())((keys, None, values, None, n, m, None, None, size))

    arrays = ["i4"] * 4
    rows, offsets = (specified(cupar.segmented_sort, *arrays, *each, UP) for each in ([None] * 2, ["i4"] * 2))
    for n in (12, 13):
        assert cupar.SegmentedSort._problem_maker(rows)("keys", None, n, 3, 4) == (12, 3, 4)
    for size, message in (
        (0, "1 or more, got 0"),
        (-1, "got -1"),
        (5, "num_items, 12: 3 segments of 5 items"),
    ):
        with pytest.raises(ValueError, match=f"^segment_size: .*{message}"):
            problem(rows, 12, 3, size)
    with pytest.raises(TypeError, match="^segment_size: expected an integer, .*None"):
        problem(rows, 12, 3, None)
    with pytest.raises(TypeError, match="^segment_size: expected an integer, got float"):
        problem(rows, 12, 3, 4.0)
    with pytest.raises(TypeError, match="^segment_size: .*offsets"):
        problem(offsets, 12, 3, 4)
    with pytest.raises(ValueError, match="^num_segments: expected at most 4294967295 with offsets"):
        problem(offsets, 12, 2**32, None)
    with pytest.raises(TypeError, match="^d_in_values: expected a DoubleBuffer"):
        problem(rows, 12, 3, 4, cupar.DoubleBuffer("i4", "i4"), "values")


@pytest.mark.parametrize(("cc", "most"), [(80, 163), (88, 99)])
def test_teams_fit_into_the_shared_memory_of_a_card(cc, most, only):
    """Words of 16 bytes; 8.8 has as little as 8.6 (CUB's arch_traits.h)."""
    only()
    sort = cupar.segmented_sort("f8", "f8", "f8", "f8", "i8", "i8", UP, cc=cc)
    facts = stored_properties(sort)
    needed = facts["team_threads"] * facts["team_bytes"]
    assert needed <= most << 10 < 2 * needed
