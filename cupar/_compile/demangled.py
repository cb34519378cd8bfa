"""Names of functions as C++ writes them, for messages."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable
from typing import Any, Final

_OWN_NAMESPACE: Final = re.compile(r"cupar_cpp_[0-9a-f]{20}_source::")  # of a source: see `shim`


def shown(symbol: str) -> str:
    """Return a symbol demangled as far as possible; a name in C as it is."""
    if not symbol.startswith("_Z"):
        return symbol
    demangle = _demangler()
    return _OWN_NAMESPACE.sub("", (demangle and demangle(symbol)) or _path(symbol) or symbol)


def is_of_cpp(symbol: str) -> bool:
    """Whether a symbol is declared in the source of a `cupar.cpp`, in whose namespace nothing else can be."""
    return _OWN_NAMESPACE.search(_path(symbol) + "::") is not None


@functools.cache
def _demangler() -> Callable[[str], str] | None:
    """Return the C++ runtime's demangler, or None without one."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        demangle: Any = library["__cxa_demangle"]
        free: Any = ctypes.CDLL(None)["free"]
    except (OSError, AttributeError):
        return None
    demangle.restype, demangle.argtypes = ctypes.c_void_p, [ctypes.c_char_p, *[ctypes.c_void_p] * 3]
    free.restype, free.argtypes = None, [ctypes.c_void_p]

    def call(symbol: str) -> str:
        found = demangle(symbol.encode(), None, None, None)
        try:
            return ctypes.string_at(found).decode(errors="replace") if found else ""
        finally:
            free(found)

    return call


def _path(symbol: str) -> str:
    """Return the name with its namespaces, without parameters; empty if it is of another form."""
    rest = re.sub(r"^_ZN?", "", symbol)
    parts = []
    while (length := re.match(r"\d+", rest)) is not None:
        end = length.end() + int(length[0])
        parts.append(rest[length.end() : end])
        rest = rest[end:]
    return "::".join(parts)
