"""`Launchable`, the base of algorithms and users' kernels, and `Algorithm`, which adds two-phase calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from .._arguments.order import completed
from .._base import device, fork
from .._base.causes import EXPECTED, NumbaType, brief
from .._base.data import Recent, replace
from .._base.errors import ArgumentTypeError, ArgumentValueError
from .._base.words import message
from .._device import arrays, driver, peers, storage
from .._ir import nodes
from .._ir.iterator import Iterator
from .._ir.operator import CapturedState, FixedState
from .._ir.specialisation import Specialisation
from .._kernels.family import Family
from .._launch.code import Code, Loaded
from .._launch.marshal import call_reader
from .._launch.state import LaunchState, Read
from .built import Build, Built, Pending

if TYPE_CHECKING:
    from .._base.annotations import Stream
    from .bound import Bound

_CUPY = arrays.CUPY
_MOST_STREAMS = 64  # streams for which an algorithm keeps free states
_SLACK = storage.ALIGNMENT - 1
_this_thread = driver.this_thread

_FreeStates = dict[int, list[LaunchState]]


def _no_free_states() -> tuple[_FreeStates, Recent[int, list[LaunchState]], _FreeStates]:
    return {}, Recent(_MOST_STREAMS), {}


class Launchable:
    """A built specialisation that can be launched: the base class of algorithms and users' kernels."""

    _family: ClassVar[Family | None] = None
    _loaded: ClassVar[Any] = Loaded
    _uses: ClassVar[Mapping[str, str | int]] = {}  # of algorithms; a kernel's launches check no sizes

    def __init__(self, source: Built | Pending, states: Sequence[Callable[[], bytes] | None]) -> None:
        self._states = states if any(states) else ()  # of operators; launch states are in `_free`
        # The quick tier's code, once the fast code replaced it: captured graphs may still launch it.
        self._former: Any = None
        # Free launch states, in three tables: for the default stream, by the number of the context; for
        # another stream, by its number; for any, kernel by kernel, by the context's number.
        self._free = _no_free_states()
        fork.in_child(self._forget)
        self._source: Built | Pending = source
        if isinstance(source, Built):
            self._follow(source)

    @property
    def _built(self) -> Built:
        source = self._source
        return source if isinstance(source, Built) else self._waited(source)

    def _waited(self, source: Pending) -> Built:
        try:
            built = self._source = source.result()  # which releases the user's operator
        except EXPECTED as error:
            raise error.with_traceback(None)  # noqa: B904 - else frames of all waiting threads accumulate
        self._follow(built)
        return built

    def _follow(self, built: Built) -> None:
        if built.faster is not None:
            built.faster.follow(self)

    def _replace(self, built: Built) -> None:
        """Use faster code for calls from now on. Calls in progress continue; nothing is loaded here."""
        before = self._source
        if not isinstance(before, Built) or before.faster is None:
            return
        self._former = type(self)(replace(before, faster=None), self._states)
        if before.build.origin == "memory":
            built = replace(built, build=replace(built.build, origin="memory", seconds={}))
        self._source = built
        self._free = _no_free_states()  # last, so that it holds no state with the former code

    @property
    def _code(self) -> Code:
        return self._built.code

    @property
    def _spec(self) -> Specialisation:
        return self._source.spec

    @property
    def is_built(self) -> bool:
        """Whether the code is available without a wait."""
        return isinstance(self._source, Built)

    @property
    def build(self) -> Build:
        """The origin of its code; waits for the build, as `ready` does."""
        return self._built.build

    @brief
    def ready(self, timeout: float | None = None, tier: str | None = None) -> bool:
        """Wait until the code is built, if that was begun in the background.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most; by default as long as it takes.
        tier : {"quick", "fast"}, optional
            ``"fast"``: wait for the fastest kernels, too, which are linked in the background where others
            link much faster. Calls use those others until then; `build` tells which they use. By default,
            and with ``"quick"``, it waits until it can be called.

        Returns
        -------
        bool
            Whether it is built. The fast kernels never are where ``CUPAR_TIER`` says ``quick``.

        Raises
        ------
        TypeError, BuildError
            The error that the factory would have raised, had it waited; or that of linking the fast kernels.
        ValueError
            If `tier` is something else.
        """
        if tier not in (None, "quick", "fast"):
            raise ArgumentValueError("tier", f"expected 'quick', 'fast' or None, got {tier!r}")
        begin, source = time.monotonic(), self._source
        if not isinstance(source, Built) and not source.refusal:
            if not source.wait(timeout):
                return False
            source = self._built  # raises the error of the build
        if tier != "fast" or not isinstance(source, Built) or source.build.tier == "fast":
            return True
        left = None if timeout is None else max(0.0, timeout - (time.monotonic() - begin))
        return source.faster is not None and source.faster.wait(left)

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
        name, arguments, state = self._shown()
        given = ", ".join(f"{name}: {text}" for name, text in arguments)
        return f"<cupar {name}({given}) for {device.text(self._spec.cc)}, {getattr(state, 'origin', state)}>"

    def _repr_html_(self) -> str:
        from .._base import html

        name, arguments, state = self._shown()
        fields = [("origin", state)] if isinstance(state, str) else state._fields()
        return html.fields(f"{name} for {device.text(self._spec.cc)}", [*arguments, *fields])

    def _shown(self) -> tuple[str, list[tuple[str, str]], Build | str]:
        """Return its name, its arguments, and its build, or a text instead of a build."""
        spec, source = self._spec, self._source
        arguments = [(each.name, nodes.description(each.given)) for each in spec.arguments]
        arguments += [(name, op.name) for name, op in spec.operators if not spec.is_kernel]
        name = f"kernel {spec.operators[0][1].name}" if spec.is_kernel else spec.algorithm
        if isinstance(source, Built):
            return name, arguments, source.build
        if not source.is_done():
            return name, arguments, "is being built"
        try:
            return name, arguments, self.build
        except Exception as error:  # compilers may raise anything
            return name, arguments, f"could not be built: {message(error).splitlines()[0]}"

    @property
    def has_state(self) -> bool:
        """Whether an operator has state that may change, as captured arrays do: then it is not shared."""
        return not all(each is None or isinstance(each, FixedState) for each in self._states)

    def fixed_states(self) -> dict[str, FixedState]:
        """Return the states of operators that do not change, by name."""
        names = [name for name, _ in self._spec.operators]
        pairs = zip(names, self._states, strict=False)
        return {name: state for name, state in pairs if isinstance(state, FixedState)}

    def cubin(self) -> bytes:
        """Return the GPU code, an ELF file such as ``nvdisasm`` and ``cuobjdump`` read. Needs no GPU."""
        return self._code.cubin()

    def _forget(self) -> None:
        """Forget launch states in a forked process: their buffers and graphs belong to the parent."""
        if any(self._free):
            fork.leak(self._free)
            self._free = _no_free_states()

    def _call_reader(self, lend: arrays.Lend | None) -> Callable[..., Read]:
        """Return a function that checks the arguments of a call, and returns the problem and the values."""
        raise NotImplementedError

    def _take(self, stream: int, alone: bool = False) -> tuple[LaunchState, list[LaunchState]]:
        """Return a free launch state for a stream, and its list; if `alone`, one without graphs."""
        number = None if alone else driver.stream_number(stream) if stream else 0
        of_default, of_streams, of_any = self._free
        try:
            if number:
                free = of_streams[number]
            else:
                context = -1 if (thread := _this_thread).ask() else thread.number.value
                free = (of_any if number is None else of_default)[context]
            return free.pop(), free
        except (KeyError, IndexError):
            pass
        return self._take_new(stream, number)

    @brief
    def _take_new(self, stream: int, number: int | None) -> tuple[LaunchState, list[LaunchState]]:
        """Return a new launch state for a stream, and its list."""
        of_default, of_streams, of_any = self._free
        self._check_may_be_called()
        current = driver.current_context()
        current.part(storage.ContextMemory).calls.add(self)
        free = of_streams.setdefault(number, []) if number else None
        if free is None:
            free = (of_any if number is None else of_default).setdefault(current.number, [])
        with driver.relaxed_capture_mode():
            return self._new_state(current, number, stream), free

    def _new_state(self, context: driver.Context, number: int | None, stream: int) -> LaunchState:
        return LaunchState(self._code.loaded(context), self._call_reader, context, number, stream)

    def _release(self, context: driver.Context) -> None:
        """Forget free launch states, in a context and on streams: they give back their graphs."""
        for free in [self._free[0].get(context.number, []), *self._free[1].all().values()]:
            storage.taken(free)

    def _check_may_be_called(self) -> None:
        if self._source.refusal:
            raise driver.NoDeviceError(self._source.refusal)

    @brief
    def load(self) -> None:
        """Load all of its code into the current context, so that no call there waits for that.

        Raises
        ------
        ValueError
            If it was built for another compute capability than the device has.
        NoDeviceError
            If there is no GPU.
        DriverError
            If the driver fails, as when memory is exhausted. The build is kept, and another attempt may
            succeed.
        """
        if self._source.refusal:
            return
        state, free = self._take(0)
        free.append(state)

    @brief
    def bind(self, *arguments: Any, stream: Stream = None, **named: Any) -> Bound:
        """Bind arrays, sizes, initial value, stream and temporary storage: a call only enqueues.

        Parameters
        ----------
        *arguments, **named
            Those of `run`, but for the stream.
        stream : optional
            As in `Algorithm`.

        Returns
        -------
        Bound
            Calling it enqueues the call again; it keeps the arrays alive, and storage of its own.

        Raises
        ------
        TypeError, ValueError
            If an argument has another type than the build's, or is too small, or the stream is captured.
        NoDeviceError
            If there is no GPU.
        """
        self._check_may_be_called()
        from .bound import Bound

        return Bound(self, stream, arguments, named)

    def completed(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """Return the arguments of a call, all but the stream, in order and with defaults."""
        raise NotImplementedError

    def _enqueued(self, arguments: tuple[Any, ...]) -> None:
        """Update arguments that change with a call, as double buffers, once it was enqueued or bound."""

    def _captured_arrays(self, arguments: Sequence[Any]) -> list[Any]:
        """Return the device arrays that the operators have captured, those in iterators among them."""
        found = [state.arrays() for state in self._states if isinstance(state, CapturedState)]
        found += [each.captured() for each in arguments if isinstance(each, Iterator)]
        return [array for group in found for array in group]


class Algorithm(Launchable):
    """An algorithm for given types, operator and device. Made by the factories, not by its constructor.

    All factories take these arguments by name:

    cc : int, pair of int or str, optional
        Compute capability to build for, as in 90, (9, 0), "9.0" or "sm_90"; by default the current device's.
        With it, no GPU is needed. ``"cpu"``: for the CPU, see `cupar.device`.
    wait : bool, optional
        False: build in the background and return at once; the first call, or `ready`, waits.
    link : optional
        Device code that operators call beside their own: the path of a file (``.ltoir``, ``.ptx``, ``.cu``,
        ``.cubin``, ``.fatbin``, ``.o``, ``.a``), ``cuda.LTOIR(…)`` and its like of numba.cuda, an
        ``ObjectCode`` of cuda.core, or a list of these.
    numbers : {"constant"}, optional
        Numbers that operators read stay constants of the code, so that each value is a build. By default they
        become arguments once they change. Iterators bring operators that are built as they were made.

    They raise ``TypeError`` or ``ValueError`` if an argument is invalid, or the operator cannot be
    compiled for the types, and `NoDeviceError` if there is no GPU and no `cc`.

    A call of the object has two phases, as in CUB: with None in place of the temporary storage it returns how
    many bytes that needs, and with a device array of that size it runs. `run` does both, with temporary
    storage of cupar's own. Transforms and searches are called as `run` is. All take

    stream : optional
        A handle, or a stream of CuPy, PyTorch, Numba or cuda.core. None: the current stream of PyTorch or
        CuPy, if arrays are theirs (``ValueError`` if they are of both, and the two differ), else CUDA's
        default stream.

    and raise ``TypeError`` or ``ValueError`` if an argument has another type than the algorithm's, or is
    too small, and `NoDeviceError` if there is no GPU.

    Attributes
    ----------
    build : Build
        Where its code came from.
    """

    _needs_storage: ClassVar[bool] = True
    _buffers: ClassVar[Mapping[str, str]]
    _any_order: ClassVar[tuple[str, ...]] = ()
    _rows: ClassVar[str] = ""
    _disjoint_outputs: ClassVar[bool] = False
    # Takes the specialisation, and returns the function that checks the arguments of a call that it names,
    # and makes the problem of them. numba compiles it unchanged, so it is restricted like plans (see
    # `_kernels.family`), and is given counts and row lengths once they are checked. None: the first count is
    # the problem.
    _problem_maker: ClassVar[Any] = None

    def __init_subclass__(
        cls,
        *,
        family: Family | None = None,
        uses: Mapping[str, str | int],
        buffers: Mapping[str, str] | None = None,
        any_order: tuple[str, ...] = (),
        rows: str = "",
        disjoint_outputs: bool = False,
    ) -> None:
        """Declare what builds an algorithm, and what its calls use.

        Parameters
        ----------
        family : Family, optional
            Its kernels, and how they are launched.
        uses : mapping
            Maps each array parameter of `run` to the number of items a call uses: a constant, or the name of
            the count parameter, or of a field of the problem. Without `_problem_maker`, the first count is
            the problem.
        buffers : mapping, optional
            Maps the inputs that may be double buffers to the outputs, which are None then.
        any_order : tuple of str, optional
            Arrays whose items are processed one by one, with outputs at the same indices: they may
            be in Fortran's order, if all are.
        rows : str, optional
            The array whose rows are the segments, if there are no offsets: its shape gives their number.
        disjoint_outputs : bool, optional
            Whether no output may be another array of the call, too.
        """
        cls._family, cls._uses, cls._buffers, cls._any_order = family, uses, buffers or {}, any_order
        cls._rows, cls._disjoint_outputs = rows, disjoint_outputs

    @NumbaType
    def _numba_type_(self) -> Any:
        """Return its numba type, for compiled host code."""
        from .. import _numba_type  # of the package itself, since numba's types are in a room above

        return _numba_type(self)

    run: Callable[..., None]

    def _call_reader(self, lend: arrays.Lend | None) -> Callable[..., Read]:
        """Return a function that checks the arguments of a call; see `marshal.call_reader`."""
        return call_reader(self._spec, self._states, lend)

    @cached_property
    def _current(self) -> Callable[..., int]:
        """The function that returns the current stream's handle for the arguments of a call."""
        from .._launch.streams import call_stream  # which a call with a stream, or on the CPU, does not need

        return call_stream(self._spec, self._states)

    def completed(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        return completed(type(self).run, arguments, named)

    def _execute(self, temp_storage: Any, stream: Any, arguments: tuple[Any, ...]) -> int:
        """Do one phase of a two-phase call: ask for the temporary storage, or run with it."""
        if stream is not None:
            handle = driver.stream_handle(stream)
        else:
            handle = 0 if temp_storage is None else self._current(arguments, temp_storage)
        state, free = self._take(handle)
        try:
            read = state.read(arguments)
            if read[0] != state.problem:
                state.prepare(read)
            # Includes padding for alignment, and at least a byte, so that an array of that size has an
            # address.
            needed = state.nbytes + _SLACK if state.nbytes else 1
            if temp_storage is None:
                if state.problem is None:
                    state.take_lent()
                return needed
            nbytes: int
            if type(temp_storage) in _CUPY and temp_storage._c_contiguous:
                address, nbytes = temp_storage.data.ptr, temp_storage.nbytes
            else:
                address, nbytes = arrays.storage(temp_storage, state.lend)
                if state.problem is None:
                    state.prepare(read)
            if nbytes < needed:
                if self._former is not None:  # the attribute may have been requested from it
                    former: Algorithm = self._former
                    return former._execute(temp_storage, stream, arguments)
                raise ArgumentValueError("temp_storage", f"needs {needed} bytes for this call, got {nbytes}")
            if address and driver.has_several_devices:
                peers.check_memory("temp_storage", address)
            state.enqueue(read, address + _SLACK & ~_SLACK, state.numbers, handle)
            if self._buffers:
                self._enqueued(arguments)
            return nbytes
        finally:
            free.append(state)

    def values_of(self, arguments: tuple[Any, ...]) -> Read | None:
        """Return the problem and the values of a call; None if objects must live until the call is done.

        For `caller`. Arguments are all those of `run` but the stream, in order.
        """
        state, free = self._take(0)
        try:
            read = state.read(arguments)
            return None if state.take_lent() else read
        finally:
            free.append(state)

    def caller(self, *names: str) -> Callable[[Any, Read], None]:
        """Return the function for calls whose values are known, so that no argument is read.

        It takes a stream, and a tuple of values in the order of `names`; it checks neither.

        Parameters
        ----------
        *names : str
            ``"problem"``, and those of `Specialisation.value_names`. The values are what `values_of` returns:
            addresses, and the bytes of iterators, states and initial values.

        Raises
        ------
        TypeError
            If these are not the names of its values, in their order.
        """
        expected = ("problem", *self._spec.value_names(self._uses))
        if names != expected:
            raise ArgumentTypeError("names", f"{self._spec.algorithm} is called by {expected}, got {names}")
        return self._call

    def _call(self, stream: Any, values: Read) -> None:
        self._run(stream, None, values)

    def _run(self, stream: Any, arguments: Any, read: Read | None = None) -> None:
        """Run with temporary storage of cupar's own, in the order of the stream.

        With `read`, what reading the arguments would return, these are ignored.
        """
        if stream is None:
            handle = self._current(arguments)
        else:
            handle = stream if type(stream) is int and not stream else driver.stream_handle(stream)
        if handle:
            state, free = self._take(handle)
        else:
            try:  # the common case of `_take`, inlined
                state = (
                    free := self._free[0][-1 if (thread := _this_thread).ask() else thread.number.value]
                ).pop()
            except (KeyError, IndexError):
                state, free = self._take(0)
        try:
            if read is None:
                read = state.read(arguments)
            if read[0] != state.problem:
                state.prepare(read)
            nbytes = state.nbytes
            if not nbytes:
                state.enqueue(read, 0, state.numbers, handle)
                return
            workspace, allocate = None, storage.allocator.get()
            if nbytes <= (storage.LARGEST_WORKSPACE if allocate is None else storage.LARGEST_BESIDE):
                memory = state.memory
                workspace = memory.workspace(handle, state.stream_number) if handle else memory.default
            # Under a lock, since kernels of two calls must not interleave in one workspace.
            if workspace is not None and workspace.lock.acquire(False):
                try:
                    if nbytes <= workspace.nbytes or workspace.grow(nbytes):
                        state.enqueue(read, workspace.address, state.numbers, handle)
                        return
                finally:
                    workspace.lock.release()
            if allocate is not None:
                _kept, address = allocate(nbytes)
                state.enqueue(read, address, state.numbers, handle)
                return
            with storage.temporary_storage(nbytes, handle) as address:
                state.enqueue(read, address, state.numbers, handle)
        finally:
            free.append(state)
