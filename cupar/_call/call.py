"""One call of an algorithm at a time: its arguments checked, its plan found, and that launched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .._device import driver, storage
from .._kernels.family import Plan
from . import written
from .code import Code
from .launcher import Enqueue

Checked = tuple[Any, ...]  # the problem, and the values: what `bind` returns


class Caller(written.Caller, Protocol):
    """What makes calls: an algorithm object."""

    @property
    def _code(self) -> Code: ...


def _nothing(bound: Checked, address: int, numbers: tuple[int, ...], stream: int) -> None:
    """Enqueue nothing, for a problem that has nothing to do."""


class Call:
    """What calls one after another use: the buffers that their parameters are written to.

    They belong to one call at a time, so that one algorithm object serves many threads, and to one stream: see
    `Executable`.

    Parameters
    ----------
    caller : Algorithm
    context : Context
        The current one.
    stream : int or None
        The driver's number of the stream that its calls are for; None: kernels are launched one by one, whatever
        the stream.

    Attributes
    ----------
    bind : callable
        Takes the arguments of `run`, all but the stream, in a tuple; checks them, and returns the problem and
        all values that the call has: addresses as int, and what is copied as bytes.
    memory : Memory
        What is kept of the context's memory.
    loaded : Loaded
        The code.
    plan : Plan
        That of the problem whose `needed` was asked for last.
    """

    def __init__(self, caller: Caller, context: driver.Context, stream: int | None) -> None:
        self.loaded = caller._code.loaded(context)
        self._has_executables = stream is not None
        self.memory = context.part(storage.Memory)
        self.bind: Callable[[tuple[Any, ...]], Checked] = written.binder(caller)
        self._find_plan = self.loaded.plan
        self._enqueuers: dict[str, Enqueue] = {"": _nothing}
        self._problem: Any = None
        self.plan = Plan("", 0)
        self._enqueue: Enqueue = _nothing
        self._taken: list[tuple[str, Any]] = []

    def needed(self, bound: Checked, stream: int = 0) -> int:
        """Return how many bytes of temporary storage a call needs."""
        problem = bound[0]
        if problem != self._problem:
            self.plan = plan = self._find_plan(problem)
            enqueue = self._enqueuers.get(plan.shape)
            self._enqueue = enqueue or self._new(plan.shape)
            self._problem = problem
        return self.plan.nbytes

    def enqueue(self, bound: Checked, address: int, stream: int) -> None:
        """Enqueue a call, whose `needed` was just asked for."""
        self._enqueue(bound, address, self.plan.numbers, stream)

    def _new(self, shape: str) -> Enqueue:
        executable = self.loaded.take(shape) if self._has_executables else None
        if executable is not None:
            self._taken.append((shape, executable))
        made = self._enqueuers[shape] = self.loaded.chains[shape].enqueuer(executable)
        return made

    def __del__(self) -> None:
        try:
            for shape, executable in self._taken:
                self.loaded.give_back(shape, executable)
        except Exception:
            pass
