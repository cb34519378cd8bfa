"""Operators of functions, and properties of users' operators."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache, wraps
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

from .. import structs
from .._base.bounded import of_builds
from .._base.errors import ArgumentTypeError
from .._ir.resolve import function_of
from ..operators import Op, OpKind, RawOp


def identity_of(op: Op, dtype: np.dtype[Any]) -> Any:
    """Return the identity of an operator, None if it is unknown."""
    kind = structs.kind_of(dtype)
    if kind == "V" or isinstance(op, RawOp):
        return None
    if isinstance(op, (OpKind, np.ufunc, BuiltinFunctionType)):
        name = _NAMES.get(op)
        return None if name is None else _IDENTITIES[name](dtype, kind)
    return None


_NAMES: dict[Any, str] = {
    **dict.fromkeys((OpKind.PLUS, np.add, operator.add), "plus"),
    **dict.fromkeys((OpKind.MULTIPLIES, np.multiply, operator.mul), "times"),
    **dict.fromkeys((OpKind.MINIMUM, np.minimum), "least"),
    **dict.fromkeys((OpKind.MAXIMUM, np.maximum), "greatest"),
    np.fmin: "least but NaN",
    np.fmax: "greatest but NaN",
    **dict.fromkeys((OpKind.BIT_OR, np.bitwise_or, operator.or_), "zero"),
    **dict.fromkeys((OpKind.BIT_XOR, np.bitwise_xor, operator.xor), "zero"),
    **dict.fromkeys((OpKind.BIT_AND, np.bitwise_and, operator.and_), "ones"),
    **dict.fromkeys((OpKind.LOGICAL_OR, np.logical_or), "false"),
    **dict.fromkeys((OpKind.LOGICAL_AND, np.logical_and), "true"),
}


def highest(dtype: np.dtype[Any]) -> Any:
    """Return the greatest value of a real dtype."""
    kind = structs.kind_of(dtype)
    return np.inf if kind == "f" else True if kind == "b" else np.iinfo(dtype).max


def lowest(dtype: np.dtype[Any]) -> Any:
    """Return the least value of a real dtype."""
    kind = structs.kind_of(dtype)
    return -np.inf if kind == "f" else False if kind == "b" else np.iinfo(dtype).min


_IDENTITIES: dict[str, Callable[[np.dtype[Any], str], Any]] = {
    # -0.0 is the identity, as it leaves -0.0 unchanged.
    "plus": lambda dtype, kind: -0.0 if kind == "f" else complex(-0.0, -0.0) if kind == "c" else 0,
    "times": lambda dtype, kind: 1,
    "least": lambda dtype, kind: highest(dtype) if kind != "c" else None,
    "greatest": lambda dtype, kind: lowest(dtype) if kind != "c" else None,
    "least but NaN": lambda dtype, kind: np.nan if kind == "f" else _IDENTITIES["least"](dtype, kind),
    "greatest but NaN": lambda dtype, kind: np.nan if kind == "f" else _IDENTITIES["greatest"](dtype, kind),
    "zero": lambda dtype, kind: 0 if kind in "biu" else None,
    "ones": lambda dtype, kind: True if kind == "b" else -1 if kind == "i" else np.iinfo(dtype).max,
    "false": lambda dtype, kind: 0,
    "true": lambda dtype, kind: 1,
}


def within(op: Op) -> Any:
    """Return an operator as a function that others can call; TypeError if it is LTO-IR, which none can."""
    if isinstance(op, RawOp):
        raise ArgumentTypeError(
            "op", "expected a function or an OpKind, since another function calls it, got a RawOp"
        )
    if not callable(op) and not isinstance(op, OpKind):
        raise ArgumentTypeError("op", f"expected a function or an OpKind, got {op!r}")
    return function_of(op)


def remembered(make: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function that makes an operator of others: equal arguments give the same object.

    Those that have cells or defaults are not kept, as these may hold arrays.
    """
    known = of_builds(lru_cache(256)(make))

    @wraps(make)
    def made(*given: Any) -> Any:
        op = given[0]
        if type(op) is FunctionType and op.__closure__ is op.__defaults__ is None:
            return known(*given)
        return known(*given) if isinstance(op, (OpKind, np.ufunc, np.dtype)) else make(*given)

    return made


@remembered
def flagged(op: Op, dtype: np.dtype[Any]) -> Callable[[Any, Any], Any]:
    """Return an operator on values with a flag, which says whether there is a value.

    `dtype` is that of the values: structs become tuples, so that results have one type.
    """
    function, plain_ = within(op), plain(dtype)

    def combined(a: Any, b: Any) -> Any:
        if a[1] and b[1]:
            return (plain_(function(a[0], b[0])), True)
        if a[1]:
            return (plain_(a[0]), True)
        return (plain_(b[0]), b[1])

    return combined


@lru_cache(64)
def there(dtype: np.dtype[Any]) -> Callable[[Any], Any]:
    """Return an operator that makes of a value one with a flag, as `flagged` combines them."""
    plain_ = plain(dtype)
    return lambda value: (plain_(value), True)


def plain(dtype: np.dtype[Any]) -> Callable[[Any], Any]:
    """Return a function that makes tuples of structs; other values stay as they are."""
    number = len(structs.members(dtype)) if dtype.names is not None else 0
    if number >= len(_PLAIN):
        most = len(_PLAIN) - 1
        raise ArgumentTypeError(
            "op", f"expected structs of at most {most} fields here, got {structs.text(dtype)}"
        )
    return _PLAIN[number]


_PLAIN: list[Callable[[Any], Any]] = [
    lambda s: s,
    lambda s: (s[0],),
    lambda s: (s[0], s[1]),
    lambda s: (s[0], s[1], s[2]),
    lambda s: (s[0], s[1], s[2], s[3]),
    lambda s: (s[0], s[1], s[2], s[3], s[4]),
    lambda s: (s[0], s[1], s[2], s[3], s[4], s[5]),
    lambda s: (s[0], s[1], s[2], s[3], s[4], s[5], s[6]),
    lambda s: (s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]),
]


@remembered
def swapped(op: Op) -> Callable[[Any, Any], Any]:
    """Return a comparison the other way round."""
    function = within(op)
    return lambda a, b: function(b, a)


@remembered
def spread(op: Op, number: int) -> Any:
    """Return an operator of one tuple, that hands its items to one of several values."""
    if number not in _SPREAD:
        raise ArgumentTypeError(
            "xs", f"expected at most {len(_SPREAD) + 1} arrays, got {number}; give them in one tuple"
        )
    return _SPREAD[number](within(op))


_SPREAD: dict[int, Any] = {
    2: lambda f: lambda s: f(s[0], s[1]),
    3: lambda f: lambda s: f(s[0], s[1], s[2]),
    4: lambda f: lambda s: f(s[0], s[1], s[2], s[3]),
    5: lambda f: lambda s: f(s[0], s[1], s[2], s[3], s[4]),
    6: lambda f: lambda s: f(s[0], s[1], s[2], s[3], s[4], s[5]),
}


# --- Items of tuples ----------------------------------------------------------------------------------------


def first(s: Any) -> Any:
    """Return the first item."""
    return s[0]


def second(s: Any) -> Any:
    """Return the second item."""
    return s[1]


def chosen(s: Any) -> Any:
    """Return the second item if the first holds, else the third."""
    return s[1] if s[0] else s[2]


# --- Orders -----------------------------------------------------------------------------------------------


def _less_float(a: Any, b: Any) -> Any:
    return a < b or (b != b and a == a)  # noqa: PLR0124


def _less_complex(a: Any, b: Any) -> Any:
    """NumPy's order: by the real part, then the imaginary one; then those with NaN, by where that is."""
    if a.real == a.real and b.real == b.real:
        if a.imag == a.imag and b.imag == b.imag:
            return a.real < b.real or (a.real == b.real and a.imag < b.imag)
        if a.imag == a.imag or b.imag == b.imag:
            return a.imag == a.imag
        return a.real < b.real
    if a.real == a.real or b.real == b.real:
        return a.real == a.real
    return a.imag < b.imag or (b.imag != b.imag and a.imag == a.imag)


def less_of(dtype: np.dtype[Any]) -> Any:
    """Return NumPy's order of a dtype."""
    kind = structs.kind_of(dtype)
    return _less_complex if kind == "c" else _less_float if kind == "f" else OpKind.LESS


@remembered
def with_one_nan(dtype: np.dtype[Any]) -> Any:
    """Return an operator that replaces all NaNs by the one that sorts last by its bits."""
    # numba.cuda has no constants of 16 bits.
    nan = np.float32("nan") if dtype.itemsize == 2 else dtype.type("nan")

    def canonical(value: Any) -> Any:
        return value if value == value else nan  # noqa: PLR0124

    return canonical


def clipped(s: Any) -> Any:
    """Return a place, or the last one of a number of items if it is behind them."""
    return s[0] if s[0] < s[1] else s[1] - 1


def is_nowhere(place: Any) -> bool:
    """Whether nothing was found."""
    return place < 0  # type: ignore[no-any-return]


def is_somewhere(place: Any) -> bool:
    """Whether something was found."""
    return place >= 0  # type: ignore[no-any-return]


def never(value: Any) -> bool:
    """Hold for nothing."""
    return False


def equal_fields(number: int) -> Any:
    """Return whether two tuples of some length are equal, field by field."""
    return _EQUAL[number]


_EQUAL: list[Any] = [
    None,
    lambda a, b: a[0] == b[0],
    lambda a, b: a[0] == b[0] and a[1] == b[1],
    lambda a, b: a[0] == b[0] and a[1] == b[1] and a[2] == b[2],
    lambda a, b: a[0] == b[0] and a[1] == b[1] and a[2] == b[2] and a[3] == b[3],
]
