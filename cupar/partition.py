"""Partitions: items sent to the arrays that predicates choose for them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from . import _arrays, _cccl, _factory, _toolchain
from ._algorithm import Algorithm, Call, item_count, same_dtype
from ._key import Argument, Specialisation
from .operators import Op, Operator, resolve


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
) -> ThreeWayPartition:
    """Build a partition into three arrays, or fetch it from the cache.

    An item goes to the first part if the first predicate holds, else to the second part if the second one
    does, else to the unselected items. Within each array, items are in the order of the input.

    Parameters
    ----------
    d_in : device array or dtype, n items
        The input. Only its dtype matters here.
    d_first_part_out, d_second_part_out, d_unselected_out : device arrays or dtypes
        Where the items go, of the same dtype. None of them may overlap the input.
    d_num_selected_out : device array or dtype, 2 items
        Where the sizes of the first and the second part go: integers of 4 or 8 bytes.
    select_first_part_op, select_second_part_op : callable or OpKind
        Predicates of one item.
    cc : int, pair of int or str, optional
        Compute capability to build for, as in 90, (9, 0), "9.0" or "sm_90"; by default the current
        device's. With it, no GPU is needed.

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
    cc, device = _factory.target(cc)
    items = _arrays.dtype_of("d_in", d_in)
    outputs = {
        "d_first_part_out": d_first_part_out,
        "d_second_part_out": d_second_part_out,
        "d_unselected_out": d_unselected_out,
    }
    for name, array in outputs.items():
        same_dtype(name, array, "d_in", items)
    count = _count_dtype(d_num_selected_out)

    def native_arguments(iterators: Mapping[str, Any], operators: Mapping[str, Any]) -> tuple[Any, ...]:
        return *iterators.values(), *operators.values()

    spec = Specialisation(
        algorithm="three_way_partition",
        native="DeviceThreeWayPartitionBuildResult",
        arguments=(
            Argument("d_in", items, items),
            *(Argument(name, items, items, output=True) for name in outputs),
            Argument("d_num_selected_out", count, count, output=True),
        ),
        operators=(
            ("select_first_part_op", _predicate("select_first_part_op", select_first_part_op, items)),
            ("select_second_part_op", _predicate("select_second_part_op", select_second_part_op, items)),
        ),
        options=(),
        cc=cc,
        native_arguments=native_arguments,
    )
    return _factory.obtain(ThreeWayPartition, spec, device)


def _predicate(name: str, op: Op, dtype: np.dtype[Any]) -> Operator:
    """Find out what a predicate means for a type; there may be two, so messages say which one is meant."""
    try:
        return resolve(op, (dtype,), np.dtype(bool))
    except TypeError as error:
        raise type(error)(f"{name}: {str(error).removeprefix('op: ')}") from None


def _count_dtype(array: Any) -> np.dtype[Any]:
    count: np.dtype[Any] = _arrays.dtype_of("d_num_selected_out", array)
    if count.kind not in "iu" or count.itemsize < 4:
        raise TypeError(f"d_num_selected_out: expected integers of 4 or 8 bytes, got {count}")
    return count


class ThreeWayPartition(Algorithm):
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
        n = item_count("num_items", num_items)
        parts = ((d_first_part_out, 0), (d_second_part_out, 0), (d_unselected_out, 0))
        return self._execute(temp_storage, ((d_in, n), *parts, (d_num_selected_out, 2)), n, None, stream)

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
        """Partition, with temporary storage allocated and freed in the order of the stream.

        Parameters are those of the call.
        """
        n = item_count("num_items", num_items)
        parts = ((d_first_part_out, 0), (d_second_part_out, 0), (d_unselected_out, 0))
        self._run(((d_in, n), *parts, (d_num_selected_out, 2)), n, None, stream)

    def _launch(self, call: Call, address: int, nbytes: int, work: Any, stream: int) -> int:
        needed: int = call.native.compute(address, nbytes, *call.iterators, *call.operators, work, stream)
        return needed


def select(d_in: Any, d_out: Any, d_num_selected_out: Any, cond: Op, *, cc: Any = None) -> Select:
    """Build a selection of the items for which a predicate holds, or fetch it from the cache.

    Parameters
    ----------
    d_in : device array or dtype, n items
        The input. Only its dtype matters here.
    d_out : device array or dtype, as many items as are selected
        Where they go, in the order of the input, of the same dtype. It may not overlap the input.
    d_num_selected_out : device array or dtype, 1 item
        Where the number of selected items goes: an integer of 4 or 8 bytes.
    cond : callable or OpKind
        A predicate of one item.
    cc : int, pair of int or str, optional
        Compute capability to build for, as in 90, (9, 0), "9.0" or "sm_90"; by default the current
        device's. With it, no GPU is needed.

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
    cc, device = _factory.target(cc)
    items = _arrays.dtype_of("d_in", d_in)
    same_dtype("d_out", d_out, "d_in", items)
    count = _count_dtype(d_num_selected_out)

    def native_arguments(iterators: Mapping[str, Any], operators: Mapping[str, Any]) -> tuple[Any, ...]:
        symbols = {name: _cccl.symbol(name) for name in ("first", "discard", "never")}
        code = {name: _toolchain.compile_cpp(source.format(**symbols), cc) for name, source in _CPP.items()}
        discard = _cccl.iterator("discard", items, bytearray(8), (code["leave"], code["discard"]))
        first = _cccl.iterator(
            "first", count, bytearray(8), (code["advance"], code[f"store{count.itemsize}"])
        )
        never = _cccl.operator("never", None, [code["never"]])
        return iterators["d_in"], iterators["d_out"], discard, discard, first, operators["cond"], never

    spec = _InOnePiece(
        algorithm="select",
        native="DeviceThreeWayPartitionBuildResult",
        arguments=(
            Argument("d_in", items, items),
            Argument("d_out", items, items, output=True),
            Argument("d_num_selected_out", count, count, output=True),
        ),
        operators=(("cond", _predicate("cond", cond, items)),),
        options=(("code", "".join(_CPP.values())),),
        cc=cc,
        native_arguments=native_arguments,
    )
    return _factory.obtain(Select, spec, device)


# CCCL writes two counts. The second, which is always 0 here, may have no place in the user's array.
_CPP = {
    "leave": 'extern "C" __device__ void {discard}_advance(void*, const void*) {{}}\n',
    "discard": 'extern "C" __device__ void {discard}_dereference(const void*, const void*) {{}}\n',
    "never": """
extern "C" __device__ void {never}(const void*, void* result) {{ *static_cast<bool*>(result) = false; }}
""",
    "advance": """
extern "C" __device__ void {first}_advance(void* state, const void* offset) {{
  if (*static_cast<const long long*>(offset) != 0) *static_cast<void**>(state) = nullptr;
}}
""",
    **{
        f"store{size}": f"""
extern "C" __device__ void {{first}}_dereference(const void* state, const void* value) {{{{
  {cpp}* count = *static_cast<{cpp}* const*>(state);
  if (count != nullptr) *count = *static_cast<const {cpp}*>(value);
}}}}
"""
        for size, cpp in ((4, "unsigned int"), (8, "unsigned long long"))
    },
}


class _InOnePiece(Specialisation):
    """A specialisation that uses device functions of cupar's own, which no template can hold so far."""

    @property
    def has_template(self) -> bool:
        return False


class Select(Algorithm):
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
        n = item_count("num_items", num_items)
        return self._execute(temp_storage, ((d_in, n), (d_out, 0), (d_num_selected_out, 1)), n, None, stream)

    def run(self, d_in: Any, d_out: Any, d_num_selected_out: Any, num_items: int, stream: Any = None) -> None:
        """Select, with temporary storage allocated and freed in the order of the stream.

        Parameters are those of the call.
        """
        n = item_count("num_items", num_items)
        self._run(((d_in, n), (d_out, 0), (d_num_selected_out, 1)), n, None, stream)

    @cached_property
    def _thrown_away(self) -> tuple[Any, Any]:
        """What stands for the arrays that are not there, and for their predicate."""
        items = self._code.spec.arguments[0].dtype
        return _cccl.iterator("discard", items, bytearray(8)), _cccl.operator("never", None)

    def _launch(self, call: Call, address: int, nbytes: int, work: Any, stream: int) -> int:
        d_in, d_out, d_count = call.iterators
        discard, never = self._thrown_away
        state = bytearray(struct.pack("=Q", d_count.state))
        first = _cccl.iterator("first", self._code.spec.arguments[2].dtype, state)
        needed: int = call.native.compute(
            address, nbytes, d_in, d_out, discard, discard, first, *call.operators, never, work, stream
        )
        return needed
