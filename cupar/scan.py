"""Prefix scans: each item of the output combines all items of the input up to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._arguments.order import two_phases
from ._call.algorithm import Algorithm
from ._kernels.scan import SCAN
from ._obtain.arguments import accumulation, check_start
from ._obtain.factory_cache import memoised
from ._obtain.obtain import obtain
from .operators import Op

if TYPE_CHECKING:
    from ._base.annotations import Array, ArrayOrType, ComputeCapability, Stream


class Scan(Algorithm, family=SCAN, uses={"d_in": "num_items", "d_out": "num_items"}):
    """A scan for given types, operator and device; see `exclusive_scan`."""

    def run(
        self, d_in: Array, d_out: Array, num_items: int, h_init: Any = None, stream: Stream = None
    ) -> None:
        """Scan the first `num_items` items of `d_in` into `d_out`.

        There may be 0 items, and 2**32 and more.

        `h_init` is the initial value, of the kind the scan was built with;
        `stream` as in `Algorithm`.
        """
        self._run(stream, (d_in, d_out, num_items, h_init))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""


@memoised
def exclusive_scan(
    d_in: ArrayOrType,
    d_out: ArrayOrType,
    op: Op,
    h_init: Any,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> Scan:
    """Build an exclusive scan, or fetch it from the cache.

    Item i combines `h_init` and items 0 to i - 1.

    Parameters
    ----------
    d_in : device array, iterator or dtype, n items
        The input. Only its dtype matters here.
    d_out : device array, iterator or dtype, n items
        Where the result goes; it may be `d_in` itself. Its dtype may differ
        from the accumulator's.
    op : callable, OpKind or RawOp
        Combines two values of the accumulator's dtype, the first of which is
        that of earlier items (`h_init` comes before all). It must be
        associative; it need not be commutative.
    h_init : number, struct or array of one element
        The initial value; that in a device array is read when the scan runs.
        Its dtype is the accumulator's. A number of Python's has none, and takes
        `d_in`'s, in which sums may wrap: ``np.int64(0)`` has integers added in
        int64.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    Scan

    Examples
    --------
    >>> import numpy as np, cupar
    >>> lengths, starts = np.array([3, 1, 2]), np.zeros(3, np.int64)
    >>> add = cupar.OpKind.PLUS
    >>> scan = cupar.exclusive_scan(lengths, starts, add, 0, cc="cpu")
    >>> scan.run(lengths, starts, 3, 0)
    >>> print(starts)
    [0 3 4]

    Notes
    -----
    The algorithm is CUB's ``DeviceScan``: D. Merrill and M. Garland,
    "Single-pass Parallel Prefix Scan with Decoupled Look-back", NVIDIA
    Technical Report NVR-2016-002. The sums of floats may differ in their last
    bits from run to run, since the grouping of items depends on timing.
    """
    return _scan("exclusive_scan", d_in, d_out, op, h_init, cc, wait, link)


@memoised
def inclusive_scan(
    d_in: ArrayOrType,
    d_out: ArrayOrType,
    op: Op,
    h_init: Any = None,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> Scan:
    """Build an inclusive scan, or fetch it from the cache.

    Item i combines `h_init` and items 0 to i.

    Parameters
    ----------
    d_in : device array, iterator or dtype, n items
        The input. Only its dtype matters here.
    d_out : device array, iterator or dtype, n items
        Where the result goes; it may be `d_in` itself. Its dtype may differ
        from the accumulator's.
    op : callable, OpKind or RawOp
        Combines two values of the accumulator's dtype, the first of which is
        that of earlier items (`h_init` comes before all). It must be
        associative; it need not be commutative.
    h_init : number, struct, array of one element or None
        The initial value; that in a device array is read when the scan runs.
        Its dtype is the accumulator's. A number of Python's has none, and takes
        `d_in`'s, in which sums may wrap: ``np.int64(0)`` has integers added in
        int64. With None there is no initial value, and the accumulator has
        `d_in`'s dtype.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    Scan

    Examples
    --------
    >>> import numpy as np, cupar
    >>> items, highest = np.array([3, 1, 4, 1]), np.zeros(4, np.int64)
    >>> larger = lambda a, b: a if a > b else b
    >>> running = cupar.inclusive_scan(items, highest, larger, cc="cpu")
    >>> running.run(items, highest, 4)
    >>> print(highest)
    [3 3 4 4]
    """
    return _scan("inclusive_scan", d_in, d_out, op, h_init, cc, wait, link)


def _scan(algorithm: str, d_in: Any, d_out: Any, op: Op, h_init: Any, cc: Any, wait: bool, link: Any) -> Scan:
    check_start(algorithm, h_init, "its first item")
    types = accumulation(d_in, d_out, op, h_init, is_scan=True)
    return obtain(
        Scan, algorithm, (types.d_in, types.d_out), {"op": types.operator}, cc, wait, link, init=types.init
    )
