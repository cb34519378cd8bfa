"""Warnings of the cache: each topic once in a process."""

from __future__ import annotations

import warnings
from collections.abc import Hashable

from . import _fork

__all__ = ["CacheWarning", "warn_once"]


class CacheWarning(UserWarning):
    """The cache cannot do what it is for; results are right, but builds are made again."""


def warn_once(topic: Hashable, message: str) -> None:
    """Warn of a topic the first time it comes up in this process."""
    with _lock:
        known = topic in _warned
        _warned.add(topic)
    if not known:
        warnings.warn(message, CacheWarning, stacklevel=3)


_lock = _fork.Lock()
_warned: set[Hashable] = set()
