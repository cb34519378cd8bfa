"""The first k items in an order: the largest or the smallest, of an array or of each segment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import structs
from ._arguments.numbers import item_count, refuse
from ._arguments.order import two_phases
from ._arguments.segments import check_listed, items_of_rows
from ._base.errors import ArgumentTypeError
from ._call.algorithm import Algorithm
from ._ir.nodes import Argument
from ._kernels.top_k import TOP_K, TopKProblem
from ._obtain.arguments import choice, paired, segment_offsets
from ._obtain.factory_cache import memoised
from ._obtain.obtain import obtain
from .sort import SortOrder

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._base.annotations import Array, ArrayOrType, ComputeCapability, Order, Stream
    from ._ir.specialisation import Specialisation


class TopK(
    Algorithm,
    family=TOP_K,
    uses={"d_in_keys": "num_items", "d_out_keys": "k", "d_in_values": "num_items", "d_out_values": "k"},
):
    """The first k items in an order; see `top_k`."""

    def run(
        self,
        d_in_keys: Array,
        d_out_keys: Array | None,
        d_in_values: Array | None = None,
        d_out_values: Array | None = None,
        num_items: int | None = None,
        k: int | None = None,
        stream: Stream = None,
    ) -> None:
        """Find the first k of `num_items` keys, with their values if it has any.

        Parameters
        ----------
        d_in_keys : device array, at least `num_items` items
        d_out_keys : device array, at least `k` items
        d_in_values : device array or iterator, at least `num_items` items
        d_out_values : device array, at least `k` items
        num_items : int
        k : int
            From 0 to `num_items`.
        stream : optional
            As in `Algorithm`.
        """
        self._run(stream, (d_in_keys, d_out_keys, d_in_values, d_out_values, num_items, k))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    @staticmethod
    def _problem_maker(spec: Specialisation) -> Callable[..., TopKProblem]:
        def problem(num_items: int, k: int) -> TopKProblem:
            if k > num_items:
                refuse("k", "expected at most num_items", ", {}, got {}", num_items, k)
            return TopKProblem(num_items, 1, num_items, k, k)

        return problem


def _arguments(d_in_keys: Any, d_out_keys: Any, d_in_values: Any, d_out_values: Any) -> tuple[Argument, ...]:
    """Describe keys and, if there are any, values; each in and out."""
    keys = paired("d_in_keys", d_in_keys, "d_out_keys", d_out_keys)
    if structs.kind_of(keys[0].value) in "cV":
        raise ArgumentTypeError(
            "d_in_keys", f"{structs.text(keys[0].value)} has no order; merge_sort takes a comparison of yours"
        )
    values = ("d_in_values", d_in_values, "d_out_values", d_out_values)
    return *keys, *paired(*values, may_iterate=True, optional=True)


@memoised
def top_k(
    d_in_keys: ArrayOrType,
    d_out_keys: ArrayOrType,
    d_in_values: ArrayOrType | None = None,
    d_out_values: ArrayOrType | None = None,
    order: Order = SortOrder.DESCENDING,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> TopK:
    """Build a top-k, or fetch it from the cache.

    It finds the largest or the smallest items.

    They are sorted, and equal keys stay in their order: the result is that of a
    stable sort, cut off after k items.

    Parameters
    ----------
    d_in_keys : device array or dtype, num_items items
        The keys: bool, integers or floats. Only their dtype matters here.
    d_out_keys : device array or dtype, k items
        Where the first k keys go, of the same dtype.
    d_in_values : device array, iterator, dtype or None, num_items items
        Values that belong to the keys, if any: of any dtype. A
        `CountingIterator` yields indices.
    d_out_values : device array, dtype or None, k items
        Where the values go, of the same dtype; None if there are none.
    order : SortOrder
        By default the largest come first.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    TopK

    Examples
    --------
    >>> import numpy as np, cupar
    >>> keys, largest = np.array([3, 9, 1, 7]), np.zeros(2, np.int64)
    >>> indices = cupar.CountingIterator(np.int64(0))
    >>> places = np.zeros(2, np.int64)
    >>> select = cupar.top_k(keys, largest, indices, places, cc="cpu")
    >>> select.run(keys, largest, indices, places, 4, 2)
    >>> print(np.sort(largest), np.sort(places))
    [7 9] [1 3]

    Notes
    -----
    Keys are ordered as by `radix_sort`: -0.0 and 0.0 are equal, and NaNs go to
    the ends, those without a sign before all others if the largest come first.
    The outputs may not overlap the inputs. Nothing is read back, so calls can
    be captured.
    """
    order = choice("order", SortOrder, order)
    arguments = _arguments(d_in_keys, d_out_keys, d_in_values, d_out_values)
    return obtain(TopK, "top_k", arguments, {}, cc, wait, link, order=order.name)


class SegmentedTopK(
    Algorithm,
    family=TOP_K,
    uses={
        "d_in_keys": "num_items",
        "d_out_keys": "outputs",
        "d_in_values": "num_items",
        "d_out_values": "outputs",
        "start_offsets_in": "num_segments",
        "end_offsets_in": "num_segments",
    },
    rows="d_in_keys",
):
    """The first k items of each segment; see `segmented_top_k`."""

    def run(
        self,
        d_in_keys: Array,
        d_out_keys: Array | None,
        d_in_values: Array | None = None,
        d_out_values: Array | None = None,
        num_items: int | None = None,
        num_segments: int | None = None,
        k: int | None = None,
        start_offsets_in: Array | None = None,
        end_offsets_in: Array | None = None,
        stream: Stream = None,
        *,
        segment_size: int | None = None,
    ) -> None:
        """Find the first k keys of each segment, with values if it has any.

        Parameters
        ----------
        d_in_keys : device array, at least `num_items` items
        d_out_keys : device array, at least ``num_segments * k`` items
            The results of segment i go to row i of `k` items. A segment
            that has fewer leaves the rest of its row as it is.
        d_in_values : device array or iterator, at least `num_items` items
        d_out_values : device array, at least ``num_segments * k`` items
        num_items : int
            Number of items of the inputs, 0 or more. No offset may be larger,
            or below 0; that is checked on the CPU alone. Of rows, by default
            ``num_segments * segment_size``.
        num_segments : int
            From 0 to 2**32 - 1; without offsets, to 2**33 - 1, and by default
            all rows of `d_in_keys`.
        k : int
            0 or more; without offsets, no more than each segment has.
        start_offsets_in, end_offsets_in : device arrays
            At least `num_segments` items. None if it was built without.
        stream : optional
            As in `Algorithm`.
        segment_size : int, optional
            Without offsets, the items of each segment: segment i is row i
            of this length. By default the length of the last axis of `d_in_keys`,
            if it has several.
        """
        arrays = (d_in_keys, d_out_keys, d_in_values, d_out_values)
        arguments = (*arrays, num_items, num_segments, k, start_offsets_in, end_offsets_in, segment_size)
        self._run(stream, arguments)

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    @staticmethod
    def _problem_maker(spec: Specialisation) -> Callable[..., TopKProblem]:
        if spec.arguments[-1].name != "end_offsets_in":

            def of_rows(num_items: int, num_segments: int, k: int, segment_size: int) -> TopKProblem:
                items, wanted = items_of_rows(num_items, num_segments, segment_size), item_count("k", k)
                if wanted > segment_size:
                    refuse("k", "expected at most segment_size", ", {}, got {}", segment_size, wanted)
                return TopKProblem(items, num_segments, segment_size, wanted, num_segments * wanted)

            return of_rows

        def listed(num_items: int, num_segments: int, k: int) -> TopKProblem:
            check_listed(num_segments)
            wanted = item_count("k", k)
            return TopKProblem(num_items, num_segments, 0, wanted, num_segments * wanted)

        return listed


@memoised
def segmented_top_k(
    d_in_keys: ArrayOrType,
    d_out_keys: ArrayOrType,
    d_in_values: ArrayOrType | None = None,
    d_out_values: ArrayOrType | None = None,
    start_offsets_in: ArrayOrType | None = None,
    end_offsets_in: ArrayOrType | None = None,
    order: Order = SortOrder.DESCENDING,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> SegmentedTopK:
    """Build a per-segment top-k, or fetch it from the cache.

    It finds the largest or smallest k items of each segment.

    Segment i is items ``start_offsets_in[i]`` to ``end_offsets_in[i] - 1``; its
    first k items go, sorted, to row i of the outputs, which is k items long.
    Segments may be empty and leave items out; they may not overlap. One that
    ends where it begins or before is empty. Without offsets, all segments have
    one length, one after another, as the rows of a matrix.

    Parameters
    ----------
    d_in_keys : device array or dtype, num_items items
        The keys: bool, integers or floats. Only their dtype matters here.
    d_out_keys : device array or dtype, num_segments * k items
        Where the first k keys of each segment go, of the same dtype. A segment
        that has fewer items leaves the rest of its row as it is.
    d_in_values : device array, iterator, dtype or None, num_items items
        Values that belong to the keys, if any: of any dtype. A
        `CountingIterator` yields indices, counted from the first item of the
        array.
    d_out_values : device array, dtype or None, num_segments * k items
        Where the values go, of the same dtype; None if there are none.
    start_offsets_in, end_offsets_in : device arrays, dtypes or None
        `num_segments` items. Of any integer dtype. Both None: rows.
    order : SortOrder
        By default the largest come first.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    SegmentedTopK

    Examples
    --------
    >>> import numpy as np, cupar
    >>> keys = np.array([[3, 9, 1], [7, 5, 6]])
    >>> smallest = np.zeros((2, 1), np.int64)
    >>> order = cupar.SortOrder.ASCENDING
    >>> of_rows = cupar.segmented_top_k(keys, smallest, order=order, cc="cpu")
    >>> of_rows.run(keys, smallest, None, None, k=1)
    >>> print(smallest)
    [[1]
     [5]]

    Notes
    -----
    Keys are ordered as by `top_k`, and equal keys stay in their order. The
    outputs may not overlap the inputs. Nothing is read back, whatever the
    lengths, so calls can be captured.
    """
    order = choice("order", SortOrder, order)
    arguments = (
        *_arguments(d_in_keys, d_out_keys, d_in_values, d_out_values),
        *segment_offsets(start_offsets_in, end_offsets_in, may_iterate=False),
    )
    return obtain(SegmentedTopK, "segmented_top_k", arguments, {}, cc, wait, link, order=order.name)
