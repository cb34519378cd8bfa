"""What builds in the background, made when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar

from .._base import fork

if TYPE_CHECKING:
    from concurrent.futures import Future

    from .._base.background import Queue

T = TypeVar("T")


class LazyQueue:
    """A `Queue`, whose module is not imported before something is submitted; a forked process has its own."""

    def __init__(self) -> None:
        self._queue: Queue | None = None
        self._starting = fork.Lock()
        fork.in_child(self._forget)

    def submit(self, group: Hashable, work: Callable[[], T]) -> Future[T]:
        """Have work done in the background; see `Queue.submit`."""
        from .._base.background import Queue

        with self._starting:
            if self._queue is None:
                self._queue = Queue()
            queue = self._queue
        return queue.submit(group, work)

    def _forget(self) -> None:
        self._queue = None  # its threads are the parent's


def waited_for(future: Future[Any], timeout: float | None) -> bool:
    """Wait until what was submitted is done, or for some seconds; return whether it is."""
    from concurrent.futures import wait

    from .._base import progress

    return progress.waited_for(lambda: not wait([future], timeout).not_done)
