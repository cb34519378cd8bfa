"""Types for annotations, by the names that ``cuda.compute.typing`` has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from .iterators import IteratorBase
from .op import OpAdapter, OpKind, RawOp

__all__ = ["DeviceArrayLike", "GpuStruct", "IteratorT", "Operator", "StreamLike"]


class DeviceArrayLike(Protocol):
    """An array on the device; arrays that have DLPack alone are taken as well."""

    __cuda_array_interface__: dict[str, Any]


class StreamLike(Protocol):
    """A stream; handles, and objects with ``ptr``, ``handle`` or ``cuda_stream``, are taken as well."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the version of the protocol, and the handle."""


GpuStruct = TypeVar("GpuStruct")
IteratorT = TypeVar("IteratorT", bound=IteratorBase)
Operator = Callable[..., Any] | OpKind | RawOp | OpAdapter
