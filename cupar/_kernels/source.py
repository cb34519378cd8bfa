"""The C++ of a specialisation's kernels: types, operators and iterators, and the source of the family.

The user's operators are left to the linker. That source is the template's, which all operators share: so it
tells none of them but by its types.

It begins with the headers, those of the family's source among them. So all sources of a family begin with the
same lines, up to `cpp.END_OF_HEADERS`, and a process that compiles several can keep what they say
precompiled.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from .._ir import cpp, kinds
from .._ir.nodes import Argument
from .._ir.operator import Operator
from .._ir.source import node_structs
from ..operators import OpKind
from .family import Family
from .headers import included

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

# Of the functors above, and of half precision: CUB's headers have it in any case.
_HEADERS = (
    "cuda/std/__functional/identity.h",
    "cuda/std/__functional/operations.h",
    "cuda/__functional/maximum.h",
    "cuda/__functional/minimum.h",
    "cuda_fp16.h",
)


def source(family: Family, spec: Specialisation) -> str:
    """Return the C++ of a specialisation's kernels.

    Each argument ``x`` has a type ``x_t``: a pointer, or an iterator whose bytes a call hands over; and the
    type ``x_v`` of its items. Each operator ``f`` has a type ``f_t``: a functor, whose state a call hands
    over.
    """
    headers = [header for each in spec.arguments for node in each.node.walk() for header in node.headers]
    code = [f"constexpr int target = {spec.cc};", *map(_argument, spec.arguments)]
    code += [_operator(name, op) for name, op in spec.operators]
    code.append(family.prelude(spec))
    body = "\n".join(each for each in code if each)
    # In the global namespace, as the functions that are left to the linker are.
    unit = cpp.unit(body, headers)
    file = family.source_of(spec)
    return f'{_prefix(file)}{cpp.END_OF_HEADERS}{unit}\n#include "{file}"\n'


def _argument(argument: Argument) -> str:
    name, item = argument.name, cpp.type_name(argument.value)
    lines = [f"using {name}_v = {item};"]
    if argument.is_pointer:
        lines.append(f"using {name}_t = {'' if argument.output else 'const '}{item}*;")
    else:
        structs, node = node_structs(argument)
        kind = "output" if argument.output else "input"
        lines += [structs, f"using {name}_t = cupar::{kind}_iterator<{node}, {item}>;"]
    return "\n".join(lines)


def _operator(name: str, op: Operator) -> str:
    inputs, result = [cpp.type_name(each) for each in op.inputs], cpp.type_name(op.output)
    # CUB adds bools up as bytes where it sees that they are added.
    adds_bools = op.kind is OpKind.PLUS and op.inputs[0].kind == "b"
    if op.kind is not None and kinds.is_uniform(op.kind, op.inputs, op.output) and not adds_bools:
        return f"using {name}_t = {_functor(op.kind, op.inputs[0].kind in 'biu')};"
    if op.kind is not None:
        values = ", ".join(f"{each} {value}" for each, value in zip(inputs, "ab", strict=False))
        does = f"return {kinds.expression(op.kind, op.inputs, op.output)};"
        head = f"__device__ __forceinline__ {result} operator()({values}) const"
        return f"struct {name}_t {{\n  {head} {{ {does} }}\n}};"
    given = [f"const {each}& a{i}" for i, each in enumerate(inputs)]
    passed = [
        *(["const_cast<unsigned char*>(state)"] * bool(op.state_size)),
        *(f"&a{i}" for i in range(len(inputs))),
    ]
    state = (
        f"\n  alignas({op.state_alignment}) unsigned char state[{op.state_size}];" if op.state_size else ""
    )
    parameters = ", ".join([*(["void*"] * bool(op.state_size)), *(["const void*"] * len(inputs)), "void*"])
    return f"""extern "C" __device__ void {cpp.symbol(name)}({parameters});
struct {name}_t {{{state}
  __device__ __forceinline__ {result} operator()({", ".join(given)}) const {{
    {result} result;
    {cpp.symbol(name)}({", ".join(passed)}, &result);
    return result;
  }}
}};"""


def _functor(kind: OpKind, of_integers: bool) -> str:
    """Return the function object that a kind is in CCCL, or cupar's where C++ leaves it undefined."""
    name = kind.name.lower()
    if of_integers and kind in (OpKind.DIVIDES, OpKind.MODULUS):
        return f"cupar::{name}"
    home = "cuda" if kind in (OpKind.MINIMUM, OpKind.MAXIMUM) else "cuda::std"
    return f"{home}::{name}{'' if kind is OpKind.IDENTITY else '<>'}"


@functools.cache
def _prefix(family_source: str) -> str:
    """Return the lines that include what a family's source does, but for those beside it."""
    found = [*_HEADERS, *included(family_source)]
    return "".join(f"#include <{header}>\n" for header in (*dict.fromkeys(found), "cupar.cuh"))
