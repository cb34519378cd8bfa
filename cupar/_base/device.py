"""Where algorithms are built and run: on the GPU, or on the CPU where that is asked for.

Never by accident: a host array is an error unless ``cupar.device("cpu")`` or ``CUPAR_DEVICE=cpu`` says
otherwise, or a factory was given ``cc="cpu"``; and a call of what was built for the CPU takes nothing else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from .errors import ArgumentValueError

T = TypeVar("T")

CPU = 0  # in place of a compute capability

_NAMES = {"cpu": True, "cuda": False}


def _from_environment() -> bool | None:
    name = os.environ.get("CUPAR_DEVICE", "").strip().lower()
    if name and name not in _NAMES:
        raise ValueError(f"CUPAR_DEVICE: expected cpu or cuda, got {name!r}")
    return _NAMES.get(name)


_named = _from_environment()  # None: it names no device
_default = bool(_named)
_current: ContextVar[int | None] = ContextVar("cupar_device", default=None)
_CALL = 2  # of the CPU, inside a call of an algorithm built for it


def is_cpu() -> bool:
    """Whether arrays are in host memory, and algorithms for the CPU."""
    found = _current.get()
    return _default if found is None else bool(found)


def has_gpus() -> bool:
    """Whether cupar builds for GPUs on this platform."""
    return sys.platform == "linux"


def refuses_host() -> bool:
    """Whether the GPU is asked for by name, so that arrays in host memory are an error in any case."""
    found = _current.get()
    return (_named is False and not _default) if found is None else not found


def in_cpu_call() -> bool:
    """Whether this is within a call of a build for the CPU."""
    return _current.get() == _CALL


@contextmanager
def device(name: str) -> Iterator[None]:
    """Build for the CPU or the GPU, and take arrays that are there, within the block.

    On the CPU, all algorithms take NumPy's arrays, PyTorch's tensors on the CPU, and whatever else has
    ``__array_interface__`` or DLPack there; streams are accepted and ignored. ``CUPAR_DEVICE=cpu`` in
    the environment does so for the whole process, and ``cc="cpu"`` for one factory.

    Parameters
    ----------
    name : {"cpu", "cuda"}

    Raises
    ------
    ValueError
        If `name` is something else.

    Notes
    -----
    A build stays for its device, wherever it is called.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> items, total = np.arange(10), np.zeros(1, np.int64)
    >>> with cupar.device("cpu"):
    ...     cupar.reduce_into(items, total, lambda a, b: a + b, 0).run(items, total, 10, 0)
    >>> total[0]
    np.int64(45)
    """
    if not isinstance(name, str) or name not in _NAMES:
        raise ArgumentValueError("device", f"expected 'cpu' or 'cuda', got {name!r}")
    token = _current.set(_NAMES[name])
    try:
        yield
    finally:
        _current.reset(token)


def using(is_cpu: bool, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Call a function that takes host arrays, or device arrays.

    It runs in a separate context, which always ends: an interrupt on the way out of a ``with``
    would leave this one set for ever.
    """
    return copy_context().run(_within, is_cpu, function, arguments, named)


def within_cpu_call(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function within a call of a build for the CPU."""
    return copy_context().run(_within, _CALL, function, arguments, {})


def _within(device: int, function: Callable[..., T], arguments: tuple[Any, ...], named: dict[str, Any]) -> T:
    _current.set(device)
    return function(*arguments, **named)


def text(cc: int | str) -> str:
    """Return the target of a build for messages: as in ``"sm_90"``, or ``"the CPU"``."""
    return "the CPU" if cc in (CPU, "cpu") else f"sm_{cc}"


def public(cc: int) -> int | str:
    """Return the target of a build as factories take it: a compute capability, or ``"cpu"``."""
    return "cpu" if cc == CPU else cc
