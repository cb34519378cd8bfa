"""A histogram with bins of equal width, printed as bars."""

import cupy as cp
import numpy as np

import cupar


def histogram(samples: cp.ndarray, bins: int, lower: float, upper: float) -> cp.ndarray:
    """Return how many samples fall into each bin, as int32.

    Samples below `lower`, or at `upper` and above, are in none; ``numpy.histogram`` has `upper` in the last.
    """
    levels = bins + 1  # that bound the bins
    counts = cp.empty(bins, np.int32)
    count = cupar.histogram_even(samples, counts, levels, lower, upper, len(samples))
    # What the levels are is data; of the build, only their dtype is a part, and if there are over 256 bins.
    count.run(samples, counts, levels, lower, upper, len(samples))
    return counts


def main():
    """Count a million normally distributed numbers, and check."""
    samples = np.random.default_rng(0).normal(size=1_000_000).astype(np.float32)
    counts = histogram(cp.asarray(samples), 16, -4.0, 4.0).get()
    expected, edges = np.histogram(samples[samples < 4], 16, (-4, 4))
    np.testing.assert_array_equal(counts, expected)
    for edge, count in zip(edges, counts, strict=False):
        print(f"{edge:5.1f} {count:7} {'#' * (count // 5000)}")
    print(f"{counts.sum()} of {len(samples)} samples are in {len(counts)} bins")


if __name__ == "__main__":
    main()
