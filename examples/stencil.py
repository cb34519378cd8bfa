"""Heat in a plate: a stencil in a kernel, ported from numba.cuda.

``python stencil.py stencil.png`` draws it, with matplotlib.
"""

import sys

import numpy as np

import cupar
from cupar import cuda, jit  # was: from numba import cuda; cuda.jit

try:
    import cupy as xp  # arrays on the GPU
    from cupy import asnumpy as fetch
except ImportError:
    import numpy as xp  # without CuPy: on the CPU
    from numpy import asarray as fetch

BLOCK = 32, 8


@jit
def step(old, new, rate):
    """Move each inner point towards its four neighbours."""
    j, i = cuda.grid(2)
    if 0 < i < old.shape[0] - 1 and 0 < j < old.shape[1] - 1:
        rows = old[i - 1, j] + old[i + 1, j]
        columns = old[i, j - 1] + old[i, j + 1]
        new[i, j] = old[i, j] + rate * (rows + columns - 4 * old[i, j])


def heat(plate: xp.ndarray, steps: int, rate: float = 0.2) -> xp.ndarray:
    """Return the temperatures after so many steps; edges stay as they are."""
    if plate.ndim != 2 or not plate.size:
        raise ValueError(f"plate: expected two dimensions, got {plate.shape}")
    if xp is np:
        return heat_on_cpu(plate, steps, rate)
    old, new = plate.copy(), plate.copy()
    rows, columns = plate.shape
    grid = -(-columns // BLOCK[0]), -(-rows // BLOCK[1])
    for _ in range(steps):
        step[grid, BLOCK](old, new, rate)
        old, new = new, old
    return old


def heat_on_cpu(plate, steps, rate):
    """Do the same on the CPU, where no kernel runs: a step is a transform."""
    rows, columns = plate.shape
    old, new = plate.flatten(), plate.flatten()

    def moved(k):
        i, j = k // columns, k % columns
        if i == 0 or i == rows - 1 or j == 0 or j == columns - 1:
            return old[k]
        around = old[k - columns] + old[k + columns] + old[k - 1] + old[k + 1]
        return old[k] + rate * (around - 4 * old[k])

    indices = cupar.CountingIterator(0)
    move = cupar.unary_transform(indices, new, moved)
    for _ in range(steps):
        move.run(indices, new, len(new))
        old, new = new, old  # each call looks up what the operator captures
    return old.reshape(plate.shape)


def draw(path, plates):
    """Draw the upper rows of plates."""
    from matplotlib.figure import Figure

    figure = Figure((8, 1.7), layout="constrained")
    for axes, (steps, plate) in zip(
        figure.subplots(1, len(plates)), plates.items(), strict=True
    ):
        image = axes.imshow(plate[:80], cmap="inferno", vmin=0, vmax=100)
        axes.set(title=f"{steps} steps", xticks=(), yticks=())
    figure.colorbar(image, label="temperature")
    figure.savefig(path)


def main(path=None):
    """Heat a plate from its upper edge."""
    plate, plates = np.zeros((200, 300)), {}
    plate[0] = 100
    for steps in (10, 100, 1000):
        found = plates[steps] = fetch(heat(xp.asarray(plate), steps))
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
    if path:
        draw(path, plates)


if __name__ == "__main__":
    with cupar.device("cpu" if xp is np else "cuda"):
        main(*sys.argv[1:])
