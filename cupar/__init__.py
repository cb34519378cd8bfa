"""CCCL's device-wide parallel algorithms from Python, each specialisation built once.

>>> import cupar
>>> sum_into = cupar.reduce_into(d_in, d_out, lambda a, b: a + b, h_init)   # doctest: +SKIP
>>> sum_into.run(d_in, d_out, num_items, h_init)                            # doctest: +SKIP

Importing cupar imports nothing but this file: each name is fetched from its module when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import cache
    from ._algorithm import Algorithm, Build
    from ._cache import CacheWarning
    from ._cccl import VersionError
    from ._driver import DriverError, NoDeviceError
    from ._toolchain import BuildError
    from .operators import OpKind
    from .reduce import Reduce, reduce_into
    from .scan import Scan, exclusive_scan, inclusive_scan

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "Build",
    "BuildError",
    "CacheWarning",
    "DriverError",
    "NoDeviceError",
    "OpKind",
    "Reduce",
    "Scan",
    "VersionError",
    "cache",
    "exclusive_scan",
    "inclusive_scan",
    "reduce_into",
]

_MODULES = {
    "Algorithm": "_algorithm",
    "Build": "_algorithm",
    "BuildError": "_toolchain",
    "CacheWarning": "_cache",
    "DriverError": "_driver",
    "NoDeviceError": "_driver",
    "OpKind": "operators",
    "Reduce": "reduce",
    "Scan": "scan",
    "VersionError": "_cccl",
    "exclusive_scan": "scan",
    "inclusive_scan": "scan",
    "reduce_into": "reduce",
}


def __getattr__(name: str) -> Any:
    if name == "cache":
        return importlib.import_module(".cache", __name__)
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f".{module}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
