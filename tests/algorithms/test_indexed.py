"""What reductions by index refuse, and what they share."""

import numpy as np
import pytest

import cupar
from cupar import Determinism, OpKind

CC, ZERO = 90, np.zeros(1, "f4")
Large = cupar.gpu_struct({f"f{i}": np.float64 for i in range(65)})


@pytest.mark.parametrize(
    ("given", "named", "error", "message"),
    [
        (("f4", "f4", "f4", max, ZERO), {}, TypeError, "d_indices: expected integers, got float32"),
        (("f4", "i4", "i4", max, ZERO), {}, TypeError, "the accumulator: float32 is not conv"),
        (("f4", "i4", "f4", max, None), {}, TypeError, "h_init: a reduction by index needs an initial value"),
        (
            ("f4", "i4", "f4", max, ZERO),
            {"determinism": 2},
            ValueError,
            "determinism: there is no GPU_TO_GPU",
        ),
        (("f4", "i4", "f4", max, ZERO), {"determinism": 7}, TypeError, "determinism: exp"),
        (
            (Large, "i4", Large, lambda a, b: a, np.zeros(1, Large.dtype)),
            {},
            TypeError,
            "d_in: expected .* 512",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(given, named, error, message):
    with pytest.raises(error, match=message):
        cupar.reduce_by_index(*given, **named, cc=CC)


def test_counts_are_checked():
    x, index, out = np.zeros(4, "f4"), np.zeros(4, "i4"), np.zeros(2, "f4")
    reduction = cupar.reduce_by_index(x, index, out, OpKind.PLUS, ZERO, cc="cpu")
    for n, bins, message in (
        (5, 2, "d_in: needs at least 5 items, got an array of 4"),
        (4, 3, "d_out: needs at least 3 items, got an array of 2"),
        (4, -1, "num_bins: expected 0 or more, got -1"),
        (4, 2**31, r"num_bins: expected at most 2\*\*31 - 1, got 2147483648"),
    ):
        with pytest.raises(ValueError, match=message):
            reduction.run(x, index, out, n, bins, ZERO)
    with pytest.raises(ValueError, match="d_out: expected an array of its own, got the one of d_in"):
        reduction.run(x, index, x, 4, 2, ZERO)


def test_determinism_matters_for_sums_of_floats_alone():
    def key(dtype, op, determinism):
        init = np.zeros(1, dtype)
        return cupar.reduce_by_index(
            dtype, "i4", dtype, op, init, determinism=determinism, cc="cpu"
        ).build.key

    free, same = Determinism.NOT_GUARANTEED, Determinism.RUN_TO_RUN
    assert key("f4", OpKind.PLUS, free) != key("f4", OpKind.PLUS, same)
    assert key("f4", OpKind.MAXIMUM, free) == key("f4", OpKind.MAXIMUM, same)
    assert key("i4", OpKind.PLUS, free) == key("i4", OpKind.PLUS, same)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (("c8", "i4", 5, "c8", 9), TypeError, "d_samples: complex64 has no order"),
        (("f4", "f4", 5, "f4", 9), TypeError, "d_histogram: expected integers"),
        (("f8", "i4", 5, "f4", 9), TypeError, "d_levels: expected a dtype that holds samples of float64"),
        (("f4", "i4", 1, "f4", 9), ValueError, "h_num_output_levels: expected from 2"),
        (("f4", "i4", 5, "f4", -9), ValueError, "num_samples: expected 0 or more"),
    ],
)
def test_ranges_that_are_refused(given, error, message):
    with pytest.raises(error, match=message):
        cupar.histogram_range(*given, cc=CC)
