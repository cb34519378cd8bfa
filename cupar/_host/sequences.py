"""Lists in plans: of how many items is known when a plan is translated, so each is written out by itself.

What is left of a list is a tuple; of a comprehension or a loop over one, what it does for each item.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from .known import UNKNOWN, Item, Known
from .trees import UntranslatableError

Element = Any  # an expression as it is compiled, an `Item`, or a tuple of elements


class Sequences:
    """Which names of a function are sequences, or items of them.

    Parameters
    ----------
    known : Known
    visit : callable
        Returns an expression as it is compiled.
    before : callable
        Takes an expression that is compiled, and returns the name of a variable that has its value, which
        is found before the statement that is being translated.
    lengths : dict
        How many items the results of functions have beside one for each argument.
    """

    def __init__(
        self,
        known: Known,
        visit: Callable[[ast.expr], ast.expr],
        before: Callable[[ast.expr], ast.expr],
        lengths: dict[Any, int],
    ) -> None:
        self._known, self._visit, self._before, self._lengths = known, visit, before, lengths
        self._sequences: dict[str, list[Element]] = {}

    def let(self, name: str, items: list[Element]) -> ast.expr:
        """Have a name be a sequence; return the tuple that is its value."""
        self._sequences[name] = [
            ast.Subscript(ast.Name(name, ast.Load()), ast.Constant(k), ast.Load()) for k in range(len(items))
        ]
        return tuple_of(items)

    @contextmanager
    def bound(self, target: ast.expr, item: Element) -> Iterator[None]:
        """Have a target be an item."""
        before = dict(self._known.items)
        self._bind(target, item)
        yield
        self._known.items = before

    def _bind(self, target: ast.expr, item: Element) -> None:
        if isinstance(target, ast.Tuple):
            parts = map(Item, item.value) if isinstance(item, Item) else item
            for each, own in zip(target.elts, parts, strict=True):
                self._bind(each, own)
            return
        assert isinstance(target, ast.Name)
        self._known.items[target.id] = item

    def of(self, node: ast.expr) -> list[Element] | None:
        """Return the items of an expression; None if it is not known how many there are."""
        if isinstance(node, ast.Name) and node.id in self._sequences:
            return self._sequences[node.id]
        if isinstance(node, (ast.List, ast.Tuple)):
            return self._shown(node.elts)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return self._comprehended(node)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            items, ends = self.of(node.value), [node.slice.lower, node.slice.upper, node.slice.step]
            counts = [None if each is None else self.count(each) for each in ends]
            if items is None or any(a is not None and b is None for a, b in zip(ends, counts, strict=True)):
                return None
            return items[slice(*counts)]
        if isinstance(node, ast.BinOp):
            left = self.of(node.left)
            if left is not None and isinstance(node.op, ast.Mult):
                times = self.count(node.right)
                return None if times is None else left * times
            right = self.of(node.right) if isinstance(node.op, ast.Add) else None
            return None if left is None or right is None else left + right
        if isinstance(node, ast.Call):
            found = self._called(node)
            if found is not None:
                return found
        value = self._known.value(node)
        try:
            return None if value is UNKNOWN or isinstance(value, str) else [Item(each) for each in value]
        except TypeError:
            return None

    def _shown(self, each: list[ast.expr]) -> list[Element] | None:
        items: list[Element] = []
        for one in each:
            if isinstance(one, ast.Starred):
                inner = self.of(one.value)
                if inner is None:
                    return None
                items += inner
            else:
                items.append(self._visit(deepcopy(one)))
        return items

    def _comprehended(self, node: ast.ListComp | ast.GeneratorExp) -> list[Element] | None:
        generator, *others = node.generators
        over = self.of(generator.iter)
        if others or generator.ifs or over is None:
            return None
        items = []
        for each in over:
            with self.bound(generator.target, each):
                items.append(self._visit(deepcopy(node.elt)))
        return items

    def _called(self, node: ast.Call) -> list[Element] | None:
        function = self._known.value(node.func)
        if function in self._lengths:
            given = self._shown(node.args)
            if given is None:
                return None
            name = self._before(self._visit(ast.Call(node.func, [*map(expression, given)], [])))
            return [
                ast.Subscript(name, ast.Constant(k), ast.Load())
                for k in range(len(given) + self._lengths[function])
            ]
        given = [self.of(each) for each in node.args]
        if None in given:
            return None
        if function is enumerate:
            return [(Item(k), each) for k, each in enumerate(given[0])]
        if function is zip:
            return [*zip(*given, strict=False)]
        if function is itertools.accumulate:
            items = [*map(expression, given[0])]
            if node.keywords:
                items.insert(0, self._visit(node.keywords[0].value))
            for k, each in enumerate(items[1:], start=1):
                items[k] = self._before(ast.BinOp(items[k - 1], ast.Add(), each))
            return items
        return None

    def reduced(self, function: Any, node: ast.Call) -> ast.expr | None:
        """Return what a function makes of the items of its only argument; None if it is no such call."""
        if function not in (len, sum, min, max) or len(node.args) != 1:
            return None
        items = self.of(node.args[0])
        if items is None:
            return None
        each = [*map(expression, items)]
        if function is len:
            return ast.Constant(len(each))
        if function is sum:
            total: ast.expr = ast.Constant(0)
            for one in each:
                total = ast.BinOp(total, ast.Add(), one)
            return total
        return ast.Call(node.func, each, [])

    def item(self, node: ast.Subscript) -> ast.expr | None:
        """Return an item, or a tuple of some, if it is known which."""
        if isinstance(node.slice, ast.Slice):
            part = self.of(node)
            return None if part is None else tuple_of(part)
        items, at = self.of(node.value), self.count(node.slice)
        return None if items is None or at is None else expression(items[at])

    def count(self, node: ast.expr) -> int | None:
        """Return an integer that is known."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            found = self.count(node.operand)
            return None if found is None else -found
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            left, right = self.count(node.left), self.count(node.right)
            if left is None or right is None:
                return None
            return left + right if isinstance(node.op, ast.Add) else left - right
        if isinstance(node, ast.Call) and self._known.value(node.func) is len:
            items = self.of(node.args[0])
            return None if items is None else len(items)
        value = self._known.value(node)
        return value if isinstance(value, int) else None


def expression(item: Element) -> ast.expr:
    """Return an item as an expression."""
    if isinstance(item, Item) and isinstance(item.value, tuple):
        return tuple_of([*map(Item, item.value)])
    if isinstance(item, Item):
        if not isinstance(item.value, (int, str)):
            raise UntranslatableError(f"{item.value!r}: compiled host code cannot have it")
        return ast.Constant(item.value)
    if isinstance(item, tuple):
        return tuple_of([*item])
    return deepcopy(item)  # type: ignore[no-any-return]


def tuple_of(items: list[Element]) -> ast.expr:
    """Return items as a tuple."""
    return ast.Tuple([*map(expression, items)], ast.Load())


class Filled(ast.NodeTransformer):
    """Puts what is known in the place of names."""

    def __init__(self, items: dict[str, Any]) -> None:
        self._items = items

    def visit_Name(self, node: ast.Name) -> ast.expr:
        item = self._items.get(node.id)
        return node if item is None else expression(item)
