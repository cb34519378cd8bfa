"""A histogram with bins of equal width, printed as bars.

``python histogram.py histogram.svg`` draws it, with matplotlib.
"""

import sys

import numpy as np

import cupar

try:
    import cupy as xp  # arrays on the GPU
    from cupy import asnumpy as fetch
except ImportError:
    import numpy as xp  # without CuPy: on the CPU
    from numpy import asarray as fetch


def histogram(
    samples: xp.ndarray, bins: int, lower: float, upper: float
) -> xp.ndarray:
    """Return the number of samples in each bin, as int32.

    Samples below `lower`, and those at `upper` and above, are in no bin;
    ``numpy.histogram`` counts those at `upper` in the last one.
    """
    levels = bins + 1  # the bounds of the bins
    counts = xp.empty(bins, np.int32)
    num_samples = len(samples)
    # The levels are data. The build depends only on whether they are floats.
    count = cupar.histogram_even(
        samples, counts, levels, lower, upper, num_samples
    )
    count.run(samples, counts, levels, lower, upper, num_samples)
    return counts


def draw(path, edges, counts):
    """Draw the bins."""
    from matplotlib.figure import Figure

    figure = Figure((6.4, 3.2), layout="constrained")
    axes = figure.add_subplot(xlabel="sample", ylabel="samples in the bin")
    axes.bar(edges[:-1], counts, np.diff(edges), align="edge", edgecolor="w")
    figure.savefig(path)


def main(path=None):
    """Count a million normally distributed numbers."""
    samples = np.random.default_rng(0).normal(size=1_000_000)
    samples = samples.astype(np.float32)
    counts = fetch(histogram(xp.asarray(samples), 16, -4.0, 4.0))
    expected, edges = np.histogram(samples[samples < 4], 16, (-4, 4))
    np.testing.assert_array_equal(counts, expected)
    for edge, count in zip(edges, counts, strict=False):
        bar = "#" * (count // 5000)
        print(f"{edge:5.1f} {count:7} {bar}".rstrip())
    total = counts.sum()
    print(f"{total} of {len(samples)} samples are in {len(counts)} bins")
    if path:
        draw(path, edges, counts)


if __name__ == "__main__":
    with cupar.device("cpu" if xp is np else "cuda"):
        main(*sys.argv[1:])
