"""Iterators on the CPU: each node of one as njit functions that open its state, read and write.

`open(state)` takes a pointer to the node's state, in memory as kernels get it, and returns what the other two
are given: so that no loop reads it again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .. import structs
from .._ir import nodes
from .operators import function_of
from .values import address_of, inlined, load_int, moved, of_dtype


class Functions(NamedTuple):
    """`open(state)`, `read(opened, index)` and `write(opened, index, value)`."""

    open: Any
    read: Any
    write: Any


@inlined
def _identity(state: Any) -> Any:
    return state


@inlined
def _no_read(opened: Any, index: Any) -> Any:
    return 0


@inlined
def _no_write(opened: Any, index: Any, value: Any) -> None:
    pass


def functions_of(node: nodes.IteratorNode) -> Functions:
    """Return the functions of a node."""
    found: Functions = _MAKERS[type(node)](node)
    return found


def _pointer(node: Any) -> Functions:
    size, (_, load, store, cast) = node.value.itemsize, of_dtype(node.value)
    return Functions(
        inlined(lambda state: address_of(state, 0)),
        inlined(lambda items, index: load(items, index * size)),
        inlined(lambda items, index, value: store(items, index * size, cast(value))),
    )


def _counting(node: Any) -> Functions:
    _, load, _, cast = of_dtype(node.value)
    return Functions(
        inlined(lambda state: (load(state, 0), load_int(state, 8))),
        inlined(lambda opened, index: cast(opened[0] + cast(opened[1] + index))),
        _no_write,
    )


def _constant(node: Any) -> Functions:
    load = of_dtype(node.value).load
    return Functions(inlined(lambda state: load(state, 0)), inlined(lambda value, index: value), _no_write)


def _discard(node: Any) -> Functions:
    return Functions(_identity, _no_read, _no_write)


def _shuffle(node: Any) -> Functions:
    from .shuffle import keys_of, permuted  # which takes its time to compile

    return Functions(
        inlined(
            lambda state: (load_int(state, 0), load_int(state, 8), keys_of(np.uint64(load_int(state, 16))))
        ),
        inlined(lambda opened, index: permuted(opened[1], opened[2], opened[0] + index)),
        _no_write,
    )


def _zip(node: nodes.Zip) -> Functions:
    names: dict[str, Any] = {"make": structs.plain_class(node.value), "moved": moved}
    opens, reads, writes, at = [], [], [], 0
    for i, child in enumerate(node.parts):
        names[f"open{i}"], names[f"read{i}"], names[f"write{i}"] = functions_of(child)
        opens.append(f"open{i}(moved(state, {at})), ")
        reads.append(f"read{i}(opened[{i}], index), ")
        writes.append(f"    write{i}(opened[{i}], index, value[{i}])\n")
        at += child.size
    source = (
        f"def open(state):\n    return ({''.join(opens)})\n"
        f"def read(opened, index):\n    return make({''.join(reads)})\n"
        f"def write(opened, index, value):\n{''.join(writes)}"
    )
    exec(source, names)
    of_dtype(node.value)
    return Functions(*(inlined(names[each]) for each in ("open", "read", "write")))


def _permutation(node: nodes.Permutation) -> Functions:
    open_values, read, write = functions_of(node.values)
    open_indices, place, _ = functions_of(node.indices)
    size = node.values.size
    return Functions(
        inlined(lambda state: (open_values(state), open_indices(moved(state, size)))),
        inlined(lambda opened, index: read(opened[0], np.int64(place(opened[1], index)))),
        inlined(lambda opened, index, value: write(opened[0], np.int64(place(opened[1], index)), value)),
    )


def _reverse(node: nodes.Reverse) -> Functions:
    opened, read, write = functions_of(node.child)
    return Functions(
        opened,
        inlined(lambda state, index: read(state, -index)),
        inlined(lambda state, index, value: write(state, -index, value)),
    )


def _convert(node: nodes.Convert) -> Functions:
    opened, read, write = functions_of(node.child)
    outer, inner = of_dtype(node.value).cast, of_dtype(node.child.value).cast
    return Functions(
        opened,
        inlined(lambda state, index: outer(read(state, index))),
        inlined(lambda state, index, value: write(state, index, inner(value))),
    )


def _transform(node: nodes.Transform) -> Functions:
    opened, read, write = functions_of(node.child)
    call, size, cast = function_of(node.function), node.child.size, of_dtype(node.value).cast
    address = inlined(lambda state: (opened(state), moved(state, size)))
    return Functions(
        address,
        inlined(lambda state, index: call(state[1], read(state[0], index))),
        inlined(lambda state, index, value: write(state[0], index, call(state[1], cast(value)))),
    )


_MAKERS: dict[type, Any] = {
    nodes.Pointer: _pointer,
    nodes.CacheModified: _pointer,
    nodes.Counting: _counting,
    nodes.Constant: _constant,
    nodes.Discard: _discard,
    nodes.Shuffle: _shuffle,
    nodes.Zip: _zip,
    nodes.Permutation: _permutation,
    nodes.Reverse: _reverse,
    nodes.Convert: _convert,
    nodes.Transform: _transform,
}
