"""Types that numba's cache can keep: another process knows them by name, and the rest comes with a value.

Code for a type may depend only on its name; addresses are values. Types of other processes
are made from what the cache has of them, before there is a value: they know nothing but their names then.
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar

from .._base.digests import sha256
from .._base.versions import own_version
from .._numba_cpu import types

__all__ = ["Portable", "digest", "interned", "own_code"]

K = TypeVar("K", bound="Portable")


class Portable(types.Type):  # type: ignore[misc]
    """A type whose name determines the code that numba compiles for it."""

    def __reduce__(self) -> Any:
        rebuild, _ = super().__reduce__()
        return rebuild, (*self._kept(), None)

    def _kept(self) -> tuple[Any, tuple[Any, ...]]:
        """Return the function that makes it in another process, and its arguments."""
        return interned, (type(self), self.name)


def interned(kind: type[K], name: str, **known: Any) -> K:
    """Return the one type with this name; attributes that it lacks are set from `known`."""
    found = kind(name)
    found.__dict__.update({name: value for name, value in known.items() if name not in found.__dict__})
    return found


# Modules whose code is in numba's cache, or determines its content: `own_code` hashes them.
_HOST = (
    "algorithms arguments calls errors iterators kernel_types kernels launches native plans portable "
    "problems view_types"
)
_KERNELS = (
    "columns family find histogram merge merge_sort nth_element radix_sort reduce reduce_by_index scan "
    "search segmented_copy segmented_merge_sort segmented_reduce segmented_scan segmented_sort segments "
    "sets tiles top_k transform"
)
# Modules that make problems.
_PROBLEMS = (
    "_arguments.numbers _arguments.segments _obtain.ranges columns copies histogram indexed "
    "merges nth_element search segmented segmented_scan sets sort topk"
)
# Modules that fix the order of words that compiled code and Python share.
_ORDER = ("host", "_device.kernels", "_ir.types", "_jit.overload", "_launch.words")


@functools.cache
def own_code() -> str:
    """Return a hash of cupar's code that compiles all types here, and of all plans."""
    rooms = {"_host": _HOST, "_kernels": _KERNELS}
    own = [f"{room}.{each}" for room, names in rooms.items() for each in names.split()]
    return own_version([*own, *_PROBLEMS.split(), *_ORDER])


def digest(parts: Any) -> str:
    """Return a hash for a name: of what code depends on, and of cupar's own code."""
    return sha256(repr([own_code(), parts]).encode()).hexdigest()[:16]
