"""How an algorithm reaches its items: the structure of an input or output, and the C++ that it becomes.

An iterator is a tree of nodes. A node knows types and operators, and no values: where the arrays are, where a
count starts and what a constant is are state, which a call hands to the kernel as bytes. So all iterators of
one structure share a build. The state of a node is that of its children, in order, and then its own, each of
a multiple of 8 bytes, so that Python joins bytes where C++ nests structs.

Two kinds of node are cupar's own. To CCCL's C interface complex numbers are opaque storage, and its reduction
writes the accumulator's type through whatever output it is given (seen with CCCL 3.6.0: a float32 accumulator
and a float16 output overwrite the output's neighbour), so a `Convert` goes where array and accumulator differ
and CCCL would not convert. And a `First` keeps the first of several counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .. import structs
from .._compile import cccl

if TYPE_CHECKING:
    from ..operators import Operator

DType = np.dtype[Any]

_NUMBERS = {
    "b1": "bool",
    "i1": "signed char",
    "i2": "short",
    "i4": "int",
    "i8": "long long",
    "u1": "unsigned char",
    "u2": "unsigned short",
    "u4": "unsigned int",
    "u8": "unsigned long long",
    "f2": "__half",
    "f4": "float",
    "f8": "double",
    "c8": "Complex<float>",
    "c16": "Complex<double>",
}

_PREAMBLE = """
typedef long long i64;

template <class T> struct Complex { T re, im; };

template <int size, int alignment> struct alignas(alignment) Bytes { unsigned char bytes[size]; };

template <class To> struct convert {
  template <class From> static __device__ To from(From x) { return static_cast<To>(x); }
};
template <class To> struct convert<Complex<To>> {
  template <class From> static __device__ Complex<To> from(From x) { return {static_cast<To>(x), To(0)}; }
  template <class From> static __device__ Complex<To> from(Complex<From> x) {
    return {static_cast<To>(x.re), static_cast<To>(x.im)};
  }
};
"""


def cpp_type(dtype: DType) -> str:
    """Return the C++ type of a value."""
    if dtype.names is not None:
        return f"Bytes<{dtype.itemsize}, {dtype.alignment}>"
    return _NUMBERS[dtype.str[1:]]


def type_part(dtype: DType) -> list[Any]:
    """Describe a dtype for a key: size, alignment and, of a struct, the layout without the names."""
    part: list[Any] = [dtype.str, dtype.itemsize, dtype.alignment]
    if dtype.names is not None:
        fields = (dtype.fields[name] for name in dtype.names)  # type: ignore[index]
        part.append([[offset, type_part(kind)] for kind, offset, *_ in fields])
    return part


def padded(state: bytes) -> bytes:
    """Return a node's own state as bytes of a multiple of 8."""
    return state + bytes(-len(state) % 8)


def operator_part(op: Operator) -> list[Any]:
    """Describe an operator for the key of a template: its kind, its types and the size of its state."""
    part: list[Any] = ["function" if op.kind is None else op.kind.name]
    part += [type_part(dtype) for dtype in (*op.inputs, op.output)]
    return [*part, [op.state_size, op.state_alignment]] if op.state_size else part


@dataclass(frozen=True)
class Node:
    """What yields items or takes them.

    Attributes
    ----------
    value : numpy.dtype
        Of the items.
    """

    value: DType

    own_size: ClassVar[int] = 0
    headers: ClassVar[tuple[str, ...]] = ()

    @property
    def children(self) -> tuple[Node, ...]:
        """The nodes that this one reaches its items through."""
        return ()

    @property
    def readable(self) -> bool:
        """Whether it yields items."""
        return all(child.readable for child in self.children)

    @property
    def writable(self) -> bool:
        """Whether it takes items."""
        return bool(self.children) and all(child.writable for child in self.children)

    @property
    def operator(self) -> Operator | None:
        """What is applied to the items on their way."""
        return None

    @property
    def size(self) -> int:
        """Bytes of state, its children's and its own."""
        return sum(child.size for child in self.children) + self._own_size()

    def _own_size(self) -> int:
        return self.own_size

    def walk(self) -> Iterator[Node]:
        """Yield the nodes, children first."""
        for child in self.children:
            yield from child.walk()
        yield self

    def part(self) -> list[Any]:
        """Describe it for a key."""
        children = (child.part() for child in self.children)
        return [type(self).__name__, type_part(self.value), *self._detail(), *children]

    def _detail(self) -> list[Any]:
        return []

    def without_user(self) -> Node:
        """Return it without what keeps the users' functions in it alive."""
        own = ((each.name, getattr(self, each.name)) for each in fields(self))
        return replace(self, **{name: _without_user(value) for name, value in own if name != "value"})

    def members(self, children: Sequence[str], operator: str) -> str:
        """Return the members of its C++ struct: state, ``advance``, and ``read`` or ``write`` or both.

        Parameters
        ----------
        children : sequence of str
            Names of its children's structs.
        operator : str
            Name of its operator's function.
        """
        raise NotImplementedError


def _without_user(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_without_user, value))
    return value.without_user() if hasattr(value, "without_user") else value


@dataclass(frozen=True)
class Pointer(Node):
    """A contiguous array."""

    own_size = 8
    writable = True

    def members(self, children: Sequence[str], operator: str) -> str:
        t = cpp_type(self.value)
        return f"""
  {t}* p;
  __device__ void advance(i64 n) {{ p += n; }}
  __device__ void read(void* out) const {{ *static_cast<{t}*>(out) = *p; }}
  __device__ void write(const void* in) const {{ *p = *static_cast<const {t}*>(in); }}
"""


@dataclass(frozen=True)
class CacheModified(Node):
    """A contiguous array, loaded with one of PTX's cache operators."""

    modifier: str

    own_size = 8
    LOADS: ClassVar[dict[str, str]] = {"stream": "__ldcs", "global": "__ldcg", "volatile": "__ldcv"}

    def _detail(self) -> list[Any]:
        return [self.modifier]

    def members(self, children: Sequence[str], operator: str) -> str:
        t, load = cpp_type(self.value), self.LOADS[self.modifier]
        # In words as large as the alignment: there are intrinsics for words alone.
        word = _NUMBERS[f"u{self.value.alignment}"]
        words = self.value.itemsize // self.value.alignment
        return f"""
  const {t}* p;
  __device__ void advance(i64 n) {{ p += n; }}
  __device__ void read(void* out) const {{
    auto from = reinterpret_cast<const {word}*>(p);
    auto to = static_cast<{word}*>(out);
    for (int i = 0; i < {words}; ++i) to[i] = {load}(from + i);
  }}
"""


@dataclass(frozen=True)
class Counting(Node):
    """Numbers, each one more than the one before."""

    own_size = 16

    def members(self, children: Sequence[str], operator: str) -> str:
        t = cpp_type(self.value)
        # The index apart from the start: a float that counts in ones stops where ones are lost in rounding.
        return f"""
  {t} start;
  alignas(8) i64 index;
  __device__ void advance(i64 n) {{ index += n; }}
  __device__ void read(void* out) const {{
    *static_cast<{t}*>(out) = static_cast<{t}>(start + static_cast<{t}>(index));
  }}
"""


@dataclass(frozen=True)
class Constant(Node):
    """The same value everywhere."""

    def _own_size(self) -> int:
        return rounded_up(self.value.itemsize)

    def members(self, children: Sequence[str], operator: str) -> str:
        t = cpp_type(self.value)
        return f"""
  alignas(8) {t} constant;
  __device__ void advance(i64) {{}}
  __device__ void read(void* out) const {{ *static_cast<{t}*>(out) = constant; }}
"""


@dataclass(frozen=True)
class Discard(Node):
    """Takes anything and keeps nothing."""

    own_size = 8  # CCCL wants some state
    readable = False
    writable = True

    def members(self, children: Sequence[str], operator: str) -> str:
        return """
  i64 unused;
  __device__ void advance(i64) {}
  __device__ void write(const void*) const {}
"""


@dataclass(frozen=True)
class Shuffle(Node):
    """The numbers below a number, in a random order."""

    own_size = 24
    headers = ("cuda/__random/random_bijection.h", "cuda/__random/pcg_engine.h")

    def members(self, children: Sequence[str], operator: str) -> str:
        # Not inlined, or the keys of the bijection's 24 rounds take the kernel's registers, as cuda.compute
        # found, whose permutations these are.
        return """
  i64 index;
  unsigned long long items, seed;
  __device__ void advance(i64 n) { index += n; }
  __device__ __noinline__ static i64 at(unsigned long long items, unsigned long long seed, i64 index) {
    cuda::pcg64 generator(seed);
    cuda::random_bijection<unsigned long long> bijection(items, generator);
    return static_cast<i64>(bijection(static_cast<unsigned long long>(index)));
  }
  __device__ void read(void* out) const { *static_cast<i64*>(out) = at(items, seed, index); }
"""


@dataclass(frozen=True)
class Zip(Node):
    """Structs of the items of several iterators."""

    parts: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.parts

    def members(self, children: Sequence[str], operator: str) -> str:
        places = [self.value.fields[name][1] for name in self.value.names or ()]  # type: ignore[index]
        advance = " ".join(f"m{i}.advance(n);" for i, _ in enumerate(places))
        members = "\n".join(f"  {child} m{i};" for i, child in enumerate(children))
        code = f"{members}\n  __device__ void advance(i64 n) {{ {advance} }}\n"
        if self.readable:
            reads = " ".join(f"m{i}.read(static_cast<char*>(out) + {at});" for i, at in enumerate(places))
            code += f"  __device__ void read(void* out) const {{ {reads} }}\n"
        if self.writable:
            writes = " ".join(
                f"m{i}.write(static_cast<const char*>(in) + {at});" for i, at in enumerate(places)
            )
            code += f"  __device__ void write(const void* in) const {{ {writes} }}\n"
        return code


@dataclass(frozen=True)
class Permutation(Node):
    """The items of one iterator at the places that another one yields."""

    values: Node
    indices: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return self.values, self.indices

    @property
    def readable(self) -> bool:
        return self.values.readable

    @property
    def writable(self) -> bool:
        return self.values.writable

    def members(self, children: Sequence[str], operator: str) -> str:
        values, indices = children
        code = f"""
  {values} values;
  {indices} indices;
  __device__ void advance(i64 n) {{ indices.advance(n); }}
  __device__ {values} at() const {{
    {cpp_type(self.indices.value)} index;
    indices.read(&index);
    auto there = values;
    there.advance(static_cast<i64>(index));
    return there;
  }}
"""
        if self.readable:
            code += "  __device__ void read(void* out) const { at().read(out); }\n"
        if self.writable:
            code += "  __device__ void write(const void* in) const { at().write(in); }\n"
        return code


@dataclass(frozen=True)
class _Wrapper(Node):
    """What has one child, and all of whose own state is the same in every call."""

    child: Node

    constant: ClassVar[bytes] = b""

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.child,)

    def _moves(self, read: str, write: str) -> str:
        code = ""
        if self.readable:
            code += f"  __device__ void read(void* out) const {{ {read} }}\n"
        if self.writable:
            code += f"  __device__ void write(const void* in) const {{ {write} }}\n"
        return code


@dataclass(frozen=True)
class Reverse(_Wrapper):
    """Another iterator, backwards."""

    def members(self, children: Sequence[str], operator: str) -> str:
        return f"""
  {children[0]} child;
  __device__ void advance(i64 n) {{ child.advance(-n); }}
{self._moves("child.read(out);", "child.write(in);")}"""


@dataclass(frozen=True)
class Convert(_Wrapper):
    """Another iterator, whose items have another type."""

    output: bool

    @property
    def readable(self) -> bool:
        return not self.output

    @property
    def writable(self) -> bool:
        return self.output

    def members(self, children: Sequence[str], operator: str) -> str:
        outer, inner = cpp_type(self.value), cpp_type(self.child.value)
        read = f"{inner} x; child.read(&x); *static_cast<{outer}*>(out) = convert<{outer}>::from(x);"
        write = f"{inner} x = convert<{inner}>::from(*static_cast<const {outer}*>(in)); child.write(&x);"
        return f"""
  {children[0]} child;
  __device__ void advance(i64 n) {{ child.advance(n); }}
{self._moves(read, write)}"""


@dataclass(frozen=True)
class First(_Wrapper):
    """Another iterator, of which the first place alone is written."""

    own_size = 8
    constant = bytes(8)

    def members(self, children: Sequence[str], operator: str) -> str:
        return f"""
  {children[0]} child;
  i64 index;
  __device__ void advance(i64 n) {{ index += n; }}
  __device__ void write(const void* in) const {{ if (index == 0) child.write(in); }}
"""


@dataclass(frozen=True)
class Transform(_Wrapper):
    """What an operator makes of another iterator's items, or of items on their way to one."""

    function: Operator
    output: bool

    @property
    def readable(self) -> bool:
        return not self.output and self.child.readable

    @property
    def writable(self) -> bool:
        return self.output and self.child.writable

    @property
    def operator(self) -> Operator:
        return self.function

    def _own_size(self) -> int:
        return rounded_up(self.function.state_size)

    def _detail(self) -> list[Any]:
        return ["out" if self.output else "in", operator_part(self.function)]

    def members(self, children: Sequence[str], operator: str) -> str:
        inner = cpp_type(self.child.value)
        size = self._own_size()
        state = f"unsigned char state[{size}];" if size else ""
        first = "const_cast<unsigned char*>(state), " if size else ""
        return f"""
  {children[0]} child;
  {f"alignas(8) {state}" if size else ""}
  __device__ void advance(i64 n) {{ child.advance(n); }}
{
            self._moves(
                f"{inner} x; child.read(&x); {operator}({first}&x, out);",
                f"{inner} x; {operator}({first}in, &x); child.write(&x);",
            )
        }"""


def description(node: Node) -> str:
    """Return a node as text for messages, as in ``Transform(Counting(int32), square)``."""
    inner = [description(child) for child in node.children] or [structs.text(node.value)]
    if node.operator is not None:
        inner.append(node.operator.name)
    return f"{type(node).__name__}({', '.join(inner)})"


def rounded_up(size: int) -> int:
    """Return the bytes that a node's own state of some bytes takes."""
    return -(-size // 8) * 8


@dataclass(frozen=True)
class Argument:
    """An array or iterator of an algorithm, as its build sees it.

    Attributes
    ----------
    name : str
        Of the parameter, as in ``"d_in"``.
    given : Node
        What the user gives.
    node : Node
        What the algorithm reads or writes: that, or something of cupar's own around it.
    output : bool
        Whether it is written.
    """

    name: str
    given: Node
    node: Node
    output: bool = False

    @property
    def value(self) -> DType:
        """The dtype of the items that the algorithm reads or writes."""
        return self.node.value

    @property
    def is_pointer(self) -> bool:
        """Whether it is a plain array, for which CCCL needs no code."""
        return type(self.node) is Pointer

    @property
    def constants(self) -> bytes:
        """The state of what cupar put around what the user gives."""
        state, node = b"", self.node
        while node is not self.given and isinstance(node, _Wrapper):
            state, node = node.constant + state, node.child
        return state

    @property
    def operators(self) -> dict[str, Operator]:
        """The operators of the iterators in it, by the names that their functions have."""
        found = (node.operator for node in self.node.walk())
        return {f"{self.name}_op{i}": op for i, op in enumerate(op for op in found if op is not None)}

    def converted(self, value: DType) -> Argument:
        """Return it with items of another type, if that is another."""
        if structs.layout(value) == structs.layout(self.value):
            return self
        return replace(self, node=Convert(value, self.node, self.output))

    def without_user(self) -> Argument:
        """Return it without what keeps the users' functions in it alive."""
        return replace(self, given=self.given.without_user(), node=self.node.without_user())

    def part(self) -> list[Any]:
        """Describe it for a key."""
        return [self.name, "out" if self.output else "in", self.node.part()]


def source(arguments: Sequence[Argument]) -> str:
    """Return the C++ of the device functions of these arguments, empty if all of them are plain arrays.

    CCCL calls ``<symbol>_advance(state, offset)`` and ``<symbol>_dereference(state, item)``.
    """
    iterators = [argument for argument in arguments if not argument.is_pointer]
    if not iterators:
        return ""
    headers = [header for a in iterators for node in a.node.walk() for header in node.headers]
    return unit("".join(map(_functions, iterators)), headers)


def unit(code: str, headers: Sequence[str] = ()) -> str:
    """Return C++ that may be compiled: with the headers that it needs and the types that `cpp_type` names."""
    half = ["cuda_fp16.h"] if "__half" in code else []
    return "".join(f"#include <{header}>\n" for header in dict.fromkeys([*headers, *half])) + _PREAMBLE + code


def _functions(argument: Argument) -> str:
    symbol, code = cccl.symbol(argument.name), ""
    operators = iter(argument.operators.items())
    structs_of: dict[int, str] = {}  # by the node's id: the same node twice is as good as two
    for index, node in enumerate(argument.node.walk()):
        name = structs_of[id(node)] = f"{symbol}_{index}"
        function = ""
        if node.operator is not None:
            parameter, op = next(operators)
            function = cccl.symbol(parameter)
            state = "void*, " if op.state_size else ""
            code += f'\nextern "C" __device__ void {function}({state}const void*, void*);'
        members = node.members([structs_of[id(child)] for child in node.children], function)
        code += f"\nstruct {name} {{{members}}};\nstatic_assert(sizeof({name}) == {node.size});\n"
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


def forwarder_source(name: str, arity: int, has_state: bool) -> str:
    """Return the C++ of an operator's function, ``SYMBOL``, that calls the one of the user's own LTO-IR.

    The user's name stays behind cupar's: one that CUB's headers know, such as ``half``, would not compile.
    """
    arguments = [f"a{i}" for i in range(has_state + arity + 1)]
    types = ", ".join("void*" for _ in arguments)
    parameters = ", ".join(f"void* {argument}" for argument in arguments)
    return (
        f'extern "C" __device__ void {name}({types});\n'
        f'extern "C" __device__ void SYMBOL({parameters}) {{\n'
        f"  {name}({', '.join(arguments)});\n}}\n"
    )
