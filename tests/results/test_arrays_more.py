"""Results of `cupar.arrays` against NumPy's: selections, places, sets, counts and recurrences."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.libraries import axes, each_library, few_examples, host_arrays, same
from support.operations import counted
from support.results import IS_CPU

import cupar
from cupar import arrays
from cupar._functions.calls import enter
from cupar._functions.recurrences import ShiftedIterator, recurrence_gradients

pytestmark = pytest.mark.slow


def is_positive(a):
    return a > 0


@each_library
@given(data=st.data())
@few_examples
def test_selections(lib, data):
    x = data.draw(host_arrays(("f4",), ndim=(1, 2)))
    given_, expected = lib.array(x), x[x > 0]
    same(lib.host(arrays.copy_if(given_, is_positive)), expected)
    items, count = arrays.copy_if(given_, is_positive, size=5)
    assert lib.host(count) == len(expected)
    assert lib.host(items).shape == (5,)
    same(lib.host(items)[: len(expected)], expected[:5])
    items, count = arrays.partition_by(given_, is_positive)
    same(lib.host(items), np.concatenate([expected, x[~(x > 0)]]))
    assert lib.host(count) == len(expected)
    for found, places in zip(arrays.nonzero(given_), np.nonzero(x), strict=True):
        same(lib.host(found), places)
    places = np.flatnonzero(x > 0)
    same(lib.host(arrays.find_first(given_, is_positive)), np.int64(places[0] if len(places) else -1))


@each_library
@given(data=st.data())
@few_examples
def test_places(lib, data):
    x = data.draw(host_arrays(("f4", "i4"), ndim=(1, 3)))
    axis = data.draw(axes(x))
    length = x.size if axis is None else x.shape[axis]
    number = st.integers(-length, length - 1) if length else st.nothing()
    places = np.array(data.draw(st.lists(number, max_size=5 if length else 0)), np.int64)
    same(lib.host(arrays.take(lib.array(x), lib.array(places), axis=axis)), np.take(x, places, axis))
    times = data.draw(st.integers(0, 3))
    same(lib.host(arrays.repeat(lib.array(x), times, axis=axis)), np.repeat(x, times, axis))
    each = np.array(data.draw(st.lists(st.integers(0, 3), min_size=length, max_size=length)), np.int32)
    found = arrays.repeat(lib.array(x), lib.array(each), axis=axis)
    same(lib.host(found), np.repeat(x, each, axis))
    x = np.nan_to_num(x)
    at = -1 if axis is None else axis
    n = data.draw(st.integers(0, 2))
    same(lib.host(arrays.diff(lib.array(x), axis=at, n=n)), np.diff(x, axis=at, n=n))
    before = np.take(x, [], axis=at) if data.draw(st.booleans()) else x
    found = arrays.diff(lib.array(x), axis=at, prepend=lib.array(before), append=lib.array(x))
    same(lib.host(found), np.diff(x, axis=at, prepend=before, append=x))


@each_library
@given(data=st.data())
@few_examples
def test_sets(lib, data):
    x = data.draw(host_arrays(("f4",)))
    y = data.draw(host_arrays(("f4",), ndim=(1, 1)))
    given_ = lib.array(x)
    expected = np.unique_all(x)
    for found, each in zip(arrays.unique_all(given_), expected, strict=True):
        same(lib.host(found), each)
    same(lib.host(arrays.unique_values(given_)), expected.values)
    same(lib.host(arrays.unique_counts(given_).counts), expected.counts)
    same(lib.host(arrays.unique_inverse(given_).inverse_indices), expected.inverse_indices)
    (values, indices, inverse, counts), count = arrays.unique_all(given_, size=3)
    assert lib.host(count) == len(expected.values)
    some = min(3, len(expected.values))
    same(lib.host(values)[:some], expected.values[:some])
    same(lib.host(indices)[:some], expected.indices[:some])
    same(lib.host(counts)[:some], expected.counts[:some])
    same(lib.host(inverse), expected.inverse_indices)
    for name in ("union1d", "intersect1d", "setdiff1d", "setxor1d"):
        same(lib.host(getattr(arrays, name)(given_, lib.array(y))), getattr(np, name)(x, y))
    for invert in (False, True):
        same(lib.host(arrays.isin(given_, lib.array(y), invert=invert)), np.isin(x, y, invert=invert))


@each_library
def test_arrays_are_joined(lib, rng):
    """Few are copied by the driver, many by a kernel; those that are alike are read by their attributes."""
    for number in (1, 2, 4, 5, *([] if IS_CPU else [16, 17, 40, 1500])):
        parts = [rng.random((int(rng.integers(0, 9)), 3), "f4") for _ in range(number)]
        flat = [each.ravel() for each in parts]
        same(lib.host(arrays.concatenate([*map(lib.array, parts)])), np.concatenate(parts))
        given_ = [*map(lib.array, flat)]
        same(lib.host(arrays.concatenate(given_)), np.concatenate(flat))
        mixed = [*given_, lib.array(np.arange(3))]
        same(lib.host(arrays.concatenate(mixed)), np.concatenate([*flat, np.arange(3)]))
        if lib.name in ("dlpack", "numba"):  # whose arrays have no slices, or none if they are empty
            continue
        cut = [each[1:] for each in given_]
        same(lib.host(arrays.concatenate(cut)), np.concatenate([each[1:] for each in flat]))
        every_other = [given_[0][::2], *given_[1:]]
        same(lib.host(arrays.concatenate(every_other)), np.concatenate([flat[0][::2], *flat[1:]]))
        numbers = np.arange(40 * number, dtype="i8")
        places, whole = [slice(40 * i, 40 * i + i % 40) for i in range(number)][::-1], lib.array(numbers)
        found = arrays.concatenate([whole[each] for each in places])
        same(lib.host(found), np.concatenate([numbers[each] for each in places]))
    for dtype in ("?", "u1", "i2", "f8", "c16"):
        parts = [np.arange(i % 7).astype(dtype) for i in range(20)]
        same(lib.host(arrays.concatenate([*map(lib.array, parts)])), np.concatenate(parts))


@each_library
@given(data=st.data())
@few_examples
def test_sorted_arrays(lib, data):
    a, b = (np.sort(data.draw(host_arrays(("f4",), ndim=(1, 1), most=9))) for _ in range(2))
    same(lib.host(arrays.merge(lib.array(a), lib.array(b))), np.sort(np.concatenate([a, b])))
    x = data.draw(host_arrays(("f4",)))
    for side in ("left", "right"):
        found = arrays.searchsorted(lib.array(a), lib.array(x), side=side)
        same(lib.host(found), np.searchsorted(a, x, side=side))


@each_library
@given(data=st.data())
@few_examples
def test_runs_and_segments(lib, data):
    x = data.draw(host_arrays(("f4",), ndim=(1, 1), most=20, special=False))
    ids = np.array(data.draw(st.lists(st.integers(-1, 4), min_size=x.size, max_size=x.size)), np.int32)
    given_, keys = lib.array(x), lib.array(ids)
    expected = np.array([x[ids == k].sum() for k in range(6)], np.float32)
    same(lib.host(arrays.segment_reduce(given_, keys, num_segments=6)), expected, rtol=1e-6)
    starts = np.flatnonzero(np.diff(ids, prepend=-7)) if x.size else np.empty(0, int)
    found, sums = arrays.reduce_by_key(keys, given_)
    same(lib.host(found), ids[starts])
    same(lib.host(sums), np.add.reduceat(x, starts) if x.size else x, rtol=1e-6)
    found, lengths = arrays.run_length_encode(keys)
    same(lib.host(found), ids[starts])
    same(lib.host(lengths), np.diff(starts, append=x.size))


@each_library
@given(data=st.data())
@few_examples
def test_bins(lib, data):
    ids = data.draw(host_arrays(("i4",), ndim=(1, 1), most=20)) & 15
    weights = np.arange(ids.size, dtype=np.float64)
    given_ = lib.array(ids)
    same(lib.host(arrays.bincount(given_, minlength=3)), np.bincount(ids, minlength=3))
    found = arrays.bincount(given_, weights=lib.array(weights), minlength=1)
    same(lib.host(found), np.bincount(ids, weights, minlength=1), rtol=1e-12, dtype=len(ids) > 0)
    same(lib.host(arrays.bincount(given_, size=4)), np.bincount(ids[ids < 4], minlength=4))
    x = data.draw(host_arrays(("f8",), special=False))
    for named in ({"bins": 4}, {"bins": 3, "range": (-1, 7)}, {"bins": [-2.5, 0, 1, 3]}):
        hist, edges = arrays.histogram(lib.array(x), **named)
        wanted, wanted_edges = np.histogram(x, **named)
        same(lib.host(hist), wanted)
        same(lib.host(edges), wanted_edges)


@each_library
@pytest.mark.parametrize("dtype", ["f4", "i4"])
def test_quantiles_of_all_items_of_several_arrays(lib, dtype, rng):
    """Programs of calls of a kind make the others."""
    for shape in ((7,), (1,), (2,), (3, 5), (600,)):
        x = rng.integers(-50, 50, shape).astype(dtype)
        same(lib.host(arrays.median(lib.array(x))), np.median(x), dtype=dtype == "f4")
        for q in (0.3, 0.0, 0.75):
            same(
                lib.host(arrays.quantile(lib.array(x), q)), np.quantile(x, q), rtol=1e-6, dtype=dtype == "f4"
            )
        if dtype == "f4":
            x.ravel()[rng.integers(x.size)] = np.nan
            assert np.isnan(lib.host(arrays.median(lib.array(x))))
            assert np.isnan(lib.host(arrays.quantile(lib.array(x), 0.3)))
    if IS_CPU and lib.name == "numpy":
        x = x[:100].astype("f8")
        for y in (x, x[:97]) * 3:  # between two items, and at one: each has a program
            arrays.median(y), arrays.quantile(y, 0.3)
        for y in (x, x[:97], x[:98], x[:7]):  # of sizes that were not seen before, too
            assert counted(lambda y=y: arrays.median(y)) < 500  # functions; some 3,000 without a program
            assert counted(lambda y=y: arrays.quantile(y, 0.3)) < 700
    with pytest.raises(ValueError, match="x: expected at least one item"):
        arrays.median(lib.array(x[:0]))
    with pytest.raises(ValueError, match="q: expected numbers from 0 to 1"):
        arrays.quantile(lib.array(x), 1.5)


@each_library
@given(data=st.data())
@few_examples
def test_quantiles(lib, data):
    x = data.draw(host_arrays(("f8",), least=1))
    axis = data.draw(st.sampled_from([None, -1]) if x.ndim else st.none())
    q = data.draw(st.lists(st.sampled_from([0, 0.25, 0.4, 0.5, 0.75, 1]), min_size=1, max_size=2))
    method = data.draw(st.sampled_from(["linear", "lower", "higher", "nearest", "midpoint"]))
    with np.errstate(all="ignore"):
        finite = np.nan_to_num(x, posinf=9, neginf=-9)
        found = arrays.quantile(lib.array(finite), q, axis=axis, method=method)
        same(lib.host(found), np.quantile(finite, q, axis=axis, method=method), rtol=1e-12)
        same(lib.host(arrays.median(lib.array(x), axis=axis)), np.median(x, axis=axis), rtol=1e-12)


def recurrence(a, b, before=None):
    h = np.empty_like(b)
    for t in range(b.shape[-1]):
        first = b[..., 0] if before is None else a[..., 0] * before + b[..., 0]
        h[..., t] = first if t == 0 else a[..., t] * h[..., t - 1] + b[..., t]
    return h


@each_library
@given(data=st.data())
@few_examples
def test_linear_recurrences(lib, data):
    b = data.draw(host_arrays(("f8",), ndim=(1, 3), special=False))
    a = np.resize([0.5, -1.0, 0.0, 2.0, 0.25], b.shape)
    before = np.resize([3.0, -1.0], b.shape[:-1])
    found = arrays.linear_recurrence(lib.array(a), lib.array(b))
    same(lib.host(found), recurrence(a, b), rtol=1e-12)
    found = arrays.linear_recurrence(lib.array(a), lib.array(b), initial=3.0)
    same(lib.host(found), recurrence(a, b, np.full(b.shape[:-1], 3.0)), rtol=1e-12)
    found = arrays.linear_recurrence(lib.array(a), lib.array(b), initial=lib.array(before), reverse=True)
    same(lib.host(found), recurrence(a[..., ::-1], b[..., ::-1], before)[..., ::-1], rtol=1e-12)


def gradients(a, h, grad, before):
    """Return those of a recurrence along the last axis, by going back step by step."""
    of_b, last = np.empty_like(grad), 0
    for t in reversed(range(grad.shape[-1])):
        of_b[..., t] = grad[..., t] + last
        last = a[..., t] * of_b[..., t]
    first = np.zeros_like(h[..., 0]) if before is None else before
    return of_b * np.concatenate([first[..., None], h[..., :-1]], -1), of_b, last


@each_library
@pytest.mark.parametrize(
    ("shape", "axis", "reverse", "has_initial"),
    [
        ((1,), 0, False, False),
        ((70_003,), 0, False, False),
        ((70_003,), -1, True, True),
        ((3, 20_001), -1, False, True),
        ((3, 20_001), -1, True, False),
        ((2, 300, 5), 1, False, True),
    ],
)
def test_gradients_of_linear_recurrences(lib, shape, axis, reverse, has_initial):
    random = np.random.default_rng(sum(shape))
    a, h, grad = (random.random(shape).astype("f4") for _ in range(3))
    before = random.random(np.delete(shape, axis)).astype("f4") if has_initial else None
    a[...] = a * 0.9
    inputs = tuple([None if each is None else lib.array(each) for each in (a, h, grad, before)])
    found = enter(recurrence_gradients, inputs, (axis, reverse, (None, None, None)))
    turned = [np.moveaxis(each.astype("f8"), axis, -1)[..., :: -1 if reverse else 1] for each in (a, h, grad)]
    *of_items, of_initial = gradients(*turned, before)
    for one, expected in zip(found[:2], of_items, strict=True):
        moved = np.moveaxis(lib.host(one), axis, -1)[..., :: -1 if reverse else 1]
        same(moved, expected.astype("f4"), rtol=1e-5)
    if has_initial:
        same(lib.host(found[2]), of_initial.astype("f4"), rtol=1e-5)


@each_library
def test_shifted_items_are_zero_beyond_the_ends_of_their_array(lib):
    x = np.arange(1, 6, dtype="f4")
    for by in (-7, -1, 0, 2, 5):
        for backwards in (False, True):
            items = ShiftedIterator(lib.array(x), len(x), by)
            if backwards:
                items = cupar.ReverseIterator(items + (len(x) - 1))
            padded = np.concatenate([np.zeros(10, "f4"), x, np.zeros(10, "f4")])[10 + by :][: len(x)]
            found = lib.host(arrays.transform(lambda value: value, items, num_items=len(x)))
            same(found, padded[:: -1 if backwards else 1])


@each_library
def test_what_comes_before_a_row_is_not_multiplied(lib):
    """The first factor of each row is not used: 0 times infinity would be NaN."""
    a, b = np.array([[np.inf, 0.5], [np.nan, 0.5]]), np.array([[0.0, 1.0], [2.0, 3.0]])
    found = lib.host(arrays.linear_recurrence(lib.array(a), lib.array(b)))
    assert found.tolist() == [[0.0, 1.0], [2.0, 4.0]]
    assert lib.host(arrays.linear_recurrence(lib.array(a[0]), lib.array(b[0]))).tolist() == [0.0, 1.0]


@each_library
def test_tuples_and_iterators(lib):
    x = np.array([3.0, -1.0, 4.0, -1.5], np.float32)
    n = np.arange(4, dtype=np.int32)
    pair = lib.array(x), lib.array(n)

    def least(a, b):
        return a if a[0] < b[0] else b

    value, place = arrays.reduce(pair, least)
    assert (float(lib.host(value)), int(lib.host(place))) == (-1.5, 3)
    running, places = arrays.scan(pair, least)
    same(lib.host(running), np.minimum.accumulate(x))
    same(lib.host(places), np.array([0, 1, 1, 3], np.int32))
    values, others = arrays.sort(pair, less=lambda a, b: a[0] < b[0])
    same(lib.host(values), np.sort(x))
    same(lib.host(others), n[np.argsort(x)])
    total, less = arrays.transform(lambda a, b: (a + b, a < b), *pair)
    same(lib.host(total), x.astype(np.float64) + n)
    same(lib.host(less), x < n)
    counter = cupar.CountingIterator(np.int32(0))
    assert int(lib.host(arrays.reduce(counter, num_items=5, like=pair[0]))) == 10
    same(
        lib.host(arrays.scan((pair[1], counter), lambda a, b: (a[0] + b[0], b[1]), num_items=4)[0]),
        np.cumsum(n, dtype=np.int32),
    )


@each_library
def test_out_may_be_the_input(lib):
    if lib.name == "dlpack":
        pytest.skip("its results go to arrays of another library")
    for axis in (None, 0, 1):
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        whole = x.ravel() if axis is None else x
        given_ = lib.array(whole.copy())
        assert arrays.scan(given_, axis=axis, reverse=True, out=given_) is given_
        at = axis or 0
        same(lib.host(given_), np.flip(np.cumsum(np.flip(whole, at), at), at))
        given_ = lib.array(-whole)
        arrays.sort(given_, axis=-1 if axis is None else axis, out=given_)
        same(lib.host(given_), np.sort(-whole, axis=-1 if axis is None else axis))
    out = lib.array(np.zeros(6, np.float64))
    assert arrays.transform(lambda a: a + a, lib.array(whole.ravel()), out=out) is out
    same(lib.host(out), 2 * whole.ravel().astype(np.float64))
