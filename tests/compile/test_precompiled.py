"""Headers that are kept precompiled: when, for how long, and what if that does not work."""

import os
from pathlib import Path

import pytest

from cupar import BuildError
from cupar._compile import nvrtc, precompiled
from cupar._ir.cpp import END_OF_HEADERS

CC = 90
pytestmark = pytest.mark.usefixtures("real_compilers")


def source(name):
    kernel = f'extern "C" __global__ void {name}(int* x) {{ *x = cuda::std::identity{{}}(1); }}'
    return f"#include <cuda/std/__functional/identity.h>\n{END_OF_HEADERS}{kernel}\n"


@pytest.fixture
def asked(monkeypatch):
    """Keep headers in this process for a test; return the option that NVRTC is given each time."""
    found = []
    compile_kernels = nvrtc.compile_kernels

    def noted(source, cc, *more):
        found.append(more[0].partition("=")[0] if more else "")
        return compile_kernels(source, cc, *more)

    monkeypatch.setattr(nvrtc, "compile_kernels", noted)
    monkeypatch.setattr(precompiled, "_headers", None)
    precompiled.keep_headers()
    yield found
    for file in precompiled._headers._files.values():
        if file is not None:
            os.close(file)


def test_headers_are_kept_from_the_second_on(asked):
    codes = [precompiled.compile_kernels(source(name), CC) for name in "abcb"]
    assert asked == ["", "-create-pch", "-use-pch", "-use-pch"]
    assert codes[1] == codes[3]


def test_or_from_the_first_if_there_will_be_many(asked):
    precompiled.expect_many(True)
    for name in "ab":
        precompiled.compile_kernels(source(name), CC)
    precompiled.compile_kernels(source("a"), 80)  # which has other macros
    assert asked == ["-create-pch", "-use-pch", "-create-pch"]


def test_other_processes_keep_none(monkeypatch):
    monkeypatch.setattr(nvrtc, "compile_kernels", lambda *given: given)
    monkeypatch.setattr(precompiled, "_headers", None)
    precompiled.expect_many(True)
    assert precompiled.compile_kernels("C++", CC) == ("C++", CC)


def test_files_have_no_names_and_few_are_open(asked, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    precompiled.expect_many(True)
    for number in range(5):
        precompiled.compile_kernels(f"#define N{number}\n{source('a')}", CC)
        assert list(tmp_path.iterdir()) == []
    files = [file for file in precompiled._headers._files.values() if file is not None]
    assert len(files) == 3
    assert all("(deleted)" in os.readlink(f"/proc/self/fd/{file}") for file in files)
    precompiled.compile_kernels(f"#define N0\n{source('b')}", CC)  # those used last stay
    assert asked == ["-create-pch"] * 6


def test_what_cannot_be_kept_is_compiled_without(asked, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    precompiled.expect_many(True)
    for _ in range(2):
        assert precompiled.compile_kernels(source("a"), CC)
    assert asked == ["", ""]


def test_a_file_that_nvrtc_refuses_is_not_used_again(asked, tmp_path):
    precompiled.expect_many(True)
    precompiled.compile_kernels(source("a"), CC)
    (key,) = precompiled._headers._files
    Path(tmp_path, "garbage").write_bytes(b"garbage")
    os.dup2(os.open(tmp_path / "garbage", os.O_RDONLY), precompiled._headers._files[key])
    for _ in range(2):
        assert precompiled.compile_kernels(source("b"), CC) == nvrtc.compile_kernels(source("b"), CC)
    assert asked in (
        ["-create-pch", "-use-pch", "", "", ""],
        ["-create-pch", "-use-pch", "", "-use-pch", ""],  # NVRTC warns, and does without
    )


def test_what_is_wrong_with_the_source_is_said(asked):
    precompiled.expect_many(True)
    for _ in range(2):
        with pytest.raises(BuildError, match="no_such_thing"):
            precompiled.compile_kernels(source("a") + "no_such_thing;", CC)
