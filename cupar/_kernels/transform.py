"""Plans of transforms: one launch, whose tiles get smaller where there are few items."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import policies
from .family import Emit, Family, Launch, Plan, Properties, Shape, Value, i32, i64, members
from .tuning import Tunable, operator_types

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._ir.specialisation import Specialisation


def _inputs(spec: Specialisation) -> tuple[str, ...]:
    return tuple(argument.name for argument in spec.arguments if not argument.output)


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    parameters = (tuple(map(Value, _inputs(spec))), Value("d_out"), i64("n"), i32("tile"), Value("op"))
    return {
        "tiles": Shape(("n", "tile", "grid"), (Launch("cupar_transform", "grid", "threads", parameters),))
    }


def _planner(given: Properties) -> tuple[Plan, tuple[int, ...]]:
    row = given["threads"] * given["items"]
    at_once = given.resident("cupar_transform", given["threads"]) * row
    cached = policies.TRANSFORM_CACHED_BYTES // max(given["item_bytes"], 1)
    return _plan, (row, given["rows"], at_once, cached)


def _plan(facts: tuple[int, ...], n: int, emit: Emit) -> int:
    row, rows, at_once, cached = facts
    if n:
        tile = row * min(rows, -(-n // at_once)) if at_once < n <= cached else row
        emit(0, (n, tile, -(-n // tile)))
    return 0


def _default(spec: Specialisation) -> policies.TransformPolicy:
    return policies.TRANSFORM.get(spec.cc)


def _space(spec: Specialisation) -> Mapping[str, tuple[int, ...]]:
    with_iterators = not all(each.is_pointer for each in spec.arguments)
    return {
        "threads": (64, 128, 256, 512, 1024),
        "bytes_in_flight": (16, 32, 64, 128),
        "iterator_items": (1, 2, 4, 8) if with_iterators else (_default(spec).iterator_items,),
    }


_TUNABLE = Tunable("transform", policies.TransformPolicy, _default, operator_types, _space)


def _traits(spec: Specialisation) -> str:
    inputs = ", ".join(f"{name}_t" for name in _inputs(spec))
    return members(f"using inputs_t = cupar::inputs<{inputs}>;", **_TUNABLE.given(spec)._asdict())


TRANSFORM = Family(
    "transform/transform.cuh",
    ("threads", "items", "rows", "item_bytes"),
    ("tiles",),
    _shapes,
    _planner,
    _traits,
    tunable=_TUNABLE,
)
