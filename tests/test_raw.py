"""Operators in LTO-IR of one's own."""

import numpy as np
import pytest
from test_build import spills_or_calls

import cupar
from cupar import RawOp, _toolchain

CC = 90
ADD = """
extern "C" __device__ void {name}(void* a, void* b, void* result) {{
  *static_cast<float*>(result) = *static_cast<float*>(a) + *static_cast<float*>(b) * {factor};
}}
"""


def add(name="add", factor="1", **more):
    return RawOp(name, _toolchain.compile_cpp(ADD.format(name=name, factor=factor), CC), **more)


def reduction(op):
    return cupar.reduce_into("f4", "f4", op, 0.0, cc=CC)


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
    monkeypatch.setattr(_toolchain, "_numba_cuda", None)
    monkeypatch.setattr(_toolchain, "operator_versions", None)
    assert reduction(add()).build.cubin_size > 1000


@pytest.mark.parametrize("name", ["half", "operator_", "cub"])
def test_names_that_cub_knows(name):
    assert reduction(add(name)).build.cubin_size > 1000


def test_further_code(tmp_path):
    calls = 'extern "C" __device__ float scale(float);\n' + ADD.format(name="scaled", factor="scale(2)")
    scale = 'extern "C" __device__ float scale(float x) { return x * 3; }'
    op = RawOp("scaled", _toolchain.compile_cpp(calls, CC), [_toolchain.compile_cpp(scale, CC)])
    assert spills_or_calls(reduction(op), tmp_path) == []
    with pytest.raises(cupar.BuildError, match="scale"):
        reduction(RawOp("scaled", op.ltoir))


def test_a_unary_one():
    source = 'extern "C" __device__ void twice(void* a, void* r) { *(int*)r = *(int*)a * 2; }'
    op = RawOp("twice", _toolchain.compile_cpp(source, CC))
    assert cupar.unary_transform("i4", "i4", op, cc=CC).build.cubin_size > 1000


@pytest.mark.parametrize("name", ["", "a b", "a-b", "1a", "ä", 3, "cupar_op"])
def test_wrong_names(name):
    with pytest.raises(ValueError, match="^name: "):
        RawOp(name, b"code")


@pytest.mark.parametrize(
    ("code", "extra"), [("text", ()), (b"", ()), (None, ()), (b"x", [None]), (b"x", ["x"])]
)
def test_wrong_code(code, extra):
    with pytest.raises(TypeError, match="^ltoir, extra_ltoirs: "):
        RawOp("add", code, extra)


def test_equal_content_is_equal():
    assert add() == add()
    assert hash(add()) == hash(add())
    assert add().fingerprint != add("plus").fingerprint
    split = RawOp("a", b"12", [b"3"]), RawOp("a", b"1", [b"23"]), RawOp("a", b"123")
    assert len({op.fingerprint for op in split}) == 3
    assert np.size(split) == 3
