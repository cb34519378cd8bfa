"""Errors that users catch by their names in `cupar`, and others that several rooms raise."""

from __future__ import annotations

import os


class AbandonedError(RuntimeError):
    """The process ends, or who waited was interrupted, before this is built."""


class BuildError(RuntimeError):
    """A compiler failed; the message contains the compiler's."""

    __module__ = "cupar"


class VersionError(ImportError, ValueError):
    """A package is missing, or of a version for which cupar was not written.

    So it is for cuda-cccl, cuda-bindings, numba-cuda and numba when cupar builds, for PyTorch when
    `cupar.torch` is imported, and for JAX's XLA.
    """

    __module__ = "cupar"


class RefusedError(ValueError):
    """An entry or a bundle is not served; the message says why, as in ``is damaged``.

    `file` is the status of the file that was refused: another process may have put a good one in its place.
    """

    __module__ = "cupar"

    def __init__(self, why: str, file: os.stat_result | None = None) -> None:
        super().__init__(why)
        self.file = file
