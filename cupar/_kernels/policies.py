"""What kernels are tuned by: the policies of all families, as data.

Each family has a table. Its key says for what a policy was measured: compute capability, the size of items or
of the accumulator in bytes, and what else makes a difference, such as the class of the operator. Its value is
the policy, a named tuple of the integers that the C++ is given, and each table says where it was measured.
Where a table has no entry, the family takes what CUB's own policy selector says for that compute capability.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Lookahead(NamedTuple):
    """Of scans by CUB's lookahead kernel (``cub::ScanLookaheadPolicy``)."""

    warps: int  # that reduce tiles, and as many that scan them
    items: int  # of each of their threads
    lookahead: int  # states of tiles that a thread of the warp reads at once, which looks ahead


# By compute capability, and bytes of an item, which is the accumulator's type and the output's. H200, CUDA
# 13.0, 2^28 items, inclusive sums, as C++ operators and as functions: the best of 4 to 8 that were tried for
# each.
SCAN: Mapping[tuple[int, int], Lookahead] = {
    (90, 1): Lookahead(4, 159, 8),
    (90, 2): Lookahead(2, 191, 8),
    (90, 4): Lookahead(2, 127, 8),
    (90, 8): Lookahead(2, 91, 8),
    (90, 16): Lookahead(2, 43, 8),
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


# By bytes of an item, rounded up to a power of two. H200, CUDA 13.0, 2^28 values in 2^28 items and in 2^20.
SEARCH: Mapping[int, Search] = {
    1: Search(128, 8, 16, 4096, 512, 3, 16, 8192),
    2: Search(128, 8, 16, 8192, 512, 3, 16, 16384),
    4: Search(128, 8, 16, 16384, 512, 3, 16, 32768),
    8: Search(128, 8, 8, 16384, 512, 3, 16, 32768),
    16: Search(128, 8, 4, 16384, 512, 2, 8, 32768),
}
SEARCH_LARGE = Search(128, 4, 1, 16384, 512, 1, 0, 0)  # what is larger, for which there is no tree
