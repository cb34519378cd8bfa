"""Calls on the CPU: which parts of a problem are done at once, in which phases, with which columns.

The plans of `_kernels` are for GPUs alone. Here each algorithm has a `PhaseSpec`, which is the same for
all of its calls, and `schedule` makes a `Schedule` of it for a problem.

Parts depend on the problem alone and not on the CPU, so that sums are rounded in the same way everywhere.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from .._ir.specialisation import Specialisation
from . import offsets

_LEAST, _MOST = 1 << 16, 64  # items of a part, and parts


class PhaseSpec(NamedTuple):
    """The phases of an algorithm's calls, and their temporary columns; no plan, which only GPUs have.

    Attributes
    ----------
    made_by : str
        The function that makes the phases to compile, as ``"file:name"``.
    phases : str
        `p`: done for each part, many at once. `1`: once, given the number of parts.
    part, item : tuple of str
        Columns of the temporary storage: those that have an item for each part, and those that have one for
        each item and another for each part. They have the dtype of an argument; `total`: of the accumulator,
        and `totals`: as many of these as there are bins.
    numbers : int
        Count of the numbers of a schedule that the compiled function takes, beside those of parts.
    check : tuple of str
        The last column, if the first phase checks offsets: its findings, an item for each part.
    """

    made_by: str
    phases: str = "p"
    part: tuple[str, ...] = ()
    item: tuple[str, ...] = ()
    numbers: int = 0
    check: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, in their order."""
        return *self.part, *self.item, *self.check


class Part(NamedTuple):
    """What a call of the compiled function does first: the first parameters."""

    phase: int
    begin: int
    end: int
    number: int  # which it is; of a merge: whether it goes to the temporary storage
    low: int = 0  # of a merge's output; else items of a part
    middle: int = 0
    high: int = 0
    others: int = 0  # parts whose parameters follow
    nbytes: int = 0  # of the parameters of each of these


FIRST_VALUE = len(Part._fields)  # the place of a call's first value among its parameters


# Columns of integers, and the integers of an item; those of "bins" depend on the call.
WORDS = {"word": 1, "words": 4, "bins": 0, "check": offsets.WORDS}


class Schedule(NamedTuple):
    """Steps, one after another; the parts of each at once."""

    steps: Sequence[Sequence[Part]]
    columns: Sequence[int] = ()  # where they begin in the temporary storage
    nbytes: int = 0  # of that
    numbers: tuple[int, ...] = ()
    size: int = 0  # approximate number of items: if it is large, threads share the parts of a step
    check: Callable[[np.ndarray[Any, Any], int], None] | None = None  # given what the first step has found


_SCAN = PhaseSpec("algorithms:scan", "p1p", ("total", "word"))
_SEGMENTS = PhaseSpec("algorithms:segmented_reduce", numbers=3)
_SEGMENTED_SCAN = PhaseSpec("algorithms:segmented_scan", part=("total",), numbers=3)
_COLUMN_SCAN = PhaseSpec("columns:scan", item=("total",), numbers=2)
_MERGES = PhaseSpec("sorts:merge_sort", item=("d_in_keys", "d_in_items"))
_COMPACTION = PhaseSpec("compactions:runs", "p1p", ("words",))
_SETS = PhaseSpec("compactions:sets", "p1p", ("words",), ("d_in_keys1", "d_in_items1"), numbers=2)
_SEARCH = PhaseSpec("algorithms:search", numbers=1)
_NUMPYS = PhaseSpec("algorithms:gather", numbers=2)

PHASE_SPECS = {
    "reduce_into": PhaseSpec("algorithms:reduce", "p1", ("total",)),
    "unary_transform": PhaseSpec("algorithms:transform"),
    "binary_transform": PhaseSpec("algorithms:transform"),
    "inclusive_scan": _SCAN,
    "exclusive_scan": _SCAN,
    "inclusive_scan_by_key": _SCAN,
    "exclusive_scan_by_key": _SCAN,
    "segmented_reduce": _SEGMENTS,
    "inclusive_segmented_scan": _SEGMENTED_SCAN,
    "exclusive_segmented_scan": _SEGMENTED_SCAN,
    "segmented_copy": PhaseSpec("algorithms:segmented_copy", numbers=3),
    "select": _COMPACTION._replace(made_by="compactions:select", item=("d_in",)),
    "three_way_partition": _COMPACTION._replace(made_by="compactions:partition", item=("d_in",) * 3),
    "unique_by_key": _COMPACTION._replace(
        made_by="compactions:unique_by_key", item=("d_in_keys", "d_in_items")
    ),
    "reduce_by_key": _COMPACTION._replace(item=("d_in_keys", "total")),
    "run_length_encode": _COMPACTION._replace(item=("d_in", "word")),
    "histogram_range": PhaseSpec("algorithms:histogram_range", "p1", ("bins",), numbers=1),
    "reduce_by_index": PhaseSpec("algorithms:reduce_by_index", "p1", ("totals", "bins"), numbers=1),
    "find_if": PhaseSpec("algorithms:find", "1p1", ("word",), numbers=1),
    "lower_bound": _SEARCH,
    "upper_bound": _SEARCH,
    "inclusive_column_scan": _COLUMN_SCAN,
    "exclusive_column_scan": _COLUMN_SCAN,
    "column_reduce": _COLUMN_SCAN._replace(made_by="columns:reduce"),
    "histogram_even": PhaseSpec("algorithms:histogram", "p1", ("bins",), numbers=5),
    "merge": PhaseSpec("sorts:merge", numbers=2),
    "merge_sort": _MERGES,
    "set_union": _SETS,
    "set_intersection": _SETS,
    "set_difference": _SETS,
    "set_symmetric_difference": _SETS,
    "segmented_sort": PhaseSpec("sorts:segmented_sort", item=("d_in_keys", "d_in_values"), numbers=3),
    "top_k": _NUMPYS,
    "segmented_top_k": _NUMPYS,
    "segmented_nth_element": _NUMPYS,
    "radix_sort": _NUMPYS,
}


def is_numpys(spec: Specialisation) -> bool:
    """Whether NumPy runs it: a sort, top-k or search for ranks of numbers in their order."""
    return spec.option("order") is not None


def has_code(spec: Specialisation) -> bool:
    """Whether anything is compiled."""
    return not is_numpys(spec) or is_gathered(spec)


def is_gathered(spec: Specialisation) -> bool:
    """Whether values are read by compiled code, as they are no array, where NumPy does the rest."""
    # No generators here and below, at whose end Ctrl-C would be lost.
    return bool([each for each in spec.arguments if each.name == "d_in_values" and not each.is_pointer])


def is_listed(spec: Specialisation) -> bool:
    """Whether offsets say where segments are."""
    return "start_offsets_in" in [each.name for each in spec.arguments]


def phase_spec_of(spec: Specialisation) -> PhaseSpec:
    """Return the phases of a specialisation, without columns of arguments that it does not have."""
    declared = _NUMPYS if is_numpys(spec) else PHASE_SPECS[spec.algorithm]
    given = {each.name for each in spec.arguments}
    absent = {"d_in_items", "d_in_items1", "d_in_values"} - given
    declared = declared._replace(item=tuple(name for name in declared.item if name not in absent))
    is_packed, is_told = "start_offsets_out" not in given, "d_out_num_items" in given
    if spec.algorithm == "segmented_copy" and (is_packed or is_told):
        declared = declared._replace(phases="p1p", part=("word",))  # lengths are summed up before
    if is_listed(spec) and not is_numpys(spec):
        declared = declared._replace(phases="p" + declared.phases, check=("check",))
    return declared


def schedule(spec: Specialisation, problem: Any) -> Schedule:
    """Return the schedule of a call."""
    declared = phase_spec_of(spec)
    n, size, numbers = _problem(spec, problem)
    bounds = [(begin, min(begin + size, n)) for begin in range(0, n, size)]
    count = len(bounds)
    parts = [(*each, i, size) for i, each in enumerate(bounds)]
    phases = {"p": parts, "1": [(0, count, 0, size)]}
    steps: list[list[Part]]
    if declared.made_by == _MERGES.made_by:
        steps = [*_merges(n, count)]
    elif declared.made_by == _SCAN.made_by and count < 2:  # a single part has no prefix
        steps = [[Part(2, *each) for each in parts]]
    else:
        steps = [[Part(i, *each) for each in phases[phase]] for i, phase in enumerate(declared.phases)]
    items = getattr(problem, "num_items", n) + count
    sizes = [count * _size(spec, each, numbers) for each in declared.part]
    sizes += [items * _size(spec, each, numbers) for each in declared.item]
    sizes += [count * _size(spec, each, numbers) for each in declared.check]
    *columns, nbytes = accumulate((-(-each // 64) * 64 for each in sizes), initial=0)
    is_search = declared.made_by == _SEARCH.made_by
    size = n << 4 if is_search else max(items, getattr(problem, "items", 0))  # each value is compared often
    check = functools.partial(offsets.check, problem, arguments=spec.arguments) if declared.check else None
    return Schedule(steps, columns, nbytes, numbers, size, check)


def _size(spec: Specialisation, column: str, numbers: tuple[int, ...]) -> int:
    """Return the bytes of an item of a column."""
    if column in ("total", "totals"):
        return int(spec.operators[0][1].output.itemsize) * (numbers[0] if column == "totals" else 1)
    if column in WORDS:
        return 8 * (numbers[0] if column == "bins" else WORDS[column])
    return {each.name: each for each in spec.arguments}[column].value.itemsize


def _problem(spec: Specialisation, problem: Any) -> tuple[int, int, tuple[int, ...]]:
    """Return the number of items or segments, how many a part has, and further numbers."""
    n, least = problem, _LEAST
    numbers: tuple[int, ...] = ()
    if "segment" in spec.algorithm:
        n = problem.num_segments
        length = int(getattr(problem, "largest", 0) or getattr(problem, "segment_size", 0))
        numbers = length, *offsets.capacities(problem)
        least = -(-_LEAST * n // max(1, problem.num_items))
    elif spec.algorithm in ("lower_bound", "upper_bound"):
        n, least, numbers = problem.num_values, 1 << 12, (problem.num_items,)
    elif spec.algorithm == "find_if":
        numbers = (n,)
    elif spec.algorithm in ("reduce_by_index", "histogram_range"):
        n, bins = problem.num_items, problem.num_bins
        numbers, least = (bins,), max(_LEAST, 4 * bins)
    elif spec.algorithm == "merge" or spec.algorithm.startswith("set_"):
        *numbers, n = problem
    elif "column" in spec.algorithm:
        length, inner, n, items = problem
        numbers, least = (length, inner), -(-_LEAST * n // max(1, items))
    elif spec.algorithm == "histogram_even":
        bins, low, high, n = problem
        if spec.option("levels").endswith("f8"):
            from .._kernels.histogram import unit_of

            unit = unit_of(low, high)
            floats = low, high, unit, bins / ((high - low) * unit)
            numbers = struct.unpack("=4q", struct.pack("=4d", *floats))
        else:
            numbers = *((each + 2**63) % 2**64 - 2**63 for each in (low, high)), 0, 0
        numbers, least = (bins, *numbers), max(_LEAST, 4 * bins)  # so that parts' bins are fewer than items
    return n, max(1, least, -(-n // _MOST)), numbers


def _merges(n: int, count: int) -> Iterator[list[Part]]:
    """Yield the steps of a sort: of parts, whose number is a power of two, and of merges of these."""
    sorts = 1 << max(0, count - 1).bit_length()
    bounds = [min(i * -(-n // sorts), n) for i in range(sorts + 1)]
    to_spare = (sorts.bit_length() - 1) % 2
    yield [Part(0, low, high, to_spare) for low, high in pairwise(bounds) if low < high]
    share = max(1, -(-n // _MOST))
    while len(bounds) > 2:
        to_spare ^= 1
        yield [
            Part(1, first, min(first + share, high), to_spare, low, middle, high)
            for low, middle, high in zip(bounds[::2], bounds[1::2], bounds[2::2], strict=False)
            for first in range(low, high, share)
        ]
        bounds = bounds[::2]
