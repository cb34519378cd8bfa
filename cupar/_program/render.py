"""Writes a trace as straight Python: a function of the arrays of a call and of its operators."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import _pytorch
from .._arguments.tokens import Match
from .._base import device
from .._base.data import Recent
from .._base.generated import define, fill
from .._base.sizes import is_size, level_of, text_of
from .._device import driver, peers
from .._device.readers import TORCH
from .memory import LibraryArray
from .reads import PINNED_BYTES, reader, take
from .trace import (
    Allocate,
    CannotTraceError,
    Copied,
    Copy,
    Define,
    Guard,
    Launch,
    Line,
    Read,
    Trace,
    texts_of,
)

ALIGNMENT = 256  # of temporaries
_BYTES = np.dtype(np.uint8)


GUARD_FAILED = object()  # the result of a program whose guards do not hold


class Program(NamedTuple):
    """A program of calls with one key.

    Attributes
    ----------
    run : callable
        Takes the arrays of a call, with the numbers that vary behind them, and its operators. Returns the
        result; GUARD_FAILED, if a guard does not hold, or an operator reads other values; None, if something
        is wrong, which the general path says.
    body : str
        Its lines, in which these are `values` and `operators`.
    names : dict
        The values that the lines name.
    """

    run: Callable[[list[Any], Any], Any]
    body: str
    names: dict[str, Any]


_BODY = """
{checks}
try:
    {lines}
except Exception:  # the general path raises the error, if there is one
    return None
return {result}
"""
_PROGRAM = """
def program(values, operators):
    {body}
"""
_ATTEMPT = """
def attempt(given):
    if len(given) != {number}:
        return None
    ({values}) = given
    if not ({identities}):
        return None
    {lists}
    if not ({condition}):
        return None
    {body}
"""
_TRY = """
result = _program_{k}(values, operators)
if result is not _guard_failed:
    return result
"""


def attempts(match: Match, programs: Sequence[Program]) -> Callable[[tuple[Any, ...]], Any]:
    """Return the function that makes calls whose arguments match by one of some programs.

    It returns None for others, and if no program makes a call.
    """
    names = {**match.names, "_guard_failed": None}
    if len(programs) == 1:  # within the same function
        body = [programs[0].body]
        names = {**programs[0].names, **names}
    else:
        body = [fill(_TRY, k=k) for k in range(len(programs))]
        names.update({f"_program_{k}": each.run for k, each in enumerate(programs)})
        names["_guard_failed"] = GUARD_FAILED
    found: Callable[[tuple[Any, ...]], Any] = define(
        "attempt",
        "attempt",
        _ATTEMPT,
        names,
        number=match.number,
        values=match.values,
        lists=match.lists,
        identities=match.identities,
        condition=match.condition,
        body=body,
    )
    return found


def rendered(trace: Trace, result: Any, checks: Sequence[Callable[[Any], bool]]) -> Program:
    """Return the program of a trace.

    Parameters
    ----------
    trace : Trace
    result : object
        Arrays as `LibraryArray`, or tuples of such.
    checks : sequence of callable
        Take the operators, each its own, and return whether it reads what it has read; or the bytes of its
        numbers that are arguments, None if it reads something else.
    """
    names = trace.names
    found: list[LibraryArray] = []
    shown = _shown(result, found, names)
    texts = _Lines(trace, {_variable(each.text) for each in found})
    lines = [*_inputs(trace), *texts.written()]
    names["_guard_failed"] = GUARD_FAILED
    names["_refused"] = device.refuses_host if trace.library.on_cpu else device.is_cpu
    names.update([(f"_check_{i}", check) for i, check in enumerate(checks)])
    changed = " or ".join([f"not (w_{i} := _check_{i}(operators[{i}]))" for i in range(len(checks))])
    body = fill(
        _BODY,
        checks=["if _refused(): return None", *[f"if {changed}: return _guard_failed"] * bool(checks)],
        lines=_needed(lines, shown),
        result=shown,
    )
    return Program(define("program", "program", _PROGRAM, names, body=[body]), body, names)


def _shown(result: Any, found: list[LibraryArray], names: dict[str, Any]) -> str:
    """Return the expression for a result, whose arrays are appended to `found`; tuples may hold None."""
    if isinstance(result, tuple):
        items = "".join(["None, " if each is None else f"{_shown(each, found, names)}, " for each in result])
        if type(result) is tuple:
            return f"({items})"
        names[name := f"_class_{len(names)}"] = type(result)
        return f"{name}({items})"
    if not isinstance(result, LibraryArray) or _variable(result.text) in names:
        raise CannotTraceError("a result that is no array, or one that all calls share")
    found.append(result)
    return result.text


def _variable(text: str) -> str:
    return text.partition("[")[0]


def _inputs(trace: Trace) -> list[str]:
    """Return the lines that read the arrays of a call."""
    names = [*[f"x_{i}" for i in range(len(trace.given))], *[each.text for each in trace.numbers]]
    lines = [f"({''.join([f'{each}, ' for each in names])}) = values"]
    # NumPy has other dtypes for integers beyond.
    integers = [each.text for each in trace.numbers if isinstance(each.value, int)]
    lines += [f"if not {-(2**63)} <= {each} < {2**63}: return None" for each in integers]
    if TORCH in trace.syntaxes:  # the general path refuses tensors that PyTorch traces
        trace.names.update(
            _modes=_pytorch.len_torch_dispatch_stack,
            _is_traced=_pytorch.is_jit_tracing,
            _is_transformed=_pytorch.are_functorch_transforms_active,
        )
        lines.append("if _modes() or _is_traced() or _is_transformed(): return None")
    for i, (x, syntax) in enumerate(zip(trace.given, trace.syntaxes, strict=True)):
        if trace.first_of(x) != i:  # a guard says that it is the other one
            continue
        if syntax is TORCH:  # one may be conjugated or negated as it is read
            is_pending = f"x_{i}.is_neg()" + f" or x_{i}.is_conj()" * x.is_complex()
            lines.append(f"if x_{i}.requires_grad or {is_pending}: return None")
        if x.ndim:
            lines.append(f"({''.join([f's_{i}_{axis}, ' for axis in range(x.ndim)])}) = x_{i}.shape")
        if i in trace.strided:
            lines.append(f"(t_{i}, ) = {syntax.strides}".replace("{v}", f"x_{i}"))
        lines.append(f"a_{i} = {syntax.address}".replace("{v}", f"x_{i}"))
        if syntax is TORCH:  # which has tensors without memory, and makes them within FakeTensorMode
            lines.append(f"if not a_{i}: return None")
        if not trace.library.on_cpu and driver.has_several_devices:
            trace.names["_check_memory"] = peers.check_memory
            lines.append(f'_check_memory("x", a_{i})')
    return lines


class _Lines:
    """Writes the lines of a trace: those of each level first that need no address of it."""

    def __init__(self, trace: Trace, results: set[str]) -> None:
        self._trace, self._results, self._names = trace, results, trace.names
        self._first, self._syntax = trace.given[0], trace.syntaxes[0]
        self._temporaries = 0
        self._pinned: set[int] = set()  # temporaries to which kernels write what is read
        self._scalars: dict[np.dtype[Any], Any] = {}  # arrays without dimensions, after which others are made

    def written(self) -> list[str]:
        """Return the lines, with a name for each value."""
        self._names["_stream"] = self._trace.library.stream
        stages: list[list[Line]] = [[]]
        for line in self._trace.lines:
            stages[-1].append(line)
            if isinstance(line, Read):
                stages.append([])
        if not self._trace.library.on_cpu:
            self._pinned = _pinned(stages, self._results)
        lines: list[str] = []
        for k, stage in enumerate(stages):
            # A read ends a stage. What was defined in a later one of earlier sizes alone is known before.
            early = [
                each
                for one in stages[k:]
                for each in one
                if isinstance(each, (Define, Guard)) and each.level == 2 * k
            ]
            lines += _plain(early)
            if k == 0:
                lines.append("stream = _stream()")
            lines += self._stage([each for each in stage if not self._is_early(each)], k)
        return lines

    def _is_early(self, line: Line) -> bool:
        return isinstance(line, (Define, Guard)) and line.level % 2 == 0

    def _stage(self, stage: list[Line], k: int) -> list[str]:
        """Return the lines of a stage: first its arrays, temporaries in one block."""
        lines: list[str] = []
        first = [each for each in stage if isinstance(each, Allocate) and level_of(*each.shape) <= 2 * k]
        own = [each for each in first if f"r_{each.number}" in self._results]
        lines += [line for each in own for line in self._allocated(each)]
        others = [each for each in first if f"r_{each.number}" not in self._results]
        lines += self._block([each for each in others if each.number not in self._pinned])
        for one in others:
            if one.number in self._pinned:
                self._names["_take"] = take
                lines += [f"p_{one.number} = _take(stream)", f"b_{one.number} = p_{one.number}[0]"]
        launches: list[Launch] = []
        for each in stage:
            if isinstance(each, Allocate) and each in first:
                continue
            if isinstance(each, Launch):
                launches.append(each)
                continue
            if not isinstance(each, (Define, Allocate)):
                lines += self._launched(launches)
                launches = []
            if isinstance(each, Allocate):
                lines += self._allocated(each)
            elif isinstance(each, Copied):
                name = f"_{each.method}"
                self._names[name] = getattr(self._trace.library, each.method)
                lines.append(f"r_{each.number} = {name}({each.source})")
                lines += self._addressed(each.number)
            elif isinstance(each, Copy):
                lines.append(f"_copy({each.target}, {each.source}, {each.nbytes}, stream)")
            elif isinstance(each, Read):
                array = _number_of(each)
                is_pinned = array in self._pinned
                name = self._trace.keep(reader(self._trace.library, each.dtype, each.items, is_pinned))
                targets = "".join([f"c_{each.number + i}, " for i in range(each.items)])
                lines.append(f"{targets}= {name}({f'p_{array}' if is_pinned else each.address}, stream)")
            else:
                lines += _plain([each])
        return [*lines, *self._launched(launches)]

    def _addressed(self, index: int | str) -> list[str]:
        lines = [f"b_{index} = {self._syntax.address}".replace("{v}", f"r_{index}")]
        if self._syntax is TORCH:  # within FakeTensorMode it has no memory
            lines.append(f"if not b_{index} and r_{index}.numel(): return None")
        return lines

    def _allocated(self, each: Allocate) -> list[str]:
        made = self._made(_shape(each.shape), each.dtype)
        return [f"r_{each.number} = {made}", *self._addressed(each.number)]

    def _made(self, shape: str, dtype: np.dtype[Any]) -> str:
        """Return the expression for a new array."""
        own = self._trace.library.like(self._first, dtype)
        if own is None:
            return f"{self._trace.keep(self._trace.library.maker(dtype))}({shape})"
        if shape != "()" and own is self._first.dtype:
            like = "x_0"
        else:  # a dtype by name takes half as long again
            scalar = self._scalars.setdefault(dtype, self._trace.library.empty((), dtype))
            like = self._trace.keep(scalar)
        if shape == "()":  # as quick as of a length, which `new_empty` of an empty tuple is not
            self._names["_empty_like"] = self._trace.library.empty_like
            return f"_empty_like({like})"
        extents = shape.strip("()") if shape[:1] == "(" and ", )" in shape else shape
        return f"{like}.new_empty({extents})"

    def _block(self, temporaries: list[Allocate]) -> list[str]:
        """Return the lines for temporaries in one block of memory."""
        if not temporaries:
            return []
        index = f"t{self._temporaries}"
        self._temporaries += 1
        ends: list[str] = []
        fixed, behind = 0, ""
        places = []
        for each in temporaries:
            places.append(f"{fixed}{behind}")
            nbytes = " * ".join([*map(text_of, each.shape), str(each.dtype.itemsize)])
            if True in map(is_size, each.shape):
                name = f"e_{each.number}"
                ends.append(f"{name} = {nbytes} + {ALIGNMENT - 1} & -{ALIGNMENT}")
                behind += f" + {name}"
            else:
                fixed += -(-math.prod(each.shape) * each.dtype.itemsize // ALIGNMENT) * ALIGNMENT
        lines = [*ends, f"r_{index} = {self._made(f'{fixed}{behind}', _BYTES)}", *self._addressed(index)]
        for each, place in zip(temporaries, places, strict=True):
            lines.append(f"b_{each.number} = b_{index} + {place}")
        return lines

    def _launched(self, launches: list[Launch]) -> list[str]:
        """Return the lines that run algorithms: several on a GPU as one, where they repeat."""
        if len(launches) > 1 and not self._trace.library.on_cpu:
            name = self._trace.keep(Group(launches))
            problems = "".join([f"{each.problem}, " for each in launches])
            values = "".join([f"{one}, " for each in launches for one in each.values.values()])
            return [f"{name}(stream, ({problems}), (0, {values}))"]
        return [f"{self._trace.keep(each.caller())}(stream, {each.text()})" for each in launches]


def _pinned(stages: Sequence[Sequence[Line]], results: set[str]) -> set[int]:
    """Return the arrays that kernels may write to pinned memory: all that becomes of them is a read.

    To copy them there would take as long as a launch.
    """
    found: set[int] = set()
    for k, stage in enumerate(stages):
        number = _number_of(stage[-1]) if stage else None
        made = [each for each in stage if isinstance(each, Allocate) and each.number == number]
        if not made or f"r_{number}" in results or True in map(is_size, made[0].shape):
            continue
        names = {f"b_{number}"}
        for each in stage:
            if isinstance(each, Define) and not names.isdisjoint(_VARIABLE.findall(each.text)):
                names.add(each.name)
        others = [each for other in stages[k + 1 :] for each in other]
        others += [each for each in stage if isinstance(each, Copy)]  # of device memory alone
        later = [text for each in others for text in texts_of(each)]
        nbytes = math.prod(made[0].shape) * made[0].dtype.itemsize
        if nbytes <= PINNED_BYTES and names.isdisjoint(_VARIABLE.findall(" ".join(later))):
            found.add(made[0].number)
    return found


def _number_of(line: Line) -> int | None:
    """Return which array is read, by its address alone."""
    found = _ADDRESS.fullmatch(line.address) if isinstance(line, Read) else None
    return int(found[1]) if found is not None else None


def _shape(shape: tuple[Any, ...]) -> str:
    if len(shape) == 1:
        return text_of(shape[0])
    return f"({''.join([f'{text_of(each)}, ' for each in shape])})"


def _plain(lines: Iterable[Line]) -> list[str]:
    """Return the lines for sizes and guards; guards in a row are one condition."""
    found: list[str] = []
    conditions: list[str] = []
    for each in [*lines, None]:
        if isinstance(each, Guard):
            conditions.append(f"({each.text})" if "not " in each.text else each.text)
            continue
        if conditions:
            found.append(f"if {' or '.join(conditions)}: return _guard_failed")
            conditions = []
        if isinstance(each, Define):
            found.append(f"{each.name} = {each.text}")
    return found


_VARIABLE = re.compile(r"\b(?:n\d+|b_\w+|e_\d+|s_\d+_\d+)\b")
_ADDRESS = re.compile(r"b_(\d+)")
_ASSIGNED = re.compile(r"(n\d+|b_\d+) = ")


def _needed(lines: list[str], result: str) -> list[str]:
    """Return the lines without those that compute what no other line uses."""
    used = {*_VARIABLE.findall(result)}
    found: list[str] = []
    for line in reversed(lines):
        assigned = _ASSIGNED.match(line)
        if assigned is not None and assigned[1] not in used:
            continue
        used.update(_VARIABLE.findall(line))
        found.append(line)
    return found[::-1]


class Group:
    """Algorithms that a program runs one behind another: as one graph, where their problems repeat."""

    _MOST = 4  # lists of problems whose graphs are kept

    def __init__(self, launches: Sequence[Launch]) -> None:
        self._callers = [(each.caller(), len(each.values)) for each in launches]
        self._algorithms = [each.algorithm for each in launches]
        # The problems of the call before, and the caller of all as one: None until they repeat; False if they
        # are not to be joined.
        self._last: tuple[Any, Any] = None, None
        self._joined: Recent[Any, Any] = Recent(self._MOST)

    def __call__(self, stream: Any, problems: tuple[Any, ...], values: tuple[Any, ...]) -> None:
        """Enqueue their calls, given 0 and the values of all behind it."""
        before, joined = self._last  # as one, as another thread may be here
        if before != problems:
            joined = self._joined.find(problems)
            self._last = problems, joined
        elif joined is None:
            joined = self._joined[problems] = self._made(problems)
            self._last = problems, joined
        if joined:
            joined(stream, values)
            return
        end = 1
        for (call, count), problem in zip(self._callers, problems, strict=True):
            begin, end = end, end + count
            call(stream, (problem, *values[begin:end]))

    def _made(self, problems: tuple[Any, ...]) -> Any:
        """Return the caller of all as one; False if they are not to be joined."""
        if False in [each._built.faster is None for each in self._algorithms]:
            return False
        from .._call.joined import Joined

        made = Joined([*zip(self._algorithms, problems, strict=True)])
        return made.caller() if made.is_graph else False
