"""Plans of histograms: one block, or a grid whose blocks add counts to an output that was set to zero."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._ir import cpp
from . import policies
from .family import (
    Emit,
    Family,
    Launch,
    Number,
    Plan,
    Properties,
    Shape,
    Value,
    bits,
    ceil_div,
    helper,
    i32,
    members,
    resident_blocks,
    twin,
    u32,
    u64,
)
from .tuning import Tunable, value_types

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation


_ONE_BLOCK = 1 << 14  # samples that one block counts before two kernels are quicker
_ONE_BLOCK_BINS = 1 << 12  # that it sets to zero
_ZERO_THREADS = 256  # of the kernel that sets more to zero
_ZERO_BINS = 4  # for each of them, before there are more blocks
_COPIES = 32
_COPIES_BYTES = 1 << 16  # of shared memory that they may take
_PARTS = 1 << 13  # of the table beside levels in shared memory
_PARTS_SAMPLES = 1 << 18  # before a table pays
_PARTS_LEVELS = 1 << 16  # that it can number
_COPIES_SAMPLES = 4  # that a multiprocessor counts for each counter before they pay
_SLOTS = 1 << 13  # of the cache in shared memory
_SLOT_BYTES = 8
_SHARE = 1 << 31  # samples that a block counts at most, since it has counters of 32 bits
_MOST_BLOCKS = 2**31 - 1
_WORD = 2**64

_NAMES = ("block", "shared", "cached")
_BLOCK, _SHARED, _CACHED = range(3)


class HistogramProblem(NamedTuple):
    """Counts of samples from the lower level on and below the upper one, in bins of equal width."""

    num_bins: int
    lower: Any
    upper: Any
    num_samples: int


class HistogramRangeProblem(NamedTuple):
    """What is counted: samples from one level on and below the next, in a bin for each two levels."""

    num_bins: int
    num_levels: int
    num_items: int  # samples


# Levels as kernels take them: float_levels, integer_levels, range_levels.
_FLOATS = (u64("lower"), u64("upper"), u64("unit"), u64("shift"), u64("reciprocal"), u32("bins"))
_DISTANCES = u64("first"), u64("last"), u64("below")
_INTEGERS = (*_DISTANCES, u64("reciprocal"), u32("bins"), u32("times"), i32("shift"))

_SAMPLES, _HISTOGRAM = Value("d_samples"), Value("d_histogram")
_RANGES = Value("d_levels"), u32("bins"), u32("parts")
_ZERO = Launch("cupar_histogram_zero", "zero_grid", _ZERO_THREADS, (_HISTOGRAM, u32("bins")))


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    levels = _RANGES if _has_ranges(spec) else _FLOATS if _level_dtype(spec).kind == "f" else _INTEGERS
    of_levels = (str(each.name) for each in levels if isinstance(each, Number))
    numbers = ("n", "grid", "zero_grid", "shared", "width", "step", *of_levels)

    def shape(kernel: str, *before: Launch, given: tuple[Number, ...] = ()) -> Shape:
        parameters = (_SAMPLES, u64("n"), _HISTOGRAM, u32("width"), *given, levels)
        return Shape(numbers, (*before, Launch(kernel, "grid", "threads", parameters, "shared")))

    shared = "cupar_histogram_shared"
    shapes = {"block": shape(shared), "shared": shape(shared, _ZERO)}
    if not _is_of_bytes(spec):
        shapes["cached"] = shape("cupar_histogram_cached", _ZERO, given=(u64("step"),))
    return shapes


def _has_ranges(spec: Specialisation) -> bool:
    return spec.algorithm == "histogram_range"


def _is_of_bytes(spec: Specialisation) -> bool:
    return spec.arguments[0].value.itemsize == 1


_RESIDENT = 8  # blocks of a multiprocessor at most: they have 256 threads or more


class _HistogramFacts(NamedTuple):
    sms: int
    size: int  # bytes of a sample
    at_once: int  # samples of a block
    is_spread: int
    most_shared: int  # bytes of a block
    shared_limits: tuple[int, ...]  # as `Properties.shared_limits` returns them
    cached: int  # blocks that run at once with a cache in shared memory
    is_signed: int
    narrow_bits: int
    level_size: int  # bytes of a level in shared memory; 0: none is there


def _planner(given: Properties) -> tuple[Plan, _HistogramFacts]:
    threads, size = given["threads"], given["sample_size"]
    plan = (_plan_of_integers, _plan_of_floats, _plan_of_ranges)[given["kind_of_levels"]]
    cached = given.resident("cupar_histogram_cached", threads, _SLOT_BYTES * _SLOTS) if size > 1 else 0
    return plan, given.facts(
        _HistogramFacts,
        size=size,
        at_once=threads * given["vector_items"],
        most_shared=given["shared_memory"],
        shared_limits=given.shared_limits("cupar_histogram_shared", threads, _RESIDENT),
        cached=cached,
        level_size=given["level_size"] if plan is _plan_of_ranges else 0,
    )


def _plan_of_floats(facts: _HistogramFacts, problem: HistogramProblem, emit: Emit) -> int:
    bins, lower, upper, n = problem
    unit = unit_of(lower, upper)
    reciprocal = bins / ((upper - lower) * unit)
    ends = (bits_of(lower), bits_of(upper))
    levels = ends + (bits_of(unit), bits_of(-lower * unit), bits_of(reciprocal), bins)
    _counts(facts, bins, n, levels, emit)
    return 0


def _plan_of_integers(facts: _HistogramFacts, problem: HistogramProblem, emit: Emit) -> int:
    bins, lower, upper, n = problem
    width = upper - lower
    first, last, below = lower, width - 1, 0
    if facts.size < 8:  # else all levels are among the samples
        value_bits = 8 * facts.size
        smallest = -(1 << value_bits - 1) if facts.is_signed else 0
        first = max(lower, smallest)
        last = min(upper - 1, smallest + (1 << value_bits) - 1) - first
        below = first - lower
        if last < 0:
            _counts(facts, bins, 0, (0, 0, 0, 0, bins, 0, 0), emit)
            return 0
    if width <= 1 << facts.narrow_bits:
        reciprocal = scaled(bins % width, width, 2 * facts.narrow_bits)
        levels = (word_of(first), last, below, reciprocal, bins, bins // width, 0)
        _counts(facts, bins, n, levels, emit)
        return 0
    log = bits(width - 1)
    half = 1 << log - 1
    reciprocal = 1 if width - half == half else scaled(half - width + half, width, 64)
    _counts(facts, bins, n, (word_of(first), last, below, reciprocal, bins, bins, log - 1), emit)
    return 0


def _plan_of_ranges(facts: _HistogramFacts, problem: HistogramRangeProblem, emit: Emit) -> int:
    bins, count, n = problem
    parts = 0
    if facts.level_size > 0 and count < _PARTS_LEVELS and n >= _PARTS_SAMPLES:
        parts = _PARTS
        if 4 * (bins + 4 + parts) + 16 * ceil_div(count * facts.level_size, 16) > facts.most_shared:
            parts = 0
    _counts(facts, bins, n, (bins, parts), emit)
    return 0


@helper
def _counts(facts: _HistogramFacts, bins: int, n: int, levels: tuple[int, ...], emit: Emit) -> None:
    """Plan a histogram, given the numbers of its levels."""
    sms, size = facts.sms, facts.size
    # The values of bytes; or the bins, and a row for samples in none.
    rows = 256 if size == 1 else bins + 1
    copies, counters = 1, _COPIES * rows
    if facts.is_spread and 4 * counters <= _COPIES_BYTES and n >= _COPIES_SAMPLES * counters * sms:
        copies = _COPIES
    shared = 16 * ceil_div(rows * copies, 4)
    if facts.level_size > 0 and levels[1] > 0:
        shared += 16 * ceil_div((bins + 1) * facts.level_size, 16) + 4 * levels[1]
    if n <= _ONE_BLOCK and bins <= _ONE_BLOCK_BINS and shared <= facts.most_shared:
        emit(_BLOCK, (n, 1, 0, shared, copies, 0) + levels)
        return
    zero_grid = min(ceil_div(bins, _ZERO_THREADS * _ZERO_BINS), 8 * sms)
    if shared <= facts.most_shared:
        grid = _blocks(n, sms * resident_blocks(facts.shared_limits, shared), facts.at_once)
        # Adding one of a block's counters costs about a quarter of adding a sample.
        if size == 1 or 4 * n >= rows * grid:
            emit(_SHARED, (n, grid, zero_grid, shared, copies, 0) + levels)
            return
    grid = _blocks(n, facts.cached, facts.at_once)
    slots = min(_SLOTS, max(32, 1 << bits(n // (4 * grid))))
    step = max(1, n // (grid * slots))
    emit(_CACHED, (n, grid, zero_grid, _SLOT_BYTES * slots, slots, step) + levels)


@helper
def _blocks(n: int, resident: int, at_once: int) -> int:
    """Return the number of blocks that count samples."""
    least = max(1, ceil_div(n, _SHARE))
    return min(max(least, min(resident, ceil_div(n, at_once))), _MOST_BLOCKS)


@helper
def unit_of(lower: float, upper: float) -> float:
    """Return the power of two that distances are multiplied by, so that the width is about 1.

    That is exact, and no quotient by the width overflows or loses bits, however narrow or wide it is.
    """
    return float_of(min(max(2046 - (bits_of(upper - lower) >> 52), 23), 2023) << 52)


@twin
def bits_of(number: float) -> int:
    """Return a float's bits as an integer, since plans are made of these."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", number))
    return int(bits)


@twin
def float_of(bits: int) -> float:
    """Return the float of these bits."""
    (number,) = struct.unpack("<d", struct.pack("<Q", bits))
    return float(number)


@twin
def word_of(number: int) -> int:
    """Return an integer as a word of 64 bits has it."""
    return number % _WORD


@twin
def word(level: Any) -> Any:
    """Return a level as a problem has it: in compiled code, an integer of 64 bits with or without a sign."""
    return level


@twin
def overflows(low: int, high: int, bins: int) -> bool:
    """Tell whether a sample's distance from the lower level, times the bins, overflows 64 bits."""
    return high - low >= 2**63 or (high - low) * bins >= 2**64


@twin
def scaled(part: int, whole: int, bits: int) -> int:
    """Return what part of a whole something is, in units of 2**-bits, rounded up."""
    return -(-(part << bits) // whole)


def _default(spec: Specialisation) -> policies.HistogramPolicy:
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


def _fits(spec: Specialisation, policy: policies.HistogramPolicy) -> bool:
    return policy.threads * policy.resident <= 2048


def _scope(spec: Specialisation) -> dict[str, str]:
    return {**value_types(spec), "levels": str(_level_dtype(spec))}


_TUNABLE = Tunable("histogram", policies.HistogramPolicy, _default, _scope, _space, _fits)


def _traits(spec: Specialisation) -> str:
    level = f"using level_t = {cpp.type_name(_level_dtype(spec))};"
    policy = _TUNABLE.given(spec)
    flags = {"is_spread": bool(policy.is_spread), "has_ranges": _has_ranges(spec)}
    return members(level, **policy._asdict() | flags)


def _level_dtype(spec: Specialisation) -> np.dtype[Any]:
    if _has_ranges(spec):
        return spec.arguments[2].value
    dtype: np.dtype[Any] = np.dtype(spec.option("levels"))
    return dtype


HISTOGRAM = Family(
    "histogram/histogram.cuh",
    (
        *("threads", "vector_items", "is_spread", "sample_size", "is_signed", "narrow_bits"),
        *("kind_of_levels", "level_size"),
    ),
    _NAMES,
    _shapes,
    _planner,
    _traits,
    tunable=_TUNABLE,
)
