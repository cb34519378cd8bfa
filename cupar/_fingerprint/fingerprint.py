"""A fingerprint: a digest of an operator, the parts of that, and the frozen copy that is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .._base.data import dataclass, field, replace
from .._base.digests import sha256
from .bytecode import encode_without_constants
from .frozen import MISSING
from .guards import NO_GUARD, Guard
from .names import compilers_name, type_name
from .numbers import Number, type_of
from .values import ATOMS, encode

if TYPE_CHECKING:
    from .._external.linkable import Linkable


AN_ARGUMENT: Final = ", an argument"  # at the end of what parts say of numbers
_WITH_ARGUMENTS: Final = b"cupar operator with numbers 1"


@dataclass(frozen=True)
class Capture:
    """A device array that an operator reads or updates, and the variable that holds it."""

    name: str  # of the variable
    in_closure: bool  # otherwise it is a global
    dtype: np.dtype[Any]
    ndim: int
    is_writable: bool = False  # a host array; a device array's flag says nothing of its memory

    def of(self, function: FunctionType) -> object:
        """Return the array that a function has captured now."""
        if not self.in_closure:
            return function.__globals__[self.name]
        return (function.__closure__ or ())[function.__code__.co_freevars.index(self.name)].cell_contents


@dataclass(frozen=True)
class Fingerprint:
    """All properties of an operator that decide its compiled code."""

    # SHA-256 of all that the operator depends on, the same in every process and on every machine.
    digest: bytes
    # Each dependency with a short form of its value, to explain a cache miss:
    # ("global 'SCALE'", "float 3.0"), ("global 'helper'", "function 5ad2c0ffee12").
    parts: tuple[tuple[str, str], ...] = field(compare=False)
    captures: tuple[Capture, ...]
    # The compilers' input: a frozen copy of the operator and all that the digest covers, a `FrozenFunction`
    # or `FrozenJitted`; or one of the compilers' own functions.
    frozen: Any = field(compare=False, repr=False)
    guard: Guard = field(compare=False, repr=False)
    codes: tuple[tuple[str, CodeType], ...] = field(compare=False, repr=False)  # with where: " in 'helper'"
    # A construct, in it or in a function that it calls, that kernels do not support; empty without one.
    refused: str = field(default="", compare=False)
    # A recursion in it, which numba compiles only sometimes; empty without one.
    recursion: str = field(default="", compare=False)
    # The functions it calls that are not written in Python, without duplicates: `External` and `CppFunction`.
    externals: tuple[Any, ...] = field(default=(), compare=False, repr=False)
    links: tuple[Linkable, ...] = field(default=(), compare=False, repr=False)  # for functions in Python
    # The digest of all but the numbers that may be arguments, and these numbers.
    form: bytes = field(default=b"", compare=False, repr=False)
    numbers: tuple[Number, ...] = field(default=(), compare=False, repr=False)

    def without_guard(self) -> Fingerprint:
        """Return a copy that keeps no object of the user's alive, and cannot be checked any more."""
        return replace(self, guard=NO_GUARD)

    def with_arguments(self, numbers: Sequence[Number]) -> Fingerprint:
        """Return the fingerprint of the operator that has some of its numbers as arguments: their types."""
        types = {id(each): type_of(each.value) for each in numbers}
        encodings, texts = [], dict[str, str]()
        for each in self.numbers:
            found = types.get(id(each))
            encoding = each.encoding if found is None else encode(("argument", *[one.str for one in found]))
            encodings.append(encoding)
            texts[each.label] = short(each.value, encoding) if found is None else found.text + AN_ARGUMENT
        parts = {label: texts.pop(label, text) for label, text in self.parts}
        digest = sha256(_WITH_ARGUMENTS + self.form + b"".join(encodings)).digest()
        parts.update(texts)  # of defaults
        return replace(self, digest=digest, parts=(*parts.items(),), form=b"", numbers=())

    def reads(self) -> list[tuple[str, str]]:
        """Return `parts` with constants listed separately from the code, to show which of them changed.

        They are numbered in the order in which the code loads them: ``("constant 1", "int 2")``,
        ``("constant 2 in 'helper'", "float 0.5")``.
        """
        found = [part for part in self.parts if part[0] != "code" and not part[0].startswith("code in ")]
        for inside, code in self.codes:
            encoding, constants = encode_without_constants(code)
            found.append((f"code{inside}", short_hash(encoding)))
            for number, value in enumerate(constants, start=1):
                found.append((f"constant {number}{inside}", short(value, encode(value))))
        return found


def short_hash(encoding: bytes) -> str:
    """Return enough of a hash to tell encodings apart by eye."""
    return sha256(encoding).hexdigest()[:12]


def short(value: object, encoding: bytes) -> str:
    """Return a short form of a value: its type, and the value itself or else a hash."""
    name = compilers_name(value)
    if name is not None:
        return name
    if value is MISSING:
        return "missing"
    text = _text(value) if len(encoding) < 80 else None
    return f"{type_name(type(value))} {text or short_hash(encoding)}"


def _text(value: object) -> str | None:
    """Return a plain value as a person writes it, None for others."""
    if type(value) in ATOMS or (type(value) is tuple and all(type(item) in ATOMS for item in value)):
        return repr(value)
    return str(value) if isinstance(value, (np.number, np.bool_)) else None
