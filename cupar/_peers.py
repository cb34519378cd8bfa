"""Whose memory and streams a call is given, where there are several devices.

A kernel that reads memory which its device cannot reach ends its context, and all that this is used for. So
that is found out before. With one device nobody asks.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_void_p

from . import _driver


def check_stream(stream: int) -> None:
    """Raise ValueError if a stream is of another device than the current one."""
    current, found = _driver.current_device().ordinal, _stream_device(stream)
    if found is not None and found != current:
        raise ValueError(
            f"stream: is of device {found}, the current device is {current}: make device {found} current"
        )


def _stream_device(stream: int) -> int | None:
    """Return the ordinal of a stream's device, None if the driver does not tell."""
    driver, ordinal, context = _driver.library(), c_int(), c_void_p()
    if hasattr(driver, "cuStreamGetDevice"):  # from CUDA 12.8 on
        return None if driver.cuStreamGetDevice(c_void_p(stream), byref(ordinal)) else ordinal.value
    if driver.cuStreamGetCtx(c_void_p(stream), byref(context)) or driver.cuCtxPushCurrent_v2(context):
        return None
    status = driver.cuCtxGetDevice(byref(ordinal))
    driver.cuCtxPopCurrent_v2(byref(context))
    return None if status else ordinal.value


# CU_POINTER_ATTRIBUTE_…
_MEMORY_TYPE, _IS_MANAGED, _DEVICE_POINTER, _ORDINAL, _ACCESS_FLAGS = 2, 8, 3, 9, 16
_HOST = 1  # CU_MEMORYTYPE_HOST


def check_memory(name: str, address: int) -> None:
    """Raise ValueError if memory is on a device that the current one cannot reach.

    It can reach its own, the host's and managed memory, and that of a peer if somebody enabled that.

    Parameters
    ----------
    name : str
        The parameter, for messages.
    address : int
        In the memory.
    """
    current, found = _driver.current_device().ordinal, _memory_device(address)
    if found is not None and found != current and not _is_reachable(address):
        raise ValueError(
            f"{name}: is on device {found}, the current device is {current}: make device {found} current, "
            f"copy the array to device {current}, or enable device {current}'s access to its peer {found}"
        )


def _memory_device(address: int) -> int | None:
    """Return the ordinal of a memory's device, None if it is none of CUDA's."""
    ordinal = _driver.this_thread.ordinal
    status = _driver.library().cuPointerGetAttribute(byref(ordinal), _ORDINAL, c_void_p(address))
    return None if status or not address else ordinal.value


def _is_reachable(address: int) -> bool:
    """Whether kernels in the current context can read or write memory of another device."""
    ask, where, value = _driver.library().cuPointerGetAttribute, c_void_p(address), ctypes.c_uint64()
    if not ask(byref(value), _MEMORY_TYPE, where) and value.value == _HOST:
        return True
    value.value = 0
    if not ask(byref(value), _IS_MANAGED, where) and value.value:
        return True
    value.value = 0
    if not ask(byref(value), _ACCESS_FLAGS, where):
        return value.value != 0
    return not ask(byref(value), _DEVICE_POINTER, where)  # of old drivers
