"""Reductions by index: items of each bin combined, where an index says which bin an item is in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import structs
from ._arguments.numbers import item_count, refuse
from ._arguments.order import two_phases
from ._base.errors import ArgumentTypeError
from ._call.algorithm import Algorithm
from ._kernels.reduce_by_index import REDUCE_BY_INDEX, ReduceByIndexProblem
from ._obtain.arguments import accumulation, integers
from ._obtain.factory_cache import memoised
from ._obtain.obtain import obtain
from .operators import Op, OpKind
from .reduce import Determinism, known_determinism

if TYPE_CHECKING:
    from ._base.annotations import Array, ArrayOrType, ComputeCapability, Stream

_MOST_BINS = 2**31 - 1
_MOST_BYTES = 512  # of a value: eight of them are a table of one bin


def _indexed(num_items: int, num_bins: int) -> ReduceByIndexProblem:
    bins = item_count("num_bins", num_bins)
    if bins > _MOST_BINS:
        refuse("num_bins", "expected at most 2**31 - 1", ", got {}", bins)
    return ReduceByIndexProblem(item_count("num_items", num_items), bins)


class ReduceByIndex(
    Algorithm,
    family=REDUCE_BY_INDEX,
    uses={"d_in": "num_items", "d_indices": "num_items", "d_out": "num_bins"},
    disjoint_outputs=True,
):
    """A reduction by index for given types and operator; see `reduce_by_index`."""

    def run(
        self,
        d_in: Array,
        d_indices: Array,
        d_out: Array,
        num_items: int,
        num_bins: int,
        h_init: Any,
        stream: Stream = None,
    ) -> None:
        """Combine the first `num_items` items, 0 or more, in `num_bins` bins.

        There may be 2**32 items and more, and at most 2**31 - 1 bins. What `d_out`
        held before is overwritten. `h_init` is the initial value, of the kind
        that the reduction was built with; `stream` as in `Algorithm`.
        """
        self._run(stream, (d_in, d_indices, d_out, num_items, num_bins, h_init))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    _problem_maker = staticmethod(lambda spec: _indexed)


@memoised
def reduce_by_index(
    d_in: ArrayOrType,
    d_indices: ArrayOrType,
    d_out: ArrayOrType,
    op: Op,
    h_init: Any,
    *,
    determinism: Determinism = Determinism.RUN_TO_RUN,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> ReduceByIndex:
    """Build a reduction by index, or fetch it from the cache.

    The items whose index is i, and `h_init`, are combined into ``d_out[i]``.
    Indices come in any order. An item whose index is below 0, or not below the
    number of bins, is left out. With `OpKind.PLUS` it is a sum of segments by
    their ids, or a histogram with weights.

    Parameters
    ----------
    d_in : device array, iterator or dtype, num_items items
        The input. Only its dtype matters here.
    d_indices : device array, iterator or dtype, num_items items
        In which bin each item is: integers.
    d_out : device array, iterator or dtype, num_bins items
        Where the results go. Its dtype may differ from the accumulator's. It
        may not overlap the inputs.
    op : callable, OpKind or RawOp
        Combines two values of the accumulator's dtype. It must be associative
        and commutative: either may be that of earlier items. Order and grouping
        are unspecified, but by default the same in every run on the same kind
        of GPU.
    h_init : number, struct or array of one element
        The initial value of each bin. Its dtype is the accumulator's. A number
        of Python's has none, and takes `d_in`'s, in which sums may wrap:
        ``np.int64(0)`` has integers added in int64.
    determinism : Determinism, optional
        `Determinism.NOT_GUARANTEED`: sums of floats by `OpKind.PLUS` may be
        rounded differently in each run, which is quicker if there are more than
        a few thousand bins. All else is the same in every run.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    ReduceByIndex
        It serves any number of bins and items.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> items, indices = np.array([1, 2, 3, 4]), np.array([2, 0, 2, 0])
    >>> sums = np.zeros(3, np.int64)
    >>> add = lambda a, b: a + b
    >>> arrays = items, indices, sums
    >>> by_index = cupar.reduce_by_index(*arrays, add, 0, cc="cpu")
    >>> by_index.run(*arrays, 4, 3, 0)
    >>> print(sums)
    [6 0 4]

    Notes
    -----
    Threads combine in tables of their own in shared memory, warps where there
    are more bins; see T. Henriksen, S. Hellfritzsch, P. Sadayappan, C. Oancea,
    "Compiling generalized histograms for GPU", SC 2020. Where tables hold only
    a part of the bins, items are read once for each part, unless atomic
    operations take the tables' place: sums, minima, maxima and bits of integers
    of 4 or 8 bytes, and sums of floats that may differ from run to run.
    """
    if h_init is None:
        raise ArgumentTypeError(
            "h_init", "a reduction by index needs an initial value, the result of an empty bin"
        )
    wanted = known_determinism(determinism)
    types = accumulation(d_in, d_out, op, h_init)
    if types.accumulator.itemsize > _MOST_BYTES:
        raise ArgumentTypeError(
            "d_in", f"expected values of at most {_MOST_BYTES} bytes, got {types.accumulator}"
        )
    indices = integers("d_indices", d_indices)
    is_sum = types.operator.kind is OpKind.PLUS and structs.kind_of(types.accumulator) == "f"
    is_free = is_sum and wanted is Determinism.NOT_GUARANTEED
    options = {"determinism": wanted.name} if is_free else {}
    return obtain(
        ReduceByIndex,
        "reduce_by_index",
        (types.d_in, indices, types.d_out),
        {"op": types.operator},
        cc,
        wait,
        link,
        init=types.init,
        **options,
    )
