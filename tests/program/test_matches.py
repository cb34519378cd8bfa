"""Calls that are seen to be like the one before have the same key, and others are not taken for them."""

import enum
import operator

import numpy as np
import pytest

from cupar import arrays
from cupar._program import known, render


class Color(enum.IntEnum):
    RED = 1


def body(work, x, y, *others):
    raise AssertionError("never called")


def first(a, b):
    return a


def second(a, b):
    return b


F4 = np.zeros(3, "f4")
VALUES = [
    *(None, True, False, 0, 1, -1, 1 << 70, "sum", "".join(["s", "um"])),
    *(0.0, -0.0, 1.0, float("nan"), 1j, np.float32(1), np.float64(1), np.int64(1), np.bool_(True)),
    *(first, second, lambda a, b: a, operator.add, np.add, np.dtype("f4"), np.float32, Color.RED),
    *((), (1,), (True,), [1], (1.0,), (1, (2,)), (first,), np.arange(3), np.arange(3.0)),
    *(F4, F4[:2], F4[::2], F4.reshape(3, 1), F4.astype("f8"), (F4, F4), (F4, F4[::2])),
]


def read(given):
    """Return the reader of arguments behind two inputs, and their key."""
    classes = (body, 2, *map(type, given))
    texts = [known._token(cls, i < 2) for i, cls in enumerate(classes[2:])]
    reader = known._READERS.setdefault(classes, known._Reader(texts))
    return reader, reader.read(given)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_arguments_match_those_of_an_equal_key_alone(place):
    made = []
    for value in VALUES:
        given = [F4, None, 7]
        given[place] = value
        made.append((given, *read(tuple(given))))
    for given, reader, (key, found, operators) in made:
        body = render.Program(None, "return values, operators", {})
        match = render.attempts(reader.match(tuple(given)), [body])
        assert [*map(id, match(tuple(given))[0])] == [*map(id, found)]
        assert match(tuple(given))[1] == operators
        for other, _, (other_key, its, functions) in made:
            matched = match(tuple(other))
            if matched is not None:
                assert other_key == key
                assert [*map(id, matched[0])] == [*map(id, its)] and matched[1] == functions
            elif other_key == key:  # an atom that is equal, and another object
                assert any(type(each) in (int, str) for each in given)


def test_calls_that_differ_in_turns_have_programs_of_their_own():
    x = np.arange(6.0).reshape(2, 3)
    for _ in range(5):
        for axis in (0, 1, None):
            for each in (x, x.astype("f4"), np.asfortranarray(x)):
                np.testing.assert_array_equal(arrays.sum(each, axis=axis), each.sum(axis))


def test_a_few_kinds_of_calls_are_known_at_once():
    calls = [lambda x=np.zeros(5, dtype): arrays.sum(x) for dtype in ("f4", "f8", "i8", "i4", "u1")]
    for made in (calls[:4], calls):
        for _ in range(4):
            for call in made:
                assert call() == 0
        (recent,) = known._RECENT.all().values()
        assert len(recent) == known._MOST_RECENT


def test_an_operator_with_the_same_name_is_another():
    def of(number):
        return lambda a: a + number

    for number in (1, 2, 1, 3):
        for _ in range(3):
            assert arrays.transform(of(number), np.zeros(2)).tolist() == [number] * 2


def test_clear_forgets_what_calls_matched():
    import cupar

    for _ in range(4):
        arrays.sum(F4)
    assert known._RECENT.all()
    cupar.cache.clear(disk=False)
    assert not known._RECENT.all()
