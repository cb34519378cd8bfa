"""Features that only GPUs have, refused by name before anything is built."""

from __future__ import annotations

from .. import structs
from .._base.errors import ArgumentTypeError
from .._ir.operator import Operator
from .._ir.specialisation import Specialisation
from .schedules import PHASE_SPECS


def check(spec: Specialisation) -> None:
    """Raise TypeError if a specialisation is for GPUs alone."""
    if spec.algorithm not in PHASE_SPECS:
        raise TypeError(f"{spec.algorithm}: is not available on the CPU")
    if spec.links:
        raise ArgumentTypeError("link", "GPU code is not linked on the CPU; expected None")
    for name, op in spec.functions.items():
        _check_operator(name, op)


def _check_operator(name: str, op: Operator) -> None:
    if op.ltoirs:
        raise ArgumentTypeError(name, f"RawOp {op.name!r} is GPU code; on the CPU give a Python function")
    if op.externals or op.links:
        names = ", ".join(each.name for each in (*op.externals, *op.links))
        raise ArgumentTypeError(
            name, f"{op.described} calls {names}, which is GPU code; give a Python function"
        )
    for each in op.captures:
        if structs.has_half(each.dtype):
            captured = f"captures {each.name!r}, an array of {structs.text(each.dtype)}"
            raise ArgumentTypeError(name, f"{op.described} {captured}, which operators read on GPUs alone")
