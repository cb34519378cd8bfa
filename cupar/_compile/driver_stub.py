"""A stand-in for libcuda on machines that have no NVIDIA driver.

CCCL's bindings are linked against ``libcuda.so.1``, so they cannot even be loaded without it, although
compiling needs no driver. The stand-in is a shared object with that SONAME in which every entry returns
``CUDA_ERROR_NO_DEVICE``, as the driver itself would without a GPU. Python alone writes it, since such a
machine may have no linker either, and the CUDA toolkit's own stub is in no wheel.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import struct
import tempfile
from collections.abc import Iterable
from pathlib import Path

_SONAME = "libcuda.so.1"
# e_machine of ELF, and `return 100;` (CUDA_ERROR_NO_DEVICE) as machine code.
_MACHINES = {
    "x86_64": (62, bytes.fromhex("b864000000c3")),
    "aarch64": (183, bytes.fromhex("800c8052c0035fd6")),
}


def driver_symbols(libraries: Iterable[Path]) -> list[str]:
    """Return names that look like driver entry points (``cuInit``, …); a few that are not do no harm."""
    names: set[bytes] = set()
    for library in libraries:
        names.update(re.findall(rb"(?<=\0)cu[A-Z]\w+(?=\0)", library.read_bytes()))
    return sorted(name.decode() for name in names)


def shared_object(symbols: Iterable[str], machine: str | None = None) -> bytes:
    """Return an ELF shared object named ``libcuda.so.1`` whose functions all return CUDA_ERROR_NO_DEVICE.

    It has one read-only executable segment over the whole file, a dynamic section, and a SysV hash table with
    a single bucket. The layout follows the System V ABI, chapters 4 and 5. `machine` is what
    `platform.machine` says, by default here.
    """
    machine = machine or platform.machine()
    if machine not in _MACHINES:
        raise ImportError(f"cupar can stand in for {_SONAME} on x86_64 and aarch64, not on {machine}")
    elf_machine, code = _MACHINES[machine]

    strings = b"\0"
    offsets = []
    for name in (_SONAME, *symbols):
        offsets.append(len(strings))
        strings += name.encode() + b"\0"
    soname_offset, *symbol_offsets = offsets
    count = 1 + len(symbol_offsets)  # with the null symbol
    chain = [0, *range(2, count), 0][:count]

    header_size, segment_size = 64, 56
    text_at = header_size + 3 * segment_size
    text = code.ljust(16, b"\0")
    symbols_at = -(-(text_at + len(text)) // 16) * 16
    table = bytes(24) + b"".join(
        struct.pack("<IBBHQQ", offset, 0x12, 0, 1, text_at, len(code)) for offset in symbol_offsets
    )
    hash_at = symbols_at + len(table)
    hash_table = struct.pack(f"<II I {count}I", 1, count, min(1, count - 1), *chain)
    hash_table += bytes(-len(hash_table) % 8)
    dynamic_at = hash_at + len(hash_table)
    strings_at = dynamic_at + 16 * 7  # after the entries
    entries = (
        (4, hash_at),  # DT_HASH
        (5, strings_at),  # DT_STRTAB
        (6, symbols_at),  # DT_SYMTAB
        (10, len(strings)),  # DT_STRSZ
        (11, 24),  # DT_SYMENT
        (14, soname_offset),  # DT_SONAME
        (0, 0),  # DT_NULL
    )
    dynamic = b"".join(struct.pack("<qQ", *entry) for entry in entries)
    size = strings_at + len(strings)

    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01",
        *(3, elf_machine, 1, 0, header_size, 0, 0, header_size, segment_size, 3, 64, 0, 0),
    )
    segments = (
        struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 0x10000)  # PT_LOAD, readable and executable
        + struct.pack("<IIQQQQQQ", 2, 4, *[dynamic_at] * 3, *[len(dynamic)] * 2, 8)  # PT_DYNAMIC
        + struct.pack("<IIQQQQQQ", 0x6474E551, 6, 0, 0, 0, 0, 0, 16)  # PT_GNU_STACK: not executable
    )
    image = header + segments + text
    image += bytes(symbols_at - len(image)) + table + hash_table + dynamic + strings
    return image


def load(libraries: Iterable[Path]) -> None:
    """Load a stand-in with all driver entry points that `libraries` may ask for."""
    image = shared_object(driver_symbols(libraries))
    # In memory first: directories for temporary files may be full, missing or mounted 'noexec'.
    try:
        _load_from_memory(image)
    except (OSError, AttributeError):  # not Linux, no /proc, or memory is not executed (vm.memfd_noexec)
        _load_from_file(image)


def _load_from_memory(image: bytes) -> None:
    file = os.memfd_create(_SONAME)
    try:
        with os.fdopen(file, "wb", closefd=False) as memory:
            memory.write(image)
        # In a spelling of its own ('./'): the loader takes libraries of one name for the same, and others may
        # load theirs in this way, too.
        ctypes.CDLL(f"/proc/self/./fd/{file}", mode=ctypes.RTLD_LOCAL)
    finally:
        os.close(file)  # the mapping outlives it


def _load_from_file(image: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".so", delete=False) as file:
        file.write(image)
    try:
        ctypes.CDLL(file.name, mode=ctypes.RTLD_LOCAL)
    finally:
        os.unlink(file.name)  # noqa: PTH108 - the mapping outlives the name
