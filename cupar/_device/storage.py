"""Temporary storage: memory in the order of a stream, and what streams keep of it between calls.

All of it belongs to a context. That of a context that is not current is left alone, and goes with it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from ctypes import byref, c_int, c_size_t, c_void_p
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar
from weakref import ReferenceType

from .._base.data import Recent
from . import driver

_T = TypeVar("_T")

_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY

# The policy: which streams of a context keep a workspace, and how much of it.
LARGEST_WORKSPACE = 1 << 26  # bytes: what needs more, a fraction of a millisecond's work, allocates it
LARGEST_BESIDE = 1 << 16  # the same, beside another library's allocator
_MOST_WORKSPACES = 64
_MOST_BYTES = 1 << 28  # of all streams' workspaces but the default one's, and of retired blocks
_USES_BEFORE_ONE_IS_KEPT = 3

ALIGNMENT = 256  # bytes, of temporary storage, as of CUB's and of all that the driver allocates


class Block(NamedTuple):
    """Device memory."""

    address: int
    nbytes: int


class Releasable(Protocol):
    """An object that keeps resources in a context for later calls."""

    def _release(self, context: driver.Context) -> None:
        """Give back all that is unused now."""


class Releasables:
    """Weak references to objects that keep resources in a context for later calls."""

    def __init__(self) -> None:
        self._found: dict[int, ReferenceType[Releasable]] = {}  # by `id`

    def add(self, keeper: Releasable) -> None:
        """Add one, unless it is known."""
        key = id(keeper)
        if key not in self._found:
            self._found[key] = ReferenceType(keeper, lambda _: self._found.pop(key, None))

    def release(self, context: driver.Context) -> None:
        """Have all of them give back all that is unused now."""
        for each in list(self._found.values()):
            if (keeper := each()) is not None:
                keeper._release(context)


class ContextMemory:
    """The memory of one context that cupar keeps between calls. All threads share it."""

    def __init__(self, context: driver.Context) -> None:
        self._context = context
        self._lock = threading.RLock()  # held while the pool is made
        self._pool: c_void_p | None = None
        # Unused blocks, which `release_memory` frees after a wait: the driver does not tell when a destroyed
        # stream has finished its work, and a query by its handle reads freed memory.
        self.retired: list[Block] = []
        self.default = Workspace(0, 0, self)  # the default stream's
        self.workspaces = {0: self.default}  # by the driver's number of the stream
        self.by_handle: dict[int, Workspace] = {}  # but the default stream's
        # Of streams that have no workspace, by number.
        self.uses: Recent[int, int] = Recent(100 * _MOST_WORKSPACES)
        self.calls = Releasables()  # of calls that are free
        self.graphs = Releasables()  # of graphs that no free call has

    def pool(self) -> c_void_p:
        """Return the memory pool: of a primary context, cupar's own.

        The device's default pool gives its memory back at each synchronisation. A pool of its own keeps it
        (release threshold at its largest), and leaves the user's pool unchanged. No call could give
        back what one keeps for a destroyed context, so contexts that are not primary use the default pool.
        """
        if self._pool is None:
            with self._lock:
                self._pool = self._pool or self._new_pool()
        return self._pool

    def _new_pool(self) -> c_void_p:
        pool, ordinal = c_void_p(), self._context.device.ordinal
        if not self._context.is_primary:
            driver.call("cuDeviceGetDefaultMemPool", byref(pool), ordinal)
            return pool
        # Pinned, on a device.
        properties = _PoolProperties(alloc_type=1, location_type=1, location_id=ordinal)
        threshold = ctypes.c_uint64(2**64 - 1)
        with driver.relaxed_capture_mode():
            driver.call("cuMemPoolCreate", byref(pool), byref(properties))
            try:
                driver.call("cuMemPoolSetAttribute", pool, 4, byref(threshold))
            except BaseException:
                driver.library().cuMemPoolDestroy(pool)
                raise
        return pool

    def trim(self) -> None:
        """Give back what cupar's pool has and does not use; it waits for nothing."""
        if self._pool is not None and self._context.is_primary:
            with driver.relaxed_capture_mode():
                driver.call("cuMemPoolTrimTo", self._pool, c_size_t(0))

    def workspace(self, stream: int, number: int | None) -> Workspace | None:
        """Return the workspace of a stream of this context, by its handle and number; None if it keeps none.

        It keeps none while it is captured, for the graph may run beside other work of the stream. Nor does
        one that was used only a few times, or when many have one already. Streams are known by the driver's
        number, which is never used again, as a handle is. One whose handle is another's now is gone, and what
        it kept goes to `release_memory`: what it ran may run still.
        """
        if number is None:
            return None
        kept = self.workspaces.get(number)
        if kept is not None:
            return kept
        try:
            uses = self.uses[number] + 1
        except KeyError:
            uses = 1
        self.uses[number] = uses  # one that another thread counts at the same time is lost, and costs nothing
        if uses <= _USES_BEFORE_ONE_IS_KEPT:
            return None
        gone = self.by_handle.get(stream)
        if gone is not None and gone.number != number:
            self.workspaces.pop(gone.number, None)
            gone.retire()
        if len(self.workspaces) > _MOST_WORKSPACES:
            return None
        self.uses.pop(number, None)
        kept = self.workspaces.setdefault(number, Workspace(stream, number, self))
        self.by_handle[stream] = kept
        return kept

    def bytes_kept(self) -> int:
        """Return the bytes of the workspaces, but the default stream's, and of retired blocks."""
        workspaces = sum(each.nbytes for each in list(self.workspaces.values()) if each.number)
        return workspaces + sum(each.nbytes for each in list(self.retired))


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


def memory() -> ContextMemory:
    """Return the memory kept in the current context."""
    return driver.current_context().part(ContextMemory)


# --- Allocations -----------------------------------------------------------------------------------------

# Takes bytes, and returns an object that has device memory, and its address: another library's, in the order
# of the stream of calls, in place of cupar's pool; and of workspaces beyond `LARGEST_BESIDE` bytes, as these
# take no time.
allocator: ContextVar[Callable[[int], tuple[Any, int]] | None] = ContextVar("cupar_allocator", default=None)


def retry_after_trim(allocate: Callable[[], int], call: str) -> None:
    """Call the driver; if there is no memory, trim the pool and call once more.

    If that fails, or the driver refuses for another reason, raise a DriverError that names `call`.
    """
    status = allocate()
    if status == _OUT_OF_MEMORY:  # perhaps for want of a piece that is large enough
        memory().trim()
        status = allocate()
    driver.check(status, call)


def allocate(nbytes: int, stream: int) -> int:
    """Allocate device memory from cupar's pool, in the order of a stream; return its address."""
    address, ask = c_void_p(), driver.library().cuMemAllocFromPoolAsync
    retry_after_trim(
        partial(ask, byref(address), c_size_t(nbytes), memory().pool(), c_void_p(stream)),
        f"cuMemAllocFromPoolAsync of {nbytes} bytes of temporary storage",
    )
    return address.value or 0


def free(address: int, stream: int) -> None:
    """Free what `allocate` gave, in the order of a stream."""
    driver.call("cuMemFreeAsync", c_void_p(address), c_void_p(stream))


@contextmanager
def temporary_storage(nbytes: int, stream: int) -> Iterator[int]:
    """Allocate device memory, at least a byte, for the block, in the order of a stream; yield its address."""
    address = allocate(nbytes, stream)
    try:
        yield address
    finally:
        free(address, stream)


def retire(address: int, nbytes: int) -> None:
    """Leave memory of the current context to `release_memory`."""
    memory().retired.append(Block(address, nbytes))


def free_or_retire(address: int, nbytes: int, stream: int) -> None:
    """Free memory in the order of a stream; if that is being captured, the free would go into a graph."""
    is_captured = bool(stream) and driver.is_captured(stream)
    if is_captured or driver.library().cuMemFreeAsync(c_void_p(address), c_void_p(stream)):
        retire(address, nbytes)


# --- Workspaces ------------------------------------------------------------------------------------------


class Workspace:
    """Temporary storage that one stream keeps between calls, and that grows when one needs more."""

    def __init__(self, stream: int, number: int, memory: ContextMemory) -> None:
        # Held from a look at `nbytes` until all kernels of the call are enqueued.
        self.lock = threading.Lock()
        self.address, self.nbytes = 0, 0
        self.stream, self.number = stream, number
        self._memory = memory

    def grow(self, nbytes: int) -> bool:
        """Have at least that many bytes; the old memory is freed in the order of the stream.

        Return False if streams would keep too much altogether; then all is as it was.
        """
        nbytes = 1 << (nbytes - 1).bit_length()
        if self.number and self._memory.bytes_kept() - self.nbytes + nbytes > _MOST_BYTES:
            return False
        try:
            address = allocate(nbytes, self.stream)
        except driver.DriverError:
            if not self.address:
                raise
            self.give_back()
            address = allocate(nbytes, self.stream)
        before, self.address, self.nbytes = self.address, address, nbytes
        if before:
            free(before, self.stream)
        return True

    def give_back(self) -> None:
        """Free its memory, in the order of the stream."""
        address, self.address, self.nbytes = self.address, 0, 0
        if address:
            free(address, self.stream)

    def retire(self) -> None:
        """Leave its memory to `release_memory`: its stream may be gone."""
        with self.lock:
            address, nbytes, self.address, self.nbytes = self.address, self.nbytes, 0, 0
        if address:
            self._memory.retired.append(Block(address, nbytes))


def release_memory() -> None:
    """Give back the device memory that cupar keeps between calls: what it allocates, it keeps for the next.

    That is temporary storage of ``.run``, of streams that are there and of those that are gone, and CUDA
    graphs by which calls and kernels are launched, in the current context. It waits until the GPU has done
    all that was enqueued in that context. What is in use, as by bound calls, stays; so does loaded code.
    Later calls allocate anew.

    Raises
    ------
    NoDeviceError
        If there is no GPU.
    DriverError
        If the driver refuses, as while a stream of the context is captured: that ends the capture, as any
        wait for the context does, and gives back nothing.

    Examples
    --------
    >>> import cupar
    >>> cupar.release_memory()  # doctest: +SKIP

    Notes
    -----
    Where an allocation of its own fails, cupar takes what it keeps and does not use. This is for what else is
    to have the memory, such as another library's array that does not fit.
    """
    context = driver.current_context()
    kept = context.part(ContextMemory)
    for each in list(kept.workspaces.values()):
        each.retire()
    # Blocks retired by now are unused after the wait, also if other threads enqueue from here on.
    from .lent import Lent

    part = context.part(Lent)
    retired, lent = taken(kept.retired), taken(part.retired)
    try:
        driver.call("cuCtxSynchronize")
    except driver.DriverError:
        kept.retired.extend(retired)
        part.retired.extend(lent)
        raise
    with driver.relaxed_capture_mode():
        for block in retired:
            driver.call("cuMemFree_v2", c_void_p(block.address))
        kept.calls.release(context)  # which give their graphs back
        kept.graphs.release(context)
    kept.trim()
    part.sweep()


def taken(items: list[_T]) -> list[_T]:
    """Empty a list, so that each item is taken by one thread; return its items."""
    found = []
    with suppress(IndexError):
        while True:
            found.append(items.pop())
    return found
