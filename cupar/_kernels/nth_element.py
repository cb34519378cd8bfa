"""Plans of the n-th elements of segments: a kernel for those of some sizes each, or one for each digit."""

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
    aligned,
    ceil_div,
    helper,
    i32,
    i64,
    members,
    prefixed,
    value_or_null,
)
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
from .tuning import Tunable, value_types

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_FEW = 128  # items of a segment, at most
_TEAM_THREADS, _WARPS = 128, 4  # of a block that has a segment, or whose warps have one each
_DIGIT_BITS = 11
_BINS = 1 << _DIGIT_BITS
_WORDS, _TILES = 64, 4 * 16  # counters: of lists, and of tiles
_TILES_THREADS, _TILES_BLOCKS = 1024, 2
_COPIED_PART = 8  # candidates are copied once they are such a part of a segment
# Items of a row that a block has if there are fewer rows than multiprocessors, and of a segment with offsets.
_ALONE, _LONGEST = 1 << 14, 1 << 16
_MOST_OF_A_BLOCK = 1 << 31  # items, which it counts in 32 bits

PROPAGATING = "ASCENDING_OR_NAN"  # the order in which the results of a segment with a NaN are NaN

_SHORT = ("few", "warp", "team", "rows")
_NAMES = ("short", *_SHORT, "long")
_SHORT_SEGMENTS, _OF_FEW, _OF_WARP, _OF_TEAM, _OF_ROWS, _LONG = range(6)


class NthElementProblem(NamedTuple):
    """The problem of a search for the n-th element of segments.

    Attributes
    ----------
    num_items, num_segments : int
    segment_size : int
        Of each row; with offsets 0.
    rank : int
        Of the element in each row; with offsets 0, as an array has them.
    """

    num_items: int
    num_segments: int
    segment_size: int
    rank: int


_LONG_NUMBERS = ("queue", "segment_of", "bins", "copies", "most_segments", "most_tiles", "tiles_grid", "grid")


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    has_offsets, has_next = spec.has("end_offsets_in"), spec.has("d_out_next")
    keys, segments = Value("d_in"), sorted_segments(has_offsets)
    results = Value("d_out"), value_or_null(spec, "d_out_next")
    ranks: Parameter = Value("d_ranks") if has_offsets else i64("rank")

    def short(name: str) -> Launch:
        block = "threads" if name == "rows" else _TEAM_THREADS
        parameters = (keys, results, ranks, *segments)
        return Launch(f"cupar_nth_element_{name}", f"grid {name}", block, parameters)

    init = Launch("cupar_nth_element_init", 1, _WORDS, (Storage(),))
    queue = queue_of_tiles(_TILES, "segment_of", "bins", "copies")
    digits = ceil_div(8 * spec.arguments[0].value.itemsize, _DIGIT_BITS)
    long = [
        Launch("cupar_nth_element_tiles", "tiles_grid", _TILES_THREADS, (ranks, *segments, queue)),
        *(
            Launch("cupar_nth_element_digit", "grid", "threads", (keys, results, queue, i32(number)))
            for number in range(digits)
        ),
    ]
    if has_next:
        long.append(Launch("cupar_nth_element_behind", "grid", "threads", (keys, results, queue)))
    if not has_offsets:
        numbers = ("n", "size", "rank")
        shapes = {name: Shape((*numbers, f"grid {name}"), (short(name),), executables=2) for name in _SHORT}
        return shapes | {"long": Shape((*numbers, *_LONG_NUMBERS), (init, *long), executables=2)}
    listed = ("n", *LIST_NUMBERS, *(f"grid {name}" for name in _SHORT))
    before = (init, listing("nth_element", (*segments, i64(_LONGEST))), *map(short, _SHORT))
    return {
        "short": Shape(listed, before, executables=2),
        "long": Shape((*listed, *_LONG_NUMBERS), (*before, *long), executables=2),
    }


class _NthElementFacts(NamedTuple):
    sms: int
    tile: int
    warp: int  # items of a segment that a warp has, at most
    least: tuple[int, ...]  # items of a segment in each list
    key_size: int
    segment_size: int
    # Blocks that run at once.
    rows_blocks: int
    digit_blocks: int


def _planner(given: Properties) -> tuple[Plan, _NthElementFacts]:
    threads = given["threads"]
    return _plan, given.facts(
        _NthElementFacts,
        least=leasts([_FEW, given["warp"], _WARPS * given["warp"], _LONGEST]),
        rows_blocks=given.resident("cupar_nth_element_rows", threads),
        digit_blocks=given.resident("cupar_nth_element_digit", threads),
    )


def _plan(facts: _NthElementFacts, problem: NthElementProblem, emit: Emit) -> int:
    items, n, length, rank = problem
    if n == 0 or items == 0:
        return 0
    if length > 0:
        row = (n, length, rank)
        if length <= _FEW:
            emit(_OF_FEW, row + (_grid(ceil_div(n, _WARPS), MOST_BLOCKS),))
        elif length <= facts.warp:
            emit(_OF_WARP, row + (_grid(ceil_div(n, _WARPS), MOST_BLOCKS),))
        elif length <= _WARPS * facts.warp:
            emit(_OF_TEAM, row + (_grid(n, MOST_BLOCKS),))
        elif length <= _ALONE or (n >= facts.sms and length < _MOST_OF_A_BLOCK):
            emit(_OF_ROWS, row + (_grid(n, facts.rows_blocks),))
        else:
            return _plan_long(facts, row, items, n, 4 * _WORDS, emit)
        return 0
    starts = starts_of_lists(n, items, facts.least)
    lists, end = lay_out_lists(n, starts, 4 * _WORDS)
    grids = (
        _grid(ceil_div(starts[1], _WARPS), MOST_BLOCKS),
        _grid(ceil_div(starts[2] - starts[1], _WARPS), MOST_BLOCKS),
        _grid(starts[3] - starts[2], MOST_BLOCKS),
        _grid(starts[4] - starts[3], facts.rows_blocks),
    )
    short = (n,) + lists + grids
    long_segments = starts[5] - starts[4]
    if long_segments == 0:
        emit(_SHORT_SEGMENTS, short)
        return end
    return _plan_long(facts, short, items, long_segments, end, emit)


@helper
def _grid(blocks: int, most: int) -> int:
    """Return the grid of a kernel for segments: one block at least, as lists may be empty."""
    return min(max(blocks, 1), most)


@helper
def _plan_long(
    facts: _NthElementFacts, head: tuple[int, ...], items: int, segments: int, begin: int, emit: Emit
) -> int:
    """Plan what long segments need, behind the numbers that all shapes of a build begin with."""
    queue, segment_of, tiles, bins = lay_out_queue(items, segments, facts.tile, facts.segment_size, 4, begin)
    copies = bins + aligned(8 * _BINS * segments)
    parts = (queue, segment_of, bins, copies, segments, tiles)
    grids = (min(segments, facts.sms * _TILES_BLOCKS), min(tiles, facts.digit_blocks))
    emit(_LONG, head + parts + grids)
    return copies + aligned(facts.key_size * (items // _COPIED_PART + 1))


def _default(spec: Specialisation) -> policies.NthElementPolicy:
    return policies.NTH_ELEMENT.get(spec.cc)


def _space(spec: Specialisation) -> Mapping[str, tuple[int, ...]]:
    return {"threads": (128, 256, 512), "candidate_bytes": (8192, 16384, 32768), "loads": (1, 2, 4, 8)}


_TUNABLE = Tunable("nth element", policies.NthElementPolicy, _default, value_types, _space)


def _traits(spec: Specialisation) -> str:
    flags = {"has_next": spec.has("d_out_next"), "propagates": spec.option("order") == PROPAGATING}
    ranks = f"using ranks_t = {'d_ranks_t' if spec.has('d_ranks') else 'cupar::same_rank'};"
    return members(ranks, *row_types(spec), **flags, **prefixed("policy_", _TUNABLE.given(spec)))


NTH_ELEMENT = Family(
    "nth_element/nth_element.cuh",
    ("threads", "tile", "warp", "segment_size", "key_size"),
    _NAMES,
    _shapes,
    _planner,
    _traits,
    tunable=_TUNABLE,
)
