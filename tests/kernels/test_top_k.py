"""Plans of top-k: kernels, levels, and whether the temporary storage is large enough."""

from itertools import pairwise

import numpy as np
import pytest
from support.plans import planned

import cupar
from cupar._kernels.top_k import TOP_K, TopKProblem
from cupar._launch.marshal import call_reader
from cupar.topk import SegmentedTopK, TopK

SMS, RUNNING = 132, 2
TILE, WARP, FEW = 8192, 1024, 128
SORT_TILE = 4096
NAMES = ("few", "warp", "block")


def planner(key=4, word=8):
    facts = dict(zip(TOP_K.properties, (512, TILE, WARP, 72, key, word, 512, SORT_TILE, 32, 1), strict=True))
    return planned(TOP_K, {**facts, "sms": SMS, "shared_memory": 232448}, lambda *_: RUNNING)


def launches(spec, plan):
    """Return what a plan launches: kernels, grids, all numbers by name, and the strides of levels."""
    shapes, numbers = (
        ([plan.shape], [plan.numbers]) if isinstance(plan.shape, str) else (plan.shape, plan.numbers)
    )
    names, grids, found, strides = [], [], {}, []
    for name, own in zip(shapes, numbers, strict=True):
        shape = TOP_K.shapes(spec)[name]
        given = dict(zip(shape.numbers, own, strict=True))
        found |= given
        for each in shape.launches:
            names.append(each.kernel.removeprefix("cupar_").removeprefix("top_k_"))
            grids.append(given.get(each.grid, each.grid))
            if names[-1] == "level":
                strides.append(given[each.parameters[5].name])
    return names, grids, found, strides


@pytest.fixture
def by_offsets(specified):
    return specified(cupar.segmented_top_k, "i4", "i4", "f8", "f8", "i8", "i8")


@pytest.fixture
def by_rows(specified):
    return specified(cupar.segmented_top_k, "i4", "i4", "f8", "f8")


@pytest.mark.parametrize("problem", [(0, 0, 0, 3), (0, 5, 0, 3), (9, 0, 0, 3), (9, 3, 3, 0), (0, 1, 0, 0)])
def test_of_nothing(problem):
    assert planner()(TopKProblem(*problem)) == ("", 0, ())


@pytest.mark.parametrize("length", [1, FEW, FEW + 1, WARP, WARP + 1, TILE])
@pytest.mark.parametrize("n", [1, 7, 2**20 + 1, 2**33 - 1])
def test_short_rows_are_one_kernel(length, n, by_rows):
    for k in {1, length // 2 + 1, length}:
        plan = planner()(TopKProblem(n * length, n, length, k))
        names, grids, numbers, _ = launches(by_rows, plan)
        (name,) = names
        assert name == NAMES[(length > FEW) + (length > WARP)] and plan.nbytes == 0
        teams = 1 if name == "block" else 4
        assert grids == [min(-(-n // teams), 2**31 - 1)]
        capacity = numbers[f"capacity {name}"]
        assert capacity & (capacity - 1) == 0 and k <= capacity <= max(4 * k, 64)
        assert numbers[f"shared {name}"] == 8 * teams * capacity


@pytest.mark.parametrize("k", [1, 64, 257, TILE // 4])
@pytest.mark.parametrize("length", [TILE + 1, 2**20, 2**32 - 1])
@pytest.mark.parametrize("n", [SMS, 2**20 + 1, 2**33 - 1])
def test_of_many_long_rows_a_block_has_each(length, n, k, by_rows):
    plan = planner()(TopKProblem(n * length, n, length, k))
    names, grids, numbers, _ = launches(by_rows, plan)
    assert names == ["rows"] and grids == [min(n, 2**31 - 1)] and plan.nbytes == 0
    capacity = numbers["capacity rows"]
    assert capacity & (capacity - 1) == 0 and 4 * k <= capacity <= TILE
    assert numbers["shared rows"] == 8 * capacity


def test_builds_for_one_array_have_no_kernel_of_many_rows(specified, by_rows, by_offsets):
    of_array = specified(cupar.top_k, "i4", "i4", "f8", "f8")
    assert ["rows" in TOP_K.shapes(spec) for spec in (of_array, by_rows, by_offsets)] == [False, True, False]


@pytest.mark.parametrize(
    "problem", [(SMS - 1, TILE + 1, 64), (SMS, TILE + 1, TILE // 4 + 1), (SMS, 2**32, 64)]
)
def test_of_few_or_longer_rows_tiles_are_blocks(problem, by_rows):
    n, length, k = problem
    names, *_ = launches(by_rows, planner()(TopKProblem(n * length, n, length, k)))
    assert names[:2] == ["segmented_sort_init", "tiles"]


@pytest.mark.parametrize("k", [1, 10, 1000, TILE // 4])
@pytest.mark.parametrize("length", [TILE + 1, 5 * TILE, 2**28, 2**33 + 1])
def test_levels_are_as_many_as_one_block_needs_at_last(length, k, by_rows):
    n = 3
    plan = planner()(TopKProblem(n * length, n, length, k))
    names, grids, numbers, strides = launches(by_rows, plan)
    tiles = -(-length // TILE)
    assert names == ["segmented_sort_init", "tiles", "candidates", *["level"] * len(strides)]
    assert strides == [(TILE // k) ** (i + 1) for i in range(len(strides))]
    assert strides[-1] >= tiles > (strides[-2] if len(strides) > 1 else 1)
    assert all(1 <= grid < 2**31 for grid in grids)
    assert numbers["most_tiles"] >= n * tiles and numbers["most_segments"] == n
    parts = [numbers[name] for name in ("queue", "segment_of", "counts", "keys", "positions")]
    most = numbers["most_tiles"]
    sizes = [72 * n, 4 * most, 4 * most, 4 * most * k, 8 * most * k]
    assert all(b - a >= size for (a, b), size in zip(pairwise([*parts, plan.nbytes]), sizes, strict=True))
    assert numbers["capacity"] >= k


LARGE = (
    *("queue", "segment_of", "bins", "before", "keys", "positions", "sorted_keys", "sorted_positions"),
    *("sort_queue", "sort_places", "sort_bins", "sort_lookback"),
)


@pytest.mark.parametrize("k", [TILE // 4 + 1, TILE, 2**20])
@pytest.mark.parametrize("length", [2**20, 2**28, 2**33 + 1])
def test_a_large_k_is_found_by_digits(length, k, by_rows):
    n = 2
    plan = planner()(TopKProblem(n * length, n, length, k))
    names, grids, numbers, _ = launches(by_rows, plan)
    digits = ["digit"] * 3  # of 11 bits
    sort = [f"segmented_sort_{name}" for name in ("tiles", "count", *["digit"] * 4)]
    assert names == ["segmented_sort_init", "tiles", *digits, "count", "select", *sort, "write"]
    assert all(1 <= grid < 2**31 for grid in grids)
    most, sort_tiles = numbers["most_tiles"], numbers["sort_tiles"]
    assert most >= n * -(-length // TILE) and sort_tiles >= n * -(-k // SORT_TILE)
    selected = n * k
    sizes = [72 * n, 4 * most, 8 * 2048 * n, 16 * most, *[4 * selected, 8 * selected] * 2]
    sizes += [32 * n, 24 * sort_tiles, 8 * 256 * 4 * n, 8 * 256 * sort_tiles]
    parts = [numbers[name] for name in LARGE] + [plan.nbytes]
    assert all(b - a >= size for (a, b), size in zip(pairwise(parts), sizes, strict=True))


@pytest.mark.parametrize("items", [1, FEW + 1, TILE, TILE + 1, 10**6 + 3, 2**28, 2**33 + 1])
@pytest.mark.parametrize("n", [1, 7, 10**5, 2**32 - 1])
@pytest.mark.parametrize("k", [1, 500, 5000, 2**40])
def test_lists_hold_as_many_segments_as_there_can_be(items, n, k, by_offsets):
    plan = planner()(TopKProblem(items, n, 0, k))
    names, grids, numbers, strides = launches(by_offsets, plan)
    assert names[:2] == ["segmented_sort_init", "list"] and set(NAMES) <= set(names)
    is_long = items > TILE
    assert ("candidates" in names, "select" in names) == (is_long and k <= 2048, is_long and k > 2048)
    assert all(1 <= grid < 2**31 for grid in grids)
    capacities = [b - a for a, b in pairwise([numbers[f"list {i}"] for i in range(13)])]
    expected = [min(n, items // least) for least in (1, FEW + 1, WARP + 1, TILE + 1)]
    assert capacities == [*expected, *[0] * 8]
    if is_long:
        assert numbers["most_segments"] == expected[-1]
        assert numbers["most_tiles"] >= items // TILE + 1 and numbers["most_selected"] == items
    if strides:
        assert strides[-1] * TILE >= items
    if "select" in names:  # what is selected are items, whatever k is
        assert numbers["sorted_keys"] - numbers["positions"] <= 8 * items + 256


@pytest.mark.parametrize("key", [1, 2, 4, 8])
@pytest.mark.parametrize("k", [1, 100, 2048, 5000, 2**20])
@pytest.mark.parametrize("items", [2**22, 2**24 + 1, 2**26 - 5, 2**28, 2**33 + 1])
def test_a_single_segment_is_cut_down_to_groups(items, k, key, specified):
    code = {1: "i1", 2: "u2", 4: "f4", 8: "f8"}[key]
    spec = specified(cupar.segmented_top_k, code, code, "f8", "f8")
    plan = planner(key)(TopKProblem(items, 1, items, k))
    names, grids, numbers, strides = launches(spec, plan)
    few, many = 64 // key, 1024 // key
    name, size = ("many", many) if items >= k * few * many else ("few", few)
    if items < 8 * few * k or items * key < (2**24 if k * size > TILE else 2**26):
        assert not any(name.startswith("first_of") for name in names)
        return
    wanted = max(k, TILE // size + 1)  # several tiles of them
    digits = ["digit"] * -(-8 * key // 11)
    init = "segmented_sort_init"
    before = [init, f"first_of_{name}", "tiles", *digits, "count", "select", "gather"]
    assert names[: len(before)] == before and names[len(before) : len(before) + 2] == [init, "tiles"]
    assert all(1 <= grid < 2**31 for grid in grids)
    assert size == 1 << numbers["shift"]
    assert numbers["size"] == wanted * size > TILE  # which all kernels behind that work on
    assert ("write" in names) == (k > TILE // 4) != (len(strides) > 0)
    if strides:
        assert strides[-1] >= -(-wanted * size // TILE)

    # What finds the groups has its own part of the storage; what follows leaves that alone.
    groups = -(-items // size)
    shapes = TOP_K.shapes(spec)
    own = dict(zip(shapes[plan.shape[0]].numbers, plan.numbers[0], strict=True))
    assert (own["n"], own["size"], own["items"], own["most_selected"]) == (1, groups, items, groups)
    assert own["k"] == wanted <= groups and numbers["k"] == k
    parts = ("queue", "segment_of", "firsts", "bins", "before", "gathered", "groups")
    tiles = own["most_tiles"]
    assert tiles >= -(-groups // TILE)
    sizes = [72, 4 * tiles, key * groups, 8 * 2048, 16 * tiles, key * wanted * size, 8 * wanted]
    behind = dict(zip(shapes[plan.shape[1]].numbers, plan.numbers[1], strict=True))
    places = [*(own[part] for part in parts), behind["queue"]]
    assert all(b - a >= size for (a, b), size in zip(pairwise(places), sizes, strict=True))
    assert (behind["bound"], behind["gathered"], behind["groups"]) == (
        own["queue"],
        own["gathered"],
        own["groups"],
    )
    assert plan.nbytes > behind["queue"]


def test_groups_of_any_number():
    """The groups whose first keys come first have all that is asked for, with equal keys in their order."""
    rng = np.random.default_rng(5)
    for _ in range(200):
        items, size = int(rng.integers(50, 2000)), 1 << int(rng.integers(1, 5))
        keys = rng.integers(0, 10 ** int(rng.integers(1, 5)), items)
        groups = -(-items // size)
        k = int(rng.integers(1, groups + 1))
        padded = np.append(keys, np.full(groups * size - items, keys.max() + 1)).reshape(groups, size)
        chosen = np.sort(np.argsort(padded.min(1), kind="stable")[:k])
        gathered = padded[chosen].ravel()
        found = np.argsort(gathered, kind="stable")[:k]
        assert np.array_equal(
            chosen[found // size] * size + found % size, np.argsort(keys, kind="stable")[:k]
        )


@pytest.fixture
def spec_of(specified):
    def spec_of(kind, offsets=None):
        if kind is TopK:
            return specified(cupar.top_k, "f4", "f4")
        return specified(cupar.segmented_top_k, "f4", "f4", None, None, offsets, offsets)

    return spec_of


def test_problems(spec_of):
    def problem(kind, *given, offsets=None):
        return kind._problem_maker(spec_of(kind, offsets))(*given)

    assert problem(TopK, 10, 3) == (10, 1, 10, 3, 3)
    assert problem(SegmentedTopK, 10, 3, 2, 3) == (9, 3, 3, 2, 6)
    assert problem(SegmentedTopK, 10, 3, 20, offsets="i4") == (10, 3, 0, 20, 60)


def refused(spec, *given):
    """Have arguments of a call read that are refused before its arrays are."""
    call_reader(spec, ())((None, None, None, None, *given))


@pytest.mark.parametrize(
    ("kind", "given", "error", "message"),
    [
        (TopK, (10, 11), ValueError, "^k: expected at most num_items, 10, got 11"),
        (SegmentedTopK, (10, 3, 4, None, None, 3), ValueError, "^k: expected at most segment_size, 3, got 4"),
        (SegmentedTopK, (10, 3, None, None, None, 3), TypeError, "^k: expected an integer, got NoneType"),
        (SegmentedTopK, (10, 3, -1, None, None, 3), ValueError, "^k: expected 0 or more, got -1"),
        (
            SegmentedTopK,
            (10, 3, 2, None, None, 4),
            ValueError,
            "^segment_size: .* num_items, 10: 3 segments of 4 ",
        ),
        (SegmentedTopK, (10, 3, 2, None, None, None), TypeError, "^segment_size: expected an integer"),
    ],
)
def test_refusals(kind, given, error, message, spec_of):
    with pytest.raises(error, match=message):
        refused(spec_of(kind), *given)


def test_refusals_with_offsets(spec_of):
    spec = spec_of(SegmentedTopK, "i4")
    with pytest.raises(TypeError, match="^segment_size: .*expected None"):
        refused(spec, 10, 3, 2, "s", "e", 3)
    with pytest.raises(ValueError, match="^num_segments: expected at most 4294967295"):
        refused(spec, 10, 2**32, 2, "s", "e", None)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cupar.top_k("c8", "c8", cc=90), "^d_in_keys: complex64 has no order"),
        (lambda: cupar.top_k("i4", "i8", cc=90), "^d_out_keys: expected int32"),
        (lambda: cupar.top_k("i4", "i4", "i4", cc=90), "^d_out_values: expected a device array"),
        (lambda: cupar.top_k("i4", "i4", order=True, cc=90), "^order: expected a SortOrder"),
        (
            lambda: cupar.top_k(cupar.CountingIterator(1), "i8", cc=90),
            "^d_in_keys: expected an array or a dtype",
        ),
        (
            lambda: cupar.segmented_top_k("i4", "i4", None, None, "i4", cc=90),
            "^end_offsets_in: expected offsets",
        ),
        (
            lambda: cupar.segmented_top_k("i4", "i4", None, None, "f4", "f4", cc=90),
            "^start_offsets_in: expected integers",
        ),
    ],
)
def test_refusals_of_factories(make, message):
    with pytest.raises(TypeError, match=message):
        make()
