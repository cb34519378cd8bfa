"""Calls as data: a function's launches for arrays of known shapes are recorded once as a program.

Functions work with arrays without content, in reserved addresses without memory. What would be
launched, or called on the CPU, is written down with all of its parameters, where their addresses are found
again. To be sure that it is these and no number that looks alike, all is recorded twice, with others.
"""

from __future__ import annotations

import bisect
import functools
import json
import math
import mmap
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import structs
from .._base import device
from .._cpu.calls import CpuAlgorithm
from .._cpu.code import fault_code
from .._cpu.schedules import Part, is_gathered, is_numpys, schedule
from .._device import driver
from .._device.kernels import device_properties
from .._functions.calls import Operand, Work
from .._functions.libraries import ArrayLibrary
from .._launch.chain import dimensions, variable_of
from .._launch.state import Emitted
from ..host import View
from . import resolved
from .layout import CPU_RECORD, HEAD, SELF, identity

Shape = tuple[int, ...]

_RESERVED = 1 << 42  # bytes of addresses, of which the first are the temporary storage and the program
_STORAGE, _WORDS, _ARRAYS = 0, 1 << 38, 1 << 39
_ALIGNMENT = 256
_LARGEST = 1 << 15  # words of a program: it is copied to the stack


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


@functools.cache
def reserved() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return memory for two recordings: it can be read, as by a debugger, and takes none."""
    no_reserve = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve
    made = [mmap.mmap(-1, _RESERVED, flags=flags, prot=mmap.PROT_READ) for _ in range(2)]
    return np.frombuffer(made[0], np.uint8), np.frombuffer(made[1], np.uint8)


class Fakes(ArrayLibrary):
    """Makes arrays of addresses alone, in host memory or on a device."""

    def __init__(self, on_cpu: bool, memory: np.ndarray[Any, Any]) -> None:
        self.on_cpu, self._memory = on_cpu, memory
        self.begin: int = memory.ctypes.data
        self.places: list[tuple[int, int]] = []  # by an array's number: where it begins, and its bytes
        self.constants: dict[int, np.ndarray[Any, Any]] = {}
        self._end = _ARRAYS

    def number(self, array: Any) -> int:
        """Return which array it is."""
        address = array.ctypes.data if isinstance(array, np.ndarray) else array.address
        return self.at(address - self.begin)

    def at(self, place: int) -> int:
        """Return which array is at a place."""
        return bisect.bisect_right(self.places, (place, sys.maxsize)) - 1

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        nbytes = math.prod(shape) * dtype.itemsize
        # And as much before and behind it, as addresses may be beyond its ends.
        extent = _aligned(max(nbytes, 1))
        place, self._end = self._end + extent, self._end + 3 * extent
        if self._end > _RESERVED:
            raise ValueError(f"arrays of a program may have {_RESERVED - _ARRAYS} bytes together")
        self.places.append((place, nbytes))
        return self.array(place, shape, dtype)

    def array(self, place: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return an array at a place."""
        if self.on_cpu:
            nbytes = math.prod(shape) * dtype.itemsize
            found = np.asarray(_Interface(self.begin + place, max(nbytes, 1)))
            return found[:nbytes].view(dtype).reshape(shape)
        strides = [math.prod(shape[i + 1 :]) * dtype.itemsize for i in range(len(shape))]
        return View(self.begin + place, dtype, shape, strides, True, None)

    def put(self, given: np.ndarray[Any, Any]) -> Any:
        made = self.empty(given.shape, given.dtype)
        self.constants[self.number(made)] = given
        return made

    def host(self, array: Any) -> np.ndarray[Any, Any]:
        raise TypeError("size: expected a number, as the shape of a result cannot depend on data under jit")

    def memory(self, array: Any) -> Any:
        return array


class _Interface:
    """What NumPy makes an array of that it may write to."""

    def __init__(self, address: int, nbytes: int) -> None:
        shown = {"data": (address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}
        self.__array_interface__ = shown


class CallRecorder(Work):
    """Work that is written down: algorithms are made, and their calls kept."""

    library: Fakes

    def __init__(self, library: Fakes) -> None:
        super().__init__(library, 0)
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []

    def run(self, algorithm: Any, *arguments: Any, **named: Any) -> None:
        """Keep a call."""
        if algorithm.has_state:
            raise TypeError(
                f"{algorithm._spec.algorithm}: its operator has captured device arrays, which are of this "
                "process: give them as arguments"
            )
        self.calls.append((algorithm, algorithm.completed(arguments, named)))


Body = Callable[..., Sequence[Operand]]  # of a recorder, operands and static arguments


def words(
    body: Body, static: tuple[Any, ...], inputs: Sequence[Any], outputs: Sequence[Any], on_cpu: bool
) -> Program:
    """Return a program; inputs and outputs are (shape, dtype)."""
    first, second = (
        device.using(on_cpu, Rendering(memory, on_cpu).render, body, static, inputs, outputs)
        for memory in reserved()
    )
    return first.merged(second)


def _aligned(nbytes: int, to: int = _ALIGNMENT) -> int:
    return -(-nbytes // to) * to


class Rendering:
    """One recording, as bytes."""

    def __init__(self, memory: np.ndarray[Any, Any], on_cpu: bool) -> None:
        self.on_cpu, self.library = on_cpu, Fakes(on_cpu, memory)
        self.functions: list[tuple[Any, ...]] = []
        self.data = bytearray()
        self.records = 0

    def render(
        self, body: Body, static: tuple[Any, ...], inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Rendering:
        work, library = CallRecorder(self.library), self.library
        operands = [work.operand(library.empty(shape, dtype)) for shape, dtype in inputs]
        found = body(work, *operands, *static)
        results = [library.number(each.own) for each in found]
        expected = [(tuple(shape), dtype) for shape, dtype in outputs]
        made = [(each.shape, each.dtype) for each in found]
        _ensure(made == expected, f"results are {made}, expected {expected}")
        is_new = len({*results} - {*range(len(inputs))}) == len(results)
        _ensure(is_new, "a result is an argument, or another one")
        constants = [*library.constants]
        buffers = [*range(len(inputs)), *constants, *results]
        self.buffer_of = {which: k for k, which in enumerate(buffers)}
        self.offsets: dict[int, int] = {}
        end = 0
        for which, (_, nbytes) in enumerate(library.places):
            if which not in self.buffer_of:
                self.offsets[which] = end
                end += _aligned(nbytes)
        self.scratch, self.nbytes = end, end
        self.constants = [library.constants[which] for which in constants]
        self.storage = len(buffers)
        for algorithm, arguments in work.calls:
            (self._on_cpu if self.on_cpu else self._on_gpu)(algorithm, arguments)
        return self

    def merged(self, other: Rendering) -> Program:
        """Return the program, of two recordings with other addresses."""
        is_same = len(self.data) == len(other.data) and self.functions == other.functions
        _ensure(is_same, "it launched something else the second time")
        one, two, found = self.data, other.data, list[int]()
        for at in self._candidates(bytes(one), bytes(two), other.library.begin):
            place = int.from_bytes(one[at : at + 8], "little") - self.library.begin
            buffer, offset = self._buffer(place)
            found += [at, buffer]
            one[at : at + 8] = two[at : at + 8] = (offset % 2**64).to_bytes(8, "little")
        _ensure(one == two, "a parameter depends on an address, or changes from time to time")
        builds = self._text()
        head = [identity(builds), int(not self.on_cpu), self.records]
        program = np.concatenate([np.array(head, np.int64), np.frombuffer(bytes(one), np.int64)])
        if len(program) > _LARGEST:
            raise ValueError(
                f"a program of cupar.jax has at most {_LARGEST} words, and this has {len(program)}"
            )
        places = np.array(found, np.int64).reshape(-1, 2)
        places[:, 0] += 8 * len(head)
        # Of one operand at least, as an attribute that is an empty array has no type.
        relocations = places.reshape(-1) if len(places) else np.array([0, SELF], np.int64)[:0]
        return Program(builds, program, relocations, max(self.nbytes, 1), self.constants)

    def _candidates(self, one: bytes, two: bytes, begin: int) -> list[int]:
        """Return where two recordings have the same place in their memory."""
        found: list[int] = []
        for shift in range(8 if one else 0):
            size = (len(one) - shift) // 8 * 8
            first, second = (np.frombuffer(each, np.uint64, size // 8, shift) for each in (one, two))
            place = first - np.uint64(self.library.begin)
            same = (place < np.uint64(_RESERVED)) & (place == second - np.uint64(begin))
            found += (8 * np.flatnonzero(same) + shift).tolist()
        return sorted(found)

    def _buffer(self, place: int) -> tuple[int, int]:
        """Return which buffer a place is in, and where in that."""
        if place < _WORDS:
            return self.storage, place
        if place < _ARRAYS:
            return SELF, place - _WORDS
        before = self.library.at(place)
        is_behind = False
        if before + 1 < len(self.library.places):
            behind, nbytes = self.library.places[before + 1]
            is_behind = place >= behind - _aligned(max(nbytes, 1))
        which = before + is_behind if before >= 0 else 0
        offset = place - self.library.places[which][0]
        if which in self.buffer_of:
            return self.buffer_of[which], offset
        return self.storage, offset + self.offsets[which]

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

    def _needs(self, nbytes: int) -> int:
        """Return the offset of temporary storage of `nbytes` bytes, which calls share one after another."""
        self.nbytes = max(self.nbytes, self.scratch + nbytes)
        return self.library.begin + _STORAGE + self.scratch

    def _add(self, *numbers: int) -> None:
        self.data += b"".join((each % 2**64).to_bytes(8, "little") for each in numbers)
        self.records += 1

    # --- On a GPU: launches --------------------------------------------------------------------------------

    def _on_gpu(self, algorithm: Any, arguments: tuple[Any, ...]) -> None:
        algorithm.ready(tier="fast")
        resolved.remember(algorithm)
        spec, key = algorithm._spec, algorithm.build.key
        loaded = algorithm._code.loaded(driver.current_context())
        problem, *values = algorithm._call_reader(None)(arguments, [].append)
        self._check(spec, values)
        emitted = Emitted()
        address = self._needs(loaded.plan(loaded.facts, problem, emitted.emit))
        for shape, numbers in zip(*emitted.several(), strict=True):
            chain = loaded.chains[loaded.shape_names[shape]]
            known = {"address": address}
            known.update(zip((f"v_{name}" for name in chain.values.layouts), values, strict=True))
            known.update(zip(map(variable_of, chain.numbers), numbers, strict=True))
            for launch, packing, _, block in chain.launches:
                items = [_summed(item, known) for item in packing.items]
                packed = struct.pack(packing.format, *items) + packing.constants
                packed += bytes(-len(packed) % 8)
                sizes = [
                    known[variable_of(each)] if isinstance(each, str) else each
                    for _, each in dimensions(launch, block)
                ]
                function = self._function("kernel", key, spec.algorithm, launch.kernel)
                self._add(
                    function,
                    *sizes,
                    int(chain.overlaps),
                    len(packing.offsets),
                    len(packed) // 8,
                    *packing.offsets,
                )
                self.data += packed

    def _check(self, spec: Any, values: Sequence[Any]) -> None:
        """Raise TypeError if an array is not one of the program's."""
        names = spec.value_names(spec.algorithm_class._uses)
        for name, value in zip(names, values, strict=True):
            if isinstance(value, int) and not 0 <= value - self.library.begin < _RESERVED:
                raise TypeError(f"{name}: expected one of the arrays that `call` was given, got another one")

    # --- On the CPU: calls of functions --------------------------------------------------------------------

    def _on_cpu(self, algorithm: CpuAlgorithm, arguments: tuple[Any, ...]) -> None:
        spec, key = algorithm._spec, algorithm.build.key
        resolved.remember(algorithm)
        problem, *values = algorithm._read(arguments, [].append)
        self._check(spec, values)
        given = [value if isinstance(value, int) else self._blob(value) for value in values]
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

    def _calls(self, function: int, parts: Sequence[Part], common: Sequence[int]) -> None:
        self._add(function, len(parts), len(common), *common, *(word for part in parts for word in part))

    def _blob(self, data: bytes) -> int:
        """Put bytes into the program, in a record that calls nothing; return their address."""
        padding = (HEAD + CPU_RECORD + len(self.data) // 8) % 2
        size = -(-len(data) // 8)
        self._add(0, 0, padding + size, *[0] * padding)
        at = 8 * HEAD + len(self.data)
        _ensure(at % 16 == 0, f"bytes begin at {at}")
        self.data += data + bytes(8 * size - len(data))
        return self.library.begin + _WORDS + at


def _ensure(holds: bool, why: str) -> None:
    """Raise RuntimeError if a recording is no program: it would compute something else."""
    if not holds:
        raise RuntimeError(f"cupar.jax: a call cannot be recorded: {why}")


def _summed(item: str, known: dict[str, Any]) -> Any:
    first, *others = item.split(" + ")
    value = known[first] if first in known else int(first)
    return value + sum(known[each] if each in known else int(each) for each in others) if others else value


def _dtype_text(dtype: np.dtype[Any]) -> str:
    return f"V{dtype.itemsize}" if dtype.names is not None else structs.text(dtype)
