"""Which stream is captured, what becomes of the kernels, and room for graphs: of a driver that is none."""

import ctypes
import threading
from contextlib import nullcontext

import pytest

from cupar import _capture, _driver, _replay

GREEN, OWN, HOME, ELSEWHERE = 500, 600, 0xAAA, 0xBBB
KERNEL, MEMSET = 0, 2


class Library:
    """Has one graph, of two kernels and a memset, and gives out numbers as handles."""

    green = (
        "cuDeviceGetDevResource",
        "cuDevResourceGenerateDesc",
        "cuGreenCtxCreate",
        "cuGreenCtxStreamCreate",
    )

    def __init__(self, refuses=(), lacks=()):
        self.refuses, self.lacks, self.asked = refuses, lacks, []
        self.nodes = {11: [KERNEL, ELSEWHERE], 12: [MEMSET, None], 13: [KERNEL, ELSEWHERE]}

    def __getattr__(self, name):
        if name in self.lacks or not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments):
            self.asked.append(name)
            return 1 if name in self.refuses else getattr(self, f"do_{name}")(*arguments) or 0

        return call

    def do_cuGreenCtxStreamCreate(self, stream, context, flags, priority):
        stream._obj.value = GREEN

    def do_cuStreamCreate(self, stream, flags):
        stream._obj.value = OWN

    def do_cuCtxGetCurrent(self, context):
        context._obj.value = HOME

    def do_cuStreamEndCapture(self, stream, graph):
        graph._obj.value = 7

    def do_cuGraphGetNodes(self, graph, nodes, count):
        count._obj.value = len(self.nodes)
        if nodes is not None:
            nodes[:] = list(self.nodes)

    def do_cuGraphNodeGetType(self, node, kind):
        kind._obj.value = self.nodes[node.value][0]

    def do_cuGraphKernelNodeGetParams_v2(self, node, details):
        details._obj.context = self.nodes[node.value][1]

    def do_cuGraphKernelNodeSetParams_v2(self, node, details):
        self.nodes[node.value][1] = details._obj.context

    def do_cuGraphInstantiateWithFlags(self, executable, graph, flags):
        executable._obj.value = len(self.asked)

    def do_cuGraphExecDestroy(self, executable):
        self.asked[-1] += f" {executable.value}"

    def nothing(self, *arguments):
        pass

    do_cuDeviceGetDevResource = do_cuDevResourceGenerateDesc = do_cuGreenCtxCreate = nothing
    do_cuStreamBeginCapture_v2 = do_cuStreamDestroy_v2 = do_cuGraphDestroy = nothing
    do_cuFuncGetParamInfo = nothing


@pytest.fixture
def have(monkeypatch):
    def have(library):
        monkeypatch.setattr(_driver, "library", lambda: library)
        monkeypatch.setattr(_driver, "current_device", lambda: _driver.Device(0, 90))
        monkeypatch.setattr(_driver, "has_primary_context", lambda: True)
        monkeypatch.setattr(_driver, "relaxed", nullcontext)
        monkeypatch.setattr(_capture, "_green_streams", {})
        return library

    return have


def contexts(library):
    return [context for kind, context in library.nodes.values() if kind == KERNEL]


def test_on_a_stream_of_a_green_context(have):
    library = have(Library())
    for _ in range(2):
        with _capture.capture() as captured:
            assert captured.stream == GREEN
        assert captured.graph.value == 7
    assert library.asked.count("cuGreenCtxCreate") == 1
    assert _capture.is_unnoticed()
    assert contexts(library) == [ELSEWHERE] * 2
    captured.bring_home()
    assert contexts(library) == [HOME] * 2
    captured.destroy()
    captured.destroy()
    assert library.asked.count("cuGraphDestroy") == 1


without = [{"refuses": [name]} for name in Library.green] + [{"lacks": Library.green}]


@pytest.mark.parametrize("without", without)
def test_without_green_contexts(have, without):
    library = have(Library(**without))
    assert not _capture.is_unnoticed()
    with _capture.capture() as captured:
        assert captured.stream == OWN
    assert library.asked[-1] == "cuStreamDestroy_v2"
    captured.bring_home()
    assert contexts(library) == [ELSEWHERE] * 2


def test_in_another_context_than_the_primary(have, monkeypatch):
    library = have(Library())
    monkeypatch.setattr(_driver, "has_primary_context", lambda: False)
    with _capture.capture() as captured:
        assert captured.stream == OWN
    captured.bring_home()
    assert contexts(library) == [ELSEWHERE] * 2


def test_what_fails_ends_the_capture(have):
    library = have(Library())
    with pytest.raises(ZeroDivisionError), _capture.capture():
        1 / 0
    assert library.asked[-2:] == ["cuStreamEndCapture", "cuGraphDestroy"]
    assert _capture.lock.acquire(blocking=False)
    _capture.lock.release()


def test_one_thread_at_a_time(have):
    have(Library())
    inside, most = [], []

    def capture():
        for _ in range(50):
            with _capture.capture():
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=capture) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 200
    assert max(most) == 1


def captured(library):
    graph = _capture.Capture(GREEN, ctypes.c_void_p(HOME))
    graph.graph = ctypes.c_void_p(7)
    return graph


def test_room(have):
    """Graphs that are destroyed when room is taken; what is given back comes after them."""
    library = have(Library())
    room = _replay.Room()
    assert not room.take()
    room.add(captured(library))
    assert contexts(library) == [HOME] * 2  # memory is another context's otherwise
    assert library.asked.count("cuGraphInstantiateWithFlags") == _replay._ROOM
    assert room.take()
    room.give_back()
    for left in range(_replay._ROOM - 1, 0, -1):
        assert room.take()
        destroyed = [each for each in library.asked if each.startswith("cuGraphExecDestroy")]
        assert len(set(destroyed)) == len(destroyed) == _replay._ROOM - left + 1
    assert room.take()
    assert not room.take()
    room.add(captured(library))
    room.close()
    assert not room.take()
    assert sum(each.startswith("cuGraphExecDestroy") for each in library.asked) == 2 * _replay._ROOM


@pytest.mark.parametrize("reason", ["switched off", "no green contexts", "an old driver"])
def test_no_room_where_nothing_is_replayed(have, monkeypatch, reason):
    lacks = {"no green contexts": Library.green, "an old driver": ["cuFuncGetParamInfo"]}.get(reason, [])
    library = have(Library(lacks=lacks))
    if reason == "switched off":
        monkeypatch.setenv("CUPAR_REPLAY", "0")
        monkeypatch.setattr(_replay, "CALLS_BEFORE", _replay._calls_before())
    room = _replay.Room()
    room.add(captured(library))
    assert not room.take()
