"""The overloads of a kernel, by the types of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._base import device
from .._ir.types import Address, Array, Scalar, Type
from .overload import Overload
from .signatures import types_of

Types = tuple[Type, ...]
_TOLD = ("origin", "size", "key")  # of a build, in a table


class Overloads(Mapping[Types, Overload]):
    """The overloads of a kernel by their types; a signature in any form finds them, too."""

    def __init__(self, name: str, names: Sequence[str]) -> None:
        self.name: str = name
        self.names: Sequence[str] = names
        self._found: dict[tuple[Types, int], Overload] = {}

    def __getitem__(self, signature: Any) -> Overload:
        types = types_of(signature, self.names)
        for (known, _), overload in reversed(self._found.items()):
            if known == types:
                return overload
        raise NoOverloadError(self.name, types, self)

    def __iter__(self) -> Iterator[Types]:
        return iter(dict.fromkeys(types for types, _ in self._found))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{_shown(each)}: {self[each]!r}" for each in self) + "}"

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """Return columns and rows for notebooks: types and origin of each."""
        rows = []
        for each in self._found.values():
            _, arguments, state = each._shown()
            told = {"origin": state} if isinstance(state, str) else dict(state._fields())
            types = [text for _, text in arguments]
            rows.append([*types, device.text(each._spec.cc), *(told.get(name, "") for name in _TOLD)])
        return [*self.names, "for", *_TOLD], rows

    def find(self, types: Types, cc: int) -> Overload | None:
        """Return the overload for exactly these types and a compute capability."""
        return self._found.get((types, cc))

    def add(self, types: Types, cc: int, overload: Overload) -> None:
        """Add one."""
        self._found[types, cc] = overload

    def clear(self) -> None:
        """Forget them all."""
        self._found.clear()


class ByTypes(dict[Types, Any]):
    """A value for each overload, by its types; a signature in any form finds it, too."""

    def __init__(self, overloads: Overloads, read: Callable[[Overload], Any]) -> None:
        super().__init__({types: read(each) for types, each in overloads.items()})
        self._overloads = overloads

    def __missing__(self, signature: Any) -> Any:
        types = types_of(signature, self._overloads.names)
        if types not in self:
            raise NoOverloadError(self._overloads.name, types, self)
        return self[types]


class NoOverloadError(KeyError):
    """A kernel was not compiled for some types."""

    def __init__(self, name: str, types: Types, known: Iterable[Types]) -> None:
        compiled = ", ".join(map(_shown, known)) or "nothing"
        self._text = f"{name}: is not compiled for {_shown(types)}; it is for {compiled}: see compile"
        super().__init__(self._text)

    def __str__(self) -> str:  # a KeyError's is the repr of its argument
        return self._text

    def __reduce__(self) -> Any:
        return KeyError, self.args


def _shown(types: Types) -> str:
    return f"({', '.join(map(str, types))})"


def nearest(types: Types, declared: Sequence[Types]) -> Types | None:
    """Return the declared signature that takes arguments of some types with the fewest conversions."""
    ranked = [(rank, each) for each in declared if (rank := _distance(types, each)) is not None]
    return min(ranked, key=lambda pair: pair[0])[1] if ranked else None


def _distance(types: Types, declared: Types) -> tuple[int, int] | None:
    """Return the number of lossy conversions, and of conversions; None if one is impossible."""
    lossy = converted = 0
    for given, wanted in zip(types, declared, strict=True):
        if given == wanted:
            continue
        converted += 1
        if isinstance(given, Array) and isinstance(wanted, Array):
            # An array of any layout converts to "A", and a mutable one to a read-only one.
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
