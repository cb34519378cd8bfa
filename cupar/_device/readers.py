"""Reads a device array by the way that its library has: address, size, dtype, layout and access.

Generated code does so by expressions (`ArraySyntax`).
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import structs

ON_CPU = ', or run algorithms on the CPU, as in `with cupar.device("cpu"):`'
NO_KERNELS = ": kernels run on GPUs alone, algorithms on the CPU, too"


class HostArrayError(TypeError):
    """An array is in host memory, and one on a device is expected."""


class ArrayView(NamedTuple):
    """Address, size, dtype, layout and access of a device array.

    The items of one that is contiguous lie one after the other, in C's order or in Fortran's. The memory is
    there as long as `owner` lives; None: as long as the array does, whose library lets streams finish first.
    """

    address: int
    size: int
    dtype: np.dtype[Any]
    contiguous: bool
    writable: bool
    c_order: bool = True
    owner: Any = None


def library_of(cls: type) -> str | None:
    """Return "cupy" or "torch" for a class of arrays of that library's, or made of one; None for others."""
    for base in cls.__mro__:
        library = base.__module__.partition(".")[0]
        if (library, base.__name__) in (("cupy", "ndarray"), ("torch", "Tensor")):
            return library
    return None


class ArraySyntax(NamedTuple):
    """Expressions for an array of a library, ``{v}``, in generated code."""

    name: str
    address: str
    size: str
    strides: str
    c_order: str  # whether items lie in C's order
    f_order: str = ""
    device: str = ""
    pending: str = ""  # whether items are to be conjugated or negated as they are read

    @property
    def layout(self) -> str:
        """Dtype, number of dimensions, device, and whether items lie in C's order."""
        return ", ".join(filter(None, ("{v}.dtype", "{v}.ndim", self.device, self.c_order)))

    @property
    def place(self) -> str:
        """Address, number of items, dtype and order: all that tells such an array's items from others."""
        parts = (self.address, self.size, "{v}.dtype", self.c_order, self.f_order, self.pending)
        return ", ".join(filter(None, parts))


NUMPY = ArraySyntax(
    *("numpy", '{v}.__array_interface__["data"][0]', "{v}.size", "{v}.strides"),
    c_order="{v}.flags.c_contiguous",
    f_order="{v}.flags.f_contiguous",
)
CUPY = ArraySyntax(
    *("cupy", "{v}.data.ptr", "{v}.size", "{v}.strides"),
    c_order="{v}._c_contiguous",
    f_order="{v}._f_contiguous",
)
TORCH = ArraySyntax(
    *("torch", "{v}.data_ptr()", "{v}.numel()", "{v}.stride()"),  # strides in items
    c_order="{v}.is_contiguous()",
    device="{v}.get_device()",  # -1 is the CPU
    pending="{v}.is_conj(), {v}.is_neg()",
)
NUMBA = ArraySyntax(
    *("numba", "{v}.gpu_data.device_ctypes_pointer.value", "{v}.size", "{v}.strides"),
    c_order='{v}._dummy.flags["C_CONTIGUOUS"]',
    f_order='{v}._dummy.flags["F_CONTIGUOUS"]',
)


def view_cupy(array: Any) -> ArrayView:
    flags = array.flags
    c_order = flags.c_contiguous
    return ArrayView(array.data.ptr, array.size, array.dtype, c_order or flags.f_contiguous, True, c_order)


def view_numba(array: Any) -> ArrayView:
    flags = array._dummy.flags
    c_order = flags["C_CONTIGUOUS"] or array.size <= 1
    address = array.gpu_data.device_ctypes_pointer.value or 0
    return ArrayView(address, array.size, array.dtype, c_order or flags["F_CONTIGUOUS"], True, c_order)


torch_dtypes: dict[Any, np.dtype[Any]] = {}


def view_torch(tensor: Any) -> ArrayView:
    if not tensor.is_cuda:
        raise HostArrayError(
            f"expected a device array, got a PyTorch tensor on {tensor.device}; move it with .cuda()"
        )
    dtype = torch_dtypes.get(tensor.dtype)
    if dtype is None:
        try:
            dtype = structs.as_dtype(str(tensor.dtype).removeprefix("torch."))
        except structs.NoBfloat16Error:
            raise
        except TypeError:
            raise TypeError(
                f"dtype {tensor.dtype} is not supported; supported are {structs.SUPPORTED}"
            ) from None
        torch_dtypes[tensor.dtype] = dtype
    # Conjugation and negation can be put off in PyTorch: memory does not hold the tensor's values then.
    if (dtype.kind == "c" and tensor.is_conj()) or (structs.kind_of(dtype) in "fc" and tensor.is_neg()):
        raise ValueError("got a tensor with lazy conjugation or negation; call .resolve_conj().resolve_neg()")
    c_order = tensor.is_contiguous()
    contiguous = c_order or is_contiguous(tensor.shape[::-1], tensor.stride()[::-1], 1)
    return ArrayView(tensor.data_ptr(), tensor.numel(), dtype, contiguous, True, c_order)


def view_interface(array: Any) -> ArrayView:
    try:
        interface: Any = array.__cuda_array_interface__
    except AttributeError:
        if not hasattr(array, "__dlpack_device__"):
            raise
        return view_dlpack(array)  # JAX's of bfloat16 have DLPack alone
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
    c_order = strides is None or size <= 1 or is_contiguous(shape, strides, dtype.itemsize)
    contiguous = c_order or is_contiguous(shape[::-1], strides[::-1], dtype.itemsize)
    return ArrayView(address, size, dtype, contiguous, not read_only, c_order, (array, interface))


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


def is_contiguous(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Whether items lie in C's order; for Fortran's, give shape and strides the other way round."""
    expected = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if stride != expected and extent != 1:  # in this order: of a trace, each comparison is a guard
            return False
        expected *= extent
    return True


_DLPACK_CUDA = {2, 13}  # kDLCUDA, kDLCUDAManaged
_DEFAULT_STREAM = 1  # in DLPack's terms


def view_dlpack(array: Any) -> ArrayView:
    if array.__dlpack_device__()[0] not in _DLPACK_CUDA:
        raise HostArrayError(
            f"expected a device array, got a {type(array).__name__} that is not on a CUDA device; copy it "
            "there"
        )
    view = from_dlpack(array)
    strides = view.strides
    try:
        found = view.dtype
    except NotImplementedError as error:  # bfloat16, without ml_dtypes
        raise TypeError(str(error)) from None
    if found is None:
        raise TypeError(f"its dtype is not one of {structs.SUPPORTED}")
    dtype = np.dtype(found)
    shape = view.shape
    c_order = strides is None or is_contiguous(shape, strides, 1)  # in items
    contiguous = c_order or is_contiguous(shape[::-1], strides[::-1], 1)
    # That of cuda.core's own is no copy, and freed in the order of streams, as CuPy's.
    owner = None if type(array).__module__.startswith("cuda.core.") else (array, view)
    return ArrayView(int(view.ptr), _size(shape), dtype, contiguous, not view.readonly, c_order, owner)


def from_dlpack(array: Any) -> Any:
    from cuda.core.utils import StridedMemoryView

    try:  # -1: the producer need not order its stream before ours, as for every other kind of array.
        return StridedMemoryView.from_dlpack(array, stream_ptr=-1)
    except RuntimeError:  # JAX takes that for a handle
        return StridedMemoryView.from_dlpack(array, stream_ptr=_DEFAULT_STREAM)
