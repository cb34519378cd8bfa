"""Operators: CCCL's own kinds, and what a user's operator means for given types."""

from __future__ import annotations

import builtins
import hashlib
import math
import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import FunctionType
from typing import Any

import numpy as np

from . import structs
from ._device import arrays
from ._fingerprint import extensions, walk
from ._fingerprint.names import compilers_name
from ._ir import nodes


class OpKind(IntEnum):
    """The operators that CCCL knows by name, and for some of which it has faster code.

    Values are those of CCCL's C interface (``cccl_op_kind_t``). `MINIMUM` and `MAXIMUM` follow C++
    (``b < a ? b : a`` and ``a < b ? b : a``), so what they make of a NaN depends on where it stands;
    ``np.minimum`` and ``np.maximum`` propagate it. `DIVIDES` and `MODULUS` of integers truncate towards
    zero, as in C.
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
    """An operator in LTO-IR of your own, made by nvcc or NVRTC with ``-dlto``, from C++ or whatever else.

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
        digest = hashlib.sha256(self.name.encode())
        for code in (self.ltoir, *self.extra_ltoirs):
            digest.update(hashlib.sha256(code).digest())
        return digest.hexdigest()


Op = OpKind | RawOp | Callable[..., Any]

_UNARY = {OpKind.LOGICAL_NOT, OpKind.BIT_NOT, OpKind.IDENTITY, OpKind.NEGATE}
_COMPARISONS = {
    OpKind.EQUAL_TO,
    OpKind.NOT_EQUAL_TO,
    OpKind.GREATER,
    OpKind.LESS,
    OpKind.GREATER_EQUAL,
    OpKind.LESS_EQUAL,
    OpKind.LOGICAL_AND,
    OpKind.LOGICAL_OR,
    OpKind.LOGICAL_NOT,
}
_INTEGERS_ONLY = {OpKind.MODULUS, OpKind.BIT_AND, OpKind.BIT_OR, OpKind.BIT_XOR, OpKind.BIT_NOT}
_ORDERED_ONLY = {
    OpKind.GREATER,
    OpKind.LESS,
    OpKind.GREATER_EQUAL,
    OpKind.LESS_EQUAL,
    OpKind.MINIMUM,
    OpKind.MAXIMUM,
}

# Functions that are exactly a kind, and the kinds of dtype for which they are.
_SAME: dict[Any, tuple[OpKind, str]] = {
    operator.add: (OpKind.PLUS, "biufc"),
    operator.sub: (OpKind.MINUS, "iufc"),
    operator.mul: (OpKind.MULTIPLIES, "biufc"),
    operator.truediv: (OpKind.DIVIDES, "fc"),
    operator.eq: (OpKind.EQUAL_TO, "biufc"),
    operator.ne: (OpKind.NOT_EQUAL_TO, "biufc"),
    operator.gt: (OpKind.GREATER, "biuf"),
    operator.lt: (OpKind.LESS, "biuf"),
    operator.ge: (OpKind.GREATER_EQUAL, "biuf"),
    operator.le: (OpKind.LESS_EQUAL, "biuf"),
    operator.and_: (OpKind.BIT_AND, "biu"),
    operator.or_: (OpKind.BIT_OR, "biu"),
    operator.xor: (OpKind.BIT_XOR, "biu"),
    operator.invert: (OpKind.BIT_NOT, "iu"),
    operator.not_: (OpKind.LOGICAL_NOT, "biuf"),
    operator.neg: (OpKind.NEGATE, "iuf"),
    np.add: (OpKind.PLUS, "biufc"),
    np.subtract: (OpKind.MINUS, "iufc"),
    np.multiply: (OpKind.MULTIPLIES, "biufc"),
    np.true_divide: (OpKind.DIVIDES, "fc"),
    np.equal: (OpKind.EQUAL_TO, "biufc"),
    np.not_equal: (OpKind.NOT_EQUAL_TO, "biufc"),
    np.greater: (OpKind.GREATER, "biuf"),
    np.less: (OpKind.LESS, "biuf"),
    np.greater_equal: (OpKind.GREATER_EQUAL, "biuf"),
    np.less_equal: (OpKind.LESS_EQUAL, "biuf"),
    np.logical_and: (OpKind.LOGICAL_AND, "biufc"),
    np.logical_or: (OpKind.LOGICAL_OR, "biufc"),
    np.logical_not: (OpKind.LOGICAL_NOT, "biuf"),
    np.bitwise_and: (OpKind.BIT_AND, "biu"),
    np.bitwise_or: (OpKind.BIT_OR, "biu"),
    np.bitwise_xor: (OpKind.BIT_XOR, "biu"),
    np.invert: (OpKind.BIT_NOT, "iu"),
    np.negative: (OpKind.NEGATE, "iuf"),
    # Of floats, these do with NaN what no kind does.
    np.minimum: (OpKind.MINIMUM, "biu"),
    np.maximum: (OpKind.MAXIMUM, "biu"),
    np.fmin: (OpKind.MINIMUM, "biu"),
    np.fmax: (OpKind.MAXIMUM, "biu"),
}

# What they do with it, written out since numba has these ufuncs not for float16.
_OF_FLOATS: dict[Any, Callable[..., Any]] = {
    np.minimum: lambda a, b: a if a < b or a != a else b,  # noqa: PLR0124
    np.maximum: lambda a, b: a if a > b or a != a else b,  # noqa: PLR0124
    np.fmin: lambda a, b: a if a <= b or b != b else b,  # noqa: PLR0124
    np.fmax: lambda a, b: a if a >= b or b != b else b,  # noqa: PLR0124
}

# What numba.cuda does not have for floats under NumPy's name.
_UNDER_ANOTHER_NAME: dict[Any, Callable[..., Any]] = {
    np.sqrt: math.sqrt,
    np.exp: math.exp,
    np.absolute: abs,
}

# What numba compiles where CCCL has the kind but not for the type.
_AS_FUNCTION: dict[OpKind, Callable[..., Any]] = {
    OpKind.PLUS: operator.add,
    OpKind.MINUS: operator.sub,
    OpKind.MULTIPLIES: operator.mul,
    OpKind.DIVIDES: operator.truediv,
    OpKind.EQUAL_TO: operator.eq,
    OpKind.NOT_EQUAL_TO: operator.ne,
    OpKind.GREATER: operator.gt,
    OpKind.LESS: operator.lt,
    OpKind.GREATER_EQUAL: operator.ge,
    OpKind.LESS_EQUAL: operator.le,
    OpKind.LOGICAL_AND: lambda a, b: a != 0 and b != 0,
    OpKind.LOGICAL_OR: lambda a, b: a != 0 or b != 0,
    OpKind.LOGICAL_NOT: lambda a: a == 0,
    OpKind.BIT_AND: operator.and_,
    OpKind.BIT_OR: operator.or_,
    OpKind.BIT_XOR: operator.xor,
    OpKind.BIT_NOT: operator.invert,
    OpKind.IDENTITY: lambda a: a,
    OpKind.NEGATE: operator.neg,
    OpKind.MINIMUM: lambda a, b: b if b < a else a,
    OpKind.MAXIMUM: lambda a, b: b if a < b else a,
}

_RANK = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


def convertible(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Tell whether values are converted silently: within a kind of number or to a larger kind, or to bool.

    As with NumPy's ``"same_kind"`` casting, float to integer and complex to real are not; as in C, any
    number that is not complex becomes a bool by asking whether it is zero. A struct is taken for another one
    of the same layout.
    """
    if source.names is not None or target.names is not None:
        return structs.layout(source) == structs.layout(target)
    if target.kind == "b":
        return source.kind != "c"
    return _RANK[source.kind] <= _RANK[target.kind]


class ResultError(TypeError):
    """What an operator returns is not converted to the type that is needed."""


@dataclass(frozen=True)
class Operator:
    """An operator for given types: a kind that CCCL has for them, a Python function, or C++ and LTO-IR.

    Attributes
    ----------
    name : str
        For messages.
    inputs, output : dtypes
        Its signature. The result of a function is converted to `output`.
    kind : OpKind or None
        Set if CCCL's own operator serves.
    fingerprint : str
        What it does: the kind's name, or the SHA-256 of all that the function depends on, or of the LTO-IR.
    source : Fingerprint or None
        Set if numba compiles it: its fingerprint, with the frozen copy that is compiled.
    user : callable or None
        What the user gave, which may have changed since.
    cpp : str or None
        Set if it is C++: the definition of a function that stands as ``SYMBOL`` there.
    ltoirs : tuple of bytes
        What that calls.
    captures : tuple of Capture
        Device arrays that `function` reads or updates.
    state_size, state_alignment : int
        Of what is handed to it in each call, in bytes; a size of 0 if it has no state.
    state : callable or None
        Returns that, for the next call.
    parameter, decided_by : str
        For messages: the parameter that it was given as, and what decides the type of its result; the latter
        is empty if that is always the same.
    """

    name: str = field(compare=False)
    inputs: tuple[np.dtype[Any], ...]
    output: np.dtype[Any]
    kind: OpKind | None
    fingerprint: str
    source: walk.Fingerprint | None = field(default=None, compare=False)
    user: Any = field(default=None, compare=False, repr=False)
    cpp: str | None = field(default=None, compare=False)
    ltoirs: tuple[bytes, ...] = field(default=(), compare=False, repr=False)
    captures: tuple[walk.Capture, ...] = ()
    state_size: int = 0
    state_alignment: int = 1
    state: Callable[[], bytes] | None = field(default=None, compare=False)
    parameter: str = field(default="op", compare=False)
    decided_by: str = field(default="", compare=False)

    @property
    def described(self) -> str:
        """Its name and where it is defined, for messages."""
        from ._compile import diagnosis

        return f"operator {self.name}{diagnosis.place(self.user)}"

    @property
    def function(self) -> Any:
        """What numba compiles, as it was when it was asked for; None if numba compiles nothing."""
        return None if self.source is None else self.source.frozen

    @property
    def signature(self) -> str:
        """The types as text, as in ``(int32, int32) -> int32``."""
        return f"({', '.join(map(structs.text, self.inputs))}) -> {structs.text(self.output)}"

    def check_result(self, result: Any) -> None:
        """Raise ResultError unless a result of this type may be converted to the output.

        Parameters
        ----------
        result : numpy.dtype, or something else that is no number or struct
        """
        returned = structs.text(result) if isinstance(result, np.dtype) else _diagnosed(result)
        does = f"{self.parameter}: {self.described} for {self.signature} returns {returned}"
        if not isinstance(result, np.dtype) or (result.names is None) != (self.output.names is None):
            expected = f"expected a {'number' if self.output.names is None else 'struct'}"
            forgets = returned.endswith("None")
            raise ResultError(f"{does}, {expected}{': a `return` is missing' if forgets else ''}")
        if not _fits(result, self.output):
            other = f", or let {self.decided_by} be {returned}" if self.decided_by else ""
            raise ResultError(
                f"{does}, which is not converted to {structs.text(self.output)} silently: convert it in the "
                f"operator{other}"
            )

    def as_function(self, parameter: str) -> Operator:
        """Return it as a function that is compiled, where CCCL's own operators cannot go."""
        if self.kind is None:
            return self
        if self.kind not in _AS_FUNCTION:
            raise TypeError(f"{parameter}: expected a function, got OpKind.{self.kind.name}")
        function = _in_cpp(self.kind, self.inputs, self.output) or _function(
            _AS_FUNCTION[self.kind], self.inputs, self.output
        )
        return replace(function, parameter=self.parameter, decided_by=self.decided_by)

    def without_user(self) -> Operator:
        """Return it without what keeps the user's function, and so the arrays in its closure, alive."""
        return replace(self, source=None, user=None, cpp=None, ltoirs=(), state=None)


def _diagnosed(result: Any) -> str:
    """Return numba's name of a type that no array has, as users know it."""
    from ._compile import diagnosis

    return diagnosis.types(str(result))


def _fits(result: np.dtype[Any], output: np.dtype[Any]) -> bool:
    """Tell whether a result is converted silently: a struct or tuple field by field."""
    if result.names is None or output.names is None:
        return convertible(result, output)
    fields = zip(result.names, output.names, strict=False)
    return len(result.names) == len(output.names) and all(_fits(result[a], output[b]) for a, b in fields)


def resolve(
    op: Op,
    inputs: Sequence[np.dtype[Any]],
    output: np.dtype[Any],
    parameter: str = "op",
    decided_by: str = "",
) -> Operator:
    """Find out what `op` means for these types.

    Parameters
    ----------
    op : OpKind, RawOp or callable
        A kind, LTO-IR, a Python function, a numba device function, or a function of `operator` or ufunc.
    inputs : sequence of numpy.dtype
        The types of its arguments, all of them numbers.
    output : numpy.dtype
        The type its result is converted to.
    parameter, decided_by : str, optional
        For messages: the parameter that it is given as, and what decides `output` if it may be another.

    Raises
    ------
    TypeError
        If it is none of these, takes another number of arguments, is not defined for the types, or
        depends on something that cannot be told apart by its value.
    """
    try:
        found = _resolved(op, tuple(inputs), output)
    except TypeError as error:
        raise type(error)(f"{parameter}: {str(error).removeprefix('op: ')}") from None
    return replace(found, parameter=parameter, decided_by=decided_by)


def _resolved(op: Op, inputs: tuple[np.dtype[Any], ...], output: np.dtype[Any]) -> Operator:
    if isinstance(op, OpKind):
        return _known(op, inputs, output)
    if isinstance(op, RawOp):
        return _raw(op, inputs, output)
    if not callable(op):
        raise TypeError(
            "op: expected a function, an OpKind, a RawOp, a ufunc or a function of the module operator, "
            f"got {op!r}"
        )
    try:
        kind, dtypes = _SAME.get(op, (None, ""))
    except TypeError:  # a callable that cannot be hashed
        kind, dtypes = None, ""
    if len(inputs) == 2:
        _refuse_of_arrays(op)
    if kind is not None and all(dtype.kind in dtypes for dtype in inputs):
        return _known(kind, inputs, output)
    if not (isinstance(op, FunctionType) or compilers_name(op) is not None):
        from ._fingerprint import unsupported

        wrong = unsupported.not_an_operator(op)
        if wrong is not None:
            raise TypeError(f"op: {wrong}")
    _check_arity(op, len(inputs))
    if isinstance(op, np.ufunc) and all(dtype.kind == "f" for dtype in inputs):
        op = _OF_FLOATS.get(op) or _UNDER_ANOTHER_NAME.get(op, op)
    found = _function(op, inputs, output)
    if found.source is not None and found.source.refused:
        raise TypeError(f"op: {found.described}: {found.source.refused}")
    return found


# Functions of all of an array, and those of two values that are meant.
_OF_ARRAYS = (
    (sum, "OpKind.PLUS, np.add or operator.add"),
    (np.sum, "OpKind.PLUS, np.add or operator.add"),
    (math.prod, "OpKind.MULTIPLIES, np.multiply or operator.mul"),
    (np.prod, "OpKind.MULTIPLIES, np.multiply or operator.mul"),
)


def _refuse_of_arrays(op: Any) -> None:
    for function, instead in _OF_ARRAYS:
        if op is function:
            raise TypeError(
                f"op: expected a function of two values, got {op.__name__}, which takes all of them; give "
                f"{instead}"
            )


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


def recognised(op: Op, dtype: np.dtype[Any]) -> Op:
    """Return the kind that a Python function of two values of a dtype is, or the function itself.

    Where CCCL has faster code for a kind, as in scans, a function that says the same gets it too. It is known
    by its bytecode, and so must be one of the few expressions above.
    """
    if type(op) is not FunctionType:
        return op
    code = op.__code__
    kind, dtypes = _KIND_OF_CODE.get((code.co_code, code.co_names), (None, ""))
    # Constants and variables of a closure would show in the code, but not which parameters are by name. Sums
    # of float16 depend on the order so much that CCCL's way with its own plus is not to be taken for another.
    if kind is None or dtype.kind not in dtypes or dtype == np.float16:
        return op
    if code.co_argcount != 2 or code.co_kwonlyargcount:
        return op
    found = _function(op, (dtype, dtype), dtype).function
    return kind if all(found.globals[name] is _BUILTINS[name] for name in code.co_names) else op


def _function(op: Callable[..., Any], inputs: tuple[np.dtype[Any], ...], output: np.dtype[Any]) -> Operator:
    try:
        found = walk.fingerprint(op)
    except walk.Unfingerprintable as error:
        raise walk.Unfingerprintable(f"op: {error}") from None
    name = str(getattr(op, "__qualname__", "") or getattr(op, "__name__", repr(op)))
    plain = Operator(name, inputs, output, None, found.digest.hex(), found, op)
    if extensions.foreign().may_be_used:
        _refuse_extended(plain)
    if not found.captures:
        return plain
    function = getattr(op, "py_func", op)
    size = sum(8 * (1 + capture.ndim) for capture in found.captures)
    return replace(
        plain,
        captures=found.captures,
        state_size=size,
        state_alignment=8,
        state=CapturedState(found.captures, function),
    )


def _refuse_extended(op: Operator) -> None:
    """Refuse an operator whose code uses what others have registered with numba; to find out, compile it."""
    from . import _build

    _build.refuse_extended(op)


class CapturedState:
    """What an operator has captured: called, it returns where the arrays are now.

    Parameters
    ----------
    captures : sequence of Capture
    function : function
        The operator.
    """

    def __init__(self, captures: Sequence[walk.Capture], function: Any) -> None:
        self._captures, self._function = captures, function

    def __call__(self) -> bytes:
        """Return their addresses and shapes."""
        return b"".join(_captured(capture, self._function) for capture in self._captures)

    def arrays(self) -> list[Any]:
        """Return the arrays themselves, for who must keep them alive."""
        return [capture.of(self._function) for capture in self._captures]


def _captured(capture: walk.Capture, function: Any) -> bytes:
    """Return the address and the shape of an array that an operator has captured, as they are now."""
    name = f"op: captured array {capture.name!r}"
    try:
        array = capture.of(function)
    except (KeyError, ValueError):
        raise TypeError(
            f"{name}: expected the device array that was there, got nothing: it is gone"
        ) from None
    address = arrays.address(name, array, capture.dtype, 0, False, c_order=True)
    shape = arrays.shape(array)
    if len(shape) != capture.ndim:
        raise ValueError(f"{name}: this algorithm was built for {capture.ndim} dimensions, got {len(shape)}")
    return struct.pack(f"=Q{len(shape)}q", address, *shape)


def _raw(op: RawOp, inputs: tuple[np.dtype[Any], ...], output: np.dtype[Any]) -> Operator:
    cpp = nodes.forwarder_source(op.name, len(inputs), bool(op.state))
    plain = Operator(
        op.name, inputs, output, None, op.fingerprint, cpp=cpp, ltoirs=(op.ltoir, *op.extra_ltoirs)
    )
    if not op.state:
        return plain
    state = op.state
    return replace(plain, state_size=len(state), state_alignment=op.state_alignment, state=lambda: state)


def cpp_operator(
    name: str,
    inputs: tuple[np.dtype[Any], ...],
    output: np.dtype[Any],
    source: str,
    *,
    state_size: int = 0,
    state_alignment: int = 1,
) -> Operator:
    """Return an operator of cupar's own, in C++, whose state, if it has one, its algorithm sets."""
    fingerprint = hashlib.sha256(source.encode()).hexdigest()
    return Operator(
        name,
        inputs,
        output,
        None,
        fingerprint,
        cpp=source,
        state_size=state_size,
        state_alignment=state_alignment,
    )


def _known(kind: OpKind, inputs: tuple[np.dtype[Any], ...], output: np.dtype[Any]) -> Operator:
    arity = 1 if kind in _UNARY else 2
    if arity != len(inputs):
        takes = f"takes {arity} argument{'s' * (arity > 1)}"
        raise TypeError(f"op: OpKind.{kind.name} {takes}, this algorithm gives it {len(inputs)}")
    letters = {dtype.kind for dtype in inputs}
    if "V" in letters and kind is not OpKind.IDENTITY:
        raise TypeError(
            f"op: OpKind.{kind.name} is not defined for structs; write a function of their fields"
        )
    if (kind in _INTEGERS_ONLY and letters & {"f", "c"}) or (kind in _ORDERED_ONLY and "c" in letters):
        raise TypeError(f"op: OpKind.{kind.name} is not defined for {', '.join(map(str, inputs))}")
    # CCCL's own operators take the types of C++ alone, and give what they take, or a bool if they compare.
    given = np.dtype(bool) if kind in _COMPARISONS else inputs[0]
    if letters & {"c", "V"} or len(set(inputs)) > 1 or output != given:
        if kind not in _AS_FUNCTION:
            raise TypeError(
                f"op: OpKind.{kind.name} takes and gives one type, not those of {inputs}, {output}"
            )
        return _in_cpp(kind, inputs, output) or _function(_AS_FUNCTION[kind], inputs, output)
    return Operator(f"OpKind.{kind.name}", inputs, output, kind, kind.name)


def _in_cpp(kind: OpKind, inputs: tuple[np.dtype[Any], ...], output: np.dtype[Any]) -> Operator | None:
    """Return a kind as a function that needs no numba; None if there is none for the types."""
    if output.kind != "b" or len(set(inputs)) > 1:
        return None

    from ._ir import kinds

    source = kinds.source(kind.name, len(inputs), inputs[0])
    return None if source is None else cpp_operator(f"OpKind.{kind.name}", inputs, output, source)


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
        from ._base.words import counted
        from ._compile import diagnosis

        name = getattr(op, "__qualname__", repr(op))
        takes = f"{'' if low == high else f'{low} to '}{counted(high, 'positional argument')}"
        raise TypeError(
            f"op: operator {name}{diagnosis.place(op)} takes {takes}, this algorithm gives it {arity}"
        )
