"""The functions of a call that check, set and enqueue its arguments, written out for what it was built for.

They have no loop and, for CuPy's arrays and an initial value in a NumPy array, make no other call: half of
what cupar adds to the bindings' call would be that.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np

from .._compile.specialisation import Specialisation
from .._device import arrays, driver, peers
from .._ir.iterator import state_of
from . import probe, replays
from .double_buffer import DoubleBuffer, opened
from .numbers import initial_bytes, item_count
from .signatures import signature

State = Callable[[], bytes]

MOST_COUNTED = 256  # sizes, on streams, of which a call knows how often they were

# What `written` fills in.
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
key = ({problem}, stream) if stream else {problem}
known = _history.get(key, 0)
if type(known) is _Replay:
    if known.enqueue({bound}, address, nbytes, stream):
        return
    if known.is_stale:
        _history.pop(key, None)
{unless_buffers}
elif known < {calls_before}:
    if not known and len(_history) > {most}:
        _call.forget_counts()
    _history[key] = known + 1
elif (replay := _call.replay({bound}, address, nbytes, stream)) and replay.enqueue(
    {bound}, address, nbytes, stream
):
    return
{settings}
_launch(address, nbytes, {problem}, stream)
"""


class Caller(Protocol):
    """What is written out for: an algorithm object; see `Algorithm.__init_subclass__`."""

    _uses: ClassVar[Mapping[str, str | int]]
    _buffers: ClassVar[Mapping[str, str]]
    _problem: ClassVar[Callable[..., Any] | None]
    _states: Sequence[State | None]
    run: Callable[..., None]

    @property
    def _spec(self) -> Specialisation: ...


class Settable(Protocol):
    """What is set: the bindings' objects of a `Call`."""

    iterators: tuple[Any, ...]
    operators: list[Any]
    init: Any
    launch: Callable[[int, int, Any, int], int]
    history: dict[Any, Any]


def written(
    call: Settable, caller: Caller, memories: Sequence[bytearray | None], init_memory: memoryview | None
) -> dict[str, Callable[..., Any]]:
    """Return the functions `bind`, `set`, `enqueue` and `enqueue_bound` of a call."""
    spec, declared = caller._spec, type(caller)
    parameters, uses = list(signature(declared.run).parameters), declared._uses
    names: dict[str, Any] = {
        "_addresses": arrays.ADDRESSES,
        "_count": item_count,
        "_cupy": arrays.CUPY,
        # Not to keep each other alive: a replay should go when the last reference to the algorithm goes.
        "_call": weakref.proxy(call),
        "_check_memory": peers.check_memory,
        "_DoubleBuffer": DoubleBuffer,
        "_has_buffers": replays.has_buffers,
        "_history": call.history,
        "_launch": call.launch,
        "_opened": opened,
        "_problem": partial(declared._problem, weakref.proxy(caller)) if declared._problem else None,
        "_Replay": replays.Replay,
    }
    checks, problem = _first_lines(declared, parameters, {argument.name for argument in spec.arguments})
    values, settings = [], []
    for i, (argument, iterator, memory) in enumerate(
        zip(spec.arguments, call.iterators, memories, strict=True)
    ):
        array = argument.name
        if array not in uses:
            continue  # what is built in and is no parameter discards what is written to it
        count = uses[array]
        items = count if count in parameters or isinstance(count, int) else f"problem.{count}"
        value = f"value_{i}"
        values.append(value)
        if memory is None:
            names.update({f"_pointer_{i}": iterator, f"_dtype_{i}": argument.value})
            details = f"_dtype_{i}, {items}, {argument.output}, {array!r}"
            checks += [
                f"if not (type({array}) in _cupy and {array}.dtype is _dtype_{i} and {array}._c_contiguous",
                f"        and {array}.size >= {items}",
                f"        and not ({value} := {array}.data.ptr) & {argument.value.alignment - 1}):",
                f"    {value} = _addresses[type({array})]({array}, {details})",
            ]
            if driver.has_several_devices:
                checks.append(f"_check_memory({array!r}, {value})")
            settings.append(f"_pointer_{i}.state = {value}")
        else:
            names.update({f"_state_of_{i}": partial(state_of, argument), f"_memory_{i}": memory})
            checks.append(f"{value} = _state_of_{i}({array}, {items})")
            settings.append(f"_memory_{i}[:] = {value}")
    for i, state in enumerate(caller._states):
        if state is not None:
            names.update({f"_state_{i}": state, f"_operator_{i}": call.operators[i]})
            checks.append(f"state_{i} = _state_{i}()")
            values.append(f"state_{i}")
            settings.append(f"_operator_{i}.state = state_{i}")
    if "h_init" in parameters:
        kind = spec.option("init")
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
    bound = f"({''.join(f'{each}, ' for each in [problem, *values])})"
    enqueue = _ENQUEUE.strip().format(
        problem=problem,
        bound=bound,
        settings="\n".join(settings),
        most=MOST_COUNTED,
        calls_before=replays.CALLS_BEFORE,
        unless_buffers=f"elif _has_buffers({problem}):\n    pass" if declared._buffers else "",
    )
    texts = {"checks": "\n".join(checks), "settings": "\n".join(settings), "enqueue": enqueue}
    indented = {name: text.replace("\n", "\n    ") for name, text in texts.items()}
    exec(probe.compiled(_SOURCE.format(bound=bound, **indented)), names)
    return {name: names.pop(name) for name in ("bind", "set", "enqueue", "enqueue_bound")}


def _first_lines(
    declared: type[Caller], parameters: Sequence[str], built: Collection[str]
) -> tuple[list[str], str]:
    """Return the lines that check counts and find the problem, and what that is called in them."""
    lines = [f"{', '.join(parameters)} = arguments"]
    for name in declared._uses:
        if name not in built:
            message = f"{name}: this {declared.__name__} was built without it; expected None, got "
            lines.append(f"if {name} is not None: raise TypeError({message!r} + type({name}).__name__)")
    counts = [str(count) for count in dict.fromkeys(declared._uses.values()) if count in parameters]
    lines += [
        f"if type({count}) is not int or {count} < 0: {count} = _count({count!r}, {count})"
        for count in counts
    ]
    if declared._problem:
        lines.append(f"problem = _problem({', '.join(parameters)})")
    for source, target in declared._buffers.items():
        lines.append(
            f"if isinstance({source}, _DoubleBuffer): "
            f"{source}, {target} = _opened({source!r}, {source}, {target!r}, {target})"
        )
    return lines, "problem" if declared._problem else counts[0]


def _no_init(h_init: Any) -> None:
    if h_init is not None:
        raise TypeError("h_init: this algorithm was built without an initial value (h_init=None)")
