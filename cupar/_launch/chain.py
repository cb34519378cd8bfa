"""Chains of launches: a plan's numbers and a call's values, packed and enqueued.

A family's shape is a chain of launches, and a user's kernel is a chain of one. Each call packs grid, dynamic
shared memory and parameters into a buffer for each kernel. Buffers that have changed since the previous call
are set in the chain's executable graph, and the graph is launched; without a graph, kernels are
launched one by one, from the same buffers. The functions that do so are generated for a shape, without loops
and without tests whose results are known. On an H200 a driver takes 1.8 us to launch a graph as it is, 0.7 us
more for each kernel that is set, and 3 to 4 us to launch a kernel: so a stream has several executables of an
algorithm, and calls whose arrays take turns find theirs set (`Executables`).

A generated function compares its arguments with the call before. For an algorithm these are `read` and the
address of the storage: a plan's numbers depend on the problem alone, which is in `read`. For a user's kernel
`read` is bytes, the packed arguments, and its numbers are compared by identity (`Configuration.numbers`).
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
from .._base.generated import define, fill
from .._device import driver
from .._device.kernels import PROGRAMMATIC, Executable, LaunchConfig, NodeParams
from .._kernels.family import Launch, Number, Parameter, Shape, Storage, Value

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

# Both take what `LaunchState.read` returns, or the packed arguments of a user's kernel; the address of the
# temporary storage; and the plan's numbers. A `Fill` sets a graph's parameters; an `Enqueue` launches, too,
# and takes the stream's handle.
Fill = Callable[[Any, int, tuple[Any, ...]], None]
Enqueue = Callable[[Any, int, tuple[Any, ...], int], None]

_SIZES = {code: struct.calcsize(f"={code}") for code in "?bBhHiIqQfd"}
_DIMENSIONS = ("grid", "grid_y", "grid_z", "block", "block_y", "block_z", "shared")
_ATTRIBUTES = ("attributes", "count")  # of launches that are not graphs; also names of a plan's numbers
KERNEL = "kernel"  # the shape of all users' kernels
KERNEL_NUMBERS = (*_DIMENSIONS, *_ATTRIBUTES)  # of a launch of a user's kernel


@dataclass(frozen=True)
class Layouts:
    """The layouts of a call's values: bytes and alignment by name, in the order of `value_names`.

    An address has 0 bytes here: `LaunchState.read` returns it as an int, and it is packed into 8.
    """

    layouts: Mapping[str, tuple[int, int]]

    @staticmethod
    def of(spec: Specialisation, names: Sequence[str]) -> Layouts:
        """Return those of a specialisation's calls; `names` are the parameters that are arrays."""
        found: dict[str, tuple[int, int]] = {
            each.name: (0 if each.is_pointer else each.node.size, 8) for each in spec.arguments
        }
        found.update((name, (op.state_size, op.state_alignment)) for name, op in spec.operators)
        if (init := spec.option("init")) is not None:
            accumulator = spec.operators[0][1].output
            found["init"] = (accumulator.itemsize, accumulator.alignment) if init == "value" else (0, 8)
        return Layouts({name: found[name] for name in spec.value_names(names)})


@dataclass(frozen=True)
class Arguments:
    """All parameters of a user's kernel: one value, packed before it is read, and constants behind it."""

    size: int
    places: tuple[int, ...]  # of the parameters
    constants: bytes


@dataclass(frozen=True)
class Packing:
    """Layout of a launch's grid, shared memory and parameters: a struct format, and its items."""

    format: str
    items: tuple[str, ...]
    offsets: tuple[int, ...]  # of the parameters
    # Of the parameters alone: offset, bytes, format and item of each field.
    fields: tuple[tuple[int, int, str, str], ...] = ()
    constants: bytes = b""  # behind the rest, written once


def _packed(launch: Launch, values: Layouts) -> Packing:
    first: Any = launch.parameters[0] if launch.parameters else None
    if isinstance(first, Arguments):
        return Packing(f"{first.size}s", ("read",), first.places, constants=first.constants)
    # Grid and shared memory are packed too: changes are detected by the bytes alone.
    varying = [variable_of(each) for each in (launch.grid, launch.shared) if isinstance(each, str)]
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
    return Packing(code, tuple(items), tuple(offsets), tuple(packed))


def _fields(parameter: Parameter, values: Layouts) -> tuple[list[tuple[str, str | None, int, int]], int]:
    """Return code, item, size and alignment of each field of a parameter, and the alignment of the whole."""
    fields = parameter if isinstance(parameter, tuple) else (parameter,)
    found = [_field(each, values) for each in fields]
    return found, max(align for *_, align in found) if len(found) > 1 else 1


def _field(field: Any, values: Layouts) -> tuple[str, str | None, int, int]:
    if isinstance(field, Number):
        width = _SIZES[field.code]
        return field.code, variable_of(field.name), width, width
    if isinstance(field, Storage):
        return "Q", "address" if field.offset == 0 else f"address + {variable_of(field.offset)}", 8, 8
    assert isinstance(field, Value)
    size, alignment = values.layouts.get(field.name, (None, 8))
    if size is None:  # an object without members, as most operators are
        return "x", None, 1, 1
    if size == 0:
        return "Q", f"v_{field.name}", 8, 8
    return f"{size}s", f"v_{field.name}", size, alignment


def variable_of(name: str | int) -> str:
    """Return the variable of generated functions that a plan's number is in; of a constant, its text."""
    return str(name) if isinstance(name, int) else f"n_{name.replace(' ', '_')}"


_SOURCE = """
def made():
    last, last_address, last_numbers = None, 0, None
    {lasts}
    def {function}:
        nonlocal last, last_address, last_numbers{nonlocals}
        if read != last or {changed}:
            last = None  # an interrupt could leave a mixture
            {unpacking}
            {set}
            {kept}
        {launch}
    return {name}
"""

# In a chain of several kernels, only those whose parameters have changed are set.
_SET = """
packed = _pack_{k}({items})
if packed != last_{k}:
    last_{k} = None
    _buffer_{k}[:] = packed
    {grids}
    if status := _set(_executable, _node_{k}, _params_ref_{k}):
        _fail(status, "cuGraphExecKernelNodeSetParams")
    last_{k} = packed
"""

_SET_THE_ONLY = """
{pack}
{grids}
if status := _set(_executable, _node_{k}, _params_ref_{k}):
    _fail(status, "cuGraphExecKernelNodeSetParams")
"""

_GRAPH = """
if status := _launch(_executable, _stream):
    _fail(status, "cuGraphLaunch")
"""

_PACK = """
{pack}
{grids}
"""

_PLAIN = """
_config_{k}.stream = stream
if status := _launch(_config_ref_{k}, _function_{k}, _pointers_{k}, None):
    _fail(status, "cuLaunchKernelEx")
"""

# For users' kernels: most often, the configuration is that of the launch before.
_IF_CONFIGURED = """
if numbers is not last_numbers:
    last_numbers = None
    {numbers} = numbers
    {grids}
    last_numbers = numbers
"""


class Chain:
    """A shape for one build and context: its kernels, and how their parameters are packed.

    Parameters
    ----------
    shape : Shape
    values : Layouts
        Of the calls' values.
    properties : mapping of str to int
        Of the build and the device, for blocks and shared memory.
    functions : sequence of c_void_p
        The handles of the kernels, for each launch.
    overlaps : bool
        Whether kernels may begin before earlier ones have ended, for which they wait themselves.
    name : str, optional
        In traces; by default each kernel's symbol.

    Attributes
    ----------
    launches : list of tuple
        Each with the layout of its parameters, the kernel's handle, and the threads of a block.
    values
        As given.
    numbers : tuple of str
        Names of the shape's numbers.
    """

    def __init__(
        self,
        shape: Shape,
        values: Layouts,
        properties: Mapping[str, int],
        functions: Sequence[c_void_p],
        overlaps: bool = False,
        name: str = "",
    ) -> None:
        self.overlaps, self.name = overlaps, name
        self.numbers, self._is_users = shape.numbers, shape.numbers == KERNEL_NUMBERS
        self.values = values
        resolved = [_resolved(launch, properties, shape.numbers) for launch in shape.launches]
        self.launches: list[tuple[Launch, Packing, c_void_p, Any]] = [
            (each, _packed(each, values), function, each.block)
            for each, function in zip(resolved, functions, strict=True)
        ]

    def buffers(self) -> list[LaunchBuffer]:
        """Return a buffer for each of its launches."""
        return [LaunchBuffer(*each, self.overlaps) for each in self.launches]

    def enqueuer(
        self,
        executable: Executable | None,
        stream: int = 0,
        another: Callable[[], Executable | None] = lambda: None,
    ) -> Enqueue:
        """Return the function that enqueues it: as a graph, on its stream; or kernel by kernel, on any.

        It is for one thread at a time. `another` returns a further executable, or None if there is none.
        """
        function, library = "enqueue(read, address, numbers, stream)", driver.library()
        names: dict[str, Any] = {"_stream": c_void_p(stream)}
        if executable is not None and not self._is_users:
            made = Executables(self, executable, another).enqueuer(c_void_p(stream))
        elif executable is not None:
            names["_launch"] = library.cuGraphLaunch
            made = self._graph(function, executable, executable.nodes, names, [_GRAPH])
        else:
            names["_launch"] = library.cuLaunchKernelEx
            texts = [self._texts(k, "config", names) for k in range(len(self.launches))]
            pack, launch = ([fill(each, **text) for text in texts] for each in (_PACK, _PLAIN))
            made = self._defined(function, names, pack, launch)
        if not trace.is_on():
            return made

        def enqueue(read: tuple[Any, ...], address: int, numbers: tuple[int, ...], stream: int) -> None:
            self.trace(numbers, stream)
            made(read, address, numbers, stream)

        return enqueue

    def trace(self, numbers: tuple[int, ...], stream: int) -> None:
        """Print the launches for a plan's numbers."""
        given = dict(zip(self.numbers, numbers, strict=True))

        def known(each: Any) -> Any:
            return tuple(map(known, each)) if isinstance(each, tuple) else given.get(each, each)

        for launch, _, _, block in self.launches:
            grid, block, shared = map(known, (launch.grid, block, launch.shared))
            trace.launch(self.name or launch.kernel, grid, block, shared, stream)

    def filler(self, executable: Executable, nodes: Iterable[c_void_p]) -> Fill:
        """Return a function that sets the parameters of the graph's next nodes, and launches nothing."""
        return self._graph("fill(read, address, numbers)", executable, nodes, {}, [])

    def _graph(
        self,
        function: str,
        executable: Executable,
        nodes: Iterable[c_void_p],
        names: dict[str, Any],
        launch: Sequence[str],
    ) -> Callable[..., None]:
        names.update(_set=driver.library().cuGraphExecKernelNodeSetParams_v2, _executable=executable.handle)
        names.update((f"_node_{k}", node) for k, node in enumerate(islice(nodes, len(self.launches))))
        texts = [self._texts(k, "params", names) for k in range(len(self.launches))]
        template = _SET if len(texts) > 1 else _SET_THE_ONLY
        return self._defined(function, names, [fill(template, **text) for text in texts], launch)

    def _texts(self, k: int, where: str, names: dict[str, Any]) -> dict[str, Any]:
        """Add the names that generated code has for one launch; return the texts of its templates."""
        launch, packed, function, block = self.launches[k]
        buffer = LaunchBuffer(launch, packed, function, block, self.overlaps)
        form = struct.Struct(packed.format)
        names.update(
            {
                f"_pack_{k}": form.pack,
                f"_pack_into_{k}": form.pack_into,
                f"_buffer_{k}": buffer.view,
                f"_params_{k}": buffer.params,
                f"_params_ref_{k}": byref(buffer.params),
                f"_config_{k}": buffer.config,
                f"_config_ref_{k}": byref(buffer.config),
                f"_function_{k}": function,
                f"_pointers_{k}": buffer.pointers,
            }
        )
        varying = [(n, each) for n, each in dimensions(launch, block) if isinstance(each, str)]
        if where == "config" and self._is_users:
            varying += zip(_ATTRIBUTES, _ATTRIBUTES, strict=True)
        grids = [f"_{where}_{k}.{n} = {variable_of(each)}" for n, each in varying]
        items = ", ".join(packed.items)
        pack = f"_pack_into_{k}(_buffer_{k}, 0, {items})"
        if self._is_users:
            pack = f"_buffer_{k}[:] = {items}"
            grids = [fill(_IF_CONFIGURED, grids=grids, numbers=self._names_of_numbers())]
        return {"k": str(k), "items": items, "pack": pack, "grids": grids}

    def _names_of_numbers(self) -> str:
        return f"({''.join(f'{variable_of(each)}, ' for each in self.numbers)})"

    def _defined(
        self, function: str, names: dict[str, Any], set_values: Sequence[str], launch: Sequence[str]
    ) -> Callable[..., None]:
        """Generate a function that sets the values that have changed since the call before, and launches."""
        names["_fail"], lasts = driver.check, [f"last_{k}" for k in range(len(self.launches))]
        unpacking = [f"(_, {''.join(f'v_{name}, ' for name in self.values.layouts)}) = read"]
        unpacking += [f"{self._names_of_numbers()} = numbers"] * bool(self.numbers)
        made: Callable[[], Callable[..., None]] = define(
            " and ".join(dict.fromkeys(launch.kernel for launch, *_ in self.launches)),
            "made",
            _SOURCE,
            names,
            function=function,
            name=function.partition("(")[0],
            lasts=[f"{each} = None" for each in lasts],
            nonlocals="".join(f", {each}" for each in lasts),
            changed="numbers is not last_numbers" if self._is_users else "address != last_address",
            kept="last = read" if self._is_users else "last, last_address = read, address",
            unpacking=[] if self._is_users else unpacking,
            set=set_values,
            launch=launch,
        )
        return made()


_MOST_SLOTS = 4  # executables of a shape on a stream


class Executables:
    """The executables of a chain on one stream, each as it was set for some call.

    The results of calls take turns at a few addresses, as allocators give back what was freed last.

    Parameters
    ----------
    chain : Chain
    first : Executable
    another : callable
        Returns a further executable, or None.
    """

    def __init__(self, chain: Chain, first: Executable, another: Callable[[], Executable | None]) -> None:
        self._chain, self._another = chain, another
        self._set: dict[Any, c_void_p] = {}  # by what `LaunchState.read` returned
        self._address = 0  # of the storage, for which all of them are set
        self._slots: list[tuple[Fill, c_void_p]] = []
        self._reads: list[Any] = []  # of each slot
        self._turn = 0
        self._add(first)

    def _add(self, executable: Executable) -> None:
        self._reads.append(None)
        self._slots.append((self._chain.filler(executable, executable.nodes), executable.handle))

    def find(self, read: Any, address: int, numbers: tuple[Any, ...]) -> c_void_p:
        """Return the handle of an executable that is set for a call; set the oldest one if none is."""
        if address != self._address:
            self._set.clear()
            self._address = address
        found = self._set.get(read)
        if found is not None:
            return found
        # An interrupt leaves a slot whose call is not found, so that it is set anew.
        k, slots = self._turn, self._slots
        if k == len(slots):
            made = self._another() if k < _MOST_SLOTS else None
            if made is None:
                k = 0
            else:
                self._add(made)
        self._turn = k + 1
        fill, handle = slots[k]
        self._set.pop(self._reads[k], None)
        fill(read, address, numbers)
        self._reads[k] = read
        self._set[read] = handle
        return handle

    def enqueuer(self, stream: c_void_p) -> Enqueue:
        """Return the function that enqueues a call on a stream."""
        find, launch, fail = self.find, driver.library().cuGraphLaunch, driver.check
        last: Any = None
        last_address = 0
        executable = c_void_p()

        def enqueue(read: Any, address: int, numbers: tuple[Any, ...], _: int) -> None:
            nonlocal last, last_address, executable
            if read != last or address != last_address:
                last = None  # an interrupt could leave another one's
                executable = find(read, address, numbers)
                last, last_address = read, address
            if status := launch(executable, stream):
                fail(status, "cuGraphLaunch")

        return enqueue


def executable_of(chains: Sequence[Chain]) -> Executable:
    """Make an executable graph of chains, one after another, in the current context."""
    kept = [each for chain in chains for each in chain.buffers()]
    return Executable([each.params for each in kept], all(each.overlaps for each in chains))


def _resolved(launch: Launch, properties: Mapping[str, int], numbers: Sequence[str]) -> Launch:
    """Return a launch whose block is an int, and its dynamic shared memory an int or a plan's number."""
    shared, block = launch.shared, launch.block
    if isinstance(shared, str) and shared not in numbers:
        shared = properties[shared]
    return replace(launch, shared=shared, block=properties[block] if isinstance(block, str) else block)


class LaunchBuffer:
    """Memory that the driver reads for one launch.

    Attributes
    ----------
    view : memoryview
        Where items are packed to.
    pointers
        To the parameters.
    params, config
        The launch, for graphs and by itself.
    """

    def __init__(
        self, launch: Launch, packing: Packing, function: c_void_p, block: Any, overlaps: bool
    ) -> None:
        size = struct.calcsize(packing.format)
        memory = (c_char * (size + len(packing.constants) or 1))()
        self.view = memoryview(memory).cast("B")[:size]
        start = ctypes.addressof(memory)
        ctypes.memmove(start + size, packing.constants, len(packing.constants))
        self.pointers = (c_void_p * max(1, len(packing.offsets)))(*[start + each for each in packing.offsets])
        least = {name: int(name != "shared") for name in _DIMENSIONS}
        shape = {n: least[n] if isinstance(each, str) else each for n, each in dimensions(launch, block)}
        self.params = NodeParams(function=function.value, parameters=ctypes.addressof(self.pointers), **shape)
        self.config = LaunchConfig(**shape)
        if overlaps:
            self.config.attributes, self.config.count = ctypes.addressof(PROGRAMMATIC), 1


def dimensions(launch: Launch, block: Any) -> Iterable[tuple[str, str | int]]:
    """Return grid, block and shared memory by the driver's names: as numbers, or names of a plan's."""
    grid, block = (each if isinstance(each, tuple) else (each, 1, 1) for each in (launch.grid, block))
    return zip(_DIMENSIONS, (*grid, *block, launch.shared), strict=True)
