"""What is said of functions that are defined twice, or not at all."""

import numpy as np
import pytest
from compile.test_external import CC, calling, declared, finished, mul, transform

import cupar
from cupar._compile import demangled

cuda = pytest.importorskip("numba.cuda")


def precompiled(kind, source):
    return (cuda.PTXSource if kind == "PTX" else cuda.Cubin)(finished(source, kind), name=kind.lower())


@pytest.mark.parametrize("kind", ["PTX", "CUBIN"])
@pytest.mark.parametrize("first", [0, 1])
def test_a_function_in_ltoir_and_in_finished_code(kind, first, empty_cache):
    source = cuda.CUSource(mul(3), name="mine")
    link = [source, precompiled(kind, mul())][:: 1 if first == 0 else -1]
    shown = {"PTX": "PTX", "CUBIN": "cubin"}[kind]
    message = (
        rf"function 'mul' is defined by the {shown} of .*\({kind.lower()}, link\[{1 - first}\]\) and, in "
        rf"another way, by the LTO-IR of .*\(mine, link\[{first}\]\): give one"
    )
    with pytest.raises(cupar.BuildError, match=message):
        transform(calling(declared()), link=link)
    with pytest.raises(cupar.BuildError, match=message):
        cupar.jit("float32[::1]", cc=CC, link=link)(lambda x: None)


def test_other_functions_are_not_taken_for_these(empty_cache):
    both = 'extern "C" __device__ __attribute__((weak)) float mul(float a, float b) { return 0; }'
    for source in (mul(name="other"), both, "static " + mul().removeprefix('extern "C" ')):
        link = [cuda.CUSource(source, name="mine"), precompiled("PTX", mul() + mul(name="__own"))]
        assert transform(calling(declared()), link=link).build.cubin_size


def test_finished_code_may_have_names_that_cpp_has_itself(empty_cache):
    ptx = finished(mul(name="own"), "PTX").replace(b"own", b"fmaf")
    link = [cuda.CUSource(mul(), name="mine"), cuda.PTXSource(ptx)]
    assert transform(calling(declared()), link=link).build.cubin_size


def test_items_of_a_list_are_told_by_index(empty_cache, tmp_path):
    link = [cuda.CUSource(mul(factor), name="mine") for factor in (1, 2)]
    with pytest.raises(cupar.BuildError) as caught:
        transform(calling(declared()), link=link)
    assert "(mine, link[0])" in str(caught.value) and "(mine, link[1])" in str(caught.value)
    with pytest.raises(TypeError, match=r"^link\[1\]: expected the path of a file"):
        transform(calling(declared()), link=[*link[:1], 3])
    with pytest.raises(ValueError, match=r"^link\[1\]: cannot read 'gone.o'"):
        cupar.jit("float32[::1]", cc=CC, link=(link[0], "gone.o"))(lambda x: None)
    alone = transform(calling(declared()), link=link[:1])
    assert transform(calling(declared()), link=[link[0], link[0]]).build.key == alone.build.key


SOURCE = """
template <class T> __device__ T other(T, int*);
extern template __device__ float other<float>(float, int*);
__device__ float one(float a) { return other<float>(a, nullptr); }
"""


@pytest.mark.parametrize("has_runtime", [True, False])
def test_a_function_that_a_source_in_cpp_does_not_define(has_runtime, empty_cache, monkeypatch):
    if has_runtime and demangled._demangler() is None:
        pytest.skip("no C++ runtime")
    if not has_runtime:
        monkeypatch.setattr(demangled, "_demangler", lambda: None)
    op = cupar.cpp(SOURCE, "float32(float32)", name="one")
    function = "float other<float>(float, int*)" if has_runtime else "other"
    message = (
        f"nvJitLink for sm_90: nothing that is linked defines the function '{function}' that {{}} (cupar.cpp "
        'one) calls: define it in the source, or declare it extern "C" and give its code as link='
    )
    with pytest.raises(cupar.BuildError) as caught:
        cupar.unary_transform("f4", "f4", lambda a: op(a) + np.float32(1), cc=CC)
    assert str(caught.value) == message.format("op")

    def kernel(x):
        x[0] = op(x[0])

    with pytest.raises(cupar.BuildError) as caught:
        cupar.jit(kernel).compile("float32[::1]", cc=CC)
    assert str(caught.value) == message.format("kernel kernel")


def test_one_of_c_can_be_given(empty_cache):
    source = 'extern "C" __device__ float other(float); __device__ float one(float a) { return other(a); }'
    op = cupar.cpp(source, "float32(float32)", name="one")
    with pytest.raises(cupar.BuildError, match="function 'other' that .* give its code as link=$"):
        cupar.unary_transform("f4", "f4", op, cc=CC)
    code = cuda.CUSource('extern "C" __device__ float other(float a) { return 2 * a; }')
    assert cupar.unary_transform("f4", "f4", op, cc=CC, link=code).build.cubin_size


def test_names_of_c_are_as_they_are():
    for name in ("mul", "_Z", "_Zx", "_ZN3foo"):
        assert demangled.shown(name) in (name, "foo")


def test_a_cubin_for_another_architecture_is_not_given_to_nvjitlink(empty_cache):
    """It would keep a lock of the thread that gave it, for ever."""
    found = {cc: cuda.Cubin(finished(mul(), "CUBIN", cc), name=f"for {cc}") for cc in (80, 86, 90)}
    for cc, other, is_taken in [(90, 80, False), (80, 86, False), (86, 80, True), (90, 90, True)]:
        op = calling(declared())
        if is_taken:
            assert cupar.binary_transform("f4", "f4", "f4", op, cc=cc, link=found[other]).build.cubin_size
            continue
        for _ in range(2):
            with pytest.raises(cupar.BuildError, match=f"for {other}.* for another compute capability"):
                cupar.binary_transform("f4", "f4", "f4", op, cc=cc, link=found[other])
