"""Plans of histograms: one block, or a grid whose blocks add counts to an output that was set to zero."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._ir import cpp
from . import policies
from .family import Facts, Family, Launch, Number, Plan, Shape, Value, ceil_div, i32, u32, u64
from .tuning import Tunable, types

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation


_ONE_BLOCK = 1 << 14  # samples that one block counts before two kernels are quicker
_ONE_BLOCK_BINS = 1 << 12  # that it sets to zero
_ZERO_THREADS = 256  # of the kernel that sets more to zero
_ZERO_BINS = 4  # for each of them, before there are more blocks
_COPIES = 32
_COPIES_BYTES = 1 << 16  # of shared memory that they may take
_COPIES_SAMPLES = 4  # that a multiprocessor counts for each counter before they pay
_SLOTS = 1 << 13  # of the cache in shared memory
_SLOT_BYTES = 8
_SHARE = 1 << 31  # samples that a block counts at most, since it has counters of 32 bits
_MOST_BLOCKS = 2**31 - 1
_WORD = 2**64


class Problem(NamedTuple):
    """What is counted: samples from the lower level on and below the upper one, in bins of equal width."""

    num_bins: int
    lower: Any
    upper: Any
    num_samples: int


# Levels as kernels take them: float_levels, integer_levels.
_FLOATS = (u64("lower"), u64("upper"), u64("unit"), u64("shift"), u64("reciprocal"), u32("bins"))
_DISTANCES = u64("first"), u64("last"), u64("below")
_INTEGERS = (*_DISTANCES, u64("reciprocal"), u32("bins"), u32("times"), i32("shift"))

_SAMPLES, _HISTOGRAM = Value("d_samples"), Value("d_histogram")
_ZERO = Launch("cupar_histogram_zero", "zero_grid", _ZERO_THREADS, (_HISTOGRAM, u32("bins")))


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    levels = _FLOATS if _level_dtype(spec).kind == "f" else _INTEGERS
    numbers = ("n", "grid", "zero_grid", "shared", "width", "step", *(str(each.name) for each in levels))

    def shape(kernel: str, *before: Launch, given: tuple[Number, ...] = ()) -> Shape:
        parameters = (_SAMPLES, u64("n"), _HISTOGRAM, u32("width"), *given, levels)
        return Shape(numbers, (*before, Launch(kernel, "grid", "threads", parameters, "shared")))

    shared = "cupar_histogram_shared"
    shapes = {"block": shape(shared), "shared": shape(shared, _ZERO)}
    if not _is_of_bytes(spec):
        shapes["cached"] = shape("cupar_histogram_cached", _ZERO, given=(u64("step"),))
    return shapes


def _is_of_bytes(spec: Specialisation) -> bool:
    return spec.arguments[0].value.itemsize == 1


def _planner(facts: Facts) -> Callable[[Problem], Plan]:
    threads, sms, size = facts["threads"], facts["sms"], facts["sample_size"]
    at_once = threads * facts["vector_items"]
    levels = _float_levels if facts["has_float_levels"] else _integer_levels(facts)

    @lru_cache(maxsize=64)
    def resident(kernel: str, shared: int) -> int:
        return sms * facts.occupancy(kernel, threads, shared)

    def blocks(n: int, kernel: str, shared: int) -> int:
        least = max(1, ceil_div(n, _SHARE))
        return min(max(least, min(resident(kernel, shared), ceil_div(n, at_once))), _MOST_BLOCKS)

    def plan(problem: Problem) -> Plan:
        bins = problem.num_bins
        has_any, numbers = levels(problem.lower, problem.upper, bins)
        n = problem.num_samples if has_any else 0
        # The values of bytes; or the bins, and a row for samples in none.
        rows = 256 if size == 1 else bins + 1
        copies, counters = 1, _COPIES * rows
        if facts["is_spread"] and 4 * counters <= _COPIES_BYTES and n >= _COPIES_SAMPLES * counters * sms:
            copies = _COPIES
        shared = 16 * ceil_div(rows * copies, 4)
        if n <= _ONE_BLOCK and bins <= _ONE_BLOCK_BINS:
            return Plan("block", 0, (n, 1, 0, shared, copies, 0, *numbers))
        zero_grid = min(ceil_div(bins, _ZERO_THREADS * _ZERO_BINS), 8 * sms)
        if shared <= facts["shared_memory"]:
            grid = blocks(n, "cupar_histogram_shared", shared)
            # To add one of a block's counters costs about a quarter of what it costs to add a sample.
            if size == 1 or 4 * n >= rows * grid:
                return Plan("shared", 0, (n, grid, zero_grid, shared, copies, 0, *numbers))
        grid = blocks(n, "cupar_histogram_cached", _SLOT_BYTES * _SLOTS)
        slots = min(_SLOTS, max(32, 1 << (n // (4 * grid)).bit_length()))
        step = max(1, n // (grid * slots))
        return Plan("cached", 0, (n, grid, zero_grid, _SLOT_BYTES * slots, slots, step, *numbers))

    return plan


# Each returns whether there can be samples between the levels, and the numbers of the levels.
_Levels = Callable[[Any, Any, int], tuple[bool, tuple[int, ...]]]


def _float_levels(lower: float, upper: float, bins: int) -> tuple[bool, tuple[int, ...]]:
    unit = unit_of(lower, upper)
    reciprocal = bins / ((upper - lower) * unit)
    return True, (
        bits_of(lower),
        bits_of(upper),
        bits_of(unit),
        bits_of(-lower * unit),
        bits_of(reciprocal),
        bins,
    )


def unit_of(lower: float, upper: float) -> float:
    """Return the power of two that distances are multiplied by, so that the width is about 1.

    That is exact, and no quotient by the width overflows or loses bits, however narrow or wide it is.
    """
    return float_of(min(max(2046 - (bits_of(upper - lower) >> 52), 23), 2023) << 52)


def _integer_levels(facts: Facts) -> _Levels:
    bits, narrow_bits = 8 * facts["sample_size"], facts["narrow_bits"]
    smallest = -(1 << (bits - 1)) if facts["is_signed"] else 0
    largest = smallest + (1 << bits) - 1
    holds_levels = bits == 64  # all of them: so no level is beyond the samples

    def levels(lower: int, upper: int, bins: int) -> tuple[bool, tuple[int, ...]]:
        width = distance(upper, lower)
        if holds_levels:
            distances = word_of(lower), width - 1, 0
        else:
            first, last = max(lower, smallest), min(upper - 1, largest)
            if first > last:
                return False, (0, 0, 0, 0, bins, 0, 0)
            distances = word_of(first), last - first, first - lower
        if width <= 1 << narrow_bits:
            times, rest = divmod(bins, width)
            return True, (*distances, scaled(rest, width, 2 * narrow_bits), bins, times, 0)
        log = (width - 1).bit_length()
        reciprocal = 1 if width == 1 << log else scaled(distance(1 << log, width), width, 64)
        return True, (*distances, reciprocal, bins, bins, log - 1)

    return levels


# Of numbers that may need more than 63 bits: compiled host code has functions of its own for them.


def bits_of(number: float) -> int:
    """Return a float's bits as an integer, since plans are made of these."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", number))
    return int(bits)


def float_of(bits: int) -> float:
    """Return the float of these bits."""
    (number,) = struct.unpack("<d", struct.pack("<Q", bits))
    return float(number)


def word_of(number: int) -> int:
    """Return an integer as a word of 64 bits has it."""
    return number % _WORD


def distance(upper: int, lower: int) -> int:
    """Return a difference."""
    return upper - lower


def scaled(part: int, whole: int, bits: int) -> int:
    """Return what part of a whole something is, in units of 2**-bits, rounded up."""
    return ceil_div(part << bits, whole)


def _default(spec: Specialisation) -> policies.Histogram:
    samples, table = spec.arguments[0], policies.HISTOGRAM
    found = table.find(spec.cc, samples.value.itemsize) if samples.is_pointer else None
    return found or table.get(spec.cc, 0)


def _space(spec: Specialisation) -> Mapping[str, tuple[int, ...]]:
    loads = (1, 2, 4) if spec.arguments[0].is_pointer else (1,)
    return {
        "threads": (256, 512, 768, 1024),
        "loads": loads,
        "resident": (1, 2, 3, 4),
        "is_spread": (False, True),
    }


def _fits(spec: Specialisation, policy: policies.Histogram) -> bool:
    return policy.threads * policy.resident <= 2048


def _facts_of(spec: Specialisation) -> dict[str, str]:
    return {**types(spec), "levels": str(_level_dtype(spec))}


_TUNABLE = Tunable("histogram", policies.Histogram, _default, _facts_of, _space, _fits)


def _traits(spec: Specialisation) -> str:
    threads, loads, resident, is_spread = _TUNABLE.given(spec)
    return (
        f"using level_t = {cpp.type_name(_level_dtype(spec))};\n"
        f"static constexpr int threads = {threads}, loads = {loads}, resident = {resident};\n"
        f"static constexpr bool is_spread = {str(bool(is_spread)).lower()};"
    )


def _level_dtype(spec: Specialisation) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(spec.option("levels"))
    return dtype


HISTOGRAM = Family(
    "histogram/histogram.cuh",
    ("threads", "vector_items", "is_spread", "sample_size", "is_signed", "narrow_bits", "has_float_levels"),
    _shapes,
    _planner,
    _traits,
    tunable=_TUNABLE,
)
