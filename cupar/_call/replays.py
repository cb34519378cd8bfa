"""Repeated calls, replayed: what they launch, as a CUDA graph in which only what changes is replaced.

Through the bindings, CUB works out in each call what to launch, and launches kernel by kernel. For the same
problem size on the same stream that is always the same, and the driver launches a graph of it in less time
than the kernels (of a reduction's one kernel: in less than half, on an H200). What differs from call to call
is found by `probe`, and replaced in the graph.

The graph that is launched is the first one with probe values, with the call's values put into it: so each
call is a call with other values than the graph was made with, and none is a special case.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import byref, c_int, c_uint64, c_void_p
from functools import partial
from typing import Any, Protocol

from .._base import fork, log
from .._device import driver, stream_capture
from . import probe
from .probe import Kernel, NotReplayableError, Values

Checked = tuple[Any, ...]  # the problem size, and the values: what `Call.bind` returns


def _calls_before() -> int:
    off = os.environ.get("CUPAR_REPLAY", "").strip().lower() in ("0", "off", "false", "no")
    # A user who has each launch waited for wants to know which one fails.
    if off or os.environ.get("CUDA_LAUNCH_BLOCKING", "0").strip() not in ("", "0"):
        return sys.maxsize
    return 50  # to capture and take apart a call costs what 50 to 100 calls save


CALLS_BEFORE = _calls_before()  # how often a call of one problem size is made before it is replayed


# --- Memory for graphs -------------------------------------------------------------------------------------

_POOL_SIZE = 8  # graphs; 48 kB of device memory each, on an H200
_MOST_SPARE = 64


def _instantiate(graph: stream_capture.Capture) -> c_void_p:
    executable = c_void_p()
    driver.call("cuGraphInstantiateWithFlags", byref(executable), graph.graph, c_uint64(0))
    return executable


def _destroy(executable: c_void_p) -> None:
    with driver.relaxed_capture_mode():  # for other threads may be capturing
        driver.library().cuGraphExecDestroy(executable)


class _Spares(dict[int, "list[tuple[GraphPool, c_void_p] | None]"]):
    """A context's graphs that only take up memory, by number of kernels, each with the pool it was made for.

    None is the memory of a replay that was given up.
    """

    def __init__(self, context: driver.Context) -> None:
        super().__init__()


class GraphPool:
    """Memory of the driver's for an algorithm's replays in one context, had before they are made.

    The driver keeps memory for graphs. To instantiate one when that is used up waits for all that the GPU
    runs (seen on an H200: each 43rd time; other threads cannot launch meanwhile). Loading code waits, too; so
    that is when graphs are made that only take up memory, to be destroyed when it is needed. All algorithms
    of a context share them, so that many that are loaded and not called take up no more than a few.

    Callers of `fill`, `take`, `note` and `evict` hold `stream_capture.lock`.
    """

    was_filled = False  # whether it had any memory; else nothing can be replayed

    def __init__(self, context: driver.Context) -> None:
        self._left = _POOL_SIZE  # how many replays more there may be
        self._context = context
        self._kernels = 0  # of the graphs that it is for
        self._taken: list[tuple[weakref.ref[Replay], weakref.ref[Call], Any]] = []  # the oldest first

    def fill(self, graph: stream_capture.Capture) -> None:
        """Have memory for graphs like this one, unless that was done, or no call will be replayed."""
        if self.was_filled or sys.maxsize <= CALLS_BEFORE or not _is_possible():
            return
        graph.to_primary_context()
        self._kernels = len(stream_capture.nodes(graph.graph))
        spares = self._spares()
        for _ in range(min(_POOL_SIZE, _MOST_SPARE - sum(each is not None for each in spares))):
            # The memory of a replay that was given up comes last: its launches may not all be done.
            spares.insert(0, (self, _instantiate(graph)))
        self.was_filled = True

    def _spares(self) -> list[tuple[GraphPool, c_void_p] | None]:
        return self._context.part(_Spares).setdefault(self._kernels, [])

    def take(self) -> bool:
        """Take memory for one graph; return whether there was any."""
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
        """Note which call knows a replay, by which key."""
        self._taken = [each for each in self._taken if each[0]() is not None]
        self._taken.append((weakref.ref(replay), weakref.ref(call), key))

    def evict(self) -> None:
        """Have the oldest replay forgotten: it gives its memory back once it is not in use."""
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


# --- Graphs of calls ---------------------------------------------------------------------------------------


class Call(Protocol):
    """What is replayed; `call.Call` says more."""

    name: str
    context: driver.Context
    native: Any
    launch: Callable[[int, int, Any, int], int]
    set: Callable[[Checked], None]

    def forget(self, key: Any, replay: Replay) -> bool:
        """Replay calls no more, if it is this that replays them; return whether that is so."""


class Fixed:
    """A call as a graph that is ready to be launched, with the values that it was captured with.

    The graph belongs to this object. Without a pool to take memory from, to make it may wait for the GPU.
    With an empty one it is a NotReplayableError; the next time there is memory, unless it was taken.
    """

    def __init__(self, call: Call, graph: stream_capture.Capture, pool: GraphPool | None = None) -> None:
        self.executable = c_void_p()  # what cuGraphLaunch takes
        self._graph: stream_capture.Capture | None = graph
        self._native = call.native  # has the code, which must be there for longer than the graph
        self._context = call.context
        self._pool: GraphPool | None = None
        fork.in_child(self.abandon)
        with stream_capture.lock:  # for the memory that is taken is not to go into another graph
            if pool is not None:
                if not pool.take():
                    pool.evict()
                    raise NotReplayableError("the graph pool is empty")
                self._pool = pool
            self.executable = _instantiate(graph)

    def set_values(self, bound: Checked, address: int) -> bool:
        """Put other values into the graph; return whether that can be done."""
        return False

    def close(self) -> None:
        """Give the graph up; the driver destroys it when all of its launches are done."""
        if self._graph is None:
            return
        if not driver.is_there(self._context):
            self.abandon()
            return
        with driver.relaxed_capture_mode():  # as in `_destroy`
            if self.executable:
                driver.library().cuGraphExecDestroy(self.executable)
            self._graph.destroy()
        if self._pool is not None:
            self._pool.give_back()
        self.executable, self._pool = c_void_p(), None

    def abandon(self) -> None:
        """Leave the graph to the parent process, or to its context, which may be destroyed."""
        fork.leak((self._graph, self._native))
        self.executable, self._graph, self._pool = c_void_p(), None, None

    def __del__(self) -> None:
        try:  # noqa: SIM105 - the interpreter may be ending, and `suppress` be gone
            self.close()
        except Exception:
            pass


class Replay(Fixed):
    """A call of one problem size on one stream, with any values. For one thread at a time: see `enqueue`."""

    def __init__(
        self,
        call: Call,
        graph: stream_capture.Capture,
        kernels: Sequence[Kernel],
        values: Values,
        needed: int,
        stream: int,
        number: int,
        pool: GraphPool | None,
    ) -> None:
        super().__init__(call, graph, pool)
        library = driver.library()
        self.needed = needed  # bytes of temporary storage
        self.number = number  # the driver's, of the stream
        self.is_stale = False  # whether the stream was found to be gone
        self._launch = library.cuGraphLaunch
        lock = threading.Lock()
        self._acquire, self._release = lock.acquire, lock.release
        self._stream = c_void_p(stream)
        set_parameters = partial(library.cuGraphExecKernelNodeSetParams_v2, self.executable)
        self._set = probe.patcher(kernels, values, set_parameters)
        self._bound: Checked = ()
        self._address = 0
        self._unknown = (None,) * len(values)
        self._values: Values = self._unknown

    def enqueue(self, bound: Checked, address: int, nbytes: int, stream: int) -> bool:
        """Enqueue the call with these values.

        Return False if it must not be: because of its values, or the stream is another one, or captured, or
        another thread is enqueueing it.
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
        """Put other values into the graph; return False if the call might launch something else with them."""
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
    """Whether calls can be captured unnoticed, and their kernels' parameters read: from CUDA 12.5 on."""
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
    with driver.relaxed_capture_mode():
        graph = _captured(call, bound, address, needed)
        with suppress(driver.DriverError):  # it can run where it was captured, too
            graph.to_primary_context()
        return Fixed(call, graph)


def replay_of(
    call: Call, bound: Checked, address: int, needed: int, stream: int, pool: GraphPool | None = None
) -> Replay | None:
    """Make what replays a call, if it can be replayed. The call's objects are set to other values then.

    The call has `needed` bytes of temporary storage at `address`, which is 0 if it needs none. Without a pool
    to take memory from, to make the graph may wait for the GPU.
    """
    number, values = driver.stream_number(stream), _values(bound, address)
    if not _is_possible() or number is None or not _is_plain(stream) or has_buffers(bound[0]):
        return None
    if not all(isinstance(value, bytes) or value for value in values):  # a null pointer may mean something
        return None
    graphs: list[stream_capture.Capture] = []
    layouts: dict[int, list[tuple[int, int]]] = {}
    firsts, seconds = probe.probe_values(values, 0), probe.probe_values(values, 1)
    try:
        with driver.relaxed_capture_mode():
            # One after the other, so that what nobody sets in the parameters is as little as possible: the
            # same was done before each.
            for given in (values, firsts, seconds, values):
                of_call, storage = (given[:-1], given[-1]) if address else (given, 0)
                graphs.append(_captured(call, (bound[0], *of_call), storage, needed))
            graphs[1].to_primary_context()  # it is this that will be launched
            agains, ones, twos, owns = kernels = [probe.chain_of(each.graph, layouts) for each in graphs]
            if len({tuple(kernel.shape for kernel in each) for each in kernels}) != 1:
                raise NotReplayableError("other kernels for other values")
            told = [
                probe.find_values(*each, firsts, seconds)
                for each in zip(agains, ones, twos, owns, strict=True)
            ]
            probe.patcher(ones, values, lambda node, details: 0)((None,) * len(values), values)
            for one, own, offsets in zip(ones, owns, told, strict=True):
                found, wanted = one.memory.raw, own.memory.raw
                if any(found[i] != wanted[i] for i in offsets):
                    raise NotReplayableError(
                        f"parameters {probe.in_words(wanted)} and not {probe.in_words(found)}, as foretold"
                    )
            replay = Replay(call, graphs.pop(1), ones, values, needed, stream, number, pool)
            replay.set_values(bound, address)
            return replay
    except Exception as error:  # of any kind: the call can be made without a replay
        log.debug("calls of %s are not replayed: %s", call.name, error)
        return None
    finally:
        for graph in graphs:
            graph.destroy()


def has_buffers(problem: Any) -> bool:
    """Whether a call has double buffers: each call changes them, and nothing may keep them alive."""
    return bool(getattr(problem, "buffers", ()))
