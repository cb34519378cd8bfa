"""Arg-min: the index of the smallest item, by a reduction of structs.

The structs are never in memory: an iterator zips each item with its index.
"""

import numpy as np

import cupar

try:
    import cupy as xp  # arrays on the GPU
    from cupy import asnumpy as fetch
except ImportError:
    import numpy as xp  # without CuPy: on the CPU
    from numpy import asarray as fetch


@cupar.gpu_struct
class Candidate:
    """An item and its index."""

    value: np.float32
    index: np.int64


# The identity of the reduction: any item is better than this.
WORST = Candidate(value=np.inf, index=np.iinfo(np.int64).max)


def better(a, b):
    """Return the candidate with the smaller value; of equal ones the first.

    A reduction combines items in any order, so the result must not depend on
    which of the two is `a`.
    """
    if a.value < b.value or (a.value == b.value and a.index < b.index):
        return a
    return b


def argmin(values: xp.ndarray) -> tuple[int, float]:
    """Return the index of the smallest item (the first one), and the item.

    `values` are float32, without NaNs.
    """
    if len(values) == 0:
        raise ValueError("values: expected at least one item, got none")

    # Pairs are made as they are read. They have the layout of a Candidate.
    pairs = cupar.ZipIterator(values, cupar.CountingIterator(np.int64(0)))
    d_best = xp.empty(1, Candidate.dtype)
    reduction = cupar.reduce_into(pairs, d_best, better, WORST)
    reduction.run(pairs, d_best, len(values), WORST)
    best = fetch(d_best)[0]
    return int(best["index"]), float(best["value"])


def main():
    """Find the smallest of a million numbers, many of them equal."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 10_000, 1_000_000).astype(np.float32)
    index, value = argmin(xp.asarray(values))
    assert index == np.argmin(values)
    assert value == values.min()
    print(f"the smallest of {len(values)} numbers is {value:g},", end=" ")
    print(f"first at index {index}")


if __name__ == "__main__":
    with cupar.device("cpu" if xp is np else "cuda"):
        main()
