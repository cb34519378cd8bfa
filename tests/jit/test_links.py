"""Kernels that call external code: links, keys, and refusals."""

from types import SimpleNamespace

import numpy as np
import pytest
from numba import cuda
from support.disassembly import instructions

import cupar
from cupar._ahead import codec
from cupar._compile import external, nvrtc
from cupar._compile.key import build_parts, digest
from cupar._obtain import obtain, produce

CC = 90
BINARY = "float32(float32, float32)"


def mul(factor=1, name="mul"):
    return f'extern "C" __device__ float {name}(float a, float b) {{ return a * b * {factor}; }}'


def declared(link=None, name="mul"):
    return cuda.declare_device(name, BINARY, link=link, abi="c")


def calling(function):
    def kernel(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] = function(x[i], np.float32(2))

    return kernel


def compiled(function, **options):
    return cupar.jit(**options)(calling(function)).compile("void(float32[::1])", cc=CC)


class Said:
    """A function that says what it is."""

    name, sig = "mul", BINARY

    def __init__(self):
        self.asked = []

    def __numba_cuda_link__(self, *types):
        self.asked.append(list(map(str, types)))
        return [cuda.CUSource(mul())]


def calls(overload, tmp_path):
    found = {name.partition(".")[0] for name in instructions(overload, tmp_path)}
    assert {"FMUL", "STG", "EXIT"} & found, "the disassembly was not understood"
    return found & {"CALL", "STL", "LDL"}


def code(kind):
    if kind == "LTOIR":
        return cuda.LTOIR(nvrtc.compile_cpp(mul(), CC))
    return cuda.CUSource(mul())


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("kind", ["LTOIR", "CUSource"])
def test_it_is_inlined_however_it_is_given(kind, empty_cache, tmp_path):
    by_link = compiled(declared(), link=code(kind))
    by_itself = compiled(declared(code(kind)))
    found = [by_link, by_itself]
    if kind == "CUSource":
        said = Said()
        found += compiled(cupar.cpp(mul(), BINARY)), compiled(said)
        assert said.asked[0] == ["float32", "float32"]
        assert found[-1].build.key == by_itself.build.key
    for each in {each.build.key: each for each in found}.values():
        assert not calls(each, tmp_path)
    assert by_link.build.key != by_itself.build.key


@pytest.mark.usefixtures("optimised")
def test_a_device_function_calls_it(empty_cache, tmp_path):
    function = declared(cuda.CUSource(mul()))

    @cuda.jit(device=True)
    def helper(a, b):
        return function(a, b) + 1

    assert not calls(compiled(helper), tmp_path)
    with pytest.raises(TypeError, match="^link: a device function is linked with nothing"):
        cupar.jit(device=True, link=cuda.CUSource(mul()))(helper)


def test_keys_hold_content_and_no_place(empty_cache, tmp_path):
    keys = []
    for place, factor in (("one", 1), ("another", 1), ("third", 2)):
        file = tmp_path / place / f"{place}.cu"
        file.parent.mkdir()
        file.write_text('#include "factor.h"\n' + mul("FACTOR"))
        (file.parent / "factor.h").write_text(f"#define FACTOR {factor}\n")
        keys.append(
            [
                compiled(declared(str(file))).build.key,
                compiled(declared(), link=[file]).build.key,
                compiled(cupar.cpp(file, BINARY)).build.key,
            ]
        )
    assert keys[0] == keys[1]
    assert len(set(keys[0] + keys[2])) == 6


def test_a_file_that_changes_is_seen_when_it_is_compiled_anew(empty_cache, tmp_path):
    file = tmp_path / "mul.cu"
    file.write_text(mul())
    kernel = cupar.jit(link=str(file))(calling(declared()))
    first = kernel.compile("void(float32[::1])", cc=CC)
    file.write_text(mul(2))
    assert kernel.compile("void(float32[::1])", cc=CC) is first
    kernel.recompile()
    assert kernel.build.key != first.build.key
    file.unlink()
    with pytest.raises(ValueError, match="^link: cannot read '.*mul.cu': No such file"):
        kernel.recompile()


def test_it_is_linked_once(empty_cache):
    one, other = declared(cuda.CUSource(mul())), declared(cuda.CUSource(mul()))

    @cupar.jit(link=[cuda.CUSource(mul()), cuda.CUSource(mul(name="more"))])
    def both(x):
        x[0] = one(x[1], x[2]) + other(x[3], x[4])

    build = both.compile("void(float32[::1])", cc=CC).build
    assert len(build.ltoir()) == 3
    assert "define" in build.llvm()["kernel"]
    assert ".entry _ZN5cupar4bothEv" in build.ptx()


def test_found_without_a_compiler(empty_cache, monkeypatch):
    first = compiled(cupar.cpp(mul(), BINARY))
    assert [each.entry for each in cupar.cache.entries()].count("cpp") == 1
    cupar.cache.clear(disk=False)
    monkeypatch.setattr(external, "compile_cpp", None)
    again = compiled(cupar.cpp(mul(), BINARY))
    assert (again.build.origin, again.build.key) == ("disk", first.build.key)


def test_recorded_kernels_carry_their_code(empty_cache, tmp_path, monkeypatch):
    file, asked = tmp_path / "mul.cu", []
    file.write_text(mul())

    def ask(spec, answer):
        asked.append(codec.dumps(spec))
        return answer()

    monkeypatch.setattr(obtain, "observer", SimpleNamespace(cc=None, observe=ask))
    overload = compiled(declared(), link=file)
    (data,) = asked
    file.unlink()
    again = codec.loads(data)
    assert digest(build_parts(again)) == overload.build.key
    blob, _, origin = produce.build_here(again, {})
    assert origin == "built"
    assert overload.cubin() in blob


@pytest.mark.parametrize(
    "make, error, message",
    [
        (
            lambda: compiled(declared(name="nowhere")),
            cupar.BuildError,
            "nvJitLink for sm_90: nothing that is linked defines the function 'nowhere' that kernel kernel "
            "calls: ",
        ),
        (
            lambda: compiled(declared(cuda.CUSource(mul())), link=cuda.CUSource(mul(2))),
            cupar.BuildError,
            "nvJitLink for sm_90: function 'mul' is defined by the LTO-IR of kernel kernel (<unnamed-cu>)",
        ),
        (
            lambda: compiled(declared(), link=cuda.CUSource("__device__ int f() { return gone; }", "mine")),
            cupar.BuildError,
            'link: mine: NVRTC could not compile for sm_90:\nsource(1): error: identifier "gone"',
        ),
        (
            lambda: compiled(declared(cuda.CUSource("__device__ int f() { return gone; }", "mine"))),
            cupar.BuildError,
            "kernel kernel: mine: NVRTC could not compile for sm_90:",
        ),
        (lambda: compiled(declared(), link=3), TypeError, "link: expected the path of a file (.ltoir,"),
        (lambda: compiled(declared(), link="gone.o"), ValueError, "link: cannot read 'gone.o'"),
        (
            lambda: compiled(cupar.cpp("__device__ float f(float x) { return x; }", "float32(float32)")),
            TypeError,
            "numba.cuda cannot compile kernel kernel (",
        ),
    ],
)
def test_what_is_refused(make, error, message, empty_cache):
    with pytest.raises(error) as caught:
        make()
    assert str(caught.value).startswith(message)


def test_wrong_arguments_are_shown():
    with pytest.raises(TypeError, match=r"f takes \(float32\), not \(float32, float32\)"):
        compiled(cupar.cpp("__device__ float f(float x) { return x; }", "float32(float32)"))
