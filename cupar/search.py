"""Binary searches: where values belong in a sorted array."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ._call.algorithm import Algorithm
from ._call.native import Launch, NativeCall
from ._compile.specialisation import Specialisation
from ._ir import cpp
from ._ir.nodes import Argument
from ._ir.operator import Operator, cpp_operator
from ._obtain.arguments import argument, integers, same_dtype
from ._obtain.call_sites import memoised
from ._obtain.obtain import obtain
from .operators import Op, OpKind, resolve


class _Counts(NamedTuple):
    num_items: int
    num_values: int


class BinarySearch(
    Algorithm,
    native="DeviceUnaryTransform",
    uses={"d_data": "num_items", "d_values": "num_values", "d_out": "num_values"},
):
    """A search for given types, operator and device; see `lower_bound` and `upper_bound`.

    It needs no temporary storage, so it is called in one phase.
    """

    _needs_storage = False

    def run(
        self, d_data: Any, num_items: int, d_values: Any, num_values: int, d_out: Any, stream: Any = None
    ) -> None:
        """Search the first `num_items` items of `d_data`, which are sorted, for `num_values` values.

        Both counts may be 0 or more; 2**32 and beyond are fine if `d_out` holds them. `stream` as in
        `Algorithm`.
        """
        self._run(stream, (d_data, num_items, d_values, num_values, d_out))

    __call__ = run

    @staticmethod
    def _native_arguments(
        spec: Specialisation, b: Any, data: Any, values: Any, out: Any, *, search: Any, comp: Any
    ) -> tuple[Any, ...]:
        return values, out, search

    def _problem(self, d_data: Any, num_items: int, d_values: Any, num_values: int, d_out: Any) -> _Counts:
        index = self._spec.arguments[2].value
        if num_items > np.iinfo(index).max:
            raise ValueError(f"d_out: {index} cannot hold indices up to num_items, {num_items}")
        return _Counts(num_items, num_values)

    def _sizes(self) -> Sequence[Any]:
        return _Counts(1, 1), _Counts(1, 1 << 17)

    def _launcher(self, call: NativeCall) -> Launch:
        compute, (d_data, d_values, d_out) = call.native.compute, call.iterators
        search, comp = call.operators

        def launch(address: int, nbytes: int, problem: _Counts, stream: int) -> int:
            n, m = problem
            search.state = struct.pack("=QQ", d_data.state, n) + comp.state
            compute(d_values, d_out, m, search, stream)
            return 0

        return launch


@memoised
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
    comp : callable, OpKind, RawOp or None
        Whether its first argument goes before its second: the order that `d_data` is sorted by. None: ``<``.
    cc, wait
        As for every factory: see `Algorithm`, which also lists what is raised.

    Returns
    -------
    BinarySearch

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


@memoised
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
    data = argument("d_data", d_data, may_iterate=False)
    values = same_dtype("d_values", d_values, data)
    index = integers("d_out", d_out, smallest=4, output=True)
    comp = OpKind.LESS if comp is None else comp  # as in cuda.compute
    compare = resolve(comp, (data.value, data.value), np.dtype(bool), "comp", as_function=True)
    operators = {"search": _searching(algorithm, data, index, compare), "comp": compare}
    return obtain(BinarySearch, algorithm, (data, values, index), operators, cc, wait)


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
