"""Keep the items that a predicate holds for, their indices along with them, or the indices of peaks alone."""

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


def far_items_with_indices(items: cp.ndarray) -> tuple[cp.ndarray, cp.ndarray]:
    """Return the items that are far from zero, and their indices as int64."""
    kept, indices = cp.empty_like(items), cp.empty(len(items), np.int64)
    d_num_kept = cp.empty(1, np.int64)
    pairs = cupar.ZipIterator(items, cupar.CountingIterator(np.int64(0)))  # made as they are read
    outputs = cupar.ZipIterator(kept, indices)  # and taken apart as they are written
    select = cupar.select(pairs, outputs, d_num_kept, lambda pair: is_far(pair[0]))
    select.run(pairs, outputs, d_num_kept, len(items))
    num_kept = int(d_num_kept[0])
    return kept[:num_kept].copy(), indices[:num_kept].copy()


def peaks(signal: cp.ndarray) -> cp.ndarray:
    """Return the indices of the items that are larger than both of their neighbours, as int64."""
    num_items = max(len(signal) - 2, 0)  # the first and the last have one neighbour
    inner = cupar.CountingIterator(np.int64(1))
    indices, d_num_peaks = cp.empty(num_items, np.int64), cp.empty(1, np.int64)

    # The predicate reads a device array of the surrounding function. Its dtype is part of the build, its
    # address and contents are not: the next signal needs no other.
    def is_peak(i):
        return signal[i - 1] < signal[i] and signal[i] > signal[i + 1]

    select = cupar.select(inner, indices, d_num_peaks, is_peak)
    select.run(inner, indices, d_num_peaks, num_items)
    return indices[: int(d_num_peaks[0])].copy()


def main():
    """Filter a million numbers in three ways, and check."""
    items = np.random.default_rng(0).normal(size=1_000_000).astype(np.float32)
    d_items = cp.asarray(items)
    expected = np.flatnonzero(np.abs(items) > LIMIT)
    np.testing.assert_array_equal(far_items(d_items).get(), items[expected])
    kept, indices = far_items_with_indices(d_items)
    np.testing.assert_array_equal(kept.get(), items[expected])
    np.testing.assert_array_equal(indices.get(), expected)
    found = peaks(d_items).get()
    middle = items[1:-1]
    np.testing.assert_array_equal(found, 1 + np.flatnonzero((items[:-2] < middle) & (middle > items[2:])))
    print(f"of {len(items)} numbers, {len(expected)} are far from zero and {len(found)} are peaks")


if __name__ == "__main__":
    main()
