"""Offsets of segments, as kernels read them."""

import re
from pathlib import Path

import pytest
from support.templates import compiled

import cupar
from cupar._compile import nvjitlink, nvrtc

SOURCES = Path(cupar.__file__).parent / "_kernels" / "cuh"
FAR = 2**62 + 1


def test_no_kernel_subtracts_offsets_before_it_compares_them():
    found = [
        each
        for each in sorted(SOURCES.glob("*/*.cuh"))
        if re.search(r"\(ends\[.*\]\) -|(high - low|end - begin) [<>]", each.read_text())
    ]
    assert [each.name for each in found] == []


@pytest.mark.slow
def test_segments_that_end_before_they_begin_are_empty():
    lengths = {(3, 8): 5, (8, 8): 0, (8, 3): 0, (FAR, -FAR): 0, (2**63 - 1, -(2**63) + 1): 0, (0, FAR): FAR}
    holds = [
        f"cupar::length_of({begin}LL, {end}LL) == {length}LL" for (begin, end), length in lengths.items()
    ]
    spans = {(3, 8): 5, (8, 3): 0, (-FAR, FAR): 2 * FAR, (-(2**63), 7): 2**63 + 7, (2**63 - 1, -(2**63)): 0}
    holds += [
        f"cupar::distance_of(cupar::i64({low % 2**64}ULL), cupar::i64({high % 2**64}ULL)) == {items}ULL"
        for (low, high), items in spans.items()
    ]
    compiled(lambda: cupar.segmented_copy("f4", "f4", "i8", "i8", "i8", cc=90), 90, lambda _: holds)


KERNEL = """
#include "common/offsets.cuh"
extern "C" __global__ void lengths(const long long* offsets, long long* to) {
  *to = cupar::length_of(offsets[0], offsets[1]);
}
"""


@pytest.mark.slow
def test_compilers_compare_offsets_and_not_their_difference():
    """Of a difference with a sign they think that it does not wrap, and compare it with 0."""
    code = nvrtc.compile_kernels(KERNEL, 90)
    text = nvjitlink.ptx([code], 90)
    assert "max.s64" not in text
    assert re.search(r"setp\.(gt|lt|ge|le)\.s64\s+%p\d+, %rd\d+, %rd\d+;", text), text
