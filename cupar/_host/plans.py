"""A family's plan as functions that numba compiles: its own source, with what it is made of as constants.

Planners are closures over the facts of a build and of a device, and give names of shapes and tuples of
numbers. Compiled code launches in place of that: where a plan returns a shape and its numbers, or adds them
to several, the function that is written here calls ``_launch``. What a planner has found from the facts is a
constant, which the function reads from a block of memory: so builds that differ in facts alone share code.

A plan may use integers, tuples and named tuples of them, conditions, loops, and functions and methods that
are written in the same way. `Translation` is refused by whatever else there is, by name.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import Any

from .._kernels import family, histogram
from .._kernels.family import Facts, Plan
from .trees import copied, named_call, root, tree_of

# Functions that compiled code has in another way: those of these names in `native`.
NATIVE = {
    family.aligned: "aligned",
    histogram.bits_of: "bits_of",
    histogram.word_of: "word_of",
    histogram.distance: "distance",
    histogram.scaled: "scaled",
}
_KEPT = (min, max, len, range, divmod, bool, int, abs)
_LOCAL = object()


class UntranslatableError(TypeError):
    """A plan has something that compiled code cannot have."""


class Translation:
    """Functions of one plan.

    Parameters
    ----------
    plan : callable
        What a family's planner returned.
    shapes : iterable of str
        Names of the family's shapes; their numbers are their places.

    Attributes
    ----------
    constants : list of int
        What the functions read with ``_word(_state, first + k)``, in order.
    kernels : list of str
        Kernels of which they ask how many blocks run at once: ``_occupancy(state, place, threads, shared)``.
    text : str
        The functions ``nbytes(state, problem)`` and ``launch(state, address, values, problem)``.
    """

    def __init__(self, plan: Callable[[Any], Any], shapes: Mapping[str, Any], first: int) -> None:
        self.shapes = {name: number for number, name in enumerate(shapes)}
        self.first = first
        self.constants: list[int] = []
        self.kernels: list[str] = []
        self._functions: dict[Any, str] = {}
        self._places: dict[Any, int] = {}  # of constants
        self._texts: list[str] = []
        self.nbytes = self.function(plan, "nbytes")
        self.launch = self.function(plan, "launch")
        self.text = "\n\n".join(self._texts)

    def compiled(self, names: dict[str, Any], compile: Callable[[Any], Any]) -> dict[str, Any]:
        """Return the functions by name, and the names that they read; `compile` is done to each of them."""
        exec(self.text, names)
        for name in self._functions.values():
            names[name] = compile(names[name])
        return names

    def constant(self, value: int, *key: Any) -> str:
        """Return the expression of a constant, which is called the same wherever the key is."""
        if key in self._places:
            return f"_word(_state, {self._places[key]})"
        self._places[key] = self.first + len(self.constants)
        if not -(2**63) <= value < 2**63:
            value = max(-(2**63), min(value, 2**63 - 1))  # a bound, and compiled code has nothing beyond it
        self.constants.append(int(value))
        return f"_word(_state, {self._places[key]})"

    def kernel(self, name: str) -> int:
        """Return the place of a kernel of whose blocks the plan asks."""
        if name not in self.kernels:
            self.kernels.append(name)
        return self.kernels.index(name)

    def function(
        self, found: Any, mode: str, texts: tuple[tuple[int, str], ...] = (), owner: Any = None
    ) -> str:
        """Translate a function or bound method; return the name of what is made.

        Parameters
        ----------
        found : callable
        mode : {"nbytes", "launch", ""}
            What becomes of a plan that it returns; empty if it returns none.
        texts : tuple of (int, str)
            Of which parameters, by place, the value is this text.
        owner : type, optional
            Whose property it is.
        """
        own, of = found, None
        if isinstance(found, MethodType):
            own, of = found.__func__, found.__self__
        own = inspect.unwrap(own)
        key = own, id(of), mode, texts
        name = self._functions.get(key)
        if name is None:
            kind = "_".join(
                filter(None, [*([type(of).__name__.strip("_")] * (of is not None)), own.__name__])
            )
            name = f"{kind}_{mode or 'number'}"  # unlike what variables are called
            taken = sum(each == name or each.startswith(f"{name}_") for each in self._functions.values())
            name = f"{name}_{taken}" if taken else name
            self._functions[key] = name
            self._texts.append(_Function(self, own, of, mode, dict(texts), name, owner).text)
        return name


class _Function(ast.NodeTransformer):
    """One function, as numba compiles it."""

    def __init__(
        self,
        whole: Translation,
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
        code = function.__code__
        self._locals = {*code.co_varnames, *code.co_cellvars}
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        self._outside = {**function.__globals__, **{name: cell.cell_contents for name, cell in cells}}
        self._free = set(code.co_freevars)
        self._values: dict[str, Any] = {}  # of names that are replaced
        if of is not None:
            self._values[parameters.pop(0)] = of
        for place, text in texts.items():
            self._values[parameters[place]] = text
        self._classes = {each.arg: self._class(each.annotation) for each in tree.args.args}
        if owner is not None:
            self._classes[parameters[0]] = owner
        self._several: set[str] = set()  # names of `Several`
        self._prologue: dict[str, str] = {}
        lines = [each for statement in tree.body for each in self._statement(statement)]
        given = [each for place, each in enumerate(parameters) if place not in texts]
        head = ["_state", *(["_address", "_values"] if mode == "launch" else []), *given]
        body = [ast.unparse(ast.fix_missing_locations(each)) for each in lines]
        prologue = [f"{name} = {value}" for name, value in self._prologue.items()]
        self.text = f"def {name}({', '.join(head)}):\n" + textwrap.indent("\n".join(prologue + body), "    ")

    def _class(self, annotation: ast.expr | None) -> Any:
        """Return the class that a parameter is annotated with."""
        found = self._outside.get(annotation.id) if isinstance(annotation, ast.Name) else None
        return found if isinstance(found, type) else None

    def _refuse(self, node: ast.AST, why: str) -> UntranslatableError:
        return UntranslatableError(
            f"{self._function.__qualname__}: {ast.unparse(node)}: {why}, which compiled host code cannot have"
        )

    # --- Names ---------------------------------------------------------------------------------------------

    def _value(self, node: ast.AST) -> Any:
        """Return what an expression is, if that is known; `_LOCAL` if it is not."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            if node.id in self._values:
                return self._values[node.id]
            if node.id in self._locals:
                return _LOCAL
            return self._outside.get(node.id, __builtins__.get(node.id, _LOCAL))  # type: ignore[attr-defined]
        if isinstance(node, ast.Attribute):
            of = self._value(node.value)
            return _LOCAL if of is _LOCAL or isinstance(of, Facts) else getattr(of, node.attr, _LOCAL)
        if isinstance(node, ast.Subscript):
            of, at = self._value(node.value), self._value(node.slice)
            known = at is not _LOCAL and isinstance(of, (tuple, list, str, dict))
            return of[at] if known else _LOCAL
        if isinstance(node, ast.JoinedStr):
            parts = [self._value(each) for each in node.values]
            return _LOCAL if _LOCAL in parts else "".join(map(str, parts))
        if isinstance(node, ast.FormattedValue):
            return self._value(node.value)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            both = self._value(node.left), self._value(node.right)
            return "".join(both) if all(isinstance(each, str) for each in both) else _LOCAL
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            value = self._value(node.left)
            return _LOCAL if value is _LOCAL else (value is None) == isinstance(node.ops[0], ast.Is)
        return _LOCAL

    def _condition(self, node: ast.expr) -> bool | None:
        """Return whether a condition holds, if that is known without the problem or the facts."""
        if isinstance(node, ast.BoolOp):
            found = [self._condition(each) for each in node.values]
            decided = isinstance(node.op, ast.Or)
            if decided in found:
                return decided
            return None if None in found else not decided
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            whether = self._condition(node.operand)
            return None if whether is None else not whether
        value = self._value(node)
        is_known = value is None or isinstance(value, (str, bool)) or callable(value)
        return bool(value) if is_known and value is not _LOCAL else None

    def _named(self, node: ast.expr, value: Any) -> ast.expr:
        """Return the expression of something from outside."""
        if isinstance(value, str) or value is None:
            return ast.Constant(value)
        if isinstance(value, _Literal):
            return ast.Constant(int(value))
        is_fact = isinstance(node, ast.Subscript) or root(node) in (*self._free, *self._values)
        if isinstance(value, (bool, int)):
            if not is_fact:
                return ast.Constant(int(value))
            return self._read(node, lambda: self._constant(node, value))
        if isinstance(value, (tuple, list)) and all(isinstance(each, int) for each in value):
            parts = [self._constant(node, each, k) if is_fact else str(each) for k, each in enumerate(value)]
            return self._read(node, lambda: f"({', '.join(parts)},)")
        raise self._refuse(node, f"this is a {type(value).__name__}")

    def _constant(self, node: ast.expr, value: int, *place: int) -> str:
        return self._whole.constant(value, self._function, id(self._of), ast.unparse(node), *place)

    def _read(self, node: ast.expr, expression: Callable[[], str]) -> ast.Name:
        name = ast.unparse(node)
        for sign in ".[]'\"":
            name = name.replace(sign, "_")
        name = name.strip("_")
        if name in self._locals:
            name = f"{name}_"
        if name not in self._prologue:
            self._prologue[name] = expression()
        return ast.Name(name, ast.Load())

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self._value(node)
        return node if value is _LOCAL else self._named(node, value)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        value = self._value(node)
        if value is not _LOCAL:
            return self._named(node, value)
        cls = self._classes.get(node.value.id) if isinstance(node.value, ast.Name) else None
        getter = getattr(getattr(cls, node.attr, None), "fget", None)
        if getter is not None:  # a property of the problem
            return self._call(self._whole.function(getter, "", (), cls), [node.value])
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        value = self._value(node)
        if value is not _LOCAL:
            return self._named(node, value)
        names = self._value(node.value)
        if isinstance(names, tuple) and names and all(isinstance(each, str) for each in names):
            places = ast.Tuple([ast.Constant(self._whole.shapes[each]) for each in names], ast.Load())
            return ast.Subscript(places, self.visit(node.slice), ast.Load())
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        value = self._value(node)
        return ast.Constant(value) if value is not _LOCAL else self.generic_visit(node)  # type: ignore[return-value]

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
            self.visit(each) for each, value in zip(given, values, strict=True) if not isinstance(value, str)
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
            return [ast.While(self.visit(node.test), self._statements(node.body), [])]
        if isinstance(node, ast.For):
            return self._loop(node)
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            node = ast.Assign([node.target], node.value)
        if isinstance(node, ast.Assign) and self._value_of_call(node.value) is family.Several:
            self._several.add(root(node.targets[0]))
            return []
        if isinstance(node, ast.Expr) and self._is_of_several(node.value):
            assert isinstance(node.value, ast.Call)
            return self._launched(*node.value.args)
        return [self.generic_visit(node)]  # type: ignore[list-item]

    def _loop(self, node: ast.For) -> list[ast.stmt]:
        """Return a loop, or what is done for each of several constants."""
        over = self._value(node.iter)
        if over is _LOCAL:
            return [
                ast.For(node.target, self.visit(node.iter), self._statements(node.body) or [ast.Pass()], [])
            ]
        done = []
        for value in over:
            self._values[root(node.target)] = _Literal(value) if type(value) is int else value
            done += self._statements(copied(node.body))
        del self._values[root(node.target)]
        return done

    def _value_of_call(self, node: ast.expr) -> Any:
        return self._value(node.func) if isinstance(node, ast.Call) else _LOCAL

    def _is_of_several(self, node: ast.expr | None) -> bool:
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and root(node.func.value) in self._several
        )

    def _planned(self, node: ast.expr | None) -> list[ast.stmt]:
        """Return what becomes of the plan that a function returns."""
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
        """Return the launch of a shape: an error ends the function."""
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
        place = self.visit(shape) if name is _LOCAL else ast.Constant(self._whole.shapes.get(name, -1))
        own = [ast.Name(each, ast.Load()) for each in ("_state", "_address", "_values")]
        launch = named_call("_launch", [*own, place, *map(self.visit, numbers)])
        status = ast.Name("_status", ast.Load())
        return [
            ast.Assign([ast.Name("_status", ast.Store())], launch),
            ast.If(status, [ast.Return(status)], []),
        ]


class _Literal(int):
    """An integer that is the same in all builds."""
