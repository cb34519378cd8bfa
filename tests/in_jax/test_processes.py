"""Programs in other processes, threads and forks, and on several devices."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("jax.experimental")
jnp = jax.numpy

import cupar  # noqa: E402
from cupar.jax import linear_recurrence, sort  # noqa: E402

PROGRAMS = Path(__file__).parent / "processes" / "programs.py"


def run(folder, *arguments, **environment):
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(sys.path),
        **environment,
    }
    command = [sys.executable, str(PROGRAMS), *arguments, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_programs_of_another_process(tmp_path, session_cache):
    pytest.importorskip("flatbuffers")  # which export needs
    result, handler, builds = run(tmp_path, "make")
    assert result == "result 1.99 32.0 hits 0"
    found, again = run(tmp_path, "use")
    assert found == "exported 1.99 32.0 False"
    assert again == "result 1.99 32.0 hits 1", "it is another program in the next process"
    for key in (*handler.split()[1:], *builds.split()[1:]):  # a cache in which the builds are damaged
        (path,) = session_cache.rglob(f"{key}*.cupar")
        copy = tmp_path / "damaged" / path.relative_to(session_cache)
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes()[: None if key in handler else -9])
    missing, *_ = run(tmp_path, "missing", CUPAR_CACHE_DIR=str(tmp_path / "damaged"))
    assert "cupar.jax: it calls a build of inclusive_segmented_scan with the key" in missing
    assert "is not in cupar's cache" in missing


@pytest.mark.slow
def test_sharded_arrays_are_not_gathered(tmp_path):
    lines = run(tmp_path, "sharded", XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert lines[:2] == ["sharded True False 2"] * 2
    assert len(set(lines[2].split()[1:])) == 1
    mapped, whole = map(float, lines[3].split()[1:])
    assert mapped == pytest.approx(whole, rel=1e-5)


def test_threads(rng):
    x = rng.random((9, 8), np.float32)

    def once(k):
        return sort(jnp.asarray(x[: k % 8 + 1])), jnp.sort(x[: k % 8 + 1])

    with ThreadPoolExecutor(8) as pool:
        assert all((found == expected).all() for found, expected in pool.map(once, range(40)))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # JAX's, of forks
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python's
def test_a_forked_child_goes_on_without_jax():
    linear_recurrence(jnp.ones(3), jnp.ones(3))
    child = os.fork()
    if not child:
        code = 1
        try:
            with cupar.device("cpu"):
                code = int(
                    cupar.arrays.linear_recurrence(np.ones(3, np.float32), np.ones(3, np.float32))[2] != 3
                )
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_what_is_donated_is_written_to():
    step = jax.jit(linear_recurrence, donate_argnums=1)
    a, b = jnp.full((2, 3), 0.5), jnp.ones((2, 3))
    assert step(a, b).tolist() == [[1, 1.5, 1.75]] * 2
    assert b.is_deleted()


def test_numbers_of_64_bits(rng):
    enable = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64  # in JAX 0.7
    with enable(True):
        a, b = (jnp.asarray(rng.random((2, 9))) for _ in range(2))
        found = linear_recurrence(a, b)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found[:, 1], a[:, 1] * b[:, 0] + b[:, 1], rtol=1e-15)
        assert sort(jnp.asarray([2**40, 3, -1])).tolist() == [-1, 3, 2**40]
