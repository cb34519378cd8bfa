"""Functions that CPU algorithms are written with: to access arguments, operators, columns and parameters."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from typing import Any

import numpy as np

from .._base.generated import define
from .._ir.nodes import Argument
from .._ir.specialisation import Specialisation
from . import offsets
from .iterators import functions_of
from .operators import function_of
from .schedules import FIRST_VALUE, WORDS, Part, phase_spec_of
from .values import Place, cast_to, constant, inlined, integer, memory

Phases = tuple[Callable[[Any], None], ...]  # a function of the parameters for each

WORD = np.dtype(np.int64)

phase, begin, end, number, size, middle, high = (integer(Place(8 * i)) for i in range(len(Part._fields)))
low = size


class Kit:
    """The functions of a specialisation's arguments, operators, columns and numbers.

    All take the parameters of a call, words of 8 bytes: those of a `Part`, the values of the call as
    `Specialisation.value_names` lists them (addresses of arrays, or of other values), the addresses of
    columns, and the plan's numbers.
    """

    def __init__(self, spec: Specialisation) -> None:
        self.spec = spec
        self.arguments: dict[str, Argument] = {each.name: each for each in spec.arguments}
        execution, names = phase_spec_of(spec), spec.value_names(spec.algorithm_class._uses)
        self._words = {name: 8 * (FIRST_VALUE + i) for i, name in enumerate(names)}
        first = FIRST_VALUE + len(names)
        columns = enumerate(execution.columns)
        self.columns = [(self._dtype(each), Place(8 * (first + i))) for i, each in columns]
        self.numbers = [Place(8 * (first + len(execution.columns) + i)) for i in range(execution.numbers)]

    def _dtype(self, column: str) -> np.dtype[Any]:
        if column in WORDS:
            return WORD
        return self.accumulator if column == "total" else self.arguments[column].value

    @property
    def accumulator(self) -> np.dtype[Any]:
        """The dtype in which items are accumulated."""
        return self.spec.operators[0][1].output

    @property
    def has_init(self) -> bool:
        """Whether calls have an initial value."""
        return self.spec.option("init") is not None

    def place(self, name: str) -> Place:
        """Return where an array's address is, or an iterator's state."""
        word = self._words.get(name, 0)  # a discarded output, which is no parameter, reads none
        return Place(word) if self.arguments[name].is_pointer else Place(word, 0)

    def read(self, name: str) -> Any:
        """Return ``read(p, index)`` of an argument."""
        return functions_of(self.arguments[name].node, self.place(name))[0]

    def write(self, name: str) -> Any:
        """Return ``write(p, index, value)`` of an argument."""
        return functions_of(self.arguments[name].node, self.place(name))[1]

    def items(self, name: str) -> Any:
        """Return ``read(p, index)``, of an argument's items as they are accumulated."""
        read, cast = self.read(name), cast_to(self.accumulator)
        if self.arguments[name].value == self.accumulator:
            return read
        return inlined(lambda p, i: cast(read(p, i)))

    def column(self, i: int) -> tuple[Any, Any]:
        """Return ``load(p, index)`` and ``store(p, index, value)`` of a column of the temporary storage."""
        return memory(*self.columns[i])

    def operator(self, name: str) -> Any:
        """Return ``operator(p, a, …)``."""
        word = self._words.get(name)
        return function_of(dict(self.spec.operators)[name], None if word is None else Place(word, 0))

    def initial(self) -> Any:
        """Return ``initial(p)``, the initial value."""
        return constant(self.accumulator, Place(self._words["init"], 0))

    def begun(self, op: Any) -> Any:
        """Return ``begun(p, value)``: the prefix before a first value, and the total with it."""
        if not self.has_init:
            return inlined(lambda p, value: (value, value))
        initial = self.initial()
        return inlined(lambda p, value: (initial(p), op(p, initial(p), value)))

    def bounds(self) -> Any:
        """Return ``bounds(p, segment)``: where a segment begins and ends."""
        if "start_offsets_in" not in self.arguments:
            size = integer(self.numbers[0])
            return inlined(lambda p, i: (i * size(p), (i + 1) * size(p)))
        start, stop = self.read("start_offsets_in"), self.read("end_offsets_in")
        return inlined(lambda p, i: (np.int64(start(p, i)), np.int64(stop(p, i))))

    def segments(self, each: Callable[..., None]) -> Phases:
        """Return the phases that call a function for each segment; the first one checks offsets, if given."""
        phases = mapped(each)
        return phases if "start_offsets_in" not in self.arguments else (self._check(), *phases)

    def _check(self) -> Callable[[Any], None]:
        """Return the phase that looks for a segment whose items are not there."""
        bounds, (_, store) = self.bounds(), self.column(-1)
        room, room_out = map(integer, self.numbers[1:])
        out = self.read("start_offsets_out") if "start_offsets_out" in self.arguments else None
        if out is None:
            begins = inlined(lambda p, i, low: low)
        else:
            begins = inlined(lambda p, i, low: np.int64(out(p, i)))
        beyond_output = offsets.BEYOND_OUTPUT if out is None else offsets.OUTPUT_BEYOND
        before, beyond, output_before = offsets.BEFORE, offsets.BEYOND, offsets.OUTPUT_BEFORE
        has_outputs, words = out is not None, offsets.WORDS

        def check(p: Any) -> None:
            found, what, value = -1, 0, 0
            for i in range(begin(p), end(p)):
                low, high = bounds(p, i)
                if low < high:
                    to = begins(p, i, low)
                    if low < 0:
                        found, what, value = i, before, low
                    elif high > room(p):
                        found, what, value = i, beyond, high
                    elif to < 0:
                        found, what, value = i, output_before, to
                    elif high - low > room_out(p) - to:
                        found, what, value = i, beyond_output, to if has_outputs else high
                if found >= 0:
                    break
            store(p, words * number(p), found)
            store(p, words * number(p) + 1, what)
            store(p, words * number(p) + 2, value)

        return check


def mapped(each: Callable[..., None]) -> Phases:
    """Return the phase that calls a function for each index of a part."""
    do = inlined(each)

    def run(p: Any) -> None:
        for i in range(begin(p), end(p)):
            do(p, i)

    return (run,)


_RUN = """
def run(p):
    {lines}
"""


def whole(spec: Specialisation) -> Callable[[Any], None]:
    """Return the function to compile, which runs one phase of a specialisation: the one that a part names."""
    phases: Phases = pkgutil.resolve_name(f"{__package__}.{phase_spec_of(spec).made_by}")(Kit(spec))
    names: dict[str, Any] = {f"phase{i}": inlined(each) for i, each in enumerate(phases)}
    names["phase"] = phase
    lines = [f"if phase(p) == {i}:\n    phase{i}(p)" for i in range(len(phases))]
    return define(spec.algorithm, "run", _RUN, names, lines=lines)  # type: ignore[no-any-return]
