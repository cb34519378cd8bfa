"""A build's code: as stored, and as loaded in the contexts that call it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from .._base import fork
from .._base.words import OFF
from .._device import driver, storage
from .._device.kernels import Executable, Library, device_properties
from .._ir.specialisation import Specialisation
from .._kernels.family import Plan, Properties
from .._kernels.image import Image
from .chain import Chain, Layouts, executable_of

# Code that is no longer used. Unloading it would end captures of other threads, unless this thread's capture
# mode is relaxed; so it waits until code is loaded, which sets that mode.
_retired: list[Library] = []


def _may_be_graphs() -> bool:
    """Whether calls may be launched as graphs: unless each launch is waited for, to see which one fails."""
    off = os.environ.get("CUPAR_GRAPHS", "").strip().lower() in OFF
    return not off and os.environ.get("CUDA_LAUNCH_BLOCKING", "0").strip() in ("", "0")


# Executable graphs per shape that are made when code is loaded, at most: making one later may wait for the
# GPU, as the driver waits for all running work where its memory for graphs is used up (seen on an H200 with
# each 43rd graph). Half of them are for the first streams alone; others take further ones: see `Executables`.
_EXECUTABLES = 8 if _may_be_graphs() else 0
# In a context; 48 kB of device memory each, on an H200. A shape gets its first one up to the larger number of
# all, and further ones up to the smaller.
_MOST_EXECUTABLES, _FEW_EXECUTABLES = 4096, 2048


@fork.in_child
def _forget() -> None:
    if _retired:
        fork.leak(tuple(_retired))
        _retired.clear()


class _Count:
    """The number of executables of a context."""

    def __init__(self, context: driver.Context) -> None:
        self.made = 0


class Loaded:
    """Code in one context: its kernels, its plan, and executables that wait for a stream.

    Attributes
    ----------
    name : str
        The algorithm's or kernel's.
    plan : callable
        The family's; see `family`.
    facts : tuple
        The plan's facts of the build and this device.
    properties : dict
        Properties of the build and of this device, from which the facts are made.
    shape_names : tuple of str
        Of the family, by the numbers that the plan emits.
    chains : dict
        The build's shapes by name.
    executables : dict
        How many of each are made at most; 0: it is launched kernel by kernel.
    """

    def __init__(
        self, spec: Specialisation, image: Image, arrays: Sequence[str], context: driver.Context
    ) -> None:
        family, self._context = spec.family, context
        assert family is not None
        shapes = family.shapes(spec)
        kernels = dict.fromkeys(launch.kernel for shape in shapes.values() for launch in shape.launches)
        self.name: str = spec.operators[0][1].name if spec.is_kernel else spec.algorithm
        subject = f"kernel {self.name}" if spec.is_kernel else f"a {self.name}"
        subject = f"loading the code of {subject} for sm_{spec.cc}"
        self._library = library = Library(image.cubin, [*kernels], subject)
        with library.kept():
            found = Properties({**image.properties, **device_properties(context.device)}, library.occupancy)
            self.properties: Properties = found
            self.shape_names: Any = family.names
            self.plan: Plan
            self.facts: Any
            self.plan, self.facts = family.planner(found)
            self._prepare(spec)
            values, overlaps = self._layouts(spec, arrays), spec.cc >= 90 and not spec.is_kernel
            name = self.name * spec.is_kernel
            self.chains: dict[str, Chain] = {}
            for each, shape in shapes.items():
                functions = [library.functions[launch.kernel] for launch in shape.launches]
                self.chains[each] = Chain(shape, values, found, functions, overlaps, name)
            # A kernel that waits for its grid is no graph.
            most = 0 if found.get("cooperative") else _EXECUTABLES
            self.executables: dict[str, int] = {
                name: min(each.executables, most) for name, each in shapes.items()
            }
            self._make_executables(self.executables)

    def _prepare(self, spec: Specialisation) -> None:
        """Set driver attributes of the kernels, before graphs are made."""

    def _layouts(self, spec: Specialisation, arrays: Sequence[str]) -> Layouts:
        return Layouts.of(spec, arrays)

    def _make_executables(self, executables: Mapping[str, int]) -> None:
        """Make executables of the chains, at most some number of each."""
        context, self._count = self._context, self._context.part(_Count)
        self._keeps_spares = True
        self._spare: dict[str, list[Executable]] = {name: [] for name in self.chains}
        self._released = dict.fromkeys(self.chains, 0)
        if not context.is_primary:  # whether another context was destroyed cannot be found out
            return
        context.part(storage.ContextMemory).graphs.add(self)
        try:
            for name in self.chains:
                while len(self._spare[name]) < executables[name] and self._may_be_made(
                    bool(self._spare[name])
                ):
                    self._spare[name].append(self._new(name))
        except BaseException:
            self.release_spares()
            raise

    def _may_be_made(self, is_another: bool) -> bool:
        return self._count.made < (_FEW_EXECUTABLES if is_another else _MOST_EXECUTABLES)

    def _new(self, shape: str) -> Executable:
        made = executable_of([self.chains[shape]])
        self._count.made += 1
        return made

    def take(self, shape: str) -> Executable | None:
        """Take a free executable of a shape; None if all are taken."""
        try:
            return self._spare[shape].pop()
        except IndexError:
            if not self._released[shape] or not self._may_be_made(is_another=False):
                return None
        self._released[shape] -= 1
        with suppress(driver.DriverError), driver.relaxed_capture_mode():
            return self._new(shape)
        return None  # out of memory: kernels are launched one by one

    def take_another(self, shape: str) -> Executable | None:
        """Take a further executable for a stream that has one; None if other streams may need the rest."""
        return self.take(shape) if len(self._spare[shape]) > self.executables[shape] // 2 else None

    def give_back(self, shape: str, executable: Executable) -> None:
        """Give back an executable."""
        if self._keeps_spares:
            self._spare[shape].append(executable)
        else:
            self._destroy([executable])

    def release_spares(self) -> None:
        """Destroy unused executables, and those in use when they are given back."""
        self._keeps_spares = False
        for spares in self._spare.values():
            self._destroy(storage.taken(spares))

    def _release(self, context: driver.Context) -> None:
        """Destroy unused executables; `take` makes as many anew, when calls need them."""
        for shape, spares in self._spare.items():
            taken = storage.taken(spares)
            self._destroy(taken)
            self._released[shape] += len(taken) if self._keeps_spares else 0

    def _destroy(self, executables: Sequence[Executable]) -> None:
        for each in executables:
            each.destroy()
        self._count.made -= len(executables)

    def retire(self) -> None:
        """Queue it to be unloaded at the next load."""
        spares = [each for spares in self._spare.values() for each in storage.taken(spares)]
        if not driver.is_there(self._context):  # its context may have been destroyed, and the code with it
            fork.leak((self._library, spares))
            return
        self._destroy(spares)
        _retired.append(self._library)

    def abandon(self) -> None:
        """Leave its resources to the parent process."""
        fork.leak((self._library, self._spare))
        self._spare = {}


class Code:
    """A build's code, loaded in a context once it is needed there."""

    def __init__(self, spec: Specialisation, blob: bytes) -> None:
        self.spec = spec
        self._blob = blob
        self._loaded: dict[driver.Context, Loaded] = {}
        self._lock = fork.Lock()
        fork.in_child(self.abandon)

    def check(self) -> int:
        """Return the bytes of GPU code; raise DamagedError if this is no build's: then no driver loads it."""
        return len(Image.loads(self._blob).cubin)

    def loaded(self, context: driver.Context) -> Loaded:
        """Return it loaded in a context, which must be the current one.

        Raises
        ------
        ValueError
            If it was built for another compute capability than the device has.
        DamagedError
            If this is no build's code.
        DriverError
            If the driver fails, as when memory is exhausted.
        """
        found = self._loaded.get(context)
        if found is not None:
            return found
        with self._lock:
            found = self._loaded.get(context)
            if found is None:
                context.check_runs(self.spec.algorithm, self.spec.cc)
                with driver.relaxed_capture_mode():
                    while _retired:
                        _retired.pop().unload()
                    image, arrays = Image.loads(self._blob), [*self.spec.algorithm_class._uses]
                    found = self.spec.algorithm_class._loaded(self.spec, image, arrays, context)
                self._loaded[context] = found
            return found

    @property
    def contexts(self) -> list[driver.Context]:
        """Where it is loaded."""
        return list(self._loaded)

    def release_spares(self, context: driver.Context) -> None:
        """Destroy spare executables, as other code replaces this."""
        self._loaded[context].release_spares()

    def __del__(self) -> None:
        try:
            for loaded in self._loaded.values():
                loaded.retire()
        except Exception:
            pass

    @property
    def blob(self) -> bytes:
        """The stored bytes of the build."""
        return self._blob

    def cubin(self) -> bytes:
        """Return the GPU code, an ELF file, for tools that inspect it."""
        return Image.loads(self._blob).cubin

    def abandon(self) -> None:
        """Forget loaded code: a forked process can neither use nor unload its parent's."""
        for loaded in self._loaded.values():
            loaded.abandon()
        self._loaded = {}
