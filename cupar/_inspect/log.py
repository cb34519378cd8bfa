"""Log lines about builds and hits, with their types and operators; see `_base.log`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from logging import Logger
from typing import TYPE_CHECKING, Any

from .._base.log import DEBUG, INFO, logger
from . import differences

if TYPE_CHECKING:
    from .._cache import FetchedEntry


def fetched(origin: str, key: str, found: FetchedEntry, seconds: Mapping[str, float]) -> None:
    """Say, at INFO, that a build was found on disk, linked or built, and what making it took, by stage."""
    listening = logger(INFO)
    if listening is None:
        return
    meta = found.entry.meta
    with suppress(Exception):  # metadata may hold anything, and a line that cannot be written fails no call
        what, types = differences.subject(meta), differences.summary(meta)
        if origin == "disk":
            line = "found %s in %.4f s in %s (%s), key %s"
            listening.info(line, what, found.seconds, found.source, types, key)
        else:
            took = found.seconds + seconds.get("load", 0.0)  # stages may be at the same time
            listening.info("%s %s in %.2f s (%s), key %s", origin, what, took, types, key)
        _debug(listening, origin, key, meta)


def template(key: str, found: FetchedEntry) -> None:
    """Say, at DEBUG, that the kernels for any operator were found or made."""
    listening = logger(DEBUG)
    if listening is None:
        return
    meta, verb = found.entry.meta, "found" if found.origin == "disk" else "built"
    with suppress(Exception):  # as above
        what = differences.subject(meta)
        listening.debug("%s %s in %.4f s, key %s", verb, what, found.seconds, key)
        _debug(listening, found.origin, key, meta)


def _debug(listening: Logger, origin: str, key: str, meta: Mapping[str, Any]) -> None:
    """Log why an entry was not found, and its dependencies."""
    if not listening.isEnabledFor(DEBUG):
        return
    if origin != "disk":
        listening.debug("%s", differences.explanation(key, meta))
    listening.debug("parts of %s: %s", key, json.dumps(meta.get("parts"), sort_keys=True))
