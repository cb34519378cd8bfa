"""Numbers that an operator reads: those that can be arguments of its code, and their bytes.

As an argument, a number has the type that numba gives the constant. Some values stay constants, because LLVM
has other code for them, which is quicker or rounds elsewhere: 0, 1, -1 and 2.0; and what is not finite. So do
integers that numba does not type as int64. What operators do with a number decides, too: see
`_compile.numbers`.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np

from .._base.data import dataclass
from .._base.errors import ArgumentValueError
from .._base.warnings import warn_once

if TYPE_CHECKING:
    from .bytecode import Chain
    from .frozen import FrozenFunction

T = TypeVar("T")


class NumberType(NamedTuple):
    """The type of a number that is an argument, and that of its bytes, which is widened to it.

    LLVM computes in float32 or int32 where it sees that a number has no more bits.
    """

    dtype: np.dtype[Any]
    stored: np.dtype[Any]

    @property
    def text(self) -> str:
        """Both, as in ``float64 from float32``."""
        return str(self.dtype) + (f" from {self.stored}" if self.stored != self.dtype else "")


@dataclass(frozen=True)
class Number:
    """A number that a function reads."""

    function: FrozenFunction  # that reads it
    kind: str  # "closure variable", "global", or "default" of a parameter
    read: Chain  # its name, or a module's and the attributes read from that
    label: str  # among the parts of the fingerprint
    value: Any
    encoding: bytes
    place: int = -1  # of the function among those that the guard's operator calls; -1: it is the operator


_OF_CLASS: Final[dict[type, np.dtype[Any]]] = {
    int: np.dtype(np.int64),
    float: np.dtype(np.float64),
    **{np.dtype(each).type: np.dtype(each) for each in "bBhHiIlLqQfd"},
}
CLASSES: Final = frozenset(_OF_CLASS)  # of numbers that may be arguments
_SINGLE, _SHORT = np.dtype(np.float32), np.dtype(np.int32)
_LEAST_NORMAL: Final = 2.0**-126  # of float32
_PACKERS: Final = {  # a word each
    np.dtype(f"{kind}{size}"): struct.Struct(f"<{code}{8 - size}x")
    for kind, codes in (("i", "bhiq"), ("u", "BHIQ"), ("f", "  fd"))
    for size, code in zip((1, 2, 4, 8), codes, strict=True)
    if code != " "
}


def type_of(value: Any) -> NumberType | None:
    """Return the type of a number as an argument; None if it stays a constant."""
    dtype = _OF_CLASS[type(value)]
    if value in (0, 1, -1):
        return None
    if dtype.kind == "f":
        if value == 2 or not math.isfinite(value):  # a * 2.0 is a + a
            return None
        if dtype.itemsize == 8 and abs(value) >= _LEAST_NORMAL and _is_single(value):
            return NumberType(dtype, _SINGLE)
    elif dtype.itemsize == 8 and dtype.kind == "i":
        if -(2**31) <= value < 2**31:
            return NumberType(dtype, _SHORT)
        if not -(2**63) < value < 2**63:
            return None
    return NumberType(dtype, dtype)


def _is_single(value: float) -> bool:
    """Whether float32 has a number."""
    try:
        return struct.unpack("f", struct.pack("f", value))[0] == value  # type: ignore[no-any-return]
    except OverflowError:
        return False


def is_power_of_two(value: Any) -> bool:
    """Whether LLVM multiplies where something is divided by a number."""
    return math.frexp(value)[0] in (0.5, -0.5)


def packed(value: Any, of: NumberType) -> bytes:
    """Return the bytes of a number in a state."""
    return _PACKERS[of.stored].pack(value)


# --- Choices ---------------------------------------------------------------------------------------------

Chosen = Mapping[str, Sequence[int]]
"""The indices of the numbers that are arguments, by the parameter that an operator is given as."""

_chosen: ContextVar[Chosen | None] = ContextVar("cupar_numbers", default=None)


def chosen() -> Chosen | None:
    """Return which numbers are arguments; None if that is decided by operators and their use.

    None of them is if ``CUPAR_NUMBERS`` is ``constant``.
    """
    found = _chosen.get()
    text = os.environ.get("CUPAR_NUMBERS", "").strip().lower() if found is None else ""
    if not text:
        return found
    if text != "constant":
        warn_once(
            ("CUPAR_NUMBERS", text), f"CUPAR_NUMBERS is {text!r} and should be 'constant'; cupar ignores it."
        )
        return None
    return {}


def choice(given: Any) -> Chosen:
    """Return the choice that users give to factories as `numbers`."""
    if not isinstance(given, str) or given != "constant":
        raise ArgumentValueError("numbers", f"expected 'constant' or None, got {given!r}")
    return {}


def choosing(choice: Chosen | None, function: Callable[..., T], *args: Any, **named: Any) -> T:
    """Call a function with a choice of the numbers that are arguments."""
    context = copy_context()
    context.run(_chosen.set, choice)
    return context.run(function, *args, **named)
