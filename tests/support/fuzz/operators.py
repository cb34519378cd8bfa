"""Operators of random calls whose results do not depend on how items are grouped."""

import numpy as np

from cupar import structs

from .expressions import Operator
from .numbers import INTS, Num, code, typed

PAIR = np.dtype([("p", "i4"), ("q", "i4")], align=True)


def _quotient(a, b):
    """Divide as C does; integers by 0 give 0."""
    if a.kind not in INTS and a.kind != "b1":
        return a / b
    return Num("i8", 0) if not b else Num("i8", _cut_off(a, b))


def _remainder(a, b):
    return Num("i8", 0) if not b else Num("i8", int(a.value) - _cut_off(a, b) * int(b.value))


def _cut_off(a, b):
    found = abs(int(a.value)) // abs(int(b.value))
    return -found if (a.value < 0) != (b.value < 0) else found


FUNCTIONS = {
    "DIVIDES": _quotient,
    "MODULUS": _remainder,
    "PLUS": lambda a, b: a + b,
    "MINUS": lambda a, b: a - b,
    "MULTIPLIES": lambda a, b: a * b,
    "EQUAL_TO": lambda a, b: a == b,
    "NOT_EQUAL_TO": lambda a, b: a != b,
    "GREATER": lambda a, b: a > b,
    "LESS": lambda a, b: a < b,
    "GREATER_EQUAL": lambda a, b: a >= b,
    "LESS_EQUAL": lambda a, b: a <= b,
    "LOGICAL_AND": lambda a, b: typed(bool(a) and bool(b)),
    "LOGICAL_OR": lambda a, b: typed(bool(a) or bool(b)),
    "LOGICAL_NOT": lambda a: typed(not bool(a)),
    "BIT_AND": lambda a, b: a & b,
    "BIT_OR": lambda a, b: a | b,
    "BIT_XOR": lambda a, b: a ^ b,
    "BIT_NOT": lambda a: ~a,
    "IDENTITY": lambda a: a,
    "NEGATE": lambda a: -a,
    "MINIMUM": lambda a, b: b if b < a else a,
    "MAXIMUM": lambda a, b: b if a < b else a,
}


UFUNCS = {
    "PLUS": "add",
    "MINUS": "subtract",
    "MULTIPLIES": "multiply",
    "MINIMUM": "minimum",
    "MAXIMUM": "maximum",
    "BIT_AND": "bitwise_and",
    "BIT_NOT": "invert",
    "LOGICAL_OR": "logical_or",
    "NOT_EQUAL_TO": "not_equal",
    "GREATER": "greater",
    "NEGATE": "negative",
}


class Kind:
    """A kind that CCCL knows by name, or the ufunc that it is."""

    def __init__(self, kind, is_ufunc=False):
        self.name, self.kind = f"np.{UFUNCS[kind]}" if is_ufunc and kind in UFUNCS else f"OpKind.{kind}", kind
        self._function = FUNCTIONS[kind]
        self.source, self.captured = "", {}

    def __call__(self, *given):
        return self._function(*given)


def kinds_of(dtype, count):
    """Return the kinds of some operands that items of a dtype have, and that stay in their kind of number."""
    kind = structs.kind_of(dtype)
    if count == 1:
        found = ["IDENTITY", "LOGICAL_NOT"] + (["NEGATE"] if kind != "b" else [])
        return found + (["BIT_NOT"] if kind in "biu" else [])
    found = ["PLUS", "MINUS", "MULTIPLIES", "EQUAL_TO", "NOT_EQUAL_TO", "LOGICAL_AND", "LOGICAL_OR"]
    found += ["DIVIDES", "MODULUS"] if kind in "biu" else ["DIVIDES"]
    if kind != "c":
        found += ["GREATER", "LESS", "GREATER_EQUAL", "LESS_EQUAL", "MINIMUM", "MAXIMUM"]
    return found + (["BIT_AND", "BIT_OR", "BIT_XOR"] if kind in "biu" else [])


def _choices(dtype, in_order):
    """Return expressions of `a` and `b`, kinds and how values are for them."""
    kind = structs.kind_of(dtype)
    if kind in "biu":
        found = [
            "{a} + {b}",
            "{a} * {b}",
            "min({a}, {b})",
            "max({a}, {b})",
            "{a} & {b}",
            "{a} ^ {b}",
            "{a} | {b}",
        ]
        found += ["{a} if {a} > {b} else {b}", "PLUS", "MULTIPLIES", "MAXIMUM", "BIT_XOR"]
        styles = ["any"]
    elif kind == "c":
        found, styles = ["{a} + {b}", "PLUS"], ["exact"]
    else:
        sums, ends = ["{a} + {b}", "PLUS"], ["min({a}, {b})", "{b} if {a} < {b} else {a}", "MINIMUM"]
        return [(each, "exact") for each in sums] + [(each, "tame") for each in ends]
    if in_order:
        found += ["{a}", "{b}"]
    return [(each, styles[0]) for each in found]


def _written(rng, dtype, in_order, a, b):
    if dtype.names is None:
        while True:
            text, style = _choices(dtype, in_order)[int(rng.integers(len(_choices(dtype, in_order))))]
            if "{" in text:
                return text.format(a=a, b=b), style
    parts = [_written(rng, dtype[i], in_order, f"{a}[{i}]", f"{b}[{i}]") for i in range(len(dtype.names))]
    style = "exact" if any(each == "exact" for _, each in parts) else "tame"
    return f"({', '.join(text for text, _ in parts)},)", style


def fold(rng, dtype, in_order, name="op"):
    """Return an associative operator on items of a dtype, and the style of values for which it is exact.

    `in_order`: it need not be commutative.
    """
    if dtype == PAIR and in_order and rng.random() < 0.7:  # functions p * x + q, one after another
        source = f"def {name}(a, b):\n    return a.p * b.p, a.q * b.p + b.q\n"
        return Operator(name, source), "any"
    if dtype.names is None:
        text, style = _choices(dtype, in_order)[int(rng.integers(len(_choices(dtype, in_order))))]
        if "{" not in text:
            return Kind(text, rng.random() < 0.3), style
        text = text.format(a="a", b="b")
    else:
        text, style = _written(rng, dtype, in_order, "a", "b")
    return Operator(name, f"def {name}(a, b):\n    return {text}\n"), style


def order(rng, dtype, name="op"):
    """Return a strict weak order of items of a dtype, and a style of values that it orders."""
    if dtype.names is not None:
        names = [each for each in dtype.names if dtype[each].names is None]
        field = str(rng.choice(names))
        return Operator(name, f"def {name}(a, b):\n    return a.{field} < b.{field}\n"), "tame"
    if dtype.kind == "c":
        return Operator(name, f"def {name}(a, b):\n    return a.real < b.real\n"), "tame"
    texts = ["a < b", "a > b", "bool(a) < bool(b)"]
    if code(dtype) in INTS:
        texts += ["(a & 7) < (b & 7)", "-a > -b" if dtype.kind == "i" else "a < b", "abs(a) > abs(b)"]
    elif code(dtype) == "f4" or dtype.kind == "f":
        texts += ["abs(a) < abs(b)", "-a < -b"]
    chosen = int(rng.integers(len(texts) + 1))
    if chosen == len(texts):
        return Kind("LESS"), "tame"
    return Operator(name, f"def {name}(a, b):\n    return {texts[chosen]}\n"), "tame"


def equality(rng, dtype, name="op"):
    """Return whether items of a dtype are equal in some way, and None for the default, if it is that."""
    if dtype.names is not None:
        names = [each for each in dtype.names if dtype[each].names is None]
        field = str(rng.choice(names))
        return Operator(name, f"def {name}(a, b):\n    return a.{field} == b.{field}\n")
    texts = ["a == b", "bool(a) == bool(b)"]
    if code(dtype) in INTS:
        texts += ["(a & 1) == (b & 1)", "not (a < b or b < a)"]
    chosen = int(rng.integers(len(texts) + 1))
    return (
        Kind("EQUAL_TO")
        if chosen == len(texts)
        else Operator(name, f"def {name}(a, b):\n    return {texts[chosen]}\n")
    )
