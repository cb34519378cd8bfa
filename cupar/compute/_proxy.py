"""Placeholders of arrays and initial values, for builds that are not run."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._device import arrays
from . import types

__all__ = ["ProxyArray", "ProxyValue"]

_NO_ARRAY = (
    "ProxyArray has no GPU data: it stands for an array where an algorithm is made; give a device array to "
    "the call"
)
_NO_VALUE = (
    "ProxyValue has no data: it stands for an initial value where an algorithm is made; give a NumPy array "
    "to the call"
)


class _Interface(dict[str, Any]):
    """All but the address of the data, which is undefined."""

    def __missing__(self, key: str) -> Any:
        if key == "data":
            raise RuntimeError(_NO_ARRAY)
        raise KeyError(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return an item, as `dict.get` does."""
        return self[key] if key == "data" else super().get(key, default)


class _Proxy:
    """Has a dtype, and nothing else."""

    __slots__ = ("_dtype",)

    def __init__(self, dtype: Any) -> None:
        self._dtype = arrays.dtype_of("dtype", types.as_dtype(dtype))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of its items."""
        return self._dtype

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dtype={self._dtype})"


class ProxyArray(_Proxy):
    """Stands for a device array of a dtype in ``make_…``, with ``compute_capability=`` and without a GPU.

    Parameters
    ----------
    dtype : dtype or struct
    """

    __slots__ = ()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return _Interface(shape=(1,), typestr=self._dtype.str, version=3, strides=None)


class ProxyValue(_Proxy):
    """Stands for an initial value of a dtype in ``make_…``.

    Parameters
    ----------
    dtype : dtype or struct
    """

    __slots__ = ()


class _NoAddress(int):
    """An address that cannot be used: a call first looks whether it is aligned."""

    def __mod__(self, other: Any) -> int:
        raise RuntimeError(_NO_ARRAY)


def _view(proxy: ProxyArray) -> arrays.ArrayView:
    return arrays.ArrayView(
        _NoAddress(), 2**62, proxy.dtype, True, True
    )  # large enough for any call to get there


arrays.register(ProxyArray, _view, anywhere=True)


def initial(value: Any, *, may_be_proxy: bool = False) -> Any:
    """Return an initial value as factories take it."""
    if isinstance(value, ProxyValue):
        if not may_be_proxy:
            raise RuntimeError(_NO_VALUE)
        return np.zeros(1, value.dtype)
    return value
