"""The function of a call that checks its arguments, written out for what it was built for.

It has no loop and, for CuPy's arrays and an initial value in a NumPy array, makes no other call: that is what
each call waits for.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any, ClassVar, Protocol

import numpy as np

from .. import structs
from .._base.generated import define
from .._device import arrays, driver, peers
from .._ir.iterator import state_of
from .._ir.operator import CapturedState
from .._ir.specialisation import Specialisation
from .numbers import initial_bytes, item_count
from .signatures import signature

State = Callable[[], bytes]

_SOURCE = """
def bind({given}):
    {checks}
    return {bound}
"""


class Caller(Protocol):
    """What is written out for: an algorithm object; see `Algorithm.__init_subclass__`."""

    _uses: ClassVar[Mapping[str, str | int]]
    _buffers: ClassVar[Mapping[str, str]]
    _any_order: ClassVar[tuple[str, ...]]
    _rows: ClassVar[str]
    _apart: ClassVar[bool]
    _problem: ClassVar[Callable[..., Any] | None]
    _states: Sequence[State | None]
    run: Callable[..., None]

    @property
    def _spec(self) -> Specialisation: ...


def value_names(caller: Caller) -> list[str]:
    """Return whose the values are that `bind` returns after the problem: of parameters, operators, init."""
    return caller._spec.value_names(caller._uses)


def binder(caller: Caller, lend: arrays.Lend | None = None) -> Callable[..., tuple[Any, ...]]:
    """Return what takes the arguments of a call and returns its problem and its values.

    `lend` is told what must live until the call is done; None: that is given to each call, after the others.
    """
    spec, declared = caller._spec, type(caller)
    parameters, uses = list(signature(declared.run).parameters), declared._uses
    names: dict[str, Any] = {
        "_address": arrays.address,
        "_count": item_count,
        "_cupy": () if spec.is_cpu else arrays.CUPY,
        "_torch": () if spec.is_cpu else arrays.TORCH,
        "_numpy_dtype": arrays.numpy_dtype,
        "_check_memory": peers.check_memory,
        "_lend": lend,
        "_any_order": declared._any_order,
        "_counts_of_rows": _counts_of_rows,
        "_check_apart": _check_apart,
        # Not to keep each other alive.
        "_problem": partial(declared._problem, weakref.proxy(caller)) if declared._problem else None,
    }
    if declared._buffers:
        from .double_buffer import DoubleBuffer, opened

        names.update(_DoubleBuffer=DoubleBuffer, _opened=opened)
    checks, problem = _first_lines(declared, parameters, {argument.name for argument in spec.arguments})
    values = []
    alike = f"(_any_order, {', '.join(declared._any_order)})"
    for i, argument in enumerate(spec.arguments):
        array = argument.name
        if array not in uses:
            continue  # what is built in and is no parameter discards what is written to it
        count = uses[array]
        items = count if count in parameters or isinstance(count, int) else f"problem.{count}"
        value = f"value_{i}"
        values.append(value)
        more = f"_lend, {alike if array in declared._any_order else () if count == 1 else None}"
        if argument.is_pointer:
            names[f"_dtype_{i}"] = argument.value
            # Each thing that has to be right is read once; what is not, `address` says.
            aligned = f"and not ({value} := {array}.%s) & {argument.value.alignment - 1}): pass"
            checks += [
                f"if (type({array}) in _cupy and {array}.dtype is _dtype_{i} and {array}._c_contiguous",
                f"        and {array}.size >= {items} {aligned % 'data.ptr'}",
            ]
            if argument.value.kind != "c":
                lazy = f"or {array}.is_neg()" if structs.kind_of(argument.value) == "f" else ""
                checks += [
                    f"elif (type({array}) in _torch and _numpy_dtype({array}.dtype) is _dtype_{i}",
                    f"        and {array}.is_cuda and {array}.is_contiguous()",
                    f"        and not ({array}.numel() < {items} {lazy}) {aligned % 'data_ptr()'}",
                ]
            arguments = f"{array!r}, {array}, _dtype_{i}, {items}, {argument.output}, {spec.is_cpu}, {more}"
            checks.append(f"else: {value} = _address({arguments})")
            if driver.has_several_devices and not spec.is_cpu:
                checks.append(f"_check_memory({array!r}, {value})")
        else:
            names[f"_state_of_{i}"] = partial(state_of, argument)
            checks.append(f"{value} = _state_of_{i}({array}, {items}, {more})")
    checks += _overlap_lines(spec, declared, names)
    states = caller._states or [None] * len(spec.operators)
    for i, ((_, op), state) in enumerate(zip(spec.operators, states, strict=True)):
        if op.state_size:
            names[f"_state_{i}"] = state
            given = "_lend" if isinstance(state, CapturedState) else ""
            checks.append(f"state_{i} = _state_{i}({given})")
            values.append(f"state_{i}")
    if "h_init" in parameters:
        kind = spec.option("init")
        names.update(_ndarray=np.ndarray, _none=_no_init, _bytes=initial_bytes)
        if kind is not None:
            names["_dtype"] = spec.operators[0][1].output
            values.append("init")
        checks += {
            None: ["if h_init is not None: _none(h_init)"],
            "device": [f"init = _address('h_init', h_init, _dtype, 1, False, {spec.is_cpu}, _lend)"],
            "value": [
                "if type(h_init) is _ndarray and h_init.dtype is _dtype and h_init.size == 1:",
                "    init = h_init.tobytes()",
                "else:",
                "    init = _bytes(h_init, _dtype)",
            ],
        }[kind]
    bound = f"({''.join(f'{each}, ' for each in [problem, *values])})"
    given = "arguments, _lend=None" if lend is None else "arguments"
    subject = f"call of {spec.algorithm}"
    return define(  # type: ignore[no-any-return]
        subject, "bind", _SOURCE, names, given=given, bound=bound, checks=checks
    )


def _first_lines(
    declared: type[Caller], parameters: Sequence[str], built: Collection[str]
) -> tuple[list[str], str]:
    """Return the lines that check counts and find the problem, and what that is called in them."""
    lines = [f"{', '.join(parameters)} = arguments"]
    for name in declared._uses:
        if name not in built:
            message = f"{name}: this {declared.__name__} was built without it; expected None, got "
            lines.append(f"if {name} is not None: raise TypeError({message!r} + type({name}).__name__)")
    counts = [str(count) for count in dict.fromkeys(declared._uses.values()) if count in parameters]
    if declared._rows and "end_offsets_in" not in built:
        rows, follow = declared._rows, [name for name in ("num_segments", "num_items") if name in counts]
        names = ", ".join(follow)
        lines += [
            f"if {' is None or '.join(follow)} is None:",
            f"    {names}, *_ = _counts_of_rows({rows!r}, {rows}, segment_size, {names})",
        ]
    lines += [
        f"if type({count}) is not int or {count} < 0: {count} = _count({count!r}, {count})"
        for count in counts
    ]
    if declared._problem:
        lines.append(f"problem = _problem({', '.join(parameters)})")
    for source, target in declared._buffers.items():
        lines.append(
            f"if isinstance({source}, _DoubleBuffer): "
            f"{source}, {target} = _opened({source!r}, {source}, {target!r}, {target})"
        )
    return lines, "problem" if declared._problem else counts[0]


def _overlap_lines(spec: Specialisation, declared: type[Caller], names: dict[str, Any]) -> list[str]:
    """Return the lines that refuse arrays which are given twice, where a call may not have that.

    What they read is added to `names`.
    """
    lines = []
    known = [(i, each) for i, each in enumerate(spec.arguments) if each.name in declared._uses]
    outputs = tuple(each.name for _, each in known if each.output)
    pairs = [
        f"value_{i} == value_{j}"
        for (i, one), (j, other) in combinations(known, 2)
        if one.is_pointer and other.is_pointer and (one.output or other.output)
    ]
    if declared._apart and pairs:  # which takes less time than a set of them
        given = ", ".join(f"{each.name}={each.name}" for _, each in known if each.is_pointer)
        lines.append(f"if {' or '.join(pairs)}: _check_apart({outputs}, {given})")
    inputs = ", ".join(f"{each.name}={each.name}" for _, each in known if not each.output)
    for _, each in known:
        if each.output and not each.is_pointer:
            from . import overlaps

            if overlaps.may_scatter(each.given):
                names["_check_scatter"] = overlaps.check_scatter
                lines.append(f"_check_scatter({each.name!r}, {each.name}, {inputs})")
    return lines


# Imported when they are called: most calls need neither.


def _check_apart(outputs: Sequence[str], **given: Any) -> None:
    from . import overlaps

    overlaps.check_apart(outputs, **given)


def _counts_of_rows(*given: Any) -> tuple[Any, Any]:
    from .segments import counts_of_rows

    return counts_of_rows(*given)


def _no_init(h_init: Any) -> None:
    if h_init is not None:
        raise TypeError("h_init: this algorithm was built without an initial value (h_init=None)")
