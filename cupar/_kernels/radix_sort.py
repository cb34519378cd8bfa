"""Plans of radix sorts: one block; or a count of all digits, and a kernel for each digit and portion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from . import policies
from .family import (
    Facts,
    Family,
    Launch,
    Number,
    Plan,
    Several,
    Shape,
    Storage,
    Value,
    aligned,
    ceil_div,
    i32,
    u32,
    u64,
)
from .tuning import Tunable, types

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


class Bits(NamedTuple):
    """The problem of a radix sort: which bits it is by, and whether the input may be overwritten."""

    num_items: int
    begin_bit: int
    end_bit: int
    is_overwritten: bool

    @property
    def passes(self) -> int:
        """How many digits it is by."""
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


def _way(number: int, passes: int, is_overwritten: bool) -> int:
    """Return which of `_WAYS` a pass goes, by its place among so many: as in `ways`."""
    if is_overwritten:
        return 4 if number % 2 else 0
    is_to_output = (passes - number) % 2 == 1
    if number == 0:
        return 0 if is_to_output else 1
    return 3 if is_to_output else 2


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    has_values = len(spec.arguments) > 2
    places: dict[str, tuple[Value | Storage | Number, ...]] = {
        end: (Value(f"d_{end}_keys"), Value(f"d_{end}_values") if has_values else u64(0))
        for end in ("in", "out")
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
                (*numbers, "keys", "values", *(("next_bins", "first") if kind else ())),
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


def _planner(facts: Facts) -> Callable[[Bits], Plan]:
    one = facts["tile_threads"] * facts["tile_items"]
    most_to_copy = facts["sms"] * _COPY_BLOCKS
    all_bits = 8 * facts["key_size"]
    narrow, wide = _Digits(facts, "", 4), _Digits(facts, "_wide", 8)

    def plan(problem: Bits) -> Plan:
        n, begin, end, is_overwritten = problem
        if n == 0 or (begin == end and is_overwritten):
            return Plan("", 0)
        if begin == end:
            return Plan("copy", 0, (n, min(ceil_div(n, _COPY_THREADS), most_to_copy)))
        if n <= one:
            return Plan("tile" if problem.is_in_output else "tile in place", 0, (n, begin, end))
        if n > _PORTION:
            return wide.plan(problem)
        if is_overwritten or end - begin != all_bits:
            return narrow.plan(problem)
        return narrow.plan_of_all(n)

    return plan


class _Digits:
    """Plans of sorts digit by digit, with offsets of so many bytes."""

    def __init__(self, facts: Facts, kind: str, offset_size: int) -> None:
        self.kind, self.bins_size = kind, _DIGITS * offset_size
        self.ways = tuple(f"{source} to {target}{kind}" for source, target in _WAYS)
        self.tile = facts[f"threads{kind}"] * facts[f"items{kind}"]
        self.sizes = facts["key_size"], facts["value_size"]
        count_threads = facts[f"count_threads{kind}"]
        self.count_tile = count_threads * facts[f"count_items{kind}"]
        running = facts.occupancy(f"cupar_radix_sort_count{kind}", count_threads, 0)
        self.most_count = running * facts["sms"]

    def count_grid(self, n: int) -> int:
        """Return how many blocks count digits: as many as run at once, if there is a tile for each."""
        return min(ceil_div(n, self.count_tile), self.most_count)

    def plan_of_all(self, n: int) -> Plan:
        """Plan a sort by all bits of items that are one portion; the input is not overwritten."""
        key_size, value_size = self.sizes
        tiles = ceil_div(n, self.tile)
        spare = n if key_size > 1 else 0
        start = _BINS + key_size * self.bins_size
        lookback = tiles * 4 * _DIGITS
        _, _, following, keys, values, nbytes = aligned(
            start, lookback, lookback if key_size > 1 else 0, spare * key_size, spare * value_size
        )
        return Plan("all digits", nbytes, (n, tiles, self.count_grid(n), following, keys, values))

    def plan(self, problem: Bits) -> Plan:
        """Plan any sort: what goes before, then each digit of each portion."""
        n, begin, end, is_overwritten = problem
        passes, tiles = problem.passes, ceil_div(n, self.tile)
        portions = ceil_div(n, _PORTION // self.tile * self.tile) if self.kind else 1
        most = ceil_div(tiles, portions)  # tiles in a portion, so that all have about as many
        launches = passes * portions
        spare = 0 if is_overwritten or passes == 1 else n
        lookback_size = most * 4 * _DIGITS
        _, bins, even, odd, keys, values, nbytes = aligned(
            4 * (1 + launches),
            (portions + (1 if self.kind else 0)) * passes * self.bins_size,  # the last leaves some behind it
            lookback_size,
            lookback_size if launches > 1 else 0,
            spare * self.sizes[0],
            spare * self.sizes[1],
        )
        words = (bins + passes * self.bins_size) // 4  # of the counters, and of the first portion's bins
        several = Several()
        several.add(f"start{self.kind}", (n, begin, end, words, self.count_grid(n), bins, even, most))
        for number in range(passes):
            bit = begin + number * _RADIX_BITS
            for portion in range(portions):
                first, launch = portion * most * self.tile, number * portions + portion
                items = min(n - first, most * self.tile)
                place = bins + (portion * passes + number) * self.bins_size
                several.add(
                    self.ways[_way(number, passes, is_overwritten)],
                    (
                        *(items, ceil_div(items, self.tile), 4 * (1 + launch), place),
                        *((odd, even) if launch % 2 else (even, odd)),
                        *(most if launch < launches - 1 else 0, bit, min(end - bit, _RADIX_BITS)),
                        *(keys, values),
                        *((place + passes * self.bins_size, first) if self.kind else ()),
                    ),
                )
        return several.plan(nbytes)


def _sizes(spec: Specialisation) -> list[int]:
    return [each.value.itemsize for each in spec.arguments[::2]]


def _default(spec: Specialisation) -> policies.Tile | None:
    key, *values = _sizes(spec)
    return policies.RADIX_SORT.find(spec.cc, key, sum(values))


def _space(spec: Specialisation) -> Mapping[str, tuple[int, ...]]:
    return {"threads": (256, 384, 512), "items": (6, 8, 10, 12, 14, 16, 18, 19, 20, 21, 22, 23, 24, 26)}


def _fits(spec: Specialisation, policy: policies.Tile) -> bool:
    return policy.threads * policy.items * max(_sizes(spec)) + 8 * (_DIGITS + 2) <= _MOST_SHARED


_TUNABLE = Tunable("radix sort", policies.Tile, _default, types, _space, _fits)


def _traits(spec: Specialisation) -> str:
    is_descending = str(spec.option("order") == "DESCENDING").lower()
    tile = _TUNABLE.given(spec)
    code = f"static constexpr bool is_descending = {is_descending};"
    code += f"\nstatic constexpr int tuned_threads = {tile.threads}, tuned_items = {tile.items};"
    return code if len(spec.arguments) > 2 else f"{code}\nusing d_in_values_v = void;"


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
    _shapes,
    _planner,
    _traits,
    tunable=_TUNABLE,
)
