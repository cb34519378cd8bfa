"""Functions in C++: which one is meant, and what makes two of them different."""

import numpy as np
import pytest

import cupar
from cupar._ir.cpp_function import functions_in

ADD = "__device__ float add(float a, float b) { return a + b; }"
TYPES = "float32(float32, float32)"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (ADD, ["add"]),
        (
            '#include <x>\nextern "C" __device__ __forceinline__ int f(int a) { if (a) { return g(a); } }',
            ["f"],
        ),
        ("struct P { int m() { return 1; } };\n__device__ P make(int a) { return {}; }", ["make"]),
        (
            "// int no() {}\n/* int no() {} */ int yes() { auto s = \"no() {\"; return '{'; }",
            ["yes"],
        ),
        ("template <class T, int n = sizeof(T)> __device__ T f(T x) { return x; }", ["f"]),
        ('extern "C" {\n__device__ int f() { return 0; }\n}', ["f"]),
        ("__device__ int declared(int);\n__device__ int f() { return declared(1); }", ["f"]),
        ("#define G(x) { x }\n__device__ int f() { return 0; }", ["f"]),
        ("__device__ int f() { return 0; }\n__device__ int g() { return 0; }", ["f", "g"]),
        ("__device__ const int table[] = {1, 2};", []),
        ("__attribute__((noinline)) __device__ int f(int a = g(3)) noexcept { return 0; }", ["f"]),
    ],
)
def test_functions_are_found(source, names):
    assert list(functions_in(source)) == names


def test_it_says_what_it_is():
    add = cupar.cpp(ADD, TYPES)
    assert repr(add) == "<cupar.cpp add: float32(float32, float32)>"
    assert isinstance(add, cupar.CppFunction)
    with pytest.raises(TypeError, match="is a device function: call it in an operator or a kernel"):
        add(1.0, 2.0)


def test_symbols_tell_content_and_not_places(tmp_path):
    symbols = set()
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        (tmp_path / place / f"{place}.cu").write_text('#include "add.h"\n' + ADD)
        (tmp_path / place / "add.h").write_text("#define X")
        symbols.add(cupar.cpp(tmp_path / place / f"{place}.cu", TYPES).symbol)
    assert len(symbols) == 1
    others = [
        cupar.cpp(ADD, TYPES),
        cupar.cpp(ADD + "\n", TYPES),
        cupar.cpp(ADD, "float32(float32, float64)"),
        cupar.cpp(ADD, TYPES, options="-DX"),
        cupar.cpp(ADD + "\n__device__ int f() { return 0; }", TYPES, name="add"),
        cupar.cpp(ADD + "\n__device__ int f() { return 0; }", "int32()", name="f"),
    ]
    assert len({*symbols, *(each.symbol for each in others)}) == 7
    assert cupar.cpp(ADD, TYPES) == others[0]


def test_an_include_folder(tmp_path):
    (tmp_path / "scale.h").write_text("#define SCALE 2")
    one = cupar.cpp("#include <scale.h>\n" + ADD, TYPES, include=tmp_path)
    (tmp_path / "scale.h").write_text("#define SCALE 3")
    other = cupar.cpp("#include <scale.h>\n" + ADD, TYPES, include=[str(tmp_path)])
    assert one.symbol != other.symbol


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        ((3, TYPES), {}, "source: expected C++ as text, or the path of a file, got int"),
        (("gone.cu", TYPES), {}, "source: cannot read 'gone.cu': No such file or directory"),
        (("int x;", TYPES), {}, "no definition of one was found"),
        (("int f() {}\nint g() {}", TYPES), {}, "Give its name: it defines f, g"),
        ((ADD, TYPES), {"name": "add(1)"}, "name: expected the name of a function in C++"),
        ((ADD, TYPES), {"name": 1}, "name: expected the name of a function in C++"),
        ((ADD, TYPES), {"options": "-I/usr/include"}, "options: folders are given as include=, got '-I/usr/"),
        ((ADD, TYPES), {"options": "--gpu-architecture=sm_80"}, "options: the compute capability is that of"),
        ((ADD, TYPES), {"options": "-O3"}, "options: expected options of NVRTC such as"),
        ((" ", TYPES), {}, "source: is empty, expected C++ that defines a function"),
        (("__global__ void k(float* x) {}", TYPES), {}, "k of the source is a __global__ kernel, expected a"),
        ((ADD, TYPES), {"options": ["-DX", "--pre-include=x.h"]}, "got '--pre-include=x.h'"),
        ((ADD, TYPES), {"include": "/gone"}, "include: '/gone' is no folder"),
        ((ADD, TYPES), {"include": None}, "include: expected one or a list of folders, got None"),
        (
            (ADD, TYPES),
            {"include": [None]},
            "include: expected the path of a folder, or a list",
        ),
        (
            (ADD, TYPES),
            {"include": b"/tmp"},
            "include: expected the path of a folder, or a list",
        ),
        ((ADD, TYPES), {"options": None}, "options: expected one or a list of options of NVRTC, got None"),
        ((ADD, (np.float32,)), {}, "signature: expected text as in"),
    ],
)
def test_what_is_wrong(arguments, named, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        cupar.cpp(*arguments, **named)
    assert message in str(caught.value)
