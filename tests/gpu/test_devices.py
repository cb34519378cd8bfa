"""Several devices: arrays, streams and code of another device are refused before any launch."""

import subprocess
import sys
import textwrap

import cupy as cp
import pytest

import cupar

pytestmark = pytest.mark.skipif(cp.cuda.runtime.getDeviceCount() < 2, reason="needs two GPUs")

N = 100_000
EXPECTED = N * (N - 1) // 2


def arrays(device):
    with cp.cuda.Device(device):
        return cp.arange(N), cp.zeros(1, "i8")


def test_both_in_turns():
    given = [arrays(device) for device in (0, 1)]
    total = cupar.reduce_into(*given[0], lambda a, b: a + b, 0)
    streams = []
    for device in (0, 1):
        with cp.cuda.Device(device):
            streams.append(cp.cuda.Stream(non_blocking=True))
            cp.cuda.Device().synchronize()
    for k in range(20):
        for device in (0, 1):
            with cp.cuda.Device(device):
                for stream in (None, streams[device]):
                    total.run(*given[device], N, k + device, stream=stream)
                    cp.cuda.Device().synchronize()
                    assert given[device][1].get()[0] == EXPECTED + k + device
    of_default, of_streams, _ = total._free
    assert len(of_default) == len(of_streams) == 2


def test_a_bound_call_is_rebound_and_closed_wherever_one_is():
    items, out = arrays(1)
    with cp.cuda.Device(1):
        total = cupar.reduce_into(items, out, lambda a, b: a + b, 0)
        bound = total.bind(items, out, N, 0)
        bound()
        assert out.get()[0] == EXPECTED
    bound.rebind(items, out, N, 5)
    with cp.cuda.Device(1):
        bound()
        assert out.get()[0] == EXPECTED + 5
    bound.close()


# Each in a process of its own: what one enables stays enabled, and what was not refused ends the context.
HEAD = """
import ctypes
import cupy as cp, numpy as np, cupar
from cupar._device import driver as _driver
N = 100_000
EXPECTED = N * (N - 1) // 2

class Bare:
    def __init__(self, address, count=N):
        self.__cuda_array_interface__ = {
            "typestr": "<i8", "shape": (count,), "strides": None, "data": (address, False), "version": 3,
        }

items, out = cp.arange(N), cp.zeros(1, "i8")
total = cupar.reduce_into(items, out, lambda a, b: a + b, 0)
with cp.cuda.Device(1):
    theirs, their_out = cp.arange(N), cp.zeros(1, "i8")
    their_stream = cp.cuda.Stream(non_blocking=True)
    their_storage = cp.zeros(1 << 20, "u1")
    cp.cuda.Device().synchronize()

def refused(call, start):
    try:
        call()
    except ValueError as error:
        assert str(error).startswith(start), error
    else:
        raise AssertionError("it was not refused")
"""

TAIL = """
total.run(items, out, N, 3)
assert out.get()[0] == EXPECTED + 3
print("done")
"""


def run(code):
    program = HEAD + textwrap.dedent(code) + TAIL
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if done.returncode == 0 and done.stdout.startswith("skip"):
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["done"]


def test_what_is_refused():
    run("""
        other = "is on device 1, the current device is 0"
        refused(lambda: total.run(theirs, out, N, 0), "d_in: " + other)
        refused(lambda: total.run(items, their_out, N, 0), "d_out: " + other)
        refused(lambda: total.run(Bare(theirs.data.ptr), out, N, 0), "d_in: " + other)
        refused(lambda: total(their_storage, items, out, N, 0), "temp_storage: " + other)
        refused(lambda: total.bind(theirs, out, N, 0), "d_in: " + other)
        stream = "stream: is of device 1, the current device is 0"
        refused(lambda: total.run(items, out, N, 0, stream=their_stream), stream)
        refused(lambda: total.bind(items, out, N, 0, stream=their_stream), stream)
        iterator = cupar.ReverseIterator(items)
        backwards = cupar.inclusive_scan(iterator, items, cupar.OpKind.PLUS)
        refused(lambda: backwards.run(cupar.ReverseIterator(theirs), items.copy(), N), "d_in: " + other)
        table = items
        looked_up = cupar.unary_transform(items, items, lambda i: table[i])
        looked_up(items, items.copy(), N)
        table = theirs
        refused(lambda: looked_up(items, items.copy(), N), "op: captured array 'table': " + other)
        with cp.cuda.Device(1):
            other = "is on device 0, the current device is 1"
            refused(lambda: total.run(items, their_out, N, 0), "d_in: " + other)
            total.run(theirs, their_out, N, 1, stream=their_stream)
            their_stream.synchronize()
            assert their_out.get()[0] == EXPECTED + 1
    """)


def test_calls_that_repeat_refuse_it_too():
    run("""
        for _ in range(60):
            total.run(items, out, N, 0)
        refused(lambda: total.run(theirs, out, N, 0), "d_in: is on device 1")
    """)


def test_a_peer_that_was_enabled():
    run("""
        if not cp.cuda.runtime.deviceCanAccessPeer(0, 1):
            print("skip: these devices are no peers")
            raise SystemExit
        refused(lambda: total.run(theirs, out, N, 0), "d_in: is on device 1")
        cp.cuda.runtime.deviceEnablePeerAccess(1)
        for k in range(60):
            total.run(Bare(theirs.data.ptr), out, N, k)
            assert out.get()[0] == EXPECTED + k
        total.run(items, their_out, N, 0)
        cp.cuda.Device().synchronize()
        with cp.cuda.Device(1):
            assert their_out.get()[0] == EXPECTED
    """)


def test_a_pool_that_was_made_accessible():
    run("""
        if not cp.cuda.runtime.deviceCanAccessPeer(0, 1):
            print("skip: these devices are no peers")
            raise SystemExit
        library = _driver.library()
        pool, address = ctypes.c_void_p(), ctypes.c_void_p()
        with cp.cuda.Device(1):
            _driver.check(library.cuDeviceGetDefaultMemPool(ctypes.byref(pool), 1), "pool")
            status = library.cuMemAllocFromPoolAsync(
                ctypes.byref(address), ctypes.c_size_t(8 * N), pool, ctypes.c_void_p()
            )
            _driver.check(status, "alloc")
            cp.cuda.runtime.memcpy(address.value, theirs.data.ptr, 8 * N, 3)
            cp.cuda.Device().synchronize()
        refused(lambda: total.run(Bare(address.value), out, N, 0), "d_in: is on device 1")
        access = (ctypes.c_int * 3)(1, 0, 3)  # a CUmemAccessDesc: device 0 may read and write
        _driver.check(library.cuMemPoolSetAccess(pool, access, ctypes.c_size_t(1)), "access")
        total.run(Bare(address.value), out, N, 0)
        assert out.get()[0] == EXPECTED
    """)


def test_memory_that_is_everyones():
    run("""
        with cp.cuda.Device(1):
            managed = cp.cuda.malloc_managed(8 * N)
            cp.cuda.runtime.memcpy(managed.ptr, theirs.data.ptr, 8 * N, 3)
            pinned = cp.cuda.alloc_pinned_memory(8 * N)
            host = np.frombuffer(pinned, "i8", N)
            host[:] = np.arange(N)
            registered = np.arange(N)
            cp.cuda.runtime.hostRegister(registered.ctypes.data, registered.nbytes, 0)
            cp.cuda.Device().synchronize()
        for address in (managed.ptr, pinned.ptr, registered.ctypes.data):
            total.run(Bare(address), out, N, 2)
            assert out.get()[0] == EXPECTED + 2
    """)
