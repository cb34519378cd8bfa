"""Calls that repeat, replayed: what they launch as a CUDA graph, in which what changes is replaced.

Through the bindings, CUB works out in each call what to launch, and launches kernel by kernel. For as much
work on the same stream that is always the same, and the driver launches a graph of it in less time than the
kernels (of a reduction's one kernel: in less than half, on an H200). What differs from call to call
(addresses, the initial value, states of iterators and operators) is somewhere in the kernels' parameters. To
find out where, the call is captured twice, with made-up values: what differs between the two must be one of
the values, an address at a fixed distance from one, or padding. To check, it is captured with its own values
as well, which must give what is foretold. A call for which any of this does not hold is not replayed.

The graph that is launched is the first made-up one, with the call's values put into it: so each call is a
call with other values than the graph was made with, and none is a special case.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from ctypes import byref, c_char, c_int, c_size_t, c_uint64, c_void_p
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from .._base import fork, log
from .._device import driver, stream_capture

if TYPE_CHECKING:
    from .call import Call

Values = tuple[Any, ...]  # each an address, as int, or memory that is copied, as bytes
Checked = tuple[Any, ...]  # how much there is to do, and the values: what `Call.bind` returns

# What host code decides by an address, it decides by its alignment: a replayed call's are aligned alike.
_ALIGNMENTS = 512 - 1
_FAR = 1 << 36  # bytes, which no address is from the one that it is worked out from


def _calls_before() -> int:
    off = os.environ.get("CUPAR_REPLAY", "").strip().lower() in ("0", "off", "false", "no")
    # Whoever has each launch waited for wants to know which one it is that fails.
    if off or os.environ.get("CUDA_LAUNCH_BLOCKING", "0").strip() not in ("", "0"):
        return sys.maxsize
    return 50  # to capture and take apart a call costs what 50 to 100 calls save


CALLS_BEFORE = _calls_before()  # how often a call is made, with as much to do, before it is replayed


# Functions that are written out for a call have its objects as globals, so that calls alike share their code.
compiled = lru_cache(lambda source: compile(source, "<cupar call>", "exec"))


class NotReplayableError(Exception):
    """A call does something that a graph of it, with other values, might not do."""


class Place(NamedTuple):
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
    # Far apart, no two as far from each other as two others, in other orders; and to align them to more bytes
    # than they are aligned to would change one set in another way than the other.
    begin, step, within = ((16, 1, 0x2AA << 9), (2000, -3, 0x555 << 9))[which]
    return tuple(
        _FAR * (step * i + begin) + within + (value & _ALIGNMENTS)
        if isinstance(value, int)
        else bytes((101 * (i + 1) + 59 * k) & 255 ^ 255 * which for k in range(len(value)))
        for i, value in enumerate(values)
    )


def places(
    one: bytes, two: bytes, firsts: Values, seconds: Values, unused: Collection[int] = ()
) -> list[Place]:
    """Find the values in a kernel's parameters.

    Parameters
    ----------
    one, two : bytes
        The parameters of calls with `made_up` values: multiples of 8 bytes.
    firsts, seconds : tuple
        These values, of the first and the second set.
    unused : collection of int
        Bytes that are not read, unless they are a value.

    Raises
    ------
    NotReplayableError
        If parameters depend on the values in any other way.
    """
    found: list[Place] = []
    unexplained: set[int] = set()
    pairs = list(zip(firsts, seconds, strict=True))
    for word, (a, b) in enumerate(zip(memoryview(one).cast("Q"), memoryview(two).cast("Q"), strict=True)):
        if a != b:
            offset = 8 * word
            for source, (first, second) in enumerate(pairs):
                if isinstance(first, int) and a - first == b - second and abs(a - first) < _FAR // 2:
                    found.append(Place(offset, source, a - first))
                    break
            else:
                unexplained.update(i for i in range(offset, offset + 8) if one[i] != two[i])
    copied = [(i, pair) for i, pair in enumerate(pairs) if isinstance(pair[0], bytes) and pair[0]]
    # The longest first, for one may have a shorter one within it.
    for source, (first, second) in sorted(copied, key=lambda each: -len(each[1][0])):
        offset = one.find(first)
        while offset >= 0:
            place = range(offset, offset + len(first))
            if two[offset : place.stop] == second and unexplained.issuperset(place):
                found.append(Place(offset, source, length=len(first)))
                unexplained.difference_update(place)
            offset = one.find(first, offset + 1)
    unexplained.difference_update(unused)
    if unexplained:
        where = ", ".join(map(str, sorted(unexplained)))
        raise NotReplayableError(f"bytes {where} of a kernel's parameters, {_hex(one)} and {_hex(two)}")
    return found


def _hex(memory: bytes) -> str:
    return memory.hex(" ", -8)


def setter(
    kernels: Sequence[Any], values: Values, set_parameters: Callable[[Any, Any], int]
) -> Callable[[Values, Values], bool]:
    """Return what replaces the values in kernels' parameters.

    It is written out for them, without a loop: a call with other arrays takes that much longer.

    Parameters
    ----------
    kernels : sequence
        Each with the ``memory`` of its parameters, the ``places`` of the values in it, and ``node`` and
        ``details``, which are handed to `set_parameters`.
    values : tuple
        Such as the kernels were captured with.
    set_parameters : callable
        Gives a kernel the parameters that are in its memory, and returns the driver's status.

    Returns
    -------
    callable
        Takes the values that there are (None for what is not known) and other ones; returns False, and does
        nothing, if these are aligned in another way or missing.
    """
    names: dict[str, Any] = {
        "_set": set_parameters,
        "_check": driver.check,
        "_name": "cuGraphExecKernelNodeSetParams",
    }
    lines = [f"if len(new) != {len(values)}: return False"]
    lines += [f"({''.join(f'{side}_{i}, ' for i in range(len(values)))}) = {side}" for side in ("old", "new")]
    for i, value in enumerate(values):
        if isinstance(value, int):
            names[f"_alignment_{i}"] = value & _ALIGNMENTS
            lines.append(f"if not new_{i} or new_{i} & {_ALIGNMENTS} != _alignment_{i}: return False")
    for k, kernel in enumerate(kernels):
        sources = sorted({place.source for place in kernel.places})
        if not sources:
            continue
        lines.append(f"if {' or '.join(f'old_{each} != new_{each}' for each in sources)}:")
        for i, (offset, source, distance, length) in enumerate(kernel.places):
            place = f"_place_{k}_{i}"
            if length is None:
                names[place] = c_uint64.from_buffer(kernel.memory, offset)
                names[f"_distance_{k}_{i}"] = distance
                lines.append(f"    {place}.value = new_{source} + _distance_{k}_{i}")
            else:
                names[place] = memoryview(kernel.memory).cast("B")[offset : offset + length]
                lines.append(f"    {place}[:] = new_{source}")
        names.update({f"_node_{k}": kernel.node, f"_details_{k}": kernel.details})
        lines += [f"    if status := _set(_node_{k}, _details_{k}):", "        _check(status, _name)"]
    exec(compiled("\n    ".join(["def set_values(old, new):", *lines, "return True"])), names)
    function: Callable[[Values, Values], bool] = names.pop("set_values")  # or it would be in a cycle
    return function


# --- Graphs ----------------------------------------------------------------------------------------------


_NO_SUCH_PARAMETER = 1  # CUDA_ERROR_INVALID_VALUE


class _Kernel:
    """A kernel of a graph: its node, what it is launched with, and its parameters in memory of their own.

    Parameters
    ----------
    node : int
        The node's handle.
    layouts : dict
        Where the parameters of kernels are known to be; this one's are added.
    """

    def __init__(self, node: int, layouts: dict[int, list[tuple[int, int]]]) -> None:
        library = driver.library()
        self.node = c_void_p(node)
        launch = stream_capture.KernelNode()
        self.details = byref(launch)
        self.places: list[Place] = []
        status = library.cuGraphKernelNodeGetParams_v2(self.node, self.details)
        driver.check(status, "cuGraphKernelNodeGetParams")
        given, function = launch.parameters, launch.function or launch.kernel
        if not given:
            raise NotReplayableError("a kernel whose parameters are not given one by one")
        if function not in layouts:
            layouts[function] = _layout(function)
        layout = layouts[function]
        end = max((at + length for at, length in layout), default=0)
        self.memory = (c_char * (-(-end // 8) * 8))()
        self.single_bytes = [at for at, length in layout if length == 1]
        start = ctypes.addressof(self.memory)
        for i, (at, length) in enumerate(layout):
            ctypes.memmove(start + at, given[i], length)
        # All that it is launched with but the parameters' values.
        self.shape = (function, *launch.grid, *launch.block, launch.shared_memory)
        # ctypes keeps alive what is assigned to a pointer's place, but not what the pointers in it point to.
        launch.parameters = (c_void_p * len(layout))(*[start + at for at, _ in layout])


def _layout(function: int) -> list[tuple[int, int]]:
    """Return where each of a kernel's parameters begins, and how long it is."""
    ask, offset, size = driver.library().cuFuncGetParamInfo, c_size_t(), c_size_t()
    found: list[tuple[int, int]] = []
    while (status := ask(c_void_p(function), c_size_t(len(found)), byref(offset), byref(size))) == 0:
        found.append((offset.value, size.value))
    if status != _NO_SUCH_PARAMETER or not found:
        raise NotReplayableError("a kernel whose parameters the driver does not describe")
    return found


def _chain(graph: c_void_p, layouts: dict[int, list[tuple[int, int]]]) -> list[_Kernel]:
    """Return the kernels of a graph, first to last; it must be a chain of kernels and nothing else."""
    library, count, nodes = driver.library(), c_size_t(), stream_capture.nodes(graph)
    if not all(stream_capture.is_kernel(c_void_p(node)) for node in nodes):
        raise NotReplayableError("something that is no kernel")
    status = library.cuGraphGetEdges_v2(graph, None, None, None, byref(count))
    driver.check(status, "cuGraphGetEdges")
    pointers, ports = c_void_p * count.value, c_uint64 * count.value
    sources, targets, data = pointers(), pointers(), ports()
    if sources:
        status = library.cuGraphGetEdges_v2(graph, sources, targets, data, byref(count))
        driver.check(status, "cuGraphGetEdges")
    after = dict(zip(sources, targets, strict=True))
    chain = list(set(nodes).difference(after.values()))[:1]
    while chain and chain[-1] in after:
        chain.append(after[chain[-1]])
    if not chain or len(chain) != len(nodes) or len(after) != len(sources):
        raise NotReplayableError(f"{len(nodes)} nodes and {len(sources)} edges")
    return [_Kernel(node, layouts) for node in chain]


def _instantiate(graph: stream_capture.Capture) -> c_void_p:
    executable, instantiate = c_void_p(), driver.library().cuGraphInstantiateWithFlags
    driver.check(instantiate(byref(executable), graph.graph, c_uint64(0)), "cuGraphInstantiate")
    return executable


_ROOM = 8  # graphs; 48 kB of device memory each, on an H200
_MOST_SPARE = 64

# Graphs that only take up memory, by context and number of kernels, each with the room it was made for; None
# is the memory of a replay that was given up.
_Spares = list["tuple[Room, c_void_p] | None"]
_spares: dict[tuple[int, int], _Spares] = {}

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_spares.clear)


class Room:
    """Memory of the driver's for an algorithm's replays in one context, had before they are made.

    The driver keeps memory for graphs. To instantiate one when that is used up waits for all that the GPU
    runs (seen on an H200: each 43rd time; other threads cannot launch meanwhile). Loading code waits, too; so
    that is when graphs are made that only take up memory, to be destroyed when it is needed. All algorithms
    of a context share them, so that many that are loaded and not called take up no more than a few.

    Whoever fills it, takes of it, notes a replay or evicts one has to hold `_capture.lock`.

    Parameters
    ----------
    context : int
        The context's number.

    Attributes
    ----------
    was_filled : bool
        Whether there was any room; else nothing can be replayed.
    """

    was_filled = False

    def __init__(self, context: int) -> None:
        self._left = _ROOM  # how many replays more there may be
        self._key = context, 0
        self._taken: list[tuple[weakref.ref[Replay], weakref.ref[Call], Any]] = []  # the oldest first

    def fill(self, graph: stream_capture.Capture) -> None:
        """Make room for graphs like this one, unless that was done, or no call will be replayed."""
        if self.was_filled or sys.maxsize <= CALLS_BEFORE or not _is_possible():
            return
        graph.bring_home()
        self._key = self._key[0], len(stream_capture.nodes(graph.graph))
        spares = self._spares()
        for _ in range(min(_ROOM, _MOST_SPARE - sum(each is not None for each in spares))):
            # The memory of a replay that was given up comes last: its launches may not all be done.
            spares.insert(0, (self, _instantiate(graph)))
        self.was_filled = True

    def _spares(self) -> _Spares:
        return _spares.setdefault(self._key, [])

    def take(self) -> bool:
        """Take room for one graph; return whether there was any."""
        spares = self._spares()
        if not self._left or not spares:
            return False
        self._left -= 1
        if (taken := spares.pop(0)) is not None:
            _destroy(taken[1])
        return True

    def give_back(self) -> None:
        """Give back what was taken."""
        self._left += 1
        spares = self._spares()
        if spares.count(None) < _MOST_SPARE:
            spares.append(None)

    def note(self, replay: Replay, call: Call, key: Any) -> None:
        """Take down which call knows a replay, by which key."""
        self._taken = [each for each in self._taken if each[0]() is not None]
        self._taken.append((weakref.ref(replay), weakref.ref(call), key))

    def evict(self) -> None:
        """Have the oldest replay forgotten: it gives its room back once it is not in use."""
        while self._taken:
            replay, call, key = self._taken.pop(0)
            known, owner = replay(), call()
            if known is not None and owner is not None and owner.forget(key, known):
                return

    def close(self) -> None:
        """Destroy the graphs made for it: to be done before the code that they are of is unloaded."""
        with stream_capture.lock:
            spares = self._spares()
            mine = [each[1] for each in spares if each is not None and each[0] is self]
            spares[:] = [each for each in spares if each is None or each[0] is not self]
            for executable in mine:
                _destroy(executable)


def _destroy(executable: c_void_p) -> None:
    with driver.relaxed():  # for other threads may be capturing
        driver.library().cuGraphExecDestroy(executable)


class Fixed:
    """A call as a graph that is ready to be launched, with the values that it was captured with.

    Parameters
    ----------
    call : Call
    graph : Capture
        Belongs to this object then.
    room : Room, optional
        To make it in; without it, to make it may wait for the GPU.

    Attributes
    ----------
    executable : c_void_p
        What ``cuGraphLaunch`` takes.

    Raises
    ------
    NotReplayableError
        If there is no room. There is the next time, unless somebody else takes it.
    """

    def __init__(self, call: Call, graph: stream_capture.Capture, room: Room | None = None) -> None:
        self.executable = c_void_p()
        self._graph = graph
        self._native = call.native  # has the code, which must be there for longer than the graph
        self._context = call.context
        self._generation = fork.generation()
        self._room: Room | None = None
        with stream_capture.lock:  # for the memory that is taken is not to go into another graph
            if room is not None:
                if not room.take():
                    room.evict()
                    raise NotReplayableError("no room for another graph")
                self._room = room
            self.executable = _instantiate(graph)

    def set_values(self, bound: Checked, address: int) -> bool:
        """Put other values into the graph; return whether that can be done."""
        return False

    def close(self) -> None:
        """Give the graph up; the driver destroys it when all of its launches are done."""
        # The parent's, or perhaps a destroyed context's.
        if self._generation != fork.generation() or not driver.is_there(self._context):
            fork.leak((self._graph, self._native))
        else:
            with driver.relaxed():  # as in `_destroy`
                if self.executable:
                    driver.library().cuGraphExecDestroy(self.executable)
                self._graph.destroy()
            if self._room is not None:
                self._room.give_back()
        self.executable, self._room = c_void_p(), None

    def __del__(self) -> None:
        try:  # noqa: SIM105 - the interpreter may be ending, and `suppress` be gone
            self.close()
        except Exception:
            pass


class Replay(Fixed):
    """A call with as much to do on one stream, with whatever values. For one thread at a time: see `enqueue`.

    Attributes
    ----------
    needed : int
        Bytes of temporary storage.
    number : int
        The driver's number of the stream, 0 of the default one.
    is_stale : bool
        Whether its stream was found to be gone.
    """

    def __init__(
        self,
        call: Call,
        graph: stream_capture.Capture,
        kernels: Sequence[_Kernel],
        values: Values,
        needed: int,
        stream: int,
        number: int,
        room: Room | None,
    ) -> None:
        super().__init__(call, graph, room)
        library = driver.library()
        self.needed = needed
        self.number = number
        self.is_stale = False
        self._launch = library.cuGraphLaunch
        lock = threading.Lock()
        self._acquire, self._release = lock.acquire, lock.release
        self._stream = c_void_p(stream)
        set_parameters = partial(library.cuGraphExecKernelNodeSetParams_v2, self.executable)
        self._set = setter(kernels, values, set_parameters)
        self._bound: Checked = ()
        self._address = 0
        self._unknown = (None,) * len(values)
        self._values: Values = self._unknown

    def enqueue(self, bound: Checked, address: int, nbytes: int, stream: int) -> bool:
        """Enqueue the call with these values.

        Returns
        -------
        bool
            False if it must not be: because of its values, as the stream is another one, or captured, or as
            another thread is just doing so.

        Raises
        ------
        DriverError
            If the driver refuses.
        """
        if nbytes < self.needed or (stream and not self._is_of(stream)) or not self._acquire(False):
            return False
        try:
            if (self._bound != bound or self._address != address) and not self.set_values(bound, address):
                return False
            status = self._launch(self.executable, self._stream)
            if status:
                driver.check(status, "cuGraphLaunch")
            return True
        finally:
            self._release()

    def _is_of(self, stream: int) -> bool:
        """Whether a handle is still that of the same stream, and this is not captured."""
        number = driver.stream_number(stream)
        self.is_stale = number not in (None, self.number)
        return number == self.number

    def set_values(self, bound: Checked, address: int) -> bool:
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
        values, olds = _values(bound, address), self._values
        self._values, self._bound = self._unknown, ()  # until all of them are in the graph
        if not self._set(olds, values):
            self._values = olds
            return False
        self._values, self._bound, self._address = values, bound, address
        return True


def _values(bound: Checked, address: int) -> Values:
    """Return what is put into a graph."""
    return (*bound[1:], address) if address else bound[1:]


def _is_possible() -> bool:
    """Whether calls can be captured without notice, and taken apart: with drivers of CUDA 12.5 and later."""
    return hasattr(driver.library(), "cuFuncGetParamInfo") and stream_capture.is_unnoticed()


def _is_plain(stream: int) -> bool:
    """Whether work runs on a stream as it does in a graph: with the default priority, on the whole GPU."""
    if not stream:
        return True
    library, priority, context = driver.library(), c_int(), c_void_p()
    handle = c_void_p(stream)
    if library.cuStreamGetPriority(handle, byref(priority)) or priority.value:
        return False
    return library.cuStreamGetGreenCtx(handle, byref(context)) == 0 and not context.value


def _captured(call: Call, bound: Checked, address: int, needed: int) -> stream_capture.Capture:
    call.set(bound)
    with stream_capture.capture() as captured:
        call.launch(address, needed, bound[0], captured.stream)
    return captured


def fixed_graph(call: Call, bound: Checked, address: int, needed: int) -> Fixed:
    """Return a call as a graph with these values; raise RuntimeError if it cannot be captured."""
    with driver.relaxed():
        graph = _captured(call, bound, address, needed)
        with suppress(driver.DriverError):  # it can run where it was captured, too
            graph.bring_home()
        return Fixed(call, graph)


def replay_of(
    call: Call, bound: Checked, address: int, needed: int, stream: int, room: Room | None = None
) -> Replay | None:
    """Make what replays a call, if it can be replayed. It leaves the call's objects set to whatever.

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
    room : Room, optional
        To make it in; without it, to make it may wait for the GPU.
    """
    number, values = driver.stream_number(stream), _values(bound, address)
    if not _is_possible() or number is None or not _is_plain(stream) or has_buffers(bound[0]):
        return None
    if not all(isinstance(value, bytes) or value for value in values):  # a null pointer may mean something
        return None
    graphs: list[stream_capture.Capture] = []
    layouts: dict[int, list[tuple[int, int]]] = {}
    firsts, seconds = made_up(values, 0), made_up(values, 1)
    try:
        with driver.relaxed():
            # One after the other, so that what nobody sets in the parameters is as little as possible: the
            # same was done before each.
            for given in (values, firsts, seconds, values):
                of_call, storage = (given[:-1], given[-1]) if address else (given, 0)
                graphs.append(_captured(call, (bound[0], *of_call), storage, needed))
            graphs[1].bring_home()  # it is this that will be launched
            agains, ones, twos, owns = kernels = [_chain(each.graph, layouts) for each in graphs]
            if len({tuple(kernel.shape for kernel in each) for each in kernels}) != 1:
                raise NotReplayableError("other kernels for other values")
            told = [
                _find_values(*each, firsts, seconds) for each in zip(agains, ones, twos, owns, strict=True)
            ]
            setter(ones, values, lambda node, details: 0)((None,) * len(values), values)
            for one, own, offsets in zip(ones, owns, told, strict=True):
                found, wanted = one.memory.raw, own.memory.raw
                if any(found[i] != wanted[i] for i in offsets):
                    raise NotReplayableError(f"parameters {_hex(wanted)} and not {_hex(found)}, as foretold")
            replay = Replay(call, graphs.pop(1), ones, values, needed, stream, number, room)
            replay.set_values(bound, address)
            return replay
    except Exception as error:  # whatever it is, the call can be made without a replay
        log.debug("calls of %s are not replayed: %s", call.name, error)
        return None
    finally:
        for graph in graphs:
            graph.destroy()


def _find_values(
    again: _Kernel, one: _Kernel, two: _Kernel, own: _Kernel, firsts: Values, seconds: Values
) -> list[int]:
    """Find the values in a kernel's parameters, and return which bytes of these are of any meaning.

    Two kinds of byte are not: nobody sets them, so they are what was in memory before, and nobody reads them.
    An object without members, as most operators are, is one byte; all else that CUB hands to kernels as one
    byte are flags, which are 0 or 1, and values of the call. And padding behind a member of 4 bytes: what
    differs there, in the upper half of a word whose lower half does not, for the same call captured again.
    """
    first, second, third, fourth = (kernel.memory.raw for kernel in (one, two, own, again))
    unused = {at for at in one.single_bytes if max(first[at], second[at], third[at]) > 1}
    for word in range(0, len(third), 8):
        if third[word : word + 4] == fourth[word : word + 4]:
            unused.update(i for i in range(word + 4, word + 8) if third[i] != fourth[i])
    one.places = places(first, second, firsts, seconds, unused)
    for offset, _, _, length in one.places:
        unused.difference_update(range(offset, offset + (length or 8)))
    return [i for i in range(len(third)) if i not in unused]


def has_buffers(work: Any) -> bool:
    """Whether a call has double buffers: each call changes them, and nothing may keep them alive."""
    return bool(getattr(work, "buffers", ()))
