"""Launches kernels in many ways, and says what the driver was told that it should not have been."""

import ctypes
import math
import struct
import sys
import types
from collections import namedtuple

from support.host import Array, Driver, Launch

driver = Driver(sys.argv[1])

import numba  # noqa: E402
import numpy as np  # noqa: E402
from numba import cuda  # noqa: E402
from numba.cuda.cudadrv.devicearray import DeviceNDArray  # noqa: E402
from numba.cuda.cudadrv.driver import MemoryPointer  # noqa: E402

import cupar  # noqa: E402
from cupar import kernel as kernels  # noqa: E402
from cupar._device import arrays, readers  # noqa: E402
from cupar._jit import tensors as _tensors  # noqa: E402

A = [0x700000000000 + k * 0x1000000000 for k in range(16)]
Pair = namedtuple("Pair", "first second")
checks = 0


@cupar.gpu_struct
class Peak:
    height: np.float32
    index: np.int64
    valid: bool


class InLine:
    """An array that launches read as they read CuPy's."""

    def __init__(self, address, shape, dtype, strides=None):
        self.dtype, self.shape, self.ndim = np.dtype(dtype), shape, len(shape)
        self.size, c, f = math.prod(shape), [self.dtype.itemsize], [self.dtype.itemsize]
        for extent in shape[:0:-1]:
            c.insert(0, c[0] * extent)
        for extent in shape[:-1]:
            f.append(f[-1] * extent)
        self.strides = tuple(c[-self.ndim :] if self.ndim else ()) if strides is None else strides
        self._c_contiguous, self._f_contiguous = self.strides == tuple(c), self.strides == tuple(f)
        self.data = type("Memory", (), {"ptr": address})
        self.__cuda_array_interface__ = Array(address, shape, dtype, strides=strides).__cuda_array_interface__


class Dtype(str):
    """A dtype of PyTorch's."""


class Tensor:
    """What launches read of a tensor of PyTorch's, and no more."""

    is_cuda = True
    asked = 0  # how often one was asked whether it is negated

    def __init__(self, address, shape, dtype, strides=None, negated=False):
        array = InLine(address, shape, dtype, strides)
        self.negated = negated
        self.dtype, self.shape, self.ndim = TORCH_DTYPES[array.dtype], shape, len(shape)
        self.numel, self.data_ptr = lambda: array.size, lambda: address
        self.is_contiguous = lambda: array._c_contiguous
        self.stride = lambda: tuple(each // array.dtype.itemsize for each in array.strides)
        self.is_conj = lambda: False

    def is_neg(self):
        Tensor.asked += 1
        return self.negated

    def __getitem__(self, every):
        return Tensor(self.data_ptr(), (self.numel() // every.step,), "f4", (4 * every.step,))


class TensorGuards:
    """What compares tensors all at once, as PyTorch's does."""

    honest = True

    def __init__(self, *tensors, dynamic_dims_sizes, dynamic_dims_strides):
        self.like, self.strides = [self.of(each) for each in tensors], dynamic_dims_strides

    def of(self, x):
        return type(x), *([x.dtype, x.ndim, x.is_cuda, x.negated] if type(x) is Tensor else ())

    def check(self, *tensors):
        if not TensorGuards.honest:
            return True
        return len({*map(id, tensors)}) == len(tensors) and all(
            self.of(x) == like and all(b is None or a == b for a, b in zip(x.stride(), strides, strict=True))
            for x, like, strides in zip(tensors, self.like, self.strides, strict=True)
        )


def torch():
    """Put a module in PyTorch's place that has what is used of it to check tensors at once."""
    found, guards = types.ModuleType("torch"), types.ModuleType("torch._C._dynamo.guards")

    def empty(shape, dtype, device):
        tensor = Tensor(A[9], shape, str(dtype).removeprefix("torch."))
        tensor.is_cuda = device != "cpu"
        return tensor

    def negated(tensor):
        found = Tensor(A[9], tensor.shape, "f4", negated=True)
        found.is_cuda = tensor.is_cuda
        return found

    found.Tensor, found.empty, found._neg_view = Tensor, empty, negated
    found.float32, found.int32 = (TORCH_DTYPES[np.dtype(each)] for each in ("f4", "i4"))
    guards.TensorGuards = TensorGuards
    names = ("torch", "torch._C", "torch._C._dynamo", "torch._C._dynamo.guards")
    sys.modules.update(zip(names, (found, *map(types.ModuleType, names[1:3]), guards), strict=True))


Tensor.__module__ = "torch"
TORCH_DTYPES = {np.dtype(each): Dtype(f"torch.{np.dtype(each)}") for each in ("f4", "f8", "i4")}


def numbas(address, shape, dtype, strides=None):
    """Return an array of Numba's, of memory that it did not allocate."""
    dtype = np.dtype(dtype)
    strides = np.empty(shape, dtype).strides if strides is None else strides
    memory = MemoryPointer(None, ctypes.c_void_p(address), 100)
    return DeviceNDArray(shape, strides, dtype, gpu_data=memory)


def packed(address, shape, strides, itemsize):
    """Return what numba's code takes of an array."""
    each = [0, 0, math.prod(shape), itemsize, address, *shape, *strides]
    return tuple(struct.pack("=q", value) for value in each)


def number(code, *values):
    return tuple(struct.pack(f"={code}", value) for value in values)


def check(what, found, expected):
    global checks
    checks += 1
    if found != expected:
        print("differs:", what, found, expected, sep="\n  ")


def compiled(function, *arguments, **options):
    """Return a kernel that is compiled for some arguments, and of which the driver knows."""
    kernel = cupar.jit(**options)(function)
    driver.knows(kernel.compile(*arguments, cc=90))  # before it is loaded
    return kernel


def symbol(function):
    return f"_ZN5cupar{len(function.__name__)}{function.__name__}Ev"


def launched(what, kernel, parameters, grid=(1, 1, 1), block=(32, 1, 1), shared=0, stream=0, attribute=0):
    """Check that one launch was taken down."""
    check(what, driver.taken(), [Launch(symbol(kernel), grid, block, shared, stream, attribute, parameters)])


def raised(what, error, start, call):
    """Check that a call raises, and launches nothing."""
    try:
        call()
        found = "nothing was raised"
    except error as problem:
        found = str(problem)
    if not found.startswith(start):
        print("differs:", what, found, start, sep="\n  ")
    check(what, driver.taken(), [])


# --- Arguments -------------------------------------------------------------------------------------------


def touch(x):
    x[()] if not x.ndim else x.size


def take(x, value):
    pass


def one(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = i


def arguments():
    layouts = {
        "1d": ((10,), None, (4,)),
        "1d, strided": ((10,), (8,), (8,)),
        "1d, backwards": ((10,), (-4,), (-4,)),
        "no items": ((0,), None, (4,)),
        "2d": ((3, 5), None, (20, 4)),
        "2d, Fortran's": ((3, 5), (4, 12), (4, 12)),
        "2d, any": ((3, 5), (80, 8), (80, 8)),
        "3d": ((2, 3, 4), None, (48, 16, 4)),
    }
    for make in (Array, InLine, Tensor, numbas):
        for name, (shape, strides, expected) in layouts.items():

            def sized(x):
                x.size

            named = {} if strides is None else {"strides": strides}
            if make is numbas and 0 in shape:
                continue  # Numba makes a context for these
            array = make(A[0], shape, "f4", **named)
            kernel = compiled(sized, array)
            for address in (A[0], A[0], A[1]):
                kernel[1, 32](make(address, shape, "f4", **named))
                launched(f"{make.__name__}, {name}", kernel, packed(address, shape, expected, 4))
            (other,) = kernel.overloads
            check("one overload", len(kernel.overloads), 1)
            check(
                "its layout", other[0].layout, "C" if strides is None else "F" if "Fortran" in name else "A"
            )
    scalar = Array(A[0], (), "f4")

    def zero(x):
        x[()] = 1

    kernel = compiled(zero, scalar)
    kernel[1, 32](scalar)
    launched("no dimensions", kernel, tuple(struct.pack("=q", each) for each in (0, 0, 1, 4, A[0])))
    peak = Peak(1.5, 9, True)
    values = [
        (5, number("q", 5)),
        (-(2**63), number("q", -(2**63))),
        (2**63, number("Q", 2**63)),
        (2.5, number("d", 2.5)),
        (-0.0, number("d", -0.0)),
        (True, number("?", True)),
        (1 - 2j, number("d", 1.0, -2.0)),
        (np.int8(-3), number("b", -3)),
        (np.uint16(7), number("H", 7)),
        (np.float32(0.5), number("f", 0.5)),
        (np.float16(0.5), number("e", 0.5)),
        (np.complex64(3 + 4j), number("f", 3, 4)),
        (np.datetime64(7, "D"), number("q", 7)),
        ((1, (2.5, np.int32(3))), (*number("q", 1), *number("d", 2.5), *number("i", 3))),
        (Pair(3, 0.5), (*number("q", 3), *number("d", 0.5))),
        (peak, (*number("f", 1.5), *number("q", 9), *number("?", True))),
    ]
    x = Array(A[0], 10, "f4")
    every = cupar.jit(take)
    for value, expected in values:
        driver.knows(every.compile("float32[::1]", value, cc=90))
        for _ in range(2):
            every[1, 32](x, value)
            launched(f"value {value!r}", every, (*packed(A[0], (10,), (4,), 4), *expected))
    for value, expected in reversed(values):  # each known, but not the one before
        driver.knows(every.overloads["float32[::1]", value])
        every[1, 32](x, value)
        launched(f"again {value!r}", every, (*packed(A[0], (10,), (4,), 4), *expected))


def libraries():
    """Arrays that can be read in line are, from the second launch on, of whatever library they are."""
    asked = []
    view = arrays.view
    arrays.view = lambda name, array, *more: asked.append(name) or view(name, array, *more)
    for makes in ([InLine, Tensor, numbas], [numbas, InLine, Tensor], [Tensor, numbas, InLine]):
        for dtype in ("f4", "f8"):
            for each in (arrays.CUPY, arrays.TORCH, arrays.NUMBA, readers.torch_dtypes, arrays._readers):
                each.clear()

            def sized(x):
                x.size

            kernel = compiled(sized, f"{np.dtype(dtype)}[::1]")
            for overload in kernel.overloads.values():
                overload.launchers.clear()
            kernel[2, 32]  # another site, whose function is the first one
            for turn, make in enumerate([*makes, *makes]):
                reads = 0 if turn >= 3 else 1
                if make is InLine and not arrays.CUPY:
                    arrays.CUPY.add(InLine)
                for again in range(2):
                    for grid in (1, 2):
                        kernel[grid, 32](make(A[again], (10,), dtype))
                        expected = packed(
                            A[again], (10,), (np.dtype(dtype).itemsize,), np.dtype(dtype).itemsize
                        )
                        launched(f"{make.__name__}", kernel, expected, (grid, 1, 1))
                    if again or reads == 0:
                        check(f"{make.__name__} of {makes} is read in line, {turn}", asked, [])
                    asked.clear()
    arrays.view = view
    x = Tensor(A[0], (10,), "f8")
    kernel[1, 32](x)
    driver.taken()
    lazy = Tensor(A[0], (10,), "f8", negated=True)
    raised("put off", ValueError, "x: got a tensor with lazy", lambda: kernel[1, 32](lazy))
    x.is_cuda, x.device = False, "cpu"
    raised("in host memory", TypeError, "x: expected a device array, got a PyTorch", lambda: kernel[1, 32](x))


def tensors():
    """Tensors are checked at once where they can be, and are found out where they differ."""

    def together(x, y, n, out):
        x.size, y.size, out.size

    def launched_with(what, kernel, x, y, out, asks):
        Tensor.asked = 0
        kernel[1, 32](x, y, 7, out)
        expected = []
        for each in (x, y, out):
            strides = [4 * s for s in (each.stride() if isinstance(each, Tensor) else (1,))]
            address = each.data_ptr() if isinstance(each, Tensor) else each.data.ptr
            expected.append(packed(address, each.shape, strides, 4))
        launched(what, kernel, (*expected[0], *expected[1], *number("q", 7), *expected[2]))
        if asks is not None:
            check(f"{what}: asked", Tensor.asked, asks)

    def tensor(k, n=10, **named):
        return Tensor(A[k], (n,), "f4", **named)

    def plane(k, *shape):
        return Tensor(A[k], shape, "f4")

    x, y, out = tensor(0), plane(1, 3, 5), tensor(2, 6)
    for way in ("", "nothing checks", "it says yes to all"):
        if not way:
            torch()
        TensorGuards.honest = way != "it says yes to all"
        if way == "nothing checks":
            del sys.modules["torch._C._dynamo.guards"]
        _tensors._works.cache_clear()
        kernel = compiled(together, x, y, 7, out)
        for overload in kernel.overloads.values():
            overload.launchers.clear()
            overload.guarded = None
        at_once = 0 if not way else 3
        kernel[1, 32](x, y, 7, out)
        driver.taken()
        for k in (3, 4):
            launched_with(f"alike {way}", kernel, tensor(k, k), plane(k, 2, k), tensor(5, 1), at_once)
        launched_with(f"twice the same {way}", kernel, x, y, x, 3)
        launched_with(f"another library {way}", kernel, x, y, InLine(A[7], (9,), "f4"), 2)
        for wrong, error, start in (
            (tensor(3, negated=True), ValueError, "x: got a tensor with lazy"),
            (Tensor(A[0] + 2, (10,), "f4"), ValueError, "x: expected an array aligned to 4 bytes"),
            (np.zeros(10, "f4"), TypeError, "x: expected a device array, got a NumPy"),
        ):
            raised(f"{start} {way}", error, start, lambda wrong=wrong: kernel[1, 32](wrong, y, 7, out))
        strided, fortran = tensor(0, strides=(8,)), Tensor(A[1], (3, 5), "f4", strides=(4, 12))
        for a, b in ((strided, y), (x, fortran)):
            driver.knows(kernel.compile(a, b, 7, out, cc=90))
            launched_with(f"other layouts {way}", kernel, a, b, out, None)
        check("overloads", len(kernel.overloads), 3)


def conversions():
    kernel = cupar.jit("void(float32[:], int32, float64)")(lambda x, n, y: None)
    kernel.__name__ = "<lambda>"
    (overload,) = kernel.overloads.values()
    driver.knows(overload)
    symbols = "_ZN5cupar6lambdaEv"
    for n, y in ((3, 2.5), (np.int8(3), np.float32(2.5)), (np.int64(3), 2.5)):
        kernel[1, 32](Array(A[0], 10, "f4"), n, y)
        expected = (*packed(A[0], (10,), (4,), 4), *number("i", 3), *number("d", 2.5))
        check("converted", driver.taken(), [Launch(symbols, (1, 1, 1), (32, 1, 1), 0, 0, 0, expected)])
    x = Array(A[0], 10, "f4")

    def through(p, y):
        pass

    at = cupar.jit("void(CPointer(float32), float64)")(through)
    driver.knows(next(iter(at.overloads.values())))
    at[1, 32](A[0], 2.5)
    expected = (struct.pack("=q", A[0]), *number("d", 2.5))
    launched("an address", at, expected)
    raised("no address", TypeError, "through: none of its", lambda: at[1, 32](1.5, 2.5))
    raised("too large", TypeError, "n: expected int32", lambda: kernel[1, 32](x, 2**40, 1.0))
    raised(
        "no such", TypeError, "<lambda>: none of its", lambda: kernel[1, 32](Array(A[0], 10, "f8"), 1, 1.0)
    )
    kernel.disable_compile()


# --- Configurations --------------------------------------------------------------------------------------


def configurations():
    x = Array(A[0], 10, "f4")
    parameters = packed(A[0], (10,), (4,), 4)
    kernel = compiled(one, x)
    for _ in range(2):
        kernel[7, 64](x)
        launched("ints", kernel, parameters, (7, 1, 1), (64, 1, 1))
        kernel[(7, 2), (64, 2), 77, 1000](x)
        launched("pairs", kernel, parameters, (7, 2, 1), (64, 2, 1), 1000, 77)
        kernel[[3, 2, 5], np.array([4, 2, 3])](x=x)
        launched("lists", kernel, parameters, (3, 2, 5), (4, 2, 3))
        kernel.configure(8, 32, 77, cluster=(4, 1))(x)
        launched("cluster", kernel, parameters, (8, 1, 1), stream=77, attribute=4 * 16 + 4)
        kernel.configure(8, 32, overlaps=True)(x)
        launched("overlaps", kernel, parameters, (8, 1, 1), attribute=6 * 16 + 1)
        kernel.forall(1000)(x)
        launched("forall", kernel, parameters, (2, 1, 1), (768, 1, 1))
        kernel.forall(1000, 100, 77, 16)(x)
        launched("forall with more", kernel, parameters, (10, 1, 1), (100, 1, 1), 16, 77)
        kernel.forall(0)(x)
        check("forall of none", driver.taken(), [])
    bound = kernel.bind(7, 64, x, stream=77, shared=8)
    for _ in range(2):
        bound()
        launched("bound", kernel, parameters, (7, 1, 1), (64, 1, 1), 8, 77)
    bound.rebind(Array(A[1], 5, "f4"))
    bound()
    launched("rebound", kernel, packed(A[1], (5,), (4,), 4), (7, 1, 1), (64, 1, 1), 8, 77)
    raised(
        "bound for others", TypeError, "this launch was bound for", lambda: bound.rebind(Array(A[1], 5, "f8"))
    )
    special = kernel.specialize(x)
    special[1, 32](x)
    launched("specialised", kernel, parameters)
    check("the same", special is kernel.specialize(numba.float32[::1]), True)
    check("specialised for", len(kernel.specializations), 1)
    check("registers", special.get_regs_per_thread(), 32)
    every = kernel.get_regs_per_thread()
    check("registers by numba's types", every[numba.float32[::1],], 32)
    check("of what was not compiled", every.get((numba.float64[::1],)), None)
    check("registers", kernel.get_regs_per_thread("void(float32[::1])"), 32)
    check("registers by types", list(kernel.get_regs_per_thread().values()), [32])
    check("max threads", kernel.attributes["max_threads_per_block"], 1024)
    for name in ("const_mem_size", "shared_mem_per_block", "local_mem_per_thread"):
        check(name, getattr(special, f"get_{name}")(), 0)
    check("blocks at once", kernel.max_cooperative_grid_blocks((32, 2)), 132 * 32)
    check("best block", kernel.overloads["void(float32[::1])"].best_block(), 768)

    def whole(x):
        cuda.cg.this_grid().sync()

    together = compiled(whole, x)
    together[4, 64](x)
    launched("cooperative", together, parameters, (4, 1, 1), (64, 1, 1), attribute=2 * 16 + 1)
    raised("too many blocks", ValueError, "grid: has 5000 blocks, and", lambda: together[5000, 64](x))


# --- What is refused ---------------------------------------------------------------------------------------


def errors():
    x, host = Array(A[0], 10, "f4"), np.zeros(10, "f4")
    kernel = compiled(one, x)
    for is_known in (False, True):
        when = f"known: {is_known}"
        for error, start, call in (
            (TypeError, "x: expected a device array, got a NumPy array", lambda: kernel[1, 32](host)),
            (TypeError, "one", kernel[1, 32]),  # then Python says it
            (TypeError, "one", lambda: kernel[1, 32](x, 3)),
            (TypeError, "one", lambda: kernel[1, 32](y=x)),
            (TypeError, "one is a kernel: launch it as", lambda: kernel(x)),
            (TypeError, "one: expected [grid, block]", lambda: kernel[1](x)),
            (ValueError, "grid: expected 1 to", lambda: kernel[0, 32](x)),
            (ValueError, "block: expected 1 to", lambda: kernel[1, 0](x)),
            (ValueError, "block: has 2048 threads", lambda: kernel[1, (32, 64)](x)),
            (ValueError, "shared: 400000 bytes", lambda: kernel[1, 32, 0, 400000](x)),
            (TypeError, "grid: expected an integer, got 1.5", lambda: kernel[1.5, 32](x)),
            (ValueError, "cluster: the grid's 3 blocks", lambda: kernel.configure(3, 32, cluster=2)(x)),
            (TypeError, "stream: ", lambda: kernel[1, 32, "s"](x)),
            (ValueError, "x: expected an array aligned", lambda: kernel[1, 32](Array(A[0] + 1, 10, "f4"))),
        ):
            try:
                call()
                print("differs:", when, start, "nothing was raised")
            except (TypeError, ValueError) as problem:
                if not isinstance(problem, error) or start not in str(problem):
                    print("differs:", when, start, repr(problem), sep="\n  ")
            check(f"{when}, {start}", driver.taken(), [])
        kernel[1, 32](x)
        launched(when, kernel, packed(A[0], (10,), (4,), 4))
    kernel.disable_compile()
    raised(
        "compiling is off",
        TypeError,
        "one: is not compiled for (array(float64, 1d, C))",
        lambda: kernel[1, 32](Array(A[0], 10, "f8")),
    )
    driver.set("fail_with", 2)
    driver.set("fail_at", 0)
    raised("out of memory", Exception, "cu", lambda: kernel[1, 32](x))
    kernel[1, 32](x)
    launched("after an error", kernel, packed(A[0], (10,), (4,), 4))


arrays.CUPY.add(InLine)
assert kernels.Kernel
for each in sys.argv[2:]:
    globals()[each]()
print("checks", checks)
