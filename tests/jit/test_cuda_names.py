"""`cupar.cuda` stands for numba.cuda without importing it."""

import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numba.cuda
import numba.cuda.random
import pytest
from support.host import run

import cupar
from cupar import _numba, cuda
from cupar._ahead import codec
from cupar._compile import python_kernel
from cupar._compile.key import build_parts, digest
from cupar._fingerprint.names import compilers_name, numba_type_name

SECOND = Path(__file__).parent / "processes" / "second.py"


def names(module=cuda, home="cuda"):
    for name, value in module.__dict__.get("_NAMES", {}).items() or inner(module):
        if isinstance(value, ModuleType):
            yield from names(value, f"{home}.{name}")
            continue
        yield f"{home}.{name}", value
        yield from ((f"{home}.{name}.{each}", within) for each, within in value._within.items())


def inner(module):
    _, found = module.__getattr__.args
    return found.items()


ALL = dict(names())


def real(path):
    value = numba
    for part in path.split("."):
        value = getattr(value, part)
    return value


def test_all_that_kernels_use_has_a_name():
    kinds = ("Stub", "_Intrinsic")
    missing = [
        name
        for name, value in vars(numba.cuda).items()
        if type(value).__name__ in kinds
        or (isinstance(value, type) and value.__module__ == "numba.cuda.stubs")
        or (numba_type_name(value) and name not in ("bfloat16", "bool"))
    ]
    assert len(missing) > 100
    assert [name for name in missing if f"cuda.{name}" not in ALL] == []
    assert "cuda.random.xoroshiro128p_next" in ALL
    assert "cuda.cg.this_grid" in ALL


@pytest.mark.parametrize("path", ALL)
def test_a_name_stands_for_what_numba_has(path):
    name, expected = ALL[path], real(path)
    assert name.real() is expected
    assert compilers_name(name) == compilers_name(expected)
    assert numba_type_name(name) == numba_type_name(expected)
    again = pickle.loads(pickle.dumps(name))
    assert (again.name, again.kind) == (name.name, name.kind)


def test_libdevice():
    name = _numba.Name("numba.cuda.libdevice:fast_sinf")
    assert name.real() is numba.cuda.libdevice.fast_sinf
    assert compilers_name(name) == compilers_name(numba.cuda.libdevice.fast_sinf)


def test_numba_that_is_imported_is_used():
    assert cuda.grid is numba.cuda.grid
    assert cuda.libdevice is numba.cuda.libdevice
    assert cuda.to_device is numba.cuda.to_device
    assert type(cuda.jit(device=True)(lambda x: x)) is type(numba.cuda.jit(device=True)(lambda x: x))
    assert {"grid", "to_device"} <= set(dir(cuda))


def test_keys_are_those_of_numba_cuda(tmp_path):
    """And the second process imports no numba."""
    cache = tmp_path / "cache"
    done = [run(tmp_path, SECOND, cache, *ways) for ways in (["cupar"], ["cupar", "disk"], ["numba"])]
    assert [each.returncode for each in done] == [0] * 3, "".join(each.stderr for each in done)
    first, second, numbas = ([line.split() for line in each.stdout.splitlines()] for each in done)
    assert [origin for _, origin, _ in first] == ["built"] * 3
    assert [origin for _, origin, _ in second + numbas] == ["disk"] * 6
    assert (
        first
        == [[name, "built", key] for name, _, key in second]
        == [[name, "built", key] for name, _, key in numbas]
    )


SCRIPT = """
import sys
import numpy as np
import cupar
from cupar import cuda

grid, F = cuda.grid, cuda.float32

@cuda.jit(device=True)
def squared(x):
    return x * x

{}
"""


def script(text, **environment):
    command = [sys.executable, "-c", SCRIPT.format(text)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_is_imported_to_define_kernels():
    out = script("""
import os
kept = [cuda.shared, cuda.gridDim, cuda.libdevice.fast_expf, cuda.cg.this_grid, cuda.types.int64, dir(cuda)]
cupar.jit("void(float32[::1])")(lambda x: squared(x[0]))
cupar.jit(device=True)(squared.py_func)
print(repr(grid), repr(kept[2]), repr(squared), "numba" in sys.modules)
""")
    assert out == (
        "<numba.cuda.intrinsics.grid> <numba.cuda.libdevice.fast_expf> <squared under cuda.jit> False\n"
    )


def test_what_is_called_from_python_is_numbas():
    out = script("""
for call in (lambda: grid(1), lambda: cuda.grid(1), lambda: cuda.nothing, lambda: cuda.shared.nothing):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, error)
import numba.cuda
print(F[:] == numba.float32[:], cuda.float32 is numba.float32, cuda.atomic.add is numba.cuda.atomic.add)
print(squared.py_func(3), isinstance(squared.overloads, dict), callable(cuda.to_device))
""")
    assert out.splitlines() == [
        "NotImplementedError <intrinsic grid> is not usable in pure-python",
        "NotImplementedError <intrinsic grid> is not usable in pure-python",
        "AttributeError module 'numba.cuda' has no attribute 'nothing'",
        "AttributeError type object 'shared' has no attribute 'nothing'",
        "True True True",
        "9 True True",
    ]


def test_numbas_own_kernels_use_the_names():
    out = script("""
early = cuda.cg
from numba import cuda as own

def kernel(x):
    near = cuda.shared.array(4, F)
    i = grid(1)
    near[cuda.threadIdx.x] = x[i]
    early.this_grid().sync()
    x[i] = near[0] + cuda.libdevice.fast_sinf(x[i])

def device(x):
    return squared(x)

from cupar._compile.python_to_ltoir import _compiling
with _compiling(90):  # for what asks which device there is
    print(".entry" in own.compile_ptx(kernel, own.void(own.float32[:]), cc=(9, 0))[0])
    print(own.compile_ptx(device, own.float32(own.float32), device=True, cc=(9, 0))[1])
""")
    assert out == "True\nfloat32\n"


def test_it_goes_to_other_processes_and_a_name_that_is_not_there_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path))
    file = tmp_path / "data"
    out = script(f"""
from types import SimpleNamespace
from cupar._ahead import codec
from cupar._obtain import obtain

@cupar.jit
def kernel(x):
    near = cuda.shared.array(4, F)
    near[0] = squared(x[grid(1)])
    x[0] = cuda.libdevice.fast_sinf(near[0])

@cupar.jit
def wrong(x):
    x[0] = cuda.libdevice.nothing(x[0])

def ask(spec, answer):
    open({str(file)!r}, "wb").write(codec.dumps(spec))
    print("numba" in sys.modules)
    return answer()

obtain.observer = SimpleNamespace(cc=None, observe=ask)
print(kernel.compile("void(float32[::1])", cc=90).build.key)
obtain.observer = None
try:
    wrong.compile("void(float32[::1])", cc=90)
except TypeError as error:
    print(error)
""")
    again = codec.loads(file.read_bytes())
    is_imported, key, *error = out.splitlines()
    assert (is_imported, key) == ("False", digest(build_parts(again)))
    assert "__nv_fast_sinf" in python_kernel.compile_kernel(again).llvm
    assert "kernel wrong" in error[0] and "nothing" in "".join(error)


def test_a_type_is_one_of_a_parameter():
    @cupar.jit
    def kernel(x, factor):
        x[0] = factor

    named = ALL["cuda.int32"]
    assert kernel.compile("float32[::1]", named, cc=90) is kernel.compile("float32[::1]", "int32", cc=90)
