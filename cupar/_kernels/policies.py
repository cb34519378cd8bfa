"""What kernels are tuned by: the policies of all families, as data.

Each family has a table. Its key says for what a policy was measured: the compute capability, then sizes of
items in bytes, the class of the operator, or whatever else makes a difference. Its value is the policy, a
named tuple of the integers that the C++ is given by these names, and each table says where it was measured.
Where a table has no entry, the family takes what CUB's own policy selector says for that compute capability.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

P = TypeVar("P")


def of(table: Mapping[tuple[int, int], P], cc: int, size: int) -> P:
    """Return the entry for the latest compute capability up to `cc`, and the smallest size from `size` on.

    For larger sizes it is that of the largest. There must be an entry for such a compute capability.
    """
    latest = max(each for each, _ in table if each <= cc)
    sizes = sorted(each for found, each in table if found == latest)
    return table[latest, next((each for each in sizes if each >= size), sizes[-1])]


class Lookahead(NamedTuple):
    """Of scans of arrays that look ahead (``scan_fast.cuh``)."""

    warps: int  # that reduce, and as many that scan
    items: int  # of each of their threads in a tile
    states: int  # of tiles that a thread of the warp that looks ahead reads at once


# By compute capability, bytes of an item, and "c" for complex numbers. H200, CUDA 13.0, 2^28 items.
SCAN: Mapping[tuple[int, int, str], Lookahead] = {
    (90, 1, ""): Lookahead(4, 159, 8),
    (90, 2, ""): Lookahead(2, 191, 8),
    (90, 4, ""): Lookahead(2, 127, 8),
    (90, 8, ""): Lookahead(2, 91, 8),
    (90, 8, "c"): Lookahead(2, 79, 4),
    (90, 16, ""): Lookahead(2, 43, 8),
}

# Bytes of the input from which on they look ahead, by bytes of an item. Where it is quicker on an H200, to a
# power of two; for items of 16 bytes that was not measured.
SCAN_AHEAD_BYTES: Mapping[int, int] = {1: 1 << 25, 2: 1 << 26, 4: 1 << 28, 8: 1 << 28, 16: 1 << 25}


class Tile(NamedTuple):
    """Of kernels whose blocks have a tile of items each."""

    threads: int
    items: int  # of each thread


# By compute capability, and bytes of a key and of an item that goes with it, for operators that are known
# kinds. On an H200, tiles of 256 * 21 keys of 4 bytes sort 2^28 of them 4 % quicker than CUB's do, and 2^10
# to 2^20 slower by 4 to 18 %.
MERGE_SORT: Mapping[tuple[int, int, int], Tile] = {}


# By compute capability, and bytes of a key and of a value, for the kernels of a digit.
RADIX_SORT: Mapping[tuple[int, int, int], Tile] = {}


class SegmentedSort(NamedTuple):
    """Of segmented sorts."""

    group_threads: int  # of blocks whose groups of lanes have a segment each
    team_items: int  # of a thread of a team, which has a larger segment
    team_blocks: int  # of the largest team that a multiprocessor is to run at once: so registers are limited
    rows_threads: int  # of a block, at least, where a team sorts each row
    digit_threads: int  # of blocks that have a tile of a long segment
    digit_items: int  # of each of these threads


# By bytes of the words that are sorted. Measured on an H200; those of 8 and 16 bytes, beside team_items, by
# what is short: registers, then shared memory.
SEGMENTED_SORT: Mapping[int, SegmentedSort] = {
    4: SegmentedSort(256, 32, 2, 128, 512, 16),
    8: SegmentedSort(256, 16, 2, 128, 512, 16),
    16: SegmentedSort(128, 16, 1, 128, 512, 16),
}
SEGMENTED_SORT_UNTUNED = SegmentedSort(128, 16, 1, 128, 256, 8)


class Reduce(NamedTuple):
    """Of reductions."""

    threads: int  # of the blocks of a grid
    rows: int  # vectors of 16 bytes that a thread takes at once


REDUCE, REDUCE_OF_BYTES = Reduce(256, 4), Reduce(256, 2)


class Compact(NamedTuple):
    """Of selections, partitions and unique by key, as in compact.cuh."""

    threads: int
    rows: int  # of a warp, in a tile
    width: int  # items of a thread in a row
    buffers: int  # for tiles


# By compute capability, algorithm, and bytes of an item, and of the one that goes with it.
COMPACT: Mapping[tuple[int | str, ...], Compact] = {}


class Runs(NamedTuple):
    """Of what is done by runs of keys, as in runs.cuh."""

    threads: int
    items: int  # of each thread in a tile: an odd number
    resident: int  # blocks that a multiprocessor is to run at once


# By compute capability, algorithm, and bytes that a key and its value take in a tile. H200, CUDA 13.0, 2^28
# items in runs of 4, 64 and 4,096 on average.
RUNS: Mapping[tuple[int | str, ...], Runs] = {
    (90, "reduce", 4, 4): Runs(512, 9, 2),
    (90, "scan", 4, 4): Runs(256, 11, 3),
    (90, "encode", 4, 2): Runs(512, 11, 2),  # spills some registers, and is quicker all the same
}


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


# By bytes of an item, rounded up to a power of two. Tried on an H200 with items of 4 bytes alone, 2^28 values
# in 2^28 items and in 2^20; the others are made like it.
SEARCH: Mapping[int, Search] = {
    1: Search(128, 8, 16, 4096, 512, 3, 16, 8192),
    2: Search(128, 8, 16, 8192, 512, 3, 16, 16384),
    4: Search(128, 8, 16, 16384, 512, 3, 16, 32768),
    8: Search(128, 8, 8, 16384, 512, 3, 16, 32768),
    16: Search(128, 8, 4, 16384, 512, 2, 8, 32768),
}
SEARCH_LARGE = Search(128, 4, 1, 16384, 512, 1, 0, 0)  # what is larger, for which there is no tree


class Tiles(NamedTuple):
    """Of transforms."""

    threads: int
    bytes_in_flight: int  # that a thread loads before it stores
    iterator_items: int  # at most in a vector, if an iterator takes its items one by one


# H200: from 128 to 512 threads and 16 to 128 bytes were tried, with items of 1, 2, 4 and 8 bytes.
TRANSFORM = Tiles(256, 32, 4)

# Bytes of input beyond which a thread loads one vector before it stores: 1 to 4 % quicker where the arrays
# are not in the L2 cache.
TRANSFORM_CACHED_BYTES = 1 << 24


class Histogram(NamedTuple):
    """Of histograms."""

    threads: int
    loads: int  # of 16 bytes, that a thread has under way
    resident: int  # blocks that a multiprocessor is to run at once
    is_spread: bool  # whether a block has 32 copies of the bins where they pay, and not always one


# By bytes of a sample. H200, CUDA 13.0, 2^28 samples in 256 bins. With two loads, code for samples of 2 bytes
# spills.
HISTOGRAM: Mapping[int, Histogram] = {
    1: Histogram(1024, 2, 2, True),
    2: Histogram(1024, 1, 2, True),
    4: Histogram(1024, 2, 2, False),
    8: Histogram(1024, 2, 2, False),
}
HISTOGRAM_OF_ITERATORS = Histogram(512, 1, 1, False)  # whose functions may need many registers


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


SEGMENTED_SCAN = SegmentedScan(16, 8, 4, 2, 32, 16, 1, 57344, 4)
