"""Plans of selections, partitions and unique by key: one block, or a grid that stays and takes tiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .._base.errors import BuildError
from .._ir.nodes import Argument, Discard
from . import policies
from .family import Facts, Family, Launch, Parameter, PlanTuple, Shape, Storage, Value, i64, u64
from .policies import Compact

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_BLOCK_TILES = 2  # that one block takes: it needs no states of tiles, and so no kernel that zeroes them
_INIT_THREADS = 256
_TICKET_WORDS = 16  # before the states of tiles


def _shapes(
    kernel: str, parameters: tuple[str, ...], operators: tuple[str, ...]
) -> Callable[[Specialisation], dict[str, Shape]]:
    def launch(grid: str | int, storage: Parameter) -> Launch:
        given = (*map(Value, parameters), i64("n"), *map(Value, operators), storage)
        return Launch(kernel, grid, "threads", given, "shared")

    def shapes(spec: Specialisation) -> dict[str, Shape]:
        init = Launch("cupar_compact_init", "init_grid", _INIT_THREADS, (Storage(),))
        return {
            "block": Shape(("n",), (launch(1, u64(0)),)),
            "grid": Shape(("n", "grid", "init_grid"), (init, launch("grid", Storage()))),
        }

    return shapes


def _planner(kernel: str, counts: int) -> Callable[[Facts], Callable[[int], PlanTuple]]:
    def planner(facts: Facts) -> Callable[[int], PlanTuple]:
        tile, sms = facts["tile_items"], facts["sms"]
        most = max(1, facts.occupancy(kernel, facts["threads"], facts["shared"])) * sms

        def plan(n: int) -> PlanTuple:
            tiles = -(-n // tile)
            if tiles <= _BLOCK_TILES:
                return "block", 0, (n,)
            init_grid = -(-(_TICKET_WORDS + counts * tiles) // _INIT_THREADS)
            return "grid", 8 * _INIT_THREADS * init_grid, (n, min(tiles, most), init_grid)

        return plan

    return planner


# --- Policies --------------------------------------------------------------------------------------------

_WORD = 16  # bytes that a thread loads at once
_MOST_ITEMS = 16  # of a thread
_TILE_BYTES = {True: 16384, False: 8192}  # with bulk copies, or without: then more blocks hide the latency
_MOST_BYTES = 512  # of items: three tiles of 32 fit into the shared memory of a block on every GPU


def policy(algorithm: str, sizes: tuple[int, ...], is_bulk: bool, cc: int) -> Compact:
    """Return how an algorithm is tuned.

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
    found = policies.COMPACT.get((cc, algorithm, *sizes)) if is_bulk else None
    return found or _untuned(sizes, is_bulk)


def _untuned(sizes: tuple[int, ...], is_bulk: bool) -> Compact:
    size, each = sizes[0], sum(sizes)
    width = max(1, min(4, _WORD // size)) if _WORD % size == 0 else 1
    room = _TILE_BYTES[is_bulk] // (each * width)
    threads = 256
    while threads > 32 and threads > room:
        threads //= 2
    rows = max(1, min(room // threads, _MOST_ITEMS // width))
    return Compact(threads, rows, width, 3)


def _constants(algorithm: str, spec: Specialisation, item: str, *columns: Argument) -> str:
    is_bulk = spec.cc >= 90 and all(column.is_pointer for column in columns)
    sizes = tuple(column.value.itemsize for column in columns)
    if sum(sizes) > _MOST_BYTES:
        names = ", ".join(f"{each.name} (items of {each.value.itemsize} bytes)" for each in columns)
        raise BuildError(
            f"{names}: too large for {spec.algorithm}, which takes {_MOST_BYTES} bytes at most; make the "
            "struct smaller, or give indices in their place, and read the items through a "
            "cupar.PermutationIterator"
        )
    found = policy(algorithm, sizes, is_bulk, spec.cc)
    constants = ", ".join(f"{name} = {value}" for name, value in found._asdict().items())
    return f"using item_t = {item}_v;\nconstexpr int {constants};"


# --- Families --------------------------------------------------------------------------------------------

_FACTS = ("threads", "tile_items", "shared")

SELECT = Family(
    "select.cuh",
    _FACTS,
    _shapes("cupar_select", ("d_in", "d_out", "d_num_selected_out"), ("cond",)),
    _planner("cupar_select", 1),
    lambda spec: _constants("select", spec, "d_in", spec.arguments[0]),
)

PARTITION = Family(
    "partition.cuh",
    _FACTS,
    _shapes(
        "cupar_partition",
        ("d_in", "d_first_part_out", "d_second_part_out", "d_unselected_out", "d_num_selected_out"),
        ("select_first_part_op", "select_second_part_op"),
    ),
    _planner("cupar_partition", 2),
    lambda spec: _constants("partition", spec, "d_in", spec.arguments[0]),
)


def _unique_prelude(spec: Specialisation) -> str:
    arguments: Mapping[str, Argument] = {each.name: each for each in spec.arguments}
    keys, items, out_items = map(arguments.get, ("d_in_keys", "d_in_items", "d_out_items"))
    assert keys is not None
    code = [
        f"struct {name}_t {{}};\nusing {name}_v = unsigned char;"
        for name in ("d_in_items", "d_out_items")
        if name not in arguments
    ]
    has_items = items is not None and out_items is not None and type(out_items.node) is not Discard
    columns = [keys, items] if has_items and items is not None else [keys]
    code.append(f"constexpr bool has_items = {str(has_items).lower()};")
    code.append(_constants("unique", spec, "d_in_keys", *columns))
    return "\n".join(code)


UNIQUE = Family(
    "unique.cuh",
    _FACTS,
    _shapes(
        "cupar_unique",
        ("d_in_keys", "d_in_items", "d_out_keys", "d_out_items", "d_out_num_selected"),
        ("op",),
    ),
    _planner("cupar_unique", 1),
    _unique_prelude,
)
