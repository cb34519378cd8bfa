"""Sets of items that occur several times, against what C++ says of them, written as loops."""

import numpy as np
import pytest

from cupar import arrays


def by_key(a, b):
    return a[0] < b[0]


def descending(a, b):
    return a > b


def expected(a, b, kind):
    """Return what C++ says; both are lists of a key and of what goes with it."""
    out = []
    for key in sorted({key for key, _ in (*a, *b)}):
        one, other = ([each for each in side if each[0] == key] for side in (a, b))
        m, n = len(one), len(other)
        out += {
            "union": one + other[m:],
            "intersection": one[:n],
            "difference": one[n:],
            "symmetric_difference": one[n:] + other[m:],
        }[kind]
    return out


def keys(rng, n, top):
    return np.sort(rng.integers(0, top, n)).astype("i4")


SHAPES = [(0, 0), (0, 7), (7, 0), (1, 1), (60, 40), (300, 500)]


@pytest.mark.parametrize("kind", ["union", "intersection", "difference", "symmetric_difference"])
def test_items_that_occur_several_times(kind, rng):
    function = getattr(arrays, f"set_{kind}")
    for n, m in SHAPES:
        for top in (2, 40, 10_000):
            a, b = keys(rng, n, top), keys(rng, m, top)
            tags = np.arange(n) + 1, -np.arange(m) - 1
            one, other = (list(zip(*each, strict=True)) for each in ((a, tags[0]), (b, tags[1])))
            wanted = expected(one, other, kind)
            found = function(a, b)
            assert found.dtype == np.int32
            assert found.tolist() == [key for key, _ in wanted]
            pairs = function((a, tags[0]), (b, tags[1]), less=by_key)
            assert list(zip(*pairs, strict=True)) == wanted
            items, count = function(a, b, size=1000)
            assert items[: int(count)].tolist() == found.tolist()


def test_another_order_and_dtypes_that_differ():
    a, b = np.array([3, 3, 1], "i4"), np.array([3.0, 2.5])
    assert arrays.set_union(a, b, less=descending).tolist() == [3, 3, 2.5, 1]
    assert arrays.set_symmetric_difference(a, b, less=descending).tolist() == [3, 2.5, 1]


def test_nan_is_one_item_and_the_greatest():
    a, b = np.array([1, np.nan, np.nan]), np.array([np.nan])
    np.testing.assert_array_equal(arrays.set_difference(a, b), [1, np.nan])
    np.testing.assert_array_equal(arrays.set_intersection(a, b), [np.nan])


def test_one_includes_another(rng):
    for n, m in SHAPES:
        for top in (2, 40):
            a, b = keys(rng, n, top), keys(rng, m, top)
            wanted = all((a == key).sum() >= (b == key).sum() for key in set(b.tolist()))
            assert bool(arrays.includes(a, b)) == wanted
            assert bool(arrays.includes(a, a[rng.random(n) < 0.5]))


@pytest.mark.parametrize(
    ("a", "b", "error", "message"),
    [
        (np.zeros((2, 2)), np.zeros(2), ValueError, "a: expected one dimension, got 2"),
        (np.zeros(2), np.zeros((2, 2)), ValueError, "b: expected one dimension, got 2"),
        ((np.zeros(2), np.zeros(2)), (np.zeros(2), np.zeros(2)), TypeError, "less: expected a comparison"),
        ((np.zeros(2), np.zeros(2)), np.zeros(2), TypeError, "less: expected a comparison"),
    ],
)
def test_what_is_no_set_is_refused(a, b, error, message):
    with pytest.raises(error, match=message):
        arrays.set_union(a, b)
