"""Launch state that successive calls on one stream share: parameter buffers, and what the plan returned."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from .._base import trace
from .._device import arrays, driver, storage
from .chain import KERNEL, Enqueue
from .code import Loaded

Read = tuple[Any, ...]  # what reading arguments returns: the problem, then the values
NewReader = Callable[[arrays.Lend], Callable[[tuple[Any, ...]], Read]]


def _nothing(read: Read, address: int, numbers: tuple[int, ...], stream: int) -> None:
    """Enqueue nothing, for a problem that has nothing to do."""


class Emitted:
    """The shapes that a plan emits, with their numbers. Most emit one, for which no list is made."""

    __slots__ = ("numbers", "others", "shape")

    def __init__(self) -> None:
        self.shape: int | None = None
        self.numbers: tuple[int, ...] = ()
        self.others: list[Any] = []  # shapes, each with its numbers behind it

    def emit(self, shape: int, numbers: tuple[int, ...]) -> None:
        """Take a shape and its numbers."""
        if self.shape is None:
            self.shape, self.numbers = shape, numbers
        else:
            self.others += shape, numbers

    def several(self) -> tuple[tuple[int, ...], tuple[Any, ...]]:
        """Return all shapes, and the numbers of each."""
        if self.shape is None:
            return (), ()
        return (self.shape, *self.others[::2]), (self.numbers, *self.others[1::2])


def _holding(enqueue: Enqueue, lent: list[Any], context: driver.Context) -> Enqueue:
    """Return a function that enqueues, and holds lent objects until the stream has passed the call."""

    def enqueue_and_hold(read: Read, address: int, numbers: tuple[Any, ...], stream: int) -> None:
        from .._device.lent import Lent

        try:
            enqueue(read, address, numbers, stream)
        finally:
            held = tuple(lent)
            lent.clear()
            context.part(Lent).hold(held, stream)

    return enqueue_and_hold


def _another(loaded: Loaded, shape: str, taken: list[tuple[str, Any]]) -> Any:
    """Take a further executable of a shape, to be given back with others; None if there is none to spare."""
    executable = loaded.take_another(shape)
    if executable is not None:
        taken.append((shape, executable))
    return executable


class LaunchState:
    """Launch state that successive calls use: parameter buffers, executables, and the plan's last result.

    A call takes one from its algorithm's free ones and gives it back, so one algorithm object serves many
    threads. It is for one stream: see `Executable`.

    Parameters
    ----------
    loaded : Loaded
        The code.
    new_reader : callable
        Takes `lend`; returns `read`.
    context : Context
        The current one.
    stream_number : int or None
        The driver's number of the stream that its calls are for; None: for any stream, and kernels are
        launched one by one.
    stream : int
        The handle of that stream.

    Attributes
    ----------
    name : str
        The algorithm's or kernel's.
    stream_number
        As given.
    read : callable
        Takes the arguments of `run`, all but the stream, in a tuple; checks them, and returns the problem and
        all values of the call: addresses as int, and copied values as bytes.
    memory : ContextMemory
        The context's.
    loaded
        As given.
    problem : object
        That of the call before; None: the plan's result may not be used again. If a call's is another one,
        `prepare` must come before `enqueue`.
    nbytes, shape, numbers
        What the plan has said: bytes of temporary storage; a shape by its index among the family's names,
        and its numbers. Of several shapes, or none, tuples of these. If the shape is None, `enqueue` must be
        set anew.
    enqueue : callable
        Takes the result of `read`, the address of the temporary storage, `numbers` and the stream's handle.
    """

    def __init__(
        self,
        loaded: Loaded,
        new_reader: NewReader,
        context: driver.Context,
        stream_number: int | None,
        stream: int,
    ) -> None:
        self._context = context
        self.loaded = loaded
        self.name = self.loaded.name
        self.memory = context.part(storage.ContextMemory)
        self._lent: list[Any] = []
        # Not to keep itself alive.
        lend = partial(LaunchState.lend, weakref.proxy(self))
        self.read: Callable[[tuple[Any, ...]], Read] = new_reader(lend)
        self.problem: Any = None
        self.nbytes = 0
        self.shape: int | tuple[int, ...] | None = ()
        self.numbers: tuple[Any, ...] = ()
        self.enqueue: Enqueue = _nothing
        self.stream_number, self._stream = stream_number, stream
        self._may_be_graphs = stream_number == 0 or (stream_number is not None and driver.is_plain(stream))
        self._plan, self._facts = self.loaded.plan, self.loaded.facts
        self._emitted = Emitted()
        self._emit = self._emitted.emit
        self._enqueuers: dict[int | tuple[int, ...], Enqueue] = {(): _nothing}
        self._taken: list[tuple[str, Any]] = []

    def prepare(self, read: Read) -> None:
        """Run the plan for a call whose problem is not that of the call before, and set `enqueue`."""
        self.problem = None  # until the plan has said everything
        emitted = self._emitted
        emitted.shape = None
        if emitted.others:  # of several, or of a plan that was interrupted
            emitted.others.clear()
        self.nbytes = self._plan(self._facts, read[0], self._emit)
        shape: Any = emitted.shape
        self.numbers = emitted.numbers
        if shape is None or emitted.others:
            shape, self.numbers = emitted.several()
        if shape != self.shape or self._lent:
            self.select(shape)
            if self._lent:  # then that serves this call alone, and the next one comes here again
                self.shape, self.enqueue = None, _holding(self.enqueue, self._lent, self._context)
                return
        self.problem = read[0]

    def select(self, shape: int | tuple[int, ...]) -> None:
        """Set `enqueue` to the function that launches a shape, or several."""
        self.shape = None  # until the enqueuer is there
        self.enqueue = self._enqueuers.get(shape) or self._new(shape)
        self.shape = shape

    def lend(self, owner: Any) -> None:
        """Keep an object alive until the stream has passed the call; see `prepare`.

        Calls that were lent nothing pay nothing for it.
        """
        self.problem = None
        self._lent.append(owner)

    def take_lent(self) -> tuple[Any, ...]:
        """Return the objects that were lent, for the caller to hold."""
        found = tuple(self._lent)
        self._lent.clear()
        return found

    def _new(self, shape: int | tuple[int, ...]) -> Enqueue:
        if isinstance(shape, int):
            shown = self.loaded.shape_names[shape]
            name = self.name if shown == KERNEL else f"{self.name} ({shown})"
            made = trace.ranged(self._one(shape), name)
        else:
            made = trace.ranged(self._several(shape), self.name)
        self._enqueuers[shape] = made
        return made

    def _several(self, shapes: tuple[int, ...]) -> Enqueue:
        """Return a function that enqueues several shapes, given a tuple of numbers for each."""
        first = {each: self._enqueuers.get(each) or self._new(each) for each in shapes}
        # A shape enqueued twice has two enqueuers, as each skips parameters that it set before.
        each = tuple(first.pop(one) if one in first else self._one(one) for one in shapes)

        def enqueue(read: Read, address: int, numbers: tuple[Any, ...], stream: int) -> None:
            for one, own in zip(each, numbers, strict=True):
                one(read, address, own, stream)

        return enqueue

    def _one(self, number: int) -> Enqueue:
        shape = self.loaded.shape_names[number]
        executable = self.loaded.take(shape) if self._may_be_graphs else None
        if executable is not None:
            self._taken.append((shape, executable))
        another = partial(_another, self.loaded, shape, self._taken)
        made: Enqueue = self.loaded.chains[shape].enqueuer(executable, self._stream, another)
        return made

    def __del__(self) -> None:
        try:
            for shape, executable in self._taken:
                self.loaded.give_back(shape, executable)
        except Exception:
            pass
