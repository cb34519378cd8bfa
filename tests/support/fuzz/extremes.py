"""Random calls of `cupar.arrays` near the ends of dtypes, with arrays of two dtypes, and with bad arguments.

Python's numbers are exact: results are compared with what its sorts, sets and fractions make.
"""

import bisect
import itertools
import math
import os
from fractions import Fraction

import numpy as np
from support.fuzz.functions import Draw, same

from cupar import OpKind, arrays

# By default few, whose builds other tests have.
DTYPES = os.environ.get("CUPAR_FUZZ_DTYPES", "i8 u8 f8").split()
REAL = [each for each in DTYPES if np.dtype(each).kind in "biuf"]
NUMBERS = [each for each in REAL if each != "?"]


class Far(Draw):
    """What is drawn, of items near the ends of dtypes and of what floats have of integers."""

    def items(self, shape, dtype, special):
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            near = (info.min, info.max, 0, 1, 2**11, 2**24, 2**53, 2**62, 2**63)
            values = [
                each + step for each in near for step in (-1, 0, 1) if info.min <= each + step <= info.max
            ]
        elif dtype.kind == "f":
            info = np.finfo(dtype)
            least = (info.max, info.max / 2, info.tiny, info.smallest_subnormal, 0, 1, 1 + info.eps, 2, 0.1)
            values = [float(each) for each in least] + [-float(each) for each in least]
            values += [2.0**53, 2.0**63, 2.0**64] if info.max > 2**64 else [2.0**11]
            values += [math.inf, -math.inf, *([math.nan] if special else [])]
        else:
            return super().items(shape, dtype, special)
        size = math.prod(shape)
        return np.array([self.one(values) for _ in range(size)], dtype).reshape(shape)

    def real(self, **named):
        return self.array(dtypes=REAL, **named)


def ordered(draw):
    x = draw.real(low=1)
    axis, order = draw.axis(x), draw.one([False, True])
    flat, at = (x.reshape(-1), 0) if axis is None else (x, axis)
    expected = np.sort(flat, at)
    found = arrays.sort(x, axis=axis, descending=order)
    np.testing.assert_array_equal(found, np.flip(expected, at) if order else expected)
    length = flat.shape[at]
    values, places = arrays.top_k(x, min(2, length), axis=axis, largest=False)
    np.testing.assert_array_equal(values, np.take(expected, range(min(2, length)), at))
    np.testing.assert_array_equal(np.take_along_axis(flat, places, at), values)
    np.testing.assert_array_equal(arrays.argsort(x, axis=axis), np.argsort(flat, at, kind="stable"))
    values, counts = np.unique_counts(x)
    found = arrays.unique_counts(x)
    np.testing.assert_array_equal(found.values, values)
    np.testing.assert_array_equal(found.counts, counts)
    if not flat.shape[at]:
        return
    named = {"axis": axis, "keepdims": order}
    for name in ("min", "max", "argmin", "argmax"):
        np.testing.assert_array_equal(getattr(arrays, name)(x, **named), getattr(np, name)(x, **named))
    n = draw.random.randrange(length)
    np.testing.assert_array_equal(arrays.nth_element(x, n, axis=axis), np.take(expected, n, at))


def is_lesser(dtype, of):
    kinds = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
    return kinds[np.dtype(dtype).kind] < kinds[of.kind]


def refuses(call, name):
    try:
        call()
    except TypeError as error:
        assert str(error).startswith(f"{name}: expected"), error
    else:
        raise AssertionError(f"{name} was taken")


def combined(draw):
    """Sums in dtypes and outputs: integers wrap; floats are small, as the order of sums decides of others."""
    dtype = np.dtype(draw.one(NUMBERS))
    near = draw.array(dtypes=[dtype])
    x = near if dtype.kind in "iu" else np.sign(near, out=np.empty_like(near))
    x = np.nan_to_num(x) if dtype.kind == "f" else x
    axis, given, to = draw.axis(x), np.dtype(draw.one(REAL)), np.dtype(draw.one(REAL))
    summed = np.dtype(np.int64) if dtype.kind == "i" else np.dtype(np.uint64) if dtype.kind == "u" else dtype
    if is_lesser(given, dtype):
        refuses(lambda: arrays.sum(x, axis=axis, dtype=given), "dtype")
    elif given.kind != "f" or dtype.kind == "f":
        same(arrays.sum(x, axis=axis, dtype=given), np.sum(x, axis, given), rounded=True)
    expected = np.sum(x, axis, summed)
    out = np.empty(np.shape(expected), to)
    if is_lesser(to, summed):
        refuses(lambda: arrays.sum(x, axis=axis, out=out), "out")
        refuses(lambda: arrays.reverse(x, out=np.empty(x.shape, to)), "out")
    else:
        same(arrays.sum(x, axis=axis, out=out), expected.astype(to), rounded=True)
        same(arrays.reverse(x, out=np.empty(x.shape, to)), np.flip(x).astype(to))
    flat, at = (x.reshape(-1), 0) if axis is None else (x, axis)
    found = arrays.scan(x, OpKind.PLUS, axis=axis)
    same(found, np.cumsum(flat, at, x.dtype), rounded=True)
    if near.ndim:
        at, n = draw.axis(near, none=False), draw.one([0, 1, 2])
        before = draw.perhaps(near)
        named = {"axis": at, "n": n} if before is None else {"axis": at, "n": n, "prepend": before}
        same(arrays.diff(near, **named), np.diff(near, **named))


def position(items, q):
    """Return the two items that a quantile is between, and how far it is from the first."""
    exact = q * (len(items) - 1)
    low = min(int(exact), len(items) - 1)
    return items[low], items[min(low + 1, len(items) - 1)], exact - low


def between(items, q):
    """Return a quantile of floats: exact, but for what is beside infinite ones."""
    if any(each != each for each in items):
        return math.nan
    low, high, part = position(sorted(items), q)
    if low == high or not part:
        return low
    if math.isinf(low) or math.isinf(high):
        return low * (1 - part) + high * part
    return float(Fraction(low) + (Fraction(high) - Fraction(low)) * Fraction(part))


def quantiles(draw):
    x, q = draw.array(dtypes=NUMBERS, low=1), draw.one([0.0, 0.25, 0.3, 0.5, 0.875, 1.0])
    if not x.size:
        return
    result = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
    items = [float(each) for each in x.reshape(-1)]
    near = max((abs(each) for each in items if math.isfinite(each)), default=0) * np.finfo(result).eps
    found = {"quantile": arrays.quantile(x, q), "median": arrays.median(x)}
    middle = between(items, 0.5)
    expected = {"quantile": between(items, q), "median": middle, "midpoint": middle, "range": middle}
    if len(items) % 2 == 0:
        found["midpoint"] = arrays.quantile(x, 0.5, method="midpoint")
    bounds = np.array([0]), np.array([x.size])
    found["range"] = arrays.segment_quantile(x.reshape(-1), *bounds)[0]
    for name, each in found.items():
        assert each.dtype == result
        right = expected[name]
        limit = np.finfo(result)
        if math.isfinite(right):
            assert abs(Fraction(float(each)) - Fraction(right)) <= 4 * Fraction(float(near)) + Fraction(
                float(limit.smallest_subnormal)
            ), (name, q, items, each, right)
        else:
            np.testing.assert_array_equal(float(each), right, f"{name} {q} {items}")


def bins(draw):
    x, number = draw.array(dtypes=NUMBERS, special=False, low=1), draw.one([1, 2, 3, 10, 300])
    items = [float(each) for each in x.reshape(-1)]
    interval = draw.one([None, None, (-1, 3), (0, 2.0**53), (-3e38, 3e38), (-1.5e308, 1.7e308), (1, 1)])
    points = draw.one([False, True])
    call = arrays.histogramdd if points else arrays.histogram
    given = x.reshape(-1) if points else x
    named = {"bins": number, "range": None if interval is None else [interval] if points else interval}
    low, high = interval or ((min(items), max(items)) if items else (0.0, 1.0))
    try:
        hist, edges = call(given, **named)
    except ValueError as error:
        said = str(error)
        if said.startswith("range:"):
            assert not (math.isfinite(low) and math.isfinite(high))
        else:
            assert said.startswith("bins:")
            low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
            near = Fraction(max(abs(low), abs(high)))
            dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
            info = np.finfo(dtype)
            spacing = max(Fraction(float(info.eps)) * near, Fraction(float(info.smallest_subnormal)))
            assert Fraction(high) - Fraction(low) < 2 * number * spacing, (low, high)
        return
    edges = edges[0] if points else edges
    low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
    np.testing.assert_allclose([edges[0], edges[-1]], np.array([low, high]).astype(edges.dtype))
    known = [float(each) for each in edges]
    assert all(a < b for a, b in itertools.pairwise(known))
    step, near = (Fraction(high) - Fraction(low)) / number, Fraction(max(abs(low), abs(high)))
    info = np.finfo(edges.dtype)
    limit = 4 * near * Fraction(float(info.eps)) + number * Fraction(float(info.smallest_subnormal))
    for i, each in enumerate(known):
        assert abs(Fraction(each) - Fraction(low) - step * i) <= limit, (i, known, low, high)
    expected = [0] * number
    for each in items:
        if known[0] <= each <= known[-1]:
            expected[min(bisect.bisect_right(known, each), number) - 1] += 1
    assert hist.tolist() == expected, (x, named)


def exact(x):
    return sorted(x.tolist())


def compared(draw):
    """Two arrays of any dtypes: Python compares what they hold exactly."""
    x, y = (np.sort(draw.array(dtypes=REAL, special=False, low=1, high=2), None) for _ in range(2))
    a, b = x.tolist(), y.tolist()
    result = np.result_type(x, y)
    assert arrays.isin(x, y).tolist() == [each in b for each in a]
    assert arrays.searchsorted(x, y).tolist() == [bisect.bisect_left(a, each) for each in b]
    assert arrays.searchsorted(x, y, side="right").tolist() == [bisect.bisect_right(a, each) for each in b]
    for name, items in {
        "union1d": set(a) | set(b),
        "intersect1d": set(a) & set(b),
        "setxor1d": set(a) ^ set(b),
    }.items():
        found = getattr(arrays, name)(x, y)
        assert found.dtype == result
        np.testing.assert_array_equal(found, np.array(sorted(items), object).astype(result), name)
    assert arrays.setdiff1d(x, y).tolist() == sorted(set(a) - set(b))
    np.testing.assert_array_equal(arrays.merge(x, y), np.array(sorted(a + b), object).astype(result))
    assert bool(arrays.includes(x, y)) == all(a.count(each) >= b.count(each) for each in b)
    assert bool(arrays.lexicographical_compare(x, y)) == (a < b)
    size = min(len(a), len(b))
    differ = next((i for i in range(size) if a[i] != b[i]), -1)
    assert int(arrays.mismatch(x[:size], y[:size])) == differ
    assert bool(arrays.equal(x[:size], y[:size])) == (differ < 0)


# Arguments that are none, by the parameters that have them.
BAD = {
    "axis": [True, "0", 1.5, 9, -9, (0, 0), (0, 9), [0]],
    "keepdims": ["yes", None, 0.5, [1]],
    "descending": ["no", None, 2.5],
    "dtype": ["nothing", "U3", object, 7, "datetime64[s]"],
    "out": [3, [1.0], np.empty((7, 7, 7, 7)), np.empty(3, "U3"), "x"],
    "where": [True, [True], np.ones((7, 7), bool), "x"],
    "n": [-1, 1.5, "1", None],
    "rank": [6, -7, 1.5, "1", None],
    "q": [-0.5, 1.5, math.nan, "a", None, [2], 1j],
    "method": ["nothing", None, 3],
    "bins": [0, -1, 2.5, "auto", [1], [2, 1], None, True],
    "range": [(2, 1), (0, math.inf), (math.nan, 1), 3, (1, 2, 3), "ab"],
    "side": ["middle", None, 1],
    "k": [-1, 10**6, 1.5, "2", None],
    "size": [-1, 1.5, "2", True],
    "x": [None, 3, "abc", [1, 2], np.array(["a"]), np.array([object()])],
}
TAKEN = {
    "sum": ("axis", "keepdims", "dtype", "out", "where", "x"),
    "max": ("axis", "keepdims", "out", "x"),
    "argmin": ("axis", "keepdims", "x"),
    "cumulative_sum": ("axis", "dtype", "out", "x"),
    "scan": ("axis", "dtype", "out", "x"),
    "sort": ("axis", "descending", "out", "x"),
    "quantile": ("axis", "keepdims", "method", "x"),
    "histogram": ("bins", "range", "x"),
    "histogramdd": ("bins", "x"),
    "diff": ("n", "x"),
    "unique_values": ("size", "x"),
    "reverse": ("axis", "out", "x"),
}
POSITIONAL = {
    "quantile": ("q", 0.5),
    "top_k": ("k", 1),
    "nth_element": ("rank", 0),
    "searchsorted": ("x2", 1.0),
}


def refused(draw):
    """Bad arguments: the error is of a usual kind, short, and names the parameter."""
    x = draw.array(dtypes=["f8"], special=False, shape=(2, 3))
    x = np.where(np.isfinite(x), x, 0)
    name = draw.one([*TAKEN, *POSITIONAL])
    more = [POSITIONAL[name][1]] if name in POSITIONAL else []
    parameters = [*TAKEN.get(name, ("x",)), *([POSITIONAL[name][0]] if name in POSITIONAL else [])]
    parameter = draw.one([each for each in parameters if each in BAD])
    value = draw.one(BAD[parameter])
    named = {"axis": 0} if name == "cumulative_sum" else {}
    if parameter == "x":
        given = value, *more
    elif name in POSITIONAL and parameter == POSITIONAL[name][0]:
        given = x, value
    else:
        given, named = (x, *more), {**named, parameter: value}
    try:
        found = getattr(arrays, name)(*given, **named)
    except (TypeError, ValueError, IndexError) as error:
        said = str(error)
        names = (
            (parameter, "x1", "like")
            if parameter == "x" and name in ("searchsorted", "diff")
            else (parameter,)
        )
        names = ("n",) if parameter == "rank" else names
        begins = [f"{each}{mark}" for each in names for mark in (": ", "[")]
        assert said.startswith(tuple(begins)), (name, parameter, value, said)
        assert len(said.splitlines()) <= 20
    else:
        raise AssertionError(f"{name} takes {parameter}={value!r}, and returns {found!r}")


QUICK = (ordered, combined, quantiles, bins, refused)
CASES = (*QUICK, compared)  # of two dtypes each, whose builds take seconds
