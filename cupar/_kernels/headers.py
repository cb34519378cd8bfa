"""cupar's C++ sources: files of families, and their includes of each other."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from .._base.digests import sha256
from .._base.versions import own_file


@functools.cache
def digest(family_source: str) -> str:
    """Return the SHA-256 of a family's source and of cupar's headers that it includes."""
    found = sha256()
    for name, data in sorted(_files([family_source])):
        found.update(f"{name}\0{len(data)}\0".encode() + data)
    return found.hexdigest()


def has_cubs(family_source: str) -> bool:
    """Whether a family's source has kernels of CUB's, which CUB's selectors choose policies for."""
    return "#include <cub/" in _content(family_source).decode()


def own(text: str) -> list[tuple[str, bytes]]:
    """Return cupar's own files that the C++ of kernels includes, by name.

    NVRTC is given them in memory: so compiled and hashed text are the same, and cupar may be in a zip.
    """
    return _files(_names(text, '""'))


def _files(names: Iterable[str]) -> list[tuple[str, bytes]]:
    found: dict[str, bytes] = {}
    _read(names, found)
    return [*found.items()]


def _read(names: Iterable[str], found: dict[str, bytes]) -> None:
    for name in names:
        if name not in found:
            found[name] = _content(name)
            _read(_names(found[name].decode(), '""'), found)


@functools.cache
def _content(name: str) -> bytes:
    return own_file(f"_kernels/cuh/{name}")


def _names(text: str, quotes: str) -> list[str]:
    """Return the names that a file includes with some kind of quotes."""
    first, last = f"#include {quotes[0]}", quotes[1]
    lines = text.split("\n")
    return [line[len(first) : -1] for line in lines if line.startswith(first) and line.endswith(last)]
