"""The base of algorithms over shards: ranks agree on the build, and a call has a library and a stream."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from functools import cached_property, wraps
from typing import Any, ClassVar, TypeVar

import numpy as np

from .. import structs
from .._arguments.initial import on_host
from .._arguments.numbers import item_count
from .._arguments.order import signature
from .._base import device
from .._base.data import Recent
from .._call.algorithm import Algorithm
from .._device import driver, streams
from .._functions import libraries
from .._functions.calls import Work, array_in
from .._ir.iterator import Iterator, capacity_of
from .._ir.specialisation import Specialisation
from .._obtain.factory_cache import data_names
from .._obtain.obtain import specification
from ..host import View
from .comm import ThroughHost, raw, waited
from .group import Group, group
from .replay import Replays, place_key, without_memory

T = TypeVar("T", bound="Sharded")


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

    group: Group
    _library: libraries.ArrayLibrary
    _factory: Callable[..., Any]  # of one GPU
    _spec: Specialisation  # what that factory builds for the same arguments
    _local: Any  # the algorithm that works on a shard
    _number: int  # of the object, on all ranks
    _algorithm: str
    run: Any

    def __init_subclass__(cls) -> None:
        """Have the others told if a call has the wrong arguments, as of other errors."""
        super().__init_subclass__()
        for name in ("run", "__call__"):
            if (call := cls.__dict__.get(name)) is not None:
                setattr(cls, name, _telling(call))

    def _build(self, work: Work, *given: Any, **options: Any) -> None:
        """Build the algorithms that this runs, from what its factory was given; here only that of one GPU."""
        self._local = self._factory(*given)

    def _execute(self, temp_storage: Any, stream: Any, arguments: tuple[Any, ...]) -> int:
        if temp_storage is not None:
            self._run(stream, arguments)
        return 1  # all of it is its own

    def _run(self, stream: Any, arguments: tuple[Any, ...]) -> Any:
        """Do a call on a stream of the library's device. An error ends the group: others wait for it."""
        try:
            with self.group.in_use:
                if self._takes_init:
                    arguments = *arguments[:-1], on_host(arguments[-1])
                return self._enqueued(stream, arguments)
        except BaseException as error:
            self.group.fail(error)
            raise

    def _enqueued(self, stream: Any, arguments: tuple[Any, ...]) -> Any:
        library = self._library
        if library.on_cpu:
            self.group.note(self._described(arguments))
            return device.using(True, self._done, Work(library, None), arguments)
        handle = streams.ask_of(*arguments)() if stream is None else driver.stream_handle(stream)
        if self._replays is not None and (known := self._replays.find(handle, arguments)) is not None:
            self.group.replay(*known, handle)
        else:
            self.group.note(self._described(arguments))
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
        for name, place, count, count_place in self._arrays:
            array = arguments[place]
            if count is None:
                if array is not None:
                    kind = type(array).__name__
                    raise TypeError(f"{name}: this algorithm was built without it; expected None, got {kind}")
                continue
            needed = count if isinstance(count, int) else item_count(count, arguments[count_place])
            items = array.size if type(array) is np.ndarray else capacity_of(name, array)
            if items < needed:
                raise ValueError(f"{name}: needs at least {needed} items, got an array of {items}")

    @cached_property
    def _arrays(self) -> list[tuple[str, int, str | int | None, int]]:
        """The arrays of a call: name, place, the items that it uses, and the place of that number.

        The items are a number, or a parameter; None: the object was built without the array.
        """
        places = {name: i for i, name in enumerate(signature(type(self).run).parameters)}
        built = {each.name for each in self._spec.arguments}
        found: list[tuple[str, int, str | int | None, int]] = []
        for name, count in {**self._spec.algorithm_class._uses, **self._uses}.items():
            if name in places:
                used = count if isinstance(count, int) or count in places else 0
                found.append((name, places[name], used if name in built else None, places.get(str(count), 0)))
        return found

    def _named(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """Return the arguments of a call by their names."""
        return dict(zip(signature(type(self).run).parameters, arguments, strict=True))

    _uses: ClassVar[dict[str, str]] = {}  # where that differs from the number of items with one GPU

    def _alike(self, *arguments: Any) -> dict[str, Any]:
        """Return what all ranks give to a call, which it does not agree on: by name."""
        return {}

    def _described(self, arguments: Sequence[Any]) -> bytes:
        """Return what ranks compare of a call when they agree the next time, and whether that may be late.

        It is the object, and on devices what they gave to it.
        """
        alike = {} if self._library.on_cpu or self._agrees() else self._alike(*arguments)
        facts = {f"{name} of an earlier {self._algorithm}": str(each) for name, each in alike.items()}
        return json.dumps([self._number, facts, self._sends_sizes]).encode()

    def _agrees(self) -> bool:
        """Whether a call agrees on the sizes that ranks give to it, as the host waits for others anyway."""
        on_host = self._library.on_cpu or isinstance(self.group.comm, ThroughHost)
        return self._sends_sizes and on_host

    _takes_init = False  # whether the last argument, of the factory and of calls, is an initial value
    _sends_sizes = False  # whether what is sent depends on what ranks give alike
    _call: Callable[..., None]
    _result: Callable[[Work], Any] | None = None  # makes what a call returns, after all that may be captured
    _replays: Replays | None = None
    _allocates = True  # whether calls take memory of the library's, or copy by it: they are not captured then

    def _stream(self, work: Work) -> Any:
        """Return the stream for a `Comm`."""
        return None if work.library.on_cpu else work.stream or 0

    def _accumulator(self) -> np.dtype[Any]:
        """Return the dtype in which items are combined."""
        return dict(self._spec.operators)["op"].output

    def _records_of(self, work: Work, carry: Any) -> None:
        """Make memory for the record of this rank, of none at first, and for those of all."""
        self._own, self._records = filled(work, carry), work.temporary(self.group.size, carry.record)
        self._gather = self.group.gathering(self._own, self._records)

    _own: Any
    _records: Any
    _gather: Callable[[Any], None]


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
    facts: dict[str, str] = {}
    arrays = dict(zip(data_names(factory), given, strict=False))

    def specified() -> None:
        nonlocal given
        if cls._takes_init:
            given = *given[:-1], on_host(given[-1])
        found._spec = specification(factory, *given)
        facts.update(_facts(found._spec))

    def built() -> None:
        work = Work(found._library, found._library.stream())
        found._build(work, *given, **options)
        for each in vars(found).values():
            if isinstance(each, Algorithm):
                each.ready(tier="fast")  # ranks would change to the fast kernels at different calls
        if not found._library.on_cpu:
            waited(work.stream)  # calls may be on another stream
            has_state = any(isinstance(each, Algorithm) and each.has_state for each in vars(found).values())
            if not found._allocates and not has_state:
                found._replays = found.group.replays(found._enqueue, found._described)

    try:
        with found.group.in_use:
            _agreed(found, factory.__name__, arrays, specified, facts, options, built)
    except BaseException as error:
        found.group.fail(error)
        raise
    return found


def _agreed(
    found: Sharded,
    algorithm: str,
    arrays: dict[str, Any],
    specified: Callable[[], None],
    facts: dict[str, str],
    options: dict[str, Any],
    built: Callable[[], None],
) -> None:
    """Specify and build; either all ranks succeed in each, or all raise."""
    error: Exception | None = None
    try:
        found._library = _library_of(arrays)
        facts["memory"] = "of the host" if found._library.on_cpu else "of a GPU"
        device.using(found._library.on_cpu, specified)
    except Exception as failure:
        error = failure
    meant = facts | {name: str(value) for name, value in options.items()}
    found.group.compare(algorithm, meant, error)
    found.group.begin({"algorithm": algorithm, **meant})
    found._algorithm, found._number = algorithm, found.group.made
    if not found._library.on_cpu:
        found.group.prepare()
    with found.group.building():
        try:
            device.using(found._library.on_cpu, built)
        except Exception as failure:
            error = failure
    found.group.compare(algorithm, {}, error)


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


def _facts(spec: Specialisation) -> dict[str, str]:
    """Return the facts that ranks must agree on, by their names in messages."""
    found: dict[str, str] = {}
    for name, op in spec.operators:
        called = "operator" if name == "op" else name
        found[called] = op.fingerprint[:12] if op.kind is None else f"OpKind.{op.kind.name}"
        if op.inputs:
            found[f"types of {called}"] = op.signature
    found |= {f"dtype of {each.name}": structs.text(each.value) for each in spec.arguments}
    found |= {name: str(value) for name, value in spec.options}
    found["CUPAR_TIER"] = os.environ.get("CUPAR_TIER", "").strip().lower() or "none"
    return found


def items_of(work: Work, name: str, array: Any) -> Any:
    """Return an iterator as it is, and the items of an array in the memory where they are, to be sliced."""
    if isinstance(array, Iterator):
        return array
    memory = work.library.memory(array)
    if isinstance(memory, np.ndarray):
        if not memory.flags.c_contiguous:
            raise ValueError(f"{name}: expected an array in C's order, got strides {memory.strides}")
        return memory.reshape(-1)
    size = memory.size
    return View(memory.address, memory.dtype, (size,), (memory.itemsize,), memory.writable, memory)


def first_items(work: Work, name: str, array: Any, number: int) -> Any:
    """Return the first items of an array; ValueError if it has less."""
    found = items_of(work, name, array)
    if len(found) < number:
        raise ValueError(f"{name}: needs at least {number} items, got an array of {len(found)}")
    return found[:number]


def checksums(work: Work, number: int, **arrays: Any) -> dict[str, Any]:
    """Return what ranks compare of arrays that all of them give: checksums of numbers on the host."""
    found: dict[str, str] = {}
    for name, each in arrays.items():
        items = items_of(work, name, each)
        # Not of structs: bytes between their fields may differ.
        if isinstance(items, np.ndarray) and items.dtype.names is None:
            found[name] = f"{zlib.crc32(raw(items[:number])):08x}"
    return found


def begin(items: Any, place: int) -> Any:
    """Return what `items_of` returned from an item on."""
    return items + place if isinstance(items, Iterator) else items[place:]


class IteratorCache:
    """Iterators over arrays, kept by where these are: to make one takes longer than to launch a kernel."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make
        self._known: Recent[Hashable, Any] = Recent(8)

    def __call__(self, work: Work, *arrays: Any) -> Any:
        """Return the iterator for arrays and numbers."""
        if work.library.on_cpu or any(isinstance(each, Iterator) for each in arrays):
            return self._make(*arrays)
        key = place_key(arrays)
        found = self._known.find(key)
        if found is None:
            try:
                kept = [*map(without_memory, arrays)]
            except ValueError:  # it is strided, which is said of the array
                return self._make(*arrays)
            found = self._known[key] = self._make(*kept)
        return found


def filled(work: Work, carry: Any) -> Any:
    """Return memory for one record, which has no value yet."""
    record = work.temporary(1, carry.record)
    carry.fold(work, record, 0, record)
    return record
