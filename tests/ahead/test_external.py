"""Code from elsewhere in recorded lists and bundles: another machine has neither the files nor a compiler."""

import os
import subprocess
import sys
import textwrap

import pytest
from support.compilers import AS_IN_THE_RUN

import cupar

pytest.importorskip("numba.cuda")

ASKED = """
import sys
import cupar
from numba import cuda

def build(folder, cc):
    cube = cupar.cpp(f"{folder}/cube.cu", "float32(float32)")
    add = cuda.declare_device("add", "float32(float32, float32)", link=f"{folder}/add.cu", abi="c")
    sub = cuda.declare_device("sub", "float32(float32, float32)", abi="c")
    op = lambda a, b: add(cube(a), sub(a, b))
    return cupar.binary_transform("f4", "f4", "f4", op, cc=cc, link=f"{folder}/sub.cu").build

"""
BUILD = f"""
{AS_IN_THE_RUN}
from cupar._cli.main import main

sys.exit(main())
"""
NO_COMPILER = """
from cupar._compile import nvjitlink, nvrtc

nvrtc._loaded = nvjitlink._link = None
"""


@pytest.fixture
def run(tmp_path):
    def run(*command, cache, **environment):
        done = subprocess.run(
            [sys.executable, *map(str, command)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "CUPAR_CACHE_DIR": str(tmp_path / cache), **environment},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.split()

    return run


def write(folder):
    folder.mkdir()
    (folder / "cube.h").write_text("template <class T> __device__ T cubed(T x) { return x * x * x; }\n")
    (folder / "cube.cu").write_text(
        '#include "cube.h"\n__device__ float cube(float x) { return cubed(x); }\n'
    )
    for name, sign in (("add", "+"), ("sub", "-")):
        source = f'extern "C" __device__ float {name}(float a, float b) {{ return a {sign} b; }}\n'
        (folder / f"{name}.cu").write_text(source)


@pytest.mark.slow
def test_a_list_is_built_and_its_bundle_found_where_the_files_are_not(
    run, tmp_path, monkeypatch, empty_cache
):
    write(tmp_path / "here")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(ASKED, names)
    with cupar.record("asked.jsonl"):
        key = names["build"]("here", 90).key
    write(tmp_path / "there")
    for file in (tmp_path / "here").iterdir():
        file.unlink()
    run("-c", BUILD, "build", "asked.jsonl", "--cc", "90,100", "--jobs", 1, cache="second")
    run("-m", "cupar", "cache", "export", "builds.cupar-bundle", cache="second")
    asked = textwrap.dedent("""
        for cc in (90, 100):
            found = build("there", cc)
            print(found.origin, "cupar-bundle" in found.source, found.key)
        """)
    code = ASKED + NO_COMPILER + asked
    found = run("-c", code, cache="third", CUPAR_BUNDLES=str(tmp_path / "builds.cupar-bundle"))
    assert found[:5] == ["disk", "True", key, "disk", "True"]
    assert found[5] != key
