"""Copies of many segments at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._arguments.numbers import item_count
from ._arguments.order import two_phases
from ._arguments.segments import check_segments
from ._call.algorithm import Algorithm
from ._kernels.segmented_copy import MOST_ITEMS, SEGMENTED_COPY
from ._kernels.segments import SegmentsProblem
from ._obtain.arguments import argument, converting, integers
from ._obtain.factory_cache import memoised
from ._obtain.obtain import obtain

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._base.annotations import Array, ArrayOrType, ComputeCapability, Stream
    from ._ir.specialisation import Specialisation


class SegmentedCopy(
    Algorithm,
    family=SEGMENTED_COPY,
    uses={
        "d_in": "used",
        "d_out": "used",
        "start_offsets_in": "num_segments",
        "end_offsets_in": "num_segments",
        "start_offsets_out": "num_segments",
        "d_out_num_items": 1,
    },
    disjoint_outputs=True,
):
    """A copy of segments for given types and device; see `segmented_copy`."""

    def run(
        self,
        d_in: Array,
        d_out: Array,
        num_segments: int,
        start_offsets_in: Array,
        end_offsets_in: Array,
        start_offsets_out: Array | None = None,
        stream: Stream = None,
        *,
        d_out_num_items: Array | None = None,
        max_items: int | None = None,
    ) -> None:
        """Copy `num_segments` segments, from 0 to 2**33 - 1.

        The arrays must hold all items that the offsets name, which is checked on
        the CPU alone. Of segments one after another, the first `max_items` are
        written; by default all. The other arguments are None where the copy was
        built without them. `stream` as in `Algorithm`.
        """
        offsets = start_offsets_in, end_offsets_in, start_offsets_out
        self._run(stream, (d_in, d_out, num_segments, *offsets, d_out_num_items, max_items))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    @staticmethod
    def _problem_maker(spec: Specialisation) -> Callable[..., SegmentsProblem]:
        from ._device.arrays import length

        def problem(d_in: Any, num_segments: int, max_items: int | None) -> SegmentsProblem:
            check_segments(num_segments)
            most = MOST_ITEMS if max_items is None else item_count("max_items", max_items)
            return SegmentsProblem(num_segments, length(d_in), most, 0)

        return problem


@memoised
def segmented_copy(
    d_in: ArrayOrType,
    d_out: ArrayOrType,
    start_offsets_in: ArrayOrType,
    end_offsets_in: ArrayOrType,
    start_offsets_out: ArrayOrType | None = None,
    *,
    d_out_num_items: ArrayOrType | None = None,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> SegmentedCopy:
    """Build a copy of segments, or fetch it from the cache.

    Items ``start_offsets_in[s]`` to ``end_offsets_in[s] - 1`` are written from
    ``start_offsets_out[s]`` on, or behind those of the segment before. Segments
    may have any lengths, be in any order and overlap in the input; one that
    ends where it begins or before is empty. Where they overlap in the output,
    an item is what one of them writes.

    Parameters
    ----------
    d_in : device array, iterator or dtype
        The input. Only its dtype matters here.
    d_out : device array, iterator or dtype
        Where the items go, of the same dtype or one that they are converted to.
        It may not overlap the input.
    start_offsets_in, end_offsets_in : device arrays, iterators or dtypes
        `num_segments` items. Of any integer dtype.
    start_offsets_out : device array, iterator, dtype or None
        The same. None: segments are written one after another.
    d_out_num_items : device array, iterator, dtype or None
        One integer: the number of items of all segments.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        iterators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    SegmentedCopy

    Examples
    --------
    >>> import numpy as np, cupar
    >>> items, out = np.array([5, 6, 7, 8]), np.zeros(4, np.int64)
    >>> starts, ends, to = np.array([2, 0]), np.array([4, 1]), np.array([0, 3])
    >>> copy = cupar.segmented_copy(items, out, starts, ends, to, cc="cpu")
    >>> copy.run(items, out, 2, starts, ends, to)
    >>> print(out)
    [7 8 0 5]

    Notes
    -----
    It does what CUB's ``DeviceCopy::Batched`` does, by kernels of cupar's own:
    S. Baxter, "Modern GPU: Load-Balancing Search", 2013. Arrays that are not
    parts of one are segments, too, of an array that spans all of them.
    """
    source = argument("d_in", d_in)
    found = [integers("start_offsets_in", start_offsets_in), integers("end_offsets_in", end_offsets_in)]
    if start_offsets_out is not None:
        found.append(integers("start_offsets_out", start_offsets_out))
    if d_out_num_items is not None:
        found.append(integers("d_out_num_items", d_out_num_items, output=True))
    arguments = source, converting("d_out", d_out, source), *found
    return obtain(SegmentedCopy, "segmented_copy", arguments, {}, cc, wait, link)
