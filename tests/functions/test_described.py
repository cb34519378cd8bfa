"""Functions that are described once: their help, their signature, and what they refuse."""

import inspect

import numpy as np
import pytest

import cupar
from cupar import arrays, dask
from cupar.distributed import arrays as shards
from cupar.iterators import TransformIterator

X = np.arange(6, dtype=np.float32).reshape(2, 3)
N, M = np.arange(3, dtype=np.int8), np.arange(3, dtype=np.int8)


@pytest.fixture(autouse=True)
def on_the_cpu():
    with cupar.device("cpu"):
        yield


NAMES = [name for name in arrays.__all__ if hasattr(getattr(arrays, name), "__wrapped__")]


def _check_help(function, imports):
    text = inspect.getdoc(function)
    assert f">>> {imports}" in text
    assert max(map(len, text.splitlines())) <= 110
    for parameter in inspect.signature(function).parameters:
        assert f"\n{parameter} : " in text


@pytest.mark.parametrize("name", NAMES)
def test_help_names_each_parameter(name):
    _check_help(getattr(arrays, name), "from cupar import arrays")


@pytest.mark.parametrize("name", shards.__all__)
def test_so_does_that_of_arrays_in_shards(name):
    function = getattr(shards, name)
    _check_help(function, "from cupar.distributed import arrays")
    assert [*inspect.signature(function).parameters][-1] == "group"


def test_so_does_that_of_dask_arrays():
    named = pytest.importorskip("cupar._dask.named")
    names = [name for name, module in dask._MODULES.items() if module == "named"]
    assert "sum" in names
    for name in names:
        _check_help(getattr(named, name), "from cupar import dask as cdask")


REFUSED = [
    (
        lambda: arrays.count_if(X),
        TypeError,
        r"count_if\(\) missing 1 required positional argument: 'predicate'",
    ),
    (lambda: arrays.roll(X, 1, 2), TypeError, r"roll\(\) takes 2 positional arguments but 3"),
    (lambda: arrays.reverse(X, axis=2), ValueError, "axis: expected from -2 to 1"),
    (lambda: arrays.reverse(X, out=X), ValueError, "out: expected an array apart from inputs"),
    (lambda: arrays.gather(X[0], N, out=X[0]), ValueError, "out: expected an array apart from inputs"),
    (lambda: arrays.scatter(N, N[::-1], N), ValueError, "out: expected an array apart from inputs"),
    (lambda: arrays.scatter_if(N, M, N, M), ValueError, "out: expected an array apart from inputs"),
    (lambda: arrays.scatter(N, N, None), TypeError, "out: expected an array of NumPy"),
    (lambda: arrays.scatter_if(N, N, N, (N, N)), TypeError, "out: expected an array of NumPy"),
    (lambda: arrays.gather_if(N, N, N, None), TypeError, "out: expected an array of NumPy"),
    (
        lambda: arrays.find_first(TransformIterator(N, abs), abs, num_items=4),
        ValueError,
        "num_items: expected from 0 to 3, got 4",
    ),
    (lambda: arrays.roll(N, 1.5), TypeError, "number: expected an integer, got float"),
    (lambda: arrays.shift(N, None), TypeError, "number: expected an integer, got NoneType"),
    (lambda: arrays.count_if(N, 3), TypeError, "predicate: expected a function or an OpKind, got 3"),
    (lambda: arrays.find_first(N, 3), TypeError, "predicate: expected a function, an OpKind"),
    (lambda: arrays.partition_copy(N, 3), TypeError, "predicate: expected a function, an OpKind"),
    (lambda: arrays.partition_point(N, 3), TypeError, "predicate: expected a function or an OpKind"),
    (lambda: arrays.is_sorted(N, less=3), TypeError, "less: expected a function or an OpKind, got 3"),
    (lambda: arrays.includes(N, N, less=3), TypeError, "less: expected a function, an OpKind"),
    (lambda: arrays.sort(N, less=abs), TypeError, "less: numba cannot compile operator abs"),
    (lambda: arrays.tabulate(3, 3, like=N), TypeError, "op: expected a function, an OpKind"),
    (lambda: arrays.transform_reduce(N, 3), TypeError, "transform: expected a function, an OpKind"),
    (
        lambda: arrays.segment_quantile(N, N, N + np.int8(2)),
        ValueError,
        r"ends\[2\]: expected at most 3",
    ),
    (lambda: arrays.fill(X.copy(), None), TypeError, "value: expected one value of float32, got None"),
    (lambda: arrays.inner_product(X, X, init="3"), TypeError, "init: expected one value of float32, got '3'"),
    (lambda: arrays.count(N, 2**70), TypeError, "value: expected one value of int8"),
    (lambda: arrays.gather(X, X), TypeError, "indices: expected integers, got float32"),
    (lambda: arrays.gather(N, N + 1), IndexError, "indices: expected from -3 to 2"),
    (lambda: arrays.scatter(N, N[:2], N.copy()), ValueError, "indices: expected the shape of `x`"),
    (lambda: arrays.scatter_if(N, N, X, N.copy()), ValueError, "flags: expected the shape of `x`"),
    (lambda: arrays.gather_if(N, N, N, np.zeros(3)), TypeError, "out: expected dtype int8, as `x` has"),
    (lambda: arrays.fill(N.copy(), 300), TypeError, "value: expected one value of int8, got 300"),
    (lambda: arrays.tabulate(3, abs), TypeError, "like: expected an array of the library"),
    (lambda: arrays.tabulate(-1, abs, like=X), ValueError, "size: expected 0 or more, got -1"),
    (lambda: arrays.sample(N, 4), ValueError, "size: expected from 0 to 3, got 4"),
    (lambda: arrays.mismatch(N, X), ValueError, "b: expected the shape of `a`"),
    (lambda: arrays.inner_product(N, N[:2]), ValueError, "b: expected the shape of `a`"),
    (lambda: arrays.compress(X, N), ValueError, "flags: expected the shape of `x`"),
    (lambda: arrays.nth_element(N[:0], 0), IndexError, "x: expected at least one item for a rank"),
    (lambda: arrays.histogram(N, bins="auto"), TypeError, "bins: .* at least 2 edges, got 'auto'"),
    (lambda: arrays.replace(N, 1, 2.5), TypeError, "new: expected one value of int8, got 2.5"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED, ids=[each[2][:40] for each in REFUSED])
def test_what_is_refused(call, error, message):
    with pytest.raises(error, match=f"^{message}"):
        call()


def test_what_declines_writes_nothing():
    out = np.full(3, 7, np.int8)
    assert arrays.scatter_if(N, np.zeros(3, int), np.zeros(3, bool), out) is out
    assert out.tolist() == [7, 7, 7]


def test_flags_guard_places_that_there_are_not():
    """As Thrust's stencils do: such a place is neither read nor written."""
    places, flags = np.array([2, 2**64 - 1, 0], np.uint64), np.array([1, 0, 1])
    assert arrays.gather_if(N + np.int8(5), places, flags, N * np.int8(9)).tolist() == [7, 9, 5]
    assert arrays.scatter_if(N + np.int8(5), places, flags, np.zeros(3, np.int8)).tolist() == [7, 0, 5]
    for call in (arrays.gather_if, arrays.scatter_if):
        with pytest.raises(
            IndexError, match="indices: expected from -3 to 2, got from 0 to 18446744073709551615"
        ):
            call(N, places, np.ones(3, bool), N.copy())


def test_places_of_small_integers_are_places():
    x = np.arange(300)
    assert np.array_equal(arrays.roll(x, np.int8(-128)), np.roll(x, -128))
    assert np.array_equal(arrays.roll(x, 2**70), np.roll(x, 2**70 % 300))
    assert not arrays.shift(x, 2**70).any()


def test_float16_is_written_where_flags_hold():
    x, out = np.array([1.5, 2.5], np.float16), np.zeros(2, np.float16)
    assert arrays.scatter_if(x, np.array([1, 0]), np.array([1, 0]), out).tolist() == [0, 1.5]


def test_iterators_and_tuples_are_sorted_or_not():
    assert arrays.is_sorted(TransformIterator(np.arange(3), lambda i: i * i))
    by_first = lambda a, b: a[0] < b[0]
    assert not arrays.is_sorted((M[::-1].copy(), N), less=by_first)
