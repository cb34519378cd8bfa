"""Random calls of `cupar.arrays` against NumPy: any layout, axis, mask and output; see `tests/functions`."""

import os

import numpy as np

from cupar import OpKind, arrays

DTYPES = os.environ.get("CUPAR_FUZZ_DTYPES", "f4").split()
VALUES = {
    "b": [False, True],
    "i": [0, 1, 2, 3, -1, -2, -3],
    "u": [0, 1, 2, 3, 5],
    "f": [0.0, -0.0, 1.0, -1.0, 2.5, -7.0],
    "c": [0, 1, -2j, 3 + 1j, complex(-0.0, 0)],
}
SPECIAL = {"f": [np.nan, -np.nan, np.inf, -np.inf], "c": [complex(np.nan, 1), complex(1, np.nan)]}


class Draw:
    """What is drawn of a `random.Random`: arrays of any layout, axes and masks."""

    def __init__(self, random):
        self.random = random

    def one(self, choices):
        return self.random.choice(list(choices))

    def perhaps(self, value):
        return value if self.random.random() < 0.4 else None

    def shape(self, low=0, high=3):
        sides = [1, 1, 2, 3, 4, 17, 0]
        return tuple(self.one(sides) for _ in range(self.random.randint(low, high)))

    def items(self, shape, dtype, special):
        values = VALUES[dtype.kind] + (SPECIAL.get(dtype.kind, []) if special else [])
        if dtype.kind in "iu" and special:
            values = [*values, np.iinfo(dtype).min, np.iinfo(dtype).max]
        size = int(np.prod(shape))
        chosen = [self.random.randrange(len(values)) for _ in range(size)]
        return np.array(values).astype(dtype)[chosen].reshape(shape)

    def array(self, *, special=True, shape=None, dtypes=DTYPES, low=0, high=3):
        """Return an array: strided, turned, transposed, broadcast, read-only, or of Fortran's order."""
        dtype = np.dtype(self.one(dtypes))
        shape = self.shape(low, high) if shape is None else shape
        style = self.one(["plain", "strided", "transposed", "broadcast", "read-only", "fortran"])
        if style == "strided":
            steps = [self.one([1, 2, -1, -3]) for _ in shape]
            whole = [n * abs(step) for n, step in zip(shape, steps, strict=True)]
            x = self.items(whole, dtype, special)[tuple(slice(None, None, step) for step in steps)]
        elif style == "transposed":
            x = self.items(shape[::-1], dtype, special).T
        elif style == "broadcast":
            x = np.broadcast_to(self.items([self.one([1, n]) for n in shape], dtype, special), shape)
        else:
            x = self.items(shape, dtype, special)
            x = np.asfortranarray(x) if style == "fortran" and shape else x
            x.flags.writeable = style != "read-only"
        return np.asarray(x)

    def axis(self, x, none=True):
        every = [*range(-x.ndim, x.ndim)]
        return self.one([None, *every] if none or not every else every)

    def mask(self, x):
        return np.array([self.random.random() < 0.5 for _ in range(x.size)], bool).reshape(x.shape)


def same(found, expected, rounded=False):
    """Compare dtype, shape, values, and the signs of zeros; `rounded` within rounding."""
    expected = np.asarray(expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if rounded and expected.dtype.kind in "fc":
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        return
    np.testing.assert_array_equal(found, expected)
    if expected.dtype.kind == "f":
        zeros = expected == 0
        np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(expected[zeros]))


def larger(a, b):
    return a if a > b else b


def later(a, b):
    return b


def reductions(draw):
    x = draw.array(special=False)
    axis = draw.axis(x)
    if x.ndim and draw.perhaps(True):
        axis = tuple(draw.random.sample(range(x.ndim), draw.random.randint(0, x.ndim)))
    named = {"axis": axis, "keepdims": draw.one([False, True])}
    where = draw.perhaps(draw.mask(x))
    masked = named if where is None else {**named, "where": where}
    expected = np.sum(x, **masked, dtype=np.int64 if x.dtype.kind in "bi" else None)
    out = draw.perhaps(np.empty(np.shape(expected), expected.dtype))
    found = arrays.sum(x, **masked, out=out)
    assert out is None or found is out
    same(found, expected, rounded=True)
    if x.dtype.kind != "c":
        expected = np.max(x, **masked, initial=-3)
        same(arrays.reduce(x, larger, **masked, init=-3), expected)
    same(arrays.any(x, **named), np.any(x, **named))


def places_of_extremes(draw):
    x = draw.array(dtypes=[each for each in DTYPES if np.dtype(each).kind != "c"])
    named = {"axis": draw.axis(x), "keepdims": draw.one([False, True])}
    try:
        expected = np.argmax(x, **named)
    except ValueError:
        return
    same(arrays.argmax(x, **named), expected)
    least, greatest = arrays.minmax(x, **named)
    assert np.array_equal(least, np.min(x, **named), equal_nan=x.dtype.kind == "f")
    assert np.array_equal(greatest, np.max(x, **named), equal_nan=x.dtype.kind == "f")


def scans(draw):
    """The operator is not commutative, so that the order of items shows."""
    x, op = draw.array(), draw.one([later, larger])
    if x.dtype.kind == "c":
        op = later
    axis, reverse, exclusive = draw.axis(x), draw.one([False, True]), draw.one([False, True])
    flat, at = (x.ravel(), 0) if axis is None else (x, axis)
    turned = np.moveaxis(np.flip(flat, at) if reverse else flat, at, 0)
    expected, running = np.empty_like(turned), np.full(turned.shape[1:], 1, x.dtype)
    for i, items in enumerate(turned):
        before = running
        running = items if op is later else np.where(running > items, running, items)
        expected[i] = before if exclusive else running
    expected = np.moveaxis(expected, 0, at)
    expected = np.flip(expected, at) if reverse else expected
    named = {"axis": axis, "reverse": reverse, "exclusive": exclusive, "init": 1}
    same(arrays.scan(x, op, **named), expected)
    out = np.array(flat, order="C")
    assert arrays.scan(out, op, **named, out=out) is out
    same(out, expected)


def cumulated(draw):
    x = draw.array(special=False, low=1)
    named = {"axis": draw.axis(x, none=x.ndim == 1), "include_initial": draw.one([False, True])}
    same(arrays.cumulative_sum(x, **named), np.cumulative_sum(x, **named), rounded=True)
    out = np.empty(np.cumulative_sum(x, **named).shape, np.float64)
    if x.dtype.kind != "c":
        arrays.cumulative_sum(x, **named, out=out)
        same(out, np.cumulative_sum(x, **named).astype(np.float64), rounded=True)


def sorts(draw):
    x = draw.array(low=1)
    axis, descending = draw.axis(x), draw.one([False, True])
    flat, at = (x.ravel(), 0) if axis is None else (x, axis)
    if descending:
        places = flat.shape[at] - 1 - np.flip(np.argsort(np.flip(flat, at), at, kind="stable"), at)
    else:
        places = np.argsort(flat, at, kind="stable")
    expected = np.take_along_axis(flat, places, at)
    same(arrays.argsort(x, axis=axis, descending=descending), places)
    out = np.array(flat, order="C")
    arrays.sort(out, axis=at, descending=descending, out=out)
    for found in (out, arrays.sort(x, axis=axis, descending=descending)):
        same(found, expected)
    if x.dtype.kind != "c":
        k = draw.random.randint(0, flat.shape[at])
        values, found = arrays.top_k(x, k, axis=axis, largest=descending)
        np.testing.assert_array_equal(values, np.take(expected, range(k), at))
        same(np.take_along_axis(flat, found, at), values)


def selections(draw):
    x = draw.array(dtypes=[each for each in DTYPES if np.dtype(each).kind != "c"])
    flat, size = x.ravel(), draw.one([0, 1, 5, 500])
    chosen = flat[flat > 0]
    same(arrays.copy_if(x, lambda a: a > 0), chosen)
    items, count = arrays.copy_if(x, lambda a: a > 0, size=size)
    assert items.shape == (size,) and count == len(chosen)
    same(items[: len(chosen)], chosen[:size])
    items, count = arrays.partition_by(x, lambda a: a > 0)
    same(items, np.concatenate([chosen, flat[~(flat > 0)]]))
    if x.ndim:
        for found, expected in zip(arrays.nonzero(x), np.nonzero(x), strict=True):
            same(found, expected)


def places(draw):
    x = draw.array()
    axis = draw.axis(x)
    length = x.size if axis is None else x.shape[axis]
    wanted = draw.shape(0, 2) if length else (0,)
    indices = np.array([draw.random.randrange(-length, length) for _ in range(int(np.prod(wanted)))], int)
    indices = indices.reshape(wanted)
    same(arrays.take(x, indices, axis=axis), np.take(x, indices, axis))
    repeats = np.array([draw.random.randint(0, 3) for _ in range(length)], int)
    same(arrays.repeat(x, repeats, axis=axis), np.repeat(x, repeats, axis))
    if x.ndim:
        at, n = draw.axis(x, none=False), draw.one([0, 1, 2])
        x = np.nan_to_num(x, posinf=1, neginf=1) if x.dtype.kind in "fc" else x
        same(arrays.diff(x, axis=at, n=n), np.diff(x, axis=at, n=n), rounded=True)
        same(arrays.diff(x, axis=at, prepend=x), np.diff(x, axis=at, prepend=x), rounded=True)


def sets(draw):
    x, y, size = draw.array(), draw.array(high=2), draw.one([0, 1, 5, 500])
    for found, expected in zip(arrays.unique_all(x), np.unique_all(x), strict=True):
        np.testing.assert_array_equal(found, expected)
    (values, *_, counts), count = arrays.unique_all(x, size=size)
    expected = np.unique_counts(x)
    assert values.shape == (size,) and count == len(expected.values)
    np.testing.assert_array_equal(values[: int(count)], expected.values[:size])
    np.testing.assert_array_equal(counts[: int(count)], expected.counts[:size])
    for name in ("setdiff1d", "setxor1d"):
        function, expected = getattr(arrays, name), getattr(np, name)(x, y)
        found, count = function(x, y, size=size)
        assert found.shape == (size,) and count == len(expected)
        for each in (function(x, y), found[: int(count)]):
            assert each.dtype == expected.dtype
            np.testing.assert_array_equal(each, expected[: len(each)])
    expected = np.setdiff1d(x, y, assume_unique=True)
    np.testing.assert_array_equal(arrays.setdiff1d(x, y, assume_unique=True), expected)
    np.testing.assert_array_equal(arrays.isin(x, y), np.isin(x, y))


def transforms(draw):
    shape = draw.shape(0, 4)
    xs = []
    for _ in range(2):
        own = [draw.one([n, n, 1]) for n in shape][draw.one([0, 0, len(shape) // 2]) :]
        xs.append(draw.array(shape=tuple(own), special=False))
    expected = np.broadcast_arrays(*xs)[::-1]
    for found, each in zip(arrays.transform(lambda a, b: (b, a), *xs), expected, strict=True):
        same(found, each)
    out = np.array(xs[0], order="C")
    assert arrays.transform(OpKind.PLUS, out, out, out=out) is out
    if xs[0].dtype.kind != "b":
        same(out, xs[0] + xs[0])


def tuples(draw):
    shape = draw.shape(1, 3)
    x, y = draw.array(shape=shape, dtypes=["i4"]), draw.array(shape=shape, dtypes=["f4"])
    axis = draw.axis(x)
    first, second = arrays.scan((x, y), lambda a, b: (a[0] if a[0] > b[0] else b[0], b[1]), axis=axis)
    same(first, np.maximum.accumulate(x.ravel() if axis is None else x, axis or 0))
    same(second, y.ravel() if axis is None else y)
    order = np.argsort(x, axis, kind="stable")
    sorted_x, sorted_y = arrays.sort((x, y), axis=axis, less=lambda a, b: a[0] < b[0])
    flat = (x.ravel(), y.ravel()) if axis is None else (x, y)
    same(sorted_x, np.take_along_axis(flat[0], order, 0 if axis is None else axis))
    same(sorted_y, np.take_along_axis(flat[1], order, 0 if axis is None else axis))


CASES = (
    reductions,
    places_of_extremes,
    scans,
    cumulated,
    sorts,
    selections,
    places,
    sets,
    transforms,
    tuples,
)
