"""Calls captured as CUDA graphs: to replay them, and to load their kernels without running anything."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import byref, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

from . import _driver

if TYPE_CHECKING:
    from ._algorithm import Algorithm

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


class Capture:
    """What a block enqueued on a stream of its own, as a graph.

    Attributes
    ----------
    stream : int
        The stream's handle.
    graph : c_void_p
        The graph, once the block is left.
    """

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.graph = c_void_p()

    def destroy(self) -> None:
        """Destroy the graph; what was instantiated from it lives on."""
        if self.graph:
            _driver.library().cuGraphDestroy(self.graph)
            self.graph = c_void_p()


def _own_stream() -> int:
    """Return a stream that only this thread captures on, on the current device."""
    streams: dict[int, int] = _driver.this_thread.capture_streams
    ordinal = _driver.current_device().ordinal
    if ordinal not in streams:
        stream = c_void_p()
        _driver.check(_driver.library().cuStreamCreate(byref(stream), _NON_BLOCKING), "cuStreamCreate")
        streams[ordinal] = stream.value or 0
    return streams[ordinal]


@contextmanager
def capture() -> Iterator[Capture]:
    """Capture what the block enqueues; nothing of it runs.

    Other streams may be captured meanwhile, by this thread too; to load code does not disturb them.
    """
    library = _driver.library()
    captured = Capture(_own_stream())
    stream = c_void_p(captured.stream)
    with _driver.relaxed():
        _driver.check(library.cuStreamBeginCapture_v2(stream, _RELAXED), "cuStreamBeginCapture")
        try:
            yield captured
        except BaseException:
            library.cuStreamEndCapture(stream, byref(captured.graph))
            captured.destroy()
            raise
        _driver.check(library.cuStreamEndCapture(stream, byref(captured.graph)), "cuStreamEndCapture")


class Bound:
    """A call of an algorithm with everything bound: arrays, sizes, initial value, stream and storage.

    Calling it enqueues the same again, and nothing else: all that there is to check was checked. It is for
    one thread at a time, and its stream must outlive it. Made by `Algorithm.bind`.

    Notes
    -----
    It is a CUDA graph, made by capturing the call.
    """

    def __init__(self, algorithm: Algorithm, stream: Any, arguments: tuple[Any, ...], named: Any) -> None:
        self._algorithm = algorithm
        self._stream = stream  # kept alive, as are the arrays
        self._handle = _driver.stream_handle(stream)
        self._device = _driver.current_device()
        self._launch = _driver.library().cuGraphLaunch
        self._where = c_void_p(self._handle)
        self._executable = c_void_p()
        self._storage = (0, 0)  # address and bytes
        self._kept: Any = None
        self.rebind(*arguments, **named)

    def __call__(self) -> None:
        """Enqueue the call again.

        Raises
        ------
        DriverError
            If the driver refuses.
        """
        status = self._launch(self._executable, self._where)
        if status:
            _driver.check(status, "cuGraphLaunch")

    def rebind(self, *arguments: Any, **named: Any) -> None:
        """Bind other arguments, in the order of `Algorithm.run`; much cheaper than to bind anew.

        What was enqueued before is not changed by it.

        Raises
        ------
        TypeError, ValueError
            If an argument is not what the algorithm was built for, or is too small.
        """
        library, old, new = _driver.library(), self._storage, self._storage

        def storage(nbytes: int) -> int:
            nonlocal new
            if nbytes > old[1]:
                new = _driver.allocate(nbytes, self._handle), nbytes
            return new[0]

        try:
            kept = arguments, named, self._algorithm._captured_arrays((*arguments, *named.values()))
            captured = self._algorithm._captured(storage, arguments, named)
            try:
                self._instantiate(library, captured)
            finally:
                captured.destroy()
        except BaseException:
            if new is not old:  # what was bound before still uses the old one
                _driver.free(new[0], self._handle)
            raise
        self._storage, self._kept = new, kept
        if new is not old and old[0]:
            _driver.free(old[0], self._handle)

    def _instantiate(self, library: ctypes.CDLL, captured: Capture) -> None:
        """Make the graph that is launched this one: in place if it has the same kernels."""
        if self._executable:
            details = (c_uint64 * 8)()  # CUgraphExecUpdateResultInfo, and room
            if library.cuGraphExecUpdate_v2(self._executable, captured.graph, byref(details)) == 0:
                return
        executable = c_void_p()
        status = library.cuGraphInstantiateWithFlags(byref(executable), captured.graph, c_uint64(0))
        _driver.check(status, "cuGraphInstantiate")
        if self._executable:
            library.cuGraphExecDestroy(self._executable)
        self._executable = executable

    def close(self) -> None:
        """Free what it holds, once what was enqueued is done. It cannot be called then."""
        with _driver.on(self._device):
            if self._executable:
                _driver.library().cuGraphExecDestroy(self._executable)
                self._executable = c_void_p()
            (address, _), self._storage = self._storage, (0, 0)
            if address:
                _driver.free(address, self._handle)
        self._kept = None

    def __enter__(self) -> Bound:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(Exception):  # the driver may be gone before this object is
            self.close()
