"""Numbers in sentences."""

from __future__ import annotations

__all__ = ["counted"]

_IRREGULAR = {"entry": "entries"}


def counted(number: float, noun: str) -> str:
    """Return a number of things, as in ``1 entry`` and ``2 entries``."""
    text = f"{number:g}" if isinstance(number, float) else str(number)
    return f"{text} {noun if number == 1 else _IRREGULAR.get(noun, f'{noun}s')}"
