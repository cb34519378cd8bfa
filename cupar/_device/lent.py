"""Objects lent to calls: exports of arrays that are neither CuPy's nor PyTorch's, and the arrays themselves.

They may be freed with their last reference, while a stream has yet to read their memory. So a context
holds them until its stream has passed the call: an event tells that. In a capture, that is when the graph is
gone and all that was made of it, which the driver tells by a function that it calls; it is the C library's
``sem_post``, as no Python may run there.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from ctypes import byref, c_int, c_size_t, c_uint, c_void_p
from typing import Any

from .._base import fork
from . import driver

_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
_NO_SYNC = 1  # CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
_MOVE = 1  # CU_GRAPH_USER_OBJECT_MOVE
_SEMAPHORE = 64  # bytes, more than any C library's


_Held = tuple[c_void_p, tuple[Any, ...]]


class Lent:
    """Objects that one context's streams may still use. All threads share it.

    It releases objects that streams have passed when it is given more, and in `release_memory`.
    """

    def __init__(self, context: driver.Context) -> None:
        self._lock = threading.RLock()
        self._on_streams: dict[int, deque[_Held]] = {}  # by handle, with an event; oldest first
        self._in_graphs: list[_Held] = []  # with a semaphore
        self.retired: list[tuple[Any, ...]] = []  # whose stream may be gone: see `release_memory`
        self._events: list[c_void_p] = []  # that are free
        fork.in_child(self._forget)

    def hold(self, objects: tuple[Any, ...], stream: int) -> None:
        """Hold objects until a stream has passed its work so far.

        Raises
        ------
        DriverError
            If the driver refuses.
        """
        if not objects:
            return
        with driver.relaxed_capture_mode():
            self.sweep()
            if stream and driver.is_captured(stream):
                self._hold_in_graph(objects, stream)
                return
            event = self._events.pop() if self._events else new_event()
            try:
                driver.call("cuEventRecord", event, c_void_p(stream))
            except BaseException:
                self.keep(objects)
                raise
            with self._lock:
                self._on_streams.setdefault(stream, deque()).append((event, objects))

    def keep(self, objects: tuple[Any, ...]) -> None:
        """Hold objects whose stream may be gone until `release_memory` has waited for all streams."""
        if objects:
            self.retired.append(objects)

    def sweep(self) -> None:
        """Release all that streams and graphs have passed."""
        done: list[Any] = []  # which goes when the lock is free, as that may run anything
        is_reached = driver.library().cuEventQuery
        with self._lock:
            for stream, entries in list(self._on_streams.items()):
                while entries and is_reached(entries[0][0]) == 0:
                    event, objects = entries.popleft()
                    self._events.append(event)
                    done.append(objects)
                if not entries:
                    del self._on_streams[stream]
            if self._in_graphs:
                there = [each for each in self._in_graphs if not _is_posted(each[0])]
                done, self._in_graphs = [*done, *self._in_graphs], there

    def _hold_in_graph(self, objects: tuple[Any, ...], stream: int) -> None:
        library = ctypes.CDLL(None)
        library.malloc.restype = c_void_p
        gone = c_void_p(library.malloc(c_size_t(_SEMAPHORE)))  # which outlives the interpreter, if need be
        library.sem_init(gone, 0, c_uint(0))
        post = ctypes.cast(library.sem_post, c_void_p)
        status, graph, made = c_int(), c_void_p(), c_void_p()
        driver.call(
            "cuStreamGetCaptureInfo_v2", c_void_p(stream), byref(status), None, byref(graph), None, None
        )
        driver.call("cuUserObjectCreate", byref(made), gone, post, c_uint(1), c_uint(_NO_SYNC))
        with self._lock:
            self._in_graphs.append((gone, objects))
        driver.call("cuGraphRetainUserObject", graph, made, c_uint(1), c_uint(_MOVE))

    def _forget(self) -> None:
        """Leave all of it to the parent process."""
        fork.leak((self._on_streams, self._in_graphs, self.retired))
        self._on_streams, self._in_graphs, self.retired, self._events = {}, [], [], []


def new_event() -> c_void_p:
    event = c_void_p()
    driver.call("cuEventCreate", byref(event), c_uint(_NO_TIMING))
    return event


def _is_posted(semaphore: c_void_p) -> bool:
    """Whether the work that a semaphore marks is done; the semaphore is freed then."""
    library = ctypes.CDLL(None)
    if library.sem_trywait(semaphore):
        return False
    library.free(semaphore)
    return True
