"""Helper processes, in which several builds are compiled at the same time.

NVRTC lets go of the interpreter's lock, and yet compiles one program at a time in a process, whatever the
number of threads: 16 reductions on two cores take 28 s in one thread, 22 s in two, and 14 s in two processes.

A helper is a fresh interpreter that knows nothing of the user's program: not its modules, its threads or its
GPU. It must have this process's versions of all that builds depend on. It is sent the name of a function and
an argument, both as bytes, and sends back what the function returns. There are three such functions. One runs
NVRTC on the C++ of kernels, and is here. One makes a whole build, for `cupar build`, and is in `_ahead.make`;
one links what is slow to link, and is in `_obtain.produce`.

Kernels: the first thread that needs NVRTC uses it here, and those that come meanwhile have a helper use it,
which keeps their headers precompiled. nvJitLink needs none of this: it links in as many threads as there are.
A helper is sent no function of the user's but as LTO-IR. Whatever goes wrong, from an interpreter that cannot
be started to a program that does not compile, the thread that asked then does itself what it asked for, and
so gets the true error.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _cache
from .._base import background, fork, log
from .._base.background import cores
from .._base.words import counted
from . import precompiled, toolchain

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from subprocess import Popen

T = TypeVar("T")

__all__ = ["Helper", "HelperError", "Pool", "compile_kernels", "serve"]

_MOST = 8  # helpers, since each takes 500 MB for NVRTC
_MOST_APART = 4  # of which nobody waits for what they do
_START_SECONDS = 60.0
_COMPILE_SECONDS = 300.0  # the longest takes 16 on a machine that has nothing else to do
_IDLE_SECONDS = 10.0
_ORPHAN_SECONDS = 1.0


def compile_kernels(source: str, cc: int) -> bytes:
    """Compile the C++ of kernels to LTO-IR, here or in a helper process."""
    return _compiled(
        lambda helper: helper.ask(f"{__name__}:kernels", b"%d\n%s" % (cc, source.encode()), _COMPILE_SECONDS),
        bytes,
        lambda: precompiled.compile_kernels(source, cc),
    )


def _compiled(ask: Callable[[Helper], bytes], use: Callable[[bytes], T], here: Callable[[], T]) -> T:
    """Return what `use` makes of a helper's answer; if there is no helper, or no answer, compile here."""
    with _pool.seat() as helper:
        try:
            if helper is not None and (answer := ask(helper)):
                return use(answer)
        except Exception as error:  # whatever it is, here it may work
            _explain(f"{type(error).__name__}: {error}")
        if background.is_abandoned():
            raise background.AbandonedError("not compiled, as the process ends")
        return here()


# --- In this process -----------------------------------------------------------------------------------


class Pool:
    """Places to compile in: one in this process, the others in helpers, which start when there is work.

    Those `apart` are in helpers alone, as long as there can be any. These finish what they have begun when
    this process ends, if there is a place to keep it.
    """

    def __init__(self, limit: int, *, apart: bool = False) -> None:
        self._limit = limit
        self._is_apart = apart
        self._changed = threading.Condition()
        self._is_used_here = False
        self._helpers: set[Helper] = set()
        self._idle: list[Helper] = []
        self._timer: threading.Timer | None = None

    @contextmanager
    def seat(self) -> Iterator[Helper | None]:
        """Wait for a place for the block: a helper, None for this process."""
        helper = self._take()
        try:
            yield helper
        finally:
            self._give_back(helper)

    def _take(self) -> Helper | None:
        with self._changed:
            while True:
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
                if not self._is_used_here and not (self._is_apart and self._limit):
                    self._is_used_here = True
                    return None
                if self._idle:
                    return self._idle.pop()
                if len(self._helpers) < self._limit:
                    helper = Helper(finishes=self._is_apart and _cache.disk() is not None)
                    self._helpers.add(helper)
                    return helper
                self._changed.wait()

    def _give_back(self, helper: Helper | None) -> None:
        with self._changed:
            if helper is None:
                self._is_used_here = False
            elif helper.is_lost:
                self._helpers.discard(helper)
                # Its place goes with it, so that what goes wrong each time does so a few times only. Where
                # one did not even start, no other would.
                self._limit = self._limit - 1 if helper.has_started else 0
            else:
                self._idle.append(helper)
            if not self._is_used_here and len(self._idle) == len(self._helpers):
                self._wait_for_work()
            self._changed.notify()
        if helper is not None and helper.is_lost:
            helper.kill()

    def _wait_for_work(self) -> None:
        """End the helpers if there is nothing to do for some seconds."""
        if not self._idle:
            return
        self._timer = threading.Timer(_IDLE_SECONDS, self._rest)
        self._timer.daemon = True
        with suppress(RuntimeError):  # when the interpreter ends, which ends them, too
            self._timer.start()

    def _rest(self) -> None:
        with self._changed:
            if self._is_used_here or len(self._idle) < len(self._helpers):
                return
            idle, self._idle = self._idle, []
            self._helpers.clear()
        for helper in idle:
            helper.kill()

    def close(self) -> None:
        """End all helpers that finish nothing, whatever they do; there will be no others."""
        with self._changed:
            self._limit = 0
            helpers = list(self._helpers)
        for helper in helpers:
            helper.leave()


class HelperError(RuntimeError):
    """A helper process ended in place of an answer."""


class Helper:
    """A helper process, as this process sees it. It starts when it is first used.

    Its output goes to a descriptor, or nowhere: compilers whose work is done again here print again what is
    wrong. Once `is_lost`, it is of no more use; unless it `has_started`, it was never able to work. If it
    `finishes`, it ends what it has begun also if this process is gone, and then itself.
    """

    def __init__(
        self,
        output: int | None = None,
        environment: Mapping[str, str] | None = None,
        finishes: bool = False,
    ) -> None:
        self.has_started = False
        self._finishes = finishes
        self.is_lost = False
        self._output = output
        self._environment = {"CUDA_VISIBLE_DEVICES": "", "CUPAR_PROGRESS": "0", **(environment or {})}
        self._process: Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._starting = threading.Lock()

    def ask(self, function: str, argument: bytes, seconds: float | None = None) -> bytes:
        """Have it call a function, as in ``"package.module:function"``, that takes and returns bytes.

        Raises
        ------
        HelperError
            If the process ends, as when a compiler crashes.
        Exception
            Whatever else goes wrong. In any case the helper is lost.
        """
        try:
            pipe = self._pipe or self._start()
            # Also before it has started, so that it has this to finish if this process ends meanwhile.
            pipe.send_bytes(b"%s\n%s" % (function.encode(), argument))
            if not self.has_started:
                _received(pipe, _START_SECONDS)
                self.has_started = True
            return _received(pipe, seconds)
        except BaseException as error:  # an interrupt, too: it would answer what nobody asks any more
            self.is_lost = True
            if isinstance(error, (EOFError, ConnectionError)) and self._process is not None:
                how = self._end_of_process()
                if self.has_started:
                    raise HelperError(
                        f"the process that built it ended with {how}: a compiler crashed, or memory ran out"
                    ) from error
                raise RuntimeError(f"a helper process ended with {how} before it could work") from error
            raise

    def _start(self) -> Connection:
        """Start it, as a process of its own session: what a terminal sends is for this process."""
        import subprocess
        from multiprocessing.connection import Pipe

        interpreter = _interpreter()
        output = subprocess.DEVNULL if self._output is None else self._output
        ours, theirs = Pipe()
        with self._starting, theirs:
            if self.is_lost:
                raise RuntimeError("it was ended before it began")
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [interpreter, "-I", "-c", _PROGRAM, str(number)],
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **self._environment},
            )
        self._pipe = ours
        libraries: list[str] = []
        with suppress(ImportError):  # as below
            libraries = [str(toolchain.library_path(name)) for name in _LIBRARIES]
        ours.send([*(each for each in sys.path if isinstance(each, str)), str(Path(__file__).parents[2])])
        ours.send((os.getpid(), libraries, _surroundings(), self._finishes))
        return ours

    def _end_of_process(self) -> str:
        """Return how the process ended that closed its end of the pipe, as text."""
        import signal
        import subprocess

        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        code = self._process.returncode or 0
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

    def terminate(self) -> None:
        """Let the process end as soon as it can: what is locked is unlocked, what is half written removed."""
        with self._starting:
            self.is_lost = True
        if self._process is not None:
            self._process.terminate()

    def kill(self, grace: float = 0.0) -> None:
        """End the process after some seconds, whatever it does then."""
        import subprocess

        with self._starting:
            self.is_lost = True
        if self._process is not None:
            if grace:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(grace)
            self._process.kill()
            self._process.wait()

    def leave(self) -> None:
        """Leave the process alone if it finishes what it has begun, and else end it, as this one ends."""
        if not self._finishes:
            self.kill()
        elif self._process is not None:
            self._process.returncode = 0  # nobody waits for it


def _received(pipe: Connection, seconds: float | None) -> bytes:
    if not pipe.poll(seconds):
        raise TimeoutError(f"it has not answered for {counted(seconds or 0, 'second')}")
    return pipe.recv_bytes()


def _interpreter() -> str:
    """Return the path of Python's interpreter; where Python is embedded, it may be that of any program."""
    path = sys.executable or ""
    if hasattr(sys, "frozen") or not Path(path).name.startswith("python"):
        raise FileNotFoundError(f"sys.executable is {path!r}, which is no Python interpreter")
    return path


def _explain(why: str) -> None:
    log.debug("compiled without a helper process: %s", why)


def _pool_for_this_machine() -> Pool:
    return Pool(min(cores() - 1, _MOST))


def _apart_for_this_machine() -> Pool:
    return Pool(min(max(1, cores() // 2), _MOST_APART), apart=True)


_pool = _pool_for_this_machine()
_apart = _apart_for_this_machine()


def apart() -> AbstractContextManager[Helper | None]:
    """Wait for a helper for the block that nobody else uses; None if there is none to be had."""
    return _apart.seat()


@fork.in_child
def _after_fork() -> None:
    global _pool, _apart
    fork.leak((_pool, _apart))  # the helpers are the parent's, as are the threads that they work for
    _pool, _apart = _pool_for_this_machine(), _apart_for_this_machine()


@atexit.register
def _close() -> None:
    background.abandon()  # or what helpers compiled in the background would be compiled here
    for pool in (_pool, _apart):  # those of this process, which may have been forked from another
        pool.close()


# --- In a helper ---------------------------------------------------------------------------------------

_LIBRARIES = ("nvrtc", "nvJitLink")

# Isolated, and without the user's script: nothing of the user's is imported, but what is in `sys.path` is
# found as it is in the process that asks.
_PROGRAM = """
import sys
from multiprocessing.connection import Connection
pipe = Connection(int(sys.argv[1]))
sys.path[:] = pipe.recv()
from cupar._compile import workers as _workers
_workers.serve(pipe)
"""


def serve(pipe: Connection) -> None:
    """Do what is asked for, until the process that asks is gone."""
    import pkgutil
    import signal

    global _parent
    _parent, libraries, expected, finishes = pipe.recv()
    _working.acquire()  # for what is asked for first, and is on its way
    threading.Thread(target=_end_with, args=(_parent, finishes), daemon=True).start()
    for path in libraries:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)  # this very one, which PyTorch may have brought
    found = _surroundings()
    if found != expected:
        raise RuntimeError(f"a helper process has {found}, expected {expected}")
    precompiled.keep_headers()
    signal.signal(signal.SIGTERM, _leave)
    pipe.send_bytes(b"ready")
    with suppress(EOFError, OSError, SystemExit):
        while True:
            function, _, argument = pipe.recv_bytes().partition(b"\n")
            if not _working.locked():
                _working.acquire()
            answer = pkgutil.resolve_name(function.decode())(argument)
            _working.release()
            pipe.send_bytes(answer)
    os._exit(0)


_parent: int | None = None
_working = threading.Lock()  # held while something that was asked for is done


def is_orphan() -> bool:
    """Whether the process is gone for which this one works."""
    return _parent is not None and os.getppid() != _parent


def _leave(*received: object) -> None:
    """Unwind, so that what is locked is unlocked, and what is half written removed."""
    sys.exit()


def kernels(request: bytes) -> bytes:
    """Return LTO-IR for a compute capability and the C++ of kernels, nothing if NVRTC makes nothing of it."""
    with suppress(Exception):
        cc, _, source = request.partition(b"\n")
        return precompiled.compile_kernels(source.decode(), int(cc))
    return b""


def _end_with(parent: int, finishes: bool) -> None:
    """End this process when its parent is gone, even in the middle of a build unless it finishes that.

    The pipe might not tell: processes that were forked from the parent have its end of it open. Nor would
    Linux's parent-death signal do: it is sent when the thread ends that started this process.
    """
    while os.getppid() == parent:
        time.sleep(_ORPHAN_SECONDS)
    if finishes:
        _working.acquire(timeout=_COMPILE_SECONDS)
    os._exit(1)


def _surroundings() -> dict[str, Any]:
    """Return all that kernels depend on and that is not sent with a request."""
    from .. import __version__

    folders: list[str] = []
    with suppress(ImportError):  # a helper finds builds where there is nothing to compile with, too
        folders = [str(folder) for folder in toolchain.include_folders()]
    return {"cupar": __version__, "include": folders, **toolchain.template_versions()}
