"""Reductions, scans and counts of runs of equal keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._arguments.order import two_phases
from ._base.errors import ArgumentTypeError
from ._call.algorithm import Algorithm
from ._ir.nodes import Argument
from ._ir.operator import Operator
from ._ir.resolve import resolve
from ._kernels.runs import REDUCE_BY_KEY, RUN_LENGTH_ENCODE, SCAN_BY_KEY
from ._obtain.arguments import accumulation, argument, check_start, converting, integers
from ._obtain.factory_cache import memoised
from ._obtain.obtain import obtain
from .operators import Op, OpKind

if TYPE_CHECKING:
    from ._base.annotations import Array, ArrayOrType, ComputeCapability, Stream


class ReduceByKey(
    Algorithm,
    family=REDUCE_BY_KEY,
    uses={
        "d_in_keys": "num_items",
        "d_out_unique": 0,
        "d_in_values": "num_items",
        "d_out_aggregates": 0,
        "d_out_num_runs": 1,
    },
    disjoint_outputs=True,
):
    """A reduction of each run of equal keys; see `reduce_by_key`."""

    def run(
        self,
        d_in_keys: Array,
        d_out_unique: Array,
        d_in_values: Array,
        d_out_aggregates: Array,
        d_out_num_runs: Array,
        num_items: int,
        h_init: Any = None,
        stream: Stream = None,
    ) -> None:
        """Reduce the first `num_items` values.

        There may be 0 values, and 2**32 and more. `d_out_unique` and
        `d_out_aggregates` must have space for as many items as there are runs,
        which is not checked. `h_init` is the initial value, of the kind the
        reduction was built with; `stream` as in `Algorithm`.
        """
        arrays = d_in_keys, d_out_unique, d_in_values, d_out_aggregates, d_out_num_runs
        self._run(stream, (*arrays, num_items, h_init))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""


class ScanByKey(
    Algorithm,
    family=SCAN_BY_KEY,
    uses=dict.fromkeys(("d_in_keys", "d_in_values", "d_out_values"), "num_items"),
):
    """A scan of each run of equal keys; see `exclusive_scan_by_key`."""

    def run(
        self,
        d_in_keys: Array,
        d_in_values: Array,
        d_out_values: Array,
        num_items: int,
        h_init: Any = None,
        stream: Stream = None,
    ) -> None:
        """Scan the first `num_items` values into `d_out_values`.

        There may be 0 values, and 2**32 and more. `h_init` is the initial
        value, of the kind the scan was built with; `stream` as in `Algorithm`.
        """
        self._run(stream, (d_in_keys, d_in_values, d_out_values, num_items, h_init))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""


class RunLengthEncode(
    Algorithm,
    family=RUN_LENGTH_ENCODE,
    uses={"d_in": "num_items", "d_out_unique": 0, "d_out_counts": 0, "d_out_num_runs": 1},
    disjoint_outputs=True,
):
    """A run-length encoding; see `run_length_encode`."""

    def run(
        self,
        d_in: Array,
        d_out_unique: Array,
        d_out_counts: Array,
        d_out_num_runs: Array,
        num_items: int,
        stream: Stream = None,
    ) -> None:
        """Encode the first `num_items` items of `d_in`.

        There may be 0 items, and 2**32 and more. `d_out_unique` and
        `d_out_counts` must have space for as many items as there are runs,
        which is not checked; `stream` as in `Algorithm`.
        """
        self._run(stream, (d_in, d_out_unique, d_out_counts, d_out_num_runs, num_items))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""


@memoised
def reduce_by_key(
    d_in_keys: ArrayOrType,
    d_out_unique: ArrayOrType,
    d_in_values: ArrayOrType,
    d_out_aggregates: ArrayOrType,
    d_out_num_runs: ArrayOrType,
    op: Op,
    equality_op: Op | None = None,
    h_init: Any = None,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> ReduceByKey:
    """Build a reduction of runs of equal keys, or fetch it from the cache.

    A run is a sequence of keys of which each is equal to the one before it.
    Keys that are equal but not neighbours are in several runs: sort by key to
    have one of each.

    Parameters
    ----------
    d_in_keys : device array, iterator or dtype, num_items items
        The keys. Only their dtype matters here.
    d_out_unique : device array, iterator or dtype
        As many items as there are runs. Where the last key of each run goes, of
        the same dtype or one that it is converted to.
    d_in_values : device array, iterator or dtype, num_items items
        The values to reduce.
    d_out_aggregates : device array, iterator or dtype
        As many items as there are runs. Where the results go. Its dtype may
        differ from the accumulator's.
    d_out_num_runs : device array, iterator or dtype, 1 item
        Where the number of runs goes: an integer of 4 or 8 bytes.
    op : callable, OpKind or RawOp
        Combines two values of the accumulator's dtype, the first of which is
        that of earlier items (`h_init` comes before a run's). It must be
        associative; it need not be commutative.
    equality_op : callable, OpKind or RawOp, optional
        Whether a key is equal to the one before it. By default ``==``, which
        structs do not have.
    h_init : number, struct, array of one element or None
        The initial value of each run; that in a device array is read when the
        reduction runs. Its dtype is the accumulator's. A number of Python's has
        none, and takes `d_in_values`', in which sums may wrap: ``np.int64(0)``
        has integers added in int64. Without one, the accumulator has
        `d_in_values`' dtype.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    ReduceByKey

    Examples
    --------
    >>> import numpy as np, cupar
    >>> keys, values = np.array([1, 1, 2]), np.array([10, 11, 20])
    >>> unique, sums = np.zeros((2, 3), np.int64)
    >>> count = np.zeros(1, np.int64)
    >>> arrays = keys, unique, values, sums, count
    >>> add = cupar.OpKind.PLUS
    >>> sums_of_runs = cupar.reduce_by_key(*arrays, add, cc="cpu")
    >>> sums_of_runs.run(*arrays, 3)
    >>> print(unique[: count[0]], sums[: count[0]])
    [1 2] [21 20]

    Notes
    -----
    It does what CUB's ``DeviceReduce::ReduceByKey`` does, by kernels of cupar's
    own. No output may overlap an input. The sums of floats of a run of some
    thousand values or more may differ in their last bits from run to run, since
    the grouping of items depends on timing.
    """
    keys = argument("d_in_keys", d_in_keys)
    names = "d_in_values", "d_out_aggregates"
    types = accumulation(d_in_values, d_out_aggregates, op, h_init, is_scan=True, names=names)
    arguments = (
        keys,
        converting("d_out_unique", d_out_unique, keys),
        types.d_in,
        types.d_out,
        integers("d_out_num_runs", d_out_num_runs, smallest=4, output=True),
    )
    operators = {"op": types.operator, "equality_op": _equality(equality_op, keys)}
    return obtain(ReduceByKey, "reduce_by_key", arguments, operators, cc, wait, link, init=types.init)


@memoised
def exclusive_scan_by_key(
    d_in_keys: ArrayOrType,
    d_in_values: ArrayOrType,
    d_out_values: ArrayOrType,
    op: Op,
    h_init: Any,
    equality_op: Op | None = None,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> ScanByKey:
    """Build an exclusive scan by key, or fetch it from the cache.

    Each run of equal keys is scanned by itself. Item i combines `h_init` and
    those items of its run that come before it. Runs are as in `reduce_by_key`.

    Parameters
    ----------
    d_in_keys : device array, iterator or dtype, num_items items
        The keys. Only their dtype matters here.
    d_in_values : device array, iterator or dtype, num_items items
        The values to scan.
    d_out_values : device array, iterator or dtype, num_items items
        Where the result goes; it may be `d_in_values` itself, but not
        `d_in_keys`. Its dtype may differ from the accumulator's.
    op : callable, OpKind or RawOp
        Combines two values of the accumulator's dtype, the first of which is
        that of earlier items (`h_init` comes before a run's). It must be
        associative; it need not be commutative.
    h_init : number, struct or array of one element
        The initial value of each run; that in a device array is read when the
        scan runs. Its dtype is the accumulator's. A number of Python's has
        none, and takes `d_in_values`', in which sums may wrap: ``np.int64(0)``
        has integers added in int64.
    equality_op : callable, OpKind or RawOp, optional
        Whether a key is equal to the one before it. By default ``==``, which
        structs do not have.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    ScanByKey

    Examples
    --------
    >>> import numpy as np, cupar
    >>> keys, lengths = np.array([1, 1, 2, 2]), np.array([3, 1, 2, 5])
    >>> starts = np.zeros(4, np.int64)
    >>> offsets = cupar.exclusive_scan_by_key(
    ...     keys, lengths, starts, lambda a, b: a + b, 0, cc="cpu"
    ... )
    >>> offsets.run(keys, lengths, starts, 4, 0)
    >>> print(starts)
    [0 3 0 2]

    Notes
    -----
    It does what CUB's ``DeviceScan::ExclusiveScanByKey`` does, by kernels of
    cupar's own. The sums of floats may differ in their last bits from run to
    run, as in `reduce_by_key`.
    """
    given = d_in_keys, d_in_values, d_out_values, op, h_init, equality_op
    return _scan("exclusive_scan_by_key", *given, cc, wait, link)


@memoised
def inclusive_scan_by_key(
    d_in_keys: ArrayOrType,
    d_in_values: ArrayOrType,
    d_out_values: ArrayOrType,
    op: Op,
    h_init: Any = None,
    equality_op: Op | None = None,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> ScanByKey:
    """Build an inclusive scan by key, or fetch it from the cache.

    Each run of equal keys is scanned by itself. Item i combines `h_init`, those
    items of its run that come before it, and itself. Runs are as in
    `reduce_by_key`.

    Parameters
    ----------
    d_in_keys : device array, iterator or dtype, num_items items
        The keys. Only their dtype matters here.
    d_in_values : device array, iterator or dtype, num_items items
        The values to scan.
    d_out_values : device array, iterator or dtype, num_items items
        Where the result goes; it may be `d_in_values` itself, but not
        `d_in_keys`. Its dtype may differ from the accumulator's.
    op : callable, OpKind or RawOp
        Combines two values of the accumulator's dtype, the first of which is
        that of earlier items (`h_init` comes before a run's). It must be
        associative; it need not be commutative.
    h_init : number, struct, array of one element or None
        The initial value of each run; that in a device array is read when the
        scan runs. Its dtype is the accumulator's. A number of Python's has
        none, and takes `d_in_values`', in which sums may wrap: ``np.int64(0)``
        has integers added in int64. Without one, the accumulator has
        `d_in_values`' dtype.
    equality_op : callable, OpKind or RawOp, optional
        Whether a key is equal to the one before it. By default ``==``, which
        structs do not have.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    ScanByKey

    Examples
    --------
    >>> import numpy as np, cupar
    >>> keys, items = np.array([1, 1, 2, 2]), np.array([3, 1, 2, 5])
    >>> highest = np.zeros(4, np.int64)
    >>> peaks = cupar.inclusive_scan_by_key(
    ...     keys, items, highest, lambda a, b: a if a > b else b, cc="cpu"
    ... )
    >>> peaks.run(keys, items, highest, 4)
    >>> print(highest)
    [3 3 2 5]
    """
    given = d_in_keys, d_in_values, d_out_values, op, h_init, equality_op
    return _scan("inclusive_scan_by_key", *given, cc, wait, link)


def _scan(
    algorithm: str,
    d_in_keys: Any,
    d_in_values: Any,
    d_out_values: Any,
    op: Op,
    h_init: Any,
    equality_op: Op | None,
    cc: Any,
    wait: bool,
    link: Any,
) -> ScanByKey:
    check_start(algorithm, h_init, "the first item of each run")
    keys = argument("d_in_keys", d_in_keys)
    names = "d_in_values", "d_out_values"
    types = accumulation(d_in_values, d_out_values, op, h_init, is_scan=True, names=names)
    operators = {"op": types.operator, "equality_op": _equality(equality_op, keys)}
    arguments = keys, types.d_in, types.d_out
    return obtain(ScanByKey, algorithm, arguments, operators, cc, wait, link, init=types.init)


@memoised
def run_length_encode(
    d_in: ArrayOrType,
    d_out_unique: ArrayOrType,
    d_out_counts: ArrayOrType,
    d_out_num_runs: ArrayOrType,
    equality_op: Op | None = None,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> RunLengthEncode:
    """Build a run-length encoding, or fetch it from the cache.

    A run is a sequence of items of which each is equal to the one before it. Of
    each, the last item and the number of items are kept.

    Parameters
    ----------
    d_in : device array, iterator or dtype, num_items items
        The input. Only its dtype matters here.
    d_out_unique : device array, iterator or dtype
        As many items as there are runs. Where the last item of each run goes,
        of the same dtype or one that it is converted to.
    d_out_counts : device array, iterator or dtype
        As many items as there are runs. Where the lengths of runs go: integers,
        which must hold that of the longest.
    d_out_num_runs : device array, iterator or dtype, 1 item
        Where the number of runs goes: an integer of 4 or 8 bytes.
    equality_op : callable, OpKind or RawOp, optional
        Whether an item is equal to the one before it. By default ``==``, which
        structs do not have.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    RunLengthEncode

    Examples
    --------
    >>> import numpy as np, cupar
    >>> items = np.array([7, 7, 9, 7])
    >>> unique, lengths = np.zeros((2, 4), np.int64)
    >>> count = np.zeros(1, np.int64)
    >>> arrays = items, unique, lengths, count
    >>> encode = cupar.run_length_encode(*arrays, cc="cpu")
    >>> encode.run(*arrays, 4)
    >>> print(unique[: count[0]], lengths[: count[0]])
    [7 9 7] [2 1 1]

    Notes
    -----
    It does what CUB's ``DeviceRunLengthEncode::Encode`` does, by kernels of
    cupar's own. No output may overlap the input.
    """
    items = argument("d_in", d_in)
    arguments = (
        items,
        converting("d_out_unique", d_out_unique, items),
        integers("d_out_counts", d_out_counts, output=True),
        integers("d_out_num_runs", d_out_num_runs, smallest=4, output=True),
    )
    operators = {"equality_op": _equality(equality_op, items)}
    return obtain(RunLengthEncode, "run_length_encode", arguments, operators, cc, wait, link)


def _equality(op: Op | None, keys: Argument) -> Operator:
    """Resolve the operator that compares two keys."""
    if op is None:
        if keys.value.names is not None:
            raise ArgumentTypeError(
                "equality_op",
                f"expected an operator that tells whether two structs of {keys.name} are equal, got None",
            )
        op = OpKind.EQUAL_TO
    # Kinds as functions, too: so they share a template with all others.
    return resolve(op, (keys.value, keys.value), np.dtype(bool), "equality_op", as_function=True)
