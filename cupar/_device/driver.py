"""Device, context and stream, straight from the CUDA driver.

The driver is called through ctypes: importing a wrapper (cuda.bindings 40 ms, cuda.core 100 to 200 ms) would
be a noticeable part of a start with a warm cache.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_uint, c_uint64, c_void_p
from typing import Any, TypeVar

from .._base import fork
from .._base.data import Recent, dataclass
from .._base.errors import ArgumentTypeError, ArgumentValueError

_T = TypeVar("_T")

_NO_DEVICE_HINT = (
    'to build and run algorithms on the CPU, use `with cupar.device("cpu"):`; '
    "to build for a GPU without one, pass cc=, its compute capability, as in cc=90; "
    "to run on a GPU, a machine with an NVIDIA GPU and driver is needed"
)


class NoDeviceError(RuntimeError):
    """There is no GPU, or no driver, where one is needed."""

    __module__ = "cupar"


class DriverError(RuntimeError):
    """The CUDA driver refused a call."""

    __module__ = "cupar"


@dataclass(frozen=True)
class Device:
    """A GPU: its ordinal and compute capability, as in 90."""

    ordinal: int
    cc: int


@dataclass(frozen=True)
class Context:
    """A context of a GPU. Loaded code, kept memory and the default stream belong to one."""

    number: int  # the driver's, which no other context ever has
    device: Device
    is_primary: bool  # the device's primary context, and not another, such as a green one

    def part(self, kind: Callable[[Context], _T]) -> _T:
        """Return the object of class `kind` that is attached to this context; it is made by the first call.

        All that cupar allocates or makes in a context, and that is not one algorithm's, is in such a part:
        memory, green contexts, graph pools. A forked child forgets them all.
        """
        parts = _parts.get(self.number) or _parts.setdefault(self.number, {})
        found: _T | None = parts.get(kind)
        if found is None:
            found = parts.setdefault(kind, kind(self))
        return found

    def check_runs(self, algorithm: str, cc: int) -> None:
        """Raise ValueError unless its device runs code for a compute capability.

        It runs that for its own, and for earlier minor versions.
        """
        ordinal, own = self.device.ordinal, self.device.cc
        if own // 10 != cc // 10 or own < cc:
            raise ArgumentValueError(
                "cc", f"this {algorithm} was built for sm_{cc}, the current device {ordinal} is sm_{own}"
            )


_contexts: Recent[int, Context] = Recent(1000)  # by number; most of a thousand are gone
_parts: dict[int, dict[Any, Any]] = {}  # by the context's number, and in it by class


@functools.cache
def library() -> ctypes.CDLL:
    """Return the CUDA driver, initialised; NoDeviceError if there is no GPU or no driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        status = driver.cuInit(0)
    except OSError:
        raise NoDeviceError(f"There is no GPU here (no libcuda.so.1): {_NO_DEVICE_HINT}") from None
    if status != 0:
        raise NoDeviceError(f"There is no GPU here (cuInit returned {status}): {_NO_DEVICE_HINT}")
    return driver


def _queries() -> ctypes.CDLL:
    """Return the driver for queries of each call, about the current context and about streams.

    The interpreter's lock is held meanwhile. These wait for nothing: not for the GPU, nor for other threads
    that wait in `cuMemFree`, in a launch into a full queue, or for code to be loaded (tried on an H200).
    """
    driver = library()
    return ctypes.PyDLL("libcuda.so.1", handle=driver._handle) if isinstance(driver, ctypes.CDLL) else driver


def check(status: int, call: str) -> None:
    """Raise DriverError unless a driver call succeeded."""
    if status == 0:
        return
    text = c_char_p()
    library().cuGetErrorName(status, byref(text))
    name = text.value.decode() if text.value else "an unknown error"
    hint = ""
    if name == "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" and call == "cuGraphLaunch":
        hint = ": a bound call cannot be captured; call run within the capture"
    if name == "CUDA_ERROR_NOT_INITIALIZED":
        hint = ": CUDA cannot be used in a process forked after it was initialised; start it with 'spawn'"
    raise DriverError(f"{call}: {name} ({status}){hint}")


def call(function: str, *arguments: Any) -> None:
    """Call a function of the driver; raise DriverError unless it succeeds."""
    check(getattr(library(), function)(*arguments), function.removesuffix("_v2"))


def attribute(ordinal: int, number: int) -> int:
    """Return a ``CUdevice_attribute`` of a device."""
    value = c_int()
    call("cuDeviceGetAttribute", byref(value), number, ordinal)
    return value.value


@functools.cache
def device_at(ordinal: int) -> Device:
    """Return a device by its ordinal; no context is made."""
    return Device(ordinal, 10 * attribute(ordinal, 75) + attribute(ordinal, 76))  # COMPUTE_CAPABILITY_…


# Of a stream: asks whether it is captured, and where the answer is; asks for its number, and where that is.
_Asking = tuple[Callable[[], int], c_int, Callable[[], int], c_uint64]
_MOST_STREAMS = 256


class _ThisThread(threading.local):
    """Buffers of one thread for queries of the driver, so that a query allocates nothing."""

    # Asks for the number of the current context, and returns the driver's status: not 0 without one, or
    # if `current_context` was not called in this thread.
    ask: Callable[[], int] = staticmethod(lambda: 1)
    # Set if the machine has one device and the thread a context on it: no call needs to ask which.
    has_the_only_device: bool

    def __init__(self) -> None:
        self.ordinal = c_int()  # for answers about devices
        self.number = c_uint64()  # for the number of the current context
        self.streams: Recent[int, _Asking] = Recent(_MOST_STREAMS)  # by handle


this_thread = _ThisThread()


@contextmanager
def _primary(ordinal: int) -> Iterator[c_void_p]:
    """Retain a device's primary context for the block, making it if it is not active."""
    handle = c_void_p()
    call("cuDevicePrimaryCtxRetain", byref(handle), ordinal)
    try:
        yield handle
    finally:
        library().cuDevicePrimaryCtxRelease_v2(ordinal)


def _primary_number(ordinal: int) -> int | None:
    """Return the number of a device's primary context, None if it is not active."""
    flags, is_active, number = c_uint(), c_int(), c_uint64()
    call("cuDevicePrimaryCtxGetState", ordinal, byref(flags), byref(is_active))
    if not is_active.value:  # to retain it would make it
        return None
    with _primary(ordinal) as handle:
        call("cuCtxGetId", handle, byref(number))
    return number.value


def current_context() -> Context:
    """Return the current context, by default device 0's primary one, made current, as CUDA's runtime does."""
    thread = this_thread
    if thread.ask():
        _begin(thread)
    try:
        return _contexts[thread.number.value]
    except KeyError:
        return _new_context(thread.number.value)


def _begin(thread: _ThisThread) -> None:
    """Make sure that there is a context, and prepare this thread's buffers for the query of its number."""
    global has_several_devices
    thread.ask = ask = functools.partial(_queries().cuCtxGetId, None, byref(thread.number))
    if ask():
        context = c_void_p()
        call("cuDevicePrimaryCtxRetain", byref(context), 0)
        call("cuCtxSetCurrent", context)
        check(ask(), "cuCtxGetId")
    if _device_count() == 1:
        thread.has_the_only_device = True
    else:
        has_several_devices = True


def _new_context(number: int) -> Context:
    ordinal = c_int()
    call("cuCtxGetDevice", byref(ordinal))
    device = device_at(ordinal.value)
    _contexts[number] = found = Context(number, device, _primary_number(device.ordinal) == number)
    return found


def current_device() -> Device:
    """Return the device of the current context; see `current_context`."""
    return current_context().device


def is_there(context: Context) -> bool:
    """Whether a context is known to exist still, so that what belongs to it may be touched.

    The driver tells that of the current context and of primary ones. To ask about another by its handle may
    be to ask about one that was destroyed.
    """
    if not this_thread.ask() and this_thread.number.value == context.number:
        return True
    return context.is_primary and _primary_number(context.device.ordinal) == context.number


@functools.cache
def _device_count() -> int:
    count = c_int()
    call("cuDeviceGetCount", byref(count))
    return count.value


has_several_devices = False  # known once there is a context

RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


@contextmanager
def relaxed_capture_mode() -> Iterator[None]:
    """Let the block load code and allocate while streams are captured, by this thread or others.

    Without it, the driver refuses what might wait for a stream that is captured, and spoils the capture.
    """
    mode = c_int(RELAXED)
    call("cuThreadExchangeStreamCaptureMode", byref(mode))
    try:
        yield
    finally:
        library().cuThreadExchangeStreamCaptureMode(byref(mode))


@contextmanager
def on(context: Context) -> Iterator[None]:
    """Make a context current for the block, unless it is; DriverError if it may be gone: see `is_there`."""
    if current_context() == context:
        yield
        return
    with in_background(context):
        yield


@contextmanager
def in_background(context: Context) -> Iterator[None]:
    """Do what `on` does in a thread that has no context of its own, and make none for it."""
    if not is_there(context):
        raise DriverError(
            f"this belongs to a context of device {context.device.ordinal} that is not current; make it "
            "current (if it was destroyed, what belonged to it is gone)"
        )
    with _primary(context.device.ordinal) as handle:
        call("cuCtxPushCurrent_v2", handle)
        try:
            yield
        finally:
            library().cuCtxPopCurrent_v2(byref(handle))


def primaries() -> Iterator[int]:
    """Yield the handles of all active primary contexts; each is current until the next."""
    for ordinal in range(_device_count()):
        if _primary_number(ordinal) is not None:
            with _primary(ordinal) as handle:
                call("cuCtxPushCurrent_v2", handle)
                try:
                    yield handle.value or 0
                finally:
                    library().cuCtxPopCurrent_v2(byref(c_void_p()))


@fork.in_child
def _forget() -> None:
    vars(this_thread).clear()
    this_thread.__init__()  # type: ignore[misc]
    _contexts.clear()
    _parts.clear()


# --- Streams -------------------------------------------------------------------------------------------

LEGACY, PER_THREAD = 1, 2  # handles of the default streams, beside 0


def stream_handle(stream: Any) -> int:
    """Return the ``CUstream`` of a stream, 0 (the default stream) for None.

    A stream is a handle, or an object with ``__cuda_stream__`` (CUDA's stream protocol), ``cuda_stream``
    (PyTorch), ``ptr`` (CuPy) or ``handle`` (Numba). TypeError if it is neither, or has no valid handle.
    """
    if stream is None:
        return 0
    try:
        if (read := _HANDLES.get(type(stream))) is not None:  # of what each call may have
            handle = read(stream)
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
        elif (module := _STREAMS.get((type(stream).__module__, type(stream).__name__))) is not None:
            _HANDLES.setdefault(type(stream), operator.attrgetter(module))
    except Exception as error:  # the object may raise anything
        raise ArgumentTypeError(
            "stream",
            "expected None, an integer handle, or an object with __cuda_stream__, .cuda_stream, .ptr "
            f"or .handle, got {type(stream).__name__}: {type(error).__name__}: {error}",
        ) from None
    if not 0 <= handle < 2**64:
        raise ArgumentTypeError("stream", f"expected a CUstream handle, got {handle}")
    if has_several_devices and handle > PER_THREAD:
        _check_stream_device(handle)
    return handle


# Streams whose handle is an int that one of their attributes holds: by the module and name of their class. To
# ask for CUDA's protocol takes the longer, as it is a method that makes a tuple.
_STREAMS = {
    ("torch.cuda.streams", "Stream"): "cuda_stream",
    ("torch.cuda.streams", "ExternalStream"): "cuda_stream",
    ("cupy.cuda.stream", "Stream"): "ptr",
    ("cupy.cuda.stream", "ExternalStream"): "ptr",
}
_HANDLES: dict[type, Callable[[Any], int]] = {int: int}  # what reads it, by class


def _as_integer(handle: Any) -> int:
    """Return a handle that is an object of another library as an int."""
    if isinstance(handle, (bool, float, str, bytes)):
        raise TypeError(f"its handle is {handle!r}")
    return int(handle)


def _check_stream_device(stream: int) -> None:
    """Raise ValueError if a stream is of another device than the current one, as far as the driver tells.

    It may be captured, and to ask for its device by cuStreamGetDevice ends that (seen with driver 580).
    """
    driver, ordinal, context = library(), c_int(), c_void_p()
    if driver.cuStreamGetCtx(c_void_p(stream), byref(context)) or driver.cuCtxPushCurrent_v2(context):
        return
    status = driver.cuCtxGetDevice(byref(ordinal))
    driver.cuCtxPopCurrent_v2(byref(context))
    current, found = current_device().ordinal, ordinal.value
    if not status and found != current:
        raise ArgumentValueError(
            "stream", f"is of device {found}, the current device is {current}: make device {found} current"
        )


def stream_number(stream: int) -> int | None:
    """Return the driver's number of a stream, which no other ever has; 0 is that of the default stream.

    None for a stream that is being captured, and for the default stream of each thread.
    """
    if stream in (0, LEGACY):
        return 0
    if stream == PER_THREAD:
        return None
    try:
        asking = this_thread.streams[stream]
    except KeyError:
        asking = _new_stream(stream)
    is_captured, status, number_of, number = asking
    if is_captured() or status.value or number_of():
        return None
    return number.value


def _new_stream(stream: int) -> _Asking:
    """Prepare a thread's buffers for queries about streams."""
    ask, handle, status, number = _queries(), c_void_p(stream), c_int(), c_uint64()
    is_captured = functools.partial(ask.cuStreamIsCapturing, handle, byref(status))
    this_thread.streams[stream] = found = (
        is_captured,
        status,
        functools.partial(ask.cuStreamGetId, handle, byref(number)),
        number,
    )
    return found


def is_plain(stream: int) -> bool:
    """Whether work runs on a stream as it does in a graph: with the default priority, on the whole GPU."""
    driver, handle, priority, context = library(), c_void_p(stream), c_int(), c_void_p()
    if driver.cuStreamGetPriority(handle, byref(priority)) or priority.value:
        return False
    if not hasattr(driver, "cuStreamGetGreenCtx"):
        return True
    return driver.cuStreamGetGreenCtx(handle, byref(context)) == 0 and not context.value


def is_captured(stream: int) -> bool:
    """Whether a stream is being captured, or the driver does not know it."""
    status = this_thread.ordinal
    return bool(library().cuStreamIsCapturing(c_void_p(stream), byref(status)) or status.value)
