"""Binary searches of sorted arrays in shards, whose results are on every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import search as local
from .._functions.calls import Work
from ..operators import Op, OpKind
from .engines import collective
from .shard_items import checksums, items_of
from .sharded import Sharded, made, run_of

if TYPE_CHECKING:
    from .._base.annotations import Array


class BinarySearch(Sharded):
    """A search of a sorted array in shards; see `lower_bound`. It is called in one phase."""

    _sends_sizes = True

    @run_of(local.BinarySearch.run)
    def run(self) -> None:
        """Search the first `num_items` items of each shard for the same `num_values` values on all ranks."""

    __call__ = run

    def _alike(self, *given: Any) -> dict[str, Any]:
        return {"num_values": given[3]}

    def _call(self, work: Work, *given: Any) -> None:
        _, num_items, d_values, num_values, d_out = given
        if self._agrees():
            alike = checksums(work, num_values, d_values=d_values)
            self.group.sizes(num_items, num_values=num_values, **alike)
        work.run(self._local, *given)
        # What goes before a value in the whole is what does so in each shard.
        self.group.total(items_of(work, "d_out", d_out)[:num_values], work.stream)


@collective
def lower_bound(
    d_data: Array, d_values: Array, d_out: Array, comp: Op | None = OpKind.LESS, *, group: Any = None
) -> BinarySearch:
    """Build a search of a sorted array in shards for first places of insertion, in the whole.

    Parameters
    ----------
    d_data : array, n items
        The shard of this rank, which may be empty, of an array that is sorted by `comp`. Only its dtype
        matters here.
    d_values : array or iterator, m items
        The values to search for, of the same dtype: the same on every rank.
    d_out : array, m items
        Where the places in the whole go, on every rank: integers of 4 or 8 bytes, which must hold them.
    comp : callable, OpKind, RawOp or None
        Whether its first argument goes before its second. None: ``<``.
    group : Group, ProcessGroup, mpi4py communicator, Comm or None
        As for `group`.

    Returns
    -------
    BinarySearch

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
    >>> shard, values, places = np.array([1, 3, 3, 5]), np.array([3, 4]), np.zeros(2, np.int64)
    >>> distributed.lower_bound(shard, values, places).run(shard, 4, values, 2, places)
    >>> print(places)
    [1 3]
    """
    return made(BinarySearch, group, local.lower_bound, d_data, d_values, d_out, comp)


@collective
def upper_bound(
    d_data: Array, d_values: Array, d_out: Array, comp: Op | None = OpKind.LESS, *, group: Any = None
) -> BinarySearch:
    """Build a search of a sorted array in shards for last places of insertion, in the whole.

    Parameters
    ----------
    d_data, d_values, d_out, comp, group
        As for `lower_bound`.

    Returns
    -------
    BinarySearch

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
    >>> shard, values, places = np.array([1, 3, 3, 5]), np.array([3, 4]), np.zeros(2, np.int64)
    >>> distributed.upper_bound(shard, values, places).run(shard, 4, values, 2, places)
    >>> print(places)
    [3 3]
    """
    return made(BinarySearch, group, local.upper_bound, d_data, d_values, d_out, comp)
