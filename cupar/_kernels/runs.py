"""Plans of algorithms on runs of equal keys: one block, or a grid that stays and takes tiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .._ir import cpp
from .._ir.nodes import Argument
from . import policies
from .family import Family, kind_of_init, members
from .policies import RunsPolicy
from .tiles import MOST_SHARED, NAMES, check_size, planner, shapes
from .tuning import Tunable, operator_class, type_text, value_types

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_PROPERTIES = ("threads", "tile_items", "shared", "state")
_BLOCK_TILES = 1  # that one block takes


# --- Policies --------------------------------------------------------------------------------------------

_TILE_BYTES = {True: 18432, False: 12288}  # with bulk copies, or without
_RESIDENT = {8: 4, 16: 3}  # blocks by the most bytes of an item: they need few registers, and get them
_MOST_ITEMS = 15  # of a thread: an odd number
_BUFFERS = 3  # for tiles
_MOST_THREADS = 1536  # of a multiprocessor, that are tried


def policy(algorithm: str, sizes: tuple[int, ...], is_bulk: bool, cc: int) -> RunsPolicy:
    """Return how an algorithm is tuned by default.

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


def _tunable(algorithm: str, sizes_of: Callable[[Specialisation], tuple[int, ...]]) -> Tunable[RunsPolicy]:
    """Return how an algorithm is tuned, of which a function returns the bytes of a key and its value."""

    def is_bulk(spec: Specialisation) -> bool:
        return spec.cc >= 90 and all(each.is_pointer for each in _columns(spec))

    def default(spec: Specialisation) -> RunsPolicy:
        return policy(algorithm, sizes_of(spec), is_bulk(spec), spec.cc)

    def space(spec: Specialisation) -> Mapping[str, tuple[int, ...]]:
        return {
            "threads": (32, 64, 128, 192, 256, 320, 384, 512),
            "items": (1, 3, 5, 7, 9, 11, 13, 15, 17),
            "resident": (1, 2, 3, 4, 6),
        }

    def fits(spec: Specialisation, found: RunsPolicy) -> bool:
        shared = _BUFFERS * found.threads * found.items * sum(sizes_of(spec))
        fits_shared = shared <= MOST_SHARED[is_bulk(spec)]
        return fits_shared and found.threads * found.resident <= _MOST_THREADS

    def scope(spec: Specialisation) -> dict[str, str]:
        classes = {name: operator_class(op) for name, op in spec.operators}
        combined = {name: type_text(op.output) for name, op in spec.operators if name == "op"}
        return {"algorithm": algorithm, **value_types(spec), **classes, "accumulator": combined.get("op", "")}

    return Tunable("runs", RunsPolicy, default, scope, space, fits)


def _columns(spec: Specialisation) -> list[Argument]:
    return [each for each in spec.arguments if not each.output]


def _constants(
    tunable: Tunable[RunsPolicy], spec: Specialisation, types: Mapping[str, str], size: int
) -> str:
    """Return the C++ of the tiles, of the types that values are combined in, and of the initial value."""
    columns = _columns(spec)
    check_size(spec, columns, size)
    named = {"key_t": f"{columns[0].name}_v", **types}
    lines = (f"using {name} = {type_};" for name, type_ in named.items())
    return members(*lines, **tunable.given(spec)._asdict(), **kind_of_init(spec))


def _sizes(spec: Specialisation) -> tuple[int, int]:
    keys, values = _columns(spec)
    return keys.value.itemsize, max(values.value.itemsize, _accumulator(spec).itemsize)


def _accumulator(spec: Specialisation) -> Any:
    return dict(spec.operators)["op"].output


def _of_values(tunable: Tunable[RunsPolicy], spec: Specialisation) -> str:
    types = dict.fromkeys(("local_t", "accum_t", "staged_t"), cpp.type_name(_accumulator(spec)))
    return _constants(tunable, spec, types, sum(_sizes(spec)))


def _encode_sizes(spec: Specialisation) -> tuple[int, int]:
    return spec.arguments[0].value.itemsize, 2


# --- Families --------------------------------------------------------------------------------------------


_REDUCE, _SCAN = _tunable("reduce", _sizes), _tunable("scan", _sizes)
_ENCODE = _tunable("encode", _encode_sizes)

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
    lambda spec: _of_values(_REDUCE, spec),
    tunable=_REDUCE,
)


def _scan_traits(spec: Specialisation) -> str:
    is_inclusive = spec.algorithm == "inclusive_scan_by_key"
    return members(_of_values(_SCAN, spec), is_inclusive=is_inclusive)


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
    tunable=_SCAN,
)


def _encode_traits(spec: Specialisation) -> str:
    # The counts of a tile are small, and staged as such.
    types = {"local_t": "unsigned", "accum_t": "unsigned long long", "staged_t": "unsigned short"}
    return _constants(_ENCODE, spec, types, sum(_encode_sizes(spec)))


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
    tunable=_ENCODE,
)
