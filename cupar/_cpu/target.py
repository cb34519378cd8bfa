"""The numba target for cupar's CPU code: the CPU, with the arithmetic of a GPU.

It is a target of its own, with contexts of its own (numba's "target extension"), so that functions that
others have numba compile are as they ever were. Beside what `_compile.arithmetic` overrides on GPUs, too:

- floats that no integer type holds are converted as PTX's `cvt` does: to the nearest number that it holds,
  and a NaN as below; LLVM leaves all of these undefined;
- ufuncs of integers divide by zero, and the least number by -1, as `//` and `%` do, and stop no process;
- what numba's own functions compute inside raises no ZeroDivisionError.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np

from .._compile import arithmetic, numba_settings, toolchain
from .._numba_cpu import (
    CPU,
    AOTCodeLibrary,
    Compiler,
    ConfigStack,
    CPUContext,
    CPUDispatcher,
    CPUTargetOptions,
    Flags,
    JITCPUCodegen,
    Linkage,
    Registry,
    TargetDescriptor,
    config,
    cpu_target,
    dispatcher_registry,
    global_compiler_lock,
    ir,
    jit_registry,
    target_override,
    target_registry,
    types,
    typing,
)

NAME = "cupar_cpu"

OPTIONS = {
    "boundscheck": False,
    "debug": False,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
    "no_cpython_wrapper": True,
    "nogil": True,
    "_nrt": False,  # what allocates is refused: object code is loaded without numba's runtime
}

_OVERRIDES = Registry(NAME)


class _Target(CPU):  # type: ignore[misc]
    """The CPU, as cupar compiles for it."""


target_registry[NAME] = _Target


class _Library(AOTCodeLibrary):  # type: ignore[misc]
    """Functions as LLVM's code, which nothing in this process calls.

    numba links what a function calls into its library, and optimises it there, and again within each that
    calls it. Here a library has its own functions until `optimize` links and optimises all at once.
    """

    def get_pointer_to_function(self, name: str) -> int:
        return 0

    def _optimize_functions(self, ll_module: Any) -> None:
        """Leave it until `optimize`."""
        ll_module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        """Postpone optimisation of called functions until `optimize`."""
        self._raise_if_finalized()
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        """Mark the functions as internal: they are dropped once they are inlined."""
        self._ensure_finalized()
        for each in self._final_module.functions:
            if not each.is_declaration and each.linkage == Linkage.external:
                each.linkage = "linkonce_odr"
        return self._final_module

    def linked(self) -> Any:
        """Return all that the functions call with them, as one module."""
        for library in self._called():
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._linking_libraries.clear()
        return self._final_module

    def optimize(self) -> None:
        """Link all that the functions call, and optimise it."""
        self.linked()
        super()._optimize_final_module()
        self._final_module.verify()
        self._verify_declare_only_symbols()

    def missing(self) -> list[str]:
        """Return the functions and variables that are called by name and not here."""
        module = self.linked()
        every = (*module.functions, *module.global_variables)
        return [each.name for each in every if each.is_declaration and not each.name.startswith("llvm.")]

    def _called(self) -> list[_Library]:
        """Return the libraries of all called functions, callers before callees."""
        found: dict[_Library, None] = dict.fromkeys(self._linking_libraries)
        pending = [*found]
        while pending:
            new = [each for each in pending.pop()._linking_libraries if each not in found]
            found.update(dict.fromkeys(new))
            pending += new
        return [each for each in found if each is not self]


class _Codegen(JITCPUCodegen):  # type: ignore[misc]
    """Makes code as numba does for the CPU that it runs on, but no machine code on the way."""

    _library_class = _Library

    def _get_host_cpu_name(self) -> str:
        return toolchain.host_cpu()[0]

    def _get_host_cpu_features(self) -> str:
        return toolchain.host_cpu()[1]

    def _pass_builder(self, **options: Any) -> Any:
        """Have LLVM find the lanes of sums, too, which numba leaves out by default."""
        return super()._pass_builder(**{"slp_vectorize": True, **options})

    def _add_module(self, module: Any) -> None:
        pass

    def set_env(self, env_name: str, env: Any) -> None:
        pass


class _Context(CPUContext):  # type: ignore[misc]
    """numba's context for lowering types and functions."""

    allow_dynamic_globals = False  # addresses of arrays that are in this process alone

    def init(self) -> None:
        self.is32bit = cpu_target.target_context.is32bit  # which sets LLVM up, and numba's runtime
        with global_compiler_lock, numba_settings.own(config):
            self._internal_codegen = _Codegen(NAME)

    def add_dynamic_addr(self, builder: Any, intaddr: int, info: str) -> Any:
        """Return what stands in code for something at an address of this process."""
        if info != _Dispatcher.__name__:  # the address of a called function is never read
            raise TypeError(f"it reads {info} by its address, which is another one in the next process")
        return ir.IntType(8).as_pointer()(None)

    @functools.cache  # noqa: B019  (there is one context)
    def get_abi_sizeof(self, ty: Any) -> int:
        """Return a type's size, of which numba has LLVM read a module each time."""
        return int(super().get_abi_sizeof(ty))

    def make_constant_array(self, builder: Any, typ: Any, ary: np.ndarray[Any, Any]) -> Any:
        """Return an array as a constant, in its order: numba would read others from where they are."""
        return super().make_constant_array(builder, typ, ary if typ.layout in "CF" else ary.copy("C"))

    def refresh(self) -> None:
        super().refresh()
        self.install_registry(_OVERRIDES)  # after numba's own

    def get_ufunc_info(self, ufunc: Any) -> dict[str, Any]:
        """Return what computes a ufunc's items, by their types."""
        return arithmetic.of_ufunc(super().get_ufunc_info(ufunc), _OF_UFUNCS)

    def _compile_subroutine_no_cache(
        self, builder: Any, impl: Any, sig: Any, locals: Any = None, flags: Any = None
    ) -> Any:
        if flags is None:
            flags, stack = _Flags(), ConfigStack()
            flags.error_model = OPTIONS["error_model"]
            flags.nrt = bool(stack) and stack.top().is_set("nrt") and stack.top().nrt
        return super()._compile_subroutine_no_cache(builder, impl, sig, locals or {}, flags)


class _Typing(typing.Context):  # type: ignore[misc]
    """numba's typing context, which remembers the result types of operations on numbers."""

    def init(self) -> None:
        self.known: dict[tuple[int, tuple[Any, ...]], tuple[Any, Any]] = {}
        super().init()

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        if getattr(getattr(func, "typing_key", None), "__module__", "") != "_operator" or not all(
            isinstance(each, _NUMBERS) for each in args
        ):
            return super().resolve_function_type(func, args, kws)
        key = id(func), tuple(args)
        found = self.known.get(key)
        if found is None:
            found = func, super().resolve_function_type(func, args, kws)
            if found[1] is not None:
                self.known[key] = found
        return found[1]


_NUMBERS = types.Number, types.Boolean


class _Descriptor(TargetDescriptor):  # type: ignore[misc]
    options = CPUTargetOptions

    def __init__(self) -> None:
        super().__init__(NAME)
        self._typing = _Typing()
        self._context = _Context(self._typing, NAME)

    @property
    def typing_context(self) -> Any:
        return self._typing

    @property
    def target_context(self) -> Any:
        return self._context


target = _Descriptor()


class _Flags(Flags):  # type: ignore[misc]
    """numba's compile flags, which are compared for each call in a function."""

    __slots__ = ()

    def values(self) -> dict[str, Any]:
        return {**_DEFAULTS, **self._values}


_DEFAULTS = Flags().values()


class _Short(Compiler):  # type: ignore[misc]
    """numba's passes but for those that do nothing to functions of cupar's own."""

    _LEFT_OUT: Final = frozenset(
        [
            "AnnotateTypes",
            "DumpParforDiagnostics",
            "FindLiterallyCalls",
            "InlineClosureLikes",
            "InlineInlinables",
            "InlineOverloads",
            "LiteralPropagationSubPipelinePass",
            "LiteralUnroll",
            "MakeFunctionToJitFunction",
            "NopythonRewrites",
            "RewriteDynamicRaises",
            "RewriteSemanticConstants",
            "WithLifting",
        ]
    )

    def define_pipelines(self) -> list[Any]:
        pipelines: list[Any] = super().define_pipelines()
        for each in pipelines:
            each.passes = [made for made in each.passes if made[0].__name__ not in self._LEFT_OUT]
            each.finalize()
        return pipelines


class _Dispatcher(CPUDispatcher):  # type: ignore[misc]
    targetdescr = target

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._compiler._customize_flags = _Flags

    def compile(self, sig: Any) -> Any:
        """Compile for some types; methods that numba compiles during lowering are for this target, too."""
        with target_override(NAME):
            return super().compile(sig)


def jitted(function: Any, **options: Any) -> Any:
    """Return a function that numba compiles when it is called by another, or asked to."""
    return _Dispatcher(function, {}, {"nopython": True, **OPTIONS, **options})


def own(function: Any, **options: Any) -> Any:
    """Do the same with a function of cupar's own, in fewer passes."""
    return _Dispatcher(function, {}, {"nopython": True, **OPTIONS, **options}, pipeline_class=_Short)


def _decorator(function: Any = None, **options: Any) -> Any:
    """Jit what numba's overloads return."""
    return functools.partial(jitted, **options) if function is None else jitted(function, **options)


dispatcher_registry[_Target] = _Dispatcher
jit_registry[_Target] = _decorator


# --- Overrides -------------------------------------------------------------------------------------------


def _to_integer(context: Any, builder: Any, source: Any, kind: Any, value: Any) -> Any:
    """Convert as PTX's `cvt.rzi` does, which has no integers of 8 bits: these are cut off ones of 16."""
    wide = ir.IntType(max(16, kind.bitwidth))
    name = f"llvm.fpto{'s' if kind.signed else 'u'}i.sat"
    convert = builder.module.declare_intrinsic(name, [wide, value.type], ir.FunctionType(wide, [value.type]))
    found = builder.call(convert, [value])  # which makes a NaN 0
    if source.bitwidth == 64 or kind.bitwidth == 64:
        is_nan = builder.fcmp_unordered("uno", value, value)
        found = builder.select(is_nan, wide(1 << (wide.width - 1)), found)
    return found if wide.width == kind.bitwidth else builder.trunc(found, ir.IntType(kind.bitwidth))


def _quick(emit: Any, result: Any) -> Any:
    """Return what divides integers of 64 bits without a division by 1, and by more than the dividend.

    That is so of most indices, such as those that wrap around. `result` gives it, of the builder, whether the
    dividend is the smaller one, and the dividend.
    """

    def divided(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = signature.return_type
        if kind.bitwidth < 64 or isinstance(values[1], ir.Constant):
            return emit(context, builder, signature, values)
        each = zip(values, signature.args, strict=True)
        a, b = [context.cast(builder, value, given, kind) for value, given in each]
        is_less = builder.icmp_signed("<", a, b) if kind.signed else builder.icmp_unsigned("<", a, b)
        if kind.signed:
            is_less = builder.and_(is_less, builder.icmp_signed(">=", a, a.type(0)))
        with builder.if_else(builder.or_(is_less, builder.icmp_unsigned("==", b, b.type(1)))) as (
            then,
            otherwise,
        ):
            with then:
                first = result(builder, is_less, a), builder.block
            with otherwise:
                second = emit(context, builder, signature, values), builder.block
        found = builder.phi(a.type)
        found.add_incoming(*first)
        found.add_incoming(*second)
        return found

    return divided


def _rounded(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    nearest = builder.module.declare_intrinsic("llvm.rint", [values[0].type])
    found = builder.call(nearest, values)
    return context.cast(builder, found, signature.args[0], signature.return_type)


def _renamed(context: Any, builder: Any, source: Any, kind: Any, value: Any) -> Any:
    """Convert a struct to one of the same layout whose fields have other names."""
    fields = [
        context.cast(builder, builder.extract_value(value, i), a, b)
        for i, (a, b) in enumerate(zip(source, kind, strict=True))
    ]
    return context.make_tuple(builder, kind, fields)


_OF_UFUNCS = arithmetic.of_ufuncs(types, typing.signature)

_QUICK = {
    arithmetic.modulo: _quick(
        arithmetic.modulo, lambda builder, is_less, a: builder.select(is_less, a, a.type(0))
    ),
    arithmetic.floor_divided: _quick(
        arithmetic.floor_divided, lambda builder, is_less, a: builder.select(is_less, a.type(0), a)
    ),
}

for _each in arithmetic.lowerings(types, typing.signature):
    _OVERRIDES.lower(_each.function, *_each.signature)(_QUICK.get(_each.emit, _each.emit))
_OVERRIDES.lower(round, types.Float)(_rounded)
_OVERRIDES.lower_cast(types.Float, types.Integer)(_to_integer)
_OVERRIDES.lower_cast(types.BaseNamedTuple, types.BaseNamedTuple)(_renamed)
