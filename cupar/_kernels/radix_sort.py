"""Plans of radix sorts: one block; or a count of all digits, and a kernel for each digit and portion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from .family import (
    Facts,
    Family,
    Launch,
    Number,
    Parameter,
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

if TYPE_CHECKING:
    from .._compile.specialisation import Specialisation

_RADIX_BITS = 8  # of a digit
_DIGITS = 1 << _RADIX_BITS
_PORTION = 2**28 - 1  # items that a launch of a digit's kernel has at most, as in CUB
_INIT_THREADS, _COPY_THREADS = 1024, 256
_COPY_BLOCKS = 8  # for each multiprocessor


class Bits(NamedTuple):
    """The problem of a radix sort: which bits it is by, and whether the input may be overwritten."""

    num_items: int
    begin_bit: int
    end_bit: int
    is_overwritten: bool

    @property
    def is_in_output(self) -> bool:
        """Whether the result is in the output, and not in the input, which may be overwritten."""
        passes = ceil_div(self.end_bit - self.begin_bit, _RADIX_BITS)
        return not self.is_overwritten or (self.num_items > 0 and passes % 2 == 1)


_ORDER = ("begin", "end", "is_overwritten")
# All that the kernels of a sort by digits share, beside their grids.
_OFFSETS = ("bins", "lookback", "next", "keys", "values")
_DIGITWISE = ("n", *_ORDER, "words", *_OFFSETS, "portions", "portion_tiles")


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    keys, values = (
        [Value(f"d_in_{kind}"), Value(f"d_out_{kind}")]
        if any(each.name == f"d_in_{kind}" for each in spec.arguments)
        else [u64(0), u64(0)]
        for kind in ("keys", "values")
    )
    order = tuple(map(i32, _ORDER))
    arrays = (*keys, u64(0), *values, u64(0))
    all_arrays = (*keys, Storage("keys"), *values, Storage("values"))
    storage = (Storage(), Storage("bins"), Storage("lookback"), Storage("next"))
    portions = (i32("portions"), i32("portion_tiles"))

    def start(kind: str, n: Number) -> tuple[Launch, ...]:
        parameters: tuple[Parameter, ...] = (Value("d_in_keys"), storage, n, order, portions)
        return (
            Launch("cupar_radix_sort_init", 1, _INIT_THREADS, (Storage(), i32("words"))),
            Launch(f"cupar_radix_sort_count{kind}", "count_grid", f"count_threads{kind}", parameters),
        )

    def digit(kind: str, n: Number, number: str | int, portion: str | int) -> Launch:
        parameters = (all_arrays, storage, n, order, portions, i32(number), i32(portion))
        return Launch(f"cupar_radix_sort_digit{kind}", "grid", f"threads{kind}", parameters)

    tile = Launch("cupar_radix_sort_tile", 1, "tile_threads", (arrays, i32("n"), order))
    copy = Launch("cupar_radix_sort_copy", "grid", _COPY_THREADS, (arrays, u64("n")))
    all_digits = [digit("", u32("n"), number, 0) for number in range(spec.arguments[0].value.itemsize)]
    shapes = {
        "tile": Shape(("n", *_ORDER), (tile,)),
        "copy": Shape(("n", "grid"), (copy,), executables=0),
        # By all bits of items that are one portion, as most sorts are. Of others, a digit is a step.
        "all digits": Shape((*_DIGITWISE, "count_grid", "grid"), (*start("", u32("n")), *all_digits)),
    }
    for kind, n in (("", u32("n")), ("_wide", u64("n"))):
        each = digit(kind, n, "number", "portion")
        shapes[f"start{kind}"] = Shape((*_DIGITWISE, "count_grid"), start(kind, n), executables=0)
        shapes[f"digit{kind}"] = Shape((*_DIGITWISE, "grid", "number", "portion"), (each,), executables=0)
    return shapes


def _planner(facts: Facts) -> Callable[[Bits], Plan]:
    one = facts["tile_threads"] * facts["tile_items"]
    most_to_copy = facts["sms"] * _COPY_BLOCKS
    narrow, wide = (_planner_of_digits(facts, *each) for each in (("", 4), ("_wide", 8)))

    def plan(problem: Bits) -> Plan:
        n, begin, end, is_overwritten = problem
        if n == 0 or (begin == end and is_overwritten):
            return Plan("", 0)
        if begin == end:
            return Plan("copy", 0, (n, min(ceil_div(n, _COPY_THREADS), most_to_copy)))
        if n <= one:
            return Plan("tile", 0, (n, begin, end, int(is_overwritten)))
        return (narrow if n < 2**32 else wide)(problem)

    return plan


def _planner_of_digits(facts: Facts, kind: str, offset_size: int) -> Callable[[Bits], Plan]:
    tile = facts[f"threads{kind}"] * facts[f"items{kind}"]
    count_threads = facts[f"count_threads{kind}"]
    count_tile = count_threads * facts[f"count_items{kind}"]
    count_most = facts.occupancy(f"cupar_radix_sort_count{kind}", count_threads, 0) * facts["sms"]
    key_size, value_size = facts["key_size"], facts["value_size"]

    def plan(problem: Bits) -> Plan:
        n, begin, end, is_overwritten = problem
        passes = ceil_div(end - begin, _RADIX_BITS)
        tiles = ceil_div(n, tile)
        portions = ceil_div(n, _PORTION // tile * tile)
        portion_tiles = ceil_div(tiles, portions)  # so that all are about as large
        launches = passes * portions
        bins_size, lookback = passes * _DIGITS * offset_size, portion_tiles * _DIGITS * 4
        spare = 0 if is_overwritten or passes == 1 else n
        _, bins, *offsets, nbytes = aligned(
            4 * (1 + launches),
            portions * bins_size,
            lookback,
            lookback if launches > 1 else 0,
            spare * key_size,
            spare * value_size,
        )
        words = (bins + bins_size) // 4  # that must be 0 at first: the counters, and the first portion's bins
        numbers = (n, begin, end, int(is_overwritten), words, bins, *offsets, portions, portion_tiles)
        count_grid = min(ceil_div(n, count_tile), count_most)
        if portions == 1 and passes == key_size:
            return Plan("all digits", nbytes, (*numbers, count_grid, tiles))
        grids = [min(portion_tiles, tiles - portion * portion_tiles) for portion in range(portions)]
        digits = [
            (*numbers, grid, number, portion)
            for number in range(passes)
            for portion, grid in enumerate(grids)
        ]
        shapes = (f"start{kind}", *[f"digit{kind}"] * launches)
        return Plan(shapes, nbytes, ((*numbers, count_grid), *digits))

    return plan


def _prelude(spec: Specialisation) -> str:
    is_descending = str(spec.option("order") == "DESCENDING").lower()
    code = f"constexpr bool is_descending = {is_descending};"
    return code if len(spec.arguments) > 2 else f"{code}\nusing d_in_values_v = void;"


RADIX_SORT = Family(
    "radix_sort.cuh",
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
    _prelude,
)
