"""Monte Carlo: random numbers from a function in C++.

No number is ever in memory: an iterator draws two for each index, and a
reduction counts what is inside of the circle.
"""

import numpy as np

import cupar

try:
    import cupy as xp  # arrays on the GPU
except ImportError:
    import numpy as xp  # without CuPy: on the CPU

# SplitMix64: the bits of an index and a seed, well mixed. It could as well be
# in a file, `cupar.cpp("splitmix.cuh", ...)`, and include others.
mixed_in_cpp = cupar.cpp(
    """
    #include <cuda/std/cstdint>
    using Bits = cuda::std::uint64_t;

    __device__ Bits mixed(Bits i, Bits seed) {
      Bits x = (seed + i + 1) * 0x9e3779b97f4a7c15;
      x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
      x = (x ^ x >> 27) * 0x94d049bb133111eb;
      return x ^ x >> 31;
    }
    """,
    "uint64(uint64, uint64)",
)


def mixed_in_python(i, seed):
    """Return the same in Python, for the CPU."""
    x = (seed + i + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


# Functions in C++ are compiled for GPUs only.
mixed = mixed_in_python if xp is np else mixed_in_cpp


def pi(samples: int, seed: int) -> float:
    """Estimate pi by the points of a square that are in a circle."""
    start = np.uint64(seed)

    def is_inside(i):
        bits = mixed(i, start)
        x = np.int64(bits >> np.uint64(33))
        y = np.int64((bits & np.uint64(0xFFFFFFFF)) >> np.uint64(1))
        return np.int64(x * x + y * y < 1 << 62)

    indices = cupar.CountingIterator(np.uint64(0))
    points = cupar.TransformIterator(indices, is_inside)
    inside = xp.empty(1, np.int64)
    h_init = np.zeros(1, np.int64)
    count = cupar.reduce_into(points, inside, cupar.OpKind.PLUS, h_init)
    count.run(points, inside, samples, h_init)
    return 4 * int(inside[0]) / samples


def expected(samples: int, seed: int) -> float:
    """Compute the same with NumPy."""
    bits = np.arange(samples, dtype=np.uint64) + np.uint64(seed + 1)
    bits *= np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ bits >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ bits >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    x = bits >> np.uint64(33)
    y = (bits & np.uint64(0xFFFFFFFF)) >> np.uint64(1)
    inside = x * x + y * y < np.uint64(1 << 62)
    return 4 * int(np.count_nonzero(inside)) / samples


def main():
    """Estimate pi from ten million points."""
    found = pi(10_000_000, seed=7)
    assert found == expected(10_000_000, seed=7)
    print(f"pi is about {found:.4f}")


if __name__ == "__main__":
    with cupar.device("cpu" if xp is np else "cuda"):
        main()
