"""Plans of reductions by index: tables in shared memory, or atomic operations on the output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import structs
from ..operators import OpKind
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
    ceil_div,
    helper,
    i64,
    members,
    prefixed,
    resident_blocks,
    u32,
    u64,
)
from .tuning import Tunable, combined_types

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation


class ReduceByIndexProblem(NamedTuple):
    """How many items there are, and how many bins."""

    num_items: int
    num_bins: int


_TABLES = ("threads", "few threads", "warps", "few warps", "block")
_THREADS, _FEW, _WARPS, _FEW_WARPS, _BLOCK = range(5)
_ALONE = len(_TABLES)  # from a shape to that of the only block for its bins, which has no partial results
_NAMES = (*_TABLES, *(f"{name} alone" for name in _TABLES), "atomic")
_ATOMIC = 2 * _ALONE

_RESIDENT = 8  # blocks of a multiprocessor at most

_IN, _INDICES, _OUT, _OP, _INIT = map(Value, ("d_in", "d_indices", "d_out", "op", "init"))


_WORDS = frozenset(map(np.dtype, ("i4", "u4", "i8", "u8")))
_FLOATS = frozenset(map(np.dtype, ("f2", "f4", "f8")))
_IN_WORDS = frozenset(
    (OpKind.PLUS, OpKind.MINIMUM, OpKind.MAXIMUM, OpKind.BIT_AND, OpKind.BIT_OR, OpKind.BIT_XOR)
)


def is_atomic(
    kind: OpKind | None, accumulator: np.dtype[Any], target: np.dtype[Any] | None, is_free: bool
) -> bool:
    """Whether atomic operations can combine in an output, which is an array if `target` is a dtype.

    Those of integers give the same in any order; of floats, there are sums, if their order is free.
    """
    if target != accumulator:
        return False
    if accumulator in _WORDS:
        return kind in _IN_WORDS
    is_float = accumulator in _FLOATS or structs.is_bfloat16(accumulator)
    return is_free and kind is OpKind.PLUS and is_float


def _is_atomic(spec: Specialisation) -> bool:
    target = next(argument for argument in spec.arguments if argument.output)
    op, is_free = spec.operators[0][1], spec.option("determinism") is not None
    kind = op.kind if set(op.inputs) == {op.output} else None
    return is_atomic(kind, op.output, target.value if target.is_pointer else None, is_free)


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    ranges = u32("rows"), u32("ranges")
    tables: dict[str, tuple[str, str, tuple[Number, ...]]] = {
        "threads": ("threads", "threads", ()),
        "few threads": ("threads", "few_threads", ()),
        "warps": ("warps", "threads", ranges),
        "few warps": ("warps", "few_threads", ranges),
    }
    shapes = {}
    if _is_atomic(spec):
        tables["block"] = ("block", "block_threads", ())
        init = Launch("cupar_reduce_by_index_init", "init_grid", "threads", (_OUT, u32("bins"), _INIT))
        given = (_IN, _INDICES, _OUT, i64("n"), u32("bins"), _OP)
        add = Launch("cupar_reduce_by_index_atomic", "grid", "threads", given)
        shapes["atomic"] = Shape(("n", "bins", "grid", "init_grid"), (init, add))
    for name, table in tables.items():
        shapes[name], shapes[f"{name} alone"] = (_shape(*table, partials) for partials in (Storage(), u64(0)))
    return shapes


def _shape(kernel: str, threads: str, ranges: tuple[Number, ...], partials: Storage | Number) -> Shape:
    parameters = (_IN, _INDICES, _OUT, partials, i64("n"), u32("bins"), *ranges, _OP, _INIT)
    launches = [Launch(f"cupar_reduce_by_index_{kernel}", "grid", threads, parameters, "shared")]
    if isinstance(partials, Storage):
        given = (Storage(), _OUT, u32("bins"), u32("parts"), _OP, _INIT)
        name = "cupar_reduce_by_index_partials"
        launches.append(Launch(name, "combine_grid", "threads", given, "combine_shared"))
    numbers = ("n", "bins", "grid", "parts", "shared", "combine_grid", "combine_shared")
    return Shape((*numbers, *(str(each.name) for each in ranges)), tuple(launches))


class _ReduceByIndexFacts(NamedTuple):
    sms: int
    threads: int
    few_threads: int
    block_threads: int
    batch: int  # items that a thread loads at once
    slot_size: int  # bytes of a partial result
    value_size: int  # of a bin in a thread's column
    entry_size: int  # of one in a warp's
    flags: int  # bytes of a word of flags of 32 bins; 0: there are none
    # Of each kernel: bytes of a block's table at most, as `Properties.shared_limits` returns them.
    of_threads: tuple[int, ...]
    of_few: tuple[int, ...]
    of_warps: tuple[int, ...]
    of_few_warps: tuple[int, ...]
    of_block: tuple[int, ...]
    at_once: int  # blocks that combine in the output by atomic operations; 0: there are none
    atomic_kind: int  # 2: these are native, and give the same in any order


def _planner(given: Properties) -> tuple[Plan, _ReduceByIndexFacts]:
    def limits(kernel: str, threads: str) -> tuple[int, ...]:
        return given.shared_limits(f"cupar_reduce_by_index_{kernel}", given[threads], _RESIDENT)

    atomic = "cupar_reduce_by_index_atomic" if given["atomic_kind"] > 0 else ""
    return _plan, given.facts(
        _ReduceByIndexFacts,
        flags=0 if given["has_identity"] else 4,
        of_threads=limits("threads", "threads"),
        of_few=limits("threads", "few_threads"),
        of_warps=limits("warps", "threads"),
        of_few_warps=limits("warps", "few_threads"),
        of_block=limits("block", "block_threads") if atomic else (-1,) * _RESIDENT,
        at_once=given.resident(atomic, given["threads"]) if atomic else 0,
    )


def _plan(facts: _ReduceByIndexFacts, problem: ReduceByIndexProblem, emit: Emit) -> int:
    n, bins = problem
    threads, few = facts.threads, facts.few_threads
    if bins == 0:
        return 0
    column = facts.value_size * bins + facts.flags * ceil_div(bins, 32)
    if threads * column + 16 <= facts.of_threads[0]:
        shared = 16 * ceil_div(threads * column + 15, 16)
        return _tables(facts, problem, (_THREADS, threads, shared), facts.of_threads, emit)
    if few * column + 16 <= facts.of_few[0]:
        shared = 16 * ceil_div(few * column + 15, 16)
        return _tables(facts, problem, (_FEW, few, shared), facts.of_few, emit)
    of_warps = bins * facts.entry_size * (threads // 32) <= facts.of_warps[0]
    if bins * facts.slot_size <= facts.of_block[0] and (facts.atomic_kind > 1 or not of_warps):
        return _tables(
            facts, problem, (_BLOCK, facts.block_threads, bins * facts.slot_size), facts.of_block, emit
        )
    if of_warps:
        return _ranges(facts, problem, (_WARPS, threads), facts.of_warps, emit)
    if facts.at_once > 0:
        init_grid = min(ceil_div(bins, threads), 8 * facts.sms)
        tiles = max(1, ceil_div(n, threads * facts.batch))
        emit(_ATOMIC, (n, bins, min(tiles, facts.at_once), init_grid))
        return 0
    return _ranges(facts, problem, (_FEW_WARPS, few), facts.of_few_warps, emit)


@helper
def _tables(
    facts: _ReduceByIndexFacts,
    problem: ReduceByIndexProblem,
    table: tuple[int, int, int],
    limits: tuple[int, ...],
    emit: Emit,
) -> int:
    """Plan tables that have all bins: with a shape, threads and shared memory of a block."""
    n, bins = problem
    shape, threads, shared = table
    parts = _parts(facts, n, 1, threads, limits, shared)
    numbers = (n, bins, parts, parts, shared, ceil_div(bins, 32), facts.slot_size * facts.threads)
    emit(shape + _ALONE * (1 if parts == 1 else 0), numbers)
    return 0 if parts == 1 else parts * bins * facts.slot_size


@helper
def _ranges(
    facts: _ReduceByIndexFacts,
    problem: ReduceByIndexProblem,
    table: tuple[int, int],
    limits: tuple[int, ...],
    emit: Emit,
) -> int:
    """Plan tables of warps, each of a range of bins: with a shape, and threads of a block."""
    n, bins = problem
    shape, threads = table
    row = facts.entry_size * (threads // 32)
    rows = ceil_div(bins, ceil_div(bins, max(1, limits[0] // row)))
    ranges = ceil_div(bins, rows)
    parts = _parts(facts, n, ranges, threads, limits, rows * row)
    sizes = (n, bins, parts * ranges, parts, rows * row)
    emit(
        shape + _ALONE * (1 if parts == 1 else 0),
        sizes + (ceil_div(bins, 32), facts.slot_size * facts.threads, rows, ranges),
    )
    return 0 if parts == 1 else parts * bins * facts.slot_size


@helper
def _parts(
    facts: _ReduceByIndexFacts, n: int, ranges: int, threads: int, limits: tuple[int, ...], shared: int
) -> int:
    """Return how many blocks share the items of a range of bins."""
    tiles = ceil_div(n, threads * facts.batch)
    return max(1, min(facts.sms * resident_blocks(limits, shared) // ranges, tiles))


def _default(spec: Specialisation) -> policies.ReduceByIndexPolicy:
    return policies.REDUCE_BY_INDEX.get(spec.cc)


def _space(spec: Specialisation) -> Mapping[str, tuple[int, ...]]:
    return {
        "threads": (128, 256, 512),
        "few_threads": (64, 128),
        "block_threads": (512, 1024),
        "bytes": (64, 128, 192, 256),
    }


def _fits(spec: Specialisation, policy: policies.ReduceByIndexPolicy) -> bool:
    return policy.few_threads <= policy.threads


def _scope(spec: Specialisation) -> dict[str, str]:
    return {**combined_types(spec), "order": "any" if _is_atomic(spec) else "kept"}


_TUNABLE = Tunable("reduce_by_index", policies.ReduceByIndexPolicy, _default, _scope, _space, _fits)


def _traits(spec: Specialisation) -> str:
    policy = prefixed("policy_", _TUNABLE.given(spec))
    return members(accumulator(spec), is_atomic=_is_atomic(spec), **policy)


REDUCE_BY_INDEX = Family(
    "reduce_by_index/reduce_by_index.cuh",
    (
        *("threads", "few_threads", "block_threads", "batch"),
        *("slot_size", "value_size", "entry_size", "has_identity", "atomic_kind"),
    ),
    _NAMES,
    _shapes,
    _planner,
    _traits,
    tunable=_TUNABLE,
)
