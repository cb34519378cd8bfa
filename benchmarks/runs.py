"""GPU time of algorithms on runs of equal keys, and of top-k: cupar, CUB in C++, PyTorch, and a copy.

    python benchmarks/runs.py [--exponent 28] [--only reduce,inclusive,exclusive,encode,top,top-rows]
                              [--repeats 9] [--seconds 45] [--jobs N] [--json FILE]

It needs a GPU and CuPy; without nvcc or PyTorch, the columns of CUB or PyTorch are empty. Of 2^28 items,

* reduce, inclusive, exclusive and encode are `reduce_by_key` and the scans by key, with plus, of float32
  values by int32 keys, and `run_length_encode` of the keys. Lengths of runs are random, a geometric
  distribution with a mean of 4, 64 or 4,096. CUB's are those in runs.cu, compiled with cuda-cccl's headers;
* top is `top_k`, the largest 10, 1,000 and 2^20 of float32 and where they are, as int64; and top-rows is
  `segmented_top_k`, the largest 8 and 64 of each row of 1,024 and of 65,536. PyTorch's is `torch.topk`.

All take turns, as _turns.py says, and with them a device-to-device copy of as many bytes as must at least be
read and written; tables give medians.

What cupar and CUB write is compared with what is right before it is timed, every item of it: values are
small integers, so their sums are exact, and of equal keys the first are chosen. PyTorch, which may choose
others, is not compared. All is built before, by several processes, while nvcc compiles.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from ctypes import byref, c_int, c_size_t, c_void_p
from functools import partial
from pathlib import Path
from typing import Any

import _common
import _turns as turns
import numpy as np
from _turns import Gpu, Launch, Side, Table, measure
from call_overhead import cub_headers, find_nvcc
from throughput import attempted, optional

sys.path.insert(0, str(_common.ROOT))

BY_KEY = {  # with CUB's name
    "reduce": "reduce_by_key",
    "inclusive": "inclusive_scan_by_key",
    "exclusive": "exclusive_scan_by_key",
    "encode": "run_length_encode",
}
WHATS = (*BY_KEY, "top", "top-rows")
MEANS = (4, 64, 4096)
TOPS = (10, 1000, 1 << 20)
ROWS = ((1024, 8), (1024, 64), (65536, 8), (65536, 64))  # items of a row, and how many of them
SIDES = ("cupar", "CUB", "torch", "copy")
KEY, VALUE, COUNT, PLACE = np.dtype("i4"), np.dtype("f4"), np.dtype("i4"), np.dtype("i8")

# What is asked of cupar: of the algorithms on runs the multiple of CUB's speed.
GOALS: Mapping[str, tuple[str, float]] = dict.fromkeys(BY_KEY, ("CUB", 0.98))

# --- Builds ----------------------------------------------------------------------------------------------


def of_cupar(what: str, cc: int) -> Any:
    """Ask cupar for an algorithm."""
    import cupar

    plus = cupar.OpKind.PLUS
    if what == "reduce":
        return cupar.reduce_by_key(KEY, KEY, VALUE, VALUE, COUNT, plus, cc=cc)
    if what == "inclusive":
        return cupar.inclusive_scan_by_key(KEY, VALUE, VALUE, plus, cc=cc)
    if what == "exclusive":
        return cupar.exclusive_scan_by_key(KEY, VALUE, VALUE, plus, np.zeros(1, VALUE), cc=cc)
    if what == "encode":
        return cupar.run_length_encode(KEY, KEY, COUNT, COUNT, cc=cc)
    make = cupar.top_k if what == "top" else cupar.segmented_top_k
    return make(VALUE, VALUE, cupar.CountingIterator(np.int64(0)), PLACE, cc=cc)


def _build(what: str, cc: int) -> None:
    """Build in a helper process, for the cache."""
    try:
        of_cupar(what, cc)
    except Exception as error:  # whatever a compiler raises; it is tried once more where it is wanted
        print(f"cupar, {what}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)


def built(whats: Sequence[str], cc: int, jobs: int) -> tuple[dict[str, Any], Any]:
    """Return cupar's algorithms by what they do, and CUB's library; exceptions where there are none."""
    with compiled_beside(__file__, cc, bool(set(whats) & set(BY_KEY))) as library:
        with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
            list(pool.map(partial(_build, cc=cc), whats))
        cub = library()
    return {what: attempted(partial(of_cupar, what, cc)) for what in whats}, cub


@contextmanager
def compiled_beside(script: str, cc: int, is_wanted: bool = True) -> Iterator[Callable[[], Any]]:
    """Have nvcc compile the .cu beside a script; give what waits for the library, or the exception."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(script).with_suffix(".cu"), Path(folder) / "cub.so"
        compiler = attempted(partial(compiling, source, library, cc)) if is_wanted else None
        yield partial(attempted, partial(loaded, compiler, library))


def compiling(source: Path, library: Path, cc: int) -> subprocess.Popen[str]:
    """Start nvcc, which makes a library of C++ with CUB."""
    nvcc = find_nvcc()
    if nvcc is None:
        raise LookupError("there is no nvcc here")
    options = ["-O3", "-std=c++17", f"-arch=sm_{cc}", "--shared", "-Xcompiler", "-fPIC"]
    includes = [f"-I{header}" for header in cub_headers()]
    command = [nvcc, *options, *includes, "-o", str(library), str(source)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def loaded(compiler: Any, library: Path) -> ctypes.CDLL:
    """Wait for nvcc, and load what it made."""
    if not isinstance(compiler, subprocess.Popen):
        raise compiler or LookupError("nothing was compiled")
    said, _ = compiler.communicate()
    if compiler.returncode:
        raise RuntimeError(f"nvcc failed: {said[-1500:]}")
    return ctypes.CDLL(str(library))


def of_cub(gpu: Gpu, function: Any, given: Sequence[Any]) -> Launch:
    """Return a call of a function of CUB's with temporary storage; `given` is what comes between."""
    stream = c_void_p(gpu.cupy.cuda.get_current_stream().ptr)
    size = c_size_t()

    def call(temp: c_void_p | None) -> None:
        error = function(temp, byref(size), *given, stream)
        if error:
            raise RuntimeError(f"CUB returned error {error}")

    call(None)
    storage = gpu.cupy.empty(max(size.value, 1), np.uint8)

    def launch() -> None:  # which keeps the storage
        call(gpu.pointer(storage))

    return launch


# --- Data ------------------------------------------------------------------------------------------------


class Runs(Gpu):
    """Keys in runs, and their values, which all algorithms of one mean length share.

    Parameters
    ----------
    cupy, torch : modules
    exponent : int
    mean : int
        Of the lengths of runs.
    """

    def __init__(self, cupy: Any, torch: Any, exponent: int, mean: int) -> None:
        super().__init__(cupy, torch)
        self.n = n = 1 << exponent
        self.mean = mean
        cupy.random.seed(mean)
        begins = cupy.random.randint(0, mean, n, dtype=np.int32) == 0
        begins[0] = False  # so that a run's number is its key
        self.keys = cupy.cumsum(begins, dtype=KEY)
        begins[0] = True
        self.starts = cupy.flatnonzero(begins)
        self.num_runs = len(self.starts)
        values = cupy.random.randint(0, 5, n, dtype=np.int32)
        self.values = values.astype(VALUE)
        self.before = cupy.zeros(n + 1, np.int32)  # sums of all that is before; differences are right anyway
        cupy.cumsum(values, dtype=np.int32, out=self.before[1:])
        self.unique, self.out = cupy.empty_like(self.keys), cupy.empty_like(self.values)
        self.counted = cupy.empty(1, COUNT)

    def is_right(self, what: str) -> bool:
        """Compare what is in the outputs with what is right."""
        cupy, n, m = self.cupy, self.n, self.num_runs
        ends = cupy.concatenate([self.starts[1:], cupy.asarray([n], self.starts.dtype)])
        if what in ("inclusive", "exclusive"):
            reached = self.before[1:] if what == "inclusive" else self.before[:-1]
            right = reached - self.before[self.starts[self.keys]]
            return bool((self.out == right.astype(VALUE)).all())
        if what == "reduce":
            wrong = self.out[:m] != (self.before[ends] - self.before[self.starts]).astype(VALUE)
        else:
            wrong = self.out.view(COUNT)[:m] != ends - self.starts
        is_unique = bool((self.unique[:m] == self.keys[self.starts]).all())
        return int(self.counted[0]) == m and is_unique and not bool(wrong.any())


class Keys(Gpu):
    """Keys of which the largest are to be found.

    Parameters
    ----------
    cupy, torch : modules
    exponent : int
    """

    def __init__(self, cupy: Any, torch: Any, exponent: int) -> None:
        super().__init__(cupy, torch)
        self.n = 1 << exponent
        cupy.random.seed(1)
        # Of 2^24 values, so that some of them are equal.
        self.keys = cupy.random.randint(-(1 << 23), 1 << 23, self.n, dtype=np.int32).astype(VALUE)

    def is_right(self, size: int, found: Any, places: Any) -> bool:
        """Compare the largest of each row of so many, and where they are, with what is right.

        They are, if they are those items, in order, and as many as come no later than the last of them do.
        """
        cupy, rows = self.cupy, self.n // size
        begins = cupy.arange(rows, dtype=PLACE)[:, None] * size
        if not bool(((places >= begins) & (places < begins + size)).all()):
            return False
        one, other = found[:, :-1], found[:, 1:]
        is_later = (one > other) | ((one == other) & (places[:, :-1] < places[:, 1:]))
        matrix, last = self.keys.reshape(rows, size), found[:, -1:]
        inside = cupy.arange(size, dtype=np.int32)[None, :]
        is_first = matrix == last
        is_first &= inside <= (places[:, -1:] - begins).astype(np.int32)
        is_first |= matrix > last
        return (
            bool((self.keys[places] == found).all())
            and bool(is_later.all())
            and bool((cupy.count_nonzero(is_first, axis=1) == found.shape[1]).all())
        )


# --- Who is measured -------------------------------------------------------------------------------------


class ByKey:
    """An algorithm on runs, and how each side is called."""

    sides, checked = SIDES, SIDES[:2]

    def __init__(self, gpu: Runs, what: str, algorithm: Any, cub: Any) -> None:
        self.gpu, self.what = gpu, what
        self._algorithm, self._cub = algorithm, cub
        n, m = gpu.n, gpu.num_runs
        self.nbytes = {"reduce": 8 * n + 8 * m + 4, "encode": 4 * n + 8 * m + 4}.get(what, 12 * n)
        self.told = {"items": n, "mean": gpu.mean, "runs": m}
        self.label = f"runs of {gpu.mean}"

    def _arrays(self) -> dict[str, Any]:
        """Return the arrays by cupar's names, in the order of cupar and CUB."""
        gpu = self.gpu
        keys = {"d_in" if self.what == "encode" else "d_in_keys": gpu.keys}
        if self.what == "reduce":
            outputs = {"d_out_aggregates": gpu.out, "d_out_num_runs": gpu.counted}
            return {**keys, "d_out_unique": gpu.unique, "d_in_values": gpu.values, **outputs}
        if self.what == "encode":
            outputs = {"d_out_counts": gpu.out.view(COUNT), "d_out_num_runs": gpu.counted}
            return {**keys, "d_out_unique": gpu.unique, **outputs}
        return {**keys, "d_in_values": gpu.values, "d_out_values": gpu.out}

    def prepare(self, side: str) -> Launch:
        """Return a call of a side."""
        if side == "copy":
            return self.gpu.copy(self.nbytes)
        if side == "torch":
            raise LookupError("PyTorch has no such thing")
        found = self._algorithm if side == "cupar" else self._cub
        if isinstance(found, Exception):
            raise found
        if side == "CUB":
            return self._of_cub()
        initial = {"h_init": np.zeros(1, VALUE)} if self.what == "exclusive" else {}
        return self.gpu.stored(found, {**self._arrays(), "num_items": self.gpu.n, **initial})

    def _of_cub(self) -> Launch:
        function = getattr(self._cub, f"cub_{BY_KEY[self.what]}")
        given = *(self.gpu.pointer(each) for each in self._arrays().values()), c_int(self.gpu.n)
        return of_cub(self.gpu, function, given)

    def check(self, launch: Launch) -> bool:
        """Call a side that writes to the outputs, and compare them with what is right."""
        gpu = self.gpu
        for each in (gpu.unique, gpu.out, gpu.counted):
            each.view(np.uint8).fill(0xA5)
        launch()
        return gpu.is_right(self.what)


class Top:
    """The largest k of all items, or of each row of so many, and how each side is called."""

    sides, checked = SIDES, SIDES[:1]

    def __init__(self, gpu: Keys, what: str, size: int, k: int, algorithm: Any) -> None:
        self.gpu, self.what = gpu, what
        self._algorithm, self._size, self._k = algorithm, size, k
        self._rows = gpu.n // size
        self.found = gpu.cupy.empty((self._rows, k), VALUE)
        self.places = gpu.cupy.empty((self._rows, k), PLACE)
        self.nbytes = 4 * gpu.n + 12 * self._rows * k
        self.told = {"items": gpu.n, "rows": self._rows, "k": k}
        self.label = f"k = {k}" + (f" of {size}" if what == "top-rows" else "")

    def prepare(self, side: str) -> Launch:
        """Return a call of a side."""
        gpu, k = self.gpu, self._k
        if side == "copy":
            return gpu.copy(self.nbytes)
        if side == "CUB":
            raise LookupError("what CUB finds is in no order")
        if side == "torch":
            matrix = gpu.tensor(gpu.keys).view(self._rows, self._size)
            return lambda: gpu.torch.topk(matrix, k, dim=1)
        if isinstance(self._algorithm, Exception):
            raise self._algorithm
        import cupar

        outputs = {"d_out_keys": self.found.reshape(-1), "d_out_values": self.places.reshape(-1)}
        inputs = {"d_in_keys": gpu.keys, "d_in_values": cupar.CountingIterator(np.int64(0))}
        named = {**inputs, **outputs, "num_items": gpu.n, "k": k}
        if self.what == "top-rows":
            named |= {"num_segments": self._rows, "segment_size": self._size}
        return gpu.stored(self._algorithm, named)

    def check(self, launch: Launch) -> bool:
        """Call a side that writes to the outputs, and compare them with what is right."""
        for each in (self.found, self.places):
            each.view(np.uint8).fill(0xA5)
        launch()
        return self.gpu.is_right(self._size, self.found, self.places)


def names(whats: Sequence[str], exponent: int) -> Iterator[tuple[str, int, int]]:
    """Return what is done, to which mean or row, and the k of top-k, in the order in which it is measured."""
    n = 1 << exponent
    yield from ((what, mean, 0) for mean in MEANS for what in whats if what in BY_KEY)
    if "top" in whats:
        yield from (("top", n, k) for k in TOPS if k <= n)
    if "top-rows" in whats:
        yield from (("top-rows", size, k) for size, k in ROWS if size <= n)


class Cases:
    """Makes cases, with the data of the last one if it is the same.

    Parameters
    ----------
    cupy, torch : modules
    exponent : int
    algorithms : mapping of str to algorithms
        Cupar's, by what they do.
    cub : library
        Or an exception, as any of the algorithms.
    """

    def __init__(self, cupy: Any, torch: Any, exponent: int, algorithms: Mapping[str, Any], cub: Any) -> None:
        self._modules, self._exponent = (cupy, torch), exponent
        self._algorithms, self._cub = algorithms, cub
        self._data: Any = None

    def make(self, what: str, size: int, k: int) -> ByKey | Top:
        """Return a case: what is done, the mean or the row, and the k of top-k."""
        algorithm = self._algorithms[what]
        if what in BY_KEY:
            if not isinstance(self._data, Runs) or self._data.mean != size:
                self._free()
                self._data = Runs(*self._modules, self._exponent, size)
            return ByKey(self._data, what, algorithm, self._cub)
        if not isinstance(self._data, Keys):
            self._free()
            self._data = Keys(*self._modules, self._exponent)
        return Top(self._data, what, size, k, algorithm)

    def _free(self) -> None:
        self._data = None
        self._modules[0].get_default_memory_pool().free_all_blocks()


# --- Table and file --------------------------------------------------------------------------------------

TABLE = Table(
    "runs", {"": 9, " ": 15}, {"copy": ("copy", 3), "CUB": ("CUB", 3), "torch": ("torch", 2)}, goal_width=12
)


def told(case: ByKey | Top, sides: Sequence[Side]) -> dict[str, Any]:
    """Return what there is to tell of a case."""
    return turns.told(case, sides, GOALS.get(case.what), what=case.what, label=case.label, **case.told)


def print_told(case: Mapping[str, Any]) -> None:
    """Print a line of the table, and what failed."""
    TABLE.print((case["what"], case["label"]), case)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    return turns.parser(__doc__, "runs", WHATS, seconds=45, jobs=6).parse_args(given)


def main() -> None:
    """Measure, print and write."""
    start = time.perf_counter()
    options = arguments()
    device, facts = _common.needed_gpu()
    algorithms, cub = built(options.only, device["cc"], options.jobs)
    version = cub.cub_version() if isinstance(cub, ctypes.CDLL) else 0
    text = f"{version // 100_000}.{version // 100 % 1000}.{version % 100}" if version else f"none, {cub}"
    print(f"\nbuilt after {time.perf_counter() - start:.0f} s; CUB: {text}\n")
    # These bring NVRTC with them, and the first that is loaded serves all in the process.
    cupy, torch = importlib.import_module("cupy"), optional("torch")
    cases = Cases(cupy, torch, options.exponent, algorithms, cub)

    def measured(what: str, size: int, k: int) -> dict[str, Any]:
        case = cases.make(what, size, k)
        found = told(case, measure(case, options.repeats))
        print_told(found)
        return found

    TABLE.fill(names(options.only, options.exponent), measured, options, start, facts, cub=text)


if __name__ == "__main__":
    main()
