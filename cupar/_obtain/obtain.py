"""From a specialisation to an algorithm object: from memory, else from the cache, else built.

All factories end with `obtain`. It makes the specialisation, and calls `answer`, by way of an observer if
there is one. `answer` looks into the table in memory, and otherwise calls `produce.produce`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from .. import _cache
from .._base import fork
from .._base.bounded import of_builds
from .._base.data import replace
from .._base.device import is_cpu
from .._base.errors import AbandonedError, ArgumentTypeError, BuildError
from .._base.warnings import warn_once
from .._call.algorithm import Launchable
from .._call.built import Built
from .._compile import inference
from .._compile.key import build_parts, digest, template_parts
from .._device import driver
from .._fingerprint import walk
from .._ir.nodes import Argument
from .._ir.operator import Operator
from .._ir.specialisation import Specialisation
from .._store.memory import SingleFlightCache
from . import produce, tuned
from .target import target

if TYPE_CHECKING:
    from concurrent.futures import Future

    from .._external.linkable import Linkable

A = TypeVar("A", bound=Launchable)

_algorithms: SingleFlightCache[Launchable] = of_builds(SingleFlightCache(maxsize=1024))


class Observer(Protocol):
    """Observer called for each requested specialisation, except memoised ones."""

    @property
    def cc(self) -> int | None:
        """Default compute capability; None: that of the current device."""

    @property
    def is_ahead(self) -> bool:
        """Whether algorithms are only built, not loaded or called here."""

    def observe(self, spec: Specialisation, answer: Callable[[], Launchable]) -> Launchable:
        """Return the algorithm object: that of `answer`, or a replacement."""


class _Unasked:
    """Placeholder for the observer until the first request."""


_unasked = _Unasked()
_naming = fork.Lock()
observer: Observer | _Unasked | None = _unasked


def observed() -> Observer | None:
    """Return the observer; the first request installs the one that a command or the environment names."""
    global observer
    found = observer
    if isinstance(found, _Unasked):
        with _naming:
            found = observer
            if isinstance(found, _Unasked):
                from .. import _observer  # of the package itself, since observers are in a room above

                found = observer = _observer()
    return found


def obtain(
    cls: type[A],
    algorithm: str,
    arguments: Sequence[Argument],
    operators: Mapping[str, Operator],
    cc: Any,
    wait: Any,
    link: Any = None,
    **options: Any,
) -> A:
    """Return an algorithm object: the last step of all factories.

    Parameters
    ----------
    cls : type of Launchable
    algorithm : str
        Its name, as in ``"reduce_into"``.
    arguments, operators, options
        As `Specialisation` has them.
    cc, wait, link
        As for every factory: see `Algorithm`.
    """
    if wait is not True and wait is not False and not isinstance(wait, np.bool_):
        raise ArgumentTypeError("wait", f"expected True or False, got {wait!r}")
    watching = observed()  # read once, because another thread may replace it
    # On the CPU, algorithms are built and called even while builds for a GPU are made ahead.
    of_ahead = None if watching is None or (is_cpu() and watching.is_ahead) else watching.cc
    found, device = target(of_ahead if cc is None else cc)
    kind: Any = cls
    links: tuple[Linkable, ...] = ()
    if link is not None:
        from .._external.files import FileGuard
        from .._external.linkable import argument

        links = argument(link, "link", FileGuard())
    spec = Specialisation(
        kind, algorithm, tuple(arguments), tuple(operators.items()), tuple(options.items()), found, links
    )
    if getattr(_this_thread, "specifies", False):
        raise _SpecifiedError(spec)
    if spec.is_cpu:
        from .._cpu import refusals

        refusals.check(spec)
    inference.refuse_extended(spec, produce.built_on_cpu)
    given = spec, device, bool(wait), _tier(spec, device is not None), device
    if watching is None:
        return answer(*given)  # type: ignore[return-value]
    return watching.observe(spec, lambda: answer(*given))  # type: ignore[return-value]


_this_thread = threading.local()


class _SpecifiedError(Exception):
    """Carries the specialisation out of a factory that is only asked to specify it."""


def specification(factory: Callable[..., Launchable], *args: Any, **named: Any) -> Specialisation:
    """Return the specialisation that a factory would obtain, without obtaining it."""
    unremembered: Any = getattr(factory, "__wrapped__", factory)
    _this_thread.specifies = True
    try:
        with walk.fingerprint_scope():
            unremembered(*args, **named)
    except _SpecifiedError as end:
        found: Specialisation = end.args[0]
        return found
    finally:
        _this_thread.specifies = False
    raise AssertionError(f"{factory} has obtained nothing")


def answer(
    spec: Specialisation,
    device: driver.Device | None,
    wait: bool = True,
    tier: str = "",
    used_on: driver.Device | None = None,
) -> Launchable:
    """Return the algorithm object for a specialisation, with its code loaded if a device is given.

    The first request gets an object of its own, whose `build` says where the code came from. All later ones
    get one object, whose build has the origin ``"memory"``; both have the same code. If operators have state,
    each request gets an object of its own.

    Parameters
    ----------
    spec : Specialisation
    device : Device or None
        Where the code is loaded, the current one; None: it is not loaded.
    wait : bool
        False: the code is built in the background, and loaded by the first caller that waits for it.
    tier : {"", "quick", "fast", "both"}
        What to build of a family with two tiers; empty for others.
    used_on : Device or None
        Where it will be called. A policy that was measured on such a card is built.
    """
    if not wait:
        return class_of(spec)(_Pending(spec, tier, used_on), spec.states)  # type: ignore[no-any-return]
    mine: list[Launchable] = []  # this request's own object, if it has one
    cls = class_of(spec)

    def make() -> Launchable:
        built = _cache.under_one_deadline(
            lambda _: _with_policy(spec, device, used_on) or _built_in_tier(spec, device, tier)
        )
        mine.append(cls(built, spec.states))
        if device is not None:
            mine[0].load()
        return _shared(cls, built)

    found = _algorithms.get_or_make((spec.without_user(), device, tier), make)
    if not mine and any(spec.states):  # the code is shared, the arrays that an operator has captured are not
        mine.append(cls(found._built, spec.states))
    algorithm = mine[0] if mine else found
    _cache.count(algorithm.build.origin)  # type: ignore[arg-type]
    return algorithm


def _built_in_tier(spec: Specialisation, device: driver.Device | None, tier: str) -> Built:
    if tier in ("quick", "both"):
        from . import tiers

        return tiers.build_tier(spec, device, tier)
    return produce.produce(spec, device)


def _with_policy(
    spec: Specialisation, device: driver.Device | None, used_on: driver.Device | None
) -> Built | None:
    """Fetch or make the build with the policy measured on such a card; None if no policy was measured."""
    found = tuned.applied(spec, used_on)
    if found is spec:
        return None
    try:
        return _built_in_tier(found, device, _tier(found, True))
    except BuildError as error:
        message = f"{spec.algorithm} goes on without its tuned policy, {found.option('policy')}: {error}"
        warn_once(("policy", message), message)
        return None


def class_of(spec: Specialisation) -> Any:
    """Return the class of a specialisation's algorithm objects."""
    if spec.is_cpu:
        from .._cpu import calls

        return calls.class_of(spec.algorithm_class)
    return spec.algorithm_class


def _tier(spec: Specialisation, is_called: bool) -> str:
    """Return the tier that a factory builds; empty for algorithms without tiers."""
    family = spec.family
    if family is None or spec.is_cpu or not family.has_quick_tier(spec):
        return ""
    from . import tiers

    return tiers.wanted(is_called)


def _shared(cls: Any, built: Built) -> Launchable:
    """Return the object kept in memory, without a state and with the origin ``"memory"``."""
    build = replace(built.build, origin="memory", seconds={})
    return cls(replace(built, build=build), ())  # type: ignore[no-any-return]


def keep(algorithm: Launchable, device: driver.Device | None) -> None:
    """Put an algorithm's code into memory for `obtain`, for a device; None: for the CPU."""
    built = algorithm._built
    spec = built.spec.as_asked()
    _algorithms.get_or_make((spec, device, _tier(spec, True)), lambda: _shared(type(algorithm), built))


class _Pending:
    """A build in the background."""

    refusal = ""

    def __init__(self, spec: Specialisation, tier: str, used_on: driver.Device | None) -> None:
        from .._jobs.queue import builds

        self.spec = spec
        self._tier, self._used_on = tier, used_on
        self._is_lost = False
        self._made: Built | None = None
        fork.in_child(self._lose)
        self._future: Future[None] = builds.submit(_kernels(spec), self._work)

    def is_done(self) -> bool:
        return self._made is not None or self._future.done()

    def wait(self, timeout: float | None) -> bool:
        from .._jobs.queue import waited_for

        return self._is_lost or self.is_done() or waited_for(self._future, timeout)

    def result(self) -> Built:
        if self._made is None and not self._is_lost and self.wait(None):
            with suppress(AbandonedError):  # not begun, as the process ends; this thread builds it then
                self._future.result()
        if self._made is None:
            self._work()
        assert self._made is not None
        return self._made

    def _work(self) -> None:
        self._made = answer(self.spec, None, tier=self._tier, used_on=self._used_on)._built

    def _lose(self) -> None:
        self._is_lost = self._made is None  # the parent has the thread that builds


def _kernels(spec: Specialisation) -> str:
    """Return the key by which builds in the queue are grouped: the template's, or else the build's."""
    try:
        return digest(build_parts(spec) if spec.is_kernel or spec.is_cpu else template_parts(spec))
    except ImportError:  # a compiler is missing, as the build will say to the caller that waits for it
        return ""
