"""Reductions by index: what is launched for which sizes, and what their kernels hold."""

import numpy as np
import pytest
from support import plans
from support.disassembly import kernels, spills_or_calls

import cupar
from cupar import Determinism, OpKind
from cupar._ahead.batch import collected
from cupar._kernels.reduce_by_index import REDUCE_BY_INDEX, ReduceByIndexProblem

CC, SMS, MOST = 90, 132, 232_448
ZERO = np.zeros(1, "f4")


def planned(n, bins, value=4, has_identity=True, atomic=0):
    entry = 2 * value if has_identity else 3 * value
    given = {"threads": 256, "few_threads": 128, "block_threads": 1024, "batch": 16, "value_size": value}
    given |= {"slot_size": value if has_identity else 2 * value, "entry_size": entry}
    given |= {"has_identity": has_identity, "atomic_kind": atomic, "sms": SMS, "shared_memory": MOST}
    found = plans.planned(
        REDUCE_BY_INDEX, given, lambda _, threads, shared: min(2048 // threads, 233_472 // (shared + 1024))
    )(ReduceByIndexProblem(n, bins))
    names = ("n", "bins", "grid", "parts", "shared", "combine_grid", "combine_shared", "rows", "ranges")
    return found.shape, found.nbytes, dict(zip(names, found.numbers, strict=False))


@pytest.mark.parametrize(
    ("n", "bins", "given", "shape", "resident"),
    [
        (2**26, 1, {}, "threads", 8),
        (2**26, 64, {}, "threads", 3),
        (2**26, 226, {}, "threads", 1),
        (2**26, 227, {}, "few threads", 1),
        (2**26, 453, {}, "few threads", 1),
        (2**26, 454, {}, "warps", 7),
        (2**26, 3632, {}, "warps", 1),
        (2**26, 3633, {}, "few warps", 1),
        (2**26, 7264, {}, "few warps", 1),
        (2**26, 64, {"has_identity": False}, "threads", 3),
        (2**26, 439, {"has_identity": False}, "few threads", 1),
        (2**26, 2421, {"has_identity": False}, "warps", 1),
        (2**26, 40, {"value": 40}, "few threads", 1),
        (2**26, 453, {"atomic": 2}, "few threads", 1),
        (2**26, 454, {"atomic": 2}, "block", 2),
        (2**26, 58_112, {"atomic": 2}, "block", 1),
        (2**26, 3632, {"atomic": 1}, "warps", 1),
        (2**26, 3633, {"atomic": 1}, "block", 2),
        (0, 64, {}, "threads alone", 0),
        (4096, 64, {}, "threads alone", 0),
        (100, 300, {}, "few threads alone", 0),
        (100, 3000, {"atomic": 2}, "block alone", 0),
    ],
)
def test_tables(n, bins, given, shape, resident):
    found, nbytes, numbers = planned(n, bins, **given)
    assert found == shape
    assert 0 < numbers["shared"] <= MOST
    assert numbers["grid"] == numbers["parts"] == (resident * SMS or 1)
    slot = given.get("value", 4) * (1 if given.get("has_identity", True) else 2)
    assert nbytes == (numbers["parts"] * bins * slot if resident else 0)


@pytest.mark.parametrize("bins", [7265, 20_000, 100_000, 7264 * 7269 + 1, 60_000_001, 2**31 - 1])
@pytest.mark.parametrize("n", [0, 5000, 2**26, 2**40])
def test_ranges_hold_all_bins(n, bins):
    found, nbytes, numbers = planned(n, bins)
    rows, ranges, parts = numbers["rows"], numbers["ranges"], numbers["parts"]
    assert found == ("few warps" if parts > 1 else "few warps alone")
    assert (ranges - 1) * rows < bins <= ranges * rows
    assert numbers["grid"] == ranges * parts and numbers["shared"] == rows * 32 <= MOST
    assert nbytes == (parts * bins * 4 if parts > 1 else 0)


def test_atomic_operations_are_for_many_bins():
    assert planned(2**26, 58_113, atomic=2)[:2] == ("atomic", 0)
    assert planned(0, 2**31 - 1, atomic=2)[:2] == ("atomic", 0)
    assert planned(2**26, 0, atomic=2)[0] == ""


ATOMIC, TABLES = "cupar_reduce_by_index_atomic", "cupar_reduce_by_index_threads"


def built(dtype, op, determinism):
    init = np.zeros(1, dtype)
    return cupar.reduce_by_index(dtype, "i4", dtype, op, init, determinism=determinism, cc=CC)


@pytest.mark.parametrize(
    ("dtype", "op", "determinism", "is_atomic"),
    [
        ("i8", OpKind.MINIMUM, Determinism.RUN_TO_RUN, True),
        ("f4", OpKind.PLUS, Determinism.RUN_TO_RUN, False),
        ("f4", OpKind.PLUS, Determinism.NOT_GUARANTEED, True),
        ("f4", OpKind.MAXIMUM, Determinism.NOT_GUARANTEED, False),
        ("i2", OpKind.PLUS, Determinism.NOT_GUARANTEED, False),
    ],
)
def test_which_are_atomic(dtype, op, determinism, is_atomic):
    (spec,) = collected(lambda: built(dtype, op, determinism), CC)
    found = {each.kernel for shape in REDUCE_BY_INDEX.shapes(spec).values() for each in shape.launches}
    assert TABLES in found and (ATOMIC in found) == is_atomic


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "op", "is_atomic"), [("f4", OpKind.MAXIMUM, False), ("f4", OpKind.PLUS, True)]
)
def test_kernels_neither_spill_nor_call(dtype, op, is_atomic, tmp_path):
    found = built(dtype, op, Determinism.NOT_GUARANTEED)
    assert (ATOMIC in kernels(found, tmp_path)) == is_atomic
    assert spills_or_calls(found, tmp_path) == []
