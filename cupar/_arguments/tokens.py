"""Tokens: the parts of a key that arguments have, by their classes.

A token tells values of one class apart; a key has the classes, too. It is written as an expression of the
argument, so that straight code makes a key. All keys have these tokens of values; an array is told by its
layout or by its place. What few calls take, a room adds: its own function of a class asks these for others.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Hashable, Sequence
from types import BuiltinFunctionType, FunctionType, NoneType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from .._base.generated import define
from .._device import arrays
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


class ArrayTokens(NamedTuple):
    """The expressions for the tokens of a library's arrays.

    Attributes
    ----------
    layout : str
        Dtype, number of dimensions, and whether items lie in C's order.
    place : str
        Address, number of items, dtype and order.
    """

    layout: str
    place: str


NUMPYS = ArrayTokens(
    "{v}.dtype, {v}.ndim, {v}.flags.c_contiguous",
    '{v}.__array_interface__["data"][0], {v}.size, {v}.dtype, {v}.flags.c_contiguous',
)
CUPYS = ArrayTokens(
    "{v}.dtype, {v}.ndim, {v}._c_contiguous",
    "{v}.data.ptr, {v}.size, {v}.dtype, {v}._c_contiguous, {v}._f_contiguous",
)
# Those that are to be conjugated or negated have the memory of others.
TENSORS = ArrayTokens(
    "{v}.dtype, {v}.ndim, {v}.device, {v}.is_contiguous()",
    "{v}.data_ptr(), {v}.numel(), {v}.dtype, {v}.is_contiguous(), {v}.is_conj(), {v}.is_neg()",
)


def of_array(cls: type) -> ArrayTokens | None:
    """Return the expressions for arrays of a class; None for others, and before one of CuPy's was read."""
    if cls is np.ndarray:
        return NUMPYS
    if cls in arrays.CUPY:
        return CUPYS
    is_tensor = cls.__module__.partition(".")[0] == "torch" and hasattr(cls, "data_ptr")
    return TENSORS if is_tensor else None


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


_MATCH = """
def match(given):
    if len(given) != {count}:
        return None
    ({values}) = given
    {lists}
    return ({returned}) if {conditions} else None
"""


def matcher(
    tokens: Sequence[str], names: dict[str, Any], given: tuple[Any, ...], **lists: Sequence[int]
) -> Callable[[tuple[Any, ...]], tuple[Any, ...] | None]:
    """Return the function that compares arguments with those of an earlier call, without a key.

    It returns the lists of arguments, or None: then their key may still be equal, as atoms are compared by
    identity. Parameters are those of `key_maker`, and the arguments of the earlier call.
    """
    known: dict[str, Any] = {**_NAMES, **names}
    made = define("tokens of a call", "tokens", _TOKENS, {**known}, **_texts(tokens, lists))(given)
    identities, others = list[str](), list[str]()
    for i, (text, value, token) in enumerate(zip(tokens, given, made, strict=True)):
        known[f"_t{i}"] = value if text == ATOM else token
        if text == ATOM:
            identities.append(f"v{i} is _t{i}")
        else:
            known[f"_c{i}"] = type(value)
            others.append(f"v{i}.__class__ is _c{i}")
            parts = text.replace("{v}", f"v{i}").split(", ")
            if len(parts) != len(token) or "(" in "".join(parts).replace("()", ""):
                others.append(f"({', '.join(parts)},) == _t{i}")
                continue
            for k, (part, each) in enumerate(zip(parts, token, strict=True)):  # without a tuple
                known[f"_t{i}_{k}"] = each
                others.append(f"{part} {'is' if each is True or each is False else '=='} _t{i}_{k}")
    texts = {**_texts(tokens, lists), "conditions": " and ".join([*identities, *others])}
    found: Callable[[tuple[Any, ...]], tuple[Any, ...] | None] = define(
        "match of a call", "match", _MATCH, known, **texts
    )
    return found


_TOKENS = """
def tokens(given):
    ({values}) = given
    {lists}
    return {apart}
"""


def _texts(tokens: Sequence[str], lists: dict[str, Sequence[int]]) -> dict[str, Any]:
    """Return what templates of functions of arguments are filled with."""
    own = [text.replace("{v}", f"v{i}") for i, text in enumerate(tokens)]
    return {
        "count": len(tokens),
        "values": "".join([f"v{i}, " for i in range(len(tokens))]),
        "lists": [f"{name} = [{', '.join([f'v{i}' for i in places])}]" for name, places in lists.items()],
        "tokens": ", ".join(own),
        "apart": f"({''.join([f'({text},), ' for text in own])})",
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
