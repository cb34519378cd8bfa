"""Plans of scans: of one block, of one for each tile, or of one for each multiprocessor that looks ahead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .. import structs
from .._ir import cpp
from . import policies
from .family import Facts, Family, Launch, PlanTuple, Shape, Storage, Value, ceil_div, i32, u64
from .tuning import Tunable, operator_class, type_text, types

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_IN, _OUT, _OP, _INIT = map(Value, ("d_in", "d_out", "op", "init"))

_PADDING = 32  # states before those of tiles, so that a warp may look back on tiles that are not there
_CLEARED = 128  # states that a block clears


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


def _planner(facts: Facts) -> Callable[[int], PlanTuple]:
    tile, state, payload = facts["threads"] * facts["items"], facts["state"], facts["payload"]
    ahead, least = None, 0
    if facts.get("ahead_tile"):  # CUB's selector may have said no
        item = facts["item"]
        ahead, least = _ahead_planner(facts), (policies.SCAN_AHEAD_BYTES.find(facts["cc"], item) or 0) // item

    def plan(n: int) -> PlanTuple:
        if n <= tile:
            return "tile" if n else "", 0, (n, 1, 0)
        if ahead is not None and n >= least:
            return ahead(n)
        tiles = -(-n // tile)
        states = tiles + _PADDING
        # As `aligned` has it, for the states, and for what a tile reduces to by itself and with those before
        # it.
        nbytes = (states * state + 255 & -256) + 2 * (states * payload + 255 & -256)
        return "tiles", nbytes, (n, tiles, -(-tiles // _CLEARED))

    return plan


def _ahead_planner(facts: Facts) -> Callable[[int], PlanTuple]:
    tile, state, sms = facts["ahead_tile"], facts["ahead_state"], facts["sms"]
    shared = [facts[f"shared_{stages}"] for stages in range(1, _MOST_STAGES + 1)]
    fits = [each for each in shared if facts.occupancy("cupar_scan_ahead", facts["ahead_threads"], each)]

    def plan(n: int) -> PlanTuple:
        tiles = -(-n // tile)
        counter = tiles * state + 255 & -256
        # So many stages that all blocks have as much to do, and one more, as CUB has it.
        stages = max(1, min(len(fits), ceil_div(n, sms * tile) + 2))
        # From compute capability 10.0 on, blocks that run take the places of those that do not yet.
        grid = min(sms, tiles) if facts["cc"] < 100 else tiles
        numbers = (n, tiles, ceil_div(tiles, _CLEARED), counter, grid, stages, shared[stages - 1])
        return "ahead", counter + 256, numbers

    return plan


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
    _shapes,
    _planner,
    _traits,
    has_quick_tier=_may_look_ahead,
    tunable=_TUNABLE,
)
