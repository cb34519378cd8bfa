"""Numbers that compute as those in operators do: integers wrap around, nothing raises, types are numba's.

`Num` runs the operators that are fuzzed, as they are written, in CPython: with `NAMES` for what they read.
"""

import functools
import math
import operator
from collections import namedtuple
from fractions import Fraction
from types import SimpleNamespace

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
SMALL = {"b1", "i1", "i2", "u1", "f4"}  # what beside a float32 stays float32

FLOATS = {"f4": np.float32, "f8": np.float64}
COMPLEX = {"c8": (np.complex64, "f4"), "c16": (np.complex128, "f8")}
INTS = {f"{kind}{size}": (kind == "i", 8 * size) for kind in "iu" for size in (1, 2, 4, 8)}


def code(dtype):
    """Return the type of a dtype's values in operators: on the CPU 16-bit floats are float32."""
    dtype = np.dtype(dtype)
    if dtype == np.float16 or dtype == BF16:
        return "f4"
    return f"{dtype.kind}{dtype.itemsize}"


def wrapped(value, kind):
    """Return an integer as a type of some bits has it."""
    signed, bits = INTS[kind]
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def joined(a, b):
    """Return the type of a sum."""
    if a[0] == "c" or b[0] == "c":
        return "c8" if {a, b} <= SMALL | {"c8"} else "c16"
    if a[0] == "f" or b[0] == "f":
        return "f4" if {a, b} <= SMALL else "f8"
    return "u8" if a[0] == b[0] == "u" else "i8"


def unified(a, b):
    """Return the type that both are converted to by `min`, `max` and branches."""
    if a == b or b == "b1":
        return a
    if a == "b1":
        return b
    if "c" in a[0] + b[0]:
        return joined(a, b)
    if "f" in a[0] + b[0]:
        return "f4" if {a, b} <= SMALL | {"u2"} else "f8"
    if a[0] == b[0]:
        return max(a, b)
    signed, unsigned = (a, b) if a[0] == "i" else (b, a)
    size = max(int(signed[1]), 2 * int(unsigned[1]))
    return f"i{size}" if size <= 8 else "f8"


def typed(value):
    """Return a value of Python's or NumPy's as a `Num`."""
    if isinstance(value, Num):
        return value
    if isinstance(value, (bool, np.bool_)):
        return Num("b1", bool(value))
    if isinstance(value, int):
        return Num("i8" if value < 2**63 else "u8", value)
    if isinstance(value, np.generic):
        return loaded(value)
    return Num("c16", np.complex128(value)) if isinstance(value, complex) else Num("f8", np.float64(value))


def loaded(value):
    """Return an item of an array as an operator gets it; a struct's items as a named tuple."""
    if value.dtype.names is not None:
        cls = _struct(value.dtype.names)
        return cls(*(loaded(value[name]) for name in value.dtype.names))
    kind = code(value.dtype)
    if kind == "b1":
        return Num(kind, bool(value))
    return Num(kind, int(value) if kind in INTS else FLOATS[kind](value) if kind in FLOATS else value)


def cast(value, kind):
    """Convert a number to a type, as C does."""
    own, value = value.kind, value.value
    if own == kind:
        return Num(kind, value)
    if kind == "b1":
        return Num(kind, bool(value != 0))
    if kind in INTS:
        if own[0] in "fc":
            value = int(value) if math.isfinite(value) else 0
        return Num(kind, wrapped(int(value), kind))
    with np.errstate(all="ignore"):
        if kind in COMPLEX:
            cls, part = COMPLEX[kind]
            if own in COMPLEX:
                return Num(kind, cls(value))
            return Num(kind, cls(cast(Num(own, value), part).value))
        if own in INTS:  # NumPy's own integers are rounded once
            return Num(kind, FLOATS[kind]((np.int64 if own[0] == "i" else np.uint64)(value)))
        return Num(kind, FLOATS[kind](value))


def _rounded(value, bits, least, dtype):
    """Return a finite number in a float of so many bits and a least exponent, rounded once."""
    exact = Fraction(value)
    if not exact:
        return dtype.type(value)
    exponent = max(math.floor(math.log2(abs(exact))) - bits, least)
    while abs(exact) / Fraction(2) ** exponent >= 1 << bits:
        exponent += 1
    near = round(exact / Fraction(2) ** exponent)  # half to even
    try:
        found = math.ldexp(near, exponent)
    except OverflowError:
        found = math.inf
    with np.errstate(all="ignore"):
        return dtype.type(math.copysign(found, -1) if exact < 0 else found)


def stored(value, dtype):
    """Return a number, or a tuple, as a scalar of a dtype: what an array of it holds."""
    dtype = np.dtype(dtype)
    if dtype.names is not None:
        array = np.zeros((), dtype)
        for name, item in zip(dtype.names, value, strict=True):
            array[name] = stored(item, dtype[name])
        return array[()]
    value = typed(value)
    if dtype != np.float16 and dtype != BF16:
        return dtype.type(cast(value, code(dtype)).value)
    number = value.value
    if isinstance(number, (np.floating, float)) and not math.isfinite(number):
        return dtype.type(number)
    if isinstance(number, np.floating):
        number = float(number)
    return _rounded(number, *((11, -24) if dtype == np.float16 else (8, -133)), dtype)


def kept(value, dtype):
    """Return a value as an operator gets it, once it was stored as a dtype."""
    if dtype.names is not None:
        cls = _struct(dtype.names)
        return cls(*(kept(item, dtype[i]) for i, item in enumerate(value)))
    if dtype.itemsize == 2 and code(dtype) == "f4":
        return loaded(stored(value, dtype))
    return cast(typed(value), code(dtype))


@functools.cache
def _struct(names):
    return namedtuple("Struct", names)


def opened(items):
    """Return the items of an array as operators get them."""
    kind = code(items.dtype) if items.dtype.names is None else ""
    if kind in INTS or kind == "b1":
        return [Num(kind, each) for each in items.tolist()]
    return [loaded(each) for each in items]


def closed(values, dtype):
    """Return an array of values that operators got."""
    if dtype.names is None and (dtype.itemsize != 2 or dtype.kind in "iu"):
        kind = code(dtype)
        return np.array([cast(each, kind).value for each in values], dtype)
    return np.array([stored(each, dtype) for each in values], dtype).reshape(len(values))


class Num:
    """A number of a type."""

    __slots__ = ("kind", "value")

    def __init__(self, kind, value):
        self.kind, self.value = kind, value

    def __repr__(self):
        return f"{self.kind}({self.value!r})"

    def __bool__(self):
        return bool(self.value != 0)

    def __index__(self):
        return int(self.value)

    def _with(self, other, function, kind=None):
        other = typed(other)
        kind = kind or joined(self.kind, other.kind)
        a, b = cast(self, kind).value, cast(other, kind).value
        if kind in INTS:
            return Num(kind, wrapped(function(a, b), kind))
        with np.errstate(all="ignore"):
            cls = FLOATS[kind] if kind in FLOATS else COMPLEX[kind][0]
            return Num(kind, cls(function(a, b)))

    def _compared(self, other, function):
        other = typed(other)
        kind = joined(self.kind, other.kind)
        if kind in INTS:
            return Num("b1", bool(function(int(self.value), int(other.value))))
        return Num("b1", bool(function(cast(self, kind).value, cast(other, kind).value)))

    def __add__(self, other):
        return self._with(other, operator.add)

    def __sub__(self, other):
        return self._with(other, operator.sub)

    def __mul__(self, other):
        return self._with(other, _product)

    def __truediv__(self, other):
        kind = joined(self.kind, typed(other).kind)
        function = _complex_quotient if kind in COMPLEX else operator.truediv
        return self._with(other, function, "f8" if kind in INTS else kind)

    def __floordiv__(self, other):
        return self._with(other, lambda a, b: _divided(a, b)[0])

    def __mod__(self, other):
        return self._with(other, lambda a, b: _divided(a, b)[1])

    def __pow__(self, exponent):
        base = cast(self, joined(self.kind, "i8")) if self.kind in INTS else self
        return base * base if exponent == 2 else base * (base * base)

    def __and__(self, other):
        return self._bits(other, operator.and_)

    def __or__(self, other):
        return self._bits(other, operator.or_)

    def __xor__(self, other):
        return self._bits(other, operator.xor)

    def _bits(self, other, function):
        other = typed(other)
        if self.kind == other.kind == "b1":
            return Num("b1", function(self.value, other.value))
        return self._with(other, function)

    def __lshift__(self, other):
        return self._shifted(other, operator.lshift)

    def __rshift__(self, other):
        return self._shifted(other, operator.rshift)

    def _shifted(self, other, function):
        """Shift an integer of 64 bits; what is out of range shifts everything out."""
        kind = "u8" if self.kind[0] == "u" else "i8"
        value, by = int(cast(self, kind).value), int(typed(other).value)
        return Num(kind, wrapped(function(value, by if 0 <= by < 64 else 64), kind))

    def __neg__(self):
        if self.kind in INTS or self.kind == "b1":
            return self._widened(-int(self.value))
        return Num(self.kind, -self.value)

    def __invert__(self):
        if self.kind == "b1":
            return Num("b1", not self.value)
        return self._widened(~self.value)

    def _widened(self, value):
        """Return an integer of 64 bits, of one that numba computes in the operand's own type."""
        kind = "u8" if self.kind[0] == "u" else "i8"
        return Num(kind, wrapped(value if self.kind == "b1" else wrapped(value, self.kind), kind))

    def __abs__(self):
        if self.kind in INTS:
            return Num(self.kind, wrapped(abs(self.value), self.kind))
        return Num(self.kind, np.abs(self.value))

    def __lt__(self, other):
        return self._compared(other, operator.lt)

    def __le__(self, other):
        return self._compared(other, operator.le)

    def __gt__(self, other):
        return self._compared(other, operator.gt)

    def __ge__(self, other):
        return self._compared(other, operator.ge)

    def __eq__(self, other):
        return self._compared(other, operator.eq)

    def __ne__(self, other):
        return self._compared(other, operator.ne)

    __hash__ = None

    def __radd__(self, other):
        return typed(other) + self

    def __rsub__(self, other):
        return typed(other) - self

    def __rmul__(self, other):
        return typed(other) * self

    @property
    def real(self):
        return Num(COMPLEX[self.kind][1], self.value.real)

    @property
    def imag(self):
        return Num(COMPLEX[self.kind][1], self.value.imag)


def _product(a, b):
    if not isinstance(a, np.complexfloating):
        return a * b
    return _complex(a, a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real)


def _complex_quotient(a, b):
    """Divide as R. L. Smith does; by zero, each part by 0."""
    if b.real == 0 and b.imag == 0:
        return _complex(a, a.real / np.abs(b.real), a.imag / np.abs(b.real))
    if np.abs(b.real) >= np.abs(b.imag):
        ratio = b.imag / b.real
        divisor = b.real + b.imag * ratio
        return _complex(a, (a.real + a.imag * ratio) / divisor, (a.imag - a.real * ratio) / divisor)
    ratio = b.real / b.imag
    divisor = b.imag + b.real * ratio
    return _complex(a, (a.imag + a.real * ratio) / divisor, (a.imag * ratio - a.real) / divisor)


def _complex(like, real, imag):
    found = np.zeros(1, like.dtype)
    found.real[0], found.imag[0] = real, imag
    return found[0]


def _divided(a, b):
    """Return quotient and rest of Python; the rest has the sign of the divisor."""
    if isinstance(a, int):
        return (a // b, a % b) if b else (0, 0)
    if b == 0:
        return a / b, a * np.nan
    rest = np.fmod(a, b)
    quotient = (a - rest) / b
    if rest:
        if (b < 0) != (rest < 0):
            rest, quotient = rest + b, quotient - type(a)(1)
    else:
        rest = np.copysign(type(a)(0), b)
    whole = np.floor(quotient)
    return whole + (quotient - whole > 0.5) if quotient else np.copysign(type(a)(0), a / b), rest


# --- What operators read ---------------------------------------------------------------------------------


def _least(*given):
    return _extreme(given, operator.lt)


def _most(*given):
    return _extreme(given, operator.gt)


def _extreme(given, before):
    values = [typed(each) for each in given]
    kind = values[0].kind
    for each in values[1:]:
        kind = unified(kind, each.kind)
    values = [cast(each, kind) for each in values]
    found = values[0]
    for each in values[1:]:
        found = each if before(each, found) else found
    return found


def _real(function, of_floats=True):
    """Return a function of a float, which gives one of the same type; of integers, of float64."""

    def call(*given):
        values = [typed(each) for each in given]
        kind = values[0].kind if values[0].kind in FLOATS and of_floats else "f8"
        with np.errstate(all="ignore"):
            return Num(kind, FLOATS[kind](function(*(cast(each, kind).value for each in values))))

    return call


def _asked(function):
    def call(given):
        value = typed(given)
        return Num("b1", bool(function(value.value)))

    return call


def _caster(kind):
    return lambda value: cast(typed(value), kind)


def _half(dtype):
    return lambda value: loaded(stored(typed(value), dtype))


def _integer(value):
    value = typed(value)
    if value.kind == "b1":
        return cast(value, "i8")
    return cast(value, "i8") if value.kind in FLOATS else value


def _double(value):
    value = typed(value)
    return value if value.kind in FLOATS else cast(value, "f8")


MATH = SimpleNamespace(
    sqrt=_real(np.sqrt),
    fabs=_real(np.fabs),
    copysign=_real(np.copysign),
    sin=_real(np.sin),
    cos=_real(np.cos),
    exp=_real(np.exp),
    log=_real(np.log),
    atan=_real(np.arctan),
    tanh=_real(np.tanh),
    isnan=_asked(np.isnan),
    isinf=_asked(np.isinf),
    isfinite=_asked(np.isfinite),
)
_SCALARS = {np.dtype(each).name: _caster(each) for each in (*INTS, *FLOATS)}
NUMPY = SimpleNamespace(
    **_SCALARS,
    float16=_half(np.float16),
    bool_=_caster("b1"),
    complex64=_caster("c8"),
    complex128=_caster("c16"),
    sqrt=_real(np.sqrt),
    floor=_real(np.floor),
    ceil=_real(np.ceil),
    trunc=_real(np.trunc),
    minimum=_real(np.minimum),
    maximum=_real(np.maximum),
)
NAMES = {
    "math": MATH,
    "np": NUMPY,
    "min": _least,
    "max": _most,
    "int": _integer,
    "float": _double,
    "bool": lambda value: Num("b1", bool(value)),
}


class Table:
    """An array that an operator has captured."""

    def __init__(self, array):
        self.array = array

    def __getitem__(self, index):
        return loaded(self.array[int(typed(index).value)])
