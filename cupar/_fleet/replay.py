"""Repeated calls: captured once as a graph, including their gathers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from .._device import arrays as device_arrays
from .._device import driver
from ..host import View

_MOST = 16  # calls that are known
_NUMBERS = (int, float, bool, complex, type(None))


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
        # None after the first call; False if it cannot be captured.
        self._known: dict[Any, tuple[Callable[[int], None], bytes] | bool | None] = {}

    def find(self, stream: int, arguments: tuple[Any, ...]) -> tuple[Callable[[int], None], bytes] | None:
        """Return what enqueues a call, given a stream, and its description; None if it has to be done."""
        try:
            key = tuple([_part(each) for each in arguments])
        except (TypeError, ValueError):
            return None
        found = self._known.get(key, True)
        if found is True:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[key] = None
        if isinstance(found, bool) or driver.is_captured(stream):
            return None
        if found is None:
            bare = [_bare(part, each) for part, each in zip(key, arguments, strict=True)]
            try:
                found = self._capturing(partial(self._enqueue, bare)), self._described(bare)
            except Exception:  # some work cannot be captured
                self._known[key] = False
                return None
            self._known[key] = found
        return found


def _bare(part: Any, argument: Any) -> Any:
    """Return an argument that keeps no memory."""
    if type(argument) in _NUMBERS or isinstance(argument, np.generic):
        return argument
    if isinstance(argument, np.ndarray):
        return argument.copy()
    address, size, dtype, _, writable, _ = part
    return View(address, dtype, (size,), (dtype.itemsize,), writable, None)


def _part(argument: Any) -> Any:
    """Return the key of a graph; TypeError or ValueError if it has none."""
    if type(argument) in _NUMBERS:
        # By their text: -0.0 equals 0.0, and is another initial value.
        return argument if type(argument) is int else (type(argument), repr(argument))
    if isinstance(argument, (np.ndarray, np.generic)):
        if argument.size != 1:
            raise TypeError("it is an array of the host")
        return argument.dtype, argument.tobytes()
    view = device_arrays.read("", argument, False)
    if not view.contiguous:
        raise ValueError("it is strided")
    return view[:6]  # without its owner
