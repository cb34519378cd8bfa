"""The C++ source of iterators: a struct for each node, and the two functions that CCCL calls."""

from __future__ import annotations

from collections.abc import Sequence

from . import cpp
from .nodes import Argument, IteratorNode


def iterators_source(arguments: Sequence[Argument]) -> str:
    """Return the C++ of the device functions of these arguments, empty if all of them are plain arrays.

    CCCL calls ``<symbol>_advance(state, offset)`` and ``<symbol>_dereference(state, item)``.
    """
    iterators = [argument for argument in arguments if not argument.is_pointer]
    if not iterators:
        return ""
    headers = [header for a in iterators for node in a.node.walk() for header in node.headers]
    return cpp.unit("".join(map(_functions, iterators)), headers)


def _functions(argument: Argument) -> str:
    symbol = cpp.symbol(argument.name)
    code, name = node_structs(argument)
    item, move = ("const void*", "write") if argument.output else ("void*", "read")
    return (
        code
        + f"""
extern "C" __device__ void {symbol}_advance(void* state, const void* offset) {{
  static_cast<{name}*>(state)->advance(*static_cast<const i64*>(offset));
}}
extern "C" __device__ void {symbol}_dereference(const void* state, {item} item) {{
  static_cast<const {name}*>(state)->{move}(item);
}}
"""
    )


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
    state, advance, read, write = node.members(children, operator)
    lines = [state, f"__device__ void advance(i64 n) {{ {advance} }}"]
    if node.readable:
        lines.append(f"__device__ void read(void* out) const {{ {read} }}")
    if node.writable:
        lines.append(f"__device__ void write(const void* in) const {{ {write} }}")
    body = "".join(f"  {line}\n" for line in lines)
    return f"\nstruct {name} {{\n{body}}};\nstatic_assert(sizeof({name}) == {node.size});\n"
