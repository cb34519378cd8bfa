"""Operators that call external code: builds, hits, and refusals."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from support.disassembly import spills_or_calls

import cupar
from cupar._ahead import codec
from cupar._compile import external, key, nvrtc
from cupar._external import sources
from cupar._obtain import obtain

cuda = pytest.importorskip("numba.cuda")
CC = 90
BINARY = "float32(float32, float32)"


def mul(factor=1, name="mul"):
    return f'extern "C" __device__ float {name}(float a, float b) {{ return a * b * {factor}; }}'


def transform(op, **named):
    return cupar.binary_transform("f4", "f4", "f4", op, cc=CC, **named)


def declared(link=None, name="mul", abi="c"):
    return cuda.declare_device(name, BINARY, link=link, abi=abi)


def calling(function):
    return lambda a, b: function(a, b)  # noqa: PLW0108 - which is what is tested


def compiled(source=None, cc=CC):
    return nvrtc.compile_cpp(source or mul(), cc)


def finished(source, kind, cc=CC):
    """Return what NVRTC makes of C++ that the linker may take, beside LTO-IR."""
    from cuda.bindings import nvrtc as bindings

    nvrtc.supported()  # which loads it
    _, program = bindings.nvrtcCreateProgram(source.encode(), b"code.cu", 0, [], [])
    options = [f"-arch=sm_{cc}".encode(), b"-rdc=true"]
    (status,) = bindings.nvrtcCompileProgram(program, len(options), options)
    assert status == bindings.nvrtcResult.NVRTC_SUCCESS
    _, size = getattr(bindings, f"nvrtcGet{kind}Size")(program)
    code = b" " * size
    getattr(bindings, f"nvrtcGet{kind}")(program, code)
    bindings.nvrtcDestroyProgram(program)
    return code


# --- Functions that are declared -----------------------------------------------------------------------


@pytest.mark.usefixtures("optimised")
def test_it_is_linked_inlined_and_keyed_by_content(empty_cache, tmp_path, monkeypatch):
    first = transform(calling(declared(cuda.LTOIR(compiled()))))
    assert first.build.origin == "built"
    assert spills_or_calls(first, tmp_path) == []
    assert transform(calling(declared(cuda.LTOIR(compiled())))).build.origin == "memory"
    other = transform(calling(declared(cuda.LTOIR(compiled(mul(2))))))
    assert other.build.origin == "linked"
    assert other.build.key != first.build.key
    cupar.cache.clear(disk=False)
    assert transform(calling(declared(cuda.LTOIR(compiled())))).build.origin == "disk"


def test_places_are_no_part_of_it(empty_cache, tmp_path):
    keys = set()
    for place, factor in (("one", 1), ("another", 1), ("third", 2)):
        (tmp_path / place).mkdir()
        (tmp_path / place / f"{place}.cu").write_text('#include "factor.h"\n' + mul("FACTOR"))
        (tmp_path / place / "factor.h").write_text(f"#define FACTOR {factor}\n")
        keys.add(transform(calling(declared(str(tmp_path / place / f"{place}.cu")))).build.key)
    assert len(keys) == 2


def test_a_file_that_changes_is_seen_in_the_same_process(empty_cache, tmp_path):
    file = tmp_path / "f.cu"
    file.write_text(mul())
    function = declared(str(file))
    op = calling(function)
    first = transform(op)
    assert transform(op).build.key == first.build.key
    file.write_text(mul(factor=27))
    assert transform(op).build.key != first.build.key
    file.write_text(mul())
    os.utime(file, ns=(1, 1))
    assert transform(op).build.key == first.build.key
    file.unlink()
    with pytest.raises(
        TypeError, match=r"op: operator .*closure variable 'function': mul: cannot read '.*f.cu'"
    ):
        transform(op)


def test_symbol_signature_and_abi_count(empty_cache):
    keys = {
        transform(calling(function)).build.key
        for function in (
            declared(cuda.CUSource(mul())),
            declared(cuda.CUSource(mul(name="other")), name="other"),
            cuda.declare_device(
                "mul", "float32(float32, float32)", link=cuda.CUSource(mul() + "\n"), abi="c"
            ),
        )
    }
    assert len(keys) == 3
    numbas = """extern "C" __device__ int mul(float* out, float a, float b) { *out = a * b; return 0; }"""
    assert transform(calling(declared(cuda.CUSource(numbas), abi="numba"))).build.origin == "linked"


def test_it_is_linked_once(empty_cache):
    """By two operators of an algorithm, as two objects of the same content, and given with link=."""
    one, other = declared(cuda.CUSource(mul())), declared(cuda.CUSource(mul()))
    squares = cupar.TransformIterator(np.dtype("f4"), lambda x: one(x, x))
    built = cupar.reduce_into(squares, "f4", calling(other), np.float32(0), cc=CC, link=cuda.CUSource(mul()))
    assert built.build.cubin_size
    op = cupar.RawOp(
        "raw", compiled('extern "C" __device__ void raw(float* a, float* b, float* c) { *c = *a; }')
    )
    twice = cupar.TransformOutputIterator(np.dtype("f4"), lambda x: one(x, x))
    assert cupar.reduce_into(squares, twice, op, np.float32(0), cc=CC).build.cubin_size


def test_a_function_that_is_the_operator(empty_cache):
    assert transform(declared(cuda.CUSource(mul()))).build.origin == "built"
    with pytest.raises(TypeError, match="op: mul takes 2 arguments, this algorithm gives it 1"):
        cupar.unary_transform("f4", "f4", declared(cuda.CUSource(mul())), cc=CC)


def test_a_helper_of_the_operator_calls_it(empty_cache):
    function = declared(cuda.CUSource(mul()))

    @cuda.jit(device=True)
    def helper(a, b):
        return function(a, b) + 1

    assert transform(helper).build.origin == "built"


# --- Objects that say what is linked for them ------------------------------------------------------------


class Said:
    """A function that says what it is."""

    def __init__(self, source, name="mul"):
        self.name, self.sig = name, BINARY
        self.__numba_cuda_link__ = source


def test_an_attribute(empty_cache):
    said = Said(cuda.CUSource(mul()))
    op = calling(said)
    first = transform(op)
    assert first.build.origin == "built"
    assert transform(calling(declared(cuda.CUSource(mul())))).build.key == first.build.key
    said.__numba_cuda_link__ = [cuda.CUSource(mul(2))]
    assert transform(op).build.key != first.build.key
    function = declared()
    function.__numba_cuda_link__ = cuda.CUSource(mul())
    assert transform(calling(function)).build.key == first.build.key


def test_a_method_gets_the_types(empty_cache):
    asked = []

    class Made:
        name = "mul"
        sig = BINARY

        def __numba_cuda_link__(self, *types):
            asked.append([str(each) for each in types])
            return [cuda.CUSource(mul())]

    assert transform(calling(Made())).build.origin == "built"
    assert asked
    assert all(each == ["float32", "float32"] for each in asked)


def test_a_function_in_python_says_it(empty_cache):
    function = declared()

    def op(a, b):
        return function(a, b) + 1

    @cuda.jit(device=True)
    def jitted(a, b):
        return function(a, b) + 2

    keys = []
    for factor in (1, 2, 1):
        op.__numba_cuda_link__ = jitted.__numba_cuda_link__ = cuda.CUSource(mul(factor))
        keys.append([transform(each).build.key for each in (op, jitted, calling(op), calling(jitted))])
    assert keys[0] == keys[2]
    assert not {*keys[0]} & {*keys[1]}
    op.__numba_cuda_link__ = lambda *types: None
    with pytest.raises(TypeError, match="function 'op': __numba_cuda_link__ of a function in Python is code"):
        transform(op)


def test_code_that_is_generated_at_that_moment(empty_cache):
    """By a method that makes another object each time: its content counts."""

    class Power:
        sig = "float32(float32)"

        def __init__(self, n):
            self.n, self.name = n, f"power_{n}"

        def __numba_cuda_link__(self, *types):
            product = " * ".join("x" * self.n)
            return cuda.CUSource(f'extern "C" __device__ float {self.name}(float x) {{ return {product}; }}')

    def made(n):
        power = Power(n)
        return cupar.unary_transform("f4", "f4", lambda x: power(x), cc=CC).build  # noqa: PLW0108

    first, second, again = made(2), made(3), made(2)
    assert first.origin == "built"
    assert second.origin == "linked"
    assert again.origin == "memory"
    assert again.key == first.key != second.key


def test_an_object_code_of_cuda_core(empty_cache):
    from cuda.core import ObjectCode

    assert transform(calling(Said(ObjectCode.from_ltoir(compiled())))).build.origin == "built"


def test_what_says_too_little():
    class Nameless:
        __numba_cuda_link__ = ()

    class Raising(Said):
        def __numba_cuda_link__(self, *types):
            raise KeyError("no such type")

        def __init__(self):
            self.name, self.sig = "mul", BINARY

    for said, message in (
        (Nameless(), "closure variable 'function': it has __numba_cuda_link__, but no `name` and `sig`"),
        (Raising(), "its __numba_cuda_link__ raised KeyError: 'no such type'"),
        (Said(3), "mul: expected the path of a file (.ltoir,"),
        (Said("gone.o"), "mul: cannot read 'gone.o': No such file or directory"),
    ):
        with pytest.raises(TypeError) as caught:
            transform(calling(said))
        assert message in str(caught.value)
    wrong = Said(())
    wrong.sig = "float32"
    with pytest.raises(TypeError, match="its `sig` is no signature"):
        transform(calling(wrong))
    wrong.sig, wrong.abi = BINARY, "pascal"
    with pytest.raises(TypeError, match="its `abi` is 'pascal', expected 'c' or 'numba'"):
        transform(calling(wrong))


# --- link= ------------------------------------------------------------------------------------------------


def test_link_is_in_the_key_and_not_in_that_of_kernels(empty_cache):
    op = calling(declared())
    first = transform(op, link=cuda.CUSource(mul()))
    assert first.build.origin == "built"
    assert transform(op, link=[cuda.CUSource(mul())]).build.origin == "memory"
    second = transform(op, link=cuda.CUSource(mul(2)))
    assert second.build.origin == "linked"
    assert second.build.key != first.build.key
    assert transform(calling(declared(cuda.CUSource(mul())))).build.key not in (
        first.build.key,
        second.build.key,
    )


FACTORIES = {
    "reduce_into": ("f4", "f4", BINARY, 0.0),
    "exclusive_scan": ("f4", "f4", BINARY, 0.0),
    "inclusive_scan": ("f4", "f4", BINARY),
    "segmented_reduce": ("f4", "f4", "i8", "i8", BINARY, 0.0),
    "inclusive_segmented_scan": ("f4", "f4", "i8", "i8", BINARY),
    "exclusive_segmented_scan": ("f4", "f4", "i8", "i8", BINARY, 0.0),
    "unary_transform": ("f4", "f4", "float32(float32)"),
    "binary_transform": ("f4", "f4", "f4", BINARY),
    "merge_sort": ("f4", None, "f4", None, "boolean(float32, float32)"),
    "unique_by_key": ("f4", "f4", "f4", "f4", "i8", "boolean(float32, float32)"),
    "reduce_by_key": ("i4", "i4", "f4", "f4", "i8", BINARY),
    "inclusive_scan_by_key": ("i4", "f4", "f4", BINARY),
    "exclusive_scan_by_key": ("i4", "f4", "f4", BINARY, 0.0),
    "run_length_encode": ("f4", "f4", "i4", "i8", "boolean(float32, float32)"),
    "select": ("f4", "f4", "i8", "boolean(float32)"),
    "three_way_partition": ("f4", "f4", "f4", "f4", "i8", "boolean(float32)", "boolean(float32)"),
    "lower_bound": ("f4", "f4", "i8", "boolean(float32, float32)"),
    "upper_bound": ("f4", "f4", "i8", "boolean(float32, float32)"),
}


@pytest.mark.parametrize("factory", FACTORIES)
def test_each_algorithm_takes_it(factory, specified, monkeypatch):
    def function(signature):
        result, parameters = signature[:-1].split("(")
        kind, arity = ("bool", "float")[result == "float32"], len(parameters.split(","))
        name = f"f_{kind}_{arity}"
        code = ", ".join(f"float a{i}" for i in range(arity))
        sources.append(cuda.CUSource(f'extern "C" __device__ {kind} {name}({code}) {{ return a0 > 1; }}'))
        return cuda.declare_device(name, signature, abi="c")

    sources = []
    given = [function(each) if isinstance(each, str) and "(" in each else each for each in FACTORIES[factory]]
    asked = specified(getattr(cupar, factory), *given, link=sources)
    assert [each.data.decode() for each in asked.links] == [*dict.fromkeys(each.data for each in sources)]
    if factory in ("binary_transform", "three_way_partition"):
        monkeypatch.undo()
        assert getattr(cupar, factory)(*given, cc=CC, link=sources).build.cubin_size
        with pytest.raises(cupar.BuildError, match="nothing that is linked defines the function 'f_"):
            getattr(cupar, factory)(*given, cc=CC)


def test_iterators_take_it_where_there_is_no_operator():
    function = cuda.declare_device("sample", "float32(float32)", abi="c")
    code = cuda.CUSource('extern "C" __device__ float sample(float x) { return x; }')
    samples = cupar.TransformIterator(np.dtype("f4"), lambda x: function(x) + 1)
    built = cupar.histogram_even(samples, "i4", 5, 0.0, 1.0, 10, cc=CC, link=code)
    assert built.build.cubin_size


def test_kinds_of_code(empty_cache, tmp_path):
    def made(kind, cc=CC):
        data = finished(mul(), kind, cc)
        return (cuda.PTXSource if kind == "PTX" else cuda.Cubin)(data, name=f"for {cc}")

    op = calling(declared())
    assert len({transform(op, link=made(kind)).build.key for kind in ("PTX", "CUBIN")}) == 2
    (tmp_path / "mul.cubin").write_bytes(made("CUBIN").data)
    assert transform(op, link=tmp_path / "mul.cubin").build.origin == "memory"
    with pytest.raises(cupar.BuildError) as caught:
        transform(op, link=made("CUBIN", 80))
    assert str(caught.value) == (
        "nvJitLink for sm_90: the cubin of link (for 80) is broken, or for another compute capability: "
        "make it for sm_90"
    )
    newer = next((cc for cc in nvrtc.supported() if cc > CC), None)
    if newer is not None:
        with pytest.raises(
            cupar.BuildError, match=r"the PTX of link \(for \d+\) is for a newer architecture than sm_90"
        ):
            transform(op, link=made("PTX", newer))
    with pytest.raises(
        cupar.BuildError, match="function 'mul' is defined by the cubin of link .* in another way"
    ):
        transform(op, link=[made("CUBIN"), made("PTX")])


def test_an_unresolved_symbol_is_named_with_who_asks_for_it(empty_cache):
    with pytest.raises(cupar.BuildError) as caught:
        transform(calling(declared(name="nowhere")))
    assert str(caught.value) == (
        "nvJitLink for sm_90: nothing that is linked defines the function 'nowhere' that op "
        '(calling.<locals>.<lambda>) calls: check its name (extern "C" in C++), or give its code as link='
    )


def test_cpp_that_does_not_compile(empty_cache):
    with pytest.raises(cupar.BuildError) as caught:
        transform(calling(declared()), link=cuda.CUSource("__device__ int f() { return gone; }", name="mine"))
    text = str(caught.value)
    assert text.startswith(
        'link: mine: NVRTC could not compile for sm_90:\nsource(1): error: identifier "gone"'
    )


def test_wrong_link():
    for link, message in ((3, "link: expected the path of a file"), ("gone.o", "link: cannot read 'gone.o'")):
        with pytest.raises((TypeError, ValueError), match=message):
            transform(lambda a, b: a + b, link=link)


# --- Functions in C++ -------------------------------------------------------------------------------------


def built(function, *dtypes, tmp_path=None):
    op = calling(function) if len(dtypes) == 3 else lambda a: function(a)  # noqa: PLW0108 - as above
    factory = {1: cupar.unary_transform, 2: cupar.binary_transform}[len(dtypes) - 1]
    found = factory(*dtypes, op, cc=CC)
    if tmp_path is not None:
        assert spills_or_calls(found, tmp_path) == []
    return found


C_TYPES = {
    "?": "bool",
    "i1": "signed char",
    "u2": "unsigned short",
    "i8": "long",
    "f2": "__half",
    "f4": "float",
    "f8": "double",
    "c8": "cuda::std::complex<float>",
    "c16": "double2",
}
HEADERS = {"f2": "#include <cuda_fp16.h>\n", "c8": "#include <cuda/std/complex>\n"}


@pytest.mark.usefixtures("optimised")
def test_values_of_all_types_go_in_registers(tmp_path):
    """Each through a function of its own, in one operator."""
    every = cupar.gpu_struct({f"x{i}": dtype for i, dtype in enumerate(C_TYPES)})
    functions = [
        cupar.cpp(f"{HEADERS.get(dtype, '')}__device__ {kind} f({kind} x) {{ return x; }}", (dtype, [dtype]))
        for dtype, kind in C_TYPES.items()
    ]
    names = {"every": every, **{f"f{i}": function for i, function in enumerate(functions)}}
    exec(f"def op(v): return every({', '.join(f'f{i}(v.x{i})' for i in range(len(functions)))})", names)
    assert spills_or_calls(cupar.unary_transform(every, every, names["op"], cc=CC), tmp_path) == []


@pytest.mark.usefixtures("optimised")
def test_structs_go_in_registers_beside_others(tmp_path):
    """Of other sizes: a byte, two and sixteen."""
    pair = cupar.gpu_struct(
        {"a": np.int8, "b": {"x": np.float64, "y": np.float16}, "c": np.complex64, "d": bool}
    )

    def function(dtype):
        kind = C_TYPES[dtype]
        source = f"""{HEADERS["f2"]}
        struct Inner {{ double x; __half y; }};
        struct Pair {{ signed char a; Inner b; float2 c; bool d; }};
        __device__ Pair f(const Pair& p, {kind} x) {{ Pair q = p; q.a += sizeof(x); return q; }}
        """
        return cupar.cpp(source, (pair, [pair, dtype]))

    of_one, of_two, of_sixteen = map(function, ["?", "f2", "c16"])
    other = cupar.gpu_struct({"x": "?", "y": "f2", "z": "c16"})
    built(lambda p, x: of_sixteen(of_two(of_one(p, x.x), x.y), x.z), pair, other, pair, tmp_path=tmp_path)


PHILOX = """
#include <curand_kernel.h>
__device__ float normal(unsigned long long seed, unsigned long long i) {
  curandStatePhilox4_32_10_t state;
  curand_init(seed, i, 0, &state);
  return curand_normal(&state);
}
"""


@pytest.mark.skipif(sources.library_folder("curand") is None, reason="cuRAND's headers are not installed")
def test_curand_is_inlined_into_operators_and_kernels(empty_cache):
    normal = cupar.cpp(PHILOX, "float32(uint64, uint64)")

    def kernel(x):
        x[0] = normal(np.uint64(7), np.uint64(3))

    draw = cupar.unary_transform("u8", "f4", lambda i: normal(np.uint64(7), i), cc=CC)
    overload = cupar.jit(kernel).compile("float32[::1]", cc=CC)
    for build in (draw.build, overload.build):
        assert "cupar_cpp_" not in build.ptx()  # no call is left
        assert "sqrt." in build.ptx()  # of Box and Muller


def test_it_is_compiled_once_and_found_without_a_compiler(empty_cache, monkeypatch):
    source = "__device__ float f(float x) { return x * 3; }"
    assert built(cupar.cpp(source, "float32(float32)"), "f4", "f4").build.origin == "built"
    assert [each.entry for each in cupar.cache.entries()].count("cpp") == 1
    monkeypatch.setattr(external, "compile_cpp", None)
    cupar.cache.clear(disk=False)
    function = cupar.cpp(source, "float32(float32)")
    assert built(function, "f4", "f4").build.origin == "disk"
    assert cupar.unary_transform("f4", "f4", lambda x: function(x) + 1, cc=CC).build.origin == "linked"
    assert cupar.unary_transform("f4", "f4", function, cc=CC).build.origin == "linked"


@pytest.mark.usefixtures("optimised")
def test_equal_names_in_two_sources(empty_cache, tmp_path):
    source = "__device__ int helper() { return {n}; }\n__device__ float f(float x) { return x * helper(); }"
    one, two = (cupar.cpp(source.replace("{n}", n), "float32(float32)", name="f") for n in "12")
    found = cupar.unary_transform("f4", "f4", lambda x: one(x) + two(x), cc=CC)
    assert spills_or_calls(found, tmp_path) == []


def test_what_cannot_be_in_a_namespace(empty_cache):
    source = """
    #include <cuda/std/__type_traits/is_integral.h>
    struct Key { int x; };
    template <> struct cuda::std::is_integral<Key> { static constexpr int value = 3; };
    __device__ int f(int x) { return x * cuda::std::is_integral<Key>::value; }
    """
    built(cupar.cpp(source, "int32(int32)"), "i4", "i4")


def test_templates_and_options(empty_cache):
    source = "template <int n> __device__ float f(float x) { return x * n * FACTOR; }"
    keys = {
        built(
            cupar.cpp(source, "float32(float32)", name=f"f<{n}>", options=f"-DFACTOR={m}"), "f4", "f4"
        ).build.key
        for n, m in ((1, 2), (2, 2), (1, 3))
    }
    assert len(keys) == 3
    concepts = "template <class T> concept Any = true; __device__ float f(Any auto x) { return x; }"
    built(cupar.cpp(concepts, "float32(float32)", options=["-std=c++20"], name="f"), "f4", "f4")


@pytest.mark.usefixtures("optimised")
def test_arrays_go_by_pointer(empty_cache, tmp_path):
    fill = cupar.cpp(
        "__device__ void fill(float* items, const long* n) { for (int i : {0, 1, 2, 3}) items[i] = i * *n; }",
        "void(float32[::1], int64[::1])",
    )

    def op(x):
        items, n = cuda.local.array(4, np.float32), cuda.local.array(1, np.int64)
        n[0] = int(x)
        fill(items, n)
        return items[0] + items[1] + items[2] + items[3]

    found = cupar.unary_transform("f4", "f4", op, cc=CC)
    assert spills_or_calls(found, tmp_path) == []


def test_devices_libraries_of_cccl(empty_cache):
    draw = cupar.cpp(
        """
        #include <cuda/std/__random/philox_engine.h>
        __device__ unsigned draw(unsigned seed, unsigned long long i) {
          cuda::std::philox4x32 engine(seed);
          engine.discard(i);
          return engine();
        }
        """,
        "uint32(uint32, uint64)",
    )
    counter = cupar.CountingIterator(np.uint64(0))
    assert cupar.unary_transform(counter, "u4", lambda i: draw(np.uint32(7), i), cc=CC).build.cubin_size


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "__device__ float f(float x) {\n  return gone;\n}",
            'source(2): error: identifier "gone" is undefined',
        ),
        ('#include "gone.h"\n__device__ float f(float x) { return x; }', 'cannot open source file "gone.h"'),
    ],
)
def test_cpp_of_functions_that_does_not_compile(source, message, empty_cache):
    with pytest.raises(cupar.BuildError) as caught:
        built(cupar.cpp(source, "float32(float32)"), "f4", "f4")
    assert str(caught.value).startswith("op: cupar.cpp f: NVRTC could not compile for sm_90:\n")
    assert message in str(caught.value)
    assert "cupar(" not in str(caught.value)


F = "\n__device__ int f() { return IT; }"
WHY = "cupar finds included files before macros are expanded: name the file itself"


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (
            '#if __has_include("no.h") || __has_include("it.h")\n#define IT 1\n#else\n#define IT 2\n#endif',
            1,
        ),
        ('#define HAS __has_include(<it.h>)\n#if HAS\n#include "it.h"\n#endif', 1),
        ('#include "{0}/it.h"', 1),
        ("#include <{0}/it.h>", 1),
        ("#if __has_include(<{0}/gone.h>)\n#else\n#define IT 3\n#endif", 3),
        ('/**/#/**/include/**/"it.h"/*\n*/', 1),
        ('%:inc\\\nlude \\\n"i\\\nt.h"\r\n', 1),
        ('constexpr __device__ char it[] = R"(\n#include "it.h"\n)";\n#define IT sizeof(it)', 18),
        ("#if 0\n#include COMPUTED\n#if __has_include(COMPUTED)\n#endif\n#endif\n#define IT 4", 4),
        ("#define HAS(x) __has_include(x)\n#define IT 5", 5),
    ],
)
def test_what_cpp_includes_is_found(source, value, tmp_path):
    (tmp_path / "it.h").write_text("#define IT 1\n")
    check = f'\nstatic_assert(IT == {value}, "");'
    function = cupar.cpp(source.format(tmp_path) + F + check, "int32()", include=tmp_path)
    assert external.compile_cpp(function.links[0], CC)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('#define IT_H "it.h"\n#include IT_H', f"source(2): catastrophic error: #include IT_H: {WHY}"),
        ("#if __has_include(IT_H)\n#endif", f"source(1): error: __has_include of a macro, or in one: {WHY}"),
        (
            "#define HAS(x) __has_include(x)\n#if HAS(<it.h>)\n#endif",
            f"source(2): error: __has_include of a macro, or in one: {WHY}",
        ),
        ('#include "computing.h"', f"computing.h(2): catastrophic error: # include IT_H: {WHY}"),
        ('#embed "it.h"', 'source(1): catastrophic error: #embed "it.h": cupar cannot tell what it reads'),
        ('#include "/gone/it.h"', 'source(1): catastrophic error: cannot open source file "/gone/it.h"'),
    ],
)
def test_what_macros_include_is_refused(source, message, tmp_path):
    (tmp_path / "it.h").write_text("#define IT 1\n")
    (tmp_path / "computing.h").write_text('#define IT_H "it.h"\n# include IT_H\n')
    function = cupar.cpp(source + F, "int32()", include=tmp_path)
    with pytest.raises(cupar.BuildError) as caught:
        external.compile_cpp(function.links[0], CC)
    assert message in str(caught.value)
    assert len(str(caught.value).split("\n")) <= 20


@pytest.mark.parametrize("how", ["cpp", "CUSource", "file"])
def test_headers_of_absolute_paths_are_in_keys(how, empty_cache, tmp_path):
    header, file = tmp_path / "factor.h", tmp_path / "code" / "mul.cu"
    file.parent.mkdir()
    text = f"#include <{header}>\n" + mul("FACTOR")
    file.write_text(text)

    def build():
        if how == "cpp":
            return transform(cupar.cpp(text, BINARY)).build
        return transform(calling(declared(cuda.CUSource(text) if how == "CUSource" else str(file)))).build

    keys = []
    for factor in (1, 2, 1):
        header.write_text(f"#define FACTOR {factor}\n")
        keys.append(build().key)
    assert keys[0] == keys[2] != keys[1]


SAME = "write the same, for C++ would convert it silently"
F1, F2, I1 = "float32(float32)", "float32(float32, float32)", "int32(int32)"
P, R = "parameter", "the result of f"
LOST = "writes to a reference would be lost; take a value, or a pointer to memory"


@pytest.mark.parametrize(
    ("source", "signature", "message"),
    [
        ("float f(int a)", F1, f"{P} 1 of f is float32 in its signature, and int in C++: {SAME}"),
        ("float f(float a, double b)", F2, f"{P} 2 of f is float32 in its signature,"),
        ("int f(unsigned a)", I1, f"{P} 1 of f is int32 in its signature, and unsigned int in C++"),
        ("int f(bool a)", "int32(uint8)", f"{P} 1 of f is uint8 in its signature, and bool in C++"),
        ("float f(float a)", "float32(float16)", f"{P} 1 of f is float16 in its signature, and float in C++"),
        ("float f(float& a)", F1, f"is float32 in its signature, and float & in C++: {LOST}"),
        ("void f(int a, float& b)", "void(int32, float32)", f"in C++ it is void(int, float &): {LOST}"),
        ("void f(float* a)", "void(int32[::1])", "f cannot be called with (int32[::1]), which its signature"),
        ("void f(double a)", "void(complex64)", "in C++ it is void(double)"),
        ("float f(float x, int y)", F1, "(float32), which its signature says; in C++ it is float("),
        ("float f(float x)", "float32(float32, int8)", "f cannot be called with (float32, int8)"),
        ("double f(float x)", F1, f"{R} is float32 in its signature, and double in C++"),
        ("int f(float x)", F1, f"{R} is float32 in its signature, and int in C++"),
        ("unsigned f(int x)", I1, f"{R} is int32 in its signature, and unsigned int in C++"),
        ("void f(int x)", I1, f"{R} is int32 in its signature, and void in C++"),
        ("template <int n> float f(float x)", F1, "is a template that does not follow from (f"),
        ("float f(double x) { return 0; }\n__device__ int f(int x)", F1, f"{P} 1 of f is floa"),
    ],
)  # fmt: skip
def test_functions_in_cpp_that_are_not_what_their_signature_says(source, signature, message):
    text = source if source.startswith("template") else f"__device__ {source}"
    text = text.replace("> float", "> __device__ float")
    returns = "" if " void f" in text else "return {};"
    (code,) = cupar.cpp(f"{text} {{ {returns} }}", signature, name="f").links
    with pytest.raises(cupar.BuildError) as caught:
        external.compile_cpp(code, CC)
    assert message in str(caught.value)
    assert str(caught.value).startswith("cupar.cpp f: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "signature", "name"),
    [
        ("long f(long a, unsigned long b, char c, bool d)", "int64(int64, uint64, int8, boolean)", None),
        ("float f(const float& a, const float b)", "float32(float32, float32)", None),
        ("float f(float a, int b = 3)", "float32(float32)", None),
        ("template <class T> auto f(const T& a, T b)", "float32(float32, float32)", None),
        ("template <class T> T f(T a, const float* b)", "float32(float32, float32[::1])", None),
        ("template <int n, class T> T f(T a)", "float64(float64)", "f<3>"),
        ("float f(float a) { return a; }\n__device__ int f(int a)", "int32(int32)", None),
        ("void f(const void* a, void* b, float2* c)", "void(float32[::1], int8*, complex64[::1])", None),
        ("void f(const char* a, bool* b)", "void(int8[::1], boolean[::1])", None),
    ],
)
def test_functions_in_cpp_that_are_what_their_signature_says(source, signature, name):
    text = (
        source.replace("> ", "> __device__ ", 1) if source.startswith("template") else f"__device__ {source}"
    )
    returns = "" if " void f" in text else "return {};" if "auto" not in text else "return a;"
    (code,) = cupar.cpp(f"{text} {{ {returns} }}", signature, name=name).links
    assert external.compile_cpp(code, CC)


def test_a_name_that_no_function_has():
    (code,) = cupar.cpp("__device__ int f(int x) { return x; }", "int32(int32)", name="other").links
    with pytest.raises(cupar.BuildError, match="the source has no function other: check name="):
        external.compile_cpp(code, CC)


def test_wrong_arguments_in_an_operator():
    function = cupar.cpp("__device__ float f(float x) { return x; }", "float32(float32)")
    with pytest.raises(TypeError, match=r"f takes \(float32\), not \(float32, float32\)"):
        cupar.unary_transform("f4", "f4", lambda x: function(x, x), cc=CC)
    with pytest.raises(TypeError, match="op: f takes 1 argument, this algorithm gives it 2"):
        transform(function)


# --- Elsewhere and later --------------------------------------------------------------------------------


def test_a_recorded_list_has_the_code(empty_cache, tmp_path, specified):
    file = tmp_path / "mul.cu"
    file.write_text(mul())
    function = cupar.cpp("__device__ float f(float x) { return x * 3; }", "float32(float32)")
    foreign = declared(str(file))
    spec = specified(cupar.binary_transform, "f4", "f4", "f4", lambda a, b: foreign(a, function(b)))
    (tmp_path / "spec").write_bytes(codec.dumps(spec))
    file.unlink()
    code = f"""
    from pathlib import Path
    from cupar._ahead import codec
    from cupar._obtain import obtain
    spec = codec.loads(Path({str(tmp_path / "spec")!r}).read_bytes())
    print(obtain.answer(spec, None).build.key)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    assert done.stdout.strip() == key.digest(key.build_parts(spec))


@pytest.mark.usefixtures("optimised")
def test_link_goes_with_a_specialisation(empty_cache, monkeypatch):
    asked = []

    class Observer:
        cc, is_ahead = None, False

        def observe(self, spec, answer):
            asked.append(spec)
            return answer()

    monkeypatch.setattr(obtain, "observer", Observer())
    first = transform(calling(declared()), link=cuda.CUSource(mul()))
    (spec,) = asked
    cupar.cache.clear()
    again = obtain.answer(codec.loads(codec.dumps(spec)), None)
    assert again.build.key == first.build.key
    assert again.cubin() == first.cubin()
    assert spec.without_user() == spec
    assert spec.without_user().links[0].data == b""


def test_a_hit_of_a_function_in_cpp_imports_no_numba(empty_cache, capsys):
    code = """
    import sys
    import cupar
    f = cupar.cpp("__device__ float f(float x) { return x * 3; }", "float32(float32)")
    print(cupar.unary_transform("f4", "f4", lambda x: f(x), cc=90).build.origin, "numba" in sys.modules)
    """
    exec(textwrap.dedent(code), {"__name__": "__main__"})
    assert capsys.readouterr().out == "built True\n"
    run = [sys.executable, "-c", textwrap.dedent(code)]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "disk False\n"


def test_explain_says_that_code_changed(empty_cache):
    transform(calling(declared(cuda.CUSource(mul()))))
    second = transform(calling(declared(cuda.CUSource(mul(2)))))
    assert "op reads closure variable 'function'" in str(cupar.cache.explain(second))
    op = calling(declared())
    transform(op, link=cuda.CUSource(mul(3)))
    third = transform(op, link=cuda.CUSource(mul(4)))
    assert "linked code 1" in str(cupar.cache.explain(third))
