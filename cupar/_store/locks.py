"""Locks among processes, and how long one call waits for all of them.

A call may need several entries: a build, the template that it is linked with, where a compiler lies. Others
may be making each of them, and hang. So a deadline is for all its locks together, not for each.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, copy_context
from io import FileIO
from pathlib import Path
from typing import TypeVar
from weakref import WeakSet

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

from .._base import fork
from . import files

_T = TypeVar("_T")
SUFFIX = ".lock"
_POLL_SECONDS = 0.01
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)


def acquire(path: Path, timeout: float) -> FileIO | None:
    """Lock a file that need not exist, and return it open; None if another process holds it for too long.

    Not with the package filelock: importing it gives the process an audit hook (4.2), which makes every read
    of a function's code or defaults 20 times slower, and a lookup of an operator in memory reads both.
    """
    if fcntl is None:
        raise OSError(errno.ENOSYS, "no locks")
    file = _attempt(path)
    if file is not None or timeout <= 0:
        return file
    from .._base import progress

    return progress.waiting("another process", lambda: _wait(path, time.monotonic() + timeout))


def _wait(path: Path, end: float) -> FileIO | None:
    file = None
    while file is None and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)
        file = _attempt(path)
    return file


def _attempt(path: Path) -> FileIO | None:
    """Lock a file unless another process holds it."""
    # An object, which closes itself: an interrupt may come wherever this would be done otherwise.
    file = FileIO(path, "r+", opener=lambda path, _flags: os.open(path, _LOCK_FLAGS, 0o600))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(file.fileno()), path.lstat()):
            os.fchmod(file.fileno(), 0o600)  # a umask may have taken the owner's bits
            with suppress(OSError):
                os.utime(file.fileno())  # a dead process may have left it, and it is in use again
            _held.add(file)
            return file
    except (BlockingIOError, FileNotFoundError):
        pass  # another process holds it, or has just removed it, so that others may lock a new one
    except BaseException:
        file.close()
        raise
    file.close()
    return None


def release(path: Path, file: FileIO) -> None:
    """Remove and unlock a file that this process has locked."""
    if file.closed:  # in a forked child, that has come out of what its parent was doing
        return
    files.remove(path)
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_UN)  # a child that did not fork through Python has the file open, too
    with suppress(OSError):
        file.close()


def remove_leftovers(directory: Path) -> None:
    """Remove the locks of processes that were killed: those that no process holds."""
    for item, _ in files.listed(directory):
        path = Path(item.path)
        if path.suffix == SUFFIX:
            with suppress(OSError):
                held = acquire(path, 0)
                if held is not None:
                    release(path, held)
    files.remove_leftovers(directory)  # by their age, where the file system has no locks


_held: WeakSet[FileIO] = WeakSet()


@fork.in_child
def _leave_to_parent() -> None:
    """Close the files that a parent has locked: its locks end with it, however long its children live."""
    for file in _held:
        with suppress(OSError):
            file.close()


class Deadline:
    """The seconds that a call may still wait."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    def waited_since(self, start: float) -> None:
        """Subtract the time since a `time.perf_counter`."""
        self.left = max(0.0, self.left - (time.perf_counter() - start))


_current: ContextVar[Deadline | None] = ContextVar("cupar_deadline", default=None)


def under_one_deadline(seconds: float, call: Callable[[Deadline], _T]) -> _T:
    """Call a function all of whose waiting has this limit; within another such call, that one's counts.

    The limit is set in a separate context, which always ends: an interrupt in a ``finally``
    would leave a variable of this one set for ever.
    """
    if (outer := _current.get()) is not None:
        return call(outer)
    context, deadline = copy_context(), Deadline(seconds)
    context.run(_current.set, deadline)
    return context.run(call, deadline)
