"""Plans of merges: where each tile of the output begins in both ranges, and then the tiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from .family import Emit, Family, Launch, Parameter, Plan, Properties, Shape, Storage, Value, u64

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_THREADS = 256  # of the blocks that find where tiles begin, as in CUB
_NAMES = ("tile", "tiles")
_TILE, _TILES = 0, 1


class Ranges(NamedTuple):
    """The problem of a merge: the items of both ranges, and of the output."""

    num_items1: int
    num_items2: int
    num_items: int


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    has_items = len(spec.arguments) > 3
    keys1, keys2, op = Value("d_in_keys1"), Value("d_in_keys2"), Value("op")
    items1, items2, items_out = (
        Value(name) if has_items else u64(0) for name in ("d_in_items1", "d_in_items2", "d_out_items")
    )
    count1, count2 = u64("count1"), u64("count2")

    def tiles(grid: int | str, partitions: Parameter) -> Launch:
        first, second = (keys1, items1, count1), (keys2, items2, count2)
        parameters = (*first, *second, Value("d_out_keys"), items_out, partitions, op)
        return Launch("cupar_merge_tiles", grid, "threads", parameters)

    partition = Launch(
        "cupar_merge_partition",
        "grid",
        _THREADS,
        (keys1, count1, keys2, count2, Storage(), u64("partitions"), op),
    )
    return {
        "tile": Shape(("count1", "count2"), (tiles(1, u64(0)),)),
        "tiles": Shape(
            ("count1", "count2", "tiles", "partitions", "grid"), (partition, tiles("tiles", Storage()))
        ),
    }


def _planner(given: Properties) -> tuple[Plan, int]:
    return _plan, given["tile"]


def _plan(tile: int, problem: Ranges, emit: Emit) -> int:
    count1, count2, n = problem
    if n == 0:
        return 0
    if n <= tile:
        emit(_TILE, (count1, count2))
        return 0
    tiles = -(-n // tile)
    partitions = tiles + 1
    emit(_TILES, (count1, count2, tiles, partitions, -(-partitions // _THREADS)))
    return 8 * partitions


def _traits(spec: Specialisation) -> str:
    if len(spec.arguments) > 3:
        return ""
    return "\n".join(f"using {name}_t = void;" for name in ("d_in_items1", "d_in_items2", "d_out_items"))


MERGE = Family("merge/merge.cuh", ("threads", "tile"), _NAMES, _shapes, _planner, _traits)
