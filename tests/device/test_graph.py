"""Graphs without a GPU: wiring, names, checks, and calls of cuda.core, which is faked."""

import gc
import subprocess
import sys
import types
import weakref

import numpy as np
import pytest

from cupar import graph
from cupar._device import driver

# --- Arrays, algorithms and cuda.core ---------------------------------------------------------------------


class Array:
    """An array on a device, or so it says."""

    def __init__(self, n, dtype="f4", *, address=0x1000, read_only=False, strides=None):
        self.__cuda_array_interface__ = {
            "shape": (n,),
            "typestr": np.dtype(dtype).str,
            "data": (address, read_only),
            "strides": strides,
            "version": 3,
        }


class Algorithm:
    """Two phases, `nbytes` of temporary storage."""

    def __init__(self, label="scan", nbytes=100):
        self.build = types.SimpleNamespace(algorithm=label)
        self.nbytes = nbytes
        self.calls = []

    def __call__(self, temp_storage, *arguments, stream=None):
        if temp_storage is not None:
            self.calls.append((temp_storage, arguments))
            stream.enqueue(self.build.algorithm)
        return self.nbytes

    def run(self, *arguments, stream=None):
        raise AssertionError("allocates and frees")


class Transform:
    """One phase."""

    def __init__(self):
        self.build = types.SimpleNamespace(algorithm="unary_transform")
        self.loaded = False

    def load(self):
        self.loaded = True

    def __call__(self, d_in, d_out, num_items, stream=None):
        assert self.loaded, "it would be during the capture"
        stream.enqueue("unary_transform")

    run = __call__


class Kernel:
    """A dispatcher of numba.cuda."""

    __name__ = "scale"

    def __init__(self):
        self.compiled = []
        self.launched = []

    def typeof_pyval(self, value):
        return type(value)

    def compile(self, types):
        self.compiled.append(types)

    def __getitem__(self, configuration):
        *self.configuration, stream, shared = configuration
        self.configuration.append(shared)

        def launch(*arguments):
            self.launched.append(arguments)
            stream.enqueue("kernel")

        return launch


class FakeNode:
    def __init__(self, what):
        self.what = what
        self.before = []
        self.pred = types.SimpleNamespace(update=lambda *nodes: self.before.extend(nodes))


class FakeDefinition:
    def __init__(self):
        self.nodes = []

    def _add(self, *what):
        self.nodes.append(FakeNode(what))
        return self.nodes[-1]

    def empty(self):
        return self._add("empty")

    def memset(self, address, item, times):
        return self._add("memset", address, item, times)

    def callback(self, function):
        return self._add("host", function)

    def embed(self, child):
        return self._add("child", *child)

    def instantiate(self):
        return FakeExecutable(self)

    def shape(self):
        return [
            (each.what[0], len(each.what), [self.nodes.index(other) for other in each.before])
            for each in self.nodes
        ]


class FakeExecutable:
    def __init__(self, definition):
        self.definition = definition
        self.closed = False

    def launch(self, stream):
        for node in self.definition.nodes:
            if node.what[0] == "host":
                node.what[1]()

    def update(self, definition):
        if definition.shape() != self.definition.shape():
            raise Exception("the topology changed")
        self.definition = definition

    def close(self):
        self.closed = True


class FakeStream:
    broken_close = False

    def __init__(self, handle=7):
        self.handle = handle
        self.device = FakeDevice(0)
        self.work = None

    from_handle = classmethod(lambda cls, handle: cls(handle))

    def enqueue(self, what):
        assert self.work is not None, "not captured"
        self.work.append(what)

    def sync(self):
        pass

    def record(self, event):
        event.recorded.append(self.handle)

    def create_graph_builder(self):
        assert self.work is None, "still captured"
        return FakeBuilder(self)


class FakeBuilder:
    def __init__(self, stream):
        self.stream = stream

    def begin_building(self, mode):
        self.stream.work = []

    def end_building(self):
        self.graph_definition, self.stream.work = self.stream.work, None
        return self

    def close(self):
        if self.stream.work is not None:
            self.stream.work = None
            if FakeStream.broken_close:
                raise Exception("the capture is invalid")


class FakeEvent:
    def __init__(self):
        self.recorded = []
        self.waits = 0

    def sync(self):
        self.waits += 1


class FakeDevice:
    def __init__(self, ordinal):
        pass

    def set_current(self):
        pass

    def create_stream(self):
        return FakeStream()

    def create_event(self):
        return FakeEvent()

    def allocate(self, size, stream):
        return FakeBuffer(0, size)


class FakeBuffer:
    def __init__(self, address, size):
        self.address, self.size = address, size

    @classmethod
    def from_handle(cls, address, size, owner):
        return cls(address, size)

    def copy_to(self, dst, stream):
        assert dst.size == self.size
        stream.enqueue(f"copy {self.address:#x} to {dst.address:#x}")


@pytest.fixture
def cuda(monkeypatch):
    """cuda.core's place is taken by the fake."""
    core = types.ModuleType("cuda.core")
    core.Device, core.Stream, core.Buffer = FakeDevice, FakeStream, FakeBuffer
    core_graph = types.ModuleType("cuda.core.graph")
    core_graph.GraphDefinition = FakeDefinition
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    monkeypatch.setitem(sys.modules, "cuda.core.graph", core_graph)
    monkeypatch.setattr(driver, "current_device", lambda: driver.Device(0, 90))


@pytest.fixture
def no_cuda(monkeypatch):
    """Whoever calls CUDA fails."""

    def fail():
        raise AssertionError("CUDA was called")

    monkeypatch.setattr(driver, "current_device", fail)
    monkeypatch.setitem(sys.modules, "cuda.core", None)


def step(name=None, **options):
    return graph.host(lambda: None, name=name, **options)


def wires(*nodes):
    """Which nodes come before each, by name, in the order in which they are added."""
    built = graph.Graph(*nodes)
    names = {id(node): name for name, node in zip(built._wires, built.definition.nodes, strict=True)}
    return {names[id(node)]: [names[id(each)] for each in node.before] for node in built.definition.nodes}


# --- Wiring ----------------------------------------------------------------------------------------------


def test_nodes_come_after_one_another(cuda):
    assert wires(step("a"), step("b"), step("c")) == {"a": [], "b": ["a"], "c": ["b"]}


def test_diamond_by_node_and_by_name(cuda):
    a = step("a")
    b, c = step("b", after=a), step("c", after="a")
    d = step("d", after=[c, "b", "c"])
    assert wires(a, b, c, d) == {"a": [], "b": ["a"], "c": ["a"], "d": ["c", "b"]}


def test_roots_and_names_that_come_later(cuda):
    found = wires(step("late", after="early"), step("early", after=()), step("last"))
    assert found == {"early": [], "late": ["early"], "last": ["early"]}
    assert list(found) == ["early", "late", "last"]


def test_nodes_serve_several_graphs(cuda):
    a, b = step("a"), step("b")
    assert wires(a, b) == {"a": [], "b": ["a"]}
    assert wires(b, a) == {"b": [], "a": ["b"]}


def test_names_of_nodes_without_one(cuda):
    d = Array(3)
    nodes = [graph.memset(d, 0), graph.memset(d, 1), graph.memset(d, 0, name="memset 2"), graph.copy(d, d)]
    assert list(wires(*nodes, graph.call(Algorithm(), d), graph.kernel(Kernel(), 1, 1))) == [
        "memset",
        "memset 3",
        "memset 2",
        "copy",
        "scan",
        "scale",
    ]


def elsewhere():
    return step("elsewhere")


@pytest.mark.parametrize(
    ("nodes", "error", "message"),
    [
        (lambda: [step("a"), step("a")], ValueError, "^node 'a': another node has this name"),
        (lambda: [step("a"), step("b", after="c")], ValueError, "^node 'b': after: 'c' .* has a, b$"),
        (lambda: [step("b", after=elsewhere())], ValueError, "^node 'b': after: 'elsewhere' is not in"),
        (lambda: [step("a"), step(after=step())], ValueError, "^node 'host': after: 'host' is not in"),
        (lambda: [step("a", after="a")], ValueError, "^node 'a': .*'a' before 'a'$"),
        (
            lambda: [step("a", after="b"), step("b")],
            ValueError,
            "^node '[ab]': .* before '[ab]' before '[ab]'$",
        ),
        (lambda: [step("a"), None], TypeError, "^expected nodes, got NoneType at 1"),
        (lambda: [[step("a")]], TypeError, "^expected nodes, got list at 0"),
        (lambda: 2 * [step("a")], ValueError, "^node 'a': it is given twice"),
        (lambda: 2 * [step()], ValueError, "^node 'host': it is given twice"),
    ],
)
def test_wrong_wiring_is_found_before_cuda_is_called(no_cuda, nodes, error, message):
    with pytest.raises(error, match=message):
        graph.Graph(*nodes())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": 1}, "^node 1: name: expected a str"),
        ({"name": ""}, "^node 'host': name: expected a str that is not empty, got ''"),
        ({"name": "a", "after": 1}, "^node 'a': "),
        ({"name": "a", "after": ["b", 2]}, "^node 'a': after: expected nodes or names of nodes, got 2"),
    ],
)
def test_wrong_names_and_predecessors(no_cuda, options, message):
    with pytest.raises(TypeError, match=message):
        step(**options)


# --- What nodes are made of ------------------------------------------------------------------------------

HOST = np.zeros(10, "f4")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: graph.copy(HOST, HOST), TypeError, "^node 'copy': .*both on the host"),
        (lambda: graph.copy(Array(10), HOST.astype("f8")), TypeError, "^node 'copy': .*float32.*float64"),
        (lambda: graph.copy(HOST, Array(9), name="down"), ValueError, "^node 'down': dst has 10 .* src 9;"),
        (lambda: graph.copy(Array(5), HOST[::2]), ValueError, "^node 'copy': src: .*strided"),
        (lambda: graph.copy(HOST, Array(10, strides=(8,))), ValueError, "^node 'copy': src: .*strided"),
        (lambda: graph.copy(Array(10, read_only=True), HOST), ValueError, "^node 'copy': dst: .*read-only"),
        (lambda: graph.copy(np.broadcast_to(HOST[0], 1), Array(1)), ValueError, "^node 'copy': dst: "),
        (lambda: graph.copy([1, 2], Array(2)), TypeError, "^node 'copy': dst: .*list"),
        (lambda: graph.memset(HOST, 0), TypeError, "^node 'memset': dst: .*NumPy"),
        (lambda: graph.memset(Array(3, read_only=True), 0), ValueError, "^node 'memset': dst: .*read-only"),
        (lambda: graph.memset(Array(3, "f8"), 1.5), ValueError, "^node 'memset': value: the bytes of 1.5"),
        (lambda: graph.memset(Array(3, "u1"), 256), ValueError, "^node 'memset': value: "),
        (lambda: graph.memset(Array(3, "u1"), np.int64(256)), ValueError, "^node 'memset': value: "),
        (lambda: graph.memset(Array(3, "i4"), 1.5), ValueError, "^node 'memset': value: .*int32, got 1.5"),
        (lambda: graph.memset(Array(3, "i4"), [1, 2, 3]), ValueError, "^node 'memset': value: "),
        (lambda: graph.memset(Array(3, "f4"), "x"), ValueError, "^node 'memset': "),
        (lambda: graph.call(lambda: 0), TypeError, "^node 'call': expected an algorithm"),
        (
            lambda: graph.kernel(lambda: 0, 1, 1),
            TypeError,
            "^node 'kernel': expected what @cupar.jit or @numba",
        ),
        (lambda: graph.kernel(Kernel()[1, 1, 0, 0], 1, 1), TypeError, "^node 'kernel': .*without"),
        (
            lambda: graph.kernel(Kernel(), 1, 1, 2.0, HOST),
            TypeError,
            "^node 'kernel': argument 1 is on the host",
        ),
        (lambda: graph.host(None, name="h"), TypeError, "^node 'h': expected a function, got NoneType"),
    ],
)
def test_wrong_nodes_are_refused_where_they_are_made(no_cuda, make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_nodes_say_what_they_are():
    assert repr(graph.copy(Array(10), HOST, name="up")) == "<cupar.graph node 'up': copy>"
    assert repr(graph.call(Algorithm("reduce_into"))) == "<cupar.graph node 'without name': reduce_into>"


def test_copies(cuda):
    d_in, d_out = Array(10, address=0xA0), Array(10, address=0xB0)
    built = graph.Graph(graph.copy(d_in, HOST), graph.copy(d_out, d_in), graph.copy(HOST, d_out))
    address = HOST.ctypes.data
    assert [node.what for node in built.definition.nodes] == [
        ("child", f"copy {address:#x} to 0xa0"),
        ("child", "copy 0xa0 to 0xb0"),
        ("child", f"copy 0xb0 to {address:#x}"),
    ]
    nothing = graph.Graph(graph.copy(HOST[:0], Array(0)))
    assert nothing.definition.nodes[0].what == ("empty",)


def test_copies_of_structs(cuda):
    structs = np.zeros(2, [("x", "f4"), ("y", "i4")])
    device = Array(2, structs.dtype)
    device.__cuda_array_interface__["descr"] = [("a", "<f4"), ("b", "<i4")]
    graph.Graph(graph.copy(device, structs))  # of the same layout, whatever the names
    device.__cuda_array_interface__["descr"] = [("x", "<i4"), ("y", "<f4")]
    with pytest.raises(TypeError, match="^node 'copy': dst has items of "):
        graph.copy(device, structs)


@pytest.mark.parametrize(
    ("dtype", "value", "item", "times"),
    [
        ("u1", 7, b"\x07", 10),
        ("?", True, b"\x01", 10),
        ("i2", -2, b"\xfe\xff", 10),
        ("f2", 1, b"\x00\x3c", 10),
        ("f4", 1.5, b"\x00\x00\xc0\x3f", 10),
        ("i8", -1, b"\xff" * 4, 20),
        ("f8", 0, bytes(4), 20),
        ("c16", 0, bytes(4), 40),
        ("f4", np.float64(0), bytes(4), 10),
        ([("x", "u1"), ("y", "u1"), ("z", "u1")], 0, bytes(1), 30),
    ],
)
def test_memset(cuda, dtype, value, item, times):
    array = Array(10, dtype)
    array.__cuda_array_interface__["descr"] = np.dtype(dtype).descr
    built = graph.Graph(graph.memset(array, value))
    assert built.definition.nodes[0].what == ("memset", 0x1000, item, times)


def test_calls_have_temporary_storage_that_is_allocated_once(cuda):
    scan, d = Algorithm(nbytes=100), Array(10)
    built = graph.Graph(graph.call(scan, d, 10, name="one"), graph.call(scan, d, 9, name="two"))
    (one, first), (two, second) = scan.calls
    assert (first, second) == ((d, 10), (d, 9))
    assert one is not two
    assert one.size == two.size == 100
    scan.nbytes = 60
    built.update(graph.call(scan, d, 8, name="two"))
    assert [storage for storage, _ in scan.calls[2:]] == [one, two]
    scan.nbytes = 101
    built.update()
    assert not {id(one), id(two)} & {id(storage) for storage, _ in scan.calls[4:]}


def test_calls_without_temporary_storage(cuda):
    built = graph.Graph(graph.call(Transform(), Array(10), Array(10), num_items=10))
    assert built.definition.nodes[0].what == ("child", "unary_transform")


def test_kernels_are_compiled_before_the_capture(cuda):
    kernel, d = Kernel(), types.SimpleNamespace(__cuda_array_interface__={}, __cuda_ndarray__=True)
    graph.Graph(graph.kernel(kernel, 4, (8, 2), d, 2.0, shared=16))
    assert kernel.compiled == [(types.SimpleNamespace, float)]
    assert kernel.launched == [(d, 2.0)]
    assert kernel.configuration == [4, (8, 2), 16]


@pytest.mark.parametrize("broken_close", [False, True])
def test_errors_while_building_name_the_node(cuda, monkeypatch, broken_close):
    monkeypatch.setattr(FakeStream, "broken_close", broken_close)
    built = graph.Graph(graph.call(Algorithm(), name="sum"), step("end"))
    definition = built.definition
    for error, expected in (
        (TypeError("d_in: wrong"), TypeError),
        (ValueError("d_in: wrong"), ValueError),
        (driver.DriverError("d_in: wrong"), RuntimeError),
        (MemoryError("d_in: wrong"), RuntimeError),
    ):
        scan = Algorithm()
        monkeypatch.setattr(scan, "calls", types.SimpleNamespace(append=lambda _, error=error: raise_(error)))
        with pytest.raises(expected, match="^node 'sum': d_in: wrong$") as raised:
            built.update(graph.call(scan, name="sum"))
        assert raised.value.__cause__ is error
    assert built.definition is definition
    built.update()  # its stream is not captured any more


def raise_(error):
    raise error


# --- The life of a graph ---------------------------------------------------------------------------------


def test_launches(cuda):
    heard = []
    built = graph.Graph(graph.host(lambda: heard.append(1)))
    built.launch()
    built.launch(0x55)
    built.launch(types.SimpleNamespace(ptr=0x66))
    assert heard == [1, 1, 1]
    assert built._held.last_launch.recorded == [0, 0x55, 0x66]
    with pytest.raises(TypeError, match="^stream: "):
        built.launch("0")


def test_errors_of_host_functions_name_the_node(cuda):
    built = graph.Graph(graph.host(lambda: 1 / 0, name="divide"))
    with pytest.raises(RuntimeError, match="^node 'divide': division by zero"):
        built.launch()


def test_update(cuda):
    scan, d, other = Algorithm(), Array(10), Array(10, address=0x2000)
    built = graph.Graph(step("a"), graph.memset(d, 0, name="b"), graph.call(scan, d, name="c", after="a"))
    executable = built.executable
    assert built.update(graph.memset(other, 1, name="b")) is True
    assert built.update(graph.call(scan, other, name="c")) is True
    assert built.executable is executable
    assert built.definition is executable.definition
    assert built.definition.nodes[1].what[1] == 0x2000, "the update before counts"
    assert scan.calls[-1][1] == (other,)
    assert built.definition.shape() == [("host", 2, []), ("memset", 4, [0]), ("child", 2, [0])]
    assert built._held.last_launch.waits == 2


def test_update_that_is_not_in_place(cuda):
    scan = Algorithm()
    built = graph.Graph(graph.call(scan, name="c"))
    executable = built.executable
    assert built.update(graph.call(Transform(), 1, 2, 3, name="c")) is True, "one kernel as before"
    assert built.update(step("c")) is False
    assert executable.closed
    assert built.executable.definition is built.definition
    assert built.definition.nodes[0].what[0] == "host"


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (lambda: [step("x")], "^node 'x': the graph has none of this name, but a, b"),
        (lambda: [step()], "^node 'host': the graph has none of this name, but a, b"),
        (lambda: [step("a"), step("a")], "^node 'a': another"),
        (lambda: [step("b", after="a")], "^node 'b': after: "),
        (lambda: [step("b", after=())], "^node 'b': after: "),
    ],
)
def test_updates_that_are_refused(cuda, nodes, message):
    built = graph.Graph(step("a"), step("b"))
    definition = built.definition
    with pytest.raises(ValueError, match=message):
        built.update(*nodes())
    assert built.definition is definition


class HostArray(np.ndarray):
    """Can be referred to weakly, as any subclass."""


def kept_array():
    array = np.zeros(10, "f4").view(HostArray)
    return array, weakref.ref(array)


@pytest.mark.usefixtures("older_are_frozen")
def test_arrays_live_as_long_as_the_graph(cuda):
    host, host_is_there = kept_array()
    other, other_is_there = kept_array()
    device = Array(10)
    device_is_there = weakref.ref(device)
    built = graph.Graph(graph.copy(device, host, name="up"))
    event, executable = built._held.last_launch, built.executable
    del host, device
    gc.collect()
    assert host_is_there() is not None
    built.update(graph.copy(Array(10), other, name="up"))
    del other
    gc.collect()
    assert host_is_there() is None
    assert device_is_there() is None
    assert other_is_there() is not None
    waits = event.waits
    built.close()
    assert event.waits == waits + 1
    assert executable.closed
    assert other_is_there() is None


@pytest.mark.usefixtures("older_are_frozen")
def test_a_graph_that_nobody_has_is_closed(cuda):
    built = graph.Graph(step("a"))
    executable = built.executable
    del built
    gc.collect()
    assert executable.closed


def test_closed_graphs(cuda):
    with graph.Graph(step("a")) as built:
        assert repr(built) == "<cupar.graph.Graph: a>"
    built.close()
    assert repr(built) == "<cupar.graph.Graph: closed>"
    for use in (built.launch, built.update, lambda: built.definition, lambda: built.executable):
        with pytest.raises(RuntimeError, match="^this graph is closed"):
            use()


# --- Imports ---------------------------------------------------------------------------------------------


def test_nodes_import_nothing_heavy():
    code = """
import sys
import numpy as np
from cupar import graph
class Array:
    __cuda_array_interface__ = {"shape": (3,), "typestr": "<f4", "data": (512, False), "version": 3}
up = graph.copy(Array(), np.zeros(3, "f4"), name="up")
graph.memset(Array(), 0, after=up)
graph.host(print, after="up")
heavy = ("numba", "llvmlite", "cuda.core", "cuda.bindings", "cuda.compute", "cuda.pathfinder")
print([name for name in sys.modules if name.startswith(heavy)])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_gpu_no_graph(monkeypatch):
    def none():
        raise driver.NoDeviceError("There is no GPU here")

    monkeypatch.setattr(driver, "current_device", none)
    with pytest.raises(driver.NoDeviceError):
        graph.Graph(step())
