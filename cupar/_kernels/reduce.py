"""Plans of reductions: one block, or a grid and one block for its partial results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .._ir import cpp
from .family import Facts, Family, Launch, PlanTuple, Shape, Storage, Value, i32, u64

if TYPE_CHECKING:
    from .._compile.specialisation import Specialisation

_SUBSCRIPTION = 5  # blocks in the grid for each that runs at once, as in CUB

_ITEMS, _OUT, _OP, _INIT = map(Value, ("d_in", "d_out", "op", "init"))


def _one_block(kernel: str, threads: str) -> Shape:
    return Shape(("n",), (Launch(kernel, 1, threads, (_ITEMS, _OUT, i32("n"), _OP, _INIT)),))


_TWO = Shape(
    ("n", "grid"),
    (
        Launch("cupar_reduce_tiles", "grid", "threads", (_ITEMS, Storage(), u64("n"), _OP)),
        Launch("cupar_reduce_partials", 1, "one_threads", (Storage(), _OUT, i32("grid"), _OP, _INIT)),
    ),
)

_SHAPES = {
    "tile": _one_block("cupar_reduce_tile", "one_threads"),
    "large tile": _one_block("cupar_reduce_large_tile", "large_threads"),
    "tiles": _TWO,
}


def _planner(facts: Facts) -> Callable[[int], PlanTuple]:
    threads, tile = facts["threads"], facts["threads"] * facts["items"]
    one, large = facts["one_threads"] * facts["one_items"], facts["large_threads"] * facts["large_items"]
    most = facts.occupancy("cupar_reduce_tiles", threads, 0) * facts["sms"] * _SUBSCRIPTION
    nbytes = most * facts["accum_size"]

    def plan(n: int) -> PlanTuple:
        if n <= one:
            return "tile", 0, (n,)
        if n <= large:
            return "large tile", 0, (n,)
        return "tiles", nbytes, (n, min(-(-n // tile), most))

    return plan


def _prelude(spec: Specialisation) -> str:
    accumulator = cpp.type_name(spec.operators[0][1].output)
    has_init = str(spec.option("init") is not None).lower()
    return f"using accum_t = {accumulator};\nconstexpr bool has_init = {has_init}, is_stable = true;"


REDUCE = Family(
    "reduce.cuh",
    ("threads", "items", "one_threads", "one_items", "large_threads", "large_items", "accum_size"),
    lambda spec: _SHAPES,
    _planner,
    _prelude,
)
