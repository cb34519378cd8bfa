"""Operators on the CPU: njit functions of frozen copies, and of the kinds that CCCL knows by name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

from .. import _numba
from .._base.device import CPU
from .._base.generated import define
from .._compile import arithmetic
from .._compile.numba_errors import NotCompiledError
from .._compile.numba_types import number_at
from .._compile.python_to_ltoir import Thaw, explained, returned
from .._fingerprint import extensions
from .._ir.operator import Operator
from .._ir.resolve import resolve
from .._jobs.threads import collecting, off_main_thread
from .._numba_cpu import from_dtype, ir, typeinfer, types
from . import compiling
from .code import fault_code
from .functions import FUNCTIONS
from .target import jitted, target
from .values import (
    BYTES,
    NUMBA,
    Place,
    Value,
    Written,
    array_at,
    cast_to,
    casting,
    converted,
    division,
    inlined,
    of_user,
    struct_maker,
    value_of,
)


class _Thaw(Thaw):
    """Turns a frozen copy into functions that numba compiles for the CPU."""

    _value_type = staticmethod(value_of)
    _struct_maker = staticmethod(struct_maker)

    def _jitted(self, function: FunctionType, options: dict[str, Any]) -> Any:
        return jitted(function, **options)

    def _refusal(self, value: Any) -> str | None:
        if value is print:
            return "it prints, which code on the CPU does not: it runs without Python"
        return super()._refusal(value)

    def value(self, value: Any) -> Any:
        """Turn a frozen value into one that numba reads; raise TypeError if it is for GPUs."""
        if isinstance(value, BuiltinFunctionType) and value in FUNCTIONS:
            return FUNCTIONS[value]
        kind = value if isinstance(value, type) else type(value)
        if issubclass(kind, np.generic) and kind.__name__ in ("float16", "bfloat16"):
            return cast_to(np.dtype(kind)) if isinstance(value, type) else np.float32(value)
        home = getattr(value, "__module__", None) or type(value).__module__
        if str(home).startswith("numba.cuda.") and not isinstance(value, types.Type):
            name = getattr(value, "__qualname__", type(value).__qualname__)
            raise NotCompiledError(f"it reads {home}.{name}, which is for GPUs")
        return super().value(value)

    def _real(self, name: _numba.Name) -> Any:
        real = name.real()
        if isinstance(real, types.Type):
            return real
        raise NotCompiledError(f"it reads {name.name}, which is for GPUs")

    @staticmethod
    def _compile(made: Any, text: str) -> None:
        made.compile(text)


def function_of(op: Operator, place: Place | None) -> Any:
    """Return ``operator(p, a, …)``, which gives a value of the operator's output.

    That of a user's function is `Written`, so that numba compiles nothing around it.

    Parameters
    ----------
    op : Operator
    place : Place or None
        Where its state is, if it has one.

    Raises
    ------
    TypeError
        If numba cannot compile it for its types, or its result is not converted to the type needed.
    """
    result, kinds = value_of(op.output), [value_of(each).kind for each in op.inputs]
    if op.python:
        names = _names(op, result)
    else:
        return _written(op, place, result, kinds)
    inputs = "ab"[: len(op.inputs)]
    source = f"def operator({', '.join(['p', *inputs])}):\n    return cast({op.python})\n"
    return inlined(define(f"operator {op.name}", "operator", source, names))


def extreme_of(op: Operator) -> Written | None:
    """Return an operator for items in any order if it is `numpy.minimum` or `numpy.maximum` of floats.

    LLVM has one that takes many items at once: a NaN is the result, and of -0.0 and 0.0 either one.
    """
    if op.kind is not None or {*op.inputs, op.output} not in ({_SINGLE}, {_DOUBLE}):
        return None
    name = _extremes(op.output).get(op.fingerprint)
    if name is None:
        return None
    kind = value_of(op.output).kind

    def emit(context: Any, builder: Any, p: Any, a: Any, b: Any) -> Any:
        function = builder.module.declare_intrinsic(name, [a.type], ir.FunctionType(a.type, [a.type] * 2))
        return builder.call(function, [a, b], fastmath=("nsz",))

    return Written(kind, (BYTES, kind, kind), emit)


@functools.cache
def _extremes(dtype: np.dtype[Any]) -> dict[str, str]:
    """Return the intrinsics that the minimum and the maximum of a dtype are, by their fingerprints."""
    pairs = (np.minimum, "llvm.minimum"), (np.maximum, "llvm.maximum")
    return {resolve(ufunc, (dtype, dtype), dtype).fingerprint: name for ufunc, name in pairs}


_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


def _names(op: Operator, result: Value) -> dict[str, Any]:
    """Return what the expression of a kind calls."""
    names = {"cast": casting(result)}
    if op.python.startswith(("quotient", "remainder")):
        whole = np.dtype(np.int64) if op.inputs[0].kind == "b" else op.inputs[0]
        names["quotient"], names["remainder"] = division(whole)
    return names


def _written(op: Operator, place: Place | None, result: Value, inputs: Sequence[Any]) -> Written:
    """Return a user's function as it is called: with its arrays and numbers, and the result converted.

    If it raises, the caller does, with a code that tells whose exception that was: numba hands it up from
    function to function.
    """

    def emit(context: Any, builder: Any, p: Any, *given: Any) -> Any:
        values, kinds = given[: len(inputs)], given[len(inputs) :]
        described = compiled.fndesc
        context.active_code_library.add_linking_library(compiled.library)
        own = loaded(context, builder, p)
        taken = zip(values, kinds, described.argtypes[len(own) :], strict=True)
        own += [context.cast(builder, value, kind, to) for value, kind, to in taken]
        callee = context.declare_function(builder.module, described)
        status, found = context.call_conv.call_function(
            builder, callee, described.restype, described.argtypes, own
        )
        with builder.if_then(status.is_error, likely=False):
            code = fault_code(op)
            blamed = builder.select(status.is_user_exc, status.code.type(code), status.code)
            context.call_conv.return_status_propagate(builder, status._replace(code=blamed))
        return converted(context, builder, result, found, described.restype)

    first = _first_types(op)

    def loaded(context: Any, builder: Any, p: Any) -> list[Any]:
        found, at = [], 0
        for array in first[: len(op.captures)]:
            assert place is not None
            found.append(array_at(context, builder, array, place.moved(8 * at), p))
            at += 1 + array.ndim
        for number in op.numbers:
            assert place is not None
            found.append(number_at(builder, place.moved(8 * at).pointer(builder, p), number, ir))
            at += 1
        return found

    with explained(op, CPU):
        compiled = _compiled(op, (*first, *inputs))
    return Written(result.kind, (BYTES, *[None] * len(inputs)), emit)


def result_dtype(op: Operator) -> np.dtype[Any]:
    """Return the dtype of an operator's result for its types, before conversion to its output.

    Raises
    ------
    TypeError
        If numba cannot compile it for its inputs, or arrays cannot hold the result.
    """
    arguments = _argument_types(op)
    with explained(op, CPU):
        _, found = compiling.settled(op.name, lambda: _typed(op, arguments))
        if isinstance(found, str):
            op.check_result(found)
    assert not isinstance(found, str)
    return found


def typed_code(op: Operator, read: Callable[[Any], Any]) -> Any:
    """Compile a user's function for its types, and return what `read` makes of that."""

    def work() -> Any:
        with collecting():
            return compiling.settled(op.name, lambda: read(_kept(op, _argument_types(op))[1]))

    return off_main_thread(work)


def _compiled(op: Operator, arguments: tuple[Any, ...]) -> Any:
    """Return what numba makes of a user's function for some types, with a check of its result."""
    compiled, found = _typed(op, arguments)
    op.check_result(found)
    return compiled


def _typed(op: Operator, arguments: tuple[Any, ...]) -> tuple[Any, np.dtype[Any] | str]:
    """Return what numba makes of a user's function for some types, and what it returns: see `returned`."""
    compiled, _ = _kept(op, arguments)
    return compiled, returned(compiled.signature.return_type, NUMBA)


def _kept(op: Operator, arguments: tuple[Any, ...]) -> Any:
    return of_user((op.fingerprint, *op.inputs, *arguments), lambda: _made(op, arguments))


def _made(op: Operator, arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return what numba makes of a user's function for some types: to be called, and its own code."""
    with extensions.refuse_foreign(target.target_context), arithmetic.typing(typeinfer, types):
        function = _Thaw().operator(op)
        _, _, folded, _ = function.get_call_template([*arguments], {})
        own = function.overloads[tuple(folded)]
        if tuple(folded) != arguments:  # it has defaults, or takes any number
            function = _with_arity(function, len(arguments))
            function.compile(arguments)
    compiled = function.overloads[arguments]
    library = compiled.library
    stranger = compiling.stranger(library.missing())
    if stranger is not None:  # unless that is never reached
        library.optimize()
        stranger = compiling.stranger(library.missing())
    if stranger is not None:
        raise NotCompiledError(f"it calls {stranger}, and code on the CPU only computes: do without")
    return compiled, own


def _with_arity(function: Any, arity: int) -> Any:
    names = ", ".join(f"a{i}" for i in range(arity))
    return jitted(eval(f"lambda {names}: function({names})", {"function": function}))


def _first_types(op: Operator) -> list[Any]:
    """Return the types of the captured arrays and numbers, which are the first arguments."""
    found: list[Any] = [
        types.Array(from_dtype(each.dtype), each.ndim, "C", readonly=not each.is_writable)
        for each in op.captures
    ]
    return [*found, *[from_dtype(each.dtype) for each in op.numbers]]


def _argument_types(op: Operator) -> tuple[Any, ...]:
    return (*_first_types(op), *[value_of(each).kind for each in op.inputs])
