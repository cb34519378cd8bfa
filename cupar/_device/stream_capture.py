"""Work captured as a CUDA graph: to launch it later, or to load its kernels without running anything.

While a stream is captured, CUDA lets nobody wait for the stream's context: ``cudaDeviceSynchronize`` fails in
whatever thread it is called, and spoils the capture. cupar captures when a program does not expect it, so it
does that on a stream of a green context, which the primary context does not wait for. Both share the loaded
code, and the graph is made one of the primary context afterwards. Where there are no green contexts, it
captures on a stream like any other, and only while code is loaded or a call is bound.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, byref, c_int, c_size_t, c_uint, c_void_p

from .._base import fork, log
from . import driver

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_SM = 1  # CU_DEV_RESOURCE_TYPE_SM
_DEFAULT_STREAM = 1  # CU_GREEN_CTX_DEFAULT_STREAM
_KERNEL = 0  # CU_GRAPH_NODE_TYPE_KERNEL

lock = fork.Lock()  # held while something is captured: a green context is for one thread at a time


class KernelNode(ctypes.Structure):
    """``CUDA_KERNEL_NODE_PARAMS_v2``."""

    _fields_ = [
        ("function", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_memory", c_uint),
        ("parameters", POINTER(c_void_p)),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("context", c_void_p),
    ]


class Capture:
    """What a block enqueued on a stream of its own, as a graph."""

    def __init__(self, stream: int, context: c_void_p | None) -> None:
        self.stream = stream
        self.graph = c_void_p()  # there once the block is left
        self._context = context  # that of the block, if the stream's is another one

    def to_primary_context(self) -> None:
        """Have its kernels run in the primary context; to be called before the graph is instantiated.

        Memsets and copies run wherever they are.
        """
        if self._context is None:
            return
        details = KernelNode()
        for node in map(c_void_p, nodes(self.graph)):
            if is_kernel(node):
                driver.call("cuGraphKernelNodeGetParams_v2", node, byref(details))
                details.context = self._context
                driver.call("cuGraphKernelNodeSetParams_v2", node, byref(details))

    def destroy(self) -> None:
        """Destroy the graph; what was instantiated from it lives on."""
        if self.graph:
            driver.library().cuGraphDestroy(self.graph)
            self.graph = c_void_p()


def nodes(graph: c_void_p) -> list[int]:
    """Return the handles of a graph's nodes."""
    count = c_size_t()
    driver.call("cuGraphGetNodes", graph, None, byref(count))
    found = (c_void_p * count.value)()
    driver.call("cuGraphGetNodes", graph, found, byref(count))
    return [node or 0 for node in found]


def is_kernel(node: c_void_p) -> bool:
    """Whether a graph's node is a kernel."""
    kind = c_int()
    driver.call("cuGraphNodeGetType", node, byref(kind))
    return kind.value == _KERNEL


def is_unnoticed() -> bool:
    """Whether what is captured now disturbs no other thread: in a primary context, from CUDA 12.5 on.

    The first time on a device, it may wait for the GPU.
    """
    return _green() is not None


class _Green:
    """The green context, on all multiprocessors, for captures in a primary context."""

    def __init__(self, primary: driver.Context) -> None:
        self.context: c_void_p | None = None  # it stays None where the driver makes none
        self.free: list[int] = []  # streams of it that nothing is captured on
        library, ordinal = driver.library(), primary.device.ordinal
        if not hasattr(library, "cuGreenCtxStreamCreate"):
            return
        resource = ctypes.create_string_buffer(512)  # a CUdevResource, of 144 bytes with CUDA 13.0
        description, context = c_void_p(), c_void_p()
        if (
            library.cuDeviceGetDevResource(ordinal, resource, _SM)
            or library.cuDevResourceGenerateDesc(byref(description), resource, 1)
            or library.cuGreenCtxCreate(byref(context), description, ordinal, _DEFAULT_STREAM)
        ):
            log.debug("device %d has no green context: calls are not replayed", ordinal)
        else:
            self.context = context


def _green() -> _Green | None:
    context = driver.current_context()
    if not context.is_primary:  # but such as a green one
        return None
    with lock, driver.relaxed_capture_mode():
        green = context.part(_Green)
    return None if green.context is None else green


@contextmanager
def _stream() -> Iterator[tuple[int, c_void_p | None]]:
    """Yield a stream to capture on, and the context that what is captured has to be moved to, if any."""
    stream, primary = c_void_p(), c_void_p()
    if (green := _green()) is not None:
        if green.free:
            stream.value = green.free.pop()
        else:
            driver.call("cuGreenCtxStreamCreate", byref(stream), green.context, _NON_BLOCKING, 0)
        try:
            driver.call("cuCtxGetCurrent", byref(primary))
            yield stream.value or 0, primary
        finally:
            green.free.append(stream.value or 0)
        return
    driver.call("cuStreamCreate", byref(stream), _NON_BLOCKING)
    try:
        yield stream.value or 0, None
    finally:
        driver.library().cuStreamDestroy_v2(stream)


@contextmanager
def capture() -> Iterator[Capture]:
    """Capture what the block enqueues; nothing of it runs.

    Other streams may be captured meanwhile, by this thread too; to load code does not disturb them.
    """
    with lock, driver.relaxed_capture_mode(), _stream() as (handle, context):
        captured, stream = Capture(handle, context), c_void_p(handle)
        try:
            driver.call("cuStreamBeginCapture_v2", stream, driver.RELAXED)
            yield captured
        except BaseException:
            driver.library().cuStreamEndCapture(stream, byref(captured.graph))
            captured.destroy()
            raise
        driver.call("cuStreamEndCapture", stream, byref(captured.graph))
