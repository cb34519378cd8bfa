"""What all of cupar's own kernels have in common."""

import re
from pathlib import Path

import pytest

from cupar._compile import nvrtc
from cupar._kernels import headers, source

FOLDER = Path(source.__file__).parent / "cuh"
FILES = sorted(file.relative_to(FOLDER).as_posix() for file in FOLDER.rglob("*.cuh"))
TEXT = "".join((FOLDER / file).read_text() for file in FILES)
KERNEL = re.compile(r"^( *)struct (\w+) : kernel<.*?\n(.*?)^\1\};", re.DOTALL | re.MULTILINE)
# Functions that wait for the stream, and of CUB's, the one that does.
WAITS = (
    *("join_stream()", "wait_for_stream()", "compact<", "count_digits(", "write_lists("),
    *("tiles::run(", "tiles::clear(", "staged_rows::run(", "staged_rows::clear("),  # staged_tiles.cuh's
    "block_rows::run(",
    "look_ahead<",  # device_scan_lookahead_body
)


def kernels():
    return {
        f"{file}: {name}": body
        for file in FILES
        for _, name, body in KERNEL.findall((FOLDER / file).read_text())
    }


def test_kernels_are_found():
    assert len(kernels()) == len(re.findall(r"struct \w+ : kernel<", TEXT)) > 20


@pytest.mark.parametrize("kernel", kernels())
def test_kernels_wait_for_the_stream_before_they_begin(kernel):
    """They are launched so that they may begin before what is ahead of them has ended."""
    body = kernels()[kernel]
    waits = [body.index(each) for each in WAITS if each in body]
    assert waits
    before = body[body.index("{") : min(waits)]
    assert not re.search(r"\breturn\b", before), before


def test_no_load_is_read_only():
    """What the kernel before writes may be read while that still runs, and must not be kept by caches."""
    assert not re.search(r"__ldg\(|__restrict__|ld\.global\.nc", TEXT)


def chains():
    """Return lists of files that no build begins with, as it does with those of families.

    Each file of a list includes the one before: so before none there is anything that it does not include.
    """
    rest = [file for file in FILES if f"{Path(file).stem}_kernels" not in TEXT]
    within = {file: {name for name, _ in headers.own(f'#include "{file}"')} - {file} for file in rest}
    rest.sort(key=lambda file: len(within[file]))
    while rest:
        chain = [rest.pop()]
        while before := [file for file in rest if file in within[chain[0]]]:
            chain.insert(0, before[-1])
            rest.remove(before[-1])
        yield chain


@pytest.mark.parametrize("files", [*chains()], ids=lambda files: files[-1])
def test_each_file_stands_by_itself(files):
    """Its templates need traits alone, and no name or macro that is there before."""
    nvrtc.compile_kernels("".join(f'#include "{file}"\n' for file in files), 90, "-fdevice-syntax-only")


def test_macros_are_of_the_card_alone():
    macros = re.findall(r"^#\s*(?:el)?if(?:n?def)?\b(.*)", TEXT, re.MULTILINE)
    assert macros and all(re.fullmatch(r" __CUDA_ARCH__( >= \d+)?", each) for each in macros)


def test_digests_cover_what_a_file_includes():
    assert {name for name, _ in headers.own('#include "runs/reduce_by_key.cuh"')} >= {
        *("runs/reduce_by_key.cuh", "runs/reduce_runs.cuh", "runs/runs.cuh", "common/types.cuh")
    }
