"""Plans of sorts against what CUB's dispatch would do, and their kernels' parameters against the code."""

import struct
from dataclasses import replace
from itertools import pairwise
from math import ceil, log2

import numpy as np
import pytest

import cupar
from cupar._call import launcher
from cupar._kernels.family import Facts
from cupar._kernels.merge_sort import MERGE_SORT
from cupar._kernels.radix_sort import RADIX_SORT, Bits

CC = 90
UP = cupar.SortOrder.ASCENDING
DEVICE = {"sms": 132, "shared_memory": 232448}


def facts(family, *build):
    return Facts({**dict(zip(family.facts, build, strict=True)), **DEVICE}, lambda *_: 8)


def steps(plan):
    """Return the shapes of a plan, each with its numbers."""
    if isinstance(plan.shape, tuple):
        return list(zip(plan.shape, plan.numbers, strict=True))
    return [(plan.shape, plan.numbers)] if plan.shape else []


def launches(spec, plan):
    """Return what a plan launches: kernel, grid, and its numbers by name."""
    shapes = spec.kind._family.shapes(spec)
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

MERGE = MERGE_SORT.planner(facts(MERGE_SORT, 256, 17, 4, 8))
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


def test_merge_sorts_overlap_where_the_device_can(specified):
    for cc in (80, 90):
        spec = specified(cupar.merge_sort, "f4", None, "f4", None, cupar.OpKind.LESS, cc=cc)
        for name, shape in MERGE_SORT.shapes(spec).items():
            overlaps = [each.overlaps for each in shape.launches]
            assert overlaps[0] is False, name
            assert all(each is (cc == 90) for each in overlaps[1:]), name


# --- Radix sort ------------------------------------------------------------------------------------------

SORT_TILE, WIDE_TILE, ONE = 384 * 23, 384 * 17, 256 * 19
PAIRS = facts(RADIX_SORT, 256, 19, 128, 16, 384, 23, 128, 16, 384, 17, 4, 4)
RADIX = RADIX_SORT.planner(PAIRS)
PORTION = (2**28 - 1) // SORT_TILE * SORT_TILE
LARGE = (PORTION, PORTION + 1, 2**28, 2**29 + 5, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**33 + 7)


@pytest.fixture
def radix_sort(specified):
    return specified(cupar.radix_sort, "u4", "u4", "f4", "f4", UP)


@pytest.mark.parametrize("n", [1, ONE - 1, ONE])
def test_a_radix_sort_of_a_tile(n, radix_sort):
    plan = RADIX(Bits(n, 3, 20, False))
    assert (plan.shape, plan.nbytes) == ("tile", 0)
    numbers = {"n": n, "begin": 3, "end": 20, "is_overwritten": 0}
    assert launches(radix_sort, plan) == [("tile", 1, numbers)]


@pytest.mark.parametrize("n", [ONE + 1, SORT_TILE, SORT_TILE + 1, 2**20 + 3, PORTION])
@pytest.mark.parametrize("is_overwritten", [False, True])
def test_a_radix_sort_by_all_bits_is_cubs(n, is_overwritten, radix_sort):
    plan = RADIX(Bits(n, 0, 32, is_overwritten))
    tiles = ceil(n / SORT_TILE)
    count = min(ceil(n / (128 * 16)), 8 * 132)
    found = launches(radix_sort, plan)
    assert [each[:2] for each in found] == [("init", 1), ("count", count), *[("digit", tiles)] * 4]
    shape = RADIX_SORT.shapes(radix_sort)[plan.shape]
    assert [each.parameters[-2].name for each in shape.launches[2:]] == [0, 1, 2, 3]
    # CUB has one look-back, which it zeroes before each pass.
    spare = 0 if is_overwritten else 2 * round_up(4 * n)
    assert plan.nbytes == 256 + 4 * 1024 + 2 * round_up(1024 * tiles) + spare
    assert {each["words"] for _, _, each in found} == {(256 + 4 * 1024) // 4}


@pytest.mark.parametrize("n", LARGE)
@pytest.mark.parametrize("bits", [(0, 32), (5, 14)])
def test_portions_of_a_radix_sort_cover_all_items(n, bits, radix_sort):
    plan = RADIX(Bits(n, *bits, False))
    tile, kind, offset_size = (SORT_TILE, "", 4) if n < 2**32 else (WIDE_TILE, "_wide", 8)
    passes, portions = ceil((bits[1] - bits[0]) / 8), ceil(n / ((2**28 - 1) // tile * tile))
    found = launches(radix_sort, plan)
    assert [each[0] for each in found] == ["init", f"count{kind}", *[f"digit{kind}"] * passes * portions]
    digits = found[2:]
    if "number" in digits[0][2]:
        order = [(each["number"], each["portion"]) for *_, each in digits]
        assert order == [(number, portion) for number in range(passes) for portion in range(portions)]
    for _, grid, each in digits:
        first = each.get("portion", 0) * each["portion_tiles"] * tile
        items = min(n - first, each["portion_tiles"] * tile)
        assert 0 < items < 2**28
        assert grid == ceil(items / tile)
        assert each["portion_tiles"] - grid < portions
    assert sum(grid for _, grid, _ in digits) == passes * ceil(n / tile)
    numbers = found[0][2]
    assert numbers["portions"] == portions
    # Every part is at least as large as what CUB's dispatch asks for, and ends before the next one begins.
    ends = [numbers[each] for each in ("bins", "lookback", "next", "keys", "values")] + [plan.nbytes]
    parts = [
        portions * passes * 256 * offset_size,
        numbers["portion_tiles"] * 1024,
        numbers["portion_tiles"] * 1024 * (passes * portions > 1),
        4 * n * (passes > 1),
        4 * n * (passes > 1),
    ]
    assert ends[0] >= 4 * (1 + passes * portions)
    assert [round_up(part) for part in parts] == [b - a for a, b in pairwise(ends)]
    assert 4 * numbers["words"] == ends[0] + passes * 256 * offset_size


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
        assert Bits(n, *bits, is_overwritten).is_in_output is is_in_output
    assert Bits(0, *bits, is_overwritten).is_in_output is not is_overwritten


def test_radix_sorts_without_bits_and_of_nothing(radix_sort):
    for problem in (Bits(0, 0, 32, False), Bits(0, 0, 32, True), Bits(10**6, 7, 7, True)):
        assert steps(RADIX(problem)) == []
    assert launches(radix_sort, RADIX(Bits(1000, 7, 7, False))) == [("copy", 4, {"n": 1000, "grid": 4})]
    assert launches(radix_sort, RADIX(Bits(2**33, 7, 7, False)))[0][1] == 8 * 132


def test_a_radix_sort_by_one_digit_needs_no_spare_array():
    plan = RADIX(Bits(10**6, 8, 16, False))
    assert plan.nbytes == 256 + 1024 + round_up(1024 * ceil(10**6 / SORT_TILE))


# --- Kernels ---------------------------------------------------------------------------------------------


def sizes_of_parameters(cubin):
    """Return the sizes of each kernel's parameters, as the code says (``EIATTR_KPARAM_INFO``)."""
    (at,) = struct.unpack_from("<Q", cubin, 40)
    each, count, names = struct.unpack_from("<HHH", cubin, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, at + i * each) for i in range(count)]
    found = {}
    for section in sections:
        start = sections[names][4] + section[0]
        name = cubin[start : cubin.index(b"\0", start)].decode()
        if not name.startswith(".nv.info."):
            continue
        at, end, sizes = section[4], section[4] + section[5], {}
        while at < end:
            form, attribute, length = struct.unpack_from("<BBH", cubin, at)
            at += 4
            if form == 4 and attribute == 0x17:
                _, ordinal, _, flags = struct.unpack_from("<IHHI", cubin, at)
                sizes[ordinal] = flags >> 18
            at += length if form == 4 else 0
        found[name.removeprefix(".nv.info.")] = [sizes[i] for i in sorted(sizes)]
    return found


def packed_sizes(launch, values):
    one_by_one = (replace(launch, grid=1, parameters=(each,)) for each in launch.parameters)
    return [struct.calcsize(launcher._packed(each, values).format) for each in one_by_one]


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
    "radix sort of keys": lambda: cupar.radix_sort("f2", "f2", None, None, cupar.SortOrder.DESCENDING, cc=CC),
    "radix sort of structs": lambda: cupar.radix_sort("?", "?", PEAK, PEAK, UP, cc=CC),
    "radix sort on an older device": lambda: cupar.radix_sort("i1", "i1", "c16", "c16", UP, cc=80),
}


@pytest.mark.slow
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_kernels_take_what_shapes_give(make):
    algorithm = make()
    spec = algorithm._spec
    expected = sizes_of_parameters(algorithm.cubin())
    values = launcher.Values.of(spec, [*spec.kind._uses])
    used = set()
    for shape in spec.kind._family.shapes(spec).values():
        for launch in shape.launches:
            used.add(launch.kernel)
            assert packed_sizes(launch, values) == expected[launch.kernel], launch.kernel
    assert used == expected.keys()
