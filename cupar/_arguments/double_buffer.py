"""Double buffers of radix sorts."""

from __future__ import annotations

from typing import Any

from .._base.causes import NumbaType
from .._base.errors import ArgumentTypeError
from .._device import streams


class DoubleBuffer:
    """Two arrays between which a radix sort may go back and forth, and so needs less temporary storage.

    Parameters
    ----------
    d_current : device array
        The input. The sort may overwrite it.
    d_alternate : device array
        As large, of the same dtype.

    Attributes
    ----------
    selector : {0, 1}
        Which of the two holds the current values: set by the sort, at its call.
    """

    def __init__(self, d_current: Any, d_alternate: Any) -> None:
        self.d_buffers: tuple[Any, Any] = (d_current, d_alternate)
        self.selector = 0

    def current(self) -> Any:
        """Return the array that holds the values."""
        return self.d_buffers[self.selector]

    def alternate(self) -> Any:
        """Return the other array."""
        return self.d_buffers[1 - self.selector]

    @NumbaType
    def _numba_type_(self) -> Any:
        raise TypeError(
            "a DoubleBuffer, which compiled host code cannot take: give cupar.view(array) in and out, or "
            "call the sort from Python"
        )


streams.register(DoubleBuffer, lambda buffer: buffer.d_buffers)


def opened(source_name: str, source: Any, target_name: str, target: Any) -> tuple[Any, Any]:
    """Return an input and an output from a double buffer.

    Raises
    ------
    TypeError
        If there is an output beside a double buffer.
    """
    if not isinstance(source, DoubleBuffer):
        return source, target
    if target is not None:
        raise ArgumentTypeError(target_name, f"expected None, since {source_name} is a DoubleBuffer")
    return source.current(), source.alternate()


def buffers(d_in_keys: Any, d_in_values: Any) -> tuple[DoubleBuffer, ...]:
    """Return the double buffers among keys and values; raise TypeError if only one of the two is one."""
    if not isinstance(d_in_keys, DoubleBuffer) and not isinstance(d_in_values, DoubleBuffer):
        return ()
    found = tuple([each for each in (d_in_keys, d_in_values) if isinstance(each, DoubleBuffer)])
    if len(found) == 1 and d_in_values is not None:
        raise ArgumentTypeError(
            "d_in_values", "expected a DoubleBuffer if d_in_keys is one, and an array if not"
        )
    return found


def select(buffers: tuple[DoubleBuffer, ...], selector: int) -> None:
    """Set double buffers to the array that has the sort's result."""
    if selector == 1:
        for buffer in buffers:
            buffer.selector = 1 - buffer.selector
