"""Builds that a program will need, brought to the device before its work starts."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from .._base.device import CPU, is_cpu
from .._base.errors import BuildError
from .._base.warnings import warn_once
from .._call.algorithm import Algorithm, Launchable
from .._device import driver
from .._ir.specialisation import Specialisation
from .._obtain import obtain
from .._obtain.target import target

T = TypeVar("T")


def preload(*what: Algorithm | str | os.PathLike[str]) -> None:
    """Load the code of algorithms onto the current device, so that no call of theirs waits for it.

    Factories with ``wait=False`` and this at the end build many algorithms at once, from disk or anew, before
    a program's work starts. So does a list that `cupar.record` wrote in an earlier run: then each factory
    call that is in it finds its build in memory.

    Parameters
    ----------
    *what : Algorithm or path
        Algorithm objects, and recorded lists. What a list has for other compute capabilities is taken for
        the current device's; what it has for the CPU is loaded there, and nothing else where that is the
        current device. Reading a list runs its content, as with a script.

    Raises
    ------
    TypeError
        If one of them is something else.
    RecordError, OSError
        If a path is not that of a recorded list (`RecordError` is a ``ValueError``), or cannot be read.
    NoDeviceError
        If there is no GPU, for anything but builds for the CPU.

    Warns
    -----
    CacheWarning
        Of each line of a list that cannot be built, as when an operator of its has changed: the program
        builds what it needs instead when it asks for it.

    Examples
    --------
    >>> import cupar
    >>> sums = [cupar.reduce_into(t, t, cupar.OpKind.PLUS, 0, cc=90, wait=False) for t in ("i4", "i8")]
    >>> cupar.preload(*sums)  # doctest: +SKIP

    The first run with ``CUPAR_RECORD=asked.jsonl`` in its environment, and each later one with

    >>> cupar.preload("asked.jsonl")  # doctest: +SKIP
    """
    for each in what:
        if not isinstance(each, (Launchable, str, os.PathLike)):
            raise TypeError(
                f"what: expected algorithm objects and paths of recorded lists, got {type(each).__name__}"
            )
    paths = dict.fromkeys(os.fspath(each) for each in what if not isinstance(each, Launchable))
    observer = obtain.observed()
    if observer is not None and observer.is_ahead:
        for place, spec in _listed(paths, observer.cc):
            _attempt(place, observer.observe, spec, functools.partial(obtain.answer, spec, None))
        return
    begun = [
        (place, _attempt(place, obtain.answer, spec, None, False, "", _device(spec)))
        for place, spec in _listed(paths)
    ]
    for each in what:
        if isinstance(each, Launchable):
            _load(each)
    for place, algorithm in begun:
        if algorithm is not None:
            _attempt(place, _load, algorithm)


def _device(spec: Specialisation) -> driver.Device | None:
    return None if spec.is_cpu else driver.current_device()


def _listed(paths: Iterable[str], cc: int | None = None) -> list[tuple[str, Specialisation]]:
    """Return what recorded lists have, for one compute capability and each once, with its place.

    That is by default the current device's. On the CPU, requests for GPUs are left out.
    """
    from . import record

    found: dict[Specialisation, tuple[str, Specialisation]] = {}
    requests = [each for path in paths for each in record.read(path)]
    if is_cpu():
        requests = [each for each in requests if each.cc == CPU]
    elif any(each.cc != CPU for each in requests):
        cc, _ = target(cc)
    for request in requests:
        spec = _attempt(request.place, request.load, cc)
        if spec is not None:
            found.setdefault(spec.without_user(), (request.place, spec))
    return list(found.values())


def _attempt(place: str, do: Callable[..., T], *args: Any) -> T | None:
    """Do something for a line of a recorded list, or else warn: builds that are not there are made later."""
    try:
        return do(*args)
    except Exception as error:  # builders and code in a list may raise anything
        why = str(error).removeprefix(f"{place}: ")
        warn_once(("preload", place), f"{place}: not preloaded, but built when asked for: {why}")
        return None


def _load(algorithm: Launchable) -> None:
    """Load an algorithm's code onto the current device or the CPU, and let factories find it there."""
    if algorithm.build.tier == "quick":
        with suppress(BuildError, driver.DriverError):  # then the quick kernels stay
            algorithm.ready(tier="fast")
    algorithm.load()
    obtain.keep(algorithm, _device(algorithm._spec))
