"""Searches for the first match: plans by size, and the machine code of kernels."""

import numpy as np
import pytest
from support.disassembly import instructions, kernels, spills_or_calls
from support.plans import Plan, planned

import cupar
from cupar._kernels.find import FIND

CC, TILE, AT_ONCE = 90, 4096, 132 * 6
plan = planned(FIND, {"threads": 256, "tile": TILE, "sms": 132, "shared_memory": 232448}, lambda *_: 6)


@pytest.mark.parametrize("n", [0, 1, TILE, 4 * TILE])
def test_few_items_are_one_blocks(n):
    assert plan(n) == Plan("block", 0, (n,))


@pytest.mark.parametrize("n", [4 * TILE + 1, 5 * TILE, AT_ONCE * TILE, 2**31, 2**32 + 1, 2**40])
def test_many_have_as_many_blocks_as_run_at_once(n):
    assert plan(n) == Plan("grid", 16, (n, min(AT_ONCE, -(-n // TILE))))


def differ(s):
    return s[0] != s[1]


def is_one(a):
    return a == 1


class Pair:
    """Two arrays on a GPU that is not there, of which the second begins elsewhere in a vector."""

    def __init__(self, dtype, address=4096):
        self.__cuda_array_interface__ = {
            "shape": (1 << 20,), "typestr": np.dtype(dtype).str, "data": (address, False), "version": 3,
        }  # fmt: skip


PAIRS = cupar.ZipIterator(Pair("f4"), Pair("f4", 4100))


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("items", "cond", "loads"), [("f4", is_one, 2), ("u1", is_one, 4), (PAIRS, differ, 4)]
)
def test_a_thread_loads_all_vectors_of_a_tile_at_once(items, cond, loads, tmp_path):
    built = cupar.find_if(items, "i8", cond, cc=CC)
    assert sorted(kernels(built, tmp_path)) == ["cupar_find", "cupar_find_init"]
    assert spills_or_calls(built, tmp_path) == []
    names = instructions(built, tmp_path)
    assert sum(each.startswith("LDG.E.128") for each in names) == loads
    # One atomic operation for what a block found, and one for that it has ended: no thread has its own.
    assert [each[:9] for each in names].count("ATOMG.E.M") == 1
