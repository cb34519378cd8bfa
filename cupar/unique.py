"""Runs of equal keys reduced to their first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._arguments.order import two_phases
from ._base.errors import ArgumentTypeError
from ._call.algorithm import Algorithm
from ._ir import nodes
from ._ir.iterator import Iterator
from ._ir.nodes import Argument
from ._ir.resolve import resolve
from ._kernels.compact import UNIQUE
from ._obtain.arguments import argument, converting, integers
from ._obtain.factory_cache import memoised
from ._obtain.obtain import obtain
from .operators import Op

if TYPE_CHECKING:
    from ._base.annotations import Array, ArrayOrType, ComputeCapability, Stream


class UniqueByKey(
    Algorithm,
    family=UNIQUE,
    uses={
        "d_in_keys": "num_items",
        "d_in_items": "num_items",
        "d_out_keys": 0,
        "d_out_items": 0,
        "d_out_num_selected": 1,
    },
    disjoint_outputs=True,
):
    """A selection of unique keys; see `unique_by_key`."""

    def run(
        self,
        d_in_keys: Array,
        d_in_items: Array | None = None,
        d_out_keys: Array | None = None,
        d_out_items: Array | None = None,
        d_out_num_selected: Array | None = None,
        num_items: int | None = None,
        stream: Stream = None,
    ) -> None:
        """Select from the first `num_items` keys, 0 or more.

        The outputs must have space for as many items as there are runs, which
        is not checked. None for the items, in and out, if the selection was
        built without. `stream` as in `Algorithm`.
        """
        outputs = (d_out_keys, d_out_items, d_out_num_selected)
        self._run(stream, (d_in_keys, d_in_items, *outputs, num_items))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""


@memoised
def unique_by_key(
    d_in_keys: ArrayOrType,
    d_in_items: ArrayOrType | None = None,
    d_out_keys: ArrayOrType | None = None,
    d_out_items: ArrayOrType | None = None,
    d_out_num_selected: ArrayOrType | None = None,
    op: Op | None = None,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> UniqueByKey:
    """Build a selection of unique keys, or fetch it from the cache.

    The first of each run of equal keys is selected, with its item.

    Only the items have a default; what follows them is given by name where they
    are left out.

    Parameters
    ----------
    d_in_keys : device array, iterator or dtype, n items
        The keys. Only their dtype matters here.
    d_in_items : device array, iterator, dtype or None, n items
        What goes with them, if anything. A `DiscardIterator` says that it does
        not matter.
    d_out_keys, d_out_items : device arrays, iterators or dtypes
        As many items as there are runs. Where they go, of the same dtypes or
        ones that they are converted to. `d_out_items` is None if `d_in_items`
        is, and a `DiscardIterator` if that is one.
    d_out_num_selected : device array, iterator or dtype, 1 item
        Where the number of runs goes: an integer of 4 or 8 bytes.
    op : callable, OpKind or RawOp
        Whether two keys are equal.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    UniqueByKey

    Examples
    --------
    >>> import numpy as np, cupar
    >>> keys, items = np.array([1, 1, 2, 2]), np.array([10, 11, 20, 21])
    >>> out_keys, out_items = np.zeros((2, 4), np.int64)
    >>> count = np.zeros(1, np.int64)
    >>> arrays = keys, items, out_keys, out_items, count
    >>> runs = cupar.unique_by_key(*arrays, lambda a, b: a == b, cc="cpu")
    >>> runs.run(*arrays, 4)
    >>> print(out_keys[: count[0]], out_items[: count[0]])
    [1 2] [10 20]

    Notes
    -----
    It does what CUB's ``DeviceSelect::UniqueByKey`` does, by kernels of cupar's
    own.
    """
    keys = argument("d_in_keys", d_in_keys)
    items = _items(d_in_items, d_out_items)
    arguments = (
        keys,
        *items[:1],
        converting("d_out_keys", d_out_keys, keys),
        *items[1:],
        integers("d_out_num_selected", d_out_num_selected, smallest=4, output=True),
    )
    operators = {"op": resolve(op, (keys.value, keys.value), np.dtype(bool))}
    return obtain(UniqueByKey, "unique_by_key", arguments, operators, cc, wait, link)


def _items(d_in_items: Any, d_out_items: Any) -> tuple[Argument, ...]:
    """Describe what goes with the keys, in and out; nothing if nothing does."""
    if d_in_items is None and d_out_items is None:
        return ()
    for name, other, array in (("in", "out", d_in_items), ("out", "in", d_out_items)):
        if array is None:
            message = f"expected a device array, since there is d_{other}_items, got None"
            raise ArgumentTypeError(f"d_{name}_items", message)
    if not _discards(d_in_items):
        items = argument("d_in_items", d_in_items)
        return items, converting("d_out_items", d_out_items, items)
    if not _discards(d_out_items):
        raise ArgumentTypeError(
            "d_out_items", "expected a DiscardIterator, since d_in_items is one and yields no items"
        )
    node = nodes.Discard(np.dtype(np.uint8))  # any dtype: its items do not matter
    return Argument("d_in_items", node, node), Argument("d_out_items", node, node, output=True)


def _discards(array: Any) -> bool:
    return isinstance(array, Iterator) and type(array.node) is nodes.Discard
