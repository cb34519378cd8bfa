"""How far the result of a reduction is repeatable."""

from ..reduce import Determinism

__all__ = ["Determinism"]
