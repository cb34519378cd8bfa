"""Lines under the logger's name ``cupar``, for those who asked `logging` for them.

INFO has a line for each build, DEBUG says beside that what it differs in from the nearest entry: these are in
`_inspect.log`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logging import Logger


DEBUG, INFO = 10, 20  # logging's own numbers, without importing it


def logger(level: int) -> Logger | None:
    """Return the logger if anybody listens at this level.

    A hit does not pay for importing `logging`: without that import, no one listens.
    """
    logging = sys.modules.get("logging")
    if logging is None:
        return None
    found: Logger = logging.getLogger("cupar")
    return found if found.isEnabledFor(level) else None


def debug(message: str, *values: object) -> None:
    """Say something at DEBUG; the logger puts the values into the message if anybody listens."""
    listening = logger(DEBUG)
    if listening is not None:
        listening.debug(message, *values, stacklevel=2)


def info(message: str, *values: object) -> None:
    """Say something at INFO, in the same way."""
    listening = logger(INFO)
    if listening is not None:
        listening.info(message, *values, stacklevel=2)
