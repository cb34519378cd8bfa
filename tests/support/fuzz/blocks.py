"""Random calls of `cupar.dask` against `cupar.arrays`; `tests/fleet/test_fuzz_dask.py` plays them.

Chunks are of any size, zero and unknown ones, too. What `arrays` refuses must be refused, while the graph is
made or by a task. Numbers are small integers, so that sums are exact in any order.
"""

import os

import dask.array as da
import numpy as np
from dask.array.utils import assert_eq

from cupar import arrays
from cupar import dask as cdask

from .functions import Draw, larger, later

DTYPES = os.environ.get("CUPAR_FUZZ_DTYPES", "i8 f8").split()  # of which other tests have builds


def cut(draw, length):
    """Return sizes of blocks of an axis; some are zero."""
    ends = sorted(draw.random.randint(0, length) for _ in range(draw.one([0, 0, 1, 2, 4, 20])))
    return tuple(np.diff([0, *ends, length]).tolist())


def dask_array(draw, x):
    """Return a dask array of the items of one of NumPy's, perhaps with unknown chunks along some axes."""
    found = da.from_array(x, chunks=tuple(cut(draw, n) for n in x.shape))
    if draw.perhaps(True):  # not by a mask: Dask's own are wrong if there are blocks without items
        chunks = tuple((np.nan,) * len(each) if draw.one([0, 1]) else each for each in found.chunks)
        found = da.Array(found.dask, found.name, chunks, meta=found._meta)
    return found


def drawn(draw, *, special=True, real=False, low=0, high=3):
    x = draw.array(special=special, dtypes=DTYPES, low=low, high=high)
    x = x.real if real else x
    return x, dask_array(draw, x)


def flattened(y):
    """Whether an array has one dimension, or chunks that are known: others cannot be flattened."""
    return y.ndim == 1 or not np.isnan(y.shape).any()


def refused(call):
    """Return what a call returns, or the error that it raises of an argument."""
    try:
        return call()
    except (TypeError, ValueError, OverflowError) as error:
        return error


def same(found, expected, signs=True):
    """Compare dask arrays, or an error, with results; `signs`: of zeros, too."""
    expected = refused(expected)
    if isinstance(expected, Exception):
        failed = refused(lambda: [each.compute() for each in outputs(found())])
        assert isinstance(failed, Exception), f"expected {expected!r}, got {failed}"
        return
    for each, wanted in zip(outputs(found()), outputs(expected), strict=True):
        wanted = np.asarray(wanted)
        assert each.dtype == wanted.dtype and each.ndim == wanted.ndim
        assert_eq(each, wanted, check_type=False)
        value = np.asarray(each.compute())
        np.testing.assert_array_equal(value, wanted)
        if signs and wanted.dtype.kind == "f":
            zeros = wanted == 0
            np.testing.assert_array_equal(np.signbit(value[zeros]), np.signbit(wanted[zeros]))


def outputs(found):
    return tuple(found) if isinstance(found, tuple) else (found,)


def reductions(draw):
    x, y = drawn(draw)
    axis = draw.axis(x)
    if x.ndim and draw.perhaps(True):
        axis = tuple(draw.random.sample(range(x.ndim), draw.random.randint(0, x.ndim)))
    named = {"axis": axis, "keepdims": draw.one([False, True])}
    name = draw.one(["sum", "prod", "min", "max", "any", "all", "count_nonzero"])
    with_dtype = {"dtype": draw.one([None, "f8"])} if name in ("sum", "prod") and x.dtype.kind != "c" else {}
    same(
        lambda: getattr(cdask, name)(y, **named, **with_dtype),
        lambda: getattr(arrays, name)(x, **named, **with_dtype),
        signs=name in ("sum", "prod"),
    )


def operators(draw):
    x, y = drawn(draw)
    op = later if x.dtype.kind == "c" else draw.one([later, larger])
    axis, init = draw.axis(x), draw.perhaps(1)
    if axis is None and not flattened(y):
        return
    named = {"axis": axis, "keepdims": draw.one([False, True])}
    if op is larger:
        expected = lambda: arrays.reduce(x, op, **named, init=init)
    else:
        expected = lambda: last_of(x, **named, init=init)
    same(
        lambda: cdask.reduce(y, op, **named, init=init, commutative=op is larger), expected, signs=op is later
    )


def last_of(x, axis, keepdims, init):
    """Return the last items of rows, `init` if they have none; ValueError if there is none, either."""
    rows = x.reshape(-1) if axis is None else np.moveaxis(x, axis, -1)
    if not rows.shape[-1]:
        rows = np.full((*rows.shape[:-1], 1), 0 if init is None else init, x.dtype)
        if rows.size and init is None:
            raise ValueError("no items")
    return rows[..., -1].reshape(np.sum(x, axis=axis, keepdims=keepdims).shape)


def extremes(draw):
    x, y = drawn(draw, real=True)
    named = {"axis": draw.axis(x), "keepdims": draw.one([False, True])}
    if named["axis"] is None and not flattened(y):
        return
    name = draw.one(["argmin", "argmax"])
    same(lambda: getattr(cdask, name)(y, **named), lambda: getattr(arrays, name)(x, **named))


def scans(draw):
    x, y = drawn(draw, special=False)
    axis, exclusive = draw.axis(x), draw.one([False, True])
    if axis is None and not flattened(y):
        return
    init = 1 if exclusive else draw.perhaps(1)
    op = later if x.dtype.kind == "c" else draw.one([later, larger])
    named = {"axis": axis, "init": init, "exclusive": exclusive}
    for method in ("parallel", "sequential"):
        same(lambda m=method: cdask.scan(y, op, **named, method=m), lambda: arrays.scan(x, op, **named))
    if draw.perhaps(True):
        named = {"axis": axis, "exclusive": exclusive}
        same(lambda: cdask.scan(y, np.add, **named), lambda: arrays.scan(x, np.add, **named))
    if axis is not None or x.ndim == 1:
        name = draw.one(["cumulative_sum", "cumulative_prod"])
        named = {"axis": axis}
        same(lambda: getattr(cdask, name)(y, **named), lambda: getattr(arrays, name)(x, **named))


def sorts(draw):
    x, y = drawn(draw, low=1)
    named = {"axis": draw.axis(x), "descending": draw.one([False, True])}
    if named["axis"] is None and not flattened(y):
        return
    less = draw.perhaps(True) and (lambda a, b: a < b) if x.dtype.kind not in "fc" else None
    parts = draw.perhaps(draw.one([1, 2, 7])) if x.ndim == 1 or named["axis"] is None else None
    named["less"] = less
    same(
        lambda: cdask.sort(y, **named, npartitions=parts),
        lambda: arrays.sort(x, **named),
        signs=False,
    )


def firsts(draw):
    x, y = drawn(draw, real=True, low=1)
    axis, largest = draw.axis(x), draw.one([False, True])
    if axis is None and not flattened(y):
        return
    length = x.size if axis is None else x.shape[axis]
    k = draw.one([0, 1, length // 2, length, length + 1])
    named = {"axis": axis, "largest": largest}
    same(lambda: cdask.top_k(y, k, **named), lambda: arrays.top_k(x, k, **named), signs=False)


def sets(draw):
    x, y = drawn(draw)
    same(lambda: cdask.unique(y), lambda: arrays.unique_values(x), signs=False)
    if flattened(y):
        same(lambda: cdask.unique_counts(y), lambda: arrays.unique_counts(x), signs=False)


def ranks(draw):
    x, y = drawn(draw, real=True, low=1)
    if not flattened(y):
        return
    q = draw.one([0, 1, 0.5, 0.3, [0.0, 1.0, 0.25], [[0.1], [0.9]]])
    method = draw.one(["linear", "lower", "higher", "nearest", "midpoint"])
    same(
        lambda: cdask.quantile(y, q, method=method), lambda: arrays.quantile(x, q, method=method), signs=False
    )
    same(lambda: cdask.median(y), lambda: arrays.median(x), signs=False)


def bins(draw):
    x, y = drawn(draw, real=True)
    edges = draw.one([[-1, 0, 0, 2.5, 3], [0.0, np.inf], [0, 1, 200]])
    for named in ({"bins": edges}, {"bins": 3, "range": (-2, 3)}):
        same(lambda n=named: cdask.histogram(y, **n).hist, lambda n=named: arrays.histogram(x, **n).hist)


def runs(draw):
    keys = np.sort(draw.array(dtypes=DTYPES, low=1, high=1))
    x = draw.array(shape=keys.shape, special=False, dtypes=[each for each in DTYPES if each != "f2"])
    given = da.from_array(keys, chunks=cut(draw, len(keys)))
    items = da.from_array(x, chunks=given.chunks if draw.perhaps(True) else cut(draw, len(keys)))
    same(lambda: cdask.reduce_by_key(given, items), lambda: arrays.reduce_by_key(keys, x), signs=False)
    op = draw.one([later] if x.dtype.kind == "c" else [later, larger])
    same(lambda: cdask.reduce_by_key(given, items, op), lambda: arrays.reduce_by_key(keys, x, op))


CASES = reductions, operators, extremes, scans, sorts, firsts, sets, ranks, bins, runs
__all__ = ["CASES", "Draw"]
