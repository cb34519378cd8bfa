"""Reads arrays in host memory: address, size, dtype, layout and access."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .. import structs

CPU = 1  # kDLCPU


def is_array(value: Any) -> bool:
    """Whether a value says that it is an array, which may be in host memory."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return is_array_class(type(value))


def is_array_class(cls: type) -> bool:
    """Whether values of a class say that they are arrays."""
    return not issubclass(cls, np.generic) and (
        hasattr(cls, "__array_interface__") or hasattr(cls, "__dlpack_device__")
    )


def is_masked(cls: type) -> bool:
    """Whether a class is of masked arrays, without importing their module: a hit would pay for it."""
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    return masked is not None and issubclass(cls, masked)


PYTORCHS_DTYPE: Final = "a dtype of PyTorch's; give NumPy's, as in np.float32 or 'f4', or a tensor"


def is_pytorchs_dtype(cls: type) -> bool:
    """Whether a class is that of PyTorch's dtypes, which NumPy does not know."""
    return (cls.__module__, cls.__name__) == ("torch", "dtype")


def converter(array: Any) -> Callable[[Any], np.ndarray[Any, Any]]:
    """Return a function that makes NumPy arrays of arrays of this class, in the same memory."""
    if is_masked(type(array)):
        raise TypeError(_MASKED)
    if isinstance(array, np.ndarray):
        return np.asarray
    if isinstance(array, np.generic):
        raise TypeError(f"expected a host array, got a number of type {type(array).__name__}")
    classes = ((base.__module__.partition(".")[0], base.__name__) for base in type(array).__mro__)
    if ("torch", "Tensor") in classes:
        return _torch
    if hasattr(array, "__array_interface__"):
        return _interface
    if hasattr(array, "__dlpack_device__"):
        return _dlpack
    if hasattr(array, "__cuda_array_interface__"):
        raise TypeError(_there(array))
    kind = (
        "None"
        if array is None
        else f"{type(array).__name__}, which has neither __array_interface__ nor DLPack"
    )
    raise TypeError(
        f"expected a host array, got {PYTORCHS_DTYPE if is_pytorchs_dtype(type(array)) else kind}"
    )


_MASKED = "masked arrays are not supported"


def _there(array: Any, place: str = "a GPU") -> str:
    return (
        f"expected a host array, as this is for the CPU, got a {type(array).__name__} on {place}; copy it "
        "first"
    )


def _interface(array: Any) -> np.ndarray[Any, Any]:
    found = _Interface(array)
    interface: Any = found.__array_interface__
    if not isinstance(interface, dict) or interface.get("data") is None:
        raise TypeError(f"its __array_interface__ says no address: 'data' is missing in {interface!r}")
    if interface.get("mask") is not None:
        raise TypeError(_MASKED)
    memory, own = np.asarray(found), getattr(array, "dtype", None)
    if memory.dtype.kind == "V" and isinstance(own, np.dtype) and own.itemsize == memory.dtype.itemsize:
        memory = memory.view(own) if structs.has_bfloat16(own) else memory  # the interface says its size
    return memory


class _Interface:
    """An array by its interface alone: NumPy would rather ask a buffer or ``__array__``, which may copy."""

    def __init__(self, array: Any) -> None:
        self.__array_interface__ = array.__array_interface__
        self._array = array


def _dlpack(array: Any) -> np.ndarray[Any, Any]:
    if array.__dlpack_device__()[0] != CPU:
        raise TypeError(_there(array))
    try:
        return np.from_dlpack(array)
    except RuntimeError as error:  # as for bfloat16
        own = getattr(array, "dtype", None)
        if isinstance(own, np.dtype) and structs.has_bfloat16(own) and hasattr(array, "__array__"):
            found = np.asarray(array)
            if found.ctypes.data == np.asarray(array).ctypes.data:  # JAX's is no copy
                return found
        raise TypeError(f"NumPy does not take its DLPack: {error}") from None


def _torch(tensor: Any) -> np.ndarray[Any, Any]:
    if tensor.device.type != "cpu":
        raise TypeError(_there(tensor, f"{tensor.device.type!r}"))
    kind = str(tensor.dtype).removeprefix("torch.")
    if tensor.is_conj() or tensor.is_neg():
        raise ValueError("got a tensor with lazy conjugation or negation; call .resolve_conj().resolve_neg()")
    tensor = tensor.detach()
    if kind == "bfloat16":  # which NumPy has not
        torch = sys.modules[type(tensor).__module__.partition(".")[0]]
        bits = tensor.view(torch.int16).numpy()
        found: np.ndarray[Any, Any] = bits.view(structs.bfloat16())
        return found
    try:
        array: np.ndarray[Any, Any] = tensor.numpy()
    except TypeError as error:
        raise TypeError(f"got a tensor of {kind}, which NumPy does not take: {error}") from None
    return array
