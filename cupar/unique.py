"""Runs of equal keys reduced to their first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _factory, _limits
from ._algorithm import Algorithm
from ._arguments import argument, integers, same_dtype
from ._call import Call, Launch
from ._key import Specialisation
from ._memo import remembered
from .operators import Op, resolve


@remembered
def unique_by_key(
    d_in_keys: Any,
    d_in_items: Any,
    d_out_keys: Any,
    d_out_items: Any,
    d_out_num_selected: Any,
    op: Op,
    *,
    cc: Any = None,
    wait: bool = True,
) -> UniqueByKey:
    """Build a selection of the first of each run of equal keys, with its item, or fetch it from the cache.

    Parameters
    ----------
    d_in_keys, d_in_items : device arrays, iterators or dtypes, n items
        The keys and what goes with them. Only their dtypes matter here.
    d_out_keys, d_out_items : device arrays, iterators or dtypes, as many items as there are runs
        Where they go, of the same dtypes.
    d_out_num_selected : device array, iterator or dtype, 1 item
        Where the number of runs goes: an integer of 4 or 8 bytes.
    op : callable or OpKind
        Whether two keys are equal.
    cc : int, pair of int or str, optional
        Compute capability to build for, as in 90, (9, 0), "9.0" or "sm_90"; by default the current
        device's. With it, no GPU is needed.
    wait : bool, optional
        False: build in the background and return at once; the first call, or `Algorithm.ready`, waits.

    Returns
    -------
    UniqueByKey

    Raises
    ------
    TypeError, ValueError
        If an argument is none of the above, or the operator cannot be compiled for the types.
    NoDeviceError
        If there is no GPU and no `cc`.

    Examples
    --------
    >>> import cupar
    >>> runs = cupar.unique_by_key("i4", "f4", "i4", "f4", "i8", lambda a, b: a == b, cc=90)
    >>> runs.build.algorithm
    'unique_by_key'

    Notes
    -----
    The algorithm is CUB's ``DeviceSelect::UniqueByKey``.
    """
    cc, device = _factory.target(cc)
    keys, items = argument("d_in_keys", d_in_keys), argument("d_in_items", d_in_items)
    _limits.check_unique_items(keys, items, cc)

    def native_arguments(iterators: Mapping[str, Any], operators: Mapping[str, Any]) -> tuple[Any, ...]:
        return (*iterators.values(), operators["op"])

    spec = Specialisation(
        algorithm="unique_by_key",
        native="DeviceUniqueByKeyBuildResult",
        arguments=(
            keys,
            items,
            same_dtype("d_out_keys", d_out_keys, keys, output=True),
            same_dtype("d_out_items", d_out_items, items, output=True),
            integers("d_out_num_selected", d_out_num_selected, smallest=4, output=True),
        ),
        operators=(("op", resolve(op, (keys.value, keys.value), np.dtype(bool))),),
        options=(),
        cc=cc,
        native_arguments=native_arguments,
    )
    return _factory.obtain(UniqueByKey, spec, device, wait)


class UniqueByKey(
    Algorithm,
    uses={
        "d_in_keys": "num_items",
        "d_in_items": "num_items",
        "d_out_keys": 0,
        "d_out_items": 0,
        "d_out_num_selected": 1,
    },
):
    """A selection of the first of each run of equal keys; see `unique_by_key`."""

    def __call__(
        self,
        temp_storage: Any,
        d_in_keys: Any,
        d_in_items: Any,
        d_out_keys: Any,
        d_out_items: Any,
        d_out_num_selected: Any,
        num_items: int,
        stream: Any = None,
    ) -> int:
        """Ask for the temporary storage, or select with it.

        Parameters
        ----------
        temp_storage : None or device array
            None asks how much is needed. Otherwise at least that many bytes, of any dtype.
        d_in_keys, d_in_items : device arrays, at least `num_items` items
        d_out_keys, d_out_items : device arrays
            Room for as many items as there are runs, which is not checked.
        d_out_num_selected : device array, at least 1 item
        num_items : int
            How many keys there are, from 0 on.
        stream : optional
            None (the default stream), a handle, or a stream of CuPy, PyTorch, Numba or cuda.core.

        Returns
        -------
        int
            Bytes of temporary storage.

        Raises
        ------
        TypeError, ValueError
            If an argument is not what the selection was built for, or is too small.
        NoDeviceError
            If there is no GPU.
        """
        arguments = (d_in_keys, d_in_items, d_out_keys, d_out_items, d_out_num_selected, num_items)
        return self._execute(temp_storage, stream, arguments)

    def run(
        self,
        d_in_keys: Any,
        d_in_items: Any,
        d_out_keys: Any,
        d_out_items: Any,
        d_out_num_selected: Any,
        num_items: int,
        stream: Any = None,
    ) -> None:
        """Select, with temporary storage of cupar's own.

        Parameters are those of the call.
        """
        arguments = (d_in_keys, d_in_items, d_out_keys, d_out_items, d_out_num_selected, num_items)
        self._run(stream, arguments)

    def _launcher(self, call: Call) -> Launch:
        compute, arguments = call.native.compute, (*call.iterators, *call.operators)
        return lambda address, nbytes, n, stream: compute(address, nbytes, *arguments, n, stream)
