"""Plans of segmented scans: one kernel, and if there may be long segments, one for their chunks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .._ir import cpp
from . import policies
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

_NO_OUTPUTS = "using start_offsets_out_t = cupar::no_offsets;"

_BATCH = 32  # segments of a warp at most, unless they are rows
_LONG_BATCH = 4  # where most are for blocks
_UNKNOWN_BATCH = 8  # where nobody knows how long they are
_WARPS = 32  # of a multiprocessor, before warps have several segments
_FEW = 8  # segments for each multiprocessor: if there are no more, blocks take those of more than two tiles
_SPARE = 64  # segments in the queue, beside those that there is room for in the input
_UNKNOWN_SEGMENTS = 1 << 16  # in the queue, if nobody knows how many items there are
_UNKNOWN_CHUNKS = 1 << 18
_CLEAR_THREADS = 256  # of a block that empties the queue; each clears 16 bytes
_MOST_SEGMENTS = (1 << 24) - 1
_MOST_CHUNKS = 1 << 24


_ARRAYS = Value("d_in"), Value("d_out")
_OP, _INIT = Value("op"), Value("init")
_QUEUE = (
    *(Storage(), Storage("segments"), Storage("segment_of"), Storage("of_chunks")),
    *(u32("most_segments"), u32("most_chunks")),
)
_NO_QUEUE = (*(u64(0),) * 4, *(u32(0),) * 2)


def _offsets(spec: Specialisation) -> list[str]:
    return [each.name for each in spec.arguments[2:]]


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    given = _offsets(spec)
    offsets = (
        Value("start_offsets_in") if given else i64("largest"),
        Value("end_offsets_in") if given else i64("largest"),
        Value("start_offsets_out") if len(given) > 2 else i32(0),
    )

    n, long_items = i64("n"), i64("long_items")

    def scan(queue: tuple[Storage | Number, ...]) -> Launch:
        parameters = (*_ARRAYS, *offsets, n, i32("batch"), long_items, queue, _OP, _INIT)
        return Launch("cupar_segmented_scan", "grid", "threads", parameters)

    names = ("n", "largest", "batch", "long_items", "grid")
    init = Launch(
        "cupar_segmented_scan_init",
        "clear_grid",
        _CLEAR_THREADS,
        (Storage(), Storage("of_chunks"), u32("clear_words")),
    )
    parameters = (*_ARRAYS, *offsets, n, long_items, _QUEUE, _OP, _INIT)
    chunks = Launch("cupar_segmented_scan_chunks", "chunk_grid", "chunk_threads", parameters, "chunk_shared")
    parts = "segments", "segment_of", "of_chunks", "clear_words", "clear_grid"
    return {
        "short": Shape(names, (scan(_NO_QUEUE),)),
        "any": Shape(
            (*names, *parts, "most_segments", "most_chunks", "chunk_grid"), (init, scan(_QUEUE), chunks)
        ),
    }


def _planner(facts: Facts) -> Callable[[Segments], Plan]:
    warps, sms, vector = facts["threads"] // 32, facts["sms"], facts["items"]
    tile, span = facts["tile_items"], facts["span"] * facts["tile_items"]
    chunk, chunk_shared = facts["chunk_items"], facts["chunk_shared"]
    segment_size, known_size = facts["segment_size"], facts["known_size"]
    is_rows = facts["is_rows"] > 0
    resident = 0
    if chunk_shared:
        resident = facts.occupancy("cupar_segmented_scan_chunks", facts["chunk_threads"], chunk_shared)

    def plan(problem: Segments) -> Plan:
        n, items, largest, _ = problem
        if n == 0 or (is_rows and items == 0):
            return Plan("", 0)
        mean = items // n if items else largest
        long_items = 2 * tile if n <= sms * _FEW else facts["long_items"]
        batch = max(span // mean, 1) if mean else _UNKNOWN_BATCH
        if mean > long_items:
            batch = _LONG_BATCH
        batch = min(batch, max(n // (sms * _WARPS), 1))
        if not is_rows:
            batch = min(batch, _BATCH)
        elif vector < batch and largest <= long_items:
            batch -= batch % vector  # so that all begin where vectors do, if the first one does
        grid = ceil_div(n, warps * batch)
        # Items may be too large for chunks.
        if not resident or 0 < largest <= long_items or 0 < items <= long_items:
            return Plan("short", 0, (n, largest, batch, long_items, grid))
        segments, chunks = min(n, _UNKNOWN_SEGMENTS), _UNKNOWN_CHUNKS
        if items:
            segments = min(n, items // long_items + _SPARE, _MOST_SEGMENTS)
            # A segment that begins within a vector, and ends within a chunk, may need two more.
            chunks = min(items // chunk + 2 * segments, _MOST_CHUNKS)
        words = ceil_div(known_size * chunks, 16)
        _, long, segment_of, of_chunks, nbytes = aligned(16, segment_size * segments, 4 * chunks, 16 * words)
        clearing = words, ceil_div(words, _CLEAR_THREADS)
        storage = long, segment_of, of_chunks, *clearing, segments, chunks
        numbers = (n, largest, batch, long_items, grid, *storage, min(sms * resident, chunks))
        return Plan("any", nbytes, numbers)

    return plan


def _traits(spec: Specialisation) -> str:
    given, init = _offsets(spec), spec.option("init")
    constants = {
        "is_rows": not given,
        "has_outputs": len(given) > 2,
        "is_inclusive": spec.algorithm == "inclusive_segmented_scan",
        "init_is_value": init == "value",
        "init_is_on_device": init == "device",
    }
    lines = [f"using accum_t = {cpp.type_name(spec.operators[0][1].output)};"]
    lines += [f"static constexpr bool {name} = {str(value).lower()};" for name, value in constants.items()]
    policy = policies.SEGMENTED_SCAN.get(spec.cc)._asdict()
    lines += [f"static constexpr int policy_{name} = {value};" for name, value in policy.items()]
    if not given:
        lines.append(ROWS)
    if len(given) < 3:
        lines.append(_NO_OUTPUTS)
    return "\n".join(lines)


SEGMENTED_SCAN = Family(
    "segmented_scan/segmented_scan.cuh",
    (
        *("threads", "chunk_threads", "items", "tile_items", "span", "long_items"),
        *("chunk_items", "chunk_shared", "segment_size", "known_size", "is_rows"),
    ),
    _shapes,
    _planner,
    _traits,
)
