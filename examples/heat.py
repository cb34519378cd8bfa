"""Heat in a ring: a loop over time steps that is compiled, host code too."""

import cupy as cp
import numba
import numpy as np

import cupar
from cupar import cuda

BLOCK = 256


@cupar.jit
def step(before, after, rate):
    """Let each cell take of its neighbours' heat."""
    i = cuda.grid(1)
    if i < before.size:
        neighbours = before[i - 1] + before[(i + 1) % before.size]
        after[i] = before[i] + rate * (neighbours - 2 * before[i])


hottest = cupar.reduce_into("f8", "f8", cupar.OpKind.MAXIMUM, 0.0)


@numba.njit(nogil=True)
def steps(cells, spare, history, rate, stream):
    """Do two steps for each item of `history`, which gets the hottest."""
    grid = (cells.size + BLOCK - 1) // BLOCK
    for k in range(history.size):
        step[grid, BLOCK, stream](cells, spare, rate)
        step[grid, BLOCK, stream](spare, cells, rate)
        hottest.run(cells, history[k : k + 1], cells.size, 0.0, stream)


def heat(cells: cp.ndarray, count: int, rate: float = 0.25) -> cp.ndarray:
    """Change cells in place, by two steps each time.

    Returns the largest after each of them.
    """
    spare, history = cp.empty_like(cells), cp.empty(count)
    stream = cp.cuda.get_current_stream().ptr
    views = map(cupar.view, (cells, spare, history))
    steps(*views, rate, stream)
    return history


def main():
    """Heat one cell of a ring, and see it cool down."""
    n, count = 10_000, 500
    expected = np.zeros(n)
    expected[n // 2] = 1000.0
    cells = cp.asarray(expected)
    history = heat(cells, count)

    for _ in range(2 * count):
        neighbours = np.roll(expected, 1) + np.roll(expected, -1)
        expected += 0.25 * (neighbours - 2 * expected)
    np.testing.assert_allclose(cells.get(), expected, rtol=0, atol=1e-9)
    for steps_done in (2, 10, 100, 1000):
        print(f"{steps_done:4} steps: {history[steps_done // 2 - 1]:.2f}")


if __name__ == "__main__":
    main()
