"""A bounded table that keeps frequently used values."""

import pytest

from cupar._base.data import Recent


def asked(table, key):
    """Ask as its users do; return whether it was there."""
    try:
        return table[key] is not None
    except KeyError:
        table[key] = key + 1
        return False


@pytest.mark.parametrize("hot", [1, 3, 8])
def test_what_is_asked_for_often_stays(hot):
    table = Recent(8)
    often, once = range(hot), iter(range(100, 1000))
    for key in often:
        asked(table, key)
    for _ in range(50):
        assert all(asked(table, key) for key in often)
        assert not asked(table, next(once))
        assert len(table) <= 8 and len(table.all()) <= 16


def test_the_last_ones_are_there_and_twice_as_many_at_most():
    table = Recent(4)
    for key in range(20):
        table[key] = str(key)
        assert [table.all().get(each) for each in range(max(0, key - 3), key + 1)] == [
            str(each) for each in range(max(0, key - 3), key + 1)
        ]
    assert len(table.all()) <= 8
    with pytest.raises(KeyError):
        table[0]
    with pytest.raises(TypeError, match="unhashable"):
        table[[]]


def test_setdefault_finds_what_is_in_either_generation():
    table = Recent(2)
    first = table.setdefault("a", [])
    for key in "bcd":
        assert table.setdefault(key, []) == []
        assert table.setdefault("a", [1]) is first


def test_cleared():
    table = Recent(2)
    for key in range(4):
        table[key] = key
    table.clear()
    assert not table and not table.all()
    with pytest.raises(KeyError):
        table[1]
