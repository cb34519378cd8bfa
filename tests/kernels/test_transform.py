"""Transforms: plans by size, and templates."""

import numpy as np
import pytest
from support.common import stored_properties
from support.plans import planned

import cupar
from cupar._compile import python_to_ltoir
from cupar._kernels.transform import TRANSFORM

SMS, OCCUPANCY = 132, 8
FLOAT32 = dict(threads=256, items=4, rows=2, item_bytes=4)
BYTES = dict(threads=256, items=16, rows=2, item_bytes=1)
CC = 90


def planner(facts):
    return planned(TRANSFORM, {**facts, "sms": SMS, "shared_memory": 232448}, lambda *_: OCCUPANCY)


def test_nothing_is_launched_for_nothing():
    assert planner(FLOAT32)(0).shape == ""


@pytest.mark.parametrize("facts", [FLOAT32, BYTES])
@pytest.mark.parametrize("n", [1, 1023, 1024, 1025, 2**20 + 3, 2**28, 2**31 + 1, 2**32, 2**33 + 5])
def test_tiles_hold_all_items(facts, n):
    plan = planner(facts)(n)
    size, tile, grid = plan.numbers
    assert (plan.nbytes, size) == (0, n)
    assert (grid - 1) * tile < n <= grid * tile
    row = facts["threads"] * facts["items"]
    assert tile % row == 0
    assert tile <= row * facts["rows"]
    assert grid < 2**31


def test_few_items_are_spread_over_the_gpu():
    plan = planner(FLOAT32)
    at_once = SMS * OCCUPANCY * 1024
    assert plan(at_once).numbers[1:] == (
        1024,
        SMS * OCCUPANCY,
    )  # as CUB: less for each thread, and all at once
    assert plan(at_once + 1).numbers[1] == 2048


def test_what_is_not_in_the_cache_is_loaded_one_vector_at_a_time():
    plan = planner(FLOAT32)
    assert plan(2**22).numbers[1] == 2048
    assert plan(2**22 + 1).numbers[1] == 1024


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize(
    "d_in, d_out, facts",
    [
        ("f4", "f4", (4, 2)),
        ("i1", "f8", (2, 8)),
        ("f8", "?", (2, 2)),
        ("c16", "c16", (1, 2)),
        (np.dtype([("a", "f4"), ("b", "f4"), ("c", "f4")]), "f4", (1, 2)),
        (cupar.CountingIterator(np.int32(0)), "f4", (4, 2)),
        ("f2", cupar.TransformOutputIterator("f4", lambda a: a + 1, np.float32), (4, 4)),
        (cupar.ReverseIterator("f4"), cupar.ReverseIterator("f4"), (1, 4)),
    ],
)
def test_vectors_are_as_wide_as_the_largest_items_allow(d_in, d_out, facts):
    operator = (lambda a: a.a) if getattr(d_in, "names", None) else (lambda a: a)
    built = cupar.unary_transform(d_in, d_out, operator, cc=CC)
    found = stored_properties(built)
    assert (found["items"], found["rows"]) == facts
    assert built.build.cubin_size < 20_000


@pytest.mark.slow
@pytest.mark.parametrize("cc", [80, 100])
def test_two_inputs_of_several_types(cc, monkeypatch):
    monkeypatch.setattr(python_to_ltoir, "compile_operator", None)  # complex numbers need no numba
    built = cupar.binary_transform("f4", "c8", "c16", cupar.OpKind.MULTIPLIES, cc=cc)
    assert built.build.cubin_size
