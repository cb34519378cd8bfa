"""Errors that users catch by their names in `cupar`, and that several rooms raise."""

from __future__ import annotations

__all__ = ["BuildError"]


class BuildError(RuntimeError):
    """A compiler refused what cupar gave it; the message holds the compiler's own."""

    __module__ = "cupar"
