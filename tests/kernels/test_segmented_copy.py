"""Plans of copies of segments, and what their kernels hold."""

import pytest
from support.disassembly import instructions, kernels, spills_or_calls
from support.plans import Plan, planned

import cupar
from cupar._kernels.segmented_copy import SEGMENTED_COPY
from cupar._kernels.segments import SegmentsProblem

FACTS = {"threads": 256, "tile": 1024, "sms": 132, "shared_memory": 232448}

plan = planned(SEGMENTED_COPY, FACTS, lambda *_: 4)


@pytest.mark.parametrize("segments", [1, 1023, 1024, 1025, 2**20, 2**33 - 1])
def test_groups_are_summed_up(segments):
    """By one kernel if there is one group; and then copied, by as many blocks as there may be work for."""
    for items in (0, 1, 8192, 8193, 2**30, 2**40):
        found = plan(SegmentsProblem(segments, items, 0, 0))
        groups = -(-segments // 1024)
        _, _, begins, _ = found.numbers
        grid = 4 * 132 if items == 0 else min(4 * 132, -(-items // 8192))
        shape, nbytes = "few" if groups == 1 else "many", begins + 8 * (groups + 1)
        assert found == Plan(shape, nbytes, (segments, groups, begins, grid))
        assert begins >= 8 * segments and begins % 256 == 0


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["u1", "c16"])
def test_kernels_neither_spill_nor_call(dtype, tmp_path):
    copy = cupar.segmented_copy(dtype, dtype, "i8", "i8", "i8", cc=90)
    parts = ("", "_begins", "_ends")
    assert sorted(kernels(copy, tmp_path)) == [f"cupar_segmented_copy{each}" for each in parts]
    assert spills_or_calls(copy, tmp_path) == []
    assert any(each.startswith("LDG.E.EF.128") for each in instructions(copy, tmp_path))
