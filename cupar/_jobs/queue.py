"""A queue of jobs for background threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar

from .._base import fork

if TYPE_CHECKING:
    from concurrent.futures import Future

    from .threads import Job

T = TypeVar("T")

__all__ = ["Queue", "builds", "upgrades", "waited_for"]


class Queue:
    """Does work in several threads, which start when there is work; by default in as many as there are cores.

    Builds that link the same kernels wait for the first of them to be compiled. They should not do that in
    threads that could compile other kernels meanwhile, so they stay in the queue for so long.

    A forked process begins with an empty one: the threads are its parent's.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._forget()
        fork.in_child(self._forget)

    def _forget(self) -> None:
        self._working = 0  # threads
        self._lock = threading.Lock()
        self._jobs: list[Job] = []
        self._begun: set[Hashable] = set()
        self._there: set[Hashable] = {None}

    def submit(self, common: Hashable, work: Callable[[], T]) -> Future[T]:
        """Begin to work in the background, or as soon as others have made a shared part.

        Parameters
        ----------
        common : hashable
            The first piece of work with the same one is done alone. None: it has nothing in common.
        work : callable
            Takes nothing.

        Returns
        -------
        Future
            With what `work` returns.
        """
        from .threads import Job

        job = Job(work, common)
        with self._lock:
            self._jobs.append(job)
        if not self._start(1):  # no thread can be started, perhaps as the interpreter ends
            self._work(is_counted=False)
        return job.future

    def drop(self) -> None:
        """Cancel jobs that have not begun."""
        with self._lock:
            jobs, self._jobs = self._jobs, []
        for job in jobs:
            job.future.cancel()

    def _start(self, count: int) -> bool:
        """Start this many more threads, or as many as are allowed; return whether there are any."""
        from .threads import Thread, cores

        if self._most is None:
            self._most = cores()
        for _ in range(count):
            with self._lock:
                if self._working >= self._most:
                    break
                self._working += 1
            try:
                Thread(self._work).start()
            except RuntimeError:
                with self._lock:
                    self._working -= 1
                break
        return self._working > 0

    def _work(self, is_counted: bool = True) -> None:
        """Do the queue's jobs, in one of its threads or in the caller's."""
        while (job := self._next(is_counted)) is not None:
            job.do()
            self._release(job.common)
            del job  # with what the user gave

    def _next(self, is_counted: bool) -> Job | None:
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


builds = Queue()
upgrades = Queue()  # to fast kernels; not waited for, so they must not delay other jobs


def waited_for(future: Future[Any], timeout: float | None) -> bool:
    """Wait until submitted jobs are done, or for some seconds; return whether they are."""
    from concurrent.futures import wait

    from .._base import progress

    return progress.waited_for(lambda: not wait([future], timeout).not_done)
