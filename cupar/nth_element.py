"""Items by their rank in an order: the n-th element of each segment, without a sort."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import structs
from ._arguments.numbers import item_count, refuse
from ._arguments.order import two_phases
from ._arguments.segments import check_listed, items_of_rows
from ._base.errors import ArgumentTypeError, ArgumentValueError
from ._call.algorithm import Algorithm
from ._kernels.nth_element import NTH_ELEMENT, PROPAGATING, NthElementProblem
from ._obtain.arguments import argument, integers, same_dtype, segment_offsets
from ._obtain.factory_cache import memoised
from ._obtain.obtain import obtain

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._base.annotations import Array, ArrayOrType, ComputeCapability, Stream
    from ._ir.specialisation import Specialisation


class SegmentedNthElement(
    Algorithm,
    family=NTH_ELEMENT,
    uses={
        "d_in": "num_items",
        "d_out": "num_segments",
        "d_out_next": "num_segments",
        "d_ranks": "num_segments",
        "start_offsets_in": "num_segments",
        "end_offsets_in": "num_segments",
    },
    rows="d_in",
    disjoint_outputs=True,
):
    """The n-th element of each segment; see `segmented_nth_element`."""

    def run(
        self,
        d_in: Array,
        d_out: Array,
        d_out_next: Array | None = None,
        n: int | None = None,
        num_items: int | None = None,
        num_segments: int | None = None,
        d_ranks: Array | None = None,
        start_offsets_in: Array | None = None,
        end_offsets_in: Array | None = None,
        stream: Stream = None,
        *,
        segment_size: int | None = None,
    ) -> None:
        """Find the n-th element of each segment.

        Parameters
        ----------
        d_in : device array, at least `num_items` items
        d_out : device array, at least `num_segments` items
        d_out_next : device array, at least `num_segments` items
            None if it was built without.
        n : int
            Of rows, the rank of the element: from 0 to ``segment_size - 1``. With
            offsets None.
        num_items : int
            Number of items of the input, 0 or more. No offset may be larger, or
            below 0; that is checked on the CPU alone. Of rows, by default
            ``num_segments * segment_size``.
        num_segments : int
            From 0 to 2**32 - 1; without offsets, to 2**33 - 1, and by default
            all rows of `d_in`.
        d_ranks, start_offsets_in, end_offsets_in : device arrays
            At least `num_segments` items. None if it was built without. A
            segment that has no item of its rank leaves its results as they are.
        stream : optional
            As in `Algorithm`.
        segment_size : int, optional
            Without offsets, the items of each segment: segment i is row i
            of this length. By default the length of the last axis of `d_in`,
            if it has several. All items are one row of that length.
        """
        arrays = (d_in, d_out, d_out_next, n, num_items, num_segments, d_ranks)
        self._run(stream, (*arrays, start_offsets_in, end_offsets_in, segment_size))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    @staticmethod
    def _problem_maker(spec: Specialisation) -> Callable[..., NthElementProblem]:
        if spec.arguments[-1].name != "end_offsets_in":

            def of_rows(num_items: int, num_segments: int, n: int, segment_size: int) -> NthElementProblem:
                items, rank = items_of_rows(num_items, num_segments, segment_size), item_count("n", n)
                if rank >= segment_size:
                    refuse("n", "expected less than segment_size", ", {}, got {}", segment_size, rank)
                return NthElementProblem(items, num_segments, segment_size, rank)

            return of_rows

        def listed(num_items: int, num_segments: int, n: int | None) -> NthElementProblem:
            check_listed(num_segments)
            if n is not None:
                refuse("n", "expected None, as d_ranks has them", "")
            return NthElementProblem(num_items, num_segments, 0, 0)

        return listed


@memoised
def segmented_nth_element(
    d_in: ArrayOrType,
    d_out: ArrayOrType,
    d_out_next: ArrayOrType | None = None,
    d_ranks: ArrayOrType | None = None,
    start_offsets_in: ArrayOrType | None = None,
    end_offsets_in: ArrayOrType | None = None,
    *,
    nans: str = "last",
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> SegmentedNthElement:
    """Build a per-segment search for the n-th element, or fetch it from the cache.

    It finds the item that a sort of the segment would put at index n, and the
    item behind that, without a sort: for medians and other quantiles.

    Segment i is items ``start_offsets_in[i]`` to ``end_offsets_in[i] - 1``, and
    n is ``d_ranks[i]``. Segments may be empty and leave items out; they may not
    overlap. Without offsets, all segments have one length, one after another,
    as the rows of a matrix, and one n; a whole array is one row.

    Parameters
    ----------
    d_in : device array or dtype, num_items items
        Bool, integers or floats. Only their dtype matters here.
    d_out : device array or dtype, num_segments items
        Where the element of each segment goes, of the same dtype. It may not
        overlap the inputs.
    d_out_next : device array, dtype or None, num_segments items
        Where the item at index n + 1 goes, or the same item if n is the last
        index.
    d_ranks : device array, dtype or None, num_segments items
        With offsets, the n of each segment. Of any integer dtype.
    start_offsets_in, end_offsets_in : device arrays, dtypes or None
        `num_segments` items. Of any integer dtype. Both None: rows.
    nans : {"last", "propagate"}, optional
        NaNs come last in the order, or the results of a segment with a NaN are
        NaN.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    SegmentedNthElement

    Examples
    --------
    >>> import numpy as np, cupar
    >>> items, medians = np.array([[3, 9, 1], [7, 5, 6]]), np.zeros(2, np.int64)
    >>> of_rows = cupar.segmented_nth_element(items, medians, cc="cpu")
    >>> of_rows.run(items, medians, n=1)
    >>> print(medians)
    [3 6]

    Notes
    -----
    -0.0 and 0.0 are equal, and found as 0.0. Nothing is written but the
    results, and temporary storage for an eighth of the items of long segments;
    nothing is read back, so calls can be captured.
    """
    if nans not in ("last", "propagate"):
        raise ArgumentValueError("nans", f"expected 'last' or 'propagate', got {nans!r}")
    items = argument("d_in", d_in, may_iterate=False)
    if structs.kind_of(items.value) in "cV":
        raise ArgumentTypeError(
            "d_in", f"{structs.text(items.value)} has no order; merge_sort takes a comparison of yours"
        )
    found = [items, same_dtype("d_out", d_out, items, output=True, may_iterate=False)]
    if d_out_next is not None:
        found.append(same_dtype("d_out_next", d_out_next, items, output=True, may_iterate=False))
    offsets = segment_offsets(start_offsets_in, end_offsets_in, may_iterate=False)
    if (d_ranks is None) != (not offsets):
        wanted = "None, as there are no offsets" if not offsets else "integers, as there are offsets"
        raise ArgumentTypeError(
            "d_ranks", f"expected {wanted}, got {'None' if d_ranks is None else 'an argument'}"
        )
    if d_ranks is not None:
        found.append(integers("d_ranks", d_ranks, may_iterate=False))
    is_float = structs.kind_of(items.value) == "f"
    order = PROPAGATING if nans == "propagate" and is_float else "ASCENDING"
    arguments = *found, *offsets
    return obtain(SegmentedNthElement, "segmented_nth_element", arguments, {}, cc, wait, link, order=order)
