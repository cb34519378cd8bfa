"""Problems to measure with, for each algorithm: the content of its arrays, and their sizes.

Values are such that sums and products are exact in any grouping: of floats, 1 and -1,
so arranged that no sum gets large. Then two policies that are both right give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from .. import structs
from .._base.data import dataclass, field, replace
from .._ir import nodes
from .._ir.iterator import Iterator, Leaf
from .._ir.operator import FixedState
from .._ir.specialisation import Specialisation
from ..operators import OpKind

TILE = 1 << 22  # items that are made here; the device repeats them
LARGE, SMALL = 1 << 28, 1 << 20  # items
SORTED = 1 << 26  # items that are sorted from the beginning, and so are made here as a whole
SEGMENTS = (64, 1024, 16384)  # items of a segment, by default; or columns
BINS = 256
K, FIRST = 16, 1000  # items of each segment, and of an array, in top-k

Array = np.ndarray[Any, Any]
Maker = Callable[[np.dtype[Any], int], Array]  # of items of a dtype


class UnsuitableError(ValueError):
    """No problem can be made for a specialisation; the message says why."""


@dataclass(frozen=True)
class Content:
    """Content of an array: a tile of items is made here, and repeated on the device."""

    dtype: np.dtype[Any]
    items: int
    make: Callable[[int], Array] | None = None  # None: zeros, to be written to
    whole: bool = False  # all are made here

    @property
    def nbytes(self) -> int:
        return max(self.items, 1) * self.dtype.itemsize


@dataclass(frozen=True)
class Workload:
    """Arguments of `run`: arrays by name, those of iterators as in ``d_in.0``, and all others.

    Attributes
    ----------
    name : str
    arrays : mapping of str to Content
    others : mapping
    is_guard : bool
        Whether a policy need not be quicker with it, but may not be slower.
    """

    name: str
    arrays: Mapping[str, Content]
    others: Mapping[str, Any] = field(default_factory=dict)
    is_guard: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of device memory, and of the results that others are compared with."""
        outputs = sum(each.nbytes for each in self.arrays.values() if each.make is None)
        return sum(each.nbytes for each in self.arrays.values()) + outputs


def workloads(
    spec: Specialisation, items: int | None, segment_size: int | None, memory: int
) -> list[Workload]:
    """Return the workloads that a specialisation is tuned for, and those with which it may not get slower.

    Parameters
    ----------
    spec : Specialisation
    items : int or None
        Of the problem that is tuned for; None: many, and a guard of few.
    segment_size : int or None
        Items of each segment, or columns; None: several sizes.
    memory : int
        Bytes of device memory that they may take.

    Raises
    ------
    UnsuitableError
        If it reads iterators or captured arrays, is of an algorithm that is not known here, or a problem of
        that size does not fit.
    """
    for each in spec.arguments:
        takes_tuples = spec.algorithm in _OF_TUPLES and _is_over_arrays(each.given)
        if not each.is_pointer and not takes_tuples:
            raise UnsuitableError(
                f"{each.name}: it is an iterator, and recorded lists do not store what iterators read"
            )
    if any(op.state_size and not isinstance(op.state, FixedState) for _, op in spec.operators):
        raise UnsuitableError("an operator has captured arrays, which a list does not hold")
    make = _MAKERS.get(spec.algorithm)
    if make is None:
        raise UnsuitableError(f"{spec.algorithm} is not measured yet")
    size = items or (SORTED if spec.algorithm in (*_SEARCHES, *_OF_RANGES) else LARGE)
    has_lengths = "segmented" in spec.algorithm or spec.algorithm in _OF_COLUMNS
    lengths = [segment_size] if segment_size or not has_lengths else [*SEGMENTS]
    found = []
    memory //= len(lengths)
    for length in lengths:
        while (problem := make(spec, size, length)).nbytes > memory and items is None and size > SMALL:
            size //= 2
        if problem.nbytes > memory:
            raise UnsuitableError(f"{size} items take {problem.nbytes} bytes, and {memory} are available")
        found.append(problem)
    if items is None:
        found.append(replace(make(spec, SMALL, lengths[len(lengths) // 2]), is_guard=True))
    return found


# --- Content of arrays ----------------------------------------------------------------------------------


def _rng() -> np.random.Generator:
    return np.random.default_rng(2026)


def _fields(dtype: np.dtype[Any], make: Maker) -> Callable[[int], Array]:
    """Return the maker of items of a dtype, of a struct field by field."""

    def made(count: int) -> Array:
        if dtype.names is None:
            return make(dtype, count)
        found = np.zeros(count, dtype)
        for name in dtype.names:
            inner = dtype.fields[name][0]  # type: ignore[index]
            base, size = inner.base, count * int(np.prod(inner.shape, dtype=int))
            found[name] = _fields(base, make)(size).reshape(count, *inner.shape)
        return found

    return made


def _values(dtype: np.dtype[Any], count: int) -> Array:
    """Return values whose sums are exact: 1 and -1 in turns in each of many short runs, in a random order."""
    if dtype.kind in "biu":
        return _keys(dtype, count)
    rng = _rng()
    pairs: Array = np.array([[1, -1], [-1, 1]])[rng.integers(0, 2, (count + 1) // 2)].reshape(-1)[:count]
    if dtype.kind == "c":
        return (pairs + 1j * pairs[::-1]).astype(dtype)
    return pairs.astype(dtype)


def _keys(dtype: np.dtype[Any], count: int) -> Array:
    """Return keys in a random order."""
    rng = _rng()
    if dtype.kind == "b":
        return rng.integers(0, 2, count).astype(dtype)
    if dtype.kind in "iu":
        return np.frombuffer(bytearray(rng.bytes(count * dtype.itemsize)), dtype)
    found: Array = rng.standard_normal(count)
    if dtype.kind == "c":
        found = found + 1j * rng.standard_normal(count)
    return found.astype(dtype)


def _runs(dtype: np.dtype[Any], count: int) -> Array:
    """Return keys in runs of 4 on average."""
    starts = np.cumsum(_rng().random(count) < 0.25)
    return _keys(dtype, int(starts[-1]) + 1)[starts]


def _ascending(dtype: np.dtype[Any], count: int) -> Array:
    """Return keys that ascend, over half of what integers can be."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        low, high = int(info.min) // 2, int(info.max) // 2
    elif dtype.kind == "f":
        low, high = -1, 1
    else:
        raise UnsuitableError(f"d_data: no sorted {structs.text(dtype)} is made here")
    return np.linspace(low, high, count).astype(dtype)


def _inputs(spec: Specialisation, make: Maker, n: int) -> dict[str, Content]:
    """Return the content of all arrays, of `n` items each: inputs, and outputs of zeros."""
    found = {}
    for each in spec.arguments:
        dtypes = {f"{each.name}.{i}": slot.dtype for i, slot in enumerate(each.given.layout)}
        for name, dtype in ({each.name: each.value} if each.is_pointer else dtypes).items():
            if dtype is not None:
                found[name] = Content(dtype, n, None if each.output else _fields(dtype, make))
    return found


def _is_over_arrays(node: nodes.IteratorNode) -> bool:
    """Whether an iterator can be made of arrays alone, and of counts from 0 on."""
    known = nodes.Pointer, nodes.Counting, nodes.Zip, nodes.Reverse, nodes.Convert, nodes.Transform
    return any(isinstance(each, nodes.Pointer) for each in node.walk()) and all(
        isinstance(each, known) and (each.operator is None or not each.operator.state_size)
        for each in node.walk()
    )


def iterator(argument: nodes.Argument, arrays: Mapping[str, Any], items: int) -> Iterator:
    """Return an iterator over some items of arrays, which have the names of `Workload`."""
    leaves = []
    for i, slot in enumerate(argument.given.layout):
        start = items - 1 if slot.step < 0 and slot.kind != "bytes" else 0
        given = arrays[f"{argument.name}.{i}"] if slot.dtype is not None else 0
        leaves.append(Leaf(bytes(slot.size) if slot.kind == "bytes" else given, start, slot))
    return Iterator(argument.given, leaves)


def _init(spec: Specialisation) -> dict[str, Any]:
    """Return the initial value, if the algorithm has one: a 1, or a struct of zeros."""
    if spec.option("init") is None:
        return {"h_init": None}
    dtype = spec.operators[0][1].output
    value = np.zeros(1, dtype) if dtype.names else np.ones(1, dtype)
    return {"h_init": value}


def _text(n: int) -> str:
    """Return a number of items, as in ``2^20 items``."""
    return f"2^{n.bit_length() - 1} items" if n & (n - 1) == 0 else f"{n} items"


# --- Algorithms -----------------------------------------------------------------------------------------


def _accumulating(spec: Specialisation, n: int, length: int | None) -> Workload:
    arrays = _inputs(spec, _values, n)
    if spec.algorithm == "reduce_into" and "d_out" in arrays:
        arrays["d_out"] = Content(arrays["d_out"].dtype, 1)
    return Workload(_text(n), arrays, {"num_items": n, **_init(spec)})


def _segmented(spec: Specialisation, n: int, length: int | None) -> Workload:
    assert length is not None
    length = min(length, n)
    segments = n // length
    items = segments * length
    are_keys = spec.algorithm in _OF_SEGMENTED_KEYS
    arrays = _inputs(spec, _keys if are_keys else _values, items)
    of_segment = {"segmented_reduce": 1, "segmented_nth_element": 1, "segmented_top_k": K}
    written = segments * of_segment.get(spec.algorithm, length)
    arrays |= {name: Content(each.dtype, written) for name, each in arrays.items() if each.make is None}
    others: dict[str, Any] = {"num_segments": segments, **({"num_items": items} if are_keys else _init(spec))}
    if spec.algorithm == "segmented_top_k":
        others["k"] = K
    if "d_ranks" in arrays:
        ranks = arrays["d_ranks"].dtype
        arrays["d_ranks"] = Content(ranks, segments, lambda count: np.full(count, length // 2, ranks), True)
    elif spec.algorithm == "segmented_nth_element":
        others["n"] = length // 2
    if "start_offsets_in" in arrays:
        for name, first in (("start_offsets_in", 0), ("end_offsets_in", length)):
            dtype = arrays[name].dtype
            if items > np.iinfo(dtype).max:
                raise UnsuitableError(f"{name}: {dtype} holds no offset of {items}")
            arrays[name] = Content(dtype, segments, _offsets(dtype, first, length), True)
    else:
        others["segment_size"] = length
    return Workload(f"{_text(items)}, {length} a segment", arrays, others)


def _copying(spec: Specialisation, n: int, length: int | None) -> Workload:
    assert length is not None
    length = min(length, n)
    segments = n // length
    items = segments * length
    arrays = _inputs(spec, _values, items)
    for name, first in (("start_offsets_in", 0), ("end_offsets_in", length), ("start_offsets_out", 0)):
        dtype = arrays[name].dtype
        if items > np.iinfo(dtype).max:
            raise UnsuitableError(f"{name}: {dtype} holds no offset of {items}")
        # To the output in the order of the input backwards, so that no segment follows another.
        make = _offsets(dtype, items - length, -length) if "out" in name else _offsets(dtype, first, length)
        arrays[name] = Content(dtype, segments, make, True)
    return Workload(f"{_text(items)}, {length} a segment", arrays, {"num_segments": segments})


def _offsets(dtype: np.dtype[Any], first: int, length: int) -> Callable[[int], Array]:
    return lambda count: (first + length * np.arange(count, dtype=np.int64)).astype(dtype)


def _of_columns(spec: Specialisation, n: int, columns: int | None) -> Workload:
    assert columns is not None
    columns = min(columns, n)
    length = n // columns
    arrays = _inputs(spec, _values, length * columns)
    if spec.algorithm == "column_reduce" and "d_out" in arrays:
        arrays["d_out"] = Content(arrays["d_out"].dtype, columns)
    others = {"outer": 1, "length": length, "inner": columns, **_init(spec)}
    return Workload(f"{_text(length * columns)}, {columns} columns", arrays, others)


def _merging(spec: Specialisation, n: int, length: int | None) -> Workload:
    kind = spec.operators[0][1].kind
    if kind not in _UP and kind not in _DOWN:
        raise UnsuitableError("op: no keys are made here that an operator of one's own has sorted")
    arrays, counts = _inputs(spec, _keys, n), {"1": n // 2, "2": n - n // 2}
    for name, each in arrays.items():
        if name[-1] in counts:
            make = partial(_sorted, each.dtype, kind in _DOWN) if "keys" in name else each.make
            arrays[name] = Content(each.dtype, counts[name[-1]], make, whole="keys" in name)
    others: dict[str, Any] = {f"num_items{which}": count for which, count in counts.items()}
    others |= {name: None for name in ("d_in_items1", "d_in_items2", "d_out_items") if name not in arrays}
    if "d_out_num_selected" in arrays:  # of sets
        arrays["d_out_num_selected"] = Content(arrays["d_out_num_selected"].dtype, 1)
    return Workload(_text(n), arrays, others)


def _sorted(dtype: np.dtype[Any], is_down: bool, count: int) -> Array:
    found = _ascending(dtype, count)
    return found[::-1].copy() if is_down else found


def _itemwise(make: Maker, spec: Specialisation, n: int, length: int | None) -> Workload:
    return Workload(_text(n), _inputs(spec, make, n), {"num_items": n})


def _of_runs(spec: Specialisation, n: int, length: int | None) -> Workload:
    arrays = _inputs(spec, _values, n)
    for name, each in arrays.items():
        if name in ("d_in_keys", "d_in") and each.make is not None:
            arrays[name] = Content(each.dtype, n, _fields(each.dtype, _runs))
    arrays |= {name: Content(arrays[name].dtype, 1) for name in arrays if name == "d_out_num_runs"}
    init = {} if spec.algorithm == "run_length_encode" else _init(spec)
    return Workload(_text(n), arrays, {"num_items": n, **init})


def _of_first(spec: Specialisation, n: int, length: int | None) -> Workload:
    arrays = _inputs(spec, _keys, n)
    arrays |= {name: Content(each.dtype, min(n, FIRST)) for name, each in arrays.items() if each.make is None}
    return Workload(f"{_text(n)}, the first {min(n, FIRST)}", arrays, {"num_items": n, "k": min(n, FIRST)})


def _choosing(spec: Specialisation, n: int, length: int | None) -> Workload:
    arrays = _inputs(spec, _runs if spec.algorithm == "unique_by_key" else _keys, n)
    for name in arrays:
        if "num_selected" in name:
            arrays[name] = Content(arrays[name].dtype, 2 if spec.algorithm == "three_way_partition" else 1)
    return Workload(_text(n), arrays, {"num_items": n})


def _finding(spec: Specialisation, n: int, length: int | None) -> Workload:
    arrays = _inputs(spec, _ones, n)  # so that "not" holds for none of them, and all are read
    if "d_out" in arrays:
        arrays["d_out"] = Content(arrays["d_out"].dtype, 1)
    return Workload(_text(n), arrays, {"num_items": n})


def _ones(dtype: np.dtype[Any], count: int) -> Array:
    return np.ones(count, dtype)


def _searching(spec: Specialisation, n: int, length: int | None) -> Workload:
    arrays = _inputs(spec, _keys, n)
    dtype = arrays["d_data"].dtype
    arrays["d_data"] = Content(dtype, n, lambda count: _ascending(dtype, count), True)
    if spec.option("values_sorted"):
        arrays["d_values"] = arrays["d_data"]
    return Workload(_text(n), arrays, {"num_items": n, "num_values": n})


def _counting(spec: Specialisation, n: int, length: int | None) -> Workload:
    arrays = _inputs(spec, _samples, n)
    arrays["d_histogram"] = Content(arrays["d_histogram"].dtype, BINS)
    is_float = np.dtype(spec.option("levels")).kind == "f"
    upper = 1.0 if is_float else (1 << min(8 * arrays["d_samples"].dtype.itemsize, 30) - 1)
    bounds = {"h_lower_level": 0.0 if is_float else 0, "h_upper_level": upper}
    levels = {"h_num_output_levels": BINS + 1, **bounds}
    return Workload(f"{_text(n)}, {BINS} bins", arrays, {**levels, "num_samples": n})


def _counting_between(spec: Specialisation, n: int, length: int | None) -> Workload:
    arrays = _inputs(spec, _samples, n)
    levels = arrays["d_levels"].dtype
    arrays["d_histogram"] = Content(arrays["d_histogram"].dtype, BINS)
    arrays["d_levels"] = Content(levels, BINS + 1, partial(_ascending, levels), True)
    return Workload(f"{_text(n)}, {BINS} bins", arrays, {"h_num_output_levels": BINS + 1, "num_samples": n})


def _indexed(spec: Specialisation, n: int, length: int | None) -> Workload:
    arrays = _inputs(spec, _values, n)
    dtype = arrays["d_indices"].dtype
    arrays["d_indices"] = Content(dtype, n, lambda count: _keys(dtype, count) % 64)
    arrays["d_out"] = Content(arrays["d_out"].dtype, 64)
    return Workload(f"{_text(n)}, 64 bins", arrays, {"num_items": n, "num_bins": 64, **_init(spec)})


def _samples(dtype: np.dtype[Any], count: int) -> Array:
    if dtype.kind == "f":
        return _rng().random(count).astype(dtype)
    return _keys(dtype, count)


_SEARCHES = ("lower_bound", "upper_bound")
_OF_RANGES = ("merge", "set_union", "set_intersection", "set_difference", "set_symmetric_difference")
_OF_COLUMNS = ("inclusive_column_scan", "exclusive_column_scan", "column_reduce")
_OF_SEGMENTED_KEYS = ("segmented_sort", "segmented_top_k", "segmented_nth_element")
_OF_RUNS = ("reduce_by_key", "inclusive_scan_by_key", "exclusive_scan_by_key", "run_length_encode")
_ACCUMULATING = ("inclusive_scan", "exclusive_scan", "reduce_into")
_TRANSFORMS = ("unary_transform", "binary_transform")
_OF_TUPLES = (*_OF_COLUMNS, *_ACCUMULATING, *_TRANSFORMS)  # which iterators are made for
_UP, _DOWN = (OpKind.LESS,), (OpKind.GREATER,)
_MAKERS: Mapping[str, Callable[[Specialisation, int, int | None], Workload]] = {
    **dict.fromkeys(_ACCUMULATING, _accumulating),
    **dict.fromkeys(("segmented_reduce", "inclusive_segmented_scan", "exclusive_segmented_scan"), _segmented),
    **dict.fromkeys(_OF_SEGMENTED_KEYS, _segmented),
    "top_k": _of_first,
    **dict.fromkeys(_OF_RUNS, _of_runs),
    "segmented_copy": _copying,
    **dict.fromkeys(_TRANSFORMS, partial(_itemwise, _values)),
    **dict.fromkeys(("merge_sort", "radix_sort"), partial(_itemwise, _keys)),
    **dict.fromkeys(("select", "three_way_partition", "unique_by_key"), _choosing),
    **dict.fromkeys(_SEARCHES, _searching),
    **dict.fromkeys(_OF_COLUMNS, _of_columns),
    "find_if": _finding,
    **dict.fromkeys(_OF_RANGES, _merging),
    "histogram_even": _counting,
    "histogram_range": _counting_between,
    "reduce_by_index": _indexed,
}
