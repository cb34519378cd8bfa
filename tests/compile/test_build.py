"""Builds down to the cubin: which kernels and instructions it holds, and for which GPU."""

import operator
import re

import numpy as np
import pytest
from support.disassembly import instructions, kernels, run, spills_or_calls
from support.fewer import every

import cupar
from cupar._compile import nvjitlink, nvrtc, python_to_ltoir
from cupar._obtain.target import parse_cc

CC = 90


def sums(a, b):
    return a + b


@every(3)
@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_operator_is_inlined(dtype, tmp_path):
    reduction = cupar.reduce_into(dtype, dtype, sums, np.zeros(1, dtype), cc=CC)
    assert "cupar_reduce" in kernels(reduction, tmp_path)
    assert spills_or_calls(reduction, tmp_path) == []


@pytest.mark.usefixtures("optimised")
def test_operator_is_inlined_into_scans(tmp_path):
    scan = cupar.exclusive_scan("c8", "c8", sums, np.zeros(1, "c8"), cc=CC)
    assert "cupar_scan_staged" in kernels(scan, tmp_path)
    assert "CALL" not in " ".join(spills_or_calls(scan, tmp_path))


@pytest.mark.usefixtures("optimised")
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


@pytest.mark.usefixtures("optimised")
def test_output_of_a_reduction_is_written_in_its_own_type(tmp_path):
    """CCCL would write 4 bytes of float32 through a pointer to 2 bytes of float16."""
    same = cupar.reduce_into("f4", "f4", sums, np.zeros(1, "f4"), cc=CC)
    other = cupar.reduce_into("f4", "f2", sums, np.zeros(1, "f4"), cc=CC)
    half_stores = lambda algorithm: [
        i for i in instructions(algorithm, tmp_path) if re.match(r"STG?\.E\.U16|ST\.E\.U16", i)
    ]
    assert not half_stores(same)
    assert half_stores(other)


@pytest.mark.parametrize("cc", ["8.0", (10, 0), "sm_120"])
def test_builds_for_any_gpu(cc, only, tmp_path):
    only()
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


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "accumulator", "target"),
    [("f4", "f4", "f8"), ("i4", "i8", "i4"), ("f4", "c8", "c16"), ("c8", "c16", "c8")],
)
def test_known_kinds_with_conversions(source, accumulator, target, tmp_path):
    """Reductions of all, a scan, and one of segments."""
    h_init = np.zeros(1, accumulator)
    reduction = cupar.reduce_into(source, target, cupar.OpKind.PLUS, h_init, cc=CC)
    assert spills_or_calls(reduction, tmp_path) == []
    if source == "c8":
        scan = cupar.exclusive_scan(source, target, cupar.OpKind.PLUS, h_init, cc=CC)
        assert spills_or_calls(scan, tmp_path) == []
    if target == "f8":
        segmented = cupar.segmented_reduce(source, target, "i4", "i4", np.add, h_init, cc=CC)
        assert "CALL" not in " ".join(spills_or_calls(segmented, tmp_path))


def test_size_of_the_cubin():
    for op in (sums, cupar.OpKind.PLUS):
        built = cupar.reduce_into("i4", "i4", op, 0, cc=CC)
        assert built.build.cubin_size == len(built.cubin())


def test_a_compiler_that_refuses_says_so():
    with pytest.raises(cupar.BuildError, match="cupar.cu"):
        nvrtc.compile_cpp("not C++", CC)
    with pytest.raises(cupar.BuildError, match="nvJitLink"):
        nvjitlink.link([b"not LTO-IR"], CC)
