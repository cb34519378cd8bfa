"""Numbers that operators read: the same results as arguments and as constants, bit for bit."""

import math

import numpy as np
import pytest
from support.results import IS_CPU, cp

import cupar
from cupar import arrays

N = 5003
FLOATS = (0.1, 0.3, 2.5, -0.75) if IS_CPU else (0.1, 0.3, 2.5, -0.75, 1e-3, 3.0)  # some of which float32 has
INTEGERS = (3, -5, 2**40)


def on_host(x):
    return x.get() if hasattr(x, "get") else np.asarray(x)


def items(dtype):
    rng = np.random.default_rng(7)
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        special = [0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, 1e-40, 3e38, 0.5, 2.0]
        return np.concatenate([rng.normal(0, 3, N - 10), special]).astype(dtype)
    limits = np.iinfo(dtype)
    special = [limits.max, limits.min, limits.max - 3, 0, 1]
    return np.concatenate(
        [rng.integers(0 if dtype.kind == "u" else -50, 50, N - 5).astype(dtype), np.array(special, dtype)]
    )


def two_numbers(k):
    j = k + 2
    return lambda a: a * k + a * j


OF_ONE = {
    "scale": lambda k: lambda a: a * k,
    "offset": lambda k: lambda a: a + k,
    "difference": lambda k: lambda a: k - a,
    "fused": lambda k: lambda a: a * a + k,
    "fused product": lambda k: lambda a: a * k + a,
    "two products": lambda k: lambda a: a * k + a * a * 0.3,
    "two numbers": two_numbers,
    "clip": lambda k: lambda a: min(max(a, k), k + 3),
    "comparison": lambda k: lambda a: 1 if a > k else 0,
    "divided": lambda k: lambda a: a / k,
    "narrow": lambda k: lambda a: np.float32(k) * a,
    "decay": lambda k: lambda a: a * (1 - k) + k,
}


def transformed(op, x, out, **named):
    y = cp.zeros(N, out)
    made = cupar.unary_transform(x, y, op, **named)
    made.run(x, y, N)
    found = y.get()
    found[np.isnan(found)] = np.nan  # of which processors have several
    return found.tobytes(), bool(dict(made._spec.operators)["op"].numbers)


@pytest.mark.parametrize("dtype", ["f4", "i4"] if IS_CPU else ["f4", "f8", "i4", "i8", "u1"])
@pytest.mark.parametrize("name", OF_ONE)
def test_transforms(name, dtype):
    make = OF_ONE[name]
    x, out = cp.asarray(items(dtype)), dtype if np.dtype(dtype).kind == "f" else "f8"
    values = FLOATS if out == dtype else (*FLOATS[1:3], *INTEGERS)
    were_arguments = []
    for k in values:
        expected, is_constant = transformed(make(k), x, out, numbers="constant")
        found, is_argument = transformed(make(k), x, out)
        assert found == expected, (name, dtype, k)
        assert not is_constant
        were_arguments.append(is_argument)
    # Of a sum of two products one alone is rounded, which depends on their factors.
    assert any(were_arguments) == (not name.startswith("two") or out != dtype)


# --- Families --------------------------------------------------------------------------------------------
# Operators are associative, and items are such that all results are exact.


def added(k):
    return lambda a, b: a + b + k


def capped(k):
    return lambda a, b: min(max(a, b), k)


def above(k):
    return lambda a: a > k


def near(k):
    return lambda a, b: abs(a - b) < k


def before(k):
    """An order by the distance from a number."""
    return lambda a, b: (a - k) * (a - k) < (b - k) * (b - k)


def reduced(op, x, **named):
    out = cp.zeros(1, x.dtype)
    cupar.reduce_into(x, out, op, np.zeros(1, x.dtype), **named).run(x, out, N, np.zeros(1, x.dtype))
    return [out]


def scanned(op, x, **named):
    one, other = cp.zeros(N, x.dtype), cp.zeros(N, x.dtype)
    cupar.inclusive_scan(x, one, op, None, **named).run(x, one, N, None)
    init = np.full(1, 2, x.dtype)
    cupar.exclusive_scan(x, other, op, init, **named).run(x, other, N, init)
    return [one, other]


def reduced_by_segments(op, x, **named):
    starts, out = cp.asarray(np.arange(0, N - 100, 100)), cp.zeros(49, x.dtype)
    ends, init = starts + 100, np.zeros(1, x.dtype)
    made = cupar.segmented_reduce(x, out, starts, ends, op, init, **named)
    made.run(x, out, 49, starts, ends, init)
    return [out]


def combined(op, x, **named):
    out = cp.zeros(N, x.dtype)
    cupar.binary_transform(x, x, out, op, **named).run(x, x, out, N)
    return [out]


def selected(op, x, **named):
    out, count = cp.zeros(N, x.dtype), cp.zeros(1, "i8")
    cupar.select(x, out, count, op, **named).run(x, out, count, N)
    return [out[: int(count.get()[0])], count]


def parted(op, x, **named):
    """Into three."""
    out = [cp.zeros(N, x.dtype) for _ in range(3)]
    count = cp.zeros(2, "i8")
    made = cupar.three_way_partition(x, *out, count, op, lambda a: a > 100, **named)
    made.run(x, *out, count, N)
    return [*out, count]


def found(op, x, **named):
    out = cp.zeros(1, "i8")
    cupar.find_if(x, out, op, **named).run(x, out, N)
    return [out]


def without_repeats(op, x, **named):
    keys, kept, count = cp.zeros(N, x.dtype), cp.zeros(N, x.dtype), cp.zeros(1, "i8")
    made = cupar.unique_by_key(x, x, keys, kept, count, op, **named)
    made.run(x, x, keys, kept, count, N)
    return [keys[: int(count.get()[0])], count]


def sorted_by(op, x, **named):
    out = cp.zeros(N, x.dtype)
    cupar.merge_sort(x, None, out, None, op, **named).run(x, None, out, None, N)
    return [out]


FAMILIES = [
    *[(family, op) for family in (reduced, scanned, reduced_by_segments, combined) for op in (added, capped)],
    *[(family, above) for family in (selected, parted, found)],
    (without_repeats, near),
    (sorted_by, before),
]


@pytest.mark.parametrize("dtype", ["f4", "i8"] if IS_CPU else ["f4", "i4", "f8", "i8"])
@pytest.mark.parametrize(("family", "op"), FAMILIES, ids=lambda each: each.__name__)
def test_families(family, op, dtype):
    x = cp.asarray(np.random.default_rng(3).integers(-40, 40, N).astype(dtype))
    for k in (
        (3, 5, 12, 2**33) if np.dtype(dtype).kind == "i" else (2.5, 5.25, 12.0, 0.1 if op is above else 0.5)
    ):
        expected = [each.get().tobytes() for each in family(op(k), x, numbers="constant")]
        assert [each.get().tobytes() for each in family(op(k), x)] == expected, k


def test_iterators():
    """Their operators are those of when they were made."""
    x = cp.asarray(items("f4")[:1000])
    out = cp.zeros(1000, "f8")
    made = [(k, cupar.TransformIterator(x, OF_ONE["scale"](k), "f8")) for k in (0.3, 0.7, 0.9, 1.1)]
    for k, each in made:
        transform = cupar.unary_transform(each, out, cupar.OpKind.IDENTITY)
        transform.run(each, out, 1000)
        with np.errstate(all="ignore"):
            assert np.array_equal(out.get(), x.get().astype("f8") * k, equal_nan=True)


# --- Functions of arrays -----------------------------------------------------------------------------------

HOST = items("f4")


@pytest.mark.parametrize(
    "values", [(0.1, 0.2, 0.3, 0.7, 0.9), (0.5, 2.5, 0.1, 0.25, 0.3, 1.0, 0.7), (2, 3, 0.5, 7, 0.1)]
)
def test_functions(values):
    x = cp.asarray(np.arange(-500.0, 500.0).astype("f4"))
    host = x.get().astype("f8")
    for k in (*values, *values):
        threshold = k * 100
        assert np.array_equal(on_host(arrays.copy_if(x, lambda a: a > threshold)), host[host > threshold])
        assert np.array_equal(on_host(arrays.transform(lambda a: a * k, x)), host * k)
        assert int(arrays.count_if(x, lambda a: a < threshold)) == int((host < threshold).sum())
        first = int(arrays.find_first(x, lambda a: a > threshold))
        assert first == (int(np.argmax(host > threshold)) if (host > threshold).any() else -1)


def test_two_operators_of_one_call():
    """Each reads its own number, though both have the same code."""
    x = cp.asarray(np.arange(100.0))
    for k, j in ((0.1, 0.2), (0.3, 0.4), (0.5, 0.7), (0.7, 0.5), (0.9, 0.9)):
        one = arrays.transform(lambda a: a * k, x)
        other = arrays.transform(lambda a: a * j, x)
        assert np.array_equal(on_host(one), np.arange(100.0) * k)
        assert np.array_equal(on_host(other), np.arange(100.0) * j)


@pytest.mark.skipif(not IS_CPU, reason="counts builds of the CPU")
def test_lengths():
    x = cp.asarray(np.arange(10))
    for length in range(2, 40):
        assert np.array_equal(on_host(arrays.transform(lambda i: i + length, x)), np.arange(10) + length)
