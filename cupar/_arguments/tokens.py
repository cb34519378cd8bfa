"""Tokens: the parts of a key that arguments have, by their classes.

A token tells values of one class apart; a key has the classes, too. It is written as an expression of the
argument, so that straight code makes a key. All keys have these tokens of values; an array is told by its
layout or by its place (`ArraySyntax` in `_device/readers.py`). What few calls take, a room adds: its own
function of a class asks these for others.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Hashable, Sequence
from types import BuiltinFunctionType, FunctionType, NoneType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from .._base.bounded import of_builds
from .._base.data import Recent
from .._base.generated import define
from ..operators import RawOp

_MOST_ITEMS = 64  # of a host array that is told by value


class NoTokenError(Exception):
    """An argument has no token, so that a call with it has no key."""


ATOMS = frozenset((int, bool, str, NoneType, BuiltinFunctionType, np.ufunc, RawOp))

# The expressions for an argument ``{v}``, whose names `key_maker` knows.
ATOM = "{v}"
FUNCTION = "_id({v}.__code__)"  # which whatever the key leads to keeps; what it reads is checked at the call
HOST_ARRAY = "_of_host({v})"
_MEMBER = "_id({v})"  # of an enumeration, which lives as long as its class
_CLASS = '{v}, getattr({v}, "dtype", None)'  # an attribute that NumPy reads
# By bytes, which tell -0.0 from 0.0, and one NaN from another.
_FLOAT, _COMPLEX, _NUMBER = "_float({v})", "_complex({v}.real, {v}.imag)", "{v}.dtype, {v}.tobytes()"

_OF_CLASS = {
    **dict.fromkeys(ATOMS, ATOM),
    float: _FLOAT,
    complex: _COMPLEX,
    type: _CLASS,
    FunctionType: FUNCTION,
    np.ndarray: HOST_ARRAY,
}
_OF_BASE: tuple[tuple[type, str], ...] = (
    (enum.Enum, _MEMBER),
    (np.dtype, ATOM),
    (np.void, HOST_ARRAY),
    (np.generic, _NUMBER),
)


def of_value(cls: type) -> str:
    """Return the expression for the token of values of a class; NoTokenError if they have none."""
    found = _OF_CLASS.get(cls)
    if found is not None:
        return found
    for base, text in _OF_BASE:
        if issubclass(cls, base):
            return text
    raise NoTokenError


def refuse() -> NoReturn:
    """Raise NoTokenError: the end of expressions for classes some of whose values have no token."""
    raise NoTokenError


def _of_host(x: np.ndarray[Any, Any]) -> Hashable:
    if x.dtype.hasobject or x.size > _MOST_ITEMS:
        raise NoTokenError
    return x.dtype, x.shape, x.tobytes()


_NAMES: dict[str, Any] = {
    "_id": id,
    "_float": struct.Struct("d").pack,
    "_complex": struct.Struct("dd").pack,
    "_of_host": _of_host,
    "_refuse": refuse,
}
_KEY = """
def key(given):
    ({values}) = given
    {lists}
    return (_classes, {tokens}), {returned}
"""


class Match(NamedTuple):
    """Lines that see whether the arguments of a call, `given`, are like those of an earlier one.

    Attributes
    ----------
    names : dict
        The values that these name.
    number : int
        How many arguments there are.
    values : str
        The targets that they are assigned to.
    lists : list of str
        The lines that make lists of them, without what conditions append.
    identities, condition : str
        Conditions without the lists, and with them.
    """

    names: dict[str, Any]
    number: int
    values: str
    lists: list[str]
    identities: str
    condition: str


def match(
    tokens: Sequence[str], names: dict[str, Any], given: tuple[Any, ...], **lists: Sequence[int]
) -> Match:
    """Return the lines that compare arguments with those of an earlier call, without a key.

    Where the condition does not hold, their key may still be equal, as atoms are compared by identity.
    Parameters are those of `key_maker`, and the arguments of the earlier call.
    """
    known: dict[str, Any] = {**_NAMES, **names}
    identities, others = list[str](), list[str]()
    for i, (text, value) in enumerate(zip(tokens, given, strict=True)):
        if text == ATOM:
            known[f"_t{i}"] = value
            identities.append(f"v{i} is _t{i}")
            continue
        text = f"({text},)".replace("{v}", f"v{i}")
        token = eval(text, {**known, **{name: [] for name in lists}, f"v{i}": value})
        known[f"_c{i}"] = type(value)
        parts = text[1:-2].split(", ")
        if len(parts) != len(token) or "(" in "".join(parts).replace("()", ""):
            known[f"_t{i}"] = token
            others += [f"v{i}.__class__ is _c{i}", f"{text} == _t{i}"]
            continue
        own = [f"v{i}.__class__ is _c{i}"]
        for k, (part, each) in enumerate(zip(parts, token, strict=True)):  # without a tuple
            known[f"_t{i}_{k}"] = each
            own.append(f"{part} {'is' if each is True or each is False else '=='} _t{i}_{k}")
        first = [each is value for each in given].index(True)
        if first == i:
            others += own
        else:
            others.append(f"(v{i} is v{first} or {' and '.join(own)})")
    texts = _texts(tokens, lists)
    identical, condition = (" and ".join(each) or "True" for each in (identities, others))
    return Match(known, len(tokens), texts["values"], texts["lists"], identical, condition)


def _texts(tokens: Sequence[str], lists: dict[str, Sequence[int]]) -> dict[str, Any]:
    """Return what templates of functions of arguments are filled with."""
    own = [text.replace("{v}", f"v{i}") for i, text in enumerate(tokens)]
    return {
        "values": "".join([f"v{i}, " for i in range(len(tokens))]),
        "lists": [f"{name} = [{', '.join([f'v{i}' for i in places])}]" for name, places in lists.items()],
        "tokens": ", ".join(own),
        "returned": "".join([f"{name}, " for name in lists]),
    }


def key_maker(
    tokens: Sequence[str], names: dict[str, Any], **lists: Sequence[int]
) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Return the function that makes the key of arguments of some classes, given as a tuple.

    It returns the key, which equals no other maker's, and lists of arguments.

    Parameters
    ----------
    tokens : sequence of str
        The expression of each argument.
    names : dict
        The values of further names in these.
    **lists : sequence of int
        The positions of the arguments in each list. Expressions may append to it, by its name.
    """
    made: Callable[[tuple[Any, ...]], tuple[Any, ...]] = define(
        "key of a call", "key", _KEY, {**_NAMES, **names, "_classes": object()}, **_texts(tokens, lists)
    )
    return made


class Keys:
    """Makes keys of arguments of any classes; they are given as a tuple.

    Parameters
    ----------
    token : callable
        Returns the expression of an argument; raises NoTokenError if it has none.
    names : dict
        The values of further names in expressions.
    """

    def __init__(self, token: Callable[[Any], str], names: dict[str, Any]) -> None:
        self._token, self._names = token, names
        self._makers: Recent[tuple[type, ...], Any] = of_builds(Recent(512))

    def __call__(self, given: tuple[Any, ...]) -> Hashable:
        classes = (*map(type, given),)
        make = self._makers.get(classes)
        if make is None:
            make = self._makers[classes] = key_maker([*map(self._token, given)], self._names)
        (key,) = make(given)
        return key  # type: ignore[no-any-return]
