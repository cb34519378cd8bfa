"""Calls with everything bound: a CUDA graph of a whole call, launched again and again."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from ctypes import c_uint, c_void_p
from typing import TYPE_CHECKING, Any

from .._base import fork, trace
from .._base.errors import ArgumentValueError
from .._device import driver, storage, streams
from .._device.kernels import Executable
from .._launch.chain import Chain, Fill, executable_of

if TYPE_CHECKING:
    from .._launch.state import LaunchState


class Bound:
    """A call of an algorithm with everything bound: arrays, sizes, initial value, stream and storage.

    Calling it enqueues the same again, and nothing else: all checks are done. It is for
    one thread at a time, and its stream must outlive it. Bound without a stream, each call runs on the stream
    that is current then, behind the calls before it. Made by `Algorithm.bind`.

    Notes
    -----
    It is a CUDA graph of the call's kernels. It must be launched with the context current in which it was
    made, and runs with the default priority on the whole GPU on any stream. Calling it never waits for the
    GPU; making it may, when the driver needs more memory for graphs.

    It cannot be captured: a graph is not launched in a capture. Call `run` there.

    It is closed when it is collected. Storage that cannot be freed then, as its stream is being captured, or
    was given as a handle and may be gone, is left to `cupar.release_memory`.
    """

    def __init__(self, algorithm: Any, stream: Any, arguments: tuple[Any, ...], named: Any) -> None:
        self._algorithm = algorithm
        self._ask: streams.Ask | None = None  # for the current stream; None: it has one of its own
        self._is_asked = stream is None
        self._handle = driver.stream_handle(stream)
        self._context = driver.current_context()
        self._where = c_void_p(self._handle)
        self._launch: Callable[[Any, Any], int] = _closed
        self._executable: Any = None
        self._shapes: list[int] | None = None
        self._fills: list[Fill] = []
        self._held = held = _Held(stream, self._handle, self._context)
        self._collected = weakref.finalize(self, held.collect)
        self._collected.atexit = False
        self._kept: Any = None  # the arrays
        self._is_closed, self._is_traced = False, trace.is_on()
        with driver.relaxed_capture_mode():
            self._state = self._new_state()
        self.rebind(*arguments, **named)

    def _new_state(self) -> LaunchState:
        made: LaunchState = self._algorithm._new_state(self._context, None, 0)
        return made

    def __call__(self) -> None:
        """Enqueue the call again.

        Raises
        ------
        DriverError
            If the driver refuses.
        """
        if self._ask is not None and (handle := self._ask()) != self._handle:
            self._follow(handle)
        if status := self._launch(self._executable, self._where):
            driver.check(status, "cuGraphLaunch")

    def rebind(self, *arguments: Any, **named: Any) -> None:
        """Bind other arguments, in the order of `Algorithm.run`, in a few microseconds.

        Calls that are enqueued already are not changed.

        Raises
        ------
        TypeError, ValueError
            If an argument has another type than the algorithm's, or is too small; or after `close`.
        """
        algorithm = self._algorithm
        if self._is_closed:
            raise ValueError("this bound call is closed")
        with driver.on(self._context):
            every = algorithm.completed(arguments, named)
            read = self._state.read(every)
            lent = self._state.take_lent()
            kept = arguments, named, algorithm._captured_arrays((*arguments, *named.values()))
            before, self._kept = self._kept, (self._kept, kept, lent)
            try:
                ask = streams.ask_of(*every, *algorithm._states) if self._is_asked else None
                if ask is not None and (handle := ask()) != self._handle:
                    self._follow(handle)
                self._set(read)
            except BaseException:
                self._kept = before
                raise
            self._kept, self._ask = kept, None if ask is streams.NONE else ask
            self._held.replace_lent(lent)
        algorithm._enqueued(every)

    def _follow(self, handle: int) -> None:
        """Be on another stream, behind all that was enqueued on the one before."""
        _check_not_captured(handle)
        if self._held.executable is not None or self._held.storage[0]:
            _check_not_captured(self._handle)
            _follow(handle, self._handle)
        self._handle, self._where = handle, c_void_p(handle)
        self._held.follow(streams.current_object(handle), handle)

    def _set(self, read: tuple[Any, ...]) -> None:
        """Set the graph's parameters to the arguments that were read."""
        self._state.prepare(read)
        needed, held = self._state.nbytes, self._held
        _check_not_captured(self._handle)
        old, before = held.storage, held.executable
        new = (storage.allocate(needed, self._handle), needed) if needed > old[1] else old
        try:
            self._bind_plan(read, new[0])
        except BaseException:
            if new is not old:  # earlier launches still use the old one
                storage.free_or_retire(new[0], new[1], self._handle)
            raise
        else:
            held.storage = new
        finally:
            if before is not None and before is not held.executable:
                before.destroy()
        if new is not old and old[0]:
            storage.free_or_retire(old[0], old[1], self._handle)

    def _bind_plan(self, read: tuple[Any, ...], address: int) -> None:
        state, held = self._state, self._held
        shape = () if state.shape is None else state.shape
        shapes, numbers = ([shape], [state.numbers]) if isinstance(shape, int) else ([*shape], state.numbers)
        chains = [state.loaded.chains[state.loaded.shape_names[shape]] for shape in shapes]
        if shapes != self._shapes:
            self._launch, self._shapes, self._fills = _closed, None, []  # until all is done
            if not shapes:
                held.executable, self._launch, self._shapes = None, _nothing, []
                return
            with driver.relaxed_capture_mode():
                made = executable_of(chains)
            held.executable, held.loaded = made, state.loaded
            nodes = iter(made.nodes)
            self._fills = [chain.filler(made, nodes) for chain in chains]
            self._executable = made.handle
        if self._fills:
            # An interrupt from here on leaves the graph half updated.
            self._launch, self._shapes = _closed, None
            for fill, own in zip(self._fills, numbers, strict=True):
                fill(read, address, own)
            what = [*zip(chains, numbers, strict=True)]
            self._launch = self._shown(driver.library().cuGraphLaunch, read, what)
        self._shapes = shapes

    def _shown(
        self,
        launch: Callable[[Any, Any], int],
        read: tuple[Any, ...],
        what: list[tuple[Chain, tuple[int, ...]]],
    ) -> Callable[[Any, Any], int]:
        """Return the function that launches, with NVTX ranges and trace lines if these are on."""
        launch = trace.ranged(launch, self._state.name)
        if not self._is_traced:
            return launch

        def traced(executable: Any, where: Any) -> int:
            for chain, numbers in what:
                chain.trace(numbers, self._handle)
            return launch(executable, where)

        return traced

    def close(self) -> None:
        """Free its resources, once its enqueued calls are done. It cannot be called afterwards."""
        self._is_closed = True
        self._launch, self._kept = _closed, None
        if self._collected.detach():
            self._held.give_back()

    def __enter__(self) -> Bound:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a bound call cannot be copied or pickled: its graph and storage are its own")

    def __exit__(self, *error: object) -> None:
        self.close()


def _check_not_captured(stream: int) -> None:
    if stream and driver.is_captured(stream):
        raise ArgumentValueError(
            "stream", "it is being captured, and bound calls cannot be: call run within the capture"
        )


def _follow(stream: int, other: int) -> None:
    """Have a stream wait for all that is enqueued on another."""
    from .._device.lent import new_event

    event = new_event()
    try:
        driver.call("cuEventRecord", event, c_void_p(other))
        driver.call("cuStreamWaitEvent", c_void_p(stream), event, c_uint(0))
    finally:
        driver.library().cuEventDestroy_v2(event)


def _nothing(executable: Any, where: Any) -> int:
    """Launch nothing, for a call that has nothing to do."""
    return 0


def _closed(executable: Any, where: Any) -> int:
    raise ValueError("this bound call is closed, or to bind it failed")


class _Held:
    """Resources that a bound call gives back, and its stream.

    They are a separate object, since the garbage collector could otherwise destroy the stream first.
    """

    def __init__(self, stream: Any, handle: int, context: driver.Context) -> None:
        self.executable: Executable | None = None
        self.loaded: Any = None  # the code, which must outlive the graph
        self.storage = (0, 0)  # address and bytes
        self._lent: tuple[Any, ...] = ()  # see `lent.Lent`
        self._stream, self._handle, self._context = stream, handle, context
        fork.in_child(self._forget)

    def follow(self, stream: Any, handle: int) -> None:
        """Hold another stream."""
        self._stream, self._handle = stream, handle

    def _forget(self) -> None:
        """Leave storage and lent memory to the parent process, as the graph does."""
        fork.leak(self._lent)
        self.storage, self._lent = (0, 0), ()

    def replace_lent(self, lent: tuple[Any, ...], is_gone: bool = False) -> None:
        """Hold lent memory; release the former once the stream has passed the launches that use it."""
        before, self._lent = self._lent, lent
        if before:
            from .._device.lent import Lent

            part = self._context.part(Lent)
            part.keep(before) if is_gone else part.hold(before, self._handle)

    def collect(self) -> None:
        """Release everything, in any thread in which the garbage collector runs."""
        with suppress(Exception):
            self.give_back(is_collected=True)

    def give_back(self, is_collected: bool = False) -> None:
        """Release everything; if the call was collected, a stream given as a handle may no longer exist."""
        executable, self.executable = self.executable, None
        (address, nbytes), self.storage = self.storage, (0, 0)
        try:
            if executable is not None:
                executable.destroy()
        finally:
            # Otherwise the context may no longer exist, nor the storage.
            if (address or self._lent) and driver.is_there(self._context):
                is_gone = bool(is_collected and self._handle and isinstance(self._stream, int))
                with driver.on(self._context):
                    if address and is_gone:
                        storage.retire(address, nbytes)
                    elif address:
                        storage.free_or_retire(address, nbytes, self._handle)
                    self.replace_lent((), is_gone)
