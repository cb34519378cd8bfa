"""GPU time of merges, of reductions in the order of items, and along columns: cupar, CUB, PyTorch, a copy.

    python benchmarks/merges.py [--exponent 28]
                                [--only merge,merge-pairs,in-order,in-order-rows,columns,column-sums]
                                [--repeats 9] [--seconds 60] [--jobs N] [--json FILE]

It needs a GPU and CuPy; without nvcc or PyTorch, the columns of CUB or PyTorch are empty. Of 2^28 items,

* merge and merge-pairs are merges of two sorted ranges of random int32, of half as many keys each, the
  latter with int32 that go with them. CUB's are those in merges.cu, compiled with cuda-cccl's headers;
* in-order is `reduce_into` of float32 with `commutative=False`, and in-order-rows `segmented_reduce` of rows
  of 64, 1,024 and 65,536; beside them the same without it, in any order;
* columns and column-sums are `inclusive_column_scan` and `column_reduce` of float32 along the axis in the
  middle, with plus. PyTorch's are `torch.cumsum` and `torch.sum`.

All take turns, as _turns.py says; tables give medians. What cupar and CUB write is compared with what is
right before it is timed, every item of it: sums are of small integers, so they are exact.
"""

from __future__ import annotations

import importlib
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from ctypes import c_int
from functools import partial
from typing import Any, NamedTuple

import _common
import _turns as turns
import numpy as np
from _turns import Gpu, Launch, Table
from runs import compiled_beside, of_cub
from throughput import attempted, optional

sys.path.insert(0, str(_common.ROOT))

WHATS = ("merge", "merge-pairs", "in-order", "in-order-rows", "columns", "column-sums")
MERGES = WHATS[:2]
ROWS = (64, 1024, 1 << 16)
COLUMNS = ((1, 4096), (1, 1024), (1, 64), (64, 512), (4096, 64))  # how many arrays, and columns of each
I4, F4 = np.dtype("i4"), np.dtype("f4")

GOALS: dict[str, tuple[str, float]] = {
    **dict.fromkeys(MERGES, ("CUB", 0.95)),
    **dict.fromkeys(("in-order", "in-order-rows"), ("any", 0.9)),
    **dict.fromkeys(("columns", "column-sums"), ("torch", 1.0)),
}


class Shape(NamedTuple):
    """What is done, and to how many items: rows of a length, each of so many columns."""

    what: str
    outer: int
    length: int
    inner: int = 1

    @property
    def items(self) -> int:
        """All of them."""
        return self.outer * self.length * self.inner

    @property
    def label(self) -> str:
        """What tells it apart."""
        return " x ".join(str(each) for each in self[1:] if each > 1 or each == self.length)


def shapes(whats: Sequence[str], exponent: int) -> Iterator[Shape]:
    """Yield what is measured, in order."""
    n = 1 << exponent
    for what in whats:
        if what == "in-order-rows":
            yield from (Shape(what, n // row, row) for row in ROWS if row <= n)
        elif what in ("columns", "column-sums"):
            yield from (
                Shape(what, outer, n // outer // inner, inner)
                for outer, inner in COLUMNS
                if outer * inner < n
            )
        else:
            yield Shape(what, 1, n)


def of_cupar(what: str, cc: Any) -> Any:
    """Ask cupar for an algorithm; "any" and "any-rows" are in any order."""
    import cupar

    plus = cupar.OpKind.PLUS
    if what == "merge":
        return cupar.merge(I4, None, I4, None, I4, None, cc=cc)
    if what == "merge-pairs":
        return cupar.merge(I4, I4, I4, I4, I4, I4, cc=cc)
    if what in ("in-order", "any"):
        return cupar.reduce_into(F4, F4, plus, np.zeros(1, F4), commutative=what == "any", cc=cc)
    if what in ("in-order-rows", "any-rows"):
        is_any = what == "any-rows"
        return cupar.segmented_reduce(F4, F4, op=plus, h_init=np.zeros(1, F4), commutative=is_any, cc=cc)
    if what == "columns":
        return cupar.inclusive_column_scan(F4, F4, plus, cc=cc)
    return cupar.column_reduce(F4, F4, plus, np.zeros(1, F4), cc=cc)


def needed(whats: Sequence[str]) -> list[str]:
    """Return all algorithms of cupar's that are measured."""
    return [*whats, *(what.replace("in-order", "any") for what in whats if what.startswith("in-order"))]


def _build(what: str, cc: int) -> None:
    """Build in a helper process, for the cache."""
    try:
        of_cupar(what, cc)
    except Exception as error:  # whatever a compiler raises; it is tried once more where it is wanted
        print(f"cupar, {what}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)


def built(whats: Sequence[str], cc: int, jobs: int) -> tuple[dict[str, Any], Any]:
    """Return cupar's algorithms by what they do, and CUB's library; exceptions where there are none."""
    with compiled_beside(__file__, cc, bool(set(whats) & set(MERGES))) as library:
        with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
            list(pool.map(partial(_build, cc=cc), needed(whats)))
        cub = library()
    return {what: attempted(partial(of_cupar, what, cc)) for what in needed(whats)}, cub


class Merges(Gpu):
    """A case: its arrays, who takes part, and what is right.

    Parameters
    ----------
    cupy, torch : modules
        PyTorch's may be None.
    shape : Shape
    algorithms : dict
        Of cupar, by what they do.
    cub : ctypes.CDLL or exception
    """

    sides = ("cupar", "CUB", "torch", "any", "copy")
    checked = ("cupar", "CUB", "any")

    def __init__(self, cupy: Any, torch: Any, shape: Shape, algorithms: dict[str, Any], cub: Any) -> None:
        super().__init__(cupy, torch)
        self.shape, self._algorithms, self._cub = shape, algorithms, cub
        n, what = shape.items, shape.what
        cupy.random.seed(7)
        if what in MERGES:
            # Some keys are equal, and so tell whether a merge is stable.
            keys = cupy.random.randint(0, 1 << 26, n, dtype=np.int32)
            self.keys = [cupy.sort(keys[: n // 2]), cupy.sort(keys[n // 2 :])]
            self.places = [cupy.arange(n // 2, dtype=I4), cupy.arange(n // 2, n, dtype=I4)]
            self.out, self.out_items = cupy.empty(n, I4), cupy.empty(n, I4)
        else:
            self.x = (cupy.random.randint(0, 64, n, dtype=np.int32) == 0).astype(F4)
            results = {"columns": n, "column-sums": shape.outer * shape.inner}.get(what, shape.outer)
            self.out = cupy.empty(results, F4)

    @property
    def gpu(self) -> Gpu:
        """What all sides need."""
        return self

    @property
    def nbytes(self) -> int:
        """What must at least be read and written."""
        each = {"merge": 8, "merge-pairs": 16, "columns": 8}.get(self.shape.what, 4)
        return self.shape.items * each

    def prepare(self, side: str) -> Launch:
        """Return a call of a side; LookupError or ImportError if there is no such thing."""
        what = self.shape.what
        if side == "copy":
            return self.copy(self.nbytes)
        if side == "torch":
            return self._of_torch()
        if side == "any" and not what.startswith("in-order"):
            raise LookupError("it is always in order")
        if side == "CUB":
            if what not in MERGES:
                raise LookupError("CUB has no such algorithm")
            return self._of_cub()
        return self._of_cupar(what if side == "cupar" else what.replace("in-order", "any"))

    def _of_cupar(self, what: str) -> Launch:
        algorithm, shape = self._algorithms[what], self.shape
        if isinstance(algorithm, Exception):
            raise algorithm
        if what in MERGES:
            half, items = shape.items // 2, self.places if what == "merge-pairs" else (None, None)
            named: dict[str, Any] = {"d_out_keys": self.out}
            named["d_out_items"] = self.out_items if what == "merge-pairs" else None
            for i in (0, 1):
                named |= {f"d_in_keys{i + 1}": self.keys[i], f"d_in_items{i + 1}": items[i]}
                named[f"num_items{i + 1}"] = half
            return self.stored(algorithm, named)
        named = {"d_in": self.x, "d_out": self.out, "h_init": np.zeros(1, F4)}
        if what in ("columns", "column-sums"):
            named |= {"outer": shape.outer, "length": shape.length, "inner": shape.inner}
            if what == "columns":
                named["h_init"] = None
        elif what.endswith("rows"):
            named |= {"num_segments": shape.outer, "segment_size": shape.length}
        else:
            named["num_items"] = shape.items
        return self.stored(algorithm, named)

    def _of_cub(self) -> Launch:
        if isinstance(self._cub, Exception):
            raise self._cub
        arrays: list[Any] = [*self.keys, self.out]
        if self.shape.what == "merge-pairs":
            arrays = [self.keys[0], self.places[0], self.keys[1], self.places[1], self.out, self.out_items]
        function = getattr(self._cub, "cub_" + self.shape.what.replace("-", "_"))
        return of_cub(self, function, (*map(self.pointer, arrays), c_int(self.shape.items // 2)))

    def _of_torch(self) -> Launch:
        if self.torch is None:
            raise ImportError("PyTorch is not installed")
        what, (_, *shape) = self.shape.what, self.shape
        if what in MERGES:
            raise LookupError("PyTorch has no merge")
        x, torch = self.tensor(self.x).view(*shape), self.torch
        if what == "columns":
            return partial(torch.cumsum, x, 1, out=self.tensor(self.out).view(*shape))
        return partial(torch.sum, x, 1)

    def check(self, launch: Launch) -> bool:
        """Call a side, and compare what it wrote with what is right."""
        cupy, what, (_, *shape) = self.cupy, self.shape.what, self.shape
        self.out.view(np.uint8).fill(0xA5)
        launch()
        if what in MERGES:
            keys, places = cupy.concatenate(self.keys), cupy.concatenate(self.places)
            # A sort of keys and places at once is stable whatever sort it is.
            both = cupy.sort(keys.astype(np.int64) << 32 | places)
            is_right = bool((self.out == (both >> 32).astype(I4)).all())
            if what == "merge-pairs":
                is_right &= bool((self.out_items == (both & 0xFFFFFFFF).astype(I4)).all())
            return is_right
        x = self.x.reshape(shape)
        right = cupy.cumsum(x, axis=1, dtype="f8") if what == "columns" else x.sum(axis=1, dtype="f8")
        return bool((self.out == right.ravel().astype(F4)).all())


TABLE = Table(
    "merges",
    {"": 13, " ": 18},
    {"CUB": ("CUB", 2), "torch": ("torch", 2), "any": ("any", 2), "copy": ("copy", 3)},
    goal_width=12,
)


def main() -> None:
    """Measure, print and write."""
    start = time.perf_counter()
    options = turns.parser(__doc__, "merges", WHATS, seconds=60, jobs=6).parse_args()
    device, facts = _common.needed_gpu()
    asked = list(shapes(options.only, min(options.exponent, 28)))
    cupy, torch = importlib.import_module("cupy"), optional("torch")
    algorithms, cub = built(options.only, device["cc"], options.jobs)
    print(f"\nbuilt after {time.perf_counter() - start:.0f} s\n")

    def measured(*shape: Any) -> dict[str, Any]:
        its = Shape(*shape)
        case = Merges(cupy, torch, its, algorithms, cub)
        named = {"items": its.items, "what": its.what, "label": its.label}
        labels = its.what, its.label
        return TABLE.measured(case, labels, options.repeats, GOALS[its.what], **named)

    TABLE.fill(asked, measured, options, start, facts)


if __name__ == "__main__":
    main()
