"""Operators in a graph, and what stands on them: named by fingerprints, and sent to the workers.

No build is sent. A worker asks for it as every process does: its memory has it by the operator's fingerprint,
else its cache directory, bundles and shared store, else it builds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from cachetools import LRUCache
from dask.base import tokenize

from .._base import device
from .._base.bounded import Bounded, of_builds
from .._fingerprint import walk
from .._fleet.carry import Carry, KeyedCarry
from .._functions import operators
from .._ir.resolve import resolve
from ..operators import Op, OpKind, RawOp


class ShippedOperator:
    """An operator, with its fingerprint when the graph was made.

    Attributes
    ----------
    token : str
        The fingerprint, and the contents of captured arrays.
    """

    __slots__ = ("_on_cpu", "_op", "token")

    def __init__(self, op: Op, on_cpu: bool, token: str | None = None) -> None:
        self._op, self._on_cpu = op, on_cpu
        self.token = _token(op, on_cpu) if token is None else token

    def __dask_tokenize__(self) -> str:
        return self.token

    def __reduce__(self) -> Any:
        return ShippedOperator, (self._op, self._on_cpu, self.token)

    def op(self) -> Any:
        """Return the operator, if its fingerprint is that of the graph: one object for all tasks of a worker.

        Raises
        ------
        RuntimeError
            If something that it reads has changed, or if it is not the same on this worker.
        """
        if isinstance(self._op, OpKind):
            return self._op
        for op in (_known.get(self.token), self._op):
            if op is not None and _token(op, self._on_cpu) == self.token:
                _known[self.token] = op
                return op
        name = getattr(self._op, "__qualname__", self._op)
        raise RuntimeError(
            f"op: expected {name} as it was when the graph was made, got one that does "
            "something else: what it reads has changed, or this worker imports another version of it; "
            "make the graph again"
        )


@dataclass(frozen=True)
class ShippedCarry:
    """A reduction to records, by an operator on values of a dtype; with a key, of runs of equal ones."""

    op: ShippedOperator
    value: np.dtype[Any]
    key: np.dtype[Any] | None = None
    equal: ShippedOperator | None = None

    def __dask_tokenize__(self) -> Any:  # quicker than dask's own for data classes
        return self.op.token, self.value, self.key, self.equal and self.equal.token

    def carry(self) -> Any:
        """Return the `Carry` of values, or the `KeyedCarry`."""
        if self.key is None:
            return Carry(self.op.op(), self.value)
        equal = None if self.equal is None else self.equal.op()
        if equal is None and self.key.names is not None:
            equal = operators.equal_fields(len(self.key.names))
        return KeyedCarry(self.op.op(), self.value, self.key, equal)


@dataclass(frozen=True)
class ShippedOrder:
    """An order of items: by a comparison, or NumPy's."""

    less: ShippedOperator | None
    descending: bool

    def __dask_tokenize__(self) -> Any:
        return self.less and self.less.token, self.descending

    def op(self) -> Any:
        """Return the comparison, None for NumPy's order; it does not know of `descending`."""
        return None if self.less is None else self.less.op()


def _token(op: Any, on_cpu: bool) -> str:
    if isinstance(op, OpKind):
        return f"OpKind.{op.name}"
    found = device.using(on_cpu, walk.fingerprint, op)
    held = [each.of(getattr(op, "py_func", op)) for each in found.captures]
    return found.digest.hex() + (f"-{tokenize(*held)}" if held else "")


# Operators by their tokens: each task brings an object of its own, and factories know the first.
_known: Bounded[Any] = of_builds(Bounded(partial(LRUCache, 256)))


def shipped(
    name: str, op: Any, inputs: tuple[np.dtype[Any], ...], output: np.dtype[Any], on_cpu: bool
) -> ShippedOperator:
    """Return an operator for a graph; nothing is compiled.

    Raises
    ------
    TypeError
        If it is no operator for these types.
    """
    if isinstance(op, RawOp):
        raise TypeError(
            f"{name}: expected a function or an OpKind, since another function calls it, got a RawOp"
        )
    device.using(on_cpu, resolve, op, inputs, output, name)
    return ShippedOperator(op, on_cpu)
