"""What a forked child must forget: each module that keeps it registers that with `in_child`.

A child has one thread. It inherits locks that others held, work that others had begun, and handles that only
the parent may use or destroy.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import MethodType, TracebackType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

_F = TypeVar("_F", bound=Callable[[], object])

_methods: WeakKeyDictionary[Any, Callable[[Any], object]] = WeakKeyDictionary()


def in_child(forget: _F) -> _F:
    """Call `forget` in each child that this process forks. Usable as a decorator.

    There is one order: objects first, then modules, both as they were registered. A module comes after those
    that it imports.

    Parameters
    ----------
    forget : callable
        A function of a module; or a method, one of each object, which is registered as long as the object is
        there.
    """
    if isinstance(forget, MethodType):
        _methods[forget.__self__] = forget.__func__
    elif hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)
    return forget


class Lock:
    """A reentrant lock that is free in a forked child, whoever held it in the parent."""

    def __init__(self) -> None:
        self._renew()
        in_child(self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

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


def leak(values: object) -> None:
    """Never destroy a parent's objects in its child: their GPU handles are not the child's.

    No list would do: the interpreter empties its modules at exit. So they get a reference that nothing gives
    back.
    """
    import ctypes  # 2 ms, which only a forked child pays

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(values))


@in_child
def _forget() -> None:
    # In a list, so that no object is destroyed before it has forgotten what it must not destroy.
    for each, forget in list(_methods.items()):
        forget(each)
