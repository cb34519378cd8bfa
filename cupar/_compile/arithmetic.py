"""Arithmetic whose results numba leaves to chance, or to exceptions that a kernel does not have.

The same code is made for GPUs and for the CPU, by overriding numba's own where cupar has it compile, and
nowhere else:

- integers out of range wrap around (numba promises LLVM that signed ones are never out of range);
- integers divided by 0 give 0, quotient and remainder, and the least one divided by -1 gives itself and 0
  (numba raises or gives 0; in LLVM it is undefined);
- a complex number divided by zero gives infinities and NaN, as in NumPy and in `_ir.cpp`, and 0.0 to a
  negative power gives an infinity (numba raises; on a GPU that makes the operator return zeros);
- integers to the power of integers wrap around for any exponent;
- a shift by the width of the type or more, or by a negative number, shifts everything out, as in NumPy
  (LLVM leaves it undefined).

And in operators, but not in kernels, whose types are numba's, uint64 beside an integer that is written in the
code, and not negative, gives uint64: numba makes it signed, or a float.
"""

from __future__ import annotations

import cmath
import functools
import math
import operator
from collections import ChainMap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from . import libdevice

_ONE = np.uint64(1)
_LONG = 1 << 16  # exponents from here on are those of `math.pow`, of floats


class Lowering(NamedTuple):
    """How a function is lowered for types: as numba's registries have it."""

    emit: Callable[..., Any]
    function: Any
    signature: tuple[Any, ...]


def lowerings(types: Any, make_signature: Any) -> list[Lowering]:
    """Return all overrides, for numba's types and signatures or for numba-cuda's."""
    integer, own = types.Integer, SimpleNamespace(types=types, signature=make_signature)
    found = [
        Lowering(_divided, function, (types.Complex, types.Complex))
        for function in (operator.truediv, operator.itruediv)
    ]
    for emit, functions in _OF_INTEGERS.items():
        found += [Lowering(emit, function, (integer, integer)) for function in functions]
    power, static = power_of(own), _static_power_of(own)
    for function in (operator.pow, operator.ipow, pow):
        found.append(Lowering(power, function, (integer, integer)))
        for kind in sorted(types.integer_domain, key=str):
            found.append(Lowering(power, function, (types.Float, kind)))
    for function in (operator.pow, operator.ipow):
        for base in (integer, types.Float):
            found.append(Lowering(static, function, (base, types.IntegerLiteral)))
    return found


# --- Overriding ------------------------------------------------------------------------------------------


@functools.cache
def _of_cuda() -> tuple[list[Lowering], dict[str, Any], dict[Any, Any]]:
    """Return the overrides for GPUs, those of ufuncs, and numba's own functions that use them."""
    from .._numba import signature_of, types

    powers = [
        Lowering(_complex_power, function, (types.Complex, types.Complex))
        for function in (operator.pow, operator.ipow, pow)
    ]
    ufuncs = {
        **of_ufuncs(types, signature_of),
        "np_complex_float_power_impl": _complex_power,
        "np_complex_log1p_impl": _complex_log1p,
        "np_complex_power_impl": _complex_power,
    }
    return [*lowerings(types, signature_of), *powers], ufuncs, {}


@contextmanager
def overridden() -> Iterator[None]:
    """Have numba.cuda compile with all overrides in the block; its compiler lock must be held."""
    from .._numba import cuda_arrays, cuda_codegen, cuda_target

    fixed, library = cuda_arrays.fix_integer_index, cuda_codegen.CUDACodeLibrary
    texts = library.llvm_strs

    def fix_index(context: Any, builder: Any, kind: Any, value: Any, size: Any) -> Any:
        return fixed(context, builder, kind, _index(builder, value), size)

    cuda_arrays.fix_integer_index = fix_index
    library.llvm_strs = property(lambda self: [*map(libdevice.calls, texts.fget(self))])
    try:
        with _overriding(cuda_target.target_context, *_of_cuda()):
            yield
    finally:
        cuda_arrays.fix_integer_index, library.llvm_strs = fixed, texts


@contextmanager
def _overriding(
    context: Any, overrides: list[Lowering], ufuncs: dict[str, Any], compiled: dict[Any, Any]
) -> Iterator[None]:
    """Have a target context, which others use too, lower some functions in another way in the block.

    `compiled` is numba's cache of its compiled functions.
    """
    context.refresh()
    selectors = [context._defns[each.function] for each in overrides]
    for each, selector in zip(overrides, selectors, strict=True):
        selector.append(each.emit, each.signature)
    others, context.cached_internal_func = context.cached_internal_func, compiled
    context.get_ufunc_info = functools.partial(_ufunc_info, context.get_ufunc_info, ufuncs)
    try:
        yield
    finally:
        del context.get_ufunc_info
        context.cached_internal_func = others
        added = {id(each.emit) for each in overrides}
        for selector in selectors:
            selector.versions[:] = [each for each in selector.versions if id(each[1]) not in added]
            selector._cache.clear()


def _ufunc_info(numbas: Callable[..., Any], ours: dict[str, Any], ufunc: Any) -> dict[str, Any]:
    """Return the item functions of a ufunc for GPUs, those for the CPU where numba.cuda has none."""
    from .._numba import ufunc_db

    try:
        found = numbas(ufunc)
    except KeyError:
        found = ufunc_db.get_ufunc_info(ufunc)
    return of_ufunc(found, ours)


# --- Types -----------------------------------------------------------------------------------------------


@contextmanager
def typing(typeinfer: Any, types: Any) -> Iterator[None]:
    """Have numba, or numba-cuda, type integers that are written beside uint64 as such in the block.

    Its compiler lock must be held. `typeinfer` and `types` are its modules.
    """
    constraint = typeinfer.CallConstraint
    numbas = constraint.resolve

    def resolve(call: Any, inferer: Any, variables: Any, fnty: Any) -> Any:
        if getattr(fnty, "typing_key", fnty) in _UNSIGNED:
            written = _beside_unsigned(call.args, inferer.func_ir, variables, types)
            variables = ChainMap(written, variables) if written else variables
        return numbas(call, inferer, variables, fnty)

    constraint.resolve = resolve
    try:
        yield
    finally:
        constraint.resolve = numbas


def _beside_unsigned(arguments: Any, code: Any, variables: Any, types: Any) -> dict[str, Any]:
    """Return the types of integers that are written beside uint64, by the names of their variables.

    Others may be literals to numba for a while, such as a variable that a loop adds to.
    """
    kinds = {each.name: variables[each.name].type for each in arguments}
    others = {name: kind for name, kind in kinds.items() if kind != types.uint64}
    if not others or len(others) == len(kinds):
        return {}
    for name, kind in others.items():
        is_natural = isinstance(kind, types.IntegerLiteral) and kind.literal_value >= 0
        if not (is_natural and _is_written(code, name)):
            return {}
    return dict.fromkeys(others, SimpleNamespace(defined=True, getone=lambda: types.uint64))


def _is_written(code: Any, name: str) -> bool:
    """Whether a variable of numba's intermediate code is a constant, a global or a closure variable."""
    try:
        return type(code.get_definition(name)).__name__ in ("Const", "FreeVar", "Global")
    except KeyError:  # it has several values
        return False


# --- Complex numbers -------------------------------------------------------------------------------------


def _divided(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Divide as in R. L. Smith, "Algorithm 116: Complex division", CACM 5, 1962."""
    kind = signature.return_type
    a, b = (
        context.make_complex(builder, kind, value=value)
        for value in _as(context, builder, signature, kind, values)
    )
    zero = b.real.type(0.0)
    real = kind.underlying_float
    magnitude = context.get_function(math.fabs, real(real))
    re, im = magnitude(builder, [b.real]), magnitude(builder, [b.imag])
    is_zero = builder.and_(builder.fcmp_ordered("==", re, zero), builder.fcmp_ordered("==", im, zero))
    is_wide = builder.fcmp_ordered(">=", re, im)
    high, low = builder.select(is_wide, b.real, b.imag), builder.select(is_wide, b.imag, b.real)
    first, second = builder.select(is_wide, a.real, a.imag), builder.select(is_wide, a.imag, a.real)
    ratio = builder.fdiv(low, high)
    divisor = builder.select(is_zero, re, builder.fadd(high, builder.fmul(low, ratio)))
    over, scaled = builder.fadd(first, builder.fmul(second, ratio)), builder.fmul(first, ratio)
    beside = builder.select(is_wide, builder.fsub(second, scaled), builder.fsub(scaled, second))
    found = context.make_complex(builder, kind)
    found.real = builder.fdiv(builder.select(is_zero, a.real, over), divisor)
    found.imag = builder.fdiv(builder.select(is_zero, a.imag, beside), divisor)
    return found._getvalue()


def _complex_power(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Raise to a power on GPUs, for which numba.cuda calls a function of its library for the CPU."""

    def power(a: Any, b: Any) -> Any:
        if a == 0 and (b == 0 or b.real > 0):
            return a if b != 0 else a + 1
        return cmath.exp(b * cmath.log(a))

    return context.compile_internal(builder, power, signature, values)


def _complex_log1p(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Return the logarithm of 1 + a on GPUs, where numba's code does not compile."""

    def log1p(a: Any) -> Any:
        return complex(math.log(math.hypot(a.real + 1, a.imag)), math.atan2(a.imag, a.real + 1))

    return context.compile_internal(builder, log1p, signature, values)


# --- Shifts ----------------------------------------------------------------------------------------------


def shifted_left(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Shift left; counts out of range give 0."""
    value, by, is_beyond = _shift(context, builder, signature, values)
    return builder.select(is_beyond, value.type(0), builder.shl(value, by))


def shifted_right(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Shift right; counts out of range give 0, or -1 of negative numbers."""
    value, by, is_beyond = _shift(context, builder, signature, values)
    if signature.return_type.signed:
        return builder.ashr(value, builder.select(is_beyond, by.type(by.type.width - 1), by))
    return builder.select(is_beyond, value.type(0), builder.lshr(value, by))


def _shift(context: Any, builder: Any, signature: Any, values: Any) -> tuple[Any, Any, Any]:
    kind = signature.return_type
    value, by = _as(context, builder, signature, kind, values)
    return value, by, builder.icmp_unsigned(">=", by, by.type(by.type.width))


# --- Sums, differences and products of integers ------------------------------------------------------------


def _wrapping(instruction: str) -> Callable[..., Any]:
    """Return what lowers an operation on integers to an instruction that may overflow."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = signature.return_type
        found = getattr(builder, instruction)(*_as(context, builder, signature, kind, values))
        found.is_signed_sum = kind.signed and instruction != "mul"
        return found

    return emit


added, subtracted, multiplied = map(_wrapping, ("add", "sub", "mul"))


def _index(builder: Any, value: Any) -> Any:
    """Return an index of an array so that LLVM sees that ``i + 1`` of a positive `i` is not negative.

    A sum that wraps around is no index. It is computed again, since others may use it as a number.
    """
    if getattr(value, "opname", "") == "extractvalue":  # of a tuple, which is made by inserting
        (place,), whole = value.indices, value.aggregate
        while getattr(whole, "opname", "") == "insertvalue" and [*whole.indices] != [place]:
            whole = whole.aggregate
        value = getattr(whole, "value", value)
    if not getattr(value, "is_signed_sum", False):
        return value
    return getattr(builder, value.opname)(*value.operands, flags=["nsw"])


# --- Divisions of integers -------------------------------------------------------------------------------


def quotient(builder: Any, is_signed: bool, a: Any, b: Any) -> Any:
    """Return the quotient of integers, cut off as in C."""
    found, _ = _quotient(builder, is_signed, a, b)
    return found


def remainder(builder: Any, is_signed: bool, a: Any, b: Any) -> Any:
    """Return the remainder of a division that truncates as in C."""
    safe, _, _ = _safe(builder, is_signed, b)
    return builder.srem(a, safe) if is_signed else builder.urem(a, safe)


def _safe(builder: Any, is_signed: bool, b: Any) -> tuple[Any, Any, Any]:
    """Return a divisor with 0 and -1 replaced by 1, and whether it was 0, and -1."""
    is_zero = builder.icmp_unsigned("==", b, b.type(0))
    if not is_signed:
        return builder.select(is_zero, b.type(1), b), is_zero, None
    is_minus_one = builder.icmp_unsigned("==", b, b.type(-1))
    return builder.select(builder.or_(is_zero, is_minus_one), b.type(1), b), is_zero, is_minus_one


def _quotient(builder: Any, is_signed: bool, a: Any, b: Any) -> tuple[Any, Any]:
    """Return quotient and remainder."""
    safe, is_zero, is_minus_one = _safe(builder, is_signed, b)
    raw = builder.sdiv(a, safe) if is_signed else builder.udiv(a, safe)
    found = raw if is_minus_one is None else builder.select(is_minus_one, builder.neg(a), raw)
    left = builder.sub(a, builder.mul(raw, safe))  # of the same division
    return builder.select(is_zero, b.type(0), found), left


def floor_divided(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Divide integers as Python's `//` does."""
    return _floored(context, builder, signature, signature.return_type, values)[0]


def divmod_of(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Divide integers as Python's `divmod` does."""
    kind = signature.return_type
    return context.make_tuple(builder, kind, _floored(context, builder, signature, kind.dtype, values))


def modulo(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Return what Python's `%` does of integers."""
    kind = signature.return_type
    a, b = _as(context, builder, signature, kind, values)
    left = remainder(builder, kind.signed, a, b)
    if not kind.signed:
        return left
    return builder.add(left, builder.select(_is_below(builder, left, b), b, b.type(0)))


def _floored(context: Any, builder: Any, signature: Any, kind: Any, values: Any) -> tuple[Any, Any]:
    a, b = _as(context, builder, signature, kind, values)
    found, left = _quotient(builder, kind.signed, a, b)
    if not kind.signed:
        return found, left
    is_below = _is_below(builder, left, b)
    found = builder.sub(found, builder.zext(is_below, b.type))
    return found, builder.add(left, builder.select(is_below, b, b.type(0)))


def _is_below(builder: Any, left: Any, b: Any) -> Any:
    """Whether a quotient that was cut off is one above that of Python."""
    has_other_sign = builder.icmp_signed("<", builder.xor(left, b), b.type(0))
    return builder.and_(builder.icmp_unsigned("!=", left, b.type(0)), has_other_sign)


def _as(context: Any, builder: Any, signature: Any, kind: Any, values: Any) -> list[Any]:
    """Return values as those of a type."""
    pairs = zip(values, signature.args, strict=True)
    return [context.cast(builder, value, given, kind) for value, given in pairs]


_OF_INTEGERS = {
    added: (operator.add, operator.iadd),
    subtracted: (operator.sub, operator.isub),
    multiplied: (operator.mul, operator.imul),
    shifted_left: (operator.lshift, operator.ilshift),
    shifted_right: (operator.rshift, operator.irshift),
    floor_divided: (operator.floordiv, operator.ifloordiv),
    modulo: (operator.mod, operator.imod),
    divmod_of: (divmod,),
}


# What has one type for both operands and the result.
_UNSIGNED = frozenset(
    [function for functions in _OF_INTEGERS.values() for function in functions]
    + [operator.and_, operator.iand, operator.or_, operator.ior, operator.xor, operator.ixor]
    + [operator.pow, operator.ipow, pow, min, max]
    + [each for each in vars(np).values() if isinstance(each, np.ufunc) and each.nin == 2]
)


# --- Ufuncs ----------------------------------------------------------------------------------------------


def of_ufuncs(types: Any, make_signature: Any) -> dict[str, Callable[..., Any]]:
    """Return what computes items of ufuncs, by the names of numba's own: some have two copies."""
    own = SimpleNamespace(types=types, signature=make_signature)
    return {
        "int_add_impl": added,
        "int_mul_impl": multiplied,
        "int_power_impl": power_of(own),
        "int_shl_impl": shifted_left,
        "int_shr_impl": shifted_right,
        "int_sub_impl": subtracted,
        "np_complex_div_impl": _divided,
        "np_int_sdiv_impl": floor_divided,
        "np_int_sdivrem_impl": divmod_of,
        "np_int_srem_impl": modulo,
        "np_int_urem_impl": _cut_remainder,  # of `fmod`, with signed integers, too
        "np_lcm_impl": _least_common_multiple,
    }


def of_ufunc(numbas: dict[str, Any], ours: dict[str, Callable[..., Any]]) -> dict[str, Any]:
    """Return the item functions of a ufunc by types, with ours in place of numba's."""
    return {kinds: ours.get(emit.__name__, emit) for kinds, emit in numbas.items()}


def _cut_remainder(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    return remainder(builder, signature.args[0].signed, *values)


def _least_common_multiple(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Compute it in integers; numba's own has a 0 of int64, for which it makes uint64 a float."""
    zero = signature.return_type(0)

    def of(a: Any, b: Any) -> Any:
        return zero if a == zero else abs(a * (b // np.gcd(b, a)))

    return context.compile_internal(builder, of, signature, values)


# --- Powers ----------------------------------------------------------------------------------------------


def power_of(own: SimpleNamespace) -> Callable[..., Any]:
    """Return what lowers numbers to the power of integers, given numba's types and signatures."""

    def power(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind, given = signature.return_type, signature.args[1]
        base = context.cast(builder, values[0], signature.args[0], kind)
        wide = own.types.int64 if given.signed else own.types.uint64
        exponent = context.cast(builder, values[1], given, wide)
        is_negative = builder.icmp_signed("<", exponent, exponent.type(0))
        if given.signed:
            exponent = builder.select(is_negative, builder.neg(exponent), exponent)  # as an unsigned number
        call = own.signature(kind, kind, own.types.uint64)
        of = _power_of_integer(kind) if isinstance(kind, own.types.Integer) else _power_of_float(kind)
        raised = context.compile_internal(builder, of, call, [base, exponent])
        if not given.signed:
            return raised
        return builder.select(is_negative, _inverted(own, builder, kind, base, raised), raised)

    return power


def _static_power_of(own: SimpleNamespace) -> Callable[..., Any]:
    power = power_of(own)

    def static_power(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind, exponent = signature.return_type, signature.args[1].literal_value
        if abs(exponent) > _LONG:
            wide = own.signature(kind, signature.args[0], own.types.int64)
            constant = context.get_constant(own.types.int64, exponent)
            return power(context, builder, wide, [values[0], constant])
        base = square = context.cast(builder, values[0], signature.args[0], kind)
        times = builder.mul if isinstance(kind, own.types.Integer) else builder.fmul
        raised, left = base.type(1), abs(exponent)
        while left:
            raised = times(raised, square) if left & 1 else raised
            left >>= 1
            square = times(square, square) if left else square
        return _inverted(own, builder, kind, base, raised) if exponent < 0 else raised

    return static_power


def _power_of_integer(kind: Any) -> Callable[..., Any]:
    def integer_power(a: Any, exponent: Any) -> Any:
        raised = kind(1)
        while exponent != 0:
            if exponent & _ONE:
                raised *= a
            exponent >>= _ONE
            a *= a
        return raised

    return integer_power


def _power_of_float(kind: Any) -> Callable[..., Any]:
    def float_power(a: Any, exponent: Any) -> Any:
        if exponent > _LONG:
            return math.pow(a, float(exponent))
        raised = kind(1)
        while exponent != 0:
            if exponent & _ONE:
                raised *= a
            exponent >>= _ONE
            a *= a
        return raised

    return float_power


def _inverted(own: SimpleNamespace, builder: Any, kind: Any, base: Any, raised: Any) -> Any:
    """Return 1 / `raised`, a power of `base`. Of integers, that of 0 is the least one, as numba has it."""
    if not isinstance(kind, own.types.Integer):
        return builder.fdiv(raised.type(1.0), raised)
    is_unit = builder.icmp_unsigned("==", base, base.type(1))
    if kind.signed:
        is_unit = builder.or_(is_unit, builder.icmp_unsigned("==", base, base.type(-1)))
    least = base.type(1 << (kind.bitwidth - 1))
    of_others = builder.select(builder.icmp_unsigned("==", base, base.type(0)), least, base.type(0))
    return builder.select(is_unit, raised, of_others)
