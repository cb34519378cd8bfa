"""The only module that touches cuda-cccl's bindings, which are private API.

`cuda.compute` takes 0.25 to 0.6 s to import, its extension module 5 ms: the extension is loaded from its
own file, under its own full name, so that a later ``import cuda.compute`` finds the same module.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.machinery
import importlib.util
import io
import pickle
import re
import struct
import sys
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from .._base import fork, versions
from .._base.errors import BuildError, VersionError
from .._ir.cpp import symbol
from . import toolchain

SUPPORTED = ((1, 2, 1), (1, 3))  # of cuda-cccl, from and below

_TYPE_NAMES = {
    "b1": "BOOLEAN",
    "i1": "INT8",
    "i2": "INT16",
    "i4": "INT32",
    "i8": "INT64",
    "u1": "UINT8",
    "u2": "UINT16",
    "u4": "UINT32",
    "u8": "UINT64",
    "f2": "FLOAT16",
    "f4": "FLOAT32",
    "f8": "FLOAT64",
}


class UnknownFormatError(Exception):
    """A serialised build does not look as expected, so its kernels cannot be taken out and linked."""


class DamagedError(ValueError):
    """What should be a serialised build is not one."""


def check_version() -> None:
    """Raise `VersionError` unless cuda-cccl's bindings are those that cupar was written for."""
    version = versions.package_version("cuda-cccl")
    try:
        numbers = tuple(int(part) for part in version.split(".")[:3])
    except ValueError:
        numbers = ()
    low, below = SUPPORTED
    if not low <= numbers < below:
        wanted = f">={'.'.join(map(str, low))},<{'.'.join(map(str, below))}"
        raise VersionError(f"cupar needs cuda-cccl{wanted}, found {version}: pip install 'cuda-cccl{wanted}'")


def _extension() -> tuple[str, Path]:
    """Return the full name and the file of the bindings."""
    import cuda

    if not hasattr(cuda, "__path__"):
        raise VersionError(f"{cuda.__file__} hides NVIDIA's package 'cuda': rename it")
    package = f"cuda.compute.cu{toolchain.cuda_major()}"
    folder = versions.package_folder(package)
    if folder is not None:
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            path = folder / f"_bindings_impl{suffix}"
            if path.is_file():
                return f"{package}._bindings_impl", path
    raise VersionError(
        f"cuda-cccl {versions.package_version('cuda-cccl')} has no bindings for CUDA "
        f"{toolchain.cuda_major()} and Python {sys.version_info.major}.{sys.version_info.minor}"
    )


_bindings: Any = None
_loading = fork.Lock()


def bindings() -> Any:
    """Load and return the bindings' extension module, with the libraries that it needs."""
    global _bindings
    if _bindings is None:
        with _loading:
            if _bindings is None:
                _bindings = _load_bindings()
    return _bindings


def _load_bindings() -> Any:
    check_version()
    name, path = _extension()
    if name in sys.modules:
        return sys.modules[name]
    for library in ("nvrtc", "nvJitLink"):
        toolchain.load_library(library)
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        from . import driver_stub

        driver_stub.load([path, *path.parent.glob("cccl/*.so*")])
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[name] = module  # not before it is whole: other threads may look
    return module


@functools.cache
def type_info(dtype: np.dtype[Any]) -> Any:
    """Return CCCL's description of a type; what C++ has no arithmetic for is opaque storage."""
    b = bindings()
    name = _TYPE_NAMES.get(dtype.str[1:], "STORAGE")
    return b.TypeInfo(dtype.itemsize, dtype.alignment, b.TypeEnum[name])


def pointer(dtype: np.dtype[Any], address: int = 0) -> Any:
    """Return an iterator that is a plain pointer."""
    return _pointer(type_info(dtype), address)


def _pointer(items: Any, address: int) -> Any:
    b = bindings()
    return b.Iterator(8, b.IteratorKind.POINTER, b.Op(), b.Op(), items, state=address)


def no_array() -> Any:
    """Return what stands for an array that is not there: a null pointer, of any type."""
    return pointer(np.dtype(np.uint8))


def value(array: np.ndarray[Any, Any]) -> Any:
    """Return a value that refers to the memory of an array of one element."""
    return bindings().Value(type_info(array.dtype), array.view(np.uint8))


def _function(name: str, codes: Sequence[bytes], **state: Any) -> Any:
    """Return a device function, LTO-IR of which and of what it calls is given, or else left to the linker."""
    b = bindings()
    code, *more = codes or (b"",)
    kind = b.OpKind.STATEFUL if state.get("state") else b.OpKind.STATELESS
    return b.Op(name=name, operator_type=kind, ltoir=code, extra_ltoirs=more, **state)


def iterator(parameter: str, value: np.dtype[Any], state: bytearray, codes: Sequence[bytes] = ()) -> Any:
    """Return an iterator with device functions ``<symbol>_advance`` and ``<symbol>_dereference``.

    It yields or takes a `value`, and refers to the very buffer of `state`. `codes` are LTO-IR of the two
    functions and what they call; by default both are left to the linker.
    """
    b = bindings()
    advance = _function(f"{symbol(parameter)}_advance", codes)
    dereference = _function(f"{symbol(parameter)}_dereference", ())
    kind = b.IteratorKind.ITERATOR
    return b.Iterator(8, kind, advance, dereference, type_info(value), state=b.IteratorState(state))


def operator(
    parameter: str,
    kind: int | None,
    codes: Sequence[bytes] = (),
    state_size: int = 0,
    state_alignment: int = 1,
) -> Any:
    """Return an operator: one of CCCL's own, by its number, or a device function with a state.

    `codes` are LTO-IR of that function and what it calls; by default it is left to the linker.
    """
    if kind is None:
        return _function(symbol(parameter), codes, state=bytes(state_size), state_alignment=state_alignment)
    b = bindings()
    return b.Op(name="", operator_type=b.OpKind(kind), ltoir=b"")


def compile_native(native: str, arguments: Sequence[Any], cc: int) -> Any:
    """Have CCCL run NVRTC on an algorithm's kernels; return an instance of `native`, not loaded.

    `native` names one of the bindings' classes, and `arguments` are what its ``compile`` takes before the
    common data; a `functools.partial` stands for what it returns. The result holds LTO-IR if it uses
    functions left to the linker, otherwise a cubin.
    """
    b = bindings()
    arguments = [each() if isinstance(each, functools.partial) else each for each in arguments]
    cccl, toolkit = toolchain.include_folders()
    # NVRTC gets these as they are. CUB, Thrust and libcu++ have one folder, so there is room for an option.
    options = f"-I{cccl}", toolchain.UNROLL_OPTION, f"-I{cccl}", f"-I{toolkit}"
    common = b.CommonData(*divmod(cc, 10), *options)
    from . import compiler_output

    with compiler_output.held() as printed:
        try:
            return getattr(b, native).compile(*arguments, common)
        except RuntimeError as error:
            raise BuildError(f"for sm_{cc}: {error}{printed.reason()}") from error


class _Pickler(pickle.Pickler):
    """Pickles the arguments of `compile_native`, the bindings' objects that hold no code among them."""

    def reducer_override(self, obj: Any) -> Any:
        """Return how to make an object again, NotImplemented if as pickle does it."""
        b, kind = bindings(), type(obj)
        if kind is b.TypeInfo:
            return _remade, ("TypeInfo", obj.size, obj.alignment, obj.typenum)
        if kind is b.Value:
            return _remade, ("Value", obj.type, bytearray(obj.state))
        if kind is b.Iterator and obj.is_ptr_kind:
            return _pointer, (obj.value_type, obj.state)
        if kind is b.Op and not (obj.name or obj.ltoir or obj.state):
            return operator, ("", int(obj.operator_type))
        if issubclass(kind, IntEnum) and (name := _enum_name(kind)):
            return _remade, (name, int(obj))
        return NotImplemented


@functools.cache
def _enum_name(kind: type) -> str | None:
    """Return the name of one of the bindings' enumerations: they are of a module that is not there."""
    return next((name for name, value in vars(bindings()).items() if value is kind), None)


def _remade(name: str, *arguments: Any) -> Any:
    return getattr(bindings(), name)(*arguments)


def pack(native: str, arguments: Sequence[Any], cc: int) -> bytes:
    """Return what `compile_native` takes as bytes, for another process.

    That fails for an object of the bindings with code in it: a `functools.partial` has to stand for it.
    """
    buffer = io.BytesIO()
    _Pickler(buffer).dump((native, arguments, cc))
    return buffer.getvalue()


def unpack(packed: bytes) -> tuple[str, Sequence[Any], int]:
    """Return what was packed."""
    request: tuple[str, Sequence[Any], int] = pickle.loads(packed)
    return request


# A serialised build: magic, format, kind of payload (0 LTO-IR, 1 cubin), …, u64 length, payload, …
_MAGIC = b"CCCLSER1"
_KIND_AT = 12
_LTOIR, _CUBIN = 0, 1


def split(result: Any) -> tuple[bytes, bytes, bytes]:
    """Cut a serialised build at its LTO-IR, and return what is before that, itself, and what is after.

    Anything else than LTO-IR that waits for the linker raises `UnknownFormatError`.
    """
    blob: bytes = result.serialize()
    kernels: bytes = result._get_cubin()
    if not blob.startswith(_MAGIC) or len(blob) < _KIND_AT + 4:
        raise UnknownFormatError("magic")
    if struct.unpack_from("<I", blob, _KIND_AT)[0] != _LTOIR:
        raise UnknownFormatError("payload is not LTO-IR")
    if not kernels or blob.count(kernels) != 1:
        raise UnknownFormatError("payload is not there exactly once")
    at = blob.index(kernels) - 8
    if at < _KIND_AT + 4 or struct.unpack_from("<Q", blob, at)[0] != len(kernels):
        raise UnknownFormatError("payload without its length")
    return blob[:at], kernels, blob[at + 8 + len(kernels) :]


def join(head: bytes, cubin: bytes, tail: bytes) -> bytes:
    """Return the serialised build that holds a cubin where `split` found LTO-IR."""
    head = head[:_KIND_AT] + struct.pack("<I", _CUBIN) + head[_KIND_AT + 4 :]
    return head + struct.pack("<Q", len(cubin)) + cubin + tail


def deserialize(native: str, blob: bytes) -> Any:
    """Return what `compile_native` returned; raise DamagedError if `blob` is not one of these serialised."""
    build: Any = getattr(bindings(), native)
    try:
        return build.deserialize(blob, load=False, check_cc=False)
    except RuntimeError as error:
        raise DamagedError(f"no serialised {native}: {error}") from None


_LOAD_FAILED = re.compile(r"error code: (\d+)$")


def load(result: Any) -> int:
    """Load a deserialised build's cubin into the current context; return the driver's status."""
    try:
        result.load()
    except RuntimeError as error:
        status = _LOAD_FAILED.search(str(error))
        if status is None or not int(status[1]):
            raise
        return int(status[1])
    return 0


def cubin(native: str, blob: bytes) -> bytes:
    """Return the cubin in a serialised build."""
    code: bytes = deserialize(native, blob)._get_cubin()
    return code
