"""Nodes: the structure of an input or output, and its C++.

An iterator is a tree of nodes. A node has types and operators, and no values: the addresses of arrays, the
start of a count and constants are state, which each call passes to the kernel as bytes. So all iterators of
one structure share a build. A tree is lowered to a list of slots (`IteratorNode.slots`), which describe that
state: Python packs it (`iterator`), compiled host code packs it (`_host.iterators`), C++ nests structs of
the same layout, and the CPU reads it in place. The slots of a node are its children's, in order, and then its
own; each has a multiple of 8 bytes.

Users never make one class of nodes: `Convert`, around an output whose dtype differs from the items that an
algorithm writes to it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from .. import structs
from .._base.bounded import of_builds
from .._base.causes import nested
from .._base.data import Recent, dataclass, fields, replace
from . import cpp
from .operator import Operator

DType = np.dtype[Any]
N = TypeVar("N", bound="IteratorNode")


@dataclass(frozen=True)
class Members:
    """The members of a node's struct in C++."""

    state: str  # its data members and member functions
    advance: str = ""  # code that moves it by `n` items
    read: str = ""  # code that stores its item to `out`
    write: str = ""  # code that takes an item from `in`


class Slot:
    """A piece of an iterator's state.

    Parameters
    ----------
    kind : {"items", "index", "bytes"}
        The address of an array's first item, a position, or bytes that are the same for all items.
    size : int
        Bytes, a multiple of 8.
    step : int
        How far it moves for each item of the whole iterator: 1, -1 (backwards), or 0 (random access).
    dtype : numpy.dtype or None
        Of an array's items.
    read_only : bool
        Whether outputs only read it, as indices are.
    is_shifted : bool
        Whether it is that of a `Shift`, whose other slots follow.
    """

    __slots__ = ("dtype", "is_shifted", "kind", "read_only", "size", "step")

    def __init__(
        self,
        kind: str,
        size: int = 8,
        step: int = 0,
        dtype: DType | None = None,
        read_only: bool = False,
        is_shifted: bool = False,
    ) -> None:
        self.kind, self.size, self.step, self.dtype, self.read_only = kind, size, step, dtype, read_only
        self.is_shifted = is_shifted


class _Identity:
    """The fields of a node, one object for all live equal nodes, so that comparisons are quick."""

    __slots__ = ("__weakref__", "_fields", "_hash")

    def __init__(self, fields: tuple[Any, ...]) -> None:
        self._fields, self._hash = fields, hash(fields)

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is _Identity and self._fields == other._fields)

    def __hash__(self) -> int:
        return self._hash

    @staticmethod
    def of(node: IteratorNode) -> _Identity:
        """Return the identity of a node: an existing one, if a node with the same fields is alive."""
        found = _Identity((type(node), *(_compared(getattr(node, each.name)) for each in fields(node))))
        return _identities.setdefault(found, found)


_identities: WeakValueDictionary[_Identity, _Identity] = WeakValueDictionary()


def _compared(value: Any) -> Any:
    """Return the value of a field for comparisons, without references to users' functions."""
    if isinstance(value, IteratorNode):
        return value.identity
    if isinstance(value, Operator):
        return tuple([getattr(value, each.name) for each in fields(value) if each.compare])
    return tuple(map(_compared, value)) if isinstance(value, tuple) else value


@dataclass(frozen=True, eq=False)
class IteratorNode:
    """A source or sink of items of a dtype.

    Attributes
    ----------
    identity : object
        Equal nodes have the same object, or equal ones.
    layout : tuple of Slot
        Its `slots`, where it is the whole iterator.
    packer : struct.Struct
        Packs a value for each of these.
    """

    value: DType

    headers: ClassVar[tuple[str, ...]] = ()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, IteratorNode) and self.identity == other.identity)

    def __hash__(self) -> int:
        return hash(self.identity)

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def identity(self) -> _Identity:
        return _Identity.of(self)

    @cached_property
    def layout(self) -> tuple[Slot, ...]:
        return tuple(self.slots())

    @cached_property
    def depth(self) -> int:
        """The depth of nesting."""
        return 1 + max((child.depth for child in self.children), default=0)

    @cached_property
    def packer(self) -> struct.Struct:
        codes = {"items": "Q", "index": "q"}
        return struct.Struct("=" + "".join([codes.get(each.kind, f"{each.size}s") for each in self.layout]))

    @cached_property
    def has_operators(self) -> bool:
        return True in [each.operator is not None for each in self.walk()]

    @property
    def children(self) -> tuple[IteratorNode, ...]:
        """The nodes that this one reads or writes through."""
        return ()

    @cached_property
    def readable(self) -> bool:
        """Whether it yields items."""
        return all(child.readable for child in self.children)

    @cached_property
    def writable(self) -> bool:
        """Whether it takes items."""
        return bool(self.children) and all(child.writable for child in self.children)

    @property
    def operator(self) -> Operator | None:
        """The operator applied to each item, if there is one."""
        return None

    def slots(self, step: int = 1, read_only: bool = False) -> Iterator[Slot]:
        """Yield the pieces of its state, its children's first, if the whole iterator moves it by `step`."""
        for child in self.children:
            yield from child.layout if step == 1 and not read_only else child.slots(step, read_only)

    @property
    def size(self) -> int:
        """Bytes of state, its children's and its own."""
        return self.packer.size

    @property
    def streams(self) -> bool:
        """Whether plain loads reach its items, which are adjacent in arrays or not in memory."""
        return not any(isinstance(node, (CacheModified, Permutation, Shuffle)) for node in self.walk())

    def walk(self) -> Iterator[IteratorNode]:
        """Yield the nodes, children first."""
        for child in self.children:
            yield from child.walk()
        yield self

    def part(self) -> list[Any]:
        """Describe it for a key."""
        children = (child.part() for child in self.children)
        return [type(self).__name__, structs.type_part(self.value), *self._detail(), *children]

    def _detail(self) -> list[Any]:
        return []

    def without_user(self, *, with_code: bool = False) -> IteratorNode:
        """Return a copy that does not keep the user's functions alive; see `Operator.without_user`."""
        if not self.has_operators:
            return self
        own = ((each.name, getattr(self, each.name)) for each in fields(self))
        kept = {name: _without_user(value, with_code) for name, value in own if name != "value"}
        return replace(self, **kept)

    def members(self, children: Sequence[str], operator: str) -> Members:
        """Return the members of its struct, given the names of its children's structs and its operator's."""
        raise NotImplementedError


def _without_user(value: Any, with_code: bool) -> Any:
    if isinstance(value, tuple):
        return tuple(_without_user(each, with_code) for each in value)
    return value.without_user(with_code=with_code) if hasattr(value, "without_user") else value


@dataclass(frozen=True, eq=False)
class Pointer(IteratorNode):
    """A contiguous array."""

    writable = True

    def slots(self, step: int = 1, read_only: bool = False) -> Iterator[Slot]:
        yield Slot("items", 8, step, self.value, read_only)

    def members(self, children: Sequence[str], operator: str) -> Members:
        t = cpp.type_name(self.value)
        read, write = f"*static_cast<{t}*>(out) = *p;", f"*p = *static_cast<const {t}*>(in);"
        return Members(f"{t}* p;", "p += n;", read, write)


@dataclass(frozen=True, eq=False)
class CacheModified(IteratorNode):
    """A contiguous array, loaded with one of PTX's cache operators."""

    modifier: str

    LOADS: ClassVar[dict[str, str]] = {"stream": "__ldcs", "global": "__ldcg", "volatile": "__ldcv"}

    def slots(self, step: int = 1, read_only: bool = False) -> Iterator[Slot]:
        yield Slot("items", 8, step, self.value, read_only)

    def _detail(self) -> list[Any]:
        return [self.modifier]

    def members(self, children: Sequence[str], operator: str) -> Members:
        # In words as large as the alignment, since intrinsics take only words.
        word = cpp.type_name(np.dtype(f"u{self.value.alignment}"))
        words = self.value.itemsize // self.value.alignment
        read = f"""
    auto from = reinterpret_cast<const {word}*>(p);
    auto to = static_cast<{word}*>(out);
    for (int i = 0; i < {words}; ++i) to[i] = {self.LOADS[self.modifier]}(from + i);
  """
        return Members(f"const {cpp.type_name(self.value)}* p;", "p += n;", read)


@dataclass(frozen=True, eq=False)
class Shift(IteratorNode):
    """The item some places behind each item of an array; zeros beyond its end."""

    def slots(self, step: int = 1, read_only: bool = False) -> Iterator[Slot]:
        yield from (Slot("items", 8, step, self.value, True, is_shifted=True), Slot("index", 8, step))
        yield Slot("bytes", 16)

    def members(self, children: Sequence[str], operator: str) -> Members:
        t = cpp.type_name(self.value)
        # The item is found by the pointer, which may point to a copy of a part of the array.
        read = f"""
    const bool is_there = static_cast<cupar::u64>(index + by) < static_cast<cupar::u64>(count);
    *static_cast<{t}*>(out) = is_there ? p[by] : {t}{{}};
  """
        return Members(f"const {t}* p; i64 index, count, by;", "p += n; index += n;", read)


@dataclass(frozen=True, eq=False)
class Counting(IteratorNode):
    """Consecutive numbers."""

    def slots(self, step: int = 1, read_only: bool = False) -> Iterator[Slot]:
        yield from (Slot("bytes"), Slot("index", 8, step))

    def members(self, children: Sequence[str], operator: str) -> Members:
        t = cpp.type_name(self.value)
        # Index and start are separate: a float counter stops where adding 1 is lost in rounding.
        read = f"*static_cast<{t}*>(out) = static_cast<{t}>(start + static_cast<{t}>(index));"
        return Members(f"{t} start; alignas(8) i64 index;", "index += n;", read)


@dataclass(frozen=True, eq=False)
class Constant(IteratorNode):
    """The same value everywhere."""

    def slots(self, step: int = 1, read_only: bool = False) -> Iterator[Slot]:
        yield Slot("bytes", rounded_up(self.value.itemsize))

    def members(self, children: Sequence[str], operator: str) -> Members:
        t = cpp.type_name(self.value)
        return Members(f"alignas(8) {t} constant;", read=f"*static_cast<{t}*>(out) = constant;")


@dataclass(frozen=True, eq=False)
class Discard(IteratorNode):
    """Takes anything and keeps nothing."""

    readable = False
    writable = True

    def slots(self, step: int = 1, read_only: bool = False) -> Iterator[Slot]:
        yield Slot("bytes")  # CCCL requires a state

    def members(self, children: Sequence[str], operator: str) -> Members:
        return Members("i64 unused;")


@dataclass(frozen=True, eq=False)
class Shuffle(IteratorNode):
    """The numbers below a number, in a random order."""

    headers = ("cuda/__random/random_bijection.h", "cuda/__random/pcg_engine.h")

    def slots(self, step: int = 1, read_only: bool = False) -> Iterator[Slot]:
        yield from (Slot("index", 8, step), Slot("bytes", 16))

    def members(self, children: Sequence[str], operator: str) -> Members:
        # Not inlined, or the keys of the bijection's 24 rounds take the kernel's registers, as cuda.compute
        # found, whose permutations these are.
        state = """i64 index; unsigned long long items, seed;
  __device__ __noinline__ static i64 at(unsigned long long items, unsigned long long seed, i64 index) {
    cuda::pcg64 generator(seed);
    cuda::random_bijection<unsigned long long> bijection(items, generator);
    return static_cast<i64>(bijection(static_cast<unsigned long long>(index)));
  }"""
        return Members(state, "index += n;", "*static_cast<i64*>(out) = at(items, seed, index);")


@dataclass(frozen=True, eq=False)
class Zip(IteratorNode):
    """Structs of the items of several iterators."""

    parts: tuple[IteratorNode, ...]

    @property
    def children(self) -> tuple[IteratorNode, ...]:
        return self.parts

    def members(self, children: Sequence[str], operator: str) -> Members:
        offsets = [offset for *_, offset in structs.members(self.value)]
        return Members(
            " ".join(f"{child} m{i};" for i, child in enumerate(children)),
            " ".join(f"m{i}.advance(n);" for i, _ in enumerate(children)),
            " ".join(f"m{i}.read(static_cast<char*>(out) + {at});" for i, at in enumerate(offsets)),
            " ".join(f"m{i}.write(static_cast<const char*>(in) + {at});" for i, at in enumerate(offsets)),
        )


@dataclass(frozen=True, eq=False)
class Permutation(IteratorNode):
    """The items of one iterator at the positions that another one yields."""

    values: IteratorNode
    indices: IteratorNode

    @property
    def children(self) -> tuple[IteratorNode, ...]:
        return self.values, self.indices

    def slots(self, step: int = 1, read_only: bool = False) -> Iterator[Slot]:
        yield from self.values.slots(0, read_only)
        yield from self.indices.slots(step, read_only=True)

    @cached_property
    def readable(self) -> bool:
        return self.values.readable

    @cached_property
    def writable(self) -> bool:
        return self.values.writable

    def members(self, children: Sequence[str], operator: str) -> Members:
        values, indices = children
        state = f"""{values} values; {indices} indices;
  __device__ {values} at() const {{
    {cpp.type_name(self.indices.value)} index;
    indices.read(&index);
    auto there = values;
    there.advance(static_cast<i64>(index));
    return there;
  }}"""
        return Members(state, "indices.advance(n);", "at().read(out);", "at().write(in);")


@dataclass(frozen=True, eq=False)
class _Wrapper(IteratorNode):
    """A node with one child."""

    child: IteratorNode

    @property
    def children(self) -> tuple[IteratorNode, ...]:
        return (self.child,)


@dataclass(frozen=True, eq=False)
class Reverse(_Wrapper):
    """Another iterator in reverse order."""

    def slots(self, step: int = 1, read_only: bool = False) -> Iterator[Slot]:
        yield from self.child.slots(-step, read_only)

    def members(self, children: Sequence[str], operator: str) -> Members:
        return Members(f"{children[0]} child;", "child.advance(-n);", "child.read(out);", "child.write(in);")


@dataclass(frozen=True, eq=False)
class _Changing(_Wrapper):
    """A node that changes items as they are read from its child, or written to it."""

    output: bool

    @cached_property
    def readable(self) -> bool:
        return not self.output and self.child.readable

    @cached_property
    def writable(self) -> bool:
        return self.output and self.child.writable


@dataclass(frozen=True, eq=False)
class Convert(_Changing):
    """Another iterator, whose items have another type."""

    def members(self, children: Sequence[str], operator: str) -> Members:
        outer, inner = cpp.type_name(self.value), cpp.type_name(self.child.value)
        read = f"{inner} x; child.read(&x); *static_cast<{outer}*>(out) = static_cast<{outer}>(x);"
        write = f"{inner} x = static_cast<{inner}>(*static_cast<const {outer}*>(in)); child.write(&x);"
        return Members(f"{children[0]} child;", "child.advance(n);", read, write)


@dataclass(frozen=True, eq=False)
class Transform(_Changing):
    """The results of an operator on another iterator's items, or on items before they are written to it."""

    function: Operator

    @property
    def operator(self) -> Operator:
        return self.function

    def slots(self, step: int = 1, read_only: bool = False) -> Iterator[Slot]:
        yield from super().slots(step, read_only)
        if self.function.state_size:
            yield Slot("bytes", rounded_up(self.function.state_size))

    def _detail(self) -> list[Any]:
        return ["out" if self.output else "in", self.function.part()]

    def members(self, children: Sequence[str], operator: str) -> Members:
        x, size = f"{cpp.type_name(self.child.value)} x;", rounded_up(self.function.state_size)
        state = f" alignas(8) unsigned char state[{size}];" if size else ""
        first = "const_cast<unsigned char*>(state), " if size else ""
        read = f"{x} child.read(&x); {operator}({first}&x, out);"
        write = f"{x} {operator}({first}in, &x); child.write(&x);"
        return Members(f"{children[0]} child;{state}", "child.advance(n);", read, write)


DEEPEST = 100

_made: Recent[tuple[Any, ...], Any] = of_builds(Recent(512))


def interned(key: tuple[Any, ...], make: Callable[[], N]) -> N:
    """Return the node that was made for a key, or make it.

    Iterators are made for each call, with other arrays: their structure should cost only a lookup.
    Other nodes and operators are in the key by `id`, as the node keeps them alive. Nodes whose operators have
    state, as captured arrays are, would keep the user's arrays alive, and are made anew.

    Raises
    ------
    TypeError
        If nodes are nested more than 100 deep, the limit of structs, too.
    """
    try:
        return _made[key]  # type: ignore[no-any-return]
    except KeyError:
        node = make()
        if node.depth > DEEPEST:
            raise nested(f"{type(node).__name__}Iterator") from None
        if all(each.operator is None or each.operator.state is None for each in node.walk()):
            _made[key] = node
        return node


def pointer(dtype: DType) -> Pointer:
    """Return the node of an array."""
    try:
        return _made[Pointer, dtype]  # type: ignore[no-any-return]
    except KeyError:
        return interned((Pointer, dtype), lambda: Pointer(dtype))


def zipped(parts: tuple[IteratorNode, ...]) -> Zip:
    """Return the node of several iterators' items in structs."""
    key = (Zip, *map(id, parts))
    try:
        return _made[key]  # type: ignore[no-any-return]
    except KeyError:
        fields = [(f"field_{i}", part.value) for i, part in enumerate(parts)]
        return interned(key, lambda: Zip(np.dtype(fields, align=True), parts))


def description(node: IteratorNode | Any) -> str:
    """Return a node as text for messages, as in ``Transform(Counting(int32), square)``.

    Types of parameters of kernels are texts themselves.
    """
    if not isinstance(node, IteratorNode):
        return str(node)
    inner = [description(child) for child in node.children] or [structs.text(node.value)]
    if node.operator is not None:
        inner.append(node.operator.name)
    return f"{type(node).__name__}({', '.join(inner)})"


def rounded_up(size: int) -> int:
    """Return a size rounded up to a multiple of 8 bytes."""
    return -(-size // 8) * 8


@dataclass(frozen=True)
class Argument:
    """An array or iterator argument of an algorithm, for its build."""

    name: str  # of the parameter, as in "d_in"
    given: IteratorNode  # the user's
    node: IteratorNode  # as the algorithm reads or writes it: the same, or wrapped by cupar
    output: bool = False  # whether it is written

    @property
    def value(self) -> DType:
        """The dtype of the items that the algorithm reads or writes."""
        return self.node.value

    @property
    def is_pointer(self) -> bool:
        """Whether it is a plain array, for which CCCL needs no code."""
        return type(self.node) is Pointer

    @property
    def operators(self) -> dict[str, Operator]:
        """The operators of the iterators in it, by the names that their functions have."""
        found = (node.operator for node in self.node.walk())
        return {f"{self.name}_op{i}": op for i, op in enumerate(op for op in found if op is not None)}

    def converted(self, value: DType) -> Argument:
        """Return a copy that converts items to another type, or itself if the type is the same."""
        if structs.layout(value) == structs.layout(self.value):
            return self
        return replace(self, node=Convert(value, self.node, self.output))

    @property
    def advice(self) -> str:
        """Advice for messages if its item type was inferred; otherwise empty."""
        return self.given.operator.advice if self.output and self.given.operator is not None else ""

    def without_user(self, *, with_code: bool = False) -> Argument:
        """Return a copy that does not keep the user's functions alive; see `Operator.without_user`."""
        given, node = (each.without_user(with_code=with_code) for each in (self.given, self.node))
        return replace(self, given=given, node=node)

    def part(self) -> list[Any]:
        """Describe it for a key."""
        return [self.name, "out" if self.output else "in", self.node.part()]
