"""Plans of segmented sorts by a comparison: kernels, and whether lists are large enough."""

from itertools import pairwise

import pytest
from support.operators import less
from support.plans import planned

import cupar
from cupar._kernels.segmented_merge_sort import SEGMENTED_MERGE_SORT
from cupar._kernels.segmented_sort import SegmentedSortProblem

SMS, RUNNING = 132, 2
THREADS, ITEMS = 512, 8
TILE = THREADS * ITEMS
TOPS = [ITEMS << size for size in range(10)]
NAME = "cupar_segmented_merge_sort_"


def planner(threads=THREADS, items=ITEMS, key=4, value=4):
    build = (threads, items, 24, key, value)
    facts = {
        **dict(zip(SEGMENTED_MERGE_SORT.properties, build, strict=True)),
        "sms": SMS,
        "shared_memory": 232448,
    }
    return planned(SEGMENTED_MERGE_SORT, facts, lambda *_: RUNNING)


def launches(spec, plan):
    """Return what a plan launches: kernels, grids, and all numbers by name."""
    shape = SEGMENTED_MERGE_SORT.shapes(spec)[plan.shape]
    given = dict(zip(shape.numbers, plan.numbers, strict=True))
    names = [each.kernel.removeprefix(NAME) for each in shape.launches]
    return names, [given.get(each.grid, each.grid) for each in shape.launches], given


@pytest.fixture
def by_offsets(specified):
    return specified(cupar.segmented_sort, "i4", "i4", "i4", "i4", "i8", "i8", op=less)


@pytest.fixture
def by_rows(specified):
    return specified(cupar.segmented_sort, "i4", "i4", "i4", "i4", op=less)


@pytest.mark.parametrize("problem", [(0, 0, 0), (0, 5, 0), (9, 0, 0), (0, 3, 0)])
def test_nothing_to_sort(problem):
    assert planner()(SegmentedSortProblem(*problem)) == ("", 0, ())


@pytest.mark.parametrize("length", [1, 8, 9, 16, 17, 100, 2048, 2049, TILE])
@pytest.mark.parametrize("n", [1, 3, 2**20 + 1, 2**34 - 1])
def test_short_rows_are_one_kernel_and_the_least_team_that_is_large_enough(length, n, by_rows):
    plan = planner()(SegmentedSortProblem(n * length, n, length))
    names, grids, numbers = launches(by_rows, plan)
    assert (names, plan.nbytes, numbers["n"], numbers["size"]) == (["teams"], 0, n, length)
    team = 1 << numbers["team"]
    assert team * ITEMS >= length and (team == 1 or team // 2 * ITEMS < length)
    assert grids == [min(-(-n // (THREADS // team)), 2**31 - 1)]


@pytest.mark.parametrize("length", [TILE + 1, 2 * TILE, 5 * TILE, 2**28, 2**31 + 1])
def test_one_kernel_has_all_levels_of_long_rows(length, by_rows):
    n = 3
    plan = planner()(SegmentedSortProblem(n * length, n, length))
    names, grids, numbers = launches(by_rows, plan)
    assert names == ["init", "tiles", "teams", "levels"]
    assert numbers["most_segments"] == n
    assert numbers["most_tiles"] >= n * -(-length // TILE)
    assert grids[1] == n and all(grid == min(numbers["most_tiles"], SMS * RUNNING) for grid in grids[2:])
    parts = [numbers[name] for name in ("queue", "segment_of", "merged", "keys", "values")]
    parts.append(plan.nbytes)
    sizes = [24 * n, 4 * numbers["most_tiles"], 4 * numbers["most_tiles"], 4 * n * length, 4 * n * length]
    assert all(b - a >= size for (a, b), size in zip(pairwise(parts), sizes, strict=True))


@pytest.mark.parametrize("items", [1, 8, 9, 300, TILE, TILE + 1, 10**6 + 3, 2**28, 2**33 + 1])
@pytest.mark.parametrize("n", [1, 7, 10**5, 2**32 - 1])
def test_lists_hold_as_many_segments_as_there_can_be(items, n, by_offsets):
    plan = planner()(SegmentedSortProblem(items, n, 0))
    names, grids, numbers = launches(by_offsets, plan)
    long = ["tiles", "teams", "levels"]
    assert names == ["init", "list", *(long if items > TILE else ["teams"])]
    assert all(1 <= grid < 2**31 for grid in grids)
    firsts = [numbers[f"list {i}"] for i in range(13)]
    capacities = [b - a for a, b in pairwise(firsts)]
    assert capacities == [min(n, items // least) for least in (1, *(top + 1 for top in TOPS))] + [0]
    assert numbers["segments"] == 256
    end = numbers["queue"] if items > TILE else plan.nbytes
    assert 256 + 4 * firsts[-1] <= end < 512 + 4 * firsts[-1]
    assert numbers["largest"] == max(i for i in range(10) if capacities[i])
    assert numbers["list_grid"] == -(-n // 1024)
    if items > TILE:
        assert numbers["most_segments"] == capacities[10]
        assert numbers["most_tiles"] >= items // TILE + 1


def test_large_keys_have_smaller_tiles():
    plan = planner(threads=32, items=1, key=1000)
    assert plan(SegmentedSortProblem(32, 1, 32)).shape == "rows"
    assert plan(SegmentedSortProblem(33, 1, 33)).shape == "long"
    numbers = plan(SegmentedSortProblem(10**6, 9, 0)).numbers
    assert len(numbers) == len(planner()(SegmentedSortProblem(10**6, 9, 0)).numbers)
