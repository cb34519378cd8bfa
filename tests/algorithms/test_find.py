"""What searches for the first item refuse, and what they share."""

import numpy as np
import pytest

import cupar

CC = 90


@pytest.mark.parametrize(
    ("given", "named", "error", "message"),
    [
        (("f4", "f4", abs), {}, TypeError, "d_out: expected integers of at least 4 bytes, got float32"),
        (("f4", "i2", abs), {}, TypeError, "d_out: expected integers of at least 4 bytes, got int16"),
        (("f4", "i8", 5), {}, TypeError, "cond: "),
        (("f4", "i8", lambda a, b: a), {}, TypeError, "cond: "),
        (("f4", "i8", abs), {"none": 0}, ValueError, "none: expected -1, or None .*, got 0"),
        (("f4", "i8", abs), {"none": True}, ValueError, "none: expected -1"),
    ],
)
def test_what_does_not_go_together_is_refused(given, named, error, message):
    with pytest.raises(error, match=message):
        cupar.find_if(*given, **named, cc=CC)


def test_counts_are_checked():
    x, out = np.zeros(4, "f4"), np.zeros(1, "i8")
    find = cupar.find_if(x, out, lambda a: a > 0, cc="cpu")
    with pytest.raises(ValueError, match="d_in: needs at least 5 items, got an array of 4"):
        find.run(x, out, 5)
    with pytest.raises(ValueError, match="num_items: expected 0 or more, got -1"):
        find.run(x, out, -1)


def test_another_predicate_of_the_same_type_is_linked(empty_cache):
    first = cupar.find_if("i4", "i8", lambda a: a > 3, cc=CC)
    other = cupar.find_if("i4", "i8", lambda a: a > 5, cc=CC)
    assert (first.build.origin, other.build.origin) == ("built", "linked")
