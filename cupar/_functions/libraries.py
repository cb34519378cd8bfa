"""Libraries of arrays: how each makes an array, names its current stream, copies strided ones, reads back."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from ctypes import c_size_t, c_uint64, c_void_p
from functools import cache, partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from .. import _pytorch, structs
from .._base import device
from .._base.errors import ArgumentTypeError
from .._base.fork import in_child
from .._device import arrays, driver, host_arrays, streams
from .._device.readers import library_of
from ..host import View, view


class Spans(NamedTuple):
    """Arrays on a GPU that can be copied one behind another."""

    addresses: list[int]
    sizes: list[int]  # in items
    itemsize: int


class ArrayLibrary:
    """NumPy, and the base of the others: results and temporaries come from one of these.

    Attributes
    ----------
    on_cpu : bool
        Whether its arrays are in host memory.
    """

    on_cpu = True

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new array of the library's."""
        return self.maker(dtype)(shape)

    def maker(self, dtype: np.dtype[Any]) -> Callable[[Any], Any]:
        """Return the library's quickest function that makes arrays of a dtype, given a shape or a length."""
        return partial(np.empty, dtype=dtype)

    def like(self, array: Any, dtype: np.dtype[Any]) -> Any:
        """Return the own dtype for which `new_empty` of an array makes arrays most quickly; None: not so."""
        return None

    def stream(self) -> int | None:
        """Return the handle of the current stream, None on the CPU."""
        return None if self.on_cpu else 0

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Return a context in which the library allocates for a stream, and copies on it."""
        return nullcontext()

    def contiguous(self, array: Any) -> Any:
        """Return a copy in C's order, made by the library; None if it makes none."""
        return np.ascontiguousarray(array)

    def host(self, array: Any) -> np.ndarray[Any, Any]:
        """Return a copy in host memory, after the enqueued work is done."""
        return np.array(host_arrays.converter(array)(array))

    def put(self, given: np.ndarray[Any, Any]) -> Any:
        """Return a copy of host memory as an array of the library."""
        return given.copy()

    def spans(self, given: Sequence[Any]) -> Spans | None:
        """Return where arrays on a GPU are, read by attributes: a view of each takes longer than to copy it.

        None unless all of them are the library's, of one dtype, the current device and one shape but for the
        first axis, and in C's order.
        """
        return None

    def joined(self, given: Sequence[Any], length: int) -> tuple[Any, int]:
        """Return a new array for such arrays along the first axis, and its address."""
        raise NotImplementedError

    def memory(self, array: Any) -> Any:
        """Return the array as kernels take it, with shape and strides: NumPy's, or a view on a device."""
        if not self.on_cpu:
            return view(array)
        if isinstance(array, np.generic):
            return np.asarray(array)
        return host_arrays.converter(array)(array)


class _Torch(ArrayLibrary):
    """PyTorch, for one device."""

    def __init__(self, module: Any, place: Any) -> None:
        _pytorch.skip_frames()
        self._torch, self._place = module, place
        self.on_cpu = place.type == "cpu"
        self.empty_like = module.empty_like
        self._index = 0 if self.on_cpu else place.index
        if not self.on_cpu:
            self.stream = partial(_pytorch.current_raw_stream, place.index)  # type: ignore[method-assign]

    def maker(self, dtype: np.dtype[Any]) -> Callable[[Any], Any]:
        return partial(self._torch.empty, dtype=_torch_dtype(self._torch, dtype), device=self._place)

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        if self.on_cpu:
            return nullcontext()
        cuda, handle = self._torch.cuda, driver.stream_handle(stream)
        # An external stream of handle 0 would be another stream, from PyTorch's pool.
        is_default = handle in (0, driver.LEGACY)
        found: AbstractContextManager[Any] = cuda.stream(
            cuda.default_stream(self._place) if is_default else cuda.ExternalStream(handle, self._place)
        )
        return found

    def like(self, array: Any, dtype: np.dtype[Any]) -> Any:
        return _torch_dtype(self._torch, dtype) if type(array) is self._torch.Tensor else None

    def _own(self, array: Any) -> Any:
        """Return an array as a tensor, which one that has DLPack alone is not."""
        return array if isinstance(array, self._torch.Tensor) else self._torch.from_dlpack(array)

    def contiguous(self, array: Any) -> Any:
        # `from_dlpack` of negative strides ends the process.
        return array.contiguous() if isinstance(array, self._torch.Tensor) else None

    def host(self, array: Any) -> np.ndarray[Any, Any]:
        found = self._own(array).cpu()
        return np.array(host_arrays.converter(found)(found))

    def put(self, given: np.ndarray[Any, Any]) -> Any:
        return self._torch.from_numpy(given.copy()).to(self._place)

    def spans(self, given: Sequence[Any]) -> Spans | None:
        first, cls, index = given[0], self._torch.Tensor, self._index
        if self.on_cpu or not first.ndim or _is_elsewhere(index) or {*map(type, given)} != {cls}:
            return None
        is_there = {*map(cls.get_device, given)} == {index} and all(map(cls.is_contiguous, given))
        if not is_there or any(map(_REQUIRES_GRAD, given)) or not _alike(given):
            return None
        if any(map(cls.is_neg, given)) or (first.is_complex() and any(map(cls.is_conj, given))):
            return None
        try:
            return Spans([*map(cls.data_ptr, given)], [*map(cls.numel, given)], first.element_size())
        except RuntimeError:  # of a tensor that has no memory of its own, as within torch.vmap
            return None

    def joined(self, given: Sequence[Any], length: int) -> tuple[Any, int]:
        first = given[0]
        found = first.new_empty((length, *first.shape[1:]))
        return found, found.data_ptr()


# Read in loops of C's, as there may be thousands.
_DTYPE, _NDIM, _SHAPE = map(attrgetter, ("dtype", "ndim", "shape"))
_C_CONTIGUOUS, _DATA, _SIZE, _PTR, _DEVICE, _REQUIRES_GRAD = map(
    attrgetter, ("_c_contiguous", "data", "size", "ptr", "device_id", "requires_grad")
)


def _alike(given: Sequence[Any]) -> bool:
    """Whether arrays have one dtype, and one shape but for the first axis."""
    if len({*map(_DTYPE, given)}) != 1 or len({*map(_NDIM, given)}) != 1:
        return False
    return given[0].ndim == 1 or len({tuple(shape[1:]) for shape in map(_SHAPE, given)}) == 1


def copy_on_device(target: int, source: int, nbytes: int, stream: Any) -> None:
    """Have the driver copy bytes from one address to another, on a stream."""
    handle = c_void_p(driver.stream_handle(stream))
    driver.call("cuMemcpyDtoDAsync_v2", c_uint64(target), c_uint64(source), c_size_t(nbytes), handle)


def _is_elsewhere(index: int) -> bool:
    """Whether a device is not the current one."""
    return driver.has_several_devices and driver.current_device().ordinal != index


@cache
def _torch_dtype(torch: Any, dtype: np.dtype[Any]) -> Any:
    found = getattr(torch, "bfloat16" if structs.is_bfloat16(dtype) else dtype.name, None)
    if found is None:
        raise ArgumentTypeError("dtype", f"PyTorch has no {structs.text(dtype)}")
    return found


class _Cupy(ArrayLibrary):
    on_cpu = False

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self.stream = streams.of_cupy(cupy)  # type: ignore[method-assign]

    def maker(self, dtype: np.dtype[Any]) -> Callable[[Any], Any]:
        return partial(self._cupy.ndarray, dtype=dtype)

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        # Calls of ExternalStream warn that it is deprecated from CuPy 14 on, and what Stream.from_external
        # makes there destroys the stream with itself.
        external = self._cupy.cuda.ExternalStream
        found: AbstractContextManager[Any] = external.__new__(external)
        external.__base__.__init__(found, driver.stream_handle(stream), -1)
        return found

    def _own(self, array: Any) -> Any:
        """Return an array as CuPy's, which one that has DLPack alone is not."""
        return array if isinstance(array, self._cupy.ndarray) else self._cupy.from_dlpack(array)

    def contiguous(self, array: Any) -> Any:
        return self._cupy.ascontiguousarray(self._own(array))

    def host(self, array: Any) -> np.ndarray[Any, Any]:
        found: np.ndarray[Any, Any] = self._own(array).get()
        return found

    def put(self, given: np.ndarray[Any, Any]) -> Any:
        return self._cupy.asarray(given)

    def spans(self, given: Sequence[Any]) -> Spans | None:
        if {*map(type, given)} != {self._cupy.ndarray} or not all(map(_C_CONTIGUOUS, given)):
            return None
        memories, first = [*map(_DATA, given)], given[0]
        index = memories[0].device_id
        if not first.ndim or _is_elsewhere(index) or not _alike(given):
            return None
        if driver.has_several_devices and {*map(_DEVICE, memories)} != {index}:
            return None
        return Spans([*map(_PTR, memories)], [*map(_SIZE, given)], first.dtype.itemsize)

    def joined(self, given: Sequence[Any], length: int) -> tuple[Any, int]:
        first = given[0]
        found = self._cupy.ndarray((length, *first.shape[1:]), first.dtype)
        return found, found.data.ptr


class _Numba(ArrayLibrary):
    on_cpu = False

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda

    def maker(self, dtype: np.dtype[Any]) -> Callable[[Any], Any]:
        return partial(self._cuda.device_array, dtype=dtype)

    def contiguous(self, array: Any) -> Any:
        return None

    def host(self, array: Any) -> np.ndarray[Any, Any]:
        self._cuda.synchronize()
        found: np.ndarray[Any, Any] = array.copy_to_host()
        return found

    def put(self, given: np.ndarray[Any, Any]) -> Any:
        return self._cuda.to_device(given.copy())  # an array of one item may have any strides


NUMPY = ArrayLibrary()
# By the class of an array, what tells its library. PyTorch's depends on the tensor.
_known: dict[type, Callable[[Any], ArrayLibrary]] = {}


def of(name: str, array: Any) -> ArrayLibrary:
    """Return the library of an array; raise TypeError, which begins with `name`, if it is no array.

    A tensor that requires grad is refused, and any while PyTorch traces or transforms the call. So is a host
    array where ``cupar.device("cuda")`` or ``CUPAR_DEVICE=cuda`` asks for the GPU.
    """
    find = _known.get(type(array))
    if find is None:
        find = _known[type(array)] = _finder(name, array)
    if library_of(type(array)) == "torch" and _pytorch.sees_tensors_alone():
        raise ArgumentTypeError(
            name,
            "got a tensor while PyTorch traces or transforms the call (torch.func, make_fx, "
            "torch.jit.trace, FakeTensorMode), and has no part in what cupar.arrays does: use cupar.torch, "
            "whose functions are operators of PyTorch",
        )
    found = find(array)
    if found.on_cpu:
        if device.refuses_host():
            raise ArgumentTypeError(
                name,
                f"expected a device array, as the device is 'cuda', got a {type(array).__name__} in "
                "host memory",
            )
    elif device.is_cpu():
        raise ArgumentTypeError(
            name, f"expected a host array, as the device is 'cpu', got a {type(array).__name__} on a GPU"
        )
    if found.__class__ is _Torch and array.requires_grad and found._torch.is_grad_enabled():
        raise ArgumentTypeError(
            name,
            "got a tensor that requires grad, and cupar.arrays has no derivatives: use "
            "cupar.torch, which has, operators of PyTorch (torch.sum, torch.cumsum, …), .detach() or "
            "torch.no_grad()",
        )
    return found


def _finder(name: str, array: Any) -> Callable[[Any], ArrayLibrary]:
    cls = type(array)
    library = library_of(cls)
    if issubclass(cls, (np.ndarray, np.generic)):
        return lambda array: NUMPY
    if library == "torch":
        module = sys.modules["torch"]
        return lambda tensor: _torch(module, tensor.device)
    if library == "cupy":
        return lambda array: _cupy()
    if cls.__module__.startswith("numba.cuda.") and hasattr(array, "copy_to_host"):
        return lambda array: _numba()
    if cls is View or hasattr(array, "__cuda_array_interface__"):
        return lambda array: _of_devices()
    if hasattr(array, "__dlpack_device__") and not hasattr(array, "__array_interface__"):
        return lambda array: NUMPY if array.__dlpack_device__()[0] == host_arrays.CPU else _of_devices()
    if hasattr(array, "__array_interface__"):
        return lambda array: NUMPY
    raise ArgumentTypeError(
        name,
        f"expected an array of NumPy, CuPy, PyTorch or Numba, or one with DLPack, an iterator or a "
        f"tuple of arrays, got {cls.__name__}",
    )


@cache
def _torch(module: Any, place: Any) -> _Torch:
    if place.type not in ("cpu", "cuda"):
        raise ArgumentTypeError("x", f"expected a tensor on the CPU or a CUDA device, got one on {place}")
    return _Torch(module, place)


@cache
def _cupy() -> _Cupy:
    return _Cupy(importlib.import_module("cupy"))


@cache
def _numba() -> _Numba:
    return _Numba(importlib.import_module("numba.cuda"))


def _of_devices() -> ArrayLibrary:
    """Return the library of results for arrays that only have an interface."""
    for name in ("cupy", "torch"):
        if name in sys.modules or importlib.util.find_spec(name) is not None:
            if name == "cupy":
                return _cupy()
            torch = importlib.import_module("torch")
            return _torch(torch, torch.device("cuda", torch.cuda.current_device()))
    return _numba()


def is_array(value: Any) -> bool:
    """Whether a value says that it is an array, wherever it is."""
    cls = type(value)
    return isinstance(value, np.ndarray) or (
        (
            cls is View
            or hasattr(cls, "__dlpack_device__")
            or hasattr(cls, "__array_interface__")
            or hasattr(cls, "__cuda_array_interface__")
        )
        and not issubclass(cls, np.generic)
    )


def address(array: Any, on_cpu: bool) -> tuple[int, int]:
    """Return where the memory of a contiguous array begins and ends."""
    found = arrays.read("", array, on_cpu)
    return found.address, found.address + found.size * found.dtype.itemsize


@in_child
def _forget() -> None:
    for each in (_torch, _cupy, _numba):
        each.cache_clear()
