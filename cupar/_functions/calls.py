"""One call of a function: its arguments as operands, and work for a library and a stream."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from ctypes import c_size_t, c_uint64, c_void_p
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .. import _pytorch, structs
from .._base import device, sizes
from .._base.errors import ArgumentError, ArgumentTypeError, ArgumentValueError, of_parameter
from .._device import arrays, driver
from .._ir.iterator import ENDLESS, Iterator, over
from .._program import known as programs
from .._program.memory import LibraryArray, Memory
from .._program.trace import CannotTraceError, Trace
from ..host import View
from ..iterators import ConstantIterator, TransformIterator, ZipIterator
from ..operators import OpKind
from ..transform import unary_transform
from . import libraries, operators
from .axes import collapsed, constant, strided
from .libraries import ArrayLibrary
from .values import cast, check_same_kind, flag, integer

if TYPE_CHECKING:
    from .._base.annotations import Array


class Operand:
    """An array, an iterator or a tuple of arrays, as kernels take it.

    Attributes
    ----------
    own : array or tuple of arrays
        The library's; None of an iterator and of temporaries.
    items : array or iterator
        The items in C's order, one after another.
    shape : tuple of int
    dtype : numpy.dtype
        That of a tuple is a struct.
    parts : tuple of Operand
        Those of a tuple; else empty.
    """

    __slots__ = ("dtype", "items", "own", "parts", "shape")

    def __init__(self, own: Any, items: Any, shape: tuple[int, ...], parts: tuple[Operand, ...] = ()) -> None:
        self.own, self.items, self.shape, self.parts = own, items, shape, parts
        self.dtype: np.dtype[Any] = items.dtype

    @property
    def once(self) -> Any:
        """The items, for who reads each of them once."""
        return self.items

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of items."""
        return math.prod(self.shape)


class Line(Operand):
    """An array of one dimension on a GPU whose items do not lie one after another.

    They are copied where `items` is asked for.
    """

    __slots__ = ("_items", "_memory", "_work")

    def __init__(self, work: Work, own: Any, memory: Any) -> None:
        self.own, self.shape, self.parts, self.dtype = own, memory.shape, (), memory.dtype
        self._work, self._memory, self._items = work, memory, None

    @property
    def items(self) -> Any:
        if self._items is None:
            self._items = self._work.gathered(self._memory)
        return self._items

    @property
    def once(self) -> Any:
        parts = [] if self._items is not None else [*self._work.strided_parts(self._memory)]
        return parts[0][0] if parts else self.items


# Results of functions by their dtype: an `Operand` has that of the function's first operand.
Integers: TypeAlias = Operand  # int64
Flags: TypeAlias = Operand  # bool
Numbers: TypeAlias = Operand  # any dtype


class Work:
    """The context of a call: a library, its device and a stream; and its trace, if a program is made of it.

    While a call is traced, extents and addresses are sizes: see `_base.sizes`.
    """

    def __init__(self, library: ArrayLibrary, stream: Any, trace: Trace | None = None) -> None:
        self.library = library
        self.stream = library.stream() if stream is None else stream
        self._given, self._trace = stream, trace

    # --- Memory ------------------------------------------------------------------------------------------

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Operand:
        """Return a new array of the library's; of a struct's fields, a tuple of arrays."""
        found = tuple(shape)
        if dtype.names is not None:
            return zipped([self.empty(found, each) for _, each, _ in structs.members(dtype)])
        if self._trace is not None:
            return _traced(*self._trace.empty(found, dtype))
        return self.operand(self.library.empty(found, dtype))

    @property
    def is_traced(self) -> bool:
        """Whether a program is made of the call."""
        return self._trace is not None

    def cannot_trace(self, because: str) -> None:
        """Raise an error while the call is traced, before it does something that no program has."""
        if self._trace is not None:
            raise CannotTraceError(because)

    def copied(self, source: int, target: int, nbytes: int) -> None:
        """Have the driver copy bytes on the device from one address to another."""
        if self._trace is not None:
            self._trace.copy(source, target, nbytes, libraries.copy_on_device)
        target, source, nbytes = map(sizes.value_of, (target, source, nbytes))
        libraries.copy_on_device(target, source, nbytes, self.stream)

    def temporary(self, size: int, dtype: np.dtype[Any]) -> Any:
        """Return items of any dtype, structs too, in memory of the library's."""
        memory = self.empty((max(size, 1) * dtype.itemsize,), np.dtype(np.uint8)).items
        if isinstance(memory, View):
            return type(memory)(memory.address, dtype, (size,), (dtype.itemsize,), True, memory)
        return memory.view(dtype)[:size]

    def operand(self, array: Any, name: str = "x") -> Operand:
        """Return an array of the library's as an operand.

        One in another order than C's is copied, by a kernel if it has one dimension, and so is one in host
        memory that is not aligned. Items are structs without gaps, which views of some fields of records
        have, as results have none.
        """
        if self._trace is not None:
            line = self._trace.line(array)
            if line is None:
                return _traced(*self._trace.array(array))
            return Line(self, *line)
        memory = self.library.memory(array)
        dtype, shape = structs.normal(name, memory.dtype), tuple(memory.shape)
        closed = dtype if dtype.names is None else structs.closed(dtype)
        if not isinstance(memory, View):
            flat = np.ascontiguousarray(memory).reshape(-1)
            if dtype.names is not None:
                flat = flat.view(dtype)  # which knows its alignment
            if not flat.flags.aligned or closed != dtype:
                flat = flat.astype(closed)
            return Operand(array, flat, shape)
        if not arrays.read(name, memory, False).c_order:
            if len(shape) == 1 and closed == dtype:
                return Line(self, array, memory)
            copied = self.library.contiguous(array)
            if copied is None:
                return Operand(array, self.gathered(memory), shape)
            array, memory = copied, self.library.memory(copied)
        size = memory.size
        items: Any = View(memory.address, dtype, (size,), (dtype.itemsize,), True, memory)
        if closed != dtype:
            items = TransformIterator(items, operators.plain(dtype), closed)
        return Operand(array, items, shape)

    def output(self, array: Any, shape: Sequence[int]) -> Operand:
        """Return an array that a call writes to, of a shape, while the call is traced."""
        assert self._trace is not None
        found = _traced(*self._trace.output(array))
        if found.shape != tuple(shape):
            raise CannotTraceError("an array of another shape")
        return found

    def gathered(self, memory: View) -> Any:
        """Return a copy of a strided array in C's order."""
        out, at = self.temporary(memory.size, memory.dtype), 0
        for items, size in self.strided_parts(memory):
            self.copy(items, out[at : at + size], size)
            at += size
        return out

    def strided_parts(self, memory: View) -> Iterable[tuple[Any, int]]:
        """Yield the items of a strided array in C's order, to read or to write: iterators and their sizes."""
        size, itemsize = memory.size, memory.itemsize
        if not size:
            return
        steps = tuple(each // itemsize for each in memory.strides)
        shape, strides = collapsed(memory.shape, steps)
        if len(shape) > 4:
            for i in range(memory.shape[0]):
                yield from self.strided_parts(memory[i])
            return
        reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
        low, high = sum(each for each in reach if each < 0), sum(each for each in reach if each > 0)
        address = memory.address + low * itemsize
        flat = type(memory)(address, memory.dtype, (high - low + 1,), (itemsize,), True, memory)
        if not strides or (len(strides) == 1 and strides[0] == 1):  # in C's order
            yield flat, size
        else:
            yield strided(over("x", flat) + -low if low else flat, shape, strides), size

    def permuted(self, x: Operand, axes: tuple[int, ...]) -> Operand:
        """Return a copy with the axes in another order."""
        if axes == tuple(range(x.ndim)) or x.size <= 1:
            return Operand(x.own, x.items, tuple(x.shape[i] for i in axes), x.parts)
        if x.parts:
            return zipped([self.permuted(each, axes) for each in x.parts])
        items, shape = x.items, tuple(x.shape[i] for i in axes)
        if isinstance(items, Iterator):  # over an array of several dimensions
            items = self.kept(items, x.size)
        strides = [math.prod(x.shape[i + 1 :]) * x.dtype.itemsize for i in axes]
        if isinstance(items, View):
            moved = type(items)(items.address, x.dtype, shape, strides, True, items)
            return Operand(None, self.gathered(moved), shape)
        flat = np.ascontiguousarray(items.reshape(x.shape).transpose(axes)).reshape(-1)
        return Operand(None, flat, shape)

    # --- Shared by all functions ---------------------------------------------------------------------------

    def part(self, function: Callable[..., Operand], inputs: Sequence[Operand], *arguments: Any) -> Operand:
        """Return a function's result, as a call that has a program of its own where the whole has none."""
        given = tuple([each.own for each in inputs])
        if self._trace is not None or not all(map(libraries.is_array, given)):
            return function(self, *inputs, *arguments)
        return self.operand(enter(function, given, arguments, self._given))

    def run(self, algorithm: Any, *arguments: Any, **named: Any) -> None:
        """Enqueue a call."""
        if self._trace is not None:
            self._trace.run(algorithm, algorithm.completed(arguments, named), self.stream)
            return
        algorithm.run(*arguments, stream=self.stream, **named)

    def copy(self, source: Any, out: Any, size: int, op: Any = OpKind.IDENTITY) -> None:
        """Write an operator's results for items, or the items."""
        if size:
            self.run(unary_transform(source, out, op), source, out, size)

    def made(self, source: Any, shape: Sequence[int], dtype: np.dtype[Any] | None = None) -> Operand:
        """Return an array of an iterator's items."""
        out = self.empty(shape, source.dtype if dtype is None else dtype)
        self.copy(source, out.items, out.size)
        return out

    def kept(self, source: Any, size: int, dtype: np.dtype[Any] | None = None) -> Any:
        """Return a temporary with an iterator's items, or the items themselves if they are an array."""
        if not isinstance(source, Iterator) and (dtype is None or dtype == source.dtype):
            return source
        out = self.temporary(size, source.dtype if dtype is None else dtype)
        self.copy(source if dtype is None else cast(source, dtype), out, size)
        return out

    def host(self, given: Any, name: str = "size") -> Any:
        """Return items of an array on the host, once they are there."""
        self.cannot_trace("a read of what are no lengths")
        own = given.own if isinstance(given, Operand) else given
        self._check_not_captured(name)
        if isinstance(own, View):
            return _host_of(own, driver.stream_handle(self.stream))
        with self.library.on(self.stream):
            return self.library.host(own)

    def lengths(self, given: Operand, name: str = "size") -> list[Any]:
        """Return numbers of an array on the host; a call that is traced can depend on integers alone."""
        if self._trace is None:
            found: list[Any] = self.host(given, name).reshape(-1).tolist()
            return found
        self._check_not_captured(name)
        if not isinstance(given.own, LibraryArray):
            raise CannotTraceError("a read of what is no array")
        with self.library.on(self.stream):
            return self._trace.read(given.items, self.library.host(given.own.real).reshape(-1))

    def _check_not_captured(self, name: str) -> None:
        if not self.library.on_cpu and driver.is_captured(driver.stream_handle(self.stream)):
            raise ArgumentValueError(
                name,
                "expected a number while the stream is being captured, as a graph cannot read the "
                "length of the result, got None",
            )

    def put(self, given: np.ndarray[Any, Any], size: Any = None) -> Any:
        """Return a copy of a host array in the library's memory.

        With a size, its length, a program makes it anew in each call. It may be a size itself then.
        """
        with self.library.on(self.stream):
            found = self.library.put(sizes.value_of(given))
        if self._trace is not None:
            self._trace.put(found, given, size)
        return found

    def fresh(self, x: Operand, given: np.ndarray[Any, Any]) -> Operand:
        """Return an array that `put` has made of one of the host as a result, which is the user's."""
        if self._trace is None:
            return x
        if self.library.on_cpu:
            return self.operand(self.put(given, len(given)))
        return self.made(x.items, x.shape)  # in the launch of other kernels

    def first(self, x: Operand, count: int) -> Operand:
        """Return the first items of an array, in the same memory."""
        if x.parts:
            return zipped([self.first(each, count) for each in x.parts])
        return Operand(x.own[:count], x.items[:count], (count, *x.shape[1:]))

    def cut(self, results: Sequence[Operand], count: Operand, size: Any, number: int = 0) -> tuple[Any, ...]:
        """Return results as long as a count says, which is read; or of a given size, and then the count."""
        if size is None:
            known = self.lengths(count)[number]
            return tuple(self.first(each, known) for each in results)
        return (*(self.first(each, size) for each in results), count)


def _traced(own: LibraryArray, memory: Memory) -> Operand:
    flat = Memory(memory.address, memory.dtype, (memory.size,), (memory.itemsize,), True, memory)
    return Operand(own, flat, memory.shape)


def _host_of(memory: View, stream: int) -> np.ndarray[Any, Any]:
    found = np.empty(memory.size, memory.dtype)
    if memory.size:
        places = c_void_p(found.ctypes.data), c_uint64(memory.address)
        driver.call("cuMemcpyDtoHAsync_v2", *places, c_size_t(found.nbytes), c_void_p(stream))
    driver.call("cuStreamSynchronize", c_void_p(stream))
    return found


def zipped(parts: Sequence[Operand]) -> Operand:
    """Return several operands of one shape as one: a tuple of arrays."""
    items = ZipIterator(*[each.items for each in parts])
    return Operand(tuple(each.own for each in parts), items, parts[0].shape, tuple(parts))


# --- Operands ---------------------------------------------------------------------------------------------


def array_in(given: Any) -> Any:
    """Return the first array among arguments, or None."""
    if isinstance(given, tuple):
        found = [array_in(each) for each in given]
    elif isinstance(given, Iterator):
        leaves = [leaf.given for leaf in given.leaves if leaf.is_array]
        found = [each for each in leaves if libraries.is_array(each)]
    else:
        return given
    for each in found:  # no generator, at whose end Ctrl-C would be lost
        if each is not None:
            return each
    return None


def _has_iterator(given: Any) -> bool:
    return isinstance(given, Iterator) or (isinstance(given, tuple) and any(map(_has_iterator, given)))


def operand_of(work: Work, name: str, given: Any, num_items: int | None) -> Operand:
    """Return an argument as an operand; raise TypeError or ValueError, beginning with `name`."""
    if isinstance(given, tuple):
        if not given:
            raise ArgumentValueError(name, "expected an array or a tuple of arrays, got an empty tuple")
        parts = [operand_of(work, f"{name}[{i}]", each, num_items) for i, each in enumerate(given)]
        for i, each in enumerate(parts):
            if each.shape != parts[0].shape:
                raise ArgumentValueError(
                    f"{name}[{i}]", f"expected the shape of {name}[0], {parts[0].shape}, got {each.shape}"
                )
        return zipped(parts)
    if isinstance(given, Iterator):
        size = capacity = given.capacity(name)
        if num_items is not None:
            size = integer("num_items", num_items, None if capacity == ENDLESS else capacity)
        if size == ENDLESS:
            raise ArgumentValueError(name, "no array bounds this iterator; expected num_items, got None")
        return Operand(None, given, (size,))
    found = libraries.of(name, given)
    if found.on_cpu != work.library.on_cpu:
        where = "in host memory" if work.library.on_cpu else "on a GPU"
        raise ArgumentTypeError(
            name, f"expected an array {where}, as the first one is, got a {type(given).__name__}"
        )
    library, work.library = work.library, found
    try:
        return work.operand(given, name)
    except ArgumentError as error:
        error.rename({error.parameter: name})
        raise
    except (TypeError, ValueError, RuntimeError) as error:  # PyTorch's are RuntimeErrors
        raise of_parameter(name, error) from None
    finally:
        work.library = library


def _number(name: str, value: Any, other: np.dtype[Any]) -> Operand:
    """Return a number as an array without dimensions, of the dtype that NumPy promotes it to with another.

    One that such a dtype has not is of NumPy's own for it.
    """
    if sizes.is_size(value):
        dtype = np.result_type(other, value.value)
        (is_lost,) = sizes.apply(_is_lost, value, dtype)
        return Operand(None, constant(value) if is_lost else ConstantIterator.of(value, dtype), ())
    dtype = np.result_type(other, value)
    number = np.asarray(value) if _is_lost(value, dtype)[0] else np.asarray(value, dtype)
    if number.dtype.kind == "O":
        raise ArgumentTypeError(name, f"expected a number of at most 64 bits, got {value}")
    return Operand(None, constant(number[()]), ())


def _is_lost(value: Any, dtype: np.dtype[Any]) -> tuple[int]:
    """Return 1 if a dtype does not have an integer."""
    try:
        return (int(isinstance(value, int) and np.asarray(value, dtype).item() != value),)
    except OverflowError:
        return (1,)


def output_of(
    work: Work,
    out: Array | None,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    inputs: Sequence[Operand],
    in_order: bool = True,
) -> Operand:
    """Return where results go: a new array, or `out`, checked.

    It may be an input only if both are gone through `in_order`.
    """
    if out is None:
        return work.empty(shape, dtype)
    if dtype.names is not None:
        fields = [each for _, each, _ in structs.members(dtype)]
        if not isinstance(out, tuple) or len(out) != len(fields):
            raise ArgumentTypeError(
                "out", f"expected a tuple of {len(fields)} arrays, as `x` is one, got {_kind(out)}"
            )
        given = zip(out, fields, strict=True)
        return zipped([output_of(work, one, shape, each, inputs, in_order) for one, each in given])
    if isinstance(out, Iterator):
        check_same_kind("out", dtype, out.dtype)
        return Operand(out, out, shape)
    found = libraries.of("out", out)
    memory = found.memory(out)
    check_same_kind("out", dtype, structs.normal("out", memory.dtype))
    if tuple(memory.shape) != tuple(map(sizes.value_of, shape)):  # a trace checks sizes below
        raise ArgumentValueError("out", f"expected shape {shape}, got {tuple(memory.shape)}")
    access = arrays.read("out", memory, found.on_cpu)
    if not access.writable:
        raise ArgumentValueError("out", "expected an array to write to, got a read-only one")
    if not access.c_order:
        raise ArgumentValueError("out", "expected an array in C's order, got a strided one")
    begin, end = libraries.address(memory, found.on_cpu)
    if begin % memory.dtype.alignment:
        aligned = f"an array aligned to {memory.dtype.alignment} bytes"
        raise ArgumentValueError("out", f"expected {aligned}, got one at {begin:#x}")
    target = work.operand(out, "out")
    if work.is_traced:
        target = work.output(out, shape)
        begin, end = libraries.address(target.items, work.library.on_cpu)
    for each in inputs:
        leaves = over("x", each.items).leaves
        for leaf in [one for one in leaves if one.is_array]:
            other, last = libraries.address(leaf.given, work.library.on_cpu)
            if sizes.apply(_overlap, begin, end, other, last) != (0,):
                work.cannot_trace("an array of the call that is written")
                itself = in_order and leaf.reads_in_order
                if not itself or (other, last) != (begin, end):
                    wanted = (
                        "the input itself or an array apart from it"
                        if itself
                        else "an array apart from inputs"
                    )
                    raise ArgumentValueError("out", f"expected {wanted}, got one that overlaps it")
    return target


def _overlap(begin: int, end: int, other: int, last: int) -> tuple[int]:
    """Return 1 if two pieces of memory overlap: one guard of a trace, whichever comes first."""
    return (int(other < end and begin < last),)


def same_memory(work: Work, one: Operand, other: Operand) -> bool:
    """Whether two operands, of arrays in C's order, are in the same memory."""
    if isinstance(one.items, Iterator) or isinstance(other.items, Iterator):
        return True
    first, second = (libraries.address(each.items, work.library.on_cpu) for each in (one, other))
    return sizes.apply(_overlap, *first, *second) != (0,)


def _kind(value: Any) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else type(value).__name__


def given_back(result: Any) -> Any:
    """Return the arrays of operands."""
    if isinstance(result, Operand):
        return result.own
    if isinstance(result, tuple):
        backed = [given_back(each) for each in result]
        return type(result)(*backed) if hasattr(result, "_fields") else tuple(backed)
    return result


_OPTIONAL = frozenset(("where", "weights", "initial", "sorter", "prepend", "append"))


def enter(
    function: Callable[..., Any],
    inputs: tuple[Any, ...],
    arguments: tuple[Any, ...] = (),
    stream: Any = None,
    like: Any = None,
    num_items: Any = None,
    numbers: bool = False,
    optional: Collection[str] = _OPTIONAL,
    of: Callable[..., Any] | None = None,
    prefix: str = "",
) -> Any:
    """Call a function with operands, and return arrays of the library of the first array among them.

    Parameters
    ----------
    function : callable
        Takes the work, an operand for each input, None for None, and the arguments.
    inputs : tuple
        Arrays, tuples of arrays, iterators or None.
    arguments : tuple
        What follows behind the inputs.
    stream, like, num_items
        As for the functions of `cupar.arrays`.
    numbers : bool
        Whether a number may stand for an array, in a dtype that follows those of arrays.
    optional : collection of str
        The inputs that may be None.
    of : callable, optional
        The function whose parameters errors name, if it is another one.
    prefix : str, optional
        The parameter that has the inputs; by default they are the function's own first parameters.
    """
    result = None
    if like is None and num_items is None:
        if stream is None:
            result = programs.call(function, inputs, arguments)
        else:
            result = _on(stream, function, inputs, arguments)
        if result is not None and type(result) is not programs.Miss:
            return result
    named = dict(zip(_names_of(function, len(inputs), prefix), inputs, strict=True))
    return _entered(function, named, arguments, stream, like, num_items, numbers, optional, of, result)


def _entered(
    function: Callable[..., Any],
    inputs: dict[str, Any],
    arguments: tuple[Any, ...],
    stream: Any,
    like: Any,
    num_items: Any,
    numbers: bool,
    optional: Collection[str],
    of: Callable[..., Any] | None,
    miss: programs.Miss | None,
) -> Any:
    """Make a call that no program has made: the general path."""
    for name, each in inputs.items():
        if each is None and name not in optional:
            libraries.of(name, None)
    if num_items is not None and not any(_has_iterator(each) for each in inputs.values()):
        raise ArgumentTypeError("num_items", f"expected None, as there is no iterator, got {num_items!r}")
    skipped = (bool, int, float, complex) if numbers else ()
    candidates = {"like": like} if like is not None else inputs
    for name, each in candidates.items():
        first = None if isinstance(each, skipped) else array_in(each)
        if first is not None:
            library = libraries.of(name, first)
            break
    else:
        said = f"as `{next(iter(inputs))}` has none" if inputs else f"got {like!r}"
        raise ArgumentTypeError("like", f"expected an array of the library that makes the result, {said}")

    def make(trace: Trace | None = None) -> Any:
        work = Work(library, stream, trace)
        operands: list[Operand | None] = []
        for place, name in _flags_of(function, of):
            flag(name, arguments[place - len(inputs)])
        given = (*inputs.values(), *arguments) if trace is None else trace.arguments
        for name, each in zip(inputs, given, strict=False):
            if numbers and isinstance(sizes.value_of(each), (bool, int, float, complex)):
                operands.append(_number(name, each, library.memory(first).dtype))
            else:
                operands.append(None if each is None else operand_of(work, name, each, num_items))
        return given_back(function(work, *operands, *given[len(inputs) :]))

    call: Callable[[], Any] = make
    try:
        if miss is not None and miss.is_due:
            call = partial(programs.traced, miss, library, make)
        if stream is None:
            result = device.using(True, call) if library.on_cpu else call()
        else:
            with library.on(stream):
                result = device.using(True, call) if library.on_cpu else call()
    except ArgumentError as error:
        known = inspect.signature(function if of is None else of).parameters
        error.rename({name: each for name, each in _SAID_AS if name not in known and each in known})
        raise
    return result


_pytorch.leave_eager(enter)
_pytorch.leave_eager(programs.call)


def _on(stream: Any, function: Any, given: tuple[Any, ...], arguments: tuple[Any, ...]) -> Any:
    """Make a call by a program on a stream, as `programs.call` does on the current one."""
    for each in given:
        if libraries.is_array(each):
            library = libraries.of("x", each)
            with library.on(stream):
                is_current = library.on_cpu or library.stream() == driver.stream_handle(stream)
                return programs.call(function, given, arguments) if is_current else None
    return None


@lru_cache(512)
def _names_of(function: Callable[..., Any], inputs: int, prefix: str) -> tuple[str, ...]:
    """Return the names of inputs in errors."""
    if prefix:
        return tuple([f"{prefix}[{i}]" for i in range(inputs)])
    names = [*inspect.signature(function).parameters][1 : inputs + 1]
    return tuple([name.rstrip("_") for name in names])


@lru_cache(512)
def _flags_of(function: Callable[..., Any], of: Callable[..., Any] | None) -> tuple[tuple[int, str], ...]:
    """Return the bools among the parameters behind the work: which ones they are, and their names."""
    kinds = (function if of is None else of).__annotations__
    names = [*inspect.signature(function).parameters][1:]
    return tuple((i, name) for i, name in enumerate(names) if kinds.get(name) == "bool")


# Algorithms' names of parameters, and names of the same in functions made of them, of which the last counts.
_SAID_AS = (
    ("comp", "predicate"),
    ("comp", "less"),
    ("cond", "less"),
    ("cond", "predicate"),
    ("op", "less"),
    ("op", "predicate"),
    ("select_first_part_op", "predicate"),
    ("transform_op", "op"),
    ("transform_op", "predicate"),
    ("transform_op", "transform"),
    ("start_offsets_in", "starts"),
    ("end_offsets_in", "ends"),
    ("equality_op", "equal"),
)
