"""Functions of arrays in shards, described once: the call, which ranks make together, and its help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from .._base import device
from .._functions import libraries
from .._functions.calls import Work, given_back
from .._functions.described import Surface, written
from .engines import collective
from .engines import group as group_of

_SHARD = "array", "The shard of this rank, of one dimension. It may be empty."
SHARDS = Surface(
    "import numpy as np\n>>> from cupar.distributed import arrays",
    {
        "x": _SHARD,
        "keys": _SHARD,
        "x1": _SHARD,
        "x2": ("array", "The values to search for, of one dimension: the same on every rank."),
        "op": (
            "callable or OpKind, optional",
            "Combines two values, the first of which is that of earlier items. It must be associative.",
        ),
        "init": (
            "number or array of one element, optional",
            "Comes before all items, once. It decides the dtype as for `cupar.arrays.reduce`.",
        ),
        "commutative": ("bool, optional", "False: in the order of ranks, and of items on each."),
        "less": (
            "callable or OpKind, optional",
            "Whether one item comes before another; by default NumPy's order, NaN the last.",
        ),
        "k": ("int", "How many, at most as many as all shards have together."),
        "dtype": (
            "dtype, optional",
            "Of the result, in which items are combined; by default that of `init` or `x`. float16 and\n"
            "    bfloat16 are combined in float32.",
        ),
        "group": (
            "Group, ProcessGroup, mpi4py communicator, Comm or None",
            "As for `cupar.distributed.group`.",
        ),
    },
    "TypeError, ValueError\n    If an argument is not one of these, or ranks differ.\n"
    "GroupError\n    If another rank raised an error, or did not answer.",
    "arrays.{name}({items})",
    "It is an error if no shard has items.",
)
_TEMPLATE = """
def {name}({parameters}):
    def made(work, {shard}, group):
        return make(work, group, {arguments})

    return entered({name!r}, {shard!r}, {shard}, group, made)
"""


def sharded(**named: str) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a function of a `Group` and the operand of a shard, which ranks call together.

    The function that users call takes an array in place of the shard, and by name, in place of the group,
    what `cupar.distributed.group` takes. If one rank calls it with wrong arguments, the others are told, too.
    `named` is as for `described`.
    """

    def decorate(make: Callable[..., Any]) -> Any:
        texts = {"shard": [*inspect.signature(make).parameters][2]}
        names = {"entered": _entered}
        return collective(written(make, _TEMPLATE, names, named, SHARDS, own=2, of_call=["group"], **texts))

    return decorate


def _entered(called: str, name: str, x: Any, engine: Any, make: Callable[..., Any]) -> Any:
    """Call a function for a shard, which has one dimension; return arrays of its library."""
    found = group_of(engine)

    def by_library() -> Any:
        library = libraries.of(name, x)
        return device.using(True, inside, library) if library.on_cpu else inside(library)

    def inside(library: libraries.ArrayLibrary) -> Any:
        work = Work(library, None)
        given = work.operand(x, name)
        if given.ndim != 1:
            raise ValueError(f"{name}: expected a shard of one dimension, got shape {given.shape}")
        return given_back(make(work, given, found))

    return found.together(called, by_library)
