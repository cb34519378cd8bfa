"""The overloads of a kernel: what was asked for, by the types of its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._ir.parameters import Address, Array, Scalar, Type
from .overload import Overload
from .signatures import types_of

Types = tuple[Type, ...]


class Overloads(Mapping[Types, Overload]):
    """The overloads of a kernel by their types; a signature in any form finds them, too."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._found: dict[tuple[Types, int], Overload] = {}

    def __getitem__(self, signature: Any) -> Overload:
        types = types_of(signature, self._names)
        for (known, _), overload in reversed(self._found.items()):
            if known == types:
                return overload
        raise KeyError(signature)

    def __iter__(self) -> Iterator[Types]:
        return iter(dict.fromkeys(types for types, _ in self._found))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return "{" + ", ".join(f"({', '.join(map(str, each))}): {self[each]!r}" for each in self) + "}"

    def find(self, types: Types, cc: int) -> Overload | None:
        """Return the one for these very types and a compute capability."""
        return self._found.get((types, cc))

    def add(self, types: Types, cc: int, overload: Overload) -> None:
        """Add one."""
        self._found[types, cc] = overload

    def clear(self) -> None:
        """Forget them all."""
        self._found.clear()


class ByTypes(dict[Types, Any]):
    """What is known of each overload, by its types; a signature in any form finds it, too."""

    def __init__(self, names: Sequence[str], found: Mapping[Types, Any]) -> None:
        super().__init__(found)
        self._names = names

    def __missing__(self, signature: Any) -> Any:
        types = types_of(signature, self._names)
        if types not in self:
            raise KeyError(signature)
        return self[types]


def nearest(types: Types, declared: Sequence[Types]) -> Types | None:
    """Return which of the declared signatures takes arguments of some types, with the fewest conversions."""
    ranked = [(rank, each) for each in declared if (rank := _distance(types, each)) is not None]
    return min(ranked, key=lambda pair: pair[0])[1] if ranked else None


def _distance(types: Types, declared: Types) -> tuple[int, int] | None:
    """Return how many numbers are converted so that they may lose something, and how many things at all."""
    lossy = converted = 0
    for given, wanted in zip(types, declared, strict=True):
        if given == wanted:
            continue
        converted += 1
        if isinstance(given, Array) and isinstance(wanted, Array):
            # Of any layout is every array; what may be written to may be read.
            if (
                given.item != wanted.item
                or given.ndim != wanted.ndim
                or (wanted.mutable and not given.mutable)
            ):
                return None
            if wanted.layout not in ("A", given.layout) and not (given.ndim == 1 and given.layout != "A"):
                return None
        elif isinstance(given, Scalar) and isinstance(wanted, Scalar):
            one, other = given.item.dtype, wanted.item.dtype
            if (one.kind == "c" and other.kind != "c") or (one.kind in "mM") != (other.kind in "mM"):
                return None
            lossy += not _holds(one, other)
        elif isinstance(wanted, Address) and isinstance(given, Scalar) and given.item.dtype.kind in "iu":
            pass  # a number may be an address, as with numba.cuda
        else:
            return None
    return lossy, converted


def _holds(one: Any, other: Any) -> bool:
    return bool(np.can_cast(one, other, "safe"))
