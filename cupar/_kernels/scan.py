"""Plans of scans: one block, or one for each tile that looks back, or one for each multiprocessor that looks ahead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .._ir import cpp
from . import policies
from .family import Facts, Family, Launch, Plan, Shape, Storage, Value, aligned, ceil_div, i32, u64

if TYPE_CHECKING:
    from .._compile.specialisation import Specialisation

_IN, _OUT, _OP, _INIT = map(Value, ("d_in", "d_out", "op", "init"))
_ONE_BLOCK, _SMALL_BLOCK = 1024, 256  # threads of a block that has all items
_MOST_STAGES = 32  # that a block has room for barriers for
_LARGEST_TYPE = 64  # bytes; larger ones would fill shared memory with few items


def _looking_back(clears: bool, grid: str | int) -> Shape:
    """Return a shape of CUB's look-back: a single tile needs no states, and so none cleared."""
    clear = Launch("cupar_scan_clear", "clear_grid", 128, (Storage(), i32("tiles")))
    tiles = Launch(
        "cupar_scan_tiles", grid, "threads", (_IN, _OUT, Storage(), i32("tiles"), u64("n"), _OP, _INIT)
    )
    return Shape(("n", "tiles", "clear_grid"), (clear, tiles) if clears else (tiles,))


_LOOKING_BACK = {"tile": _looking_back(False, 1), "tiles": _looking_back(True, "tiles")}


def _block(threads: int) -> Shape:
    parameters = (_IN, _OUT, i32("n"), i32("vectors"), _OP, _INIT)
    return Shape(("n", "vectors", "shared"), (Launch("cupar_scan_tile", 1, threads, parameters, "shared"),))


_LOOKING_AHEAD = {
    "small tile": _block(_SMALL_BLOCK),
    "tile": _block(_ONE_BLOCK),
    "tiles": Shape(
        ("n", "vectors", "stages", "ahead", "grid", "shared", "words", "clear_grid"),
        (
            Launch("cupar_scan_clear", "clear_grid", 256, (Storage(), i32("words"))),
            Launch(
                "cupar_scan_tiles",
                "grid",
                "threads",
                (
                    _IN,
                    _OUT,
                    Storage(256),
                    Storage(),
                    u64("n"),
                    i32("vectors"),
                    i32("stages"),
                    i32("ahead"),
                    _OP,
                    _INIT,
                ),
                "shared",
            ),
        ),
    ),
}


def _looks_ahead(spec: Specialisation) -> bool:
    """Whether arrays are scanned by warps that share the work, which need bulk copies."""
    sizes = [each.value.itemsize for each in spec.arguments]
    return (
        spec.option("tier") != "quick"
        and spec.cc >= 90
        and all(each.is_pointer for each in spec.arguments)
        and max(*sizes, spec.operators[0][1].output.itemsize) <= _LARGEST_TYPE
    )


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    return _LOOKING_AHEAD if _looks_ahead(spec) else _LOOKING_BACK


def _planner(facts: Facts) -> Callable[[int], Plan]:
    return _ahead_planner(facts) if facts["groups"] else _back_planner(facts)


def _back_planner(facts: Facts) -> Callable[[int], Plan]:
    tile, state, payload = facts["threads"] * facts["items"], facts["state"], facts["payload"]

    def plan(n: int) -> Plan:
        tiles = ceil_div(n, tile)
        if tiles <= 1:
            return Plan("tile" if n else "", 0, (n, tiles, 0))
        states = tiles + 32  # as many come before the first, so that a warp may look back on none
        *_, nbytes = aligned(states * state, states * payload, states * payload)
        return Plan("tiles", nbytes, (n, tiles, ceil_div(tiles, 128)))

    return plan


def _ahead_planner(facts: Facts) -> Callable[[int], Plan]:
    vector, groups, most = facts["items"], facts["groups"], facts["vectors"]
    sizes = facts["in_size"], facts["out_size"]
    item = sum(sizes)
    sms, shared = facts["sms"], facts["shared_memory"] - facts["static"]
    row = facts["group_threads"] * vector  # items of a tile for each vector of a thread
    while most > 1 and groups * (most * row * item + 32) > shared:
        most -= 2

    def bytes_of(size: int, items: int) -> int:
        return items * size + 16

    def block(n: int, threads: int) -> tuple[int, int]:
        """Return vectors of a thread, and shared memory, if a block has all items."""
        vectors = _odd(ceil_div(n + vector - 1, threads * vector))
        return vectors, sum(bytes_of(size, threads * vectors * vector) for size in sizes)

    # The first is as quick as the others where each of its threads has a vector.
    most_small, most_of_block = _SMALL_BLOCK * vector, min(shared, policies.SCAN_BLOCK_BYTES)

    def plan(n: int) -> Plan:
        if not n:
            return Plan("", 0)
        positions = n + vector - 1  # at most: those before the first item fill up a vector
        if positions <= most_small:
            return Plan("small tile", 0, (n, *block(n, _SMALL_BLOCK)))
        if n * item <= most_of_block:
            vectors, needed = block(n, _ONE_BLOCK)
            if needed <= most_of_block:
                return Plan("tile", 0, (n, vectors, needed))
        # Small tiles where there are few items, so that all groups have one.
        vectors = min(most, _odd(ceil_div(positions, sms * groups * row)))
        items = vectors * row
        tiles = ceil_div(positions, items)
        grid = min(sms, tiles)
        in_bytes, out_bytes = (bytes_of(size, items) for size in sizes)
        of_block = ceil_div(tiles, grid)
        room = (shared - groups * out_bytes) // in_bytes
        ahead = min(of_block, room, _MOST_STAGES)
        stages = max(ahead, groups)
        states = ceil_div(tiles, facts["batch"]) * facts["batch"]
        nbytes = 256 + states * facts["state"]
        words = nbytes // 16
        numbers = (vectors, stages, ahead, grid, stages * in_bytes + groups * out_bytes, words)
        return Plan("tiles", nbytes, (n, *numbers, ceil_div(words, 256)))

    return plan


def _odd(count: int) -> int:
    """Return the next odd number: then no two lanes read one bank of shared memory."""
    return count | 1


def _prelude(spec: Specialisation) -> str:
    accumulator, init = spec.operators[0][1].output, spec.option("init")
    constants = {
        "is_inclusive": spec.algorithm == "inclusive_scan",
        "init_is_value": init == "value",
        "init_is_on_device": init == "device",
    }
    lines = [f"using accum_t = {cpp.type_name(accumulator)};"]
    lines += [f"constexpr bool {name} = {str(value).lower()};" for name, value in constants.items()]
    looks_ahead = _looks_ahead(spec)
    if looks_ahead:
        size = max(accumulator.itemsize, *(each.value.itemsize for each in spec.arguments))
        policy = policies.of(policies.SCAN, spec.cc, size)
        lines += [f"constexpr int {name} = {value};" for name, value in policy._asdict().items()]
    return "\n".join([*lines, f"#define CUPAR_LOOKAHEAD {int(looks_ahead)}"])


SCAN = Family(
    "scan.cuh",
    (
        "threads",
        "items",
        "state",
        "payload",
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
