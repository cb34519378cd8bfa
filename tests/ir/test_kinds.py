"""Kinds of operator as C++, where CCCL's own do not go: without numba, and doing what its functions do."""

import functools
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from support.compilers import AS_IN_THE_RUN
from support.fewer import every

from cupar import OpKind, _build
from cupar._compile import nvrtc
from cupar._ir import kinds
from cupar._ir.resolve import resolve

CC = 90

UNARY = {
    OpKind.LOGICAL_NOT: lambda a: a == 0,
    OpKind.IDENTITY: lambda a: a != 0,
    OpKind.NEGATE: lambda a: -a,
    OpKind.BIT_NOT: lambda a: ~a != 0,
}
BINARY = {
    OpKind.EQUAL_TO: lambda a, b: a == b,
    OpKind.NOT_EQUAL_TO: lambda a, b: a != b,
    OpKind.LESS: lambda a, b: a < b,
    OpKind.LESS_EQUAL: lambda a, b: a <= b,
    OpKind.GREATER: lambda a, b: a > b,
    OpKind.GREATER_EQUAL: lambda a, b: a >= b,
    OpKind.LOGICAL_AND: lambda a, b: (a != 0) & (b != 0),
    OpKind.LOGICAL_OR: lambda a, b: (a != 0) | (b != 0),
}
OF_INTEGERS = {OpKind.BIT_NOT}
OF_ALL = {OpKind.EQUAL_TO, OpKind.NOT_EQUAL_TO, OpKind.LOGICAL_AND, OpKind.LOGICAL_OR, OpKind.LOGICAL_NOT}


def resolved(op, dtype):
    arity = 1 if op in UNARY else 2
    return resolve(op, (np.dtype(dtype),) * arity, np.dtype(bool), "comp", as_function=True)


@functools.cache
def callers(arities):
    """Compile kernels that call one operator each, which the linker would drop without them."""
    source = ""
    for number, arity in enumerate(arities):
        types, names = ", ".join(["void*"] * (arity + 1)), [f"p{i}" for i in range(arity + 1)]
        parameters = ", ".join(f"void* {name}" for name in names)
        source += (
            f'extern "C" __device__ void cupar_op{number}({types});\n'
            f'extern "C" __global__ void call{number}({parameters}) '
            f"{{ cupar_op{number}({', '.join(names)}); }}\n"
        )
    return nvrtc.compile_cpp(source, CC)


def instructions(ops):
    """Return what each operator does as PTX, its registers numbered in the order of their use."""
    from cuda.bindings import nvjitlink

    options = ["-lto", "-ptx", f"-arch=sm_{CC}"]
    handle = nvjitlink.create(len(options), options)
    codes = [code for i, op in enumerate(ops) for code in _build._operator_code(f"op{i}", op, CC)]
    for part in (callers(tuple(len(op.inputs) for op in ops)), *codes):
        nvjitlink.add_data(handle, nvjitlink.InputType.LTOIR, part, len(part), "part")
    nvjitlink.complete(handle)
    text = bytearray(nvjitlink.get_linked_ptx_size(handle))
    nvjitlink.get_linked_ptx(handle, text)
    nvjitlink.destroy(handle)
    _, *entries = re.split(r"\.entry (?=call\d)", text.decode())
    found = {entry.partition("(")[0]: entry.partition("{")[2].partition("\n}")[0] for entry in entries}
    return [_numbered(found[f"call{i}"]) for i in range(len(ops))]


def same_instructions(pairs):
    """Compare what the operators of each pair do; all pairs are linked at once."""
    found = map(instructions, zip(*pairs.values(), strict=True))
    for name, one, other in zip(pairs, *found, strict=True):
        assert one == other, name


def _numbered(body):
    lines = [line for line in body.split("\n") if re.match(r"\t(?!\.reg|//|cvta|ld\.param)", line)]
    numbers = {}
    number = lambda found: f"{found[1]}{numbers.setdefault(found[0], len(numbers))}"
    return [re.sub(r"(%[a-z]+)\d+", number, line) for line in lines]


@every(2)
@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "u8", "u4", "f8", "f4", "i8", "c8"])
def test_they_do_what_functions_do(dtype):
    pairs = {}
    for kind, function in {**UNARY, **BINARY}.items():
        if np.dtype(dtype).kind in "fc" and kind in OF_INTEGERS:
            continue
        if np.dtype(dtype).kind == "c" and kind not in OF_ALL:
            continue
        cpp = resolved(kind, dtype)
        assert cpp.cpp is not None
        wanted = resolve(function, cpp.inputs, cpp.output)
        if dtype == "?" and kind is OpKind.BIT_NOT:  # of a bool, not of the number that it is
            wanted = resolve(lambda a: not a, cpp.inputs, cpp.output)
        pairs[kind.name] = cpp, wanted
    same_instructions(pairs)


@pytest.mark.parametrize("kind", [kind for kind in {**UNARY, **BINARY} if kind not in OF_INTEGERS])
def test_float16(kind):
    assert resolved(kind, "f2").cpp is not None
    found = [line.split()[0] for line in instructions([resolved(kind, "f2")])[0]]
    assert [name for name in found if name.startswith("setp")]
    # Not-equal holds for NaN, and all others do not.
    expected = {
        OpKind.NOT_EQUAL_TO: "setp.neu.f32",
        OpKind.EQUAL_TO: "setp.eq.f32",
        OpKind.LOGICAL_NOT: "setp.eq.f32",
    }
    if kind in expected:
        assert [name for name in found if name.startswith("setp")] == [expected[kind]]


# Without small integers, float16 beside other floats, and comparisons of several types, for which the
# instructions differ and the values do not.
COMPUTED = [
    (
        OpKind.PLUS,
        ["i1 i4 i8", "i4 i8 f4", "u4 i8 u2", "u2 u8 f8", "f4 f8 f8", "f4 i1 f4", "i4 f4 f4", "u8 f4 c8"],
    ),
    (OpKind.MINUS, ["u1 u4 u8", "f4 i8 c16", "c8 c8 c8", "c16 f4 c8", "i2 f4 f4"]),
    (OpKind.MULTIPLIES, ["i4 i4 i8", "u4 u4 f4", "i8 u8 i8", "f4 f8 c8", "? f8 f8"]),
    (OpKind.DIVIDES, ["i4 i4 f4", "u8 f4 f8", "f8 i2 f4", "i1 f4 f4"]),
    (OpKind.BIT_XOR, ["i4 u2 i8", "? i4 i4", "? ? i4", "i8 u8 u1"]),
    (OpKind.EQUAL_TO, ["f4 f8 ?", "i8 f4 i4", "c8 c8 f4", "i4 i4 i8"]),
    (OpKind.LESS, ["f4 f4 f4", "i4 i8 ?", "u8 f8 ?"]),
    (OpKind.NEGATE, ["i1 i8", "u2 i4", "? i4", "c8 c8", "c8 c16", "f4 c8", "i8 f8"]),
    (OpKind.IDENTITY, ["i1 f4", "u8 f4", "f8 f4", "f4 c8", "c16 c8", "i4 ?", "? f8"]),
    (OpKind.BIT_NOT, ["i1 i8", "u4 u8", "? i4"]),
    (OpKind.LOGICAL_NOT, ["c8 i4", "f4 f4", "i8 u1"]),
    (OpKind.MINIMUM, ["f4 f8 f8", "i8 i8 f4", "f4 f4 c8"]),
]


def in_python(kind, inputs, output):
    """Return what a kind is as a function that numba compiles."""
    function = kinds.TRAITS[kind].function
    of_one, of_two = lambda a: function(a), lambda a, b: function(a, b)  # noqa: PLW0108
    return resolve(of_one if len(inputs) == 1 else of_two, inputs, output)


@pytest.mark.parametrize("kind, several", COMPUTED)
def test_they_are_computed_in_the_same_types(kind, several):
    pairs = {}
    for types in several:
        *inputs, output = map(np.dtype, types.split())
        cpp = resolve(kind, inputs, output, as_function=True)
        assert cpp.cpp is not None
        pairs[types] = cpp, in_python(kind, inputs, output)
    same_instructions(pairs)


def arithmetic(op):
    return sorted(
        line.split()[0] for line in instructions([op])[0] if re.match(r"\t(mul|fma|add|sub|div|abs)", line)
    )


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_products_and_quotients_of_complex_numbers(dtype):
    types = (np.dtype(dtype),) * 2, np.dtype(dtype)
    for kind in (OpKind.MULTIPLIES, OpKind.DIVIDES):
        cpp = resolve(kind, *types, as_function=True)
        numba = in_python(kind, *types)
        assert arithmetic(cpp) == arithmetic(numba)


def test_what_has_no_type_in_common_is_left_to_numba():
    unsigned, signed, half = np.dtype("u8"), np.dtype("i4"), np.dtype("f2")
    assert resolve(OpKind.LESS, (unsigned, signed), np.dtype(bool)).kind is None
    assert resolve(OpKind.PLUS, (half, half), np.dtype("f4")).kind is None
    assert resolve(OpKind.PLUS, (half, half), half).kind is OpKind.PLUS


def test_what_is_not_defined_stays_so():
    pair = np.dtype([("a", "i4"), ("b", "i4")], align=True)
    for kind, dtype in ((OpKind.LESS, "c8"), (OpKind.BIT_NOT, "f4"), (OpKind.EQUAL_TO, pair)):
        with pytest.raises(TypeError, match=f"OpKind.{kind.name} is not defined"):
            resolved(kind, dtype)
    for kind in (OpKind.IDENTITY, OpKind.NEGATE):
        with pytest.raises(TypeError, match="returns complex64, which is not converted to bool"):
            _build._operator_code("op", resolved(kind, "c8"), CC)


ASK = f"""
{AS_IN_THE_RUN}
import json, sys
from cupar import OpKind, RawOp
from cupar._compile import nvrtc as _nvrtc
import cupar

LARGE = 'extern "C" __device__ void large(void* a, void* r) {{ *(bool*)r = *(int*)a > 100; }}'
large = RawOp("large", _nvrtc.compile_cpp(LARGE, 90))
outputs = ["i4"] * 3
found = [
    cupar.select("f2", "f2", "i8", OpKind.LOGICAL_NOT, cc=90),
    cupar.three_way_partition("i4", *outputs, "i8", OpKind.NEGATE, large, cc=90),
    cupar.three_way_partition("i4", *outputs, "i8", OpKind.IDENTITY, OpKind.BIT_NOT, cc=90),
    cupar.lower_bound("i4", "i4", "i8", cc=90),
]
print(json.dumps([[each.build.origin for each in found], "numba" in sys.modules]))
"""


@pytest.mark.slow
def test_neither_a_build_nor_a_hit_needs_numba(tmp_path):
    environment = {**os.environ, "CUPAR_CACHE_DIR": str(tmp_path / "cache")}
    for origins in ({"built", "linked"}, {"disk"}):
        done = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found, has_numba = json.loads(done.stdout)
        assert (set(found), has_numba) == (origins, False)
