"""Sorted dask arrays, and runs of equal keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np

from .. import structs
from .._functions.rows import dtypes_of
from .._functions.selection import Runs
from .._functions.values import flag, whole
from ..operators import Op, OpKind
from . import pieces, steps, workers
from .graphs import Tasks, along_axis, on_cpu, rows_of, taken, without
from .shipped import ShippedCarry, ShippedOrder, shipped

if TYPE_CHECKING:
    from .._base.annotations import DType

_SAMPLES = 1024  # of each block
_MOST = 64  # blocks that are cut in as many parts, and merged; ranks of a worker that has several threads


def sort(
    x: da.Array,
    /,
    *,
    axis: int | None = -1,
    descending: bool = False,
    less: Op | None = None,
    npartitions: int | None = None,
    method: str | None = None,
    timeout: float = 300,
) -> da.Array:
    """Return the items sorted along an axis; equal ones stay in their order.

    Of an array of one dimension, blocks are sorted by tasks, or by workers together; of others, `axis` is put
    in one block first.

    Parameters
    ----------
    x : dask array
        With any chunks. Structs need `less`.
    axis : int or None, optional
        None: all items in C's order.
    descending : bool, optional
        Whether the greatest come first.
    less : callable or OpKind, optional
        Whether its first item goes before its second: a strict weak order. By default NumPy's, in which NaN
        is the greatest.
    npartitions : int, optional
        Number of blocks of a sorted array of one dimension; by default unchanged.
    method : {"tasks", "workers"}, optional
        How an array of one dimension is sorted; by default by workers if it has more than 64 blocks, and the
        current scheduler is a Dask cluster.

        ``"tasks"``: blocks are sorted, cut by what samples of all blocks say, and merged, in as many tasks as
        its blocks times those of the result. Of more than 64 blocks, neighbours are put together first, and
        sorted ones are cut in the end: 1,000 blocks take 6,000 tasks, and each worker the memory of a 64th of
        the array for each of its threads. It runs on any scheduler.

        ``"workers"``: one task for each thread of the cluster, but at most 64 and one for each worker,
        sorts neighbouring blocks; together they cut these at exact places, exchange what belongs to others
        by the connections of workers, and merge. It takes as many tasks as blocks, and memory as
        `cupar.distributed.radix_sort` does. It begins when all blocks are there.
    timeout : float, optional
        Seconds that a task waits for others, by workers. If one fails, all do, and can be tried again
        (``retries``).

    Returns
    -------
    dask array
        Sizes of blocks of one dimension are alike, whatever the items are; by tasks they are not known.

    Raises
    ------
    TypeError, ValueError
        If an argument is not one of these.

    Examples
    --------
    >>> import numpy as np, dask.array as da
    >>> from cupar import dask as cdask
    >>> cdask.sort(da.from_array(np.array([3, -1, 2]), chunks=2)).compute()
    array([-1,  2,  3])
    """
    dtype, descending = taken("x", x), flag("descending", descending)
    if dtype.names is not None and less is None:
        raise TypeError("less: expected a comparison, as `x` has structs, got None")
    x, along = along_axis(x, axis)
    moved = None if less is None else shipped("less", less, (dtype, dtype), np.dtype(bool), on_cpu(x))
    order = ShippedOrder(moved, descending)
    if x.ndim > 1:
        tasks = Tasks("sort", [x], order, along)
        results = {
            outer: (pieces.rows_ordered, [(x.name, *index) for index in indices], order, along)
            for outer, indices in rows_of(x, (along,))
        }
        chunks = without(x.chunks, (along,), (along,), (sum(x.chunks[along]),))
        return tasks.array("result", results, chunks, dtype)
    number = whole("npartitions", x.npartitions if npartitions is None else npartitions)
    if number < 1:
        raise ValueError(f"npartitions: expected 1 or more, got {number}")
    if method not in (None, "tasks", "workers"):
        raise ValueError(f"method: expected 'tasks' or 'workers', got {method!r}")
    ranks = _ranks(x, method)
    if ranks:
        return _by_ranks(x, dtype, order, number, ranks, timeout)
    return _sample_sort(x, dtype, order, number)


def _ranks(x: da.Array, method: str | None) -> int:
    """Return the number of ranks that sort an array together, 0 if tasks do that."""
    if method == "tasks" or (method is None and x.npartitions <= _MOST):
        return 0
    found = workers.threads()
    if found is None:
        if method is None:
            return 0
        raise ValueError("method: expected a Client of a Dask cluster, as 'workers' says, got none")
    number: int = x.npartitions
    return min(number, max(len(found), min(sum(found), _MOST)) or _MOST)


def _by_ranks(
    x: da.Array, dtype: np.dtype[Any], order: ShippedOrder, number: int, ranks: int, timeout: float
) -> da.Array:
    tasks = Tasks("sort", [x], order, number, ranks, timeout)
    blocks = [(x.name, i) for i in range(x.npartitions)]
    sizes = [tasks.add("size", (i,), len, each) for i, each in enumerate(blocks)]
    met = tasks.add("met", (), workers.met, sizes)
    shards, shares = _shares(len(blocks), ranks), _shares(number, ranks)
    parts = []
    for rank, shard in enumerate(shards):
        given = [blocks[i] for i in shard], met, rank, shards, shares, order, timeout
        parts.append(tasks.add("rank", (rank,), pieces.sorted_by_ranks, *given))
    # All ranks are needed for each block: dask leaves out tasks that are not.
    done = tasks.add("done", (), list, [tasks.add("left", (i,), len, each) for i, each in enumerate(parts)])
    results = {
        (j,): (pieces.share_of_rank, part, i, done)
        for part, share in zip(parts, shares, strict=True)
        for i, j in enumerate(share)
    }
    ends = [x.size * i // number for i in range(number + 1)] if x.size == x.size else [np.nan] * (number + 1)
    return tasks.array("result", results, (tuple(np.diff(ends).tolist()),), dtype)


def _sample_sort(x: da.Array, dtype: np.dtype[Any], order: ShippedOrder, number: int) -> da.Array:
    tasks = Tasks("sort", [x], order, number)
    blocks, parts = [(x.name, i) for i in range(x.npartitions)], min(number, _MOST)
    if len(blocks) > _MOST:
        blocks = [
            tasks.add("joined", (i,), steps.joined, [blocks[j] for j in group])
            for i, group in enumerate(_shares(len(blocks), _MOST))
        ]
    ordered = [tasks.add("sorted", (i,), pieces.ordered, each, order, 0) for i, each in enumerate(blocks)]
    samples = [tasks.add("sampled", (i,), pieces.sampled, each, _SAMPLES) for i, each in enumerate(ordered)]
    split = tasks.add("splitters", (), pieces.splitters, samples, parts, order)
    cuts = [tasks.add("cuts", (i,), pieces.cuts, each, i, split, order) for i, each in enumerate(ordered)]
    merged: list[Any] = []
    for j in range(parts):
        given = [
            tasks.add("piece", (i, j), pieces.piece, block, cut, j)
            for i, (block, cut) in enumerate(zip(ordered, cuts, strict=True))
        ]
        merged.append((pieces.merged, given, order))
    if parts < number:
        whole = [tasks.add("merged", (j,), *each) for j, each in enumerate(merged)]
        merged = [
            (pieces.share, part, i, len(shares))
            for part, shares in zip(whole, _shares(number, parts), strict=True)
            for i in range(len(shares))
        ]
    results = {(j,): each for j, each in enumerate(merged)}
    return tasks.array("result", results, ((np.nan,) * number,), dtype)


def _shares(number: int, parts: int) -> list[range]:
    """Return some numbers from 0 on in parts of about one size."""
    return [range(number * i // parts, number * (i + 1) // parts) for i in range(parts)]


def reduce_by_key(
    keys: da.Array,
    x: da.Array,
    op: Op = OpKind.PLUS,
    /,
    *,
    equal: Op | None = None,
    dtype: DType = None,
) -> Runs:
    """Return the keys of runs of equal ones, and the items that belong to each run combined.

    Runs may cross any number of blocks: the last block that has some of a run has its result.

    Parameters
    ----------
    keys, x : dask arrays
        Of one dimension and the same length. If chunks are unknown, blocks must have the same lengths, too.
    op : callable or OpKind, optional
        As for `scan`.
    equal : callable or OpKind, optional
        Whether two keys are equal; by default ``==``.
    dtype : dtype, optional
        As for `scan`.

    Returns
    -------
    Runs
        A named tuple of two dask arrays, `keys` and `values`, of unknown chunks.

    Raises
    ------
    TypeError, ValueError
        If an argument is not one of these.

    Examples
    --------
    >>> import numpy as np, dask.array as da
    >>> from cupar import dask as cdask
    >>> keys, x = (da.from_array(np.array(each), chunks=2) for each in ([7, 7, 7, 5], [1, 2, 3, 4]))
    >>> found = cdask.reduce_by_key(keys, x)
    >>> found.keys.compute(), found.values.compute()
    (array([7, 5]), array([6, 4]))
    """
    key, _ = taken("keys", keys), taken("x", x)
    if keys.ndim != 1 or x.ndim != 1:
        raise ValueError(f"keys: expected one dimension, and of `x`, too, got {keys.ndim} and {x.ndim}")
    if keys.chunks != x.chunks and not np.isnan([*keys.chunks[0], *x.chunks[0]]).any():
        if keys.size != x.size:
            raise ValueError(f"x: expected as many items as `keys` has, {keys.size}, got {x.size}")
        # Dask's rechunk leaves an array without items as it is.
        keys, x = (keys, x.rechunk(keys.chunks)) if keys.size else (keys.blocks[:1], x.blocks[:1])
    if keys.npartitions != x.npartitions:
        raise ValueError(
            f"x: expected as many blocks as `keys` has, {keys.npartitions}, as chunks are unknown, got "
            f"{x.npartitions}"
        )
    result, value = dtypes_of(x, dtype)
    if value != result:
        raise TypeError(
            f"dtype: expected one in which items are combined, as float32, got {structs.text(result)}"
        )
    return runs_of("reduce_by_key", keys, x, op, key, result, equal)


def runs_of(
    kind: str,
    keys: da.Array,
    x: da.Array,
    by: Op,
    key: np.dtype[Any],
    value: np.dtype[Any],
    same: Op | None = None,
) -> Runs:
    """Return the runs of keys whose blocks are as long as those of items."""
    op = shipped("op", by, (value, value), value, on_cpu(x))
    equal = None if same is None else shipped("equal", same, (key, key), np.dtype(bool), on_cpu(x))
    combining = ShippedCarry(op, value, key, equal)
    tasks = Tasks(kind, [keys, x], combining)
    local = [
        tasks.add("runs", (i,), steps.runs, [(keys.name, i), (x.name, i)], combining)
        for i in range(keys.npartitions)
    ]
    records = [tasks.add("record", (i,), steps.pick, each, 2) for i, each in enumerate(local)]
    around = tasks.add("neighbours", (), steps.neighbours, records, combining)
    mended = []
    for i, each in enumerate(local):
        beside = tasks.add("beside", (i,), steps.pick, around, i)
        mended.append(tasks.add("mended", (i,), steps.mended, each, beside, combining))
    unknown = ((np.nan,) * len(mended),)
    return Runs(
        *(
            tasks.array(part, {(i,): (steps.pick, each, j) for i, each in enumerate(mended)}, unknown, of)
            for j, (part, of) in enumerate([("keys", key), ("values", value)])
        )
    )


def unique(x: da.Array, /) -> da.Array:
    """Return the different items of an array, sorted. NaNs are all different.

    Parameters
    ----------
    x : dask array
        Of numbers, with any number of dimensions and any chunks.

    Returns
    -------
    dask array
        Of one dimension and unknown chunks.

    Raises
    ------
    TypeError
        If it is not one of these.

    Examples
    --------
    >>> import numpy as np, dask.array as da
    >>> from cupar import dask as cdask
    >>> cdask.unique(da.from_array(np.array([3, 1, 3, 2]), chunks=2)).compute()
    array([1, 2, 3])
    """
    dtype = taken("x", x)
    if structs.kind_of(dtype) not in "biufc":
        raise TypeError(f"x: expected an array of numbers, got {structs.text(dtype)}")
    tasks = Tasks("unique", [x])
    results = {(i,): (steps.distinct, (x.name, *index)) for i, index in enumerate(np.ndindex(*x.numblocks))}
    found = sort(tasks.array("blocks", results, ((np.nan,) * len(results),), dtype))
    return runs_of("unique", found, found, steps.first, dtype, dtype).keys
