"""Algorithms on segments of arrays: each segment is independent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._arguments.double_buffer import DoubleBuffer, buffers, select
from ._arguments.order import two_phases
from ._arguments.segments import check_listed, items_of_rows, reduced
from ._base.errors import ArgumentTypeError
from ._call.algorithm import Algorithm
from ._ir.resolve import resolve
from ._kernels.segmented_merge_sort import SEGMENTED_MERGE_SORT
from ._kernels.segmented_reduce import SEGMENTED_REDUCE
from ._kernels.segmented_sort import SEGMENTED_SORT, SegmentedSortProblem
from ._obtain.arguments import accumulation, choice, in_order, segment_offsets
from ._obtain.factory_cache import memoised
from ._obtain.obtain import obtain
from .operators import Op
from .sort import ARRAYS, BUFFERS, SortOrder, pairs, sorted_arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._base.annotations import Array, ArrayOrType, ComputeCapability, Keys, KeysOrType, Order, Stream
    from ._ir.specialisation import Specialisation

_USES = {
    **dict.fromkeys(ARRAYS, "num_items"),
    "start_offsets_in": "num_segments",
    "end_offsets_in": "num_segments",
}


class SegmentedReduce(
    Algorithm,
    family=SEGMENTED_REDUCE,
    uses={
        "d_in": "used",
        "d_out": "num_segments",
        "start_offsets_in": "num_segments",
        "end_offsets_in": "num_segments",
    },
    rows="d_in",
):
    """A segmented reduction for given types; see `segmented_reduce`."""

    def run(
        self,
        d_in: Array,
        d_out: Array,
        num_segments: int | None = None,
        start_offsets_in: Array | None = None,
        end_offsets_in: Array | None = None,
        h_init: Any = None,
        stream: Stream = None,
        *,
        max_segment_size: int | None = None,
        segment_size: int | None = None,
    ) -> None:
        """Reduce each segment.

        Parameters
        ----------
        d_in : device array or iterator
            It must hold all items that the offsets name, which is checked on
            the CPU alone.
        d_out : device array or iterator, at least `num_segments` items
        num_segments : int
            From 0 to 2**33 - 1. Of rows, by default all of `d_in`.
        start_offsets_in, end_offsets_in : device arrays or iterators
            At least `num_segments` items. None if the reduction was built
            without.
        h_init : number, struct or array of one element
            The initial value, of the kind that the reduction was built with.
        stream : optional
            As in `Algorithm`.
        max_segment_size : int, optional
            Upper bound of the items of a segment, if known: calls for
            short ones launch less. The result is right also if one has more.
        segment_size : int, optional
            Without offsets, the items of each segment: segment i is row i
            of this length. By default the length of the last axis of `d_in`, if it
            has several.
        """
        offsets = start_offsets_in, end_offsets_in
        sizes = max_segment_size, segment_size
        self._run(stream, (d_in, d_out, num_segments, *offsets, h_init, *sizes))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    _problem_maker = staticmethod(reduced)


@memoised
def segmented_reduce(
    d_in: ArrayOrType,
    d_out: ArrayOrType,
    start_offsets_in: ArrayOrType | None = None,
    end_offsets_in: ArrayOrType | None = None,
    op: Op | None = None,
    h_init: Any = None,
    *,
    commutative: bool = True,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> SegmentedReduce:
    """Build a segmented reduction, or fetch it from the cache.

    Segment i is items ``start_offsets_in[i]`` to ``end_offsets_in[i] - 1``;
    segments may be empty, overlap, and leave items out. One that ends where it
    begins or before is empty. Its items, and `h_init`, are combined into
    ``d_out[i]``. Without offsets, all segments have one length, one after
    another, as the rows of a matrix.

    Parameters
    ----------
    d_in : device array, iterator or dtype
        The input. Only its dtype matters here.
    d_out : device array, iterator or dtype, num_segments items
        Where the results go. Its dtype may differ from the accumulator's.
    start_offsets_in, end_offsets_in : device arrays, iterators, dtypes or None
        `num_segments` items. Of any integer dtype. Both None: rows.
    op : callable, OpKind or RawOp
        Combines two values of the accumulator's dtype. It must be associative
        and, unless `commutative` is False, commutative: either may be that
        of earlier items. Order and grouping are unspecified, but the same in
        every run on the same kind of GPU.
    h_init : number, struct or array of one element
        The initial value of each segment. Its dtype is the accumulator's. A
        number of Python's has none, and takes `d_in`'s, in which sums may wrap:
        ``np.int64(0)`` has integers added in int64.
    commutative : bool, optional
        False: `op` need not be commutative. Items are combined in their order,
        the initial value before them, in any grouping.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    SegmentedReduce

    Examples
    --------
    >>> import numpy as np, cupar
    >>> items, sums = np.arange(6), np.zeros(2, np.int64)
    >>> starts, ends = np.array([0, 2]), np.array([2, 6])
    >>> add = lambda a, b: a + b
    >>> by_offsets = cupar.segmented_reduce(
    ...     items, sums, starts, ends, add, 0, cc="cpu"
    ... )
    >>> by_offsets.run(items, sums, 2, starts, ends, 0)
    >>> print(sums)
    [ 1 14]

    Of the rows of a matrix:

    >>> matrix = items.reshape(2, 3)
    >>> of_rows = cupar.segmented_reduce(
    ...     matrix, sums, op=add, h_init=0, cc="cpu"
    ... )
    >>> of_rows.run(matrix, sums, h_init=0)
    >>> print(sums)
    [ 3 12]

    Notes
    -----
    Nothing is read back, whatever the lengths, so calls can be captured.
    """
    offsets = segment_offsets(start_offsets_in, end_offsets_in)
    if h_init is None:
        raise ArgumentTypeError(
            "h_init", "a segmented reduction needs an initial value, the result of an empty segment"
        )
    types = accumulation(d_in, d_out, op, h_init)
    arguments = types.d_in, types.d_out, *offsets
    operators = {"op": types.operator}
    options = in_order(commutative)
    return obtain(
        SegmentedReduce, "segmented_reduce", arguments, operators, cc, wait, link, init=types.init, **options
    )


class SegmentedSort(
    Algorithm,
    family=SEGMENTED_SORT,
    uses=_USES,
    buffers=BUFFERS,
    rows="d_in_keys",
):
    """A sort of independent segments; see `segmented_sort`."""

    def run(
        self,
        d_in_keys: Keys,
        d_out_keys: Keys | None = None,
        d_in_values: Keys | None = None,
        d_out_values: Keys | None = None,
        num_items: int | None = None,
        num_segments: int | None = None,
        start_offsets_in: Array | None = None,
        end_offsets_in: Array | None = None,
        stream: Stream = None,
        *,
        segment_size: int | None = None,
    ) -> None:
        """Sort the keys of each segment, with their values if it has any.

        Parameters
        ----------
        d_in_keys, d_out_keys, d_in_values, d_out_values : device arrays
            At least `num_items` items. Or a `DoubleBuffer` for the inputs and
            None for the outputs. Afterwards, items in no segment are
            unspecified in both arrays of a `DoubleBuffer`. The inputs may be
            iterators if the sort was built for them.
        num_items : int
            Number of items of the arrays, 0 or more. No offset may be larger,
            or below 0; that is checked on the CPU alone. Of rows, by default
            ``num_segments * segment_size``.
        num_segments : int
            From 0 to 2**32 - 1; without offsets, to 2**33 - 1, and by default
            all rows of `d_in_keys`.
        start_offsets_in, end_offsets_in : device arrays
            At least `num_segments` items. None if the sort was built without.
        stream : optional
            As in `Algorithm`.
        segment_size : int, optional
            Without offsets, the items of each segment: segment i is row i
            of this length. By default the length of the last axis of `d_in_keys`,
            if it has several.
        """
        arrays = (d_in_keys, d_out_keys, d_in_values, d_out_values)
        arguments = (*arrays, num_items, num_segments, start_offsets_in, end_offsets_in, segment_size)
        self._run(stream, arguments)
        if isinstance(d_in_keys, DoubleBuffer):
            self._enqueued(arguments)

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    @staticmethod
    def _problem_maker(spec: Specialisation) -> Callable[..., SegmentedSortProblem]:
        if spec.arguments[-1].name != "end_offsets_in":

            def of_rows(
                d_in_keys: Any, d_in_values: Any, num_items: int, num_segments: int, segment_size: int
            ) -> SegmentedSortProblem:
                buffers(d_in_keys, d_in_values)
                items = items_of_rows(num_items, num_segments, segment_size)
                return SegmentedSortProblem(items, num_segments, segment_size)

            return of_rows

        def listed(
            d_in_keys: Any, d_in_values: Any, num_items: int, num_segments: int
        ) -> SegmentedSortProblem:
            buffers(d_in_keys, d_in_values)
            check_listed(num_segments)
            return SegmentedSortProblem(num_items, num_segments, 0)

        return listed

    def _enqueued(self, arguments: tuple[Any, ...]) -> None:
        """Let double buffers know that their values are going to be in the other array."""
        found = buffers(arguments[0], arguments[2])
        if found and 0 not in arguments[4:6]:
            select(found, 1)


class SegmentedMergeSort(
    SegmentedSort, family=SEGMENTED_MERGE_SORT, uses=_USES, buffers=BUFFERS, rows="d_in_keys"
):
    """A sort of segments by a comparison, called as a `SegmentedSort` is; see `segmented_sort`."""


@memoised
def segmented_sort(
    d_in_keys: KeysOrType,
    d_out_keys: KeysOrType | None = None,
    d_in_values: KeysOrType | None = None,
    d_out_values: KeysOrType | None = None,
    start_offsets_in: ArrayOrType | None = None,
    end_offsets_in: ArrayOrType | None = None,
    order: Order | None = None,
    *,
    op: Op | None = None,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> SegmentedSort:
    """Build a stable sort of each segment, or fetch it from the cache.

    By the bits of numbers, in an `order`; or of whatever keys by a comparison,
    `op`.

    Only the values, the offsets and, with a `DoubleBuffer`, the outputs have a
    default; what follows them is given by name where they are left out.

    Segment i is items ``start_offsets_in[i]`` to ``end_offsets_in[i] - 1``.
    Segments may be empty and leave items out, which the sort does not write;
    they may not overlap. One that ends where it begins or before is empty.
    Without offsets, all segments have one length, one after another, as the
    rows of a matrix.

    Parameters
    ----------
    d_in_keys : device array, DoubleBuffer or dtype, num_items items
        The keys: bool, integers or floats; with `op` of any dtype, and an
        iterator, too. Only their dtype matters here.
    d_out_keys : device array, dtype or None, num_items items
        Where the sorted keys go, of the same dtype; None if `d_in_keys` is a
        `DoubleBuffer`.
    d_in_values : device array, DoubleBuffer, dtype or None, num_items items
        What goes with the keys, if anything: of any dtype; with `op`, an
        iterator, too.
    d_out_values : device array, dtype or None, num_items items
        Where the values go; None if there are none, or they are in a
        `DoubleBuffer`.
    start_offsets_in, end_offsets_in : device arrays, dtypes or None
        `num_segments` items. Of any integer dtype. Both None: rows.
    order : SortOrder, optional
        By default the smallest come first.
    op : callable, OpKind, RawOp or None
        In place of `order`: whether its first key goes before its second, a
        strict weak order.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    SegmentedSort

    Examples
    --------
    >>> import numpy as np, cupar
    >>> keys = np.array([[3, -1, 2], [5, -6, 4]])
    >>> sorted_keys = np.empty_like(keys)
    >>> rows = cupar.segmented_sort(keys, sorted_keys, cc="cpu")
    >>> rows.run(keys, sorted_keys)
    >>> print(sorted_keys)
    [[-1  2  3]
     [-6  4  5]]

    By a comparison:

    >>> nearer = lambda a, b: abs(a) < abs(b)
    >>> by_magnitude = cupar.segmented_sort(
    ...     keys, sorted_keys, op=nearer, cc="cpu"
    ... )
    >>> by_magnitude.run(keys, sorted_keys)
    >>> print(sorted_keys)
    [[-1  2  3]
     [ 4  5 -6]]

    Notes
    -----
    In an `order`, floats are ordered by sign and magnitude: NaNs go to the
    ends, and with values -0.0 and 0.0 are equal. The outputs may not be the
    inputs themselves. Nothing is read back, whatever the lengths, so calls can
    be captured.
    """
    offsets = segment_offsets(start_offsets_in, end_offsets_in, may_iterate=False)
    if op is not None:
        if order is not None:
            raise ArgumentTypeError("order", f"expected None, since there is op, a comparison; got {order!r}")
        arguments = *pairs(d_in_keys, d_out_keys, d_in_values, d_out_values, may_iterate=True), *offsets
        dtype = arguments[0].value
        operators = {"op": resolve(op, (dtype, dtype), np.dtype(bool), recognise=True)}
        return obtain(SegmentedMergeSort, "segmented_sort", arguments, operators, cc, wait, link)
    instead = "give op, a comparison of yours, in place of order"
    arguments = *sorted_arguments(d_in_keys, d_out_keys, d_in_values, d_out_values, instead), *offsets
    order = choice("order", SortOrder, SortOrder.ASCENDING if order is None else order)
    return obtain(SegmentedSort, "segmented_sort", arguments, {}, cc, wait, link, order=order.name)
