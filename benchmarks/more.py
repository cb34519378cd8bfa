"""GPU time of sets, copies, and what cupar.arrays composes: sums by ids, ranks, different items, expansion.

    python benchmarks/more.py [--exponent 26] [--only few-ids,some-ids,many-ids,any-order,edges,many-edges,
                              median,medians,unique,expand,union1d,intersect1d,setdiff1d,setxor1d,join-16,
                              join-1024,join-16384,ranges-64,ranges-1000,ranges-2^16,union,intersection,
                              difference,symmetric,union-pairs,intersection-pairs,difference-pairs,
                              symmetric-pairs] [--repeats 7] [--seconds 110] [--json FILE]

It needs a GPU and CuPy; without nvcc or PyTorch, the columns of Thrust or PyTorch are empty. Of 2^26 items,

* union, intersection, difference and symmetric are sets of two sorted halves of random int32, in which items
  occur several times: Thrust's, in more.cu, read the length back, and cupar's, of `cupar.arrays`, are given
  a size; those of pairs, of `cupar.set_union` and its like, have items of int32 that go with the keys;
* few-ids, some-ids and many-ids are `segment_reduce` of float32 by random ids, of 64, 2^12 and 2^20 segments,
  and any-order of 2^20 where sums may be rounded in whichever order comes, as ``index_add_`` and
  ``cupyx.scatter_add`` beside them round;
* edges and many-edges are `histogram` of float32 by 65 and 1,001 edges that are unevenly apart; PyTorch's is
  ``bincount`` of ``bucketize``;
* ranges are `take_ranges` of float32, of ranges of 64, 1,000 or 2^16 items on average, in any order; in the
  column of Thrust is CUB's ``DeviceMemcpy::Batched``, which is given pointers and lengths;
* join is `concatenate` of 16, 1,024 or 16,384 arrays of float32, whose lengths are no multiples of 4;
* median is that of float32, and medians those of rows of 2^14;
* union1d, intersect1d, setdiff1d and setxor1d are those of two halves of random int32, which are not sorted;
* unique is `unique_all` of a quarter of as many int32, beside others' unique with indices where they have
  them, inverse and counts; expand is `repeat` by counts from 0 to 7.

All take turns, as _turns.py says; tables give medians. copy is a copy that reads and writes as many bytes as
must at least be read and written. What waits for the GPU within the call has the host's time in it.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from ctypes import c_longlong, c_size_t, c_void_p
from functools import cache, partial
from typing import Any

import _common
import _turns as turns
import numpy as np
from _turns import Gpu, Launch, Table
from runs import compiled_beside, of_cub
from throughput import optional

sys.path.insert(0, str(_common.ROOT))

SETS = {"union": "set_union", "intersection": "set_intersection", "difference": "set_difference"}
SETS["symmetric"] = "set_symmetric_difference"
PAIRS = {f"{what}-pairs": what for what in SETS}
IDS = {"few-ids": 64, "some-ids": 1 << 12, "many-ids": 1 << 20, "any-order": 1 << 20}
EDGES = {"edges": 64, "many-edges": 1000}
ROW = 1 << 14
RANGES = {"ranges-64": 64, "ranges-1000": 1000, "ranges-2^16": 1 << 16}
JOINED = {f"join-{number}": number for number in (16, 1024, 16_384)}
SETS_1D = ("union1d", "intersect1d", "setdiff1d", "setxor1d")
# Those that nvcc compiles something for come last.
WHATS = (*IDS, *EDGES, "median", "medians", "unique", "expand", *SETS_1D, *JOINED, *RANGES, *SETS, *PAIRS)
GOALS = {
    **dict.fromkeys((*SETS, *PAIRS), ("copy", 0.6)),
    "few-ids": ("copy", 0.7),
    "any-order": ("torch", 1.0),
    **dict.fromkeys(("expand", *RANGES, *JOINED), ("copy", 0.8)),
}


class More(Gpu):
    """A case: its arrays, and who takes part.

    Parameters
    ----------
    cupy, torch : modules
        PyTorch's may be None.
    what : str
        Of `WHATS`.
    n : int
    thrust : callable
        Waits for the library that nvcc makes, and returns it, or the exception.
    """

    sides = ("cupar", "Thrust", "torch", "cupy", "copy")
    checked = ("cupar",)

    def __init__(self, cupy: Any, torch: Any, what: str, n: int, thrust: Any = None) -> None:
        super().__init__(cupy, torch)
        self.what, self.thrust, self.n = what, thrust, n
        rng = np.random.default_rng(7)
        if what in SETS or what in PAIRS:
            self.x, self.y = (cupy.asarray(np.sort(rng.integers(0, n, n // 2, "i4"))) for _ in "ab")
        elif what in SETS_1D:
            self.x, self.y = (cupy.asarray(rng.integers(0, n, n // 2, "i4")) for _ in "ab")
        elif what in IDS:
            self.x = cupy.asarray(rng.integers(0, 3, n, "i4").astype("f4"))
            self.y = cupy.asarray(rng.integers(0, IDS[what], n, "i4"))
        elif what == "unique":
            self.x = cupy.asarray(rng.integers(0, n // 16, n // 4, "i4"))
        elif what == "expand":
            self.x = cupy.asarray(rng.integers(0, 100, n // 4, "i4"))
            self.y = cupy.asarray(rng.integers(0, 8, n // 4))
            self.length = int(self.y.sum())
        else:
            self.x = cupy.asarray(rng.random(n, "f4"))
            if what == "medians":
                self.x = self.x.reshape(-1, min(n, ROW))
        self.edges = np.linspace(0, 1, EDGES.get(what, 1) + 1) ** 2
        if what in RANGES:
            bounds = np.concatenate(
                [[0], np.cumsum(rng.integers(0, 2 * RANGES[what] + 1, n // RANGES[what]))]
            )
            order = rng.permutation(len(bounds) - 1)
            self.starts, self.ends = (np.minimum(each, n)[order] for each in (bounds[:-1], bounds[1:]))
            self.length = int((self.ends - self.starts).sum())
        if what in JOINED:
            size = n // JOINED[what] - 3
            self.parts = [self.x[i * (size + 3) :][:size].copy() for i in range(JOINED[what])]

    @property
    def gpu(self) -> Gpu:
        """What all sides need."""
        return self

    @property
    def nbytes(self) -> int:
        """What must at least be read and written."""
        n = self.n
        if self.what in SETS or self.what in SETS_1D:
            return 4 * (n + int(self.right.size))
        if self.what in PAIRS:
            items = n if self._has_items_of_both else n // 2
            return 4 * (n + items + 2 * int(self.right.size))
        if self.what in IDS:
            return 8 * n + 4 * IDS[self.what]
        if self.what == "unique":
            return 4 * int(self.x.size) + 8 * int(self.x.size)
        if self.what == "expand":
            return 12 * int(self.x.size) + 4 * self.length
        if self.what in RANGES:
            return 8 * self.length + 16 * len(self.starts)
        if self.what in JOINED:
            return 8 * int(sum(each.size for each in self.parts))
        return 4 * n

    @property
    def _has_items_of_both(self) -> bool:
        return self.what in ("union-pairs", "symmetric-pairs")

    @property
    def _axis(self) -> int | None:
        return 1 if self.what == "medians" else None

    @property
    def right(self) -> Any:
        """What is right, on the host."""
        if not hasattr(self, "_right"):
            self._right = self._expected()
        return self._right

    def _expected(self) -> Any:
        x = _host(self.x)
        if self.what in SETS or self.what in PAIRS:
            y = _host(self.y)
            count = [np.bincount(each, minlength=self.n).astype("i4") for each in (x, y)]
            number = {
                "union": np.maximum(*count),
                "intersection": np.minimum(*count),
                "difference": np.maximum(count[0] - count[1], 0),
                "symmetric": abs(count[0] - count[1]),
            }[self.what.removesuffix("-pairs")]
            return np.repeat(np.arange(self.n, dtype="i4"), number)
        if self.what in SETS_1D:
            there = [np.bincount(each, minlength=self.n) > 0 for each in (x, _host(self.y))]
            how = {"union1d": np.logical_or, "intersect1d": np.logical_and, "setdiff1d": np.greater}
            return np.flatnonzero(how.get(self.what, np.logical_xor)(*there))
        if self.what in IDS:
            return np.bincount(_host(self.y), x, IDS[self.what]).astype("f4")
        if self.what in EDGES:
            return np.histogram(x, self.edges)[0]
        if self.what in RANGES:
            lengths = self.ends - self.starts
            return x[np.repeat(self.starts - np.cumsum(lengths) + lengths, lengths) + np.arange(self.length)]
        if self.what in JOINED:
            return np.concatenate([_host(each) for each in self.parts])
        if self.what in ("median", "medians"):
            return np.median(x, axis=self._axis)
        if self.what == "unique":
            return np.unique(x)
        return np.repeat(x, _host(self.y))

    def prepare(self, side: str) -> Launch:
        """Return a call of a side; LookupError or ImportError if there is no such thing."""
        if side == "copy":
            return self.copy(self.nbytes)
        if side == "Thrust":
            return self._thrust()
        if side == "cupar" and self.what in PAIRS:
            return self._pairs()
        made: Callable[[], Any] | None = getattr(self, f"_{side}")()
        if made is None:
            raise LookupError(f"{side} has no such thing")

        def call() -> None:
            self.found = made()

        return call

    def _cupar(self) -> Launch:
        from cupar import Determinism, arrays

        x, y = self.x, getattr(self, "y", None)
        if self.what in SETS:
            return partial(getattr(arrays, SETS[self.what]), x, y, size=self.n)
        if self.what in SETS_1D:
            return partial(getattr(arrays, self.what), x, y, size=self.n)
        if self.what in IDS:
            order = Determinism.NOT_GUARANTEED if self.what == "any-order" else Determinism.RUN_TO_RUN
            return partial(arrays.segment_reduce, x, y, num_segments=IDS[self.what], determinism=order)
        if self.what in EDGES:
            return partial(arrays.histogram, x, bins=self.edges)
        if self.what in RANGES:
            starts, ends = map(self.cupy.asarray, (self.starts, self.ends))
            return partial(arrays.take_ranges, x, starts, ends, size=self.length)
        if self.what in JOINED:
            return partial(arrays.concatenate, self.parts)
        if self.what in ("median", "medians"):
            return partial(arrays.median, x, axis=self._axis)
        if self.what == "unique":
            return partial(arrays.unique_all, x, size=int(x.size))
        return partial(arrays.repeat, x, y, size=self.length)

    def _pairs(self) -> Launch:
        import cupar

        empty, places = self.cupy.empty, self.cupy.arange(self.n, dtype="i4")
        x, y, keys, items, count = self.x, self.y, empty(self.n, "i4"), empty(self.n, "i4"), empty(1, "i8")
        half = self.n // 2
        second = places[half:] if self._has_items_of_both else None
        function = getattr(cupar, SETS[PAIRS[self.what]])(x, places[:half], y, second, keys, items, count)
        self.found, self.items = (keys, count), items
        return partial(function.run, x, places[:half], half, y, second, half, keys, items, count)

    def _torch(self) -> Launch | None:
        x, torch = self.tensor(self.x), self.torch
        if self.what in IDS:
            ids, out = self.tensor(self.y), torch.zeros(IDS[self.what], device=x.device)
            return lambda: out.zero_().index_add_(0, ids, x)
        if self.what in EDGES:
            edges = torch.tensor(self.edges, dtype=x.dtype, device=x.device)
            least = len(self.edges) + 1
            return lambda: torch.bincount(torch.bucketize(x, edges, right=True), minlength=least)
        if self.what in JOINED:
            parts = [self.tensor(each) for each in self.parts]
            return lambda: torch.cat(parts)
        if self.what in ("median", "medians"):
            return partial(torch.median, x, *([] if self._axis is None else [self._axis]))
        if self.what == "unique":
            return lambda: torch.unique(x, return_inverse=True, return_counts=True)
        if self.what == "expand":
            counts = self.tensor(self.y)
            return lambda: torch.repeat_interleave(x, counts, output_size=self.length)
        return None

    def _cupy(self) -> Launch | None:
        x, cupy = self.x, self.cupy
        if self.what in IDS:
            cupyx, out = importlib.import_module("cupyx"), cupy.zeros(IDS[self.what], "f4")

            def add() -> None:
                out.fill(0)
                cupyx.scatter_add(out, self.y, x)

            return add
        if self.what in SETS_1D:
            return lambda: getattr(cupy, self.what)(x, self.y)
        if self.what in JOINED:
            return lambda: cupy.concatenate(self.parts)
        if self.what in EDGES:
            edges = cupy.asarray(self.edges)
            return lambda: cupy.histogram(x, edges)
        if self.what in ("median", "medians"):
            return lambda: cupy.median(x, self._axis)
        if self.what == "unique":
            return lambda: cupy.unique(x, return_index=True, return_inverse=True, return_counts=True)
        return None

    @property
    def _library(self) -> Any:
        found = self.thrust()
        if isinstance(found, Exception):
            raise found
        return found

    def _cub_ranges(self) -> Launch:
        lengths = self.ends - self.starts
        out = self.cupy.empty(self.length, "f4")
        to = out.data.ptr + 4 * (np.cumsum(lengths) - lengths)
        given = map(self.cupy.asarray, (self.x.data.ptr + 4 * self.starts, to, (4 * lengths).astype("i4")))
        self.kept = out, *given
        addresses = map(self.pointer, self.kept[1:])
        return of_cub(self, self._library.cub_ranges, (*addresses, c_longlong(len(lengths))))

    def _thrust(self) -> Launch:
        if self.what in RANGES:
            return self._cub_ranges()
        if self.what not in SETS and self.what not in PAIRS:
            raise LookupError("Thrust has no such thing")
        is_pairs = self.what in PAIRS
        function = self._library.thrust_sets_by_key if is_pairs else self._library.thrust_sets
        function.restype = c_longlong
        storage = self.cupy.empty(8 * self.n, np.uint8)
        stream = c_void_p(self.cupy.cuda.get_current_stream().ptr)
        # The same arrays are read as keys and as items, as it does not matter which these are.
        inputs = [self.pointer(each) for each in (self.x, self.y) for _ in range(1 + is_pairs)]
        arrays = [self.cupy.empty(self.n, "i4") for _ in range(1 + is_pairs)]
        sizes = c_longlong(self.x.size), c_longlong(self.y.size)
        which = [*SETS].index(PAIRS.get(self.what, self.what))
        memory = self.pointer(storage), c_size_t(storage.size)
        given = which, *inputs, *map(self.pointer, arrays), *sizes, *memory

        def call() -> None:
            if function(*given, stream) != self.right.size or not arrays:
                raise RuntimeError("Thrust finds another number of items")

        return call

    def check(self, launch: Launch) -> bool:
        """Call cupar, and compare what it wrote with what is right."""
        launch()
        found = self.found
        if self.what in SETS or self.what in PAIRS or self.what in SETS_1D:
            keys, count = found
            size = int(_host(count).reshape(-1)[0])
            is_right = size == self.right.size and bool((_host(keys)[:size] == self.right).all())
            if is_right and self.what in PAIRS:  # each item says where its key was
                both = np.concatenate([_host(self.x), _host(self.y)])
                is_right = np.array_equal(both[_host(self.items)[:size]], self.right)
            return is_right
        if self.what in EDGES:
            found = found.hist
        if self.what == "expand" or self.what in RANGES:
            found = found.items[: int(found.count)]
        if self.what == "unique":
            results, count = found
            found = results.values[: int(count)]
        return bool(np.array_equal(_host(found), self.right))


def _host(array: Any) -> Any:
    return array.get() if hasattr(array, "get") else np.asarray(array)


TABLE = Table(
    "more",
    {"": 12},
    {"Thrust": ("Thrust", 2), "torch": ("torch", 2), "cupy": ("CuPy", 2), "copy": ("copy", 3)},
    goal_width=12,
)


def main() -> None:
    """Measure, print and write."""
    start = time.perf_counter()
    options = turns.parser(__doc__, "more", WHATS, seconds=110, jobs=1).parse_args()
    device, facts = _common.needed_gpu()
    cupy, torch = importlib.import_module("cupy"), optional("torch")
    with compiled_beside(__file__, device["cc"]) as library:
        thrust = cache(library)

        def measured(what: str) -> dict[str, Any]:
            case = More(cupy, torch, what, 1 << min(options.exponent, 26), thrust)
            return TABLE.measured(case, (what,), options.repeats, GOALS.get(what), items=case.n, what=what)

        TABLE.fill([(what,) for what in options.only], measured, options, start, facts)


if __name__ == "__main__":
    main()
