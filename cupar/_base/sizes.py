"""Sizes: numbers that remember how they were computed, while a function is traced.

A function that is traced gets a `Size` for each extent, address and number that varies, and works with them
as with ints and floats. Arithmetic on sizes makes sizes; a comparison records a guard, and so does whatever
needs a plain number. So a plain number never leaves a size unnoticed: what was traced is right for all sizes
for which its guards hold.

The idea is that of symbolic shapes in PyTorch's torch.fx and dynamo.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Protocol, TypeGuard


class Tracer(Protocol):
    """What records the expressions and guards of sizes."""

    def define(self, text: str, value: int, level: int) -> Size:
        """Return the size of an expression; an equal expression has the same one."""

    def guard(self, text: str, level: int) -> None:
        """Record a condition under which what was traced does not hold."""

    def fix(self, size: Size) -> None:
        """Record the condition that a size, an int or a float, has this value."""

    def apply(self, function: Callable[..., tuple[Any, ...]], arguments: tuple[Any, ...]) -> tuple[Size, ...]:
        """Return the results of a function of sizes as sizes."""


class Size:
    """A number with the expression that computed it; or a NumPy scalar, or what a function of sizes returns.

    It is no subclass of int: C code would read its value without asking. Whatever needs a plain int (`range`,
    `numpy.empty`, `int`, `hash`, text) records a guard that the size is this one. Floats are compared, and
    given to functions of sizes; they have no arithmetic. Any other value is only given to such functions.

    Attributes
    ----------
    value : int, float or object
        In the call that is traced.
    text : str
        Its expression: a variable or a number.
    level : int
        When it is known: 2 k after the k-th read of what is on a device, and one more if it depends on the
        address of an array that was made between that read and the next. 0: as the call begins.
    """

    __slots__ = ("level", "text", "tracer", "value")

    def __init__(self, value: Any, text: str, tracer: Tracer, level: int = 0) -> None:
        self.value, self.text, self.tracer, self.level = value, text, tracer, level

    def _known(self) -> Any:
        """Return a number of Python's; TypeError if it is another value."""
        if type(self.value) not in _PYTHONS:
            raise TypeError(f"expected a plain number, got a {type(self.value).__name__}")
        return self.value

    def _fixed(self) -> Any:
        value = self._known()
        self.tracer.fix(self)
        return value

    def __index__(self) -> int:
        return operator.index(self._fixed())

    def __int__(self) -> int:
        return int(self._fixed())

    def __float__(self) -> float:
        return float(self._fixed())

    def __hash__(self) -> int:
        return hash(self._fixed())

    def __bool__(self) -> bool:
        return bool(self.__ne__(0))

    def __repr__(self) -> str:  # of messages, too
        return repr(self._fixed())

    def __format__(self, spec: str) -> str:
        return format(self._fixed(), spec)

    def __round__(self, digits: Any = None) -> Any:
        return self if isinstance(self.value, int) else round(self._fixed(), digits)

    def __truediv__(self, other: Any) -> Any:
        return self._fixed() / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self._fixed()

    def __pow__(self, other: Any) -> Any:
        return self._fixed() ** other

    def __rpow__(self, other: Any) -> Any:
        return other ** self._fixed()

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def bit_length(self) -> Size:
        """Return the number of bits, as of an int."""
        return self.tracer.define(f"{self.text}.bit_length()", self.value.bit_length(), self.level)

    # Set below.
    __add__: Callable[[Any, Any], Any]
    __mul__: Callable[[Any, Any], Any]
    __radd__: Callable[[Any, Any], Any]
    __rmul__: Callable[[Any, Any], Any]
    __sub__: Callable[[Any, Any], Any]
    __floordiv__: Callable[[Any, Any], Any]
    __mod__: Callable[[Any, Any], Any]
    __neg__: Callable[[Any], Any]
    __lt__: Callable[[Any, Any], Any]
    __le__: Callable[[Any, Any], Any]
    __gt__: Callable[[Any, Any], Any]
    __ge__: Callable[[Any, Any], Any]


_PYTHONS = frozenset((int, float, bool))
_NEUTRAL = {"+": 0, "-": 0, "*": 1, "//": 1, "|": 0, "^": 0, "<<": 0, ">>": 0}  # on the right
_EITHER = ("+", "*", "|", "^")  # and on the left


def _arithmetic(name: str, sign: str) -> None:
    plain: Any = getattr(operator, name)

    def operation(self: Size, other: Any) -> Any:
        if not isinstance(self.value, int) or not isinstance(value_of(other), int):
            return NotImplemented  # -0.0 + 0 is not -0.0
        if type(other) is not Size and other == _NEUTRAL.get(sign):
            return self
        text = f"({self.text} {sign} {text_of(other)})"
        return self.tracer.define(text, plain(self.value, value_of(other)), level_of(self, other))

    def swapped(self: Size, other: Any) -> Any:
        if not isinstance(self.value, int) or not isinstance(other, int):
            return NotImplemented
        if sign in _EITHER and other == _NEUTRAL[sign]:
            return self
        text = f"({text_of(other)} {sign} {self.text})"
        return self.tracer.define(text, plain(other, self.value), self.level)

    own = name.strip("_")
    setattr(Size, f"__{own}__", operation)
    setattr(Size, f"__r{own}__", swapped)


def _unary(name: str, text: str) -> None:
    plain: Any = getattr(operator, name)

    def operation(self: Size) -> Any:
        return self.tracer.define(text.format(self.text), plain(self._known()), self.level)

    setattr(Size, f"__{name}__", operation)


def _comparison(name: str, sign: str) -> None:
    plain: Any = getattr(operator, name)

    def operation(self: Size, other: Any) -> Any:
        if type(other) is Size:
            holds = plain(self._known(), other._known())
            if other.text == self.text:
                return holds
        elif isinstance(other, (int, float)):
            holds = plain(self._known(), other)
        else:
            return NotImplemented
        condition = f"{self.text} {sign} {text_of(other)}"
        self.tracer.guard(f"not {condition}" if holds else condition, level_of(self, other))
        return holds

    setattr(Size, f"__{name}__", operation)


for _name, _sign in {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "floordiv": "//",
    "mod": "%",
    "and_": "&",
    "or_": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
}.items():
    _arithmetic(_name, _sign)
for _name, _text in {"neg": "(-{})", "pos": "{}", "invert": "(~{})", "abs": "abs({})"}.items():
    _unary(_name, _text)
for _name, _sign in {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}.items():
    _comparison(_name, _sign)


def text_of(value: Any) -> str:
    """Return the expression for a size, an integer or a float, whatever class of these it has."""
    if type(value) is Size:
        return value.text
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else f"float('{float(value)}')"
    return repr(int(value))


def level_of(*values: Any) -> int:
    """Return the level at which all values are known."""
    return max([each.level for each in values if type(each) is Size], default=0)


def is_size(value: Any) -> TypeGuard[Size]:
    """Whether a value is a size of a function that is traced."""
    return type(value) is Size


def is_integer(value: Any) -> TypeGuard[Size]:
    """Whether a value is a size, and an integer."""
    return type(value) is Size and isinstance(value.value, int)


def python(value: Any) -> Any:
    """Return a number of Python's for a size that is a NumPy scalar, and any other value unchanged."""
    if type(value) is Size and type(value.value) not in _PYTHONS:
        return value.tracer.apply(_item, (value,))[0]
    return value


def _item(value: Any) -> tuple[Any]:
    return (value.item(),)


def index(value: Any) -> Any:
    """Return an integer as an int, and a size unchanged; TypeError if it is neither."""
    return value if is_integer(value) else operator.index(value)


def apply(function: Callable[..., tuple[Any, ...]], *arguments: Any) -> tuple[Any, ...]:
    """Return the results of a function, a tuple of numbers; sizes, if an argument is one.

    The function must depend on its arguments alone.
    """
    for each in arguments:
        if type(each) is Size:
            return each.tracer.apply(function, arguments)
    return function(*arguments)


def value_of(value: Any) -> Any:
    """Return the value of a size in the call that is traced, and any other one unchanged."""
    return value.value if type(value) is Size else value
