"""The first items in an order of arrays in shards, which are on every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import topk as local
from .._arguments.order import two_phases
from .._functions.calls import Work
from ..sort import SortOrder
from .comm import on_all, raw
from .engines import collective
from .shard_items import dtypes_of, two
from .sharded import Sharded, made, run_of

if TYPE_CHECKING:
    from .._base.annotations import Array, Order


class TopK(Sharded):
    """The first k items in an order of an array in shards; see `top_k`."""

    _last: Any  # the algorithm for the items that all ranks have kept

    @run_of(local.TopK.run)
    def run(self) -> None:
        """Find the first k keys of `num_items` of each shard, with their values if it has any.

        `k` is the same on all ranks, and at most the number of all items; `stream` as in `cupar.Algorithm`.
        """

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    def _build(self, work: Work, *given: Any) -> None:
        keys, out_keys, values, out_values, order = given
        self._dtypes = dtypes_of(d_in_keys=keys, d_in_values=values)
        key, value = two(self._dtypes)
        self._local = local.top_k(keys, key, values, value, order)
        self._last = local.top_k(key, out_keys, value, out_values, order)
        for each in self._dtypes:  # what `_all` copies with
            work.copy(work.temporary(1, each), work.temporary(1, each), 1)

    def _call(self, work: Work, *given: Any) -> None:
        keys, out_keys, values, out_values, num_items, k = given
        sizes = self.group.sizes(num_items, "top_k", k=k)
        if not 0 <= k <= sum(sizes):
            most = f"k: expected at most {sum(sizes)}, which all shards have together, got {k}"
            raise on_all(ValueError(most))
        if not k:
            return
        kept = [min(k, each) for each in sizes]
        own = [work.temporary(k, each) for each in self._dtypes]
        own_keys, own_values = two(own)
        work.run(self._local, keys, own_keys, values, own_values, num_items, kept[self.group.rank])
        all_keys, all_values = two([self._all(work, each, kept, k) for each in own])
        work.run(self._last, all_keys, out_keys, all_values, out_values, sum(kept), k)

    def _all(self, work: Work, own: Any, kept: list[int], k: int) -> Any:
        """Return the items that all ranks have kept, in rank order."""
        gathered = work.temporary(k * self.group.size, own.dtype)
        self.group.gather(raw(own), raw(gathered), work.stream)
        found, begin = work.temporary(sum(kept), own.dtype), 0
        for rank, number in enumerate(kept):
            work.copy(gathered[rank * k :][:number], found[begin : begin + number], number)
            begin += number
        return found


@collective
def top_k(
    d_in_keys: Array,
    d_out_keys: Array,
    d_in_values: Array | None = None,
    d_out_values: Array | None = None,
    order: Order = SortOrder.DESCENDING,
    *,
    group: Any = None,
) -> TopK:
    """Build a top-k of an array in shards: the first items in an order, which are on every rank.

    They are sorted, and equal keys stay in the order of ranks, and of items on each.

    Parameters
    ----------
    d_in_keys : array, n items
        The keys of this rank's shard, which may be empty. Only their dtype matters here.
    d_out_keys : array, k items
        Where the first k keys of all go.
    d_in_values : array, iterator or None, n items
        Values that belong to the keys, if any.
    d_out_values : array or None, k items
        Where the values go.
    order : SortOrder
        By default the largest come first.
    group : Group, ProcessGroup, mpi4py communicator, Comm or None
        As for `group`.

    Returns
    -------
    TopK

    Raises
    ------
    TypeError, ValueError
        If an argument has another type or value than described, or ranks differ.
    GroupError
        If another rank raised an error, or did not answer.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar import distributed
    >>> shard, largest = np.array([3, 9, 1, 7]), np.zeros(2, np.int64)
    >>> distributed.top_k(shard, largest).run(shard, largest, None, None, 4, 2)
    >>> print(largest)
    [9 7]
    """
    return made(TopK, group, local.top_k, d_in_keys, d_out_keys, d_in_values, d_out_values, order)
