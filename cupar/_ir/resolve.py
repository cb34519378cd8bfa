"""Resolution of operators: from a user's argument to an `Operator` for given types."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import numpy as np
from cachetools import LRUCache

from .. import structs
from .._base.bounded import Bounded, of_builds
from .._base.data import replace
from .._base.errors import ArgumentTypeError, of_parameter
from .._base.words import counted
from .._fingerprint import walk
from .._fingerprint.frozen import FrozenFunction
from .._fingerprint.numbers import Number, chosen, packed, type_of
from ..operators import Op, OpKind, RawOp
from . import kinds
from .operator import CapturedState, FixedState, Operator

# Functions of NumPy on floats that numba.cuda lacks under NumPy's name. Minima and maxima handle NaN
# explicitly, because numba lacks these for float16.
_OF_FLOATS: dict[Any, Callable[..., Any]] = {
    np.sqrt: math.sqrt,
    np.exp: math.exp,
    np.absolute: abs,
    np.minimum: lambda a, b: a if a < b or a != a else b,  # noqa: PLR0124
    np.maximum: lambda a, b: a if a > b or a != a else b,  # noqa: PLR0124
    np.fmin: lambda a, b: a if a <= b or b != b else b,  # noqa: PLR0124
    np.fmax: lambda a, b: a if a >= b or b != b else b,  # noqa: PLR0124
}

# Functions that take a whole array, and the operator on two values that was meant.
_OF_ARRAYS: dict[Any, str] = {
    **dict.fromkeys((sum, np.sum), "OpKind.PLUS, np.add or operator.add"),
    **dict.fromkeys((math.prod, np.prod), "OpKind.MULTIPLIES, np.multiply or operator.mul"),
}

# Taken at import: code that replaces them later means something else.
_BUILTINS = {name: getattr(builtins, name) for name in ("min", "max")}


# Functions with numbers as arguments, by digests, which tell all but the values of these.
_parametrised: Bounded[Any] = of_builds(Bounded(partial(LRUCache, 256)))


def resolve(
    op: Op | None,
    inputs: Sequence[np.dtype[Any]],
    output: np.dtype[Any],
    parameter: str = "op",
    decided_by: str = "",
    *,
    as_function: bool = False,
    recognise: bool = False,
) -> Operator:
    """Resolve an operator for inputs of some types, and an output to which its result is converted.

    Parameters
    ----------
    op : callable, OpKind or RawOp
    inputs, output : dtypes
    parameter, decided_by : str
        For messages: the parameter it is given as, and what decides the output's type if that may change.
    as_function : bool
        The caller needs a function that is compiled, and cannot use CCCL's own operators.
    recognise : bool
        CCCL has faster code for some kinds, so a Python function that says the same becomes that kind.

    Raises
    ------
    TypeError
        If it is no operator, takes another number of arguments, is not defined for the types, or
        depends on something that has no exact encoding.
    """
    types = tuple(inputs)
    make = partial(
        Operator, inputs=types, output=output, kind=None, parameter=parameter, decided_by=decided_by
    )
    try:
        kind = kinds.kind_of(op, types, recognise)
        found: Any = op if kind is None else kinds.resolve(kind, types, output, as_function, make)
        if isinstance(op, RawOp):
            return _of_raw(op, make, len(types))
        is_python = isinstance(op, FunctionType)
        if isinstance(found, Operator) and not is_python:
            return found
        function: Any = op if is_python else found
        plain = _of_function(function, types, make)
    except TypeError as error:
        raise of_parameter(parameter, error) from None
    if isinstance(found, Operator) and _means_builtins(plain.function):
        return replace(found, plain=plain)
    return plain


def function_of(op: Op) -> Any:
    """Return an `OpKind` or a ufunc as a device function; other operators are returned unchanged."""
    if not isinstance(op, (OpKind, np.ufunc)):
        return op
    if op in _OF_FLOATS:
        return _OF_FLOATS[op]
    kind = op if isinstance(op, OpKind) else kinds.SAME.get(op, (None, ""))[0]
    found = op if kind is None else kinds.TRAITS[kind].function
    if found is None:
        raise ArgumentTypeError("op", f"{op!r} has no function in Python")
    return found


def _means_builtins(function: FrozenFunction) -> bool:
    """Whether the globals that a function reads are Python's own `min` and `max`."""
    return all(value is _BUILTINS.get(name) for name, value in function.globals.items())


def _of_function(
    op: Callable[..., Any], inputs: tuple[np.dtype[Any], ...], make: Callable[..., Operator]
) -> Operator:
    """Return the operator of a function that numba compiles."""
    arity = len(inputs)
    try:
        instead = _OF_ARRAYS.get(op) if arity == 2 else None
        if isinstance(op, np.ufunc) and all(structs.kind_of(dtype) == "f" for dtype in inputs):
            op = _OF_FLOATS.get(op, op)
    except TypeError:  # a callable that cannot be hashed
        instead = None
    if instead is not None:
        raise TypeError(
            f"expected a function of two values, got {op.__name__}, which takes all of them; give {instead}"
        )
    _check_arity(op, arity)
    found = walk.fingerprint(op)
    name = str(getattr(op, "__qualname__", "") or getattr(op, "__name__", "") or repr(op))
    for function in found.externals:
        if function is found.frozen:  # the operator itself is not in Python
            name = function.name
            if len(function.arguments) != arity:
                raise TypeError(_takes(name, counted(len(function.arguments), "argument"), arity))
    digest = found.digest.hex()
    made = make(name, fingerprint=digest, source=found, user=op, captures=found.captures)
    refused = found.refused or found.recursion
    if refused:
        raise TypeError(f"{made.described}: {refused}")
    return _with_numbers(made) if found.numbers else with_arguments(made, ())


def _with_numbers(made: Operator) -> Operator:
    """Return the operator of a function that reads numbers: some of these may be arguments."""
    source: Any = made.source
    choice = chosen()
    arguments: dict[int, bool]  # by index: whether something is divided by it
    if choice is None:
        from .. import _which_are_arguments  # of the package itself, since numba's types are in a room above

        arguments = _which_are_arguments(made)
    else:
        may = [i for i, each in enumerate(source.numbers) if type_of(each.value) is not None]
        arguments = {i: False for i in choice.get(made.parameter, ()) if i in may}
    op = with_arguments(made, [source.numbers[i] for i in arguments])
    op = replace(op, arguments=tuple(arguments)) if arguments else op
    constants = walk.constants_of_trace()
    if constants is not None:
        from .._fingerprint.varying import Argument, place_of

        places = [place_of(made.user, source, each) for each in source.numbers]
        constants.update([each for i, each in enumerate(places) if i not in arguments])
        if isinstance(op.state, FixedState):
            types = zip(arguments.items(), op.numbers, strict=True)
            op.state.arguments = tuple([Argument(places[i], of, divides) for (i, divides), of in types])
    return op


def with_arguments(made: Operator, numbers: Sequence[Number]) -> Operator:
    """Return the operator of a function with its captured arrays, and these numbers, as arguments.

    Its fingerprint has the types of these numbers in place of the values.

    Raises
    ------
    TypeError
        If its code cannot be made so.
    """
    found: Any = made.source
    if not found.captures and not numbers:
        return made
    from .parameters import parametrised

    types: list[Any] = [type_of(each.value) for each in numbers]
    data = b"".join([packed(each.value, of) for each, of in zip(numbers, types, strict=True)])
    arity = len(made.inputs)
    if numbers:
        source = found.with_arguments(numbers)
        frozen = _parametrised.get((source.digest, arity))
        if frozen is None:
            frozen = _parametrised[source.digest, arity] = parametrised(found, arity, numbers)
    else:
        source, frozen = found, parametrised(found, arity)
    function = getattr(made.user, "py_func", made.user)
    return replace(
        made,
        fingerprint=source.digest.hex(),
        source=replace(source, frozen=frozen),
        numbers=tuple(types),
        state_size=sum(8 * (1 + capture.ndim) for capture in found.captures) + len(data),
        state_alignment=8,
        state=CapturedState(found.captures, function, data) if found.captures else FixedState(data),
    )


def _of_raw(op: RawOp, make: Callable[..., Operator], arity: int) -> Operator:
    """Return the operator of a user's LTO-IR, which a C++ function ``SYMBOL`` calls.

    The user's name stays behind cupar's: one that CUB's headers know, such as ``half``, would not compile.
    """
    names = [f"a{i}" for i in range(bool(op.state) + arity + 1)]
    parameters = ", ".join(f"void* {name}" for name in names)
    cpp = (
        f'extern "C" __device__ void {op.name}({", ".join(["void*"] * len(names))});\n'
        f'extern "C" __device__ void SYMBOL({parameters}) {{\n'
        f"  {op.name}({', '.join(names)});\n}}\n"
    )
    state: dict[str, Any] = {}
    if op.state:
        state["state_size"], state["state_alignment"] = len(op.state), op.state_alignment
        state["state"] = partial(bytes, op.state)
    return make(op.name, fingerprint=op.fingerprint, cpp=cpp, ltoirs=(op.ltoir, *op.extra_ltoirs), **state)


def _check_arity(op: Callable[..., Any], arity: int) -> None:
    """Raise TypeError if a function in Python or a ufunc takes another number of arguments."""
    nin = getattr(op, "nin", None)  # of a ufunc
    function = getattr(op, "py_func", op)  # of a numba function
    code = getattr(function, "__code__", None)
    if nin is not None:
        low, high = nin, nin
    elif code is not None and not isinstance(op, MethodType):
        high = code.co_argcount
        low = high - len(function.__defaults__ or ())
        if code.co_flags & 0x04:  # *args
            high = arity
    else:
        return  # its fingerprint or numba reports the error
    if not low <= arity <= high:
        from .._base.causes import place

        name = f"operator {getattr(op, '__qualname__', repr(op))}{place(op)}"
        number = f"{'' if low == high else f'{low} to '}{counted(high, 'positional argument')}"
        raise TypeError(_takes(name, number, arity))


def _takes(name: str, number: str, arity: int) -> str:
    return f"{name} takes {number}, this algorithm gives it {arity}"
