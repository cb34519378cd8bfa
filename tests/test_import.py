"""`import cupar` is cheap, and loads nothing of what compiles."""

import ast
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cupar


def modules_after(code):
    code += "\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_import_loads_only_the_package_itself():
    new = modules_after("import cupar") - modules_after("import importlib, typing")
    assert new - {"__future__"} == {"cupar"}


def test_public_names_load_no_compiler():
    code = "import numpy\nimport cupar\nfor name in cupar.__all__: getattr(cupar, name)"
    loaded = modules_after(code)
    heavy = ("numba", "llvmlite", "cuda.core", "cuda.compute", "cuda.bindings", "cuda.pathfinder", "filelock")
    assert not [name for name in loaded if name.startswith(heavy)]


def test_no_compiler_library_is_mapped():
    code = "import cupar\nfor n in cupar.__all__: getattr(cupar, n)\nprint(open('/proc/self/maps').read())"
    if not os.path.exists("/proc/self/maps"):
        return
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "numpy" in done.stdout
    for library in ("nvrtc", "nvJitLink", "nvvm", "libcccl", "LLVM"):
        assert library not in done.stdout


def test_kernels_are_built_without_the_bindings_and_without_a_driver(tmp_path):
    code = """if True:
        import sys, cupar
        cupar.reduce_into("i4", "i4", lambda a, b: a + b, 0, cc=90)
        from cupar._compile import workers
        helper = workers.helper()
        assert helper.call("cupar._compile.workers:kernels", b"90\\n__global__ void f() {}")
        for process in ("self", helper.process.pid):
            print(open(f"/proc/{process}/maps").read())
        helper.kill()
    """
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "CUPAR_CACHE_DIR": str(tmp_path)},
    )
    assert done.stdout.count("nvrtc") > 1
    assert not [library for library in ("_bindings_impl", "libcccl") if library in done.stdout]


def test_every_public_name_is_there():
    for name in cupar.__all__:
        assert getattr(cupar, name) is not None
        assert name in dir(cupar)
    assert cupar.reduce_into.__module__ == "cupar.reduce"


def test_no_module_hides_a_public_name():
    modules = {path.stem for path in Path(cupar.__file__).parent.glob("*")}
    assert modules & set(cupar.__all__) == {*("arrays", "cache", "compute", "cuda", "distributed", "graph")}


@pytest.mark.parametrize("module", [cupar, cupar.arrays, cupar.cache, cupar.distributed, cupar.graph])
def test_completion_shows_the_api_alone(module):
    assert {*dir(module)} - {*module.__all__} <= {"__version__", *cupar.compute._SUBMODULES}


def test_completion_of_cuda_shows_no_modules_of_numbas():
    from numba import cuda as numbas

    shown = dir(cupar.cuda)
    assert {"grid", "to_device", "types", "cg"} <= {*shown} and hasattr(numbas, "os")
    assert not {"os", "warnings", "typing", "__file__"} & {*shown}


def test_unknown_name():
    with pytest.raises(AttributeError, match="'cupar' has no attribute 'reduce_onto'") as caught:
        cupar.reduce_onto
    assert (caught.value.name, caught.value.obj) == ("reduce_onto", cupar)  # so Python says what is near


def test_a_call_of_a_familys_file_says_which_algorithms_there_are():
    assert cupar.reduce_into and cupar.segmented_sort  # which imports the file of sorts, too
    for family, meant in (
        ("reduce", r"cupar\.reduce_into"),
        ("scan", r"cupar\.exclusive_scan, cupar\.inclusive_scan"),
        ("sort", r"cupar\.merge_sort, cupar\.radix_sort"),
        ("histogram", r"cupar\.histogram_even, cupar\.histogram_range"),
    ):
        with pytest.raises((TypeError, AttributeError), match=rf"{family}.*; what there is: {meant}$"):
            getattr(cupar, family)([1, 2, 3])


def names_for_type_checkers(module):
    tree = ast.parse(Path(module.__file__).read_text())
    (checked,) = (each for each in tree.body if isinstance(each, ast.If))
    return {alias.name: node.module for node in checked.body for alias in node.names}


def test_type_checkers_see_the_names_that_there_are():
    assert names_for_type_checkers(cupar) == cupar._MODULES | dict.fromkeys(cupar._PUBLIC_MODULES)
    of_arrays = {name: f"_functions.{module}" for name, module in cupar.arrays._MODULES.items()}
    assert names_for_type_checkers(cupar.arrays) == of_arrays
    assert all(getattr(cupar.arrays, name) for name in cupar.arrays.__all__)
    of_ranks = {name: f"_fleet.{module}" for name, module in cupar.distributed._MODULES.items()}
    of_ranks = {name: module for name, module in of_ranks.items() if module.startswith("_fleet.")}
    assert names_for_type_checkers(cupar.distributed) == of_ranks | {"arrays": None}
    assert all(getattr(cupar.distributed, name) for name in cupar.distributed.__all__)
    shards = cupar.distributed.arrays
    assert names_for_type_checkers(shards) == {
        name: f"_fleet.{file}" for name, file in shards._MODULES.items()
    }
    assert all(getattr(shards, name) for name in shards.__all__)
    from cupar import dask

    of_dask = {name: f"_dask.{module}" for name, module in dask._MODULES.items()}
    assert names_for_type_checkers(dask) == of_dask


@pytest.mark.parametrize("name", ["arrays", "compute", "dask", "distributed", "distributed.arrays"])
def test_modules_that_fetch_their_names_know_them(name):
    module = importlib.import_module(f"cupar.{name}")
    own = {"compute": module.__dict__.get("_SUBMODULES", ())}.get(name, ())
    assert dir(module) == sorted({*module.__all__, *own})
    assert not hasattr(module, "__wrapped__")
    with pytest.raises(AttributeError, match=rf"^module 'cupar\.{name}' has no attribute 'sun'") as caught:
        module.sun
    assert (caught.value.name, caught.value.obj) == ("sun", module)


IN_TWO_THREADS = """
import sys
import threading
import time

{before}
from cupar import _numba, _numba_cpu

meeting, is_held = threading.Event(), threading.Event()


def hold(event, args):
    "Hold up the thread that imports all of it until the other one waits for that."
    if event == "import" and args[0] == "{held}" and threading.current_thread() is whole:
        is_held.set()
        meeting.wait()


def asks():
    is_held.wait()
    found.append({asked})


def waits():
    "Whether the thread waits for all of it."
    frame = sys._current_frames().get(part.ident)
    lock = frame and frame.f_code.co_name == "acquire" and frame.f_locals.get("self")
    return getattr(lock, "name", "") == "{package}"


found = []
sys.addaudithook(hold)
whole = threading.Thread(target=lambda: __import__("{package}"))
part = threading.Thread(target=asks)
whole.start(), part.start()
while part.is_alive() and not waits():
    time.sleep(0.01)
meeting.set()
whole.join(), part.join()
assert found
"""


@pytest.mark.parametrize(
    ("package", "held", "asked", "before"),
    [
        ("numba", "numba.core.callconv", "_numba_cpu.PICKLE_BUF_IDX", ""),
        ("numba.cuda", "numba.cuda.cg", "_numba.cuda_data_manager", "import numba"),
    ],
    ids=["numba", "numba.cuda"],
)
def test_two_threads_import(package, held, asked, before):
    script = IN_TWO_THREADS.format(package=package, held=held, asked=asked, before=before)
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100)
