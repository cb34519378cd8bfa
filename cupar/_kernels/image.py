"""A build as it is kept: the GPU code, and the facts about it that plans are made of."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

_MAGIC = b"CUPARIMG"
_FACTS = "cupar_facts"


class DamagedError(ValueError):
    """What should be an image is not one."""


@dataclass(frozen=True)
class Image:
    """GPU code, an ELF file, with the integers that its family's plans need."""

    facts: dict[str, int]
    cubin: bytes

    def dumps(self) -> bytes:
        """Return it as bytes."""
        header = json.dumps(self.facts).encode()
        return _MAGIC + struct.pack("<I", len(header)) + header + self.cubin

    @staticmethod
    def loads(data: bytes) -> Image:
        """Return what was stored; raise DamagedError if it is not an image."""
        if not data.startswith(_MAGIC) or len(data) < 12:
            raise DamagedError("no image of a build")
        (length,) = struct.unpack_from("<I", data, 8)
        try:
            facts = json.loads(data[12 : 12 + length])
        except ValueError as error:
            raise DamagedError(f"no image of a build: {error}") from None
        cubin = data[12 + length :]
        if not isinstance(facts, dict) or not cubin.startswith(b"\x7fELF"):
            raise DamagedError("no image of a build")
        return Image(facts, cubin)


def facts_of(cubin: bytes) -> tuple[int, ...]:
    """Return the integers that ``CUPAR_FACTS`` put into the code; raise DamagedError if they are not there.

    They are read from the ELF file: by its table of symbols, in the section that the symbol is of.
    """
    try:
        (sections_at,) = struct.unpack_from("<Q", cubin, 40)
        entry, count = struct.unpack_from("<HH", cubin, 58)
        sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, sections_at + i * entry) for i in range(count)]
        for _, kind, _, _, at, size, link, _, _, each in sections:
            if kind != 2:  # SHT_SYMTAB
                continue
            names = sections[link][4]
            for offset in range(at, at + size, each):
                name, _, _, section, value, length = struct.unpack_from("<IBBHQQ", cubin, offset)
                start = names + name
                if cubin[start : cubin.index(b"\0", start)].decode() == _FACTS:
                    place = sections[section][4] + value
                    return struct.unpack_from(f"<{length // 4}i", cubin, place)
    except (struct.error, IndexError, ValueError) as error:
        raise DamagedError(f"no GPU code: {error}") from None
    raise DamagedError(f"the code does not hold {_FACTS}")
