"""What merges refuse, and what they share."""

import numpy as np
import pytest

import cupar
from cupar import OpKind

CC = 90


def keys_of(n=4, dtype="i4"):
    return np.arange(n, dtype=dtype)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("i4", None, "i8", None, "i4"), "d_in_keys2: expected int32, the dtype of d_in_keys1, got int64"),
        (("f4", None, "f4", None, "i4"), "d_out_keys: expected float32, .* got int32"),
        (
            ("i4", "i4", "i4", None, "i4", "i4"),
            "d_in_items2: expected .*, since there is d_in_items1, got None",
        ),
        (
            ("i4", None, "i4", None, "i4", "i4"),
            "d_in_items1: expected .*, since there is d_out_items, got None",
        ),
        (("i4", "i4", "i4", "i4", "i4"), "d_out_items: expected .*, since there is d_in_items1, got None"),
        (("i4", "i4", "i4", "f4", "i4", "i4"), "d_in_items2: expected int32, the dtype of d_in_items1"),
        (("i4", None, None, None, "i4"), "d_in_keys2: expected .*, since there is d_in_keys1, got None"),
        (("i4", None, "i4", None, "i4", None, 5), "op: "),
    ],
)
def test_what_does_not_go_together_is_refused(given, message):
    with pytest.raises(TypeError, match=message):
        cupar.merge(*given, cc=CC)


def test_an_array_that_is_read_and_written_is_refused():
    a, b, out = keys_of(), keys_of(), np.zeros(8, "i4")
    merge = cupar.merge(a, a, b, b, out, out, cc="cpu")
    for wrong, name, other in (
        ((a, a, 2, b, b, 2, a, out), "d_out_keys", "d_in_keys1"),
        ((a, a, 2, b, b, 2, b, out), "d_out_keys", "d_in_keys2"),
        ((a, a, 2, b, b, 2, out, out), "d_out_items", "d_out_keys"),
    ):
        with pytest.raises(ValueError, match=f"{name}: expected an array of its own, got the one of {other}"):
            merge.run(*wrong)
    merge.run(a, a, 4, a, a, 4, out, np.zeros(8, "i4"))  # inputs may be one array
    assert out.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_outputs_have_room_for_both_ranges():
    a, b, out = keys_of(), keys_of(), np.zeros(7, "i4")
    merge = cupar.merge(a, None, b, None, out, cc="cpu")
    with pytest.raises(ValueError, match="d_out_keys: .*8.*7"):
        merge.run(a, None, 4, b, None, 4, out)
    with pytest.raises(ValueError, match="num_items2: expected 0 or more, got -1"):
        merge.run(a, None, 4, b, None, -1, out)
    with pytest.raises(TypeError, match="d_in_items1: this Merge was built without it"):
        merge.run(a, a, 3, b, None, 4, out)
    merge.run(a, None, 3, b, None, 4, out)
    assert out.tolist() == [0, 0, 1, 1, 2, 2, 3]


def test_another_comparison_of_the_same_types_is_linked(empty_cache):
    first = cupar.merge("i4", None, "i4", None, "i4", None, lambda a, b: a % 3 < b % 3, cc=CC)
    other = cupar.merge("i4", None, "i4", None, "i4", None, lambda a, b: a % 5 < b % 5, cc=CC)
    assert (first.build.origin, other.build.origin) == ("built", "linked")


def test_the_default_is_less(specified):
    default = specified(cupar.merge, "i4", None, "i4", None, "i4")
    assert default == specified(cupar.merge, "i4", None, "i4", None, "i4", None, OpKind.LESS)
    assert default == specified(cupar.merge, "i4", None, "i4", None, "i4", None, None)
