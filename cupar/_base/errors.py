"""Errors that users catch by their names in `cupar`, and that several rooms raise."""

from __future__ import annotations

__all__ = ["BuildError", "VersionError"]


class BuildError(RuntimeError):
    """A compiler refused what cupar gave it; the message holds the compiler's own."""

    __module__ = "cupar"


class VersionError(ImportError, ValueError):
    """cuda-cccl is missing, or of a version whose headers cupar does not know."""

    __module__ = "cupar"
