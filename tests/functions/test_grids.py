"""Histograms of several dimensions, and ranges of items, against NumPy's."""

import numpy as np
import pytest

from cupar import arrays


def points(rng, n, number):
    return tuple(rng.integers(-3, 12, n).astype(dtype) for dtype in ("f4", "i2", "f8")[:number])


@pytest.mark.parametrize("weighted", [False, True])
def test_histograms_of_several_dimensions(weighted, rng):
    for n, number, bins, interval in (
        (500, 1, 4, None),
        (500, 2, (3, [0, 1, 1, 5, 9]), None),
        (500, 3, 4, [(0, 5), None, (-1, 20)]),
        (0, 2, 3, [(0, 1), (0, 1)]),
    ):
        x = points(rng, n, number)
        weights = rng.integers(0, 5, n).astype("f4") if weighted else None
        expected, edges = np.histogramdd(np.stack(x, 1), bins, interval, weights=weights)
        found = arrays.histogramdd(x, bins=bins, range=interval, weights=weights)
        assert found.hist.dtype == ("f8" if weighted else "i8")
        np.testing.assert_array_equal(found.hist, expected)
        for one, other in zip(found.edges, edges, strict=True):
            np.testing.assert_allclose(one, other)


@pytest.mark.parametrize("named", [{"bins": [-1, 0, 3]}, {"bins": 3, "range": np.array([-1, 5])}])
def test_bfloat16_is_counted_between_integers(named):
    """Of bfloat16 and integers NumPy has no common dtype."""
    x = np.array([-1, 0.5, 2, 3, 7], pytest.importorskip("ml_dtypes").bfloat16)
    expected, edges = np.histogram(x.astype("f4"), **named)
    found = arrays.histogram(x, **named)
    np.testing.assert_array_equal(found.hist, expected)
    np.testing.assert_array_equal(found.edges, edges)
    np.testing.assert_array_equal(arrays.histogram(x, **named, weights=np.ones(5)).hist, expected)


def test_edges_on_the_host_may_be_in_any_byte_order_but_not_of_any_dtype():
    x, edges = np.arange(6.0), np.array([0, 3, 6])
    assert arrays.histogram(x, bins=edges.astype(">i8")).hist.tolist() == [3, 3]
    with pytest.raises(TypeError, match="^bins: dtype float.* is not supported"):
        arrays.histogram(x, bins=edges.astype(np.longdouble))


def test_points_that_are_outside_or_nan_are_not_counted():
    x = np.array([0.5, np.nan, 2.0, 5.0, 0.5]), np.array([0.5, 0.5, 2.0, 0.5, np.nan])
    found = arrays.histogramdd(x, bins=([0, 1, 2], [0, 1, 2]))
    assert found.hist.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("named", "error", "message"),
    [
        ({"bins": (3,)}, ValueError, "bins: expected one for each of 2 dimensions, got 1"),
        (
            {"bins": 3, "range": [(0, 1)] * 3},
            ValueError,
            "range: expected one for each of 2 dimensions, got 3",
        ),
        ({"bins": 1 << 20}, ValueError, "bins: expected 2147483646 cells at most"),
        ({"weights": np.zeros(3)}, ValueError, "weights: expected shape"),
        ({"bins": ([2, 1], 3)}, ValueError, "bins: expected edges that rise"),
    ],
)
def test_what_makes_no_grid_is_refused(named, error, message):
    with pytest.raises(error, match=message):
        arrays.histogramdd((np.arange(4.0), np.arange(4.0)), **named)


def test_points_are_rows_of_an_array(rng):
    """As in NumPy, whose result of points that are taken for numbers would be another one."""
    for number, dimensions in ((50, 2), (0, 2), (7, 1)):
        x = rng.integers(-3, 12, (dimensions, number)).T.astype("f4")
        weights, interval = np.arange(number, dtype="i4"), [(0, 9)] * dimensions
        expected, _ = np.histogramdd(x, 3, interval, weights=weights)
        np.testing.assert_array_equal(
            arrays.histogramdd(x, bins=3, range=interval, weights=weights).hist, expected
        )
    for wrong in (np.zeros((2, 2, 2)), np.zeros((2, 0)), np.zeros(())):
        with pytest.raises(ValueError, match="x: expected a tuple of arrays, or an array with a row"):
            arrays.histogramdd(wrong)


def test_arrays_are_joined(rng):
    x, y, z = (np.asarray(rng.integers(0, 99, shape), "i2") for shape in ((3, 4), (3, 2), (5, 4)))
    for axis, parts in ((0, [x, z]), (1, [x, y]), (-1, [y, x, y]), (None, [x, y, z]), (0, [x] * 20)):
        np.testing.assert_array_equal(arrays.concatenate(parts, axis=axis), np.concatenate(parts, axis=axis))
    mixed = arrays.concatenate([x[0], np.zeros(0, "u1"), np.array([0.5], "f4")])
    assert mixed.dtype == "f4" and mixed.tolist() == [*x[0], 0.5]
    for given, error, message in (
        ([], ValueError, "arrays: expected at least one array, got none"),
        ([x, y], ValueError, r"arrays\[1\]: expected the shape of arrays\[0\], \(3, 4\), but for the axis"),
        ([x, None], TypeError, r"arrays\[1\]: expected"),
        ([np.int32(3)], ValueError, r"arrays\[0\]: expected an array with dimensions"),
    ):
        with pytest.raises(error, match=message):
            arrays.concatenate(given)


def test_ranges(rng):
    x = np.arange(50, dtype="i2")
    for number, n in ((0, 50), (1, 50), (7, 50), (300, 50), (4, 0)):
        starts, ends = rng.integers(-4, 56, (2, number))
        expected = [x[:n][max(s, 0) : max(e, 0)] for s, e in zip(starts, ends, strict=True)]
        expected = np.concatenate([x[:0], *expected])
        np.testing.assert_array_equal(arrays.take_ranges(x[:n], starts, ends), expected)
        items, count = arrays.take_ranges(x[:n], starts.astype("i4"), ends.astype("i4"), size=10_000)
        assert int(count) == len(expected)
        np.testing.assert_array_equal(items[: int(count)], expected)
        for size in (0, len(expected) // 2):  # of which some are missing
            items, count = arrays.take_ranges(x[:n], starts, ends, size=size)
            assert int(count) == len(expected)
            np.testing.assert_array_equal(items, expected[:size])
    pairs = arrays.take_ranges((x, x * 2.0), np.array([3, 40]), np.array([5, 41]))
    assert [each.tolist() for each in pairs] == [[3, 4, 40], [6, 8, 80]]
    until = np.array([3, 2**64 - 1], "u8")
    assert arrays.take_ranges(x, until - np.array([2, 1], "u8"), until).tolist() == [1, 2]
    assert arrays.take_ranges(x[:4], until * np.array([1, 0], "u8"), until).tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="ends: expected the shape of `starts`"):
        arrays.take_ranges(x, np.array([1]), np.array([1, 2]))
