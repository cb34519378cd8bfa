"""One function of a plan, as numba compiles it: see `plans`."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, Protocol

from .._kernels import family, histogram
from .._kernels.family import Facts, Plan
from . import sequences
from .known import UNKNOWN, Known
from .sequences import Sequences
from .trees import UntranslatableError, checked, copied, named_call, root, tree_of

# Functions that compiled code has in another way: those of these names in `native`.
NATIVE = {
    family.aligned: "aligned",
    histogram.bits_of: "bits_of",
    histogram.float_of: "float_of",
    histogram.word_of: "word_of",
    histogram.distance: "distance",
    histogram.scaled: "scaled",
}
_KEPT = (min, max, len, range, divmod, bool, int, abs)


class Whole(Protocol):
    """The plan that a function is of: a `plans.Translation`."""

    shapes: Mapping[str, int]

    def constant(self, value: int, *key: Any) -> str:
        """Return the expression of a constant."""

    def kernel(self, name: str) -> int:
        """Return the place of a kernel."""

    def function(
        self, found: Any, mode: str, texts: tuple[tuple[int, str], ...] = ..., owner: Any = ...
    ) -> str:
        """Translate another function; return its name."""


class Function(ast.NodeTransformer):
    """One function, as numba compiles it."""

    def __init__(
        self,
        whole: Whole,
        function: FunctionType,
        of: Any,
        mode: str,
        texts: dict[int, str],
        name: str,
        owner: Any,
    ) -> None:
        self._whole, self._function, self._of, self._mode = whole, function, of, mode
        tree = tree_of(function)
        parameters = [each.arg for each in tree.args.args]
        self._known = Known(function)
        self._value, self._condition = self._known.value, self._known.condition
        self._variables = 0
        self._before: list[ast.stmt] = []  # what goes before the statement that is being translated
        self._sequences = Sequences(self._known, self.visit, self._variable, {family.aligned: 1})
        if of is not None:
            self._known.given[parameters.pop(0)] = of
        for place, text in texts.items():
            self._known.given[parameters[place]] = text
        self._classes = {each.arg: self._class(each.annotation) for each in tree.args.args}
        if owner is not None:
            self._classes[parameters[0]] = owner
        # Names of `Several`; a parameter that is one says that the function launches, and has no plan.
        self._several = {name for name, cls in self._classes.items() if cls is family.Several}
        adds = bool(self._several)
        self._prologue: dict[str, str] = {}
        lines = [each for statement in tree.body for each in self._statement(statement)]
        if adds:
            lines.append(ast.Return(ast.Constant(0)))
        left_out = {*self._several, *(parameters[place] for place in texts)}
        given = [each for each in parameters if each not in left_out]
        head = ["_state", *(["_address", "_values"] if mode == "launch" else []), *given]
        body = [ast.unparse(ast.fix_missing_locations(each)) for each in lines]
        prologue = [f"{name} = {value}" for name, value in self._prologue.items()]
        self.text = f"def {name}({', '.join(head)}):\n" + textwrap.indent("\n".join(prologue + body), "    ")

    def _class(self, annotation: ast.expr | None) -> Any:
        """Return the class that a parameter is annotated with."""
        found = self._known.outside.get(annotation.id) if isinstance(annotation, ast.Name) else None
        return found if isinstance(found, type) else None

    def _refuse(self, node: ast.AST, why: str) -> UntranslatableError:
        return UntranslatableError(
            f"{self._function.__qualname__}: {ast.unparse(node)}: {why}, which compiled host code cannot have"
        )

    # --- Names ---------------------------------------------------------------------------------------------

    def _variable(self, value: ast.expr) -> ast.expr:
        """Return the name of a variable with some value, found before the statement."""
        name = f"_part_{self._variables}"
        self._variables += 1
        self._before.append(ast.Assign([ast.Name(name, ast.Store())], value))
        return ast.Name(name, ast.Load())

    def _named(self, node: ast.expr, value: Any) -> ast.expr:
        """Return the expression of something from outside."""
        if isinstance(value, str) or value is None:
            return ast.Constant(value)
        is_fact = isinstance(node, ast.Subscript) or root(node) in (*self._known.free, *self._known.given)
        if isinstance(value, (bool, int)):
            if not is_fact:
                return ast.Constant(int(value))
            return self._read(node, lambda: self._constant(node, value))
        if isinstance(value, (tuple, list)) and all(isinstance(each, int) for each in value):
            parts = [self._constant(node, each, k) if is_fact else str(each) for k, each in enumerate(value)]
            return self._read(node, lambda: f"({', '.join(parts)},)")
        raise self._refuse(node, f"this is a {type(value).__name__}")

    def _constant(self, node: ast.expr, value: int, *place: int) -> str:
        return self._whole.constant(value, self._function, id(self._of), self._text(node), *place)

    def _text(self, node: ast.expr) -> str:
        """Return the text of an expression, with what stands for items of known sequences."""
        return ast.unparse(sequences.Filled(self._known.items).visit(copy.deepcopy(node)))

    def _read(self, node: ast.expr, expression: Callable[[], str]) -> ast.Name:
        name = re.sub(r"\W", "_", self._text(node)).strip("_")
        if name in self._known.locals:
            name = f"{name}_"
        if name not in self._prologue:
            self._prologue[name] = expression()
        return ast.Name(name, ast.Load())

    def visit_Name(self, node: ast.Name) -> ast.expr:
        item = self._known.items.get(node.id)
        if item is not None:
            return sequences.expression(item)
        value = self._value(node)
        return node if value is UNKNOWN else self._named(node, value)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        value = self._value(node)
        if value is not UNKNOWN:
            return self._named(node, value)
        cls = self._classes.get(node.value.id) if isinstance(node.value, ast.Name) else None
        getter = getattr(getattr(cls, node.attr, None), "fget", None)
        if getter is not None:  # a property of the problem
            return self._call(self._whole.function(getter, "", (), cls), [node.value])
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        value = self._value(node)
        if value is not UNKNOWN:
            return self._named(node, value)
        names = self._value(node.value)
        if isinstance(names, tuple) and names and all(isinstance(each, str) for each in names):
            places = ast.Tuple([ast.Constant(self._whole.shapes[each]) for each in names], ast.Load())
            return ast.Subscript(places, self.visit(node.slice), ast.Load())
        return self._sequences.item(node) or self.generic_visit(node)  # type: ignore[return-value]

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        """Return the place of a shape with a number in its name."""
        texts = [self._value(each) for each in node.values]
        numbers = [each for each, text in zip(node.values, texts, strict=True) if text is UNKNOWN]
        if len(numbers) != 1 or not isinstance(number := numbers[0], ast.FormattedValue):
            raise self._refuse(node, "this is a text")
        shapes, places = self._whole.shapes, list[ast.expr]()
        while (name := "".join(str(len(places) if each is UNKNOWN else each) for each in texts)) in shapes:
            places.append(ast.Constant(shapes[name]))
        if not places:
            return ast.Constant(-1)  # as in `_launched`
        return ast.Subscript(ast.Tuple(places, ast.Load()), self.visit(number.value), ast.Load())

    def visit_List(self, node: ast.List) -> ast.expr:
        return self._tuple(node)

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        return self._tuple(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        return self._tuple(node)

    def _tuple(self, node: ast.expr) -> ast.expr:
        items = self._sequences.of(node)
        if items is None:
            raise self._refuse(node, "nobody knows of how many items")
        return sequences.tuple_of(items)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        value = self._value(node)
        return ast.Constant(value) if value is not UNKNOWN else self.generic_visit(node)  # type: ignore[return-value]

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        holds = self._condition(node.test)
        if holds is not None:
            return self.visit(node.body if holds else node.orelse)  # type: ignore[no-any-return]
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        neutral = isinstance(node.op, ast.And)
        left = [each for each in node.values if self._condition(each) is not neutral]
        parts = [self.visit(each) for each in left]
        return parts[0] if len(parts) == 1 else ast.BoolOp(node.op, parts)

    def visit_Tuple(self, node: ast.Tuple) -> ast.expr:
        if not any(isinstance(each, ast.Starred) for each in node.elts):
            return self.generic_visit(node)  # type: ignore[return-value]
        parts: list[ast.expr] = []  # tuples, to be added
        for each in node.elts:
            if isinstance(each, ast.Starred):
                parts.append(self.visit(each.value))
            elif parts and isinstance(parts[-1], ast.Tuple):
                parts[-1].elts.append(self.visit(each))
            else:
                parts.append(ast.Tuple([self.visit(each)], ast.Load()))
        return functools.reduce(lambda a, b: ast.BinOp(a, ast.Add(), b), parts)

    # --- Calls ---------------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if isinstance(node.func, ast.Attribute):
            if node.func.attr == "bit_length":
                return named_call("_bit_length", [self.visit(node.func.value)])
            if isinstance(self._value(node.func.value), Facts) and node.func.attr == "occupancy":
                kernel = self._value(node.args[0])
                place = ast.Constant(self._whole.kernel(kernel))
                return self._call("_occupancy", [place, *map(self.visit, node.args[1:])])
        function = self._value(node.func)
        found = self._sequences.reduced(function, node)
        if found is not None:
            return found
        if function in _KEPT:
            return ast.Call(node.func, [self.visit(each) for each in node.args], [])
        if function in NATIVE:
            return named_call(f"_{NATIVE[function]}", [self.visit(each) for each in node.args])
        return self._own_call(node, function, node.args, "")

    def _own_call(self, node: ast.expr, function: Any, given: list[ast.expr], mode: str) -> ast.expr:
        if not isinstance(inspect.unwrap(getattr(function, "__func__", function)), FunctionType):
            raise self._refuse(node, "this is not a function of cupar's")
        values = [self._value(each) for each in given]
        texts = tuple((k, value) for k, value in enumerate(values) if isinstance(value, str))
        others = [
            self.visit(each)
            for each, value in zip(given, values, strict=True)
            if not isinstance(value, str) and not self._is_several(each)
        ]
        return self._call(self._whole.function(function, mode, texts), others, mode)

    def _call(self, name: str, given: list[ast.expr], mode: str = "") -> ast.expr:
        own = ["_state", "_address", "_values"] if mode == "launch" else ["_state"]
        return named_call(name, [*(ast.Name(each, ast.Load()) for each in own), *given])

    # --- Statements ----------------------------------------------------------------------------------------

    def _statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [each for statement in body for each in self._statement(statement)]

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        """Return what becomes of a statement."""
        others, self._before = self._before, []
        done = self._translated(node)
        done, self._before = [*self._before, *done], others
        return done

    def _translated(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return []  # a docstring
        if isinstance(node, ast.Return) and self._mode:
            return self._planned(node.value)
        if isinstance(node, ast.If):
            holds = self._condition(node.test)
            if holds is not None:
                return self._statements(node.body if holds else node.orelse)
            body = self._statements(node.body) or [ast.Pass()]
            return [ast.If(self.visit(node.test), body, self._statements(node.orelse))]
        if isinstance(node, ast.While):
            test = self.visit(node.test)
            if self._before:
                raise self._refuse(node.test, "this is a list")
            return [ast.While(test, self._statements(node.body), [])]
        if isinstance(node, ast.For):
            return self._loop(node)
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            node = ast.Assign([node.target], node.value)
        if isinstance(node, ast.Assign) and self._value_of_call(node.value) is family.Several:
            self._several.add(root(node.targets[0]))
            return []
        if isinstance(node, ast.Assign):
            return self._assigned(node.targets[0], node.value)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            both = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
            return self._assigned(node.target, both)
        if isinstance(node, ast.Expr) and self._is_of_several(node.value):
            assert isinstance(node.value, ast.Call)
            return self._launched(*node.value.args)
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and any(map(self._is_several, call.args)):
            if self._mode == "nbytes":
                return []
            return checked(self._own_call(call, self._value(call.func), call.args, self._mode))
        return [self.generic_visit(node)]  # type: ignore[list-item]

    def _assigned(self, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
        """Return an assignment; of a sequence, that of a tuple."""
        has_star = isinstance(target, ast.Tuple) and any(isinstance(e, ast.Starred) for e in target.elts)
        items = self._sequences.of(value) if isinstance(target, ast.Name) or has_star else None
        if items is None:
            return [ast.Assign([target], self.visit(value))]
        if isinstance(target, ast.Name):
            return [ast.Assign([target], self._sequences.let(target.id, items))]
        assert isinstance(target, ast.Tuple)
        star = next(k for k, each in enumerate(target.elts) if isinstance(each, ast.Starred))
        end = len(items) - (len(target.elts) - star - 1)
        done: list[ast.stmt] = []
        for each, item in zip(target.elts, [*items[:star], items[star:end], *items[end:]], strict=True):
            if isinstance(each, ast.Starred):
                assert isinstance(each.value, ast.Name)
                done.append(ast.Assign([each.value], self._sequences.let(each.value.id, item)))
            else:
                done.append(ast.Assign([each], sequences.expression(item)))
        return done

    def _loop(self, node: ast.For) -> list[ast.stmt]:
        """Return a loop, or what is done for each of several items."""
        is_range = isinstance(node.iter, ast.Call) and self._value(node.iter.func) is range
        over = None if is_range else self._sequences.of(node.iter)
        if over is None:
            return [
                ast.For(node.target, self.visit(node.iter), self._statements(node.body) or [ast.Pass()], [])
            ]
        done = []
        for each in over:
            with self._sequences.bound(node.target, each):
                done += self._statements(copied(node.body))
        return done

    def _value_of_call(self, node: ast.expr) -> Any:
        return self._value(node.func) if isinstance(node, ast.Call) else UNKNOWN

    def _is_of_several(self, node: ast.expr | None) -> bool:
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and root(node.func.value) in self._several
        )

    def _is_several(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self._several

    def _planned(self, node: ast.expr | None) -> list[ast.stmt]:
        """Return what becomes of the plan that a function returns."""
        if node is None:
            return [ast.Return(ast.Constant(0))]
        if self._is_of_several(node):  # it is launched already
            assert isinstance(node, ast.Call)
            return (
                [ast.Return(ast.Constant(0))]
                if self._mode == "launch"
                else [ast.Return(self.visit(node.args[0]))]
            )
        if isinstance(node, ast.Call):
            if self._value_of_call(node) is not Plan:
                function = self._value_of_call(node)
                return [ast.Return(self._own_call(node, function, node.args, self._mode))]
            given = node.args
        elif isinstance(node, ast.Tuple):
            given = node.elts
        else:
            raise self._refuse(node or ast.Constant(None), "this is not a plan")
        if self._mode == "nbytes":
            return [ast.Return(self.visit(given[1]))]
        done = self._launched(given[0], *given[2:])
        if len(done) == 2 and isinstance(done[0], ast.Assign):
            return [ast.Return(done[0].value)]
        return [*done, ast.Return(ast.Constant(0))]

    def _launched(self, shape: ast.expr, *numbers: ast.expr) -> list[ast.stmt]:
        """Return the launch of a shape."""
        if self._mode == "nbytes":
            return []
        if isinstance(shape, ast.IfExp):
            holds = self._condition(shape.test)
            if holds is not None:
                return self._launched(shape.body if holds else shape.orelse, *numbers)
            body, others = (self._launched(each, *numbers) for each in (shape.body, shape.orelse))
            return [ast.If(self.visit(shape.test), body or [ast.Pass()], others)]
        name = self._value(shape)
        if name == "":
            return []
        # A build without some shapes has facts by which they are not planned.
        place = self.visit(shape) if name is UNKNOWN else ast.Constant(self._whole.shapes.get(name, -1))
        own = [ast.Name(each, ast.Load()) for each in ("_state", "_address", "_values")]
        return checked(named_call("_launch", [*own, place, *map(self.visit, numbers)]))
