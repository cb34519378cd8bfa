"""From the start of a process to the first result on the host: cupar, and what else one would use.

    python benchmarks/cold_start.py [--repeat 15] [--few 3] [--json FILE]
    python benchmarks/cold_start.py --plot FILE

It needs a GPU; without one it checks what it can and measures nothing. The second form draws the plot of a
JSON file again, beside it; that needs matplotlib and no GPU.

Every contestant is a script in a fresh process that reduces (or scans) the same 1,000,000 float32 items, and
copies one of them back to the host. The floor does all that but the reduction: it imports NumPy, makes a
context, copies the array to the device and one item back, with nothing but ctypes. Contestants take turns,
after one process of each that does not count, so that they can be compared. Two times are kept:

* to the result: from just before the parent starts the process until the result is in host memory;
* process: until the parent has seen it end, the check of its result included.

Results are checked in the process, after the clock has stopped. The items are small integers, so that their
float32 sums are exact in any order.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import _common

# --- The children's scripts ------------------------------------------------------------------------------

START = """
import sys
import time
marks = [("start of Python", time.time_ns())]

def mark(name):
    marks.append((name, time.time_ns()))

import numpy as np
mark("import numpy")
N = 1_000_000
host = np.tile(np.array([3, 0, 1, 2], np.float32), N // 4)
mark("make the array")
"""

DEVICE = """
import ctypes
from ctypes import byref, c_int, c_size_t, c_void_p

def check(status):
    if status:
        raise RuntimeError(f"the CUDA driver returned error {status}")

class DeviceArray:
    def __init__(self, size, dtype):
        self.dtype, self.nbytes, pointer = np.dtype(dtype), size * np.dtype(dtype).itemsize, c_void_p()
        check(driver.cuMemAlloc_v2(byref(pointer), c_size_t(self.nbytes)))
        self.address = pointer.value
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": self.dtype.str, "strides": None,
                                         "data": (self.address, False), "version": 3}

    def to_host(self, first, size):
        array = np.empty(size, self.dtype)
        source = c_void_p(self.address + first * self.dtype.itemsize)
        check(driver.cuMemcpyDtoH_v2(c_void_p(array.ctypes.data), source, c_size_t(array.nbytes)))
        return array

driver, device, context = ctypes.CDLL("libcuda.so.1"), c_int(), c_void_p()
check(driver.cuInit(0))
check(driver.cuDeviceGet(byref(device), 0))
check(driver.cuDevicePrimaryCtxRetain(byref(context), device))
check(driver.cuCtxSetCurrent(context))
mark("make a context")
d_in = DeviceArray(N, np.float32)
check(driver.cuMemcpyHtoD_v2(c_void_p(d_in.address), c_void_p(host.ctypes.data), c_size_t(host.nbytes)))
mark("copy to the device")
"""

FLOOR = """
result = d_in.to_host(0, 1)[0]
mark("result")
expected = host[0]
"""

# `algorithm` exists in cupar's scripts alone.
END = """
import json
if result != expected:
    sys.exit(f"the result is {result!r}, expected {expected!r}")
started = int(sys.argv[1])
build = globals().get("build")
print(json.dumps({
    "marks": [(name, (when - started) * 1e-9) for name, when in marks],
    "origin": build and build.origin,
    "seconds": build and dict(build.seconds),
    "large": [name for name in ("numba", "numba_cuda_mlir", "cuda.core", "torch") if name in sys.modules],
}))
"""

CUPAR_REDUCE = """
import cupar
cupar.reduce_into
mark("import cupar.reduce_into")
d_out, h_init = DeviceArray(1, np.float32), np.zeros(1, np.float32)
sum_into = cupar.reduce_into(d_in, d_out, lambda a, b: a + b, h_init)
mark("cupar.reduce_into()")
sum_into.run(d_in, d_out, N, h_init)
mark("run")
result = d_out.to_host(0, 1)[0]
mark("result")
expected, build = host.sum(dtype=np.float64), sum_into.build
"""

CUPAR_SCAN = """
import cupar
cupar.inclusive_scan
mark("import cupar.inclusive_scan")
d_out = DeviceArray(N, np.float32)
scan = cupar.inclusive_scan(d_in, d_out, lambda a, b: a + b)
mark("cupar.inclusive_scan()")
scan.run(d_in, d_out, N)
mark("run")
result = d_out.to_host(N - 1, 1)[0]
mark("result")
expected, build = host.sum(dtype=np.float64), scan.build
if not np.array_equal(d_out.to_host(0, N), np.cumsum(host, dtype=np.float64)):
    sys.exit("the scan is wrong before its last item")
"""

# What the factory and the first call do inside, done before them one by one: the same work, with marks
# between.
# Private names of cupar's are used here and nowhere else, but for DRY, which tries them without a GPU.
CUPAR_APART = """
import cupar
cupar.reduce_into
mark("import cupar.reduce_into")
from cupar._compile import toolchain as _toolchain
_toolchain.template_versions()
_toolchain.operator_versions()
mark("read versions for the key")
d_out, h_init = DeviceArray(1, np.float32), np.zeros(1, np.float32)
mark("allocate the output")
sum_into = cupar.reduce_into(d_in, d_out, lambda a, b: a + b, h_init)
mark("cupar.reduce_into()")
sum_into.load()
mark("load the code")
sum_into.run(d_in, d_out, N, h_init)
mark("run")
result = d_out.to_host(0, 1)[0]
mark("result")
expected, build = host.sum(dtype=np.float64), sum_into.build
"""

OPERATORS = {
    "lambda": "op = lambda a, b: a + b\n",
    # The same as LTO-IR under CCCL's calling convention, made by numba.cuda, where cuda.compute's compiler,
    # numba-cuda-mlir, is not installed.
    "RawOp": """
import numba.cuda
from cuda.compute.op import RawOp

def benchmark_plus(a, b, out):
    out[0] = a[0] + b[0]

pointer = numba.cuda.types.CPointer(numba.cuda.types.float32)
code, _ = numba.cuda.compile(
    benchmark_plus, numba.cuda.types.void(pointer, pointer, pointer), device=True, abi="c",
    abi_info={"abi_name": "benchmark_plus"}, output="ltoir", cc=divmod(int(sys.argv[2]), 10))
op = RawOp(ltoir=code, name="benchmark_plus")
mark("compile the operator")
""",
    "OpKind": "op = cuda.compute.OpKind.PLUS\n",
}

COMPUTE_IMPORT = """
import cuda.compute
mark("import cuda.compute")
"""

COMPUTE_REDUCE = """
d_out, h_init = DeviceArray(1, np.float32), np.zeros(1, np.float32)
cuda.compute.reduce_into(d_in=d_in, d_out=d_out, num_items=N, op=op, h_init=h_init)
mark("cuda.compute.reduce_into()")
result = d_out.to_host(0, 1)[0]
mark("result")
expected = host.sum(dtype=np.float64)
"""

# Of the operator, a call of an algorithm that was deserialized takes the state alone, and here it has none.
COMPUTE_SAVED = """
with open(sys.argv[3], "rb") as stream:
    sum_into = cuda.compute.deserialize(stream.read())
mark("cuda.compute.deserialize()")
d_out = DeviceArray(1, np.float32)
call = dict(d_in=d_in, d_out=d_out, num_items=N, op=cuda.compute.OpKind.PLUS, h_init=np.zeros(1, np.float32))
nbytes = sum_into(temp_storage=None, **call)
sum_into(temp_storage=DeviceArray(nbytes, np.uint8), **call)
mark("run")
result = d_out.to_host(0, 1)[0]
mark("result")
expected = host.sum(dtype=np.float64)
"""

# No contestant: it writes the file that COMPUTE_SAVED reads. It has no need of a GPU.
COMPUTE_SAVE = """
import cuda.compute
{operator}
array = cuda.compute.ProxyArray(np.float32)
sum_into = cuda.compute.make_reduce_into(
    d_in=array, d_out=array, op=op, h_init=np.zeros(1, np.float32), compute_capability=int(sys.argv[2]))
with open(sys.argv[3], "wb") as stream:
    stream.write(sum_into.serialize())
print("{{}}")
"""

CUPY = """
import cupy
mark("import cupy")
x = cupy.asarray(host)
mark("copy to the device")
reduction = cupy.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "red")
y = reduction(x)
mark("kernel")
result = y.get()[()]
mark("result")
expected = host.sum(dtype=np.float64)
"""

TORCH = """
import torch
mark("import torch")
x = torch.from_numpy(host).cuda()
mark("copy to the device")
y = torch.sum(x)
mark("torch.sum()")
result = y.item()
mark("result")
expected = host.sum(dtype=np.float64)
"""

# No contestant: cupar's two builds, of dtypes, and what CUPAR_APART calls. It has no need of a GPU.
DRY = """
import json
import sys
import numpy as np
import cupar
cc, dtype = int(sys.argv[2]), np.float32
made = [
    cupar.reduce_into(dtype, dtype, lambda a, b: a + b, np.zeros(1, dtype), cc=cc),
    cupar.inclusive_scan(dtype, dtype, lambda a, b: a + b, cc=cc),
]
from cupar._compile import toolchain as _toolchain
_toolchain.template_versions()
_toolchain.operator_versions()
print(json.dumps({algorithm.build.algorithm: algorithm.build.origin for algorithm in made}))
"""


# --- Contestants -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contestant:
    """Who takes part.

    Attributes
    ----------
    name : str
        For tables.
    script : str
        Its source.
    needs : tuple of str
        Modules without which it cannot take part.
    often : bool
        Whether it takes part in every round, or in a few, since it compiles.
    origin : str or None
        Where cupar's build must come from: ``"disk"``, or ``"built"`` in a cache that is empty each time.
    """

    name: str
    script: str
    needs: tuple[str, ...] = ()
    often: bool = True
    origin: str | None = None

    @property
    def missing(self) -> list[str]:
        """The modules that it needs and that are not there."""
        return [module for module in self.needs if not _common.is_installed(module)]


GOAL = 1.10  # of the floor: what the start of a process with a build on disk may take
FLOOR_NAME = "floor: NumPy, context, copies"
APART_NAME = "cupar.reduce_into, its steps one by one"


def operator_of_compute() -> str:
    """Return how cuda.compute gets its operator: as a lambda or, without its compiler, as a RawOp."""
    return "lambda" if _common.is_installed("numba_cuda_mlir") else "RawOp"


def contestants() -> dict[str, Contestant]:
    """Return all contestants by the names of their scripts."""
    on_device = START + DEVICE
    compute = on_device + COMPUTE_IMPORT
    given = operator_of_compute()
    described = {"lambda": "lambda", "RawOp": "RawOp of numba.cuda's LTO-IR"}[given]
    modules = ("cuda.compute",)
    return {
        "floor": Contestant(FLOOR_NAME, on_device + FLOOR),
        "reduce": Contestant("cupar.reduce_into, build on disk", on_device + CUPAR_REDUCE, origin="disk"),
        "scan": Contestant("cupar.inclusive_scan, build on disk", on_device + CUPAR_SCAN, origin="disk"),
        "apart": Contestant(APART_NAME, on_device + CUPAR_APART, origin="disk"),
        "empty": Contestant(
            "cupar.reduce_into, empty cache", on_device + CUPAR_REDUCE, often=False, origin="built"
        ),
        "compute": Contestant(
            f"cuda.compute.reduce_into, {described}",
            compute + OPERATORS[given] + COMPUTE_REDUCE,
            modules,
            often=False,
        ),
        "known": Contestant(
            "cuda.compute.reduce_into, OpKind.PLUS",
            compute + OPERATORS["OpKind"] + COMPUTE_REDUCE,
            modules,
            often=False,
        ),
        "saved": Contestant(
            "cuda.compute.deserialize of a file the user kept", compute + COMPUTE_SAVED, modules
        ),
        "cupy": Contestant("cupy.ReductionKernel, CuPy's cache warm", START + CUPY, ("cupy",)),
        "torch": Contestant("torch.sum, for information", START + TORCH, ("torch",)),
    }


class Race:
    """Runs contestants, each with the caches that it should find."""

    def __init__(self, folder: Path, cc: int) -> None:
        self.all = contestants()
        scripts = {name: contestant.script + END for name, contestant in self.all.items()}
        for given in ("lambda", "RawOp"):
            scripts[f"save_{given}"] = START + COMPUTE_SAVE.format(operator=OPERATORS[given])
        self.work = _common.Workplace(folder, {**scripts, "dry": DRY})
        self.cc = cc
        self.file = folder / "sum.cuda-compute"
        self.warm = self.work.new_folder()
        self.cupy = self.work.new_folder()

    def run(self, name: str) -> _common.Child:
        """Run a script to its end; cupar's build must come from where it should."""
        contestant = self.all.get(name)
        cache = self.work.new_folder() if contestant and contestant.origin == "built" else self.warm
        env = {"CUPAR_CACHE_DIR": str(cache), "CUPY_CACHE_DIR": str(self.cupy)}
        if name == "dry":  # whatever links slowly is in the cache, too, as it is after a while
            env["CUPAR_TIER"] = "fast"
        child = self.work.run(name, time.time_ns, self.cc, self.file, env=env)
        if contestant and child.result["origin"] != contestant.origin:
            raise _common.ChildError(
                f"the build came from {child.result['origin']!r}, expected {contestant.origin!r}"
            )
        return child

    def prepare(self) -> None:
        """Put into the caches what the contestants should find there: cupar's builds, and the saved file."""
        self.run("dry")
        if not self.all["saved"].missing:
            try:
                self.run(f"save_{operator_of_compute()}")
            except _common.ChildError as error:
                print(f"cuda.compute could not save a build: {error}", file=sys.stderr)


@dataclass
class Samples:
    """The times of one contestant, in seconds; its parts are the times between marks."""

    result: list[float] = field(default_factory=list)
    process: list[float] = field(default_factory=list)
    parts: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    stages: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    large: list[str] = field(default_factory=list)  # modules imported that cost much
    says: str = ""  # in place of numbers

    def add(self, child: _common.Child) -> None:
        """Add one process."""
        self.large = child.result["large"]
        before = 0.0
        for name, when in child.result["marks"]:
            self.parts[name].append(when - before)
            before = when
        self.result.append(before)
        self.process.append(child.wall)
        for stage, took in (child.result["seconds"] or {}).items():
            self.stages[stage].append(took)


def measure(race: Race, repeat: int, few: int) -> dict[str, Samples]:
    """Let the contestants take turns; the order rotates from round to round."""
    found = {name: Samples() for name in race.all}
    taking_part = []
    race.prepare()
    for name, contestant in race.all.items():
        if contestant.missing:
            found[name].says = f"{', '.join(contestant.missing)} not installed"
        elif _try(race, name, found[name]) is not None:
            taking_part.append(name)
    if "floor" not in taking_part:
        raise SystemExit("the floor cannot be measured, so there is nothing to compare with")
    seldom = {number * repeat // few for number in range(min(few, repeat))}
    for number in range(repeat):
        turn = number % len(taking_part)
        for name in taking_part[turn:] + taking_part[:turn]:
            if race.all[name].often or number in seldom:
                child = _try(race, name, found[name])
                if child is not None:
                    found[name].add(child)
    return found


def _try(race: Race, name: str, samples: Samples) -> _common.Child | None:
    try:
        return race.run(name)
    except _common.ChildError as error:
        samples.says = "failed, see standard error"
        print(f"\n{race.all[name].name} failed: {error}", file=sys.stderr)
        return None


# --- Report ----------------------------------------------------------------------------------------------


def report(race: Race, found: Mapping[str, Samples]) -> None:
    """Print the tables."""
    floor = statistics.median(found["floor"].result)
    rows = []
    for name, samples in found.items():
        title = race.all[name].name
        if samples.says:
            rows.append([title, "", samples.says, "", "", ""])
            continue
        median = statistics.median(samples.result)
        times = [_common.spread(_common.summary(values)) for values in (samples.result, samples.process)]
        extra = f"{(median - floor) * 1e3:+.1f} ms"
        rows.append([title, str(len(samples.result)), *times, f"{median / floor:.3f}", extra])
    print("\nmedian (min to max)\n")
    _common.print_table(("", "runs", "to the result", "process", "/ floor", "- floor"), rows)
    print()
    for name in ("reduce", "scan"):
        if found[name].result:
            ratio = statistics.median(found[name].result) / floor
            print(f"goal: {race.all[name].name}: <= {GOAL:.2f}, found {ratio:.3f}{' !' * (ratio > GOAL)}")
    for name in ("floor", "reduce", "scan", "apart", "saved", "cupy"):
        if found[name].result:
            print_parts(race.all[name].name, found[name])
    print("\nnotes\n")
    print(f"* cuda.compute gets the operator as {operator_of_compute()}; it keeps no builds on disk itself")
    for name, samples in found.items():
        if samples.large:
            print(f"* {race.all[name].name}: imports {', '.join(samples.large)}")
    print("* differences between rows smaller than their spread mean nothing")


def print_parts(title: str, samples: Samples) -> None:
    """Print the medians of a contestant's parts, and of the stages that cupar reports of its factory."""
    print(f"\n{title}, part by part\n")
    rows = []
    for part, values in samples.parts.items():
        rows.append([part, _common.spread(_common.summary(values))])
        if part.endswith("_into()") or part.endswith("_scan()"):
            rest = [took - sum(stages) for took, *stages in _columns(values, samples.stages)]
            stages = {**samples.stages, "key and all else": rest} if samples.stages else {}
            rows += [[f"    {name}", _common.spread(_common.summary(s))] for name, s in stages.items()]
    _common.print_table(("", "seconds"), rows)


def _columns(values: Sequence[float], stages: Mapping[str, Sequence[float]]) -> list[tuple[float, ...]]:
    return list(zip(values, *stages.values(), strict=True))


def as_json(race: Race, found: Mapping[str, Samples]) -> dict[str, Any]:
    """Return the samples for the JSON file."""

    def summaries(samples: Mapping[str, Sequence[float]]) -> dict[str, Any]:
        return {name: _common.summary(values) for name, values in samples.items()}

    floor = statistics.median(found["floor"].result)
    return {
        name: {"name": race.all[name].name, "says": samples.says}
        if samples.says or not samples.result
        else {
            "name": race.all[name].name,
            "to_result": _common.summary(samples.result),
            "process": _common.summary(samples.process),
            "ratio_to_floor": statistics.median(samples.result) / floor,
            "parts": summaries(samples.parts),
            "build_seconds": summaries(samples.stages),
            "imports": samples.large,
        }
        for name, samples in found.items()
    }


# In the order of the plot. PyTorch's sum has no operator of the user's own.
PLOTTED = {
    "floor": "nothing: NumPy, a context, copies",
    "reduce": "cupar, build on disk",
    "saved": "cuda.compute, its build saved to a file",
    "cupy": "CuPy's ReductionKernel, cache warm",
    "torch": "PyTorch's sum",
    "known": "cuda.compute, its own plus",
    "empty": "cupar, empty cache",
    "compute": "cuda.compute, the same operator",
}


def panels(content: Mapping[str, Any]) -> tuple[str, list[_common.Panel]]:
    """Return the title and the panels of a result's plot."""
    bars = []
    for key, name in PLOTTED.items():
        found = content["contestants"].get(key, {})
        if "to_result" in found:
            seconds = found["to_result"]["median"]
            text = f"{_common.seconds(seconds)}, {found['ratio_to_floor']:.2f}"
            bars.append(_common.Bar(name, [seconds], [text], color=not name.startswith("cupar")))
    floor = content["contestants"]["floor"]["to_result"]["median"]
    gpu = content["environment"]["gpu"]["name"]
    title = f"Start of a process to its first result: a reduction, {gpu}"
    return title, [_common.Panel(bars, "seconds, and multiples of the first row", line=floor)]


# --- Without a GPU ---------------------------------------------------------------------------------------


def dry_check(race: Race) -> None:
    """Check what can be checked without a GPU; raises if that fails."""
    print("There is no GPU here, so nothing is measured. What could be checked:\n")
    for name, contestant in race.all.items():
        compile(contestant.script + END, name, "exec")
        missing = contestant.missing
        state = f"{', '.join(missing)} not installed" if missing else "its script compiles, all is installed"
        print(f"* {contestant.name}: {state}")
    for number, expected in enumerate(("built", "disk"), 1):
        origins = race.run("dry").result
        if set(origins.values()) != {expected}:
            raise SystemExit(f"process {number}: builds came from {origins}, expected {expected}")
    print(f"* cupar: the builds for sm_{race.cc} are made by one process and found by the next")
    if not race.all["saved"].missing:
        for given in sorted({"RawOp", operator_of_compute()}):
            race.run(f"save_{given}")
            print(f"* cuda.compute: builds and serializes for sm_{race.cc}, the operator given as {given}")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="default: benchmarks/results/cold_start-<gpu>.json")
    parser.add_argument("--repeat", type=int, default=15, help="rounds; default 15")
    parser.add_argument("--few", type=int, default=3, help="rounds for contestants that compile; default 3")
    _common.add_plot_option(parser)
    options = parser.parse_args()
    if options.plot is not None:
        _common.plot_again(options.plot, panels)
        return

    device = _common.gpu()
    facts = _common.environment(device)
    _common.print_environment(facts)
    with tempfile.TemporaryDirectory(prefix="cupar-cold-start-") as folder:
        race = Race(Path(folder), device["cc"] if device else 90)
        if device is None:
            print()
            dry_check(race)
            return
        found = measure(race, options.repeat, options.few)
    report(race, found)
    path = options.json or _common.RESULTS / f"cold_start-{_common.slug(device)}.json"
    content = {
        "benchmark": "cold_start",
        "environment": facts,
        "repeat": options.repeat,
        "few": options.few,
        "goal": GOAL,
        "cuda_compute_operator": operator_of_compute(),
        "contestants": as_json(race, found),
    }
    _common.write_json(path, content)
    print(_common.plot(path, *panels(content)))
    failed = [name for name, samples in found.items() if samples.says.startswith("failed")]
    if any(race.all[name].origin for name in failed):
        raise SystemExit("cupar failed")


if __name__ == "__main__":
    main()
