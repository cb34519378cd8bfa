"""What all algorithm objects share: where their code comes from, and the phases of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from .._base import fork, log
from .._compile.specialisation import Specialisation
from .._device import arrays, driver, peers, storage, stream_capture
from .._ir import nodes
from .._ir.iterator import Iterator
from .._ir.operator import CapturedState
from .bound import Bound
from .call import Call, History, Launch
from .code import Code


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


@dataclass(frozen=True)
class Built:
    """Code that is there."""

    code: Code
    build: Build
    refusal: str = ""

    @property
    def spec(self) -> Specialisation:
        """What it is the code of, without what keeps the user's functions alive."""
        return self.code.spec


class Pending(Protocol):
    """Code that is not there yet."""

    @property
    def refusal(self) -> str:
        """Why the algorithm cannot be loaded or called in this process; empty if it can."""

    @property
    def spec(self) -> Specialisation:
        """What will be built."""

    def is_done(self) -> bool:
        """Whether `result` returns at once."""

    def wait(self, timeout: float | None) -> bool:
        """Wait until the build has ended, or for some seconds; return whether it has ended."""

    def result(self) -> Built:
        """Wait for the code; raise what building it raised."""


_CUPY = arrays.CUPY
_this_thread = driver.this_thread


class Algorithm:
    """An algorithm for given types, operator and device. Made by the factories, not by its constructor.

    All factories take two arguments by name:

    cc : int, pair of int or str, optional
        Compute capability to build for, as in 90, (9, 0), "9.0" or "sm_90"; by default the current device's.
        With it, no GPU is needed.
    wait : bool, optional
        False: build in the background and return at once; the first call, or `ready`, waits.

    They raise ``TypeError`` or ``ValueError`` if an argument is not what they take, or the operator cannot be
    compiled for the types, and `NoDeviceError` if there is no GPU and no `cc`.

    A call of the object has two phases, as in CUB: with None in place of the temporary storage it returns how
    many bytes that needs, and with a device array of that size it runs. `run` does both, with temporary
    storage of cupar's own. Transforms and searches need none, and are called as `run` is. All take

    stream : optional
        None (the default stream), a handle, or a stream of CuPy, PyTorch, Numba or cuda.core.

    and raise ``TypeError`` or ``ValueError`` if an argument is not what the algorithm was built for, or is
    too small, and `NoDeviceError` if there is no GPU.

    Attributes
    ----------
    build : Build
        Where its code came from.
    """

    _native: ClassVar[str]
    _needs_storage: ClassVar[bool] = True
    _uses: ClassVar[Mapping[str, str | int]]
    _buffers: ClassVar[Mapping[str, str]]
    # Takes the arguments of `run` but the stream; returns what a problem has beside a count: a named tuple.
    _problem: ClassVar[Any] = None

    def __init_subclass__(
        cls, *, native: str, uses: Mapping[str, str | int], buffers: Mapping[str, str] | None = None
    ) -> None:
        """Declare what builds an algorithm, and what its calls use.

        Parameters
        ----------
        native : str
            The bindings' class.
        uses : mapping
            Maps each array parameter of `run` to the number of items a call uses: a constant, or the name of
            the count parameter, or of a field of what `_problem` returns. Without `_problem`, the first count
            is the problem size.
        buffers : mapping, optional
            Maps the inputs that may be double buffers to the outputs, which are None then.
        """
        cls._native, cls._uses, cls._buffers = native, uses, buffers or {}

    def __init__(self, source: Built | Pending, states: Sequence[Callable[[], bytes] | None]) -> None:
        self._source = source
        self._states = states if any(states) else ()
        self._free: dict[int, list[Call]] = {}  # by context
        self._history: dict[int, History] = {}  # by context
        fork.in_child(self._forget)

    @property
    def _built(self) -> Built:
        source = self._source
        if not isinstance(source, Built):
            source = self._source = source.result()  # which lets go of the user's operator
        return source

    @property
    def _code(self) -> Code:
        return self._built.code

    @property
    def _spec(self) -> Specialisation:
        return self._source.spec

    @property
    def is_built(self) -> bool:
        """Whether the code is there, so that nothing waits for it."""
        return isinstance(self._source, Built)

    @property
    def build(self) -> Build:
        """Where its code came from; waits for that, as `ready` does."""
        return self._built.build

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
        source = self._source
        if not isinstance(source, Built) and not source.refusal:
            if not source.wait(timeout):
                return False
            self._built  # noqa: B018 - which raises what the build did
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
        source = self._source
        if not isinstance(source, Built) and not source.is_done():
            return f"<cupar {type(self).__name__} that is being built>"
        spec = self._built.spec
        types = ", ".join(f"{each.name}: {nodes.description(each.given)}" for each in spec.arguments)
        operators = "".join(f", {name}: {op.name}" for name, op in spec.operators)
        return f"<cupar {spec.algorithm}({types}{operators}) for sm_{spec.cc}, {self.build.origin}>"

    @property
    def has_state(self) -> bool:
        """Whether an operator has state, such as captured device arrays: then it is not shared."""
        return bool(self._states)

    def cubin(self) -> bytes:
        """Return the GPU code, an ELF file such as ``nvdisasm`` and ``cuobjdump`` read. Needs no GPU."""
        return self._code.cubin()

    run: Callable[..., None]

    @staticmethod
    def _native_arguments(spec: Specialisation, b: Any, *iterators: Any, **operators: Any) -> tuple[Any, ...]:
        """Return what the bindings' ``compile`` takes; see `Kind`."""
        return *iterators, *operators.values()

    @staticmethod
    def _check(spec: Specialisation) -> None:
        """Raise TypeError or ValueError if the bindings cannot build it, though its arguments are right."""

    def _launcher(self, call: Call) -> Launch:
        """Return what calls the bindings with what a `Call` holds.

        It takes the address and the bytes of the temporary storage (address 0 queries the size), the problem
        (a count, or what `_problem` returns), and the stream's handle; and returns the bytes needed.
        """
        compute, arguments = call.native.compute, (*call.iterators, *call.operators)
        return lambda address, nbytes, n, stream: compute(address, nbytes, *arguments, n, stream)

    def _forget(self) -> None:
        """Forget calls, in a forked process: what they hold is its parent's."""
        if self._free:
            fork.leak((self._free, self._history))
            self._free, self._history = {}, {}

    def _take(self) -> tuple[Call, list[Call]]:
        """Return a call that is free in the current context, and the list that it goes back to."""
        self._check_may_be_called()
        context = driver.current_context()
        free = self._free.setdefault(context.number, [])
        try:
            return free.pop(), free
        except IndexError:
            with driver.relaxed_capture_mode():
                call = Call(self, context, self._history.setdefault(context.number, {}))
                self._code.once_in(context, lambda: self._load_kernels(call))
            return call, free

    def _check_may_be_called(self) -> None:
        if self._source.refusal:
            raise driver.NoDeviceError(self._source.refusal)

    def load(self) -> None:
        """Load all of its code into the current context, so that no call there waits for that.

        Raises
        ------
        ValueError
            If it was built for another compute capability than the device has.
        NoDeviceError
            If there is no GPU.
        DriverError
            If the driver refuses, as for want of memory. The build is kept, and asking again may succeed.
        """
        if self._source.refusal:
            return
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
        for argument, iterator in zip(self._spec.arguments, call.iterators, strict=True):
            if argument.is_pointer:
                iterator.state = place
        for problem in reversed(self._sizes()):  # the largest first, which the graph pool is for
            _load_size(call, problem, self._needs_storage)

    def _sizes(self) -> Sequence[Any]:
        """Return the problems whose calls launch each of the kernels, the largest last."""
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
        self._check_may_be_called()
        return Bound(self, stream, arguments, named)

    def _captured_arrays(self, arguments: Sequence[Any]) -> list[Any]:
        """Return the device arrays that the operators have captured, those in iterators among them."""
        found = [state.arrays() for state in self._states if isinstance(state, CapturedState)]
        found += [each.captured() for each in arguments if isinstance(each, Iterator)]
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
                workspace = call.memory.workspace(handle) if handle else call.workspace
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


def _load_size(call: Call, problem: Any, needs_storage: bool) -> None:
    try:
        nbytes = call.launch(0, 0, problem, 0) if needs_storage else 0
        address = storage.scratch(nbytes) if nbytes else 0
        with stream_capture.capture() as captured:
            call.launch(address, nbytes, problem, captured.stream)
        try:
            with stream_capture.lock:
                call.graph_pool.fill(captured)
        finally:
            captured.destroy()
    except RuntimeError as error:  # what cannot be captured is loaded by the first call
        log.info("kernels of %s for %s items are loaded by the first call: %s", call.name, problem, error)


def _check_storage(call: Call, nbytes: int, arguments: tuple[Any, ...], stream: int) -> None:
    needed = call.needed(call.bind(arguments), stream)
    if nbytes < needed:
        raise ValueError(f"temp_storage: needs {needed} bytes for this call, got {nbytes}")
