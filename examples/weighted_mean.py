"""A weighted mean in one reduction, of structs that no array ever holds."""

import numpy as np

import cupar

try:
    import cupy as xp  # arrays on the GPU
    from cupy import asnumpy as fetch
except ImportError:
    import numpy as xp  # without CuPy: on the CPU
    from numpy import asarray as fetch


@cupar.gpu_struct
class Sums:
    """The two sums whose quotient is the weighted mean."""

    of_products: np.float64
    of_weights: np.float64


# The annotations tell cupar what the iterators at both ends give and take.
def weighted(item) -> Sums:
    """Return the sums of one item and its weight."""
    value, weight = item
    return Sums(np.float64(value) * weight, weight)


def add(a, b):
    """Add two sums."""
    return Sums(a.of_products + b.of_products, a.of_weights + b.of_weights)


def mean(sums: Sums):
    """Return the mean."""
    return sums.of_products / sums.of_weights


def weighted_mean(values: xp.ndarray, weights: xp.ndarray) -> xp.ndarray:
    """Return the weighted mean as an array of one float64.

    It stays on the GPU, and nothing waits for it.
    """
    d_mean = xp.empty(1, np.float64)
    items = cupar.ZipIterator(values, weights)
    d_in = cupar.TransformIterator(items, weighted)
    d_out = cupar.TransformOutputIterator(d_mean, mean)
    h_init = Sums(0, 0)
    reduction = cupar.reduce_into(d_in, d_out, add, h_init)
    reduction.run(d_in, d_out, len(values), h_init)
    return d_mean


def main():
    """Average a million numbers."""
    rng = np.random.default_rng(0)
    values = rng.normal(10, 3, 1_000_000).astype(np.float32)
    weights = rng.random(1_000_000, np.float32)
    d_mean = weighted_mean(xp.asarray(values), xp.asarray(weights))
    found = fetch(d_mean)[0]
    expected = np.average(values.astype("f8"), weights=weights.astype("f8"))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    print(f"the weighted mean of {len(values)} numbers is {found:.6f}")


if __name__ == "__main__":
    with cupar.device("cpu" if xp is np else "cuda"):
        main()
