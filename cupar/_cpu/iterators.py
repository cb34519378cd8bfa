"""Iterators on the CPU: each node of one as numba functions that read and write, given the parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import structs
from .._base.generated import define
from .._ir import nodes
from .operators import function_of
from .values import Place, Written, callable_of, cast_to, constant, inlined, integer, memory, of_one_build

Functions = tuple[Any, Any]  # `read(p, index)` and `write(p, index, value)`


@inlined
def _no_read(p: Any, index: Any) -> Any:
    return 0


@inlined
def _no_write(p: Any, index: Any, value: Any) -> None:
    pass


def functions_of(node: nodes.IteratorNode, place: Place) -> Functions:
    """Return the functions of a node whose state is in a place."""
    found: Functions = _MAKERS[type(node)](node, place)
    return found


def _pointer(node: Any, place: Place) -> Functions:
    return memory(node.value, place)


def _shift(node: Any, place: Place) -> Functions:
    (read, _), zero = memory(node.value, place), cast_to(node.value)
    first, count, by = (integer(place.moved(at)) for at in (8, 16, 24))

    @inlined
    def shifted(p: Any, index: Any) -> Any:
        return read(p, index + by(p)) if 0 <= first(p) + index + by(p) < count(p) else zero(0)

    return shifted, _no_write


def _counting(node: Any, place: Place) -> Functions:
    start, offset, cast = constant(node.value, place), integer(place.moved(8)), cast_to(node.value)
    return inlined(lambda p, index: cast(start(p) + cast(offset(p) + index))), _no_write


def _constant(node: Any, place: Place) -> Functions:
    value = constant(node.value, place)
    return inlined(lambda p, index: value(p)), _no_write


def _discard(node: Any, place: Place) -> Functions:
    return _no_read, _no_write


def _shuffle(node: Any, place: Place) -> Functions:
    from .shuffle import keys_of, permuted  # which takes its time to compile

    offset, items, seed = (integer(place.moved(at)) for at in (0, 8, 16))
    return inlined(
        lambda p, index: permuted(items(p), keys_of(np.uint64(seed(p))), offset(p) + index)
    ), _no_write


_ZIP = """
def read(p, index):
    return cast(make({reads}))
def write(p, index, value):
    {writes}
"""


def _zip(node: nodes.Zip, place: Place) -> Functions:
    names: dict[str, Any] = {"make": structs.plain_class(node.value), "cast": cast_to(node.value)}
    for i, child in enumerate(node.parts):
        names[f"read{i}"], names[f"write{i}"] = functions_of(child, place)
        place = place.moved(child.size)
    reads = ", ".join(f"read{i}(p, index)" for i in range(len(node.parts)))
    writes = [f"write{i}(p, index, value[{i}])" for i in range(len(node.parts))]
    read, write = define("zipped items", "read write", _ZIP, names, reads=reads, writes=writes)
    return inlined(read), inlined(write)


def _permutation(node: nodes.Permutation, place: Place) -> Functions:
    read, write = functions_of(node.values, place)
    where, _ = functions_of(node.indices, place.moved(node.values.size))
    return (
        inlined(lambda p, index: read(p, np.int64(where(p, index)))),
        inlined(lambda p, index, value: write(p, np.int64(where(p, index)), value)),
    )


def _reverse(node: nodes.Reverse, place: Place) -> Functions:
    read, write = functions_of(node.child, place)
    return (
        inlined(lambda p, index: read(p, -index)),
        inlined(lambda p, index, value: write(p, -index, value)),
    )


def _convert(node: nodes.Convert, place: Place) -> Functions:
    read, write = functions_of(node.child, place)
    outer, inner = cast_to(node.value), cast_to(node.child.value)
    return (
        inlined(lambda p, index: outer(read(p, index))),
        inlined(lambda p, index, value: write(p, index, inner(value))),
    )


def _transform(node: nodes.Transform, place: Place) -> Functions:
    read, write = functions_of(node.child, place)
    call, cast = function_of(node.function, place.moved(node.child.size)), cast_to(node.value)
    if isinstance(call, Written):
        call = of_one_build(callable_of(call))
    return (
        inlined(lambda p, index: call(p, read(p, index))),
        inlined(lambda p, index, value: write(p, index, call(p, cast(value)))),
    )


_MAKERS: dict[type, Any] = {
    nodes.Pointer: _pointer,
    nodes.CacheModified: _pointer,
    nodes.Shift: _shift,
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
