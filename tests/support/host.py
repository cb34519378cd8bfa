"""A process whose CUDA driver is `driver.c`: compiled host code runs there, and its launches can be read.

It is for processes of their own: a process has one driver. `main` of such a process gets a `Driver`.
"""

import ctypes
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

SOURCE = Path(__file__).with_name("driver.c")


def compiled(folder):
    """Compile the driver; skip the test if there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    made = Path(folder, "libcuda.so.1")
    if not made.exists():
        command = [compiler, "-O1", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", made, SOURCE]
        subprocess.run(command, check=True)
    return made


class Launch(NamedTuple):
    """What was launched."""

    kernel: str
    grid: tuple
    block: tuple
    shared: int
    stream: int
    attribute: int
    parameters: tuple  # of bytes


class Driver:
    """The driver of this process."""

    def __init__(self, library):
        self.library = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        self.library.kernel_name.restype = ctypes.c_char_p
        words = ctypes.c_uint64 * (1 << 22)
        self._words = words.in_dll(self.library, "taken_down")
        self._count = ctypes.c_size_t.in_dll(self.library, "words_taken_down")
        self.allocations = (ctypes.c_uint64 * 3).in_dll(self.library, "allocations")

    def set(self, name, value):
        kind = ctypes.c_void_p if name == "current_context" else ctypes.c_int
        kind.in_dll(self.library, name).value = value

    def knows(self, algorithm):
        """Tell it the sizes of the kernels' parameters, as the GPU code says them."""
        for kernel, sizes in sizes_of_parameters(algorithm.cubin()).items():
            given = (ctypes.c_int * len(sizes))(*sizes)
            self.library.set_parameters(kernel.encode(), len(sizes), given)

    def taken(self):
        """Return what was launched since it was asked last."""
        words = iter(list(self._words[: self._count.value]))
        self._count.value = 0
        found = []
        for kernel in words:
            head = [next(words) for _ in range(9)]
            parameters = []
            for _ in range(next(words)):
                size = next(words)
                data = b"".join(struct.pack("=Q", next(words)) for _ in range(-(-size // 8)))
                parameters.append(data[:size])
            name = self.library.kernel_name(int(kernel)).decode()
            found.append(Launch(name, tuple(head[:3]), tuple(head[3:6]), *head[6:9], tuple(parameters)))
        return found


def sizes_of_parameters(cubin):
    """Return the bytes of each parameter of each kernel, as ``.nv.info`` says them."""
    from cupar._kernels.elf import Elf

    elf, found = Elf(cubin), {}
    for section in elf.sections:
        if section.name.startswith(".nv.info."):
            given = [value for attribute, value in elf.attributes(section) if attribute == 0x17]
            sizes = {
                struct.unpack_from("<H", each, 4)[0]: struct.unpack_from("<H", each, 10)[0] >> 2
                for each in given
            }
            found[section.name.removeprefix(".nv.info.")] = [sizes[k] for k in sorted(sizes)]
    return found


class Array:
    """A device array at an address that nobody reads."""

    def __init__(self, address, size, dtype, read_only=False, strides=None):
        shape = size if isinstance(size, tuple) else (size,)
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": np.dtype(dtype).str,
            "descr": np.dtype(dtype).descr,
            "data": (address, read_only),
            "strides": strides,
            "version": 3,
        }


def run(tmp_path, file, cache, *arguments, **environment):
    """Run a file's `main` in a process with the driver."""
    library = compiled(tmp_path)
    own = {key: value for key, value in os.environ.items() if not key.startswith("CUPAR_")}
    own |= {"CUPAR_CACHE_DIR": str(cache), "CUPAR_GRAPHS": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(file), str(library), *arguments]
    return subprocess.run(command, env={**own, **environment}, capture_output=True, text=True, timeout=600)
