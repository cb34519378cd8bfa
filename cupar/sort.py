"""Sorts: by a comparison of your own, by the bits of numbers, and of many segments at once."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from . import structs
from ._arguments.double_buffer import DoubleBuffer, buffers, opened, select
from ._arguments.numbers import item_count, refuse
from ._arguments.order import two_phases
from ._base.errors import ArgumentTypeError
from ._call.algorithm import Algorithm
from ._ir.nodes import Argument
from ._ir.resolve import resolve
from ._kernels.merge_sort import MERGE_SORT
from ._kernels.radix_sort import RADIX_SORT, RadixSortProblem
from ._obtain.arguments import choice, paired
from ._obtain.factory_cache import memoised
from ._obtain.obtain import obtain
from .operators import Op

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._base.annotations import Array, ArrayOrType, ComputeCapability, Keys, KeysOrType, Order, Stream
    from ._ir.specialisation import Specialisation

__all__ = [
    "DoubleBuffer",
    "MergeSort",
    "RadixSort",
    "SortOrder",
    "merge_sort",
    "radix_sort",
]


class SortOrder(IntEnum):
    """The order in which keys are sorted.

    Values are those of CCCL's C interface (``cccl_sort_order_t``).
    """

    ASCENDING = 0
    DESCENDING = 1


class MergeSort(
    Algorithm,
    family=MERGE_SORT,
    uses=dict.fromkeys(("d_in_keys", "d_in_items", "d_out_keys", "d_out_items"), "num_items"),
):
    """A stable sort by a comparison; see `merge_sort`."""

    def run(
        self,
        d_in_keys: Keys,
        d_in_items: Array | None = None,
        d_out_keys: Keys | None = None,
        d_out_items: Array | None = None,
        num_items: int | None = None,
        stream: Stream = None,
    ) -> None:
        """Sort the first `num_items` keys, with their items if it has any.

        `stream` as in `Algorithm`.
        """
        self._run(stream, (d_in_keys, d_in_items, d_out_keys, d_out_items, num_items))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""


@memoised
def merge_sort(
    d_in_keys: KeysOrType,
    d_in_items: ArrayOrType | None = None,
    d_out_keys: KeysOrType | None = None,
    d_out_items: ArrayOrType | None = None,
    op: Op | None = None,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> MergeSort:
    """Build a stable sort by a comparison, or fetch it from the cache.

    Only the items have a default; what follows them is given by name where they
    are left out.

    Parameters
    ----------
    d_in_keys : device array, iterator or dtype, n items
        The keys. Only their dtype matters here.
    d_in_items : device array, iterator, dtype or None, n items
        What goes with them, if anything.
    d_out_keys, d_out_items : device arrays or dtypes, n items
        Where the sorted keys and their items go, of the same dtypes; they may
        be the inputs themselves. `d_out_items` is None if `d_in_items` is.
    op : callable, OpKind or RawOp
        Whether its first key goes before its second: a strict weak order.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    MergeSort

    Examples
    --------
    >>> import numpy as np, cupar
    >>> keys, names = np.array([-3, 1, 2]), np.array([0, 1, 2])
    >>> out_keys, out_names = np.empty_like(keys), np.empty_like(names)
    >>> arrays = keys, names, out_keys, out_names
    >>> nearer = lambda a, b: abs(a) < abs(b)
    >>> by_magnitude = cupar.merge_sort(*arrays, nearer, cc="cpu")
    >>> by_magnitude.run(*arrays, 3)
    >>> print(out_keys, out_names)
    [ 1  2 -3] [1 2 0]

    Notes
    -----
    The algorithm is CUB's ``DeviceMergeSort``.
    """
    keys = paired("d_in_keys", d_in_keys, "d_out_keys", d_out_keys, may_iterate=True)
    items = paired("d_in_items", d_in_items, "d_out_items", d_out_items, may_iterate=True, optional=True)
    dtype = keys[0].value
    compare = resolve(op, (dtype, dtype), np.dtype(bool), recognise=True)
    return obtain(MergeSort, "merge_sort", (*keys, *items), {"op": compare}, cc, wait, link)


ARRAYS = ("d_in_keys", "d_out_keys", "d_in_values", "d_out_values")
BUFFERS = {"d_in_keys": "d_out_keys", "d_in_values": "d_out_values"}


def pairs(
    d_in_keys: Any, d_out_keys: Any, d_in_values: Any, d_out_values: Any, *, may_iterate: bool = False
) -> tuple[Argument, ...]:
    """Describe keys and, if there are any, values; each in and out, or in a double buffer."""
    buffers(d_in_keys, d_in_values)
    source, target = opened("d_in_keys", d_in_keys, "d_out_keys", d_out_keys)
    keys = paired("d_in_keys", source, "d_out_keys", target, may_iterate=may_iterate)
    source, target = opened("d_in_values", d_in_values, "d_out_values", d_out_values)
    return *keys, *paired(
        "d_in_values", source, "d_out_values", target, may_iterate=may_iterate, optional=True
    )


def sorted_arguments(
    d_in_keys: Any, d_out_keys: Any, d_in_values: Any, d_out_values: Any, instead: str
) -> tuple[Argument, ...]:
    """Describe the arrays of a sort by bits: keys and, if there are any, values; each in and out."""
    found = pairs(d_in_keys, d_out_keys, d_in_values, d_out_values)
    if structs.kind_of(found[0].value) in "cV":
        raise ArgumentTypeError("d_in_keys", f"{structs.text(found[0].value)} has no order; {instead}")
    return found


class RadixSort(
    Algorithm,
    family=RADIX_SORT,
    uses=dict.fromkeys(ARRAYS, "num_items"),
    buffers=BUFFERS,
):
    """A stable sort of numbers by their bits; see `radix_sort`."""

    def run(
        self,
        d_in_keys: Keys,
        d_out_keys: Keys | None = None,
        d_in_values: Keys | None = None,
        d_out_values: Keys | None = None,
        num_items: int | None = None,
        begin_bit: int | None = None,
        end_bit: int | None = None,
        stream: Stream = None,
    ) -> None:
        """Sort the first `num_items` keys, with their values if it has any.

        Parameters
        ----------
        d_in_keys, d_out_keys, d_in_values, d_out_values : device arrays
            At least `num_items` items. Or a `DoubleBuffer` for the inputs and
            None for the outputs.
        num_items : int
        begin_bit, end_bit : int, optional
            Only these bits of the keys count, from the lowest on, `end_bit` not
            included; by default all.
        stream : optional
            As in `Algorithm`.
        """
        arrays = (d_in_keys, d_out_keys, d_in_values, d_out_values)
        self._run(stream, (*arrays, num_items, begin_bit, end_bit))
        if isinstance(d_in_keys, DoubleBuffer):
            self._enqueued((*arrays, num_items, begin_bit, end_bit))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    @staticmethod
    def _problem_maker(spec: Specialisation) -> Callable[..., RadixSortProblem]:
        bits = 8 * spec.arguments[0].value.itemsize
        wrong = f"expected 0 <= begin_bit <= end_bit <= {bits}"

        def problem(
            d_in_keys: Any, d_in_values: Any, num_items: int, begin_bit: int | None, end_bit: int | None
        ) -> RadixSortProblem:
            begin = 0 if begin_bit is None else item_count("begin_bit", begin_bit)
            end = bits if end_bit is None else item_count("end_bit", end_bit)
            if begin > end or end > bits:
                refuse("begin_bit, end_bit", wrong, ", got {}, {}", begin, end)
            return RadixSortProblem(num_items, begin, end, len(buffers(d_in_keys, d_in_values)) > 0)

        return problem

    def _enqueued(self, arguments: tuple[Any, ...]) -> None:
        """Let double buffers know where their values are going to be."""
        found = buffers(arguments[0], arguments[2])
        if found and self._problem_maker(self._spec)(*arguments[::2][:2], *arguments[4:]).is_in_output:
            select(found, 1)


@memoised
def radix_sort(
    d_in_keys: KeysOrType,
    d_out_keys: KeysOrType | None = None,
    d_in_values: KeysOrType | None = None,
    d_out_values: KeysOrType | None = None,
    order: Order = SortOrder.ASCENDING,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> RadixSort:
    """Build a stable sort of numbers by their bits, or fetch it from the cache.

    Only the values and, with a `DoubleBuffer`, the outputs have a default; what
    follows them is given by name where they are left out.

    Parameters
    ----------
    d_in_keys : device array, DoubleBuffer or dtype, n items
        The keys: bool, integers or floats. Only their dtype matters here.
    d_out_keys : device array, dtype or None, n items
        Where the sorted keys go, of the same dtype; None if `d_in_keys` is a
        `DoubleBuffer`.
    d_in_values : device array, DoubleBuffer, dtype or None, n items
        What goes with the keys, if anything: of any dtype.
    d_out_values : device array, dtype or None, n items
        Where the values go; None if there are none, or they are in a
        `DoubleBuffer`.
    order : SortOrder
        By default the smallest come first.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    RadixSort

    Examples
    --------
    >>> import numpy as np, cupar
    >>> keys, sorted_keys = np.array([3, 1, 2]), np.zeros(3, np.int64)
    >>> order = cupar.SortOrder.DESCENDING
    >>> sort = cupar.radix_sort(keys, sorted_keys, order=order, cc="cpu")
    >>> sort.run(keys, sorted_keys, None, None, 3)
    >>> print(sorted_keys)
    [3 2 1]

    Notes
    -----
    The algorithm is CUB's ``DeviceRadixSort``: A. Adinets and D. Merrill,
    "Onesweep: A Faster Least Significant Digit Radix Sort for GPUs",
    arXiv:2206.01784. Floats are ordered by sign and magnitude: -0.0 and 0.0 are
    equal, and NaNs go to the ends.
    """
    arguments = sorted_arguments(
        d_in_keys, d_out_keys, d_in_values, d_out_values, "use merge_sort with a comparison of yours"
    )
    order = choice("order", SortOrder, order)
    return obtain(RadixSort, "radix_sort", arguments, {}, cc, wait, link, order=order.name)
