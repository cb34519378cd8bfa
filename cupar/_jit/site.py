"""Launch sites: the function that ``kernel[grid, block]`` returns, for one configuration and stream.

There is a slow one for arguments of any types, `LaunchSite.other`: it finds their types, obtains code for
them, launches it, and has the kernel keep a fast one in its place. The fast one is generated for one
overload: it reads arrays of CuPy, PyTorch and Numba and plain numbers in line, packs what varies, and
launches. If an argument is of another type, it calls the slow one.
"""

from __future__ import annotations

import keyword
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from .._arguments.order import ordered
from .._base.errors import ArgumentTypeError
from .._base.generated import define, fill
from .._device import arrays, driver, streams
from .._ir.operator import CapturedState
from .._ir.types import Array, Member, Scalar, Tuple, Type, varying
from .._launch.streams import NAMES, handle_of
from .configuration import Configuration
from .overload import Overload, all_types
from .reader import ArgumentReader, is_plain_array, targets
from .tensors import guarded, tensor
from .typeof import array_values, typeof, values

if TYPE_CHECKING:
    from .dispatcher import Dispatcher

Launcher = Callable[..., None]

_SOURCE = """
def made(_numbers, _stream, _other):
    def {name}({parameters}):
        {lines}
        try:
            packed = _pack({items})
            {take}
        except _errors:
            return _other(({parameters}))
        {rest}
    return {name}
"""
_ENQUEUE = """
try:
    state.enqueue(packed, 0, _numbers, {handle})
finally:
    free.append(state)
{hold}
"""
_HOLD = "if lent: _hold(lent, {handle})"

# Where a free launch state is found in `Overload.free_states`: by the number of the current context (-1 if
# unknown) or the stream. For the default stream, another one, and launches without a graph.
_CONTEXT, _STREAM = "-1 if (thread := _this_thread).ask() else thread.number.value", "_number_of(_stream)"
_PLACES = {"default": (0, _CONTEXT), "stream": (1, _STREAM), "alone": (2, _CONTEXT), "bytes": (0, "")}
# A launch without a stream asks for the current one.
_ASK = """
_handle = {current}
if _handle:
    state, free = _take(_handle)
else:
    state = (free := _free[{context}]).pop()
"""


class LaunchSite:
    """A kernel with one configuration and stream, and the functions that launch it.

    Parameters
    ----------
    kernel : Kernel
    config : Configuration
    stream : optional
        As for algorithms. None: each launch asks for the current stream.
    remember : callable
        Called with the function that the kernel is to return for this configuration from now on.

    Attributes
    ----------
    kind : {"default", "stream", "alone"}
        Which free launch states its launches take: those of the default stream, of another one, or of any,
        where a graph cannot have the launch. See `_PLACES`.
    """

    def __init__(
        self, kernel: Dispatcher, config: Configuration, stream: Any, remember: Callable[[Launcher], None]
    ) -> None:
        self.kernel: Dispatcher = kernel
        self.config: Configuration = config
        self.stream: Any = stream
        self.handle: int = driver.stream_handle(stream)
        self._remember = remember
        self.kind = "default" if self.handle in (0, driver.LEGACY) else "stream"
        self.asks: bool = stream is None
        if config.attributes or self.handle == driver.PER_THREAD:
            self.kind = "alone"

    def first(self) -> Launcher:
        """Return the slow function, for a kernel without code in this context yet."""
        kernel = self.kernel

        def launch(*arguments: Any, **named: Any) -> None:
            self.other(ordered(kernel.__name__, kernel.names, arguments, named))

        return self._with_methods(launch)

    def other(self, arguments: tuple[Any, ...]) -> None:
        """Launch with arguments of any types: the slow way; then have a fast function remembered."""
        overload = self.kernel.overload_for(arguments)
        overload.loaded.check(self.config)
        lent: list[Any] = []
        packed = self.packed(overload, arguments, lent)
        numbers = self.config.numbers(overload.loaded.is_cooperative)
        handle = streams.ask_of(*arguments, *overload._states)() if self.asks else self.handle
        state, free = overload._take(handle, self.kind == "alone")
        try:
            state.enqueue(packed, 0, numbers, handle)
        finally:
            free.append(state)
        if lent:
            _hold(lent, handle)
        _guard_tensors(overload, arguments)
        self._remember(self.launcher(overload))

    def packed(self, overload: Overload, arguments: tuple[Any, ...], lent: list[Any]) -> bytes:
        """Return the packed arguments, which are of the overload's types or converted to them.

        The owners of arrays' memory, where they are not the arrays, are added to `lent`.
        """
        found = [value for read in captured(overload) for value in read(lent)]
        kinds = overload.types
        for name, kind, argument in zip(self.kernel.names, kinds, arguments, strict=True):
            found += values(name, kind, argument, lent)
        try:
            return overload.loaded.pack(*found)
        except (struct.error, OverflowError) as error:
            raise _refused(self.kernel.names, kinds, arguments, error) from None

    def launcher(self, overload: Overload) -> Launcher:
        """Return the fast function, for an overload."""
        made = _maker(overload, self.kernel, self.kind, self.asks)
        numbers = self.config.numbers(overload.loaded.is_cooperative)
        return self._with_methods(made(numbers, self.handle, self.other))

    def packer(self, overload: Overload, lent: list[Any]) -> Callable[..., bytes]:
        """Return a function that packs arguments; see `packed`."""

        def other(arguments: tuple[Any, ...]) -> bytes:
            found = self.kernel.types_for(arguments)
            if found != overload.types:
                types = ", ".join(map(str, overload.types))
                raise TypeError(f"this launch was bound for ({types}): bind another one for other types")
            return self.packed(overload, arguments, lent)

        made: Any = _maker(overload, self.kernel, "bytes")
        return made(None, lent, other)  # type: ignore[no-any-return]

    def _with_methods(self, launch: Any) -> Launcher:
        launch.site, launch.__qualname__ = self, self.kernel.__name__
        return launch  # type: ignore[no-any-return]


def _maker(overload: Overload, kernel: Dispatcher, kind: str, asks: bool = False) -> Callable[..., Launcher]:
    """Return a factory of an overload's launch functions: takes numbers, stream, and a fallback."""
    key = kind, asks, kernel.converts, arrays.seen(), overload.guarded and overload.guarded[0]
    found = overload.launchers.get(key)
    if found is None:
        found = overload.launchers[key] = _generated(overload, kernel, kind, asks)
    return found


def _generated(overload: Overload, kernel: Dispatcher, kind: str, asks: bool) -> Callable[..., Launcher]:
    kinds, held = all_types(overload._spec), captured(overload)
    place, stream = _PLACES[kind]
    names: dict[str, Any] = {
        "_overload": overload,  # which must be there as long as the functions
        "_pack": overload.loaded.pack,
        "_errors": (KeyError, IndexError, struct.error, OverflowError),
        "_free": overload.free_states(place),
        "_number_of": driver.stream_number,
        "_this_thread": driver.this_thread,
        "_tensor": tensor(),
        "_typeof": typeof,
        "_array_values": array_values,
        "_values": values,
        "_hold": _hand_over if kind == "bytes" else _hold,
        "_take": partial(overload._take, alone=kind == "alone"),
        **NAMES,
    }
    parameters = [each if _is_plain(each) else f"_a{i}" for i, each in enumerate(kernel.names)]
    # Python names the function in errors about wrong arguments.
    own = kernel.__name__ if _is_plain(kernel.__name__) else "kernel"
    lines: list[str] = []
    for i, read in enumerate(held):
        names[f"_captured_{i}"] = read
        lines.append(f"{targets(kinds[i], f'{i}_')} = _captured_{i}(lent)")
    # Before there were tensors, they are handed on; but packing is not generated anew.
    positions, names["_guard"] = overload.guarded or ((), None)
    hands_on = overload.guarded is None and kind != "bytes"
    given = "".join(f"{each}, " for each in parameters)
    reader = ArgumentReader(names, not kernel.converts, f"return _other(({given}))")
    arguments = [
        (name, each, f"{i}_", label)
        for i, (name, each, label) in enumerate(
            zip(parameters, kinds[len(held) :], kernel.names, strict=True), start=len(held)
        )
    ]
    if positions:
        lines += reader.tensors([arguments[i] for i in positions])
    for i, argument in enumerate(arguments):
        if i not in positions:
            lines += reader.read(*argument, hands_on)
    hold, handle = [], "_handle" if asks else "_stream"
    if held or reader.may_be_lent:  # arrays that are read in line are not held
        lines.insert(0, f"lent = {'[]' if held else None}")
        hold = [fill(_HOLD, handle=handle)]
    is_launch = kind != "bytes"
    take = [f"state = (free := _free[{stream}]).pop()"] * is_launch
    if asks:
        names["_states"] = overload._states
        take = [fill(_ASK, current=_current(overload, arguments), context=_CONTEXT)]
    return define(  # type: ignore[no-any-return]
        f"launch of {kernel.__name__}",
        "made",
        _SOURCE,
        names,
        name=own,
        parameters=given,
        lines=lines,
        items=", ".join(f"v{each}" for each in overload.loaded.names),
        take=take,
        rest=[fill(_ENQUEUE, handle=handle, hold=hold)] if is_launch else [*hold, "return packed"],
    )


def _current(overload: Overload, arguments: Sequence[tuple[str, Type, str, str]]) -> str:
    """Return the expression of the current stream's handle for the arguments of a launch."""
    arrays = [name for name, kind, *_ in arguments if isinstance(kind, Array)]
    every = "".join(f"{name}, " for name, kind, *_ in arguments if isinstance(kind, (Array, Tuple)))
    if not arrays or overload._states or any(isinstance(kind, Tuple) for _, kind, *_ in arguments):
        return f"_ask_of({every}*_states)()"
    return handle_of(arrays, every)


def _guard_tensors(overload: Overload, arguments: Sequence[Any]) -> None:
    """Make an overload's functions check all tensors among its arguments in one call, if there are some."""
    if overload.guarded is None and any(type(each) in arrays.TORCH for each in arguments):
        in_line = [
            i
            for i, kind in enumerate(overload.types)
            if is_plain_array(kind) and kind.layout == "C" and arrays.torch_dtype(kind.item.dtype)
        ]
        overload.guarded = guarded(arguments, in_line)


def _is_plain(name: str) -> bool:
    return (
        name.isidentifier()
        and not keyword.iskeyword(name)
        and not name.startswith("_")
        and name not in _TAKEN
    )


_TAKEN = {"packed", "read", "lent", "state", "free", "thread", "type", "len", "tuple"}


def _hold(lent: list[Any], stream: int) -> None:
    """Hold memory lent to a launch until the stream has passed it."""
    from .._device.lent import Lent

    driver.current_context().part(Lent).hold(tuple(lent), stream)


def _hand_over(lent: list[Any], to: list[Any]) -> None:
    to += lent


def captured(overload: Overload) -> list[Callable[[list[Any]], list[Any]]]:
    """Return a function for each captured device array that reads it at launch; see `LaunchSite.packed`."""
    found: list[Callable[[list[Any]], list[Any]]] = []
    for state in overload._states:
        if isinstance(state, CapturedState):
            kinds = all_types(overload._spec)
            pairs = zip(state.captures, kinds, strict=False)
            found += [_reader(state, capture, kind) for capture, kind in pairs]
    return found


def _reader(state: CapturedState, capture: Any, kind: Type) -> Callable[[list[Any]], list[Any]]:
    name = f"captured array {capture.name!r}"

    def read(lent: list[Any]) -> list[Any]:
        array = capture.of(state.function)
        found = typeof(name, array)
        if found != kind:
            raise ArgumentTypeError(name, f"this kernel was compiled for {kind}, got {found}")
        return values(name, kind, array, lent)

    return read


def _refused(
    names: Sequence[str], kinds: Sequence[Type], arguments: Sequence[Any], error: Exception
) -> TypeError:
    """Return an error that names the number that its type cannot hold."""
    for name, kind, argument in zip(names, kinds, arguments, strict=True):
        if isinstance(kind, (Scalar, Member, Tuple)):
            try:
                struct.pack(f"={''.join(varying(kind).values())}", *values(name, kind, argument, []))
            except (struct.error, OverflowError) as why:
                return TypeError(f"{name}: expected {kind}, got {argument!r}: {why}")
    return TypeError(str(error))
