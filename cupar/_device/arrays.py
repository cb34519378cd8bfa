"""Reads arrays of any library: address, size, dtype, layout and access."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import structs
from .._base.device import in_cpu_call, is_cpu
from . import driver, peers


class View(NamedTuple):
    """What cupar needs to know of a device array.

    The items of one that is contiguous lie one after the other, in C's order or in Fortran's.
    """

    address: int
    size: int
    dtype: np.dtype[Any]
    contiguous: bool
    writable: bool
    c_order: bool = True


def _view_cupy(array: Any) -> View:
    flags = array.flags
    c_order = flags.c_contiguous
    return View(array.data.ptr, array.size, array.dtype, c_order or flags.f_contiguous, True, c_order)


def _view_numba(array: Any) -> View:
    flags = array._dummy.flags
    c_order = flags["C_CONTIGUOUS"] or array.size <= 1
    address = array.gpu_data.device_ctypes_pointer.value or 0
    return View(address, array.size, array.dtype, c_order or flags["F_CONTIGUOUS"], True, c_order)


_torch_dtypes: dict[Any, np.dtype[Any]] = {}
numpy_dtype = _torch_dtypes.get  # of PyTorch's dtype; None if none of it was seen yet


def _view_torch(tensor: Any) -> View:
    if not tensor.is_cuda:
        raise TypeError(
            f"expected a device array, got a PyTorch tensor on {tensor.device}; move it with .cuda()"
        )
    dtype = _torch_dtypes.get(tensor.dtype)
    if dtype is None:
        try:
            dtype = structs.as_dtype(str(tensor.dtype).removeprefix("torch."))
        except structs.NoBfloat16Error:
            raise
        except TypeError:
            raise TypeError(
                f"dtype {tensor.dtype} is not supported; supported are {structs.SUPPORTED}"
            ) from None
        _torch_dtypes[tensor.dtype] = dtype
    # Conjugation and negation can be put off in PyTorch: memory does not hold the tensor's values then.
    if (dtype.kind == "c" and tensor.is_conj()) or (structs.kind_of(dtype) in "fc" and tensor.is_neg()):
        raise ValueError("got a tensor with lazy conjugation or negation; call .resolve_conj().resolve_neg()")
    c_order = tensor.is_contiguous()
    contiguous = c_order or _is_contiguous(tensor.shape[::-1], tensor.stride()[::-1], 1)
    return View(tensor.data_ptr(), tensor.numel(), dtype, contiguous, True, c_order)


def _view_interface(array: Any) -> View:
    try:
        interface: Any = array.__cuda_array_interface__
    except AttributeError:
        if not hasattr(array, "__dlpack_device__"):
            raise
        return _view_dlpack(array)  # JAX's of bfloat16 have DLPack alone
    if type(interface) is not dict and not isinstance(interface, Mapping):  # ABCs are slow to ask
        raise TypeError(f"its __cuda_array_interface__ is {interface!r}, expected a dict")
    version = interface.get("version", 3)
    if not isinstance(version, int) or not 0 <= version <= 3:
        raise ValueError(f"version {version!r} of __cuda_array_interface__ is not one of 0 to 3")
    if interface.get("mask") is not None:
        raise TypeError("masked arrays are not supported")
    dtype = _typestr(interface["typestr"])
    if dtype.kind == "V":  # a struct, whose fields some libraries give and others, Numba's among them, do not
        dtype = _void_dtype(array, dtype, interface.get("descr"))
    shape: Any = interface["shape"]
    if type(shape) is not tuple and (isinstance(shape, (str, bytes)) or not hasattr(shape, "__len__")):
        raise TypeError(f"'shape' of its __cuda_array_interface__ is {shape!r}, expected a tuple of integers")
    size = _size(shape)
    address, read_only = interface["data"]
    address = 0 if address is None else _integer("address", address)
    strides: Any = interface.get("strides")
    if strides is not None and len(strides) != len(shape):
        raise ValueError(f"its shape, {shape}, and its strides, {strides}, differ in length")
    c_order = strides is None or size <= 1 or _is_contiguous(shape, strides, dtype.itemsize)
    contiguous = c_order or _is_contiguous(shape[::-1], strides[::-1], dtype.itemsize)
    return View(address, size, dtype, contiguous, not read_only, c_order)


def _void_dtype(array: Any, dtype: np.dtype[Any], descr: Any) -> np.dtype[Any]:
    """Return the dtype of an array whose `typestr` says nothing but a size; that loses what bfloat16 is."""
    own = getattr(array, "dtype", None)
    if isinstance(own, np.dtype) and own.itemsize == dtype.itemsize and structs.has_bfloat16(own):
        return own
    found: np.dtype[Any] = np.lib.format.descr_to_dtype(descr) if descr else dtype if own is None else own
    return found


def _typestr(typestr: Any) -> np.dtype[Any]:
    try:
        if isinstance(typestr, str):
            return np.dtype(typestr)
    except (TypeError, ValueError, SyntaxError):
        pass
    raise TypeError(f"'typestr' of its __cuda_array_interface__ is {typestr!r}, expected a dtype as in '<f4'")


def _size(shape: Any) -> int:
    """Return the number of items of a shape, as an array reports it."""
    size = 1
    for extent in shape:
        if extent < 0:
            raise ValueError(f"its shape, {shape}, has a negative extent")
        size *= extent
    return size if type(size) is int else operator.index(size)


def _integer(what: str, value: Any) -> int:
    """Return an integer of any class as an int."""
    if isinstance(value, (float, str, bytes)):
        raise TypeError(f"its {what} is {value!r}, expected an integer")
    number = int(value)
    if number < 0:
        raise ValueError(f"its {what} is negative, {number}")
    return number


def _is_contiguous(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Whether items lie in C's order; for Fortran's, give shape and strides the other way round."""
    expected = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


_DLPACK_CUDA = {2, 13}  # kDLCUDA, kDLCUDAManaged
_DEFAULT_STREAM = 1  # in DLPack's terms


def _view_dlpack(array: Any) -> View:
    if array.__dlpack_device__()[0] not in _DLPACK_CUDA:
        raise TypeError(f"expected a device array, got a {type(array).__name__} that is not on a CUDA device")
    view = _from_dlpack(array)
    strides = view.strides
    try:
        found = view.dtype
    except NotImplementedError as error:  # bfloat16, without ml_dtypes
        raise TypeError(str(error)) from None
    if found is None:
        raise TypeError(f"its dtype is not one of {structs.SUPPORTED}")
    dtype = np.dtype(found)
    shape = view.shape
    c_order = strides is None or _is_contiguous(shape, strides, 1)  # in items
    contiguous = c_order or _is_contiguous(shape[::-1], strides[::-1], 1)
    return View(int(view.ptr), _size(shape), dtype, contiguous, not view.readonly, c_order)


def _from_dlpack(array: Any) -> Any:
    from cuda.core.utils import StridedMemoryView

    try:  # -1: the producer need not order its stream before ours, as for every other kind of array.
        return StridedMemoryView.from_dlpack(array, stream_ptr=-1)
    except RuntimeError:  # JAX takes that for a handle
        return StridedMemoryView.from_dlpack(array, stream_ptr=_DEFAULT_STREAM)


_readers: dict[type, Callable[[Any], View]] = {}
# The classes of arrays of CuPy, PyTorch and Numba, each once it was seen: launches of kernels
# read them in line, calls those of the first two.
CUPY: set[type] = set()
TORCH: set[type] = set()
OWN: set[type] = set()  # and of what is like them in `size`
NUMBA: set[type] = set()


def seen() -> int:
    """Return a number that grows with each class or dtype that can be read in line from then on."""
    return len(CUPY) + len(TORCH) + len(NUMBA) + len(_torch_dtypes)


def torch_dtype(dtype: np.dtype[Any]) -> Any:
    """Return PyTorch's dtype for one of NumPy's, None if it was not seen yet."""
    return next((own for own, each in _torch_dtypes.items() if each is dtype), None)


_IN_LINE = {_view_cupy: CUPY, _view_torch: TORCH, _view_numba: NUMBA}


def _reader(array: Any) -> Callable[[Any], View]:
    """Choose how to read arrays of this class: the quickest way that its library has."""
    for base in type(array).__mro__:
        library = base.__module__.partition(".")[0]
        if (library, base.__name__) == ("cupy", "ndarray"):
            return _view_cupy
        if (library, base.__name__) == ("torch", "Tensor"):
            return _view_torch
    cls = type(array)
    if cls.__name__ in ("DeviceNDArray", "DeviceRecord") and cls.__module__.startswith("numba.cuda."):
        return _view_numba
    if hasattr(array, "__cuda_array_interface__"):
        return _view_interface
    if hasattr(array, "__dlpack_device__") and not isinstance(array, np.ndarray):
        return _view_dlpack
    raise TypeError(f"expected a device array, got {'None' if array is None else _describe(type(array))}")


def _describe(cls: type) -> str:
    if issubclass(cls, np.ndarray):
        return "a NumPy array, which is in host memory; copy it to the device first, as with cupy.asarray"
    return f"{cls.__name__}, which has neither __cuda_array_interface__ nor DLPack"


_host_readers: dict[type, Callable[[Any], np.ndarray[Any, Any]]] = {}
_anywhere: dict[type, Callable[[Any], View]] = {}  # what stands for host arrays as for device arrays


def _view_host(array: Any) -> View:
    if type(array) in _anywhere:
        return _anywhere[type(array)](array)
    reader = _host_readers.get(type(array))
    if reader is None:
        from . import host_arrays

        reader = _host_readers[type(array)] = host_arrays.reader(array)
    found = reader(array)
    flags, address = found.flags, found.__array_interface__["data"][0]
    c_order = flags.c_contiguous
    return View(address, found.size, found.dtype, c_order or flags.f_contiguous, flags.writeable, c_order)


def register(cls: type, reader: Callable[[Any], View], *, anywhere: bool = False) -> None:
    """Have arrays of a class of cupar's own read by a function; `anywhere`: where host arrays are, too."""
    _readers[cls] = reader
    if anywhere:
        _anywhere[cls] = reader


def reader_of(cls: type) -> Callable[[Any], View] | None:
    """Return how arrays of a class are read, None if none was read yet."""
    return _readers.get(cls)


def view(name: str, array: Any) -> View:
    """Read an array's address, size, dtype, layout and access.

    TypeError or ValueError, which begin with `name`, if it is no device array, or cannot be used as it is.
    """
    return read(name, array, is_cpu())


def read(name: str, array: Any, on_cpu: bool) -> View:
    """Read an array of the host or of a device, as `view` does, whatever the default device is."""
    try:
        if on_cpu:
            return _view_host(array)
        reader = _readers.get(type(array))
        if reader is None:
            reader = _readers[type(array)] = _reader(array)
            read_in_line = _IN_LINE.get(reader)
            if read_in_line is not None:
                read_in_line.add(type(array))
        return reader(array)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    except AttributeError as error:  # such as __cuda_array_interface__ of a tensor in host memory
        raise TypeError(f"{name}: expected a {_kind(on_cpu)}, got {type(array).__name__}: {error}") from None
    except Exception as error:  # arrays raise anything when they are asked what they are
        kind = type(array).__name__
        from .._base.causes import cause

        said = f": {error}" if str(error) else ""
        raise TypeError(
            f"{name}: expected a {_kind(on_cpu)}, got {kind}, whose array interface or DLPack is "
            f"broken: {type(error).__name__}{said}"
        ) from cause(error)


def _kind(on_cpu: bool) -> str:
    return "host array" if on_cpu else "device array"


def dtype_of(name: str, array: Any) -> np.dtype[Any]:
    """Return the dtype of an array, or of the dtype that stands for an array.

    TypeError if it is neither, or cupar has no code for the dtype; ValueError if an array is not contiguous.
    """
    if isinstance(array, (type, np.dtype, str)):
        try:
            dtype = structs.as_dtype(array)
        except structs.NoBfloat16Error as error:
            raise TypeError(f"{name}: {error}") from None
        except (TypeError, ValueError, SyntaxError):
            raise TypeError(f"{name}: expected a {_kind(is_cpu())} or a dtype, got {array!r}") from None
        return structs.normal(name, dtype)
    found = view(name, array)
    _check_contiguous(name, found)
    return structs.normal(name, found.dtype)


def is_device_array(value: Any) -> bool:
    """Whether a value says that it is an array where algorithms are asked for: on a device, or the host."""
    if is_cpu():
        from . import host_arrays

        return host_arrays.is_array(value)
    cls = type(value)
    return (
        hasattr(cls, "__cuda_array_interface__")
        or (hasattr(cls, "__dlpack_device__") and not isinstance(value, np.ndarray))
        or (not isinstance(value, type) and "__cuda_array_interface__" in getattr(value, "__dict__", ()))
    )


def length(array: Any) -> int:
    """Return the number of items of a view or an array of CuPy or PyTorch, 0 of anything else."""
    if is_cpu() and isinstance(array, np.ndarray):
        return array.size
    if type(array) in CUPY or type(array) in OWN:
        return int(array.size)
    return int(array.numel()) if type(array) in TORCH else 0


def shape(array: Any) -> tuple[int, ...]:
    """Return the shape of a device array, or of a host array where these are taken."""
    found = getattr(array, "shape", None)
    if found is None:
        found = (getattr(array, "__cuda_array_interface__", None) or array.__array_interface__)["shape"]
    return tuple(found)


class Strided(NamedTuple):
    """What kernels need to know of a device array.

    `layout` is ``"C"`` or ``"F"`` for one that is contiguous in that order, else ``"A"``.
    """

    address: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    layout: str
    writable: bool
    is_record: bool  # Numba's record in device memory, which is no array


def strided(name: str, array: Any) -> Strided:
    """Read a device array whatever its strides are; raise as `view` does."""
    if is_cpu():
        raise TypeError(f"{name}: kernels are for GPUs alone, and arrays are on the CPU here")
    found = view(name, array)
    layout = "C" if found.c_order else "F" if found.contiguous else "A"
    is_record = type(array).__name__ == "DeviceRecord" and found.dtype.names is not None
    return Strided(found.address, found.dtype, shape(array), layout, found.writable, is_record)


def strides(array: Any, itemsize: int) -> tuple[int, ...]:
    """Return the strides of a device array in bytes, once `strided` has read it."""
    reader = _readers[type(array)]
    if reader is _view_cupy or reader is _view_numba:
        return array.strides  # type: ignore[no-any-return]
    if reader is _view_torch:
        return tuple(itemsize * each for each in array.stride())
    extents, found = shape(array), None
    interface = getattr(array, "__cuda_array_interface__", None) if reader is _view_interface else None
    if interface is not None:
        found = interface.get("strides")
    else:
        in_items = _from_dlpack(array).strides
        found = in_items and tuple(itemsize * each for each in in_items)
    return tuple(found) if found else contiguous_strides(extents, itemsize, "C")


def contiguous_strides(shape: Sequence[int], itemsize: int, layout: str) -> tuple[int, ...]:
    """Return the strides of a contiguous array in bytes; `layout` is ``"C"`` or ``"F"``."""
    found, stride = [], itemsize
    for extent in reversed(shape) if layout == "C" else shape:
        found.append(stride)
        stride *= extent
    return tuple(found[::-1] if layout == "C" else found)


def _check_contiguous(name: str, found: View) -> None:
    if not found.contiguous:
        raise ValueError(f"{name}: expected a contiguous array, got a strided one; copy it first")


def address(
    name: str,
    array: Any,
    dtype: np.dtype[Any],
    items: int,
    output: bool,
    on_cpu: bool | None = None,
    *,
    c_order: bool = False,
) -> int:
    """Return an array's address, having checked that a call may read or write so many items of it.

    The algorithm was built for `dtype`. With `c_order`, Fortran's order will not do, as where items are found
    by several indices. `on_cpu` is what the algorithm was built for; None: what the call in progress is of.
    """
    on_cpu = in_cpu_call() if on_cpu is None else on_cpu
    found = read(name, array, on_cpu)
    if found.dtype != dtype and not same_layout(name, found.dtype, dtype):
        raise TypeError(f"{name}: this algorithm was built for {dtype}, got an array of {found.dtype}")
    if c_order and not found.c_order:
        raise ValueError(f"{name}: expected a C-contiguous array, got a strided one; copy it first")
    if not found.contiguous:
        _check_contiguous(name, found)
    if output and not found.writable:
        raise ValueError(f"{name}: expected an array to write to, got a read-only one")
    if items > found.size:
        raise ValueError(f"{name}: needs at least {items} items, got an array of {found.size}")
    if found.address % dtype.alignment:
        raise ValueError(
            f"{name}: expected an array aligned to {dtype.alignment} bytes, got one at {found.address:#x}"
        )
    if driver.has_several_devices and not on_cpu:
        peers.check_memory(name, found.address)
    return found.address


def same_layout(name: str, one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Whether two dtypes are structs of the same layout; the names of their fields may differ."""
    if one.names is None or other.names is None:
        return False
    return structs.layout(structs.normal(name, one)) == structs.layout(other)


def storage(temp_storage: Any) -> tuple[int, int]:
    """Return the address and the bytes of temporary storage: a device array that can be written."""
    found = read("temp_storage", temp_storage, in_cpu_call())
    if not found.contiguous or not found.writable:
        raise ValueError("temp_storage: expected a contiguous array that can be written")
    return found.address, found.size * found.dtype.itemsize
