"""Registries of numba, and a counter that detects new registrations.

A call of a factory with a Python function asks for that number, so registrations are counted, not read.
Where numba's internals look otherwise than expected, nothing is built.
"""

from __future__ import annotations

import functools
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, Final, NamedTuple

from .._base import fork
from .._base.device import is_cpu
from .._base.errors import BuildError, VersionError
from .._base.versions import package_version
from .names import package

lock = fork.Lock()

EXTENDING: Final = "numba.cuda.extending"  # the module imported last of what registrations need
_OF_THE_CPU: Final = ("numba.core.typing.templates", "numba.core.imputils")  # which numba.cuda reads, too
# Where the decorators of numba's extension API put things: each question counts these. To count numba's
# other registries takes microseconds, so questions that memory answers do it no oftener than this.
_OF_CUDA: Final = ("typing.templates", "core.imputils", "cudadecl", "cudaimpl")
_USUAL: Final = (*_OF_THE_CPU, *(f"numba.cuda.{name}" for name in _OF_CUDA))
_SECONDS: Final = 0.01


@contextmanager
def expected_numba() -> Iterator[None]:
    """Fail closed where numba does not look as expected."""
    try:
        yield
    except VersionError:
        raise
    except (AttributeError, ImportError, IndexError, KeyError, TypeError, ValueError) as error:
        versions = " or ".join(f"{name} {package_version(name)}" for name in ("numba-cuda", "numba"))
        raise BuildError(
            f"{versions} is not built as cupar expects ({type(error).__name__}: {error}), so cupar cannot "
            "tell what operators compile to: install a version that it was tested with"
        ) from error


class Compiler(NamedTuple):
    """Where one of numba's compilers keeps what concerns all that it compiles."""

    target: Any
    managers: tuple[Any, ...]  # of data models
    rewrites: Any
    typeof: Any  # the function to which types of constants are registered
    types: Any

    def contexts(self) -> tuple[list[Any], Callable[[], bool]]:
        """Return its contexts for types and for code, if made, and a check that no others were made."""
        target, made = self.target, vars(self.target)
        if "_typingctx" in made:
            typing, code = target._typingctx, target._targetctx
            found = [each for each in (typing, code) if each is not None]
            return found, lambda: target._typingctx is typing and target._targetctx is code
        names = (f"_toplevel_{name}_context" for name in ("typing", "target"))
        count = len(made)
        return [made[name] for name in names if name in made], lambda: len(made) == count


@functools.cache
def compiler(on_cpu: bool) -> Compiler:
    """Return numba's compiler for the CPU, or numba.cuda's; it must be imported."""
    with expected_numba():
        if on_cpu:
            from .. import _numba_cpu as numba

            managers = (numba.data_manager,)
            return Compiler(
                numba.cpu_target, managers, numba.rewrite_registry, numba.typeof_impl, numba.types
            )
        from .._numba import cuda_data_manager, cuda_target, default_manager, rewrite_registry, typeof_impl
        from .._numba import types as types_of_cuda

        both = default_manager, cuda_data_manager
        return Compiler(cuda_target, both, rewrite_registry, typeof_impl, types_of_cuda)


class _Probe:
    """A class whose numba type no other code asks for."""


_PROBE: Final = weakref.ref(_Probe)


class _Watched:
    """The parts of a numba compiler beside registries: contexts, data models, types of classes."""

    def __init__(self, on_cpu: bool) -> None:
        self._compiler = found = compiler(on_cpu)
        types = found.types
        often = itemgetter(types.Integer, types.Boolean, types.Complex, types.Float, types.NamedTuple)
        self.models = functools.partial(often, found.managers[0]._handlers)
        self.types: Any = found.typeof._clear_cache.__self__.data
        self.look()
        if _PROBE not in self.types:
            raise KeyError("typeof has no cache")

    def has_changed(self) -> bool:
        """Whether a data model or the type of a class is another one since `look`."""
        return _PROBE not in self.types or self.models() != self.seen

    def look(self) -> None:
        """Look at data models and types of classes."""
        self.seen = self.models()
        self._compiler.typeof.dispatch(_Probe)

    def growing(self) -> tuple[list[Any], list[Any]]:
        """Return registries that were installed, and all that grows; from then on, watch the contexts."""
        found = self._compiler
        contexts, self.has_same_contexts = found.contexts()
        self.is_whole = len(contexts) == 2  # each is made once
        installed = [each._registries for each in contexts]
        rewrites = [found.rewrites.rewrites[kind] for kind in ("before-inference", "after-inference")]
        grows = [*(each._handlers for each in found.managers), *installed, *rewrites]
        if not all(isinstance(each, (dict, list)) for each in grows):
            raise TypeError("registrations are not in dicts and lists")
        return [each for registries in installed for each in registries], grows


class _Registrations:
    """Counts registrations. Lists and dicts grow with each; typeof's cache is emptied by each.

    A data model may take the place of another one without a trace, so the commonest are compared.
    """

    def __init__(self) -> None:
        self.registries: dict[bool, dict[int, Any]] = {True: {}, False: {}}  # of the CPU and of GPUs, by id
        self._modules = 0  # in `sys.modules` when this last looked; -1: look again
        self._looked_at: set[str] = set()
        self._watched: dict[bool, _Watched] = {}  # of the CPU, and of GPUs
        self._unmade: dict[bool, Callable[[], bool]] = {}  # of those whose contexts are not there yet
        self._all: tuple[Any, ...] = ()
        self._usual: dict[bool, tuple[Any, ...]] = {True: (), False: ()}
        self._usual_sizes = {True: 0, False: 0}
        self._sizes = 0
        self._next = 0.0  # when to count all again
        self._version = 0
        self.look()

    def look(self) -> None:
        """Find the registries of modules that are new, and of numba's contexts."""
        self._modules = len(sys.modules)
        for name in list(sys.modules):
            if name in self._looked_at:
                continue
            if package(name) == "numba":
                module = sys.modules.get(name)
                if getattr(getattr(module, "__spec__", None), "_initializing", False):
                    self._modules = -1  # another thread imports it
                    continue
                values = list(getattr(module, "__dict__", {}).values())
                found = {id(each): each for each in values if _is_registry(each)}
                if not (of_cuda := name.startswith("numba.cuda.")):
                    self.registries[True].update(found)
                if of_cuda or name in _OF_THE_CPU:
                    self.registries[False].update(found)
            self._looked_at.add(name)
        grows: dict[bool, list[Any]] = {True: [], False: []}
        for on_cpu, ready in ((True, "numba"), (False, EXTENDING)):
            if ready in self._looked_at:
                if on_cpu not in self._watched:
                    self._watched[on_cpu] = _Watched(on_cpu)
                installed, grows[on_cpu] = self._watched[on_cpu].growing()
                self.registries[on_cpu].update((id(each), each) for each in installed)
                if not self.registries[on_cpu]:
                    raise TypeError("there are no registries")
        watched = self._watched.items()
        self._unmade = {on_cpu: each.has_same_contexts for on_cpu, each in watched if not each.is_whole}
        for on_cpu, names in ((True, _OF_THE_CPU), (False, _USUAL)):
            modules = (sys.modules[name] for name in names if name in self._looked_at)
            usual = [getattr(each, "builtin_registry", None) or each.registry for each in modules]
            self._usual[on_cpu] = (*_lists(usual), *grows[on_cpu])
        both = {**self.registries[True], **self.registries[False]}
        self._all = (*_lists(both.values()), *grows[True], *grows[False])
        self.count()

    def is_current(self, on_cpu: bool) -> bool:
        """Whether nothing was imported, and no context made, since this looked."""
        if self._modules != len(sys.modules):
            return False
        is_same = self._unmade.get(on_cpu)
        return is_same is None or is_same()

    def count(self) -> int:
        """Return a number that grows when anything was registered anywhere."""
        self._next = time.monotonic() + _SECONDS
        replaced = [each for each in self._watched.values() if each.has_changed()]
        for each in replaced:
            each.look()
        sizes = sum(map(len, self._all))
        self._usual_sizes = {on_cpu: sum(map(len, usual)) for on_cpu, usual in self._usual.items()}
        if replaced or sizes != self._sizes or not self._version:
            self._sizes = sizes
            self._version += 1
        return self._version

    def quick_count(self, on_cpu: bool) -> int:
        """Return the same, at once for registrations in the usual places."""
        watched = self._watched.get(on_cpu)
        if watched is not None and (_PROBE not in watched.types or watched.models() != watched.seen):
            return self.count()
        if sum(map(len, self._usual[on_cpu])) != self._usual_sizes[on_cpu] or time.monotonic() > self._next:
            return self.count()
        return self._version


def _is_registry(value: object) -> bool:
    cls = type(value)
    return cls.__name__ == "Registry" and package(cls.__module__) == "numba" and hasattr(value, "functions")


def _lists(registries: Iterable[Any]) -> list[list[Any]]:
    """Return what registries keep in lists, but for attributes that are set: no operator sets one."""
    kinds = [kind for registry in registries for kind in vars(registry).items()]
    return [each for name, each in kinds if isinstance(each, list) and name != "setattrs"]


_counter: _Registrations | None = None


def epoch(exact: bool = False) -> int:
    """Return a number that grows when anything is registered with numba; 0 while numba is not imported.

    If `exact`, all registries are counted, also those in which only numba registers anything.
    """
    if "numba" not in sys.modules:
        return 0
    found, on_cpu = _counter, is_cpu()
    if found is None or not found.is_current(on_cpu):
        found = _look()
    return found.count() if exact else found.quick_count(on_cpu)


def registries(on_cpu: bool = False) -> list[Any]:
    """Return the registries that a compiler of numba's reads, and those that others made and installed."""
    return list(_look().registries[on_cpu].values())


def _look() -> _Registrations:
    global _counter
    with lock, expected_numba():
        if _counter is None:
            _counter = _Registrations()
        else:
            _counter.look()
        return _counter
