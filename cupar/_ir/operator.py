"""A resolved operator: its types, its code, and the state that each call passes to it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import structs
from .._base.data import dataclass, field, replace
from .._base.errors import ArgumentTypeError, ArgumentValueError
from .._device import arrays, streams
from .._device.arrays import Lend
from ..operators import OpKind

if TYPE_CHECKING:
    from .._external.declared import External
    from .._external.linkable import Linkable
    from .._fingerprint import walk
    from .._fingerprint.numbers import NumberType
    from .._fingerprint.varying import Argument
    from .cpp_function import CppFunction


class ResultError(TypeError):
    """An operator's result does not convert to the required type; users see a TypeError."""


@dataclass(frozen=True)
class Operator:
    """An operator for given types: one of CCCL's kinds, a Python function, or C++ and LTO-IR."""

    name: str = field(compare=False)  # for messages
    inputs: tuple[np.dtype[Any], ...]
    output: np.dtype[Any]  # a function's result is converted to it
    kind: OpKind | None  # if it is one of CCCL's own
    fingerprint: str  # the kind's name, or the SHA-256 of everything a function depends on, or of LTO-IR
    # If numba compiles it: its fingerprint, with the frozen copy that is compiled; and the user's object,
    # which may have changed since.
    source: walk.Fingerprint | None = field(default=None, compare=False)
    user: Any = field(default=None, compare=False, repr=False)
    # If it is C++: the definition of a function named `SYMBOL`, and the code that this calls.
    cpp: str | None = field(default=None, compare=False)
    ltoirs: tuple[bytes, ...] = field(default=(), compare=False, repr=False)
    captures: tuple[walk.Capture, ...] = ()  # device arrays that it reads or updates
    numbers: tuple[NumberType, ...] = ()  # those that are arguments, whose bytes are in its state
    arguments: tuple[int, ...] = field(default=(), compare=False)  # their indices among those that it reads
    # The state that each call passes to it: bytes, alignment, and a function that returns the current state.
    state_size: int = 0
    state_alignment: int = 1
    state: Callable[[], bytes] | None = field(default=None, compare=False)
    # For messages: its parameter, and the parameter that decides the output's type, if that may change.
    parameter: str = field(default="op", compare=False)
    decided_by: str = field(default="", compare=False)
    advice: str = field(default="", compare=False)  # for messages, if a type was inferred
    python: str = field(default="", compare=False)  # of a kind: its result in Python, for the CPU
    plain: Operator | None = field(default=None, compare=False)  # the function that was recognised as a kind

    @property
    def described(self) -> str:
        """Its name and the place of its definition, for messages."""
        from .._base.causes import named

        return f"operator {named(self.name, self.user)}"

    @property
    def advised(self) -> str:
        """Its advice as the end of a message."""
        return f"; {self.advice}" if self.advice else ""

    def of_output(self, taken: np.dtype[Any]) -> Operator:
        """Return a copy for an output iterator whose item type was inferred, with advice for messages."""
        advice = (
            f"the TransformOutputIterator of {self.name} takes {structs.text(taken)}, the dtype of "
            "`underlying`: for other items annotate the parameter of its function, or give value_type"
        )
        return replace(self, advice=advice)

    @property
    def function(self) -> Any:
        """What numba compiles, None of C++: the frozen copy, with `captures` and `numbers` as arguments."""
        return None if self.source is None else self.source.frozen

    @property
    def externals(self) -> tuple[External | CppFunction, ...]:
        """The functions it calls that are not written in Python."""
        return () if self.source is None else self.source.externals

    @property
    def links(self) -> tuple[Linkable, ...]:
        """The code linked with it, for external functions and for Python functions, without duplicates."""
        own = () if self.source is None else self.source.links
        return tuple(dict.fromkeys([*(code for each in self.externals for code in each.links), *own]))

    @property
    def signature(self) -> str:
        """The types as text, as in ``(int32, int32) -> int32``."""
        return f"({', '.join(map(structs.text, self.inputs))}) -> {structs.text(self.output)}"

    def part(self) -> list[Any]:
        """Describe it for the key of a template: its kind, its types and the size of its state."""
        part: list[Any] = ["function" if self.kind is None else self.kind.name]
        part += [structs.type_part(dtype) for dtype in (*self.inputs, self.output)]
        return [*part, [self.state_size, self.state_alignment]] if self.state_size else part

    def check_result(self, result: np.dtype[Any] | str) -> None:
        """Raise ResultError unless a result of this type may be converted to the output.

        A type that is no number or struct is given as text.
        """
        returned = result if isinstance(result, str) else structs.text(result)
        does = f"{self.described} for {self.signature} returns {returned}"
        if isinstance(result, str) or (result.names is None) != (self.output.names is None):
            expected = f"expected a {'number' if self.output.names is None else 'struct'}"
            forgets = returned.endswith("None")
            raise ResultError(f"{does}, {expected}{': a `return` is missing' if forgets else self.advised}")
        if not structs.returned_as(result, self.output):
            other = f", or let {self.decided_by} be {returned}" if self.decided_by else ""
            raise ResultError(
                f"{does}, which is not converted to {structs.text(self.output)} silently: convert it in the "
                f"operator{other}{self.advised}"
            )

    def without_user(self, *, with_code: bool = False) -> Operator:
        """Return a copy that does not keep the user's function, and so the arrays in its closure, alive.

        With `with_code` the code to compile stays.
        """
        if with_code:
            source = None if self.source is None else self.source.without_guard()
            return replace(self, source=source, plain=None, user=None, state=None)
        return replace(self, source=None, plain=None, user=None, cpp=None, ltoirs=(), state=None)


class FixedState(bytes):
    """The state of an operator that captures no arrays: its numbers, as they were when it was resolved.

    Attributes
    ----------
    arguments : tuple of Argument
        The numbers, for programs that read them anew.
    """

    arguments: tuple[Argument, ...] = ()

    def __call__(self) -> bytes:
        return self


class CapturedState:
    """The state of an operator that captures arrays: their current addresses and shapes, then its numbers.

    `lend` is called with the owner of their memory if they do not own it; see `arrays.address`.
    """

    def __init__(self, captures: Sequence[walk.Capture], function: Any, numbers: bytes = b"") -> None:
        self.captures, self.function, self._numbers = captures, function, numbers

    def __call__(self, lend: Lend | None = None) -> bytes:
        return b"".join([*[self._captured(each, lend) for each in self.captures], self._numbers])

    def arrays(self) -> list[Any]:
        """Return the arrays, for callers that must keep them alive."""
        return [capture.of(self.function) for capture in self.captures]

    def there(self) -> list[Any]:
        """Return the arrays, none if one is gone: a call says which."""
        try:
            return self.arrays()
        except (KeyError, ValueError):
            return []

    def _captured(self, capture: walk.Capture, lend: Lend | None) -> bytes:
        name = f"op: captured array {capture.name!r}"
        try:
            array = capture.of(self.function)
        except (KeyError, ValueError):
            raise ArgumentTypeError(
                name, "expected the device array that was there, got nothing: it is gone"
            ) from None
        address = arrays.address(name, array, capture.dtype, 0, capture.is_writable, lend=lend, c_order=True)
        shape = arrays.shape(array)
        if len(shape) != capture.ndim:
            raise ArgumentValueError(
                name, f"this algorithm was built for {capture.ndim} dimensions, got {len(shape)}"
            )
        return struct.pack(f"=Q{len(shape)}q", address, *shape)


streams.register(CapturedState, CapturedState.there)
