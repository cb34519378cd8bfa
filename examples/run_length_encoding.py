"""Run-length encoding: the value and length of each run of equal items."""

import cupy as cp
import numpy as np

import cupar


def equal(a, b):
    """Tell whether two neighbours belong to the same run."""
    return a == b


def run_length_encode(items: cp.ndarray) -> tuple[cp.ndarray, cp.ndarray]:
    """Return the value of each run of equal items, and its length (int64)."""
    # The first item of each run is kept, and its index with it.
    indices = cupar.CountingIterator(np.int64(0))
    values = cp.empty_like(items)
    starts = cp.empty(len(items) + 1, np.int64)
    d_num_runs = cp.empty(1, np.int64)
    unique = cupar.unique_by_key(
        items, indices, values, starts, d_num_runs, equal
    )
    unique.run(items, indices, values, starts, d_num_runs, len(items))
    num_runs = int(d_num_runs[0])  # waits for the GPU

    # A run ends where the next one starts; the last one ends with the items.
    starts[num_runs] = len(items)
    ends = starts[1:]
    lengths = cp.empty(num_runs, np.int64)
    difference = cupar.binary_transform(
        ends, starts, lengths, cupar.OpKind.MINUS
    )
    difference.run(ends, starts, lengths, num_runs)
    return values[:num_runs].copy(), lengths


def main():
    """Encode about a million small numbers, and decode them."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 5, 100_000, np.int32)
    items = np.repeat(numbers, rng.integers(0, 20, 100_000))
    encoded = run_length_encode(cp.asarray(items))
    values, lengths = (array.get() for array in encoded)
    np.testing.assert_array_equal(np.repeat(values, lengths), items)
    assert (values[1:] != values[:-1]).all(), "neighbouring runs differ"
    print(f"{len(items)} items are {len(values)} runs,", end=" ")
    print(f"the longest of {lengths.max()}")


if __name__ == "__main__":
    main()
