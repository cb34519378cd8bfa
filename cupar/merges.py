"""Merges of two sorted ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._call.algorithm import Algorithm
from ._ir.nodes import Argument
from ._ir.resolve import resolve
from ._kernels.merge import MERGE, MergeProblem
from ._launch.arguments import two_phases
from ._obtain.arguments import argument, converting, same_dtype
from ._obtain.factory_cache import memoised
from ._obtain.obtain import obtain
from .operators import Op, OpKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._base.annotations import Array, ArrayOrType, ComputeCapability, Stream
    from ._ir.specialisation import Specialisation


class Merge(
    Algorithm,
    family=MERGE,
    uses={
        **{"d_in_keys1": "num_items1", "d_in_items1": "num_items1"},
        **{"d_in_keys2": "num_items2", "d_in_items2": "num_items2"},
        **{"d_out_keys": "num_items", "d_out_items": "num_items"},
    },
    disjoint_outputs=True,
):
    """A stable merge of two sorted ranges by a comparison; see `merge`."""

    def run(
        self,
        d_in_keys1: Array,
        d_in_items1: Array | None,
        num_items1: int,
        d_in_keys2: Array,
        d_in_items2: Array | None,
        num_items2: int,
        d_out_keys: Array,
        d_out_items: Array | None = None,
        stream: Stream = None,
    ) -> None:
        """Merge the first `num_items1` keys of one range and `num_items2` of another.

        Their items are merged with them, if it has any. Both counts may be 0 or
        more; 2**32 and beyond are fine. The outputs have room for their sum.
        `stream` as in `Algorithm`.
        """
        first, second = (d_in_keys1, d_in_items1, num_items1), (d_in_keys2, d_in_items2, num_items2)
        self._run(stream, (*first, *second, d_out_keys, d_out_items))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    @staticmethod
    def _problem_maker(spec: Specialisation) -> Callable[..., MergeProblem]:
        return lambda num_items1, num_items2: MergeProblem(num_items1, num_items2, num_items1 + num_items2)


@memoised
def merge(
    d_in_keys1: ArrayOrType,
    d_in_items1: ArrayOrType | None,
    d_in_keys2: ArrayOrType,
    d_in_items2: ArrayOrType | None,
    d_out_keys: ArrayOrType,
    d_out_items: ArrayOrType | None = None,
    op: Op | None = OpKind.LESS,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
) -> Merge:
    """Build a stable merge of two sorted ranges, or fetch it from the cache.

    The output has the keys of both ranges, sorted. Of equal keys, those of the
    first range come first, and those of a range stay in their order.

    Parameters
    ----------
    d_in_keys1, d_in_keys2 : device arrays, iterators or dtypes, n and m items
        The keys of both ranges, each sorted by `op`: of one dtype. Only that
        matters here.
    d_in_items1, d_in_items2 : device arrays, iterators, dtypes or None
        What goes with them, n and m items, if anything: of one dtype.
    d_out_keys, d_out_items : device arrays, iterators or dtypes, n + m items
        Where the merged keys and their items go, of the same dtypes or ones
        that they are converted to. They may not overlap the inputs.
        `d_out_items` is None if the keys have no items.
    op : callable, OpKind, RawOp or None
        Whether its first key goes before its second: a strict weak order, the
        one that both ranges are sorted by. None: ``<``.
    cc, wait, link : optional
        What to build for (90, "cpu"), whether to wait for that, and code that
        operators call: see `Algorithm`, which also lists exceptions.

    Returns
    -------
    Merge

    Examples
    --------
    >>> import numpy as np, cupar
    >>> odd, even = np.array([1, 3, 5]), np.array([2, 4])
    >>> out = np.zeros(5, np.int64)
    >>> both = cupar.merge(odd, None, even, None, out, cc="cpu")
    >>> both.run(odd, None, 3, even, None, 2, out)
    >>> print(out)
    [1 2 3 4 5]

    Notes
    -----
    The algorithm is CUB's ``DeviceMerge``: S. Odeh et al., "Merge Path -
    Parallel Merging Made Simple", IPDPSW 2012.
    """
    keys = _merged("keys", d_in_keys1, d_in_keys2, d_out_keys)
    beside: tuple[Argument, ...] = ()
    if d_in_items1 is not None or d_in_items2 is not None or d_out_items is not None:
        beside = _merged("items", d_in_items1, d_in_items2, d_out_items)
    # In the order of calls.
    pairs = zip(keys, beside, strict=True) if beside else ((each,) for each in keys)
    arguments = tuple(each for pair in pairs for each in pair)
    dtype = keys[0].value
    op = OpKind.LESS if op is None else op
    compare = resolve(op, (dtype, dtype), np.dtype(bool), recognise=True)
    return obtain(Merge, "merge", arguments, {"op": compare}, cc, wait, link)


def _merged(what: str, first: Any, second: Any, output: Any) -> tuple[Argument, ...]:
    """Describe keys or items of both ranges and of the output; raise TypeError if some are missing."""
    given = {f"d_in_{what}1": first, f"d_in_{what}2": second, f"d_out_{what}": output}
    for name, each in given.items():
        there = [other for other, value in given.items() if value is not None]
        if each is None:
            since = f", since there is {there[0]}" if there else ""
            raise TypeError(f"{name}: expected a device array or a dtype{since}, got None")
    name1, name2, name_out = given
    one = argument(name1, first)
    return one, same_dtype(name2, second, one), converting(name_out, output, one)
