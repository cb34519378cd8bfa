"""The tokens of initial values that are Python's numbers: equal where the same dtypes hold the numbers."""

import random

import ml_dtypes
import numpy as np
import pytest

import cupar
from cupar._arguments import initial
from cupar._obtain.factory_cache import _NUMBERS

DTYPES = [
    np.dtype(each)
    for each in ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]
]
DTYPES.append(np.dtype(ml_dtypes.bfloat16))
# Where float16, float32 and bfloat16 become infinite.
ENDS = [2.0**bits * (1 - 2.0**-p) for bits, p in ((16, 12), (128, 25), (128, 9))]


def numbers(cls):
    """Return numbers about where dtypes end, and others."""
    draw = random.Random(45)
    powers = [2**bits + more for bits in range(130) for more in (-2, -1, 0, 1)] + [2**1024, 2**1024 - 2**970]
    if cls is int:
        ends = [int(end) + more for end in ENDS for more in (-1, 0, 1, 2**110)]
        found = [*powers, *ends, 65504, 65505, *(draw.getrandbits(draw.randint(1, 1100)) for _ in range(100))]
    else:
        ends = [np.nextafter(end, way).item() for end in ENDS for way in (0.0, end, np.inf)]
        ends += [end * (1 + part) for end in ENDS for part in (-1e-9, 1e-9, -1e-4, 1e-4)]
        found = [0.0, -0.0, 5e-324, np.inf, np.nan, *map(float, powers[:-2]), 65504.0, 65519.0, *ends]
        found += [draw.uniform(-1, 1) * 2.0 ** draw.randint(-1000, 1000) for _ in range(100)]
    found += [-each for each in found]
    return [complex(*each) for each in zip(found, found[::-1], strict=True)] if cls is complex else found


def holds(number):
    """Return the dtypes that hold a number."""
    found = []
    for dtype in DTYPES:
        try:
            initial.converted(number, dtype)
        except (TypeError, ValueError):
            continue
        found.append(dtype)
    return found


@pytest.mark.parametrize("cls", [int, float, complex])
def test_numbers_of_a_token_are_held_by_the_same_dtypes(cls):
    known = {}
    for number in numbers(cls):
        held = holds(number)
        names = {"v": number, "_reach": initial.reach}
        for token in (initial.reach(number), eval(_NUMBERS[cls].format(v="v"), names)):
            assert known.setdefault((type(token), token), held) == held, number
    assert cls is complex or len(known) < 1000


LOOPS = {"f4": (0.5, -0.0, 1e30, -7.0), "i2": (3, 100, 0, 9), "c8": (1j, -1j, 2.0 + 1j, 0.5j)}


@pytest.mark.parametrize("dtype", LOOPS)
@pytest.mark.parametrize("factory", [cupar.reduce_into, cupar.exclusive_scan])
def test_a_loop_over_initial_values_asks_a_few_times(empty_cache, factory, dtype):
    made = [factory(dtype, dtype, cupar.OpKind.PLUS, each, cc=90) for each in LOOPS[dtype] * 3]
    assert len({id(each) for each in made[-4:]}) <= 2


@pytest.mark.parametrize("number", [300, -1, 2.0, 1j])
def test_a_number_that_the_dtype_does_not_hold_is_refused_after_others(number):
    for _ in range(3):
        cupar.reduce_into("u1", "u1", cupar.OpKind.PLUS, 7, cc=90)
    with pytest.raises((TypeError, ValueError), match="h_init"):
        cupar.reduce_into("u1", "u1", cupar.OpKind.PLUS, number, cc=90)


def outcome(function, *given):
    """Return a function's result, or the class of its error."""
    try:
        return function(*given)
    except ValueError as error:
        return type(error)


@pytest.mark.parametrize("dtype", [each for each in DTYPES if each.kind in "iuf"], ids=str)
def test_calls_read_numbers_as_they_are_converted(dtype):
    with cupar.device("cpu"):
        made = cupar.reduce_into(dtype, dtype, cupar.OpKind.MAXIMUM, dtype.type(0))
        read, arrays = made._call_reader(None), (np.zeros(1, dtype), np.zeros(1, dtype), 1)
        for number in [*numbers(int)[::3], *(numbers(float)[::3] if dtype.kind == "f" else [])]:
            found = outcome(lambda each: read((*arrays, each), None)[-1], number)
            assert found == outcome(initial.packed, number, dtype), number
