"""A kernel that keeps a stream busy."""

import cupy as cp
import numpy as np

SPIN = cp.RawKernel(
    r"""
    extern "C" __global__ void spin(long long cycles, volatile int* stop) {
      const long long start = clock64();
      while (clock64() - start < cycles && !(stop && *stop)) {}
    }
    """,
    "spin",
)


def load():
    """Compile and load the kernel, which would wait for the GPU later."""
    SPIN((1,), (1,), (np.int64(1), 0))
    cp.cuda.Device().synchronize()


def spin(stream, seconds=0.5, stop=0):
    """Keep a stream of CuPy's busy."""
    with stream:
        SPIN((1,), (1,), (np.int64(seconds * 1.7e9), stop))
