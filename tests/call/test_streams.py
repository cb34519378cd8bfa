"""Calls that are given no stream run on the current one of their arrays' library, on a fake GPU."""

import sys
from functools import cache
from itertools import permutations
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from support import cupys
from support.gpu import pretended

import cupar
from cupar import arrays, graph
from cupar._device import driver, storage, streams
from cupar._device.graphs import GraphResources
from cupar._launch.streams import call_stream
from cupar._obtain.obtain import specification

F4 = np.dtype("f4")
ZERO = np.zeros(1, F4)
N = 1000
CUPY, TORCH = 7, 8  # handles


class Jax:
    """An array of a library that has no current stream."""

    def __init__(self, size, dtype=F4):
        made = cupys.ndarray(size, dtype)
        self.dtype, self.shape, self.size = made.dtype, made.shape, made.size
        address = made.data.ptr, False
        self.__cuda_array_interface__ = {
            **{"shape": made.shape, "typestr": made.dtype.str, "data": address, "version": 3}
        }


class Tensor(Jax):
    pass


Tensor.__module__ = "torch"


@pytest.fixture
def gpu(monkeypatch):
    """Pretend that there are a GPU, CuPy and PyTorch; `on` has the streams of launches."""
    cupar.cache.clear(disk=False)  # of objects that have loaded their code elsewhere
    found = pretended(monkeypatch)
    monkeypatch.setitem(driver._parts, driver.current_context().number, {})
    found.cupy, found.torch, found.on = cupys.pretended(monkeypatch), SimpleNamespace(ptr=0), []
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    asked = "PyTorch", cache(lambda torch: lambda: found.torch.ptr)
    monkeypatch.setitem(streams._LIBRARIES, "torch", asked)
    monkeypatch.setattr(driver, "is_plain", lambda stream: True)
    monkeypatch.setattr(driver, "relaxed_capture_mode", driver.in_background)
    monkeypatch.setattr(
        driver, "stream_number", lambda stream: None if stream in (2, *found.captured) else stream
    )
    monkeypatch.setattr(storage, "allocate", lambda nbytes, stream: 1 << 40)
    monkeypatch.setattr(storage, "free", lambda address, stream: None)
    library = driver.library()
    launch, launch_kernel = library.cuGraphLaunch, library.cuLaunchKernelEx

    def launched(executable, stream):
        found.on.append(stream.value or 0)
        return launch(executable, stream)

    def launched_kernel(config, function, *given):
        found.on.append(config._obj.stream or 0)
        found.kernels.append(function)
        return launch_kernel(config, function, *given)

    def attribute(value, *which):
        value._obj.value = 1024
        return 0

    def waits(stream, event, flags):
        found.order.append((found._recorded[event.value], stream.value or 0))
        return 0

    found.order, found.kernels = [], []
    library.cuGraphLaunch, library.cuLaunchKernelEx = launched, launched_kernel
    library.cuStreamWaitEvent, library.cuEventDestroy_v2 = waits, lambda event: 0
    library.cuMemFreeAsync = lambda *given: 0
    library.cuFuncGetAttribute = attribute
    yield found
    cupys.forget()
    cupys.forget_stream(Tensor)


def array(size=N, dtype=F4):
    return cupys.ndarray(size, dtype)


@pytest.fixture
def reduce(gpu):
    return cupar.reduce_into(F4, F4, cupar.OpKind.PLUS, ZERO, cc=90)


def on(gpu, call, *arguments, **named):
    """Return the streams of a call's launches."""
    gpu.on.clear()
    call(*arguments, **named)
    assert gpu.on
    return {*gpu.on}


@pytest.mark.parametrize(("make", "stream"), [(array, CUPY), (Tensor, TORCH), (Jax, 0)])
def test_they_run_on_the_current_stream_of_their_arrays(gpu, reduce, make, stream):
    arguments = make(N), make(1), N, ZERO
    gpu.cupy.ptr, gpu.torch.ptr = CUPY, TORCH
    assert on(gpu, reduce.run, *arguments) == {stream}
    assert on(gpu, reduce, make(1 << 20), *arguments) == {stream}
    assert on(gpu, reduce.run, *arguments, stream=0) == {0}
    assert on(gpu, reduce.run, *arguments, stream=99) == {99}
    gpu.cupy.ptr = gpu.torch.ptr = 0
    assert on(gpu, reduce.run, *arguments) == {0}


def test_arrays_without_a_library_have_no_say(gpu, reduce):
    gpu.cupy.ptr = CUPY
    for d_in, d_out in ((array(), Jax(1)), (Jax(N), array(1)), (cupar.view(array()), array(1))):
        assert on(gpu, reduce.run, d_in, d_out, N, ZERO) == {CUPY}
    assert on(gpu, reduce.run, cupar.view(array()), cupar.view(array(1)), N, ZERO) == {CUPY}


def test_two_libraries_whose_streams_differ_are_refused(gpu, reduce):
    given = array(), Tensor(1)
    assert on(gpu, reduce.run, *given, N, ZERO) == {0}
    gpu.cupy.ptr = gpu.torch.ptr = CUPY
    assert on(gpu, reduce.run, *given, N, ZERO) == {CUPY}
    gpu.torch.ptr = TORCH
    text = "^stream: got None, .* differ: 0x7 of CuPy, 0x8 of PyTorch; expected"
    for call in (reduce.run, reduce.bind, lambda *given: reduce(array(1 << 20), *given)):
        with pytest.raises(ValueError, match=text):
            call(*given, N, ZERO)
    with pytest.raises(ValueError, match=text):
        reduce(Tensor(1 << 20), array(), array(1), N, ZERO)
    assert reduce(None, *given, N, ZERO) == 1  # asks for no stream, as nothing runs
    assert on(gpu, reduce.run, *given, N, ZERO, stream=CUPY) == {CUPY}
    gpu.cupy.ptr, gpu.torch.ptr = 0, 1  # two handles of the default stream
    assert on(gpu, reduce.run, *given, N, ZERO) <= {0, 1}


def test_captured_streams_and_those_of_threads_take_launches_without_a_graph(gpu, reduce):
    gpu.captured.add(CUPY)
    for gpu.cupy.ptr in (CUPY, driver.PER_THREAD):
        assert on(gpu, reduce.run, array(), array(1), N, ZERO) == {gpu.cupy.ptr}
        assert gpu.kernels.pop() and not gpu.kernels


def test_arrays_in_iterators_and_double_buffers_count(gpu):
    def asking(factory, *given):
        return call_stream(specification(factory, *given), ())

    def zipped(one, other):
        return cupar.ZipIterator(cupar.ReverseIterator(one), other)

    gpu.cupy.ptr, gpu.torch.ptr = CUPY, TORCH
    pairs = zipped(F4, F4)
    ask = asking(cupar.unary_transform, pairs, pairs, cupar.OpKind.IDENTITY)
    one, other = zipped(array(), array()), zipped(Tensor(N), Tensor(N))
    assert ask((one, one, N)) == ask((zipped(Jax(N), array()), one, N)) == CUPY
    assert ask((other, other, N)) == TORCH
    for given in (*permutations((one, other)), (zipped(array(), Tensor(N)), other)):
        with pytest.raises(ValueError, match="differ"):
            ask((*given, N))
    assert ask((array(), None, N)) == CUPY  # which reading them refuses
    ask = asking(cupar.radix_sort, F4, F4, None, None)
    for make, stream in ((array, CUPY), (Tensor, TORCH)):
        buffer = cupar.DoubleBuffer(make(N), make(N))
        assert ask((buffer, None, None, None, N, None, None)) == stream
    counting, nothing = cupar.CountingIterator(0), cupar.DiscardIterator(np.int64)
    assert asking(cupar.unary_transform, counting, nothing, cupar.OpKind.NEGATE)((counting, nothing, N)) == 0


def test_captured_arrays_count(gpu):
    table = Tensor(N)
    found = cupar.unary_transform(np.int64, F4, lambda i: table[i], cc=90)
    gpu.torch.ptr = TORCH
    assert on(gpu, found, Jax(N, np.int64), Jax(N), N) == {TORCH}
    with pytest.raises(ValueError, match="differ"):
        found(array(N, np.int64), array(), N)


def test_bound_calls_ask_each_time(gpu, reduce):
    bound = reduce.bind(array(), array(1), N, ZERO)
    for stream in (0, CUPY, CUPY, 9, 0):
        gpu.cupy.ptr = stream
        assert on(gpu, bound) == {stream}
    assert gpu.order == [(0, CUPY), (CUPY, 9), (9, 0)]  # each waits for the calls before
    gpu.torch.ptr = TORCH
    bound.rebind(Tensor(N), Tensor(1), N, ZERO)
    assert on(gpu, bound) == {TORCH}
    gpu.captured.add(TORCH)
    gpu.torch.ptr = 0
    with pytest.raises(ValueError, match="^stream: it is being captured"):
        bound()
    gpu.captured.clear()
    assert on(gpu, bound) == {0}
    given = reduce.bind(array(), array(1), N, ZERO, stream=5)
    gpu.cupy.ptr = CUPY
    assert on(gpu, given) == {5}


def test_bound_calls_keep_the_stream_of_cupy(gpu, reduce):
    bound = reduce.bind(array(), array(1), N, ZERO)
    gpu.cupy.ptr = CUPY
    bound()
    assert bound._held._stream is gpu.cupy


def test_functions_run_there(gpu):
    for gpu.cupy.ptr in (CUPY, 0):
        for _ in range(3):
            assert on(gpu, arrays.sum, array()) == {gpu.cupy.ptr}


def test_kernels_run_there(gpu):
    @cupar.jit
    def kernel(a, b, n):
        a[0] = b[0] + n

    for make, stream in ((array, CUPY), (Tensor, TORCH), (Jax, 0)):
        gpu.cupy.ptr, gpu.torch.ptr = CUPY, TORCH
        for _ in range(3):  # by the slow function, and the fast one
            assert on(gpu, kernel[1, 32], make(N), make(N), 3) == {stream}
        assert on(gpu, kernel[1, 32, 5], make(N), make(N), 3) == {5}
        assert on(gpu, kernel.forall(N, 64), make(N), make(N), 3) == {stream}
        for _ in range(2):
            assert on(gpu, kernel.configure(1, 32, overlaps=True), make(N), make(N), 3) == {stream}
        gpu.cupy.ptr = gpu.torch.ptr = 0
        assert on(gpu, kernel[1, 32], make(N), make(N), 3) == {0}
    gpu.torch.ptr = TORCH
    for _ in range(2):
        with pytest.raises(ValueError, match="differ"):
            kernel[1, 32](array(), Tensor(N), 3)
    bound = kernel.bind(1, 32, array(), array(), 3)
    for gpu.cupy.ptr in (0, CUPY):
        assert on(gpu, bound) == {gpu.cupy.ptr}


def test_graphs_ask_for_it(gpu):
    first, second = array(), Jax(N)
    nodes = {"memset": graph.memset(second, 0), "copy": graph.copy(first, second)}
    site = SimpleNamespace(definition=SimpleNamespace(instantiate=lambda: None), storage={}, lent=[])
    held = GraphResources(None, None, site, nodes)
    gpu.cupy.ptr = CUPY
    assert held.ask_for_stream() == CUPY
    held.use(site, {"memset": nodes["memset"]})
    assert held.ask_for_stream() == 0


def test_a_stream_that_cannot_be_asked_for_in_a_forked_process_is_the_drivers_error(gpu, monkeypatch):
    def initialised():
        raise RuntimeError("cudaErrorInitializationError")

    ask = streams.of_cupy(SimpleNamespace(cuda=SimpleNamespace(get_current_stream=initialised)))
    with pytest.raises(RuntimeError, match="cudaErrorInitializationError"):
        ask()

    def forked():
        driver.check(3, "cuDevicePrimaryCtxRetain")

    monkeypatch.setattr(driver.library(), "cuGetErrorName", lambda status, text: 0, raising=False)
    monkeypatch.setattr(driver, "current_context", forked)
    with pytest.raises(cupar.DriverError, match="cuDevicePrimaryCtxRetain"):
        ask()
