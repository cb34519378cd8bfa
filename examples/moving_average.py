"""A moving average: prefix sums, then differences of two shifted views."""

import numpy as np

import cupar

try:
    import cupy as xp  # arrays on the GPU
    from cupy import asnumpy as fetch
except ImportError:
    import numpy as xp  # without CuPy: on the CPU
    from numpy import asarray as fetch


def mean(window, width):
    """Return a window's mean from the prefix sums at its start and end."""
    at_start, at_end = window
    return (at_end - at_start) / width


def moving_average(signal: xp.ndarray, width: int) -> xp.ndarray:
    """Return the means of each `width` consecutive items, as float64.

    There are ``len(signal) - width + 1`` of them.
    """
    if not 1 <= width <= len(signal):
        raise ValueError(
            f"width: expected from 1 to {len(signal)}, the length of the "
            f"signal, got {width}"
        )

    # sums[i] is the sum of the first i items. The accumulator has the dtype
    # of h_init, so the sums are float64 whatever the signal is.
    sums = xp.zeros(len(signal) + 1, np.float64)
    h_init = np.zeros(1, np.float64)
    scan = cupar.inclusive_scan(signal, sums[1:], cupar.OpKind.PLUS, h_init)
    scan.run(signal, sums[1:], len(signal), h_init)

    # A value that an operator reads from outside is part of its code: each
    # value is another build. So the width is an input, one that takes no
    # memory, and all widths share one build.
    windows = cupar.ZipIterator(sums, sums[width:])
    widths = cupar.ConstantIterator(np.float64(width))
    means = xp.empty(len(signal) - width + 1, np.float64)
    transform = cupar.binary_transform(windows, widths, means, mean)
    transform.run(windows, widths, means, len(means))
    return means


def main():
    """Average a noisy sine."""
    rng = np.random.default_rng(0)
    sine = np.sin(np.linspace(0, 20, 100_000))
    signal = (sine + rng.normal(size=100_000)).astype(np.float32)
    for width in (10, 1000):
        means = fetch(moving_average(xp.asarray(signal), width))
        expected = np.convolve(signal, np.full(width, 1 / width), "valid")
        np.testing.assert_allclose(means, expected, rtol=0, atol=1e-9)
        low, high = means.min(), means.max()
        print(f"{len(means)} means of {width} items each,", end=" ")
        print(f"from {low:.4f} to {high:.4f}")


if __name__ == "__main__":
    with cupar.device("cpu" if xp is np else "cuda"):
        main()
