"""Measuring policies on a GPU: in turns with the default, the GPU busy while it is given its work.

Arguments are bound, so what a turn costs the host is a launch. Before each batch of calls the GPU is given
memory to write, for as long as the host needs to enqueue them; so the time between two events is the GPU's
alone.
"""

from __future__ import annotations

import copy
import ctypes
import math
import time
import weakref
from collections.abc import Callable
from ctypes import byref, c_float, c_size_t, c_uint, c_void_p
from typing import Any

import numpy as np

from .. import _cache, operators
from .._call.bound import Bound
from .._device import driver, storage
from .._ir.specialisation import Specialisation
from .._kernels.tuning import write
from .._obtain import obtain, produce
from ..reduce import reduce_into
from ..transform import binary_transform
from .policy_search import Policy
from .tune import FailedPolicyError, TurnTimes
from .workloads import TILE, Content, Workload, iterator, workloads

_BATCH_SECONDS = 3e-4  # of the GPU, at least, between two events
_MOST_CALLS = 64  # in a batch
_HOST_SECONDS = 1e-5  # that a launch takes at most, as a rule
_HUNG_SECONDS = 20.0
_SHARE = 0.5  # of the memory that is free
_WORD = np.dtype(np.uint64)
_TOLERANCE = 1e-3  # of floats whose sums were rounded differently


class DeviceError(RuntimeError):
    """The GPU does not answer any more, and nothing can be measured in this process."""


class DeviceArray:
    """Device memory that is freed with the object."""

    def __init__(self, dtype: np.dtype[Any], items: int) -> None:
        self.dtype, self.items = dtype, items
        self.nbytes = -(-max(items, 1) * dtype.itemsize // 16) * 16  # whole words, to be compared
        address = c_void_p()
        ask = driver.library().cuMemAlloc_v2
        storage.retry_after_trim(
            lambda: ask(byref(address), c_size_t(self.nbytes)), f"cuMemAlloc of {self.nbytes} bytes"
        )
        self.address = address.value or 0
        # By the driver that allocated it; not as the interpreter ends, when the driver may be gone.
        weakref.finalize(self, driver.library().cuMemFree_v2, c_void_p(self.address)).atexit = False
        self.clear()

    def clear(self) -> None:
        """Set all of it to zero."""
        driver.call("cuMemsetD8_v2", c_void_p(self.address), ctypes.c_ubyte(0), c_size_t(self.nbytes))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "typestr": self.dtype.str,
            **({"descr": self.dtype.descr} if self.dtype.names else {}),
            "shape": (self.items,),
            "strides": None,
            "data": (self.address, False),
            "version": 3,
        }

    def words(self) -> DeviceArray:
        """Return the same memory as an array of words, valid as long as this one lives."""
        found = copy.copy(self)
        found.dtype, found.items = _WORD, self.nbytes // _WORD.itemsize
        return found

    def fill(self, content: Content) -> None:
        """Copy a tile of items to the device, and repeat it there."""
        assert content.make is not None
        host = np.ascontiguousarray(
            content.make(content.items if content.whole else min(content.items, TILE))
        )
        size, total = host.nbytes, content.items * content.dtype.itemsize
        driver.call("cuMemcpyHtoD_v2", c_void_p(self.address), host.ctypes.data_as(c_void_p), c_size_t(size))
        while size < total:
            more = min(size, total - size)
            _copy(self.address + size, self.address, more)
            size += more

    def host(self) -> np.ndarray[Any, Any]:
        """Return a copy in host memory."""
        found = np.empty(self.items, self.dtype)
        driver.call(
            "cuMemcpyDtoH_v2", found.ctypes.data_as(c_void_p), c_void_p(self.address), c_size_t(found.nbytes)
        )
        return found


def _copy(to: int, source: int, nbytes: int) -> None:
    driver.call("cuMemcpyDtoD_v2", c_void_p(to), c_void_p(source), c_size_t(nbytes))


class _Set:
    """A problem in device memory, and the default policy's results."""

    def __init__(self, problem: Workload, default: Any) -> None:
        self.problem = problem
        # Arguments with the same content are one array.
        self.arrays: dict[str, DeviceArray] = {}
        for name, content in problem.arrays.items():
            self.arrays[name] = DeviceArray(content.dtype, content.items)
            if content.make is not None:
                self.arrays[name].fill(content)
        self.outputs = [name for name, content in problem.arrays.items() if content.make is None]
        self.default = self.bound(default)
        self.default()
        self.right = {}
        for name in self.outputs:
            array = self.arrays[name]
            self.right[name] = DeviceArray(array.dtype, array.items)
            _copy(self.right[name].address, array.address, array.nbytes)
        self.seconds = 0.0  # of one call with the default policy

    def bound(self, algorithm: Any) -> Bound:
        """Return an algorithm's call with all arguments."""
        others = dict(self.problem.others)
        if algorithm._spec.option("init") == "device":
            others["h_init"] = _on_device(others["h_init"])
        given: dict[str, Any] = {name: array for name, array in self.arrays.items() if "." not in name}
        for each in algorithm._spec.arguments:
            if each.name not in given:
                sizes = [n.items for name, n in self.arrays.items() if name.startswith(f"{each.name}.")]
                given[each.name] = iterator(each, self.arrays, sizes[0])
        bound: Bound = algorithm.bind(**given, **others)
        return bound

    def clear(self) -> None:
        """Set the outputs to zero."""
        for name in self.outputs:
            self.arrays[name].clear()


def _on_device(value: np.ndarray[Any, Any]) -> DeviceArray:
    found = DeviceArray(value.dtype, value.size)
    found.fill(Content(value.dtype, value.size, lambda count: value, True))
    return found


class GPU:
    """The current device, as a bench; see `tune.Bench`."""

    def __init__(
        self,
        spec: Specialisation,
        built: Callable[[Specialisation], _cache.FetchedEntry],
        items: int | None,
        segment_size: int | None,
    ) -> None:
        self.device = driver.current_device()
        self._spec, self._built = spec, built
        self._sets: list[_Set] = []
        free, total = c_size_t(), c_size_t()
        driver.call("cuMemGetInfo_v2", byref(free), byref(total))
        wanted = workloads(spec, items, segment_size, int(free.value * _SHARE))
        self._different = binary_transform(_WORD, _WORD, _WORD, operators.OpKind.BIT_XOR)
        self._any = reduce_into(_WORD, _WORD, operators.OpKind.BIT_OR, np.zeros(1, _WORD))
        self._found = DeviceArray(_WORD, 1)
        self._plug = _Plug()
        default = obtain.answer(spec, self.device)
        default.load()
        for problem in wanted:
            self._sets.append(_Set(problem, default))
        for each in self._sets:
            self._time([each.default] * 3, 1)
            each.seconds = min(self._time([each.default] * 5, 1))

    def turns(self, policy: Policy, number: int, is_final: bool) -> list[TurnTimes]:
        """Measure a policy in turns with the default, after its results have been compared."""
        try:
            algorithm = self._algorithm(policy)
            found = []
            for each in self._sets:
                if each.problem.is_guard and not is_final:
                    continue
                bound = each.bound(algorithm)
                self._check(each, bound)
                calls = max(1, min(_MOST_CALLS, math.ceil(_BATCH_SECONDS / max(each.seconds, 1e-7))))
                self._time([each.default, bound], calls)
                seconds = self._time([each.default, bound] * number, calls)
                found.append(TurnTimes(each.problem.name, seconds[::2], seconds[1::2]))
            return found
        except DeviceError:
            raise
        except (driver.DriverError, ValueError) as error:
            if driver.library().cuCtxSynchronize():  # the GPU does not respond any more
                raise DeviceError(f"{write(policy)}: {error}") from error
            raise FailedPolicyError(f"does not run: {error}") from None

    def _algorithm(self, policy: Policy) -> Any:
        spec = self._spec.with_policy(write(policy))
        try:
            found = self._built(spec)
        except FileNotFoundError as error:
            raise FailedPolicyError(str(error)) from None
        built = produce.produce(spec, self.device, found=found)
        algorithm: Any = spec.algorithm_class
        return algorithm(built, spec.states)

    def _time(self, turns: list[Bound], calls: int) -> list[float]:
        """Return the seconds of each: of one call, averaged over a batch."""
        pairs = [(_event(), _event()) for _ in turns]
        for bound, (begin, end) in zip(turns, pairs, strict=True):
            self._plug(calls * _HOST_SECONDS)
            _record(begin)
            for _ in range(calls):
                bound()
            _record(end)
        self._wait(pairs[-1][1])
        return [_seconds(begin, end) / calls for begin, end in pairs]

    def _wait(self, event: c_void_p) -> None:
        """Wait for an event; for a GPU that hangs, not for ever."""
        end = time.monotonic() + _HUNG_SECONDS
        while (status := driver.library().cuEventQuery(event)) == _NOT_READY:
            if time.monotonic() > end:
                raise DeviceError(f"a policy has not ended for {_HUNG_SECONDS:.0f} seconds")
            time.sleep(2e-4)
        driver.check(status, "cuEventQuery")

    def _check(self, each: _Set, bound: Bound) -> None:
        """Raise FailedPolicyError unless a policy's results are those of the default."""
        each.clear()
        end = _event()
        bound()
        _record(end)
        self._wait(end)
        driver.call("cuEventDestroy_v2", end)
        wrong = [name for name in each.outputs if self._differs(each.arrays[name], each.right[name])]
        if wrong:
            each.clear()
            bound()
            for name in wrong:
                _compare(name, each.arrays[name].host(), each.right[name].host(), each.problem.name)

    def _differs(self, found: DeviceArray, right: DeviceArray) -> bool:
        """Whether two arrays differ in a bit; the first one is overwritten."""
        words = found.nbytes // _WORD.itemsize
        self._different.run(found.words(), right.words(), found.words(), words)
        self._any.run(found.words(), self._found, words, np.zeros(1, _WORD))
        return bool(self._found.host()[0])


_NOT_READY = 600  # CUDA_ERROR_NOT_READY


def _event() -> c_void_p:
    event = c_void_p()
    driver.call("cuEventCreate", byref(event), c_uint(0))
    return event


def _record(event: c_void_p) -> None:
    driver.call("cuEventRecord", event, c_void_p(0))


def _seconds(begin: c_void_p, end: c_void_p) -> float:
    """Return the time between two events that have passed, and destroy them."""
    milliseconds = c_float()
    driver.call("cuEventElapsedTime", byref(milliseconds), begin, end)
    for event in (begin, end):
        driver.call("cuEventDestroy_v2", event)
    return milliseconds.value / 1e3


class _Plug:
    """Work for the GPU while the host enqueues a batch: memory to be written."""

    _BYTES = 1 << 27

    def __init__(self) -> None:
        self._array = DeviceArray(np.dtype(np.uint8), self._BYTES)
        begin, end = _event(), _event()
        self._write()
        _record(begin)
        for _ in range(16):
            self._write()
        _record(end)
        driver.call("cuEventSynchronize", end)
        self._seconds = max(_seconds(begin, end) / 16, 1e-6)

    def __call__(self, seconds: float) -> None:
        for _ in range(math.ceil(seconds / self._seconds)):
            self._write()

    def _write(self) -> None:
        address, zero, size = c_void_p(self._array.address), ctypes.c_ubyte(0), c_size_t(self._BYTES)
        driver.call("cuMemsetD8Async", address, zero, size, c_void_p(0))


def _compare(name: str, found: Any, right: Any, problem: str) -> None:
    """Raise FailedPolicyError unless results are equal, or, of floats, nearly equal."""
    if found.dtype.kind in "fc":
        scale = float(np.nanmax(np.abs(right), initial=0))
        is_right = np.allclose(found, right, _TOLERANCE, _TOLERANCE * scale, equal_nan=True)
    else:
        is_right = found.tobytes() == right.tobytes()
    if not is_right:
        places = np.flatnonzero(found != right)
        first = f", the first {places[0]}" if len(places) else ""
        raise FailedPolicyError(
            f"gives wrong results: {len(places)} items of {name} differ with {problem}{first}"
        )
