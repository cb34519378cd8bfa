"""`import cupar` is cheap, and loads nothing of what compiles."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

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
        helper = workers.Helper()
        assert helper.ask("cupar._compile.workers:kernels", b"90\\n__global__ void f() {}")
        for process in ("self", helper._process.pid):
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
    assert modules & set(cupar.__all__) == {"cache", "compute", "cuda", "graph"}


def test_unknown_name():
    try:
        cupar.reduce_onto
    except AttributeError as error:
        assert "reduce_onto" in str(error)
    else:
        raise AssertionError


def test_type_checkers_see_the_names_that_there_are():
    tree = ast.parse(Path(cupar.__file__).read_text())
    (checked,) = (each for each in tree.body if isinstance(each, ast.If))
    seen = {alias.name: node.module for node in checked.body for alias in node.names}
    assert seen == cupar._MODULES | {"cache": None, "compute": None, "cuda": None, "graph": None}
