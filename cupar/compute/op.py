"""Operators, by the names that ``cuda.compute.op`` has."""

from __future__ import annotations

from abc import ABC
from types import FunctionType
from typing import Any

from ..operators import OpKind, RawOp

__all__ = ["OpAdapter", "OpKind", "RawOp", "make_op_adapter"]


class OpAdapter(ABC):  # noqa: B024 - others are registered
    """The class of operators. Nothing is adapted here: algorithms take operators directly."""


for _kind in (OpKind, RawOp, FunctionType):
    OpAdapter.register(_kind)


def make_op_adapter(op: Any) -> Any:
    """Return an operator as it is; raise TypeError if it is neither a callable, an `OpKind` nor a `RawOp`."""
    if not isinstance(op, (OpKind, RawOp)) and not callable(op):
        raise TypeError(f"op: expected a function, an OpKind or a RawOp, got {op!r}")
    return op
