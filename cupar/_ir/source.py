"""The C++ source of iterators: a struct for each node."""

from __future__ import annotations

from collections.abc import Sequence

from . import cpp
from .nodes import Argument, IteratorNode


def node_structs(argument: Argument) -> tuple[str, str]:
    """Return the C++ of an iterator's nodes, a struct for each, and the name of the last, which is the whole.

    Its bytes are the state that a call hands over. The functions of operators are left to the linker.
    """
    symbol, code = cpp.symbol(argument.name), ""
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
        code += _struct(name, node, [names[id(child)] for child in node.children], function)
    return code, name


def _struct(name: str, node: IteratorNode, children: Sequence[str], operator: str) -> str:
    its = node.members(children, operator)
    lines = [its.state, f"__device__ void advance(i64 n) {{ {its.advance} }}"]
    if node.readable:
        lines.append(f"__device__ void read(void* out) const {{ {its.read} }}")
    if node.writable:
        lines.append(f"__device__ void write(const void* in) const {{ {its.write} }}")
    body = "".join(f"  {line}\n" for line in lines)
    return f"\nstruct {name} {{\n{body}}};\nstatic_assert(sizeof({name}) == {node.size});\n"
