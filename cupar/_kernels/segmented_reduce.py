"""Plans of segmented reductions: one kernel, and one for chunks of long segments.

If no segment is long, there are no chunks; if most are, the first kernel only queues them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .._ir import cpp
from .family import (
    Facts,
    Family,
    Launch,
    Number,
    Plan,
    Shape,
    Storage,
    Value,
    aligned,
    ceil_div,
    i32,
    i64,
    u32,
    u64,
)
from .segments import ROWS, Segments

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_BATCH = 32  # segments of a warp at most: each lane has one then
_UNKNOWN_BATCH = 8  # where nobody knows how long they are
_WARPS = 32  # of a multiprocessor, before warps have several segments
_MOST_LONG = 1 << 16  # segments in the queue
_MOST_CHUNKS = 1 << 17


_ARRAYS = Value("d_in"), Value("d_out")
_OFFSETS = Value("start_offsets_in"), Value("end_offsets_in")
_ROWS = i64("largest"), i64("largest")
_OP, _INIT = Value("op"), Value("init")
_QUEUE = (
    *(Storage(), Storage("segments"), Storage("chunks"), Storage("partials")),
    *(u32("most_segments"), u32("most_chunks")),
)
_NO_QUEUE = (*(u64(0),) * 4, *(u32(0),) * 2)


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    offsets = _OFFSETS if len(spec.arguments) > 2 else _ROWS
    names = ("n", "largest", "log_lanes", "grid", "shared")

    def reduce(queue: tuple[Storage | Number, ...]) -> Launch:
        parameters = (*_ARRAYS, *offsets, i64("n"), i32("log_lanes"), queue, _OP, _INIT)
        return Launch("cupar_segmented_reduce", "grid", "threads", parameters, "shared")

    init = Launch("cupar_segmented_reduce_init", 1, 1, (Storage(),))
    chunks = Launch("cupar_segmented_reduce_chunks", "chunk_grid", "threads", (*_ARRAYS, _QUEUE, _OP, _INIT))
    more = ("segments", "chunks", "partials", "most_segments", "most_chunks", "chunk_grid")
    queued = (*_ARRAYS, *offsets, i64("n"), _QUEUE, _OP, _INIT)
    queue = Launch("cupar_segmented_reduce_queue", "grid", "threads", queued)
    return {
        "short": Shape(names, (reduce(_NO_QUEUE),)),
        "any": Shape((*names, *more), (init, reduce(_QUEUE), chunks)),
        "long": Shape((*names, *more), (init, queue, chunks)),
    }


def _planner(facts: Facts) -> Callable[[Segments], Plan]:
    warps, sms, chunk = facts["threads"] // 32, facts["sms"], facts["chunk_items"]
    resident = sms * facts.occupancy("cupar_segmented_reduce_chunks", facts["threads"], 0)
    item_size = facts["item_size"] or 4  # of iterators it is not known what they read
    batch_bytes, most_staged, staged_bytes = (
        facts["batch_bytes"],
        facts["staged_lanes"],
        facts["staged_bytes"],
    )

    def plan(problem: Segments) -> Plan:
        n, items, largest, _ = problem
        if n == 0:
            return Plan("", 0)
        mean = items // n if items else largest
        batch = min(max(batch_bytes // max(mean * item_size, 1), 1), _BATCH) if mean else _UNKNOWN_BATCH
        batch = min(batch, max(n // (sms * _WARPS), 1))
        log_lanes = 6 - batch.bit_length()
        grid, shared = (
            ceil_div(n, warps * 32 >> log_lanes),
            staged_bytes if 1 << log_lanes <= most_staged else 0,
        )
        if 0 < largest <= chunk or 0 < items <= chunk:
            return Plan("short", 0, (n, largest, log_lanes, grid, shared))
        most = min(n, _MOST_LONG)
        _, segments, chunks, partials, nbytes = aligned(
            8, facts["segment_size"] * most, 4 * _MOST_CHUNKS, facts["accum_size"] * _MOST_CHUNKS
        )
        storage = segments, chunks, partials, most, _MOST_CHUNKS
        if items // n <= chunk:
            return Plan("any", nbytes, (n, largest, log_lanes, grid, shared, *storage, resident))
        # A block for as many chunks as it has warps balances them best, if that is most of the work.
        chunk_grid = ceil_div(min(ceil_div(items, chunk) + n, _MOST_CHUNKS), warps)
        grid = ceil_div(n, facts["threads"])
        return Plan("long", nbytes, (n, largest, 0, grid, 0, *storage, max(chunk_grid, resident)))

    return plan


def _traits(spec: Specialisation) -> str:
    code = f"using accum_t = {cpp.type_name(spec.operators[0][1].output)};"
    if len(spec.arguments) > 2:
        return f"{code}\nstatic constexpr bool is_rows = false;"
    return f"{code}\nstatic constexpr bool is_rows = true;\n{ROWS}"


SEGMENTED_REDUCE = Family(
    "segmented_reduce/segmented_reduce.cuh",
    (
        *("threads", "accum_size", "segment_size", "chunk_items", "item_size"),
        *("batch_bytes", "staged_lanes", "staged_bytes"),
    ),
    _shapes,
    _planner,
    _traits,
)
