"""Calls of several algorithms as one: one graph of all their kernels, one behind another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .._base import fork
from .._base.data import replace
from .._device import driver
from .._kernels.family import Launch, Number, Shape, Storage, Value
from .._launch.chain import Chain, Layouts
from .._launch.code import Code, Loaded
from .._launch.state import Emitted, LaunchState, Read
from .algorithm import Algorithm

_SPARES = 4  # executables that are made at once; where all are taken, kernels are launched one by one


class JoinedLoaded(Loaded):
    """Chains of several builds in one context, for a problem of each, as a chain of one shape."""

    def __init__(self, calls: Sequence[tuple[Code, Any]], context: driver.Context) -> None:
        self._context, self.facts, self.shape_names = context, (), ("joined",)
        self.name = ", ".join(dict.fromkeys([code.spec.algorithm for code, _ in calls]))
        parts: list[tuple[int, Chain]] = []
        numbers: list[int] = []
        may_be_graphs: list[bool] = []
        storage = 0  # of all, which use it one by one
        for k, (code, problem) in enumerate(calls):
            loaded, emitted = code.loaded(context), Emitted()
            nbytes = loaded.plan(loaded.facts, problem, emitted.emit)
            storage = max(storage, nbytes)
            for shape, own in zip(*emitted.several(), strict=True):
                name = loaded.shape_names[shape]
                parts.append((k, loaded.chains[name]))
                numbers += own
                may_be_graphs.append(loaded.executables[name] > 0)
        self.plan = partial(_plan, storage, tuple(numbers))
        self.chains = {"joined": _joined(parts)}
        self.is_graph = bool(parts) and False not in may_be_graphs
        self.executables = {"joined": _SPARES * self.is_graph}
        self._make_executables(self.executables)

    def _may_be_made(self, is_another: bool) -> bool:
        return super()._may_be_made(True)  # so that algorithms get their first ones

    def __del__(self) -> None:
        try:
            if driver.is_there(self._context):
                self.release_spares()
        except Exception:
            pass


def _joined(parts: Sequence[tuple[int, Chain]]) -> Chain:
    """Return chains as one, each for the values of a call that is given by number.

    Its values and numbers are those of all, in their order; each has the number of the call, or the chain,
    before its name.
    """
    values = {f"{k}_{name}": each for k, chain in parts for name, each in chain.values.layouts.items()}
    numbers = tuple([f"{i}_{name}" for i, (_, chain) in enumerate(parts) for name in chain.numbers])
    launches, functions = list[Launch](), list[Any]()
    for i, (k, chain) in enumerate(parts):
        for launch, _, function, _ in chain.launches:
            launches.append(_renamed(launch, f"{k}_", f"{i}_"))
            functions.append(function)
    overlaps = False not in [chain.overlaps for _, chain in parts]
    return Chain(Shape(numbers, tuple(launches)), Layouts(values), {}, functions, overlaps)


def _renamed(launch: Launch, call: str, chain: str) -> Launch:
    """Return a launch that takes the values of one call, and the numbers of one chain, among others."""

    def number(each: Any) -> Any:
        if isinstance(each, tuple):
            return tuple(map(number, each))
        return f"{chain}{each}" if isinstance(each, str) else each

    def parameter(each: Any) -> Any:
        if isinstance(each, tuple):
            return tuple(map(parameter, each))
        if isinstance(each, Value):
            return Value(f"{call}{each.name}")
        if isinstance(each, Storage):
            return Storage(number(each.offset))
        return replace(each, name=number(each.name)) if isinstance(each, Number) else each

    parameters = tuple(map(parameter, launch.parameters))
    return replace(launch, grid=number(launch.grid), shared=number(launch.shared), parameters=parameters)


def _plan(nbytes: int, numbers: tuple[int, ...], facts: Any, problem: Any, emit: Any) -> int:
    emit(0, numbers)
    return nbytes


class Joined(Algorithm, uses={}):
    """Calls of algorithms, each with a problem that stays, which run as one.

    Attributes
    ----------
    is_graph : bool
        Whether a graph is made of it: else each algorithm by itself may be launched more quickly.
    """

    def __init__(self, calls: Sequence[tuple[Algorithm, Any]]) -> None:
        self._calls = [(each._code, problem) for each, problem in calls]
        self._contexts: dict[driver.Context, JoinedLoaded] = {}
        super().__init__(calls[0][0]._built, ())
        with driver.relaxed_capture_mode():  # now, as to make graphs may wait for the GPU
            self.is_graph = self._in(driver.current_context()).is_graph

    def caller(self, *names: str) -> Callable[[Any, Read], None]:
        """Return the function for a stream and a tuple: 0, and the values of all calls in their order."""
        return self._call

    def _in(self, context: driver.Context) -> JoinedLoaded:
        loaded = self._contexts.get(context)
        if loaded is None:
            loaded = self._contexts[context] = JoinedLoaded(self._calls, context)
        return loaded

    def _new_state(self, context: driver.Context, number: int | None, stream: int) -> LaunchState:
        return LaunchState(self._in(context), lambda lend: _not_read, context, number, stream)

    def _forget(self) -> None:
        super()._forget()
        fork.leak(self._contexts)
        self._contexts = {}


def _not_read(arguments: tuple[Any, ...]) -> Read:
    raise TypeError("calls that are joined have no arguments, but values")
