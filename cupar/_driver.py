"""Device, stream, context and stream-ordered memory, straight from the CUDA driver.

The driver is called through ctypes: importing a wrapper (cuda.bindings 40 ms, cuda.core 100 to 200 ms) would
be a good part of what a start with a warm cache may cost.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from typing import Any

_NO_DEVICE_HINT = (
    "to build without a GPU, pass cc=, the compute capability to build for, as in cc=90; "
    "to run, a machine with an NVIDIA GPU and driver is needed"
)


class NoDeviceError(RuntimeError):
    """There is no GPU, or no driver, where one is needed."""


class DriverError(RuntimeError):
    """The CUDA driver refused a call."""


@dataclass(frozen=True)
class Device:
    """A GPU: its ordinal and compute capability, as in 90."""

    ordinal: int
    cc: int


@functools.cache
def _driver() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libcuda.so.1")
        # cupar's own stand-in (_stub.py) answers to the same name, with CUDA_ERROR_NO_DEVICE.
        status = library.cuInit(0)
    except OSError as error:
        raise NoDeviceError(f"There is no GPU here (no libcuda.so.1): {_NO_DEVICE_HINT}") from error
    if status != 0:
        raise NoDeviceError(f"There is no GPU here (cuInit returned {status}): {_NO_DEVICE_HINT}")
    return library


def _check(status: int, call: str) -> None:
    if status == 0:
        return
    text = c_char_p()
    _driver().cuGetErrorName(status, byref(text))
    name = text.value.decode() if text.value else "an unknown error"
    hint = ""
    if name == "CUDA_ERROR_NOT_INITIALIZED":
        hint = ": CUDA cannot be used in a process forked after it was initialised; start it with 'spawn'"
    raise DriverError(f"{call}: {name} ({status}){hint}")


@functools.cache
def _device(ordinal: int) -> Device:
    library = _driver()
    major, minor = c_int(), c_int()
    for attribute, value in ((75, major), (76, minor)):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…
        _check(library.cuDeviceGetAttribute(byref(value), attribute, ordinal), "cuDeviceGetAttribute")
    return Device(ordinal, 10 * major.value + minor.value)


_ordinal = threading.local()  # one c_int for each thread, so that asking allocates nothing


def current_device() -> Device:
    """Return the device of the current context, making device 0's primary context current if there is none.

    That is what the CUDA runtime does, too.

    Raises
    ------
    NoDeviceError
        If there is no GPU or no driver.
    DriverError
        If the driver refuses.
    """
    library = _driver()
    try:
        ordinal = _ordinal.value
    except AttributeError:
        ordinal = _ordinal.value = c_int()
    if library.cuCtxGetDevice(byref(ordinal)) != 0:
        context = c_void_p()
        _check(library.cuDevicePrimaryCtxRetain(byref(context), 0), "cuDevicePrimaryCtxRetain")
        _check(library.cuCtxSetCurrent(context), "cuCtxSetCurrent")
        _check(library.cuCtxGetDevice(byref(ordinal)), "cuCtxGetDevice")
    return _device(ordinal.value)


def stream_handle(stream: Any) -> int:
    """Return the ``CUstream`` of whatever stands for a stream, 0 (the default stream) for None.

    Parameters
    ----------
    stream : None, int, or object
        An object with ``__cuda_stream__`` (CUDA's stream protocol), ``cuda_stream`` (PyTorch), ``ptr``
        (CuPy) or ``handle`` (Numba).

    Raises
    ------
    TypeError
        If it is none of these.
    """
    if stream is None:
        return 0
    if type(stream) is int:
        handle = stream
    elif (protocol := getattr(stream, "__cuda_stream__", None)) is not None:
        handle = int((protocol() if callable(protocol) else protocol)[1])
    else:
        for attribute in ("cuda_stream", "ptr", "handle"):
            if (value := getattr(stream, attribute, None)) is not None:
                handle = int(getattr(value, "value", value) or 0)
                break
        else:
            raise TypeError(
                "stream: expected None, an integer handle, or an object with __cuda_stream__, .cuda_stream, "
                f".ptr or .handle, got {type(stream).__name__}"
            )
    if handle < 0:
        raise TypeError(f"stream: expected a CUstream handle, got {handle}")
    return handle


class _PoolProperties(ctypes.Structure):
    """``CUmemPoolProps``."""

    _fields_ = [
        ("alloc_type", c_int),
        ("handle_types", c_int),
        ("location_type", c_int),
        ("location_id", c_int),
        ("security_attributes", c_void_p),
        ("max_size", c_size_t),
        ("reserved", ctypes.c_ubyte * 56),
    ]


@functools.cache
def _pool(ordinal: int) -> c_void_p:
    """Return cupar's memory pool on a device.

    A pool of its own keeps what it has (release threshold at its largest), where the device's default pool
    gives its memory back at each synchronisation, without changing what the user's pool does.
    """
    library = _driver()
    pool = c_void_p()
    properties = _PoolProperties(alloc_type=1, location_type=1, location_id=ordinal)  # pinned, on a device
    _check(library.cuMemPoolCreate(byref(pool), byref(properties)), "cuMemPoolCreate")
    threshold = ctypes.c_uint64(2**64 - 1)
    _check(library.cuMemPoolSetAttribute(pool, 4, byref(threshold)), "cuMemPoolSetAttribute")
    return pool


@contextmanager
def temporary_storage(nbytes: int, stream: int) -> Iterator[int]:
    """Allocate device memory in stream order for the block, and free it in stream order after it.

    Parameters
    ----------
    nbytes : int
        Bytes, at least 1.
    stream : int
        The stream's handle.

    Yields
    ------
    int
        Its address.
    """
    library = _driver()
    address = c_void_p()
    pool = _pool(current_device().ordinal)
    status = library.cuMemAllocFromPoolAsync(byref(address), c_size_t(nbytes), pool, c_void_p(stream))
    _check(status, f"cuMemAllocFromPoolAsync of {nbytes} bytes of temporary storage")
    try:
        yield address.value or 0
    finally:
        _check(library.cuMemFreeAsync(address, c_void_p(stream)), "cuMemFreeAsync")
