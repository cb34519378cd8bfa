"""Kernels in two tiers: some that link quickly run at once, until the fastest ones are linked.

Where a family's fastest kernels take the linker seconds, it has others for the same
(`Family.has_quick_tier`). Those are built first, and called; the fast ones are linked in the background, by a
helper process, and take their place between two calls. They are kept under the key of the specialisation as
it was asked for, so every later process finds them first. The quick ones are another specialisation, with an
option more.

Building ahead makes the fast one. ``CUPAR_TIER`` pins one tier for what factories build.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any
from weakref import WeakSet

from .._base import fork, log
from .._base.data import replace
from .._base.warnings import warn_once
from .._call.built import Built
from .._compile import entries
from .._compile.key import build_parts, digest, template_parts
from .._device import driver
from .._ir.specialisation import Specialisation
from .._jobs.queue import upgrades, waited_for
from .._jobs.threads import step
from . import produce


def wanted(is_called: bool) -> str:
    """Return the tier that factories build: ``"quick"``, ``"fast"``, or ``"both"`` if it is called here."""
    pinned = os.environ.get("CUPAR_TIER", "").strip().lower()
    if pinned not in ("", "quick", "fast"):
        warn_once(
            ("CUPAR_TIER", pinned), f"CUPAR_TIER is {pinned!r} and should be quick or fast. cupar uses both."
        )
        pinned = ""
    return pinned or ("both" if is_called else "fast")


def build_tier(spec: Specialisation, device: driver.Device | None, tier: str) -> Built:
    """Fetch or make the build of a tier; for "both" the fast one if it is kept, else the quick one first."""
    if tier == "quick":
        return produce.produce(spec.quick(), device)
    found = entries.find(build_parts(spec))
    if found is not None:
        return produce.produce(spec, device, found=found)
    operators: produce.Operators = {}
    make = partial(produce.build_here, operators=operators)
    built = produce.produce(spec.quick(), device, make)
    return replace(built, faster=_Upgrade(spec, built, operators))


class _Upgrade:
    """The fast build that replaces a quick one in use."""

    def __init__(self, spec: Specialisation, before: Built, operators: produce.Operators) -> None:
        self._before = before
        self._made: Built | None = None
        self._algorithms: WeakSet[Any] = WeakSet()
        self._lock = fork.Lock()
        # What makes it, with what the user gave; None once that was done.
        self._make: Callable[[], Built] | None = partial(_fast, spec, operators)
        fork.in_child(self._lose)
        self._future: Future[None] | None = upgrades.submit(digest(template_parts(spec)), self._work)

    def follow(self, algorithm: Any) -> None:
        """Give an algorithm object the code as soon as it is available."""
        with self._lock:
            self._algorithms.add(algorithm)
            made = self._made
        if made is not None:
            algorithm._replace(made)

    def wait(self, timeout: float | None) -> bool:
        """Wait until it is there, or for some seconds; return whether it is. Raise the error of the build."""
        future = self._future
        if future is None:
            self._work()
        elif not (future.done() or waited_for(future, timeout)):
            return False
        else:
            future.result()
        return True

    def _work(self) -> None:
        """Build the code, load it in the contexts of the quick build, and replace that."""
        name = self._before.build.algorithm
        try:
            if self._make is None:
                return
            made = self._make()
            with step():
                self._load(made)
        except Exception as error:
            log.info("%s goes on with its quick code: %s", name, error)
            raise
        finally:
            self._make = None
        with self._lock:
            self._made = made
            algorithms = list(self._algorithms)
        for algorithm in algorithms:
            algorithm._replace(made)
        with step():
            self._load(made)  # where the quick one was loaded meanwhile
            for context in filter(driver.is_there, self._before.code.contexts):
                with driver.in_background(context):
                    self._before.code.release_spares(context)
        log.info("%s has its fast code now, key %s", name, made.build.key)

    def _load(self, made: Built) -> None:
        """Load the code in contexts that need no user's thread; elsewhere, the next call loads it."""
        for context in filter(driver.is_there, self._before.code.contexts):
            with driver.in_background(context):
                made.code.loaded(context)

    def _lose(self) -> None:
        if self._make is not None:
            self._future = None  # the parent has the thread that builds; here, those who wait do it


def _fast(spec: Specialisation, operators: produce.Operators) -> Built:
    make = partial(produce.build_with_helper, operators=operators)
    return produce.produce(spec, None, make)
