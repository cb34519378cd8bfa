"""Values in memory, each made once however many threads ask for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Generic, TypeVar

from cachetools import LRUCache

from .._base import fork
from .._base.bounded import Bounded

V = TypeVar("V")

_MISSING: Any = object()


class _Flight(Generic[V]):
    """One make() in progress, and the result for the threads that wait for it.

    It goes on as long as its lock is held, which a ``with`` gives back whatever happens: after an interrupt
    at any point, the next thread that asks makes the value.
    """

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.going = threading.Lock()
        self.value: V = _MISSING
        self.error: Exception | None = None


class SingleFlightCache(Generic[V]):
    """The most recently used values of this process, each made once however many threads ask for it.

    Nothing is shared across a fork: the child starts empty.
    """

    def __init__(self, maxsize: int) -> None:
        if maxsize < 1:
            raise ValueError(f"maxsize is {maxsize!r} and should be at least 1")
        self._values = Bounded[V](partial(LRUCache, maxsize))
        self._lock = fork.Lock()
        self._flights: dict[Hashable, _Flight[V]] = {}
        fork.in_child(self._forget)

    def _forget(self) -> None:
        if self._flights:
            fork.leak(self._flights)
        self._flights = {}

    def get(self, key: Hashable) -> V | None:
        """Return the value under `key`, or None."""
        return self._values.get(key)

    def get_or_make(self, key: Hashable, make: Callable[[], V]) -> V:
        """Return the value under `key`, or make it.

        Of several threads that ask at the same time one makes the value, and the others wait for it. If
        that fails all of them get the exception, and later calls try again. Raise RuntimeError if `make`
        asks for the key that it is making.
        """
        value: V = self._values.get(key, _MISSING)
        if value is not _MISSING:
            return value
        ours = _Flight[V]()
        while True:
            with ours.going:
                with self._lock:
                    value = self._values.get(key, _MISSING)  # of a flight that has just ended
                    if value is not _MISSING:
                        return value
                    flight = self._flights.get(key, ours)
                    if not flight.going.locked():  # an interrupt has ended it
                        flight = ours
                    self._flights[key] = flight
                if flight is ours:
                    return self._fly(key, ours, make)
            if flight.thread == ours.thread:
                raise RuntimeError(f"the function that makes {key!r} asked the cache for {key!r} itself")
            with flight.going:  # until it ends
                pass
            if flight.value is not _MISSING:
                return flight.value
            if flight.error is not None:
                raise flight.error

    def clear(self) -> None:
        """Forget all values."""
        self._values.clear()

    def __len__(self) -> int:
        return len(self._values)

    def _fly(self, key: Hashable, flight: _Flight[V], make: Callable[[], V]) -> V:
        try:
            value = flight.value = make()
            self._values[key] = value
        except Exception as error:
            flight.error = error
            raise
        finally:
            with self._lock:
                self._flights.pop(key, None)
        return value
