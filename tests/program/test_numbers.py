"""Numbers among the arguments of `cupar.arrays`: once another one is given, programs take them as sizes."""

import math
import operator
import struct
from itertools import product

import numpy as np
import pytest
from program.test_sizes import traced
from support.common import in_threads

import cupar
from cupar import arrays
from cupar._base import sizes
from cupar._program import known

X = np.random.default_rng(5).random(30).astype("f4")
I = np.random.default_rng(5).integers(0, 9, 30)  # noqa: E741
FLOATS = [0.0, -0.0, 0.25, 0.5, -1.5, 1.0, 2.0, 1e300, 5e-324, math.inf, -math.inf, math.nan, -math.nan]


pytestmark = pytest.mark.usefixtures("forgotten")


@pytest.fixture
def made(monkeypatch):
    """Whether a program has made each call."""
    found, call = [], known.call

    def counted(*given):
        result = call(*given)
        found.append(result is not None and type(result) is not known.Miss)
        return result

    monkeypatch.setattr(known, "call", counted)
    return found


# --- Floats -----------------------------------------------------------------------------------------------

OF_FLOATS = {
    **{name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne", "truediv")},
    "float": lambda a, b: float(a),
    "truth": lambda a, b: bool(a),
    "text": lambda a, b: str(a),
    "format": lambda a, b: f"{a:.3}",
    "hash": lambda a, b: {a: 1}.get(b),
    "least": min,
    "minus": lambda a, b: -a,
    "size": lambda a, b: abs(a),
    "round": lambda a, b: round(a, 1),
    "sign": lambda a, b: math.copysign(1, a),
    "numpy": lambda a, b: float(np.asarray(a, float)),
    "bytes": lambda a, b: struct.pack("d", a),
}


def bits(value):
    return struct.pack("d", value) if isinstance(value, float) else value


def result(function, *given):
    try:
        return function(*given)
    except ZeroDivisionError:
        return None


@pytest.mark.parametrize("name", OF_FLOATS)
def test_what_is_done_with_a_float_holds_for_others(name):
    """Of the float that is traced, too: only NaN has no condition, so that it has no program."""
    function = OF_FLOATS[name]
    for a, b in product(FLOATS, FLOATS):
        tracer, (x,) = traced(a)
        found = result(function, x, b)
        if found is None:
            continue
        assert bits(sizes.value_of(found)) == bits(function(a, b))
        for c in FLOATS:
            again = tracer.evaluated(found, s0=c)
            assert again is None or bits(again) == bits(function(c, b)), (a, b, c)
            assert again is not None or bits(c) != bits(a) or a != a


@pytest.mark.parametrize("operation", [operator.add, operator.mul, operator.floordiv, operator.mod])
def test_a_float_has_no_arithmetic(operation):
    """A sum with 0 is not the number itself, if that is -0.0."""
    _, (x, n) = traced(0.5, 2)
    for given in ((x, 0), (0, x), (x, n), (n, x), (x, 0.5)):
        with pytest.raises(TypeError):
            operation(*given)
    for plain in (int.__index__, operator.index, lambda v: [5, 6][v]):
        with pytest.raises(TypeError):
            plain(x)


# --- Calls ------------------------------------------------------------------------------------------------


def clipped(a, low, high):
    return min(max(a, low), high)


INTEGERS = [3, 1, 0, 5, -4, 29, 30, 31, -31, 100]
CASES = {
    "roll": (lambda n: arrays.roll(X, n), lambda n: np.roll(X, n), INTEGERS),
    "shift": (lambda n: arrays.shift(I, 1, n)[0], np.int64, INTEGERS),
    "repeat": (lambda n: arrays.repeat(X, n), lambda n: np.repeat(X, n), [3, 1, 0, 5, 7]),
    "top_k": (lambda n: arrays.top_k(X, n).values, lambda n: np.sort(X)[::-1][:n], [3, 1, 0, 30, 5, 29]),
    "nth_element": (lambda n: arrays.nth_element(X, n), lambda n: np.sort(X)[n], [3, 1, 0, 29, -1, -30]),
    "quantile": (lambda q: arrays.quantile(X, q), lambda q: np.quantile(X, q), [0.3, 0.0, 0.7, 1.0, 0.31]),
    "quantile of a list": (
        lambda q: arrays.quantile(X, [q, 0.5, 0]),
        lambda q: np.quantile(X, [q, 0.5, 0]).astype("f4"),
        [0.3, 0.0, 0.7, 1.0, 0.5],
    ),
    "quantile of an array": (
        lambda q: arrays.quantile(X, np.array([[q, 0.5], [0, 1]], "f4")),
        lambda q: np.quantile(X, np.array([[q, 0.5], [0, 1]], "f4").astype("f8")).astype("f4"),
        [0.3, 0.0, 0.7, 1.0, 0.5],
    ),
    "quantile of a scalar": (
        lambda q: arrays.quantile(X, np.float32(q)),
        lambda q: np.quantile(X, float(np.float32(q))),
        [0.3, 0.0, 0.7, 1.0, 0.31],
    ),
    "quantile of a segment": (
        lambda q: arrays.segment_quantile(X, np.array([3]), np.array([20]), q)[0],
        lambda q: np.quantile(X[3:20], q),
        [0.3, 0.0, 0.7, 1.0, 0.31],
    ),
    "roll by a scalar": (lambda n: arrays.roll(X, np.int8(n)), lambda n: np.roll(X, n), INTEGERS),
    "times a scalar": (
        lambda v: arrays.transform(operator.mul, X, np.float32(v)),
        lambda v: X * np.float32(v),
        FLOATS,
    ),
    "times a byte": (
        lambda n: arrays.transform(operator.mul, I.astype("u1"), np.uint8(n % 256)),
        lambda n: I.astype("u8") * np.uint64(n % 256),
        INTEGERS,
    ),
    "init of a larger dtype": (
        lambda v: arrays.reduce(X, np.fmax, init=np.float64(v)),
        lambda v: np.float64(max(X.max(), v)),
        FLOATS[2:7],
    ),
    "histogram of a range": (
        lambda v: arrays.histogram(X, bins=4, range=(v, 1.0)).edges,
        lambda v: np.histogram(X, 4, (v, 1.0))[1].astype("f4"),
        [0.0, 0.5, -0.0, 0.25, -1.5, -0.0, 1.0, -2.0, -3.0],
    ),
    "histogram of a number": (
        lambda n: arrays.histogram(X, bins=n, range=(0, 1)).hist,
        lambda n: np.histogram(X, n, (0, 1))[0],
        [3, 1, 5, 9, 20, 100],
    ),
    "bincount": (
        lambda n: arrays.bincount(I, minlength=n),
        lambda n: np.bincount(I, minlength=n),
        [3, 20, 0, 9, 10],
    ),
    "bincount of a size": (
        lambda n: arrays.bincount(I, size=n),
        lambda n: np.bincount(I, minlength=n)[:n],
        [3, 1, 0, 20],
    ),
    "clip": (
        lambda v: arrays.transform(clipped, X, v, 0.75),
        lambda v: np.clip(X.astype("f8"), v, 0.75),
        [0.1, 0.2, 0.0],
    ),
    "times": (lambda v: arrays.transform(operator.mul, X, v), lambda v: X * np.float64(v), FLOATS),
    "times an integer": (
        lambda n: arrays.transform(operator.mul, I, n),
        lambda n: I * n,
        [*INTEGERS, 2**63 - 1, -(2**63)],
    ),
    "init": (
        lambda v: arrays.reduce(X, max, init=v),
        lambda v: max(X.max(), np.float32(v)),
        [0.5, 2.0, -0.0],
    ),
    "init of a scan": (
        lambda v: arrays.scan(X, np.fmax, init=v, exclusive=True)[0],
        np.float32,
        [*FLOATS[:7], math.inf],
    ),
    "segments": (
        lambda n: arrays.segment_reduce(X, I, cupar.OpKind.MAXIMUM, n, init=0.0),
        lambda n: np.array([max([0, *X[i == I]]) for i in range(n)], "f4"),
        [9, 3, 0, 12],
    ),
    "replace": (lambda n: arrays.replace(I, n, 77), lambda n: np.where(np.equal(I, n), 77, I), INTEGERS),
    "diff": (lambda v: arrays.diff(X, append=v), lambda v: np.diff(X, append=np.float32(v)), FLOATS[:7]),
    "diff of bytes": (
        lambda n: arrays.diff(I.astype("i1"), append=n),
        lambda n: np.diff(I.astype("i1"), append=np.int8(n) if -128 <= n < 128 else n),
        [3, 5, 127, 128, -129, -128, 7],
    ),
    "shuffle": (lambda n: np.sort(arrays.shuffle(X, seed=n)), lambda n: np.sort(X), INTEGERS),
}


@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value")
@pytest.mark.parametrize("case", CASES)
def test_another_number_is_the_same_program(case, made):
    """But for a few that a function tells apart."""
    call, expected, numbers = CASES[case]
    for _ in range(2):
        for number in numbers:
            found, wanted = call(number), expected(number)
            assert found.dtype == getattr(wanted, "dtype", found.dtype)
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
            zero = np.equal(wanted, 0)
            np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(np.asarray(wanted)[zero]))
    assert made[-len(numbers) :].count(True) > len(numbers) // 2


def test_a_scalar_of_numpys_is_no_number_of_pythons():
    """It has a dtype, and is compared and computed with by NumPy: what is not made for one raises."""
    tracer, (x,) = traced(np.float64(0.5))
    for function in (float, int, bool, str, hash, operator.neg, lambda v: v < 1, lambda v: v + 1, round):
        with pytest.raises(TypeError):
            function(x)
    assert not tracer.guards


def test_shuffles_of_other_seeds_are_those_of_calls_that_are_made_anew():
    for seed in (1, 2, 3, -1, 2**62, 4):
        known._KNOWN.clear()
        known._RECENT.clear()
        expected = arrays.shuffle(X, seed=seed)
        for _ in range(3):
            np.testing.assert_array_equal(arrays.shuffle(X, seed=seed), expected)


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "u8", "f2", "f8", "c8"])
def test_values_are_converted_or_refused_as_by_the_first_call(dtype):
    x = np.arange(6).astype(dtype)
    for empty in (x, x[:0]):
        for value in [1, 0, 2, 1.0, 0.5, -1, 300, 2**62, 2**63, 2**64, 2**70, *FLOATS]:
            for function in (arrays.replace_if, lambda x, op, v: arrays.scan(x, np.add, init=v)):
                found = []
                for path in (known.call, lambda *given: None):
                    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
                        patch.setattr(known, "call", path)
                        try:
                            found.append(function(empty, np.signbit if dtype == "f8" else np.isfinite, value))
                        except (TypeError, ValueError) as error:
                            found.append(str(error))
                one, other = found
                assert type(one) is type(other), (value, found)
                np.testing.assert_array_equal(one, other)


def second(a, b):
    return b


def test_integers_that_int64_has_not_are_of_another_dtype(made):
    for number in (1, 2, 3, 2**63, 4, 2**64 - 1, 5):
        for x in (I, I[:0]):
            found = arrays.transform(second, x, number)
            assert found.dtype == ("u8" if number >= 2**63 else "i8")
            assert found.tolist() == [number] * len(x)
            with pytest.raises(TypeError, match="^xs.1.: expected a number of at most 64 bits"):
                arrays.transform(second, x, 2**64)
    assert made.count(True) >= 4


def test_a_number_that_a_function_needs_itself_is_part_of_keys_again(traces, made):
    x = X.reshape(2, 3, 5)
    for _ in range(10):
        for axis in (0, 1, 2, -1):
            np.testing.assert_allclose(arrays.sum(x, axis=axis), x.sum(axis), rtol=1e-5)
        for n in (1, 2, 3):
            np.testing.assert_array_equal(arrays.diff(I, n=n), np.diff(I, n=n))
    assert len(traces) <= 4 + 3 + 2
    assert made[-7:] == [True] * 7


def test_a_range_whose_edges_are_of_another_dtype_takes_the_general_path():
    for high in (1.0, 2.0, 3.0, 1e38, 3.4e38, 4.0, 1e300, 5.0):
        known._KNOWN.clear()
        known._RECENT.clear()
        expected = arrays.histogram(X, bins=4, range=(-high, high))
        for _ in range(2):
            for other in (1.5, high):
                found = arrays.histogram(X, bins=4, range=(-other, other))
            np.testing.assert_array_equal(found.hist, expected.hist)
            np.testing.assert_array_equal(found.edges, expected.edges, strict=True)
    for interval in ((1.0, 0.5), (0.0, math.inf), (math.nan, 1.0)):
        with pytest.raises(ValueError, match="^range: expected two finite numbers that rise"):
            arrays.histogram(X, bins=4, range=interval)
    for bins in (0, -1, 2**40):
        with pytest.raises(ValueError, match="^bins: expected from 1 to"):
            arrays.histogram(X, bins=bins, range=(0.0, 1.0))


def test_edges_are_an_array_of_each_call():
    for high in (1.0, 2.0, 1.0, 3.0, 2.0, 1.0):
        found = arrays.histogram(X, bins=2, range=(0.0, high)).edges
        assert found.tolist() == [0, high / 2, high]
        found[:] = 7


def test_a_number_that_is_no_integer_is_refused():
    for number in (1, 2, 3):
        arrays.roll(X, number)
    for number in (1.0, 2.5, 3.5, math.nan):
        for function in (arrays.roll, arrays.top_k):
            with pytest.raises(TypeError, match=r"expected an integer, got float"):
                function(X, number)
    for q in (0.25, 0.5, 1.5, -0.1, math.nan, 0.75):
        if 0 <= q <= 1:
            assert arrays.quantile(X, q) == pytest.approx(np.quantile(X, q))
        else:
            with pytest.raises(ValueError, match=f"^q: expected numbers from 0 to 1, got {q!r}"):
                arrays.quantile(X, q)


def test_the_same_number_is_no_other_one_for_its_class():
    """A bool is none, and what varies for one class is of the keys of another."""
    for number in (2, 2.0, True, 3, 3.0, False, 4, 4.0) * 2:
        found = arrays.transform(operator.mul, I.astype("i1"), number)
        assert found.dtype == ("f8" if type(number) is float else "i8")
        np.testing.assert_array_equal(found, I * number)


@pytest.mark.usefixtures("empty_cache")
def test_numbers_vary_in_threads_while_caches_are_cleared():
    def work():
        found = []
        for i in range(30):
            if i % 10 == 9:
                cupar.cache.clear(memory=True)
            found.append(np.array_equal(arrays.roll(X, i % 7), np.roll(X, i % 7)))
            found.append(np.array_equal(arrays.repeat(I, i % 3), np.repeat(I, i % 3)))
        return all(found)

    assert in_threads(4, work) == [True] * 4


def test_tensors():
    torch = pytest.importorskip("torch")
    x = torch.tensor(X)
    for n in (1, 2, 3, -4, 0, 100):
        assert torch.equal(arrays.roll(x, n), x.roll(n))
        assert torch.equal(arrays.transform(operator.mul, x, n / 4).float(), x * (n / 4))
