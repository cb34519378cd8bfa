"""Tuning policies of all families, as tables.

Each family has a `PolicyTable`. Each row names the cards that its policy is for, and the GPU, date and
problem of its measurement. A specialisation takes the row of the highest compute capability that is not above
its own and has the same major version, since such cards are alike. Without such a row, CUB's selector
decides. CUB has no selector for kernels of cupar's own: their families compute a policy, or have rows for
`EVERY` card.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, NamedTuple, TypeVar

P = TypeVar("P")

EVERY = 0  # in place of a compute capability: cards without a row of their major version


class PolicyRow(NamedTuple):
    """A policy, and its measurement."""

    policy: Any
    gpu: str
    date: str  # as in 2026-11-22
    problem: str


Lookups = list[tuple["PolicyTable[Any]", tuple[int | str, ...]]]
_lookups: ContextVar[Lookups | None] = ContextVar("lookups", default=None)


@contextmanager
def lookups() -> Iterator[Lookups]:
    """Collect the tables that are looked into, and the keys: those of the rows that would come first."""
    found: Lookups = []
    token = _lookups.set(found)
    try:
        yield found
    finally:
        _lookups.reset(token)


class MeasuredPolicies(Generic[P]):
    """Policies that were measured together.

    Parameters
    ----------
    gpu, date, problem : str
        As in `PolicyRow`.
    policies : mapping
        By compute capability or `EVERY`, and other properties: sizes of items in bytes, the
        algorithm, the class of the operator.
    """

    def __init__(
        self, gpu: str, date: str, problem: str, policies: Mapping[tuple[int | str, ...], P]
    ) -> None:
        self.rows = {key: PolicyRow(policy, gpu, date, problem) for key, policy in policies.items()}


class PolicyTable(Generic[P]):
    """The policies of a family.

    Attributes
    ----------
    rows : mapping of tuple to PolicyRow
        By compute capability or `EVERY`, and other properties.
    """

    def __init__(self, *measured: MeasuredPolicies[P]) -> None:
        self.rows: Mapping[tuple[int | str, ...], PolicyRow] = {
            k: v for each in measured for k, v in each.rows.items()
        }

    def find(self, cc: int, *scope: int | str) -> P | None:
        """Return the policy for a compute capability, as in 90; None if CUB's selector decides."""
        noted, found = _lookups.get(), EVERY
        if noted is not None:
            noted.append((self, (cc, *scope)))
        for each, *of in self.rows:
            if tuple(of) == scope and type(each) is int and each // 10 == cc // 10 and found < each <= cc:
                found = each
        row = self.rows.get((found, *scope))
        return None if row is None else row.policy

    def get(self, cc: int, *scope: int | str) -> P:
        """Return the policy for a compute capability, or that of `EVERY`; KeyError if neither exists."""
        found = self.find(cc, *scope)
        if found is None:
            raise KeyError((cc, *scope))
        return found


_H200, _DATE = "H200", "2026-11-22"
_BY_TUNE = "cupar tune --all, then in turns with the policy before: docs/measurements.md"


class StagedScanPolicy(NamedTuple):
    """Of scans that stage arrays in shared memory (``scan/scan_staged.cuh``)."""

    warps: int  # that reduce, and as many that scan
    nbytes: int  # of the input in a slot, at most
    slots: int  # at most


# By bytes of an item in the arrays of the input, rounded up to a power of two; 16 is for more, too.
SCAN = PolicyTable(
    MeasuredPolicies(
        *("H200", "2026-11-24", "2^28 items of 1, 2 and 4 bytes, 2^26 of 8 and 16, CUDA 13.0"),
        {
            (90, 1): StagedScanPolicy(8, 24 << 10, 4),
            (90, 2): StagedScanPolicy(6, 24 << 10, 5),
            (90, 4): StagedScanPolicy(8, 32 << 10, 5),
            (90, 8): StagedScanPolicy(8, 48 << 10, 4),
            (90, 16): StagedScanPolicy(8, 48 << 10, 4),
        },
    )
)

# Bytes of the input from which on they are quicker than scans that look back, to a power of two, by how many
# arrays it has and their bytes for an item. Tuples of arrays always are, beyond a tile.
SCAN_STAGED_BYTES = PolicyTable(
    MeasuredPolicies(
        *("H200", "2026-11-24", "2^14 to 2^28 items"),
        {
            (90, 1, 1): 1 << 22,
            (90, 1, 2): 1 << 21,
            (90, 1, 4): 1 << 20,
            (90, 1, 8): 1 << 26,
            (90, 1, 16): 1 << 22,
        },
    ),
)


class TilePolicy(NamedTuple):
    """Of kernels whose blocks have a tile of items each."""

    threads: int
    items: int  # of each thread


# By bytes of a key and of an item that goes with it; the more items, the longer operators that are functions
# take to link. On an H200, tiles of 256 * 21 keys of 4 bytes sort 2^28 of them 4 % quicker than CUB's do, and
# 2^10 to 2^20 slower by 4 to 18 %. CUB's tiles of keys of 16 bytes are 256 * 4, and need a pass more.
MERGE_SORT: PolicyTable[TilePolicy] = PolicyTable(
    MeasuredPolicies(
        "H200",
        "2026-11-26",
        "2^24 structs by a function: 2.39 ms, (256, 7) 2.95; eight policies",
        {(90, 16, 0): TilePolicy(128, 19)},
    )
)


# By bytes of a key, and of an item that goes with it if there is one.
MERGE: PolicyTable[TilePolicy] = PolicyTable(
    MeasuredPolicies(
        *(_H200, "2026-11-27", "cupar tune: 2^26 and 2^20 int32 with int32 items"),
        {(90, 4, 4): TilePolicy(256, 17)},
    )
)


class SetsPolicy(NamedTuple):
    """Of sets of two ranges, as in ``sets/sets.cuh``."""

    threads: int
    items: int  # of each thread's part of a tile
    slots: int  # for tiles in shared memory


# By bytes of a key, and of an item that goes with it if there is one.
SETS = PolicyTable(
    MeasuredPolicies(
        *(
            "H200",
            "2026-11-27",
            "2^26 int32 and 2^25 int64 in two halves, without and with items like them; 5 to 17 policies",
        ),
        {
            (90, 4): SetsPolicy(256, 31, 3),
            (90, 8): SetsPolicy(256, 15, 2),
            (90, 4, 4): SetsPolicy(192, 19, 2),
            (90, 8, 8): SetsPolicy(160, 9, 2),
        },
    )
)


# By bytes of a key and of a value, for the kernels of a digit.
RADIX_SORT: PolicyTable[TilePolicy] = PolicyTable()


class SegmentedSortPolicy(NamedTuple):
    """Of segmented sorts."""

    group_threads: int  # of blocks whose groups of lanes have a segment each
    team_items: int  # of a thread of a team, which has a larger segment
    team_blocks: int  # of the largest team that a multiprocessor is to run at once: so registers are limited
    rows_threads: int  # of a block, at least, where a team sorts each row
    digit_threads: int  # of blocks that have a tile of a long segment
    digit_items: int  # of each of these threads


# By bytes of the words that are sorted; 0: any other.
SEGMENTED_SORT = PolicyTable(
    MeasuredPolicies(
        _H200, _DATE, "words of 4 bytes", {(EVERY, 4): SegmentedSortPolicy(256, 32, 2, 128, 512, 16)}
    ),
    MeasuredPolicies(
        *(_H200, _DATE, "team_items; the rest by the scarce resource: registers, then shared memory"),
        {
            (EVERY, 8): SegmentedSortPolicy(256, 16, 2, 128, 512, 16),
            (EVERY, 16): SegmentedSortPolicy(128, 16, 1, 128, 512, 16),
        },
    ),
    MeasuredPolicies(
        _H200, _DATE, "not measured", {(EVERY, 0): SegmentedSortPolicy(128, 16, 1, 128, 256, 8)}
    ),
)


class ReducePolicy(NamedTuple):
    """Of reductions."""

    threads: int  # of the blocks of a grid
    rows: int  # vectors of 16 bytes that a thread takes at once


# "bytes": of arrays of them.
REDUCE = PolicyTable(
    MeasuredPolicies(
        *(_H200, _DATE, "benchmarks/throughput.py"),
        {(EVERY, ""): ReducePolicy(256, 4), (EVERY, "bytes"): ReducePolicy(256, 2)},
    )
)


class CompactPolicy(NamedTuple):
    """Of selections, partitions and unique by key, as in ``compact/compact.cuh``."""

    threads: int
    rows: int  # of a warp, in a tile
    width: int  # items of a thread in a row
    buffers: int  # for tiles


# By algorithm, and bytes of an item, and of the one that goes with it, where bulk copies bring tiles.
COMPACT: PolicyTable[CompactPolicy] = PolicyTable(
    MeasuredPolicies(
        *("H200", "2026-11-26", "2^28 items, a hundredth to all of them kept, and 2^14 to 2^24"),
        {
            (90, "partition", 4): CompactPolicy(256, 8, 4, 3),
            (90, "unique", 4, 4): CompactPolicy(384, 3, 4, 3),
        },
    ),
    MeasuredPolicies(
        *("H200", "2026-11-26", "2^28 items, half of them kept, or in runs of 4"),
        {
            (90, "select", 1): CompactPolicy(256, 8, 4, 3),
            (90, "select", 2): CompactPolicy(256, 8, 4, 3),
            (90, "select", 8): CompactPolicy(256, 8, 2, 3),
            (90, "select", 16): CompactPolicy(256, 8, 1, 3),
            (90, "unique", 8, 8): CompactPolicy(384, 3, 2, 3),
        },
    ),
    MeasuredPolicies(
        *(_H200, "2026-11-27", _BY_TUNE),
        {
            (90, "select", 4): CompactPolicy(320, 7, 4, 3),
            (90, "unique", 4): CompactPolicy(192, 8, 4, 3),
        },
    ),
)


class RunsPolicy(NamedTuple):
    """Of algorithms on runs of keys, as in ``runs/runs.cuh``."""

    threads: int
    items: int  # of each thread in a tile: an odd number
    resident: int  # blocks that a multiprocessor is to run at once


# By algorithm, and bytes that a key and its value take in a tile, where bulk copies bring it.
RUNS = PolicyTable(
    MeasuredPolicies(
        *(_H200, _DATE, "2^28 items in runs of 4, 64 and 4,096 on average, CUDA 13.0"),
        {
            (90, "reduce", 4, 4): RunsPolicy(512, 9, 2),
            (90, "scan", 4, 4): RunsPolicy(256, 11, 3),
        },
    ),
    MeasuredPolicies(
        *(_H200, "2026-11-27", _BY_TUNE),
        {
            (90, "encode", 4, 2): RunsPolicy(384, 15, 2),
            (90, "encode", 8, 2): RunsPolicy(384, 9, 2),
            (90, "reduce", 8, 8): RunsPolicy(256, 9, 2),
            (90, "scan", 8, 8): RunsPolicy(256, 9, 2),
        },
    ),
)


class SearchPolicy(NamedTuple):
    """Of binary searches."""

    tile_threads: int  # of blocks that search in shared memory
    tile_blocks: int  # of these that a multiprocessor is to run at once
    tile_values: int  # that each of their threads searches for
    staged_bytes: int  # of the items, in a block's shared memory at a time
    tree_threads: int  # of blocks that search by a tree of samples
    tree_blocks: int  # of these that a multiprocessor is to run at once
    fanout: int  # items of a node; 0: no tree
    top_bytes: int  # of the tree's top, in a block's shared memory


# By bytes of an item, rounded up to a power of two; 0: of larger ones, which have no tree.
SEARCH = PolicyTable(
    MeasuredPolicies(
        *(_H200, _DATE, "2^28 values in 2^28 items and in 2^20"),
        {(EVERY, 4): SearchPolicy(128, 8, 16, 16384, 512, 3, 16, 32768)},
    ),
    MeasuredPolicies(
        *(_H200, _DATE, "not measured: like that of 4 bytes"),
        {
            (EVERY, 1): SearchPolicy(128, 8, 16, 4096, 512, 3, 16, 8192),
            (EVERY, 2): SearchPolicy(128, 8, 16, 8192, 512, 3, 16, 16384),
            (EVERY, 8): SearchPolicy(128, 8, 8, 16384, 512, 3, 16, 32768),
            (EVERY, 16): SearchPolicy(128, 8, 4, 16384, 512, 2, 8, 32768),
            (EVERY, 0): SearchPolicy(128, 4, 1, 16384, 512, 1, 0, 0),
        },
    ),
)


class TransformPolicy(NamedTuple):
    """Of transforms."""

    threads: int
    bytes_in_flight: int  # that a thread loads before it stores
    iterator_items: int  # at most in a vector, if an iterator takes its items one by one


TRANSFORM = PolicyTable(
    MeasuredPolicies(
        *(_H200, _DATE, "items of 1, 2, 4 and 8 bytes; 128 to 512 threads and 16 to 128 bytes were tried"),
        {(EVERY,): TransformPolicy(256, 32, 4)},
    )
)

# Bytes of input beyond which a thread loads one vector before it stores: 1 to 4 % quicker where the arrays
# are not in the L2 cache.
TRANSFORM_CACHED_BYTES = 1 << 24


class HistogramPolicy(NamedTuple):
    """Of histograms."""

    threads: int
    loads: int  # of 16 bytes, that a thread has under way
    resident: int  # blocks that a multiprocessor is to run at once
    is_spread: bool  # whether a block has 32 copies of the bins where they pay, and not always one


# By bytes of a sample; 0: of iterators, whose functions may need many registers, and of any other size.
HISTOGRAM = PolicyTable(
    MeasuredPolicies(
        *(_H200, _DATE, "2^28 samples in 256 bins, CUDA 13.0"),
        {
            (EVERY, 1): HistogramPolicy(1024, 2, 2, True),
            (EVERY, 2): HistogramPolicy(1024, 1, 2, True),  # with two loads, code spills
            (EVERY, 4): HistogramPolicy(1024, 2, 2, False),
            (EVERY, 8): HistogramPolicy(1024, 2, 2, False),
        },
    ),
    MeasuredPolicies(_H200, _DATE, "not measured", {(EVERY, 0): HistogramPolicy(512, 1, 1, False)}),
)


class SegmentedScanPolicy(NamedTuple):
    """Of segmented scans."""

    words: int  # of 4 bytes, of a lane's items in a tile
    warps: int  # of blocks whose warps have separate segments
    resident: int  # of these that a multiprocessor is to run at once
    span: int  # tiles that a warp's segments should have
    long_tiles: int  # of the longest segment that a warp has, unless there are few
    chunk_warps: int  # that work on chunks of long segments, of a block
    chunk_resident: int  # such blocks that a multiprocessor is to run at once
    chunk_bytes: int  # of a chunk, at most
    chunk_slots: int  # for chunks in shared memory, at most


SEGMENTED_SCAN = PolicyTable(
    MeasuredPolicies(
        *(_H200, _DATE, "float32, benchmarks/segments.py"),
        {(EVERY,): SegmentedScanPolicy(16, 8, 4, 2, 32, 16, 1, 57344, 4)},
    )
)


class SegmentedReducePolicy(NamedTuple):
    """Of segmented reductions."""

    threads: int
    batch_bytes: int  # that a warp's segments should have
    staged_bytes: int  # of a warp's shared memory, for the range that its segments span
    chunk_vectors: int  # of a chunk of a long segment: a power of two


# Of rows, and of segments by offsets; and by bytes of an item.
SEGMENTED_REDUCE = PolicyTable(
    MeasuredPolicies(
        *(_H200, "2026-11-27", "2^28 float32, 2^27 float64, 2^28 int8, as in benchmarks/segments.py"),
        {
            (EVERY, "rows"): SegmentedReducePolicy(128, 2048, 4096, 2048),
            (EVERY, "offsets"): SegmentedReducePolicy(128, 4096, 5120, 2048),
        },
    ),
    MeasuredPolicies(
        *(_H200, "2026-11-27", "2^28 float32, 26 layouts and 37 lengths of rows; ten policies"),
        {
            (EVERY, "rows", 4): SegmentedReducePolicy(128, 2048, 4096, 4096),
            (EVERY, "offsets", 4): SegmentedReducePolicy(128, 4096, 5120, 4096),
        },
    ),
)


class NthElementPolicy(NamedTuple):
    """Of n-th elements of segments."""

    threads: int  # of blocks that have a segment, or tiles of one
    candidate_bytes: int  # of their shared memory; a tile is twice as large
    loads: int  # vectors of 16 bytes that a thread loads at once


NTH_ELEMENT = PolicyTable(
    MeasuredPolicies(
        *(_H200, "2026-11-26", "float32, benchmarks/more.py, with this alone"),
        {(EVERY,): NthElementPolicy(256, 16384, 4)},
    )
)


class TopKPolicy(NamedTuple):
    """Of top-k."""

    threads: int  # of blocks that have a tile
    items: int  # of each of these threads


# By bytes of a key: at most 4, or more.
TOP_K = PolicyTable(
    MeasuredPolicies(
        *(_H200, "2026-11-24", "float32, benchmarks/runs.py, with this alone"),
        {(EVERY, 4): TopKPolicy(512, 16)},
    ),
    MeasuredPolicies(
        *(_H200, "2026-11-24", "not measured; before 8.0 smaller blocks, as such cards have fewer threads"),
        {
            (EVERY, 8): TopKPolicy(512, 8),
            (70, 4): TopKPolicy(256, 16),
            (70, 8): TopKPolicy(256, 8),
        },
    ),
)


class ColumnScanPolicy(NamedTuple):
    """Of scans along columns."""

    threads: int  # of blocks whose threads have a column each
    bytes: int  # of a column's rows that such a thread has at once
    tall_bytes: int  # that one has of a block that is as large as can be
    split_warps: int  # of blocks that share columns
    split_bytes: int  # that a thread of one has
    split_resident: int  # of these that a multiprocessor is to run at once
    many: int  # columns for each multiprocessor from which on threads have one each


_COLUMNS_DATE = "2026-11-24"

# By bytes of an item, 4 at least; 0: of more than 8.
COLUMN_SCAN = PolicyTable(
    MeasuredPolicies(
        *(_H200, _COLUMNS_DATE, "sums of 2^26 float32 in ten shapes, by a prototype of these kernels"),
        {(90, 4): ColumnScanPolicy(128, 128, 64, 8, 128, 2, 192)},
    ),
    MeasuredPolicies(
        *(_H200, _COLUMNS_DATE, "not measured: like that of 4 bytes, without spills"),
        {
            (90, 8): ColumnScanPolicy(128, 128, 64, 8, 112, 2, 192),
            (90, 0): ColumnScanPolicy(128, 128, 48, 8, 80, 2, 192),
            (EVERY, 4): ColumnScanPolicy(128, 128, 64, 8, 128, 2, 192),
            (EVERY, 8): ColumnScanPolicy(128, 128, 64, 8, 112, 2, 192),
            (EVERY, 0): ColumnScanPolicy(128, 128, 48, 8, 80, 2, 192),
        },
    ),
)


class ColumnReducePolicy(NamedTuple):
    """Of reductions along columns."""

    threads: int
    bytes: int  # of a column's rows that a thread has at once


COLUMN_REDUCE = PolicyTable(
    MeasuredPolicies(_H200, _COLUMNS_DATE, "not measured", {(EVERY,): ColumnReducePolicy(256, 64)}),
)


class FindPolicy(NamedTuple):
    """Of finding the first item that fits."""

    threads: int
    rows: int  # vectors of 16 bytes that a thread takes at once


# "bytes": of arrays of them.
FIND = PolicyTable(
    MeasuredPolicies(
        _H200, "2026-11-24", "2^28 float32, one, or pairs of half as many", {(EVERY, ""): FindPolicy(256, 2)}
    ),
    MeasuredPolicies(_H200, "2026-11-24", "2^30 bytes", {(EVERY, "bytes"): FindPolicy(256, 4)}),
)


class SegmentedCopyPolicy(NamedTuple):
    """Of copies of segments."""

    threads: int
    rows: int  # of 32 items, that a warp has on their way at once
    tile_rows: int  # that a warp takes at once
    run_rows: int  # of a segment whose items are copied apart, on average
    resident: int  # blocks that a multiprocessor is to run at once


# By bytes of an item, up to 8; 0: of any other.
SEGMENTED_COPY = PolicyTable(
    MeasuredPolicies(
        *("H200", "2026-11-26", "2^26 float32, segments of 4 to 2^16 in any order; 12 policies, H100, too"),
        {(EVERY, 4): SegmentedCopyPolicy(256, 8, 64, 4, 3)},
    ),
    MeasuredPolicies(
        *("H200", "2026-11-26", "not measured"),
        {
            (EVERY, 1): SegmentedCopyPolicy(256, 8, 128, 8, 3),
            (EVERY, 2): SegmentedCopyPolicy(256, 8, 64, 8, 3),
            (EVERY, 8): SegmentedCopyPolicy(256, 4, 32, 8, 3),
            (EVERY, 0): SegmentedCopyPolicy(256, 2, 16, 8, 1),
        },
    ),
)


class ReduceByIndexPolicy(NamedTuple):
    """Of reductions by index."""

    threads: int
    few_threads: int  # of blocks whose threads have columns for more bins
    block_threads: int  # of blocks with one column
    bytes: int  # of items and indices that a thread loads at once


REDUCE_BY_INDEX = PolicyTable(
    MeasuredPolicies(
        *(_H200, "2026-11-26", "2^26 float32 in 64 bins and more"),
        {(EVERY,): ReduceByIndexPolicy(256, 128, 1024, 192)},
    ),
)
