"""Threads that work in the background.

The threads are daemons: a program that ends does not wait for builds that are no longer needed. But a
compiler must not be at work when the process ends, for it would crash it. So builds consist of steps, and the
end of the process waits for the steps that have begun, and no other begins.
"""

from __future__ import annotations

import atexit
import contextvars
import gc
import os
import sys
import threading
from _queue import SimpleQueue  # without `queue`, which imports more
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from .._base import fork
from .._base.errors import AbandonedError

if TYPE_CHECKING:
    from concurrent.futures import Future  # 5 ms, which `off_main_thread` does not pay

__all__ = [
    "AbandonedError",
    "Job",
    "Thread",
    "abandon",
    "off_main_thread",
    "begin",
    "collecting",
    "cores",
    "is_abandoned",
    "step",
]

T = TypeVar("T")


@cache
def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# --- The end of the process ----------------------------------------------------------------------------


class Thread(threading.Thread):
    """One that works in the background; it is `idle` between two steps.

    Its result may be needed until the end, as by an ``atexit`` function: then it goes on as the process ends.
    """

    is_waited_for = False  # see `progress`

    def __init__(self, target: Callable[[], None], is_wanted: bool = False) -> None:
        super().__init__(target=target, name="cupar", daemon=True)
        self.is_wanted = is_wanted
        self.is_given_up = False  # who waited was interrupted
        self.idle = threading.Event()
        self.idle.set()

    def start(self) -> None:
        """Start it; raise RuntimeError if that is not possible, as when the interpreter ends."""
        _threads.add(self)
        try:
            super().start()
        except RuntimeError as error:
            if isinstance(error.__context__, KeyboardInterrupt):  # between two lines about a lock of its own
                raise error.__context__ from None
            _threads.discard(self)
            raise

    def run(self) -> None:
        """Do the work, which the end of the process waits for as long as a step of it is not done."""
        try:
            super().run()
        finally:
            _threads.discard(self)

    def is_abandoned(self) -> bool:
        return self.is_given_up or (_is_ending and not self.is_wanted)


_is_ending = False
_threads: set[Thread] = set()
_steps = fork.Lock()  # held to begin one


@contextmanager
def step() -> Iterator[None]:
    """Do in the block what must not be going on when the process ends; for other threads it does nothing.

    Raises
    ------
    AbandonedError
        In a background thread, if the process ends or its result is no longer needed.
    """
    thread = threading.current_thread()
    if not isinstance(thread, Thread) or not thread.idle.is_set():
        yield
        return
    with _steps:
        if thread.is_abandoned():
            raise AbandonedError("not built, as the process ends")
        thread.idle.clear()
    try:
        yield
    finally:
        thread.idle.set()


def is_abandoned() -> bool:
    """Whether this background thread's result is no longer needed, as where the process ends."""
    thread = threading.current_thread()
    return isinstance(thread, Thread) and thread.is_abandoned()


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
    if isinstance(getattr(sys, "last_value", None), KeyboardInterrupt) and not hasattr(sys, "ps1"):
        _tell_of_the_interrupt()


def _tell_of_the_interrupt() -> None:
    """Have the interpreter die by SIGINT, as it does of an uncaught interrupt.

    It forgets that as soon as any thread executes text, as numba does; shells would begin the next command.
    """
    with suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")


@fork.in_child
def _after_fork() -> None:
    global _is_ending
    _threads.clear()  # they are the parent's
    _is_ending = False


# --- Work ----------------------------------------------------------------------------------------------


class Job:
    """Work to be done once, and its future."""

    __slots__ = ("common", "future", "work")

    def __init__(self, work: Callable[[], Any], common: Hashable = None) -> None:
        from concurrent.futures import Future

        self.work, self.common, self.future = work, common, Future[Any]()

    def do(self) -> None:
        """Run it; the future gets its result or exception."""
        try:
            self.future.set_result(self.work())
        except BaseException as error:
            self.future.set_exception(error)


def begin(work: Callable[[], T]) -> Future[T]:
    """Do work in a new thread, with this one's context variables; here if no thread can be started."""
    job = Job(work)
    _start(_thread(job.do))
    return job.future


def _thread(do: Callable[[], None]) -> Thread:
    """Return a thread with this one's context variables, to be started."""
    asking, context = threading.current_thread(), contextvars.copy_context()
    is_wanted = asking.is_wanted if isinstance(asking, Thread) else not asking.daemon
    return Thread(lambda: context.run(do), is_wanted)


def _start(thread: Thread) -> None:
    try:
        thread.start()
    except RuntimeError:  # as the interpreter ends
        thread.run()


def off_main_thread(work: Callable[[], T]) -> T:
    """Do work where no signal arrives, with this thread's context variables; an interrupt ends the waiting.

    Python hands signals to the main thread alone, between any two steps of it. Compilers have places where
    an interrupt is lost (callbacks from C, destructors), or does harm (locks that stay taken, modules that
    are half imported). After an interrupt, the work goes on until its next `step`.
    """
    if threading.get_ident() != threading.main_thread().ident or _is_importing() or _is_in_numba():
        return work()
    answers: SimpleQueue[tuple[T] | BaseException] = SimpleQueue()  # in C: an interrupt leaves no lock taken

    def do() -> None:
        try:
            answers.put((work(),))
        except BaseException as error:
            answers.put(error)

    thread = _thread(do)
    try:
        _start(thread)
        answer = answers.get()
    except BaseException:
        thread.is_given_up = True
        raise
    if isinstance(answer, BaseException):
        try:
            raise answer
        finally:
            del answer  # which has this frame
    return answer[0]


@contextmanager
def collecting() -> Iterator[None]:
    """Collect the block's reference cycles when it ends, not wherever the collector happens to run.

    Compilers leave objects of LLVM's, whose destructors are in Python: in the main thread, an interrupt that
    arrives in one is lost. Older objects are not traversed, however many there are.
    """
    is_frozen_here = not gc.get_freeze_count()
    if is_frozen_here:
        gc.freeze()
    try:
        yield
    finally:
        if is_frozen_here:
            gc.collect()
            gc.unfreeze()


def _is_in_numba() -> bool:
    """Whether numba compiles in this thread, as where `njit` code launches a kernel: then it has its lock."""
    module = sys.modules.get("numba.core.compiler_lock")
    lock = getattr(module, "global_compiler_lock", None)
    return lock is not None and lock.is_locked()


def _is_importing() -> bool:
    """Whether this thread imports a module: another one that imports it, too, would wait for this one."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None
