"""A histogram with bins of equal width, printed as bars."""

import cupy as cp
import numpy as np

import cupar


def histogram(
    samples: cp.ndarray, bins: int, lower: float, upper: float
) -> cp.ndarray:
    """Return the number of samples in each bin, as int32.

    Samples below `lower`, and those at `upper` and above, are in no bin;
    ``numpy.histogram`` counts those at `upper` in the last one.
    """
    levels = bins + 1  # the bounds of the bins
    counts = cp.empty(bins, np.int32)
    num_samples = len(samples)
    # The levels are data. The build depends only on whether they are floats.
    count = cupar.histogram_even(
        samples, counts, levels, lower, upper, num_samples
    )
    count.run(samples, counts, levels, lower, upper, num_samples)
    return counts


def main():
    """Count a million normally distributed numbers."""
    samples = np.random.default_rng(0).normal(size=1_000_000)
    samples = samples.astype(np.float32)
    counts = histogram(cp.asarray(samples), 16, -4.0, 4.0).get()
    expected, edges = np.histogram(samples[samples < 4], 16, (-4, 4))
    np.testing.assert_array_equal(counts, expected)
    for edge, count in zip(edges, counts, strict=False):
        bar = "#" * (count // 5000)
        print(f"{edge:5.1f} {count:7} {bar}".rstrip())
    total = counts.sum()
    print(f"{total} of {len(samples)} samples are in {len(counts)} bins")


if __name__ == "__main__":
    main()
