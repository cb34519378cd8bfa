"""Plans of sorts against what CUB's dispatch would do, and their kernels' parameters against the code."""

import struct
from dataclasses import replace
from itertools import pairwise
from math import ceil, log2

import numpy as np
import pytest
from support.plans import planned
from support.templates import compiled

import cupar
from cupar._kernels.merge_sort import MERGE_SORT
from cupar._kernels.radix_sort import RADIX_SORT, RadixSortProblem
from cupar._launch import chain

CC = 90
UP = cupar.SortOrder.ASCENDING
DEVICE = {"sms": 132, "shared_memory": 232448}


def facts(family, *build):
    return {**dict(zip(family.properties, build, strict=True)), **DEVICE}


def steps(plan):
    """Return the shapes of a plan, each with its numbers."""
    if isinstance(plan.shape, tuple):
        return list(zip(plan.shape, plan.numbers, strict=True))
    return [(plan.shape, plan.numbers)] if plan.shape else []


def launches(spec, plan):
    """Return what a plan launches: kernel, grid, and its numbers by name."""
    shapes = spec.family.shapes(spec)
    found = []
    for name, values in steps(plan):
        numbers = dict(zip(shapes[name].numbers, values, strict=True))
        found += [
            (each.kernel.partition("sort_")[2], numbers.get(each.grid, each.grid), numbers)
            for each in shapes[name].launches
        ]
    return found


def round_up(size):
    return -(-size // 256) * 256


# --- Merge sort ------------------------------------------------------------------------------------------

MERGE = planned(MERGE_SORT, facts(MERGE_SORT, 256, 17, 4, 8), lambda *_: 8)
TILE = 256 * 17


@pytest.fixture
def merge_sort(specified):
    return specified(cupar.merge_sort, "f4", "i8", "f4", "i8", cupar.OpKind.LESS)


AWKWARD = (
    1,
    2,
    TILE - 1,
    TILE,
    TILE + 1,
    2 * TILE,
    2 * TILE + 1,
    9 * TILE,
    2**20 + 3,
    2**28,
    2**31,
    2**32 + 1,
)


@pytest.mark.parametrize("n", AWKWARD)
def test_merge_sort_is_cubs(n, merge_sort):
    plan = MERGE(n)
    tiles = ceil(n / TILE)
    passes = ceil(log2(tiles))
    found = launches(merge_sort, plan)
    assert found[0][:2] == ("tiles", tiles)
    partitions = ceil((tiles + 1) / 256)
    assert [each[:2] for each in found[1:]] == [("partition", partitions), ("merge", tiles)] * passes
    assert all((each["n"], each["passes"]) == (n, passes) for _, _, each in found)
    if passes:
        sizes = [8 * (tiles + 1), 4 * n, 8 * n]
        assert plan.nbytes == sum(map(round_up, sizes))
        keys, items = round_up(sizes[0]), round_up(sizes[0]) + round_up(sizes[1])
        assert all((each["keys"], each["items"]) == (keys, items) for _, _, each in found)
    else:
        assert plan.nbytes == 0


@pytest.mark.parametrize("n", AWKWARD)
def test_passes_of_a_merge_sort_follow_one_another_and_need_each_shape_once(n, merge_sort):
    names = [name for name, _ in steps(MERGE(n))]
    assert len(set(names)) == len(names) <= 5
    shapes = MERGE_SORT.shapes(merge_sort)
    passes = []
    for name, values in steps(MERGE(n))[1:]:
        numbers = dict(zip(shapes[name].numbers, values, strict=True))
        for partition, merge in zip(*[iter(shapes[name].launches)] * 2, strict=True):
            after = {each.parameters[-1].name for each in (partition, merge)}
            passes.append(numbers["first"] + after.pop())
            assert not after
    assert passes == [*range(ceil(log2(ceil(n / TILE))))]


def test_a_merge_sort_of_nothing():
    assert steps(MERGE(0)) == [] and MERGE(0).nbytes == 0


# --- Radix sort ------------------------------------------------------------------------------------------

SORT_TILE, WIDE_TILE, ONE = 384 * 23, 384 * 17, 256 * 19
PAIRS = facts(RADIX_SORT, 256, 19, 128, 16, 384, 23, 128, 16, 384, 17, 4, 4)
RADIX = planned(RADIX_SORT, PAIRS, lambda *_: 8)
PORTION = 2**30 - 1
LARGE = (PORTION + 1, 2**30 + 5, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**33 + 7)


@pytest.fixture
def radix_sort(specified):
    return specified(cupar.radix_sort, "u4", "u4", "f4", "f4", UP)


def number_of(name, numbers):
    return name if isinstance(name, int) else numbers[name]


def passes_of(spec, plan):
    """Return what the kernels of digits are given, by the names in the source; and between which arrays."""
    names = ["counter", "bins", "lookback", "next_lookback", "next_tiles", "num_items", "bit", "num_bits"]
    shapes, found = RADIX_SORT.shapes(spec), []
    for name, values in steps(plan):
        numbers = dict(zip(shapes[name].numbers, values, strict=True))
        for launch in shapes[name].launches:
            if "digit" not in launch.kernel:
                continue
            *first, keys_out, keys_in, values_out, values_in = launch.parameters[:9]
            given = [
                number_of(getattr(each, "offset", getattr(each, "name", None)), numbers) for each in first
            ]
            given += [number_of(each.name, numbers) for each in launch.parameters[9:12]]
            more = {each: numbers[each] for each in ("next_bins", "first") if each in numbers}
            arrays = [getattr(each, "name", getattr(each, "offset", None)) for each in (keys_in, keys_out)]
            assert [str(each).replace("keys", "values") for each in arrays] == [
                getattr(each, "name", getattr(each, "offset", None)) for each in (values_in, values_out)
            ]
            found.append({**dict(zip(names, given, strict=True)), **more, "arrays": tuple(arrays)})
    return found


@pytest.mark.parametrize("n", [1, ONE - 1, ONE])
@pytest.mark.parametrize(("bits", "target"), [((3, 20), "out"), ((3, 19), "in")])
def test_a_radix_sort_of_a_tile(n, bits, target, radix_sort):
    for is_overwritten in (False, True):
        plan = RADIX(RadixSortProblem(n, *bits, is_overwritten))
        assert plan.nbytes == 0
        assert launches(radix_sort, plan) == [("tile", 1, {"n": n, "begin": bits[0], "end": bits[1]})]
        (launch,) = RADIX_SORT.shapes(radix_sort)[plan.shape].launches
        to = target if is_overwritten else "out"
        arrays = [each.name for each in launch.parameters[:4]]
        assert arrays == [f"d_{to}_keys", "d_in_keys", f"d_{to}_values", "d_in_values"]


@pytest.mark.parametrize("n", [ONE + 1, SORT_TILE, SORT_TILE + 1, 2**20 + 3, 2**28, PORTION])
@pytest.mark.parametrize("is_overwritten", [False, True])
def test_a_radix_sort_by_all_bits_is_cubs(n, is_overwritten, radix_sort):
    plan = RADIX(RadixSortProblem(n, 0, 32, is_overwritten))
    tiles = ceil(n / SORT_TILE)
    count = min(ceil(n / (128 * 16)), 8 * 132)
    found = launches(radix_sort, plan)
    assert [each[:2] for each in found] == [("init", 1), ("count", count), *[("digit", tiles)] * 4]
    assert plan.shape == "all digits" or is_overwritten
    # CUB has one look-back, which it zeroes before each pass.
    start, lookback, spare = 256 + 4 * 1024, round_up(1024 * tiles), 0 if is_overwritten else round_up(4 * n)
    assert plan.nbytes == start + 2 * lookback + 2 * spare
    two = (start, start + lookback)
    for number, each in enumerate(passes_of(radix_sort, plan)):
        assert (each["counter"], each["bins"]) == (4 * (1 + number), 256 + 1024 * number)
        assert (each["lookback"], each["next_lookback"]) == (two[number % 2], two[1 - number % 2])
        assert each["next_tiles"] == (tiles if number < 3 else 0)
        assert (each["num_items"], each["bit"], each["num_bits"]) == (n, 8 * number, 8)


@pytest.mark.parametrize("n", [10**5, 2**31])
@pytest.mark.parametrize("bits", [(0, 32), (0, 31), (8, 32), (3, 21), (0, 16), (30, 32), (31, 32)])
@pytest.mark.parametrize("is_overwritten", [False, True])
def test_arrays_of_a_radix_sort_take_turns(n, bits, is_overwritten, radix_sort):
    problem = RadixSortProblem(n, *bits, is_overwritten)
    plan = RADIX(problem)
    held, keys, sorted_to = "d_in_keys", {"d_in_keys"}, bits[0]
    spare = {"keys", plan.numbers[5] if plan.shape == "all digits" else None}
    for each in passes_of(radix_sort, plan):
        if each["bit"] != sorted_to:
            assert each["bit"] == sorted_to + 8
            sorted_to, held = each["bit"], keys.pop()
        source, target = each["arrays"]
        assert source == held
        assert target != source
        keys = {target}
        assert target != "d_in_keys" or is_overwritten
        assert target not in spare or not is_overwritten
    assert keys == {"d_out_keys" if problem.is_in_output else "d_in_keys"}
    assert sorted_to + each["num_bits"] == bits[1]


@pytest.mark.parametrize("n", LARGE)
@pytest.mark.parametrize("bits", [(0, 32), (5, 14)])
def test_portions_of_a_radix_sort_cover_all_items(n, bits, radix_sort):
    plan = RADIX(RadixSortProblem(n, *bits, False))
    passes, portions = ceil((bits[1] - bits[0]) / 8), ceil(n / (PORTION // WIDE_TILE * WIDE_TILE))
    found, digits = launches(radix_sort, plan), passes_of(radix_sort, plan)
    assert [each[0] for each in found] == ["init", "count_wide", *["digit_wide"] * passes * portions]
    start = found[0][2]
    most = start["tiles"]
    for launch, (each, (_, grid, _)) in enumerate(zip(digits, found[2:], strict=True)):
        number, portion = divmod(launch, portions)
        assert (each["bit"], each["num_bits"]) == (
            bits[0] + 8 * number,
            min(8, bits[1] - bits[0] - 8 * number),
        )
        assert each["first"] == portion * most * WIDE_TILE
        assert 0 < each["num_items"] <= PORTION
        assert each["first"] + each["num_items"] == (
            n if portion == portions - 1 else digits[launch + 1]["first"]
        )
        assert grid == ceil(each["num_items"] / WIDE_TILE) <= most
        assert each["next_tiles"] == (0 if launch == len(digits) - 1 else most)
        assert each["counter"] == 4 * (1 + launch)
        assert each["bins"] == start["bins"] + (portion * passes + number) * 2048
        assert each["next_bins"] - each["bins"] == passes * 2048
        if launch:
            assert each["lookback"] == digits[launch - 1]["next_lookback"] != each["next_lookback"]
        else:
            assert each["lookback"] == start["lookback"]
    # All parts of the temporary storage are as large as they are used, and end before the next one begins.
    numbers = found[2][2]
    lookbacks = sorted({digits[0]["lookback"], digits[0]["next_lookback"]})
    ends = [start["bins"], *lookbacks, numbers["keys"], numbers["values"], plan.nbytes]
    assert ends[0] >= 4 * (1 + len(digits))
    parts = [(portions + 1) * passes * 2048, most * 1024, most * 1024, *[4 * n * (passes > 1)] * 2]
    assert [round_up(part) for part in parts] == [b - a for a, b in pairwise(ends)]
    assert 4 * start["words"] == start["bins"] + passes * 2048


@pytest.mark.parametrize(
    ("bits", "is_overwritten", "is_in_output"),
    [
        ((0, 32), False, True),
        ((0, 32), True, False),
        ((0, 24), True, True),
        ((3, 4), True, True),
        ((3, 3), True, False),
        ((3, 3), False, True),
    ],
)
def test_where_a_radix_sort_leaves_its_result(bits, is_overwritten, is_in_output):
    for n in (1, 2**20):
        assert RadixSortProblem(n, *bits, is_overwritten).is_in_output is is_in_output
    assert RadixSortProblem(0, *bits, is_overwritten).is_in_output is not is_overwritten


def test_radix_sorts_without_bits_and_of_nothing(radix_sort):
    for problem in (
        RadixSortProblem(0, 0, 32, False),
        RadixSortProblem(0, 0, 32, True),
        RadixSortProblem(10**6, 7, 7, True),
    ):
        assert steps(RADIX(problem)) == []
    assert launches(radix_sort, RADIX(RadixSortProblem(1000, 7, 7, False))) == [
        ("copy", 4, {"n": 1000, "grid": 4})
    ]
    assert launches(radix_sort, RADIX(RadixSortProblem(2**33, 7, 7, False)))[0][1] == 8 * 132


@pytest.mark.parametrize("bits", [(8, 16), (0, 5)])
def test_a_radix_sort_by_one_digit_needs_no_spare_array(bits, radix_sort):
    plan = RADIX(RadixSortProblem(10**6, *bits, False))
    assert plan.nbytes == 256 + 1024 + round_up(1024 * ceil(10**6 / SORT_TILE))
    assert [each["arrays"] for each in passes_of(radix_sort, plan)] == [("d_in_keys", "d_out_keys")]
    of_bytes = facts(RADIX_SORT, 256, 19, 128, 16, 384, 23, 128, 16, 384, 17, 1, 4)
    plan = planned(RADIX_SORT, of_bytes, lambda *_: 8)(RadixSortProblem(10**6, 0, 8, False))
    assert (plan.shape, plan.nbytes) == ("all digits", 256 + 1024 + round_up(1024 * ceil(10**6 / SORT_TILE)))


# --- Kernels ---------------------------------------------------------------------------------------------


def packed_sizes(launch, values):
    one_by_one = (replace(launch, grid=1, shared=0, parameters=(each,)) for each in launch.parameters)
    return [struct.calcsize(chain._packed(each, values).format) for each in one_by_one]


PEAK = np.dtype([("mass", "f8"), ("charge", "i4"), ("flag", "i2")], align=True)
MAKE = {
    "merge sort of keys": lambda: cupar.merge_sort("i4", None, "i4", None, lambda a, b: a % 7 < b % 7, cc=CC),
    "merge sort of iterators": lambda: cupar.merge_sort(
        cupar.CountingIterator(np.int16(0)),
        cupar.ReverseIterator(PEAK),
        "i2",
        PEAK,
        cupar.OpKind.GREATER,
        cc=CC,
    ),
    "merge of keys": lambda: cupar.merge(
        "i4", None, "i4", None, "i4", None, lambda a, b: a % 7 < b % 7, cc=CC
    ),
    "merge of iterators": lambda: cupar.merge(
        *(cupar.CountingIterator(np.int16(0)), cupar.ReverseIterator(PEAK), "i2", PEAK),
        *("i4", cupar.ReverseIterator(PEAK)),
        cupar.OpKind.GREATER,
        cc=CC,
    ),
    "union of keys": lambda: cupar.set_union(
        "i4", None, "i4", None, "i4", None, "i8", lambda a, b: a % 7 < b % 7, cc=CC
    ),
    "difference of iterators": lambda: cupar.set_difference(
        *(cupar.CountingIterator(np.int16(0)), cupar.ReverseIterator(PEAK), "i2", None),
        *("i4", cupar.ReverseIterator(PEAK), "u4"),
        cupar.OpKind.GREATER,
        cc=CC,
    ),
    "radix sort of keys": lambda: cupar.radix_sort("f2", "f2", None, None, cupar.SortOrder.DESCENDING, cc=CC),
    "radix sort of structs": lambda: cupar.radix_sort("?", "?", PEAK, PEAK, UP, cc=CC),
    "segmented sort": lambda: cupar.segmented_sort("i4", "i4", None, None, "i8", "u4", UP, cc=CC),
    "segmented sort of structs": lambda: cupar.segmented_sort("f8", "f8", PEAK, PEAK, "i8", "i8", UP, cc=80),
    "segmented sort of long rows": lambda: cupar.segmented_sort("i8", "i8", order=UP, cc=CC),
    "top-k of rows": lambda: cupar.segmented_top_k(
        "f4", "f4", cupar.CountingIterator(np.int64(0)), "i8", order=UP, cc=CC
    ),
    "segmented top-k": lambda: cupar.segmented_top_k("u1", "u1", PEAK, PEAK, "i4", "u8", cc=CC),
    "top-k on an older device": lambda: cupar.top_k("f8", "f8", cc=80),
    "radix sort on an older device": lambda: cupar.radix_sort("i1", "i1", "c16", "c16", UP, cc=80),
}


@pytest.mark.slow
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_kernels_take_what_shapes_give(make):
    def sizes(spec):
        values = chain.Layouts.of(spec, [*spec.algorithm_class._uses])
        for shape in spec.family.shapes(spec).values():
            for launch in shape.launches:
                for i, size in enumerate(packed_sizes(launch, values)):
                    yield f"sizeof(cupar::parameter<kernels::{launch.kernel}, {i}>) == {size}"

    compiled(make, CC, sizes)
