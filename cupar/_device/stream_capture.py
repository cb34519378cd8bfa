"""A capture that throws away what it records: it loads the kernels that are enqueued, and runs none of them.

For code of the bindings, whose kernels have no handles here; see `kernels.Library` for cupar's own. While a
stream is captured, CUDA lets nobody wait for its context: ``cudaDeviceSynchronize`` fails in whatever thread
it is called, and spoils the capture. So this is done while code is loaded, and at no other time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_void_p

from . import driver

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING


@contextmanager
def discarding() -> Iterator[int]:
    """Yield the handle of a stream; what the block enqueues on it is loaded, and does not run.

    Other streams may be captured meanwhile, by this thread too.
    """
    stream, graph = c_void_p(), c_void_p()
    with driver.relaxed_capture_mode():
        driver.call("cuStreamCreate", byref(stream), _NON_BLOCKING)
        try:
            driver.call("cuStreamBeginCapture_v2", stream, driver.RELAXED)
            try:
                yield stream.value or 0
            finally:
                driver.library().cuStreamEndCapture(stream, byref(graph))
                if graph:
                    driver.library().cuGraphDestroy(graph)
        finally:
            driver.library().cuStreamDestroy_v2(stream)
