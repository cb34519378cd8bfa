"""Device memory is released, and nothing is kept for algorithms that are not called."""

import gc
import os
import time

import cupy as cp
import numpy as np
import pytest
from test_launches import spin

import cupar
from cupar._device import driver, storage
from cupar._launch import code

MIB = 1 << 20
alone = pytest.mark.skipif(
    "PYTEST_XDIST_WORKER" in os.environ, reason="counts the GPU's memory: run it alone"
)


def used():
    """Bytes of the device's memory that are not free."""
    cp.cuda.Device().synchronize()
    free, total = cp.cuda.runtime.memGetInfo()
    return total - free


@pytest.fixture
def sort():
    """A sort of 2^23 keys: its temporary storage has some 32 MiB."""
    n = 1 << 23
    keys, out = cp.random.randint(0, 1 << 30, n, dtype="i4"), cp.empty(n, "i4")
    sort = cupar.radix_sort(keys, out, None, None, cupar.SortOrder.ASCENDING)
    return sort, (keys, out, None, None, n)


def is_sorted(arguments):
    cp.cuda.Device().synchronize()
    return bool((cp.diff(arguments[1]) >= 0).all())


@alone
def test_release_memory(sort):
    sort, arguments = sort
    cupar.release_memory()
    before = used()
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(4)]
    for stream in (None, *streams):
        for _ in range(6):
            sort.run(*arguments, stream=stream)
        cp.cuda.Device().synchronize()  # all sort into the same array
    assert used() > before + 60 * MIB, "it keeps nothing, so this tells nothing"
    cupar.release_memory()
    assert used() < before + 16 * MIB
    for stream in (None, *streams):
        sort.run(*arguments, stream=stream)
        assert is_sorted(arguments)


def test_release_memory_while_calls_run_and_others_begin(sort):
    sort, arguments = sort
    stream = cp.cuda.Stream(non_blocking=True)
    others = (arguments[0], cp.empty_like(arguments[1]), *arguments[2:])
    cp.cuda.Device().synchronize()
    for _ in range(20):
        for where, given in ((stream, arguments), (None, others)):
            for _ in range(5):
                sort.run(*given, stream=where)
        cupar.release_memory()
        sort.run(*arguments, stream=stream)
    assert is_sorted(arguments)
    assert is_sorted(others)


@alone
def test_streams_that_are_gone_keep_little(sort):
    sort, arguments = sort
    cupar.release_memory()
    cp.cuda.Device().synchronize()
    before = used()
    for _ in range(60):
        stream = cp.cuda.Stream(non_blocking=True)
        for _ in range(5):
            sort.run(*arguments, stream=stream)
        stream.synchronize()
        del stream
        gc.collect()
    assert used() - before < storage._MOST_BYTES + 300 * MIB
    assert storage.memory().bytes_kept() <= storage._MOST_BYTES
    cupar.release_memory()
    assert used() - before < 32 * MIB
    assert is_sorted(arguments)


@alone
def test_an_allocation_that_fails_takes_what_the_pool_keeps(sort):
    sort, arguments = sort
    for _ in range(3):
        sort.run(*arguments)
    cupar.release_memory()
    stream = cp.cuda.Stream(non_blocking=True)
    with storage.temporary_storage(1 << 30, stream.ptr):
        pass
    stream.synchronize()  # the pool keeps it now, in one piece of a size that does not fit
    free = cp.cuda.runtime.memGetInfo()[0]
    with storage.temporary_storage(free + (1 << 29), stream.ptr):
        pass
    stream.synchronize()
    cupar.release_memory()
    with pytest.raises(cupar.DriverError, match="bytes of temporary storage: CUDA_ERROR_"):
        storage.allocate(1 << 50, 0)
    sort.run(*arguments)
    assert is_sorted(arguments)


def test_algorithms_that_are_loaded_and_not_called_have_no_end_of_graphs():
    def plus(k):
        return lambda a, b: a + b * k

    cupar.cache.clear(disk=False)
    gc.collect()
    counted = driver.current_context().part(code._Count)
    before = counted.made
    k = int(time.time()) << 8
    made = [cupar.reduce_into("i4", "i4", plus(k + i), 0, wait=False) for i in range(24)]
    cupar.preload(*made)
    assert before < counted.made <= code._MOST_EXECUTABLES
    items, out = cp.arange(1000, dtype="i4"), cp.zeros(1, "i4")
    for each in (made[0], made[-1]):
        each.run(items, out, 1000, 0)
    del made, each
    cupar.cache.clear(disk=False)
    gc.collect()
    assert counted.made <= before


# --- Bound calls -------------------------------------------------------------------------------------------


def test_a_bound_call_closed_while_its_stream_is_captured():
    items, out = cp.arange(300_000), cp.zeros(1, "i8")
    total = cupar.reduce_into(items, out, lambda a, b: a + b, 0)
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    bound = total.bind(items, out, 300_000, 0, stream=stream)
    address = bound._held.storage[0]
    with stream:
        stream.begin_capture()
        out.fill(7)
        bound.close()
        graph = stream.end_capture()
    for _ in range(3):
        graph.launch(stream)
    stream.synchronize()
    assert out.get()[0] == 7
    cupar.release_memory()
    assert address not in [each.address for each in storage.memory().retired]


def test_a_call_is_not_bound_while_its_stream_is_captured():
    items, out = cp.arange(300_000), cp.zeros(1, "i8")
    total = cupar.reduce_into(items, out, lambda a, b: a + b, 0)
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        with pytest.raises(ValueError, match="^stream: it is being captured"):
            total.bind(items, out, 300_000, 5, stream=stream)
        total.run(items, out, 300_000, 5, stream=stream)
        graph = stream.end_capture()
    graph.launch(stream)
    stream.synchronize()
    assert out.get()[0] == 300_000 * 299_999 // 2 + 5


def test_a_bound_call_whose_stream_is_gone():
    """Collected with its stream, or without it where the stream was given as a handle."""
    items, out = cp.arange(300_000), cp.zeros(1, "i8")
    total = cupar.reduce_into(items, out, lambda a, b: a + b, 0)
    for k in range(20):
        stream = cp.cuda.Stream(non_blocking=True)
        cp.cuda.Device().synchronize()
        bound = total.bind(items, out, 300_000, 0, stream=stream if k % 2 else stream.ptr)
        bound.itself = bound
        spin(stream, 0.01)
        bound()
        stream.synchronize()
        del stream, bound
        gc.collect()
    assert out.get()[0] == 300_000 * 299_999 // 2
    assert len(storage.memory().retired) >= 10
    cupar.release_memory()
    assert not storage.memory().retired


class Copies:
    """Exports a copy each time it is asked, which nothing else keeps; noted when it is gone."""

    def __init__(self, array, gone):
        self._array, self._gone = array, gone

    @property
    def __cuda_array_interface__(self):
        memory = Noted(self._gone, self._array.nbytes)
        cp.cuda.runtime.memcpy(memory.address, self._array.data.ptr, self._array.nbytes, 3)
        found = {**self._array.__cuda_array_interface__, "data": (memory.address, False), "memory": memory}
        found.pop("stream", None)
        return found


class Noted:
    """Memory that is overwritten when it is gone, on a stream that waits for no other."""

    def __init__(self, gone, nbytes):
        self.address, self._gone, self._nbytes = cp.cuda.runtime.malloc(nbytes), gone, nbytes

    def __del__(self):
        self._gone.append(self.address)
        stream = cp.cuda.Stream(non_blocking=True)
        cp.cuda.runtime.memsetAsync(self.address, 255, self._nbytes, stream.ptr)
        stream.synchronize()


@pytest.mark.parametrize("way", ["call", "bound", "kernel"])
def test_what_was_lent_outlives_the_work(way):
    n, gone = 1 << 16, []
    array, out, wanted = cp.arange(n, dtype="i4"), cp.zeros(n, "i4"), 2 * np.arange(n)
    twice = cupar.unary_transform("i4", "i4", lambda a: a * 2)

    @cupar.jit
    def kernel(x, out):
        i = cupar.cuda.grid(1)
        if i < out.size:
            out[i] = x[i] * 2

    kernel[1, 32](array[:1], out[:1])
    stream = cp.cuda.Stream(non_blocking=True)
    spin(stream, 0)  # which is compiled for that
    cp.cuda.Device().synchronize()
    spin(stream)
    if way == "call":
        twice(Copies(array, gone), out, n, stream=stream)
    elif way == "kernel":
        kernel[n // 256, 256, stream](Copies(array, gone), out)
    else:
        bound = twice.bind(Copies(array, gone), out, n, stream=stream)
        bound()
        bound.close()
    before = len(gone)  # those that were only asked what the array is
    stream.synchronize()
    np.testing.assert_array_equal(out.get(), wanted)
    cupar.release_memory()
    gc.collect()
    assert len(gone) > before


def test_a_graph_holds_what_was_lent():
    n, gone = 1 << 16, []
    array, out = cp.arange(n, dtype="i4"), cp.zeros(n, "i4")
    twice = cupar.unary_transform("i4", "i4", lambda a: a * 2)
    twice(array, out, n)
    lent = Copies(array, gone)
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    with stream:
        stream.begin_capture(cp.cuda.runtime.streamCaptureModeRelaxed)
        twice(lent, out, n, stream=stream)
        graph = stream.end_capture()
    del lent
    cupar.release_memory()
    before = len(gone)  # those that were only asked what the array is
    for _ in range(2):
        out.fill(0)
        cp.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        np.testing.assert_array_equal(out.get(), 2 * np.arange(n))
    assert len(gone) == before
    del graph
    gc.collect()
    deadline = time.monotonic() + 10  # the driver tells it from a thread of its own
    while len(gone) == before and time.monotonic() < deadline:
        cupar.release_memory()
        time.sleep(0.01)
    assert len(gone) > before
