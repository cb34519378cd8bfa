"""Operators that call code from elsewhere, against NumPy."""

import cupy as cp
import numpy as np
import pytest
from numba import cuda as numba_cuda

import cupar
from cupar._compile import nvrtc
from cupar._device import driver
from cupar._external.sources import library_folder

CODES = "?bBhHiIqQefdFD"
C_TYPES = dict(
    zip(
        CODES,
        [
            *("bool", "signed char", "unsigned char", "short", "unsigned short", "int", "unsigned", "long"),
            *("unsigned long long", "__half", "float", "double", "float2", "cuda::std::complex<double>"),
        ],
        strict=True,
    )
)
HEADERS = "#include <cuda_fp16.h>\n#include <cuda/std/complex>\n"
N = 100_003


def mul(factor=1):
    return f'extern "C" __device__ float mul(float a, float b) {{ return a * b * {factor}; }}'


def numbers(rng, dtype, n=N):
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(n) < 0.5
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        return rng.integers(bounds.min, bounds.max, n, dtype, endpoint=True)
    if dtype.kind == "c":
        return (rng.standard_normal(n) + 1j * rng.standard_normal(n)).astype(dtype)
    return rng.standard_normal(n).astype(dtype)


def applied(op, result, *arrays, **named):
    """Return what a transform of some arrays gives."""
    out = cp.zeros(len(arrays[0]), result)
    given = [cp.asarray(array) for array in arrays]
    factory = {1: cupar.unary_transform, 2: cupar.binary_transform}[len(arrays)]
    factory(*given, out, op, **named).run(*given, out, len(out))
    return out.get()


@pytest.fixture
def floats(rng):
    return numbers(rng, "f4"), numbers(rng, "f4")


def finished(kind):
    """Return a function for this GPU as NVRTC makes it, beside LTO-IR."""
    from cuda.bindings import nvrtc as bindings

    _, program = bindings.nvrtcCreateProgram(mul(3).encode(), b"code.cu", 0, [], [])
    options = [f"-arch=sm_{driver.current_device().cc}".encode(), b"-rdc=true"]
    assert bindings.nvrtcCompileProgram(program, len(options), options)[0] == 0
    _, size = getattr(bindings, f"nvrtcGet{kind}Size")(program)
    code = b" " * size
    getattr(bindings, f"nvrtcGet{kind}")(program, code)
    return code


def code(kind):
    if kind == "LTOIR":
        return numba_cuda.LTOIR(nvrtc.compile_cpp(mul(3), driver.current_device().cc))
    if kind == "CUSource":
        return numba_cuda.CUSource(mul(3))
    nvrtc.supported()  # which loads it
    return {"PTX": numba_cuda.PTXSource, "CUBIN": numba_cuda.Cubin}[kind](finished(kind))


@pytest.mark.parametrize("kind", ["LTOIR", "CUSource", "PTX", "CUBIN"])
@pytest.mark.parametrize("how", ["declared", "said", "link"])
def test_code_of_all_kinds(kind, how, floats):
    a, b = floats
    function = numba_cuda.declare_device(
        "mul", "float32(float32, float32)", link=code(kind) if how == "declared" else None, abi="c"
    )
    if how == "said":
        function.__numba_cuda_link__ = code(kind)
    named = {"link": code(kind)} if how == "link" else {}
    got = applied(lambda a, b: function(a, b) + 1, "f4", a, b, **named)
    np.testing.assert_allclose(got, a * b * np.float32(3) + 1, rtol=1e-6, atol=1e-6)


def test_numbas_own_way_of_calling(floats):
    a, b = floats
    source = 'extern "C" __device__ int sub(float* out, float a, float b) { *out = a - b; return 0; }'
    sub = numba_cuda.declare_device("sub", "float32(float32, float32)", link=numba_cuda.CUSource(source))
    np.testing.assert_array_equal(applied(sub, "f4", a, b), a - b)


@pytest.mark.parametrize("dtype", CODES)
def test_values_of_all_types(dtype, rng):
    kind = C_TYPES[dtype]
    second = cupar.cpp(
        f"{HEADERS}__device__ {kind} f({kind} a, const {kind}& b) {{ return b; }}", (dtype, [dtype] * 2)
    )
    a, b = numbers(rng, dtype), numbers(rng, dtype)
    np.testing.assert_array_equal(applied(second, dtype, a, b), b)
    np.testing.assert_array_equal(applied(lambda a, b: second(b, a), dtype, a, b), a)


def test_complex_numbers_and_structs(rng):
    inner = {"x": "f8", "y": "f2"}
    pair = cupar.gpu_struct({"a": "i1", "b": inner, "c": "c8", "d": "?", "e": "u8"}, "Pair")
    change = cupar.cpp(
        f"""{HEADERS}
        struct Inner {{ double x; __half y; }};
        struct Pair {{ signed char a; Inner b; float2 c; bool d; unsigned long long e; }};
        __device__ Pair change(const Pair& p, short step) {{
          return {{(signed char)(p.a + step), {{-p.b.x, p.b.y}}, {{p.c.y, p.c.x}}, !p.d, p.e + 1}};
        }}""",
        (pair, [pair, "i2"]),
    )
    host = np.zeros(N, pair.dtype)
    host["a"], host["d"], host["e"] = numbers(rng, "i1"), numbers(rng, "?"), numbers(rng, "u8")
    host["b"]["x"], host["b"]["y"], host["c"] = numbers(rng, "f8"), numbers(rng, "f2"), numbers(rng, "c8")

    class Items:
        def __init__(self, host):
            self.bytes = cp.asarray(host.view(np.uint8))
            self.__cuda_array_interface__ = {
                **self.bytes.__cuda_array_interface__, "shape": (len(host),), "strides": None,
                "typestr": f"|V{host.dtype.itemsize}", "descr": host.dtype.descr,
            }  # fmt: skip

    source, out = Items(host), Items(np.zeros(N, pair.dtype))
    op = lambda p: change(p, np.int16(3))
    cupar.unary_transform(pair, pair, op).run(source, out, N)
    got = out.bytes.get().view(pair.dtype)
    np.testing.assert_array_equal(got["a"], host["a"] + np.int8(3))
    np.testing.assert_array_equal(got["b"]["x"], -host["b"]["x"])
    np.testing.assert_array_equal(got["b"]["y"], host["b"]["y"])
    np.testing.assert_array_equal(got["c"], host["c"].imag + 1j * host["c"].real)
    np.testing.assert_array_equal(got["d"], ~host["d"])
    np.testing.assert_array_equal(got["e"], host["e"] + np.uint64(1))


def test_complex_products_in_a_reduction(rng):
    product = cupar.cpp(
        "#include <cuda/std/complex>\nusing C = cuda::std::complex<double>;\n"
        "__device__ C product(C a, C b) { return a * b; }",
        (np.complex128, [np.complex128] * 2),
    )
    host = np.exp(1j * numbers(rng, "f8", 1000))
    d_in, d_out = cp.asarray(host), cp.zeros(1, np.complex128)
    h_init = np.ones(1, np.complex128)
    cupar.reduce_into(d_in, d_out, product, h_init).run(d_in, d_out, len(d_in), h_init)
    np.testing.assert_allclose(d_out.get()[0], np.prod(host), rtol=1e-10)


def test_equal_names_in_two_sources(floats):
    source = (
        "__device__ float helper() {{ return {n}; }}\n__device__ float f(float x) {{ return x * helper(); }}"
    )
    two, three = (cupar.cpp(source.format(n=n), "float32(float32)", name="f") for n in (2, 3))
    a, _ = floats
    np.testing.assert_allclose(applied(lambda x: two(x) - three(x), "f4", a), -a, rtol=1e-6)


def test_arrays_and_captured_arrays(rng):
    table = cp.asarray(numbers(rng, "f4", 256))
    lookup = cupar.cpp(
        "__device__ float lookup(const float* table, unsigned char i) { return table[i]; }",
        "float32(float32[::1], uint8)",
    )
    split = cupar.cpp(
        "__device__ void split(unsigned long long x, unsigned* two) { two[0] = x; two[1] = x >> 32; }",
        "void(uint64, uint32[::1])",
    )

    def op(x):
        halves = numba_cuda.local.array(2, np.uint32)
        split(x, halves)
        return lookup(table, np.uint8(halves[0] ^ halves[1]))

    x = numbers(rng, "u8")
    expected = table.get()[((x ^ (x >> np.uint64(32))) & np.uint64(255)).astype(int)]
    np.testing.assert_array_equal(applied(op, "f4", x), expected)


def test_philox_of_cccl():
    """The standard says which number the 10,000th is."""
    draw = cupar.cpp(
        """
        #include <cuda/std/__random/philox_engine.h>
        __device__ unsigned draw(unsigned long long i) {
          cuda::std::philox4x32 engine;
          engine.discard(i);
          return engine();
        }
        """,
        "uint32(uint64)",
    )
    out = cp.zeros(10_000, np.uint32)
    indices = cupar.CountingIterator(np.uint64(0))
    cupar.unary_transform(indices, out, draw).run(indices, out, len(out))
    drawn = out.get()
    assert drawn[9_999] == 1955073260
    assert len(np.unique(drawn)) > 9_990


@pytest.mark.skipif(library_folder("curand") is None, reason="cuRAND's headers are not installed")
def test_curands_philox():
    draw = cupar.cpp(
        """
        #include <curand_kernel.h>
        __device__ float draw(unsigned long long seed, unsigned long long i) {
          curandStatePhilox4_32_10_t state;
          curand_init(seed, i, 0, &state);
          return curand_normal(&state);
        }
        """,
        "float32(uint64, uint64)",
    )
    drawn = []
    for seed in (7, 7, 8):
        out, indices = cp.zeros(N, np.float32), cupar.CountingIterator(np.uint64(0))
        op = lambda i, seed=np.uint64(seed): draw(seed, i)
        cupar.unary_transform(indices, out, op).run(indices, out, N)
        drawn.append(out.get())
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert np.mean(drawn[0] == drawn[2]) < 0.001
    for each in drawn:  # five standard deviations
        assert abs(each.mean()) < 5 / N**0.5
        assert abs(each.var() - 1) < 5 * (2 / N) ** 0.5


def test_a_function_in_python_says_what_is_linked(floats):
    a, b = floats
    function = numba_cuda.declare_device("mul", "float32(float32, float32)", abi="c")

    def op(a, b):
        return function(a, b)

    for factor in (1, 2):
        op.__numba_cuda_link__ = numba_cuda.CUSource(mul(factor))
        np.testing.assert_array_equal(applied(op, "f4", a, b), a * b * factor)


def test_in_other_algorithms(rng):
    host = numbers(rng, "i4")
    d_in, d_out, d_count = cp.asarray(host), cp.zeros(N, np.int32), cp.zeros(1, np.int64)
    larger = cupar.cpp("__device__ int larger(int a, int b) { return a > b ? a : b; }", "int32(int32, int32)")
    cupar.inclusive_scan(d_in, d_out, larger).run(d_in, d_out, N)
    np.testing.assert_array_equal(d_out.get(), np.maximum.accumulate(host))
    before = cupar.cpp("__device__ bool before(int a, int b) { return a > b; }", "bool(int32, int32)")
    cupar.merge_sort(d_in, None, d_out, None, before).run(d_in, None, d_out, None, N)
    np.testing.assert_array_equal(d_out.get(), np.sort(host)[::-1])
    odd = cupar.cpp("__device__ bool odd(int a) { return a & 1; }", "bool(int32)")
    cupar.select(d_in, d_out, d_count, odd).run(d_in, d_out, d_count, N)
    np.testing.assert_array_equal(d_out.get()[: int(d_count[0])], host[host & 1 == 1])
    ends = cp.asarray([0, 10, 1000, N], dtype=np.int64)
    sums, h_init = cp.zeros(3, np.int32), np.array([np.iinfo("i4").min], np.int32)
    reduction = cupar.segmented_reduce(d_in, sums, ends[:-1], ends[1:], larger, h_init)
    reduction.run(d_in, sums, 3, ends[:-1], ends[1:], h_init)
    np.testing.assert_array_equal(sums.get(), [part.max() for part in np.split(host, [10, 1000])])
    squares = cupar.TransformIterator(
        d_in, cupar.cpp("__device__ long sq(int a) { return (long)a * a; }", "int64(int32)")
    )
    total, h_zero = cp.zeros(1, np.int64), np.zeros(1, np.int64)
    cupar.reduce_into(squares, total, cupar.OpKind.PLUS, h_zero).run(squares, total, N, h_zero)
    assert total.get()[0] == (host.astype(np.int64) ** 2).sum()
