"""Scans and reductions along columns: plans by shape, and kernels without spills."""

import numpy as np
import pytest
from support.plans import planned

import cupar
from cupar._kernels.columns import COLUMN_REDUCE, COLUMN_SCAN, ColumnsProblem

SMS = 132
DEVICE = dict(sms=SMS, shared_memory=232448)
SCANS = dict(
    threads=128, tall_threads=1024, tall_rows=16, split_threads=256, split_rows=32, known_size=8, many=192
)
LARGE = dict(SCANS, tall_threads=0, split_threads=0)
REDUCTIONS = dict(threads=256, rows=16, may_stack=1, accum_size=4, has_init=0)
PLUS = cupar.OpKind.PLUS
PAIR = np.dtype([("a", "f8"), ("b", "f8")])

SHAPES = [
    *((1, 4096, 4096), (1, 16_384, 1024), (1, 1000, 16_777), (1, 2**18, 64), (64, 512, 512), (2**16, 16, 16)),
    *((2**12, 64, 64), (1, 2**20, 16), (1, 100, 167_772), (4, 4096, 1024), (1, 1, 1), (1, 2**33, 1)),
    *((3, 5, 7), (2**31, 2, 3), (1, 2**40, 5), (1, 257, 33), (1, 3, 40), (1, 2**45, 2)),
]


def shaped(outer, length, inner):
    return ColumnsProblem(length, inner, outer * inner, outer * length * inner)


def scan_of(shape, facts=SCANS):
    plan = planned(COLUMN_SCAN, {**facts, **DEVICE}, lambda *_: 2)(shaped(*shape))
    names = ("length", "inner", "columns", "grid", "log_width", "groups", "states", "states_of_group", "zero")
    return plan, dict(zip(names, plan.numbers, strict=False))


def reduction_of(shape, facts=REDUCTIONS):
    plan = planned(COLUMN_REDUCE, {**facts, **DEVICE}, lambda *_: 5)(shaped(*shape))
    names = ("length", "inner", "columns", "grid", "log_width", "stacked", "blocks", "strip_rows", "groups")
    return plan, dict(zip((*names, "parts", "strip_parts"), plan.numbers, strict=False))


def test_nothing_to_do():
    for shape in [(0, 3, 4), (3, 0, 4), (3, 4, 0)]:
        assert scan_of(shape)[0].shape == reduction_of(shape)[0].shape == ""


def test_columns_without_items_get_the_initial_value():
    facts = dict(REDUCTIONS, has_init=1)
    assert reduction_of((3, 0, 4), facts)[0].shape == "whole"
    assert reduction_of((0, 3, 4), facts)[0].shape == reduction_of((3, 4, 0), facts)[0].shape == ""


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((64, 512, 512), "threads"),
        ((2**16, 16, 16), "threads"),
        ((1, 100, 167_772), "threads"),
        ((1, 4096, 4096), "tall"),
        ((4, 4096, 1024), "tall"),
        ((1, 1000, 16_777), "block"),
        ((1, 100, 40), "tall"),
        ((1, 100, 5), "block"),
        ((1, 16_384, 1024), "split"),
        ((1, 2**18, 64), "split"),
        ((1, 2**20, 16), "split"),
    ],
)
def test_how_scans_are_done(shape, expected):
    assert scan_of(shape)[0].shape == expected
    assert scan_of(shape, LARGE)[0].shape == "threads"


@pytest.mark.parametrize("shape", SHAPES)
def test_scans_have_all_columns_and_room_for_all_tiles(shape):
    plan, given = scan_of(shape)
    outer, length, inner = shape
    columns = outer * inner
    assert (given["length"], given["inner"], given["columns"]) == (length, inner, columns)
    assert 0 < given["grid"] < 2**31
    if plan.shape == "threads":
        assert (given["grid"] - 1) * 128 < columns <= given["grid"] * 128
        assert plan.nbytes == 0
        return
    width, groups = 1 << given.get("log_width", 5), given.get("groups", given["grid"])
    assert width <= 32
    assert (groups - 1) * width < columns <= groups * width
    if plan.shape != "split":
        assert given["grid"] == groups
        assert plan.nbytes == 0
        return
    tiles = -(-length // (32 * 256 // width))
    assert given["grid"] % groups == 0
    assert 2 <= given["grid"] // groups <= min(tiles, 2 * SMS // groups)
    assert given["states"] >= 4 * groups
    assert given["states_of_group"] == tiles * width
    assert given["states"] + 8 * groups * given["states_of_group"] <= plan.nbytes == 2048 * given["zero"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("may_stack", [0, 1])
def test_reductions_take_each_row_once(shape, may_stack):
    plan, given = reduction_of(shape, dict(REDUCTIONS, may_stack=may_stack))
    outer, length, inner = shape
    width, stacked, strip_rows = 1 << given["log_width"], given["stacked"], given["strip_rows"]
    groups, parts = -(-outer * inner // width), given.get("parts", 1)
    assert (given["length"], given["inner"], given["columns"]) == (length, inner, outer * inner)
    assert stacked in ((1, 2, 4, 8) if may_stack else (1,))
    rows_of_part = strip_rows * stacked * (32 // width)
    assert (parts - 1) * rows_of_part < length <= parts * rows_of_part
    assert given["blocks"] == -(-groups // (8 // stacked))
    assert given["grid"] == given["blocks"] * parts < 2**31
    assert strip_rows >= 16 or (stacked == parts == 1) or length <= 16 * stacked * (32 // width) * parts
    assert (plan.shape == "parts") == (parts > 1)
    if parts > 1:
        assert given["groups"] == groups
        assert given["strip_parts"] * 8 * (32 // width) >= parts
        assert plan.nbytes >= 4 * parts * outer * inner
        assert parts * groups * stacked <= 2 * (2 * 5 * 8 * SMS + 8 * groups)
    else:
        assert plan.nbytes == 0


def composed(a, b):
    return a


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "cc"), [("i1", 75), ("f4", 90), ("f8", 120), (PAIR, 90)])
def test_no_kernel_spills(dtype, cc):
    op = composed if dtype is PAIR else PLUS
    for made in (
        cupar.inclusive_column_scan(dtype, dtype, op, cc=cc),
        cupar.column_reduce(dtype, dtype, op, cc=cc),
    ):
        for kernel, found in made.build.resources().items():
            assert found.local == 0, (kernel, found)


def test_values_too_large_for_shared_memory_build():
    large = np.dtype([(f"f{i}", "c16") for i in range(50)])
    for made in (
        cupar.exclusive_column_scan(large, large, composed, np.zeros(1, large), cc=90),
        cupar.column_reduce(large, large, composed, cc=90),
    ):
        assert made.build.origin == "built"
