"""Types of the user's kernels in numba, and what compiled code reads of them.

A kernel's value is the address of its words in a context: the driver's (see `layout`), and some for each
tuple of types that compiled code launches it with. It has a type of its own, since that decides what is
compiled.
"""

from __future__ import annotations

import inspect
from ctypes import addressof
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import errors, types
from numba.core.imputils import lower_constant
from numba.core.typing.templates import Signature
from numba.extending import NativeValue, models, register_model, unbox
from numba.np.numpy_support import as_dtype

from .._base import fork
from .._device import driver
from .._ir.parameters import Array, Item, Member, Scalar, Tuple, Type
from .._jit.configuration import COOPERATIVE
from .._jit.launcher import captured
from . import native
from .layout import FIRST, words_of
from .view_types import ViewType

Types = tuple[Type, ...]

WORDS = ("function", "threads", "static", "shared", "attributes", "block")  # of each tuple of types
# What a launch has beside arguments.
NUMBERS = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared", "stream")
_MOST = 256  # tuples of types of a kernel
_I64 = ir.IntType(64)


class Table:
    """What compiled code reads of a kernel, in each context.

    Attributes
    ----------
    kernel : Kernel
    compiled : dict
        Functions that launch it, for types of arguments.
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.compiled: dict[Any, Any] = {}
        self._places: dict[Types, int] = {}
        self._words: dict[driver.Context, tuple[Any, list[Any]]] = {}  # and the overloads, to keep them
        self._lock = fork.Lock()

    def address(self) -> int:
        """Return the address of the words for the current context."""
        context = driver.current_context()
        found = self._words.get(context)
        if found is None or len(found[1]) < len(self._places):
            with self._lock:
                found = self._filled(context)
        return int(found[0].ctypes.data)

    def place(self, given: Types) -> tuple[int, Types]:
        """Return where the words for arguments of some types are, and the types that the kernel has there."""
        found = self.kernel.overload_of(given)
        if captured(found):
            name = self.kernel.__name__
            raise errors.TypingError(
                f"kernel {name} has captured device arrays, which compiled host code cannot look up: "
                "give them as arguments"
            )
        with self._lock:
            if found.types not in self._places and len(self._places) == _MOST:
                raise errors.TypingError(
                    f"kernel {self.kernel.__name__}: compiled host code launches it with {_MOST} tuples of "
                    "types already, and more cannot be"
                )
            place = self._places.setdefault(found.types, len(self._places))
            self._filled(driver.current_context())
        return FIRST + len(WORDS) * place, found.types

    def _filled(self, context: driver.Context) -> tuple[Any, list[Any]]:
        found = self._words.get(context)
        if found is None:
            words = np.zeros(FIRST + len(WORDS) * _MOST, np.int64)
            words[:FIRST] = words_of((), (), ())
            found = self._words[context] = words, []
        words, overloads = found
        for given in [*self._places][len(overloads) :]:
            made = self.kernel.overload_of(given)
            own, at = made.loaded, FIRST + len(WORDS) * len(overloads)
            words[at : at + len(WORDS)] = (
                own.function.value or 0,
                own.attributes["max_threads_per_block"],
                own.attributes["shared_mem_per_block"],
                own.device["shared_memory"],
                addressof(COOPERATIVE) if own.is_cooperative else 0,
                own.best_block(0),
            )
            overloads.append(made)
        return found


class KernelType(types.Type):  # type: ignore[misc]
    """One kernel."""

    def __init__(self, table: Table) -> None:
        self.table = table
        super().__init__(f"cupar.kernel({table.kernel.__name__}, {id(table):#x})")


class LaunchType(types.Callable):  # type: ignore[misc]
    """A kernel with its grid, blocks, stream and shared memory: what takes its arguments."""

    def __init__(self, kernel: KernelType) -> None:
        self.kernel = kernel
        super().__init__(f"launch of {kernel}")

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Signature:
        """Return the signature of a launch with arguments of some types."""
        names = self.kernel.table.kernel.names
        given = dict(zip(names, args, strict=False))
        if len(args) > len(names) or given.keys() & kws.keys() or {*given, *kws} != {*names}:
            got = ", ".join([f"{len(args)} by position", *kws])
            raise errors.TypingError(
                f"{self.kernel.table.kernel.__name__}: takes {len(names)} arguments ({', '.join(names)}), "
                f"got {got}"
            )
        every = [types.unliteral({**given, **kws}[name]) for name in names]
        kinds = tuple(kind_of(name, each) for name, each in zip(names, every, strict=True))
        try:
            self.kernel.table.place(kinds)
        except TypeError as error:
            raise errors.TypingError(str(error)) from error
        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        return Signature(types.none, tuple(every), self, inspect.Signature(parameters))

    def get_call_signatures(self) -> tuple[tuple[()], bool]:
        """Return that there are as many as types of arguments."""
        return (), True

    def get_impl_key(self, signature: Any) -> Any:
        """Return where numba finds what compiles a call."""
        return LaunchType


def type_of(kernel: Any) -> KernelType:
    """Return the type of a kernel."""
    found: KernelType | None = vars(kernel).get("_native")
    if found is None:
        found = vars(kernel).setdefault("_native", KernelType(Table(kernel)))
    return found


def address_of_table(kernel: Any) -> int:
    """Return the address of a kernel's words in the current context."""
    return type_of(kernel).table.address()


@register_model(KernelType)
class _KernelModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _I64)


@register_model(LaunchType)
class _LaunchModel(models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        numbers = types.UniTuple(types.int64, len(NUMBERS))
        super().__init__(manager, kind, [("table", types.int64), ("numbers", numbers)])


@unbox(KernelType)
def _unbox(kind: KernelType, obj: Any, c: Any) -> NativeValue:
    return native.unboxed_word(address_of_table, obj, c)


@lower_constant(KernelType)
def _constant(context: Any, builder: Any, kind: KernelType, kernel: Any) -> Any:
    pointer = native.constant_address(context, builder, kind, kind.table.address(), kind)
    return builder.ptrtoint(pointer, _I64)


# --- Types of arguments ------------------------------------------------------------------------------------


def kind_of(name: str, given: Any) -> Type:
    """Return what a kernel is compiled for of an argument's type."""
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
