"""What errors show: the user's frames alone, where a function is, the long error behind a short one."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=BaseException)

EXPECTED = (TypeError, ValueError, RuntimeError, ImportError)  # errors meant for users


def is_debugging() -> bool:
    """Whether ``CUPAR_DEBUG=1`` asks for all that compilers say."""
    return os.environ.get("CUPAR_DEBUG", "") not in ("", "0")


def cause(error: BaseException) -> BaseException | None:
    """Return the cause of a short error: the long error when debugging, else None."""
    return error if is_debugging() else None


def without_own_frames(error: E) -> E:
    """Return an error whose traceback has no frames of cupar's, of compilers, and of the standard library."""
    if is_debugging():
        return error
    kept, at = [], error.__traceback__
    while at is not None:
        if not _is_internal(at.tb_frame.f_code.co_filename):
            kept.append(at)
        at = at.tb_next
    traceback = None
    for each in reversed(kept):
        traceback = TracebackType(traceback, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return error.with_traceback(traceback)


def _is_internal(file: str) -> bool:
    is_pythons = file.startswith(("<cupar", _STANDARD_LIBRARY)) and "site-packages" not in file
    return is_pythons or is_ours(file)


def place(function: Any) -> str:
    """Return where a function is defined, as in ``" (file.py:12)"``; empty for one that is not Python's."""
    code = getattr(getattr(function, "py_func", function), "__code__", None)
    if code is None or is_ours(code.co_filename):
        return ""
    return f" ({code.co_filename}:{code.co_firstlineno})"


def named(name: str, function: Any) -> str:
    """Return a function's name and place; of one of cupar's around one of the user's, those of both."""
    inner = None if place(function) else _within(function)
    return (
        f"{name}{place(function)}" if inner is None else f"{inner.__qualname__}{place(inner)} within {name}"
    )


def _within(function: Any, most: int = 4) -> Any:
    """Return the first function of the user's that a function's variables lead to, or None."""
    for cell in getattr(function, "__closure__", None) or ():
        try:
            inner = getattr(cell.cell_contents, "py_func", cell.cell_contents)
        except ValueError:  # not assigned yet
            continue
        found = inner if place(inner) else _within(inner, most - 1) if most else None
        if found is not None:
            return found
    return None


_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120 - hits import no pathlib here


def is_ours(file: str) -> bool:
    """Whether a file is a compiler's or cupar's own."""
    modules = map(sys.modules.get, ("cupar", "numba", "numba.cuda"))
    folders = (os.path.dirname(module.__file__) for module in modules if module and module.__file__)  # noqa: PTH120
    return file in ("<cupar>", "<string>") or any(file.startswith(f"{folder}{os.sep}") for folder in folders)


def nested(name: str) -> TypeError:
    """Return the error for an argument of `name` that Python cannot follow to its end."""
    return TypeError(
        f"{name}: an argument has too many iterators, structs or functions within each other; write fewer, "
        "which do more each"
    )


def brief(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function that is not on the path of calls: errors show the user's frames only.

    After JAX's `api_boundary`. With ``CUPAR_DEBUG=1`` all frames are shown.
    """

    @functools.wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> R:
        try:
            return function(*args, **named)
        except RecursionError as error:
            raise nested(function.__qualname__.removesuffix(".__init__")) from cause(error)
        except EXPECTED as error:
            raise without_own_frames(error)  # noqa: B904 - it is the same error

    return call


class NumbaType:
    """Decorates a method as the attribute `_numba_type_`, by which numba asks an object for its type.

    Parameters
    ----------
    make : callable
        Takes the object. Its errors are raised as numba's TypingError, which numba shows without the frames
        of its compiler. (An AttributeError would mean to numba that the object has no type.)
    """

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            raise AttributeError("_numba_type_: only instances have it")
        try:
            return self._make(instance)
        except Exception as error:
            raise _typing_error(error) from cause(error)


def _typing_error(error: Exception) -> Exception:
    kind = sys.modules["numba.core.errors"].TypingError  # numba is there, since it asks
    text = str(error)
    if not isinstance(error, (kind, *EXPECTED)):
        text = f"compiled host code cannot take this: {error!r}"
    made: Exception = kind(text)
    return made
