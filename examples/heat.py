"""Heat in a ring: a loop over time steps that is compiled, host code too.

``python heat.py heat.svg`` draws it, with matplotlib.
"""

import functools
import sys

import numba
import numpy as np

import cupar
from cupar import cuda

try:
    import cupy as xp  # arrays on the GPU
    from cupy import asnumpy as fetch
except ImportError:
    import numpy as xp  # without CuPy: on the CPU
    from numpy import asarray as fetch

BLOCK = 256


@cupar.jit
def step(before, after, rate):
    """Let each cell take of its neighbours' heat."""
    i = cuda.grid(1)
    if i < before.size:
        neighbours = before[i - 1] + before[(i + 1) % before.size]
        after[i] = before[i] + rate * (neighbours - 2 * before[i])


@functools.cache
def compiled():
    """Compile the loop to native code, which launches kernels."""
    hottest = cupar.reduce_into("f8", "f8", cupar.OpKind.MAXIMUM, 0.0)

    @numba.njit(nogil=True)
    def steps(cells, spare, history, rate, stream):
        grid = (cells.size + BLOCK - 1) // BLOCK
        for k in range(history.size):
            step[grid, BLOCK, stream](cells, spare, rate)
            step[grid, BLOCK, stream](spare, cells, rate)
            hottest.run(cells, history[k : k + 1], cells.size, 0.0, stream)

    return steps


def steps_on_cpu(cells, spare, history, rate):
    """Do the same on the CPU, where no kernel runs: a step is a transform."""
    n, index = cells.size, cupar.CountingIterator(0)
    before = cells

    def moved(i):
        neighbours = before[(i - 1) % n] + before[(i + 1) % n]
        return before[i] + rate * (neighbours - 2 * before[i])

    move = cupar.unary_transform(index, spare, moved)
    hottest = cupar.reduce_into(cells, history, cupar.OpKind.MAXIMUM, 0.0)
    for k in range(history.size):
        before = cells  # each call looks up what the operator captures
        move.run(index, spare, n)
        before = spare
        move.run(index, cells, n)
        hottest.run(cells, history[k : k + 1], n, 0.0)


def heat(cells: xp.ndarray, count: int, rate: float = 0.25) -> xp.ndarray:
    """Change cells in place, by two steps for each item of the result.

    Returns the largest after each of them.
    """
    arrays = cells, xp.empty_like(cells), xp.empty(count)
    if xp is np:
        steps_on_cpu(*arrays, rate)
    else:
        stream = xp.cuda.get_current_stream().ptr
        compiled()(*map(cupar.view, arrays), rate, stream)
    return arrays[-1]


def draw(path, moments):
    """Draw the cells around the heated one after some numbers of steps."""
    from matplotlib.figure import Figure

    figure = Figure((6.4, 3.2), layout="constrained")
    axes = figure.add_subplot(xlabel="cell", ylabel="temperature")
    axes.set(yscale="log", ylim=(0.1, 1000))
    places = np.arange(-100, 101)
    for count, cells in moments.items():
        near = cells[len(cells) // 2 + places]
        axes.plot(places, near, label=f"{count} steps")
    axes.legend()
    figure.savefig(path)


def main(path=None):
    """Heat one cell of a ring, and see it cool down."""
    n = 10_000
    expected = np.zeros(n)
    expected[n // 2] = 1000.0
    cells, done, moments = xp.asarray(expected.copy()), 0, {}
    for count in (2, 10, 100, 1000):
        history = heat(cells, (count - done) // 2)
        print(f"{count:4} steps: {fetch(history)[-1]:.2f}")
        moments[count], done = fetch(cells).copy(), count

    for _ in range(done):
        neighbours = np.roll(expected, 1) + np.roll(expected, -1)
        expected += 0.25 * (neighbours - 2 * expected)
    np.testing.assert_allclose(fetch(cells), expected, rtol=0, atol=1e-9)
    if path:
        draw(path, moments)


if __name__ == "__main__":
    with cupar.device("cpu" if xp is np else "cuda"):
        main(*sys.argv[1:])
