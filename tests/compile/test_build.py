"""Builds down to the cubin: which kernels and instructions it holds, and for which GPU."""

import operator
import re

import numpy as np
import pytest
from support.disassembly import instructions, kernels, run, spills_or_calls

import cupar
from cupar import _build
from cupar._compile import cccl, nvjitlink, nvrtc, python_to_ltoir
from cupar._obtain.target import parse_cc

CC = 90


def sums(a, b):
    return a + b


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_operator_is_inlined(dtype, tmp_path):
    reduction = cupar.reduce_into(dtype, dtype, sums, np.zeros(1, dtype), cc=CC)
    assert "cupar_reduce" in kernels(reduction, tmp_path)
    assert spills_or_calls(reduction, tmp_path) == []


@pytest.mark.parametrize("dtype", ["i4", "c8"])
def test_operator_is_inlined_into_scans(dtype, tmp_path):
    scan = cupar.exclusive_scan(dtype, dtype, sums, np.zeros(1, dtype), cc=CC)
    assert "cupar_scan_ahead" in kernels(scan, tmp_path)
    assert "CALL" not in " ".join(spills_or_calls(scan, tmp_path))


@pytest.mark.parametrize(("source", "accumulator", "target"), [("f4", "c16", "c8"), ("f2", "f4", "i1")])
def test_conversions_of_float_to_integer_are_refused_and_others_inlined(
    source, accumulator, target, tmp_path
):
    build = lambda: cupar.reduce_into(source, target, sums, np.zeros(1, accumulator), cc=CC)
    if target == "i1":
        with pytest.raises(TypeError, match=r"^the accumulator: float32 .* int8 of d_out"):
            build()
    else:
        assert spills_or_calls(build(), tmp_path) == []


def test_output_of_a_reduction_is_written_in_its_own_type(tmp_path):
    """CCCL would write 4 bytes of float32 through a pointer to 2 bytes of float16."""
    same = cupar.reduce_into("f4", "f4", sums, np.zeros(1, "f4"), cc=CC)
    other = cupar.reduce_into("f4", "f2", sums, np.zeros(1, "f4"), cc=CC)
    half_stores = lambda algorithm: [
        i for i in instructions(algorithm, tmp_path) if re.match(r"STG?\.E\.U16|ST\.E\.U16", i)
    ]
    assert not half_stores(same)
    assert half_stores(other)


@pytest.mark.parametrize("cc", [80, "8.9", (10, 0), "sm_120"])
def test_builds_for_any_gpu(cc, tmp_path):
    reduction = cupar.reduce_into(np.int32, np.int32, sums, 0, cc=cc)
    assert reduction.build.cc == parse_cc(cc)
    listing = run("cuobjdump", reduction, tmp_path, "-elf")
    # As cuobjdump writes it for code of CUDA 13 and of CUDA 12.
    assert any(f"{prefix}{reduction.build.cc}" in listing for prefix in ("sm_", "EF_CUDA_SM", "sm="))


def test_known_kind_needs_no_operator(tmp_path, monkeypatch):
    monkeypatch.setattr(python_to_ltoir, "compile_operator", None)
    reduction = cupar.reduce_into(np.int32, np.int32, cupar.OpKind.PLUS, 0, cc=CC)
    assert "cupar_op" not in " ".join(kernels(reduction, tmp_path))
    again = cupar.reduce_into(np.int32, np.int32, operator.add, 0, cc=CC)
    assert again.build.key == reduction.build.key
    assert cupar.reduce_into(np.int32, np.int32, np.add, 0, cc=CC).build.key == reduction.build.key


@pytest.mark.slow
@pytest.mark.parametrize("types", [("i4", "i4", "i4"), ("f4", "c8", "c8")])
def test_one_piece_where_templates_cannot_be_used(types, empty_cache, monkeypatch, tmp_path):
    source, accumulator, target = types
    h_init = np.zeros(1, accumulator)
    linked = cupar.segmented_reduce(source, target, "i4", "i4", sums, h_init, cc=CC)
    cupar.cache.clear()
    monkeypatch.setattr(cccl, "_MAGIC", b"another")
    whole = cupar.segmented_reduce(source, target, "i4", "i4", sums, h_init, cc=CC)
    assert whole.build.origin == "built"
    assert "compile" in whole.build.seconds
    assert "link" not in whole.build.seconds
    assert whole.build.key == linked.build.key
    assert sorted(kernels(whole, tmp_path)) == sorted(kernels(linked, tmp_path))
    assert "CALL" not in " ".join(spills_or_calls(whole, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "accumulator", "target"),
    [("f4", "f4", "f8"), ("i4", "i8", "i4"), ("f4", "c8", "c16"), ("c8", "c16", "c8")],
)
def test_known_kinds_with_conversions(source, accumulator, target, tmp_path):
    h_init = np.zeros(1, accumulator)
    for factory in (cupar.reduce_into, cupar.exclusive_scan):
        built = factory(source, target, cupar.OpKind.PLUS, h_init, cc=CC)
        assert spills_or_calls(built, tmp_path) == []
    segmented = cupar.segmented_reduce(source, target, "i4", "i4", np.add, h_init, cc=CC)
    assert "CALL" not in " ".join(spills_or_calls(segmented, tmp_path))


def test_size_of_the_cubin():
    for op in (sums, cupar.OpKind.PLUS):
        built = cupar.reduce_into("i4", "i4", op, 0, cc=CC)
        assert built.build.cubin_size == len(built.cubin())


def test_templates_are_cut_exactly():
    blob = cccl.join(b"CCCLSER1" + bytes(16), b"cubin!", b"tail")
    assert blob == b"CCCLSER1" + bytes(4) + b"\1\0\0\0" + bytes(8) + b"\6" + bytes(7) + b"cubin!tail"


class Result:
    def __init__(self, blob, payload):
        self.serialize = lambda: blob
        self._get_cubin = lambda: payload


GOOD = b"CCCLSER1" + bytes(16) + b"\7" + bytes(7) + b"kernels" + b"tail"


def test_split():
    assert cccl.split(Result(GOOD, b"kernels")) == (GOOD[:24], b"kernels", b"tail")


@pytest.mark.parametrize(
    ("blob", "payload"),
    [
        (b"CCCLSER2" + GOOD[8:], b"kernels"),
        (GOOD + b"kernels", b"kernels"),
        (GOOD, b"absent"),
        (GOOD, b""),
        (GOOD[:12] + b"\1" + GOOD[13:], b"kernels"),
        (GOOD.replace(b"\7", b"\6"), b"kernels"),
        (b"CCCLSER1", b"kernels"),
    ],
)
def test_split_refuses_what_it_does_not_know(blob, payload):
    with pytest.raises(cccl.UnknownFormatError):
        cccl.split(Result(blob, payload))


def test_pack_round_trip():
    parts = [b"", b"a", bytes(1000), b"\xff" * 7]
    assert _build.unpack(_build._pack(parts)) == parts


def test_a_compiler_that_refuses_says_so():
    with pytest.raises(cupar.BuildError, match="cupar.cu"):
        nvrtc.compile_cpp("not C++", CC)
    with pytest.raises(cupar.BuildError, match="nvJitLink"):
        nvjitlink.link([b"not LTO-IR"], CC)
