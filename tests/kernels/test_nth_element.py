"""N-th elements: kernels by length, temporary storage, and the machine code of kernels."""

import numpy as np
import pytest
from support.disassembly import kernels, spills_or_calls
from support.plans import Plan, planned

import cupar
from cupar._kernels.nth_element import NTH_ELEMENT, NthElementProblem

CC, SMS, RUNNING = 90, 132, 4
TILE, WARP, SEGMENT = 8192, 1024, 112
BLOCKS = SMS * RUNNING
NUMBERS = (
    *("n", "size", "rank", "queue", "segment_of", "bins", "copies"),
    *("most_segments", "most_tiles", "tiles_grid", "grid"),
)
plan = planned(
    NTH_ELEMENT,
    {"threads": 512, "tile": TILE, "warp": WARP, "segment_size": SEGMENT, "key_size": 4, "sms": SMS}
    | {"shared_memory": 232448},
    lambda *_: RUNNING,
)


def of_rows(rows, length, rank=0):
    return plan(NthElementProblem(rows * length, rows, length, rank))


@pytest.mark.parametrize("problem", [(0, 0, 0, 0), (0, 5, 0, 0), (9, 0, 0, 0), (0, 0, 3, 1)])
def test_of_nothing(problem):
    assert plan(NthElementProblem(*problem)) == Plan("", 0, ())


@pytest.mark.parametrize(
    ("length", "rows", "name", "grid"),
    [
        (1, 9, "few", 3),
        (128, 2**33 - 1, "few", 2**31 - 1),
        (129, 4, "warp", 1),
        (WARP, 5, "warp", 2),
        (WARP + 1, 7, "team", 7),
        (4 * WARP, 10**6, "team", 10**6),
        (4 * WARP + 1, 7, "rows", 7),
        (1 << 14, 1, "rows", 1),
        ((1 << 14) + 1, SMS, "rows", SMS),
        (1 << 20, 10**6, "rows", BLOCKS),
    ],
)
def test_short_and_many_rows_are_one_kernel(length, rows, name, grid):
    assert of_rows(rows, length, 1) == Plan(name, 0, (rows, length, 1, grid))


@pytest.mark.parametrize(
    ("length", "rows"), [((1 << 14) + 1, 1), ((1 << 14) + 1, SMS - 1), (2**40, 1), (2**32, SMS)]
)
def test_few_long_rows_are_shared(length, rows):
    found = of_rows(rows, length, 7)
    numbers = dict(zip(NUMBERS, found.numbers, strict=True))
    tiles = rows * length // TILE + rows
    assert found.shape == "long"
    assert (numbers["most_segments"], numbers["most_tiles"]) == (rows, tiles)
    assert numbers["grid"] == min(tiles, BLOCKS)
    ends = [*(numbers[name] for name in ("queue", "segment_of", "bins", "copies")), found.nbytes]
    for begin, end, size in zip(
        ends,
        ends[1:],
        (SEGMENT * rows, 4 * tiles, 8 * 2048 * rows, 4 * (rows * length // 8 + 1)),
        strict=False,
    ):
        assert begin + size <= end < begin + size + 256


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_kernels_do_not_spill(tmp_path):
    of_segments = cupar.segmented_nth_element("f4", "f4", "f4", "i4", "i8", "i8", nans="propagate", cc=CC)
    names = ("few", "warp", "team", "rows", "list", "init", "tiles", "digit", "behind")
    assert sorted(kernels(of_segments, tmp_path)) == sorted(f"cupar_nth_element_{name}" for name in names)
    assert spills_or_calls(of_segments, tmp_path) == []
    of_rows = cupar.segmented_nth_element("i8", "i8", cc=CC)
    assert "cupar_nth_element_behind" not in kernels(of_rows, tmp_path)
    assert spills_or_calls(of_rows, tmp_path) == []


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: cupar.segmented_nth_element("c8", "c8", cc=CC), TypeError, "d_in: complex64 has no order"),
        (lambda: cupar.segmented_nth_element("f4", "f8", cc=CC), TypeError, "d_out: expected float32"),
        (
            lambda: cupar.segmented_nth_element("f4", "f4", "i4", cc=CC),
            TypeError,
            "d_out_next: expected float32",
        ),
        (
            lambda: cupar.segmented_nth_element("f4", "f4", None, "i4", cc=CC),
            TypeError,
            "d_ranks: expected None, as there are no offsets",
        ),
        (
            lambda: cupar.segmented_nth_element("f4", "f4", None, None, "i4", "i4", cc=CC),
            TypeError,
            "d_ranks: expected integers, as there are offsets, got None",
        ),
        (
            lambda: cupar.segmented_nth_element("f4", "f4", None, "f4", "i4", "i4", cc=CC),
            TypeError,
            "d_ranks: expected integers",
        ),
        (
            lambda: cupar.segmented_nth_element("f4", "f4", nans="first", cc=CC),
            ValueError,
            "nans: expected 'last' or 'propagate', got 'first'",
        ),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_calls_are_checked():
    x, out = np.arange(12.0).reshape(3, 4), np.zeros(3)
    find = cupar.segmented_nth_element(x, out, cc="cpu")
    for n, message in ((4, "n: expected less than segment_size, 4, got 4"), (-1, "n: expected 0 or more")):
        with pytest.raises(ValueError, match=message):
            find.run(x, out, n=n)
    with pytest.raises(TypeError, match="n: expected an integer, got NoneType"):
        find.run(x, out)
    with pytest.raises(ValueError, match="d_out: expected an array of its own, got the one of d_in"):
        find.run(x, x, n=0)
    offsets = np.array([0, 4, 8])
    find = cupar.segmented_nth_element(x, out, None, offsets, offsets, offsets, cc="cpu")
    with pytest.raises(ValueError, match="n: expected None, as d_ranks has them"):
        find.run(x, out, None, 1, 12, 3, offsets, offsets, offsets)
    with pytest.raises(ValueError, match="end_offsets_in"):
        find.run(x, out, None, None, 12, 3, offsets, offsets, offsets + 9)
