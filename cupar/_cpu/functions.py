"""Functions of `math` that numba has on GPUs alone, or whose result has another type there.

Operators use these instead of Python's; numba's own registries are unchanged.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from .._numba_cpu import get_or_insert_function, intrinsic, ir, types

_Emit = Callable[[Any, Any, list[Any]], Any]  # of the target context, the builder and values of one type


# Types of arguments for which numba.cuda computes in float32: of `math.fmod` and `math.remainder`, and of
# functions that round.
_SMALL = (types.float32, types.boolean, types.int8, types.uint8, types.int16)
_SINGLE = (types.float32,)


def _function(emit: _Emit, arity: int, single: tuple[Any, ...], results: int = 1) -> Any:
    """Return a function of floats for numba, for which LLVM's code is written.

    It computes in float32 if all arguments have one of the types `single`, else in float64.
    """

    def typed(*kinds: Any) -> Any:
        if not all(isinstance(kind, (types.Boolean, types.Integer, types.Float)) for kind in kinds):
            return None
        own = types.float32 if all(types.unliteral(kind) in single for kind in kinds) else types.float64
        result = own if results == 1 else types.UniTuple(own, results)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            pairs = zip(values, signature.args, strict=True)
            found = emit(context, builder, [context.cast(builder, each, kind, own) for each, kind in pairs])
            return found if results == 1 else context.make_tuple(builder, result, found)

        return result(*kinds), generate

    signatures = (
        lambda typing, a: typed(a),
        lambda typing, a, b: typed(a, b),
    )  # numba inspects the signature
    return intrinsic(signatures[arity - 1])


def _called(name: str, context: Any, builder: Any, values: list[Any]) -> Any:
    """Call a function of C's library."""
    kind = values[0].type
    name = name if kind == ir.DoubleType() else f"{name}f"
    function = get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * len(values)), name)
    return builder.call(function, values)


def _intrinsic(name: str, context: Any, builder: Any, values: list[Any]) -> Any:
    kind = values[0].type
    whole = ir.FunctionType(kind, [kind] * len(values))
    return builder.call(builder.module.declare_intrinsic(f"llvm.{name}", [kind], whole), values)


def _modf(context: Any, builder: Any, values: list[Any]) -> list[Any]:
    (value,) = values
    whole = _intrinsic("trunc", context, builder, values)
    is_whole = builder.fcmp_ordered("==", value, whole)  # as an infinity is
    fraction = builder.select(is_whole, value.type(0.0), builder.fsub(value, whole))
    return [_intrinsic("copysign", context, builder, [fraction, value]), whole]


FUNCTIONS: dict[Any, Any] = {
    math.fmod: _function(lambda context, builder, values: builder.frem(*values), 2, _SMALL),
    math.remainder: _function(functools.partial(_called, "remainder"), 2, _SMALL),
    math.modf: _function(_modf, 1, _SINGLE, results=2),
    math.floor: _function(functools.partial(_intrinsic, "floor"), 1, _SINGLE),
    math.ceil: _function(functools.partial(_intrinsic, "ceil"), 1, _SINGLE),
    math.trunc: _function(functools.partial(_intrinsic, "trunc"), 1, _SINGLE),
}
