"""Operators on the CPU: njit functions of frozen copies, and of the kinds that CCCL knows by name."""

from __future__ import annotations

import re
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np
from numba.core import types

from .. import _numba, structs
from .._base.device import CPU
from .._base.generated import define
from .._compile import numba_errors
from .._compile.numba_errors import NotCompiledError
from .._compile.numba_types import dtype_of
from .._compile.python_to_ltoir import Thaw, calling, explained
from .._fingerprint import extensions
from .._fingerprint.fingerprint import Capture
from .._fingerprint.frozen import FrozenFunction, FrozenJitted
from .._ir import kinds
from .._ir.operator import Operator
from ..operators import OpKind
from . import compiling
from .code import fault_code
from .functions import FUNCTIONS
from .target import jitted, target
from .values import (
    BYTES,
    NUMBA,
    Place,
    Written,
    array_at,
    cast_to,
    converted,
    division,
    inlined,
    is_half,
    kept,
    struct_maker,
    value_type,
)


class _Thaw(Thaw):
    """Turns a frozen copy into functions that numba compiles for the CPU."""

    _value_type = staticmethod(value_type)
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


def _expression(kind: OpKind, op: Operator) -> str:
    """Return the expression of an `OpKind` of `a` and `b`, with C's arithmetic of integers."""
    python = kinds.TRAITS[kind].python
    is_bool = all(each.kind == "b" for each in op.inputs)
    integers = all(each.kind in "biu" for each in op.inputs)
    if integers and kinds.is_uniform(kind, op.inputs, op.output):
        whole = "{0}" if not is_bool else "int({0})"  # numba divides no bools
        a, b = whole.format("a"), whole.format("b")
        if kind is OpKind.DIVIDES:
            return f"quotient({a}, {b})"
        if kind is OpKind.MODULUS:
            return f"remainder({a}, {b})"
    if is_bool and kind is OpKind.BIT_NOT:
        return "not a"
    if is_bool and kind in (OpKind.PLUS, OpKind.MINUS, OpKind.MULTIPLIES, OpKind.NEGATE):
        return re.sub(r"[ab]", r"int(\g<0>)", python)
    return python


def kind_of(op: Operator) -> OpKind | None:
    """Return the kind that an operator is, even if it is in C++; None for a user's function."""
    if op.kind is None and op.name.startswith("OpKind.") and not op.ltoirs:
        return OpKind[op.name.removeprefix("OpKind.")]
    return op.kind


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
    kind = kind_of(op)
    if kind is None:
        return _written(op, place)
    inputs = "ab"[: len(op.inputs)]
    names: dict[str, Any] = {"cast": cast_to(op.output)}
    if kind in (OpKind.DIVIDES, OpKind.MODULUS) and op.inputs[0].kind in "biu":
        whole = np.dtype(np.int64) if op.inputs[0].kind == "b" else op.inputs[0]
        names["quotient"], names["remainder"] = division(whole)
    with explained(op, CPU):
        expression = _expression(kind, op)
    source = f"def operator({', '.join(['p', *inputs])}):\n    return cast({expression})\n"
    return inlined(define(f"operator {op.name}", "operator", source, names))


def _written(op: Operator, place: Place | None) -> Written:
    """Return a user's function as it is called: with its arrays, and the result converted.

    If it raises, the caller does, with a code that tells whose exception that was: numba hands it up from
    function to function.
    """
    with explained(op, CPU):
        compiled = _checked(op)
    arrays, at = [], 0
    for capture in op.captures:
        assert place is not None
        arrays.append((_array_type(capture), place.moved(8 * at)))
        at += 1 + capture.ndim
    code, described = fault_code(op), compiled.fndesc

    def emit(context: Any, builder: Any, p: Any, *given: Any) -> Any:
        values, kinds = given[: len(op.inputs)], given[len(op.inputs) :]
        context.active_code_library.add_linking_library(compiled.library)
        own = [array_at(context, builder, array, where, p) for array, where in arrays]
        taken = zip(values, kinds, described.argtypes[len(own) :], strict=True)
        own += [context.cast(builder, value, kind, to) for value, kind, to in taken]
        callee = context.declare_function(builder.module, described)
        status, found = context.call_conv.call_function(
            builder, callee, described.restype, described.argtypes, own
        )
        with builder.if_then(status.is_error, likely=False):
            blamed = builder.select(status.is_user_exc, status.code.type(code), status.code)
            context.call_conv.return_status_propagate(builder, status._replace(code=blamed))
        return converted(context, builder, op.output, found, described.restype)

    return Written(value_type(op.output), (BYTES, *[None] * len(op.inputs)), emit)


def _checked(op: Operator) -> Any:
    """Return a user's function as numba compiled it, with a check of its result."""
    for each in op.captures:
        if _has_half(each.dtype):
            raise NotCompiledError(
                f"it captures {each.name!r}, an array of {each.dtype}, which numba has on GPUs alone"
            )
    arguments = (*map(_array_type, op.captures), *map(value_type, op.inputs))
    compiled = kept((op.fingerprint, *op.inputs, *arguments), lambda: _compiled(op, arguments))
    result = compiled.signature.return_type
    dtype = dtype_of(result, NUMBA)
    if dtype is None:
        op.check_result(numba_errors.types(str(result)))
    else:
        given = (*op.inputs, *(each.dtype for each in op.captures))
        op.check_result(_halved(dtype, op.output) if any(map(_has_half, given)) else dtype)
    return compiled


def _compiled(op: Operator, arguments: tuple[Any, ...]) -> Any:
    """Return what numba makes of a user's function for arguments of some types."""
    frozen = op.function
    if isinstance(frozen, FrozenJitted) and "signatures" in frozen.options and op.captures:
        raise NotCompiledError("it was given signatures, and reads arrays: drop the signatures")
    if not isinstance(frozen, (FrozenFunction, FrozenJitted)) or (
        isinstance(frozen, FrozenJitted) and "signatures" in frozen.options
    ):
        frozen = calling(frozen, len(op.inputs))
    function = _Thaw().device_function(frozen, op.captures)
    with extensions.refuse_foreign(target.target_context):
        _, _, folded, _ = function.get_call_template([*arguments], {})
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
    return compiled


def _with_arity(function: Any, arity: int) -> Any:
    names = ", ".join(f"a{i}" for i in range(arity))
    return jitted(eval(f"lambda {names}: function({names})", {"function": function}))


def _array_type(capture: Capture) -> Any:
    from numba.np.numpy_support import from_dtype

    return types.Array(from_dtype(capture.dtype), capture.ndim, "C", readonly=not capture.is_writable)


def _has_half(dtype: np.dtype[Any]) -> bool:
    return is_half(dtype) or any(_has_half(each) for _, each, _ in structs.members(dtype))


def _halved(result: np.dtype[Any], output: np.dtype[Any]) -> np.dtype[Any]:
    """Return a result's type with the 16-bit floats that it has on a GPU, where it is float32 here."""
    if result.names is None or output.names is None:
        return output if is_half(output) and result == np.float32 else result
    if len(result.names) != len(output.names):
        return result
    fields = [(name, _halved(result[i], output[i])) for i, name in enumerate(result.names)]
    return np.dtype(fields, align=True)
