"""What all functions of `cupar.arrays` have in common: what is refused, and that nothing is stale."""

import os
import subprocess
import sys

import numpy as np
import pytest
from support.common import in_threads

import cupar
from cupar import arrays

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def larger(a, b):
    return a if a > b else b


REFUSED = [
    (lambda: arrays.scan([1, 2]), TypeError, "x: expected an array"),
    (lambda: arrays.scan(X, axis=2), ValueError, "axis: expected from -2 to 1"),
    (lambda: arrays.sort(X, axis="0"), TypeError, "axis: expected an integer, got str"),
    (lambda: arrays.sum(X, axis=(0, 0)), ValueError, "axis: expected different axes"),
    (lambda: arrays.cumulative_sum(X), ValueError, "axis: expected one of 2"),
    (lambda: arrays.scan(X, larger, exclusive=True), TypeError, "init: an exclusive scan begins with it"),
    (lambda: arrays.scan(X, init="a"), TypeError, "init: expected one value of float32, got 'a'"),
    (lambda: arrays.scan(X, dtype="none"), TypeError, "dtype: expected a dtype, got 'none'"),
    (lambda: arrays.reduce(X[:0], larger), ValueError, "x: a reduction of no items"),
    (lambda: arrays.min(X[:0]), ValueError, "x: min of no items"),
    (lambda: arrays.argmax(X[:0], axis=0), ValueError, "x: argmax of no items"),
    (lambda: arrays.max(X.astype(complex)), TypeError, "x: max takes real numbers, got complex128"),
    (lambda: arrays.scan((X, X[0]), larger), ValueError, "x[1]: expected the shape of x[0]"),
    (lambda: arrays.reduce((), larger), TypeError, "like: expected an array"),
    (lambda: arrays.reduce((X, X), larger, dtype="f4"), TypeError, "dtype: expected None, as `x` is a tuple"),
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
    (lambda: arrays.copy_if(X, lambda a: a > 0, size="1"), TypeError, "size: expected an integer or None"),
    (lambda: arrays.nonzero(np.array(1)), ValueError, "x: expected an array with dimensions"),
    (lambda: arrays.top_k(X, 4), ValueError, "k: expected from 0 to 3"),
    (lambda: arrays.take(X, np.array([3]), axis=0), IndexError, "indices: expected from -2 to 1"),
    (lambda: arrays.take(X, X), TypeError, "indices: expected integers, got float32"),
    (lambda: arrays.repeat(X, np.array([1, -1]), axis=0), ValueError, "repeats: expected 0 or more"),
    (lambda: arrays.diff(X, n=-1), ValueError, "n: expected an integer from 0 on"),
    (lambda: arrays.bincount(np.array([-1])), ValueError, "x: expected no item below 0"),
    (lambda: arrays.histogram(X, bins=[2, 1]), ValueError, "bins: expected edges that rise"),
    (lambda: arrays.quantile(X, 2), ValueError, "q: expected numbers from 0 to 1"),
    (lambda: arrays.median(X[:0]), ValueError, "x: a quantile of no items"),
    (
        lambda: arrays.segment_reduce(X, X.astype(int), larger, 3),
        TypeError,
        "init: expected the result of a segment without items",
    ),
    (lambda: arrays.linear_recurrence(X, X[0]), ValueError, "b: expected the shape of `a`"),
    (lambda: arrays.linear_recurrence(X, X, initial=X), ValueError, "initial: expected shape (2,)"),
    (lambda: arrays.searchsorted(X, X), ValueError, "x1: expected one dimension"),
    (lambda: arrays.union1d((X, X), X), TypeError, "a: expected an array of numbers"),
]


@pytest.mark.parametrize("call, kind, said", REFUSED, ids=[said[:24] for _, _, said in REFUSED])
def test_errors_name_the_argument_and_are_short(call, kind, said):
    with pytest.raises(kind) as error:
        call()
    assert str(error.value).startswith(said)
    assert len(str(error.value).splitlines()) <= 20


def test_an_output_that_overlaps_the_input_is_refused():
    x = np.arange(10, dtype=np.float32)
    for source, out in ((x[:-1], x[1:]), (x[1:], x[:-1]), (x[:5], x.view(np.int32)[2:7])):
        with pytest.raises(ValueError, match="out: expected the input itself or an array apart from it"):
            arrays.scan(source, out=out)
    with pytest.raises(ValueError, match="out: expected the input itself"):
        arrays.sum(x.reshape(5, 2), axis=1, out=x[:5])
    with pytest.raises(ValueError, match="out: expected the input itself"), cupar.device("cpu"):
        arrays.scan(cupar.ReverseIterator(x), out=x)
    y = x[::2]  # what is strided is copied first, and so no part of the output
    assert np.array_equal(arrays.scan(y, out=x[:5]), np.cumsum(np.arange(0, 10, 2)))


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


def test_a_changed_global_is_seen():
    global scale
    x = np.arange(4)
    for scale in (1, 2, 1):
        for _ in range(3):
            assert arrays.scan(x, scaled)[-1] == 6 * scale
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
    with pytest.raises(TypeError, match=r"x: got a tensor that requires grad.*torch\.cumsum"):
        arrays.scan(x)
    with torch.no_grad():
        assert arrays.scan(x).tolist() == [0, 1, 3]
    assert arrays.scan(x.detach()).tolist() == [0, 1, 3]


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
