"""Run-length encoding: the value and length of each run of equal items."""

import numpy as np

import cupar

try:
    import cupy as xp  # arrays on the GPU
    from cupy import asnumpy as fetch
except ImportError:
    import numpy as xp  # without CuPy: on the CPU
    from numpy import asarray as fetch


def run_length_encode(items: xp.ndarray) -> tuple[xp.ndarray, xp.ndarray]:
    """Return the value of each run of equal items, and its length (int64)."""
    values = xp.empty_like(items)
    lengths = xp.empty(len(items), np.int64)
    d_num_runs = xp.empty(1, np.int64)
    encode = cupar.run_length_encode(items, values, lengths, d_num_runs)
    encode.run(items, values, lengths, d_num_runs, len(items))
    num_runs = int(d_num_runs[0])  # waits for the GPU
    return values[:num_runs].copy(), lengths[:num_runs].copy()


def means(keys: xp.ndarray, items: xp.ndarray) -> xp.ndarray:
    """Return the mean (float64) of the items of each run of equal keys."""
    # Of each run, the sum and the number of items, in one reduction.
    ones = cupar.ConstantIterator(1.0)
    pairs = cupar.ZipIterator(items, ones)
    results = xp.empty(len(items), np.float64)
    quotients = cupar.TransformOutputIterator(
        results, lambda pair: pair[0] / pair[1], pairs.dtype
    )
    d_num_runs = xp.empty(1, np.int64)
    arguments = (
        keys,
        cupar.DiscardIterator(),  # which keys they are is known
        pairs,
        quotients,
        d_num_runs,
    )
    reduction = cupar.reduce_by_key(
        *arguments, lambda a, b: (a[0] + b[0], a[1] + b[1])
    )
    reduction.run(*arguments, len(items))
    return results[: int(d_num_runs[0])].copy()


def main():
    """Encode about a million small numbers, and decode them."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 5, 100_000, np.int32)
    items = np.repeat(numbers, rng.integers(0, 20, 100_000))
    encoded = run_length_encode(xp.asarray(items))
    values, lengths = map(fetch, encoded)
    np.testing.assert_array_equal(np.repeat(values, lengths), items)
    assert (values[1:] != values[:-1]).all(), "neighbouring runs differ"
    print(f"{len(items)} items are {len(values)} runs,", end=" ")
    print(f"the longest of {lengths.max()}")

    samples = rng.random(len(items))
    found = fetch(means(xp.asarray(items), xp.asarray(samples)))
    ends = np.cumsum(lengths)
    expected = np.add.reduceat(samples, ends - lengths) / lengths
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    print(f"their means are from {found.min():.3f} to {found.max():.3f}")


if __name__ == "__main__":
    with cupar.device("cpu" if xp is np else "cuda"):
        main()
