"""Selections and partitions as ``cuda.compute`` has them."""

from __future__ import annotations

from typing import Any

from ..partition import select as _select
from ..partition import three_way_partition as _three_way_partition
from ._made import Made

__all__ = ["make_select", "make_three_way_partition", "select", "three_way_partition"]


class _Select(Made, factory=_select):
    """A selection; see `make_select`."""

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in: Any,
        d_out: Any,
        d_num_selected_out: Any,
        cond: Any,
        num_items: int,
        stream: Any = None,
    ) -> int:
        """Return the bytes of temporary storage; run, unless `temp_storage` is None."""
        algorithm = self._for((d_in, d_out, d_num_selected_out, cond), cond)
        return algorithm(temp_storage, d_in, d_out, d_num_selected_out, num_items, stream)  # type: ignore[no-any-return]


class _ThreeWayPartition(Made, factory=_three_way_partition):
    """A partition into three arrays; see `make_three_way_partition`."""

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in: Any,
        d_first_part_out: Any,
        d_second_part_out: Any,
        d_unselected_out: Any,
        d_num_selected_out: Any,
        select_first_part_op: Any,
        select_second_part_op: Any,
        num_items: int,
        stream: Any = None,
    ) -> int:
        """Return the bytes of temporary storage; run, unless `temp_storage` is None."""
        arrays = d_in, d_first_part_out, d_second_part_out, d_unselected_out, d_num_selected_out
        ops = select_first_part_op, select_second_part_op
        return self._for((*arrays, *ops), *ops)(temp_storage, *arrays, num_items, stream)  # type: ignore[no-any-return]


def make_select(
    *, d_in: Any, d_out: Any, d_num_selected_out: Any, cond: Any, compute_capability: Any = None
) -> _Select:
    """Return a selection; see `cupar.select`."""
    question = d_in, d_out, d_num_selected_out, cond
    return _Select.make(question, cond, compute_capability=compute_capability)  # type: ignore[no-any-return]


def make_three_way_partition(
    *,
    d_in: Any,
    d_first_part_out: Any,
    d_second_part_out: Any,
    d_unselected_out: Any,
    d_num_selected_out: Any,
    select_first_part_op: Any,
    select_second_part_op: Any,
    compute_capability: Any = None,
) -> _ThreeWayPartition:
    """Return a partition into three arrays; see `cupar.three_way_partition`."""
    arrays = d_in, d_first_part_out, d_second_part_out, d_unselected_out, d_num_selected_out
    ops = select_first_part_op, select_second_part_op
    return _ThreeWayPartition.make((*arrays, *ops), *ops, compute_capability=compute_capability)  # type: ignore[no-any-return]


def select(
    *, d_in: Any, d_out: Any, d_num_selected_out: Any, cond: Any, num_items: int, stream: Any = None
) -> None:
    """Select from `num_items` items those for which `cond` holds; see `cupar.select`."""
    algorithm = _select(d_in, d_out, d_num_selected_out, cond)
    algorithm.run(d_in, d_out, d_num_selected_out, num_items, stream)


def three_way_partition(
    *,
    d_in: Any,
    d_first_part_out: Any,
    d_second_part_out: Any,
    d_unselected_out: Any,
    d_num_selected_out: Any,
    select_first_part_op: Any,
    select_second_part_op: Any,
    num_items: int,
    stream: Any = None,
) -> None:
    """Partition `num_items` items into three arrays; see `cupar.three_way_partition`."""
    arrays = d_in, d_first_part_out, d_second_part_out, d_unselected_out, d_num_selected_out
    algorithm = _three_way_partition(*arrays, select_first_part_op, select_second_part_op)
    algorithm.run(*arrays, num_items, stream)
