"""Arguments of calls, read by generated lines.

Arrays of CuPy and PyTorch, numbers, and an initial value in a NumPy array are read in line: each call waits
for that. Everything else is read by functions, which raise if an argument is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from struct import Struct
from typing import Any

import numpy as np

from .. import structs
from .._arguments.order import parameters_of, signature
from .._base.errors import ArgumentTypeError
from .._base.generated import define
from .._device import arrays, driver, peers
from .._device.readers import CUPY, TORCH, ArraySyntax
from .._ir.iterator import state_of
from .._ir.operator import CapturedState, FixedState
from .._ir.specialisation import AlgorithmClass, Specialisation

State = Callable[[], bytes]


def condition(library: ArraySyntax, x: str, dtype: np.dtype[Any], address: str, *checks: str) -> str:
    """Return the condition that `x` is a library's array, passes the checks, and has an aligned address.

    The address is assigned to a variable.
    """
    every = [f"type({x}) in _{library.name}", *checks]
    if library is TORCH:
        every += ["{v}.is_cuda", *["not {v}.is_neg()"] * (structs.kind_of(dtype) == "f")]
    every.append(f"not ({address} := {library.address}) & {dtype.alignment - 1}")
    return " and ".join(every).replace("{v}", x)


# --- Calls of algorithms ---------------------------------------------------------------------------------

_READ = """
def read({given}):
    {lines}
    return ({found})
"""


def call_reader(
    spec: Specialisation,
    states: Sequence[State | None],
    lend: arrays.Lend | None = None,
) -> Callable[..., tuple[Any, ...]]:
    """Return the function that reads the arguments of an algorithm's calls: ``read(arguments)``.

    It takes them in a tuple, checks them, and returns a tuple: the problem, and the values in the order of
    `Specialisation.value_names`. An address is an int; the state of an iterator or operator, and an initial
    value, are bytes.

    Parameters
    ----------
    spec : Specialisation
    states : sequence of callable or None
        Of its operators; empty: none has one.
    lend : callable or None
        Called with objects that must live until the call is done. None: `read` takes it behind the arguments.
    """
    from .._arguments.numbers import item_count  # which no build needs

    declared, parameters = spec.algorithm_class, [*signature(spec.algorithm_class.run).parameters]
    uses = declared._uses
    names: dict[str, Any] = {
        "_address": arrays.address,
        "_count": item_count,
        "_cupy": () if spec.is_cpu else arrays.CUPY,
        "_torch": () if spec.is_cpu else arrays.TORCH,
        "_numpy_dtype": arrays.numpy_dtype,
        "_check_memory": peers.check_memory,
        "_lend": lend,
        "_any_order": declared._any_order,
    }
    lines, found_problem = _counts(spec, parameters, names)
    values = {}
    alike = f"(_any_order, {', '.join(declared._any_order)})"
    for i, argument in enumerate(spec.arguments):
        array = argument.name
        if array not in uses:
            continue  # built in: an output that is discarded, and no parameter
        count = uses[array]
        items = count if count in parameters or isinstance(count, int) else f"problem.{count}"
        value = f"value_{i}"
        values[array] = value
        more = f"_lend, {alike if array in declared._any_order else () if count == 1 else None}"
        if not argument.is_pointer:
            names[f"_state_of_{i}"] = partial(state_of, argument)
            lines.append(f"{value} = _state_of_{i}({array}, {items}, {more})")
            continue
        names[f"_dtype_{i}"] = dtype = argument.value
        for library, word in ((CUPY, f"{array}.dtype"), (TORCH, f"_numpy_dtype({array}.dtype)")):
            if library is TORCH and dtype.kind == "c":
                continue
            checks = f"{word} is _dtype_{i}", library.c_order, f"{library.size} >= {items}"
            check = condition(library, array, dtype, value, *checks)
            lines.append(f"{'if' if library is CUPY else 'elif'} {check}: pass")
        arguments = f"{array!r}, {array}, _dtype_{i}, {items}, {argument.output}, {spec.is_cpu}, {more}"
        lines.append(f"else: {value} = _address({arguments})")
        if driver.has_several_devices and not spec.is_cpu:
            lines.append(f"_check_memory({array!r}, {value})")
    lines += _overlaps(spec, declared, names)
    states = states or [None] * len(spec.operators)
    for i, ((name, op), state) in enumerate(zip(spec.operators, states, strict=True)):
        if op.state_size:
            if isinstance(state, FixedState):
                names[f"_state_{i}"], values[name] = bytes(state), f"_state_{i}"
                continue
            names[f"_state_{i}"] = state
            lines.append(f"state_{i} = _state_{i}({'_lend' if isinstance(state, CapturedState) else ''})")
            values[name] = f"state_{i}"
    if "h_init" in parameters:
        lines += _init(spec, names)
        values["init"] = "init"
    given = "arguments, _lend=None" if lend is None else "arguments"
    found = "".join(f"{each}, " for each in [found_problem, *map(values.__getitem__, spec.value_names(uses))])
    texts: dict[str, Any] = {"given": given, "found": found, "lines": lines}
    return define(f"call of {spec.algorithm}", "read", _READ, names, **texts)  # type: ignore[no-any-return]


def _counts(spec: Specialisation, parameters: Sequence[str], names: dict[str, Any]) -> tuple[list[str], str]:
    """Return the lines that check counts and find the problem, and the variable that the problem is in."""
    declared, built = spec.algorithm_class, {argument.name for argument in spec.arguments}
    lines = [f"{', '.join(parameters)} = arguments"]
    absent = {name: "without it" for name in declared._uses if name not in built}
    if declared._rows and "end_offsets_in" in built:
        absent["segment_size"] = "for offsets"
    for name, why in absent.items():
        said = f"this {declared.__name__} was built {why}; expected None, got "
        lines.append(f"if {name} is not None: raise _Error({name!r}, {said!r} + type({name}).__name__)")
    names["_Error"] = ArgumentTypeError
    counts = [str(count) for count in dict.fromkeys(declared._uses.values()) if count in parameters]
    if declared._rows and "end_offsets_in" not in built:
        from .._arguments.segments import counts_of_rows, row_length

        rows, follow = declared._rows, [name for name in ("num_segments", "num_items") if name in counts]
        names.update(_counts_of_rows=counts_of_rows, _row_length=row_length)
        lines += [
            f"segment_size = _row_length({rows}, segment_size)",
            f"if {' is None or '.join(follow)} is None:",
            f"    {', '.join(follow)}, *_ = "
            f"_counts_of_rows({rows!r}, {rows}, segment_size, {', '.join(follow)})",
        ]
    lines += [
        f"if type({count}) is not int or {count} < 0: {count} = _count({count!r}, {count})"
        for count in counts
    ]
    if declared._problem_maker:
        names["_problem"] = made = declared._problem_maker(spec)
        lines.append(f"problem = _problem({', '.join(parameters_of(made))})")
    if declared._buffers:
        from .._arguments.double_buffer import DoubleBuffer, opened

        names.update(_DoubleBuffer=DoubleBuffer, _opened=opened)
    for source, target in declared._buffers.items():
        lines.append(
            f"if isinstance({source}, _DoubleBuffer): "
            f"{source}, {target} = _opened({source!r}, {source}, {target!r}, {target})"
        )
    return lines, "problem" if declared._problem_maker else counts[0]


def _overlaps(spec: Specialisation, declared: type[AlgorithmClass], names: dict[str, Any]) -> list[str]:
    """Return the lines that refuse arrays given twice, where a call does not allow it."""
    lines = []
    known = [(i, each) for i, each in enumerate(spec.arguments) if each.name in declared._uses]
    outputs = tuple(each.name for _, each in known if each.output)
    pairs = [
        f"value_{i} == value_{j}"
        for (i, one), (j, other) in combinations(known, 2)
        if one.is_pointer and other.is_pointer and (one.output or other.output)
    ]
    if declared._disjoint_outputs and pairs:  # quicker than a set
        names["_check_disjoint"] = _check_disjoint
        given = ", ".join(f"{each.name}={each.name}" for _, each in known if each.is_pointer)
        lines.append(f"if {' or '.join(pairs)}: _check_disjoint({outputs}, {given})")
    for _, each in known:
        if each.output and not each.is_pointer:
            from .._arguments import overlaps

            if overlaps.may_scatter(each.given):
                names["_check_scatter"] = overlaps.check_scatter
                inputs = [one.name for _, one in known if not one.output and overlaps.differ(each, one)]
                given = "".join(f", {name}={name}" for name in inputs)
                lines.append(f"_check_scatter({each.name!r}, {each.name}{given})")
    return lines


def _check_disjoint(outputs: Sequence[str], **given: Any) -> None:
    from .._arguments import overlaps  # which most calls do not need

    overlaps.check_disjoint(outputs, **given)


def _init(spec: Specialisation, names: dict[str, Any]) -> list[str]:
    """Return the lines that read the initial value."""
    kind = spec.option("init")
    if kind is None:
        names["_no_init"] = _no_init
        return ["if h_init is not None: _no_init()"]
    from .._arguments import initial  # which kernels of users do without

    dtype = spec.operators[0][1].output
    names.update(_dtype=dtype, _ndarray=np.ndarray, _bytes=initial.packed)
    names["_scalar"] = None if dtype.names else dtype.type  # that of structs is np.void for all
    if kind == "device":
        return [f"init = _address('h_init', h_init, _dtype, 1, False, {spec.is_cpu}, _lend)"]
    lines = [
        "if type(h_init) is _ndarray and h_init.dtype is _dtype and h_init.size == 1:",
        "    init = h_init.tobytes()",
        "elif type(h_init) is _scalar: init = h_init.tobytes()",
    ]
    if dtype.kind in "iuf":  # Python's numbers, where NumPy's conversion is that of `struct`
        kinds, limits = ((float, int), np.finfo) if dtype.kind == "f" else ((int,), np.iinfo)
        names.update(_kinds=kinds, _pack=Struct(dtype.char).pack)
        names.update(_least=kinds[0](limits(dtype).min), _most=kinds[0](limits(dtype).max))
        lines.append("elif type(h_init) in _kinds and _least <= h_init <= _most: init = _pack(h_init)")
    return [*lines, "else: init = _bytes(h_init, _dtype)"]


def _no_init() -> None:
    raise ArgumentTypeError("h_init", "this algorithm was built without an initial value (h_init=None)")
