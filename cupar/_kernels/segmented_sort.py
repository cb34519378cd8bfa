"""Plans of segmented sorts: kernels for segments of some sizes each, and a kernel a digit for long ones.

With offsets, a long segment is sorted by one digit, and its parts as segments are, if all are short enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from . import policies
from .family import (
    Emit,
    Family,
    Launch,
    Number,
    Parameter,
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
from .radix_sort import ways
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

# Kernels for groups of lanes: the number of lanes, by the most items of a segment.
_GROUPS = {16: 4, 32: 4, 64: 8, 128: 8, 256: 16, 512: 32}
TILE_PLACE = 24  # bytes that passes read of a tile of a long segment
_MANY = 4  # items of a segment on average, up to which single items are copied
_DIGITS = 256  # parts of a long segment
_MOST_NUMBERS = 2**32  # of segments and parts of long ones
_TEAMS = 5  # sizes, at most: of 1 to 16 warps
_WORDS = 32  # of counters: of the lists, and behind them those of long segments
_OF_LONG = 4 * 16
_MOST_SHARED = 48 << 10  # bytes, static, of a block
_TILES_THREADS, _TILES_BLOCKS = 256, 8
_PARTS_BLOCKS = 2  # of a multiprocessor
_LEAST_TEAM_THREADS = 256  # that the largest team has on every device

_NAMES = ("short", "any", "long", *map(str, _GROUPS), *(f"teams {size}" for size in range(_TEAMS)))
_SHORT, _ANY, _LONG, _FIRST_GROUP = range(4)
_FIRST_TEAM = _FIRST_GROUP + len(_GROUPS)


class SegmentedSortProblem(NamedTuple):
    """The problem of a segmented sort.

    Attributes
    ----------
    num_items, num_segments : int
    segment_size : int
        Of each row; with offsets 0.
    """

    num_items: int
    num_segments: int
    segment_size: int


_LONG_NUMBERS = (
    *("queue", "places", "bins", "lookback", "most_segments", "most_tiles", "keys", "values"),
    *("most_parted", "parts_grid", "tiles_grid", "count_grid", "digit_grid"),
)


def _sizes(spec: Specialisation) -> tuple[int, int]:
    """Return the bytes of the sorted words, and of the stage for each key of a long segment.

    A word holds a key; with values also a place, in as many bits.
    """
    key = spec.arguments[0].value.itemsize
    values = [each.value.itemsize for each in spec.arguments if each.name == "d_in_values"]
    word = max(4, key * (1 + len(values)))
    return word, max(key, *(size for size in values if size <= 16), 1)


def _default(spec: Specialisation) -> policies.SegmentedSortPolicy:
    word, staged = _sizes(spec)
    table = policies.SEGMENTED_SORT
    found = table.find(spec.cc, word) or table.get(spec.cc, 0)
    # So that a tile of a long segment has 32 KiB.
    return found._replace(digit_items=min(found.digit_items, 64 // max(staged, 4)))


def _space(spec: Specialisation) -> Mapping[str, tuple[int, ...]]:
    return {
        "group_threads": (64, 128, 256, 512),
        "team_items": (16, 32),
        "team_blocks": (1, 2, 3),
        "rows_threads": (32, 64, 128, 256),
        "digit_threads": (256, 512),
        "digit_items": (4, 6, 8, 12, 16, 20),
    }


def _fits(spec: Specialisation, policy: policies.SegmentedSortPolicy) -> bool:
    word, staged = _sizes(spec)
    return (
        policy.group_threads * 17 * word <= _MOST_SHARED
        # Of words of 16 bytes, half as many fill the registers.
        and policy.team_items * word <= 256
        and (spec.cc >= 80 or policy.team_items * word <= 128)
        and policy.digit_threads * policy.digit_items * staged <= _MOST_SHARED - 4096
    )


def _scope(spec: Specialisation) -> dict[str, str]:
    segments = "offsets" if spec.has("start_offsets_in") else "rows"
    return {**value_types(spec, "d_in_keys", "d_in_values"), "segments": segments}


_TUNABLE = Tunable("segmented sort", policies.SegmentedSortPolicy, _default, _scope, _space, _fits)


def _smallest_team(spec: Specialisation) -> int:
    """Return the number of items of the smallest team, a warp."""
    return 32 * _TUNABLE.given(spec).team_items


def _groups(smallest_team: int) -> list[int]:
    """Return the numbers of items that have groups of lanes: those below the smallest team's."""
    return [most for most in _GROUPS if most < smallest_team]


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    has_offsets = spec.has("end_offsets_in")
    groups = _groups(_smallest_team(spec))
    places: dict[str, tuple[Value | Storage | Number, ...]] = {
        end: (Value(f"d_{end}_keys"), value_or_null(spec, f"d_{end}_values")) for end in ("in", "out")
    }
    places["spare"] = (Storage("keys"), Storage("values") if spec.has("d_in_values") else u64(0))

    def between(source: str, target: str) -> tuple[Value | Storage | Number, ...]:
        return tuple(each for pair in zip(places[source], places[target], strict=True) for each in pair)

    segments = sorted_segments(has_offsets)
    arrays = between("in", "out")
    queue = queue_of_tiles(_OF_LONG, "places", "bins", "lookback")
    parts = (Storage("queue"), Storage("bins"), *places["spare"])
    no_parts = (u64(0),) * len(parts)

    def group(most: int, grid: str, parts: Parameter = no_parts) -> Launch:
        return Launch(f"cupar_segmented_sort_{most}", grid, "group_threads", (arrays, *segments, parts))

    def teams(
        least: int | str, largest: int | str, block: int | str, nbytes: str, parts: Parameter = no_parts
    ) -> Launch:
        parameters = (arrays, *segments, i32(least), i32(largest), parts)
        return Launch("cupar_segmented_sort_teams", "grid", block, parameters, nbytes)

    init = Launch("cupar_segmented_sort_init", 1, _WORDS, (Storage(),))
    long = [
        Launch(
            "cupar_segmented_sort_tiles", "tiles_grid", _TILES_THREADS, (*segments, i32("long_list"), queue)
        ),
        Launch("cupar_segmented_sort_count", "count_grid", "digit_threads", (Value("d_in_keys"), queue)),
    ]
    digit_bytes = spec.arguments[0].value.itemsize
    if has_offsets and digit_bytes > 1:
        to_part = (*segments, i32("long_list"), u32("most_parted"), queue)
        long.append(Launch("cupar_segmented_sort_parts", "parts_grid", _DIGITS, to_part))
    long += [
        Launch(
            "cupar_segmented_sort_digit", "digit_grid", "digit_threads", (between(*way), queue, i32(number))
        )
        for number, way in enumerate(ways(digit_bytes, False))
    ]
    if not has_offsets:
        rows_threads = _TUNABLE.given(spec).rows_threads
        shapes = {str(most): Shape(("n", "size", "grid"), (group(most, "grid"),), 2) for most in groups}
        for size in range(_TEAMS):
            threads = max(32 << size, rows_threads)
            launch = teams(size, size, threads, "nbytes")
            # On some devices the largest team is never used, and too large.
            executables = 2 if threads <= _LEAST_TEAM_THREADS else 0
            shapes[f"teams {size}"] = Shape(("n", "size", "grid", "nbytes"), (launch,), executables)
        shapes["long"] = Shape(("n", "size", "long_list", *_LONG_NUMBERS), (init, *long), 2)
        return shapes
    lists = listing("segmented_sort", (arrays, *segments, i32("copies")))

    def sorting(parts: Parameter) -> list[Launch]:
        of_groups = [group(most, f"grid {most}", parts) for most in reversed(groups)]
        return [teams(0, "largest", "team_threads", "nbytes", parts), *of_groups]

    numbers = (
        *("n", *LIST_NUMBERS, "copies", "largest", "grid", "nbytes"),
        *(f"grid {most}" for most in _GROUPS),
    )
    return {
        "short": Shape(numbers, (init, lists, *sorting(no_parts))),
        "any": Shape((*numbers, "long_list", *_LONG_NUMBERS), (init, lists, *long, *sorting(parts))),
    }


class _LongFacts(NamedTuple):
    """Of the kernels that sort long segments."""

    tile_items: int
    passes: int
    segment_size: int
    key_size: int
    value_size: int
    parts_blocks: int
    tiles_blocks: int
    count_blocks: int  # that run at once, as of all others
    digit_blocks: int


class _SegmentedSortFacts(NamedTuple):
    groups: int  # lists that groups of lanes sort
    lists: int  # and those that teams sort, too
    least: tuple[int, ...]  # items of a segment in each list
    segments_of_block: tuple[int, ...]  # that has groups, by their list
    group_blocks: tuple[int, ...]
    team: int  # items of the smallest
    team_bytes: int  # for each thread
    team_threads: int
    team_blocks: int
    rows_threads: int
    long: _LongFacts


def _planner(given: Properties) -> tuple[Plan, _SegmentedSortFacts]:
    team, threads, group_threads = 32 * given["team_items"], given["team_threads"], given["group_threads"]
    groups = _groups(team)
    tops = [*groups, *(team << size for size in range((threads // 32).bit_length()))]

    def running(kernel: str, threads: int, shared: int = 0) -> int:
        return max(given.resident(f"cupar_segmented_sort_{kernel}", threads, shared), given["sms"])

    none = (1,) * (len(_GROUPS) - len(groups))
    return _plan, given.facts(
        _SegmentedSortFacts,
        groups=len(groups),
        lists=len(tops),
        least=leasts(tops),
        segments_of_block=(*(group_threads // _GROUPS[most] for most in groups), *none),
        group_blocks=(*(running(str(most), group_threads) for most in groups), *none),
        team=team,
        team_blocks=running("teams", threads, threads * given["team_bytes"]),
        long=given.facts(
            _LongFacts,
            parts_blocks=given["sms"] * _PARTS_BLOCKS,
            tiles_blocks=given["sms"] * _TILES_BLOCKS,
            count_blocks=running("count", given["digit_threads"]),
            digit_blocks=running("digit", given["digit_threads"]),
        ),
    )


def _plan(facts: _SegmentedSortFacts, problem: SegmentedSortProblem, emit: Emit) -> int:
    items, n, length = problem
    if n == 0 or items == 0:
        return 0
    groups, lists, least = facts.groups, facts.lists, facts.least
    if length >= least[lists]:
        numbers, nbytes = _long(facts.long, lists, n * length, n, 0, 4 * _WORDS)
        emit(_LONG, (n, length) + numbers)
        return nbytes
    if length > 0:
        return _rows(facts, n, length, emit)
    long_segments = min(n, items // least[lists])
    parted = long_segments if n + _DIGITS * long_segments < _MOST_NUMBERS else 0
    starts = starts_of_lists(n + _DIGITS * parted, items, least)
    listed, end = lay_out_lists(n, starts, 4 * _WORDS)
    teams_used = 0  # sizes of teams that have any segments
    for k in range(groups, lists):
        if items >= least[k]:
            teams_used += 1
    teams = max(min(starts[lists] - starts[groups], facts.team_blocks), 1)
    of_block, most = facts.segments_of_block, facts.group_blocks
    grids = (
        _group_grid(starts[1] - starts[0], of_block[0], most[0]),
        _group_grid(starts[2] - starts[1], of_block[1], most[1]),
        _group_grid(starts[3] - starts[2], of_block[2], most[2]),
        _group_grid(starts[4] - starts[3], of_block[3], most[3]),
        _group_grid(starts[5] - starts[4], of_block[4], most[4]),
        _group_grid(starts[6] - starts[5], of_block[5], most[5]),
    )
    copies = 1 if items <= _MANY * n else 0
    of_teams = (copies, teams_used - 1, teams, facts.team_threads * facts.team_bytes)
    short = (n,) + listed + of_teams + grids
    if long_segments == 0:
        emit(_SHORT, short)
        return end
    numbers, nbytes = _long(facts.long, lists, items, long_segments, parted, end)
    emit(_ANY, short + numbers)
    return nbytes


@helper
def _group_grid(segments: int, of_block: int, most: int) -> int:
    """Return the number of blocks of groups that process a list."""
    return max(min(ceil_div(segments, of_block), most), 1)


@helper
def _long(
    long: _LongFacts, lists: int, items: int, segments: int, parted: int, begin: int
) -> tuple[tuple[int, ...], int]:
    """Lay out the storage of long segments, of which `parted` may be parted.

    Return the plan's numbers and the bytes.
    """
    queue, places, tiles, bins = lay_out_queue(
        items, segments, long.tile_items, long.segment_size, TILE_PLACE, begin
    )
    spare = items if long.passes > 1 else 0
    lookback = bins + aligned(8 * 256 * long.passes * segments)
    keys = lookback + aligned(8 * 256 * tiles)
    values = keys + aligned(long.key_size * spare)
    parts = (lists, queue, places, bins, lookback, segments, tiles, keys, values)
    grids = (
        parted,
        min(segments, long.parts_blocks),
        min(segments, long.tiles_blocks),
        min(tiles, long.count_blocks),
        min(tiles, long.digit_blocks),
    )
    return parts + grids, values + aligned(long.value_size * spare)


@helper
def _rows(facts: _SegmentedSortFacts, n: int, length: int, emit: Emit) -> int:
    """Plan a sort of rows: a kernel."""
    for k in range(facts.groups):
        if length < facts.least[k + 1]:
            emit(_FIRST_GROUP + k, (n, length, min(ceil_div(n, facts.segments_of_block[k]), MOST_BLOCKS)))
            return 0
    size = bits(ceil_div(length, facts.team) - 1)
    threads = max(32 << size, facts.rows_threads)
    grid = min(ceil_div(n, threads // (32 << size)), MOST_BLOCKS)
    emit(_FIRST_TEAM + size, (n, length, grid, threads * facts.team_bytes))
    return 0


def _traits(spec: Specialisation) -> str:
    flags = {
        "is_descending": spec.option("order") == "DESCENDING",
        "has_512": 512 in _groups(_smallest_team(spec)),
    }
    missing = () if spec.has("d_in_values") else void("d_in_values_v")
    return members(*missing, *row_types(spec), **flags, **_TUNABLE.given(spec)._asdict())


SEGMENTED_SORT = Family(
    "segmented_sort/segmented_sort.cuh",
    (
        *("group_threads", "team_threads", "team_items", "team_bytes", "digit_threads", "tile_items"),
        *("passes", "segment_size", "key_size", "value_size", "rows_threads"),
    ),
    _NAMES,
    _shapes,
    _planner,
    _traits,
    tunable=_TUNABLE,
)
