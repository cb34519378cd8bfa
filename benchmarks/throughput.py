"""GPU time of every algorithm: cupar's object and cuda.compute's on the same arrays, in turns.

    python benchmarks/throughput.py [--items 268435456] [--repeats 9] [--dtypes float32,int32]
                                    [--only NAME,NAME] [--seconds 220] [--json FILE]
    python benchmarks/throughput.py --plot FILE

It needs a GPU, CuPy and cuda.compute. A second table has cupar alone: a Python lambda against the OpKind that
says the same. The second form draws the plot of a JSON file again, beside it, without a GPU.

Both sides get the same arrays, outputs and operators: an OpKind or, where CCCL has none, the same LTO-IR as a
RawOp, since cuda.compute may have no compiler for Python functions. They take turns, A B A B, and with them a
device-to-device copy that moves as many bytes as the algorithm must at least read and write, so that all see
the same clocks. A sample is the time between two CUDA events around a few launches, divided by their number;
temporary storage is there before, and the GPU is kept busy while the host enqueues them. Tables give medians.

What both wrote is compared, every item of it, exactly: what is added up are small integers, so that sums of
floats are exact in any order. Keys and values to search for are spread evenly.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import _common
import numpy as np

sys.path.insert(0, str(_common.ROOT))  # this checkout's cupar, whatever else is installed

import cupar

SEED = 20261121
SEGMENT = 1024  # items
BINS = 256
WARM_UP = 0.1  # seconds: an idle GPU takes a while to raise its clocks
SAMPLE = 0.01  # seconds that a sample should take
MOST_LAUNCHES = 10  # in a sample

Dtype = np.dtype[Any]

# --- What is measured ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """An algorithm with all that it is called with, by cupar's names.

    Attributes
    ----------
    algorithm : str
        The factory.
    inputs, outputs : mappings of str to device array or None
        What the factory and the call both take.
    counts : mapping of str to int
        What the call alone takes.
    operators : mapping of str to Any
        What the factory takes, and cuda.compute's call once more.
    others : mapping of str to Any
        What else the factory and the call both take.
    options : mapping of str to Any
        What the factory alone takes.
    written : float
        How much of the outputs the algorithm writes.
    """

    algorithm: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    counts: Mapping[str, int]
    operators: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    written: float = 1.0

    @property
    def arguments(self) -> dict[str, Any]:
        """What the factory and the call both take."""
        return {**self.inputs, **self.outputs, **self.others}

    @property
    def one_phase(self) -> bool:
        """Whether the call takes no temporary storage."""
        return self.algorithm.endswith(("_transform", "_bound"))

    @property
    def nbytes(self) -> int:
        """How many bytes must at least be read and written."""
        read, room = (
            sum(array.nbytes for array in arrays.values() if array is not None)
            for arrays in (self.inputs, self.outputs)
        )
        return int(read + self.written * room)


class Data:
    """Where a case gets its arrays, the same in every run, and its operators.

    Parameters
    ----------
    cupy : module
    items : int
        How many items an array has.
    cc : int
        Compute capability, as in 90.
    """

    def __init__(self, cupy: Any, items: int, cc: int) -> None:
        self.n = items
        self.counts = {"num_items": items}
        self._cupy = cupy
        self._cc = cc
        self._random = cupy.random.RandomState(SEED)

    def integers(self, low: int, high: int, dtype: Dtype) -> Any:
        """Return random integers from `low` to `high`, both included, of a dtype that may be a float."""
        drawn = dtype if dtype.kind in "iu" else np.dtype(np.int32)
        return self._random.randint(low, high + 1, self.n, drawn).astype(dtype, copy=False)

    def addends(self, dtype: Dtype) -> Any:
        """Return integers around 0, whose sums stay far below 2^24: from there on float32 is not exact."""
        return self.integers(-64, 64, dtype)

    def keys(self, dtype: Dtype) -> Any:
        """Return floats between -1 and 1, or any integers."""
        if dtype.kind == "f":
            return self._random.random_sample(self.n, dtype) * 2 - 1
        return self.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, dtype)

    def empty(self, dtype: Dtype | type, items: int | None = None) -> Any:
        """Return an array for results."""
        return self._cupy.empty(self.n if items is None else items, dtype)

    def offsets(self) -> dict[str, Any]:
        """Return where segments begin and end."""
        offsets = self._cupy.arange(0, self.n + 1, SEGMENT, dtype=np.int64)
        return {"start_offsets_in": offsets[:-1], "end_offsets_in": offsets[1:]}

    def raw_op(self, name: str, dtype: Dtype, parameters: str, expression: str, result: str = "T") -> Any:
        """Compile an operator in C++; `expression` has the parameters, of one letter each, as values of T."""
        from cupar._compile import nvrtc

        name = f"bench_{name}_{dtype}"
        pointers = ", ".join(f"void* pointer_{letter}" for letter in parameters)
        values = " ".join(f"const T {x} = *static_cast<const T*>(pointer_{x});" for x in parameters)
        source = f"""
using T = {CPP_TYPES[dtype.name]};
extern "C" __device__ void {name}({pointers}, void* result) {{
  {values}
  *static_cast<{result}*>(result) = {expression};
}}
"""
        return cupar.RawOp(name, nvrtc.compile_cpp(source, self._cc))


CPP_TYPES = {"float32": "float", "float64": "double", "int32": "int", "int64": "long long"}
PLUS = {"op": cupar.OpKind.PLUS}
LESS = {"op": cupar.OpKind.LESS}
ASCENDING = {"order": cupar.SortOrder.ASCENDING}


def _reduce_into(data: Data, dtype: Dtype) -> Case:
    inputs, outputs = {"d_in": data.addends(dtype)}, {"d_out": data.empty(dtype, 1)}
    return Case("reduce_into", inputs, outputs, data.counts, PLUS, {"h_init": np.zeros(1, dtype)})


def _exclusive_scan(data: Data, dtype: Dtype) -> Case:
    inputs, outputs = {"d_in": data.addends(dtype)}, {"d_out": data.empty(dtype)}
    return Case("exclusive_scan", inputs, outputs, data.counts, PLUS, {"h_init": np.zeros(1, dtype)})


def _inclusive_scan(data: Data, dtype: Dtype) -> Case:
    inputs, outputs = {"d_in": data.addends(dtype)}, {"d_out": data.empty(dtype)}
    return Case("inclusive_scan", inputs, outputs, data.counts, PLUS, {"h_init": None})


def _segmented_reduce(data: Data, dtype: Dtype) -> Case:
    segments = data.n // SEGMENT
    inputs = {"d_in": data.addends(dtype), **data.offsets()}
    outputs = {"d_out": data.empty(dtype, segments)}
    counts, others = {"num_segments": segments}, {"h_init": np.zeros(1, dtype)}
    return Case("segmented_reduce", inputs, outputs, counts, PLUS, others)


def _unary_transform(data: Data, dtype: Dtype) -> Case:
    inputs, outputs = {"d_in": data.addends(dtype)}, {"d_out": data.empty(dtype)}
    op = data.raw_op("square_plus_one", dtype, "a", "a * a + 1")
    return Case("unary_transform", inputs, outputs, data.counts, {"op": op})


def _binary_transform(data: Data, dtype: Dtype) -> Case:
    inputs = {"d_in1": data.addends(dtype), "d_in2": data.addends(dtype)}
    return Case("binary_transform", inputs, {"d_out": data.empty(dtype)}, data.counts, PLUS)


def _select(data: Data, dtype: Dtype) -> Case:
    outputs = {"d_out": data.empty(dtype), "d_num_selected_out": data.empty(np.int64, 1)}
    cond = data.raw_op("positive", dtype, "a", "a > 0", "bool")
    return Case("select", {"d_in": data.keys(dtype)}, outputs, data.counts, {"cond": cond}, written=1 / 2)


def _three_way_partition(data: Data, dtype: Dtype) -> Case:
    parts = ("d_first_part_out", "d_second_part_out", "d_unselected_out")
    outputs = {name: data.empty(dtype) for name in parts}
    outputs["d_num_selected_out"] = data.empty(np.int64, 2)
    third = "T(1) / 3" if dtype.kind == "f" else f"T({np.iinfo(dtype).max // 3})"
    operators = {
        "select_first_part_op": data.raw_op("lower_third", dtype, "a", f"a < -({third})", "bool"),
        "select_second_part_op": data.raw_op("upper_third", dtype, "a", f"a > {third}", "bool"),
    }
    inputs = {"d_in": data.keys(dtype)}
    return Case("three_way_partition", inputs, outputs, data.counts, operators, written=1 / 3)


def _unique_by_key(data: Data, dtype: Dtype) -> Case:
    # Two values make runs of 1, 2, 3, … equal keys, 2 of them in the mean.
    inputs = {"d_in_keys": data.integers(0, 1, dtype), "d_in_items": data.keys(dtype)}
    outputs = {"d_out_keys": data.empty(dtype), "d_out_items": data.empty(dtype)}
    outputs["d_out_num_selected"] = data.empty(np.int64, 1)
    equal = {"op": cupar.OpKind.EQUAL_TO}
    return Case("unique_by_key", inputs, outputs, data.counts, equal, written=1 / 2)


def _histogram_even(data: Data, dtype: Dtype) -> Case:
    # The width of a bin is a power of two: no rounding puts a sample into another bin.
    others = {
        "h_num_output_levels": np.array([BINS + 1], np.int32),
        "h_lower_level": np.array([0], dtype),
        "h_upper_level": np.array([2**16], dtype),
        "num_samples": data.n,
    }
    inputs = {"d_samples": data.integers(0, 2**16 - 1, dtype)}
    return Case("histogram_even", inputs, {"d_histogram": data.empty(np.int32, BINS)}, {}, others=others)


def _search(algorithm: str, data: Data, dtype: Dtype) -> Case:
    inputs = {"d_data": data.keys(dtype), "d_values": data.keys(dtype)}
    inputs["d_data"].sort()
    # cuda.compute takes no other dtype for indices.
    outputs = {"d_out": data.empty(np.uint64)}
    counts = {**data.counts, "num_values": data.n}
    return Case(algorithm, inputs, outputs, counts, {"comp": cupar.OpKind.LESS})


def _merge_sort(data: Data, dtype: Dtype) -> Case:
    inputs = {"d_in_keys": data.keys(dtype), "d_in_items": None}
    outputs = {"d_out_keys": data.empty(dtype), "d_out_items": None}
    return Case("merge_sort", inputs, outputs, data.counts, LESS)


def _merge_sort_raw(data: Data, dtype: Dtype) -> Case:
    nearer = data.raw_op("nearer", dtype, "ab", "(a < 0 ? -a : a) < (b < 0 ? -b : b)", "bool")
    return replace(_merge_sort(data, dtype), operators={"op": nearer})


def _merge_sort_items(data: Data, dtype: Dtype) -> Case:
    inputs = {"d_in_keys": data.keys(dtype), "d_in_items": data.keys(dtype)}
    outputs = {"d_out_keys": data.empty(dtype), "d_out_items": data.empty(dtype)}
    return Case("merge_sort", inputs, outputs, data.counts, LESS)


def _radix_sort(data: Data, dtype: Dtype) -> Case:
    inputs = {"d_in_keys": data.keys(dtype), "d_in_values": None}
    outputs = {"d_out_keys": data.empty(dtype), "d_out_values": None}
    return Case("radix_sort", inputs, outputs, data.counts, options=ASCENDING)


def _radix_sort_values(data: Data, dtype: Dtype) -> Case:
    inputs = {"d_in_keys": data.keys(dtype), "d_in_values": data.keys(dtype)}
    outputs = {"d_out_keys": data.empty(dtype), "d_out_values": data.empty(dtype)}
    return Case("radix_sort", inputs, outputs, data.counts, options=ASCENDING)


def _segmented_sort(data: Data, dtype: Dtype) -> Case:
    inputs = {"d_in_keys": data.keys(dtype), "d_in_values": None, **data.offsets()}
    outputs = {"d_out_keys": data.empty(dtype), "d_out_values": None}
    counts = {**data.counts, "num_segments": data.n // SEGMENT}
    return Case("segmented_sort", inputs, outputs, counts, options=ASCENDING)


def _with_lambda(make: Callable[[Data, Dtype], Case], data: Data, dtype: Dtype) -> Case:
    return replace(make(data, dtype), operators={"op": lambda a, b: a + b})


@dataclass(frozen=True)
class Row:
    """A line of the table for each dtype: what makes its case, and dtypes unless others are asked for.

    A row that is `fixed` keeps its dtypes: its builds take long, and are paid for twice.
    """

    make: Callable[[Data, Dtype], Case]
    dtypes: tuple[str, ...] = ("float32", "int32")
    fixed: bool = False


THREE = ("float32", "int32", "int64")
FLOAT, UNSIGNED = ("float32",), ("uint32",)

# In the order of what their builds cost, so that what --seconds cuts off is the dearest.
AGAINST_COMPUTE = {
    "reduce_into": Row(_reduce_into, THREE),
    "inclusive_scan": Row(_inclusive_scan, THREE),
    "exclusive_scan": Row(_exclusive_scan, THREE),
    "unary_transform": Row(_unary_transform, THREE),
    "binary_transform": Row(_binary_transform, THREE),
    "segmented_reduce": Row(_segmented_reduce),
    "select": Row(_select),
    "three_way_partition": Row(_three_way_partition),
    "unique_by_key": Row(_unique_by_key),
    "histogram_even": Row(_histogram_even),
    "lower_bound": Row(partial(_search, "lower_bound"), FLOAT, fixed=True),
    "upper_bound": Row(partial(_search, "upper_bound"), FLOAT, fixed=True),
    "merge_sort": Row(_merge_sort, FLOAT, fixed=True),
    "merge_sort_raw": Row(_merge_sort_raw, FLOAT, fixed=True),
    "merge_sort_items": Row(_merge_sort_items, FLOAT, fixed=True),
    "radix_sort": Row(_radix_sort, UNSIGNED, fixed=True),
    "radix_sort_values": Row(_radix_sort_values, UNSIGNED, fixed=True),
    "segmented_sort": Row(_segmented_sort, FLOAT, fixed=True),
}
LAMBDAS = {
    "reduce_into_lambda": Row(partial(_with_lambda, _reduce_into)),
    "inclusive_scan_lambda": Row(partial(_with_lambda, _inclusive_scan)),
}

# --- Who is measured -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ready:
    """An algorithm that needs nothing more than to be launched, and what is to be told of it."""

    launch: Callable[[], Any]
    facts: Mapping[str, Any]


def _with_storage(cupy: Any, call: Callable[..., Any]) -> tuple[Callable[[], Any], int]:
    nbytes: int = call(temp_storage=None)
    storage = cupy.empty(max(nbytes, 1), np.uint8)
    return partial(call, temp_storage=storage), nbytes


def ready_cupar(cupy: Any, case: Case) -> Ready:
    """Build a case with cupar."""
    start = time.perf_counter()
    algorithm = getattr(cupar, case.algorithm)(**case.arguments, **case.operators, **case.options)
    facts = {
        "build_seconds": time.perf_counter() - start,
        "build_origin": algorithm.build.origin,
        "build_stages": dict(algorithm.build.seconds),
    }
    if case.algorithm.endswith("_transform"):  # which has no names for its arrays
        return Ready(partial(algorithm, *case.arguments.values(), *case.counts.values()), facts)
    call = partial(algorithm, **case.arguments, **case.counts)
    if case.one_phase:
        return Ready(call, facts)
    launch, nbytes = _with_storage(cupy, call)
    return Ready(launch, {**facts, "temp_storage_bytes": nbytes})


# By cupar's name, where cuda.compute has another.
COMPUTE_NAMES = {
    "exclusive_scan": {"h_init": "init_value"},
    "inclusive_scan": {"h_init": "init_value"},
    "merge_sort": {"d_in_items": "d_in_values", "d_out_items": "d_out_values"},
}


def ready_compute(cupy: Any, case: Case) -> Ready:
    """Build a case with cuda.compute."""
    import cuda.compute

    names = COMPUTE_NAMES.get(case.algorithm, {})
    arguments = {names.get(name, name): value for name, value in case.arguments.items()}
    operators = {name: _of_compute(op) for name, op in case.operators.items()}
    options = {name: _of_compute(value) for name, value in case.options.items()}
    make = getattr(cuda.compute, f"make_{case.algorithm}")
    start = time.perf_counter()
    algorithm = make(**arguments, **operators, **options)
    facts = {"build_seconds": time.perf_counter() - start}
    call = partial(algorithm, **arguments, **operators, **case.counts)
    if case.one_phase:
        return Ready(call, facts)
    launch, nbytes = _with_storage(cupy, call)
    return Ready(launch, {**facts, "temp_storage_bytes": nbytes})


def _of_compute(value: Any) -> Any:
    """Translate an operator or order into cuda.compute's."""
    import cuda.compute
    from cuda.compute.op import RawOp

    if isinstance(value, cupar.OpKind):
        return cuda.compute.OpKind[value.name]
    if isinstance(value, cupar.SortOrder):
        return cuda.compute.SortOrder[value.name]
    return RawOp(ltoir=value.ltoir, name=value.name)


def ready_copy(cupy: Any, nbytes: int) -> Ready:
    """Prepare a copy that reads and writes so many bytes, both together."""
    runtime, half = cupy.cuda.runtime, nbytes // 2
    source, target = cupy.empty(half, np.uint8), cupy.empty(half, np.uint8)

    def launch() -> None:
        runtime.memcpyAsync(target.data.ptr, source.data.ptr, half, runtime.memcpyDeviceToDevice, 0)

    return Ready(launch, {})


NEVER_READY = Ready(lambda: None, {})


class Side:
    """One who takes part in a case: until it fails, and then the others go on without it.

    Parameters
    ----------
    cupy : module
    name : str
    is_cupar : bool
        Whether a failure is cupar's.
    prepare : callable
        Makes it ready.
    """

    def __init__(self, cupy: Any, name: str, is_cupar: bool, prepare: Callable[[], Ready]) -> None:
        self.name = name
        self.is_cupar = is_cupar
        self.error: str | None = None
        self.samples: list[float] = []
        self._cupy = cupy
        self._ready: Ready = self._attempt(prepare) or NEVER_READY

    def _attempt(self, step: Callable[..., Any], *arguments: Any) -> Any:
        if self.error is not None:
            return None
        try:
            return step(*arguments)
        except Exception as error:  # whatever it is, others are to be measured
            self.error = f"{type(error).__name__}: {error}"
            return None

    def results(self, outputs: Sequence[Any]) -> list[Any] | None:
        """Launch once, and return copies of the outputs; None if that fails."""

        def step() -> list[Any]:
            for output in outputs:
                output.fill(1)  # for all sides alike, since not all of an output need be written
            self._ready.launch()
            self._cupy.cuda.runtime.deviceSynchronize()  # an error of the kernel is this side's
            return [output.copy() for output in outputs]

        found: list[Any] | None = self._attempt(step)
        return found

    def time(self, launches: int) -> float | None:
        """Return the GPU's seconds for one launch, the mean of several; None if that fails."""
        found: float | None = self._attempt(self._time, launches)
        return found

    def _time(self, launches: int) -> float:
        start, end = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        self._ready.launch()  # so that the GPU has work while the host enqueues what counts
        start.record()
        for _ in range(launches):
            self._ready.launch()
        end.record()
        end.synchronize()
        milliseconds: float = self._cupy.cuda.get_elapsed_time(start, end)
        return milliseconds * 1e-3 / launches

    @property
    def median(self) -> float | None:
        """Seconds; None if it failed."""
        return statistics.median(self.samples) if self.samples and self.error is None else None

    def as_json(self, nbytes: int) -> dict[str, Any]:
        """Return what there is to tell."""
        if self.median is None:
            return {**self._ready.facts, "error": self.error}
        rate = nbytes / self.median * 1e-9
        return {**self._ready.facts, "seconds": _common.summary(self.samples), "gb_per_second": rate}


def measure(sides: Sequence[Side], repeats: int) -> int:
    """Let the sides take turns until each has `repeats` samples; return how many launches a sample has."""
    stop = time.perf_counter() + WARM_UP
    launches = MOST_LAUNCHES
    while True:
        slowest = max((side.time(1) or 0.0) for side in sides)
        if time.perf_counter() > stop:
            break
    if slowest:
        launches = max(1, min(MOST_LAUNCHES, int(SAMPLE / slowest)))
    for _ in range(repeats):
        for side in sides:
            seconds = side.time(launches)
            if seconds is not None:
                side.samples.append(seconds)
    return launches


# --- Table and file --------------------------------------------------------------------------------------

WIDTHS = (22, 8, 9, 16, 6, 5, 12, 8, 8)


def print_row(cells: Sequence[str]) -> None:
    """Print a line of the table at once, so that a run that is cut short has shown what it knew."""
    first, second, *others = cells
    numbers = [text.rjust(width) for text, width in zip(others, WIDTHS[2:], strict=True)]
    print("  ".join([first.ljust(WIDTHS[0]), second.ljust(WIDTHS[1]), *numbers]).rstrip(), flush=True)


def print_head(first: str, second: str) -> None:
    """Print the headings of a table for two sides."""
    ratio = (f"{first} ms", f"{second} ms", "ratio", "same")
    print()
    print_row(("algorithm", "dtype", *ratio, f"{first} GB/s", "of copy", "copy ms"))
    print_row(["-" * width for width in WIDTHS])


def _number(value: float | None, digits: int, scale: float = 1.0) -> str:
    return "-" if value is None else f"{value * scale:.{digits}f}"


def _quotient(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a / b


def _told(
    name: str, dtype: str, case: Case, launches: int, sides: Sequence[Side], same: bool | None
) -> dict[str, Any]:
    first, second, copy = sides
    return {
        "name": name,
        "algorithm": case.algorithm,
        "dtype": dtype,
        "bytes": case.nbytes,
        "launches_per_sample": launches,
        "sides": {side.name: side.as_json(case.nbytes) for side in sides},
        "ratio": _quotient(first.median, second.median),
        "fraction_of_copy": _quotient(copy.median, first.median),
        "same_results": same,
    }


def _print_told(told: Mapping[str, Any], sides: Sequence[Side]) -> None:
    first, second, copy = sides
    rate = told["sides"][first.name].get("gb_per_second")
    print_row(
        (
            told["name"],
            told["dtype"],
            _number(first.median, 3, 1e3),
            _number(second.median, 3, 1e3),
            _number(told["ratio"], 3),
            {True: "yes", False: "NO", None: "-"}[told["same_results"]],
            _number(rate, 0),
            _number(told["fraction_of_copy"], 3),
            _number(copy.median, 3, 1e3),
        )
    )


class Bench:
    """Measures cases one after another, and keeps a file of what is known so far.

    Parameters
    ----------
    cupy : module
    facts : mapping of str to Any
        Where it runs; see `_common.environment`.
    options : argparse.Namespace
    path : Path
        The file.
    """

    def __init__(self, cupy: Any, facts: Mapping[str, Any], options: argparse.Namespace, path: Path) -> None:
        self.cupy = cupy
        self.options = options
        self.failures: list[str] = []
        self.skipped: list[str] = []
        self._path = path
        self._cc: int = facts["gpu"]["cc"]
        self._start = time.perf_counter()
        self._cases: list[dict[str, Any]] = []
        self._content = {
            "benchmark": "throughput",
            "environment": facts,
            "items": options.items,
            "repeats": options.repeats,
        }

    def table(self, rows: Mapping[str, Row], first: str, second: str) -> None:
        """Measure the cases of some rows: all that are asked for, while there is time."""
        lines = list(self._lines(rows))
        if lines:
            print_head(first, second)
        for name, dtype, row in lines:
            if time.perf_counter() - self._start > self.options.seconds:
                self.skipped.append(f"{name} {dtype}")
                print_row((name, dtype, "skipped", *[""] * 6))
            else:
                self._line(name, dtype, row)
            self.save()
            self._free()

    def _lines(self, rows: Mapping[str, Row]) -> Iterator[tuple[str, str, Row]]:
        for name, row in rows.items():
            if is_wanted(name, self.options.only):
                dtypes = row.dtypes if row.fixed else self.options.dtypes or row.dtypes
                yield from ((name, dtype, row) for dtype in dtypes)

    def _line(self, name: str, dtype: str, row: Row) -> None:
        try:
            case = row.make(Data(self.cupy, self.options.items, self._cc), np.dtype(dtype))
        except Exception as error:  # out of memory, or the GPU is lost
            text = f"{type(error).__name__}: {error}"
            self.failures.append(f"{name} {dtype}: no arrays or operators: {text}")
            self._cases.append({"name": name, "dtype": dtype, "error": text})
            print_row((name, dtype, *["-"] * 7))
            return
        sides = self._sides(case, is_lambda=name in LAMBDAS)
        same = self._same(sides[:2], list(case.outputs.values()))
        told = _told(name, dtype, case, measure(sides, self.options.repeats), sides, same)
        self._cases.append(told)
        _print_told(told, sides)
        self.failures += [f"{name} {dtype}: {s.name}: {s.error}" for s in sides if s.is_cupar and s.error]
        if same is False:
            self.failures.append(f"{name} {dtype}: results differ")
        for side in sides:
            if side.error is not None:
                print(f"    {side.name} failed: {side.error[:200]}", flush=True)

    def _sides(self, case: Case, is_lambda: bool) -> list[Side]:
        cupy = self.cupy
        if is_lambda:
            known = replace(case, operators=PLUS)
            both = [
                Side(cupy, "lambda", True, partial(ready_cupar, cupy, case)),
                Side(cupy, "OpKind", True, partial(ready_cupar, cupy, known)),
            ]
        else:
            both = [
                Side(cupy, "cupar", True, partial(ready_cupar, cupy, case)),
                Side(cupy, "cuda.compute", False, partial(ready_compute, cupy, case)),
            ]
        return [*both, Side(cupy, "copy", False, partial(ready_copy, cupy, case.nbytes))]

    def _same(self, both: Sequence[Side], outputs: Sequence[Any]) -> bool | None:
        """Tell whether two sides write the same; None if one of them fails."""
        present = [output for output in outputs if output is not None]
        one, other = (side.results(present) for side in both)
        if one is None or other is None:
            return None
        return all(bool(self.cupy.array_equal(a, b)) for a, b in zip(one, other, strict=True))

    def _free(self) -> None:
        if "cuda.compute" in sys.modules:
            # Its caches keep what it built, and that keeps the arrays of the last call.
            sys.modules["cuda.compute"].clear_all_caches()
        self.cupy.get_default_memory_pool().free_all_blocks()

    def save(self) -> None:
        """Write the file: aside and then into place, so that it is whole whenever this process ends."""
        content = {
            **self._content,
            "seconds": time.perf_counter() - self._start,
            "cases": self._cases,
            "skipped": self.skipped,
            "failures": self.failures,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        aside = self._path.with_name(self._path.name + ".part")
        aside.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        aside.replace(self._path)


# --- Plot ------------------------------------------------------------------------------------------------


def panels(content: Mapping[str, Any]) -> tuple[str, list[_common.Panel]]:
    """Return the title and the panels of a result's plot: one dtype of each algorithm."""
    bars: dict[str, _common.Bar] = {}
    copies = []
    for case in content["cases"]:
        sides = case.get("sides", {})
        rates = [sides.get(name, {}).get("gb_per_second") for name in ("cupar", "cuda.compute")]
        if None in rates:
            continue
        copies.append(sides["copy"]["gb_per_second"])
        variant = case["name"].removeprefix(case["algorithm"]).replace("_", ", ")
        name = f"{case['algorithm']}{variant}, {case['dtype']}"
        texts = (f"{case['ratio']:.3f}", "")
        bars.setdefault(case["name"], _common.Bar(name, rates, texts))
    gpu, items = content["environment"]["gpu"]["name"], content["items"]
    panel = _common.Panel(
        list(bars.values()),
        "GB/s (dashed: a copy), and cupar's time over cuda.compute's",
        series=("cupar", "cuda.compute"),
        line=statistics.median(copies) if copies else None,
        log=True,
    )
    return f"Throughput, {items:,} items, {gpu}", [panel]


# --- Command line ----------------------------------------------------------------------------------------


def is_wanted(name: str, only: Sequence[str] | None) -> bool:
    """Tell whether a row is asked for, by its name or by that of the algorithm that it is a variant of."""
    return only is None or any(name == wanted or name.startswith(f"{wanted}_") for wanted in only)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    names = (*AGAINST_COMPUTE, *LAMBDAS)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=f"names: {', '.join(names)}")
    parser.add_argument("--items", type=int, default=2**28, help="a multiple of 1024; default 2^28")
    parser.add_argument("--repeats", type=int, default=9, help="samples of each side, 7 or more; default 9")
    parser.add_argument("--dtypes", type=_listed, help=f"of {', '.join(CPP_TYPES)}; default: see the table")
    parser.add_argument("--only", type=_listed, help="names, each with its variants; default all")
    parser.add_argument("--seconds", type=float, default=220, help="after them, skip the rest; default 220")
    parser.add_argument("--json", type=Path, help="default: benchmarks/results/throughput-<gpu>.json")
    _common.add_plot_option(parser)
    options = parser.parse_args()
    if options.items < SEGMENT or options.items % SEGMENT:
        parser.error(f"--items: expected a multiple of {SEGMENT}, got {options.items}")
    if options.repeats < 7:
        parser.error(f"--repeats: expected 7 or more, got {options.repeats}")
    for dtype in options.dtypes or ():
        if dtype not in CPP_TYPES:
            parser.error(f"--dtypes: expected some of {', '.join(CPP_TYPES)}, got {dtype!r}")
    for wanted in options.only or ():
        if not any(is_wanted(name, [wanted]) for name in names):
            parser.error(f"--only: expected some of {', '.join(names)}, got {wanted!r}")
    return options


def _listed(text: str) -> list[str]:
    return text.split(",")


def main() -> None:
    """Measure, print and write."""
    options = arguments()
    if options.plot is not None:
        _common.plot_again(options.plot, panels)
        return
    device = _common.gpu()
    facts = _common.environment(device)
    _common.print_environment(facts)
    if device is None:
        raise SystemExit("\nThere is no GPU here, so nothing is measured.")
    if not _common.is_installed("cupy"):
        raise SystemExit("\nCuPy is not installed, so there are no arrays and nothing is measured.")
    path = options.json or _common.RESULTS / f"throughput-{_common.slug(device)}.json"
    bench = Bench(importlib.import_module("cupy"), facts, options, path)
    print(f"\n{options.items} items; GPU milliseconds of one launch, medians of {options.repeats} samples")
    bench.table(AGAINST_COMPUTE, "cupar", "cuda.compute")
    bench.table(LAMBDAS, "lambda", "OpKind")
    print("\nnotes\n")
    print("* ratio: the first time through the second; GB/s: what must at least be read and written")
    print("* of copy: GB/s as a fraction of those of a device-to-device copy of as many bytes, in turns")
    if bench.skipped:
        print(f"* skipped after {options.seconds:g} s: {', '.join(bench.skipped)}")
    print(f"\nwritten to {path}")
    print(_common.plot(path, *panels(json.loads(path.read_text()))))
    if bench.failures:
        raise SystemExit("\n".join(["", "failed", "", *bench.failures]))


if __name__ == "__main__":
    main()
