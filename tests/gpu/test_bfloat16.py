"""bfloat16 in kernels, in C++, in compiled host code, and in arrays of other libraries.

What algorithms make of it is in tests/results.
"""

import subprocess
import sys

import cupy as cp
import numpy as np
import pytest
from support.bfloat16 import BF16, THREE, device, empty, few, host_of, ml_dtypes, same
from support.results import DLPack

import cupar
from cupar import OpKind, gpu_struct

PLUS = OpKind.PLUS
Pair = gpu_struct({"x": BF16, "n": np.int32}, "Pair")


@pytest.mark.parametrize("shape", [(1000, 1), (40, 25)])
def test_kernels(shape, rng):
    from numba import cuda

    @cupar.jit
    def scale(x, out, factor, pair):
        row = cuda.shared.array(4, cuda.types.bfloat16)
        row[0] = 2
        cuda.syncthreads()
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            at = i // x.shape[1], i % x.shape[1]
            out[at] = x[at] * factor + row[0] + pair.x

    host = rng.integers(-20, 21, shape).astype(BF16)
    d_in, d_out = device(host), empty(host.size).reshape(shape)
    scale[4, 64](d_in, d_out, THREE, Pair(0.5, 1))
    same(host_of(d_out), host.astype("f4") * 3 + 2.5)
    scale[4, 64](d_in.T, d_out.T, ml_dtypes.bfloat16(-1), Pair(1, 1))
    same(host_of(d_out), 3 - host.astype("f4"))


def test_cpp(rng):
    half = cupar.cpp(
        "#include <cuda_bf16.h>\n__device__ __nv_bfloat16 half_of(__nv_bfloat16 x) {"
        " return x * __float2bfloat16(0.5f); }",
        "bfloat16(bfloat16)",
    )
    host = rng.normal(size=1000).astype(BF16)
    d_in, d_out = device(host), empty(1000)
    cupar.unary_transform(d_in, d_out, half).run(d_in, d_out, 1000)
    same(host_of(d_out), host.astype("f4") / 2)


def test_in_compiled_host_code(rng):
    from numba import njit

    host = few(rng, 1000)
    d_in, d_out = device(host), empty(1)
    sums = cupar.reduce_into(d_in, d_out, PLUS, 0)

    @njit
    def run(x, out, init):
        sums.run(x, out, x.size, init)

    for init in (0, 3.0, np.float32(-2), True):
        run(cupar.view(d_in), cupar.view(d_out), init)
        cp.cuda.Device().synchronize()
        same(host_of(d_out), [host.astype("f8").sum() + float(init)])


# --- Other libraries ----------------------------------------------------------------------------------------


def test_arrays_of_cupy(rng):
    host = few(rng, 1000)
    d_in, d_out = cp.asarray(host), cp.empty(1, BF16)
    assert d_in.dtype == BF16
    sums = cupar.reduce_into(d_in, d_out, PLUS, 0)
    sums.run(d_in, d_out, 1000, 0)
    same(d_out.get(), [host.astype("f8").sum()])
    with pytest.raises(TypeError, match=r"^d_in: .*bfloat16.*float16"):
        sums.run(cp.zeros(1000, "f2"), d_out, 1000, 0)


def test_tensors_of_torch(rng):
    torch = pytest.importorskip("torch")
    host = few(rng, 1000)
    t_in = torch.from_numpy(host.astype("f4")).to(torch.bfloat16).cuda()
    t_out = torch.zeros(1, dtype=torch.bfloat16, device="cuda")
    sums = cupar.reduce_into(t_in, t_out, PLUS, 0)
    assert sums.build.key == cupar.reduce_into(BF16, BF16, PLUS, 0).build.key
    for _ in range(3):
        t_out.zero_()
        sums.run(t_in, t_out, 1000, 0)
        assert float(t_out.item()) == host.astype("f8").sum()
    cupar.unary_transform(t_in, t_in, lambda x: x * 2).run(t_in, t_in, 1000)
    np.testing.assert_array_equal(t_in.float().cpu().numpy(), host.astype("f4") * 2)

    @cupar.jit
    def negate(x):
        for i in range(x.size):
            x[i] = -x[i]

    for _ in range(2):
        negate[1, 1](t_in)
    np.testing.assert_array_equal(t_in.float().cpu().numpy(), host.astype("f4") * 2)
    strided = torch.zeros(40, 25, dtype=torch.bfloat16, device="cuda")[:, ::2]
    assert cupar.view(strided).strides == (50, 4)


def test_dlpack(rng):
    torch = pytest.importorskip("torch")
    host = few(rng, 1000)
    t_in = torch.from_numpy(host.astype("f4")).to(torch.bfloat16).cuda()
    t_out = torch.zeros(1, dtype=torch.bfloat16, device="cuda")
    sums = cupar.reduce_into(DLPack(t_in), DLPack(t_out), PLUS, 0)
    sums.run(DLPack(t_in), DLPack(t_out), 1000, 0)
    assert float(t_out.item()) == host.astype("f8").sum()


OF_JAX = """
import os
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import cupar, cupy, jax, numpy
try:
    items = [jax.numpy.arange(20, dtype=dtype).block_until_ready() for dtype in ("float32", "bfloat16")]
    found = {each.platform for array in items for each in array.devices()}
except RuntimeError:
    found = None
if found != {"gpu"} and found != {"cuda"}:
    raise SystemExit("no GPU")
out = cupy.zeros(1, "f4")
for array in items * 2:
    init = numpy.zeros(1, "f4")
    cupar.reduce_into(array, out, cupar.OpKind.PLUS, init).run(array, out, 20, init)
    assert out.get()[0] == 190, out
"""


def test_arrays_of_jax():
    """In a process of its own, as it takes what is there of memory."""
    pytest.importorskip("jax")
    done = subprocess.run([sys.executable, "-c", OF_JAX], capture_output=True, text=True, timeout=300)
    if "no GPU" in done.stderr:
        pytest.skip("JAX finds no GPU")
    assert done.returncode == 0, done.stderr


def test_device_arrays_of_numba(rng):
    from numba import cuda

    host = few(rng, 1000)
    d_in, d_out = cuda.device_array(1000, BF16), empty(1)  # numba copies none from the host
    cp.cuda.runtime.memcpy(d_in.device_ctypes_pointer.value, device(host).data.ptr, 2000, 3)
    cupar.reduce_into(d_in, d_out, PLUS, 0).run(d_in, d_out, 1000, 0)
    same(host_of(d_out), [host.astype("f8").sum()])
