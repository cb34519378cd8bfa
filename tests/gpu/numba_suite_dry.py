"""What `numba_suite` puts in place of a GPU where there is none: kernels are compiled, and nothing runs."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import numpy as np


class Device:
    """A device array in host memory."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = {**array.__array_interface__, "version": 3}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.array, name)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, key: Any) -> Any:
        found = self.array[key]
        return Device(found) if isinstance(found, np.ndarray) else found

    def __setitem__(self, key: Any, value: Any) -> None:
        self.array[key] = getattr(value, "array", value)

    def copy_to_host(self, target: Any = None, stream: Any = 0) -> Any:
        return self.array.copy()

    def copy_to_device(self, source: Any, stream: Any = 0) -> None:
        pass


def _of(value: Any) -> Device:
    if isinstance(value, np.void):
        value = np.array(value, value.dtype)
    value = np.array(getattr(value, "array", value), order="A")
    return Device(value)


def stand_in_for_gpu() -> None:
    """Let numba's tests make arrays, and cupar launch nothing."""
    from numba import cuda
    from numba.cuda import dispatcher, testing
    from numba.cuda.cudadrv import devices

    from cupar._device import driver
    from cupar._jit import dispatcher as own
    from cupar._jit import overload, site

    device = SimpleNamespace(
        compute_capability=(9, 0), MULTIPROCESSOR_COUNT=132, MAX_THREADS_PER_BLOCK=1024, WARP_SIZE=32,
        name=b"none", id=0, MAX_REGISTERS_PER_BLOCK=65536,
    )  # fmt: skip
    context = SimpleNamespace(device=device, synchronize=lambda: None, get_memory_info=lambda: (2**34, 2**35))
    stream = SimpleNamespace(handle=7, synchronize=lambda: None, __cuda_stream__=lambda: (0, 7))
    stream.auto_synchronize = contextlib.nullcontext
    make = {
        "to_device": lambda value, *more, **named: _of(value),
        "device_array": lambda shape, dtype=np.float64, strides=None, order="C", stream=0: _of(
            np.zeros(shape, dtype, order)
        ),
        "device_array_like": lambda array, stream=0: _of(np.zeros_like(getattr(array, "array", array))),
        "managed_array": lambda shape, dtype=np.float64, **named: np.zeros(shape, dtype),
        "pinned_array": lambda shape, dtype=np.float64, **named: np.zeros(shape, dtype),
        "as_cuda_array": lambda value, *more, **named: value,
        "stream": lambda: stream,
        "synchronize": lambda: None,
        "current_context": lambda *more: context,
        "get_current_device": lambda: device,
        "is_supported_version": lambda: True,
    }
    for name, function in make.items():
        setattr(cuda, name, function)
    devices.get_context = lambda *more: context
    dispatcher.get_current_device = lambda: device
    testing.devices.get_context = devices.get_context
    driver.current_device = lambda: SimpleNamespace(ordinal=0, cc=90)
    driver.has_several_devices = False
    overload.Overload.attributes = property(
        lambda self: dict.fromkeys(overload.ATTRIBUTES, 32)  # type: ignore[assignment]
    )
    overload.Overload.best_block = lambda self, shared=0: 128
    overload.Overload.max_cooperative_grid_blocks = lambda self, block, shared=0: 132

    def obtained(self: Any, types: Any, cc: Any, wait: bool) -> Any:
        return make_overload(self, types, 90, wait)

    make_overload = own.Dispatcher._obtained
    own.Dispatcher._obtained = obtained

    def other(self: Any, arguments: Any) -> None:
        kernel = self.kernel
        found = kernel.overload_for(arguments)
        for name, kind, each in zip(kernel.names, found.types, arguments, strict=True):
            site.values(name, kind, each)

    site.LaunchSite.other = other
    overload.Overload.is_loaded_here = lambda self: False
