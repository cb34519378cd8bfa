"""Calls without a stream run behind what made their arrays, on the current stream of PyTorch or CuPy."""

import threading
from contextlib import contextmanager

import cupy as cp
import numpy as np
import pytest
from support.spins import load, spin

import cupar
from cupar import compute as cupar_compute
from cupar import distributed, graph
from cupar._functions import libraries

N = 10_000
ZERO = np.zeros(1, "i4")


@pytest.fixture(scope="module", autouse=True)
def spinning_is_loaded():
    load()


class Cupy:
    """How tests make arrays, and streams that are current."""

    def __init__(self):
        self.side = cp.cuda.Stream(non_blocking=True)

    def zeros(self, n):
        return cp.zeros(n, "i4")

    def current(self, stream):
        return stream

    def spin(self):
        spin(self.side, 0.05)


class Torch:
    def __init__(self):
        self.torch = pytest.importorskip("torch")
        self.side = self.torch.cuda.Stream()

    def zeros(self, n):
        return self.torch.zeros(n, dtype=self.torch.int32, device="cuda")

    def current(self, stream):
        return self.torch.cuda.stream(stream)

    def spin(self):
        with self.torch.cuda.stream(self.side):
            self.torch.cuda._sleep(int(0.05 * 1.7e9))


@pytest.fixture(params=[Cupy, Torch])
def lib(request):
    return request.param()


@contextmanager
def late(lib, x):
    """Have the block on a side stream, on which `x` becomes ones only after a while."""
    cp.cuda.Device().synchronize()
    with lib.current(lib.side):
        lib.spin()
        x += 1
        yield
    lib.side.synchronize()


def summed(x, out):
    return cupar.reduce_into(x, out, cupar.OpKind.PLUS, ZERO)


def test_algorithms(lib):
    x, out, pairs = lib.zeros(N), lib.zeros(1), lib.zeros(N)
    total = summed(x, out)
    total.run(x, out, N, ZERO)
    with late(lib, x):
        total.run(x, out, N, ZERO)
    assert int(out[0]) == N
    storage = cp.zeros(total(None, x, out, N, ZERO), "u1")
    storage = storage if isinstance(lib, Cupy) else lib.torch.from_dlpack(storage)
    with late(lib, x):
        total(storage, x, out, N, ZERO)
    assert int(out[0]) == 2 * N
    of_iterator = summed(cupar.ReverseIterator(x), out)
    of_iterator.run(cupar.ReverseIterator(x), out, N, ZERO)
    with late(lib, x):
        of_iterator.run(cupar.ReverseIterator(x), out, N, ZERO)
    assert int(out[0]) == 3 * N
    to_fields = cupar.unary_transform(x, cupar.ZipIterator(pairs, x), lambda a: (a, a))
    to_fields(x, cupar.ZipIterator(pairs, x), N)
    with late(lib, x):
        to_fields(x, cupar.ZipIterator(pairs, x), N)
    assert int(pairs[0]) == int(pairs[N - 1]) == 4


def test_bound_calls(lib):
    """Each call is behind the one before, on whatever stream that was."""
    x, out = lib.zeros(N), lib.zeros(1)
    bound = summed(x, out).bind(x, out, N, ZERO)
    bound()
    with late(lib, x):
        bound()
    assert int(out[0]) == N
    with lib.current(lib.side):
        lib.spin()
        bound()
    bound()  # on the default stream, which waits for that
    cp.cuda.Stream.null.synchronize()
    assert int(out[0]) == N
    bound.close()


def test_bound_calls_outlive_streams_of_cupy():
    x, out = cp.ones(N, "i4"), cp.zeros(1, "i4")
    bound = summed(x, out).bind(x, out, N, ZERO)
    for _ in range(100):
        with cp.cuda.Stream(non_blocking=True):
            bound()
    bound()
    assert int(out[0]) == N
    del bound
    with cp.cuda.Stream():
        bound = summed(x, out).bind(x, out, N, ZERO)
        bound()
    del bound
    cupar.release_memory()


def test_kernels(lib):
    @cupar.jit
    def copy(source, target):
        i = cupar.cuda.grid(1)
        if i < target.size:
            target[i] = source[i]

    x, out = lib.zeros(N), lib.zeros(N)
    for k in range(1, 4):  # by the slow function, and the fast one
        copy[-(-N // 256), 256](x, out)
        with late(lib, x):
            copy[-(-N // 256), 256](x, out)
        assert int(out[0]) == int(out[N - 1]) == k
    bound = copy.bind(-(-N // 256), 256, x, out)
    with late(lib, x):
        bound()
    assert int(out[N - 1]) == 4
    with late(lib, x):
        copy.forall(N)(x, out)
    assert int(out[N - 1]) == 5


def test_captures(lib):
    x, out = lib.zeros(N), lib.zeros(1)
    x += 1
    total = summed(x, out)
    total.run(x, out, N, ZERO)
    out -= N
    cp.cuda.Device().synchronize()
    if isinstance(lib, Torch):
        recording = lib.torch.cuda.CUDAGraph()
        with lib.torch.cuda.graph(recording):
            x *= 2
            total.run(x, out, N, ZERO)
        replay = recording.replay
    else:
        with lib.side:
            lib.side.begin_capture()
            x *= 2
            total.run(x, out, N, ZERO)
            replay = lib.side.end_capture().launch
    assert int(out[0]) == 0
    for k in (2, 4):
        replay()
        cp.cuda.Device().synchronize()
        assert int(out[0]) == k * N


def test_graphs(lib):
    x, out = lib.zeros(N), lib.zeros(1)
    made = graph.Graph(graph.call(summed(x, out), x, out, N, ZERO))
    with late(lib, x):
        made.launch()
    assert int(out[0]) == N
    made.close()


def test_cuda_computes_programs(lib):
    x, out = lib.zeros(N), lib.zeros(1)
    given = {"d_in": x, "d_out": out, "op": cupar_compute.OpKind.PLUS, "num_items": N, "h_init": ZERO}
    cupar_compute.reduce_into(**given)
    with late(lib, x):
        cupar_compute.reduce_into(**given)
    assert int(out[0]) == N


def test_shards(lib):
    def of_rank(group):
        x, out = lib.zeros(N), lib.zeros(1)
        total = distributed.reduce_into(x, out, cupar.OpKind.PLUS, ZERO, group=group)
        for k in range(1, 4):  # the second call is recorded, the third one replayed
            with late(lib, x):
                total.run(x, out, N, ZERO)
            found.append(int(out[0]) == k * N)

    found = []
    rank = threading.Thread(target=of_rank, args=distributed.threads(1, 60))
    rank.start()
    rank.join()
    assert found == [True] * 3


def test_two_libraries():
    torch = pytest.importorskip("torch")
    x, out = cp.ones(N, "i4"), torch.zeros(1, dtype=torch.int32, device="cuda")
    total = summed(x, out)
    total.run(x, out, N, ZERO)  # both on the default stream
    assert int(out[0]) == N
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), pytest.raises(ValueError, match=f"{side.cuda_stream:#x} of PyTorch"):
        total.run(x, out, N, ZERO)
    with torch.cuda.stream(side), libraries.of("x", x).on(side):
        total.run(x, out, N, ZERO)
    with torch.cuda.stream(side):
        total.run(x, out, N, ZERO, stream=side)
    side.synchronize()
    with cp.cuda.Stream(non_blocking=True), pytest.raises(ValueError, match="of CuPy, 0x0 of PyTorch"):
        total.bind(x, out, N, ZERO)


def test_cupys_ways_to_make_a_stream_current():
    x, out = cp.zeros(N, "i4"), cp.zeros(1, "i4")
    total = summed(x, out)
    total.run(x, out, N, ZERO)
    for stream in (cp.cuda.Stream(non_blocking=True), cp.cuda.Stream.ptds):
        before = cp.cuda.get_current_stream()
        cp.cuda.Device().synchronize()
        stream.use()
        try:
            x += 1
            total.run(x, out, N, ZERO)
            value = int(out[0])
        finally:
            before.use()
        assert value == int(x[0]) * N
