"""Host time of a launch with three arrays and two numbers: C++, cupar.jit, CuPy's RawKernel, numba.cuda.jit.

cupar.jit's kernels are launched from Python, and from a loop under numba.njit.

    python benchmarks/kernels.py [--rounds 51] [--calls 100] [--starts 11] [--json FILE]

It needs a GPU and CuPy. Without nvcc there is no C++ and so no ratios; without PyTorch, what needs it is
missing. Who takes part is a statement as a user would write it, timed with `timeit`, or the loop in
kernels.cu. They take turns, batch by batch, and the GPU is idle before each batch, so that nobody waits for
it. All launches are on the default stream, of 4 blocks of 256 threads. Some have the same arguments each
time, others one of 16 inputs in turns. Each must write the right result before it is timed.

Then the start of a process to its first launch is timed, which _kernel_start.py tells more of. Either is left
out if it has no rounds.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from timeit import Timer
from typing import Any

import _common
import _kernel_start
import call_overhead
import cupy
import numba
import numpy as np
from numba import cuda

sys.path.insert(0, str(_common.ROOT))

import cupar
from cupar._device import driver

N, BLOCK, ARRAYS, WARM_UP = 1000, 256, 16, 5
GRID = -(-N // BLOCK)
GOALS = {
    "cupar.jit, CuPy": 1.4,
    "cupar.jit, PyTorch": 1.4,
    "cupar.jit, CuPy, other arrays": 1.4,
    "cupar.jit, PyTorch, other arrays": 1.4,
    "cupar.jit, bound": 0.6,
    "cupar.jit, njit": 1.1,
    "cupar.jit, njit, a stream": 1.1,
    "cupar.jit, njit, other arrays": 1.1,
}


def axpy(x, y, out, n, alpha):  # type: ignore[no-untyped-def]
    """Add a multiple of an array to another one: for cupar.jit and numba.cuda.jit."""
    i = cuda.grid(1)
    if i < n:
        out[i] = alpha * x[i] + y[i]


def compiled(kernel: Any) -> Any:
    """Return a function under numba.njit that launches so many times, with inputs in turns."""

    @numba.njit(nogil=True)
    def launches(xs, arrays, y, out, n, alpha, stream, calls):  # type: ignore[no-untyped-def]
        at = 0
        for _ in range(calls):
            kernel[(n + 255) // 256, 256, stream](xs[at], y, out, n, alpha)
            at = at + 1 if at + 1 < arrays else 0

    return launches


RAW = r"""
extern "C" __global__ void axpy(const float* x, const float* y, float* out, long long n, double alpha) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = alpha * x[i] + y[i];
}
"""


def cpp(cc: int, folder: Path) -> Any:
    """Compile and load kernels.cu; None without nvcc."""
    nvcc = call_overhead.find_nvcc()
    if nvcc is None:
        return None
    target = folder / "kernels.so"
    options = ["-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", f"-arch=sm_{cc}"]
    source = Path(__file__).with_suffix(".cu")
    subprocess.run([nvcc, *options, "-o", str(target), str(source)], check=True)
    batch = ctypes.CDLL(str(target)).axpy_batch
    p, i64 = ctypes.c_void_p, ctypes.c_int64
    batch.argtypes, batch.restype = [p, i64, p, p, i64, ctypes.c_double, ctypes.c_int], i64
    return batch


def sides(folder: Path) -> dict[str, Callable[[int], float]]:
    """Return by name what enqueues so many launches, and returns the seconds that this took."""
    cc = driver.current_device().cc
    xs = [cupy.full(N, i + 1, "f4") for i in range(ARRAYS)]
    y, out = cupy.ones(N, "f4"), cupy.zeros(N, "f4")
    ours, theirs, raw = cupar.jit(axpy), cuda.jit(axpy), cupy.RawKernel(RAW, "axpy")
    bound = ours.bind(GRID, BLOCK, xs[0], y, out, N, 2.0)
    numbas = [cuda.to_device(each.get()) for each in (xs[0], y)] + [cuda.as_cuda_array(out)]
    own = cupy.cuda.Stream(non_blocking=True)
    given: dict[str, Any] = {
        **{"k": ours, "t": theirs, "raw": raw, "bound": bound, "x": xs[0], "y": y, "out": out, "own": own},
        **{"nx": numbas[0], "ny": numbas[1], "nout": numbas[2], "n64": np.int64(N)},
        "xs": itertools.cycle(xs).__next__,
        "scaled": itertools.cycle([1.0, 2.0, 3.0]).__next__,
    }
    texts = {
        "cupar.jit, CuPy": f"k[{GRID}, {BLOCK}](x, y, out, {N}, 2.0)",
        "cupar.jit, CuPy, other arrays": f"k[{GRID}, {BLOCK}](xs(), y, out, {N}, 2.0)",
        "cupar.jit, CuPy, a stream": f"k[{GRID}, {BLOCK}, own](x, y, out, {N}, 2.0)",
        "cupar.jit, Numba": f"k[{GRID}, {BLOCK}](nx, ny, nout, {N}, 2.0)",
        "cupar.jit, bound": "bound()",
        "CuPy RawKernel": f"raw(({GRID},), ({BLOCK},), (x, y, out, n64, 2.0))",
        "CuPy RawKernel, other arrays": f"raw(({GRID},), ({BLOCK},), (xs(), y, out, n64, 2.0))",
        "numba.cuda.jit, CuPy": f"t[{GRID}, {BLOCK}](x, y, out, {N}, 2.0)",
        "numba.cuda.jit, Numba": f"t[{GRID}, {BLOCK}](nx, ny, nout, {N}, 2.0)",
    }
    if _common.is_installed("torch"):
        import torch

        tensors = [torch.as_tensor(each, device="cuda") for each in xs]
        given.update(tx=tensors[0], ty=torch.as_tensor(y, device="cuda"))
        given.update(tout=torch.as_tensor(out, device="cuda"), txs=itertools.cycle(tensors).__next__)
        texts["cupar.jit, PyTorch"] = f"k[{GRID}, {BLOCK}](tx, ty, tout, {N}, 2.0)"
        texts["cupar.jit, PyTorch, other arrays"] = f"k[{GRID}, {BLOCK}](txs(), ty, tout, {N}, 2.0)"
        texts["numba.cuda.jit, PyTorch"] = f"t[{GRID}, {BLOCK}](tx, ty, tout, {N}, 2.0)"
    found: dict[str, Callable[[int], float]] = {}
    batch = cpp(cc, folder)
    if batch is not None:
        pointers = (ctypes.c_void_p * ARRAYS)(*(each.data.ptr for each in xs))
        kept = ctypes.addressof(pointers), y.data.ptr, out.data.ptr
        given["pointers"] = pointers
        for name, arrays in (("C++ <<<>>>", 1), ("C++ <<<>>>, other arrays", ARRAYS)):
            found[name] = lambda calls, arrays=arrays: (
                pointers and batch(kept[0], arrays, *kept[1:], N, 2.0, calls) * 1e-9
            )
    found.update((name, Timer(text, globals=given).timeit) for name, text in texts.items())
    launches, rows = compiled(ours), cupy.stack(xs)
    views = [cupar.view(each) for each in (rows, y, out)]
    for name, arrays, stream in (("", 1, 0), (", a stream", 1, own.ptr), (", other arrays", ARRAYS, 0)):
        text = f"launches(xs, {arrays}, y, out, {N}, 2.0, {stream}, calls)"
        names = dict(zip(("xs", "y", "out"), views, strict=True), launches=launches, kept=rows)
        found[f"cupar.jit, njit{name}"] = lambda calls, text=text, names=names: Timer(
            text, globals={**names, "calls": calls}
        ).timeit(1)
    for name, run in found.items():
        out[:] = 0
        cupy.cuda.Device().synchronize()
        run(1)
        cupy.cuda.Device().synchronize()
        factors = (out.get() - 1) / 2
        if not (factors == factors[0]).all() or not 1 <= factors[0] <= ARRAYS:
            raise RuntimeError(f"{name}: wrong result")
    return found


def measured(found: dict[str, Callable[[int], float]], rounds: int, calls: int) -> dict[str, list[float]]:
    """Return microseconds of a launch by name, of each round."""
    times: dict[str, list[float]] = {name: [] for name in found}
    for turn in range(WARM_UP + rounds):
        for name, run in found.items():
            cupy.cuda.Device().synchronize()
            took = run(calls) / calls * 1e6
            if turn >= WARM_UP:
                times[name].append(took)
    return times


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--starts", type=int, default=11)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    times: dict[str, list[float]] = {}
    starts: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        if options.rounds:
            times = measured(sides(Path(folder)), options.rounds, options.calls)
            print_launches(times)
        if options.starts:
            starts = _kernel_start.measured(Path(folder), options.starts)
            heads = ["milliseconds from the start of a process", "median", "of the floor", "goal"]
            _common.print_table(heads, _kernel_start.rows(starts))
            print(*_kernel_start.parts(starts), sep="\n")
    if options.json:
        facts = _common.environment(_common.gpu())
        found = {"environment": facts, "microseconds": times, "seconds_from_start": starts}
        _common.write_json(options.json, found)


def print_launches(times: dict[str, list[float]]) -> None:
    """Print a table of launches, with the goals."""
    medians = {name: statistics.median(each) for name, each in times.items()}
    rows = []
    for name, median in medians.items():
        base = medians.get("C++ <<<>>>, other arrays" if name.endswith("other arrays") else "C++ <<<>>>")
        ratio = "" if base is None else f"{median / base:.2f}"
        goal = GOALS.get(name)
        missed = goal is not None and base is not None and median > goal * base
        rows.append([name, f"{median:.2f}", ratio, "" if goal is None else f"{goal}{' missed' * missed}"])
    _common.print_table(["microseconds of host time", "median", "of C++", "goal"], rows)


if __name__ == "__main__":
    main()
