"""Plans of segmented sorts: kernels for segments of some sizes each, and a kernel a digit for long ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from . import policies
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
from .radix_sort import ways
from .segments import LIST_ITEMS, LIST_NUMBERS, LIST_THREADS, LISTS, MOST_BLOCKS, ROWS, sorted_segments
from .tuning import Tunable, types

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

# Kernels for groups of lanes, by the most items of a segment: how many lanes.
_GROUPS = {16: 4, 32: 4, 64: 8, 128: 8, 256: 16, 512: 32}
_TEAMS = 5  # sizes, at most: of 1 to 16 warps
_WORDS = 32  # of counters: of the lists, and behind them those of long segments
_OF_LONG = 4 * 16
_MOST_SHARED = 48 << 10  # bytes, static, of a block
_TILES_THREADS, _TILES_BLOCKS = 256, 8
_LEAST_TEAM_THREADS = 256  # that the largest team has on every device


class Sorted(NamedTuple):
    """What is sorted.

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
    *("queue", "segment_of", "bins", "lookback", "most_segments", "most_tiles", "keys", "values"),
    *("tiles_grid", "count_grid", "digit_grid"),
)


def _sizes(spec: Specialisation) -> tuple[int, int]:
    """Return bytes of the words that are sorted, and of what is staged for each key of a long segment.

    A word holds a key; with values also a place, in as many bits.
    """
    key = spec.arguments[0].value.itemsize
    values = [each.value.itemsize for each in spec.arguments if each.name == "d_in_values"]
    word = max(4, key * (1 + len(values)))
    return word, max(key, *(size for size in values if size <= 16), 1)


def _default(spec: Specialisation) -> policies.SegmentedSort:
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


def _fits(spec: Specialisation, policy: policies.SegmentedSort) -> bool:
    word, staged = _sizes(spec)
    return (
        policy.group_threads * 17 * word <= _MOST_SHARED
        # Of words of 16 bytes, half as many fill the registers.
        and policy.team_items * word <= 256
        and (spec.cc >= 80 or policy.team_items * word <= 128)
        and policy.digit_threads * policy.digit_items * staged <= _MOST_SHARED - 4096
    )


def _facts_of(spec: Specialisation) -> dict[str, str]:
    names = {each.name for each in spec.arguments}
    return {
        **types(spec, "d_in_keys", "d_in_values"),
        "segments": "offsets" if "start_offsets_in" in names else "rows",
    }


_TUNABLE = Tunable("segmented sort", policies.SegmentedSort, _default, _facts_of, _space, _fits)


def _smallest_team(spec: Specialisation) -> int:
    """Return how many items the smallest team has: a warp."""
    return 32 * _TUNABLE.given(spec).team_items


def _groups(smallest_team: int) -> list[int]:
    """Return for how many items there are groups of lanes: for fewer than the smallest team has."""
    return [most for most in _GROUPS if most < smallest_team]


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    names = [each.name for each in spec.arguments]
    has_values, has_offsets = "d_in_values" in names, "end_offsets_in" in names
    groups = _groups(_smallest_team(spec))
    places: dict[str, tuple[Value | Storage | Number, ...]] = {
        end: (Value(f"d_{end}_keys"), Value(f"d_{end}_values") if has_values else u64(0))
        for end in ("in", "out")
    }
    places["spare"] = (Storage("keys"), Storage("values") if has_values else u64(0))

    def between(source: str, target: str) -> tuple[Value | Storage | Number, ...]:
        return tuple(each for pair in zip(places[source], places[target], strict=True) for each in pair)

    segments = sorted_segments(has_offsets)
    arrays = between("in", "out")
    queue = (
        *(Storage(_OF_LONG), Storage("queue"), Storage("segment_of"), Storage("bins"), Storage("lookback")),
        *(u32("most_segments"), u32("most_tiles")),
    )

    def group(most: int, grid: str) -> Launch:
        return Launch(f"cupar_segmented_sort_{most}", grid, "group_threads", (arrays, *segments))

    def teams(least: int | str, largest: int | str, block: int | str, nbytes: str) -> Launch:
        parameters = (arrays, *segments, i32(least), i32(largest))
        return Launch("cupar_segmented_sort_teams", "grid", block, parameters, nbytes)

    init = Launch("cupar_segmented_sort_init", 1, _WORDS, (Storage(),))
    long = [
        Launch(
            "cupar_segmented_sort_tiles", "tiles_grid", _TILES_THREADS, (*segments, i32("long_list"), queue)
        ),
        Launch("cupar_segmented_sort_count", "count_grid", "digit_threads", (Value("d_in_keys"), queue)),
    ]
    long += [
        Launch(
            "cupar_segmented_sort_digit", "digit_grid", "digit_threads", (between(*way), queue, i32(number))
        )
        for number, way in enumerate(ways(spec.arguments[0].value.itemsize, False))
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
    lists_of = Launch("cupar_segmented_sort_list", "list_grid", LIST_THREADS, segments)
    short = (
        *(init, lists_of, teams(0, "largest", "team_threads", "nbytes")),
        *(group(most, f"grid {most}") for most in reversed(groups)),
    )
    numbers = (
        *("n", *LIST_NUMBERS, "list_grid", "largest", "grid", "nbytes"),
        *(f"grid {most}" for most in groups),
    )
    return {
        "short": Shape(numbers, short),
        "any": Shape((*numbers, "long_list", *_LONG_NUMBERS), (*short[:2], *long, *short[2:])),
    }


def _planner(facts: Facts) -> Callable[[Sorted], Plan]:
    sms = facts["sms"]
    team = 32 * facts["team_items"]  # items of the smallest
    sizes = (facts["team_threads"] // 32).bit_length()  # of teams
    lanes = {most: _GROUPS[most] for most in _groups(team)}
    tops = [*lanes, *(team << size for size in range(sizes))]  # most items of a segment, for each list
    groups = {most: facts["group_threads"] // each for most, each in lanes.items()}  # of a block
    nbytes = facts["team_threads"] * facts["team_bytes"]

    def running(kernel: str, threads: int, shared: int = 0) -> int:
        return max(facts.occupancy(f"cupar_segmented_sort_{kernel}", threads, shared), 1) * sms

    most_teams = running("teams", facts["team_threads"], nbytes)
    most_groups = {most: running(str(most), facts["group_threads"]) for most in groups}
    most_count, most_digit = (running(each, facts["digit_threads"]) for each in ("count", "digit"))

    def long(items: int, segments: int, begin: int) -> tuple[int, tuple[int, ...]]:
        """Lay out what long segments need, and return how many bytes there are and their numbers."""
        tiles = items // facts["tile_items"] + segments
        bins = facts["passes"] * 256
        spare = items if facts["passes"] > 1 else 0
        *parts, nbytes = aligned(
            begin,
            facts["segment_size"] * segments,
            4 * tiles,
            8 * bins * segments,
            8 * 256 * tiles,
            facts["key_size"] * spare,
            facts["value_size"] * spare,
        )
        _, queue, segment_of, of_bins, lookback, keys, values = parts
        numbers = (
            *(len(tops), queue, segment_of, of_bins, lookback, segments, tiles, keys, values),
            *(min(segments, sms * _TILES_BLOCKS), min(tiles, most_count), min(tiles, most_digit)),
        )
        return nbytes, numbers

    def plan(problem: Sorted) -> Plan:
        items, n, length = problem
        if n == 0 or items == 0:
            return Plan("", 0)
        if length > tops[-1]:
            nbytes_of_long, numbers = long(n * length, n, 4 * _WORDS)
            return Plan("long", nbytes_of_long, (n, length, *numbers))
        if length > 0:
            return rows(n, length)
        # Segments of a list have more items than those of the one before, and do not overlap.
        leasts = [1, *(top + 1 for top in tops)]
        counts = [min(n, items // least) for least in leasts]
        firsts = [*accumulate(counts, initial=0)]
        firsts += [firsts[-1]] * (LISTS + 1 - len(firsts))
        _, segments, end = aligned(4 * _WORDS, 4 * firsts[-1])
        of_teams = counts[len(groups) : len(tops)]
        numbers = (
            *(n, segments, *firsts, ceil_div(n, LIST_ITEMS)),
            *(sum(count > 0 for count in of_teams) - 1, max(min(sum(of_teams), most_teams), 1), nbytes),
            *(
                max(min(ceil_div(count, groups[most]), most_groups[most]), 1)
                for most, count in zip(groups, counts, strict=False)
            ),
        )
        if counts[len(tops)] == 0:
            return Plan("short", end, numbers)
        nbytes_of_all, more = long(items, counts[len(tops)], end)
        return Plan("any", nbytes_of_all, (*numbers, *more))

    def rows(n: int, length: int) -> Plan:
        """Plan a sort of rows: a kernel."""
        for most, rows_of_a_block in groups.items():
            if length <= most:
                return Plan(str(most), 0, (n, length, min(ceil_div(n, rows_of_a_block), MOST_BLOCKS)))
        size = (ceil_div(length, team) - 1).bit_length()
        threads = max(32 << size, facts["rows_threads"])
        teams = threads // (32 << size)
        grid = min(ceil_div(n, teams), MOST_BLOCKS)
        return Plan(f"teams {size}", 0, (n, length, grid, threads * facts["team_bytes"]))

    return plan


def _traits(spec: Specialisation) -> str:
    is_descending = str(spec.option("order") == "DESCENDING").lower()
    code = [f"static constexpr bool is_descending = {is_descending};"]
    names = [each.name for each in spec.arguments]
    if "d_in_values" not in names:
        code.append("using d_in_values_v = void;")
    has_512 = str(512 in _groups(_smallest_team(spec))).lower()
    code.append(f"static constexpr bool has_512 = {has_512};")
    policy = _TUNABLE.given(spec)
    constants = ", ".join(f"{name} = {value}" for name, value in policy._asdict().items())
    code.append(f"static constexpr int {constants};")
    if "start_offsets_in" not in names:
        code.append(ROWS)
    return "\n".join(code)


SEGMENTED_SORT = Family(
    "segmented_sort/segmented_sort.cuh",
    (
        *("group_threads", "team_threads", "team_items", "team_bytes", "digit_threads", "tile_items"),
        *("passes", "segment_size", "key_size", "value_size", "rows_threads"),
    ),
    _shapes,
    _planner,
    _traits,
    tunable=_TUNABLE,
)
