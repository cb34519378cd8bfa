"""Algorithm objects whose calls run on the CPU."""

from __future__ import annotations

import array
import functools
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._base.causes import EXPECTED, NumbaType, without_own_frames
from .._base.device import within_cpu_call
from .._base.errors import ArgumentValueError
from .._call.algorithm import Algorithm
from .._device import arrays
from .._ir.iterator import capacity_of
from .._jobs.threads import cores
from .._kernels.segments import SegmentsProblem
from . import bit_sorts, offsets
from .schedules import Part, Schedule, is_gathered, is_listed, is_numpys, schedule
from .threads import in_threads

if TYPE_CHECKING:
    from .code import CpuCode

_PART, _OTHERS = struct.Struct(f"{len(Part._fields)}q"), Part._fields.index("others")
_GROUPS = 16  # of parts, at least, that a thread does before it looks for others and for interrupts
_SMALL = 1 << 17  # items that one thread does sooner than it asks others


class CpuAlgorithm(Algorithm, uses={}):
    """An algorithm for the CPU: its calls are done when they return."""

    _cpu_reader: Callable[..., tuple[Any, ...]] | None = None
    _last: tuple[Any, Schedule | None] = None, None  # a problem and its schedule

    def _read(self, arguments: tuple[Any, ...], lend: arrays.Lend) -> tuple[Any, ...]:
        """Check the arguments of a call; return its problem and its values.

        `lend` is called with objects that must live as long as these are used.
        """
        reader = self._cpu_reader
        if reader is None:
            reader = self._cpu_reader = self._call_reader(None)
        try:
            read = within_cpu_call(reader, arguments, lend)
            if self._is_listed and isinstance(read[0], SegmentsProblem):
                return within_cpu_call(self._with_capacities, read, arguments)
            return read
        except EXPECTED as error:
            raise without_own_frames(error)  # noqa: B904 - it is the same error

    @functools.cached_property
    def _is_listed(self) -> bool:
        return is_listed(self._spec)

    @functools.cached_property
    def _is_numpys(self) -> bool:
        return is_numpys(self._spec)

    def _schedule(self, problem: Any) -> Schedule:
        """Return the schedule of a problem; that of the last one is kept."""
        last, found = self._last
        if problem != last or found is None:
            found = schedule(self._spec, problem)
            self._last = problem, found
        return found

    def _with_capacities(self, read: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return `read` with the number of items that the arrays of segments have, to check offsets with."""
        of_input = of_output = capacity_of("d_in", arguments[0])
        if self._spec.algorithm != "segmented_reduce":
            of_output = capacity_of("d_out", arguments[1])
        return (offsets.SegmentOffsets._make((*read[0], of_input, of_output)), *read[1:])

    def _execute(self, temp_storage: Any, stream: Any, arguments: tuple[Any, ...]) -> int:
        lent: list[Any] = []
        read = self._read(arguments, lent.append)
        if temp_storage is None:
            return 1  # it allocates its own
        _, nbytes = within_cpu_call(arrays.storage, temp_storage)
        if nbytes < 1:
            raise ArgumentValueError("temp_storage", f"needs 1 bytes for this call, got {nbytes}")
        self._do(read)
        self._enqueued(arguments)
        return nbytes

    def values_of(self, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        lent: list[Any] = []
        read = self._read(arguments, lent.append)
        return None if lent else read

    def _call(self, stream: Any, values: tuple[Any, ...]) -> None:
        self._do(values)

    def _run(self, stream: Any, arguments: Any, read: tuple[Any, ...] | None = None) -> None:
        lent: list[Any] = []
        self._do(self._read(arguments, lent.append) if read is None else read)

    def _do(self, read: tuple[Any, ...]) -> None:
        try:
            if self._is_numpys:
                gather = self._gather if is_gathered(self._spec) else None
                bit_sorts.sort(self._spec, read[0], read[1:], gather)
                return
            run(self._built.code, self._schedule(read[0]), read[1:])  # type: ignore[arg-type]
        except EXPECTED as error:
            raise without_own_frames(error)  # noqa: B904 - it is the same error

    def _gather(self, values: Sequence[Any], places: Any, targets: Any) -> None:
        """Write the values at some places to others."""
        numbers = places.ctypes.data, targets.ctypes.data
        gathers = Schedule([[Part(0, 0, len(places), 0)]], numbers=numbers)
        run(self._built.code, gathers, values)  # type: ignore[arg-type]

    @NumbaType
    def _numba_type_(self) -> Any:
        """Raise TypeError: compiled host code runs algorithms of a GPU alone."""
        raise TypeError(f"compiled host code cannot take this: {type(self).__name__} is for the CPU")

    def cubin(self) -> bytes:
        """Raise ValueError: a build for the CPU has no GPU code."""
        return self._built.code.cubin()

    def load(self) -> None:
        """Load the code, so that no call waits for that."""
        if not self._is_numpys or is_gathered(self._spec):
            self._built.code.function()  # type: ignore[attr-defined]

    def bind(self, *arguments: Any, stream: Any = None, **named: Any) -> Any:
        """Check and keep the arguments of a call, to make it again and again."""
        return CpuBound(self, arguments, named)


class CpuBound:
    """A call of an algorithm for the CPU with everything bound; see `Bound`."""

    def __init__(self, algorithm: CpuAlgorithm, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        self._algorithm, self._is_closed = algorithm, False
        self._values: tuple[Any, ...] = ()
        self._kept: Any = None  # the arrays
        self.rebind(*arguments, **named)

    def __call__(self) -> None:
        """Make the call again."""
        if self._is_closed:
            raise ValueError("this bound call is closed, or to bind it failed")
        self._algorithm._do(self._values)

    def rebind(self, *arguments: Any, **named: Any) -> None:
        """Bind other arguments, in the order of `Algorithm.run`."""
        if self._is_closed:
            raise ValueError("this bound call is closed")
        every = self._algorithm.completed(arguments, named)
        lent: list[Any] = []
        read = self._algorithm._read(every, lent.append)
        captured = within_cpu_call(self._algorithm._captured_arrays, (*arguments, *named.values()))
        self._kept = every, captured, lent
        self._values = read
        self._algorithm._enqueued(every)

    def close(self) -> None:
        """Release its arrays. It cannot be called afterwards."""
        self._is_closed, self._kept, self._values = True, None, ()

    def __enter__(self) -> CpuBound:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a bound call cannot be copied or pickled: its arrays are its own")


@functools.cache
def class_of(kind: Any) -> Any:
    """Return the class of an algorithm's objects for the CPU: a subclass of its own class and `CpuAlgorithm`.

    `run` is that of its own class, and calls `_run` or `_execute`, which are those of `CpuAlgorithm`.
    """
    names = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__qualname__": kind.__qualname__}
    declared = {"family": kind._family, "uses": kind._uses, "buffers": kind._buffers}
    declared |= {"any_order": kind._any_order, "rows": kind._rows, "disjoint_outputs": kind._disjoint_outputs}
    return type(kind)(kind.__name__, (kind, CpuAlgorithm), names, **declared)


# --- Running a schedule ----------------------------------------------------------------------------------


def run(code: CpuCode, schedule: Schedule, values: Sequence[Any]) -> None:
    """Run a schedule. `values` are addresses, and bytes, whose address the compiled function gets.

    An operator that raises ends it.
    """
    function = code.function()
    held = [value if isinstance(value, int) else array.array("B", value) for value in values]
    storage = np.empty(schedule.nbytes, np.uint8)
    start = storage.__array_interface__["data"][0] if schedule.nbytes else 0
    words = [value if isinstance(value, int) else value.buffer_info()[0] for value in held]
    words += [start + each for each in schedule.columns]
    words += schedule.numbers
    common = array.array("q", words).tobytes()  # what follows the parameters of each part

    def do(parts: Sequence[Part]) -> None:
        given = array.array("q", common.join((*[_PART.pack(*part) for part in parts], b"")))
        given[_OTHERS], given[_OTHERS + 1] = len(parts) - 1, 8 * len(given) // len(parts)
        failed = function(given.buffer_info()[0])
        if failed:
            raise code.fault(failed, given[0], given[1])

    steps, is_small = schedule.steps, schedule.size < _SMALL
    if is_small and schedule.check is None:
        steps = [[part for step in steps for part in step]]
    for step in filter(None, steps):
        if is_small or len(step) == 1:
            do(step)
        else:
            size = -(-len(step) // max(_GROUPS, 4 * cores()))
            in_threads(do, [step[i : i + size] for i in range(0, len(step), size)], len(step))
        if schedule.check is not None and step is schedule.steps[0]:
            schedule.check(storage[schedule.columns[-1] :].view(np.int64), len(step))
