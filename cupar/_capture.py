"""Work captured as a CUDA graph: to launch it later, or to load its kernels without running anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_void_p

from . import _driver

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
        try:
            _driver.check(library.cuStreamBeginCapture_v2(stream, _RELAXED), "cuStreamBeginCapture")
            yield captured
        except BaseException:
            library.cuStreamEndCapture(stream, byref(captured.graph))
            captured.destroy()
            raise
        _driver.check(library.cuStreamEndCapture(stream, byref(captured.graph)), "cuStreamEndCapture")
