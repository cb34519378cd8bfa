"""Algorithms on segments of arrays, each by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._call.algorithm import Algorithm
from ._call.arguments import accumulation, integers, item_count, segment_count
from ._call.call import Call, Launch, Request
from ._compile import cccl
from ._compile.key import Specialisation
from ._obtain import obtain
from ._obtain.call_sites import remembered
from .operators import Op


@remembered
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
    op : callable or OpKind
        A binary operator on two values of the accumulator's dtype, associative and commutative.
    h_init : numpy.ndarray of one element or number
        The initial value of each segment. An array's dtype is the accumulator's; a number is taken in
        `d_in`'s dtype.
    cc : int, pair of int or str, optional
        Compute capability to build for, as in 90, (9, 0), "9.0" or "sm_90"; by default the current
        device's. With it, no GPU is needed.
    wait : bool, optional
        False: build in the background and return at once; the first call, or `Algorithm.ready`, waits.

    Returns
    -------
    SegmentedReduce

    Raises
    ------
    TypeError, ValueError
        If an argument is none of the above, or the operator cannot be compiled for the types.
    NoDeviceError
        If there is no GPU and no `cc`.

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
    cc, device = obtain.target(cc)
    types = accumulation(d_in, d_out, op, h_init)
    accumulator = types.accumulator

    def native_arguments(iterators: Mapping[str, Any], operators: Mapping[str, Any]) -> tuple[Any, ...]:
        return (*iterators.values(), operators["op"], cccl.value(np.zeros(1, accumulator)))

    spec = Specialisation(
        algorithm="segmented_reduce",
        native="DeviceSegmentedReduceBuildResult",
        arguments=(
            types.d_in.converted(accumulator) if accumulator.kind == "c" else types.d_in,
            types.d_out.converted(accumulator),
            integers("start_offsets_in", start_offsets_in),
            integers("end_offsets_in", end_offsets_in),
        ),
        operators=(("op", types.operator),),
        options=(("init", types.init),),
        cc=cc,
        native_arguments=native_arguments,
    )
    return obtain.obtain(SegmentedReduce, spec, device, wait)


class SegmentedReduce(Algorithm):
    """A segmented reduction for given types, operator and device; see `segmented_reduce`."""

    def __call__(
        self,
        temp_storage: Any,
        d_in: Any,
        d_out: Any,
        num_segments: int,
        start_offsets_in: Any,
        end_offsets_in: Any,
        h_init: Any,
        stream: Any = None,
        *,
        max_segment_size: int | None = None,
    ) -> int:
        """Ask for the temporary storage, or reduce with it.

        Parameters
        ----------
        temp_storage : None or device array
            None asks how much is needed. Otherwise at least that many bytes, of any dtype.
        d_in : device array
            It must hold all items that the offsets name; that is not checked.
        d_out, start_offsets_in, end_offsets_in : device arrays, at least `num_segments` items
        num_segments : int
            From 0 to 2**31 - 1.
        h_init : numpy.ndarray of one element or number
            The initial value, of the kind that the reduction was built with.
        stream : optional
            None (the default stream), a handle, or a stream of CuPy, PyTorch, Numba or cuda.core.
        max_segment_size : int, optional
            That no segment has more items, if that is known: it lets CCCL take quicker kernels for small
            segments. If one has, the result is wrong.

        Returns
        -------
        int
            Bytes of temporary storage.

        Raises
        ------
        TypeError, ValueError
            If an argument is not what the reduction was built for, or is too small.
        NoDeviceError
            If there is no GPU.
        """
        arguments = (d_in, d_out, num_segments, start_offsets_in, end_offsets_in, h_init, max_segment_size)
        return self._execute(temp_storage, stream, arguments)

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
        """Reduce, with temporary storage of cupar's own.

        Parameters are those of the call.
        """
        arguments = (d_in, d_out, num_segments, start_offsets_in, end_offsets_in, h_init, max_segment_size)
        self._run(stream, arguments)

    def _request(
        self,
        d_in: Any,
        d_out: Any,
        num_segments: Any,
        start_offsets_in: Any,
        end_offsets_in: Any,
        h_init: Any,
        max_segment_size: Any = None,
    ) -> Request:
        n = segment_count(num_segments)
        largest = 0 if max_segment_size is None else item_count("max_segment_size", max_segment_size)
        arrays = ((d_in, 0), (d_out, n), (start_offsets_in, n), (end_offsets_in, n))
        return arrays, (n, largest), h_init

    def _sizes(self) -> Sequence[Any]:
        # Of segments of unknown size, and of such as CCCL has other kernels for.
        return [(n, largest) for n in (1, 1 << 12) for largest in (0, 1, 32, 512)]

    def _launcher(self, call: Call) -> Launch:
        compute, (op,), init = call.native.compute, call.operators, call.init
        d_in, d_out, starts, ends = call.iterators

        def launch(address: int, nbytes: int, work: tuple[int, int], stream: int) -> int:
            n, largest = work
            needed: int = compute(address, nbytes, d_in, d_out, n, starts, ends, op, init, largest, stream)
            return needed

        return launch
