"""Settings of the cache in the environment, and paths as users write them.

`cupar._cache` lists the variables. One that is not written as it should be costs a warning.
"""

from __future__ import annotations

import math
import os
import re
from contextlib import suppress
from pathlib import Path

from .._base.warnings import warn_once
from .._base.words import OFF, counted

# Unless CUPAR_CACHE_SIZE, CUPAR_LOCK_TIMEOUT and CUPAR_SHARED_TIMEOUT say otherwise: bytes, seconds, seconds.
DEFAULT_SIZE = 2 << 30
LOCK_TIMEOUT = 120.0
SHARED_TIMEOUT = 5.0

_SIZE = r"([0-9]{1,18})\s*([KMGT]?)(?:I?B)?"


def directory() -> Path | None:
    """Return the user's directory; None if it is switched off, or if there is no home for it."""
    if os.environ.get("CUPAR_CACHE", "").strip().lower() in OFF:
        return None
    named = os.environ.get("CUPAR_CACHE_DIR")
    try:
        if named:
            return _absolute(Path(named).expanduser())
        from platformdirs import user_cache_dir  # 3 ms, spared where the directory is named

        root = Path(user_cache_dir("cupar", appauthor=False))
        if root.is_absolute():
            return root
    except RuntimeError:  # from expanduser
        pass
    warn_once(
        "no home",
        "cupar finds no home directory for its cache, so builds will not be kept for later processes. "
        "Name a directory in CUPAR_CACHE_DIR, or set CUPAR_CACHE=0.",
    )
    return None


def limit_bytes() -> int:
    """Return the limit on the user's directory."""
    text = os.environ.get("CUPAR_CACHE_SIZE", "").strip()
    match = re.fullmatch(_SIZE, text, re.IGNORECASE | re.ASCII) if text else None
    if match is not None:
        return int(match[1]) << 10 * " KMGT".index(match[2].upper() or " ")
    if text:
        _warn_invalid(
            "CUPAR_CACHE_SIZE", text, "a number of bytes such as 500M or 2G", counted(DEFAULT_SIZE, "byte")
        )
    return DEFAULT_SIZE


def lock_timeout() -> float:
    """Return the seconds that one call waits for other processes."""
    return _seconds("CUPAR_LOCK_TIMEOUT", LOCK_TIMEOUT)


def shared_timeout() -> float:
    """Return the seconds to wait for an answer of the shared store."""
    return _seconds("CUPAR_SHARED_TIMEOUT", SHARED_TIMEOUT)


def _seconds(name: str, default: float) -> float:
    text = os.environ.get(name, "").strip()
    if text:
        with suppress(ValueError):
            seconds = float(text)
            if seconds >= 0 and not math.isnan(seconds):
                return seconds
        _warn_invalid(name, text, "a number of seconds such as 60", counted(default, "second"))
    return default


def _warn_invalid(name: str, text: str, expected: str, default: str) -> None:
    warn_once((name, text), f"{name} is {text!r} and should be {expected}. cupar uses {default}.")


def signing_key() -> bytes | None:
    """Return the secret with which entries that others could have written are signed, None without one.

    Raise ValueError if it is empty, as where a secret of CI did not arrive: anybody could sign with that.
    """
    text = os.environ.get("CUPAR_SIGNING_KEY")
    if text == "":
        raise ValueError(
            "CUPAR_SIGNING_KEY is empty; set it to a secret, or unset it to do without signatures"
        )
    return None if text is None else text.encode("utf-8", "surrogateescape")


def path_named(parameter: str, path: str | os.PathLike[str]) -> Path:
    """Return the absolute path that a user has named; raise TypeError or ValueError if it cannot be one."""
    try:
        text = os.fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise TypeError(f"{parameter}: expected a path, as str or os.PathLike, got {path!r}")
    if not text or "\0" in text:
        raise ValueError(f"{parameter}: expected the name of a file or directory, got {text!r}")
    return expanded(text)


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return an absolute path; ``~`` of an unknown user stays as it is, and is not found."""
    found = Path(path)
    with suppress(RuntimeError):
        found = found.expanduser()
    return _absolute(found)


def _absolute(path: Path) -> Path:
    """Return an absolute path; one in a working directory that is gone stays as it is, and is not found."""
    try:
        return path.absolute()
    except OSError:
        return path
