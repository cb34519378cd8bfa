"""Heat in a plate: a stencil in a kernel, ported from numba.cuda."""

import cupy as cp
import numpy as np

from cupar import cuda, jit  # was: from numba import cuda; cuda.jit

BLOCK = 32, 8


@jit
def step(old, new, rate):
    """Move each inner point towards its four neighbours."""
    j, i = cuda.grid(2)
    if 0 < i < old.shape[0] - 1 and 0 < j < old.shape[1] - 1:
        rows = old[i - 1, j] + old[i + 1, j]
        columns = old[i, j - 1] + old[i, j + 1]
        new[i, j] = old[i, j] + rate * (rows + columns - 4 * old[i, j])


def heat(plate: cp.ndarray, steps: int, rate: float = 0.2) -> cp.ndarray:
    """Return the temperatures after so many steps; edges stay as they are."""
    if plate.ndim != 2 or not plate.size:
        raise ValueError(f"plate: expected two dimensions, got {plate.shape}")
    old, new = plate.copy(), plate.copy()
    rows, columns = plate.shape
    grid = -(-columns // BLOCK[0]), -(-rows // BLOCK[1])
    for _ in range(steps):
        step[grid, BLOCK](old, new, rate)
        old, new = new, old
    return old


def main():
    """Heat a plate from its upper edge."""
    plate = np.zeros((200, 300))
    plate[0] = 100
    for steps in (10, 100, 1000):
        found = heat(cp.asarray(plate), steps).get()
        expected = plate.copy()
        for _ in range(steps):
            inner = expected[1:-1, 1:-1]
            rows = expected[:-2, 1:-1] + expected[2:, 1:-1]
            columns = expected[1:-1, :-2] + expected[1:-1, 2:]
            expected[1:-1, 1:-1] = inner + 0.2 * (rows + columns - 4 * inner)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
        warm = np.count_nonzero(found[:, 150] > 1)
        mean = found.mean()
        print(f"after {steps:4} steps: {mean:.4f} on average,", end=" ")
        print(f"{warm} rows above 1")


if __name__ == "__main__":
    main()
