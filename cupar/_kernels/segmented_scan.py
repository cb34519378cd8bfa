"""Plans of segmented scans: one kernel, and if there may be long segments, one for their chunks.

Rows of tuples of arrays are a block's each, if its registers hold one. Longer ones are one scan of all items,
staged as those of `scan.py` are.
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
    ceil_div,
    i32,
    i64,
    kind_of_init,
    members,
    prefixed,
    u32,
    u64,
)
from .scan import CLEAR_THREADS, staged_policy, staged_words
from .segments import SegmentsProblem, row_types
from .tuning import Tunable, combined_types

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_BATCH = 32  # segments of a warp at most, unless they are rows, or have a few items
_DENSE_BATCH = 1024
_DENSE_ITEMS = 8  # of segments on average, at most, that are dense
_LONG_BATCH = 4  # where most are for blocks
_UNKNOWN_BATCH = 8  # where their lengths are unknown
_WARPS = 32  # of a multiprocessor, before warps have several segments
_FEW = 8  # segments for each multiprocessor: up to this number, blocks take those of more than two tiles
_LONGER = 4  # times the mean, with offsets: blocks take what is longer
_LEAST_LONG = 12  # tiles: but only if it is longer than that
_SPARE = 64  # segments in the queue, beside those that fit into the input
_UNKNOWN_SEGMENTS = 1 << 16  # in the queue, if the number of items is unknown
_UNKNOWN_CHUNKS = 1 << 18
_MOST_SEGMENTS = (1 << 24) - 1
_MOST_CHUNKS = 1 << 24
_MOST_ROW = 1 << 31  # items of a row that is staged
_MOST_WARPS = 48  # of a multiprocessor, that are tried
_MOST_WORDS = 256  # of a block's lanes: there is a mark in shared memory for each of four tiles' items

_LEAST_BLOCK_ROW = 1024  # items of a row from which on a block has one
_LEAST_SINGLES = 2048  # of rows that are staged where items are read one by one

_BLOCK_THREADS = (64, 128, 256, 512)  # of blocks that have a row each
_NAMES = ("short", "any", "dense", "staged", *(f"rows, {threads} threads" for threads in _BLOCK_THREADS))
_SHORT, _ANY, _DENSE, _STAGED, _ROWS = range(5)

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

    def scan(queue: tuple[Storage | Number, ...], which: str = "") -> Launch:
        parameters = (*_ARRAYS, *offsets, n, i32("batch"), long_items, queue, _OP, _INIT)
        return Launch(f"cupar_segmented_scan{which}", "grid", "threads", parameters)

    names = ("n", "largest", "batch", "long_items", "grid")
    init = Launch(
        "cupar_segmented_scan_init",
        "clear_grid",
        CLEAR_THREADS,
        (Storage(), Storage("of_chunks"), u32("clear_words")),
    )
    parameters = (*_ARRAYS, *offsets, n, long_items, _QUEUE, _OP, _INIT)
    chunks = Launch("cupar_segmented_scan_chunks", "chunk_grid", "chunk_threads", parameters, "chunk_shared")
    parts = "segments", "segment_of", "of_chunks", "clear_words", "clear_grid"
    queued = (*names, *parts, "most_segments", "most_chunks", "chunk_grid")
    shapes = {
        "short": Shape(names, (scan(_NO_QUEUE),)),
        "any": Shape(queued, (init, scan(_QUEUE), chunks)),
    }
    if given:
        shapes["dense"] = Shape(queued, (init, scan(_QUEUE, "_dense"), chunks))
    if _row_vectors(spec):
        shapes |= _BLOCK_ROWS
    return {**shapes, "staged": _STAGED_ROWS} if _staged(spec) is not None else shapes


_BLOCK_ROWS = {
    name: Shape(
        ("n", "row"),
        (Launch("cupar_segmented_scan_rows", "n", threads, (*_ARRAYS, i32("row"), _OP, _INIT)),),
    )
    for name, threads in zip(_NAMES[_ROWS:], _BLOCK_THREADS, strict=True)
}


_STAGED_ROWS = Shape(
    ("items", "row", "tiles", "words", "clear_grid", "grid"),
    (
        Launch("cupar_segmented_scan_clear_staged", "clear_grid", CLEAR_THREADS, (Storage(), u32("words"))),
        Launch(
            "cupar_segmented_scan_staged",
            "grid",
            "staged_threads",
            (*_ARRAYS, Storage(), u32("tiles"), u64("items"), u32("row"), _OP, _INIT),
            "staged_shared",
        ),
    ),
)


def _staged(spec: Specialisation) -> policies.StagedScanPolicy | None:
    """Return how long rows are staged; None where they are not. Chunks of single arrays are quicker."""
    is_tuple = not spec.arguments[0].is_pointer
    return staged_policy(spec) if is_tuple and not _offsets(spec) else None


_MOST_BYTES = 16  # of accumulators, in rows that blocks have
_MOST_ITEMS = 16  # of a lane


def _row_vectors(spec: Specialisation) -> int:
    """Return the number of vectors of each array that a lane holds of a row; 0 where blocks have no rows."""
    sources, targets = (
        [(slot, slot.dtype.itemsize) for slot in each.node.slots() if slot.dtype is not None]
        for each in spec.arguments[:2]
    )
    are_vectors = all(
        slot.step == 1 and not slot.is_shifted and size in (1, 2, 4, 8) for slot, size in sources + targets
    )
    if (
        spec.arguments[0].is_pointer
        or _offsets(spec)
        or not (are_vectors and 0 < len(sources) <= 4 and targets)
        or not all(each.node.streams for each in spec.arguments)
        or spec.operators[0][1].output.itemsize > _MOST_BYTES
    ):
        return 0
    items = 16 // max(size for _, size in sources + targets)  # of a vector
    return min(4 if len(sources) <= 2 else 2, max(_MOST_ITEMS // items, 1))


class _SegmentedScanFacts(NamedTuple):
    warps: int  # of a block
    sms: int
    items: int  # of a vector
    tile_items: int
    span: int  # items that a warp's segments should have
    long_items: int
    chunk_items: int
    chunk_blocks: int  # that run at once; 0: items are too large for chunks
    segment_size: int
    known_size: int
    is_rows: int
    dense_items: int  # of a segment that is not long, if most have a few
    staged_tile: int
    staged_known: int
    staged_blocks: int  # that run at once; 0: rows are not staged
    row_items: int  # of a vector, in rows that blocks have; 0: they have none
    row_vectors: int  # of a lane


def _planner(given: Properties) -> tuple[Plan, _SegmentedScanFacts]:
    def running(kernel: str, name: str) -> int:
        threads, shared = given[f"{name}_threads"], given[f"{name}_shared"]
        return given.resident(f"cupar_segmented_scan_{kernel}", threads, shared)

    return _plan, given.facts(
        _SegmentedScanFacts,
        warps=given["threads"] // 32,
        span=given["span"] * given["tile_items"],
        chunk_blocks=running("chunks", "chunk") if given["chunk_shared"] else 0,
        staged_blocks=running("staged", "staged") if given["staged_tile"] else 0,
    )


def _plan(facts: _SegmentedScanFacts, problem: SegmentsProblem, emit: Emit) -> int:
    n, items, largest, _ = problem
    if n == 0 or (facts.is_rows and items == 0):
        return 0
    if facts.row_items and largest >= _LEAST_BLOCK_ROW and largest % facts.row_items == 0:
        of_thread = facts.row_items * facts.row_vectors
        for i in range(len(_BLOCK_THREADS)):
            if largest <= _BLOCK_THREADS[i] * of_thread:
                emit(_ROWS + i, (n, largest))
                return 0
    mean = items // n if items else largest
    long_items = facts.long_items
    if n <= facts.sms * _FEW:
        long_items = 2 * facts.tile_items
    elif not facts.is_rows and items:
        # Or the last warps would scan the longest alone.
        long_items = min(long_items, max(_LONGER * mean, _LEAST_LONG * facts.tile_items))
    if facts.staged_blocks and facts.row_items == 0:
        long_items = min(long_items, _LEAST_SINGLES - 1)
    batch = max(facts.span // mean, 1) if mean else _UNKNOWN_BATCH
    if mean > long_items:
        batch = _LONG_BATCH
    most = max(n // (facts.sms * _WARPS), 1)
    batch = min(batch, most)
    shape = _ANY
    if not facts.is_rows:
        if facts.chunk_blocks and 0 < mean <= _DENSE_ITEMS and most > _BATCH:
            shape, long_items, batch = _DENSE, facts.dense_items, min(batch, _DENSE_BATCH)
        else:
            batch = min(batch, _BATCH)
    elif facts.items < batch and largest <= long_items:
        batch -= batch % facts.items  # so that all begin where vectors do, if the first one does
    grid = ceil_div(n, facts.warps * batch)
    is_short = 0 < largest <= long_items or 0 < items <= long_items
    if facts.chunk_blocks == 0 or (is_short and shape == _ANY):
        emit(_SHORT, (n, largest, batch, long_items, grid))
        return 0
    if facts.staged_blocks and largest < _MOST_ROW:
        tiles = ceil_div(items, facts.staged_tile)
        of_tiles = staged_words(tiles, facts.staged_known)
        numbers = (items, largest, tiles, of_tiles, ceil_div(of_tiles, CLEAR_THREADS))
        emit(_STAGED, numbers + (min(facts.staged_blocks, tiles),))
        return of_tiles * 16
    segments, chunks = min(n, _UNKNOWN_SEGMENTS), _UNKNOWN_CHUNKS
    if items:
        segments = min(n, items // long_items + _SPARE, _MOST_SEGMENTS)
        # A segment that begins within a vector, and ends within a chunk, may need two more.
        chunks = min(items // facts.chunk_items + 2 * segments, _MOST_CHUNKS)
    words = ceil_div(facts.known_size * chunks, 16)
    long = aligned(16)
    segment_of = long + aligned(facts.segment_size * segments)
    of_chunks = segment_of + aligned(4 * chunks)
    of_queue = (long, segment_of, of_chunks, words, ceil_div(words, CLEAR_THREADS), segments, chunks)
    emit(shape, (n, largest, batch, long_items, grid) + of_queue + (min(facts.chunk_blocks, chunks),))
    return of_chunks + aligned(16 * words)


def _space(spec: Specialisation) -> Mapping[str, tuple[int, ...]]:
    return {
        "words": (8, 16, 32),
        "warps": (4, 8, 16),
        "resident": (2, 3, 4, 6),
        "span": (1, 2, 4),
        "long_tiles": (16, 32),
        "chunk_warps": (8, 16),
        "chunk_resident": (1, 2),
        "chunk_bytes": (28672, 57344),
        "chunk_slots": (3, 4),
    }


def _fits(spec: Specialisation, policy: policies.SegmentedScanPolicy) -> bool:
    is_held = policy.words * policy.warps <= _MOST_WORDS
    return is_held and policy.warps * policy.resident <= _MOST_WARPS


_TUNABLE = Tunable(
    "segmented scan",
    policies.SegmentedScanPolicy,
    lambda spec: policies.SEGMENTED_SCAN.get(spec.cc),
    combined_types,
    _space,
    _fits,
)


def _traits(spec: Specialisation) -> str:
    given = _offsets(spec)
    return members(
        accumulator(spec),
        *row_types(spec),
        *([] if len(given) > 2 else ["using start_offsets_out_t = cupar::no_offsets;"]),
        is_rows=not given,
        has_outputs=len(given) > 2,
        is_inclusive=spec.algorithm == "inclusive_segmented_scan",
        **kind_of_init(spec),
        row_vectors=_row_vectors(spec),
        **prefixed("policy_", _TUNABLE.given(spec)),
        **prefixed("staged_", _staged(spec) or policies.StagedScanPolicy(0, 0, 0)),
    )


SEGMENTED_SCAN = Family(
    "segmented_scan/segmented_scan.cuh",
    (
        *("threads", "chunk_threads", "items", "tile_items", "span", "long_items"),
        *("chunk_items", "chunk_shared", "segment_size", "known_size", "is_rows"),
        *("staged_threads", "staged_tile", "staged_known", "staged_shared", "row_items", "row_vectors"),
        "dense_items",
    ),
    _NAMES,
    _shapes,
    _planner,
    _traits,
    tunable=_TUNABLE,
)
