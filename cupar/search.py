"""Binary searches: where values belong in a sorted array."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._call.algorithm import Algorithm
from ._call.arguments import argument, integers, item_count, same_dtype
from ._call.call import Call, Launch, Request
from ._compile.key import Specialisation
from ._ir import cpp
from ._ir.nodes import Argument
from ._ir.operator import Operator, cpp_operator
from ._obtain import obtain
from ._obtain.call_sites import remembered
from .operators import Op, OpKind, resolve


@remembered
def lower_bound(
    d_data: Any,
    d_values: Any,
    d_out: Any,
    comp: Op | None = OpKind.LESS,
    *,
    cc: Any = None,
    wait: bool = True,
) -> BinarySearch:
    """Build a search for the first place where each value can be inserted, or fetch it from the cache.

    ``d_out[i]`` is the number of items of `d_data` that go before ``d_values[i]``, as of
    ``numpy.searchsorted(data, values, side="left")``.

    Parameters
    ----------
    d_data : device array or dtype, n items
        What is searched, sorted by `comp`. Only its dtype matters here.
    d_values : device array, iterator or dtype, m items
        What is searched for, of the same dtype.
    d_out : device array, iterator or dtype, m items
        Where the indices go: integers of 4 or 8 bytes.
    comp : callable, OpKind or None
        Whether its first argument goes before its second: the order that `d_data` is sorted by. None: ``<``.
    cc : int, pair of int or str, optional
        Compute capability to build for, as in 90, (9, 0), "9.0" or "sm_90"; by default the current
        device's. With it, no GPU is needed.
    wait : bool, optional
        False: build in the background and return at once; the first call, or `Algorithm.ready`, waits.

    Returns
    -------
    BinarySearch

    Raises
    ------
    TypeError, ValueError
        If an argument is none of the above, or the operator cannot be compiled for the types.
    NoDeviceError
        If there is no GPU and no `cc`.

    Examples
    --------
    >>> import cupar
    >>> places = cupar.lower_bound("f4", "f4", "i8", cc=90)
    >>> places.build.algorithm
    'lower_bound'

    Notes
    -----
    The algorithm is CUB's ``DeviceTransform`` with a binary search for its operator.
    """
    return _search("lower_bound", d_data, d_values, d_out, comp, cc, wait)


@remembered
def upper_bound(
    d_data: Any,
    d_values: Any,
    d_out: Any,
    comp: Op | None = OpKind.LESS,
    *,
    cc: Any = None,
    wait: bool = True,
) -> BinarySearch:
    """Build a search for the last place where each value can be inserted, or fetch it from the cache.

    ``d_out[i]`` is the number of items of `d_data` that ``d_values[i]`` does not go before, as of
    ``numpy.searchsorted(data, values, side="right")``.

    Parameters
    ----------
    d_data, d_values, d_out, comp, cc, wait
        As for `lower_bound`.

    Returns
    -------
    BinarySearch

    Raises
    ------
    TypeError, ValueError
        If an argument is none of the above, or the operator cannot be compiled for the types.
    NoDeviceError
        If there is no GPU and no `cc`.

    Examples
    --------
    >>> import cupar
    >>> descending = cupar.upper_bound("i4", "i4", "u4", lambda a, b: a > b, cc=90)
    >>> descending.build.algorithm
    'upper_bound'
    """
    return _search("upper_bound", d_data, d_values, d_out, comp, cc, wait)


def _search(
    algorithm: str, d_data: Any, d_values: Any, d_out: Any, comp: Op | None, cc: Any, wait: bool
) -> BinarySearch:
    cc, device = obtain.target(cc)
    data = argument("d_data", d_data, may_iterate=False)
    values = same_dtype("d_values", d_values, data)
    index = integers("d_out", d_out, smallest=4, output=True)
    comp = OpKind.LESS if comp is None else comp  # as in cuda.compute
    compare = resolve(comp, (data.value, data.value), np.dtype(bool), "comp", as_function=True)

    def native_arguments(iterators: Mapping[str, Any], operators: Mapping[str, Any]) -> tuple[Any, ...]:
        return iterators["d_values"], iterators["d_out"], operators["search"]

    spec = Specialisation(
        algorithm=algorithm,
        native="DeviceUnaryTransform",
        arguments=(data, values, index),
        operators=(("search", _searching(algorithm, data, index, compare)), ("comp", compare)),
        options=(),
        cc=cc,
        native_arguments=native_arguments,
    )
    return obtain.obtain(BinarySearch, spec, device, wait)


def _searching(algorithm: str, data: Argument, index: Argument, compare: Operator) -> Operator:
    """Return the operator that searches for one value; its state are the data and what the comparison has.

    CCCL's C interface has a binary search that is the same thing, a transform with a search for operator. But
    it compiles the comparison into the search, and the kernel with it, so that each comparison would cost a
    whole build. With a search of our own the comparison is left to the linker, as in all other algorithms.
    """
    item, place = cpp.type_name(data.value), cpp.type_name(index.value)
    # Upwards past what goes before the value, or past what the value does not go before.
    declared, state = ("void*, ", "static_cast<char*>(state) + 16, ") if compare.state_size else ("", "")
    order = "item, value, &is_less" if algorithm == "lower_bound" else "value, item, &is_less"
    condition = "is_less" if algorithm == "lower_bound" else "!is_less"
    source = cpp.unit(f"""
struct Data {{ const {item}* items; unsigned long long size; }};
extern "C" __device__ void {cpp.symbol("comp")}({declared}const void*, const void*, void*);
extern "C" __device__ void SYMBOL(void* state, const void* value, void* out) {{
  const Data data = *static_cast<const Data*>(state);
  unsigned long long first = 0;
  for (unsigned long long left = data.size; left > 0;) {{
    const unsigned long long half = left / 2;
    const {item}* item = data.items + first + half;
    bool is_less;
    {cpp.symbol("comp")}({state}{order});
    if ({condition}) {{
      first += half + 1;
      left -= half + 1;
    }} else {{
      left = half;
    }}
  }}
  *static_cast<{place}*>(out) = static_cast<{place}>(first);
}}
""")
    size, alignment = 16 + compare.state_size, max(8, compare.state_alignment)
    if alignment > 16:
        raise ValueError(f"comp: a state is aligned to 16 bytes here at most, not to {alignment}")
    return cpp_operator(
        algorithm, (data.value,), index.value, source, state_size=size, state_alignment=alignment
    )


class BinarySearch(Algorithm):
    """A search for given types, operator and device; see `lower_bound` and `upper_bound`.

    It needs no temporary storage, so it is called in one phase.
    """

    _needs_storage = False

    def __call__(
        self, d_data: Any, num_items: int, d_values: Any, num_values: int, d_out: Any, stream: Any = None
    ) -> None:
        """Search.

        Parameters
        ----------
        d_data : device array, at least `num_items` items
            Sorted.
        num_items : int
            How many items there are to search, from 0 on; 2**32 and more are fine if `d_out` holds them.
        d_values, d_out : device arrays, at least `num_values` items
        num_values : int
            How many values to search for, from 0 on; 2**32 and more are fine.
        stream : optional
            None (the default stream), a handle, or a stream of CuPy, PyTorch, Numba or cuda.core.

        Raises
        ------
        TypeError, ValueError
            If an argument is not what the search was built for, or is too small.
        NoDeviceError
            If there is no GPU.
        """
        self._enqueue(stream, (d_data, num_items, d_values, num_values, d_out))

    run = __call__

    def _request(self, d_data: Any, num_items: Any, d_values: Any, num_values: Any, d_out: Any) -> Request:
        n, m = item_count("num_items", num_items), item_count("num_values", num_values)
        index = self._code.spec.arguments[2].value
        if n > np.iinfo(index).max:
            raise ValueError(f"d_out: {index} cannot hold indices up to num_items, {n}")
        return ((d_data, n), (d_values, m), (d_out, m)), (n, m), None

    def _sizes(self) -> Sequence[Any]:
        return ((1, 1), (1, 1 << 17))

    def _launcher(self, call: Call) -> Launch:
        compute, (d_data, d_values, d_out) = call.native.compute, call.iterators
        search, comp = call.operators

        def launch(address: int, nbytes: int, work: tuple[int, int], stream: int) -> int:
            n, m = work
            search.state = struct.pack("=QQ", d_data.state, n) + comp.state
            compute(d_values, d_out, m, search, stream)
            return 0

        return launch
