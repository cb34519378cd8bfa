"""Plans in numba, which compiles them unchanged: their helpers, their facts, and their emitters."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import typeof
from numba.core import cgutils, types
from numba.core.imputils import lower_builtin, lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, Signature, infer_getattr
from numba.extending import intrinsic, models, overload, register_jitable, register_model

from .._kernels import family
from .._kernels.family import Plan
from .._launch.words import FIRST, STATUS
from . import view_types
from .arguments import CheckedCallable
from .launches import call_own, on_stack
from .native import I64, set_word, word_at

_known: set[Callable[..., Any]] = set()


def register(plan: Plan) -> None:
    """Let compiled code call a plan, and all that plans call."""
    for each in (plan, *family.helpers):
        if each not in _known:
            _known.add(each)
            register_jitable(error_model="numpy")(each)  # no divisor is ever 0
    view_types.refresh()


# --- Facts -------------------------------------------------------------------------------------------------


def words_of(facts: Any) -> list[int]:
    """Return the integers of facts, one after another."""
    return [each for part in facts for each in words_of(part)] if isinstance(facts, tuple) else [facts]


class FactsType(types.Type):  # type: ignore[misc]
    """Facts by name or by number: the value is their address, and each use loads from there."""

    def __init__(self, kind: Any) -> None:
        self.kind, self.items = kind, [*kind]
        cls = getattr(kind, "instance_class", tuple)
        super().__init__(f"cupar.facts({cls.__module__}.{kind})")

    def place(self, name: str) -> int:
        """Return the place of a fact."""
        return int(self.kind.fields.index(name))


@register_model(FactsType)
class _FactsModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: FactsType) -> None:
        super().__init__(manager, kind, I64)


@infer_getattr
class _FactsAttributes(AttributeTemplate):  # type: ignore[misc]
    key = FactsType

    def generic_resolve(self, facts: FactsType, name: str) -> Any:
        """Return the type of a fact that is read by name."""
        return _as_read(facts.items[facts.place(name)])


@lower_getattr_generic(FactsType)
def _by_name(context: Any, builder: Any, facts: FactsType, value: Any, name: str) -> Any:
    place = facts.place(name)
    before = I64(8 * sum(map(_size, facts.items[:place])))
    return _read(context, builder, builder.add(value, before), facts.items[place])


@intrinsic
def _by_number(typing: Any, facts: Any, place: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return word_at(builder, *values)

    return types.int64(facts, types.int64), code


@overload(operator.getitem, strict=False)
def _getitem(facts: Any, place: Any) -> Any:
    if isinstance(facts, FactsType):
        return lambda facts, place: _by_number(facts, place)  # noqa: PLW0108 - as numba wants it
    return None


def _as_read(kind: Any) -> Any:
    return FactsType(kind) if isinstance(kind, types.BaseTuple) else kind


def _size(kind: Any) -> int:
    return sum(map(_size, kind)) if isinstance(kind, types.BaseTuple) else 1


def _read(context: Any, builder: Any, address: Any, kind: Any) -> Any:
    return address if isinstance(kind, types.BaseTuple) else word_at(builder, address, 0)


def facts_reader(facts: Any) -> Any:
    """Return ``facts(table)``, which gives facts like these from a build's table.

    Plans unpack a tuple without names, so that is one.
    """
    kind = typeof(facts)
    is_tuple = isinstance(kind, types.BaseTuple) and not isinstance(kind, types.BaseNamedTuple)
    own = types.Tuple(tuple(map(_as_read, kind))) if is_tuple else _as_read(kind)

    @intrinsic
    def read(typing: Any, table: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            address = builder.add(values[0], I64(8 * FIRST))
            if not is_tuple:
                return _read(context, builder, address, kind)
            parts = []
            for each in kind:
                parts.append(_read(context, builder, address, each))
                address = builder.add(address, I64(8 * _size(each)))
            return context.make_tuple(builder, own, parts)

        return own(types.int64), code

    return read


# --- What plans emit shapes with ---------------------------------------------------------------------------


_MOST_NUMBERS = 64  # of a shape


class EmitType(CheckedCallable):
    """The type of the `emit` that a plan is given: it launches a build's shapes, or nothing.

    Both are of one type, so that numba compiles a plan once.
    """

    def __init__(self) -> None:
        super().__init__("cupar.emit")

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Signature:
        """Return the signature of a call."""
        return Signature(types.none, (types.int64, args[1]), self)


@register_model(EmitType)
class _Model(models.StructModel):  # type: ignore[misc]
    """The addresses of a build's table, of the part with its shapes, of a call's words and of its numbers.

    0 as that of the words: nothing is launched.
    """

    def __init__(self, manager: Any, kind: EmitType) -> None:
        names = ("table", "shapes", "call", "numbers")
        super().__init__(manager, kind, [(name, types.int64) for name in names])


@lower_builtin(EmitType, EmitType, types.VarArg(types.Any))
def _emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Launch a shape, unless a launch before it has failed."""
    kind, _, numbers = signature.args
    assert len(numbers) <= _MOST_NUMBERS
    emit = cgutils.create_struct_proxy(kind)(context, builder, values[0])
    with builder.if_then(builder.icmp_unsigned("!=", emit.call, I64(0))):
        for k, (value, each) in enumerate(
            zip(cgutils.unpack_tuple(builder, values[2]), numbers, strict=True)
        ):
            set_word(builder, emit.numbers, k, context.cast(builder, value, each, types.int64))
        call_own(builder, emit.table, "emit", emit.shapes, values[1], emit.call)
    return context.get_dummy_value()


@intrinsic
def nothing(typing: Any) -> Any:
    """Return an `emit` that launches nothing, to run a plan for the bytes that it returns."""

    def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return ir.Constant(context.get_value_type(signature.return_type), None)

    return EmitType()(), code


def emitter(facts: Any) -> Any:
    """Return ``emitter(table, address, stream, values)``, which makes an `emit` that launches shapes.

    The values of the call are addresses, of arrays or of bytes: it puts the words of the call on the stack.
    """
    kind, first = EmitType(), FIRST + len(words_of(facts))

    @intrinsic
    def emitter(typing: Any, table: Any, address: Any, stream: Any, values: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            table, address, stream, values = given
            words = [I64(0), address, stream, I64(0), *cgutils.unpack_tuple(builder, values)]
            made = cgutils.create_struct_proxy(kind)(context, builder)
            made.table, made.shapes = table, builder.add(table, I64(8 * first))
            made.call = on_stack(builder, words, _MOST_NUMBERS)
            made.numbers = builder.add(made.call, I64(8 * len(words)))
            return made._getvalue()

        return kind(types.int64, types.int64, types.int64, values), code

    return emitter


@intrinsic
def status_of(typing: Any, emit: Any) -> Any:
    """Return the status of the launches: 0, or that of one that failed, with its number in the upper half."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        call = cgutils.create_struct_proxy(emit)(context, builder, values[0]).call
        return word_at(builder, call, STATUS)

    return types.int64(emit), code
