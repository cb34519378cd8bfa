"""The C++ source of iterators: a struct for each node."""

from __future__ import annotations

from collections.abc import Sequence

from . import cpp
from .nodes import Argument, IteratorNode, Slot

_WORDS = (1, 2, 4, 8, 16)  # bytes of what can be loaded at once


def node_structs(argument: Argument) -> tuple[str, str]:
    """Return the C++ of an iterator's nodes, a struct for each, and the name of the last, which is the whole.

    Its bytes are the state that a call passes. The functions of operators are left to the linker.
    """
    symbol, code, whole = cpp.symbol(argument.name), "", argument.node
    operators = iter(argument.operators.items())
    # Names of structs without a parent so far. Equal nodes may be one object or two; the code must not depend
    # on that, as it is part of keys.
    names: list[str] = []
    for index, node in enumerate(argument.node.walk()):
        name, function = f"{symbol}_{index}", ""
        first_child = len(names) - len(node.children)
        if node.operator is not None:
            parameter, op = next(operators)
            function = cpp.symbol(parameter)
            state = "void*, " if op.state_size else ""
            code += f'\nextern "C" __device__ void {function}({state}const void*, void*);'
        own = _arrays(node) if node is whole and node.streams else []
        code += _struct(name, node, names[first_child:], function, own)
        names[first_child:] = [name]
    return code, name


def _arrays(node: IteratorNode) -> list[str]:
    """Return the C++ that kernels need of all nodes if they copy the arrays of an iterator themselves."""
    sizes, each, offset, are_vectors = [], [], 0, True
    for slot in node.slots():
        if slot.dtype is not None:
            sizes.append(slot.dtype.itemsize)
            each.append(_each_of(offset, slot, cpp.type_name(slot.dtype)))
            are_vectors &= slot.step > 0 and not slot.is_shifted and slot.dtype.itemsize in _WORDS
        offset += slot.size
    return [
        f"static constexpr int arrays = {len(sizes)}, array_bytes = {sum(sizes)};",
        f"static constexpr int widest_array = {max(sizes, default=0) if are_vectors else 0};",
        "template <class F> __device__ void each_array(F&& f) {",
        f"  char* const state = reinterpret_cast<char*>(this); {' '.join(each)}",
        "}",
    ]


def _each_of(at: int, slot: Slot, t: str) -> str:
    """Return the statement that gives `f` the pointer of an array at a place of the state."""
    if slot.is_shifted:
        return f"cupar::each_shifted<{slot.step}, {t}>(state + {at}, f);"
    return f"f(*reinterpret_cast<{t}**>(state + {at}), cuda::std::integral_constant<int, {slot.step}>{{}});"


def _struct(name: str, node: IteratorNode, children: Sequence[str], operator: str, own: Sequence[str]) -> str:
    its = node.members(children, operator)
    lines = [its.state, *own, f"__device__ void advance(i64 n) {{ {its.advance} }}"]
    if node.readable:
        lines.append(f"__device__ void read(void* out) const {{ {its.read} }}")
    if node.writable:
        lines.append(f"__device__ void write(const void* in) const {{ {its.write} }}")
    body = "".join(f"  {line}\n" for line in lines)
    return f"\nstruct {name} {{\n{body}}};\nstatic_assert(sizeof({name}) == {node.size});\n"
