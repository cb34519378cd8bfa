"""Stable sorts of arrays in shards, by their bits and by a comparison."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import sort as local
from .. import structs
from .._arguments.order import two_phases
from .._functions import operators, rows
from .._functions.axes import INT64
from .._functions.calls import Operand, Work
from .._ir.iterator import over
from ..operators import Op, OpKind
from ..sort import SortOrder
from .engines import collective
from .group import Group
from .sample_sort import Sort
from .sharded import made, run_of

if TYPE_CHECKING:
    from .._base.annotations import Array, Order, Stream


class RadixSort(Sort):
    """A stable sort of numbers in shards by their bits; see `radix_sort`."""

    _beside = "d_out_values"

    def run(
        self,
        d_in_keys: Array,
        d_out_keys: Array,
        d_in_values: Array | None = None,
        d_out_values: Array | None = None,
        num_items: int = 0,
        stream: Stream = None,
    ) -> None:
        """Sort `num_items` keys of each shard, with their values if it has any.

        `stream` as in `cupar.Algorithm`.
        """
        self._run(stream, (d_in_keys, d_out_keys, d_in_values, d_out_values, num_items))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    def _build(self, work: Work, *given: Any) -> None:
        super()._build(work, *given)
        keys, _, values, _, order = given
        key = over("d_in_keys", keys).dtype
        is_descending = order == SortOrder.DESCENDING
        less: Any = OpKind.GREATER if is_descending else OpKind.LESS
        if structs.kind_of(key) == "f":
            key, less = np.dtype(f"i{key.itemsize}"), _by_bits(key.itemsize, is_descending)
        self._prepare(work, keys, values, key, less)


class MergeSort(Sort):
    """A stable sort of an array in shards by a comparison; see `merge_sort`."""

    _beside = "d_out_items"

    @run_of(local.MergeSort.run)
    def run(self) -> None:
        """Sort `num_items` keys of each shard, with their items if it has any.

        `stream` as in `cupar.Algorithm`.
        """

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    def _build(self, work: Work, *given: Any) -> None:
        super()._build(work, *given)
        keys, items, _, _, op = given
        self._prepare(work, keys, items, over("d_in_keys", keys).dtype, op)


@lru_cache
def _by_bits(size: int, is_descending: bool) -> Any:
    """Return the order of floats of some bytes as `radix_sort` has it, given their bits as integers."""
    magnitude = 2 ** (8 * size - 1) - 1

    def place(bits: Any) -> Any:
        return bits if bits >= 0 else (bits ^ magnitude) + 1

    if is_descending:
        return lambda a, b: place(b) < place(a)
    return lambda a, b: place(a) < place(b)


@collective
def radix_sort(
    d_in_keys: Array,
    d_out_keys: Array,
    d_in_values: Array | None = None,
    d_out_values: Array | None = None,
    order: Order = SortOrder.ASCENDING,
    *,
    group: Any = None,
) -> RadixSort:
    """Build a stable sort of numbers in shards by their bits.

    Shards keep their sizes, so work and memory are balanced whatever the keys are: equal keys stay in the
    order of ranks, and of items on each.

    Parameters
    ----------
    d_in_keys : array, n items
        The keys of this rank's shard, which may be empty: bool, integers or floats. Only their dtype matters
        here.
    d_out_keys : array, n items
        Where the sorted keys of this rank's part of the whole go, of the same dtype.
    d_in_values, d_out_values : arrays or None, n items
        What goes with the keys, if anything, and where.
    order : SortOrder
        By default the smallest come first.
    group : Group, ProcessGroup, mpi4py communicator, Comm or None
        As for `group`.

    Returns
    -------
    RadixSort

    Raises
    ------
    TypeError, ValueError
        If an argument has another type or value than described, or ranks differ.
    GroupError
        If another rank raised an error, as it has too little memory, or did not answer.

    Notes
    -----
    A call takes memory for two further shards beside the input and the output, less if the local sort's own
    storage is larger.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar import distributed
    >>> shard, result = np.array([3, 1, 2]), np.zeros(3, np.int64)
    >>> distributed.radix_sort(shard, result).run(shard, result, None, None, 3)
    >>> print(result)
    [1 2 3]
    """
    arrays = d_in_keys, d_out_keys, d_in_values, d_out_values
    return made(RadixSort, group, local.radix_sort, *arrays, order)


@collective
def merge_sort(
    d_in_keys: Array,
    d_in_items: Array | None,
    d_out_keys: Array,
    d_out_items: Array | None,
    op: Op,
    *,
    group: Any = None,
) -> MergeSort:
    """Build a stable sort of an array in shards by a comparison.

    Shards keep their sizes, so work and memory are balanced whatever the keys are: equal keys stay in the
    order of ranks, and of items on each.

    Parameters
    ----------
    d_in_keys : array or iterator, n items
        The keys of this rank's shard, which may be empty. Only their dtype matters here.
    d_in_items : array, iterator or None, n items
        What goes with them, if anything.
    d_out_keys, d_out_items : arrays, n items
        Where the sorted keys of this rank's part of the whole go, and their items; None if there are none.
    op : callable or OpKind
        Whether its first key goes before its second: a strict weak order.
    group : Group, ProcessGroup, mpi4py communicator, Comm or None
        As for `group`.

    Returns
    -------
    MergeSort

    Raises
    ------
    TypeError, ValueError
        If an argument has another type or value than described, or ranks differ.
    GroupError
        If another rank raised an error, as it has too little memory, or did not answer.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar import distributed
    >>> shard, result = np.array([-3, 1, 2]), np.zeros(3, np.int64)
    >>> nearer = distributed.merge_sort(shard, None, result, None, lambda a, b: abs(a) < abs(b))
    >>> nearer.run(shard, None, result, None, 3)
    >>> print(result)
    [ 1  2 -3]
    """
    return made(MergeSort, group, local.merge_sort, d_in_keys, d_in_items, d_out_keys, d_out_items, op)


def in_order(
    work: Work, given: Operand, places: Any, descending: bool, less: Op | None, found: Group, to: Any = None
) -> tuple[Operand, Any]:
    """Return the sorted keys of this rank and, if there are places, those of its keys.

    Without a comparison they are in NumPy's order, in which all NaNs are one.
    `to` is where the keys go, if that is known.
    """
    out = work.empty(given.shape, given.dtype) if to is None else Operand(None, to, given.shape)
    moved = None if places is None else work.empty(given.shape, INT64)
    beside = None if moved is None else moved.items
    keys = work.temporary(given.size, given.dtype) if out.parts else out.items
    items = rows.ordered(given.items, less)
    if items is not given.items:
        items = work.kept(items, given.size)
    if less is None and structs.kind_of(given.dtype) not in "cV":
        order = SortOrder.DESCENDING if descending else SortOrder.ASCENDING
        made: Any = radix_sort(items, keys, places, beside, order, group=found)
        made.run(items, keys, places, beside, given.size, stream=work.stream)
    else:
        op = operators.less_of(given.dtype) if less is None else less
        op = operators.swapped(op) if descending else op
        made = merge_sort(items, places, keys, beside, op, group=found)
        made.run(items, places, keys, beside, given.size, stream=work.stream)
    if out.parts:
        work.copy(keys, out.items, given.size)
    return out, moved
