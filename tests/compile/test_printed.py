"""What CCCL's library prints when a program does not compile: in the error, and nowhere else."""

import ctypes
import json
import logging
import os
import subprocess
import sys

import pytest

import cupar
from cupar._compile import cccl, compiler_output, toolchain
from cupar.operators import OpKind

libc = ctypes.CDLL(None)


def c_prints(text):
    libc.puts(text.encode())
    compiler_output.flush()


def c_complains(text):
    libc.perror(text.encode())


@pytest.fixture
def without_headers(monkeypatch, tmp_path, empty_cache):
    """Let NVRTC fail with whatever it is given."""
    monkeypatch.setattr(toolchain, "include_folders", lambda: (tmp_path, tmp_path))


def ask():
    order = cupar.SortOrder.ASCENDING
    return cupar.segmented_sort("i4", "i4", None, None, "i4", "i4", order, cc=90)


# --- A compile that fails


def test_the_reason_is_in_the_error_and_nothing_is_printed(without_headers, capfd):
    with pytest.raises(cupar.BuildError) as caught:
        ask()
    text = str(caught.value)
    assert "sm_90: " in text
    assert "cannot open source file" in text
    assert "\n" not in text
    assert len(text) < 400
    assert capfd.readouterr() == ("", "")


def test_debugging_gives_all_of_it(without_headers, capfd, monkeypatch):
    monkeypatch.setenv("CUPAR_DEBUG", "1")
    with pytest.raises(cupar.BuildError, match=r"(?s)cannot open source file.*\n.*errors? detected"):
        ask()
    assert capfd.readouterr() == ("", "")


def test_the_log_has_all_of_it(without_headers, caplog):
    with caplog.at_level(logging.DEBUG, "cupar"), pytest.raises(cupar.BuildError):
        ask()
    assert any("cannot open source file" in record.getMessage() for record in caplog.records)


def test_where_the_library_prints_after_all_nothing_else_breaks(without_headers, capfd, monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(cupar.BuildError, match="sm_90: "):
        ask()
    out, err = capfd.readouterr()
    assert "EXCEPTION in cccl_device_segmented_sort" in out
    assert "cannot open source file" in err


SCRIPT = """
import ctypes, os, pathlib, sys
import cupar
from cupar._compile import cccl as _cccl
from cupar._compile import toolchain as _toolchain

empty = pathlib.Path(sys.argv[1])
_toolchain.include_folders = lambda: (empty, empty)
print("by Python")
os.system("echo by a process")
ctypes.CDLL(None).puts(b"by C, in its buffer")
cupar.reduce_into("i4", "i4", cupar.OpKind.PLUS, 0)
"""


def test_a_document_is_a_document_whatever_prints(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "cupar", "build", script, "--cc", "90", "--json", "--", tmp_path]
    run = subprocess.run(
        command,
        capture_output=True,
        env={**os.environ, "CUPAR_CACHE_DIR": str(tmp_path / "cache")},
        timeout=120,
    )
    document = json.loads(run.stdout)
    assert run.returncode == 1
    (build,) = document["builds"]
    assert build["result"] == "failed"
    assert "cannot open source file" in build["error"]
    for who in (b"Python", b"a process", b"C, in its buffer"):
        assert b"by " + who in run.stderr
    assert b"EXCEPTION" not in run.stderr


# --- Other threads, and other processes


def test_what_others_print_meanwhile_is_printed(capfd):
    with compiler_output.held():
        c_prints("by C")
        c_complains("complaint")
        print("by Python", flush=True)
        subprocess.run(["echo", "by a process"], check=True)
        assert capfd.readouterr() == ("by Python\nby a process\n", "")
    out, err = capfd.readouterr()
    assert out == "by C\n"
    assert err.startswith("complaint: ")
    c_prints("afterwards")
    assert capfd.readouterr().out == "afterwards\n"


def test_what_others_print_is_no_part_of_a_reason(capfd):
    with compiler_output.held() as printed:
        c_prints("before")
        c_prints("\nEXCEPTION in cccl_device_reduce_compile(): NVRTC error: NVRTC_ERROR_COMPILATION")
        c_prints("after")
        assert printed.reason() == ": NVRTC error: NVRTC_ERROR_COMPILATION"
    assert capfd.readouterr() == ("before\nafter\n", "")


def test_an_exception_gives_the_streams_back(capfd):
    with pytest.raises(KeyError), compiler_output.held():
        raise KeyError
    c_prints("afterwards")
    assert capfd.readouterr().out == "afterwards\n"


def test_no_descriptor_is_left_open():
    before = sorted(os.listdir("/proc/self/fd"))
    with compiler_output.held() as printed:
        printed.reason()
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_prints(capfd):
    with compiler_output.held():
        pid = os.fork()
        if pid == 0:
            c_prints("by a child")
            os._exit(0)
        os.waitpid(pid, 0)
        assert capfd.readouterr().out == "by a child\n"


def test_a_build_that_succeeds_prints_nothing(empty_cache, capfd):
    assert cupar.reduce_into("i4", "i4", OpKind.PLUS, 0, cc=90).build.origin == "built"
    assert capfd.readouterr() == ("", "")
    assert cccl.bindings() is not None
