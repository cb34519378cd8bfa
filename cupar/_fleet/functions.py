"""Arrays in, arrays out, of arrays in shards: the functions of `cupar.distributed.arrays`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._base.digests import sha256
from .._functions import operators
from .._functions.axes import INT64
from .._functions.calls import Integers, Numbers, Operand, Work
from .._functions.counting import Histogram, edges_of, histogram_of
from .._functions.rows import check_kind, dtypes_of, ordered
from .._functions.selection import Runs
from .._functions.sorting import TopK
from .._functions.values import accumulated, cast, casting, flag, initial, integer
from ..iterators import CountingIterator
from ..operators import Op, OpKind
from ..sort import SortOrder
from . import partition, runs, search, topk
from . import reduce as reductions
from . import scan as scans
from .comm import on_all
from .described import sharded
from .group import Group
from .sort import in_order

if TYPE_CHECKING:
    from .._base.annotations import Array, DType, Floats


def call(
    work: Work, factory: Any, arrays: Sequence[Any], operators: Any = (), numbers: Any = (), **named: Any
) -> None:
    """Make an object for arrays and operators, and run it with the arrays and numbers."""
    factory(*arrays, *operators, **named).run(*arrays, *numbers, stream=work.stream)


def cut(work: Work, counts: Operand, *found: Operand) -> list[Operand]:
    """Return as much of results as this rank has kept."""
    own = int(work.host(counts)[0])
    return [work.first(each, own) for each in found]


# --- Reductions and scans ---------------------------------------------------------------------------------


@sharded()
def reduce(
    work: Work,
    group: Group,
    x: Operand,
    op: Op = OpKind.PLUS,
    /,
    *,
    init: Any = None,
    commutative: bool = True,
    dtype: DType = None,
) -> Numbers:
    """Return all items of an array in shards combined by an operator, on every rank.

    Unless `commutative` is False, `op` must be that, too. Without an `init`, no items are an error unless the
    operator has a known identity.

    >>> int(arrays.reduce(np.array([3, -7, 5]), lambda a, b: a if abs(a) > abs(b) else b))
    -7
    """
    result, _ = dtypes_of(x, dtype, init)
    return reduced(work, x, group, op, init, result, commutative)


def reduced(
    work: Work,
    given: Operand,
    found: Group,
    op: Op,
    init: Any,
    result: np.dtype[Any],
    commutative: bool = True,
    needs_items: bool = False,
) -> Numbers:
    """Return all items of a shard, and of others, combined in a dtype."""
    within = accumulated(result)
    value = _identity(op, within) if init is None and not needs_items else init
    if value is None and not any(found.sizes(given.size, "reduce_into", init=None)):
        nothing = "x: no shard has items, and neither is there an init, nor a known identity"
        raise on_all(ValueError("x: no shard has items" if needs_items else nothing))
    h_init = None if value is None else initial("init", value, within)
    out = work.empty((), result)
    arrays = cast(given.items, within), casting(out.items, within)
    named = {"commutative": commutative, "group": found}
    call(work, reductions.reduce_into, arrays, (op, h_init), (given.size, h_init), **named)
    return out


def _identity(op: Op, dtype: np.dtype[Any]) -> Any:
    """Return the identity of an operator, None if it is unknown; for sums, whose is -0.0, that is 0.0."""
    found = operators.identity_of(op, dtype)
    return abs(found) if found == 0 else found


@sharded()
def scan(
    work: Work,
    group: Group,
    x: Operand,
    op: Op = OpKind.PLUS,
    /,
    *,
    init: Any = None,
    exclusive: bool = False,
    dtype: DType = None,
) -> Numbers:
    """Return the prefix scan of an array in shards: each item combines all up to it.

    The result is the same part, of the library of `x`. The first item of an exclusive scan is `init`, or by
    default the operator's identity.

    >>> arrays.scan(np.array([3, 1, 4, 1, 5]), lambda a, b: a if a > b else b)
    array([3, 3, 4, 4, 5])
    """
    result, _ = dtypes_of(x, dtype, init)
    return scanned(work, x, group, op, init, result, flag("exclusive", exclusive))


def scanned(
    work: Work,
    given: Operand,
    found: Group,
    op: Op,
    init: Any,
    result: np.dtype[Any],
    exclusive: bool = False,
) -> Numbers:
    """Return the prefix scan of a shard, after those before it, in a dtype."""
    within = accumulated(result)
    value = init
    if value is None and exclusive:
        value = _identity(op, within)
        if value is None:
            raise TypeError("init: an exclusive scan begins with it, and the operator has no known identity")
    h_init = None if value is None else initial("init", value, within)
    out = work.empty((given.size,), result)
    arrays = cast(given.items, within), casting(out.items, within)
    make = scans.exclusive_scan if exclusive else scans.inclusive_scan
    call(work, make, arrays, (op, h_init), (given.size, h_init), group=found)
    return out


# --- Predicates and keys ----------------------------------------------------------------------------------


@sharded()
def copy_if(work: Work, group: Group, x: Operand, predicate: Op, /) -> Operand:
    """Return those items of a shard for which a predicate holds: they stay on their rank.

    >>> arrays.copy_if(np.array([3, -1, 2]), lambda a: a > 0)
    array([3, 2])
    """
    out, counts = work.empty((x.size,), x.dtype), work.empty((3,), INT64)
    arrays = x.items, out.items, counts.items
    call(work, partition.select, arrays, [predicate], [x.size], group=group)
    return cut(work, counts, out)[0]


@sharded()
def reduce_by_key(
    work: Work, group: Group, keys: Operand, x: Array, op: Op = OpKind.PLUS, /, *, equal: Op | None = None
) -> Runs:
    """Return the keys of runs of equal ones, and the items that belong to each run combined.

    A run that crosses shards is on the last rank that has some of it. `keys` and `x` have one length; the
    result is a named tuple of two arrays, of this rank.

    >>> arrays.reduce_by_key(np.array([1, 1, 2]), np.array([10, 11, 20])).values
    array([21, 20])
    """
    values = work.operand(x)
    if values.shape != keys.shape:
        raise ValueError(f"x: expected the shape of `keys`, {keys.shape}, got {values.shape}")
    unique, sums = work.empty(keys.shape, keys.dtype), work.empty(keys.shape, values.dtype)
    counts = work.empty((3,), INT64)
    arrays = keys.items, unique.items, values.items, sums.items, counts.items
    call(work, runs.reduce_by_key, arrays, [op, equal], [keys.size], group=group)
    return Runs(*cut(work, counts, unique, sums))


@sharded()
def run_length_encode(work: Work, group: Group, x: Operand, /, *, equal: Op | None = None) -> Runs:
    """Return the runs of equal items of an array in shards, and how long they are.

    A run that crosses shards is on the last rank that has some of it. The result is a named tuple of items
    and lengths, of this rank.

    >>> arrays.run_length_encode(np.array([7, 7, 9, 7])).values
    array([2, 1, 1])
    """
    unique, lengths = work.empty(x.shape, x.dtype), work.empty(x.shape, INT64)
    counts = work.empty((3,), INT64)
    arrays = x.items, unique.items, lengths.items, counts.items
    call(work, runs.run_length_encode, arrays, [equal], [x.size], group=group)
    return Runs(*cut(work, counts, unique, lengths))


@sharded()
def histogram(
    work: Work,
    group: Group,
    x: Operand,
    /,
    *,
    bins: int | Floats = 10,
    range: Floats | None = None,
) -> Histogram:
    """Return how many items are in each of some bins, on every rank; the last bin has both its edges.

    The result is a named tuple of the counts and the edges.

    >>> arrays.histogram(np.array([0.05, 0.5, 1.0]), bins=2, range=(0, 1)).hist
    array([1, 2])
    """
    if range is None and isinstance(bins, (int, np.integer)):
        raise TypeError("range: expected two numbers, as `bins` is a number, got None")
    edges = edges_of(x, bins, range)
    digest = sha256(edges.tobytes()).hexdigest()[:12]
    group.compare("histogram", {"dtype of x": str(x.dtype), "edges": f"{edges.dtype} {digest}"})
    counts: Histogram = group.built("histogram", lambda: histogram_of(work, x, None, bins, range, False))
    group.total(counts.hist.items, work.stream)
    return counts


# --- Sorts and searches -----------------------------------------------------------------------------------


@sharded()
def sort(
    work: Work, group: Group, x: Operand, /, *, descending: bool = False, less: Op | None = None
) -> Operand:
    """Return this rank's part of the sorted array, as long as its shard. It is stable.

    >>> arrays.sort(np.array([3, 1, 2]), descending=True)
    array([3, 2, 1])
    """
    return in_order(work, x, None, flag("descending", descending), less, group)[0]


@sharded()
def argsort(
    work: Work, group: Group, x: Operand, /, *, descending: bool = False, less: Op | None = None
) -> Integers:
    """Return where the items of this rank's part of the sorted array are in the whole one.

    >>> arrays.argsort(np.array([30, 10, 20]))
    array([1, 2, 0])
    """
    descending = flag("descending", descending)
    places = _places("argsort", work, x.size, group)
    moved: Integers = in_order(work, x, places, descending, less, group)[1]
    return moved


def _places(name: str, work: Work, size: int, found: Group) -> Any:
    """Return the indices of the items of this shard in the whole array."""
    first = sum(found.sizes(size, name)[: found.rank])
    return work.made(CountingIterator(np.int64(first)), (size,)).items


@sharded()
def top_k(work: Work, group: Group, x: Operand, k: int, /, *, largest: bool = True) -> TopK:
    """Return the k greatest items of an array in shards, sorted, and where they are, on every rank.

    The result is a named tuple of values, and of their places in the whole array. NaN is the greatest.

    >>> arrays.top_k(np.array([3, 9, 1, 7]), 2).indices
    array([1, 3])
    """
    check_kind("top_k", x, "biuf")
    k, order = integer("k", k), SortOrder.DESCENDING if flag("largest", largest) else SortOrder.ASCENDING
    values, where = work.empty((k,), x.dtype), work.empty((k,), INT64)
    places = _places("top_k", work, x.size, group)
    arrays = work.kept(ordered(x.items, None), x.size), values.items, places, where.items
    call(work, topk.top_k, arrays, [order], [x.size, k], group=group)
    return TopK(values, where)


@sharded()
def searchsorted(work: Work, group: Group, x1: Operand, x2: Array, /, *, side: str = "left") -> Integers:
    """Return where values can be inserted into a sorted array in shards, on every rank.

    >>> arrays.searchsorted(np.array([1, 3, 3, 5]), np.array([3, 4]))
    array([1, 3])
    """
    if side not in ("left", "right"):
        raise ValueError(f"side: expected 'left' or 'right', got {side!r}")
    values = work.operand(x2, "x2")
    out = work.empty(values.shape, INT64)
    if not work.library.on_cpu:  # where the search itself does not compare it
        group.sizes(x1.size, "searchsorted", num_values=values.size)
    make = search.lower_bound if side == "left" else search.upper_bound
    made = make(x1.items, values.items, out.items, operators.less_of(x1.dtype), group=group)
    made.run(x1.items, x1.size, values.items, values.size, out.items, work.stream)
    return out
