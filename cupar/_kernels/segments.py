"""What families share that work on segments: lists of these by size, and the queue of long ones, in tiles.

Of their kernels, see `cuh/common/lists.cuh`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from .family import (
    InPlace,
    Launch,
    Number,
    Parameter,
    Storage,
    Value,
    aligned,
    ceil_div,
    helper,
    i64,
    twin,
    u32,
    u64,
)

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

LISTS = 12  # of segments by size, at most: as `cuh/common/lists.cuh` has them
_LIST_THREADS, _LIST_ITEMS = 256, 1024  # of a block that writes them
MOST_BLOCKS = 2**31 - 1  # of a launch
MOST_LISTED = 2**32 - 1  # segments with offsets, as lists have 32 bits for each

# Of lists, whose counters are at the start of the temporary storage: the plan's numbers, and their values
# for problems without lists.
LIST_NUMBERS = ("segments", *(f"list {i}" for i in range(LISTS + 1)), "list_grid")
NO_LISTS = InPlace([u64(0)] * (2 + LISTS + 1))
NEVER = 2**62  # least items of the segments in a list that does not exist


def leasts(tops: Sequence[int]) -> tuple[int, ...]:
    """Return the least items of a segment of each list, given the most of each.

    The last list that there is has segments of any length.
    """
    return (1, *(top + 1 for top in tops), *(NEVER,) * (LISTS - 1 - len(tops)))


def row_types(spec: Specialisation) -> tuple[str, ...]:
    """Return members of a traits struct: for segments without offsets, types in the place of theirs."""
    if spec.has("start_offsets_in"):
        return ()
    return "using start_offsets_in_t = cupar::row_starts;", "using end_offsets_in_t = cupar::row_ends;"


@twin
def starts_of_lists(n: int, items: int, least: tuple[int, ...]) -> tuple[int, ...]:
    """Return where each list begins, and where the last one ends: each has room for all that may be in it.

    Segments of a list have more items than those of the one before, and do not overlap.
    """
    return (0, *accumulate([min(n, items // each) for each in least]))


def sorted_segments(has_offsets: bool) -> tuple[Parameter, ...]:
    """Return the parameters of kernels that sort segments: offsets, their number, and lists by size."""
    if not has_offsets:
        return i64("size"), i64("size"), i64("n"), NO_LISTS
    lists = InPlace([Storage(), Storage("segments"), *map(u64, LIST_NUMBERS[1:-1])])
    return Value("start_offsets_in"), Value("end_offsets_in"), i64("n"), lists


def listing(family: str, parameters: tuple[Parameter, ...]) -> Launch:
    """Return the launch that writes the lists of a family."""
    return Launch(f"cupar_{family}_list", "list_grid", _LIST_THREADS, parameters)


@helper
def lay_out_lists(n: int, starts: tuple[int, ...], nbytes: int) -> tuple[tuple[int, ...], int]:
    """Lay out lists behind some bytes of counters; return `LIST_NUMBERS` of them, and the end."""
    segments = aligned(nbytes)
    numbers = (segments,) + starts + (ceil_div(n, _LIST_ITEMS),)
    return numbers, segments + aligned(4 * starts[LISTS])


def queue_of_tiles(counters: int, *parts: str) -> tuple[Storage | Number, ...]:
    """Return the parameter that has the queue of long segments and their tiles.

    `counters` is the offset of its counters in the temporary storage; `parts` begin with the places of tiles.
    """
    places = Storage(counters), Storage("queue"), *map(Storage, parts)
    return (*places, u32("most_segments"), u32("most_tiles"))


@helper
def lay_out_queue(
    items: int, segments: int, tile: int, segment_size: int, place_size: int, begin: int
) -> tuple[int, int, int, int]:
    """Lay out a queue of long segments and their tiles; return both places, the number of tiles, the end."""
    tiles = items // tile + segments
    queue = aligned(begin)
    places = queue + aligned(segment_size * segments)
    return queue, places, tiles, places + aligned(place_size * tiles)


class SegmentsProblem(NamedTuple):
    """Segments that are reduced or scanned.

    Attributes
    ----------
    num_segments : int
    num_items : int
        In all of them; 0: unknown.
    largest : int
        Items of a segment at most, or of each row; 0: unknown.
    used : int
        Items of the arrays that are known to be used.
    """

    num_segments: int
    num_items: int
    largest: int
    used: int
