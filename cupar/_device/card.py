"""Which kind of card a device is: what holds for one of them holds for all of its kind."""

from __future__ import annotations

import ctypes
import functools
from ctypes import c_int

from .._base.data import dataclass
from . import driver

_NAME_BYTES = 256
_SMS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT


@dataclass(frozen=True)
class Card:
    """A kind of card: parts of one (MIG) are of another kind, as they have another name and fewer units.

    Attributes
    ----------
    name : str
        The driver's, as in ``"NVIDIA H200"``.
    cc : int
        Compute capability, as in 90.
    sms : int
        Multiprocessors.
    """

    name: str
    cc: int
    sms: int

    def __str__(self) -> str:
        """Return it as in ``NVIDIA H200 (sm_90, 132 SMs)``."""
        return f"{self.name} (sm_{self.cc}, {self.sms} SMs)"

    def part(self) -> dict[str, str | int]:
        """Return its identity as part of a key."""
        return {"name": self.name, "cc": self.cc, "multiprocessors": self.sms}


@functools.cache
def card_of(device: driver.Device) -> Card:
    """Return which kind of card a device is."""
    name = ctypes.create_string_buffer(_NAME_BYTES)
    driver.call("cuDeviceGetName", name, c_int(_NAME_BYTES), device.ordinal)
    sms = driver.attribute(device.ordinal, _SMS)
    return Card(name.value.decode("utf-8", "replace"), device.cc, sms)
