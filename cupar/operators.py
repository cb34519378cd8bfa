"""Operators: CCCL's own kinds, and what a user's operator means for given types."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np

from . import structs
from ._base.data import dataclass, field, replace
from ._base.device import is_cpu
from ._base.digests import sha256
from ._base.words import counted
from ._external.kinds import is_external
from ._fingerprint import walk
from ._fingerprint.names import compilers_name
from ._ir import cpp, kinds
from ._ir.operator import CapturedState, Operator, cpp_operator


class OpKind(IntEnum):
    """The operators that CCCL knows by name, and for some of which it has faster code.

    Values are those of CCCL's C interface (``cccl_op_kind_t``). `MINIMUM` and `MAXIMUM` follow C++
    (``b < a ? b : a`` and ``a < b ? b : a``), so what they make of a NaN depends on where it stands;
    ``np.minimum`` and ``np.maximum`` propagate it. `DIVIDES` and `MODULUS` of integers truncate towards
    zero, as in C; by 0 both give 0, and the least integer divided by -1 is itself.
    """

    PLUS = 2
    MINUS = 3
    MULTIPLIES = 4
    DIVIDES = 5
    MODULUS = 6
    EQUAL_TO = 7
    NOT_EQUAL_TO = 8
    GREATER = 9
    LESS = 10
    GREATER_EQUAL = 11
    LESS_EQUAL = 12
    LOGICAL_AND = 13
    LOGICAL_OR = 14
    LOGICAL_NOT = 15
    BIT_AND = 16
    BIT_OR = 17
    BIT_XOR = 18
    BIT_NOT = 19
    IDENTITY = 20
    NEGATE = 21
    MINIMUM = 22
    MAXIMUM = 23


@dataclass(frozen=True)
class RawOp:
    """Your own operator as LTO-IR, made by nvcc or NVRTC with ``-dlto``, or by another compiler.

    Parameters
    ----------
    name : str
        Of its function, as the linker sees it (``extern "C"`` in C++). The function takes a ``void*`` to each
        argument and then one to the result, and returns nothing. With a state, its first argument is a
        ``void*`` to that.
    ltoir : bytes
        LTO-IR, for the compute capability that is built for or an earlier one.
    state : bytes, optional
        Handed to the kernel in each call, such as the addresses of arrays. What it holds is no part of the
        build: operators that differ in it alone share one.
    state_alignment : int, optional
        In bytes: a power of two.
    extra_ltoirs : sequence of bytes, optional
        Further LTO-IR to link, with what the function calls.

    Raises
    ------
    TypeError, ValueError
        If an argument is none of the above.

    Examples
    --------
    In C++, for float32::

        extern "C" __device__ void add(void* a, void* b, void* result) {
          *static_cast<float*>(result) = *static_cast<float*>(a) + *static_cast<float*>(b);
        }
    """

    name: str
    ltoir: bytes = field(repr=False)
    state: bytes = field(default=b"", kw_only=True)
    state_alignment: int = field(default=1, kw_only=True)
    extra_ltoirs: Sequence[bytes] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isascii() or not self.name.isidentifier():
            raise ValueError(f"name: expected the name of a C function, got {self.name!r}")
        if self.name.startswith("cupar_"):
            raise ValueError(
                f"name: {self.name!r} begins as cupar's own functions do; call it something else"
            )
        if not isinstance(self.state, bytes):
            raise TypeError(f"state: expected bytes, got {type(self.state).__name__}")
        alignment = self.state_alignment
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise ValueError(f"state_alignment: expected a power of two, got {alignment!r}")
        extra_ltoirs: Any = self.extra_ltoirs
        if isinstance(extra_ltoirs, bytes):  # a sequence, too, but of numbers
            raise TypeError("extra_ltoirs: expected a sequence of bytes, got bytes; put them into a list")
        object.__setattr__(self, "extra_ltoirs", tuple(extra_ltoirs or ()))
        extra = ((f"extra_ltoirs[{i}]", code) for i, code in enumerate(self.extra_ltoirs))
        for name, code in (("ltoir", self.ltoir), *extra):
            if not isinstance(code, bytes):
                raise TypeError(f"{name}: expected LTO-IR as bytes, got {type(code).__name__}")
            if not code:
                raise ValueError(f"{name}: is empty, expected LTO-IR")

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of its code."""
        digest = sha256(self.name.encode())
        for code in (self.ltoir, *self.extra_ltoirs):
            digest.update(sha256(code).digest())
        return digest.hexdigest()


Op = OpKind | RawOp | Callable[..., Any]


@dataclass(frozen=True)
class _Traits:
    """What a kind is. Dtypes are the letters of NumPy's kinds of dtype."""

    arity: int
    dtypes: str  # that it is defined for
    function: Callable[..., Any] | None = None  # what numba compiles where CCCL has it not for the types
    same_for: str = ""  # the dtypes for which the functions in `same` are exactly this kind
    same: tuple[Any, ...] = ()
    gives_bool: bool = False  # and not what it takes


_relation = partial(_Traits, gives_bool=True)

_KINDS: dict[OpKind, _Traits] = {
    OpKind.PLUS: _Traits(2, "biufc", operator.add, "biufc", (operator.add, np.add)),
    OpKind.MINUS: _Traits(2, "biufc", operator.sub, "iufc", (operator.sub, np.subtract)),
    OpKind.MULTIPLIES: _Traits(2, "biufc", operator.mul, "biufc", (operator.mul, np.multiply)),
    OpKind.DIVIDES: _Traits(2, "biufc", operator.truediv, "fc", (operator.truediv, np.true_divide)),
    OpKind.MODULUS: _Traits(2, "biu"),
    OpKind.EQUAL_TO: _relation(2, "biufc", operator.eq, "biufc", (operator.eq, np.equal)),
    OpKind.NOT_EQUAL_TO: _relation(2, "biufc", operator.ne, "biufc", (operator.ne, np.not_equal)),
    OpKind.GREATER: _relation(2, "biuf", operator.gt, "biuf", (operator.gt, np.greater)),
    OpKind.LESS: _relation(2, "biuf", operator.lt, "biuf", (operator.lt, np.less)),
    OpKind.GREATER_EQUAL: _relation(2, "biuf", operator.ge, "biuf", (operator.ge, np.greater_equal)),
    OpKind.LESS_EQUAL: _relation(2, "biuf", operator.le, "biuf", (operator.le, np.less_equal)),
    OpKind.LOGICAL_AND: _relation(2, "biufc", lambda a, b: a != 0 and b != 0, "biufc", (np.logical_and,)),
    OpKind.LOGICAL_OR: _relation(2, "biufc", lambda a, b: a != 0 or b != 0, "biufc", (np.logical_or,)),
    OpKind.LOGICAL_NOT: _relation(1, "biufc", lambda a: a == 0, "biuf", (operator.not_, np.logical_not)),
    OpKind.BIT_AND: _Traits(2, "biu", operator.and_, "biu", (operator.and_, np.bitwise_and)),
    OpKind.BIT_OR: _Traits(2, "biu", operator.or_, "biu", (operator.or_, np.bitwise_or)),
    OpKind.BIT_XOR: _Traits(2, "biu", operator.xor, "biu", (operator.xor, np.bitwise_xor)),
    OpKind.BIT_NOT: _Traits(1, "biu", operator.invert, "iu", (operator.invert, np.invert)),
    OpKind.IDENTITY: _Traits(1, "biufcV", lambda a: a),
    OpKind.NEGATE: _Traits(1, "biufc", operator.neg, "iuf", (operator.neg, np.negative)),
    # Of floats, NumPy's do with NaN what no kind does.
    OpKind.MINIMUM: _Traits(2, "biuf", lambda a, b: b if b < a else a, "biu", (np.minimum, np.fmin)),
    OpKind.MAXIMUM: _Traits(2, "biuf", lambda a, b: b if a < b else a, "biu", (np.maximum, np.fmax)),
}
_SAME: dict[Any, tuple[OpKind, str]] = {
    function: (kind, traits.same_for) for kind, traits in _KINDS.items() for function in traits.same
}

# Ufuncs of floats that numba.cuda does not have under NumPy's name. What minima do with NaN is written out,
# since numba does not have these for float16.
_OF_FLOATS: dict[Any, Callable[..., Any]] = {
    np.sqrt: math.sqrt,
    np.exp: math.exp,
    np.absolute: abs,
    np.minimum: lambda a, b: a if a < b or a != a else b,  # noqa: PLR0124
    np.maximum: lambda a, b: a if a > b or a != a else b,  # noqa: PLR0124
    np.fmin: lambda a, b: a if a <= b or b != b else b,  # noqa: PLR0124
    np.fmax: lambda a, b: a if a >= b or b != b else b,  # noqa: PLR0124
}

# Functions of all of an array, and those of two values that are meant.
_OF_ARRAYS: dict[Any, str] = {
    **dict.fromkeys((sum, np.sum), "OpKind.PLUS, np.add or operator.add"),
    **dict.fromkeys((math.prod, np.prod), "OpKind.MULTIPLIES, np.multiply or operator.mul"),
}


def resolve(
    op: Op,
    inputs: Sequence[np.dtype[Any]],
    output: np.dtype[Any],
    parameter: str = "op",
    decided_by: str = "",
    *,
    as_function: bool = False,
) -> Operator:
    """Find out what `op` means for inputs of some types, and an output that its result is converted to.

    Messages name the parameter that it is given as, and what decides the output's type if that may be
    another. With `as_function` it must be a function that is compiled, where CCCL's own operators cannot go.

    Raises
    ------
    TypeError
        If it is no operator, takes another number of arguments, is not defined for the types, or
        depends on something that cannot be told apart by its value.
    """
    try:
        found = _resolved(op, tuple(inputs), output)
        if as_function:
            found = to_function(found)
    except TypeError as error:
        raise type(error)(f"{parameter}: {str(error).removeprefix('op: ')}") from None
    return replace(found, parameter=parameter, decided_by=decided_by)


def _resolved(op: Op, inputs: tuple[np.dtype[Any], ...], output: np.dtype[Any]) -> Operator:
    if isinstance(op, OpKind):
        return _of_kind(op, inputs, output)
    if isinstance(op, RawOp):
        return _raw(op, inputs, output)
    if is_external(op):
        return _function(op, inputs, output)
    if not callable(op):
        raise TypeError(
            "op: expected a function, an OpKind, a RawOp, a ufunc or a function of the module operator, "
            f"got {op!r}"
        )
    try:
        (kind, dtypes), instead = _SAME.get(op, (None, "")), _OF_ARRAYS.get(op)
    except TypeError:  # a callable that cannot be hashed
        kind, dtypes, instead = None, "", None
    if instead is not None and len(inputs) == 2:
        raise TypeError(
            f"op: expected a function of two values, got {op.__name__}, which takes all of them; give "
            f"{instead}"
        )
    if kind is not None and all(structs.kind_of(dtype) in dtypes for dtype in inputs):
        return _of_kind(kind, inputs, output)
    if not (isinstance(op, FunctionType) or compilers_name(op) is not None):
        from ._fingerprint import unsupported

        wrong = unsupported.not_an_operator(op)
        if wrong is not None:
            raise TypeError(f"op: {wrong}")
    _check_arity(op, len(inputs))
    if isinstance(op, np.ufunc) and all(structs.kind_of(dtype) == "f" for dtype in inputs):
        op = _OF_FLOATS.get(op, op)
    found = _function(op, inputs, output)
    refused = "" if found.source is None else found.source.refused or found.source.recursion
    if refused:
        raise TypeError(f"op: {found.described}: {refused}")
    return found


# Functions of two values that are exactly a kind, and the kinds of dtype for which they are. Of floats, a
# minimum is not: with NaN and -0.0 the order of its arguments tells. numba computes with small integers in
# 64 bits and cuts the result, C++ in 32, which is the same.
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
# As they were when cupar was imported: who replaces them means something else.
_BUILTINS = {name: getattr(builtins, name) for name in ("min", "max")}
_KIND_OF_CODE = {
    (pattern.__code__.co_code, pattern.__code__.co_names): (kind, dtypes)
    for kind, (dtypes, patterns) in _PATTERNS.items()
    for pattern in patterns
}


def recognised(op: Op, dtype: np.dtype[Any], refuse: Callable[[Operator], None]) -> Op:
    """Return the kind that a Python function of two values of a dtype is, or the function itself.

    Where CCCL has faster code for a kind, as in scans, a function that says the same gets it too. It is known
    by its bytecode, and so must be one of the few expressions above. `refuse` raises if the function would be
    compiled to something else than what it says.
    """
    if type(op) is not FunctionType:
        return op
    code = op.__code__
    kind, dtypes = _KIND_OF_CODE.get((code.co_code, code.co_names), (None, ""))
    # Constants and variables of a closure would show in the code, but not which parameters are by name. Sums
    # of 16 bits depend on the order so much that CCCL's way with its own plus is not to be taken for another.
    if kind is None or dtype.kind not in dtypes or dtype == np.float16:  # bfloat16 has another kind
        return op
    if code.co_argcount != 2 or code.co_kwonlyargcount:
        return op
    plain = _function(op, (dtype, dtype), dtype)
    refuse(plain)
    found = plain.function
    return kind if all(found.globals[name] is _BUILTINS[name] for name in code.co_names) else op


def _function(op: Callable[..., Any], inputs: tuple[np.dtype[Any], ...], output: np.dtype[Any]) -> Operator:
    try:
        found = walk.fingerprint(op)
    except walk.Unfingerprintable as error:
        raise walk.Unfingerprintable(f"op: {error}") from None
    name = str(getattr(op, "__qualname__", "") or getattr(op, "__name__", "") or repr(op))
    if is_external(op):
        name = _check_external(found, len(inputs))
    plain = Operator(name, inputs, output, None, found.digest.hex(), found, op)
    if not found.captures:
        return plain
    return replace(
        plain,
        captures=found.captures,
        state_size=sum(8 * (1 + capture.ndim) for capture in found.captures),
        state_alignment=8,
        state=CapturedState(found.captures, getattr(op, "py_func", op)),
    )


def _check_external(found: walk.Fingerprint, arity: int) -> str:
    """Return the name of a function that is not in Python; raise TypeError if it takes something else."""
    (function,) = found.externals
    if len(function.arguments) != arity:
        takes = counted(len(function.arguments), "argument")
        raise TypeError(f"op: {function.name} takes {takes}, this algorithm gives it {arity}")
    return function.name


def _raw(op: RawOp, inputs: tuple[np.dtype[Any], ...], output: np.dtype[Any]) -> Operator:
    forwarder, ltoirs = cpp.forwarder(op.name, len(inputs), bool(op.state)), (op.ltoir, *op.extra_ltoirs)
    plain = Operator(op.name, inputs, output, None, op.fingerprint, cpp=forwarder, ltoirs=ltoirs)
    if not op.state:
        return plain
    state = op.state
    return replace(plain, state_size=len(state), state_alignment=op.state_alignment, state=lambda: state)


def _of_kind(kind: OpKind, inputs: tuple[np.dtype[Any], ...], output: np.dtype[Any]) -> Operator:
    traits = _KINDS[kind]
    if traits.arity != len(inputs):
        takes = counted(traits.arity, "argument")
        raise TypeError(f"op: OpKind.{kind.name} takes {takes}, this algorithm gives it {len(inputs)}")
    undefined = {structs.kind_of(dtype) for dtype in inputs} - {*traits.dtypes}
    if "V" in undefined:
        raise TypeError(
            f"op: OpKind.{kind.name} is not defined for structs; write a function of their fields"
        )
    if undefined:
        raise TypeError(f"op: OpKind.{kind.name} is not defined for {', '.join(map(str, inputs))}")
    if kinds.is_uniform(kind.name, inputs, output) or kinds.expression(kind.name, inputs, output):
        return Operator(f"OpKind.{kind.name}", inputs, output, kind, kind.name)
    if traits.function is None:
        raise TypeError(f"op: OpKind.{kind.name} takes and gives one type, not those of {inputs}, {output}")
    return _function(traits.function, inputs, output)


def to_function(op: Operator) -> Operator:
    """Return an operator as a function that is compiled, where none of CCCL's own can go."""
    if not isinstance(op.kind, OpKind) or is_cpu():  # where a kind is a function as any other
        return op
    source = kinds.source(op.kind.name, op.inputs, op.output)
    function = _KINDS[op.kind].function
    if source is not None:  # which needs no numba
        found = cpp_operator(op.name, op.inputs, op.output, source)
    elif function is not None:
        found = _function(function, op.inputs, op.output)
    else:
        raise TypeError(f"op: expected a function, got {op.name}")
    return replace(found, parameter=op.parameter, decided_by=op.decided_by)


def _check_arity(op: Callable[..., Any], arity: int) -> None:
    nin = getattr(op, "nin", None)  # of a ufunc
    function = getattr(op, "py_func", op)  # of a numba function
    code = getattr(function, "__code__", None)
    if nin is not None:
        low, high = nin, nin
    elif code is not None:
        high = code.co_argcount
        low = high - len(function.__defaults__ or ())
        if code.co_flags & 0x04:  # *args
            high = arity
    else:
        return  # numba will say what it makes of it
    if not low <= arity <= high:
        from ._base.causes import place

        name = getattr(op, "__qualname__", repr(op))
        takes = f"{'' if low == high else f'{low} to '}{counted(high, 'positional argument')}"
        raise TypeError(f"op: operator {name}{place(op)} takes {takes}, this algorithm gives it {arity}")
