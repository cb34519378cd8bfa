"""Plans of binary searches: a thread for each value, tiles of values, or a tree of samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from . import policies
from .family import Facts, Family, Launch, Number, Plan, Shape, Storage, Value, ceil_div, u64
from .tuning import Tunable, operator_class, types

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

# Where it was quickest to change from one way to another, measured on an H200 with float32.
_FEW_VALUES = 1 << 15  # up to which what counts is the time of one search
_MANY_VALUES = 1 << 17  # from which on there are tiles enough for the whole GPU
_ITEMS_FOR_VALUE = 256  # at most, for whose samples a tree is worth making

_SAMPLE_THREADS = 256
_MOST_SAMPLES = 2**31 - 1  # as their places have 32 bits

_DATA = (Value("d_data"), u64("items"))
_VALUES = (Value("d_values"), u64("values"))
_OUT, _COMP = Value("d_out"), Value("comp")


def _tiles(bounds: Storage | Number) -> Launch:
    return Launch("cupar_search_tiles", "tiles", "tile_threads", (*_DATA, *_VALUES, _OUT, bounds, _COMP))


_EACH = Shape(
    ("items", "values", "grid"),
    (Launch("cupar_search_each", "grid", "each_threads", (*_DATA, *_VALUES, _OUT, _COMP)),),
)
_TILES = Shape(("items", "values", "tiles"), (_tiles(u64(0)),))
_BOUNDS = Shape(
    ("items", "values", "tiles", "grid"),
    (
        Launch(
            "cupar_search_bounds", "grid", "each_threads", (*_DATA, *_VALUES, u64("tiles"), Storage(), _COMP)
        ),
        _tiles(Storage()),
    ),
)
_TREE = Shape(
    ("items", "values", "sample_grid", "grid"),
    (
        Launch("cupar_search_sample", "sample_grid", _SAMPLE_THREADS, (*_DATA, Storage())),
        Launch("cupar_search_tree", "grid", "tree_threads", (*_DATA, Storage(), *_VALUES, _OUT, _COMP)),
    ),
)


def _default(spec: Specialisation) -> policies.Search:
    nbytes = spec.arguments[0].value.itemsize
    table = policies.SEARCH
    return table.find(spec.cc, 1 << (nbytes - 1).bit_length()) or table.get(spec.cc, 0)


def _space(spec: Specialisation) -> Mapping[str, tuple[int, ...]]:
    default, is_sorted = _default(spec), bool(spec.option("values_sorted"))
    tree = default.fanout > 0 and not is_sorted
    return {
        "tile_threads": (64, 128, 256),
        "tile_blocks": (2, 4, 8) if is_sorted else (default.tile_blocks,),
        "tile_values": (4, 8, 16, 32) if is_sorted else (default.tile_values,),
        "staged_bytes": (4096, 8192, 16384, 32768) if is_sorted else (default.staged_bytes,),
        "tree_threads": (128, 256, 512) if tree else (default.tree_threads,),
        "tree_blocks": (1, 2, 3, 4) if tree else (default.tree_blocks,),
        "fanout": (8, 16, 32) if tree else (default.fanout,),
        "top_bytes": (8192, 16384, 32768) if tree else (default.top_bytes,),
    }


def _fits(spec: Specialisation, policy: policies.Search) -> bool:
    # What a thread keeps for all of its values has to fit into registers that so many blocks leave it.
    is_small = (
        policy.tile_threads * policy.tile_blocks <= 1024 and policy.tree_threads * policy.tree_blocks <= 2048
    )
    # Four lanes read a node together, 16 bytes at a time at most.
    return is_small and policy.fanout * spec.arguments[0].value.itemsize <= 256


def _facts_of(spec: Specialisation) -> dict[str, str]:
    order = "sorted" if spec.option("values_sorted") else "in any order"
    return {**types(spec), "values": order, "operator": operator_class(spec.operators[0][1])}


_TUNABLE = Tunable("search", policies.Search, _default, _facts_of, _space, _fits)


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    shapes = {"each": _EACH, "tiles": _TILES}
    if spec.option("values_sorted"):
        return {**shapes, "bounds": _BOUNDS}
    return {**shapes, "tree": _TREE} if _TUNABLE.given(spec).fanout else shapes


def _traits(spec: Specialisation) -> str:
    policy, is_sorted = _TUNABLE.given(spec), bool(spec.option("values_sorted"))
    constants = {"few_values": _FEW_VALUES, **policy._asdict()}
    lines = [f"static constexpr int {name} = {value};" for name, value in constants.items()]
    flags = {"is_upper": spec.algorithm == "upper_bound", "values_sorted": is_sorted}
    lines += [f"static constexpr bool {name} = {str(value).lower()};" for name, value in flags.items()]
    return "\n".join(lines)


def _planner(facts: Facts) -> Callable[[tuple[int, int]], Plan]:
    each, tile, staged = facts["each_threads"], facts["tile"], facts["staged"]
    is_sorted, fanout = facts["values_sorted"], facts["fanout"]
    most = 0
    if fanout and not is_sorted:
        most = facts.occupancy("cupar_search_tree", facts["tree_threads"], 0) * facts["sms"]

    def plan(problem: tuple[int, int]) -> Plan:
        items, values = problem
        if not values:
            return Plan("", 0)
        tiles, samples = ceil_div(values, tile), ceil_div(items + fanout, fanout or 1)
        if values >= _MANY_VALUES and items:
            if items <= staged:
                return Plan("tiles", 0, (items, values, tiles))
            if is_sorted:
                return Plan("bounds", 8 * (tiles + 1), (items, values, tiles, ceil_div(tiles + 1, each)))
            if most and items <= values * _ITEMS_FOR_VALUE and samples <= _MOST_SAMPLES:
                nbytes = facts["item_size"] * _items_of_tree(samples, fanout, facts["top"])
                grid = min(most, ceil_div(values, facts["tree_threads"]))
                return Plan("tree", nbytes, (items, values, ceil_div(samples, _SAMPLE_THREADS), grid))
        return Plan("each", 0, (items, values, ceil_div(values, each)))

    return plan


def _items_of_tree(samples: int, fanout: int, top: int) -> int:
    """Return how many items a tree has: two nodes, and whole levels until one fits into shared memory."""
    items, size = 2 * fanout, samples
    while True:
        nodes = ceil_div(size, fanout)
        items += nodes * fanout
        if size <= top:
            return items
        size = nodes


SEARCH = Family(
    "search/search.cuh",
    (
        "item_size",
        "values_sorted",
        "each_threads",
        "tile_threads",
        "tile",
        "staged",
        "fanout",
        "tree_threads",
        "top",
    ),
    _shapes,
    _planner,
    _traits,
    tunable=_TUNABLE,
)
