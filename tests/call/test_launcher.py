"""Launches and their parameters, as a fake driver receives them."""

import ctypes
import struct
from ctypes import c_uint64, c_void_p

import pytest

from cupar._device import driver
from cupar._device.kernels import PROGRAMMATIC, Executable, LaunchConfig, NodeParams
from cupar._kernels.family import Launch, Shape, Storage, Value, i32, u64
from cupar._launch.chain import Chain, Layouts, executable_of

VALUES = Layouts({"d_in": (0, 8), "it": (16, 8), "op": (12, 4), "init": (4, 4)})
ITERATOR, STATE, INIT = bytes(range(16)), b"state of op.", struct.pack("f", 2.5)
BOUND = (1000, 0x7000, ITERATOR, STATE, INIT)
FIRST = Launch(
    "first", "grid", "threads", (Value("d_in"), i32("n"), Value("op"), Storage("partials")), "shared"
)
SECOND = Launch(
    "second", 1, 128, ((i32(7), u64("n"), Storage(64)), Value("none"), Value("it"), Value("init")), 48
)
SHAPE = Shape(("n", "grid", "shared", "partials"), (FIRST, SECOND))
SIZES = {1: [8, 4, 12, 8], 2: [24, 1, 16, 4]}  # of the kernels' parameters, by their handles


class Library:
    """Records node updates and launches: kernel, grid, block, shared memory, and parameters as bytes."""

    def __init__(self):
        self.set, self.launched, self.edges, self.nodes, self.refuses = [], [], [], 0, set()
        self.attributes = []

    def cuGraphCreate(self, graph, flags):
        return 0

    def cuGraphAddKernelNode_v2(self, node, graph, before, count, params):
        self.nodes += 1
        node._obj.value = self.nodes
        self.edges += [(each, self.nodes) for each in list(before)[: count.value]]
        return 0

    def cuGraphAddDependencies_v2(self, graph, before, after, data, count):
        assert (data._obj.from_port, data._obj.to_port, data._obj.type, count.value) == (1, 0, 1, 1)
        self.edges.append((*before, after._obj.value, "programmatic"))
        return 0

    def cuGraphInstantiateWithFlags(self, executable, graph, flags):
        executable._obj.value = 99
        return 0

    def cuGraphExecKernelNodeSetParams_v2(self, executable, node, params):
        if "set" in self.refuses:
            return 1
        given = params._obj
        assert isinstance(given, NodeParams)
        assert given.function == node.value
        self.set.append(
            (node.value, given.grid, given.block, given.shared, read(given.parameters, node.value))
        )
        return 0

    def cuGraphLaunch(self, executable, stream):
        self.launched.append((executable.value, stream.value))
        return 0

    def cuLaunchKernelEx(self, config, function, parameters, extra):
        given = config._obj
        assert isinstance(given, LaunchConfig)
        parameters = ctypes.addressof(parameters)
        self.attributes.append([given.attributes, given.count])
        self.launched.append(
            (given.stream, given.grid, given.block, given.shared, read(parameters, function.value))
        )
        return 0

    def cuGetErrorName(self, status, text):
        return 0


def read(pointers, function):
    found = [c_uint64.from_address(pointers + 8 * i).value for i in range(len(SIZES[function]))]
    return [ctypes.string_at(at, size) for at, size in zip(found, SIZES[function], strict=True)]


@pytest.fixture
def library(monkeypatch):
    library = Library()
    monkeypatch.setattr(driver, "library", lambda: library)
    monkeypatch.setattr(driver, "current_context", lambda: None)
    return library


@pytest.fixture
def chain(library):
    functions = [c_void_p(1), c_void_p(2)]
    return Chain(SHAPE, VALUES, {"threads": 256}, functions)


def expected(n, address, d_in=0x7000, init=INIT):
    first = [struct.pack("Q", d_in), struct.pack("i", n), STATE, struct.pack("Q", address + 512)]
    return first, [struct.pack("iQQ", 7, n, address + 64), b"\0", ITERATOR, init]


def test_a_graph_is_set_and_launched(library, chain):
    enqueue = chain.enqueuer(executable_of([chain]), 5)
    enqueue(BOUND, 0x9000, (1000, 4, 32, 512), 5)
    first, second = expected(1000, 0x9000)
    assert library.set == [(1, 4, 256, 32, first), (2, 1, 128, 48, second)]
    assert library.launched == [(99, 5)]


def test_what_is_the_same_is_not_set_again(library, chain):
    enqueue = chain.enqueuer(executable_of([chain]))
    for _ in range(3):
        enqueue(BOUND, 0x9000, (1000, 4, 32, 512), 0)
    assert len(library.set) == 2
    other = (1000, 0x8000, *BOUND[2:])
    enqueue(other, 0x9000, (1000, 4, 32, 512), 0)
    assert library.set[2:] == [(1, 4, 256, 32, expected(1000, 0x9000, 0x8000)[0])]
    enqueue((*other[:-1], b"1234"), 0x9000, (1000, 4, 32, 512), 0)
    assert library.set[3:] == [(2, 1, 128, 48, expected(1000, 0x9000, init=b"1234")[1])]
    enqueue((2000, *other[1:-1], b"1234"), 0x9000, (1000, 5, 32, 512), 0)
    assert library.set[4:] == [(1, 5, 256, 32, expected(1000, 0x9000, 0x8000)[0])]
    assert len(library.launched) == 6


def test_what_was_refused_is_set_the_next_time(library, chain):
    enqueue = chain.enqueuer(executable_of([chain]))
    enqueue(BOUND, 0x9000, (1000, 4, 32, 512), 0)
    other = (1000, 0x8000, *BOUND[2:])
    library.refuses.add("set")
    with pytest.raises(driver.DriverError, match="cuGraphExecKernelNodeSetParams"):
        enqueue(other, 0x9000, (1000, 4, 32, 512), 0)
    library.refuses.clear()
    for bound in (BOUND, other):
        enqueue(bound, 0x9000, (1000, 4, 32, 512), 0)
        assert library.set[-1] == (1, 4, 256, 32, expected(1000, 0x9000, bound[1])[0])


def test_kernel_by_kernel(library, chain):
    enqueue = chain.enqueuer(None)
    for stream in (3, 4):
        enqueue(BOUND, 0x9000, (1000, 4, 32, 512), stream)
    first, second = expected(1000, 0x9000)
    assert library.launched == [
        each for stream in (3, 4) for each in ((stream, 4, 256, 32, first), (stream, 1, 128, 48, second))
    ]


def test_filling_launches_nothing(library, chain):
    executable = executable_of([chain])
    fill = chain.filler(executable, executable.nodes)
    fill(BOUND, 0x9000, (1000, 4, 32, 512))
    assert [each[0] for each in library.set] == [1, 2]
    assert not library.launched


def test_several_shapes_are_one_graph_whose_nodes_are_filled_one_after_another(library, chain):
    library.cuGraphExecKernelNodeSetParams_v2 = lambda executable, node, params: (
        library.set.append((node.value, params._obj.function, params._obj.grid)) or 0
    )
    executable = executable_of([chain, chain])
    nodes = iter(executable.nodes)
    fills = [chain.filler(executable, nodes) for _ in range(2)]
    for fill, grid in zip(fills, (4, 5), strict=True):
        fill(BOUND, 0x9000, (1000, grid, 32, 512))
    assert library.edges == [(1, 2), (2, 3), (3, 4)]
    assert library.set == [(1, 1, 4), (2, 2, 1), (3, 1, 5), (4, 2, 1)]


def test_kernels_that_wait_themselves(library, monkeypatch):
    functions = [c_void_p(1), c_void_p(2)]
    chain = Chain(SHAPE, VALUES, {"threads": 256}, functions, overlaps=True)
    executable_of([chain, chain])
    edges = [(1, 2), (2, 3), (3, 4)]
    assert library.edges == [(*each, "programmatic") for each in edges]
    chain.enqueuer(None)(BOUND, 0x9000, (1000, 4, 32, 512), 3)
    attribute = ctypes.addressof(PROGRAMMATIC)
    assert library.attributes == [[attribute, 1]] * 2
    assert ctypes.string_at(attribute, 12) == struct.pack("iii", 6, 0, 1)
    library.edges.clear()
    monkeypatch.delattr(Library, "cuGraphAddDependencies_v2")  # as in drivers before CUDA 12.3
    executable_of([chain])
    assert library.edges == [(5, 6)]


def test_the_only_kernel(library):
    shape = Shape(("n",), (Launch("first", 1, 32, (Value("d_in"), i32("n"), Value("op"), Storage())),))
    enqueue = Chain(shape, VALUES, {}, [c_void_p(1)]).enqueuer(Executable([NodeParams()]))
    for n in (1, 1, 2):
        enqueue((n, *BOUND[1:]), 0x9000, (n,), 0)
    parameters = [
        [struct.pack("Q", 0x7000), struct.pack("i", n), STATE, struct.pack("Q", 0x9000)] for n in (1, 2)
    ]
    assert library.set == [(1, 1, 32, 0, each) for each in parameters]
    assert len(library.launched) == 3


class Turns(Library):
    """Launches record the parameters that their executable has at that time."""

    def __init__(self):
        super().__init__()
        self.made, self.parameters, self.is_interrupted = 0, {}, False

    def cuGraphInstantiateWithFlags(self, executable, graph, flags):
        self.made += 1
        executable._obj.value = self.made
        return 0

    def cuGraphExecKernelNodeSetParams_v2(self, executable, node, params):
        function = (node.value - 1) % 2 + 1
        self.set.append(function)
        self.parameters[executable.value, function] = read(params._obj.parameters, function)
        if self.is_interrupted and function == 1:
            raise KeyboardInterrupt
        return 0

    def cuGraphLaunch(self, executable, stream):
        self.launched.append([self.parameters[executable.value, function] for function in (1, 2)])
        return 0


@pytest.fixture
def turns(monkeypatch):
    """Make a function that enqueues, given the number of executables that it may take."""
    library = Turns()
    monkeypatch.setattr(driver, "library", lambda: library)
    monkeypatch.setattr(driver, "current_context", lambda: None)
    chain = Chain(SHAPE, VALUES, {"threads": 256}, [c_void_p(1), c_void_p(2)])

    def enqueuer(executables):
        more = [executable_of([chain]) for _ in range(executables)]
        made = chain.enqueuer(more.pop(), 5, lambda: more.pop() if more else None)

        def enqueue(n, address=0x9000):
            """Make a call whose input and storage tell it from others; return the kernels that it set."""
            library.set.clear()
            d_in = 0x7000 + 64 * n
            made((1000, d_in, *BOUND[2:]), address, (1000, 4, 32, 512), 5)
            assert library.launched[-1] == [*expected(1000, address, d_in)]
            return [*library.set]

        return library, enqueue

    return enqueuer


def test_calls_that_take_turns_are_set_once(turns):
    _, enqueue = turns(3)
    assert [enqueue(n) for n in (0, 1, 2)] == [[1, 2]] * 3
    assert [enqueue(n) for n in (0, 1, 2, 2, 1, 0)] == [[]] * 6
    assert enqueue(3) == [1]  # in place of the oldest
    assert [enqueue(n) for n in (1, 2, 3)] == [[]] * 3
    assert enqueue(0) == [1]


def test_a_stream_takes_no_more_than_four_executables(turns):
    _, enqueue = turns(9)
    for n in range(4):
        enqueue(n)
    assert enqueue(4) == [1]
    assert [enqueue(n) for n in (1, 2, 3, 4)] == [[]] * 4


def test_other_storage_is_set_everywhere(turns):
    _, enqueue = turns(2)
    for address in (0x9000, 0xA000, 0x9000):
        assert [enqueue(n, address) for n in (0, 1)] == [[1, 2]] * 2
        assert [enqueue(n, address) for n in (0, 1)] == [[]] * 2


@pytest.mark.parametrize("executables", [1, 2, 3])
def test_an_executable_whose_setting_was_interrupted_is_set_anew(turns, executables):
    library, enqueue = turns(executables)
    for n in range(executables):
        enqueue(n)
    for n in (7, 7, 8, 9, 7):
        library.is_interrupted = True
        with pytest.raises(KeyboardInterrupt):
            enqueue(n)
        library.is_interrupted = False
    for _ in range(2):
        for n in range(10):
            enqueue(n)
