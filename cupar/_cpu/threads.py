"""Several threads for one call: each takes the next part until all are taken.

An executor of the standard library refuses work as soon as the interpreter ends, while threads that outlive
the main one and ``atexit`` functions still make calls. And an interrupt that arrives while it is handed work
leaves it with a lock taken, or with work that nothing waits for and that writes to freed arrays. Here the
main thread calls only functions in C, which a signal finds done or not begun.
"""

from __future__ import annotations

import _thread
import threading
from _queue import SimpleQueue  # without `queue`, which imports more
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Generic, TypeVar

from .._base import fork
from .._jobs.threads import cores

P = TypeVar("P")

# Whether calls in this context use their own thread alone, as others run calls on the other cores.
alone: ContextVar[bool] = ContextVar("cupar_alone", default=False)


def in_threads(do: Callable[[P], None], parts: Iterable[P], most: int) -> None:
    """Do all parts, in this thread and others, at most `most`; return, or raise, when no other is at work."""
    shared = _Shared(do, parts)
    try:
        for _ in range(0 if alone.get() else min(most, cores()) - 1):
            _ask(shared.help)
        shared.work()
        shared.wait()
    except BaseException:
        shared.stop()
        shared.wait()
        raise
    if shared.error is not None:
        raise shared.error


class _Shared(Generic[P]):
    """Parts that threads take one after another."""

    def __init__(self, do: Callable[[P], None], parts: Iterable[P]) -> None:
        self._do = do
        self._parts = deque(parts)
        self._helping: list[threading.Lock] = []  # each held by another thread as long as it is at work
        self.error: BaseException | None = None

    def work(self) -> None:
        while True:
            try:
                part = self._parts.popleft()
            except IndexError:
                return
            self._do(part)

    def help(self) -> None:
        """Do remaining parts in another thread, which is waited for once it has taken one."""
        held = threading.Lock()
        with held:
            self._helping.append(held)
            try:
                self.work()
            except BaseException as error:
                self.error = error
                self.stop()

    def stop(self) -> None:
        self._parts.clear()

    def wait(self) -> None:
        """Wait until no other thread works, even after interrupts: they use the caller's arrays."""
        interrupt: BaseException | None = None
        while True:
            try:
                for held in self._helping:  # one that comes later finds nothing to do
                    with held:
                        pass
                break
            except BaseException as error:
                interrupt = error
                self.stop()
        if interrupt is not None:
            raise interrupt


_asked: SimpleQueue[Callable[[], None]] = SimpleQueue()
_helpers = 0


def _ask(help: Callable[[], None]) -> None:
    global _helpers
    if _helpers < cores() - 1:
        try:
            _thread.start_new_thread(_serve, (_asked,))
            _helpers += 1
        except RuntimeError:  # as when the interpreter ends: the threads that there are suffice
            pass
    if _helpers:
        _asked.put(help)


def _serve(asked: SimpleQueue[Callable[[], None]]) -> None:
    while True:
        asked.get()()


@fork.in_child
def _forget() -> None:
    global _asked, _helpers
    _asked, _helpers = SimpleQueue(), 0
