"""Results of `cupar.arrays` near the ends of dtypes: where widths, sums and differences are no floats."""

import numpy as np
import pytest
from support.libraries import LIBRARIES

from cupar import arrays

LIB = LIBRARIES[0]
INF, NAN = np.inf, np.nan
FLOATS = ["f2", "f4", "f8"]


def host(found):
    return LIB.host(found)


@pytest.mark.parametrize("dtype", FLOATS)
def test_histograms_whose_width_overflows(dtype):
    most = np.finfo(dtype).max
    x = (np.array([-1, -0.5, 0, 0.25, 1]) * float(most)).astype(dtype)
    edges = np.array([-1, -0.5, 0, 0.5, 1]) * float(most)
    for named in ({}, {"range": (float(-most), float(most))}, {"weights": LIB.array(np.ones(5))}):
        found = arrays.histogram(LIB.array(x), bins=4, **named)
        assert host(found.hist).tolist() == [1, 1, 2, 1]
        np.testing.assert_allclose(host(found.edges), edges.astype(dtype), rtol=1e-15)
    found = arrays.histogramdd((LIB.array(x), LIB.array(x)), bins=4)
    assert host(found.hist).diagonal().tolist() == [1, 1, 2, 1] and host(found.hist).sum() == 5


def test_histograms_have_the_edges_that_there_are():
    found = arrays.histogram(LIB.array(np.array([0, 1], "f2")), bins=4, range=(-1e5, 1e5))
    assert host(found.edges).tolist() == [-1e5, -5e4, 0, 5e4, 1e5]
    assert host(found.hist).tolist() == [0, 0, 2, 0]
    for x in (np.array([1, 1 + 1e-15]), np.array([2.0**60]), np.array([0, 1], "f2")):
        with pytest.raises(ValueError, match=r"bins: .* has no 20001 edges from .*; give fewer"):
            arrays.histogram(LIB.array(x), bins=20000)
        with pytest.raises(ValueError, match=r"bins: .* has no 20001 edges from .*; give fewer"):
            arrays.histogramdd(LIB.array(x), bins=20000)


def test_edges_of_grids_have_the_dtype_of_their_range():
    x = np.arange(1, 10, dtype=np.float32)[:, None] / np.float32(10)
    for interval in ([(0, 1)], [(np.float32(0), np.float32(1))], None):
        expected, edges = np.histogramdd(x, 10, interval)
        found = arrays.histogramdd(LIB.array(x), bins=10, range=interval)
        np.testing.assert_array_equal(host(found.hist), expected)
        assert host(found.edges[0]).dtype == edges[0].dtype
        np.testing.assert_array_equal(host(found.edges[0]), edges[0])


# Items, a quantile, and what is there: NumPy's results, but where it subtracts infinite items or overflows.
BETWEEN = [
    ([0, INF], 0.25, INF),
    ([0, INF], 0.5, INF),
    ([0, INF], 0.75, INF),
    ([0, INF], 0.0, 0),
    ([-INF, 0], 0.0, -INF),
    ([-INF, 0], 0.75, -INF),
    ([-INF, 0, 1], 0.5, 0),
    ([-INF, INF], 0.5, NAN),
    ([-INF, INF], 1.0, INF),
    ([INF, INF], 0.5, INF),
    ([NAN, INF], 0.5, NAN),
]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_quantiles_beside_infinite_items_and_of_far_ones(dtype):
    most = float(np.finfo(dtype).max)
    far = [([-most, most], 0.25, -most / 2), ([-most, most], 0.5, 0), ([most, -most, 1], 0.5, 1)]
    near = [([most, most / 2], 0.5, most * 0.75), ([-most, -most / 2], 0.5, -most * 0.75)]
    for items, q, right in [*BETWEEN, *far, *near]:
        x = np.array(items, dtype)
        found = {
            "quantile": arrays.quantile(LIB.array(x), q),
            "of rows": arrays.quantile(LIB.array(np.stack([x, x])), q, axis=1)[1],
            "of a range": arrays.segment_quantile(
                LIB.array(x), LIB.array(np.array([0])), LIB.array(np.array([len(x)])), q
            )[0],
        }
        if q == 0.5:
            found["median"] = arrays.median(LIB.array(x))
            found["midpoint"] = arrays.quantile(LIB.array(x), q, method="midpoint")
            found["median of rows"] = arrays.median(LIB.array(np.stack([x, x])), axis=1)[1]
        for name, each in found.items():
            np.testing.assert_allclose(float(each), right, rtol=1e-6, err_msg=f"{name} {items} {q}")
