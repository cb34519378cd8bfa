"""How long a call waits for others that build the same: for all its locks together, not for each.

A call may need several entries: a build, the template that it is linked with, where a compiler lies. Others
may be making each of them, and hang.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Patience", "of_one_call"]


class Patience:
    """The seconds that a call may still wait."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    def waited_since(self, start: float) -> None:
        """Take off what has passed since a `time.perf_counter`."""
        self.left = max(0.0, self.left - (time.perf_counter() - start))


_current: ContextVar[Patience | None] = ContextVar("cupar_patience", default=None)


@contextmanager
def of_one_call(seconds: float) -> Iterator[Patience]:
    """Let all waiting in the block have this limit; within another such block, that one's counts."""
    patience = _current.get()
    if patience is not None:
        yield patience
        return
    patience = Patience(seconds)
    token = _current.set(patience)
    try:
        yield patience
    finally:
        _current.reset(token)
