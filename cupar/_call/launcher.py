"""The one launcher: what a plan says, enqueued.

A family's shape is a chain of launches. For each call that is made of it, what varies is packed into a buffer for
each kernel: its grid, its dynamic shared memory and its parameters. What has changed since the call before is set in
the chain's executable graph, and that is launched; where there is none, kernels are launched one by one, from the
same buffers. The functions that do so are written out for a shape, without a loop or a test that always has the
same answer.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_char, c_void_p
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from .._compile.specialisation import Specialisation
from .._device import driver
from .._device.kernels import Executable, LaunchConfig, NodeParams, Step
from .._kernels.family import Launch, Number, Parameter, Shape, Storage, Value

# Takes what `bind` returned, the address of the temporary storage, and the plan's numbers; and the stream's handle.
Fill = Callable[[tuple[Any, ...], int, tuple[int, ...]], None]
Enqueue = Callable[[tuple[Any, ...], int, tuple[int, ...], int], None]

_SIZES = {code: struct.calcsize(f"={code}") for code in "?bBhHiIqQfd"}


@dataclass(frozen=True)
class Values:
    """What a call hands over: a name and the bytes of each value, in the order of what `bind` returns.

    An address has 0 bytes: it is an integer, and takes 8.
    """

    sizes: Mapping[str, int]
    alignments: Mapping[str, int]

    @staticmethod
    def of(spec: Specialisation, names: Sequence[str]) -> Values:
        """Return those of a specialisation; `names` are the parameters that are arrays."""
        sizes: dict[str, int] = {}
        alignments: dict[str, int] = {}
        for argument in spec.arguments:
            if argument.name in names:
                sizes[argument.name] = 0 if argument.is_pointer else argument.node.size
        for name, op in spec.operators:
            if op.state_size:
                sizes[name], alignments[name] = op.state_size, op.state_alignment
        init = spec.option("init")
        if init is not None:
            accumulator = spec.operators[0][1].output
            sizes["init"] = accumulator.itemsize if init == "value" else 0
            alignments["init"] = accumulator.alignment if init == "value" else 8
        return Values(sizes, alignments)


@dataclass(frozen=True)
class _Packed:
    """How a launch's grid, shared memory and parameters are packed: a format, and what goes into it."""

    format: str
    items: tuple[str, ...]
    offsets: tuple[int, ...]  # of the parameters


def _packed(launch: Launch, values: Values) -> _Packed:
    code, items, at, offsets = "=II", [_number(launch.grid), _number(launch.shared)], 8, []
    for parameter in launch.parameters:
        fields, alignment = _fields(parameter, values)
        start, end = at, 0
        for each, item, size, align in fields:
            place = -(-end // align) * align
            code += f"{place - end}x{each}"
            end = place + size
            if item is not None:
                items.append(item)
        whole = -(-end // alignment) * alignment
        code += f"{whole - end}x"
        offsets.append(start)
        at = start + whole
    return _Packed(code, tuple(items), tuple(offsets))


def _fields(parameter: Parameter, values: Values) -> tuple[list[tuple[str, str | None, int, int]], int]:
    """Return code, item, size and alignment of each field of a parameter, and the alignment of the whole."""
    fields = parameter if isinstance(parameter, tuple) else (parameter,)
    found = [_field(each, values) for each in fields]
    return found, max(align for *_, align in found) if len(found) > 1 else 1


def _field(field: Any, values: Values) -> tuple[str, str | None, int, int]:
    if isinstance(field, Number):
        width = _SIZES[field.code]
        return field.code, _number(field.name), width, width
    if isinstance(field, Storage):
        return "Q", "address" if field.offset == 0 else f"address + {_number(field.offset)}", 8, 8
    assert isinstance(field, Value)
    size = values.sizes.get(field.name)
    if size is None:  # an object without members, as most operators are
        return "x", None, 1, 1
    if size == 0:
        return "Q", f"v_{field.name}", 8, 8
    return f"{size}s", f"v_{field.name}", size, values.alignments.get(field.name, 8)


def _number(name: str | int) -> str:
    return str(name) if isinstance(name, int) else f"n_{name.replace(' ', '_')}"


_SOURCE = """
def {function}:
    {values} = bound
    {numbers} = numbers
    {launches}
"""

_SET = """
packed = _pack_{k}({items})
if packed != _last[{k}]:
    _last[{k}] = None
    _memory_{k}[:] = packed
    _params_{k}.grid = {grid}
    _params_{k}.shared = {shared}
    if status := _set(_executable, _node_{k}, _params_ref_{k}):
        _fail(status, "cuGraphExecKernelNodeSetParams")
    _last[{k}] = packed
"""

_GRAPH = """
_stream.value = stream
if status := _launch(_executable, _stream):
    _fail(status, "cuGraphLaunch")
"""

_PLAIN = """
_memory_{k}[:] = _pack_{k}({items})
_config_{k}.grid = {grid}
_config_{k}.shared = {shared}
_config_{k}.stream = stream
if status := _launch(_config_ref_{k}, _function_{k}, _pointers_{k}, None):
    _fail(status, "cuLaunchKernelEx")
"""

_compiled = lru_cache(lambda source: compile(source, "<cupar launch>", "exec"))


class Chain:
    """A shape for one build and context: how each of its launches is packed and what it is launched with.

    Parameters
    ----------
    shape : Shape
    values : Values
    facts : mapping of str to int
        Of the build, for blocks and shared memory.
    functions : mapping of str to c_void_p
        The kernels' handles by their symbols.
    """

    def __init__(
        self, shape: Shape, values: Values, facts: Mapping[str, int], functions: Mapping[str, c_void_p]
    ) -> None:
        self._numbers = shape.numbers
        self._values = values
        self._launches = [
            (each, _packed(each, values), functions[each.kernel], int(each.block))
            for each in (_with_facts(launch, facts, shape.numbers) for launch in shape.launches)
        ]

    def executable(self) -> Executable:
        """Make an executable graph of it, in the current context."""
        kept = [_Memory(packed, function, block) for _, packed, function, block in self._launches]
        return Executable([Step(each.params) for each in kept])

    def enqueuer(self, executable: Executable | None) -> Enqueue:
        """Return what enqueues it: as that graph, or kernel by kernel. For one thread at a time."""
        names: dict[str, Any] = {"_fail": driver.check}
        if executable is None:
            names["_launch"] = driver.library().cuLaunchKernelEx
            lines = [_PLAIN.format(**self._launched(k, names)) for k in range(len(self._launches))]
        else:
            names.update(_launch=driver.library().cuGraphLaunch, _stream=c_void_p())
            lines = [*self._set(executable, names), _GRAPH]
        return self._written("enqueue(bound, address, numbers, stream)", lines, names)

    def filler(self, executable: Executable) -> Fill:
        """Return what sets the graph's parameters, and launches nothing."""
        names: dict[str, Any] = {"_fail": driver.check}
        return self._written("fill(bound, address, numbers)", self._set(executable, names), names)

    def _set(self, executable: Executable, names: dict[str, Any]) -> list[str]:
        names.update(_set=driver.library().cuGraphExecKernelNodeSetParams_v2, _executable=executable.handle)
        names["_last"] = [None] * len(self._launches)
        names.update((f"_node_{k}", node) for k, node in enumerate(executable.nodes))
        return [_SET.format(**self._launched(k, names)) for k in range(len(self._launches))]

    def _launched(self, k: int, names: dict[str, Any]) -> dict[str, Any]:
        """Name what one launch is made of; return the texts that are filled in."""
        launch, packed, function, block = self._launches[k]
        memory = _Memory(packed, function, block)
        names.update(
            {
                f"_pack_{k}": struct.Struct(packed.format).pack,
                f"_memory_{k}": memory.view,
                f"_params_{k}": memory.params,
                f"_params_ref_{k}": byref(memory.params),
                f"_config_{k}": memory.config,
                f"_config_ref_{k}": byref(memory.config),
                f"_function_{k}": function,
                f"_pointers_{k}": memory.pointers,
            }
        )
        texts = {
            "items": ", ".join(packed.items),
            "grid": _number(launch.grid),
            "shared": _number(launch.shared),
        }
        return {"k": k, **texts}

    def _written(self, function: str, lines: list[str], names: dict[str, Any]) -> Callable[..., None]:
        source = _SOURCE.format(
            function=function,
            values=f"(_, {''.join(f'v_{name}, ' for name in self._values.sizes)})",
            numbers=f"({''.join(f'{_number(each)}, ' for each in self._numbers)})" if self._numbers else "_",
            launches="\n".join(each.strip() for each in lines).replace("\n", "\n    "),
        )
        exec(_compiled(source), names)
        made: Callable[..., None] = names.pop(function.partition("(")[0])
        return made


def _with_facts(launch: Launch, facts: Mapping[str, int], numbers: Sequence[str]) -> Launch:
    """Return a launch whose block is a number, and its dynamic shared memory one of the plan's or a number."""
    shared, block = launch.shared, launch.block
    if isinstance(shared, str) and shared not in numbers:
        shared = facts[shared]
    return replace(launch, shared=shared, block=facts[block] if isinstance(block, str) else block)


class _Memory:
    """What the driver reads of one launch: its parameters, pointers to them, and what it is launched with."""

    def __init__(self, packed: _Packed, function: c_void_p, block: int) -> None:
        size = struct.calcsize(packed.format)
        memory = (c_char * size)()
        self.view = memoryview(memory).cast("B")
        start = ctypes.addressof(memory)
        self.pointers = (c_void_p * len(packed.offsets))(*[start + each for each in packed.offsets])
        self.params = NodeParams(
            function=function.value,
            grid=1,
            grid_y=1,
            grid_z=1,
            block=block,
            block_y=1,
            block_z=1,
            parameters=ctypes.addressof(self.pointers),
        )
        self.config = LaunchConfig(grid=1, grid_y=1, grid_z=1, block=block, block_y=1, block_z=1)
