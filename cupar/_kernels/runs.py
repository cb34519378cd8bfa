"""Plans of algorithms on runs of equal keys: one block, or a grid that stays and takes tiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .._ir import cpp
from .._ir.nodes import Argument
from . import policies
from .family import Family, kind_of_init, members
from .policies import RunsPolicy
from .tiles import NAMES, check_size, planner, shapes

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_PROPERTIES = ("threads", "tile_items", "shared", "state")
_BLOCK_TILES = 1  # that one block takes


# --- Policies --------------------------------------------------------------------------------------------

_TILE_BYTES = {True: 18432, False: 12288}  # with bulk copies, or without
_RESIDENT = {8: 4, 16: 3}  # blocks by the most bytes of an item: they need few registers, and get them
_MOST_ITEMS = 15  # of a thread: an odd number


def policy(algorithm: str, sizes: tuple[int, ...], is_bulk: bool, cc: int) -> RunsPolicy:
    """Return how an algorithm is tuned.

    Parameters
    ----------
    algorithm : {"reduce", "scan", "encode"}
    sizes : tuple of int
        Bytes that a key and its value take in a tile.
    is_bulk : bool
        Whether tiles are brought by bulk copies.
    cc : int
        Compute capability, as in 90.
    """
    found = policies.RUNS.find(cc, algorithm, *sizes) if is_bulk else None
    return found or _untuned(sum(sizes), is_bulk)


def _untuned(size: int, is_bulk: bool) -> RunsPolicy:
    tile_items = _TILE_BYTES[is_bulk] // size
    threads = 256
    while threads > 32 and threads > tile_items:
        threads //= 2
    items = max(1, min(tile_items // threads, _MOST_ITEMS))
    resident = next((blocks for most, blocks in _RESIDENT.items() if size <= most), 1)
    return RunsPolicy(threads, items - (items + 1) % 2, resident)


def _constants(algorithm: str, spec: Specialisation, types: Mapping[str, str], sizes: tuple[int, ...]) -> str:
    """Return the C++ of the tiles, of the types that values are combined in, and of the initial value."""
    columns = [each for each in spec.arguments if not each.output]
    check_size(spec, columns, sum(sizes))
    is_bulk = spec.cc >= 90 and all(each.is_pointer for each in columns)
    found = policy(algorithm, sizes, is_bulk, spec.cc)._asdict()
    named = {"key_t": f"{columns[0].name}_v", **types}
    lines = (f"using {name} = {type_};" for name, type_ in named.items())
    return members(*lines, **found, **kind_of_init(spec))


def _of_values(algorithm: str, spec: Specialisation, keys: Argument, values: Argument) -> str:
    accumulator = dict(spec.operators)["op"].output
    sizes = keys.value.itemsize, max(values.value.itemsize, accumulator.itemsize)
    types = dict.fromkeys(("local_t", "accum_t", "staged_t"), cpp.type_name(accumulator))
    return _constants(algorithm, spec, types, sizes)


# --- Families --------------------------------------------------------------------------------------------


def _reduce_traits(spec: Specialisation) -> str:
    keys, _, values = spec.arguments[:3]
    return _of_values("reduce", spec, keys, values)


REDUCE_BY_KEY = Family(
    "runs/reduce_by_key.cuh",
    _PROPERTIES,
    NAMES,
    shapes(
        "cupar_runs_init",
        "cupar_reduce_by_key",
        ("d_in_keys", "d_out_unique", "d_in_values", "d_out_aggregates", "d_out_num_runs"),
        ("op", "equality_op", "init"),
    ),
    planner("cupar_reduce_by_key", _BLOCK_TILES),
    _reduce_traits,
)


def _scan_traits(spec: Specialisation) -> str:
    keys, values, _ = spec.arguments
    is_inclusive = spec.algorithm == "inclusive_scan_by_key"
    return members(_of_values("scan", spec, keys, values), is_inclusive=is_inclusive)


SCAN_BY_KEY = Family(
    "runs/scan_by_key.cuh",
    _PROPERTIES,
    NAMES,
    shapes(
        "cupar_runs_init",
        "cupar_scan_by_key",
        ("d_in_keys", "d_in_values", "d_out_values"),
        ("op", "equality_op", "init"),
    ),
    planner("cupar_scan_by_key", _BLOCK_TILES),
    _scan_traits,
)


def _encode_traits(spec: Specialisation) -> str:
    # The counts of a tile are small, and staged as such.
    types = {"local_t": "unsigned", "accum_t": "unsigned long long", "staged_t": "unsigned short"}
    return _constants("encode", spec, types, (spec.arguments[0].value.itemsize, 2))


RUN_LENGTH_ENCODE = Family(
    "runs/run_length_encode.cuh",
    _PROPERTIES,
    NAMES,
    shapes(
        "cupar_runs_init",
        "cupar_run_length_encode",
        ("d_in", "d_out_unique", "d_out_counts", "d_out_num_runs"),
        ("equality_op",),
    ),
    planner("cupar_run_length_encode", _BLOCK_TILES),
    _encode_traits,
)
