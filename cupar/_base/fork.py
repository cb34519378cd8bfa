"""What a fork leaves behind: locks that no thread will release, objects that only the parent may destroy."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from weakref import WeakSet


class Lock:
    """A reentrant lock that is free in a forked child, whoever held it in the parent."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def acquire(self, blocking: bool = True) -> bool:
        """Take the lock, waiting for it if `blocking`; return whether it was taken."""
        return self._lock.acquire(blocking)

    def release(self) -> None:
        """Give the lock back."""
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def renew(self) -> None:
        """Forget who holds the lock."""
        self._lock = threading.RLock()


_locks: WeakSet[Lock] = WeakSet()


def keep_for_ever(values: object) -> None:
    """Keep a parent's objects from being destroyed in its child: their GPU handles are none of the child's.

    No list would do: the interpreter empties its modules at exit. So they get a reference that nothing gives
    back.
    """
    import ctypes  # 2 ms, which only a forked child pays

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(values))


_generation = 0


def generation() -> int:
    """Return how many forks this process is from the one that imported cupar."""
    return _generation


def _after_fork() -> None:
    global _generation
    _generation += 1
    for lock in _locks:
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
