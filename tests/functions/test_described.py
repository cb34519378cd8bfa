"""Functions that are described once: their help, their signature, and what they refuse."""

import inspect

import numpy as np
import pytest

from cupar import arrays

X = np.arange(6, dtype=np.float32).reshape(2, 3)
N = np.arange(3, dtype=np.int8)
NAMES = [name for name in arrays.__all__ if hasattr(getattr(arrays, name), "__wrapped__")]


@pytest.mark.parametrize("name", NAMES)
def test_help_names_each_parameter(name):
    function = getattr(arrays, name)
    text = inspect.getdoc(function)
    assert ">>> from cupar import arrays" in text
    for parameter in inspect.signature(function).parameters:
        assert f"\n{parameter} : " in text


REFUSED = [
    (
        lambda: arrays.count_if(X),
        TypeError,
        r"count_if\(\) missing 1 required positional argument: 'predicate'",
    ),
    (lambda: arrays.roll(X, 1, 2), TypeError, r"roll\(\) takes 2 positional arguments but 3"),
    (lambda: arrays.reverse(X, axis=2), ValueError, "axis: expected from -2 to 1"),
    (lambda: arrays.reverse(X, out=X), ValueError, "out: expected the input itself or an array apart"),
    (lambda: arrays.gather(X[0], N, out=X[0]), ValueError, "out: expected the input itself or an array"),
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
