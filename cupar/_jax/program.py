"""Calls as data: a function's trace for arrays of known shapes, written as the attributes of a call of XLA's.

The trace has expressions for problems and values. They are evaluated with symbols for addresses, so that the
places in a program where addresses stand are known by construction. A call that depends on an address in any
other way raises.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import structs
from .._base import device
from .._cpu.code import fault_code
from .._cpu.schedules import Part, is_gathered, is_numpys, schedule
from .._device import driver
from .._device.kernels import device_properties
from .._functions.calls import Operand, Work
from .._functions.libraries import ArrayLibrary
from .._launch.chain import variable_of
from .._launch.state import Emitted
from .._launch.words import LaunchRecord, of_shape
from .._program.memory import in_c_order
from .._program.trace import Allocate, CannotTraceError, Define, Guard, Launch, Trace
from ..host import View
from . import resolved
from .addresses import Address, Block, packed, symbolic
from .layout import FIRST_FUNCTION, HEAD, RECORD, SELF, identity

_NOWHERE = 1 << 62  # beyond the addresses that processors have
_ALIGNMENT = 256
_LARGEST = 1 << 15  # words of a program: it is copied to the stack
_NOTHING = Block(b"", ())


class Program(NamedTuple):
    """The attributes of a call, and its inputs beside arguments.

    Attributes
    ----------
    builds : str
        JSON: the builds, and everything else that identifies functions.
    program : ndarray of int64
    relocations : ndarray of int64
        Pairs: a place in the program, in bytes; and a buffer's number, of arguments and then results.
    nbytes : int
        Of the temporary storage.
    constants : list of ndarray
        Further arguments.
    """

    builds: str
    program: np.ndarray[Any, Any]
    relocations: np.ndarray[Any, Any]
    nbytes: int
    constants: list[np.ndarray[Any, Any]]


class Placeholder:
    """An array of a program: a view without memory, and the content of a constant."""

    __slots__ = ("content", "memory")

    def __init__(self, memory: View, content: np.ndarray[Any, Any] | None) -> None:
        self.memory, self.content = memory, content

    def __getitem__(self, cut: slice) -> Placeholder:
        return Placeholder(self.memory[cut], None)


class Placeholders(ArrayLibrary):
    """Makes placeholders, in host memory or on a device, at addresses that no array has."""

    def __init__(self, on_cpu: bool) -> None:
        self.on_cpu, self._end = on_cpu, _NOWHERE

    def put(self, given: np.ndarray[Any, Any]) -> Placeholder:
        return self.empty(given.shape, given.dtype, given)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], content: Any = None) -> Placeholder:
        memory = in_c_order(self._end, dtype, shape, None)
        self._end += _aligned(memory.nbytes + 1)
        return Placeholder(memory, content)

    def host(self, array: Any) -> np.ndarray[Any, Any]:
        raise TypeError("size: expected a number, as the shape of a result cannot depend on data under jit")

    def memory(self, array: Placeholder) -> View:
        return array.memory


class Recording(Trace):
    """A trace of calls that are not made, for arrays of known shapes."""

    def put(self, given: Placeholder, source: Any, size: Any) -> None:
        self._known[id(given)] = self._allocated(given, given.memory.shape, given.memory.dtype)

    def run(self, algorithm: Any, arguments: Sequence[Any], stream: Any) -> None:
        if algorithm.has_state:
            raise TypeError(
                f"{algorithm._spec.algorithm}: its operator has captured device arrays, which are of this "
                "process: give them as arguments"
            )
        algorithm.ready(tier="fast")
        super().run(algorithm, arguments, stream)

    def _make(self, launch: Launch, read: Any, stream: Any) -> None:
        pass


Body = Callable[..., Sequence[Operand]]  # of a recorder, operands and static arguments


def words(
    body: Body, static: tuple[Any, ...], inputs: Sequence[Any], outputs: Sequence[Any], on_cpu: bool
) -> Program:
    """Return a program; inputs and outputs are (shape, dtype)."""
    return device.using(on_cpu, lambda: Rendering(on_cpu, body, static, inputs, outputs).program())


def _aligned(nbytes: int, to: int = _ALIGNMENT) -> int:
    return -(-nbytes // to) * to


class Rendering:
    """A trace as bytes.

    Attributes
    ----------
    arrays : list of Address
        The arrays of the program in the order in which they were made, inputs first.
    """

    def __init__(
        self,
        on_cpu: bool,
        body: Body,
        static: tuple[Any, ...],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
    ) -> None:
        self.on_cpu = on_cpu
        self.functions: list[tuple[Any, ...]] = []
        self.data = bytearray()
        self.places: list[tuple[int, int]] = []  # of addresses in the data, and their buffers
        self.records = 0
        trace = Recording(Placeholders(on_cpu), ())
        try:
            work = Work(trace.library, None, trace)
            operands = [work.empty(shape, dtype) for shape, dtype in inputs]
            found = body(work, *operands, *static)
            made = [(each.shape, each.dtype) for each in found]
            expected = [(tuple(shape), dtype) for shape, dtype in outputs]
            _ensure(made == expected, f"results are {made}, expected {expected}")
            self._place(trace, len(inputs), [getattr(each.own, "text", "") for each in found])
            self._write(trace)
        except CannotTraceError as error:
            _ensure(False, str(error))
        finally:
            trace.end()

    def _place(self, trace: Trace, inputs: int, results: list[str]) -> None:
        """Find the buffer and the offset of each array."""
        arrays = [line.own for line in trace.lines if isinstance(line, Allocate)]
        names = [each.text for each in arrays]
        constants = {each.text: each.real.content for each in arrays if each.real.content is not None}
        self.constants = [*constants.values()]
        buffers = {name: k for k, name in enumerate([*names[:inputs], *constants, *results])}
        self.storage = inputs + len(constants) + len(results)
        is_new = len(buffers) == self.storage and {*results} <= {*names}
        _ensure(is_new, "a result is an argument, or another one, or a part of one")
        self.arrays, end = list[Address](), 0
        for each in arrays:
            if each.text in buffers:
                self.arrays.append(Address(buffers[each.text]))
            else:
                self.arrays.append(Address(self.storage, end))
                end += _aligned(each.real.memory.nbytes)
        self.scratch, self.nbytes = end, end

    def _write(self, trace: Trace) -> None:
        """Evaluate the lines of the trace, where addresses are symbols, and write its launches."""
        names = {name: symbolic(value) for name, value in trace.names.items()}

        def evaluated(text: str) -> Any:
            try:
                return eval(text, names)
            except (AttributeError, TypeError, struct.error) as error:
                raise CannotTraceError(f"it depends on an address: {error}") from error

        for line in trace.lines:
            if isinstance(line, Allocate):
                names[f"b_{line.number}"] = self.arrays[line.number]
            elif isinstance(line, Define):
                names[line.name] = evaluated(line.text)
            elif isinstance(line, Guard):
                _ensure(not evaluated(line.text), "it depends on an address")
            elif isinstance(line, Launch):
                values = {name: evaluated(each) for name, each in line.values.items()}
                for name, each in values.items():
                    if isinstance(each, int):
                        raise TypeError(
                            f"{name}: expected one of the arrays that `call` was given, got another one"
                        )
                resolved.remember(line.algorithm)
                write = self._on_cpu if self.on_cpu else self._on_gpu
                write(line.algorithm, evaluated(line.problem), values)
            else:
                raise CannotTraceError(f"a {type(line).__name__} is no launch")

    def program(self) -> Program:
        """Return the program."""
        builds = self._text()
        head = [identity(builds), int(not self.on_cpu), self.records]
        program = np.concatenate([np.array(head, np.int64), np.frombuffer(bytes(self.data), np.int64)])
        if len(program) > _LARGEST:
            raise ValueError(
                f"a program of cupar.jax has at most {_LARGEST} words, and this has {len(program)}"
            )
        # Of one pair at least, as an attribute that is an empty array has no type.
        places = np.array([*sorted(self.places), (0, SELF)], np.int64)
        places[:, 0] += 8 * len(head)
        relocations = places[: len(self.places)].reshape(-1)
        return Program(builds, program, relocations, max(self.nbytes, 1), self.constants)

    def _text(self) -> str:
        head: dict[str, Any] = {"device": "cpu"}
        if not self.on_cpu and self.functions:
            card = driver.current_device()
            head = {"device": {"cc": card.cc, **device_properties(card)}}
        return json.dumps({**head, "functions": self.functions}, separators=(",", ":"))

    def _function(self, *described: Any) -> int:
        """Return the number of a function."""
        if described not in self.functions:
            self.functions.append(described)
        return self.functions.index(described)

    def _needs(self, nbytes: int) -> Address:
        """Return the address of temporary storage of `nbytes` bytes, which calls share one after another."""
        self.nbytes = max(self.nbytes, self.scratch + nbytes)
        return Address(self.storage, self.scratch)

    def _calls(
        self, function: int, parts: Sequence[Any], common: Sequence[Any], more: Block = _NOTHING
    ) -> None:
        """Write a record of calls: of integers and addresses; `more` is common, where there are no parts."""
        words = [function, len(parts), len(common) + -(-len(more.data) // 8), *common]
        words += [word for part in parts for word in part]
        numbers = [each if isinstance(each, Address) else each % 2**64 for each in words]
        for block in (packed(f"={len(words)}Q", *numbers), more):
            at = len(self.data)
            self.places += [(at + place, buffer) for place, buffer in block.places]
            self.data += block.data + bytes(-len(block.data) % 8)  # up to a whole word
        self.records += 1

    def _addresses(self, values: dict[str, Any]) -> list[Address]:
        """Return the addresses of values; those that are bytes are put into the program."""
        return [each if isinstance(each, Address) else self._blob(each) for each in values.values()]

    def _blob(self, value: bytes | Block) -> Address:
        """Put bytes into the program, in a record that calls nothing; return their address."""
        block = Block(value, ()) if isinstance(value, bytes) else value
        padding = (HEAD + RECORD + len(self.data) // 8) % 2
        at = len(self.data) + 8 * (HEAD + RECORD + padding)
        _ensure(at % 16 == 0, f"bytes begin at {at}")
        self._calls(0, (), [0] * padding, block)
        return Address(SELF, at)

    # --- On a GPU: launches --------------------------------------------------------------------------------

    def _on_gpu(self, algorithm: Any, problem: Any, values: dict[str, Any]) -> None:
        loaded = algorithm._code.loaded(driver.current_context())
        emitted = Emitted()
        known = {f"v_{name}": each for name, each in zip(values, self._addresses(values), strict=True)}
        known["address"] = self._needs(loaded.plan(loaded.facts, problem, emitted.emit))
        for shape, numbers in zip(*emitted.several(), strict=True):
            chain = loaded.chains[loaded.shape_names[shape]]
            own = {**known, **dict(zip(map(variable_of, chain.numbers), numbers, strict=True))}
            overlaps = self._handle("overlaps")[1] if chain.overlaps else 0
            records = []
            for launch, packing, _, block in chain.launches:
                described = algorithm.build.key, algorithm._spec.algorithm, launch.kernel
                number, handle = self._handle("launch", *described)
                records.append(LaunchRecord(launch, packing, handle, block, own, overlaps, number))
            self._calls(0, [()], of_shape(records, []))

    def _handle(self, *described: Any) -> tuple[int, Address]:
        """Return the number of a function, and its address."""
        number = self._function(*described)
        return number, Address(FIRST_FUNCTION - number)

    # --- On the CPU: calls of functions --------------------------------------------------------------------

    def _on_cpu(self, algorithm: Any, problem: Any, values: dict[str, Any]) -> None:
        spec, key = algorithm._spec, algorithm.build.key
        given = self._addresses(values)
        if is_numpys(spec):
            gather = key if is_gathered(spec) else None
            shown = [[each.name, _dtype_text(each.value), each.is_pointer] for each in spec.arguments]
            numbers = {name: each for name, each in problem._asdict().items() if isinstance(each, int)}
            function = self._function("numpy", gather, spec.algorithm, spec.option("order"), shown, numbers)
            self._calls(function, [Part(0, 0, 0, 0)], given)
            return
        made = schedule(spec, problem)
        storage = self._needs(_aligned(made.nbytes))
        columns = [storage + each for each in made.columns]
        raising = {str(fault_code(op)): op.described for op in spec.functions.values() if op.kind is None}
        function = self._function("code", key, spec.algorithm, raising)
        common = [*given, *columns, *made.numbers]
        steps = list(made.steps)
        if made.check is not None:
            first = steps.pop(0)
            self._calls(function, first, common)
            checked = self._function("check", None, spec.algorithm, problem._asdict())
            self._calls(checked, [Part(0, 0, 0, len(first))], [columns[-1]])
        self._calls(function, [part for step in steps for part in step], common)


def _ensure(holds: bool, why: str) -> None:
    """Raise RuntimeError if a recording is no program: it would compute something else."""
    if not holds:
        raise RuntimeError(f"cupar.jax: a call cannot be recorded: {why}")


def _dtype_text(dtype: np.dtype[Any]) -> str:
    return f"V{dtype.itemsize}" if dtype.names is not None else structs.text(dtype)
