"""The algorithms, by the module in which ``cuda.compute`` has them."""

from typing import TYPE_CHECKING, Any

from .. import compute

if TYPE_CHECKING:
    from ._algorithms import *  # noqa: F403
    from ._serialized import *  # noqa: F403

__all__ = [*compute._NAMES["_algorithms"].split(), "deserialize", "serialize"]  # noqa: F405, PLE0604


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(compute, name)
