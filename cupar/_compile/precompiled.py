"""Kernels compiled with their headers read once, in processes that compile many: NVRTC's precompiled headers.

Reading headers is two thirds of what NVRTC does for a template: 1 of 1.6 s for a scan's, which are CUB's,
0.12 of 0.2 s for a reduction's. What it made of them can be kept: then these take 0.56 and 0.07 s. To keep
it takes 0.5 and 0.03 s, and a file of 110 to 130 or 14 MB. It pays from the second template with the same
headers on.

The file is for this process alone, since NVRTC maps it at a fixed address. It is unlinked as soon as it is
made, and read by its descriptor, so it vanishes with the process. The code is the same with
and without.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress

from .._base.errors import BuildError
from .._ir.cpp import END_OF_HEADERS
from . import nvrtc

_HEAP_BYTES = 512 << 20  # of address space, which NVRTC reserves for precompiled headers


class _Headers:
    """Precompiled headers of this process, by compute capability and include lines."""

    most_files = 3  # the last ones used; `cupar build` groups builds by their headers

    def __init__(self) -> None:
        self.from_which = 2  # of the templates with the same headers on they are kept
        self._asked: Counter[tuple[int, str]] = Counter()
        self._files: dict[tuple[int, str], int | None] = {}  # descriptors; None: it cannot be kept

    def compile(self, source: str, cc: int) -> bytes:
        """Compile with its precompiled headers, or precompile them; without, if that fails."""
        key = cc, source.partition(END_OF_HEADERS)[0]
        self._asked[key] += 1
        try:
            if key not in self._files and self._asked[key] >= self.from_which:
                return self._keep(key, source)
            file = self._files.get(key)
            if file is not None:
                self._files[key] = self._files.pop(key)
                return nvrtc.compile_kernels(source, cc, f"-use-pch=/proc/self/fd/{file}")
        except (BuildError, OSError):  # errors of the source itself are raised below
            self._drop(key)
            self._files[key] = None
        return nvrtc.compile_kernels(source, cc)

    def _keep(self, key: tuple[int, str], source: str) -> bytes:
        import tempfile

        there = [each for each, file in self._files.items() if file is not None]
        for each in there[: max(0, len(there) + 1 - self.most_files)]:
            self._drop(each)
        with tempfile.TemporaryDirectory(prefix="cupar-", ignore_cleanup_errors=True) as folder:
            path = f"{folder}/headers"
            code = nvrtc.compile_kernels(source, key[0], f"-create-pch={path}")
            try:
                self._files[key] = os.open(path, os.O_RDONLY)
            except OSError:  # it was not made, though the code was
                self._files[key] = None
        return code

    def _drop(self, key: tuple[int, str]) -> None:
        file = self._files.pop(key, None)
        if file is not None:
            os.close(file)


_headers: _Headers | None = None


def keep_headers() -> None:
    """Keep headers from now on, for this is a process that compiles many templates."""
    global _headers
    with suppress(Exception):  # from CUDA 12.8 on
        nvrtc.set_heap_of_headers(_HEAP_BYTES)
        _headers = _Headers()


def expect_many(many: bool) -> None:
    """Say whether several templates have the same headers, so that already the first is to keep them."""
    if _headers is not None:
        _headers.from_which = 1 if many else 2


def compile_kernels(source: str, cc: int) -> bytes:
    """Compile the C++ of kernels to LTO-IR, with precompiled headers if this process keeps them."""
    return nvrtc.compile_kernels(source, cc) if _headers is None else _headers.compile(source, cc)
