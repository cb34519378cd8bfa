"""What families share that work on segments; of their kernels, see `cuh/common/lists.cuh`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from .family import InPlace, Parameter, Storage, Value, i64, twin, u64

LISTS = 12  # of segments by size, at most: as `cuh/common/lists.cuh` has them
LIST_THREADS, LIST_ITEMS = 256, 1024  # of a block that writes them
MOST_BLOCKS = 2**31 - 1  # of a launch
MOST_LISTED = 2**32 - 1  # segments with offsets, as lists have 32 bits for each

# Offsets of segments of equal length, instead of arrays of offsets.
ROWS = "using start_offsets_in_t = cupar::row_starts;\nusing end_offsets_in_t = cupar::row_ends;"

# Of lists, whose counters are at the start of the temporary storage: the plan's numbers, and their values
# for problems without lists.
LIST_NUMBERS = ("segments", *(f"list {i}" for i in range(LISTS + 1)))
NO_LISTS = InPlace([u64(0)] * (2 + LISTS + 1))


NEVER = 2**62  # least items of the segments in a list that does not exist


def leasts(tops: Sequence[int]) -> tuple[int, ...]:
    """Return the least items of a segment of each list, given the most of each.

    The last list that there is has segments of any length.
    """
    return (1, *(top + 1 for top in tops), *(NEVER,) * (LISTS - 1 - len(tops)))


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
    lists = InPlace([Storage(), Storage("segments"), *map(u64, LIST_NUMBERS[1:])])
    return Value("start_offsets_in"), Value("end_offsets_in"), i64("n"), lists


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
