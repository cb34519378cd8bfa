"""GPU time of finding the first item that fits: by a reduction, which reads all, and by a kernel that stops.

    python benchmarks/find.py [--exponent 28] [--only none,half,hundredth,thousandth]
                              [--repeats 9] [--seconds 60] [--json FILE]

It needs a GPU and CuPy; without PyTorch its column is empty. 2^28 float32 are 0, but for one: none, or that
which lies behind a half, a hundredth or a thousandth of all.

* cupar is `cupar.arrays.find_first`, a reduction of indices;
* kernel is a kernel of `cupar.jit` whose blocks stop at the first item that any of them has found. It is to
  take the reduction's place if it is faster where there is none, and 20 times as fast where it stops early;
* sum is `reduce_into` with plus, which reads as much; torch is ``torch.any(x == 1)``, and says no index.

All take turns, as _turns.py says; tables give medians. Each index is compared with what is right first.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

import _common
import _turns as turns
import numpy as np
from _turns import Gpu, Launch, Table, measure
from throughput import optional

sys.path.insert(0, str(_common.ROOT))

PLACES = {"none": 0, "half": 2, "hundredth": 100, "thousandth": 1000}  # behind which part of all items
THREADS, EACH, BLOCKS = 256, 8, 4096


def is_one(item: Any) -> Any:
    """Whether an item fits."""
    return item == 1


# Volatile, or the compiler reads it once, before the loop.
NOW = """
__device__ long long now(const long long* found) {
  long long value;
  asm volatile("ld.relaxed.gpu.global.s64 %0, [%1];" : "=l"(value) : "l"(found));
  return value;
}
"""


def kernel_of(predicate: Callable[[Any], Any]) -> Any:
    """Return the kernel: tiles of items in order, until one is behind what has been found."""
    import cupar
    from cupar import cuda

    fits = cupar.jit(predicate, device=True)
    now = cupar.cpp(NOW, "int64(int64[::1])")

    @cupar.jit
    def find(x: Any, found: Any) -> None:
        start = cuda.blockIdx.x * THREADS * EACH
        while start < x.size and now(found) >= start:
            mine = x.size
            first = start + cuda.threadIdx.x
            if start + THREADS * EACH <= x.size:
                for k in range(EACH):  # from the last one, without branches, so that all are loaded at once
                    i = first + (EACH - 1 - k) * THREADS
                    mine = i if fits(x[i]) else mine
            else:
                for k in range(EACH):
                    i = first + k * THREADS
                    if i < mine and fits(x[i]):
                        mine = i
            if mine < x.size:
                cuda.atomic.min(found, 0, mine)
            start += cuda.gridDim.x * THREADS * EACH

    return find


class Finding(Gpu):
    """A case: an array, where its item is, and who takes part.

    Parameters
    ----------
    cupy, torch : modules
        PyTorch's may be None.
    what : str
        Of `PLACES`.
    n : int
    """

    sides = ("cupar", "kernel", "sum", "torch")
    checked = ("cupar", "kernel")

    def __init__(self, cupy: Any, torch: Any, what: str, n: int) -> None:
        super().__init__(cupy, torch)
        self.place = n // PLACES[what] if PLACES[what] else -1
        self.x, self.out = cupy.zeros(n, np.float32), cupy.empty(1, np.int64)
        if self.place >= 0:
            self.x[self.place :] = 1  # so that one that is later is wrong

    @property
    def gpu(self) -> Gpu:
        """What all sides need."""
        return self

    @property
    def nbytes(self) -> int:
        """What is read if nothing stops early."""
        return 4 * int(self.x.size)

    def prepare(self, side: str) -> Launch:
        """Return a call of a side; ImportError if there is no such thing."""
        import cupar
        from cupar import arrays

        if side == "cupar":
            return self._find_first(arrays)
        if side == "sum":
            out = self.cupy.empty(1, np.float32)
            total = cupar.reduce_into(self.x, out, cupar.OpKind.PLUS, 0)
            return self.stored(total, {"d_in": self.x, "d_out": out, "num_items": self.x.size, "h_init": 0})
        if side == "torch":
            x = self.tensor(self.x)
            return lambda: self.torch.any(x == 1)
        launch = kernel_of(is_one)[BLOCKS, THREADS]

        def call() -> None:
            self.out.fill(self.x.size)
            launch(self.x, self.out)

        return call

    def _find_first(self, arrays: Any) -> Launch:
        def call() -> None:
            self.found = arrays.find_first(self.x, is_one)

        self.found = self.out
        return call

    def check(self, launch: Launch) -> bool:
        """Call a side, and compare the index that it found."""
        self.out.fill(-7)
        self.found = self.out
        launch()
        found = int(self.found.reshape(-1)[0])
        return found == self.place or (found, self.place) == (self.x.size, -1)


TABLE = Table(
    "find", {"": 12}, {"kernel": ("kernel", 3), "sum": ("sum", 3), "torch": ("torch", 2)}, goal_width=12
)


def main() -> None:
    """Measure, print and write."""
    start = time.perf_counter()
    options = turns.parser(__doc__, "find", tuple(PLACES), seconds=60, jobs=1).parse_args()
    _, facts = _common.needed_gpu()
    cupy, torch = importlib.import_module("cupy"), optional("torch")

    def measured(what: str) -> dict[str, Any]:
        case = Finding(cupy, torch, what, 1 << options.exponent)
        goal = ("sum", 0.95) if what == "none" else None
        sides = measure(case, options.repeats)
        found = turns.told(case, sides, goal, items=case.x.size, what=what)
        TABLE.print((what,), found)
        del case
        cupy.get_default_memory_pool().free_all_blocks()
        return found

    TABLE.fill([(what,) for what in options.only], measured, options, start, facts)


if __name__ == "__main__":
    main()
