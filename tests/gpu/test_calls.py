"""Arrays and streams of other libraries, capture, threads that build, and forks."""

import os
import subprocess
import sys
import threading

import cupy as cp
import numpy as np
import pytest
from numba import cuda as numba_cuda
from support.operators import EXPECTED, N, add

import cupar


def test_torch(summed):
    torch = pytest.importorskip("torch")
    reduction, *_, h_init = summed
    t_in, t_out = torch.arange(N, dtype=torch.int32, device="cuda"), torch.zeros(1, dtype=torch.int32).cuda()
    assert cupar.reduce_into(t_in, t_out, add, h_init).build.key == reduction.build.key
    reduction.run(t_in, t_out, N, h_init)
    assert t_out.item() == EXPECTED
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        t_in.zero_()
        reduction.run(t_in, t_out, N, h_init, stream=stream)
    stream.synchronize()
    assert t_out.item() == 3
    with pytest.raises(TypeError, match=r"^d_in: .*cpu"):
        reduction.run(t_in.cpu(), t_out, N, h_init)
    with pytest.raises(TypeError, match=r"^d_in: .*float8_e5m2"):
        cupar.reduce_into(t_in.to(torch.float8_e5m2), t_out, add, h_init)
    with pytest.raises(ValueError, match=r"^d_in: .*contiguous"):
        cupar.reduce_into(t_in[::2], t_out, add, h_init)
    z = torch.ones(4, dtype=torch.complex64, device="cuda")
    with pytest.raises(ValueError, match=r"^d_in: .*resolve_conj"):
        cupar.reduce_into(z.conj(), z, add, np.zeros(1, "c8"))


def test_numba(summed):
    reduction, _, _, h_init = summed
    n_in, n_out = numba_cuda.to_device(np.arange(N, dtype="i4")), numba_cuda.device_array(1, "i4")
    reduction.run(n_in, n_out, N, h_init)
    assert n_out.copy_to_host()[0] == EXPECTED


def test_streams(summed):
    from cuda.core import Device

    reduction, d_in, d_out, h_init = summed
    device = Device()
    device.set_current()
    streams = [cp.cuda.Stream(non_blocking=True), numba_cuda.stream(), device.create_stream()]
    streams += [streams[0].ptr, cp.cuda.Stream.null, None, 0]
    for stream in streams:
        d_out.fill(0)
        cp.cuda.Device().synchronize()
        reduction.run(d_in, d_out, N, h_init, stream=stream)
        cp.cuda.Device().synchronize()
        assert d_out.get()[0] == EXPECTED
    for wrong in ("0", 1.5, object(), -1):
        with pytest.raises(TypeError, match="^stream: "):
            reduction.run(d_in, d_out, N, h_init, stream=wrong)


def test_work_is_ordered_by_the_stream(summed):
    """A call on a stream that is busy filling the input sees it filled."""
    reduction, _, d_out, h_init = summed
    stream = cp.cuda.Stream(non_blocking=True)
    big = cp.zeros(1 << 26, "i4")
    cp.cuda.Device().synchronize()
    with stream:
        for value in range(20):
            big.fill(value)
        reduction.run(big, d_out, 1 << 26, h_init, stream=stream)
        big.fill(0)
    stream.synchronize()
    assert d_out.get()[0] == np.int32((19 * (1 << 26) + 3) & 0xFFFFFFFF)


def test_capture(summed):
    reduction, d_in, d_out, h_init = summed
    reduction.run(d_in, d_out, N, h_init)  # kernels are loaded before the capture
    stream = cp.cuda.Stream(non_blocking=True)
    nbytes = reduction(None, d_in, d_out, N, h_init)
    storage = cp.empty(nbytes, "u1")
    cp.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        reduction(storage, d_in, d_out, N, h_init, stream=stream)
        reduction.run(d_in, d_out, N, h_init, stream=stream)
        graph = stream.end_capture()
    for value in (1, 2):
        d_in.fill(value)
        cp.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        assert d_out.get()[0] == N * value + 3


def test_first_calls_from_many_threads_build_once():
    cupar.cache.reset_stats()
    d_in, d_out = cp.arange(100, dtype="i8"), cp.zeros(1, "i8")
    barrier = threading.Barrier(16)
    found = []

    def work():
        barrier.wait()
        found.append(cupar.reduce_into(d_in, d_out, lambda a, b: a + b + 12345, np.zeros(1, "i8")))

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = cupar.cache.stats()
    assert stats.memory == 15
    assert stats.disk + stats.linked + stats.built == 1
    assert len({algorithm.build.key for algorithm in found}) == 1


def test_a_cc_of_another_card_is_refused_at_the_call():
    d_in, d_out = cp.arange(100, dtype="i4"), cp.zeros(1, "i4")
    other = 80 if cupar._device.driver.current_device().cc // 10 != 8 else 90
    reduction = cupar.reduce_into(d_in, d_out, cupar.OpKind.PLUS, 0, cc=other)
    with pytest.raises(ValueError, match=f"^cc: .*sm_{other}"):
        reduction.run(d_in, d_out, 100, 0)


def test_explicit_cc_of_this_card_runs():
    d_in, d_out = cp.arange(100, dtype="i4"), cp.zeros(1, "i4")
    reduction = cupar.reduce_into("i4", "i4", add, 0, cc=cupar._device.driver.current_device().cc)
    reduction.run(d_in, d_out, 100, 0)
    assert d_out.get()[0] == 4950


PROGRAM = """
import sys
import numpy as np, cupar
import cupy as cp
SCALE = 3
d_in, d_out, h_init = cp.arange(1000, dtype="f4"), cp.zeros(1, "f4"), np.zeros(1, "f4")
sums = cupar.reduce_into(d_in, d_out, lambda a, b: max(a, b * SCALE), h_init)
sums.run(d_in, d_out, 1000, h_init)
assert d_out.get()[0] >= 999
scan = cupar.exclusive_scan(d_in, d_in, lambda a, b: a + b, h_init)
scan.run(d_in, d_in, 1000, h_init)
assert d_in.get()[-1] == 998 * 999 / 2
heavy = {"numba", "cuda.compute", "filelock", "cuda.core", "cuda.bindings.nvrtc"} & set(sys.modules)
print(sums.build.origin, scan.build.origin, *heavy)
"""


def test_second_process_builds_nothing_and_imports_no_compiler():
    first = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stderr
    second = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr
    assert second.stdout.split()[:2] == ["disk", "disk"]
    imported_by_cupy = subprocess.run(
        [sys.executable, "-c", "import cupy, sys; cupy.arange(3); print(*sys.modules)"],
        capture_output=True,
        text=True,
    ).stdout.split()
    assert set(second.stdout.split()[2:]) <= set(imported_by_cupy)
    assert second.stderr == ""


FORK = """
import os, sys
import numpy as np, cupar, cupy as cp
d_in, d_out = cp.arange(100, dtype="i4"), cp.zeros(1, "i4")
reduction = cupar.reduce_into(d_in, d_out, lambda a, b: a + b, 0)
reduction.run(d_in, d_out, 100, 0)
pid = os.fork()
if pid == 0:
    try:
        reduction.run(d_in, d_out, 100, 0)
    except cupar.DriverError as error:
        print(error)
    del reduction
    sys.stdout.flush()
    os._exit(0)
os.waitpid(pid, 0)
reduction.run(d_in, d_out, 100, 1)
print(int(d_out.get()[0]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_told_so():
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    child, parent = done.stdout.splitlines()
    assert "forked" in child
    assert parent == "4951"
    assert "Return code" not in done.stdout + done.stderr
