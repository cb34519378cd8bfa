"""Prefix scans of segments: each item of the output combines those of its segment up to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._arguments.order import two_phases
from ._arguments.segments import reduced
from ._base.errors import ArgumentTypeError
from ._call.algorithm import Algorithm
from ._kernels.segmented_scan import SEGMENTED_SCAN
from ._obtain.arguments import accumulation, check_start, integers
from ._obtain.factory_cache import memoised
from ._obtain.obtain import obtain
from .operators import Op

if TYPE_CHECKING:
    from ._base.annotations import Array, ArrayOrType, ComputeCapability, Stream


class SegmentedScan(
    Algorithm,
    family=SEGMENTED_SCAN,
    uses={
        "d_in": "used",
        "d_out": "used",
        "start_offsets_in": "num_segments",
        "end_offsets_in": "num_segments",
        "start_offsets_out": "num_segments",
    },
    rows="d_in",
):
    """A segmented scan for given types, operator and device.

    See `inclusive_segmented_scan` and `exclusive_segmented_scan`.
    """

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
        start_offsets_out: Array | None = None,
        max_segment_size: int | None = None,
        segment_size: int | None = None,
    ) -> None:
        """Scan each segment.

        Parameters
        ----------
        d_in, d_out : device arrays or iterators
            They must hold all items that the offsets name, which is checked on
            the CPU alone.
        num_segments : int
            From 0 to 2**33 - 1. Of rows, by default all of `d_in`.
        start_offsets_in, end_offsets_in : device arrays or iterators
            At least `num_segments` items. None if the scan was built without.
        h_init : number, struct or array of one element
            The initial value, of the kind that the scan was built with.
        stream : optional
            As in `Algorithm`.
        start_offsets_out : device array or iterator
            At least `num_segments` items. None if the scan was built without.
        max_segment_size : int, optional
            Upper bound of the items of a segment, if known: calls for
            short ones launch less. The result is right also if one has more.
        segment_size : int, optional
            Without offsets, the items of each segment: segment i is row i
            of this length. By default the length of the last axis of `d_in`, if it
            has several.
        """
        offsets = start_offsets_in, end_offsets_in
        more = start_offsets_out, max_segment_size, segment_size
        self._run(stream, (d_in, d_out, num_segments, *offsets, h_init, *more))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    _problem_maker = staticmethod(reduced)


@memoised
def inclusive_segmented_scan(
    d_in: ArrayOrType,
    d_out: ArrayOrType,
    start_offsets_in: ArrayOrType | None = None,
    end_offsets_in: ArrayOrType | None = None,
    op: Op | None = None,
    h_init: Any = None,
    *,
    start_offsets_out: ArrayOrType | None = None,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> SegmentedScan:
    """Build an inclusive scan of segments, or fetch it from the cache.

    Item i of a segment combines `h_init` and its items 0 to i. Segment s is
    items ``start_offsets_in[s]`` to ``end_offsets_in[s] - 1``, and is written
    where it is in the input, or from ``start_offsets_out[s]`` on. Segments may
    be empty, be in any order, and leave items out, which are not written. One
    that ends where it begins or before is empty. If they overlap in the output,
    an item there is what one of them writes. Without offsets, all segments have
    one length, one after another, as the rows of a matrix.

    Parameters
    ----------
    d_in : device array, iterator or dtype
        The input. Only its dtype matters here.
    d_out : device array, iterator or dtype
        Where the results go; it may be `d_in` itself, unless segments overlap
        or there are `start_offsets_out`. Its dtype may differ from the
        accumulator's.
    start_offsets_in, end_offsets_in : device arrays, iterators, dtypes or None
        `num_segments` items. Of any integer dtype. Both None: rows.
    op : callable, OpKind or RawOp
        Combines two values of the accumulator's dtype, the first of which is
        that of earlier items (`h_init` comes before a segment's). It must be
        associative; it need not be commutative. How items are grouped is
        unspecified, but the same in every run on the same kind of GPU, if the
        arrays are aligned alike.
    h_init : number, struct, array of one element or None
        The initial value of each segment; that in a device array is read when
        the scan runs. Its dtype is the accumulator's. A number of Python's has
        none, and takes `d_in`'s, in which sums may wrap: ``np.int64(0)`` has
        integers added in int64. Without one, the accumulator has `d_in`'s
        dtype.
    start_offsets_out : device array, iterator, dtype or None
        `num_segments` items. Of any integer dtype. None: those of the input.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    SegmentedScan

    Examples
    --------
    >>> import numpy as np, cupar
    >>> items, highest = np.array([3, 1, 4, 1]), np.zeros(4, np.int64)
    >>> starts, ends = np.array([0, 2]), np.array([2, 4])
    >>> running = cupar.inclusive_segmented_scan(
    ...     items, highest, starts, ends, max, cc="cpu"
    ... )
    >>> running.run(items, highest, 2, starts, ends)
    >>> print(highest)
    [3 3 4 4]
    """
    offsets = start_offsets_in, end_offsets_in, start_offsets_out
    return _scan("inclusive_segmented_scan", d_in, d_out, offsets, op, h_init, cc, wait, link)


@memoised
def exclusive_segmented_scan(
    d_in: ArrayOrType,
    d_out: ArrayOrType,
    start_offsets_in: ArrayOrType | None = None,
    end_offsets_in: ArrayOrType | None = None,
    op: Op | None = None,
    h_init: Any = None,
    *,
    start_offsets_out: ArrayOrType | None = None,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> SegmentedScan:
    """Build an exclusive scan of segments, or fetch it from the cache.

    Item i of a segment combines `h_init` and its items 0 to i - 1. Segment s is
    items ``start_offsets_in[s]`` to ``end_offsets_in[s] - 1``, and is written
    where it is in the input, or from ``start_offsets_out[s]`` on. Segments may
    be empty, be in any order, and leave items out, which are not written. One
    that ends where it begins or before is empty. If they overlap in the output,
    an item there is what one of them writes. Without offsets, all segments have
    one length, one after another, as the rows of a matrix.

    Parameters
    ----------
    d_in : device array, iterator or dtype
        The input. Only its dtype matters here.
    d_out : device array, iterator or dtype
        Where the results go; it may be `d_in` itself, unless segments overlap
        or there are `start_offsets_out`. Its dtype may differ from the
        accumulator's.
    start_offsets_in, end_offsets_in : device arrays, iterators, dtypes or None
        `num_segments` items. Of any integer dtype. Both None: rows.
    op : callable, OpKind or RawOp
        Combines two values of the accumulator's dtype, the first of which is
        that of earlier items (`h_init` comes before a segment's). It must be
        associative; it need not be commutative. How items are grouped is
        unspecified, but the same in every run on the same kind of GPU, if the
        arrays are aligned alike.
    h_init : number, struct or array of one element
        The initial value of each segment; that in a device array is read when
        the scan runs. Its dtype is the accumulator's. A number of Python's has
        none, and takes `d_in`'s, in which sums may wrap: ``np.int64(0)`` has
        integers added in int64.
    start_offsets_out : device array, iterator, dtype or None
        `num_segments` items. Of any integer dtype. None: those of the input.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    SegmentedScan

    Examples
    --------
    >>> import numpy as np, cupar
    >>> lengths = np.array([[3, 1, 2], [1, 1, 1]])
    >>> places = np.zeros_like(lengths)
    >>> of_rows = cupar.exclusive_segmented_scan(
    ...     lengths, places, op=cupar.OpKind.PLUS, h_init=0, cc="cpu"
    ... )
    >>> of_rows.run(lengths, places, h_init=0)
    >>> print(places)
    [[0 3 4]
     [0 1 2]]

    Notes
    -----
    Nothing is read back, whatever the lengths, so calls can be captured. In C++
    it is CUB's ``DeviceSegmentedScan``.
    """
    offsets = start_offsets_in, end_offsets_in, start_offsets_out
    return _scan("exclusive_segmented_scan", d_in, d_out, offsets, op, h_init, cc, wait, link)


def _scan(
    algorithm: str,
    d_in: Any,
    d_out: Any,
    offsets: tuple[Any, Any, Any],
    op: Any,
    h_init: Any,
    cc: Any,
    wait: bool,
    link: Any,
) -> SegmentedScan:
    check_start(algorithm, h_init, "the first item of each segment")
    types = accumulation(d_in, d_out, op, h_init, is_scan=True)
    names = "start_offsets_in", "end_offsets_in", "start_offsets_out"
    start, end, start_out = offsets
    for name, one, other_name, other in (
        (names[0], start, names[1], end),
        (names[1], end, names[0], start),
        (names[0], start, names[2], start_out),
    ):
        if one is None and other is not None:
            raise ArgumentTypeError(name, f"expected offsets as {other_name} has them, got None")
    found = [integers(*each) for each in zip(names, offsets, strict=True) if each[1] is not None]
    arguments = (types.d_in, types.d_out, *found)
    return obtain(
        SegmentedScan, algorithm, arguments, {"op": types.operator}, cc, wait, link, init=types.init
    )
