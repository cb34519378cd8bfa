"""The C++ of a specialisation's kernels: the family's templates, its traits, and an entry for each kernel.

The user's operators are left to the linker: the source is the template's, which all operators share, and
depends on their types alone.

It begins with the headers, the family's among them. So all sources of a family begin with the same lines, up
to `cpp.END_OF_HEADERS`, and a process that compiles several can keep them precompiled.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._ir import cpp, kinds
from .._ir.nodes import Argument
from .._ir.operator import Operator
from .._ir.source import node_structs
from ..operators import OpKind
from .family import Family, InPlace, Parameter
from .image import PROPERTIES

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

# Of the functors below, and of half precision: CUB's headers have it in any case.
_HEADERS = ("cuda/std/__functional/operations.h", "cuda_fp16.h")

_OWN = frozenset((OpKind.IDENTITY, OpKind.MINIMUM, OpKind.MAXIMUM))  # functors for all types


def source(family: Family, spec: Specialisation) -> str:
    """Return the C++ of a specialisation's kernels.

    Its ``traits`` hold what they are templates of. Each argument ``x`` has a type ``x_t``: a pointer, or an
    iterator whose bytes a call hands over; and the type ``x_v`` of its items. Each operator ``f`` has a type
    ``f_t``: a functor, whose state a call passes. The family adds the other members.
    """
    headers = [header for each in spec.arguments for node in each.node.walk() for header in node.headers]
    code, traits = [], []
    for argument in spec.arguments:
        structs, aliases = _argument(argument)
        code.append(structs)
        traits += aliases
    for name, op in spec.operators:
        struct, alias = _operator(name, op)
        code.append(struct)
        traits.append(alias)
    traits += family.traits(spec).splitlines()
    code.append("struct traits {\n" + "".join(f"  {line}\n" for line in traits) + "};")
    file = family.source_of(spec)
    code.append(f"using kernels = cupar::{file.rpartition('/')[2].removesuffix('.cuh')}_kernels<traits>;")
    launches = {each.kernel: each for shape in family.shapes(spec).values() for each in shape.launches}
    code += [_entry(name, launch.parameters) for name, launch in sorted(launches.items())]
    code.append(f'extern "C" __device__ const auto {PROPERTIES} = kernels::properties;\n')
    # In the global namespace, as the functions that are left to the linker are.
    return _prefix(file) + cpp.END_OF_HEADERS + cpp.unit("\n".join(each for each in code if each), headers)


def _entry(name: str, given: Sequence[Parameter]) -> str:
    """Return a kernel's entry: it has its name, and its parameters."""
    kernel, numbers = f"kernels::{name}", range(len(given))
    kinds = ["const __grid_constant__ " * isinstance(each, InPlace) for each in given]
    parameters = ", ".join(f"{kinds[i]}cupar::parameter<{kernel}, {i}> p{i}" for i in numbers)
    return f"""extern "C" __global__ __launch_bounds__({kernel}::max_threads, {kernel}::min_blocks)
void {name}({parameters}) {{
  {kernel}::run({", ".join(f"p{i}" for i in numbers)});
}}"""


def _argument(argument: Argument) -> tuple[str, list[str]]:
    """Return the structs of an argument's type, and its members of the traits."""
    name, item = argument.name, cpp.type_name(argument.value)
    aliases = [f"using {name}_v = {item};"]
    if argument.is_pointer:
        return "", [*aliases, f"using {name}_t = {'' if argument.output else 'const '}{item}*;"]
    structs, node = node_structs(argument)
    kind = "output" if argument.output else "input"
    return structs, [*aliases, f"using {name}_t = cupar::{kind}_iterator<{node}, {item}>;"]


def _operator(name: str, op: Operator) -> tuple[str, str]:
    """Return the struct of an operator, if it has its own, and its members of the traits."""
    inputs, result = [cpp.type_name(each) for each in op.inputs], cpp.type_name(op.output)
    # CUB adds bools up as bytes where it sees that they are added.
    adds_bools = op.kind is OpKind.PLUS and op.inputs[0].kind == "b"
    if op.kind is not None and kinds.is_uniform(op.kind, op.inputs, op.output) and not adds_bools:
        return "", f"using {name}_t = {_functor(op.kind, op.inputs[0].kind in 'biu')};"
    struct, alias = cpp.symbol(f"{name}_functor"), f"using {name}_t = {cpp.symbol(f'{name}_functor')};"
    if op.kind is not None:
        values = ", ".join(f"{each} {value}" for each, value in zip(inputs, "ab", strict=False))
        does = f"return {kinds.expression(op.kind, op.inputs, op.output)};"
        head = f"__device__ __forceinline__ {result} operator()({values}) const"
        return f"struct {struct} {{\n  {head} {{ {does} }}\n}};", alias
    given = [f"const {each}& a{i}" for i, each in enumerate(inputs)]
    passed = [
        *(["const_cast<word*>(state)"] * bool(op.state_size)),
        *(f"&a{i}" for i in range(len(inputs))),
    ]
    state = ""
    if op.state_size:  # in words, for bytes are read one by one
        word = math.gcd(op.state_size, op.state_alignment, 8)
        state = f"\n  typedef Word<{word}>::type word;"
        state += f"\n  alignas({op.state_alignment}) word state[{op.state_size // word}];"
    parameters = ", ".join([*(["void*"] * bool(op.state_size)), *(["const void*"] * len(inputs)), "void*"])
    return (
        f"""extern "C" __device__ void {cpp.symbol(name)}({parameters});
struct {struct} {{{state}
  __device__ __forceinline__ {result} operator()({", ".join(given)}) const {{
    {result} result;
    {cpp.symbol(name)}({", ".join(passed)}, &result);
    return result;
  }}
}};""",
        alias,
    )


def _functor(kind: OpKind, of_integers: bool) -> str:
    """Return the function object that a kind is in CCCL, or cupar's (`common/types.cuh`)."""
    name = kind.name.lower()
    is_division = kind in (OpKind.DIVIDES, OpKind.MODULUS)
    if kind in _OWN or (is_division and of_integers):
        return f"cupar::{name}"
    return f"cuda::std::{name}<>"


@functools.cache
def _prefix(family_source: str) -> str:
    """Return the lines that include the headers of operators, and the family's kernels."""
    return "".join(f"#include <{header}>\n" for header in _HEADERS) + f'#include "{family_source}"\n'
