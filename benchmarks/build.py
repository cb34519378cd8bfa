"""What a build costs: the first one, a new operator, a hit on disk and in memory; beside it cuda.compute.

    python benchmarks/build.py [--repeat 5] [--cc 90] [--quick] [--baseline main] [--json FILE]

It runs with or without a GPU, since nothing is launched: every build is made for an explicit compute
capability, from dtypes instead of arrays. Each sample is taken in a process and a cache directory of its
own, in rounds that go through all rows, so that rows can be compared. Three times are kept of a row:

* call: around the factory (``cupar.reduce_into``, ``cuda.compute.make_reduce_into``), inside the process;
* import + call: with the import of the library, on top of NumPy, which everybody here has imported already;
* process: the whole process as its parent sees it.

Beside these rows, of a reduction and a scan, there is what a new operator costs in each algorithm that has
one, as a fraction of the first build in the same process, and how long ``cupar build`` takes for ten
templates: one algorithm for ten types. A baseline, a commit or a checkout of another cupar, takes turns with
this one.
"""

from __future__ import annotations

import argparse
import os
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

sys.path.insert(0, str(_common.ROOT))  # for the lookups, which are timed in this very process

# Reduce is int32 with an initial value, scan is float32 without one.
ALGORITHMS = ("reduce_into", "inclusive_scan")
MEMORY_CALLS = 1000
PARTS = ("rows", "operators", "ahead")
OPERATOR_GOAL = 0.2  # of a first build: what a new operator may cost
AHEAD_GOAL = 0.6  # of a baseline's time: what ten templates built ahead may take

_OPERATORS = """
OPERATORS = {
    "plus": lambda a, b: a + b if a > b else b + a,  # scans take the plain sum for one of CCCL's own
    "farther": lambda a, b: a if abs(a) > abs(b) else b,
    "nearer": lambda a, b: b if abs(a) > abs(b) else a,
    "either": lambda a, b: a + b - a * b,
}
"""

# Makes one algorithm object after another, and then, if `calls` is not 0, the last one again and again.
CUPAR = f"""
import sys
from time import perf_counter
import numpy as np
{_OPERATORS}
algorithm, cc, calls, *names = sys.argv[1:]
cc, calls, h_init = int(cc), int(calls), np.zeros(1, np.int32)

def make(op):
    if algorithm == "reduce_into":
        return cupar.reduce_into(np.int32, np.int32, op, h_init, cc=cc)
    return cupar.inclusive_scan(np.float32, np.float32, op, cc=cc)

start = perf_counter()
import cupar
imported = perf_counter() - start

builds = []
for name in names:
    start = perf_counter()
    made = make(OPERATORS[name])
    took = perf_counter() - start
    builds.append({{"seconds": took, "origin": made.build.origin, "stages": dict(made.build.seconds)}})
modules = sorted(sys.modules)

again = {{}}
if calls:
    start = perf_counter()
    for _ in range(calls):
        make(OPERATORS[name])
    again["same"] = (perf_counter() - start) / calls
    assert name == "plus"
    start = perf_counter()
    for _ in range(calls):
        make(lambda a, b: a + b if a > b else b + a)
    again["new"] = (perf_counter() - start) / calls

import json
stats = cupar.cache.stats()
print(json.dumps({{"import": imported, "builds": builds, "modules": modules, "again": again,
                  "built": stats.built, "memory": stats.memory}}))
"""

# The same for cuda.compute; saves the last object with cuda.compute's own `serialize` if `file` is named.
COMPUTE = f"""
import sys
from time import perf_counter
import ctypes
import numpy as np
{_OPERATORS}
algorithm, cc, calls, file, *names = sys.argv[1:]
cc, calls, h_init = int(cc), int(calls), np.zeros(1, np.int32)

def make(op):
    if algorithm == "reduce_into":
        return cuda.compute.make_reduce_into(
            d_in=ints, d_out=ints, op=op, h_init=h_init, compute_capability=cc)
    return cuda.compute.make_inclusive_scan(
        d_in=floats, d_out=floats, op=op, init_value=None, compute_capability=cc)

start = perf_counter()
import cuda.compute
imported = perf_counter() - start
ints, floats = cuda.compute.ProxyArray(np.int32), cuda.compute.ProxyArray(np.float32)

builds = []
for name in names:
    start = perf_counter()
    made = make(OPERATORS[name])
    builds.append({{"seconds": perf_counter() - start}})

again = {{}}
if calls:
    make(OPERATORS[name])
    start = perf_counter()
    for _ in range(calls):
        make(OPERATORS[name])
    again["same"] = (perf_counter() - start) / calls
    assert name == "plus"
    start = perf_counter()
    for _ in range(calls):
        make(lambda a, b: a + b if a > b else b + a)
    again["new"] = (perf_counter() - start) / calls

if not names:
    start = perf_counter()
    with open(file, "rb") as stream:
        cuda.compute.deserialize(stream.read())
    builds.append({{"seconds": perf_counter() - start}})
elif file != "-":
    with open(file, "wb") as stream:
        stream.write(made.serialize())

import json
print(json.dumps({{"import": imported, "builds": builds, "again": again}}))
"""

# Builds each algorithm that is named with three operators, one after another.
OPERATORS = """
import sys
from time import perf_counter
import numpy as np
import cupar
SUMS = [lambda a, b: a + b if a > b else b + a, lambda a, b: a if abs(a) > abs(b) else b,
        lambda a, b: b if abs(a) > abs(b) else a]
ORDERS = [lambda a, b: abs(a) < abs(b), lambda a, b: a * 3 < b * 3, lambda a, b: (a ^ 5) < (b ^ 5)]
EQUALS = [lambda a, b: abs(a) == abs(b), lambda a, b: a * 3 == b * 3, lambda a, b: (a ^ 5) == (b ^ 5)]
TESTS = [lambda a: a > 3, lambda a: a * a < 100, lambda a: (a & 1) == 0]
FUNCTIONS = [lambda a: a * a + 1, lambda a: a * 3, lambda a: abs(a) - 5]
I, N = np.int32, np.int64
cc = int(sys.argv[1])
MAKERS = {
    "reduce_into": (SUMS, lambda op: cupar.reduce_into(I, I, op, np.zeros(1, I), cc=cc)),
    "inclusive_scan": (SUMS, lambda op: cupar.inclusive_scan(I, I, op, cc=cc)),
    "unary_transform": (FUNCTIONS, lambda op: cupar.unary_transform(I, I, op, cc=cc)),
    "binary_transform": (SUMS, lambda op: cupar.binary_transform(I, I, I, op, cc=cc)),
    "select": (TESTS, lambda op: cupar.select(I, I, N, op, cc=cc)),
    "three_way_partition": (
        TESTS, lambda op: cupar.three_way_partition(I, I, I, I, N, op, lambda a: a < -7, cc=cc)),
    "unique_by_key": (EQUALS, lambda op: cupar.unique_by_key(I, I, I, I, N, op, cc=cc)),
    "merge_sort": (ORDERS, lambda op: cupar.merge_sort(I, None, I, None, op, cc=cc)),
    "lower_bound": (ORDERS, lambda op: cupar.lower_bound(I, I, N, op, cc=cc)),
}
found = {}
for algorithm in sys.argv[2:]:
    operators, make = MAKERS[algorithm]
    for op in operators:
        start = perf_counter()
        made = make(op)
        found.setdefault(algorithm, []).append((perf_counter() - start, made.build.origin))
import json
print(json.dumps(found))
"""
OPERATED = (
    *("reduce_into", "inclusive_scan", "unary_transform", "binary_transform", "select"),
    *("three_way_partition", "unique_by_key", "merge_sort", "lower_bound"),
)

# What is built ahead: ten templates.
TEN = """
import sys
import numpy as np
import cupar
for dtype in map(np.dtype, ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")):
    if sys.argv[1] == "reduce_into":
        cupar.reduce_into(dtype, dtype, cupar.OpKind.PLUS, np.zeros(1, dtype))
    else:
        cupar.inclusive_scan(dtype, dtype, cupar.OpKind.PLUS)
"""

# Times the command that builds ahead.
AHEAD = """
import json
import subprocess
import sys
from time import perf_counter
script, cc, jobs, algorithm = sys.argv[1:]
command = [sys.executable, "-m", "cupar", "build", script, "--cc", cc, "--jobs", jobs, "--", algorithm]
start = perf_counter()
done = subprocess.run(command, capture_output=True, text=True)
seconds = perf_counter() - start
if done.returncode:
    sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
print(json.dumps({"seconds": seconds}))
"""

IMPORTS = """
from time import perf_counter
start = perf_counter()
import numpy
numpy_done = perf_counter()
import cupar
cupar_done = perf_counter()
cupar.reduce_into
factory_done = perf_counter()
import json
print(json.dumps({"numpy": numpy_done - start, "cupar": cupar_done - numpy_done,
                  "factory": factory_done - numpy_done}))
"""


# --- Rows ------------------------------------------------------------------------------------------------


@dataclass
class Row:
    """The samples of one row, in seconds; times that a row does not have stay empty."""

    call: list[float] = field(default_factory=list)
    ready: list[float] = field(default_factory=list)  # import + call
    process: list[float] = field(default_factory=list)
    says: str = ""  # in place of numbers

    def add(self, child: _common.Child) -> None:
        """Add a process that made one algorithm object."""
        took = child.result["builds"][0]["seconds"]
        self.call.append(took)
        self.ready.append(child.result["import"] + took)
        self.process.append(child.wall)

    def times(self) -> list[dict[str, Any] | None]:
        """Return the summaries of its three times."""
        return [
            _common.summary(values) if values else None for values in (self.call, self.ready, self.process)
        ]


@dataclass
class Measured:
    """All that the rounds have found for one algorithm."""

    rows: dict[str, Row] = field(default_factory=lambda: defaultdict(Row))
    stages: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    modules_on_hit: list[str] = field(default_factory=list)


class Children:
    """Runs the scripts above for one compute capability."""

    def __init__(self, folder: Path, cc: int, root: Path = _common.ROOT) -> None:
        scripts = {"cupar": CUPAR, "compute": COMPUTE, "imports": IMPORTS}
        scripts |= {"operators": OPERATORS, "ten": TEN, "ahead": AHEAD}
        self.work = _common.Workplace(folder, scripts, root)
        self.cc = cc

    def _in_new_cache(self, script: str, *arguments: object) -> _common.Child:
        return self.work.run(script, *arguments, env={"CUPAR_CACHE_DIR": str(self.work.new_folder())})

    def operators(self, algorithm: str) -> tuple[float, float]:
        """Return the seconds of a first build and of its third operator, in one process."""
        child = self._in_new_cache("operators", self.cc, algorithm)
        (first, origin), _, (new, new_origin) = child.result[algorithm]
        if (origin, new_origin) != ("built", "linked"):
            raise SystemExit(f"{algorithm}: operators were {origin} and {new_origin}, not built and linked")
        return first, new

    def ahead(self, algorithm: str, jobs: int) -> float:
        """Return the seconds of building ten templates ahead, in an empty cache."""
        child = self._in_new_cache("ahead", self.work.script("ten"), self.cc, jobs, algorithm)
        seconds: float = child.result["seconds"]
        return seconds

    def start_cupar(self, cache: Path, algorithm: str, *names: str, calls: int = 0) -> _common.Started:
        """Start a process that makes cupar's algorithm objects."""
        env = {"CUPAR_CACHE_DIR": str(cache)}
        return self.work.start("cupar", algorithm, self.cc, calls, *names, env=env)

    def cupar(self, cache: Path, algorithm: str, *names: str, origin: str, calls: int = 0) -> _common.Child:
        """Run such a process to its end; all objects must come from `origin`."""
        child = self.start_cupar(cache, algorithm, *names, calls=calls).finish()
        for name, build in zip(names, child.result["builds"], strict=True):
            if build["origin"] != origin:
                raise SystemExit(
                    f"{algorithm} with {name} came from {build['origin']!r}, expected {origin!r}"
                )
        if child.result["memory"] != 2 * calls:
            raise SystemExit(f"{algorithm}: {child.result['memory']} hits in memory, expected {2 * calls}")
        return child

    def compute(self, algorithm: str, *names: str, calls: int = 0, file: Path | str = "-") -> _common.Child:
        """Run a process that makes cuda.compute's algorithm objects."""
        return self.work.run("compute", algorithm, self.cc, calls, file, *names)


# --- Rounds ----------------------------------------------------------------------------------------------

FIRST = "cupar: first build"
NEW_FRESH = "cupar: new operator, fresh process"
NEW_SAME = "cupar: new operator, same process"
DISK = "cupar: hit on disk, fresh process"
MEMORY = "cupar: hit in memory"
MEMORY_NEW = "cupar: hit in memory, new lambda object"
COMPUTE_FIRST = "cuda.compute: first call, fresh process"
COMPUTE_SECOND = "cuda.compute: another operator, same process"
COMPUTE_SAVED = "cuda.compute: deserialize a file the user kept"
COMPUTE_MEMORY = "cuda.compute: the same again"
COMPUTE_MEMORY_NEW = "cuda.compute: the same again, new lambda object"
COMPUTE_ROWS = (COMPUTE_FIRST, COMPUTE_SECOND, COMPUTE_SAVED, COMPUTE_MEMORY, COMPUTE_MEMORY_NEW)


def cupar_round(children: Children, algorithm: str, found: Measured) -> None:
    """Take one sample of each of cupar's rows, all of them in one cache that is empty at first."""
    cache, rows = children.work.new_folder(), found.rows

    child = children.cupar(cache, algorithm, "plus", origin="built")
    rows[FIRST].add(child)
    _add_stages(found, FIRST, child)

    child = children.cupar(cache, algorithm, "farther", origin="linked")
    rows[NEW_FRESH].add(child)
    _add_stages(found, NEW_FRESH, child)

    child = children.cupar(cache, algorithm, "nearer", "either", origin="linked")
    rows[NEW_SAME].call.append(child.result["builds"][1]["seconds"])

    child = children.cupar(cache, algorithm, "plus", origin="disk")
    rows[DISK].add(child)
    _add_stages(found, DISK, child)
    found.modules_on_hit = child.result["modules"]

    child = children.cupar(cache, algorithm, "plus", origin="disk", calls=MEMORY_CALLS)
    rows[MEMORY].call.append(child.result["again"]["same"])
    rows[MEMORY_NEW].call.append(child.result["again"]["new"])


def _add_stages(found: Measured, row: str, child: _common.Child) -> None:
    for stage, took in child.result["builds"][0]["stages"].items():
        found.stages[row][stage].append(took)


def cuda_compute_round(children: Children, algorithm: str, found: Measured) -> None:
    """Take one sample of each of cuda.compute's rows."""
    rows = found.rows
    file = children.work.folder / f"{algorithm}.cuda-compute"

    child = children.compute(algorithm, "plus", file=file)
    rows[COMPUTE_FIRST].add(child)

    child = children.compute(algorithm, "farther", "plus", calls=MEMORY_CALLS)
    rows[COMPUTE_SECOND].call.append(child.result["builds"][1]["seconds"])
    rows[COMPUTE_MEMORY].call.append(child.result["again"]["same"])
    rows[COMPUTE_MEMORY_NEW].call.append(child.result["again"]["new"])

    rows[COMPUTE_SAVED].add(children.compute(algorithm, file=file))


def measure_builds(children: Children, algorithms: Sequence[str], repeat: int) -> dict[str, Measured]:
    """Go through all rows of all algorithms `repeat` times, after one round that does not count."""
    found = {algorithm: Measured() for algorithm in algorithms}
    missing = ""
    if not (_common.is_installed("cuda.compute") and _common.is_installed("numba_cuda_mlir")):
        missing = "not installed"
    for number in range(-1, repeat):
        _progress(f"builds: round {number + 1} of {repeat}" if number >= 0 else "builds: warming up")
        for algorithm in algorithms:
            measured = found[algorithm] if number >= 0 else Measured()
            cupar_round(children, algorithm, measured)
            if not missing:
                try:
                    cuda_compute_round(children, algorithm, measured)
                except _common.ChildError as error:
                    print(f"cuda.compute failed, {error}", file=sys.stderr)
                    missing = "failed, see standard error"
    for measured in found.values():
        for name in COMPUTE_ROWS:
            if not measured.rows[name].call:
                measured.rows[name].says = missing
    return found


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:<60}", end="", file=sys.stderr, flush=True)


# --- Several processes, many entries, imports ------------------------------------------------------------


def measure_operators(children: Mapping[str, Children], repeat: int) -> dict[str, Any]:
    """Time a new operator and a first build for each algorithm, in turns with a baseline."""
    found: dict[str, Any] = {name: {algorithm: ([], []) for algorithm in OPERATED} for name in children}
    for number in range(repeat):
        for algorithm in OPERATED:
            _progress(f"operators: round {number + 1} of {repeat}, {algorithm}")
            for name, each in children.items():
                try:
                    pair = each.operators(algorithm)
                except _common.ChildError as error:
                    print(f"{name}: {algorithm} failed, {error}", file=sys.stderr)
                    continue
                for samples, seconds in zip(found[name][algorithm], pair, strict=True):
                    samples.append(seconds)
    return {
        name: {
            algorithm: {"first": _common.summary(first), "new": _common.summary(new)}
            for algorithm, (first, new) in rows.items()
            if first
        }
        for name, rows in found.items()
    }


def measure_ahead(children: Mapping[str, Children], jobs: int, repeat: int) -> dict[str, Any]:
    """Time ten templates that are built ahead, in turns with a baseline."""
    found: dict[str, Any] = {name: {algorithm: [] for algorithm in ALGORITHMS} for name in children}
    for number in range(repeat):
        for algorithm in ALGORITHMS:
            _progress(f"ten templates: round {number + 1} of {repeat}, {algorithm}")
            for name, each in children.items():
                found[name][algorithm].append(each.ahead(algorithm, jobs))
    return {
        name: {algorithm: _common.summary(seconds) for algorithm, seconds in rows.items()}
        for name, rows in found.items()
    }


def measure_crowd(children: Children, repeat: int, processes: int = 6) -> dict[str, Any]:
    """Let several processes ask at once for the same build, which nobody has."""
    walls, built = [], []
    for _ in range(repeat):
        _progress(f"{processes} processes at once")
        cache = children.work.new_folder()
        start = time.perf_counter()
        crowd = [children.start_cupar(cache, "reduce_into", "plus") for _ in range(processes)]
        results = [child.finish().result for child in crowd]
        walls.append(time.perf_counter() - start)
        built.append(sum(result["built"] for result in results))
    return {"processes": processes, "wall": _common.summary(walls), "built": built}


def measure_lookup(children: Children, sizes: Sequence[int], lookups: int) -> dict[str, Any]:
    """Time `Disk.load` in directories with few and many entries, turn by turn."""
    from cupar._store.disk import Disk
    from cupar._store.entry import Entry
    from cupar._store.settings import DEFAULT_SIZE

    origin = children.work.new_folder()
    children.cupar(origin, "reduce_into", "plus", origin="built")
    key, entry = _largest_entry(Disk(origin, DEFAULT_SIZE))

    disks = []
    for size in sizes:
        _progress(f"lookup: writing {size} entries")
        disk = Disk(children.work.new_folder(), 1 << 40)
        disk.store(key, entry)
        for number in range(size - 1):
            payload = os.urandom(200_000 if number % 100 == 0 else 100)
            disk.store(os.urandom(32).hex(), Entry({"number": number}, payload))
        found = disk.usage()
        if found.entries != size:
            raise SystemExit(f"{found.entries} entries on disk, expected {size}")
        disks.append(disk)

    hits: list[list[float]] = [[] for _ in disks]
    misses: list[list[float]] = [[] for _ in disks]
    _progress("lookup: timing")
    for _ in range(lookups):
        absent = os.urandom(32).hex()
        for disk, hit, miss in zip(disks, hits, misses, strict=True):
            start = time.perf_counter()
            there = disk.load(key)
            between = time.perf_counter()
            missing = disk.load(absent)
            end = time.perf_counter()
            hit.append(between - start)
            miss.append(end - between)
            if there is None or there.payload != entry.payload or missing is not None:
                raise SystemExit("a lookup found the wrong thing")
    return {
        "entries": list(sizes),
        "lookups": lookups,
        "payload_bytes": len(entry.payload),
        "hit": [_brief(values) for values in hits],
        "miss": [_brief(values) for values in misses],
    }


def _largest_entry(disk: Any) -> tuple[str, Any]:
    key = max(disk.entries(), key=lambda item: item.size).key
    return key, disk.load(key)


def _brief(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def measure_imports(children: Children, repeat: int) -> dict[str, Any]:
    """Time the imports of NumPy and, on top of it, cupar, in fresh processes."""
    samples = defaultdict(list)
    for number in range(-1, repeat):
        _progress(f"imports: {number + 1} of {repeat}")
        for name, took in children.work.run("imports").result.items():
            if number >= 0:
                samples[name].append(took)
    return {name: _common.summary(values) for name, values in samples.items()}


# --- Report ----------------------------------------------------------------------------------------------


def build_ratios(rows: Mapping[str, Row]) -> dict[str, float | None]:
    """Return the ratios that matter between the rows of one algorithm, each of medians from this run."""

    def ratio(part: str, whole: str, samples: str = "call") -> float | None:
        values = [getattr(rows[name], samples) for name in (part, whole)]
        return statistics.median(values[0]) / statistics.median(values[1]) if all(values) else None

    return {
        "new operator, fresh process / first build": ratio(NEW_FRESH, FIRST),
        "new operator, same process / first build": ratio(NEW_SAME, FIRST),
        "hit on disk / first build": ratio(DISK, FIRST),
        "hit in memory / first build": ratio(MEMORY, FIRST),
        "first build / cuda.compute's first call *": ratio(FIRST, COMPUTE_FIRST, "ready"),
        "new operator, fresh process / cuda.compute's first call *": ratio(NEW_FRESH, COMPUTE_FIRST, "ready"),
        "hit on disk / cuda.compute's first call *": ratio(DISK, COMPUTE_FIRST, "ready"),
        "hit on disk / cuda.compute's deserialize *": ratio(DISK, COMPUTE_SAVED, "ready"),
        "new operator / cuda.compute's, same process": ratio(NEW_SAME, COMPUTE_SECOND),
        "hit in memory / cuda.compute's": ratio(MEMORY, COMPUTE_MEMORY),
    }


def other_ratios(found: Mapping[str, Measured], others: Mapping[str, Any]) -> dict[str, float]:
    """Return the other ratios that matter."""
    crowd, lookup, imports = others["crowd"], others["lookup"], others["imports"]
    alone = statistics.median(found["reduce_into"].rows[FIRST].process)
    few, many = lookup["entries"]
    (hit_few, hit_many), (miss_few, miss_many) = (
        [values["median"] for values in lookup[kind]] for kind in ("hit", "miss")
    )
    numpy = imports["numpy"]["median"]
    return {
        f"{crowd['processes']} processes at once / one alone, wall time": crowd["wall"]["median"] / alone,
        f"lookup among {many} / among {few} entries, hit": hit_many / hit_few,
        f"lookup among {many} / among {few} entries, miss": miss_many / miss_few,
        "import cupar / import numpy": imports["cupar"]["median"] / numpy,
        "import cupar and its reduce_into / import numpy": imports["factory"]["median"] / numpy,
    }


def print_operators(found: Mapping[str, Any]) -> None:
    """Print what a new operator costs, and the first build."""
    print(f"\nnew operator and first build in one process; goal: a ratio of {OPERATOR_GOAL} at most\n")
    rows = []
    for name, algorithms in found.items():
        for algorithm, times in algorithms.items():
            ratio = times["new"]["median"] / times["first"]["median"]
            missed = " !" * (ratio > OPERATOR_GOAL)
            spreads = [_common.spread(times[key]) for key in ("first", "new")]
            rows.append([f"{name}: {algorithm}", *spreads, f"{ratio:.3f}{missed}"])
    _common.print_table(("", "first build", "new operator", "ratio"), rows)


def print_ahead(found: Mapping[str, Any], jobs: int) -> None:
    """Print how long ten templates take that are built ahead, and what of the baseline's time that is."""
    print(f"\nten templates built ahead by {jobs} processes; goal: {AHEAD_GOAL} of the baseline's time\n")
    (mine, rows), *others = found.items()
    lines = [[f"{mine}: {algorithm}", _common.spread(took), ""] for algorithm, took in rows.items()]
    for name, base in others:
        for algorithm, took in base.items():
            ratio = rows[algorithm]["median"] / took["median"]
            missed = " !" * (ratio > AHEAD_GOAL)
            lines.append([f"{name}: {algorithm}", _common.spread(took), f"{ratio:.3f}{missed}"])
    _common.print_table(("", "seconds", "ratio"), lines)


def notes(found: Mapping[str, Measured], cc: int) -> list[str]:
    """Return what a reader of the table must know."""
    listed = [f"built for sm_{cc}; hits in memory are means over {MEMORY_CALLS} calls"]
    heavy = {"numba", "numba_cuda", "llvmlite"}
    for algorithm, measured in found.items():
        modules = measured.modules_on_hit
        loaded = sorted(heavy & {name.partition(".")[0] for name in modules})
        verdict = f"{', '.join(loaded)} AMONG THEM" if loaded else "numba not among them"
        listed.append(f"{algorithm}, hit on disk: {len(modules)} modules loaded, {verdict}")
    listed.append(
        "with an explicit compute capability a hit on disk reads and checks the build but loads no bindings, "
        "where cuda.compute's deserialize has loaded its own; cold_start.py goes on to the first result"
    )
    return listed


def report(found: Mapping[str, Measured], others: Mapping[str, Any], cc: int) -> None:
    """Print all tables."""
    for algorithm, measured in found.items():
        print(f"\n{algorithm}: median (min to max)\n")
        _common.print_table(
            ("", "call", "import + call", "process"),
            (
                (name, *([row.says, "", ""] if row.says else map(_common.spread, row.times())))
                for name, row in measured.rows.items()
            ),
        )
        print()
        for name, stages in measured.stages.items():
            parts = (f"{stage} {_common.seconds(statistics.median(took))}" for stage, took in stages.items())
            print(f"{name}: {', '.join(parts)}")

    crowd, lookup, imports = others["crowd"], others["lookup"], others["imports"]
    print(
        f"\n{crowd['processes']} processes at once on an empty cache: {_common.spread(crowd['wall'])}; ",
        end="",
    )
    print(f"builds made in all, by run: {', '.join(map(str, crowd['built']))}")
    for kind in ("hit", "miss"):
        for entries, values in zip(lookup["entries"], lookup[kind], strict=True):
            print(f"lookup among {entries} entries, {kind}: {_common.spread(values)}")
    for name, text in (
        ("numpy", "import numpy"),
        ("cupar", "import cupar after it"),
        ("factory", "import cupar and its reduce_into after it"),
    ):
        print(f"{text}: {_common.spread(imports[name])}")

    print("\nratios of medians (*: imports included)\n")
    columns = [build_ratios(measured.rows) for measured in found.values()]
    _common.print_table(("", *found), ([name, *map(_ratio, column)] for name, *column in _joined(columns)))
    print()
    _common.print_table(
        ("", "ratio"), ((name, _ratio(value)) for name, value in other_ratios(found, others).items())
    )
    print("\nnotes\n")
    for text in notes(found, cc):
        print(f"* {text}")


def _joined(columns: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    return [(name, *(column[name] for column in columns)) for name in columns[0]]


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def as_json(found: Mapping[str, Measured]) -> dict[str, Any]:
    """Return the rows for the JSON file."""
    return {
        algorithm: {
            "rows": {
                name: {"says": row.says}
                if row.says
                else dict(zip(("call", "import_and_call", "process"), row.times(), strict=True))
                for name, row in measured.rows.items()
            },
            "stages": {
                name: {stage: _common.summary(took) for stage, took in stages.items()}
                for name, stages in measured.stages.items()
            },
            "ratios": build_ratios(measured.rows),
            "modules_on_disk_hit": len(measured.modules_on_hit),
        }
        for algorithm, measured in found.items()
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="default: benchmarks/results/build-<gpu or 'cpu'>.json")
    parser.add_argument("--repeat", type=int, help="rounds; default 5")
    parser.add_argument("--cc", type=int, help="compute capability as in 90; default: the GPU's, else 90")
    parser.add_argument("--quick", action="store_true", help="few rounds of everything, to see that it works")
    parser.add_argument("--baseline", metavar="COMMIT", help="or a checkout: another cupar, to compare with")
    parser.add_argument("--jobs", type=int, default=_cores(), help="that build ahead; default one a core")
    parser.add_argument(
        "--only", choices=PARTS, action="append", help="measure this alone; may be given several times"
    )
    options = parser.parse_args()

    device = _common.gpu()
    facts = _common.environment(device)
    cc = options.cc or (device["cc"] if device else 90)
    repeat = options.repeat or (1 if options.quick else 5)
    parts = options.only or PARTS
    content: dict[str, Any] = {"benchmark": "build", "environment": facts, "cc": cc, "repeat": repeat}
    with tempfile.TemporaryDirectory(prefix="cupar-build-") as name:
        folder = Path(name)
        children = {"cupar": Children(_made(folder / "cupar"), cc)}
        if options.baseline:
            try:
                root = _common.checkout(options.baseline, _made(folder / "other"))
            except ValueError as error:
                parser.error(f"--baseline: {error}")
            children[f"baseline {options.baseline}"] = Children(_made(folder / "baseline"), cc, root)
        mine = children["cupar"]
        if "rows" in parts:
            found = measure_builds(mine, ALGORITHMS, repeat)
            others = {
                "imports": measure_imports(mine, 5 if options.quick else 20),
                "crowd": measure_crowd(mine, min(repeat, 3)),
                "lookup": measure_lookup(mine, (20, 2_000 if options.quick else 20_000), 500),
            }
            content |= {"algorithms": as_json(found), **others}
            content |= {"ratios": other_ratios(found, others), "notes": notes(found, cc)}
        if "operators" in parts:
            content["operators"] = measure_operators(children, min(repeat, 3))
        if "ahead" in parts:
            content["jobs"] = options.jobs
            content["ahead"] = measure_ahead(children, options.jobs, min(repeat, 3))
        _progress("")
    _common.print_environment(facts)
    if "rows" in parts:
        report(found, others, cc)
    if "operators" in parts:
        print_operators(content["operators"])
    if "ahead" in parts:
        print_ahead(content["ahead"], options.jobs)
    path = options.json or _common.RESULTS / f"build-{_common.slug(device)}.json"
    _common.write_json(path, content)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    main()
