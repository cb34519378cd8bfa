"""Initial values: the dtype that one has, and its value in the dtype of an accumulator.

Scalars of NumPy, structs, and arrays of one element of any library have a dtype, which decides the
accumulator's. Python's numbers have none, and take that of the items.
"""

from __future__ import annotations

from collections.abc import Hashable
from ctypes import c_size_t, c_uint64, c_void_p, memmove
from math import frexp
from typing import Any

import numpy as np

from .. import structs
from .._base.device import is_cpu
from .._base.errors import ArgumentTypeError, ArgumentValueError
from .._device import arrays, driver

_EXPECTED = "expected a number, an array of one element, a struct or None"
_PYTHONS = (bool, int, float, complex)
_NUMBERS = (*_PYTHONS, np.number, np.bool_)
_ON_HOST = (np.ndarray, np.generic, *_PYTHONS)


def own_dtype(h_init: Any, name: str = "h_init") -> np.dtype[Any] | None:
    """Return the dtype of an initial value; None if it has none, as Python's numbers and None.

    Raises
    ------
    TypeError, ValueError
        If it cannot be an initial value.
    """
    found = structs.dtype_of_value(h_init)
    if found is not None or h_init is None:
        return found
    if isinstance(h_init, (np.ndarray, np.generic)):
        _check_size(name, h_init.size)
        return structs.normal(name, h_init.dtype)
    if isinstance(h_init, _PYTHONS):
        return None
    return structs.normal(name, _view(name, h_init).dtype)


def described(h_init: Any, items: np.dtype[Any], *, is_scan: bool) -> tuple[str | None, np.dtype[Any] | None]:
    """Return the kind of an algorithm's initial value, and its own dtype, for items of a dtype.

    The kind is that of the option "init": a scan's kernels read one in an array in their memory ("device");
    others are given with a call ("value").

    Raises
    ------
    TypeError, ValueError
        If it cannot be an initial value, or has no dtype, and that of the items cannot hold it.
    """
    if h_init is None:
        return None, None
    if is_scan and arrays.is_device_array(h_init) and (is_cpu() or _is_on_device(h_init)):
        return "device", arrays.dtype_of("h_init", h_init)
    own = own_dtype(h_init)
    if own is None:
        converted(h_init, items)
    return "value", own


def reach(number: Any) -> Hashable:
    """Return a token of a number of Python's: equal for numbers of a class that the same dtypes hold."""
    if isinstance(number, complex):
        return reach(number.real), reach(number.imag)
    is_int = isinstance(number, int)
    bits = (~number if number < 0 else number).bit_length() if is_int else frexp(number)[1]
    # Floats end within these powers of two: float16, float32 and bfloat16, float64. Bool has 0 and 1.
    is_an_end = number in (0, 1) or (bits in (16, 128, 1024) and abs(number) > 65504)
    return number < 0, bits, number if is_an_end else None


def on_host(h_init: Any, name: str = "h_init") -> Any:
    """Return an initial value that is on the host: one in another library's array as NumPy's.

    The host waits for the GPU if it is there.
    """
    if h_init is None or isinstance(h_init, _ON_HOST) or structs.is_struct(type(h_init)):
        return h_init
    view = _view(name, h_init)
    found = np.empty((), view.dtype)
    if _is_on_device(h_init):
        driver.call("cuCtxSynchronize")
        places = c_void_p(found.ctypes.data), c_uint64(view.address)
        driver.call("cuMemcpyDtoH_v2", *places, c_size_t(found.nbytes))
    else:
        memmove(found.ctypes.data, view.address, found.nbytes)
    return found


def converted(h_init: Any, dtype: np.dtype[Any]) -> Any:
    """Return an initial value in a form that an array of `dtype` stores without losing its kind.

    Raises
    ------
    TypeError
        If it is None, an array of another dtype, or a number of a larger kind than `dtype`.
    ValueError
        If it is not one element, or a number that `dtype` cannot hold.
    """
    if isinstance(h_init, _NUMBERS):  # first, as most are
        return _exactly(h_init, dtype)
    if h_init is None:
        raise ArgumentTypeError("h_init", "this algorithm was built with an initial value, got None")
    h_init = on_host(h_init)
    if isinstance(h_init, (np.ndarray, np.void)):
        _check_size("h_init", h_init.size)
        if h_init.dtype != dtype and not arrays.same_layout("h_init", h_init.dtype, dtype):
            raise ArgumentTypeError("h_init", other_dtype("an array", h_init.dtype, dtype))
        # A struct's bytes, ignoring names of fields and padding.
        return np.asarray(h_init).reshape(-1).view(dtype)[0]
    struct = structs.dtype_of_value(h_init)
    if struct is not None:
        if structs.layout(struct) != structs.layout(dtype):
            raise ArgumentTypeError("h_init", other_dtype("a struct", struct, dtype))
        return h_init
    return _exactly(h_init, dtype)  # such as a scalar of bfloat16


def packed(h_init: Any, dtype: np.dtype[Any]) -> bytes:
    """Return the bytes of an initial value in an array of `dtype`; raises as `converted` does."""
    memory = np.zeros(1, dtype)
    memory[0] = converted(h_init, dtype)
    return memory.tobytes()


def is_convertible(number: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Whether numbers of a dtype are converted silently to that of an accumulator."""
    return structs.kind_of(number) in "biufc" and structs.convertible(number, dtype)


def not_converted(number: str, dtype: np.dtype[Any]) -> str:
    """Return the message for a number of a larger kind than the accumulator's."""
    return (
        f"{number} is not converted to {structs.text(dtype)} silently; given to the factory as a "
        "NumPy scalar, it decides the accumulator's dtype"
    )


def other_dtype(kind: str, given: np.dtype[Any], dtype: np.dtype[Any]) -> str:
    """Return the message for an array or struct of another dtype than the accumulator's."""
    return f"this algorithm accumulates in {structs.text(dtype)}, got {kind} of {structs.text(given)}"


def _view(name: str, h_init: Any) -> arrays.ArrayView:
    """Read another library's array of one element."""
    from .._device import host_arrays  # of which most processes need nothing

    if not host_arrays.is_array_class(type(h_init)) and not hasattr(h_init, "__cuda_array_interface__"):
        raise ArgumentTypeError(name, f"{_EXPECTED}, got {type(h_init).__name__}")
    found = arrays.read(name, h_init, not _is_on_device(h_init))
    _check_size(name, found.size)
    return found


def _is_on_device(h_init: Any) -> bool:
    ask = getattr(type(h_init), "__dlpack_device__", None)
    if ask is None:
        return hasattr(h_init, "__cuda_array_interface__")
    from .._device.host_arrays import CPU

    try:
        return bool(ask(h_init)[0] != CPU)
    except Exception:  # attributes of arrays may raise anything, which `arrays.read` reports
        return True


def _check_size(name: str, size: int) -> None:
    if size != 1:
        raise ArgumentValueError(name, f"{_EXPECTED}, got an array of {size}")


def _exactly(number: Any, dtype: np.dtype[Any]) -> Any:
    """Convert a number; floats may be rounded, but neither wrap around nor overflow."""
    own = np.dtype(type(number))
    if own.hasobject:  # a member of an IntEnum, or of another class made of one of Python's numbers
        number = next(kind for kind in _PYTHONS[1:] if isinstance(number, kind))(number)
        own = np.dtype(type(number))
    if not is_convertible(own, dtype):
        raise ArgumentTypeError("h_init", not_converted(repr(number), dtype))
    try:
        with np.errstate(over="ignore"):
            given = float(number) if structs.is_bfloat16(dtype) else number  # ml_dtypes takes no large int
            value = np.array(given, dtype)[()]
        is_lost = value != number if dtype.kind in "biu" else np.isinf(value) and abs(number) != np.inf
    except OverflowError:
        is_lost = True
    if is_lost:
        raise ArgumentValueError("h_init", f"{dtype} cannot hold {number!r}")
    return value
