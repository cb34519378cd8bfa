"""Iterators, by the names and parameters that ``cuda.compute.iterators`` has; they are cupar's own."""

from __future__ import annotations

from abc import ABC
from collections.abc import Hashable
from typing import Any

import numpy as np

from .. import iterators, structs
from .._ir.iterator import Iterator
from ..operators import Op
from . import types

__all__ = ["CacheModifiedInputIterator", "ConstantIterator", "CountingIterator", "DiscardIterator"]
__all__ += ["IteratorBase", "PermutationIterator", "ReverseIterator", "ShuffleIterator", "TransformIterator"]
__all__ += ["TransformOutputIterator", "ZipIterator"]


class IteratorBase(ABC):  # noqa: B024 - others are registered
    """What iterators are instances of. There are no others than those of this module."""

    def __init__(self, *args: Any, **named: Any) -> None:
        raise TypeError(
            f"{type(self).__name__}: iterators in C++ of one's own are not supported: a TransformIterator "
            "over a CountingIterator calls any operator, a RawOp among them"
        )


IteratorBase.register(Iterator)


class _Iterator(Iterator):
    """What iterators here have beside what cupar's have."""

    @property
    def kind(self) -> Hashable:
        """The key of iterators that share builds: types and operators, but no values."""
        return self.node

    @property
    def value_type(self) -> types.TypeDescriptor:
        """The type of the items."""
        return types.from_numpy_dtype(self.dtype)


class CacheModifiedInputIterator(iterators.CacheModifiedInputIterator, _Iterator):
    """Reads an array with a cache operator; see `cupar.CacheModifiedInputIterator`."""


class ConstantIterator(iterators.ConstantIterator, _Iterator):
    """Yields one value, which may be in an array; see `cupar.ConstantIterator`."""

    def __init__(self, value: Any) -> None:
        super().__init__(_first(value))


class CountingIterator(iterators.CountingIterator, _Iterator):
    """Counts from `start`, which may be in an array; see `cupar.CountingIterator`."""

    def __init__(self, start: Any) -> None:
        super().__init__(_first(start))


class DiscardIterator(iterators.DiscardIterator, _Iterator):
    """Keeps nothing; see `cupar.DiscardIterator`."""

    def __init__(self, reference_iterator: Any = None) -> None:
        super().__init__(np.uint8 if reference_iterator is None else reference_iterator)


class PermutationIterator(iterators.PermutationIterator, _Iterator):
    """Reads or writes ``values[indices[i]]``; see `cupar.PermutationIterator`."""


class ReverseIterator(iterators.ReverseIterator, _Iterator):
    """Goes backwards; see `cupar.ReverseIterator`."""


class ShuffleIterator(iterators.ShuffleIterator, _Iterator):
    """Yields numbers in an order that looks random; see `cupar.ShuffleIterator`."""


class TransformIterator(_Iterator):
    """Applies an operator to items read or, with ``is_input=False``, to items written.

    See `cupar.TransformIterator` and `cupar.TransformOutputIterator`.
    """

    def __init__(
        self, underlying: Any, transform_op: Op, value_type: Any = None, is_input: bool = True
    ) -> None:
        cls = iterators.TransformIterator if is_input else iterators.TransformOutputIterator
        if value_type is None:
            value_type = _annotated(transform_op, is_input)
        made: Iterator = cls(underlying, transform_op, types.as_dtype(value_type))
        super().__init__(made.node, made.leaves)


class TransformOutputIterator(TransformIterator):
    """Applies an operator to items written; see `cupar.TransformOutputIterator`."""

    def __init__(self, underlying: Any, transform_op: Op, output_value_type: Any = None) -> None:
        super().__init__(underlying, transform_op, output_value_type, is_input=False)


class ZipIterator(iterators.ZipIterator, _Iterator):
    """Yields structs of the items of several iterators; see `cupar.ZipIterator`."""


def _first(value: Any) -> Any:
    """Return the one value of what NumPy makes an array of, and of a number or struct itself."""
    if isinstance(value, (np.generic, int, float, complex)) or structs.dtype_of_value(value) is not None:
        return value
    found = np.array(value).reshape(-1)
    return found[0] if found.size else value


def _annotated(op: Any, is_input: bool) -> Any:
    """Return the type that a function's annotation says, if it is one of this package's; else None."""
    hint = iterators.annotation(op, "return" if is_input else None)
    return hint if isinstance(hint, types.TypeDescriptor) else None
