"""Where is the least item? A reduction of structs: of values zipped with their indices."""

import cupy as cp
import numpy as np

import cupar


@cupar.gpu_struct
class Candidate:
    """An item and where it stands."""

    value: np.float32
    index: np.int64


# Any item is better than this one, which a reduction therefore can start from.
WORST = Candidate(value=np.inf, index=np.iinfo(np.int64).max)


def better(a, b):
    """Return the candidate with the lesser value; if they are equal, the one that stands first.

    A reduction combines items in any order, so the result must not depend on which of them is `a`.
    """
    if a.value < b.value or (a.value == b.value and a.index < b.index):
        return a
    return b


def argmin(values: cp.ndarray) -> tuple[int, float]:
    """Return the index of the least item, the first of equal ones, and the item; float32, without NaNs."""
    if len(values) == 0:
        raise ValueError("values: expected at least one item, got none")

    # The pairs are made as they are read. They are laid out as a Candidate is, and so are taken for one.
    pairs = cupar.ZipIterator(values, cupar.CountingIterator(np.int64(0)))
    d_best = cp.empty(1, Candidate.dtype)
    reduction = cupar.reduce_into(pairs, d_best, better, WORST)
    reduction.run(pairs, d_best, len(values), WORST)
    best = d_best.get()[0]
    return int(best["index"]), float(best["value"])


def main():
    """Find the least of a million numbers, many of them equal, and check."""
    values = np.random.default_rng(0).integers(0, 10_000, 1_000_000).astype(np.float32)
    index, value = argmin(cp.asarray(values))
    assert index == np.argmin(values)
    assert value == values.min()
    print(f"the least of {len(values)} numbers is {value:g}, first at {index}")


if __name__ == "__main__":
    main()
