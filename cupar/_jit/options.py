"""Options of kernels and device functions: those of numba.cuda.jit, and why some are not supported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    own: dict[str, Any] = {}
    for name, value in options.items():
        if name in _REFUSED:
            if value:
                raise TypeError(f"{name}: {_REFUSED[name]}")
        elif name in _FLAGS:
            if not isinstance(value, (bool, int, type(None))):
                why = f"; {_SETS}" if name == "fastmath" and isinstance(value, _COLLECTIONS) else ""
                raise TypeError(f"{name}: expected True or False, got {value!r}{why}")
            if name == "lto" and value is False:
                raise TypeError("lto: kernels are always linked with their device functions: drop lto=False")
            if name in ("fastmath", "lineinfo", "forceinline") and value:
                own[name] = True
            if name == "opt" and value is not None and not value:
                own[name] = False
        elif name == "link":
            if value is not None and options.get("device"):
                raise TypeError("link: a device function is linked with nothing: give this to the kernel")
            own[name] = value
        elif name == "inline":
            if value not in ("never", False, None):
                own[name] = "always" if value is True else value
        elif name == "max_registers":
            if value is not None:
                own[name] = _integer(name, value, 1, 255)
        elif name == "launch_bounds":
            if value is not None:
                own[name] = _bounds(value)
        elif name == "shared_memory_carveout":
            if value is not None:
                own[name] = _carveout(value)
        else:
            raise TypeError(f"{name}: unknown cupar.jit option")
    return bool(options.get("device")), own


def _integer(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name}: expected an integer from {least} to {most}, got {value!r}")
    return value


def _bounds(value: Any) -> tuple[int, ...]:
    each = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(each) <= 3:
        raise ValueError(f"launch_bounds: expected up to three integers, got {value!r}")
    return tuple(
        _integer("launch_bounds", one, 0 if place else 1, 2**31 - 1) for place, one in enumerate(each)
    )


def _carveout(value: Any) -> int:
    if isinstance(value, str):
        found = _CARVEOUTS.get(value.lower())
        if found is None:
            raise ValueError(
                f"shared_memory_carveout: expected one of {', '.join(_CARVEOUTS)}, got {value!r}"
            )
        return found
    return _integer("shared_memory_carveout", value, -1, 100)
