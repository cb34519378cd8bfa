"""Code is loaded when a factory returns, and by no call: as the driver sees it."""

import os
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import cupy as cp
import numpy as np
import pytest

import cupar

SCRIPT = """
import sys, threading
sys.path[:0] = sys.argv[1:]
import cupy as cp
from cupar._device import driver
from test_launches import algorithms

library, loads = driver.library(), 0

def count(name):
    function = getattr(library, name)

    def counted(*arguments):
        global loads
        loads += 1
        return function(*arguments)

    setattr(library, name, counted)

for name in ("cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetFunction", "cuFuncLoad"):
    count(name)
made = list(algorithms())
streams = [cp.cuda.Stream(non_blocking=True) for _ in range(6)]
before = loads

def call_all():
    for number, (algorithm, arguments) in enumerate(made):
        for stream in (None, *streams[: number % 6]):
            algorithm.run(*arguments, stream=stream)
            algorithm.run(*[1 if type(each) is int else each for each in arguments], stream=stream)

call_all()
thread = threading.Thread(target=call_all)
thread.start()
thread.join()
bound = [algorithm.bind(*arguments, stream=streams[0]) for algorithm, arguments in made]
for each in bound:
    each()
cp.cuda.Device().synchronize()
print(before, loads)
"""


def test_no_call_loads_code():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, Path(__file__).parent, Path(__file__).parents[1]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    before, after = map(int, done.stdout.split())
    assert before > 0, "nothing was seen to be loaded, so this tells nothing"
    assert after == before


def test_a_factory_and_its_first_call_within_a_capture_of_torchs():
    torch = pytest.importorskip("torch")
    n = 100_000
    d_in = torch.arange(n, device="cuda", dtype=torch.int64)
    d_out = torch.zeros(1, device="cuda", dtype=torch.int64)
    k = int.from_bytes(os.urandom(3), "little") + 2  # of its own, so that the build is new
    recording = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recording):  # in mode "global", which refuses what might wait in any thread
        total = cupar.reduce_into(d_in, d_out, lambda a, b: a + b + k - k, np.zeros(1, "i8"))
        total.run(d_in, d_out, n, 7, stream=torch.cuda.current_stream())
    assert total.build.origin in ("built", "linked")
    for _ in range(2):
        d_out.zero_()
        recording.replay()
        assert d_out.item() == n * (n - 1) // 2 + 7
    d_in += 1
    recording.replay()
    cp.cuda.Device().synchronize()
    assert d_out.item() == n * (n + 1) // 2 + 7


# --- What the driver refuses -------------------------------------------------------------------------------


@contextmanager
def hardly_any_memory():
    """Take nearly all of the device's memory for the block."""
    taken, size = [], 1 << 36
    while size >= 1 << 16:
        if (address := malloc(size)) is None:
            size //= 2
        else:
            taken.append(address)
    try:
        yield
    finally:
        for address in taken:
            cp.cuda.runtime.free(address)


def malloc(size):
    try:
        return cp.cuda.runtime.malloc(size)
    except cp.cuda.runtime.CUDARuntimeError:
        return None


@pytest.mark.skipif("PYTEST_XDIST_WORKER" in os.environ, reason="fills the GPU's memory: run it alone")
def test_a_build_that_does_not_fit_is_kept(empty_cache, recwarn):
    """Whether the driver finds memory for it is the driver's affair."""
    k = int.from_bytes(os.urandom(3), "little") + 2
    op = lambda a, b: a + b + k - k
    items, out = cp.arange(1000), cp.zeros(1, "i8")
    first = cupar.reduce_into("i8", "i8", op, 0, cc=cupar._device.driver.current_device().cc)
    assert first.build.origin in ("built", "linked")
    cupar.cache.clear(disk=False)
    with hardly_any_memory(), suppress(cupar.DriverError):
        cupar.reduce_into(items, out, op, 0)
    cupar.cache.clear(disk=False)
    again = cupar.reduce_into(items, out, op, 0)
    assert again.build.origin == "disk"
    again.run(items, out, 1000, 0)
    assert out.get()[0] == 499_500
    assert not [each for each in recwarn.list if issubclass(each.category, cupar.CacheWarning)]
