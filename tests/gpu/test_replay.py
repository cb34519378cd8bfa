"""Calls that repeat are replayed, whatever changes between them, and do what they did before."""

import gc
import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import cupy as cp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_launches import SPIN, algorithms, spin

import cupar
from cupar._call import replays as _replay

few = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def replays(algorithm):
    """What replays calls of an algorithm, on whatever device."""
    everywhere = [each for known in algorithm._history.values() for each in list(known.values())]
    return [each for each in everywhere if isinstance(each, _replay.Replay)]


pytestmark = pytest.mark.parametrize("calls_before", [2], indirect=True)


def test_all_algorithms_are_replayed(caplog):
    caplog.set_level(logging.DEBUG, "cupar")  # which says why not
    keys = cp.arange(100_000, dtype="u4")
    samples, bins = cp.arange(1000, dtype="f4"), cp.zeros(10, "i4")
    counted = cupar.histogram_even(samples, bins, 11, np.float32(0), np.float32(1000), 1000)
    made = [
        *algorithms(),
        (cupar.radix_sort(keys, keys, None, None, 0), (keys, keys.copy(), None, None, 100_000)),
        (cupar.radix_sort(keys, keys, keys, keys, 0), (keys, keys.copy(), keys, keys.copy(), 1000)),
        (counted, (samples, bins, 11, np.float32(0), np.float32(1000), 1000)),
    ]
    for algorithm, arguments in made:
        for _ in range(4):
            algorithm.run(*arguments)
        for _ in range(0 if replays(algorithm) else 3100):  # by chance it was not; it is tried again
            algorithm.run(*arguments)
    assert not [algorithm for algorithm, _ in made if not replays(algorithm)], [
        record.getMessage() for record in caplog.records if "not replayed" in record.getMessage()
    ]


def test_two_calls_are_made_before():
    items, out = cp.arange(100), cp.zeros(1, "i8")
    total = cupar.reduce_into(items, out, lambda a, b: a + b, 0)
    for _ in range(2):
        total.run(items, out, 100, 0)
    assert not replays(total)
    total.run(items, out, 100, 0)
    assert len(replays(total)) == 1


@few
@given(st.data())
def test_whatever_changes(data):
    """Sizes, arrays, where they begin, the initial value, storage and stream, in any order."""
    kind = data.draw(st.sampled_from(["i4", "i8", "i2", "c8"]))
    host = np.arange(5000) % 91
    arrays = [cp.asarray(host.astype(kind) + 100 * k) for k in range(3)]
    outs = cp.zeros(600, kind)
    streams = [None, cp.cuda.Stream(non_blocking=True), cp.cuda.Stream()]
    total = cupar.reduce_into(arrays[0], outs, lambda a, b: a + b, np.zeros(1, kind))
    storage = cp.zeros(100_000, "u1")
    cp.cuda.Device().synchronize()
    calls = st.tuples(
        st.integers(0, 2),
        st.sampled_from([0, 0, 256, 1, 7, 100]),  # aligned as before, or not
        st.sampled_from([1, 1000, 1000, 4700]),
        st.integers(-9, 9),
        st.sampled_from([0, 0, 256, 512, 1, 7]),
        st.sampled_from(streams),
        st.sampled_from([None, 0, 512, 256, 3]),
    )
    for which, begin, n, init, place, stream, at in data.draw(st.lists(calls, min_size=1, max_size=40)):
        arguments = arrays[which][begin:], outs[place:], n, np.full(1, init, kind)
        cp.cuda.Device().synchronize()
        if at is None:
            total.run(*arguments, stream=stream)
        else:
            total(storage[at:], *arguments, stream=stream)
        (stream or cp.cuda.Stream.null).synchronize()
        expected = (host[begin : begin + n] + 100 * which).astype(kind).sum(dtype=kind) + np.array(init, kind)
        assert outs.get()[place] == expected.astype(kind)


def test_bits_of_initial_values():
    """Values that compare equal, and others that do not compare equal to themselves."""
    items, out = cp.full(10, -0.0, "f4"), cp.zeros(1, "f4")
    most = cupar.reduce_into(items, out, lambda a, b: a + b, np.zeros(1, "f4"))
    for value in [-0.0] * 5 + [0.0, -0.0, np.nan, np.nan, 1.0, 0.0, -0.0]:
        most.run(items, out, 10, np.full(1, value, "f4"))
        np.testing.assert_array_equal(np.signbit(out.get()), np.signbit(value))
        np.testing.assert_array_equal(out.get(), np.float32(value))
    assert replays(most)


def test_arrays_that_an_operator_captures_and_iterators():
    table, items, out = cp.arange(10), cp.arange(10), cp.zeros(10, "i8")
    looked_up = cupar.unary_transform(cupar.CountingIterator(0), out, lambda i: table[i % 10])
    for k in range(12):
        if k % 3 == 0:
            table = cp.arange(10) * k  # another array
        looked_up.run(cupar.CountingIterator(k), out, 10)
        np.testing.assert_array_equal(out.get(), (k + np.arange(10)) % 10 * (k - k % 3))
    doubled = cupar.reduce_into(cupar.TransformIterator(items, lambda a: a * 2), out, cupar.OpKind.PLUS, 0)
    for k in range(8):
        other, target = cp.arange(10) + k, cp.zeros(1, "i8")
        doubled.run(cupar.TransformIterator(other, lambda a: a * 2), target, 10, k)
        assert target.get()[0] == 90 + 21 * k
    assert replays(looked_up)
    assert replays(doubled)


def test_double_buffers_are_not_replayed():
    host = np.random.default_rng(3).integers(0, 1 << 16, 40_000).astype("u4")
    sort = cupar.radix_sort("u4", "u4", None, None, cupar.SortOrder.ASCENDING)
    keys = cupar.DoubleBuffer(cp.asarray(host), cp.zeros(len(host), "u4"))
    for end in (8, 16, 24) * 4:
        keys.current()[...] = cp.asarray(host)
        sort.run(keys, None, None, None, len(host), 0, end)
        order = np.argsort(host & ((1 << end) - 1), kind="stable")
        np.testing.assert_array_equal(keys.current().get(), host[order])
    assert not replays(sort)


def test_errors_of_replayed_calls():
    items, out = cp.arange(300_000), cp.zeros(1, "i8")
    total = cupar.reduce_into(items, out, cupar.OpKind.PLUS, 0)
    nbytes = total(None, items, out, 300_000, 0)
    storage = cp.zeros(nbytes, "u1")
    for _ in range(4):
        assert total(storage, items, out, 300_000, 0) == nbytes
    assert replays(total)
    assert total(None, items, out, 300_000, 0) == nbytes
    with pytest.raises(ValueError, match=f"^temp_storage: needs {nbytes} bytes for this call, got 100"):
        total(storage[:100], items, out, 300_000, 0)
    with pytest.raises(ValueError, match="^temp_storage: needs"):
        total(cp.zeros(0, "u1"), items, out, 300_000, 0)
    with pytest.raises(ValueError, match="^d_in: needs at least 300000 items"):
        total(storage, items[1:], out, 300_000, 0)
    with pytest.raises(TypeError, match="^d_in: "):
        total(storage, items.view("f8"), out, 300_000, 0)
    total(storage, items, out, 300_000, 5)
    assert out.get()[0] == 300_000 * 299_999 // 2 + 5


def test_many_sizes_in_turns():
    items, out = cp.arange(10_000), cp.zeros(1, "i8")
    total = cupar.reduce_into(items, out, lambda a, b: a + b, 0)
    for _ in range(5):
        for n in range(1, 10_000, 331):  # more of them than there is room for
            total.run(items, out, n, 0)
            assert out.get()[0] == n * (n - 1) // 2
    assert 0 < len(replays(total)) <= 8


# --- Streams -----------------------------------------------------------------------------------------


def test_work_is_ordered_by_the_stream():
    """The default stream waits for others that are not marked as non-blocking, and they for it."""
    items, out, n = cp.ones(1000, "i8"), cp.zeros(1, "i8"), 1000
    total = cupar.reduce_into(items, out, lambda a, b: a + b, 0)
    blocking = cp.cuda.Stream()
    for k in range(10):
        spin(blocking, 0.01)
        with blocking:
            items.fill(k)
        total.run(items, out, n, 0)
        with blocking:
            items.fill(-1)
        assert out.get()[0] == k * n
    assert replays(total)


def test_a_capture_takes_up_the_launches():
    items, out = cp.arange(1000), cp.zeros(1, "i8")
    total = cupar.reduce_into(items, out, lambda a, b: a + b, 0)
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    for _ in range(5):
        total.run(items, out, 1000, 0, stream)
    assert [each.number for each in replays(total)] == [stream_number(stream)]
    with stream:
        stream.begin_capture()
        for _ in range(5):
            total.run(items, out, 1000, 0, stream)
        graph = stream.end_capture()
    for k in range(3):
        out.fill(0)
        items[...] = k
        cp.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        assert out.get()[0] == 1000 * k


def stream_number(stream):
    return cupar._device.driver.stream_number(stream.ptr)


def test_beside_a_capture_of_torchs():
    """In its global mode, which refuses in any thread what might wait."""
    torch = pytest.importorskip("torch")
    items, out = cp.arange(1000), cp.zeros(8 * 64, "i8")
    total = cupar.reduce_into(items, out, lambda a, b: a + b, 0)
    beside = cp.cuda.Stream(non_blocking=True)
    tensor, graph = torch.ones(10, device="cuda"), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    storage = cp.zeros(total(None, items, out, 1000, 0), "u1")
    with torch.cuda.graph(graph):
        tensor += 1
        for k in range(8):  # made into a replay, and turned to other arrays
            total(storage, items, out[64 * k :], 1000, k, stream=beside)
        tensor += 1
    assert replays(total)
    graph.replay()
    torch.cuda.synchronize()
    assert tensor.tolist() == [3.0] * 10
    np.testing.assert_array_equal(out.get()[::64], 499_500 + np.arange(8))


def test_streams_that_come_and_go():
    items, outs = cp.arange(1000), cp.zeros(400, "i8")
    total = cupar.reduce_into(items, outs, lambda a, b: a + b, 0)
    cp.cuda.Device().synchronize()
    handles = set()
    for k in range(100):
        stream = cp.cuda.Stream(non_blocking=True)
        handles.add(stream.ptr)
        spin(stream, 0.001)
        for i in range(4):
            total.run(items, outs[4 * k + i :], 1000, i, stream)
        del stream
        gc.collect()
    cp.cuda.Device().synchronize()
    np.testing.assert_array_equal(outs.get().reshape(100, 4), 499_500 + np.arange(4) * np.ones((100, 1)))
    assert len(handles) < 100, "no handle was used again, so this tells nothing"


def test_streams_with_a_priority_are_left_alone():
    items, out = cp.arange(1000), cp.zeros(1, "i8")
    total = cupar.reduce_into(items, out, lambda a, b: a + b, 0)
    urgent = cp.cuda.Stream(non_blocking=True, priority=-1)
    cp.cuda.Device().synchronize()
    for k in range(6):
        total.run(items, out, 1000, k, urgent)
        urgent.synchronize()
        assert out.get()[0] == 499_500 + k
    assert not replays(total)


@pytest.fixture
def spinning_is_loaded():
    SPIN((1,), (1,), (np.int64(1), 0))
    cp.cuda.Device().synchronize()


def test_never_a_wait(spinning_is_loaded):
    """To make, launch, change and drop a replay waits for nothing, however busy the GPU is."""
    stream, busy = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    made = list(algorithms())
    for algorithm, arguments in made:
        algorithm.run(*arguments, stream=stream)
    cp.cuda.Device().synchronize()
    spin(busy, seconds=1)
    start = time.perf_counter()
    for number, (algorithm, arguments) in enumerate(made):
        # More altogether than the driver has memory for, of one of them more than there is room for.
        for k in range(7 if number else 20):
            sized = [1000 + k if type(each) is int else each for each in arguments]
            for _ in range(4):
                algorithm.run(*sized, stream=stream)
    enqueued = time.perf_counter() - start
    still_busy = not busy.done
    counts = [len(replays(algorithm)) for algorithm, _ in made]
    cp.cuda.Device().synchronize()
    assert still_busy, f"the GPU was done too soon for this to tell anything: {enqueued}"
    assert enqueued < 0.5
    assert min(counts) >= 7


def test_while_another_thread_waits_for_the_device():
    """It may, while code is loaded, a call bound or made into a replay: all of that captures."""
    items, out, ended, made = cp.arange(1000), cp.zeros(1, "i8"), threading.Event(), []

    def make():
        stream = cp.cuda.Stream(non_blocking=True)
        for k in range(12):
            total = cupar.reduce_into(items, out, lambda a, b: a + b, np.int64(0))
            for n in range(990, 1000):
                for i in range(4):
                    total.run(items, out, n, i + k, stream)
                total.bind(items, out, n, i, stream=stream).close()
            made.append(len(replays(total)))
            del total
            cupar.cache.clear(disk=False)

    def made_and_ended():
        try:
            make()
        finally:
            ended.set()

    waits = 0
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(made_and_ended)
        while not ended.is_set():
            cp.cuda.Device().synchronize()
            waits += 1
        future.result()
    assert waits > 1000
    assert min(made) >= 7  # or the waiting has ended the captures


def test_on_one_stream_while_another_waits(spinning_is_loaded):
    """A replay behind a kernel that only a later call of the same object, on another stream, ends."""
    waiting, other = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
    flag, ones, out = cp.zeros(1, "i4"), cp.ones(1, "i4"), cp.zeros(1, "i4")
    write = cupar.unary_transform(ones, flag, lambda a: a)
    cp.cuda.Device().synchronize()
    for stream in (waiting, other):
        for _ in range(5):
            write(ones, out, 1, stream)
    cp.cuda.Device().synchronize()
    assert len(replays(write)) == 2
    start = time.perf_counter()
    spin(waiting, seconds=20, stop=flag)  # its own end is the watchdog
    write(ones, out, 1, waiting)
    write(ones, flag, 1, other)
    cp.cuda.Device().synchronize()
    assert time.perf_counter() - start < 5


def test_one_object_on_many_threads():
    n, threads, wrong = 1000, 12, []
    items = cp.arange(n)
    total = cupar.reduce_into(items, items, lambda a, b: a + b, 0)
    cp.cuda.Device().synchronize()

    def work(number):
        stream, out = cp.cuda.Stream(non_blocking=True), cp.zeros(8 * 64, "i8")
        cp.cuda.Device().synchronize()
        for i in range(200):
            where = stream if i % 2 else None  # the default stream is everyone's
            total.run(items, out[64 * (i % 8) :], n - number % 3, number * 1000 + i, where)
            (where or cp.cuda.Stream.null).synchronize()
            m = n - number % 3
            if out.get(stream=stream)[64 * (i % 8)] != m * (m - 1) // 2 + number * 1000 + i:
                wrong.append((number, i))

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
    assert not wrong
    assert len(replays(total)) >= 6  # of 8 that there is room for


# --- What becomes of the graphs -----------------------------------------------------------------------


def replayed_reduction():
    items, out = cp.arange(1000), cp.zeros(1, "i8")
    total = cupar.reduce_into(items, out, lambda a, b: a + b, 0)
    for _ in range(5):
        total.run(items, out, 1000, 0)
    assert replays(total)
    cupar.cache.clear(disk=False)  # the test has the last reference
    return total, (items, out, 1000, 0)


def test_dropped_beside_a_capture_of_torchs():
    torch = pytest.importorskip("torch")
    total, arguments = replayed_reduction()
    tensor, graph = torch.ones(10, device="cuda"), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        tensor += 1
        total.run(*arguments, stream=torch.cuda.current_stream())
        del total
        gc.collect()
        tensor += 1
    graph.replay()
    torch.cuda.synchronize()
    assert tensor.tolist() == [3.0] * 10
    assert arguments[1].get()[0] == 499_500


def test_dropped_by_a_thread_without_a_context():
    total, _ = replayed_reduction()
    found, errors = replays(total), []

    def drop():
        try:
            for each in found:
                each.close()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=drop)
    thread.start()
    thread.join()
    assert not errors


def test_in_a_forked_child():
    total, arguments = replayed_reduction()
    bound = total.bind(*arguments)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with pytest.raises(RuntimeError, match="forked"):
                total.run(*arguments)
            del total, bound
            gc.collect()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    for run in (lambda: total.run(*arguments), bound):
        arguments[1].fill(0)
        run()
        assert arguments[1].get()[0] == 499_500


@pytest.mark.parametrize("n", [1000, 300_000, (1 << 24) + 5])
def test_bound_double_buffers(n):
    host = np.random.default_rng(3).integers(0, 1 << 32, n).astype("u4")
    keys = cupar.DoubleBuffer(cp.asarray(host), cp.zeros(n, "u4"))
    sort = cupar.radix_sort("u4", "u4", None, None, cupar.SortOrder.ASCENDING)
    with sort.bind(keys, None, None, None, n, 0, 24) as bound:
        order = np.argsort(host & 0xFFFFFF, kind="stable")
        bound()
        np.testing.assert_array_equal(keys.current().get(), host[order])
        for _ in range(3):
            keys.current()[...] = cp.asarray(host)
            bound.rebind(keys, None, None, None, n, 0, 24)
            bound()
            np.testing.assert_array_equal(keys.current().get(), host[order])
