"""Building ahead of time: all that a script or a recorded list asks for, without a GPU.

While the script runs, factories build nothing. What they would have built is collected, and built afterwards
for each compute capability.

That is done by processes, since NVRTC compiles one program at a time in a process, whatever the number of
threads: 16 reductions on two cores take 28 s in one thread, 22 s in two, and 14 s in two processes. They are
forked, as the operators are functions that live in this process alone; and so a compiler that crashes takes
one build with it. A process that is forked while a thread imports or compiles inherits locks that nobody will
release. So the script's threads are waited for, and where others run, a forked process tries the compilers
before it is given anything to do. If none is able, this process builds.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import runpy
import signal
import sys
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal, cast
from weakref import WeakSet

from .. import _cache
from .._base.errors import BuildError
from .._base.warnings import CacheWarning, warn_once
from .._call.algorithm import Algorithm
from .._compile import cccl, nvjitlink, nvrtc, python_to_ltoir, toolchain
from .._compile.key import build_parts, digest, template_parts
from .._compile.specialisation import Specialisation
from .._device.driver import NoDeviceError
from .._ir import nodes
from .._obtain import obtain
from .record import Request

__all__ = ["Failure", "Job", "Outcome", "ask_list", "ask_script", "build", "jobs", "kept"]

Asked = tuple[type[Algorithm], Specialisation]

_TICK_SECONDS = 0.1
_ORPHAN_SECONDS = 5.0
_READY_SECONDS = 30.0
_GRACE_SECONDS = 1.0
_ABOUT_GPUS = re.compile(r"\bcuda|\bgpus?\b|nvidia", re.IGNORECASE)


# --- What is asked for ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """Something that could not be asked for: where, and why."""

    place: str
    error: str


@contextmanager
def _collecting(cc: int | None) -> Iterator[list[Asked]]:
    """Collect what factories are asked for, instead of building it; `cc` is for who names none."""
    found: list[Asked] = []

    def ask(cls: type[Algorithm], spec: Specialisation) -> Algorithm:
        found.append((cls, spec))
        return _unbuilt(cls, spec)

    obtain.forget()  # what is in memory would be answered without asking
    obtain.ahead = obtain.Ahead(cc, ask)
    try:
        yield found
    finally:
        obtain.ahead = None


def _unbuilt(cls: type[Algorithm], spec: Specialisation) -> Algorithm:
    """Return an object that is built if the script looks into it, and that cannot be called."""
    algorithm = cls.pending(spec, cast(Any, _Unbuilt(cls, spec)))
    vars(algorithm).update(_take=_refuse, bind=_refuse, load=lambda: None, ready=lambda timeout=None: True)
    return cast(Algorithm, algorithm)


_NOTHING_RUNS = (
    "building ahead runs nothing on a GPU: record a run on a machine that has one (CUPAR_RECORD=FILE) and "
    "build that list, or let the script ask with dtypes in place of arrays, and not call what it gets"
)


def _refuse(*arguments: Any, **named: Any) -> Any:
    raise NoDeviceError(_NOTHING_RUNS)


class _Unbuilt:
    """Stands in place of a future, whose result it builds when it is asked for."""

    def __init__(self, cls: type[Algorithm], spec: Specialisation) -> None:
        self._cls, self._spec = cls, spec

    def done(self) -> bool:
        return False

    def result(self) -> Algorithm:
        # In a process as all others: libraries that have compiled here might not survive being forked.
        (job,) = jobs([(self._cls, self._spec)])
        with closing(build([job], 1)) as outcomes:
            for _, outcome in outcomes:
                if outcome.result == "failed":
                    raise BuildError(outcome.error)
        return obtain.built(self._cls, self._spec, None)


def ask_script(path: Path, arguments: Sequence[str], cc: int | None) -> tuple[list[Asked], list[Failure]]:
    """Run a Python script as a program, and return what it asked for, and what ended it early, if anything.

    Parameters
    ----------
    path : Path
    arguments : sequence of str
        Those of the script: ``sys.argv[1:]``.
    cc : int or None
        Compute capability for factories that name none, as in 90; None: that of the current device.

    Notes
    -----
    `KeyboardInterrupt` passes through.
    """
    saved = sys.argv, sys.path[:]
    sys.argv, sys.path[:0] = [str(path), *arguments], [str(path.absolute().parent)]
    with _collecting(cc) as found:
        try:
            with _threads_waited_for():
                failure = _run(path, cc)
        finally:
            sys.argv, sys.path[:] = saved
    return found, [] if failure is None else [failure]


def _run(path: Path, cc: int | None) -> Failure | None:
    """Run a script; return what ended it early."""
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as error:
        if error.code not in (None, 0):
            return Failure(str(path), f"ended with exit status {error.code}")
    except NoDeviceError as error:
        unknown = cc is None and str(error) != _NOTHING_RUNS
        why = "there is no GPU here: name compute capabilities (--cc)" if unknown else _NOTHING_RUNS
        return Failure(_place(path, error), why)
    except Exception as error:
        why = message(error)
        if _ABOUT_GPUS.search(why):  # of whatever library the script looked for a GPU with
            why = f"{why}\n{_NOTHING_RUNS}"
        return Failure(_place(path, error), why)
    return None


@contextmanager
def _threads_waited_for() -> Iterator[None]:
    """Wait for the threads that the block starts, as the interpreter does for those of a program that ends.

    They may have questions of their own; and a process that is forked while they run may not be able to work.
    """
    others, executors = set(threading.enumerate()), _executors()
    yield
    for executor in _executors() - executors:
        executor.shutdown()  # its threads wait for work for ever
    while left := [each for each in threading.enumerate() if not (each.daemon or each in others)]:
        for thread in left:
            thread.join()


def _executors() -> WeakSet[ThreadPoolExecutor]:
    return WeakSet(each for each in gc.get_objects() if issubclass(type(each), ThreadPoolExecutor))


def _place(path: Path, error: Exception) -> str:
    """Return where in a script an exception came from, as in ``train.py:12``."""
    lines = [error.lineno] if isinstance(error, SyntaxError) and error.filename == str(path) else []
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f"{path}:{lines[-1]}" if lines else str(path)


def ask_list(requests: Iterable[Request], ccs: Sequence[int]) -> tuple[list[Asked], list[Failure]]:
    """Ask for what a recorded list names; return that, and what could not be asked for.

    Without compute capabilities, each is asked for its own.
    """
    failures = []
    # The same for another compute capability is the same question, if it is asked for all of them.
    different = {(each.content, None if ccs else each.cc): each for each in requests}
    with _collecting(None) as found:
        for request in different.values():
            why = _ask(request, ccs[0] if ccs else request.cc)
            if why is not None:
                failures.append(Failure(request.place, why))
    return found, failures


def _ask(request: Request, cc: int) -> str | None:
    """Ask for one line of a list; return why that cannot be, None if it can."""
    try:
        request.ask(cc=cc)
    except Exception as error:  # whatever the code in a list, and the factories, raise
        return message(error).removeprefix(f"{request.place}: ")
    return None


def message(error: Exception) -> str:
    """Return an exception's message, with its type unless that says nothing that the message does not."""
    text = str(error).strip()
    plain = isinstance(error, (TypeError, ValueError, RuntimeError, OSError)) and text
    return text if plain else f"{type(error).__name__}: {text}".removesuffix(": ")


# --- What is to be built -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A build to be made.

    Attributes
    ----------
    cls : type of Algorithm
    spec : Specialisation
    key : str
        Of the build.
    template : str
        Key of the template that it links, or its own.
    """

    cls: type[Algorithm]
    spec: Specialisation
    key: str
    template: str

    def __str__(self) -> str:
        """Return what it is, as in ``reduce_into(d_in: Pointer(int32), …, op: <lambda>) for sm_90``."""
        return f"{self.spec.algorithm}({', '.join((*self.types, *self.operators))}) for sm_{self.spec.cc}"

    @property
    def types(self) -> list[str]:
        """Each array or iterator, as in ``d_in: Pointer(int32)``."""
        return [f"{each.name}: {nodes.description(each.given)}" for each in self.spec.arguments]

    @property
    def operators(self) -> list[str]:
        """Each operator, as in ``op: <lambda>``."""
        return [f"{name}: {op.name}" for name, op in self.spec.operators]


def jobs(asked: Iterable[Asked], ccs: Sequence[int] = ()) -> list[Job]:
    """Return what was asked for as builds for each compute capability, each once.

    Without compute capabilities, each is for the one that it was asked for.

    Raises
    ------
    ImportError
        If a compiler is missing, whose version is part of a key.
    """
    found: dict[str, Job] = {}
    for cls, asked_spec in asked:
        for cc in ccs or (asked_spec.cc,):
            spec = replace(asked_spec, cc=cc)
            key = digest(build_parts(spec))
            template = digest(template_parts(spec)) if spec.has_template else key
            found.setdefault(key, Job(cls, spec, key, template))
    return list(found.values())


def kept(outcomes: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """Return outcomes by key, those that were built and are not in the directory now turned into failures."""
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


# --- Building ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What became of a job.

    Attributes
    ----------
    result : {"built", "linked", "there", "failed"}
        ``"linked"``: CCCL's kernels were in the cache. ``"there"``: all of it was.
    seconds : float
    cubin_size : int
        Bytes of GPU code.
    error : str
        Why it failed.
    warnings : tuple of str
        What the cache said.
    """

    result: Literal["built", "linked", "there", "failed"]
    seconds: float
    cubin_size: int = 0
    error: str = ""
    warnings: tuple[str, ...] = field(default=())


def build(
    todo: Sequence[Job], processes: int, idle: Callable[[], None] = lambda: None
) -> Generator[tuple[Job, Outcome], None, None]:
    """Build, and yield each job with what became of it, as they are done.

    Parameters
    ----------
    todo : sequence of Job
    processes : int
        How many build at a time.
    idle : callable, optional
        Called several times a second.
    """
    waiting = deque(_in_order(todo))
    workers: list[_Worker] = []
    try:
        if not _forks_are_of_no_use:
            # One after the other, so that each is known here, and ended, if an interrupt comes meanwhile.
            workers.extend(_Worker(todo) for _ in range(min(processes, len(todo))))
        while workers and (waiting or any(worker.job for worker in workers)):
            done = _awaited(workers)
            crashed = sum(worker.has_crashed for worker in workers)
            workers[:] = [worker for worker in workers if worker.is_alive]
            workers.extend(_Worker(todo) for _ in range(crashed))
            for worker in workers:
                if waiting and worker.is_free:
                    worker.begin(waiting.popleft())
            yield from done
            idle()
        while waiting:
            _say_that_forks_are_of_no_use()
            job = waiting.popleft()
            yield job, _make(job)
            idle()
    finally:
        _end(workers)


def _awaited(workers: Sequence[_Worker]) -> list[tuple[Job, Outcome]]:
    """Wait a moment; return what was done meanwhile, and end those who are not ready in time."""
    pipes = {worker.pipe: worker for worker in workers if not worker.is_free}
    done = []
    for pipe in wait(list(pipes), _TICK_SECONDS):
        worker = pipes[cast(Connection, pipe)]
        if worker.job is None:
            worker.greet()
        else:
            done.append(worker.end())
    _end([worker for worker in workers if worker.is_late])
    return done


_forks_are_of_no_use = False


def _say_that_forks_are_of_no_use() -> None:
    # Nor will they be: what is compiled in this process might not survive being forked.
    global _forks_are_of_no_use
    _forks_are_of_no_use = True
    warn_once(
        "no workers",
        f"No process that this one forks was able to build within {_READY_SECONDS:g} seconds: threads of the "
        "script, or of a library, were importing or compiling when it was forked. This process builds, which "
        "takes longer. Let the script wait for its threads before it looks into what it asks for.",
    )


def _in_order(todo: Sequence[Job]) -> list[Job]:
    """Return first one job for each template, then those that link it: at the same time, these would wait."""
    seen: Counter[str] = Counter()
    rounds = []
    for job in todo:
        rounds.append(seen[job.template])
        seen[job.template] += 1
    return [job for _, job in sorted(zip(rounds, todo, strict=True), key=lambda pair: pair[0])]


_SIGNALS = {signal.SIGINT, signal.SIGTERM}


class _Worker:
    """A process that makes builds, one after the other.

    Attributes
    ----------
    pipe : Connection
        Readable once there is something to `greet`, or to `end`.
    job : Job or None
        What it is making.
    is_ready : bool
        Whether it was able to work.
    is_alive : bool
    """

    def __init__(self, todo: Sequence[Job]) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.job: Job | None = None
        self.is_ready, self.is_alive = False, True
        self._places = {job.key: place for place, job in enumerate(todo)}
        self._start = time.monotonic()
        # Until it has handlers of its own, those of this process must not run there.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            arguments = (todo, theirs, mask, threading.active_count() > 1)
            self._process = context.Process(target=_serve, args=arguments, daemon=True)
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        theirs.close()  # so that its end is noticed here

    @property
    def is_free(self) -> bool:
        return self.is_alive and self.is_ready and self.job is None

    @property
    def is_late(self) -> bool:
        """Whether it should be ready by now."""
        return self.is_alive and not self.is_ready and time.monotonic() > self._start + _READY_SECONDS

    @property
    def has_crashed(self) -> bool:
        """Whether it was able to work, and is no more."""
        return self.is_ready and not self.is_alive

    def greet(self) -> None:
        """Take note that it is ready, or not able to be; once the pipe is readable."""
        try:
            self.pipe.recv()
            self.is_ready = True
        except (EOFError, OSError):
            self.kill()

    def begin(self, job: Job) -> None:
        """Let it make a build."""
        self.job, self._start = job, time.monotonic()
        with suppress(OSError):  # it is gone, as the pipe will tell
            self.pipe.send(self._places[job.key])

    def end(self) -> tuple[Job, Outcome]:
        """Return the job and what became of it, once the pipe is readable."""
        job = cast(Job, self.job)
        try:
            outcome: Outcome = self.pipe.recv()
            self.job = None
        except (EOFError, OSError):
            self._process.join(1)
            self.kill()
            code = self._process.exitcode or 0
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
            error = f"the process that built it ended with {how}: a compiler crashed, or memory ran out"
            outcome = Outcome("failed", time.monotonic() - self._start, error=error)
        return job, outcome

    def terminate(self) -> None:
        """Let it end as soon as it can."""
        if self.is_alive:
            self._process.terminate()

    def kill(self, grace: float = 0.0) -> None:
        """End it, whatever it does. Nothing half made is left where others look for entries."""
        if not self.is_alive:
            return
        self.is_alive = False
        self._process.join(grace)
        self._process.kill()
        self._process.join()
        self.pipe.close()
        if self.job is not None:
            _unlock(self.job)
            self.job = None


def _end(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.terminate()
    until = time.monotonic() + _GRACE_SECONDS
    for worker in workers:
        worker.kill(max(0.0, until - time.monotonic()))


def _unlock(job: Job) -> None:
    """Remove the locks that a process left which was killed; what others hold is theirs."""
    store = _cache.disk()
    if store is not None:
        for key in (job.key, job.template):
            with store.lock(key, timeout=0):
                pass


def _serve(todo: Sequence[Job], pipe: Connection, mask: set[signal.Signals], has_threads: bool) -> None:
    """Make the builds that are asked for, until the process that asks is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    signal.signal(signal.SIGTERM, _leave)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    parent = os.getppid()
    if toolchain._is_stuck:
        return
    if has_threads:
        _use_compilers()
    pipe.send("ready")
    while True:
        # The other processes have the parent's end of the pipe open, so that it does not end with it.
        while not pipe.poll(_ORPHAN_SECONDS):
            if os.getppid() != parent:
                return
        pipe.send(_make(todo[pipe.recv()]))


def _leave(*received: object) -> None:
    """Unwind, so that what is locked is unlocked, and what is half written removed."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signal.SIGTERM)


def _use_compilers() -> None:
    """Use all that builds use and a thread of the parent may have held: this returns, or waits for ever.

    What cannot be used for another reason, each build will say.
    """
    with suppress(Exception):
        cccl.bindings()
    with suppress(Exception):
        python_to_ltoir.warm_up()
    with suppress(Exception):
        nvjitlink.link([nvrtc.compile_cpp("__device__ void nothing() {}", 90)], 90)


def _make(job: Job) -> Outcome:
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            built = obtain.built(job.cls, job.spec, None).build
            failed = ""
        except Exception as error:  # whatever the compilers raise
            failed = message(error)
    seconds = time.perf_counter() - start
    texts = tuple(str(each.message) for each in said if issubclass(each.category, CacheWarning))
    if failed:
        return Outcome("failed", seconds, error=failed, warnings=texts)
    result = built.origin if built.origin in ("built", "linked") else "there"
    return Outcome(cast(Any, result), seconds, built.cubin_size, warnings=texts)
