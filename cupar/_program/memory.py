"""Memory of a call that is traced: views whose address and extents are sizes, and arrays of a library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._base.sizes import is_size, value_of
from .._device import arrays
from .._ir.iterator import Iterator, Leaf
from ..host import View


class Memory(View):
    """A view whose address, extents and strides may be sizes, of a GPU's memory or the host's."""

    __slots__ = ()


def _read(memory: View) -> arrays.ArrayView:
    if len(memory.shape) == 1 and not is_size(memory.strides[0]) and memory.strides[0] == memory.itemsize:
        whole = True
    else:
        whole = _is_in_c_order(memory)
    return arrays.ArrayView(memory.address, memory.size, memory.dtype, whole, memory.writable, whole, None)


def _is_in_c_order(memory: View) -> bool:
    expected: Any = memory.itemsize
    for extent, stride in zip(reversed(memory.shape), reversed(memory.strides), strict=True):
        if stride != expected and extent != 1:
            return False
        expected = expected * extent
    return True


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
        stop = cut.stop
        return Own(self.real[: value_of(stop)], f"{self.text}[:{stop.text if is_size(stop) else int(stop)}]")


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
