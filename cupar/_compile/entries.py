"""Entries of the cache and objects made from them; an unusable entry is rebuilt.

Where a compiler is missing, one takes an entry that means the same, whichever compilers made it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from .. import _cache
from .._base.warnings import warn_once
from .._device import driver
from .._store.entry import Entry
from . import toolchain
from .toolchain import digest

T = TypeVar("T")

# Errors that are no fault of an entry: this process lacks libraries or memory, or the GPU is at fault.
_NOT_ITS_FAULT = (MemoryError, OSError, ImportError, driver.DriverError, driver.NoDeviceError)


def find(parts: Mapping[str, Any], *, remote: bool = True) -> _cache.FetchedEntry | None:
    """Return the entry that these parts of a key describe, if there is one; nothing is made.

    Unless it may be `remote`, the shared store is not asked.
    """
    if toolchain.missing(parts["versions"]):
        from . import alike

        return alike.find(digest(parts), remote=remote)
    return _cache.find(digest(parts), remote=remote)


def fetch(
    parts: Mapping[str, Any],
    make: Callable[[], Entry],
    use: Callable[[Entry], T],
    load: Callable[[T], None] = lambda made: None,
    found: _cache.FetchedEntry | None = None,
) -> tuple[_cache.FetchedEntry, T]:
    """Fetch or make the entry that these parts of a key describe.

    Return it, and what `use` makes of it, once `load` has loaded that. It may have been found already. Raise
    ImportError if it has to be made, and a compiler is missing.

    An intact entry that `use` fails on is made again: something else was stored
    under its key. It is replaced once the new one has loaded. One that `load` fails on may be as good as any:
    the GPU's memory, context or driver is the cause.
    """
    key, is_open = digest(parts), bool(toolchain.missing(parts["versions"]))
    if found is None and is_open:
        found = find(parts)
        if found is None:
            from . import alike

            raise alike.error(parts)
    found = found or _cache.fetch(key, make)
    try:
        made = use(found.entry)
    except Exception as error:
        if found.origin == "built" or isinstance(error, _NOT_ITS_FAULT):
            raise
        warn_once(
            "useless",
            f"cupar's cache entry {found.key} in {found.source} is unusable and will be rebuilt: {error!r}",
        )
    else:
        load(made)
        return found, made

    def make_and_load() -> Entry:
        entry = make()
        load(use(entry))
        return entry

    _cache.discard(found.key)
    if is_open:
        return fetch(parts, make, use, load)
    found = _cache.fetch(key, make_and_load)
    made = use(found.entry)
    load(made)
    return found, made
