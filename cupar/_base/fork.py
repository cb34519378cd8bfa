"""State that a forked child must reset: each module registers its own with `in_child`.

A child has one thread. It inherits locks that others held, work that others had begun, and handles that only
the parent may use or destroy. A fork waits for two kinds of locks that are not cupar's own: LLVM's, and those
of modules that other threads import.
"""

from __future__ import annotations

import _thread
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import _bootstrap
from itertools import count
from types import MethodType
from typing import Any, Final, TypeVar
from weakref import ref

_F = TypeVar("_F", bound=Callable[[], object])

# By number, in the order of their registration. Dead ones are dropped when the table has doubled, and not by
# a callback of their references: in the main thread, an interrupt that arrives in one is lost.
_methods: dict[int, tuple[ref[Any], Callable[[Any], object]]] = {}
_numbers = count()
_many = 1000


def in_child(forget: _F) -> _F:
    """Call `forget` in each child that this process forks. Usable as a decorator.

    There is one order: objects first, then modules, both as they were registered. A module comes after those
    that it imports.

    Parameters
    ----------
    forget : callable
        A function of a module; or a method, one of each object, which is registered as long as the object is
        there.
    """
    if isinstance(forget, MethodType):
        _methods[next(_numbers)] = ref(forget.__self__), forget.__func__
        if len(_methods) > _many:
            _drop_gone()
    elif hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)
    return forget


def _drop_gone() -> None:
    global _many
    for number, (kept, _) in [*_methods.items()]:
        if kept() is None:
            _methods.pop(number, None)
    _many = max(1000, 2 * len(_methods))


class Lock(_thread.RLock):  # type: ignore[misc] # not final, whatever typeshed says
    """A reentrant lock that is free in a forked child, no matter which thread held it in the parent.

    It is the interpreter's own: a signal that arrives while it is taken cannot leave it locked, as it could
    between two lines of an ``__enter__`` in Python.
    """

    def __init__(self) -> None:
        in_child(self._renew)

    def _renew(self) -> None:
        self._at_fork_reinit()  # type: ignore[attr-defined] # as the standard library's own locks do


def leak(values: object) -> None:
    """Never destroy a parent's objects in its child: their GPU handles are not the child's.

    No list would do: the interpreter empties its modules at exit. So they get a reference that nothing gives
    back.
    """
    import ctypes  # 2 ms, which only a forked child pays

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(values))


@in_child
def _forget() -> None:
    # In a list, so that no object is destroyed before it has dropped the parent's resources.
    for each, forget in [(kept(), forget) for kept, forget in _methods.values()]:
        if each is not None:
            forget(each)


# --- Locks that a child could not take -------------------------------------------------------------------

_IMPORTED: Final = {"cupar", "numba", "numba_cuda", "llvmlite", "numpy", "ml_dtypes", "cuda", "cachetools"}
_OFTEN: Final = 100  # a module that another thread imports, which waits for one that this thread imports

_llvms: list[Any] = []  # the lock of LLVM, while a thread forks


def _wait() -> None:
    """Wait until no other thread imports what builds import, and none is within LLVM.

    A child needs LLVM to load builds, whether or not others compile. A module that another thread imports
    would stay half-imported and locked in the child. Only modules of the standard library and of `_IMPORTED`
    are waited for: importing a program's own may take for ever, or wait for this thread.
    """
    waited: Counter[str] = Counter()
    while True:
        lock = getattr(getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None), "_lock", None)
        if lock is not None:
            lock.__enter__()
            _llvms.append(lock)
        name = next((each for each in _imported_by_others() if waited[each] < _OFTEN), None)
        if name is None:
            return
        _let_go()
        waited[name] += 1
        with _others_log():
            _bootstrap._lock_unlock_module(name)  # type: ignore[attr-defined] # waits as imports do


def _imported_by_others() -> Iterator[str]:
    """Yield the modules, among those that a child may import, that other threads are importing."""
    me = _thread.get_ident()
    for name, kept in [*getattr(_bootstrap, "_module_locks", {}).items()]:
        lock, package = kept(), name.partition(".")[0]
        owner = getattr(lock, "owner", None)
        if owner not in (None, me) and (package in _IMPORTED or package in sys.stdlib_module_names):
            yield name


@contextmanager
def _others_log() -> Iterator[None]:
    """Let others take the lock of `logging`, which takes it before a fork, and numba as it is imported."""
    lock: Any = getattr(sys.modules.get("logging"), "_lock", None)
    held = lock._release_save() if lock is not None and lock._is_owned() else None
    try:
        yield
    finally:
        if held is not None:
            lock._acquire_restore(held)


def _let_go() -> None:
    while _llvms:
        _llvms.pop().__exit__(None, None, None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait, after_in_parent=_let_go, after_in_child=_let_go)
