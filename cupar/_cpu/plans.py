"""Plans of calls on the CPU: which ranges are done at once, in which phases, and with which numbers.

Ranges depend on the problem alone and not on the CPU, so that sums are rounded in the same way everywhere.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from .._base.data import dataclass
from .._ir.specialisation import Specialisation

FIRST_VALUE = 4  # the place of a call's first value among its parameters

_LEAST, _MOST = 1 << 16, 64  # items of a range, and ranges


def is_numpys(spec: Specialisation) -> bool:
    """Whether NumPy does it."""
    return spec.option("order") is not None


def is_gathered(spec: Specialisation) -> bool:
    """Whether values are read by compiled code, as they are no array, where NumPy does the rest."""
    return any(each.name == "d_in_values" and not each.is_pointer for each in spec.arguments)


class Range(NamedTuple):
    """What one function does of a phase."""

    phase: int
    begin: int
    end: int
    offset: int = 0  # of its part of the temporary storage
    numbers: tuple[int, ...] = ()  # of its own, after those of the plan


@dataclass(frozen=True)
class Plan:
    """Steps, one after another; the ranges of each at once."""

    steps: Sequence[Sequence[Range]]
    numbers: tuple[int, ...] = ()
    nbytes: int = 0  # of temporary storage


def ranges(n: int, least: int = _LEAST) -> list[tuple[int, int]]:
    """Return a problem of some size in parts."""
    size = max(least, -(-n // _MOST))
    return [(begin, min(begin + size, n)) for begin in range(0, n, size)]


def _apart(spec: Specialisation, n: int) -> Plan:
    return Plan([[Range(0, *each) for each in ranges(n)]] if n else [])


def _whole(spec: Specialisation, n: int) -> Plan:
    return Plan([[Range(0, 0, n)]])


def _if_any(spec: Specialisation, n: int) -> Plan:
    return Plan([[Range(0, 0, n)]] if n else [])


def _reduce(spec: Specialisation, n: int) -> Plan:
    size = spec.operators[0][1].output.itemsize
    parts = ranges(n)
    if not n and spec.option("init") is None:
        return Plan([])
    folds = [Range(0, begin, end, i * size) for i, (begin, end) in enumerate(parts)]
    return Plan([folds, [Range(1, 0, len(parts))]], (), size * len(parts))


def _segmented(spec: Specialisation, problem: Any) -> Plan:
    n, size = problem.num_segments, problem.largest
    least = max(1, math.ceil(_LEAST / max(1, problem.num_items / max(n, 1))))
    return Plan([[Range(0, *each) for each in ranges(n, least)]] if n else [], (size,))


def _search(spec: Specialisation, problem: Any) -> Plan:
    n = problem.num_values
    return Plan([[Range(0, *each) for each in ranges(n, 1 << 12)]] if n else [], (problem.num_items,))


def _histogram(spec: Specialisation, problem: Any) -> Plan:
    bins, low, high, n = problem
    if spec.option("levels").endswith("f8"):
        levels = struct.unpack("=3q", struct.pack("=3d", low, high, bins / (high - low)))
    else:
        levels = *((each + 2**63) % 2**64 - 2**63 for each in (low, high)), 0
    return Plan([[Range(0, 0, n)]], (bins, *levels))


SORT, MERGE = 0, 1


def _storage(spec: Specialisation, n: int) -> tuple[int, int]:
    """Return where a sort keeps items in its temporary storage, behind as many keys, and its bytes."""
    inputs = [each.value.itemsize for each in spec.arguments if each.name.startswith("d_in")]
    keys = -(-n * inputs[0] // 64) * 64
    return keys, keys + n * sum(inputs[1:])


def _merge_sort(spec: Specialisation, n: int) -> Plan:
    places, nbytes = _storage(spec, n)
    parts = [begin for begin, _ in ranges(n)]
    sorts = 1 << (len(parts) - 1).bit_length() if parts else 0  # a power of two of ranges, some empty
    size = -(-n // sorts) if sorts else 0
    bounds = [min(i * size, n) for i in range(sorts + 1)]
    in_spare = (sorts.bit_length() - 1) % 2 if sorts else 0
    begun = [Range(SORT, a, b, 0, (0, 0, 0, in_spare)) for a, b in pairwise(bounds) if a < b]
    steps = [begun]
    while len(bounds) > 2:
        in_spare ^= 1
        step = []
        for low, middle, high in zip(bounds[::2], bounds[1::2], bounds[2::2], strict=False):
            share = max(1, -(-(high - low) // max(1, _MOST * (high - low) // n)))
            for first in range(low, high, share):
                step.append(  # noqa: PERF401 - as a list it is no shorter
                    Range(MERGE, first, min(first + share, high), 0, (low, middle, high, in_spare))
                )
        steps.append(step)
        bounds = bounds[::2]
    return Plan(steps if n else [], (places,), nbytes)


def _segmented_sort(spec: Specialisation, problem: Any) -> Plan:
    n, size = problem.num_segments, problem.segment_size
    places, nbytes = _storage(spec, problem.num_items)
    least = max(1, math.ceil(_LEAST / max(1, problem.num_items / max(n, 1))))
    return Plan([[Range(0, *each) for each in ranges(n, least)]] if n else [], (places, size), nbytes)


# By algorithm: the function that numba compiles, and its file; and the plan.
ALGORITHMS: dict[str, tuple[str, Callable[[Specialisation, Any], Plan]]] = {
    "reduce_into": ("algorithms:reduce", _reduce),
    "inclusive_scan": ("algorithms:scan", _if_any),
    "exclusive_scan": ("algorithms:scan", _if_any),
    "unary_transform": ("algorithms:transform", _apart),
    "binary_transform": ("algorithms:transform", _apart),
    "segmented_reduce": ("algorithms:segmented_reduce", _segmented),
    "select": ("algorithms:select", _whole),
    "three_way_partition": ("algorithms:three_way_partition", _whole),
    "unique_by_key": ("algorithms:unique_by_key", _whole),
    "lower_bound": ("algorithms:search", _search),
    "upper_bound": ("algorithms:search", _search),
    "histogram_even": ("algorithms:histogram", _histogram),
    "merge_sort": ("sorts:merge_sort", _merge_sort),
    "inclusive_segmented_scan": ("segmented_scans:segmented_scan", _segmented),
    "exclusive_segmented_scan": ("segmented_scans:segmented_scan", _segmented),
    "reduce_by_key": ("runs:reduce_by_key", _whole),
    "inclusive_scan_by_key": ("runs:scan_by_key", _if_any),
    "exclusive_scan_by_key": ("runs:scan_by_key", _if_any),
    "run_length_encode": ("runs:run_length_encode", _whole),
    "top_k": ("runs:gather", _whole),
    "segmented_top_k": ("runs:gather", _whole),
    "radix_sort": ("", _whole),  # both sorts in an order are NumPy's
    "segmented_sort": ("sorts:segmented_merge_sort", _segmented_sort),
}
