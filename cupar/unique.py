"""Runs of equal keys reduced to their first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ._call.algorithm import Algorithm
from ._call.arguments import argument, converting, discarding, integers
from ._call.call import Call, Launch
from ._compile import limits
from ._compile.key import Specialisation
from ._ir import nodes
from ._ir.iterator import Iterator
from ._ir.nodes import Argument
from ._obtain import obtain
from ._obtain.call_sites import remembered
from .operators import Op, resolve


@remembered
def unique_by_key(
    d_in_keys: Any,
    d_in_items: Any = None,
    d_out_keys: Any = None,
    d_out_items: Any = None,
    d_out_num_selected: Any = None,
    op: Op | Any = None,
    *,
    cc: Any = None,
    wait: bool = True,
) -> UniqueByKey:
    """Build a selection of the first of each run of equal keys, with its item, or fetch it from the cache.

    Only the items have a default; what follows them is given by name where they are left out.

    Parameters
    ----------
    d_in_keys : device array, iterator or dtype, n items
        The keys. Only their dtype matters here.
    d_in_items : device array, iterator, dtype or None, n items
        What goes with them, if anything. A `DiscardIterator` says that it does not matter.
    d_out_keys, d_out_items : device arrays, iterators or dtypes, as many items as there are runs
        Where they go, of the same dtypes or ones that they are converted to. `d_out_items` is None if
        `d_in_items` is, and a `DiscardIterator` if that is one.
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
    cc, device = obtain.target(cc)
    keys = argument("d_in_keys", d_in_keys)
    items, out_items = _items(d_in_items, d_out_items)
    limits.check_unique_items(keys, items, cc)

    def native_arguments(iterators: Mapping[str, Any], operators: Mapping[str, Any]) -> tuple[Any, ...]:
        return (*iterators.values(), operators["op"])

    spec = Specialisation(
        algorithm="unique_by_key",
        native="DeviceUniqueByKeyBuildResult",
        arguments=(
            keys,
            items,
            converting("d_out_keys", d_out_keys, keys),
            out_items,
            integers("d_out_num_selected", d_out_num_selected, smallest=4, output=True),
        ),
        operators=(("op", resolve(op, (keys.value, keys.value), np.dtype(bool))),),
        options=(),
        cc=cc,
        native_arguments=native_arguments,
    )
    return obtain.obtain(UniqueByKey, spec, device, wait)


def _items(d_in_items: Any, d_out_items: Any) -> tuple[Argument, Argument]:
    """Describe what goes with the keys; where nothing does, CCCL gets zeros, and they are discarded."""
    byte = nodes.Constant(np.dtype(np.uint8))
    if d_in_items is None and d_out_items is None:
        return Argument("no_items", byte, byte), discarding("no_items_out", byte.value)
    for name, other, array in (("in", "out", d_in_items), ("out", "in", d_out_items)):
        if array is None:
            message = f"d_{name}_items: expected a device array, since there is d_{other}_items, got None"
            raise TypeError(message)
    if not _discards(d_in_items):
        items = argument("d_in_items", d_in_items)
        return items, converting("d_out_items", d_out_items, items)
    if not _discards(d_out_items):
        raise TypeError(
            "d_out_items: expected a DiscardIterator, since d_in_items is one and yields no items"
        )
    return Argument("d_in_items", d_in_items.node, byte), discarding("d_out_items", byte.value)


def _discards(array: Any) -> bool:
    return isinstance(array, Iterator) and type(array.node) is nodes.Discard


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
        d_in_items: Any = None,
        d_out_keys: Any = None,
        d_out_items: Any = None,
        d_out_num_selected: Any = None,
        num_items: int | None = None,
        stream: Any = None,
    ) -> int:
        """Ask for the temporary storage, or select with it.

        Parameters
        ----------
        temp_storage : None or device array
            None asks how much is needed. Otherwise at least that many bytes, of any dtype.
        d_in_keys, d_in_items : device arrays, at least `num_items` items
        d_out_keys, d_out_items : device arrays
            Room for as many items as there are runs, which is not checked. None for the items, in and out, if
            the selection was built without.
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
        d_in_items: Any = None,
        d_out_keys: Any = None,
        d_out_items: Any = None,
        d_out_num_selected: Any = None,
        num_items: int | None = None,
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
