"""Keys tell what cupar's own files hold, in whatever form it is installed."""

import compileall
import os
import py_compile
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import cupar
from cupar._base import versions
from cupar._compile import key, toolchain

PACKAGE = Path(cupar.__file__).parent
GROUPS = {
    "cupar's code for kernels": "KERNELS",
    "cupar's code for operators": "OPERATORS",
    "cupar's code for the CPU": "ON_CPU",
}


@pytest.fixture
def changed(monkeypatch):
    """Return a function that has a module of cupar's be read with a line more."""
    own_file = versions.own_file

    def change(module):
        name = module.replace(".", "/") + ".py"
        other = lambda asked: own_file(asked) + b"\n# changed" * (asked == name)
        monkeypatch.setattr(versions, "own_file", other)
        for each in (toolchain.template_versions, toolchain.operator_versions, toolchain.cpu_versions):
            each.cache_clear()

    yield change
    monkeypatch.undo()
    change("")
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("module", "differ"),
    [
        ("_compile.nvrtc", {"kind", "function", "kernel", "cpp"}),
        ("_build", {"kind", "function", "kernel", "cpp"}),
        ("_compile.numba_types", {"function", "kernel", "cpu", "result"}),
        ("_compile.python_to_ltoir", {"function", "kernel", "cpu", "result"}),
        ("structs", {"function", "kernel", "cpu", "result"}),
        ("_numba", {"function", "kernel", "cpu", "result"}),
        ("_cpu.kit", {"cpu"}),
        ("_base.words", set()),
    ],
)
def test_a_module_that_decides_code_is_in_keys(module, differ, specified, changed):
    one = specified(cupar.reduce_into, "f4", "f4", cupar.OpKind.PLUS, 0.0, cc=90)
    other = specified(cupar.reduce_into, "f4", "f4", lambda a, b: a + b, 0.0, cc=90)
    on_cpu = specified(cupar.reduce_into, "f4", "f4", lambda a, b: a + b, 0.0, cc="cpu")
    function = cupar.cpp("__device__ int one() { return 1; }", "int32()")

    @cupar.jit
    def kernel(x):
        x[0] = 1

    kernel_spec = specified(kernel.compile, "void(float32[::1])")

    def keys():
        (op,) = other.functions.values()
        return {
            "kind": key.digest(key.build_parts(one)),
            "function": key.digest(key.build_parts(other)),
            "cpu": key.digest(key.build_parts(on_cpu)),
            "kernel": key.digest(key.build_parts(kernel_spec)),
            "result": key.digest(key.result_parts(op)),
            "cpp": key.digest(key.source_parts(function.links[0], 90)),
        }

    before = keys()
    changed(module)
    after = keys()
    assert {name for name in before if before[name] != after[name]} == differ


def test_a_hash_of_nothing_is_an_error(monkeypatch):
    with pytest.raises(ImportError, match=r"cupar's file _cpu/gone\.py cannot be read"):
        versions.own_version(["_cpu.gone"])


PROGRAM = """
import numpy as np, cupar
made = cupar.reduce_into("f4", "f4", lambda a, b: a + b, np.zeros(1, "f4"), cc="cpu")
out = np.zeros(1, "f4")
made.run(np.ones(9, "f4"), out, 9, np.zeros(1, "f4"))
print(cupar.__file__, made.build.origin, out[0])
if {gpu}:
    print(cupar.unary_transform("f4", "f4", cupar.OpKind.NEGATE, cc=90).build.origin)
"""


def _installed(folder, form, change=""):
    """Install a copy of cupar in a form, with a change to a module; return what is to be on the path."""
    tree = folder / f"{form}{len(change)}"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, tree / "cupar", ignore=ignored)
    if change:
        file = tree / "cupar" / "_cpu" / "kit.py"
        file.write_text(file.read_text() + change)
    if form == "sources":
        return tree
    if "bytecode" in form:
        compileall.compile_dir(tree / "cupar", quiet=1, legacy=True, ddir="cupar")
        for each in tree.rglob("*.py"):
            each.unlink()
    if "zip" in form:
        with zipfile.ZipFile(folder / f"{tree.name}.zip", "w") as file:
            for each in sorted(tree.rglob("*")):
                file.write(each, each.relative_to(tree))
        return folder / f"{tree.name}.zip"
    return tree


CHANGE = "\nANOTHER = 1000\n"
VERSIONS = """
import cupar
from cupar._compile import toolchain
print(cupar.__file__, *sorted(map(str, toolchain.cpu_versions().items())))
"""


def _run(place, cache, program=PROGRAM, gpu=False):
    environment = {**os.environ, "PYTHONPATH": str(place), "CUPAR_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", program.format(gpu=gpu)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=cache.parent)
    assert done.returncode == 0, done.stderr
    file, *said = done.stdout.split()
    assert file.startswith(f"{place}/"), "another cupar was imported"
    return said


@pytest.mark.slow
def test_installations_without_sources_tell_releases_apart(tmp_path):
    cache = tmp_path / "cache"
    release = _installed(tmp_path, "zip")
    assert _run(release, cache, gpu=True) == ["built", "9.0", "built"]
    assert _run(release, cache) == ["disk", "9.0"]
    assert _run(_installed(tmp_path, "zip", CHANGE), cache) == ["built", "9.0"]


@pytest.mark.slow
def test_bytecode_alone_tells_releases_apart(tmp_path):
    cache, one, other = tmp_path / "cache", _installed(tmp_path, "bytecode"), tmp_path / "other"
    shutil.copytree(one, other)
    changed = tmp_path / "kit.py"
    changed.write_text((PACKAGE / "_cpu" / "kit.py").read_text() + CHANGE)
    py_compile.compile(changed, other / "cupar" / "_cpu" / "kit.pyc", doraise=True)
    assert _run(one, cache, VERSIONS) == _run(one, cache, VERSIONS) != _run(other, cache, VERSIONS)
