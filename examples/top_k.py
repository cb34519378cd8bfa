"""Top-k: the k largest items and their indices, of an array and of rows."""

import numpy as np

import cupar

try:
    import cupy as xp  # arrays on the GPU
    from cupy import asnumpy as fetch
except ImportError:
    import numpy as xp  # without CuPy: on the CPU
    from numpy import asarray as fetch

# An item's index, counted where it is needed.
INDICES = cupar.CountingIterator(np.int64(0))


def top_k(items: xp.ndarray, k: int) -> tuple[xp.ndarray, xp.ndarray]:
    """Return the k largest items and their indices, largest first.

    Equal items stay in their order.
    """
    largest, indices = xp.empty(k, items.dtype), xp.empty(k, np.int64)
    find = cupar.top_k(items, largest, INDICES, indices)
    find.run(items, largest, INDICES, indices, len(items), k)
    return largest, indices


def top_k_of_rows(items: xp.ndarray, k: int) -> xp.ndarray:
    """Return the k largest items of each row, largest first."""
    largest = xp.empty((len(items), k), items.dtype)
    find = cupar.segmented_top_k(items, largest)
    find.run(
        items,
        largest,
        num_items=items.size,
        num_segments=len(items),
        k=k,
    )
    return largest


def main():
    """Find the five largest of a million numbers, and of each thousand."""
    items = np.random.default_rng(0).normal(size=1_000_000)
    items = items.astype(np.float32)
    largest, indices = map(fetch, top_k(xp.asarray(items), 5))
    expected = np.argsort(-items, kind="stable")[:5]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(largest, items[expected])
    listed = ", ".join(f"{item:.3f}" for item in largest)
    print(f"the largest of {len(items)} numbers: {listed}")

    rows = items.reshape(1000, 1000)
    of_rows = fetch(top_k_of_rows(xp.asarray(rows), 5))
    np.testing.assert_array_equal(of_rows, np.sort(rows)[:, :-6:-1])
    listed = ", ".join(f"{item:.3f}" for item in of_rows[0])
    print(f"the largest of the first {rows.shape[1]}: {listed}")


if __name__ == "__main__":
    with cupar.device("cpu" if xp is np else "cuda"):
        main()
