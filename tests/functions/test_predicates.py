"""Predicates that return nothing, and results of nothing."""

import numpy as np
import pytest

import cupar
from cupar import arrays

X = np.array([3, -1, 4], np.float32)
NOTHING = np.zeros(0, np.float32)


def forgetful(a):
    a > 0


def sometimes(a):  # noqa: RET503
    if a > 0:
        return True


@pytest.mark.parametrize("predicate", [forgetful, sometimes])
@pytest.mark.parametrize(
    "call",
    [
        lambda p: arrays.count_if(X, p),
        lambda p: arrays.remove_if(X, p),
        lambda p: arrays.replace_if(X, p, 0),
        lambda p: arrays.all_of(X, p),
        lambda p: arrays.find_first(X, p),
        lambda p: arrays.any_of(X.reshape(1, 3), p, axis=1),
        lambda p: arrays.is_partitioned(X, p),
        lambda p: arrays.is_sorted(X, less=lambda a, b: p(a)),
    ],
)
def test_a_predicate_without_return_is_refused(call, predicate):
    with pytest.raises(TypeError, match="^(predicate|less): .*a `return` is missing"):
        call(predicate)


@pytest.mark.parametrize(
    "made",
    [
        lambda: arrays.reduce(NOTHING, np.add),
        lambda: arrays.inner_product(NOTHING, NOTHING),
        lambda: arrays.sum(X, where=np.zeros(3, bool)),
        lambda: arrays.segment_reduce(X, np.zeros(3, int), cupar.OpKind.PLUS, 2)[1],
        lambda: arrays.bincount(np.array([1]), weights=np.array([2.0]))[0],
    ],
)
def test_the_sum_of_nothing_is_zero_and_not_below(made):
    assert made() == 0
    assert not np.signbit(made())


def test_arrays_of_structs_and_tuples_are_filled():
    structs = np.zeros(3, np.dtype([("a", "i4"), ("b", "f4")]))
    assert arrays.fill(structs, (1, 2.5)).tolist() == [(1, 2.5)] * 3
    for out, value, message in (
        ((X.copy(), X.copy()), 1, "value: expected a tuple of 2, as `out` is one, got 1"),
        ((X.copy(), X.copy()), (1,), "value: expected a tuple of 2"),
        ((X.copy(), X.astype("i4")), (1, 0.5), "value: expected one value of int32, got 0.5"),
    ):
        with pytest.raises(TypeError, match=message):
            arrays.fill(out, value)


def test_iterators_without_an_end_take_num_items():
    squares = cupar.TransformIterator(cupar.CountingIterator(np.int64(0)), lambda i: i * i)
    assert arrays.gather(squares, np.array([2, -1]), num_items=5).tolist() == [4, 16]
    assert arrays.inner_product(squares, squares, num_items=3, like=X) == 17
