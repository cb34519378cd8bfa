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
        low = -3 if x.dtype.kind in "if" else 0
        expected = np.max(x, **masked, initial=low)
        same(arrays.reduce(x, larger, **masked, init=low), expected)
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
    expected = x.reshape(-1)[~np.isin(x.reshape(-1), y)]  # NumPy's own is wrong if there are duplicates
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
    if xs[0].dtype.kind != "b":  # whose sums are int64
        assert arrays.transform(OpKind.PLUS, out, out, out=out) is out
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


def real(draw, **named):
    return draw.array(dtypes=[each for each in DTYPES if np.dtype(each).kind != "c"], **named)


def close(found, expected, x):
    """Compare results in floats with those in float64, within the rounding of an array's dtype."""
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found.astype("f8"), expected, rtol=1e-3 if x.dtype == "f2" else 1e-5)


def ranks(draw):
    x = real(draw)
    if x.dtype.kind == "f":
        x = np.where(np.isinf(x), 7, x)  # NumPy's quantile between two infinite items is NaN
    axis, wide = draw.axis(x), x.astype(np.float64)
    flat, at = (x.reshape(-1), 0) if axis is None else (x, axis)
    length = flat.shape[at]
    if not length:
        return
    n = draw.random.randrange(-length, length)
    np.testing.assert_array_equal(arrays.nth_element(x, n, axis=axis), np.take(np.sort(flat, at), n, at))
    named = {"axis": axis, "keepdims": draw.one([False, True])}
    q = draw.one([0, 1, 0.5, 0.3, [0.0, 1.0, 0.25], [[0.1], [0.2], [0.9], [0.4], [0.6]]])
    method = draw.one(["linear", "lower", "higher", "nearest", "midpoint"])
    close(arrays.quantile(x, q, method=method, **named), np.quantile(wide, q, method=method, **named), x)
    close(arrays.median(x, **named), np.median(wide, **named), x)
    items, flat = x.reshape(-1), wide.reshape(-1)
    cuts = np.sort(draw.random.choices(range(items.size + 1), k=4)).astype(draw.one(["i4", "i8", "u8"]))
    starts, ends = cuts[:-1][::-1], cuts[1:][::-1]
    parts = [flat[int(begin) : int(end)] for begin, end in zip(starts, ends, strict=True)]
    expected = [np.quantile(part, 0.3) if part.size else np.nan for part in parts]
    close(arrays.segment_quantile(items, starts, ends, 0.3), expected, x)


def bins(draw):
    x = real(draw)
    weights = draw.perhaps(draw.array(shape=x.shape, special=False, dtypes=["i2", "f4"]))
    wide = x.astype(np.float64)
    edges = draw.one(
        [[-1, 0, 0, 2.5, 3], [0.0, np.inf], [-np.inf, 0, 1], [0, 1, 200], np.arange(3, dtype="u1")]
    )
    for named in ({"bins": edges}, {"bins": 3, "range": (-2, 3)}):
        found, (expected, wanted) = (
            function(each, **named, weights=weights)
            for function, each in (
                (arrays.histogram, x),
                (np.histogram, x.astype("u1") if x.dtype == "?" else x),
            )
        )
        np.testing.assert_allclose(found.hist, expected, rtol=1e-6)
        np.testing.assert_allclose(found.edges, wanted, rtol=1e-6)
    y = draw.array(shape=x.shape, special=False, dtypes=["f4"])
    both = edges, [-8, 0, 3]
    points = np.stack([wide.reshape(-1), y.reshape(-1)], 1)
    flat = None if weights is None else weights.reshape(-1)
    expected, _ = np.histogramdd(points, both, weights=flat)
    for found in (
        arrays.histogramdd((x, y), bins=both, weights=weights),
        arrays.histogramdd(points, bins=both, weights=flat),
    ):
        np.testing.assert_allclose(found.hist, expected, rtol=1e-6)


def sums_by_id(draw):
    x = draw.array(dtypes=["f4"])
    weights = draw.perhaps(draw.array(shape=x.shape, special=False, dtypes=["i2", "f4"]))
    ids, number = draw.array(shape=x.shape, dtypes=["i1", "u8", "i8", "?"]), draw.one([0, 1, 3, 70])
    inside = (ids >= 0) & (ids < number)
    known = ids[inside].astype(int)
    expected = np.bincount(known, None if weights is None else weights[inside], number)[:number]
    flat = None if weights is None else weights.reshape(-1)
    found = arrays.bincount(ids.reshape(-1), weights=flat, size=number)
    same(found, expected.astype("i8" if flat is None else "f8"))
    expected = np.full(number, -np.inf, "f4")
    np.fmax.at(expected, known, x[inside])
    same(arrays.segment_reduce(x, ids, np.fmax, number, init=-np.inf), expected)
    if x.ndim and x.size:
        rows = ids.reshape(len(x), -1)[:, 0]
        inside = (rows >= 0) & (rows < number)
        expected = np.zeros((number, *x.shape[1:]), "f4")
        np.add.at(expected, rows[inside].astype(int), x[inside])
        same(arrays.segment_reduce(x, rows, OpKind.PLUS, number), expected, rounded=True)


def ranges(draw):
    x = draw.array()
    number, dtype = draw.one([0, 1, 4, 30]), np.dtype(draw.one(["i1", "i8", "u8", "i4"]))
    low = 0 if dtype.kind == "u" else -3
    starts, ends = (np.array([draw.random.randint(low, 60) for _ in range(number)], dtype) for _ in range(2))
    if number and draw.perhaps(True):
        ends[0], starts[-1] = np.iinfo(dtype).max, np.iinfo(dtype).min
    flat = x.reshape(-1)
    parts = [flat[max(0, int(a)) : max(0, int(b))] for a, b in zip(starts, ends, strict=True)]
    expected = np.concatenate([flat[:0], *parts])
    same(arrays.take_ranges(flat, starts, ends), expected)
    items, count = arrays.take_ranges(flat, starts, ends, size=5)
    assert count == len(expected)
    same(items[: int(count)], expected[:5])
    if x.ndim:
        axis, others = draw.axis(x), [draw.array(shape=x.shape) for _ in range(draw.one([0, 1, 20]))]
        same(arrays.concatenate([x, *others], axis=axis), np.concatenate([x, *others], axis))


def multisets(draw):
    """Of arrays that NumPy has sorted: NaNs are one item there; complex ones with NaN are left out."""
    x, y = (np.sort(draw.array(low=1), None) for _ in range(2))
    if "c" in x.dtype.kind + y.dtype.kind:
        x, y = x[x == x], y[y == y]
    dtype = np.result_type(x, y)
    keys = np.unique(np.concatenate([x, y]).astype(dtype))
    m, n = (
        np.array([np.sum((a == key) | ((a != a) & (key != key))) for key in keys], int)
        for a in (x.astype(dtype), y.astype(dtype))
    )
    for name, counts in {
        "union": np.maximum(m, n),
        "intersection": np.minimum(m, n),
        "difference": np.maximum(m - n, 0),
        "symmetric_difference": abs(m - n),
    }.items():
        found = getattr(arrays, f"set_{name}")(x, y)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, np.repeat(keys, counts))
    same(arrays.includes(x, y), np.bool_((m >= n).all()))


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
ASKED = (
    ranks,
    bins,
    sums_by_id,
    ranges,
    multisets,
)  # of many algorithms and dtypes, whose builds take seconds
