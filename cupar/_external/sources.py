"""C++ with all that it includes, by content.

NVRTC does not say which files it has read, and a key must hold their content before it runs. So the files
that a source includes are found here, and given to NVRTC in memory, under names of their own: what was not
found, NVRTC does not find either, but for the headers of CUDA and CCCL, whose versions are in the key. Those
of CUDA's libraries, which lie among them in some installations, are collected as all others are.

Files are found by name, in code that is compiled and in code that is skipped: no condition is evaluated. A
file that a macro names cannot be found so. Its directive becomes one that the compiler refuses where it is
not skipped.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .lexer import Source

if TYPE_CHECKING:
    from .files import FileGuard

# A folder that is nowhere, in which sources and headers are for NVRTC. It looks for what a file includes
# beside that file, and in the current folder if the file has no other.
NOWHERE: Final = "/cupar-nowhere/"

# Of the C++ that cupar writes around a function's source, as messages of the compiler are read by it.
SOURCE: Final = f"{NOWHERE}source"  # the name of the source
FLAT: Final = "cupar_flat"  # macro: the source is in no namespace, for one that cannot be in one
TELL: Final = "cupar_tell"  # macro: makes the compiler name the function's type in an error
SHOWN: Final = "cupar: "  # begins comments with the function's name and signature

_LIBRARIES: Final = ("cublas", "cufft", "curand", "cusolver", "cusparse")  # how their headers begin

# In place of `__has_include` of a macro: neither a constant, nor an existing function.
ASKED_BY_MACRO: Final = "cupar_has_include_of_a_macro"
_WHY: Final = "cupar finds included files before macros are expanded: name the file itself"
_NOT_FOLLOWED: Final = "cupar cannot tell what it reads: use #include"
WHY_NOT_ASKED: Final = f"__has_include of a macro, or in one: {_WHY}"
ABSENT: Final = f"{NOWHERE}absent"  # begins names that lead to nothing
_LONGEST_SHOWN: Final = 60


@functools.cache
def library_folder(library: str) -> Path | None:
    """Return the folder of the headers of one of CUDA's libraries, None if they are not installed."""
    from cuda import pathfinder

    found = pathfinder.find_nvidia_header_directory(library)
    return Path(found).resolve() if found else None


class _Header(NamedTuple):
    """A file that is included."""

    path: str  # as a compiler calls it
    folders: tuple[Path, ...]  # where else `#include_next` in it looks

    @property
    def folder(self) -> Path:
        """Where its includes are searched: beside a link, and not beside its target."""
        return Path(self.path).parent

    def identity(self) -> tuple[str, str]:
        """Return the same for all names of the file."""
        return os.path.realpath(self.folder), Path(self.path).name


class _Headers:
    def __init__(self, folders: Sequence[Path], guard: FileGuard, standard: int) -> None:
        self._folders = tuple(folders)
        self._guard = guard
        self._standard = standard
        self._names: dict[Any, str] = {}
        self._of_libraries: set[Path | None] = set()
        self.headers: dict[str, bytes] = {}

    def rewritten(self, data: bytes, folder: Path | None) -> bytes:
        """Return a source that includes files by the names that they have here."""
        source = Source(data, self._standard)
        return self._replaced(source, self._found(source, folder, None))

    def _found(
        self, source: Source, folder: Path | None, further: tuple[Path, ...] | None
    ) -> list[_Header | None]:
        """Return the files that a source names; None for those of CUDA's and missing ones."""
        return [
            self._find(
                os.fsdecode(each.name),
                folder if each.is_quoted else None,
                further if each.word == "include_next" else None,
            )
            if each.word in ("include", "include_next", "has_include")
            else None
            for each in source.names
        ]

    def _replaced(self, source: Source, found: list[_Header | None]) -> bytes:
        pieces, at = [], 0
        for each, header in zip(source.names, found, strict=True):
            is_further = header is not None and each.word == "include_next"
            start = each.whole if is_further else each.start
            pieces.append(source.data[at:start])
            at = each.end
            lines = source.data[start:at].count(b"\n")
            if each.word == "computed":
                why = _WHY if re.search(rb"include", each.name) else _NOT_FOLLOWED
                pieces.append(b"#error cupar: " + _shown(each.name) + f": {why}".encode())
            elif each.word == "asked by macro":
                pieces.append(ASKED_BY_MACRO.encode())
            elif header is not None:
                name = os.fsencode(self._added(header))
                pieces.append(b'#include "%b"' % name if is_further else b'"%b"' % name)
            elif _leaves(os.fsdecode(each.name)):
                name = each.name.replace(b"..", b"(..)").replace(b'"', b"_")
                slash = b"" if name.startswith(b"/") else b"/"
                pieces.append(b'"%b%b%b"' % (ABSENT.encode(), slash, name))
            else:
                pieces.append(source.data[start:at])
                lines = 0
            pieces.append(b"\\\n" * lines)
        return b"".join([*pieces, source.data[at:]])

    def _find(self, name: str, folder: Path | None, further: tuple[Path, ...] | None) -> _Header | None:
        if os.path.isabs(name):  # noqa: PTH117 - a Path would change the spelling
            return self._there(name, ())
        library = next(filter(Path(name).name.startswith, _LIBRARIES), None)
        own = [library_folder(library)] if library else []
        # Beside a library's header may be CUDA's own, which are not collected.
        beside = [] if library is None and folder in self._of_libraries else [folder]
        places = self._folders if further is None else further
        if further is None:
            for place in filter(None, beside):
                if header := self._there(f"{place}/{name}", self._folders):
                    return header
        for number, place in enumerate(places, start=1):
            if header := self._there(f"{place}/{name}", places[number:]):
                return header
        for place in filter(None, own):
            if header := self._there(f"{place}/{name}", ()):
                self._of_libraries.add(place)
                return header
        return None

    def _there(self, path: str, further: tuple[Path, ...]) -> _Header | None:
        if os.path.isfile(path):  # noqa: PTH113 - which says no, and raises nothing, of any name
            return _Header(path, further)
        self._guard.absent(path)
        return None

    def _added(self, header: _Header) -> str:
        """Return the name that a file has here: one for all ways to call it that include the same."""
        if header in self._names:
            return self._names[header]
        try:
            data = self._guard.read(header.path)
        except OSError as error:
            raise ValueError(f"cannot read '{header.path}', which is included: {error.strerror}") from None
        source = Source(data, self._standard)
        found = self._found(source, header.folder, header.folders)
        same = os.path.realpath(header.path), *(each and each.identity() for each in found)
        if same not in self._names:
            base = Path(header.path).name.replace('"', "_")
            known = self._names[same] = f"{NOWHERE}{len(self.headers) + 1}/{base}"
            self.headers[known] = b""  # for files that include each other
            self._names[header] = known
            self.headers[known] = self._replaced(source, found)
        self._names[header] = self._names[same]
        return self._names[header]


def _shown(text: bytes) -> bytes:
    """Return the text of a directive, shortened for messages."""
    shown = b" ".join(re.sub(rb"/\*.*?\*/|//.*|[^ -~]|[\\]", b" ", text, flags=re.DOTALL).split())
    return shown if len(shown) <= _LONGEST_SHOWN else shown[:_LONGEST_SHOWN] + b"..."


def _leaves(name: str) -> bool:
    """Whether a name may lead out of the folders that a compiler looks in."""
    return os.path.isabs(name) or os.path.normpath(name).startswith("..")  # noqa: PTH117


def with_headers(
    source: bytes, folder: Path | None, folders: Sequence[Path], guard: FileGuard, standard: int = 17
) -> tuple[bytes, tuple[tuple[str, bytes], ...]]:
    """Return a source, and the files that it includes by the names that it has for them now.

    Names in quotes are looked up beside the including file, in `folder` for the source itself, and
    then as all others in `folders`. The names tell no places. `standard` is that of C++.

    Raises
    ------
    ValueError
        If a file is there, and cannot be read.
    """
    collector = _Headers(folders, guard, standard)
    return collector.rewritten(source, folder), tuple(collector.headers.items())
