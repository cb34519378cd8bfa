"""Loaded GPU code, and launches of its kernels: one by one, or as a graph whose parameters are set anew.

To launch a graph of a chain of kernels costs the host less than launching one kernel does (3.0 us against 5.2
on an H200, in one run), and to set a kernel's parameters in it 1.1. So whoever launches the same chain again
and again has an executable graph of it, and sets the parameters that have changed.

An executable is for one stream: its launches run one after another, on any streams. And it is
not for streams that are captured: there, kernels are launched one by one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from ctypes import byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p

from .._base import fork
from . import driver, storage

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_STATIC_SHARED = 1  # CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
_SMS, _SHARED_PER_BLOCK_OPTIN = 16, 97  # CU_DEVICE_ATTRIBUTE_…


_SHAPE = [(name, c_uint) for name in ("grid", "grid_y", "grid_z", "block", "block_y", "block_z", "shared")]


class NodeParams(ctypes.Structure):
    """``CUDA_KERNEL_NODE_PARAMS_v2``."""

    _fields_ = [
        ("function", c_void_p),
        *_SHAPE,
        *((name, c_void_p) for name in ("parameters", "extra", "kernel", "context")),
    ]


class LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = [*_SHAPE, ("stream", c_void_p), ("attributes", c_void_p), ("count", c_uint)]


class LaunchAttribute(ctypes.Structure):
    """``CUlaunchAttribute`` with a value that is an int."""

    _fields_ = [("id", c_int), ("_", c_int), ("value", c_int), ("__", c_int * 15)]


# CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
PROGRAMMATIC = LaunchAttribute(id=6, value=1)


class _EdgeData(ctypes.Structure):
    """``CUgraphEdgeData``."""

    _fields_ = [("from_port", c_ubyte), ("to_port", c_ubyte), ("type", c_ubyte), ("_", c_ubyte * 5)]


# CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
_PROGRAMMATIC_EDGE = _EdgeData(from_port=1, type=1)


def device_properties(device: driver.Device) -> dict[str, int]:
    """Return what plans depend on of a device."""
    numbers = {"sms": _SMS, "shared_memory": _SHARED_PER_BLOCK_OPTIN}
    return {name: driver.attribute(device.ordinal, number) for name, number in numbers.items()}


class Library:
    """GPU code, loaded in the current context; its kernels' handles, by their symbols."""

    def __init__(self, cubin: bytes, kernels: Sequence[str], subject: str) -> None:
        self._handle = c_void_p()
        load = driver.library().cuLibraryLoadData
        storage.retry_after_trim(
            lambda: load(byref(self._handle), cubin, None, None, c_uint(0), None, None, c_uint(0)), subject
        )
        self.functions: dict[str, c_void_p] = {}
        with self.kept():
            optin = device_properties(driver.current_device())["shared_memory"]
            for symbol in kernels:
                self.functions[symbol] = self._prepared(symbol, optin)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Unload it if the block raises: it has no owner then."""
        try:
            yield
        except BaseException:
            self.unload()
            raise

    def _prepared(self, symbol: str, optin: int) -> c_void_p:
        """Return a kernel's handle, once it may have all shared memory and its code is on the GPU."""
        kernel, function, static = c_void_p(), c_void_p(), c_int()
        driver.call("cuLibraryGetKernel", byref(kernel), self._handle, c_char_p(symbol.encode()))
        driver.call("cuKernelGetFunction", byref(function), kernel)
        driver.call("cuFuncGetAttribute", byref(static), _STATIC_SHARED, function)
        driver.call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, optin - static.value)
        with suppress(AttributeError):  # from CUDA 12.4 on; without it the first launch may wait
            driver.library().cuFuncLoad(function)
        return function

    def occupancy(self, symbol: str, threads: int, shared: int) -> int:
        """Return the number of blocks of a kernel that are resident on a multiprocessor."""
        found = c_int()
        ask, function = "cuOccupancyMaxActiveBlocksPerMultiprocessor", self.functions[symbol]
        driver.call(ask, byref(found), function, c_int(threads), c_size_t(shared))
        return found.value

    def unload(self) -> None:
        """Unload it."""
        driver.library().cuLibraryUnload(self._handle)


class Executable:
    """A chain of kernels as an executable graph, whose nodes' parameters can be set.

    Parameters
    ----------
    chain : sequence of NodeParams
    overlaps : bool, optional
        Whether they may begin before the one before them has ended, for which they wait themselves.
    """

    def __init__(self, chain: Sequence[NodeParams], overlaps: bool = False) -> None:
        library = driver.library()
        self._graph: c_void_p = c_void_p()
        self.handle: c_void_p = c_void_p()
        self.nodes: list[c_void_p] = []
        self._context = driver.current_context()
        fork.in_child(self.abandon)
        overlaps = overlaps and hasattr(library, "cuGraphAddDependencies_v2")  # from CUDA 12.3 on
        driver.call("cuGraphCreate", byref(self._graph), c_uint(0))
        try:
            for k, params in enumerate(chain):
                node, before = c_void_p(), (c_void_p * 1)(*self.nodes[-1:])
                count = c_size_t(1 if k and not overlaps else 0)
                driver.call("cuGraphAddKernelNode_v2", byref(node), self._graph, before, count, byref(params))
                if k and overlaps:
                    edge = byref(_PROGRAMMATIC_EDGE), c_size_t(1)
                    driver.call("cuGraphAddDependencies_v2", self._graph, before, byref(node), *edge)
                self.nodes.append(node)
            driver.call("cuGraphInstantiateWithFlags", byref(self.handle), self._graph, c_uint64(0))
        except BaseException:
            library.cuGraphDestroy(self._graph)
            raise

    def destroy(self) -> None:
        """Give it up; the driver destroys it when all of its launches are done."""
        if self.handle and driver.is_there(self._context):
            with driver.relaxed_capture_mode():
                driver.library().cuGraphExecDestroy(self.handle)
                driver.library().cuGraphDestroy(self._graph)
        self.abandon()

    def abandon(self) -> None:
        """Leave it to the parent process, or to its context, which may be destroyed."""
        self.handle, self._graph = c_void_p(), c_void_p()
