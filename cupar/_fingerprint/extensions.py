"""What others than numba itself have registered with numba, and whether an operator's code would use it.

``@overload``, ``@lower_builtin``, ``@typeof_impl.register`` and their like change what ``a - b`` compiles to,
and nothing in the bytecode tells. An operator whose code would use such a registration is refused, because no
key could say what the registration does. Compiling shows which operators are concerned: while numba compiles
for cupar, foreign registrations are watched, and one that answers numba is used. So a package that registers
types of its own disturbs nobody, although numba asks its overload of ``abs`` about every ``abs``.

Where numba's internals look otherwise than expected, nothing is built.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from types import FunctionType, MethodType
from typing import Any, Final

import numpy as np

from .._base import fork
from .._base.errors import BuildError
from .._base.versions import package_version
from .values import COMPILERS, Unfingerprintable, compilers_name, package, refusal, type_name

__all__ = ["check", "epoch", "foreign", "watched"]

_ADVICE: Final = (
    "What that compiles to cannot be seen; call a function under @cuda.jit(device=True) instead, or do "
    "without the registration."
)

# Whose registrations are in the key by their versions; the standard library's wrap functions of these.
_OWN: Final = COMPILERS | {"cupar", "abc", "collections", "contextlib", "enum", "functools", "typing"}


@contextmanager
def _known_numba() -> Iterator[None]:
    """Fail closed where numba does not look as expected."""
    try:
        yield
    except (AttributeError, ImportError, IndexError, KeyError, TypeError, ValueError) as error:
        raise BuildError(
            f"numba-cuda {package_version('numba-cuda')} is not built as cupar expects "
            f"({type(error).__name__}: {error}), so cupar cannot tell what operators compile to: install a "
            "version that it was tested with"
        ) from error


# --------------------------------------------------------------------------------------------------
# Whether anything was registered since the last look


class _Probe:
    """A class whose numba type nobody asks for."""


_PROBE: Final = weakref.ref(_Probe)


class _Registered:
    """What registrations go to. Lists and dicts grow with each; typeof's cache is emptied by each.

    A data model may take the place of another one without a trace, so the commonest are compared.
    """

    def __init__(self) -> None:
        self.registries: dict[int, Any] = {}  # by id
        self.modules = 0  # in `sys.modules` when this last looked; -1: look again
        self._looked_at: set[str] = set()
        self._contexts: list[Any] = []
        self._target: Any = None
        self._models: Callable[[], Any] = tuple
        self._seen: Any = ()
        self._types: Any = {_PROBE: None}
        self._all: tuple[Any, ...] = ()
        self._usual: tuple[Any, ...] = ()
        self._sizes = self._usual_sizes = 0
        self._next = 0.0  # when to count all again
        self._version = 0
        self.look()

    def look(self) -> None:
        """Find the registries of modules that are new, and of numba.cuda's contexts."""
        self.modules = len(sys.modules)
        for name in list(sys.modules):
            if name in self._looked_at:
                continue
            if name in _OF_THE_CPU or name.startswith("numba.cuda."):
                module = sys.modules.get(name)
                if getattr(getattr(module, "__spec__", None), "_initializing", False):
                    self.modules = -1  # another thread imports it
                    continue
                values = list(getattr(module, "__dict__", {}).values())
                self.registries.update((id(each), each) for each in values if _is_registry(each))
            self._looked_at.add(name)
        growing = self._look_at_cuda() if _CUDA in self._looked_at else []
        modules = (sys.modules[name] for name in _USUAL if name in self._looked_at)
        usual = [getattr(each, "builtin_registry", None) or each.registry for each in modules]
        self._all = (*_lists(self.registries.values()), *growing)
        self._usual = (*_lists(usual), *growing)
        self.count()

    def _look_at_cuda(self) -> list[Any]:
        from numba.cuda import types
        from numba.cuda.core.rewrites import rewrite_registry
        from numba.cuda.datamodel import default_manager
        from numba.cuda.descriptor import cuda_target
        from numba.cuda.models import cuda_data_manager

        if self._target is None:
            often = itemgetter(types.Integer, types.Boolean, types.Complex, types.Float, types.NamedTuple)
            self._models = functools.partial(often, default_manager._handlers)
            self._types = _typeof()._clear_cache.__self__.data
            self._seen, self._target = self._models(), cuda_target
            _typeof().dispatch(_Probe)
            if _PROBE not in self._types:
                raise KeyError("typeof has no cache")
        self._contexts = [cuda_target._typingctx, cuda_target._targetctx]
        installed = [each._registries for each in self._contexts if each is not None]
        self.registries.update((id(each), each) for known in installed for each in known)
        rewrites = [rewrite_registry.rewrites[kind] for kind in ("before-inference", "after-inference")]
        found = [default_manager._handlers, cuda_data_manager._handlers, *installed, *rewrites]
        if not all(isinstance(each, (dict, list)) for each in found) or not self.registries:
            raise TypeError("registrations are not in dicts and lists")
        return found

    def is_current(self) -> bool:
        """Whether nothing was imported, and no context made, since this looked."""
        if self.modules != len(sys.modules):
            return False
        target, contexts = self._target, self._contexts
        return target is None or (target._typingctx is contexts[0] and target._targetctx is contexts[1])

    def count(self) -> int:
        """Return a number that grows when anything was registered anywhere."""
        self._next = time.monotonic() + _SECONDS
        replaced = self._target is not None and (_PROBE not in self._types or self._models() != self._seen)
        if replaced:
            self._seen = self._models()
            _typeof().dispatch(_Probe)
        sizes, self._usual_sizes = sum(map(len, self._all)), sum(map(len, self._usual))
        if replaced or sizes != self._sizes or not self._version:
            self._sizes = sizes
            self._version += 1
        return self._version

    def epoch(self) -> int:
        """Return the same, at once for what is registered where it usually is."""
        if self._target is not None and (_PROBE not in self._types or self._models() != self._seen):
            return self.count()
        if sum(map(len, self._usual)) != self._usual_sizes or time.monotonic() > self._next:
            return self.count()
        return self._version


def _lists(registries: Iterable[Any]) -> list[list[Any]]:
    """Return what registries keep in lists, but for attributes that are set: no operator sets one."""
    kinds = [kind for registry in registries for kind in vars(registry).items()]
    return [each for name, each in kinds if isinstance(each, list) and name != "setattrs"]


def _typeof() -> Any:
    from numba.cuda.typing.typeof import typeof_impl

    return typeof_impl


_OF_THE_CPU: Final = ("numba.core.typing.templates", "numba.core.imputils")  # which numba.cuda reads, too
# Where the decorators of numba's extension API put things: each question counts these. To count numba.cuda's
# other sixty registries takes 2 microseconds, so questions that memory answers do it no oftener than this.
_OF_CUDA: Final = ("typing.templates", "core.imputils", "cudadecl", "cudaimpl")
_USUAL: Final = (*_OF_THE_CPU, *(f"numba.cuda.{name}" for name in _OF_CUDA))
_SECONDS: Final = 0.01
_registered: _Registered | None = None
_lock = fork.Lock()
_CUDA: Final = "numba.cuda.extending"  # imported last of what is needed here


def epoch(exact: bool = False) -> int:
    """Return a number that grows when anything is registered with numba; 0 while numba is not imported.

    What it costs is paid by each call of a factory with a Python function, so it counts and does not look.

    Parameters
    ----------
    exact : bool, optional
        Count all registries, also those in which nobody but numba registers anything.

    Raises
    ------
    BuildError
        If numba's internals are not those that cupar knows.
    """
    if "numba" not in sys.modules:
        return 0
    found = _registered
    if found is None or not found.is_current():
        found = _look()
    return found.count() if exact else found.epoch()


def _look() -> _Registered:
    global _registered
    with _lock, _known_numba():
        if _registered is None:
            _registered = _Registered()
        else:
            _registered.look()
        return _registered


# --------------------------------------------------------------------------------------------------
# What is foreign


@dataclass(frozen=True)
class _Foreign:
    """Registrations by others than numba.

    Attributes
    ----------
    objects : dict
        By id, the users' own functions and classes to which numba gives another body.
    everywhere : str
        What concerns each operator, empty if nothing does.
    templates : tuple of (class, str)
        Typing of what operators may do without reading an object of the user's, and the methods that answer.
    lowers : int
        How much code there is for such, for casts and for constants.
    typeof : int
        How many classes of the users' have types of theirs.
    """

    objects: dict[int, Any] = field(default_factory=dict)
    everywhere: str = ""
    templates: tuple[tuple[type, str], ...] = ()
    lowers: int = 0
    typeof: int = 0

    @property
    def may_be_used(self) -> bool:
        """Whether an operator could use one of them: then that has to be watched."""
        return bool(self.templates or self.lowers)


_NONE: Final = _Foreign()
_last: tuple[int, _Foreign] = (0, _NONE)


def foreign() -> _Foreign:
    """Return what others than numba have registered with it.

    Raises
    ------
    BuildError
        If numba's internals are not those that cupar knows.
    """
    global _last
    now = epoch(exact=True)
    if _last[0] != now:
        with _lock, _known_numba():
            _last = now, _read()
    return _last[1]


def _read() -> _Foreign:
    objects: dict[int, Any] = {}
    templates: dict[type, str] = {}
    lowers = 0
    for registry in _registries():
        if hasattr(registry, "getattrs"):
            lowers += sum(map(_is_foreign_lowering, _lowerings(registry)))
            continue
        calls = [(template, template.key) for template in registry.functions]
        calls += [
            (template, key) for key, kind in registry.globals for template in getattr(kind, "templates", ())
        ]
        for template, key in calls:
            if _is_foreign_class(template) and not _is_jitable(template, key):
                if not isinstance(key, (str, tuple)) and compilers_name(key) is None:
                    objects[id(key)] = key
                # What is the user's is met only where an operator reads it, and is refused there.
                if not _is_users(key):
                    templates[template] = "apply"
        for template in registry.attributes:
            if _is_foreign_class(template) and not _is_foreign_type(template.key):
                templates[template] = "resolve"
    everywhere, of_classes = _everywhere() if _CUDA in sys.modules else ("", 0)
    return _Foreign(objects, everywhere, tuple(templates.items()), lowers, of_classes)


def _registries() -> list[Any]:
    """Return the registries in numba's modules, and those that others made and installed."""
    return list(_look().registries.values())


def _is_registry(value: object) -> bool:
    cls = type(value)
    return cls.__name__ == "Registry" and package(cls.__module__) == "numba" and hasattr(value, "functions")


def _lowerings(registry: Any) -> list[tuple[Any, Any]]:
    """Return (implementation, signature) of all that a registry lowers."""
    keyed = [*registry.functions, *registry.getattrs, *registry.setattrs]
    return [(impl, sig) for impl, _, sig in keyed] + [*registry.casts, *registry.constants]


def _is_foreign_lowering(entry: tuple[Any, Any]) -> bool:
    impl, signature = entry
    return _is_foreign_function(impl) and not any(map(_is_foreign_type, signature))


def _everywhere() -> tuple[str, int]:
    """Return what concerns each operator, and how many classes of the users' have types of theirs."""
    from numba.cuda.core.rewrites import rewrite_registry
    from numba.cuda.datamodel import default_manager
    from numba.cuda.models import cuda_data_manager

    for rewrites in rewrite_registry.rewrites.values():
        for rewrite in rewrites:
            if _is_foreign_class(rewrite):
                return f"{type_name(rewrite)}, a rewrite of numba's code,", 0
    for manager in (default_manager, cuda_data_manager):
        for kind, model in list(manager._handlers.items()):
            if not _is_foreign_type(kind) and _is_foreign_function(model):
                return f"a data model of {type_name(kind)}", 0
    of_classes = 0
    for cls, handler in list(_typeof().registry.items()):
        if _is_foreign_function(handler):
            # An abstract class may stand for classes that are not the user's, as numbers.Real does.
            if not _is_foreign_type(cls) or any(issubclass(each, cls) for each in _PLAIN):
                return f"a numba type of {type_name(cls)}", 0
            of_classes += 1
    return "", of_classes


# The classes of values that operators read, but for the user's own.
_PLAIN: Final = (
    *(bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, range, slice, np.ndarray),
    *(kind for kind in set(np.sctypeDict.values()) if issubclass(kind, np.generic)),
)


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
    """Whether a type, or the class of one, is none of numba's, so that no operator meets it by itself."""
    cls = kind if isinstance(kind, type) else type(kind)
    return package(cls.__module__) not in _OWN


@functools.cache
def _is_foreign_class(cls: Any) -> bool:
    """Whether others than numba made a class, or what is in it, as the functions under decorators are."""
    for base in cls.__mro__:
        if package(base.__module__) not in _OWN:
            return True
        for name, value in vars(base).items():
            if name == "key":  # what a template is for, and nothing of its own
                continue
            value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
            if isinstance(value, FunctionType) and _is_foreign_function(value):
                return True
    return False


def _is_users(key: Any) -> bool:
    """Whether what a registration is for is a function, class or intrinsic of the user's."""
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
    """Refuse a function or class of the user's that means something else to numba.

    Raises
    ------
    Unfingerprintable
        If so.
    """
    found = foreign()
    if found.everywhere:
        raise refusal(where, value, f"{found.everywhere} is registered with numba by others. {_ADVICE}")
    if id(value) in found.objects:
        raise refusal(where, value, f"It is extended with numba's @overload or the like. {_ADVICE}")
    if found.typeof and isinstance(value, type) and _is_foreign_function(_typeof().dispatch(value)):
        raise refusal(where, value, f"Its numba type is registered by others. {_ADVICE}")


# --------------------------------------------------------------------------------------------------
# What is used


@contextmanager
def watched() -> Iterator[None]:
    """Refuse what is compiled in the block if it uses what others have registered with numba.

    numba's compiler lock must be held.

    Raises
    ------
    Unfingerprintable
        If it does.
    BuildError
        If numba's internals are not those that cupar knows.
    """
    if foreign().everywhere:
        raise Unfingerprintable(f"{foreign().everywhere} is registered with numba by others. {_ADVICE}")
    if not foreign().may_be_used:
        yield
        return
    used: list[str] = []
    with ExitStack() as undo:
        with _known_numba():
            from numba.cuda.descriptor import cuda_target

            target = cuda_target.target_context
            target.refresh()
            for template, method in foreign().templates:
                _watch_template(template, method, used, undo)
            _watch_lowering(target, used, undo)
            # What numba compiled of its own before may have used them, and would not ask again.
            _empty(target.cached_internal_func, undo)
            for registry in _registries():
                for template in () if hasattr(registry, "getattrs") else registry.functions:
                    if hasattr(template, "_impl_cache"):
                        _empty(template._impl_cache, undo)
        try:
            yield
        except Exception:
            if not used:
                raise
    if used:
        raise Unfingerprintable(f"It uses {used[0]}, registered with numba by others. {_ADVICE}")


def _watch_template(template: Any, method: str, used: list[str], undo: ExitStack) -> None:
    answer, thread = getattr(template, method), threading.get_ident()

    def watching(self: Any, *args: Any, **named: Any) -> Any:
        found = answer(self, *args, **named)
        if found is not None and threading.get_ident() == thread:
            used.append(_described(template, args))
        return found

    if method in vars(template):
        undo.callback(setattr, template, method, vars(template)[method])
    else:
        undo.callback(delattr, template, method)
    setattr(template, method, watching)


def _described(template: Any, args: tuple[Any, ...]) -> str:
    key = getattr(template, "_attr", None) or getattr(template, "key", template)
    name = key if isinstance(key, str) else compilers_name(key) or getattr(key, "__name__", repr(key))
    given = args[0] if args and isinstance(args[0], (tuple, list)) else args[:1]
    return f"{name} of ({', '.join(map(str, given))})"


def _watch_lowering(target: Any, used: list[str], undo: ExitStack) -> None:
    keyed = [
        (name, selector)
        for selectors in (target._defns, target._getattrs, target._setattrs)
        for name, selector in list(selectors.items())
    ]
    for name, selector in [*keyed, ("a conversion", target._casts), ("a constant", target._get_constants)]:
        for place, (signature, impl) in enumerate(selector.versions):
            if _is_foreign_lowering((impl, signature)):
                selector._cache.clear()
                undo.callback(selector._cache.clear)
                undo.callback(selector.versions.__setitem__, place, (signature, impl))
                what = name if isinstance(name, str) else compilers_name(name) or repr(name)
                described = f"{what} of ({', '.join(map(str, signature))})"
                selector.versions[place] = signature, _watching(impl, described, used)


def _watching(impl: Any, described: str, used: list[str]) -> Any:
    thread = threading.get_ident()

    @functools.wraps(impl)
    def lower(*args: Any, **named: Any) -> Any:
        if threading.get_ident() == thread:
            used.append(described)
        return impl(*args, **named)

    return lower


def _empty(cache: dict[Any, Any], undo: ExitStack) -> None:
    kept = dict(cache)
    undo.callback(cache.update, kept)
    undo.callback(cache.clear)
    cache.clear()
