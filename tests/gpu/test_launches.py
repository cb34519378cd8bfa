"""How calls are enqueued: bound ones, workspaces, many threads, and never behind what else the GPU runs."""

import os
import threading
import time

import cupy as cp
import numpy as np
import pytest
from support.spins import load, spin

import cupar
from cupar._device import driver
from cupar._device import storage as _storage

SIZES = (1, 1000, 300_000)


@pytest.fixture(scope="module", autouse=True)
def spinning_is_loaded():
    load()


def sums(n, dtype="i8"):
    host = np.arange(n, dtype=dtype)
    return cp.asarray(host), cp.zeros(1, dtype), host.sum()


# --- Bound calls -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
def test_bound_reduction(n):
    d_in, d_out, expected = sums(n)
    total = cupar.reduce_into(d_in, d_out, lambda a, b: a + b, 0)
    bound = total.bind(d_in, d_out, n, 5)
    for _ in range(3):
        d_out[...] = -1
        bound()
        assert d_out.get()[0] == expected + 5
    d_in += 1  # what is bound is the array, not what is in it
    bound()
    assert d_out.get()[0] == expected + 5 + n


def test_rebinding():
    d_in, d_out, expected = sums(1000)
    other, other_out = cp.asarray(np.full(300_000, 2)), cp.zeros(1, "i8")
    total = cupar.reduce_into(d_in, d_out, cupar.OpKind.PLUS, 0)
    with total.bind(d_in, d_out, 1000, 0) as bound:
        bound()
        bound.rebind(d_in, d_out, 1000, h_init=7)
        bound()
        assert d_out.get()[0] == expected + 7
        bound.rebind(other, other_out, 300_000, 0)  # with more kernels
        bound()
        assert other_out.get()[0] == 600_000
        with pytest.raises(ValueError, match="^d_in: needs at least 2000 items"):
            bound.rebind(d_in, d_out, 2000, 0)
        bound()
        cp.cuda.Device().synchronize()


def test_rebinding_keeps_the_graph_if_the_kernels_are_the_same():
    arrays, outs = [cp.arange(1000) + k for k in range(3)], [cp.zeros(8, "i8") for _ in range(8)]
    total = cupar.reduce_into(arrays[0], outs[0], lambda a, b: a + b, 0)
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    for where in (None, stream):
        with total.bind(arrays[0], outs[0], 1000, 0, stream=where) as bound:
            graph = bound._held.executable
            for k in range(30):
                bound.rebind(arrays[k % 3], outs[k % 8], 1000, h_init=k)
                bound()
                cp.cuda.Device().synchronize()
                assert outs[k % 8].get()[0] == 499_500 + 1000 * (k % 3) + k
            assert bound._held.executable is graph
            bound.rebind(arrays[1][1:], outs[0], 999, 0)
            bound()
            cp.cuda.Device().synchronize()
            assert outs[0].get()[0] == 499_500 + 999
            assert bound._held.executable is graph
            bound.rebind(cp.arange(100_000), outs[0], 100_000, 0)  # which takes other kernels
            bound()
            cp.cuda.Device().synchronize()
            assert outs[0].get()[0] == 100_000 * 99_999 // 2
            assert bound._held.executable is not graph
    scan = cupar.inclusive_scan(arrays[0], arrays[0], lambda a, b: a + b)
    urgent = cp.cuda.Stream(non_blocking=True, priority=-1)  # no graph has its priority
    with scan.bind(arrays[0], outs[0], 8, stream=urgent) as bound:
        for k in range(3):
            bound.rebind(arrays[k], outs[0], 8)
            bound()
            urgent.synchronize()
            np.testing.assert_array_equal(outs[0].get(), np.cumsum(np.arange(8) + k))


def test_bound_calls_on_streams_and_of_algorithms_without_storage():
    stream = cp.cuda.Stream(non_blocking=True)
    d_in, d_out = cp.arange(1000, dtype="f4"), cp.zeros(1000, "f4")
    cp.cuda.Device().synchronize()
    square = cupar.unary_transform(d_in, d_out, lambda a: a * a).bind(d_in, d_out, 1000, stream=stream)
    scan = cupar.inclusive_scan(d_out, d_out, cupar.OpKind.PLUS).bind(d_out, d_out, 1000, stream=stream)
    square()
    scan()
    stream.synchronize()
    np.testing.assert_allclose(d_out.get(), np.cumsum(np.arange(1000.0) ** 2), rtol=1e-5)


# --- Storage ---------------------------------------------------------------------------------------


def test_workspaces_grow_and_are_one_for_a_stream():
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(3)]
    d_in, _, _ = sums(3_000_000)
    cp.cuda.Device().synchronize()
    outs = [cp.zeros(1, "i8") for _ in range(60)]
    total = cupar.reduce_into(d_in, outs[0], lambda a, b: a + b, 0)
    sizes = [(i + 1) * 50_000 for i in range(60)]
    for i, (out, n) in enumerate(zip(outs, sizes, strict=True)):
        total.run(d_in, out, n, 0, streams[i % 3])
    cp.cuda.Device().synchronize()
    assert [out.get()[0] for out in outs] == [n * (n - 1) // 2 for n in sizes]
    context = driver.current_context()
    kept = context.part(_storage.ContextMemory).workspace(
        streams[0].ptr, driver.stream_number(streams[0].ptr)
    )
    assert (
        kept
        is context.part(_storage.ContextMemory).workspace(
            streams[0].ptr, driver.stream_number(streams[0].ptr)
        )
        is not None
    )
    assert kept.nbytes > 0


def test_streams_that_come_and_go():
    d_in, _, expected = sums(200_000)
    outs = [cp.zeros(1, "i8") for _ in range(300)]
    total = cupar.reduce_into(d_in, outs[0], lambda a, b: a + b, 0)
    cp.cuda.Device().synchronize()
    for out in outs:
        stream = cp.cuda.Stream(non_blocking=True)
        total.run(d_in, out, 200_000, 0, stream)
        del stream
    cp.cuda.Device().synchronize()
    assert {out.get()[0] for out in outs} == {expected}


def test_one_object_on_many_threads():
    n, threads, rounds = 100_000, max(8, os.cpu_count() or 8), 40
    d_in, _, _ = sums(n)
    first = cupar.reduce_into(d_in, cp.zeros(1, "i8"), lambda a, b: a + b, 0)
    wrong = []

    def work(number):
        stream = cp.cuda.Stream(non_blocking=True)
        out = cp.zeros(1, "i8")
        cp.cuda.Device().synchronize()
        for i in range(rounds):
            size, init = n - number * 100 - i, number * 1000 + i
            where = stream if i % 2 else None  # the default stream's workspace is everyone's
            total = first if i % 3 else cupar.reduce_into(d_in, out, lambda a, b: a + b, 0)
            total.run(d_in, out, size, init, where)
            cp.cuda.Device().synchronize()
            if out.get()[0] != size * (size - 1) // 2 + init:
                wrong.append((number, i))

    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not wrong


# --- Never a wait ----------------------------------------------------------------------------------


def algorithms():
    f4, i8 = cp.zeros(200_000, "f4"), cp.zeros(200_000, "i8")
    keys, items = cp.zeros(200_000, "f4"), cp.zeros(200_000, "f4")
    one = cp.zeros(2, "i8")
    n = len(f4)
    k = time.perf_counter()  # of its own, so that the builds are new
    op = lambda a, b: a + b * k
    yield cupar.reduce_into(f4, f4, op, np.zeros(1, "f4")), (f4, f4, n, np.zeros(1, "f4"))
    yield cupar.inclusive_scan(f4, f4, op), (f4, f4, n)
    yield cupar.unary_transform(f4, f4, lambda a: a * k), (f4, f4, n)
    less = lambda a, b: a * k < b * k
    yield cupar.merge_sort(f4, None, f4, None, less), (f4, None, f4, None, n)
    yield (
        cupar.unique_by_key(f4, f4, keys, items, one, lambda a, b: a * k == b),
        (f4, f4, keys, items, one, n),
    )
    yield cupar.select(f4, keys, one, lambda a: a > k), (f4, keys, one, n)
    yield cupar.reduce_by_key(f4, keys, f4, items, one, op), (f4, keys, f4, items, one, n)
    yield cupar.run_length_encode(f4, keys, i8, one, lambda a, b: a * k == b), (f4, keys, i8, one, n)
    yield cupar.lower_bound(f4, f4, i8, less), (f4, n, f4, n, i8)
    yield (
        cupar.segmented_reduce(f4, f4, i8, i8, op, np.zeros(1, "f4")),
        (f4, f4, 10, i8, i8, np.zeros(1, "f4")),
    )


def test_first_calls_do_not_wait_for_what_else_runs():
    """Each is called for the first time while another stream is busy for half a second."""
    stream, busy = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    made = list(algorithms())
    small = cp.zeros(1, "u1")
    storages = []
    for algorithm, arguments in made:
        needs = type(algorithm).__name__ not in ("UnaryTransform", "BinarySearch")
        storages.append(cp.zeros(algorithm(None, *arguments) + 1, "u1") if needs else small)
    cp.cuda.Device().synchronize()
    spin(busy)
    start = time.perf_counter()
    for (algorithm, arguments), storage in zip(made, storages, strict=True):
        if storage is small:
            algorithm(*arguments, stream=stream)
        else:
            algorithm(storage, *arguments, stream=stream)
    enqueued = time.perf_counter() - start
    still_busy = not busy.done
    cp.cuda.Device().synchronize()
    assert still_busy, "the GPU was done too soon for this to tell anything"
    assert enqueued < 0.2


def test_behind_a_kernel_that_only_a_later_call_ends():
    """It spins until a call on another stream, never made before, writes what it waits for."""
    stream, busy = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    flag, ones = cp.zeros(1, "i4"), cp.ones(1, "i4")
    k = int(time.time())
    write = cupar.unary_transform(ones, flag, lambda a: a * 0 + k)
    cp.cuda.Device().synchronize()
    start = time.perf_counter()
    spin(busy, seconds=20, stop=flag)  # its own end is the watchdog
    write(ones, flag, 1, stream)
    cp.cuda.Device().synchronize()
    assert time.perf_counter() - start < 5
    assert flag.get()[0] == k


@pytest.mark.parametrize("n", [1000, 300_000])
@pytest.mark.parametrize("turns", [1, 2, 4, 5, 9])
def test_calls_that_take_turns(n, turns):
    """Each has an executable, or takes one of another call, while launches of both are enqueued."""
    given = [cp.arange(n) + k for k in range(turns)]
    outs = [cp.zeros(1, "i8") for _ in range(turns)]
    total = cupar.reduce_into(given[0], outs[0], lambda a, b: a + b, 0)
    for stream in (None, cp.cuda.Stream(non_blocking=True)):
        cp.cuda.Device().synchronize()
        for k in [*range(turns)] * 3 + np.random.default_rng(turns).integers(0, turns, 200).tolist():
            total.run(given[k], outs[k], n - k % 2, k, stream=stream)
        cp.cuda.Device().synchronize()
        for k in range(turns):
            length = n - k % 2
            assert outs[k].get()[0] == length * (length - 1) // 2 + k * length + k
            outs[k][...] = 0
    cupar.release_memory()
    total.run(given[0], outs[0], n, 0)
    assert outs[0].get()[0] == n * (n - 1) // 2
