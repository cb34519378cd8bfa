"""One walk over an operator gives its fingerprint, a guard of it, and a frozen copy of the operator.

The fingerprint is a digest that is the same in every process and on every machine as long as numba would
compile the operator to the same code, and another one as soon as it would not. numba freezes what a function
reads when it compiles it: constants, closure variables, globals, and attributes of modules become part of the
code, as do the functions that it calls. So all of these are encoded by value (see `values`), and nothing else
is: no file names or line numbers, no names of functions. The frozen copy holds these values and nothing else,
and it is what numba compiles, now or later: what the user changes after the walk is seen by neither.

Repeated calls do not walk again: each fingerprint has a guard, which checks that it still holds.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from io import BytesIO
from types import CellType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

import numpy as np
from cachetools import LRUCache

from .. import structs
from .._base.bounded import Bounded, of_builds
from .._base.data import replace
from .._base.device import is_cpu
from .._base.digests import sha256
from .._device import arrays
from .._external.kinds import LINK, is_cpp, is_external
from . import extensions, numbers, unsupported
from .bytecode import Chain, CodeSummary, parameters, scan
from .fingerprint import Capture, Fingerprint, short, short_hash
from .frozen import MISSING, FrozenFunction, FrozenJitted, FrozenModule
from .guards import CapturedArray, FunctionGuard, Guard, check_dispatcher, seen
from .names import compilers_name, is_dispatcher, package
from .refusals import TOO_MANY_CALLS, Unfingerprintable, refusal, refuse
from .values import ATOMS, Pair, ValueEncoder, encode, encode_device_array, encode_int, frame, held

if TYPE_CHECKING:
    from .._external.files import FileGuard
    from .._external.linkable import Linkable
    from .varying import Place


__all__ = [
    "Capture",
    "Fingerprint",
    "fingerprint_scope",
    "Unfingerprintable",
    "encode",
    "fingerprint",
    "is_dispatcher",
]

_FORMAT: Final = b"cupar operator 2"
_OPERATOR: Final = "it"  # the operator itself, in errors

# Options of cuda.jit and njit that apply when an operator calls the function, with their defaults. All others
# concern kernel launches, or the CPU.
_OPTIONS_WITH_EFFECT: Final[Mapping[str, object]] = {
    "fastmath": False,
    "forceinline": False,
    "inline": "never",
    "signatures": (),
}


class _Walk:
    """One computation of a fingerprint, which visits a function and everything it reads and calls."""

    def __init__(self) -> None:
        self._encoder = ValueEncoder(self._callee, check=extensions.check)
        self._operator: tuple[object, object] = (None, None)  # and the function that it wraps, if it does
        # Functions, with their numbers, by id.
        self._met: dict[int, tuple[int, FrozenFunction | FrozenJitted]] = {}
        self._inside = ""  # " in 'helper'" while the walk is in a function that the operator calls
        self._is_recursive = False
        self._calling: list[FrozenFunction] = []  # each called by the one before
        self._recursion = ""
        self._parts: list[tuple[str, str]] = []
        self._codes: list[tuple[str, CodeType]] = []
        self._functions: list[tuple[FunctionType, FunctionGuard]] = []
        self._frozen: list[FrozenFunction] = []  # their copies
        self._dispatchers: list[tuple[Any, dict[str, object]]] = []
        self._attributes: list[tuple[object, str, object]] = []
        self._captures: list[Capture] = []
        self._externals: dict[Any, None] = {}
        self._links: dict[Linkable, None] = {}  # of functions in Python
        self._linked: list[FileGuard] = []
        self._refused = ""
        self._numbers: list[numbers.Number] = []
        # The encodings of all else, in the order of visits, which together with the numbers' say as much as
        # that of the operator; and how many containers the walk is in, whose functions keep their numbers.
        self._form: list[bytes] = []
        self._containers = 0
        # Whether a container holds a function that was read before, or results of a function are inexact.
        self._only_constants = False

    def fingerprint(self, operator: object) -> tuple[Fingerprint, int]:
        """Return the fingerprint of an operator, and the approximate size of its frozen copy in bytes."""
        epoch = extensions.epoch(exact=True)
        try:
            encoding, frozen = self._read(operator)
        except Unfingerprintable as problem:
            raise Unfingerprintable(f"{_described(operator)}: {self._refused or problem}") from None
        except RecursionError:
            raise Unfingerprintable(f"{_described(operator)}: {TOO_MANY_CALLS}") from None
        only, guard, functions = operator, None, self._functions
        if isinstance(operator, FunctionType) and functions and not self._is_recursive:
            *functions, (_, guard) = functions
            only = None
        found = Fingerprint(
            sha256(_FORMAT + encoding).digest(),
            tuple(self._parts),
            tuple(self._captures),
            frozen,
            Guard(
                only,
                guard,
                tuple(functions),
                tuple(self._dispatchers),
                tuple(self._attributes),
                epoch,
                tuple(self._linked),
            ),
            tuple(self._codes),
            self._refused,
            self._recursion,
            tuple(self._externals),
            tuple(self._links),
            *self._numbers_found(),
        )
        return found, len(encoding)

    def _numbers_found(self) -> tuple[bytes, tuple[numbers.Number, ...]]:
        """Return the digest of all but the numbers that may be arguments, and these."""
        if not self._numbers or self._is_recursive or self._only_constants:
            return b"", ()
        places = {id(each): i for i, each in enumerate(self._frozen)}
        if isinstance(self._operator[0], FunctionType):  # the last one
            places[id(self._frozen[-1])] = -1
        found = [replace(each, place=places[id(each.function)]) for each in self._numbers]
        return sha256(_FORMAT + b"".join(self._form)).digest(), tuple(found)

    def _read(self, operator: object) -> Pair:
        is_function = isinstance(operator, FunctionType) or is_dispatcher(operator) or is_external(operator)
        if not (is_function or compilers_name(operator)):
            wrong = unsupported.not_an_operator(operator)
            if wrong is not None:
                raise TypeError(wrong)
            raise refusal(_OPERATOR, operator, "Give a Python function, or a function under @cuda.jit.")
        extensions.check(operator, _OPERATOR)
        self._operator = operator, getattr(operator, "py_func", None) if is_dispatcher(operator) else None
        return self._encoder.read(operator, _OPERATOR)

    def _callee(self, value: Any, where: str) -> Pair:
        if is_external(value):
            return self._external(value, where)
        if not isinstance(value, FunctionType) and not is_dispatcher(value):
            refuse(value, where)
        met = self._met.get(id(value))
        if met is not None:
            # Functions may call each other recursively: the second visit encodes the number of the first.
            self._is_recursive |= value in self._operator
            self._only_constants |= bool(self._containers)
            self._recursion = self._recursion or self._circle(met[1])
            return frame("again", encode_int(met[0])), met[1]
        if is_dispatcher(value):
            return self._dispatcher(value, where)
        frozen = FrozenFunction(value.__code__, value.__name__)
        self._met[id(value)] = len(self._met), frozen
        return self._function(value, frozen), frozen

    def _circle(self, callee: FrozenFunction | FrozenJitted) -> str:
        """Describe the recursion if the callee is still being visited, else return an empty text."""
        function = callee.function if isinstance(callee, FrozenJitted) else callee
        places = [i for i, each in enumerate(self._calling) if each is function]
        if not places:
            return ""
        if places[0] == len(self._calling) - 1:
            return f"{function.name} calls itself: write a loop"
        names = " and ".join(each.name for each in self._calling[places[0] :])
        return f"the functions {names} call each other in a circle: write a loop"

    def _external(self, value: Any, where: str) -> Pair:
        """Read an external function: its calling convention, and the code linked with it."""
        frozen: Any = value
        if is_cpp(value):
            types = [structs.type_part(each) for each in value.signature.dtypes()]
            names = [structs.names(each) for each in value.signature.dtypes()]
            called = encode((value.symbol, repr((types, names))))
        else:
            from .._external import declared

            try:
                found, guard = declared.read(value, where)
            except (TypeError, ValueError) as error:
                raise Unfingerprintable(str(error)) from None
            self._linked.append(guard)
            frozen = found
            called = encode((found.symbol, found.result, found.arguments, found.abi, found.waits_for_grid))
        self._externals[frozen] = None
        return frame("external", called, encode(tuple(each.digest for each in frozen.links))), frozen

    def _own_links(self, value: Any) -> list[bytes]:
        """Read the code that a Python function asks to be linked with it."""
        if getattr(value, LINK, None) is None:
            return []
        from .._external import declared

        try:
            links, guard = declared.read_own(value, f"function {value.__name__!r}")
        except (TypeError, ValueError) as error:
            raise Unfingerprintable(str(error)) from None
        self._linked.append(guard)
        self._links.update(dict.fromkeys(links))
        return [frame("linked", encode(tuple(each.digest for each in links)))]

    def _dispatcher(self, dispatcher: Any, where: str) -> Pair:
        options = dict(dispatcher.targetoptions)
        compiled = {
            name: options[name]
            for name, default in _OPTIONS_WITH_EFFECT.items()
            if options.get(name) and options[name] != default
        }
        check_dispatcher(dispatcher, where, compiled)
        function = dispatcher.py_func
        frozen = FrozenJitted(FrozenFunction(function.__code__, function.__name__), compiled)
        self._met[id(dispatcher)] = len(self._met), frozen
        self._only_constants |= "fastmath" in compiled or "signatures" in compiled
        self._dispatchers.append((dispatcher, options))
        self._attributes += [(dispatcher, "py_func", function), (dispatcher, "_can_compile", True)]
        of_options, _ = self._encoder.read(compiled, where)
        self._add_to_form("dispatcher", of_options)
        of_function, frozen.function = self._callee(function, where)
        return frame("dispatcher", of_options, of_function, *self._own_links(dispatcher)), frozen

    def _function(self, function: FunctionType, frozen: FrozenFunction) -> bytes:
        called = function not in self._operator
        self._refused = self._refused or _refused(frozen, called)
        outer, self._inside = self._inside, f" in {frozen.name!r}" if called else ""
        self._calling.append(frozen)
        try:
            loads = _loads(frozen.code)
            self._parts.append((f"code{self._inside}", short_hash(loads.encoding)))
            self._codes.append((self._inside, frozen.code))  # an equal one may be of another file
            guard, encodings = self._look(function, loads, frozen)
        finally:
            self._inside = outer
            self._calling.pop()
        self._functions.append((function, guard))
        self._frozen.append(frozen)
        # Algorithms pass the operator's arguments by position. Its parameters' names still matter to
        # recursive calls and __kwdefaults__.
        by_name = called or self._is_recursive or frozen.keyword_defaults
        names = encode(parameters(loads.code) if by_name else None)
        linked = self._own_links(function)
        self._add_to_form("function", loads.encoding, names, *linked)
        return frame("function", loads.encoding, names, *encodings, *linked)

    def _add_to_form(self, tag: str, *parts: bytes) -> None:
        if not self._containers:
            self._form.append(frame(tag, *parts))

    def _add_number(self, number: numbers.Number) -> None:
        if not self._containers:
            self._numbers.append(number)
            self._add_to_form("number", encode((number.kind, *number.read)))

    def _are_numbers(self, label: str, defaults: Any, reader: FrozenFunction | None) -> bool:
        """Add the numbers among defaults, and to the form the others; return whether all are plain values."""
        if not defaults or reader is None or not all(type(each) in ATOMS for each in defaults):
            return False
        names = parameters(reader.code)[: reader.code.co_argcount][-len(defaults) :]
        for name, each in zip(names, defaults, strict=True):
            encoding = encode(each)
            if type(each) in numbers.CLASSES:
                label = f"default of {name!r}"
                self._add_number(numbers.Number(reader, "default", (name,), label, each, encoding))
            else:
                self._add_to_form("default", encoding)
        return True

    def _look(
        self, function: FunctionType, loads: CodeSummary, frozen: FrozenFunction
    ) -> tuple[FunctionGuard, list[bytes]]:
        """Read everything a function depends on, each object once, and copy it before encoding it."""
        in_defaults, in_keywords = f"defaults{self._inside}", f"keyword defaults{self._inside}"
        if type(function.__globals__) is not dict:
            raise refusal(f"__globals__{self._inside}", function.__globals__, "It must be a plain dict.")
        cells = {
            name: self._hold_variable(_contents(cell), self._label("closure variable", (name,)))
            for name, cell in zip(loads.code.co_freevars, function.__closure__ or (), strict=True)
        }
        defaults, seen_defaults = self._hold(function.__defaults__, in_defaults)
        keyword_defaults, seen_keyword_defaults = self._hold(function.__kwdefaults__, in_keywords)
        names = {
            name: self._hold_variable(function.__globals__.get(name, MISSING), self._label("global", (name,)))
            for name in dict.fromkeys(chain[0] for chain in loads.globals)
        }
        guard = FunctionGuard(
            loads.code,
            function.__globals__,
            tuple(kept for _, kept in cells.values()),
            seen_defaults,
            seen_keyword_defaults,
            tuple((name, kept) for name, (_, kept) in names.items()),
        )
        in_closure = {name: value for name, (value, _) in cells.items()}
        in_globals = {
            name: self._attribute(builtins, name, f"global {name!r}") if value is MISSING else value
            for name, (value, _) in names.items()
        }
        # Numbers that cupar's own functions read are those of dtypes.
        reader = None if package(function.__globals__.get("__name__")) == "cupar" else frozen
        of_defaults, frozen.defaults = self._within(in_defaults, defaults)
        of_keywords, frozen.keyword_defaults = self._within(in_keywords, keyword_defaults)
        if self._inside or not self._are_numbers(in_defaults, defaults, reader):
            self._add_to_form("defaults", of_defaults)
        self._add_to_form("keyword defaults", of_keywords)
        copies: dict[str, Any] = {}
        encodings = [
            of_defaults,
            of_keywords,
            *self._chains("closure variable", loads.closure, in_closure, copies, reader),
            *self._chains("global", loads.globals, in_globals, frozen.globals, reader),
        ]
        frozen.cells[:] = [copies.get(name, MISSING) for name in loads.code.co_freevars]
        return guard, encodings

    def _hold_variable(self, value: object, where: str) -> tuple[Any, object]:
        """Do the same as `_hold`, except for host arrays that are captured instead of read."""
        if type(value) is np.ndarray and not self._inside and arrays.is_device_array(value):
            return value, CapturedArray(value, where)
        return self._hold(value, where)

    def _hold(self, value: object, where: str) -> tuple[Any, object]:
        """Return a copy that no other code can change, and the part of it that a guard keeps."""
        value = held(value, where)
        return value, seen(value, where)

    def _chains(
        self,
        kind: str,
        chains: Iterable[Chain],
        roots: Mapping[str, Any],
        frozen: dict[str, Any],
        reader: FrozenFunction | None,
    ) -> Iterator[bytes]:
        """Read the value at the end of each chain into the namespace of a frozen function.

        `reader` is the function, None if its numbers stay constants.
        """
        done: set[Chain] = set()
        for chain in chains:
            value, modules = self._follow(roots[chain[0]], chain)
            read = chain[: 1 + len(modules)]
            if read in done:
                continue
            done.add(read)
            label, place = self._label(kind, read), encode((kind, *read))
            if arrays.is_device_array(value) and len(read) == 1 and not self._inside:
                encoding = self._capture(label, read[0], kind, value)
                self._add_to_form("read", place, encoding)
                yield frame("read", place, encoding)
                continue
            before = len(self._form)
            is_function = isinstance(value, FunctionType) or is_dispatcher(value)
            encoding, copy = self._value(label, value) if is_function else self._within(label, value)
            if reader is not None and type(value) in numbers.CLASSES:
                self._add_number(numbers.Number(reader, kind, read, label, value, encoding))
            else:  # what a function reads has been added
                self._add_to_form("read", place, *[encoding] * (before == len(self._form)))
            namespace = frozen
            for name, module in zip(read, modules, strict=False):
                namespace = namespace.setdefault(name, FrozenModule(module)).attributes
            if copy is not MISSING:
                namespace[read[-1]] = copy
            yield frame("read", encode((kind, *read)), encoding)

    def _capture(self, where: str, name: str, kind: str, array: object) -> bytes:
        found, ndim = arrays.view(where, array), len(arrays.shape(array))
        dtype = structs.normal(where, found.dtype)
        is_writable = is_cpu() and found.writable
        self._captures.append(Capture(name, kind == "closure variable", dtype, ndim, is_writable))
        self._parts.append((where, f"device array of {found.dtype}, {ndim} dimensions"))
        return encode_device_array(array, where)

    def _follow(self, value: Any, chain: Chain) -> tuple[Any, list[ModuleType]]:
        """Follow a chain through modules; return the value it ends at, and the modules."""
        modules: list[ModuleType] = []
        for depth, name in enumerate(chain[1:], start=1):
            if not isinstance(value, ModuleType):
                break
            modules.append(value)
            value = self._attribute(value, name, ".".join(chain[: depth + 1]))
        return value, modules

    def _attribute(self, owner: object, name: str, where: str) -> object:
        value, kept = self._hold(getattr(owner, name, MISSING), where + self._inside)
        self._attributes.append((owner, name, kept))
        return value

    def _within(self, where: str, value: object) -> Pair:
        """Read a value that may hold functions, whose numbers stay constants."""
        self._containers += 1
        found = self._value(where, value)
        self._containers -= 1
        return found

    def _value(self, where: str, value: object) -> Pair:
        place = len(self._parts)
        encoding, copy = self._encoder.read(value, where)
        if value is not None:
            self._parts.insert(place, (where, short(value, encoding)))
        return encoding, copy

    def _label(self, kind: str, read: Chain) -> str:
        return (f"{kind} {read[0]!r}" if len(read) == 1 else ".".join(read)) + self._inside


def _refused(function: FrozenFunction, called: bool) -> str:
    """Return a construct that kernels do not support, with the function unless that is the operator."""
    code = function.code
    sentence = unsupported.refusal(code) or ""
    if not sentence or not called:
        return sentence
    return f"in {function.name} ({code.co_filename}:{code.co_firstlineno}): {sentence}"


def _contents(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _described(operator: object) -> str:
    code = getattr(operator, "__code__", None)
    place = f" ({code.co_filename}:{code.co_firstlineno})" if isinstance(code, CodeType) else ""
    return f"operator {getattr(operator, '__qualname__', type(operator).__qualname__)!r}{place}"


# --------------------------------------------------------------------------------------------------
# Fingerprints of operators


class _Scope(BytesIO):
    """A context that ends in C: Ctrl-C at the beginning of an `__exit__` in Python would leave it open.

    Attributes
    ----------
    found : dict
        Fingerprints that its thread made in it, by operators' ids, with these.
    constants : set of Place or None
        While a call is traced, the numbers that its algorithms have as constants.
    """

    found: dict[int, tuple[object, Fingerprint]]
    constants: set[Place] | None


class _InScope(threading.local):
    """The outermost scope of this thread, as long as there is one."""

    scope: Callable[[], _Scope | None] = staticmethod(lambda: None)
    has_traced = False


_this_thread = _InScope()


def fingerprint_scope() -> AbstractContextManager[object]:
    """Return a context in which this thread fingerprints each operator at most once.

    A factory inspects an operator several times: its result, its kind, its compiled code. All of these must
    see the same operator, even if another thread assigns to something it reads meanwhile.
    """
    outer = _this_thread.scope()
    if outer is not None and not outer.closed:
        return nullcontext()
    scope = _Scope()
    scope.found, scope.constants = {}, None
    _this_thread.scope = ref(scope)
    return scope


def constants_of_trace(begin: bool = False) -> set[Place] | None:
    """Return the set for numbers that are constants of a call that is traced; None outside of traces.

    It is that of this thread's scope, which has one from its beginning on, if that is set here.
    """
    scope = _this_thread.scope()
    if scope is None or scope.closed:
        _this_thread.has_traced = False
        return None
    if begin:
        scope.constants, _this_thread.has_traced = set(), True
    return scope.constants


def is_traced() -> bool:
    """Whether a call is traced: memos are not asked for operators that read numbers, which it is to see."""
    return _this_thread.has_traced and constants_of_trace() is not None


def fingerprint(operator: object) -> Fingerprint:
    """Return the fingerprint of an operator; of equal ones, the same compilers make equal code.

    The last fingerprints of each code object are kept, so a repeated call with an unchanged operator costs
    well under a microsecond plus the check of its guard.

    An operator is a Python function or lambda, a function under ``numba.cuda.jit`` or ``numba.njit``, a NumPy
    ufunc, or a function of ``operator`` or ``math``.

    Raises
    ------
    TypeError
        If it is something else.
    Unfingerprintable
        If the operator depends on something that has no exact encoding.
    """
    scope = _this_thread.scope()
    if scope is None or scope.closed:
        return _fingerprint(operator)
    answer = scope.found.get(id(operator))
    if answer is None:
        answer = scope.found[id(operator)] = operator, _fingerprint(operator)
    return answer[1]


def _fingerprint(operator: object) -> Fingerprint:
    key = id(operator.__code__ if isinstance(operator, FunctionType) else operator)
    key = ~key if is_cpu() else key  # where host arrays are captured, and no constants
    recent = _recent.get(key, ())
    for each in recent:
        if each.guard.check(operator):
            return each
    found, size = _Walk().fingerprint(operator)
    if size > _LARGEST or (found.captures and type(operator) is not FunctionType):
        return found  # caching it would keep large copies, or the operator and its arrays, alive
    others = tuple(each for each in recent if each != found)
    _recent[key] = (found, *others[: _VARIANTS - 1])
    return found


# Bounded, because both keep the user's objects alive. They keep the object whose id is the key, too, so no
# other object gets that id.
_KEPT: Final = 512
_VARIANTS: Final = 4  # fingerprints kept for each code object, of closures over different values
_LARGEST: Final = 1 << 16  # bytes of an encoding; a copy of everything the operator reads is kept with it
_known_loads: Bounded[CodeSummary] = of_builds(Bounded(partial(LRUCache, _KEPT)))
_recent: Bounded[tuple[Fingerprint, ...]] = of_builds(Bounded(partial(LRUCache, _KEPT)))


def _loads(code: CodeType) -> CodeSummary:
    loads = _known_loads.get(id(code))
    if loads is None:
        loads = scan(code)
        _known_loads[id(code)] = loads
    return loads
