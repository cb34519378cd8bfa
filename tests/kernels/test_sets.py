"""Plans of sets, and what their kernels hold."""

import numpy as np
import pytest
from support.disassembly import instructions, kernels, spills_or_calls
from support.plans import Plan, planned
from support.templates import compiled, properties

import cupar
from cupar import OpKind
from cupar._base.errors import BuildError
from cupar._kernels.merge import MergeProblem
from cupar._kernels.sets import OPERATIONS, SETS

CC = 90
TILE = 256 * 16 - 1
FACTS = {"threads": 256, "tile": TILE, "shared": 41_056, "sms": 132, "shared_memory": 232448}

plan = planned(SETS, FACTS, lambda *_: 2)


def ranges(count1, count2):
    return MergeProblem(count1, count2, count1 + count2)


@pytest.mark.parametrize("n", [0, 1, 2, TILE - 1, TILE])
def test_one_tile_is_one_launch_without_storage(n):
    """Of nothing, too: the count is written."""
    for count1 in {0, n // 2, n}:
        assert plan(ranges(count1, n - count1)) == Plan("block", 0, (count1, n - count1))


@pytest.mark.parametrize("n", [TILE + 1, 2 * TILE, 9 * TILE + 1, 264 * TILE, 2**31, 2**32 + 1, 2**40])
def test_tiles_are_cut_before_blocks_take_them(n):
    for count1 in (0, 1, n // 3, n):
        found = plan(ranges(count1, n - count1))
        tiles = -(-n // TILE)
        cuts = found.numbers[3]
        assert cuts % 256 == 0 and cuts >= 128 + 8 * (tiles + 1)  # behind the counter and the states
        assert found.shape == "grid" and found.nbytes == cuts + 16 * (tiles + 1)
        grids = -(-(tiles + 1) // 64), min(tiles, 2 * 132)
        assert found.numbers == (count1, n - count1, tiles, cuts, *grids)


def struct(kind, count):
    return np.dtype([(f"x{i}", kind) for i in range(count)], align=True)


def built(operation, keys, items=None, cc=CC):
    op = (lambda a, b: a.x0 < b.x0) if isinstance(keys, np.dtype) else OpKind.LESS
    second = items if operation in ("set_union", "set_symmetric_difference") else None
    return getattr(cupar, operation)(keys, items, keys, second, keys, items, "i8", op, cc=cc)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "items", "cc"),
    [
        ("u1", None, 90),
        ("i4", "i8", 75),
        (struct("f4", 3), struct("u1", 3), 90),
        (struct("c16", 32), None, 90),  # of 512 bytes
        (struct("f8", 32), "c16", 90),
    ],
)
def test_tiles_fit_into_shared_memory(keys, items, cc):
    threads, tile, shared = properties(SETS)
    yields = f"{threads} % 32 == 0", f"({tile} + 1) % ({threads} - 32) == 0"
    fits = f"{shared} <= {64 << 10 if cc == 75 else 99 << 10}"
    compiled(lambda: built("set_union", keys, items, cc), cc, lambda _: (*yields, fits))


def test_items_that_no_tile_holds_are_refused():
    with pytest.raises(BuildError, match=r"d_in_keys1 .*520.* too large for set_difference, which takes 512"):
        built("set_difference", struct("f8", 65))


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
def test_kernels_neither_spill_nor_call(operation, tmp_path):
    found = built(operation, "i4", "i4")
    assert sorted(kernels(found, tmp_path)) == ["cupar_sets", "cupar_sets_cut"]
    assert spills_or_calls(found, tmp_path) == []


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_arrays_are_copied_in_bulk_and_iterators_read_by_threads(tmp_path):
    counting = cupar.CountingIterator(np.int32(0))
    for keys, is_bulk in (("i4", True), (counting, False)):
        found = cupar.set_union(keys, None, keys, None, "i4", None, "i8", cc=CC)
        assert spills_or_calls(found, tmp_path) == []
        assert ("UBLKCP" in {each.split(".")[0] for each in instructions(found, tmp_path)}) == is_bulk
