"""Caches of calls, keyed by the addresses of arrays: graphs of whole calls, and iterators."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .._arguments import tokens
from .._arguments.tokens import NoTokenError
from .._base.data import Recent
from .._device import arrays, driver
from .._ir.iterator import Iterator
from ..host import View

if TYPE_CHECKING:
    from .._functions.calls import Work

_MOST = 8  # calls of an algorithm in a generation of its table

# Enqueues a call that was captured, given a stream; and what other ranks are to know of it.
Replay = tuple[Callable[[int], None], bytes]


class _Known:
    """A call that has been made: captured when it is made again, if that is possible."""

    is_tried: bool = False
    replay: Replay | None = None


class Replays:
    """The calls of one algorithm: the second one with the same arrays, sizes and initial value is captured.

    Its graph goes by where arrays are; it keeps none. `described` returns what other ranks are to know of a
    call, given its arguments.
    """

    def __init__(
        self,
        capturing: Callable[[Callable[[int], Any]], Callable[[int], None]],
        enqueue: Callable[..., Any],
        described: Callable[[Sequence[Any]], bytes],
    ) -> None:
        self._capturing, self._enqueue, self._described = capturing, enqueue, described
        self._known: Recent[Hashable, _Known] = Recent(_MOST)

    def find(self, stream: int, arguments: tuple[Any, ...]) -> Replay | None:
        """Return the graph of a call, and its description; None if there is none."""
        try:
            key = place_key(arguments)
        except (NoTokenError, TypeError, ValueError):
            return None
        found = self._known.find(key)
        if found is None:
            self._known[key] = _Known()
            return None
        if stream and driver.is_captured(stream):
            return None
        if not found.is_tried:
            found.is_tried, found.replay = True, self._captured(arguments)
        return found.replay

    def _captured(self, arguments: tuple[Any, ...]) -> Replay | None:
        try:
            kept = [without_memory(each) for each in arguments]
            return self._capturing(partial(self._enqueue, kept)), self._described(kept)
        except Exception:  # some work cannot be captured
            return None


class IteratorCache:
    """Iterators over arrays, kept by where these are: to make one takes longer than to launch a kernel."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make
        self._known: Recent[Hashable, Any] = Recent(8)

    def __call__(self, work: Work, *arrays: Any) -> Any:
        """Return the iterator for arrays and numbers."""
        if work.library.on_cpu or any(isinstance(each, Iterator) for each in arrays):
            return self._make(*arrays)
        key = place_key(arrays)
        found = self._known.find(key)
        if found is None:
            try:
                kept = [*map(without_memory, arrays)]
            except ValueError:  # it is strided, which is said of the array
                return self._make(*arrays)
            found = self._known[key] = self._make(*kept)
        return found


# --- Keys ------------------------------------------------------------------------------------------------


def _token(argument: Any) -> str:
    try:
        return tokens.of_value(type(argument))
    except NoTokenError:
        _read(argument)  # raises if it is no array; from then on its library is known
        found = arrays.syntax_of(type(argument))
        return "_read({v})" if found is None else found.place


def _read(array: Any) -> Hashable:
    return arrays.read("", array, False)[:6]  # without its owner


# Keys of arrays on devices, by where they are, and of values; NoTokenError, TypeError or ValueError if one is
# neither.
place_key = tokens.Keys(_token, {"_read": _read})


def without_memory(argument: Any) -> Any:
    """Return an argument that keeps no memory of a device, as that may be of results.

    Raises
    ------
    TypeError, ValueError
        If it is neither a number nor an array, or strided.
    """
    if isinstance(argument, np.ndarray):
        return argument.copy()
    if isinstance(argument, (int, float, complex, np.generic)) or argument is None:
        return argument
    address, size, dtype, is_contiguous, writable, *_ = arrays.read("", argument, False)
    if not is_contiguous:
        raise ValueError("it is strided")
    return View(address, dtype, (size,), (dtype.itemsize,), writable, None)
