"""How what a launch is given is packed: once worked out for a tuple of types."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from ctypes import c_char, c_void_p

from .._base.data import dataclass
from .._device.kernels import LaunchConfig, NodeParams
from .._ir.types import Constant, Type, slots


@dataclass(frozen=True)
class Packing:
    """Parameters of GPU code: what varies is packed in each launch, the rest is written once.

    Attributes
    ----------
    format : str
        Of the module struct, for what varies.
    names : tuple of str
        Of what varies, those of its slots.
    places : tuple of int
        Of each parameter, where it begins; behind what varies, where it does not.
    constants : bytes
        What does not vary.
    """

    format: str
    names: tuple[str, ...]
    places: tuple[int, ...]
    constants: bytes

    @staticmethod
    def of(kinds: Sequence[Type]) -> Packing:
        """Return how values of these types are packed."""
        code, places, constants = "=", [], b""
        met: dict[str, int] = {}
        found = [slot for i, kind in enumerate(kinds) for slot in slots(kind, f"{i}_")]
        for slot in found:
            if not isinstance(slot, Constant) and slot.name not in met:
                met[slot.name] = struct.calcsize(code)
                code += slot.code
        behind = struct.calcsize(code)
        of_constants: dict[Constant, int] = {}
        for slot in found:
            if not isinstance(slot, Constant):
                places.append(met[slot.name])
                continue
            if slot not in of_constants:
                of_constants[slot] = behind + len(constants)
                constants += struct.pack(f"={slot.code}", slot.value)
            places.append(of_constants[slot])
        return Packing(code, tuple(met), tuple(places), constants)


class Memory:
    """What the driver reads of one launch: its parameters, pointers to them, and what it is launched with.

    Attributes
    ----------
    view : memoryview
        Where what varies is written.
    params, config
        For graphs, and for single launches.
    pointers
        To the parameters.
    """

    def __init__(self, packing: Packing, function: c_void_p) -> None:
        varying = struct.calcsize(packing.format)
        whole = bytes(varying) + packing.constants
        memory = (c_char * max(1, len(whole))).from_buffer_copy(whole or b"\0")
        self.view = memoryview(memory).cast("B")[:varying]
        start = ctypes.addressof(memory)
        self.pointers = (c_void_p * max(1, len(packing.places)))(*[start + each for each in packing.places])
        ones = dict.fromkeys(("grid", "grid_y", "grid_z", "block", "block_y", "block_z"), 1)
        self.params = NodeParams(function=function.value, parameters=ctypes.addressof(self.pointers), **ones)
        self.config = LaunchConfig(**ones)
