"""Host time of a call and latency to its result: C++ CUB, cupar, a CUDA graph, cuda.compute, CuPy, PyTorch.

    python benchmarks/call_overhead.py [--rounds 51] [--calls 100] [--only reduce,scan,transform,sort]
                                       [--profile] [--seconds 150] [--json FILE]
    python benchmarks/call_overhead.py --plot FILE

It needs a GPU and CuPy. Without nvcc there is no C++ CUB and so no ratios; without cuda.compute, PyTorch,
cuda.core or matplotlib, what needs them is missing. The second form draws the plot of a JSON file again,
without a GPU.

Who takes part is a statement as a user would write it, timed with `timeit` (so without garbage collection),
or the loop in call_overhead.cu, compiled by nvcc with cuda-cccl's headers, the CUB that cupar runs. They take
turns, batch by batch, A B C A B C, so that a machine that wanders hits all alike. Tables give medians, and
ratios of medians:

* host time of a call: that of a batch of calls, enqueued one after another, divided by their number. The GPU
  is idle before each batch, and batches are so short that the driver's queue is never full: otherwise what is
  measured would be the host waiting for the GPU;
* latency: from just before one call until the default stream is idle.

Unless its name says otherwise, a side works on the same arrays in each call, on the default stream. Others
take 16 pairs of arrays in turns, and of these some also another number of items each time, of 499. They are
compared with a C++ loop that does the same; what it takes to get the next ones is in the time. What a stream
costs is told as a difference, the median of those within the rounds.

Before and after anybody is timed, its calls must write the right results: sums of small integers are exact in
any order. CuPy's sum and sort alone are not checked: they return new arrays.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from ctypes import POINTER, byref, c_int, c_int64, c_size_t, c_void_p
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from timeit import Timer
from typing import Any, NamedTuple

import _common
import numpy as np

sys.path.insert(0, str(_common.ROOT))  # this checkout's cupar, whatever else is installed

import cupar

SEED = 20261121
SIZES = (1_000, 1_000_000)
WARM_UP = 3  # rounds that do not count
LATENCIES = 20  # of each side in a round
# A radix sort of many items is 11 kernels and memsets, and the driver queues about 1,024 of them.
LARGE_SORT = 10_000  # items; up to a few thousand it is one kernel
LARGE_SORT_CALLS = 50  # in a batch at most

ARRAYS = 16  # pairs that are taken in turns
NUMBERS = 499  # of items, in turns: with 16 pairs of arrays, no call is as one of the 7,983 before it

# What cupar's calls may take in multiples of the host time of C++ CUB that does the same, for each size.
GOALS = {
    "run": (1.0, 1.0),
    "object": (1.0, 1.0),
    "arrays": (1.25, 0.8),
    "sizes": (1.25, 0.8),
    "bound": (0.5, 0.5),
    "lookup": (1.6, 1.6),
    "lookup_lambda": (1.6, 1.6),
}
# What one side may take more than another, in microseconds.
DIFFERENCES = (
    ("torch_stream", "handle", 0.8),
    ("cupy_object", "handle", 0.3),
    ("torch_object", "handle", 0.3),
    ("core_object", "handle", 0.3),
    ("run", "given", 0.3),  # to ask for the current stream
    ("torch_tensors", "torch_given", 0.3),
)

# --- What is timed ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """How everybody is asked for an algorithm: source text, in which ``d_in``, ``d_out`` and ``n`` are given.

    Attributes
    ----------
    dtype : str
        Of input and output.
    factory : str
        cupar's, where ``{op}`` is the operator, if there is one.
    call : str
        What cupar's object takes beside temporary storage.
    known : str
        What kind of operator ``op`` is that is no Python function; empty if the algorithm has none.
    compute : str
        The name of cuda.compute's one-call form.
    compute_setup : str
        What makes the operator or order for cuda.compute.
    compute_made_with, compute_call : str
        What the factory of its object takes, and what the object.
    compute_once : str
        What its one-call form takes.
    cupy, torch : str
        The statements.
    torch_setup : str
        What goes before PyTorch's.
    two_phase : bool
        Whether there is temporary storage.
    checks_cupy : bool
        Whether CuPy's result is in ``d_out``.
    """

    dtype: str
    factory: str
    call: str
    known: str
    compute: str
    compute_setup: str
    compute_made_with: str
    compute_call: str
    compute_once: str
    cupy: str
    torch: str
    torch_setup: str = "t_in, t_out = torch.from_dlpack(d_in), torch.from_dlpack(d_out)"
    two_phase: bool = True
    checks_cupy: bool = True

    def factory_with(self, op: str) -> str:
        """Return cupar's factory with an operator."""
        return self.factory.format(op=op)


REDUCE = Recipe(
    dtype="float32",
    factory="cupar.reduce_into(d_in, d_out, {op}, h_init)",
    call="d_in, d_out, n, h_init",
    known="OpKind",
    compute="reduce_into",
    compute_setup="op = compute.OpKind.PLUS",
    compute_made_with="d_in=d_in, d_out=d_out, op=op, h_init=h_init",
    compute_call="d_in=d_in, d_out=d_out, num_items=n, op=op, h_init=h_init",
    compute_once="d_in=d_in, d_out=d_out, num_items=n, op=op, h_init=h_init",
    cupy="cupy.sum(d_in)",  # as one calls it: its result is an array of no dimensions, made anew
    checks_cupy=False,
    torch_setup="t_in, t_out = torch.from_dlpack(d_in), torch.from_dlpack(d_out.reshape(()))",
    torch="torch.sum(t_in, 0, out=t_out)",
)
SCAN = Recipe(
    dtype="float32",
    factory="cupar.inclusive_scan(d_in, d_out, {op})",
    call="d_in, d_out, n",
    known="OpKind",
    compute="inclusive_scan",
    compute_setup="op = compute.OpKind.PLUS",
    compute_made_with="d_in=d_in, d_out=d_out, op=op, init_value=None",
    compute_call="d_in=d_in, d_out=d_out, op=op, init_value=None, num_items=n",
    compute_once="d_in=d_in, d_out=d_out, op=op, init_value=None, num_items=n",
    cupy="cupy.cumsum(d_in, out=d_out)",
    torch="torch.cumsum(t_in, 0, out=t_out)",
)
TRANSFORM = Recipe(
    dtype="float32",
    factory="cupar.unary_transform(d_in, d_out, {op})",
    call="d_in, d_out, n",
    known="RawOp",
    compute="unary_transform",
    compute_setup="from cuda.compute.op import RawOp\nop = RawOp(ltoir=op.ltoir, name=op.name)",
    compute_made_with="d_in=d_in, d_out=d_out, op=op",
    compute_call="d_in=d_in, d_out=d_out, op=op, num_items=n",
    compute_once="d_in=d_in, d_out=d_out, op=op, num_items=n",
    cupy="cupy.square(d_in, out=d_out)",
    torch="torch.square(t_in, out=t_out)",
    two_phase=False,
)
# PyTorch sorts indices along with the keys, which nobody else does.
SORT = Recipe(
    dtype="int32",
    factory="cupar.radix_sort(d_in, d_out, None, None, cupar.SortOrder.ASCENDING)",
    call="d_in, d_out, None, None, n",
    known="",
    compute="radix_sort",
    compute_setup="order = compute.SortOrder.ASCENDING",
    compute_made_with="d_in_keys=d_in, d_out_keys=d_out, d_in_values=None, d_out_values=None, order=order",
    compute_call="d_in_keys=d_in, d_out_keys=d_out, d_in_values=None, d_out_values=None, num_items=n",
    compute_once="d_in_keys=d_in, d_out_keys=d_out, num_items=n, order=order",
    cupy="cupy.sort(d_in)",
    checks_cupy=False,
    torch_setup="t_in, t_out = torch.from_dlpack(d_in), torch.from_dlpack(d_out)\n"
    "t_indices = torch.empty(n, dtype=torch.int64, device=t_in.device)",
    torch="torch.sort(t_in, out=(t_out, t_indices))",
)
RECIPES = {"reduce": REDUCE, "scan": SCAN, "transform": TRANSFORM, "sort": SORT}


@dataclass(frozen=True)
class Text:
    """Python source that is timed.

    Attributes
    ----------
    key, name : str
        For JSON and for tables.
    setup : str
        What is run once, before.
    statement : str
        The call.
    checks : int
        How many calls are checked: that they write what is right into ``d_out``.
    reference : str
        The key of the C++ loop that does the same.
    has_latency : bool
        Whether latency is measured, too.
    batch : str
        What makes ``calls`` calls, if that is no loop in Python.
    """

    key: str
    name: str
    setup: str
    statement: str
    checks: int = 1
    reference: str = "cpp"
    has_latency: bool = False
    batch: str = ""


def texts(recipe: Recipe) -> list[Text]:
    """Return all that takes part in an algorithm's table, but for C++ CUB.

    Setups also make the builds that a lookup or a one-call form is to find.
    """
    checks = int(recipe.checks_cupy)
    return [
        *_texts_of_cupar(recipe),
        *_texts_of_streams(recipe),
        *_texts_of_compute(recipe),
        Text("cupy", "CuPy", "", recipe.cupy, checks, has_latency=True),
        # Last: it comes with an NVRTC of its own, and the first that is loaded serves all in the process.
        *_texts_of_torch(recipe),
    ]


# What a call takes the next ones of.
_TURNS = "import itertools\nturns, numbers = itertools.cycle(pairs), itertools.cycle(sizes)"
_NEXT_ARRAYS = "d_in, d_out = next(turns)\n"
_NEXT_SIZE = f"{_NEXT_ARRAYS}n = next(numbers)\n"


def _texts_of_cupar(recipe: Recipe) -> list[Text]:
    call, factory, of_lambda = recipe.call, recipe.factory_with("op"), recipe.factory_with("function")
    made, arguments = f"algorithm = {factory}", call
    turns = f"{made}\n{_TURNS}"
    run = f"algorithm.run({call})"
    if recipe.two_phase:
        made += f"\nd_temp = cupy.empty(max(1, algorithm(None, {call})), 'u1')"
        arguments = f"d_temp, {call}"
    captured = f"""{made}
algorithm({arguments})
side = cupy.cuda.Stream(non_blocking=True)
side.begin_capture()
algorithm({arguments}, stream=side)
graph = side.end_capture()
stream = cupy.cuda.Stream.null"""
    lookup = "cupar lookup + run"
    found = [
        Text("run", "cupar .run", made, run, has_latency=True),
        Text("object", "cupar object", made, f"algorithm({arguments})", has_latency=True),
        Text("arrays", "cupar .run, other arrays", turns, _NEXT_ARRAYS + run, ARRAYS, "cpp_arrays"),
        Text("sizes", "cupar .run, other sizes", turns, _NEXT_SIZE + run, ARRAYS, "cpp_sizes"),
    ]
    if recipe.known:
        found += [
            Text("lookup", f"{lookup}, {recipe.known}", factory, f"{factory}.run({call})"),
            Text("lookup_lambda", f"{lookup}, lambda", of_lambda, f"{of_lambda}.run({call})"),
        ]
    else:
        found.append(Text("lookup", lookup, factory, f"{factory}.run({call})"))
    bound = f"{made}\nbound = algorithm.bind({call})"
    return [
        *found,
        *_texts_of_njit(recipe),
        Text("bound", "cupar bound", bound, "bound()", has_latency=True),
        Text("graph", "CUDA graph of cupar object", captured, "graph.launch(stream)", has_latency=True),
    ]


def _texts_of_njit(recipe: Recipe) -> list[Text]:
    """Return the loop in compiled host code."""
    parameters = ", ".join(dict.fromkeys(each for each in recipe.call.split(", ") if each != "None"))
    given = f"*views, {parameters.removeprefix('d_in, d_out, ')}"
    made = f"""import numba
algorithm = {recipe.factory_with("op")}
views = [cupar.view(each) for each in (d_in, d_out)]
@numba.njit(nogil=True)
def compiled({parameters}, calls):
    for _ in range(calls):
        algorithm.run({recipe.call})
compiled({given}, 1)"""
    once, batch = (f"compiled({given}, {calls})" for calls in (1, "calls"))
    return [Text("njit", "cupar .run in njit", made, once, has_latency=True, batch=batch)]


def _texts_of_streams(recipe: Recipe) -> list[Text]:
    made, run = f"algorithm = {recipe.factory_with('op')}", f"algorithm.run({recipe.call}, stream=stream)"
    of_cupy = f"{made}\nowner = cupy.cuda.Stream(non_blocking=True)"
    of_core = f"""{made}
from cuda.core import Device
device = Device()
device.set_current()
stream = device.create_stream()"""
    return [
        Text("given", "cupar .run, stream=0", made, f"algorithm.run({recipe.call}, stream=0)"),
        Text("handle", "cupar .run, handle of a stream", f"{of_cupy}\nstream = owner.ptr", run),
        Text("cupy_object", "cupar .run, CuPy's stream", f"{of_cupy}\nstream = owner", run),
        Text("core_object", "cupar .run, cuda.core's stream", of_core, run),
    ]


def _texts_of_torch(recipe: Recipe) -> list[Text]:
    made, run = f"import torch\nalgorithm = {recipe.factory_with('op')}", f"algorithm.run({recipe.call}"
    tensors = f"{made}\nd_in, d_out = torch.from_dlpack(d_in), torch.from_dlpack(d_out)"
    stream = "stream = torch.cuda.Stream()"
    return [
        Text("torch_object", "cupar .run, PyTorch's stream", f"{made}\n{stream}", f"{run}, stream=stream)"),
        Text("torch_tensors", "cupar .run, tensors", tensors, f"{run})"),
        Text("torch_given", "cupar .run, tensors, stream=0", tensors, f"{run}, stream=0)"),
        Text(
            "torch_stream",
            "cupar .run, tensors, PyTorch's stream",
            f"{tensors}\n{stream}",
            f"{run}, stream=stream)",
        ),
        Text("torch", "PyTorch", f"import torch\n{recipe.torch_setup}", recipe.torch, has_latency=True),
    ]


def _texts_of_compute(recipe: Recipe) -> list[Text]:
    name, call = recipe.compute, recipe.compute_call
    made = f"""import cuda.compute as compute
{recipe.compute_setup}
algorithm = compute.make_{name}({recipe.compute_made_with})"""
    arguments = call
    if recipe.two_phase:
        made += f"\nd_temp = cupy.empty(max(1, algorithm(temp_storage=None, {call})), 'u1')"
        arguments = f"temp_storage=d_temp, {call}"
    turns, run = f"{made}\n{_TURNS}", f"algorithm({arguments})"
    other = "cuda.compute object, other"
    return [
        Text("compute_object", "cuda.compute object", made, run, has_latency=True),
        Text("compute_arrays", f"{other} arrays", turns, _NEXT_ARRAYS + run, ARRAYS, "cpp_arrays"),
        Text("compute_sizes", f"{other} sizes", turns, _NEXT_SIZE + run, ARRAYS, "cpp_sizes"),
        Text("compute_once", "cuda.compute one call", made, f"compute.{name}({recipe.compute_once})"),
    ]


# cupar's own parts, which may change: a text that names what is no longer there fails by itself.
_OF_OBJECT = """
import itertools
from cupar._device import arrays as _arrays
from cupar._device import driver as _driver
from cupar._device import storage as _storage
algorithm = cupar.reduce_into(d_in, d_out, op, h_init)
nbytes = algorithm(None, d_in, d_out, n, h_init)
d_temp = cupy.empty(max(1, nbytes), "u1")
address, dtype = d_temp.data.ptr, d_in.dtype
bound = algorithm.bind(d_in, d_out, n, h_init)
turns = itertools.cycle([(*pair, n, h_init) for pair in pairs])
stream = cupy.cuda.Stream(non_blocking=True)
handle = stream.ptr
number = _driver.stream_number(handle)
def nothing(): pass
"""
_OF_CALL = f"""{_OF_OBJECT}
state, _ = algorithm._take(0)
plan, facts = state.loaded.plan, state.loaded.facts
def emit(shape, numbers): pass
values = state.read((d_in, d_out, n, h_init))
others = itertools.cycle([state.read(next(turns)) for _ in pairs])
state.prepare(values)
numbers = state.numbers
"""
_OF_TORCH = f"""{_OF_OBJECT}
import torch
stream = torch.cuda.Stream()
tensor = torch.from_dlpack(d_in)
_arrays.view("", tensor)
read = _arrays.ADDRESSES[type(tensor)]
"""
_ASKED = REDUCE.call
PIECES = (
    (
        _OF_CALL,
        {
            "state.read: pointers, initial value": "state.read((d_in, d_out, n, h_init))",
            "state.prepare, for another size": "state.prepare(values)",
            "the plan of a size": "plan(facts, n, emit)",
            "state.enqueue, nothing has changed": "state.enqueue(values, address, numbers, 0)",
            "state.enqueue, other arrays": "state.enqueue(next(others), address, numbers, 0)",
        },
    ),
    (
        _OF_OBJECT,
        {
            "object": f"algorithm(d_temp, {_ASKED})",
            "object, None for storage": f"algorithm(None, {_ASKED})",
            ".run": f"algorithm.run({_ASKED})",
            ".run, handle of a stream": f"algorithm.run({_ASKED}, stream=handle)",
            "lookup, OpKind": REDUCE.factory_with("op"),
            "lookup, lambda": REDUCE.factory_with("function"),
            "the name cupar.reduce_into": "cupar.reduce_into",
            "bind, and close": f"algorithm.bind({_ASKED}).close()",
            "bound.rebind: other arrays": "bound.rebind(*next(turns))",
            "the next ones of some arrays": "next(turns)",
            "_take and give back, default stream": "state, free = algorithm._take(0); free.append(state)",
            "_take and give back, a stream": "state, free = algorithm._take(handle); free.append(state)",
            "address and size of storage": "_arrays.storage(d_temp)",
            "address of d_in": "_arrays.ADDRESSES[type(d_in)](d_in, dtype, n, False, 'd_in')",
            "d_in.data.ptr": "d_in.data.ptr",
            "current context": "_driver.current_context()",
            "handle of a CuPy stream": "_driver.stream_handle(stream)",
            "number of a stream": "_driver.stream_number(handle)",
            "workspace": "_storage.memory().default",
            "workspace of a stream": "_storage.memory().workspace(handle, number)",
            "allocate and free storage": "with _storage.temporary_storage(nbytes, 0): pass",
            "a Python call of nothing": "nothing()",
        },
    ),
    (
        _OF_TORCH,
        {
            "handle of a PyTorch stream": "_driver.stream_handle(stream)",
            "address of a tensor": "read(tensor, dtype, n, False, 'd_in')",
        },
    ),
)


def pieces() -> list[Text]:
    """Return parts of cupar's call of a reduction, each of which is timed by itself."""
    return [
        Text(name, name, setup, statement, checks=0)
        for setup, statements in PIECES
        for name, statement in statements.items()
    ]


# --- C++ CUB ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Library:
    """The compiled call_overhead.cu, and what made it."""

    code: ctypes.CDLL
    facts: Mapping[str, Any]


def find_nvcc() -> str | None:
    """Return nvcc's path, if there is one."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders = [os.environ.get("PATH", ""), *(str(Path(home, "bin")) for home in homes if home)]
    return shutil.which("nvcc", path=os.pathsep.join(folders))


def cub_headers() -> list[str]:
    """Return the folder of cuda-cccl's headers, the CUB that cupar runs; nothing if it has none."""
    from cupar._compile import toolchain

    try:
        return [str(toolchain.include_folders()[0])]
    except ImportError:
        return []


def compile_library(nvcc: str, headers: Sequence[str], cc: int, folder: Path) -> Library:
    """Compile call_overhead.cu: with these headers or, if that fails, with nvcc's own CUB.

    Raises
    ------
    RuntimeError
        If it cannot be compiled.
    """
    source = Path(__file__).with_suffix(".cu")
    target = folder / "call_overhead.so"
    options = ["-O3", "-std=c++17", f"-arch=sm_{cc}", "--shared", "-Xcompiler", "-fPIC"]
    complaints = []
    for includes in ([f"-I{header}" for header in headers], []):
        start = time.perf_counter()
        command = [nvcc, *options, *includes, "-o", str(target), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return _loaded(target, nvcc, command, time.perf_counter() - start, bool(includes))
        complaints.append((done.stdout + done.stderr)[-1500:])
    raise RuntimeError("\n".join(["nvcc failed:", *complaints]))


def _loaded(path: Path, nvcc: str, command: Sequence[str], seconds: float, is_cccls: bool) -> Library:
    code = ctypes.CDLL(str(path))
    version = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout
    number = code.cub_version()
    facts = {
        "nvcc": next((line for line in version.splitlines() if "release" in line), "unknown"),
        "command": " ".join(command),
        "cub": f"{number // 100_000}.{number // 100 % 1000}.{number % 100}",
        "headers": "of cuda-cccl" if is_cccls else "of nvcc's toolkit",
        "seconds": seconds,
    }
    return Library(code, facts)


# --- Who takes part --------------------------------------------------------------------------------------


class Ready(NamedTuple):
    """What times a call, and makes one."""

    batch: Callable[[int], float]  # calls -> nanoseconds, all together
    latency: Callable[[int], Sequence[float]]  # calls -> nanoseconds of each, until its result is there
    once: Callable[[], tuple[Any, int]]  # -> the array it writes to, and for how many items


def ready_text(text: Text, given: Mapping[str, Any]) -> Ready:
    """Run a text's setup and return what times its statement."""
    names = dict(given)
    exec(compile(text.setup, f"<setup of {text.name}>", "exec"), names)
    timer = Timer(text.statement, timer=time.perf_counter_ns, globals=names)
    waiting = Timer(f"{text.statement}\nsynchronize(0)", timer=time.perf_counter_ns, globals=names)
    statement = compile(text.statement, f"<{text.name}>", "exec")

    def time_batch(calls: int) -> float:
        names["calls"] = calls
        return Timer(text.batch, timer=time.perf_counter_ns, globals=names).timeit(1)

    def once() -> tuple[Any, int]:
        exec(statement, names)
        return names["cupy"].asarray(names["d_out"]), names["n"]

    batch = time_batch if text.batch else timer.timeit
    return Ready(batch, lambda calls: [waiting.timeit(1) for _ in range(calls)], once)


class Turns(ctypes.Structure):
    """The struct of that name in call_overhead.cu."""

    _fields_ = [
        ("inputs", POINTER(c_void_p)),
        ("outputs", POINTER(c_void_p)),
        ("items", POINTER(c_int64)),
        ("arrays", c_int64),
        ("sizes", c_int64),
        ("temp", c_void_p),
        ("temp_bytes", c_size_t),
        ("call", c_int64),
    ]


def ready_cpp(
    library: Library, algorithm: str, given: Mapping[str, Any], pairs: Sequence[Any], sizes: Sequence[int]
) -> Ready:
    """Return what times C++ CUB on arrays and numbers of items, in turns."""
    temp_bytes, batch, latency = (
        getattr(library.code, f"{algorithm}_{part}") for part in ("temp_bytes", "batch", "latency")
    )
    temp_bytes.argtypes, temp_bytes.restype = [c_int64], c_int64
    batch.argtypes, batch.restype = [POINTER(Turns), c_int], c_int64
    latency.argtypes, latency.restype = [POINTER(Turns), c_int, POINTER(c_int64)], c_int
    nbytes = _checked(temp_bytes(max(sizes)))
    d_temp = given["cupy"].empty(max(1, nbytes), np.uint8)
    inputs, outputs = (
        (c_void_p * len(pairs))(*[each.data.ptr for each in side]) for side in zip(*pairs, strict=True)
    )
    turns = Turns(
        inputs, outputs, (c_int64 * len(sizes))(*sizes), len(pairs), len(sizes), d_temp.data.ptr, nbytes, 0
    )

    def time_batch(calls: int) -> float:
        return _checked(batch(byref(turns), calls))

    def time_latencies(calls: int) -> list[float]:
        samples = (c_int64 * calls)()
        _checked(-latency(byref(turns), calls, samples))
        return list(samples)

    def once() -> tuple[Any, int]:
        kept = d_temp, pairs  # for as long as these functions
        number = turns.call
        time_batch(1)
        return kept[1][number % len(pairs)][1], sizes[number % len(sizes)]

    return Ready(time_batch, time_latencies, once)


NEVER_READY = Ready(lambda calls: 0.0, lambda calls: (), lambda: (None, 0))


def _checked(answer: int) -> int:
    if answer < 0:
        raise RuntimeError(f"the CUDA runtime returned error {-answer}")
    return answer


class Side:
    """One who takes part in a case: until it fails, and then the others go on without it.

    Attributes
    ----------
    key, name, statement : str
    reference : str
        The key of the C++ loop that does the same.
    error : str or None
        Why it failed.
    is_missing : bool
        Whether it failed since what it needs is not installed.
    batches : list of float
        Nanoseconds of host time of a call, by round.
    latencies : list of float
        Nanoseconds.
    """

    def __init__(self, text: Text, prepare: Callable[[], Ready], finish: Callable[[], None]) -> None:
        self.key, self.name, self.statement = text.key, text.name, text.statement
        self.reference, self.has_latency = text.reference, text.has_latency
        self.error: str | None = None
        self.is_missing = False
        self.batches: list[float] = []
        self.latencies: list[float] = []
        self._checks = text.checks
        self._finish = finish  # waits until the GPU has done all, and raises what it has to complain of
        self._ready: Ready = self._attempt(prepare) or NEVER_READY

    def _attempt(self, step: Callable[..., Any], *arguments: Any) -> Any:
        if self.error is not None:
            return None
        try:
            result = step(*arguments)
            self._finish()
        except Exception as error:  # whatever it is, others are to be measured
            self.error = f"{type(error).__name__}: {error}"
            self.is_missing = isinstance(error, ImportError)
            return None
        return result

    def check(self, outputs: Sequence[Any], expected: Callable[[int], Any]) -> None:
        """Call it; what it writes must be what is expected of so many items."""

        def step() -> None:
            for output in outputs:
                output.view("u1").fill(0xA5)
            self._finish()
            for _ in range(self._checks):
                output, n = self._ready.once()
                self._finish()
                right = expected(n)
                if not bool((output.reshape(-1)[: right.size] == right).all()):
                    raise RuntimeError(f"the result of {n} items is wrong")

        self._attempt(step)

    def time_batch(self, calls: int, counts: bool) -> None:
        """Take one sample of host time."""
        spent = self._attempt(self._ready.batch, calls)
        if spent is not None and counts:
            self.batches.append(spent / calls)

    def time_latency(self, calls: int, counts: bool) -> None:
        """Take samples of latency."""
        spent = self._attempt(self._ready.latency, calls) if self.has_latency else None
        if spent is not None and counts:
            self.latencies += spent

    @property
    def host(self) -> float | None:
        """Median of the host time of a call, in nanoseconds; None if it failed."""
        return statistics.median(self.batches) if self.batches and self.error is None else None

    def ratio(self, reference: Side | None) -> float | None:
        """Return its host time as a multiple of another side's, if neither failed."""
        if reference is None or self.host is None or reference.host is None:
            return None
        return self.host / reference.host

    def as_json(self, reference: Side | None) -> dict[str, Any]:
        """Return what there is to tell; times are in nanoseconds."""
        told: dict[str, Any] = {"name": self.name, "statement": self.statement, "reference": self.reference}
        if self.host is None:
            return {**told, "error": self.error, "missing": self.is_missing}
        told["host_ns"] = quartiles(self.batches)
        if self.latencies:
            told["latency_ns"] = quartiles(self.latencies)
        if reference is not None and reference.host is not None:
            told["ratio"] = self.ratio(reference)
            pairs = zip(self.batches, reference.batches, strict=True)
            told["ratio_in_rounds"] = quartiles([mine / theirs for mine, theirs in pairs])
        return told


def quartiles(values: Sequence[float]) -> dict[str, float]:
    """Return the number of some samples, their quartiles, and their extremes."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    found = {"median": middle, "q1": low, "q3": high, "min": min(values), "max": max(values)}
    return {"samples": len(values), **{name: float(f"{value:.6g}") for name, value in found.items()}}


def take_turns(sides: Sequence[Side], calls: int, rounds: int, latencies: int) -> None:
    """Let the sides take samples in turns; `latencies` is how many of latency in a round, 0 for none."""
    for number in range(WARM_UP + rounds):
        counts = number >= WARM_UP
        for side in sides:
            side.time_batch(calls, counts)
        for side in sides if latencies else ():
            side.time_latency(latencies, counts)


# --- Cases -----------------------------------------------------------------------------------------------


class Case:
    """An algorithm at a size: its arrays, and who takes part.

    Parameters
    ----------
    cupy : module
    algorithm : str
        As in ``"reduce"``.
    n : int
        How many items.
    calls : int
        In a batch.
    """

    def __init__(self, cupy: Any, algorithm: str, n: int, calls: int) -> None:
        self.algorithm = algorithm
        self.n = n
        is_large_sort = algorithm == "sort" and n > LARGE_SORT
        self.calls = min(calls, LARGE_SORT_CALLS) if is_large_sort else calls
        self._recipe = RECIPES[algorithm]
        host = _data(algorithm, n, np.dtype(self._recipe.dtype))
        self._data = cupy.asarray(host)
        room = 1 if algorithm == "reduce" else n
        pairs = [(self._data.copy(), cupy.empty(room, host.dtype)) for _ in range(ARRAYS)]
        self._finish: Callable[[], None] = cupy.cuda.runtime.deviceSynchronize
        self._given = {
            "cupy": cupy,
            "cupar": cupar,
            "n": n,
            "d_in": pairs[0][0],
            "d_out": pairs[0][1],
            "pairs": pairs,
            "sizes": [n - less for less in range(NUMBERS)],
            "h_init": np.zeros(1, np.float32),
            "op": cupar.OpKind.PLUS,
            "function": lambda a, b: a + b,
            "synchronize": cupy.cuda.runtime.streamSynchronize,
        }
        if algorithm == "transform":
            self._given.update(op=_square(cupy), function=lambda a: a * a)
        self.sides: list[Side] = []

    def _expected(self, n: int) -> Any:
        """Return what a call on the first `n` items must write."""
        cupy, items = self._given["cupy"], self._data[:n]
        if self.algorithm == "sort":
            return cupy.sort(items)
        if self.algorithm == "transform":
            return items * items
        sums = cupy.cumsum(items)
        return sums[-1:] if self.algorithm == "reduce" else sums

    @property
    def title(self) -> str:
        """For tables."""
        return f"{self.algorithm}, {self.n:,} items"

    def reference(self, side: Side) -> Side | None:
        """Return the C++ loop that does what a side does, if it takes part."""
        return self.side(side.reference)

    def side(self, key: str) -> Side | None:
        """Return a side by its key, if it takes part."""
        return next((side for side in self.sides if side.key == key), None)

    def difference(self, one: str, other: str) -> list[float] | None:
        """Return the nanoseconds that a side takes more than another, by round."""
        sides = self.side(one), self.side(other)
        if any(side is None or side.host is None for side in sides):
            return None
        return [a - b for a, b in zip(*(side.batches for side in sides if side), strict=True)]

    def prepare(self) -> None:
        """Make all sides ready but C++ CUB, which may not be compiled yet."""
        self.sides += self._ready(texts(self._recipe))

    def add_cpp(self, library: Library) -> None:
        """Let C++ CUB take part."""
        pairs, sizes = self._given["pairs"], self._given["sizes"]
        loops = [
            ("cpp", "C++ CUB", 1, pairs[:1], sizes[:1]),
            ("cpp_arrays", "C++ CUB, other arrays", ARRAYS, pairs, sizes[:1]),
            ("cpp_sizes", "C++ CUB, other sizes", ARRAYS, pairs, sizes),
        ]
        for place, (key, name, checks, *turns) in enumerate(loops):
            statement = f"{self.algorithm}_batch in call_overhead.cu"
            text = Text(key, name, "", statement, checks, key, has_latency=key == "cpp")
            prepare = partial(ready_cpp, library, self.algorithm, self._given, *turns)
            self.sides.insert(place, Side(text, prepare, self._finish))

    def measure(self, rounds: int) -> None:
        """Check and time all sides."""
        outputs = [output for _, output in self._given["pairs"]]
        for side in self.sides:
            side.check(outputs, self._expected)
        take_turns(self.sides, self.calls, rounds, LATENCIES)
        for side in self.sides:  # once more: what is launched depends on the calls before
            side.check(outputs, self._expected)

    def profile(self, rounds: int) -> list[Side]:
        """Time the parts of cupar's call."""
        sides = self._ready(pieces())
        take_turns(sides, self.calls, rounds, 0)
        return sides

    def _ready(self, wanted: Iterable[Text]) -> list[Side]:
        return [Side(text, partial(ready_text, text, self._given), self._finish) for text in wanted]

    def as_json(self) -> dict[str, Any]:
        """Return what was measured."""
        return {
            "algorithm": self.algorithm,
            "items": self.n,
            "dtype": self._recipe.dtype,
            "calls_in_a_batch": self.calls,
            "sides": {side.key: side.as_json(self.reference(side)) for side in self.sides},
        }


def _data(algorithm: str, n: int, dtype: np.dtype[Any]) -> Any:
    """Return the input."""
    random = np.random.default_rng(SEED)
    if algorithm == "sort":
        return random.integers(0, 2**31, n, dtype)
    # No sum of a million of them reaches 2^24, where float32 ends.
    return random.integers(-8, 9, n).astype(dtype)


def _square(cupy: Any) -> Any:
    """Return the operator x * x as LTO-IR: no OpKind is that, and cuda.compute may not compile Python."""
    from cupar._compile import nvrtc

    name = "bench_square"
    source = f"""
extern "C" __device__ void {name}(void* pointer, void* result) {{
  const float x = *static_cast<const float*>(pointer);
  *static_cast<float*>(result) = x * x;
}}
"""
    return cupar.RawOp(name, nvrtc.compile_cpp(source, int(cupy.cuda.Device().compute_capability)))


# --- Tables, file, plot ----------------------------------------------------------------------------------


def _microseconds(nanoseconds: float | None) -> str:
    return "-" if nanoseconds is None else f"{nanoseconds * 1e-3:.2f}"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _row(side: Side, reference: Side | None) -> list[str]:
    if side.host is None:
        return [side.name, "-", "-", "-", "-"]
    found = quartiles(side.batches)
    latency = statistics.median(side.latencies) if side.latencies else None
    return [
        side.name,
        _microseconds(side.host),
        f"{_microseconds(found['q1'])} to {_microseconds(found['q3'])}",
        _times(side.ratio(reference)),
        _microseconds(latency),
    ]


HEADINGS = ("", "host µs", "quartiles", "of C++", "latency µs")


def print_sides(
    title: str,
    calls: int,
    sides: Sequence[Side],
    reference: Callable[[Side], Side | None],
    columns: int = len(HEADINGS),
) -> None:
    """Print a table, or its first columns."""
    print(f"\n{title}; batches of {calls} calls\n")
    rows = [_row(side, reference(side))[:columns] for side in sides]
    _common.print_table(HEADINGS[:columns], rows)
    for side in sides:
        if side.error is not None:
            print(f"    {side.name}: {'not there: ' * side.is_missing}{side.error[:300]}")
    sys.stdout.flush()


def print_goals(cases: Sequence[Case]) -> None:
    """Print what cupar's calls take as multiples of C++ CUB's, beside what they may take."""
    rows = [
        [f"goal, {n:,} items", *(f"<= {goals[place]}" for goals in GOALS.values())]
        for place, n in enumerate(SIZES)
    ]
    for case in cases:
        rows.append([case.title])
        for key, goals in GOALS.items():
            side = case.side(key)
            ratio = side.ratio(case.reference(side)) if side is not None else None
            missed = "" if ratio is None or ratio <= goals[SIZES.index(case.n)] else " !"
            rows[-1].append(_times(ratio) + missed)
    print("\ncupar's host time as multiples of C++ CUB's; '!' where a goal is missed\n")
    _common.print_table(("", *(key.replace("_", ", ") for key in GOALS)), rows)


def print_differences(cases: Sequence[Case]) -> None:
    """Print what streams of other libraries cost, beside what they may cost."""
    rows = [["goal", *(f"<= {goal}" for *_, goal in DIFFERENCES)]]
    for case in cases:
        rows.append([case.title])
        for one, other, goal in DIFFERENCES:
            found = case.difference(one, other)
            median = None if found is None else statistics.median(found) * 1e-3
            missed = "" if median is None or median <= goal else " !"
            rows[-1].append("-" if median is None else f"{median:.2f}{missed}")
    print("\nµs more than with the handle of a stream, or stream=0; '!' where a goal is missed\n")
    titles = {"torch_stream": "tensors, torch stream", "cupy_object": "CuPy's stream"}
    titles |= {"torch_object": "torch's stream", "core_object": "cuda.core's stream"}
    titles |= {"run": "current stream of CuPy", "torch_tensors": "of PyTorch"}
    _common.print_table(("", *(titles[one] for one, *_ in DIFFERENCES)), rows)


# In the order of the plot.
PLOTTED = (
    *("cpp", "run", "arrays", "sizes", "lookup", "lookup_lambda", "bound", "graph"),
    *("handle", "torch_stream", "compute_object", "compute_sizes", "cupy", "torch"),
)


def panels(content: Mapping[str, Any]) -> tuple[str, list[_common.Panel]]:
    """Return the title and the panels of a result's plot: one for each algorithm."""
    cases: list[Mapping[str, Any]] = content["cases"]
    found = []
    for algorithm in dict.fromkeys(case["algorithm"] for case in cases):
        sizes = [case for case in cases if case["algorithm"] == algorithm]
        known = {key: side["name"] for case in sizes for key, side in case["sides"].items()}
        names = {key: known[key] for key in PLOTTED if key in known}
        bars = []
        for key, name in names.items():
            sides = [case["sides"].get(key, {}) for case in sizes]
            values = [side["host_ns"]["median"] * 1e-3 if "host_ns" in side else None for side in sides]
            texts = [_times(side.get("ratio")) if "ratio" in side else "" for side in sides]
            bars.append(_common.Bar(name, values, texts))
        series = [f"{case['items']:,} items" for case in sizes]
        found.append(_common.Panel(bars, "µs, and multiples of C++ CUB", algorithm, series))
    return f"Host time of a call, {content['environment']['gpu']['name']}", found


# --- Command line ----------------------------------------------------------------------------------------


def _listed(text: str) -> list[str]:
    return text.split(",")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=51, help="batches of each side, 30 or more; default 51")
    parser.add_argument("--calls", type=int, default=100, help="in a batch; default 100")
    parser.add_argument("--only", type=_listed, default=list(RECIPES), help=f"of {', '.join(RECIPES)}")
    parser.add_argument("--profile", action="store_true", help="also time the parts of cupar's call")
    parser.add_argument("--seconds", type=float, default=150, help="after them, skip the rest; default 150")
    parser.add_argument("--json", type=Path, help="default: benchmarks/results/call_overhead-<gpu>.json")
    _common.add_plot_option(parser)
    options = parser.parse_args()
    if options.rounds < 30:
        parser.error(f"--rounds: expected 30 or more, got {options.rounds}")
    if not 1 <= options.calls <= 200:
        parser.error(f"--calls: expected 1 to 200, so that the driver's queue has room, got {options.calls}")
    for name in options.only:
        if name not in RECIPES:
            parser.error(f"--only: expected some of {', '.join(RECIPES)}, got {name!r}")
    return options


def start_compiling(pool: ThreadPoolExecutor, cc: int, folder: Path) -> Future[Library] | None:
    """Start nvcc; None if there is none."""
    nvcc = find_nvcc()
    return None if nvcc is None else pool.submit(compile_library, nvcc, cub_headers(), cc, folder)


def finish_compiling(future: Future[Library] | None) -> tuple[Library | None, str | None]:
    """Return what nvcc made, or why there is nothing."""
    if future is None:
        return None, "there is no nvcc here"
    try:
        return future.result(), None
    except Exception as error:  # without the reference, all else is still worth knowing
        return None, f"{type(error).__name__}: {error}"


def prepared(cupy: Any, algorithms: Iterable[str], calls: int) -> list[Case]:
    """Return all cases, with all builds made, so that nothing is compiled while something is timed."""
    cases = []
    for algorithm in algorithms:
        for n in SIZES:
            try:
                case = Case(cupy, algorithm, n, calls)
            except Exception as error:  # no memory, or no NVRTC for the operator
                print(f"\n{algorithm}, {n:,} items: no arrays or operator: {type(error).__name__}: {error}")
                continue
            case.prepare()
            cases.append(case)
    return cases


def measured(cases: Sequence[Case], rounds: int, stop: float) -> tuple[list[Case], list[str]]:
    """Measure and print cases while there is time; return those measured, and the titles of the others."""
    done: list[Case] = []
    skipped: list[str] = []
    for case in cases:
        if time.perf_counter() > stop:
            skipped.append(case.title)
            continue
        case.measure(rounds)
        print_sides(case.title, case.calls, case.sides, case.reference)
        done.append(case)
    return done, skipped


def profiled(cupy: Any, options: argparse.Namespace) -> list[Side]:
    """Time and print the parts of cupar's reduction of few items."""
    case = Case(cupy, "reduce", SIZES[0], options.calls)
    parts = case.profile(options.rounds)
    print_sides(f"parts of cupar's call: {case.title}", case.calls, parts, lambda side: None, columns=3)
    return parts


def main() -> None:
    """Measure, print, write and draw."""
    start = time.perf_counter()
    options = arguments()
    if options.plot is not None:
        _common.plot_again(options.plot, panels)
        return
    device, facts = _common.needed_gpu()
    cupy = importlib.import_module("cupy")
    with tempfile.TemporaryDirectory(prefix="cupar-call-overhead-") as folder, ThreadPoolExecutor(1) as pool:
        compiling = start_compiling(pool, device["cc"], Path(folder))
        cases = prepared(cupy, options.only, options.calls)
        library, why_not = finish_compiling(compiling)
    for case in cases:
        if library is not None:
            case.add_cpp(library)
    if library is None:
        print(f"\nno C++ CUB, and so no ratios: {why_not}")
    else:
        print("\nC++: CUB {cub} {headers}; {nvcc}".format(**library.facts))
    print(f"ready after {time.perf_counter() - start:.0f} s; medians of {options.rounds} batches in turns")
    done, skipped = measured(cases, options.rounds, start + options.seconds)
    parts = profiled(cupy, options) if options.profile else []
    if library is not None:
        print_goals(done)
    print_differences(done)
    path = options.json or _common.RESULTS / f"call_overhead-{_common.slug(device)}.json"
    content = {
        "benchmark": "call_overhead",
        "environment": facts,
        "cpp": library.facts if library is not None else {"error": why_not},
        "rounds": options.rounds,
        "latencies_in_a_round": LATENCIES,
        "seconds": time.perf_counter() - start,
        "goals": GOALS,
        "differences": [{"more": one, "than": other, "goal_us": goal} for one, other, goal in DIFFERENCES],
        "cases": [case.as_json() for case in done],
        "profile": {part.name: part.as_json(None) for part in parts},
        "skipped": skipped,
    }
    _common.write_json(path, content)
    print(_common.plot(path, *panels(content)))
    end(done, skipped, options.seconds)


def end(done: Sequence[Case], skipped: Sequence[str], seconds: float) -> None:
    """Say what is missing; that cupar failed is the process's failure, too."""
    if skipped:
        print(f"skipped after {seconds:g} s: {', '.join(skipped)}")
    failed = [
        f"{case.title}: {side.name}: {side.error}"
        for case in done
        for side in case.sides
        if "cupar" in side.name and side.error is not None and not side.is_missing
    ]
    if failed:
        raise SystemExit("\n".join(["", "failed", "", *failed]))


if __name__ == "__main__":
    main()
