"""Bounded maps, safe with threads, forks and interrupts; and the list of a process's tables."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from . import fork
from .data import Recent

if TYPE_CHECKING:
    from cachetools import Cache

D = TypeVar("D")
T = TypeVar("T")
V = TypeVar("V")


class Bounded(Generic[V]):
    """A map that drops what its kind of cache says, for any number of threads.

    cachetools' own are several objects that must agree, changed by code in Python. So what breaks off a
    change, such as an interrupt, leaves an empty map; and a forked child starts with one, for its parent's
    may be half changed, and hold GPU handles that are not the child's. Dropped values are destroyed outside
    of the lock, as that may take long, or come back here.

    Parameters
    ----------
    made : callable
        Returns the empty map, such as ``partial(LRUCache, 1024)``.
    """

    def __init__(self, made: Callable[[], Cache[Hashable, V]]) -> None:
        self._made = made
        self._values = made()
        # Reentrant: the garbage collector may run a destructor under it that asks the map for something.
        self._lock = fork.Lock()
        fork.in_child(self._forget)

    def _forget(self) -> None:
        if self._values:
            fork.leak(self._values)
            self._values = self._made()

    def _do(self, operation: Callable[[Cache[Hashable, V]], T]) -> T:
        with self._lock:
            try:
                return operation(self._values)
            except BaseException:
                self._values = self._made()
                raise

    @overload
    def get(self, key: Hashable) -> V | None: ...
    @overload
    def get(self, key: Hashable, default: D) -> V | D: ...
    def get(self, key: Hashable, default: Any = None) -> Any:
        """Return the value under `key`, or else the default."""
        return self._do(lambda values: values.get(key, default))

    def __setitem__(self, key: Hashable, value: V) -> None:
        dropped: list[Any] = []  # until the lock is released

        def put(values: Cache[Hashable, V]) -> None:
            dropped.append(values.pop(key, None))
            while len(values) >= values.maxsize:
                dropped.append(values.popitem())
            values[key] = value

        self._do(put)

    def pop(self, key: Hashable) -> V | None:
        """Remove the value under `key`, and return it."""
        return self._do(lambda values: values.pop(key, None))

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            old, self._values = self._values, self._made()
        del old

    def values(self) -> list[V]:
        """Return all values."""
        return self._do(lambda values: list(values.values()))

    def __len__(self) -> int:
        return self._do(len)


# --- Tables of builds, of what is made of builds, and of users' functions -----------------------------------

registered: list[Any] = []


def of_builds(table: T) -> T:
    """Register a table, or as a decorator, a function with a cache.

    A `Recent` table is empty in a forked child, which never destroys its parent's items: they may have GPU
    handles. Other tables have their own way of that.
    """
    registered.append(table)
    return table


def clear() -> None:
    """Empty all tables."""
    for table in [*registered]:
        (getattr(table, "cache_clear", None) or table.clear)()


@fork.in_child
def _forget() -> None:
    for table in registered:
        if isinstance(table, Recent) and (kept := table.all()):
            fork.leak(kept)
            table.clear()
