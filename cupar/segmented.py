"""Algorithms on segments of arrays, each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ._call.algorithm import Algorithm
from ._call.double_buffer import DoubleBuffer, buffers, select
from ._call.native import Launch, NativeCall
from ._call.numbers import choice, item_count, segment_count
from ._call.signatures import two_phases
from ._compile import cccl
from ._ir.specialisation import Specialisation
from ._obtain.arguments import accumulation, integers
from ._obtain.call_sites import memoised
from ._obtain.obtain import obtain
from .operators import Op
from .sort import ARRAYS, BUFFERS, SortOrder, sorted_arguments, with_items


class _Segments(NamedTuple):
    num_segments: int
    max_segment_size: int  # 0: unknown


class SegmentedReduce(
    Algorithm,
    native="DeviceSegmentedReduceBuildResult",
    uses={
        "d_in": 0,
        "d_out": "num_segments",
        "start_offsets_in": "num_segments",
        "end_offsets_in": "num_segments",
    },
):
    """A segmented reduction for given types, operator and device; see `segmented_reduce`."""

    def run(
        self,
        d_in: Any,
        d_out: Any,
        num_segments: int,
        start_offsets_in: Any,
        end_offsets_in: Any,
        h_init: Any,
        stream: Any = None,
        *,
        max_segment_size: int | None = None,
    ) -> None:
        """Reduce each segment.

        Parameters
        ----------
        d_in : device array
            It must hold all items that the offsets name; that is not checked.
        d_out, start_offsets_in, end_offsets_in : device arrays, at least `num_segments` items
        num_segments : int
            From 0 to 2**31 - 1.
        h_init : numpy.ndarray of one element or number
            The initial value, of the kind that the reduction was built with.
        stream : optional
            As in `Algorithm`.
        max_segment_size : int, optional
            A bound on the items of each segment, if one is known: it lets CCCL take quicker kernels for small
            segments. If a segment has more, the result is wrong.
        """
        arguments = (d_in, d_out, num_segments, start_offsets_in, end_offsets_in, h_init, max_segment_size)
        self._run(stream, arguments)

    __call__ = two_phases(run)

    @staticmethod
    def _native_arguments(spec: Specialisation, b: Any, *iterators: Any, op: Any) -> tuple[Any, ...]:
        return *iterators, op, cccl.value(np.zeros(1, spec.operators[0][1].output))

    def _problem(
        self,
        d_in: Any,
        d_out: Any,
        num_segments: int,
        start_offsets_in: Any,
        end_offsets_in: Any,
        h_init: Any,
        max_segment_size: Any,
    ) -> _Segments:
        largest = 0 if max_segment_size is None else item_count("max_segment_size", max_segment_size)
        return _Segments(segment_count(num_segments), largest)

    def _sizes(self) -> Sequence[Any]:
        # Of segments of unknown size, and of such as CCCL has other kernels for.
        return [_Segments(n, largest) for n in (1, 1 << 12) for largest in (0, 1, 32, 512)]

    def _launcher(self, call: NativeCall) -> Launch:
        compute, (op,), init = call.native.compute, call.operators, call.init
        d_in, d_out, starts, ends = call.iterators

        def launch(address: int, nbytes: int, problem: _Segments, stream: int) -> int:
            n, largest = problem
            needed: int = compute(address, nbytes, d_in, d_out, n, starts, ends, op, init, largest, stream)
            return needed

        return launch


@memoised
def segmented_reduce(
    d_in: Any,
    d_out: Any,
    start_offsets_in: Any,
    end_offsets_in: Any,
    op: Op,
    h_init: Any,
    *,
    cc: Any = None,
    wait: bool = True,
    link: Any = None,
) -> SegmentedReduce:
    """Build a segmented reduction, or fetch it from the cache.

    Segment i is items ``start_offsets_in[i]`` to ``end_offsets_in[i] - 1``; segments may be empty, overlap,
    and leave items out. Its items, and `h_init`, are combined into ``d_out[i]``.

    Parameters
    ----------
    d_in : device array, iterator or dtype
        The input. Only its dtype matters here.
    d_out : device array, iterator or dtype, num_segments items
        Where the results go. Its dtype may differ from the accumulator's.
    start_offsets_in, end_offsets_in : device arrays, iterators or dtypes, num_segments items
        Of any integer dtype.
    op : callable, OpKind or RawOp
        Combines two values of the accumulator's dtype. It must be associative and commutative.
    h_init : numpy.ndarray of one element or number
        The initial value of each segment. An array's dtype is the accumulator's; a number is taken in
        `d_in`'s dtype.
    cc, wait, link
        As for every factory: see `Algorithm`, which also lists what is raised.

    Returns
    -------
    SegmentedReduce

    Examples
    --------
    >>> import numpy as np, cupar
    >>> sums = cupar.segmented_reduce("f4", "f4", "i8", "i8", lambda a, b: a + b, np.zeros(1, "f4"), cc=90)
    >>> sums.build.algorithm
    'segmented_reduce'

    Notes
    -----
    The algorithm is CUB's ``DeviceSegmentedReduce``.
    """
    if h_init is None:
        raise TypeError(
            "h_init: a segmented reduction needs an initial value, the result of an empty segment"
        )
    types = accumulation(d_in, d_out, op, h_init)
    arguments = (
        *types.converted(),
        integers("start_offsets_in", start_offsets_in),
        integers("end_offsets_in", end_offsets_in),
    )
    operators = {"op": types.operator}
    return obtain(SegmentedReduce, "segmented_reduce", arguments, operators, cc, wait, link, init=types.init)


class _Sorted(NamedTuple):
    num_items: int
    num_segments: int
    buffers: tuple[DoubleBuffer, ...]


class SegmentedSort(
    Algorithm,
    native="DeviceSegmentedSortBuildResult",
    uses={
        **dict.fromkeys(ARRAYS, "num_items"),
        "start_offsets_in": "num_segments",
        "end_offsets_in": "num_segments",
    },
    buffers=BUFFERS,
):
    """A sort of segments, each by itself; see `segmented_sort`."""

    def run(
        self,
        d_in_keys: Any,
        d_out_keys: Any = None,
        d_in_values: Any = None,
        d_out_values: Any = None,
        num_items: int | None = None,
        num_segments: int | None = None,
        start_offsets_in: Any = None,
        end_offsets_in: Any = None,
        stream: Any = None,
    ) -> None:
        """Sort the keys of each segment, with their values unless the sort was built without.

        Parameters
        ----------
        d_in_keys, d_out_keys, d_in_values, d_out_values : device arrays, at least `num_items` items
            Or a `DoubleBuffer` for the inputs and None for the outputs. Afterwards, items in no segment are
            unspecified in both arrays of a `DoubleBuffer`.
        num_items : int
            How many items the arrays have, 0 or more. No offset may be larger, which is not checked.
        num_segments : int
            From 0 to 2**31 - 1.
        start_offsets_in, end_offsets_in : device arrays, at least `num_segments` items
        stream : optional
            As in `Algorithm`.
        """
        arrays = (d_in_keys, d_out_keys, d_in_values, d_out_values)
        self._run(stream, (*arrays, num_items, num_segments, start_offsets_in, end_offsets_in))

    __call__ = two_phases(run)

    @staticmethod
    def _native_arguments(spec: Specialisation, b: Any, *iterators: Any) -> tuple[Any, ...]:
        *arrays, start, end = iterators
        in_keys, _, in_values, _ = with_items(arrays)
        return b.SortOrder(SortOrder[spec.option("order")].value), in_keys, in_values, start, end

    def _problem(
        self,
        d_in_keys: Any,
        d_out_keys: Any,
        d_in_values: Any,
        d_out_values: Any,
        num_items: int,
        num_segments: int,
        start_offsets_in: Any,
        end_offsets_in: Any,
    ) -> _Sorted:
        return _Sorted(num_items, segment_count(num_segments), buffers(d_in_keys, d_in_values))

    def _sizes(self) -> Sequence[Any]:
        # When there are many, CCCL asks the GPU how many segments are large, which cannot be captured.
        return [_Sorted(1 << 12, 2, ())]

    def _launcher(self, call: NativeCall) -> Launch:
        *sorted_arrays, start, end = call.iterators
        compute, arrays = call.native.compute, with_items(sorted_arrays)

        def launch(address: int, nbytes: int, problem: _Sorted, stream: int) -> int:
            n, segments, buffers = problem
            # An empty array may be a null pointer, which CCCL takes for no array; its segments are empty too.
            segments = segments if n else 0
            needed: int
            needed, selector = compute(
                address, nbytes, *arrays, n, segments, start, end, bool(buffers), -1, stream
            )
            if address and segments:
                select(buffers, selector)
            return needed

        return launch


@memoised
def segmented_sort(
    d_in_keys: Any,
    d_out_keys: Any = None,
    d_in_values: Any = None,
    d_out_values: Any = None,
    start_offsets_in: Any = None,
    end_offsets_in: Any = None,
    order: SortOrder | Any = None,
    *,
    cc: Any = None,
    wait: bool = True,
    link: Any = None,
) -> SegmentedSort:
    """Build a sort of segments of numbers, each by itself, or fetch it from the cache.

    Only the values and, with a `DoubleBuffer`, the outputs have a default; what follows them is given by name
    where they are left out.

    Segment i is items ``start_offsets_in[i]`` to ``end_offsets_in[i] - 1``. Segments may be empty and leave
    items out, which the sort does not write; they may not overlap.

    Parameters
    ----------
    d_in_keys : device array, DoubleBuffer or dtype, num_items items
        The keys: bool, integers or floats. Only their dtype matters here.
    d_out_keys : device array, dtype or None, num_items items
        Where the sorted keys go, of the same dtype; None if `d_in_keys` is a `DoubleBuffer`.
    d_in_values : device array, DoubleBuffer, dtype or None, num_items items
        What goes with the keys, if anything: of any dtype.
    d_out_values : device array, dtype or None, num_items items
        Where the values go; None if there are none, or they are in a `DoubleBuffer`.
    start_offsets_in, end_offsets_in : device arrays or dtypes, num_segments items
        Of any integer dtype.
    order : SortOrder
    cc, wait, link
        As for every factory: see `Algorithm`, which also lists what is raised.

    Returns
    -------
    SegmentedSort

    Examples
    --------
    >>> import cupar
    >>> order = cupar.SortOrder.ASCENDING
    >>> rows = cupar.segmented_sort("u4", "u4", None, None, "i8", "i8", order, cc=90)
    >>> rows.build.algorithm
    'segmented_sort'

    Notes
    -----
    The algorithm is CUB's ``DeviceSegmentedSort``. It merges small segments, by ``<``, and sorts large ones
    by their bits: so the order of a small segment that holds NaNs is not specified, and outputs may not be
    the inputs themselves.
    """
    order = choice("order", SortOrder, order)
    instead = "sort all with merge_sort, by a comparison that looks at the number of the segment first"
    arguments = (
        *sorted_arguments(d_in_keys, d_out_keys, d_in_values, d_out_values, instead),
        integers("start_offsets_in", start_offsets_in, may_iterate=False),
        integers("end_offsets_in", end_offsets_in, may_iterate=False),
    )
    return obtain(SegmentedSort, "segmented_sort", arguments, {}, cc, wait, link, order=order.name)
