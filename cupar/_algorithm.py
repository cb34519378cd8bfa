"""What all algorithm objects share: loaded code, and the phases of a call."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _arrays, _capture, _cccl, _driver, _fork, _nodes, iterators
from ._arguments import initial_value, item_count
from ._key import Specialisation
from ._nodes import Argument
from .operators import CapturedState


@dataclass(frozen=True)
class Build:
    """Where an algorithm's code came from, and what that cost.

    Attributes
    ----------
    algorithm : str
        As in ``"reduce_into"``.
    key : str
        Of the build in the cache: a SHA-256 in hexadecimal.
    cc : int
        Compute capability it is for, as in 90.
    origin : {"memory", "disk", "linked", "built"}
        ``"linked"``: the kernels were in the cache and only the operator was new.
    seconds : mapping of str to float
        By stage. ``"read"`` and ``"load"`` of a build that was found; ``"template"``, ``"operator"``,
        ``"link"`` or ``"compile"`` of one that was made.
    cubin_size : int
        Bytes of GPU code: an ELF file, as `Algorithm.cubin` returns it.
    source : str
        Where a build that was kept was found, as the path or URL of a directory, bundle or store; empty if
        it was made.
    """

    algorithm: str
    key: str
    cc: int
    origin: str
    seconds: Mapping[str, float] = field(hash=False)
    cubin_size: int
    source: str = ""


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


if TYPE_CHECKING:
    from concurrent.futures import Future

_generation = 0  # of this process: how many forks it is from the first


def _after_fork() -> None:
    global _generation
    _generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


_CUPY = _arrays.CUPY
_this_thread = _driver.this_thread

State = Callable[[], bytes]
Arrays = Sequence[tuple[Any, int]]  # each with the number of its items that a call uses
Request = tuple[Arrays, Any, Any]  # arrays, how much there is to do, and the initial value
Launch = Callable[[int, int, Any, int], int]


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
def _signature(run: Callable[..., None]) -> inspect.Signature:
    """Return that of a method `run`, without the object and the stream."""
    signature = inspect.signature(run)
    kept = [each for name, each in signature.parameters.items() if name not in ("self", "stream")]
    return signature.replace(parameters=kept)


def _declared(
    cls: type[Algorithm], arguments: Sequence[Argument]
) -> tuple[list[str], list[tuple[str, str]], str]:
    """Return first lines, arrays with their items, and work of a call that is declared."""
    uses = cls._uses
    counts = dict.fromkeys(count for count in uses.values() if isinstance(count, str))
    lines = [f"{', '.join(_signature(cls.run).parameters)} = arguments"]
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


class Algorithm:
    """An algorithm for given types, operator and device. Made by the factories, not by its constructor.

    Each kind says what its call's arguments are (`uses`, or `_request` if that is not enough) and how the
    bindings want them (`_launcher`).

    Attributes
    ----------
    build : Build
        Where its code came from.
    """

    _needs_storage = True
    _uses: Mapping[str, str | int] = {}
    _pending: tuple[Specialisation, Future[Any]]  # of one that is built in the background

    def __init_subclass__(cls, *, uses: Mapping[str, str | int] | None = None) -> None:
        """Declare how many items of each array a call uses.

        Parameters
        ----------
        uses : mapping, optional
            For each parameter of `run` that is an array, a number or the parameter that is one. That one is
            how much there is to do. Without it, `_request` says all this.
        """
        cls._uses = uses or {}

    def __init__(self, code: Code, build: Build, states: Sequence[State | None]) -> None:
        self.build = build
        self._code = code
        self._states = states if any(states) else ()
        self._free: list[Call] = []  # of the only device; with several devices:
        self._free_by_device: dict[int, list[Call]] = {}
        self._generation = _generation

    @classmethod
    def pending(cls, spec: Specialisation, future: Future[Any]) -> Any:
        """Return an object whose code is being built: `future` gives another with that code."""
        self = object.__new__(cls)
        states = tuple(op.state for _, op in spec.operators)
        self._states = states if any(states) else ()
        self._free, self._free_by_device = [], {}
        self._generation = _generation
        self._pending = spec, future
        return self

    def __getattr__(self, name: str) -> Any:
        # Of a pending object, these two are not there yet.
        if name not in ("build", "_code") or "_pending" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        spec, future = self._pending
        if self._generation == _generation:
            built = future.result()
        else:  # in a forked process, whose parent has the thread that builds
            from . import _factory

            built = _factory.obtain(type(self), spec, None)
        self._code, self.build = built._code, built.build
        return self.__dict__[name]

    def ready(self, timeout: float | None = None) -> bool:
        """Wait until the code is built, if that was begun in the background.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most; by default as long as it takes.

        Returns
        -------
        bool
            Whether it is built.

        Raises
        ------
        TypeError, BuildError
            Whatever the factory would have raised, had it waited.
        """
        if "build" not in self.__dict__:
            from concurrent.futures import wait

            if self._generation != _generation:
                return self.build is not None  # which builds it anew
            if wait([self._pending[1]], timeout).not_done:
                return False
            self._pending[1].result()
        return True

    def __repr__(self) -> str:
        if "build" not in self.__dict__ and not self._pending[1].done():
            return f"<cupar {type(self).__name__} that is being built>"
        spec = self._code.spec
        types = ", ".join(f"{each.name}: {_nodes.description(each.given)}" for each in spec.arguments)
        operators = "".join(f", {name}: {op.name}" for name, op in spec.operators)
        return f"<cupar {spec.algorithm}({types}{operators}) for sm_{spec.cc}, {self.build.origin}>"

    @property
    def has_state(self) -> bool:
        """Whether an operator has state, such as captured device arrays: then this object is its own."""
        return bool(self._states)

    def cubin(self) -> bytes:
        """Return the GPU code, an ELF file such as ``nvdisasm`` and ``cuobjdump`` read. Needs no GPU."""
        return self._code.cubin()

    run: Callable[..., None]

    def _request(self, *arguments: Any, **named: Any) -> Request:
        """Check the arguments of `run`, all but the stream, and say what they ask for, unless `uses` does."""
        raise NotImplementedError

    def _launcher(self, call: Call) -> Launch:
        """Return what calls the bindings with what a `Call` holds.

        It takes the address and the bytes of the temporary storage (address 0 asks how much is needed), how
        much there is to do (the second part of a request), and the stream's handle.
        """
        raise NotImplementedError

    def _take(self) -> Call:
        """Return a call that is free; it goes back to its own list of free ones."""
        try:
            _this_thread.has_the_only_device  # noqa: B018 - or it is not there
            return self._free.pop()
        except (AttributeError, IndexError):
            pass
        if self._generation != _generation:
            _fork.keep_for_ever((self._free, self._free_by_device))
            self._free, self._free_by_device = [], {}
            self._code.leave_behind()
            self._generation = _generation
        device = _driver.current_device()
        only = hasattr(_this_thread, "has_the_only_device")
        free = self._free if only else self._free_by_device.setdefault(device.ordinal, [])
        try:
            return free.pop()
        except IndexError:
            with _driver.relaxed():
                call = Call(self, device, free)
                call.launch = self._launcher(call)
                self._code.once_on(device, lambda: self._load_kernels(call))
            return call

    def load(self) -> None:
        """Load all of its code onto the current device, so that no call waits for that.

        Raises
        ------
        ValueError
            If it was built for another compute capability than the device has.
        NoDeviceError
            If there is no GPU.
        """
        call = self._take()
        call.free.append(call)

    def _load_kernels(self, call: Call) -> None:
        """Load the kernels that calls may launch, without running any.

        With lazy loading, CUDA's default, a kernel is loaded at its first launch, which then waits until the
        GPU is idle: half a second behind a kernel of half a second, for ever behind one that a later call
        ends. To capture a launch loads the kernel too, and waits for nothing.
        """
        place = _driver.scratch(1)
        for argument, iterator in zip(self._code.spec.arguments, call.iterators, strict=True):
            if argument.is_pointer:
                iterator.state = place
        for work in self._sizes():
            with suppress(RuntimeError):  # what cannot be captured is loaded by the first call
                nbytes = call.launch(0, 0, work, 0) if self._needs_storage else 0
                address = _driver.scratch(nbytes) if nbytes else 0
                with _capture.capture() as captured:
                    call.launch(address, nbytes, work, captured.stream)
                captured.destroy()

    def _sizes(self) -> Sequence[Any]:
        """Return for how much to do (see `_request`) calls launch each of their kernels at least once."""
        return 1, 1 << 17

    def bind(self, *arguments: Any, stream: Any = None, **named: Any) -> _capture.Bound:
        """Bind arrays, sizes, initial value, stream and temporary storage: what is left is to enqueue.

        Parameters
        ----------
        *arguments, **named
            Those of `run`, but for the stream.
        stream : optional
            None (the default stream), a handle, or a stream of CuPy, PyTorch, Numba or cuda.core.

        Returns
        -------
        Bound
            Calling it enqueues the call again; it keeps the arrays alive, and storage of its own.

        Raises
        ------
        TypeError, ValueError
            If an argument is not what the algorithm was built for, or is too small.
        NoDeviceError
            If there is no GPU.
        """
        return _capture.Bound(self, stream, arguments, named)

    def _captured_arrays(self, arguments: Sequence[Any]) -> list[Any]:
        """Return the device arrays that the operators have captured, those in iterators among them."""
        found = [state.arrays() for state in self._states if isinstance(state, CapturedState)]
        found += [each.captured() for each in arguments if isinstance(each, iterators.Iterator)]
        return [array for arrays in found for array in arrays]

    def _captured(
        self, storage: Callable[[int], int], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> _capture.Capture:
        """Capture a call; `storage` returns the address of that many bytes."""
        call = self._take()
        try:
            given = _signature(type(self).run).bind(*arguments, **named)
            given.apply_defaults()
            work = call.bind(tuple(given.arguments.values()))
            if self._states:
                call.set_states(self._states)
            nbytes = call.launch(0, 0, work, 0) if self._needs_storage else 0
            address = storage(nbytes) if nbytes else 0
            with _capture.capture() as captured:
                call.launch(address, nbytes, work, captured.stream)
            return captured
        finally:
            call.free.append(call)

    def _execute(self, temp_storage: Any, stream: Any, arguments: tuple[Any, ...]) -> int:
        """Do one phase of a two-phase call: ask for the temporary storage, or run with it."""
        handle = 0 if stream is None else _driver.stream_handle(stream)
        try:  # what `_take` begins with, without a call
            _this_thread.has_the_only_device  # noqa: B018
            call = self._free.pop()
        except (AttributeError, IndexError):
            call = self._take()
        try:
            work = call.bind(arguments)
            if self._states:
                call.set_states(self._states)
            if temp_storage is None:
                return call.launch(0, 0, work, handle)
            if type(temp_storage) in _CUPY and temp_storage._c_contiguous:
                address, nbytes = temp_storage.data.ptr, temp_storage.nbytes
            else:
                address, nbytes = _arrays.storage(temp_storage)
            if address == 0:
                _check_storage(call, nbytes, work, handle)
            try:
                return call.launch(address, nbytes, work, handle)
            except RuntimeError:
                _check_storage(call, nbytes, work, handle)
                raise
        finally:
            call.free.append(call)

    def _run(self, stream: Any, arguments: tuple[Any, ...]) -> None:
        """Run with temporary storage of cupar's own, in the order of the stream."""
        handle = 0 if stream is None else _driver.stream_handle(stream)
        try:  # as in `_execute`
            _this_thread.has_the_only_device  # noqa: B018
            call = self._free.pop()
        except (AttributeError, IndexError):
            call = self._take()
        try:
            work = call.bind(arguments)
            if self._states:
                call.set_states(self._states)
            last, nbytes = call.last
            if last != work:
                nbytes = call.launch(0, 0, work, handle)
                if not getattr(work, "buffers", ()):  # their arrays are not to be kept alive
                    call.last = work, nbytes
            workspace = None
            if nbytes <= _driver.LARGEST_WORKSPACE:
                workspace = _driver.workspace(handle) if handle else call.workspace
            if workspace is None or not workspace.lock.acquire(False):
                with _driver.temporary_storage(nbytes, handle) as address:
                    call.launch(address, nbytes, work, handle)
                return
            # Under a lock, for the kernels of two calls must not take turns in one workspace.
            try:
                if nbytes > workspace.nbytes:
                    workspace.grow(nbytes)
                call.launch(workspace.address, nbytes, work, handle)
            finally:
                workspace.lock.release()
        finally:
            call.free.append(call)

    def _enqueue(self, stream: Any, arguments: tuple[Any, ...]) -> None:
        """Run an algorithm that needs no temporary storage."""
        handle = 0 if stream is None else _driver.stream_handle(stream)
        try:  # as in `_execute`
            _this_thread.has_the_only_device  # noqa: B018
            call = self._free.pop()
        except (AttributeError, IndexError):
            call = self._take()
        try:
            work = call.bind(arguments)
            if self._states:
                call.set_states(self._states)
            call.launch(0, 0, work, handle)
        finally:
            call.free.append(call)


def _check_storage(call: Call, nbytes: int, work: Any, stream: int) -> None:
    needed = call.launch(0, 0, work, stream)
    if nbytes < needed:
        raise ValueError(f"temp_storage: needs {needed} bytes for this call, got {nbytes}")
