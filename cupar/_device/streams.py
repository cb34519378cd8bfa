"""Current streams: a call that is given no stream runs on the current one of its arrays' library.

PyTorch and CuPy have one for each thread and device, which programs set as in ``with stream:``. Other
libraries have none, and their arrays no say. Nothing is imported here that the program has not imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any

from .._base.data import Recent
from .._base.errors import ArgumentValueError
from . import driver
from .readers import library_of

Ask = Callable[[], int]  # returns the handle of the current stream, on the current device

NONE: Ask = int  # of classes without a current stream: it returns 0, the handle of the default stream

known: dict[type, Ask] = {}  # by the class of an array, or of any other object
_together: Recent[tuple[type, ...], Ask] = Recent(256)  # by those of several
_names: dict[Ask, str] = {}  # of libraries
_contents: dict[type, Callable[[Any], Iterable[Any]]] = {tuple: iter}  # of objects that hold arrays, by class


def register(cls: type, contents: Callable[[Any], Iterable[Any]]) -> None:
    """Have objects of a class, or a subclass of it, stand for the arrays that a function returns of one."""
    _contents[cls] = contents


def of_cupy(cupy: Any) -> Ask:
    """Return a function that returns the handle of CuPy's current stream."""
    current = cupy.cuda.get_current_stream

    def asked() -> int:
        try:
            return current().ptr  # type: ignore[no-any-return]
        except Exception:
            driver.current_context()  # which says so if the process was forked
            raise

    return asked


@cache
def _ask_torch(torch: Any) -> Ask:
    from .. import _pytorch as private

    current, device = private.current_raw_stream, private.current_device
    if current is None:  # built without CUDA
        return NONE
    return partial(current, 0) if torch.cuda.device_count() <= 1 else lambda: current(device())


_LIBRARIES = {"torch": ("PyTorch", _ask_torch), "cupy": ("CuPy", cache(of_cupy))}


def ask_of(*given: Any) -> Ask:
    """Return what asks for the current stream of arrays, given these among any other objects.

    If they are of two libraries, it raises ValueError where the current streams of these differ.
    """
    classes = tuple(map(type, given))
    try:
        return _together[classes]
    except KeyError:
        pass
    asks = dict.fromkeys(_asks(given))
    asks.pop(NONE, None)
    found = _agreed(*asks) if len(asks) > 1 else next(iter(asks), NONE)
    if all(each in known for each in classes):
        _together[classes] = found
    return found


def _asks(given: Iterable[Any]) -> Iterator[Ask]:
    for each in given:
        cls = type(each)
        if cls not in known and cls not in _contents:
            _learn(cls)
        if cls in known:
            yield known[cls]
        else:
            yield from _asks(_contents[cls](each))


def _learn(cls: type) -> None:
    for base in cls.__mro__:
        if base in _contents:
            _contents[cls] = _contents[base]
            return
    library, ask = library_of(cls), NONE
    if library in sys.modules:  # else it has the name alone
        name, asking = _LIBRARIES[library]
        ask = asking(sys.modules[library])
        _names[ask] = name
    known[cls] = ask


def _agreed(one: Ask, other: Ask) -> Ask:
    """Return what asks two libraries."""

    def ask() -> int:
        first, second = one(), other()
        if first == second or (first | second) == driver.LEGACY:  # which 0 is, too
            return first
        raise ArgumentValueError(
            "stream",
            "got None, and arrays of two libraries whose current streams differ: "
            f"{first:#x} of {_names[one]}, {second:#x} of {_names[other]}; expected one to be given",
        )

    return ask


def current_object(handle: int) -> Any:
    """Return CuPy's current stream, which its object keeps, if it has a handle; else the handle."""
    cupy = sys.modules.get("cupy")
    found = None if cupy is None else cupy.cuda.get_current_stream()
    return handle if found is None or found.ptr != handle else found
