"""Steps on blocks: what tasks run. Each takes blocks of NumPy or CuPy, and returns such.

Where a block is decides where a step runs. Blocks that come from other processes may begin at any address,
and be read-only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from .. import arrays
from .._base import device
from .._cpu.threads import alone
from .._fleet.carry import Carry, record_of, value_in
from .._fleet.counts import three_of
from .._functions import libraries, operators
from .._functions.axes import INT64, AxisLayout, constant, indices
from .._functions.calls import Operand, Work
from .._functions.rows import layout_along, over_axes, result_shape, scanned_rows
from .._functions.scans import of_rows
from .._functions.values import casting
from ..columns import column_reduce
from ..iterators import (
    ConstantIterator,
    CountingIterator,
    PermutationIterator,
    TransformIterator,
    ZipIterator,
)
from ..runs import reduce_by_key
from ..segmented import segmented_reduce
from .graphs import without
from .shipped import ShippedCarry

Dtype = np.dtype[Any]
Step = Callable[..., Any]


def on_blocks(step: Step) -> Step:
    """Decorate a step: it takes a block, or several, and is given a `Work` for the library of the first.

    On the CPU it uses one thread.
    """

    @wraps(step)
    def run(blocks: Any, *arguments: Any) -> Any:
        first = blocks
        while isinstance(first, (list, tuple)):
            first = first[0]
        library = libraries.of("x", first)
        work = Work(library, None)
        if library.on_cpu:
            return device.using(True, in_one_thread, step, work, blocks, *arguments)
        return step(work, blocks, *arguments)

    return run


def in_one_thread(step: Step, *arguments: Any) -> Any:
    """Run a step in a separate context; other cores are for other tasks."""
    alone.set(True)
    return step(*arguments)


# --- Memory -----------------------------------------------------------------------------------------------


def aligned(block: Any) -> Any:
    """Return a block in C's order, at an address that its dtype may have."""
    return np.require(block, requirements=("C", "A")) if isinstance(block, np.ndarray) else block


def operand(work: Work, block: Any) -> Operand:
    """Return a block as kernels take it."""
    return work.operand(aligned(block))


def fresh(work: Work, shape: Sequence[int], dtype: Dtype, zero: bool = False) -> tuple[Any, Any]:
    """Return a new block of any dtype, structs too, and its items."""
    memory = work.library.empty((math.prod(shape) * dtype.itemsize,), np.dtype(np.uint8))
    if zero:
        memory.fill(0)
    block = memory.view(dtype).reshape(tuple(shape))
    return block, work.operand(block).items


def joined(blocks: Sequence[Any]) -> Any:
    """Return the items of blocks one after another."""
    flat = [aligned(each).reshape(-1) for each in blocks]
    if isinstance(flat[0], np.ndarray):
        return np.concatenate(flat)
    import cupy

    return cupy.concatenate([each.view(np.uint8) for each in flat]).view(flat[0].dtype)  # structs, too


def beside(blocks: Sequence[Any], axis: int) -> Any:
    """Return blocks that are beside each other along an axis as one."""
    return blocks[0] if len(blocks) == 1 else _module(blocks[0]).concatenate([*blocks], axis)


def packed(records: Any) -> Any:
    """Return records as bytes: between processes, CuPy's arrays lose the names of fields."""
    size = records.dtype.itemsize
    return records.reshape(-1).view(np.uint8).reshape(*records.shape, size)


def opened(block: Any, record: Dtype) -> Any:
    """Return the records of some bytes."""
    return aligned(block.reshape(-1).view(record).reshape(block.shape[:-1]))


def pick(parts: Any, i: int) -> Any:
    """Return one of several results of a task."""
    return parts[i]


# --- Records: each block has one for each of its rows -------------------------------------------------------


@on_blocks
def totals(
    work: Work, block: Any, combining: ShippedCarry, axes: Any, commutative: bool, skipped: bool = False
) -> Any:
    """Return the records of a block's rows: what their items reduce to.

    With `skipped` they have no values.
    """
    carry = combining.carry()
    items, _, layout, shape = over_axes(work, operand(work, block), axes)
    block, records = fresh(work, result_shape(shape, False), carry.record, zero=True)
    if skipped or not layout.size:
        return packed(block)
    read, written = carry.read(items), carry.written(records)
    if layout.rows == 1:
        work.run(carry.total(items, commutative), read, written, layout.length)
    elif layout.inner > 1:
        work.run(column_reduce(read, written, carry.op), read, written, *layout)
    else:
        flagged = TransformIterator(read, operators.there(carry.value), carry.record)
        none = carry.absent()
        made = segmented_reduce(flagged, records, None, None, carry.combined, none, commutative=False)
        work.run(made, flagged, records, layout.rows, h_init=none, segment_size=layout.length)
    return packed(block)


def _one_after_another(work: Work, blocks: list[Any], carry: Carry) -> tuple[Any, tuple[int, ...]]:
    """Return the records of several blocks, and their shape in one."""
    records = [opened(each, carry.record) for each in blocks]
    return operand(work, joined(records)).items, records[0].shape


@on_blocks
def folded(work: Work, blocks: list[Any], combining: ShippedCarry, init: Any) -> Any:
    """Combine the records of blocks in order, after an initial value."""
    carry = combining.carry()
    items, shape = _one_after_another(work, blocks, carry)
    block, out = fresh(work, shape, carry.record)
    first, number, rows = carry.initial(init), len(blocks), math.prod(shape)
    if rows == 1:
        carry.fold(work, items, number, out, first)
    elif rows:
        work.run(column_reduce(items, out, carry.combined, first), items, out, 1, number, rows, first)
    return packed(block)


@on_blocks
def prefixes(work: Work, blocks: list[Any], combining: ShippedCarry, init: Any) -> list[Any]:
    """Return the prefixes of several blocks."""
    carry = combining.carry()
    items, shape = _one_after_another(work, blocks, carry)
    number, rows = len(blocks), math.prod(shape)
    block, out = fresh(work, (number, *shape), carry.record)
    before = carry.initial(init)
    if rows == 1:  # folds, which are built anyway
        for i in range(number):
            carry.fold(work, items, i, out[i : i + 1], before)
    else:
        scanned_rows(work, items, out, AxisLayout(1, number, rows), carry.combined, before, True)
    return [packed(block[i].reshape(shape)) for i in range(number)]


@on_blocks
def finished(work: Work, records: Any, value: Dtype, result: Dtype, empty: Any, ones: Any) -> Any:
    """Return the values of records; `ones` are axes of length 1 in addition.

    `empty` is the value of no items; None: there is none.
    """
    records = opened(records, record_of(value))
    x = operand(work, records)
    values: Any = TransformIterator(x.items, value_in, value)
    if x.size and not _has_value(work, records):
        if empty is None:
            raise ValueError(
                "x: a reduction of no items has no result, as the operator has no known identity; give init"
            )
        values = ConstantIterator(empty[0])
    block, out = fresh(work, without(records.shape, (), ones, 1), result)
    work.copy(values, casting(out, value), x.size)
    return block


def _has_value(work: Work, records: Any) -> bool:
    """Whether there are values in records of one block: in all, or, as it has no items, in none."""
    return bool(work.host(records.reshape(-1)[:1])["there"][0])


# --- Scans ------------------------------------------------------------------------------------------------


@on_blocks
def scanned(
    work: Work, block: Any, before: Any, combining: ShippedCarry, result: Dtype, axis: int, exclusive: bool
) -> Any:
    """Return the scans of a block's rows, each after its record of what goes before it."""
    carry, value = combining.carry(), combining.value
    op = carry.op
    before = opened(before, carry.record)
    x = operand(work, block)
    layout, _ = layout_along(x, axis)
    block, out = fresh(work, x.shape, result)
    written, items = casting(out, value), carry.read(x.items)
    if layout.rows == 1 and x.size:
        record = work.host(before.reshape(1))
        h_init = np.ascontiguousarray(record["value"]) if record["there"][0] else None
        scanned_rows(work, items, written, layout, op, h_init, exclusive)
    elif x.size:
        if exclusive:
            items = PermutationIterator(items, indices(_place_before, layout.length, layout.inner))
        records = of_rows(operand(work, before).items, layout)
        numbers = CountingIterator(np.int64(0)), constant(layout.length), constant(layout.inner)
        begun = _begun_by(value) if exclusive else _begun_after(op, value)
        items = TransformIterator(ZipIterator(items, *numbers, records), begun, value)
        scanned_rows(work, items, written, layout, op, None)
    return block


def _place_before(s: Any) -> Any:
    i, length, inner = s
    return i - inner if i // inner % length > 0 else i


@operators.remembered
def _begun_after(op: Any, value: Dtype) -> Any:
    """Return an operator that combines the first item of a row with what goes before it."""
    function, plain = operators.within(op), operators.plain(value)

    def begun(s: Any) -> Any:
        item, i, length, inner, before = s
        if i // inner % length == 0 and before.there:
            return plain(function(before.value, item))
        return plain(item)

    return begun


@operators.remembered
def _begun_by(value: Dtype) -> Any:
    """Return an operator that puts what goes before a row in the place of its first item."""
    plain = operators.plain(value)

    def begun(s: Any) -> Any:
        item, i, length, inner, before = s
        return plain(before.value) if i // inner % length == 0 else plain(item)

    return begun


# --- Histograms, and the first k ----------------------------------------------------------------------------


@on_blocks
def counted(work: Work, block: Any, bins: Any, interval: Any) -> Any:
    """Return the counts of a block."""
    return arrays.histogram(aligned(block), bins=bins, range=interval).hist


def added(parts: list[Any]) -> Any:
    """Return the sums of counts."""
    return sum(parts[1:], parts[0])


def _firsts(block: Any, k: int | None, axis: int, largest: bool) -> tuple[Any, Any]:
    """Return the first k items of rows, and where they are; None: the extreme one, NaN before it."""
    if k is not None:
        return arrays.top_k(block, min(k, block.shape[axis]), axis=axis, largest=largest)
    if not block.shape[axis]:
        return block, block.astype(INT64)
    places = (arrays.argmax if largest else arrays.argmin)(block, axis=axis, keepdims=True)
    return _module(block).take_along_axis(block, places, axis), places


def _module(block: Any) -> Any:
    return np if isinstance(block, np.ndarray) else __import__("cupy")


@on_blocks
def top(work: Work, block: Any, k: int | None, axis: int, largest: bool) -> tuple[Any, Any, int]:
    """Return the first k items of a block's rows, or all; where they are, and the length of a row."""
    return (*_firsts(aligned(block), k, axis, largest), block.shape[axis])


@on_blocks
def top_of(work: Work, parts: list[Any], k: int | None, axis: int, largest: bool) -> tuple[Any, Any, int]:
    """Return the first k of what several blocks, in order, have as such."""
    values, places, lengths = zip(*parts, strict=True)
    if len(parts) == 1:
        return parts[0]  # type: ignore[no-any-return]
    module = _module(values[0])
    offsets = np.cumsum([0, *lengths]).tolist()
    known = [each + offset for each, offset in zip(places, offsets[:-1], strict=True)]
    values, known = (module.concatenate(each, axis=axis) for each in (values, known))
    found, indices = _firsts(values, k, axis, largest)
    return found, module.take_along_axis(known, indices, axis), offsets[-1]


def top_result(parts: tuple[Any, Any, int], i: int, k: int) -> Any:
    """Return the values, or where they are."""
    if parts[2] < k:
        raise ValueError(f"k: expected at most {parts[2]}, the length of the axis, got {k}")
    return parts[i]


def extreme_result(parts: tuple[Any, Any, int], name: str, axis: int, ones: Any) -> Any:
    """Return the indices of extreme items, without the axis; `ones` are axes of length 1 in addition."""
    if not parts[2]:
        raise ValueError(f"x: {name} of no items has no result")
    return parts[1].reshape(without(parts[1].shape, (axis,), ones, 1))


# --- Runs -------------------------------------------------------------------------------------------------


@on_blocks
def runs(work: Work, blocks: Sequence[Any], combining: ShippedCarry) -> tuple[Any, Any, Any]:
    """Return the keys of a block's runs, what their values combine to, and the record."""
    keys, x = (operand(work, each) for each in blocks)
    if keys.size != x.size:
        raise ValueError(f"x: expected as many items in each block as `keys` has, {keys.size}, got {x.size}")
    carry = combining.carry()
    unique, unique_items = fresh(work, (keys.size,), carry.key)
    aggregates, results = fresh(work, (keys.size,), carry.value)
    number, (record, border) = work.temporary(1, INT64), fresh(work, (1,), carry.record, zero=True)
    if keys.size:
        given = keys.items, unique_items, carry.read(x.items), results, number
        work.run(reduce_by_key(*given, carry.op, carry.equality), *given, keys.size)
        carry.border(work, keys.items, keys.items[keys.size - 1 :], results, number, border)
    return unique, aggregates, packed(record)


@on_blocks
def neighbours(work: Work, blocks: list[Any], combining: ShippedCarry) -> list[tuple[Any, Any]]:
    """Return the combined records before each block, and those after it."""
    carry, number = combining.carry(), len(blocks)
    items, _ = _one_after_another(work, blocks, carry)
    found = []
    for i in range(number):
        (before, first), (after, second) = (fresh(work, (1,), carry.record) for _ in range(2))
        carry.fold(work, items, i, first)
        carry.fold(work, items[i + 1 :], number - i - 1, second)
        found.append((packed(before), packed(after)))
    return found


@on_blocks
def mended(work: Work, found: Any, beside: Any, combining: ShippedCarry) -> tuple[Any, Any]:
    """Return the runs of a block; the first continues earlier blocks, and the last may continue, too."""
    unique, aggregates = map(aligned, found[:2])
    if not unique.size:
        return unique, aggregates
    carry = combining.carry()
    aggregates = aggregates.copy()  # what other tasks have stays as it is
    records = (opened(each, carry.record) for each in (*beside, found[2]))
    before, after, own, results = (operand(work, each).items for each in (*records, aggregates))
    counts, items = fresh(work, (3,), INT64)
    carry.mend(work, before, own, after, results, three_of(items))
    kept = int(work.host(counts)[0])
    return unique[:kept], aggregates[:kept]


@on_blocks
def distinct(work: Work, block: Any) -> Any:
    """Return the different items of a block, sorted."""
    return arrays.unique_values(aligned(block))


def first(a: Any, b: Any) -> Any:
    """Keep the first item of a run."""
    return a
