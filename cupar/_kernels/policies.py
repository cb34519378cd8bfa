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


class Tile(NamedTuple):
    """Of kernels whose blocks have a tile of items each."""

    threads: int
    items: int  # of each thread


# By compute capability, and bytes of a key and of an item that goes with it, for operators that are known
# kinds. H200, CUDA 13.0, 2^28 random keys.
MERGE_SORT: Mapping[tuple[int, int, int], Tile] = {
    (90, 4, 0): Tile(256, 21),
}
