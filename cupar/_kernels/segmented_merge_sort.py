"""Plans of segmented sorts by a comparison: teams for segments up to a tile, levels of merges for others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from .family import (
    Facts,
    Family,
    Launch,
    Number,
    Plan,
    Shape,
    Storage,
    Value,
    aligned,
    ceil_div,
    i32,
    u32,
    u64,
)
from .segmented_sort import Sorted
from .segments import LIST_ITEMS, LIST_NUMBERS, LIST_THREADS, LISTS, MOST_BLOCKS, ROWS, sorted_segments

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_WORDS = 32  # of counters: of the lists, and behind them those of the queue
_OF_QUEUE = 4 * 16
_TILES_THREADS, _TILES_BLOCKS = 256, 8

_QUEUE_NUMBERS = ("queue", "segment_of", "merged", "most_segments", "most_tiles", "keys", "values")
_QUEUE_GRIDS = ("tiles_grid", "level_grid")


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    names = [each.name for each in spec.arguments]
    has_values, has_offsets = "d_in_values" in names, "end_offsets_in" in names
    values_in, values_out = (Value(f"d_{end}_values") if has_values else u64(0) for end in ("in", "out"))
    output = (Value("d_out_keys"), values_out)
    spare: tuple[Storage | Number, ...] = (Storage("keys"), Storage("values"))
    segments = sorted_segments(has_offsets)
    queue: tuple[Storage | Number, ...] = (
        *(Storage(_OF_QUEUE), Storage("queue"), Storage("segment_of"), Storage("merged")),
        *(u32("most_segments"), u32("most_tiles")),
    )
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
    list_of = Launch("cupar_segmented_merge_sort_list", "list_grid", LIST_THREADS, segments)
    numbers = ("n", *LIST_NUMBERS, "list_grid", "largest", "grid")
    any_length = init, list_of, tiles, teams(spare, queue, 0, "largest"), levels
    return {
        "short": Shape(numbers, (init, list_of, teams(*none, 0, "largest"))),
        "any": Shape((*numbers, *_QUEUE_NUMBERS, *_QUEUE_GRIDS), any_length),
    }


def _planner(facts: Facts) -> Callable[[Sorted], Plan]:
    sms, threads = facts["sms"], facts["threads"]
    tile = threads * facts["items"]
    sizes = threads.bit_length()  # of teams: 1 thread, 2, 4, ...
    tops = [facts["items"] << size for size in range(sizes)]  # most items of a segment, for each list

    def running(kernel: str) -> int:
        return max(facts.occupancy(f"cupar_segmented_merge_sort_{kernel}", threads, 0), 1) * sms

    most_teams, most_levels = running("teams"), running("levels")

    def queue(items: int, segments: int, begin: int) -> tuple[int, int, tuple[int, ...]]:
        """Lay out what long segments need; return how many bytes and tiles there are, and the numbers."""
        tiles = items // tile + segments
        _, of_queue, segment_of, merged, keys, values, nbytes = aligned(
            begin,
            facts["segment_size"] * segments,
            4 * tiles,
            4 * tiles,
            facts["key_size"] * items,
            facts["value_size"] * items,
        )
        grids = min(segments, sms * _TILES_BLOCKS), min(tiles, most_levels)
        return nbytes, tiles, (of_queue, segment_of, merged, segments, tiles, keys, values, *grids)

    def plan(problem: Sorted) -> Plan:
        items, n, length = problem
        if n == 0 or items == 0:
            return Plan("", 0)
        if 0 < length <= tile:
            size = (ceil_div(length, facts["items"]) - 1).bit_length()
            return Plan("rows", 0, (n, length, size, min(ceil_div(n, threads >> size), MOST_BLOCKS)))
        if length > 0:
            nbytes, tiles, numbers = queue(items, n, 4 * _WORDS)
            return Plan("long", nbytes, (n, length, *numbers, min(tiles, most_teams)))
        # Segments of a list have more items than those of the one before, and do not overlap.
        counts = [min(n, items // least) for least in (1, *(top + 1 for top in tops))]
        firsts = [*accumulate(counts, initial=0)]
        firsts += [firsts[-1]] * (LISTS + 1 - len(firsts))
        _, segments, end = aligned(4 * _WORDS, 4 * firsts[-1])
        blocks = sum(ceil_div(count, threads >> size) for size, count in enumerate(counts[:sizes]))
        largest = sum(count > 0 for count in counts[:sizes]) - 1
        lists = (n, segments, *firsts, ceil_div(n, LIST_ITEMS), largest)
        if counts[sizes] == 0:
            return Plan("short", end, (*lists, min(blocks, most_teams)))
        nbytes, tiles, numbers = queue(items, counts[sizes], end)
        return Plan("any", nbytes, (*lists, min(blocks + tiles, most_teams), *numbers))

    return plan


def _traits(spec: Specialisation) -> str:
    names = [each.name for each in spec.arguments]
    code = [] if "start_offsets_in" in names else [ROWS]
    if "d_in_values" not in names:
        code.append("using d_in_values_t = void;\nusing d_out_values_v = void;")
    return "\n".join(code)


SEGMENTED_MERGE_SORT = Family(
    "segmented_merge_sort/segmented_merge_sort.cuh",
    ("threads", "items", "segment_size", "key_size", "value_size"),
    _shapes,
    _planner,
    _traits,
)
