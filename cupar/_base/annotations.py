"""Types of public parameters. Only type checkers import this file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray


class _CudaArray(Protocol):
    """An array of CuPy, Numba or PyTorch, on a GPU."""

    @property
    def __cuda_array_interface__(self) -> Any: ...


class _DLPackArray(Protocol):
    """An array of any library, on a GPU or the CPU."""

    def __dlpack__(self, *args: Any, **named: Any) -> Any: ...


class _HostArray(Protocol):
    """An array of NumPy, for the CPU."""

    @property
    def __array_interface__(self) -> Any: ...


class _Iterator(Protocol):
    """One of cupar's iterators."""

    leaves: tuple[Any, ...]

    @property
    def dtype(self) -> Any: ...
    def capacity(self, name: str) -> int: ...


class _Buffers(Protocol):
    """A `DoubleBuffer`."""

    selector: int

    def current(self) -> Any: ...
    def alternate(self) -> Any: ...


class _Stream(Protocol):
    """A stream with CUDA's protocol: cuda.core's, and CuPy's and Numba's of today."""

    def __cuda_stream__(self) -> tuple[int, int]: ...


class _StreamOfPyTorch(Protocol):
    @property
    def cuda_stream(self) -> Any: ...


class _StreamOfCuPy(Protocol):
    @property
    def ptr(self) -> Any: ...


class _StreamOfNumba(Protocol):
    @property
    def handle(self) -> Any: ...


class _DTypeOfPyTorch(Protocol):
    @property
    def is_floating_point(self) -> bool: ...
    @property
    def itemsize(self) -> int: ...


class _Order(Protocol):
    """A member of `SortOrder`, of cupar's or of cuda.compute's."""

    @property
    def name(self) -> str: ...
    def __index__(self) -> int: ...


_Array: TypeAlias = _CudaArray | _DLPackArray | _HostArray

Array: TypeAlias = _Array | _Iterator
"""A device array, a host array for the CPU, or an iterator."""

ArrayOrType: TypeAlias = Array | DTypeLike
"""What a factory takes: a dtype or a struct type stands for an array of it."""

Keys: TypeAlias = Array | _Buffers
KeysOrType: TypeAlias = ArrayOrType | _Buffers
Order: TypeAlias = _Order
Stream: TypeAlias = int | _Stream | _StreamOfPyTorch | _StreamOfCuPy | _StreamOfNumba | None
ComputeCapability: TypeAlias = int | str | Sequence[int] | None

# --- Functions of arrays -----------------------------------------------------------------------------------

Arrays: TypeAlias = Array | tuple[Any, ...]
AnyArray: TypeAlias = Any
"""An array of the class of an iterator's arrays, or several: type checkers do not know it."""

ArrayT = TypeVar("ArrayT", bound=_Array)
ArraysT = TypeVar("ArraysT", bound=_Array | tuple[Any, ...])
ItemsT = TypeVar("ItemsT")
ItemT = TypeVar("ItemT", bound=np.generic)

DType: TypeAlias = DTypeLike | _DTypeOfPyTorch | None
Axes: TypeAlias = int | tuple[int, ...] | None
Floats: TypeAlias = Sequence[float] | NDArray[Any]
"""Numbers on the host."""
