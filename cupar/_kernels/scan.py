"""Plans of scans: one block, one for each tile that looks back, or one for each multiprocessor."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .._ir import cpp
from . import policies
from .family import Facts, Family, Launch, PlanTuple, Shape, Storage, Value, aligned, i32, u64

if TYPE_CHECKING:
    from .._compile.specialisation import Specialisation

_IN, _OUT, _OP, _INIT = map(Value, ("d_in", "d_out", "op", "init"))

_PADDING = 32  # states before those of tiles, so that a warp may look back on tiles that are not there
_CLEARED = 128  # states that a block clears


def _looking_back(grid: str | int, *clearing: Launch) -> Shape:
    parameters = (_IN, _OUT, Storage(), i32("tiles"), u64("n"), _OP, _INIT)
    tiles = Launch("cupar_scan_tiles", grid, "threads", parameters)
    return Shape(("n", "tiles", "clear_grid"), (*clearing, tiles))


# CUB's: a single tile needs no states, and so none cleared.
_LOOKING_BACK = {
    "tile": _looking_back(1),
    "tiles": _looking_back(
        "tiles", Launch("cupar_scan_clear", "clear_grid", _CLEARED, (Storage(), i32("tiles")))
    ),
}

_BLOCK, _SMALL_BLOCK = 1024, 256  # threads of a block that has all items
_STATES_AT = 256  # in the temporary storage, behind the counter of tiles
_CLEARED_BYTES = 4096  # by a block
_MOST_SIZE = 64  # bytes of an item; a tile of larger ones would have few
_MOST_VECTORS_SIZE = 288  # bytes of a vector of items, read and written; larger ones leave no room for groups


def _block(threads: int) -> Shape:
    parameters = (_IN, _OUT, i32("n"), _OP, _INIT)
    return Shape(("n", "shared"), (Launch("cupar_scan_tile", 1, threads, parameters, "shared"),))


_LOOKING_AHEAD = {
    "small tile": _block(_SMALL_BLOCK),
    "tile": _block(_BLOCK),
    "tiles": Shape(
        ("n", "vectors", "shared", "grid", "tiles", "clear_grid"),
        (
            Launch("cupar_scan_clear", "clear_grid", 256, (Storage(), i32("tiles"))),
            Launch(
                "cupar_scan_tiles",
                "grid",
                "threads",
                (_IN, _OUT, Storage(), u64("n"), i32("vectors"), _OP, _INIT),
                "shared",
            ),
        ),
    ),
}


def _sizes(spec: Specialisation) -> tuple[int, int, int]:
    """Return bytes of an item of the input, of the output, and of the accumulator."""
    d_in, d_out = (each.value.itemsize for each in spec.arguments)
    return d_in, d_out, spec.operators[0][1].output.itemsize


def _looks_ahead(spec: Specialisation) -> bool:
    """Whether arrays are scanned by warps that share the work, which need bulk copies."""
    *arrays, _ = sizes = _sizes(spec)
    vector = max(16 // size if 16 % size == 0 else 1 for size in arrays)
    fits = max(sizes) <= _MOST_SIZE and vector * sum(arrays) <= _MOST_VECTORS_SIZE
    return (
        spec.cc >= 90
        and spec.option("tier") != "quick"
        and fits
        and all(each.is_pointer for each in spec.arguments)
    )


def _source(spec: Specialisation) -> str:
    return "scan_lookahead.cuh" if _looks_ahead(spec) else "scan_lookback.cuh"


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    return _LOOKING_AHEAD if _looks_ahead(spec) else _LOOKING_BACK


def _planner(facts: Facts) -> Callable[[int], PlanTuple]:
    return _ahead_planner(facts) if facts["groups"] else _back_planner(facts)


def _back_planner(facts: Facts) -> Callable[[int], PlanTuple]:
    tile, state, payload = facts["threads"] * facts["items"], facts["state"], facts["payload"]

    def plan(n: int) -> PlanTuple:
        if n <= tile:
            return "tile" if n else "", 0, (n, 1, 0)
        tiles = -(-n // tile)
        states = tiles + _PADDING
        *_, nbytes = aligned(states * state, states * payload, states * payload)
        return "tiles", nbytes, (n, tiles, -(-tiles // _CLEARED))

    return plan


def _ahead_planner(facts: Facts) -> Callable[[int], PlanTuple]:
    vector, groups, batch, state = (facts[name] for name in ("items", "groups", "batch", "state"))
    item, sms = facts["in_size"] + facts["out_size"], facts["sms"]
    room = (facts["shared_memory"] - facts["static"]) // 128 * 128
    row = facts["group_threads"] * vector  # items of a tile for each vector that a thread has
    before = vector - 1  # the most positions before the first item, up to an address that is a multiple of 16

    def of_block(threads: int, vectors: int) -> tuple[int, int]:
        """Return how many items fit into a block, whose threads have so many vectors; its shared memory."""
        items = threads * vector * vectors
        return items - before, items * item + 32

    small, small_shared = of_block(_SMALL_BLOCK, 1)
    blocks = [of_block(_BLOCK, vectors) for vectors in range(1, 32, 2)]
    blocks = [each for each in blocks if each[1] <= room]
    most_of_block = min(blocks[-1][0], policies.SCAN_BLOCK_BYTES // item) if blocks else 0
    # Tiles are small where there are few items, so that all groups have one.
    tiled = []
    for vectors in range(1, facts["vectors"] + 1, 2):
        items = row * vectors
        if groups * (items * item + 32) <= room:
            tiled.append((sms * groups * items, vectors, items))
    largest = [limit for limit, *_ in tiled][:-1]
    cleared = _STATES_AT + batch * state

    def plan(n: int) -> PlanTuple:
        if n <= small:
            return "small tile" if n else "", 0, (n, small_shared)
        if n <= most_of_block:
            return "tile", 0, (n, blocks[bisect_left(blocks, (n,))][1])
        _, vectors, items = tiled[bisect_left(largest, n)]
        tiles = -(-(n + before) // items)
        nbytes = _STATES_AT + -(-tiles // batch) * batch * state
        clear_grid = (cleared + tiles * state) // _CLEARED_BYTES + 1
        return "tiles", nbytes, (n, vectors, room, min(sms, tiles), tiles, clear_grid)

    return plan


def _prelude(spec: Specialisation) -> str:
    accumulator, init = spec.operators[0][1].output, spec.option("init")
    constants = {
        "is_inclusive": spec.algorithm == "inclusive_scan",
        "init_is_value": init == "value",
        "init_is_on_device": init == "device",
    }
    lines = [f"using accum_t = {cpp.type_name(accumulator)};"]
    lines += [f"constexpr bool {name} = {str(value).lower()};" for name, value in constants.items()]
    if _looks_ahead(spec):
        policy = policies.of(policies.SCAN, spec.cc, max(_sizes(spec)))
        lines += [f"constexpr int {name} = {value};" for name, value in policy._asdict().items()]
    return "\n".join(lines)


SCAN = Family(
    _source,
    (
        "threads",
        "items",  # of a thread; where warps share the work, of a vector
        "state",  # bytes of a tile's
        "payload",  # and of what is beside it
        "in_size",
        "out_size",
        "groups",
        "group_threads",
        "vectors",
        "batch",
        "static",
    ),
    _shapes,
    _planner,
    _prelude,
)
