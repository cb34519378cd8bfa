"""GPU time of every algorithm of single arrays: cupar, stock CCCL (cuda.compute), PyTorch, CuPy, and a copy.

    python benchmarks/throughput.py [--sizes 10,14,20,28] [--dtypes float32,int32] [--only NAME,NAME]
                                    [--repeats 9] [--launch stream] [--seconds 240] [--jobs N] [--json FILE]
    python benchmarks/throughput.py --plot FILE

It needs a GPU and CuPy; without cuda.compute or PyTorch their columns are empty. Sizes are powers of two. The
second form draws the plot of a JSON file again, beside it, without a GPU.

All work on the same arrays, which are at hand before, as is temporary storage where an algorithm takes it.
cupar and cuda.compute get the same operators: an OpKind or, where there is none, a Python lambda for cupar,
and the same in C++ as a RawOp for cuda.compute, which may have no compiler for Python functions. They take
turns, sample by sample, A B C A B C, so that all see the same clocks, and with them a device-to-device copy
that reads and writes as many bytes together as the algorithm must at least. Tables give medians.

What is measured is the GPU's time of a call, between two CUDA events, and never the host's:

* calls of a millisecond and more are enqueued one after another behind a kernel that keeps the GPU busy;
* shorter ones are captured into a CUDA graph of 64 calls, or 8 from 50 us on, and that is launched behind
  such a kernel. So the gap between one call's kernels and the next one's is that of a graph, for all sides
  alike, and small arrays stay in the L2 cache;
* with ``--launch stream`` these, too, are enqueued one after another, behind a kernel that runs for as long
  as the host takes. cupar launches a graph for each call then, and others their kernels;
* what waits for the GPU within the call, as a selection by PyTorch does, whose result is as long as need be,
  is enqueued as it comes: its time has the host's in it, and a ``w`` beside it.

A line in which cupar seems slower than stock CCCL is measured for three times as long.

What cupar and cuda.compute write is compared with what is right, every item of it, exactly, before they are
timed, and what the others return, too: sums are of small integers, and stay small, so that they are exact in
any order and dtype. Everything is built before, by several processes.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import inspect
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import _algorithms
import _common
import numpy as np
from _algorithms import ROWS, Given, Row

SIZES = (10, 12, 14, 16, 18, 20, 24, 28)  # powers of two
WARM_UP = 0.02  # seconds: an idle GPU takes a while to raise its clocks
SAMPLE = 0.01  # seconds that a sample of calls one after another should take
MOST_LAUNCHES = 10  # in such a sample
LARGE_COPY = 1 << 26  # bytes
GRAPH_CALLS = ((50e-6, 64), (1e-3, 8))  # below so many seconds, so many calls in a graph
STREAM_CALLS = 32  # of up to 30 kernels, as the driver's queue has room for about 1,024
BUSY, MOST_BUSY = 1e-4, 0.05  # seconds that the GPU is kept busy, at first and at most
SLOW = 0.02  # seconds of a call: whoever takes longer takes part in every third round
GPU_CLOCK = 2  # cycles in a nanosecond, about
LEAST = 0.98  # of stock CCCL's speed
MOST_LISTED = 100  # lines that are slower

SIDES = ("cupar", "cuda.compute", "torch", "cupy", "copy")
OBJECTS = SIDES[:2]  # which write to the arrays they are given

# What is asked of cupar: by row, dtype and size, the multiple of another's speed. What it is a multiple of is
# "copy", the copy's bytes in a second, or who else does the same.
GOALS: tuple[tuple[str, str, int, str, float], ...] = (
    *(("inclusive_scan", dtype, 28, "copy", 0.85) for dtype in _algorithms.FOUR),
    *(("inclusive_scan_lambda", dtype, 28, "copy", 0.85) for dtype in _algorithms.FOUR),
    ("inclusive_scan", "float16", 28, "copy", 0.65),
    ("inclusive_scan", "int16", 28, "copy", 0.65),
    ("inclusive_scan", "complex64", 28, "copy", 0.83),
    ("inclusive_scan", "complex128", 28, "copy", 0.70),
    ("unique_by_key", "int32", 28, "copy", 0.72),
    ("histogram_even", "int32", 28, "copy", 1.0),
    ("histogram_even_uniform", "uint8", 28, "copy", 0.88),
    ("histogram_even_skewed", "uint8", 28, "copy", 0.88),
    ("select", "float32", 28, "copy", 0.70),
    ("three_way_partition", "float32", 28, "copy", 0.64),
    ("lower_bound_sorted", "float32", 28, "copy", 0.80),
    ("lower_bound", "float32", 28, "cuda.compute", 4.5),
    ("lower_bound", "float32", 28, "torch", 4.5),
    ("lower_bound_small", "float32", 28, "cuda.compute", 2.0),
    ("lower_bound_small", "float32", 28, "torch", 2.0),
    ("radix_sort_values", "int32", 28, "cuda.compute", 1.13),
    ("reduce_into", "float32", 14, "cuda.compute", 1.3),
)

# --- Builds ----------------------------------------------------------------------------------------------


def _stock(name: str, dtype: str, cc: int) -> tuple[bytes, str]:
    """Build with cuda.compute, in a helper process; return the build as bytes, or why there is none."""
    try:
        built: bytes = _algorithms.of_compute(name, dtype, cc).serialize()
        return built, ""
    except Exception as error:  # whatever a compiler raises
        return b"", f"{type(error).__name__}: {str(error)[:300]}"


def attempted(make: Callable[[], Any]) -> Any:
    """Return what is made, or the exception that is raised, whatever it is: others are to be measured."""
    try:
        return make()
    except Exception as error:
        return error


class Builds:
    """All algorithms of both, built ahead by several processes.

    Parameters
    ----------
    rows : sequence of pair of str
        Names and dtypes.
    cc : int
        Compute capability, as in 90.
    jobs : int
        Processes; 0: everything is built here, once it is asked for.
    """

    def __init__(self, rows: Sequence[tuple[str, str]], cc: int, jobs: int) -> None:
        self._cc = cc
        self._stock: dict[tuple[str, str], tuple[bytes, str]] = {}
        self._made: dict[tuple[str, str], dict[str, Any]] = {}
        self.seconds: dict[str, float] = {}
        has_compute = _common.is_installed("cuda.compute")
        if not jobs:
            return
        start = time.perf_counter()
        each = max(1, jobs // 2) if has_compute else jobs
        ahead = self._start_cupar(rows, each)
        if has_compute:
            self._build_stock(rows, each)
            self.seconds["cuda.compute"] = time.perf_counter() - start
        out, _ = ahead.communicate()
        self.seconds["cupar"] = time.perf_counter() - start
        if ahead.returncode:
            print(f"cupar build: exit status {ahead.returncode}\n{out[-2000:].strip()}")

    def _start_cupar(self, rows: Sequence[tuple[str, str]], jobs: int) -> subprocess.Popen[str]:
        words = [word for row in rows for word in row]
        command = [sys.executable, "-m", "cupar", "build", _algorithms.__file__, "--cc", str(self._cc)]
        command += ["--jobs", str(jobs), "--", *words]
        path = os.pathsep.join(filter(None, [str(_common.ROOT), os.environ.get("PYTHONPATH", "")]))
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, **pipes)

    def _build_stock(self, rows: Sequence[tuple[str, str]], jobs: int) -> None:
        # In histograms and searches only the data differ between some rows, but that is all the same to this.
        try:
            with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
                futures = {row: pool.submit(_stock, *row, self._cc) for row in rows}
                for row, future in futures.items():
                    self._stock[row] = future.result()
        except Exception as error:  # a process crashed: the rest is built here
            print(f"cuda.compute: {type(error).__name__}: {error}")

    def get(self, name: str, dtype: str) -> dict[str, Any]:
        """Return the objects of both, or the exceptions why there is none."""
        row = (name, dtype)
        if row not in self._made:
            makers = {
                "cupar": partial(_algorithms.of_cupar, *row, self._cc),
                "cuda.compute": partial(self._compute, row),
            }
            made: dict[str, Any] = {}
            for side, make in makers.items():
                made[side] = attempted(make)
            self._made[row] = made
        return self._made[row]

    def _compute(self, row: tuple[str, str]) -> Any:
        import cuda.compute

        blob, error = self._stock.get(row, (b"", ""))
        if error:
            raise RuntimeError(error)
        return cuda.compute.deserialize(blob) if blob else _algorithms.of_compute(*row, self._cc)


# --- The GPU ---------------------------------------------------------------------------------------------

_SPIN = """
extern "C" __global__ void spin(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}
"""


class Gpu:
    """CuPy, a stream on which all is timed, and what keeps it busy."""

    def __init__(self, cupy: Any, torch: Any) -> None:
        self.cupy, self.torch = cupy, torch
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.handle: int = self.stream.ptr
        self.data = _algorithms.Data(cupy)
        self._spin = cupy.RawKernel(_SPIN, "spin")
        self._torch_stream = None if torch is None else torch.cuda.ExternalStream(self.handle)

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the stream, by CUDA's protocol."""
        return 0, self.handle

    def busy(self, seconds: float) -> None:
        """Keep the stream busy for some time."""
        with self.stream:
            self._spin((1,), (1,), (np.int64(seconds * 1e9 * GPU_CLOCK),))

    def wait(self) -> None:
        """Wait until all is done; raise what the GPU has to complain of."""
        self.cupy.cuda.runtime.deviceSynchronize()

    def current(self, side: str) -> AbstractContextManager[Any]:
        """Make the stream the current one of a library, for a block."""
        if side == "torch":
            found: AbstractContextManager[Any] = self.torch.cuda.stream(self._torch_stream)
            return found
        return self.stream if side == "cupy" else nullcontext()

    def tensors(self, arrays: Mapping[str, Any]) -> SimpleNamespace:
        """Return arrays as PyTorch's; it has no arithmetic for uint64."""

        def tensor(array: Any) -> Any:
            return self.torch.from_dlpack(array.view(np.int64) if array.dtype == np.uint64 else array)

        return SimpleNamespace(
            **{name: each if each is None else tensor(each) for name, each in arrays.items()}
        )

    def free(self) -> None:
        """Give back the memory that nobody uses, graphs and arrays in circles included."""
        gc.collect()
        self.cupy.get_default_memory_pool().free_all_blocks()
        if self.torch is not None:
            self.torch.cuda.empty_cache()


# --- Who is measured -------------------------------------------------------------------------------------

Launch = Callable[[], Any]  # enqueues one call, and may return its results


class Case:
    """A row for one dtype and size: its arrays, and how each side is called."""

    def __init__(self, gpu: Gpu, builds: Builds, name: str, dtype: str, exponent: int) -> None:
        self.row: Row = ROWS[name]
        self.name, self.dtype, self.exponent = name, np.dtype(dtype), exponent
        self.given: Given = self.row.data(gpu.data, self.dtype, 1 << exponent)
        self._gpu, self._builds = gpu, builds
        kinds = self.row.types(self.dtype, outputs_only=True)
        sizes = {each: right.size for each, right in self.given.expected.items()}
        for each in sizes:  # where not all is written, there is room for all
            if (
                self.row.algorithm in ("select", "three_way_partition", "unique_by_key")
                and "_num_" not in each
            ):
                sizes[each] = 1 << exponent
        self.outputs = {each: kind and gpu.cupy.empty(sizes[each], kind) for each, kind in kinds.items()}
        self.nbytes = self.given.nbytes

    def arrays(self) -> dict[str, Any]:
        """Return all arrays by cupar's names; those that are left out are None."""
        named = dict.fromkeys(self.row.types(self.dtype))
        return {**named, **self.given.inputs, **self.outputs}

    def _object(self, side: str) -> Any:
        found = self._builds.get(self.name, self.dtype.name)[side]
        if isinstance(found, Exception):
            raise found
        return found

    def cupar(self) -> Launch:
        """Return a call of cupar's object."""
        algorithm = self._object("cupar")
        call = partial(algorithm, **self.arrays(), **self.row.others(self.dtype), **self.given.counts)
        if "temp_storage" not in inspect.signature(algorithm.__call__).parameters:
            return partial(call, stream=self._gpu.handle)
        return partial(call, temp_storage=self._storage(call(temp_storage=None)), stream=self._gpu.handle)

    def compute(self) -> Launch:
        """Return a call of cuda.compute's object. Of an operator it takes the state alone: there is none."""
        import cuda.compute

        algorithm = self._object("cuda.compute")
        operators = dict.fromkeys(self.row.operators(self.dtype), cuda.compute.OpKind.PLUS)
        named = {**self.arrays(), **self.row.others(self.dtype)}
        given = _algorithms.named_by_compute(self.row, named)
        call = partial(algorithm, **given, **operators, **self.given.counts, stream=self._gpu)
        if self.row.algorithm.endswith(("_transform", "_bound")):
            return call
        return partial(call, temp_storage=self._storage(call(temp_storage=None)))

    def _storage(self, nbytes: int) -> Any:
        return self._gpu.cupy.empty(max(nbytes, 1), np.uint8)

    def cupy(self) -> Launch:
        """Return what CuPy has for it."""
        if self.row.cupy is None:
            raise LookupError("there is no such thing")
        return partial(self.row.cupy, self._gpu.cupy, SimpleNamespace(**self.arrays()))

    def torch(self) -> Launch:
        """Return what PyTorch has for it."""
        if self.row.torch is None or self._gpu.torch is None:
            raise LookupError("there is no such thing")
        return partial(self.row.torch, self._gpu.torch, self._gpu.tensors(self.arrays()))

    def copy(self) -> Launch:
        """Return a copy that reads and writes so many bytes, both together."""
        gpu, half = self._gpu, self.nbytes // 2
        runtime = gpu.cupy.cuda.runtime
        source, target = gpu.cupy.empty(half, np.uint8), gpu.cupy.empty(half, np.uint8)
        kind = runtime.memcpyDeviceToDevice

        def launch() -> None:  # which keeps both arrays
            runtime.memcpyAsync(target.data.ptr, source.data.ptr, half, kind, gpu.handle)

        return launch


class Side:
    """One who takes part in a case: until it fails, and then the others go on without it.

    Attributes
    ----------
    name : str
    error : str or None
        Why it failed.
    is_missing : bool
        Whether there is no such thing.
    is_right : bool or None
        Whether it wrote or returned what is right; None if that was not found out.
    waits : bool
        Whether its calls wait for the GPU.
    samples : list of float
        Seconds of a call.
    not_captured : str
        Why its calls are in no graph, though they are short.
    """

    def __init__(self, gpu: Gpu, case: Case, name: str) -> None:
        self.name = name
        self.error: str | None = None
        self.is_missing = False
        self.is_right: bool | None = None
        self.waits = name in case.row.waits
        self.samples: list[float] = []
        self.not_captured = ""
        self._gpu, self._case = gpu, case
        self._launches, self._calls = 1, 1  # in a sample, and in each of these
        self._busy = BUSY
        self._launch: Launch = lambda: None
        prepare = {"cuda.compute": case.compute}.get(name) or getattr(case, name)
        self._launch = self._attempt(prepare) or self._launch

    def _attempt(self, step: Callable[..., Any], *arguments: Any) -> Any:
        if self.error is not None:
            return None
        try:
            return step(*arguments)
        except Exception as error:  # whatever it is, others are to be measured
            self.is_missing = isinstance(error, (LookupError, ImportError)) and self.name != "cupar"
            self.error = f"{type(error).__name__}: {error}"
            return None

    def check(self) -> None:
        """Call it once, and compare what it wrote or returned with what is right."""
        self._attempt(self._check)

    def _check(self) -> None:
        case, gpu = self._case, self._gpu
        for output in case.outputs.values():
            if output is not None:
                output.view(np.uint8).fill(0xA5)
        gpu.wait()
        with gpu.current(self.name):
            returned = self._launch()
        gpu.wait()  # an error of a kernel is this side's
        if self.name == "copy":
            return
        if self.name in OBJECTS:
            results = [case.outputs[name] for name in case.given.expected]
        else:
            results = [gpu.cupy.asarray(each) for each in _tuple(returned)]
        pairs = zip(results, case.given.expected.values(), strict=False)
        self.is_right = all(bool((found.reshape(-1)[: right.size] == right).all()) for found, right in pairs)

    def estimate(self) -> float | None:
        """Return about how many seconds a call takes; None if that fails."""
        self.sample()
        return self.sample()

    def get_ready(self, seconds: float, is_graph: bool) -> None:
        """Choose how samples are taken, of calls that take about so many seconds."""
        self._launches = max(1, min(MOST_LAUNCHES, int(SAMPLE / seconds)))
        calls = next((calls for limit, calls in GRAPH_CALLS if seconds < limit), 1)
        if self.waits or self.error is not None:
            return
        # A copy of many bytes is slower in a graph than by itself: 2.7 TB/s and not 4.2, seen on an H200.
        if self.name == "copy" and self._case.nbytes > LARGE_COPY:
            is_graph = False
        if calls > 1 and is_graph:
            try:
                self._launch, self._calls = self._captured(calls), calls
                self._launches = 1
                return
            except Exception as error:  # whatever the libraries raise
                self.not_captured = f"{type(error).__name__}: {str(error)[:200]}"
                self._attempt(self._gpu.wait)
        if calls > 1:
            self._launches = STREAM_CALLS if calls == GRAPH_CALLS[0][1] else MOST_LAUNCHES
        self._busy = BUSY * (1 + self._launches / 8)

    def _captured(self, calls: int) -> Launch:
        launch, stream = self._launch, self._gpu.stream
        with self._gpu.current(self.name):
            stream.begin_capture()
            try:
                for _ in range(calls):
                    launch()
            finally:
                graph = stream.end_capture()
        graph.launch(stream)
        self._gpu.wait()
        return partial(graph.launch, stream)

    def sample(self) -> float | None:
        """Return the GPU's seconds for one call, the mean of a few; None if that fails."""
        found: float | None = self._attempt(self._sample)
        return found

    def _sample(self) -> float:
        gpu = self._gpu
        start, end = gpu.cupy.cuda.Event(), gpu.cupy.cuda.Event()
        while True:
            if not self.waits:
                gpu.busy(self._busy)
            with gpu.current(self.name):
                start.record(gpu.stream)
                for _ in range(self._launches):
                    self._launch()
                end.record(gpu.stream)
            was_late = start.done  # so the GPU may have waited for the host
            end.synchronize()
            if self.waits or not was_late:
                break
            self._busy *= 2
            self.waits = self._busy > MOST_BUSY  # it is the call that waited
        milliseconds: float = gpu.cupy.cuda.get_elapsed_time(start, end)
        return milliseconds * 1e-3 / (self._launches * self._calls)

    @property
    def median(self) -> float | None:
        """Seconds; None if it failed."""
        return statistics.median(self.samples) if self.samples and self.error is None else None

    def as_json(self) -> dict[str, Any]:
        """Return what there is to tell."""
        if self.median is None:
            return {"error": self.error, "is_missing": self.is_missing}
        return {
            "seconds": _common.summary(self.samples),
            "gb_per_second": self._case.nbytes / self.median * 1e-9,
            "calls_in_a_graph": self._calls,
            "not_captured": self.not_captured,
            "waits": self.waits,
            "is_right": self.is_right,
        }


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def measure(sides: Sequence[Side], repeats: int, is_graph: bool) -> None:
    """Let the sides take turns until each has its samples; those that are slow have a third of them."""
    estimates = {side.name: side.estimate() for side in sides}
    known = {name: seconds for name, seconds in estimates.items() if seconds}
    both = [known[name] for name in OBJECTS if name in known]
    for side in sides:
        if side.name in known:  # what is compared is measured in the same way
            side.get_ready(min(both) if side.name in OBJECTS else known[side.name], is_graph)
    stop = time.perf_counter() + WARM_UP
    while True:
        for side in sides:
            side.sample()
        if time.perf_counter() > stop:
            break
    slow = {name for name, seconds in known.items() if seconds > SLOW}
    take_turns(sides, repeats, slow)
    first, second = (next((side.median for side in sides if side.name == name), None) for name in OBJECTS)
    if first and second and second / first < LEAST:
        take_turns([side for side in sides if side.name in OBJECTS], 2 * repeats, slow)


def take_turns(sides: Sequence[Side], repeats: int, slow: Iterable[str]) -> None:
    """Take so many samples of each side, and of the slow ones a third."""
    for number in range(repeats):
        for side in sides:
            if number % 3 == 0 or side.name not in slow:
                seconds = side.sample()
                if seconds is not None:
                    side.samples.append(seconds)


# --- Table and file --------------------------------------------------------------------------------------

WIDTHS = (22, 10, 4, 10, 11, 8, 7, 8, 8, 8)
HEADINGS = ("algorithm", "dtype", "2^", "MB", "us", "GB/s", "of copy", "of stock", "of torch", "of CuPy")


def print_row(cells: Sequence[str]) -> None:
    """Print a line of the table at once, so that a run that is cut short has shown what it knew."""
    first, second, *others = cells
    numbers = [text.rjust(width) for text, width in zip(others, WIDTHS[2:], strict=True)]
    print("  ".join([first.ljust(WIDTHS[0]), second.ljust(WIDTHS[1]), *numbers]).rstrip(), flush=True)


def _number(value: float | None, digits: int, scale: float = 1.0) -> str:
    return "-" if value is None else f"{value * scale:.{digits}f}"


def told(case: Case, sides: Sequence[Side]) -> dict[str, Any]:
    """Return what there is to tell of a case: cupar's speed is a multiple of the others'."""
    by_name = {side.name: side for side in sides}
    mine = by_name["cupar"].median
    speeds = {
        name: None if mine is None or side.median is None else side.median / mine
        for name, side in by_name.items()
        if name != "cupar"
    }
    return {
        "name": case.name,
        "algorithm": case.row.algorithm,
        "dtype": case.dtype.name,
        "exponent": case.exponent,
        "bytes": case.nbytes,
        "sides": {side.name: side.as_json() for side in sides},
        "speed": speeds,
    }


def print_told(case: Mapping[str, Any]) -> None:
    """Print a line of the table, and what failed."""
    mine, sides = case["sides"]["cupar"], case["sides"]
    speeds = [_number(case["speed"][name], 2) + "w" * bool(sides[name].get("waits")) for name in SIDES[1:-1]]
    print_row(
        (
            case["name"],
            case["dtype"],
            str(case["exponent"]),
            _number(case["bytes"], 3, 1e-6),
            _number(mine.get("seconds", {}).get("median"), 2, 1e6),
            _number(mine.get("gb_per_second"), 0),
            _number(case["speed"]["copy"], 3),
            *speeds,
        )
    )
    for name, side in sides.items():
        if side.get("error") and not side["is_missing"]:
            print(f"    {name} failed: {side['error'][:200]}", flush=True)
        if side.get("is_right") is False:
            print(f"    {name} IS WRONG", flush=True)


class Bench:
    """Measures cases one after another, and keeps a file of what is known so far.

    Parameters
    ----------
    gpu : Gpu
    builds : Builds
    options : argparse.Namespace
    content : mapping of str to Any
        What the file has beside the cases.
    path : Path
        The file.
    """

    def __init__(
        self, gpu: Gpu, builds: Builds, options: argparse.Namespace, content: Mapping[str, Any], path: Path
    ) -> None:
        self.cases: list[dict[str, Any]] = []
        self.skipped: list[str] = []
        self.failures: list[str] = []
        self._gpu, self._builds, self._options = gpu, builds, options
        self._content, self._path = content, path

    def measure(self, rows: Iterable[tuple[str, str]], stop: float) -> None:
        """Measure rows at all sizes while there is time."""
        print()
        print_row(HEADINGS)
        print_row(["-" * width for width in WIDTHS])
        for name, dtype in rows:
            if time.perf_counter() > stop:
                self.skipped.append(f"{name} {dtype}")
                continue
            for exponent in self._options.sizes:
                self._measure(name, dtype, exponent)
                if exponent > 18:
                    self._gpu.free()
            self.save()

    def _measure(self, name: str, dtype: str, exponent: int) -> None:
        try:
            case = Case(self._gpu, self._builds, name, dtype, exponent)
        except Exception as error:  # out of memory, or the GPU is lost
            self.failures.append(f"{name} {dtype} 2^{exponent}: no arrays: {type(error).__name__}: {error}")
            print(f"{self.failures[-1][:200]}", flush=True)
            return
        sides = [Side(self._gpu, case, side) for side in SIDES]
        for side in sides:
            side.check()
        measure(sides, self._options.repeats, self._options.launch == "graph")
        found = told(case, sides)
        self.cases.append(found)
        print_told(found)
        mine = sides[0]
        if mine.error is not None:
            self.failures.append(f"{name} {dtype} 2^{exponent}: {mine.error[:300]}")
        elif mine.is_right is False:
            self.failures.append(f"{name} {dtype} 2^{exponent}: the result is wrong")

    def save(self) -> None:
        """Write the file: aside and then into place, so that it is whole whenever this process ends."""
        content = {
            **self._content,
            "build_seconds": self._builds.seconds,
            "cases": self.cases,
            "skipped": self.skipped,
            "failures": self.failures,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        aside = self._path.with_name(self._path.name + ".part")
        aside.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        aside.replace(self._path)


# --- Summary ---------------------------------------------------------------------------------------------


def print_speeds(cases: Sequence[Mapping[str, Any]]) -> None:
    """Print cupar's speed as a multiple of stock CCCL's: a line for each row, a column for each size."""
    exponents = sorted({case["exponent"] for case in cases})
    table: dict[tuple[str, str], dict[int, str]] = {}
    for case in cases:
        line = table.setdefault((case["name"], case["dtype"]), {})
        line[case["exponent"]] = _number(case["speed"]["cuda.compute"], 2)
    print("\ncupar's speed as a multiple of stock CCCL's\n")
    rows = [[" ".join(key), *(line.get(each, "") for each in exponents)] for key, line in table.items()]
    _common.print_table(("", *(f"2^{each}" for each in exponents)), rows)


def below(cases: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the lines in which cupar is slower than stock CCCL."""
    return [
        f"{case['name']} {case['dtype']} 2^{case['exponent']}: {speed:.3f}"
        for case in cases
        if (speed := case["speed"]["cuda.compute"]) is not None and speed < LEAST
    ]


def reached(cases: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """Return a line for each goal, with what was found."""
    found = {(case["name"], case["dtype"], case["exponent"]): case["speed"] for case in cases}
    lines = []
    for name, dtype, exponent, side, goal in GOALS:
        if (name, dtype, exponent) in found:
            speed = found[name, dtype, exponent][side]
            missed = "!" if speed is None or speed < goal else ""
            lines.append([f"{name} {dtype} 2^{exponent}", side, f"{goal}", _number(speed, 3), missed])
    return lines


def summarize(cases: Sequence[Mapping[str, Any]]) -> None:
    """Print all that is short."""
    print_speeds(cases)
    lines = reached(cases)
    if lines:
        print("\ngoals: cupar's speed as a multiple of another's\n")
        _common.print_table(("", "of", "at least", "found", ""), lines)
    slower = below(cases)
    print(f"\nbelow {LEAST} of stock CCCL: {len(slower)} of {len(cases)}")
    for start in range(0, min(len(slower), MOST_LISTED), 2):
        print("  " + "".join(text.ljust(48) for text in slower[start : start + 2]).rstrip())
    if len(slower) > MOST_LISTED:
        print(f"  and {len(slower) - MOST_LISTED} more")


# --- Plot ------------------------------------------------------------------------------------------------

TITLES = dict(zip(SIDES[:4], ("cupar", "cuda.compute", "PyTorch", "CuPy"), strict=True))


def panels(content: Mapping[str, Any]) -> tuple[str, list[_common.Panel | _common.Lines]]:
    """Return the title and the panels of a result's plot: rates at the largest size, and how they grow.

    Of each row, that is its first dtype.
    """
    dtypes = {name: row.dtypes[0] for name, row in ROWS.items()}
    cases = [case for case in content["cases"] if case["dtype"] == dtypes.get(case["name"])]
    exponent = max((case["exponent"] for case in cases), default=0)
    largest = [case for case in cases if case["exponent"] == exponent]
    bars = [
        _common.Bar(
            _label(case),
            [_rate(case, side) for side in TITLES],
            (_number(case["speed"]["cuda.compute"], 2), "", "", ""),
        )
        for case in largest
    ]
    copies = [rate for case in largest if (rate := _rate(case, "copy")) is not None]
    panel = _common.Panel(
        bars,
        "GB/s (dashed: a copy), and cupar's speed over cuda.compute's",
        series=list(TITLES.values()),
        line=statistics.median(copies) if copies else None,
        log=True,
    )
    small: list[_common.Panel | _common.Lines] = []
    for label in dict.fromkeys(map(_label, cases)):
        of_row = [case for case in cases if _label(case) == label]
        curves = {title: _curve(of_row, side) for side, title in TITLES.items()}
        small.append(_common.Lines(curves, "items", "of a copy", label, 1.0, has_legend=not small))
    title = f"Throughput, {content['environment']['gpu']['name']}: 2^{exponent} items, and by size"
    return title, [panel, *small]


def _label(case: Mapping[str, Any]) -> str:
    return f"{case['name'].replace('_', ' ')}, {case['dtype']}"


def _rate(case: Mapping[str, Any], side: str) -> float | None:
    found: float | None = case["sides"][side].get("gb_per_second")
    return found


def _curve(cases: Iterable[Mapping[str, Any]], side: str) -> list[tuple[float, float]]:
    """Return what fraction of a copy's rate a side has, by size."""
    rates = [(case["exponent"], _rate(case, side), _rate(case, "copy")) for case in cases]
    return [(2.0**exponent, rate / copy) for exponent, rate, copy in rates if rate and copy]


# --- Command line ----------------------------------------------------------------------------------------


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=f"names: {', '.join(ROWS)}")
    listed = ",".join(map(str, SIZES))
    jobs = max(1, len(os.sched_getaffinity(0)) - 1) if hasattr(os, "sched_getaffinity") else 1
    parser.add_argument("--sizes", type=_exponents, default=list(SIZES), help=f"of 0 to 28; default {listed}")
    parser.add_argument("--repeats", type=int, default=9, help="samples of each side, 7 or more; default 9")
    parser.add_argument("--dtypes", type=_listed, help="default all that a row has")
    parser.add_argument("--only", type=_listed, help="names, each with its variants; default all")
    parser.add_argument(
        "--launch", choices=("graph", "stream"), default="graph", help="how short calls are made"
    )
    parser.add_argument("--seconds", type=float, default=240, help="after them, skip the rest; default 240")
    parser.add_argument("--jobs", type=int, default=jobs, help="processes that build; 0: none but this one")
    parser.add_argument("--json", type=Path, help="default: benchmarks/results/throughput-<gpu>.json")
    _common.add_plot_option(parser)
    options = parser.parse_args(given)
    if options.repeats < 7:
        parser.error(f"--repeats: expected 7 or more, got {options.repeats}")
    for name in options.only or ():
        if not any(_algorithms.is_wanted(row, [name]) for row in ROWS):
            parser.error(f"--only: expected some of {', '.join(ROWS)}, got {name!r}")
    if not _algorithms.wanted(options.only, options.dtypes):
        parser.error(f"--dtypes: no row that is asked for has {', '.join(options.dtypes)}")
    return options


def _listed(text: str) -> list[str]:
    return text.split(",")


def _exponents(text: str) -> list[int]:
    found = [int(each) for each in text.split(",")]
    if not all(0 <= each <= 28 for each in found):
        raise argparse.ArgumentTypeError(f"expected exponents from 0 to 28, got {text}")
    return found


def optional(name: str) -> Any:
    """Import a module if it is there and can be imported."""
    try:
        return importlib.import_module(name)
    except Exception as error:  # such as a library that is built for another CUDA
        print(f"without {name}: {type(error).__name__}: {error}")
        return None


def main() -> None:
    """Measure, print and write."""
    start = time.perf_counter()
    options = arguments()
    if options.plot is not None:
        _common.plot_again(options.plot, panels)
        return
    device, facts = _common.needed_gpu()
    rows = _algorithms.wanted(options.only, options.dtypes)
    builds = Builds(rows, device["cc"], options.jobs)
    for name, dtype in rows:
        builds.get(name, dtype)
    print(f"\n{len(rows)} rows; built after {time.perf_counter() - start:.0f} s: {builds.seconds}")
    # These bring NVRTC with them, and the first that is loaded serves all in the process.
    gpu = Gpu(importlib.import_module("cupy"), optional("torch"))
    path = options.json or _common.RESULTS / f"throughput-{_common.slug(device)}.json"
    content = {
        "benchmark": "throughput",
        "environment": facts,
        "repeats": options.repeats,
        "launch": options.launch,
    }
    bench = Bench(gpu, builds, options, content, path)
    bench.measure(rows, start + options.seconds)
    summarize(bench.cases)
    print(
        "\nof copy, of stock, …: cupar's speed as a multiple of theirs; w: with the host's time, as it waits"
    )
    if bench.skipped:
        print(f"skipped after {options.seconds:g} s: {', '.join(bench.skipped)}")
    print(f"{time.perf_counter() - start:.0f} s in all; written to {path}")
    print(_common.plot(path, *panels(json.loads(path.read_text()))))
    if bench.failures:
        raise SystemExit("\n".join(["", f"failed: {len(bench.failures)}", *bench.failures[:20]]))


if __name__ == "__main__":
    main()
