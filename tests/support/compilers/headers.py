"""Headers that are not cupar's own, precompiled at once for all families of kernels that include CUB's."""

import functools
import re
import threading
from collections import Counter
from pathlib import Path

from cupar._base.errors import BuildError
from cupar._compile import nvrtc, precompiled
from cupar._ir.cpp import END_OF_HEADERS
from cupar._kernels import source


class _Asked(threading.local):
    text = None


_asked = _Asked()


def asked():
    """Return the source that this thread compiles with kept headers as it is without them, or None."""
    return _asked.text


def keep(many):
    """Have a process keep headers, if it keeps any or compiles many templates."""
    if many:
        precompiled.keep_headers()
    if precompiled._headers is not None:
        precompiled._headers = _AllHeaders()


class _AllHeaders(precompiled._Headers):
    """Headers precompiled at once for families with CUB's, for each card, or for a family by itself.

    With them such a family's template takes half the time. It has unused constants beside its own, which the
    linker leaves out: the cubins are the same to the byte. But compiling and linking these takes 0.2 s, so a
    family that is compiled often, or whose headers are read in 0.2 s, has them precompiled by themselves.
    """

    most_files = 12  # of 120 MB each, which have no name in a folder
    often = 4

    def __init__(self):
        super().__init__()
        self.from_which = 1
        self._by_family = Counter()

    def compile(self, text, cc):
        _asked.text = text.encode()
        try:
            return self._code(text, cc)
        finally:
            _asked.text = None

    def _code(self, text, cc):
        family = cc, text.partition(END_OF_HEADERS)[0]
        self._by_family[family] += 1
        if self._by_family[family] > self.often or not _has_cub(text):
            return super().compile(text, cc)
        key = cc, _outside()
        self._asked[key] += 1
        if cc == _USUAL_CC or self._asked[key] > 1:
            headers, mark, rest = text.partition(END_OF_HEADERS)
            own = "".join(f"{line}\n" for line in headers.splitlines() if '"' in line)
            try:
                return self._compiled(key, f"{key[1]}{mark}{own}{rest}")
            except BuildError:  # the source has an error, which is to be its own
                pass
        return nvrtc.compile_kernels(text, cc)

    def _compiled(self, key, text):
        file = self._files.get(key)
        if file is None:
            return self._keep(key, text)
        self._files[key] = self._files.pop(key)  # the last ones used are kept
        return nvrtc.compile_kernels(text, key[0], f"-use-pch=/proc/self/fd/{file}")


_USUAL_CC = 90  # of tests that need none in particular


def _has_cub(text):
    """Whether the C++ of kernels includes headers of CUB's."""
    return any(b"#include <cub/" in code for _, code in nvrtc.own_headers(text))


@functools.cache
def _outside():
    """Return the lines that include what the C++ of cupar's kernels includes from elsewhere."""
    files = (Path(source.__file__).parent / "cuh").rglob("*.cuh")
    found = {
        name for file in files for name in re.findall("^#include <(.*)>$", file.read_text(), re.MULTILINE)
    }
    return "".join(f"#include <{name}>\n" for name in [*source._HEADERS, *sorted(found)])
