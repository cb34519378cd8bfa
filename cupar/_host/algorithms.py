"""Algorithm objects in numba: their types, and `run` as compiled code has it.

A type stands for all algorithms of a class that are called in the same way: what differs otherwise is in the
block of words (see `_launch.words`) that an object's value points to.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from llvmlite import ir
from numba.core import errors, types
from numba.core.imputils import lower_builtin, lower_constant
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import (
    NativeValue,
    intrinsic,
    models,
    overload_method,
    register_model,
    unbox,
)

from .._base.data import dataclass
from .._base.generated import define
from .._call.algorithm import Algorithm
from .._call.code import Loaded
from .._device import driver
from .._ir.specialisation import Specialisation
from .._kernels.family import Plan
from .._launch.words import block, of_chains
from . import calls, dump, iterators, launches, native, plans, view_types
from .errors import LaunchError
from .given import plain
from .portable import Portable, digest, interned


@dataclass(frozen=True)
class Prepared:
    """What compiled code needs of a build in one context.

    Attributes
    ----------
    plan : callable
    facts : tuple
    values : tuple of str
        Names of a call's values, in their order.
    kernels : tuple of str
        Those of all launches, by the numbers that errors have.
    words : numpy.ndarray
        The block; see `_launch.words`.
    kept : list
        What that points to.
    """

    plan: Plan
    facts: Any
    values: tuple[str, ...]
    kernels: tuple[str, ...]
    words: Any
    kept: list[Any]


def prepared(algorithm: Algorithm) -> Prepared:
    """Return what compiled code needs of an algorithm in the current context, its code loaded if need be.

    Raises
    ------
    TypeError
        If it is one that compiled code cannot run.
    """
    algorithm.load()
    loaded = algorithm._code.loaded(driver.current_context())
    found: Prepared | None = vars(loaded).get("_host")
    if found is None:
        found = vars(loaded)["_host"] = _prepare(loaded)
    return found


def _prepare(loaded: Loaded) -> Prepared:
    kept: list[Any] = []
    chains = [loaded.chains.get(name) for name in loaded.shape_names]
    found = [chain for chain in chains if chain]
    kernels = tuple(launch.kernel for chain in found for launch, *_ in chain._launches)
    words = block(launches.functions(), plans.words_of(loaded.facts), of_chains(chains, kept))
    return Prepared(loaded.plan, loaded.facts, tuple(found[0]._values.sizes), kernels, words, kept)


class AlgorithmType(Portable):
    """Algorithms of one class that compiled code calls in the same way.

    Attributes
    ----------
    spec : Specialisation
        That of one of them.
    prepared : Prepared
    build : Build
        Likewise.
    """

    algorithm: type[Algorithm]
    spec: Specialisation
    prepared: Prepared
    build: Any

    def _kept(self) -> tuple[Any, tuple[Any, ...]]:
        return _of_class, (self.algorithm, self.name)


def _of_class(algorithm: type[Algorithm], name: str) -> AlgorithmType:
    return interned(_class_of(algorithm), name)


def _identity(spec: Specialisation, prepared: Prepared) -> list[Any]:
    """Return all that the code depends on which is compiled for an algorithm."""
    accumulator = spec.operators[0][1].output if spec.option("init") is not None else None
    return [
        spec.algorithm,
        [
            (each.name, each.output, each.is_pointer, str(each.value), iterators.structure(each.given))
            for each in spec.arguments
        ],
        [(name, op.state_size) for name, op in spec.operators],
        [spec.option("init"), str(accumulator), spec.option("levels")],
        prepared.values,
        prepared.kernels,
        [prepared.plan.__module__, prepared.plan.__name__],
    ]


_classes: dict[type[Algorithm], type[AlgorithmType]] = {}


def type_of(algorithm: Algorithm) -> AlgorithmType:
    """Return the type of an algorithm; waits until its fastest code is there."""
    try:
        algorithm.ready(tier="fast")
    except Exception:  # then it goes on with what it has
        algorithm.ready()
    cls, spec = type(algorithm), algorithm._spec
    for name, op in spec.operators:
        if op.state_size:
            raise errors.TypingError(
                f"{name}: {op.name} has captured device arrays, which compiled host code cannot "
                f"look up: call {spec.algorithm} from Python"
            )
    known = prepared(algorithm)
    name = f"cupar.{cls.__name__}({digest(_identity(spec, known))})"
    return interned(_class_of(cls), name, spec=spec, prepared=known, build=algorithm.build)


def _class_of(cls: type[Algorithm]) -> type[AlgorithmType]:
    return _classes.get(cls) or _new_class(cls)


def _new_class(cls: type[Algorithm]) -> type[AlgorithmType]:
    """Teach numba a class of algorithms."""
    kind: type[AlgorithmType] = type(f"{cls.__name__}Type", (AlgorithmType,), {"algorithm": cls})
    _classes[cls] = kind
    register_model(kind)(_Model)
    unbox(kind)(_unbox)
    lower_constant(kind)(_constant)
    infer_getattr(type(f"{cls.__name__}Methods", (_Methods,), {"key": kind}))  # before numba's own
    for name in _METHODS:
        _teach_method(kind, name)
    lower_builtin(kind, kind, types.VarArg(types.Any))(_lower_call)
    view_types.refresh()
    return kind


class _Method(types.BoundFunction):  # type: ignore[misc]
    """A method whose arguments are checked by themselves first.

    Else numba shows what is wrong with them twice, among the candidates that it has.
    """

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        """Return the signature of a call."""
        kind = self.this
        method = getattr(kind.algorithm, self.typing_key[1])
        try:
            given = inspect.signature(method).bind(kind, *args, **kws)
        except TypeError as error:
            name = f"{kind.algorithm.__name__}.{method.__name__}"
            raise errors.TypingError(f"{name}({', '.join(calls.parameters_of(method))}): {error}") from None
        given.apply_defaults()
        types_given = {name: plain(each) for name, each in [*given.arguments.items()][1:]}
        calls.CompiledCall(kind.algorithm, kind.spec, types_given, kind.prepared)
        return super().get_call_type(context, args, kws)


register_model(_Method)(lambda manager, method: manager[method.this])  # as numba's own are: the object


class _Methods(AttributeTemplate):  # type: ignore[misc]
    """Finds methods of algorithms."""

    def generic_resolve(self, kind: AlgorithmType, name: str) -> Any:
        if name not in _METHODS:
            raise errors.TypingError(
                f"{kind.algorithm.__name__} has no {name} in compiled host code, which calls run, or the "
                "object itself"
            )
        for template in self.context._get_attribute_templates(kind):
            found = None if template is self else template.resolve(kind, name)
            if found is not None:
                return _Method(found.template, kind)
        return None


_METHODS = ("run", "__call__")


def _teach_method(kind: type[AlgorithmType], name: str) -> None:
    method = getattr(kind.algorithm, name)
    parameters = calls.parameters_of(method)
    given = ", ".join(each.partition("=")[0] for each in parameters)
    source = f"def called(self, {', '.join(parameters)}):\n    return resolve(self, {given})"
    called = define(f"{kind.__name__}.{name}", "called", source, {"resolve": partial(_resolve, method)})
    overload_method(kind, name)(called)


def _lower_call(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Compile a call of an object: that of its method ``__call__``."""
    method = context.typing_context.resolve_getattr(signature.args[0], "__call__")
    return context.get_function(method, signature)(builder, values)


class _Model(models.PrimitiveModel):  # type: ignore[misc]
    """The address of the block."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.IntType(64))


def address_of_block(algorithm: Algorithm) -> int:
    """Return the address of an algorithm's block in the current context."""
    return int(prepared(algorithm).words.ctypes.data)


def _unbox(kind: AlgorithmType, obj: Any, c: Any) -> NativeValue:
    return native.unboxed_word(address_of_block, obj, c)


def _constant(context: Any, builder: Any, kind: AlgorithmType, algorithm: Algorithm) -> Any:
    words = prepared(algorithm).words
    pointer = native.constant_address(context, builder, kind, words.ctypes.data, (words, algorithm))
    return builder.ptrtoint(pointer, context.get_value_type(types.int64))


# --- Calls -------------------------------------------------------------------------------------------------


def _resolve(method: Any, kind: AlgorithmType, *given: Any) -> Any:
    """Return a method for arguments of some types, as numba compiles it."""
    parameters = [*inspect.signature(method).parameters][1:]
    types_given = dict(zip(parameters, map(plain, given), strict=True))
    known = kind.prepared
    call = calls.CompiledCall(kind.algorithm, kind.spec, types_given, known)
    plans.register(known.plan)
    names = {
        "_plan": known.plan,
        "_facts": plans.reader(known.facts),
        "_nothing": plans.nothing,
        "_emitter": plans.emitter(known.facts),
        "_status_of": plans.status_of,
        "_block": _block,
        "_allocate": native.allocate,
        "_release": native.release,
        "_adopt": native.adopt_context,
        "_on_stack": native.on_stack,
        "_LaunchError": LaunchError,
        "_int": types.int64,
        **call.names,
    }
    dump.write(kind.build, ".py", lambda: call.text)
    return define(f"compiled call of {kind.spec.algorithm}", "call", call.text, names)


@intrinsic
def _block(typing: Any, algorithm: Any) -> Any:
    """Return the address of an algorithm's block."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return values[0]

    return types.int64(algorithm), code
