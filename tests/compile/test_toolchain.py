"""Libraries of compilers: how they are loaded, and what they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import cupar
from cupar import _numba
from cupar._base import versions
from cupar._base.errors import BuildError
from cupar._compile import nvrtc, toolchain

WITHOUT_RPATH = """
import sys
from pathlib import Path
from cupar._compile import nvrtc, toolchain, workers

path = Path(sys.argv[1])
toolchain.library_path = lambda name: path
if sys.argv[2] == "helper":
    toolchain.load_file(path)  # as `workers.ready` does
    toolchain.load_library = lambda name: None
assert nvrtc.compile_cpp("__device__ int zero() { return 0; }", 90)
assert str(path) in Path("/proc/self/maps").read_text()
"""


@pytest.fixture(scope="module")
def without_rpath(tmp_path_factory):
    """NVRTC as CUDA 13.0's wheel has it: beside its builtins, without an RPATH to find them by."""
    path = toolchain.library_path("nvrtc").resolve()
    code = path.read_bytes()
    if b"\0$ORIGIN\0" not in code:
        pytest.skip("this NVRTC has no RPATH")
    made = tmp_path_factory.mktemp("nvrtc") / path.name
    made.write_bytes(code.replace(b"\0$ORIGIN\0", b"\0/absent\0"))
    for each in path.parent.glob("libnvrtc-builtins.so*"):
        (made.parent / each.name).symlink_to(each)
    yield made
    made.unlink()


@pytest.mark.parametrize("process", ["main", "helper"])
def test_nvrtc_finds_its_builtins_without_an_rpath(without_rpath, process):
    command = [sys.executable, "-c", WITHOUT_RPATH, str(without_rpath), process]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_messages_of_nvrtc_end_without_a_zero():
    with pytest.raises(BuildError, match="expected") as refused:
        nvrtc.compile_cpp("__device__ int zero() { return 0 }", 90)
    assert "\0" not in str(refused.value)
    assert str(refused.value) == str(refused.value).rstrip()


# --- Versions --------------------------------------------------------------------------------------------

BINDINGS = {"12.9.3", "13.0.2", "13.5.0"}, {"12.9.2", "13.0.0", "13.0.1", "14.0", "absent"}
NUMBA_CUDA = {"0.30.4", "0.30.9", "source-0123456789abcdef"}, {"0.30.3", "0.31.0", "1.0", "absent"}


def test_versions_are_those_of_the_metadata():
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    for name, needed in versions.NEEDED.items():
        assert f'"{name}{needed}"' in project or f'"{name}{needed}; sys_platform' in project


@pytest.mark.parametrize(
    ("project", "good", "bad"), [("cuda-bindings", *BINDINGS), ("numba-cuda", *NUMBA_CUDA)]
)
def test_another_version_is_refused(project, good, bad):
    for each in good:
        versions.check_version(project, each)
    for each in bad:
        with pytest.raises(cupar.VersionError, match=rf"^cupar needs {project}\S+, found {each}: pip"):
            versions.check_version(project, each)


@pytest.mark.parametrize(("project", "version"), [("numba-cuda", "0.30.3"), ("cuda-bindings", "13.0.1")])
def test_an_operator_is_not_compiled_by_another_version(project, version, monkeypatch, real_compilers):
    found = {"numba-cuda": "0.30.4", "cuda-bindings": "13.5.0", project: version}
    monkeypatch.setattr(_numba, "package_version", found.get)
    with pytest.raises(cupar.VersionError, match=rf"{re.escape(project)}\S+, found {version}: pip"):
        cupar.unary_transform("f4", "f4", lambda a: a * 0.8125, cc=90)


def test_kernels_are_not_compiled_through_another_version_of_cuda_bindings(monkeypatch, real_compilers):
    monkeypatch.setattr(toolchain, "package_version", lambda project: "13.0.1")
    with pytest.raises(cupar.VersionError, match=r"cuda-bindings\S+, found 13\.0\.1: pip"):
        nvrtc.compile_cpp("", 90)
