"""Gathers by NCCL where there is neither it nor a GPU: both are stand-ins, with one rank and one memory."""

import ctypes
import threading

import numpy as np
import pytest

import cupar
from cupar import View
from cupar._device import driver
from cupar._fleet import nccl
from cupar._fleet.comm import awaited
from cupar._fleet.replay import Replays


class Driver:
    """Streams that do at once what is enqueued, unless they are captured: then graphs do it."""

    def __init__(self):
        self.captured, self.graphs, self.launched, self.destroyed = {}, {}, [], []
        self.handles, self.memory, self.mark = 0, [], 0

    def __getattr__(self, name):
        assert name.startswith("cu")
        return lambda *given: 0

    def _new(self, target, *given):
        self.handles += 1
        target._obj.value = self.handles
        return 0

    cuStreamCreate = cuEventCreate = _new

    def cuMemAlloc_v2(self, target, size):
        self.memory.append(ctypes.create_string_buffer(size.value))
        target._obj.value = ctypes.addressof(self.memory[-1])
        return 0

    def cuStreamIsCapturing(self, stream, status):
        status._obj.value = int(stream.value in self.captured)
        return 0

    def cuStreamBeginCapture_v2(self, stream, mode):
        self.captured[stream.value] = []
        return 0

    def cuStreamEndCapture(self, stream, graph):
        self._new(graph)
        self.graphs[graph._obj.value] = self.captured.pop(stream.value)
        return 0

    def cuGraphInstantiateWithFlags(self, target, graph, flags):
        self._new(target)
        self.graphs[target._obj.value] = self.graphs[graph.value]
        return 0

    def cuGraphLaunch(self, graph, stream):
        self.launched.append(graph.value)
        for call in self.graphs[graph.value]:
            call()
        return 0

    def cuGraphExecDestroy(self, graph):
        self.destroyed.append(graph.value)
        return 0

    def cuEventQuery(self, event):
        return self.mark


class Library:
    """NCCL of one rank."""

    def __init__(self, driver):
        self.driver, self.status, self.error, self.aborted = driver, 0, 0, threading.Event()

    def ncclGetUniqueId(self, target):
        ctypes.memmove(target, bytes(range(128)), 128)
        return 0

    def ncclCommInitRankConfig(self, target, size, unique, rank, config):
        assert bytes(unique) == bytes(range(128)) and (rank, size) == (0, 1)
        assert config._obj.size == ctypes.sizeof(nccl._Config) == 48
        target._obj.value = 77
        return self.status

    def ncclAllGather(self, record, records, nbytes, dtype, communicator, stream):
        assert (communicator.value, dtype) == (77, 1)
        calls = self.driver.captured.get(getattr(stream, "value", stream))
        call = lambda: ctypes.memmove(records, record, nbytes)
        call() if calls is None else calls.append(call)
        return 0

    def ncclCommGetAsyncError(self, communicator, status):
        status._obj.value = self.error
        return 0

    def ncclGetErrorString(self, status):
        return b"unhandled system error"

    def ncclCommAbort(self, communicator):
        self.aborted.set()
        return 0


@pytest.fixture
def stand_ins(monkeypatch):
    gpu = Driver()
    found = Library(gpu)
    monkeypatch.setattr(driver, "library", lambda: gpu)
    monkeypatch.setattr(nccl, "_library", lambda: found)
    return gpu, found


def joined():
    def wait(is_done):
        assert awaited(is_done, 20, lambda: None)

    return nccl.joined(0, 1, lambda said: [said], wait)


def record(array):
    return View(array.ctypes.data, array.dtype, array.shape, array.strides, True, array)


def test_a_gather_is_captured_once(stand_ins):
    gpu, _ = stand_ins
    own, every = np.arange(12, dtype="u1"), np.zeros(12, "u1")
    communicator = joined()
    gather = communicator.gathering(record(own), record(every))
    for stream in (0, 900, 0):
        own += 1
        gather(stream)
        np.testing.assert_array_equal(every, own)
    assert len(gpu.launched) == 2 and len({*gpu.launched}) == 1
    gpu.captured[900] = []  # by the user: no graph is launched in a capture
    gather(900)
    assert len(gpu.launched) == 2 and len(gpu.captured.pop(900)) == 1
    communicator.gather(record(own), record(every), 900)
    del gather
    assert gpu.destroyed == gpu.launched[:1]


def test_calls_that_repeat_are_captured(stand_ins):
    """They are known by where arrays are, sizes and initial values; no array is kept."""
    gpu, _ = stand_ins
    own, every, done = np.arange(12, dtype="u1"), np.zeros(12, "u1"), []
    communicator = joined()

    def enqueue(arguments, stream):
        done.append(arguments)
        communicator.gather(arguments[0], arguments[1], stream)

    replays = Replays(communicator.captured, enqueue, lambda arguments: b"%d" % arguments[2])
    call = record(own), record(every), 12, np.zeros(1, "f4")
    assert replays.find(0, call) is None and replays.find(0, (*call[:2], 11, call[3])) is None
    assert replays.find(0, (*call[:3], np.ones(1, "f4"))) is None
    found, described = replays.find(0, call)
    assert described == b"12"
    assert len(done) == 1 and [each.address for each in done[0][:2]] == [each.address for each in call[:2]]
    assert done[0][0] is not call[0] and done[0][0]._owner is None
    own += 1
    found(0)
    np.testing.assert_array_equal(every, own)
    assert replays.find(0, (record(own), *call[1:]))[0] is found
    gpu.captured[900] = []
    assert replays.find(900, call) is None
    assert replays.find(0, (own, *call[1:])) is None  # an array of the host, which may change
    assert [replays.find(0, (*call[:3], np.float32(3))) for _ in range(2)][1] is not None
    nothing = (*call[:3], 0.0)
    assert [replays.find(0, nothing) for _ in range(2)][1] is not None
    assert replays.find(0, (*call[:3], -0.0)) is None  # which is equal, and not the same
    iterators = cupar.CountingIterator(0), *call[1:]
    assert replays.find(0, iterators) is replays.find(0, iterators) is None


def test_a_rank_that_cannot_join(stand_ins):
    stand_ins[1].status = 2
    assert joined() is None


def test_what_has_failed(stand_ins, monkeypatch):
    """NCCL says so, or a gather takes too long; then nothing is called any more, and graphs go."""
    gpu, library = stand_ins
    own, every = np.arange(12, dtype="u1"), np.zeros(12, "u1")
    communicator = joined()
    gather = communicator.gathering(record(own), record(every))
    assert communicator.failed(5) == ""
    gather(0)
    gather(0)
    gpu.mark = 600  # not done yet
    assert communicator.failed(1000) == ""
    assert communicator.failed(-1) == "other ranks did not answer within -1 seconds"
    gpu.mark = 0
    assert communicator.failed(-1) == ""
    library.error = 2
    assert communicator.failed(5) == "NCCL: unhandled system error"
    communicator.abort()
    assert library.aborted.wait(20) and gpu.destroyed == gpu.launched
    assert communicator.failed(5) == ""
    with pytest.raises(RuntimeError, match="was aborted"):
        gather(0)
