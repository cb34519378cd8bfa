"""Code that is loaded: what fails half-way leaves nothing behind, and graphs are given back."""

import gc
from collections import Counter
from ctypes import c_uint64

import pytest
from support.common import DeviceArray, context, pretend
from support.gpu import CARD

import cupar
from cupar._device import driver, storage
from cupar._device.card import Card
from cupar._launch import code
from cupar._obtain import tuned

pytestmark = pytest.mark.usefixtures("older_are_frozen")  # each test collects

A, B = DeviceArray(1 << 20, 1 << 30), DeviceArray(1 << 16, 1)

MAKES = {
    "cuLibraryLoadData": "library",
    "cuGraphCreate": "graph",
    "cuGraphInstantiateWithFlags": "executable",
}
DESTROYS = {"cuLibraryUnload": "library", "cuGraphDestroy": "graph", "cuGraphExecDestroy": "executable"}


class Driver:
    """Counts what is there, and refuses one of its calls."""

    def __init__(self):
        self.there, self.refused, self.launches = Counter(), ("", 0), Counter()
        self.handles = iter(range(1, 1 << 20))

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)
        return lambda *arguments: self.call(name, *arguments)

    def call(self, name, *arguments):
        refused, after = self.refused
        if name == refused:
            self.refused = refused, after - 1
            if after == 0:
                return 1
        if name in ("cuGraphLaunch", "cuLaunchKernelEx"):
            self.launches[name] += 1
        elif name in DESTROYS:
            self.there[DESTROYS[name]] -= 1
            assert arguments[0].value
        elif arguments and hasattr(arguments[0], "_obj"):  # where the answer goes
            arguments[0]._obj.value = 1024 if name.endswith("Attribute") else next(self.handles)
            if name in MAKES:
                self.there[MAKES[name]] += 1
        return 0

    def cuGetErrorName(self, status, text):
        text._obj.value = b"CUDA_ERROR"
        return 0

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, found, *more):
        found._obj.value = 2
        return self.call("cuOccupancy", None)

    @property
    def left(self):
        return {name: count for name, count in self.there.items() if count}


@pytest.fixture
def gpu(monkeypatch):
    gpu = Driver()
    cupar.cache.clear(disk=False)  # of what other tests have loaded
    pretend(monkeypatch, context())
    monkeypatch.setattr(driver.this_thread, "ask", lambda: 0)
    monkeypatch.setattr(driver.this_thread, "number", c_uint64(context().number))
    monkeypatch.setattr(driver, "_parts", {})
    monkeypatch.setattr(driver, "library", lambda: gpu)
    monkeypatch.setattr(code, "_EXECUTABLES", 3)
    monkeypatch.setattr(tuned, "card_of", lambda device: Card(CARD, device.cc, 132))
    yield gpu
    cupar.cache.clear(disk=False)
    gc.collect()
    while code._retired:
        code._retired.pop()


def made():
    return context().part(code._Count).made


def sum_of_integers():
    return cupar.reduce_into("i4", "i4", cupar.OpKind.PLUS, 0, cc=90)


def kernel():
    @cupar.jit
    def kernel(a):
        a[0] = 1

    return kernel.compile("void(int32[:])", cc=90)


# --- What fails half-way ---------------------------------------------------------------------------------

STEPS = [
    ("cuDeviceGetAttribute", 0),
    ("cuLibraryGetKernel", 0),
    ("cuKernelGetFunction", 0),
    ("cuFuncGetAttribute", 0),
    ("cuFuncSetAttribute", 0),
    ("cuGraphCreate", 0),
    ("cuGraphAddKernelNode_v2", 0),
    ("cuGraphInstantiateWithFlags", 0),
    ("cuGraphInstantiateWithFlags", 2),
]


@pytest.mark.parametrize(("name", "after"), [*STEPS, ("cuOccupancy", 0), ("cuLibraryGetKernel", 1)])
def test_an_algorithm_that_is_loaded_half_way(gpu, name, after):
    loads(gpu, sum_of_integers(), name, after)


@pytest.mark.parametrize(("name", "after"), STEPS)
def test_a_kernel_that_is_loaded_half_way(gpu, name, after):
    loads(gpu, kernel(), name, after)


def loads(gpu, algorithm, name, after):
    kept = code.Code(algorithm._spec, algorithm._code.blob)
    gpu.refused = name, after
    with pytest.raises(cupar.DriverError):
        kept.loaded(context())
    assert gpu.refused[1] < 0, "it was not asked"
    assert gpu.left == {}
    assert made() == 0
    loaded = kept.loaded(context())
    spares = sum(map(len, loaded._spare.values()))
    assert gpu.left == {"library": 1, "graph": spares, "executable": spares}
    assert made() == spares > 2


# --- Graphs ----------------------------------------------------------------------------------------------


def test_graphs_are_given_back_and_made_anew(gpu):
    found = cupar.reduce_into(A, B, cupar.OpKind.PLUS, 0)
    found.run(A, B, 100, 0)
    before = made()
    assert gpu.left["executable"] == before > 2
    cupar.release_memory()
    assert (gpu.left, made()) == ({"library": 1}, 0)
    found.run(A, B, 100, 0)
    found.run(A, B, 100, 0)
    assert (gpu.left["executable"], made()) == (1, 1)
    assert gpu.launches == {"cuGraphLaunch": 3}
    cupar.release_memory()
    assert gpu.left == {"library": 1}


def test_kernels_graphs_are_given_back_and_made_anew(gpu):
    @cupar.jit
    def kernel(a):
        a[0] = 1

    launch = kernel[1, 32]
    launch(A)
    assert gpu.left["executable"] == made() == 3
    cupar.release_memory()
    assert gpu.left == {"library": 1}
    launch(A)
    assert gpu.left["executable"] == made() == 1
    assert gpu.launches == {"cuGraphLaunch": 2}


def test_graphs_that_are_in_use_stay(gpu):
    found = cupar.reduce_into(A, B, cupar.OpKind.PLUS, 0)
    call, free = found._take(0)  # as another thread does, which is in a call
    call.prepare(call.read((A, B, 100, 0)))
    cupar.release_memory()
    assert gpu.left["executable"] == made() == 1
    free.append(call)
    del call
    cupar.release_memory()
    assert gpu.left == {"library": 1}


def test_without_memory_for_a_graph_kernels_are_launched(gpu):
    found = cupar.reduce_into(A, B, cupar.OpKind.PLUS, 0)
    cupar.release_memory()
    gpu.refused = "cuGraphInstantiateWithFlags", 0
    found.run(A, B, 100, 0)
    assert gpu.launches == {"cuLaunchKernelEx": 1}
    assert gpu.left == {"library": 1}


def test_what_is_gone_is_not_asked(gpu):
    found = cupar.reduce_into(A, B, cupar.OpKind.PLUS, 0)
    found.run(A, B, 100, 0)
    del found
    cupar.cache.clear(disk=False)
    gc.collect()
    kept = context().part(storage.ContextMemory)
    assert not kept.calls._found and not kept.graphs._found
    assert "executable" not in gpu.left
    cupar.release_memory()
