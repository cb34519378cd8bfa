"""Partitions: items sent to the arrays that predicates choose for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._arguments.order import two_phases
from ._base.errors import ArgumentTypeError
from ._call.algorithm import Algorithm
from ._ir.nodes import Argument
from ._ir.operator import Operator
from ._ir.resolve import resolve
from ._kernels.compact import PARTITION, SELECT
from ._obtain.arguments import argument, converting, integers
from ._obtain.factory_cache import memoised
from ._obtain.obtain import obtain
from .operators import Op

if TYPE_CHECKING:
    from ._base.annotations import Array, ArrayOrType, ComputeCapability, Stream


class ThreeWayPartition(
    Algorithm,
    family=PARTITION,
    uses={
        "d_in": "num_items",
        "d_first_part_out": 0,
        "d_second_part_out": 0,
        "d_unselected_out": 0,
        "d_num_selected_out": 2,
    },
    disjoint_outputs=True,
):
    """A partition into three arrays; see `three_way_partition`."""

    def run(
        self,
        d_in: Array,
        d_first_part_out: Array,
        d_second_part_out: Array,
        d_unselected_out: Array,
        d_num_selected_out: Array,
        num_items: int,
        stream: Stream = None,
    ) -> None:
        """Partition the first `num_items` items of `d_in`.

        There may be 0 items, and 2**32 and more.

        The outputs must have space for as many items as go there, which is not
        checked; `stream` as in `Algorithm`.
        """
        outputs = (d_first_part_out, d_second_part_out, d_unselected_out, d_num_selected_out)
        self._run(stream, (d_in, *outputs, num_items))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""


class Select(
    Algorithm,
    family=SELECT,
    uses={"d_in": "num_items", "d_out": 0, "d_num_selected_out": 1, "d_flags": "num_items"},
    disjoint_outputs=True,
):
    """A selection of the items for which a predicate holds; see `select`."""

    def run(
        self,
        d_in: Array,
        d_out: Array,
        d_num_selected_out: Array,
        num_items: int,
        stream: Stream = None,
        *,
        d_flags: Array | None = None,
    ) -> None:
        """Select from the first `num_items` items of `d_in`.

        There may be 0 items, and 2**32 and more.

        `d_out` must have space for as many items as are selected, which is not
        checked. `d_flags` is None if the selection was built without; `stream`
        as in `Algorithm`.
        """
        self._run(stream, (d_in, d_out, d_num_selected_out, num_items, d_flags))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""


@memoised
def three_way_partition(
    d_in: ArrayOrType,
    d_first_part_out: ArrayOrType,
    d_second_part_out: ArrayOrType,
    d_unselected_out: ArrayOrType,
    d_num_selected_out: ArrayOrType,
    select_first_part_op: Op,
    select_second_part_op: Op,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> ThreeWayPartition:
    """Build a partition into three arrays, or fetch it from the cache.

    An item goes to the first part if the first predicate holds, else to the
    second part if the second one does, else to the unselected items. Within
    each array, items are in the order of the input.

    Parameters
    ----------
    d_in : device array, iterator or dtype, n items
        The input. Only its dtype matters here.
    d_first_part_out, d_second_part_out, d_unselected_out : arrays or dtypes
        Where the items go, of the same dtype or one that they are converted to.
        None of them may overlap the input, or another one; one array given
        twice is refused.
    d_num_selected_out : device array, iterator or dtype, 2 items
        Where the sizes of the first and the second part go: integers of 4 or 8
        bytes.
    select_first_part_op, select_second_part_op : callable, OpKind or RawOp
        Predicates of one item.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    ThreeWayPartition

    Examples
    --------
    >>> import numpy as np, cupar
    >>> items = np.array([5, -1, 500, 7, -2])
    >>> first, second, rest = np.zeros((3, 5), np.int64)
    >>> counts = np.zeros(2, np.int64)
    >>> arrays = items, first, second, rest, counts
    >>> negative, large = lambda a: a < 0, lambda a: a > 100
    >>> parts = cupar.three_way_partition(*arrays, negative, large, cc="cpu")
    >>> parts.run(*arrays, 5)
    >>> print(first[: counts[0]], second[: counts[1]], rest[: 5 - counts.sum()])
    [-1 -2] [500] [5 7]

    Notes
    -----
    It does what CUB's ``DevicePartition::If`` with two predicates does, by
    kernels of cupar's own.
    """
    items = argument("d_in", d_in)
    arguments = (
        items,
        converting("d_first_part_out", d_first_part_out, items),
        converting("d_second_part_out", d_second_part_out, items),
        converting("d_unselected_out", d_unselected_out, items),
        integers("d_num_selected_out", d_num_selected_out, smallest=4, output=True),
    )
    operators = {
        "select_first_part_op": _predicate("select_first_part_op", select_first_part_op, items),
        "select_second_part_op": _predicate("select_second_part_op", select_second_part_op, items),
    }
    return obtain(ThreeWayPartition, "three_way_partition", arguments, operators, cc, wait, link)


@memoised
def select(
    d_in: ArrayOrType,
    d_out: ArrayOrType,
    d_num_selected_out: ArrayOrType,
    cond: Op | None = None,
    *,
    d_flags: ArrayOrType | None = None,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> Select:
    """Build a selection by a predicate, or fetch it from the cache.

    Parameters
    ----------
    d_in : device array, iterator or dtype, n items
        The input. Only its dtype matters here.
    d_out : device array, iterator or dtype, as many items as are selected
        Where they go, in the order of the input, of the same dtype or one that
        they are converted to. It may not overlap the input.
    d_num_selected_out : device array, iterator or dtype, 1 item
        Where the number of selected items goes: an integer of 4 or 8 bytes.
    cond : callable, OpKind, RawOp or None
        A predicate of one item, or of its flag if there are flags. None, with
        flags: those that are not 0.
    d_flags : device array, iterator, dtype or None, n items
        What tells which items are selected, in place of the items. An iterator
        `d_in` is read only where items are selected then.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    Select

    Examples
    --------
    >>> import numpy as np, cupar
    >>> items, kept = np.array([3, -1, 2, -5]), np.zeros(4, np.int64)
    >>> count = np.zeros(1, np.int64)
    >>> positive = cupar.select(items, kept, count, lambda a: a > 0, cc="cpu")
    >>> positive.run(items, kept, count, 4)
    >>> print(kept[: count[0]])
    [3 2]

    Flags are given to the factory and to calls; a predicate would be of these.

    >>> flags = np.array([True, False, False, True])
    >>> flagged = cupar.select(items, kept, count, d_flags=flags, cc="cpu")
    >>> flagged.run(items, kept, count, 4, d_flags=flags)
    >>> print(kept[: count[0]])
    [ 3 -5]

    Notes
    -----
    It does what CUB's ``DeviceSelect::If`` does, and with flags ``Flagged`` and
    ``FlaggedIf``, by kernels of cupar's own.
    """
    told = items = argument("d_in", d_in)
    arguments = [
        items,
        converting("d_out", d_out, items),
        integers("d_num_selected_out", d_num_selected_out, smallest=4, output=True),
    ]
    if d_flags is not None:
        told = argument("d_flags", d_flags)
        arguments.append(told)
        cond = _is_set if cond is None else cond
    if cond is None:
        raise ArgumentTypeError("cond", "expected a predicate, as there are no flags, got None")
    return obtain(Select, "select", arguments, {"cond": _predicate("cond", cond, told)}, cc, wait, link)


def _is_set(flag: Any) -> Any:
    return flag != 0


def _predicate(name: str, op: Op, items: Argument) -> Operator:
    """Resolve a predicate of items; there may be two, so messages name the parameter."""
    # Kinds as functions, too: so they share a template with all other predicates.
    return resolve(op, (items.value,), np.dtype(bool), name, as_function=True)
