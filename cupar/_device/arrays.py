"""Reads arrays of any library: address, size, dtype, layout and access."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import structs
from .._base.device import in_cpu_call, is_cpu
from .._base.errors import ArgumentTypeError, ArgumentValueError, of_parameter
from . import driver, peers, readers

ArrayView = readers.ArrayView
Lend = Callable[[Any], object]  # called with objects that must outlive a call; see `readers.ArrayView`
numpy_dtype = readers.torch_dtypes.get  # of PyTorch's dtype; None if none of it was seen yet

_readers: dict[type, Callable[[Any], ArrayView]] = {}
# The classes of arrays of CuPy, PyTorch and Numba, each once it was seen: launches of kernels
# read them in line, calls those of the first two.
CUPY: set[type] = set()
TORCH: set[type] = set()
OWN: set[type] = set()  # and of arrays with the same `size` attribute
NUMBA: set[type] = set()


def seen() -> int:
    """Return a number that grows with each class or dtype that can be read in line from then on."""
    return len(CUPY) + len(TORCH) + len(NUMBA) + len(readers.torch_dtypes)


def syntax_of(cls: type) -> readers.ArraySyntax | None:
    """Return the expressions for arrays of a class of NumPy, CuPy or PyTorch; None for others.

    A class of CuPy's is known once an array of it was read.
    """
    if cls is np.ndarray:
        return readers.NUMPY
    if cls in CUPY:
        return readers.CUPY
    is_tensor = cls.__module__.partition(".")[0] == "torch" and hasattr(cls, "data_ptr")
    return readers.TORCH if is_tensor else None


def torch_dtype(dtype: np.dtype[Any]) -> Any:
    """Return PyTorch's dtype for one of NumPy's, None if it was not seen yet."""
    return next((own for own, each in readers.torch_dtypes.items() if each is dtype), None)


_IN_LINE = {readers.view_cupy: CUPY, readers.view_torch: TORCH, readers.view_numba: NUMBA}
# Attributes read of these beside their functions above: classes of the same name elsewhere may lack them.
_READ_IN_LINE = {
    readers.view_cupy: ("_c_contiguous", "_f_contiguous", "nbytes", "ndim", "shape", "strides"),
    readers.view_torch: ("is_cuda", "is_neg", "shape", "stride"),
    readers.view_numba: ("dtype", "ndim", "shape", "strides"),
}


def _reader(array: Any) -> Callable[[Any], ArrayView]:
    """Choose how to read arrays of this class: the quickest way that its library has."""
    cls = type(array)
    library = readers.library_of(cls)
    if library == "cupy" and _has(array, "flags", "data", "size", "dtype"):
        return readers.view_cupy
    if library == "torch" and _has(array, "is_cuda", "data_ptr"):
        return readers.view_torch
    if cls.__name__ in ("DeviceNDArray", "DeviceRecord") and cls.__module__.startswith("numba.cuda."):
        return readers.view_numba
    if hasattr(array, "__cuda_array_interface__"):
        return readers.view_interface
    if hasattr(array, "__dlpack_device__") and not isinstance(array, np.ndarray):
        return readers.view_dlpack
    raise _refusal(array)


def _has(array: Any, *attributes: str) -> bool:
    return all(hasattr(array, each) for each in attributes)


def _refusal(array: Any) -> TypeError:
    from . import host_arrays

    cls = type(array)
    if issubclass(cls, np.ndarray) or (
        hasattr(cls, "__array_interface__") and not issubclass(cls, np.generic)
    ):
        kind = "a NumPy array" if issubclass(cls, np.ndarray) else cls.__name__
        there = "which is in host memory; copy it to the device, as with cupy.asarray"
        return readers.HostArrayError(f"expected a device array, got {kind}, {there}")
    if array is None:
        kind = "None"
    elif host_arrays.is_pytorchs_dtype(cls):
        kind = host_arrays.PYTORCHS_DTYPE
    else:
        kind = f"{cls.__name__}, which has neither __cuda_array_interface__ nor DLPack"
    return TypeError(f"expected a device array, got {kind}")


_converters: dict[type, Callable[[Any], np.ndarray[Any, Any]]] = {}
_anywhere: dict[type, Callable[[Any], ArrayView]] = {}  # classes of views of host and of device arrays


def _view_host(array: Any) -> ArrayView:
    if type(array) in _anywhere:
        return _anywhere[type(array)](array)
    converter = _converters.get(type(array))
    if converter is None:
        from . import host_arrays

        converter = _converters[type(array)] = host_arrays.converter(array)
    found = converter(array)
    flags, address = found.flags, found.__array_interface__["data"][0]
    c_order = flags.c_contiguous
    owner = None if found is array else found  # the exporter's memory, which may be a copy
    contiguous = c_order or flags.f_contiguous
    return ArrayView(address, found.size, found.dtype, contiguous, flags.writeable, c_order, owner)


def register(cls: type, reader: Callable[[Any], ArrayView], *, anywhere: bool = False) -> None:
    """Have arrays of a class of cupar's own read by a function; `anywhere`: where host arrays are, too."""
    _readers[cls] = reader
    if anywhere:
        _anywhere[cls] = reader


def is_anywhere(cls: type) -> bool:
    """Whether arrays of a class are views of cupar's own, of host memory or a device's."""
    return cls in _anywhere


def reader_of(cls: type) -> Callable[[Any], ArrayView] | None:
    """Return how arrays of a class are read, None if none was read yet."""
    return _readers.get(cls)


def view(name: str, array: Any, way_out: str = readers.ON_CPU) -> ArrayView:
    """Read an array's address, size, dtype, layout and access.

    TypeError or ValueError, which begin with `name`, if it is no device array, or cannot be used as it is;
    `way_out` is the end of the former's text for a host array.
    """
    return read(name, array, is_cpu(), way_out)


def read(name: str, array: Any, on_cpu: bool, way_out: str = readers.ON_CPU) -> ArrayView:
    """Read an array of the host or of a device, as `view` does, for any default device."""
    try:
        if on_cpu:
            return _view_host(array)
        reader = _readers.get(type(array))
        if reader is None:
            reader = _readers[type(array)] = _reader(array)
            read_in_line = _IN_LINE.get(reader)
            if read_in_line is not None and _has(array, *_READ_IN_LINE[reader]):
                read_in_line.add(type(array))
        return reader(array)
    except readers.HostArrayError as error:
        raise ArgumentTypeError(name, f"{error}{way_out}") from None
    except (TypeError, ValueError) as error:
        raise of_parameter(name, error) from None
    except AttributeError as error:  # such as __cuda_array_interface__ of a tensor in host memory
        raise ArgumentTypeError(
            name, f"expected a {_kind(on_cpu)}, got {type(array).__name__}: {error}"
        ) from None
    except Exception as error:  # attributes of arrays may raise anything
        kind = type(array).__name__
        from .._base.causes import cause

        said = f": {error}" if str(error) else ""
        raise ArgumentTypeError(
            name,
            f"expected a {_kind(on_cpu)}, got {kind}, whose array interface or DLPack is "
            f"broken: {type(error).__name__}{said}",
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
            raise ArgumentTypeError(name, str(error)) from None
        except (TypeError, ValueError, SyntaxError):
            raise ArgumentTypeError(name, f"expected a {_kind(is_cpu())} or a dtype, got {array!r}") from None
        return structs.normal(name, dtype)
    if type(array) in CUPY and array._c_contiguous and not is_cpu():  # read in line, as calls do
        return structs.normal(name, array.dtype)
    found = view(name, array)
    _check_contiguous(name, found)
    return structs.normal(name, found.dtype)


def is_device_array(value: Any) -> bool:
    """Whether a value says that it is an array where algorithms are asked for: on a device, or the host."""
    if is_cpu():
        from . import host_arrays

        return is_anywhere(type(value)) or host_arrays.is_array(value)
    cls = type(value)
    return (
        hasattr(cls, "__cuda_array_interface__")
        or (hasattr(cls, "__dlpack_device__") and not isinstance(value, np.ndarray))
        or (not isinstance(value, type) and "__cuda_array_interface__" in getattr(value, "__dict__", ()))
    )


def length(array: Any) -> int:
    """Return the number of items of a view or an array of CuPy or PyTorch, 0 of anything else."""
    if type(array) in CUPY or type(array) in OWN or (is_cpu() and isinstance(array, np.ndarray)):
        return array.size  # type: ignore[no-any-return]
    return array.numel() if type(array) in TORCH else 0


def shape(array: Any) -> tuple[int, ...]:
    """Return the shape of a device array, or of a host array where these are taken."""
    found = getattr(array, "shape", None)
    for interface in ("__cuda_array_interface__", "__array_interface__"):
        if found is None and (told := getattr(array, interface, None)) is not None:
            found = told["shape"]
    if found is None:
        from . import host_arrays

        on_host = array.__dlpack_device__()[0] == host_arrays.CPU
        found = (np.from_dlpack(array) if on_host else readers.from_dlpack(array)).shape
    return tuple(found)


class Strided(NamedTuple):
    """The layout of a device array with any strides.

    `layout` is ``"C"`` or ``"F"`` for one that is contiguous in that order, else ``"A"``.
    """

    address: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    layout: str
    writable: bool
    is_record: bool  # Numba's record in device memory, which is no array
    owner: Any = None  # as of a view


def refuse_cpu(name: str) -> None:
    """Raise TypeError, which begins with `name`, if a kernel is used while the device is the CPU."""
    if is_cpu():
        raise ArgumentTypeError(
            name,
            f"expected the device 'cuda', got 'cpu', which cupar.device or CUPAR_DEVICE says"
            f"{readers.NO_KERNELS}",
        )


def strided(name: str, array: Any) -> Strided:
    """Read a device array with any strides; raise as `view` does."""
    refuse_cpu(name)
    found = view(name, array, readers.NO_KERNELS)
    layout = "C" if found.c_order else "F" if found.contiguous else "A"
    is_record = type(array).__name__ == "DeviceRecord" and found.dtype.names is not None
    return Strided(found.address, found.dtype, shape(array), layout, found.writable, is_record, found.owner)


def strides(array: Any, itemsize: int) -> tuple[int, ...]:
    """Return the strides of a device array in bytes, once `strided` has read it."""
    reader = _readers[type(array)]
    if reader is readers.view_cupy or reader is readers.view_numba or type(array) in OWN:
        return array.strides  # type: ignore[no-any-return]
    if reader is readers.view_torch:
        return tuple(itemsize * each for each in array.stride())
    extents, found = shape(array), None
    interface = getattr(array, "__cuda_array_interface__", None) if reader is readers.view_interface else None
    if interface is not None:
        found = interface.get("strides")
    else:
        in_items = readers.from_dlpack(array).strides
        found = in_items and tuple(itemsize * each for each in in_items)
    return tuple(found) if found else contiguous_strides(extents, itemsize, "C")


def contiguous_strides(shape: Sequence[int], itemsize: int, layout: str) -> tuple[int, ...]:
    """Return the strides of a contiguous array in bytes; `layout` is ``"C"`` or ``"F"``."""
    found, stride = [], itemsize
    for extent in reversed(shape) if layout == "C" else shape:
        found.append(stride)
        stride *= extent
    return tuple(found[::-1] if layout == "C" else found)


def _check_contiguous(name: str, found: ArrayView) -> None:
    if not found.contiguous:
        raise ArgumentValueError(name, "expected a contiguous array, got a strided one; copy it first")


def address(
    name: str,
    array: Any,
    dtype: np.dtype[Any],
    items: int,
    output: bool,
    on_cpu: bool | None = None,
    lend: Lend | None = None,
    alike: Sequence[Any] | None = (),
    *,
    c_order: bool = False,
) -> int:
    """Return an array's address, having checked that a call may read or write `items` items.

    The algorithm was built for `dtype`. `on_cpu` is what the algorithm was built for; None: what the call in
    progress is of. `lend` is told what has the memory, if that is not the array.

    Another order than C's is taken if the call uses one item, or takes each by itself: then `alike` has the
    names of the arrays that it does so with, and these. If that is None, as where it is not known how many
    items are used, it is not taken; nor with `c_order`, as where items are found by several indices.
    """
    on_cpu = in_cpu_call() if on_cpu is None else on_cpu
    found = read(name, array, on_cpu)
    if found.dtype != dtype and not same_layout(name, found.dtype, dtype):
        raise ArgumentTypeError(name, f"this algorithm was built for {dtype}, got an array of {found.dtype}")
    if c_order and not found.c_order:
        raise ArgumentValueError(name, "expected a C-contiguous array, got a strided one; copy it first")
    if not found.contiguous:
        _check_contiguous(name, found)
    if output and not found.writable:
        raise ArgumentValueError(name, "expected an array to write to, got a read-only one")
    if items > found.size:
        raise ArgumentValueError(name, f"needs at least {items} items, got an array of {found.size}")
    if found.address % dtype.alignment:
        raise ArgumentValueError(
            name, f"expected an array aligned to {dtype.alignment} bytes, got one at {found.address:#x}"
        )
    if not found.c_order and (alike is None or items > 1):
        _check_order(name, shape(array), items == found.size, alike, on_cpu)
    if driver.has_several_devices and not on_cpu:
        peers.check_memory(name, found.address)
    if found.owner is not None and lend is not None:
        lend(found.owner)
    return found.address


_WAY_OUT = (
    "copy it to C's order (ascontiguousarray, .contiguous()), or give its transpose if the order of "
    "memory is what you mean"
)


def _check_order(
    name: str, extents: tuple[int, ...], whole: bool, alike: Sequence[Any] | None, on_cpu: bool
) -> None:
    """Raise ValueError unless a call may go through an array in the order of memory, which is Fortran's.

    It may where it takes each item by itself, all of them (`whole`), and the other arrays' lie as these do.
    """
    if not alike:
        because = "and the result depends on the order of items"
    elif not whole:
        because = "of which not all items are used: which these are depends on the order"
    else:
        other = _unlike(extents, alike, on_cpu)
        if other is None:
            return
        because = f"which {other} does not share with the same shape"
    raise ArgumentValueError(name, f"got an array in Fortran's order, {because}; {_WAY_OUT}")


def _unlike(extents: tuple[int, ...], alike: Sequence[Any], on_cpu: bool) -> str | None:
    """Return the name of an array without this shape and Fortran's order, or None."""
    names, *given = alike
    for name, each in zip(names, given, strict=True):
        tell = getattr(each, "gone_through", None)  # which iterators have
        several = (each,) if tell is None else tell()
        if several is None:
            return str(name)
        for array in several:
            found = read(name, array, on_cpu)
            if found.c_order or not found.contiguous or shape(array) != extents:
                return str(name)
    return None


def same_layout(name: str, one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Whether two dtypes are structs of the same layout; the names of their fields may differ."""
    if one.names is None or other.names is None:
        return False
    return structs.layout(structs.normal(name, one)) == structs.layout(other)


def storage(temp_storage: Any, lend: Lend | None = None) -> tuple[int, int]:
    """Return the address and the bytes of temporary storage: a device array that can be written."""
    found = read("temp_storage", temp_storage, in_cpu_call())
    if not found.contiguous or not found.writable:
        raise ArgumentValueError("temp_storage", "expected a contiguous array that can be written")
    if found.owner is not None and lend is not None:
        lend(found.owner)
    return found.address, found.size * found.dtype.itemsize
