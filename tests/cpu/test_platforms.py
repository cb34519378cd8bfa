"""The CPU backend without Linux's modules and calls and CUDA's packages, as far as Linux can show it."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import concurrent.futures, ctypes, multiprocessing, os, socket, subprocess, sys, tempfile
import numba
import numpy as np

{hidden}
import cupar

items, out, h_init = np.arange(10.0), np.zeros(1), 0.0
for origin in "built", "disk":
    total = cupar.reduce_into(items, out, lambda a, b: a + b, h_init, cc="cpu")
    total.run(items, out, 10, h_init)
    assert (out[0], total.build.origin) == (45, origin), (out, total.build)
    cupar.cache.clear(disk=False)
down = np.empty(10)
with cupar.device("cpu"):
    cupar.merge_sort(items, None, down, None, lambda a, b: a > b).run(items, None, down, None, 10)
assert down[0] == 9
from cupar import arrays
third = arrays.transform(lambda a: a / 3, np.arange(4))
assert third.dtype == np.float64 and third[3] == 1, third
assert arrays.transform_reduce(items, lambda a: a * a) == 285
assert (arrays.tabulate(3, lambda i: i * 0.5, like=items) == [0, 0.5, 1]).all()
squares = cupar.TransformIterator(cupar.CountingIterator(np.int16(0)), lambda a: np.float32(a * a))
assert squares.dtype == np.float32, squares.dtype
total = cupar.reduce_into(squares, np.float32, lambda a, b: a + b, h_init, cc="cpu")
total.run(squares, out32 := np.zeros(1, np.float32), 10, h_init)
assert out32[0] == 285, out32
assert "numba.cuda" not in sys.modules
cupar.cache.export("builds")
with cupar.record("asked.jsonl"):
    cupar.unary_transform(items, down, lambda a: -a, cc="cpu")
assert len(open("asked.jsonl").read().splitlines()) == 1
cupar.cache.clear()
cupar.use_bundle("builds")
assert cupar.reduce_into(items, out, lambda a, b: a + b, h_init, cc="cpu").build.origin == "disk"
try:
    cupar.reduce_into("f4", "f4", cupar.OpKind.PLUS, cc=90)
except ImportError as error:
    assert len(str(error).splitlines()) == 1
else:
    raise AssertionError("it was built")
"""

# What CUDA's packages are not there for.
WITHOUT_CUDA = """
from importlib.abc import MetaPathFinder

class Hidden(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ("cuda", "numba_cuda", "_numba_cuda_redirector", "nvidia"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path[:] = [Hidden(), *(each for each in sys.meta_path if type(each).__name__ != "NumbaCudaFinder")]
for name in [each for each in sys.modules if each.partition(".")[0] == "_numba_cuda_redirector"]:
    del sys.modules[name]
real = os.open
def opened(path, *more, **named):
    if str(path).startswith("/proc"):
        raise FileNotFoundError(2, "no such file", path)
    return real(path, *more, **named)
os.open = opened
for name in MISSING:
    if hasattr(os, name):
        delattr(os, name)
"""
ON_MACOS = "MISSING = ['sched_getaffinity', 'memfd_create']" + WITHOUT_CUDA + "sys.platform = 'darwin'"
ON_WINDOWS = (
    """
MISSING = [
    "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "RTLD_GLOBAL", "RTLD_LAZY", "RTLD_LOCAL", "RTLD_NOLOAD",
    "fchmod", "fork", "geteuid", "getuid", "memfd_create", "pread", "pwrite",
    "register_at_fork", "sched_getaffinity", "sysconf", "uname",
]
sys.modules.update(dict.fromkeys(("fcntl", "pwd", "resource")))
"""
    + WITHOUT_CUDA
    + "sys.platform = 'win32'"
)


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [ON_MACOS, ON_WINDOWS], ids=["macOS", "Windows"])
def test_the_cpu_needs_nothing_of_linux(hidden, tmp_path):
    (tmp_path / "cache").mkdir(mode=0o700)
    own = {name: value for name, value in os.environ.items() if not name.startswith("CUPAR_")}
    own |= {"CUPAR_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(hidden=hidden)],
        capture_output=True,
        text=True,
        env=own,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
