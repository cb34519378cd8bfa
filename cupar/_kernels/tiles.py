"""Plans of kernels that take tiles in turns: one block, or a grid that stays and whose blocks look back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .._base.errors import BuildError
from .._ir.nodes import Argument
from .family import Facts, Launch, Parameter, PlanTuple, Shape, Storage, Value, i64, u64

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation

_INIT_THREADS = 256
_TICKET_BYTES = 128  # before the states of tiles
_MOST_BYTES = 512  # of an item: three tiles of 32 fit into the shared memory of a block on every GPU


def shapes(
    init: str, kernel: str, parameters: tuple[str, ...], operators: tuple[str, ...]
) -> Callable[[Specialisation], dict[str, Shape]]:
    """Return what gives the shapes of a kernel, and of the kernel that zeroes its states of tiles."""

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


def planner(
    kernel: str, block_tiles: int, state_bytes: int | None = None
) -> Callable[[Facts], Callable[[int], PlanTuple]]:
    """Return the planner of a kernel.

    Parameters
    ----------
    kernel : str
    block_tiles : int
        How many tiles one block takes: it needs no states of tiles, and so no kernel that zeroes them.
    state_bytes : int, optional
        Of a tile's state; by default the build says it, as its fact ``"state"``.
    """

    def planner(facts: Facts) -> Callable[[int], PlanTuple]:
        tile, sms = facts["tile_items"], facts["sms"]
        state = facts["state"] if state_bytes is None else state_bytes
        most = max(1, facts.occupancy(kernel, facts["threads"], facts["shared"])) * sms

        def plan(n: int) -> PlanTuple:
            tiles = -(-n // tile)
            if tiles <= block_tiles:
                return "block", 0, (n,)
            init_grid = -(-(_TICKET_BYTES + state * tiles) // (8 * _INIT_THREADS))
            return "grid", 8 * _INIT_THREADS * init_grid, (n, min(tiles, most), init_grid)

        return plan

    return planner


def check_size(spec: Specialisation, columns: Sequence[Argument], nbytes: int) -> None:
    """Raise BuildError if so many bytes, of an item of each column, are more than tiles can be made of."""
    if nbytes > _MOST_BYTES:
        names = ", ".join(f"{each.name} (items of {each.value.itemsize} bytes)" for each in columns)
        raise BuildError(
            f"{names}: too large for {spec.algorithm}, which takes {_MOST_BYTES} bytes at most; make the "
            "struct smaller, or give indices in their place, and read the items through a "
            "cupar.PermutationIterator"
        )
