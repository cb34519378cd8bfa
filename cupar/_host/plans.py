"""Plans in numba, which compiles them as they stand: what they call, their facts, and what they emit with."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import typeof
from numba.core import cgutils, types
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import Signature
from numba.extending import intrinsic, models, register_jitable, register_model

from .._kernels import family
from .._kernels.family import Plan
from . import view_types
from .launches import launched
from .layout import Layout
from .native import word_at
from .portable import digest

_I64 = ir.IntType(64)
_known: set[Callable[..., Any]] = set()


def register(plan: Plan) -> None:
    """Let compiled code call a plan, and all that plans call."""
    for each in (plan, *family.helpers):
        if each not in _known:
            _known.add(each)
            register_jitable(each)
    view_types.refresh()


# --- Facts -------------------------------------------------------------------------------------------------


def words_of(facts: Any) -> list[int]:
    """Return the integers of facts, one after another."""
    return [each for part in facts for each in words_of(part)] if isinstance(facts, tuple) else [facts]


def reader(facts: Any, first: int) -> Any:
    """Return ``facts(state)``, which reads facts like these from a build's block."""
    kind = typeof(facts)

    @intrinsic
    def read(typing: Any, state: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            places = iter(range(first, first + len(words_of(facts))))

            def made(kind: Any) -> Any:
                if isinstance(kind, types.BaseTuple):
                    return context.make_tuple(builder, kind, [made(each) for each in kind])
                return word_at(builder, values[0], next(places))

            return made(kind)

        return kind(types.int64), code

    return read


# --- What plans emit shapes with ---------------------------------------------------------------------------


class EmitType(types.Callable):  # type: ignore[misc]
    """What a plan emits with: it launches a build's shapes, or nothing if there is no layout."""

    def __init__(self, layout: Layout | None) -> None:
        self.layout = layout
        super().__init__(f"cupar.emit({layout and digest(layout)})")

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Signature:
        """Return the signature of a call."""
        names = ("shape", "numbers")
        parameters = [inspect.Parameter(each, inspect.Parameter.POSITIONAL_ONLY) for each in names]
        return Signature(types.none, (types.int64, args[1]), self, inspect.Signature(parameters))

    def get_call_signatures(self) -> tuple[tuple[()], bool]:
        """Return that there are as many as tuples of numbers."""
        return (), True

    def get_impl_key(self, signature: Any) -> Any:
        """Return where numba finds what compiles a call."""
        return EmitType


@register_model(EmitType)
class _Model(models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: EmitType) -> None:
        values = types.UniTuple(types.int64, 1 + len(kind.layout.values if kind.layout else ()))
        members = [("state", types.int64), ("address", types.int64), ("status", types.voidptr)]
        super().__init__(manager, kind, [*members, ("values", values)] if kind.layout else [])


@lower_builtin(EmitType, EmitType, types.VarArg(types.Any))
def _emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Launch a shape, unless a launch before it has failed."""
    kind, _, numbers = signature.args
    if kind.layout is not None:
        emit = cgutils.create_struct_proxy(kind)(context, builder, values[0])
        place = builder.bitcast(emit.status, _I64.as_pointer())
        given = [
            context.cast(builder, value, each, types.int64)
            for value, each in zip(cgutils.unpack_tuple(builder, values[2]), numbers, strict=True)
        ]
        of_call = cgutils.unpack_tuple(builder, emit.values)
        with builder.if_then(cgutils.is_null(builder, builder.load(place))):
            status = launched(builder, kind.layout, emit.state, emit.address, of_call, values[1], given)
            builder.store(status, place)
    return context.get_dummy_value()


def emitter(layout: Layout | None) -> Any:
    """Return ``emitter(state, address, values)``: it makes what launches shapes, with the values of a call.

    The values are the stream, and then those of the call: addresses, of arrays or of bytes.
    """
    kind = EmitType(layout)

    @intrinsic
    def emitter(typing: Any, state: Any, address: Any, values: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            made = cgutils.create_struct_proxy(kind)(context, builder)
            if layout is not None:
                made.state, made.address, made.values = given
                place = cgutils.alloca_once(builder, _I64)
                builder.store(_I64(0), place)
                made.status = builder.bitcast(place, cgutils.voidptr_t)
            return made._getvalue()

        return kind(types.int64, types.int64, values), code

    return emitter


@intrinsic
def status_of(typing: Any, emit: Any) -> Any:
    """Return the status of the launches: 0, or that of one that failed, with its place in the upper half."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        status = cgutils.create_struct_proxy(emit)(context, builder, values[0]).status
        return builder.load(builder.bitcast(status, _I64.as_pointer()))

    return types.int64(emit), code
