"""Calls that repeat, replayed: what they launch as a CUDA graph, in which what changes is replaced.

Through the bindings, CUB works out in each call what to launch, and launches kernel by kernel. For as much
work on the same stream that is always the same, and the driver launches a graph of it in less than half of
the time that it takes for one kernel. What differs from call to call (addresses, the initial value, states of
iterators and operators) is somewhere in the kernels' parameters. To find out where, the call is captured
twice, with made-up values: what differs between the two must be one of the values, or an address at a fixed
distance from one. And it is captured with its own values, which must be what is foretold for them. A call
for which any of this does not hold is never replayed.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from ctypes import POINTER, byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _capture, _driver, _log

if TYPE_CHECKING:
    from ._call import Call

Values = tuple[Any, ...]  # each an address, as int, or memory that is copied, as bytes
Bound = tuple[Any, ...]  # how much there is to do, and the values: what `Call.bind` returns

# What host code decides by an address, it decides by its alignment: a replayed call's are aligned alike.
_ALIGNMENTS = 512 - 1


def _calls_before() -> float:
    off = os.environ.get("CUPAR_REPLAY", "").strip().lower() in ("0", "off", "false", "no")
    # To capture and take apart a call costs what some 50 calls save.
    return math.inf if off else 50


CALLS_BEFORE = _calls_before()  # a call is replayed that was made so often, with as much to do


class NotReplayableError(Exception):
    """A call does something that a graph of it, with other values, might not do."""


class Part(NamedTuple):
    """Where one of the values is in a kernel's parameters.

    Attributes
    ----------
    offset : int
        Its first byte.
    source : int
        Which value it is.
    distance : int
        What is added to it, if it is an address.
    length : int or None
        How many bytes it has, if it is none.
    """

    offset: int
    source: int
    distance: int = 0
    length: int | None = None


def made_up(values: Values, which: int) -> Values:
    """Return other values of the same sizes, and addresses of the same alignments.

    Parameters
    ----------
    which : {0, 1}
        Of the two sets that there are.
    """
    return tuple(
        # Far apart, and no two addresses are as far from each other as two others.
        (((2 * which + 1) * i + 16 + 512 * which) << 36) + (value & _ALIGNMENTS)
        if isinstance(value, int)
        else bytes((101 * (i + 1) + 59 * k) & 255 ^ 255 * which for k in range(len(value)))
        for i, value in enumerate(values)
    )


def parts(one: bytes, two: bytes, values: Values) -> list[Part]:
    """Find the values in a kernel's parameters.

    Parameters
    ----------
    one, two : bytes
        The parameters of calls with `made_up` values, of the first and the second set.
    values : sequence
        Those of the call for which they were made up.

    Raises
    ------
    NotReplayableError
        If parameters depend on the values in any other way.
    """
    found: list[Part] = []
    unexplained = {i for i, (a, b) in enumerate(zip(one, two, strict=True)) if a != b}
    firsts, seconds = made_up(values, 0), made_up(values, 1)
    for offset in range(0, len(one) - 7, 8):
        a, b = (int.from_bytes(data[offset : offset + 8], "little") for data in (one, two))
        for source, (first, second) in enumerate(zip(firsts, seconds, strict=True)):
            if a != b and isinstance(first, int) and isinstance(second, int):
                distance = a - first
                if distance == b - second and abs(distance) < 1 << 35:
                    found.append(Part(offset, source, distance))
                    unexplained.difference_update(range(offset, offset + 8))
    for source, (first, second) in enumerate(zip(firsts, seconds, strict=True)):
        if isinstance(first, bytes) and isinstance(second, bytes) and first:
            offset = one.find(first)
            while offset >= 0:
                place = range(offset, offset + len(first))
                if two[offset : place.stop] == second and unexplained.issuperset(place):
                    found.append(Part(offset, source, length=len(first)))
                    unexplained.difference_update(place)
                offset = one.find(first, offset + 1)
    if unexplained:
        raise NotReplayableError(f"bytes {sorted(unexplained)} of the parameters")
    return found


class Parameters:
    """A kernel's parameters in memory, in which values can be replaced.

    Attributes
    ----------
    memory : ctypes array of char
        The parameters.
    sources : set of int
        Which values are in them.
    """

    def __init__(self, memory: ctypes.Array[ctypes.c_char], places: Sequence[Part]) -> None:
        self.memory = memory
        self.sources = {part.source for part in places}
        self._addresses = [
            (c_uint64.from_buffer(memory, part.offset), part.source, part.distance)
            for part in places
            if part.length is None
        ]
        self._bytes = [
            (memoryview(memory).cast("B")[part.offset : part.offset + part.length], part.source)
            for part in places
            if part.length is not None
        ]

    def write(self, values: Sequence[Any]) -> None:
        """Replace all values."""
        for cell, source, distance in self._addresses:
            cell.value = values[source] + distance
        for place, source in self._bytes:
            place[:] = values[source]


# --- Graphs ----------------------------------------------------------------------------------------------


_KERNEL = 0  # CU_GRAPH_NODE_TYPE_KERNEL


class _KernelNode(ctypes.Structure):
    """``CUDA_KERNEL_NODE_PARAMS_v2``."""

    _fields_ = [
        ("function", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_memory", c_uint),
        ("parameters", POINTER(c_void_p)),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("context", c_void_p),
    ]


class _Kernel:
    """A kernel of a graph: its node, what it is launched with, and a copy of its parameters."""

    def __init__(self, node: int) -> None:
        library = _driver.library()
        self.node = c_void_p(node)
        self.details = _KernelNode()
        status = library.cuGraphKernelNodeGetParams_v2(self.node, byref(self.details))
        _driver.check(status, "cuGraphKernelNodeGetParams")
        given = self.details.parameters
        if not given:
            raise NotReplayableError("a kernel whose parameters are not given one by one")
        offset, size = c_size_t(), c_size_t()
        places: list[tuple[int, int]] = []
        function = c_void_p(self.details.function or self.details.kernel)
        while library.cuFuncGetParamInfo(function, c_size_t(len(places)), byref(offset), byref(size)) == 0:
            places.append((offset.value, size.value))
        self.memory = ctypes.create_string_buffer(max((at + length for at, length in places), default=1))
        start = ctypes.addressof(self.memory)
        for i, (at, length) in enumerate(places):
            ctypes.memmove(start + at, given[i], length)
        # ctypes keeps alive what is assigned to a pointer's place, but not what the pointers in it point to.
        self.details.parameters = (c_void_p * len(places))(*[start + at for at, _ in places])
        self.parameters = Parameters(self.memory, ())

    def shape(self) -> tuple[Any, ...]:
        """Return all that it is launched with but the parameters' values."""
        one = self.details
        return one.function, one.kernel, *one.grid, *one.block, one.shared_memory, len(self.memory)


def _chain(graph: c_void_p) -> list[_Kernel]:
    """Return the kernels of a graph, first to last; it must be a chain of kernels and nothing else."""
    library, count = _driver.library(), c_size_t()
    _driver.check(library.cuGraphGetNodes(graph, None, byref(count)), "cuGraphGetNodes")
    nodes = (c_void_p * count.value)()
    _driver.check(library.cuGraphGetNodes(graph, nodes, byref(count)), "cuGraphGetNodes")
    kind = c_int()
    for node in nodes:
        _driver.check(library.cuGraphNodeGetType(c_void_p(node), byref(kind)), "cuGraphNodeGetType")
        if kind.value != _KERNEL:
            raise NotReplayableError(f"a node of type {kind.value}")
    status = library.cuGraphGetEdges_v2(graph, None, None, None, byref(count))
    _driver.check(status, "cuGraphGetEdges")
    pointers, ports = c_void_p * count.value, c_uint64 * count.value
    sources, targets, data = pointers(), pointers(), ports()
    status = library.cuGraphGetEdges_v2(graph, sources, targets, data, byref(count))
    _driver.check(status, "cuGraphGetEdges")
    after = dict(zip(sources, targets, strict=True))
    chain = list(set(nodes).difference(after.values()))[:1]
    while chain and chain[-1] in after:
        chain.append(after[chain[-1]])
    if not chain or len(chain) != len(nodes) or len(after) != len(sources):
        raise NotReplayableError(f"{len(nodes)} nodes and {len(sources)} edges")
    return [_Kernel(node) for node in chain]


class Replay:
    """What a call with as much to do launches on one stream, to be enqueued again. For one thread at a time.

    Attributes
    ----------
    bound, address : object
        The values, and the temporary storage, that the graph has now.
    needed : int
        Bytes of temporary storage.
    launch, executable, where : callable, c_void_p, c_void_p
        ``cuGraphLaunch`` and what it takes: the graph and the stream.
    number : int
        The driver's number of the stream, 0 of the default one.
    """

    def __init__(
        self,
        call: Call,
        graph: _capture.Capture,
        kernels: Sequence[_Kernel],
        values: Values,
        needed: int,
        stream: int,
        number: int,
    ) -> None:
        self.bound: Bound = ()
        self.address = 0
        self.needed = needed
        self.launch = _driver.library().cuGraphLaunch
        self.where = c_void_p(stream)
        self.number = number
        self.executable = c_void_p()
        self._native = call.native  # has the code, which must be there for longer than the graph
        self._graph = graph
        self._kernels = kernels
        self._alignments = [value & _ALIGNMENTS if isinstance(value, int) else -1 for value in values]
        self._none = (None,) * len(values)
        self._values: Values = self._none
        status = _driver.library().cuGraphInstantiateWithFlags(
            byref(self.executable), graph.graph, c_uint64(0)
        )
        _driver.check(status, "cuGraphInstantiate")

    def turn_to(self, bound: Bound, address: int) -> bool:
        """Put other values into the graph.

        Returns
        -------
        bool
            False if they are such that the call might launch something else.

        Raises
        ------
        DriverError
            If the driver refuses.
        """
        values = _values(bound, address)
        changed = set()
        for i, (value, old, alignment) in enumerate(zip(values, self._values, self._alignments, strict=True)):
            if value != old:
                changed.add(i)
                if alignment >= 0 and (not value or value & _ALIGNMENTS != alignment):
                    return False
        self._values = self._none  # until all of them are in the graph
        set_parameters = _driver.library().cuGraphExecKernelNodeSetParams_v2
        for kernel in self._kernels:
            if not changed.isdisjoint(kernel.parameters.sources):
                kernel.parameters.write(values)
                status = set_parameters(self.executable, kernel.node, byref(kernel.details))
                _driver.check(status, "cuGraphExecKernelNodeSetParams")
        self._values, self.bound, self.address = values, bound, address
        return True

    def close(self) -> None:
        """Destroy the graph, once what was enqueued is done."""
        if self.executable:
            _driver.library().cuGraphExecDestroy(self.executable)
            self.executable = c_void_p()
        self._graph.destroy()

    def __del__(self) -> None:
        with suppress(Exception):  # the driver may be gone before this object is
            self.close()


def _values(bound: Bound, address: int) -> Values:
    """Return what is put into a graph."""
    return (*bound[1:], address) if address else bound[1:]


@functools.cache
def _is_possible() -> bool:
    """Whether the driver tells how long each parameter of a kernel is: from CUDA 12.4 on."""
    return hasattr(_driver.library(), "cuFuncGetParamInfo")


def _is_plain(stream: int) -> bool:
    """Whether work runs on a stream as it does in a graph: with the default priority, on the whole GPU."""
    if not stream:
        return True
    library, priority, context = _driver.library(), c_int(), c_void_p()
    handle = c_void_p(stream)
    if library.cuStreamGetPriority(handle, byref(priority)) or priority.value:
        return False
    return library.cuStreamGetGreenCtx(handle, byref(context)) == 0 and not context.value


def made(call: Call, bound: Bound, address: int, needed: int, stream: int) -> Replay | None:
    """Make what replays a call, if it can be replayed. It leaves the call's objects set to other values.

    Parameters
    ----------
    call : Call
    bound : tuple
        How much there is to do, and the values.
    address : int
        Of the temporary storage; 0 if the algorithm needs none.
    needed : int
        Bytes of it.
    stream : int
        The stream's handle.
    """
    number, values = _driver.stream_number(stream), _values(bound, address)
    if not _is_possible() or number is None or not _is_plain(stream):
        return None
    if not all(isinstance(each, bytes) or each for each in values):  # a null pointer may mean something
        return None
    graphs: list[_capture.Capture] = []

    def kernels(values: Values) -> list[_Kernel]:
        """Capture the call with other values."""
        given = values[:-1] if address else values
        call.set((bound[0], *given))
        with _capture.capture() as captured:
            call.launch(values[-1] if address else 0, needed, bound[0], captured.stream)
        graphs.append(captured)
        return _chain(captured.graph)

    try:
        with _driver.relaxed():
            ones, twos = kernels(made_up(values, 0)), kernels(made_up(values, 1))
            owns = kernels(values)
            shapes = [[kernel.shape() for kernel in each] for each in (ones, twos, owns)]
            if not ones or shapes[0] != shapes[1] or shapes[0] != shapes[2]:
                raise NotReplayableError("other kernels for other values")
            for one, two, own in zip(ones, twos, owns, strict=True):
                one.parameters = Parameters(one.memory, parts(one.memory.raw, two.memory.raw, values))
                one.parameters.write(values)
                if one.memory.raw != own.memory.raw:
                    raise NotReplayableError("other parameters than foretold")
            return Replay(call, graphs.pop(0), ones, values, needed, stream, number)
    except (NotReplayableError, RuntimeError) as error:  # the latter from the bindings or the driver
        _log.not_replayed(call.name, error)
        return None
    finally:
        for graph in graphs:
            graph.destroy()
