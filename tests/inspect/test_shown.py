"""Code that a build shows, the same from the cache and built here; and dumps of it."""

import pickle
import re
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
from support.common import fresh_cache
from support.disassembly import instructions, spills_or_calls, tool

import cupar
from cupar._base import warnings as _warnings
from cupar._inspect import disassembly, dump
from cupar._kernels import elf

SCALE = 3.0


@pytest.fixture(autouse=True)
def _fresh(monkeypatch, tmp_path):
    fresh_cache(monkeypatch, tmp_path)
    monkeypatch.setattr(dump, "_written", set())
    cupar.cache.clear(disk=False)


def scaled():
    return cupar.reduce_into("f4", "f4", lambda a, b: a + SCALE * b, np.zeros(1, "f4"), cc=90)


def test_all_of_a_build_is_shown():
    build = scaled().build
    assert set(build.ltoir()) == {"kernels", "op"}
    assert "fmul" in build.llvm()["op"] and 'define i8* @"cupar_op"' in build.llvm()["op"]
    ptx = build.ptx()
    assert ".target sm_90" in ptx and ".entry cupar_reduce(" in ptx
    assert re.search(r"\b[FD](MUL|FMA)\b", build.sass())
    assert set(build.resources()) == {"cupar_reduce", "cupar_reduce_partials"}


def test_a_build_that_was_found_shows_what_was_fingerprinted(monkeypatch):
    made = scaled().build
    before = made.llvm()["op"].count("\n"), made.ptx(), made.sass(), made.resources()
    cupar.cache.clear(disk=False)
    found = scaled().build
    assert found.origin == "disk"
    monkeypatch.setitem(globals(), "SCALE", 4.0)
    assert found.llvm()["op"].count("\n") == before[0]
    assert (found.ptx(), found.sass(), found.resources()) == before[1:]
    assert scaled().build.ptx() != before[1]


def test_a_build_for_the_cpu_shows_all_its_code(monkeypatch):
    scale = 3.0

    def ask():
        return cupar.reduce_into("f4", "f4", lambda a, b: a + scale * b, np.zeros(1, "f4"), cc="cpu").build

    (code,) = ask().llvm().values()
    assert "fmul" in code and "@cupar_run(i64" in code
    cupar.cache.clear(disk=False)
    found = ask()
    scale = 4.0  # what was fingerprinted is shown
    assert found.origin == "disk" and found.llvm()["cupar_run"].count("\n") == code.count("\n")
    assert "3.000000e+00" in code and "3.000000e+00" in found.llvm()["cupar_run"]
    for show in (found.ltoir, found.ptx, found.sass, found.resources):
        with pytest.raises(ValueError, match=r"^this was built for the CPU, and has no GPU code.* llvm\(\)"):
            show()
    assert cupar.radix_sort("i4", "i4", order=cupar.SortOrder.ASCENDING, cc="cpu").build.llvm() == {}


def test_iterators_show_their_operators():
    squares = cupar.TransformIterator(cupar.CountingIterator(np.int32(0)), lambda a: a * a)
    build = cupar.reduce_into(squares, "i4", cupar.OpKind.PLUS, 0, cc=90).build
    (name,) = build.llvm()
    assert set(build.ltoir()) == {"kernels", name}


def test_known_operators_have_no_llvm():
    build = cupar.unary_transform("i4", "i4", cupar.OpKind.NEGATE, cc=90).build
    assert build.llvm() == {} and set(build.ltoir()) == {"kernels"}


@pytest.mark.slow
def test_segmented_builds_are_shown_too(only):
    only("cupar_segmented_reduce", "cupar_segmented_sort_512")
    op, init = lambda a, b: a + 2 * b, np.zeros(1, "f4")
    build = cupar.segmented_reduce("f4", "f4", "i8", "i8", op, init, cc=90).build
    assert set(build.ltoir()) == {"kernels", "op"} and ".entry" in build.ptx()
    assert all(each.registers > 0 for each in build.resources().values())
    order = cupar.SortOrder.ASCENDING
    sort = cupar.segmented_sort("i4", "i4", None, None, "i8", "i8", order, cc=90).build
    assert set(sort.ltoir()) == {"kernels"} and ".entry" in sort.ptx()
    assert "cupar_segmented_sort_512" in sort.resources()


def test_resources_are_those_that_cuobjdump_tells(tmp_path):
    algorithm = scaled()
    file = tmp_path / "build.cubin"
    file.write_bytes(algorithm.cubin())
    told = subprocess.run([tool("cuobjdump"), "-res-usage", file], capture_output=True, text=True).stdout
    for kernel, takes in algorithm.build.resources().items():
        line = told.partition(f"Function {kernel}:")[2].strip().splitlines()[0]
        given = dict(each.split(":") for each in line.split())
        assert (takes.registers, takes.shared) == (int(given["REG"]), int(given["SHARED"]))
        assert takes.local == int(given["STACK"]) + int(given["LOCAL"])
    assert algorithm.build.resources()["cupar_reduce_partials"].max_threads == 256


@pytest.mark.parametrize("damaged", [b"", b"\x7fELF" + bytes(60), b"x" * 200])
def test_what_is_no_gpu_code(damaged):
    with pytest.raises(ValueError, match="no GPU code"):
        elf.resources_of(damaged)


def test_a_copy_from_another_process_has_no_code():
    algorithm = scaled()
    build = pickle.loads(pickle.dumps(algorithm.build))
    assert build == algorithm.build
    with pytest.raises(ValueError, match="copied from another process"):
        build.sass()


def test_nvdisasm_is_missing(monkeypatch):
    from cuda import pathfinder

    monkeypatch.setattr(pathfinder, "find_nvidia_binary_utility", lambda name: None)
    monkeypatch.setenv("PATH", "")
    disassembly._nvdisasm.cache_clear()
    with pytest.raises(ImportError, match="pip install nvidia-cuda-nvdisasm"):
        scaled().build.sass()
    disassembly._nvdisasm.cache_clear()


SPILLING_AND_CALLING = """
extern "C" __device__ __noinline__ float again(float a, int n) { return n ? again(2 * a, n - 1) + a : a; }
extern "C" __device__ __noinline__ float divided(float a) { return a / 3.7f + 1; }
extern "C" __global__ void kernel(float* x, int n, float (*function)(float)) {
    float own[64];
    for (int i = 0; i < 64; i++) own[i] = x[i] * n;
    x[n] = own[n % 64] + again(x[1], n) + divided(x[2]) + function(x[3]);
}
"""


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("cc", [75, 90, 120])
def test_what_spills_or_calls_is_found_as_nvdisasm_finds_it(cc, tmp_path):
    """Other tests need that of many builds, and nvdisasm starts slowly."""
    from cuda.bindings import nvrtc

    from cupar._compile import nvrtc as own

    own.supported()  # which loads it
    _, program = nvrtc.nvrtcCreateProgram(SPILLING_AND_CALLING.encode(), b"code.cu", 0, [], [])
    assert nvrtc.nvrtcCompileProgram(program, 1, [f"-arch=sm_{cc}".encode()]) == (0,)
    code = b" " * nvrtc.nvrtcGetCUBINSize(program)[1]
    nvrtc.nvrtcGetCUBIN(program, code)
    nvrtc.nvrtcDestroyProgram(program)
    build = SimpleNamespace(cubin=lambda: code)
    names = [name.split(".")[0] for name in instructions(build, tmp_path)]
    found = [name for name in names if name in ("CALL", "LDL", "STL")]
    assert {*found} == {"CALL", "LDL", "STL"}
    assert sorted(spills_or_calls(build, tmp_path)) == sorted(found)


# --- CUPAR_DUMP


def test_what_is_asked_for_is_written(monkeypatch, tmp_path):
    monkeypatch.setenv("CUPAR_DUMP", f"ptx, llvm,cubin:{tmp_path / 'dump'}")
    algorithm = scaled()
    name = f"reduce_into-{algorithm.build.key[:16]}"
    files = {path.name: path.read_bytes() for path in (tmp_path / "dump").iterdir()}
    assert set(files) == {f"{name}.ptx", f"{name}.op.ll", f"{name}.cubin"}
    assert files[f"{name}.cubin"] == algorithm.cubin()
    assert files[f"{name}.ptx"].decode() == algorithm.build.ptx()


def test_what_is_found_is_written_once(monkeypatch, tmp_path):
    scaled()
    monkeypatch.setenv("CUPAR_DUMP", f"cubin:{tmp_path / 'dump'}")
    for _ in range(2):
        cupar.cache.clear(disk=False)
        assert scaled().build.origin == "disk"
    (file,) = (tmp_path / "dump").iterdir()
    file.unlink()
    cupar.cache.clear(disk=False)
    scaled()
    assert not file.exists()


@pytest.mark.parametrize("value", ["ptx", "ptx:", "pxt:folder", ":folder"])
def test_what_cannot_be_meant_is_said(monkeypatch, tmp_path, value):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUPAR_DUMP", value)
    with pytest.warns(cupar.CacheWarning, match="CUPAR_DUMP is .* and should be kinds and a folder"):
        scaled()
    assert not (tmp_path / "folder").exists()


def test_what_cannot_be_written_fails_no_build(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CUPAR_DUMP", f"cubin:{tmp_path / 'file' / 'dump'}")
    with pytest.warns(cupar.CacheWarning, match="CUPAR_DUMP: the cubin of reduce_into is not written"):
        assert scaled().build.origin == "built"
    assert _warnings.warned
