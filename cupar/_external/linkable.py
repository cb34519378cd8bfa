"""Code that the linker takes, by content: read from files, and from the objects that others have for it.

A key holds the content, and never its path. A `FileGuard` checks whether the file is unchanged.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from .._base.data import dataclass, field, replace
from .._base.digests import sha256
from .._base.errors import ArgumentTypeError, ArgumentValueError
from . import sources
from .files import FileGuard

# Kinds of code: text for people, extension of files, numba.cuda's class for it in memory. cuda.core and
# nvJitLink call an archive a library, and all else as here.
_KINDS: Final = (
    ("ltoir", "LTO-IR", ".ltoir", "LTOIR"),
    ("ptx", "PTX", ".ptx", "PTXSource"),
    ("cu", "CUDA C++", ".cu", "CUSource"),
    ("cubin", "a cubin", ".cubin", "Cubin"),
    ("fatbin", "a fatbin", ".fatbin", "Fatbin"),
    ("object", "an object file", ".o", "Object"),
    ("archive", "an archive", ".a", "Archive"),
)
KINDS: Final = {kind: text for kind, text, *_ in _KINDS}
_EXTENSIONS: Final = {extension: kind for kind, _, extension, _ in _KINDS}
_NUMBAS: Final = {cls: kind for kind, *_, cls in _KINDS}
_EXPECTED: Final = (
    f"expected the path of a file ({', '.join(_EXTENSIONS)}), cuda.{', cuda.'.join(_NUMBAS)} of numba.cuda, "
    "an ObjectCode of cuda.core, or a list of these"
)


@dataclass(frozen=True)
class Linkable:
    """Code to link with its callers; equal if kind and content are."""

    kind: str  # one of `KINDS`
    digest: str  # SHA-256 of its content, and of what C++ includes
    name: str = field(default="", compare=False)  # for messages
    data: bytes = field(default=b"", compare=False, repr=False)
    # Of C++: files that it includes, by the names under which the source has them; options of NVRTC.
    headers: tuple[tuple[str, bytes], ...] = field(default=(), compare=False, repr=False)
    options: tuple[str, ...] = field(default=(), compare=False)

    def part(self) -> list[str]:
        """Describe it for a key."""
        return [KINDS[self.kind], self.digest]

    def without_data(self) -> Linkable:
        """Return it without its content; it is equal, and cannot be linked."""
        return replace(self, data=b"", headers=())


def linkable(
    kind: str,
    data: bytes,
    name: str,
    headers: Sequence[tuple[str, bytes]] = (),
    options: Sequence[str] = (),
) -> Linkable:
    """Return code of a kind."""
    content = sha256(kind.encode())
    of_headers = (part for header, text in headers for part in (os.fsencode(header), text))
    for part in (data, *of_headers, b"options", *map(str.encode, options)):
        content.update(b"%d:" % len(part) + part)
    return Linkable(kind, content.hexdigest(), name, data, tuple(headers), tuple(options))


def collect(given: Any, where: str, guard: FileGuard) -> tuple[Linkable, ...]:
    """Return linkable code, given as one piece or a list of them: each once, ordered by content.

    Parameters
    ----------
    given : path, object of numba.cuda or cuda.core with code, or a list of these
    where : str
        Begins messages, as in ``"link"``.
    guard : FileGuard
        Is told of the files that are read.

    Raises
    ------
    TypeError, ValueError
        If it is something else, or a file is missing.
    """
    return _once(_one(item, where, guard) for item in _items(given))


def argument(given: Any, name: str, guard: FileGuard) -> tuple[Linkable, ...]:
    """Do as `collect` does for an argument; messages give the index of a list's item."""
    if not isinstance(given, (list, tuple)) or len(given) < 2:
        return collect(given, name, guard)
    return _once(
        replace(code, name=f"{code.name}, {name}[{i}]")
        for i, each in enumerate(given)
        for code in collect(each, f"{name}[{i}]", guard)
    )


def _once(codes: Iterable[Linkable]) -> tuple[Linkable, ...]:
    found = {each.digest: each for each in codes}
    return tuple(found[digest] for digest in sorted(found))


def _items(given: Any) -> Iterator[Any]:
    if given is None:
        return
    if isinstance(given, (list, tuple, set, frozenset)):
        for each in given:
            yield from _items(each)
    else:
        yield given


def _one(item: Any, where: str, guard: FileGuard) -> Linkable:
    if isinstance(item, Linkable):
        return item
    if isinstance(item, (str, os.PathLike)):
        return _file(Path(item), where, guard)
    found = _of_numba(item, where) or _of_core(item)
    if found is None:
        shown = "bytes: say what they are, as in cuda.LTOIR(…)" if isinstance(item, bytes) else repr(item)
        raise ArgumentTypeError(where, f"{_EXPECTED}, got {shown}")
    kind, code, name = found
    data = code.encode() if isinstance(code, str) else bytes(code)
    if not data.strip():
        raise ArgumentValueError(where, f"{name} is empty, expected {KINDS[kind]}")
    return _made(kind, data, name, None, guard)


def _of_numba(item: Any, where: str) -> tuple[str, Any, str] | None:
    """Return kind, code and name of one of numba.cuda's objects, None for something else."""
    for cls in type(item).__mro__:
        if cls.__name__ in _NUMBAS and str(cls.__module__).startswith("numba."):
            break
    else:
        return None
    for refused in ("setup_callback", "teardown_callback", "nrt"):
        if getattr(item, refused, None):
            raise ArgumentValueError(
                where, f"{item.name} has a {refused}, which cupar does not know to serve"
            )
    return _NUMBAS[cls.__name__], item.data, str(item.name)


def _of_core(item: Any) -> tuple[str, Any, str] | None:
    """Return kind, code and name of an ``ObjectCode`` of cuda.core, None for something else."""
    cls = type(item)
    if cls.__name__ != "ObjectCode" or not str(cls.__module__).startswith("cuda.core"):
        return None
    code = item.code
    if isinstance(code, (str, os.PathLike)):  # the path of a file that was not read yet
        code = Path(code).read_bytes()
    return (
        str(item.code_type).replace("library", "archive"),
        code,
        str(getattr(item, "name", "") or "an ObjectCode"),
    )


def _file(path: Path, where: str, guard: FileGuard) -> Linkable:
    kind = _EXTENSIONS.get(path.suffix)
    if kind is None:
        raise ArgumentValueError(
            where, f"expected a file that ends with {', '.join(_EXTENSIONS)}, got '{path}'"
        )
    try:
        data = guard.read(path.absolute())
    except OSError as error:
        raise ArgumentValueError(where, f"cannot read '{path}': {error.strerror}") from None
    if not data.strip():
        raise ArgumentValueError(where, f"'{path}' is empty, expected {KINDS[kind]}")
    return _made(kind, data, path.name, path.absolute().parent, guard)


def _made(kind: str, data: bytes, name: str, folder: Path | None, guard: FileGuard) -> Linkable:
    if kind != "cu":
        return linkable(kind, data, name)
    try:
        source, headers = sources.with_headers(data, folder, extra_folders(), guard)
    except ValueError as error:
        raise ArgumentValueError(name, f"{error}") from None
    return linkable(kind, source, name, headers)


def extra_folders() -> list[Path]:
    """Return the folders that numba.cuda is configured to search for headers."""
    config = getattr(sys.modules.get("numba.cuda"), "config", None)
    given = getattr(config, "CUDA_NVRTC_EXTRA_SEARCH_PATHS", None)
    given = given or os.environ.get("NUMBA_CUDA_NVRTC_EXTRA_SEARCH_PATHS") or ""
    return [Path(each).absolute() for each in str(given).split(":") if each]
