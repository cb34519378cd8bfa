"""Temporary storage: memory in the order of a stream, and what streams keep of it between calls.

All of it belongs to a context. That of a context that is not current is left alone, and goes with it.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_int, c_size_t, c_void_p
from typing import NamedTuple

from . import driver

__all__ = ["release_memory"]

OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY


# --- The pool ------------------------------------------------------------------------------------------


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


_pools: dict[int, c_void_p] = {}  # by context


def _pool(context: driver.Context) -> c_void_p:
    """Return the memory pool for a context: of a primary one, cupar's own.

    A pool of its own keeps what it has (release threshold at its largest), where the device's default pool
    gives its memory back at each synchronisation, without changing what the user's pool does. What one has
    kept for a context that is destroyed nobody could give back, so others than primary ones use the default.
    """
    pool = _pools.get(context.number)
    return _pools.setdefault(context.number, _new_pool(context)) if pool is None else pool


def _new_pool(context: driver.Context) -> c_void_p:
    cuda, pool, ordinal = driver.library(), c_void_p(), context.device.ordinal
    if not context.is_primary:
        driver.check(cuda.cuDeviceGetDefaultMemPool(byref(pool), ordinal), "cuDeviceGetDefaultMemPool")
        return pool
    properties = _PoolProperties(alloc_type=1, location_type=1, location_id=ordinal)  # pinned, on a device
    threshold = ctypes.c_uint64(2**64 - 1)
    with driver.relaxed():
        driver.check(cuda.cuMemPoolCreate(byref(pool), byref(properties)), "cuMemPoolCreate")
        driver.check(cuda.cuMemPoolSetAttribute(pool, 4, byref(threshold)), "cuMemPoolSetAttribute")
    return pool


def trim() -> None:
    """Give back what cupar's pool has in the current context and does not use; it waits for nothing."""
    context = driver.current_context()
    pool = _pools.get(context.number)
    if pool is not None and context.is_primary:
        with driver.relaxed():
            status = driver.library().cuMemPoolTrimTo(pool, c_size_t(0))
        driver.check(status, "cuMemPoolTrimTo")


def allocate(nbytes: int, stream: int) -> int:
    """Allocate device memory from cupar's pool, in the order of a stream; return its address.

    Raises
    ------
    DriverError
        If there is no memory, not even when the pool gives back what it keeps.
    """
    address, pool = c_void_p(), _pool(driver.current_context())
    ask, what = driver.library().cuMemAllocFromPoolAsync, (c_size_t(nbytes), pool, c_void_p(stream))
    status = ask(byref(address), *what)
    if status == OUT_OF_MEMORY:  # perhaps for want of a piece that is large enough
        trim()
        status = ask(byref(address), *what)
    driver.check(status, f"cuMemAllocFromPoolAsync of {nbytes} bytes of temporary storage")
    return address.value or 0


def free(address: int, stream: int) -> None:
    """Free what `allocate` gave, in the order of a stream."""
    driver.check(driver.library().cuMemFreeAsync(c_void_p(address), c_void_p(stream)), "cuMemFreeAsync")


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


_scratches: dict[int, list[tuple[int, int]]] = {}  # addresses and bytes, by context; the largest last


def scratch(nbytes: int) -> int:
    """Return the address of at least that many bytes in the current context, in which nothing is kept.

    It is for what never runs, and is kept until `release_memory`: to free it would wait for the GPU.
    """
    kept = _scratches.setdefault(driver.current_context().number, [])
    address, size = kept[-1] if kept else (0, 0)
    if nbytes > size:
        size, found = max(1 << 20, 1 << (nbytes - 1).bit_length()), c_void_p()
        ask, call = driver.library().cuMemAlloc_v2, f"cuMemAlloc of {size} bytes"
        status = ask(byref(found), c_size_t(size))
        if status == OUT_OF_MEMORY:
            trim()
            status = ask(byref(found), c_size_t(size))
        driver.check(status, call)
        address = found.value or 0
        kept.append((address, size))
    return address


# --- What cannot be freed now ----------------------------------------------------------------------------


class _Retired(NamedTuple):
    """Memory that nobody needs any more, and that `release_memory` frees after a wait."""

    address: int
    nbytes: int


_retired: dict[int, list[_Retired]] = {}  # by context


def retire(address: int, nbytes: int) -> None:
    """Leave memory of the current context to `release_memory`.

    Of a stream that is gone, nobody tells when it is done, and to ask about its handle is no question but a
    read of freed memory.
    """
    _retired.setdefault(driver.current_context().number, []).append(_Retired(address, nbytes))


def free_or_retire(address: int, nbytes: int, stream: int) -> None:
    """Free memory in the order of a stream; if that is being captured, the free would go into a graph."""
    is_captured = bool(stream) and driver.is_captured(stream)
    if is_captured or driver.library().cuMemFreeAsync(c_void_p(address), c_void_p(stream)):
        retire(address, nbytes)


# --- Workspaces ------------------------------------------------------------------------------------------

_MOST_WORKSPACES = 64
LARGEST_WORKSPACE = 1 << 26  # bytes: what needs more, a fraction of a millisecond's work, allocates it
_MOST_BYTES = 1 << 28  # of all streams' workspaces but the default ones' in a context
_USES_BEFORE_ONE_IS_KEPT = 3


class Workspace:
    """Temporary storage that one stream keeps between calls, and that grows when one needs more.

    Attributes
    ----------
    lock : threading.Lock
        To be held from a look at `nbytes` until all kernels of the call are enqueued.
    address, nbytes : int
        What it has now.
    """

    def __init__(self, stream: int, number: int, context: driver.Context) -> None:
        self.lock = threading.Lock()
        self.address = 0
        self.nbytes = 0
        self.stream, self.number = stream, number
        self._context = context

    def grow(self, nbytes: int) -> bool:
        """Have at least that many bytes. In the order of the stream, what was there goes.

        Returns
        -------
        bool
            False if streams would keep too much altogether; then all is as it was.
        """
        nbytes = 1 << (nbytes - 1).bit_length()
        if self.number and _bytes_kept(self._context) - self.nbytes + nbytes > _MOST_BYTES:
            return False
        try:
            address = allocate(nbytes, self.stream)
        except driver.DriverError:
            if not self.address:
                raise
            self.give_back()
            address = allocate(nbytes, self.stream)
        self.give_back()
        self.address, self.nbytes = address, nbytes
        return True

    def give_back(self) -> None:
        """Free what it has, in the order of the stream."""
        address, self.address, self.nbytes = self.address, 0, 0
        if address:
            free(address, self.stream)

    def retire(self) -> None:
        """Leave what it has to `release_memory`: its stream may be gone."""
        with self.lock:
            address, nbytes, self.address, self.nbytes = self.address, self.nbytes, 0, 0
        if address:
            kept = _retired.setdefault(self._context.number, [])
            kept.append(_Retired(address, nbytes))


_workspaces: dict[int, dict[int, Workspace]] = {}  # by context, and in it by the stream's number
_by_handle: dict[int, Workspace] = {}  # those of streams that are not default ones
_uses: dict[int, int] = {}  # of streams that have none, by number


def _of(context: driver.Context) -> dict[int, Workspace]:
    return _workspaces.setdefault(context.number, {})


def _bytes_kept(context: driver.Context) -> int:
    workspaces = sum(each.nbytes for each in list(_of(context).values()) if each.number)
    return workspaces + sum(each.nbytes for each in _retired.get(context.number, []))


def default_workspace(context: driver.Context) -> Workspace:
    """Return the workspace of a context's default stream."""
    return _of(context).setdefault(0, Workspace(0, 0, context))


def workspace(stream: int, context: driver.Context) -> Workspace | None:
    """Return the workspace of a stream of a context, None if it keeps none.

    It keeps none while it is captured, for the graph may run beside other work of the stream. Nor does a
    stream that was used only a few times, or when many have one already. Its handle may be that of another
    stream one day, so streams are known by the driver's number for them, which is never used again. One whose
    handle is another's now is gone, and what it kept goes to `release_memory`: what it ran may run still.
    """
    number = driver.stream_number(stream)
    if number is None:
        return None
    if not number:
        return default_workspace(context)
    of_context = _of(context)
    kept = of_context.get(number)
    if kept is not None:
        return kept
    if len(_uses) > 100 * _MOST_WORKSPACES:
        _uses.clear()
    # Not looked up again: another thread may have cleared them. One that it counts too few costs nothing.
    _uses[number] = uses = _uses.get(number, 0) + 1
    if uses <= _USES_BEFORE_ONE_IS_KEPT:
        return None
    gone = _by_handle.get(stream)
    if gone is not None and gone.number != number:
        _workspaces.get(gone._context.number, {}).pop(gone.number, None)
        gone.retire()
    if len(of_context) > _MOST_WORKSPACES:
        return None
    _uses.pop(number, None)
    kept = _by_handle[stream] = of_context.setdefault(number, Workspace(stream, number, context))
    return kept


def release_memory() -> None:
    """Give back the device memory that cupar keeps between calls: what it allocates, it keeps for the next.

    That is temporary storage of ``.run``, of streams that are there and of those that are gone, in the
    current context. It waits until the GPU has done all that was enqueued in that context. What is in use, as
    by bound calls, stays; so does loaded code. Later calls allocate anew.

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
    for each in list(_of(context).values()):
        each.retire()
    # What is retired now is done with after the wait, whatever other threads enqueue from here on.
    retired = _retired.pop(context.number, [])
    library = driver.library()
    status = library.cuCtxSynchronize()
    if status:
        _retired.setdefault(context.number, []).extend(retired)
    driver.check(status, "cuCtxSynchronize")
    scratches = _scratches.pop(context.number, [])
    with driver.relaxed():
        for address in [*(each.address for each in retired), *(address for address, _ in scratches)]:
            driver.check(library.cuMemFree_v2(c_void_p(address)), "cuMemFree")
    trim()


def _after_fork() -> None:
    for each in (_pools, _scratches, _retired, _workspaces, _by_handle, _uses):
        each.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
