"""Where registrations with numba go, and a number that tells whether there are new ones.

A call of a factory with a Python function asks for that number, so what is registered is counted, not read.
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
from typing import Any, Final

from .._base import fork
from .._base.errors import BuildError
from .._base.versions import package_version
from .names import package

lock = fork.Lock()

EXTENDING: Final = "numba.cuda.extending"  # the module imported last of what registrations need
_OF_THE_CPU: Final = ("numba.core.typing.templates", "numba.core.imputils")  # which numba.cuda reads, too
# Where the decorators of numba's extension API put things: each question counts these. To count numba.cuda's
# other sixty registries takes 2 microseconds, so questions that memory answers do it no oftener than this.
_OF_CUDA: Final = ("typing.templates", "core.imputils", "cudadecl", "cudaimpl")
_USUAL: Final = (*_OF_THE_CPU, *(f"numba.cuda.{name}" for name in _OF_CUDA))
_SECONDS: Final = 0.01


@contextmanager
def expected_numba() -> Iterator[None]:
    """Fail closed where numba does not look as expected."""
    try:
        yield
    except (AttributeError, ImportError, IndexError, KeyError, TypeError, ValueError) as error:
        raise BuildError(
            f"numba-cuda {package_version('numba-cuda')} is not built as cupar expects "
            f"({type(error).__name__}: {error}), so cupar cannot tell what operators compile to: install a "
            "version that it was tested with"
        ) from error


def typeof() -> Any:
    """Return the function to which types of constants are registered."""
    from .._numba import typeof_impl

    return typeof_impl


class _Probe:
    """A class whose numba type nobody asks for."""


_PROBE: Final = weakref.ref(_Probe)


class _Counter:
    """Counts registrations. Lists and dicts grow with each; typeof's cache is emptied by each.

    A data model may take the place of another one without a trace, so the commonest are compared.
    """

    def __init__(self) -> None:
        self.registries: dict[int, Any] = {}  # by id
        self._modules = 0  # in `sys.modules` when this last looked; -1: look again
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
        self._modules = len(sys.modules)
        for name in list(sys.modules):
            if name in self._looked_at:
                continue
            if name in _OF_THE_CPU or name.startswith("numba.cuda."):
                module = sys.modules.get(name)
                if getattr(getattr(module, "__spec__", None), "_initializing", False):
                    self._modules = -1  # another thread imports it
                    continue
                values = list(getattr(module, "__dict__", {}).values())
                self.registries.update((id(each), each) for each in values if _is_registry(each))
            self._looked_at.add(name)
        growing = self._look_at_cuda() if EXTENDING in self._looked_at else []
        modules = (sys.modules[name] for name in _USUAL if name in self._looked_at)
        usual = [getattr(each, "builtin_registry", None) or each.registry for each in modules]
        self._all = (*_lists(self.registries.values()), *growing)
        self._usual = (*_lists(usual), *growing)
        self.count()

    def _look_at_cuda(self) -> list[Any]:
        from .._numba import cuda_data_manager, cuda_target, default_manager, rewrite_registry, types

        if self._target is None:
            often = itemgetter(types.Integer, types.Boolean, types.Complex, types.Float, types.NamedTuple)
            models = functools.partial(often, default_manager._handlers)
            types_of_classes = typeof()._clear_cache.__self__.data
            typeof().dispatch(_Probe)
            if _PROBE not in types_of_classes:
                raise KeyError("typeof has no cache")
            self._types, self._seen, self._models = types_of_classes, models(), models
            self._target = cuda_target
        self._contexts = [cuda_target._typingctx, cuda_target._targetctx]
        installed = [each._registries for each in self._contexts if each is not None]
        self.registries.update((id(each), each) for found in installed for each in found)
        rewrites = [rewrite_registry.rewrites[kind] for kind in ("before-inference", "after-inference")]
        found = [default_manager._handlers, cuda_data_manager._handlers, *installed, *rewrites]
        if not all(isinstance(each, (dict, list)) for each in found) or not self.registries:
            raise TypeError("registrations are not in dicts and lists")
        return found

    def is_current(self) -> bool:
        """Whether nothing was imported, and no context made, since this looked."""
        if self._modules != len(sys.modules):
            return False
        target, contexts = self._target, self._contexts
        return target is None or (target._typingctx is contexts[0] and target._targetctx is contexts[1])

    def count(self) -> int:
        """Return a number that grows when anything was registered anywhere."""
        self._next = time.monotonic() + _SECONDS
        replaced = _PROBE not in self._types or self._models() != self._seen
        if replaced:
            self._seen = self._models()
            typeof().dispatch(_Probe)
        sizes, self._usual_sizes = sum(map(len, self._all)), sum(map(len, self._usual))
        if replaced or sizes != self._sizes or not self._version:
            self._sizes = sizes
            self._version += 1
        return self._version

    def quick_count(self) -> int:
        """Return the same, at once for what is registered where it usually is."""
        if _PROBE not in self._types or self._models() != self._seen:  # no method: each call waits for this
            return self.count()
        if sum(map(len, self._usual)) != self._usual_sizes or time.monotonic() > self._next:
            return self.count()
        return self._version


def _is_registry(value: object) -> bool:
    cls = type(value)
    return cls.__name__ == "Registry" and package(cls.__module__) == "numba" and hasattr(value, "functions")


def _lists(registries: Iterable[Any]) -> list[list[Any]]:
    """Return what registries keep in lists, but for attributes that are set: no operator sets one."""
    kinds = [kind for registry in registries for kind in vars(registry).items()]
    return [each for name, each in kinds if isinstance(each, list) and name != "setattrs"]


_counter: _Counter | None = None


def epoch(exact: bool = False) -> int:
    """Return a number that grows when anything is registered with numba; 0 while numba is not imported.

    If `exact`, all registries are counted, also those in which nobody but numba registers anything.
    """
    if "numba" not in sys.modules:
        return 0
    found = _counter
    if found is None or not found.is_current():
        found = _look()
    return found.count() if exact else found.quick_count()


def registries() -> list[Any]:
    """Return the registries in numba's modules, and those that others made and installed."""
    return list(_look().registries.values())


def _look() -> _Counter:
    global _counter
    with lock, expected_numba():
        if _counter is None:
            _counter = _Counter()
        else:
            _counter.look()
        return _counter
