"""Plans of merges: where each tile of the output begins in both ranges, and then the tiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

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
    members,
    prefixed,
    u64,
    value_or_null,
    void,
)
from .tuning import Tunable, operator_types

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_THREADS = 256  # of the blocks that find where tiles begin, as in CUB
_MOST_SHARED = 47 << 10  # bytes, static, of a block's tile
_NAMES = ("tile", "tiles")
_TILE, _TILES = 0, 1


class MergeProblem(NamedTuple):
    """The problem of a merge: the items of both ranges, and of the output."""

    num_items1: int
    num_items2: int
    num_items: int


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    keys1, keys2, op = Value("d_in_keys1"), Value("d_in_keys2"), Value("op")
    names = "d_in_items1", "d_in_items2", "d_out_items"
    items1, items2, items_out = (value_or_null(spec, name) for name in names)
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


def _plan(tile: int, problem: MergeProblem, emit: Emit) -> int:
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


def _sizes(spec: Specialisation) -> list[int]:
    """Return the bytes of a key, and of an item that goes with it."""
    return [each.value.itemsize for each in spec.arguments if each.name in ("d_in_keys1", "d_in_items1")]


def _space(spec: Specialisation) -> Mapping[str, tuple[int, ...]]:
    return {"threads": (128, 256, 512), "items": (5, 7, 9, 11, 13, 15, 17, 19, 21, 23)}


def _fits(spec: Specialisation, policy: policies.TilePolicy) -> bool:
    return (policy.threads * policy.items + 1) * max(_sizes(spec)) <= _MOST_SHARED


_TUNABLE = Tunable(
    "merge",
    policies.TilePolicy,
    lambda spec: policies.MERGE.find(spec.cc, *_sizes(spec)),
    operator_types,
    _space,
    _fits,
)


def _traits(spec: Specialisation) -> str:
    missing = () if spec.has("d_in_items1") else void("d_in_items1_t", "d_in_items2_t", "d_out_items_t")
    return members(*missing, **prefixed("tile_", _TUNABLE.given(spec)))


MERGE = Family("merge/merge.cuh", ("threads", "tile"), _NAMES, _shapes, _planner, _traits, tunable=_TUNABLE)
