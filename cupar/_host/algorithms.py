"""Algorithm objects in numba: their types, and `run` as compiled code has it.

A type stands for all algorithms of a class that are called in the same way: what differs otherwise is in the
table of words (see `_launch.words`) that an object's value points to.

numba asks an object for its type by the attribute `_numba_type_`, which ends in `type_of` here. When a call
of `run` is typed, `calls.CompiledCall` writes its source, numba compiles that, and the call becomes a call
of it.
"""

from __future__ import annotations

import inspect
from typing import Any

from .._base.data import dataclass
from .._base.generated import define
from .._call.algorithm import Algorithm
from .._device import driver
from .._ir.specialisation import Specialisation
from .._kernels.family import Plan
from .._launch.code import Loaded
from .._launch.words import of_chains, table_of
from .._numba_cpu import (
    AttributeTemplate,
    Signature,
    errors,
    infer_getattr,
    intrinsic,
    lower_builtin,
    lower_getattr,
    njit,
    register_model,
    types,
)
from . import calls, dump, iterators, launches, native, plans, view_types
from .arguments import CALLED, CheckedCallable, call_compiled, plain
from .errors import LaunchError
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
        The table; see `_launch.words`.
    kept : list
        Objects whose addresses are in it.
    """

    plan: Plan
    facts: Any
    values: tuple[str, ...]
    kernels: tuple[str, ...]
    words: Any
    kept: list[Any]


def prepared(algorithm: Algorithm) -> Prepared:
    """Return what compiled code needs of an algorithm in the current context; loads its code if necessary.

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
    kernels = tuple(launch.kernel for chain in found for launch, *_ in chain.launches)
    words = table_of(launches.functions(), plans.words_of(loaded.facts), of_chains(chains, kept))
    return Prepared(loaded.plan, loaded.facts, tuple(found[0].values.layouts), kernels, words, kept)


class AlgorithmType(CheckedCallable, Portable):
    """Algorithms that compiled code calls in the same way; called, one runs with temporary storage.

    Attributes
    ----------
    algorithm : type
        The class.
    spec : Specialisation
        That of one of them.
    prepared : Prepared
    build : Build
        Likewise.
    compiled : dict
        Functions, by their method and the types of their arguments; and that which makes problems.
    states : dict
        The words of numbers that operators read, by the operators' names.
    """

    algorithm: type[Algorithm]
    spec: Specialisation
    prepared: Prepared
    build: Any
    compiled: dict[Any, Any]
    states: dict[str, tuple[int, ...]]

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Signature:
        """Return the signature of a call."""
        return _signature(self, self, "__call__", args, kws)


class RunType(CheckedCallable):
    """Their method `run`."""

    def __init__(self, owner: AlgorithmType) -> None:
        self.owner = owner
        super().__init__(f"run of {owner}")

    def __reduce__(self) -> Any:
        return RunType, (self.owner,)

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Signature:
        """Return the signature of a call."""
        return _signature(self, self.owner, "run", args, kws)


def type_of(algorithm: Algorithm) -> AlgorithmType:
    """Return the type of an algorithm; waits until its fastest code is there."""
    try:
        algorithm.ready(tier="fast")
    except Exception:  # then the quick kernels stay
        algorithm.ready()
    cls, spec = type(algorithm), algorithm._spec
    states = {name: (*memoryview(state).cast("q"),) for name, state in algorithm.fixed_states().items()}
    for name, op in spec.operators:
        if op.state_size and name not in states:
            raise errors.TypingError(
                f"{name}: {op.name} has captured device arrays, which compiled host code cannot "
                f"look up: call {spec.algorithm} from Python"
            )
    known = prepared(algorithm)
    accumulator = spec.operators[0][1].output if spec.option("init") is not None else None
    arguments = [
        (each.name, each.output, each.is_pointer, str(each.value), iterators.structure(each.given))
        for each in spec.arguments
    ]
    identity = [
        *(
            spec.algorithm,
            arguments,
            [(name, op.state_size, states.get(name)) for name, op in spec.operators],
        ),
        *(spec.option("init"), str(accumulator), spec.option("levels"), known.values, known.kernels),
        *(known.plan.__module__, known.plan.__name__),
    ]
    name = f"cupar.{cls.__name__}({digest(identity)})"
    found = {"algorithm": cls, "spec": spec, "prepared": known, "build": algorithm.build, "compiled": {}}
    found["states"] = states
    return interned(AlgorithmType, name, **found)


@infer_getattr
class _Methods(AttributeTemplate):  # type: ignore[misc]
    key = AlgorithmType

    def generic_resolve(self, kind: AlgorithmType, name: str) -> RunType | None:
        """Return the type of `run`."""
        if name in ("run", "__call__"):
            return RunType(kind) if name == "run" else None  # numba asks for the other, and then the type
        raise errors.TypingError(
            f"{kind.algorithm.__name__} has no {name} in compiled host code, which calls run, or the object "
            "itself"
        )


@lower_getattr(AlgorithmType, "run")
def _run(context: Any, builder: Any, kind: AlgorithmType, value: Any) -> Any:
    return value


def address_of_table(algorithm: Algorithm) -> int:
    """Return the address of an algorithm's table in the current context."""
    return int(prepared(algorithm).words.ctypes.data)


native.register_word(AlgorithmType, address_of_table, prepared)
register_model(RunType)(native.WordModel)


# --- Calls -------------------------------------------------------------------------------------------------


def _signature(this: CheckedCallable, kind: AlgorithmType, name: str, args: Any, kws: Any) -> Signature:
    """Return the signature of a call, whose arguments are checked first; see `CheckedCallable`."""
    method = getattr(kind.algorithm, name)
    try:
        given = inspect.signature(method).bind(kind, *args, **kws)
    except TypeError as error:
        shown = f"{kind.algorithm.__name__}.{method.__name__}({', '.join(calls.shown_parameters(method))})"
        raise errors.TypingError(f"{shown}: {error}") from None
    given.apply_defaults()
    types_given = {name: plain(each) for name, each in [*given.arguments.items()][1:]}
    every = tuple(types_given.values())
    if (name, every) not in kind.compiled:
        if "problem" not in kind.compiled:
            kind.compiled["problem"] = calls.problem_of(kind.algorithm, kind.spec)
        problem = kind.compiled["problem"]
        call = calls.CompiledCall(kind.algorithm, kind.spec, types_given, kind.prepared, problem, kind.states)
        kind.compiled[name, every] = njit(_function(kind, call), **CALLED)
    parameters = [*inspect.signature(method).parameters.values()][1:]
    parameters = [each.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD) for each in parameters]
    returned = types.none if types_given.get("temp_storage") is None else types.int64
    return Signature(returned, every, this, inspect.Signature(parameters))


def _function(kind: AlgorithmType, call: calls.CompiledCall) -> Any:
    known = kind.prepared
    phases = plans.Phases(known.plan, known.facts, len(known.kernels))
    names = {
        "_needed_by": phases.needed,
        "_launched": phases.launched,
        "_executed": phases.executed,
        "_table_of": _table_of,
        "_on_stack": native.on_stack,
        "_LaunchError": LaunchError,
        "_int": types.int64,
        **call.names,
    }
    dump.write(kind.build, ".py", lambda: call.text)
    return define(f"compiled call of {kind.spec.algorithm}", "call", call.text, names)


@lower_builtin(AlgorithmType, AlgorithmType, types.VarArg(types.Any))
@lower_builtin(RunType, RunType, types.VarArg(types.Any))
def _lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    this, *given = signature.args
    kind, name = (this.owner, "run") if isinstance(this, RunType) else (this, "__call__")
    return call_compiled(context, builder, kind.compiled[name, tuple(given)], (kind, *given), values)


@intrinsic
def _table_of(typing: Any, algorithm: Any) -> Any:
    """Return the address of an algorithm's table."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return values[0]

    return types.int64(algorithm), code


view_types.refresh()
