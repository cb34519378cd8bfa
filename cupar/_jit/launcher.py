"""Launches: a function for a kernel's configuration and argument types, written out.

It reads arrays of CuPy, PyTorch and Numba and plain numbers in line, packs what varies, and launches that.
What is not of the types it was written for, it hands on: then the types are found out, code for them is
obtained, and another function takes its place.
"""

from __future__ import annotations

import keyword
import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from .._base.generated import define
from .._device import arrays, driver, peers
from .._ir.operator import CapturedState
from .._ir.types import Member, Scalar, Tuple, Type, slots
from .configuration import Configuration
from .overload import Overload, all_types
from .reads import Writer, is_plain_array, targets
from .tensors import guarded, tensor
from .typeof import array_values, typeof, values

Launch = Callable[..., None]

_SOURCE = """
def made(_config, _handle, _other):
    def {name}({parameters}):
        {reads}
        {rest}
    return {name}
"""

_LAUNCH = """
try:
    packed = _pack({items})
    enqueue = (free := _free[{stream}]).pop()
except _errors:
    return _other(({parameters}))
try:
    enqueue(packed, _config, _handle)
finally:
    free.append(enqueue)
{hold}
"""

_BYTES = """
try:
    packed = _pack({items})
except _errors:
    return _other(({parameters}))
{hold}
return packed
"""
_HOLD = "if lent: _hold(lent, _handle)"

# By which a launch that is free is found: the number of the current context, and none that there is if that
# cannot be told; or the stream's.
_CONTEXT, _STREAM = "-1 if (thread := _this_thread).ask() else thread.number.value", "_number_of(_handle)"
_PLACES = {"default": (0, _CONTEXT), "stream": (1, _STREAM), "alone": (2, _CONTEXT), "bytes": (0, "")}


class Launched(Protocol):
    """What sites launch: a kernel."""

    names: Sequence[str]
    __name__: str

    def overload_for(self, arguments: tuple[Any, ...]) -> Overload:
        """Return the code for arguments and the current device."""

    def types_for(self, arguments: tuple[Any, ...]) -> tuple[Type, ...]:
        """Return the types that it is compiled for to be launched with arguments."""

    @property
    def converts(self) -> bool:
        """Whether arguments are converted to the types that were declared."""


class Site:
    """Where a kernel is launched with one configuration, on one stream.

    Parameters
    ----------
    kernel : Launched
    config : Configuration
    stream : optional
        As for algorithms.

    Attributes
    ----------
    launch : callable
        Takes the kernel's arguments.
    """

    def __init__(
        self, kernel: Launched, config: Configuration, stream: Any, remember: Callable[[Launch], None]
    ) -> None:
        self.kernel: Launched = kernel
        self.config: Configuration = config
        self.stream: Any = stream
        self.handle: int = driver.stream_handle(stream)
        self._remember = remember
        # How it is launched: for the default stream or another one; or by itself, as a graph cannot do it.
        self.kind = "default" if self.handle in (0, driver.LEGACY) else "stream"
        if config.attributes or self.handle == driver.PER_THREAD:
            self.kind = "alone"

    def first(self) -> Launch:
        """Return what launches anything."""

        def launch(*arguments: Any, **named: Any) -> None:
            self.other(ordered(self.kernel, arguments, named))

        return self._with_methods(launch)

    def other(self, arguments: tuple[Any, ...]) -> None:
        """Launch with arguments of any types."""
        overload = self.kernel.overload_for(arguments)
        overload.loaded.check(self.config)
        lent: list[Any] = []
        packed = self.packed(overload, arguments, lent)
        enqueue, free = overload.take(self.handle, self.kind == "alone")
        try:
            enqueue(packed, self.config, self.handle)
        finally:
            free.append(enqueue)
        if lent:
            _hold(lent, self.handle)
        _guard_tensors(overload, arguments)
        self._remember(self.written(overload))

    def packed(self, overload: Overload, arguments: tuple[Any, ...], lent: list[Any]) -> bytes:
        """Return what is handed over of arguments, which are of the overload's types or converted to them.

        What has the memory of arrays, if that is not they, is added to `lent`.
        """
        found = [value for read in captured(overload) for value in read(lent)]
        kinds = overload.types
        for name, kind, argument in zip(self.kernel.names, kinds, arguments, strict=True):
            found += values(name, kind, argument, lent)
        try:
            return overload.loaded.pack(*found)
        except (struct.error, OverflowError) as error:
            raise _refused(self.kernel.names, kinds, arguments, error) from None

    def written(self, overload: Overload) -> Launch:
        """Return the function for an overload."""
        made = _written(overload, self.kernel, self.kind)
        return self._with_methods(made(self.config, self.handle, self.other))

    def packer(self, overload: Overload, lent: list[Any]) -> Callable[..., bytes]:
        """Return what packs arguments of an overload's types, or that are converted to them; see `packed`."""

        def other(arguments: tuple[Any, ...]) -> bytes:
            found = self.kernel.types_for(arguments)
            if found != overload.types:
                types = ", ".join(map(str, overload.types))
                raise TypeError(f"this launch was bound for ({types}): bind another one for other types")
            return self.packed(overload, arguments, lent)

        made: Any = _written(overload, self.kernel, "bytes")
        return made(None, lent, other)  # type: ignore[no-any-return]

    def _with_methods(self, launch: Any) -> Launch:
        launch.site, launch.__qualname__ = self, self.kernel.__name__
        return launch  # type: ignore[no-any-return]


def _written(overload: Overload, kernel: Launched, kind: str) -> Callable[..., Launch]:
    """Return what makes functions for an overload: of a configuration, a stream, and where others go."""
    key = kind, kernel.converts, arrays.seen(), overload.guarded and overload.guarded[0]
    found = overload.written.get(key)
    if found is None:
        found = overload.written[key] = _write(overload, kernel, kind)
    return found


def _write(overload: Overload, kernel: Launched, kind: str) -> Callable[..., Launch]:
    kinds, held = all_types(overload._spec), captured(overload)
    place, stream = _PLACES[kind]
    names: dict[str, Any] = {
        "_overload": overload,  # which must be there as long as the functions
        "_pack": overload.loaded.pack,
        "_errors": (KeyError, IndexError, struct.error, OverflowError),
        "_free": overload._free[place],
        "_number_of": driver.stream_number,
        "_this_thread": driver.this_thread,
        "_cupy": arrays.CUPY,
        "_torch": arrays.TORCH,
        "_tensor": tensor(),
        "_numba": arrays.NUMBA,
        "_seen": arrays.seen,
        "_check_memory": peers.check_memory,
        "_typeof": typeof,
        "_array_values": array_values,
        "_values": values,
        "_hold": _hand_over if kind == "bytes" else _hold,
    }
    parameters = [each if _is_plain(each) else f"_a{i}" for i, each in enumerate(kernel.names)]
    # Python says of wrong arguments which function they are for.
    own = kernel.__name__ if _is_plain(kernel.__name__) else "kernel"
    lines: list[str] = []
    for i, read in enumerate(held):
        names[f"_captured_{i}"] = read
        lines.append(f"{targets(kinds[i], f'{i}_')} = _captured_{i}(lent)")
    # Before there were tensors, they are handed on; but what only packs is not written anew.
    positions, names["_guard"] = overload.guarded or ((), None)
    hands_on = overload.guarded is None and kind != "bytes"
    writer = Writer(names, not kernel.converts, f"return _other(({_tuple(parameters)}))")
    arguments = [
        (name, each, f"{i}_", label)
        for i, (name, each, label) in enumerate(
            zip(parameters, kinds[len(held) :], kernel.names, strict=True), start=len(held)
        )
    ]
    if positions:
        lines += writer.tensors([arguments[i] for i in positions])
    for i, argument in enumerate(arguments):
        if i not in positions:
            lines += writer.read(*argument, hands_on)
    may_be_lent = held or writer.may_be_lent
    if may_be_lent:  # of which arrays that are read in line know nothing
        lines.insert(0, f"lent = {'[]' if held else None}")
    items = ", ".join(f"v{each}" for each in overload.loaded.packing.names)
    rest = (_BYTES if kind == "bytes" else _LAUNCH).format(
        items=items, parameters=_tuple(parameters), stream=stream, hold=_HOLD if may_be_lent else ""
    )
    return define(  # type: ignore[no-any-return]
        f"launch of {kernel.__name__}",
        "made",
        _SOURCE,
        names,
        name=own,
        parameters=", ".join(parameters),
        reads=lines,
        rest=rest.strip().splitlines(),
    )


def _guard_tensors(overload: Overload, arguments: Sequence[Any]) -> None:
    """Have functions for an overload check at once those of its arguments that are tensors, if some are."""
    if overload.guarded is None and any(type(each) in arrays.TORCH for each in arguments):
        in_line = [
            i
            for i, kind in enumerate(overload.types)
            if is_plain_array(kind) and kind.layout == "C" and arrays.torch_dtype(kind.item.dtype)
        ]
        overload.guarded = guarded(arguments, in_line)


def _tuple(names: Sequence[str]) -> str:
    return "".join(f"{each}, " for each in names)


def _is_plain(name: str) -> bool:
    return (
        name.isidentifier()
        and not keyword.iskeyword(name)
        and not name.startswith("_")
        and name not in _TAKEN
    )


_TAKEN = {"packed", "read", "lent", "enqueue", "free", "thread", "type", "len", "KeyError"}


def ordered(kernel: Launched, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """Return arguments in the order of a kernel's parameters; TypeError if they are not for all of them."""
    wanted = kernel.names
    if not named and len(arguments) == len(wanted):
        return arguments
    given = dict(zip(wanted, arguments, strict=False))
    if len(arguments) > len(wanted) or given.keys() & named.keys() or {*given, *named} != {*wanted}:
        got = ", ".join([f"{len(arguments)} by position", *named])
        raise TypeError(f"{kernel.__name__}: takes {len(wanted)} arguments ({', '.join(wanted)}), got {got}")
    return tuple({**given, **named}[name] for name in wanted)


def _hold(lent: list[Any], stream: int) -> None:
    """Hold what a launch was lent until the stream has passed it."""
    from .._device.lent import Lent

    driver.current_context().part(Lent).hold(tuple(lent), stream)


def _hand_over(lent: list[Any], to: list[Any]) -> None:
    to += lent


def captured(overload: Overload) -> list[Callable[[list[Any]], list[Any]]]:
    """Return what reads each device array that a kernel has captured, as it is then; see `Site.packed`."""
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
            raise TypeError(f"{name}: this kernel was compiled for {kind}, got {found}")
        return values(name, kind, array, lent)

    return read


def _refused(
    names: Sequence[str], kinds: Sequence[Type], arguments: Sequence[Any], error: Exception
) -> TypeError:
    """Return the error for a number that is too large for its type, which it names."""
    for name, kind, argument in zip(names, kinds, arguments, strict=True):
        codes = [slot.code for slot in slots(kind) if hasattr(slot, "name")]
        if isinstance(kind, (Scalar, Member, Tuple)):
            try:
                struct.pack(f"={''.join(codes)}", *values(name, kind, argument, []))
            except (struct.error, OverflowError) as why:
                return TypeError(f"{name}: expected {kind}, got {argument!r}: {why}")
    return TypeError(str(error))
