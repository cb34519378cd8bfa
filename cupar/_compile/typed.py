"""Operators as numba has typed them: what their expressions are, and what they do with some arguments.

A number may be an argument of an operator if its code is typed as with a constant: all expressions, in all
functions that it calls, have the same operation, function, signature and result, literals taken as their
types. And no number may be used in a way for which LLVM has better code with constants, or other results:
what is computed of numbers and constants alone is no exponent, divisor of a remainder, shift, index, or
condition, nor a factor of another one, as the sum of such a product may be rounded once. Of a sum of two
products a GPU rounds one alone, which depends on what the factors are: so none of them is a number.

numba, for the CPU, and numba-cuda have classes of their own, of the same names.
"""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any, Final

_BINARY: Final = ("binop", "inplace_binop")
_CHEAP: Final = frozenset(
    [operator.add, operator.iadd, operator.sub, operator.isub, operator.mul, operator.imul]
    + [operator.and_, operator.iand, operator.or_, operator.ior, operator.xor, operator.ixor]
    + [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne, operator.contains]
)
_PRODUCTS: Final = (operator.mul, operator.imul)
_SUMS: Final = (operator.add, operator.iadd, operator.sub, operator.isub)
_DIVISIONS: Final = (operator.truediv, operator.itruediv)
_CALLED: Final = frozenset((min, max, abs, float, bool))  # with numbers
_MOVED: Final = frozenset(("phi", "build_tuple", "exhaust_iter", "static_getitem", "unary"))
_OF_DEFAULTS: Final = {int: "int64", float: "float64", bool: "bool"}
_OF_NUMBERS: Final = ("real", "imag")  # attributes

Numbers = frozenset[int]
"""The numbers of which a value is computed, beside constants."""

_NONE: Final[Numbers] = frozenset()


class TooLongError(Exception):
    """Code is longer than is compared."""


_MOST_LINES: Final = 20_000


def lines_of(overload: Any) -> list[tuple[Any, ...]]:
    """Return the expressions of what numba has compiled, and conditions of branches, with their types.

    Functions that it calls are read at each call.

    Raises
    ------
    TooLongError
        If that would take long.
    """
    lines = list[tuple[Any, ...]]()
    _add_lines(overload, lines)
    return lines


def _add_lines(overload: Any, lines: list[tuple[Any, ...]]) -> None:
    annotation = overload.type_annotation
    types, calls = annotation.typemap, annotation.calltypes
    for each in _statements(annotation):
        kind = _kind(each)
        if kind == "Branch":
            lines.append((kind, _text(types[each.cond.name])))
        elif kind == "Assign" and _kind(each.value) == "Expr":
            value = each.value
            if value.op == "cast" or _is_of_module(value, types):
                continue
            callee = _callee(value, types, calls)
            shown = _text(types[value.func.name]) if value.op == "call" else _detail(value)
            signature = _signature(calls.get(value))
            if callee is not None:  # without the numbers that it is given first
                signature = signature[:1] + signature[1 + types[value.func.name].dispatcher.numbers :]
            lines.append((value.op, shown, signature, _text(types[each.target.name])))
            if callee is not None:
                _add_lines(callee, lines)
        elif kind not in ("Assign", "Del", "Jump", "Return"):
            lines.append((kind, _signature(calls.get(each))))
        if len(lines) > _MOST_LINES:
            raise TooLongError
    lines.append(("Return", _text(overload.signature.return_type)))


class Uses:
    """What an operator does with numbers among its arguments.

    Parameters
    ----------
    overload : object
        What numba has compiled for its types.
    arguments : sequence of frozenset or None
        Of each argument, the number that it is; None of those that are none.

    Attributes
    ----------
    refused : dict
        Why a number should be a constant, by the number.
    divisors : set of int
        The numbers that something is divided by: if that is a power of two, it should be a constant.
    """

    def __init__(self, overload: Any, arguments: tuple[Numbers | None, ...]) -> None:
        self.refused, self.divisors = dict[int, str](), set[int]()
        # Of functions by their arguments: see `function`.
        self._functions: dict[Any, tuple[Numbers | None, Numbers | None]] = {}
        self.function(overload, arguments)

    def refuse(self, numbers: Numbers | None, why: str) -> None:
        """Note that numbers should be constants."""
        for each in numbers or ():
            self.refused.setdefault(each, why)

    def function(
        self, overload: Any, arguments: tuple[Numbers | None, ...]
    ) -> tuple[Numbers | None, Numbers | None]:
        """Read a function; return the numbers of its result, None if it depends on other arguments.

        The second are those of the factors, if it is a product; None if it is none.
        """
        known = id(overload), arguments
        if known not in self._functions:
            self._functions[known] = _Function(self, overload.type_annotation, arguments).read()
        return self._functions[known]


class _Function:
    """One function, and what its variables depend on."""

    def __init__(self, uses: Uses, annotation: Any, arguments: tuple[Numbers | None, ...]) -> None:
        self._uses, self._types, self._calls = uses, annotation.typemap, annotation.calltypes
        self._statements = _statements(annotation)
        self._arguments = arguments
        self._numbers: dict[str, Numbers | None] = {}  # of variables that have been assigned to
        self._same: dict[str, int] = {}  # variables that are a number itself
        self._factors: dict[str, Numbers] = {}  # of variables that are, or may be, products

    def read(self) -> tuple[Numbers | None, Numbers | None]:
        """Note what becomes of numbers, and return those of the result: see `Uses.function`."""
        assigned = [each for each in self._statements if _kind(each) == "Assign"]
        targets = Counter(each.target.name for each in assigned)
        self._once = {name for name, count in targets.items() if count == 1}
        before: Any = None
        while before != (self._numbers, self._factors):  # as loops assign to variables that are read above
            before = self._numbers.copy(), self._factors.copy()
            for each in assigned:
                self._assign(each.target.name, each.value)
        result: Numbers | None = _NONE
        factors: Numbers | None = None
        for each in self._statements:
            kind = _kind(each)
            if kind == "Assign" and _kind(each.value) == "Expr":
                self._expression(each.value, _text(self._types[each.target.name]))
            elif kind == "Branch":
                self._uses.refuse(self._of(each.cond), "it decides a branch")
            elif kind == "Return":
                result = _joined([result, self._of(each.value)])
                if each.value.name in self._factors:
                    factors = self._factors[each.value.name] | (factors or _NONE)
            elif kind in ("SetItem", "StaticSetItem"):
                self._uses.refuse(self._of(getattr(each, "index_var", None) or each.index), "it is an index")
            elif kind not in ("Assign", "Del", "Jump"):
                for one in each.list_vars():
                    self._uses.refuse(self._of(one), f"it is used in {kind}")
        return result, factors

    def _of(self, variable: Any) -> Numbers | None:
        return self._numbers.get(getattr(variable, "name", ""), _NONE)

    def _assign(self, name: str, value: Any) -> None:
        kind = _kind(value)
        found: Numbers | None = _NONE
        if kind == "Arg":
            found = self._arguments[value.index]
            if found:
                (self._same[name],) = found
        elif kind == "Var" or (kind == "Expr" and value.op == "cast"):
            source = value if kind == "Var" else value.value
            if source.name not in self._numbers:
                return
            found = self._of(source)
            if source.name in self._same and name in self._once:
                self._same[name] = self._same[source.name]
            if source.name in self._factors:
                self._add_factors(name, self._factors[source.name])
        elif kind == "Expr":
            callee = _callee(value, self._types, self._calls)
            if callee is not None:
                found, factors = self._uses.function(callee, self._given(value))
                if factors is not None:
                    self._add_factors(name, factors)
            else:
                read = [each.name for each in value.list_vars() if each.name in self._numbers]
                found = _joined([self._numbers[each] for each in read])
                is_product = value.op in _BINARY and _operation(value) in _PRODUCTS
                if (value.op == "unary" or is_product) and "int" not in _text(self._types[name]):
                    operands = value.list_vars()
                    every = [
                        (self._of(each) or _NONE) | self._factors.get(each.name, _NONE) for each in operands
                    ]
                    if is_product or operands[0].name in self._factors:
                        self._add_factors(name, _NONE.union(*every))
        if name in self._numbers:
            found = _joined([found, self._numbers[name]])
        self._numbers[name] = found

    def _add_factors(self, name: str, factors: Numbers) -> None:
        self._factors[name] = self._factors.get(name, _NONE) | factors

    def _given(self, value: Any) -> tuple[Numbers | None, ...]:
        """Return the numbers of the arguments of a call of a user's function; defaults are constants."""
        signature = self._calls[value]
        found: dict[str | int, Numbers | None] = dict(enumerate(map(self._of, value.args)))
        found.update((name, self._of(each)) for name, each in value.kws)
        if value.vararg is not None or len(signature.args) < len(found):  # *args, of either
            every = [self._of(each) for each in value.list_vars()]
            numbers = _NONE.union(*[each for each in every if each])
            self._uses.refuse(numbers, "it is one of any number of arguments")
            return (None if None in every else _NONE,) * len(signature.args)
        names = [*signature.pysig.parameters] if value.kws else [""] * len(signature.args)
        return tuple([found.get(i, found.get(name, _NONE)) for i, name in enumerate(names)])

    def _expression(self, value: Any, result: str) -> None:
        """Note what an expression does with numbers."""
        op = value.op
        if _callee(value, self._types, self._calls) is not None:
            return
        if op in _BINARY and _operation(value) in _SUMS and "int" not in result:
            left, right = self._factors.get(value.lhs.name), self._factors.get(value.rhs.name)
            if left is not None and right is not None:
                self._uses.refuse(left | right, "it is a factor in a sum of two products")
        numbers = [self._of(each) for each in value.list_vars()]
        used = _NONE.union(*[each for each in numbers if each])
        if not used:
            return
        if op in _BINARY:
            self._binary(value, result, used)
        elif op == "call":
            if not self._is_cheap(value):
                name = str(self._types[value.func.name])
                self._uses.refuse(used, f"it is an argument of {name[:60]}")
        elif op == "getattr" and value.attr in _OF_NUMBERS:
            pass
        elif op not in _MOVED:
            self._uses.refuse(used, "it is an index" if "getitem" in op else f"it is used in {op}")

    def _binary(self, value: Any, result: str, used: Numbers) -> None:
        fn = _operation(value)
        left, right = self._of(value.lhs), self._of(value.rhs)
        if fn in _DIVISIONS:
            if left is None and value.rhs.name in self._same:
                self._uses.divisors.add(self._same[value.rhs.name])
            elif right is not None:
                self._uses.refuse(used, "what is computed of it is a divisor, or divided by a constant")
            elif (
                value.lhs.name not in self._same
            ):  # it may be 0, and LLVM has a NaN of another sign for 0 / 0
                self._uses.refuse(used, "what is computed of it is divided")
        elif fn not in _CHEAP:
            self._uses.refuse(used, f"it is an operand of {fn.__name__}")
        elif fn in _PRODUCTS and None not in (left, right) and "int" not in result:
            self._uses.refuse(used, "it is multiplied by a constant")

    def _is_cheap(self, value: Any) -> bool:
        """Whether a function is as quick with numbers as with constants, and gives the same."""
        kind = self._types[value.func.name]
        if _kind(kind) == "NumberClass":
            given = [_text(self._types[each.name]) for each in value.args if self._of(each)]
            return "int" not in str(kind) or all("int" in each for each in given)
        return getattr(kind, "typing_key", None) in _CALLED


def _operation(value: Any) -> Any:
    return value.immutable_fn if value.op == "inplace_binop" else value.fn


def _statements(annotation: Any) -> list[Any]:
    return [statement for _, block in sorted(annotation.blocks.items()) for statement in block.body]


def _callee(value: Any, types: Any, calls: Any) -> Any:
    """Return what numba has compiled of the user's function that an expression calls, if it does."""
    if value.op != "call":
        return None
    function = getattr(types[value.func.name], "dispatcher", None)
    return None if function is None else function.overloads[tuple(calls[value].args)]


def _is_of_module(value: Any, types: Any) -> bool:
    return value.op == "getattr" and _kind(types[value.value.name]) == "Module"


def _detail(value: Any) -> str:
    """Return what an expression has beside its operands, as text: an operator, an attribute, an index."""
    found = [value._kws.get(name, "") for name in ("fn", "attr", "index", "count")]
    return " ".join([str(each) for each in found if _kind(each) != "Var"])


def _kind(value: Any) -> str:
    return type(value).__name__


def _joined(several: list[Numbers | None]) -> Numbers | None:
    if None in several:
        return None
    return _NONE.union(*several)  # type: ignore[arg-type]


def _signature(signature: Any) -> tuple[str, ...]:
    return () if signature is None else tuple(map(_text, (signature.return_type, *signature.args)))


def _text(kind: Any) -> str:
    """Return a type as text, literals as their types."""
    if getattr(kind, "dispatcher", None) is not None:
        return "function"
    if _kind(kind) == "Omitted":  # a default
        return _OF_DEFAULTS.get(type(kind.value), str(kind))
    if hasattr(kind, "types") and hasattr(kind, "count"):  # a tuple
        return f"{_kind(kind)}({', '.join(map(_text, kind.types))})"
    return str(getattr(kind, "literal_type", kind))
