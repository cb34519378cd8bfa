"""A weighted mean in one reduction: of structs with both of its sums, which no array ever holds."""

import cupy as cp
import numpy as np

import cupar


@cupar.gpu_struct
class Sums:
    """What a weighted mean is the quotient of."""

    of_products: np.float64
    of_weights: np.float64


# The annotations of what the two ends of the reduction return and take tell cupar their types.
def begun(item) -> Sums:
    """Return the sums of one item, given with its weight."""
    value, weight = item
    return Sums(np.float64(value) * weight, weight)


def added(a, b):
    """Add the sums of some items to those of others."""
    return Sums(a.of_products + b.of_products, a.of_weights + b.of_weights)


def ended(sums: Sums):
    """Return the mean."""
    return sums.of_products / sums.of_weights


def weighted_mean(values: cp.ndarray, weights: cp.ndarray) -> cp.ndarray:
    """Return the weighted mean as an array of one float64. It stays on the GPU, and nothing waits for it."""
    mean = cp.empty(1, np.float64)
    d_in = cupar.TransformIterator(cupar.ZipIterator(values, weights), begun)
    d_out = cupar.TransformOutputIterator(mean, ended)
    h_init = Sums(0, 0)
    reduction = cupar.reduce_into(d_in, d_out, added, h_init)
    reduction.run(d_in, d_out, len(values), h_init)
    return mean


def main():
    """Average a million numbers, and check."""
    rng = np.random.default_rng(0)
    values = rng.normal(10, 3, 1_000_000).astype(np.float32)
    weights = rng.random(1_000_000, np.float32)
    mean = weighted_mean(cp.asarray(values), cp.asarray(weights)).get()[0]
    expected = np.average(values.astype(np.float64), weights=weights.astype(np.float64))
    np.testing.assert_allclose(mean, expected, rtol=1e-12)
    print(f"the weighted mean of {len(values)} numbers is {mean:.6f}")


if __name__ == "__main__":
    main()
