"""A fake GPU for measurements: its memory is the host's, and its kernels only take time."""

import ctypes
from itertools import count

from support.gpu import CARD, PROPERTIES, pretended

from cupar._device import driver, storage
from cupar._device.card import Card
from cupar._tune import session

FREE = 1 << 32


class Memory:
    """The driver's functions that measuring calls beside those of calls."""

    def __init__(self):
        self.blocks, self.clock, self.events = {}, 0.0, {}
        self.status, self.query = 0, 0
        self._numbers = count(1)

    def cuMemAlloc_v2(self, address, size):
        block = ctypes.create_string_buffer(size.value + 64)
        at = ctypes.addressof(block) + 63 & -64
        self.blocks[at] = block
        address._obj.value = at
        return 0

    def cuMemFree_v2(self, address):
        self.blocks.pop(address.value)
        return 0

    def cuMemsetD8_v2(self, address, value, size):
        ctypes.memset(address.value, value.value, size.value)
        return 0

    def cuMemsetD8Async(self, address, value, size, stream):
        self.clock += 1e-4
        return 0

    def cuMemcpyHtoD_v2(self, to, source, size):
        ctypes.memmove(to.value, source.value, size.value)
        return 0

    cuMemcpyDtoD_v2 = cuMemcpyDtoH_v2 = cuMemcpyHtoD_v2

    def cuMemGetInfo_v2(self, free, total):
        free._obj.value = total._obj.value = FREE
        return 0

    def cuEventCreate(self, event, flags):
        event._obj.value = next(self._numbers)
        return 0

    def cuEventRecord(self, event, stream):
        self.events[event.value] = self.clock
        return 0

    def cuEventQuery(self, event):
        return self.query

    def cuEventSynchronize(self, event):
        return 0

    def cuEventElapsedTime(self, milliseconds, begin, end):
        milliseconds._obj.value = 1e3 * (self.events[end.value] - self.events[begin.value])
        return 0

    def cuEventDestroy_v2(self, event):
        del self.events[event.value]
        return 0

    def cuCtxSynchronize(self):
        return self.status


def timed_gpu(monkeypatch, cc=90):
    """Pretend that there is a GPU; return it. `seconds` has those of a launch, by the number of the cubin."""
    found, memory = pretended(monkeypatch, cc), Memory()
    library = driver.library()
    for name in dir(memory):
        if name.startswith("cu"):
            setattr(library, name, getattr(memory, name))
    monkeypatch.setattr(session, "card_of", lambda device: Card(CARD, cc, PROPERTIES["sms"]))
    monkeypatch.setattr(storage, "allocate", lambda nbytes, stream: 1 << 30)
    monkeypatch.setattr(storage, "free_or_retire", lambda *given: None)
    monkeypatch.setattr(storage.Workspace, "grow", lambda self, nbytes: True)
    launch = found.launch
    seconds = {}  # of a launch, by which of the loaded cubins it is of

    def timed(executable, stream):
        memory.clock += seconds.get(found._graphs[executable.value], 1e-3)
        return launch(executable, stream)

    library.cuGraphLaunch = timed
    found.memory, found.seconds = memory, seconds
    return found
