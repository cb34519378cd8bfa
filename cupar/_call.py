"""What one call of an algorithm needs: the bindings' objects, and what checks and sets its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _arrays, _cccl, _driver, _fork, iterators
from ._arguments import initial_value, item_count
from ._key import Specialisation
from ._nodes import Argument

if TYPE_CHECKING:
    from ._algorithm import Algorithm

State = Callable[[], bytes]
Arrays = Sequence[tuple[Any, int]]  # each with the number of its items that a call uses
Request = tuple[Arrays, Any, Any]  # arrays, how much there is to do, and the initial value
Launch = Callable[[int, int, Any, int], int]


class Code:
    """A build's code: serialised, and loaded for the device once it is needed there."""

    def __init__(self, spec: Specialisation, blob: bytes) -> None:
        self.spec = spec
        self._blob = blob
        self._natives: dict[int, Any] = {}  # by device
        self._known: set[int] = set()  # devices on which all its kernels are loaded
        self._lock = _fork.Lock()

    def native(self, device: _driver.Device) -> Any:
        """Return the bindings' object, loaded for a device, which must be the current one.

        Raises
        ------
        ValueError
            If it was built for another compute capability than the device has.
        RuntimeError
            If the bindings or the driver refuse it.
        """
        with self._lock:
            if device.ordinal not in self._natives:
                cc = self.spec.cc
                # A cubin runs on its own compute capability and on later minor ones.
                if device.cc // 10 != cc // 10 or device.cc < cc:
                    raise ValueError(
                        f"cc: this {self.spec.algorithm} was built for sm_{cc}, the current device "
                        f"{device.ordinal} is sm_{device.cc}"
                    )
                with _driver.relaxed():
                    self._natives[device.ordinal] = _cccl.load(self.spec.native, self._blob)
            return self._natives[device.ordinal]

    def once_on(self, device: _driver.Device, load: Callable[[], None]) -> None:
        """Call `load`, unless that was done for this device; other threads wait until it is done."""
        with self._lock:
            if device.ordinal not in self._known:
                load()
                self._known.add(device.ordinal)

    def cubin(self) -> bytes:
        """Return the GPU code, an ELF file, for tools that inspect it."""
        return _cccl.cubin(self.spec.native, self._blob)

    def leave_behind(self) -> None:
        """Forget what is loaded: a forked process cannot use what its parent loaded, nor may it unload it."""
        _fork.keep_for_ever(self._natives)
        self._natives, self._known = {}, set()


class Call:
    """The mutable objects that one call needs: iterators with their pointers, operators, initial value.

    They belong to one call at a time, so that one algorithm object serves many threads.

    Attributes
    ----------
    native : object
        The bindings' build, loaded.
    iterators, operators : list
        The bindings' objects, in the order of the specialisation's.
    init : object or None
        The bindings' initial value.
    bind : callable
        Takes the arguments of `run`, all but the stream, in a tuple; checks and sets them, and returns how
        much there is to do.
    launch : callable
        What calls the bindings; see `Algorithm._launcher`.
    workspace : Workspace
        That of the default stream.
    free : list of Call
        Where it goes when it is free.
    """

    def __init__(self, algorithm: Algorithm, device: _driver.Device, free: list[Call]) -> None:
        code, spec = algorithm._code, algorithm._code.spec
        self.native = code.native(device)
        self.free = free
        self.workspace = _driver.default_workspace(device)
        self.iterators, setters = zip(*map(_settable, spec.arguments), strict=True)
        self.operators = [
            _cccl.operator(name, op.kind, (), op.state_size, op.state_alignment)
            for name, op in spec.operators
        ]
        self.init, set_init, memory = _settable_init(spec)
        self.bind = _binder(algorithm, self.iterators, setters, set_init, memory)
        self.launch: Launch = _not_yet
        self.last: tuple[Any, int] = (None, 0)  # how much there was to do in the last run, and its storage

    def set_states(self, states: Sequence[State | None]) -> None:
        """Set the states of operators that have one; `states` return them."""
        for op, current in zip(self.operators, states, strict=True):
            if current is not None:
                op.state = current()


def _not_yet(address: int, nbytes: int, work: Any, stream: int) -> int:
    raise NotImplementedError


def _binder(
    algorithm: Algorithm,
    iterators: Sequence[Any],
    setters: Sequence[Callable[[Any, int], None] | None],
    set_init: Callable[[Any], None],
    memory: np.ndarray[Any, Any] | None,
) -> Callable[..., Any]:
    """Return what `Call.bind` is.

    It is written out for the arguments, without a loop and, for CuPy's arrays and an initial value in a NumPy
    array, without another call: half of what cupar adds to the bindings' call would be that.
    """
    arguments = algorithm._code.spec.arguments
    names: dict[str, Any] = {
        "_addresses": _arrays.ADDRESSES,
        "_count": item_count,
        "_cupy": _arrays.CUPY,
        "_request": algorithm._request,
        "_set_init": set_init,
    }
    if algorithm._uses:
        lines, arrays, work = _declared(type(algorithm), arguments)
    else:
        unpacked = "".join(f"(array_{i}, items_{i}), " for i in range(len(arguments)))
        lines = [f"({unpacked}), work, h_init = _request(*arguments)"]
        arrays, work = [(f"array_{i}", f"items_{i}") for i in range(len(arguments))], "work"
    used = zip(arrays, arguments, iterators, setters, strict=True)
    for i, ((array, items), argument, iterator, setter) in enumerate(used):
        if not array:
            continue
        if setter is None:
            names.update({f"_pointer_{i}": iterator, f"_dtype_{i}": argument.value})
            details = f"_dtype_{i}, {items}, {argument.output}, {argument.name!r}"
            lines += [
                f"if (type({array}) in _cupy and {array}.dtype is _dtype_{i} and {array}._c_contiguous",
                f"        and {array}.size >= {items}",
                f"        and not (address := {array}.data.ptr) & {argument.value.alignment - 1}):",
                f"    _pointer_{i}.state = address",
                "else:",
                f"    _pointer_{i}.state = _addresses[type({array})]({array}, {details})",
            ]
        else:
            names[f"_set_{i}"] = setter
            lines.append(f"_set_{i}({array}, {items})")
    if "h_init" in lines[0]:
        if memory is not None and memory.dtype.names is None:
            names.update(_memory=memory, _dtype=memory.dtype, _ndarray=np.ndarray)
            lines += [
                "if type(h_init) is _ndarray and h_init.dtype is _dtype and h_init.size == 1:",
                "    _memory[0] = h_init.item()",
                "else:",
                "    _set_init(h_init)",
            ]
        else:
            lines.append("_set_init(h_init)")
    exec(_compiled("\n    ".join(["def bind(arguments):", *lines, f"return {work}"])), names)
    bind: Callable[..., Any] = names["bind"]
    return bind


_compiled = lru_cache(lambda source: compile(source, "<cupar call>", "exec"))


@lru_cache
def signature(run: Callable[..., None]) -> inspect.Signature:
    """Return that of a method `run`, without the object and the stream."""
    whole = inspect.signature(run)
    kept = [each for name, each in whole.parameters.items() if name not in ("self", "stream")]
    return whole.replace(parameters=kept)


def _declared(
    cls: type[Algorithm], arguments: Sequence[Argument]
) -> tuple[list[str], list[tuple[str, str]], str]:
    """Return first lines, arrays with their items, and work of a call that is declared."""
    uses = cls._uses
    counts = dict.fromkeys(count for count in uses.values() if isinstance(count, str))
    lines = [f"{', '.join(signature(cls.run).parameters)} = arguments"]
    lines += [
        f"if type({count}) is not int or {count} < 0: {count} = _count({count!r}, {count})"
        for count in counts
    ]
    built = {argument.name for argument in arguments}
    for name in uses:
        if name not in built:
            message = f"{name}: this {cls.__name__} was built without it; expected None, got "
            lines.append(f"if {name} is not None: raise TypeError({message!r} + type({name}).__name__)")
    # What is built in and is no parameter discards what is written to it, and has nothing to set.
    arrays = [(each.name, str(uses[each.name])) if each.name in uses else ("", "") for each in arguments]
    return lines, arrays, next(iter(counts))


def _settable(argument: Argument) -> tuple[Any, Callable[[Any, int], None] | None]:
    """Return the bindings' iterator of an argument and, unless it is a pointer, what sets its state."""
    if argument.is_pointer:
        return _cccl.pointer(argument.value), None
    state = bytearray(argument.node.size)

    def set_state(array: Any, items: int) -> None:
        state[:] = iterators.state_of(argument, array, items)

    return _cccl.iterator(argument.name, argument.value, state), set_state


def _settable_init(
    spec: Specialisation,
) -> tuple[Any, Callable[[Any], None], np.ndarray[Any, Any] | None]:
    """Return the bindings' initial value, what sets it to that of a call, and the memory that it is in."""
    kind = dict(spec.options).get("init")
    if kind is None:
        return None, _no_init, None
    dtype = spec.operators[0][1].output
    if kind == "device":
        pointer = _cccl.pointer(dtype)

        def set_pointer(h_init: Any) -> None:
            pointer.state = _arrays.address("h_init", h_init, dtype, 1, False)

        return pointer, set_pointer, None
    memory = np.zeros(1, dtype)

    def set_value(h_init: Any) -> None:
        memory[0] = initial_value(h_init, dtype)

    return _cccl.value(memory), set_value, memory


def _no_init(h_init: Any) -> None:
    if h_init is not None:
        raise TypeError("h_init: this algorithm was built without an initial value (h_init=None)")
