"""Errors that users catch by their names in `cupar`, and others that several rooms raise."""

from __future__ import annotations

import os
from collections.abc import Mapping


class ArgumentError(Exception):
    """An error of an argument, which is a TypeError or ValueError, too.

    Attributes
    ----------
    parameter : str
        The argument's parameter, or a part of it, as in ``xs[1]``. It is empty if the error was made of its
        text alone, as by libraries that raise errors of other processes anew.
    said : str
        The message without it.
    """

    parameter: str = ""
    said: str = ""

    def __init__(self, *words: str) -> None:
        self.args: tuple[str, ...] = (": ".join(words),)  # which NumPy's AxisError does not set
        super().__init__(*self.args)
        if len(words) > 1:
            self.parameter, self.said = words

    def __str__(self) -> str:
        return str(self.args[0])

    def rename(self, names: Mapping[str, str], *, everywhere: bool = False) -> None:
        """Give the parameter its name in the function that was called; `everywhere`: also in the message."""
        name, bracket, index = self.parameter.partition("[")
        if not name:
            return
        self.parameter = f"{names.get(name, name)}{bracket}{index}"
        for other, here in names.items() if everywhere else ():
            self.said = self.said.replace(other, here)
        self.args = (f"{self.parameter}: {self.said}",)


class ArgumentTypeError(ArgumentError, TypeError):
    """Raised for an argument of a wrong type; `parameter` is its name."""

    __module__ = "cupar"


class ArgumentValueError(ArgumentError, ValueError):
    """Raised for an argument of a wrong value; `parameter` is its name."""

    __module__ = "cupar"


def of_parameter(parameter: str, error: Exception) -> ArgumentError:
    """Return an error as one of a parameter's argument; one that is no ValueError is a TypeError then."""
    kind = ArgumentValueError if isinstance(error, ValueError) else ArgumentTypeError
    return (type(error) if isinstance(error, ArgumentError) else kind)(parameter, str(error))


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
