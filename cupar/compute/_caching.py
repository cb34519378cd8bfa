"""What ``cuda.compute`` has to empty its caches."""

from __future__ import annotations

from pathlib import Path

from .. import cache
from . import _made

__all__ = ["clear_all_caches", "clear_pch_cache", "pch_cache_dir"]


def clear_all_caches() -> None:
    """Forget all builds of this process. Those on disk are found again; `cupar.cache.clear` removes them."""
    _made.forget()
    cache.clear(disk=False)


def pch_cache_dir() -> Path | None:
    """Return None: cupar keeps no precompiled headers, as kernels of the same types are compiled once."""
    return None


def clear_pch_cache() -> int:
    """Remove nothing, and return 0; see `pch_cache_dir`."""
    return 0
