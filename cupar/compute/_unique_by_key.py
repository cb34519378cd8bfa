"""Runs of equal keys reduced to their first, as ``cuda.compute`` has it."""

from __future__ import annotations

from typing import Any

from ..unique import unique_by_key as _unique_by_key
from ._made import Made

__all__ = ["make_unique_by_key", "unique_by_key"]


class _UniqueByKey(Made, factory=_unique_by_key):
    """A selection of the first of each run of equal keys; see `make_unique_by_key`."""

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in_keys: Any,
        d_in_items: Any,
        d_out_keys: Any,
        d_out_items: Any,
        d_out_num_selected: Any,
        op: Any,
        num_items: int,
        stream: Any = None,
    ) -> int:
        """Return the bytes of temporary storage; run, unless `temp_storage` is None."""
        arrays = d_in_keys, d_in_items, d_out_keys, d_out_items, d_out_num_selected
        return self._for((*arrays, op), op)(temp_storage, *arrays, num_items, stream)  # type: ignore[no-any-return]


def make_unique_by_key(
    *,
    d_in_keys: Any,
    d_in_items: Any,
    d_out_keys: Any,
    d_out_items: Any,
    d_out_num_selected: Any,
    op: Any,
    compute_capability: Any = None,
) -> _UniqueByKey:
    """Return a selection of the first of each run of equal keys; see `cupar.unique_by_key`."""
    question = d_in_keys, d_in_items, d_out_keys, d_out_items, d_out_num_selected, op
    return _UniqueByKey.make(question, op, compute_capability=compute_capability)  # type: ignore[no-any-return]


def unique_by_key(
    *,
    d_in_keys: Any,
    d_in_items: Any,
    d_out_keys: Any,
    d_out_items: Any,
    d_out_num_selected: Any,
    op: Any,
    num_items: int,
    stream: Any = None,
) -> None:
    """Select the first of each run among `num_items` keys, with its item; see `cupar.unique_by_key`."""
    arrays = d_in_keys, d_in_items, d_out_keys, d_out_items, d_out_num_selected
    _unique_by_key(*arrays, op).run(*arrays, num_items, stream)
