"""The C++ source of iterators: a struct for each node."""

from __future__ import annotations

from collections.abc import Sequence

from . import cpp
from .nodes import Argument, IteratorNode

_WORDS = (1, 2, 4, 8, 16)  # bytes of what can be loaded at once


def node_structs(argument: Argument) -> tuple[str, str]:
    """Return the C++ of an iterator's nodes, a struct for each, and the name of the last, which is the whole.

    Its bytes are the state that a call hands over. The functions of operators are left to the linker.
    """
    symbol, code, whole = cpp.symbol(argument.name), "", argument.node
    operators = iter(argument.operators.items())
    names: dict[int, str] = {}  # of structs, by the node's id: the same node twice is as good as two
    for index, node in enumerate(argument.node.walk()):
        name = names[id(node)] = f"{symbol}_{index}"
        function = ""
        if node.operator is not None:
            parameter, op = next(operators)
            function = cpp.symbol(parameter)
            state = "void*, " if op.state_size else ""
            code += f'\nextern "C" __device__ void {function}({state}const void*, void*);'
        own = _arrays(node) if node is whole and node.streams else []
        code += _struct(name, node, [names[id(child)] for child in node.children], function, own)
    return code, name


def _arrays(node: IteratorNode) -> list[str]:
    """Return what kernels that copy the arrays of an iterator by themselves ask of the whole of its nodes."""
    arrays, offset = [], 0
    for slot in node.slots():
        if slot.dtype is not None:
            arrays.append((offset, slot.dtype, slot.step))
        offset += slot.size
    sizes = [dtype.itemsize for _, dtype, _ in arrays]
    are_vectors = all(step > 0 for *_, step in arrays) and all(size in _WORDS for size in sizes)
    each = " ".join(
        f"f(*reinterpret_cast<{cpp.type_name(dtype)}**>(state + {at}), "
        f"cuda::std::integral_constant<int, {step}>{{}});"
        for at, dtype, step in arrays
    )
    return [
        f"static constexpr int arrays = {len(arrays)}, array_bytes = {sum(sizes)};",
        f"static constexpr int widest_array = {max(sizes, default=0) if are_vectors else 0};",
        "template <class F> __device__ void each_array(F&& f) {",
        f"  char* const state = reinterpret_cast<char*>(this); {each}",
        "}",
    ]


def _struct(name: str, node: IteratorNode, children: Sequence[str], operator: str, own: Sequence[str]) -> str:
    its = node.members(children, operator)
    lines = [its.state, *own, f"__device__ void advance(i64 n) {{ {its.advance} }}"]
    if node.readable:
        lines.append(f"__device__ void read(void* out) const {{ {its.read} }}")
    if node.writable:
        lines.append(f"__device__ void write(const void* in) const {{ {its.write} }}")
    body = "".join(f"  {line}\n" for line in lines)
    return f"\nstruct {name} {{\n{body}}};\nstatic_assert(sizeof({name}) == {node.size});\n"
