"""Filtering: keep the items that satisfy a predicate, or their indices."""

import cupy as cp
import numpy as np

import cupar

LIMIT = 2.5


def is_far(item):
    """Tell whether an item is far from zero."""
    return abs(item) > LIMIT


def far_items(items: cp.ndarray) -> cp.ndarray:
    """Return the items that are far from zero, in their order."""
    kept = cp.empty_like(items)
    d_num_kept = cp.empty(1, np.int64)
    select = cupar.select(items, kept, d_num_kept, is_far)
    select.run(items, kept, d_num_kept, len(items))
    return kept[: int(d_num_kept[0])].copy()


def far_items_with_indices(
    items: cp.ndarray,
) -> tuple[cp.ndarray, cp.ndarray]:
    """Return the items that are far from zero, and their indices (int64)."""
    kept, indices = cp.empty_like(items), cp.empty(len(items), np.int64)
    d_num_kept = cp.empty(1, np.int64)
    # Pairs are made as they are read, and taken apart as they are written.
    pairs = cupar.ZipIterator(items, cupar.CountingIterator(np.int64(0)))
    outputs = cupar.ZipIterator(kept, indices)
    select = cupar.select(
        pairs, outputs, d_num_kept, lambda pair: is_far(pair[0])
    )
    select.run(pairs, outputs, d_num_kept, len(items))
    num_kept = int(d_num_kept[0])
    return kept[:num_kept].copy(), indices[:num_kept].copy()


def peaks(signal: cp.ndarray) -> cp.ndarray:
    """Return the indices (int64) of items larger than both neighbours."""
    # The first item and the last have one neighbour.
    num_items = max(len(signal) - 2, 0)
    inner = cupar.CountingIterator(np.int64(1))
    indices = cp.empty(num_items, np.int64)
    d_num_peaks = cp.empty(1, np.int64)

    # The predicate captures a device array. The array's dtype is part of the
    # build; its address and contents are not. Another signal needs no other
    # build.
    def is_peak(i):
        return signal[i - 1] < signal[i] and signal[i] > signal[i + 1]

    select = cupar.select(inner, indices, d_num_peaks, is_peak)
    select.run(inner, indices, d_num_peaks, num_items)
    return indices[: int(d_num_peaks[0])].copy()


def main():
    """Filter a million numbers in three ways."""
    items = np.random.default_rng(0).normal(size=1_000_000)
    items = items.astype(np.float32)
    d_items = cp.asarray(items)
    expected = np.flatnonzero(np.abs(items) > LIMIT)
    np.testing.assert_array_equal(far_items(d_items).get(), items[expected])
    kept, indices = far_items_with_indices(d_items)
    np.testing.assert_array_equal(kept.get(), items[expected])
    np.testing.assert_array_equal(indices.get(), expected)

    found = peaks(d_items).get()
    left, middle, right = items[:-2], items[1:-1], items[2:]
    expected_peaks = 1 + np.flatnonzero((left < middle) & (middle > right))
    np.testing.assert_array_equal(found, expected_peaks)
    print(
        f"of {len(items)} numbers, {len(expected)} are far from zero", end=""
    )
    print(f" and {len(found)} are peaks")


if __name__ == "__main__":
    main()
