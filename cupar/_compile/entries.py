"""Entries of the cache and what is made of them; an unusable entry is made again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .. import _cache
from .._base.warnings import warn_once
from .._device import driver

T = TypeVar("T")

# What says nothing of an entry: libraries or memory that this process lacks, and whatever the GPU is in.
_NOT_THE_ENTRYS = (MemoryError, OSError, ImportError, driver.DriverError, driver.NoDeviceError)


def fetch(
    key: str,
    make: Callable[[], _cache.Entry],
    use: Callable[[_cache.Entry], T],
    load: Callable[[T], None] = lambda made: None,
    found: _cache.Found | None = None,
) -> tuple[_cache.Found, T]:
    """Fetch or make an entry, and return what `use` makes of it, once `load` has loaded that.

    It may have been found already.

    An entry that `use` fails on, although it is what was stored, is made again: something else was stored
    under its key. It is replaced once the new one has loaded. One that `load` fails on may be as good as any:
    the GPU's memory, context or driver is the cause.
    """
    found = found or _cache.fetch(key, make)
    try:
        made = use(found.entry)
    except Exception as error:
        if found.origin == "built" or isinstance(error, _NOT_THE_ENTRYS):
            raise
        warn_once(
            "useless",
            f"cupar's cache entry {key} in {found.source} is unusable and will be rebuilt: {error!r}",
        )
    else:
        load(made)
        return found, made

    def make_and_load() -> _cache.Entry:
        entry = make()
        load(use(entry))
        return entry

    _cache.discard(key)
    found = _cache.fetch(key, make_and_load)
    made = use(found.entry)
    load(made)
    return found, made
