"""The handler, as XLA and a driver without a GPU see it."""

import re
from pathlib import Path

import pytest
from support.host import run

jax = pytest.importorskip("jax")
pytest.importorskip("numba")

from cupar._jax import runtime  # noqa: E402

PROCESSES = Path(__file__).parent / "processes"


@pytest.mark.slow
def test_it_launches_what_python_launches(tmp_path, session_cache):
    done = run(tmp_path, PROCESSES / "launches.py", session_cache, JAX_PLATFORMS="cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("same")] and "differs" not in done.stdout, done.stdout
    assert (
        "failed: cupar.jax: reduce_into: cuLaunchKernelEx of cupar_reduce failed with CUDA_ERROR_OF_THE_TEST"
        in lines
    )
    assert "from the cache: True 1" in lines
    other = [line for line in lines if line.startswith("elsewhere: ")]
    assert "it was compiled for a GPU with cc 90, sms 114" in other[0]
    # The version of JAX's headers, whatever the frame's table says.
    assert f"metadata: [0, {runtime._version() >> 32}, 1]" in lines


def test_keys_of_other_builds_stay_as_they_are():
    from cupar._compile import toolchain

    before = dict(toolchain.cpu_versions())
    assert runtime._parts()["versions"] != before
    assert toolchain.cpu_versions() == before


def test_programs_are_published_to_threads_without_a_lock(monkeypatch):
    """On aarch64, too, a thread that finds a key sees the functions behind it."""
    from cupar._jax import handler

    code = handler.library().get_llvm_str()
    assert re.search(r"store atomic i64 .* release, align 8", code)
    find = code[re.search(r"load atomic i64, .* acquire, align 8", code).start() :]
    assert "load i64" in find  # the address of the functions, once the key is known
    runtime.register()
    runtime._put(12345, [7, 8])
    (address,) = (int(entry[1]) for entry in runtime._table if entry[0] == 12345)
    assert (runtime._word(address), runtime._word(address, 1)) == (7, 8)
    runtime._table[runtime._table[:, 0] == 12345] = 0
