"""Plans of kernels that take tiles in turns: one block, or a grid that stays and whose blocks look back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .._base.errors import BuildError
from .._ir.nodes import Argument
from .family import Emit, Launch, Parameter, Plan, Properties, Shape, Storage, Value, i64, u64

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_INIT_THREADS = 256
_TICKET_BYTES = 128  # before the states of tiles
MOST_SHARED = {True: 113 << 10, False: 48 << 10}  # bytes of a block, with bulk copies, or without
_MOST_BYTES = 512  # of an item: three tiles of 32 fit into the shared memory of a block on every GPU


def shapes(
    init: str, kernel: str, parameters: tuple[str, ...], operators: tuple[str, ...]
) -> Callable[[Specialisation], dict[str, Shape]]:
    """Return the `shapes` function of a kernel, and of the kernel that zeroes its tile states."""

    def launch(grid: str | int, storage: Parameter) -> Launch:
        given = (*map(Value, parameters), i64("n"), *map(Value, operators), storage)
        return Launch(kernel, grid, "threads", given, "shared")

    def shapes(spec: Specialisation) -> dict[str, Shape]:
        first = Launch(init, "init_grid", _INIT_THREADS, (Storage(),))
        return {
            "block": Shape(("n",), (launch(1, u64(0)),)),
            "grid": Shape(("n", "grid", "init_grid"), (first, launch("grid", Storage()))),
        }

    return shapes


NAMES = ("block", "grid")
_BLOCK, _GRID = range(2)


def planner(
    kernel: str, block_tiles: int, state_bytes: int | None = None
) -> Callable[[Properties], tuple[Plan, tuple[int, ...]]]:
    """Return the planner of a kernel.

    Parameters
    ----------
    kernel : str
    block_tiles : int
        The most tiles of a single block, which needs no tile states, and so no kernel that zeroes them.
    state_bytes : int, optional
        Of a tile's state; by default the build says it, as its property ``"state"``.
    """

    def planner(given: Properties) -> tuple[Plan, tuple[int, ...]]:
        tile = given["tile_items"]
        state = given["state"] if state_bytes is None else state_bytes
        resident = given.resident(kernel, given["threads"], given["shared"])
        return _plan, (tile, block_tiles * tile, state, max(resident, given["sms"]))

    return planner


def _plan(facts: tuple[int, ...], n: int, emit: Emit) -> int:
    tile, block, state, blocks = facts
    if n <= block:
        emit(_BLOCK, (n,))
        return 0
    tiles = -(-n // tile)
    init_grid = -(-(_TICKET_BYTES + state * tiles) // (8 * _INIT_THREADS))
    emit(_GRID, (n, min(tiles, blocks), init_grid))
    return 8 * _INIT_THREADS * init_grid


def check_size(spec: Specialisation, columns: Sequence[Argument], nbytes: int) -> None:
    """Raise BuildError if items of all columns have more bytes than tiles can be made of."""
    if nbytes > _MOST_BYTES:
        names = ", ".join(f"{each.name} (items of {each.value.itemsize} bytes)" for each in columns)
        raise BuildError(
            f"{names}: too large for {spec.algorithm}, which takes {_MOST_BYTES} bytes at most; make the "
            "struct smaller, or give indices in their place, and read the items through a "
            "cupar.PermutationIterator"
        )
