"""What a process imports that finds its builds: nothing that compiles, and as few files as it can do with.

Each file costs a start 0.1 to 0.5 ms, and a start should cost at most a tenth more than Python, NumPy and a
context. Who adds a file here looks first whether it can be imported in the function that needs it, and then
raises the number.
"""

import json
import os
import subprocess
import sys

import pytest

from cupar._compile import toolchain

BEFORE = """
import ctypes
import sys
import numpy as np
before = set(sys.modules)
import cupar
"""
REDUCTION = """
made = cupar.reduce_into("f4", "f4", lambda a, b: a + b, np.zeros(1, "f4"), cc=90)
build = made.build
"""
KERNEL = """
from cupar import cuda

@cupar.jit
def kernel(x, factor):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= factor

build = kernel.compile("void(float32[::1], float64)", cc=90).build
"""
ON_CPU = """
with cupar.device("cpu"):
    items, total = np.arange(1000.0), np.empty(1)
    made = cupar.reduce_into(items, total, lambda a, b: a + np.sin(b), np.zeros(1))
    made.run(items, total, 1000, np.zeros(1))
build = made.build
"""
AFTER = """
found = sorted(set(sys.modules) - before)
import json
print(json.dumps([build.origin, found]))
"""

# Of the standard library's, those that cost about a millisecond or more, or bring others that do.
COSTLY = {
    *("asyncio", "concurrent", "dataclasses", "email", "hashlib", "http", "importlib.metadata", "json"),
    *("logging", "multiprocessing", "pickle", "random", "shutil", "socket", "subprocess", "tempfile"),
    *("traceback", "urllib", "xml", "zipfile", "numpy.ma"),
}
# By name: what is run, and how many of cupar's modules it may import.
SCRIPTS = {"reduction": (REDUCTION, 98), "kernel": (KERNEL, 110)}
if sys.platform == "linux" and os.uname().machine == "x86_64":  # elsewhere LLVM loads what it made
    SCRIPTS["reduction on the CPU"] = (ON_CPU, 114)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_hit_imports_little(empty_cache, name):
    script, most = SCRIPTS[name]
    built = {}
    for known in (toolchain.host_cpu, toolchain.cpu_versions):  # to be asked for, and in the cache, again
        known.cache_clear()
    exec(BEFORE + script, built)
    assert built["build"].origin == "built"
    command = [sys.executable, "-c", BEFORE + script + AFTER]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    origin, modules = json.loads(done.stdout)
    assert origin == "disk"
    assert not [each for each in modules if each.startswith(("numba", "llvmlite", "cuda.", "platformdirs"))]
    assert not COSTLY.intersection(modules)
    own = [each for each in modules if each.startswith("cupar")]
    assert len(own) <= most, own
