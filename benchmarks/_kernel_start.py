"""The start of a process to its first launch of a kernel done, for kernels.py: what is compiled is on disk.

Each contestant is a script in a fresh process that imports what a program of that kind imports anyway (NumPy
alone, or CuPy), makes an array, and launches a kernel on it. The clock stops when the GPU is idle after that,
and the result is checked then. The floors do all that but the kernel. Contestants take turns, after two
processes of each that do not count: the first compiles, the second finds that.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from pathlib import Path

import _common
import cold_start

N = 1000
GOAL = 1.10  # of the floor with the same imports

BARE = (
    cold_start.START.replace("N = 1_000_000", f"N = {N}").replace("(np.float32), ", "")
    + cold_start.DEVICE
    + """
x = d_in

def idle():
    check(driver.cuCtxSynchronize())

def result():
    return d_in.to_host(0, N)
"""
)
CUPY = f"""
import sys
import time
marks = [("start of Python", time.time_ns())]

def mark(name):
    marks.append((name, time.time_ns()))

import numpy as np
import cupy
mark("import cupy")
N = {N}
host = np.tile(np.array([3, 0, 1, 2], np.float32), N // 4)
x = cupy.asarray(host)
mark("context and array")

def idle():
    cupy.cuda.Device().synchronize()

def result():
    return x.get()
"""
OURS = """
import cupar
from cupar import cuda

@cupar.jit
def kernel(x, factor):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= factor

mark("define the kernel")
kernel[4, 256](x, 2.0)
mark("launch")
"""
NUMBAS = """
from numba import cuda

mark("import numba.cuda")

@cuda.jit(cache=True)
def kernel(x, factor):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= factor

mark("define the kernel")
kernel[4, 256](x, 2.0)
mark("launch")
"""
RAW = r'''
kernel = cupy.RawKernel(r"""
extern "C" __global__ void scale(float* x, long long n, double factor) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) x[i] *= factor;
}""", "scale")
kernel((4,), (256,), (x, np.int64(N), 2.0))
mark("launch")
'''
END = """
idle()
mark("done")
import json
if not np.array_equal(result(), host * {factor}):
    sys.exit("wrong result")
started = int(sys.argv[1])
print(json.dumps({{
    "marks": [(name, (when - started) * 1e-9) for name, when in marks],
    "numba": "numba" in sys.modules,
    "origin": kernel.build.origin if {is_ours} else None,
}}))
"""

# By name: what a process does before, and what it launches; floors launch nothing.
CONTESTANTS = {
    "NumPy, a context": (BARE, None),
    "NumPy, cupar.jit": (BARE, OURS),
    "NumPy, numba.cuda, cache=True": (BARE, NUMBAS),
    "CuPy, a context": (CUPY, None),
    "CuPy, cupar.jit": (CUPY, OURS),
    "CuPy, its RawKernel": (CUPY, RAW),
    "CuPy, numba.cuda, cache=True": (CUPY, NUMBAS),
}


def scripts() -> dict[str, str]:
    """Return the source of each contestant, by the name of its script."""
    found = {}
    for number, (before, launches) in enumerate(CONTESTANTS.values()):
        end = END.format(factor=2 if launches else 1, is_ours=launches is OURS)
        found[f"start_{number}"] = before + (launches or "") + end
    return found


def measured(folder: Path, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return seconds since the start of the process by contestant and mark, of each round."""
    work = _common.Workplace(folder, scripts())
    names = ("CUPAR_CACHE_DIR", "CUPY_CACHE_DIR", "NUMBA_CACHE_DIR")
    caches = {name: str(work.new_folder()) for name in names}
    found: dict[str, dict[str, list[float]]] = {name: {} for name in CONTESTANTS}
    for turn in range(-2, rounds):
        for number, (name, (_, launches)) in enumerate(CONTESTANTS.items()):
            child = work.run(f"start_{number}", time.time_ns, env=caches)
            told = child.result["numba"], child.result["origin"]
            if launches is OURS and turn >= -1 and told != (False, "disk"):
                raise RuntimeError(f"{name}: whether numba is imported, and where the code is from: {told}")
            if turn >= 0:
                for mark, when in child.result["marks"]:
                    found[name].setdefault(mark, []).append(when)
    return found


def rows(found: dict[str, dict[str, list[float]]]) -> Iterable[list[str]]:
    """Return what a table says: of each contestant the milliseconds until it is done, and of its floor."""
    floor = 0.0
    for name, marks in found.items():
        median = statistics.median(marks["done"])
        is_floor = CONTESTANTS[name][1] is None
        floor = median if is_floor else floor
        goal = "" if CONTESTANTS[name][1] is not OURS else f"{GOAL}{' missed' * (median > GOAL * floor)}"
        yield [name, f"{median * 1e3:.0f}", "" if is_floor else f"{median / floor:.3f}", goal]


def parts(found: dict[str, dict[str, list[float]]]) -> Iterable[str]:
    """Return a line for each contestant: the milliseconds that its steps took."""
    for name, marks in found.items():
        medians = [(mark, statistics.median(times)) for mark, times in marks.items()]
        before = [0.0, *(when for _, when in medians)]
        taken = zip(medians, before, strict=False)
        steps = (f"{mark} {(when - last) * 1e3:.1f}" for (mark, when), last in taken)
        yield f"{name}: {', '.join(steps)}"
