"""Recordings that would be other calls than those that were made."""

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("numba")

from cupar._jax import functions, program

F4 = np.dtype("f4")
ARRAY = ((6,), F4)


def other_shape(work, x):
    return [work.empty((5,), F4)]


def twice(work, x):
    return [work.empty((6,), F4)] * 2


def the_argument(work, x):
    return [x]


def another_time():
    axes = iter([False, True])
    return lambda work, x: functions._SORT.body(work, x, 0, next(axes), True)


@pytest.mark.parametrize(
    ("body", "outputs", "why"),
    [
        (other_shape, 1, r"results are \[\(\(5,\), dtype\('float32'\)\)\], expected \[\(\(6,\)"),
        (twice, 2, "a result is an argument, or another one"),
        (the_argument, 1, "a result is an argument, or another one"),
        (another_time(), 1, "it launched something else the second time"),
    ],
)
def test_what_is_no_program(body, outputs, why):
    with pytest.raises(RuntimeError, match=f"^cupar.jax: a call cannot be recorded: {why}"):
        program.words(body, (), [ARRAY], [ARRAY] * outputs, True)
