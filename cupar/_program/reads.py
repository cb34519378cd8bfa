"""Reads lengths from a device to the host: through pinned memory, with one wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from ctypes import byref, c_char, c_size_t, c_uint, c_uint64, c_void_p
from struct import Struct
from typing import Any

import numpy as np

from .._device import driver

_CODES = {1: "b", 2: "h", 4: "i", 8: "q"}
PINNED_BYTES = 64  # of each place


def reader(
    library: Any, dtype: np.dtype[Any], count: int, is_pinned: bool = False
) -> Callable[[Any, Any], tuple[int, ...]]:
    """Return a function that reads integers at an address, once the stream has written them.

    With `is_pinned` it takes the place instead, to which kernels have written.
    """
    code = _CODES[dtype.itemsize]
    unpack = Struct(f"={count}{code if dtype.kind == 'i' else code.upper()}").unpack_from
    nbytes = count * dtype.itemsize
    if library.on_cpu:

        def of_host(address: int, stream: Any) -> tuple[int, ...]:
            found: tuple[int, ...] = unpack((c_char * nbytes).from_address(address))
            return found

        return of_host
    size = c_size_t(nbytes)

    def of_device(address: int, stream: Any) -> tuple[int, ...]:
        place, handle = take(stream), c_void_p(driver.stream_handle(stream))
        driver.call("cuMemcpyDtoHAsync_v2", c_void_p(place[0]), c_uint64(address), size, handle)
        return of_pinned(place, stream)

    def of_pinned(place: Place, stream: Any) -> tuple[int, ...]:
        driver.call("cuStreamSynchronize", c_void_p(driver.stream_handle(stream)))
        found: tuple[int, ...] = unpack(place[1])
        _this_thread.free.append(place)
        return found

    return of_pinned if is_pinned else of_device


Place = tuple[int, Any]  # pinned memory: its address, and a buffer over it
_this_thread = threading.local()


def take(stream: Any) -> Place:
    """Take pinned memory that is written to on a stream; its reader gives it back to the thread.

    A call that is interrupted gives nothing back, as what it has enqueued may write there still.
    """
    handle = driver.stream_handle(stream)
    if handle and driver.is_captured(handle):
        raise ValueError("size: a length cannot be read while the stream is being captured")
    try:
        return _this_thread.free.pop()  # type: ignore[no-any-return]
    except IndexError:
        pass
    except AttributeError:
        _this_thread.free = []
    found = c_void_p()
    with driver.relaxed_capture_mode():
        # Portable, for all contexts, and mapped: kernels write there.
        driver.call("cuMemHostAlloc", byref(found), c_size_t(PINNED_BYTES), c_uint(1 | 2))
    address = found.value or 0
    return address, (c_char * PINNED_BYTES).from_address(address)
