"""Plans of copies of segments, and what their kernels hold."""

import pytest
from support.disassembly import instructions, kernels, spills_or_calls
from support.plans import Plan, planned

import cupar
from cupar._kernels.segmented_copy import SEGMENTED_COPY
from cupar._kernels.segments import SegmentsProblem

FACTS = {"threads": 256, "tile": 1024, "is_told": 0, "sms": 132, "shared_memory": 232448}

plan = planned(SEGMENTED_COPY, FACTS, lambda *_: 4)
MOST = 2**63 - 1


@pytest.mark.parametrize("segments", [1, 1023, 1024, 1025, 2**20, 2**33 - 1])
def test_groups_are_summed_up(segments):
    """By one kernel if there is one group; and then copied, by as many blocks as there may be work for."""
    for items in (0, 1, 8192, 8193, 2**30, 2**40):
        found = plan(SegmentsProblem(segments, items, MOST, 0))
        groups = -(-segments // 1024)
        begins = found.numbers[2]
        grid = 4 * 132 if items == 0 else min(4 * 132, -(-items // 8192))
        shape, nbytes = "few" if groups == 1 else "many", begins + 8 * (groups + 1)
        assert found == Plan(shape, nbytes, (segments, groups, begins, MOST, grid))
        assert begins >= 8 * segments and begins % 256 == 0


def test_nothing_is_launched_of_no_segments_but_to_tell_their_items():
    nothing = SegmentsProblem(0, 100, MOST, 0)
    assert plan(nothing) == Plan("", 0)
    telling = planned(SEGMENTED_COPY, FACTS | {"is_told": 1}, lambda *_: 4)
    assert telling(nothing) == Plan("few", 16, (0, 1, 0, MOST, 1))


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["u1", "c16"])
def test_kernels_neither_spill_nor_call(dtype, tmp_path):
    offsets = ("i8", "i8", "i8") if dtype == "u1" else ("i8", "i8")
    copy = cupar.segmented_copy(dtype, dtype, *offsets, cc=90)
    parts = ("", "_begins", "_ends")
    assert sorted(kernels(copy, tmp_path)) == [f"cupar_segmented_copy{each}" for each in parts]
    assert spills_or_calls(copy, tmp_path) == []
    assert any(each.startswith("LDG.E.EF.128") for each in instructions(copy, tmp_path))
