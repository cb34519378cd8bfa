"""Launches kernels that use all that numba.cuda has for them, by the stand-in or by numba.cuda itself."""

import sys

from support.host import Array, Driver

driver, way = Driver(sys.argv[1]), sys.argv[2]

import numpy as np  # noqa: E402

if way == "numba":
    from numba import cuda
    from numba.cuda import libdevice
    from numba.cuda.random import xoroshiro128p_next
else:
    from cupar.cuda.random import xoroshiro128p_next

    from cupar import cuda
    from cupar.cuda import libdevice

import cupar  # noqa: E402

F, grid = cuda.float32, cuda.grid
TABLE = np.arange(4.0)
state = np.dtype([("s0", "u8"), ("s1", "u8")], align=True)


@cuda.jit(device=True)
def squared(x):
    return x * x


@cuda.jit(device=True, inline="always", fastmath=True)
def inlined(x):
    return x / np.float32(3)


@cuda.jit
def halved(x):
    return x * np.float32(0.5)


@cupar.jit
def many(x, out):
    near = cuda.shared.array(64, F)
    far = cuda.local.array(4, cuda.types.int32)
    table = cuda.const.array_like(TABLE)
    dynamic = cuda.shared.array(0, np.float64)
    i = grid(1)
    near[cuda.threadIdx.x] = x[i]
    far[i % 4] = cuda.popc(i) + cuda.laneid + cuda.warpsize
    cuda.syncthreads()
    cuda.syncwarp()
    if i < x.size:
        vector = cuda.float32x2(near[0], near[1])
        value = inlined(squared(halved(near[cuda.blockDim.x - 1]))) + libdevice.fast_sinf(x[i]) + vector.x
        value += cuda.shfl_sync(0xFFFFFFFF, value, 0) + table[i % 4] + far[0] + dynamic[0]
        cuda.stcs(out, i, value + cuda.libdevice.fast_cosf(cuda.ldcs(x, i)))
        cuda.atomic.add(out, 0, cuda.selp(i > 3, value, value + 1))


@cupar.jit
def cooperative(x):
    cuda.cg.this_grid().sync()
    x[0] = 1


@cupar.jit
def random(states, out):
    i = cuda.grid(1)
    out[i] = np.float32(xoroshiro128p_next(states, i) >> 40)


x, states = Array(0x1000, 8, "f4"), Array(0x2000, 8, state)
for kernel, arguments in ((many, (x, x)), (cooperative, (x,)), (random, (states, x))):
    kernel.compile(*arguments)
    driver.knows(kernel.overloads[kernel.signatures[0]])
    kernel[2, 4](*arguments)
    print(kernel.__name__, kernel.build.origin, kernel.build.key)
assert [each.kernel[-4:] for each in driver.taken()]
imported = {name.partition(".")[0] for name in sys.modules} & {"numba", "numba_cuda", "llvmlite"}
assert not imported or way == "numba" or "disk" not in sys.argv, imported
