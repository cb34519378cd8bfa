"""Plans of segmented reductions: one kernel, and one for chunks of long segments.

If no segment is long, there are no chunks; if most are, the first kernel only queues them all. Segments of
a few items have a kernel of their own.
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
    members,
    prefixed,
    u32,
    u64,
)
from .segments import MOST_BLOCKS, SegmentsProblem, row_types
from .tuning import Tunable, combined_types

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_BATCH = 32  # segments of a warp at most: each lane has one then
_UNKNOWN_BATCH = 8  # where their lengths are unknown
_WARPS = 32  # of a multiprocessor, before warps have several segments
_FEW_BATCH = 128  # segments of a warp, if they have a few items: each lane has 4, as the kernel says
_FEW_SHARE = 128  # segments of a warp from which on that is done
_FEW_ITEMS = 8  # of these segments, on average
_FEW_BYTES = 4096  # of a warp's shared memory for them, at least
_WIDEST = 16  # bytes of a vector, which the first item of a warp may not begin
_MOST_LONG = 1 << 16  # segments in the queue
_MOST_CHUNKS = 1 << 17

_NAMES = ("short", "any", "long", "few", "rows")
_SHORT, _ANY, _LONG, _FEW, _ROWS = range(5)

_ARRAYS = Value("d_in"), Value("d_out")
_OFFSETS = Value("start_offsets_in"), Value("end_offsets_in")
_ROW_OFFSETS = i64("largest"), i64("largest")
_OP, _INIT = Value("op"), Value("init")
_QUEUE = (
    *(Storage(), Storage("segments"), Storage("chunks"), Storage("partials")),
    *(u32("most_segments"), u32("most_chunks")),
)
_NO_QUEUE = (*(u64(0),) * 4, *(u32(0),) * 2)


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    offsets = _OFFSETS if len(spec.arguments) > 2 else _ROW_OFFSETS
    names = ("n", "largest", "log_lanes", "grid", "shared")

    def reduce(queue: tuple[Storage | Number, ...]) -> Launch:
        parameters = (*_ARRAYS, *offsets, i64("n"), i32("log_lanes"), queue, _OP, _INIT)
        return Launch("cupar_segmented_reduce", "grid", "threads", parameters, "shared")

    init = Launch("cupar_segmented_reduce_init", 1, 1, (Storage(),))
    chunks = Launch("cupar_segmented_reduce_chunks", "chunk_grid", "threads", (*_ARRAYS, _QUEUE, _OP, _INIT))
    more = ("segments", "chunks", "partials", "most_segments", "most_chunks", "chunk_grid")
    queued = (*_ARRAYS, *offsets, i64("n"), _QUEUE, _OP, _INIT)
    queue = Launch("cupar_segmented_reduce_queue", "grid", "threads", queued)
    in_parts = (*_ARRAYS, *offsets, i64("n"), i32("part_bytes"), _QUEUE, _OP, _INIT)
    few = Launch("cupar_segmented_reduce_few", "grid", "threads", in_parts, "shared")
    of_few = (
        {"few": Shape((*names, *more, "part_bytes"), (init, few, chunks))} if len(spec.arguments) > 2 else {}
    )
    in_lanes = (*_ARRAYS, i64("largest"), i64("n"), i32("rows"), i32("part_bytes"), _OP, _INIT)
    of_rows = Launch("cupar_segmented_reduce_rows", "grid", "threads", in_lanes, "shared")
    if len(spec.arguments) == 2:
        of_few = {"rows": Shape(("n", "largest", "grid", "shared", "rows", "part_bytes"), (of_rows,))}
    return {
        "short": Shape(names, (reduce(_NO_QUEUE),)),
        "any": Shape((*names, *more), (init, reduce(_QUEUE), chunks)),
        "long": Shape((*names, *more), (init, queue, chunks)),
        **of_few,
    }


class _SegmentedReduceFacts(NamedTuple):
    warps: int  # of a block
    sms: int
    chunk_items: int
    chunk_blocks: int  # that run at once
    segment_size: int
    accum_size: int
    item_size: int
    batch_bytes: int
    staged_lanes: int
    staged_bytes: int
    has_few: int
    is_rows: int


def _planner(given: Properties) -> tuple[Plan, _SegmentedReduceFacts]:
    return _plan, given.facts(
        _SegmentedReduceFacts,
        warps=given["threads"] // 32,
        chunk_blocks=given.resident("cupar_segmented_reduce_chunks", given["threads"]),
        item_size=given["item_size"] or 4,  # the bytes that iterators read are unknown
    )


@helper
def _rows_of_lane(nbytes: int, most: int) -> int:
    """Return how many rows a lane has one after another, given the bytes of a warp's if each has one.

    As many as can be staged. But lanes copy four vectors at once, and what takes them one or two such turns
    is quicker as it is: 2 KiB are enough, and one row of a lane is none of these.
    """
    turn = 4 * _WIDEST * 32
    if turn % nbytes == 0:
        return turn // nbytes if nbytes < turn else 0
    return 0 if nbytes == 2 * turn else most // nbytes


@helper
def _lanes_of_row(vectors: int) -> int:
    """Return how many lanes have a row of some vectors, of which each loads four at once.

    As many as have two and a half at least; but fewer, if a third of these loads were of no use.
    """
    lanes = 1
    while lanes < 32 and vectors >= 5 * lanes:
        lanes *= 2
    while lanes >= 8 and 8 * lanes * ceil_div(vectors, 4 * lanes) > 3 * vectors:
        lanes //= 2
    return lanes


def _plan(facts: _SegmentedReduceFacts, problem: SegmentsProblem, emit: Emit) -> int:
    n, items, largest, _ = problem
    if n == 0:
        return 0
    warps, chunk = facts.warps, facts.chunk_items
    share = max(n // (facts.sms * _WARPS), 1)  # segments of a warp, if all that run at once have some
    of_lanes = 32 * largest * facts.item_size  # bytes of a warp's rows, if each lane has one
    are_words = facts.item_size == 4 and facts.accum_size <= 4
    if facts.is_rows and facts.has_few and of_lanes > 0:
        each = min(_rows_of_lane(of_lanes, facts.staged_bytes // warps - _WIDEST), share // 32)
        if each > 1 or (each == 1 and are_words):
            part = each * of_lanes + _WIDEST
            emit(_ROWS, (n, largest, ceil_div(n, warps * 32 * each), warps * part, 32 * each, part))
            return 0
    mean, batch = items // n if items else largest, _UNKNOWN_BATCH
    if mean > 0:
        batch = min(max(facts.batch_bytes // max(mean * facts.item_size, 1), 1), _BATCH)
    if facts.is_rows and facts.has_few and are_words:
        fits = of_lanes <= facts.staged_bytes // warps - _WIDEST
        batch = _BATCH if fits else _BATCH // _lanes_of_row(ceil_div(4 * largest, _WIDEST))
    log_lanes = 6 - bits(min(batch, share))
    while log_lanes > 0 and ceil_div(n, warps * 32 >> log_lanes) > MOST_BLOCKS:
        log_lanes -= 1
    grid = ceil_div(n, warps * 32 >> log_lanes)
    shared = facts.staged_bytes if 1 << log_lanes <= facts.staged_lanes else 0
    if 0 < largest <= chunk or 0 < items <= chunk:
        emit(_SHORT, (n, largest, log_lanes, grid, shared))
        return 0
    most = min(n, _MOST_LONG)
    segments = aligned(8)
    chunks = segments + aligned(facts.segment_size * most)
    partials = chunks + aligned(4 * _MOST_CHUNKS)
    storage = (segments, chunks, partials, most, _MOST_CHUNKS)
    is_few = 0 < mean <= _FEW_ITEMS and mean * facts.item_size * _FEW_BATCH <= facts.batch_bytes
    if is_few and share >= _FEW_SHARE and facts.has_few and largest == 0:
        # A quarter more than segments have on average; less is no use, as registers limit the blocks then.
        wanted = max(mean * facts.item_size * _FEW_BATCH * 5 // 4, _FEW_BYTES)
        part = min(facts.staged_bytes // warps, aligned(wanted) + _WIDEST)
        grid = ceil_div(n, warps * _FEW_BATCH)
        emit(_FEW, (n, largest, 0, grid, warps * part) + storage + (facts.chunk_blocks, part))
    elif items // n <= chunk:
        emit(_ANY, (n, largest, log_lanes, grid, shared) + storage + (facts.chunk_blocks,))
    else:
        # A block for as many chunks as it has warps balances them best, if that is most of the work.
        chunk_grid = ceil_div(min(ceil_div(items, chunk) + n, _MOST_CHUNKS), warps)
        chunk_grid = max(chunk_grid, facts.chunk_blocks)
        emit(_LONG, (n, largest, 0, ceil_div(n, 32 * warps), 0) + storage + (chunk_grid,))
    return partials + aligned(facts.accum_size * _MOST_CHUNKS)


# --- Policies --------------------------------------------------------------------------------------------

_MOST_SHARED = 48 << 10  # bytes of a block


def _default(spec: Specialisation) -> policies.SegmentedReducePolicy:
    source, table = spec.arguments[0], policies.SEGMENTED_REDUCE
    kind, size = "rows" if len(spec.arguments) == 2 else "offsets", source.value.itemsize
    found = table.find(spec.cc, kind, size) if source.is_pointer else None
    return found or table.get(spec.cc, kind)


def _space(spec: Specialisation) -> Mapping[str, tuple[int, ...]]:
    return {
        "threads": (64, 128, 256, 512),
        "batch_bytes": (1024, 2048, 4096, 8192),
        "staged_bytes": (2048, 4096, 5120, 8192, 10240),
        "chunk_vectors": (1024, 2048, 4096),
    }


def _fits(spec: Specialisation, policy: policies.SegmentedReducePolicy) -> bool:
    staged = policy.threads // 32 * (policy.staged_bytes + 16)
    return policy.batch_bytes <= policy.staged_bytes and staged <= _MOST_SHARED


_TUNABLE = Tunable(
    "segmented reduce", policies.SegmentedReducePolicy, _default, combined_types, _space, _fits
)


def _traits(spec: Specialisation) -> str:
    flags = {"is_ordered": spec.option("commutative") is not None, "is_rows": len(spec.arguments) == 2}
    policy = prefixed("policy_", _TUNABLE.given(spec))
    return members(accumulator(spec), *row_types(spec), **flags, **policy)


SEGMENTED_REDUCE = Family(
    "segmented_reduce/segmented_reduce.cuh",
    (
        *("threads", "accum_size", "segment_size", "chunk_items", "item_size"),
        *("batch_bytes", "staged_lanes", "staged_bytes", "has_few", "is_rows"),
    ),
    _NAMES,
    _shapes,
    _planner,
    _traits,
    tunable=_TUNABLE,
)
