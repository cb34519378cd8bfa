"""Graphs: tasks named by their content, and dask arrays of their results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, TypeVar

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from .. import structs
from .._functions.axes import axis_of
from .._functions.calls import Operand

T = TypeVar("T")

Key = tuple[Any, ...]
Index = tuple[int, ...]  # of a block

EVERY = 16  # records that one task combines


def taken(name: str, x: Any) -> np.dtype[Any]:
    """Return the dtype of a dask array, as steps have it; TypeError for other objects, unsupported dtypes."""
    if not isinstance(x, da.Array):
        raise TypeError(
            f"{name}: expected a dask array, got {type(x).__name__}; dask.array.from_array makes one"
        )
    if isinstance(x._meta, np.ndarray) and type(x._meta) is not np.ndarray:  # masked ones, as matrices, too
        raise TypeError(f"{name}: expected blocks of NumPy's or CuPy's arrays, got {type(x._meta).__name__}")
    return structs.closed(structs.normal(name, x.dtype))


def items_of(x: da.Array) -> Operand:
    """Return no items, of the dtype of an array's, for what functions of `cupar.arrays` check."""
    return Operand(None, np.empty(0, taken("x", x)), (0,))


def on_cpu(x: da.Array) -> bool:
    """Whether the blocks of an array are NumPy's."""
    return isinstance(x._meta, np.ndarray)


def flat(name: str, x: da.Array) -> da.Array:
    """Return an array as one of one dimension, in C's order."""
    if x.ndim == 1:
        return x
    if any(math.isnan(each) for each in x.shape):
        raise ValueError(
            f"{name}: expected one dimension, or known chunks, got {x.ndim} dimensions with unknown chunks"
        )
    # Dask's reshape is wrong for blocks without items, and needs one block of an array without items.
    chunks = tuple(tuple(n for n in each if n) for each in x.chunks) if x.size else x.shape
    return x.rechunk(chunks).reshape(-1)


def along_axis(x: da.Array, axis: Any) -> tuple[da.Array, int]:
    """Return an array and an axis of it; None: all items in C's order, in one dimension."""
    return (flat("x", x), 0) if axis is None else (x, axis_of(axis, x.ndim))


def rows_of(x: da.Array, axes: Sequence[int]) -> Iterator[tuple[Index, list[Index]]]:
    """Yield the indices of all blocks along some axes, and before them that of their result, with 0 there."""
    blocks = [*enumerate(x.numblocks)]
    for outer in np.ndindex(*(1 if i in axes else n for i, n in blocks)):
        yield outer, [*product(*(range(n) if i in axes else (outer[i],) for i, n in blocks))]


def without(parts: Sequence[T], axes: Sequence[int], ones: Sequence[int], one: T) -> tuple[T, ...]:
    """Return the parts of all axes but some, with `one` inserted for the axes `ones` of the result."""
    found = [each for i, each in enumerate(parts) if i not in axes]
    for i in ones:
        found.insert(i, one)
    return tuple(found)


class Tasks:
    """The tasks of one call. Their names follow from the function, its arguments and the operators' tokens.

    Parameters
    ----------
    kind : str
        The name of the function.
    inputs : sequence of dask arrays
    *options
        Whatever else the result depends on.
    """

    def __init__(self, kind: str, inputs: Sequence[da.Array], *options: Any) -> None:
        self.name = f"cupar-{kind}-{tokenize([each.name for each in inputs], *options)}"
        self._inputs, self._tasks = inputs, dict[Key, Any]()

    def add(self, part: str, index: Sequence[int], function: Callable[..., Any], *arguments: Any) -> Key:
        """Add a task, and return its key, for arguments of others."""
        key = (f"{self.name}-{part}", *index)
        self._tasks[key] = (function, *arguments)
        return key

    def tree(
        self, part: str, index: Sequence[int], keys: list[Key], combine: Callable[..., Any], *arguments: Any
    ) -> list[Key]:
        """Combine neighbours, until one more task can combine all that are left."""
        level = 0
        while len(keys) > EVERY:
            level += 1
            keys = [
                self.add(f"{part}{level}", (*index, i), combine, keys[i : i + EVERY], *arguments)
                for i in range(0, len(keys), EVERY)
            ]
        return keys

    def array(
        self,
        part: str,
        results: Mapping[Any, Any],
        chunks: Any,
        dtype: np.dtype[Any],
        direct: bool = False,
    ) -> da.Array:
        """Return a dask array, whose blocks are the results of tasks, given by their indices.

        `direct`: besides results of other tasks, these take blocks of the inputs.
        """
        name = f"{self.name}-{part}"
        below = HighLevelGraph.merge(*(each.dask for each in self._inputs))
        layers, needed = dict(below.layers), dict(below.dependencies)
        inputs, others = {each.name for each in self._inputs}, set[str]()
        if self._tasks:
            layers[self.name], needed[self.name], others = self._tasks, inputs, {self.name}
        layers[name] = {(name, *index): task for index, task in results.items()}
        needed[name] = others | inputs if direct or not others else others
        # An array of NumPy's or CuPy's, which makes ones of structs as views alone.
        nbytes = 0 if chunks else dtype.itemsize
        meta = type(self._inputs[0]._meta)((nbytes,), np.uint8).view(dtype).reshape((0,) * len(chunks))
        return da.Array(HighLevelGraph(layers, needed), name, chunks, meta=meta)
