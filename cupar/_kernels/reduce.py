"""Plans of reductions: one block, or a grid and one block for its partial results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from .. import structs
from . import policies
from .family import (
    Emit,
    Family,
    Launch,
    Number,
    Plan,
    Properties,
    Shape,
    Storage,
    Value,
    accumulator,
    i32,
    i64,
    members,
    u64,
)
from .tuning import Tunable, combined_types

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_SUBSCRIPTION = 5  # blocks in the grid for each that runs at once, as in CUB
_SPREAD = 2  # tiles for each multiprocessor that small problems are cut into

_ITEMS, _OUT, _OP, _INIT = map(Value, ("d_in", "d_out", "op", "init"))


def _launch(grid: str | int, threads: str, partials: Storage | Number, n: str | int) -> Launch:
    parameters = (_ITEMS, _OUT, partials, i64(n), i32("tile"), _OP, _INIT)
    return Launch("cupar_reduce", grid, threads, parameters)


_NAMES = ("block", "large block", "grid")
_BLOCK, _LARGE, _GRID = range(3)

_NONE = u64(0)
_NUMBERS = ("n", "tile", "grid")
_BLOCKS = {
    "block": Shape(_NUMBERS, (_launch(1, "threads", _NONE, "n"),)),
    "large block": Shape(_NUMBERS, (_launch(1, "large_threads", _NONE, "n"),)),
}
_COMBINED = Shape(
    _NUMBERS,
    (
        _launch("grid", "threads", Storage(), "n"),
        Launch("cupar_reduce_partials", 1, "threads", (Storage(), _OUT, i64("grid"), _OP, _INIT)),
    ),
)
# A reduction of no items stores the initial value, to which the blocks then add theirs.
_ATOMIC = Shape(_NUMBERS, (_launch(1, "threads", _NONE, 0), _launch("grid", "threads", _NONE, "n")))

_ATOMIC_TYPES = frozenset(map(np.dtype, ("i4", "u4", "i8", "u8", "f2", "f4", "f8")))


def _is_stable(spec: Specialisation) -> bool:
    """Whether blocks leave their results to be combined; they do, too, what atomics cannot add."""
    target = next(argument for argument in spec.arguments if argument.output)
    is_free = spec.option("determinism") == "NOT_GUARANTEED"
    accumulator = spec.operators[0][1].output
    is_atomic = accumulator in _ATOMIC_TYPES or structs.is_bfloat16(accumulator)
    return not (is_free and target.is_pointer and is_atomic)


def _is_ordered(spec: Specialisation) -> bool:
    """Whether items are combined in their order."""
    return spec.option("commutative") is not None


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    return {**_BLOCKS, "grid": _COMBINED if _is_stable(spec) else _ATOMIC}


def _planner(given: Properties) -> tuple[Plan, tuple[int, ...]]:
    threads, rows, items, few = given["threads"], given["rows"], given["items"], given["small_rows"]
    blocks = given.resident("cupar_reduce", threads) * _SUBSCRIPTION
    spread = given["sms"] * _SPREAD * threads * items
    of_blocks = (given["large_items"], threads * few, given["large_threads"] * few)
    return _plan, (*of_blocks, threads, items, rows, few, spread, blocks, blocks * given["accum_size"])


def _plan(facts: tuple[int, ...], n: int, emit: Emit) -> int:
    large, block_tile, large_tile, threads, items, rows, few, spread, blocks, nbytes = facts
    if n <= block_tile * items:
        emit(_BLOCK, (n, block_tile, 1))
        return 0
    if n <= large:
        emit(_LARGE, (n, large_tile, 1))
        return 0
    wanted = -(-n // spread)
    tile = threads * (rows if wanted >= rows else min(few, wanted))
    emit(_GRID, (n, tile, min(blocks, -(-n // (tile * items)))))
    return nbytes


def _default(spec: Specialisation) -> policies.ReducePolicy:
    source = spec.arguments[0]
    nbytes = source.value.itemsize if source.is_pointer else 0
    return policies.REDUCE.get(spec.cc, "bytes" if nbytes == 1 else "")


def _space(spec: Specialisation) -> Mapping[str, tuple[int, ...]]:
    return {"threads": (128, 256, 512), "rows": (1, 2, 4, 8)}


def _scope(spec: Specialisation) -> dict[str, str]:
    order = "combined" if _is_stable(spec) else "in any order"
    return {**combined_types(spec), "order": "of the items" if _is_ordered(spec) else order}


_TUNABLE = Tunable("reduce", policies.ReducePolicy, _default, _scope, _space)


def _traits(spec: Specialisation) -> str:
    flags = {"has_init": spec.option("init") is not None, "is_stable": _is_stable(spec)}
    return members(accumulator(spec), **flags, is_ordered=_is_ordered(spec), **_TUNABLE.given(spec)._asdict())


REDUCE = Family(
    "reduce/reduce.cuh",
    ("threads", "items", "rows", "small_rows", "large_threads", "large_items", "accum_size"),
    _NAMES,
    _shapes,
    _planner,
    _traits,
    tunable=_TUNABLE,
)
