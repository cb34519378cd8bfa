"""What sets refuse, and what they share."""

import numpy as np
import pytest

import cupar
from cupar import OpKind

CC = 90


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("i4", None, "i8", None, "i4", None, "i8"), "d_in_keys2: expected int32, the dtype of d_in_keys1"),
        (("f4", None, "f4", None, "i4", None, "i8"), "d_out_keys: expected float32, .* got int32"),
        (
            ("i4", "i4", "i4", None, "i4", "i4", "i8"),
            "d_in_items2: expected .*, since there is d_in_items1, got None",
        ),
        (
            ("i4", None, "i4", None, "i4", "i4", "i8"),
            "d_in_items1: expected .*, since there is d_out_items, got None",
        ),
        (("i4", "i4", "i4", "f4", "i4", "i4", "i8"), "d_in_items2: expected int32, the dtype of d_in_items1"),
        (
            ("i4", "f4", "i4", "f4", "i4", "i4", "i8"),
            "d_out_items: expected float32, the dtype of d_in_items1",
        ),
        (
            ("i4", None, "i4", None, "i4", None, "i2"),
            "d_out_num_selected: expected integers of at least 4 bytes",
        ),
        (("i4", None, None, None, "i4", None, "i8"), "d_in_keys2: expected a device array"),
        (("i4", None, "i4", None, "i4", None, "i8", 5), "op: "),
    ],
)
def test_what_does_not_go_together_is_refused(given, message):
    with pytest.raises(TypeError, match=message):
        cupar.set_union(*given, cc=CC)


@pytest.mark.parametrize("name", ["set_intersection", "set_difference"])
def test_what_comes_from_the_first_range_alone_has_no_items_of_the_second(name):
    factory = getattr(cupar, name)
    with pytest.raises(
        TypeError, match=f"d_in_items2: expected None, as {name} takes nothing from the second"
    ):
        factory("i4", "i4", "i4", "i4", "i4", "i4", "i8", cc=CC)
    with pytest.raises(TypeError, match="d_out_items: expected .*, since there is d_in_items1, got None"):
        factory("i4", "i4", "i4", None, "i4", None, "i8", cc=CC)


def test_calls_are_checked():
    a, b, out, count = np.arange(4), np.arange(4), np.zeros(8, int), np.zeros(1, int)
    union = cupar.set_union(a, None, b, None, out, None, count, cc="cpu")
    with pytest.raises(ValueError, match="num_items2: expected 0 or more, got -1"):
        union.run(a, None, 4, b, None, -1, out, None, count)
    with pytest.raises(ValueError, match=r"d_in_keys1: .*5.*4"):
        union.run(a, None, 5, b, None, 4, out, None, count)
    with pytest.raises(TypeError, match="d_in_items1: this SetOperation was built without it"):
        union.run(a, a, 4, b, None, 4, out, None, count)
    for wrong, name, other in (
        ((a, None, 2, b, None, 2, a, None, count), "d_out_keys", "d_in_keys1"),
        ((a, None, 2, b, None, 2, b, None, count), "d_out_keys", "d_in_keys2"),
        ((a, None, 2, b, None, 2, out, None, out[:1]), "d_out_num_selected", "d_out_keys"),
    ):
        with pytest.raises(ValueError, match=f"{name}: expected an array of its own, got the one of {other}"):
            union.run(*wrong)
    union.run(a, None, 4, a, None, 4, out, None, count)  # inputs may be one array
    assert out[: count[0]].tolist() == [0, 1, 2, 3]


def test_another_comparison_of_the_same_types_is_linked(empty_cache):
    keys = "i4", None, "i4", None, "i4", None, "i8"
    first = cupar.set_difference(*keys, lambda a, b: a % 3 < b % 3, cc=CC)
    other = cupar.set_difference(*keys, lambda a, b: a % 5 < b % 5, cc=CC)
    assert (first.build.origin, other.build.origin) == ("built", "linked")


def test_the_default_is_less_and_each_has_its_own_build(specified):
    keys = "i4", None, "i4", None, "i4", None, "i8"
    default = specified(cupar.set_union, *keys)
    assert (
        default == specified(cupar.set_union, *keys, OpKind.LESS) == specified(cupar.set_union, *keys, None)
    )
    assert default != specified(cupar.set_symmetric_difference, *keys)


@pytest.mark.parametrize(
    "name", ["set_union", "set_intersection", "set_difference", "set_symmetric_difference"]
)
@pytest.mark.parametrize("op", [OpKind.LESS, OpKind.LESS_EQUAL])
def test_sets_of_what_is_not_sorted_end_on_the_cpu(name, op, rng, monkeypatch):
    """In the space of sorted ones: cuts of parts go back and forth, or neither key is first."""
    monkeypatch.setattr("cupar._cpu.schedules._LEAST", 4)
    algorithm = getattr(cupar, name)("f8", None, "f8", None, "f8", None, "i8", op, cc="cpu")
    for n, m in rng.integers(0, 200, (60, 2)).tolist():
        room = {"set_intersection": min(n, m), "set_difference": n}.get(name, n + m)
        a, b = (np.where(rng.random(k) < 0.1, np.nan, rng.integers(0, 20, k)) for k in (n, m))
        out, count = np.full(n + m + 70, -1.0), np.zeros(1, np.int64)
        algorithm.run(a, None, n, b, None, m, out, None, count)
        assert 0 <= count[0] <= room
        assert np.all(out[room:] == -1)
