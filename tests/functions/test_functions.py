"""All functions of `cupar.arrays`: refusals, and no stale results."""

import math
import os
import subprocess
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from support.common import in_threads
from support.interrupts import each_interrupt

import cupar
from cupar import arrays
from cupar._base import device
from cupar._device import driver
from cupar._functions import indexing, libraries
from cupar._functions.calls import Work

X = np.arange(6, dtype=np.float32).reshape(2, 3)
N = np.arange(3, dtype=np.int8)
STRUCTS = np.zeros(2, np.dtype([("a", np.int32), ("b", np.float32)], align=True))
ENDLESS = cupar.CountingIterator(0)


def larger(a, b):
    return a if a > b else b


REFUSED = [
    (lambda: arrays.scan([1, 2]), TypeError, "x: expected an array"),
    (lambda: arrays.scan(X, axis=2), ValueError, "axis: expected from -2 to 1"),
    (lambda: arrays.sort(X, axis="0"), TypeError, "axis: expected an integer, got str"),
    (lambda: arrays.sum(X, axis=(0, 0)), ValueError, "axis: expected different axes"),
    (lambda: arrays.sum(X, axis=True), TypeError, "axis: expected an integer, got True"),
    (lambda: arrays.min(X, axis=(0, False)), TypeError, "axis: expected an integer, got False"),
    (lambda: arrays.sum(X, keepdims="yes"), TypeError, "keepdims: expected True or False, got 'yes'"),
    (lambda: arrays.argmin(X, keepdims=1.5), TypeError, "keepdims: expected True or False, got 1.5"),
    (lambda: arrays.sort(X, descending="no"), TypeError, "descending: expected True or False, got 'no'"),
    (lambda: arrays.isin(X, X, invert=X), TypeError, "invert: expected True or False, got array("),
    (lambda: arrays.cumulative_sum(X), ValueError, "axis: expected one of 2"),
    (lambda: arrays.scan(X, larger, exclusive=True), TypeError, "init: an exclusive scan begins with it"),
    (lambda: arrays.scan(X, init="a"), TypeError, "init: expected one value of float32, got 'a'"),
    (lambda: arrays.scan(X, init=1j), TypeError, "init: expected one value of float32, got 1j"),
    (lambda: arrays.scan(N, init=2.5), TypeError, "init: expected one value of int8, got 2.5"),
    (lambda: arrays.reduce(N, init=300), TypeError, "init: expected one value of int8, got 300"),
    (lambda: arrays.reduce((N, N), larger, init=(0, 300)), TypeError, "init: expected one value of {"),
    (lambda: arrays.reduce((N, N), larger, init=(0,)), TypeError, "init: expected one value of {"),
    (lambda: arrays.sum(None), TypeError, "x: expected an array"),
    (lambda: arrays.take(X, None), TypeError, "indices: expected an array"),
    (lambda: arrays.linear_recurrence(X, None), TypeError, "b: expected an array"),
    (lambda: arrays.repeat(X, None), TypeError, "repeats: expected an array"),
    (lambda: arrays.transform(larger, X, None), TypeError, "xs[1]: expected an array"),
    (lambda: arrays.transform(larger, X, N[:2]), ValueError, "xs: expected shapes that can be broadcast"),
    (lambda: arrays.transform(larger, X, 2**70), TypeError, "xs[1]: expected a number of at most 64 bits"),
    (lambda: arrays.sum(X, where=X[0]), ValueError, "where: expected an array of bool of the shape of `x`"),
    (lambda: arrays.sum(X, where=X[[0, 0, 0]]), ValueError, "where: expected an array of bool"),
    (lambda: arrays.sum(X, where=(X, X)), ValueError, "where: expected an array of bool"),
    (lambda: arrays.scan(X, num_items=2), TypeError, "num_items: expected None, as there is no iterator"),
    (lambda: arrays.scan(ENDLESS, num_items=-1, like=X), ValueError, "num_items: expected 0 or more"),
    (lambda: arrays.scan(ENDLESS, num_items=2.0, like=X), TypeError, "num_items: expected an integer"),
    (lambda: arrays.sort(STRUCTS), TypeError, "less: expected a comparison of {a: int32, b: float32}"),
    (
        lambda: arrays.sort(np.array(1)),
        ValueError,
        "axis: -1 is out of bounds for an array without",
    ),
    (lambda: arrays.nonzero((N, N)), TypeError, "x: expected numbers, got {"),
    (lambda: arrays.searchsorted(N, (N, N)), TypeError, "x2: expected numbers, got {"),
    (
        lambda: arrays.searchsorted(N, N, sorter=np.array([0, 3, 1])),
        IndexError,
        "sorter: expected from -3 to 2",
    ),
    (lambda: arrays.searchsorted(N, N, sorter=X[0]), TypeError, "sorter: expected integers, got float32"),
    (
        lambda: arrays.segment_reduce(X, N[:2], cupar.OpKind.PLUS, 3, determinism="a"),
        TypeError,
        "determinism: expected a Determinism",
    ),
    (
        lambda: arrays.segment_reduce(X, N[:2], cupar.OpKind.PLUS, 3, mode=np.array(["drop", "raise"])),
        ValueError,
        "mode: expected 'drop' or 'raise', got array",
    ),
    (
        lambda: arrays.segment_reduce(X, N[:2], cupar.OpKind.PLUS, 0, mode="raise"),
        IndexError,
        "ids: expected none, as there are no segments, got from 0 to 1",
    ),
    (
        lambda: arrays.bincount(np.array([1 << 63], np.uint64)),
        ValueError,
        f"x: expected from 0 to {2**31 - 3}, got {2**63}",
    ),
    (lambda: arrays.bincount(N, weights=N + 1j), TypeError, "weights: expected real numbers"),
    (lambda: arrays.merge(N, (N, N)), TypeError, "b: expected numbers, got {"),
    (lambda: arrays.histogram(X, range=3), TypeError, "range: expected a pair of numbers, got 3"),
    (lambda: arrays.scan(X, dtype="none"), TypeError, "dtype: expected a dtype, got 'none'"),
    (lambda: arrays.reduce(X[:0], larger), ValueError, "x: a reduction of no items"),
    (lambda: arrays.min(X[:0]), ValueError, "x: min of no items"),
    (lambda: arrays.argmax(X[:0], axis=0), ValueError, "x: argmax of no items"),
    (lambda: arrays.max(X.astype(complex)), TypeError, "x: max takes real numbers, got complex128"),
    (lambda: arrays.scan((X, X[0]), larger), ValueError, "x[1]: expected the shape of x[0]"),
    (lambda: arrays.reduce((), larger), TypeError, "like: expected an array"),
    (lambda: arrays.reduce((X, X), larger, dtype="f4"), TypeError, "dtype: expected None or one of numbers"),
    (lambda: arrays.scan(X, dtype=STRUCTS.dtype), TypeError, "dtype: expected None or one of numbers"),
    (lambda: arrays.sort((X, X)), TypeError, "less: expected a comparison"),
    (lambda: arrays.scan(cupar.CountingIterator(0)), TypeError, "like: expected an array of the library"),
    (lambda: arrays.scan(cupar.CountingIterator(0), like=X), ValueError, "x: no array bounds this iterator"),
    (lambda: arrays.scan(X, out=X), ValueError, "out: expected shape (6,), got (2, 3)"),
    (lambda: arrays.scan(X, axis=0, out=X.T.copy().T), ValueError, "out: expected an array in C's order"),
    (lambda: arrays.scan(X, axis=0, out=[0]), TypeError, "out: expected an array"),
    (lambda: arrays.scan((X, X), larger, axis=0, out=X), TypeError, "out: expected a tuple of 2 arrays"),
    (lambda: arrays.scan(np.ma.array([1])), TypeError, "x: masked arrays are not supported"),
    (lambda: arrays.scan(np.array(["a"])), TypeError, "x: dtype <U1 is not supported"),
    (lambda: arrays.scan(np.zeros(3, ">f4")), TypeError, "x: dtype >f4 is not supported"),
    (lambda: arrays.transform(larger), TypeError, "xs: expected at least one array"),
    (lambda: arrays.copy_if(X, lambda a: a > 0, size=-1), ValueError, "size: expected 0 or more"),
    (lambda: arrays.copy_if(X, lambda a: a > 0, size="1"), TypeError, "size: expected an integer, got str"),
    (lambda: arrays.nonzero(np.array(1)), ValueError, "x: expected an array with dimensions"),
    (lambda: arrays.top_k(X, 4), ValueError, "k: expected from 0 to 3"),
    (lambda: arrays.take(X, np.array([3]), axis=0), IndexError, "indices: expected from -2 to 1"),
    (lambda: arrays.take(X, X), TypeError, "indices: expected integers, got float32"),
    (lambda: arrays.repeat(X, np.array([1, -1]), axis=0), ValueError, "repeats: expected 0 or more"),
    (lambda: arrays.diff(X, n=-1), ValueError, "n: expected 0 or more"),
    (lambda: arrays.bincount(np.array([-1])), ValueError, "x: expected no item below 0"),
    (lambda: arrays.histogram(X, bins=[2, 1]), ValueError, "bins: expected edges that rise"),
    (lambda: arrays.quantile(X, 2), ValueError, "q: expected numbers from 0 to 1"),
    (lambda: arrays.median(X[:0]), ValueError, "x: expected at least one item for quantiles"),
    (
        lambda: arrays.segment_reduce(X, X.astype(int), larger, 3),
        TypeError,
        "init: expected the result of a segment without items",
    ),
    (lambda: arrays.segment_reduce(X[0], np.arange(3)), TypeError, "num_segments: expected how many"),
    (
        lambda: arrays.segment_reduce(X, np.arange(9), num_segments=3),
        ValueError,
        "ids: expected the shape of `x`",
    ),
    (lambda: arrays.linear_recurrence(X, X[0]), ValueError, "b: expected the shape of `a`"),
    (lambda: arrays.linear_recurrence(X, X, initial=X), ValueError, "initial: expected shape (2,)"),
    (lambda: arrays.searchsorted(X, X), ValueError, "x1: expected one dimension"),
    (lambda: arrays.union1d((X, X), X), TypeError, "a: expected numbers"),
]


@pytest.mark.parametrize("call, kind, said", REFUSED, ids=[said[:24] for _, _, said in REFUSED])
def test_errors_name_the_argument_and_are_short(call, kind, said):
    with pytest.raises(kind) as error:
        call()
    assert str(error.value).startswith(said)
    assert len(str(error.value).splitlines()) <= 20


F, C, INDEX = np.array([0.5, 1.75]), np.array([1 + 2j, 3j]), np.zeros(2, np.int64)
INTO_LESSER = {  # functions that would drop fractions or imaginary parts
    "out": [
        lambda: arrays.sum(F, out=np.zeros((), np.int32)),
        lambda: arrays.max(F, out=np.zeros((), bool)),
        lambda: arrays.reduce(F, larger, axis=0, out=np.zeros((), np.uint8)),
        lambda: arrays.scan(C, out=np.zeros(2)),
        lambda: arrays.cumulative_sum(N, out=np.zeros(3, bool)),
        lambda: arrays.cumulative_prod(F, out=np.zeros(2, np.int64)),
        lambda: arrays.transform(lambda a: a, F, out=np.zeros(2, np.int32)),
        lambda: arrays.transform(lambda a: (a, a), F, out=(F.copy(), np.zeros(2, np.int32))),
        lambda: arrays.transform_reduce(F, lambda a: a, out=np.zeros((), np.int32)),
        lambda: arrays.transform_scan(F, lambda a: a, out=np.zeros(2, np.int32)),
        lambda: arrays.linear_recurrence(F, F, out=INDEX.copy()),
        lambda: arrays.tabulate(2, lambda i: i * 0.5, out=INDEX.copy()),
        lambda: arrays.sequence(2, 0.5, out=INDEX.copy()),
        lambda: arrays.sort(F, out=INDEX.copy()),
        lambda: arrays.adjacent_difference(C, out=F.copy()),
        lambda: arrays.reverse(C, out=F.copy()),
        lambda: arrays.roll(F, 1, out=INDEX.copy()),
        lambda: arrays.shift(F, 1, out=INDEX.copy()),
        lambda: arrays.shuffle(F, out=INDEX.copy()),
        lambda: arrays.replace(F, 1, 2, out=INDEX.copy()),
        lambda: arrays.replace_if(F, lambda a: a > 1, 2, out=INDEX.copy()),
        lambda: arrays.gather(F, INDEX, out=INDEX.copy()),
        lambda: arrays.scatter(F, INDEX, INDEX.copy()),
        lambda: arrays.scatter_if(F, INDEX, INDEX, INDEX.copy()),
    ],
    "dtype": [
        lambda: arrays.sum(F, dtype=int),
        lambda: arrays.prod(N, dtype=bool),
        lambda: arrays.reduce(C, larger, dtype=float),
        lambda: arrays.scan(F, dtype=np.int32),
        lambda: arrays.cumulative_sum(C, dtype=np.float32, include_initial=True),
        lambda: arrays.transform_reduce(F, lambda a: a, dtype=np.int32),
        lambda: arrays.transform_scan(F, lambda a: a, dtype=np.int32),
        lambda: arrays.segment_reduce(F, INDEX, num_segments=1, dtype=int),
        lambda: arrays.reduce_by_key(INDEX, F, dtype=int),
        lambda: arrays.transform(lambda a: a, F, dtype=np.int32),
        lambda: arrays.transform(cupar.OpKind.PLUS, F, F, dtype=np.int32),
        lambda: arrays.tabulate(2, lambda i: i * 0.5, dtype=np.int32, like=F),
    ],
}


@pytest.mark.parametrize("name", INTO_LESSER)
def test_results_go_to_no_lesser_kind_of_dtype(name):
    for call in INTO_LESSER[name]:
        with pytest.raises(TypeError, match=f"^{name}: expected .* or a dtype of no lesser kind"):
            call()


def test_results_go_to_dtypes_of_their_kind_or_a_greater_one():
    assert arrays.sum(N, out=np.zeros((), np.uint8)) == 3
    assert arrays.reverse(N, out=np.zeros(3, complex)).tolist() == [2, 1, 0]
    assert arrays.any(F, out=np.zeros((), np.int8)) == 1
    assert arrays.scan(F, dtype=np.float32).tolist() == [0.5, 2.25]


def test_flags_are_looked_at_in_calls_that_are_known(rng):
    """Those of these arrays are made again without a look at their arguments."""
    x = rng.random(9)
    for call in (arrays.sum, arrays.reduce, arrays.median):
        for _ in range(3):
            call(x, keepdims=False)
        with pytest.raises(TypeError, match="keepdims: expected True or False, got None"):
            call(x, keepdims=None)
    for _ in range(3):
        arrays.scan(x, exclusive=False)
    with pytest.raises(TypeError, match="exclusive: expected True or False, got None"):
        arrays.scan(x, exclusive=None)


def test_no_differences_join_nothing():
    x = np.array([3, 1, 4])
    assert arrays.diff(x, n=0, prepend=7, append=x).tolist() == np.diff(x, n=0, prepend=7, append=x).tolist()
    assert arrays.diff(x, n=2**70).shape == arrays.diff(x[:0], n=2**70).shape == (0,)


def test_axes_that_are_no_neighbours_of_items_that_are_computed():
    x = np.array([[[0, 0], [0, 1]], [[0, 0], [0, 0]]])
    assert arrays.any(x, axis=(0, 2)).tolist() == [False, True]
    assert arrays.count_nonzero(x, axis=(0, 2)).tolist() == [0, 1]


def test_semantics_that_the_page_of_functions_says():
    """What its table says and the comparisons with NumPy do not reach."""
    nan, x = np.float32("nan"), np.array([3, -0.0, 2], np.float32)
    assert arrays.transform(lambda a: 2 * a, x).dtype == np.float64
    assert arrays.transform(lambda a: np.float32(2) * a, x).dtype == np.float32
    assert np.signbit(arrays.sum(x[1:2])) and not np.signbit(arrays.sum(x[:0]))
    assert arrays.prod(x[:0]) == 1
    assert arrays.reduce(x[:0], np.maximum) == -np.inf
    assert arrays.reduce(x, larger, where=x < 3) == 2
    none = np.zeros(3, bool)  # counts, and no identity is known
    assert arrays.reduce(x, larger, where=none) == 0
    pair = arrays.reduce((x, x), lambda a, b: (a[0] + b[0], b[1]), where=none)
    assert (float(pair[0]), float(pair[1])) == (0, 0)
    assert arrays.reduce((x.astype(np.float16),), lambda a, b: (a[0] + b[0],))[0].dtype == np.float16
    z = np.array([complex(1, nan), complex(nan, 0), 2, complex(1, 1), complex(nan, nan), 1 - 1j])
    np.testing.assert_array_equal(arrays.sort(z), np.sort(z))


EDGES = [
    [0, 1, 3, 99],
    [0.1, 0.2, 0.3, 7.7, 12.5],
    [-np.inf, 0, np.inf],
    [0, 0, 5, 5],
    [-1e300, 0.1, 1e300],
    [-3, 127],
    [5.0, 5.0],
]


@pytest.mark.parametrize("dtype", ["u1", "i4", "f2", "f4"])
def test_histograms_by_edges_are_numpys(dtype, rng):
    x = (rng.integers(0, 100, 3000) / (1 if dtype[0] in "iu" else 8)).astype(dtype)
    if x.dtype.kind == "f":
        x[::7], x[3::11], x[4::13], x[5::17] = np.nan, np.inf, -np.inf, 0.1
    # No integer is behind the last of these edges, with which the search has to be another one.
    for edges in (*EDGES, *([[0, 2**63 - 1]] if dtype == "i4" else [])):
        found = arrays.histogram(x, bins=edges).hist
        np.testing.assert_array_equal(found, np.histogram(x, edges)[0], str(edges))


def test_segments_that_there_are_not_are_an_error_if_asked():
    x, ids = np.arange(3.0), np.array([0, 2, 5])
    for number in (3, 2):
        with pytest.raises(IndexError, match=f"ids: expected from 0 to {number - 1}, got from 0 to 5"):
            arrays.segment_reduce(x, ids, num_segments=number, mode="raise")
    assert arrays.segment_reduce(x, ids, num_segments=6, mode="raise").tolist() == [0, 0, 1, 0, 0, 2]
    assert arrays.segment_reduce(x, ids, num_segments=3).tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match="mode: expected 'drop' or 'raise', got 'wrap'"):
        arrays.segment_reduce(x, ids, num_segments=3, mode="wrap")


def test_histograms_count_no_nan_and_do_not_guess_edges_from_one():
    for x in (np.array([np.nan, 1, 2]), np.array([1, np.nan, 2])):
        assert arrays.histogram(x, bins=2, range=(1, 2)).hist.tolist() == [1, 1]
        with pytest.raises(ValueError, match="range: expected two finite numbers"):
            arrays.histogram(x)
    x, weights = np.array([0.0, 1.0, 1.5]), np.array([1j, 2, 1 - 1j])
    found = arrays.histogram(x, bins=2, range=(0, 2), weights=weights, density=True).hist
    np.testing.assert_allclose(found, np.histogram(x, 2, (0, 2), True, weights)[0])


def test_an_output_that_overlaps_the_input_is_refused():
    x = np.arange(10, dtype=np.float32)
    for source, out in ((x[:-1], x[1:]), (x[1:], x[:-1]), (x[:4].view(np.int32), x[1:5])):
        with pytest.raises(ValueError, match="out: expected the input itself or an array apart from it"):
            arrays.scan(source, out=out)
    with pytest.raises(ValueError, match="out: expected the input itself"):
        arrays.sum(x.reshape(5, 2), axis=1, out=x[:5])
    with pytest.raises(ValueError, match="out: expected an array apart from inputs"), cupar.device("cpu"):
        arrays.scan(cupar.ReverseIterator(x), out=x)
    y = x[::2]  # what is strided is copied first, and so no part of the output
    assert np.array_equal(arrays.scan(y, out=x[:5]), np.cumsum(np.arange(0, 10, 2)))


def unaligned(items):
    """Return items that begin at an odd address, one behind the other."""
    return np.frombuffer(b"-" + items.tobytes(), items.dtype, offset=1).reshape(items.shape)


@pytest.mark.parametrize("dtype", ["i8", "f4", "c16", "gaps"])
def test_host_arrays_that_are_not_aligned_are_taken_as_strided_ones_are(dtype):
    gaps = np.dtype({"names": ["a", "b"], "formats": ["i4", "i8"], "offsets": [0, 16], "itemsize": 24})
    items = np.arange(12).astype(gaps if dtype == "gaps" else dtype)
    x, plain = unaligned(items), dtype != "gaps"
    assert x.flags.c_contiguous and x.__array_interface__["data"][0] % 2
    for _ in range(3):  # recorded, too
        for given in (x, items):
            found, second = (arrays.take(each, np.array([3, 1])) for each in (given, given[1:]))
            np.testing.assert_array_equal(found if plain else found[1], [3, 1])
            np.testing.assert_array_equal(second if plain else second[1], [4, 2])
            if plain:
                assert arrays.sum(given) == 66
                rows = arrays.scan(given.reshape(3, 4), lambda a, b: b, axis=1)
                assert np.array_equal(rows, items.reshape(3, 4))
                assert arrays.equal(given, items) and arrays.isin(given, x).all()
    if plain:
        out = np.frombuffer(bytearray(1 + x.nbytes), dtype, offset=1)
        with pytest.raises(ValueError, match=r"out: expected an array aligned to \d+ bytes, got one at 0x"):
            arrays.scan(x, out=out)


def test_items_of_an_iterator_are_moved_as_they_are():
    with cupar.device("cpu"):
        halves = cupar.TransformIterator(np.arange(4, dtype="f4"), lambda a: a / 2, np.float32)
        assert arrays.take(halves, np.array([3, 1])).tolist() == [1.5, 0.5]
        assert arrays.repeat(halves, 2)[:3].tolist() == [0, 0, 0.5]
        assert arrays.take_ranges(halves, np.array([1]), np.array([3])).tolist() == [0.5, 1]


def test_a_column_of_one_packed_record():
    records = np.zeros(3, [("tag", "i1"), ("value", "f8")])
    records["value"] = 3, 1, 2
    assert [arrays.sum(records[:n]["value"]) for n in (0, 1, 2, 3)] == [0, 3, 4, 6]


def test_where_arrays_are_decides_and_a_setting_may_refuse_the_host(monkeypatch):
    assert arrays.scan(X[0]).tolist() == [0, 1, 3]
    for _ in range(2):  # known, too
        with (
            cupar.device("cuda"),
            pytest.raises(TypeError, match="x: expected a device array, as the device"),
        ):
            arrays.scan(X[0])
    with cupar.device("cpu"):
        assert arrays.scan(X[0]).tolist() == [0, 1, 3]
    code = "import numpy, cupar.arrays; cupar.arrays.scan(numpy.zeros(3))"
    environment = {**os.environ, "CUPAR_DEVICE": "cuda"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert "x: expected a device array, as the device is 'cuda', got a ndarray in host" in done.stderr


def test_what_comes_before_rows_is_apart_from_the_output():
    torch = pytest.importorskip("torch")
    h = torch.zeros(4)
    with pytest.raises(ValueError, match="out: expected the input itself or an array apart from it"):
        arrays.linear_recurrence(torch.ones(4), torch.ones(4), initial=h[-1], out=h)


def test_repetitions_that_int64_has_not_are_many():
    """And not below 0, which would be none."""
    x, repeats = np.array([7, 8]), np.array([2**63, 0], np.uint64)
    with pytest.raises(ValueError, match="Maximum allowed dimension"):
        arrays.repeat(x, repeats)
    found = arrays.repeat(x, repeats, size=3)
    assert found.items.tolist() == [7, 7, 7] and found.count == 2**63 - 1


def test_nothing_is_read_beyond_items_that_are_repeated():
    """Places beyond the count are computed, too."""
    items, count = arrays.repeat(N, np.zeros(3, int), size=5)
    assert items.shape == (5,) and set(items.tolist()) <= set(N.tolist())
    assert count == 0
    items, count = arrays.repeat(N[:0], N[:0], size=5)
    assert items.shape == (5,) and count == 0


@pytest.mark.parametrize("place_bits", [63, 3])
def test_items_that_are_repeated_often_are_as_others(place_bits, monkeypatch):
    """They are copied, unless there are too many for the bits of a place."""
    monkeypatch.setattr(indexing, "_PLACE_BITS", place_bits)
    x = np.arange(6, dtype="f4")
    times = np.array([0, 500, 1, 0, 300, 7])
    right = np.repeat(x, times)
    assert np.array_equal(arrays.repeat(x, times), right)
    for size in (400, 501, 1000):
        items, count = arrays.repeat(x, times, size=size)
        assert np.array_equal(items[:808], right[:size]) and items.shape == (size,) and count == 808


def test_numbers_stand_for_arrays_where_one_is_searched_for_or_joined():
    assert arrays.isin(N, 300).tolist() == [False] * 3
    assert arrays.searchsorted(N, 300) == 3
    found = arrays.diff(X, prepend=1, append=np.float32(7))
    assert np.array_equal(found, np.diff(X, prepend=np.float32(1), append=np.float32(7)))
    assert found.dtype == np.float32


def test_a_sorter_may_count_from_the_end():
    x = np.array([30, 10, 20])
    assert arrays.searchsorted(x, 20, sorter=np.array([-2, 2, 0])) == 1


def test_a_tensor_without_memory_of_its_own_is_refused():
    torch = pytest.importorskip("torch")
    x = torch.ones(2, 3)
    arrays.sum(x[0])
    with pytest.raises(TypeError, match="x: "):
        torch.vmap(arrays.sum)(x)


def test_streams_of_others_are_those_of_cupy_without_a_warning():
    """CuPy's classes from version 14 on, as far as a stream goes."""

    class Base:
        def __init__(self, ptr, device_id):
            self.ptr, self.device_id = ptr, device_id

    class ExternalStream(Base):
        def __init__(self, ptr, device_id=-1):
            warnings.warn("ExternalStream is deprecated", DeprecationWarning, stacklevel=2)
            super().__init__(ptr, device_id)

    cuda = SimpleNamespace(ExternalStream=ExternalStream, get_current_stream=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = libraries._Cupy(SimpleNamespace(cuda=cuda)).on(7)
    assert type(found) is ExternalStream and (found.ptr, found.device_id) == (7, -1)


def test_an_output_in_the_memory_of_the_input_is_sorted_in_place():
    """A view is another object than the array, and its memory the same."""
    x = np.array([3, 1, 2])
    assert arrays.sort(x, out=x[:]).tolist() == x.tolist() == [1, 2, 3]


def test_what_is_known_does_what_is_not():
    """The first call of a kind goes another way than those behind it."""
    one, none = np.array([5.0]), np.array([np.nan, np.nan])
    for _ in range(3):
        assert arrays.reduce(one, cupar.OpKind.LOGICAL_OR) == 1
        assert np.isnan(arrays.reduce(none, np.fmin))
        assert np.isnan(arrays.reduce(none.reshape(1, 2), np.fmax, axis=1)).all()


scale = 1


def scaled(a, b):
    return a + b * scale


def is_beyond_scale(a):
    return a > scale


def is_less_scaled(a, b):
    return a < b * scale


def test_a_changed_global_is_seen():
    """Also by operators that are made of the user's, and kept."""
    global scale
    x = np.arange(4)
    for scale in (1, 2, 1):
        for _ in range(3):
            assert arrays.scan(x, scaled)[-1] == 6 * scale
            assert arrays.find_first(x, is_beyond_scale) == scale + 1
            assert arrays.is_sorted(x, less=is_less_scaled) == (scale == 1)
    for factor in (1, 2, 1):
        for _ in range(3):
            assert arrays.scan(x, lambda a, b: a + b * factor)[-1] == 6 * factor


def test_what_an_operator_captures_is_read_in_each_call():
    x, table = np.arange(3), np.array([1, 2, 3])
    with cupar.device("cpu"):
        for _ in range(3):
            assert arrays.transform(lambda a: table[a], x).tolist() == table.tolist()
            table[:] += 1


def test_threads_share_what_is_known():
    x = np.arange(1000)
    results = in_threads(4, lambda: [int(arrays.scan(x, larger)[-1]) + int(arrays.sum(x)) for _ in range(20)])
    assert results == [[999 + 499500] * 20] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_forked_process_goes_on():
    assert arrays.scan(X[0], larger).tolist() == [0, 1, 2]
    arrays.sort(X, axis=0)
    child = os.fork()
    if child == 0:
        good = arrays.scan(X[0], larger).tolist() == [0, 1, 2] and np.array_equal(arrays.sort(X, axis=0), X)
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_tensor_that_requires_grad_is_refused_unless_gradients_are_off():
    torch = pytest.importorskip("torch")
    x = torch.arange(3.0)
    for _ in range(2):
        assert arrays.scan(x).tolist() == [0, 1, 3]
    x.requires_grad_()
    with pytest.raises(TypeError, match=r"x: got a tensor that requires grad.*cupar\.torch"):
        arrays.scan(x)
    with torch.no_grad():
        assert arrays.scan(x).tolist() == [0, 1, 3]
    assert arrays.scan(x.detach()).tolist() == [0, 1, 3]


def test_bfloat16_of_jax_is_taken_as_its_other_dtypes_are():
    """NumPy does not take it by DLPack."""
    x = pytest.importorskip("jax.numpy").array([3, 1, 2], "bfloat16")
    found = arrays.sort(x)
    assert found.dtype == x.dtype and found.tolist() == [1, 2, 3]


def test_bfloat16_and_float16_are_combined_in_float32():
    """257 ones are 256 in bfloat16, to which 1 cannot be added; and 65,520 is infinite in float16."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("ml_dtypes")
    ones = torch.ones(1024, dtype=torch.bfloat16)
    for each in (arrays.reduce(ones), arrays.sum(ones), arrays.scan(ones)[-1]):
        assert (each.dtype, float(each)) == (torch.bfloat16, 1024)
    x = np.array([60000, 60000, -60000], np.float16)
    assert arrays.reduce(x, lambda a, b: a + b) == 60000
    assert arrays.scan(x).tolist() == [60000, np.inf, 60000]


def test_the_module_is_light_and_a_hit_imports_no_numba(tmp_path):
    code = """if True:
        import sys
        import cupar.arrays
        assert "numpy" not in sys.modules
        import numpy as np
        x = np.arange(6, dtype=np.float32)
        cupar.arrays.reduce(x, lambda a, b: a if a > b else b)
        print("numba" in sys.modules)
    """
    environment = {**os.environ, "CUPAR_CACHE_DIR": str(tmp_path)}
    for expected in ("True", "False"):
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == expected


def test_a_length_is_not_read_while_a_stream_is_captured(monkeypatch):
    monkeypatch.setattr(driver, "is_captured", lambda stream: stream == 7)
    library = SimpleNamespace(on_cpu=False, stream=lambda: 7)
    for name in ("size", "range"):
        with pytest.raises(ValueError, match=f"{name}: expected a number while the stream is being captured"):
            Work(library, None).host(None, name)


def selected_scanned_and_reduced():
    assert arrays.copy_if(X, lambda a: a > 3).tolist() == [4, 5]
    assert arrays.scan(X[0], larger).tolist() == [0, 1, 2]
    assert arrays.any(np.arange(8).reshape(2, 2, 2), axis=(0, 2)).tolist() == [True, True]


def counted_and_joined():
    assert arrays.histogram(X, bins=[0, 2, 5]).hist.tolist() == [2, 4]
    assert arrays.concatenate([X[0], X[1]]).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("work", [selected_scanned_and_reduced, counted_and_joined])
def test_ctrl_c_leaves_functions_as_they_were(work, ctrl_c):
    before = device.is_cpu()

    def check():
        assert device.is_cpu() == before
        work()

    work()
    assert each_interrupt(work, check) > 100


def test_segments_are_sorted_by_the_bits_that_ids_have(monkeypatch):
    sorts = []

    def run(self, algorithm, *given, **named):
        if algorithm.build.algorithm == "radix_sort":
            sorts.append((given[2].dtype, given[5:]))
        return ran(self, algorithm, *given, **named)

    ran = Work.run
    monkeypatch.setattr(Work, "run", run)
    monkeypatch.setattr("cupar._functions.counting._is_by_index", lambda *_: False)  # as of many on a GPU
    ids = np.array([4, -1, 5, 4, 2**40], np.int64)
    found = arrays.segment_reduce(np.arange(5, dtype=np.float32), ids, num_segments=5)
    assert found.tolist() == [0, 0, 0, 0, 3]
    assert sorts == [(np.float32, (0, 3))]  # items themselves, by 3 bits


def test_a_number_of_items_is_refused_with_arrays_that_go_the_short_way():
    x = np.array([1, 2, 3.0])
    for function in (arrays.reduce, arrays.scan):
        for _ in range(2):
            function(x)
        with pytest.raises(TypeError, match="num_items: expected None, as there is no iterator, got 2"):
            function(x, num_items=2)


def test_segments_are_found_again_without_stale_results():
    """The second call of its kind goes the short way, and other ones do not."""
    step = 1

    def op(a, b):
        return a + b + step

    x, ids = np.array([1, 2, 3, 4.0]), np.array([2, 0, 2, -1])
    for _ in range(3):
        assert arrays.segment_reduce(x, ids, num_segments=3).tolist() == [2, 0, 4]
        assert arrays.segment_reduce(x, ids, num_segments=2).tolist() == [2, 0]
        assert arrays.segment_reduce(x, ids, np.maximum, 3).tolist() == [2, -np.inf, 3]
        assert arrays.segment_reduce(x, ids, num_segments=3, init=5).tolist() == [7, 5, 9]
        assert arrays.segment_reduce(x[:2], ids[:2], num_segments=3).tolist() == [2, 0, 1]
        assert arrays.segment_reduce(x[::2], ids[::2], num_segments=3).tolist() == [0, 0, 4]
        assert arrays.segment_reduce(x.reshape(2, 2), ids[:2], num_segments=3).tolist() == [
            [3, 4],
            [0, 0],
            [1, 2],
        ]
        assert arrays.segment_reduce(x[:0], ids[:0], num_segments=1).tolist() == [0]
        assert arrays.segment_reduce(x, ids.astype(bool), num_segments=3).tolist() == [2, 8, 0]
        assert arrays.segment_reduce(x.astype("f2"), ids, num_segments=3).dtype == np.float16
        with pytest.raises(ValueError, match="ids: expected the shape of `x`"):
            arrays.segment_reduce(x, ids[:3], num_segments=3)
        with pytest.raises(TypeError, match="num_segments: expected an integer, got bool"):
            arrays.segment_reduce(x, ids, num_segments=True)
        with pytest.raises(IndexError, match="ids: expected from 0 to 2, got from -1 to 2"):
            arrays.segment_reduce(x, ids, num_segments=3, mode="raise")
        with pytest.raises(TypeError, match="init: expected"):
            arrays.segment_reduce(x, ids, op, 3)
        assert arrays.segment_reduce(x, ids, op, 3, init=0).tolist() == [2 + step, 0, 4 + 2 * step]
        step += 1


@pytest.mark.parametrize("shape", [(6, 3), (6, 2, 1), (6, 0), (0, 2)])
def test_segments_of_rows(shape):
    """Ids of rows; of tuples of arrays as well, by operators that have no identity."""
    x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape) % 5 - 2
    ids = np.array([2, 0, 2, -1, 9, 0])[: shape[0]]
    expected = np.full((4, *shape[1:]), -1, np.float32)
    sums = np.zeros_like(expected)
    for row, i in zip(x, ids, strict=True):
        if 0 <= i < 4:
            expected[i] = np.where(abs(row) > abs(expected[i]), row, expected[i])
            sums[i] += row
    found = arrays.segment_reduce(x, ids, lambda a, b: b if abs(b) > abs(a) else a, 4, init=-1)
    np.testing.assert_array_equal(found, expected)

    def both(a, b):
        return a[0] + b[0], b[1] if abs(b[1]) > abs(a[1]) else a[1]

    for one, other in zip(
        arrays.segment_reduce((x, x), ids, both, 4, init=(0, -1)), (sums, expected), strict=True
    ):
        np.testing.assert_array_equal(one, other)
