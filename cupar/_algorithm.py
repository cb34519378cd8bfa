"""What all algorithm objects share: loaded code, argument checks, the two phases of a call."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _arrays, _cccl, _driver, _fork, _nodes, iterators, structs
from ._key import Specialisation
from ._nodes import Argument
from .operators import Op, Operator, convertible, resolve


@dataclass(frozen=True)
class Build:
    """Where an algorithm's code came from, and what that cost.

    Attributes
    ----------
    algorithm : str
        As in ``"reduce_into"``.
    key : str
        Of the build in the cache: a SHA-256 in hexadecimal.
    cc : int
        Compute capability it is for, as in 90.
    origin : {"memory", "disk", "linked", "built"}
        ``"linked"``: the kernels were in the cache and only the operator was new.
    seconds : mapping of str to float
        By stage. ``"read"`` and ``"load"`` of a build that was found; ``"template"``, ``"operator"``,
        ``"link"`` or ``"compile"`` of one that was made.
    cubin_size : int
        Bytes of GPU code: an ELF file, as `Algorithm.cubin` returns it.
    """

    algorithm: str
    key: str
    cc: int
    origin: str
    seconds: Mapping[str, float] = field(hash=False)
    cubin_size: int


class Code:
    """A build's code: serialised, and loaded for the device once it is needed there."""

    def __init__(self, spec: Specialisation, blob: bytes) -> None:
        self.spec = spec
        self._blob = blob
        self._natives: dict[int, Any] = {}  # by device
        self._lock = _fork.Lock()

    def native(self, device: _driver.Device) -> Any:
        """Return the bindings' object, loaded for a device, which must be the current one.

        Raises
        ------
        ValueError
            If it was built for another compute capability than the device has.
        RuntimeError
            If the bindings or the driver refuse it.
        """
        with self._lock:
            if device.ordinal not in self._natives:
                cc = self.spec.cc
                # A cubin runs on its own compute capability and on later minor ones.
                if device.cc // 10 != cc // 10 or device.cc < cc:
                    raise ValueError(
                        f"cc: this {self.spec.algorithm} was built for sm_{cc}, the current device "
                        f"{device.ordinal} is sm_{device.cc}"
                    )
                self._natives[device.ordinal] = _cccl.load(self.spec.native, self._blob)
            return self._natives[device.ordinal]

    def cubin(self) -> bytes:
        """Return the GPU code, an ELF file, for tools that inspect it."""
        return _cccl.cubin(self.spec.native, self._blob)

    def leave_behind(self) -> None:
        """Forget what is loaded: a forked process cannot use what its parent loaded, nor may it unload it."""
        _fork.keep_for_ever(self._natives)
        self._natives = {}


_generation = 0  # of this process: how many forks it is from the first


def _after_fork() -> None:
    global _generation
    _generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


State = Callable[[], bytes]


class Call:
    """The mutable objects that one call needs: iterators with their pointers, operators, initial value.

    They belong to one call at a time, so that one algorithm object serves many threads.
    """

    def __init__(self, code: Code, device: _driver.Device) -> None:
        spec = code.spec
        self.native = code.native(device)
        self.device = device
        self.arguments = spec.arguments
        self.states = [
            None if argument.is_pointer else bytearray(argument.node.size) for argument in spec.arguments
        ]
        self.iterators = [
            _cccl.pointer(argument.value)
            if state is None
            else _cccl.iterator(argument.name, argument.value, state)
            for argument, state in zip(spec.arguments, self.states, strict=True)
        ]
        self.operators = [
            _cccl.operator(name, op.kind, (), op.state_size, op.state_alignment)
            for name, op in spec.operators
        ]
        self.init: Any = None
        self.init_kind = dict(spec.options).get("init")
        if self.init_kind is not None:
            _, op = spec.operators[0]
            self.init_array = np.zeros(1, op.output)
            of_host = self.init_kind == "value"
            self.init = _cccl.value(self.init_array) if of_host else _cccl.pointer(op.output)

    def bind(self, arrays: Sequence[tuple[Any, int]], h_init: Any, states: Sequence[State | None]) -> None:
        """Check what a call is given, and set it.

        Parameters
        ----------
        arrays : sequence of (device array or iterator, int)
            Each with the number of items that are used.
        h_init
            The initial value.
        states : sequence of callable or None
            What returns the states of operators that have one.
        """
        if len(arrays) != len(self.arguments):
            names = ", ".join(argument.name for argument in self.arguments)
            raise TypeError(f"this algorithm was built for the arrays {names}; got {len(arrays)} arrays")
        for argument, iterator, state, (array, items) in zip(
            self.arguments, self.iterators, self.states, arrays, strict=True
        ):
            if state is not None:
                state[:] = iterators.state_of(argument, array, items)
            elif isinstance(array, iterators.Iterator):
                raise TypeError(f"{argument.name}: this algorithm was built for an array, got {array!r}")
            else:
                iterator.state = _arrays.address(argument.name, array, argument.value, items, argument.output)
        for op, current in zip(self.operators, states, strict=True):
            if current is not None:
                op.state = current()
        if self.init_kind == "device":
            self.init.state = _arrays.address("h_init", h_init, self.init_array.dtype, 1, False)
        elif self.init_kind == "value":
            self.init_array[0] = initial_value(h_init, self.init_array.dtype)
        elif h_init is not None:
            raise TypeError("h_init: this algorithm was built without an initial value (h_init=None)")


class Algorithm:
    """An algorithm for given types, operator and device. Made by the factories, not by its constructor.

    Attributes
    ----------
    build : Build
        Where its code came from.
    """

    def __init__(self, code: Code, build: Build, states: Sequence[State | None]) -> None:
        self.build = build
        self._code = code
        self._states = states  # of operators that have one: what returns it
        self._calls: dict[int, list[Call]] = {}  # that are free, by device
        self._generation = _generation

    def __repr__(self) -> str:
        spec = self._code.spec
        types = ", ".join(f"{each.name}: {_nodes.description(each.given)}" for each in spec.arguments)
        operators = "".join(f", {name}: {op.name}" for name, op in spec.operators)
        return f"<cupar {spec.algorithm}({types}{operators}) for sm_{spec.cc}, {self.build.origin}>"

    def cubin(self) -> bytes:
        """Return the GPU code, an ELF file such as ``nvdisasm`` and ``cuobjdump`` read. Needs no GPU."""
        return self._code.cubin()

    def _launch(self, call: Call, address: int, nbytes: int, work: Any, stream: int) -> int:
        """Call the bindings; address 0 asks for the bytes of temporary storage.

        `work` is what the algorithm's own call gave to `_execute`: the number of items, or what else says
        how much there is to do.
        """
        raise NotImplementedError

    def _take(self) -> Call:
        if self._generation != _generation:
            _fork.keep_for_ever(self._calls)
            self._calls = {}
            self._code.leave_behind()
            self._generation = _generation
        device = _driver.current_device()
        try:
            return self._calls[device.ordinal].pop()
        except (KeyError, IndexError):
            return Call(self._code, device)

    def _give_back(self, call: Call) -> None:
        self._calls.setdefault(call.device.ordinal, []).append(call)

    def _execute(
        self, temp_storage: Any, arrays: Sequence[tuple[Any, int]], work: Any, h_init: Any, stream: Any
    ) -> int:
        """Do one phase of a two-phase call: ask for the temporary storage, or run with it."""
        handle = _driver.stream_handle(stream)
        call = self._take()
        try:
            call.bind(arrays, h_init, self._states)
            if temp_storage is None:
                return self._launch(call, 0, 0, work, handle)
            storage = _arrays.view("temp_storage", temp_storage)
            nbytes = storage.size * storage.dtype.itemsize
            if not storage.contiguous or not storage.writable:
                raise ValueError("temp_storage: expected a contiguous array that can be written")
            if storage.address == 0:
                self._check_storage(call, nbytes, work, handle)
            try:
                return self._launch(call, storage.address, nbytes, work, handle)
            except RuntimeError:
                self._check_storage(call, nbytes, work, handle)
                raise
        finally:
            self._give_back(call)

    def _check_storage(self, call: Call, nbytes: int, work: Any, stream: int) -> None:
        needed = self._launch(call, 0, 0, work, stream)
        if nbytes < needed:
            raise ValueError(f"temp_storage: needs {needed} bytes for this call, got {nbytes}")

    def _run(self, arrays: Sequence[tuple[Any, int]], work: Any, h_init: Any, stream: Any) -> None:
        """Run with temporary storage from cupar's own pool, in the order of the stream."""
        handle = _driver.stream_handle(stream)
        call = self._take()
        try:
            call.bind(arrays, h_init, self._states)
            nbytes = self._launch(call, 0, 0, work, handle)
            with _driver.temporary_storage(nbytes, handle) as address:
                self._launch(call, address, nbytes, work, handle)
        finally:
            self._give_back(call)

    def _enqueue(self, arrays: Sequence[tuple[Any, int]], work: Any, stream: Any) -> None:
        """Run an algorithm that needs no temporary storage."""
        handle = _driver.stream_handle(stream)
        call = self._take()
        try:
            call.bind(arrays, None, self._states)
            self._launch(call, 0, 0, work, handle)
        finally:
            self._give_back(call)


def item_count(name: str, value: Any) -> int:
    """Return a number of items as an int.

    Raises
    ------
    TypeError, ValueError
        If it is no integer, or negative.
    """
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an integer, got {type(value).__name__}") from None
    if count < 0:
        raise ValueError(f"{name}: expected 0 or more, got {count}")
    return count


_MOST_SEGMENTS = 2**31 - 1


def segment_count(num_segments: Any) -> int:
    """Return a number of segments as an int; raise TypeError or ValueError if CUB does not take it."""
    count = item_count("num_segments", num_segments)
    if count > _MOST_SEGMENTS:
        raise ValueError(f"num_segments: expected at most {_MOST_SEGMENTS}, got {count}")
    return count


_EXPECTED_INIT = "expected a NumPy array of one element, a number, a struct or None"


def _init_dtype(h_init: Any, d_in: np.dtype[Any]) -> np.dtype[Any]:
    """Return the accumulator's dtype: that of an array or struct `h_init`, else that of `d_in`.

    Raises
    ------
    TypeError, ValueError
        If `h_init` cannot be an initial value.
    """
    struct = structs.dtype_of_value(h_init)
    if struct is not None:
        return struct
    if isinstance(h_init, (np.ndarray, np.void)):
        if h_init.size != 1:
            raise ValueError(f"h_init: {_EXPECTED_INIT}, got an array of {h_init.size}")
        return _arrays.dtype_of("h_init", h_init.dtype)
    if h_init is not None:
        initial_value(h_init, d_in)
    return d_in


def initial_value(h_init: Any, dtype: np.dtype[Any]) -> Any:
    """Return `h_init` as something that can be stored in an array of `dtype` without loss of kind.

    Raises
    ------
    TypeError
        If it is None, an array of another dtype, or a number of a larger kind than `dtype`.
    ValueError
        If it is not one element, or a number that `dtype` cannot hold.
    """
    if isinstance(h_init, (np.ndarray, np.void)):
        if h_init.dtype != dtype and not _arrays.same_layout("h_init", h_init.dtype, dtype):
            raise TypeError(f"h_init: this algorithm accumulates in {dtype}, got an array of {h_init.dtype}")
        if h_init.size != 1:
            raise ValueError(f"h_init: {_EXPECTED_INIT}, got an array of {h_init.size}")
        return np.asarray(h_init).reshape(-1)[0]
    if isinstance(h_init, (bool, int, float, complex, np.generic)):
        given = np.dtype(type(h_init))
        if given.kind in "biufc" and convertible(given, dtype):
            return _exactly(h_init, dtype)
        raise TypeError(
            f"h_init: {h_init!r} is not converted to {dtype} silently; give a NumPy array of one element of "
            "the dtype to accumulate in"
        )
    struct = structs.dtype_of_value(h_init)
    if struct is not None:
        if structs.layout(struct) != structs.layout(dtype):
            raise TypeError(f"h_init: this algorithm accumulates in {dtype}, got a struct of {struct}")
        return h_init
    if h_init is None:
        raise TypeError("h_init: this algorithm was built with an initial value, got None")
    raise TypeError(f"h_init: {_EXPECTED_INIT}, got {type(h_init).__name__}")


def _exactly(number: Any, dtype: np.dtype[Any]) -> Any:
    """Convert a number; floats may be rounded, but neither wrap around nor overflow."""
    try:
        with np.errstate(over="ignore"):
            value = np.array(number, dtype)[()]
    except OverflowError as error:
        raise ValueError(f"h_init: {error}") from None
    lost = value != number if dtype.kind in "biu" else np.isinf(value) and abs(number) != np.inf
    if lost:
        raise ValueError(f"h_init: {dtype} cannot hold {number!r}")
    return value


def argument(name: str, array: Any, *, output: bool = False, may_iterate: bool = True) -> Argument:
    """Describe an array, an iterator (if it may be one), or a dtype that stands for an array.

    Raises
    ------
    TypeError, ValueError
        If it is none of these, or cannot be read, or (as an output) written.
    """
    node = iterators.over(name, array).node
    if not may_iterate and isinstance(array, iterators.Iterator):
        raise TypeError(f"{name}: expected an array or a dtype, got {array!r}")
    if not (node.writable if output else node.readable):
        use = "write to" if output else "read"
        raise TypeError(f"{name}: expected something to {use}, got {_nodes.description(node)}")
    return Argument(name, node, node, output)


def integers(
    name: str, array: Any, *, smallest: int = 1, output: bool = False, may_iterate: bool = True
) -> Argument:
    """Describe an array or iterator of integers of some bytes at least; raise TypeError if it is not."""
    found = argument(name, array, output=output, may_iterate=may_iterate)
    if found.value.kind not in "iu" or found.value.itemsize < smallest:
        size = f" of at least {smallest} bytes" if smallest > 1 else ""
        raise TypeError(f"{name}: expected integers{size}, got {found.value}")
    return found


def same_dtype(
    name: str, array: Any, other: Argument, *, output: bool = False, may_iterate: bool = True
) -> Argument:
    """Describe an array that must have the dtype of another argument; raise TypeError if it has not."""
    found = argument(name, array, output=output, may_iterate=may_iterate)
    if type(found.node) is _nodes.Discard:
        return discarding(name, other.value)
    if structs.layout(found.value) != structs.layout(other.value):
        wanted, got = structs.text(other.value), structs.text(found.value)
        raise TypeError(f"{name}: expected {wanted}, the dtype of {other.name}, got {got}")
    return found


def discarding(name: str, value: np.dtype[Any]) -> Argument:
    """Describe an output of which nothing is kept."""
    node = _nodes.Discard(value)
    return Argument(name, node, node, output=True)


@dataclass(frozen=True)
class Accumulation:
    """Input, output and operator of a reduction or scan, and how its initial value is given."""

    d_in: Argument
    d_out: Argument
    operator: Operator
    init: str | None  # "value": with the call; "device": in device memory; None: there is none

    @property
    def accumulator(self) -> np.dtype[Any]:
        """The type in which items are accumulated."""
        return self.operator.output


def accumulation(
    d_in: Any, d_out: Any, op: Op, h_init: Any, *, init_may_be_on_device: bool = False
) -> Accumulation:
    """Find out in which type items are accumulated, and what the operator means for it.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what reductions and scans take, or the types are not converted silently.
    """
    source, target = argument("d_in", d_in), argument("d_out", d_out, output=True)
    init = None if h_init is None else "value"
    if init_may_be_on_device and _arrays.is_device_array(h_init):
        init, accumulator = "device", _arrays.dtype_of("h_init", h_init)
    else:
        accumulator = _init_dtype(h_init, source.value)
    if type(target.node) is _nodes.Discard:
        target = discarding("d_out", accumulator)
    check_conversion("d_in", source.value, "the accumulator", accumulator)
    check_conversion("the accumulator", accumulator, "d_out", target.value)
    operator = resolve(op, (accumulator, accumulator), accumulator)
    return Accumulation(source, target, operator, init)


def check_conversion(
    source_name: str, source: np.dtype[Any], target_name: str, target: np.dtype[Any]
) -> None:
    """Raise TypeError if items would be converted from float to integer or from complex to real."""
    if not convertible(source, target):
        raise TypeError(
            f"{source_name}: {structs.text(source)} is not converted to {structs.text(target)} of "
            f"{target_name} silently; give h_init as a NumPy array of the dtype to accumulate in"
        )
