"""A kernel for one tuple of types: what was built for it, loaded where it is launched."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from ctypes import addressof, byref, c_int, c_size_t, c_void_p
from typing import Any

from .._base import trace
from .._base.causes import brief
from .._call.algorithm import Algorithm
from .._call.code import Loaded
from .._device import driver
from .._device.kernels import Executable, Library, device_facts
from .._ir.cpp import kernel_symbol
from .._ir.specialisation import Specialisation
from .._ir.types import Array, Item, Type
from .._kernels.family import Family
from .._kernels.image import Image
from .._obtain.target import parse_cc
from .configuration import COOPERATIVE, Configuration, attributes_of
from .packing import Memory, Packing
from .tensors import Guard

_ONE = "kernel"  # the shape of all kernels: a launch
_EXECUTABLES = 8
_FAMILY = Family("", ("cooperative",), lambda spec: {}, lambda facts: lambda problem: (_ONE, 0, ()))

# Takes what is packed, how it is launched, and the stream's handle.
Enqueue = Callable[[bytes, Configuration, int], None]

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
    """Return the types of what a launch hands over: of captured arrays, then of parameters."""
    ((_, op),) = spec.operators
    captured: list[Type] = [Array(Item.of(each.dtype), each.ndim, "C") for each in op.captures]
    return [*captured, *(each.type for each in spec.parameters)]


class LoadedKernel(Loaded):
    """A kernel in one context."""

    overlaps = False  # as a graph: nothing is before it

    def __init__(
        self, spec: Specialisation, image: Image, arrays: Sequence[str], context: driver.Context
    ) -> None:
        ((_, op),) = spec.operators
        own, self.name = kernel_symbol(op.name), op.name
        library = Library(image.cubin, [own], f"loading the code of kernel {op.name} for sm_{spec.cc}")
        self.function = library.functions[own]
        self._symbol = own
        self.packing = Packing.of(all_types(spec))
        self.pack = struct.Struct(self.packing.format).pack
        self.is_cooperative = bool(image.facts.get("cooperative"))
        with library.kept():
            carveout = spec.option("shared_memory_carveout")
            if carveout is not None:
                driver.call("cuFuncSetAttribute", self.function, _CARVEOUT, c_int(carveout))
            self.attributes = {name: self._attribute(number) for name, number in ATTRIBUTES.items()}
            self.device = device_facts(context.device)
            executables = 0 if self.is_cooperative else _EXECUTABLES
            self.chains = {_ONE: self}
            self._begin(library, context, {_ONE: executables})

    def _attribute(self, number: int) -> int:
        value = c_int()
        driver.call("cuFuncGetAttribute", byref(value), c_int(number), self.function)
        return value.value

    def check(self, config: Configuration) -> None:
        """Raise ValueError if the kernel cannot be launched so on this card."""
        found = self.attributes
        most, registers = found["max_threads_per_block"], found["regs_per_thread"]
        config.check(self.name, most, registers, found["shared_mem_per_block"], self.device["shared_memory"])
        if config.cluster is not None:
            driver.call("cuFuncSetAttribute", self.function, _NON_PORTABLE_CLUSTERS, c_int(1))
        if self.is_cooperative:
            blocks = config.grid[0] * config.grid[1] * config.grid[2]
            at_once = self.most_blocks(config.threads, config.shared)
            if blocks > at_once:
                raise ValueError(
                    f"grid: has {blocks} blocks, and kernel {self.name} waits for its whole grid, of which "
                    f"{at_once} blocks run at once on this card: see max_cooperative_grid_blocks"
                )

    def most_blocks(self, threads: int, shared: int) -> int:
        """Return how many blocks run at once on the card."""
        return self._library.occupancy(self._symbol, threads, shared) * self.device["sms"]

    def best_block(self, shared: int) -> int:
        """Return how many threads in a block make the most of the card."""
        grid, block = c_int(), c_int()
        ask = "cuOccupancyMaxPotentialBlockSize"
        driver.call(ask, byref(grid), byref(block), self.function, None, c_size_t(shared), c_int(1024))
        return block.value

    # --- As a chain of launches, see `Chain` -------------------------------------------------------------

    def memories(self) -> list[Memory]:
        """Return what the driver reads of its launches."""
        return [Memory(self.packing, self.function)]

    def filler(self, executable: Executable, nodes: Iterable[c_void_p]) -> Callable[..., None]:
        """Return what sets the parameters of the graph's next node, and launches nothing."""
        memory, node = self.memories()[0], next(iter(nodes))
        set_params, params = driver.library().cuGraphExecKernelNodeSetParams_v2, byref(memory.params)

        def fill(bound: tuple[bytes, Configuration], address: int, numbers: tuple[int, ...]) -> None:
            memory.view[:], config = bound
            config.write(memory.params)
            driver.check(set_params(executable.handle, node, params), "cuGraphExecKernelNodeSetParams")

        return fill

    def enqueuer(self, executable: Executable | None, stream: int) -> Enqueue:
        """Return what launches it: as that graph, on that stream; or by itself, on any.

        It is for one thread at a time.
        """
        memory = self.memories()[0]
        made = self._single(memory) if executable is None else self._graph(memory, executable, stream)
        made = trace.ranged(made, self.name)
        if not trace.is_on():
            return made

        def enqueue(packed: bytes, config: Configuration, stream: int) -> None:
            self.trace((packed, config), (), stream)
            made(packed, config, stream)

        return enqueue

    def trace(self, bound: tuple[bytes, Configuration], numbers: tuple[int, ...], stream: int) -> None:
        """Print a launch."""
        config = bound[1]
        trace.launch(self.name, config.grid, config.block, config.shared, stream)

    def _graph(self, memory: Memory, executable: Executable, stream: int) -> Enqueue:
        library, fail = driver.library(), driver.check
        set_params, launch = library.cuGraphExecKernelNodeSetParams_v2, library.cuGraphLaunch
        handle, node, where = executable.handle, executable.nodes[0], c_void_p(stream)
        view, params, reference = memory.view, memory.params, byref(memory.params)
        last: bytes | None = None
        last_config: Configuration | None = None

        def enqueue(packed: bytes, config: Configuration, stream: int) -> None:
            nonlocal last, last_config
            if packed != last or config is not last_config:
                last = None  # if this is interrupted, there is some of both
                view[:] = packed
                if config is not last_config:
                    last_config = None
                    config.write(params)
                if status := set_params(handle, node, reference):
                    fail(status, "cuGraphExecKernelNodeSetParams")
                last, last_config = packed, config
            if status := launch(handle, where):
                fail(status, "cuGraphLaunch")

        enqueue.__dict__["memory"] = memory  # of which the driver reads what is not in `view` and `params`
        return enqueue

    def _single(self, memory: Memory) -> Enqueue:
        launch, fail, function = driver.library().cuLaunchKernelEx, driver.check, self.function
        view, target, reference, pointers = memory.view, memory.config, byref(memory.config), memory.pointers
        own = (COOPERATIVE,) if self.is_cooperative else ()
        last_config: Configuration | None = None
        kept: Any = memory  # and the attributes of the launch before, which the driver reads

        def enqueue(packed: bytes, config: Configuration, stream: int) -> None:
            nonlocal last_config, kept
            view[:] = packed
            if config is not last_config:
                last_config = None
                config.write(target)
                attributes = attributes_of((*own, *config.attributes))
                target.count, target.attributes = len(attributes), addressof(attributes)
                last_config, kept = config, (memory, attributes)
            target.stream = stream
            if status := launch(reference, function, pointers, None):
                fail(status, "cuLaunchKernelEx")

        return enqueue


class _Taken:
    """An executable that is given back when nobody uses it."""

    def __init__(self, loaded: LoadedKernel, executable: Executable) -> None:
        self._given = loaded, executable

    def __del__(self) -> None:
        try:
            loaded, executable = self._given
            loaded.give_back(_ONE, executable)
        except Exception:
            pass


class Overload(Algorithm, family=_FAMILY, uses={}):
    """A kernel for one tuple of argument types and one compute capability.

    Kernels have them in `overloads`, and `compile` returns them.

    Attributes
    ----------
    build : Build
        Where its code came from.
    """

    _loaded = LoadedKernel

    def __init__(self, source: Any, states: Any) -> None:
        super().__init__(source, states)
        self.written: dict[Any, Callable[..., Any]] = {}  # what makes functions that launch it
        # Which arguments are tensors that are checked at once, and what does it; None before there
        # were tensors.
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

    def _new_call(self, context: driver.Context, number: int | None, stream: int) -> Any:
        loaded: Any = self._code.loaded(context)
        may_be_graph = number == 0 or (number is not None and driver.is_plain(stream))
        executable = loaded.take(_ONE) if may_be_graph else None
        enqueue = loaded.enqueuer(executable, stream)
        if executable is not None:
            enqueue.__dict__["taken"] = _Taken(loaded, executable)
        return enqueue

    def take(self, handle: int, alone: bool) -> tuple[Enqueue, list[Enqueue]]:
        """Return what launches it on a stream and is free, and the list that it goes back to.

        If `alone`, it is launched by itself and not as a graph.
        """
        found: Any
        if not alone:
            found = self._take(handle)
            return found  # type: ignore[no-any-return]
        self._check_may_be_called()
        context = driver.current_context()
        free: list[Any] = self._free[2].setdefault(context.number, [])
        try:
            return free.pop(), free
        except IndexError:
            with driver.relaxed_capture_mode():
                return self._new_call(context, None, handle), free

    @property
    def attributes(self) -> dict[str, int]:
        """What each thread and block uses: registers, bytes of shared, constant and local memory.

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
        """How many threads a block can have."""
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
            raise ValueError(f"cc: this was compiled for {self._spec.cc}, got {cc!r}: compile it for that")
        return self.build.ptx()

    def inspect_sass(self) -> str:
        """Return its GPU code as text, as ``nvdisasm`` shows it."""
        return self.build.sass()

    def is_loaded_here(self) -> bool:
        """Whether it is loaded in the current context."""
        return self.is_built and driver.current_context() in self._code.contexts

    def best_block(self, shared: int = 0) -> int:
        """Return how many threads in a block make the most of the current device."""
        return self.loaded.best_block(shared)

    def max_cooperative_grid_blocks(self, block: Any, shared: int = 0) -> int:
        """Return how many blocks run at once on the current device, of so many threads each."""
        return self.loaded.most_blocks(Configuration(1, block, shared).threads, shared)
