"""Top-k: the k largest items and their indices, by a radix sort."""

import cupy as cp
import numpy as np

import cupar


def top_k(items: cp.ndarray, k: int) -> tuple[cp.ndarray, cp.ndarray]:
    """Return the k largest items and their indices (int64), largest first.

    Equal items stay in their order.
    """
    if not 0 <= k <= len(items):
        raise ValueError(
            f"k: expected from 0 to {len(items)}, the number of items, "
            f"got {k}"
        )

    indices = cp.arange(len(items), dtype=np.int64)
    sorted_items = cp.empty_like(items)
    sorted_indices = cp.empty_like(indices)
    arrays = (items, sorted_items, indices, sorted_indices)
    sort = cupar.radix_sort(*arrays, cupar.SortOrder.DESCENDING)

    # In two phases, with temporary storage from CuPy's memory pool.
    # sort.run(*arrays, len(items)) does the same with cupar's.
    nbytes = sort(None, *arrays, len(items))
    sort(cp.empty(nbytes, np.uint8), *arrays, len(items))
    return sorted_items[:k].copy(), sorted_indices[:k].copy()


def main():
    """Find the five largest of a million numbers."""
    items = np.random.default_rng(0).normal(size=1_000_000)
    items = items.astype(np.float32)
    largest, indices = (array.get() for array in top_k(cp.asarray(items), 5))
    expected = np.argsort(-items, kind="stable")[:5]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(largest, items[expected])
    listed = ", ".join(f"{item:.3f}" for item in largest)
    print(f"the largest of {len(items)} numbers: {listed}")


if __name__ == "__main__":
    main()
