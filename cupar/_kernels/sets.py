"""Plans of sets: one block of a single tile; or where tiles are cut, and a grid that stays and takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from . import policies
from .family import (
    Emit,
    Family,
    Launch,
    Parameter,
    Plan,
    Properties,
    Shape,
    Storage,
    Value,
    aligned,
    members,
    u64,
    value_or_null,
    void,
)
from .merge import MergeProblem
from .tiles import check_size
from .tuning import Tunable, operator_types

if TYPE_CHECKING:
    from .._ir.nodes import Argument
    from .._ir.specialisation import Specialisation

OPERATIONS = ("set_union", "set_intersection", "set_difference", "set_symmetric_difference")

_CUT_THREADS = 64  # of the blocks that find where tiles are cut: few, as each waits for memory
_TICKET_BYTES = 128  # before the states of tiles
_TILE_BYTES = 12 << 10  # of keys and items, about
_LARGE_TILES = {90: 28 << 10, 100: 28 << 10, 103: 28 << 10, 110: 28 << 10}  # of cards with more shared memory
_MOST_ITEMS = 23  # of a thread, unless it is tuned
_MOST_SHARED = 96 << 10  # bytes of a block that is tried
_NAMES = ("block", "grid")
_BLOCK, _GRID = range(2)


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    keys1, keys2, op = Value("d_in_keys1"), Value("d_in_keys2"), Value("op")
    names = "d_in_items1", "d_in_items2", "d_out_items"
    items1, items2, items_out = (value_or_null(spec, name) for name in names)
    count1, count2 = u64("count1"), u64("count2")

    def tiles(grid: int | str, storage: Parameter, cuts: Parameter) -> Launch:
        first, second = (keys1, items1, count1), (keys2, items2, count2)
        outputs = Value("d_out_keys"), items_out, Value("d_out_num_selected")
        return Launch("cupar_sets", grid, "threads", (*first, *second, *outputs, storage, cuts, op), "shared")

    cut = Launch(
        "cupar_sets_cut",
        "cut_grid",
        _CUT_THREADS,
        (keys1, count1, keys2, count2, u64("tiles"), Storage(), Storage("cuts"), op),
    )
    return {
        "block": Shape(("count1", "count2"), (tiles(1, u64(0), u64(0)),)),
        "grid": Shape(
            ("count1", "count2", "tiles", "cuts", "cut_grid", "grid"),
            (cut, tiles("grid", Storage(), Storage("cuts"))),
        ),
    }


def _planner(given: Properties) -> tuple[Plan, tuple[int, int]]:
    resident = given.resident("cupar_sets", given["threads"], given["shared"])
    return _plan, (given["tile"], max(resident, given["sms"]))


def _plan(facts: tuple[int, int], problem: MergeProblem, emit: Emit) -> int:
    tile, blocks = facts
    count1, count2, n = problem
    if n <= tile:
        emit(_BLOCK, (count1, count2))
        return 0
    tiles = -(-n // tile)
    cuts = aligned(_TICKET_BYTES + 8 * (tiles + 1))
    emit(_GRID, (count1, count2, tiles, cuts, -(-(tiles + 1) // _CUT_THREADS), min(tiles, blocks)))
    return cuts + 16 * (tiles + 1)


def _columns(spec: Specialisation) -> list[Argument]:
    """Return the keys, and the items that go with them if there are any."""
    return [each for each in spec.arguments if each.name in ("d_in_keys1", "d_in_items1")]


def _sizes(spec: Specialisation) -> tuple[int, ...]:
    return tuple(each.value.itemsize for each in _columns(spec))


def _default(spec: Specialisation) -> policies.SetsPolicy:
    sizes = _sizes(spec)
    found = policies.SETS.find(spec.cc, *sizes)
    if found is not None:
        return found
    tile_bytes = _LARGE_TILES.get(spec.cc, _TILE_BYTES)
    threads, tile_items = 128 if tile_bytes == _TILE_BYTES else 256, tile_bytes // sum(sizes)
    while threads > 32 and threads * 5 > tile_items:
        threads //= 2
    return policies.SetsPolicy(threads, max(1, min(_MOST_ITEMS, tile_items // threads)), 2)


def _space(spec: Specialisation) -> Mapping[str, tuple[int, ...]]:
    items = {*range(1, 33, 2), 16, 22, 24, 28, _default(spec).items}
    return {"threads": (32, 64, 128, 160, 192, 256, 384, 512), "items": tuple(sorted(items)), "slots": (2, 3)}


def _fits(spec: Specialisation, policy: policies.SetsPolicy) -> bool:
    sizes, items = _sizes(spec), policy.threads * policy.items
    places = 0 if len(sizes) == 1 and sizes[0] <= 8 else 4 * items  # of two tiles
    nbytes = policy.slots * items * sum(sizes) + places
    return items < 1 << 15 and nbytes <= _MOST_SHARED


_TUNABLE = Tunable(
    "sets",
    policies.SetsPolicy,
    _default,
    lambda spec: {"algorithm": spec.algorithm, **operator_types(spec)},
    _space,
    _fits,
)


def _traits(spec: Specialisation) -> str:
    check_size(spec, _columns(spec), sum(_sizes(spec)))
    items = ("d_in_items1_v", "d_in_items1_t", "d_in_items2_t", "d_out_items_t")
    missing = void(*(each for each in items if not spec.has(each[:-2])))
    operation = f"static constexpr auto operation = cupar::{spec.algorithm};"
    return members(operation, *missing, **_TUNABLE.given(spec)._asdict())


SETS = Family(
    "sets/sets.cuh", ("threads", "tile", "shared"), _NAMES, _shapes, _planner, _traits, tunable=_TUNABLE
)
