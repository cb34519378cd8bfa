"""Binary searches: where values belong in a sorted array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from . import _arrays, _cccl, _factory
from ._algorithm import Algorithm, Call, item_count, same_dtype
from ._key import Argument, Specialisation
from .operators import Op, OpKind, resolve


def lower_bound(
    d_data: Any, d_values: Any, d_out: Any, comp: Op = OpKind.LESS, *, cc: Any = None
) -> BinarySearch:
    """Build a search for the first place where each value can be inserted, or fetch it from the cache.

    ``d_out[i]`` is the number of items of `d_data` that go before ``d_values[i]``, as of
    ``numpy.searchsorted(data, values, side="left")``.

    Parameters
    ----------
    d_data : device array or dtype, n items
        What is searched, sorted by `comp`. Only its dtype matters here.
    d_values : device array or dtype, m items
        What is searched for, of the same dtype.
    d_out : device array or dtype, m items
        Where the indices go: integers of 4 or 8 bytes.
    comp : callable or OpKind
        Whether its first argument goes before its second: the order that `d_data` is sorted by.
    cc : int, pair of int or str, optional
        Compute capability to build for, as in 90, (9, 0), "9.0" or "sm_90"; by default the current
        device's. With it, no GPU is needed.

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
    The algorithm is CUB's ``DeviceTransform`` with a binary search for its operator. An operator that is new
    costs more here than elsewhere, since CCCL's C interface compiles it into the search.
    """
    return _search("lower_bound", d_data, d_values, d_out, comp, cc)


def upper_bound(
    d_data: Any, d_values: Any, d_out: Any, comp: Op = OpKind.LESS, *, cc: Any = None
) -> BinarySearch:
    """Build a search for the last place where each value can be inserted, or fetch it from the cache.

    ``d_out[i]`` is the number of items of `d_data` that ``d_values[i]`` does not go before, as of
    ``numpy.searchsorted(data, values, side="right")``.

    Parameters
    ----------
    d_data, d_values, d_out, comp, cc
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
    return _search("upper_bound", d_data, d_values, d_out, comp, cc)


def _search(algorithm: str, d_data: Any, d_values: Any, d_out: Any, comp: Op, cc: Any) -> BinarySearch:
    cc, device = _factory.target(cc)
    items = _arrays.dtype_of("d_data", d_data)
    same_dtype("d_values", d_values, "d_data", items)
    index = _arrays.dtype_of("d_out", d_out)
    if index.kind not in "iu" or index.itemsize < 4:
        raise TypeError(f"d_out: expected integers of 4 or 8 bytes, got {index}")
    try:
        operator = resolve(comp, (items, items), np.dtype(bool))
    except TypeError as error:
        raise type(error)(f"comp: {str(error).removeprefix('op: ')}") from None

    def native_arguments(iterators: Mapping[str, Any], operators: Mapping[str, Any]) -> tuple[Any, ...]:
        mode = _cccl.bindings().BinarySearchMode[algorithm.upper()]
        return mode, *iterators.values(), operators["comp"]

    spec = _InOnePiece(
        algorithm=algorithm,
        native="DeviceBinarySearchBuildResult",
        arguments=(
            Argument("d_data", items, items),
            Argument("d_values", items, items),
            Argument("d_out", index, index, output=True),
        ),
        operators=(("comp", operator),),
        options=(),
        cc=cc,
        native_arguments=native_arguments,
    )
    return _factory.obtain(BinarySearch, spec, device)


class _InOnePiece(Specialisation):
    """A specialisation whose operator cannot be left to the linker.

    CCCL 3.6 compiles a binary search as a unary transform whose operator is a search that it generates, with
    two words of state: the data and their number. The search has code, so CCCL links the transform at once,
    which fails ("Unresolved extern function") where the comparison in it has none. A template would have to
    be that transform, compiled with an operator that has state and no code, and a search of our own.
    """

    @property
    def has_template(self) -> bool:
        return False


class _Work(NamedTuple):
    num_items: int
    num_values: int


class BinarySearch(Algorithm):
    """A search for given types, operator and device; see `lower_bound` and `upper_bound`.

    It needs no temporary storage, so it is called in one phase.
    """

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
        n, m = item_count("num_items", num_items), item_count("num_values", num_values)
        index = self._code.spec.arguments[2].dtype
        if n > np.iinfo(index).max:
            raise ValueError(f"d_out: {index} cannot hold indices up to num_items, {n}")
        self._enqueue(((d_data, n), (d_values, m), (d_out, m)), _Work(n, m), stream)

    run = __call__

    def _launch(self, call: Call, address: int, nbytes: int, work: Any, stream: int) -> int:
        d_data, d_values, d_out = call.iterators
        call.native.compute(d_data, work.num_items, d_values, work.num_values, d_out, *call.operators, stream)
        return 0
