"""Operators in LTO-IR of one's own."""

import numpy as np
import pytest
from support.disassembly import spills_or_calls

import cupar
from cupar import RawOp
from cupar._compile import nvjitlink, nvrtc, python_to_ltoir, toolchain

CC = 90
ADD = """
extern "C" __device__ void {name}(void* a, void* b, void* result) {{
  *static_cast<float*>(result) = *static_cast<float*>(a) + *static_cast<float*>(b) * {factor};
}}
"""


def add(name="add", factor="1", **more):
    return RawOp(name, nvrtc.compile_cpp(ADD.format(name=name, factor=factor), CC), **more)


def reduction(op):
    return cupar.reduce_into("f4", "f4", op, 0.0, cc=CC)


@pytest.mark.usefixtures("optimised")
def test_it_is_linked_inlined_and_keyed_by_content(empty_cache, tmp_path):
    first = reduction(add())
    assert first.build.origin == "built"
    assert spills_or_calls(first, tmp_path) == []
    assert reduction(add()).build.origin == "memory"
    other = reduction(add(factor="2"))
    assert other.build.origin == "linked"
    assert other.build.key != first.build.key
    cupar.cache.clear(disk=False)
    assert reduction(add()).build.origin == "disk"


def test_it_needs_no_numba(empty_cache, monkeypatch):
    monkeypatch.setattr(python_to_ltoir, "compile_operator", None)
    monkeypatch.setattr(toolchain, "operator_versions", None)
    assert reduction(add()).build.cubin_size > 1000


@pytest.mark.parametrize("name", ["half", "operator_", "cub"])
def test_names_that_cub_knows(name):
    assert reduction(add(name)).build.cubin_size > 1000


@pytest.mark.usefixtures("optimised")
def test_further_code(tmp_path):
    calls = 'extern "C" __device__ float scale(float);\n' + ADD.format(name="scaled", factor="scale(2)")
    scale = 'extern "C" __device__ float scale(float x) { return x * 3; }'
    op = RawOp("scaled", nvrtc.compile_cpp(calls, CC), [nvrtc.compile_cpp(scale, CC)])
    assert spills_or_calls(reduction(op), tmp_path) == []
    with pytest.raises(cupar.BuildError, match="scale"):
        reduction(RawOp("scaled", op.ltoir))


def test_a_unary_one():
    source = 'extern "C" __device__ void twice(void* a, void* r) { *(int*)r = *(int*)a * 2; }'
    op = RawOp("twice", nvrtc.compile_cpp(source, CC))
    assert cupar.unary_transform("i4", "i4", op, cc=CC).build.cubin_size > 1000


@pytest.mark.parametrize("name", ["", "a b", "a-b", "1a", "ä", 3, "cupar_op"])
def test_wrong_names(name):
    with pytest.raises(ValueError, match="^name: "):
        RawOp(name, b"code")


@pytest.mark.parametrize(
    ("code", "extra", "message"),
    [
        ("text", (), "ltoir: expected LTO-IR as bytes, got str"),
        (b"", (), "ltoir: is empty, expected LTO-IR"),
        (None, (), "ltoir: expected LTO-IR as bytes, got NoneType"),
        (b"x", [b"x", None], "extra_ltoirs[1]: expected LTO-IR as bytes, got NoneType"),
        (b"x", [b""], "extra_ltoirs[0]: is empty, expected LTO-IR"),
        (b"x", b"x", "extra_ltoirs: expected a sequence of bytes, got bytes; put them into a list"),
    ],
)
def test_wrong_code(code, extra, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        RawOp("add", code, extra)
    assert str(caught.value) == message


def later_code():
    newer = next((cc for cc in nvrtc.supported() if cc > CC), None)
    if newer is None:
        pytest.skip("these compilers know no newer GPU")
    return RawOp("add", nvrtc.compile_cpp(ADD.format(name="add", factor="1"), newer))


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (lambda: RawOp("f", b"garbage"), "the LTO-IR of op (RawOp 'f') is no LTO-IR"),
        (lambda: RawOp("add", add().ltoir, [b"x"]), "the LTO-IR of op (RawOp 'add') is no LTO-IR"),
        (lambda: RawOp("add", add().ltoir[:-300]), "the LTO-IR of op (RawOp 'add') is broken"),
        (
            lambda: RawOp("nope", add().ltoir),
            "nothing that is linked defines the function 'nope' that op (RawOp 'nope') calls",
        ),
        (later_code, "the LTO-IR of op (RawOp 'add') is for a newer architecture than sm_90"),
    ],
)
@pytest.mark.parametrize("debug", ["0", "1"])
def test_code_that_cannot_be_linked(op, message, debug, monkeypatch):
    monkeypatch.setenv("CUPAR_DEBUG", debug)
    with pytest.raises(cupar.BuildError) as caught:
        reduction(op())
    text = str(caught.value)
    assert text.startswith(f"nvJitLink for sm_90: {message}")
    assert "\n" not in text
    assert caught.value.__suppress_context__
    assert (caught.value.__cause__ is not None) == (debug == "1")


def test_what_the_linker_says_of_cupars_own_code_is_said():
    """As where a kernel needs more shared memory than a block has: no one else's code is to blame."""
    broken = add().ltoir[:-300]
    with pytest.raises(cupar.BuildError, match="ERROR_NVVM_COMPILE"):
        nvjitlink.link([broken], CC, ["part 0"])
    with pytest.raises(cupar.BuildError, match="the LTO-IR of op is broken: make it anew"):
        nvjitlink.link([broken], CC, ["op"])


def test_equal_content_is_equal():
    assert add() == add()
    assert hash(add()) == hash(add())
    assert add().fingerprint != add("plus").fingerprint
    split = RawOp("a", b"12", [b"3"]), RawOp("a", b"1", [b"23"]), RawOp("a", b"123")
    assert len({op.fingerprint for op in split}) == 3
    assert np.size(split) == 3


# --- The same one in several places ------------------------------------------------------------------------

NEGATIVE = 'extern "C" __device__ void is_less(void* a, void* r) {{ *(bool*)r = *(float*)a < {limit}; }}'
HALVED = 'extern "C" __device__ void halved(void* a, void* r) {{ *(float*)r = *(float*)a / {by}; }}'


def negative(limit="0", **more):
    return RawOp("is_less", nvrtc.compile_cpp(NEGATIVE.format(limit=limit), CC), **more)


def halved(by="2"):
    return RawOp("halved", nvrtc.compile_cpp(HALVED.format(by=by), CC))


def partition(first, second):
    return cupar.three_way_partition("f4", "f4", "f4", "f4", "i8", first, second, cc=CC)


def test_twice_in_a_partition():
    assert partition(negative(), negative()).build.cubin_size > 1000


@pytest.mark.slow
def test_as_operator_and_in_iterators():
    values = cupar.TransformIterator("f4", halved(), "f4")
    out = cupar.TransformOutputIterator("f4", halved(), "f4")
    assert cupar.unary_transform(values, out, halved(), cc=CC).build.cubin_size > 1000
    assert cupar.reduce_into(values, out, cupar.OpKind.PLUS, 0.0, cc=CC).build.cubin_size > 1000
    zipped = cupar.ZipIterator(values, values)
    pick = cupar.TransformIterator(zipped, lambda pair: pair[0] + pair[1], "f4")
    assert cupar.unary_transform(pick, out, halved(), cc=CC).build.origin == "built"


@pytest.mark.slow
def test_shared_further_code():
    calls = 'extern "C" __device__ float scale(float);\n' + ADD
    scale = nvrtc.compile_cpp('extern "C" __device__ float scale(float x) { return x * 3; }', CC)
    ops = [
        RawOp(name, nvrtc.compile_cpp(calls.format(name=name, factor="scale(2)"), CC), [scale, scale])
        for name in ("one", "two")
    ]
    pairs = cupar.TransformIterator("f4", RawOp("halved", halved().ltoir, [scale]), "f4")
    assert cupar.reduce_into(pairs, "f4", ops[0], 0.0, cc=CC).build.cubin_size > 1000
    other = cupar.binary_transform(
        cupar.TransformIterator("f4", halved(), "f4"),
        cupar.TransformIterator("f4", halved(), "f4"),
        "f4",
        ops[1],
        cc=CC,
    )
    assert other.build.cubin_size > 1000


def test_different_ones_of_the_same_name():
    with pytest.raises(cupar.BuildError) as error:
        partition(negative(), negative("1"))
    assert str(error.value) == (
        "nvJitLink for sm_90: function 'is_less' is defined by the LTO-IR of select_first_part_op "
        "(RawOp 'is_less') and, in another way, by that of select_second_part_op (RawOp 'is_less'): give one "
        "of the two functions another name"
    )
    assert error.value.__suppress_context__
    one, other = (cupar.TransformIterator("f4", halved(by), "f4") for by in "23")
    pairs = cupar.TransformIterator(cupar.ZipIterator(one, other), lambda pair: pair[0] + pair[1], "f4")
    with pytest.raises(
        cupar.BuildError, match=r"'halved' .* d_in_op0 \(RawOp 'halved'\) .* d_in_op1 \(RawOp 'halved'\)"
    ):
        cupar.reduce_into(pairs, "f4", cupar.OpKind.PLUS, 0.0, cc=CC)
