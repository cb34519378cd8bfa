"""Plans of radix sorts: one block; or a count of all digits, and a kernel for each digit and portion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from . import policies
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
    ceil_div,
    helper,
    i32,
    members,
    prefixed,
    u32,
    u64,
    value_or_null,
    void,
)
from .tuning import Tunable, value_types

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_RADIX_BITS = 8  # of a digit
_DIGITS = 1 << _RADIX_BITS
_PORTION = 2**30 - 1  # items that look-back can count. In CUB 2^28 - 1, "for testing purposes".
_BINS = 256  # where they begin in the temporary storage of sorts of one portion, after the counters
_INIT_THREADS, _COPY_THREADS = 1024, 256
_MOST_SHARED = 48 << 10  # bytes, static, of a block
_COPY_BLOCKS = 8  # for each multiprocessor

# Between which arrays a pass may go: the input, the output, and spare ones in the temporary storage.
_WAYS = (("in", "out"), ("in", "spare"), ("out", "spare"), ("spare", "out"), ("out", "in"))


_NAMES = (
    *("tile", "tile in place", "copy", "all digits", "start", "start_wide"),
    *(f"{source} to {target}{kind}" for kind in ("", "_wide") for source, target in _WAYS),
)
_TILE, _TILE_IN_PLACE, _COPY, _ALL_DIGITS, _START, _, _FIRST_WAY = range(7)


class RadixSortProblem(NamedTuple):
    """The problem of a radix sort: which bits it is by, and whether the input may be overwritten."""

    num_items: int
    begin_bit: int
    end_bit: int
    is_overwritten: bool

    @property
    def passes(self) -> int:
        """The number of digits."""
        return ceil_div(self.end_bit - self.begin_bit, _RADIX_BITS)

    @property
    def is_in_output(self) -> bool:
        """Whether the result is in the output, and not in the input, which may be overwritten."""
        return not self.is_overwritten or (self.num_items > 0 and self.passes % 2 == 1)


def ways(passes: int, is_overwritten: bool) -> list[tuple[str, str]]:
    """Return between which arrays each pass goes: the last one to the output, or to where the input was."""
    if is_overwritten:
        return [("out", "in") if number % 2 else ("in", "out") for number in range(passes)]
    targets = ["spare" if (passes - number) % 2 == 0 else "out" for number in range(passes)]
    return [*zip(["in", *targets], targets, strict=False)]


@helper
def _way(number: int, passes: int, is_overwritten: bool) -> int:
    """Return which of `_WAYS` a pass goes, by its number among all passes: as in `ways`."""
    if is_overwritten:
        return 4 if number % 2 else 0
    is_to_output = (passes - number) % 2 == 1
    if number == 0:
        return 0 if is_to_output else 1
    return 3 if is_to_output else 2


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    places: dict[str, tuple[Value | Storage | Number, ...]] = {
        end: (Value(f"d_{end}_keys"), value_or_null(spec, f"d_{end}_values")) for end in ("in", "out")
    }
    places["spare"] = (Storage("keys"), Storage("values"))

    def between(source: str, target: str) -> tuple[Value | Storage | Number, ...]:
        """Return the arrays that a kernel writes and reads: keys, then values."""
        return tuple(each for pair in zip(places[target], places[source], strict=True) for each in pair)

    def tile(target: str) -> Launch:
        parameters = (*between("in", target), i32("n"), i32("begin"), i32("end"))
        return Launch("cupar_radix_sort_tile", 1, "tile_threads", parameters)

    copy = (*between("in", "out"), u64("n"))
    shapes = {
        "tile": Shape(("n", "begin", "end"), (tile("out"),)),
        "tile in place": Shape(("n", "begin", "end"), (tile("in"),), executables=1),
        "copy": Shape(
            ("n", "grid"), (Launch("cupar_radix_sort_copy", "grid", _COPY_THREADS, copy),), executables=0
        ),
        "all digits": _all_digits(spec.arguments[0].value.itemsize, between),
    }
    for kind, n in (("", u32("n")), ("_wide", u64("n"))):
        count = (
            *(Value("d_in_keys"), Storage(), Storage("bins"), Storage("lookback")),
            *(i32("tiles"), n, i32("begin"), i32("end")),
        )
        shapes[f"start{kind}"] = Shape(
            ("n", "begin", "end", "words", "grid", "bins", "lookback", "tiles"),
            (
                Launch("cupar_radix_sort_init", 1, _INIT_THREADS, (Storage(), i32("words"))),
                Launch(f"cupar_radix_sort_count{kind}", "grid", f"count_threads{kind}", count),
            ),
            executables=0,
        )
        numbers = ("n", "grid", "counter", "bins", "lookback", "next", "next_tiles", "bit", "bits")
        of_portions = (Storage("next_bins"), u64("first")) if kind else ()
        for source, target in _WAYS:
            digit = (
                *(
                    Storage("counter"),
                    Storage("bins"),
                    Storage("lookback"),
                    Storage("next"),
                    i32("next_tiles"),
                ),
                *between(source, target),
                *(i32("n"), i32("bit"), i32("bits"), *of_portions),
            )
            shapes[f"{source} to {target}{kind}"] = Shape(
                (*numbers, "keys", "values", "next_bins", "first"),
                (Launch(f"cupar_radix_sort_digit{kind}", "grid", f"threads{kind}", digit),),
                executables=0,
            )
    return shapes


def _all_digits(passes: int, between: Callable[[str, str], tuple[Value | Storage | Number, ...]]) -> Shape:
    """Return the shape of sorts by all bits of items that are one portion, as most sorts are."""
    bins, all_bits = 4 * _DIGITS, passes * _RADIX_BITS
    words, n = (_BINS + passes * bins) // 4, i32("n")
    lookback = Storage(4 * words), Storage("next")
    count = (
        Value("d_in_keys"),
        Storage(),
        Storage(_BINS),
        lookback[0],
        i32("tiles"),
        n,
        i32(0),
        i32(all_bits),
    )
    launches = [
        Launch("cupar_radix_sort_init", 1, _INIT_THREADS, (Storage(), i32(words))),
        Launch("cupar_radix_sort_count", "count_grid", "count_threads", count),
    ]
    for number, way in enumerate(ways(passes, False)):
        parameters = (
            *(Storage(4 * (1 + number)), Storage(_BINS + number * bins)),
            *(lookback[number % 2], lookback[1 - number % 2], i32("tiles" if number < passes - 1 else 0)),
            *between(*way),
            *(n, i32(number * _RADIX_BITS), i32(_RADIX_BITS)),
        )
        launches.append(Launch("cupar_radix_sort_digit", "tiles", "threads", parameters))
    return Shape(("n", "tiles", "count_grid", "next", "keys", "values"), tuple(launches))


class _Digits(NamedTuple):
    """How digits are counted and sorted, with offsets of 4 or 8 bytes."""

    tile: int
    count_tile: int
    count_blocks: int  # that run at once
    offset_size: int


class _RadixSortFacts(NamedTuple):
    one: int  # items that one block sorts
    copy_blocks: int
    key_size: int
    value_size: int
    narrow: _Digits
    wide: _Digits  # of more items than one portion has


def _planner(given: Properties) -> tuple[Plan, _RadixSortFacts]:
    def digits(kind: str, offset_size: int) -> _Digits:
        threads = given[f"count_threads{kind}"]
        tile, count_tile = (
            given[f"threads{kind}"] * given[f"items{kind}"],
            threads * given[f"count_items{kind}"],
        )
        return _Digits(
            tile, count_tile, given.resident(f"cupar_radix_sort_count{kind}", threads), offset_size
        )

    return _plan, given.facts(
        _RadixSortFacts,
        one=given["tile_threads"] * given["tile_items"],
        copy_blocks=given["sms"] * _COPY_BLOCKS,
        narrow=digits("", 4),
        wide=digits("_wide", 8),
    )


def _plan(facts: _RadixSortFacts, problem: RadixSortProblem, emit: Emit) -> int:
    n, begin, end, is_overwritten = problem
    if n == 0 or (begin == end and is_overwritten):
        return 0
    if begin == end:
        emit(_COPY, (n, min(ceil_div(n, _COPY_THREADS), facts.copy_blocks)))
        return 0
    if n <= facts.one:
        is_in_place = is_overwritten and ceil_div(end - begin, _RADIX_BITS) % 2 == 0
        emit(_TILE_IN_PLACE if is_in_place else _TILE, (n, begin, end))
        return 0
    if n > _PORTION:
        return _any_digits(facts, facts.wide, 1, problem, emit)
    if is_overwritten or end - begin != 8 * facts.key_size:
        return _any_digits(facts, facts.narrow, 0, problem, emit)
    narrow, key_size = facts.narrow, facts.key_size
    tiles = ceil_div(n, narrow.tile)
    lookback, spare = tiles * 4 * _DIGITS, 0
    following = aligned(_BINS + key_size * _DIGITS * narrow.offset_size) + aligned(lookback)
    keys = following
    if key_size > 1:
        keys, spare = following + aligned(lookback), n
    values = keys + aligned(spare * key_size)
    emit(
        _ALL_DIGITS,
        (n, tiles, min(ceil_div(n, narrow.count_tile), narrow.count_blocks), following, keys, values),
    )
    return values + aligned(spare * facts.value_size)


@helper
def _any_digits(
    facts: _RadixSortFacts, digits: _Digits, is_wide: int, problem: RadixSortProblem, emit: Emit
) -> int:
    """Plan any sort by digits: what goes before, then each digit of each portion."""
    n, begin, end, is_overwritten = problem
    tile, bins_size = digits.tile, _DIGITS * digits.offset_size
    passes, tiles = ceil_div(end - begin, _RADIX_BITS), ceil_div(n, tile)
    portions = ceil_div(n, _PORTION // tile * tile) if is_wide else 1
    most = ceil_div(tiles, portions)  # tiles in a portion, so that all have about as many
    launches = passes * portions
    spare = 0 if is_overwritten or passes == 1 else n
    lookback_size = most * 4 * _DIGITS
    bins = aligned(4 * (1 + launches))
    # The last portion leaves some behind it.
    even = bins + aligned((portions + is_wide) * passes * bins_size)
    odd = even + aligned(lookback_size)
    keys = odd + aligned(lookback_size if launches > 1 else 0)
    values = keys + aligned(spare * facts.key_size)
    words = (bins + passes * bins_size) // 4  # of the counters, and of the first portion's bins
    count_grid = min(ceil_div(n, digits.count_tile), digits.count_blocks)
    emit(_START + is_wide, (n, begin, end, words, count_grid, bins, even, most))
    for number in range(passes):
        bit = begin + number * _RADIX_BITS
        way = _FIRST_WAY + is_wide * len(_WAYS) + _way(number, passes, is_overwritten)
        for portion in range(portions):
            first, launch = portion * most * tile, number * portions + portion
            items = min(n - first, most * tile)
            place = bins + (portion * passes + number) * bins_size
            this, following = (odd, even) if launch % 2 else (even, odd)
            following_tiles = most if launch < launches - 1 else 0
            of_launch = (items, ceil_div(items, tile), 4 * (1 + launch), place, this, following)
            of_digit = (following_tiles, bit, min(end - bit, _RADIX_BITS), keys, values)
            emit(way, of_launch + of_digit + (place + passes * bins_size, first))
    return values + aligned(spare * facts.value_size)


def _sizes(spec: Specialisation) -> list[int]:
    return [each.value.itemsize for each in spec.arguments[::2]]


def _default(spec: Specialisation) -> policies.TilePolicy | None:
    key, *values = _sizes(spec)
    return policies.RADIX_SORT.find(spec.cc, key, sum(values))


def _space(spec: Specialisation) -> Mapping[str, tuple[int, ...]]:
    return {"threads": (256, 384, 512), "items": (6, 8, 10, 12, 14, 16, 18, 19, 20, 21, 22, 23, 24, 26)}


def _fits(spec: Specialisation, policy: policies.TilePolicy) -> bool:
    return policy.threads * policy.items * max(_sizes(spec)) + 8 * (_DIGITS + 2) <= _MOST_SHARED


_TUNABLE = Tunable("radix sort", policies.TilePolicy, _default, value_types, _space, _fits)


def _traits(spec: Specialisation) -> str:
    missing = () if spec.has("d_in_values") else void("d_in_values_v")
    is_descending = spec.option("order") == "DESCENDING"
    return members(*missing, is_descending=is_descending, **prefixed("tuned_", _TUNABLE.given(spec)))


RADIX_SORT = Family(
    "radix_sort/radix_sort.cuh",
    (
        "tile_threads",
        "tile_items",
        "count_threads",
        "count_items",
        "threads",
        "items",
        "count_threads_wide",
        "count_items_wide",
        "threads_wide",
        "items_wide",
        "key_size",
        "value_size",
    ),
    _NAMES,
    _shapes,
    _planner,
    _traits,
    tunable=_TUNABLE,
)
