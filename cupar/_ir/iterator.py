"""An iterator: its structure, and the state that a call passes to the kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import structs
from .._base import sizes
from .._base.causes import NumbaType
from .._base.device import in_cpu_call
from .._base.errors import ArgumentTypeError, ArgumentValueError
from .._device import arrays, driver, streams
from .._device.arrays import Lend
from . import nodes
from .nodes import Slot
from .operator import CapturedState

ENDLESS = 2**63 - 1  # items of iterators that no array bounds


_ANY = Slot("bytes")


class Leaf:
    """The value of an iterator for one slot of its structure; it does not change.

    Parameters
    ----------
    given : array, int, bytes or callable
        An array; the end of an index, if it has one; or bytes, or a function that each call asks for bytes,
        as an operator's captured arrays.
    start : int
        The item at which it begins.
    slot : Slot
        Set by the iterator that it is in.
    """

    __slots__ = ("given", "is_array", "slot", "start")

    def __init__(self, given: Any = b"", start: int = 0, slot: Slot = _ANY) -> None:
        self.given, self.start, self.slot = given, start, slot
        self.is_array = slot.kind == "items"

    @property
    def reads_in_order(self) -> bool:
        """Whether it is an array whose items are taken from the first one on."""
        return self.is_array and self.slot.step == 1 and self.start == 0

    def state(
        self, name: str, items: int, output: bool, lend: Lend | None = None, alike: Sequence[Any] | None = ()
    ) -> Any:
        """Return the slot's value for a call that uses some number of items; `name` is the parameter's.

        `lend` and `alike` are those of `arrays.address`.
        """
        if self.is_array:
            array, dtype = self.given, self.slot.dtype
            if (
                type(array) in arrays.CUPY  # inlined, as in generated code
                and self.start == 0
                and self.slot.step == 1
                and array.dtype is dtype
                and array._c_contiguous
                and array.size >= items
                and not (address := array.data.ptr) & (dtype.alignment - 1)
                and not driver.has_several_devices
                and not in_cpu_call()
            ):
                return address
            return self._address(name, items, output, lend, alike if self.reads_in_order else None)
        if self.slot.kind == "index":
            if self.given and self.slot.step and items:
                ends = self.start, self.start + (items - 1) * self.slot.step
                if min(ends) < 0 or max(ends) >= self.given:
                    used = f"{min(ends)} to {max(ends)}"
                    raise ArgumentValueError(
                        name, f"uses the items from {used} of an iterator that has {self.given}"
                    )
            return self.start
        found = self.given
        if isinstance(found, bytes):
            return found
        return found(lend) if isinstance(found, CapturedState) else found()

    def _address(
        self, name: str, items: int, output: bool, lend: Lend | None, alike: Sequence[Any] | None
    ) -> int:
        step, dtype = self.slot.step, self.slot.dtype
        assert dtype is not None
        used = items if step else 0  # random access: the items are unknown
        last = self.start + max(used - 1, 0) if step > 0 else self.start
        needed = last + 1 if used else max(self.start, 0)
        is_written = output and not self.slot.read_only
        address = arrays.address(name, self.given, dtype, needed, is_written, lend=lend, alike=alike)
        first = self.start if step > 0 else self.start - max(used - 1, 0)
        if first < 0 and (used or self.start < -1):
            if self.start < 0:
                raise ArgumentValueError(name, f"it begins {-self.start} items before its array")
            raise ArgumentValueError(
                name, f"needs at least {used} items, got {self.start + 1} going backwards"
            )
        return (address + self.start * dtype.itemsize) % 2**64

    def capacity(self, name: str) -> int:
        """Return the number of items of the whole iterator that it provides."""
        has_end = self.is_array or (self.slot.kind == "index" and self.given)
        if not has_end or not self.slot.step:
            return ENDLESS
        if self.slot.step < 0:
            return max(0, self.start + 1)
        size: int = arrays.view(name, self.given).size if self.is_array else self.given
        return max(0, size - self.start)

    def first(self, dtype: np.dtype[Any]) -> Any:
        """Return the value that its bytes begin with, as a Python object."""
        return np.frombuffer(self.given, dtype, 1)[0].item()


class Packed:
    """Bytes in the state of an iterator that sizes are packed in.

    Attributes
    ----------
    pack : callable
        Returns the bytes of ints.
    values : tuple of int or Size
    """

    __slots__ = ("pack", "values")

    def __init__(self, pack: Callable[..., bytes], values: tuple[Any, ...]) -> None:
        self.pack, self.values = pack, values

    def __call__(self) -> bytes:
        """Return the bytes for the call that is traced."""
        return self.pack(*map(sizes.value_of, self.values))


def packed(pack: Callable[..., bytes], *values: Any) -> bytes | Packed:
    """Return the bytes of ints, which a call that is traced packs anew if one is a size."""
    found = Packed(pack, values)
    return found if True in map(sizes.is_size, values) else found()


class Iterator:
    """Base class of objects that may stand for an array, except dtypes.

    ``iterator + n`` begins `n` items later.

    Attributes
    ----------
    dtype : numpy.dtype
        Of the items that it yields or takes.
    """

    def __init__(self, node: nodes.IteratorNode, leaves: Sequence[Leaf]) -> None:
        self.node = node
        slots = zip(leaves, node.layout, strict=True)
        self.leaves: tuple[Leaf, ...] = tuple(
            [leaf if leaf.slot is slot else Leaf(leaf.given, leaf.start, slot) for leaf, slot in slots]
        )

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the items."""
        return self.node.value

    def __add__(self, offset: Any) -> Any:
        try:
            items = sizes.index(offset)
        except TypeError:
            return NotImplemented
        other = object.__new__(type(self))
        moved = [Leaf(leaf.given, leaf.start + items * leaf.slot.step, leaf.slot) for leaf in self.leaves]
        other.node, other.leaves = self.node, tuple(moved)
        return other

    __radd__ = __add__

    def __repr__(self) -> str:
        return f"<cupar {type(self).__name__}{self._given()} of {structs.text(self.dtype)}>"

    def _given(self) -> str:
        """Return its constructor's number as text, as in ``(5)``; empty without one."""
        return ""

    def captured(self) -> list[Any]:
        """Return the device arrays captured by its operators."""
        states = (leaf.given for leaf in self.leaves)
        return [array for each in states if isinstance(each, CapturedState) for array in each.arrays()]

    def gone_through(self) -> list[Any] | None:
        """Return the arrays that it reads in order from their first items; None if the order is another."""
        if any(leaf.slot.step and not leaf.is_array for leaf in self.leaves):
            return None
        items = [leaf for leaf in self.leaves if leaf.is_array]
        return [leaf.given for leaf in items] if all(leaf.reads_in_order for leaf in items) else None

    def pack(
        self, name: str, items: int, output: bool, lend: Lend | None = None, alike: Sequence[Any] | None = ()
    ) -> bytes:
        """Return its state for a call that reads or writes some number of items; `name` is the parameter's.

        `lend` and `alike` are those of `arrays.address`.

        Raises
        ------
        TypeError, ValueError
            If one of its arrays cannot be used, or is too small.
        """
        states = [leaf.state(name, items, output, lend, alike) for leaf in self.leaves]
        return self.node.packer.pack(*states)

    def capacity(self, name: str) -> int:
        """Return the number of items that its arrays provide; arrays with random access are not counted."""
        return min((leaf.capacity(name) for leaf in self.leaves), default=ENDLESS)

    @NumbaType
    def _numba_type_(self) -> Any:
        """Return its numba type in compiled host code."""
        from .. import _numba_type

        return _numba_type(self)


streams.register(Iterator, lambda iterator: [leaf.given for leaf in iterator.leaves])


class ArrayIterator(Iterator):
    """An array, for iterators over it."""

    def __init__(self, name: str, array: Any) -> None:
        self.node = node = nodes.pointer(arrays.dtype_of(name, array))
        self.leaves = (Leaf(array, 0, node.layout[0]),)


def over(name: str, array: Any) -> Iterator:
    """Return an iterator unchanged, otherwise one over an array or over a dtype that stands for one."""
    return array if isinstance(array, Iterator) else ArrayIterator(name, array)


def capacity_of(name: str, array: Any) -> int:
    """Return the number of items of an array or iterator."""
    if isinstance(array, Iterator):
        return array.capacity(name)
    return int(array.size) if type(array) is np.ndarray else arrays.view(name, array).size


def state_of(
    argument: nodes.Argument,
    array: Any,
    items: int,
    lend: Lend | None = None,
    alike: Sequence[Any] | None = (),
) -> bytes:
    """Return the state for a call of the array or iterator that is given for an argument.

    `lend` and `alike` are those of `arrays.address`.

    Raises
    ------
    TypeError, ValueError
        If it has another structure, or one of its arrays cannot be used or is too small.
    """
    given = over(argument.name, array)
    if given.node != argument.given and not same_structure(given.node, argument.given):
        built, got = nodes.description(argument.given), nodes.description(given.node)
        raise ArgumentTypeError(argument.name, f"this algorithm was built for {built}, got {got}")
    return given.pack(argument.name, items, argument.output, lend, alike)


def same_structure(one: nodes.IteratorNode, other: nodes.IteratorNode) -> bool:
    """Whether two nodes have the same code, ignoring the names of struct fields."""
    if type(one) is type(other) is nodes.Discard:
        return True
    operators = [
        [node.operator for node in root.walk() if node.operator is not None] for root in (one, other)
    ]
    return one.part() == other.part() and operators[0] == operators[1]
