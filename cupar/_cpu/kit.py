"""Functions that CPU algorithms are written with: to access arguments, operators, columns and parameters."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from typing import Any

import numpy as np

from .._base.generated import define
from .._ir.nodes import Argument
from .._ir.specialisation import Specialisation
from .._numba_cpu import types
from ..operators import OpKind
from . import offsets
from .iterators import functions_of
from .operators import extreme_of, function_of
from .schedules import FIRST_VALUE, WORDS, Part, phase_spec_of
from .templates import Abstract, Filling, Template, symbol, template_of
from .values import Place, cast_to, constant, fixed, inlined, integer, memory, outlined, value_of

Phases = tuple[Callable[[Any], None], ...]  # a function of the parameters for each

WORD = np.dtype(np.int64)
# Kinds whose results of integers do not depend on grouping or order.
_REGROUPED = {
    *(OpKind.PLUS, OpKind.MULTIPLIES, OpKind.MINIMUM, OpKind.MAXIMUM),
    *(OpKind.BIT_AND, OpKind.BIT_OR, OpKind.BIT_XOR, OpKind.LOGICAL_AND, OpKind.LOGICAL_OR),
}
_TOTAL = "total"  # the role of values that are accumulated

phase, begin, end, number, size, middle, high, *_ = (integer(Place(8 * i)) for i in range(len(Part._fields)))
low = size


class Kit:
    """The functions of a specialisation's arguments, operators, columns and numbers.

    All take the parameters of a call, words of 8 bytes: those of a `Part`, the values of the call as
    `Specialisation.value_names` lists them (addresses of arrays, or of other values), the addresses of
    columns, and the schedule's numbers.
    """

    def __init__(self, spec: Specialisation) -> None:
        self.spec = spec
        self.functions: dict[str, Callable[[], Any]] = {}  # what makes those that are open, by their names
        self.arguments: dict[str, Argument] = {each.name: each for each in spec.arguments}
        declared, names = phase_spec_of(spec), spec.value_names(spec.algorithm_class._uses)
        self._words = {name: 8 * (FIRST_VALUE + i) for i, name in enumerate(names)}
        first = FIRST_VALUE + len(names)
        self._columns = declared.columns
        columns = enumerate(self._columns)
        self.columns = [(self._dtype(each), Place(8 * (first + i))) for i, each in columns]
        self.numbers = [Place(8 * (first + len(declared.columns) + i)) for i in range(declared.numbers)]

    def _dtype(self, column: str) -> np.dtype[Any]:
        if column in WORDS:
            return WORD
        return self.dtype_of(_TOTAL if column == "totals" else column)

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

    def dtype_of(self, role: str) -> np.dtype[Any]:
        """Return the dtype of the values of a role: items of an argument, or `accumulator`."""
        return self.accumulator if role == _TOTAL else self.arguments[role].value

    def _open(self, name: str, result: Any, arity: int, make: Callable[[], Any]) -> Any:
        """Return a function that a template leaves open, and note what makes it."""
        self.functions[name] = make
        return symbol(name, result, arity)

    def read(self, name: str, role: str = "") -> Any:
        """Return ``read(p, index)`` of an argument, in the role of another one if that is given."""
        return self._open(f"read {name}", Abstract(role or name), 2, lambda: self.exact(name)[0])

    def write(self, name: str) -> Any:
        """Return ``write(p, index, value)`` of an argument."""
        return self._open(f"write {name}", types.void, 3, lambda: self.exact(name)[1])

    def exact(self, name: str) -> Any:
        """Return both functions of an argument, with its own types."""
        return functions_of(self.arguments[name].node, self.place(name))

    def offset(self, name: str) -> Any:
        """Return ``read(p, index)`` of an argument of offsets."""

        def make() -> Any:
            read = self.exact(name)[0]
            return inlined(lambda p, i: np.int64(read(p, i)))

        return self._open(f"offset {name}", types.int64, 2, make)

    def items(self, name: str) -> Any:
        """Return ``read(p, index)``, of an argument's items as they are accumulated."""

        def make() -> Any:
            read, cast = self.exact(name)[0], cast_to(self.accumulator)
            if self.arguments[name].value == self.accumulator:
                return read
            return inlined(lambda p, i: cast(read(p, i)))

        return self._open(f"items {name}", Abstract(_TOTAL), 2, make)

    def memory(self, name: str) -> tuple[Any, Any]:
        """Return ``load(array, index)`` and ``store(array, index, value)`` of an argument's items."""
        return self._memory(name, name, None)

    def column(self, i: int) -> tuple[Any, Any]:
        """Return ``load(p, index)`` and ``store(p, index, value)`` of a column of the temporary storage."""
        i %= len(self.columns)
        name, (_, place) = self._columns[i], self.columns[i]
        if name in WORDS:
            return memory(WORD, place)
        return self._memory(f"column {i}", _TOTAL if name == "totals" else name, place)

    def _memory(self, name: str, role: str, place: Place | None) -> tuple[Any, Any]:
        def functions() -> tuple[Any, Any]:
            return memory(self.dtype_of(role), place)

        return (
            self._open(f"load {name}", Abstract(role), 2, lambda: functions()[0]),
            self._open(f"store {name}", types.void, 3, lambda: functions()[1]),
        )

    def operator(self, name: str, result: Any = Abstract(_TOTAL)) -> Any:  # noqa: B008 - types do not change
        """Return ``operator(p, a, …)``."""
        op = dict(self.spec.operators)[name]
        return self._open(name, result, 1 + len(op.inputs), lambda: function_of(op, self._state(name)))

    def _state(self, name: str) -> Place | None:
        """Return the place of an operator's state."""
        word = self._words.get(name)
        return None if word is None else Place(word, 0)

    def predicate(self, name: str) -> Any:
        """Return ``predicate(p, a, …)``, an operator that says whether something holds."""
        return self.operator(name, types.boolean)

    def regroups(self, name: str) -> tuple[Any, Any]:
        """Return ``regroups(p)``, whether an operator gives the same in any order, and the operator for that.

        LLVM then combines as many items at once as the CPU can.
        """
        op = dict(self.spec.operators)[name]
        extreme = extreme_of(op)
        is_exact = op.kind in _REGROUPED and {each.kind for each in (*op.inputs, op.output)} <= {*"biu"}
        holds = fixed(int(is_exact or extreme is not None))
        regrouped = lambda: extreme or function_of(op, self._state(name))  # noqa: E731
        return (
            self._open(f"regroups {name}", types.int64, 1, lambda: holds),
            self._open(f"regrouped {name}", Abstract(_TOTAL), 3, regrouped),
        )

    def initial(self) -> Any:
        """Return ``initial(p)``, the initial value."""
        place = Place(self._words["init"], 0)
        return self._open("initial", Abstract(_TOTAL), 1, lambda: constant(self.accumulator, place))

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
        start, stop = self.offset("start_offsets_in"), self.offset("end_offsets_in")

        def listed(p: Any, i: Any) -> Any:
            low, high = start(p, i), stop(p, i)
            return low, high if low < high else low  # the number of a range that ends before wraps around

        return inlined(listed)

    def segments(self, each: Callable[..., None]) -> Phases:
        """Return the phases that call a function for each segment; the first one checks offsets, if given."""
        phases = mapped(each)
        return phases if "start_offsets_in" not in self.arguments else self.listed(*phases)

    def listed(self, *phases: Callable[[Any], None]) -> Phases:
        """Return phases behind one that checks the offsets of segments."""
        return (self._check(), *phases)

    def _check(self) -> Callable[[Any], None]:
        """Return the phase that looks for a segment whose items are not there."""
        bounds, (_, store) = self.bounds(), self.column(-1)
        capacity, capacity_out = map(integer, self.numbers[1:])
        out = self.offset("start_offsets_out") if "start_offsets_out" in self.arguments else None
        begins = inlined(lambda p, i, low: low) if out is None else inlined(lambda p, i, low: out(p, i))
        if out is None and self.spec.algorithm == "segmented_copy":  # one after another, as far as they fit
            capacity_out, begins = inlined(lambda p: 2**63 - 1), inlined(lambda p, i, low: 0)
        beyond_output = offsets.BEYOND_OUTPUT if out is None else offsets.OUTPUT_BEYOND
        before, beyond, output_before = offsets.BEFORE, offsets.BEYOND, offsets.OUTPUT_BEFORE
        has_outputs, words = out is not None, offsets.WORDS
        # An end that int64 does not hold is read as a negative number, and its segment would have no items.
        stop, may_wrap = self.offset("end_offsets_in"), self.arguments["end_offsets_in"].value == np.uint64

        def check(p: Any) -> None:
            found, what, value = -1, 0, 0
            for i in range(begin(p), end(p)):
                low, high = bounds(p, i)
                if may_wrap and low >= 0 and stop(p, i) < 0:
                    found, what, value = i, beyond, stop(p, i)
                elif low < high:
                    to = begins(p, i, low)
                    if low < 0:
                        found, what, value = i, before, low
                    elif high > capacity(p):
                        found, what, value = i, beyond, high
                    elif to < 0:
                        found, what, value = i, output_before, to
                    elif high - low > capacity_out(p) - to:
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


def whole(spec: Specialisation) -> tuple[Template, Filling]:
    """Return the code that runs one phase of a specialisation, and what fills it.

    A part names the phase.
    """
    kit = Kit(spec)
    phases: Phases = pkgutil.resolve_name(f"{__package__}.{phase_spec_of(spec).made_by}")(kit)
    names: dict[str, Any] = {f"phase{i}": inlined(each) for i, each in enumerate(phases)}
    names["phase"] = phase
    lines = [f"if phase(p) == {i}:\n    phase{i}(p)" for i in range(len(phases))]
    run = outlined(define(spec.algorithm, "run", _RUN, names, lines=lines))
    return template_of(run), Filling(lambda role: value_of(kit.dtype_of(role)).kind, kit.functions)
