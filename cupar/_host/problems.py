"""Problems of algorithms in compiled code.

For each method `_problem` of an algorithm there is a function here that writes the same as lines for numba.
The two must raise for the same arguments and agree on the result; `_PROBLEMS` has them by the class that
declares it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numba.core import errors, types
from numba.extending import register_jitable
from numba.np.numpy_support import as_dtype

from .._base.data import dataclass, field
from .._base.generated import fill
from .._call.algorithm import Algorithm
from .._ir.specialisation import Specialisation
from .._kernels import histogram
from .._kernels.columns import Columns
from .._kernels.merge import Ranges
from .._kernels.radix_sort import Bits
from .._kernels.segmented_sort import Sorted
from .._kernels.segments import MOST_LISTED, Segments
from .._kernels.top_k import Top
from .._launch.segments import MOST_SEGMENTS
from .given import integer
from .view_types import ViewType


@dataclass
class Problem:
    """How compiled code makes a problem.

    Attributes
    ----------
    text : str
        Its expression, of parameters and of counts, which are ``_n_`` and the parameter's name.
    counts : dict
        Expressions of counts that are no parameters.
    lines : list of str
        What goes before.
    names : dict
        Globals of the expression and the lines.
    """

    text: str
    counts: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)


def problem_of(cls: type[Algorithm], spec: Specialisation, given: Mapping[str, Any]) -> Problem:
    """Return the problem of a call with arguments of some types; raise TypingError for wrong ones."""
    if cls._problem is None:
        first = next(count for count in cls._uses.values() if count in given)
        return Problem(f"_n_{first}")
    maker = next(_PROBLEMS[each.__name__] for each in cls.__mro__ if each.__name__ in _PROBLEMS)
    return maker(spec, given)


def _search(spec: Specialisation, given: Mapping[str, Any]) -> Problem:
    index = spec.arguments[2].value
    lines = []
    if index.itemsize < 8:
        lines = [
            f"if _n_num_items > {np.iinfo(index).max}:",
            f'    raise ValueError("d_out: {index} cannot hold indices up to num_items")',
        ]
    return Problem("(_n_num_items, _n_num_values)", {}, lines)


def _merge(spec: Specialisation, given: Mapping[str, Any]) -> Problem:
    count1, count2 = "_n_num_items1", "_n_num_items2"
    both = f"({count1} + {count2})"
    return Problem(f"_Ranges({count1}, {count2}, {both})", {"num_items": both}, [], {"_Ranges": Ranges})


def _radix_sort(spec: Specialisation, given: Mapping[str, Any]) -> Problem:
    bits = 8 * spec.arguments[0].value.itemsize
    lines = [*_not_negative("begin_bit", given, 0), *_not_negative("end_bit", given, bits)]
    if not given["begin_bit"] is given["end_bit"] is types.none:
        expected = f"expected 0 <= begin_bit <= end_bit <= {bits}"
        lines += [
            f"if _end_bit < _begin_bit or _end_bit > {bits}:",
            f'    raise ValueError("begin_bit, end_bit: {expected}")',
        ]
    return Problem("_Bits(_n_num_items, _begin_bit, _end_bit, False)", {}, lines, {"_Bits": Bits})


def _segments(called: str, spec: Specialisation, given: Mapping[str, Any]) -> Problem:
    lines = [
        f"if _n_num_segments > {MOST_SEGMENTS}:",
        f'    raise ValueError("num_segments: expected at most {MOST_SEGMENTS}")',
    ]
    names = {"_Segments": Segments}
    if len(spec.arguments) > 2:
        if given["segment_size"] is not types.none:
            raise errors.TypingError(f"segment_size: this {called} was built for offsets; expected None")
        lines += _not_negative("max_segment_size", given, 0)
        size = "d_in.size" if isinstance(given["d_in"], ViewType) else "0"
        text = f"_Segments(_n_num_segments, _int({size}), _max_segment_size, _int(0))"
        return Problem(text, {"used": "0"}, lines, names)
    lines += _row_length("d_in", given)
    lines.append("_used = _n_num_segments * _segment_size")
    return Problem("_Segments(_n_num_segments, _used, _segment_size, _used)", {"used": "_used"}, lines, names)


def _columns(spec: Specialisation, given: Mapping[str, Any]) -> Problem:
    lines = [each for name in ("outer", "length", "inner") for each in _not_negative(name, given, 0)]
    lines += [
        "_columns = _outer * _inner",
        f"if _columns > {MOST_SEGMENTS}:",
        f'    raise ValueError("outer, inner: expected at most {MOST_SEGMENTS} columns")',
        "_items = _columns * _length",
    ]
    counts = {"columns": "_columns", "items": "_items"}
    return Problem("_Columns(_length, _inner, _columns, _items)", counts, lines, {"_Columns": Columns})


_LEVELS = """
_levels = {count}
if _levels < 2 or _levels > 2147483647:
    raise ValueError("h_num_output_levels: expected from 2 to 2**31 - 1")
_num_bins = _levels - 1
_lower, _upper = {lower}, {upper}
"""
_FLOAT_LEVELS = """
if not _isfinite(_lower):
    raise ValueError("h_lower_level: expected a finite number")
if not _isfinite(_upper):
    raise ValueError("h_upper_level: expected a finite number")
if not _lower < _upper:
    raise ValueError("h_upper_level: expected more than h_lower_level")
if not _isfinite(_upper - _lower):
    raise ValueError("h_upper_level: is too far from h_lower_level for float64")
"""
_INTEGER_LEVELS = """
if not _lower < _upper:
    raise ValueError("h_upper_level: expected more than h_lower_level")
if _overflow(_lower, _upper, _num_bins):
    raise ValueError("h_upper_level: the bins overflow 64 bits; give floats")
"""


def _histogram(spec: Specialisation, given: Mapping[str, Any]) -> Problem:
    levels = np.dtype(spec.option("levels"))
    lines: list[str] = []
    count, lower, upper = (
        _scalar(name, given, np.dtype(np.int64) if name == "h_num_output_levels" else levels, lines)
        for name in ("h_num_output_levels", "h_lower_level", "h_upper_level")
    )
    lines.append(fill(_LEVELS, count=count, lower=lower, upper=upper))
    lines += (_FLOAT_LEVELS if levels.kind == "f" else _INTEGER_LEVELS).strip().splitlines()
    word = "" if levels.kind == "f" else "_int"
    text = f"_Histogram(_num_bins, {word}(_lower), {word}(_upper), _n_num_samples)"
    names = {
        "_Histogram": histogram.Problem,
        "_isfinite": math.isfinite,
        "_overflow": _overflow,
        "_uint": types.uint64,
        **{f"_{each}": getattr(types, each) for each in ("int64", "uint64", "float64")},
    }
    return Problem(text, {"num_bins": "_num_bins"}, lines, names)


def _scalar(name: str, given: Mapping[str, Any], dtype: np.dtype[Any], lines: list[str]) -> str:
    """Check a number, or an array of one element; return its expression in a dtype."""
    kind, value = given[name], name
    if isinstance(kind, types.Array):
        message = f"{name}: expected a number or an array of one element"
        lines += [f"if {name}.size != 1:", f"    raise ValueError({message!r})"]
        kind, value = kind.dtype, f"{name}.item()"
    found = as_dtype(kind) if isinstance(kind, (types.Number, types.Boolean)) else np.dtype(object)
    if found.kind not in ("biuf" if dtype.kind == "f" else "biu"):
        expected = "a real number" if dtype.kind == "f" else "an integer"
        raise errors.TypingError(f"{name}: expected {expected}, or a NumPy array of one, got {given[name]}")
    if {found.kind, dtype.kind} == {"i", "u"} and found.itemsize >= (8 if found.kind == "u" else 0):
        lines += [
            f"if {value} {'< 0' if found.kind == 'i' else '> _uint(9223372036854775807)'}:",
            f'    raise ValueError("{name}: {dtype} cannot hold it")',
        ]
    return f"_{dtype.name}({value})"


@register_jitable
def _overflow(lower, upper, bins):  # type: ignore[no-untyped-def]
    """Tell whether a sample's distance from the lower level, times the bins, overflows 64 bits."""
    width, most = types.uint64(upper) - types.uint64(lower), types.uint64(0xFFFFFFFFFFFFFFFF)
    return width > types.uint64(0x7FFFFFFFFFFFFFFF) or width > most // types.uint64(bins)


def _ordered(called: str, array: str, spec: Specialisation, given: Mapping[str, Any]) -> list[str]:
    """Return the lines that find ``_used``, how many items all segments have, and their length, 0 if any."""
    has_offsets = spec.arguments[-1].name == "end_offsets_in"
    most = MOST_LISTED if has_offsets else MOST_SEGMENTS
    lines = [
        f"if _n_num_segments > {most}:",
        f'    raise ValueError("num_segments: expected at most {most}")',
    ]
    if has_offsets:
        if given["segment_size"] is not types.none:
            raise errors.TypingError(f"segment_size: this {called} was built for offsets; expected None")
        return [*lines, "_used, _segment_size = _n_num_items, _int(0)"]
    return [
        *lines,
        *_row_length(array, given),
        "_used = _n_num_segments * _segment_size",
        "if _used > _n_num_items:",
        '    raise ValueError("segment_size: all segments together have more items than num_items")',
    ]


def _segmented_sort(spec: Specialisation, given: Mapping[str, Any]) -> Problem:
    lines = _ordered("sort", "d_in_keys", spec, given)
    return Problem("_Sorted(_used, _n_num_segments, _segment_size)", {}, lines, {"_Sorted": Sorted})


_BEYOND = '    raise ValueError("k: is more than there are items")'


def _top_k(spec: Specialisation, given: Mapping[str, Any]) -> Problem:
    lines = ["if _n_k > _n_num_items:", _BEYOND]
    return Problem("_Top(_n_num_items, _int(1), _n_num_items, _n_k)", {}, lines, {"_Top": Top})


def _segmented_top_k(spec: Specialisation, given: Mapping[str, Any]) -> Problem:
    lines = [*_ordered("top-k", "d_in_keys", spec, given), f"_k = {integer('k', given['k'], 'k')}"]
    lines += ["if _k < 0:", '    raise ValueError("k: expected 0 or more")']
    if spec.arguments[-1].name != "end_offsets_in":
        lines += ["if _k > _segment_size:", _BEYOND]
    text = "_Top(_used, _n_num_segments, _segment_size, _k)"
    return Problem(text, {"outputs": "_n_num_segments * _k"}, lines, {"_Top": Top})


def _row_length(array: str, given: Mapping[str, Any]) -> list[str]:
    """Return the lines that find how many items each segment has, where all have as many."""
    if given["segment_size"] is not types.none:
        return [
            *_not_negative("segment_size", given, 0),
            "if _segment_size == 0:",
            '    raise ValueError("segment_size: expected 1 or more, got 0")',
        ]
    rows = given[array]
    if not isinstance(rows, ViewType) or rows.ndim < 2:
        raise errors.TypingError(
            "segment_size: expected an integer, as there are neither offsets nor rows, got none"
        )
    return [f"_segment_size = _int({array}.shape[{rows.ndim - 1}])"]


def _number(name: str, given: Mapping[str, Any], default: int) -> str:
    """Return the expression of an optional integer."""
    return f"_int({default})" if given[name] is types.none else integer(name, given[name], name)


def _not_negative(name: str, given: Mapping[str, Any], default: int) -> list[str]:
    return [
        f"_{name} = {_number(name, given, default)}",
        f"if _{name} < 0:",
        f'    raise ValueError("{name}: expected 0 or more")',
    ]


_PROBLEMS: dict[str, Callable[[Specialisation, Mapping[str, Any]], Problem]] = {
    "BinarySearch": _search,
    "ColumnReduce": _columns,
    "ColumnScan": _columns,
    "Histogram": _histogram,
    "Merge": _merge,
    "RadixSort": _radix_sort,
    "SegmentedReduce": partial(_segments, "reduction"),
    "SegmentedSort": _segmented_sort,
    "SegmentedScan": partial(_segments, "scan"),
    "SegmentedTopK": _segmented_top_k,
    "TopK": _top_k,
}
