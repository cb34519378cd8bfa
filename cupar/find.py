"""The first item for which a predicate holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._arguments.order import two_phases
from ._base.errors import ArgumentValueError
from ._call.algorithm import Algorithm
from ._ir.resolve import resolve
from ._kernels.find import FIND
from ._obtain.arguments import argument, integers
from ._obtain.factory_cache import memoised
from ._obtain.obtain import obtain
from .operators import Op

if TYPE_CHECKING:
    from ._base.annotations import Array, ArrayOrType, ComputeCapability, Stream


class FindIf(Algorithm, family=FIND, uses={"d_in": "num_items", "d_out": 1}):
    """A search for the first item for which a predicate holds; see `find_if`."""

    def run(self, d_in: Array, d_out: Array, num_items: int, stream: Stream = None) -> None:
        """Write the index of the first of `num_items` items that fits to ``d_out[0]``.

        There may be 0 items, and 2**32 and more; `stream` as in `Algorithm`.
        """
        self._run(stream, (d_in, d_out, num_items))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""


@memoised
def find_if(
    d_in: ArrayOrType,
    d_out: ArrayOrType,
    cond: Op,
    *,
    none: int | None = None,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> FindIf:
    """Build a search for the first item that fits, or fetch it from the cache.

    It stops early: little is read behind the first item for which a predicate
    holds. That must depend on its item alone, as it may be called for any item.

    Parameters
    ----------
    d_in : device array, iterator or dtype, n items
        The input. Only its dtype matters here.
    d_out : device array, iterator or dtype, 1 item
        Where the index goes: an integer of 4 or 8 bytes.
    cond : callable, OpKind or RawOp
        A predicate of one item.
    none : int, optional
        The result if it holds for no item: -1, or by default the number
        of items.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    FindIf

    Examples
    --------
    >>> import numpy as np, cupar
    >>> items, index = np.array([3, 1, -4, 1, -5]), np.zeros(1, np.int64)
    >>> negative = cupar.find_if(items, index, lambda a: a < 0, cc="cpu")
    >>> negative.run(items, index, 5)
    >>> print(index)
    [2]

    Notes
    -----
    It does what CUB's ``DeviceFind::FindIf`` does, by kernels of cupar's own.
    """
    items = argument("d_in", d_in)
    arguments = items, integers("d_out", d_out, smallest=4, output=True)
    if none is not None and (isinstance(none, bool) or none != -1):
        raise ArgumentValueError("none", f"expected -1, or None for the number of items, got {none!r}")
    # A kind as a function, too: so it shares a template with all other predicates.
    predicate = resolve(cond, (items.value,), np.dtype(bool), "cond", as_function=True)
    return obtain(FindIf, "find_if", arguments, {"cond": predicate}, cc, wait, link, none=none and "-1")
