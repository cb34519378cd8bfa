"""Types of the user's kernels in numba, and the tables that compiled code launches them by.

A kernel's value is the address of its words in a context: a head (see `_launch.words`), and an entry for each
tuple of types that compiled code launches it with. Each kernel has a type of its own, since the
type decides the code.
"""

from __future__ import annotations

import inspect
import struct
from collections.abc import Mapping
from ctypes import addressof
from typing import Any
from weakref import WeakSet

import numpy as np

from .._base import fork
from .._base.causes import EXPECTED, cause
from .._base.digests import sha256
from .._device import driver
from .._ir.types import Array, Item, Member, Scalar, Tuple, Type
from .._jit.configuration import COOPERATIVE
from .._jit.overload import packed_arguments
from .._jit.site import captured
from .._launch.chain import KERNEL, KERNEL_NUMBERS, Packing
from .._launch.words import FIRST, LaunchRecord, as_words, head, of_shape, places_of
from .._numba_cpu import (
    AttributeTemplate,
    Signature,
    as_dtype,
    errors,
    infer_getattr,
    models,
    register_model,
    types,
)
from . import native
from .arguments import CheckedCallable
from .launches import functions, publish
from .portable import Portable, digest, interned
from .view_types import ViewType

Types = tuple[Type, ...]

WORDS = ("record", "threads", "static", "shared", "block")  # of each tuple of types
PLACES = {name: place for place, name in enumerate(WORDS, start=1)}  # in an entry
ENTRY = 1 + len(WORDS)
# Parameters of a launch other than arguments.
NUMBERS = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared", "stream")
_MOST = 256  # tuples of types of a kernel


class KernelTable:
    """A kernel's words in each context: a head, and an entry for each tuple of types of its launches.

    An entry begins with the number of its types (`number_of`), which compiled code looks for, and has `WORDS`
    behind it. A 0 follows the last entry.
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        # With the overloads that have entries, by number, to keep them and their records alive.
        self._words: dict[driver.Context, tuple[Any, dict[int, Any]]] = {}
        self._lock = fork.Lock()

    def address(self, launched: Mapping[int, Types]) -> int:
        """Return the address of the words for the current context, with an entry for each of some types."""
        context = driver.current_context()
        found = self._words.get(context)
        if found is None or len(found[1]) < len(launched):
            with self._lock:
                found = self._filled(context, launched)
        return int(found[0].ctypes.data)

    def _filled(self, context: driver.Context, launched: Mapping[int, Types]) -> tuple[Any, dict[int, Any]]:
        found = self._words.get(context)
        if found is None:
            words = np.zeros(FIRST + ENTRY * _MOST + 1, np.int64)
            words[:FIRST] = as_words(head(functions()))
            found = self._words[context] = words, {}
        words, overloads = found
        for number, given in [*launched.items()]:
            if number in overloads:
                continue
            made, kept = self.kernel.overload_of(given), list[Any]()
            own, at = made.loaded, FIRST + ENTRY * len(overloads)
            record = as_words(of_shape([_record(made)], kept))
            words[at + 1 : at + ENTRY] = (
                record.ctypes.data,
                own.attributes["max_threads_per_block"],
                own.attributes["shared_mem_per_block"],
                own.properties["shared_memory"],
                own.best_block(0),
            )
            publish(words[at : at + 1], number)
            overloads[number] = made, record, kept
        return found


def _record(made: Any) -> LaunchRecord:
    """Return the record of an overload's launch; the values of a call are the slots of its arguments."""
    code, names, arguments = packed_arguments(made.types)
    fields = tuple(
        (struct.calcsize(code[: 1 + k]), struct.calcsize(f"={each}"), each, f"v_{name}")
        for k, (each, name) in enumerate(zip(code[1:], names, strict=True))
    )
    packing = Packing(code, (), arguments.places, fields, arguments.constants)
    loaded = made.loaded
    ((launch, _, function, block),) = loaded.chains[KERNEL].launches
    attributes = addressof(COOPERATIVE) if loaded.is_cooperative else 0
    own = launch, packing, function.value or 0, block, places_of(names, KERNEL_NUMBERS[:7])
    return LaunchRecord(*own, attributes, 0, loaded.name, is_users=True)


def number_of(given: Types) -> int:
    """Return a number for a tuple of types: the same in all processes, and never 0."""
    return int(sha256(repr([each.part() for each in given]).encode()).hexdigest()[:15], 16) + 1


class KernelType(Portable):
    """Kernels that do the same, with parameters of the same names.

    Attributes
    ----------
    kernel : Kernel
        One of them.
    launched : dict
        The types that compiled code launches them with, by number; also code from numba's cache.
    tables : WeakSet
        Of all of them.
    compiled : dict
    """

    kernel: Any
    launched: dict[int, Types]
    tables: WeakSet[KernelTable]
    compiled: dict[Any, Any]

    def _kept(self) -> tuple[Any, tuple[Any, ...]]:
        return _of_name, (self.name, self.launched)

    def place(self, given: Types) -> tuple[int, Types]:
        """Return the number of the entry for arguments of some types, and the types that it is for."""
        found = self.kernel.overload_of(given)
        name = self.kernel.__name__
        if captured(found):
            raise errors.TypingError(
                f"kernel {name} has captured device arrays, which compiled host code cannot look up: "
                "give them as arguments"
            )
        number = number_of(found.types)
        if number not in self.launched and len(self.launched) == _MOST:
            raise errors.TypingError(
                f"kernel {name}: compiled host code launches it with {_MOST} tuples of types already, and "
                "more cannot be"
            )
        self.launched[number] = found.types
        for table in [*self.tables]:
            table.address(self.launched)
        return number, found.types


def _of_name(name: str, launched: dict[int, Types]) -> KernelType:
    found = interned(KernelType, name, launched={})
    found.launched.update(launched)
    return found


@infer_getattr
class _Methods(AttributeTemplate):  # type: ignore[misc]
    key = KernelType

    def resolve___call__(self, kind: KernelType) -> Any:
        """Raise TypingError: a kernel is called with a configuration, as a `LaunchType`."""
        name = kind.kernel.__name__
        raise errors.TypingError(f"{name} is a kernel: launch it as {name}[grid, block](...)")


class LaunchType(CheckedCallable):
    """The type of ``kernel[grid, block]``: a kernel with its configuration, called with arguments."""

    def __init__(self, kernel: KernelType) -> None:
        self.kernel = kernel
        super().__init__(f"launch of {kernel}")

    def __reduce__(self) -> Any:
        return LaunchType, (self.kernel,)

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Signature:
        """Return the signature of a launch with arguments of some types."""
        names = self.kernel.kernel.names
        given = dict(zip(names, args, strict=False))
        if len(args) > len(names) or given.keys() & kws.keys() or {*given, *kws} != {*names}:
            got = ", ".join([f"{len(args)} by position", *kws])
            raise errors.TypingError(
                f"{self.kernel.kernel.__name__}: takes {len(names)} arguments ({', '.join(names)}), got {got}"
            )
        every = [types.unliteral({**given, **kws}[name]) for name in names]
        kinds = tuple(kind_of(name, each) for name, each in zip(names, every, strict=True))
        try:
            self.kernel.place(kinds)
        except EXPECTED as error:  # of which the line in the kernel is enough: numba shows its own
            raise errors.TypingError("\n".join(str(error).splitlines()[:2])) from cause(error)
        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        return Signature(types.none, tuple(every), self, inspect.Signature(parameters))


def type_of(kernel: Any) -> KernelType:
    """Return the type of a kernel."""
    found: KernelType | None = vars(kernel).get("_host_type")
    if found is None:
        declared = [[each.part() for each in given] for given in kernel._declared]
        does = [kernel._operator().fingerprint, sorted(kernel.targetoptions.items(), key=str)]
        name = f"cupar.kernel({kernel.__name__}, {digest([kernel.names, declared, does])})"
        found = interned(KernelType, name, kernel=kernel, launched={}, tables=WeakSet(), compiled={})
        table = vars(kernel).setdefault("_host_table", KernelTable(kernel))
        found.tables.add(table)
        vars(kernel)["_host_type"] = found
    return found


def address_of_table(kernel: Any) -> int:
    """Return the address of a kernel's words in the current context."""
    launched = type_of(kernel).launched
    return vars(kernel)["_host_table"].address(launched)  # type: ignore[no-any-return]


native.register_word(KernelType, address_of_table, type_of)


@register_model(LaunchType)
class _LaunchModel(models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        numbers = types.UniTuple(types.int64, len(NUMBERS))
        super().__init__(manager, kind, [("table", types.int64), ("numbers", numbers)])


# --- Types of arguments ------------------------------------------------------------------------------------


def kind_of(name: str, given: Any) -> Type:
    """Return the type that a kernel is compiled for, given numba's type of an argument."""
    if isinstance(given, ViewType):
        return Array(Item.of(given.numpy_dtype), given.ndim, given.layout, given.writable)
    if isinstance(given, (types.Boolean, types.Integer, types.Float, types.Complex)):
        return Scalar(Item.of(as_dtype(given)))
    if isinstance(given, (types.EnumMember, types.IntEnumMember)):
        inner = kind_of(name, given.dtype)
        if isinstance(inner, Scalar):
            return Member(given.instance_class, inner.item)
    if isinstance(given, types.BaseTuple):
        items = tuple(kind_of(f"{name}[{k}]", types.unliteral(each)) for k, each in enumerate(given))
        cls = getattr(given, "instance_class", tuple)
        fields = tuple(getattr(cls, "_fields", ()))
        return Tuple(items, fields, cls.__name__ if fields else "")
    raise errors.TypingError(
        f"{name}: from compiled host code a kernel takes cupar.view(array), numbers, members of enums and "
        f"tuples of these, got {given}"
    )
