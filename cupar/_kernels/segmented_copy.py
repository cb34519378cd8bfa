"""Plans of copies of segments: where they end is summed up, and a grid that stays copies them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from . import policies
from .family import (
    Emit,
    Family,
    Launch,
    Plan,
    Properties,
    Shape,
    Storage,
    Value,
    aligned,
    ceil_div,
    i64,
    members,
    value_or_null,
    void,
)
from .segments import SegmentsProblem
from .tuning import Tunable, value_types

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_GROUP = 1024  # segments that a block sums up, a thread for each
MOST_ITEMS = 2**63 - 1  # that are written
_NAMES = ("few", "many")
_FEW, _MANY = range(2)

_STARTS, _ENDS = map(Value, ("start_offsets_in", "end_offsets_in"))
_SUMMED = Storage(), Storage("begins")  # where segments end in their group, and where groups begin
_GROUPS = Launch("cupar_segmented_copy_ends", "groups", _GROUP, (_STARTS, _ENDS, i64("segments"), *_SUMMED))
_BEGINS = Launch("cupar_segmented_copy_begins", 1, _GROUP, (Storage("begins"), i64("groups")))
_NUMBERS = ("segments", "groups", "begins", "most", "grid")


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    outs, count = (value_or_null(spec, name) for name in ("start_offsets_out", "d_out_num_items"))
    arrays = Value("d_in"), Value("d_out"), _STARTS, outs, count
    numbers = i64("segments"), *_SUMMED, i64("groups"), i64("most")
    copy = Launch("cupar_segmented_copy", "grid", "threads", (*arrays, *numbers))
    return {"few": Shape(_NUMBERS, (_GROUPS, copy)), "many": Shape(_NUMBERS, (_GROUPS, _BEGINS, copy))}


def _planner(given: Properties) -> tuple[Plan, tuple[int, int, int]]:
    threads = given["threads"]
    resident = given.resident("cupar_segmented_copy", threads)
    return _plan, (threads // 32 * given["tile"], resident, given["is_told"])


def _plan(facts: tuple[int, int, int], problem: SegmentsProblem, emit: Emit) -> int:
    items, at_once, is_told = facts  # of a block, and blocks
    segments, num_items, most, _ = problem
    if segments == 0 and not is_told:
        return 0
    groups, begins = max(ceil_div(segments, _GROUP), 1), aligned(8 * segments)
    # Segments may have more items than the array, if they overlap: blocks go on until all are copied.
    grid = at_once
    if num_items > 0:
        grid = min(at_once, ceil_div(num_items, items))
    emit(_FEW if groups == 1 else _MANY, (segments, groups, begins, most, grid))
    return begins + 8 * (groups + 1)


def _default(spec: Specialisation) -> policies.SegmentedCopyPolicy:
    size = spec.arguments[0].value.itemsize
    return policies.SEGMENTED_COPY.get(spec.cc, size if size in (1, 2, 4, 8) else 0)


def _space(spec: Specialisation) -> Mapping[str, tuple[int, ...]]:
    return {
        "threads": (128, 256, 512),
        "rows": (2, 4, 8),
        "tile_rows": (16, 32, 64, 128, 256),
        "run_rows": (4, 8, 16, 32),
        "resident": (1, 2, 3, 4, 5, 6, 8),
    }


def _fits(spec: Specialisation, policy: policies.SegmentedCopyPolicy) -> bool:
    return policy.threads * policy.resident <= 2048 and policy.rows <= policy.tile_rows


_TUNABLE = Tunable("segmented_copy", policies.SegmentedCopyPolicy, _default, value_types, _space, _fits)


def _traits(spec: Specialisation) -> str:
    missing = [name for name in ("start_offsets_out", "d_out_num_items") if not spec.has(name)]
    return members(*void(*(f"{name}_t" for name in missing)), **_TUNABLE.given(spec)._asdict())


SEGMENTED_COPY = Family(
    "segmented_copy/segmented_copy.cuh",
    ("threads", "tile", "is_told"),
    _NAMES,
    _shapes,
    _planner,
    _traits,
    tunable=_TUNABLE,
)
