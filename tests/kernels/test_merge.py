"""Plans of merges against what CUB's dispatch would do, and what their kernels hold."""

import numpy as np
import pytest
from support.disassembly import instructions, kernels, spills_or_calls
from support.plans import Plan, planned
from support.templates import compiled, properties

import cupar
from cupar import OpKind
from cupar._kernels.merge import MERGE, MergeProblem

CC = 90
TILE = 512 * 15
FACTS = {"threads": 512, "tile": TILE, "sms": 132, "shared_memory": 232448}

plan = planned(MERGE, FACTS, lambda *_: 1)


def ranges(count1, count2):
    return MergeProblem(count1, count2, count1 + count2)


@pytest.mark.parametrize("n", [1, 2, TILE - 1, TILE])
def test_one_tile_is_one_launch_without_storage(n):
    for count1 in {0, 1, n}:
        assert plan(ranges(count1, n - count1)) == Plan("tile", 0, (count1, n - count1))


@pytest.mark.parametrize("n", [TILE + 1, 2 * TILE, 9 * TILE + 1, 255 * TILE, 2**31, 2**32 + 1, 2**40])
def test_tiles_are_cubs(n):
    for count1 in (0, 1, n // 3, n):
        found = plan(ranges(count1, n - count1))
        tiles = -(-n // TILE)
        assert found.shape == "tiles" and found.nbytes == 8 * (tiles + 1)
        assert found.numbers == (count1, n - count1, tiles, tiles + 1, -(-(tiles + 1) // 256))


def test_a_merge_of_nothing():
    assert plan(ranges(0, 0)) == Plan("", 0)


def struct(kind, count):
    return np.dtype([(f"x{i}", kind) for i in range(count)], align=True)


def merge(keys, items=None, op=OpKind.LESS, cc=CC):
    return cupar.merge(keys, items, keys, items, keys, items, op, cc=cc)


def first_field(a, b):
    return a.x0 < b.x0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "items", "cc", "tile"),
    [
        ("i4", None, 90, 512 * 15),
        ("i4", "i4", 80, 512 * 7),
        ("f8", "u1", 75, 512 * 6),
        (struct("f8", 2), "i4", 100, 512 * 3),
        (struct("c16", 32), None, 90, 64),  # of 512 bytes: more than CUB's 64 threads of one item each
        (struct("c16", 80), struct("u1", 3), 90, 32),
    ],
)
def test_a_tile_is_cubs_or_as_large_as_shared_memory_allows(keys, items, cc, tile):
    op = first_field if isinstance(keys, np.dtype) else OpKind.LESS
    threads, items_of_tile = properties(MERGE)
    truths = f"{items_of_tile} == {tile}", f"{threads} == 512 || {threads} == {tile}"
    compiled(lambda: merge(keys, items, op, cc), cc, lambda _: truths)


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize(("keys", "items"), [("i4", None), ("i4", "f4"), ("i8", None), ("f8", "i8")])
def test_kernels_neither_spill_nor_call(keys, items, tmp_path):
    built = merge(keys, items)
    assert sorted(kernels(built, tmp_path)) == ["cupar_merge_partition", "cupar_merge_tiles"]
    assert spills_or_calls(built, tmp_path) == []


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_arrays_of_words_are_copied_to_shared_memory_in_bulk(tmp_path):
    """As CUB does it from compute capability 9.0 on; iterators cannot be."""
    counting = cupar.CountingIterator(np.int32(0))
    from_iterators = cupar.merge(counting, None, counting, None, "i4", None, cc=CC)
    found = ["UBLKCP" in {each.split(".")[0] for each in instructions(built, tmp_path)}
             for built in (merge("i4"), from_iterators)]  # fmt: skip
    assert found == [True, False]
