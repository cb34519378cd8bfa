"""NCCL called directly: records are gathered by one call, or by a CUDA graph that is captured once.

The communicator is cupar's own, with one block of threads and the buffers of one: one that has graphs of its
calls cannot be destroyed, and PyTorch's has to be when its user says so. PyTorch's watchdog knows nothing of
it, so `Communicator.failed` is asked from time to time.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from ctypes import byref, c_char, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cache
from typing import Any

from .._device import driver

_MAGIC, _VERSION, _UNDEFINED = 0xCAFEBEEF, 21800, -(2**31)
_UINT8, _IN_PROGRESS, _NOT_READY = 1, 7, 600
_OVER = "NCCL: the communicator was aborted"
_LEGACY = 0, driver.LEGACY


class _Id(ctypes.Structure):
    """``ncclUniqueId``."""

    _fields_ = (("bytes", c_char * 128),)


class _Config(ctypes.Structure):
    """``ncclConfig_t`` of NCCL 2.18, and what follows it in memory later on."""

    _fields_ = (
        ("size", c_size_t),
        ("magic", c_uint),
        ("version", c_uint),
        ("blocking", c_int),
        ("cgaClusterSize", c_int),
        ("minCTAs", c_int),
        ("maxCTAs", c_int),
        ("netName", c_char_p),
        ("splitShare", c_int),
        ("trafficClass", c_int),
    )


@cache
def _library() -> Any:
    """Return the NCCL that PyTorch has loaded, else the system's; None if it is missing or too old."""
    version = c_int()
    try:
        found = ctypes.CDLL("libnccl.so.2")
        if found.ncclGetVersion(byref(version)) or version.value < _VERSION:
            return None
    except (OSError, AttributeError):
        return None
    found.ncclGetErrorString.restype = c_char_p
    found.ncclCommInitRankConfig.argtypes = [c_void_p, c_int, _Id, c_int, c_void_p]
    found.ncclAllGather.argtypes = [c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p]
    return found


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"NCCL: {_library().ncclGetErrorString(status).decode()}")


def joined(
    rank: int, size: int, agree: Callable[[bytes], list[bytes]], wait: Callable[[Callable[[], bool]], None]
) -> Communicator | None:
    """Return a communicator of all ranks, None if one of them has no NCCL, or cannot join.

    Parameters
    ----------
    rank, size : int
    agree : callable
        Returns the bytes of all ranks, given one's own.
    wait : callable
        Waits on the host until a function returns true; raises if other ranks do not arrive.
    """
    library, found = _library(), _Id()
    own = b""
    if library is not None and not (rank == 0 and library.ncclGetUniqueId(byref(found))):
        own = bytes(found)
    ids = agree(own)
    if not all(ids):
        return None
    ctypes.memmove(byref(found), ids[0], len(ids[0]))
    context = c_void_p()
    driver.call("cuCtxGetCurrent", byref(context))
    config = _Config(
        *(ctypes.sizeof(_Config), _MAGIC, _VERSION, 1, _UNDEFINED, 1, 1, None, _UNDEFINED, _UNDEFINED)
    )
    made: list[Communicator] = []

    def join() -> None:
        driver.library().cuCtxSetCurrent(context)
        handle = c_void_p()
        if library.ncclCommInitRankConfig(byref(handle), size, found, rank, byref(config)) == 0:
            communicator = Communicator(handle, context)
            with suppress(RuntimeError):
                communicator.connect(size)
                made.append(communicator)

    # It waits for the others, and cannot be interrupted.
    thread = threading.Thread(target=join, daemon=True)
    thread.start()
    wait(lambda: not thread.is_alive())
    return made[0] if all(agree(b"joined" if made else b"")) else None


class Communicator:
    """The communicator of ranks on one GPU each, for records. Its calls are ordered, on any streams."""

    def __init__(self, handle: c_void_p, context: c_void_p) -> None:
        self._library, self._handle, self._context = _library(), handle, context
        self.lock, self._ending = threading.RLock(), threading.Lock()
        self._graphs: weakref.WeakSet[_Captured] = weakref.WeakSet()
        self._is_over = False
        self._stream, self._done, self._mark = c_void_p(), c_void_p(), c_void_p()
        driver.call("cuStreamCreate", byref(self._stream), c_uint(1))
        for event in (self._done, self._mark):
            driver.call("cuEventCreate", byref(event), c_uint(2))
        self._last: int | None = None  # the stream that was used last
        self._place = c_void_p()
        self._since: float | None = None  # when `_mark` was recorded, None if it is reached

    def connect(self, size: int) -> None:
        """Gather something, as ranks connect when they first do."""
        memory = c_uint64()
        driver.call("cuMemAlloc_v2", byref(memory), c_size_t(16 * (size + 1)))
        try:
            places = memory.value + 16 * size, memory.value, 16
            _check(self._library.ncclAllGather(*places, _UINT8, self._handle, self._stream))
            driver.call("cuStreamSynchronize", self._stream)
        finally:
            driver.call("cuMemFree_v2", memory)

    # --- Gather ------------------------------------------------------------------------------------------

    def gather(self, record: Any, records: Any, stream: int) -> None:
        """Enqueue a gather of records, which may be captured."""
        with self.lock:
            if driver.is_captured(stream):
                self._enqueue(record, records, stream)
                return
            self._enqueue(record, records, self._begin(stream))
            self._end(stream)

    def gathering(self, record: Any, records: Any) -> Callable[[int], None]:
        """Return a function that gathers records of these addresses: by a graph from the second call on."""
        return _Gathering(self, record, records)

    def captured(self, enqueue: Callable[[int], Any]) -> Callable[[int], None]:
        """Return a graph of the work that a function enqueues on a stream; it is called with a stream."""
        with self.lock:
            if self._is_over:
                raise RuntimeError(_OVER)
            return _Captured(self, self._capture(enqueue))

    def _enqueue(self, record: Any, records: Any, stream: int | c_void_p) -> None:
        places = record.address, records.address, record.nbytes
        _check(self._library.ncclAllGather(*places, _UINT8, self._handle, stream))

    def _begin(self, stream: int) -> c_void_p:
        """Have a stream wait for earlier calls on others; return it."""
        if self._is_over:
            raise RuntimeError(_OVER)
        last = self._last
        if stream != last or stream == driver.PER_THREAD:
            self._last, self._place = stream, c_void_p(stream)
            if last in _LEGACY:  # which is always there: calls do not wait for the record of an event
                driver.call("cuEventRecord", self._done, c_void_p(last))
            if last is not None:
                driver.call("cuStreamWaitEvent", self._place, self._done, c_uint(0))
        return self._place

    def _end(self, stream: int) -> None:
        if stream not in _LEGACY:
            driver.library().cuEventRecord(self._done, self._place)
        if self._since is None:
            driver.library().cuEventRecord(self._mark, self._place)
            self._since = time.monotonic()

    def _capture(self, enqueue: Callable[[int], Any]) -> Any:
        graph, found, stream = c_void_p(), c_void_p(), self._stream.value or 0
        with driver.relaxed_capture_mode():
            driver.call("cuStreamBeginCapture_v2", self._stream, c_uint(driver.RELAXED))
            try:
                enqueue(stream)
            finally:
                status = driver.library().cuStreamEndCapture(self._stream, byref(graph))
            driver.check(status, "cuStreamEndCapture")
            try:
                driver.call("cuGraphInstantiateWithFlags", byref(found), graph, c_uint64(0))
            finally:
                driver.library().cuGraphDestroy(graph)
        return found

    # --- Failures ----------------------------------------------------------------------------------------

    def failed(self, timeout: float) -> str:
        """Return why it has failed, if it has: NCCL reports an error, or enqueued work exceeds the limit."""
        status, since = c_int(), self._since
        with self._ending:
            if self._is_over:
                return ""
            self._library.ncclCommGetAsyncError(self._handle, byref(status))
        if status.value not in (0, _IN_PROGRESS):
            return f"NCCL: {self._library.ncclGetErrorString(status.value).decode()}"
        if since is None:
            return ""
        driver.library().cuCtxSetCurrent(self._context)
        with driver.relaxed_capture_mode():
            is_done = driver.library().cuEventQuery(self._mark) != _NOT_READY
        if is_done:
            self._since = None
        elif time.monotonic() - since > timeout:
            return f"other ranks did not answer within {timeout:g} seconds"
        return ""

    def abort(self) -> None:
        """Abort the enqueued work; no calls may follow.

        A thread may be in a call that waits for the GPU. So it is not waited for.
        """
        is_held = self.lock.acquire(timeout=1)
        try:
            with self._ending:
                if self._is_over:
                    return
                self._is_over = True
        finally:
            if is_held:
                self.lock.release()

        def abort() -> None:
            driver.library().cuCtxSetCurrent(self._context)
            self._library.ncclCommAbort(self._handle)

        # It waits until there are no graphs of its calls, and these until they do not run.
        threading.Thread(target=abort, daemon=True).start()
        for each in list(self._graphs):
            each.destroy()


class _Gathering:
    """A gather of records from and to fixed places."""

    def __init__(self, communicator: Communicator, record: Any, records: Any) -> None:
        self._communicator, self._places = communicator, (record, records)
        self._is_called = False
        self._graph: Callable[[int], None] | None = None

    def __call__(self, stream: int) -> None:
        communicator, places = self._communicator, self._places
        if not self._is_called or driver.is_captured(stream):  # where no graph is launched
            self._is_called = True
            communicator.gather(*places, stream)
            return
        if self._graph is None:
            self._graph = communicator.captured(lambda own: communicator._enqueue(*places, own))
        self._graph(stream)


class _Captured:
    """A graph of calls of NCCL."""

    def __init__(self, communicator: Communicator, graph: Any) -> None:
        self._communicator, self._graph = communicator, graph
        self.destroy = weakref.finalize(self, _destroy, graph, os.getpid())
        self.destroy.atexit = False
        communicator._graphs.add(self)

    def __call__(self, stream: int) -> None:
        communicator = self._communicator
        with communicator.lock:
            if status := driver.library().cuGraphLaunch(self._graph, communicator._begin(stream)):
                driver.check(status, "cuGraphLaunch")
            communicator._end(stream)


def _destroy(graph: Any, process: int) -> None:
    """Destroy a graph, which the driver does when all of its launches are done."""
    if os.getpid() == process:
        with driver.relaxed_capture_mode():
            driver.library().cuGraphExecDestroy(graph)
