"""Functions that users give: what names them, whether they changed, what compiled graphs guard of them."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from .._fingerprint import bytecode, walk
from ..operators import OpKind


def digest_of(function: Any) -> str:
    """Return what names a function; TypeError if it reads arrays."""
    if isinstance(function, OpKind):
        return f"kind{int(function)}"
    found = walk.fingerprint(function)
    if found.captures:
        raise TypeError(
            "fn: expected a function of numbers alone, got one that reads the array "
            f"{found.captures[0].name!r}"
        )
    return found.digest.hex()[:16]


class Function:
    """The function of an operator: the one that was last given, which may have been changed since."""

    def __init__(self, fn: Any) -> None:
        self.fn, self.digest = fn, digest_of(fn)

    def unchanged(self) -> Any:
        """Return the function; RuntimeError if it is no longer that of the operator."""
        if digest_of(self.fn) != self.digest:
            raise RuntimeError(
                "fn: what it reads has changed since this was compiled, and its operator is not built for "
                "such a tensor; call it again with the function"
            )
        return self.fn


# In what torch.compile traces: it calls these as it compiles, and guards what is passed to them.
as_it_compiles: Callable[[Callable[..., Any]], Callable[..., Any]] = torch.compiler.assume_constant_result


@as_it_compiles
def _numbers(fn: Any) -> tuple[tuple[tuple[str, ...], tuple[str, ...], Any], ...]:
    """Return the numbers among the globals that a function reads, and how to get at them.

    Each is reached by the names of functions, each among the globals of the one before, and a chain of a
    global and its attributes.
    """
    found, seen = [], set()

    def look(function: FunctionType, path: tuple[str, ...]) -> None:
        if function in seen:
            return
        seen.add(function)
        for chain in bytecode.scan(function.__code__).globals:
            value = function.__globals__.get(chain[0])
            if isinstance(value, FunctionType):
                look(value, (*path, chain[0]))
                continue
            for name in chain[1:]:
                value = getattr(value, name, None)
            if isinstance(value, (bool, int, float, str)):
                found.append((path, chain, value))

    if isinstance(fn, FunctionType):
        look(fn, ())
    return tuple(found)


def guard(fn: Any) -> int:
    """Compare the numbers among the globals of a function, so that for others is compiled again."""
    same = 0
    for path, chain, number in _numbers(fn):
        function = fn
        for name in path:
            function = function.__globals__[name]
        value = function.__globals__[chain[0]]
        for name in chain[1:]:
            value = getattr(value, name)
        if value == number:
            same += 1
    return same
