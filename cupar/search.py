"""Binary searches: where values belong in a sorted array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ._arguments.numbers import refuse
from ._arguments.order import two_phases
from ._base.errors import ArgumentTypeError
from ._call.algorithm import Algorithm
from ._ir.resolve import resolve
from ._kernels.search import SEARCH
from ._obtain.arguments import argument, integers, same_dtype
from ._obtain.factory_cache import memoised
from ._obtain.obtain import obtain
from .operators import Op, OpKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._base.annotations import Array, ArrayOrType, ComputeCapability, Stream
    from ._ir.specialisation import Specialisation


class _Counts(NamedTuple):
    num_items: int
    num_values: int


class BinarySearch(
    Algorithm,
    family=SEARCH,
    uses={"d_data": "num_items", "d_values": "num_values", "d_out": "num_values"},
    any_order=("d_values", "d_out"),
):
    """A search for given types, operator and device; see `lower_bound`.

    It is called in one phase: the temporary storage that it may need is cupar's
    own.
    """

    def run(
        self,
        d_data: Array,
        num_items: int,
        d_values: Array,
        num_values: int,
        d_out: Array,
        stream: Stream = None,
    ) -> None:
        """Search the first `num_items` items for `num_values` values.

        The items are sorted.

        Both counts may be 0 or more; 2**32 and beyond are fine if `d_out` holds
        them. `stream` as in `Algorithm`.
        """
        self._run(stream, (d_data, num_items, d_values, num_values, d_out))

    __call__ = run

    @two_phases(run)
    def _in_two_phases(self) -> None:
        """For graphs, whose storage it is."""

    @staticmethod
    def _problem_maker(spec: Specialisation) -> Callable[..., _Counts]:
        index = spec.arguments[2].value
        most = min(int(np.iinfo(index).max), 2**63 - 1)
        beyond = f"{index} cannot hold indices up to num_items"

        def problem(num_items: int, num_values: int) -> _Counts:
            if num_items > most:
                refuse("d_out", beyond, ", {}", num_items)
            return _Counts(num_items, num_values)

        return problem


@memoised
def lower_bound(
    d_data: ArrayOrType,
    d_values: ArrayOrType,
    d_out: ArrayOrType,
    comp: Op | None = OpKind.LESS,
    *,
    values_sorted: bool = False,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> BinarySearch:
    """Build a search for first places of insertion, or fetch it from the cache.

    ``d_out[i]`` is the number of items of `d_data` that go before
    ``d_values[i]``, as of ``numpy.searchsorted(data, values, side="left")``.

    Parameters
    ----------
    d_data : device array or dtype, n items
        The data to search, sorted by `comp`. Only its dtype matters here.
    d_values : device array, iterator or dtype, m items
        The values to search for, of the same dtype.
    d_out : device array, iterator or dtype, m items
        Where the indices go: integers of 4 or 8 bytes.
    comp : callable, OpKind, RawOp or None
        Whether its first argument goes before its second: the order that
        `d_data` is sorted by. None: ``<``.
    values_sorted : bool, optional
        Promises that `d_values` are sorted by `comp`, too, which makes many of
        them several times quicker to find. If they are not, the contents of
        `d_out` are undefined, but nothing else is.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    BinarySearch

    Examples
    --------
    >>> import numpy as np, cupar
    >>> items, values = np.array([1, 3, 3, 5]), np.array([3, 4])
    >>> places = np.zeros(2, np.int64)
    >>> find = cupar.lower_bound(items, values, places, cc="cpu")
    >>> find.run(items, 4, values, 2, places)
    >>> print(places)
    [1 3]

    Notes
    -----
    For many values in any order, each call makes a tree of samples of `d_data`,
    which takes a fifteenth of the memory that the items take, or a seventh if
    they have more than 8 bytes: J. Rao and K. A. Ross, "Cache conscious
    indexing for decision-support in main memory", VLDB 1999. Those of more than
    16 bytes have none.
    """
    return _search("lower_bound", d_data, d_values, d_out, comp, values_sorted, cc, wait, link)


@memoised
def upper_bound(
    d_data: ArrayOrType,
    d_values: ArrayOrType,
    d_out: ArrayOrType,
    comp: Op | None = OpKind.LESS,
    *,
    values_sorted: bool = False,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> BinarySearch:
    """Build a search for last places of insertion, or fetch it from the cache.

    ``d_out[i]`` is the number of items of `d_data` that ``d_values[i]`` does
    not go before, as of ``numpy.searchsorted(data, values, side="right")``.

    Parameters
    ----------
    d_data : device array or dtype, n items
        The data to search, sorted by `comp`. Only its dtype matters here.
    d_values : device array, iterator or dtype, m items
        The values to search for, of the same dtype.
    d_out : device array, iterator or dtype, m items
        Where the indices go: integers of 4 or 8 bytes.
    comp : callable, OpKind, RawOp or None
        Whether its first argument goes before its second: the order that
        `d_data` is sorted by. None: ``<``.
    values_sorted : bool, optional
        Promises that `d_values` are sorted by `comp`, too, which makes many of
        them several times quicker to find. If they are not, the contents of
        `d_out` are undefined, but nothing else is.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    BinarySearch

    Examples
    --------
    >>> import numpy as np, cupar
    >>> items, values = np.array([5, 3, 3, 1]), np.array([3, 4])
    >>> places = np.zeros(2, np.int64)
    >>> descending = cupar.upper_bound(
    ...     items, values, places, lambda a, b: a > b, cc="cpu"
    ... )
    >>> descending.run(items, 4, values, 2, places)
    >>> print(places)
    [3 1]
    """
    return _search("upper_bound", d_data, d_values, d_out, comp, values_sorted, cc, wait, link)


def _search(
    algorithm: str,
    d_data: Any,
    d_values: Any,
    d_out: Any,
    comp: Op | None,
    values_sorted: Any,
    cc: Any,
    wait: bool,
    link: Any,
) -> BinarySearch:
    data = argument("d_data", d_data, may_iterate=False)
    values = same_dtype("d_values", d_values, data)
    index = integers("d_out", d_out, smallest=4, output=True)
    if not isinstance(values_sorted, (bool, np.bool_)):
        raise ArgumentTypeError("values_sorted", f"expected True or False, got {values_sorted!r}")
    comp = OpKind.LESS if comp is None else comp  # as in cuda.compute
    operators = {"comp": resolve(comp, (data.value, data.value), np.dtype(bool), "comp")}
    options = {"values_sorted": True} if values_sorted else {}
    return obtain(BinarySearch, algorithm, (data, values, index), operators, cc, wait, link, **options)
