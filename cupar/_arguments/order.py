"""The order of a call's arguments, and their defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Concatenate, ParamSpec, TypeVar

from .._base.generated import define

S = TypeVar("S")
P = ParamSpec("P")


def two_phases(
    run: Callable[Concatenate[S, P], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[S, Any, P], int]]:
    """Decorate the declaration of an algorithm's ``__call__``, which is generated from its method `run`.

    It takes the temporary storage before the parameters of `run`. It is generated, since a wrapper that binds
    arguments by a signature adds several microseconds to each call. Type checkers understand a decorated
    declaration, but not an assignment.
    """
    parameters = [each for name, each in inspect.signature(run).parameters.items() if name != "self"]
    names = [each.name for each in parameters if each.name != "stream"]
    positional = [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]
    keywords = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    head = ", ".join(["self", "temp_storage", *positional, *(["*", *keywords] if keywords else [])])
    phase = f"self._execute(temp_storage, stream, ({', '.join(names)},))"
    # With the module's globals, which warnings and `typing.get_type_hints` need.
    source = f"def __call__({head}):\n    return {phase}"
    call = define(run.__qualname__, "__call__", source, run.__globals__)
    call.__defaults__, call.__kwdefaults__ = run.__defaults__, run.__kwdefaults__
    call.__annotations__ = {"temp_storage": "Any", **run.__annotations__, "return": "int"}
    call.__module__, call.__doc__ = run.__module__, _CALL
    call.__qualname__ = run.__qualname__.replace("run", "__call__")
    return lambda declared: call


_CALL = """Query the size of the temporary storage, or run with it.

Parameters
----------
temp_storage : None or device array
    None to query the size; otherwise a device array of at least that many bytes, at any address and of any
    dtype.
*args, **named
    Those of `run`.

Returns
-------
int
    Bytes of temporary storage.

Raises
------
TypeError, ValueError, NoDeviceError
    As `run` does; or if the temporary storage is too small.
"""


def completed(run: Callable[..., None], arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of a method `run`, all but the stream, in order and with defaults."""
    if not named and len(arguments) == len(signature(run).parameters):
        return arguments
    given = signature(run).bind(*arguments, **named)
    given.apply_defaults()
    return tuple(given.arguments.values())


@lru_cache
def signature(run: Callable[..., None]) -> inspect.Signature:
    """Return the signature of a method `run`, without the object and the stream."""
    whole = inspect.signature(run)
    kept = [each for name, each in whole.parameters.items() if name not in ("self", "stream")]
    return whole.replace(parameters=kept)


def parameters_of(function: Any) -> tuple[str, ...]:
    """Return the names of a function's parameters, quicker than by its signature."""
    names: tuple[str, ...] = function.__code__.co_varnames
    return names[: function.__code__.co_argcount]


def ordered(
    name: str, wanted: Sequence[str], arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, ...]:
    """Return arguments in the order of a kernel's parameters; TypeError if they are not for all of them."""
    if not named and len(arguments) == len(wanted):
        return arguments
    given = dict(zip(wanted, arguments, strict=False))
    if len(arguments) > len(wanted) or given.keys() & named.keys() or {*given, *named} != {*wanted}:
        got = ", ".join([f"{len(arguments)} by position", *named])
        raise TypeError(f"{name}: takes {len(wanted)} arguments ({', '.join(wanted)}), got {got}")
    return tuple({**given, **named}[each] for each in wanted)
