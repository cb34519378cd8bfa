"""Values in memory, each made once however many threads ask for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from cachetools import LRUCache

from .._base import fork

V = TypeVar("V")

_MISSING: Any = object()


class _Flight(Generic[V]):
    """One make() under way, and what the threads that wait for it get."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.done = threading.Event()
        self.value: V = _MISSING
        self.error: BaseException | None = None

    def run(self, make: Callable[[], V]) -> V:
        try:
            self.value = make()
        except BaseException as error:
            self.error = error
            raise
        return self.value

    def wait(self) -> V:
        self.done.wait()
        if self.error is not None:
            raise self.error
        return self.value


class Memory(Generic[V]):
    """The most recently used values of this process, each made once however many threads ask for it.

    Nothing is shared across a fork: the child starts empty.

    Parameters
    ----------
    maxsize : int
        Number of values to keep, at least 1.
    """

    def __init__(self, maxsize: int) -> None:
        if maxsize < 1:
            raise ValueError(f"maxsize is {maxsize!r} and should be at least 1")
        self._maxsize = maxsize
        self._reset()
        _MEMORIES.add(self)

    def _reset(self) -> None:
        # Reentrant: the garbage collector may run a destructor under it that asks the cache for something.
        self._lock = threading.RLock()
        self._values: LRUCache[Hashable, V] = LRUCache(self._maxsize)
        self._flights: dict[Hashable, _Flight[V]] = {}

    def get(self, key: Hashable) -> V | None:
        """Return the value under `key`, None if there is none."""
        with self._lock:
            return self._values.get(key)

    def get_or_make(self, key: Hashable, make: Callable[[], V]) -> V:
        """Return the value under `key`, or make it.

        Of several threads that ask at the same time one makes the value, and the others wait for it. If
        that fails all of them get the exception, and who asks later tries again.

        Raises
        ------
        RuntimeError
            If `make` asks for the key that it is making.
        """
        with self._lock:
            value: V = self._values.get(key, _MISSING)
            if value is not _MISSING:
                return value
            flight = self._flights.get(key)
            ours = flight is None
            if flight is None:
                flight = self._flights[key] = _Flight()
        if ours:
            return self._fly(key, flight, make)
        if flight.thread == threading.get_ident():
            raise RuntimeError(f"the function that makes {key!r} asked the cache for {key!r} itself")
        try:
            return flight.wait()
        except Exception:
            raise
        except BaseException:  # what interrupted the other thread is not for this one
            if flight.error is None:
                raise
            return self.get_or_make(key, make)

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            old, self._values = self._values, LRUCache(self._maxsize)
        del old  # outside of the lock, as destroying values may take long, or come back here

    def __len__(self) -> int:
        with self._lock:
            return len(self._values)

    def _fly(self, key: Hashable, flight: _Flight[V], make: Callable[[], V]) -> V:
        evicted = []  # kept until the lock is released, for the same reason as in clear()
        try:
            value = flight.run(make)
            with self._lock:
                while len(self._values) >= self._maxsize:
                    evicted.append(self._values.popitem())
                self._values[key] = value
        finally:
            with self._lock:
                self._flights.pop(key, None)
            flight.done.set()
        return value


_MEMORIES: WeakSet[Memory[Any]] = WeakSet()


def _after_fork_in_child() -> None:
    """Start the child with nothing of its parent's, and with locks that no lost thread holds."""
    for memory in _MEMORIES:
        if memory._values or memory._flights:
            fork.leak((memory._values, memory._flights))
        memory._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
