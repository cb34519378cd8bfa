"""Helper processes for the threads that need one, and crews that do nothing but ask theirs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from .helpers import Helper
from .queue import Queue
from .threads import AbandonedError

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

__all__ = ["Crew", "Pool"]

_IDLE_SECONDS = 10.0


class Pool:
    """Places to work in: helpers, which start when there is work, and this process.

    Parameters
    ----------
    limit : int
        The largest number of helpers.
    new : callable
        Returns a helper.
    here : bool, optional
        Whether this process has the first place. If not, it has one only when there can be no helper.
    lasts : bool, optional
        Whether helpers are replaced when they are lost, and stay until the pool is closed. If not, they end
        when there is nothing to do, and the place of a lost one goes with it: what goes wrong each time does
        so a few times only.
    """

    def __init__(
        self, limit: int, new: Callable[[], Helper], *, here: bool = False, lasts: bool = False
    ) -> None:
        self.limit = limit
        self._new = new
        self._here, self._lasts = here, lasts
        self._changed = threading.Condition()
        self._is_used_here = False
        self.helpers: set[Helper] = set()
        self.idle: list[Helper] = []
        self._timer: threading.Timer | None = None

    @contextmanager
    def seat(self) -> Iterator[Helper | None]:
        """Wait for a place for the block: a helper, None for this process."""
        helper = self._take()
        try:
            yield helper
        finally:
            self._give_back(helper)

    def _take(self) -> Helper | None:
        with self._changed:
            while True:
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
                if not self._is_used_here and (self._here or not self.limit):
                    self._is_used_here = True
                    return None
                if self.idle:
                    return self.idle.pop()
                if len(self.helpers) < self.limit:
                    helper = self._new()
                    self.helpers.add(helper)
                    return helper
                self._changed.wait()

    def _give_back(self, helper: Helper | None) -> None:
        with self._changed:
            if helper is None:
                self._is_used_here = False
            elif helper.is_lost:
                self.helpers.discard(helper)
                if not self._lasts:  # where one did not even start, no other would
                    self.limit = self.limit - 1 if helper.has_started else 0
            else:
                self.idle.append(helper)
            if self._is_at_rest() and not self._lasts:
                self._wait_for_work()
            self._changed.notify_all()
        if helper is not None and helper.is_lost:
            helper.kill()

    def _is_at_rest(self) -> bool:
        return not self._is_used_here and len(self.idle) == len(self.helpers)

    def _wait_for_work(self) -> None:
        """End the helpers if there is nothing to do for some seconds."""
        if not self.idle:
            return
        self._timer = threading.Timer(_IDLE_SECONDS, self._rest)
        self._timer.daemon = True
        with suppress(RuntimeError):  # when the interpreter ends, which ends them, too
            self._timer.start()

    def _rest(self) -> None:
        with self._changed:
            if not self._is_at_rest():
                return
            idle, self.idle = self.idle, []
            self.helpers.clear()
        for helper in idle:
            helper.kill()

    def close(self, grace: float = 0.0) -> None:
        """End all helpers but those that finish their job; no others will start.

        They have that many seconds to unwind, and so have the threads that wait for them.
        """
        with self._changed:
            self.limit = 0
            helpers = [each for each in self.helpers if not each.leave()]
        until = time.monotonic() + grace
        if grace:
            for helper in helpers:
                helper.terminate()
        for helper in helpers:
            helper.kill(max(0.0, until - time.monotonic()))
        with self._changed:
            self._changed.wait_for(self._is_at_rest, grace)


class Crew:
    """Threads that hand submitted jobs to helper processes. Closing it ends both."""

    def __init__(self, size: int, new: Callable[[], Helper]) -> None:
        self._queue = Queue(size)
        self._pool = Pool(size, new, lasts=True)

    def submit(self, common: Hashable, ask: Callable[[Helper], T]) -> Future[T]:
        """Have a helper asked as soon as one is free; what `common` is, `Queue.submit` says."""
        return self._queue.submit(common, lambda: self._with_helper(ask))

    def _with_helper(self, ask: Callable[[Helper], T]) -> T:
        with self._pool.seat() as helper:
            if helper is None:
                raise AbandonedError("not built, as no caller waits for it")
            return ask(helper)

    def drop(self) -> None:
        """Cancel jobs that have not begun."""
        self._queue.drop()

    def close(self, grace: float) -> None:
        """Begin nothing more, end the helpers whatever they do, and wait for those who asked them."""
        self.drop()
        self._pool.close(grace)
