"""Calls through cuda-cccl's bindings: of segmented algorithms, whose kernels are not cupar's own yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from .._base import fork, log, trace
from .._compile import cccl
from .._device import driver, storage, stream_capture
from .._ir.specialisation import Specialisation
from . import written

# Code that nobody needs any more. To unload it spoils what other threads capture, unless the thread that does
# so is relaxed about captures; so it is done where that is so anyway.
_retired: list[Any] = []


@fork.in_child
def _forget() -> None:
    if _retired:
        fork.leak(tuple(_retired))
        _retired.clear()


class NativeCode:
    """A build's code: serialised, and loaded in a context once it is needed there."""

    def __init__(self, spec: Specialisation, blob: bytes) -> None:
        self.spec = spec
        self._blob = blob
        self._deserialised: Any = None
        self._natives: dict[driver.Context, Any] = {}
        self._loaded: set[int] = set()  # contexts in which all its kernels are loaded
        self._lock = fork.Lock()
        fork.in_child(self.abandon)

    def check(self) -> None:
        """Do what loading begins with, and what needs no GPU.

        Raises
        ------
        DamagedError
            If this is no build's code: then no GPU and no driver will load it.
        """
        with self._lock:
            if self._deserialised is None:
                self._deserialised = cccl.deserialize(self.spec.kind._native, self._blob)

    def loaded(self, context: driver.Context) -> Any:
        """Return the bindings' object, loaded in a context, which must be the current one.

        Raises
        ------
        ValueError
            If it was built for another compute capability than the device has.
        DamagedError
            If this is no build's code.
        DriverError
            If the driver refuses it, as for want of memory.
        """
        with self._lock:
            if context not in self._natives:
                context.check_runs(self.spec.algorithm, self.spec.cc)
                self.check()
                with driver.relaxed_capture_mode():
                    _retired.clear()
                    storage.retry_after_trim(
                        lambda: cccl.load(self._deserialised),
                        f"loading the code of a {self.spec.algorithm} for sm_{self.spec.cc}",
                    )
                self._natives[context], self._deserialised = self._deserialised, None
            return self._natives[context]

    def once_in(self, context: driver.Context, load: Callable[[], None]) -> None:
        """Call `load`, unless that was done in this context; other threads wait until it is done."""
        with self._lock:
            if context.number not in self._loaded:
                load()
                self._loaded.add(context.number)

    def __del__(self) -> None:
        try:
            for context, native in self._natives.items():
                if not driver.is_there(context):  # nobody can tell whether it may be touched
                    fork.leak(native)
                    continue
                _retired.append(native)
        except Exception:
            pass

    def cubin(self) -> bytes:
        """Return the GPU code, an ELF file, for tools that inspect it."""
        return cccl.cubin(self.spec.kind._native, self._blob)

    def abandon(self) -> None:
        """Forget what is loaded: a forked process cannot use what its parent loaded, nor may it unload it."""
        if self._natives:
            fork.leak(self._natives)
        self._natives, self._loaded = {}, set()


Launch = Callable[[int, int, Any, int], int]


class Caller(written.Caller, Protocol):
    """What makes calls: an algorithm object."""

    @property
    def _code(self) -> Any: ...

    def _launcher(self, call: NativeCall) -> Launch: ...

    def _sizes(self) -> Any: ...


class NativeCall:
    """The bindings' objects that one call needs: iterators with their pointers, operators, initial value.

    Attributes
    ----------
    native : object
        The bindings' build, loaded.
    iterators, operators : list
        The bindings' objects, in the order of the specialisation's.
    init : object or None
        The bindings' initial value.
    bind, memory
        As of `Call`.
    """

    problem = object()  # no call's: each is prepared
    numbers = ()

    def __init__(self, caller: Caller, context: driver.Context, number: int | None) -> None:
        self.number = number
        code: NativeCode = caller._code
        spec = caller._spec
        self.name = spec.algorithm
        self.native = code.loaded(context)
        self.memory = context.part(storage.Memory)
        self.bind: Callable[[tuple[Any, ...]], tuple[Any, ...]] = written.binder(caller)
        states = {each.name: bytearray(each.node.size) for each in spec.arguments if not each.is_pointer}
        self.iterators = [
            cccl.pointer(each.value)
            if each.is_pointer
            else cccl.iterator(each.name, each.value, states[each.name])
            for each in spec.arguments
        ]
        self.operators = [
            cccl.operator(name, op.kind, (), op.state_size, op.state_alignment) for name, op in spec.operators
        ]
        self.init, init_memory = _settable_init(spec)
        self._launch = caller._launcher(self)
        self._enqueue = trace.ranged(self._launch, spec.algorithm)
        self._is_traced = trace.is_on()
        self._settings = self._setters(written.value_names(caller), spec, states, init_memory)
        self.nbytes = 0
        code.once_in(context, lambda: self._load_kernels(caller, spec))

    def _setters(
        self, names: list[str], spec: Specialisation, states: dict[str, bytearray], init: memoryview | None
    ) -> list[Callable[[Any], None]]:
        """Return, for each value that `bind` returns, what sets the bindings' object to it."""
        objects: dict[str, Any] = {
            each.name: it for each, it in zip(spec.arguments, self.iterators, strict=True)
        }
        objects.update((name, op) for (name, _), op in zip(spec.operators, self.operators, strict=True))
        memories: dict[str, Any] = {**states, "init": init}
        setters: list[Callable[[Any], None]] = []
        for name in names:
            memory, target = memories.get(name), objects.get(name, self.init)

            def put(value: Any, memory: Any = memory, target: Any = target) -> None:
                if memory is not None:
                    memory[:] = value
                else:
                    target.state = value

            setters.append(put)
        return setters

    def _load_kernels(self, caller: Caller, spec: Specialisation) -> None:
        """Load the kernels that calls may launch, without running any, so that no later launch waits."""
        place = storage.scratch(1)
        for argument, iterator in zip(spec.arguments, self.iterators, strict=True):
            if argument.is_pointer:
                iterator.state = place
        for problem in reversed(caller._sizes()):
            self._load_size(spec.algorithm, problem)

    def _load_size(self, algorithm: str, problem: Any) -> None:
        try:
            nbytes = self._launch(0, 0, problem, 0)
            address = storage.scratch(nbytes)
            with stream_capture.discarding() as stream:
                self._launch(address, nbytes, problem, stream)
        except RuntimeError as error:  # what cannot be captured is loaded by the first call
            log.info("kernels of %s for %s items are loaded by the first call: %s", algorithm, problem, error)

    def _set(self, bound: tuple[Any, ...]) -> None:
        for put, value in zip(self._settings, bound[1:], strict=True):
            put(value)

    def prepare(self, bound: tuple[Any, ...]) -> None:
        """Set the bindings' objects to a call's values, and find out how much temporary storage it needs."""
        self._set(bound)
        self.nbytes = self._launch(0, 0, bound[0], 0)

    def enqueue(self, bound: tuple[Any, ...], address: int, numbers: tuple[int, ...], stream: int) -> None:
        """Enqueue a call that was prepared."""
        if self._is_traced:
            trace.bindings(self.name, stream)
        self._enqueue(address, self.nbytes, bound[0], stream)


def _settable_init(spec: Specialisation) -> tuple[Any, memoryview | None]:
    """Return the bindings' initial value and the memory that it is in, if it is not on the device."""
    if spec.option("init") is None:
        return None, None
    memory = np.zeros(1, spec.operators[0][1].output)
    return cccl.value(memory), memory.view(np.uint8).data
