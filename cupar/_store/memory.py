"""Values in memory, each made once however many threads ask for it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

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


class Memory(Generic[V]):
    """The most recently used values of this process, each made once however many threads ask for it.

    Nothing is shared across a fork: the child starts empty.
    """

    def __init__(self, maxsize: int) -> None:
        if maxsize < 1:
            raise ValueError(f"maxsize is {maxsize!r} and should be at least 1")
        self._maxsize = maxsize
        self._reset()
        fork.in_child(self._forget)

    def _reset(self) -> None:
        # Reentrant: the garbage collector may run a destructor under it that asks the cache for something.
        self._lock = threading.RLock()
        self._values: OrderedDict[Hashable, V] = OrderedDict()  # the most recently used one last
        self._flights: dict[Hashable, _Flight[V]] = {}

    def _forget(self) -> None:
        """Start a child with nothing of its parent's, and with a lock that no lost thread holds."""
        if self._values or self._flights:
            fork.leak((self._values, self._flights))
        self._reset()

    def get(self, key: Hashable) -> V | None:
        """Return the value under `key`, None if there is none."""
        with self._lock:
            value: V | None = self._value(key, None)
            return value

    def get_or_make(self, key: Hashable, make: Callable[[], V]) -> V:
        """Return the value under `key`, or make it.

        Of several threads that ask at the same time one makes the value, and the others wait for it. If
        that fails all of them get the exception, and later calls try again. Raise RuntimeError if `make`
        asks for the key that it is making.
        """
        with self._lock:
            value: V = self._value(key, _MISSING)
            if value is not _MISSING:
                return value
            flight = self._flights.get(key)
            if flight is None:
                ours = self._flights[key] = _Flight()
        if flight is None:
            return self._fly(key, ours, make)
        if flight.thread == threading.get_ident():
            raise RuntimeError(f"the function that makes {key!r} asked the cache for {key!r} itself")
        flight.done.wait()
        if flight.error is None:
            return flight.value
        if isinstance(flight.error, Exception):
            raise flight.error
        return self.get_or_make(key, make)  # what interrupted the other thread is not for this one

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            old, self._values = self._values, OrderedDict()
        del old  # outside of the lock, as destroying values may take long, or come back here

    def __len__(self) -> int:
        with self._lock:
            return len(self._values)

    def _value(self, key: Hashable, default: Any) -> Any:
        value = self._values.get(key, _MISSING)
        if value is _MISSING:
            return default
        self._values.move_to_end(key)
        return value

    def _fly(self, key: Hashable, flight: _Flight[V], make: Callable[[], V]) -> V:
        evicted = []  # kept until the lock is released, for the same reason as in clear()
        try:
            value = flight.value = make()
            with self._lock:
                while len(self._values) >= self._maxsize:
                    evicted.append(self._values.popitem(last=False))
                self._values[key] = value
        except BaseException as error:
            flight.error = error
            raise
        finally:
            with self._lock:
                self._flights.pop(key, None)
            flight.done.set()
        return value
