"""The user's handle on the cache: what it did, where it is, and how to empty it."""

from __future__ import annotations

from pathlib import Path

from . import _cache
from ._cache import CacheWarning, Stats, Usage

__all__ = ["CacheWarning", "Stats", "Usage", "clear", "directory", "reset_stats", "stats", "usage"]


def stats() -> Stats:
    """Return how many algorithm objects this process got from where.

    Returns
    -------
    Stats
        Counts ``memory``, ``disk``, ``linked`` (template found, operator new) and ``built``, since the
        process started, was forked, or called `reset_stats`.

    Examples
    --------
    >>> import cupar
    >>> cupar.cache.reset_stats()
    >>> cupar.cache.stats()
    Stats(memory=0, disk=0, linked=0, built=0)
    """
    return _cache.stats()


def reset_stats() -> None:
    """Start counting at zero."""
    _cache.reset_stats()


def directory() -> Path | None:
    """Return the directory of the disk cache, None if it is switched off or cannot be used."""
    disk = _cache.disk()
    return None if disk is None else disk.path


def usage() -> Usage:
    """Count the entries on disk, their size and the limit on it in bytes."""
    disk = _cache.disk()
    return Usage(0, 0, 0) if disk is None else disk.usage()


def clear(*, memory: bool = True, disk: bool = True) -> None:
    """Forget all builds: those of this process, those on disk, or both.

    Algorithm objects that a program holds go on working.
    """
    if memory:
        from . import _factory

        _factory.forget()
    if disk:
        found = _cache.disk()
        if found is not None:
            found.clear()
