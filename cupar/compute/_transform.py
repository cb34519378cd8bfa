"""Transforms as ``cuda.compute`` has them."""

from __future__ import annotations

from typing import Any

from ..transform import binary_transform as _binary_transform
from ..transform import unary_transform as _unary_transform
from ._made import Made

__all__ = ["binary_transform", "make_binary_transform", "make_unary_transform", "unary_transform"]


class _UnaryTransform(Made, factory=_unary_transform):
    """A transform of one array; see `make_unary_transform`."""

    def __call__(self, *, d_in: Any, d_out: Any, op: Any, num_items: int, stream: Any = None) -> None:
        """Transform `num_items` items."""
        self._for((d_in, d_out, op), op).run(d_in, d_out, num_items, stream)


class _BinaryTransform(Made, factory=_binary_transform):
    """A transform of two arrays; see `make_binary_transform`."""

    def __call__(
        self, *, d_in1: Any, d_in2: Any, d_out: Any, op: Any, num_items: int, stream: Any = None
    ) -> None:
        """Transform `num_items` pairs."""
        self._for((d_in1, d_in2, d_out, op), op).run(d_in1, d_in2, d_out, num_items, stream)


def make_unary_transform(
    *, d_in: Any, d_out: Any, op: Any, compute_capability: Any = None
) -> _UnaryTransform:
    """Return a transform of one array; see `cupar.unary_transform`."""
    return _UnaryTransform.make((d_in, d_out, op), op, compute_capability=compute_capability)  # type: ignore[no-any-return]


def make_binary_transform(
    *, d_in1: Any, d_in2: Any, d_out: Any, op: Any, compute_capability: Any = None
) -> _BinaryTransform:
    """Return a transform of two arrays; see `cupar.binary_transform`."""
    question = d_in1, d_in2, d_out, op
    return _BinaryTransform.make(question, op, compute_capability=compute_capability)  # type: ignore[no-any-return]


def unary_transform(*, d_in: Any, d_out: Any, op: Any, num_items: int, stream: Any = None) -> None:
    """Apply `op` to each of `num_items` items; see `cupar.unary_transform`."""
    _unary_transform(d_in, d_out, op).run(d_in, d_out, num_items, stream)


def binary_transform(
    *, d_in1: Any, d_in2: Any, d_out: Any, op: Any, num_items: int, stream: Any = None
) -> None:
    """Apply `op` to each of `num_items` pairs; see `cupar.binary_transform`."""
    _binary_transform(d_in1, d_in2, d_out, op).run(d_in1, d_in2, d_out, num_items, stream)
