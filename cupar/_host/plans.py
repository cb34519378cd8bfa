"""Plans in numba, which compiles them unchanged: their helpers, their facts, and their emitters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from .._kernels import family
from .._kernels.family import Plan
from .._launch.words import FIRST, PLACES, STATUS
from .._numba_cpu import (
    Signature,
    cgutils,
    errors,
    intrinsic,
    ir,
    lower_builtin,
    models,
    register_jitable,
    register_model,
    typeof,
    types,
)
from . import view_types
from .arguments import NO_CONTEXT, CheckedCallable
from .launches import call_own, on_stack
from .native import I64, adopted, called, set_word, word_at

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


def _read_facts(context: Any, builder: Any, kind: Any, words: Iterator[Any]) -> Any:
    """Return facts of a type, of integers one after another."""
    if not isinstance(kind, types.BaseTuple):
        return context.cast(builder, next(words), types.int64, kind)
    return context.make_tuple(builder, kind, [_read_facts(context, builder, each, words) for each in kind])


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
    if len(numbers) > _MOST_NUMBERS:  # the stack has no more words for them
        raise errors.LoweringError(f"a plan emits {len(numbers)} numbers of a shape; at most {_MOST_NUMBERS}")
    emit = cgutils.create_struct_proxy(kind)(context, builder, values[0])
    with builder.if_then(builder.icmp_unsigned("!=", emit.call, I64(0))):
        for k, (value, each) in enumerate(
            zip(cgutils.unpack_tuple(builder, values[2]), numbers, strict=True)
        ):
            set_word(builder, emit.numbers, k, context.cast(builder, value, each, types.int64))
        call_own(builder, emit.table, "emit", emit.shapes, values[1], emit.call)
    return context.get_dummy_value()


def _emitter(context: Any, builder: Any, facts: Any, table: Any, words: Any) -> Any:
    """Return an `emit` that launches shapes, and the address of the words of the call, put on the stack."""
    made = cgutils.create_struct_proxy(EmitType())(context, builder)
    made.table = table
    made.shapes = builder.add(table, I64(8 * (FIRST + len(words_of(facts)))))
    made.call = on_stack(builder, words, _MOST_NUMBERS)
    made.numbers = builder.add(made.call, I64(8 * len(words)))
    return made._getvalue(), made.call


# --- Calls of plans ----------------------------------------------------------------------------------------


class Phases:
    """What calls do with a plan, as functions for compiled code.

    They are written in LLVM's code, of which numba makes a line in a tenth of the time that it takes for one
    of Python.

    Attributes
    ----------
    needed : function
        ``needed(table, problem)`` runs the plan, which launches nothing; it returns the bytes that it needs.
    launched : function
        ``launched(table, problem, stream, address, values)`` runs it with temporary storage at an address,
        and launches each shape. The values of the call are addresses, of arrays or of bytes. It returns 0, or
        the status of a launch that failed, with its number in the upper half.
    executed : function
        ``executed(table, problem, stream, needed, values)`` does it with storage from the pool. After the
        numbers of launches come those of the two functions that allocate and free it.
    """

    def __init__(self, plan: Plan, facts: Any, launches: int) -> None:
        register(plan)
        self._plan, self._facts, self._launches = plan, facts, launches
        self.needed = self._phase(self._write_needed, 1)
        self.launched = self._phase(self._write_launches, 4)
        self.executed = self._phase(self._write_call, 4)

    def _phase(self, write: Callable[..., Any], number: int) -> Any:
        """Return a function of a table and more arguments, the first of which is a problem."""

        def typed(typing: Any, table: Any, given: Any) -> Any:
            takes = typeof(self._facts), given[0], EmitType()
            plan = typing.resolve_value_type(self._plan)
            returned = typing.resolve_function_type(plan, takes, {})

            def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
                def run(emit: Any) -> Any:
                    words = (word_at(builder, values[0], FIRST + k) for k in count())
                    facts = _read_facts(context, builder, takes[0], words)
                    nbytes = context.get_function(plan, returned)(builder, [facts, values[1], emit])
                    return context.cast(builder, nbytes, returned.return_type, types.int64)

                return write(context, builder, run, values[0], *values[2:])

            return types.int64(types.int64, *given), code

        if number == 1:
            return intrinsic(lambda typing, table, problem: typed(typing, table, (problem,)))
        return intrinsic(
            lambda typing, table, problem, stream, storage, values: typed(
                typing, table, (problem, stream, storage, values)
            )
        )

    def _write_needed(self, context: Any, builder: Any, run: Any, table: Any) -> Any:
        return run(ir.Constant(context.get_value_type(EmitType()), None))

    def _write_launches(
        self, context: Any, builder: Any, run: Any, table: Any, stream: Any, address: Any, values: Any
    ) -> Any:
        words = [I64(0), address, stream, I64(0), *cgutils.unpack_tuple(builder, values)]
        launch, adopt, end = map(builder.append_basic_block, ("launch", "adopt", "end"))
        builder.branch(launch)
        builder.position_at_end(launch)
        emit, call = _emitter(context, builder, self._facts, table, words)
        run(emit)
        status = word_at(builder, call, STATUS)
        has_none = builder.icmp_unsigned("==", builder.and_(status, I64(0xFFFFFFFF)), I64(NO_CONTEXT))
        builder.cbranch(has_none, adopt, end)
        # A thread of the user's may have no context: the build's is made current, and they are tried again.
        builder.position_at_end(adopt)
        builder.cbranch(adopted(builder, table), launch, end)
        builder.position_at_end(end)
        return status

    def _write_call(
        self, context: Any, builder: Any, run: Any, table: Any, stream: Any, needed: Any, values: Any
    ) -> Any:
        is_needed = builder.icmp_signed(">", needed, I64(0))
        address = cgutils.alloca_once(builder, I64, zfill=True)
        found = cgutils.alloca_once(builder, I64, zfill=True)

        def store(number: int, status: Any) -> None:
            """Store a status of the driver's, with the number of a function."""
            failed = builder.icmp_unsigned("!=", status, status.type(0))
            told = builder.or_(builder.zext(status, I64), I64(number << 32))
            builder.store(builder.select(failed, told, I64(0)), found)

        def allocate() -> Any:
            pool = word_at(builder, table, PLACES["pool"])
            return called(builder, table, "cuMemAllocFromPoolAsync", address, needed, pool, stream)

        with builder.if_then(is_needed):
            status = allocate()
            store(self._launches, status)
            has_none = builder.icmp_unsigned("==", status, status.type(NO_CONTEXT))
            with builder.if_then(has_none, likely=False), builder.if_then(adopted(builder, table)):
                store(self._launches, allocate())
        with builder.if_then(builder.icmp_unsigned("==", builder.load(found), I64(0))):
            place = builder.load(address)
            status = self._write_launches(context, builder, run, table, stream, place, values)
            builder.store(status, found)
            with builder.if_then(is_needed):
                freed = called(builder, table, "cuMemFreeAsync", place, stream)
                with builder.if_then(builder.icmp_unsigned("==", status, I64(0))):
                    store(self._launches + 1, freed)
        return builder.load(found)
