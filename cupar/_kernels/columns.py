"""Plans of scans and reductions along columns, by the numbers of columns and rows.

Columns are those of (outer, length, inner): each has `length` items, which are `inner` apart. A thread has
one by itself where they are many; else warps, and then blocks, share the rows of a group of 32 columns, or
of as many as there are, to a power of two.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    accumulator,
    aligned,
    bits,
    ceil_div,
    helper,
    i32,
    i64,
    kind_of_init,
    members,
    prefixed,
    u32,
    u64,
)
from .tuning import Tunable, combined_types

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_ZERO_THREADS = 256  # of a block that sets states to zero; each does so with 8 bytes
_MOST_TILES = 2**31  # of columns that blocks share
_MOST_SHARED = 47 << 10  # bytes, static, of a block that scans
_REDUCED = 2  # warps of a grid, for each that runs at once: the last ones to end leave less idle


class ColumnsProblem(NamedTuple):
    """The columns of (outer, length, inner).

    Attributes
    ----------
    length : int
        Items of each.
    inner : int
        Distance between these, in items.
    columns : int
        All of them: outer * inner.
    items : int
        Of all of them.
    """

    length: int
    inner: int
    columns: int
    items: int


_SHAPE = i64("length"), i64("inner"), i64("columns")
_NUMBERS = ("length", "inner", "columns", "grid")
_IN, _OUT, _OP, _INIT = map(Value, ("d_in", "d_out", "op", "init"))


@helper
def _log_width(columns: int) -> int:
    """Return the logarithm of the number of columns of a group."""
    return min(bits(columns - 1), 5)


# --- Scans -----------------------------------------------------------------------------------------------

_SCAN_NAMES = ("threads", "tall", "block", "split")
_THREADS, _TALL, _BLOCK, _SPLIT = range(4)


def _scan_shapes(spec: Specialisation) -> Mapping[str, Shape]:
    def split(*states: Storage | Number) -> Launch:
        parameters = (_IN, _OUT, _SHAPE, i32("log_width"), i32("groups"), *states, _OP, _INIT)
        return Launch("cupar_column_scan_split", "grid", "split_threads", parameters)

    def alone(name: str, block: str) -> Shape:
        kernel = Launch(f"cupar_column_scan_{name}", "grid", block, (_IN, _OUT, _SHAPE, _OP, _INIT))
        return Shape(_NUMBERS, (kernel,))

    zero = Launch("cupar_column_scan_init", "zero_grid", _ZERO_THREADS, (Storage(),))
    grouped = (*_NUMBERS, "log_width", "groups")
    return {
        "threads": alone("threads", "threads"),
        "tall": alone("tall", "tall_threads"),
        "block": Shape(grouped, (split(u64(0), i64(0), u64(0)),)),
        "split": Shape(
            (*grouped, "states", "states_of_group", "zero_grid"),
            (zero, split(Storage("states"), i64("states_of_group"), Storage())),
        ),
    }


class _ScanFacts(NamedTuple):
    threads: int
    tall: int  # rows of a tile of 32 columns; 0: values are too large for that
    split: int
    known_size: int
    many: int  # columns from which on each thread has one
    sms: int
    resident: int  # blocks that share columns


def _scan_planner(given: Properties) -> tuple[Plan, _ScanFacts]:
    split = given["split_threads"]
    return _plan_scan, given.facts(
        _ScanFacts,
        tall=given["tall_threads"] // 32 * given["tall_rows"],
        split=split // 32 * given["split_rows"],
        many=given["many"] * given["sms"],
        resident=given.resident("cupar_column_scan_split", split) if given["split_rows"] else 0,
    )


def _plan_scan(facts: _ScanFacts, problem: ColumnsProblem, emit: Emit) -> int:
    length, inner, columns, items = problem
    if items == 0:
        return 0
    log_width = _log_width(columns)
    groups = ceil_div(columns, 1 << log_width)
    tiles = ceil_div(length, max(facts.split, 1) * (32 >> log_width))
    if columns >= facts.many or facts.split == 0 or tiles > _MOST_TILES:
        emit(_THREADS, (length, inner, columns, ceil_div(columns, facts.threads)))
        return 0
    blocks = min(facts.resident // groups, tiles)
    if blocks > 1 and 4 * groups < 3 * facts.sms:
        states = aligned(4 * groups)
        states_of_group = tiles << log_width
        zero_grid = ceil_div(states + groups * states_of_group * facts.known_size, 8 * _ZERO_THREADS)
        of_group = length, inner, columns, blocks * groups, log_width, groups
        emit(_SPLIT, of_group + (states, states_of_group, zero_grid))
        return 8 * _ZERO_THREADS * zero_grid
    if groups <= facts.sms and log_width == 5 and facts.tall > 0:
        emit(_TALL, (length, inner, columns, groups))
    else:
        emit(_BLOCK, (length, inner, columns, groups, log_width, groups))
    return 0


def _scan_traits(spec: Specialisation) -> str:
    policy = prefixed("policy_", _SCAN_TUNABLE.given(spec))
    is_inclusive = spec.algorithm == "inclusive_column_scan"
    return members(accumulator(spec), is_inclusive=is_inclusive, **kind_of_init(spec), **policy)


def _scan_default(spec: Specialisation) -> policies.ColumnScanPolicy:
    nbytes = max(spec.arguments[0].value.itemsize, spec.operators[0][1].output.itemsize)
    return policies.COLUMN_SCAN.get(spec.cc, 4 if nbytes <= 4 else 8 if nbytes <= 8 else 0)


def _scan_space(spec: Specialisation) -> Mapping[str, tuple[int, ...]]:
    return {
        "threads": (64, 128, 256),
        "bytes": (64, 128),
        "tall_bytes": (48, 64),
        "split_warps": (8, 16),
        "split_bytes": (64, 80, 96, 112, 128),
        "split_resident": (1, 2),
        "many": (96, 192, 384),
    }


def _scan_fits(spec: Specialisation, policy: policies.ColumnScanPolicy) -> bool:
    size = spec.operators[0][1].output.itemsize
    looked_at = 4 if size <= 8 else 2 if size <= 16 else 1  # tiles, of a thread
    return policy.split_warps * 32 * size * (2 + looked_at) <= _MOST_SHARED


_SCAN_TUNABLE = Tunable(
    "column scan", policies.ColumnScanPolicy, _scan_default, combined_types, _scan_space, _scan_fits
)

COLUMN_SCAN = Family(
    "columns/column_scan.cuh",
    ("threads", "tall_threads", "tall_rows", "split_threads", "split_rows", "known_size", "many"),
    _SCAN_NAMES,
    _scan_shapes,
    _scan_planner,
    _scan_traits,
    tunable=_SCAN_TUNABLE,
)

# --- Reductions ------------------------------------------------------------------------------------------

_REDUCE_NAMES = ("whole", "parts")
_WHOLE, _PARTS = range(2)


def _reduce_shapes(spec: Specialisation) -> Mapping[str, Shape]:
    def reduce(partials: Storage | Number) -> Launch:
        stack = i32("log_width"), i32("stacked"), u32("blocks_of_part"), i64("strip_rows")
        parameters = (_IN, _OUT, partials, _SHAPE, *stack, _OP, _INIT)
        return Launch("cupar_column_reduce", "grid", "threads", parameters)

    numbers = (*_NUMBERS, "log_width", "stacked", "blocks_of_part", "strip_rows")
    partials = Launch(
        *("cupar_column_reduce_partials", "groups", "threads"),
        (
            *(Storage(), _OUT, (i64("parts"), i64("columns"), i64("columns"))),
            *(i32("log_width"), i64("strip_parts"), _OP, _INIT),
        ),
    )
    return {
        "whole": Shape(numbers, (reduce(u64(0)),)),
        "parts": Shape((*numbers, "groups", "parts", "strip_parts"), (reduce(Storage()), partials)),
    }


class _ReduceFacts(NamedTuple):
    warps: int  # of a block
    rows: int  # that a thread has at once
    most: int  # warps that share columns, in a block
    resident: int  # warps
    accum_size: int
    has_init: int


def _reduce_planner(given: Properties) -> tuple[Plan, _ReduceFacts]:
    warps = given["threads"] // 32
    return _plan_reduce, given.facts(
        _ReduceFacts,
        warps=warps,
        most=warps if given["may_stack"] else 1,
        resident=given.resident("cupar_column_reduce", given["threads"]) * warps,
    )


def _plan_reduce(facts: _ReduceFacts, problem: ColumnsProblem, emit: Emit) -> int:
    length, inner, columns, items = problem
    if columns == 0 or (items == 0 and not facts.has_init):
        return 0
    log_width = _log_width(columns)
    strips = 32 >> log_width
    groups = ceil_div(columns, 1 << log_width)
    # Warps that share a group: all resident ones, if there are rows for all of them.
    wanted = min(ceil_div(_REDUCED * facts.resident, groups), ceil_div(length, strips * facts.rows))
    stacked = 1
    while stacked < facts.most and stacked < wanted:
        stacked *= 2
    parts = ceil_div(wanted, stacked) if stacked == facts.most and facts.most > 1 else 1
    strip_rows = max(ceil_div(length, strips * stacked * parts), 1)
    parts = max(ceil_div(length, strips * stacked * strip_rows), 1)
    blocks = ceil_div(groups, facts.warps // stacked)
    numbers = length, inner, columns, blocks * parts, log_width, stacked, blocks, strip_rows
    if parts == 1:
        emit(_WHOLE, numbers)
        return 0
    emit(_PARTS, numbers + (groups, parts, ceil_div(parts, strips * facts.warps)))
    return aligned(facts.accum_size * parts * columns)


def _reduce_traits(spec: Specialisation) -> str:
    policy = prefixed("policy_", _REDUCE_TUNABLE.given(spec))
    return members(accumulator(spec), has_init=spec.option("init") is not None, **policy)


_REDUCE_TUNABLE = Tunable(
    "column reduce",
    policies.ColumnReducePolicy,
    lambda spec: policies.COLUMN_REDUCE.get(spec.cc),
    combined_types,
    lambda spec: {"threads": (64, 128, 256, 512), "bytes": (16, 32, 64, 96, 128)},
)


COLUMN_REDUCE = Family(
    "columns/column_reduce.cuh",
    ("threads", "rows", "may_stack", "accum_size", "has_init"),
    _REDUCE_NAMES,
    _reduce_shapes,
    _reduce_planner,
    _reduce_traits,
    tunable=_REDUCE_TUNABLE,
)
