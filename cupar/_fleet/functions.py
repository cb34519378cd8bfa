"""Arrays in, arrays out, of arrays in shards: the functions of `cupar.distributed.arrays`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar
from typing import cast as cast_type

import numpy as np

from .. import structs
from .._base import device
from .._base.digests import sha256
from .._functions import libraries, operators
from .._functions.axes import INT64
from .._functions.calls import Operand, Work
from .._functions.counting import Histogram, edges_of, histogram_of
from .._functions.selection import Runs
from .._functions.sorting import TopK
from .._functions.values import accumulated, cast, casting, dtype_of, initial
from ..iterators import CountingIterator
from ..operators import Op, OpKind
from ..sort import SortOrder
from . import partition, runs, search, topk
from . import reduce as reductions
from . import scan as scans
from . import sort as sorts
from .comm import on_all
from .group import Group
from .group import group as group_of

F = TypeVar("F", bound=Callable[..., Any])


def entered(
    called: str, x: Any, engine: Any, call: Callable[[Work, Operand, Group], Any], name: str = "x"
) -> Any:
    """Call a function for a shard, which has one dimension; return arrays of its library."""
    found = group_of(engine)

    def by_library() -> Any:
        library = libraries.of(name, x)
        return device.using(True, inside, library) if library.on_cpu else inside(library)

    def inside(library: libraries.ArrayLibrary) -> Any:
        work = Work(library, None)
        given = work.operand(x, name)
        if given.ndim != 1:
            raise ValueError(f"{name}: expected a shard of one dimension, got shape {given.shape}")
        return call(work, given, found)

    return found.together(called, by_library)


def telling(function: F) -> F:
    """Decorate a function of arrays: the other ranks are told, too, if one calls it with wrong arguments."""

    @wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:  # it was not entered
                group_of(named.get("group")).compare(function.__name__, {}, error)
            raise

    return cast_type(F, called)


def ran(work: Work, made: Any, *arguments: Any) -> Any:
    return made.run(*arguments, stream=work.stream)


def cut(work: Work, counts: Operand, *found: Operand) -> list[Any]:
    """Return as much of results as this rank has kept."""
    own = int(work.host(counts)[0])
    return [each.own[:own] for each in found]


def _largest_of(first: bool) -> SortOrder:
    return SortOrder.DESCENDING if first else SortOrder.ASCENDING


# --- Reductions and scans ---------------------------------------------------------------------------------


@telling
def reduce(
    x: Any,
    op: Op = OpKind.PLUS,
    /,
    *,
    init: Any = None,
    commutative: bool = True,
    dtype: Any = None,
    group: Any = None,
) -> Any:
    """Return all items of an array in shards combined by an operator, on every rank.

    Parameters
    ----------
    x : array
        The shard of this rank, of one dimension. It may be empty.
    op : callable or OpKind, optional
        Combines two values. It must be associative and, unless `commutative` is False, commutative.
    init : number, optional
        Combined with the items, once. Without it, no items are an error unless the operator has a known
        identity.
    commutative : bool, optional
        False: in the order of ranks, and of items on each.
    dtype : dtype, optional
        Of the result, in which items are combined; by default that of `x`. float16 and bfloat16 are combined
        in float32.
    group : Group, ProcessGroup, mpi4py communicator, Comm or None
        As for `cupar.distributed.group`.

    Returns
    -------
    array
        Of the library of `x`, without dimensions.

    Raises
    ------
    TypeError, ValueError
        If an argument is none of these, or ranks differ.
    GroupError
        If another rank raised an error, or did not answer.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> int(arrays.reduce(np.array([3, -7, 5]), lambda a, b: a if abs(a) > abs(b) else b))
    -7
    """

    def call(work: Work, given: Operand, found: Group) -> Any:
        result = given.dtype if dtype is None else dtype_of("dtype", dtype)
        return reduced(work, given, found, op, init, result, commutative)

    return entered("reduce", x, group, call)


def reduced(
    work: Work,
    given: Operand,
    found: Group,
    op: Op,
    init: Any,
    result: np.dtype[Any],
    commutative: bool = True,
    needs_items: bool = False,
) -> Any:
    """Return all items of a shard, and of others, combined in a dtype."""
    within = accumulated(result)
    value = None if needs_items else operators.identity_of(op, within) if init is None else init
    if value is None and not any(found.sizes(given.size)):
        nothing = "x: no shard has items, and neither is there an init, nor a known identity"
        raise on_all(ValueError("x: no shard has items" if needs_items else nothing))
    h_init = None if value is None else initial("init", abs(value) if value == 0 else value, within)
    out = work.empty((), result)
    read, written = cast(given.items, within), casting(out.items, within)
    made = reductions.reduce_into(read, written, op, h_init, commutative=commutative, group=found)
    ran(work, made, read, written, given.size, h_init)
    return out.own


@telling
def scan(
    x: Any,
    op: Op = OpKind.PLUS,
    /,
    *,
    init: Any = None,
    exclusive: bool = False,
    dtype: Any = None,
    group: Any = None,
) -> Any:
    """Return the prefix scan of an array in shards: each item combines all up to it.

    Parameters
    ----------
    x, dtype, group
        As for `reduce`.
    op : callable or OpKind, optional
        Combines two values, the first of which is that of earlier items. It must be associative; it need not
        be commutative.
    init : number, optional
        Comes before all items.
    exclusive : bool, optional
        Whether each item combines those before it alone, the first one being `init`, or by default the
        operator's identity.

    Returns
    -------
    array
        The same part of the result, of the library of `x`.

    Raises
    ------
    TypeError, ValueError
        If an argument is none of these, or ranks differ.
    GroupError
        If another rank raised an error, or did not answer.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> arrays.scan(np.array([3, 1, 4, 1, 5]), lambda a, b: a if a > b else b)
    array([3, 3, 4, 4, 5])
    """

    def call(work: Work, given: Operand, found: Group) -> Any:
        result = given.dtype if dtype is None else dtype_of("dtype", dtype)
        return scanned(work, given, found, op, init, result, exclusive)

    return entered("scan", x, group, call)


def scanned(
    work: Work,
    given: Operand,
    found: Group,
    op: Op,
    init: Any,
    result: np.dtype[Any],
    exclusive: bool = False,
) -> Any:
    """Return the prefix scan of a shard, after those before it, in a dtype."""
    within = accumulated(result)
    value = init
    if value is None and exclusive:
        value = operators.identity_of(op, within)
        if value is None:
            raise TypeError("init: an exclusive scan begins with it, and the operator has no known identity")
        value = abs(value) if value == 0 else value
    h_init = None if value is None else initial("init", value, within)
    out = work.empty((given.size,), result)
    read, written = cast(given.items, within), casting(out.items, within)
    make = scans.exclusive_scan if exclusive else scans.inclusive_scan
    made = make(read, written, op, h_init, group=found)
    ran(work, made, read, written, given.size, h_init)
    return out.own


# --- Predicates and keys ----------------------------------------------------------------------------------


@telling
def copy_if(x: Any, predicate: Op, /, *, group: Any = None) -> Any:
    """Return those items of a shard for which a predicate holds: they stay on their rank.

    Parameters
    ----------
    x, group
        As for `reduce`.
    predicate : callable or OpKind
        Takes an item.

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> arrays.copy_if(np.array([3, -1, 2]), lambda a: a > 0)
    array([3, 2])
    """

    def call(work: Work, given: Operand, found: Group) -> Any:
        out, counts = work.empty((given.size,), given.dtype), work.empty((3,), INT64)
        arrays = given.items, out.items, counts.items
        ran(work, partition.select(*arrays, predicate, group=found), *arrays, given.size)
        return cut(work, counts, out)[0]

    return entered("copy_if", x, group, call)


@telling
def reduce_by_key(
    keys: Any, x: Any, op: Op = OpKind.PLUS, /, *, equal: Op | None = None, group: Any = None
) -> Runs:
    """Return the keys of runs of equal ones, and the items that belong to each run combined.

    A run that crosses shards is on the last rank that has some of it.

    Parameters
    ----------
    keys, x : arrays
        The shards of this rank, of one length and one dimension.
    op : callable or OpKind, optional
        Combines two values, the first of which is that of earlier items.
    equal : callable, OpKind or None
        Whether a key is equal to the one before it. By default ``==``.
    group : Group, ProcessGroup, mpi4py communicator, Comm or None
        As for `cupar.distributed.group`.

    Returns
    -------
    Runs
        Keys and values, of this rank.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> arrays.reduce_by_key(np.array([1, 1, 2]), np.array([10, 11, 20])).values
    array([21, 20])
    """

    def call(work: Work, given: Operand, found: Group) -> Runs:
        values = work.operand(x)
        if values.shape != given.shape:
            raise ValueError(f"x: expected the shape of `keys`, {given.shape}, got {values.shape}")
        unique, sums = work.empty(given.shape, given.dtype), work.empty(given.shape, values.dtype)
        counts = work.empty((3,), INT64)
        arrays = given.items, unique.items, values.items, sums.items, counts.items
        ran(work, runs.reduce_by_key(*arrays, op, equal, group=found), *arrays, given.size)
        return Runs(*cut(work, counts, unique, sums))

    return entered("reduce_by_key", keys, group, call, "keys")  # type: ignore[no-any-return]


@telling
def run_length_encode(x: Any, /, *, equal: Op | None = None, group: Any = None) -> Runs:
    """Return the runs of equal items of an array in shards, and how long they are.

    A run that crosses shards is on the last rank that has some of it.

    Parameters
    ----------
    x, group
        As for `reduce`.
    equal : callable, OpKind or None
        Whether an item is equal to the one before it. By default ``==``.

    Returns
    -------
    Runs
        Items and lengths, of this rank.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> arrays.run_length_encode(np.array([7, 7, 9, 7])).values
    array([2, 1, 1])
    """

    def call(work: Work, given: Operand, found: Group) -> Runs:
        unique, lengths = work.empty(given.shape, given.dtype), work.empty(given.shape, INT64)
        counts = work.empty((3,), INT64)
        arrays = given.items, unique.items, lengths.items, counts.items
        ran(work, runs.run_length_encode(*arrays, equal, group=found), *arrays, given.size)
        return Runs(*cut(work, counts, unique, lengths))

    return entered("run_length_encode", x, group, call)  # type: ignore[no-any-return]


@telling
def histogram(x: Any, /, *, bins: Any = 10, range: Any = None, group: Any = None) -> Histogram:
    """Return how many items are in each of some bins, on every rank; the last bin has both its edges.

    Parameters
    ----------
    x, group
        As for `reduce`.
    bins : int or sequence of numbers, optional
        How many of equal width, or the edges of all, on the host.
    range : pair of numbers, optional
        The first and the last edge; needed if `bins` is a number. Items that are outside, and NaNs, are not
        counted.

    Returns
    -------
    Histogram
        The counts, and the edges.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> arrays.histogram(np.array([0.05, 0.5, 1.0]), bins=2, range=(0, 1)).hist
    array([1, 2])
    """

    def call(work: Work, given: Operand, found: Group) -> Histogram:
        if range is None and isinstance(bins, (int, np.integer)):
            raise TypeError("range: expected two numbers, as `bins` is a number, got None")
        edges = edges_of(given, bins, range)
        digest = sha256(edges.tobytes()).hexdigest()[:12]
        found.compare("histogram", {"dtype of x": str(given.dtype), "edges": f"{edges.dtype} {digest}"})
        counts: Any = None
        error: Exception | None = None
        with found.building():
            try:
                counts = histogram_of(work, given, None, bins, range, False)
            except Exception as failure:
                error = failure
        found.compare("histogram", {}, error)
        found.total(counts.hist.items, None if work.library.on_cpu else work.stream or 0)
        return Histogram(counts.hist.own, counts.edges.own)

    return entered("histogram", x, group, call)  # type: ignore[no-any-return]


# --- Sorts and searches -----------------------------------------------------------------------------------


def in_order(work: Work, given: Operand, places: Any, descending: bool, less: Any, found: Group) -> Any:
    """Return the sorted keys of this rank and, if there are places, those of its keys."""
    out = work.empty(given.shape, given.dtype)
    moved = None if places is None else work.empty(given.shape, INT64)
    beside = None if moved is None else moved.items
    if less is None and structs.kind_of(given.dtype) not in "cV":
        made: Any = sorts.radix_sort(
            given.items, out.items, places, beside, _largest_of(descending), group=found
        )
        ran(work, made, given.items, out.items, places, beside, given.size)
    else:
        op = operators.less_of(given.dtype) if less is None else less
        op = operators.swapped(op) if descending else op
        made = sorts.merge_sort(given.items, places, out.items, beside, op, group=found)
        ran(work, made, given.items, places, out.items, beside, given.size)
    return out, moved


@telling
def sort(x: Any, /, *, descending: bool = False, less: Op | None = None, group: Any = None) -> Any:
    """Return this rank's part of the sorted array, as long as its shard. It is stable.

    Parameters
    ----------
    x, group
        As for `reduce`.
    descending : bool, optional
    less : callable or OpKind, optional
        Whether its first item goes before its second. By default numbers are ordered by their bits, as
        `cupar.distributed.radix_sort` has them.

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> arrays.sort(np.array([3, 1, 2]), descending=True)
    array([3, 2, 1])
    """

    def call(work: Work, given: Operand, found: Group) -> Any:
        return in_order(work, given, None, descending, less, found)[0].own

    return entered("sort", x, group, call)


@telling
def argsort(x: Any, /, *, descending: bool = False, less: Op | None = None, group: Any = None) -> Any:
    """Return where the items of this rank's part of the sorted array are in the whole one.

    Parameters
    ----------
    x, descending, less, group
        As for `sort`.

    Returns
    -------
    array of int64

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> arrays.argsort(np.array([30, 10, 20]))
    array([1, 2, 0])
    """

    def call(work: Work, given: Operand, found: Group) -> Any:
        places = _places(work, given.size, found)
        return in_order(work, given, places, descending, less, found)[1].own

    return entered("argsort", x, group, call)


def _places(work: Work, size: int, found: Group) -> Any:
    """Return where the items of this shard are in the whole array."""
    first = 0
    for each in found.sizes(size)[: found.rank]:
        first += each
    return work.made(CountingIterator(np.int64(first)), (size,)).items


@telling
def top_k(x: Any, k: int, /, *, largest: bool = True, group: Any = None) -> TopK:
    """Return the k greatest items of an array in shards, sorted, and where they are, on every rank.

    Parameters
    ----------
    x, group
        As for `reduce`.
    k : int
        At most as many as all shards have together.
    largest : bool, optional
        False: the least.

    Returns
    -------
    TopK
        Values, and their places in the whole array.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> arrays.top_k(np.array([3, 9, 1, 7]), 2).indices
    array([1, 3])
    """

    def call(work: Work, given: Operand, found: Group) -> TopK:
        values, where = work.empty((k,), given.dtype), work.empty((k,), INT64)
        places = _places(work, given.size, found)
        arrays = given.items, values.items, places, where.items
        ran(work, topk.top_k(*arrays, _largest_of(largest), group=found), *arrays, given.size, k)
        return TopK(values.own, where.own)

    return entered("top_k", x, group, call)  # type: ignore[no-any-return]


@telling
def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", group: Any = None) -> Any:
    """Return where values can be inserted into a sorted array in shards, on every rank.

    Parameters
    ----------
    x1 : array
        The shard of this rank.
    x2 : array
        The values to search for, of one dimension: the same on every rank.
    side : {"left", "right"}, optional
        Whether before or behind equal items.
    group : Group, ProcessGroup, mpi4py communicator, Comm or None
        As for `cupar.distributed.group`.

    Returns
    -------
    array of int64
        Places in the whole array.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar.distributed import arrays
    >>> arrays.searchsorted(np.array([1, 3, 3, 5]), np.array([3, 4]))
    array([1, 3])
    """

    def call(work: Work, given: Operand, found: Group) -> Any:
        if side not in ("left", "right"):
            raise ValueError(f"side: expected 'left' or 'right', got {side!r}")
        values = work.operand(x2, "x2")
        out = work.empty(values.shape, INT64)
        make = search.lower_bound if side == "left" else search.upper_bound
        made = make(given.items, values.items, out.items, group=found)
        ran(work, made, given.items, given.size, values.items, values.size, out.items)
        return out.own

    return entered("searchsorted", x1, group, call, "x1")
