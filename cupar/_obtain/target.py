"""The target of a build: a compute capability, or the CPU."""

from __future__ import annotations

import operator
import re
from typing import Any

import numpy as np

from .._base.device import CPU, is_cpu
from .._base.errors import ArgumentTypeError, ArgumentValueError
from .._compile import nvrtc
from .._device import driver


def parse_cc(cc: Any) -> int:
    """Return a compute capability as an int such as 90.

    Parameters
    ----------
    cc : int, pair of int or str
        As in 90, (9, 0), "9.0", "90" or "sm_90".

    Raises
    ------
    TypeError, ValueError
        If it is not one of these, or the compilers do not know it.
    """
    found = _parsed(cc)
    nvrtc.check_cc(found)
    return found


def _parsed(cc: Any) -> int:
    wrong = "cc", f"expected a compute capability as in 90, (9, 0), '9.0' or 'sm_90', got {cc!r}"
    try:
        if isinstance(cc, str):
            match = re.fullmatch(r"(?:sm_)?(\d{1,2})\.?(\d)", cc, re.ASCII)
            if match is None:
                raise ArgumentValueError(*wrong)
            major, minor = map(int, match.groups())
        elif isinstance(cc, (bool, np.bool_)) or (
            isinstance(cc, (tuple, list)) and any(isinstance(each, (bool, np.bool_)) for each in cc)
        ):
            raise ArgumentTypeError(*wrong)
        elif isinstance(cc, (tuple, list)):
            major, minor = map(operator.index, cc)
        else:
            major, minor = divmod(operator.index(cc), 10)
    except TypeError:
        raise ArgumentTypeError(*wrong) from None
    except ValueError:
        raise ArgumentValueError(*wrong) from None
    if not (0 < major < 40 and 0 <= minor < 10):
        raise ArgumentValueError(*wrong)
    return 10 * major + minor


def is_cpu_name(cc: Any) -> bool:
    """Whether a factory's `cc` says that it is for the CPU."""
    return isinstance(cc, str) and cc == "cpu"


def target(cc: Any) -> tuple[int, driver.Device | None]:
    """Return the compute capability to build for, and the device to load the code on.

    For the CPU these are 0 and None. With a `cc`, the code is not loaded: the device is None.

    Raises
    ------
    TypeError, ValueError
        If `cc` is not a compute capability, or one that the compilers do not know.
    NoDeviceError
        If `cc` is None and there is no GPU.
    """
    if cc is None and is_cpu():
        return CPU, None
    if cc is not None:
        return (CPU if is_cpu_name(cc) else parse_cc(cc)), None
    device = driver.current_device()
    try:
        nvrtc.check_cc(device.cc)
    except ArgumentValueError as error:
        raise ValueError(f"the current device {device.ordinal}: {error.said}") from None
    return device.cc, device
