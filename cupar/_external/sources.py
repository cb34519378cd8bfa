"""C++ with all that it includes, by content.

NVRTC does not say which files it has read, and a key must hold their content before it runs. So the files
that a source includes are found here, and given to NVRTC in memory, under names of their own: what was not
found, NVRTC does not find either, but for the headers of CUDA and CCCL, whose versions are in the key. Those
of CUDA's libraries, which lie among them in some installations, are collected as all others are.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .files import Guard

# A folder that is nowhere, in which sources and headers are for NVRTC. It looks for what a file includes
# beside that file, and in the current folder if the file has no other.
NOWHERE: Final = "/cupar-nowhere/"

_LIBRARIES: Final = ("cublas", "cufft", "curand", "cusolver", "cusparse")  # how their headers begin

_INCLUDES: Final = re.compile(
    rb"""^([ \t]*(?:\#|%:)[ \t]*include[ \t]*|.*?__has_include[ \t]*\([ \t]*)"""
    rb"""(?:"([^"\n]+)"|<([^>\n]+)>)""",
    re.MULTILINE,
)


@functools.cache
def library_folder(library: str) -> Path | None:
    """Return the folder of the headers of one of CUDA's libraries, None if they are not installed."""
    from cuda import pathfinder

    found = pathfinder.find_nvidia_header_directory(library)
    return Path(found).resolve() if found else None


class _Collector:
    def __init__(self, folders: Sequence[Path], guard: Guard) -> None:
        self._folders = folders
        self._guard = guard
        self._names: dict[Path, str] = {}
        self._of_libraries: set[Path | None] = set()
        self.headers: dict[str, bytes] = {}

    def rewritten(self, source: bytes, folder: Path | None) -> bytes:
        """Return a source that includes files by the names that they have here."""

        def replace(match: re.Match[bytes]) -> bytes:
            quoted, name = match[2] is not None, (match[2] or match[3]).decode(errors="surrogateescape")
            path = self._find(name, folder if quoted else None)
            if path is None:
                return match[0]
            return match[1] + b'"' + self._added(path, name).encode(errors="surrogateescape") + b'"'

        return _INCLUDES.sub(replace, source)

    def _find(self, name: str, folder: Path | None) -> Path | None:
        library = next(filter(Path(name).name.startswith, _LIBRARIES), None)
        own = [library_folder(library)] if library else []
        # Beside a library's header may be CUDA's own, which are not collected.
        beside = [] if library is None and folder in self._of_libraries else [folder]
        for place in filter(None, [*beside, *self._folders, *own]):
            path = place / name
            if path.is_file():
                if place in own:
                    self._of_libraries.add(place)
                return path.resolve()
            self._guard.absent(path)
        return None

    def _added(self, path: Path, name: str) -> str:
        if path not in self._names:
            known = self._names[path] = f"{NOWHERE}{len(self._names) + 1}/{Path(name).name}"
            self.headers[known] = b""  # for files that include each other
            self.headers[known] = self.rewritten(self._guard.read(path), path.parent)
        return self._names[path]


def with_headers(
    source: bytes, folder: Path | None, folders: Sequence[Path], guard: Guard
) -> tuple[bytes, tuple[tuple[str, bytes], ...]]:
    """Return a source, and the files that it includes by the names that it has for them now.

    What is in quotes is looked for beside the file that includes it, in `folder` for the source itself, and
    then as all else in `folders`. The names tell no places.
    """
    collector = _Collector(folders, guard)
    return collector.rewritten(source, folder), tuple(collector.headers.items())
