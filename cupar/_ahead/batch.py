"""Building ahead of time: all requests of a script or a recorded list, without a GPU.

While a script runs, factories build nothing. What they would have built is collected, and built afterwards
for each compute capability, in helper processes (see `_jobs.pool`). So a compiler that crashes takes
one build with it.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from .. import _cache
from .._base.data import dataclass, replace
from .._base.device import text
from .._base.errors import BuildError
from .._base.warnings import warn_once
from .._base.words import message
from .._call.algorithm import Launchable
from .._call.built import Built
from .._compile import workers
from .._compile.key import build_parts, digest, template_parts
from .._ir.specialisation import Specialisation
from .._jobs.helpers import Helper, HelperError
from .._jobs.pool import Crew
from .._obtain import factory_cache, obtain
from . import record
from .make import Outcome, made_by, make

_TICK_SECONDS = 0.1
_GRACE_SECONDS = 1.0
_STDERR = 2


# --- Requests ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """A request that failed: where, and why."""

    place: str
    error: str


class _Collector:
    """Collects requests to factories, instead of building; `cc` is for requests without one."""

    is_ahead = True

    def __init__(self, cc: int | None) -> None:
        self.cc = cc
        self.found: list[Specialisation] = []

    def observe(self, spec: Specialisation, answer: Callable[[], Launchable]) -> Launchable:
        if spec.is_cpu:
            return answer()
        self.found.append(spec)
        return unbuilt(spec)


def collected(ask: Callable[[], object], cc: int) -> list[Specialisation]:
    """Return the specialisations that a function requests, while factories build nothing."""
    usual, collector = obtain.observer, _Collector(cc)
    factory_cache.forget()
    obtain.observer = collector
    try:
        ask()
    finally:
        obtain.observer = usual
    return collector.found


NOTHING_RUNS = (
    "building ahead runs nothing on a GPU: record a run on a machine that has one (CUPAR_RECORD=FILE) and "
    "build that list, or let the script ask with dtypes in place of arrays, and not call what it gets"
)


def unbuilt(spec: Specialisation) -> Launchable:
    """Return an algorithm object that is built if the script looks into it."""
    kind: Any = spec.algorithm_class
    algorithm: Launchable = kind(_Unbuilt(spec), spec.states)
    return algorithm


class _Unbuilt:
    """A build that is made when it is read."""

    refusal = NOTHING_RUNS

    def __init__(self, spec: Specialisation) -> None:
        self.spec = spec

    def is_done(self) -> bool:
        return False

    def wait(self, timeout: float | None) -> bool:
        return True

    def result(self) -> Built:
        # In a helper process, as all others: a compiler that crashes takes this build with it alone.
        with closing(build(jobs([self.spec]), 1)) as outcomes:
            for _, outcome in outcomes:
                if outcome.result == "failed":
                    raise BuildError(outcome.error)
        return replace(obtain.answer(self.spec, None)._built, refusal=NOTHING_RUNS)


def ask_list(
    requests: Iterable[record.Request], ccs: Sequence[int]
) -> tuple[list[Specialisation], list[Failure]]:
    """Return the specialisations of a recorded list, and the lines that could not be restored.

    Without compute capabilities, each is for the one it was recorded for.
    """
    made = [_made(request, ccs[0] if ccs else None) for request in requests]
    return (
        [each for each in made if isinstance(each, Specialisation)],
        [each for each in made if isinstance(each, Failure)],
    )


def _made(request: record.Request, cc: int | None) -> Specialisation | Failure:
    try:
        return request.load(cc)
    except Exception as error:  # code in a list may raise anything
        return Failure(request.place, message(error).removeprefix(f"{request.place}: "))


# --- Jobs ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BuildJob:
    """A build to be made, with its key, and that of the template that it links, or its own again."""

    spec: Specialisation
    key: str
    template: str

    def __str__(self) -> str:
        """Describe the build, as in ``reduce_into(d_in: Pointer(int32), …, op: <lambda>) for sm_90``."""
        return f"{self.spec.algorithm}({', '.join((*self.types, *self.operators))}) for {text(self.spec.cc)}"

    @property
    def types(self) -> list[str]:
        """Each array or iterator, as in ``d_in: Pointer(int32)``."""
        return record.types(self.spec)

    @property
    def operators(self) -> list[str]:
        """Each operator, as in ``op: <lambda>``."""
        return record.operators(self.spec)


def jobs(asked: Iterable[Specialisation], ccs: Sequence[int] = ()) -> list[BuildJob]:
    """Return the requests as builds for each compute capability, each once.

    Without compute capabilities, each keeps its own; builds for the CPU remain for the CPU.
    """
    found: dict[str, BuildJob] = {}
    for spec in [each if each.is_cpu else replace(each, cc=cc) for each in asked for cc in ccs or (each.cc,)]:
        key = digest(build_parts(spec))
        template = key if spec.is_kernel or spec.is_cpu else digest(template_parts(spec))
        found.setdefault(key, BuildJob(spec, key, template))
    return list(found.values())


def kept(outcomes: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """Return outcomes by key; builds that are no longer in the directory count as failures."""
    store = _cache.disk()
    there = set() if store is None else {key for key, *_ in store.entries()}
    lost = "was built, but the cache did not keep it"
    if store is not None:
        lost += f": {store.path} has {len(there)} entries, and a limit of {store.limit_bytes} bytes"
    return {
        key: replace(outcome, result="failed", error=lost)
        if outcome.result in ("built", "linked") and key not in there
        else outcome
        for key, outcome in outcomes.items()
    }


def _in_order(todo: Sequence[BuildJob]) -> list[BuildJob]:
    """Order jobs: first one for each template, then those that link it, which would wait for the first.

    Templates with the same headers come together, as a helper keeps few of them.
    """
    seen: Counter[str] = Counter()
    families = {family: place for place, family in reversed(list(enumerate(map(_headers, todo))))}
    places = []
    for job in todo:
        places.append((seen[job.template], families[_headers(job)]))
        seen[job.template] += 1
    return [job for _, job in sorted(zip(places, todo, strict=True), key=lambda pair: pair[0])]


def _headers(job: BuildJob) -> tuple[str, int]:
    """Return the key of the headers that a job's kernels include."""
    family = job.spec.family
    return "" if family is None or job.spec.is_cpu else family.source_of(job.spec), job.spec.cc


def _common_headers(todo: Iterable[BuildJob], processes: int) -> set[tuple[str, int]]:
    """Return the headers with which each process will compile more than one template."""
    store = _cache.disk()
    templates = {job.template: job for job in todo}
    counts = Counter(_headers(job) for key, job in templates.items() if store is None or not store.holds(key))
    return {headers for headers, count in counts.items() if count >= 2 * processes}


# --- Building ------------------------------------------------------------------------------------------


def build(
    todo: Sequence[BuildJob], processes: int, idle: Callable[[], None] = lambda: None
) -> Generator[tuple[BuildJob, Outcome], None, None]:
    """Build, and yield each job with its outcome when it is done.

    Parameters
    ----------
    todo : sequence of BuildJob
    processes : int
        Number of concurrent builds.
    idle : callable, optional
        Called several times a second.
    """
    processes = min(processes, len(todo))
    common = _common_headers(todo, processes)
    done: SimpleQueue[tuple[BuildJob, Outcome | Exception]] = SimpleQueue()  # or why no helper can make it
    # Nor can they where a script named a store that is an object of this process.
    unusable: Exception | None = None
    if _cache._shared is not None:
        unusable = RuntimeError("the script called cupar.use_shared")

    def ask(job: BuildJob, helper: Helper) -> None:
        done.put((job, outcome(job, helper)))

    def outcome(job: BuildJob, helper: Helper) -> Outcome | Exception:
        nonlocal unusable
        if unusable is not None:
            return unusable
        start = time.perf_counter()
        try:
            return made_by(helper, job.spec, _headers(job) in common)
        except HelperError as error:
            _unlock(job)
            return Outcome("failed", time.perf_counter() - start, error=str(error))
        except Exception as error:  # starting a helper and pickling may raise anything
            if helper.is_lost:
                unusable = error
            return error

    crew = Crew(processes, _helper)
    try:
        for job in _in_order(todo):
            crew.submit(job.template, partial(ask, job))
        left = len(todo)
        while left:
            idle()
            with suppress(Empty):
                job, made = done.get(timeout=_TICK_SECONDS)
                left -= 1
                yield job, _made_here(job, made) if isinstance(made, Exception) else made
    finally:
        crew.close(_GRACE_SECONDS)  # nothing half made is left where others look for entries


def _helper() -> Helper:
    """Return a helper process with this one's bundles."""
    paths = [*map(str, _cache._used), *filter(None, [os.environ.get("CUPAR_BUNDLES")])]
    return workers.helper(_STDERR, {"CUPAR_BUNDLES": os.pathsep.join(paths)} if paths else None)


def _made_here(job: BuildJob, error: Exception) -> Outcome:
    """Make a build that no helper can make."""
    why = message(error)
    warn_once(
        ("no helper", why),
        f"What no helper process can build is built in this one, which takes longer: {why}",
    )
    return make(job.spec)


def _unlock(job: BuildJob) -> None:
    """Remove the locks of a process that was killed; others' locks stay."""
    store = _cache.disk()
    if store is not None:
        for key in (job.key, job.template):
            with suppress(OSError), store.lock(key, timeout=0):
                pass
