"""Numbers and errors in sentences."""

from __future__ import annotations

import time

OFF = frozenset(("0", "off", "false", "no"))  # how variables of the environment switch something off
NOTHING_ASKED = "nothing was asked for"
_IRREGULAR = {"entry": "entries"}


def counted(number: float, noun: str) -> str:
    """Return a number of things, as in ``1 entry`` and ``2 entries``."""
    text = f"{number:g}" if isinstance(number, float) else str(number)
    return f"{text} {noun if number == 1 else _IRREGULAR.get(noun, f'{noun}s')}"


def message(error: Exception) -> str:
    """Return an exception's message, with its type unless that says nothing that the message does not."""
    text = str(error).strip()
    plain = isinstance(error, (TypeError, ValueError, RuntimeError, OSError)) and text
    return text if plain else f"{type(error).__name__}: {text}".removesuffix(": ")


def size_text(size: float) -> str:
    """Return a number of bytes for a person, as in ``2.1 MiB``."""
    if size == 1:
        return "1 byte"
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    place = 0
    while size >= 1024 and place < len(units) - 1:
        size, place = size / 1024, place + 1
    return f"{size:.{min(place, 1)}f} {units[place]}"


def seconds_text(seconds: float) -> str:
    """Return a duration for a person, as in ``1.25 s`` and ``0.4 ms``."""
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{1e3 * seconds:.1f} ms"


def date_text(seconds: float | None) -> str:
    """Return a time for a person, in local time; empty if it is not known."""
    return "" if seconds is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def split(text: str) -> list[str]:
    """Split a text at commas outside of brackets; an empty text has no parts."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([<") - (character in ")]>")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [each.strip() for each in parts if each.strip()]
