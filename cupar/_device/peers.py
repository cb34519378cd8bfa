"""Whose memory and streams a call is given, where there are several devices.

A kernel that reads memory which its device cannot reach ends its context, and all that this is used for. So
that is found out before. With one device nobody asks.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_void_p

from . import driver


def check_stream(stream: int) -> None:
    """Raise ValueError if a stream is of another device than the current one."""
    current, found = driver.current_device().ordinal, _stream_device(stream)
    if found is not None and found != current:
        raise ValueError(
            f"stream: is of device {found}, the current device is {current}: make device {found} current"
        )


def _stream_device(stream: int) -> int | None:
    """Return the ordinal of a stream's device, None if the driver does not tell.

    It may be captured, and to ask for its device by cuStreamGetDevice ends that (seen with driver 580).
    """
    cuda, ordinal, context = driver.library(), c_int(), c_void_p()
    if cuda.cuStreamGetCtx(c_void_p(stream), byref(context)) or cuda.cuCtxPushCurrent_v2(context):
        return None
    status = cuda.cuCtxGetDevice(byref(ordinal))
    cuda.cuCtxPopCurrent_v2(byref(context))
    return None if status else ordinal.value


_DEVICE_POINTER, _ORDINAL = 3, 9  # CU_POINTER_ATTRIBUTE_…


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
    current, found = driver.current_device().ordinal, _memory_device(address)
    if found is not None and found != current and not _is_reachable(address):
        raise ValueError(
            f"{name}: is on device {found}, the current device is {current}: make device {found} current, "
            f"copy the array to device {current}, or enable device {current}'s access to its peer {found}"
        )


def _memory_device(address: int) -> int | None:
    """Return the ordinal of a memory's device, None if it is none of CUDA's."""
    ordinal = driver.this_thread.ordinal
    status = driver.library().cuPointerGetAttribute(byref(ordinal), _ORDINAL, c_void_p(address))
    return None if status or not address else ordinal.value


def _is_reachable(address: int) -> bool:
    """Whether kernels in the current context can read or write memory of another device.

    Access flags do not tell: on an H100 they are set for memory that is out of reach, too.
    """
    value = ctypes.c_uint64()
    return not driver.library().cuPointerGetAttribute(byref(value), _DEVICE_POINTER, c_void_p(address))
