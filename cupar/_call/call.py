"""What one call of an algorithm needs: the bindings' objects, and what checks and sets its arguments."""

from __future__ import annotations

import inspect
import os
import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import iterators
from .._base import fork
from .._compile import cccl
from .._compile.key import Specialisation
from .._device import arrays, driver, peers, storage, stream_capture
from .._ir.nodes import Argument
from . import probe, replays
from .arguments import initial_bytes, item_count
from .replays import Checked, Replay

if TYPE_CHECKING:
    from .algorithm import Algorithm

State = Callable[[], bytes]
Arrays = Sequence[tuple[Any, int]]  # each with the number of its items that a call uses
Request = tuple[Arrays, Any, Any]  # arrays, how much there is to do, and the initial value
Launch = Callable[[int, int, Any, int], int]
# By work, with its stream unless that is the default one: how many such calls were made, or what replays them
Known = dict[Any, "int | Replay"]


# Code that nobody needs any more. To unload it spoils what other threads capture, unless the thread that does
# so is relaxed about captures; so it is done where that is so anyway.
_retired: list[Any] = []


def _after_fork() -> None:
    if _retired:
        fork.leak(tuple(_retired))
        _retired.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Code:
    """A build's code: serialised, and loaded in a context once it is needed there."""

    def __init__(self, spec: Specialisation, blob: bytes) -> None:
        self.spec = spec
        self._blob = blob
        self._deserialised: Any = None
        self._natives: dict[driver.Context, Any] = {}
        self._known: set[int] = set()  # contexts in which all its kernels are loaded
        self._graph_pools: dict[driver.Context, replays.GraphPool] = {}
        self._generation = fork.generation()
        self._lock = fork.Lock()

    def deserialise(self) -> None:
        """Do what loading begins with, and what needs no GPU.

        Raises
        ------
        DamagedError
            If this is no build's code: then no GPU and no driver will load it.
        """
        with self._lock:
            if self._deserialised is None:
                self._deserialised = cccl.deserialize(self.spec.native, self._blob)

    def native(self, context: driver.Context) -> Any:
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
                device, cc = context.device, self.spec.cc
                # A cubin runs on its own compute capability and on later minor ones.
                if device.cc // 10 != cc // 10 or device.cc < cc:
                    raise ValueError(
                        f"cc: this {self.spec.algorithm} was built for sm_{cc}, the current device "
                        f"{device.ordinal} is sm_{device.cc}"
                    )
                self.deserialise()
                with driver.relaxed_capture_mode():
                    _retired.clear()
                    self._load()
                self._natives[context], self._deserialised = self._deserialised, None
            return self._natives[context]

    def _load(self) -> None:
        status = cccl.load(self._deserialised)
        if status == storage.OUT_OF_MEMORY:
            storage.trim()
            status = cccl.load(self._deserialised)
        driver.check(status, f"loading the code of a {self.spec.algorithm} for sm_{self.spec.cc}")

    def graph_pool(self, context: driver.Context) -> replays.GraphPool:
        """Return the graph pool for replays in a context."""
        return self._graph_pools.setdefault(context, replays.GraphPool(context))

    def once_in(self, context: driver.Context, load: Callable[[], None]) -> None:
        """Call `load`, unless that was done in this context; other threads wait until it is done."""
        with self._lock:
            if context.number not in self._known:
                load()
                self._known.add(context.number)

    def __del__(self) -> None:
        try:
            if self._generation == fork.generation():
                for context, native in self._natives.items():
                    if not driver.is_there(context):  # nobody can tell whether it may be touched
                        fork.leak(native)
                        continue
                    try:
                        self.graph_pool(context).close()
                    finally:
                        _retired.append(native)
            else:
                self.abandon()
        except Exception:
            pass

    def cubin(self) -> bytes:
        """Return the GPU code, an ELF file, for tools that inspect it."""
        return cccl.cubin(self.spec.native, self._blob)

    def abandon(self) -> None:
        """Forget what is loaded: a forked process cannot use what its parent loaded, nor may it unload it."""
        fork.leak(self._natives)
        self._natives, self._known, self._graph_pools = {}, set(), {}
        self._generation = fork.generation()


_MOST_KNOWN = 256  # sizes, on streams, of which a call knows how often they were
# What is counted from when a call could not be replayed. It may have been by chance: kernels' parameters have
# bytes that nobody sets. And what made room for another is not to come back at once, or many sizes in turns
# would be made into replays again and again.
_AFTER_REFUSAL = -1000


class Call:
    """The mutable objects that one call needs: iterators with their pointers, operators, initial value.

    They belong to one call at a time, so that one algorithm object serves many threads.

    Parameters
    ----------
    algorithm : Algorithm
    context : Context
    known : dict
        What is known of the algorithm's calls in this context, by any thread.

    Attributes
    ----------
    name : str
        Of the algorithm.
    context : Context
        Where it is loaded.
    native : object
        The bindings' build, loaded.
    graph_pool : GraphPool
        What replays are made in.
    iterators, operators : list
        The bindings' objects, in the order of the specialisation's.
    init : object or None
        The bindings' initial value.
    launch : callable
        What calls the bindings with these objects; see `Algorithm._launcher`.
    bind : callable
        Takes the arguments of `run`, all but the stream, in a tuple; checks them, and returns how much there
        is to do and all values that the call has: addresses as int, and what is copied as bytes.
    set : callable
        Takes what `bind` returned, and sets the bindings' objects to it.
    enqueue : callable
        Takes what `bind` takes, address and bytes of the temporary storage, and the stream's handle, and
        enqueues the call: as a replay of earlier ones, or through the bindings.
    enqueue_bound : callable
        The same for what `bind` returned.
    memory : Memory
        What is kept of the context's memory.
    workspace : Workspace
        That of the default stream.
    last : tuple
        How much there was to do in the last run, and how many bytes of temporary storage that needs.
    """

    def __init__(self, algorithm: Algorithm, context: driver.Context, known: Known) -> None:
        code, spec = algorithm._code, algorithm._code.spec
        self.name = spec.algorithm
        self.context = context
        self.native = code.native(context)
        self.graph_pool = code.graph_pool(context)
        self.memory = context.part(storage.Memory)
        self.workspace = self.memory.default
        self.iterators, memories = zip(*map(_settable, spec.arguments), strict=True)
        self.operators = [
            cccl.operator(name, op.kind, (), op.state_size, op.state_alignment) for name, op in spec.operators
        ]
        self.init, init_memory = _settable_init(spec)
        self.launch = algorithm._launcher(self)
        self.last: tuple[Any, int] = (None, 0)
        self._known = known
        functions = _written(self, algorithm, memories, init_memory)
        self.bind: Callable[[tuple[Any, ...]], Checked] = functions["bind"]
        self.set: Callable[[Checked], None] = functions["set"]
        self.enqueue: Callable[[tuple[Any, ...], int, int, int], None] = functions["enqueue"]
        self.enqueue_bound: Callable[[Checked, int, int, int], None] = functions["enqueue_bound"]

    def needed(self, bound: Checked, stream: int) -> int:
        """Return how many bytes of temporary storage a call needs."""
        work = bound[0]
        known = self._known.get((work, stream) if stream else work)
        if isinstance(known, replays.Replay):
            return known.needed
        last, nbytes = self.last
        if last != work:
            self.set(bound)
            nbytes = self.launch(0, 0, work, stream)
            if not replays.has_buffers(work):  # their arrays are not to be kept alive
                self.last = work, nbytes
        return nbytes

    def replays(self) -> list[Replay]:
        """Return what replays calls of the algorithm in this context."""
        return [each for each in list(self._known.values()) if isinstance(each, replays.Replay)]

    def _replay(self, bound: Checked, address: int, nbytes: int, stream: int) -> Replay | None:
        """Return what replays a call that was made often, if it can be replayed."""
        key = (bound[0], stream) if stream else bound[0]
        needed = self.needed(bound, stream) if address else 0
        if nbytes < needed:
            return None
        # Neither may always be: that the stream is captured, and that another thread captures or loads code,
        # which may take long.
        if driver.stream_number(stream) is None or not stream_capture.lock.acquire(blocking=False):
            self._known[key] = 0
            return None
        try:
            if isinstance(known := self._known.get(key), replays.Replay):  # made by another thread just now
                return known
            self._known[key] = _AFTER_REFUSAL
            if not self.graph_pool.was_filled:
                return None
            replay = replays.replay_of(self, bound, address, needed, stream, self.graph_pool)
            if replay is not None:
                self.graph_pool.note(replay, self, key)
                self._known[key] = replay
            return replay
        finally:
            stream_capture.lock.release()

    def forget(self, key: Any, replay: Replay) -> bool:
        """Replay calls no more, if it is this that replays them; return whether that is so."""
        if self._known.get(key) is not replay:
            return False
        self._known[key] = _AFTER_REFUSAL
        return True

    def _forget_counts(self) -> None:
        """Keep nothing but replays, so that sizes that come once each do not add up."""
        for key, known in list(self._known.items()):
            if not isinstance(known, replays.Replay):
                self._known.pop(key, None)


# What `_written` fills in.
_SOURCE = """
def bind(arguments):
    {checks}
    return {bound}

def set(bound):
    {bound} = bound
    {settings}

def enqueue(arguments, address, nbytes, stream):
    {checks}
    {enqueue}

def enqueue_bound(bound, address, nbytes, stream):
    {bound} = bound
    {enqueue}
"""

_ENQUEUE = """
key = ({work}, stream) if stream else {work}
known = _known.get(key, 0)
if type(known) is _Replay:
    if known.enqueue({bound}, address, nbytes, stream):
        return
    if known.is_stale:
        _known.pop(key, None)
{unless_buffers}
elif known < {calls_before}:
    if not known and len(_known) > {most}:
        _call._forget_counts()
    _known[key] = known + 1
elif (replay := _call._replay({bound}, address, nbytes, stream)) and replay.enqueue(
    {bound}, address, nbytes, stream
):
    return
{settings}
_launch(address, nbytes, {work}, stream)
"""


def _written(
    call: Call, algorithm: Algorithm, memories: Sequence[bytearray | None], init_memory: memoryview | None
) -> dict[str, Any]:
    """Return those functions of a call that are written out for its arguments.

    They have no loop and, for CuPy's arrays and an initial value in a NumPy array, make no other call: half
    of what cupar adds to the bindings' call would be that.
    """
    spec = algorithm._code.spec
    names: dict[str, Any] = {
        "_addresses": arrays.ADDRESSES,
        "_count": item_count,
        "_cupy": arrays.CUPY,
        # Not to keep each other alive: a replay should go when the last reference to the algorithm goes.
        "_call": weakref.proxy(call),
        "_check_memory": peers.check_memory,
        "_has_buffers": replays.has_buffers,
        "_known": call._known,
        "_launch": call.launch,
        "_Replay": replays.Replay,
        "_request": partial(type(algorithm)._request, weakref.proxy(algorithm)),
    }
    if algorithm._uses:
        checks, array_names, work = _declared(type(algorithm), spec.arguments)
    else:
        unpacked = "".join(f"(array_{i}, items_{i}), " for i in range(len(spec.arguments)))
        checks = [f"({unpacked}), work, h_init = _request(*arguments)"]
        array_names, work = [(f"array_{i}", f"items_{i}") for i in range(len(spec.arguments))], "work"
    values, settings = [], []
    used = zip(array_names, spec.arguments, call.iterators, memories, strict=True)
    for i, ((array, items), argument, iterator, memory) in enumerate(used):
        if not array:
            continue
        value = f"value_{i}"
        values.append(value)
        if memory is None:
            names.update({f"_pointer_{i}": iterator, f"_dtype_{i}": argument.value})
            details = f"_dtype_{i}, {items}, {argument.output}, {argument.name!r}"
            checks += [
                f"if not (type({array}) in _cupy and {array}.dtype is _dtype_{i} and {array}._c_contiguous",
                f"        and {array}.size >= {items}",
                f"        and not ({value} := {array}.data.ptr) & {argument.value.alignment - 1}):",
                f"    {value} = _addresses[type({array})]({array}, {details})",
            ]
            if driver.has_several_devices:
                checks.append(f"_check_memory({argument.name!r}, {value})")
            settings.append(f"_pointer_{i}.state = {value}")
        else:
            names.update({f"_state_of_{i}": partial(iterators.state_of, argument), f"_memory_{i}": memory})
            checks.append(f"{value} = _state_of_{i}({array}, {items})")
            settings.append(f"_memory_{i}[:] = {value}")
    for i, state in enumerate(algorithm._states):
        if state is not None:
            names.update({f"_state_{i}": state, f"_operator_{i}": call.operators[i]})
            checks.append(f"state_{i} = _state_{i}()")
            values.append(f"state_{i}")
            settings.append(f"_operator_{i}.state = state_{i}")
    if "h_init" in checks[0]:
        kind = dict(spec.options).get("init")
        names.update(_init=call.init, _memory=init_memory, _ndarray=np.ndarray, _none=_no_init)
        names.update(_address=arrays.address, _bytes=initial_bytes)
        if kind is not None:
            names["_dtype"] = spec.operators[0][1].output
        checks += {
            None: ["if h_init is not None: _none(h_init)"],
            "device": ["init = _address('h_init', h_init, _dtype, 1, False)"],
            "value": [
                "if type(h_init) is _ndarray and h_init.dtype is _dtype and h_init.size == 1:",
                "    init = h_init.tobytes()",
                "else:",
                "    init = _bytes(h_init, _dtype)",
            ],
        }[kind]
        if kind is not None:
            values.append("init")
            settings.append("_memory[:] = init" if kind == "value" else "_init.state = init")
    bound = f"({''.join(f'{each}, ' for each in [work, *values])})"
    enqueue = _ENQUEUE.strip().format(
        work=work,
        bound=bound,
        settings="\n".join(settings),
        most=_MOST_KNOWN,
        calls_before=replays.CALLS_BEFORE,
        unless_buffers="" if algorithm._uses else f"elif _has_buffers({work}):\n    pass",
    )
    texts = {"checks": "\n".join(checks), "settings": "\n".join(settings), "enqueue": enqueue}
    indented = {name: text.replace("\n", "\n    ") for name, text in texts.items()}
    exec(probe.compiled(_SOURCE.format(bound=bound, **indented)), names)
    return {name: names.pop(name) for name in ("bind", "set", "enqueue", "enqueue_bound")}


def completed(run: Callable[..., None], arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of a method `run`, all but the stream, in order and with defaults."""
    if not named and len(arguments) == len(signature(run).parameters):
        return arguments
    given = signature(run).bind(*arguments, **named)
    given.apply_defaults()
    return tuple(given.arguments.values())


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
    array_names = [(each.name, str(uses[each.name])) if each.name in uses else ("", "") for each in arguments]
    return lines, array_names, next(iter(counts))


def _settable(argument: Argument) -> tuple[Any, bytearray | None]:
    """Return the bindings' iterator of an argument and, unless it is a pointer, the memory of its state."""
    if argument.is_pointer:
        return cccl.pointer(argument.value), None
    state = bytearray(argument.node.size)
    return cccl.iterator(argument.name, argument.value, state), state


def _settable_init(spec: Specialisation) -> tuple[Any, memoryview | None]:
    """Return the bindings' initial value and the memory that it is in, if it is not on the device."""
    kind = dict(spec.options).get("init")
    if kind is None:
        return None, None
    dtype = spec.operators[0][1].output
    if kind == "device":
        return cccl.pointer(dtype), None
    memory = np.zeros(1, dtype)
    return cccl.value(memory), memory.view(np.uint8).data


def _no_init(h_init: Any) -> None:
    if h_init is not None:
        raise TypeError("h_init: this algorithm was built without an initial value (h_init=None)")
