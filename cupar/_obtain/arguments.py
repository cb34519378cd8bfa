"""Describes the arguments of factories, and raises errors for invalid ones."""

from __future__ import annotations

import operator
from enum import Enum, IntEnum
from typing import Any, TypeVar

import numpy as np

from .. import structs
from .._arguments import initial
from .._base.data import dataclass
from .._base.errors import ArgumentTypeError
from .._ir import nodes
from .._ir.iterator import Iterator, over
from .._ir.nodes import Argument
from .._ir.operator import Operator
from .._ir.resolve import resolve
from ..operators import Op

E = TypeVar("E", bound=IntEnum)


def argument(name: str, array: Any, *, output: bool = False, may_iterate: bool = True) -> Argument:
    """Describe an array, an iterator (if it may be one), or a dtype that stands for an array.

    Raises
    ------
    TypeError, ValueError
        If it is anything else, or cannot be read, or (as an output) written.
    """
    if isinstance(array, Enum):
        raise ArgumentTypeError(
            name,
            f"expected a device array or a dtype, got {type(array).__name__}.{array.name}; if "
            "arguments are left out, those behind them are given by name",
        )
    node = over(name, array).node
    if not may_iterate and isinstance(array, Iterator):
        raise ArgumentTypeError(name, f"expected an array or a dtype, got {array!r}")
    if not (node.writable if output else node.readable):
        use = "write to" if output else "read"
        raise ArgumentTypeError(name, f"expected something to {use}, got {nodes.description(node)}")
    return Argument(name, node, node, output)


def integers(
    name: str, array: Any, *, smallest: int = 1, output: bool = False, may_iterate: bool = True
) -> Argument:
    """Describe an array or iterator of integers of some bytes at least; raise TypeError if it is not."""
    found = argument(name, array, output=output, may_iterate=may_iterate)
    if found.value.kind not in "iu" or found.value.itemsize < smallest:
        size = f" of at least {smallest} bytes" if smallest > 1 else ""
        raise ArgumentTypeError(name, f"expected integers{size}, got {found.value}")
    return found


def segment_offsets(start: Any, end: Any, *, may_iterate: bool = True) -> tuple[Argument, ...]:
    """Describe the offsets of segments, if there are any; raise TypeError if only half of them are."""
    given = {"start_offsets_in": start, "end_offsets_in": end}
    found = [
        integers(name, each, may_iterate=may_iterate) for name, each in given.items() if each is not None
    ]
    if len(found) == 1:
        name, other = ("start", "end") if start is None else ("end", "start")
        raise ArgumentTypeError(
            f"{name}_offsets_in", f"expected offsets as {other}_offsets_in has them, got None"
        )
    return tuple(found)


def same_dtype(
    name: str, array: Any, other: Argument, *, output: bool = False, may_iterate: bool = True
) -> Argument:
    """Describe an array that must have the dtype of another argument; raise TypeError if it has not."""
    found = argument(name, array, output=output, may_iterate=may_iterate)
    if type(found.node) is nodes.Discard:
        return discarding(name, other.value)
    if structs.layout(found.value) != structs.layout(other.value):
        wanted, got = structs.text(other.value), structs.text(found.value)
        raise ArgumentTypeError(name, f"expected {wanted}, the dtype of {other.name}, got {got}")
    return found


def paired(
    source_name: str,
    source: Any,
    target_name: str,
    target: Any,
    *,
    optional: bool = False,
    may_iterate: bool = False,
) -> tuple[Argument, ...]:
    """Describe an input and its output, which must agree: both there or, if optional, neither; of one dtype.

    Raises
    ------
    TypeError
        If they do not agree, or are not there.
    """
    if source is not None:
        given = argument(source_name, source, may_iterate=may_iterate)
    if (source is None) != (target is None):
        missing, there = (source_name, target_name) if source is None else (target_name, source_name)
        raise ArgumentTypeError(missing, f"expected a device array, since there is {there}, got None")
    if source is None:
        if optional:
            return ()
        raise ArgumentTypeError(source_name, "expected a device array or a dtype, got None")
    return given, same_dtype(target_name, target, given, output=True, may_iterate=False)


def converting(name: str, array: Any, other: Argument) -> Argument:
    """Describe an output that takes the items of another argument, converted to its own dtype on writing.

    Raises
    ------
    TypeError
        If items are not converted to that dtype silently.
    """
    found = argument(name, array, output=True)
    if type(found.node) is nodes.Discard:
        return discarding(name, other.value)
    if not structs.convertible(other.value, found.value):
        wanted, got = structs.text(other.value), structs.text(found.value)
        advice = found.advice or "a TransformOutputIterator converts as you say"
        raise ArgumentTypeError(
            name,
            f"expected {wanted}, the dtype of {other.name}, or one that it is converted to silently, "
            f"got {got}; {advice}",
        )
    return found.converted(other.value)


def discarding(name: str, value: np.dtype[Any]) -> Argument:
    """Describe an output that discards its items."""
    node = nodes.Discard(value)
    return Argument(name, node, node, output=True)


@dataclass(frozen=True)
class Accumulation:
    """Input, output and operator of a reduction or scan, and the kind of its initial value."""

    d_in: Argument
    d_out: Argument
    operator: Operator
    init: str | None  # "value": passed by the call; "device": in device memory; None: no initial value

    @property
    def accumulator(self) -> np.dtype[Any]:
        """The accumulator's dtype."""
        return self.operator.output


def accumulation(
    d_in: Any,
    d_out: Any,
    op: Op | None,
    h_init: Any,
    *,
    is_scan: bool = False,
    names: tuple[str, str] = ("d_in", "d_out"),
) -> Accumulation:
    """Determine the accumulator's type, and resolve the operator for it.

    A scan may have its initial value on the device, and CCCL has faster scans for some operators. `names` are
    those of the parameters that input and output are given as.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what reductions and scans take, or the types are not converted silently.
    """
    source, target = argument(names[0], d_in), argument(names[1], d_out, output=True)
    init, own = initial.described(h_init, source.value, is_scan=is_scan)
    accumulator = source.value if own is None else own
    if type(target.node) is nodes.Discard:
        target = discarding(names[1], accumulator)
    _check_conversions(source, accumulator, target, own is not None)
    operator = resolve(
        op,
        (accumulator, accumulator),
        accumulator,
        decided_by="h_init (and so the accumulator)",
        recognise=is_scan,
    )
    return Accumulation(source, target, operator, init)


def check_start(algorithm: str, h_init: Any, first: str) -> None:
    """Raise TypeError if an exclusive scan has no initial value; `first` says what that would be."""
    if h_init is None and algorithm.startswith("exclusive"):
        instead = algorithm.replace("exclusive", "inclusive")
        raise ArgumentTypeError(
            "h_init", f"an exclusive scan needs an initial value, {first}; {instead} can go without"
        )


def _check_conversions(
    source: Argument, accumulator: np.dtype[Any], target: Argument, is_given: bool
) -> None:
    """Raise TypeError if items would be converted from float to integer or from complex to real.

    The accumulator's dtype `is_given` by the initial value, or that of the input.
    """
    if not structs.convertible(source.value, accumulator):
        converted = source.name, source.value, "the accumulator", accumulator
        advice = f"h_init decides the accumulator: give one of {source.name}'s dtype"
    elif not structs.convertible(accumulator, target.value):
        converted = "the accumulator", accumulator, target.name, target.value
        advice = target.advice or "a TransformOutputIterator converts as you say"
        if is_given and structs.convertible(source.value, target.value):
            advice = f"h_init decides the accumulator: give one of {target.name}'s dtype"
    else:
        return
    given, of, taker, wanted = converted
    raise ArgumentTypeError(
        given, f"{structs.text(of)} is not converted to {structs.text(wanted)} of {taker} silently; {advice}"
    )


def in_order(commutative: Any) -> dict[str, Any]:
    """Return the option of reductions whose operator need not be commutative, if it need not."""
    if not isinstance(commutative, (bool, np.bool_)):
        raise ArgumentTypeError("commutative", f"expected True or False, got {commutative!r}")
    return {} if commutative else {"commutative": False}


def choice(name: str, kind: type[E], value: Any) -> E:
    """Return a member of an enumeration, given it or its value; otherwise raise TypeError.

    Bools are rejected: ``order=True`` would mean DESCENDING.
    """
    if isinstance(value, kind):
        return value
    try:
        if isinstance(value, (bool, np.bool_)):
            raise ValueError
        return kind(operator.index(value))
    except (TypeError, ValueError):
        members = ", ".join(f"{kind.__name__}.{each.name}" for each in kind)
        raise ArgumentTypeError(name, f"expected a {kind.__name__} ({members}), got {value!r}") from None
