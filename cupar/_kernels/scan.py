"""Plans of scans: of one block, of one for each tile, or of one for each multiprocessor.

Blocks that stay on a multiprocessor look ahead: those of `scan_staged.cuh`, for which there are policies, and
CUB's, which its selector chooses from compute capability 10.0 on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import policies
from .family import (
    Emit,
    Family,
    Launch,
    Plan,
    Properties,
    Shape,
    Storage,
    Value,
    accumulator,
    aligned,
    helper,
    i32,
    kind_of_init,
    members,
    prefixed,
    u32,
    u64,
)
from .tuning import Tunable, combined_types

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_IN, _OUT, _OP, _INIT = map(Value, ("d_in", "d_out", "op", "init"))

_PADDING = 32  # states before those of tiles, so that a warp may look back on tiles that are not there
_CLEARED = 128  # states that a block clears
CLEAR_THREADS = 256  # of a block that clears what tiles publish; each clears 16 bytes

_NAMES = ("tile", "tiles", "ahead", "staged")
_TILE, _TILES, _AHEAD, _STAGED = range(4)


def _looking_back(grid: str | int, *clearing: Launch) -> Shape:
    parameters = (_IN, _OUT, Storage(), i32("tiles"), u64("n"), _OP, _INIT)
    tiles = Launch("cupar_scan_tiles", grid, "threads", parameters)
    return Shape(("n", "tiles", "clear_grid"), (*clearing, tiles))


# A single tile needs no states, and so none cleared.
_LOOKING_BACK = {
    "tile": _looking_back(1),
    "tiles": _looking_back(
        "tiles", Launch("cupar_scan_clear", "clear_grid", _CLEARED, (Storage(), i32("tiles")))
    ),
}

_LOOKING_AHEAD = {
    **_LOOKING_BACK,
    "ahead": Shape(
        ("n", "tiles", "clear_grid", "counter", "grid", "stages", "shared"),
        (
            Launch(
                "cupar_scan_clear_ahead",
                "clear_grid",
                _CLEARED,
                (Storage(), i32("tiles"), Storage("counter")),
            ),
            Launch(
                "cupar_scan_ahead",
                "grid",
                "ahead_threads",
                (_IN, _OUT, Storage(), Storage("counter"), u64("n"), i32("stages"), _OP, _INIT),
                "shared",
            ),
        ),
    ),
}

_LOOKING_AHEAD_STAGED = {
    **_LOOKING_BACK,
    "staged": Shape(
        ("n", "tiles", "words", "clear_grid", "grid"),
        (
            Launch("cupar_scan_clear_staged", "clear_grid", CLEAR_THREADS, (Storage(), u32("words"))),
            Launch(
                "cupar_scan_staged",
                "grid",
                "ahead_threads",
                (_IN, _OUT, Storage(), u32("tiles"), u64("n"), _OP, _INIT),
                "shared_1",
            ),
        ),
    ),
}

_MOST_STAGES = 8  # whose shared memory the source tells
_AHEAD_IN_CUB = 100  # the compute capability from which on CUB's selector has scans look ahead
_LARGE_BYTES = 256  # of accumulators; larger ones are `is_large` in common/combining.cuh
_MOST_BYTES = 32  # of accumulators and of the arrays' items: of larger ones, too few fit into a slot


def array_bytes(spec: Specialisation) -> int:
    """Return the bytes that an item takes in the arrays of the input."""
    return sum(slot.dtype.itemsize for slot in spec.arguments[0].node.slots() if slot.dtype is not None)


def _may_be_staged(spec: Specialisation) -> bool:
    """Whether input and output go through arrays, on GPUs with bulk copies."""
    return (
        spec.cc >= 90
        and all(each.node.streams for each in spec.arguments)
        and 0 < array_bytes(spec) <= _MOST_BYTES
        and spec.operators[0][1].output.itemsize <= _MOST_BYTES
    )


def staged_policy(spec: Specialisation) -> policies.StagedScanPolicy | None:
    """Return how a scan is staged; None where it is not."""
    if not _may_be_staged(spec):
        return None
    return policies.SCAN.find(spec.cc, min(1 << (array_bytes(spec) - 1).bit_length(), 16))


def _is_staged(spec: Specialisation) -> bool:
    return _may_be_staged(spec) and (spec.option("policy") is not None or staged_policy(spec) is not None)


def _is_cubs(spec: Specialisation) -> bool:
    """Whether CUB's selector decides about looking ahead."""
    are_arrays = all(each.is_pointer for each in spec.arguments)
    return spec.cc >= _AHEAD_IN_CUB and are_arrays and not _is_staged(spec) and not _is_large(spec)


def _is_large(spec: Specialisation) -> bool:
    return spec.operators[0][1].output.itemsize > _LARGE_BYTES


def _source(spec: Specialisation) -> str:
    if _is_staged(spec):
        return "scan/scan_staged.cuh"
    if _is_large(spec):
        return "scan/scan_large.cuh"
    is_fast = _is_cubs(spec) and spec.option("tier") != "quick"
    return "scan/scan_fast.cuh" if is_fast else "scan/scan_quick.cuh"


_SHAPES = {
    "scan/scan_staged.cuh": _LOOKING_AHEAD_STAGED,
    "scan/scan_fast.cuh": _LOOKING_AHEAD,
    "scan/scan_large.cuh": _LOOKING_BACK,
    "scan/scan_quick.cuh": _LOOKING_BACK,
}


def _space(spec: Specialisation) -> Mapping[str, tuple[int, ...]]:
    if not _may_be_staged(spec):
        return {}
    sizes = tuple(kbytes << 10 for kbytes in (12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 56, 64))
    return {"warps": (4, 6, 8, 10), "nbytes": sizes, "slots": (3, 4, 5, 6, 8)}


_TUNABLE = Tunable("scan", policies.StagedScanPolicy, staged_policy, combined_types, _space)


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    return _SHAPES[_source(spec)]


@helper
def staged_words(tiles: int, known_size: int) -> int:
    """Return the words of 16 bytes for a counter, and for the states that tiles publish."""
    return 1 + -(-(tiles * known_size) // 16)


_NEVER = 2**62  # items


def _planner(given: Properties) -> tuple[Plan, Any]:
    back = (given["threads"] * given["items"], given["state"], given["payload"])
    tile, state = given.get("ahead_tile", 0), given.get("ahead_state", 0)
    if not tile:  # CUB's selector may have said no, or a slot be too large
        return _plan, (*back, _NEVER, 0, 1, 0, 0, 0, 0, (0,) * _MOST_STAGES)
    shared = tuple(given.get(f"shared_{stages}", 0) for stages in range(1, _MOST_STAGES + 1))
    is_staged, threads, sms = "shared_2" not in given, given["ahead_threads"], given["sms"]
    if is_staged:
        blocks = given.resident("cupar_scan_staged", threads, shared[0])
        least = policies.SCAN_STAGED_BYTES.find(given["cc"], given["arrays"], given["item"]) or 0
        least = least // given["item"] if blocks else _NEVER
        return _plan, (*back, least, 1, tile, state, sms, blocks, 0, shared)
    stages = sum(given.occupancy("cupar_scan_ahead", threads, each) > 0 for each in shared)
    # The grid is not limited: each tile has a block.
    return _plan, (*back, 0, 0, tile, state, sms, _NEVER, stages, shared)


def _plan(facts: Any, n: int, emit: Emit) -> int:
    tile, state, payload, least_ahead, is_staged, ahead_tile, ahead_state, sms, blocks, most, shared = facts
    if n <= tile:
        if n:
            emit(_TILE, (n, 1, 0))
        return 0
    if n < least_ahead:
        tiles = -(-n // tile)
        emit(_TILES, (n, tiles, -(-tiles // _CLEARED)))
        states = tiles + _PADDING
        # Of each tile: its state, its aggregate, and its inclusive prefix.
        return aligned(states * state) + 2 * aligned(states * payload)
    tiles = -(-n // ahead_tile)
    if is_staged:
        words = staged_words(tiles, ahead_state)
        emit(_STAGED, (n, tiles, words, -(-words // CLEAR_THREADS), min(blocks, tiles)))
        return words * 16
    counter = aligned(tiles * ahead_state)
    # As many stages as a block has tiles, and one more, as in CUB.
    stages = max(1, min(most, -(-n // (sms * ahead_tile)) + 2))
    clear_grid = -(-tiles // _CLEARED)
    emit(_AHEAD, (n, tiles, clear_grid, counter, min(blocks, tiles), stages, shared[stages - 1]))
    return counter + 256


def _traits(spec: Specialisation) -> str:
    is_inclusive = spec.algorithm == "inclusive_scan"
    staged = prefixed("staged_", _TUNABLE.given(spec)) if _is_staged(spec) else {}
    return members(accumulator(spec), is_inclusive=is_inclusive, **kind_of_init(spec), **staged)


_PROPERTIES = (
    *("threads", "items", "state", "payload"),  # of looking back
    *("cc", "arrays", "item", "ahead_threads", "ahead_tile", "ahead_state"),
    *(f"shared_{stages}" for stages in range(1, _MOST_STAGES + 1)),
)

SCAN = Family(
    _source,
    _PROPERTIES,
    _NAMES,
    _shapes,
    _planner,
    _traits,
    has_quick_tier=_is_cubs,
    tunable=_TUNABLE,
)
