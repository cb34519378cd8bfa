"""Sums of segments: given by offsets, or all of one length."""

import itertools

import numpy as np

import cupar

try:
    import cupy as xp  # arrays on the GPU
    from cupy import asnumpy as fetch
except ImportError:
    import numpy as xp  # without CuPy: on the CPU
    from numpy import asarray as fetch


def segmented_sums(items: xp.ndarray, offsets: xp.ndarray) -> xp.ndarray:
    """Return the sum of each segment, ``items[offsets[i] : offsets[i + 1]]``.

    Segments may be empty.
    """
    starts, ends = offsets[:-1], offsets[1:]
    sums = xp.empty(len(starts), items.dtype)
    h_init = np.zeros(1, items.dtype)  # the sum of an empty segment
    reduction = cupar.segmented_reduce(
        items, sums, starts, ends, cupar.OpKind.PLUS, h_init
    )
    reduction.run(items, sums, len(starts), starts, ends, h_init)
    return sums


def row_sums(matrix: xp.ndarray) -> xp.ndarray:
    """Return the sum of each row of a C-contiguous matrix."""
    sums = xp.empty(len(matrix), matrix.dtype)
    h_init = np.zeros(1, matrix.dtype)
    # Without offsets, segments are the rows of a matrix.
    reduction = cupar.segmented_reduce(
        matrix, sums, op=cupar.OpKind.PLUS, h_init=h_init
    )
    reduction.run(matrix, sums, len(matrix), h_init=h_init)
    return sums


def main():
    """Sum segments of any length, and the rows of a matrix."""
    rng = np.random.default_rng(0)
    items = rng.normal(size=100_000)
    offsets = rng.integers(0, len(items), 1000, endpoint=True)
    offsets.sort()
    sums = fetch(segmented_sums(xp.asarray(items), xp.asarray(offsets)))
    pairs = itertools.pairwise(offsets)
    expected = [items[start:end].sum() for start, end in pairs]
    np.testing.assert_allclose(sums, expected, rtol=0, atol=1e-10)
    lengths = np.diff(offsets)
    print(f"{len(sums)} sums of segments of {lengths.min()}", end=" ")
    print(f"to {lengths.max()} items")

    matrix = rng.normal(size=(500, 300))
    sums = fetch(row_sums(xp.asarray(matrix)))
    np.testing.assert_allclose(sums, matrix.sum(axis=1), rtol=0, atol=1e-10)
    print(f"{len(matrix)} sums of rows of {matrix.shape[1]} items")


if __name__ == "__main__":
    with cupar.device("cpu" if xp is np else "cuda"):
        main()
