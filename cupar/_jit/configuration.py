"""Launch configurations of users' kernels: grid, block, shared memory and attributes, checked once."""

from __future__ import annotations

import ctypes
import math
import operator
from ctypes import c_int
from typing import Any

import numpy as np

from .._base.errors import ArgumentTypeError, ArgumentValueError
from .._device.kernels import PROGRAMMATIC, LaunchAttribute

Extent = tuple[int, int, int]  # in x, y and z

_LARGEST_GRID = (2**31 - 1, 65535, 65535)
_LARGEST_BLOCK, _MOST_THREADS = (1024, 1024, 64), 1024
_MOST_SHARED = 2**31 - 1
COOPERATIVE = LaunchAttribute(id=2, value=1)  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE
_CLUSTER = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION


class Configuration:
    """Grid, block, shared memory and attributes of a launch.

    Parameters
    ----------
    grid, block : int or up to three ints
        Blocks, and threads in each.
    shared : int
        Bytes of dynamic shared memory.
    cluster : int or up to three ints, optional
        Blocks of a cluster, from compute capability 9.0 on.
    overlaps : bool
        Whether it may begin before the kernel before it on the stream ends.

    Raises
    ------
    TypeError, ValueError
        If one is invalid, zero or over every device's limit.
    """

    __slots__ = (
        *("attributes", "block", "cluster", "grid", "overlaps", "shared", "threads", "_arrays", "_numbers"),
    )

    def __init__(
        self, grid: Any, block: Any, shared: Any = 0, cluster: Any = None, overlaps: bool = False
    ) -> None:
        self.grid: Extent = _dimensions("grid", grid, _LARGEST_GRID)
        self.block: Extent = _dimensions("block", block, _LARGEST_BLOCK)
        self.threads: int = math.prod(self.block)
        if self.threads > _MOST_THREADS:
            raise ArgumentValueError(
                "block", f"has {self.threads} threads, {_shown(self.block)}; a block can have {_MOST_THREADS}"
            )
        self.shared: int = integer("shared", shared)
        if not 0 <= self.shared <= _MOST_SHARED:
            raise ArgumentValueError("shared", f"expected bytes of shared memory, got {self.shared}")
        self.cluster: Extent | None = None
        if cluster is not None:
            self.cluster = _dimensions("cluster", cluster, (16, 16, 16))
        self.overlaps: bool = bool(overlaps)
        self._numbers: dict[bool, tuple[int, ...]] = {}
        self._arrays: list[Any] = []  # of attributes, which the driver reads
        self.attributes: tuple[LaunchAttribute, ...] = ()
        if self.cluster is not None:
            for name, blocks, each in zip("xyz", self.grid, self.cluster, strict=True):
                if blocks % each:
                    raise ArgumentValueError(
                        "cluster", f"the grid's {blocks} blocks in {name} are no multiple of {each}"
                    )
            x, *others = self.cluster
            self.attributes += (LaunchAttribute(_CLUSTER, 0, x, (c_int * 15)(*others)),)
        if self.overlaps:
            self.attributes += (PROGRAMMATIC,)

    def numbers(self, is_cooperative: bool) -> tuple[int, ...]:
        """Return the plan's numbers, see `chain.KERNEL_NUMBERS`.

        It is always the same tuple: chains compare it by identity. The addresses in it are valid as long as
        this object lives.
        """
        found = self._numbers.get(is_cooperative)
        if found is None:
            given = (COOPERATIVE,) * is_cooperative + self.attributes
            array = (LaunchAttribute * len(given))(*given)
            self._arrays.append(array)
            found = (*self.grid, *self.block, self.shared, ctypes.addressof(array), len(given))
            self._numbers[is_cooperative] = found
        return found

    def check(self, name: str, most_threads: int, registers: int, static: int, most_shared: int) -> None:
        """Raise ValueError if it exceeds the limits of a kernel or of the card."""
        if self.threads > most_threads:
            raise ArgumentValueError(
                "block",
                f"has {self.threads} threads, and kernel {name} can have {most_threads} at most, as "
                f"each uses {registers} registers: give max_registers or launch_bounds to cupar.jit, or a "
                "smaller block",
            )
        if self.shared + static > most_shared:
            raise ArgumentValueError(
                "shared",
                f"{self.shared} bytes beside the {static} that kernel {name} has of its own; a block "
                f"can have {most_shared} on this card",
            )


def _dimensions(name: str, given: Any, largest: tuple[int, int, int]) -> tuple[int, int, int]:
    each = tuple(given) if isinstance(given, (tuple, list, np.ndarray)) else (given,)
    if not 1 <= len(each) <= 3:
        raise ArgumentValueError(name, f"expected one to three integers, got {given!r}")
    found = tuple(integer(name, value) for value in each) + (1,) * (3 - len(each))
    for axis, value, most in zip("xyz", found, largest, strict=True):
        if not 1 <= value <= most:
            raise ArgumentValueError(name, f"expected 1 to {most} in {axis}, got {value}")
    return found  # type: ignore[return-value]


def _shown(each: tuple[int, ...]) -> str:
    return " x ".join(map(str, each))


def integer(name: str, value: Any) -> int:
    """Return an integer as an int; otherwise raise TypeError."""
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentTypeError(name, f"expected an integer, got {value!r}") from None
