"""What is known of the names in a plan when it is translated: all that does not depend on a problem."""

from __future__ import annotations

import ast
from types import FunctionType
from typing import Any

from .._kernels.family import Facts

UNKNOWN = object()


class Item:
    """An item of a sequence that is known itself."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Known:
    """What is known of a function's names.

    Attributes
    ----------
    locals, free : set of str
    outside : dict
        What the function reads from its module and what it closes over.
    given : dict
        Of parameters, what they always are.
    items : dict
        Of names that are items of sequences, an `Item`, an expression, or a tuple of these.
    """

    def __init__(self, function: FunctionType) -> None:
        code = function.__code__
        self.locals, self.free = {*code.co_varnames, *code.co_cellvars}, {*code.co_freevars}
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        self.outside = {**function.__globals__, **{name: cell.cell_contents for name, cell in cells}}
        self.given: dict[str, Any] = {}
        self.items: dict[str, Any] = {}

    def value(self, node: ast.AST) -> Any:
        """Return what an expression is, if that is known; `UNKNOWN` if it is not."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            if node.id in self.given:
                return self.given[node.id]
            if node.id in self.items:
                item = self.items[node.id]
                return item.value if isinstance(item, Item) else UNKNOWN
            if node.id in self.locals:
                return UNKNOWN
            return self.outside.get(node.id, __builtins__.get(node.id, UNKNOWN))  # type: ignore[attr-defined]
        if isinstance(node, ast.Attribute):
            of = self.value(node.value)
            return UNKNOWN if of is UNKNOWN or isinstance(of, Facts) else getattr(of, node.attr, UNKNOWN)
        if isinstance(node, ast.Subscript):
            of, at = self.value(node.value), self.value(node.slice)
            known = at is not UNKNOWN and isinstance(of, (tuple, list, str, dict))
            return of[at] if known else UNKNOWN
        if isinstance(node, ast.JoinedStr):
            parts = [self.value(each) for each in node.values]
            return UNKNOWN if UNKNOWN in parts else "".join(map(str, parts))
        if isinstance(node, ast.FormattedValue):
            return self.value(node.value)
        if isinstance(node, ast.Call):
            return self._called(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            both = self.value(node.left), self.value(node.right)
            return "".join(both) if all(isinstance(each, str) for each in both) else UNKNOWN
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            value = self.value(node.left)
            return UNKNOWN if value is UNKNOWN else (value is None) == isinstance(node.ops[0], ast.Is)
        return UNKNOWN

    def _called(self, node: ast.Call) -> Any:
        """Return the text of something known, or what a dictionary has."""
        function = self.value(node.func)
        given = [self.value(each) for each in node.args]
        of = getattr(function, "__self__", None)
        if (function is str and UNKNOWN not in given) or (isinstance(of, dict) and not given):
            return function(*given)
        return UNKNOWN

    def condition(self, node: ast.expr) -> bool | None:
        """Return whether a condition holds, if that is known without the problem or the facts."""
        if isinstance(node, ast.BoolOp):
            found = [self.condition(each) for each in node.values]
            decided = isinstance(node.op, ast.Or)
            if decided in found:
                return decided
            return None if None in found else not decided
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            whether = self.condition(node.operand)
            return None if whether is None else not whether
        value = self.value(node)
        is_known = value is None or isinstance(value, (str, bool)) or callable(value)
        return bool(value) if is_known and value is not UNKNOWN else None
