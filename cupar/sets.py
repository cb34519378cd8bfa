"""Sets of sorted ranges, in which equal keys may be several: union, intersection and differences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._call.algorithm import Algorithm
from ._ir.nodes import Argument
from ._ir.resolve import resolve
from ._kernels.merge import MergeProblem
from ._kernels.sets import SETS
from ._launch.arguments import two_phases
from ._obtain.arguments import argument, converting, integers, same_dtype
from ._obtain.factory_cache import memoised
from ._obtain.obtain import obtain
from .operators import Op, OpKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._base.annotations import Array, ArrayOrType, ComputeCapability, Stream
    from ._ir.specialisation import Specialisation


class SetOperation(
    Algorithm,
    family=SETS,
    uses={
        **{"d_in_keys1": "num_items1", "d_in_items1": "num_items1"},
        **{"d_in_keys2": "num_items2", "d_in_items2": "num_items2"},
        **{"d_out_keys": 0, "d_out_items": 0, "d_out_num_selected": 1},
    },
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
        as there are, which is not checked; `stream` as in `Algorithm`.
        """
        first, second = (d_in_keys1, d_in_items1, num_items1), (d_in_keys2, d_in_items2, num_items2)
        self._run(stream, (*first, *second, d_out_keys, d_out_items, d_out_num_selected))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    @staticmethod
    def _problem_maker(spec: Specialisation) -> Callable[..., MergeProblem]:
        return lambda num_items1, num_items2: MergeProblem(num_items1, num_items2, num_items1 + num_items2)


@memoised
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
) -> SetOperation:
    """Build the union of two sorted ranges, or fetch it from the cache.

    Of m keys of the first range and n of the second that are equal, it has
    max(m, n), sorted: all of the first, then the last n - m of the second.

    Parameters
    ----------
    d_in_keys1, d_in_keys2 : device arrays, iterators or dtypes, n and m items
        The keys of both ranges, each sorted by `op`: of one dtype. Only that
        matters here.
    d_in_items1, d_in_items2 : device arrays, iterators, dtypes or None
        What goes with them, n and m items, if anything: of one dtype.
    d_out_keys, d_out_items : device arrays, iterators or dtypes
        Where keys and their items go, n + m at most, of the same dtypes or ones
        that they are converted to. They may not overlap the inputs.
        `d_out_items` is None if the keys have no items.
    d_out_num_selected : device array, iterator or dtype, 1 item
        Where goes how many they are: an integer of 4 or 8 bytes.
    op : callable, OpKind, RawOp or None
        Whether its first key goes before its second: a strict weak order, the
        one that both ranges are sorted by. None: ``<``.
    cc, wait, link : optional
        What to build for (90, "cpu"), whether to wait for that, and code that
        operators call: see `Algorithm`, which also lists exceptions.

    Returns
    -------
    SetOperation

    Examples
    --------
    >>> import numpy as np, cupar
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
    first, second = (d_in_keys1, d_in_items1), (d_in_keys2, d_in_items2)
    outputs = d_out_keys, d_out_items, d_out_num_selected
    return _set("set_union", first, second, outputs, op, cc, wait, link)


@memoised
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
) -> SetOperation:
    """Build the intersection of two sorted ranges, or fetch it from the cache.

    Of m keys of the first range and n of the second that are equal, it has the
    first min(m, n) of the first range, sorted.

    Parameters
    ----------
    d_in_keys1, d_in_keys2 : device arrays, iterators or dtypes, n and m items
        The keys of both ranges, each sorted by `op`: of one dtype. Only that
        matters here.
    d_in_items1 : device array, iterator, dtype or None, n items
        What goes with the keys of the first range, if anything.
    d_in_items2 : None
        Nothing comes from the second range.
    d_out_keys, d_out_items : device arrays, iterators or dtypes
        Where keys and their items go, min(n, m) at most, of the same dtypes or
        ones that they are converted to. They may not overlap the inputs.
        `d_out_items` is None if the keys have no items.
    d_out_num_selected : device array, iterator or dtype, 1 item
        Where goes how many they are: an integer of 4 or 8 bytes.
    op : callable, OpKind, RawOp or None
        Whether its first key goes before its second: a strict weak order, the
        one that both ranges are sorted by. None: ``<``.
    cc, wait, link : optional
        What to build for (90, "cpu"), whether to wait for that, and code that
        operators call: see `Algorithm`, which also lists exceptions.

    Returns
    -------
    SetOperation

    Examples
    --------
    >>> import numpy as np, cupar
    >>> a, b = np.array([1, 2, 2, 5]), np.array([2, 2, 2, 5])
    >>> out, count = np.zeros(4, np.int64), np.zeros(1, np.int64)
    >>> arrays = a, None, b, None, out, None, count
    >>> both = cupar.set_intersection(*arrays, cc="cpu")
    >>> both.run(a, None, 4, b, None, 4, out, None, count)
    >>> print(out[: count[0]])
    [2 2 5]
    """
    first, second = (d_in_keys1, d_in_items1), (d_in_keys2, d_in_items2)
    outputs = d_out_keys, d_out_items, d_out_num_selected
    return _set("set_intersection", first, second, outputs, op, cc, wait, link)


@memoised
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
) -> SetOperation:
    """Build the difference of two sorted ranges, or fetch it from the cache.

    Of m keys of the first range and n of the second that are equal, it has the
    last max(m - n, 0) of the first range, sorted.

    Parameters
    ----------
    d_in_keys1, d_in_keys2 : device arrays, iterators or dtypes, n and m items
        The keys of both ranges, each sorted by `op`: of one dtype. Only that
        matters here.
    d_in_items1 : device array, iterator, dtype or None, n items
        What goes with the keys of the first range, if anything.
    d_in_items2 : None
        Nothing comes from the second range.
    d_out_keys, d_out_items : device arrays, iterators or dtypes
        Where keys and their items go, n at most, of the same dtypes or ones
        that they are converted to. They may not overlap the inputs.
        `d_out_items` is None if the keys have no items.
    d_out_num_selected : device array, iterator or dtype, 1 item
        Where goes how many they are: an integer of 4 or 8 bytes.
    op : callable, OpKind, RawOp or None
        Whether its first key goes before its second: a strict weak order, the
        one that both ranges are sorted by. None: ``<``.
    cc, wait, link : optional
        What to build for (90, "cpu"), whether to wait for that, and code that
        operators call: see `Algorithm`, which also lists exceptions.

    Returns
    -------
    SetOperation

    Examples
    --------
    >>> import numpy as np, cupar
    >>> a, b = np.array([1, 2, 2, 5]), np.array([2, 3])
    >>> out, count = np.zeros(4, np.int64), np.zeros(1, np.int64)
    >>> arrays = a, None, b, None, out, None, count
    >>> left = cupar.set_difference(*arrays, cc="cpu")
    >>> left.run(a, None, 4, b, None, 2, out, None, count)
    >>> print(out[: count[0]])
    [1 2 5]
    """
    first, second = (d_in_keys1, d_in_items1), (d_in_keys2, d_in_items2)
    outputs = d_out_keys, d_out_items, d_out_num_selected
    return _set("set_difference", first, second, outputs, op, cc, wait, link)


@memoised
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
) -> SetOperation:
    """Build the symmetric difference of two ranges, or fetch it from the cache.

    Of m keys of the first range and n of the second that are equal, it has
    the last m - n of the first range, or the last n - m of the second: sorted,
    as both ranges are.

    Parameters
    ----------
    d_in_keys1, d_in_keys2 : device arrays, iterators or dtypes, n and m items
        The keys of both ranges, each sorted by `op`: of one dtype. Only that
        matters here.
    d_in_items1, d_in_items2 : device arrays, iterators, dtypes or None
        What goes with them, n and m items, if anything: of one dtype.
    d_out_keys, d_out_items : device arrays, iterators or dtypes
        Where keys and their items go, n + m at most, of the same dtypes or ones
        that they are converted to. They may not overlap the inputs.
        `d_out_items` is None if the keys have no items.
    d_out_num_selected : device array, iterator or dtype, 1 item
        Where goes how many they are: an integer of 4 or 8 bytes.
    op : callable, OpKind, RawOp or None
        Whether its first key goes before its second: a strict weak order, the
        one that both ranges are sorted by. None: ``<``.
    cc, wait, link : optional
        What to build for (90, "cpu"), whether to wait for that, and code that
        operators call: see `Algorithm`, which also lists exceptions.

    Returns
    -------
    SetOperation

    Examples
    --------
    >>> import numpy as np, cupar
    >>> a, b = np.array([1, 2, 2, 5]), np.array([2, 3])
    >>> out, count = np.zeros(6, np.int64), np.zeros(1, np.int64)
    >>> arrays = a, None, b, None, out, None, count
    >>> either = cupar.set_symmetric_difference(*arrays, cc="cpu")
    >>> either.run(a, None, 4, b, None, 2, out, None, count)
    >>> print(out[: count[0]])
    [1 2 3 5]
    """
    first, second = (d_in_keys1, d_in_items1), (d_in_keys2, d_in_items2)
    outputs = d_out_keys, d_out_items, d_out_num_selected
    return _set("set_symmetric_difference", first, second, outputs, op, cc, wait, link)


def _set(
    algorithm: str,
    first: tuple[Any, Any],
    second: tuple[Any, Any],
    outputs: tuple[Any, Any, Any],
    op: Op | None,
    cc: Any,
    wait: bool,
    link: Any,
) -> SetOperation:
    (keys1, items1), (keys2, items2), (keys_out, items_out, count) = first, second, outputs
    key = argument("d_in_keys1", keys1)
    arguments: tuple[Argument, ...] = key, same_dtype("d_in_keys2", keys2, key)
    to: tuple[Argument, ...] = (converting("d_out_keys", keys_out, key),)
    given = {"d_in_items1": items1, "d_in_items2": items2, "d_out_items": items_out}
    if algorithm in ("set_intersection", "set_difference"):
        del given["d_in_items2"]
        if items2 is not None:
            raise TypeError(
                f"d_in_items2: expected None, as {algorithm} takes nothing from the second range, got "
                f"{type(items2).__name__}"
            )
    there = [name for name, each in given.items() if each is not None]
    if there:
        for name, each in given.items():
            if each is None:
                raise TypeError(
                    f"{name}: expected a device array or a dtype, since there is {there[0]}, got None"
                )
        item = argument("d_in_items1", items1)
        # In the order of calls.
        arguments = key, item, arguments[1]
        if "d_in_items2" in given:
            arguments += (same_dtype("d_in_items2", items2, item),)
        to += (converting("d_out_items", items_out, item),)
    to += (integers("d_out_num_selected", count, smallest=4, output=True),)
    compare = resolve(
        OpKind.LESS if op is None else op, (key.value, key.value), np.dtype(bool), recognise=True
    )
    return obtain(SetOperation, algorithm, (*arguments, *to), {"op": compare}, cc, wait, link)
