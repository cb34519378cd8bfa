"""Sorts, the first k items, sums of segments and histograms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from .. import structs
from .._functions.axes import INT64, axis_of, columns, constant, indices, layout_of
from .._functions.calls import Operand, Work
from .._functions.counting import bin_of, counted, edges_of, segment_rows
from .._functions.operators import less_of
from .._functions.rows import sorted_rows, within_row
from .._functions.sorting import _sort, _top_k
from .._functions.values import accumulated, cast, flag, initial
from ..iterators import CountingIterator, PermutationIterator, TransformIterator, ZipIterator
from ..operators import OpKind
from ..search import upper_bound
from .partition import Factors
from .primitive import Dim, Function, along, call, numbers

_MOST: Final = 2**31 - 1  # items along an axis whose places and counts are int32


def _integers(length: int) -> np.dtype[Any]:
    """Return the dtype of places and counts of so many items; raise ValueError if JAX has it switched off."""
    if length <= _MOST:
        return np.dtype(np.int32)
    if not jax.config.jax_enable_x64:
        raise ValueError(
            "x: expected at most 2**31 - 1 items along the axis, as places and counts are int32 without "
            f"jax_enable_x64, got {length}"
        )
    return INT64


def _count(name: str, value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}: expected an integer, known when it is traced, got {type(value).__name__}")
    if not 0 <= value <= most:
        raise ValueError(f"{name}: expected from 0 to {most}, got {value}")
    return int(value)


def _taken(x: Any, places: Any, axis: int) -> Any:
    """Return the items of these places of an axis, which are different ones."""
    every = [jax.lax.broadcasted_iota(places.dtype, places.shape, i) for i in range(places.ndim)]
    every[axis] = places
    return x.at[tuple(every)].get(mode="promise_in_bounds", unique_indices=True)


# --- Sorts ----------------------------------------------------------------------------------------------


def _sort_body(work: Work, x: Operand, axis: int, descending: bool, stable: bool) -> Sequence[Operand]:
    return [_sort(work, x, axis, descending, stable, None, None)]


def _with_places(
    work: Work, x: Operand, axis: int, descending: bool, integers: np.dtype[Any]
) -> Sequence[Operand]:
    layout = layout_of(x.shape, axis, axis)
    places = work.kept(cast(indices(within_row, layout.length), integers), layout.size)
    found = sorted_rows(work, columns(x.items, layout), layout, descending, None, places)
    made = [work.empty(x.shape, each.dtype) for each in found]
    for items, each in zip(found, made, strict=True):
        work.copy(items, columns(each.items, layout), layout.size)
    return made


def _sorted_with(given: Sequence[Any], tangents: Sequence[Any], axis: int, descending: bool, *_: Any) -> Any:
    """Return sorted items and their places, and tangents of the former."""
    (x,), (slope,) = given, tangents
    integers = _integers(x.shape[axis])
    found = call(_SORT_WITH, (x,), (axis, descending, integers), ((x.shape, x.dtype), (x.shape, integers)))
    return found, [_taken(slope, found[1], axis), None]


def _sorted(given: Sequence[Any], tangents: Sequence[Any], axis: int, descending: bool, stable: bool) -> Any:
    found, slopes = _sorted_with(given, tangents, axis, descending)
    return found[:1], slopes[:1]


_SORT = Function("sort", _sort_body, along, jvp=_sorted)
_SORT_WITH = Function("sort", _with_places, along, jvp=_sorted_with)


def sort(x: ArrayLike, *, axis: int = -1, descending: bool = False, stable: bool = True) -> jax.Array:
    """Return the items sorted along an axis; NaN is the greatest.

    Parameters
    ----------
    x : array
    axis : int, optional
    descending : bool, optional
        Whether the greatest come first.
    stable : bool, optional
        Whether -0.0 and 0.0 stay in their order. Without it, rows of floats are sorted quicker on a GPU.

    Returns
    -------
    array

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from cupar.jax import sort
    >>> sort(jnp.array([[3, 1, 2], [6, 5, 4]]))
    Array([[1, 2, 3],
           [4, 5, 6]], dtype=int32)
    """
    items = numbers("x", x)
    static = Dim(axis_of(axis, items.ndim)), flag("descending", descending), flag("stable", stable)
    found: jax.Array = call(_SORT, (items,), static, ((items.shape, items.dtype),))[0]
    return found


# --- The first k items ----------------------------------------------------------------------------------


def _top_k_body(
    work: Work, x: Operand, k: int, axis: int, largest: bool, integers: np.dtype[Any]
) -> Sequence[Operand]:
    return _top_k(work, x, k, axis, largest, integers)


def _first(x: Any, *static: Any) -> list[Any]:
    k, axis, _, integers = static
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return call(_TOP_K, (x,), static, ((shape, x.dtype), (shape, integers)))


def _first_slopes(given: Sequence[Any], tangents: Sequence[Any], *static: Any) -> Any:
    found = _first(*given, *static)
    return found, [_taken(tangents[0], found[1], static[1]), None]


_TOP_K = Function("top_k", _top_k_body, along, jvp=_first_slopes)


def top_k(x: ArrayLike, k: int, *, axis: int = -1, largest: bool = True) -> tuple[jax.Array, jax.Array]:
    """Return the k greatest items along an axis, sorted, and their indices, as ``jax.lax.top_k``.

    Parameters
    ----------
    x : array
        Of real numbers. NaN is the greatest.
    k : int
    axis : int, optional
    largest : bool, optional
        False: the least.

    Returns
    -------
    values : array
    indices : array of int32
        Of int64, if the axis has more than 2^31 - 1 items.

    Raises
    ------
    ValueError
        If it has, and JAX is not told to have numbers of 64 bits (``jax_enable_x64``).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from cupar.jax import top_k
    >>> top_k(jnp.array([1.0, 9.0, 2.0, 7.0]), 2)
    (Array([9., 7.], dtype=float32), Array([1, 3], dtype=int32))
    """
    items = numbers("x", x, "biuf")
    at = Dim(axis_of(axis, items.ndim))
    length = items.shape[at]
    return tuple(_first(items, _count("k", k, length), at, flag("largest", largest), _integers(length)))


# --- Segments -------------------------------------------------------------------------------------------


def _sums(work: Work, x: Operand, ids: Operand, number: int, batch: int) -> Sequence[Operand]:
    return [
        segment_rows(
            work, x, ids, OpKind.PLUS, number, x.dtype, initial("init", 0, accumulated(x.dtype)), batch
        )
    ]


def _constants(*numbers: int) -> Sequence[Any]:
    return [constant(each) for each in numbers]


def _of_segments(inputs: Sequence[int], results: Sequence[int], number: int, batch: int) -> Factors:
    before = tuple(f"b{i}" for i in range(batch))
    rest = tuple(f"r{i}" for i in range(inputs[0] - batch - 1))
    return Factors([(*before, "t", *rest), (*before, "t")], [(*before, "k", *rest)], ("t", "k"))


def _summed(data: Any, ids: Any, number: int, batch: int) -> list[Any]:
    shape = (*data.shape[:batch], number, *data.shape[batch + 1 :])
    return call(_SUMS, (data, ids), (number, batch), ((shape, data.dtype),))


def _sums_slopes(given: Sequence[Any], tangents: Sequence[Any], *static: Any) -> Any:
    return _summed(*given, *static), _summed(tangents[0], given[1], *static)


def _spread(slopes: Sequence[Any], given: Sequence[Any], number: int, batch: int) -> Any:
    """Return for each item the cotangent of its segment's sum, or 0."""

    def spread(of_sums: Any, ids: Any) -> Any:
        if not number:
            return jnp.zeros((*ids.shape, *of_sums.shape[1:]), of_sums.dtype)
        is_any = (ids >= 0) & (ids < number)
        found = of_sums[jnp.where(is_any, ids, 0)]
        return jnp.where(is_any.reshape(-1, *[1] * (found.ndim - 1)), found, jnp.zeros_like(found))

    for _ in range(batch):
        spread = jax.vmap(spread)
    return [spread(slopes[0], given[1]), None]


_SUMS = Function(
    "segment_sum",
    _sums,
    _of_segments,
    jvp=_sums_slopes,
    transpose=_spread,
)


def segment_sum(data: ArrayLike, segment_ids: ArrayLike, num_segments: int) -> jax.Array:
    """Return the sums of segments, where ids in any order say which one an item is in.

    As ``jax.ops.segment_sum``, and the same in every run: items are added in their order in parts that do not
    depend on how they are scheduled, not by atomic operations.

    Parameters
    ----------
    data : array
        Of numbers, of shape (n, …).
    segment_ids : array of integers
        Of shape (n,). Items whose id is below 0, or `num_segments` or more, are left out.
    num_segments : int

    Returns
    -------
    array
        Of shape (num_segments, …).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from cupar.jax import segment_sum
    >>> segment_sum(jnp.arange(5), jnp.array([0, 2, 0, 2, 2]), 3)
    Array([2, 0, 8], dtype=int32)
    """
    items, ids = numbers("data", data, "iufc"), numbers("segment_ids", segment_ids, "iu")
    if ids.ndim != 1 or ids.shape != items.shape[:1]:
        raise ValueError(
            f"segment_ids: expected shape {items.shape[:1]}, that data begins with, got {ids.shape}"
        )
    return _summed(items, ids, _count("num_segments", num_segments, 2**31 - 2), Dim(0))[0]


# --- Histograms -----------------------------------------------------------------------------------------


def _bin_of_row(s: Any) -> Any:
    place, i, length, number = s
    return i // length * number + place if place >= 0 else -1


def _bins(
    work: Work,
    x: Operand,
    edges: tuple[float, ...],
    dtype: str,
    batch: int,
    integers: np.dtype[Any],
) -> Sequence[Operand]:
    known, shape = np.array(edges, dtype), x.shape[:batch]
    number, kind = len(known) - 1, np.result_type(x.dtype, known.dtype)
    hist = work.empty((*shape, number), integers)
    levels = work.kept(cast(work.operand(work.put(known)).items, kind), number + 1)
    values, behind = cast(x.items, kind), work.temporary(x.size, INT64)
    if x.size:
        search = upper_bound(levels, values, behind, less_of(kind))
        work.run(search, levels, number + 1, values, x.size, behind)
    last, count = (_constants(number)[0] for _ in range(2))
    found = TransformIterator(
        ZipIterator(values, behind, PermutationIterator(levels, last), count), bin_of, INT64
    )
    if batch and x.size:
        every = CountingIterator(np.int64(0)), *_constants(math.prod(x.shape[batch:]), number)
        found = TransformIterator(ZipIterator(found, *every), _bin_of_row, INT64)
    if hist.size:
        counted(work, found, x.size, hist.items, hist.size)
    return [hist]


_HISTOGRAM = Function("histogram", _bins)


def histogram(
    x: ArrayLike, bins: int | Sequence[float] | ArrayLike = 10, range: tuple[float, float] | None = None
) -> jax.Array:
    """Return how many items are in each of some bins, of which the last one has both its edges.

    Parameters
    ----------
    x : array
        Of real numbers.
    bins : int or sequence of numbers, optional
        How many of equal width, or the edges of all.
    range : pair of numbers, optional
        The first and the last edge, if `bins` is a number. Items that are outside, and NaNs, are not counted.

    Returns
    -------
    array of int32
        Of int64, if there are more than 2^31 - 1 items.

    Raises
    ------
    ValueError
        If there are, and JAX is not told to have numbers of 64 bits (``jax_enable_x64``).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from cupar.jax import histogram
    >>> histogram(jnp.array([1.0, 2.0, 2.0, 3.0]), 2, (1, 3))
    Array([1, 3], dtype=int32)
    """
    items = jax.lax.stop_gradient(numbers("x", x, "biuf"))
    if items.dtype == jnp.bool_:
        items = items.astype(jnp.uint8)
    if range is None and isinstance(bins, (int, np.integer)):
        raise ValueError(
            "range: expected two numbers, as `bins` is one: a compiled program cannot wait for data"
        )
    dtype = np.dtype(np.float32) if structs.is_bfloat16(np.dtype(items.dtype)) else np.dtype(items.dtype)
    template: Any = Operand(None, np.empty(1, dtype), (1,))
    edges = edges_of(template, bins, range)  # reads nothing back, as the range is known
    integers = _integers(items.size)
    static = tuple(edges.tolist()), edges.dtype.str, Dim(0), integers
    if dtype != items.dtype:
        items = items.astype(dtype)
    outputs = (((len(edges) - 1,), integers),)
    found: jax.Array = call(_HISTOGRAM, (items.reshape(-1),), static, outputs)[0]
    return found
