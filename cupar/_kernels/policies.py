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


class Tiles(NamedTuple):
    """Of transforms."""

    threads: int
    bytes_in_flight: int  # that a thread loads before it stores
    iterator_items: int  # at most in a vector, if an iterator takes its items one by one


TRANSFORM = Tiles(256, 32, 4)
