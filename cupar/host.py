"""Compiled host code: functions under ``numba.njit`` that run algorithms and launch kernels.

Such a function takes device arrays as views, streams as handles, and algorithm objects as they are, given as
arguments or read as globals. No Python object is touched while it runs: it may release the interpreter's lock
(``nogil=True``) and run in many threads. Without ``njit`` the same function does the same.

>>> import cupar, numba                                               # doctest: +SKIP
>>> @numba.njit(nogil=True)                                           # doctest: +SKIP
... def steps(u, v, total, n, stream):
...     for _ in range(n):
...         diffuse.run(u, v, u.size, stream)
...         u, v = v, u
...     sum_into.run(u, total, u.size, 0.0, stream)
>>> steps(cupar.view(u), cupar.view(v), cupar.view(total), 1000, 0)   # doctest: +SKIP
"""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import structs
from ._base import sizes
from ._base.device import is_cpu
from ._base.errors import ArgumentTypeError
from ._device import arrays, streams
from ._device.readers import is_contiguous

__all__ = ["View", "view"]


class View:
    """A device array, or a part of one: where it is, and how its items lie. Made by `cupar.view`.

    It is a device array itself: all that takes arrays takes it, here and in functions under ``numba.njit``.
    Slicing it, with integers and slices, gives a view of a part; a single item is a view without dimensions.

    Attributes
    ----------
    dtype : numpy.dtype
    shape : tuple of int
    strides : tuple of int
        In bytes.
    address : int
        Of the first item.
    writable : bool
    """

    __slots__ = (
        *("__weakref__", "_kind", "_memory", "_owner"),
        *("address", "dtype", "shape", "strides", "writable"),
    )
    __module__ = "cupar"

    def __init__(
        self,
        address: int,
        dtype: np.dtype[Any],
        shape: Sequence[int],
        strides: Sequence[int],
        writable: bool,
        owner: Any,
    ) -> None:
        self.address: int = address
        self.dtype: np.dtype[Any] = dtype
        self.writable: bool = writable
        self.shape: tuple[int, ...] = tuple(shape)
        self.strides: tuple[int, ...] = tuple(strides)
        self._owner = owner  # the array, or another owner of the memory
        self._memory: list[Any] = []
        self._kind: Any = None

    @property
    def _words(self) -> int:
        """The address of what compiled code reads, in 8 bytes each; made when it asks."""
        if not self._memory:
            words = struct.pack(f"=Q{2 * self.ndim}q", self.address, *self.shape, *self.strides)
            self._memory.append(ctypes.create_string_buffer(words, len(words)))
        return ctypes.addressof(self._memory[0])  # of the first, should two threads have made one

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of items."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    @property
    def itemsize(self) -> int:
        """Bytes of an item."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all items."""
        return self.size * self.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a view without dimensions has no length")
        return self.shape[0]

    def __getitem__(self, index: Any) -> View:
        given = index if isinstance(index, tuple) else (index,)
        if len(given) > self.ndim:
            raise IndexError(f"a view of {self.ndim} dimensions was given {len(given)} indices")
        address, shape, strides = self.address, list[int](), list[int]()
        for each, extent, stride in zip(given, self.shape, self.strides, strict=False):
            if isinstance(each, slice):
                begin, length, step = _cut(each, extent)
                address += begin * stride
                shape.append(length)
                strides.append(stride * step)
                continue
            try:
                at = operator.index(each)
            except TypeError:
                raise TypeError(f"views take integers and slices, got {type(each).__name__}") from None
            if not -extent <= at < extent:
                raise IndexError(f"index {at} is out of bounds for an extent of {extent}")
            address += (at + extent if at < 0 else at) * stride
        shape += self.shape[len(given) :]
        strides += self.strides[len(given) :]
        return type(self)(address, self.dtype, shape, strides, self.writable, self._owner)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "strides": None if layout(self.shape, self.strides, self.itemsize) == "C" else self.strides,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "data": (self.address, not self.writable),
            "version": 3,
        }

    def __repr__(self) -> str:
        return f"<cupar view of {self.dtype} {self.shape} at {self.address:#x}>"

    @property
    def _numba_type_(self) -> Any:
        """Its numba type; only numba, which is imported then, asks for it."""
        if self._kind is None:
            from ._host import view_types

            kind = layout(self.shape, self.strides, self.itemsize)
            self._kind = view_types.view_type(type(self), self.dtype, self.ndim, kind, self.writable)
        return self._kind

    @classmethod
    def _of_words(cls, dtype: np.dtype[Any], writable: bool, address: int, *layout: int) -> View:
        """Return what compiled code made; it keeps nothing alive."""
        half = len(layout) // 2
        return cls(address, dtype, layout[:half], layout[half:], writable, None)


def _cut(given: slice, extent: int) -> tuple[int, int, int]:
    """Return where a slice of an extent begins, how many items it has, and its step."""
    if given.step is None and (
        sizes.is_size(extent) or sizes.is_size(given.start) or sizes.is_size(given.stop)
    ):
        ends = [_clamped(each, extent) for each in (0 if given.start is None else given.start, given.stop)]
        return ends[0], max(ends[1] - ends[0], 0), 1
    begin, end, step = given.indices(extent)
    return begin, len(range(begin, end, step)), step


def _clamped(index: Any, extent: int) -> Any:
    if index is None:
        return extent
    return max(index + extent, 0) if index < 0 else min(index, extent)


def _read(view: View) -> arrays.ArrayView:
    shape, strides, size = view.shape, view.strides, view.size
    c_order = size <= 1 or is_contiguous(shape, strides, view.itemsize)
    contiguous = c_order or is_contiguous(shape[::-1], strides[::-1], view.itemsize)
    # What it is of is freed in the order of streams, unless that was only lent: see `view`.
    owner = view._owner if type(view._owner) is tuple else None
    return arrays.ArrayView(view.address, size, view.dtype, contiguous, view.writable, c_order, owner)


arrays.OWN.add(View)
arrays.register(View, _read)
streams.register(View, lambda view: (view._owner,))


def layout(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> str:
    """Return "C" or "F" if items lie one after the other, in that order, and "A" otherwise."""
    if 0 in shape or tuple(strides) == _strides_in(shape, itemsize, "C"):
        return "C"
    return "F" if tuple(strides) == _strides_in(shape, itemsize, "F") else "A"


def _strides_in(shape: Sequence[int], itemsize: int, order: str) -> tuple[int, ...]:
    """Return the strides in bytes of an array whose items lie in C's or Fortran's order."""
    found, stride = [], itemsize
    for extent in reversed(shape) if order == "C" else shape:
        found.append(stride)
        stride *= extent
    return tuple(found[::-1] if order == "C" else found)


def _strides(array: Any, shape: Sequence[int], found: arrays.ArrayView) -> tuple[int, ...]:
    """Return the strides of a device array in bytes."""
    itemsize = found.dtype.itemsize
    if found.c_order:
        return _strides_in(shape, itemsize, "C")
    if found.contiguous:
        return _strides_in(shape, itemsize, "F")
    return tuple(map(int, arrays.strides(array, itemsize)))


def view(array: Any) -> View:
    """Return a device array as compiled host code sees it: functions under ``numba.njit`` take views.

    Parameters
    ----------
    array : device array
        Of any strides. The view keeps it alive.

    Returns
    -------
    View

    Raises
    ------
    TypeError, ValueError
        If it is not a device array, or of a dtype that cupar has no code for.

    Examples
    --------
    >>> import cupar, cupy, numba                                     # doctest: +SKIP
    >>> add = cupar.binary_transform("f4", "f4", "f4", cupar.OpKind.PLUS)  # doctest: +SKIP
    >>> @numba.njit                                                   # doctest: +SKIP
    ... def double(a, times, stream):
    ...     for _ in range(times):
    ...         add.run(a, a, a, a.size, stream)
    >>> double(cupar.view(cupy.ones(1000, "f4")), 3, 0)               # doctest: +SKIP
    """
    if isinstance(array, View):
        return array
    if is_cpu():
        raise ArgumentTypeError(
            "array", "a view is for compiled host code, which needs a GPU; algorithms run on the CPU here"
        )
    found = arrays.view("array", array)
    dtype = structs.normal("array", found.dtype)
    shape = tuple(map(int, arrays.shape(array)))
    owner = found.owner or array  # with what was exported, be it a copy
    return View(found.address, dtype, shape, _strides(array, shape, found), found.writable, owner)
