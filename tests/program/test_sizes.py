"""Sizes: whatever is done with one gives what an int gives, and leaves a trace of what it relied on."""

import math
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cupar._base import sizes
from cupar._program.trace import Trace


class Tracer:
    """Evaluates what sizes record, for other values."""

    def __init__(self):
        self.lines, self.guards, self._fixed = [], [], []

    def define(self, text, value, level):
        for name, known, size in self.lines:
            if known == text:
                return size
        name = f"n{len(self.lines)}"
        self.lines.append((name, text, sizes.Size(value, name, self, level)))
        return self.lines[-1][-1]

    def guard(self, text, level):
        self.guards.append(text)

    fix = Trace.fix

    def apply(self, function, arguments):
        raise NotImplementedError

    def evaluated(self, found, **values):
        """Return the value of an expression for other values; None if a guard does not hold."""
        for name, text, _ in self.lines:
            values[name] = eval(text, {}, values)
        if any(eval(text, {}, values) for text in self.guards):
            return None
        return values[found.text] if sizes.is_size(found) else found


def traced(*values):
    tracer = Tracer()
    return tracer, [sizes.Size(each, f"s{i}", tracer) for i, each in enumerate(values)]


BINARY = {
    *("add", "sub", "mul", "floordiv", "mod", "and_", "or_", "xor", "lshift", "rshift", "truediv", "pow"),
    *("lt", "le", "gt", "ge", "eq", "ne"),
}
UNARY = {"neg", "pos", "invert", "abs", "index", "not_", "truth"}
SMALL = st.integers(1, 9)


@pytest.mark.parametrize("name", sorted(BINARY))
@given(SMALL, SMALL, SMALL, SMALL, st.sampled_from(["both", "left", "right"]))
def test_operations_of_two(name, a, b, c, d, which):
    """Of other sizes it is as right, if the guards hold; those of the same sizes do."""
    function = getattr(operator, name)
    tracer, (x, y) = traced(a, b)
    one, other = (x if which != "right" else a), (y if which != "left" else b)
    found = function(one, other)
    assert sizes.value_of(found) == function(a, b)
    assert type(sizes.value_of(found)) is type(function(a, b))
    assert tracer.evaluated(found, s0=a, s1=b) == function(a, b)
    c, d = (a if which == "right" else c), (b if which == "left" else d)
    assert tracer.evaluated(found, s0=c, s1=d) in (None, function(c, d))


@pytest.mark.parametrize("name", sorted(UNARY))
@given(st.integers(-9, 9), st.integers(-9, 9))
def test_operations_of_one(name, a, c):
    function = getattr(operator, name)
    tracer, (x,) = traced(a)
    found = function(x)
    assert sizes.value_of(found) == function(a)
    assert tracer.evaluated(found, s0=a) == function(a)
    assert tracer.evaluated(found, s0=c) in (None, function(c))


# Each takes a plain int, which a size does not give without a guard.
PLAIN = {
    "range": lambda n: [*range(n)],
    "list index": lambda n: [5, 6, 7, 8][n % 4],
    "slice": lambda n: [5, 6, 7, 8][:n],
    "repeat": lambda n: [0] * n,
    "int": int,
    "float": float,
    "text": str,
    "format": lambda n: f"{n:>4}",
    "hash": lambda n: {n: 1}.get(2, 0),
    "set": lambda n: len({n, 2}),
    "numpy": lambda n: np.zeros(n).shape[0],
    "numpy number": lambda n: int(np.int64(n)),
    "numpy array": lambda n: np.asarray(n).astype(int).item(),
    "numpy arithmetic": lambda n: int(np.int64(3) + n),
    "numpy float": lambda n: n < np.float64(2.5),
    "round": lambda n: round(n / 3),
    "math": math.sqrt,
    "divmod": lambda n: divmod(n, 2),
    "bits": lambda n: n.bit_length(),
    "product": lambda n: math.prod((n, 3, n)),
    "sum": lambda n: sum([n, n]),
    "largest": lambda n: max(n, 2),
    "tuple": lambda n: (n, 1) == (2, 1),
    "in": lambda n: n in (1, 2),
    "if": lambda n: 7 if n else 8,
    "bytes": lambda n: int.to_bytes(operator.index(n), 4, "little"),
}


@pytest.mark.parametrize("name", PLAIN)
def test_no_plain_int_leaves_a_size_unnoticed(name):
    function = PLAIN[name]
    for a in (2, 3):
        tracer, (x,) = traced(a)
        found = function(x)
        found = tuple(map(sizes.value_of, found)) if isinstance(found, tuple) else found
        assert sizes.value_of(found) == function(a)
        for c in (1, 2, 3):
            again = tracer.evaluated(function(x), s0=c)
            if isinstance(again, tuple):
                again = tuple(tracer.evaluated(each, s0=c) for each in again)
            assert again in (None, function(c)), (a, c)
            assert c != a or again is not None


@pytest.mark.parametrize("name", ["to_bytes", "as_integer_ratio", "bit_count", "conjugate", "real"])
def test_what_is_not_traced_raises(name):
    _, (x,) = traced(3)
    with pytest.raises(AttributeError):
        getattr(x, name)


def test_a_size_is_no_int():
    _, (x,) = traced(3)
    assert not isinstance(x, int)
    with pytest.raises(TypeError):
        x + 1.5
    with pytest.raises(TypeError):
        x @ 2


def test_equal_expressions_are_one_size_and_need_no_guard():
    tracer, (x, y) = traced(3, 4)
    assert x * y is x * y
    assert x * y == x * y and (x + 0) is x and (x * 1) is x
    assert not tracer.guards
    assert x != y
    assert tracer.guards


@given(st.integers(0, 6), st.integers(-8, 8), st.integers(-8, 8), st.integers(0, 6), st.booleans())
def test_slices_of_views(extent, start, stop, other, given_sizes):
    from cupar.host import View

    tracer, (n, first, last) = traced(extent, start, stop)
    cut = slice(first, last) if given_sizes else slice(start, stop)
    part = View(n * 100, np.dtype("i4"), (n,), (4,), True, None)[cut]
    plain = View(extent * 100, np.dtype("i4"), (extent,), (4,), True, None)[start:stop]
    assert (sizes.value_of(part.address), sizes.value_of(part.size)) == (
        plain.address if plain.size else sizes.value_of(part.address),
        plain.size,
    )
    want = View(other * 100, np.dtype("i4"), (other,), (4,), True, None)[start:stop]
    found = tracer.evaluated(part.shape[0], s0=other, s1=start, s2=stop)
    assert found in (None, want.size)


def test_items_in_a_row_are_read_without_an_expression():
    """One that no line uses would part guards that are one condition."""
    from cupar._device import arrays
    from cupar._program.memory import in_c_order

    tracer, (n,) = traced(5)
    memory = in_c_order(4096, np.dtype("f4"), (n,), None)
    tracer.lines.clear()
    assert arrays.read("", memory, True).c_order
    assert not tracer.lines and not tracer.guards
