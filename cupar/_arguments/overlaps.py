"""Arrays that a call may not be given twice: where it writes one while it reads it, or writes it twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._base.device import in_cpu_call
from .._base.errors import ArgumentValueError
from .._device import arrays
from .._ir import nodes
from .._ir.iterator import Iterator


def may_scatter(node: nodes.IteratorNode) -> bool:
    """Whether an output may write one array twice, or in another order than an input reads it."""
    return any(isinstance(each, (nodes.Permutation, nodes.Reverse, nodes.Zip)) for each in node.walk())


def differ(output: nodes.Argument, other: nodes.Argument) -> bool:
    """Whether an input goes through some array in another order than an output through one that it writes."""
    written = {slot.step for slot in output.given.layout if slot.kind == "items" and not slot.read_only}
    return any(written - {slot.step} for slot in other.given.layout if slot.kind == "items")


def check_disjoint(outputs: Sequence[str], **given: Any) -> None:
    """Raise ValueError if one of the outputs begins where another array does, and neither is empty.

    Calls ask when they have met an address twice.
    """
    on_cpu = in_cpu_call()
    met: dict[int, str] = {}
    for name, array in given.items():
        found = None if array is None or isinstance(array, Iterator) else arrays.read(name, array, on_cpu)
        if found is None or not found.size:
            continue
        other = met.setdefault(found.address, name)
        if other != name and (name in outputs or other in outputs):
            raise ArgumentValueError(
                name, f"expected an array of its own, got the one of {other}; copy it first"
            )


def check_scatter(name: str, output: Any, **inputs: Any) -> None:
    """Raise ValueError if an output iterator writes an array twice, or not as an input goes through it.

    Inputs are those that `differ`. Arrays are compared by identity, which is cheap. So a slice of an array is
    another one: users who know that places do not meet may give that.
    """
    if not isinstance(output, Iterator):
        return
    written: list[tuple[Any, int]] = []  # arrays, with their steps
    for leaf in output.leaves:
        if not leaf.is_array or leaf.slot.read_only:
            continue
        if any(array is leaf.given for array, _ in written):
            raise ArgumentValueError(
                name, f"{_shown(output)} writes to one array twice: items may meet; {_WAY_OUT}"
            )
        written.append((leaf.given, leaf.slot.step))
    for other, given in inputs.items():
        leaves = given.leaves if isinstance(given, Iterator) else ()
        read = [(leaf.given, leaf.slot.step) for leaf in leaves if leaf.is_array] or [(given, 1)]
        for array, step in read:
            if any(array is each and step != other_step for each, other_step in written):
                raise ArgumentValueError(
                    name,
                    f"{_shown(output)} writes to the array of {other} in another order than that is "
                    f"read in: items may be overwritten before they are read; {_WAY_OUT}",
                )


_WAY_OUT = "copy it first, or give a slice of it if they never are the same places"


def _shown(iterator: Iterator) -> str:
    return type(iterator).__name__
