"""Operators on the CPU: njit functions of frozen copies, and of the kinds that CCCL knows by name."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import numpy as np
from numba import njit
from numba.core import types
from numba.core.errors import NumbaError

from .. import _numba, structs
from .._base.causes import cause
from .._base.errors import BuildError
from .._compile import numba_errors
from .._compile.python_to_ltoir import Thaw, calling
from .._fingerprint.frozen import Function, Jitted
from .._fingerprint.refusals import Unfingerprintable
from .._ir import kinds
from .._ir.operator import Operator, ResultError
from .values import OPTIONS, array_loader, inlined, is_half, of_dtype, struct_maker, value_type


class _Thaw(Thaw):
    """Makes what numba compiles for the CPU."""

    _value_type = staticmethod(value_type)
    _struct_maker = staticmethod(struct_maker)

    def _jitted(self, function: FunctionType, options: dict[str, Any]) -> Any:
        return njit(**{**OPTIONS, **options})(function)

    def value(self, value: Any) -> Any:
        """Make what numba reads where an operator has a value; raise TypeError if that is for GPUs."""
        home = getattr(value, "__module__", None) or type(value).__module__
        if str(home).startswith("numba.cuda.") and not isinstance(value, types.Type):
            name = getattr(value, "__qualname__", type(value).__qualname__)
            raise TypeError(f"it reads {home}.{name}, which is for GPUs")
        return super().value(value)

    def _real(self, name: _numba.Name) -> Any:
        real = name.real()
        if isinstance(real, types.Type):
            return real
        raise TypeError(f"it reads {name.name}, which is for GPUs")

    @staticmethod
    def _compile(made: Any, text: str) -> None:
        made.compile(text)


def _truncated(a: Any, b: Any) -> Any:
    """Divide integers as C does."""
    quotient = a // b
    return quotient + 1 if quotient < 0 and quotient * b != a else quotient


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "PLUS": operator.add,
    "MINUS": operator.sub,
    "MULTIPLIES": operator.mul,
    "DIVIDES": operator.truediv,
    "EQUAL_TO": operator.eq,
    "NOT_EQUAL_TO": operator.ne,
    "GREATER": operator.gt,
    "LESS": operator.lt,
    "GREATER_EQUAL": operator.ge,
    "LESS_EQUAL": operator.le,
    "LOGICAL_AND": lambda a, b: bool(a) and bool(b),
    "LOGICAL_OR": lambda a, b: bool(a) or bool(b),
    "LOGICAL_NOT": lambda a: not bool(a),
    "BIT_AND": operator.and_,
    "BIT_OR": operator.or_,
    "BIT_XOR": operator.xor,
    "BIT_NOT": operator.invert,
    "IDENTITY": lambda a: a,
    "NEGATE": operator.neg,
    "MINIMUM": lambda a, b: b if b < a else a,
    "MAXIMUM": lambda a, b: b if a < b else a,
}


def _of_kind(name: str, op: Operator) -> Any:
    """Return the function of a kind, which does with integers what C does."""
    inputs = op.inputs
    integers = all(each.kind in "biu" for each in inputs)
    uniform = kinds.is_uniform(name, inputs, op.output)
    is_bool = all(each.kind == "b" for each in inputs)
    if name in ("DIVIDES", "MODULUS") and integers and uniform:
        cut = inlined(_truncated)
        whole = np.int64 if is_bool else inputs[0].type  # numba divides no bools
        if name == "DIVIDES":
            return inlined(lambda a, b: cut(whole(a), whole(b)))
        return inlined(lambda a, b: whole(a) - cut(whole(a), whole(b)) * whole(b))
    if is_bool and name == "BIT_NOT":
        return inlined(lambda a: not a)
    if is_bool and name in ("PLUS", "MINUS", "MULTIPLIES", "NEGATE"):
        function = inlined(_calls(_FUNCTIONS[name], len(inputs)))
        if len(inputs) == 1:
            return inlined(lambda a: function(int(a)))
        return inlined(lambda a, b: function(int(a), int(b)))
    function = _FUNCTIONS[name]
    return inlined(function if isinstance(function, FunctionType) else _calls(function, len(inputs)))


def _calls(function: Any, arity: int) -> Any:
    if arity == 1:
        return lambda a: function(a)  # noqa: PLW0108
    return lambda a, b: function(a, b)  # noqa: PLW0108


def kind_name(op: Operator) -> str | None:
    """Return the name of the kind that an operator is, be it in C++; None if it is a user's function."""
    if op.kind is not None:
        return str(op.kind.name)
    return op.name.removeprefix("OpKind.") if op.name.startswith("OpKind.") and not op.ltoirs else None


def function_of(op: Operator) -> Any:
    """Return ``operator(state, a, …)``, which gives a value of the operator's output.

    Raises
    ------
    TypeError
        If numba cannot compile it for its types, or its result is not converted to the type needed.
    """
    name = kind_name(op)
    arity = len(op.inputs)
    cast = of_dtype(op.output).cast
    names: dict[str, Any] = {"cast": cast}
    arrays = []
    with explained(op):
        if name is not None:
            names["call"] = _of_kind(name, op)
        else:
            names["call"] = _checked(op)
            at = 0
            for i, capture in enumerate(op.captures):
                names[f"array{i}"] = array_loader(capture.dtype, capture.ndim, at)
                arrays.append(f"array{i}(state)")
                at += 1 + capture.ndim
    inputs = [f"in{i}" for i in range(arity)]
    call = f"cast(call({', '.join([*arrays, *inputs])}))"
    exec(f"def operator({', '.join(['state', *inputs])}):\n    return {call}\n", names)
    return inlined(names["operator"])


def _checked(op: Operator) -> Any:
    """Return a user's function for numba, whose result is checked."""
    frozen = op.function
    for each in op.captures:
        if _has_half(each.dtype):
            raise TypeError(
                f"it captures {each.name!r}, an array of {each.dtype}, which numba has on GPUs alone"
            )
    if isinstance(frozen, Jitted) and "signatures" in frozen.options and op.captures:
        raise TypeError("it was given signatures, and reads arrays: drop the signatures")
    if not isinstance(frozen, (Function, Jitted)) or (
        isinstance(frozen, Jitted) and "signatures" in frozen.options
    ):
        frozen = calling(frozen, len(op.inputs))
    function = _Thaw().device_function(frozen, op.captures)
    arrays = [types.Array(_item_type(each.dtype), each.ndim, "C") for each in op.captures]
    arguments = (*arrays, *map(value_type, op.inputs))
    function.compile(arguments)
    result = function.overloads[arguments].signature.return_type
    dtype = _dtype_of(result)
    if dtype is None:
        op.check_result(numba_errors.types(str(result)))
    else:
        given = (*op.inputs, *(each.dtype for each in op.captures))
        op.check_result(_halved(dtype, op.output) if any(map(_has_half, given)) else dtype)
    return function


def _item_type(dtype: np.dtype[Any]) -> Any:
    from numba.np.numpy_support import from_dtype

    return from_dtype(dtype)


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


def _dtype_of(kind: Any) -> np.dtype[Any] | None:
    from numba.np.numpy_support import as_dtype

    if isinstance(kind, types.BaseTuple):
        fields = [_dtype_of(field) for field in kind]
        if not fields or any(field is None for field in fields):
            return None
        names = getattr(kind, "fields", [f"field_{i}" for i in range(len(fields))])
        return np.dtype(list(zip(names, fields, strict=True)), align=True)
    try:
        dtype: np.dtype[Any] = as_dtype(getattr(kind, "literal_type", kind))
    except (NumbaError, NotImplementedError):
        return None
    return dtype if structs.is_number(dtype) else None


@contextmanager
def explained(op: Operator) -> Iterator[None]:
    """Say which operator it is that numba cannot compile, and why."""
    try:
        yield
    except (ResultError, BuildError):
        raise
    except Unfingerprintable as error:
        raise Unfingerprintable(f"{op.parameter}: {op.described}: {error}") from None
    except Exception as error:  # numba raises whatever its passes run into
        if isinstance(error, ImportError) and not numba_errors.is_of_the_operator(error):
            raise
        inputs = op.signature.partition(" ->")[0]
        subject = f"{op.parameter}: numba cannot compile {op.described} for {inputs} on the CPU"
        raise TypeError(numba_errors.message(subject, error)) from cause(error)
