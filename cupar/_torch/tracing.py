"""The expression that a function of numbers computes, found by calling it with recording numbers.

An expression is a tuple of a name and operands, such as ``("argument", "l")``, ``("constant", 2.0)`` or
``("add", x, y)``. Equal expressions are equal tuples. Where the function asks whether a comparison holds, it
is called again for the other answer: ``("where", condition, x, y)``.
"""

from __future__ import annotations

import builtins
import math
import threading
from collections.abc import Callable, Sequence
from types import CellType, FunctionType, ModuleType
from typing import Any

import numpy as np

from .._base.generated import define
from .._functions.operators import within

Expression = tuple[Any, ...]

_MOST_PATHS = 64


class UntraceableError(Exception):
    """The function does something with its numbers that is not recorded; says what."""


# --- Numbers that record ----------------------------------------------------------------------------------

# By NumPy's and `math`'s names: the derivative of f(x), given x and f(x).
DERIVATIVES: dict[str, Callable[[Any, Any], Any]] = {
    "exp": lambda x, y: y,
    "expm1": lambda x, y: y + 1,
    "log": lambda x, y: 1 / x,
    "log1p": lambda x, y: 1 / (1 + x),
    "sqrt": lambda x, y: 0.5 / y,
    "sin": lambda x, y: TracedNumber(("cos", x.expression)),
    "cos": lambda x, y: -TracedNumber(("sin", x.expression)),
    "tanh": lambda x, y: 1 - y * y,
}
_COMPARED = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**"}
_UFUNCS = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "true_divide": "div",
    "power": "pow",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "equal": "eq",
    "not_equal": "ne",
}


class TracedNumber:
    """A number that records the operations on it."""

    __slots__ = ("expression",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, expression: Expression) -> None:
        self.expression = expression

    def __neg__(self) -> TracedNumber:
        return _made("mul", -1, self)

    def __pos__(self) -> TracedNumber:
        return self

    def __abs__(self) -> TracedNumber:
        return _where(_made("lt", self, 0), -self, self)

    def __bool__(self) -> bool:
        if self.expression[0] not in _COMPARED:
            return bool(_made("ne", self, 0))
        if _tracing.path is None:
            raise UntraceableError("asks whether a number is true")
        return _tracing.path.answer(self.expression)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        name = ufunc.__name__
        if method == "__call__" and not named:
            if name in _UFUNCS:
                return _made(_UFUNCS[name], *inputs)
            if name in ("maximum", "fmax", "minimum", "fmin"):
                return (_largest if name[-2] == "u" or name == "fmax" else _least)(*inputs)
            if name in ("absolute", "fabs"):
                return abs(inputs[0])
            if name == "negative":
                return -inputs[0]
            if name == "square":
                return inputs[0] * inputs[0]
            if name in DERIVATIVES:
                return TracedNumber((name, _expression(inputs[0])))
        raise UntraceableError(f"calls np.{name}")

    def _refused(self, *others: Any) -> Any:
        raise UntraceableError("makes a Python number of one, rounds, or takes bits or remainders")

    __float__ = __int__ = __index__ = __complex__ = __round__ = __floordiv__ = __rfloordiv__ = _refused
    __mod__ = __rmod__ = __and__ = __or__ = __xor__ = __invert__ = __lshift__ = __rshift__ = _refused
    __trunc__ = __floor__ = __ceil__ = __iter__ = __getitem__ = _refused


def _method(name: str, swapped: bool) -> Callable[[Any, Any], Any]:
    if swapped:
        return lambda self, other: _made(name, other, self)
    return lambda self, other: _made(name, self, other)


for _name in (*_BINARY, *_COMPARED):
    _python = "truediv" if _name == "div" else _name
    setattr(TracedNumber, f"__{_python}__", _method(_name, False))
    if _name in _BINARY:
        setattr(TracedNumber, f"__r{_python}__", _method(_name, True))


def _expression(value: Any) -> Expression:
    if isinstance(value, TracedNumber):
        return value.expression
    if isinstance(value, (bool, int, float, complex, np.number, np.bool_)):
        return ("constant", value.item() if isinstance(value, np.generic) else value)
    raise UntraceableError(f"takes a {type(value).__name__} for a number")


def _made(name: str, *operands: Any) -> TracedNumber:
    """Record an operation, or simplify it where an operand is 0 or 1."""
    x, y = found = tuple(_expression(each) for each in operands)
    numbers = [each[1] if each[0] == "constant" else None for each in found]
    if name == "mul":
        if 0 in numbers:
            return TracedNumber(("constant", 0))
        if 1 in numbers:
            return TracedNumber(found[1 - numbers.index(1)])
    elif (name == "add" and numbers[0] == 0) or (name == "sub" and numbers[1] == 0):
        return TracedNumber(y if name == "add" else x)
    elif (name == "add" and numbers[1] == 0) or (name in ("div", "pow") and numbers[1] == 1):
        return TracedNumber(x)
    elif name == "div" and numbers[0] == 0:
        return TracedNumber(("constant", 0))
    return TracedNumber((name, *found))


def _where(condition: Any, x: Any, y: Any) -> TracedNumber:
    found = [_expression(each) for each in (condition, x, y)]
    return TracedNumber(found[1] if found[1] == found[2] else ("where", *found))


def _largest(*values: Any) -> Any:
    found, *others = values[0] if len(values) == 1 else values
    for each in others:
        found = _where(_made("gt", each, found), each, found)
    return found


def _least(*values: Any) -> Any:
    found, *others = values[0] if len(values) == 1 else values
    for each in others:
        found = _where(_made("lt", each, found), each, found)
    return found


# --- Functions that are called with them ------------------------------------------------------------------


def _recorded(name: str) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        return TracedNumber((name, x.expression)) if isinstance(x, TracedNumber) else getattr(math, name)(x)

    return function


def _power(x: Any, y: Any) -> Any:
    return x**y


# Functions of `math` that are called by name, and replaced there.
RECORDED = {name: _recorded(name) for name in DERIVATIVES} | {"pow": _power, "fabs": abs}
_REPLACED: dict[Any, Any] = {
    builtins.min: _least,
    builtins.max: _largest,
    np.where: _where,
    **{getattr(math, name): function for name, function in RECORDED.items()},
}


def _replaced(value: Any, done: dict[int, Any]) -> Any:
    """Return the replacement of a value that a function reads, for calls with recording numbers."""
    if value is math:
        found = ModuleType("math")
        vars(found).update(vars(math) | RECORDED)
        return found
    if value is np:
        found = ModuleType("numpy")
        found.__getattr__ = lambda name: getattr(np, name)  # type: ignore[method-assign]
        vars(found)["where"] = _where
        return found
    if isinstance(value, FunctionType):
        return recording(value, done)
    try:
        return _REPLACED.get(value, value)
    except TypeError:
        return value


def recording(function: FunctionType, done: dict[int, Any] | None = None) -> FunctionType:
    """Return a copy of a function whose `math`, `min`, `max` and own functions record."""
    done = {} if done is None else done
    if id(function) in done:
        found: FunctionType = done[id(function)]
        return found
    names: dict[str, Any] = {"__builtins__": function.__globals__.get("__builtins__", builtins)}
    cells = tuple(CellType() for _ in function.__closure__ or ())
    made = FunctionType(function.__code__, names, function.__name__, function.__defaults__, cells or None)
    made.__kwdefaults__ = function.__kwdefaults__
    done[id(function)] = made
    for name in function.__code__.co_names:
        if name in function.__globals__:
            names[name] = _replaced(function.__globals__[name], done)
        elif hasattr(builtins, name) and getattr(builtins, name) in (builtins.min, builtins.max):
            names[name] = _REPLACED[getattr(builtins, name)]
    for cell, given in zip(cells, function.__closure__ or (), strict=True):
        cell.cell_contents = _replaced(given.cell_contents, done)
    return made


# --- Paths ------------------------------------------------------------------------------------------------


class _Path:
    """The answers that one call of a function is given."""

    def __init__(self, answers: list[bool]) -> None:
        self.answers, self.asked = answers, []  # type: ignore[var-annotated]

    def answer(self, condition: Expression) -> bool:
        if condition in self.asked:
            return self.answers[self.asked.index(condition)]
        self.asked.append(condition)
        if len(self.asked) > len(self.answers):
            self.answers.append(True)
        return self.answers[len(self.asked) - 1]


class _Tracing(threading.local):
    path: _Path | None = None


_tracing = _Tracing()


def trace(op: Any, *arguments: Any) -> Any:
    """Return the expression of a function's result, or a tuple of them; UntraceableError if it has none.

    Parameters
    ----------
    op : callable or OpKind
    *arguments : TracedNumber or tuple of TracedNumber
    """
    function = _replaced(within(op), {})
    left = _MOST_PATHS

    def called(prefix: list[bool]) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise UntraceableError(f"has more than {_MOST_PATHS} paths")
        outer, path = _tracing.path, _Path([*prefix])
        _tracing.path = path
        try:
            result = function(*arguments)
        except UntraceableError:
            raise
        except Exception as error:
            raise UntraceableError(f"raises {type(error).__name__}: {error}") from None
        finally:
            _tracing.path = outer
        items = result if isinstance(result, tuple) else (result,)
        found = [_expression(each) for each in items]
        for i in reversed(range(len(prefix), len(path.asked))):
            others = called([*path.answers[:i], False])
            others = others if isinstance(result, tuple) else (others,)
            if len(others) != len(found):
                raise UntraceableError("returns tuples of several lengths")
            found = [
                _where(TracedNumber(path.asked[i]), TracedNumber(x), TracedNumber(y)).expression
                for x, y in zip(found, others, strict=True)
            ]
        return tuple(found) if isinstance(result, tuple) else found[0]

    return called([])


# --- Derivatives ------------------------------------------------------------------------------------------


def derivative(
    expression: Expression, name: str, known: dict[Expression, TracedNumber] | None = None
) -> Expression:
    """Return the partial derivative with respect to an argument."""
    return _derivative(expression, name, {} if known is None else known).expression


def _derivative(expression: Expression, name: str, known: dict[Expression, TracedNumber]) -> TracedNumber:
    found = known.get(expression)
    if found is not None:
        return found
    kind, *operands = expression
    if kind in ("argument", "constant"):
        return TracedNumber(("constant", int(expression == ("argument", name))))
    if kind == "where":
        x, y = (_derivative(each, name, known) for each in operands[1:])
        found = _where(TracedNumber(operands[0]), x, y)
    elif kind in _COMPARED:
        found = TracedNumber(("constant", 0))
    else:
        values = [TracedNumber(each) for each in operands]
        slopes = [_derivative(each, name, known) for each in operands]
        found = _rule(kind, TracedNumber(expression), values, slopes)
    known[expression] = found
    return found


def _rule(kind: str, y: Any, values: list[Any], slopes: list[Any]) -> TracedNumber:
    if kind in DERIVATIVES:
        return DERIVATIVES[kind](values[0], y) * slopes[0]  # type: ignore[no-any-return]
    (a, b), (da, db) = values, slopes
    if kind == "add":
        return da + db  # type: ignore[no-any-return]
    if kind == "sub":
        return da - db  # type: ignore[no-any-return]
    if kind == "mul":
        return da * b + a * db  # type: ignore[no-any-return]
    if kind == "div":
        return da / b - y / b * db  # type: ignore[no-any-return]
    slope = b * a ** (b - 1) * da if b.expression[0] != "constant" else b * a ** (b.expression[1] - 1) * da
    if db.expression == ("constant", 0):
        return slope  # type: ignore[no-any-return]
    return slope + y * TracedNumber(("log", a.expression)) * db  # type: ignore[no-any-return]


# --- Back to functions ------------------------------------------------------------------------------------

_FUNCTION = """
def function({arguments}):
    {lines}
    return {results}
"""


def function_of(
    expressions: Sequence[Expression],
    arguments: Sequence[str],
    names: dict[str, Any],
    where: str,
    is_tuple: bool = True,
) -> Any:
    """Return a function that computes expressions, each part once.

    Parameters
    ----------
    expressions : sequence of tuple
    arguments : sequence of str
    names : dict
        What `exp` and others are in it.
    where : str
        How ``where`` is written, of ``{c}``, ``{x}`` and ``{y}``.
    is_tuple : bool, optional
        Whether it returns a tuple, or the only one.
    """
    lines: list[str] = []
    texts: dict[Expression, str] = {}

    def text(expression: Expression) -> str:
        kind, *operands = expression
        if kind == "argument":
            return str(operands[0])
        if kind == "constant":
            return (
                repr(operands[0]) if math.isfinite(abs(operands[0])) else f"({operands[0] > 0} - 0.5) * inf"
            )
        if expression not in texts:
            parts = [text(each) for each in operands]
            if kind == "where":
                made = where.format(c=parts[0], x=parts[1], y=parts[2])
            elif kind in _BINARY or kind in _COMPARED:
                made = f"({parts[0]}) {_BINARY.get(kind) or _COMPARED[kind]} ({parts[1]})"
            else:
                made = f"{kind}({parts[0]})"
            texts[expression] = f"t{len(texts)}"
            lines.append(f"{texts[expression]} = {made}")
        return texts[expression]

    results = ", ".join([text(each) for each in expressions])
    results = f"({results},)" if is_tuple else results
    given = {"arguments": ", ".join(arguments), "lines": lines, "results": results}
    return define("derivative", "function", _FUNCTION, {"inf": math.inf, **names}, **given)


def ordered(expression: Expression) -> Expression:
    """Return an expression with the operands of sums and products in one order."""
    kind, *operands = expression
    found = [ordered(each) if isinstance(each, tuple) else each for each in operands]
    return (kind, *(sorted(found, key=repr) if kind in ("add", "mul") else found))
