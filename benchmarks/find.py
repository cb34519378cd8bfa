"""GPU time of finding the first item that fits, and of what that decides: cupar, CUB, PyTorch, a sum.

    python benchmarks/find.py [--exponent 28] [--only none,half,hundredth,thousandth,equal,sorted,bytes]
                              [--repeats 9] [--seconds 60] [--json FILE]

It needs a GPU and CuPy; without nvcc or PyTorch, the columns of CUB or PyTorch are empty. 2^28 float32 are 0,
but for one and those behind it: which lies behind a half, a hundredth or a thousandth of all, or is none.
equal compares two halves of the array, sorted asks whether it is, and bytes takes as many bytes.

* cupar is `cupar.arrays.find_first`, `equal` and `is_sorted`;
* reduction finds the index as the least of all that fit, which reads all items;
* sum is `reduce_into` with plus, which reads as much; CUB is ``DeviceFind::FindIf``, in find.cu;
* torch is ``torch.any(x == 1)``, which says no index, ``torch.equal`` and ``torch.all(x[1:] >= x[:-1])``.

All take turns, as _turns.py says; tables give medians. What cupar, the reduction and CUB find is compared
with what is right first.
"""

from __future__ import annotations

import importlib
import sys
import time
from ctypes import c_longlong
from typing import Any

import _common
import _turns as turns
import numpy as np
from _turns import Gpu, Launch, Table
from runs import compiled_beside, of_cub
from throughput import optional

sys.path.insert(0, str(_common.ROOT))

PLACES = {"none": 0, "half": 2, "hundredth": 100, "thousandth": 1000}  # behind which part of all items
WHATS = (*PLACES, "equal", "sorted", "bytes")
GOALS = {
    **dict.fromkeys(("none", "equal", "sorted", "bytes"), ("sum", 0.95)),
    **dict.fromkeys(("hundredth", "thousandth"), ("sum", 20.0)),
}
NOWHERE = np.iinfo(np.int64).max


def is_one(item: Any) -> Any:
    """Whether an item fits."""
    return item == 1


def _place(s: Any) -> Any:
    return s[1] if s[0] == 1 else NOWHERE


class Finding(Gpu):
    """A case: an array, where its item is, and who takes part.

    Parameters
    ----------
    cupy, torch : modules
        PyTorch's may be None.
    what : str
        Of `WHATS`.
    n : int
    cub : ctypes.CDLL or exception
    """

    sides = ("cupar", "reduction", "CUB", "sum", "torch")
    checked = ("cupar", "reduction", "CUB")

    def __init__(self, cupy: Any, torch: Any, what: str, n: int, cub: Any = None) -> None:
        super().__init__(cupy, torch)
        self.what, self.cub, part = what, cub, PLACES.get(what, 0)
        self.place = n // part if part else -1
        is_bytes = what == "bytes"
        self.x = cupy.zeros(4 * n if is_bytes else n, np.uint8 if is_bytes else np.float32)
        self.out: Any = None
        self.found: Any = None
        if self.place >= 0:
            self.x[self.place :] = 1  # so that one that is later is wrong

    @property
    def gpu(self) -> Gpu:
        """What all sides need."""
        return self

    @property
    def nbytes(self) -> int:
        """What is read if nothing stops early."""
        return int(self.x.nbytes)

    @property
    def right(self) -> set[int]:
        """What is right, as a side may tell it."""
        if self.what in ("equal", "sorted"):
            return {1}
        return {self.place} if self.place >= 0 else {-1, self.x.size, NOWHERE}

    def prepare(self, side: str) -> Launch:
        """Return a call of a side; LookupError or ImportError if there is no such thing."""
        import cupar

        if side == "cupar":
            return self._cupar()
        if side == "torch":
            return self._torch()
        if side == "sum":
            out = self.cupy.empty(1, np.float32)
            start = np.zeros(1, np.float32)
            x = self.x.view(np.float32)
            total = cupar.reduce_into(x, out, cupar.OpKind.PLUS, start)
            return self.stored(total, {"d_in": x, "d_out": out, "num_items": x.size, "h_init": start})
        if self.what in ("equal", "sorted", "bytes"):
            raise LookupError(f"{side} is measured with float32, and finds")
        self.out = self.cupy.empty(1, np.int64)
        if side == "CUB":
            if isinstance(self.cub, Exception):
                raise self.cub
            function = self.cub.cub_find
            given = self.pointer(self.x), self.pointer(self.out), c_longlong(self.x.size)
            return self._told(of_cub(self, function, given), self.out)
        items = cupar.ZipIterator(self.x, cupar.CountingIterator(np.int64(0)))
        places, start = cupar.TransformIterator(items, _place, np.dtype(np.int64)), np.full(1, NOWHERE)
        least = cupar.reduce_into(places, self.out, cupar.OpKind.MINIMUM, start)
        named = {"d_in": places, "d_out": self.out, "num_items": self.x.size, "h_init": start}
        return self._told(self.stored(least, named), self.out)

    def _told(self, launch: Launch, out: Any) -> Launch:
        def call() -> None:
            launch()
            self.found = out

        return call

    def _cupar(self) -> Launch:
        from cupar import arrays

        half = self.x.size // 2
        first, second = self.x[:half], self.x[half:]

        def call() -> None:
            if self.what == "equal":
                self.found = arrays.equal(first, second)
            elif self.what == "sorted":
                self.found = arrays.is_sorted(self.x)
            else:
                self.found = arrays.find_first(self.x, is_one)

        return call

    def _torch(self) -> Launch:
        x, torch = self.tensor(self.x), self.torch
        half = self.x.size // 2
        if self.what == "equal":
            return lambda: torch.equal(x[:half], x[half:])
        if self.what == "sorted":
            return lambda: torch.all(x[1:] >= x[:-1])
        return lambda: torch.any(x == 1)

    def check(self, launch: Launch) -> bool:
        """Call a side, and compare what it found."""
        if self.out is not None:
            self.out.fill(-7)
        launch()
        return int(self.found.reshape(-1)[0]) in self.right


TABLE = Table(
    "find",
    {"": 12},
    {"reduction": ("reduction", 2), "CUB": ("CUB", 2), "sum": ("sum", 3), "torch": ("torch", 2)},
    goal_width=12,
)


def main() -> None:
    """Measure, print and write."""
    start = time.perf_counter()
    options = turns.parser(__doc__, "find", WHATS, seconds=60, jobs=1).parse_args()
    device, facts = _common.needed_gpu()
    cupy, torch = importlib.import_module("cupy"), optional("torch")
    with compiled_beside(__file__, device["cc"]) as library:
        cub = library()

    def measured(what: str) -> dict[str, Any]:
        case = Finding(cupy, torch, what, 1 << options.exponent, cub)
        return TABLE.measured(case, (what,), options.repeats, GOALS.get(what), items=case.x.size, what=what)

    TABLE.fill([(what,) for what in options.only], measured, options, start, facts)


if __name__ == "__main__":
    main()
