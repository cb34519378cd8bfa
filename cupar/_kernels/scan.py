"""Plans of scans: of one block, of one for each tile, or of one for each multiprocessor that looks ahead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .. import structs
from .._ir import cpp
from . import policies
from .family import Emit, Family, Launch, Plan, Properties, Shape, Storage, Value, aligned, i32, u64
from .tuning import Tunable, operator_class, type_text, types

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_IN, _OUT, _OP, _INIT = map(Value, ("d_in", "d_out", "op", "init"))

_PADDING = 32  # states before those of tiles, so that a warp may look back on tiles that are not there
_CLEARED = 128  # states that a block clears

_NAMES = ("tile", "tiles", "ahead")
_TILE, _TILES, _AHEAD = range(3)


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

_MOST_STAGES = 8  # whose shared memory the source tells
_AHEAD_IN_CUB = 100  # the compute capability from which on CUB's selector has scans look ahead


def _has_policies(spec: Specialisation) -> bool:
    """Whether there may be policies of looking ahead: for arrays, on GPUs with bulk copies."""
    d_in, d_out = (each.value for each in spec.arguments)
    accumulator = spec.operators[0][1].output
    # They were measured where the output takes the input's place in a stage. They fit no bools, and structs
    # spill.
    return (
        spec.cc >= 90
        and all(each.is_pointer for each in spec.arguments)
        and d_in.itemsize == d_out.itemsize == accumulator.itemsize
        and structs.kind_of(accumulator) not in "bV"
    )


def _may_look_ahead(spec: Specialisation) -> bool:
    """Whether it is to look ahead, once the kernels that do are linked; CUB's selector may say no then."""
    if spec.cc >= _AHEAD_IN_CUB:
        return all(each.is_pointer for each in spec.arguments)
    return _has_policies(spec) and (spec.option("policy") is not None or _default(spec) is not None)


def _looks_ahead(spec: Specialisation) -> bool:
    return _may_look_ahead(spec) and spec.option("tier") != "quick"


def _default(spec: Specialisation) -> policies.Lookahead | None:
    """Return how it looks ahead, None where CUB's selector says whether it does, and how."""
    accumulator = spec.operators[0][1].output
    if not _has_policies(spec):
        return None
    size, table = accumulator.itemsize, policies.SCAN
    of_kind = table.find(spec.cc, size, "c") if accumulator.kind == "c" else None
    return of_kind or table.find(spec.cc, size, "")


_MOST_STAGE_BYTES = 48 << 10  # of a tile


def _space(spec: Specialisation) -> Mapping[str, tuple[int, ...]]:
    if not _has_policies(spec):
        return {}
    # Odd numbers of items, so that lanes read from different banks.
    items = (15, 23, 31, 43, 55, 63, 79, 91, 103, 111, 127, 143, 159, 175, 191, 223)
    return {"warps": (1, 2, 3, 4, 6, 8), "items": items, "states": (2, 4, 8)}


def _fits(spec: Specialisation, policy: policies.Lookahead) -> bool:
    nbytes = spec.arguments[0].value.itemsize
    return policy.warps * 32 * policy.items * nbytes <= _MOST_STAGE_BYTES


def _facts_of(spec: Specialisation) -> dict[str, str]:
    op = spec.operators[0][1]
    return {**types(spec), "accumulator": type_text(op.output), "operator": operator_class(op)}


_TUNABLE = Tunable("scan", policies.Lookahead, _default, _facts_of, _space, _fits)


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    return _LOOKING_AHEAD if _looks_ahead(spec) else _LOOKING_BACK


_NEVER = 2**62  # items


def _planner(given: Properties) -> tuple[Plan, Any]:
    back = (given["threads"] * given["items"], given["state"], given["payload"])
    if not given.get("ahead_tile"):  # CUB's selector may have said no
        return _plan, (*back, _NEVER, 1, 0, 0, 0, 0, (0,) * _MOST_STAGES)
    shared = tuple(given[f"shared_{stages}"] for stages in range(1, _MOST_STAGES + 1))
    stages = sum(given.occupancy("cupar_scan_ahead", given["ahead_threads"], each) > 0 for each in shared)
    least = (policies.SCAN_AHEAD_BYTES.find(given["cc"], given["item"]) or 0) // given["item"]
    # From compute capability 10.0 on, blocks that run take the places of those that do not yet.
    sms = given["sms"]
    blocks = sms if given["cc"] < _AHEAD_IN_CUB else _NEVER
    return _plan, (*back, least, given["ahead_tile"], given["ahead_state"], sms, blocks, stages, shared)


def _plan(facts: Any, n: int, emit: Emit) -> int:
    tile, state, payload, least_ahead, ahead_tile, ahead_state, sms, blocks, most_stages, shared = facts
    if n <= tile:
        if n:
            emit(_TILE, (n, 1, 0))
        return 0
    if n < least_ahead:
        tiles = -(-n // tile)
        emit(_TILES, (n, tiles, -(-tiles // _CLEARED)))
        states = tiles + _PADDING
        # For the states, and for what a tile reduces to by itself and with those before it.
        return aligned(states * state) + 2 * aligned(states * payload)
    tiles = -(-n // ahead_tile)
    counter = aligned(tiles * ahead_state)
    # So many stages that all blocks have as much to do, and one more, as CUB has it.
    stages = max(1, min(most_stages, -(-n // (sms * ahead_tile)) + 2))
    clear_grid = -(-tiles // _CLEARED)
    emit(_AHEAD, (n, tiles, clear_grid, counter, min(blocks, tiles), stages, shared[stages - 1]))
    return counter + 256


def _traits(spec: Specialisation) -> str:
    accumulator, init = spec.operators[0][1].output, spec.option("init")
    constants = {
        "is_inclusive": spec.algorithm == "inclusive_scan",
        "init_is_value": init == "value",
        "init_is_on_device": init == "device",
    }
    lines = [f"using accum_t = {cpp.type_name(accumulator)};"]
    lines += [f"static constexpr bool {name} = {str(value).lower()};" for name, value in constants.items()]
    if _looks_ahead(spec):
        policy = _TUNABLE.given(spec)._asdict().items()
        lines += [f"static constexpr int ahead_{name} = {value};" for name, value in policy]
    return "\n".join(lines)


_QUICK_FACTS = ("threads", "items", "state", "payload")  # of looking back
_FACTS = (
    *_QUICK_FACTS,
    "cc",
    "item",
    "ahead_threads",
    "ahead_tile",
    "ahead_state",
    *(f"shared_{stages}" for stages in range(1, _MOST_STAGES + 1)),
)

SCAN = Family(
    lambda spec: "scan/scan_fast.cuh" if _looks_ahead(spec) else "scan/scan_quick.cuh",
    _FACTS,
    _NAMES,
    _shapes,
    _planner,
    _traits,
    has_quick_tier=_may_look_ahead,
    tunable=_TUNABLE,
)
