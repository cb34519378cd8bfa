"""Memory of a call that is traced: views whose address and extents are sizes, and arrays of a library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._base.sizes import text_of, value_of
from .._device import arrays
from .._device.readers import is_contiguous
from .._ir.iterator import Iterator, Leaf
from ..host import View


class Memory(View):
    """A view whose address, extents and strides may be sizes, of a GPU's memory or the host's."""

    __slots__ = ()


def _read(memory: View) -> arrays.ArrayView:
    whole = is_contiguous(memory.shape, memory.strides, memory.itemsize)
    return arrays.ArrayView(memory.address, memory.size, memory.dtype, whole, memory.writable, whole, None)


arrays.OWN.add(Memory)
arrays.register(Memory, _read, anywhere=True)


def in_c_order(address: Any, dtype: np.dtype[Any], shape: Sequence[Any], owner: Any) -> Memory:
    """Return memory whose items lie one after another."""
    strides, stride = [], dtype.itemsize
    for extent in reversed(shape):
        strides.append(stride)
        stride = extent * stride
    return Memory(address, dtype, shape, strides[::-1], True, owner)


def base_of(memory: Any) -> Any:
    """Return the array whose memory a view is of."""
    while isinstance(memory, View):
        memory = memory._owner
    return memory


class Own:
    """An array of the library's, and the expression for it."""

    __slots__ = ("real", "text")

    def __init__(self, real: Any, text: str) -> None:
        self.real, self.text = real, text

    def __getitem__(self, cut: slice) -> Own:
        """Return the first items."""
        if cut.start is not None or cut.step is not None:
            raise TypeError("of arrays of a call that is traced, only the first items are taken")
        return Own(self.real[: value_of(cut.stop)], f"{self.text}[:{text_of(cut.stop)}]")


class Extent:
    """The number of items of an array, for functions that make problems of arrays."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size


arrays.OWN.add(Extent)


def real(given: Any) -> Any:
    """Return an argument of a call that is traced as the call takes it: without sizes."""
    if isinstance(given, Memory):
        shape, strides = map(value_of, given.shape), map(value_of, given.strides)
        return Memory(
            value_of(given.address), given.dtype, [*shape], [*strides], given.writable, given._owner
        )
    if isinstance(given, Iterator):
        if not given.leaves:
            return given
        found = object.__new__(type(given))
        leaves = [Leaf(real(each.given), value_of(each.start), each.slot) for each in given.leaves]
        found.node, found.leaves = given.node, tuple(leaves)
        return found
    return value_of(given)
