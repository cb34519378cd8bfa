"""Offsets of segments that name items which are not there: a call on the CPU refuses them.

Kernels of GPUs take offsets as they are, since asking would cost a launch and a wait. Here a phase before all
others looks at them, as they may be computed, and writes for each of its parts what it found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._base.errors import ArgumentValueError
from .._ir.nodes import Argument

WORDS = 3  # of a part: the first invalid segment or -1, which check failed, and the offset
BEFORE, BEYOND, BEYOND_OUTPUT, OUTPUT_BEFORE, OUTPUT_BEYOND = range(5)  # which check failed


class SegmentOffsets(NamedTuple):
    """The problem of a reduction or scan of segments with offsets, and the sizes of its arrays."""

    num_segments: int
    num_items: int
    largest: int
    used: int
    capacity: int
    capacity_out: int


def capacities(problem: Any) -> tuple[int, int]:
    """Return the numbers of items that offsets may name, of the input and of the output."""
    if isinstance(problem, SegmentOffsets):
        return problem.capacity, problem.capacity_out
    return problem.num_items, problem.num_items


def check(problem: Any, found: np.ndarray[Any, Any], parts: int, arguments: Sequence[Argument] = ()) -> None:
    """Raise ValueError if one of the parts of a check found an invalid offset of `arguments`, if known."""
    words = found[: WORDS * parts].tolist()
    for first in range(0, len(words), WORDS):
        segment, what, value = words[first : first + WORDS]
        if segment >= 0:
            raise ArgumentValueError(*_said(problem, segment, what, value, arguments))


def check_arrays(
    problem: Any,
    starts: np.ndarray[Any, Any],
    ends: np.ndarray[Any, Any],
    arguments: Sequence[Argument],
) -> None:
    """Raise ValueError if offsets of NumPy's sorts name items that are not there."""
    may_wrap = ("end_offsets_in", np.dtype(np.uint64)) in [(each.name, each.value) for each in arguments]
    wrapped = (starts >= 0) & (ends < 0) & may_wrap  # ends that int64 does not hold
    for what, value, wrong in ((BEFORE, starts, starts < 0), (BEYOND, ends, ends > problem.num_items)):
        wrong = wrong & (starts < ends) | (wrapped if what == BEYOND else False)
        if wrong.any():
            segment = int(wrong.argmax())
            raise ArgumentValueError(*_said(problem, segment, what, int(value[segment]), arguments))


def _said(
    problem: Any, segment: int, what: int, value: int, arguments: Sequence[Argument]
) -> tuple[str, str]:
    names = ("start_offsets_in", "end_offsets_in", "end_offsets_in", "start_offsets_out", "start_offsets_out")
    name = names[what]
    if value < 0 and (name, "u") in [(each.name, each.value.kind) for each in arguments]:
        value += 2**64  # it was read as an int64
        what = BEYOND if what in (BEFORE, BEYOND) else OUTPUT_BEYOND
    capacity, capacity_out = capacities(problem)
    of_input = "the items of d_in" if isinstance(problem, SegmentOffsets) else "which is num_items"
    expected = {
        BEYOND: f"at most {capacity}, {of_input}",
        BEYOND_OUTPUT: f"at most {capacity_out}, the items of d_out",
        OUTPUT_BEYOND: f"room for the segment in d_out, which has {capacity_out} items",
    }.get(what, "0 or more")
    return f"{name}[{segment}]", f"expected {expected}, got {value}"
