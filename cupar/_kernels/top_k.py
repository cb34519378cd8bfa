"""Plans of top-k: a kernel for segments of some sizes each; for long ones levels of candidates, or digits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from .family import (
    Facts,
    Family,
    Launch,
    Number,
    Parameter,
    Plan,
    Several,
    Shape,
    Storage,
    Value,
    aligned,
    ceil_div,
    i32,
    i64,
    u32,
    u64,
)
from .radix_sort import ways
from .segments import (
    LIST_ITEMS,
    LIST_NUMBERS,
    LIST_THREADS,
    LISTS,
    MOST_BLOCKS,
    NO_LISTS,
    ROWS,
    sorted_segments,
)

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

# Kernels for short segments, and the lists that they work off.
_SHORT = ("few", "warp", "block")
_FEW = 128  # items of a segment, at most
_WARP_THREADS, _WARPS = 128, 4  # of a block whose warps have a segment each
_LEAST_ROOM = 64  # words that a team may find before it looks for fewer
_DIGIT_BITS = 11
_BINS = 1 << _DIGIT_BITS

# Counters: of lists, of tiles and segments, of what is selected, and of sorts.
_WORDS, _COUNTS, _SELECTED, _OF_SORT = 64, 4 * 16, 4 * 18, 4 * 32
_TILES_THREADS, _TILES_BLOCKS, _SORT_TILES_THREADS = 1024, 2, 256


class Top(NamedTuple):
    """What is asked for.

    Attributes
    ----------
    num_items, num_segments : int
    segment_size : int
        Of each row; with offsets 0.
    k : int
        Items of each segment, at most.
    """

    num_items: int
    num_segments: int
    segment_size: int
    k: int

    @property
    def outputs(self) -> int:
        """How many items the outputs have."""
        return self.num_segments * self.k


_SHORT_NUMBERS = tuple(f"{what} {name}" for name in _SHORT for what in ("grid", "room", "shared"))
_QUEUE_NUMBERS = ("queue", "segment_of", "most_selected", "most_segments", "most_tiles", "tiles_grid")
_CANDIDATE_NUMBERS = ("counts", "keys", "positions", "grid", "room", "shared")
_LARGE_NUMBERS = (
    *("bins", "before", "keys", "positions", "sorted_keys", "sorted_positions"),
    *("sort_queue", "sort_segment_of", "sort_bins", "sort_lookback", "sort_tiles"),
    *("digit_grid", "select_grid", "sort_grid", "sort_count_grid", "sort_digit_grid"),
)
_FIRST_LEVELS = 2  # that one shape has at most


def _level_numbers(count: int) -> tuple[str, ...]:
    return ("group", "level_grid", *(f"stride {i}" for i in range(count)))


def _numbers(has_offsets: bool) -> dict[str, tuple[str, ...]]:
    """Return the names of each shape's numbers."""
    given = ("n", "k")
    if has_offsets:
        short = (*given, *LIST_NUMBERS, "list_grid", *_SHORT_NUMBERS)
        found = {"short": short}
        long = (*short, *_QUEUE_NUMBERS)
    else:
        found = {name: (*given, "size", f"grid {name}", f"room {name}", f"shared {name}") for name in _SHORT}
        long = (*given, "size", *_QUEUE_NUMBERS)
    for count in range(1, _FIRST_LEVELS + 1):
        found[f"levels {count}"] = (*long, *_CANDIDATE_NUMBERS, *_level_numbers(count))
    found["level"] = ("k", *_QUEUE_NUMBERS, *_CANDIDATE_NUMBERS, *_level_numbers(1))
    found["large"] = (*long, *_LARGE_NUMBERS)
    return found


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    names = [each.name for each in spec.arguments]
    has_values, has_offsets = "d_in_values" in names, "end_offsets_in" in names
    arrays: Parameter = (Value("d_in_keys"), Value("d_out_keys"), i64("k"))
    values = (Value("d_in_values"), Value("d_out_values")) if has_values else (u64(0), u64(0))
    segments = sorted_segments(has_offsets)
    queue = (
        *(Storage(_COUNTS), Storage(_SELECTED), Storage("queue"), Storage("segment_of")),
        *(u64("most_selected"), u32("most_segments"), u32("most_tiles")),
    )
    candidates = (Storage("counts"), Storage("keys"), Storage("positions"))

    def short(name: str) -> Launch:
        block = "threads" if name == "block" else _WARP_THREADS
        parameters = (arrays, *values, *segments, u32(f"room {name}"))
        return Launch(f"cupar_top_k_{name}", f"grid {name}", block, parameters, f"shared {name}")

    def tiles(bins: Storage | Number, num_bins: int) -> Launch:
        parameters = (*segments, queue, i64("k"), bins, i32(num_bins))
        return Launch("cupar_top_k_tiles", "tiles_grid", _TILES_THREADS, parameters)

    def level(number: int) -> Launch:
        parameters = (
            *(arrays, *values, queue, candidates),
            *(u64(f"stride {number}"), u32("group"), u32("room")),
        )
        return Launch("cupar_top_k_level", "level_grid", "threads", parameters, "shared")

    numbers = _numbers(has_offsets)
    init = Launch("cupar_segmented_sort_init", 1, _WORDS, (Storage(),))
    first = Launch(
        "cupar_top_k_candidates", "grid", "threads", (arrays, queue, candidates, u32("room")), "shared"
    )
    if has_offsets:
        list_of = Launch("cupar_top_k_list", "list_grid", LIST_THREADS, segments)
        of_short = tuple(map(short, _SHORT))
        before: tuple[Launch, ...] = (init, list_of)
        shapes = {"short": Shape(numbers["short"], (*before, *of_short))}
    else:
        before, of_short = (init,), ()
        shapes = {name: Shape(numbers[name], (short(name),), executables=2) for name in _SHORT}
    for count in range(1, _FIRST_LEVELS + 1):
        name, levels = f"levels {count}", tuple(map(level, range(count)))
        launches = (*before, tiles(u64(0), 0), first, *levels, *of_short)
        shapes[name] = Shape(numbers[name], launches, executables=2)
    shapes["level"] = Shape(numbers["level"], (level(0),), executables=0)
    large = (
        *(*before, tiles(Storage("bins"), _BINS)),
        *_large(spec.arguments[0].value.itemsize, queue, arrays, values),
        *of_short,
    )
    shapes["large"] = Shape(numbers["large"], large, executables=1)
    return shapes


def _large(
    key_size: int,
    queue: tuple[Storage | Number, ...],
    arrays: Parameter,
    values: tuple[Parameter, ...],
) -> list[Launch]:
    """Return what selects and sorts where k is large."""
    keys = Value("d_in_keys")
    launches = [
        Launch("cupar_top_k_digit", "digit_grid", "threads", (keys, queue, Storage("bins"), i32(number)))
        for number in range(ceil_div(8 * key_size, _DIGIT_BITS))
    ]
    selection = (Storage("keys"), Storage("positions"), Storage("before"))
    launches += [
        Launch("cupar_top_k_count", "select_grid", "threads", (keys, queue, Storage("before"))),
        Launch("cupar_top_k_select", "select_grid", "threads", (keys, queue, selection)),
    ]
    starts = (Storage("queue"), Storage(_COUNTS))
    of_sort = (
        *(Storage(_OF_SORT), Storage("sort_queue"), Storage("sort_segment_of")),
        *(Storage("sort_bins"), Storage("sort_lookback"), u32("most_segments"), u32("sort_tiles")),
    )
    cut = (starts, (*starts, i64("k")), i64("most_segments"), NO_LISTS, i32(0), of_sort)
    launches += [
        Launch("cupar_segmented_sort_tiles", "sort_grid", _SORT_TILES_THREADS, cut),
        Launch("cupar_segmented_sort_count", "sort_count_grid", "sort_threads", (Storage("keys"), of_sort)),
    ]
    places = {"in": ("keys", "positions"), "out": ("sorted_keys", "sorted_positions")}
    each_way = ways(key_size, True)
    for number, (source, target) in enumerate(each_way):
        pairs = zip(places[source], places[target], strict=True)
        between = tuple(Storage(name) for pair in pairs for name in pair)
        parameters = (between, of_sort, i32(number))
        launches.append(Launch("cupar_segmented_sort_digit", "sort_digit_grid", "sort_threads", parameters))
    _, positions = places[each_way[-1][1]]
    write = (arrays, *values, queue, Storage(positions))
    return [*launches, Launch("cupar_top_k_write", "select_grid", "threads", write)]


def _planner(facts: Facts) -> Callable[[Top], Plan]:  # noqa: PLR0915 - it is many numbers
    sms, threads, tile = facts["sms"], facts["threads"], facts["tile"]
    key_size, word_size = facts["key_size"], facts["word_size"]
    tops = (_FEW, facts["warp"], tile)  # most items of a segment, for each list
    most_of_levels = tile // 4  # items, k at most
    names = {has_offsets: _numbers(has_offsets) for has_offsets in (False, True)}

    @cache
    def running(kernel: str, block: int, shared: int = 0) -> int:
        return max(facts.occupancy(kernel, block, shared), 1) * sms

    def room(k: int, most: int) -> int:
        """Return how many words a team has room for: the next power of two."""
        return min(1 << (max(2 * k, _LEAST_ROOM) - 1).bit_length(), most)

    def short(name: str, k: int, most: int, segments: int, *, has_offsets: bool) -> dict[str, int]:
        """Return the numbers of a kernel for short segments."""
        words, warps = room(k, most), 1 if name == "block" else _WARPS
        block = threads if name == "block" else _WARP_THREADS
        shared = words * warps * word_size
        blocks = max(ceil_div(segments, warps), 1)
        at_most = running(f"cupar_top_k_{name}", block, shared) if has_offsets else MOST_BLOCKS
        grid = min(blocks, at_most)
        return {f"grid {name}": grid, f"room {name}": words, f"shared {name}": shared}

    def long(items: int, segments: int, longest: int, k: int, begin: int) -> tuple[dict[str, int], int]:
        """Lay out what long segments need: return the numbers, and how many bytes there are."""
        tiles = items // tile + segments
        found = {
            "most_selected": items,
            "most_segments": segments,
            "most_tiles": tiles,
            "tiles_grid": min(segments, sms * _TILES_BLOCKS),
        }
        before = (begin, facts["segment_size"] * segments, 4 * tiles)
        if k <= most_of_levels:
            words = room(k, tile)
            shared = words * word_size
            most = running("cupar_top_k_candidates", threads, shared)
            _, *parts, nbytes = aligned(*before, 4 * tiles, key_size * tiles * k, 8 * tiles * k)
            found |= dict(zip(("queue", "segment_of", "counts", "keys", "positions"), parts, strict=True))
            found |= {"grid": min(tiles, most), "room": words, "shared": shared, "group": tile // k}
            most = running("cupar_top_k_level", threads, shared)
            return found | {"level_grid": min(ceil_div(tiles, 32), most)}, nbytes
        selected = min(items, segments * min(k, longest))
        sort_tiles = selected // facts["sort_tile"] + segments
        _, *parts, nbytes = aligned(
            *before,
            *(8 * _BINS * segments, 16 * tiles),
            *(key_size * selected, 8 * selected) * 2,
            *(facts["sort_segment_size"] * segments, 4 * sort_tiles),
            *(8 * 256 * key_size * segments, 8 * 256 * sort_tiles),
        )
        found |= dict(zip(("queue", "segment_of", *_LARGE_NUMBERS[:10]), parts, strict=True))
        sort_threads = facts["sort_threads"]
        return found | {
            "sort_tiles": sort_tiles,
            "digit_grid": min(tiles, running("cupar_top_k_digit", threads)),
            "select_grid": min(tiles, running("cupar_top_k_select", threads)),
            "sort_grid": min(segments, sms * _TILES_BLOCKS),
            "sort_count_grid": min(sort_tiles, running("cupar_segmented_sort_count", sort_threads)),
            "sort_digit_grid": min(sort_tiles, running("cupar_segmented_sort_digit", sort_threads)),
        }, nbytes

    def plan(problem: Top) -> Plan:
        items, n, length, k = problem
        if n == 0 or items == 0 or k == 0:
            return Plan("", 0)
        has_offsets = length == 0
        found = {"n": n, "k": k, "size": length}
        if not has_offsets:
            for name, most in zip(_SHORT, tops, strict=True):
                if length <= most:
                    found |= short(name, k, most, n, has_offsets=False)
                    return Plan(name, 0, tuple(found[each] for each in names[False][name]))
            return of_long(found, items, n, length, 4 * _WORDS)
        # Segments of a list have more items than those of the one before, and do not overlap.
        counts = [min(n, items // least) for least in (1, *(top + 1 for top in tops))]
        firsts = [*accumulate(counts, initial=0)]
        firsts += [firsts[-1]] * (LISTS + 1 - len(firsts))
        _, segments, end = aligned(4 * _WORDS, 4 * firsts[-1])
        found |= {"segments": segments, "list_grid": ceil_div(n, LIST_ITEMS)}
        found |= {f"list {i}": first for i, first in enumerate(firsts)}
        for name, most, count in zip(_SHORT, tops, counts, strict=False):
            found |= short(name, k, most, count, has_offsets=True)
        if counts[-1] == 0:
            return Plan("short", end, tuple(found[each] for each in names[True]["short"]))
        return of_long(found, items, counts[-1], items, end)

    def of_long(found: dict[str, int], items: int, segments: int, longest: int, begin: int) -> Plan:
        k, shapes = found["k"], names[found["size"] == 0]
        numbers, nbytes = long(items, segments, longest, k, begin)
        found |= numbers
        if k > most_of_levels:
            return Plan("large", nbytes, tuple(found[each] for each in shapes["large"]))
        strides, several = [found["group"]], Several()
        while strides[-1] < ceil_div(longest, tile):
            strides.append(strides[-1] * found["group"])
        own = strides[:_FIRST_LEVELS]
        found |= {f"stride {i}": stride for i, stride in enumerate(own)}
        several.add(f"levels {len(own)}", tuple(found[each] for each in shapes[f"levels {len(own)}"]))
        for stride in strides[_FIRST_LEVELS:]:
            found["stride 0"] = stride
            several.add("level", tuple(found[each] for each in shapes["level"]))
        return several.plan(nbytes)

    return plan


def _traits(spec: Specialisation) -> str:
    names = [each.name for each in spec.arguments]
    has_values = "d_in_values" in names
    code = [
        f"static constexpr bool is_descending = {str(spec.option('order') == 'DESCENDING').lower()};",
        f"static constexpr bool has_payload = {str(has_values).lower()};",
        *([] if "start_offsets_in" in names else [ROWS]),
    ]
    # As segmented sorts of keys with positions have them.
    code.append("static constexpr int digit_threads = 512, digit_items = 8;")
    if not has_values:
        code.append("using d_in_values_t = const char*;\nusing d_out_values_t = char*;")
    return "\n".join(code)


TOP_K = Family(
    "top_k/top_k.cuh",
    (
        *("threads", "tile", "warp", "segment_size", "key_size", "word_size"),
        *("sort_threads", "sort_tile", "sort_segment_size"),
    ),
    _shapes,
    _planner,
    _traits,
)
