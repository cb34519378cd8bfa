"""Options of kernels and device functions: those of numba.cuda.jit, and why some are not supported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .._base.errors import of_parameter

_REFUSED = {
    "debug": "a cupar kernel checks for no exceptions; use lineinfo, or numba.cuda.jit to debug",
    "boundscheck": "bounds are not checked on a GPU, by numba.cuda neither",
    "extensions": "arguments are read by cupar; give arrays and numbers",
    "argtypes": "give the signature as the first argument",
    "restype": "a kernel returns nothing; give the signature as the first argument",
    "bind": "a kernel is loaded when it is first launched",
}
_FLAGS = ("fastmath", "lineinfo", "opt", "forceinline", "cache", "lto", "device", "nopython")
_COLLECTIONS = (set, frozenset, dict)
_SETS = (
    "relaxations cannot be chosen one by one: numba.cuda takes all for any, and multiplications and "
    "additions are contracted without it"
)
_CARVEOUTS = {"default": -1, "maxl1": 0, "maxshared": 100}


def checked(options: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    """Return whether it is a device function, and the options that change its code or loading.

    Raises
    ------
    TypeError, ValueError
        If an option is unknown or not supported; the message begins with its name.
    """
    own, is_device = dict[str, Any](), bool(options.get("device"))
    for name, value in options.items():
        try:
            found = _read(name, value, is_device)
        except (TypeError, ValueError) as error:
            raise of_parameter(name, error) from None
        if found is not None:
            own[name] = found
    return is_device, own


def _read(name: str, value: Any, is_device: bool) -> Any:
    """Return an option as it is in keys; None if it changes nothing."""
    if name in _FLAGS:
        if not isinstance(value, (bool, int, type(None))):
            why = f"; {_SETS}" if name == "fastmath" and isinstance(value, _COLLECTIONS) else ""
            raise TypeError(f"expected True or False, got {value!r}{why}")
        if name == "lto" and value is False:
            raise TypeError("kernels are always linked with their device functions: drop lto=False")
        if name == "opt":
            return False if value is not None and not value else None
        return True if value and name in ("fastmath", "lineinfo", "forceinline") else None
    if name == "inline":
        return None if value in ("never", False, None) else "always" if value is True else value
    if name in _NUMBERS:
        return None if value is None else _NUMBERS[name](value)
    if name == "link":
        if value is not None and is_device:
            raise TypeError("a device function is linked with nothing: give this to the kernel")
        return value
    if value or name not in _REFUSED:
        raise TypeError(_REFUSED.get(name, "unknown cupar.jit option"))
    return None


def _integer(value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"expected an integer from {least} to {most}, got {value!r}")
    return value


def _bounds(value: Any) -> tuple[int, ...]:
    each = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(each) <= 3:
        raise ValueError(f"expected up to three integers, got {value!r}")
    return tuple(_integer(one, 0 if place else 1, 2**31 - 1) for place, one in enumerate(each))


def _carveout(value: Any) -> int:
    found = _CARVEOUTS.get(value.lower()) if isinstance(value, str) else _integer(value, -1, 100)
    if found is None:
        raise ValueError(f"expected one of {', '.join(_CARVEOUTS)}, got {value!r}")
    return found


_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "max_registers": lambda value: _integer(value, 1, 255),
    "launch_bounds": _bounds,
    "shared_memory_carveout": _carveout,
}
