"""Kernels of the user's on the GPU, against NumPy: arguments of all kinds, launches, graphs and captures."""

import enum
import math
import threading
from collections import namedtuple
from contextlib import suppress

import cupy as cp
import numba
import numpy as np
import pytest
from numba import cuda
from test_launches import spin

import cupar
from cupar import graph

torch = None
with suppress(ImportError):
    import torch

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")


@cupar.jit
def axpy(x, y, out, n, alpha):
    i = cuda.grid(1)
    if i < n:
        out[i] = alpha * x[i] + y[i]


def numbers(n, dtype="f4", seed=0):
    return np.random.default_rng(seed).integers(-50, 50, n).astype(dtype)


def check_axpy(x, y, out, n=None, alpha=3.0, launch=None, read=cp.asnumpy):
    n = len(x) if n is None else n
    (launch or axpy[-(-max(n, 1) // 128), 128])(x, y, out, n, alpha)
    want = (alpha * read(x).astype("f8") + read(y).astype("f8"))[:n]
    np.testing.assert_allclose(read(out)[:n], want.astype(read(out).dtype))


@pytest.mark.parametrize("dtype", ["i1", "i4", "i8", "u1", "u8", "f2", "f4", "f8"])
@pytest.mark.parametrize("n", [0, 1, 1000, 100_001])
def test_arrays_of_cupy(dtype, n):
    x, y = (cp.asarray(numbers(n, dtype, seed) % 20) for seed in (1, 2))
    out = cp.zeros(n, "f8")
    check_axpy(x, y, out)


def test_the_same_arguments_again_and_others():
    x, y, out = (cp.asarray(numbers(1000, seed=seed)) for seed in range(3))
    launch = axpy[8, 128]
    for alpha in (1.0, 1.0, -0.0, 0.0, 2.0):
        check_axpy(x, y, out, alpha=alpha, launch=launch)
    assert not np.signbit(cp.asnumpy(0.0 * x + y)[cp.asnumpy(y) > 0]).any()
    for _ in range(3):
        x = cp.asarray(numbers(1000, seed=7))
        check_axpy(x, y, out, launch=launch)
        x += 1
        check_axpy(x, y, out, n=500, launch=launch)
    check_axpy(x.astype("f8"), y, out, launch=launch)  # other types, at the same place
    check_axpy(x, y, out, launch=launch)


def test_minus_zero_is_not_zero():
    """Of two launches that differ in a sign of zero, the second sets it."""

    @cupar.jit
    def store(out, value):
        out[0] = value

    out = cp.ones(1, "f8")
    for value in (0.0, -0.0, 0.0):
        store[1, 1](out, value)
        assert math.copysign(1, out.get()[0]) == math.copysign(1, value)


@needs_torch
@pytest.mark.parametrize("dtype", ["int32", "int64", "float16", "float32", "float64", "uint8"])
def test_tensors_of_torch(dtype):
    kind = getattr(torch, dtype)
    x, y = (torch.arange(1000, device="cuda").remainder(13).to(kind) for _ in range(2))
    out = torch.zeros(1000, dtype=torch.float64, device="cuda")
    check_axpy(x, y, out, read=lambda each: each.cpu().numpy())
    # Of other strides, and negated lazily.
    check_axpy(x[::2], y[::2], out[::2], n=500, read=lambda each: each.cpu().numpy())


@needs_torch
def test_tensors_after_others_were_checked_at_once():
    @cupar.jit
    def kernel(x, y, out, n, alpha):
        i = cuda.grid(1)
        if i < n:
            out[i] = alpha * x[i] + y[i]

    def launched(x, y, out, n=8):
        kernel[1, 32](x, y, out, n, 2.0)
        expected = 2 * x.cpu().numpy() + y.cpu().numpy()
        np.testing.assert_array_equal(out.cpu().numpy()[:n], expected[:n])

    def tensor(n, **named):
        return torch.arange(n, dtype=torch.float32, device="cuda", **named)

    x, y, out = tensor(8), tensor(8) + 1, tensor(8)
    for _ in range(3):
        launched(x, y, out)
    (overload,) = kernel.overloads.values()
    assert overload.guarded[0] == (0, 1, 2)  # fails if PyTorch no longer has what checks them
    launched(tensor(9), tensor(9), tensor(20))
    launched(x[1:], x[:7], out, 7)
    launched(x, x, out)
    launched(tensor(16)[::2], y, out)
    launched(x.double(), y, out)
    launched(tensor(8).requires_grad_().detach(), y, out)
    with torch.inference_mode():
        launched(tensor(8), y, out)
    kernel[1, 32](cp.arange(8, dtype="f4"), y, out, 8, 2.0)
    np.testing.assert_array_equal(out.cpu().numpy(), 2 * np.arange(8, dtype="f4") + y.cpu().numpy())
    with pytest.raises(ValueError, match="^x: .*lazy"):
        kernel[1, 32](torch._neg_view(x), y, out, 8, 2.0)
    with pytest.raises(TypeError, match="^x: .*PyTorch tensor on cpu"):
        kernel[1, 32](x.cpu(), y, out, 8, 2.0)


@needs_torch
def test_lazy_negation_is_refused():
    x = torch.ones(10, dtype=torch.complex64, device="cuda").conj().imag
    with pytest.raises(ValueError, match="^x: .*lazy"):
        axpy[1, 32](x, x, x, 10, 1.0)


def test_arrays_of_numba():
    x, y = (cuda.to_device(numbers(1000, seed=seed)) for seed in (1, 2))
    out = cuda.to_device(np.zeros(1000, "f4"))
    check_axpy(x, y, out, read=lambda each: each.copy_to_host())
    check_axpy(x[::2], y[1::2], out[::2], read=lambda each: each.copy_to_host())


class OnlyDLPack:
    def __init__(self, array):
        self._array, self.shape = array, array.shape

    def __dlpack__(self, **named):
        return self._array.__dlpack__(**named)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class OnlyInterface:
    def __init__(self, array):
        self.__cuda_array_interface__ = array.__cuda_array_interface__


@pytest.mark.parametrize("wrap", [OnlyDLPack, OnlyInterface])
@pytest.mark.parametrize("step", [1, 3])
def test_arrays_of_others(wrap, step):
    x, y, out = (cp.asarray(numbers(999, seed=seed))[::step] for seed in range(3))
    n = len(x)
    axpy[8, 128](wrap(x), wrap(y), wrap(out), n, 2.0)
    np.testing.assert_allclose(out.get(), 2 * x.get() + y.get())


@cupar.jit
def copy_2d(source, target):
    i, j = cuda.grid(2)
    if i < source.shape[0] and j < source.shape[1]:
        target[i, j] = source[i, j]


@cupar.jit
def copy_3d(source, target):
    i, j, k = cuda.grid(3)
    if i < source.shape[0] and j < source.shape[1] and k < source.shape[2]:
        target[i, j, k] = source[i, j, k]


def views(array):
    """Return an array in all layouts, by name."""
    big = cp.zeros(tuple(2 * each for each in array.shape), array.dtype)
    strided = big[tuple(slice(None, None, 2) for _ in array.shape)]
    strided[...] = array
    flipped = cp.ascontiguousarray(array[::-1])[::-1]
    return {"C": cp.ascontiguousarray(array), "F": cp.asfortranarray(array), "A": strided, "-": flipped}


@pytest.mark.parametrize("kernel, shape", [(copy_2d, (17, 23)), (copy_3d, (5, 7, 9)), (copy_2d, (1, 9))])
@pytest.mark.parametrize("one", "CFA-")
@pytest.mark.parametrize("other", "CFA")
def test_layouts(kernel, shape, one, other):
    array = cp.arange(math.prod(shape), dtype="f4").reshape(shape)
    source, target = views(array)[one], views(cp.zeros_like(array))[other]
    block = (8,) * len(shape)
    kernel[tuple(-(-each // 8) for each in shape), block](source, target)
    cp.testing.assert_array_equal(target, array)


@needs_torch
def test_layouts_of_torch():
    array = torch.arange(6 * 8, dtype=torch.float32, device="cuda").reshape(6, 8)
    for source in (array, array.T, array[::2, 1:], array.expand(6, 8), array[:1].expand(6, 8)):
        target = torch.zeros(source.shape, device="cuda")
        copy_2d[(1, 1), (8, 8)](source, target)
        assert torch.equal(source, target)


def test_a_dimension_of_none_and_of_no_items():
    @cupar.jit
    def add_one(x):
        x[()] += 1

    x = cp.zeros((), "i8")
    add_one[1, 1](x)
    assert x.get() == 1
    copy_2d[1, 1](cp.zeros((0, 3)), cp.zeros((0, 3)))


@cupar.gpu_struct
class Peak:
    height: np.float32
    index: np.int64
    valid: bool


Pair = namedtuple("Pair", "first second")


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 7


def store_value(out, value):
    out[0] = value


def store_complex(out, value):
    out[0] = value.real
    out[1] = value.imag


def store_tuple(out, value):
    out[0] = value[0]
    out[1] = value[1][0] + value[1][1]


def store_pair(out, value):
    out[0] = value.first
    out[1] = value.second


def store_peak(out, value):
    out[0] = value.height
    out[1] = value.index
    if value.valid:
        out[2] = 1


def store_colour(out, value):
    if value == Colour.BLUE:
        out[0] = 7
    if value == 1:
        out[0] = 1


@pytest.mark.parametrize(
    "function, value, want",
    [
        (store_value, 5, [5]),
        (store_value, -(2**62), [-(2.0**62)]),
        (store_value, 2**63 + 2**62, [2.0**63 + 2.0**62]),
        (store_value, 2.5, [2.5]),
        (store_value, True, [1]),
        (store_value, np.bool_(True), [1]),
        (store_value, np.int8(-3), [-3]),
        (store_value, np.uint16(65535), [65535]),
        (store_value, np.float16(1.5), [1.5]),
        (store_value, np.float32(0.1), [float(np.float32(0.1))]),
        (store_complex, 1 - 2j, [1, -2]),
        (store_complex, np.complex64(3 + 4j), [3, 4]),
        (store_tuple, (1, (2.5, np.int32(3))), [1, 5.5]),
        (store_pair, Pair(3, 0.5), [3, 0.5]),
        (store_peak, Peak(1.5, 9, True), [1.5, 9, 1]),
        (store_peak, Peak(1.5, 9, False), [1.5, 9, 0]),
        (store_colour, Colour.BLUE, [7]),
        (store_colour, Colour.RED, [1]),
    ],
)
def test_values(function, value, want):
    kernel = cupar.jit(function)
    for _ in range(2):
        out = cp.zeros(3, "f8")
        kernel[1, 1](out, value)
        assert out.get()[: len(want)].tolist() == want


RECORD = np.dtype([("a", "f8"), ("b", "i4"), ("c", "c8"), ("d", ("u1", 5))], align=True)


def test_records():
    @cupar.jit
    def change(records, one, out):
        i = cuda.grid(1)
        if i < records.size:
            records[i].a = records[i].b + one.a
            records[i].d[2] = 9
            out[i] = records[i]["c"].imag

    host = np.zeros(10, RECORD)
    host["b"], host["c"] = np.arange(10), 2j
    one = np.zeros(1, RECORD)
    one["a"] = 0.5
    records, out = cuda.to_device(host), cp.zeros(10, "f4")
    change[1, 32](records, cuda.to_device(one[0]), out)
    found = records.copy_to_host()
    np.testing.assert_array_equal(found["a"], np.arange(10) + 0.5)
    assert (found["d"] == [0, 0, 9, 0, 0]).all()
    assert (out.get() == 2).all()


def test_structs_in_arrays():
    @cupar.jit
    def highest(peaks, out):
        best = 0
        for i in range(peaks.size):
            if peaks[i].height > peaks[best].height:
                best = i
        out[0] = peaks[best].index

    host = np.zeros(20, Peak.dtype)
    host["height"], host["index"] = np.arange(20) % 7, np.arange(20) * 10
    out = cp.zeros(1, "i8")
    highest[1, 1](cuda.to_device(host), out)
    assert out.get()[0] == 60


TABLE = np.arange(10, dtype="f4") ** 2


@cupar.jit(device=True)
def twice(a):
    return 2 * a


@cuda.jit(device=True)
def thrice(a):
    return 3 * a


def test_shared_local_constant_and_functions():
    @cupar.jit
    def reverse(x, out):
        here = cuda.shared.array(64, numba.float32)
        more = cuda.shared.array(0, numba.int32)
        own = cuda.local.array(2, np.float32)
        table = cuda.const.array_like(TABLE)
        i = cuda.threadIdx.x
        here[i] = x[i]
        more[i] = i
        own[0], own[1] = 1, 2
        cuda.syncthreads()
        out[i] = here[63 - i] + more[63 - i] + own[i % 2] + table[i % 10] + twice(thrice(x[i]))

    x = numbers(64)
    out = cp.zeros(64, "f4")
    reverse[1, 64, 0, 64 * 4](cp.asarray(x), out)
    i = np.arange(64)
    want = x[::-1] + (63 - i) + np.where(i % 2, 2, 1) + TABLE[i % 10] + 6 * x
    np.testing.assert_allclose(out.get(), want)


def test_much_dynamic_shared_memory():
    @cupar.jit
    def fill(out):
        here = cuda.shared.array(0, numba.int64)
        for i in range(20_000):
            here[i] = i
        out[0] = here[19_999]

    out = cp.zeros(1, "i8")
    fill[1, 1, None, 160_000](out)
    assert out.get()[0] == 19_999
    with pytest.raises(ValueError, match="^shared: .*232448|^shared: "):
        fill[1, 1, None, 1_000_000](out)


def test_atomics():
    @cupar.jit
    def count(x, counts, largest):
        i = cuda.grid(1)
        if i < x.size:
            cuda.atomic.add(counts, x[i], 1)
            cuda.atomic.max(largest, 0, x[i])

    x = np.random.default_rng(1).integers(0, 16, 100_000).astype("i4")
    counts, largest = cp.zeros(16, "i8"), cp.zeros(1, "i4")
    count.forall(x.size)(cp.asarray(x), counts, largest)
    np.testing.assert_array_equal(counts.get(), np.bincount(x, minlength=16))
    assert largest.get()[0] == x.max()


def test_forall_chooses_a_block_and_launches_nothing_for_nothing():
    out = cp.zeros(1000, "f4")
    x = cp.ones(1000, "f4")
    axpy.forall(0)(x, x, out, 1000, 1.0)
    assert not out.any()
    axpy.forall(1000)(x, x, out, 1000, 1.0)
    assert (out == 2).all()
    axpy.forall(1000, tpb=32)(x, x, out, 1000, 2.0)
    assert (out == 3).all()


def test_the_whole_grid_waits():
    @cupar.jit
    def rounds(x):
        grid = cuda.cg.this_grid()
        i = cuda.grid(1)
        for _ in range(10):
            left = x[i - 1] if i else 0
            grid.sync()
            x[i] += left
            grid.sync()

    x = cp.ones(1024, "i8")
    rounds[8, 128](x)
    want = np.ones(1024, "i8")
    for _ in range(10):
        want[1:] += want[:-1].copy()
    np.testing.assert_array_equal(x.get(), want)
    most = rounds.max_cooperative_grid_blocks(128)
    assert most >= 8
    with pytest.raises(ValueError, match="^grid: .*at once"):
        rounds[most + 1, 128](x)


def test_clusters_and_overlapping_launches():
    if cupar._device.driver.current_device().cc < 90:
        pytest.skip("needs compute capability 9.0")
    x, out = cp.asarray(numbers(1024)), cp.zeros(1024, "f4")
    axpy.configure(8, 128, cluster=4)(x, x, out, 1024, 1.0)
    cp.testing.assert_array_equal(out, 2 * x)
    axpy.configure(8, 128, overlaps=True)(x, x, out, 1024, 2.0)
    cp.testing.assert_array_equal(out, 3 * x)
    with pytest.raises(ValueError, match="^cluster: .*multiple"):
        axpy.configure(9, 128, cluster=4)


def test_captured_arrays():
    offsets = cp.arange(100, dtype="i8")

    @cupar.jit
    def shift(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] += offsets[i]

    x = cp.zeros(100, "i8")
    shift[1, 128](x)
    offsets += 1
    shift[1, 128](x)
    np.testing.assert_array_equal(x.get(), 2 * np.arange(100) + 1)


def test_signatures_convert():
    @cupar.jit("void(float64[:], int32)")
    def scale(x, n):
        i = cuda.grid(1)
        if i < x.size:
            x[i] *= n

    assert len(scale.overloads) == 1
    x = cp.arange(10, dtype="f8")
    scale[1, 32](x, 3)
    scale[1, 32](x[::2], np.int8(2))
    scale[1, 32](x, 2.0)
    want = np.arange(10.0) * 6
    want[::2] *= 2
    np.testing.assert_array_equal(x.get(), want)
    with pytest.raises(TypeError, match="none of its signatures takes"):
        scale[1, 32](x.astype("f4"), 3)
    with pytest.raises(TypeError, match="^n: expected int32"):
        scale[1, 32](x, 2**40)


# --- Code from elsewhere ------------------------------------------------------------------------------------


MUL = 'extern "C" __device__ float mul(float a, float b) { return a * b * 3; }'


class Said:
    """A function that says what is linked for it."""

    name, sig = "mul", "float32(float32, float32)"

    def __numba_cuda_link__(self, *types):
        return [cuda.CUSource(MUL)]


def external_functions():
    yield "declared", cuda.declare_device("mul", Said.sig, link=cuda.CUSource(MUL), abi="c"), {}
    yield "link", cuda.declare_device("mul", Said.sig, abi="c"), {"link": [cuda.CUSource(MUL)]}
    yield "said", Said(), {}
    yield "cpp", cupar.cpp(MUL, Said.sig), {}


@pytest.mark.parametrize("how", ["declared", "link", "said", "cpp"])
def test_code_from_elsewhere(how):
    (found,) = (each for each in external_functions() if each[0] == how)
    _, mul, options = found

    @cupar.jit(**options)
    def kernel(x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] = mul(x[i], np.float32(2)) + 1

    x, y = cp.asarray(numbers(1000)), cp.zeros(1000, "f4")
    for _ in range(2):
        kernel[8, 128](x, y)
        cp.testing.assert_array_equal(y, x * 6 + 1)


def test_cpp_takes_arrays_and_structs():
    source = """
    struct Peak { float height; long long index; bool valid; };
    __device__ Peak next(Peak p) { return {p.height + 1, p.index + 1, !p.valid}; }
    __device__ void add(float* items, const long long* n, double by) { items[*n] += by; }
    """
    step = cupar.cpp(source, (Peak, [Peak]), name="next")
    add = cupar.cpp(source, "void(float32[::1], int64[::1], float64)", name="add")

    @cupar.jit
    def kernel(x, n, by, peak):
        add(x, n, by)
        after = step(peak)
        x[0], x[1], x[2] = after.height, after.index, after.valid

    x, n = cp.zeros(10, "f4"), cp.asarray([3], "i8")
    kernel[1, 1](x, n, 2.5, Peak(1.5, 9, False))
    assert x.get().tolist() == [2.5, 10, 1, 2.5, 0, 0, 0, 0, 0, 0]


# --- Streams, graphs, bound launches --------------------------------------------------------------------


STREAMS = {
    "null": lambda: None,
    "cupy": lambda: cp.cuda.Stream(non_blocking=True),
    "handle": lambda: cp.cuda.Stream(non_blocking=True),
    "numba": cuda.stream,
    "per thread": lambda: 2,
    "torch": lambda: torch.cuda.Stream(),  # noqa: PLW0108 - torch may be None
}


@pytest.mark.parametrize(
    "kind", [pytest.param(each, marks=needs_torch if each == "torch" else ()) for each in STREAMS]
)
def test_streams(kind):
    made = STREAMS[kind]()
    wait = getattr(made, "synchronize", cp.cuda.Device().synchronize)
    stream = made.ptr if kind == "handle" else made
    x, out = cp.ones(1000, "f4"), cp.zeros(1000, "f4")
    cp.cuda.Device().synchronize()
    for alpha in (1.0, 1.0, 2.0):
        axpy[8, 128, stream](x, x, out, 1000, alpha)
    wait()
    assert (out == 3).all()


def test_order_on_a_stream():
    """What a launch is given is what was given to that launch, however long it waits."""

    @cupar.jit
    def append(out, value):
        out[int(out[0])] = value
        out[0] += 1

    stream = cp.cuda.Stream(non_blocking=True)
    out = cp.ones(200, "i8")
    append[1, 1, stream](out, 0)
    stream.synchronize()
    out[:] = 1
    cp.cuda.Device().synchronize()
    spin(stream, 0.05)
    for i in range(150):
        append[1, 1, stream](out, i)
    stream.synchronize()
    np.testing.assert_array_equal(out.get()[1:151], np.arange(150))


def test_launches_do_not_wait_for_a_busy_gpu():
    import time

    @cupar.jit
    def fresh(x):
        x[0] += 1

    x = cp.zeros(1, "f8")
    busy, own = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    fresh.compile(x)
    cp.cuda.Device().synchronize()
    spin(busy, 0.5)
    begin = time.perf_counter()
    fresh[1, 1, own](x)
    own.synchronize()
    assert time.perf_counter() - begin < 0.25
    busy.synchronize()


def test_bound_launches():
    x, y, out = (cp.asarray(numbers(1000, seed=seed)) for seed in range(3))
    bound = axpy.bind(8, 128, x, y, out, 1000, 2.0)
    for _ in range(3):
        out[:] = 0
        bound()
        np.testing.assert_allclose(out.get(), 2 * x.get() + y.get())
    bound.rebind(y, y, out, 500, 1.0)
    out[:] = 0
    bound()
    np.testing.assert_allclose(out.get()[:500], 2 * y.get()[:500])
    assert not out[500:].any()
    with pytest.raises(TypeError, match="bound for"):
        bound.rebind(x.astype("f8"), y, out, 500, 1.0)
    bound()
    bound.close()
    with pytest.raises(ValueError, match="closed"):
        bound()


def test_a_graph_of_kernels():
    x, y, out = (cp.asarray(numbers(1000, seed=seed)) for seed in range(3))
    total = cp.zeros(1, "f4")
    sum_into = cupar.reduce_into(out, total, cupar.OpKind.PLUS, np.zeros(1, "f4"))
    made = graph.Graph(
        graph.kernel(axpy, 8, 128, x, y, out, 1000, 2.0, name="axpy"),
        graph.call(sum_into, out, total, 1000, np.zeros(1, "f4")),
    )
    made.launch()
    cp.cuda.Device().synchronize()
    np.testing.assert_allclose(total.get()[0], (2 * x.get() + y.get()).sum())
    made.update(graph.kernel(axpy, 8, 128, x, y, out, 1000, 5.0, name="axpy"))
    made.launch()
    cp.cuda.Device().synchronize()
    np.testing.assert_allclose(total.get()[0], (5 * x.get() + y.get()).sum())
    made.close()


@pytest.mark.parametrize("is_loaded", [True, False])
def test_captured_streams(is_loaded):
    @cupar.jit
    def add_one(x):
        x[0] += 1

    x = cp.zeros(1, "i8")
    if is_loaded:
        add_one[1, 1](x)
        x[:] = 0
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        for _ in range(3):
            add_one[1, 1, stream](x)
        made = stream.end_capture()
    cp.cuda.Device().synchronize()
    assert x.get()[0] == 0
    for _ in range(2):
        made.launch(stream)
    stream.synchronize()
    assert x.get()[0] == 6


def test_many_threads():
    """Each thread's launches get its own arguments."""
    outs = [cp.zeros(256, "f4") for _ in range(8)]
    x = cp.ones(256, "f4")
    errors = []

    def work(number):
        try:
            stream = cp.cuda.Stream(non_blocking=True) if number % 2 else None
            for i in range(300):
                axpy[2, 128, stream](x, x, outs[number], 256, float(number * 1000 + i))
            (stream or cp.cuda.Stream.null).synchronize()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for number, out in enumerate(outs):
        assert (out.get() == number * 1000 + 300).all()


# --- Errors, and what is known --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "launch, error, message",
    [
        (lambda x: axpy[0, 1](x, x, x, 1, 1.0), ValueError, "^grid: expected 1"),
        (lambda x: axpy[1, 0](x, x, x, 1, 1.0), ValueError, "^block: expected 1"),
        (lambda x: axpy[1, 2048](x, x, x, 1, 1.0), ValueError, "^block: expected 1 to 1024"),
        (lambda x: axpy[1, (32, 64)](x, x, x, 1, 1.0), ValueError, "^block: has 2048 threads"),
        (lambda x: axpy[(1, 70_000), 1](x, x, x, 1, 1.0), ValueError, "^grid: expected 1 to 65535 in y"),
        (lambda x: axpy[1, 1](x, x, x), TypeError, "axpy"),
        (lambda x: axpy[1, 1](x.get(), x, x, 1, 1.0), TypeError, "^x: expected a device array, got a NumPy"),
        (lambda x: axpy[1, 1](x, x, None, 1, 1.0), TypeError, "^out: expected a device array"),
        (lambda x: axpy[1, 1](x, x, "x", 1, 1.0), TypeError, "^out: expected a device array"),
        (lambda x: axpy[1, 1](x, x, x, 2**70, 1.0), ValueError, "^n: expected an integer of 64 bits"),
        (lambda x: axpy[1, 1, "s"](x, x, x, 1, 1.0), TypeError, "^stream: expected"),
        (lambda x: axpy(x, x, x, 1, 1.0), TypeError, "is a kernel: launch it as"),
        (lambda x: axpy[1, 1](x, x, "x", 1, 1.0), TypeError, "^out: expected"),
    ],
)
def test_errors(launch, error, message):
    x = cp.ones(4, "f4")
    with pytest.raises(error, match=message):
        launch(x)
    with pytest.raises(error, match=message):
        launch(x)
    check_axpy(x, x, cp.zeros(4, "f4"))


def test_too_many_threads_for_the_registers():
    @cupar.jit(launch_bounds=256)
    def bounded(x):
        x[0] = 1

    x = cp.zeros(1)
    bounded[1, 256](x)
    with pytest.raises(ValueError, match="^block: has 512 threads, and kernel bounded can have 256"):
        bounded[1, 512](x)


def test_what_is_known_of_a_kernel():
    @cupar.jit
    def known(x):
        here = cuda.shared.array(100, numba.float64)  # all of which is used, or less of it would be left
        i = cuda.threadIdx.x
        here[i] = x[i]
        cuda.syncthreads()
        x[i] = here[99 - i]

    x = cp.arange(100, dtype="f8")
    known[1, 100](x)
    np.testing.assert_array_equal(x.get(), np.arange(100)[::-1])
    found = known.attributes
    assert found["shared_mem_per_block"] == 800
    assert 0 < found["regs_per_thread"] < 256
    assert found["max_threads_per_block"] == 1024
    only = known.specialize(x)
    assert only.specialized
    only[1, 1](x)
    with pytest.raises(TypeError, match="none of its signatures"):
        only[1, 1](x.astype("f4"))


def test_globals_are_those_of_when_it_is_compiled():
    namespace = {"cuda": cuda, "VALUE": 1}
    exec("def store(x):\n    x[0] = VALUE\n", namespace)
    kernel = cupar.jit(namespace["store"])
    x = cp.zeros(1)
    kernel[1, 1](x)
    namespace["VALUE"] = 2
    kernel[1, 1](x)
    assert x.get()[0] == 1
    kernel.recompile()
    kernel[1, 1](x)
    assert x.get()[0] == 2
