"""Calls with everything bound."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import c_void_p
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from .._base import fork
from .._device import driver, storage
from . import replays
from .signatures import completed

if TYPE_CHECKING:
    from .call import Call


class Caller(Protocol):
    """What calls are bound of: an algorithm object."""

    _needs_storage: ClassVar[bool]
    run: Callable[..., None]

    def _take(self) -> tuple[Call, list[Call]]: ...

    def _captured_arrays(self, arguments: Sequence[Any]) -> list[Any]: ...


class Bound:
    """A call of an algorithm with everything bound: arrays, sizes, initial value, stream and storage.

    Calling it enqueues the same again, and nothing else: all that there is to check was checked. It is for
    one thread at a time, and its stream must outlive it. Made by `Algorithm.bind`.

    Notes
    -----
    It is a CUDA graph, made by capturing the call. It is launched where the context is current that it was
    made in, and runs with the default priority on the whole GPU, whatever the stream. To call it never waits
    for the GPU; to make it may, when the driver needs more memory for graphs.

    It cannot be captured: a graph is not launched in a capture. Call `run` there.

    It is closed when it is collected. Storage that cannot be freed then, as its stream is being captured, or
    was given as a handle and may be gone, is left to `cupar.release_memory`.
    """

    def __init__(self, algorithm: Caller, stream: Any, arguments: tuple[Any, ...], named: Any) -> None:
        self._algorithm = algorithm
        self._handle = driver.stream_handle(stream)
        self._context = driver.current_context()
        self._launch = driver.library().cuGraphLaunch
        self._where = c_void_p(self._handle)
        self._executable = c_void_p()
        self._held = held = _Held(stream, self._handle, self._context)
        self._collected = weakref.finalize(self, held.collect)
        self._collected.atexit = False
        self._work: Any = None
        self._kept: Any = None  # the arrays
        self._is_closed = False
        self.rebind(*arguments, **named)

    def __call__(self) -> None:
        """Enqueue the call again.

        Raises
        ------
        DriverError
            If the driver refuses.
        """
        status = self._launch(self._executable, self._where)
        if status:
            driver.check(status, "cuGraphLaunch")

    def rebind(self, *arguments: Any, **named: Any) -> None:
        """Bind other arguments, in the order of `Algorithm.run`; with as much to do, in a few microseconds.

        What was enqueued before is not changed by it.

        Raises
        ------
        TypeError, ValueError
            If an argument is not what the algorithm was built for, or is too small; or after `close`.
        """
        algorithm = self._algorithm
        if self._is_closed:
            raise ValueError("this bound call is closed")
        with driver.on(self._context):
            call, free = algorithm._take()
            try:
                bound = call.bind(completed(type(algorithm).run, arguments, named))
                kept = arguments, named, algorithm._captured_arrays((*arguments, *named.values()))
                if not self._changed(bound, kept):
                    self._make(call, bound)
                self._kept = kept
            finally:
                free.append(call)

    def _changed(self, bound: replays.Checked, kept: Any) -> bool:
        """Put other values into the graph, if that can be done."""
        graph, before = self._held.graph, self._kept
        if graph is None or bound[0] != self._work:
            return False
        # If this is interrupted, the graph has some of both, and must not be launched.
        self._executable, self._kept = c_void_p(), (before, kept)
        changed = graph.set_values(bound, self._held.storage[0])
        self._executable, self._kept = graph.executable, before
        return changed

    def _make(self, call: Call, bound: replays.Checked) -> None:
        """Make the graph anew."""
        needed = call.needed(bound, self._handle) if self._algorithm._needs_storage else 0
        held = self._held
        old, new, before = held.storage, held.storage, held.graph
        if self._handle and driver.is_captured(self._handle):
            raise ValueError(
                "stream: it is being captured, and bound calls cannot be: call run within the capture"
            )
        if needed > old[1]:
            new = storage.allocate(needed, self._handle), needed
        try:
            graph = replays.replay_of(call, bound, new[0], needed, self._handle) or replays.fixed_graph(
                call, bound, new[0], needed
            )
        except BaseException:
            if new is not old:  # what was bound before still uses the old one
                storage.free_or_retire(*new, self._handle)
            raise
        held.graph, self._executable = graph, graph.executable
        self._work, held.storage = bound[0], new
        if before is not None:
            before.close()
        if new is not old and old[0]:
            storage.free_or_retire(*old, self._handle)

    def close(self) -> None:
        """Free what it holds, once what was enqueued is done. It cannot be called then."""
        self._is_closed = True
        self._executable, self._kept = c_void_p(), None
        if self._collected.detach():
            self._held.give_back()

    def __enter__(self) -> Bound:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a bound call cannot be copied or pickled: its graph and storage are its own")

    def __exit__(self, *error: object) -> None:
        self.close()


class _Held:
    """What a bound call has to give back, and its stream.

    It is no part of the call, so that the garbage collector does not take the stream first: then its handle
    would be none.
    """

    def __init__(self, stream: Any, handle: int, context: driver.Context) -> None:
        self.graph: replays.Fixed | None = None
        self.storage = (0, 0)  # address and bytes
        self._stream, self._handle, self._context = stream, handle, context
        fork.in_child(self._forget)

    def _forget(self) -> None:
        """Leave the storage to the parent process, as the graph does with itself."""
        self.storage = (0, 0)

    def collect(self) -> None:
        """Give it all back, wherever the garbage collector runs."""
        with suppress(Exception):
            self.give_back(is_collected=True)

    def give_back(self, is_collected: bool = False) -> None:
        """Give it all back; of a call that was collected, a stream given as a handle may be gone."""
        graph, self.graph = self.graph, None
        (address, nbytes), self.storage = self.storage, (0, 0)
        try:
            if graph is not None:
                graph.close()
        finally:
            if address and driver.is_there(self._context):  # else that may be gone, with the storage
                with driver.on(self._context):
                    if is_collected and self._handle and isinstance(self._stream, int):
                        storage.retire(address, nbytes)
                    else:
                        storage.free_or_retire(address, nbytes, self._handle)
