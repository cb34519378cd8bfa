"""Specialisations to tune: of a named algorithm and types, of a recorded list, or of a script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import (
    columns,
    copies,
    find,
    histogram,
    indexed,
    merges,
    nth_element,
    operators,
    partition,
    reduce,
    runs,
    scan,
    search,
    segmented,
    segmented_scan,
    sets,
    sort,
    structs,
    topk,
    transform,
    unique,
)
from .._ahead.batch import collected
from .._base.data import dataclass
from .._compile.key import digest, policy_parts
from .._device.card import Card
from .._ir.specialisation import Specialisation

OpKind = operators.OpKind
_OFFSET = np.dtype(np.int64)

Types = Sequence[np.dtype[Any]]


@dataclass(frozen=True)
class NamedAlgorithm:
    """An algorithm that can be named on the command line.

    Attributes
    ----------
    factory : callable
    arguments : callable
        Takes types, an operator and a dtype of offsets or None; returns the factory's arguments.
    types : tuple of str
        The arguments that types are for; only the first type is required.
    op : OpKind or None
        The default operator; None: the algorithm takes none.
    """

    factory: Callable[..., object]
    arguments: Callable[[Types, Any, Any], tuple[Any, ...]]
    types: tuple[str, ...]
    op: OpKind | None = None


def _item(t: Types) -> np.dtype[Any] | None:
    return t[1] if len(t) > 1 else None


def _init(t: Types) -> np.ndarray[Any, Any]:
    return np.zeros(1, t[-1])


def _histogram(t: Types) -> tuple[Any, ...]:
    bounds = (0.0, 1.0) if t[0].kind == "f" else (0, 64)
    return t[0], _item(t) or np.int32, 65, *bounds, 1


def _of_both(t: Types, op: Any, _: Any) -> tuple[Any, ...]:
    """Return the arguments of a set that takes from both ranges."""
    return *(t[0], _item(t)) * 3, _OFFSET, op


def _of_first(t: Types, op: Any, _: Any) -> tuple[Any, ...]:
    """Return the arguments of a set whose items come from the first range."""
    return t[0], _item(t), t[0], None, t[0], _item(t), _OFFSET, op


_IN_OUT, _KEYS, _ITEMS = ("input", "output"), ("keys", "items"), ("items",)
_BOTH = ("first input", "second input", "output")
_UP = sort.SortOrder.ASCENDING
ALGORITHMS: Mapping[str, NamedAlgorithm] = {
    each.factory.__name__: each
    for each in (
        NamedAlgorithm(
            reduce.reduce_into, lambda t, op, _: (t[0], t[-1], op, _init(t)), _IN_OUT, OpKind.PLUS
        ),
        NamedAlgorithm(scan.inclusive_scan, lambda t, op, _: (t[0], t[-1], op), _IN_OUT, OpKind.PLUS),
        NamedAlgorithm(
            scan.exclusive_scan, lambda t, op, _: (t[0], t[-1], op, _init(t)), _IN_OUT, OpKind.PLUS
        ),
        NamedAlgorithm(
            segmented.segmented_reduce,
            lambda t, op, offset: (t[0], t[-1], offset, offset, op, _init(t)),
            _IN_OUT,
            OpKind.PLUS,
        ),
        NamedAlgorithm(
            segmented_scan.inclusive_segmented_scan,
            lambda t, op, offset: (t[0], t[-1], offset, offset, op),
            _IN_OUT,
            OpKind.PLUS,
        ),
        NamedAlgorithm(
            nth_element.segmented_nth_element,
            lambda t, _, offset: (t[0], t[0], None, *(offset,) * 3),
            _ITEMS,
        ),
        NamedAlgorithm(
            topk.segmented_top_k,
            lambda t, _, offset: (t[0], t[0], _item(t), _item(t), offset, offset),
            _KEYS,
        ),
        NamedAlgorithm(topk.top_k, lambda t, *_: (t[0], t[0], _item(t), _item(t)), _KEYS),
        NamedAlgorithm(
            runs.reduce_by_key,
            lambda t, op, _: (t[0], t[0], t[-1], t[-1], _OFFSET, op),
            ("keys", "values"),
            OpKind.PLUS,
        ),
        NamedAlgorithm(
            runs.inclusive_scan_by_key,
            lambda t, op, _: (t[0], t[-1], t[-1], op),
            ("keys", "values"),
            OpKind.PLUS,
        ),
        NamedAlgorithm(
            runs.run_length_encode,
            lambda t, *_: (t[0], t[0], _item(t) or np.int32, _OFFSET),
            ("keys", "counts"),
        ),
        NamedAlgorithm(
            segmented.segmented_sort,
            lambda t, _, offset: (t[0], t[0], _item(t), _item(t), offset, offset, _UP),
            _KEYS,
        ),
        NamedAlgorithm(
            copies.segmented_copy,
            lambda t, _, offset: (t[0], t[-1], *(offset or _OFFSET,) * 3),
            _IN_OUT,
        ),
        NamedAlgorithm(
            indexed.reduce_by_index,
            lambda t, op, offset: (t[0], offset or np.int32, t[-1], op, _init(t)),
            _IN_OUT,
            OpKind.PLUS,
        ),
        NamedAlgorithm(
            columns.inclusive_column_scan, lambda t, op, _: (t[0], t[-1], op), _IN_OUT, OpKind.PLUS
        ),
        NamedAlgorithm(
            columns.column_reduce, lambda t, op, _: (t[0], t[-1], op, _init(t)), _IN_OUT, OpKind.PLUS
        ),
        NamedAlgorithm(merges.merge, lambda t, op, _: (t[0], _item(t)) * 3 + (op,), _KEYS, OpKind.LESS),
        NamedAlgorithm(sets.set_union, _of_both, _KEYS, OpKind.LESS),
        NamedAlgorithm(sets.set_intersection, _of_first, _KEYS, OpKind.LESS),
        NamedAlgorithm(sets.set_difference, _of_first, _KEYS, OpKind.LESS),
        NamedAlgorithm(sets.set_symmetric_difference, _of_both, _KEYS, OpKind.LESS),
        NamedAlgorithm(sort.radix_sort, lambda t, *_: (t[0], t[0], _item(t), _item(t), _UP), _KEYS),
        NamedAlgorithm(sort.merge_sort, lambda t, op, _: (t[0], _item(t)) * 2 + (op,), _KEYS, OpKind.LESS),
        NamedAlgorithm(transform.unary_transform, lambda t, op, _: (t[0], t[-1], op), _IN_OUT, OpKind.NEGATE),
        NamedAlgorithm(
            transform.binary_transform,
            lambda t, op, _: (t[0], t[len(t) > 2], t[-1], op),
            _BOTH,
            OpKind.PLUS,
        ),
        NamedAlgorithm(
            unique.unique_by_key,
            lambda t, op, _: (t[0], _item(t)) * 2 + (_OFFSET, op),
            _KEYS,
            OpKind.EQUAL_TO,
        ),
        NamedAlgorithm(histogram.histogram_even, lambda t, *_: _histogram(t), ("samples", "bins")),
        NamedAlgorithm(
            histogram.histogram_range,
            lambda t, *_: (t[0], _item(t) or np.int32, 65, t[0], 1),
            ("samples", "bins"),
        ),
        NamedAlgorithm(search.lower_bound, lambda t, op, _: (t[0], t[0], _OFFSET, op), _ITEMS, OpKind.LESS),
        NamedAlgorithm(search.upper_bound, lambda t, op, _: (t[0], t[0], _OFFSET, op), _ITEMS, OpKind.LESS),
        NamedAlgorithm(find.find_if, lambda t, op, _: (t[0], _OFFSET, op), _ITEMS, OpKind.LOGICAL_NOT),
        NamedAlgorithm(
            partition.select, lambda t, op, _: (t[0], t[0], _OFFSET, op), _ITEMS, OpKind.LOGICAL_NOT
        ),
        NamedAlgorithm(
            partition.three_way_partition,
            lambda t, op, _: (t[0],) * 4 + (_OFFSET, op, op),
            _ITEMS,
            OpKind.LOGICAL_NOT,
        ),
    )
}
USUAL = ("float32", "int32", "int64", "float64")  # dtypes, in the order in which they are tuned
_WITH_ITEMS = ("int32", "int64")  # those of keys with items of the same
_BY_OFFSETS = ("segmented_reduce", "segmented_sort", "inclusive_segmented_scan")


def usual(cc: int) -> list[Specialisation]:
    """Return the specialisations of all algorithms for the usual dtypes: keys also with items of the same.

    All those of the first dtype come first.
    """
    asked = [
        (name, types, has_offsets)
        for dtype in USUAL
        for name, known in ALGORITHMS.items()
        for types in ([dtype], *[[dtype, dtype]] * (known.types == _KEYS and dtype in _WITH_ITEMS))
        for has_offsets in (False, *[True] * (name in _BY_OFFSETS))
    ]
    return [named(name, types, None, has_offsets, cc) for name, types, has_offsets in asked]


def named(algorithm: str, types: Sequence[str], op: str | None, has_offsets: bool, cc: int) -> Specialisation:
    """Return the specialisation that an algorithm and types on the command line ask for.

    Raises
    ------
    ValueError
        If there is no such algorithm, type or operator, or they do not go together; the message begins with
        the argument's name.
    """
    known = ALGORITHMS.get(algorithm)
    if known is None:
        raise ValueError(
            f"WHAT: expected a recorded list, a script (.py) or an algorithm ({', '.join(ALGORITHMS)}), got "
            f"{algorithm!r}"
        )
    if not 1 <= len(types) <= len(known.types):
        expected = " and ".join(known.types)
        raise ValueError(
            f"TYPE: expected the types of {expected} for {algorithm}, got {' '.join(types) or 'none'}"
        )
    dtypes = [_dtype(each) for each in types]
    operator = _operator(algorithm, known, op)
    if has_offsets and "segmented" not in algorithm:
        raise ValueError(f"--offsets: {algorithm} has no segments")
    try:
        arguments = known.arguments(dtypes, operator, _OFFSET if has_offsets else None)
        found = collected(lambda: known.factory(*arguments), cc)
    except (TypeError, ValueError) as error:
        raise ValueError(f"TYPE: {algorithm} of {' '.join(types)}: {error}") from None
    return found[0]


def _dtype(text: str) -> np.dtype[Any]:
    try:
        return np.dtype(text)
    except TypeError:
        raise ValueError(f"TYPE: expected a NumPy dtype, as in float32, got {text!r}") from None


def _operator(algorithm: str, known: NamedAlgorithm, name: str | None) -> OpKind | None:
    if name is None:
        return known.op
    if known.op is None:
        raise ValueError(f"--op: {algorithm} has no operator")
    try:
        return getattr(OpKind, name.upper())  # type: ignore[no-any-return]
    except AttributeError:
        kinds = ", ".join(each.name.lower() for each in OpKind)
        raise ValueError(f"--op: expected one of {kinds}, got {name!r}") from None


Left = list[tuple[str, str]]  # problems that cannot be tuned, and why


def tunable(specs: Iterable[Specialisation], card: Card) -> tuple[list[Specialisation], Left]:
    """Return the specialisations that can be tuned, each kind of problem once, and the rest."""
    found: dict[str, Specialisation] = {}
    left: dict[str, str] = {}
    for spec in specs:
        family = spec.family
        name = f"{spec.algorithm}({', '.join(structs.text(each.value) for each in spec.arguments)})"
        if spec.is_kernel:
            left[f"kernel {spec.operators[0][1].name}"] = "a kernel of your own has no policy"
        elif family is None or family.tunable is None:
            left[name] = "its kernels have no policy yet"
        elif not family.tunable.space(spec):
            left[name] = "kernels for these types have no policy"
        else:
            found.setdefault(digest(policy_parts(spec, card)), spec)
    return [*found.values()], [*left.items()]
