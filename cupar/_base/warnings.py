"""Warnings of the cache: each topic once in a process."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Hashable

from . import fork


class CacheWarning(UserWarning):
    """The cache does not work; results are right, but builds are made again."""

    __module__ = "cupar"


def warn_once(topic: Hashable, message: str) -> None:
    """Warn of a topic the first time it comes up in this process."""
    with _lock:
        is_new = topic not in warned
        warned.add(topic)
    if is_new:
        warnings.warn(message, CacheWarning, stacklevel=_level())


def _level() -> int:
    """Return the stack level of the user's code, so that a warning shows its line."""
    frame, level = sys._getframe(2), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "cupar":
        frame, level = frame.f_back, level + 1
    return level


_lock = fork.Lock()
warned: set[Hashable] = set()  # topics
