"""Templates: an algorithm's code without what a build says, which numba compiles once in a process.

An algorithm is the same for all dtypes, operators and iterators. So it is compiled with symbols in place of
the functions of its arguments and operators, and with placeholders in place of the types of their values. A
build puts its types in, defines the symbols, and has LLVM optimise all of it at once: that takes a quarter
of what numba takes for the algorithm.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .._numba_cpu import intrinsic, ir, llvm, models, register_default, target_override, types
from .target import NAME, target
from .values import BYTES, written_of

_MARK = "cupar."  # what names of symbols begin with
_ALIGNMENT = re.compile(r", align \d+")


class Abstract(types.Type):  # type: ignore[misc]
    """The type of the values of a role, such as an argument's items, which have a dtype in a build."""

    def __init__(self, role: str) -> None:
        self.role = role
        super().__init__(name=f"<{role}>")


@functools.cache
def _placeholder(role: str) -> Any:
    """Return the type that stands in a template's code where a build has its own.

    It has an integer of a width that is in no other code, and the same in each process.
    """
    return ir.LiteralStructType([ir.IntType(70_000 + zlib.crc32(role.encode()) % 1_000_000)])


@register_default(Abstract)
class _AbstractModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Abstract) -> None:
        super().__init__(manager, kind, _placeholder(kind.role))


class Symbol(NamedTuple):
    """A function that is defined in a build, of arguments of some types.

    `label` is its name in code, `name` what a build knows it by.
    """

    label: str
    name: str
    result: Any
    takes: tuple[Any, ...]

    @property
    def roles(self) -> list[str]:
        """The roles of its arguments and its result."""
        return [each.role for each in (self.result, *self.takes) if isinstance(each, Abstract)]


_symbols: dict[str, Symbol] = {}  # by their labels


@functools.cache
def symbol(name: str, result: Any, arity: int) -> Any:
    """Return a numba function that a build defines, for the types it is called with."""

    def typed(*given: Any) -> Any:
        takes = tuple(map(types.unliteral, given))
        label = f"{_MARK}{name}({', '.join(map(str, takes))}) {result}"
        _symbols[label] = Symbol(label, name, result, takes)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            convention = context.call_conv
            kind = convention.get_function_type(result, takes)
            function = builder.module.globals.get(label) or ir.Function(builder.module, kind, label)
            status, found = convention.call_function(builder, function, result, takes, values)
            with builder.if_then(status.is_error, likely=False):
                convention.return_status_propagate(builder, status)
            return context.get_dummy_value() if result is types.void else found

        return result(*takes), generate

    signatures = (  # numba asks how many arguments there are
        lambda typing, a: typed(a),
        lambda typing, a, b: typed(a, b),
        lambda typing, a, b, c: typed(a, b, c),
    )
    return intrinsic(signatures[arity - 1])


class Template(NamedTuple):
    """LLVM's code of a function of the parameters of a call, with placeholders, and the symbols in it."""

    name: str
    code: str
    symbols: tuple[Symbol, ...]


def template_of(run: Any) -> Template:
    """Return the template of a numba function, which keeps it."""
    found: Template | None = getattr(run, "template", None)
    if found is None:
        found = run.template = _compiled(run)
    return found


def _compiled(run: Any) -> Template:
    run.compile((BYTES,))
    compiled = run.overloads[(BYTES,)]
    name = compiled.fndesc.llvm_func_name
    module = compiled.library.linked()
    for each in (*module.functions, *module.global_variables):
        if not each.is_declaration and each.name != name:
            each.linkage = "internal"  # as a build may have others of the same name
    symbols = tuple(_symbols[each.name] for each in module.functions if each.name.startswith(_MARK))
    return Template(name, _ALIGNMENT.sub("", str(module)), symbols)  # alignments are those of placeholders


class Filling:
    """What a build puts into a template.

    Parameters
    ----------
    type_of : callable
        Returns the numba type of a role's values.
    functions : dict
        For each name of a symbol, what returns its numba function.
    """

    def __init__(self, type_of: Callable[[str], Any], functions: dict[str, Callable[[], Any]]) -> None:
        self._type_of = functools.cache(type_of)
        self._functions = functions

    def add(self, template: Template, module: Any, library: Any) -> None:
        """Add to a library a template's code, and a module that calls it, with its symbols."""
        context = target.target_context
        with target_override(NAME), context.push_code_library(library):
            functions = [self._functions[each.name]() for each in template.symbols]
            target.typing_context.refresh()  # with what numba has registered for them
            context.refresh()
            for each, function in zip(template.symbols, functions, strict=True):
                self._define(each, function, module, library)
        library.add_ir_module(module)
        library.add_llvm_module(self._code(template))
        for name in (template.name, *(each.label for each in template.symbols)):
            library.get_function(name).linkage = "internal"  # it is dropped once it is inlined

    def _code(self, template: Template) -> Any:
        """Return the template's code with the build's types."""
        code = template.code
        for role in {role for each in template.symbols for role in each.roles}:
            width = _placeholder(role).elements[0].width
            code = code.replace(f"{{ i{width} }}", str(self._lowered(role)))
        return llvm.parse_assembly(code)

    def _define(self, symbol: Symbol, made: Any, module: Any, library: Any) -> None:
        context = target.target_context
        convention = context.call_conv
        kind = convention.get_function_type(symbol.result, symbol.takes)
        lowered = {_placeholder(role): self._lowered(role) for role in symbol.roles}
        first, *others = kind.args
        first = lowered.get(first.pointee, first.pointee).as_pointer()
        kind = ir.FunctionType(kind.return_type, [first, *(lowered.get(each, each) for each in others)])
        function = ir.Function(module, kind, symbol.label)
        function.attributes.add("alwaysinline")
        builder = ir.IRBuilder(function.append_basic_block())

        takes = tuple(map(self._kind, symbol.takes))
        values = convention.decode_arguments(builder, symbol.takes, function)
        written = written_of(made)
        if written is not None:
            found, kind = written.call(context, builder, values, takes), written.result
        else:
            found, kind = self._called(made, builder, values, takes, library)
        if symbol.result is types.void:
            found = context.get_dummy_value()
        else:
            found = context.cast(builder, found, kind, self._kind(symbol.result))
        convention.return_value(builder, context.get_return_value(builder, symbol.result, found))

    def _called(
        self, made: Any, builder: Any, values: Sequence[Any], takes: tuple[Any, ...], library: Any
    ) -> tuple[Any, Any]:
        """Return the result of a call of what numba compiles, and its type."""
        context, typing = target.target_context, target.typing_context
        callee = typing.resolve_value_type(made)
        signature = typing.resolve_function_type(callee, takes, {})
        emit = context.get_function(callee, signature)
        for each in getattr(emit, "libs", ()):
            library.add_linking_library(each)
        given = zip(values, takes, signature.args, strict=True)
        found = emit(builder, [context.cast(builder, value, a, b) for value, a, b in given])
        return found, signature.return_type

    def _kind(self, kind: Any) -> Any:
        """Return the type that a type is in the build."""
        return self._type_of(kind.role) if isinstance(kind, Abstract) else kind

    def _lowered(self, role: str) -> Any:
        """Return LLVM's type of a role's values."""
        return target.target_context.get_value_type(self._type_of(role))
