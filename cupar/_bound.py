"""Calls with everything bound."""

from __future__ import annotations

from ctypes import c_void_p
from typing import TYPE_CHECKING, Any

from . import _call, _driver, _fork, _replay, _storage

if TYPE_CHECKING:
    from ._algorithm import Algorithm


class Bound:
    """A call of an algorithm with everything bound: arrays, sizes, initial value, stream and storage.

    Calling it enqueues the same again, and nothing else: all that there is to check was checked. It is for
    one thread at a time, and its stream must outlive it. Made by `Algorithm.bind`.

    Notes
    -----
    It is a CUDA graph, made by capturing the call. It is launched where the context is current that it was
    made in, and runs with the default priority on the whole GPU, whatever the stream. To call it never waits
    for the GPU; to make it may, when the driver needs more memory for graphs.

    What a stream captures of it uses its storage, so it must not be closed before that has run for the last
    time. Storage that cannot be freed, as its stream is gone or captured, is given back later, or by
    `cupar.release_memory`.
    """

    def __init__(self, algorithm: Algorithm, stream: Any, arguments: tuple[Any, ...], named: Any) -> None:
        self._algorithm = algorithm
        self._stream = stream  # kept alive, as are the arrays
        self._handle = _driver.stream_handle(stream)
        self._context = _driver.current_context()
        self._launch = _driver.library().cuGraphLaunch
        self._where = c_void_p(self._handle)
        self._number = _driver.stream_number(self._handle)
        self._executable = c_void_p()
        self._graph: _replay.Fixed | None = None
        self._work: Any = None
        self._storage = (0, 0)  # address and bytes
        self._kept: Any = None
        self._is_closed = False
        self._generation = _fork.generation()
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
            _driver.check(status, "cuGraphLaunch")

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
        with _driver.on(self._context):
            call, free = algorithm._take()
            try:
                bound = call.bind(_call.completed(type(algorithm).run, arguments, named))
                kept = arguments, named, algorithm._captured_arrays((*arguments, *named.values()))
                if not self._changed(bound, kept):
                    self._make(call, bound)
                self._kept = kept
            finally:
                free.append(call)

    def _changed(self, bound: _replay.Checked, kept: Any) -> bool:
        """Put other values into the graph, if that can be done."""
        graph, before = self._graph, self._kept
        if graph is None or bound[0] != self._work:
            return False
        # If this is interrupted, the graph has some of both, and must not be launched.
        self._executable, self._kept = c_void_p(), (before, kept)
        changed = graph.set_values(bound, self._storage[0])
        self._executable, self._kept = graph.executable, before
        return changed

    def _make(self, call: _call.Call, bound: _replay.Checked) -> None:
        """Make the graph anew."""
        needed = call.needed(bound, self._handle) if self._algorithm._needs_storage else 0
        old, new, before = self._storage, self._storage, self._graph
        if self._handle and _driver.is_captured(self._handle):
            # Its storage would be a node of what is captured, and a new graph cannot be captured.
            raise ValueError(
                "stream: it is being captured; bind the call before the capture, and call it within"
            )
        if needed > old[1]:
            new = _storage.allocate(needed, self._handle), needed
        try:
            graph = _replay.replay_of(call, bound, new[0], needed, self._handle) or _replay.fixed_graph(
                call, bound, new[0], needed
            )
        except BaseException:
            if new is not old:  # what was bound before still uses the old one
                self._free(new)
            raise
        self._graph, self._executable = graph, graph.executable
        self._work, self._storage = bound[0], new
        if before is not None:
            before.close()
        if new is not old:
            self._free(old)

    def _free(self, storage: tuple[int, int]) -> None:
        if self._number is None:  # it was captured when this was made
            self._number = _driver.stream_number(self._handle)
        if storage[0]:
            _storage.free_or_retire(*storage, self._handle, self._number)

    def close(self) -> None:
        """Free what it holds, once what was enqueued is done. It cannot be called then."""
        self._is_closed = True
        graph, self._graph, self._executable = self._graph, None, c_void_p()
        storage, self._storage, self._kept = self._storage, (0, 0), None
        try:
            if graph is not None:
                graph.close()
        finally:
            # Of another process, or of a context that may be gone, it is not this one's to free.
            if storage[0] and self._generation == _fork.generation() and _driver.is_there(self._context):
                with _driver.on(self._context):
                    self._free(storage)

    def __enter__(self) -> Bound:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a bound call cannot be copied or pickled: its graph and storage are its own")

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        try:  # noqa: SIM105 - the interpreter may be ending, and `suppress` be gone
            self.close()
        except Exception:
            pass
