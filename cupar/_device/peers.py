"""Whose memory a call is given, where there are several devices.

A kernel that reads memory which its device cannot reach ends its context, and all that this is used for. So
that is checked before. With one device nothing is.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_void_p

from .._base.errors import ArgumentValueError
from . import driver

_DEVICE_POINTER, _ORDINAL = 3, 9  # CU_POINTER_ATTRIBUTE_…


def check_memory(name: str, address: int) -> None:
    """Raise ValueError, beginning with `name`, if memory is on a device that the current one cannot reach.

    It can reach its own, the host's and managed memory, and that of a peer if peer access is enabled.
    """
    ask, value = driver.library().cuPointerGetAttribute, ctypes.c_uint64()
    ordinal = driver.this_thread.ordinal
    pointer, current = c_void_p(address), driver.current_device().ordinal
    if not address or ask(byref(ordinal), _ORDINAL, pointer) or (found := ordinal.value) == current:
        return  # not memory of CUDA's, or the device's own
    # Access flags do not tell: on an H100 they are set for memory that is out of reach, too.
    if ask(byref(value), _DEVICE_POINTER, pointer):
        raise ArgumentValueError(
            name,
            f"is on device {found}, the current device is {current}: make device {found} current, "
            f"copy the array to device {current}, or enable device {current}'s access to its peer {found}",
        )
