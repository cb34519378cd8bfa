"""What all algorithm objects share: loaded code, argument checks, the two phases of a call."""

from __future__ import annotations

import operator
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _arrays, _cccl, _driver, _fork
from ._key import Specialisation
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


class Call:
    """The mutable objects that one call needs: iterators with their pointers, operators, initial value.

    They belong to one call at a time, so that one algorithm object serves many threads.
    """

    def __init__(self, code: Code, device: _driver.Device) -> None:
        spec = code.spec
        self.native = code.native(device)
        self.device = device
        self.arguments = spec.arguments
        self.states = [bytearray(8) if argument.converts else None for argument in spec.arguments]
        self.iterators = [
            _cccl.pointer(argument.dtype)
            if state is None
            else _cccl.iterator(argument.name, argument.value, state)
            for argument, state in zip(spec.arguments, self.states, strict=True)
        ]
        self.operators = [_cccl.operator(name, op.kind) for name, op in spec.operators]
        self.init: Any = None
        self.init_array: np.ndarray[Any, Any] | None = None
        accumulator = dict(spec.options).get("init")
        if accumulator is not None:
            self.init_array = np.zeros(1, np.dtype(accumulator))
            self.init = _cccl.value(self.init_array)

    def bind(self, arrays: Sequence[tuple[Any, int]], h_init: Any) -> None:
        """Check the arrays, each with the number of items that are used, and the initial value; set them."""
        if len(arrays) != len(self.arguments):
            names = ", ".join(argument.name for argument in self.arguments)
            raise TypeError(f"this algorithm was built for the arrays {names}; got {len(arrays)} arrays")
        for argument, iterator, state, (array, items) in zip(
            self.arguments, self.iterators, self.states, arrays, strict=True
        ):
            address = _arrays.address(argument.name, array, argument.dtype, items, argument.output)
            if state is None:
                iterator.state = address
            else:
                struct.pack_into("=Q", state, 0, address)
        if self.init_array is not None:
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

    def __init__(self, code: Code, build: Build) -> None:
        self.build = build
        self._code = code
        self._calls: dict[int, list[Call]] = {}  # that are free, by device
        self._generation = _generation

    def __repr__(self) -> str:
        spec = self._code.spec
        types = ", ".join(f"{argument.name}: {argument.dtype}" for argument in spec.arguments)
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
            call.bind(arrays, h_init)
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
            call.bind(arrays, h_init)
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
            call.bind(arrays, None)
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


_EXPECTED_INIT = "expected a NumPy array of one element, a number or None"


def accumulator_dtype(h_init: Any, d_in: np.dtype[Any]) -> np.dtype[Any]:
    """Return the accumulator's dtype: that of an array `h_init`, else that of `d_in`.

    Raises
    ------
    TypeError, ValueError
        If `h_init` cannot be an initial value.
    """
    if isinstance(h_init, np.ndarray):
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
    if isinstance(h_init, np.ndarray):
        if h_init.dtype != dtype:
            raise TypeError(f"h_init: this algorithm accumulates in {dtype}, got an array of {h_init.dtype}")
        if h_init.size != 1:
            raise ValueError(f"h_init: {_EXPECTED_INIT}, got an array of {h_init.size}")
        return h_init.reshape(-1)[0]
    if isinstance(h_init, (bool, int, float, complex, np.generic)):
        given = np.dtype(type(h_init))
        if given.kind in "biufc" and convertible(given, dtype):
            return _exactly(h_init, dtype)
        raise TypeError(
            f"h_init: {h_init!r} is not converted to {dtype} silently; give a NumPy array of one element of "
            "the dtype to accumulate in"
        )
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


@dataclass(frozen=True)
class Accumulation:
    """The types of a reduction or scan, and its operator for them."""

    source: np.dtype[Any]
    target: np.dtype[Any]
    accumulator: np.dtype[Any]
    operator: Operator
    has_init: bool

    @property
    def init(self) -> str | None:
        """The initial value's type as an option of the specialisation."""
        return self.accumulator.str if self.has_init else None


def accumulation(d_in: Any, d_out: Any, op: Op, h_init: Any) -> Accumulation:
    """Find out in which type items are accumulated, and what the operator means for it.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what reductions and scans take, or the types are not converted silently.
    """
    source = _arrays.dtype_of("d_in", d_in)
    target = _arrays.dtype_of("d_out", d_out)
    accumulator = accumulator_dtype(h_init, source)
    check_conversion("d_in", source, "the accumulator", accumulator)
    check_conversion("the accumulator", accumulator, "d_out", target)
    operator = resolve(op, (accumulator, accumulator), accumulator)
    return Accumulation(source, target, accumulator, operator, h_init is not None)


def same_dtype(name: str, array: Any, other: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return an array's dtype, or raise TypeError unless it is that of another."""
    found = _arrays.dtype_of(name, array)
    if found != dtype:
        raise TypeError(f"{name}: expected {dtype}, the dtype of {other}, got {found}")
    return found


def check_conversion(
    source_name: str, source: np.dtype[Any], target_name: str, target: np.dtype[Any]
) -> None:
    """Raise TypeError if items would be converted from float to integer or from complex to real."""
    if not convertible(source, target):
        raise TypeError(
            f"{source_name}: {source} is not converted to {target} of {target_name} silently; give h_init "
            "as a NumPy array of the dtype to accumulate in"
        )
