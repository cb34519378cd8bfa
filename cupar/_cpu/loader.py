"""Loads a build's object code without LLVM: on Linux, x86-64.

numba compiles with LLVM's large code model, where all that is elsewhere is addressed by 64 bits, so objects
have relocations of one kind. Whatever else there is in an object is refused, and LLVM is needed to load it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress

from .._base.versions import machine
from .._kernels.elf import Elf

_X86_64, _OBJECT = 62, 1  # EM_X86_64, ET_REL
_DATA, _RELA, _ZEROS, _REL = 1, 4, 8, 9  # SHT_PROGBITS, SHT_RELA, SHT_NOBITS, SHT_REL
_WRITE, _LOADED, _OF_THREADS = 1, 2, 0x400  # SHF_WRITE, SHF_ALLOC, SHF_TLS
_ABSOLUTE, _COMMON = 0xFFF1, 0xFFF2  # SHN_ABS, SHN_COMMON
_ADDRESS = 1  # R_X86_64_64
_UNWINDING = ".eh_frame"  # for exceptions in C++, and debuggers
_READ_AND_EXECUTE = 1 | 4  # PROT_READ, PROT_EXEC


class UnsupportedError(ValueError):
    """An object file that this cannot load; the message says why."""


def is_possible() -> bool:
    """Whether objects for this machine can be loaded here."""
    return sys.platform == "linux" and machine() == "x86_64" and sys.maxsize > 1 << 32


def symbol(name: str) -> int | None:
    """Return the address of a function of C's libraries, None if they have none of that name."""
    for library in (None, "libm.so.6", "libgcc_s.so.1"):
        with suppress(OSError, AttributeError):
            return ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p).value
    return None


def load(code: bytes, name: str, find: Callable[[str], int | None] = symbol) -> tuple[object, int]:
    """Load an object; return what keeps it loaded, and the address of a function in it.

    Raises
    ------
    UnsupportedError
        If there is something in it that this does not load, or it calls what `find` does not find.
    OSError
        If the system does not let code be placed in memory.
    """
    try:
        found = _Object(code, find)
        found.relocate()
        entry = found.defined(name)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise UnsupportedError(f"it is no object file ({error})") from None
    found.protect()
    return found.memory, entry


class _Object:
    """An object in memory: code and constants, and writable data on pages of its own."""

    def __init__(self, code: bytes, find: Callable[[str], int | None]) -> None:
        if (code[:6], *struct.unpack_from("<HH", code, 16)) != (b"\x7fELF\x02\x01", _OBJECT, _X86_64):
            raise UnsupportedError("it is no object file for x86-64")
        elf = Elf(code)
        self._code, self._find = code, find
        self._symbols, self._sections = elf.symbols(), elf.sections
        self._places: dict[int, int] = {}  # by number of the section, offset in memory
        self._commons: dict[int, int] = {}  # of variables that no section has, by number of the symbol
        every = enumerate(self._sections)
        loaded = [i for i, each in every if each.flags & _LOADED and each.name != _UNWINDING]
        for i in loaded:
            if self._sections[i].kind not in (_DATA, _ZEROS) or self._sections[i].flags & _OF_THREADS:
                raise UnsupportedError(f"it has a section {self._sections[i].name}")
        end = self._place(0, [i for i in loaded if not self._sections[i].flags & _WRITE])
        self._fixed = _aligned(end, mmap.PAGESIZE)
        end = self._place(self._fixed, [i for i in loaded if self._sections[i].flags & _WRITE])
        for number, each in enumerate(self._symbols):
            if each.section == _COMMON:
                self._commons[number] = _aligned(end, each.value)
                end = self._commons[number] + each.size
        self.memory = mmap.mmap(-1, max(end, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        for i, place in self._places.items():
            section = self._sections[i]
            if section.kind == _DATA:
                data = code[section.at : section.at + section.size]
                self.memory[place : place + len(data)] = data

    def _place(self, end: int, numbers: Iterable[int]) -> int:
        """Give sections their places; return where the last one ends."""
        for i in numbers:
            self._places[i] = _aligned(end, self._sections[i].alignment)
            end = self._places[i] + self._sections[i].size
        return end

    def _address(self, number: int) -> int:
        each = self._symbols[number]
        if each.section == 0:
            found = self._find(each.name)
            if found is None:
                raise UnsupportedError(f"it calls {each.name}, which is not there")
            return found
        if each.section == _ABSOLUTE:
            return each.value
        if each.section == _COMMON:
            return self._base + self._commons[number]
        if each.section not in self._places:
            raise UnsupportedError(f"its symbol {each.name} is nowhere")
        return self._base + self._places[each.section] + each.value

    def relocate(self) -> None:
        """Write addresses where the code has them."""
        for section in self._sections:
            if section.kind not in (_RELA, _REL) or section.info not in self._places:
                continue
            for at in range(section.at, section.at + section.size, 24):
                offset, info, addend = struct.unpack_from("<QQq", self._code, at)
                if section.kind == _REL or info & 0xFFFFFFFF != _ADDRESS:
                    raise UnsupportedError(f"it has a relocation of kind {info & 0xFFFFFFFF}")
                if offset + 8 > self._sections[section.info].size:
                    raise UnsupportedError("a relocation lies outside of its section")
                value = (self._address(info >> 32) + addend) % (1 << 64)
                struct.pack_into("<Q", self.memory, self._places[section.info] + offset, value)

    def defined(self, name: str) -> int:
        """Return the address of a function that it defines."""
        numbers = [i for i, each in enumerate(self._symbols) if each.name == name and each.section]
        if len(numbers) != 1:
            raise UnsupportedError(f"it does not define {name}")
        return self._address(numbers[0])

    def protect(self) -> None:
        """Make the code executable, and no longer writable."""
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        if protect(self._base, self._fixed, _READ_AND_EXECUTE):
            number = ctypes.get_errno()
            raise OSError(number, f"code cannot be placed in memory: {os.strerror(number)}")


def _aligned(at: int, alignment: int) -> int:
    """Return the first place from `at` on that has an alignment, a power of two."""
    if alignment > mmap.PAGESIZE:
        raise UnsupportedError(f"it wants an alignment of {alignment} bytes")
    return -(-at // max(alignment, 1)) * max(alignment, 1)
