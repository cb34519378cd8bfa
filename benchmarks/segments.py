"""GPU time of segmented sums, scans and sorts: cupar, stock CCCL (cuda.compute), PyTorch, and a copy.

    python benchmarks/segments.py [--exponent 28] [--only sum,scan,keys,keys-by-op,pairs]
                                  [--layouts rows,one,zipf,log-normal,power,random,equal]
                                  [--repeats 9] [--seconds 60] [--jobs N] [--json FILE]

It needs a GPU and CuPy; without cuda.compute or PyTorch their columns are empty. Sums and scans, inclusive
ones, are of float32; keys, and the values of pairs, are int32. Of 2^28 items, there are

* rows: segments of one length, which cupar is told in place of offsets;
* equal: the same with offsets for cupar, too;
* random: lengths are uniform from 0 to twice their mean;
* power: a power law, from 16 items on; most segments have fewer than 64, and one has a 32nd of all items;
* log-normal: lengths of 100 on average, with a sigma of 1;
* zipf: Zipf's law with exponent 1.5, up to 2^20 items; most segments have 1 or 2;
* one: single items, and among them one segment with half of all items.

Sorts of keys are in an order; those by op, of rows and equal segments alone, by a comparison in Python.

cuda.compute gets offsets always, as it has no rows; it has neither segmented scans nor such sorts by a
comparison. PyTorch's is `torch.sum`, `torch.cumsum` and `torch.sort` of a matrix for rows, and
`torch.segment_reduce` for other sums. All take turns, as _turns.py says, and with them a device-to-device
copy of as many bytes as must at least be read and written; tables give medians.

What cupar and cuda.compute write is compared with what is right before it is timed, every item of it: sums
are of small integers, and so exact. Offsets have 64 bits. Everything is built before, by several processes.
With `--only` it takes less long: all that there is may be more than fits in the time.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial
from typing import Any, NamedTuple

import _common
import _turns as turns
import numpy as np
from _algorithms import Stand
from _turns import Gpu, Launch, Side, Table, measure
from throughput import attempted, optional

sys.path.insert(0, str(_common.ROOT))

WHATS = ("sum", "scan", "keys", "keys-by-op", "pairs")
STOCK = ("sum", "keys", "pairs")  # what cuda.compute has
LAYOUTS = ("rows", "one", "zipf", "log-normal", "power", "random", "equal")  # what changes most is first
MEANS_OF = ("rows", "equal", "random")  # layouts that are made for each mean
MEANS = (16, 64, 256, 1024, 4096, 16384, 65536)
SIDES = ("cupar", "cuda.compute", "torch", "copy")
OFFSETS = np.dtype(np.int64)
SUMMED, SORTED = np.dtype(np.float32), np.dtype(np.int32)
BYTES = {"sum": 4, "scan": 8, "keys": 8, "keys-by-op": 8, "pairs": 16}  # of an item, read and written

# What is asked of cupar: of sums and scans the multiple of the copy's speed, of keys 1e9 items in a second;
# and of all the multiple of another's speed.
GOALS: Mapping[tuple[str, str], Mapping[int, tuple[str, float]]] = {
    ("sum", "rows"): {16: ("copy", 0.9), 64: ("copy", 0.9), 256: ("copy", 0.95), 1024: ("copy", 1.0)},
    ("sum", "equal"): {16: ("copy", 0.48), 64: ("copy", 0.8), 256: ("copy", 0.93), 1024: ("copy", 1.0)},
    ("sum", "random"): {16: ("copy", 0.4), 64: ("copy", 0.65), 256: ("copy", 0.85), 1024: ("copy", 0.95)},
    ("sum", "power"): {0: ("copy", 0.42)},
    ("sum", "log-normal"): {0: ("copy", 0.65)},
    ("sum", "zipf"): {0: ("copy", 0.65)},
    ("sum", "one"): {0: ("copy", 0.65)},
    ("scan", "rows"): {1024: ("copy", 0.85)},
    ("scan", "equal"): {1024: ("copy", 0.75)},
    ("scan", "random"): {1024: ("copy", 0.75)},
    ("scan", "log-normal"): {0: ("copy", 0.8)},
    ("scan", "zipf"): {0: ("copy", 0.6)},
    ("scan", "one"): {0: ("copy", 0.5)},
    ("keys", "rows"): {
        mean: ("rate", rate) for mean, rate in zip(MEANS, (280, 190, 120, 125, 80, 60, 38), strict=True)
    },
    ("keys", "equal"): {
        mean: ("rate", rate) for mean, rate in zip(MEANS, (250, 140, 65, 62, 70, 58, 38), strict=True)
    },
    ("keys", "random"): dict.fromkeys((16, 64, 256, 1024), ("cuda.compute", 3.5)),
    ("keys", "power"): {0: ("cuda.compute", 2.5)},
    ("pairs", "rows"): {256: ("cuda.compute", 7.0), 1024: ("cuda.compute", 7.0)},
}

# --- Builds ----------------------------------------------------------------------------------------------


def less(a: Any, b: Any) -> Any:
    """Tell whether a key goes before another one, where that is said by a comparison."""
    return a < b


def of_cupar(what: str, has_offsets: bool, cc: int) -> Any:
    """Ask cupar for an algorithm: a sum, a scan, or a sort of keys or pairs, by offsets or of rows."""
    import cupar

    start = end = OFFSETS if has_offsets else None
    if what == "sum":
        return cupar.segmented_reduce(
            SUMMED, SUMMED, start, end, cupar.OpKind.PLUS, np.zeros(1, SUMMED), cc=cc
        )
    if what == "scan":
        return cupar.inclusive_segmented_scan(SUMMED, SUMMED, start, end, cupar.OpKind.PLUS, cc=cc)
    if what == "keys-by-op":
        return cupar.segmented_sort(SORTED, SORTED, None, None, start, end, op=less, cc=cc)
    values = SORTED if what == "pairs" else None
    order = cupar.SortOrder.ASCENDING
    return cupar.segmented_sort(SORTED, SORTED, values, values, start, end, order, cc=cc)


def of_compute(what: str, cc: int) -> Any:
    """Build an algorithm with cuda.compute."""
    import cuda.compute

    bounds = {"start_offsets_in": Stand(OFFSETS), "end_offsets_in": Stand(OFFSETS)}
    if what == "sum":
        arrays = {"d_in": Stand(SUMMED), "d_out": Stand(SUMMED), "h_init": np.zeros(1, SUMMED)}
        plus = cuda.compute.OpKind.PLUS
        return cuda.compute.make_segmented_reduce(**arrays, **bounds, op=plus, compute_capability=cc)
    keys = {"d_in_keys": Stand(SORTED), "d_out_keys": Stand(SORTED)}
    values = {each: Stand(SORTED) if what == "pairs" else None for each in ("d_in_values", "d_out_values")}
    order = cuda.compute.SortOrder.ASCENDING
    return cuda.compute.make_segmented_sort(**keys, **values, **bounds, order=order, compute_capability=cc)


def _build(side: str, what: str, has_offsets: bool, cc: int) -> bytes:
    """Build in a helper process: cupar's for the cache; return cuda.compute's."""
    try:
        if side == "cuda.compute":
            return bytes(of_compute(what, cc).serialize())
        of_cupar(what, has_offsets, cc)
    except Exception as error:  # whatever a compiler raises; it is tried once more where it is wanted
        print(f"{side}, {what}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
    return b""


def built(whats: Sequence[str], cc: int, jobs: int) -> dict[tuple[str, str, bool], Any]:
    """Return all algorithms by side, what they do and whether by offsets; an exception if there is none."""
    asked = [("cupar", what, has_offsets) for what in whats for has_offsets in (False, True)]
    if _common.is_installed("cuda.compute"):
        asked += [("cuda.compute", what, True) for what in whats if what in STOCK]
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {each: pool.submit(_build, *each, cc) for each in asked}
        blobs = {each: future.result() for each, future in futures.items()}

    def load(side: str, what: str, has_offsets: bool) -> Any:
        if side == "cupar":
            return of_cupar(what, has_offsets, cc)
        blob = blobs[side, what, has_offsets]
        if not blob:
            return of_compute(what, cc)
        import cuda.compute

        return cuda.compute.deserialize(blob)

    return {each: attempted(lambda each=each: load(*each)) for each in asked}


# --- Segments --------------------------------------------------------------------------------------------


class Layout(NamedTuple):
    """Segments one after another.

    Attributes
    ----------
    kind : str
    mean : int
        Of their lengths, or 0.
    num_items, num_segments : int
    starts, ends : CuPy arrays
    longest : int
    """

    kind: str
    mean: int
    num_items: int
    num_segments: int
    starts: Any
    ends: Any
    longest: int


def layout(cupy: Any, kind: str, mean: int, exponent: int) -> Layout:
    """Make segments of so many items altogether, or nearly."""
    most = 1 << exponent
    rng = np.random.default_rng(mean)
    if kind in ("rows", "equal"):
        lengths = np.full(most // mean, mean)
    elif kind == "random":
        lengths = rng.integers(0, 2 * mean + 1, most // mean)
    elif kind == "log-normal":
        lengths = np.maximum(rng.lognormal(np.log(100) - 0.5, 1, most // 90), 1).astype(OFFSETS)
    elif kind == "zipf":
        lengths = np.minimum(rng.zipf(1.5, most // 100), 1 << 20)
    elif kind == "one":
        lengths = np.ones(most // 2 + 1, OFFSETS)
        lengths[most // 4] = most // 2
    else:
        largest = most >> 5
        lengths = np.minimum(16 * (1 - rng.random(most // 64)) ** (-1 / 1.15), largest).astype(OFFSETS)
        lengths[min(1000, len(lengths) - 1)] = largest
    ends = np.cumsum(lengths, dtype=OFFSETS)
    ends = ends[: np.searchsorted(ends, most, "right")]
    n = len(ends)
    bounds = cupy.asarray(np.concatenate([np.zeros(1, OFFSETS), ends]))
    return Layout(kind, mean, int(ends[-1]), n, bounds[:-1], bounds[1:], int(lengths[:n].max()))


# --- Who is measured -------------------------------------------------------------------------------------


class Data(Gpu):
    """The arrays, which all cases share, and what is right.

    Parameters
    ----------
    cupy, torch : modules
        PyTorch's may be None.
    exponent : int
    """

    def __init__(self, cupy: Any, torch: Any, exponent: int) -> None:
        super().__init__(cupy, torch)
        n = 1 << exponent
        cupy.random.seed(1)
        self.keys = cupy.random.randint(-(1 << 31), 1 << 31, n, dtype=SORTED)
        ones = self.keys & 15 == 0  # few of them, as float32 has no odd sums from 2^24 on
        self.summed = ones.astype(SUMMED)
        self.before = cupy.zeros(n + 1, np.int32)  # sums of all that is before
        cupy.cumsum(ones, dtype=np.int32, out=self.before[1:])
        self.values = cupy.arange(n, dtype=SORTED)
        self.out, self.out_values = cupy.empty_like(self.keys), cupy.empty_like(self.values)

    def is_right(self, what: str, given: Layout, sums: Any) -> bool:
        """Compare what was written with what is right: sums in `sums`, all else in the outputs."""
        cupy, n = self.cupy, given.num_items
        if what == "sum":
            right = self.before[given.ends] - self.before[given.starts]
            return bool((sums == right.astype(SUMMED)).all())
        heads = cupy.zeros(n + 1, np.int32)
        cupy.add.at(heads, given.starts, 1)  # several of empty ones begin at one place
        segment = cupy.cumsum(heads[:n], dtype=np.int32) - 1
        if what == "scan":
            right = self.before[1 : n + 1] - self.before[given.starts[segment]]
            return bool((self.out[:n].view(SUMMED) == right.astype(SUMMED)).all())
        out, inside = self.out[:n], segment[1:] == segment[:-1]
        less = out[1:] >= out[:-1]
        if what != "pairs":
            # Sums of each segment tell of keys that are lost, as products with odd numbers do of most else.
            mixed = [self._mixed_sums(each[:n], given) for each in (self.keys, out)]
            return bool((less | ~inside).all()) and bool((mixed[0] == mixed[1]).all())
        where = self.out_values[:n]
        # Places that grow where keys are equal are different ones, and stable.
        less = (out[1:] > out[:-1]) | (less & (where[1:] > where[:-1]))
        begins, behind = given.starts[segment], given.ends[segment]
        return (
            bool((less | ~inside).all())
            and bool(((where >= begins) & (where < behind)).all())
            and bool((self.keys[:n][where] == out).all())
        )

    def _mixed_sums(self, keys: Any, given: Layout) -> Any:
        mixed = keys.astype(np.int64)
        mixed *= 0x9E3779B97F4A7C1
        mixed ^= mixed >> 29
        sums = self.cupy.zeros(len(mixed) + 1, np.int64)
        self.cupy.cumsum(mixed, out=sums[1:])
        return sums[given.ends] - sums[given.starts]


class Case:
    """What is done to segments of one layout, and how each side is called."""

    sides, checked = SIDES, SIDES[:2]

    def __init__(self, data: Data, what: str, given: Layout, algorithms: Mapping[Any, Any]) -> None:
        self.gpu = self.data = data
        self.what, self.given = what, given
        self._algorithms = algorithms
        n = given.num_segments
        self.nbytes = BYTES[what] * given.num_items + (4 * n if what == "sum" else 0)
        self.sums = data.cupy.empty(n, SUMMED) if what == "sum" else None

    def _algorithm(self, side: str, has_offsets: bool) -> Any:
        found = self._algorithms.get((side, self.what, has_offsets))
        if found is None:
            raise LookupError(f"{side} is not installed, or has none")
        if isinstance(found, Exception):
            raise found
        return found

    def _arrays(self) -> dict[str, Any]:
        data = self.data
        if self.what == "sum":
            return {"d_in": data.summed, "d_out": self.sums}
        if self.what == "scan":
            return {"d_in": data.summed, "d_out": data.out.view(SUMMED)}
        has_values = self.what == "pairs"
        return {
            "d_in_keys": data.keys,
            "d_out_keys": data.out,
            "d_in_values": data.values if has_values else None,
            "d_out_values": data.out_values if has_values else None,
            "num_items": self.given.num_items,
        }

    def prepare(self, side: str) -> Launch:
        """Return a call of a side."""
        launch: Launch = (self.compute if side == "cuda.compute" else getattr(self, side))()
        return launch

    def cupar(self) -> Launch:
        """Return a call of cupar's, with temporary storage."""
        given, init = self.given, {"h_init": np.zeros(1, SUMMED)} if self.what == "sum" else {}
        is_rows = given.kind == "rows"
        segments = {"start_offsets_in": given.starts, "end_offsets_in": given.ends}
        if is_rows:
            segments = {"start_offsets_in": None, "end_offsets_in": None, "segment_size": given.mean}
        named = {**self._arrays(), "num_segments": given.num_segments, **segments, **init}
        return self.data.stored(self._algorithm("cupar", not is_rows), named)

    def compute(self) -> Launch:
        """Return a call of cuda.compute's, with temporary storage."""
        algorithm = self._algorithm("cuda.compute", True)
        import cuda.compute

        given = self.given
        named = {**self._arrays(), "num_segments": given.num_segments}
        named |= {"start_offsets_in": given.starts, "end_offsets_in": given.ends}
        if self.what == "sum":
            named |= {"op": cuda.compute.OpKind.PLUS, "h_init": np.zeros(1, SUMMED)}
        return self.data.stored(algorithm, named)

    def torch(self) -> Launch:
        """Return what PyTorch has for it."""
        data, given, torch = self.data, self.given, self.data.torch
        if torch is None:
            raise ImportError("PyTorch is not installed")
        n, is_rows = given.num_items, given.kind == "rows"
        if self.what == "keys-by-op" or (self.what != "sum" and not is_rows):
            raise LookupError("PyTorch scans and sorts rows alone, and in their order")
        items = data.tensor((data.summed if self.what in ("sum", "scan") else data.keys)[:n])
        if not is_rows:
            bounds = data.tensor(data.cupy.concatenate([given.starts, given.ends[-1:]]))
            return lambda: torch.segment_reduce(items, "sum", offsets=bounds, initial=0, unsafe=True)
        matrix = items.view(-1, given.mean)
        if self.what == "sum":
            sums = data.tensor(self.sums)
            return lambda: torch.sum(matrix, 1, out=sums)
        if self.what == "scan":
            scanned = data.tensor(data.out[:n].view(SUMMED)).view(-1, given.mean)
            return lambda: torch.cumsum(matrix, 1, out=scanned)
        return lambda: torch.sort(matrix, dim=1)  # with int64 for where keys were: there is none without

    def copy(self) -> Launch:
        """Return a copy that reads and writes so many bytes, both together."""
        return self.data.copy(self.nbytes)

    def check(self, launch: Launch) -> bool:
        """Call a side that writes to the outputs, and compare them with what is right."""
        for each in (self.sums, self.data.out, self.data.out_values):
            if each is not None:
                each.view(np.uint8).fill(0xA5)
        launch()
        return self.data.is_right(self.what, self.given, self.sums)


# --- Table and file --------------------------------------------------------------------------------------

TABLE = Table(
    "segments",
    {"": 10, "lengths": 7, "mean": 6},
    {"copy": ("copy", 3), "cuda.compute": ("stock", 2), "torch": ("torch", 2)},
    goal_width=18,
)


def told(case: Case, sides: Sequence[Side]) -> dict[str, Any]:
    """Return what there is to tell of a case."""
    given = case.given
    named = {
        "what": case.what,
        "layout": given.kind,
        "mean": given.mean,
        "items": given.num_items,
        "segments": given.num_segments,
        "longest": given.longest,
    }
    goal = GOALS.get((case.what, given.kind), {}).get(given.mean)
    return turns.told(case, sides, goal, **named)


def print_told(case: Mapping[str, Any]) -> None:
    """Print a line of the table, and what failed."""
    TABLE.print((case["what"].replace("-", " "), case["layout"], str(case["mean"] or "-")), case)


def cases(options: argparse.Namespace) -> Iterator[tuple[str, int, str]]:
    """Return layouts, means and what is done to their segments, in the order in which they are measured."""
    for kind in options.layouts:
        for mean in MEANS if kind in MEANS_OF else (0,):
            if mean <= 1 << options.exponent:
                for what in options.only:
                    if what != "keys-by-op" or kind in ("rows", "equal"):
                        yield kind, mean, what


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = turns.parser(__doc__, "segments", WHATS, seconds=60, jobs=9)
    parser.add_argument(
        "--layouts", type=turns.some(LAYOUTS), default=list(LAYOUTS), help=f"of {','.join(LAYOUTS)}"
    )
    return parser.parse_args(given)


def main() -> None:
    """Measure, print and write."""
    start = time.perf_counter()
    options = arguments()
    device, facts = _common.needed_gpu()
    algorithms = built(options.only, device["cc"], options.jobs)
    print(f"\nbuilt after {time.perf_counter() - start:.0f} s\n")
    # These bring NVRTC with them, and the first that is loaded serves all in the process.
    cupy = importlib.import_module("cupy")
    data = Data(cupy, optional("torch"), options.exponent)
    laid_out = lru_cache(1)(partial(layout, cupy, exponent=options.exponent))

    def measured(kind: str, mean: int, what: str) -> dict[str, Any]:
        case = Case(data, what, laid_out(kind, mean), algorithms)
        found = told(case, measure(case, options.repeats))
        print_told(found)
        return found

    TABLE.fill(cases(options), measured, options, start, facts)


if __name__ == "__main__":
    main()
