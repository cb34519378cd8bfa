"""Programs of functions of arrays, against calls that are made anew."""

from functools import partial

import cupy as cp
import numpy as np
import pytest
from support.common import in_threads

from cupar import arrays
from cupar._program import known

RANDOM = np.random.default_rng(32)
FUNCTIONS = {
    "median": (arrays.median, [(1000,)]),
    "an item": (arrays.median, [(1001,)]),
    "quantiles": (lambda x: arrays.quantile(x, [0.1, 0.25, 0.5, 0.9]), [(1000,)]),
    "medians of rows": (lambda x: arrays.median(x, axis=1), [(64, 100)]),
    "medians of columns": (lambda x: arrays.median(x, axis=0), [(64, 100)]),
    "sort": (arrays.sort, [(1000,)]),
    "argmax": (arrays.argmax, [(1000,)]),
    "scans of rows": (lambda x: arrays.cumulative_sum(x, axis=1), [(64, 100)]),
    "concatenate": (lambda *x: arrays.concatenate(x), [(7,), (1000,), (70000,), (1,)]),
    "columns": (lambda *x: arrays.concatenate(x, axis=1), [(7, 4), (7, 100)]),
}


def made(shapes, dtype="f4"):
    return [cp.asarray(RANDOM.integers(-99, 99, shape).astype(dtype) / 4) for shape in shapes]


def anew(monkeypatch, call, given):
    with monkeypatch.context() as patched:
        patched.setattr(known, "call", lambda *asked: None)
        return call(*given).get()


def poison():
    """Leave NaNs in the memory that results and temporaries get."""
    for _ in range(4):
        cp.full(1 << 14, np.nan, np.float32)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_returns_what_a_call_made_anew_does(name, monkeypatch):
    call, shapes = FUNCTIONS[name]
    for _ in range(3):
        call(*made(shapes))
    given = [made(shapes) for _ in range(50)]
    poison()
    found = [call(*each) for each in given]  # without a wait between
    for each, result in zip(given, found, strict=True):
        np.testing.assert_array_equal(result.get(), anew(monkeypatch, call, each), strict=True)


@pytest.mark.parametrize("dtype", ["u1", "f2", "f8", "c8", "c16"])
def test_concatenate(dtype):
    for sizes in ((1000, 1000), tuple(range(1, 17)), (3, 70000)):
        for skipped in (0, 0, 3, 3, 0):
            given = [each[skipped:] for each in made([(n + skipped,) for n in sizes], dtype)]
            found = arrays.concatenate(given)
            np.testing.assert_array_equal(found.get(), np.concatenate([each.get() for each in given]))


def test_on_streams_and_in_a_captured_one():
    x, y = (cp.asarray(RANDOM.random(1000, np.float32)) for _ in range(2))
    for _ in range(3):
        arrays.concatenate([x, y])
    for stream in (cp.cuda.Stream.null, cp.cuda.Stream(non_blocking=True), cp.cuda.Stream()):
        with stream:
            for i in range(7):
                assert float(arrays.median(x + i).get()) == np.median((x + i).get())
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        try:
            median, both = arrays.median(x), arrays.concatenate([x, y])
        finally:
            graph = stream.end_capture()
    for i in range(3):
        x[:] = cp.asarray(RANDOM.random(1000, np.float32))
        cp.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        assert float(median.get()) == np.median(x.get())
        np.testing.assert_array_equal(both.get(), np.concatenate([x.get(), y.get()]))


def test_in_threads():
    for _ in range(3):
        arrays.median(cp.zeros(1000, np.float32))

    def work():
        with cp.cuda.Stream(non_blocking=True):
            return [float(arrays.median(cp.full(1000, i, np.float32)).get()) for i in range(50)]

    assert in_threads(4, work) == [list(range(50))] * 4


def test_lengths_in_threads_and_on_streams():
    """Each thread reads lengths from memory of its own, which kernels of its streams write to."""
    given = [cp.asarray(np.repeat(np.arange(100 + k), 10)) for k in range(8)]
    kept = {k: cp.asarray(RANDOM.random(5000) < (k + 1) / 10) for k in range(8)}
    counts = {k: int(each.sum()) for k, each in kept.items()}

    numbers = iter(range(8))

    def call():
        k = next(numbers)
        streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
        for i in range(60):
            with streams[i % 2]:
                assert len(arrays.unique_values(given[k])) == 100 + k
                assert len(arrays.nonzero(kept[k])[0]) == counts[k]
                values, found = arrays.unique_counts(given[k])
                assert (len(values), len(found)) == (100 + k, 100 + k)
                assert len(arrays.bincount(given[k])) == 100 + k
                assert len(arrays.repeat(given[k][:50], given[k][:50])) == sum(range(5)) * 10

    cp.cuda.Device().synchronize()
    assert in_threads(8, call) == [None] * 8


def test_numbers_that_are_others_in_each_call(monkeypatch):
    x = made([(1000,)])[0]
    for k in range(40):
        assert arrays.roll(x, k - 20).get().tolist() == np.roll(x.get(), k - 20).tolist()
        q = k / 39
        call = lambda x, q=q: arrays.quantile(x, q)
        np.testing.assert_array_equal(arrays.quantile(x, q).get(), anew(monkeypatch, call, [x]))
        found = arrays.histogram(x, bins=10 + k, range=(-30.0 - k, 30.0))
        hist, edges = np.histogram(x.get(), 10 + k, (-30.0 - k, 30.0))
        assert found.hist.get().tolist() == hist.tolist()
        np.testing.assert_allclose(found.edges.get(), edges, rtol=1e-6)


def test_numbers_that_operators_read_on_streams_and_in_threads():
    """One program has another value in each call, also while earlier calls are still enqueued."""
    x = cp.arange(100_000, dtype="f8")
    host = x.get()

    def work(seed):
        found = []
        with cp.cuda.Stream(non_blocking=True) as stream:
            for i in range(60):
                k = 1.3 + seed + i / 7
                limit = k * 1000 + 0.1
                kept = arrays.copy_if(x, lambda v: v > limit)
                found.append(
                    (k, arrays.transform(lambda v: v * k, x), arrays.count_if(x, lambda v: v < k), kept)
                )
            stream.synchronize()
        for k, scaled, count, kept in found:
            assert (scaled.get() == host * k).all()
            assert int(count) == int((host < k).sum())
            assert kept.size == int((host > k * 1000 + 0.1).sum())

    cp.cuda.Device().synchronize()
    work(0)
    assert in_threads(4, partial(work, 1)) == [None] * 4
