"""The stand-in for libcuda: a shared object made with nothing but Python."""

import ctypes
import platform
import struct
import subprocess
import sys
import textwrap

import pytest

from cupar import _cccl, _stub

NAMES = ["cuInit", "cuLaunchKernel", "cuLibraryLoadData"]


@pytest.mark.parametrize("names", [[], NAMES[:1], NAMES, [f"cuFunction{i}" for i in range(500)]])
def test_it_loads_and_every_function_says_no_device(names, tmp_path):
    file = tmp_path / "stub.so"
    file.write_bytes(_stub.shared_object(names))
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
    x86, arm = (_stub.shared_object(NAMES, machine) for machine in ("x86_64", "aarch64"))
    assert struct.unpack_from("<H", x86, 18) == (62,)
    assert struct.unpack_from("<H", arm, 18) == (183,)
    with pytest.raises(ImportError, match="riscv64"):
        _stub.shared_object(NAMES, "riscv64")


def test_names_are_found_in_the_bindings():
    _, path = _cccl._extension()
    names = _stub.driver_symbols([path, *path.parent.glob("cccl/*.so*")])
    assert {"cuInit", "cuLibraryLoadData", "cuLaunchKernel", "cuCtxGetCurrent"} <= set(names)
    assert all(name.startswith("cu") and name.isidentifier() for name in names)


@pytest.mark.skipif(platform.system() != "Linux", reason="ELF")
def test_it_leaves_no_file_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    loaded = []
    monkeypatch.setattr(ctypes, "CDLL", lambda name, mode: loaded.append(name))
    _, path = _cccl._extension()
    _stub.load([path])
    assert len(loaded) == 1
    assert list(tmp_path.iterdir()) == []
