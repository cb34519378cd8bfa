"""Sorts of numbers by their bits on the CPU, and searches for ranks, which are NumPy's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import structs
from .._ir.specialisation import Specialisation
from . import offsets

Gather = Callable[[Sequence[Any], Any, Any], None]


def sort(spec: Specialisation, problem: Any, values: Sequence[Any], gather: Gather | None) -> None:
    """Do a radix sort, a segmented sort, a top-k or a search for the n-th elements.

    Parameters
    ----------
    spec, problem
    values : sequence
        Of the call: addresses of arrays, or what `gather` reads.
    gather : callable or None
        Takes these, and the places of items in the input and in the output; for values that are no array.
    """
    names = [each.name for each in spec.arguments]
    n, has_offsets = problem.num_items, "start_offsets_in" in names
    segments = problem.num_segments if spec.algorithm != "radix_sort" else 1
    if not segments or not (n or has_offsets):
        return
    k, is_top = getattr(problem, "k", 0), "top_k" in spec.algorithm
    sizes = {"d_out_keys": k * segments, "d_out_values": k * segments} if k else {}
    sizes |= dict.fromkeys(("start_offsets_in", "end_offsets_in", *_OF_SEGMENTS), segments)
    arrays = {
        each.name: _array(value, sizes.get(each.name, n), each.value)
        for each, value in zip(spec.arguments, values, strict=True)
        if each.is_pointer
    }
    if spec.algorithm == "radix_sort":
        _radix_sort(arrays, problem, spec.option("order") == "DESCENDING")
        return
    if has_offsets:
        starts, ends = (arrays[name].astype(np.int64) for name in ("start_offsets_in", "end_offsets_in"))
        offsets.check_arrays(problem, starts, ends, spec.arguments)
        if not n:
            return
        lengths = np.where(starts < ends, ends - starts, 0)  # their difference may wrap around
    else:
        starts = np.arange(segments) * problem.segment_size
        lengths = np.full(segments, problem.segment_size)
    if is_top and not k:
        return
    if spec.algorithm == "segmented_nth_element":
        from .._kernels.nth_element import PROPAGATING  # others import fewer files

        _nth_elements(arrays, problem, starts, lengths, spec.option("order") == PROPAGATING)
        return
    keys, descends = arrays["d_in_keys"], spec.option("order") == "DESCENDING"
    if lengths.sum() < _LEAST_SELECTED * segments and segments > 1:
        places, of_segment, _ = _spread(starts, lengths)
        order = np.lexsort((ranks(keys[places], descends), of_segment))
        found, targets = places[order], places
        if is_top:
            firsts = np.cumsum(lengths) - lengths
            kept, of_segment, ranked = _spread(firsts, np.minimum(lengths, k))
            found, targets = found[kept], of_segment * k + ranked
    else:
        numbers, at = np.minimum(lengths, k) if is_top else lengths, 0
        found, targets = np.empty((2, int(numbers.sum())), np.int64)
        each = zip(*(words.tolist() for words in (starts, lengths, numbers)), strict=True)
        for i, (begin, length, number) in enumerate(each):
            found[at : at + number] = begin + _first(keys[begin : begin + length], number, descends)
            targets[at : at + number] = np.arange(number) + (i * k if is_top else begin)
            at += number
    _gather(arrays, found, targets)
    if gather is not None:
        gather(values, np.ascontiguousarray(found), np.ascontiguousarray(targets))


_OF_SEGMENTS = ("d_out", "d_out_next", "d_ranks")
_LEAST_SELECTED = 1 << 12  # items of a segment on average that is not sorted with the others
_GROUPS = 1 << 12  # of items, whose first ones say which items cannot be among the first k


def _first(keys: Any, k: int, descends: bool) -> Any:
    """Return the places of the first k keys in their order; equal ones stay in theirs."""
    if k == len(keys):
        return stable_order(ranks(keys, descends))
    groups = max(_GROUPS, 4 * k)
    where: Any = slice(None)
    if len(keys) >= 8 * groups and _is_numpys(keys.dtype):
        # The first keys of k groups come no later than `bound`, so all keys behind that can be left out.
        first, behind = (np.fmax, np.less) if descends else (np.fmin, np.greater)
        firsts = first.reduce(keys[: len(keys) // groups * groups].reshape(-1, groups))
        bound = np.partition(firsts, -k if descends else k - 1)[-k if descends else k - 1]
        where = np.flatnonzero(~behind(keys, bound))  # with all NaNs
    words = ranks(keys[where], descends)
    last = np.partition(words, k - 1)[k - 1]
    before = np.flatnonzero(words < last)
    found = np.concatenate((before, np.flatnonzero(words == last)[: k - len(before)]))
    found = found[stable_order(words[found])]
    return found if isinstance(where, slice) else where[found]


def _is_numpys(dtype: np.dtype[Any]) -> bool:
    """Whether NumPy orders such numbers at its full speed, but for -0.0, which it takes for 0.0, and NaNs."""
    return dtype.kind in "iu" or dtype in (np.float32, np.float64)


def stable_order(words: Any) -> Any:
    """Return the places that sort unsigned words; equal ones stay in their order.

    NumPy's sorts take less time if they need not be stable, and least if they move words alone. So each word
    gets its place as further bits, in exchange for its last ones if there are too few. It is rare that these
    decide.
    """
    n = len(words)
    if words.itemsize <= 2 or n < _LEAST_PACKED:
        return np.argsort(words, kind="stable")
    bits, low, places = (n - 1).bit_length(), words.min(), np.arange(n, dtype=np.uint64)
    cut = max(0, int(words.max() - low).bit_length() + bits - 64)
    packed = ((words - low) >> words.dtype.type(cut)).astype(np.uint64)
    packed <<= np.uint64(bits)
    packed |= places
    packed.sort()
    packed &= np.uint64((1 << bits) - 1)
    found: Any = packed.view(np.int64)
    if cut:
        ordered = words[found]
        if (ordered[1:] < ordered[:-1]).any():
            return np.argsort(words, kind="stable")
    return found


_LEAST_PACKED = 1 << 8  # words that are sorted with their places


def _nth_elements(arrays: dict[str, Any], problem: Any, starts: Any, lengths: Any, propagates: bool) -> None:
    """Find the item of a rank in each segment, and the one behind it."""
    keys, found, behind = arrays["d_in"], arrays["d_out"], arrays.get("d_out_next")
    # NumPy sorts its own floats so that NaNs are last; the bits of others, all of whose NaNs are one.
    is_own = keys.dtype.kind in "iuf"
    words = keys if is_own else ranks(keys, False)
    if structs.is_bfloat16(keys.dtype):
        low, high = (ranks(np.array([each], keys.dtype), False)[0] for each in (-np.inf, np.inf))
        words = np.where((words < low) | (words > high), words.dtype.type(-1 & 0xFFFF), words)

    def write(out: Any, where: Any, values: Any) -> None:
        values = values if is_own else _keys_of(values, keys.dtype, False)
        out[where] = values + 0 if keys.dtype.kind == "f" else values  # 0.0 for -0.0

    def is_nan(last: Any) -> Any:
        return last != last if is_own else last == words.dtype.type(-1 & 0xFFFF)  # noqa: PLR0124

    one: Any
    other: Any
    last: Any
    if "d_ranks" not in arrays:
        n, length = problem.rank, problem.segment_size
        rows = np.partition(words[: len(starts) * length].reshape(-1, length), n, axis=-1)
        one, last = rows[:, n], rows[:, n:].max(axis=-1) if propagates else None
        other = np.fmin.reduce(rows[:, min(n + 1, length - 1) :], axis=-1) if behind is not None else None
        where: Any = slice(0, len(starts))
    else:
        wanted = arrays["d_ranks"].astype(np.int64)
        where = np.flatnonzero((wanted >= 0) & (wanted < lengths))
        starts, lengths, wanted = starts[where], lengths[where], wanted[where]
        after = np.minimum(wanted + 1, lengths - 1)
        if not len(where):
            return
        if lengths.sum() < _LEAST_SELECTED * len(where):
            places, of_segment, _ = _spread(starts, lengths)
            items = words[places]
            ordered = items[np.lexsort((items, of_segment))]
            firsts = np.cumsum(lengths) - lengths
            one, other, last = (ordered[firsts + each] for each in (wanted, after, lengths - 1))
        else:
            picked = []
            for begin, length, n, m in zip(
                *(each.tolist() for each in (starts, lengths, wanted, after)), strict=True
            ):
                part = np.partition(words[begin : begin + length], sorted({n, m, length - 1}))
                picked.append(part[[n, m, length - 1]])
            one, other, last = np.array(picked).T
    for out, each in ((found, one), (behind, other)):
        if out is not None:
            write(out, where, np.where(is_nan(last), last, each) if propagates else each)


def _spread(starts: Any, lengths: Any) -> tuple[Any, Any, Any]:
    """Return, for all items of segments in order: index in the array, segment, and index in the segment."""
    of_segment = np.repeat(np.arange(len(starts)), lengths)
    within = np.arange(len(of_segment)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.repeat(starts, lengths) + within, of_segment, within


def _radix_sort(arrays: dict[str, Any], problem: Any, descends: bool) -> None:
    keys = arrays["d_in_keys"]
    if "d_in_values" not in arrays and problem.end_bit - problem.begin_bit == 8 * keys.itemsize:
        _sort(keys, arrays["d_out_keys"], descends)
    else:
        order = stable_order(_some_bits(ranks(keys, False), problem, descends))
        _gather(arrays, order, slice(0, len(keys)))
    if problem.is_overwritten and not problem.is_in_output:  # double buffers end where a GPU's do
        for name in [each for each in arrays if "_in_" in each]:
            arrays[name][:] = arrays[name.replace("_in_", "_out_")]


def _sort(keys: Any, out: Any, descends: bool) -> None:
    """Sort keys without values."""
    if np.may_share_memory(keys, out):
        keys = keys.copy()
    if not _is_numpys(keys.dtype):
        words = ranks(keys, descends, is_alone=True)
        words.sort()
        if structs.kind_of(keys.dtype) == "f":
            _restore_zeros(words, keys, descends)
        out[:] = _keys_of(words, keys.dtype, descends)
        return
    out[:] = keys
    out.sort()
    if keys.dtype.kind == "f":
        _restore(out, keys, descends)
    if descends:
        out[:] = out[::-1]


def _restore(out: Any, keys: Any, descends: bool) -> None:
    """Put what NumPy takes for equal in order: NaNs are by their bits before and behind all numbers.

    -0.0 and 0.0 are in the order of the keys.
    """
    numbers = out
    if out[-1] != out[-1]:
        words = ranks(keys[keys != keys], False, is_alone=True)  # noqa: PLR0124
        words.sort()
        nans = _keys_of(words, keys.dtype, False)
        behind = len(out) - len(nans)
        first = np.count_nonzero(np.signbit(nans))
        numbers = out[first : first + behind]
        numbers[:] = out[:behind]
        out[:first], out[first + behind :] = nans[:first], nans[first:]
    begin, end = (np.searchsorted(numbers, 0, side) for side in ("left", "right"))
    if begin < end:
        zeros = keys[keys == 0]
        numbers[begin:end] = zeros[::-1] if descends else zeros


def _array(address: int, n: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if dtype.names is not None:  # all of its bytes, those between fields too
        dtype = np.dtype(f"V{dtype.itemsize}")
    if not n:
        return np.empty(0, dtype)
    memory: Any = (ctypes.c_char * (n * dtype.itemsize)).from_address(address)
    found: np.ndarray[Any, Any] = np.frombuffer(memory, dtype)
    return found


def _gather(arrays: dict[str, Any], places: Any, targets: Any) -> None:
    for kind in ("keys", "values"):
        if f"d_in_{kind}" in arrays:
            arrays[f"d_out_{kind}"][targets] = arrays[f"d_in_{kind}"][places]


def _restore_zeros(words: Any, keys: Any, descends: bool) -> None:
    """Put the zeros among sorted ranks in the order that they have among the keys: -0.0 and 0.0 are equal."""
    low, high = np.sort(ranks(np.array([-0.0, 0.0], keys.dtype), descends, is_alone=True))
    begin, middle, end = (np.searchsorted(words, *at) for at in ((low,), (high,), (high, "right")))
    if begin < middle < end:
        zeros = keys.view(words.dtype)
        zeros = zeros[zeros << words.dtype.type(1) == 0]
        words[begin:end] = ranks(zeros.view(keys.dtype), descends, is_alone=True)


def ranks(keys: np.ndarray[Any, Any], descends: bool, is_alone: bool = False) -> np.ndarray[Any, Any]:
    """Return unsigned words that are ordered as keys are: equal for -0.0 and 0.0, unless keys are alone."""
    size = keys.dtype.itemsize
    words = keys.view(f"u{size}")
    top = words.dtype.type(1 << (8 * size - 1))
    kind = structs.kind_of(keys.dtype)
    if kind == "f":
        if not is_alone:
            words = np.where(words == top, words.dtype.type(0), words)
        words = np.where(words & top, ~words, words | top)
    elif kind == "i":
        words = words ^ top
    elif kind == "b":
        words = (words != 0).astype(np.uint8)
    return ~words if descends else words.copy() if words.base is not None else words


def _keys_of(words: np.ndarray[Any, Any], dtype: np.dtype[Any], descends: bool) -> np.ndarray[Any, Any]:
    """Return the keys that words are the ranks of."""
    words = ~words if descends else words
    top = words.dtype.type(1 << (8 * dtype.itemsize - 1))
    kind = structs.kind_of(dtype)
    if kind == "f":
        words = np.where(words & top, words ^ top, ~words)
    elif kind == "i":
        words = words ^ top
    return np.ascontiguousarray(words).view(dtype)


def _some_bits(words: Any, problem: Any, descends: bool) -> Any:
    """Return the bits of ranks that a sort is by, in its order."""
    kind = words.dtype.type
    count = problem.end_bit - problem.begin_bit
    if count == 0:
        return np.zeros(len(words), kind)
    mask = kind((1 << count) - 1)
    found = (words >> kind(problem.begin_bit)) & mask
    return found ^ mask if descends else found
