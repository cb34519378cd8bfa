"""Results of `cupar.arrays` against NumPy's, for arrays of each library."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.libraries import axes, each_library, few_examples, host_arrays, same

from cupar import OpKind, arrays

pytestmark = pytest.mark.slow


def larger(a, b):
    return a if a > b else b


# Each with one dtype and few axes: what they have in common is tested by `sum`, and a build takes a second.
REDUCTIONS = {
    "sum": "f4",
    "prod": "i4",
    "any": "f4",
    "all": "i4",
    "count_nonzero": "f4",
    "min": "f4",
    "max": "i4",
    "argmin": "f4",
    "argmax": "i4",
}


@each_library
@pytest.mark.parametrize("name", REDUCTIONS)
@given(data=st.data())
@few_examples
def test_reductions_by_name(lib, name, data):
    x = data.draw(host_arrays((REDUCTIONS[name],)))
    axis = data.draw(st.sampled_from([None, -1]) if x.ndim and name != "sum" else axes(x))
    keepdims = data.draw(st.booleans())
    try:
        with np.errstate(all="ignore"):
            expected = getattr(np, name)(x, axis=axis, keepdims=keepdims)
    except ValueError:
        with pytest.raises(ValueError, match="of no items"):
            getattr(arrays, name)(lib.array(x), axis=axis, keepdims=keepdims)
        return
    found = getattr(arrays, name)(lib.array(x), axis=axis, keepdims=keepdims)
    same(lib.host(found), expected, rtol=1e-6 if name in ("sum", "prod") else 0)


@each_library
@given(data=st.data())
@few_examples
def test_least_and_greatest(lib, data):
    x = data.draw(host_arrays(("f4",), least=1))
    axis = data.draw(st.sampled_from([None, -1]) if x.ndim else st.none())
    least, greatest = arrays.minmax(lib.array(x), axis=axis)
    same(lib.host(least), np.min(x, axis=axis))
    same(lib.host(greatest), np.max(x, axis=axis))


@each_library
@given(data=st.data())
@few_examples
def test_reductions_along_several_axes_with_a_mask(lib, data):
    x = data.draw(host_arrays(("f4",), ndim=(2, 3), special=False))
    axis = tuple(data.draw(st.sets(st.integers(0, x.ndim - 1), max_size=x.ndim)))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=x.size, max_size=x.size)), bool).reshape(
        x.shape
    )
    found = arrays.sum(lib.array(x), axis=axis, where=lib.array(mask))
    same(lib.host(found), np.sum(x, axis=axis, where=mask), rtol=1e-6)
    found = arrays.reduce(lib.array(x), larger, axis=axis, where=lib.array(mask), init=-1)
    same(lib.host(found), np.max(x, axis=axis, where=mask, initial=-1))


@each_library
@given(data=st.data())
@few_examples
def test_scans(lib, data):
    x = data.draw(host_arrays(("f4",), special=False))
    axis = data.draw(axes(x))
    flat, at = (x.ravel(), 0) if axis is None else (x, axis)
    found = arrays.scan(lib.array(x), axis=axis)
    same(lib.host(found), np.cumsum(flat, at), rtol=1e-6)


@each_library
@given(data=st.data())
@few_examples
def test_scans_by_an_operator_backwards_or_exclusive(lib, data):
    x = data.draw(host_arrays(("i4",), ndim=(1, 2)))
    axis = data.draw(st.sampled_from([None, -1]))
    flat, at = (x.ravel(), 0) if axis is None else (x, axis)
    backwards = np.flip(np.maximum.accumulate(np.flip(flat, at), at), at)
    same(lib.host(arrays.scan(lib.array(x), larger, axis=axis, reverse=True)), backwards)
    first = np.full_like(flat[..., :1], -7)
    shifted = np.concatenate([first, flat], at)[..., :-1] if flat.shape[at] else flat
    found = arrays.scan(lib.array(x), larger, axis=axis, exclusive=True, init=-7)
    same(lib.host(found), np.maximum.accumulate(shifted, at))


@each_library
@given(data=st.data())
@few_examples
def test_cumulative_sums(lib, data):
    x = data.draw(host_arrays(("i1",), ndim=(1, 2)))
    include = data.draw(st.booleans())
    name = (
        data.draw(st.sampled_from(["cumulative_sum", "cumulative_prod"])) if not include else "cumulative_sum"
    )
    found = getattr(arrays, name)(lib.array(x), axis=-1, include_initial=include)
    same(lib.host(found), getattr(np, name)(x, axis=-1, include_initial=include))


@each_library
@given(data=st.data())
@few_examples
def test_sorts(lib, data):
    x = data.draw(host_arrays(("f4",), ndim=(1, 3)))
    axis = data.draw(axes(x))
    given_ = lib.array(x)
    flat, at = (x.ravel(), 0) if axis is None else (x, axis)
    expected = np.sort(x, axis=axis, kind="stable")
    found = lib.host(arrays.sort(given_, axis=axis))
    same(found, expected)
    numbers = ~np.isnan(expected)
    assert np.array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]))
    same(lib.host(arrays.argsort(given_, axis=axis)), np.argsort(x, axis=axis, kind="stable"))
    falling = np.flip(expected, at)
    same(lib.host(arrays.sort(given_, axis=axis, descending=True)), falling)
    k = min(2, flat.shape[at])
    values, indices = arrays.top_k(given_, k, axis=axis)
    same(lib.host(values), np.take(falling, range(k), at))
    same(np.take_along_axis(flat, lib.host(indices), at), lib.host(values))


def test_an_object_of_its_plain_form_is_not_used_for_another_operator():
    x = np.arange(10, dtype=np.int32)
    for _ in range(3):
        assert arrays.reduce(x) == 45
        assert arrays.reduce(x, OpKind.MAXIMUM) == 9
        assert arrays.scan(x, OpKind.MAXIMUM)[-1] == 9
        assert arrays.scan(x)[-1] == 45
