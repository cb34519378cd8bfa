"""Plans of merge sorts: tiles are sorted, then each pass merges pairs of runs, until there is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

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
    aligned,
    bits,
    i32,
    members,
    prefixed,
    u64,
    value_or_null,
    void,
)
from .tuning import Tunable, operator_types

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_MOST_SHARED = 48 << 10  # bytes, static, of a block
_THREADS = 256  # of the blocks that find where tiles come from, as in CUB
# A call's passes are those of some of these shapes, each at most once: of the bits of their number.
_PASSES = 5
_NAMES = ("tiles", *(f"{1 << k} passes" for k in range(_PASSES)))
_TILES, _FIRST = 0, 1
_ARRAYS = ("n", "tiles", "passes", "keys", "items")


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    items_in, items_out = (value_or_null(spec, name) for name in ("d_in_items", "d_out_items"))
    output, spare = (Value("d_out_keys"), items_out), (Storage("keys"), Storage("items"))
    op, passes, first = Value("op"), i32("passes"), i32("first")
    tiles = Launch(
        "cupar_merge_sort_tiles",
        "tiles",
        "threads",
        (Value("d_in_keys"), items_in, output, spare, u64("n"), op, passes),
    )

    def merges(after: int) -> tuple[Launch, Launch]:
        partition = (output, spare, Storage(), u64("partitions"), u64("n"), op, passes, first, i32(after))
        merge = (output, spare, Storage(), u64("n"), op, passes, first, i32(after))
        return (
            Launch("cupar_merge_sort_partition", "grid", _THREADS, partition),
            Launch("cupar_merge_sort_merge", "tiles", "threads", merge),
        )

    numbers = (*_ARRAYS, "partitions", "grid", "first")
    return {
        "tiles": Shape(_ARRAYS, (tiles,)),
        **{
            name: Shape(numbers, sum((merges(k) for k in range(1 << bit)), ()), executables=2)
            for bit, name in enumerate(_NAMES[_FIRST:])
        },
    }


class _MergeSortFacts(NamedTuple):
    tile: int
    key_size: int
    item_size: int


def _planner(given: Properties) -> tuple[Plan, _MergeSortFacts]:
    return _plan, _MergeSortFacts(given["threads"] * given["items"], given["key_size"], given["item_size"])


def _plan(facts: _MergeSortFacts, n: int, emit: Emit) -> int:
    if n == 0:
        return 0
    tiles = -(-n // facts.tile)
    passes = bits(tiles - 1)
    if passes == 0:
        emit(_TILES, (n, tiles, 0, 0, 0))
        return 0
    partitions = tiles + 1
    keys = aligned(8 * partitions)
    items = keys + aligned(n * facts.key_size)
    emit(_TILES, (n, tiles, passes, keys, items))
    grid, first = -(-partitions // _THREADS), 0
    for k in range(_PASSES):
        if passes >> k & 1:
            emit(_FIRST + k, (n, tiles, passes, keys, items, partitions, grid, first))
            first += 1 << k
    return items + aligned(n * facts.item_size)


def _sizes(spec: Specialisation) -> list[int]:
    return [each.value.itemsize for each in spec.arguments[::2]]


def _default(spec: Specialisation) -> policies.TilePolicy | None:
    key, *items = _sizes(spec)
    return policies.MERGE_SORT.find(spec.cc, key, sum(items))


def _space(spec: Specialisation) -> Mapping[str, tuple[int, ...]]:
    return {"threads": (64, 128, 256, 512), "items": (5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25)}


def _fits(spec: Specialisation, policy: policies.TilePolicy) -> bool:
    return (policy.threads * policy.items + 1) * max(_sizes(spec)) <= _MOST_SHARED


_TUNABLE = Tunable("merge sort", policies.TilePolicy, _default, operator_types, _space, _fits)


def _traits(spec: Specialisation) -> str:
    missing = () if spec.has("d_in_items") else void("d_in_items_t", "d_out_items_v")
    return members(*missing, **prefixed("tile_", _TUNABLE.given(spec)))


MERGE_SORT = Family(
    "merge_sort/merge_sort.cuh",
    ("threads", "items", "key_size", "item_size"),
    _NAMES,
    _shapes,
    _planner,
    _traits,
    tunable=_TUNABLE,
)
