"""Plans and builds of scans, without a GPU: what CUB's dispatch would launch, and which kernels there are."""

import numpy as np
import pytest
from support.common import stored_properties
from support.disassembly import spills_or_calls
from support.plans import planned

import cupar
from cupar._functions.axes import AxisLayout
from cupar._functions.recurrences import gradient_scan
from cupar._kernels import policies
from cupar._kernels.family import aligned
from cupar._kernels.scan import SCAN

SMS, OPTIN = 132, 232448
# Of float32 as the builds below have them: on sm_90, and of CUB's kernel that looks ahead on sm_100.
BACK = {"threads": 128, "items": 24, "state": 8, "payload": 0}
STAGED = {
    **BACK,
    **{"cc": 90, "arrays": 1, "item": 4, "ahead_threads": 608, "ahead_tile": 7936, "ahead_state": 8},
    "shared_1": 197760,
}
STAGES = [32896, 65720, 98576, 131432, 164288, 197144, 230000, 262856]
AHEAD = {
    **STAGED,
    **{"cc": 100, "ahead_threads": 224, "ahead_tile": 8128},
    **{f"shared_{k}": size for k, size in enumerate(STAGES, 1)},
}
TILE = 128 * 24


def planner(facts, **more):
    occupancy = lambda kernel, threads, shared: int(shared <= OPTIN)
    return planned(SCAN, {**facts, "sms": SMS, "shared_memory": OPTIN, **more}, occupancy)


def test_no_items_launch_nothing():
    assert planner(BACK)(0)[:2] == ("", 0)


@pytest.mark.parametrize("n", [1, TILE - 1, TILE])
def test_a_tile_needs_no_storage(n):
    assert planner(BACK)(n)[:2] == ("tile", 0)


@pytest.mark.parametrize("n", [TILE + 1, 2 * TILE, 2**20 + 3, 2**31 + 1, 2**32 + 5, 2**34])
@pytest.mark.parametrize("payload", [0, 16])
def test_tiles_that_look_back(n, payload):
    """CUB's grid, and its ``ScanTileState::AllocationSize`` with 32 states more than tiles."""
    shape, nbytes, (items, tiles, clearing) = planner({**BACK, "payload": payload})(n)
    assert (shape, items, tiles) == ("tiles", n, -(-n // TILE))
    states = tiles + 32
    assert nbytes == aligned(states * 8) + 2 * aligned(states * payload)
    assert (clearing - 1) * 128 < tiles <= clearing * 128


def test_large_problems_are_staged():
    plan, least = planner(STAGED), policies.SCAN_STAGED_BYTES.get(90, 1, 4) // 4
    assert [plan(n).shape for n in (TILE, least - 1, least, 2**33)] == ["tile", "tiles", "staged", "staged"]


def test_tuples_of_arrays_are_staged_from_a_tile_on():
    plan = planner({**STAGED, "arrays": 2, "item": 8})
    assert [plan(n).shape for n in (TILE, TILE + 1)] == ["tile", "staged"]


@pytest.mark.parametrize("n", [2**20 + 1, 2**26, 2**31 + 1, 2**32 + 5, 2**34])
def test_blocks_that_stage_tiles(n):
    """A block on each multiprocessor; 16 bytes for the counter, and what each tile publishes."""
    shape, nbytes, (items, tiles, words, clearing, grid) = planner(STAGED)(n)
    assert (shape, items, tiles, grid) == ("staged", n, -(-n // 7936), min(SMS, tiles))
    assert nbytes == 16 * words and 16 + 8 * tiles <= nbytes < 16 + 8 * tiles + 16
    assert (clearing - 1) * 256 < words <= clearing * 256


def test_a_card_that_runs_no_such_block_looks_back():
    plan = planned(SCAN, {**STAGED, "sms": SMS, "shared_memory": 99 << 10}, lambda *_: 0)
    assert plan(2**28).shape == "tiles"


@pytest.mark.parametrize("n", [2**16, 2**26, 2**28, 2**31 + 1, 2**32 + 5, 2**34])
def test_blocks_that_look_ahead(n):
    """As CUB launches them: a block for each tile, with the stages that its shared memory holds."""
    shape, nbytes, numbers = planner(AHEAD)(n)
    items, tiles, clearing, counter, grid, stages, shared = numbers
    assert (shape, items, tiles, grid) == ("ahead", n, -(-n // 8128), tiles)
    assert (counter, nbytes) == (aligned(tiles * 8), aligned(tiles * 8) + 256)
    assert (clearing - 1) * 128 < tiles <= clearing * 128
    most = -(-n // (SMS * 8128)) + 2
    assert (stages, shared) == (min(7, most), STAGES[min(7, most) - 1])


def test_scans_of_90_have_one_tier():
    assert cupar.inclusive_scan("f4", "f4", cupar.OpKind.PLUS, cc=90).build.tier == "fast"


def test_the_properties_are_those_of_the_code():
    scan = cupar.inclusive_scan("f4", "f4", lambda a, b: a + b, cc=90)
    facts = stored_properties(scan)
    assert facts == STAGED
    assert b"cupar_scan_tiles" in scan.cubin()


@pytest.mark.usefixtures("optimised")
def test_gradients_of_recurrences_are_one_staged_scan_without_spills(tmp_path):
    f4 = np.dtype("f4")
    items, written, op = gradient_scan(f4, f4, f4, f4, f4, AxisLayout(1, 16, 1), False)
    scan = cupar.inclusive_scan(items, written, op, None, cc=90)
    facts = stored_properties(scan)
    assert (facts["arrays"], facts["item"]) == (3, 12) and facts["ahead_tile"] > 0
    assert not spills_or_calls(scan, tmp_path)


LARGE = np.dtype([(f"x{i}", "f8") for i in range(60)])


@pytest.mark.usefixtures("optimised")
def test_large_values_are_written_out_once():
    """CUB's agent has 600 KB of code for them, which took 10 s to link."""
    scan = cupar.inclusive_scan(LARGE, LARGE, lambda a, b: b, None, cc=80)
    assert stored_properties(scan) == {"threads": 128, "items": 8, "state": 2 * 640, "payload": 0}
    assert scan.build.cubin_size < 128 << 10
    assert str(scan.build.policy) == "threads=128 items=8 (cupar)"  # no selector of CUB's has chosen it
