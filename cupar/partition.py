"""Partitions: items sent to the arrays that predicates choose for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ._call.algorithm import Algorithm
from ._call.arguments import argument, converting, discarding, integers
from ._call.call import Call, Launch
from ._compile.key import Specialisation
from ._ir import nodes
from ._ir.nodes import Argument
from ._ir.operator import Operator, cpp_operator
from ._obtain import obtain
from ._obtain.call_sites import remembered
from .operators import Op, resolve


@remembered
def three_way_partition(
    d_in: Any,
    d_first_part_out: Any,
    d_second_part_out: Any,
    d_unselected_out: Any,
    d_num_selected_out: Any,
    select_first_part_op: Op,
    select_second_part_op: Op,
    *,
    cc: Any = None,
    wait: bool = True,
) -> ThreeWayPartition:
    """Build a partition into three arrays, or fetch it from the cache.

    An item goes to the first part if the first predicate holds, else to the second part if the second one
    does, else to the unselected items. Within each array, items are in the order of the input.

    Parameters
    ----------
    d_in : device array, iterator or dtype, n items
        The input. Only its dtype matters here.
    d_first_part_out, d_second_part_out, d_unselected_out : device arrays, iterators or dtypes
        Where the items go, of the same dtype or one that they are converted to. None of them may overlap the
        input.
    d_num_selected_out : device array, iterator or dtype, 2 items
        Where the sizes of the first and the second part go: integers of 4 or 8 bytes.
    select_first_part_op, select_second_part_op : callable or OpKind
        Predicates of one item.
    cc : int, pair of int or str, optional
        Compute capability to build for, as in 90, (9, 0), "9.0" or "sm_90"; by default the current
        device's. With it, no GPU is needed.
    wait : bool, optional
        False: build in the background and return at once; the first call, or `Algorithm.ready`, waits.

    Returns
    -------
    ThreeWayPartition

    Raises
    ------
    TypeError, ValueError
        If an argument is none of the above, or a predicate cannot be compiled for the type.
    NoDeviceError
        If there is no GPU and no `cc`.

    Examples
    --------
    >>> import cupar
    >>> negative, large = lambda a: a < 0, lambda a: a > 100
    >>> parts = cupar.three_way_partition("f4", "f4", "f4", "f4", "i8", negative, large, cc=90)
    >>> parts.build.algorithm
    'three_way_partition'

    Notes
    -----
    The algorithm is CUB's ``DevicePartition::If`` with two predicates.
    """
    cc, device = obtain.target(cc)
    items = argument("d_in", d_in)
    outputs = {
        "d_first_part_out": d_first_part_out,
        "d_second_part_out": d_second_part_out,
        "d_unselected_out": d_unselected_out,
    }
    spec = Specialisation(
        algorithm="three_way_partition",
        native=_NATIVE,
        arguments=(
            items,
            *(converting(name, array, items) for name, array in outputs.items()),
            integers("d_num_selected_out", d_num_selected_out, smallest=4, output=True),
        ),
        operators=(
            ("select_first_part_op", _predicate("select_first_part_op", select_first_part_op, items)),
            ("select_second_part_op", _predicate("select_second_part_op", select_second_part_op, items)),
        ),
        options=(),
        cc=cc,
        native_arguments=_native_arguments,
    )
    return obtain.obtain(ThreeWayPartition, spec, device, wait)


_NATIVE = "DeviceThreeWayPartitionBuildResult"


def _native_arguments(iterators: Mapping[str, Any], operators: Mapping[str, Any]) -> tuple[Any, ...]:
    return *iterators.values(), *operators.values()


def _predicate(name: str, op: Op, items: Argument) -> Operator:
    """Find out what a predicate of items means; there may be two, so messages say which one is meant."""
    # CCCL has no code for a partition by operators of its own.
    return resolve(op, (items.value,), np.dtype(bool), name, as_function=True)


class ThreeWayPartition(
    Algorithm,
    uses={
        "d_in": "num_items",
        "d_first_part_out": 0,
        "d_second_part_out": 0,
        "d_unselected_out": 0,
        "d_num_selected_out": 2,
    },
):
    """A partition into three arrays; see `three_way_partition`."""

    def __call__(
        self,
        temp_storage: Any,
        d_in: Any,
        d_first_part_out: Any,
        d_second_part_out: Any,
        d_unselected_out: Any,
        d_num_selected_out: Any,
        num_items: int,
        stream: Any = None,
    ) -> int:
        """Ask for the temporary storage, or partition with it.

        Parameters
        ----------
        temp_storage : None or device array
            None asks how much is needed. Otherwise at least that many bytes, of any dtype.
        d_in : device array, at least `num_items` items
        d_first_part_out, d_second_part_out, d_unselected_out : device arrays
            Room for as many items as go there, which is not checked.
        d_num_selected_out : device array, at least 2 items
        num_items : int
            How many items to partition, from 0 on; 2**32 and more are fine.
        stream : optional
            None (the default stream), a handle, or a stream of CuPy, PyTorch, Numba or cuda.core.

        Returns
        -------
        int
            Bytes of temporary storage.

        Raises
        ------
        TypeError, ValueError
            If an argument is not what the partition was built for, or is too small.
        NoDeviceError
            If there is no GPU.
        """
        arguments = (
            d_in,
            d_first_part_out,
            d_second_part_out,
            d_unselected_out,
            d_num_selected_out,
            num_items,
        )
        return self._execute(temp_storage, stream, arguments)

    def run(
        self,
        d_in: Any,
        d_first_part_out: Any,
        d_second_part_out: Any,
        d_unselected_out: Any,
        d_num_selected_out: Any,
        num_items: int,
        stream: Any = None,
    ) -> None:
        """Partition, with temporary storage of cupar's own.

        Parameters are those of the call.
        """
        arguments = (
            d_in,
            d_first_part_out,
            d_second_part_out,
            d_unselected_out,
            d_num_selected_out,
            num_items,
        )
        self._run(stream, arguments)

    def _launcher(self, call: Call) -> Launch:
        return _launcher(call)


def _launcher(call: Call) -> Launch:
    compute, arguments = call.native.compute, (*call.iterators, *call.operators)
    return lambda address, nbytes, n, stream: compute(address, nbytes, *arguments, n, stream)


@remembered
def select(
    d_in: Any, d_out: Any, d_num_selected_out: Any, cond: Op, *, cc: Any = None, wait: bool = True
) -> Select:
    """Build a selection of the items for which a predicate holds, or fetch it from the cache.

    Parameters
    ----------
    d_in : device array, iterator or dtype, n items
        The input. Only its dtype matters here.
    d_out : device array, iterator or dtype, as many items as are selected
        Where they go, in the order of the input, of the same dtype or one that they are converted to. It may
        not overlap the input.
    d_num_selected_out : device array, iterator or dtype, 1 item
        Where the number of selected items goes: an integer of 4 or 8 bytes.
    cond : callable or OpKind
        A predicate of one item.
    cc : int, pair of int or str, optional
        Compute capability to build for, as in 90, (9, 0), "9.0" or "sm_90"; by default the current
        device's. With it, no GPU is needed.
    wait : bool, optional
        False: build in the background and return at once; the first call, or `Algorithm.ready`, waits.

    Returns
    -------
    Select

    Raises
    ------
    TypeError, ValueError
        If an argument is none of the above, or the predicate cannot be compiled for the type.
    NoDeviceError
        If there is no GPU and no `cc`.

    Examples
    --------
    >>> import cupar
    >>> positive = cupar.select("f4", "f4", "i8", lambda a: a > 0, cc=90)
    >>> positive.build.algorithm
    'select'

    Notes
    -----
    CCCL's C interface has no selection. As in ``cuda.compute``, this is a three-way partition whose second
    predicate never holds, and of which all but the first part is thrown away.
    """
    cc, device = obtain.target(cc)
    items = argument("d_in", d_in)
    count = integers("d_num_selected_out", d_num_selected_out, smallest=4, output=True)
    spec = Specialisation(
        algorithm="select",
        native=_NATIVE,
        arguments=(
            items,
            converting("d_out", d_out, items),
            discarding("second_part", items.value),
            discarding("unselected", items.value),
            # CCCL writes two counts. The second, always 0 here, may have no place in the user's array.
            replace(count, node=nodes.First(count.value, count.node)),
        ),
        operators=(
            ("cond", _predicate("cond", cond, items)),
            ("second_cond", cpp_operator("never", (items.value,), np.dtype(bool), _NEVER)),
        ),
        options=(),
        cc=cc,
        native_arguments=_native_arguments,
    )
    return obtain.obtain(Select, spec, device, wait)


_NEVER = 'extern "C" __device__ void SYMBOL(void*, void* out) { *static_cast<bool*>(out) = false; }'


class Select(Algorithm, uses={"d_in": "num_items", "d_out": 0, "d_num_selected_out": 1}):
    """A selection of the items for which a predicate holds; see `select`."""

    def __call__(
        self,
        temp_storage: Any,
        d_in: Any,
        d_out: Any,
        d_num_selected_out: Any,
        num_items: int,
        stream: Any = None,
    ) -> int:
        """Ask for the temporary storage, or select with it.

        Parameters
        ----------
        temp_storage : None or device array
            None asks how much is needed. Otherwise at least that many bytes, of any dtype.
        d_in : device array, at least `num_items` items
        d_out : device array
            Room for as many items as are selected, which is not checked.
        d_num_selected_out : device array, at least 1 item
        num_items : int
            How many items there are, from 0 on; 2**32 and more are fine.
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
        arguments = (d_in, d_out, d_num_selected_out, num_items)
        return self._execute(temp_storage, stream, arguments)

    def run(self, d_in: Any, d_out: Any, d_num_selected_out: Any, num_items: int, stream: Any = None) -> None:
        """Select, with temporary storage of cupar's own.

        Parameters are those of the call.
        """
        self._run(stream, (d_in, d_out, d_num_selected_out, num_items))

    def _launcher(self, call: Call) -> Launch:
        return _launcher(call)
