"""Work in the background, on all cores: first what others wait for."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

__all__ = ["Queue", "cores"]


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class _Job:
    common: Hashable
    work: Callable[[], Any]
    future: Future[Any]


class Queue:
    """Does work in as many threads as there are cores.

    Builds that link the same kernels wait for the first of them to be compiled. They should not do that in
    threads that could compile other kernels meanwhile, so they stay in the queue for so long.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(cores(), thread_name_prefix="cupar")
        self._lock = threading.Lock()
        self._jobs: list[_Job] = []
        self._begun: set[Hashable] = set()
        self._there: set[Hashable] = set()

    def submit(self, common: Hashable, work: Callable[[], Any]) -> Future[Any]:
        """Begin to work in the background, or as soon as others have made what they have in common.

        Parameters
        ----------
        common : hashable
            Says which work it is that the first one is to be done alone of.
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
        self._threads.submit(self._work)
        return job.future

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                result = job.work()
            except BaseException as error:
                job.future.set_exception(error)
            else:
                job.future.set_result(result)
            self._release(job.common)

    def _next(self) -> _Job | None:
        with self._lock:
            for place, job in enumerate(self._jobs):
                if job.common in self._there or job.common not in self._begun:
                    self._begun.add(job.common)
                    return self._jobs.pop(place)
        return None

    def _release(self, common: Hashable) -> None:
        """Let all begin that waited for the first one; if that failed, no other need wait in turn."""
        with self._lock:
            if common in self._there:
                return
            self._there.add(common)
            released = sum(job.common == common for job in self._jobs)
        with suppress(RuntimeError):  # when the interpreter ends: then this thread does it all
            for _ in range(released):
                self._threads.submit(self._work)
