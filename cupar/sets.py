"""Sets of sorted ranges, in which equal keys may be several: union, intersection and differences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._arguments.order import two_phases
from ._base.errors import ArgumentTypeError
from ._call.algorithm import Algorithm
from ._kernels.sets import SETS
from ._obtain.arguments import integers
from ._obtain.factory_cache import memoised
from ._obtain.obtain import obtain
from ._obtain.ranges import RANGES, described, documented, of_ranges
from .operators import Op, OpKind

if TYPE_CHECKING:
    from ._base.annotations import Array, ArrayOrType, ComputeCapability, Stream


class SetOperation(
    Algorithm,
    family=SETS,
    uses={**RANGES, "d_out_keys": 0, "d_out_items": 0, "d_out_num_selected": 1},
    disjoint_outputs=True,
):
    """A set of two sorted ranges; see `set_union` and its like."""

    def run(
        self,
        d_in_keys1: Array,
        d_in_items1: Array | None,
        num_items1: int,
        d_in_keys2: Array,
        d_in_items2: Array | None,
        num_items2: int,
        d_out_keys: Array,
        d_out_items: Array | None,
        d_out_num_selected: Array,
        stream: Stream = None,
    ) -> None:
        """Find the set of the first `num_items1` keys of one range and `num_items2` of another.

        Their items go with them, if they have any. Both counts may be 0 or
        more; 2**32 and beyond are fine. The outputs must have space for as many
        as there are, which is not checked: of ranges that are not sorted, the
        result is unspecified, but no more than sorted ones may have; `stream`
        as in `Algorithm`.
        """
        first, second = (d_in_keys1, d_in_items1, num_items1), (d_in_keys2, d_in_items2, num_items2)
        self._run(stream, (*first, *second, d_out_keys, d_out_items, d_out_num_selected))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    _problem_maker = staticmethod(of_ranges)


@memoised
@documented("n + m items at most")
def set_union(
    d_in_keys1: ArrayOrType,
    d_in_items1: ArrayOrType | None,
    d_in_keys2: ArrayOrType,
    d_in_items2: ArrayOrType | None,
    d_out_keys: ArrayOrType,
    d_out_items: ArrayOrType | None,
    d_out_num_selected: ArrayOrType,
    op: Op | None = OpKind.LESS,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> SetOperation:
    """Build the union of two sorted ranges, or fetch it from the cache.

    Of m keys of the first range and n of the second that are equal, it has
    max(m, n), sorted: all of the first, then the last n - m of the second.

    >>> a, b = np.array([1, 2, 2, 5]), np.array([2, 3])
    >>> out, count = np.zeros(6, np.int64), np.zeros(1, np.int64)
    >>> union = cupar.set_union(a, None, b, None, out, None, count, cc="cpu")
    >>> union.run(a, None, 4, b, None, 2, out, None, count)
    >>> print(out[: count[0]])
    [1 2 2 3 5]

    Notes
    -----
    It does what Thrust's ``set_union`` and ``set_union_by_key`` do, by kernels
    of cupar's own, in one pass: S. Baxter, "Modern GPU: Multisets", 2013.
    """
    keys, items = (d_in_keys1, d_in_keys2, d_out_keys), (d_in_items1, d_in_items2, d_out_items)
    return _set("set_union", keys, items, d_out_num_selected, op, cc, wait, link)


@memoised
@documented("min(n, m) items at most")
def set_intersection(
    d_in_keys1: ArrayOrType,
    d_in_items1: ArrayOrType | None,
    d_in_keys2: ArrayOrType,
    d_in_items2: None,
    d_out_keys: ArrayOrType,
    d_out_items: ArrayOrType | None,
    d_out_num_selected: ArrayOrType,
    op: Op | None = OpKind.LESS,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> SetOperation:
    """Build the intersection of two sorted ranges, or fetch it from the cache.

    Of m keys of the first range and n of the second that are equal, it has the
    first min(m, n) of the first range, sorted.

    >>> a, b = np.array([1, 2, 2, 5]), np.array([2, 2, 2, 5])
    >>> out, count = np.zeros(4, np.int64), np.zeros(1, np.int64)
    >>> arrays = a, None, b, None, out, None, count
    >>> both = cupar.set_intersection(*arrays, cc="cpu")
    >>> both.run(a, None, 4, b, None, 4, out, None, count)
    >>> print(out[: count[0]])
    [2 2 5]
    """
    keys, items = (d_in_keys1, d_in_keys2, d_out_keys), (d_in_items1, d_in_items2, d_out_items)
    return _set("set_intersection", keys, items, d_out_num_selected, op, cc, wait, link)


@memoised
@documented("n items at most")
def set_difference(
    d_in_keys1: ArrayOrType,
    d_in_items1: ArrayOrType | None,
    d_in_keys2: ArrayOrType,
    d_in_items2: None,
    d_out_keys: ArrayOrType,
    d_out_items: ArrayOrType | None,
    d_out_num_selected: ArrayOrType,
    op: Op | None = OpKind.LESS,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> SetOperation:
    """Build the difference of two sorted ranges, or fetch it from the cache.

    Of m keys of the first range and n of the second that are equal, it has the
    last max(m - n, 0) of the first range, sorted.

    >>> a, b = np.array([1, 2, 2, 5]), np.array([2, 3])
    >>> out, count = np.zeros(4, np.int64), np.zeros(1, np.int64)
    >>> arrays = a, None, b, None, out, None, count
    >>> left = cupar.set_difference(*arrays, cc="cpu")
    >>> left.run(a, None, 4, b, None, 2, out, None, count)
    >>> print(out[: count[0]])
    [1 2 5]
    """
    keys, items = (d_in_keys1, d_in_keys2, d_out_keys), (d_in_items1, d_in_items2, d_out_items)
    return _set("set_difference", keys, items, d_out_num_selected, op, cc, wait, link)


@memoised
@documented("n + m items at most")
def set_symmetric_difference(
    d_in_keys1: ArrayOrType,
    d_in_items1: ArrayOrType | None,
    d_in_keys2: ArrayOrType,
    d_in_items2: ArrayOrType | None,
    d_out_keys: ArrayOrType,
    d_out_items: ArrayOrType | None,
    d_out_num_selected: ArrayOrType,
    op: Op | None = OpKind.LESS,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> SetOperation:
    """Build the symmetric difference of two ranges, or fetch it from the cache.

    Of m keys of the first range and n of the second that are equal, it has
    the last m - n of the first range, or the last n - m of the second: sorted,
    as both ranges are.

    >>> a, b = np.array([1, 2, 2, 5]), np.array([2, 3])
    >>> out, count = np.zeros(6, np.int64), np.zeros(1, np.int64)
    >>> arrays = a, None, b, None, out, None, count
    >>> either = cupar.set_symmetric_difference(*arrays, cc="cpu")
    >>> either.run(a, None, 4, b, None, 2, out, None, count)
    >>> print(out[: count[0]])
    [1 2 3 5]
    """
    keys, items = (d_in_keys1, d_in_keys2, d_out_keys), (d_in_items1, d_in_items2, d_out_items)
    return _set("set_symmetric_difference", keys, items, d_out_num_selected, op, cc, wait, link)


def _set(
    algorithm: str,
    keys: tuple[Any, Any, Any],
    items: tuple[Any, Any, Any],
    count: Any,
    op: Op | None,
    cc: Any,
    wait: bool,
    link: Any,
) -> SetOperation:
    takes_second = algorithm in ("set_union", "set_symmetric_difference")
    if items[1] is not None and not takes_second:
        raise ArgumentTypeError(
            "d_in_items2",
            f"expected None, as {algorithm} takes nothing from the second range, got "
            f"{type(items[1]).__name__}",
        )
    arguments, operators = described(keys, items, op, takes_second)
    number = integers("d_out_num_selected", count, smallest=4, output=True)
    return obtain(SetOperation, algorithm, (*arguments, number), operators, cc, wait, link)
