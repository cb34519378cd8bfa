"""Plans and builds of scans, without a GPU: what CUB's dispatch would launch, and which kernels there are."""

import numpy as np
import pytest
from support.plans import planned

import cupar
from cupar._kernels import policies
from cupar._kernels.family import aligned
from cupar._kernels.image import Image
from cupar._kernels.scan import SCAN

SMS, OPTIN = 132, 232448
# Of float32 on sm_90, as the build below has them.
BACK = {"threads": 128, "items": 24, "state": 8, "payload": 0}
STAGES = [32896, 65720, 98576, 131432, 164288, 197144, 230000, 262856]
AHEAD = {
    **BACK,
    "cc": 90,
    "item": 4,
    "ahead_threads": 224,
    "ahead_tile": 8128,
    "ahead_state": 8,
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


def test_large_problems_look_ahead():
    plan, least = planner(AHEAD), policies.SCAN_AHEAD_BYTES.get(90, 4) // 4
    assert [plan(n).shape for n in (TILE, least - 1, least, 2**33)] == ["tile", "tiles", "ahead", "ahead"]


@pytest.mark.parametrize("n", [2**26, 2**28, 2**31 + 1, 2**32 + 5, 2**34])
def test_blocks_that_look_ahead(n):
    """As CUB launches them: a block on each multiprocessor, with the stages that its shared memory holds."""
    shape, nbytes, numbers = planner(AHEAD)(n)
    items, tiles, clearing, counter, grid, stages, shared = numbers
    assert (shape, items, tiles, grid) == ("ahead", n, -(-n // 8128), SMS)
    assert (counter, nbytes) == (aligned(tiles * 8), aligned(tiles * 8) + 256)
    assert (clearing - 1) * 128 < tiles <= clearing * 128
    most = -(-n // (SMS * 8128)) + 2
    assert (stages, shared) == (min(7, most), STAGES[min(7, most) - 1])


def test_later_gpus_have_a_block_for_each_tile():
    _, tiles, _, _, grid, _, _ = planner(AHEAD, cc=100)(2**28).numbers
    assert grid == tiles


def test_what_looks_ahead():
    """Arrays whose items are of one size, on GPUs with bulk copies; the rest looks back."""

    def may(d_in, d_out, cc=90, op=cupar.OpKind.PLUS):
        seen = []

        class Observer:
            is_ahead, cc = True, None

            def ask(self, spec, answer):
                seen.append(spec)
                return answer

        from cupar._obtain import obtain

        before, obtain.observer = obtain.observer, Observer()
        try:
            cupar.inclusive_scan(d_in, d_out, op, cc=cc)
        except AttributeError:  # what the observer returned is no algorithm
            pass
        finally:
            obtain.observer = before
        return SCAN.has_quick_tier(seen[0])

    assert may("f4", "f4")
    assert may("c16", "c16")
    assert not may("f4", "f4", cc=80)
    assert not may("f4", "f8")
    assert not may("?", "?", op=cupar.OpKind.LOGICAL_OR)
    assert not may(cupar.CountingIterator(np.int32(0)), "i4")


def test_the_facts_are_those_of_the_code():
    scan = cupar.inclusive_scan("f4", "f4", lambda a, b: a + b, cc=90)
    facts = Image.loads(scan._code._blob).facts
    assert facts == (AHEAD if "ahead_tile" in facts else BACK)
    assert b"cupar_scan_tiles" in scan.cubin()
