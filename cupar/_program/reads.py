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
_BYTES = 64  # of pinned memory, for each thread


def reader(library: Any, dtype: np.dtype[Any], count: int) -> Callable[[int, Any], tuple[int, ...]]:
    """Return a function that reads integers at an address, once the stream has written them."""
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
        handle = driver.stream_handle(stream)
        if handle and driver.is_captured(handle):
            raise ValueError("size: a length cannot be read while the stream is being captured")
        place, view = pinned()
        driver.call("cuMemcpyDtoHAsync_v2", place, c_uint64(address), size, c_void_p(handle))
        driver.call("cuStreamSynchronize", c_void_p(handle))
        found: tuple[int, ...] = unpack(view)
        return found

    return of_device


_this_thread = threading.local()


def pinned() -> tuple[c_void_p, Any]:
    """Return this thread's pinned memory: its address, and a buffer over it."""
    try:
        return _this_thread.memory  # type: ignore[no-any-return]
    except AttributeError:
        pass
    found = c_void_p()
    with driver.relaxed_capture_mode():
        # 1: portable, for all contexts.
        driver.call("cuMemHostAlloc", byref(found), c_size_t(_BYTES), c_uint(1))
    address = found.value or 0
    _this_thread.memory = found, (c_char * _BYTES).from_address(address)
    return _this_thread.memory  # type: ignore[no-any-return]
