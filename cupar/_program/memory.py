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
    shape, strides, itemsize = memory.shape, memory.strides, memory.itemsize
    # First of one dimension: a product that no line uses would part guards which are one condition.
    whole = (len(shape) == 1 and strides[0] == itemsize) or is_contiguous(shape, strides, itemsize)
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


class LibraryArray:
    """An array of the call's library, and the expression for it."""

    __slots__ = ("real", "text")

    def __init__(self, real: Any, text: str) -> None:
        self.real, self.text = real, text

    def __getitem__(self, cut: slice) -> LibraryArray:
        """Return the first items."""
        if cut.start is not None or cut.step is not None:
            raise TypeError("of arrays of a call that is traced, only the first items are taken")
        return LibraryArray(self.real[: value_of(cut.stop)], f"{self.text}[:{text_of(cut.stop)}]")


def without_sizes(argument: Any) -> Any:
    """Return an argument of a call that is traced with the values of its sizes."""
    if isinstance(argument, Memory):
        shape, strides = [*map(value_of, argument.shape)], [*map(value_of, argument.strides)]
        address = value_of(argument.address)
        return Memory(address, argument.dtype, shape, strides, argument.writable, argument._owner)
    if isinstance(argument, Iterator):
        if not argument.leaves:
            return argument
        iterator = object.__new__(type(argument))
        leaves = [
            Leaf(without_sizes(each.given), value_of(each.start), each.slot) for each in argument.leaves
        ]
        iterator.node, iterator.leaves = argument.node, tuple(leaves)
        return iterator
    return value_of(argument)
