"""What kernels are tuned by: the policies of all families, as tables.

Each family has a `Table`. Its rows say for which cards a policy is, and on which GPU, when and with what
problem it was measured. A specialisation takes the row of the latest compute capability up to its own within
the same major version, whose cards are alike. Without one, it takes what CUB's own selector says for its
compute capability. CUB has no selector for kernels of cupar's own: their families work a policy out, or have
rows for `EVERY` card.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

P = TypeVar("P")

EVERY = 0  # in place of a compute capability: cards without a row of their major version


class Row(NamedTuple):
    """A policy, and what it was measured with."""

    policy: Any
    gpu: str
    date: str  # as in 2026-11-22
    problem: str


class Measured(Generic[P]):
    """Policies that were measured together.

    Parameters
    ----------
    gpu, date, problem : str
        As in `Row`.
    policies : mapping
        By compute capability or `EVERY`, and whatever else makes a difference: sizes of items in bytes, the
        algorithm, the class of the operator.
    """

    def __init__(
        self, gpu: str, date: str, problem: str, policies: Mapping[tuple[int | str, ...], P]
    ) -> None:
        self.rows = {key: Row(policy, gpu, date, problem) for key, policy in policies.items()}


class Table(Generic[P]):
    """The policies of a family.

    Attributes
    ----------
    rows : mapping of tuple to Row
        By compute capability or `EVERY`, and whatever else makes a difference.
    """

    def __init__(self, *measured: Measured[P]) -> None:
        self.rows: Mapping[tuple[int | str, ...], Row] = {
            k: v for each in measured for k, v in each.rows.items()
        }

    def find(self, cc: int, *scope: int | str) -> P | None:
        """Return the policy for a compute capability, as in 90; None if CUB's selector decides."""
        found = EVERY
        for each, *of in self.rows:
            if tuple(of) == scope and type(each) is int and each // 10 == cc // 10 and found < each <= cc:
                found = each
        row = self.rows.get((found, *scope))
        return None if row is None else row.policy

    def get(self, cc: int, *scope: int | str) -> P:
        """Return the policy for a compute capability, which `EVERY` has; KeyError if there is none."""
        found = self.find(cc, *scope)
        if found is None:
            raise KeyError((cc, *scope))
        return found


_H200, _DATE = "H200", "2026-11-22"


class Staged(NamedTuple):
    """Of scans that stage arrays in shared memory (``scan/scan_staged.cuh``)."""

    warps: int  # that reduce, and as many that scan
    nbytes: int  # of the input in a slot, at most
    slots: int  # at most


# By bytes of an item in the arrays of the input, rounded up to a power of two; 16 is for more, too.
SCAN = Table(
    Measured(
        *("H200", "2026-11-24", "2^28 items of 1, 2 and 4 bytes, 2^26 of 8 and 16, CUDA 13.0"),
        {
            (90, 1): Staged(8, 24 << 10, 4),
            (90, 2): Staged(6, 24 << 10, 5),
            (90, 4): Staged(8, 32 << 10, 5),
            (90, 8): Staged(8, 48 << 10, 4),
            (90, 16): Staged(8, 48 << 10, 4),
        },
    )
)

# Bytes of the input from which on they are quicker than scans that look back, to a power of two, by how many
# arrays it has and their bytes for an item. Tuples of arrays always are, beyond a tile.
SCAN_STAGED_BYTES = Table(
    Measured(
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


class Tile(NamedTuple):
    """Of kernels whose blocks have a tile of items each."""

    threads: int
    items: int  # of each thread


# By bytes of a key and of an item that goes with it; the more items, the longer operators that are functions
# take to link. On an H200, tiles of 256 * 21 keys of 4 bytes sort 2^28 of them 4 % quicker than CUB's do, and
# 2^10 to 2^20 slower by 4 to 18 %. CUB's tiles of keys of 16 bytes are 256 * 4, and need a pass more.
MERGE_SORT: Table[Tile] = Table(
    Measured(
        "H200", "2026-11-24", "2^24 structs by a function: 3.30 ms, CUB's 4.74", {(90, 16, 0): Tile(256, 7)}
    )
)


# By bytes of a key, and of an item that goes with it if there is one.
MERGE: Table[Tile] = Table()


# By bytes of a key and of a value, for the kernels of a digit.
RADIX_SORT: Table[Tile] = Table()


class SegmentedSort(NamedTuple):
    """Of segmented sorts."""

    group_threads: int  # of blocks whose groups of lanes have a segment each
    team_items: int  # of a thread of a team, which has a larger segment
    team_blocks: int  # of the largest team that a multiprocessor is to run at once: so registers are limited
    rows_threads: int  # of a block, at least, where a team sorts each row
    digit_threads: int  # of blocks that have a tile of a long segment
    digit_items: int  # of each of these threads


# By bytes of the words that are sorted; 0: any other.
SEGMENTED_SORT = Table(
    Measured(_H200, _DATE, "words of 4 bytes", {(EVERY, 4): SegmentedSort(256, 32, 2, 128, 512, 16)}),
    Measured(
        *(_H200, _DATE, "team_items; the rest by the scarce resource: registers, then shared memory"),
        {
            (EVERY, 8): SegmentedSort(256, 16, 2, 128, 512, 16),
            (EVERY, 16): SegmentedSort(128, 16, 1, 128, 512, 16),
        },
    ),
    Measured(_H200, _DATE, "not measured", {(EVERY, 0): SegmentedSort(128, 16, 1, 128, 256, 8)}),
)


class Reduce(NamedTuple):
    """Of reductions."""

    threads: int  # of the blocks of a grid
    rows: int  # vectors of 16 bytes that a thread takes at once


# "bytes": of arrays of them.
REDUCE = Table(
    Measured(
        *(_H200, _DATE, "benchmarks/throughput.py"),
        {(EVERY, ""): Reduce(256, 4), (EVERY, "bytes"): Reduce(256, 2)},
    )
)


class Compact(NamedTuple):
    """Of selections, partitions and unique by key, as in ``compact/compact.cuh``."""

    threads: int
    rows: int  # of a warp, in a tile
    width: int  # items of a thread in a row
    buffers: int  # for tiles


# By algorithm, and bytes of an item, and of the one that goes with it, where bulk copies bring tiles.
COMPACT: Table[Compact] = Table(
    Measured(
        *("H200", "2026-11-24", "2^28 float32; 18 policies of select, 10 of partition"),
        {(90, "select", 4): Compact(256, 6, 4, 3), (90, "partition", 4): Compact(256, 6, 4, 3)},
    )
)


class Runs(NamedTuple):
    """Of algorithms on runs of keys, as in ``runs/runs.cuh``."""

    threads: int
    items: int  # of each thread in a tile: an odd number
    resident: int  # blocks that a multiprocessor is to run at once


# By algorithm, and bytes that a key and its value take in a tile, where bulk copies bring it.
RUNS = Table(
    Measured(
        *(_H200, _DATE, "2^28 items in runs of 4, 64 and 4,096 on average, CUDA 13.0"),
        {
            (90, "reduce", 4, 4): Runs(512, 9, 2),
            (90, "scan", 4, 4): Runs(256, 11, 3),
            (90, "encode", 4, 2): Runs(512, 11, 2),  # spills some registers, and is quicker all the same
        },
    )
)


class Search(NamedTuple):
    """Of binary searches."""

    tile_threads: int  # of blocks that search in shared memory
    tile_blocks: int  # of these that a multiprocessor is to run at once
    tile_values: int  # that each of their threads searches for
    staged_bytes: int  # of the items, in a block's shared memory at a time
    tree_threads: int  # of blocks that search by a tree of samples
    tree_blocks: int  # of these that a multiprocessor is to run at once
    fanout: int  # items of a node; 0: no tree
    top_bytes: int  # of the tree's top, in a block's shared memory


# By bytes of an item, rounded up to a power of two; 0: of larger ones, for which there is no tree.
SEARCH = Table(
    Measured(
        *(_H200, _DATE, "2^28 values in 2^28 items and in 2^20"),
        {(EVERY, 4): Search(128, 8, 16, 16384, 512, 3, 16, 32768)},
    ),
    Measured(
        *(_H200, _DATE, "not measured: like that of 4 bytes"),
        {
            (EVERY, 1): Search(128, 8, 16, 4096, 512, 3, 16, 8192),
            (EVERY, 2): Search(128, 8, 16, 8192, 512, 3, 16, 16384),
            (EVERY, 8): Search(128, 8, 8, 16384, 512, 3, 16, 32768),
            (EVERY, 16): Search(128, 8, 4, 16384, 512, 2, 8, 32768),
            (EVERY, 0): Search(128, 4, 1, 16384, 512, 1, 0, 0),
        },
    ),
)


class Tiles(NamedTuple):
    """Of transforms."""

    threads: int
    bytes_in_flight: int  # that a thread loads before it stores
    iterator_items: int  # at most in a vector, if an iterator takes its items one by one


TRANSFORM = Table(
    Measured(
        *(_H200, _DATE, "items of 1, 2, 4 and 8 bytes; 128 to 512 threads and 16 to 128 bytes were tried"),
        {(EVERY,): Tiles(256, 32, 4)},
    )
)

# Bytes of input beyond which a thread loads one vector before it stores: 1 to 4 % quicker where the arrays
# are not in the L2 cache.
TRANSFORM_CACHED_BYTES = 1 << 24


class Histogram(NamedTuple):
    """Of histograms."""

    threads: int
    loads: int  # of 16 bytes, that a thread has under way
    resident: int  # blocks that a multiprocessor is to run at once
    is_spread: bool  # whether a block has 32 copies of the bins where they pay, and not always one


# By bytes of a sample; 0: of iterators, whose functions may need many registers, and of any other size.
HISTOGRAM = Table(
    Measured(
        *(_H200, _DATE, "2^28 samples in 256 bins, CUDA 13.0"),
        {
            (EVERY, 1): Histogram(1024, 2, 2, True),
            (EVERY, 2): Histogram(1024, 1, 2, True),  # with two loads, code spills
            (EVERY, 4): Histogram(1024, 2, 2, False),
            (EVERY, 8): Histogram(1024, 2, 2, False),
        },
    ),
    Measured(_H200, _DATE, "not measured", {(EVERY, 0): Histogram(512, 1, 1, False)}),
)


class SegmentedScan(NamedTuple):
    """Of segmented scans."""

    words: int  # of 4 bytes, of a lane's items in a tile
    warps: int  # of blocks whose warps have segments of their own
    resident: int  # of these that a multiprocessor is to run at once
    span: int  # tiles that a warp's segments should have
    long_tiles: int  # of the longest segment that a warp has, unless there are few
    chunk_warps: int  # that work on chunks of long segments, of a block
    chunk_resident: int  # such blocks that a multiprocessor is to run at once
    chunk_bytes: int  # of a chunk, at most
    chunk_slots: int  # for chunks in shared memory, at most


SEGMENTED_SCAN = Table(
    Measured(
        *(_H200, _DATE, "float32, benchmarks/segments.py"),
        {(EVERY,): SegmentedScan(16, 8, 4, 2, 32, 16, 1, 57344, 4)},
    )
)


class ColumnScan(NamedTuple):
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
COLUMN_SCAN = Table(
    Measured(
        *(_H200, _COLUMNS_DATE, "sums of 2^26 float32 in ten shapes, by a prototype of these kernels"),
        {(90, 4): ColumnScan(128, 128, 64, 8, 128, 2, 192)},
    ),
    Measured(
        *(_H200, _COLUMNS_DATE, "not measured: like that of 4 bytes, without spills"),
        {
            (90, 8): ColumnScan(128, 128, 64, 8, 112, 2, 192),
            (90, 0): ColumnScan(128, 128, 48, 8, 80, 2, 192),
            (EVERY, 4): ColumnScan(128, 128, 64, 8, 128, 2, 192),
            (EVERY, 8): ColumnScan(128, 128, 64, 8, 112, 2, 192),
            (EVERY, 0): ColumnScan(128, 128, 48, 8, 80, 2, 192),
        },
    ),
)


class ColumnReduce(NamedTuple):
    """Of reductions along columns."""

    threads: int
    bytes: int  # of a column's rows that a thread has at once


COLUMN_REDUCE = Table(
    Measured(_H200, _COLUMNS_DATE, "not measured", {(EVERY,): ColumnReduce(256, 64)}),
)


class Find(NamedTuple):
    """Of finding the first item that fits."""

    threads: int
    rows: int  # vectors of 16 bytes that a thread takes at once


# "bytes": of arrays of them.
FIND = Table(
    Measured(_H200, "2026-11-24", "2^28 float32, one, or pairs of half as many", {(EVERY, ""): Find(256, 2)}),
    Measured(_H200, "2026-11-24", "2^30 bytes", {(EVERY, "bytes"): Find(256, 4)}),
)
