"""The one launcher: what a plan says, enqueued.

A family's shape is a chain of launches. For each call that is made of it, what varies is packed into a buffer
for each kernel: its grid, its dynamic shared memory and its parameters. What has changed since the call
before is set in the chain's executable graph, and that is launched; where there is none, kernels are launched
one by one, from the same buffers. The functions that do so are written out for a shape, without a loop or a
test that always has the same answer.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import byref, c_char, c_void_p
from itertools import islice
from typing import TYPE_CHECKING, Any

from .._base import trace
from .._base.data import dataclass, replace
from .._base.generated import define
from .._device import driver
from .._device.kernels import PROGRAMMATIC, Executable, LaunchConfig, NodeParams
from .._kernels.family import Launch, Number, Parameter, Shape, Storage, Value

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

# Takes what `bind` returned, the address of the temporary storage, and the plan's numbers; and the stream's
# handle.
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
    # Of the parameters alone: where a field is, its bytes, its format and what goes into it.
    fields: tuple[tuple[int, int, str, str], ...]


def _packed(launch: Launch, values: Values) -> _Packed:
    # What is launched with other numbers is told from what was launched before by its bytes alone.
    varying = [number(each) for each in (launch.grid, launch.shared) if isinstance(each, str)]
    code, items, at, offsets, packed = "=" + "I" * len(varying), [*varying], 4 * len(varying), [], []
    for parameter in launch.parameters:
        fields, alignment = _fields(parameter, values)
        start, end = at, 0
        for each, item, size, align in fields:
            place = -(-end // align) * align
            code += f"{place - end}x{each}"
            end = place + size
            if item is not None:
                items.append(item)
                packed.append((start + place - 4 * len(varying), size, each, item))
        whole = -(-end // alignment) * alignment
        code += f"{whole - end}x"
        offsets.append(start)
        at = start + whole
    return _Packed(code, tuple(items), tuple(offsets), tuple(packed))


def _fields(parameter: Parameter, values: Values) -> tuple[list[tuple[str, str | None, int, int]], int]:
    """Return code, item, size and alignment of each field of a parameter, and the alignment of the whole."""
    fields = parameter if isinstance(parameter, tuple) else (parameter,)
    found = [_field(each, values) for each in fields]
    return found, max(align for *_, align in found) if len(found) > 1 else 1


def _field(field: Any, values: Values) -> tuple[str, str | None, int, int]:
    if isinstance(field, Number):
        width = _SIZES[field.code]
        return field.code, number(field.name), width, width
    if isinstance(field, Storage):
        return "Q", "address" if field.offset == 0 else f"address + {number(field.offset)}", 8, 8
    assert isinstance(field, Value)
    size = values.sizes.get(field.name)
    if size is None:  # an object without members, as most operators are
        return "x", None, 1, 1
    if size == 0:
        return "Q", f"v_{field.name}", 8, 8
    return f"{size}s", f"v_{field.name}", size, values.alignments.get(field.name, 8)


def number(name: str | int) -> str:
    """Return what a number of the plan is called in the functions that are written out."""
    return str(name) if isinstance(name, int) else f"n_{name.replace(' ', '_')}"


_SOURCE = """
def made():
    last, last_address = None, 0
    {lasts}
    def {function}:
        nonlocal last, last_address{nonlocals}
        if bound != last or address != last_address:
            last = None  # if this is interrupted, there is some of both
            {values} = bound
            {numbers} = numbers
            {set}
            last, last_address = bound, address
        {launch}
    return {name}
"""

# Of a chain of several kernels, those whose parameters are as they were are left alone.
_SET = """
packed = _pack_{k}({items})
if packed != last_{k}:
    last_{k} = None
    _memory_{k}[:] = packed
    {grids}
    if status := _set(_executable, _node_{k}, _params_ref_{k}):
        _fail(status, "cuGraphExecKernelNodeSetParams")
    last_{k} = packed
"""

_SET_THE_ONLY = """
_pack_into_{k}(_memory_{k}, 0, {items})
{grids}
if status := _set(_executable, _node_{k}, _params_ref_{k}):
    _fail(status, "cuGraphExecKernelNodeSetParams")
"""

_GRAPH = """
if status := _launch(_executable, _stream):
    _fail(status, "cuGraphLaunch")
"""

_PACK = """
_pack_into_{k}(_memory_{k}, 0, {items})
{grids}
"""

_PLAIN = """
_config_{k}.stream = stream
if status := _launch(_config_ref_{k}, _function_{k}, _pointers_{k}, None):
    _fail(status, "cuLaunchKernelEx")
"""

_OTHER_DIMENSIONS = ("grid_y", "grid_z", "block_y", "block_z")


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
    overlaps : bool
        Whether kernels may begin before what is ahead of them has ended, for which they wait themselves.
    """

    def __init__(
        self,
        shape: Shape,
        values: Values,
        facts: Mapping[str, int],
        functions: Mapping[str, c_void_p],
        overlaps: bool = False,
    ) -> None:
        self.overlaps = overlaps
        self._numbers = shape.numbers
        self._values = values
        self._launches = [
            (each, _packed(each, values), functions[each.kernel], int(each.block))
            for each in (_with_facts(launch, facts, shape.numbers) for launch in shape.launches)
        ]

    def memories(self) -> list[_Memory]:
        """Return what the driver reads of its launches."""
        return [_Memory(*each, self.overlaps) for each in self._launches]

    def enqueuer(self, executable: Executable | None, stream: int = 0) -> Enqueue:
        """Return what enqueues it: as that graph, on that stream; or kernel by kernel, on any.

        It is for one thread at a time.
        """
        made = self._enqueuer(executable, stream)
        if not trace.is_on():
            return made

        def enqueue(bound: tuple[Any, ...], address: int, numbers: tuple[int, ...], stream: int) -> None:
            self.trace(bound, numbers, stream)
            made(bound, address, numbers, stream)

        return enqueue

    def trace(self, bound: tuple[Any, ...], numbers: tuple[int, ...], stream: int) -> None:
        """Print what is launched with the plan's numbers."""
        given = dict(zip(self._numbers, numbers, strict=True))
        for launch, _, _, block in self._launches:
            grid, shared = (given[n] if isinstance(n, str) else n for n in (launch.grid, launch.shared))
            trace.launch(launch.kernel, grid, block, shared, stream)

    def _enqueuer(self, executable: Executable | None, stream: int) -> Enqueue:
        names: dict[str, Any] = {}
        if executable is not None:
            names.update(_launch=driver.library().cuGraphLaunch, _stream=c_void_p(stream))
            return self._written(
                "enqueue(bound, address, numbers, stream)",
                self._set(executable, executable.nodes, names),
                _GRAPH,
                names,
            )
        names["_launch"] = driver.library().cuLaunchKernelEx
        texts = [self._texts(k, "config", names) for k in range(len(self._launches))]
        pack, launch = ("".join(each.format(**text) for text in texts) for each in (_PACK, _PLAIN))
        return self._written("enqueue(bound, address, numbers, stream)", pack, launch, names)

    def filler(self, executable: Executable, nodes: Iterable[c_void_p]) -> Fill:
        """Return what sets the parameters of the graph's next nodes, and launches nothing."""
        names: dict[str, Any] = {}
        return self._written("fill(bound, address, numbers)", self._set(executable, nodes, names), "", names)

    def _set(self, executable: Executable, nodes: Iterable[c_void_p], names: dict[str, Any]) -> str:
        names.update(_set=driver.library().cuGraphExecKernelNodeSetParams_v2, _executable=executable.handle)
        names.update((f"_node_{k}", node) for k, node in enumerate(islice(nodes, len(self._launches))))
        template = _SET if len(self._launches) > 1 else _SET_THE_ONLY
        texts = [self._texts(k, "params", names) for k in range(len(self._launches))]
        return "".join(template.format(**text) for text in texts)

    def _texts(self, k: int, where: str, names: dict[str, Any]) -> dict[str, Any]:
        """Name what one launch is made of; return the texts that are filled in for it."""
        launch, packed, function, block = self._launches[k]
        memory = _Memory(launch, packed, function, block, self.overlaps)
        form = struct.Struct(packed.format)
        names.update(
            {
                f"_pack_{k}": form.pack,
                f"_pack_into_{k}": form.pack_into,
                f"_memory_{k}": memory.view,
                f"_params_{k}": memory.params,
                f"_params_ref_{k}": byref(memory.params),
                f"_config_{k}": memory.config,
                f"_config_ref_{k}": byref(memory.config),
                f"_function_{k}": function,
                f"_pointers_{k}": memory.pointers,
            }
        )
        varying = {"grid": launch.grid, "shared": launch.shared}
        grids = [f"_{where}_{k}.{n} = {number(each)}" for n, each in varying.items() if isinstance(each, str)]
        return {"k": k, "items": ", ".join(packed.items), "grids": "; ".join(grids) or "pass"}

    def _written(
        self, function: str, set_values: str, launch: str, names: dict[str, Any]
    ) -> Callable[..., None]:
        """Write out a function: what sets values that are not those of the call before, and what launches."""
        names["_fail"] = driver.check
        lasts = [f"last_{k}" for k in range(len(self._launches))]
        made: Callable[[], Callable[..., None]] = define(
            " and ".join(dict.fromkeys(launch.kernel for launch, *_ in self._launches)),
            "made",
            _SOURCE,
            names,
            function=function,
            name=function.partition("(")[0],
            lasts=[f"{each} = None" for each in lasts],
            nonlocals="".join(f", {each}" for each in lasts),
            values=f"(_, {''.join(f'v_{name}, ' for name in self._values.sizes)})",
            numbers=f"({''.join(f'{number(each)}, ' for each in self._numbers)})" if self._numbers else "_",
            set=set_values.strip().splitlines(),
            launch=launch.strip().splitlines(),
        )
        return made()


def executable_of(chains: Sequence[Chain]) -> Executable:
    """Make an executable graph of chains, one after another, in the current context."""
    kept = [each for chain in chains for each in chain.memories()]
    return Executable([each.params for each in kept], all(each.overlaps for each in chains))


def _with_facts(launch: Launch, facts: Mapping[str, int], numbers: Sequence[str]) -> Launch:
    """Return a launch whose block is an int, and its dynamic shared memory an int or a plan's number."""
    shared, block = launch.shared, launch.block
    if isinstance(shared, str) and shared not in numbers:
        shared = facts[shared]
    return replace(launch, shared=shared, block=facts[block] if isinstance(block, str) else block)


class _Memory:
    """What the driver reads of one launch: its parameters, pointers to them, and what it is launched with."""

    def __init__(
        self, launch: Launch, packed: _Packed, function: c_void_p, block: int, overlaps: bool
    ) -> None:
        size = struct.calcsize(packed.format)
        memory = (c_char * size)()
        self.view = memoryview(memory).cast("B")
        start = ctypes.addressof(memory)
        self.pointers = (c_void_p * len(packed.offsets))(*[start + each for each in packed.offsets])
        varying = ((launch.grid, 1), (launch.shared, 0))
        grid, shared = (least if isinstance(each, str) else each for each, least in varying)
        shape = {"grid": grid, "block": block, "shared": shared, **dict.fromkeys(_OTHER_DIMENSIONS, 1)}
        self.params = NodeParams(function=function.value, parameters=ctypes.addressof(self.pointers), **shape)
        self.config = LaunchConfig(**shape)
        if overlaps:
            self.config.attributes, self.config.count = ctypes.addressof(PROGRAMMATIC), 1
