"""Programs of JAX's on a GPU: right, in command buffers and without them, and on every device."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("jax")

PROGRAM = """
import numpy as np, jax, jax.numpy as jnp
import cupar, cupar.jax as cj

if jax.default_backend() != "gpu":
    raise SystemExit("no GPU for JAX")
rng = np.random.default_rng(1)


def scan(fn, xs):
    return jax.lax.associative_scan(fn, xs, axis=1)


def pairs(l, r):
    return l[0] * r[0], r[0] * l[1] + r[1]


def both(name, mine, its, *arrays):
    for each in jax.devices():
        given = [jax.device_put(x, each) for x in arrays]
        for _ in range(3):  # the first is captured, others are replayed
            found = jax.tree.leaves(jax.jit(mine)(*given))
        expected = jax.tree.leaves(jax.jit(its)(*given))
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-3, err_msg=f"{name} on {each}")
            assert x.devices() == {each}


for shape in ((5, 40), (1, 100_000), (300, 777)):
    a, b, w = (rng.random(shape, np.float32) for _ in range(3))
    mine, its = cj.linear_recurrence, lambda a, b: scan(pairs, (a, b))[1]
    both("recurrence", mine, its, a, b)
    slopes = [jax.grad(lambda a, b, w, f=f: (jnp.sin(f(a, b)) * w).sum(), (0, 1)) for f in (mine, its)]
    both("gradients", *slopes, a, b, w)
    both("vmap", jax.vmap(mine), its, a, b)
    most = lambda x: cj.associative_scan(jnp.maximum, x, axis=1)
    both("maximum", most, lambda x: jax.lax.cummax(x, axis=1), a)
    both("sort", cj.sort, lambda x: jnp.sort(x, axis=1), a)
    both("top-k", lambda x: cj.top_k(x, 3), lambda x: jax.lax.top_k(x, 3), a)
ids = rng.integers(0, 50, 10_000).astype(np.int32)
for shape in ((10_000,), (10_000, 8)):
    data = rng.random(shape, np.float32)
    sums = [lambda x, i, f=f: f(x, i, 50) for f in (cj.segment_sum, jax.ops.segment_sum)]
    both("segments", *sums, data, ids)
x = rng.standard_normal(100_000).astype(np.float32)
both("histogram", lambda x: cj.histogram(x, 40, (-2, 2)), lambda x: jnp.histogram(x, 40, (-2, 2))[0], x)


def chain(function, a, b):
    for k in range(8):
        b = jnp.sin(function(a, b) * 0.5) + 1.0 / (k + 1)
    return b


a, b = (rng.random((16, 500), np.float32) for _ in range(2))
both("chain", lambda a, b: chain(cj.linear_recurrence, a, b), lambda a, b: chain(its, a, b), a, b)
step = jax.jit(cj.linear_recurrence, donate_argnums=1)
given = jnp.asarray(b)
np.testing.assert_allclose(step(a, given), its(a, b), rtol=1e-3)
assert given.is_deleted()
print("right")
"""


@pytest.mark.parametrize("commands", ["FUSION,CUSTOM_CALL,CUBLAS,CUDNN", ""], ids=["captured", "launched"])
def test_programs_are_right(commands, session_cache):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_enable_command_buffer={commands}"
    environment = {**os.environ, "XLA_FLAGS": flags, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    if "no GPU for JAX" in done.stderr:
        pytest.skip("this JAX has no GPU")
    assert done.stdout.splitlines()[-1:] == ["right"], done.stdout + done.stderr
