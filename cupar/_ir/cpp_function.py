"""Device functions in C++: the function that is meant in a source, and its compile options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from .. import structs
from .._base.data import dataclass
from .._base.digests import sha256
from .._base.errors import ArgumentTypeError, ArgumentValueError
from .._external.files import FileGuard
from .._external.lexer import Source
from .._external.linkable import Linkable, linkable
from .._external.sources import with_headers
from . import shim
from .signature import Signature, text


@dataclass(frozen=True)
class CppFunction:
    """A device function in C++, for operators and kernels. Made by `cupar.cpp`, not by its constructor.

    Attributes
    ----------
    name : str
        As it is called in C++.
    signature : Signature
        Result and arguments; as a string, like ``float32(float32, int64)``.
    """

    name: str
    symbol: str  # of the function of C
    signature: Signature
    links: tuple[Linkable, ...]

    @property
    def arguments(self) -> tuple[str, ...]:
        """The types of its arguments, as text."""
        return tuple(map(text, self.signature.parameters))

    def __call__(self, *arguments: Any) -> Any:
        """Raise TypeError: it is code for a GPU."""
        raise TypeError(f"{self!r} is a device function: call it in an operator or a kernel")

    def __repr__(self) -> str:
        return f"<cupar.cpp {self.name}: {self.signature}>"


_DEFINITION: Final = re.compile(r"([A-Za-z_]\w*)\s*\(")
_NO_FUNCTIONS: Final = frozenset(
    ["if", "for", "while", "switch", "return", "sizeof", "alignof", "decltype", "noexcept", "static_assert"]
    + ["__launch_bounds__", "alignas", "__align__", "__attribute__", "__noinline__", "requires", "operator"]
)


def functions_in(source: str, standard: int = 17) -> dict[str, str]:
    """Return the functions that C++ defines at its top level, with what stands before their bodies.

    That is, as far as a look at it tells.
    """
    code = Source(source.encode("utf-8", "surrogateescape"), standard).code.decode("utf-8", "surrogateescape")
    code = re.sub(r"\bextern\s+\{", " ", code)  # of "C", which is a literal
    found: dict[str, str] = {}
    depth, start = 0, 0
    for at, character in enumerate(code):
        if character == "{":
            if depth == 0:
                _definition(code[start:at], found)
            depth += 1
        elif character == "}":
            depth = max(depth - 1, 0)
            start = at + 1
        elif character == ";" and depth == 0:
            start = at + 1
    return found


def _definition(head: str, found: dict[str, str]) -> None:
    """Note the name of a function whose body begins after some text."""
    if re.search(r"\b(struct|class|union|enum|namespace)\b[^()]*$", head):
        return
    names = [name for name in _DEFINITION.findall(head) if name not in _NO_FUNCTIONS]
    if names and "operator" not in head:
        found[names[0]] = found.get(names[0], "") + head


def _name(found: dict[str, str], given: str | None, shown: str) -> str:
    if given is not None:
        if not isinstance(given, str) or not re.fullmatch(r"[A-Za-z_][\w:]*(\s*<[^;{}()]*>)?", given):
            raise ArgumentValueError(
                "name", f"expected the name of a function in C++, as in 'scale<3>', got {given!r}"
            )
        return given
    if len(found) != 1:
        which = f"it defines {', '.join(found)}" if found else "no definition of one was found"
        raise ArgumentValueError("name", f"which function of {shown} is meant? Give its name: {which}")
    return next(iter(found))


def function(source: Any, types: Signature, name: str | None, include: Any, options: Any) -> CppFunction:
    """Return a device function in C++: what `cupar.cpp` does."""
    code, folder, shown = _read(source)
    flags = _options(options)
    standard = _standard(flags)
    defined = functions_in(code, standard)
    named = _name(defined, name, shown)
    head = defined.get(re.sub(r"\s*<.*", "", named, flags=re.DOTALL), "")
    if "__global__" in head:
        raise ArgumentValueError(
            "name", f"{named} of {shown} is a __global__ kernel, expected a __device__ function"
        )
    encoded = code.encode("utf-8", "surrogateescape")
    folders = _folders(include)
    try:
        body, headers = with_headers(encoded, folder, folders, FileGuard(), standard)
    except ValueError as error:
        raise ArgumentValueError("source", str(error)) from None
    found = linkable("cu", body, shown, headers, flags)
    identity = sha256(f"{found.digest} {named} {types}".encode())
    symbol = f"cupar_cpp_{identity.hexdigest()[:20]}"
    unit = shim.unit(
        body.decode("utf-8", "surrogateescape"), named, types, symbol, _is_probed(head, types), standard
    )
    called = f"cupar.cpp {named}" + (f" of {shown}" if folder else "")
    linked = linkable("cu", unit.encode("utf-8", "surrogateescape"), called, headers, flags)
    return CppFunction(named, symbol, types, (linked,))


def _is_probed(head: str, types: Signature) -> bool:
    """Whether a function may be called with other types, as a probe of the types it takes.

    A template is compiled for them, if its result depends on its body, and may refuse all but those.
    """
    is_number = all(ndim is None and not structs.has_parts(dtype) for dtype, ndim in types.takes)
    return not re.search(r"\bauto\b", head) and (is_number or not re.search(r"\btemplate\b", head))


def _read(source: Any) -> tuple[str, Path | None, str]:
    """Return C++, the folder that it is in, and what to call it in messages."""
    is_file = not isinstance(source, str) or not re.search(r"[\n;{(]", source)
    if isinstance(source, str) and not source.strip():
        raise ArgumentValueError(
            "source", "is empty, expected C++ that defines a function, or the path of a file"
        )
    if not isinstance(source, str) and not hasattr(source, "__fspath__"):
        raise ArgumentTypeError(
            "source", f"expected C++ as text, or the path of a file, got {type(source).__name__}"
        )
    if not is_file:
        return source, None, "the source"
    path = Path(source).absolute()
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape"), path.parent, path.name
    except OSError as error:
        raise ArgumentValueError("source", f"cannot read '{source}': {error.strerror}") from None


def _folders(include: Any) -> list[Path]:
    folders = []
    for each in _several(include, "include", "folders"):
        if not isinstance(each, str) and not hasattr(each, "__fspath__"):
            raise ArgumentTypeError(
                "include", f"expected the path of a folder, or a list of these, got {each!r}"
            )
        folders.append(folder := Path(each).absolute())
        if not folder.is_dir():
            raise ArgumentValueError("include", f"'{folder}' is no folder")
    return folders


# What changes the code alone, and reads no file.
_ALLOWED: Final = re.compile(
    r"-D.+|-U.+|--?std=c\+\+\w+|--?use_fast_math|--?(?:ftz|prec-sqrt|prec-div|fmad)=(?:true|false)"
    r"|--?default-device|--?extra-device-vectorization|--?restrict|--?(?:diag-suppress|diag-error|diag-warn)=\S+"
)


_INSTEAD: Final = {
    "--?I|--?include-path": "folders are given as include=",
    "--?arch|--?gpu-architecture|--?code": "the compute capability is that of the build, as cc= says",
}


def _options(options: Any) -> tuple[str, ...]:
    given = _several(options, "options", "options of NVRTC")
    for each in given:
        for refused, instead in _INSTEAD.items():
            if isinstance(each, str) and re.match(refused, each):
                raise ArgumentValueError("options", f"{instead}, got {each!r}")
        if not isinstance(each, str) or not _ALLOWED.fullmatch(each):
            raise ArgumentValueError(
                "options",
                f"expected options of NVRTC such as '-DN=3', '-std=c++20' or '--use_fast_math', got {each!r}",
            )
    return tuple(given)


def _several(given: Any, name: str, kind: str) -> list[Any]:
    """Return an argument that may be one item or several as a list."""
    if isinstance(given, (str, bytes)) or hasattr(given, "__fspath__"):
        return [given]
    if isinstance(given, Iterable) and not isinstance(given, Mapping):
        return list(given)
    raise ArgumentTypeError(name, f"expected one or a list of {kind}, got {given!r}")


def _standard(options: Sequence[str]) -> int:
    """Return the standard of C++ that options say, the last of them."""
    said = [each.rpartition("c++")[2] for each in options if re.match("--?std=", each)]
    return int(said[-1]) if said and said[-1].isdigit() else 17
