"""Facts that a cubin holds without a GPU: symbols of its ELF file, and resources of its kernels."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from .._base.data import dataclass

_SYMBOLS, _CUDA_INFO = 2, 0x70000000  # SHT_SYMTAB, SHT_CUDA_INFO
_REGISTERS, _FRAME = 0x2F, 0x11  # EIATTR_REGCOUNT, EIATTR_FRAME_SIZE: a symbol's number, and a value
_MAX_THREADS = 0x05  # EIATTR_MAX_THREADS
_SIZED = 4  # EIFMT_SVAL: the two bytes behind the attribute are the size of its value


NOT_ELF = (struct.error, IndexError, OverflowError, ValueError)  # raised for bytes that are no ELF file


class Resources(NamedTuple):
    """Resources of a kernel.

    Attributes
    ----------
    registers : int
        Of each thread.
    shared : int
        Bytes of static shared memory of each block.
    local : int
        Bytes of local memory of each thread: its stack, to which registers are spilt.
    max_threads : int or None
        Threads in a block for which it was compiled at most; None if it does not say.
    """

    registers: int
    shared: int
    local: int
    max_threads: int | None


@dataclass(frozen=True)
class Section:
    """A section of an ELF file."""

    name: str
    kind: int
    flags: int
    at: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int


@dataclass(frozen=True)
class Symbol:
    """A symbol of an ELF file."""

    name: str
    section: int  # 0: it is not defined here
    value: int
    size: int
    info: int  # binding and type


class Elf:
    """An ELF file; one of `NOT_ELF` is raised if it is not one, by its methods, too."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        (at,) = struct.unpack_from("<Q", data, 40)
        size, count, names = struct.unpack_from("<HHH", data, 58)
        found = [struct.unpack_from("<IIQQQQIIQQ", data, at + i * size) for i in range(count)]
        start = found[names][4]
        self.sections = [
            Section(self._text(start + name), kind, flags, at, size, link, info, alignment, entry)
            for name, kind, flags, _, at, size, link, info, alignment, entry in found
        ]

    def _text(self, at: int) -> str:
        return self.data[at : self.data.index(b"\0", at)].decode()

    def symbols(self) -> list[Symbol]:
        """Return its symbols, in the order of their numbers."""
        found = []
        for section in self.sections:
            if section.kind == _SYMBOLS:
                names = self.sections[section.link].at
                for at in range(section.at, section.at + section.size, section.entry):
                    name, info, _, where, value, size = struct.unpack_from("<IBBHQQ", self.data, at)
                    found.append(Symbol(self._text(names + name), where, value, size, info))
        return found

    def attributes(self, section: Section) -> Iterator[tuple[int, bytes]]:
        """Yield the attributes of a section of ``.nv.info``, with their bytes."""
        at, end = section.at, section.at + section.size
        while at < end:
            form, attribute, size = struct.unpack_from("<BBH", self.data, at)
            at += 4
            if form == _SIZED:
                yield attribute, self.data[at : at + size]
                at += size


def resources_of(cubin: bytes) -> dict[str, Resources]:
    """Return the resources of each kernel, by symbol; ValueError if this is no GPU code."""
    try:
        elf = Elf(cubin)
        names = [symbol.name for symbol in elf.symbols()]
        registers, frames, threads = dict.fromkeys(names, 0), dict.fromkeys(names, 0), {}
        shared: dict[str, int] = {}
        for section in elf.sections:
            if section.name.startswith(".nv.shared."):
                shared[section.name.removeprefix(".nv.shared.")] = section.size
            if section.kind != _CUDA_INFO:
                continue
            kernel = section.name.removeprefix(".nv.info.")
            for attribute, value in elf.attributes(section):
                if attribute in (_REGISTERS, _FRAME):
                    number, amount = struct.unpack("<II", value)
                    (registers if attribute == _REGISTERS else frames)[names[number]] = amount
                elif attribute == _MAX_THREADS:
                    x, y, z = struct.unpack("<III", value)
                    threads[kernel] = x * y * z
        kernels = [
            each.name.removeprefix(".nv.info.") for each in elf.sections if each.name.startswith(".nv.info.")
        ]
        return {
            name: Resources(registers[name], shared.get(name, 0), frames[name], threads.get(name))
            for name in sorted(kernels)
        }
    except (*NOT_ELF, KeyError) as error:
        raise ValueError(f"no GPU code: {error!r}") from None
