"""The operators of `OpKind`, which CCCL has, too: Python functions that mean one, and its C++.

CCCL's own operators take values of one type and return that type, or a bool. For all other types a kind
does what numba's code for the same function does: it computes in numba's type, and converts the result
to the output's.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from types import FunctionType
from typing import Any

import numpy as np

from .. import structs
from .._base.data import dataclass
from .._base.device import is_cpu
from .._base.digests import sha256
from .._base.words import counted
from ..operators import OpKind
from . import cpp
from .operator import Operator

DType = np.dtype[Any]


@dataclass(frozen=True)
class Traits:
    """The definition of an `OpKind`. Dtypes are the letters of NumPy's kinds of dtype."""

    group: str
    cpp: str  # its operator, or a template of its result
    python: str  # an expression of `a` and `b`
    dtypes: str  # for which it is defined
    function: Callable[..., Any] | None = None  # compiled by numba for types that C++ is not written for
    same_for: str = ""  # the dtypes for which the functions in `same` are exactly this kind
    same: tuple[Any, ...] = ()
    arity: int = 2


def _infix(
    group: str, symbol: str, dtypes: str, same_for: str, function: Callable[..., Any], ufunc: np.ufunc
) -> Traits:
    return Traits(group, symbol, f"a {symbol} b", dtypes, function, same_for, (function, ufunc))


TRAITS: dict[OpKind, Traits] = {
    OpKind.PLUS: _infix("arithmetic", "+", "biufc", "biufc", operator.add, np.add),
    OpKind.MINUS: _infix("arithmetic", "-", "biufc", "iufc", operator.sub, np.subtract),
    OpKind.MULTIPLIES: _infix("arithmetic", "*", "biufc", "biufc", operator.mul, np.multiply),
    OpKind.DIVIDES: _infix("arithmetic", "/", "biufc", "fc", operator.truediv, np.true_divide),
    OpKind.MODULUS: Traits("", "", "a % b", "biu"),
    OpKind.EQUAL_TO: _infix("relation", "==", "biufc", "biufc", operator.eq, np.equal),
    OpKind.NOT_EQUAL_TO: _infix("relation", "!=", "biufc", "biufc", operator.ne, np.not_equal),
    OpKind.GREATER: _infix("relation", ">", "biuf", "biuf", operator.gt, np.greater),
    OpKind.LESS: _infix("relation", "<", "biuf", "biuf", operator.lt, np.less),
    OpKind.GREATER_EQUAL: _infix("relation", ">=", "biuf", "biuf", operator.ge, np.greater_equal),
    OpKind.LESS_EQUAL: _infix("relation", "<=", "biuf", "biuf", operator.le, np.less_equal),
    OpKind.LOGICAL_AND: Traits(
        *("logical", "{a} && {b}", "bool(a) and bool(b)", "biufc"),
        *(lambda a, b: a != 0 and b != 0, "biufc", (np.logical_and,)),
    ),
    OpKind.LOGICAL_OR: Traits(
        *("logical", "{a} || {b}", "bool(a) or bool(b)", "biufc"),
        *(lambda a, b: a != 0 or b != 0, "biufc", (np.logical_or,)),
    ),
    OpKind.LOGICAL_NOT: Traits(
        *("logical", "!{a}", "not bool(a)", "biufc"),
        *(lambda a: a == 0, "biuf", (operator.not_, np.logical_not), 1),
    ),
    OpKind.BIT_AND: _infix("bitwise", "&", "biu", "biu", operator.and_, np.bitwise_and),
    OpKind.BIT_OR: _infix("bitwise", "|", "biu", "biu", operator.or_, np.bitwise_or),
    OpKind.BIT_XOR: _infix("bitwise", "^", "biu", "biu", operator.xor, np.bitwise_xor),
    OpKind.BIT_NOT: Traits("", "", "~a", "biu", operator.invert, "iu", (operator.invert, np.invert), 1),
    OpKind.IDENTITY: Traits("", "", "a", "biufcV", lambda a: a, arity=1),
    OpKind.NEGATE: Traits("", "", "-a", "biufc", operator.neg, "iuf", (operator.neg, np.negative), 1),
    # NumPy's minimum and maximum of floats treat NaN differently from all kinds.
    OpKind.MINIMUM: Traits(
        *("choice", "{b} < {a} ? {b} : {a}", "b if b < a else a", "biuf"),
        *(lambda a, b: b if b < a else a, "biu", (np.minimum, np.fmin)),
    ),
    OpKind.MAXIMUM: Traits(
        *("choice", "{a} < {b} ? {b} : {a}", "b if a < b else a", "biuf"),
        *(lambda a, b: b if a < b else a, "biu", (np.maximum, np.fmax)),
    ),
}
SAME: dict[Any, tuple[OpKind, str]] = {
    function: (kind, traits.same_for) for kind, traits in TRAITS.items() for function in traits.same
}

# Functions of two values that are exactly a kind, and the dtypes for which they are. A minimum of floats is
# not: with NaN and -0.0 the order of its arguments matters. numba computes small integers in 64 bits and
# truncates the result, C++ in 32 bits, which gives the same.
_PATTERNS: dict[OpKind, tuple[str, tuple[Callable[[Any, Any], Any], ...]]] = {
    OpKind.PLUS: ("biuf", (lambda a, b: a + b, lambda a, b: b + a)),
    OpKind.MULTIPLIES: ("biuf", (lambda a, b: a * b, lambda a, b: b * a)),
    OpKind.BIT_AND: ("biu", (lambda a, b: a & b, lambda a, b: b & a)),
    OpKind.BIT_OR: ("biu", (lambda a, b: a | b, lambda a, b: b | a)),
    OpKind.BIT_XOR: ("biu", (lambda a, b: a ^ b, lambda a, b: b ^ a)),
    OpKind.LESS: ("iuf", (lambda a, b: a < b, lambda a, b: b > a)),
    OpKind.GREATER: ("iuf", (lambda a, b: a > b, lambda a, b: b < a)),
    OpKind.MINIMUM: (
        "iu",
        (
            lambda a, b: a if a < b else b,
            lambda a, b: a if a <= b else b,
            lambda a, b: b if b < a else a,
            lambda a, b: b if b <= a else a,
            lambda a, b: b if a > b else a,
            lambda a, b: b if a >= b else a,
            lambda a, b: a if b > a else b,
            lambda a, b: a if b >= a else b,
            lambda a, b: min(a, b),  # noqa: PLW0108
            lambda a, b: min(b, a),
        ),
    ),
    OpKind.MAXIMUM: (
        "iu",
        (
            lambda a, b: a if a > b else b,
            lambda a, b: a if a >= b else b,
            lambda a, b: b if b > a else a,
            lambda a, b: b if b >= a else a,
            lambda a, b: b if a < b else a,
            lambda a, b: b if a <= b else a,
            lambda a, b: a if b < a else b,
            lambda a, b: a if b <= a else b,
            lambda a, b: max(a, b),  # noqa: PLW0108
            lambda a, b: max(b, a),
        ),
    ),
}
_KIND_OF_CODE = {
    (pattern.__code__.co_code, pattern.__code__.co_names): (kind, dtypes)
    for kind, (dtypes, patterns) in _PATTERNS.items()
    for pattern in patterns
}

_BOOL, _INT, _UNSIGNED = np.dtype(bool), np.dtype(np.int64), np.dtype(np.uint64)
_FLOAT, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
# Types for which numba promotes to float16, and to float32. With integers of 8 bits bfloat16
# is unchanged, with all other types it becomes float32.
_HALVES, _FLOATS = "?be", "?beEBhfF"


def kind_of(op: Any, inputs: Sequence[DType], recognise: bool) -> OpKind | None:
    """Return the kind that an operator is exactly for these dtypes, None if it is another function.

    With `recognise`, a Python function of two values of one dtype is recognised by its bytecode, if it is one
    of the few expressions above; the caller must check that `min` and `max` are the builtins.
    """
    if isinstance(op, OpKind):
        return op
    if type(op) is FunctionType:
        return _kind_of_code(op, inputs[0]) if recognise else None
    try:
        kind, dtypes = SAME.get(op, (None, ""))
    except TypeError:  # a callable that cannot be hashed
        return None
    return kind if all(structs.kind_of(dtype) in dtypes for dtype in inputs) else None


def _kind_of_code(function: FunctionType, dtype: DType) -> OpKind | None:
    code = function.__code__
    kind, dtypes = _KIND_OF_CODE.get((code.co_code, code.co_names), (None, ""))
    # Constants and closure variables are part of the code, keyword-only parameters are not. Sums of 16
    # bits depend so much on the order that CCCL's own plus may not stand in; bfloat16 has another kind.
    is_plain = code.co_argcount == 2 and not code.co_kwonlyargcount
    return kind if dtype.kind in dtypes and dtype != np.float16 and is_plain else None


def resolve(
    kind: OpKind,
    inputs: tuple[DType, ...],
    output: DType,
    as_function: bool,
    make: Callable[..., Operator],
) -> Operator | Callable[..., Any]:
    """Return a kind for given types: CCCL's own or in C++, else a function for numba to compile.

    `make` makes an operator for the types; `as_function` is that of `_ir.resolve`.
    """
    name, traits = f"OpKind.{kind.name}", TRAITS[kind]
    if traits.arity != len(inputs):
        takes = counted(traits.arity, "argument")
        raise TypeError(f"{name} takes {takes}, this algorithm gives it {len(inputs)}")
    undefined = {structs.kind_of(dtype) for dtype in inputs} - {*traits.dtypes}
    if "V" in undefined:
        raise TypeError(f"{name} is not defined for structs; write a function of their fields")
    if undefined:
        raise TypeError(f"{name} is not defined for {', '.join(map(str, inputs))}")
    code = expression(kind, inputs, output)
    is_one_type = is_uniform(kind, inputs, output)
    make = partial(make, python=_python(kind, inputs, is_one_type))
    if as_function and not is_cpu():  # on the CPU, a kind is an ordinary function
        if code is not None:
            source = _function(inputs, output, code)
            return make(name, fingerprint=sha256(source.encode()).hexdigest(), cpp=source)
    elif code is not None or is_one_type:
        return make(name, kind=kind, fingerprint=kind.name)
    if traits.function is None:
        raise TypeError(
            f"expected a function, got {name}"
            if is_one_type
            else f"{name} takes and gives one type, not those of {inputs}, {output}"
        )
    return traits.function


def gives_bool(kind: OpKind) -> bool:
    """Whether the result of a kind is a bool for all types."""
    return TRAITS[kind].group in ("relation", "logical")


def is_uniform(kind: OpKind, inputs: Sequence[DType], output: DType) -> bool:
    """Whether a kind takes values of one type here and returns that type, or a bool if it is a predicate."""
    given = _BOOL if gives_bool(kind) else inputs[0]
    return set(inputs) == {inputs[0]} and structs.layout(output) == structs.layout(given)


def expression(kind: OpKind, inputs: Sequence[DType], output: DType) -> str | None:
    """Return the C++ of a kind's result for `a` and `b`, as a value of the output's type.

    The kind must be defined for the inputs. None if no C++ is written for the types, or the result is not
    converted to the output's silently.
    """
    computed = _computed(kind, inputs)
    if computed is None or not structs.convertible(computed[0], output):
        return None
    result, code = computed
    return f"({code})" if result == output else _as(output, f"({code})")


@lru_cache
def _python(kind: OpKind, inputs: tuple[DType, ...], is_one_type: bool) -> str:
    """Return a kind's result for `a` and `b` in Python, of integers with C's `quotient` and `remainder`."""
    python, letters = TRAITS[kind].python, {each.kind for each in inputs}
    is_bool = letters == {"b"}
    if is_one_type and letters <= {*"biu"} and kind in (OpKind.DIVIDES, OpKind.MODULUS):
        name = "quotient" if kind is OpKind.DIVIDES else "remainder"
        return f"{name}(int(a), int(b))" if is_bool else f"{name}(a, b)"  # numba divides no bools
    if is_bool and kind is OpKind.BIT_NOT:
        return "not a"
    if is_bool and kind in (OpKind.PLUS, OpKind.MINUS, OpKind.MULTIPLIES, OpKind.NEGATE):
        return re.sub(r"[ab]", r"int(\g<0>)", python)
    return python


def _function(inputs: Sequence[DType], output: DType, result: str) -> str:
    """Return the C++ of a function ``SYMBOL`` that stores an expression of `a` and `b`."""
    names = "ab"[: len(inputs)]
    parameters = ", ".join(f"void* p_{name}" for name in names)
    loads = "".join(
        f"  const auto {name} = {_loaded(f'p_{name}', each)};\n"
        for name, each in zip(names, inputs, strict=True)
    )
    return cpp.unit(
        f'extern "C" __device__ void SYMBOL({parameters}, void* out) {{\n'
        f"{loads}  *static_cast<{cpp.type_name(output)}*>(out) = {result};\n}}\n"
    )


def _loaded(pointer: str, dtype: DType) -> str:
    if dtype.kind == "b":  # memory may hold any byte
        return f"*static_cast<const unsigned char*>({pointer}) != 0"
    return f"*static_cast<const {cpp.type_name(dtype)}*>({pointer})"


def _as(dtype: DType, value: str) -> str:
    return f"static_cast<{cpp.type_name(dtype)}>({value})"


def _computed(kind: OpKind, inputs: Sequence[DType]) -> tuple[DType, str] | None:
    """Return the type in which a kind is computed, and its result in that type; None if C++ cannot."""
    traits, names = TRAITS[kind], "ab"[: len(inputs)]
    if kind is OpKind.IDENTITY:
        return inputs[0], "a"
    if traits.group == "logical":
        truths = {name: _truth(name, each) for name, each in zip(names, inputs, strict=True)}
        return _BOOL, traits.cpp.format(**truths)
    common = _common(inputs)
    if kind is OpKind.BIT_NOT:
        return inputs[0], "!a" if inputs[0] == _BOOL else _as(inputs[0], "~a")
    if kind is OpKind.NEGATE:
        own = _INT if inputs[0] == _BOOL else inputs[0]
        return own, _as(own, "-" + _as(_exact(own), "a"))
    if traits.group == "bitwise":
        common = _BOOL if set(inputs) == {_BOOL} else common
        return common, traits.cpp.join(_as(common, name) for name in names)
    if traits.group == "arithmetic" and not structs.is_half(
        common
    ):  # its rounding depends on the instructions
        common = _DOUBLE if kind is OpKind.DIVIDES and common.kind in "iu" else common
        return common, _as(common, traits.cpp.join(_as(_exact(common), name) for name in names))
    no_type_for_both = _UNSIGNED in inputs and common == _INT
    if traits.group not in ("relation", "choice") or no_type_for_both:
        return None
    wide = _FLOAT if structs.is_half(common) else common  # float32 has all values of 16 bits
    sides = {name: _as(wide, name) for name in names}
    if traits.group == "choice":
        return wide, traits.cpp.format(**sides)
    return _BOOL, f" {traits.cpp} ".join(sides.values())


def _exact(common: DType) -> DType:
    """Return the type to compute in: integers wrap around, and float32 has all values of 16 bits."""
    if common == _INT:
        return _UNSIGNED
    return _FLOAT if structs.is_half(common) else common


def _truth(name: str, dtype: DType) -> str:
    if dtype.kind == "c":
        return f"({name}.re != 0 || {name}.im != 0)"
    return f"({_as(_FLOAT, name) if structs.is_half(dtype) else name} != 0)"


def _common(inputs: Sequence[DType]) -> DType:
    """Return the type that numba computes in."""
    kinds = {each.kind for each in inputs}
    if kinds <= set("biu"):
        return _UNSIGNED if kinds == {"u"} else _INT
    brains = [each for each in inputs if structs.is_bfloat16(each)]
    if brains and all(each.char in "EbB" for each in inputs):
        return brains[0]
    halves = "" if brains else _HALVES
    size = max(2 if each.char in halves else 4 if each.char in _FLOATS else 8 for each in inputs)
    return np.dtype(f"c{2 * max(size, 4)}" if "c" in kinds else f"f{size}")
