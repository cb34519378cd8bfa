"""A trace: what a call allocates, launches and reads, with sizes in place of numbers."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from itertools import groupby
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from .. import structs
from .._arguments.order import parameters_of, signature
from .._arguments.segments import counts_of_rows, row_length
from .._base.sizes import Size, is_size, level_of, text_of, value_of
from .._cpu.offsets import SegmentOffsets
from .._device import arrays
from .._device.readers import TORCH, ArraySyntax
from .._fingerprint import walk
from .._fingerprint.numbers import Number
from .._fingerprint.varying import Argument, Place, place_of, reader
from .._ir.iterator import Iterator, Packed, capacity_of
from .._ir.operator import FixedState
from .memory import LibraryArray, Memory, base_of, in_c_order, without_sizes


class CannotTraceError(Exception):
    """A call does something that no program has."""


class Define(NamedTuple):
    """A line that computes a size."""

    name: str
    text: str
    level: int


class Guard(NamedTuple):
    """A condition under which the program is of another call."""

    text: str
    level: int


class Allocate(NamedTuple):
    """A new array of the library's: variable ``r_k``, at ``b_k``."""

    number: int
    shape: tuple[Any, ...]
    dtype: np.dtype[Any]
    own: LibraryArray


class Copied(NamedTuple):
    """An array that a method of the library makes of another one: variable ``r_k``, at ``b_k``."""

    number: int
    method: str
    source: str
    own: LibraryArray


class Launch(NamedTuple):
    """A call of an algorithm: the expressions for its problem, and for its values by name."""

    algorithm: Any
    problem: str
    values: dict[str, str]

    def caller(self) -> Any:
        """Return the function that makes the call, of a stream and the values: see `Algorithm.caller`."""
        return self.algorithm.caller("problem", *self.values)

    def text(self) -> str:
        """Return the expression for the tuple of its problem and values."""
        return f"({''.join([f'{each}, ' for each in (self.problem, *self.values.values())])})"


class Copy(NamedTuple):
    """A copy of bytes from one address to another, by the driver."""

    target: str
    source: str
    nbytes: str


class Read(NamedTuple):
    """Integers that are read from an address to the host: variables ``c_k``, and so on."""

    number: int
    address: str
    dtype: np.dtype[Any]
    items: int


Line = Define | Guard | Allocate | Copied | Launch | Copy | Read


def texts_of(line: Line) -> list[str]:
    """Return the expressions of a line."""
    if isinstance(line, Allocate):
        return [each.text for each in line.shape if is_size(each)]
    if isinstance(line, Launch):
        return [line.problem, *line.values.values()]
    if isinstance(line, Copy):
        return [*line]
    if isinstance(line, Copied):
        return [line.source]
    return [line.address if isinstance(line, Read) else line.text]


class Trace:
    """What a call does, written down while it is made.

    Parameters
    ----------
    library : ArrayLibrary
        Its arrays are those of the call.
    given : sequence of arrays
        The arrays of the call.
    numbers : sequence of int or float
        The numbers of the call that vary.

    Attributes
    ----------
    given : sequence of arrays
    syntaxes : list of ArraySyntax
        Those of the arrays.
    numbers : list of Size
    arguments : sequence
        Those of the call, with sizes in place of numbers that vary.
    lines : list of Line
    names : dict
        The values that lines name.
    strided : set of int
        The arrays whose stride, ``t_i``, lines name.
    """

    def __init__(self, library: Any, given: Sequence[Any], numbers: Sequence[Any] = ()) -> None:
        self.library, self.lines, self.names = library, list[Line](), dict[str, Any]()
        self.level = 0
        self._made: dict[int, Any] = {}  # arrays that the call allocates or may write to, by id
        self.given, self.syntaxes = given, [*map(_syntax_of, given)]
        self.strided: set[int] = set()
        self._sizes: dict[str, Size] = {}
        self._guards: set[str] = set()
        self._kept: dict[int, str] = {}  # by the id of a value that `names` has
        self.arguments: Sequence[Any] = ()
        self._fixed: list[str] = []
        self._counts = {"r": 0, "c": 0, "k": 0}
        self.numbers = [Size(each, f"v_{i}", self) for i, each in enumerate(numbers)]
        self._inputs = [self._input(i, x) for i, x in enumerate(given)]
        self._operators: Sequence[Any] = ()  # that the call is given
        # By places of numbers that they read: which one of them does, and the number.
        self._places: dict[Place, tuple[int, Number]] = {}
        self._texts: dict[Argument, str] = {}  # of those that are arguments
        self._known: dict[int, tuple[LibraryArray, Memory]] = {}  # by the id of an array that `names` has
        for i, x in enumerate(given):  # functions tell arrays apart by what they are, as `array` does
            if (first := self.first_of(x)) != i:
                self.guard(f"x_{i} is not x_{first}", 0)

    # --- Sizes -------------------------------------------------------------------------------------------

    def define(self, text: str, value: Any, level: int, kind: str = "n") -> Size:
        """Return the size of an expression; equal expressions have one variable."""
        known = self._sizes.get(text)
        if known is None:
            name = f"{kind}{len(self._sizes)}"
            known = self._sizes[text] = Size(value, name, self, level)
            self.lines.append(Define(name, text, level))
        return known

    def guard(self, text: str, level: int) -> None:
        """Record a condition under which the trace does not hold."""
        if text not in self._guards and not _NEVER.fullmatch(text):
            self._guards.add(text)
            self.lines.append(Guard(text, level))

    def fix(self, size: Size) -> None:
        """Record the condition that a size, an int or a float, has this value."""
        value = size.value
        if isinstance(value, float) and (not value or not math.isfinite(value)):  # 0.0 is not -0.0
            said = "True" if math.isnan(value) else f"repr(float({size.text})) != {str(float(value))!r}"
        else:
            said = f"{size.text} != {text_of(value)}"
        self._fixed.append(size.text)
        self.guard(said, size.level)

    def fixed_numbers(self) -> set[int]:
        """Return the indices of the numbers on which a size depends that must have its value."""
        defined = {size.text: text for text, size in self._sizes.items()}
        found, texts = set[int](), [*self._fixed]
        while texts:
            for kind, index in _NUMBERS.findall(texts.pop()):
                if kind == "v_":
                    found.add(int(index))
                else:
                    texts.append(defined.pop(kind + index, ""))
        return found

    def _new(self, kind: str) -> int:
        self._counts[kind] += 1
        return self._counts[kind] - 1

    def keep(self, value: Any) -> str:
        """Return a name for a value."""
        name = self._kept.get(id(value))
        if name is None:
            name = self._kept[id(value)] = f"_k{self._new('k')}"
            self.names[name] = value
        return name

    def apply(self, function: Any, arguments: tuple[Any, ...]) -> tuple[Size, ...]:
        """Return the results of a function of sizes."""
        text = f"{self.keep(function)}({', '.join(map(self._number, arguments))})"
        values: Any = function(*map(value_of, arguments))
        # It may raise, so that its line stays where no other one uses the results.
        every = self.define(text, values, level_of(*arguments), "h")
        return tuple([self.define(f"{every.text}[{i}]", one, every.level) for i, one in enumerate(values)])

    def end(self) -> None:
        """Forget all, as sizes have their trace: what programs have is to go with these."""
        vars(self).clear()

    # --- Arrays ------------------------------------------------------------------------------------------

    def _input(self, i: int, x: Any) -> tuple[LibraryArray, Memory] | None:
        """Return an array of the call, and its memory; None if it does not lie in C's order."""
        dtype = structs.normal("x", self.library.memory(x).dtype)
        if dtype.names is not None and structs.closed(dtype) != dtype:
            raise CannotTraceError("structs with gaps")
        if not eval(self.syntaxes[i].c_order.replace("{v}", "x"), {"x": x}):
            return None
        return LibraryArray(x, f"x_{i}"), self._memory(x, f"a_{i}", 0, dtype, self._extents(i, x))

    def line(self, array: Any) -> tuple[LibraryArray, Memory] | None:
        """Return an array of one dimension on a GPU whose items do not lie one after another, and its memory.

        None of others.
        """
        i = self.first_of(array)
        if i is None or self._inputs[i] is not None or array.ndim != 1 or self.library.on_cpu:
            return None
        dtype, syntax = structs.normal("x", self.library.memory(array).dtype), self.syntaxes[i]
        (found,) = eval(syntax.strides.replace("{v}", "x"), {"x": array})
        stride: Any = Size(found, f"t_{i}", self)
        self.strided.add(i)
        if syntax is TORCH:  # in items
            stride = stride * dtype.itemsize
        address: Any = Size(self._read(array).address, f"a_{i}", self)
        memory = Memory(address, dtype, self._extents(i, array), [stride], False, array)
        return LibraryArray(array, f"x_{i}"), memory

    def _extents(self, i: int, x: Any) -> list[Any]:
        return [Size(n, f"s_{i}_{axis}", self) for axis, n in enumerate(x.shape)]

    def _memory(self, x: Any, name: str, level: int, dtype: np.dtype[Any], shape: Sequence[Any]) -> Memory:
        """Return the memory of an array in C's order, whose address is a size."""
        return in_c_order(Size(self._read(x).address, name, self, level), dtype, shape, x)

    def _read(self, x: Any) -> arrays.ArrayView:
        return arrays.read("", self.library.memory(x), self.library.on_cpu)

    def first_of(self, array: Any) -> int | None:
        """Return the index of an array of the call, which may be given several times; None of others."""
        found = [i for i, each in enumerate(self.given) if each is array]
        return found[0] if found else None

    def array(self, array: Any) -> tuple[LibraryArray, Memory]:
        """Return an array of the call, or one that was put on the device, and its memory in C's order."""
        i = self.first_of(array)
        if i is not None:
            found = self._inputs[i]
            if found is None:
                found = self._inputs[i] = self._contiguous(i, array)
            return found
        if id(array) in self._known:
            return self._known[id(array)]
        raise CannotTraceError("an array from elsewhere")

    def _contiguous(self, i: int, x: Any) -> tuple[LibraryArray, Memory]:
        """Copy a strided array of the call to C's order."""
        copied = self.library.contiguous(x)
        if copied is None or copied is x:
            raise CannotTraceError("a strided array that the library does not copy")
        return self._copied(copied, "contiguous", f"x_{i}", self._extents(i, x))

    def _copied(
        self, made: Any, method: str, source: str, shape: Sequence[Any]
    ) -> tuple[LibraryArray, Memory]:
        """Record an array that a method of the library has made of another one."""
        dtype = structs.normal("x", self.library.memory(made).dtype)
        return self._new_array(made, dtype, shape, Copied, method, source)

    def output(self, array: Any) -> tuple[LibraryArray, Memory]:
        """Return an array of the call that it writes to, and its memory."""
        own, memory = self.array(array)
        if own.real is not array or not _is_aligned(memory):
            raise CannotTraceError("a strided array that is written to, or one that is not aligned")
        self._made[id(array)] = array
        return own, memory

    def empty(self, shape: Sequence[Any], dtype: np.dtype[Any]) -> tuple[LibraryArray, Memory]:
        """Allocate an array."""
        return self._allocated(self.library.empty(tuple(map(value_of, shape)), dtype), shape, dtype)

    def _allocated(
        self, made: Any, shape: Sequence[Any], dtype: np.dtype[Any]
    ) -> tuple[LibraryArray, Memory]:
        """Record an array that was allocated."""
        return self._new_array(made, dtype, shape, Allocate, tuple(shape), dtype)

    def _new_array(
        self, made: Any, dtype: np.dtype[Any], shape: Sequence[Any], line: Any, *parts: Any
    ) -> tuple[LibraryArray, Memory]:
        """Record the line of a class that makes an array."""
        index, self._made[id(made)] = self._new("r"), made
        own = LibraryArray(made, f"r_{index}")
        self.lines.append(line(index, *parts, own))
        return own, self._memory(made, f"b_{index}", self.level + 1, dtype, shape)

    def put(self, given: Any, source: Any, size: Any) -> None:
        """Take an array that the library has made of one of the host.

        With a size, its length, each call makes one; the host's may be a size, too. Otherwise all calls read
        the same one, which is no result of theirs.
        """
        if size is not None:
            text = source.text if is_size(source) else self.keep(source.copy())  # which may change
            self._known[id(given)] = self._copied(given, "put", text, (size,))
            return
        shape, view = self.library.memory(given).shape, self._read(given)
        own = LibraryArray(given, self.keep(given))
        self._known[id(given)] = own, in_c_order(view.address, view.dtype, shape, given)

    def value_of(self, result: Any) -> Any:
        """Return the result of the call that is traced: the arrays themselves."""
        if isinstance(result, tuple):
            values = [self.value_of(each) for each in result]
            return tuple(values) if type(result) is tuple else type(result)(*values)
        return result.real if isinstance(result, LibraryArray) else result

    # --- Numbers that operators read -----------------------------------------------------------------------

    def read_numbers_of(self, operators: Sequence[Any]) -> None:
        """Have numbers that these operators read be read in each call, if they are arguments."""
        self._operators = operators
        for i, op in enumerate(operators):
            found = walk.fingerprint(op)
            for each in found.numbers if type(op) is FunctionType else ():
                self._places.setdefault(place_of(op, found, each), (i, each))

    def _of_numbers(self, state: FixedState) -> str:
        """Return the expression for the state of an operator; empty if it is the same in all calls."""
        if not {each.place for each in state.arguments} <= {*self._places}:
            return ""
        for each in state.arguments:
            if each not in self._texts:
                operator, _ = self._places[each.place]
                self._texts[each] = f"w_{operator}[{len(self._given(operator))}]"
        return " + ".join([self._texts[each] for each in state.arguments])

    def _given(self, operator: int) -> list[tuple[Number, Argument]]:
        """Return the numbers of an operator that are arguments, in the order in which they are read."""
        pairs = [(self._places[each.place], each) for each in self._texts]
        return [(number, each) for (reader, number), each in pairs if reader == operator]

    def readers(self, constants: Collection[Place]) -> list[tuple[int, Any]]:
        """Return functions that read the numbers of operators, and the indices of these operators.

        Those that are constants of some algorithm are guarded, too.
        """
        found = []
        for i, op in enumerate(self._operators):
            given = self._given(i)
            if given:
                varying = {each.place for _, each in given}.difference(constants)
                found.append((i, reader(op, walk.fingerprint(op), given, varying)))
        return found

    # --- Calls -------------------------------------------------------------------------------------------

    def run(self, algorithm: Any, arguments: Sequence[Any], stream: Any) -> None:
        """Make a call of an algorithm, of all arguments but the stream, and write it down."""
        if algorithm.has_state or not algorithm.is_built:
            raise CannotTraceError("an operator with state, or code that is not there yet")
        spec = algorithm._spec
        given = dict(zip(signature(spec.algorithm_class.run).parameters, arguments, strict=True))
        problem = self._problem(algorithm, given)
        taken = [without_sizes(each) for each in arguments]
        read = algorithm.values_of(tuple(taken))
        if read is None:
            raise CannotTraceError("objects that must live until the call is done")
        problem = self._with_capacities(algorithm, problem, read[0], arguments)
        declared = {argument.name: argument for argument in spec.arguments}
        states = algorithm.fixed_states()
        uses = spec.algorithm_class._uses
        values: dict[str, str] = {}
        for name, value in zip(spec.value_names(uses), read[1:], strict=True):
            argument = declared.get(name)
            if argument is None:
                init = given.get("h_init")
                if is_size(init):  # an array of one item
                    place = ".tobytes()" if isinstance(value, bytes) else '.__array_interface__["data"][0]'
                    values[name] = init.text + place
                elif name in states:
                    values[name] = self._of_numbers(states[name]) or repr(bytes(states[name]))
                elif isinstance(value, bytes):
                    values[name] = repr(value)
                else:  # an initial value on the device
                    values[name] = self._initial(given["h_init"])
                continue
            items = self._items(uses[name], given)
            if argument.is_pointer:
                values[name] = self._address(given[name], 0, argument.value, argument.output, items)
            else:
                values[name] = self._state(given[name], value, argument.output, items)
        launch = Launch(algorithm, problem, values)
        self._make(launch, read, stream)
        self.lines.append(launch)

    def _make(self, launch: Launch, read: Any, stream: Any) -> None:
        """Make a call, of a problem and values."""
        launch.caller()(stream, read)

    def _initial(self, init: Any) -> str:
        """Return the expression for the address of an initial value."""
        if isinstance(init, np.ndarray) and self.library.on_cpu:
            own = init.copy()  # the other one may change
            self.keep(own)
            return repr(own.__array_interface__["data"][0])
        return self._address(init, 0, init.dtype, False, 1)

    def _items(self, count: str | int, given: dict[str, Any]) -> Any:
        """Return how many items of an array a call uses; None where its problem tells."""
        if isinstance(count, int):
            return count
        return given.get(count)

    def _problem(self, algorithm: Any, given: dict[str, Any]) -> str:
        """Return the expression for the problem of a call."""
        spec = algorithm._spec
        declared = spec.algorithm_class
        built = {argument.name for argument in spec.arguments}
        counts = [str(count) for count in dict.fromkeys(declared._uses.values()) if count in given]
        if declared._rows and "end_offsets_in" not in built:
            rows, length, number = given[declared._rows], given["segment_size"], given["num_segments"]
            if length is None or number is None:
                length = row_length(rows, length)
                number, _ = counts_of_rows(declared._rows, rows, length, number, given.get("num_items"))
                given.update(segment_size=length, num_segments=number)
            if given.get("num_items", 0) is None:
                given["num_items"] = number * length
        if not declared._problem_maker:
            return self._number(given[counts[0]])
        make = declared._problem_maker(spec)
        wanted = [given[each] for each in parameters_of(make)]
        number, guards, known, fixed = len(self.lines), {*self._guards}, {**self._sizes}, [*self._fixed]
        try:
            made = make(*wanted)
        except Exception:  # of a number that is none of Python's, or one that is wrong
            made = None
        if made is not None and len(self._fixed) == len(fixed):
            return self._tuple(made)
        # It needs the numbers themselves: programs call it.
        del self.lines[number:]
        self._guards, self._sizes, self._fixed = guards, known, fixed
        return f"{self.keep(make)}({', '.join(map(self._number, wanted))})"

    def _tuple(self, value: Any) -> str:
        """Return the expression for a problem: a tuple, most often a named one."""
        if not isinstance(value, tuple):
            return self._number(value)
        items = f"({''.join([f'{self._tuple(each)}, ' for each in value])})"
        if type(value) is tuple:
            return items
        self.names["_new_tuple"] = tuple.__new__
        return f"_new_tuple({self.keep(type(value))}, {items})"

    def _with_capacities(self, algorithm: Any, problem: str, found: Any, arguments: Sequence[Any]) -> str:
        """Return the expression for a problem to which the CPU adds the capacities of arrays of segments."""
        if not isinstance(found, SegmentOffsets):
            return problem
        of_input = of_output = capacity_of("d_in", arguments[0])
        if algorithm._spec.algorithm != "segmented_reduce":
            of_output = capacity_of("d_out", arguments[1])
        return f"{self.keep(SegmentOffsets)}(*{problem}, {text_of(of_input)}, {text_of(of_output)})"

    def _number(self, value: Any) -> str:
        if is_size(value):
            return value.text
        if value is None or type(value) in (int, bool, str):
            return repr(value)
        if isinstance(value, (int, float, np.generic, np.dtype)):  # members of enumerations, too
            return self.keep(value)
        raise CannotTraceError(f"a problem of a {type(value).__name__}")

    def _address(self, memory: Any, start: Any, dtype: np.dtype[Any], is_output: bool, items: Any) -> str:
        """Return the expression for the address of an item of an array, whose items are checked."""
        if not isinstance(memory, Memory):
            raise CannotTraceError("an array from elsewhere")
        address, base = memory.address, base_of(memory)
        if id(base) not in self._made:
            if is_output:
                raise CannotTraceError("an array of the call that is written")
            if not _is_aligned(memory):
                raise CannotTraceError("an address that is not aligned")
        if items is not None and memory.size < start + items:
            raise CannotTraceError("fewer items than are used")
        return text_of(address + start * dtype.itemsize)

    def _state(self, iterator: Any, state: bytes, is_output: bool, items: Any) -> str:
        """Return the expression for the state of an iterator."""
        if not isinstance(iterator, Iterator):
            text = self._address(iterator, 0, iterator.dtype, is_output, items)
            return f"{self.keep(_PACK_ADDRESS)}({text})"
        fields = list[tuple[str, str | bytes]]()  # struct codes, and expressions or what is always the same
        for leaf, value in zip(iterator.leaves, iterator.node.packer.unpack(state), strict=True):
            if leaf.is_array:
                own = items if leaf.slot.step > 0 else None
                is_written = is_output and not leaf.slot.read_only
                text = self._address(leaf.given, leaf.start, leaf.given.dtype, is_written, own)
                fields.append(("Q", text))
            elif isinstance(leaf.given, Packed):
                fields += self._fields(leaf.given, leaf.slot.size)
            elif leaf.slot.kind == "index":
                fields.append(("q", leaf.start.text if is_size(leaf.start) else struct.pack("=q", value)))
            elif isinstance(leaf.given, FixedState):
                fields.append((f"{leaf.slot.size}s", self._of_numbers(leaf.given) or value))
            elif isinstance(leaf.given, bytes):
                fields.append(("s", value))
            else:
                raise CannotTraceError("a state that is made by a call")
        if not [text for _, text in fields if isinstance(text, str)]:
            return repr(state)
        codes, texts = list[str](), list[str]()
        for is_constant, group in groupby(fields, lambda each: isinstance(each[1], bytes)):
            if is_constant:
                joined = b"".join([each for _, each in group])  # type: ignore[misc]
                codes.append(f"{len(joined)}s")
                texts.append(repr(joined))
            else:
                for code, expression in group:
                    codes.append(code)
                    texts.append(str(expression))
        return f"{self.keep(_packer(''.join(codes)))}({', '.join(texts)})"

    def _fields(self, given: Packed, size: int) -> list[tuple[str, str | bytes]]:
        """Return codes and expressions of bytes that sizes are packed in."""
        form = getattr(given.pack, "__self__", None)
        codes = _codes_of(form.format) if isinstance(form, struct.Struct) else None
        if codes is None or len(codes) != len(given.values):
            return [(f"{size}s", f"{self.keep(given.pack)}({', '.join(map(text_of, given.values))})")]
        pairs = zip(codes, given.values, strict=True)
        return [(code, each.text if is_size(each) else struct.pack(f"={code}", each)) for code, each in pairs]

    def copy(self, source: Any, target: Any, nbytes: Any, copy: Any) -> None:
        """Have the driver copy bytes, which `copy` does given two addresses, their number and a stream."""
        self.names["_copy"] = copy
        self.lines.append(Copy(text_of(target), text_of(source), text_of(nbytes)))

    # --- Reads -------------------------------------------------------------------------------------------

    def read(self, memory: Memory, values: np.ndarray[Any, Any]) -> list[Size]:
        """Write down that items of an array are read to the host; return them as sizes."""
        size, dtype = memory.size, memory.dtype
        if is_size(size) or dtype.kind not in "iu" or not is_size(memory.address) or size > _MOST_READ:
            raise CannotTraceError("a read of what are no lengths")
        index = self._counts["c"]
        self._counts["c"] += size
        self.lines.append(Read(index, memory.address.text, dtype, size))
        self.level = self.level // 2 * 2 + 2
        return [
            Size(int(value), f"c_{index + i}", self, self.level) for i, value in enumerate(values.tolist())
        ]


_MOST_READ = 8
_NUMBERS = re.compile(r"\b(v_|n|h)(\d+)\b")
_NEVER = re.compile(r"s_\d+_\d+ < 0")  # of an extent
_PACK_ADDRESS = struct.Struct("=Q").pack


@lru_cache(512)
def _packer(codes: str) -> Callable[..., bytes]:
    return struct.Struct(f"={codes}").pack


@lru_cache(512)
def _codes_of(form: str) -> list[str] | None:
    """Return the code of each value of a format without gaps; None of others."""
    if form[:1] != "=" or not re.fullmatch(r"=(\d*[bBhHiIqQfd?])*", form):
        return None
    return [code for count, code in re.findall(r"(\d*)(.)", form[1:]) for _ in range(int(count or 1))]


def _syntax_of(x: Any) -> ArraySyntax:
    syntax = arrays.syntax_of(type(x))
    if syntax is None:
        raise CannotTraceError("an array without expressions")
    return syntax


def _is_aligned(memory: Memory) -> bool:
    unit = structs.normal("", memory.dtype).alignment  # that NumPy's packed structs do not tell
    return unit == 1 or not memory.address % unit
