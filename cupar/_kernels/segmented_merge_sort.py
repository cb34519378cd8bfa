"""Plans of segmented sorts by a comparison: teams for segments up to a tile, levels of merges for others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from .family import (
    Emit,
    Family,
    Launch,
    Number,
    Plan,
    Properties,
    Shape,
    Storage,
    Value,
    aligned,
    bits,
    ceil_div,
    helper,
    i32,
    members,
    u32,
    u64,
    value_or_null,
    void,
)
from .segmented_sort import SegmentedSortProblem
from .segments import (
    LIST_NUMBERS,
    MOST_BLOCKS,
    lay_out_lists,
    lay_out_queue,
    leasts,
    listing,
    queue_of_tiles,
    row_types,
    sorted_segments,
    starts_of_lists,
)

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_WORDS = 32  # of counters: of the lists, and behind them those of the queue
_OF_QUEUE = 4 * 16
_TILES_THREADS, _TILES_BLOCKS = 256, 8

_NAMES = ("short", "any", "long", "rows")
_SHORT, _ANY, _LONG, _ROWS = range(4)

_QUEUE_NUMBERS = ("queue", "segment_of", "merged", "most_segments", "most_tiles", "keys", "values")
_QUEUE_GRIDS = ("tiles_grid", "level_grid")


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    has_offsets = spec.has("end_offsets_in")
    values_in, values_out = (value_or_null(spec, f"d_{end}_values") for end in ("in", "out"))
    output = (Value("d_out_keys"), values_out)
    spare: tuple[Storage | Number, ...] = (Storage("keys"), Storage("values"))
    segments = sorted_segments(has_offsets)
    queue = queue_of_tiles(_OF_QUEUE, "segment_of", "merged")
    none = ((u64(0), u64(0)), (*(u64(0),) * 4, *(u32(0),) * 2))  # spare arrays and queue

    def teams(
        spare: tuple[Storage | Number, ...],
        queue: tuple[Storage | Number, ...],
        least: int | str,
        largest: int | str,
    ) -> Launch:
        given = (Value("d_in_keys"), values_in, output, spare, *segments, queue, Value("op"))
        parameters = (*given, i32(least), i32(largest))
        return Launch("cupar_segmented_merge_sort_teams", "grid", "threads", parameters)

    init = Launch("cupar_segmented_merge_sort_init", 1, _WORDS, (Storage(),))
    tiles = Launch("cupar_segmented_merge_sort_tiles", "tiles_grid", _TILES_THREADS, (*segments, queue))
    levels = Launch(
        "cupar_segmented_merge_sort_levels", "level_grid", "threads", (output, spare, queue, Value("op"))
    )
    if not has_offsets:
        long = init, tiles, teams(spare, queue, 0, -1), levels
        return {
            "rows": Shape(("n", "size", "team", "grid"), (teams(*none, "team", "team"),)),
            "long": Shape(("n", "size", *_QUEUE_NUMBERS, *_QUEUE_GRIDS, "grid"), long, executables=2),
        }
    lists = listing("segmented_merge_sort", segments)
    numbers = ("n", *LIST_NUMBERS, "largest", "grid")
    any_length = init, lists, tiles, teams(spare, queue, 0, "largest"), levels
    return {
        "short": Shape(numbers, (init, lists, teams(*none, 0, "largest"))),
        "any": Shape((*numbers, *_QUEUE_NUMBERS, *_QUEUE_GRIDS), any_length),
    }


class _SegmentedMergeSortFacts(NamedTuple):
    threads: int
    items: int  # of each
    sizes: int  # of teams: 1 thread, 2, 4, ...
    least: tuple[int, ...]  # items of a segment in each list
    segment_size: int
    key_size: int
    value_size: int
    tiles_blocks: int
    team_blocks: int  # that run at once
    level_blocks: int


def _planner(given: Properties) -> tuple[Plan, _SegmentedMergeSortFacts]:
    threads, sms = given["threads"], given["sms"]

    def running(kernel: str) -> int:
        return max(given.resident(f"cupar_segmented_merge_sort_{kernel}", threads), sms)

    sizes = threads.bit_length()
    return _plan, given.facts(
        _SegmentedMergeSortFacts,
        sizes=sizes,
        least=leasts([given["items"] << size for size in range(sizes)]),
        tiles_blocks=sms * _TILES_BLOCKS,
        team_blocks=running("teams"),
        level_blocks=running("levels"),
    )


def _plan(facts: _SegmentedMergeSortFacts, problem: SegmentedSortProblem, emit: Emit) -> int:
    items, n, length = problem
    if n == 0 or items == 0:
        return 0
    threads, sizes = facts.threads, facts.sizes
    if 0 < length <= threads * facts.items:
        size = bits(ceil_div(length, facts.items) - 1)
        emit(_ROWS, (n, length, size, min(ceil_div(n, threads >> size), MOST_BLOCKS)))
        return 0
    if length > 0:
        tiles, numbers, nbytes = _queue(facts, items, n, 4 * _WORDS)
        emit(_LONG, (n, length) + numbers + (min(tiles, facts.team_blocks),))
        return nbytes
    starts = starts_of_lists(n, items, facts.least)
    listed, end = lay_out_lists(n, starts, 4 * _WORDS)
    blocks, largest = 0, -1  # size of a team that has any segments
    for size in range(sizes):
        count = starts[size + 1] - starts[size]
        blocks += ceil_div(count, threads >> size)
        if count > 0:
            largest += 1
    lists = (n,) + listed + (largest,)
    long_segments = starts[sizes + 1] - starts[sizes]
    if long_segments == 0:
        emit(_SHORT, lists + (min(blocks, facts.team_blocks),))
        return end
    tiles, numbers, nbytes = _queue(facts, items, long_segments, end)
    emit(_ANY, lists + (min(blocks + tiles, facts.team_blocks),) + numbers)
    return nbytes


@helper
def _queue(
    facts: _SegmentedMergeSortFacts, items: int, segments: int, begin: int
) -> tuple[int, tuple[int, ...], int]:
    """Lay out the storage of long segments; return the number of tiles, the plan's numbers, and the bytes."""
    tile = facts.threads * facts.items
    queue, segment_of, tiles, merged = lay_out_queue(items, segments, tile, facts.segment_size, 4, begin)
    keys = merged + aligned(4 * tiles)
    values = keys + aligned(facts.key_size * items)
    grids = (min(segments, facts.tiles_blocks), min(tiles, facts.level_blocks))
    numbers = (queue, segment_of, merged, segments, tiles, keys, values) + grids
    return tiles, numbers, values + aligned(facts.value_size * items)


def _traits(spec: Specialisation) -> str:
    missing = () if spec.has("d_in_values") else void("d_in_values_t", "d_out_values_v")
    return members(*row_types(spec), *missing)


SEGMENTED_MERGE_SORT = Family(
    "segmented_merge_sort/segmented_merge_sort.cuh",
    ("threads", "items", "segment_size", "key_size", "value_size"),
    _NAMES,
    _shapes,
    _planner,
    _traits,
)
