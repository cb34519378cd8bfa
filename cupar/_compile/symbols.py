"""The functions that PTX and cubins define."""

from __future__ import annotations

import re
import struct
from typing import Final

from .._external.linkable import Linkable
from .._kernels.elf import Elf

_IN_PTX: Final = re.compile(rb"^\s*\.visible\s+\.func\s+(?:\([^()]*\)\s*)?([\w$]+)", re.MULTILINE)
_GLOBAL_FUNCTION: Final = 0x12  # STB_GLOBAL, STT_FUNC


def defined(code: Linkable) -> list[str]:
    """Return the names of the functions that code defines for others; none of code in other forms."""
    if code.kind == "ptx":
        return [name.decode() for name in _IN_PTX.findall(code.data)]
    try:
        symbols = Elf(code.data).symbols() if code.kind == "cubin" else ()
    except (struct.error, IndexError, ValueError):
        return []  # the linker reports broken code
    return [each.name for each in symbols if each.info == _GLOBAL_FUNCTION and each.section]


def architecture(cubin: bytes) -> int | None:
    """Return the compute capability that a cubin is for, None if it does not say in a way that is known."""
    if len(cubin) < 52 or cubin[:4] != b"\x7fELF" or cubin[8] not in (7, 8):  # of CUDA 12 and before, and 13
        return None
    (flags,) = struct.unpack_from("<I", cubin, 48)
    return int(flags >> 8 & 0xFFFF if cubin[8] == 8 else flags & 0xFF)
