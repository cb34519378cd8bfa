"""Merges of two sorted ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._arguments.order import two_phases
from ._call.algorithm import Algorithm
from ._kernels.merge import MERGE
from ._obtain.factory_cache import memoised
from ._obtain.obtain import obtain
from ._obtain.ranges import RANGES, described, documented, of_ranges
from .operators import Op, OpKind

if TYPE_CHECKING:
    from ._base.annotations import Array, ArrayOrType, ComputeCapability, Stream


class Merge(
    Algorithm,
    family=MERGE,
    uses={**RANGES, "d_out_keys": "num_items", "d_out_items": "num_items"},
    disjoint_outputs=True,
):
    """A stable merge of two sorted ranges by a comparison; see `merge`."""

    def run(
        self,
        d_in_keys1: Array,
        d_in_items1: Array | None,
        num_items1: int,
        d_in_keys2: Array,
        d_in_items2: Array | None,
        num_items2: int,
        d_out_keys: Array,
        d_out_items: Array | None = None,
        stream: Stream = None,
    ) -> None:
        """Merge the first `num_items1` keys of one range and `num_items2` of another.

        Their items are merged with them, if it has any. Both counts may be 0 or
        more; 2**32 and beyond are fine. The outputs have room for their sum.
        `stream` as in `Algorithm`.
        """
        first, second = (d_in_keys1, d_in_items1, num_items1), (d_in_keys2, d_in_items2, num_items2)
        self._run(stream, (*first, *second, d_out_keys, d_out_items))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    _problem_maker = staticmethod(of_ranges)


@memoised
@documented("n + m items")
def merge(
    d_in_keys1: ArrayOrType,
    d_in_items1: ArrayOrType | None,
    d_in_keys2: ArrayOrType,
    d_in_items2: ArrayOrType | None,
    d_out_keys: ArrayOrType,
    d_out_items: ArrayOrType | None = None,
    op: Op | None = OpKind.LESS,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> Merge:
    """Build a stable merge of two sorted ranges, or fetch it from the cache.

    The output has the keys of both ranges, sorted. Of equal keys, those of the
    first range come first, and those of a range stay in their order. If a range
    is not sorted, the contents of the outputs are unspecified, but nothing else
    is.

    >>> odd, even = np.array([1, 3, 5]), np.array([2, 4])
    >>> out = np.zeros(5, np.int64)
    >>> both = cupar.merge(odd, None, even, None, out, cc="cpu")
    >>> both.run(odd, None, 3, even, None, 2, out)
    >>> print(out)
    [1 2 3 4 5]

    Notes
    -----
    The algorithm is CUB's ``DeviceMerge``: S. Odeh et al., "Merge Path -
    Parallel Merging Made Simple", IPDPSW 2012.
    """
    keys, items = (d_in_keys1, d_in_keys2, d_out_keys), (d_in_items1, d_in_items2, d_out_items)
    arguments, operators = described(keys, items, op)
    return obtain(Merge, "merge", arguments, operators, cc, wait, link)
