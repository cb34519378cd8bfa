"""Reduction: all items of an array combined into one."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

from ._arguments.order import two_phases
from ._base.errors import ArgumentValueError
from ._call.algorithm import Algorithm
from ._kernels.reduce import REDUCE
from ._obtain.arguments import Accumulation, accumulation, choice, in_order
from ._obtain.factory_cache import memoised
from ._obtain.obtain import obtain
from .operators import Op, OpKind

if TYPE_CHECKING:
    from ._base.annotations import Array, ArrayOrType, ComputeCapability, Stream


class Determinism(IntEnum):
    """How far the result of a reduction is repeatable.

    Values are CCCL's (``cccl_determinism_t``).

    `NOT_GUARANTEED` may be quicker, as blocks add their sums in whatever order
    they finish. It is for `OpKind.PLUS` with an initial value and an output of
    the accumulator's dtype. There is no `GPU_TO_GPU`, the same on all GPUs, yet.
    """

    NOT_GUARANTEED = 0
    RUN_TO_RUN = 1
    GPU_TO_GPU = 2


class Reduce(Algorithm, family=REDUCE, uses={"d_in": "num_items", "d_out": 1}, any_order=("d_in",)):
    """A reduction for given types, operator and device; see `reduce_into`."""

    def run(
        self, d_in: Array, d_out: Array, num_items: int, h_init: Any = None, stream: Stream = None
    ) -> None:
        """Reduce the first `num_items` items into ``d_out[0]``.

        There may be 0 items, and 2**32 and more.

        `h_init` is the initial value, of the kind the reduction was built with;
        `stream` as in `Algorithm`.
        """
        self._run(stream, (d_in, d_out, num_items, h_init))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""


class ReduceInOrder(Reduce, family=REDUCE, uses=Reduce._uses):
    """A reduction of items in their order; see `reduce_into`."""


@memoised
def reduce_into(
    d_in: ArrayOrType,
    d_out: ArrayOrType,
    op: Op,
    h_init: Any = None,
    *,
    determinism: Determinism = Determinism.RUN_TO_RUN,
    commutative: bool = True,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> Reduce:
    """Build a reduction, or fetch it from the cache.

    Parameters
    ----------
    d_in : device array, iterator or dtype, n items
        The input. Only its dtype matters here.
    d_out : device array, iterator or dtype, 1 item
        Where the result goes. Its dtype may differ from the accumulator's.
    op : callable, OpKind or RawOp
        Combines two values of the accumulator's dtype. It must be associative
        and, unless `commutative` is False, commutative: either may be that
        of earlier items. Order and grouping are unspecified, but by default
        the same in every run on the same kind of GPU.
    h_init : number, struct, array of one element or None
        The initial value. Its dtype is the accumulator's. A number of Python's
        has none, and takes `d_in`'s, in which sums may wrap: ``np.int64(0)``
        has integers added in int64. With None there is no initial value, the
        accumulator has `d_in`'s dtype, and a reduction of 0 items leaves
        `d_out` as it was.
    determinism : Determinism, optional
        Whether floats must give the same sum in every run.
    commutative : bool, optional
        False: `op` need not be commutative. Items are combined in their order,
        the initial value before them, in any grouping.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    Reduce

    Examples
    --------
    >>> import numpy as np, cupar
    >>> items, total = np.arange(1, 5), np.zeros(1, np.int64)
    >>> add = lambda a, b: a + b
    >>> sum_into = cupar.reduce_into(items, total, add, 0, cc="cpu")
    >>> sum_into.run(items, total, len(items), 0)
    >>> print(total)
    [10]

    On a GPU, leave out `cc`, and give arrays that are there.

    Notes
    -----
    The algorithm is CUB's ``DeviceReduce``: D. Merrill, "CUB",
    https://nvidia.github.io/cccl/cub.
    """
    types = accumulation(d_in, d_out, op, h_init)
    wanted = _supported(determinism, types)
    options = in_order(commutative)
    if not commutative and wanted is Determinism.NOT_GUARANTEED:
        raise ArgumentValueError(
            "determinism", "NOT_GUARANTEED adds in any order, which commutative=False does not allow"
        )
    operators = {"op": types.operator}
    return obtain(
        Reduce if commutative else ReduceInOrder,
        "reduce_into",
        (types.d_in, types.d_out),
        operators,
        cc,
        wait,
        link,
        init=types.init,
        determinism=wanted.name,
        **options,
    )


def known_determinism(determinism: Any) -> Determinism:
    """Return a determinism that there is; raise TypeError or ValueError otherwise."""
    wanted = choice("determinism", Determinism, determinism)
    if wanted is Determinism.GPU_TO_GPU:
        raise ArgumentValueError("determinism", "there is no GPU_TO_GPU yet; RUN_TO_RUN is the default")
    return wanted


def _supported(determinism: Any, types: Accumulation) -> Determinism:
    """Return a determinism, or raise unless there are kernels of it for these types and operator."""
    wanted = known_determinism(determinism)
    same = types.d_out.value == types.accumulator and types.accumulator.kind != "c"
    plus = types.operator.kind is OpKind.PLUS and types.init is not None and same
    if wanted is Determinism.NOT_GUARANTEED and not plus:
        raise ArgumentValueError(
            "determinism",
            "NOT_GUARANTEED is for OpKind.PLUS of real numbers alone, with an initial "
            f"value and an output of the accumulator's dtype; got operator {types.operator.name} for "
            f"{types.operator.signature}, output {types.d_out.value}",
        )
    return wanted
