"""Filtering: keep the items that satisfy a predicate, or their indices."""

import numpy as np

import cupar

try:
    import cupy as xp  # arrays on the GPU
    from cupy import asnumpy as fetch
except ImportError:
    import numpy as xp  # without CuPy: on the CPU
    from numpy import asarray as fetch

LIMIT = 2.5


def is_far(item):
    """Tell whether an item is far from zero."""
    return abs(item) > LIMIT


def far_items(items: xp.ndarray) -> xp.ndarray:
    """Return the items that are far from zero, in their order."""
    kept = xp.empty_like(items)
    d_num_kept = xp.empty(1, np.int64)
    select = cupar.select(items, kept, d_num_kept, is_far)
    select.run(items, kept, d_num_kept, len(items))
    return kept[: int(d_num_kept[0])].copy()


def far_items_with_indices(
    items: xp.ndarray,
) -> tuple[xp.ndarray, xp.ndarray]:
    """Return the items that are far from zero, and their indices (int64)."""
    kept, indices = xp.empty_like(items), xp.empty(len(items), np.int64)
    d_num_kept = xp.empty(1, np.int64)
    # Pairs are made as they are read, and taken apart as they are written.
    pairs = cupar.ZipIterator(items, cupar.CountingIterator(np.int64(0)))
    outputs = cupar.ZipIterator(kept, indices)
    select = cupar.select(
        pairs, outputs, d_num_kept, lambda pair: is_far(pair[0])
    )
    select.run(pairs, outputs, d_num_kept, len(items))
    num_kept = int(d_num_kept[0])
    return kept[:num_kept].copy(), indices[:num_kept].copy()


def peaks(signal: xp.ndarray) -> xp.ndarray:
    """Return the indices (int64) of items larger than both neighbours."""
    # The first item and the last have one neighbour.
    num_items = max(len(signal) - 2, 0)
    inner = cupar.CountingIterator(np.int64(1))
    indices = xp.empty(num_items, np.int64)
    d_num_peaks = xp.empty(1, np.int64)

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
    d_items = xp.asarray(items)
    expected = np.flatnonzero(np.abs(items) > LIMIT)
    np.testing.assert_array_equal(fetch(far_items(d_items)), items[expected])
    kept, indices = far_items_with_indices(d_items)
    np.testing.assert_array_equal(fetch(kept), items[expected])
    np.testing.assert_array_equal(fetch(indices), expected)

    found = fetch(peaks(d_items))
    left, middle, right = items[:-2], items[1:-1], items[2:]
    expected_peaks = 1 + np.flatnonzero((left < middle) & (middle > right))
    np.testing.assert_array_equal(found, expected_peaks)
    print(
        f"of {len(items)} numbers, {len(expected)} are far from zero", end=""
    )
    print(f" and {len(found)} are peaks")


if __name__ == "__main__":
    with cupar.device("cpu" if xp is np else "cuda"):
        main()
