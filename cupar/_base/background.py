"""Work in the background, on all cores: first what others wait for.

The threads are daemons: a program that ends does not wait for builds that nobody asks for any more. But a
compiler must not be at work when the process ends, for it would crash it. So builds consist of steps, and the
end of the process waits for the steps that have begun, and no other begins.
"""

from __future__ import annotations

import atexit
import contextvars
import os
import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from . import fork
from .data import dataclass

__all__ = ["AbandonedError", "Queue", "abandon", "begin", "cores", "step"]

T = TypeVar("T")


class AbandonedError(RuntimeError):
    """The process ends before this is built."""


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


# --- The end of the process ----------------------------------------------------------------------------


class _Thread(threading.Thread):
    """One that works in the background; it is `idle` between two steps."""

    is_waited_for = False  # see `progress`

    def __init__(self, target: Callable[[], None]) -> None:
        super().__init__(target=target, name="cupar", daemon=True)
        self.idle = threading.Event()
        self.idle.set()


_is_ending = False
_threads: set[_Thread] = set()
_steps = fork.Lock()  # held to begin one


@contextmanager
def step() -> Iterator[None]:
    """Do in the block what must not be going on when the process ends; for other threads it does nothing.

    Raises
    ------
    AbandonedError
        In a thread that works in the background, if the process ends.
    """
    thread = threading.current_thread()
    if not isinstance(thread, _Thread) or not thread.idle.is_set():
        yield
        return
    with _steps:
        if _is_ending:
            raise AbandonedError("not built, as the process ends")
        thread.idle.clear()
    try:
        yield
    finally:
        thread.idle.set()


def is_abandoned() -> bool:
    """Whether this thread works in the background for a process that ends."""
    return _is_ending and isinstance(threading.current_thread(), _Thread)


def abandon() -> None:
    """Let no more steps begin in the background."""
    global _is_ending
    with _steps:
        _is_ending = True


@atexit.register
def _end() -> None:
    abandon()
    for thread in list(_threads):
        thread.idle.wait()


@fork.in_child
def _after_fork() -> None:
    global _is_ending
    _threads.clear()  # they are the parent's
    _is_ending = False


# --- Work ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    common: Hashable
    work: Callable[[], Any]
    future: Future[Any]

    def do(self) -> None:
        try:
            self.future.set_result(self.work())
        except BaseException as error:
            self.future.set_exception(error)


def begin(work: Callable[[], T]) -> Future[T]:
    """Do work in a thread of its own, with this one's context variables; here if there is none to be had."""
    context, future = contextvars.copy_context(), Future[T]()
    job = _Job(None, lambda: context.run(work), future)

    def do() -> None:
        job.do()
        _threads.discard(thread)

    thread = _Thread(do)
    _threads.add(thread)
    try:
        thread.start()
    except RuntimeError:  # as the interpreter ends
        do()
    return future


class Queue:
    """Does work in as many threads as there are cores.

    Builds that link the same kernels wait for the first of them to be compiled. They should not do that in
    threads that could compile other kernels meanwhile, so they stay in the queue for so long.
    """

    def __init__(self) -> None:
        self._most = cores()
        self._working = 0  # threads
        self._lock = threading.Lock()
        self._jobs: list[_Job] = []
        self._begun: set[Hashable] = set()
        self._there: set[Hashable] = set()

    def submit(self, common: Hashable, work: Callable[[], Any]) -> Future[Any]:
        """Begin to work in the background, or as soon as others have made what they have in common.

        Parameters
        ----------
        common : hashable
            The first piece of work with the same one is done alone.
        work : callable
            Takes nothing.

        Returns
        -------
        Future
            With what `work` returns.
        """
        job = _Job(common, work, Future())
        with self._lock:
            self._jobs.append(job)
        if not self._start(1):  # there is no thread to be had, perhaps as the interpreter ends
            self._work(is_counted=False)
        return job.future

    def _start(self, count: int) -> bool:
        """Have so many threads more, or as many as there may be; return whether there are any."""
        for _ in range(count):
            with self._lock:
                if self._working >= self._most:
                    break
                self._working += 1
            thread = _Thread(self._work)
            _threads.add(thread)
            try:
                thread.start()
            except RuntimeError:
                _threads.discard(thread)
                with self._lock:
                    self._working -= 1
                break
        return self._working > 0

    def _work(self, is_counted: bool = True) -> None:
        """Do what is in the queue, in a thread that is counted or in the one that is here."""
        while (job := self._next(is_counted)) is not None:
            job.do()
            self._release(job.common)
            del job  # with what the user gave
        _threads.discard(threading.current_thread())

    def _next(self, is_counted: bool) -> _Job | None:
        """Return what may begin; if nothing may, count this thread out."""
        with self._lock:
            for place, job in enumerate(self._jobs):
                if job.common in self._there or job.common not in self._begun:
                    self._begun.add(job.common)
                    return self._jobs.pop(place)
            self._working -= is_counted
        return None

    def _release(self, common: Hashable) -> None:
        """Let all begin that waited for the first one; if that failed, no other need wait in turn."""
        with self._lock:
            if common in self._there:
                return
            self._there.add(common)
            released = sum(job.common == common for job in self._jobs)
        self._start(released)
