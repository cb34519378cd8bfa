"""The base of algorithms over shards: ranks agree on the build, and a call has a library and a stream."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cached_property, partial, wraps
from types import FunctionType
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

import numpy as np

from .. import structs
from .._arguments.initial import on_host
from .._arguments.numbers import item_count
from .._arguments.order import signature
from .._base import device
from .._call.algorithm import Algorithm
from .._device import driver, streams
from .._fingerprint.numbers import choosing
from .._functions import libraries
from .._functions.calls import Work, array_in
from .._ir.iterator import capacity_of
from .._ir.specialisation import Specialisation
from .._obtain.factory_cache import data_names
from .._obtain.obtain import specification
from .comm import ThroughHost, attempted, waited
from .engines import group
from .group import Group
from .replay import Replays

P = ParamSpec("P")
T = TypeVar("T", bound="Sharded")


def run_of(
    run: Callable[Concatenate[Any, P], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Decorate the declaration of a `run` that has the parameters of one of an algorithm of one GPU."""
    assert isinstance(run, FunctionType)

    def decorate(declared: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        found: Any = FunctionType(run.__code__, run.__globals__, "run", run.__defaults__)
        found.__annotations__, found.__doc__ = run.__annotations__, declared.__doc__
        found.__qualname__, found.__module__ = declared.__qualname__, declared.__module__
        return found  # type: ignore[no-any-return]

    return decorate


def _telling(run: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run)
    def told(self: Sharded, *args: Any, **kwargs: Any) -> Any:
        try:
            return run(self, *args, **kwargs)
        except BaseException as error:
            self.group.fail(error)
            raise

    return told


class Sharded:
    """An algorithm over the shards of a group. Made by the factories of `cupar.distributed`.

    All ranks make it and call it, with shards of their own, in the same order. A call of the object has two
    phases as `cupar.Algorithm` has them; `run` does both. What ranks exchange is kept with the object, so its
    calls are enqueued on one stream at a time.

    Attributes
    ----------
    group : Group
    """

    # Of classes.
    _uses: ClassVar[dict[str, str]] = {}  # where that differs from the number of items with one GPU
    _takes_init = False  # whether the last argument, of the factory and of calls, is an initial value
    _sends_sizes = False  # whether what is sent depends on what ranks give alike
    _allocates = True  # whether calls take memory of the library's, or copy by it: they are not captured then
    _result: Callable[[Work], Any] | None = None  # makes what a call returns, after all that may be captured
    run: Any

    group: Group
    _library: libraries.ArrayLibrary
    _factory: Callable[..., Any]  # of one GPU
    _spec: Specialisation  # what that factory builds for the same arguments
    _local: Any  # the algorithm that works on a shard
    _number: int  # of the object, on all ranks
    _replays: Replays | None = None

    def __init_subclass__(cls) -> None:
        """Have the others told if a call has the wrong arguments, as of other errors."""
        super().__init_subclass__()
        for name in ("run", "__call__"):
            if (call := cls.__dict__.get(name)) is not None:
                setattr(cls, name, _telling(call))

    # --- Makers ------------------------------------------------------------------------------------------

    def _make(self, given: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Specify and build; either all ranks succeed in each, or all raise."""
        name = self._factory.__name__
        facts, error = attempted(partial(self._specified, given))
        meant = {name: str(value) for name, value in options.items()}
        self.group.compare(name, (facts or {}) | meant, error)
        self.group.made += 1
        self._number = self.group.made
        if not self._library.on_cpu:
            self.group.prepare()
        build = partial(self._build_on, self._hosted(given), options)
        self.group.built(name, partial(device.using, self._library.on_cpu, build))

    def _specified(self, given: tuple[Any, ...]) -> dict[str, str]:
        """Return the facts that ranks must agree on, by their names in messages."""
        self._library = _library_of(dict(zip(data_names(self._factory), given, strict=False)))
        on_cpu = self._library.on_cpu
        # Numbers by value: whether they are arguments depends on what each rank has called before.
        asked = partial(specification, self._factory, *self._hosted(given))
        self._spec = spec = choosing({}, device.using, on_cpu, asked)
        found = {"memory": "of the host" if on_cpu else "of a GPU"}
        for name, op in spec.operators:
            called = "operator" if name == "op" else name
            found[called] = op.fingerprint[:12] if op.kind is None else f"OpKind.{op.kind.name}"
            if op.inputs:
                found[f"types of {called}"] = op.signature
        found |= {f"dtype of {each.name}": structs.text(each.value) for each in spec.arguments}
        found |= {name: str(value) for name, value in spec.options}
        return found | {"CUPAR_TIER": os.environ.get("CUPAR_TIER", "").strip().lower() or "none"}

    def _build_on(self, given: tuple[Any, ...], options: dict[str, Any]) -> None:
        work = Work(self._library, None)
        self._build(work, *given, **options)
        built = [each for each in vars(self).values() if isinstance(each, Algorithm)]
        for each in built:
            each.ready(tier="fast")  # ranks would change to the fast kernels at different calls
        if self._library.on_cpu:
            return
        waited(work.stream)  # calls may be on another stream
        if not self._allocates and not any(each.has_state for each in built):
            capturing = self.group.optional("capturing")
            if capturing is not None:
                self._replays = Replays(capturing, self._enqueue, self._described)

    def _build(self, work: Work, *given: Any, **options: Any) -> None:
        """Build the algorithms that this runs, from what its factory was given; here only that of one GPU."""
        self._local = self._factory(*given)

    def _accumulator(self) -> np.dtype[Any]:
        """Return the dtype in which items are combined."""
        return dict(self._spec.operators)["op"].output

    def _hosted(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return arguments of which an initial value is on the host."""
        return (*arguments[:-1], on_host(arguments[-1])) if self._takes_init else arguments

    # --- Calls -------------------------------------------------------------------------------------------

    _call: Callable[..., None]

    def _execute(self, temp_storage: Any, stream: Any, arguments: tuple[Any, ...]) -> int:
        if temp_storage is not None:
            self._run(stream, arguments)
        return 1  # all of it is its own

    def _run(self, stream: Any, arguments: tuple[Any, ...]) -> Any:
        """Do a call on a stream of the library's device. An error ends the group: others wait for it."""
        try:
            with self.group.in_use:
                return self._enqueued(stream, self._hosted(arguments))
        except BaseException as error:
            self.group.fail(error)
            raise

    def _enqueued(self, stream: Any, arguments: tuple[Any, ...]) -> Any:
        library = self._library
        if library.on_cpu:
            self._note(arguments)
            return device.using(True, self._done, Work(library, None), arguments)
        handle = streams.ask_of(*arguments)() if stream is None else driver.stream_handle(stream)
        if self._replays is not None and (known := self._replays.find(handle, arguments)) is not None:
            self.group.replay(*known, handle)
        else:
            self._note(arguments)
            self._check(arguments)
            with library.on(handle) if self._allocates else nullcontext():
                self._call(Work(library, handle), *arguments)
        if self._result is None:
            return None
        with library.on(handle):
            return self._result(Work(library, handle))

    def _done(self, work: Work, arguments: Sequence[Any]) -> Any:
        self._check(arguments)
        self._call(work, *arguments)
        return None if self._result is None else self._result(work)

    def _enqueue(self, arguments: Sequence[Any], stream: int) -> None:
        self._call(Work(self._library, stream), *arguments)

    def _check(self, arguments: Sequence[Any]) -> None:
        """Raise unless there are the arrays that the object was built with, of the items that a call uses."""
        given = self._named(arguments)
        for name, count in self._needed.items():
            array = given[name]
            if count is None:
                if array is not None:
                    kind = type(array).__name__
                    raise TypeError(f"{name}: this algorithm was built without it; expected None, got {kind}")
                continue
            needed = count if isinstance(count, int) else item_count(count, given[count])
            items = array.size if type(array) is np.ndarray else capacity_of(name, array)
            if items < needed:
                raise ValueError(f"{name}: needs at least {needed} items, got an array of {items}")

    @cached_property
    def _needed(self) -> dict[str, str | int | None]:
        """The items of each array that a call uses: a number, or its parameter; None without the array."""
        parameters, built = signature(type(self).run).parameters, {each.name for each in self._spec.arguments}
        found: dict[str, str | int | None] = {}
        for name, count in {**self._spec.algorithm_class._uses, **self._uses}.items():
            if name in parameters:
                used = count if isinstance(count, int) or count in parameters else 0
                found[name] = used if name in built else None
        return found

    def _named(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """Return the arguments of a call by their names."""
        return dict(zip(signature(type(self).run).parameters, arguments, strict=True))

    # --- What ranks compare ------------------------------------------------------------------------------

    def _alike(self, *arguments: Any) -> dict[str, Any]:
        """Return the arguments that must be equal on all ranks but are not exchanged, by name."""
        return {}

    def _note(self, arguments: Sequence[Any]) -> None:
        if self.group.size > 1:
            self.group.note(self._described(arguments))

    def _described(self, arguments: Sequence[Any]) -> bytes:
        """Return a call as ranks compare it when they agree the next time: see `Calls.note`."""
        alike = {} if self._agrees() else self._alike(*arguments)
        facts = {name: str(each) for name, each in alike.items()}
        return json.dumps([self._number, self._factory.__name__, facts, self._sends_sizes]).encode()

    def _agrees(self) -> bool:
        """Whether a call agrees on the sizes that ranks give to it, as the host waits for others anyway."""
        return self._sends_sizes and (self._library.on_cpu or isinstance(self.group.comm, ThroughHost))


def made(cls: type[T], engine: Any, factory: Callable[..., Any], *given: Any, **options: Any) -> T:
    """Return an object, once all ranks mean the same by it.

    Parameters
    ----------
    cls : type of Sharded
    engine : Group or anything that `group` takes
    factory : callable
        That of one GPU, whose name is that of this.
    *given
        Its arguments: its specialisation has types and operators. The library of the first array among them
        provides memory.
    **options
        What else ranks must agree on, and the object is built with.
    """
    found = cls()
    found.group, found._factory = group(engine), factory
    try:
        with found.group.in_use:
            found._make(given, options)
    except BaseException as error:
        found.group.fail(error)
        raise
    return found


def _library_of(arrays: dict[str, Any]) -> libraries.ArrayLibrary:
    for name, each in arrays.items():
        first = array_in(each)
        if first is not None and libraries.is_array(first):
            return libraries.of(name, first)
    name = next(iter(arrays))
    raise TypeError(
        f"{name}: expected an array of this rank's shard, or an iterator over one, got none: records "
        "of ranks are kept in memory of the same library"
    )
