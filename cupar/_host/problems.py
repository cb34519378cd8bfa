"""Problems of algorithms in compiled code: numba compiles the functions that make them, unchanged.

A call of compiled code has checked all numbers by then, and given them a type: so the twins of functions that
check a number return it, and `refuse` raises errors with constant messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .._arguments import double_buffer, numbers
from .._device import arrays
from .._kernels import histogram
from .._numba_cpu import (
    AbstractTemplate,
    as_dtype,
    cgutils,
    errors,
    infer_global,
    lower_builtin,
    overload,
    signature,
    types,
)
from .arguments import refusal
from .view_types import ViewType

# As lowered calls: an overload of each would be a function more to compile.


@infer_global(numbers.refuse)
class _Refuse(AbstractTemplate):  # type: ignore[misc]
    prefer_literal = True

    def generic(self, given: Any, named: Any) -> Any:
        """Return the signature of a call."""
        return signature(types.none, *given)


@lower_builtin(numbers.refuse, types.VarArg(types.Any))
def _refuse(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    message = ": ".join(each.literal_value for each in signature.args[:2])
    with builder.if_then(cgutils.true_bit, likely=False):  # what follows has a block of its own
        context.call_conv.return_user_exc(builder, ValueError, (message,))
    return context.get_dummy_value()


def _returns_value(function: Any) -> None:
    """Have calls ``function(name, value, …)`` be their value."""

    class Template(AbstractTemplate):  # type: ignore[misc]
        def generic(self, given: Any, named: Any) -> Any:
            """Return the signature of a call."""
            return signature(types.unliteral(given[1]), *given)

    infer_global(function)(Template)
    lower_builtin(function, types.VarArg(types.Any))(lambda context, builder, signature, values: values[1])


for _each in (numbers.item_count, numbers.scalar, numbers.level):
    _returns_value(_each)


@overload(histogram.word, strict=False)
def _word(level: Any) -> Any:
    if isinstance(level, types.Integer):
        return lambda level: types.int64(level)  # noqa: PLW0108 - as numba wants it
    return lambda level: level


@overload(histogram.overflows, strict=False)
def _overflows(low: Any, high: Any, bins: Any) -> Any:
    def overflows(low, high, bins):  # type: ignore[no-untyped-def]
        width, most = types.uint64(high) - types.uint64(low), types.uint64(0xFFFFFFFFFFFFFFFF)
        return width > types.uint64(0x7FFFFFFFFFFFFFFF) or width > most // types.uint64(bins)

    return overflows


@overload(arrays.length, strict=False)
def _length(array: Any) -> Any:
    if isinstance(array, ViewType):
        return lambda array: types.int64(array.size)
    return lambda array: 0


@overload(double_buffer.buffers, strict=False)
def _buffers(d_in_keys: Any, d_in_values: Any) -> Any:
    return lambda d_in_keys, d_in_values: ()  # compiled code takes no double buffers


def number(name: str, given: Mapping[str, Any], dtype: np.dtype[Any], lines: list[str]) -> str:
    """Check a number, or an array of one element; return its expression in a dtype."""
    kind, value = given[name], name
    if isinstance(kind, types.Array):
        lines.append(refusal(f"{name}.size != 1", f"{name}: expected a number or an array of one element"))
        kind, value = kind.dtype, f"{name}.item()"
    found = as_dtype(kind) if isinstance(kind, (types.Number, types.Boolean)) else np.dtype(object)
    if found.kind not in ("biuf" if dtype.kind == "f" else "biu"):
        expected = "a real number" if dtype.kind == "f" else "an integer"
        raise errors.TypingError(f"{name}: expected {expected}, or a NumPy array of one, got {given[name]}")
    if {found.kind, dtype.kind} == {"i", "u"} and found.itemsize >= (8 if found.kind == "u" else 0):
        wrong = f"{value} {'< 0' if found.kind == 'i' else '> _uint64(9223372036854775807)'}"
        lines.append(refusal(wrong, f"{name}: {dtype} cannot hold it"))
    return f"_{dtype.name}({value})"
