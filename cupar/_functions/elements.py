"""Items computed, replaced, moved and counted: what Thrust and CUB have by name, made of a few algorithms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._base.errors import ArgumentTypeError, ArgumentValueError
from .._base.sizes import value_of
from .._ir.iterator import Iterator
from ..iterators import (
    CountingIterator,
    DiscardIterator,
    PermutationIterator,
    ShuffleIterator,
    TransformIterator,
    ZipIterator,
)
from ..operators import Op, OpKind
from . import libraries, operators
from .axes import INT64, AxisLayout, axis_of, constant, indices, layout_of, with_numbers
from .calls import Numbers, Operand, Work, output_of, same_memory
from .described import described
from .rows import check_numbers, places_of
from .values import accumulated, cast, casting, dtype_of, integer, is_nonzero, item, naming_dtype, whole

if TYPE_CHECKING:
    from .._base.annotations import Array, Arrays, DType

_BOOL = np.dtype(bool)


def _stored(work: Work, source: Any, shape: tuple[int, ...], out: Array | None) -> Operand:
    """Return an array of an iterator's items; `out` may be an array that it reads in order."""
    target = output_of(work, out, shape, source.dtype, [Operand(None, source, shape)])
    work.copy(source, casting(target.items, source.dtype), target.size)
    return target


def _layout(x: Operand, axis: int | None) -> AxisLayout:
    if axis is None:
        return AxisLayout(1, x.size, 1)
    at = axis_of(axis, x.ndim)
    return layout_of(x.shape, at, at)


_IN_PIECES = 1 << 12  # items, from which on two copies on the CPU take less time than an index for each


# --- Computed ---------------------------------------------------------------------------------------------


@described("like")
def tabulate(work: Work, size: int, op: Op, /, *, dtype: DType = None, out: Array | None = None) -> Numbers:
    """Return an operator's results for 0, 1, 2 and so on.

    >>> arrays.tabulate(4, lambda i: i * i, like=np.empty(0))
    array([0, 1, 4, 9])
    """
    numbers, wanted = CountingIterator(np.int64(0)), dtype_of("dtype", dtype)
    with naming_dtype(numbers, op, wanted):
        return _stored(work, TransformIterator(numbers, op, wanted), (integer("size", size),), out)


def _linear(s: Any) -> Any:
    return s[1] + s[2] * s[0]


@described("like", start="value", step="value")
def sequence(
    work: Work, size: int, /, start: Any = 0, step: Any = 1, *, dtype: DType = None, out: Array | None = None
) -> Numbers:
    """Return `start`, `start` + `step`, and so on, in the dtype of these two, or in another.

    >>> arrays.sequence(4, 1, 2, like=np.empty(0))
    array([1, 3, 5, 7])
    """
    wanted = dtype_of("dtype", dtype) or np.result_type(*map(value_of, (start, step)))
    begin, by = item("start", start, wanted), item("step", step, wanted)
    found = TransformIterator(with_numbers(CountingIterator(np.int64(0)), begin, by), _linear, wanted)
    return _stored(work, found, (integer("size", size),), out)


def _filled(work: Work, out: Any, value: Any, name: str = "out") -> Operand | tuple[Any, ...]:
    """Fill an array of any strides, or each array of a tuple with its own value."""
    if isinstance(out, tuple):
        if not isinstance(value, tuple) or len(value) != len(out):
            raise ArgumentTypeError(
                "value", f"expected a tuple of {len(out)}, as `out` is one, got {value!r}"
            )
        pairs = enumerate(zip(out, value, strict=True))
        return tuple(_filled(work, each, own, f"{name}[{i}]") for i, (each, own) in pairs)
    found = libraries.of(name, out)
    memory = found.memory(out)
    if found.on_cpu != work.library.on_cpu:
        raise ArgumentTypeError(
            name, f"expected an array of the same kind as the first, got {type(out).__name__}"
        )
    number = item("value", value, memory.dtype)
    if not (memory.flags.writeable if isinstance(memory, np.ndarray) else memory.writable):
        raise ArgumentValueError(name, "expected an array to write to, got a read-only one")
    if isinstance(memory, np.ndarray):
        memory[...] = number
    else:
        for items, size in work.strided_parts(memory):
            work.copy(constant(number), items, size)
    return Operand(out, memory, tuple(memory.shape))


@described(out="filled")
def fill(work: Work, out: Arrays, value: Any, /) -> Operand | tuple[Any, ...]:
    """Write one value to all items of an array, and return the array.

    The array may have any strides. A tuple of arrays takes a tuple of values, and an array of structs one for
    each field.

    >>> arrays.fill(np.empty(3, int), 7)
    array([7, 7, 7])
    """
    return _filled(work, out, value)


@described("num_items", "like")
def for_each(work: Work, x: Operand, op: Op, /) -> None:
    """Call an operator for each item, for its effects: it writes to arrays that it captures.

    It returns a number, which is discarded.

    >>> doubled = np.zeros(3, int)
    >>> def double(i):
    ...     doubled[i] = 2 * i
    ...     return 0
    >>> arrays.for_each(np.arange(3), double)
    >>> doubled
    array([0, 2, 4])
    """
    work.copy(x.items, DiscardIterator(INT64), x.size, op)


# --- Replaced ---------------------------------------------------------------------------------------------


@operators.remembered
def _replaced(predicate: Op) -> Any:
    function = operators.within(predicate)
    return lambda s: s[1] if np.bool_(function(s[0])) else s[0]


def _replaced_one(s: Any) -> Any:
    return s[2] if s[0] == s[1] else s[0]


@described()
def replace_if(work: Work, x: Operand, predicate: Op, value: Any, /, *, out: Array | None = None) -> Operand:
    """Return the items; those for which a predicate holds are replaced by one value.

    >>> arrays.replace_if(np.array([3, -1, 4]), lambda a: a < 0, 0)
    array([3, 0, 4])
    """
    check_numbers("x", x)
    pairs = with_numbers(x.items, item("value", value, x.dtype))
    return _stored(work, TransformIterator(pairs, _replaced(predicate), x.dtype), x.shape, out)


@described(old="value", new="value")
def replace(work: Work, x: Operand, old: Any, new: Any, /, *, out: Array | None = None) -> Operand:
    """Return the items; those equal to one value are replaced by another.

    >>> arrays.replace(np.array([3, 1, 3]), 3, 5)
    array([5, 1, 5])
    """
    check_numbers("x", x)
    both = item("old", old, x.dtype), item("new", new, x.dtype)
    return _stored(
        work, TransformIterator(with_numbers(x.items, *both), _replaced_one, x.dtype), x.shape, out
    )


# --- Moved ------------------------------------------------------------------------------------------------


def _mirrored(s: Any) -> Any:
    i, length, inner = s
    return i + (length - 1 - 2 * (i // inner % length)) * inner


def _rolled(s: Any) -> Any:
    i, length, inner, number = s
    k = i // inner % length
    return i + ((k - number) % length - k) * inner


def _is_inside(s: Any) -> Any:
    i, length, inner, number = s
    k = i // inner % length - number
    return k >= 0 and k < length


@described()
def reverse(work: Work, x: Operand, /, *, axis: int | None = None, out: Array | None = None) -> Operand:
    """Return the items of an axis backwards, or all items.

    >>> arrays.reverse(np.array([3, 1, 4]))
    array([4, 1, 3])
    """
    layout = _layout(x, axis)
    places = indices(_mirrored, layout.length, layout.inner)
    return _stored(work, PermutationIterator(x.items, places), x.shape, out)


@described(number="places")
def roll(
    work: Work, x: Operand, number: int, /, *, axis: int | None = None, out: Array | None = None
) -> Operand:
    """Return the items of an axis, or all, moved to later places, where the last ones come first.

    >>> arrays.roll(np.array([3, 1, 4]), 1)
    array([4, 3, 1])
    """
    layout = _layout(x, axis)
    length = max(layout.length, 1)
    moved = whole("number", number) % length
    is_array = work.library.on_cpu and not isinstance(x.items, Iterator)
    if is_array and out is None and layout.rows == 1 and x.size > _IN_PIECES:
        target, before = work.empty(x.shape, x.dtype), x.size - moved
        work.copy(x.items[before:], target.items, moved)
        work.copy(x.items, target.items[moved:], before)
        return target
    places = indices(_rolled, length, layout.inner, moved)
    return _stored(work, PermutationIterator(x.items, places), x.shape, out)


@described(number="places")
def shift(
    work: Work,
    x: Operand,
    number: int,
    value: Any = 0,
    /,
    *,
    axis: int | None = None,
    out: Array | None = None,
) -> Operand:
    """Return the items of an axis, or all, moved to later places, with one value at those that become free.

    >>> arrays.shift(np.array([3, 1, 4]), -1)
    array([1, 4, 0])
    """
    check_numbers("x", x)
    layout = _layout(x, axis)
    length = max(layout.length, 1)
    moved = max(-length, min(length, whole("number", number)))
    places = indices(_rolled, length, layout.inner, moved)
    inside = with_numbers(CountingIterator(np.int64(0)), length, layout.inner, moved)
    items = ZipIterator(
        TransformIterator(inside, _is_inside, _BOOL),
        PermutationIterator(x.items, places),
        constant(item("value", value, x.dtype)),
    )
    return _stored(work, TransformIterator(items, operators.chosen, x.dtype), x.shape, out)


@operators.remembered
def _differences(op: Op) -> Any:
    function = operators.within(op)
    return lambda s: s[0] if s[2] else function(s[0], s[1])


def _is_end(s: Any) -> Any:
    i, length, inner, end = s
    return i // inner % length == end


@described()
def adjacent_difference(
    work: Work,
    x: Operand,
    op: Op = OpKind.MINUS,
    /,
    *,
    axis: int | None = None,
    reverse: bool = False,
    out: Array | None = None,
) -> Operand:
    """Return an operator's results for each item and the one before it; the first item is unchanged.

    With `reverse`, of each item and the one behind it. `out` may be `x`, of which a copy is made then.

    >>> arrays.adjacent_difference(np.array([1, 4, 9, 16]))
    array([1, 3, 5, 7])
    """
    check_numbers("x", x)
    layout = _layout(x, axis)
    target = output_of(work, out, x.shape, x.dtype, [x])
    items = x.items
    if out is not None and same_memory(work, x, target):
        items = work.temporary(x.size, x.dtype)
        work.copy(x.items, items, x.size)
    length = max(layout.length, 1)
    neighbour = PermutationIterator(items, indices(_rolled, length, layout.inner, -1 if reverse else 1))
    numbers = CountingIterator(np.int64(0)), length, layout.inner, length - 1 if reverse else 0
    is_end = TransformIterator(with_numbers(*numbers), _is_end, _BOOL)
    source = TransformIterator(ZipIterator(items, neighbour, is_end), _differences(op), x.dtype)
    work.copy(source, target.items, target.size)
    return target


@described("num_items", "like")
def gather(work: Work, x: Operand, indices: Operand, /, *, out: Array | None = None) -> Operand:
    """Return the items at some places, of all items in C's order.

    >>> arrays.gather(np.array([3, 1, 4]), np.array([2, 0]))
    array([4, 3])
    """
    places = places_of(work, "indices", indices, x.size)
    return _stored(work, PermutationIterator(x.items, places), indices.shape, out)


def _or_zero(s: Any) -> Any:
    return s[1] if s[0] else 0


def _flags(name: str, flags: Operand, expected: Operand, what: str) -> Any:
    """Return an iterator over whether flags hold."""
    check_numbers(name, flags)
    if flags.shape != expected.shape:
        raise ArgumentValueError(name, f"expected the shape of `{what}`, {expected.shape}, got {flags.shape}")
    return TransformIterator(flags.items, is_nonzero, _BOOL)


@described(indices="guarded", out="target")
def gather_if(work: Work, x: Operand, indices: Operand, flags: Operand, out: Array, /) -> Operand:
    """Write the items at some places to an array, where flags hold; other items of it stay.

    >>> x, places = np.array([3, 1, 4]), np.array([2, 0])
    >>> arrays.gather_if(x, places, np.array([True, False]), np.array([7, 7]))
    array([4, 7])
    """
    check_numbers("x", x)
    libraries.of("out", out)
    holds = _flags("flags", flags, indices, "indices")
    wrapped = places_of(work, "indices", indices, x.size, holds)
    places = TransformIterator(ZipIterator(holds, wrapped), _or_zero, INT64)
    moved = PermutationIterator(x.items, places)
    target = output_of(work, out, indices.shape, x.dtype, [Operand(None, moved, indices.shape), flags])
    if target.dtype != x.dtype:
        raise ArgumentTypeError("out", f"expected dtype {x.dtype}, as `x` has, got {target.dtype}")
    each = ZipIterator(holds, moved, target.items)
    work.copy(TransformIterator(each, operators.chosen, x.dtype), target.items, target.size)
    return target


@described(out="target")
def scatter(work: Work, x: Operand, indices: Operand, out: Array, /) -> Operand:
    """Write items to places of an array; which one stays of several for one place is not specified.

    >>> arrays.scatter(np.array([3, 1]), np.array([2, 0]), np.zeros(3, int))
    array([1, 0, 3])
    """
    if x.shape != indices.shape:
        raise ArgumentValueError("indices", f"expected the shape of `x`, {x.shape}, got {indices.shape}")
    memory = libraries.of("out", out).memory(out)
    target = output_of(work, out, tuple(memory.shape), x.dtype, [x, indices], in_order=False)
    places = places_of(work, "indices", indices, target.size)
    work.copy(x.items, casting(PermutationIterator(target.items, places), x.dtype), x.size)
    return target


def _writing(array: Any) -> Any:
    """Return an operator that writes to an array where a flag holds: an output that may decline items."""

    def write(s: Any) -> Any:
        if s[0]:
            array[s[1]] = s[2]
        return 0

    return write


@described(indices="guarded", out="target")
def scatter_if(work: Work, x: Operand, indices: Operand, flags: Operand, out: Array, /) -> Operand:
    """Write those items for which flags hold to places of an array; other items of it stay.

    >>> x, places = np.array([3, 1]), np.array([2, 0])
    >>> arrays.scatter_if(x, places, np.array([True, False]), np.zeros(3, int))
    array([0, 0, 3])
    """
    check_numbers("x", x)
    if x.shape != indices.shape:
        raise ArgumentValueError("indices", f"expected the shape of `x`, {x.shape}, got {indices.shape}")
    holds = _flags("flags", flags, x, "x")
    memory = libraries.of("out", out).memory(out)
    target = output_of(work, out, tuple(memory.shape), x.dtype, [x, indices, flags], in_order=False)
    places = places_of(work, "indices", indices, target.size, holds)
    items, written = cast(x.items, target.dtype), target.items
    if (
        work.library.on_cpu and accumulated(target.dtype) != target.dtype
    ):  # numba has no arrays of these there
        items, written = (each.view(np.int16) for each in (work.kept(items, x.size), written))
    each = ZipIterator(holds, places, items)
    work.copy(each, DiscardIterator(INT64), x.size, _writing(written))
    return target


@described(size="sampled")
def sample(work: Work, x: Operand, size: int, /, *, seed: int = 0, out: Array | None = None) -> Operand:
    """Return different items of an array in an order that looks random, each item once at most.

    >>> sorted(arrays.sample(np.array([3, 1, 4]), 3).tolist())
    [1, 3, 4]
    """
    number = integer("size", size, x.size)
    places = ShuffleIterator(max(x.size, 1), seed)
    return _stored(work, PermutationIterator(x.items, places), (number,), out)


@described()
def shuffle(work: Work, x: Operand, /, *, seed: int = 0, out: Array | None = None) -> Operand:
    """Return all items in an order that looks random.

    >>> sorted(arrays.shuffle(np.array([3, 1, 4]), seed=7).tolist())
    [1, 3, 4]
    """
    places = ShuffleIterator(max(x.size, 1), seed)
    return _stored(work, PermutationIterator(x.items, places), x.shape, out)
