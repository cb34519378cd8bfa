"""Templates of iterators: their constant state is packed once, and a call adds addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._base.generated import define
from .._device.arrays import Lend
from .._ir import nodes
from .._ir.iterator import Iterator


class PackedIterator(Iterator):
    """An iterator whose state is packed already. The caller has its arrays."""

    def __init__(self, node: nodes.IteratorNode, state: bytes) -> None:
        self.node, self.leaves, self.state = node, (), state

    def pack(
        self, name: str, items: int, output: bool, lend: Lend | None = None, alike: Sequence[Any] | None = ()
    ) -> bytes:
        return self.state


_OF = """
def of({addresses}):
    return _packed(_node, _pack({states}))
"""


def template(iterator: Iterator) -> Callable[..., PackedIterator]:
    """Return a function that makes iterators like one, given the addresses of arrays in its order.

    That takes half a microsecond. Nothing is checked: the arrays must have the right dtypes and enough items
    for the calls, and live until these are done.

    Parameters
    ----------
    iterator : Iterator
        Of dtypes in place of arrays. No operator in it may have captured arrays.
    """
    names: dict[str, Any] = {
        "_packed": PackedIterator,
        "_node": iterator.node,
        "_pack": iterator.node.packer.pack,
    }
    addresses, states = [], []
    for i, leaf in enumerate(iterator.leaves):
        if leaf.is_array:
            assert leaf.slot.dtype is not None
            offset = leaf.start * leaf.slot.dtype.itemsize
            addresses.append(f"a{i}")
            states.append(f"a{i} + {offset}" if offset else f"a{i}")
        else:
            names[f"_s{i}"] = leaf.state("", 0, False)
            states.append(f"_s{i}")
    texts = {"addresses": ", ".join(addresses), "states": ", ".join(states)}
    found: Callable[..., PackedIterator] = define("iterator by template", "of", _OF, names, **texts)
    return found
