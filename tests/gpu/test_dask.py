"""Functions on dask arrays of CuPy's blocks give what they give of NumPy's."""

import itertools

import cupy as cp
import numpy as np
import pytest
from support.ranks import Affine, composed

from cupar import dask as cdask

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

CHUNKS = [(500, 500), (0, 1, 700, 0, 299), (1000,)]


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="sync"):
        yield


def filled(a, b):
    return b if b == b else a


def on_gpu(items, chunks):
    found = cp.asarray(items.view("u1")).view(items.dtype)  # as CuPy has arrays of structs: as views
    return da.from_array(found, chunks=chunks, asarray=False)


@pytest.mark.parametrize("chunks", CHUNKS)
def test_blocks_of_cupy(rng, chunks):
    numbers = np.where(rng.random(1000) < 0.7, np.nan, rng.integers(0, 99, 1000))
    keys = np.sort(rng.integers(0, 9, 1000))
    known = np.maximum.accumulate(np.where(np.isnan(numbers), 0, np.arange(1000)))
    x, k = on_gpu(numbers, chunks), on_gpu(keys, chunks)
    for method in ("parallel", "sequential"):
        found = cdask.scan(x, filled, method=method).compute()
        assert isinstance(found, cp.ndarray)
        np.testing.assert_array_equal(found.get(), numbers[known])
    last = cdask.reduce(x, filled, commutative=False).compute()
    np.testing.assert_array_equal(last.get(), numbers[known[-1]])
    np.testing.assert_array_equal(cdask.sort(x).compute().get(), np.sort(numbers))
    stable = keys[np.argsort(keys % 4, kind="stable")]
    assert np.array_equal(cdask.sort(k, less=lambda a, b: a % 4 < b % 4).compute().get(), stable)
    assert np.array_equal(cdask.unique(k).compute().get(), np.unique(keys))
    found, counts = dask.compute(*cdask.unique_counts(k))
    assert np.array_equal([found.get(), counts.get()], np.unique(keys, return_counts=True))
    assert cdask.sum(k).compute().get() == keys.sum() and cdask.max(k).compute().get() == keys.max()
    assert bool(cdask.all(k).compute()) == keys.all()
    runs = cdask.reduce_by_key(k, k)
    assert np.array_equal(runs.keys.compute().get(), np.unique(keys))
    assert np.array_equal(runs.values.compute().get(), [keys[keys == each].sum() for each in np.unique(keys)])
    assert np.array_equal(cdask.top_k(k, 9).indices.compute().get(), np.argsort(-keys, kind="stable")[:9])
    hist = cdask.histogram(x, bins=7, range=(0, 99)).hist
    assert np.array_equal(hist.compute().get(), np.histogram(numbers, 7, (0, 99))[0])


@pytest.mark.parametrize("axis", [0, 1])
def test_axes_of_cupy(rng, axis):
    items = rng.integers(0, 99, (40, 30))
    x = da.from_array(cp.asarray(items), chunks=((17, 0, 23), (10, 20)), asarray=False)
    assert np.array_equal(cdask.scan(x, axis=axis).compute().get(), items.cumsum(axis))
    before = cdask.scan(x, axis=axis, exclusive=True, init=5).compute().get()
    assert np.array_equal(before, items.cumsum(axis) - items + 5)
    assert np.array_equal(cdask.reduce(x, max, axis=axis).compute().get(), items.max(axis))
    assert np.array_equal(cdask.sort(x, axis=axis).compute().get(), np.sort(items, axis))


@pytest.mark.parametrize("chunks", CHUNKS)
def test_structs_of_cupy(rng, chunks):
    items = np.zeros(1000, Affine.dtype)
    items["a"], items["b"] = rng.integers(1, 9, 1000), rng.integers(0, 9, 1000)
    p = 1_000_003
    steps = itertools.accumulate(items.tolist(), lambda f, g: (f[0] * g[0] % p, (f[1] * g[0] + g[1]) % p))
    blocks = dask.compute(*cdask.scan(on_gpu(items, chunks), composed).to_delayed().ravel())
    assert [each for block in blocks for each in block.get().tolist()] == [*steps]


@pytest.mark.parametrize("processes", [False, True])
def test_workers_of_a_cluster(rng, processes):
    """Two share the GPU; blocks go from one process to the other."""
    distributed = pytest.importorskip("distributed")
    numbers = np.where(rng.random(1000) < 0.7, np.nan, rng.integers(0, 99, 1000))
    keys = np.sort(rng.integers(0, 9, 1000))
    known = np.maximum.accumulate(np.where(np.isnan(numbers), 0, np.arange(1000)))
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=processes, dashboard_address=":0"
    )
    with dask.config.set(scheduler=None), cluster, distributed.Client(cluster):
        for chunks in CHUNKS:
            x, k = on_gpu(numbers, chunks), on_gpu(keys, chunks)
            runs = cdask.reduce_by_key(k, k)
            found = dask.compute(
                cdask.scan(x, filled),
                cdask.scan(x, filled, method="sequential"),
                cdask.reduce(x, filled, commutative=False),
                cdask.sort(x),
                cdask.sort(x, method="workers"),
                runs.keys,
                runs.values,
                cdask.unique(k),
                cdask.median(k),
            )
            different = np.unique(keys)
            sums = [keys[keys == each].sum() for each in different]
            filled_in, ordered = numbers[known], np.sort(numbers)
            expected = filled_in, filled_in, filled_in[-1], ordered, ordered, different, sums, different
            for each, wanted in zip(found, (*expected, np.median(keys)), strict=True):
                assert isinstance(each, cp.ndarray)
                np.testing.assert_array_equal(each.get(), wanted)
