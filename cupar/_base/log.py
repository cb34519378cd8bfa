"""Lines under the logger's name ``cupar``, for those who asked `logging` for them.

INFO has a line for each build, DEBUG says beside that what it differs in from the nearest entry.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logging import Logger

    from .._cache import Found

__all__ = ["fetched"]

_DEBUG, _INFO = 10, 20  # logging's own numbers, without importing it


def _logger(level: int) -> Logger | None:
    """Return the logger if anybody listens at this level.

    Nobody can where `logging` was never imported, and a hit in the cache does not pay for importing it.
    """
    logging = sys.modules.get("logging")
    if logging is None:
        return None
    logger: Logger = logging.getLogger("cupar")
    return logger if logger.isEnabledFor(level) else None


def fetched(origin: str, key: str, found: Found, seconds: Mapping[str, float]) -> None:
    """Say that a build was found or made.

    Parameters
    ----------
    origin : {"disk", "linked", "built"}
    key : str
    found : Found
    seconds : mapping of str to float
        What making it took, by stage.
    """
    logger = _logger(_INFO)
    if logger is None:
        return
    with suppress(Exception):  # metadata may hold anything, and a line that cannot be written fails no call
        _fetched(logger, origin, key, found, seconds)


def _fetched(logger: Logger, origin: str, key: str, found: Found, seconds: Mapping[str, float]) -> None:
    from .._inspect import differences

    meta = found.entry.meta
    subject, types = differences.subject(meta), differences.summary(meta)
    if origin == "disk":
        logger.info("found %s in %.4f s in %s (%s), key %s", subject, found.seconds, found.source, types, key)
    else:
        logger.info("%s %s in %.2f s (%s), key %s", origin, subject, sum(seconds.values()), types, key)
    if logger.isEnabledFor(_DEBUG):
        _debug(logger, origin, key, meta)


def _debug(logger: Logger, origin: str, key: str, meta: Mapping[str, Any]) -> None:
    """Say why it was not found, and what it depends on."""
    from .._inspect import differences

    if origin != "disk":
        logger.debug("%s", differences.explanation(key, meta))
    logger.debug("parts of %s: %s", key, json.dumps(meta.get("parts"), sort_keys=True))


def not_replayed(algorithm: str, why: Exception) -> None:
    """Say, at DEBUG, why calls of an algorithm are not replayed."""
    logger = _logger(_DEBUG)
    if logger is not None:
        logger.debug("calls of %s are not replayed: %s", algorithm, why)


def not_loaded(algorithm: str, work: Any, why: Exception) -> None:
    """Say, at INFO, why the kernels for some problem size are not loaded before they are called."""
    logger = _logger(_INFO)
    if logger is not None:
        logger.info("kernels of %s for %s items are loaded by the first call: %s", algorithm, work, why)


def no_green_context(ordinal: int) -> None:
    """Say, at DEBUG, that a device has no green context, so that no calls are replayed there."""
    logger = _logger(_DEBUG)
    if logger is not None:
        logger.debug("device %d has no green context: calls are not replayed", ordinal)


def compiler(text: str) -> None:
    """Say, at DEBUG, what a compiler printed that refused a program."""
    logger = _logger(_DEBUG)
    if logger is not None and text:
        logger.debug("a compiler printed:\n%s", text)


def template(key: str, found: Found) -> None:
    """Say, at DEBUG, that the kernels for any operator were found or made."""
    logger = _logger(_DEBUG)
    if logger is None:
        return
    from .._inspect import differences

    meta = found.entry.meta
    verb = "found" if found.origin == "disk" else "built"
    with suppress(Exception):  # as above
        logger.debug("%s %s in %.4f s, key %s", verb, differences.subject(meta), found.seconds, key)
        _debug(logger, found.origin, key, meta)
