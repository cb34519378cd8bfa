"""Registrations with numba by other packages, and whether an operator's code would use them.

``@overload``, ``@lower_builtin``, ``@typeof_impl.register`` and their like change what ``a - b`` compiles to,
and nothing in the bytecode tells. An operator whose code would use such a registration is refused, because no
key could say what the registration does. Compiling shows which operators are concerned: while numba compiles
for cupar, each answer of a foreign registration is noted, for numba uses it. So a package that registers
types of its own affects no operator, although numba asks its overload of ``abs`` about every ``abs``.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FunctionType, MethodType
from typing import Any, Final

import numpy as np

from .._base.data import dataclass
from .._base.device import is_cpu
from .names import COMPILERS, compilers_name, package, type_name
from .refusals import Unfingerprintable, refusal
from .registries import EXTENDING, Compiler, compiler, epoch, expected_numba, lock, registries

__all__ = ["check", "epoch", "foreign", "refuse_foreign"]

_ADVICE: Final = (
    "What that compiles to cannot be seen; put it into a function that the operator calls, or do without the "
    "registration."
)

# Whose registrations are in the key by their versions; the standard library's wrap functions of these.
_OWN: Final = COMPILERS | {"cupar", "abc", "collections", "contextlib", "enum", "functools", "typing"}

# The classes of values that operators read, but for the user's own.
_PLAIN: Final = (
    *(bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, range, slice, np.ndarray),
    *(kind for kind in set(np.sctypeDict.values()) if issubclass(kind, np.generic)),
)


@dataclass(frozen=True)
class _Foreign:
    """Registrations by others than numba."""

    objects: dict[int, Any]  # by id, the users' own functions and classes to which numba gives another body
    everywhere: str  # what concerns each operator, empty if nothing does
    # Typing of operations that need no object of the user's, and the methods that do it.
    templates: tuple[tuple[type, str], ...]
    lowers: int  # number of lowerings of such, of casts and of constants
    typeof: int  # number of users' classes with types of their own

    @property
    def may_be_used(self) -> bool:
        """Whether an operator could use one of them: only compiling it tells."""
        return bool(self.templates or self.lowers)


_NOTHING: Final = 0, _Foreign({}, "", (), 0, 0)
_last: dict[bool, tuple[int, _Foreign]] = {}


def foreign(on_cpu: bool = False) -> _Foreign:
    """Return registrations with numba's compiler for GPUs, or for the CPU, that are not numba's own."""
    now = epoch(exact=True)
    last = _last.get(on_cpu, _NOTHING)
    if last[0] != now:
        with lock, expected_numba():
            last = _last[on_cpu] = now, _read(on_cpu)
    return last[1]


def _read(on_cpu: bool) -> _Foreign:
    objects: dict[int, Any] = {}
    templates: dict[type, str] = {}
    lowers = 0
    for registry in registries(on_cpu):
        if hasattr(registry, "getattrs"):
            lowers += sum(_is_foreign_lowering(*each) for each in _lowerings(registry))
            continue
        calls = [(template, template.key) for template in registry.functions]
        calls += [
            (template, key) for key, kind in registry.globals for template in getattr(kind, "templates", ())
        ]
        for template, key in calls:
            if _is_foreign_class(template) and not _is_jitable(template, key):
                if not isinstance(key, (str, tuple)) and compilers_name(key) is None:
                    objects[id(key)] = key
                # An operator must read a user's object to use it, and is refused there.
                if not _is_users(key):
                    templates[template] = "apply"
        for template in registry.attributes:
            if _is_foreign_class(template) and not _is_foreign_type(template.key):
                templates[template] = "resolve"
    everywhere, of_classes = "", 0
    if ("numba" if on_cpu else EXTENDING) in sys.modules:
        everywhere, of_classes = _everywhere(compiler(on_cpu))
    return _Foreign(objects, everywhere, tuple(templates.items()), lowers, of_classes)


def _lowerings(registry: Any) -> list[tuple[Any, Any]]:
    """Return (implementation, signature) of all that a registry lowers."""
    keyed = [*registry.functions, *registry.getattrs, *registry.setattrs]
    return [(impl, sig) for impl, _, sig in keyed] + [*registry.casts, *registry.constants]


def _is_foreign_lowering(impl: Any, signature: Any) -> bool:
    return _is_foreign_function(impl) and not any(map(_is_foreign_type, signature))


def _everywhere(of: Compiler) -> tuple[str, int]:
    """Return the registrations that concern every operator, and the number of users' classes with types."""
    for rewrites in of.rewrites.rewrites.values():
        for rewrite in rewrites:
            if _is_foreign_class(rewrite):
                return f"{type_name(rewrite)}, a rewrite of numba's code,", 0
    for manager in of.managers:
        for kind, model in list(manager._handlers.items()):
            if not _is_foreign_type(kind) and _is_foreign_function(model):
                return f"a data model of {type_name(kind)}", 0
    of_classes = 0
    for cls, handler in list(of.typeof.registry.items()):
        if _is_foreign_function(handler):
            # An abstract class may stand for classes that are not the user's, as numbers.Real does.
            if not _is_foreign_type(cls) or any(issubclass(each, cls) for each in _PLAIN):
                return f"a numba type of {type_name(cls)}", 0
            of_classes += 1
    return "", of_classes


def _is_jitable(template: Any, key: Any) -> bool:
    """Whether this is what ``register_jitable`` registers: a function as its own body."""
    body = getattr(template, "_overload_func", None)
    return (
        isinstance(body, FunctionType)
        and body.__qualname__ == "register_jitable.<locals>.wrap.<locals>.ov_wrap"
        and package(body.__globals__.get("__name__")) == "numba"
        and any(cell.cell_contents is key for cell in body.__closure__ or ())
        and template._jit_options.keys() <= {"inline", "no_cpython_wrapper", "nopython"}
        and bool(template._inline.is_never_inline)
    )


def _is_foreign_type(kind: Any) -> bool:
    """Whether a type, or a class of types, is not numba's, so that operators only meet it explicitly."""
    cls = kind if isinstance(kind, type) else type(kind)
    return package(cls.__module__) not in _OWN


@functools.cache
def _is_foreign_class(cls: Any) -> bool:
    """Whether others than numba made a class or its members, as functions under decorators are."""
    for base in cls.__mro__:
        if package(base.__module__) not in _OWN:
            return True
        for name, value in vars(base).items():
            if name == "key":  # the subject of a template, not a part of it
                continue
            value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
            if isinstance(value, FunctionType) and _is_foreign_function(value):
                return True
    return False


def _is_users(key: Any) -> bool:
    """Whether a registration is for a function, class or intrinsic of the user's."""
    key = getattr(key, "_defn", key)
    return isinstance(key, (FunctionType, type)) and _is_foreign_function(key)


def _is_foreign_function(value: Any, depth: int = 0) -> bool:
    """Whether others than numba wrote a function, or one that it wraps."""
    if isinstance(value, functools.partial):
        value = value.func
    if isinstance(value, MethodType):
        value = value.__func__
    if isinstance(value, type):
        return _is_foreign_class(value)
    if not isinstance(value, FunctionType):
        return package(getattr(type(value), "__module__", "")) not in _OWN
    if package(value.__globals__.get("__name__")) not in _OWN:
        return True
    for cell in value.__closure__ or ():
        try:
            inner = cell.cell_contents
        except ValueError:
            continue
        if isinstance(inner, FunctionType) and depth < 4 and _is_foreign_function(inner, depth + 1):
            return True
    return False


def check(value: Any, where: str) -> None:
    """Refuse a function or class of the user's that means something else to numba."""
    found = foreign(is_cpu())
    if found.everywhere:
        raise refusal(where, value, f"{found.everywhere} is registered with numba by others. {_ADVICE}")
    if id(value) in found.objects:
        raise refusal(where, value, f"It is extended with numba's @overload or the like. {_ADVICE}")
    if (
        found.typeof
        and isinstance(value, type)
        and _is_foreign_function(compiler(is_cpu()).typeof.dispatch(value))
    ):
        raise refusal(where, value, f"Its numba type is registered by others. {_ADVICE}")


# --------------------------------------------------------------------------------------------------
# Registrations that are used


@contextmanager
def refuse_foreign(context: Any = None, subject: str = "") -> Iterator[None]:
    """Refuse code compiled in the block if it uses registrations of others than numba.

    numba's compiler lock must be held. `context` is the target context that compiles for the CPU; None: it is
    numba.cuda's. `subject` is what the error names, if the caller does not.
    """
    on_cpu = context is not None
    found = foreign(on_cpu)
    if found.everywhere:
        raise Unfingerprintable(f"{found.everywhere} is registered with numba by others. {_ADVICE}")
    if not found.may_be_used:
        yield
        return
    used: list[str] = []
    with ExitStack() as undo:
        with expected_numba():
            target = compiler(on_cpu).target.target_context if context is None else context
            target.refresh()
            for template, method in foreign(on_cpu).templates:
                _note_answers(template, method, used, undo)
            _note_lowering(target, used, undo)
            # numba's own functions that were compiled before may have used them, and are not typed again.
            _empty(target.cached_internal_func, undo)
            _empty(getattr(target.typing_context, "known", {}), undo)
            for registry in registries(on_cpu):
                for template in () if hasattr(registry, "getattrs") else registry.functions:
                    if hasattr(template, "_impl_cache"):
                        _empty(template._impl_cache, undo)
        try:
            yield
        except Unfingerprintable:  # of a block within
            raise
        except Exception:
            if not used:
                raise
    if used:
        subject = f"{subject}: " if subject else ""
        raise Unfingerprintable(f"{subject}It uses {used[0]}, registered with numba by others. {_ADVICE}")


def _note_answers(template: Any, method: str, used: list[str], undo: ExitStack) -> None:
    """Have a template record its answers to this thread."""
    answer, thread = getattr(template, method), threading.get_ident()

    def noting(self: Any, *args: Any, **named: Any) -> Any:
        found = answer(self, *args, **named)
        if found is not None and threading.get_ident() == thread:
            key = getattr(template, "_attr", None) or getattr(template, "key", template)
            given = args[0] if args and isinstance(args[0], (tuple, list)) else args[:1]
            used.append(_call_of(key, given))
        return found

    if method in vars(template):
        undo.callback(setattr, template, method, vars(template)[method])
    else:
        undo.callback(delattr, template, method)
    setattr(template, method, noting)


def _note_lowering(target: Any, used: list[str], undo: ExitStack) -> None:
    """Have foreign code that lowers something note that this thread asks for it."""
    keyed = [
        (name, selector)
        for selectors in (target._defns, target._getattrs, target._setattrs)
        for name, selector in dict(selectors).items()  # a copy: the garbage collector may remove items
    ]
    for name, selector in [*keyed, ("a conversion", target._casts), ("a constant", target._get_constants)]:
        for place, (signature, impl) in enumerate(selector.versions):
            if _is_foreign_lowering(getattr(impl, "noted", impl), signature):
                selector._cache.clear()
                undo.callback(selector._cache.clear)
                undo.callback(selector.versions.__setitem__, place, (signature, impl))
                selector.versions[place] = signature, _noting(impl, _call_of(name, signature), used)


def _noting(impl: Callable[..., Any], call: str, used: list[str]) -> Any:
    thread = threading.get_ident()

    @functools.wraps(impl)
    def lower(*args: Any, **named: Any) -> Any:
        if threading.get_ident() == thread:
            used.append(call)
        return impl(*args, **named)

    lower.noted = getattr(impl, "noted", impl)  # type: ignore[attr-defined]
    return lower


def _call_of(function: Any, signature: Any) -> str:
    name = function if isinstance(function, str) else compilers_name(function)
    name = name or getattr(function, "__name__", None) or repr(function)
    return f"{name} of ({', '.join(map(str, signature))})"


def _empty(cache: dict[Any, Any], undo: ExitStack) -> None:
    kept = dict(cache)
    undo.callback(cache.update, kept)
    undo.callback(cache.clear)
    cache.clear()
