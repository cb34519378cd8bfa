"""A GPU that is none: it loads code and notes what is launched."""

from ctypes import c_void_p
from itertools import count
from types import SimpleNamespace

from support.common import context, pretend

import cupar
from cupar._call import code
from cupar._call.launcher import Chain
from cupar._device import driver, storage

FACTS = {"sms": 132, "shared_memory": 232448}  # of an H200


class GPU:
    """What happened on it.

    Attributes
    ----------
    status : int
        What the driver answers to who loads code.
    loaded : list of bytes
        Cubins, in order.
    launched : list of int
        Of each graph that was launched, which of those cubins it is of.
    """

    def __init__(self):
        self.status, self.loaded, self.launched = 0, [], []
        self._numbers = count(1)
        self._graphs = {}

    def library(self, cubin, kernels, subject):
        storage.retry_after_trim(lambda: self.status, subject)
        place = len(self.loaded)
        self.loaded.append(cubin)
        functions = {kernel: Function(next(self._numbers), place) for kernel in kernels}
        return SimpleNamespace(functions=functions, occupancy=lambda *_: 8, unload=lambda: None)

    def executable(self, chain):
        functions = [function for *_, function, _ in chain._launches]
        handle = next(self._numbers)
        self._graphs[handle] = functions[0].place
        return SimpleNamespace(
            handle=c_void_p(handle), nodes=[c_void_p(1) for _ in functions], destroy=lambda: None
        )

    def launch(self, executable, stream):
        self.launched.append(self._graphs[executable.value])
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
    functions = SimpleNamespace(cuGraphLaunch=gpu.launch, cuGraphExecKernelNodeSetParams_v2=lambda *_: 0)
    monkeypatch.setattr(driver, "library", lambda: functions)
    monkeypatch.setattr(driver, "check", check)
    monkeypatch.setattr(driver, "stream_number", lambda stream: stream)
    monkeypatch.setattr(code, "Library", gpu.library)
    monkeypatch.setattr(code, "device_facts", lambda device: FACTS)
    monkeypatch.setattr(Chain, "executable", lambda chain: gpu.executable(chain))  # noqa: PLW0108 - a method
    monkeypatch.setattr(storage.Memory, "trim", lambda self: None)
    return gpu
