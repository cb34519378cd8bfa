"""Integers of 64 bits beside floats and those of the other sign in `cupar.arrays`: compared exactly.

Python compares its numbers so, too, and has what results are compared with.
"""

import bisect
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.libraries import LIBRARIES, few_examples

from cupar import arrays

LIB = LIBRARIES[0]
NUMBERS = {
    "i8": [
        -(2**63),
        -(2**63) + 1,
        -(2**53) - 1,
        -1,
        0,
        1,
        2**53,
        2**53 + 1,
        2**62 + 25,
        2**63 - 513,
        2**63 - 1,
    ],
    "u8": [0, 1, 2**53, 2**53 + 1, 2**62 + 24, 2**62 + 25, 2**63 - 1, 2**63, 2**64 - 1025, 2**64 - 1],
    "f8": [-math.inf, -(2.0**63), -0.5, -0.0, 0.0, 1.0, 1.5, 2.0**53, 2.0**62, 2.0**63, 2.0**64, math.inf],
}
PAIRS = [("i8", "u8"), ("u8", "i8"), ("i8", "f8"), ("f8", "u8")]


def array(items, dtype):
    return LIB.array(np.array(items, dtype))


def host(found):
    return np.asarray(LIB.host(found))


def rounded(items):
    """Return what results are: float64."""
    return [float(each) for each in items]


@pytest.mark.parametrize("dtypes", PAIRS, ids="-".join)
@given(data=st.data())
@few_examples
def test_numbers_are_compared_exactly(dtypes, data):
    a, b = (
        sorted(data.draw(st.lists(st.sampled_from(NUMBERS[dtype]), min_size=1, max_size=6)))
        for dtype in dtypes
    )
    x, y = (array(*each) for each in zip((a, b), dtypes, strict=True))
    assert host(arrays.isin(x, y)).tolist() == [each in b for each in a]
    assert host(arrays.searchsorted(x, y)).tolist() == [bisect.bisect_left(a, each) for each in b]
    right = host(arrays.searchsorted(x, y, side="right"))
    assert right.tolist() == [bisect.bisect_right(a, each) for each in b]
    for name, items in {
        "union1d": set(a) | set(b),
        "intersect1d": set(a) & set(b),
        "setxor1d": set(a) ^ set(b),
    }.items():
        found = host(getattr(arrays, name)(x, y))
        assert (found.dtype, found.tolist()) == (np.float64, rounded(sorted(items))), name
    found = host(arrays.setdiff1d(x, y))
    assert (found.dtype, found.tolist()) == (np.dtype(dtypes[0]), sorted(set(a) - set(b)))
    common = [min(a.count(each), b.count(each)) for each in sorted(set(a))]
    found = host(arrays.set_intersection(x, y))
    assert found.tolist() == rounded(np.repeat(np.array(sorted(set(a)), object), common))
    assert host(arrays.set_union(x, y)).size == len(a) + len(b) - len(found)
    assert bool(host(arrays.includes(x, y))) == all(a.count(each) >= b.count(each) for each in b)
    assert host(arrays.merge(x, y)).tolist() == rounded(sorted(a + b))
    assert bool(host(arrays.lexicographical_compare(x, y))) == (a < b)
    size = min(len(a), len(b))
    differ = [i for i in range(size) if a[i] != b[i]]
    assert int(host(arrays.mismatch(x[:size], y[:size]))) == (differ[0] if differ else -1)
    assert bool(host(arrays.equal(x[:size], y[:size]))) == (not differ)


def test_numbers_that_a_dtype_does_not_have_are_compared_exactly():
    x = array([2.0**53, 2.0**53 + 2], "f8")
    assert host(arrays.isin(x, 2**53 + 1)).tolist() == [False, False]
    assert host(arrays.searchsorted(x, 2**53 + 1)).tolist() == 1
    assert host(arrays.isin(array([2**53 + 1], "i8"), 2.0**53)).tolist() == [False]
    assert host(arrays.isin(array([2**63], "u8"), -(2**63))).tolist() == [False]


def test_nans_beside_integers_are_what_they_are_beside_floats():
    x, y = array([math.nan, 1, math.nan], "f8"), array([1, 2**53 + 1], "i8")
    assert host(arrays.isin(x, y)).tolist() == [False, True, False]
    np.testing.assert_array_equal(host(arrays.setdiff1d(x, y)), [math.nan])
    np.testing.assert_array_equal(host(arrays.union1d(x, y)), [1, 2.0**53, math.nan])
    np.testing.assert_array_equal(host(arrays.setxor1d(x, y)), [2.0**53, math.nan])
    assert host(arrays.searchsorted(y, x)).tolist() == [2, 0, 2]
    assert host(arrays.intersect1d(x, y)).tolist() == [1]


def test_a_comparison_of_the_users_takes_promoted_items():
    x, y = array([2**53 + 1], "i8"), array([2**53], "u8")
    less = lambda a, b: a < b
    assert not host(arrays.lexicographical_compare(y, x, less=less))
    assert host(arrays.set_union(x, y, less=less)).tolist() == [2.0**53]
