"""What one call of an algorithm needs: the bindings' objects, and what checks and sets its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from .._compile import cccl
from .._compile.specialisation import Specialisation
from .._device import driver, storage, stream_capture
from .._ir.nodes import Argument
from . import replays, written
from .code import Code
from .replays import Checked, Replay

Launch = Callable[[int, int, Any, int], int]
# By problem, with its stream unless that is the default one: the number of such calls, or what replays them
History = dict[Any, "int | Replay"]

# What is counted from when a call could not be replayed. It may have been by chance: kernels' parameters have
# bytes that nobody sets. And what made room for another is not to come back at once, or many sizes in turns
# would be made into replays again and again.
_AFTER_REFUSAL = -1000


class Caller(written.Caller, Protocol):
    """What makes calls: an algorithm object."""

    @property
    def _code(self) -> Code: ...

    def _launcher(self, call: Call) -> Launch: ...


class Call:
    """The mutable objects that one call needs: iterators with their pointers, operators, initial value.

    They belong to one call at a time, so that one algorithm object serves many threads.

    Parameters
    ----------
    caller : Algorithm
    context : Context
    history : dict
        Of the algorithm's calls in this context, by any thread.

    Attributes
    ----------
    name : str
        Of the algorithm.
    context : Context
        Where it is loaded.
    native : object
        The bindings' build, loaded.
    graph_pool : GraphPool
        What replays are made in.
    iterators, operators : list
        The bindings' objects, in the order of the specialisation's.
    init : object or None
        The bindings' initial value.
    launch : callable
        What calls the bindings with these objects; see `Algorithm._launcher`.
    bind : callable
        Takes the arguments of `run`, all but the stream, in a tuple; checks them, and returns the
        problem size and all values that the call has: addresses as int, and what is copied as bytes.
    set : callable
        Takes what `bind` returned, and sets the bindings' objects to it.
    enqueue : callable
        Takes what `bind` takes, address and bytes of the temporary storage, and the stream's handle, and
        enqueues the call: as a replay of earlier ones, or through the bindings.
    enqueue_bound : callable
        The same for what `bind` returned.
    memory : Memory
        What is kept of the context's memory.
    workspace : Workspace
        That of the default stream.
    last : tuple
        The problem size of the last run, and how many bytes of temporary storage it needs.
    """

    def __init__(self, caller: Caller, context: driver.Context, history: History) -> None:
        code, spec = caller._code, caller._spec
        self.name = spec.algorithm
        self.context = context
        self.native = code.native(context)
        self.graph_pool = code.graph_pool(context)
        self.memory = context.part(storage.Memory)
        self.workspace = self.memory.default
        self.iterators, memories = zip(*map(_settable, spec.arguments), strict=True)
        self.operators = [
            cccl.operator(name, op.kind, (), op.state_size, op.state_alignment) for name, op in spec.operators
        ]
        self.init, init_memory = _settable_init(spec)
        self.launch = caller._launcher(self)
        self.last: tuple[Any, int] = (None, 0)
        self.history = history
        functions = written.written(self, caller, memories, init_memory)
        self.bind: Callable[[tuple[Any, ...]], Checked] = functions["bind"]
        self.set: Callable[[Checked], None] = functions["set"]
        self.enqueue: Callable[[tuple[Any, ...], int, int, int], None] = functions["enqueue"]
        self.enqueue_bound: Callable[[Checked, int, int, int], None] = functions["enqueue_bound"]

    def needed(self, bound: Checked, stream: int) -> int:
        """Return how many bytes of temporary storage a call needs."""
        problem = bound[0]
        known = self.history.get((problem, stream) if stream else problem)
        if isinstance(known, replays.Replay):
            return known.needed
        last, nbytes = self.last
        if last != problem:
            self.set(bound)
            nbytes = self.launch(0, 0, problem, stream)
            if not replays.has_buffers(problem):  # their arrays are not to be kept alive
                self.last = problem, nbytes
        return nbytes

    def replays(self) -> list[Replay]:
        """Return what replays calls of the algorithm in this context."""
        return [each for each in list(self.history.values()) if isinstance(each, replays.Replay)]

    def replay(self, bound: Checked, address: int, nbytes: int, stream: int) -> Replay | None:
        """Return what replays a call that was made often, if it can be replayed."""
        key = (bound[0], stream) if stream else bound[0]
        needed = self.needed(bound, stream) if address else 0
        if nbytes < needed:
            return None
        # Neither may always be: that the stream is captured, and that another thread captures or loads code,
        # which may take long.
        if driver.stream_number(stream) is None or not stream_capture.lock.acquire(blocking=False):
            self.history[key] = 0
            return None
        try:
            if isinstance(known := self.history.get(key), replays.Replay):  # made by another thread just now
                return known
            self.history[key] = _AFTER_REFUSAL
            if not self.graph_pool.was_filled:
                return None
            replay = replays.replay_of(self, bound, address, needed, stream, self.graph_pool)
            if replay is not None:
                self.graph_pool.note(replay, self, key)
                self.history[key] = replay
            return replay
        finally:
            stream_capture.lock.release()

    def forget(self, key: Any, replay: Replay) -> bool:
        """Replay calls no more, if it is this that replays them; return whether that is so."""
        if self.history.get(key) is not replay:
            return False
        self.history[key] = _AFTER_REFUSAL
        return True

    def forget_counts(self) -> None:
        """Keep nothing but replays, so that sizes that come once each do not add up."""
        for key, known in list(self.history.items()):
            if not isinstance(known, replays.Replay):
                self.history.pop(key, None)


def _settable(argument: Argument) -> tuple[Any, bytearray | None]:
    """Return the bindings' iterator of an argument and, unless it is a pointer, the memory of its state."""
    if argument.is_pointer:
        return cccl.pointer(argument.value), None
    state = bytearray(argument.node.size)
    return cccl.iterator(argument.name, argument.value, state), state


def _settable_init(spec: Specialisation) -> tuple[Any, memoryview | None]:
    """Return the bindings' initial value and the memory that it is in, if it is not on the device."""
    kind = spec.option("init")
    if kind is None:
        return None, None
    dtype = spec.operators[0][1].output
    if kind == "device":
        return cccl.pointer(dtype), None
    memory = np.zeros(1, dtype)
    return cccl.value(memory), memory.view(np.uint8).data
