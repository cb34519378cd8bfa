"""Libraries of compilers: how they are loaded, and what they say."""

import subprocess
import sys

import pytest

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
