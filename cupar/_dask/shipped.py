"""An operator in a graph: named by its fingerprint, and sent to the workers.

No build is sent. A worker asks for it as every process does: its memory has it by the operator's fingerprint,
else its cache directory, bundles and shared store, else it builds.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from cachetools import LRUCache
from dask.base import tokenize

from .._base import device
from .._base.bounded import Bounded
from .._fingerprint import walk
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

    def __init__(self, op: Op, on_cpu: bool) -> None:
        self._op, self._on_cpu = op, on_cpu
        self.token = _token(op, on_cpu)

    def __dask_tokenize__(self) -> str:
        return self.token

    def __reduce__(self) -> Any:
        return _arrived, (self._op, self._on_cpu, self.token)

    def op(self) -> Any:
        """Return the operator, if its fingerprint is that of the graph.

        Raises
        ------
        RuntimeError
            If something that it reads has changed, or if it is not the same on this worker.
        """
        if not isinstance(self._op, OpKind) and _token(self._op, self._on_cpu) != self.token:
            name = getattr(self._op, "__qualname__", self._op)
            raise RuntimeError(
                f"op: expected {name} as it was when the graph was made, got one that does "
                "something else: what it reads has changed, or this worker imports another version of it; "
                "make the graph again"
            )
        return self._op


def _token(op: Any, on_cpu: bool) -> str:
    if isinstance(op, OpKind):
        return f"OpKind.{op.name}"
    found = device.using(on_cpu, walk.fingerprint, op)
    held = [each.of(getattr(op, "py_func", op)) for each in found.captures]
    return found.digest.hex() + (f"-{tokenize(*held)}" if held else "")


# By their tokens, those that came with tasks: all tasks of a worker have one object, which factories know.
_here: Bounded[ShippedOperator] = Bounded(partial(LRUCache, 256))


def _arrived(op: Any, on_cpu: bool, token: str) -> ShippedOperator:
    found = _here.get(token)
    if found is None:
        found = ShippedOperator.__new__(ShippedOperator)
        found._op, found._on_cpu, found.token = op, on_cpu, token
        _here[token] = found
    return found


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
