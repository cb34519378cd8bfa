"""Layers and stores that are open, and what failed: it is left alone for a while, and then tried again.

A network's file system has hiccups, and a server is started again: neither is a reason to do without builds
until the process ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from functools import partial
from typing import Generic, TypeVar

from cachetools import TTLCache

from .._base.bounded import Bounded
from .._base.warnings import warn_once

T = TypeVar("T")

REST = 60.0  # seconds
_MOST = 1024


class RecentFailures(Bounded[str]):
    """Why something failed, for some seconds; then it is as good as what did not.

    Parameters
    ----------
    timer : callable, optional
        Returns seconds since some moment.
    seconds : float, optional
    """

    def __init__(self, timer: Callable[[], float] = time.monotonic, seconds: float = REST) -> None:
        super().__init__(partial(TTLCache[Hashable, str], _MOST, seconds, timer))


class OpenByName(Generic[T]):
    """Open layers or stores, by path or URL; one that could not be opened rests."""

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._open: dict[Hashable, T] = {}
        self._resting = RecentFailures(timer)

    def get(self, asked: Hashable, open: Callable[[], T], topic: Hashable, said: str) -> T | None:
        """Return an open one; else open it, unless that failed just now. Warn once per topic."""
        found = self._open.get(asked)
        if found is None and self._resting.get(asked) is None:
            try:
                found = self._open[asked] = open()
            except Exception as error:  # clients of stores may raise anything
                self._resting[asked] = type(error).__name__
                warn_once(topic, f"{said}: {error}")
        return found

    def lose(self, lost: T) -> None:
        """Let something rest that has failed since it was opened, and open it anew then."""
        for asked, found in [*self._open.items()]:
            if found is lost:
                self._resting[asked] = "lost"
                self._open.pop(asked, None)

    def try_again(self) -> None:
        """Let nothing rest any longer."""
        self._resting.clear()

    def clear(self) -> None:
        """Forget all, open and failed."""
        self._open.clear()
        self._resting.clear()
