"""A fake GPU, which loads code and records launches."""

import ctypes
from contextlib import nullcontext
from ctypes import c_void_p
from itertools import count
from types import SimpleNamespace

from support.common import context, pretend

import cupar
from cupar._call import bound
from cupar._device import driver, storage
from cupar._device.card import Card
from cupar._launch import code
from cupar._obtain import tuned

PROPERTIES = {"sms": 132, "shared_memory": 232448}  # of an H200
CARD = "NVIDIA H200"


class GPU:
    """What happened on it.

    Attributes
    ----------
    status : int
        What the driver answers to who loads code.
    loaded : list of bytes
        Cubins, in order.
    graphs : list of int
        Of each that is not destroyed, which of those cubins it is of.
    launched : list of int
        Of each graph or kernel that was launched, which of those cubins it is of.
    busy : set of int
        Streams that have not passed what was enqueued.
    captured : set of int
        Streams that are being captured.
    graphs_gone : list of callable
        Called, they destroy the graphs that streams were captured into.
    """

    def __init__(self):
        self.status, self.loaded, self.graphs, self.launched = 0, [], [], []
        self.busy, self.captured, self.graphs_gone, self._recorded = set(), set(), [], {}
        self._numbers = count(1)
        self._graphs = {}

    def library(self, cubin, kernels, subject):
        storage.retry_after_trim(lambda: self.status, subject)
        place = len(self.loaded)
        self.loaded.append(cubin)
        functions = {kernel: Function(next(self._numbers), place) for kernel in kernels}
        # Each needs more temporary storage than the one before.
        return SimpleNamespace(
            functions=functions, occupancy=lambda *_: 8 + place, unload=lambda: None, kept=nullcontext
        )

    def executable(self, chains):
        functions = [function for chain in chains for *_, function, _ in chain.launches]
        handle = next(self._numbers)
        self._graphs[handle] = place = functions[0].place
        self.graphs.append(place)
        return SimpleNamespace(
            handle=c_void_p(handle),
            nodes=[c_void_p(1) for _ in functions],
            destroy=lambda: self.graphs.remove(place),
        )

    def launch(self, executable, stream):
        self.launched.append(self._graphs[executable.value])
        return 0

    def create_event(self, event, flags):
        event._obj.value = next(self._numbers)
        return 0

    def record(self, event, stream):
        self._recorded[event.value] = stream.value or 0
        return 0

    def query(self, event):
        return 600 if self._recorded.get(event.value) in self.busy else 0

    def is_capturing(self, stream, status):
        status._obj.value = int((stream.value or 0) in self.captured)
        return 0

    def capture_info(self, stream, status, number, graph, *others):
        graph._obj.value = stream.value
        return 0

    def user_object(self, made, data, destroy, count, flags):
        self._destroy = ctypes.CFUNCTYPE(None, c_void_p)(destroy.value), data
        return 0

    def retain(self, graph, made, count, flags):
        destroy, data = self._destroy
        self.graphs_gone.append(lambda: destroy(data))
        return 0

    def launch_kernel(self, config, function, parameters, more):
        self.launched.append(function.place)
        return 0


class Function(c_void_p):
    """A kernel's handle, and which of the loaded cubins it is in."""

    def __init__(self, value, place):
        super().__init__(value)
        self.place = place


def check(status, call):
    if status:
        raise cupar.DriverError(f"{call}: {status}")


def pretended(monkeypatch, cc=90):
    """Pretend that there is a GPU; return it."""
    gpu = GPU()
    pretend(monkeypatch, context(cc=cc))
    library = SimpleNamespace(
        cuGraphLaunch=gpu.launch,
        cuGraphExecKernelNodeSetParams_v2=lambda *_: 0,
        cuLaunchKernelEx=gpu.launch_kernel,
        cuStreamGetPriority=lambda *_: 1,
        cuEventCreate=gpu.create_event,
        cuEventRecord=gpu.record,
        cuEventQuery=gpu.query,
        cuStreamIsCapturing=gpu.is_capturing,
        cuStreamGetCaptureInfo_v2=gpu.capture_info,
        cuUserObjectCreate=gpu.user_object,
        cuGraphRetainUserObject=gpu.retain,
    )
    monkeypatch.setattr(driver, "library", lambda: library)
    monkeypatch.setattr(tuned, "card_of", lambda device: Card(CARD, device.cc, PROPERTIES["sms"]))
    tuned.forget()
    monkeypatch.setattr(driver, "in_background", nullcontext)
    monkeypatch.setattr(driver, "check", check)
    monkeypatch.setattr(driver, "stream_number", lambda stream: stream)
    monkeypatch.setattr(code, "Library", gpu.library)
    monkeypatch.setattr(code, "device_properties", lambda device: PROPERTIES)
    for each in (code, bound):
        monkeypatch.setattr(each, "executable_of", gpu.executable)
    monkeypatch.setattr(storage.ContextMemory, "trim", lambda self: None)
    return gpu
