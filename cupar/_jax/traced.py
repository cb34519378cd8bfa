"""Functions that JAX's users write, as Python that numba compiles: traced on scalars, and written out.

What JAX records of a function is a list of primitives, of scalars here. Each becomes an expression with the
result's type around it, as numba's own types are others: the sum of two int32 is an int64 there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from .._base.generated import define

_KINDS = {"f4": np.float32, "f8": np.float64, "c8": np.complex64, "c16": np.complex128, "b1": np.bool_}
_KINDS |= {f"{kind}{size}": np.dtype(f"{kind}{size}").type for kind in "iu" for size in (1, 2, 4, 8)}


def _quotient(a: Any, b: Any) -> Any:
    found = a // b
    return found + 1 if found < 0 and found * b != a else found


def _remainder(a: Any, b: Any) -> Any:
    return a - b * _quotient(a, b)


# By primitive, an expression of its operands; `T` stands for the result's type.
_EXPRESSIONS = {
    "add": "{0} + {1}",
    "add_any": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "neg": "-{0}",
    "square": "{0} * {0}",
    "abs": "abs({0})",
    "max": "{0} if {0} > {1} or {0} != {0} else {1}",
    "min": "{0} if {0} < {1} or {0} != {0} else {1}",
    "clamp": "{0} if {1} < {0} else ({2} if {1} > {2} else {1})",
    "sign": "T(1) if {0} > T(0) else (T(-1) if {0} < T(0) else {0})",
    "rsqrt": "T(1) / math.sqrt({0})",
    "exp2": "math.pow(T(2), {0})",
    "cbrt": "math.copysign(math.pow(abs({0}), T(1 / 3)), {0})",
    "logistic": "T(1) / (T(1) + math.exp(-{0}))",
    "is_finite": "{0} - {0} == {0} - {0}",
    "pow": "math.pow({0}, {1})",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "complex": "T(complex({0}, {1}))",
    "real": "{0}.real",
    "imag": "{0}.imag",
    "conj": "{0}.conjugate()",
    "shift_left": "{0} << {1}",
    "copy": "{0}",
    "copy_p": "{0}",
    "optimization_barrier": "{0}",
    "broadcast_in_dim": "{0}",
    "reshape": "{0}",
    "squeeze": "{0}",
    **{
        each: f"math.{each}({{0}})"
        for each in ["sqrt", "exp", "log", "log1p", "expm1", "sin", "cos", "tan", "asin", "acos", "atan"]
    },
    **{
        each: f"math.{each}({{0}})"
        for each in ["sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "floor", "ceil"]
    },
    "lgamma": "math.lgamma({0})",
    "atan2": "math.atan2({0}, {1})",
}
_OF_BOOLS = {"and": "{0} and {1}", "or": "{0} or {1}", "xor": "{0} != {1}", "not": "not {0}"}
_OF_INTEGERS = {
    **{"and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}", "not": "~{0}"},
    **{"div": "_quotient({0}, {1})", "rem": "_remainder({0}, {1})"},
    **{"max": "{0} if {0} > {1} else {1}", "min": "{0} if {0} < {1} else {1}"},
}
_OF_FLOATS = {"div": "{0} / {1}", "rem": "math.fmod({0}, {1})"}
_ROUNDED = (
    "math.copysign(math.floor(abs({0}) + T(0.5)), {0})",
    "{0} - math.remainder({0}, T(1)) if {0} - {0} == 0 else {0}",
)
# Primitives that call another jaxpr once, by the name of that parameter; loops have such parameters, too.
_INLINED = {
    **dict.fromkeys(["pjit", "jit", "checkpoint", "remat", "remat2"], "jaxpr"),
    **dict.fromkeys(["core_call", "closed_call", "custom_jvp_call", "custom_vjp_call"], "call_jaxpr"),
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}


class _Writer:
    """Writes the lines of a function."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, aval: Any) -> str:
        if isinstance(value, jax.core.Tracer) or aval.shape != ():
            raise TypeError(
                "fn: it reads an array of the function around it; give that as another leaf of xs, which fn "
                "hands on"
            )
        self.constants.append(np.asarray(value).astype(_dtype(aval))[()])
        return f"c{len(self.constants) - 1}"

    def write(self, jaxpr: Any, constants: Sequence[Any], given: Sequence[str]) -> list[str]:
        """Write the lines of a jaxpr; return what its results are called."""
        names = dict(zip(jaxpr.invars, given, strict=True))
        for variable, value in zip(jaxpr.constvars, constants, strict=True):
            names[variable] = value if isinstance(value, str) else self.constant(value, variable.aval)

        def read(each: Any) -> str:
            return self.constant(each.val, each.aval) if hasattr(each, "val") else names[each]

        for equation in jaxpr.eqns:
            operands = [read(each) for each in equation.invars]
            inner = equation.params.get(_INLINED.get(equation.primitive.name))
            if inner is not None:
                closed = getattr(inner, "consts", ())
                found = self.write(getattr(inner, "jaxpr", inner), closed, operands)
            else:
                found = [self._line(equation, operands)]
            names.update(zip(equation.outvars, found, strict=True))
        return [read(each) for each in jaxpr.outvars]

    def _line(self, equation: Any, operands: Sequence[str]) -> str:
        is_known = len(equation.outvars) == 1 and len(operands) > 0
        text = _expression(equation, operands) if is_known else None
        if text is None or equation.outvars[0].aval.shape != ():
            name = equation.primitive.name
            raise TypeError(
                f"fn: it uses jax.lax's `{name}` of {', '.join(str(each.aval) for each in equation.invars)}, "
                "which cupar.jax has no Python for: it takes arithmetic, comparisons and functions of "
                "scalars; jax.lax.associative_scan takes any fn, cupar.jax.call an operator in Python"
            )
        dtype = _dtype(equation.outvars[0].aval)
        kind = f"{dtype.kind}{dtype.itemsize}"
        text = text.replace("T(", f"{kind}(")
        name = f"v{len(self.lines)}"
        plain = dtype.kind in "bc" or text == operands[0]
        self.lines.append(f"{name} = {text}" if plain else f"{name} = {kind}({text})")
        return name


def _dtype(aval: Any) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(aval.dtype)
    if f"{dtype.kind}{dtype.itemsize}" not in _KINDS:
        raise TypeError(
            f"fn: it computes with {dtype}, which cupar.jax has no Python for: convert it to float32"
        )
    return dtype


def _expression(equation: Any, operands: Sequence[str]) -> str | None:
    name, kind = equation.primitive.name, np.dtype(equation.invars[0].aval.dtype).kind
    if name == "select_n":
        which, *cases = operands
        if len(cases) == 1:
            return cases[0]
        conditions = [which if kind == "b" else f"{which} > {k}" for k in range(len(cases) - 1)]
        text = cases[0]
        for condition, case in zip(conditions, cases[1:], strict=True):
            text = f"{case} if {condition} else ({text})"
        return text
    if name == "convert_element_type":
        wanted = _dtype(equation.outvars[0].aval)
        return f"{operands[0]} != 0" if wanted.kind == "b" and kind != "b" else f"T({operands[0]})"
    if name == "integer_pow":
        return _power(operands[0], equation.params["y"], kind == "f")
    if name == "round":
        return _ROUNDED[int(equation.params["rounding_method"])].format(*operands)
    if name == "pow" and kind not in "f":
        return None
    if name == "pow" and np.dtype(equation.invars[1].aval.dtype).kind in "iu":
        return f"math.pow({operands[0]}, T({operands[1]}))"
    if name in ("exp", "log", "sqrt", "sin", "cos", "max", "min") and kind == "c":
        return None
    of_kind = _OF_BOOLS if kind == "b" else _OF_INTEGERS if kind in "iu" else _OF_FLOATS
    known = of_kind.get(name, _EXPRESSIONS.get(name))
    return None if known is None else known.format(*operands)


def _power(x: str, exponent: int, is_float: bool) -> str:
    text = "T(1)"
    if exponent:
        is_product = abs(exponent) < 9 or not is_float  # integers wrap around, and pow takes no complex ones
        text = " * ".join([x] * abs(exponent)) if is_product else f"math.pow({x}, T({abs(exponent)}))"
    return text if exponent >= 0 else f"T(1) / ({text})"


_SOURCE = """
def fn(left, right):
    {lines}
    return {results}
"""


class TracedOperator:
    """An operator of two values: a function for numba, and one that JAX differentiates.

    Operators are equal if their code is, unless part of it has a custom derivative: then `fn` must
    be the same, too.

    Attributes
    ----------
    op : callable
        Of two values, or tuples of several. For the same code it is the same function.
    fn : callable
        As it was given.
    """

    def __init__(self, op: Any, fn: Callable[..., Sequence[Any]], key: Any) -> None:
        self.op, self.fn, self._key = op, fn, (op, key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TracedOperator) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def _has_rules(jaxpr: Any) -> bool:
    """Whether any primitive in it has a custom derivative."""
    for equation in jaxpr.eqns:
        inner = equation.params.get(_INLINED.get(equation.primitive.name))
        if equation.primitive.name.startswith("custom_") or (
            inner is not None and _has_rules(getattr(inner, "jaxpr", inner))
        ):
            return True
    return False


def _identity(given: Any) -> Any:
    """Return the identity of a function: its code, and captured values if these can be compared."""
    try:
        key = (
            given.__code__,
            tuple(each.cell_contents for each in given.__closure__ or ()),
            given.__defaults__,
        )
        hash(key)
    except (AttributeError, TypeError, ValueError):
        return given
    return key


def operator(
    fn: Callable[..., Sequence[Any]], dtypes: Sequence[np.dtype[Any]], given: Any = None
) -> TracedOperator:
    """Return the operator that does what `fn` does.

    Parameters
    ----------
    fn : callable
        Takes the leaves of both values and returns those of the result.
    dtypes : sequence of dtype
        Of the leaves.
    given : callable, optional
        What `fn` calls.
    """
    scalars = [jax.ShapeDtypeStruct((), each) for each in dtypes]
    traced = jax.make_jaxpr(fn)(*scalars, *scalars)
    for i, (aval, dtype) in enumerate(zip(traced.out_avals, dtypes, strict=True)):
        if aval.shape != () or aval.dtype != dtype:
            raise TypeError(
                f"fn: expected {dtype}[] for leaf {i} of the result, as xs has it, got {aval.str_short()}"
            )
    writer, several = _Writer(), len(dtypes) > 1
    sides = [f"{side}[{i}]" if several else side for side in ("left", "right") for i in range(len(dtypes))]
    results = writer.write(traced.jaxpr, traced.consts, sides)
    shown = f"({', '.join(results)})" if several else results[0]
    constants = tuple((each.dtype.str, each.tobytes()) for each in writer.constants)
    op = _made(tuple(writer.lines), shown, constants)
    return TracedOperator(op, fn, _identity(given or fn) if _has_rules(traced.jaxpr) else None)


@functools.lru_cache(512)
def _made(lines: tuple[str, ...], results: str, constants: tuple[tuple[str, bytes], ...]) -> Any:
    names: dict[str, Any] = {"math": math, "_quotient": _quotient, "_remainder": _remainder, **_KINDS}
    names |= {f"c{i}": np.frombuffer(data, dtype)[0] for i, (dtype, data) in enumerate(constants)}
    return define("an operator of JAX's", "fn", _SOURCE, names, lines=list(lines), results=results)
