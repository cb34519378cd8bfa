"""Plans of binary searches: a thread for each value, tiles of values, or a tree of samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

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
    ceil_div,
    helper,
    members,
    u64,
)
from .tuning import Tunable, operator_types

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

# Where it was quickest to change from one way to another, measured on an H200 with float32.
_FEW_VALUES = 1 << 15  # up to which what counts is the time of one search
_MANY_VALUES = 1 << 17  # from which on there are tiles enough for the whole GPU
_ITEMS_FOR_VALUE = 256  # at most, for whose samples a tree is worth making

_SAMPLE_THREADS = 256
_MOST_SAMPLES = 2**31 - 1  # as their places have 32 bits

_NAMES = ("each", "tiles", "bounds", "tree")
_EACH, _TILES, _BOUNDS, _TREE = range(4)

_DATA = (Value("d_data"), u64("items"))
_VALUES = (Value("d_values"), u64("values"))
_OUT, _COMP = Value("d_out"), Value("comp")


def _tiles(bounds: Storage | Number) -> Launch:
    return Launch("cupar_search_tiles", "tiles", "tile_threads", (*_DATA, *_VALUES, _OUT, bounds, _COMP))


_OF_EACH = Shape(
    ("items", "values", "grid"),
    (Launch("cupar_search_each", "grid", "each_threads", (*_DATA, *_VALUES, _OUT, _COMP)),),
)
_OF_TILES = Shape(("items", "values", "tiles"), (_tiles(u64(0)),))
_OF_BOUNDS = Shape(
    ("items", "values", "tiles", "grid"),
    (
        Launch(
            "cupar_search_bounds", "grid", "each_threads", (*_DATA, *_VALUES, u64("tiles"), Storage(), _COMP)
        ),
        _tiles(Storage()),
    ),
)
_OF_TREE = Shape(
    ("items", "values", "sample_grid", "grid"),
    (
        Launch("cupar_search_sample", "sample_grid", _SAMPLE_THREADS, (*_DATA, Storage())),
        Launch("cupar_search_tree", "grid", "tree_threads", (*_DATA, Storage(), *_VALUES, _OUT, _COMP)),
    ),
)


def _default(spec: Specialisation) -> policies.SearchPolicy:
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


def _fits(spec: Specialisation, policy: policies.SearchPolicy) -> bool:
    # A thread's state for all of its values has to fit into the registers that this many blocks leave it.
    is_small = (
        policy.tile_threads * policy.tile_blocks <= 1024 and policy.tree_threads * policy.tree_blocks <= 2048
    )
    # Four lanes read a node together, 16 bytes at a time at most.
    return is_small and policy.fanout * spec.arguments[0].value.itemsize <= 256


def _scope(spec: Specialisation) -> dict[str, str]:
    order = "sorted" if spec.option("values_sorted") else "in any order"
    return {**operator_types(spec), "values": order}


_TUNABLE = Tunable("search", policies.SearchPolicy, _default, _scope, _space, _fits)


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    shapes = {"each": _OF_EACH, "tiles": _OF_TILES}
    if spec.option("values_sorted"):
        return {**shapes, "bounds": _OF_BOUNDS}
    return {**shapes, "tree": _OF_TREE} if _TUNABLE.given(spec).fanout else shapes


def _traits(spec: Specialisation) -> str:
    flags = {"is_upper": spec.algorithm == "upper_bound", "values_sorted": bool(spec.option("values_sorted"))}
    return members(few_values=_FEW_VALUES, **flags, **_TUNABLE.given(spec)._asdict())


class _SearchFacts(NamedTuple):
    each: int  # values of a block, each by a thread
    tile: int
    staged: int  # items that fit into shared memory
    is_sorted: int
    fanout: int
    top: int
    item_size: int
    tree_threads: int
    tree_blocks: int  # resident ones; 0: there is no tree


def _planner(given: Properties) -> tuple[Plan, _SearchFacts]:
    is_sorted = given["values_sorted"]
    has_tree = given["fanout"] and not is_sorted
    return _plan, given.facts(
        _SearchFacts,
        each=given["each_threads"],
        is_sorted=is_sorted,
        tree_blocks=given.resident("cupar_search_tree", given["tree_threads"]) if has_tree else 0,
    )


def _plan(facts: _SearchFacts, problem: tuple[int, int], emit: Emit) -> int:
    items, values = problem
    if values == 0:
        return 0
    if values >= _MANY_VALUES and items > 0:
        tiles = -(-values // facts.tile)
        if items <= facts.staged:
            emit(_TILES, (items, values, tiles))
            return 0
        if facts.is_sorted:
            emit(_BOUNDS, (items, values, tiles, -(-(tiles + 1) // facts.each)))
            return 8 * (tiles + 1)
        if facts.tree_blocks > 0 and items <= values * _ITEMS_FOR_VALUE:
            samples = ceil_div(items + facts.fanout, facts.fanout)
            if samples <= _MOST_SAMPLES:
                grid = min(facts.tree_blocks, ceil_div(values, facts.tree_threads))
                emit(_TREE, (items, values, ceil_div(samples, _SAMPLE_THREADS), grid))
                return facts.item_size * _items_of_tree(samples, facts.fanout, facts.top)
    emit(_EACH, (items, values, -(-values // facts.each)))
    return 0


@helper
def _items_of_tree(samples: int, fanout: int, top: int) -> int:
    """Return the number of items of a tree: two nodes, and whole levels until one fits into shared memory."""
    size, nodes = samples, ceil_div(samples, fanout)
    items = 2 * fanout + nodes * fanout
    while size > top:
        size, nodes = nodes, ceil_div(nodes, fanout)
        items += nodes * fanout
    return items


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
    _NAMES,
    _shapes,
    _planner,
    _traits,
    tunable=_TUNABLE,
)
