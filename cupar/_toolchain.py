"""The compilers: where they are, which versions they have, and the three calls cupar makes to them.

NVRTC compiles the C++ of converting iterators, numba.cuda compiles Python operators, nvJitLink links both
with CCCL's kernels. Finding them and reading their versions is on the path of every start, so that part
imports nothing heavy; the compilers themselves are imported by the functions that call them.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any, Protocol

import numpy as np

from . import _cache, _captures, _fingerprint, _fork, structs


class BuildError(RuntimeError):
    """A compiler refused what cupar gave it; the message holds the compiler's own."""


# ---------------------------------------------------------------------------------------------------------
# Versions
# ---------------------------------------------------------------------------------------------------------


def _distributions() -> Iterator[tuple[str, str]]:
    """Yield (normalised name, version) of installed distributions in the order of `sys.path`."""
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208 - a Path for each of 500 names costs 1 ms
        except OSError:
            continue
        for name in names:
            if name.endswith(".dist-info"):
                project, _, version = name[: -len(".dist-info")].partition("-")
                yield project.replace("_", "-").replace(".", "-").lower(), version


@functools.cache
def _installed() -> dict[str, str]:
    # `importlib.metadata` finds the same, but importing it costs 15 ms, a fifth of what a start may cost.
    found: dict[str, str] = {}
    for project, version in _distributions():
        found.setdefault(project, version)
    return found


@functools.cache
def package_version(project: str) -> str:
    """Return the version of an installed distribution, ``"absent"`` if there is none."""
    version = _installed().get(project)
    if version is None:
        from importlib import metadata

        try:
            version = metadata.version(project)
        except metadata.PackageNotFoundError:
            version = "absent"
    return version


def cuda_major() -> int:
    """Return 12 or 13: the CUDA for which cuda-bindings, and so cuda-cccl's extension, was made.

    Raises
    ------
    ImportError
        If cuda-bindings is missing or of another major version.
    """
    version = package_version("cuda-bindings")
    major = version.partition(".")[0]
    if major not in ("12", "13"):
        raise ImportError(f"cupar needs cuda-bindings 12 or 13, found {version}: pip install cupar[cu13]")
    return int(major)


@dataclass(frozen=True)
class _Library:
    """A compiler library: its name for cuda.pathfinder, its SONAME and its place in NVIDIA's wheels."""

    name: str
    soname: str
    wheel: str


def _library(name: str) -> _Library:
    major = cuda_major()
    soname, wheel_12 = {
        "nvrtc": (f"libnvrtc.so.{major}", "cuda_nvrtc/lib"),
        "nvJitLink": (f"libnvJitLink.so.{major}", "nvjitlink/lib"),
        "nvvm": ("libnvvm.so.4", "cuda_nvcc/nvvm/lib64"),
    }[name]
    return _Library(name, soname, f"nvidia/{'cu13/lib' if major == 13 else wheel_12}/{soname}")


def _loaded_path(soname: str) -> Path | None:
    """Return the file of a library that this process has loaded already, PyTorch's perhaps."""
    try:
        ctypes.CDLL(soname, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        mapped = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    found = (Path(line.partition("/")[2]) for line in mapped.splitlines() if f"/{soname}" in line)
    return next((Path("/", path) for path in found), None)


@functools.cache
def library_path(name: str) -> Path:
    """Return the file of a compiler library, without loading it if it can be found so.

    The places and their order are cuda.pathfinder's: what is loaded, NVIDIA's wheels, then all others. For
    those pathfinder itself is asked, which costs 40 ms, so the cache keeps its answer.

    Parameters
    ----------
    name : {"nvrtc", "nvJitLink", "nvvm"}

    Raises
    ------
    ImportError
        If the library is nowhere.
    """
    library = _library(name)
    loaded = _loaded_path(library.soname)
    if loaded is not None:
        return loaded
    for folder in sys.path:
        path = Path(folder, library.wheel)
        if path.is_file():
            return path
    found = _cache.fetch(_search_key(library), lambda: _search(library), portable=False)
    entry = found.entry
    path = Path(entry.payload.decode())
    if entry.meta.get("entry") != "search" or not path.is_file():  # none of this machine's, or out of date
        path = Path(_search(library).payload.decode())
    return path


def _search(library: _Library) -> _cache.Entry:
    from cuda import pathfinder

    try:
        path = pathfinder.load_nvidia_dynamic_lib(library.name).abs_path
    except pathfinder.DynamicLibNotFoundError as error:
        raise ImportError(
            f"cupar needs {library.soname} to build: pip install cupar[cu{cuda_major()}], or set CUDA_HOME "
            f"to a CUDA {cuda_major()} toolkit"
        ) from error
    return _cache.Entry({"entry": "search", "library": library.soname}, str(path).encode())


def _search_key(library: _Library) -> str:
    """Return a key for all that decides where pathfinder finds a library."""
    variables = ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX", "LD_LIBRARY_PATH")
    decides: list[Any] = [library.soname, sys.prefix, *map(os.environ.get, variables)]
    # These change when a toolkit, or the link to one, comes or goes.
    for place in ("/etc/ld.so.cache", "/usr/local", os.environ.get("CONDA_PREFIX", "") + "/lib"):
        with suppress(OSError):
            decides.append([place, Path(place).stat().st_mtime_ns])
    return hashlib.sha256(repr(decides).encode()).hexdigest()


def load_library(name: str) -> None:
    """Load a compiler library so that libraries loaded later find it under its SONAME."""
    ctypes.CDLL(str(library_path(name)), mode=ctypes.RTLD_GLOBAL)


@functools.cache
def _library_version(name: str) -> str:
    """Return a tag of the library's very file: the head of an ELF file holds its layout and build id."""
    path = library_path(name)
    with path.open("rb") as file:
        head = file.read(4096)
        size = os.fstat(file.fileno()).st_size
    return f"{size}-{hashlib.sha256(head).hexdigest()[:16]}"


def _headers_project() -> str:
    return "nvidia-cuda-runtime" if cuda_major() == 13 else "nvidia-cuda-runtime-cu12"


@functools.cache
def template_versions() -> dict[str, str]:
    """Return the versions that CCCL's kernels depend on: the sources, their compiler and the linker."""
    return {
        "cuda-cccl": package_version("cuda-cccl"),
        "cuda-major": str(cuda_major()),
        "nvrtc": _library_version("nvrtc"),
        "nvjitlink": _library_version("nvJitLink"),
        # A toolkit that is not made of wheels changes its headers and NVRTC together.
        "cuda-headers": _installed().get(_headers_project(), "toolkit"),
    }


@functools.cache
def operator_versions() -> dict[str, str]:
    """Return the versions that the code of a Python operator depends on.

    NumPy is among them because numba reads the types of ufuncs from it.
    """
    return {
        "python": f"{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}",
        "numba-cuda": package_version("numba-cuda"),
        "numba": package_version("numba"),
        "llvmlite": package_version("llvmlite"),
        "numpy": np.__version__,
        "nvvm": _library_version("nvvm"),
    }


@functools.cache
def include_folders() -> tuple[Path, Path]:
    """Return the folders of CCCL's headers and of the CUDA toolkit's."""
    import cuda

    cccl = next((p for folder in cuda.__path__ if (p := Path(folder, "cccl/headers/include")).is_dir()), None)
    if cccl is None:
        raise ImportError("cuda-cccl is installed without its headers: reinstall cuda-cccl")
    wheel = f"nvidia/{'cu13' if cuda_major() == 13 else 'cuda_runtime'}/include"
    toolkit = next((p for folder in sys.path if (p := Path(folder, wheel)).is_dir()), None)
    if toolkit is None:
        from cuda import pathfinder

        located = pathfinder.find_nvidia_header_directory("cudart")
        if located is None:
            raise ImportError(
                f"cupar needs CUDA's headers to build: pip install cupar[cu{cuda_major()}], or set CUDA_HOME"
            )
        toolkit = Path(located)
    return cccl, toolkit


# ---------------------------------------------------------------------------------------------------------
# C++ and linking
# ---------------------------------------------------------------------------------------------------------


CPP_OPTIONS = ("-dlto", "-rdc=true", "-std=c++17")


def compile_cpp(source: str, cc: int) -> bytes:
    """Compile C++ device functions to LTO-IR with NVRTC."""
    load_library("nvrtc")
    from cuda.bindings import nvrtc

    def check(result: tuple[Any, ...]) -> Any:
        status, *values = result
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise BuildError(f"NVRTC: {nvrtc.nvrtcGetErrorString(status)[1].decode()}")
        return values[0] if values else None

    options = [f"-arch=sm_{cc}", *CPP_OPTIONS, *(f"-I{folder}" for folder in include_folders())]
    program = check(nvrtc.nvrtcCreateProgram(source.encode(), b"cupar.cu", 0, [], []))
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])[0]
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = b" " * check(nvrtc.nvrtcGetProgramLogSize(program))
            check(nvrtc.nvrtcGetProgramLog(program, log))
            raise BuildError(f"NVRTC could not compile for sm_{cc}:\n{log.decode()}")
        code: bytes = b" " * check(nvrtc.nvrtcGetLTOIRSize(program))
        check(nvrtc.nvrtcGetLTOIR(program, code))
        return code
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def link_options() -> list[str]:
    """Return how nvJitLink links, whatever it links."""
    # CUB's headers define hundreds of constants that no kernel uses and nobody looks up: without them a
    # cubin has a third of its size. Kernels go through ptxas on several cores (15 % of a link on two);
    # tried with CUDA 13 alone.
    options = ["-lto", "-optimize-unused-variables"]
    return [*options, "-Xptxas=--split-compile=0"] if cuda_major() == 13 else options


def link(parts: Sequence[bytes], cc: int, names: Sequence[str] = ()) -> bytes:
    """Link LTO-IR into a cubin for ``sm_<cc>`` with nvJitLink; `names` say in errors what the parts are."""
    try:
        return _link(parts, cc)
    except BuildError as error:
        twice = _DEFINED_TWICE.search(str(error))
        if twice is None or not names:
            raise
        # nvJitLink names the second part alone.
        second, symbol = int(twice[1]), twice[2]
        first = next((i for i in range(second) if _both_define(symbol, parts[i], parts[second], cc)), second)
        raise BuildError(
            f"nvJitLink for sm_{cc}: function {symbol!r} is defined by the LTO-IR of {names[first]} and, in "
            f"another way, by that of {names[second]}: give one of the two functions another name"
        ) from None


_DEFINED_TWICE = re.compile(
    r"^part (\d+): .*: Linking globals named '(.*)': symbol multiply defined", re.MULTILINE
)


def _both_define(symbol: str, one: bytes, other: bytes, cc: int) -> bool:
    try:
        _link([one, other], cc)
    except BuildError as error:
        twice = _DEFINED_TWICE.search(str(error))
        return twice is not None and twice[2] == symbol
    return False


def _link(parts: Sequence[bytes], cc: int) -> bytes:
    load_library("nvJitLink")
    from cuda.bindings import nvjitlink

    options = [*link_options(), f"-arch=sm_{cc}"]
    handle = nvjitlink.create(len(options), options)
    try:
        for number, part in enumerate(parts):
            nvjitlink.add_data(handle, nvjitlink.InputType.LTOIR, part, len(part), f"part {number}")
        nvjitlink.complete(handle)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
        return bytes(cubin)
    except nvjitlink.nvJitLinkError as error:
        log = bytearray(nvjitlink.get_error_log_size(handle))
        nvjitlink.get_error_log(handle, log)
        raise BuildError(f"nvJitLink for sm_{cc}: {error}\n{log.decode(errors='replace')}") from error
    finally:
        nvjitlink.destroy(handle)


# ---------------------------------------------------------------------------------------------------------
# Python operators
# ---------------------------------------------------------------------------------------------------------

_target_cc: ContextVar[tuple[int, int] | None] = ContextVar("cupar_target_cc", default=None)


@dataclass(frozen=True)
class _TargetDevice:
    compute_capability: tuple[int, int]


def _numba_cuda() -> Any:
    """Import numba.cuda and make its device functions compile for the cc that cupar is building for.

    A device function that calls another one asks numba for the current device, only to learn its compute
    capability (`CUDADispatcher.compile_device`). Without a GPU that fails; with one it would build for
    the wrong card, and touch it. So the question is answered from `_target_cc` while cupar compiles.
    """
    from numba import config, cuda

    if config.ENABLE_CUDASIM:
        raise BuildError("numba.cuda is a simulator here, which compiles nothing: unset NUMBA_ENABLE_CUDASIM")
    from numba.cuda import dispatcher

    with _compiling:
        ask_driver = dispatcher.get_current_device
        if not hasattr(ask_driver, "for_cupar"):

            def get_current_device() -> Any:
                target = _target_cc.get()
                return ask_driver() if target is None else _TargetDevice(target)

            get_current_device.for_cupar = True  # type: ignore[attr-defined]
            dispatcher.get_current_device = get_current_device
    return cuda


def _numba_type(dtype: np.dtype[Any]) -> Any:
    from numba.cuda.np.numpy_support import from_dtype

    return from_dtype(dtype)


def _names_read(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_read(constant)


def _is_helper(value: object) -> bool:
    """Tell a user's function from all else that an operator may read, stubs of numba's among it."""
    jitted = hasattr(value, "compile_device") and hasattr(value, "py_func")
    return jitted or (isinstance(value, FunctionType) and not _fingerprint.is_compilers(value))


def _device_function(function: Any, made: dict[int, Any], options: Mapping[str, Any] | None = None) -> Any:
    """Wrap a function for numba.cuda, and with it the functions and structs that it calls by name.

    numba compiles calls of jitted functions only; that users decorate each helper of an operator is more
    than they would expect. A function that they did decorate is wrapped anew with its options, for what it
    calls. `made` holds by id what is wrapped, and None for what is being wrapped: a function that calls
    itself is left to numba.
    """
    cuda = _numba_cuda()
    options = _jit_options(function) if options is None else options
    function = getattr(function, "py_func", function)  # of cuda.jit and numba.njit
    if id(function) in made:
        return made[id(function)]
    made[id(function)] = None

    def wrapped(value: Any) -> Any:
        if structs.is_struct(value):
            return _struct_maker(value.dtype)
        if structs.is_struct(type(value)):
            _value_type(type(value).dtype)
            return structs.plain_value(value)
        return (_device_function(value, made) or value) if _is_helper(value) else value

    names = sorted(set(_names_read(function.__code__)) & function.__globals__.keys())
    callees = {name: wrapped(function.__globals__[name]) for name in names}
    copy = FunctionType(
        function.__code__,
        {**function.__globals__, **callees},
        function.__name__,
        _each(wrapped, function.__defaults__),
        tuple(_cell(wrapped, cell) for cell in function.__closure__ or ()) or None,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    made[id(function)] = cuda.jit(device=True, **options)(copy)
    return made[id(function)]


def _jit_options(function: Any) -> dict[str, Any]:
    """Return the options to compile a function with: its own, if it is jitted, but for those of launches."""
    given = getattr(function, "targetoptions", {}) if hasattr(function, "compile_device") else {}
    kept = {name: given[name] for name in ("fastmath", "forceinline", "inline") if given.get(name)}
    return {**NUMBA_OPTIONS, **kept}


def _struct_maker(dtype: np.dtype[Any]) -> Any:
    """Return a device function that makes a struct of its fields, each converted to its type."""
    from numba import cuda

    # The parameters have the names of the fields, for they may be given by name; all other names are longer.
    names = dtype.names or ()
    own = "_" * max(map(len, names)) + "_"
    namespace: dict[str, Any] = {f"{own}plain": structs.plain_class(dtype)}
    converted = []
    for i, name in enumerate(names):
        kind = dtype[i]
        if kind.names is None:
            namespace[f"{own}{i}"] = bool if kind.kind == "b" else kind.type
            converted.append(f"{own}{i}({name})")
        else:
            namespace[f"{own}{i}"] = _struct_maker(kind)
            converted.append(f"{own}{i}({', '.join(f'{name}[{j}]' for j in range(len(kind.names)))})")
    _value_type(dtype)  # so that numba knows its fields
    source = f"def _make({', '.join(names)}):\n    return {own}plain({', '.join(converted)})\n"
    exec(source, namespace)
    return cuda.jit(device=True, **NUMBA_OPTIONS)(namespace["_make"])


def _each(wrapped: Callable[[Any], Any], values: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(map(wrapped, values))


def _cell(wrapped: Callable[[Any], Any], cell: CellType) -> CellType:
    try:
        return CellType(wrapped(cell.cell_contents))
    except ValueError:  # an empty one
        return cell


class _Operator(Protocol):
    """What `compile_operator` needs to know of an operator; see `cupar.operators.Operator`."""

    @property
    def function(self) -> Callable[..., Any] | None: ...
    @property
    def inputs(self) -> tuple[np.dtype[Any], ...]: ...
    @property
    def output(self) -> np.dtype[Any]: ...
    @property
    def source(self) -> Any: ...
    @property
    def captures(self) -> tuple[Any, ...]: ...
    def check_result(self, result: Any) -> None: ...


# All that NUMBA_… variables could change, so that those need not be in a key.
NUMBA_OPTIONS: dict[str, bool] = {"opt": True, "debug": False, "lineinfo": False}

_compiling = _fork.Lock()


def wrapper_source(op: _Operator) -> str:
    """Return the Python source of the function that CCCL calls: it loads, calls ``call``, and stores.

    Numbers come by pointers. Structs come as numba's records, which are pointers, too, and are to ``call``
    named tuples of the classes ``struct_<n>``.
    """
    classes: list[np.dtype[Any]] = []
    arrays = [f"array_{i}(state)" for i in range(len(op.captures))]
    values = [_loaded(f"in{i}", dtype, classes) for i, dtype in enumerate(op.inputs)]
    call = f"call({', '.join([*arrays, *values])})"
    parameters = ["state"] * bool(arrays) + [f"in{i}" for i in range(len(values))] + ["out"]
    if op.output.names is None:
        # numba keeps a bool as an LLVM i1 but points to it as an i8, and cannot store one: go by bytes.
        body = [f"out[0] = bool({call})" if op.output.kind == "b" else f"out[0] = {call}"]
    else:
        body = [f"result = {call}", *_stores("out", "result", op.output)]
    return "\n    ".join([f"def operator({', '.join(parameters)}):", *body]) + "\n"


def _loaded(place: str, dtype: np.dtype[Any], classes: list[np.dtype[Any]]) -> str:
    if dtype.names is None:
        return f"bool({place}[0])" if dtype.kind == "b" else f"{place}[0]"
    return _made(place, dtype, classes)


def _made(record: str, dtype: np.dtype[Any], classes: list[np.dtype[Any]]) -> str:
    """Return the expression of a struct's value, and add to `classes` what it names."""
    if dtype.names is None:
        return record
    fields = [_made(f"{record}['f{i}']", dtype[i], classes) for i in range(len(dtype.names))]
    classes.append(dtype)
    return f"struct_{len(classes) - 1}({', '.join(fields)})"


def _stores(record: str, value: str, dtype: np.dtype[Any]) -> Iterator[str]:
    for i in range(len(dtype.names or ())):
        place, part, kind = f"{record}['f{i}']", f"{value}[{i}]", dtype[i]
        if kind.names is not None:
            yield from _stores(place, part, kind)
        else:
            yield f"{place} = {f'bool({part})' if kind.kind == 'b' else part}"


def _struct_makers(op: _Operator) -> dict[str, Any]:
    """Return the classes that an operator's wrapper names."""
    classes: list[np.dtype[Any]] = []
    for dtype in op.inputs:
        _made("", dtype, classes)
    return {f"struct_{i}": structs.plain_class(dtype) for i, dtype in enumerate(classes)}


def _parameter_type(dtype: np.dtype[Any]) -> Any:
    """Return the numba type under which a wrapper gets the address of a value."""
    from numba.cuda import types

    if dtype.names is not None:
        return _numba_type(structs.layout(dtype))
    return types.CPointer(types.uint8 if dtype.kind == "b" else _numba_type(dtype))


def _value_type(dtype: np.dtype[Any]) -> Any:
    """Return the numba type of a value in an operator."""
    from numba.cuda import types

    if dtype.names is None:
        return _numba_type(dtype)
    fields = [_value_type(dtype[i]) for i in range(len(dtype.names))]
    struct = types.BaseTuple.from_types(fields, structs.plain_class(dtype))
    if {"count", "index"} & {*dtype.names}:
        _prefer_fields(struct)
    return struct


def _prefer_fields(struct: Any) -> None:
    """Let the attributes of a named tuple be its fields, even where tuples have methods of these names."""
    from numba.cuda.descriptor import cuda_target
    from numba.cuda.typing.collections import NamedTupleAttribute

    typing, target = cuda_target.typing_context, cuda_target.target_context
    if struct in typing._attributes:
        return

    class FieldAttribute(NamedTupleAttribute):  # type: ignore[misc]
        key = struct

    def get(context: Any, builder: Any, kind: Any, value: Any, field: str) -> Any:
        return builder.extract_value(value, kind.fields.index(field))

    typing.insert_attributes(FieldAttribute(typing))
    target._insert_getattr_defn([(get, field, (struct,)) for field in struct.fields])


def _dtype_of(numba_type: Any) -> np.dtype[Any] | None:
    """Return the dtype of a value in an operator, None if arrays cannot hold it."""
    from numba.core.errors import NumbaError
    from numba.cuda import types
    from numba.cuda.np.numpy_support import as_dtype

    if isinstance(numba_type, types.BaseTuple):
        fields = [_dtype_of(field) for field in numba_type]
        if not fields or any(field is None for field in fields):  # a dtype equals None if it is float64
            return None
        names = getattr(numba_type, "fields", [f"field_{i}" for i in range(len(fields))])
        return structs.normal("op", np.dtype(list(zip(names, fields, strict=True)), align=True))
    try:
        dtype: np.dtype[Any] = as_dtype(getattr(numba_type, "literal_type", numba_type))
    except (NumbaError, NotImplementedError):
        return None
    return dtype if dtype in structs.NUMBERS else None


@contextmanager
def _typed(op: _Operator, cc: int) -> Iterator[tuple[Any, Any]]:
    """Compile an operator's function for its types; yield it and the type of its result.

    For the block no other thread may compile, as numba does one at a time anyway: jitted functions that
    operators share are changed here.
    """
    _numba_cuda()
    assert op.function is not None
    function: Any = op.function
    if not (hasattr(function, "__code__") or hasattr(function, "py_func")):
        function = _calling(function, len(op.inputs))
    with _compiling:
        # numba compiles a jitted function once, with the globals of that moment and for the cc of that
        # moment: it has to forget it, or a changed global would not be in the code that is kept for it.
        for dispatcher in op.source.dispatchers:
            if hasattr(dispatcher, "compile_device"):
                dispatcher.overloads.clear()
            else:  # @njit, for which numba.cuda keeps a function of its own
                vars(dispatcher).pop("_CUDATypingContext__dispatcher", None)
        token = _target_cc.set(divmod(cc, 10))
        try:
            options = _jit_options(function)
            if op.captures:
                function = _captures.parametrised(getattr(function, "py_func", function), op.captures)
            device_function = _device_function(function, {}, options)
            arguments = [*map(_array_type, op.captures), *map(_value_type, op.inputs)]
            _, _, folded, _ = device_function.get_call_template(arguments, {})
            yield device_function, device_function.overloads[tuple(folded)].signature.return_type
        finally:
            _target_cc.reset(token)


def result_dtype(op: _Operator, cc: int) -> np.dtype[Any]:
    """Return the dtype of what an operator returns for its types, whatever its output is.

    Raises
    ------
    Exception
        Whatever numba raises if it cannot compile it.
    """
    with _typed(op, cc) as (_, result):
        dtype = _dtype_of(result)
        if dtype is None:
            op.check_result(result)
        assert dtype is not None
        return dtype


def compile_operator(op: _Operator, symbol: str, cc: int) -> list[bytes]:
    """Compile a Python operator to LTO-IR under CCCL's calling convention.

    CCCL calls ``void symbol(void* in..., void* out)``: each argument is a pointer to a value. An operator
    with captured arrays has a pointer to their addresses and shapes for its first argument.

    Parameters
    ----------
    op : Operator
        Its function, their types, the fingerprint, and what checks the type of its result before that is
        converted.
    symbol : str
        The name of the device function to define.
    cc : int
        Compute capability, as in 90.

    Returns
    -------
    list of bytes
        LTO-IR of the operator and of what numba has it call (arithmetic of float16 is in C++ there).

    Raises
    ------
    Exception
        Whatever numba raises if it cannot compile it.
    """
    with _typed(op, cc) as (device_function, result):
        from numba import cuda
        from numba.cuda import types

        dtype = _dtype_of(result)
        op.check_result(result if dtype is None else dtype)
        namespace = {"call": device_function, **_struct_makers(op), **_array_loaders(op)}
        exec(wrapper_source(op), namespace)
        state = [types.CPointer(types.uint64)] * bool(op.captures)
        codes, _ = cuda.compile_all(
            namespace["operator"],
            types.void(*state, *map(_parameter_type, (*op.inputs, op.output))),
            device=True,
            abi="c",
            abi_info={"abi_name": symbol},
            output="ltoir",
            cc=divmod(cc, 10),
            **NUMBA_OPTIONS,
        )
        return list(map(_ltoir, codes))


def _array_type(capture: Any) -> Any:
    from numba.cuda import types

    return types.Array(_numba_type(capture.dtype), capture.ndim, "C")


def _array_loaders(op: _Operator) -> dict[str, Any]:
    """Return the functions that make numba's arrays of the addresses and shapes in an operator's state."""
    loaders, at = {}, 0
    for i, capture in enumerate(op.captures):
        loaders[f"array_{i}"] = _captures.loader(_array_type(capture), at)
        at += 1 + capture.ndim
    return loaders


def _ltoir(code: Any) -> bytes:
    """Return LTO-IR from one of the kinds of object that numba has for it."""
    kind = getattr(code, "kind", None)
    if kind not in (None, "ltoir"):
        raise BuildError(f"an operator calls code of kind {kind!r}; cupar can link LTO-IR alone")
    return bytes(getattr(code, "data", None) or getattr(code, "code", None) or code)


def _calling(function: Callable[..., Any], arity: int) -> Callable[..., Any]:
    """Return a Python function that calls a built-in function or ufunc, which numba cannot jit itself."""
    if arity == 1:
        return lambda a: function(a)  # noqa: PLW0108 - numba compiles the lambda
    return lambda a, b: function(a, b)  # noqa: PLW0108
