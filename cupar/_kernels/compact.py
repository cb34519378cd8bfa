"""Plans of selections, partitions and unique by key: one block, or a grid that stays and takes tiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from .._ir.nodes import Argument, Discard
from . import policies
from .family import Family, Shape, members
from .policies import CompactPolicy
from .tiles import MOST_SHARED, NAMES, check_size, planner, shapes
from .tuning import Tunable, operator_class, value_types

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_PROPERTIES = ("threads", "tile_items", "shared")
_BLOCK_TILES = 1  # that one block takes: two take it longer than two blocks, and a kernel before them


# --- Policies --------------------------------------------------------------------------------------------

_PLACE = 2  # bytes of the place of an item in a tile
_WORD = 16  # bytes that a thread loads at once
_MOST_ITEMS = 16  # of a thread
_MOST_LANE_BYTES = 192  # that a thread has in registers, unless one item has more
_TILE_BYTES = {True: 16384, False: 8192}  # with bulk copies, or without: then more blocks hide the latency


def policy(algorithm: str, sizes: tuple[int, ...], is_bulk: bool, cc: int) -> CompactPolicy:
    """Return how an algorithm is tuned by default.

    Parameters
    ----------
    algorithm : {"select", "partition", "unique"}
    sizes : tuple of int
        Bytes of the items that are chosen from, and of those that go with them.
    is_bulk : bool
        Whether tiles are brought by bulk copies.
    cc : int
        Compute capability, as in 90.
    """
    found = policies.COMPACT.find(cc, algorithm, *sizes) if is_bulk else None
    return found or _untuned(sizes, is_bulk)


def _untuned(sizes: tuple[int, ...], is_bulk: bool) -> CompactPolicy:
    size, each = sizes[0], sum(sizes)
    width = max(1, min(4, _WORD // size)) if _WORD % size == 0 else 1
    while width > 1 and each * width > _MOST_LANE_BYTES:
        width //= 2
    tile_items = _TILE_BYTES[is_bulk] // (each * width)
    threads = 256
    while threads > 32 and threads > tile_items:
        threads //= 2
    rows = max(1, min(tile_items // threads, _MOST_ITEMS // width))
    return CompactPolicy(threads, rows, width, 3)


def _tunable(
    algorithm: str, columns_of: Callable[[Specialisation], Sequence[Argument]]
) -> Tunable[CompactPolicy]:
    """Return how an algorithm is tuned, for the arguments that are staged in shared memory."""

    def is_bulk(spec: Specialisation) -> bool:
        return spec.cc >= 90 and columns_of(spec)[0].is_pointer

    def sizes(spec: Specialisation) -> tuple[int, ...]:
        return _sizes(columns_of(spec))

    def default(spec: Specialisation) -> CompactPolicy:
        return policy(algorithm, sizes(spec), is_bulk(spec), spec.cc)

    def space(spec: Specialisation) -> Mapping[str, tuple[int, ...]]:
        return {
            "threads": (64, 128, 192, 256, 288, 320, 384, 512),
            "rows": (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16),
            "width": tuple(sorted({1, 2, 4, default(spec).width})),
            "buffers": (3, 4),
        }

    def fits(spec: Specialisation, found: CompactPolicy) -> bool:
        threads, rows, width, buffers = found
        each, items = sum(sizes(spec)), threads * rows * width
        is_word = width == 1 or _WORD % (width * sizes(spec)[0]) == 0
        is_held = rows * width <= 32 and (rows * width == 1 or rows * width * each <= _MOST_LANE_BYTES)
        fits_shared = buffers * items * each <= MOST_SHARED[is_bulk(spec)]
        return is_word and is_held and items < 1 << 16 and fits_shared

    def scope(spec: Specialisation) -> dict[str, str]:
        classes = {name: operator_class(op) for name, op in spec.operators}
        return {"algorithm": algorithm, **value_types(spec), **classes}

    return Tunable("compact", CompactPolicy, default, scope, space, fits)


def _sizes(columns: Sequence[Argument]) -> tuple[int, ...]:
    """Return the bytes of a tile's items in shared memory, where iterators over items have places."""
    first, *others = columns
    return first.value.itemsize, *[each.value.itemsize if each.is_pointer else _PLACE for each in others]


def _constants(tunable: Tunable[CompactPolicy], spec: Specialisation, item: str, *columns: Argument) -> str:
    check_size(spec, columns, sum(_sizes(columns)))
    return members(f"using item_t = {item}_v;", **tunable.given(spec)._asdict())


# --- Families --------------------------------------------------------------------------------------------


def _first(spec: Specialisation) -> tuple[Argument, ...]:
    return spec.arguments[:1]


def _with_flags(spec: Specialisation) -> Sequence[Argument]:
    """Return the columns of a selection: the items, or flags and the items that go with them."""
    items, *_, last = spec.arguments
    return [last, items] if last.name == "d_flags" else [items]


_OF_SELECT, _OF_PARTITION = _tunable("select", _with_flags), _tunable("partition", _first)
_SELECTED = ("d_in", "d_out", "d_num_selected_out")


def _select_shapes(spec: Specialisation) -> Mapping[str, Shape]:
    names = (*_SELECTED, "d_flags") if spec.has("d_flags") else _SELECTED
    return shapes("cupar_compact_init", "cupar_select", names, ("cond",))(spec)


def _select_traits(spec: Specialisation) -> str:
    columns = _with_flags(spec)
    constants = _constants(_OF_SELECT, spec, columns[0].name, *columns)
    return members(constants, has_flags=len(columns) > 1)


SELECT = Family(
    "compact/select.cuh",
    _PROPERTIES,
    NAMES,
    _select_shapes,
    planner("cupar_select", _BLOCK_TILES, 8),
    _select_traits,
    tunable=_OF_SELECT,
)

PARTITION = Family(
    "compact/partition.cuh",
    _PROPERTIES,
    NAMES,
    shapes(
        "cupar_compact_init",
        "cupar_partition",
        ("d_in", "d_first_part_out", "d_second_part_out", "d_unselected_out", "d_num_selected_out"),
        ("select_first_part_op", "select_second_part_op"),
    ),
    planner("cupar_partition", _BLOCK_TILES, 16),
    lambda spec: _constants(_OF_PARTITION, spec, "d_in", *_first(spec)),
    tunable=_OF_PARTITION,
)


def _staged(spec: Specialisation) -> list[Argument]:
    """Return the columns of unique by key: its keys, and the items unless those are discarded."""
    arguments: Mapping[str, Argument] = {each.name: each for each in spec.arguments}
    items, out_items = arguments.get("d_in_items"), arguments.get("d_out_items")
    has_items = items is not None and out_items is not None and type(out_items.node) is not Discard
    return [arguments["d_in_keys"], *([items] if has_items and items is not None else [])]


_OF_UNIQUE = _tunable("unique", _staged)


def _unique_traits(spec: Specialisation) -> str:
    columns = _staged(spec)
    code = [
        f"struct {name}_t {{}};\nusing {name}_v = unsigned char;"
        for name in ("d_in_items", "d_out_items")
        if not spec.has(name)
    ]
    return members(*code, _constants(_OF_UNIQUE, spec, "d_in_keys", *columns), has_items=len(columns) > 1)


UNIQUE = Family(
    "compact/unique.cuh",
    _PROPERTIES,
    NAMES,
    shapes(
        "cupar_compact_init",
        "cupar_unique",
        ("d_in_keys", "d_in_items", "d_out_keys", "d_out_items", "d_out_num_selected"),
        ("op",),
    ),
    planner("cupar_unique", _BLOCK_TILES, 8),
    _unique_traits,
    tunable=_OF_UNIQUE,
)
