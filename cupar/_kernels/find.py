"""Plans of searches for the first match: one block, or a grid whose blocks publish their results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from . import policies
from .family import Emit, Family, Launch, Plan, Properties, Shape, Storage, Value, i64, members, u64
from .tuning import Tunable, operator_types

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_NAMES = ("block", "grid")
_BLOCK, _GRID = range(2)
_BLOCK_TILES = 4  # that one block takes: a grid needs a launch more
_WORDS = 2  # of 8 bytes, of the state

_ITEMS, _OUT, _COND = map(Value, ("d_in", "d_out", "cond"))
_SHAPES = {
    "block": Shape(("n",), (Launch("cupar_find", 1, "threads", (_ITEMS, _OUT, u64(0), i64("n"), _COND)),)),
    "grid": Shape(
        ("n", "grid"),
        (
            Launch("cupar_find_init", 1, _WORDS, (Storage(),)),
            Launch("cupar_find", "grid", "threads", (_ITEMS, _OUT, Storage(), i64("n"), _COND)),
        ),
    ),
}


def _planner(given: Properties) -> tuple[Plan, tuple[int, ...]]:
    return _plan, (given["tile"], given.resident("cupar_find", given["threads"]))


def _plan(facts: tuple[int, ...], n: int, emit: Emit) -> int:
    tile, at_once = facts
    if n <= tile * _BLOCK_TILES:
        emit(_BLOCK, (n,))
        return 0
    # Where an array does not begin with a whole vector, there is a tile more, of the block whose turn it is.
    emit(_GRID, (n, min(at_once, -(-n // tile))))
    return 8 * _WORDS


def _default(spec: Specialisation) -> policies.FindPolicy:
    source = spec.arguments[0]
    is_bytes = source.is_pointer and source.value.itemsize == 1
    return policies.FIND.get(spec.cc, "bytes" if is_bytes else "")


def _space(spec: Specialisation) -> Mapping[str, tuple[int, ...]]:
    return {"threads": (128, 256, 512), "rows": (1, 2, 4, 8)}


_TUNABLE = Tunable("find", policies.FindPolicy, _default, operator_types, _space)


def _traits(spec: Specialisation) -> str:
    return members(is_minus_one=spec.option("none") is not None, **_TUNABLE.given(spec)._asdict())


FIND = Family(
    "find/find.cuh",
    ("threads", "tile"),
    _NAMES,
    lambda spec: _SHAPES,
    _planner,
    _traits,
    tunable=_TUNABLE,
)
