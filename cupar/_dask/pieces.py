"""Steps of sorts: blocks are sorted, sampled, cut where samples say, and pieces of all blocks are merged."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._fleet.comm import copied, raw
from .._fleet.group import Group
from .._fleet.sort import in_order
from .._functions import operators
from .._functions.axes import INT64, AxisLayout, columns
from .._functions.calls import Work
from .._functions.rows import layout_along, positions, sorted_rows
from ..iterators import PermutationIterator
from ..search import lower_bound, upper_bound
from . import workers
from .shipped import ShippedOrder
from .steps import beside, fresh, joined, on_blocks, operand


@on_blocks
def ordered(work: Work, block: Any, order: ShippedOrder, axis: int) -> Any:
    """Return a block whose rows are sorted."""
    x = operand(work, block)
    layout, shape = layout_along(x, axis)
    block, out = fresh(work, shape, x.dtype)
    direct = out if layout.inner == 1 else None
    keys, _ = sorted_rows(work, columns(x.items, layout), layout, order.descending, order.op(), None, direct)
    if direct is None:
        work.copy(keys, columns(out, layout), layout.size)
    return block


def rows_ordered(blocks: list[Any], order: ShippedOrder, axis: int) -> Any:
    """Return blocks that are beside each other as one, whose rows are sorted."""
    return ordered(beside(blocks, axis), order, axis)


def merged(pieces: list[Any], order: ShippedOrder) -> Any:
    """Return sorted pieces as one, sorted; of equal items, those of earlier pieces come first."""
    return ordered(joined(pieces), order, 0)


@on_blocks
def sampled(work: Work, block: Any, number: int) -> tuple[Any, Any, int]:
    """Return evenly spread items of a sorted block, where they are, and the length of the block."""
    x = operand(work, block)
    places = np.unique(np.arange(number) * x.size // number) if x.size else np.empty(0, np.int64)
    samples, out = fresh(work, places.shape, x.dtype)
    if x.size:
        work.copy(PermutationIterator(x.items, work.put(places)), out, len(places))
    return samples, places, x.size


@on_blocks
def splitters(work: Work, samples: list[Any], number: int, order: ShippedOrder) -> tuple[Any, Any, Any]:
    """Return the items with which parts begin, all but the first, and the blocks and places they are at.

    Of equal items the earlier block's goes first, and in a block the earlier item. So no items are equal, and
    parts have about the same size for any keys.
    """
    found, places, sizes = zip(*samples, strict=True)
    keys = operand(work, joined(found))
    layout = AxisLayout(1, keys.size, 1)
    _, at = sorted_rows(work, keys.items, layout, order.descending, order.op(), positions(work, layout))
    taken = [len(each) for each in places]
    blocks, where = np.repeat(np.arange(len(taken)), taken), np.concatenate(places)
    stand_for = np.concatenate([np.diff([*each, n]) for each, n in zip(places, sizes, strict=True)])
    host = work.host(at)
    behind = np.cumsum(stand_for[host])
    wanted = host[np.searchsorted(behind, sum(sizes) * np.arange(1, number) / number)] if keys.size else host
    block, out = fresh(work, wanted.shape, keys.dtype)
    if keys.size:
        work.copy(PermutationIterator(keys.items, work.put(wanted)), out, len(wanted))
    return block, blocks[wanted], where[wanted]


@on_blocks
def cuts(work: Work, block: Any, i: int, split: Any, order: ShippedOrder) -> list[int]:
    """Return the bounds of the parts of block i, which is sorted; none if it has no items."""
    keys, blocks, places = split
    x, values = operand(work, block), operand(work, keys)
    if not x.size:
        return []
    op = operators.less_of(x.dtype) if order.less is None else order.op()
    op = operators.swapped(op) if order.descending else op
    found = []
    for search in (lower_bound, upper_bound):
        bounds = work.empty((values.size,), INT64)
        algorithm = search(x.items, values.items, bounds.items, op)
        work.run(algorithm, x.items, x.size, values.items, values.size, bounds.items)
        found.append(work.host(bounds))
    before, behind = found
    begins = np.where(blocks == i, places, np.where(blocks > i, behind, before))
    return [0, *begins.tolist(), x.size]


def piece(block: Any, begins: list[int], j: int) -> Any:
    """Return one of the parts of a sorted block."""
    return block[begins[j] : begins[j + 1]] if begins else block


def share(part: Any, i: int, number: int) -> Any:
    """Return one of some blocks that a part is cut in."""
    return part[len(part) * i // number : len(part) * (i + 1) // number]


# --- By ranks -----------------------------------------------------------------------------------------------


@on_blocks
def sorted_by_ranks(
    work: Work,
    blocks: list[Any],
    met: tuple[workers.Place, list[int]],
    rank: int,
    shards: list[range],
    shares: list[range],
    order: ShippedOrder,
    timeout: float,
) -> list[Any]:
    """Return this rank's share of the blocks of a sorted array, which are alike, given some of another."""
    meeting, sizes = met
    shard = operand(work, joined(blocks))

    def sort(group: Group) -> list[Any]:
        block, out = fresh(work, shard.shape, shard.dtype)
        in_order(work, shard, None, order.descending, order.op(), group, out)
        ends = np.cumsum([0, *(sum(sizes[i] for i in each) for each in shards)]).tolist()
        number, every = shares[-1].stop, ends[-1]
        cuts = [every * i // number for i in range(number + 1)]
        wanted = [cuts[each.start] for each in shares] + [every]
        found = block if wanted == ends else _moved(work, out, ends, wanted, group)
        return [found[cuts[i] - wanted[rank] : cuts[i + 1] - wanted[rank]] for i in shares[rank]]

    return workers.as_rank(meeting, rank, len(shards), timeout, sort)


def _moved(work: Work, keys: Any, ends: list[int], wanted: list[int], group: Group) -> Any:
    """Return this rank's part of an array in shards, of which the ends are given, if they are elsewhere."""
    rank, size = group.rank, group.size
    block, out = fresh(work, (wanted[rank + 1] - wanted[rank],), keys.dtype)

    def parts(items: Any, bounds: list[int], others: list[int]) -> list[Any]:
        """Return the bytes of items between two bounds that belong to each rank by the other bounds."""
        begin, end = bounds[rank], bounds[rank + 1]
        at = [min(max(each, begin), end) - begin for each in others]
        return [raw(items[at[r] : at[r + 1]]) for r in range(size)]

    send, recv = parts(keys, ends, wanted), parts(out, wanted, ends)
    stream = work.stream
    copied(send[rank], recv[rank], stream)
    send[rank], recv[rank] = send[rank][:0], recv[rank][:0]
    group.exchange(send, recv, stream)
    return block


def share_of_rank(parts: list[Any], i: int, done: Any) -> Any:
    """Return one of the blocks that a rank returns, once all have returned theirs."""
    return parts[i]
