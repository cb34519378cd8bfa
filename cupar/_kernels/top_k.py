"""Plans of top-k: a kernel for segments of some sizes each; for long ones levels of candidates, or digits.

A single long segment is cut down to groups of its items before that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from . import policies
from .family import (
    Emit,
    Family,
    Field,
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
    i64,
    members,
    prefixed,
    u32,
    u64,
    value_or_null,
)
from .radix_sort import ways
from .segmented_sort import TILE_PLACE
from .segments import (
    LIST_NUMBERS,
    MOST_BLOCKS,
    MOST_LISTED,
    NO_LISTS,
    lay_out_lists,
    lay_out_queue,
    leasts,
    listing,
    row_types,
    sorted_segments,
    starts_of_lists,
)
from .tuning import Tunable, value_types

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

# Kernels for short segments, and the lists that they work off.
_SHORT = ("few", "warp", "block")
_FEW = 128  # items of a segment, at most
_WARP_THREADS, _WARPS = 128, 4  # of a block whose warps have a segment each
_LEAST_CAPACITY, _LEAST_PLACE = 64, 6  # words that a team may find before it looks for fewer; log2 of it
_DIGIT_BITS = 11
_BINS = 1 << _DIGIT_BITS

# Counters: of lists, of tiles and segments, of selected items, and of sorts.
_WORDS, _COUNTS, _SELECTED, _OF_SORT = 64, 4 * 16, 4 * 18, 4 * 32
_TILES_THREADS, _TILES_BLOCKS, _SORT_TILES_THREADS = 1024, 2, 256

# Groups of the items of a single segment: bytes of a group, and the least bytes of a segment with groups. Few
# items are for where k is no small part of them.
_FEW_BYTES, _MANY_BYTES, _LEAST_GROUPED = 64, 1024, 1 << 24
_LEAST_OF_FEW = 1 << 26  # where the groups are no more than a tile
_LEAST_CUT = 8  # times as many items as groups leave, at least
# Words of a block that has a long row, at least; k is such a part of a tile.
_ROWS_CAPACITY, _ROWS_PART = 1024, 4
_GROUP_THREADS, _WARP_BYTES, _GATHER_BLOCKS = 256, 2048, 8  # bytes that a warp reads at once

_LONG = ("levels 1", "levels 2", "level", "large")
_GROUPED = ("groups of few", "groups of many", *(f"grouped {name}" for name in _LONG))
_NAMES = ("short", *_SHORT, *_LONG, *_GROUPED, "rows")
_SHORT_SEGMENTS, _OF_FEW, _OF_WARP, _OF_BLOCK, _OF_ALL = range(5)
_GROUPS_OF_FEW, _GROUPS_OF_MANY, _OF_GROUPS = range(8, 11)
_OF_ROWS = len(_NAMES) - 1
_TWO_LEVELS, _LEVEL, _LARGE = range(1, 4)  # behind the first of what long segments are for


class TopKProblem(NamedTuple):
    """The problem of a top-k selection.

    Attributes
    ----------
    num_items, num_segments : int
    segment_size : int
        Of each row; with offsets 0.
    k : int
        Items of each segment, at most.
    outputs : int
        Of all segments, so that arrays have room for them.
    """

    num_items: int
    num_segments: int
    segment_size: int
    k: int
    outputs: int = 0


_SHORT_NUMBERS = tuple(f"{what} {name}" for name in _SHORT for what in ("grid", "capacity", "shared"))
_QUEUE_NUMBERS = ("queue", "segment_of", "most_selected", "most_segments", "most_tiles", "tiles_grid")
_CANDIDATE_NUMBERS = ("counts", "keys", "positions", "grid", "capacity", "shared", "group", "level_grid")
_LARGE_NUMBERS = (
    *("bins", "before", "keys", "positions", "sorted_keys", "sorted_positions"),
    *("sort_queue", "sort_places", "sort_bins", "sort_lookback", "sort_tiles"),
    *("digit_grid", "select_grid", "sort_grid", "sort_count_grid", "sort_digit_grid"),
)
_GROUPED_NUMBERS = ("bound", "gathered", "groups", "shift")
_GROUP_NUMBERS = (
    *("items", "shift", "firsts", "bins", "before", "gathered", "groups"),
    *("first_grid", "digit_grid", "select_grid", "gather_grid"),
)
_FIRST_LEVELS = 2  # that one shape has at most


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    key_size = spec.arguments[0].value.itemsize
    values = value_or_null(spec, "d_in_values"), value_or_null(spec, "d_out_values")
    has_offsets = spec.has("end_offsets_in")
    segments = sorted_segments(has_offsets)
    given = ("n", "k")

    def short(name: str) -> Launch:
        block = "threads" if name in ("block", "rows") else _WARP_THREADS
        parameters = (_arrays(Value("d_in_keys")), *values, *segments, u32(f"capacity {name}"))
        return Launch(f"cupar_top_k_{name}", f"grid {name}", block, parameters, f"shared {name}")

    init = Launch("cupar_segmented_sort_init", 1, _WORDS, (Storage(),))
    if has_offsets:
        numbers = (*given, *LIST_NUMBERS, *_SHORT_NUMBERS)
        before, of_short = (init, listing("top_k", segments)), tuple(map(short, _SHORT))
        shapes = {"short": Shape(numbers, (*before, *of_short))}
        return shapes | _long_shapes(
            key_size, Value("d_in_keys"), values, segments, numbers, before, of_short
        )
    of_rows = ("rows",) if spec.algorithm == "segmented_top_k" else ()  # an array is one row
    shapes = {
        name: Shape(
            (*given, "size", f"grid {name}", f"capacity {name}", f"shared {name}"),
            (short(name),),
            executables=2,
        )
        for name in (*_SHORT, *of_rows)
    }
    numbers = (*given, "size")
    shapes |= _long_shapes(key_size, Value("d_in_keys"), values, segments, numbers, (init,), ())
    for name in ("few", "many"):
        shapes[f"groups of {name}"] = _groups_of(name, key_size, segments, numbers, init)
    grouped = _long_shapes(
        key_size, Storage("gathered"), values, segments, (*numbers, *_GROUPED_NUMBERS), (init,), ()
    )
    return shapes | {f"grouped {name}": shape for name, shape in grouped.items()}


def _arrays(keys: Value | Storage) -> tuple[Field, ...]:
    """Return the parameter with the keys, given or gathered."""
    items = (Storage("groups"), u64("shift")) if isinstance(keys, Storage) else (u64(0), u64(0))
    return keys, Value("d_out_keys"), i64("k"), *items


_QUEUE = (
    *(Storage(_COUNTS), Storage(_SELECTED), Storage("queue"), Storage("segment_of")),
    *(u64("most_selected"), u32("most_segments"), u32("most_tiles")),
)


def _tiles(segments: tuple[Parameter, ...], num_bins: int, bound: Storage | Number) -> Launch:
    bins = Storage("bins") if num_bins else u64(0)
    parameters = (*segments, _QUEUE, i64("k"), bins, i32(num_bins), bound)
    return Launch("cupar_top_k_tiles", "tiles_grid", _TILES_THREADS, parameters)


def _long_shapes(
    key_size: int,
    keys: Value | Storage,
    values: tuple[Parameter, ...],
    segments: tuple[Parameter, ...],
    numbers: tuple[str, ...],
    before: tuple[Launch, ...],
    after: tuple[Launch, ...],
) -> dict[str, Shape]:
    """Return shapes for long segments of keys, whose numbers all begin alike."""
    arrays = _arrays(keys)
    bound: Storage | Number = Storage("bound") if isinstance(keys, Storage) else u64(0)
    candidates = (Storage("counts"), Storage("keys"), Storage("positions"))
    numbers = (*numbers, *_QUEUE_NUMBERS)

    def level(number: int) -> Launch:
        parameters = (
            *(arrays, *values, _QUEUE, candidates),
            *(u64(f"stride {number}"), u32("group"), u32("capacity")),
        )
        return Launch("cupar_top_k_level", "level_grid", "threads", parameters, "shared")

    first = Launch(
        "cupar_top_k_candidates", "grid", "threads", (arrays, _QUEUE, candidates, u32("capacity")), "shared"
    )
    shapes = {}
    for count in range(1, _FIRST_LEVELS + 1):
        strides = tuple(f"stride {i}" for i in range(count))
        launches = (*before, _tiles(segments, 0, bound), first, *map(level, range(count)), *after)
        shapes[f"levels {count}"] = Shape((*numbers, *_CANDIDATE_NUMBERS, *strides), launches, executables=2)
    shapes["level"] = Shape((*numbers, *_CANDIDATE_NUMBERS, "stride 0"), (level(0),), executables=0)
    large = (
        *(
            *before,
            _tiles(segments, _BINS, bound),
            *_selected(key_size, keys, Storage("keys"), Storage("positions")),
        ),
        *_sorted(key_size, arrays, values),
        *after,
    )
    shapes["large"] = Shape((*numbers, *_LARGE_NUMBERS), large, executables=1)
    return shapes


def _groups_of(
    name: str, key_size: int, segments: tuple[Parameter, ...], numbers: tuple[str, ...], init: Launch
) -> Shape:
    """Return what finds and gathers the groups of a single segment: it is one of their first keys."""
    keys = Value("d_in_keys")
    first = (keys, Storage("firsts"), i64("items"))
    groups = (Storage("groups"), u64("shift"))
    gather = (keys, Storage("gathered"), groups, i64("k"), i64("items"))
    launches = (
        init,
        Launch(f"cupar_top_k_first_of_{name}", "first_grid", _GROUP_THREADS, first),
        _tiles(segments, _BINS, u64(0)),
        *_selected(key_size, Storage("firsts"), Storage("gathered"), Storage("groups")),
        Launch("cupar_top_k_gather", "gather_grid", _GROUP_THREADS, gather),
    )
    return Shape((*numbers, *_QUEUE_NUMBERS, *_GROUP_NUMBERS), launches, executables=1)


def _selected(key_size: int, keys: Value | Storage, found: Storage, positions: Storage) -> list[Launch]:
    """Return the launches that find the k-th key digit by digit, and the items before it, in their order."""
    launches = [
        Launch("cupar_top_k_digit", "digit_grid", "threads", (keys, _QUEUE, Storage("bins"), i32(number)))
        for number in range(ceil_div(8 * key_size, _DIGIT_BITS))
    ]
    selection = (found, positions, Storage("before"))
    return [
        *launches,
        Launch("cupar_top_k_count", "select_grid", "threads", (keys, _QUEUE, Storage("before"))),
        Launch("cupar_top_k_select", "select_grid", "threads", (keys, _QUEUE, selection)),
    ]


def _sorted(key_size: int, arrays: Parameter, values: tuple[Parameter, ...]) -> list[Launch]:
    """Return the launches that sort the selected items, and write them."""
    starts = (Storage("queue"), Storage(_COUNTS))
    of_sort = (
        *(Storage(_OF_SORT), Storage("sort_queue"), Storage("sort_places")),
        *(Storage("sort_bins"), Storage("sort_lookback"), u32("most_segments"), u32("sort_tiles")),
    )
    cut = (starts, (*starts, i64("k")), i64("most_segments"), NO_LISTS, i32(0), of_sort)
    launches = [
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
    write = (arrays, *values, _QUEUE, Storage(positions))
    return [*launches, Launch("cupar_top_k_write", "select_grid", "threads", write)]


_CAPACITIES = 8  # for 64 words, 128, …, 8192: a tile's at most


class _Running(NamedTuple):
    """Resident blocks of kernels by how many words their shared memory can hold."""

    few: tuple[int, ...]
    warp: tuple[int, ...]
    block: tuple[int, ...]
    candidates: tuple[int, ...]
    level: tuple[int, ...]


class _SortFacts(NamedTuple):
    """Of the kernels that sort where k is large."""

    tile: int
    segment_size: int
    digit_blocks: int  # that run at once, as of all others
    select_blocks: int
    count_blocks: int
    sort_blocks: int


class _TopKFacts(NamedTuple):
    sms: int
    tile: int
    warp: int  # items of a segment that a warp has, at most
    least: tuple[int, ...]  # items of a segment in each list
    word_size: int
    key_size: int
    segment_size: int
    tiles_blocks: int
    first_blocks: int  # of kernels that go through groups, that run at once
    gather_blocks: int
    running: _Running
    sort: _SortFacts


def _planner(given: Properties) -> tuple[Plan, _TopKFacts]:
    sms, threads, tile, word_size = given["sms"], given["threads"], given["tile"], given["word_size"]

    def running(kernel: str, block: int, shared: int = 0) -> int:
        return max(given.resident(kernel, block, shared), sms)

    def by_capacity(kernel: str, block: int, most: int, warps: int) -> tuple[int, ...]:
        words = (min(_LEAST_CAPACITY << k, most) for k in range(_CAPACITIES))
        return tuple(running(f"cupar_top_k_{kernel}", block, each * warps * word_size) for each in words)

    of_sort = {name: given[f"sort_{name}"] for name in ("threads", "tile", "segment_size")}
    return _plan, given.facts(
        _TopKFacts,
        least=leasts([_FEW, given["warp"], tile]),
        tiles_blocks=sms * _TILES_BLOCKS,
        first_blocks=running("cupar_top_k_first_of_many", _GROUP_THREADS) if given["has_groups"] else 0,
        gather_blocks=sms * _GATHER_BLOCKS,
        running=_Running(
            by_capacity("few", _WARP_THREADS, _FEW, _WARPS),
            by_capacity("warp", _WARP_THREADS, given["warp"], _WARPS),
            *(by_capacity(kernel, threads, tile, 1) for kernel in ("block", "candidates", "level")),
        ),
        sort=_SortFacts(
            of_sort["tile"],
            of_sort["segment_size"],
            *(running(f"cupar_top_k_{kernel}", threads) for kernel in ("digit", "select")),
            *(running(f"cupar_segmented_sort_{each}", of_sort["threads"]) for each in ("count", "digit")),
        ),
    )


def _plan(facts: _TopKFacts, problem: TopKProblem, emit: Emit) -> int:
    items, n, length, k, _ = problem
    if n == 0 or items == 0 or k == 0:
        return 0
    tile, warp, word_size, running = facts.tile, facts.warp, facts.word_size, facts.running
    if length > tile:
        if n == 1 and length * facts.key_size >= _LEAST_GROUPED:
            size = _group(length, k, facts.key_size)
            if size > 0 and (k * size > tile or length * facts.key_size >= _LEAST_OF_FEW):
                return _plan_groups(facts, length, k, size, emit)
        if n >= facts.sms and k <= tile // _ROWS_PART and length <= MOST_LISTED:
            capacity = max(_capacity(2 * k, tile), min(_ROWS_CAPACITY, tile))
            emit(_OF_ROWS, (n, k, length, min(n, MOST_BLOCKS), capacity, capacity * word_size))
            return 0
        return _plan_long(facts, (n, k, length), k, items, n, length, 4 * _WORDS, _OF_ALL, emit)
    if length > 0:
        if length <= _FEW:
            emit(_OF_FEW, (n, k, length) + _short(k, _FEW, _WARPS, word_size, n))
        elif length <= warp:
            emit(_OF_WARP, (n, k, length) + _short(k, warp, _WARPS, word_size, n))
        else:
            emit(_OF_BLOCK, (n, k, length) + _short(k, tile, 1, word_size, n))
        return 0
    starts = starts_of_lists(n, items, facts.least)
    lists, end = lay_out_lists(n, starts, 4 * _WORDS)
    few = _short(k, _FEW, _WARPS, word_size, starts[1])
    of_warp = _short(k, warp, _WARPS, word_size, starts[2] - starts[1])
    block = _short(k, tile, 1, word_size, starts[3] - starts[2])
    short = (
        (n, k)
        + lists
        + (min(few[0], running.few[_place(few[1])]), few[1], few[2])
        + (min(of_warp[0], running.warp[_place(of_warp[1])]), of_warp[1], of_warp[2])
        + (min(block[0], running.block[_place(block[1])]), block[1], block[2])
    )
    long_segments = starts[4] - starts[3]
    if long_segments == 0:
        emit(_SHORT_SEGMENTS, short)
        return end
    return _plan_long(facts, short, k, items, long_segments, items, end, _OF_ALL, emit)


@helper
def _capacity(k: int, most: int) -> int:
    """Return the number of words that a team can hold: the next power of two."""
    return min(1 << bits(max(2 * k, _LEAST_CAPACITY) - 1), most)


@helper
def _place(capacity: int) -> int:
    """Return the place of a capacity among all that there are."""
    return bits(capacity - 1) - _LEAST_PLACE


@helper
def _short(k: int, most: int, warps: int, word_size: int, segments: int) -> tuple[int, int, int]:
    """Return the grid of a kernel for short segments, its capacity in words, and its shared memory."""
    capacity = _capacity(k, most)
    return min(max(ceil_div(segments, warps), 1), MOST_BLOCKS), capacity, capacity * warps * word_size


@helper
def _plan_long(
    facts: _TopKFacts,
    head: tuple[int, ...],
    k: int,
    items: int,
    segments: int,
    longest: int,
    begin: int,
    shapes: int,
    emit: Emit,
) -> int:
    """Plan what long segments need, behind the numbers that all those shapes of a build begin with."""
    tile, key_size = facts.tile, facts.key_size
    queue, segment_of, tiles, end = lay_out_queue(items, segments, tile, facts.segment_size, 4, begin)
    of_queue = (queue, segment_of, items, segments, tiles, min(segments, facts.tiles_blocks))
    if k > tile // 4:
        selected = min(items, segments * min(k, longest))
        return _plan_large(facts, head + of_queue, segments, tiles, selected, end, shapes, emit)
    capacity = _capacity(k, tile)
    place = _place(capacity)
    keys = end + aligned(4 * tiles)
    positions = keys + aligned(key_size * tiles * k)
    grid = min(tiles, facts.running.candidates[place])
    group, level_grid = tile // k, min(ceil_div(tiles, 32), facts.running.level[place])
    candidates = (end, keys, positions, grid, capacity, capacity * facts.word_size, group, level_grid)
    most = ceil_div(longest, tile)
    if group >= most:
        emit(shapes, head + of_queue + candidates + (group,))
    else:
        stride = group * group
        emit(shapes + _TWO_LEVELS, head + of_queue + candidates + (group, stride))
        while stride < most:
            stride *= group
            emit(shapes + _LEVEL, head + of_queue + candidates + (stride,))
    return positions + aligned(8 * tiles * k)


@helper
def _plan_large(
    facts: _TopKFacts,
    head: tuple[int, ...],
    segments: int,
    tiles: int,
    selected: int,
    begin: int,
    shapes: int,
    emit: Emit,
) -> int:
    """Plan what selects and sorts where k is large."""
    key_size, sort = facts.key_size, facts.sort
    before = begin + aligned(8 * _BINS * segments)
    keys = before + aligned(16 * tiles)
    positions = keys + aligned(key_size * selected)
    sorted_keys = positions + aligned(8 * selected)
    sorted_positions = sorted_keys + aligned(key_size * selected)
    end = sorted_positions + aligned(8 * selected)
    queue, places, sort_tiles, bins = lay_out_queue(
        selected, segments, sort.tile, sort.segment_size, TILE_PLACE, end
    )
    lookback = bins + aligned(8 * 256 * key_size * segments)
    parts = (begin, before, keys, positions, sorted_keys, sorted_positions, queue, places, bins, lookback)
    grids = (
        min(tiles, sort.digit_blocks),
        min(tiles, sort.select_blocks),
        min(segments, facts.tiles_blocks),
        min(sort_tiles, sort.count_blocks),
        min(sort_tiles, sort.sort_blocks),
    )
    emit(shapes + _LARGE, head + parts + (sort_tiles,) + grids)
    return lookback + aligned(8 * 256 * sort_tiles)


@helper
def _group(items: int, k: int, key_size: int) -> int:
    """Return the number of items in a group of a single segment; 0: groups would leave too many.

    The bytes read after the first pass are least where a group has sqrt(items / k) items.
    """
    few, many = _FEW_BYTES // key_size, _MANY_BYTES // key_size
    if items // k >= few * many:
        return many
    return few if items // k >= _LEAST_CUT * few else 0


@helper
def _plan_groups(facts: _TopKFacts, items: int, k: int, size: int, emit: Emit) -> int:
    """Plan the search for the k best groups of a single segment, and the selection of items in these.

    Levels leave a single tile alone, so more groups are gathered than k if those were one.
    """
    key_size, sort = facts.key_size, facts.sort
    wanted = max(k, facts.tile // size + 1)
    groups = ceil_div(items, size)
    queue, segment_of, tiles, firsts = lay_out_queue(groups, 1, facts.tile, facts.segment_size, 4, 4 * _WORDS)
    bins = firsts + aligned(key_size * groups)
    before = bins + aligned(8 * _BINS)
    gathered = before + aligned(16 * tiles)
    places = gathered + aligned(key_size * wanted * size)
    end = places + aligned(8 * wanted)
    shift = bits(size - 1)
    of_queue = (queue, segment_of, groups, 1, tiles, 1)
    parts = (items, shift, firsts, bins, before, gathered, places)
    of_warps = ceil_div(items * key_size, _WARP_BYTES * _GROUP_THREADS // 32)
    grids = (
        min(of_warps, facts.first_blocks),
        min(tiles, sort.digit_blocks),
        min(tiles, sort.select_blocks),
        min(ceil_div(wanted * size, _GROUP_THREADS), facts.gather_blocks),
    )
    kind = _GROUPS_OF_MANY if size * key_size == _MANY_BYTES else _GROUPS_OF_FEW
    emit(kind, (1, wanted, groups) + of_queue + parts + grids)
    left = wanted * size
    head = (1, k, left, queue, gathered, places, shift)
    return _plan_long(facts, head, k, left, 1, left, end, _OF_GROUPS, emit)


_MOST_TILE = 1 << 13  # items: places in a tile have 13 bits


def _default(spec: Specialisation) -> policies.TopKPolicy:
    return policies.TOP_K.get(spec.cc, 4 if spec.arguments[0].value.itemsize <= 4 else 8)


def _space(spec: Specialisation) -> Mapping[str, tuple[int, ...]]:
    return {"threads": (128, 256, 512), "items": (4, 8, 16)}


def _fits(spec: Specialisation, policy: policies.TopKPolicy) -> bool:
    return policy.threads * policy.items <= _MOST_TILE


_TUNABLE = Tunable("top-k", policies.TopKPolicy, _default, value_types, _space, _fits)


def _traits(spec: Specialisation) -> str:
    has_values = spec.has("d_in_values")
    constants = {
        "is_descending": spec.option("order") == "DESCENDING",
        "has_payload": has_values,
        # As segmented sorts of keys with positions have them.
        "digit_threads": 512,
        "digit_items": 8,
    }
    values = () if has_values else ("using d_in_values_t = const char*;", "using d_out_values_t = char*;")
    policy = prefixed("policy_", _TUNABLE.given(spec))
    return members(*values, *row_types(spec), **constants, **policy)


TOP_K = Family(
    "top_k/top_k.cuh",
    (
        *("threads", "tile", "warp", "segment_size", "key_size", "word_size"),
        *("sort_threads", "sort_tile", "sort_segment_size", "has_groups"),
    ),
    _NAMES,
    _shapes,
    _planner,
    _traits,
    tunable=_TUNABLE,
)
