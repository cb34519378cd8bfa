"""A build as it is stored: the GPU code, and its properties, integers from which planners make facts."""

from __future__ import annotations

import struct

from .._base.data import dataclass

_MAGIC = b"CUPARIMG"
PROPERTIES = "cupar_properties"


class DamagedError(ValueError):
    """What should be an image is not one."""


@dataclass(frozen=True)
class Image:
    """GPU code, an ELF file, with the integers that its family's plans need."""

    properties: dict[str, int]
    cubin: bytes

    def dumps(self) -> bytes:
        """Return it as bytes."""
        header = " ".join(f"{name}={value}" for name, value in self.properties.items()).encode()
        return _MAGIC + struct.pack("<I", len(header)) + header + self.cubin

    @staticmethod
    def loads(data: bytes) -> Image:
        """Return the stored image; raise DamagedError if the bytes are not one."""
        properties, at = _head(data)
        cubin = data[at:]
        if not cubin.startswith(b"\x7fELF"):
            raise DamagedError("no image of a build")
        return Image(properties, cubin)


def properties_in(data: bytes) -> dict[str, int]:
    """Return the properties of a stored image; raise DamagedError if it is not one."""
    return _head(data)[0]


def _head(data: bytes) -> tuple[dict[str, int], int]:
    """Return the properties, and where the GPU code begins."""
    if not data.startswith(_MAGIC) or len(data) < 12:
        raise DamagedError("no image of a build")
    (length,) = struct.unpack_from("<I", data, 8)
    try:
        words = [each.split("=") for each in data[12 : 12 + length].decode().split()]
        return {name: int(value) for name, value in words}, 12 + length
    except ValueError as error:
        raise DamagedError(f"no image of a build: {error}") from None


def properties_of(cubin: bytes) -> tuple[int, ...]:
    """Return the integers that a family put into the code; raise DamagedError if they are not there.

    They are read from the ELF file: by its table of symbols, in the section that the symbol is of.
    """
    from .elf import NOT_ELF, Elf

    try:
        elf = Elf(cubin)
        for symbol in elf.symbols():
            if symbol.name == PROPERTIES:
                place = elf.sections[symbol.section].at + symbol.value
                return struct.unpack_from(f"<{symbol.size // 4}i", cubin, place)
    except NOT_ELF as error:
        raise DamagedError(f"no GPU code: {error}") from None
    raise DamagedError(f"the code does not hold {PROPERTIES}")
