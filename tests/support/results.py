"""Arrays for tests of results, which run on a GPU and, where there is none, on the CPU.

`cp` is CuPy, or what looks like it and makes NumPy's arrays. CUPAR_TEST_DEVICE=cpu picks the CPU anyway.
"""

import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from support import fewer

import cupar

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


class HostArray(np.ndarray):
    """NumPy's array with what tests call of CuPy's."""

    def get(self, stream=None):
        return np.array(np.asarray(self))


class Stream:
    """A stream, which means nothing on the CPU."""

    ptr = 1

    def __init__(self, non_blocking=False):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def synchronize(self):
        pass

    def __cuda_stream__(self):
        return 0, self.ptr


def _made(function):
    return lambda *args, **named: function(*args, **named).view(HostArray)


def _copied(array, dtype=None):
    return np.array(array, dtype).view(HostArray)


def _host():
    names = (
        "zeros",
        "ones",
        "empty",
        "full",
        "arange",
        "zeros_like",
        "asfortranarray",
        "concatenate",
        "ascontiguousarray",
        "isnan",
    )
    return SimpleNamespace(
        **{name: _made(getattr(np, name)) for name in names},
        asarray=_copied,
        array=_copied,
        cuda=SimpleNamespace(Device=Stream, Stream=Stream),
        get_default_memory_pool=lambda: SimpleNamespace(free_all_blocks=lambda: None),
    )


def _found():
    if os.environ.get("CUPAR_TEST_DEVICE") == "cpu":
        return None
    try:
        from cupar._device import driver

        driver.current_device()
        import cupy

        return cupy
    except (cupar.NoDeviceError, ImportError):
        return None


_cupy = _found()
IS_CPU = _cupy is None
cp = _host() if IS_CPU else _cupy


def finish():
    """Wait for the GPU, and end this process if its context is dead: all later tests in it would fail, too.

    Under pytest-xdist, a worker in its place takes the tests that are left, and the report names this one.
    """
    try:
        cp.cuda.Device().synchronize()
    except Exception as error:
        if "PYTEST_XDIST_WORKER" not in os.environ:
            pytest.exit(f"the GPU's context is dead: {error}", returncode=1)
        print(f"{os.environ.get('PYTEST_CURRENT_TEST')}: {error}", file=sys.stderr, flush=True)
        os._exit(1)


needs_gpu = pytest.mark.skipif(IS_CPU, reason="GPU code, or more than a CPU does in a test's time")


def every(step):
    """Have a test run on the CPU as `support.fewer.every` says, and on a GPU with all of its parameters."""
    return fewer.every(step if IS_CPU else 1)


def few(values, step=3, first=0):
    """Return values that a test goes through, on the CPU every so many of them."""
    return values[first::step] if IS_CPU else values


def address(array):
    """Return the address of an array of `cp`."""
    return array.ctypes.data if IS_CPU else array.data.ptr


def items(rng, n, dtype):
    """Return items of all kinds: integers of their whole range, and floats of two digits."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(n) < 0.5
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, n, dtype, endpoint=True)
    if dtype.kind == "c":
        return (rng.integers(-50, 50, n) + 1j * rng.integers(-50, 50, n)).astype(dtype)
    return (50 * rng.normal(size=n)).astype(dtype)


class Interface:
    """A base for arrays of tests: `described()` is their interface, whatever it is called."""

    if IS_CPU:
        __array_interface__ = property(lambda self: self.described())
    else:
        __cuda_array_interface__ = property(lambda self: self.described())


class DLPack:
    """An array that has DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def described(array):
    """Return the interface of an array of `cp`."""
    return array.__array_interface__ if IS_CPU else array.__cuda_array_interface__


class Structs(Interface):
    """An array of structs, as any library may offer them: a part of an array of bytes, and a dtype."""

    def __init__(self, host, data=None):
        self.dtype = host.dtype
        self.size = len(host)
        self.data = cp.asarray(np.ascontiguousarray(host).view(np.uint8)) if data is None else data

    def described(self):
        pointer = address(self.data) if self.size else 0
        return {
            "shape": (self.size,),
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "data": (pointer, False),
            "version": 3,
        }

    def __getitem__(self, part):
        """Return a part that shares the memory."""
        start, stop, _ = part.indices(self.size)
        size = self.dtype.itemsize
        return Structs(np.empty(stop - start, self.dtype), self.data[start * size : stop * size])

    def get(self):
        return np.frombuffer(self.data.get().tobytes(), self.dtype)
