"""Numbers and errors in sentences."""

from __future__ import annotations

__all__ = ["counted", "message", "split"]

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


def split(text: str) -> list[str]:
    """Return what is between the commas of a text that are in no brackets; nothing of an empty one."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([<") - (character in ")]>")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [each.strip() for each in parts if each.strip()]
