"""The stand-in for libcuda: a shared object made with nothing but Python."""

import platform
import struct
import subprocess
import sys
import textwrap

import pytest

from cupar._compile import cccl, driver_stub

linux = pytest.mark.skipif(platform.system() != "Linux", reason="ELF")

NAMES = ["cuInit", "cuLaunchKernel", "cuLibraryLoadData"]


@pytest.mark.parametrize("names", [[], NAMES[:1], NAMES, [f"cuFunction{i}" for i in range(500)]])
def test_it_loads_and_every_function_says_no_device(names, tmp_path):
    file = tmp_path / "stub.so"
    file.write_bytes(driver_stub.shared_object(names))
    # In a process of its own, where no other library has this SONAME.
    code = f"""
        import ctypes
        library = ctypes.CDLL({str(file)!r})
        assert [getattr(library, name)(0) for name in {names!r}] == [100] * {len(names)}
        assert not hasattr(library, "cuAbsent")
        try:
            ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
        except OSError:
            raise SystemExit("not known by its SONAME")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_other_machines():
    x86, arm = (driver_stub.shared_object(NAMES, machine) for machine in ("x86_64", "aarch64"))
    assert struct.unpack_from("<H", x86, 18) == (62,)
    assert struct.unpack_from("<H", arm, 18) == (183,)
    with pytest.raises(ImportError, match="riscv64"):
        driver_stub.shared_object(NAMES, "riscv64")


def test_names_are_found_in_the_bindings():
    _, path = cccl._extension()
    names = driver_stub.driver_symbols([path, *path.parent.glob("cccl/*.so*")])
    assert {"cuInit", "cuLibraryLoadData", "cuLaunchKernel", "cuCtxGetCurrent"} <= set(names)
    assert all(name.startswith("cu") and name.isidentifier() for name in names)


LOADS = """
import ctypes, os, sys, tempfile
tempfile.tempdir = sys.argv[1]
from pathlib import Path
from cupar._compile import driver_stub as _stub
if sys.argv[2] == "no memfd":
    del os.memfd_create
elif sys.argv[2] == "no execution":
    os.memfd_create = lambda name: os.open(os.devnull, os.O_RDWR)  # which the loader does not load
before = sorted(os.listdir("/proc/self/fd"))
_stub.load([Path(sys.argv[3])])
assert sorted(os.listdir("/proc/self/fd")) == before
assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 100
"""


def load_in_a_process(directory, how, path):
    """Load a stand-in where no library has its SONAME, with this directory for temporary files."""
    (path / "names").write_bytes(b"\0cuInit\0cuLaunchKernel\0")
    subprocess.run([sys.executable, "-c", LOADS, directory, how, path / "names"], check=True)


@linux
@pytest.mark.parametrize("how", ["memfd", "no memfd", "no execution"])
def test_it_leaves_no_file_behind(tmp_path, how):
    directory = tmp_path / "temporary"
    directory.mkdir()
    load_in_a_process(directory, how, tmp_path)
    assert list(directory.iterdir()) == []


@linux
def test_no_directory_for_temporary_files_is_needed(tmp_path):
    load_in_a_process(tmp_path / "missing", "memfd", tmp_path)


@linux
def test_a_directory_mounted_without_execution_does_not_matter(tmp_path):
    apart = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    mount = 'mount -t tmpfs -o noexec none "$0"'
    try:
        subprocess.run([*apart, mount, tmp_path], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("nothing can be mounted here")
    names = tmp_path.parent / f"{tmp_path.name} names"
    names.write_bytes(b"\0cuInit\0cuLaunchKernel\0")
    command = [
        *apart,
        f'{mount} && exec "$@"',
        tmp_path,
        sys.executable,
        "-c",
        LOADS,
        tmp_path,
        "memfd",
        names,
    ]
    subprocess.run(command, check=True)
