"""User functions in operators of PyTorch: their digests, changes to them, and guards in compiled graphs."""

from __future__ import annotations

import builtins
import functools
import math
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from .._base import fork
from .._base.errors import ArgumentTypeError, of_parameter
from .._fingerprint import bytecode, walk
from .._jobs.threads import off_main_thread
from ..operators import OpKind

T = TypeVar("T")


_OWN = [(builtins, "max", max), (builtins, "min", min), (math, "pow", math.pow)]


def with_own_builtins(function: Callable[..., T]) -> Callable[..., T]:
    """Decorate what looks into functions, or has numba compile them.

    `torch.export` replaces `max`, `min` and `math.pow` by its own functions while it traces.
    """

    @functools.wraps(function)
    def called(*arguments: Any) -> T:
        replaced = [each for each in _OWN if getattr(*each[:2]) is not each[2]]
        if not replaced:
            return function(*arguments)
        others = [getattr(*each[:2]) for each in replaced]
        for (home, name, own), other in zip(replaced, others, strict=True):
            setattr(home, name, own)
            arguments = tuple([own if each is other else each for each in arguments])
        try:
            return function(*arguments)
        finally:
            for (home, name, _), other in zip(replaced, others, strict=True):
                setattr(home, name, other)

    return called


_ALONE = "expected a function of numbers alone, got one that reads"


def digest_of(function: Any, name: str = "fn") -> str:
    """Return the digest of a function; TypeError, which begins with `name`, if it is none or reads arrays."""
    if isinstance(function, OpKind):
        return f"kind{int(function)}"
    if not callable(function):
        raise TypeError(f"{name}: expected a function, an OpKind or a ufunc, got {function!r}")
    try:
        found = walk.fingerprint(function)
    except TypeError as error:
        if isinstance(error, ArgumentTypeError) and error.said.startswith("expected a device array"):
            raise ArgumentTypeError(name, f"{_ALONE} a tensor, {error.parameter}") from None
        raise of_parameter(name, error) from None
    if found.captures:
        raise TypeError(f"{name}: {_ALONE} the array {found.captures[0].name!r}")
    return found.digest.hex()[:16]


class UserFunction:
    """The function of an operator: the last one given, which may have changed since."""

    def __init__(self, fn: Any, digest: str, name: str) -> None:
        self.fn, self.digest, self.name = fn, digest, name

    def unchanged(self) -> Any:
        """Return the function; RuntimeError if it is no longer that of the operator."""
        if digest_of(self.fn, self.name) != self.digest:
            raise RuntimeError(
                f"{self.name}: what it reads has changed since this was compiled, and its operator is not "
                "built for such a tensor; call it again with the function"
            )
        return self.fn


# --- One operator for each function -----------------------------------------------------------------------

# In traced code, torch.compile calls these functions when it compiles, and guards their arguments.
as_it_compiles: Callable[[Callable[..., Any]], Callable[..., Any]] = torch.compiler.assume_constant_result


class OperatorFamily(NamedTuple):
    """Operators that are alike but for the functions that they are given.

    Attributes
    ----------
    make : callable
        Takes an operator's name and what `operator_of` was given, functions as `UserFunction`; returns it.
    names : tuple of str
        What errors call the functions; nothing is the name of a number.
    """

    make: Callable[..., Any]
    names: tuple[str, ...]


families: dict[str, OperatorFamily] = {}
_made: dict[Any, tuple[Any, list[Any]]] = {}  # as long as the process: they are registered
_lock = fork.Lock()


@with_own_builtins
def operator_of(family: str, *given: Any) -> Any:
    """Return the operator of a family for functions as they are now, and for whatever numbers there are."""
    make, names = families[family]
    given += (None,) * (len(names) - len(given))
    key = (family, *map(_key, given, names))
    found = _made.get(key)
    if found is None:

        def register() -> None:
            with _lock:
                if key not in _made:
                    functions = [
                        UserFunction(fn, digest, name) if isinstance(digest, str) else fn
                        for fn, digest, name in zip(given, key[1:], names, strict=True)
                    ]
                    known = "_".join(str(each) for each in key if each is not None)
                    _made[key] = make(known, *functions), functions

        off_main_thread(register)  # an interrupt would leave an operator that is registered in part, for ever
        found = _made[key]
    for function, fn in zip(found[1], given, strict=True):
        if type(function) is UserFunction:
            function.fn = fn
    return found[0]


_OPTIONAL = ("derivative", "less", "equal")


def _key(given: Any, name: str) -> Any:
    return given if not name or (given is None and name in _OPTIONAL) else digest_of(given, name)


@as_it_compiles
def _name_of(family: str, same: int, *given: Any) -> str:
    """Return the name of an operator, by which graphs find it."""
    return str(operator_of(family, *given)._schema.name.partition("::")[2])


def guarded_operator(family: str, *given: Any) -> Any:
    """Return the operator of a family for functions, which compiled code guards."""
    if not torch.compiler.is_compiling():
        return operator_of(family, *given)
    same = 0
    for each in given:
        if each is not None and type(each) is not int:
            same += guard(each)
    return getattr(torch.ops.cupar, _name_of(family, same, *given)).default


# --- Guards -----------------------------------------------------------------------------------------------

Steps = tuple[tuple[str, Any], ...]


def _has_guard(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_has_guard, value))
    return isinstance(value, (bool, int, float, complex, str))


@as_it_compiles
def _numbers(fn: Any) -> tuple[tuple[Steps, Any], ...]:
    """Return the numbers and functions that a function reads, and by which steps each is reached."""
    found: list[tuple[Steps, Any]] = []
    seen = set()

    def add(value: Any, steps: Steps, text: str) -> None:
        if isinstance(value, FunctionType):
            look(value, (*steps, ("function", "")))
        elif _has_guard(value):
            found.append((steps, value))
        elif isinstance(value, (np.generic, tuple)):
            raise TypeError(
                f"fn: it reads {text}, a {type(value).__name__}, which torch.compile has no guard for: "
                "expected numbers of Python's, and tuples of these"
            )

    def look(function: FunctionType, steps: Steps) -> None:
        if steps:
            found.append((steps, None))
        if function in seen:
            return
        seen.add(function)
        for name, *attributes in bytecode.scan(function.__code__).globals:
            value = function.__globals__.get(name)
            for each in attributes:
                value = getattr(value, each, None)
            chain = (("global", name), *(("attribute", each) for each in attributes))
            add(value, (*steps, *chain), ".".join([name, *attributes]))
        for i, name in enumerate(function.__code__.co_freevars):
            cell = (function.__closure__ or ())[i]
            add(cell.cell_contents, (*steps, ("cell", i)), name)
        if function.__defaults__:
            add(function.__defaults__, (*steps, ("defaults", "")), "its defaults")

    if isinstance(fn, FunctionType):
        look(fn, ())
    return tuple(found)


def _is_made_here(fn: Any) -> bool:
    """Whether the compiled code itself makes the function, and guards its parts; it has no globals yet."""
    try:
        fn.__globals__  # noqa: B018
    except AttributeError:
        return True
    return False


@as_it_compiles
def _home(fn: FunctionType) -> str:
    """Return the name of the module whose globals a function reads."""
    name = str(fn.__globals__.get("__name__"))
    if getattr(sys.modules.get(name), "__dict__", None) is not fn.__globals__:
        raise TypeError(
            f"fn: {fn.__name__} is made within compiled code and reads globals that are those of no module, "
            "which torch.compile cannot guard: make it outside"
        )
    return name


def guard(fn: Any) -> int:
    """Compare the values that a function reads; torch.compile guards compared values."""
    same = 0
    for steps, number in _numbers(fn):
        made_here = _is_made_here(fn)
        if made_here and steps[0][0] in ("cell", "defaults"):
            continue
        value = fn
        if made_here and steps[0][0] == "global":
            value, steps = getattr(sys.modules[_home(fn)], steps[0][1]), steps[1:]
        for kind, name in steps:
            if kind == "global":
                value = value.__globals__[name]
            elif kind == "cell":
                value = value.__closure__[name].cell_contents
            elif kind == "defaults":
                value = value.__defaults__
            elif kind == "attribute":
                value = getattr(value, name)
            elif value.__code__ is None:  # never, but which function it is, is guarded so
                same += 1
        if number is not None and value == number:
            same += 1
    return same
