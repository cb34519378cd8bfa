"""Calls through cuda-cccl's bindings: of segmented algorithms, whose kernels are not cupar's own yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from .._base import log
from .._compile import cccl
from .._compile.specialisation import Specialisation
from .._device import driver, storage, stream_capture
from . import written
from .native_code import NativeCode

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
            try:
                nbytes = self._launch(0, 0, problem, 0)
                address = storage.scratch(nbytes)
                with stream_capture.discarding() as stream:
                    self._launch(address, nbytes, problem, stream)
            except RuntimeError as error:  # what cannot be captured is loaded by the first call
                message = "kernels of %s for %s items are loaded by the first call: %s"
                log.info(message, spec.algorithm, problem, error)

    def _set(self, bound: tuple[Any, ...]) -> None:
        for put, value in zip(self._settings, bound[1:], strict=True):
            put(value)

    def prepare(self, bound: tuple[Any, ...]) -> None:
        """Set the bindings' objects to a call's values, and find out how much temporary storage it needs."""
        self._set(bound)
        self.nbytes = self._launch(0, 0, bound[0], 0)

    def enqueue(self, bound: tuple[Any, ...], address: int, numbers: tuple[int, ...], stream: int) -> None:
        """Enqueue a call that was prepared."""
        self._launch(address, self.nbytes, bound[0], stream)


def _settable_init(spec: Specialisation) -> tuple[Any, memoryview | None]:
    """Return the bindings' initial value and the memory that it is in, if it is not on the device."""
    if spec.option("init") is None:
        return None, None
    memory = np.zeros(1, spec.operators[0][1].output)
    return cccl.value(memory), memory.view(np.uint8).data
