"""Sorts: by a comparison of your own, by the bits of numbers, and of many segments at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from . import structs
from ._call.algorithm import Algorithm
from ._call.arguments import argument, choice, integers, item_count, same_dtype, segment_count
from ._call.call import Call, Launch, Request
from ._compile import cccl, limits
from ._compile.key import Specialisation
from ._ir.nodes import Argument
from ._obtain import obtain
from ._obtain.call_sites import remembered
from .operators import Op, recognised, resolve


class SortOrder(IntEnum):
    """In which order keys are sorted. Values are those of CCCL's C interface (``cccl_sort_order_t``)."""

    ASCENDING = 0
    DESCENDING = 1


class DoubleBuffer:
    """Two arrays between which a radix sort may go back and forth, and so needs less temporary storage.

    Parameters
    ----------
    d_current : device array
        The input. The sort may overwrite it.
    d_alternate : device array
        As large, of the same dtype.

    Attributes
    ----------
    selector : {0, 1}
        Which of the two holds the current values: set by the sort, at its call.
    """

    def __init__(self, d_current: Any, d_alternate: Any) -> None:
        self.d_buffers = (d_current, d_alternate)
        self.selector = 0

    def current(self) -> Any:
        """Return the array that holds the values."""
        return self.d_buffers[self.selector]

    def alternate(self) -> Any:
        """Return the other array."""
        return self.d_buffers[1 - self.selector]


def _key_arguments(
    names: tuple[str, str], arrays: tuple[Any, Any], *, may_iterate: bool = False
) -> tuple[Argument, ...]:
    """Describe an input and its output, which must agree: both there or neither, and of one dtype."""
    (source_name, target_name), (source, target) = names, arrays
    if (source is None) != (target is None):
        missing, there = (source_name, target_name) if source is None else (target_name, source_name)
        raise TypeError(f"{missing}: expected a device array, since there is {there}, got None")
    if source is None:
        return ()
    given = argument(source_name, source, may_iterate=may_iterate)
    return given, same_dtype(target_name, target, given, output=True, may_iterate=False)


def _pairs(arguments: Sequence[Argument], arrays: tuple[Any, ...], n: int) -> tuple[tuple[Any, int], ...]:
    """Return the arrays of a call that are there, which must be those that there were for the build."""
    pairs = tuple([(array, n) for array in arrays if array is not None])
    if len(pairs) != len(arguments):
        names = ", ".join(argument.name for argument in arguments)
        raise TypeError(f"this algorithm was built for the arrays {names}; got {len(pairs)} arrays")
    return pairs


def _filled(iterators: Sequence[Any]) -> Sequence[Any]:
    """Return the keys in and out and the items in and out, null pointers if there are no items."""
    return iterators if len(iterators) == 4 else [*iterators, cccl.no_array(), cccl.no_array()]


@remembered
def merge_sort(
    d_in_keys: Any,
    d_in_items: Any = None,
    d_out_keys: Any = None,
    d_out_items: Any = None,
    op: Op | Any = None,
    *,
    cc: Any = None,
    wait: bool = True,
) -> MergeSort:
    """Build a stable sort by a comparison, or fetch it from the cache.

    Only the items have a default; what follows them is given by name where they are left out.

    Parameters
    ----------
    d_in_keys : device array, iterator or dtype, n items
        The keys. Only their dtype matters here.
    d_in_items : device array, iterator, dtype or None, n items
        What goes with them, if anything.
    d_out_keys, d_out_items : device arrays or dtypes, n items
        Where the sorted keys and their items go, of the same dtypes; they may be the inputs themselves.
        `d_out_items` is None if `d_in_items` is.
    op : callable or OpKind
        Whether its first key goes before its second: a strict weak order.
    cc : int, pair of int or str, optional
        Compute capability to build for, as in 90, (9, 0), "9.0" or "sm_90"; by default the current
        device's. With it, no GPU is needed.
    wait : bool, optional
        False: build in the background and return at once; the first call, or `Algorithm.ready`, waits.

    Returns
    -------
    MergeSort

    Raises
    ------
    TypeError, ValueError
        If an argument is none of the above, or the operator cannot be compiled for the types.
    NoDeviceError
        If there is no GPU and no `cc`.

    Examples
    --------
    >>> import cupar
    >>> by_magnitude = cupar.merge_sort("f4", "i4", "f4", "i4", lambda a, b: abs(a) < abs(b), cc=90)
    >>> by_magnitude.build.algorithm
    'merge_sort'

    Notes
    -----
    The algorithm is CUB's ``DeviceMergeSort``.
    """
    cc, device = obtain.target(cc)
    keys = _key_arguments(("d_in_keys", "d_out_keys"), (d_in_keys, d_out_keys), may_iterate=True)
    items = _key_arguments(("d_in_items", "d_out_items"), (d_in_items, d_out_items), may_iterate=True)
    if not keys:
        raise TypeError("d_in_keys: expected a device array or a dtype, got None")
    dtype = keys[0].value

    def native_arguments(iterators: Mapping[str, Any], operators: Mapping[str, Any]) -> tuple[Any, ...]:
        in_keys, out_keys, in_items, out_items = _filled(list(iterators.values()))
        return in_keys, in_items, out_keys, out_items, operators["op"]

    spec = Specialisation(
        algorithm="merge_sort",
        native="DeviceMergeSortBuildResult",
        arguments=(*keys, *items),
        operators=(("op", resolve(recognised(op, dtype), (dtype, dtype), np.dtype(bool))),),
        options=(),
        cc=cc,
        native_arguments=native_arguments,
    )
    return obtain.obtain(MergeSort, spec, device, wait)


class MergeSort(
    Algorithm,
    uses={
        "d_in_keys": "num_items",
        "d_in_items": "num_items",
        "d_out_keys": "num_items",
        "d_out_items": "num_items",
    },
):
    """A stable sort by a comparison; see `merge_sort`."""

    def __call__(
        self,
        temp_storage: Any,
        d_in_keys: Any,
        d_in_items: Any = None,
        d_out_keys: Any = None,
        d_out_items: Any = None,
        num_items: int | None = None,
        stream: Any = None,
    ) -> int:
        """Ask for the temporary storage, or sort with it.

        Parameters
        ----------
        temp_storage : None or device array
            None asks how much is needed. Otherwise at least that many bytes, of any dtype.
        d_in_keys, d_in_items, d_out_keys, d_out_items : device arrays, at least `num_items` items
            None for the items if the sort was built without.
        num_items : int
            How many keys to sort, from 0 on.
        stream : optional
            None (the default stream), a handle, or a stream of CuPy, PyTorch, Numba or cuda.core.

        Returns
        -------
        int
            Bytes of temporary storage.

        Raises
        ------
        TypeError, ValueError
            If an argument is not what the sort was built for, or is too small.
        NoDeviceError
            If there is no GPU.
        """
        arguments = (d_in_keys, d_in_items, d_out_keys, d_out_items, num_items)
        return self._execute(temp_storage, stream, arguments)

    def run(
        self,
        d_in_keys: Any,
        d_in_items: Any = None,
        d_out_keys: Any = None,
        d_out_items: Any = None,
        num_items: int | None = None,
        stream: Any = None,
    ) -> None:
        """Sort, with temporary storage of cupar's own.

        Parameters are those of the call.
        """
        self._run(stream, (d_in_keys, d_in_items, d_out_keys, d_out_items, num_items))

    def _launcher(self, call: Call) -> Launch:
        in_keys, out_keys, in_items, out_items = _filled(call.iterators)
        compute, (op,) = call.native.compute, call.operators
        return lambda address, nbytes, n, stream: compute(
            address, nbytes, in_keys, in_items, out_keys, out_items, n, op, stream
        )


def _buffers(d_in: Any, d_out: Any, name: str) -> tuple[Any, Any]:
    """Return an input and an output, which a double buffer is both of."""
    if not isinstance(d_in, DoubleBuffer):
        return d_in, d_out
    if d_out is not None:
        raise TypeError(f"d_out_{name}: expected None, since d_in_{name} is a DoubleBuffer")
    return d_in.current(), d_in.alternate()


def _check_buffers(d_in_keys: Any, d_in_values: Any) -> None:
    if d_in_values is not None and isinstance(d_in_keys, DoubleBuffer) != isinstance(
        d_in_values, DoubleBuffer
    ):
        raise TypeError("d_in_values: expected a DoubleBuffer if d_in_keys is one, and an array if not")


@remembered
def radix_sort(
    d_in_keys: Any,
    d_out_keys: Any = None,
    d_in_values: Any = None,
    d_out_values: Any = None,
    order: SortOrder | Any = None,
    *,
    cc: Any = None,
    wait: bool = True,
) -> RadixSort:
    """Build a stable sort of numbers by their bits, or fetch it from the cache.

    Only the values and, with a `DoubleBuffer`, the outputs have a default; what follows them is given by name
    where they are left out.

    Parameters
    ----------
    d_in_keys : device array, DoubleBuffer or dtype, n items
        The keys: bool, integers or floats. Only their dtype matters here.
    d_out_keys : device array, dtype or None, n items
        Where the sorted keys go, of the same dtype; None if `d_in_keys` is a `DoubleBuffer`.
    d_in_values : device array, DoubleBuffer, dtype or None, n items
        What goes with the keys, if anything: of any dtype.
    d_out_values : device array, dtype or None, n items
        Where the values go; None if there are none, or they are in a `DoubleBuffer`.
    order : SortOrder
    cc : int, pair of int or str, optional
        Compute capability to build for, as in 90, (9, 0), "9.0" or "sm_90"; by default the current
        device's. With it, no GPU is needed.
    wait : bool, optional
        False: build in the background and return at once; the first call, or `Algorithm.ready`, waits.

    Returns
    -------
    RadixSort

    Raises
    ------
    TypeError, ValueError
        If an argument is none of the above.
    NoDeviceError
        If there is no GPU and no `cc`.

    Examples
    --------
    >>> import cupar
    >>> descending = cupar.radix_sort("u4", "u4", None, None, cupar.SortOrder.DESCENDING, cc=90)
    >>> descending.build.algorithm
    'radix_sort'

    Notes
    -----
    The algorithm is CUB's ``DeviceRadixSort``: A. Adinets and D. Merrill, "Onesweep: A Faster Least
    Significant Digit Radix Sort for GPUs", arXiv:2206.01784. Floats are ordered by sign and magnitude: -0.0
    and 0.0 are equal, and NaNs go to the ends.
    """
    cc, device = obtain.target(cc)
    order = choice("order", SortOrder, order)
    _check_buffers(d_in_keys, d_in_values)
    keys = _key_arguments(("d_in_keys", "d_out_keys"), _buffers(d_in_keys, d_out_keys, "keys"))
    values = _key_arguments(("d_in_values", "d_out_values"), _buffers(d_in_values, d_out_values, "values"))
    if not keys:
        raise TypeError("d_in_keys: expected a device array or a dtype, got None")
    if keys[0].value.kind in "cV":
        dtype = structs.text(keys[0].value)
        raise TypeError(f"d_in_keys: {dtype} has no order; use merge_sort with a comparison of yours")
    if values:
        limits.check_radix_values(values[0])

    def native_arguments(iterators: Mapping[str, Any], operators: Mapping[str, Any]) -> tuple[Any, ...]:
        in_keys, _, in_values, _ = _filled(list(iterators.values()))
        if values and (word := _word(values[0].value)):
            in_values = cccl.pointer(word, address=256)
        b = cccl.bindings()
        return b.SortOrder(int(order)), in_keys, in_values, b.Op(), b""

    spec = Specialisation(
        algorithm="radix_sort",
        native="DeviceRadixSortBuildResult",
        arguments=(*keys, *values),
        operators=(),
        options=(("order", order.name),),
        cc=cc,
        native_arguments=native_arguments,
    )
    return obtain.obtain(RadixSort, spec, device, wait)


def _word(values: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the integer that opaque values are sorted as, if there is one of their size.

    CCCL 3.6 does not build most radix sorts of opaque values: its host code and its kernels disagree on them.
    """
    if values.kind not in "cV" or values.itemsize not in (1, 2, 4, 8):
        return None
    return np.dtype(f"u{values.itemsize}")


class _RadixWork(NamedTuple):
    num_items: int
    begin_bit: int
    end_bit: int
    buffers: tuple[DoubleBuffer, ...]


class RadixSort(Algorithm):
    """A stable sort of numbers by their bits; see `radix_sort`."""

    def __call__(
        self,
        temp_storage: Any,
        d_in_keys: Any,
        d_out_keys: Any = None,
        d_in_values: Any = None,
        d_out_values: Any = None,
        num_items: int | None = None,
        begin_bit: int | None = None,
        end_bit: int | None = None,
        stream: Any = None,
    ) -> int:
        """Ask for the temporary storage, or sort with it.

        Parameters
        ----------
        temp_storage : None or device array
            None asks how much is needed. Otherwise at least that many bytes, of any dtype.
        d_in_keys, d_out_keys, d_in_values, d_out_values : device arrays, at least `num_items` items
            Or a `DoubleBuffer` for the inputs and None for the outputs; None for the values if the sort was
            built without.
        num_items : int
            How many keys to sort, from 0 on.
        begin_bit, end_bit : int, optional
            Only these bits of the keys count, from the lowest on, `end_bit` not included; by default all.
        stream : optional
            None (the default stream), a handle, or a stream of CuPy, PyTorch, Numba or cuda.core.

        Returns
        -------
        int
            Bytes of temporary storage.

        Raises
        ------
        TypeError, ValueError
            If an argument is not what the sort was built for, or is too small.
        NoDeviceError
            If there is no GPU.
        """
        arguments = (d_in_keys, d_out_keys, d_in_values, d_out_values, num_items, begin_bit, end_bit)
        return self._execute(temp_storage, stream, arguments)

    def run(
        self,
        d_in_keys: Any,
        d_out_keys: Any = None,
        d_in_values: Any = None,
        d_out_values: Any = None,
        num_items: int | None = None,
        begin_bit: int | None = None,
        end_bit: int | None = None,
        stream: Any = None,
    ) -> None:
        """Sort, with temporary storage of cupar's own.

        Parameters are those of the call.
        """
        arguments = (d_in_keys, d_out_keys, d_in_values, d_out_values, num_items, begin_bit, end_bit)
        self._run(stream, arguments)

    def _request(
        self,
        d_in_keys: Any,
        d_out_keys: Any,
        d_in_values: Any,
        d_out_values: Any,
        num_items: Any,
        begin_bit: Any = None,
        end_bit: Any = None,
    ) -> Request:
        n = item_count("num_items", num_items)
        arguments = self._code.spec.arguments
        begin, end = 0, (bits := self._bits)
        if begin_bit is not None or end_bit is not None:
            begin = 0 if begin_bit is None else item_count("begin_bit", begin_bit)
            end = bits if end_bit is None else item_count("end_bit", end_bit)
            if not begin <= end <= bits:
                raise ValueError(
                    f"begin_bit, end_bit: expected 0 <= begin_bit <= end_bit <= {bits}, got {begin}, {end}"
                )
        arrays, buffers = _sorted_arrays(d_in_keys, d_out_keys, d_in_values, d_out_values)
        return _pairs(arguments, arrays, n), _RadixWork(n, begin, end, buffers), None

    @cached_property
    def _bits(self) -> int:
        return 8 * self._code.spec.arguments[0].value.itemsize

    def _sizes(self) -> Sequence[Any]:
        bits = self._bits
        return [_RadixWork(n, 0, end, ()) for n in (1, 1 << 17) for end in (1, bits)]

    def _launcher(self, call: Call) -> Launch:
        compute, no_op = call.native.compute, cccl.bindings().Op()
        in_keys, out_keys, in_items, out_items = _filled(call.iterators)
        values = call.iterators[2:]
        alignment = 1
        if values and (word := _word(self._code.spec.arguments[2].value)):
            alignment = word.alignment

        def launch(address: int, nbytes: int, work: _RadixWork, stream: int) -> int:
            n, begin, end, buffers = work
            if alignment > 1 and any(each.state % alignment for each in values):
                raise ValueError(f"d_in_values, d_out_values: expected arrays aligned to {alignment} bytes")
            needed: int
            needed, selector = compute(
                address,
                nbytes,
                in_keys,
                out_keys,
                in_items,
                out_items,
                no_op,
                n,
                begin,
                end,
                bool(buffers),
                -1,
                stream,
            )
            if buffers and address and n:
                _select(buffers, selector)
            return needed

        return launch


def _sorted_arrays(
    d_in_keys: Any, d_out_keys: Any, d_in_values: Any, d_out_values: Any
) -> tuple[tuple[Any, ...], tuple[DoubleBuffer, ...]]:
    """Return the arrays of a call, inputs and outputs, and the double buffers that they are in."""
    if type(d_in_keys) is not DoubleBuffer and type(d_in_values) is not DoubleBuffer:
        return (d_in_keys, d_out_keys, d_in_values, d_out_values), ()
    _check_buffers(d_in_keys, d_in_values)
    keys, values = _buffers(d_in_keys, d_out_keys, "keys"), _buffers(d_in_values, d_out_values, "values")
    buffers = tuple(each for each in (d_in_keys, d_in_values) if isinstance(each, DoubleBuffer))
    return (*keys, *values), buffers


def _select(buffers: tuple[DoubleBuffer, ...], selector: int) -> None:
    """Let double buffers know which of their arrays the sort leaves its result in."""
    if selector == 1:
        for buffer in buffers:
            buffer.selector = 1 - buffer.selector


@remembered
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
    cc : int, pair of int or str, optional
        Compute capability to build for, as in 90, (9, 0), "9.0" or "sm_90"; by default the current
        device's. With it, no GPU is needed.
    wait : bool, optional
        False: build in the background and return at once; the first call, or `Algorithm.ready`, waits.

    Returns
    -------
    SegmentedSort

    Raises
    ------
    TypeError, ValueError
        If an argument is none of the above.
    NoDeviceError
        If there is no GPU and no `cc`.

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
    cc, device = obtain.target(cc)
    order = choice("order", SortOrder, order)
    _check_buffers(d_in_keys, d_in_values)
    keys = _key_arguments(("d_in_keys", "d_out_keys"), _buffers(d_in_keys, d_out_keys, "keys"))
    values = _key_arguments(("d_in_values", "d_out_values"), _buffers(d_in_values, d_out_values, "values"))
    if not keys:
        raise TypeError("d_in_keys: expected a device array or a dtype, got None")
    if keys[0].value.kind in "cV":
        dtype = structs.text(keys[0].value)
        raise TypeError(
            f"d_in_keys: {dtype} has no order; sort all with merge_sort, by a comparison that looks at the "
            "number of the segment first"
        )
    offsets = [
        integers(name, array, may_iterate=False)
        for name, array in (("start_offsets_in", start_offsets_in), ("end_offsets_in", end_offsets_in))
    ]

    def native_arguments(iterators: Mapping[str, Any], operators: Mapping[str, Any]) -> tuple[Any, ...]:
        *arrays, start, end = iterators.values()
        in_keys, _, in_values, _ = _filled(arrays)
        return cccl.bindings().SortOrder(int(order)), in_keys, in_values, start, end

    spec = Specialisation(
        algorithm="segmented_sort",
        native="DeviceSegmentedSortBuildResult",
        arguments=(*keys, *values, *offsets),
        operators=(),
        options=(("order", order.name),),
        cc=cc,
        native_arguments=native_arguments,
    )
    return obtain.obtain(SegmentedSort, spec, device, wait)


class _SegmentWork(NamedTuple):
    num_items: int
    num_segments: int
    buffers: tuple[DoubleBuffer, ...]


class SegmentedSort(Algorithm):
    """A sort of segments, each by itself; see `segmented_sort`."""

    def __call__(
        self,
        temp_storage: Any,
        d_in_keys: Any,
        d_out_keys: Any = None,
        d_in_values: Any = None,
        d_out_values: Any = None,
        num_items: int | None = None,
        num_segments: int | None = None,
        start_offsets_in: Any = None,
        end_offsets_in: Any = None,
        stream: Any = None,
    ) -> int:
        """Ask for the temporary storage, or sort with it.

        Parameters
        ----------
        temp_storage : None or device array
            None asks how much is needed. Otherwise at least that many bytes, of any dtype.
        d_in_keys, d_out_keys, d_in_values, d_out_values : device arrays, at least `num_items` items
            Or a `DoubleBuffer` for the inputs and None for the outputs; None for the values if the sort was
            built without. Afterwards, items in no segment are unspecified in both arrays of a `DoubleBuffer`.
        num_items : int
            How many items the arrays have, from 0 on. No offset may be larger, which is not checked.
        num_segments : int
            From 0 to 2**31 - 1.
        start_offsets_in, end_offsets_in : device arrays, at least `num_segments` items
        stream : optional
            None (the default stream), a handle, or a stream of CuPy, PyTorch, Numba or cuda.core.

        Returns
        -------
        int
            Bytes of temporary storage.

        Raises
        ------
        TypeError, ValueError
            If an argument is not what the sort was built for, or is too small.
        NoDeviceError
            If there is no GPU.
        """
        arguments = (
            d_in_keys,
            d_out_keys,
            d_in_values,
            d_out_values,
            num_items,
            num_segments,
            start_offsets_in,
            end_offsets_in,
        )
        return self._execute(temp_storage, stream, arguments)

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
        """Sort, with temporary storage of cupar's own.

        Parameters are those of the call.
        """
        arguments = (
            d_in_keys,
            d_out_keys,
            d_in_values,
            d_out_values,
            num_items,
            num_segments,
            start_offsets_in,
            end_offsets_in,
        )
        self._run(stream, arguments)

    def _request(
        self,
        d_in_keys: Any,
        d_out_keys: Any,
        d_in_values: Any,
        d_out_values: Any,
        num_items: Any,
        num_segments: Any,
        start_offsets_in: Any,
        end_offsets_in: Any,
    ) -> Request:
        n, segments = item_count("num_items", num_items), segment_count(num_segments)
        arrays, buffers = _sorted_arrays(d_in_keys, d_out_keys, d_in_values, d_out_values)
        offsets = ((start_offsets_in, segments), (end_offsets_in, segments))
        pairs = _pairs(self._code.spec.arguments[:-2], arrays, n)
        return (*pairs, *offsets), _SegmentWork(n, segments, buffers), None

    def _sizes(self) -> Sequence[Any]:
        # When there are many, CCCL asks the GPU how many segments are large, which cannot be captured.
        return [_SegmentWork(1 << 12, 2, ())]

    def _launcher(self, call: Call) -> Launch:
        *sorted_arrays, start, end = call.iterators
        compute, arrays = call.native.compute, _filled(sorted_arrays)

        def launch(address: int, nbytes: int, work: _SegmentWork, stream: int) -> int:
            n, segments, buffers = work
            # An empty array may be a null pointer, which CCCL takes for no array; its segments are empty too.
            segments = segments if n else 0
            needed: int
            needed, selector = compute(
                address, nbytes, *arrays, n, segments, start, end, bool(buffers), -1, stream
            )
            if address and segments:
                _select(buffers, selector)
            return needed

        return launch
