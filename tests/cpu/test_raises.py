"""What raises in an operator on the CPU makes the call raise, which names the operator."""

import numpy as np
import pytest

import cupar
from cupar import OpKind

MANY = 300_000  # items, which several threads share
TABLE = (1, 2, 3)


def looked_up(a):
    return TABLE[a]


def holds(a):
    return TABLE[a] > 0


def added(a, b):
    return a + TABLE[b] - 1


def less(a, b):
    return TABLE[a] < TABLE[b]


def equal(a, b):
    return TABLE[a] == TABLE[b]


def calls():
    """Yield by name what makes each call, of items that are places in a table, and the operator."""
    x, out, counts = np.zeros(MANY, "i4"), np.zeros(MANY, "i8"), np.zeros(2, "i8")
    offsets = np.array([0, MANY // 2, MANY])
    with cupar.device("cpu"):
        read = cupar.TransformIterator(x, looked_up)
        yield (
            "iterator",
            looked_up,
            cupar.reduce_into(read, counts, OpKind.PLUS, 0),
            (read, counts, MANY, 0),
            x,
        )
        made = cupar.reduce_into(read, counts, lambda a, b: max(a, b) + 0, 0)
        yield "both", looked_up, made, (read, counts, MANY, 0), x
        made = cupar.unary_transform(x, out, looked_up)
        yield "transform", looked_up, made, (x, out, MANY), x
        made = cupar.reduce_into(x, counts, added, 0)
        yield "reduce", added, made, (x, counts, MANY, 0), x
        yield "scan", added, cupar.inclusive_scan(x, out, added), (x, out, MANY), x
        yield "select", holds, cupar.select(x, out, counts, holds), (x, out, counts, MANY), x
        made = cupar.merge_sort(x, None, out.view("i4"), None, less)
        yield "sort", less, made, (x, None, out.view("i4"), None, MANY), x
        made = cupar.unique_by_key(x, x, out, out, counts, equal)
        yield "unique", equal, made, (x, x, out, out, counts, MANY), x
        made = cupar.segmented_reduce(x, counts, offsets[:-1], offsets[1:], added, 0)
        yield "segments", added, made, (x, counts, 2, offsets[:-1], offsets[1:], 0), x


def test_the_call_raises_wherever_the_item_is():
    for name, operator, made, arguments, items in calls():
        for place in (1, MANY // 2, MANY - 1):
            items[place] = 7
            with pytest.raises(RuntimeError) as caught:
                made.run(*arguments)
            said = str(caught.value)
            assert f"operator {operator.__name__}" in said, name
            assert said.endswith("raised IndexError: tuple index out of range"), said
            assert "\n" not in said
            items[place] = 0
        made.run(*arguments)  # and nothing is left of it
