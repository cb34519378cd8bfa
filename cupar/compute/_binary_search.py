"""Binary searches as ``cuda.compute`` has them."""

from __future__ import annotations

from typing import Any

from ..search import lower_bound as _lower_bound
from ..search import upper_bound as _upper_bound
from ._made import Made

__all__ = ["lower_bound", "make_lower_bound", "make_upper_bound", "upper_bound"]


class _BinarySearch(Made):
    """A search; see `make_lower_bound` and `make_upper_bound`."""

    def __call__(
        self,
        *,
        d_data: Any,
        num_items: int,
        d_values: Any,
        num_values: int,
        d_out: Any,
        comp: Any,
        stream: Any = None,
    ) -> None:
        """Search `num_items` sorted items for `num_values` values."""
        algorithm = self._for((d_data, d_values, d_out, comp), comp)
        algorithm.run(d_data, num_items, d_values, num_values, d_out, stream)


class _LowerBound(_BinarySearch, factory=_lower_bound):
    pass


class _UpperBound(_BinarySearch, factory=_upper_bound):
    pass


def make_lower_bound(
    *, d_data: Any, d_values: Any, d_out: Any, comp: Any = None, compute_capability: Any = None
) -> _BinarySearch:
    """Return a search for the first place where each value can be inserted; see `cupar.lower_bound`."""
    question = d_data, d_values, d_out, comp
    return _LowerBound.make(question, comp, compute_capability=compute_capability)  # type: ignore[no-any-return]


def make_upper_bound(
    *, d_data: Any, d_values: Any, d_out: Any, comp: Any = None, compute_capability: Any = None
) -> _BinarySearch:
    """Return a search for the last place where each value can be inserted; see `cupar.upper_bound`."""
    question = d_data, d_values, d_out, comp
    return _UpperBound.make(question, comp, compute_capability=compute_capability)  # type: ignore[no-any-return]


def lower_bound(
    *,
    d_data: Any,
    num_items: int,
    d_values: Any,
    num_values: int,
    d_out: Any,
    comp: Any = None,
    stream: Any = None,
) -> None:
    """Find the first place where each value can be inserted; see `cupar.lower_bound`."""
    algorithm = _lower_bound(d_data, d_values, d_out, comp)
    algorithm.run(d_data, num_items, d_values, num_values, d_out, stream)


def upper_bound(
    *,
    d_data: Any,
    num_items: int,
    d_values: Any,
    num_values: int,
    d_out: Any,
    comp: Any = None,
    stream: Any = None,
) -> None:
    """Find the last place where each value can be inserted; see `cupar.upper_bound`."""
    algorithm = _upper_bound(d_data, d_values, d_out, comp)
    algorithm.run(d_data, num_items, d_values, num_values, d_out, stream)
