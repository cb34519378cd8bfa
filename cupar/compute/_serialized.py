"""Algorithms of ``make_…`` functions as bytes."""

from typing import Any

from . import _blob
from ._algorithms import class_of  # type: ignore[attr-defined]  # whose stub has public names alone
from ._made import Made

__all__ = ["deserialize", "serialize"]


def serialize(algorithm: Any) -> bytes:
    """Return an algorithm of a ``make_…`` function as bytes, with its builds for all compute capabilities.

    Raises
    ------
    TypeError
        If it is not one.
    """
    if not isinstance(algorithm, Made):
        name = type(algorithm).__name__
        raise TypeError(f"{name} is not a serializable algorithm: expected what a make_… function returned")
    return algorithm.serialize()


def deserialize(blob: bytes) -> Any:
    """Return the algorithm that `serialize` made bytes of: needs no compiler and, until it is called, no GPU.

    It serves any number of threads. A call gives the operators again, for their state; one that does
    something else than that which was serialized is an error.

    Raises
    ------
    TypeError, ValueError
        If it is something else, damaged, or of a cupar with other kernels.

    Notes
    -----
    It holds code. Use what you would run. What was built for the CPU is for CPUs of the same kind alone.
    """
    name, options, builds = _blob.loads(blob)
    return class_of(name)(builds, options, is_restored=True)
