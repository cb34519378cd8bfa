"""A family's plan as functions that numba compiles: its own source, with what it is made of as constants.

Planners are closures over the facts of a build and of a device, and give names of shapes and tuples of
numbers. Compiled code launches in place of that: where a plan returns a shape and its numbers, or adds them
to several, the function that is written here calls ``_launch``. What a planner has found from the facts is a
constant, which the function reads from a block of memory: so builds that differ in facts alone share code.

A plan may use integers, tuples and named tuples of them, conditions, loops, and functions and methods that
are written in the same way. `Translation` is refused by whatever else there is, by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any

from .translated import Function
from .trees import UntranslatableError

__all__ = ["Translation", "UntranslatableError"]


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
        self.shapes: Mapping[str, int] = {name: number for number, name in enumerate(shapes)}
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
            self._texts.append(Function(self, own, of, mode, dict(texts), name, owner).text)
        return name
