"""Python operators: numba compiles frozen copies of them to LTO-IR, under CCCL's calling convention.

Compilers get the copy that the fingerprint was taken of (see `_fingerprint`), never the user's own
functions: they may change meanwhile, or be compiled by another thread. numba's compiler lock is held all the
time, and no change to numba outlasts it.
"""

from __future__ import annotations

import math
import re
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import CellType, FunctionType, ModuleType, SimpleNamespace
from typing import Any, Final, TypeVar

import numpy as np

from .. import _numba, structs
from .._base.causes import cause
from .._base.device import CPU
from .._base.device import text as target
from .._base.errors import BuildError, of_parameter
from .._base.generated import define
from .._base.versions import package_folder
from .._external.declared import External
from .._external.kinds import is_cpp
from .._fingerprint import extensions
from .._fingerprint.frozen import (
    MISSING,
    FrozenFunction,
    FrozenJitted,
    FrozenModule,
    Instance,
    NamedTupleClass,
    StructClass,
)
from .._fingerprint.names import package
from .._fingerprint.refusals import Unfingerprintable
from .._fingerprint.unsupported import NO_STRINGS, line_of
from .._ir.operator import Operator, ResultError
from .._jobs.threads import collecting, off_main_thread
from .._numba import OPTIONS
from . import arithmetic, bfloat16, numba_errors, numba_settings, wrapper
from .cpp_calls import caller
from .numba_errors import NotCompiledError
from .numba_types import (
    array_loader,
    array_type,
    dtype_of,
    number_loader,
    number_type,
    parameter_type,
    struct_maker,
    value_type,
)
from .toolchain import compilers


class Thaw:
    """Turns one operator's frozen copy into functions that numba compiles.

    Each function becomes a device function, decorated by the user or not: numba compiles calls of jitted
    functions only, and that users decorate each helper of an operator is more than they would expect.
    """

    def __init__(self, has_lines: bool = False) -> None:
        self._made: dict[int, Any] = {}  # by the id of the copy, which the operator keeps alive
        self._options = {**OPTIONS, "lineinfo": has_lines}

    _value_type = staticmethod(value_type)
    _struct_maker = staticmethod(struct_maker)
    _compile = staticmethod(_numba.compile_device)

    def _jitted(self, function: FunctionType, options: dict[str, Any]) -> Any:
        from .._numba import cuda

        return cuda.jit(device=True, **{**self._options, **options})(function)

    def _real(self, name: _numba.Name) -> Any:
        """Return the object that a name of numba.cuda's stands for."""
        return name.real()

    def _refusal(self, value: Any) -> str | None:
        """Explain why an operator may not read a function that numba would replace by something else."""
        if value is str or value is repr:  # of a float, numba makes '<object type:float64>'
            return f"it calls {value.__name__}, and {NO_STRINGS}"
        return None

    def operator(self, op: Operator) -> Any:
        """Make a device function of an operator; captured arrays and numbers are its first arguments."""
        frozen = op.function
        has_signatures = isinstance(frozen, FrozenJitted) and "signatures" in frozen.options
        if has_signatures and (op.captures or op.numbers):
            raise NotCompiledError("it was given signatures, and reads arrays: drop the signatures")
        if has_signatures or not isinstance(frozen, (FrozenFunction, FrozenJitted)):
            frozen = _calling(frozen, len(op.inputs))
        return self.device_function(frozen)

    def device_function(self, frozen: FrozenFunction | FrozenJitted) -> Any:
        """Make a device function that numba has not seen yet."""
        if id(frozen) in self._made:
            return self._made[id(frozen)]
        body, given = (frozen.function, frozen.options) if isinstance(frozen, FrozenJitted) else (frozen, {})
        for name, each in body.globals.items():
            if (why := self._refusal(each)) is not None:
                raise NotCompiledError(why, body.code.co_filename, line_of(body.code, name))
        options = {name: given[name] for name in ("fastmath", "forceinline", "inline") if given.get(name)}
        names: dict[str, Any] = {"__name__": __name__}
        cells = tuple(CellType() for _ in body.cells)
        function = FunctionType(body.code, names, body.name, self.value(body.defaults), cells or None)
        function.__kwdefaults__ = self.value(body.keyword_defaults)
        made = self._made[id(frozen)] = self._jitted(function, options)
        made.numbers = body.numbers
        # Its globals are set afterwards, since they may include itself.
        names.update((name, self.value(each)) for name, each in body.globals.items())
        for cell, content in zip(cells, body.cells, strict=True):
            if content is not MISSING:
                cell.cell_contents = self.value(content)
        for text in given.get("signatures", ()):
            self._compile(made, text)
        made.disable_compile("signatures" in given)
        return made

    def value(self, value: Any) -> Any:
        """Turn a frozen value into one that numba reads."""
        if isinstance(value, (FrozenFunction, FrozenJitted)):
            return self.device_function(value)
        if isinstance(value, _numba.Name):
            return self._real(value)
        if isinstance(value, External):
            return _numba.declare(value.symbol, value.signature, value.abi, value.waits_for_grid)
        if is_cpp(value):
            return caller(value)
        if isinstance(value, StructClass):
            return self._struct_maker(value.dtype)
        if isinstance(value, Instance):
            if isinstance(value.cls, StructClass):
                self._value_type(value.cls.dtype)  # so that numba knows its fields
                made = structs.plain_class(value.cls.dtype)
            else:
                made = self.value(value.cls)
            return made(*map(self.value, value.fields))
        if isinstance(value, (NamedTupleClass, FrozenModule)):
            if id(value) not in self._made:
                make: Any = self._module if isinstance(value, FrozenModule) else self._named_tuple
                self._made[id(value)] = make(value)
            return self._made[id(value)]
        if value is math.gcd:  # which numba has for the CPU alone
            return np.gcd
        if type(value) in (tuple, list):
            return type(value)(map(self.value, value))
        if type(value) is dict:
            return {self.value(key): self.value(each) for key, each in value.items()}
        return value

    def _named_tuple(self, cls: NamedTupleClass) -> Any:
        made: Any = namedtuple(cls.name, cls.fields, rename=True)  # type: ignore[misc]
        made.__new__.__defaults__ = self.value(cls.defaults)
        return made

    def _module(self, frozen: FrozenModule) -> ModuleType:
        """Make a module of the attributes that are read."""
        attributes = {name: self.value(each) for name, each in frozen.attributes.items()}
        own: ModuleType = _numba.own_module(frozen.module)
        # numba knows its own modules by identity, and their attributes are its own, too.
        if package(own.__name__) in ("numba", "numba_cuda") and all(
            getattr(own, name, MISSING) is value for name, value in attributes.items()
        ):
            return own
        made = ModuleType(own.__name__)
        vars(made).update(attributes)
        return made


# --------------------------------------------------------------------------------------------------
# Compiling

T = TypeVar("T")
MOST_TRIES: Final = 10
RESTLESS: Final = "numba's registrations or settings change all the time, so its code cannot be told"
_target_cc: ContextVar[tuple[int, int] | None] = ContextVar("cupar_target_cc", default=None)


@contextmanager
def _compiling(cc: int) -> Iterator[Callable[[], bool]]:
    """Have numba.cuda compile for a compute capability, while no other thread compiles.

    Yields a function that returns whether numba still has cupar's settings.

    A device function that calls another one asks numba for the current device, only to learn its compute
    capability (`CUDADispatcher.compile_device`). Without a GPU that fails; with one it would build for
    the wrong card, and touch it. So within the block that question has another answer.

    What uses something that others have registered with numba raises `Unfingerprintable`.
    """
    from .._numba import config, cuda

    if config.ENABLE_CUDASIM:
        raise BuildError("numba.cuda is a simulator here, which compiles nothing: unset NUMBA_ENABLE_CUDASIM")
    from .._numba import dispatcher, global_compiler_lock

    located = package_folder("numba_cuda")
    if located is None or located.resolve() not in Path(cuda.__file__).resolve().parents:
        raise BuildError(
            f"numba.cuda was imported from {cuda.__file__}, but numba-cuda is found at {located}: sys.path "
            "changed, or another package is called 'numba_cuda'"
        )

    def get_current_device() -> Any:
        target = _target_cc.get()
        return ask_driver() if target is None else SimpleNamespace(compute_capability=target)

    with compilers(), global_compiler_lock:
        bfloat16.register()
    own, refusing = numba_settings.own(config), extensions.refuse_foreign()
    with compilers(), global_compiler_lock, own as holds, arithmetic.overridden(), refusing:
        token, ask_driver = _target_cc.set(divmod(cc, 10)), dispatcher.get_current_device
        dispatcher.get_current_device = get_current_device
        try:
            yield holds
        finally:
            dispatcher.get_current_device = ask_driver
            _target_cc.reset(token)


def _compiled(cc: int, work: Callable[[], T]) -> T:
    """Have numba compile; again, if others registered something with it meanwhile, or changed settings."""

    def attempt() -> T:
        with collecting():
            return tried()

    def tried() -> T:
        for _ in range(MOST_TRIES):
            with _compiling(cc) as holds:
                before = extensions.foreign()
                result = work()
                if holds() and extensions.foreign() == before:
                    return result
        raise BuildError(RESTLESS)

    return off_main_thread(attempt)


@contextmanager
def explained(op: Operator, cc: int) -> Iterator[None]:
    """Name the operator, and numba's reason, where the block cannot compile it."""
    advice = op.advised if op.parameter == "transform_op" else ""
    types = ", ".join(map(structs.text, op.inputs))
    try:
        with explained_as(op, op.described, types, cc, advice):
            yield
    except TypeError as error:
        raise of_parameter(op.parameter, error) from error.__cause__


@contextmanager
def explained_as(op: Operator, named: str, types: str, cc: int, advice: str = "") -> Iterator[None]:
    """Do what `explained` does for a function that is described, and its types, as text."""
    try:
        yield
    except ResultError as error:
        raise TypeError(str(error)) from None
    except BuildError:
        raise
    except Unfingerprintable as error:
        raise Unfingerprintable(f"{named}: {error}") from None
    except Exception as error:  # numba's passes may raise anything
        if isinstance(error, ImportError) and not numba_errors.is_of_the_operator(error):
            raise  # numba itself is missing, or something that it needs
        compiler = "numba" if cc == CPU else "numba.cuda"
        subject = f"{compiler} cannot compile {named} for ({types}) on {target(cc)}"
        text = numba_errors.message(subject, error, compiler, advice)
        raise TypeError(_with_externals(text, op)) from cause(error)


def _with_externals(text: str, op: Operator) -> str:
    """Return numba's message with what functions of elsewhere take."""
    for each in op.externals:
        takes = rf"{each.name} takes ({', '.join(each.arguments)}), not (\1)"
        text = re.sub(rf"numba\.cuda has no {re.escape(each.name)}\((.*)\)[^\n]*", takes, text)
    return text


def _typed(op: Operator) -> tuple[Any, Any]:
    """Compile an operator's function for its types; return it, and what numba has compiled."""
    from .._numba import typeinfer, types

    first = [array_type(capture.dtype, capture.ndim) for capture in op.captures]
    first += [number_type(each.dtype) for each in op.numbers]
    with arithmetic.typing(typeinfer, types):
        function = Thaw().operator(op)
        _, _, folded, _ = function.get_call_template([*first, *map(value_type, op.inputs)], {})
    return function, function.overloads[tuple(folded)]


def typed_code(op: Operator, read: Callable[[Any], T], cc: int) -> T:
    """Compile an operator's function for its types, and return what `read` makes of that."""
    return _compiled(cc, lambda: read(_typed(op)[1]))


def returned(result: Any, numba: Any = _numba) -> np.dtype[Any] | str:
    """Return the dtype of an operator's result, or the type as text if arrays cannot hold it.

    `numba` is as for `dtype_of`.
    """
    dtype = dtype_of(result, numba)
    return numba_errors.readable(str(result)) if dtype is None else dtype


def _calling(function: Any, arity: int) -> FrozenFunction:
    """Return a function that calls a built-in function or ufunc, which numba cannot jit itself."""
    call: Any = (lambda a: function(a)) if arity == 1 else (lambda a, b: function(a, b))  # noqa: PLW0108
    return FrozenFunction(call.__code__, "call", cells=[function])


def result_dtype(op: Operator, cc: int) -> np.dtype[Any]:
    """Return the dtype of an operator's result for its types, before conversion to its output.

    Raises
    ------
    TypeError
        If numba cannot compile it for its inputs, or arrays cannot hold the result.
    """

    def work() -> np.dtype[Any]:
        found = returned(_typed(op)[1].signature.return_type)
        if isinstance(found, str):
            op.check_result(found)
        assert not isinstance(found, str)
        return found

    with explained(op, cc):
        return _compiled(cc, work)


def compile_operator(op: Operator, symbol: str, cc: int) -> list[bytes]:
    """Compile a Python operator to a device function `symbol` for ``sm_<cc>``.

    CCCL calls ``void symbol(void* in..., void* out)``: each argument is a pointer to a value. An operator
    with captured arrays has a pointer to their addresses and shapes for its first argument.

    Returns
    -------
    list of bytes
        LTO-IR of the operator and of what numba has it call (arithmetic of float16 is in C++ there).

    Raises
    ------
    TypeError
        If numba cannot compile it for its types, or its result is not converted to the type needed.
    Unfingerprintable
        If it uses registrations with numba that are not numba's own.
    """
    with explained(op, cc):
        return _compiled(cc, lambda: _ltoirs(op, symbol, cc))


def _ltoirs(op: Operator, symbol: str, cc: int) -> list[bytes]:
    from .._numba import cuda

    function, signature, options = _wrapped(op, symbol, cc)
    codes, _ = cuda.compile_all(function, signature, output="ltoir", **options)
    return list(map(_ltoir, codes))


def operator_llvm(op: Operator, symbol: str, cc: int) -> str:
    """Return the LLVM IR of an operator; raises as `compile_operator` does."""

    def work() -> str:
        from .._numba import compiler

        function, signature, options = _wrapped(op, symbol, cc)
        library, _ = compiler._compile_pyfunc_with_fixup(function, signature, lto=True, **options)
        return str(library.get_llvm_str())

    with explained(op, cc):
        return _compiled(cc, work)


def _wrapped(op: Operator, symbol: str, cc: int) -> tuple[Any, Any, dict[str, Any]]:
    """Return the function of an operator that numba compiles, its signature, and options."""
    from .._numba import types

    function, overload = _typed(op)
    source, classes = wrapper.written(op)
    names, at = {"call": function}, 0
    for i, capture in enumerate(op.captures):
        names[f"array_{i}"] = array_loader(array_type(capture.dtype, capture.ndim), at)
        at += 1 + capture.ndim
    names.update((f"number_{i}", number_loader(each, at + i)) for i, each in enumerate(op.numbers))
    op.check_result(returned(overload.signature.return_type))
    names.update((f"struct_{i}", structs.plain_class(dtype)) for i, dtype in enumerate(classes))
    state = [types.CPointer(types.uint64)] * bool(op.captures or op.numbers)
    signature = types.void(*state, *map(parameter_type, (*op.inputs, op.output)))
    options = {"device": True, "abi": "c", "abi_info": {"abi_name": symbol}, "cc": divmod(cc, 10)}
    return define(f"operator {op.name}", "operator", source, names), signature, {**options, **OPTIONS}


def _ltoir(code: Any) -> bytes:
    """Return LTO-IR from one of the kinds of object that numba has for it."""
    kind = getattr(code, "kind", None)
    if kind not in (None, "ltoir"):
        raise BuildError(f"an operator calls code of kind {kind!r}; cupar can link LTO-IR alone")
    return bytes(getattr(code, "data", None) or getattr(code, "code", None) or code)
