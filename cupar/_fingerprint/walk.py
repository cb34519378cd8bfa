"""What an operator's compiled code depends on, read from the function itself, and the copy that is compiled.

One walk over an operator gives its fingerprint and a frozen copy of it. The fingerprint is a digest that is
the same in every process and on every machine as long as numba would compile the operator to the same code,
and another one as soon as it would not. numba freezes what a function reads when it compiles it: constants,
closure variables, globals, and attributes of modules become part of the code, as do the functions that it
calls. So all of these are encoded by value (see `_values`), and nothing else is: no file names or line
numbers, no names of functions. The frozen copy holds these values and nothing else, and it is what numba
compiles, now or later: what the user changes after the walk is seen by neither.

A call with a known operator must not pay for that again. Each fingerprint therefore remembers the
objects that it saw, and `Fingerprint.unchanged` compares identities (and re-encodes what can change in
place), which costs well under a microsecond for most operators.
"""

from __future__ import annotations

import builtins
import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CellType, CodeType, FunctionType, ModuleType, TracebackType
from typing import Any, Final, TypeVar

import numpy as np

from .. import structs
from .._base import fork
from .._device import arrays
from . import extensions, unsupported, values
from .bytecode import Chain, Plan, apart, parameters, scan
from .values import (
    MISSING,
    Function,
    Jitted,
    Module,
    Pair,
    Reader,
    Unfingerprintable,
    compilers_name,
    encode,
    encode_atom,
    encode_device_array,
    encode_int,
    frame,
    held,
    refusal,
    refuse,
    type_name,
)

__all__ = ["Capture", "Fingerprint", "Once", "Unfingerprintable", "encode", "fingerprint"]

_FORMAT: Final = b"cupar operator 2"
_OPERATOR: Final = "it"  # where the operator itself was found, in errors


@dataclass(frozen=True, slots=True)
class Capture:
    """A device array that an operator reads or updates: what its code depends on, and where it is found.

    Attributes
    ----------
    name : str
        Of the variable.
    in_closure : bool
        Whether that is a closure variable; otherwise it is a global.
    dtype : numpy.dtype
    ndim : int
    """

    name: str
    in_closure: bool
    dtype: np.dtype[Any]
    ndim: int

    def of(self, function: FunctionType) -> object:
        """Return the array that a function has captured now."""
        if not self.in_closure:
            return function.__globals__[self.name]
        return (function.__closure__ or ())[function.__code__.co_freevars.index(self.name)].cell_contents


_DISPATCHERS: Final = frozenset(
    (("numba.cuda.dispatcher", "CUDADispatcher"), ("numba.core.registry", "CPUDispatcher"))
)

# Options of cuda.jit and njit that only concern launching a kernel, or the CPU: calling the function
# from an operator compiles it the same without them.
_OPTIONS_WITHOUT_EFFECT: Final = frozenset(
    (
        "boundscheck",
        "cache",
        "device",
        "extensions",
        "launch_bounds",
        "link",
        "lto",
        "max_registers",
        "nogil",
        "nopython",
        "shared_memory_carveout",
    )
)


def is_dispatcher(value: object) -> bool:
    """Whether a value is a function under ``cuda.jit`` or ``njit``."""
    cls = type(value)
    return (cls.__module__, cls.__name__) in _DISPATCHERS


# --------------------------------------------------------------------------------------------------
# Checking again


class _ByValue:
    """What is remembered of a value that can change in place: its encoding, and not the value."""

    __slots__ = ("_classes", "_encoding")

    def __init__(self, value: object, where: str) -> None:
        reader = Reader(_identity, identify=True)
        self._encoding, _ = reader.read(value, where)
        self._classes = reader.classes  # so that no other class gets their ids

    def matches(self, value: object) -> bool:
        try:
            return Reader(_identity, identify=True).read(held(value, ""), "")[0] == self._encoding
        except Unfingerprintable:
            return False


def _identity(value: object, where: str) -> Pair:
    """Encode a function as itself, for this process: what it depends on is watched on its own."""
    if isinstance(value, FunctionType) or is_dispatcher(value):
        return frame("id", encode(id(value))), None
    if arrays.is_device_array(value):
        return encode_device_array(value, where), None
    return refuse(value, where)


def _is_fixed(value: object) -> bool:
    """Whether the same object always has the same encoding, but for functions, which are watched."""
    cls = type(value)
    if values.is_atom(cls) or cls is FunctionType or isinstance(value, ModuleType) or is_dispatcher(value):
        return True
    if cls is tuple or cls is frozenset:
        return all(map(_is_fixed, value))  # type: ignore[call-overload]
    if isinstance(value, np.generic):
        return not isinstance(value, np.void)
    return compilers_name(value) is not None or values.numba_type_name(value) is not None


def _seen(value: object, where: str) -> object:
    """Return what to remember of a value that is held, for `_same`."""
    return value if _is_fixed(value) else _ByValue(value, where)


def _same(now: object, seen: object) -> bool:
    """Whether a value has the encoding of the one that was seen. False can also mean 'not sure'."""
    if now is seen:
        return True
    if type(seen) is _ByValue:
        return seen.matches(now)
    if type(now) is not type(seen):
        return False
    if isinstance(now, tuple) and isinstance(seen, tuple):
        return len(now) == len(seen) and all(map(_same, now, seen))
    encoding = encode_atom(seen)
    return encoding is not None and encode_atom(now) == encoding


@dataclass(frozen=True, slots=True)
class _State:
    """What one function was made of, and what it read, when it was fingerprinted."""

    code: CodeType
    globals: dict[str, Any]
    cells: tuple[object, ...]
    defaults: object
    keyword_defaults: object
    names: tuple[tuple[str, object], ...]

    def holds(self, function: FunctionType) -> bool:
        """Whether another look at this function, or at another made of the same code, gives the same."""
        # The identities are compared here, and `_same` only called where they differ, because this is
        # what each call of an algorithm waits for.
        if function.__code__ is not self.code or function.__globals__ is not self.globals:
            return False
        now: object = function.__defaults__
        if now is not self.defaults and not _same(now, self.defaults):
            return False
        now = function.__kwdefaults__
        if now is not self.keyword_defaults and not _same(now, self.keyword_defaults):
            return False
        if function.__closure__ is not None:
            for cell, seen in zip(function.__closure__, self.cells):  # noqa: B905 - one code, one length
                now = cell.cell_contents
                if now is not seen and not _same(now, seen):
                    return False
        for name, seen in self.names:
            now = self.globals.get(name, MISSING)
            if now is not seen and not _same(now, seen):
                return False
        return True


@dataclass(frozen=True, slots=True)
class _Watch:
    """All that was seen while an operator was fingerprinted, for `Fingerprint.unchanged`."""

    operator: object  # what the fingerprint is of, unless any function with `state` will do
    state: _State | None
    functions: tuple[tuple[FunctionType, _State], ...]
    dispatchers: tuple[tuple[Any, dict[str, object]], ...]
    attributes: tuple[tuple[object, str, object], ...]
    epoch: int  # of what is registered with numba

    def holds(self, operator: object) -> bool:
        if self.epoch != extensions.epoch():
            return False
        if self.state is None:
            if operator is not self.operator:
                return False
        elif type(operator) is not FunctionType or not self.state.holds(operator):
            return False
        for owner, name, seen in self.attributes:
            now = getattr(owner, name, MISSING)
            if now is not seen and not _same(now, seen):
                return False
        for function, state in self.functions:
            if not state.holds(function):
                return False
        for dispatcher, options in self.dispatchers:
            if not _same_options(dispatcher.targetoptions, options):
                return False
        return True


def _same_options(now: dict[str, object], seen: dict[str, object]) -> bool:
    return len(now) == len(seen) and all(now.get(name, MISSING) is value for name, value in seen.items())


# --------------------------------------------------------------------------------------------------
# Fingerprints


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """
    What an operator compiles to, as far as the operator decides it.

    Attributes
    ----------
    digest
        SHA-256 of all that the operator depends on, the same in every process and on every machine.
    parts
        Each dependency with a short form of what it was, for explaining a cache miss:
        ``("global 'SCALE'", "float 3.0")``, ``("global 'helper'", "function 5ad2c0ffee12")``.
    captures
        The device arrays that the operator reads or updates.
    refused
        What it does, or a function that it calls, that a kernel cannot; empty if there is nothing.
    frozen
        The operator as it was, with all that the digest covers: a `Function` or `Jitted` one of `_values`,
        or one of the compilers' own. This is what is compiled.
    """

    digest: bytes
    parts: tuple[tuple[str, str], ...] = field(compare=False)
    captures: tuple[Capture, ...]
    frozen: Any = field(compare=False, repr=False)
    _watch: _Watch = field(compare=False, repr=False)
    _codes: tuple[tuple[str, CodeType], ...] = field(compare=False, repr=False)
    refused: str = field(default="", compare=False)

    def reads(self) -> list[tuple[str, str]]:
        """
        Return `parts` with the constants apart from the code, to tell which of them changed.

        They are numbered in the order in which the code loads them: ``("constant 1", "int 2")``,
        ``("constant 2 in 'helper'", "float 0.5")``.
        """
        found = [part for part in self.parts if part[0] != "code" and not part[0].startswith("code in ")]
        for inside, code in self._codes:
            encoding, constants = apart(code)
            found.append((f"code{inside}", _short_hash(encoding)))
            for number, value in enumerate(constants, start=1):
                found.append((f"constant {number}{inside}", _short(value, encode(value))))
        return found

    def unchanged(self, operator: object) -> bool:
        """
        Whether an operator still has this fingerprint, found without computing it again.

        The operator may be another function object than the one fingerprinted, as a lambda in a loop
        is, if both were made of the same code. False means that the fingerprint may have changed.
        """
        try:
            return self._watch.holds(operator)
        except ValueError:  # an empty closure cell
            return False

    def checker(self) -> Callable[[Any], bool]:
        """Return `unchanged` for functions of one code, the quickest that what they read allows."""
        watch, state, unchanged = self._watch, self._watch.state, self.unchanged
        others = watch.attributes or watch.functions or watch.dispatchers  # in defaults, too
        if state is None or state.names or state.cells or others:
            return unchanged
        defaults, keyword_defaults = state.defaults, state.keyword_defaults
        epoch, epoch_now = watch.epoch, extensions.epoch

        def check(function: FunctionType) -> bool:
            return (
                function.__defaults__ is defaults
                and function.__kwdefaults__ is keyword_defaults
                and epoch_now() == epoch
            ) or unchanged(function)

        return check


class _Walk:
    """One computation of a fingerprint: goes through a function and all that it reads and calls."""

    def __init__(self) -> None:
        self._reader = Reader(self._callee, check=extensions.check)
        self._operator: tuple[object, object] = (None, None)  # and the function that it wraps, if it does
        self._met: dict[int, tuple[int, Function | Jitted]] = {}  # functions, with their numbers, by id
        self._inside = ""  # " in 'helper'" while the walk is in a function that the operator calls
        self.recursive = False
        self.parts: list[tuple[str, str]] = []
        self.codes: list[tuple[str, CodeType]] = []
        self.functions: list[tuple[FunctionType, _State]] = []
        self.dispatchers: list[tuple[Any, dict[str, object]]] = []
        self.attributes: list[tuple[object, str, object]] = []
        self.captures: list[Capture] = []
        self.refused = ""

    def read(self, operator: object) -> Pair:
        if not (isinstance(operator, FunctionType) or is_dispatcher(operator) or compilers_name(operator)):
            raise refusal(_OPERATOR, operator, "Give a Python function, or a function under @cuda.jit.")
        extensions.check(operator, _OPERATOR)
        if is_dispatcher(operator):
            self._operator = (operator, operator.py_func)  # type: ignore[attr-defined]
        else:
            self._operator = (operator, None)
        return self._reader.read(operator, _OPERATOR)

    def _callee(self, value: Any, where: str) -> Pair:
        if not isinstance(value, FunctionType) and not is_dispatcher(value):
            return refuse(value, where)
        known = self._met.get(id(value))
        if known is not None:
            # Functions may call each other in circles: the second visit says which one it is.
            self.recursive |= value in self._operator
            return frame("again", encode_int(known[0])), known[1]
        if is_dispatcher(value):
            return self._dispatcher(value, where)
        frozen = Function(value.__code__, value.__name__)
        self._met[id(value)] = len(self._met), frozen
        return self._function(value, frozen), frozen

    def _dispatcher(self, dispatcher: Any, where: str) -> Pair:
        options = dict(dispatcher.targetoptions)
        compiled = {name: options[name] for name in sorted(options) if name not in _OPTIONS_WITHOUT_EFFECT}
        _check_dispatcher(dispatcher, where, compiled)
        function = dispatcher.py_func
        frozen = Jitted(Function(function.__code__, function.__name__), compiled)
        self._met[id(dispatcher)] = len(self._met), frozen
        self.dispatchers.append((dispatcher, options))
        self.attributes += [(dispatcher, "py_func", function), (dispatcher, "_can_compile", True)]
        of_options, _ = self._reader.read(compiled, where)
        of_function, frozen.function = self._callee(function, where)
        return frame("dispatcher", of_options, of_function), frozen

    def _function(self, function: FunctionType, frozen: Function) -> bytes:
        called = function not in self._operator
        self.refused = self.refused or _refused(frozen, called)
        outer, self._inside = self._inside, f" in {frozen.name!r}" if called else ""
        try:
            plan = _plan(frozen.code)
            self.parts.append((f"code{self._inside}", _short_hash(plan.encoding)))
            self.codes.append((self._inside, plan.code))
            state, encodings = self._look(function, plan, frozen)
        finally:
            self._inside = outer
        self.functions.append((function, state))
        # Algorithms give the operator's arguments by position. Its parameters may still be found by
        # name, by itself and in __kwdefaults__.
        by_name = called or self.recursive or frozen.keyword_defaults
        names = encode(parameters(plan.code) if by_name else None)
        return frame("function", plan.encoding, names, *encodings)

    def _look(self, function: FunctionType, plan: Plan, frozen: Function) -> tuple[_State, list[bytes]]:
        """Read all that a function depends on, each object once, and hold it before encoding it."""
        inside = self._inside
        if type(function.__globals__) is not dict:
            raise refusal(f"__globals__{inside}", function.__globals__, "It must be a plain dict.")
        cells = {
            name: held(_contents(cell), self._label("closure variable", (name,)))
            for name, cell in zip(plan.code.co_freevars, function.__closure__ or (), strict=True)
        }
        names = {
            chain[0]: held(function.__globals__.get(chain[0], MISSING), self._label("global", (chain[0],)))
            for chain in plan.globals
        }
        defaults = held(function.__defaults__, f"defaults{inside}")
        keyword_defaults = held(function.__kwdefaults__, f"keyword defaults{inside}")
        state = _State(
            plan.code,
            function.__globals__,
            tuple(_seen(value, self._label("closure variable", (name,))) for name, value in cells.items()),
            _seen(defaults, f"defaults{inside}"),
            _seen(keyword_defaults, f"keyword defaults{inside}"),
            tuple((name, _seen(value, self._label("global", (name,)))) for name, value in names.items()),
        )
        names = {name: self._builtin(name) if value is MISSING else value for name, value in names.items()}
        of_defaults, frozen.defaults = self._value(f"defaults{inside}", defaults)
        of_keywords, frozen.keyword_defaults = self._value(f"keyword defaults{inside}", keyword_defaults)
        in_closure: dict[str, Any] = {}
        encodings = [
            of_defaults,
            of_keywords,
            *self._chains("closure variable", plan.closure, cells, in_closure),
            *self._chains("global", plan.globals, names, frozen.globals),
        ]
        frozen.cells[:] = [in_closure.get(name, MISSING) for name in plan.code.co_freevars]
        return state, encodings

    def _chains(
        self, kind: str, chains: Iterable[Chain], roots: Mapping[str, Any], frozen: dict[str, Any]
    ) -> Iterator[bytes]:
        """Read what is at the end of each chain, and put it into the namespace of the frozen function."""
        done: set[Chain] = set()
        for chain in chains:
            value, modules = self._follow(roots[chain[0]], chain)
            read = chain[: 1 + len(modules)]
            if read in done:
                continue
            done.add(read)
            label = self._label(kind, read)
            if arrays.is_device_array(value) and len(read) == 1 and not self._inside:
                yield frame("read", encode((kind, *read)), self._capture(label, read[0], kind, value))
                continue
            encoding, copy = self._value(label, value)
            namespace = frozen
            for name, module in zip(read, modules, strict=False):
                namespace = namespace.setdefault(name, Module(module)).attributes
            if copy is not MISSING:
                namespace[read[-1]] = copy
            yield frame("read", encode((kind, *read)), encoding)

    def _capture(self, where: str, name: str, kind: str, array: object) -> bytes:
        found, ndim = arrays.view(where, array), len(arrays.shape(array))
        dtype = structs.normal(where, found.dtype)
        self.captures.append(Capture(name, kind == "closure variable", dtype, ndim))
        self.parts.append((where, f"device array of {found.dtype}, {ndim} dimensions"))
        return encode_device_array(array, where)

    def _follow(self, value: Any, chain: Chain) -> tuple[Any, list[ModuleType]]:
        """Follow a chain as far as it goes through modules; return what is there, and these."""
        modules: list[ModuleType] = []
        for depth, name in enumerate(chain[1:], start=1):
            if not isinstance(value, ModuleType):
                break
            modules.append(value)
            value = self._attribute(value, name, ".".join(chain[: depth + 1]))
        return value, modules

    def _builtin(self, name: str) -> object:
        return self._attribute(builtins, name, f"global {name!r}")

    def _attribute(self, owner: object, name: str, where: str) -> object:
        value = held(getattr(owner, name, MISSING), where + self._inside)
        self.attributes.append((owner, name, _seen(value, where + self._inside)))
        return value

    def _value(self, where: str, value: object) -> Pair:
        place = len(self.parts)
        encoding, copy = self._reader.read(value, where)
        if value is not None:
            self.parts.insert(place, (where, _short(value, encoding)))
        return encoding, copy

    def _label(self, kind: str, read: Chain) -> str:
        return (f"{kind} {read[0]!r}" if len(read) == 1 else ".".join(read)) + self._inside


def _refused(function: Function, called: bool) -> str:
    """Return what a function does that a kernel cannot, and which one it is if not the operator itself."""
    code = function.code
    sentence = unsupported.refusal(code) or ""
    if not sentence or not called:
        return sentence
    return f"in {function.name} ({code.co_filename}:{code.co_firstlineno}): {sentence}"


def _check_dispatcher(dispatcher: Any, where: str, options: Mapping[str, object]) -> None:
    if not dispatcher._can_compile:
        advice = "It was compiled when decorated, with the globals of then; drop the signature from cuda.jit."
    elif dispatcher.__defaults__ is not dispatcher.py_func.__defaults__:
        advice = (
            "Its defaults changed after it was decorated, which numba does not notice; decorate it again."
        )
    elif not all(map(_is_fixed, options.values())):
        advice = f"Its options must be plain values; {dict(options)!r} are not."
    else:
        return
    raise refusal(where, dispatcher, advice)


def _contents(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _short_hash(encoding: bytes) -> str:
    return hashlib.sha256(encoding).hexdigest()[:12]


def _short(value: object, encoding: bytes) -> str:
    name = compilers_name(value)
    if name is not None:
        return name
    if value is MISSING:
        return "missing"
    text = _text(value) if len(encoding) < 80 else None
    return f"{type_name(type(value))} {text or _short_hash(encoding)}"


def _text(value: object) -> str | None:
    """Return a plain value as a person writes it, None for others."""
    is_plain = values.is_atom(type(value))
    if is_plain or (type(value) is tuple and all(values.is_atom(type(item)) for item in value)):
        return repr(value)
    return str(value) if isinstance(value, (np.number, np.bool_)) else None


# --------------------------------------------------------------------------------------------------
# Asking for one


class _Asked(threading.local):
    """What this thread fingerprinted while `Once` is in force, with the operators themselves."""

    found: dict[int, tuple[object, Fingerprint]] | None = None


_asked = _Asked()


class Once:
    """A context in which this thread fingerprints each operator once, however often it is asked for.

    A factory looks at an operator several times: at what it returns, at what it is, at what it compiles to.
    All of these must see the same operator, whatever another thread assigns meanwhile.
    """

    __slots__ = ("_outer",)

    def __enter__(self) -> None:
        self._outer = _asked.found
        if self._outer is None:
            _asked.found = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _asked.found = self._outer


def fingerprint(operator: object) -> Fingerprint:
    """
    Return the fingerprint of an operator.

    The last fingerprints of each code object are kept, so that a repeated call with an unchanged
    operator costs well under a microsecond and what `Fingerprint.unchanged` costs.

    Parameters
    ----------
    operator
        A Python function or lambda, a function under ``numba.cuda.jit`` or ``numba.njit``, a NumPy ufunc,
        or a function of ``operator`` or ``math``.

    Returns
    -------
    Fingerprint
        Equal digests mean equal code, if the compilers are the same.

    Raises
    ------
    Unfingerprintable
        If the operator depends on something that has no exact encoding.
    """
    asked = _asked.found
    if asked is None:
        return _fingerprint(operator)
    known = asked.get(id(operator))
    if known is None:
        known = asked[id(operator)] = operator, _fingerprint(operator)
    return known[1]


def _fingerprint(operator: object) -> Fingerprint:
    key = id(operator.__code__ if isinstance(operator, FunctionType) else operator)
    recent = _recent.get(key, ())
    for known in recent:
        if known.unchanged(operator):
            return known
    found, size = _compute(operator)
    if size > _LARGEST or (found.captures and type(operator) is not FunctionType):
        return found  # to remember it would keep large copies, or the operator and so its arrays, alive
    others = tuple(known for known in recent if known != found)
    _remember(_recent, key, (found, *others[: _VARIANTS - 1]))
    return found


def _compute(operator: object) -> tuple[Fingerprint, int]:
    """Walk over an operator; return its fingerprint, and about how many bytes its frozen copy has."""
    epoch = extensions.epoch(exact=True)
    walk = _Walk()
    try:
        encoding, frozen = walk.read(operator)
    except Unfingerprintable as problem:
        raise Unfingerprintable(f"{_describe(operator)}: {walk.refused or problem}") from None
    subject, state, functions = operator, None, walk.functions
    if isinstance(operator, FunctionType) and functions and not walk.recursive:
        *functions, (_, state) = functions
        subject = None
    watch = _Watch(subject, state, tuple(functions), tuple(walk.dispatchers), tuple(walk.attributes), epoch)
    digest = hashlib.sha256(_FORMAT + encoding).digest()
    captures, codes = tuple(walk.captures), tuple(walk.codes)
    return Fingerprint(digest, tuple(walk.parts), captures, frozen, watch, codes, walk.refused), len(encoding)


def _describe(operator: object) -> str:
    code = getattr(operator, "__code__", None)
    place = f" ({code.co_filename}:{code.co_firstlineno})" if isinstance(code, CodeType) else ""
    return f"operator {getattr(operator, '__qualname__', type(operator).__qualname__)!r}{place}"


_Kept = TypeVar("_Kept")

# Bounded, for both keep objects of the user's alive. What they keep includes the object whose id is
# the key, so that no other object gets that id.
_KEPT: Final = 512
_VARIANTS: Final = 4  # fingerprints kept for one code object: closures made of it differ in what they hold
_LARGEST: Final = 1 << 16  # bytes of an encoding; a copy of all that an operator reads is kept with it
_plans: dict[int, Plan] = {}
_recent: dict[int, tuple[Fingerprint, ...]] = {}
_lock = fork.Lock()


def _remember(kept: dict[int, _Kept], key: int, value: _Kept) -> None:
    with _lock:
        kept[key] = value
        while len(kept) > _KEPT:
            del kept[next(iter(kept))]


def _plan(code: CodeType) -> Plan:
    plan = _plans.get(id(code))
    if plan is None:
        plan = scan(code)
        _remember(_plans, id(code), plan)
    return plan
