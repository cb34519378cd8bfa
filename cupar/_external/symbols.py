"""The functions that PTX and cubins define."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Final

from .linkable import Linkable

_IN_PTX: Final = re.compile(rb"^\s*\.visible\s+\.func\s+(?:\([^()]*\)\s*)?([\w$]+)", re.MULTILINE)
_GLOBAL_FUNCTION: Final = 0x12  # STB_GLOBAL, STT_FUNC


def defined(code: Linkable) -> list[str]:
    """Return the names of the functions that code defines for others; none of code in other forms."""
    if code.kind == "ptx":
        return [name.decode() for name in _IN_PTX.findall(code.data)]
    try:
        return [*_in_cubin(code.data)] if code.kind == "cubin" else []
    except (struct.error, IndexError, ValueError):
        return []  # what is wrong with it, the linker will say


def _in_cubin(data: bytes) -> Iterator[str]:
    (sections_at,) = struct.unpack_from("<Q", data, 40)
    entry, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, sections_at + i * entry) for i in range(count)]
    for _, kind, _, _, at, size, link, _, _, each in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        for offset in range(at, at + size, each):
            name, info, _, section = struct.unpack_from("<IBBH", data, offset)
            if info == _GLOBAL_FUNCTION and section:
                start = sections[link][4] + name
                yield data[start : data.index(b"\0", start)].decode()
