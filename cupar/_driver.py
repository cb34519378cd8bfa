"""Device, stream, context and stream-ordered memory, straight from the CUDA driver.

The driver is called through ctypes: importing a wrapper (cuda.bindings 40 ms, cuda.core 100 to 200 ms) would
be a good part of what a start with a warm cache may cost.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
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
def library() -> ctypes.CDLL:
    """Return the CUDA driver, initialised.

    Raises
    ------
    NoDeviceError
        If there is no GPU or no driver.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        # cupar's own stand-in (_stub.py) answers to the same name, with CUDA_ERROR_NO_DEVICE.
        status = driver.cuInit(0)
    except OSError as error:
        raise NoDeviceError(f"There is no GPU here (no libcuda.so.1): {_NO_DEVICE_HINT}") from error
    if status != 0:
        raise NoDeviceError(f"There is no GPU here (cuInit returned {status}): {_NO_DEVICE_HINT}")
    return driver


def check(status: int, call: str) -> None:
    """Raise DriverError unless a driver call succeeded."""
    if status == 0:
        return
    text = c_char_p()
    library().cuGetErrorName(status, byref(text))
    name = text.value.decode() if text.value else "an unknown error"
    hint = ""
    if name == "CUDA_ERROR_NOT_INITIALIZED":
        hint = ": CUDA cannot be used in a process forked after it was initialised; start it with 'spawn'"
    raise DriverError(f"{call}: {name} ({status}){hint}")


@functools.cache
def _device(ordinal: int) -> Device:
    driver = library()
    major, minor = c_int(), c_int()
    for attribute, value in ((75, major), (76, minor)):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…
        check(driver.cuDeviceGetAttribute(byref(value), attribute, ordinal), "cuDeviceGetAttribute")
    return Device(ordinal, 10 * major.value + minor.value)


class _ThisThread(threading.local):
    """What is known of a thread.

    Attributes
    ----------
    ordinal : c_int
        So that asking for the device allocates nothing.
    number : c_uint64
        The same for streams.
    has_the_only_device : bool
        There if the machine has one device and the thread a context on it: no call needs to ask which.
    """

    def __init__(self) -> None:
        self.ordinal = c_int()
        self.number = ctypes.c_uint64()


this_thread = _ThisThread()


def has_primary_context() -> bool:
    """Whether this thread works in its device's primary context, and not in another, such as a green one."""
    driver, ordinal = library(), current_device().ordinal
    current, primary, flags, is_active = c_void_p(), c_void_p(), c_uint(), c_int()
    status = driver.cuDevicePrimaryCtxGetState(ordinal, byref(flags), byref(is_active))
    check(status, "cuDevicePrimaryCtxGetState")
    if not is_active.value:  # to retain it would make it
        return False
    check(driver.cuCtxGetCurrent(byref(current)), "cuCtxGetCurrent")
    check(driver.cuDevicePrimaryCtxRetain(byref(primary), ordinal), "cuDevicePrimaryCtxRetain")
    driver.cuDevicePrimaryCtxRelease_v2(ordinal)
    return current.value == primary.value


@functools.cache
def _device_count() -> int:
    count = c_int()
    check(library().cuDeviceGetCount(byref(count)), "cuDeviceGetCount")
    return count.value


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
    driver, ordinal = library(), this_thread.ordinal
    if driver.cuCtxGetDevice(byref(ordinal)) != 0:
        context = c_void_p()
        check(driver.cuDevicePrimaryCtxRetain(byref(context), 0), "cuDevicePrimaryCtxRetain")
        check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")
        check(driver.cuCtxGetDevice(byref(ordinal)), "cuCtxGetDevice")
    if _device_count() == 1:
        this_thread.has_the_only_device = True
    return _device(ordinal.value)


_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


@contextmanager
def relaxed() -> Iterator[None]:
    """Let the block load code and allocate while streams are captured, by this thread or others.

    Without it, the driver refuses what might wait for a stream that is captured, and spoils the capture.
    """
    mode = c_int(_RELAXED)
    check(library().cuThreadExchangeStreamCaptureMode(byref(mode)), "cuThreadExchangeStreamCaptureMode")
    try:
        yield
    finally:
        library().cuThreadExchangeStreamCaptureMode(byref(mode))


@contextmanager
def on(device: Device) -> Iterator[None]:
    """Make a device's primary context current for the block, unless it is."""
    driver = library()
    if driver.cuCtxGetDevice(byref(this_thread.ordinal)) == 0 and this_thread.ordinal.value == device.ordinal:
        yield
        return
    context = c_void_p()
    check(driver.cuDevicePrimaryCtxRetain(byref(context), device.ordinal), "cuDevicePrimaryCtxRetain")
    check(driver.cuCtxPushCurrent_v2(context), "cuCtxPushCurrent")
    try:
        yield
    finally:
        driver.cuCtxPopCurrent_v2(byref(context))
        driver.cuDevicePrimaryCtxRelease_v2(device.ordinal)


def _after_fork() -> None:
    vars(this_thread).clear()
    this_thread.__init__()  # type: ignore[misc]
    _workspaces.clear()
    _scratches.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


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
        If it is none of these, or what it answers is no handle.
    """
    if stream is None:
        return 0
    try:
        if type(stream) is int:
            handle = stream
        elif (protocol := getattr(stream, "__cuda_stream__", None)) is not None:
            _, handle = protocol() if callable(protocol) else protocol
        else:
            for attribute in ("cuda_stream", "ptr", "handle"):
                if (value := getattr(stream, attribute, None)) is not None:
                    handle = getattr(value, "value", value)
                    handle = 0 if handle is None else handle  # of an empty c_void_p
                    break
            else:
                raise TypeError("it has none of these")
        if type(handle) is not int:
            handle = _as_integer(handle)
    except Exception as error:  # whatever the object raises
        raise TypeError(
            "stream: expected None, an integer handle, or an object with __cuda_stream__, .cuda_stream, .ptr "
            f"or .handle, got {type(stream).__name__}: {type(error).__name__}: {error}"
        ) from None
    if not 0 <= handle < 2**64:
        raise TypeError(f"stream: expected a CUstream handle, got {handle}")
    return handle


def _as_integer(handle: Any) -> int:
    """Return a handle that is an object of another library as an int."""
    if isinstance(handle, (bool, float, str, bytes)):
        raise TypeError(f"its handle is {handle!r}")
    return int(handle)


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
    driver = library()
    pool = c_void_p()
    properties = _PoolProperties(alloc_type=1, location_type=1, location_id=ordinal)  # pinned, on a device
    threshold = ctypes.c_uint64(2**64 - 1)
    with relaxed():
        check(driver.cuMemPoolCreate(byref(pool), byref(properties)), "cuMemPoolCreate")
        check(driver.cuMemPoolSetAttribute(pool, 4, byref(threshold)), "cuMemPoolSetAttribute")
    return pool


def allocate(nbytes: int, stream: int) -> int:
    """Allocate device memory from cupar's pool, in the order of a stream; return its address."""
    address = c_void_p()
    pool = _pool(current_device().ordinal)
    status = library().cuMemAllocFromPoolAsync(byref(address), c_size_t(nbytes), pool, c_void_p(stream))
    check(status, f"cuMemAllocFromPoolAsync of {nbytes} bytes of temporary storage")
    return address.value or 0


def free(address: int, stream: int) -> None:
    """Free what `allocate` gave, in the order of a stream."""
    check(library().cuMemFreeAsync(c_void_p(address), c_void_p(stream)), "cuMemFreeAsync")


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
    address = allocate(nbytes, stream)
    try:
        yield address
    finally:
        free(address, stream)


_scratches: dict[int, tuple[int, int]] = {}  # address and bytes, by device


def scratch(nbytes: int) -> int:
    """Return the address of at least that many bytes on the current device, in which nothing is kept.

    It is for what never runs, and is never given back: to free it would wait for the GPU.
    """
    ordinal = current_device().ordinal
    address, size = _scratches.get(ordinal, (0, 0))
    if nbytes > size:
        size, found = max(1 << 20, 1 << (nbytes - 1).bit_length()), c_void_p()
        check(library().cuMemAlloc_v2(byref(found), c_size_t(size)), f"cuMemAlloc of {size} bytes")
        address = found.value or 0
        _scratches[ordinal] = address, size
    return address


_MOST_WORKSPACES = 64
LARGEST_WORKSPACE = 1 << 26  # bytes: what needs more, a fraction of a millisecond's work, allocates it
_USES_BEFORE_ONE_IS_KEPT = 3
_LEGACY, _PER_THREAD = 1, 2  # handles of the default streams, beside 0


class Workspace:
    """Temporary storage that one stream keeps between calls, and that grows when one needs more.

    Attributes
    ----------
    lock : threading.Lock
        To be held from a look at `nbytes` until all kernels of the call are enqueued.
    address, nbytes : int
        What it has now.
    """

    def __init__(self, stream: int) -> None:
        self.lock = threading.Lock()
        self.address = 0
        self.nbytes = 0
        self._stream = stream

    def grow(self, nbytes: int) -> None:
        """Have at least that many bytes. In the order of the stream, what was there goes."""
        nbytes = 1 << (nbytes - 1).bit_length()
        address = allocate(nbytes, self._stream)
        if self.address:
            free(self.address, self._stream)
        self.address, self.nbytes = address, nbytes


_workspaces: dict[tuple[int, int], Workspace] = {}  # by device and stream
_uses: dict[tuple[int, int], int] = {}  # of streams that have none


def default_workspace(device: Device) -> Workspace:
    """Return the workspace of a device's default stream."""
    return _workspaces.setdefault((device.ordinal, 0), Workspace(0))


def stream_number(stream: int) -> int | None:
    """Return the driver's number of a stream, which no other ever has; 0 is that of the default stream.

    None stands for a stream that is being captured, and for the default stream of each thread.
    """
    if stream in (0, _LEGACY):
        return 0
    if stream == _PER_THREAD:
        return None
    driver, handle = library(), c_void_p(stream)
    status, found = this_thread.ordinal, this_thread.number
    if driver.cuStreamIsCapturing(handle, byref(status)) or status.value:
        return None
    return None if driver.cuStreamGetId(handle, byref(found)) else found.value


def workspace(stream: int) -> Workspace | None:
    """Return the workspace of a stream, None if it keeps none.

    It keeps none while it is captured, for the graph may run beside other work of the stream. Nor does a
    stream that was used only a few times, or when many have one already: a workspace is never given back, as
    nobody tells when a stream goes away. Its handle may be that of another stream then, so streams are known
    by the driver's number for them, which is never used again.
    """
    number = stream_number(stream)
    if number is None:
        return None
    only = hasattr(this_thread, "has_the_only_device")
    key = (0 if only else current_device().ordinal, number)
    kept = _workspaces.get(key)
    if kept is None and number:
        if len(_uses) > 100 * _MOST_WORKSPACES:
            _uses.clear()
        # Not looked up again: another thread may have cleared them. One that it counts too few costs nothing.
        _uses[key] = uses = _uses.get(key, 0) + 1
        if uses <= _USES_BEFORE_ONE_IS_KEPT or len(_workspaces) >= _MOST_WORKSPACES:
            return None
    return kept or _workspaces.setdefault(key, Workspace(stream))
