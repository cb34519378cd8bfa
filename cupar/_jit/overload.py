"""A kernel for one tuple of types: a family with one shape, loaded where it is launched."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_int, c_size_t
from typing import Any

from .._arguments.order import ordered
from .._base.causes import brief
from .._base.errors import ArgumentValueError
from .._call.algorithm import Launchable
from .._device import driver
from .._ir.cpp import kernel_symbol
from .._ir.specialisation import Specialisation
from .._ir.types import Array, ConstantSlot, Item, Type, slots
from .._kernels.family import Emit, Family, Launch, Plan, Properties, Shape
from .._launch.chain import KERNEL, KERNEL_NUMBERS, Arguments, Layouts
from .._launch.code import Loaded
from .._launch.state import LaunchState, Read
from .._obtain.target import parse_cc
from .configuration import Configuration
from .tensors import Guard

_CARVEOUT = 9  # CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
_NON_PORTABLE_CLUSTERS = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
ATTRIBUTES = {  # CU_FUNC_ATTRIBUTE_…
    "max_threads_per_block": 0,
    "shared_mem_per_block": 1,
    "const_mem_size": 2,
    "local_mem_per_thread": 3,
    "regs_per_thread": 4,
}


def all_types(spec: Specialisation) -> list[Type]:
    """Return the types of a launch's arguments: captured arrays, then parameters."""
    ((_, op),) = spec.operators
    captured: list[Type] = [Array(Item.of(each.dtype), each.ndim, "C") for each in op.captures]
    return [*captured, *(each.type for each in spec.parameters)]


def packed_arguments(kinds: Sequence[Type]) -> tuple[str, tuple[str, ...], Arguments]:
    """Return how arguments of these types are packed: format and names of what varies, and the parameters."""
    code, places, constants = "=", [], b""
    met: dict[Any, int] = {}
    found = [slot for i, kind in enumerate(kinds) for slot in slots(kind, f"{i}_")]
    for slot in found:
        if not isinstance(slot, ConstantSlot) and slot.name not in met:
            met[slot.name] = struct.calcsize(code)
            code += slot.code
    names, size = tuple(met), struct.calcsize(code)
    for slot in found:
        key = slot if isinstance(slot, ConstantSlot) else slot.name
        if isinstance(slot, ConstantSlot) and slot not in met:
            met[slot] = size + len(constants)
            constants += struct.pack(f"={slot.code}", slot.value)
        places.append(met[key])
    return code, names, Arguments(size, tuple(places), constants)


def _shapes(spec: Specialisation) -> Mapping[str, Shape]:
    (grid, block), (*_, arguments) = (
        (KERNEL_NUMBERS[:3], KERNEL_NUMBERS[3:6]),
        packed_arguments(all_types(spec)),
    )
    symbol: Any = kernel_symbol(spec.operators[0][1].name)
    launch = Launch(symbol, grid, block, (arguments,), "shared")  # type: ignore[arg-type]
    return {KERNEL: Shape(KERNEL_NUMBERS, (launch,))}


def _planner(given: Properties) -> tuple[Plan, bool]:
    return _plan, bool(given.get("cooperative"))


def _plan(is_cooperative: bool, config: Configuration, emit: Emit) -> int:
    # Called for bound launches alone: launch sites take the numbers of their configuration once.
    emit(0, config.numbers(is_cooperative))
    return 0


FAMILY = Family("", ("cooperative",), (KERNEL,), _shapes, _planner)


class LoadedKernel(Loaded):
    """A kernel in one context."""

    def _prepare(self, spec: Specialisation) -> None:
        ((self._symbol, self.function),) = self._library.functions.items()
        code, self.names, self._arguments = packed_arguments(all_types(spec))
        self.pack = struct.Struct(code).pack
        carveout = spec.option("shared_memory_carveout")
        if carveout is not None:
            driver.call("cuFuncSetAttribute", self.function, _CARVEOUT, c_int(carveout))
        self.attributes = {name: self._attribute(number) for name, number in ATTRIBUTES.items()}

    def _layouts(self, spec: Specialisation, arrays: Sequence[str]) -> Layouts:
        return Layouts({"arguments": (self._arguments.size, 8)})

    @property
    def is_cooperative(self) -> bool:
        """Whether it waits for its whole grid."""
        return bool(self.facts)

    def _attribute(self, number: int) -> int:
        value = c_int()
        driver.call("cuFuncGetAttribute", byref(value), c_int(number), self.function)
        return value.value

    def check(self, config: Configuration) -> None:
        """Raise ValueError if the kernel cannot be launched so on this card."""
        found = self.attributes
        most, registers = found["max_threads_per_block"], found["regs_per_thread"]
        shared = found["shared_mem_per_block"], self.properties["shared_memory"]
        config.check(self.name, most, registers, *shared)
        if config.cluster is not None:
            driver.call("cuFuncSetAttribute", self.function, _NON_PORTABLE_CLUSTERS, c_int(1))
        if self.is_cooperative:
            blocks = config.grid[0] * config.grid[1] * config.grid[2]
            at_once = self.most_blocks(config.threads, config.shared)
            if blocks > at_once:
                raise ArgumentValueError(
                    "grid",
                    f"has {blocks} blocks, and kernel {self.name} waits for its whole grid, of which "
                    f"{at_once} blocks run at once on this card: see max_cooperative_grid_blocks",
                )

    def most_blocks(self, threads: int, shared: int) -> int:
        """Return the number of resident blocks on the card."""
        return self._library.occupancy(self._symbol, threads, shared) * self.properties["sms"]

    def best_block(self, shared: int) -> int:
        """Return the size of a block with which most threads run at once on the card."""
        grid, block = c_int(), c_int()
        ask = "cuOccupancyMaxPotentialBlockSize"
        driver.call(ask, byref(grid), byref(block), self.function, None, c_size_t(shared), c_int(1024))
        return block.value


class Overload(Launchable):
    """A kernel for one tuple of argument types and one compute capability.

    Kernels have them in `overloads`, and `compile` returns them.

    Attributes
    ----------
    build : Build
        Where its code came from.
    """

    _family, _loaded = FAMILY, LoadedKernel

    def __init__(self, source: Any, states: Any) -> None:
        super().__init__(source, states)
        self.launchers: dict[Any, Callable[..., Any]] = {}  # see `site`
        # Which arguments are tensors that are checked in one call, and the check; None before the first.
        self.guarded: tuple[tuple[int, ...], Guard | None] | None = None

    @property
    def types(self) -> tuple[Type, ...]:
        """The types of its parameters."""
        return tuple(each.type for each in self._spec.parameters)

    @property
    @brief
    def loaded(self) -> LoadedKernel:
        """Its code in the current context."""
        found: Any = self._code.loaded(driver.current_context())
        return found  # type: ignore[no-any-return]

    def free_states(self, table: int) -> Any:
        """Return a table of free launch states: of the default stream, of other streams, or of any."""
        return self._free[table]

    def _call_reader(self, lend: Any) -> Callable[..., Read]:
        return tuple  # never called: launch sites pack arguments themselves, and `BoundKernel` sets its own

    def _new_state(self, context: driver.Context, number: int | None, stream: int) -> LaunchState:
        state = super()._new_state(context, number, stream)
        state.select(0)
        return state

    def completed(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        return ordered(
            self._spec.operators[0][1].name, [e.name for e in self._spec.parameters], arguments, named
        )

    @property
    def attributes(self) -> dict[str, int]:
        """Resources of each thread and block: registers, bytes of shared, constant and local memory.

        Raises
        ------
        NoDeviceError
            If there is no GPU.
        """
        self._check_may_be_called()
        return dict(self.loaded.attributes)

    @property
    def regs_per_thread(self) -> int:
        """Registers of a thread, on the current device."""
        return self.attributes["regs_per_thread"]

    @property
    def const_mem_size(self) -> int:
        """Bytes of constant memory."""
        return self.attributes["const_mem_size"]

    @property
    def shared_mem_per_block(self) -> int:
        """Bytes of a block's shared memory that is not dynamic."""
        return self.attributes["shared_mem_per_block"]

    @property
    def local_mem_per_thread(self) -> int:
        """Bytes of a thread's local memory."""
        return self.attributes["local_mem_per_thread"]

    @property
    def max_threads_per_block(self) -> int:
        """The most threads that a block can have."""
        return self.attributes["max_threads_per_block"]

    @property
    def cooperative(self) -> bool:
        """Whether it waits for its whole grid, so that all blocks must run at once, on the current device."""
        self._check_may_be_called()
        return self.loaded.is_cooperative

    def inspect_llvm(self) -> str:
        """Return its LLVM IR, for which it is compiled again."""
        return self.build.llvm()["kernel"]

    def inspect_asm(self, cc: Any = None) -> str:
        """Return the PTX of all that is linked, for its own compute capability."""
        if cc is not None and parse_cc(cc) != self._spec.cc:
            raise ArgumentValueError(
                "cc", f"this was compiled for {self._spec.cc}, got {cc!r}: compile it for that"
            )
        return self.build.ptx()

    def inspect_sass(self) -> str:
        """Return its GPU code as text, as ``nvdisasm`` shows it."""
        return self.build.sass()

    def is_loaded_here(self) -> bool:
        """Whether it is loaded in the current context."""
        return self.is_built and driver.current_context() in self._code.contexts

    def best_block(self, shared: int = 0) -> int:
        """Return the size of a block with which most threads run at once on the current device."""
        return self.loaded.best_block(shared)

    def max_cooperative_grid_blocks(self, block: Any, shared: int = 0) -> int:
        """Return the number of resident blocks with some number of threads on the current device."""
        return self.loaded.most_blocks(Configuration(1, block, shared).threads, shared)
