"""External functions that numba.cuda can call, as plain data.

Two kinds of object are such functions. ``cuda.declare_device`` returns the one. The other has ``name``, its
symbol, and ``sig``, a signature of numba's or the text of one; ``abi`` as `declare_device` takes it, by
default ``"c"``; and the code to link as ``__numba_cuda_link__``, which the first kind may have, too.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from .._base.data import dataclass
from .files import FileGuard
from .kinds import LINK, is_declared
from .linkable import Linkable, collect


@dataclass(frozen=True)
class External:
    """An external function, and the code linked with it."""

    symbol: str
    result: str  # types, as text
    arguments: tuple[str, ...]
    abi: str  # "c" or "numba": the calling convention
    waits_for_grid: bool
    links: tuple[Linkable, ...]

    @property
    def name(self) -> str:
        """Its name, for messages."""
        return self.symbol

    @property
    def signature(self) -> str:
        """Result and arguments as numba writes them."""
        return f"{self.result}({', '.join(self.arguments)})"


class FunctionFiles(FileGuard):
    """A guard of the code linked for one function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self._function = function
        self._items: tuple[Any, ...] = ()

    def holds(self) -> bool:
        """Whether the linked code is unchanged."""
        items = _given(self._function)
        same = len(items) == len(self._items) and all(a is b for a, b in zip(items, self._items, strict=True))
        return same and super().holds()

    def links(self, where: str, more: Any, types: Callable[[], tuple[Any, ...]]) -> tuple[Linkable, ...]:
        """Return the code to link: its declaration's, and the code it names for the types of a call."""
        self._items = _given(self._function)
        own = getattr(self._function, LINK, None)
        if isinstance(own, MethodType):
            try:
                own = own(*types())
            except Exception as error:
                raise ValueError(f"{where}: its {LINK} raised {type(error).__name__}: {error}") from error
        return collect([*more, own], where, self)


def read_own(function: Any, where: str) -> tuple[tuple[Linkable, ...], FunctionFiles]:
    """Return the code that a Python function asks to be linked, and a guard of it.

    Raises
    ------
    TypeError, ValueError
        If it is no code, or a file is missing.
    """
    watch = FunctionFiles(function)
    if callable(getattr(function, LINK)):
        raise TypeError(
            f"{where}: {LINK} of a function in Python is code or a list of code; one that is called is of an "
            "object with `name` and `sig`"
        )
    return watch.links(where, (), tuple), watch


def _given(function: Any) -> tuple[Any, ...]:
    """Return the objects that a function names as code to link, or its method that returns them."""
    own = getattr(function, LINK, None)
    if isinstance(own, MethodType):
        return (own.__func__,)
    return tuple(own) if isinstance(own, (list, tuple, set, frozenset)) else (own,)


def read(function: Any, where: str) -> tuple[External, FunctionFiles]:
    """Return an external function as plain data, and a guard of it.

    Raises
    ------
    TypeError, ValueError
        If one of its attributes is invalid, or a file is missing.
    """
    from .. import _numba

    if is_declared(function):
        name, result, arguments, abi, waits, items = _numba.declared(function)
    else:
        name = getattr(function, "name", "")
        if not (name and isinstance(name, str)) or not hasattr(function, "sig"):
            raise ValueError(
                f"{where}: it has {LINK}, but no `name` and `sig`, by which it could be called: give its "
                "symbol and its signature, as in 'float32(float32, float32)'"
            )
        abi, waits, items = getattr(function, "abi", "c"), False, ()
        if abi not in ("c", "numba"):
            raise ValueError(f"{where}: its `abi` is {abi!r}, expected 'c' or 'numba'")
        try:
            result, arguments = _numba.signature(function.sig)
        except Exception as error:
            raise ValueError(f"{where}: its `sig` is no signature: {error}") from None
    watch = FunctionFiles(function)
    links = watch.links(f"{where}: {name}", items, lambda: tuple(arguments))
    try:
        texts = [_numba.type_text(each) for each in (result, *arguments)]
    except ValueError as error:
        raise ValueError(f"{where}: {name} has a value of type {error} in its signature") from None
    return External(name, texts[0], tuple(texts[1:]), abi, waits, links), watch
