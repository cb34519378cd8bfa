"""What all of cupar's own kernels have in common."""

import re
from pathlib import Path

import pytest

from cupar._kernels import source

FOLDER = Path(source.__file__).parent
KERNEL = re.compile(r'extern "C" __global__.*?(cupar_[\w#]+)\((.*?)\n}\n', re.DOTALL)
# Functions that wait for the stream, and of CUB's, the one that does.
WAITS = (
    *("join_stream()", "wait_for_stream()", "compact<", "count_digits(", "write_lists("),
    "look_ahead<",  # device_scan_lookahead_body
)


MACRO = re.compile(r"\s*\\\n  ")  # what is between the lines of one


def kernels():
    found = {}
    for file in sorted(FOLDER.glob("*.cuh")):
        found.update(KERNEL.findall(MACRO.sub("\n", file.read_text())))
    return found


def test_kernels_are_found():
    text = "".join(file.read_text() for file in FOLDER.glob("*.cuh"))
    assert len(kernels()) == text.count('extern "C" __global__') > 20


@pytest.mark.parametrize("kernel", kernels())
def test_kernels_wait_for_the_stream_before_they_begin(kernel):
    """They are launched so that they may begin before what is ahead of them has ended."""
    body = kernels()[kernel]
    waits = [body.index(each) for each in WAITS if each in body]
    assert waits
    before = body[body.index("{") : min(waits)]
    assert not re.search(r"\breturn\b", before), before
