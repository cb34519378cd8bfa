"""What all algorithm objects share: loading their code, and the phases of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import iterators
from .._base import fork, log
from .._compile.key import Specialisation
from .._device import arrays, driver, peers, storage, stream_capture
from .._ir import nodes
from ..operators import CapturedState
from .bound import Bound
from .call import Call, Code, Known, Launch, Request, State


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


if TYPE_CHECKING:
    from concurrent.futures import Future

_CUPY = arrays.CUPY
_this_thread = driver.this_thread


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
        self._free: dict[int, list[Call]] = {}  # by context
        self._known: dict[int, Known] = {}  # by context
        self._generation = fork.generation()

    @classmethod
    def pending(cls, spec: Specialisation, future: Future[Any]) -> Any:
        """Return an object whose code is being built: `future` gives another with that code."""
        self = object.__new__(cls)
        states = tuple(op.state for _, op in spec.operators)
        self._states = states if any(states) else ()
        self._free, self._known = {}, {}
        self._generation = fork.generation()
        self._pending = spec, future
        return self

    def __getattr__(self, name: str) -> Any:
        # Of a pending object, these two are not there yet.
        pending = self.__dict__.get("_pending") if name in ("build", "_code") else None
        if pending is None:
            if name in self.__dict__:  # as another thread has found out meanwhile
                return self.__dict__[name]
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        spec, future = pending
        if self._generation == fork.generation():
            built = future.result()
        else:  # in a forked process, whose parent has the thread that builds
            from .._obtain import obtain

            built = obtain.obtain(type(self), spec, None)
        self._code, self.build = built._code, built.build
        self.__dict__.pop("_pending", None)  # it has the user's operator
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
        pending = self.__dict__.get("_pending")
        if pending is not None:
            from concurrent.futures import wait

            if self._generation == fork.generation() and wait([pending[1]], timeout).not_done:
                return False
            del pending
            self.build  # noqa: B018 - which lets go of what is pending, and in a forked process builds it anew
        return True

    def __reduce__(self) -> Any:
        """Refuse to be pickled or copied: the code belongs to this process, and the cache has it for others.

        Raises
        ------
        TypeError
            Always.
        """
        raise TypeError(
            f"{type(self).__name__}: an algorithm is not pickled or copied, as its code is loaded in this "
            "process: call the factory in the other one, where it is found in the cache (one object serves "
            "any number of threads)"
        )

    def __repr__(self) -> str:
        pending = self.__dict__.get("_pending")
        if pending is not None and not pending[1].done():
            return f"<cupar {type(self).__name__} that is being built>"
        spec = self._code.spec
        types = ", ".join(f"{each.name}: {nodes.description(each.given)}" for each in spec.arguments)
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

    def _take(self) -> tuple[Call, list[Call]]:
        """Return a call that is free in the current context, and the list that it goes back to."""
        if self._generation != fork.generation():
            fork.keep_for_ever((self._free, self._known))
            self._free, self._known = {}, {}
            self._code.leave_behind()
            self._generation = fork.generation()
        context = driver.current_context()
        free = self._free.setdefault(context.number, [])
        try:
            return free.pop(), free
        except IndexError:
            with driver.relaxed():
                call = Call(self, context, self._known.setdefault(context.number, {}))
                self._code.once_in(context, lambda: self._load_kernels(call))
            return call, free

    def load(self) -> None:
        """Load all of its code into the current context, so that no call there waits for that.

        Raises
        ------
        ValueError
            If it was built for another compute capability than the device has.
        NoDeviceError
            If there is no GPU.
        DriverError
            If the driver refuses, as for want of memory. The build is kept, and to ask again may do.
        """
        call, free = self._take()
        free.append(call)

    def _load_kernels(self, call: Call) -> None:
        """Load the kernels that calls may launch, without running any.

        With lazy loading, CUDA's default, a kernel is loaded at its first launch, which then waits until the
        GPU is idle: half a second behind a kernel of half a second, for ever behind one that a later call
        ends. To capture a launch loads the kernel too. That waits as well, but this is the time for it: what
        else waits is done here, too.
        """
        place = storage.scratch(1)
        for argument, iterator in zip(self._code.spec.arguments, call.iterators, strict=True):
            if argument.is_pointer:
                iterator.state = place
        for work in reversed(self._sizes()):  # the largest first, which room is made for
            _load_size(call, work, self._needs_storage)

    def _sizes(self) -> Sequence[Any]:
        """Return for how much to do (see `_request`) calls launch each of their kernels, the most at last."""
        return 1, 1 << 17

    def bind(self, *arguments: Any, stream: Any = None, **named: Any) -> Bound:
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
            If an argument is not what the algorithm was built for, or is too small; or while the stream is
            being captured.
        NoDeviceError
            If there is no GPU.
        """
        return Bound(self, stream, arguments, named)

    def _captured_arrays(self, arguments: Sequence[Any]) -> list[Any]:
        """Return the device arrays that the operators have captured, those in iterators among them."""
        found = [state.arrays() for state in self._states if isinstance(state, CapturedState)]
        found += [each.captured() for each in arguments if isinstance(each, iterators.Iterator)]
        return [array for group in found for array in group]

    def _execute(self, temp_storage: Any, stream: Any, arguments: tuple[Any, ...]) -> int:
        """Do one phase of a two-phase call: ask for the temporary storage, or run with it."""
        handle = 0 if stream is None else driver.stream_handle(stream)
        try:  # what `_take` does most of the time, without a call
            call = (free := self._free[-1 if (thread := _this_thread).ask() else thread.number.value]).pop()
        except (KeyError, IndexError):
            call, free = self._take()
        try:
            if temp_storage is None:
                return call.needed(call.bind(arguments), handle)
            nbytes: int
            if type(temp_storage) in _CUPY and temp_storage._c_contiguous:
                address, nbytes = temp_storage.data.ptr, temp_storage.nbytes
            else:
                address, nbytes = arrays.storage(temp_storage)
            if address == 0:
                _check_storage(call, nbytes, arguments, handle)
            elif driver.has_several_devices:
                peers.check_memory("temp_storage", address)
            try:
                call.enqueue(arguments, address, nbytes, handle)
            except RuntimeError:
                _check_storage(call, nbytes, arguments, handle)
                raise
            return nbytes
        finally:
            free.append(call)

    def _run(self, stream: Any, arguments: tuple[Any, ...]) -> None:
        """Run with temporary storage of cupar's own, in the order of the stream."""
        handle = 0 if stream is None else driver.stream_handle(stream)
        try:  # as in `_execute`
            call = (free := self._free[-1 if (thread := _this_thread).ask() else thread.number.value]).pop()
        except (KeyError, IndexError):
            call, free = self._take()
        try:
            bound = call.bind(arguments)
            last, nbytes = call.last
            if last != bound[0]:
                nbytes = call.needed(bound, handle)
            workspace = None
            if nbytes <= storage.LARGEST_WORKSPACE:
                workspace = storage.workspace(handle, call.context) if handle else call.workspace
            # Under a lock, for the kernels of two calls must not take turns in one workspace.
            if workspace is not None and workspace.lock.acquire(False):
                try:
                    if nbytes <= workspace.nbytes or workspace.grow(nbytes):
                        call.enqueue_bound(bound, workspace.address, nbytes, handle)
                        return
                finally:
                    workspace.lock.release()
            with storage.temporary_storage(nbytes, handle) as address:
                call.enqueue_bound(bound, address, nbytes, handle)
        finally:
            free.append(call)

    def _enqueue(self, stream: Any, arguments: tuple[Any, ...]) -> None:
        """Run an algorithm that needs no temporary storage."""
        handle = 0 if stream is None else driver.stream_handle(stream)
        try:  # as in `_execute`
            call = (free := self._free[-1 if (thread := _this_thread).ask() else thread.number.value]).pop()
        except (KeyError, IndexError):
            call, free = self._take()
        try:
            call.enqueue(arguments, 0, 0, handle)
        finally:
            free.append(call)


def _load_size(call: Call, work: Any, needs_storage: bool) -> None:
    try:
        nbytes = call.launch(0, 0, work, 0) if needs_storage else 0
        address = storage.scratch(nbytes) if nbytes else 0
        with stream_capture.capture() as captured:
            call.launch(address, nbytes, work, captured.stream)
        try:
            with stream_capture.lock:
                call.room.fill(captured)
        finally:
            captured.destroy()
    except RuntimeError as error:  # what cannot be captured is loaded by the first call
        log.info("kernels of %s for %s items are loaded by the first call: %s", call.name, work, error)


def _check_storage(call: Call, nbytes: int, arguments: tuple[Any, ...], stream: int) -> None:
    needed = call.needed(call.bind(arguments), stream)
    if nbytes < needed:
        raise ValueError(f"temp_storage: needs {needed} bytes for this call, got {nbytes}")
