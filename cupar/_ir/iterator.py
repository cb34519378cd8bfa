"""An iterator: its structure, and the state that a call hands to the kernel."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import structs
from .._base.causes import NumbaType
from .._base.data import dataclass, field, replace
from .._device import arrays
from .._device.arrays import Lend
from . import nodes
from .operator import CapturedState

ENDLESS = 2**63 - 1  # items of what no array bounds


@dataclass(frozen=True)
class Leaf:
    """What a node has of state, beside its children's."""

    start: int = 0  # the item at which it begins
    step: int = 0  # for each item of the whole iterator: 1, -1 (backwards), 0 (not at all, or here and there)

    def advanced(self, offset: int) -> Leaf:
        """Return it for an iterator that begins later."""
        return replace(self, start=self.start + offset * self.step)

    def times(self, factor: int) -> Leaf:
        """Return it for an iterator that is gone through at another pace."""
        return replace(self, step=self.step * factor)

    def pack(
        self, name: str, items: int, output: bool, lend: Lend | None = None, alike: Sequence[Any] | None = ()
    ) -> bytes:
        """Return the state for a call that uses some number of items; `name` is the parameter's.

        `lend` and `alike` are those of `arrays.address`.
        """
        raise NotImplementedError

    def room(self, name: str) -> int:
        """Return how many items of the whole iterator it has."""
        return ENDLESS


@dataclass(frozen=True)
class Items(Leaf):
    """An array; `read_only` if what is written goes elsewhere, as it does with indices."""

    array: Any = None
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.uint8))
    read_only: bool = False

    @property
    def is_gone_through(self) -> bool:
        """Whether its items are taken from the first one on."""
        return self.step == 1 and self.start == 0

    def pack(
        self, name: str, items: int, output: bool, lend: Lend | None = None, alike: Sequence[Any] | None = ()
    ) -> bytes:
        used = items if self.step else 0  # of items here and there it is not known which
        last = self.start + max(used - 1, 0) if self.step > 0 else self.start
        needed = last + 1 if used else max(self.start, 0)
        address = arrays.address(
            name,
            self.array,
            self.dtype,
            needed,
            output and not self.read_only,
            lend=lend,
            alike=alike if self.is_gone_through else None,
        )
        first = self.start if self.step > 0 else self.start - max(used - 1, 0)
        if first < 0 and (used or self.start < -1):
            if self.start < 0:
                raise ValueError(f"{name}: it begins {-self.start} items before its array")
            raise ValueError(f"{name}: needs at least {used} items, got {self.start + 1} going backwards")
        return struct.pack("=Q", (address + self.start * self.dtype.itemsize) % 2**64)

    def room(self, name: str) -> int:
        if not self.step:
            return ENDLESS
        return max(0, arrays.view(name, self.array).size - self.start if self.step > 0 else self.start + 1)


@dataclass(frozen=True)
class Index(Leaf):
    """A counter, from 0 on to `end` if that is not `ENDLESS`."""

    end: int = ENDLESS

    def pack(
        self, name: str, items: int, output: bool, lend: Lend | None = None, alike: Sequence[Any] | None = ()
    ) -> bytes:
        if self.end != ENDLESS and self.step and items:
            ends = self.start, self.start + (items - 1) * self.step
            if min(ends) < 0 or max(ends) >= self.end:
                used = f"{min(ends)} to {max(ends)}"
                raise ValueError(f"{name}: uses the items from {used} of an iterator that has {self.end}")
        return struct.pack("=q", self.start)

    def room(self, name: str) -> int:
        if self.end == ENDLESS or not self.step:
            return ENDLESS
        return max(0, self.end - self.start if self.step > 0 else self.start + 1)


@dataclass(frozen=True)
class Value(Leaf):
    """What is the same for all items: bytes, or what an operator has captured, asked for in each call."""

    current: bytes | Callable[[], bytes] = b""

    def pack(
        self, name: str, items: int, output: bool, lend: Lend | None = None, alike: Sequence[Any] | None = ()
    ) -> bytes:
        if isinstance(self.current, bytes):
            return self.current
        return _padded(self.current(lend) if isinstance(self.current, CapturedState) else self.current())

    def first(self, dtype: np.dtype[Any]) -> Any:
        """Return the value that its bytes begin with, as Python has it."""
        assert isinstance(self.current, bytes)
        return np.frombuffer(self.current, dtype, 1)[0].item()


def constant(state: bytes) -> Value:
    """Return a state that is the same in every call."""
    return Value(current=_padded(state))


def _padded(state: bytes) -> bytes:
    return state.ljust(nodes.rounded_up(len(state)), b"\0")


class Iterator:
    """What may be given in place of an array; one of the classes that derive from it.

    ``iterator + n`` begins `n` items later.

    Attributes
    ----------
    dtype : numpy.dtype
        Of the items that it yields or takes.
    """

    def __init__(self, node: nodes.IteratorNode, leaves: Sequence[Leaf]) -> None:
        self.node = node
        self.leaves: tuple[Leaf, ...] = tuple(leaves)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the items."""
        return self.node.value

    def __add__(self, offset: Any) -> Any:
        try:
            items = operator.index(offset)
        except TypeError:
            return NotImplemented
        other = object.__new__(type(self))
        Iterator.__init__(other, self.node, [leaf.advanced(items) for leaf in self.leaves])
        return other

    __radd__ = __add__

    def __repr__(self) -> str:
        return f"<cupar {type(self).__name__}{self._given()} of {structs.text(self.dtype)}>"

    def _given(self) -> str:
        """Return the number that it was made of as text, as in ``(5)``; empty if it was made of others."""
        return ""

    def captured(self) -> list[Any]:
        """Return the device arrays that operators in it have captured."""
        states = (leaf.current for leaf in self.leaves if isinstance(leaf, Value))
        return [array for each in states if isinstance(each, CapturedState) for array in each.arrays()]

    def times(self, factor: int) -> list[Leaf]:
        """Return its state if it is gone through at another pace."""
        return [leaf.times(factor) for leaf in self.leaves]

    def gone_through(self) -> list[Any] | None:
        """Return the arrays that it goes through from their first items on; None if places matter."""
        if any(leaf.step and not isinstance(leaf, Items) for leaf in self.leaves):
            return None
        items = [leaf for leaf in self.leaves if isinstance(leaf, Items)]
        return [leaf.array for leaf in items] if all(leaf.is_gone_through for leaf in items) else None

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
        return b"".join([leaf.pack(name, items, output, lend, alike) for leaf in self.leaves])

    def room(self, name: str) -> int:
        """Return how many items its arrays have for it; of items here and there it is not known which."""
        return min((leaf.room(name) for leaf in self.leaves), default=ENDLESS)

    @NumbaType
    def _numba_type_(self) -> Any:
        """Return what numba sees it as, in compiled host code."""
        from .. import _numba_type

        return _numba_type(self)


class ArrayIterator(Iterator):
    """An array, for iterators over it."""

    def __init__(self, name: str, array: Any) -> None:
        dtype = arrays.dtype_of(name, array)
        super().__init__(nodes.Pointer(dtype), [Items(step=1, array=array, dtype=dtype)])


def over(name: str, array: Any) -> Iterator:
    """Return an iterator as it is, or one over an array or over what stands for one."""
    return array if isinstance(array, Iterator) else ArrayIterator(name, array)


def room_of(name: str, array: Any) -> int:
    """Return how many items an array or iterator has."""
    if isinstance(array, Iterator):
        return array.room(name)
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
        If it is of another structure, or one of its arrays cannot be used or is too small.
    """
    given = over(argument.name, array)
    if given.node != argument.given and not same_structure(given.node, argument.given):
        built, got = nodes.description(argument.given), nodes.description(given.node)
        raise TypeError(f"{argument.name}: this algorithm was built for {built}, got {got}")
    return given.pack(argument.name, items, argument.output, lend, alike)


def same_structure(one: nodes.IteratorNode, other: nodes.IteratorNode) -> bool:
    """Whether two nodes have the same code, whatever the fields of their structs are called."""
    if type(one) is type(other) is nodes.Discard:
        return True
    operators = [
        [node.operator for node in root.walk() if node.operator is not None] for root in (one, other)
    ]
    return one.part() == other.part() and operators[0] == operators[1]
