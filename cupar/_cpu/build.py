"""Makes a build for the CPU: numba compiles all of it to one object file, whose one function C can call."""

from __future__ import annotations

import pkgutil
from typing import Any

from .._base.causes import cause
from .._base.errors import BuildError
from .._compile import numba_errors
from .._ir.specialisation import Specialisation
from .._jobs.threads import collecting
from .._numba_cpu import PICKLE_BUF_IDX, PICKLE_BUFSZ_IDX, NumbaError, ir, types
from . import compiling
from .code import SYMBOL, packed
from .schedules import Part, has_code
from .target import target
from .templates import Filling, Template
from .values import BYTES


def build(spec: Specialisation) -> bytes:
    """Return the object code of a specialisation.

    Raises
    ------
    TypeError
        If numba cannot compile an operator, or its result is not converted to the type needed.
    Unfingerprintable
        If an operator uses registrations with numba that are not numba's own.
    """
    if not has_code(spec):
        return packed([], b"")
    with collecting():
        return _object(spec)


def _object(spec: Specialisation) -> bytes:
    code = bytes(_compiled(spec).emit_native_object())
    calls = compiling.called(code)
    stranger = compiling.stranger(calls)
    if stranger is not None:  # operators were looked at one by one
        raise BuildError(f"{spec.algorithm}: the CPU's code would call {stranger}, which is no arithmetic")
    return packed(calls, code)


def llvm(spec: Specialisation) -> dict[str, str]:
    """Return the optimised LLVM IR that the object code is made of, by `SYMBOL`; raise what `build` does."""
    return {} if not has_code(spec) else {SYMBOL: str(_compiled(spec).get_llvm_str())}


def _compiled(spec: Specialisation) -> Any:
    """Return the library that numba makes of a specialisation."""

    def work() -> Any:
        # By name, as algorithms are: a program that finds its builds must not import it.
        return _library(*pkgutil.resolve_name(f"{__package__}.kit:whole")(spec))

    try:
        return compiling.settled(spec.algorithm, work)
    except NumbaError as error:  # operators were compiled by themselves, and explained
        subject = f"{spec.algorithm}: numba cannot compile it for the CPU"
        raise BuildError(numba_errors.message(subject, error, "numba")) from cause(error)


def _library(template: Template, filling: Filling) -> Any:
    """Return a library of a filled template, and around it a function with C's calling convention.

    It takes the address of the parameters of a part, behind which those of others may follow. It returns 0,
    or if an operator raised what says which; see `code.CpuCode.fault`.
    """
    context = target.target_context
    module, word = ir.Module("cupar"), ir.IntType(64)
    around = ir.Function(module, ir.FunctionType(word, [word]), SYMBOL)
    (first,) = around.args
    names = "begin", "loop", "faulty", "then", "end"
    begin, loop, faulty, then, end = map(around.append_basic_block, names)
    builder = ir.IRBuilder(begin)
    words = builder.inttoptr(first, word.as_pointer())
    others, nbytes = (
        builder.load(builder.gep(words, [word(Part._fields.index(name))])) for name in ("others", "nbytes")
    )
    builder.branch(loop)
    builder.position_at_end(loop)
    left, at = builder.phi(word), builder.phi(word)
    signature = types.void, (BYTES,)
    kind = context.call_conv.get_function_type(*signature)
    function = ir.Function(module, kind, template.name)
    status, _ = context.call_conv.call_function(
        builder, function, *signature, [builder.inttoptr(at, ir.IntType(8).as_pointer())]
    )
    builder.cbranch(status.is_ok, then, faulty)
    builder.position_at_end(faulty)
    with builder.if_then(status.is_user_exc):
        described = builder.load(status.excinfoptr)
        text, size = (builder.extract_value(described, i) for i in (PICKLE_BUF_IDX, PICKLE_BUFSZ_IDX))
        builder.store(builder.ptrtoint(text, word), words)  # which are free by then
        builder.store(builder.sext(size, word), builder.gep(words, [word(1)]))
    builder.ret(builder.sext(status.code, word))
    builder.position_at_end(then)
    following = builder.sub(left, word(1)), builder.add(at, nbytes)
    for each, start, value in zip((left, at), (others, first), following, strict=True):
        each.add_incoming(start, begin)
        each.add_incoming(value, then)
    builder.cbranch(builder.icmp_signed(">", left, word(0)), loop, end)
    builder.position_at_end(end)
    builder.ret(word(0))
    library = context.codegen().create_library("cupar")
    filling.add(template, module, library)
    library.finalize()
    library.optimize()
    return library
