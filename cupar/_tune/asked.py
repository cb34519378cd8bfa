"""What is to be tuned: of an algorithm and types, of a recorded list, or of a script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import (
    histogram,
    operators,
    partition,
    reduce,
    scan,
    search,
    segmented,
    sort,
    structs,
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
class Known:
    """An algorithm that can be named on the command line.

    Attributes
    ----------
    ask : callable
        Takes types, an operator and whether there are offsets, and asks the factory.
    types : tuple of str
        What each type is of.
    least : int
        How many there are at least.
    op : OpKind or None
        The operator where none is named; None: there is none.
    """

    ask: Callable[[Types, Any, bool], Any]
    types: tuple[str, ...]
    least: int = 1
    op: OpKind | None = None


def _sorted(factory: Any, t: Types, **more: Any) -> Any:
    value = t[1] if len(t) > 1 else None
    return factory(t[0], t[0], value, value, order=sort.SortOrder.ASCENDING, **more)


def _offsets(has_offsets: bool) -> dict[str, Any]:
    return {"start_offsets_in": _OFFSET, "end_offsets_in": _OFFSET} if has_offsets else {}


def _merge_sort(t: Types, op: Any) -> Any:
    item = t[1] if len(t) > 1 else None
    return sort.merge_sort(t[0], item, t[0], item, op)


def _unique(t: Types, op: Any) -> Any:
    item = t[1] if len(t) > 1 else None
    return unique.unique_by_key(t[0], item, t[0], item, _OFFSET, op)


def _histogram(t: Types) -> Any:
    low, high = (0.0, 1.0) if t[0].kind == "f" else (0, 64)
    return histogram.histogram_even(t[0], t[1] if len(t) > 1 else np.int32, 65, low, high, 1)


_IN_OUT, _KEYS = ("input", "output"), ("keys", "items")
ALGORITHMS: Mapping[str, Known] = {
    "reduce_into": Known(
        lambda t, op, _: reduce.reduce_into(t[0], t[-1], op, np.zeros(1, t[-1])), _IN_OUT, 1, OpKind.PLUS
    ),
    "inclusive_scan": Known(lambda t, op, _: scan.inclusive_scan(t[0], t[-1], op), _IN_OUT, 1, OpKind.PLUS),
    "exclusive_scan": Known(
        lambda t, op, _: scan.exclusive_scan(t[0], t[-1], op, np.zeros(1, t[-1])), _IN_OUT, 1, OpKind.PLUS
    ),
    "segmented_reduce": Known(
        lambda t, op, has_offsets: segmented.segmented_reduce(
            t[0], t[-1], op=op, h_init=np.zeros(1, t[-1]), **_offsets(has_offsets)
        ),
        _IN_OUT,
        1,
        OpKind.PLUS,
    ),
    "segmented_sort": Known(
        lambda t, op, has_offsets: _sorted(segmented.segmented_sort, t, **_offsets(has_offsets)), _KEYS
    ),
    "radix_sort": Known(lambda t, op, _: _sorted(sort.radix_sort, t), _KEYS),
    "merge_sort": Known(lambda t, op, _: _merge_sort(t, op), _KEYS, 1, OpKind.LESS),
    "unary_transform": Known(
        lambda t, op, _: transform.unary_transform(t[0], t[-1], op), _IN_OUT, 1, OpKind.NEGATE
    ),
    "binary_transform": Known(
        lambda t, op, _: transform.binary_transform(t[0], t[1 if len(t) > 2 else 0], t[-1], op),
        ("first input", "second input", "output"),
        1,
        OpKind.PLUS,
    ),
    "unique_by_key": Known(lambda t, op, _: _unique(t, op), _KEYS, 1, OpKind.EQUAL_TO),
    "histogram_even": Known(lambda t, op, _: _histogram(t), ("samples", "bins")),
    "lower_bound": Known(
        lambda t, op, _: search.lower_bound(t[0], t[0], _OFFSET, op), ("items",), 1, OpKind.LESS
    ),
    "upper_bound": Known(
        lambda t, op, _: search.upper_bound(t[0], t[0], _OFFSET, op), ("items",), 1, OpKind.LESS
    ),
    "select": Known(
        lambda t, op, _: partition.select(t[0], t[0], _OFFSET, op), ("items",), 1, OpKind.LOGICAL_NOT
    ),
}


def named(algorithm: str, types: Sequence[str], op: str | None, has_offsets: bool, cc: int) -> Specialisation:
    """Return what an algorithm and types on the command line ask for.

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
    if not known.least <= len(types) <= len(known.types):
        expected = " and ".join(known.types)
        raise ValueError(
            f"TYPE: expected the types of {expected} for {algorithm}, got {' '.join(types) or 'none'}"
        )
    dtypes = [_dtype(each) for each in types]
    operator = _operator(algorithm, known, op)
    if has_offsets and not algorithm.startswith("segmented"):
        raise ValueError(f"--offsets: {algorithm} has no segments")
    try:
        found = collected(lambda: known.ask(dtypes, operator, has_offsets), cc)
    except (TypeError, ValueError) as error:
        raise ValueError(f"TYPE: {algorithm} of {' '.join(types)}: {error}") from None
    return found[0]


def _dtype(text: str) -> np.dtype[Any]:
    try:
        return np.dtype(text)
    except TypeError:
        raise ValueError(f"TYPE: expected a NumPy dtype, as in float32, got {text!r}") from None


def _operator(algorithm: str, known: Known, name: str | None) -> OpKind | None:
    if name is None:
        return known.op
    if known.op is None:
        raise ValueError(f"--op: {algorithm} has no operator")
    try:
        return getattr(OpKind, name.upper())  # type: ignore[no-any-return]
    except AttributeError:
        kinds = ", ".join(each.name.lower() for each in OpKind)
        raise ValueError(f"--op: expected one of {kinds}, got {name!r}") from None


Left = list[tuple[str, str]]  # what cannot be tuned, with why


def tunable(specs: Iterable[Specialisation], card: Card) -> tuple[list[Specialisation], Left]:
    """Return what of some specialisations can be tuned, each kind of problem once, and what cannot."""
    found: dict[str, Specialisation] = {}
    left: dict[str, str] = {}
    for spec in specs:
        family = spec.kind._family
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
