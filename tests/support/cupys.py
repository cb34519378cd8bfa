"""Arrays like CuPy's for a fake GPU, which have addresses and no items; and the values of calls with them."""

import ctypes
import importlib.machinery
import struct
import sys
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import numpy as np

from cupar._call import algorithm
from cupar._device import arrays, driver, streams
from cupar._functions import libraries

FIRST, APART = 1 << 30, 1 << 20


class ndarray:
    made: ClassVar[list] = []  # each at an address that no other one has

    def __init__(self, shape, dtype):
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype, self.ndim = np.dtype(dtype), len(self.shape)
        self.size = int(np.prod(self.shape, dtype=int))
        self.nbytes = self.size * self.dtype.itemsize
        steps = [int(np.prod(self.shape[i + 1 :], dtype=int)) for i in range(self.ndim)]
        self.strides = tuple(step * self.dtype.itemsize for step in steps)
        self._c_contiguous = self._f_contiguous = True
        self.flags = SimpleNamespace(c_contiguous=True, f_contiguous=True)
        self.data = SimpleNamespace(ptr=FIRST + APART * len(self.made), device_id=0)
        self.made.append(self)

    def every(self, step):
        """Return a view of each item that is a step, which may be negative, behind the one before."""
        found = object.__new__(ndarray)
        vars(found).update(vars(self), shape=(-(-self.shape[0] // abs(step)),), _c_contiguous=False)
        found.size, found.strides = found.shape[0], (step * self.dtype.itemsize,)
        found.nbytes = found.size * self.dtype.itemsize
        found._f_contiguous, found.flags = False, SimpleNamespace(c_contiguous=False, f_contiguous=False)
        begin = 0 if step > 0 else self.nbytes - self.dtype.itemsize
        found.data = SimpleNamespace(ptr=self.data.ptr + begin, device_id=0)
        return found

    def get(self):
        raise AssertionError("a fake GPU has no items")


ndarray.__module__ = "cupy"


def pretended(monkeypatch):
    """Pretend that there is CuPy, whose current stream has the handle `stream.ptr`; return that."""
    stream = SimpleNamespace(ptr=0)
    cupy = ModuleType("cupy")
    cupy.__spec__ = importlib.machinery.ModuleSpec("cupy", None)
    cupy.ndarray, cupy.cuda = ndarray, SimpleNamespace(get_current_stream=lambda: stream)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(ndarray, "made", [])
    thread = SimpleNamespace(ask=lambda: 0, number=ctypes.c_uint64(driver.current_context().number))
    monkeypatch.setattr(algorithm, "_this_thread", thread)
    libraries._cupy.cache_clear()
    forget_stream(ndarray)
    return stream


def forget():
    """Forget the classes above."""
    libraries._cupy.cache_clear()
    libraries._known.pop(ndarray, None)
    arrays.CUPY.discard(ndarray)
    arrays._readers.pop(ndarray, None)
    forget_stream(ndarray)


def forget_stream(cls):
    """Forget what asks for the current stream of a class of arrays."""
    streams.known.pop(cls, None)
    streams._together.clear()


class Calls:
    """Records the values that algorithms run with."""

    def __init__(self, monkeypatch):
        self.values, run = [], algorithm.Algorithm._run

        def recorded(made, stream, arguments, read=None):
            self.values += (made.values_of(arguments) if read is None else read)[1:]
            run(made, stream, arguments, read)

        monkeypatch.setattr(algorithm.Algorithm, "_run", recorded)

    def taken(self):
        """Return the values of all calls, and for each address in them, the array and the bytes behind it."""
        found, self.values = self.values, []
        values, places = [], []
        for value in found:
            if not isinstance(value, int) and len(value) % 8:  # an initial value
                values.append(value)
                continue
            words = [value] if isinstance(value, int) else list(struct.unpack(f"={len(value) // 8}q", value))
            for i, word in enumerate(words):
                number = (word - FIRST) // APART
                if 0 <= number < len(ndarray.made):
                    places.append((ndarray.made[number], (word - FIRST) % APART))
                    words[i] = "an address"
            values.append(words)
        return values, places
