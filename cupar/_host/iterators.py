"""Iterators in numba: made in Python, they come in as their state, which algorithms take.

A type is an iterator's structure. Its value is words for each slot of that: of an array its address, the item
at which the iterator begins and the number of items; of a counter its start; of others their bytes.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

from .._base.generated import define
from .._device import arrays
from .._ir import nodes
from .._ir.iterator import Iterator
from .._ir.operator import CapturedState
from .._numba_cpu import (
    NativeValue,
    cgutils,
    intrinsic,
    lower_constant,
    models,
    overload,
    register_jitable,
    register_model,
    types,
    unbox,
)
from . import native, view_types
from .arguments import refusal
from .portable import Portable, digest, interned

_WORDS = {"items": 3, "index": 2}  # of slots; others have those of their bytes


class IteratorType(Portable):
    """Iterators of one structure."""

    node: nodes.IteratorNode
    writable: bool  # all arrays that an output is written to may be written

    def slots(self) -> Iterable[tuple[nodes.Slot, int, int]]:
        """Yield the slots of its structure, each with its first word and the number of its words."""
        at = 0
        for slot in self.node.slots():
            words = _WORDS.get(slot.kind) or slot.size // 8
            yield slot, at, words
            at += words

    @property
    def words(self) -> int:
        """The number of words of its value."""
        return sum(words for *_, words in self.slots())


def structure(node: nodes.IteratorNode) -> Any:
    """Return a description of an iterator that is equal for iterators that share a build."""
    operators = [each.operator for each in node.walk() if each.operator is not None]
    return node.part(), [(each.fingerprint, each.state_size) for each in operators]


def words_of(iterator: Iterator) -> Any:
    """Return the words of an iterator, now; raise TypeError or ValueError if an array cannot be used.

    If memory was only lent, the words are read once, and it is held as long as the iterator lives: cupar
    does not learn when streams have passed the work that compiled code enqueued.
    """
    kept = vars(iterator).get("_host_lent")
    if kept is not None:
        return kept[0]
    words: list[int] = []
    lent: list[Any] = []
    for leaf in iterator.leaves:
        if leaf.slot.dtype is not None:
            given = leaf.slot.dtype, 0, False, False, lent.append, None
            address = arrays.address("iterator", leaf.given, *given)
            words += address, leaf.start, arrays.read("iterator", leaf.given, on_cpu=False).size
        elif leaf.slot.kind == "index":
            words += leaf.start, leaf.given or 0
        else:
            state = leaf.state("iterator", 0, False).ljust(leaf.slot.size, b"\0")
            words += struct.unpack(f"={leaf.slot.size // 8}q", state)
    found = np.array(words, np.int64)
    if lent:
        vars(iterator)["_host_lent"] = found, lent
    return found


def type_of(iterator: Iterator) -> IteratorType:
    """Return the type of an iterator."""
    found: IteratorType | None = vars(iterator).get("_host_type")
    if found is None:
        if any(isinstance(leaf.given, CapturedState) for leaf in iterator.leaves):
            raise TypeError(
                "iterator: its operator has captured device arrays, which compiled host code cannot look up: "
                "call the algorithm from Python"
            )
        outputs = (leaf for leaf in iterator.leaves if leaf.is_array and not leaf.slot.read_only)
        writable = all(arrays.view("iterator", leaf.given).writable for leaf in outputs)
        name = f"cupar.{nodes.description(iterator.node)}({digest([structure(iterator.node), writable])})"
        found = interned(IteratorType, name, node=iterator.node, writable=writable)
        vars(iterator)["_host_type"] = found
    return found


def address_of_words(iterator: Iterator) -> int:
    """Return where the words of an iterator are, for as long as there is Python's lock."""
    words = vars(iterator)["_host_words"] = words_of(iterator)
    return int(words.ctypes.data)


@register_model(IteratorType)
class _Model(models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: IteratorType) -> None:
        super().__init__(manager, kind, [("words", types.UniTuple(types.int64, kind.words))])


@unbox(IteratorType)
def _unbox(kind: IteratorType, obj: Any, c: Any) -> NativeValue:
    address = native.unboxed_word(address_of_words, obj, c)
    model = c.context.get_value_type(kind)
    place = cgutils.alloca_once(c.builder, model, zfill=True)
    with c.builder.if_then(c.builder.not_(address.is_error)):
        words = c.builder.inttoptr(address.value, model.as_pointer())
        c.builder.store(c.builder.load(words), place)
    return NativeValue(c.builder.load(place), is_error=address.is_error)


@lower_constant(IteratorType)
def _constant(context: Any, builder: Any, kind: IteratorType, iterator: Iterator) -> Any:
    words = words_of(iterator)
    address = native.constant_address(context, builder, kind, words.ctypes.data, (iterator, words))
    return builder.load(builder.bitcast(address, context.get_value_type(kind).as_pointer()))


# --- What compiled code does with them ---------------------------------------------------------------------


words = native.field("words", lambda iterator: types.UniTuple(types.int64, iterator.words))


@register_jitable
def does_not_fit(start, size, step, items):  # type: ignore[no-untyped-def]
    """Tell whether an array of some size has not the items that are used of it; see `Items.pack`."""
    used = items if step != 0 else 0
    last = start + max(used - 1, 0) if step > 0 else start
    needed = last + 1 if used > 0 else max(start, 0)
    first = start if step > 0 else start - max(used - 1, 0)
    return needed > size or (first < 0 and (used > 0 or start < -1))


def checks_of(kind: IteratorType, name: str, items: str) -> list[str]:
    """Return the lines that put an iterator's words into ``_words_`` and its name, and check its arrays."""
    lines = [f"_words_{name} = _words({name})"]
    for slot, at, _ in kind.slots():
        if slot.kind == "items":
            start, size = (f"_words_{name}[{at + k}]" for k in (1, 2))
            wrong = f"_does_not_fit({start}, {size}, {slot.step}, {items})"
            lines.append(refusal(wrong, f"{name}: an array of the iterator has too few items"))
        if slot.kind == "index" and slot.step:
            start, end = (f"_words_{name}[{at + k}]" for k in (0, 1))
            last = f"{start} + ({items} - 1) * {slot.step}"
            wrong = f"{end} and {items} and (min({start}, {last}) < 0 or max({start}, {last}) >= {end})"
            lines.append(refusal(wrong, f"{name}: uses items that an iterator does not have"))
    return lines


def state_of(kind: IteratorType, name: str) -> str:
    """Return the expression of an iterator's state, once `checks_of` is done."""
    items: list[str] = []
    for slot, at, count in kind.slots():
        each = [f"_words_{name}[{at + k}]" for k in range(count)]
        if slot.dtype is not None:
            each = [f"{each[0]} + {each[1]} * {slot.dtype.itemsize}"]
        items += each[:1] if slot.kind == "index" else each
    return f"({', '.join(items)},)"


_ADDED = """
def added(iterator, offset):
    words = of(iterator)
    return {made}
"""


def _added(iterator: Any, offset: Any) -> Any:
    if not isinstance(iterator, IteratorType) or not isinstance(offset, types.Integer):
        return None
    parts: list[str] = []
    for slot, at, count in iterator.slots():
        parts += [f"words[{at + k}]" for k in range(count)]
        if slot.step:
            parts[at + (slot.kind == "items")] += f" + {slot.step} * offset"
    made = f"make(iterator, ({', '.join(parts)},))"
    names: dict[str, Any] = {"of": words, "make": _made}
    return define("moved iterator", "added", _ADDED, names, made=made)


@intrinsic
def _made(typing: Any, iterator: Any, words: Any) -> Any:
    """Return an iterator with other words."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        made = cgutils.create_struct_proxy(signature.return_type)(context, builder)
        made.words = context.cast(builder, values[1], signature.args[1], own)
        return made._getvalue()

    own = types.UniTuple(types.int64, iterator.words)
    return iterator(iterator, words), code


def _added_to(offset: Any, iterator: Any) -> Any:
    if not isinstance(iterator, IteratorType) or not isinstance(offset, types.Integer):
        return None
    return lambda offset, iterator: iterator + offset


overload(operator.add)(lambda iterator, offset: _added(iterator, offset))  # noqa: PLW0108
overload(operator.add)(lambda offset, iterator: _added_to(offset, iterator))  # noqa: PLW0108
view_types.refresh()
